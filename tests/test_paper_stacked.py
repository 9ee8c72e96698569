"""Networks of several samples trained as one stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collidescope.training.config import TrainingConfig
from collidescope.training.loop import Objective
from collidescope.training.networks import StackedMLP
from collidescope.training.rows import as_rows
from studies import store
from studies.paper import on_gpu, scenarios, stacked
from studies.paper.study import stacked_cells


@pytest.fixture(scope="module")
def objective() -> stacked.StackedPairs:
    """Two networks with rows of their own, 30 and 31 of them, three classes."""
    y = torch.arange(90) % 3
    X = as_rows(torch.randn(90, 2), "cpu")
    first = torch.arange(30)
    second = torch.arange(50, 81)
    splits = [(first, first[:0]), (second, second[:0])]
    return stacked.StackedPairs(X, y, splits, TrainingConfig(batch_size=8))


def drawn(objective: stacked.StackedPairs) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    epochs = [objective.draw(generator) for _ in range(200)]
    return torch.cat(epochs, dim=2)


def test_a_network_sees_pairs_of_its_own_rows(objective: stacked.StackedPairs) -> None:
    i, j, _ = drawn(objective)
    assert set(torch.cat([i[0], j[0]]).tolist()) == set(range(30))
    assert set(torch.cat([i[1], j[1]]).tolist()) == set(range(50, 81))


def test_no_row_is_compared_with_itself(objective: stacked.StackedPairs) -> None:
    i, j, _ = drawn(objective)
    assert bool((i != j).all())


def test_half_of_the_pairs_are_of_one_class(objective: stacked.StackedPairs) -> None:
    i, j, same = drawn(objective)
    y = torch.arange(90) % 3
    assert torch.equal(y[i] == y[j], same.bool())
    assert float(same.float().mean()) == 0.5


def test_the_loss_of_a_stack_is_the_sum_of_the_networks_own(
    objective: stacked.StackedPairs,
) -> None:
    module = StackedMLP(2, 4, 2, (5,), generator=torch.Generator().manual_seed(0))
    batch = next(objective.batches(torch.Generator().manual_seed(1)))
    own = 0.0
    for member in range(2):
        i, j, same = batch[:, member]
        x = torch.cat([objective.X[i], objective.X[j]], 1)
        outputs = module.member(member, x)
        loss = torch.nn.functional.cross_entropy(outputs, same)
        own += float(loss.detach())
    whole = objective.loss(module, batch).detach()
    assert float(whole) == pytest.approx(own, rel=1e-5)


def test_the_scores_are_those_of_the_network() -> None:
    module = StackedMLP(2, 4, 2, (5, 3), generator=torch.Generator().manual_seed(0))
    A = torch.randn(6, 2)
    B = torch.randn(7, 2)
    i, j = torch.meshgrid(torch.arange(6), torch.arange(7), indexing="ij")
    x = torch.cat([A[i.flatten()], B[j.flatten()]], 1)
    with torch.no_grad():
        V = torch.softmax(module.member(1, x), -1)[:, 1].view(6, 7).numpy()
    members = torch.eye(3)[torch.arange(7) % 3]
    plain, _ = stacked.Scorer(module, 1).means(A, B, members)
    expected = V @ members.numpy() / members.numpy().sum(0)
    assert np.abs(plain - expected).max() < 1e-6


def test_divergences_are_those_of_the_baseline() -> None:
    members = [
        stacked.MeanField([3, 4, 2], 1.0, torch.Generator().manual_seed(seed))
        for seed in range(2)
    ]
    both = stacked.MeanFields(members).divergences()
    alone = [float(each.divergence()) for each in members]
    assert both.tolist() == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("part", sorted(stacked.PARTS))
def test_a_part_runs(part: str) -> None:
    (cell,) = [each for each in stacked.cells(True) if each["part"] == part]
    result = stacked.run(cell)
    assert all(np.isfinite(scores["mean"]) for scores in result.values())


def test_samples_side_by_side_are_scored_each_with_its_truth() -> None:
    cell = stacked.cells(True)[0]
    other = cell | {"problem": ["B", 0.35]}
    both = next(stacked.run_many([cell, other], [2]))
    assert both[0] != both[1]


def test_every_job_has_a_name_of_its_own() -> None:
    for tiny in (False, True):
        names = [job.name for job in on_gpu.jobs(tiny)]
        assert len(set(names)) == len(names)


def test_the_cells_of_a_job_are_those_of_the_study() -> None:
    known = stacked_cells(False)
    for job in on_gpu.jobs(False):
        if job.part not in stacked.PARTS:
            continue
        for cell in on_gpu.cells_of(job, False):
            for epochs in job.looks:
                own = cell | {"settings": cell["settings"] | {"max_epochs": epochs}}
                assert own in known


def test_every_record_is_of_a_cell_of_the_study() -> None:
    wanted = {store.key_of(cell) for cell in stacked_cells(False)}
    for key, record in store.load(store.path_of("paper-stacked")).items():
        if not record["cell"]["part"].startswith("digits"):  # these need the images
            assert key in wanted


def test_the_training_loop_finds_all_that_it_asks_an_objective_for(
    objective: stacked.StackedPairs,
) -> None:
    asked = set(Objective.__annotations__) | set(vars(Objective))
    for name in asked:
        if not name.startswith("_"):
            assert hasattr(objective, name)
    assert hasattr(objective, "sample_batches")


def test_settings_of_a_cell_are_those_of_algorithm_1() -> None:
    cell = stacked.cells(False)[0]
    assert scenarios.settings_of(cell).max_epochs == cell["settings"]["max_epochs"]
