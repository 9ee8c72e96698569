"""The experiments on audits, sampling and label errors, at their quick size: they run, and their tables follow."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cleanlab")
pytest.importorskip("experiments", reason="experiments are run from the root of the repository")

from experiments import applications_audit, applications_noise, applications_sampling


def records(experiment):
    return [{"cell": cell, "result": experiment.run(cell)} for cell in experiment.cells(True)]


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_the_audit_experiment_finds_the_planted_pairs():
    table = applications_audit.summary(records(applications_audit.AUDIT))
    assert {(row["posteriors"], row["classifier"]) for row in table} == {
        (posteriors, name) for posteriors in ("true", "estimated") for name in ("blind", "best", "coin")
    }
    for row in table:
        if row["classifier"] == "blind":
            assert row["power"] == 1
            assert row["fixable"] == pytest.approx(row["truth"], abs=0.05)
        elif row["classifier"] == "best" and row["posteriors"] == "true":
            assert row["fixable"] == row["false discovery proportion"] == 0


def test_the_audited_coin_errs_as_the_best_rule_does():
    problem = applications_audit.problem_of("large")
    X, y = problem.sample(100_000, 0)
    errors = {name: (said != y).mean() for name, said in applications_audit.classifiers(problem, X, 0).items()}
    assert errors["coin"] == pytest.approx(errors["best"], abs=0.005)
    assert errors["best"] == pytest.approx(problem.bayes_error(), abs=0.005)
    assert errors["blind"] - errors["best"] == pytest.approx(
        applications_audit.true_fixable("large")["blind"], abs=0.01
    )


def test_noise_is_planted_at_its_rate():
    y = np.repeat(np.arange(5), 100)
    rng = np.random.default_rng(0)
    for kind in ("symmetric", "pair"):
        noisy, wrong = applications_noise.plant(y, kind, 0.1, rng)
        assert wrong.sum() == 50
        assert np.array_equal(noisy != y, wrong)
        if kind == "pair":
            assert np.array_equal(noisy[wrong], (y[wrong] + 1) % 5)


def test_every_score_of_label_errors_beats_chance():
    table = applications_noise.summary(records(applications_noise.NOISE))
    assert [row["noise"] for row in table] == ["symmetric", "pair"]
    for row in table:
        assert all(row[name] > 2 * row["rate"] for name in applications_noise.SCORES if "adjusted" not in name)


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_every_sampler_trains_a_network_that_has_learned_something():
    found = records(applications_sampling.SAMPLING)
    for method in applications_sampling.METHODS:
        assert found[0]["result"][method]["balanced accuracy"] > 0.3  # 0.25 by chance
    table = applications_sampling.summary(found)
    assert all(row["gain"] == 0 for row in table if row["method"] == applications_sampling.BASELINE)
