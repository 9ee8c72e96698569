"""Networks for images: what is chosen, when training ends, what users may set, what comes back."""

import contextlib
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator
from torch import nn

from collidescope import CollisionClassifier, CollisionWarning, classifier
from collidescope.learners import images, recipe
from collidescope.learners.base import Task
from collidescope.sample import make_sample, validated
from collidescope.training import loop
from collidescope.training.rows import Rows
from helpers import bars

BRIEF = {"max_epochs": 2}
ignore_warnings = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


def corners(n=120, seed=0):
    """A bright corner on the left or on the right: mirror images have the other class."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, 1, 8, 8)).astype(np.float32)
    codes = np.arange(n) % 2
    X[codes == 0, :, :, :3] += 1
    X[codes == 1, :, :, 5:] += 1
    return X, codes


def fitted(X, codes, **options):
    return recipe("convolution").fit(Task(X, codes, 2, seed=1, **options))


@pytest.fixture(scope="module")
def left_or_right():
    X, codes = corners()
    return fitted(X, codes)


def test_mirroring_is_not_chosen_where_it_changes_the_class(left_or_right):
    assert not left_or_right.mirrored


def test_an_easy_problem_is_trained_to_its_end(left_or_right):
    assert not left_or_right.capped


def test_a_run_that_may_not_be_longer_is_capped():
    X, codes = corners()
    assert fitted(X, codes, training=BRIEF).capped


def test_epochs_of_a_user_are_honoured():
    X, codes = bars(40)
    assert len(fitted(X, codes, training={"max_epochs": 3}).history) == 3


@pytest.mark.parametrize(
    "changed", [{"learning_rate": 1e-6}, {"weight_decay": 0.5}, {"batch_size": 7}]
)
def test_every_setting_of_training_changes_the_network(changed):
    X, codes = bars(40)
    plain = fitted(X, codes, training=BRIEF).log_posteriors(X)
    other = fitted(X, codes, training=BRIEF | changed).log_posteriors(X)
    assert not np.allclose(plain, other, atol=1e-6)


@pytest.mark.parametrize("name", ["dropout", "hidden_layer_sizes", "patience"])
def test_a_setting_that_images_do_not_take_is_refused_by_name(name):
    values = {"dropout": 0.1, "hidden_layer_sizes": (8,), "patience": 3}
    X, codes = bars(20)
    with pytest.raises(ValueError, match=name):
        fitted(X, codes, training={name: values[name]})


@pytest.mark.parametrize("epoch", [3, 6])  # of a run that chooses, and of the last run
def test_a_run_is_resumed_from_its_checkpoint(monkeypatch, tmp_path, epoch):
    X, codes = bars(40)
    undisturbed = fitted(X, codes, training=BRIEF)
    original = loop.run_epoch
    done = []

    def run_epoch(*arguments):
        done.append(1)
        if len(done) == epoch:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "run_epoch", run_epoch)
        with contextlib.suppress(
            KeyboardInterrupt
        ):  # a run that chooses has nothing to keep
            assert fitted(X, codes, training=BRIEF, checkpoint=tmp_path).interrupted
    monkeypatch.setattr(loop, "run_epoch", run_epoch)
    resumed = fitted(X, codes, training=BRIEF, checkpoint=tmp_path)
    assert np.array_equal(resumed.log_posteriors(X), undisturbed.log_posteriors(X))
    assert len(done) == 7  # six epochs of three runs, one of them twice


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("temperature", 0.0),
        ("temperature", float("nan")),
        ("mirrored", 1),
        ("history", "none"),
        ("width", 0),
        ("noise", -0.1),
    ],
)
def test_a_file_that_no_network_would_have_written_is_refused(name, bad, left_or_right):
    tree = {**left_or_right.export(), name: bad}
    with pytest.raises(ValueError, match=name):
        recipe("convolution").restore(tree, (1, 8, 8), 2)


@pytest.mark.parametrize(
    ("name", "bad"), [("width", 10**6), ("shape", [1, 8, 9]), ("arrays", {})]
)
def test_a_file_of_another_network_is_refused(name, bad, left_or_right):
    tree = {**left_or_right.export(), name: bad}
    with pytest.raises(ValueError, match=r"arrays|shape|width"):
        recipe("convolution").restore(tree, (1, 8, 8), 2)


def test_a_file_brings_back_the_temperature(left_or_right):
    X, _ = corners(10, seed=1)
    again = recipe("convolution").restore(left_or_right.export(), (1, 8, 8), 2)
    assert again.temperature == left_or_right.temperature
    assert_allclose(again.log_posteriors(X), left_or_right.log_posteriors(X), atol=1e-5)


@pytest.mark.parametrize(
    "shape", [(1, 28, 28), (3, 32, 32), (3, 64, 48), (3, 96, 96), (2, 5, 3)]
)
def test_images_of_many_shapes_have_a_network(shape):
    module = images.build(shape, 4, 8).eval()
    assert module(torch.zeros(2, *shape)).shape == (2, 4)


def test_larger_images_are_scaled_down_with_a_warning():
    X = np.random.default_rng(0).normal(size=(12, 1, 120, 60)).astype(np.float32)
    with pytest.warns(CollisionWarning, match="scaled down to 96 × 48"):
        member = fitted(X, np.arange(12) % 2, training={"max_epochs": 1})
    assert member.log_posteriors(X).shape == (12, 2)


def test_shifts_reflect_the_edges():
    shifted = images.reflected(8, torch.tensor([0.0, 0.5, 0.99]))
    assert shifted.tolist() == [
        [1, 0, 1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 4, 5, 6, 7, 6],
    ]


def test_a_quarter_of_every_side_is_blank():
    blank = images.blanked(8, torch.rand(100))
    assert blank.sum(1).tolist() == [2] * 100


def test_the_temperature_of_planted_logits_is_found():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 3, generator=generator)
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    temperature, noise = images.calibrated(2 * logits, y, torch.ones(len(y)))
    assert temperature == pytest.approx(2, rel=0.1)
    assert noise < 0.01


def test_the_share_of_wrong_labels_is_found():
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(20_000, 4, generator=generator)
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    anything = torch.randint(4, y.shape, generator=generator)
    wrong = torch.rand(y.shape, generator=generator) < 0.08
    noisy = torch.where(wrong, anything, y)
    temperature, noise = images.calibrated(logits, noisy, torch.ones(len(y)))
    assert noise == 0.08
    assert temperature == pytest.approx(1, rel=0.1)


def test_a_handful_of_images_hardly_calibrates():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    y = torch.tensor([0, 1, 1])
    temperature, noise = images.calibrated(logits, y, torch.ones(3))
    assert temperature == pytest.approx(1, rel=0.5)
    assert noise == 0


class Scored(images.Trials):
    """Trials whose scores are given: by the length, and whether images are mixed."""

    def scores(self, multiple, variation):
        brier = self.known[multiple, variation.mixed] + 0.1 * variation.mirrored
        every = torch.full((len(self.held_out),), brier).double()
        return images.Scores(every, every, brier, temperature=1.0, noise=0.0)


def planned(monkeypatch, plain, mixed):
    """The plan where runs of 1, 2, 4 and 8 usual lengths have these scores."""
    known = {}
    for kind, scores in ((False, plain), (True, mixed)):
        for power, score in enumerate(scores):
            known[2.0**power, kind] = score
    monkeypatch.setattr(images, "Trials", partial(Scored, known=known))
    X, codes = bars(60)
    task = Task(X, codes, 2, device="cpu")
    member = images.Convolution("convolution", cpu_longest=8.0)
    training = replace(member.training(task), mixes=True)
    return member.plan(training, images.Images.of(task))


def test_runs_are_doubled_until_that_gains_next_to_nothing(monkeypatch):
    plan = planned(monkeypatch, [0.4, 0.3, 0.299, 0.1], [0.5, 0.5])
    assert (plan.multiple, plan.variation.mixed, plan.capped) == (2.0, False, False)


def test_the_longest_run_that_still_gains_is_capped(monkeypatch):
    plan = planned(monkeypatch, [0.4, 0.3, 0.2, 0.1], [1, 1, 1, 1])
    assert (plan.multiple, plan.capped) == (8.0, True)


def test_mixing_has_longer_runs_to_pay(monkeypatch):
    plan = planned(monkeypatch, [0.4, 0.4], [0.41, 0.39, 0.3, 0.3])
    assert (plan.multiple, plan.variation.mixed) == (4.0, True)


def test_mixing_that_is_far_behind_is_tried_no_longer(monkeypatch):
    plan = planned(monkeypatch, [0.4, 0.4], [0.43])
    assert (plan.multiple, plan.variation.mixed) == (1.0, False)


class OnGpu(images.Convolution):
    """As on a GPU, but for mixing: several networks."""

    def training(self, task):
        return replace(super().training(task), most_networks=self.gpu_networks)


def several(n, images_in_all):
    X, codes = bars(n)
    member = OnGpu("convolution", images_in_all=images_in_all)
    return X, member.fit(Task(X, codes, 2, seed=1, device="cpu", training=BRIEF))


@ignore_warnings
@pytest.mark.parametrize(("images_in_all", "networks"), [(30, 1), (130, 3), (999, 4)])
def test_several_networks_share_a_number_of_images(images_in_all, networks):
    _, fitted = several(40, images_in_all)
    assert fitted.networks == len(fitted.module.networks) == networks


@ignore_warnings
def test_several_networks_differ():
    X, fitted = several(40, 80)
    rows = torch.from_numpy(X)
    first, second = (network(rows) for network in fitted.module.networks)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(fitted.module(rows), (first + second) / 2)


@ignore_warnings
def test_several_networks_are_saved_together():
    X, fitted = several(40, 80)
    again = recipe("convolution").restore(fitted.export(), (1, 8, 8), 2)
    np.testing.assert_allclose(
        again.log_posteriors(X), fitted.log_posteriors(X), atol=1e-5
    )


def test_a_cpu_does_not_mix_images():
    X, codes = bars(20)
    task = Task(X, codes, 2, device="cpu")
    assert not recipe("convolution").training(task).mixes


def test_weights_count_as_copies_of_images_in_the_gain():
    before = torch.tensor([0.5, 0.3])
    after = torch.tensor([0.1, 0.3])
    gain, _ = images.paired_gain(before, after, torch.tensor([1.0, 3.0]))
    assert gain == pytest.approx(0.1)


def test_the_first_layer_whitens_patches():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(300, 2, 9, 9, generator=generator)
    smooth = torch.nn.functional.avg_pool2d(noise, 3, 1, 1)
    data = images.Images(Rows(smooth), torch.zeros(300), torch.ones(300))
    module = images.build((2, 9, 9), 3, 4)
    images.whiten(module, data)
    answers = module[0](smooth).transpose(0, 1).flatten(1)
    n_directions = len(answers) // 2
    moments = answers @ answers.T / answers.shape[1]
    own = moments[:n_directions, :n_directions]
    assert torch.allclose(own, torch.eye(n_directions), atol=0.02)


def test_both_signs_of_every_direction_are_seen():
    data = images.Images(Rows(torch.randn(9, 1, 8, 8)), torch.zeros(9), torch.ones(9))
    module = images.build((1, 8, 8), 2, 4)
    images.whiten(module, data)
    first, second = module[0].weight.chunk(2)
    assert torch.equal(first, -second)


def test_one_plan_serves_all_folds_and_sizes(monkeypatch):
    X, y = bars(160)
    plans = []
    original = images.Convolution.plan

    def plan(self, training, data):
        plans.append(len(data))
        return original(self, training, data)

    monkeypatch.setattr(images.Convolution, "plan", plan)
    settings = {"members": ["convolution"], "cv": 2, "training": BRIEF}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollisionWarning)
        CollisionClassifier(**settings, device="cpu", random_state=0).fit(X, y)
    assert plans == [80]


def test_pixels_stay_bytes_until_they_are_standardised():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
    labels = np.arange(20) % 2
    rows, _ = validated(BaseEstimator(), pixels, labels)
    assert rows.dtype == np.uint8
    as_bytes = make_sample(pixels, labels)
    as_floats = make_sample(pixels.astype(np.float64), labels)
    assert np.array_equal(as_bytes.X, as_floats.X)
    assert np.array_equal(as_bytes.hashes, as_floats.hashes)


@ignore_warnings
def test_colours_may_come_first_or_last():
    X, y = bars(40)
    colour = np.repeat(X, 3, axis=1)
    settings = {"members": ["convolution"], "cv": 2, "limit": False, "training": BRIEF}
    first = CollisionClassifier(**settings, random_state=0).fit(colour, y)
    last = CollisionClassifier(**settings, random_state=0).fit(
        colour.transpose(0, 2, 3, 1), y
    )
    assert np.array_equal(first.posteriors_, last.posteriors_)


@ignore_warnings
@pytest.mark.parametrize(("epochs", "capped"), [(1, True), (200, False)])
def test_a_range_of_capped_networks_is_limited_by_training(epochs, capped):
    X, y = corners(160)
    flat = X.reshape(len(X), -1)
    clf = CollisionClassifier(
        ["network"], cv=2, training={"max_epochs": epochs}, device="cpu", random_state=0
    ).fit(flat, y)
    assert (clf.limit_.state == "capped") == capped


@pytest.fixture(scope="module")
def ended_early():
    X, y = bars(160)
    clf = CollisionClassifier(
        ["convolution"], cv=2, training={"max_epochs": 1}, device="cpu", random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollisionWarning)
        return clf.fit(X, y)


def test_a_range_of_networks_that_ended_early_has_no_lower_end(ended_early):
    assert ended_early.limit_.pber_interval()[0] == 0


def test_words_say_that_training_is_the_limit(ended_early):
    assert "limited by training, not by rows" in str(ended_early.limit_)


def encoder(channels, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, n_classes))


@ignore_warnings
def test_a_network_of_the_user_has_a_point_at_every_size():
    X, y = corners(320)
    y[::6] = 1 - y[::6]  # else the loss falls for ever
    fast = {
        "learning_rate": 0.05
    }  # few rows make few steps: 200 epochs end too early otherwise
    clf = CollisionClassifier([encoder], cv=2, training=fast, random_state=0).fit(X, y)
    assert list(clf.posteriors_by_size_) == [20, 40, 80, 160]
    assert not clf.limit_.capped


def blind(channels, n_classes):
    """A network that knows the shares of the classes alone."""
    layer = nn.Linear(64 * channels, n_classes)
    layer.weight.requires_grad_(False)
    layer.weight.data.zero_()
    return nn.Sequential(nn.Flatten(), layer)


@pytest.fixture(scope="module")
def two_factories():
    X, y = corners(160)
    fast = {"learning_rate": 0.05, "max_epochs": 20}
    clf = CollisionClassifier([blind, encoder], cv=2, training=fast, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollisionWarning)
        return clf.fit(X, y)


def test_the_better_of_two_factories_has_the_weight(two_factories):
    for weights in two_factories.member_weights_:
        assert weights["module-2"] > weights.get("module", 0.0)


def test_a_second_factory_is_not_saved(two_factories, tmp_path):
    with pytest.raises(ValueError, match="several factories"):
        two_factories.save(tmp_path / "m.collide")


@ignore_warnings
def test_a_network_of_the_user_that_ends_early_is_capped():
    X, y = corners(160)
    settings = {"max_epochs": 2}
    clf = CollisionClassifier([encoder], cv=2, training=settings, random_state=0).fit(
        X, y
    )
    assert clf.limit_.capped


def test_a_long_fit_is_announced_before_it_starts(monkeypatch):
    X = np.zeros((400, 1, 64, 64), np.float32)
    X[:, 0, 0, :] = np.random.default_rng(0).normal(size=(400, 64))

    def train(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(classifier, "race", train)
    clf = CollisionClassifier(device="cpu")
    announced = pytest.warns(CollisionWarning, match=r"about \d+ minutes of one core")
    with announced, pytest.raises(KeyboardInterrupt):
        clf.fit(X, np.arange(400) % 2)
