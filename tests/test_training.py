"""Rows, networks and training: scaled, read from anywhere, reproducible, resumable,
interruptible."""

import pickle
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

import collidescope as cs
from collidescope import _scaling, sample
from collidescope._scaling import LARGEST, apply_scaling, fit_scaling, is_memory_map
from collidescope.datasets import scenario_a
from collidescope.pairwise.pairs import PairObjective
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training import machine
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.networks import (
    FactorisedObjective,
    OneMember,
    StackedMLP,
    mlp,
)
from collidescope.training.rows import Rows, as_rows, signature, stratified_split
from helpers import in_python

pytestmark = [
    pytest.mark.usefixtures("seeded"),
    pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning"),
]


def scaled(X):
    out = apply_scaling(X, *fit_scaling(X))
    assert out.dtype == np.float32
    assert np.isfinite(out).all()
    assert np.abs(out).max() <= LARGEST
    return out


def test_scaling_is_not_moved_by_single_values(rng):
    X = np.column_stack(
        [rng.normal(5, 0.01, 4000), rng.normal(-300, 40, 4000), np.zeros(4000)]
    )
    X[0, 1], X[:400, 2] = 1e30, rng.normal(3, 1, 400)
    out = scaled(X)
    assert np.abs(np.median(out[:, :2], axis=0)).max() < 1e-3
    assert out[1:, :2].std(axis=0) == pytest.approx([1, 1], rel=0.05)
    assert out[0, 1] == LARGEST
    assert out[:, 2].mean() == pytest.approx(0, abs=1e-5)
    assert out[:, 2].std() == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("unit", [5e-324, 1e-200, 1.0, 4e307])
def test_the_unit_of_a_feature_does_not_matter_from_denormals_to_the_largest_floats(
    unit,
):
    steps = np.random.default_rng(0).integers(-4, 5, (500, 3)).astype(float)
    with np.errstate(all="raise", under="ignore"):
        out = scaled(steps * unit)
    # Denormal numbers have few digits: the scale is rounded to a whole number of the smallest one.
    assert np.corrcoef(out[:, 0], steps[:, 0])[0, 1] == pytest.approx(1, abs=1e-6)
    assert 0.5 < out.std() < 3.5


@pytest.mark.parametrize("value", [0.1, -1.7e308, 5e-324])
def test_a_constant_feature_is_taken_out_also_of_rows_to_come_that_differ(value):
    X = np.random.default_rng(0).normal(size=(50, 2))
    X[:, 1] = value
    centre, scale = fit_scaling(X)
    assert scale[1] == 0
    assert np.array_equal(apply_scaling(X, centre, scale)[:, 1], np.zeros(50))
    assert np.array_equal(
        apply_scaling(np.full((1, 2), -value), centre, scale)[:, 1], [0]
    )


def test_every_kind_of_rows_is_scaled_to_the_same_numbers(monkeypatch, rng):
    X = np.where(rng.random((300, 5)) < 0.6, rng.normal(size=(300, 5)), 0.0)
    before, whole = X.copy(), scaled(X)
    assert np.array_equal(scaled(sparse.csr_array(X)), whole)
    monkeypatch.setattr(_scaling, "BLOCK_NUMBERS", 20)
    assert np.array_equal(scaled(X), whole)
    assert np.array_equal(X, before)


def test_images_share_one_scale_so_that_their_contrast_survives():
    X = np.random.default_rng(0).normal(10, 2, (60, 2, 5, 5))
    X[:, :, 0, 0] *= 3
    assert [part.shape for part in fit_scaling(X)] == [(1,), (1,)]
    out = scaled(X)
    assert out.shape == X.shape
    assert np.corrcoef(out.ravel(), X.ravel())[0, 1] == pytest.approx(1, abs=1e-6)


# ------------------------------------------------------------------------------------------ rows


@pytest.fixture(scope="module")
def data():
    X, y = scenario_a(3).sample(300, 0)
    return X.astype(np.float32), y


@pytest.fixture
def in_a_file(data, tmp_path):
    np.save(tmp_path / "X.npy", data[0])
    return np.load(tmp_path / "X.npy", mmap_mode="r")


@pytest.mark.parametrize("where", ["memory", "file", "sparse"])
def test_rows_are_the_standardised_ones_wherever_they_are(data, in_a_file, where):
    X, scaling = data[0], fit_scaling(data[0])
    expected, index = apply_scaling(X, *scaling), torch.tensor([7, 3, 3, 299])
    held = Rows(in_a_file if where == "file" else sparse.csr_matrix(X), "cpu", scaling)
    held = as_rows(expected if where == "memory" else held, "cpu")
    assert held.shape == X.shape
    assert np.array_equal(held[index].numpy(), expected[index])
    assert np.array_equal(held[10:20].numpy(), expected[10:20])
    assert np.array_equal(np.asarray(held), expected)
    assert signature(held, index) == signature(as_rows(expected, "cpu"), index)
    assert (
        len(
            {
                signature(held, index),
                signature(held, None),
                signature(as_rows(expected[::-1], "cpu"), index),
            }
        )
        == 3
    )
    if where != "memory":
        # counts from its own rows
        part = held.subset(np.arange(100, 200)).subset(np.array([5, 0]))
        assert part.shape == (2, 4)
        assert np.array_equal(part[:].numpy(), expected[[105, 100]])
        assert torch.equal(
            pickle.loads(pickle.dumps(part))[torch.tensor([1])], part[1:]
        )


def test_rows_too_many_to_hold_are_read_batch_by_batch_to_the_same_fit(
    data, in_a_file, monkeypatch
):
    X, y = data
    assert [
        is_memory_map(array) for array in (np.asarray(in_a_file)[10:], in_a_file + 0)
    ] == [
        True,
        False,
    ]
    settings = {
        "training": {"hidden_layer_sizes": (8,), "max_epochs": 3},
        "device": "cpu",
    }
    settings |= {"cv": 2, "limit": False, "random_state": 0}
    clf = cs.CollisionClassifier(members=["network"], **settings)
    whole = clf.fit(X, y).posteriors_
    pairs = cs.CollisionClassifier(**(settings | {"members": [cs.Pairwise()]}))
    compared = pairs.fit(X, y).posteriors_
    monkeypatch.setattr(sample, "MAPPED_NUMBERS", 10)
    monkeypatch.setattr(sample, "SPARSE_NUMBERS", 10)
    for lazy in (in_a_file, sparse.csr_matrix(X)):
        assert np.allclose(clf.fit(lazy, y).posteriors_, whole, atol=1e-5)
        assert np.allclose(clf.predict_proba(X), clf.predict_proba(lazy), atol=1e-5)
    assert np.allclose(pairs.fit(in_a_file, y).posteriors_, compared, atol=1e-5)


MEASURE = """
import sys, threading, time, warnings
import numpy as np, torch
warnings.simplefilter("ignore")
import collidescope as cs
from collidescope import _scaling, sample
torch.set_num_threads(1)
sample.MAPPED_NUMBERS, _scaling.QUANTILE_ROWS, _scaling.FEWEST_ROWS = 10**6, 10_000, 1_000

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

X = np.load(sys.argv[1], mmap_mode="r")
y = np.arange(len(X)) % 2
training = {"hidden_layer_sizes": (4,), "max_epochs": 1, "batch_size": 4096}
options = {"cv": 2, "limit": False, "device": "cpu"}
clf = cs.CollisionClassifier(members=["network"], training=training, **options)
clf.fit(X[:12000], y[:12000])
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


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_map_is_never_copied_whole(tmp_path):
    """100,000 × 300 float32 are 114 MB; the sample behind the scaling is 11, posteriors, labels,
    blocks the rest."""
    path = tmp_path / "X.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (100_000, 300))
    for block in np.split(rows, 10):
        block[:] = np.random.default_rng(0).normal(size=block.shape)
    rows.flush()
    assert float(in_python(MEASURE, path).stdout) < 80


def plain_member(stack, m, plain):
    """The network ``plain`` with the weights of member m."""
    linears = [layer for layer in plain if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, (weight, bias) in zip(linears, stack.layers, strict=True):
            layer.weight.copy_(weight[m].T)
            layer.bias.copy_(bias[m, 0])
    return plain


def test_a_stack_computes_its_members_one_by_one():
    stack = StackedMLP(3, 4, 2, (8, 5), generator=torch.Generator().manual_seed(1))
    x = torch.randn(6, 4)
    together = stack(x)
    for m in range(3):
        plain = plain_member(stack, m, mlp(4, 2, (8, 5)))
        assert torch.allclose(together[m], plain(x), atol=1e-6)
        assert torch.allclose(stack.member(m, x), plain(x), atol=1e-6)
    assert torch.allclose(
        stack(torch.stack([0 * x, 2 * x, x]))[2], together[2], atol=1e-6
    )  # an input for each


# ----------------------------------------------------------------------------------------- training

FAST = {"max_epochs": 6, "patience": 3, "batch_size": 32}


def gaussians(n=240, K=3, d=4, seed=0):
    """Rows and labels of K unit Gaussians on a line."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(K, size=n))
    X = 0.7 * y[:, None] + rng.normal(size=(n, d))
    return torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)


def parameters(module):
    return torch.cat([tensor.flatten() for tensor in module.state_dict().values()])


def run(model="classes", seed=3, dropout=0.2, progress=None, **changes):
    X, y = gaussians()
    config = TrainingConfig(dropout=dropout, **(FAST | changes))
    splits = [stratified_split(y, 0.2, seed + m) for m in range(2)]
    if model == "pairs":
        module = seeded_module(lambda: PairwiseNetwork(mlp(8, 1, (8,), dropout)), seed)
        objective = PairObjective(as_rows(X, "cpu"), y, splits[0], config, seed)
    else:
        module = StackedMLP(2, 4, 3, (8,), dropout, torch.Generator().manual_seed(seed))
        objective = FactorisedObjective(X, y, splits, config)
    return fit_loop(module, objective, config, seed, progress)


@pytest.mark.parametrize("model", ["classes", "pairs"])
def test_weights_follow_from_the_seed_bit_for_bit(model):
    first, again, other = (run(model, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(parameters(first.module), parameters(again.module))
    assert not torch.equal(parameters(first.module), parameters(other.module))


def test_a_diverging_run_says_what_to_do():
    with pytest.raises(FloatingPointError, match="learning_rate"):
        run(learning_rate=1e30, weight_decay=0.0)


def test_ctrl_c_keeps_the_best_weights_so_far():
    def stop(entry):
        if entry["epoch"] == 4:
            raise KeyboardInterrupt

    full, cut = (
        run(max_epochs=4, dropout=0.0),
        run(max_epochs=50, dropout=0.0, progress=stop),
    )
    assert (cut.interrupted, len(cut.history)) == (True, 4)
    assert torch.equal(parameters(cut.module), parameters(full.module))


def test_each_member_of_a_stack_keeps_its_own_best_epoch():
    entries = []
    X, y = gaussians(n=120)
    config = TrainingConfig(
        **(FAST | {"max_epochs": 40, "patience": 5, "learning_rate": 0.05})
    )
    module = StackedMLP(3, 4, 3, (16,), generator=torch.Generator().manual_seed(0))
    objective = FactorisedObjective(
        X, y, [stratified_split(y, 0.3, m) for m in range(3)], config
    )
    result = fit_loop(module, objective, config, 0, entries.append)
    assert len(set(result.best.epoch.tolist())) > 1
    with torch.inference_mode():
        assert torch.allclose(
            objective.held_out_loss(result.module), result.best.loss, atol=1e-6
        )
    assert len(entries) == len(result.history) < 40
    assert max(result.best.epoch.tolist()) + 5 == len(result.history)
    assert run(patience=0, max_epochs=5).best.epoch.tolist() == [
        5,
        5,
    ]  # no patience keeps the last weights


def test_a_stack_learns_what_a_plain_network_learns_with_weights_as_copies_of_rows():
    X, y = gaussians(n=120)
    config = TrainingConfig(**(FAST | {"batch_size": 1000}))
    train, held_out = stratified_split(y, 0.2, 0)
    weight = torch.randint(1, 4, (120,), generator=torch.Generator().manual_seed(0))
    stack = StackedMLP(1, 4, 3, (8,), generator=torch.Generator().manual_seed(0))
    plain = plain_member(stack, 0, mlp(4, 3, (8,)))
    copies = [torch.repeat_interleave(rows, weight[rows]) for rows in (train, held_out)]
    weighted = FactorisedObjective(X, y, [(train, held_out)], config, weight.float())
    losses = [
        fit_loop(stack, weighted, config, 0).best.loss
        * weight.float().mean()
        / weight[held_out].float().mean()
    ]
    losses.append(
        fit_loop(
            OneMember(plain),
            FactorisedObjective(X, y, [tuple(copies)], config),
            config,
            0,
        ).best.loss
    )
    assert torch.allclose(*losses, atol=2e-3)


def test_a_split_holds_out_a_share_of_every_class():
    y = torch.tensor([0] * 50 + [1] * 20 + [2] * 10 + [3])
    train, held_out = stratified_split(y, 0.1, 0)
    assert sorted(torch.cat([train, held_out]).tolist()) == list(range(81))
    assert torch.bincount(y[held_out], minlength=4).tolist() == [
        5,
        2,
        1,
        0,
    ]  # a lone row is always trained on
    assert not torch.equal(stratified_split(y, 0.1, 1)[1], held_out)
    with pytest.raises(ValueError, match="one row of every class"):
        stratified_split(torch.arange(3), 0.1, 0)


def test_settings_come_from_a_mapping():
    assert TrainingConfig.from_mapping(
        {"hidden_layer_sizes": [8, 4]}, "cpu"
    ).hidden_layer_sizes == (8, 4)
    assert TrainingConfig.from_mapping(None, "cpu") == TrainingConfig()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("dropout", 1.0),
        ("batch_size", "big"),
        ("weight_decay", -1.0),
        ("max_epochs", 0),
        ("patience", -1),
        ("hidden_layer_sizes", "deep"),
        ("hidden_layer_sizes", (0,)),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"{name}.* must be"):
        TrainingConfig(**{name: value})


def test_batches_are_a_hundredth_of_the_rows_within_limits():
    # a hundredth of the rows within limits, as a power of two
    assert [TrainingConfig().batch_for(n) for n in (50, 100, 6_400, 20_000, 10**6)] == [
        50,
        64,
        64,
        256,
        256,
    ]
    assert [TrainingConfig(batch_size=80).batch_for(n) for n in (50, 100)] == [50, 80]


def tiny_numbers_are_kept() -> bool:
    return bool((torch.full((4,), 1e-40) * 1.0 > 0).all())


def test_tiny_numbers_are_zero_during_a_run_alone():
    """Averages of gradients that fade below 1e-38 slowed late epochs."""

    def stop(_):
        assert not tiny_numbers_are_kept()
        raise KeyboardInterrupt

    assert run(progress=stop).interrupted
    with machine.flushed_denormals(), machine.flushed_denormals():
        assert not tiny_numbers_are_kept()
    assert tiny_numbers_are_kept()


@pytest.mark.parametrize("n", [100, 7, 2])
def test_processes_share_every_row_of_a_batch_once(monkeypatch, n):
    rows = []
    for rank in range(3):
        monkeypatch.setattr(machine, "world", lambda rank=rank: (rank, 3))
        part, weight = machine.own_part(torch.arange(2 * n).reshape(2, n))
        rows.append(part[0])
        assert weight == pytest.approx(len(part[0]) / n if n > 2 else 1 / 3)
    # too few for everyone: each does all of it
    assert torch.equal(
        torch.cat(rows), torch.arange(n) if n > 2 else torch.arange(n).repeat(3)
    )
