"""Training is reproducible, resumable, interruptible, and the fold models are what they say."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy.optimize import minimize
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from collidescope.learners import linear
from collidescope.learners.ensemble import fit_members
from collidescope.learners.fold_models import FoldModel, PairwiseFoldModel
from collidescope.learners.linear import LinearSpec, fit_softmax_regression
from collidescope.learners.pooling import held_out_weights, pool
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.networks import OneMember, PairwiseNetwork, StackedMLP, mlp
from collidescope.training.objectives import FactorisedObjective, PairwiseObjective
from collidescope.training.splits import inner_splits
from collidescope.training.threads import one_blas_thread, tiny_is_zero

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
    model="factorised",
    loss="cross-entropy",
    seed=3,
    dropout=0.2,
    n_splits=2,
    progress=None,
    checkpoint=None,
    data_seed=0,
    **changes,
):
    X, y, _ = gaussians(seed=data_seed)
    config = TrainingConfig(model=model, loss=loss, dropout=dropout, **(FAST | changes))
    splits = inner_splits(y, n_splits, 0.2, seed)
    if model == "pairwise":
        module = seeded_module(lambda: PairwiseNetwork(4, (8,), dropout), seed)
        objective = PairwiseObjective(X, y, splits[0], config, seed)
    else:
        generator = torch.Generator().manual_seed(seed)
        module = StackedMLP(n_splits, 4, 3, (8,), dropout, generator)
        objective = FactorisedObjective(X, y, 3, splits, config)
    return fit_loop(module, objective, config, seed, progress, checkpoint)


KINDS = [("factorised", "cross-entropy"), ("factorised", "pair"), ("factorised", "both"), ("pairwise", "pair")]


@pytest.mark.parametrize(("model", "loss"), KINDS)
def test_one_seed_gives_the_same_weights_bit_for_bit_and_another_seed_others(model, loss):
    first, again, other = (run(model, loss, seed=seed) for seed in (3, 3, 4))
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


@pytest.mark.parametrize(("model", "loss"), KINDS)
def test_a_resumed_run_ends_with_the_weights_of_an_undisturbed_one(tmp_path, model, loss):
    undisturbed = run(model, loss)
    interrupted = run(model, loss, progress=StopAfter(3), checkpoint=tmp_path)
    assert interrupted.interrupted
    resumed = run(model, loss, checkpoint=tmp_path)
    assert not resumed.interrupted
    assert torch.equal(parameters(resumed.module), parameters(undisturbed.module))
    assert [e["epoch"] for e in resumed.history] == [e["epoch"] for e in undisturbed.history]
    finished = run(model, loss, checkpoint=tmp_path, progress=StopAfter(1))
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
    with pytest.raises(ValueError, match="cannot be read"):
        run(checkpoint=tmp_path)
    assert file.read_bytes() == whole[: len(whole) // 2]
    file.write_bytes(save({"x": torch.zeros(2)}))
    with pytest.raises(ValueError, match="no training checkpoint"):
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


def test_no_patience_keeps_the_last_weights():
    result = run(patience=0, max_epochs=5)
    assert result.best_epoch == [5, 5]


def test_a_diverging_run_says_what_to_do():
    with pytest.raises(FloatingPointError, match="learning_rate"):
        run(learning_rate=1e30, weight_decay=0.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_regression_reaches_the_optimum_of_its_penalised_loss(weighted):
    X, y, _ = gaussians(n=150, K=3)
    w = torch.linspace(0.5, 2.0, 150) if weighted else None
    model = fit_softmax_regression(X, y, 3, [torch.arange(150)], LinearSpec(2.0), w)
    F = model.features(X).double()
    W = model.weight[0].double().requires_grad_()
    b = model.bias[0, 0].double().requires_grad_()
    each = nn.functional.cross_entropy(F @ W + b, y, reduction="none")
    v = torch.full((150,), 1 / 150) if w is None else w / w.sum()
    ((each * v).sum() + 0.5 * 2.0 / 150 * (W**2).sum()).backward()
    assert float(W.grad.abs().max()) < 2e-4
    assert float(b.grad.abs().max()) < 2e-4


def test_a_regression_of_rank_one_has_rank_one_and_products_are_standardised():
    X, y, _ = gaussians(n=150, K=3)
    full = fit_softmax_regression(X, y, 3, [torch.arange(150)], LinearSpec(1.0))
    low = fit_softmax_regression(X, y, 3, [torch.arange(150)], LinearSpec(1.0, rank=1), start=full)
    assert int(torch.linalg.matrix_rank(low.weight[0], rtol=1e-4)) == 1
    products = fit_softmax_regression(X, y, 3, [torch.arange(150)], LinearSpec(1.0, quadratic=True))
    F = products.features(X)
    assert F.shape == (150, 4 + 10)
    assert torch.allclose(F.std(0, correction=0), torch.ones(14), atol=1e-3)


def test_inner_splits_hold_out_every_row_once_and_keep_the_class_shares():
    y = torch.tensor([0] * 50 + [1] * 20 + [2] * 11 + [3])
    splits = inner_splits(y, 5, 0.1, 0)
    held_out = torch.cat([v for _, v in splits])
    assert sorted(held_out.tolist()) == list(range(81))  # the lone row of class 3 is always trained on
    for train, v in splits:
        assert sorted(torch.cat([train, v]).tolist()) == list(range(82))
        assert torch.bincount(y[v], minlength=3)[:3].tolist() == pytest.approx([10, 4, 2.2], abs=1)


def test_the_pool_prefers_the_member_that_knows_and_ignores_the_one_that_guesses():
    _, y, true = gaussians(n=400, seed=5)
    guess = torch.full_like(true, 1 / 3)
    weights = held_out_weights([guess.log(), true.log()], y)
    assert weights[1] > 0.8
    assert torch.allclose(pool([true.log()], [1.0]), true)
    handicapped = held_out_weights([true.log(), true.log()], y, choices=[5, 0])
    assert handicapped[1] > handicapped[0] + 0.5


@pytest.fixture(scope="module")
def auto_model():
    X, y, _ = gaussians(n=500, seed=1)
    return fit_members(X, y, 3, TrainingConfig(max_epochs=20, patience=4), seed=0)


def test_the_automatic_capacities_come_close_to_the_true_posteriors(auto_model):
    X, _, true = gaussians(n=1000, seed=2)
    error = 0.5 * (auto_model.posteriors(X) - true).abs().sum(1).mean()
    assert float(error) < 0.05
    assert auto_model.posteriors(X).dtype == torch.float64
    assert torch.allclose(auto_model.posteriors(X).sum(1), torch.ones(1000).double())


def test_similarity_of_the_factorised_model_is_the_product_of_posteriors(auto_model):
    X, _, _ = gaussians(n=12, seed=2)
    P = auto_model.posteriors(X)
    assert torch.allclose(auto_model.similarity(X[:5], X[5:]), P[:5] @ P[5:].T)


@pytest.mark.parametrize("loss", ["pair", "both"])
@pytest.mark.parametrize("sampling", ["natural", "balanced"])
def test_every_loss_gives_aligned_posteriors_at_the_datas_own_priors(loss, sampling):
    priors = [0.6, 0.3, 0.1]
    X, y, _ = gaussians(n=900, seed=1, priors=priors)
    config = TrainingConfig(loss=loss, sampling=sampling, hidden_layer_sizes=(16,), max_epochs=40, patience=8)
    model = fit_members(X, y, 3, config, seed=0)
    X, y, true = gaussians(n=1000, seed=2, priors=priors)
    error = 0.5 * (model.posteriors(X) - true).abs().sum(1).mean()
    guess = 0.5 * (torch.tensor(priors) - true).abs().sum(1).mean()
    # Pairs alone leave a rotation to be found from the class means: they are worth less than labels.
    assert float(error) < (0.75 if loss == "pair" else 0.5) * float(guess)
    assert torch.allclose(model.posteriors(X).mean(0), torch.tensor(priors).double(), atol=0.08)


def through_a_file(model):
    tensors, description = model.export()
    return load(save(tensors)), json.loads(json.dumps(description))


def test_a_factorised_model_survives_a_file_bit_for_bit(auto_model):
    X, _, _ = gaussians(n=50, seed=4)
    again = FoldModel.from_export(*through_a_file(auto_model))
    assert torch.equal(again.posteriors(X), auto_model.posteriors(X))
    assert again.weights == auto_model.weights
    assert again.history.keys() == auto_model.history.keys()


def test_a_pairwise_model_survives_a_file_and_its_shift_is_log_k_minus_1():
    X, y, _ = gaussians()
    model = fit_members(X, y, 3, TrainingConfig(model="pairwise", validation_fraction=0.2, **FAST), seed=0)
    again = PairwiseFoldModel.from_export(*through_a_file(model))
    sim = model.similarity(X[:9], X[:7])
    assert torch.equal(again.similarity(X[:9], X[:7]), sim)
    assert model.shift == pytest.approx(np.log(2))
    assert bool((model.similarity(X[:9], X[:7], correction=False) > sim).all())
    q = model.class_similarity(X[:9], X, y)
    dense = model.similarity(X[:9], X)
    expected = torch.stack([dense[:, y == k].mean(1) for k in range(3)], 1)
    assert torch.allclose(q.q, expected, atol=1e-6)


def test_a_custom_module_trains_and_asks_for_its_factory_when_loaded():
    X, y, _ = gaussians()
    images = X.reshape(-1, 1, 2, 2)

    def factory(channels, k):
        return nn.Sequential(nn.Conv2d(channels, 6, 2), nn.Flatten(), nn.ReLU(), nn.Linear(6, k))

    for model_name in ("factorised", "pairwise"):
        config = TrainingConfig(model=model_name, validation_fraction=0.2, **FAST)
        model = fit_members(images, y, 3, config, seed=0, factory=factory)
        tensors, description = through_a_file(model)
        again = type(model).from_export(tensors, description, factory)
        assert torch.equal(again.similarity(images[:5], images[:4]), model.similarity(images[:5], images[:4]))
        with pytest.raises(ValueError, match="factory"):
            type(model).from_export(tensors, description)


def test_a_row_of_weight_zero_does_not_teach():
    X, y, _ = gaussians(n=300)
    w = torch.ones(300)
    w[::3] = 0.0
    spoiled = X.clone()
    spoiled[::3] = -spoiled[::3]
    config = TrainingConfig(hidden_layer_sizes=(), **FAST)
    models = [fit_members(data, y, 3, config, seed=0, sample_weight=w) for data in (X, spoiled)]
    assert torch.equal(models[0].posteriors(X), models[1].posteriors(X))


def test_ctrl_c_between_capacities_leaves_a_usable_model():
    X, y, _ = gaussians()
    model = fit_members(X, y, 3, TrainingConfig(**FAST), seed=0, progress=StopAfter(7))
    assert model.interrupted
    assert torch.allclose(model.posteriors(X).sum(1), torch.ones(len(X)).double())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "siamese"}, "model"),
        ({"loss": "hinge"}, "loss"),
        ({"hidden_layer_sizes": "deep"}, "hidden_layer_sizes"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"dropout": 1.0}, "dropout"),
        ({"batch_size": "big"}, "batch_size"),
        ({"validation_fraction": 0.0}, "validation_fraction"),
        ({"bounded": -1.0}, "bounded"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


def test_data_that_cannot_be_learned_from_is_refused():
    X, y, _ = gaussians()
    with pytest.raises(ValueError, match="every class"):
        fit_members(X, y, 4, TrainingConfig(), seed=0)
    with pytest.raises(ValueError, match="factory"):
        fit_members(X[:, None], y, 3, TrainingConfig(), seed=0)
    few = torch.cat([torch.nonzero(y < 2).flatten(), torch.nonzero(y == 2).flatten()[:1]])
    with pytest.raises(ValueError, match="class 2"):
        fit_members(X[few], y[few], 3, TrainingConfig(model="pairwise"), seed=0)


def test_epochs_of_neighbouring_seeds_share_no_stream():
    from collidescope.training.loop import epoch_generator

    seeds = [epoch_generator(s, e).initial_seed() for s, e in itertools.product(range(60), range(60))]
    assert len(set(seeds)) == len(seeds)


# ------------------------------------------------------------------------------------------ the processor, well used


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["internal_api"] == "openblas"}


@pytest.mark.skipif(not blas_threads(), reason="numpy and scipy use another library here")
def test_openblas_has_one_thread_beside_torch_and_gets_its_own_back(monkeypatch):
    """Its idle threads took the cores from those of torch, so that two cores were slower than one."""
    met = []

    def watched(*given, **options):
        met.append(blas_threads())
        return minimize(*given, **options)

    monkeypatch.setattr(linear, "minimize", watched)
    X, y, _ = gaussians()
    with threadpool_limits(3, "blas"):
        with one_blas_thread():  # in another thread, say
            fit_softmax_regression(X, y, 3, [torch.arange(240)], LinearSpec(1.0))
            assert blas_threads() == {1}
        assert blas_threads() == {3}
    assert met == [{1}]


def tiny_numbers_are_kept() -> bool:
    return bool((torch.full((4,), 1e-40) * 1.0 > 0).all())


def test_training_takes_tiny_numbers_for_zero_and_leaves_the_processor_as_it_was():
    """Averages of gradients that fade below 1e-38 slowed late epochs."""
    assert tiny_numbers_are_kept()
    with tiny_is_zero():
        assert not tiny_numbers_are_kept()
        with tiny_is_zero():
            assert not tiny_numbers_are_kept()
        assert not tiny_numbers_are_kept()  # as it was, not as it usually is
    assert tiny_numbers_are_kept()


def test_the_processor_is_left_as_it_was_after_ctrl_c_too():
    def stop(_):
        raise KeyboardInterrupt

    run(progress=stop)
    assert tiny_numbers_are_kept()


def test_a_run_takes_tiny_numbers_for_zero():
    met = []
    run(progress=lambda _: met.append(tiny_numbers_are_kept()))
    assert met
    assert not any(met)
    assert tiny_numbers_are_kept()
