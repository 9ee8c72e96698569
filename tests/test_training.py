"""Training is reproducible, resumable, interruptible, and the fold models are what they say."""

import itertools

import numpy as np
import pytest
import torch
from safetensors.torch import save

from collidescope.pairwise.model import PairObjective
from collidescope.pairwise.networks import PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import fit_loop, seeded_module
from collidescope.training.networks import OneMember, StackedMLP, mlp
from collidescope.training.objectives import FactorisedObjective
from collidescope.training.rows import as_rows
from collidescope.training.splits import inner_splits
from collidescope.training.threads import tiny_is_zero

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
    with pytest.raises(ValueError, match="cannot be read"):
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
        ({"max_epochs": 0}, "max_epochs"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"dropout": 1.0}, "dropout"),
        ({"batch_size": "big"}, "batch_size"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**changes)


def test_epochs_of_neighbouring_seeds_share_no_stream():
    from collidescope.training.loop import epoch_generator

    seeds = [epoch_generator(s, e).initial_seed() for s, e in itertools.product(range(60), range(60))]
    assert len(set(seeds)) == len(seeds)


# ------------------------------------------------------------------------------------------ the processor, well used


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
