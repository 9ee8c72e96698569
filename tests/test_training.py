"""Rows, networks and training: scaled, read from anywhere, reproducible, resumable, interruptible."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save
from scipy import sparse
from torch import nn

import collidescope as cs
from collidescope import _scaling, folds
from collidescope._scaling import LARGEST, apply_scaling, fit_scaling, is_memory_map
from collidescope.datasets import scenario_a
from collidescope.pairwise.model import PairObjective
from collidescope.pairwise.networks import PairwiseImageNetwork, PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.machine import flushed_denormals
from collidescope.training.networks import Bfloat16, OneMember, StackedMLP, mlp
from collidescope.training.objectives import FactorisedObjective, inner_splits
from collidescope.training.rows import Rows, as_rows

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")

# ------------------------------------------------------------------------------------------ scaling


def scaled(X):
    out = apply_scaling(X, *fit_scaling(X))
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert np.abs(out).max() <= LARGEST
    return out


def test_a_normal_feature_gets_median_zero_and_a_scale_near_its_deviation():
    X = np.random.default_rng(0).normal([5.0, -300.0], [0.01, 40.0], (4000, 2))
    out = scaled(X)
    assert np.abs(np.median(out, axis=0)).max() < 1e-3
    assert out.std(axis=0) == pytest.approx([1, 1], rel=0.05)


@pytest.mark.parametrize("unit", [5e-324, 1e-200, 1.0, 4e307])
def test_the_unit_of_a_feature_does_not_matter_from_denormals_to_the_largest_floats(unit):
    steps = np.random.default_rng(0).integers(-4, 5, (500, 3)).astype(float)
    with np.errstate(all="raise", under="ignore"):
        out = scaled(steps * unit)
    # Denormal numbers have few digits: the scale is rounded to a whole number of the smallest one.
    assert np.corrcoef(out[:, 0], steps[:, 0])[0, 1] == pytest.approx(1, abs=1e-6)
    assert 0.5 < out.std() < 3.5


@pytest.mark.parametrize("value", [0.1, -1.7e308, 5e-324])
def test_a_constant_feature_is_taken_out(value):
    X = np.random.default_rng(0).normal(size=(50, 2))
    X[:, 1] = value
    centre, scale = fit_scaling(X)
    assert scale[1] == 0
    assert np.array_equal(apply_scaling(X, centre, scale)[:, 1], np.zeros(50))
    # also for rows to come that differ
    assert np.array_equal(apply_scaling(np.full((1, 2), -value or 1e308), centre, scale)[:, 1], [0])


def test_the_largest_and_smallest_floats_side_by_side_stay_apart():
    X = np.array([[1.7e308], [-1.7e308]] * 20)
    out = scaled(X)
    assert (out[::2] > 0).all()
    assert (out[1::2] < 0).all()


def test_one_wild_value_does_not_flatten_the_others():
    X = np.random.default_rng(0).normal(size=(500, 1))
    X[0] = 1e30
    out = scaled(X)
    assert out[0, 0] == LARGEST
    assert out[1:].std() == pytest.approx(1, rel=0.2)


def test_a_mostly_zero_feature_falls_back_to_mean_and_deviation():
    X = np.zeros((400, 1))
    X[:40, 0] = np.random.default_rng(0).normal(3, 1, 40)
    out = scaled(X)
    assert out.mean() == pytest.approx(0, abs=1e-5)
    assert out.std() == pytest.approx(1, rel=1e-3)


def test_sparse_equals_dense():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 5)) < 0.6, rng.normal(size=(300, 5)), 0.0)
    for mine, theirs in zip(fit_scaling(sparse.csr_array(X)), fit_scaling(X), strict=True):
        assert np.array_equal(mine, theirs)
    assert np.array_equal(scaled(sparse.csr_array(X)), scaled(X))


def test_images_share_one_scale_so_that_their_contrast_survives():
    X = np.random.default_rng(0).normal(10, 2, (60, 2, 5, 5))
    X[:, :, 0, 0] *= 3
    centre, scale = fit_scaling(X)
    assert centre.shape == scale.shape == (1,)
    out = scaled(X)
    assert out.shape == X.shape
    assert np.corrcoef(out.ravel(), X.ravel())[0, 1] == pytest.approx(1, abs=1e-6)


def test_many_rows_are_scaled_block_by_block_to_the_same_numbers(monkeypatch):
    X = np.random.default_rng(0).normal(size=(1000, 3))
    before, whole = X.copy(), scaled(X)
    monkeypatch.setattr(_scaling, "BLOCK_NUMBERS", 20)
    assert np.array_equal(scaled(X), whole)
    assert np.array_equal(X, before)


# ------------------------------------------------------------------------------------------ rows


@pytest.fixture(scope="module")
def data():
    X, y = scenario_a(3).sample(300, 0)
    return X.astype(np.float32), y


@pytest.fixture
def in_a_file(data, tmp_path):
    np.save(tmp_path / "X.npy", data[0])
    return np.load(tmp_path / "X.npy", mmap_mode="r")


@pytest.fixture(params=["memory", "file", "sparse"])
def held(request, data, in_a_file):
    X, _ = data
    scaling = fit_scaling(X)
    if request.param == "memory":
        return as_rows(torch.from_numpy(apply_scaling(X, *scaling)), "cpu")
    return Rows(in_a_file if request.param == "file" else sparse.csr_matrix(X), "cpu", scaling)


def test_rows_are_the_standardised_ones_wherever_they_are(held, data):
    X, _ = data
    expected = apply_scaling(X, *fit_scaling(X))
    assert held.shape == X.shape
    assert held.ndim == 2
    index = torch.tensor([7, 3, 3, 299])
    assert np.array_equal(held[index].numpy(), expected[index])
    assert np.array_equal(held[10:20].numpy(), expected[10:20])
    assert np.array_equal(np.asarray(held), expected)
    assert np.array_equal(torch.cat(list(held.blocks(70))).numpy(), expected)


def test_a_subset_of_a_subset_counts_from_its_own_rows(held, data):
    expected = apply_scaling(data[0], *fit_scaling(data[0]))
    part = held.subset(torch.arange(100, 200)).subset(torch.tensor([5, 0]))
    assert part.shape == (2, 4)
    assert np.array_equal(part[:].numpy(), expected[[105, 100]])
    assert np.array_equal(part[torch.tensor([1])].numpy(), expected[[100]])


def test_rows_travel_to_another_process(held):
    part = held.subset(torch.arange(50))
    assert torch.equal(pickle.loads(pickle.dumps(part))[:], part[:])


def test_the_digest_knows_rows_and_their_order(held):
    forwards, backwards = (held.subset(order).digest() for order in (torch.arange(300), torch.arange(299, -1, -1)))
    assert forwards == held.digest() != backwards


def test_a_view_of_a_memory_map_is_memory_map(in_a_file, data):
    assert is_memory_map(in_a_file)
    assert is_memory_map(np.asarray(in_a_file)[10:])
    assert not is_memory_map(data[0])
    assert not is_memory_map(in_a_file + 0)


@pytest.mark.parametrize("kind", ["file", "sparse"])
def test_rows_too_many_to_hold_are_read_batch_by_batch_to_the_same_fit(data, in_a_file, monkeypatch, kind):
    X, y = data
    Z = in_a_file if kind == "file" else sparse.csr_matrix(X)
    settings = {"members": ["network"], "training": {"hidden_layer_sizes": (8,), "max_epochs": 3}, "device": "cpu"}
    settings |= {"cv": 2, "limit": False, "random_state": 0}
    whole = cs.CollisionClassifier(**settings).fit(X, y)
    monkeypatch.setattr(folds, "MAPPED_NUMBERS", 10)
    monkeypatch.setattr(folds, "SPARSE_NUMBERS", 10)
    lazy = cs.CollisionClassifier(**settings).fit(Z, y)
    assert np.allclose(whole.posteriors_, lazy.posteriors_, atol=1e-5)
    assert np.allclose(whole.predict_proba(X), lazy.predict_proba(Z), atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_map_is_never_copied_whole(tmp_path):
    """400,000 × 100 float32 are 153 MB; the sample behind the scaling is 38, posteriors, labels and blocks the rest."""
    rows = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (400_000, 100))
    for start in range(0, 400_000, 40_000):
        rows[start : start + 40_000] = np.random.default_rng(start).normal(size=(40_000, 100))
    rows.flush()
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "X.npy")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < 120


MEASURE = """
import sys, threading, time, warnings
import numpy as np, torch
warnings.simplefilter("ignore")
import collidescope as cs
torch.set_num_threads(1)

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

X = np.load(sys.argv[1], mmap_mode="r")
y = np.arange(len(X)) % 2
training = {"hidden_layer_sizes": (4,), "max_epochs": 1, "batch_size": 4096}
clf = cs.CollisionClassifier(members=["network"], training=training, cv=2, limit=False, device="cpu")
clf.fit(X[:20000], y[:20000])
before, peak, done = anonymous(), [0.0], threading.Event()
def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
clf.fit(X, y)
done.set(); watcher.join()
print(peak[0] - before)
"""


# ------------------------------------------------------------------------------------------ networks


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_no_hidden_layer_is_a_linear_model():
    net = mlp(4, 3)
    a, b = torch.randn(2, 5, 4)
    zero = net(torch.zeros(5, 4))
    assert torch.allclose(net(a + b) - zero, (net(a) - zero) + (net(b) - zero), atol=1e-6)


@pytest.mark.parametrize("sizes", [(0,), (-3, 2), (2.5,), 7])
def test_sizes_that_are_no_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="hidden_layer_sizes"):
        mlp(4, 3, sizes)


def test_the_pairwise_model_is_symmetric_though_its_body_is_not():
    net = PairwiseNetwork(4, (16,))
    a, b = torch.randn(2, 10, 4)
    assert not torch.allclose(net.one_way(a, b), net.one_way(b, a))
    assert torch.equal(net(a, b), net(b, a))
    assert torch.allclose(net(a, b), (net.one_way(a, b) + net.one_way(b, a)) / 2)


def test_images_meet_as_channels_and_stay_symmetric():
    net = PairwiseImageNetwork(nn.Sequential(nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 1)))
    a, b = torch.randn(2, 5, 3, 8, 8)
    assert net(a, b).shape == (5,)
    assert torch.equal(net(a, b), net(b, a))


def test_a_stack_computes_its_members_one_by_one():
    stack = StackedMLP(3, 4, 2, (8, 5), generator=torch.Generator().manual_seed(1))
    x = torch.randn(6, 4)
    together = stack(x)
    for m in range(3):
        plain = mlp(4, 2, (8, 5))
        linears = [layer for layer in plain if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for layer, weight, bias in zip(linears, stack.weights, stack.biases, strict=True):
                layer.weight.copy_(weight[m].T)
                layer.bias.copy_(bias[m, 0])
        assert torch.allclose(together[m], plain(x), atol=1e-6)
        assert torch.allclose(stack.member(m, x), plain(x), atol=1e-6)
        assert torch.allclose(stack(torch.stack([0 * x, 2 * x, x]))[2], together[2], atol=1e-6)  # an input for each


def test_bfloat16_is_left_to_gpus():
    """On one processor products in bfloat16 were an illegal instruction, which ends the interpreter."""
    body = mlp(64, 3, (64,))
    x = torch.randn(50, 64)
    assert torch.equal(Bfloat16(body)(x), body(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
def test_bfloat16_changes_the_products_and_neither_weights_nor_output():
    body = mlp(64, 3, (64,)).cuda()
    x = torch.randn(50, 64, device="cuda")
    low = Bfloat16(body)(x)
    assert low.dtype == body[0].weight.dtype == torch.float32
    assert not torch.equal(low, body(x))
    assert torch.allclose(low, body(x), atol=0.05)


def test_any_encoder_can_stand_in_for_a_stack_of_one():
    encoder = mlp(4, 3)
    x = torch.randn(5, 4)
    assert torch.equal(OneMember(encoder)(x[None])[0], encoder(x))


# ------------------------------------------------------------------------------------------ training


FAST = {"max_epochs": 6, "patience": 3, "batch_size": 32}


def gaussians(n=240, K=3, d=4, seed=0, priors=None):
    """Rows, labels and true posteriors of K unit Gaussians on a line."""
    rng = np.random.default_rng(seed)
    priors = np.full(K, 1 / K) if priors is None else np.asarray(priors)
    y = np.sort(rng.choice(K, n, p=priors))
    y[: 2 * K] = np.repeat(np.arange(K), 2)
    means = np.arange(K)[:, None] * np.ones(d) * 0.7
    X = means[y] + rng.normal(size=(n, d))
    logits = X @ means.T - 0.5 * (means**2).sum(1) + np.log(priors)
    true = torch.softmax(torch.as_tensor(logits), 1)
    return torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y), true


def parameters(module):
    return torch.cat([tensor.flatten() for tensor in module.state_dict().values()])


def run(
    model="classes",
    seed=3,
    dropout=0.2,
    n_splits=2,
    progress=None,
    checkpoint=None,
    data_seed=0,
    **changes,
):
    X, y, _ = gaussians(seed=data_seed)
    config = TrainingConfig(dropout=dropout, **(FAST | changes))
    splits = inner_splits(y, n_splits, 0.2, seed)
    if model == "pairs":
        module = seeded_module(lambda: PairwiseNetwork(4, (8,), dropout), seed)
        objective = PairObjective(as_rows(X, "cpu"), y, splits[0], config, seed)
    else:
        generator = torch.Generator().manual_seed(seed)
        module = StackedMLP(n_splits, 4, 3, (8,), dropout, generator)
        objective = FactorisedObjective(X, y, 3, splits, config)
    return fit_loop(module, objective, config, seed, progress, checkpoint)


MODELS = ["classes", "pairs"]


@pytest.mark.parametrize("model", MODELS)
def test_one_seed_gives_the_same_weights_bit_for_bit_and_another_seed_others(model):
    first, again, other = (run(model, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(parameters(first.module), parameters(again.module))
    assert not torch.equal(parameters(first.module), parameters(other.module))
    losses = [[entry["val_loss"] for entry in result.history] for result in (first, again)]
    assert losses[0] == losses[1]


def test_the_global_generator_is_left_as_it_was():
    before = torch.random.get_rng_state()
    run()
    assert torch.equal(torch.random.get_rng_state(), before)


class StopAfter:
    """Plays Ctrl-C after some epochs."""

    def __init__(self, epochs):
        self.epochs = epochs
        self.seen = []

    def __call__(self, entry):
        self.seen.append(entry)
        if len(self.seen) == self.epochs:
            raise KeyboardInterrupt


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_run_ends_with_the_weights_of_an_undisturbed_one(tmp_path, model):
    undisturbed = run(model)
    interrupted = run(model, progress=StopAfter(3), checkpoint=tmp_path)
    assert interrupted.interrupted
    resumed = run(model, checkpoint=tmp_path)
    assert not resumed.interrupted
    assert torch.equal(parameters(resumed.module), parameters(undisturbed.module))
    assert [e["epoch"] for e in resumed.history] == [e["epoch"] for e in undisturbed.history]
    finished = run(model, checkpoint=tmp_path, progress=StopAfter(1))
    assert not finished.interrupted
    assert torch.equal(parameters(finished.module), parameters(undisturbed.module))


def test_a_checkpoint_of_other_settings_or_a_broken_one_is_refused_and_kept(tmp_path):
    run(progress=StopAfter(2), checkpoint=tmp_path)
    with pytest.raises(ValueError, match="seed"):
        run(seed=9, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="learning_rate"):
        run(learning_rate=0.5, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="data"):
        run(data_seed=1, checkpoint=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is damaged"):
        run(checkpoint=tmp_path)
    assert file.read_bytes() == whole[: len(whole) // 2]
    file.write_bytes(save({"x": torch.zeros(2)}))
    with pytest.raises(ValueError, match="file of another program"):
        run(checkpoint=tmp_path)


def test_ctrl_c_keeps_the_best_weights_so_far_and_says_so():
    full = run(max_epochs=4, dropout=0.0)
    cut = run(max_epochs=50, dropout=0.0, progress=StopAfter(4))
    assert cut.interrupted
    assert len(cut.history) == 4
    assert torch.equal(parameters(cut.module), parameters(full.module))


def test_each_member_of_a_stack_keeps_its_own_best_epoch():
    entries = []
    X, y, _ = gaussians(n=120)
    config = TrainingConfig(**(FAST | {"max_epochs": 40, "patience": 5, "learning_rate": 0.05}))
    splits = inner_splits(y, 3, 0.2, 0)
    module = StackedMLP(3, 4, 3, (16,), generator=torch.Generator().manual_seed(0))
    objective = FactorisedObjective(X, y, 3, splits, config)
    result = fit_loop(module, objective, config, 0, entries.append)
    assert len(set(result.best_epoch)) > 1
    with torch.inference_mode():
        assert torch.allclose(objective.held_out_loss(result.module), result.val_loss, atol=1e-6)
    assert len(entries) == len(result.history) < 40
    assert max(result.best_epoch) + 5 == len(result.history)


def test_members_of_a_stack_learn_as_if_alone():
    X, y, _ = gaussians(n=120)
    config = TrainingConfig(**FAST)
    split = inner_splits(y, 1, 0.2, 0)[0]
    objective = FactorisedObjective(X, y, 3, [split], config)
    alone = fit_loop(StackedMLP(1, 4, 3, (8,), generator=torch.Generator().manual_seed(0)), objective, config, 0)
    linear = mlp(4, 3, (8,))
    with torch.no_grad():
        start = StackedMLP(1, 4, 3, (8,), generator=torch.Generator().manual_seed(0))
        for layer, weight, bias in zip((linear[0], linear[2]), start.weights, start.biases, strict=True):
            layer.weight.copy_(weight[0].T)
            layer.bias.copy_(bias[0, 0])
    plain = fit_loop(OneMember(linear), objective, config, 0)
    assert torch.allclose(plain.val_loss, alone.val_loss, atol=1e-5)


def test_settings_come_from_a_mapping_and_unknown_ones_are_named():
    assert TrainingConfig.from_mapping({"hidden_layer_sizes": [8, 4]}, "cpu").hidden_layer_sizes == (8, 4)
    assert TrainingConfig.from_mapping(None, "cpu") == TrainingConfig()
    with pytest.raises(ValueError, match="no setting 'epochs': it knows hidden_layer_sizes"):
        TrainingConfig.from_mapping({"epochs": 3}, "cpu")
    with pytest.raises(ValueError, match="training must be a mapping"):
        TrainingConfig.from_mapping(5, "cpu")


def test_no_patience_keeps_the_last_weights():
    result = run(patience=0, max_epochs=5)
    assert result.best_epoch == [5, 5]


def test_a_diverging_run_says_what_to_do():
    with pytest.raises(FloatingPointError, match="learning_rate"):
        run(learning_rate=1e30, weight_decay=0.0)


def test_inner_splits_hold_out_every_row_once_and_keep_the_class_shares():
    y = torch.tensor([0] * 50 + [1] * 20 + [2] * 11 + [3])
    splits = inner_splits(y, 5, 0.1, 0)
    held_out = torch.cat([v for _, v in splits])
    assert sorted(held_out.tolist()) == list(range(81))  # the lone row of class 3 is always trained on
    for train, v in splits:
        assert sorted(torch.cat([train, v]).tolist()) == list(range(82))
        assert torch.bincount(y[v], minlength=3)[:3].tolist() == pytest.approx([10, 4, 2.2], abs=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_layer_sizes": "deep"}, "hidden_layer_sizes"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"dropout": 1.0}, "dropout"),
        ({"batch_size": "big"}, "batch_size"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


# ------------------------------------------------------------------------------------------ the processor, well used


def tiny_numbers_are_kept() -> bool:
    return bool((torch.full((4,), 1e-40) * 1.0 > 0).all())


def test_a_run_takes_tiny_numbers_for_zero_and_leaves_the_processor_as_it_was_even_after_ctrl_c():
    """Averages of gradients that fade below 1e-38 slowed late epochs."""
    met = []

    def stop(_):
        met.append(tiny_numbers_are_kept())
        raise KeyboardInterrupt

    run(progress=stop)
    assert met == [False]
    assert tiny_numbers_are_kept()
    with flushed_denormals(), flushed_denormals():
        assert not tiny_numbers_are_kept()
    assert tiny_numbers_are_kept()
