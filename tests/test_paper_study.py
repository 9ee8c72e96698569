"""The paper's experiments in small: verdicts, the ideal V, the methods."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from collidescope.datasets import scenario_a
from collidescope.pairwise.printed import PrintedSettings
from studies.paper import claims, errata, figure_1, recovery, rows, study
from studies.paper.verdicts import (
    HELD,
    NOT,
    TIE,
    Difference,
    against,
    difference,
    differences,
    lower,
    within,
)


def test_differences_are_paired_over_the_seeds_that_both_have():
    first = {"A": {0: 1.0, 1: 2.0, 2: 3.0, 9: 50.0}}
    second = {"A": {0: 0.5, 1: 1.0, 2: 2.5}, "B": {0: 1.0}}
    (found,) = differences(first, second)
    each = np.array([0.5, 1.0, 0.5])
    assert found.mean == pytest.approx(each.mean())
    assert found.error == pytest.approx(each.std(ddof=1) / np.sqrt(3))


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ([-3, -4], HELD),
        ([-3, -1], TIE),
        ([-3, 1], TIE),
        ([-3, 3], NOT),
        ([3, 3], NOT),
        ([], TIE),
    ],
)
def test_95_percent_intervals_decide_a_verdict(means, verdict):
    found = [Difference("", mean, 1.0, 100) for mean in means]
    assert lower(found) == verdict


def test_two_samples_need_a_larger_difference_than_many():
    assert lower([Difference("", -3.0, 1.0, 100)]) == HELD
    assert lower([Difference("", -3.0, 1.0, 2)]) == TIE
    assert lower([Difference("", -13.0, 1.0, 2)]) == HELD
    assert lower([difference("", np.array([-13.0]))]) == TIE


def test_the_rival_that_is_hardest_to_beat_is_shown_for_each_problem():
    own = {"A": {0: 1.0, 1: 1.0}, "B": {0: 1.0, 1: 1.0}}
    weak = {"A": {0: 3.0, 1: 3.1}, "B": {0: 2.0, 1: 2.1}}
    strong = {"A": {0: 2.0, 1: 2.1}, "B": {0: 3.0, 1: 3.1}}
    verdict, said = against(own, {"weak": weak, "strong": strong})
    assert verdict == HELD
    assert said.startswith("less strong: A: -1.05")
    assert "less weak: B: -1.05" in said


def test_too_few_samples_tell_no_trend():
    errors = {"A": {0: 1.0}, "B": {0: 2.0, 1: 2.1}, "C": {0: 3.0, 1: 3.1}}
    assert claims.growing(errors) == TIE
    errors["A"][1] = 1.1
    assert claims.growing(errors) == HELD


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([0.241, 0.248], HELD), ([0.21, 0.23], TIE), ([0.1, 0.2], NOT)],
)
def test_a_number_is_compared_at_the_digits_that_the_paper_prints(values, verdict):
    assert within(0.25, values, 2) == verdict


def test_the_ideal_contrast_with_the_shift_is_the_similarity():
    P = np.random.default_rng(0).dirichlet(np.ones(4), 10)
    shifted = rows.Shifted(recovery.IdealContrast(), 4)
    assert_allclose(shifted.grid(P, P), P @ P.T)
    assert_allclose(shifted.pairs(P, P), (P * P).sum(axis=1))


def test_a_row_is_not_compared_with_itself():
    P = np.eye(2)[[0, 0, 1]]
    same = P[[0, 1, 2, 2]]
    q = rows.without_itself(same @ same.T, same, np.eye(len(same), dtype=bool))
    assert_allclose(q, [[1, 0], [1, 0], [0, 1], [0, 1]], atol=1e-12)


def test_every_method_gives_a_matrix_of_the_right_shape():
    X, codes = scenario_a(3).sample(120, 0)
    settings = PrintedSettings(hidden_layer_sizes=(8,), max_epochs=2, max_steps=200)
    data = rows.Data(X, codes, 3, X[:5])
    printed = rows.trained_verbatim(data, settings, 0)
    found = rows.read_verbatim(printed, settings)
    found |= rows.cross_fitted(data, settings, 0)
    found[rows.PLAIN] = rows.plain_network(data, settings, 0)
    assert set(found) == set(rows.ORDER) - {rows.OURS}
    for row in found.values():
        assert row.matrix.shape == (3, 3)
        assert row.posteriors.shape == (5, 3)


def test_descent_from_the_identity_misses_s_at_unequal_priors():
    setting = {"K": 3, "samples": 5, "steps": 10_000}
    even = recovery.heuristic(setting | {"ratio": 1})
    skewed = recovery.heuristic(setting | {"ratio": 10})
    assert max(even["root"], skewed["root"]) < 1e-10
    assert even["descent"] < 0.01 < skewed["descent"]


def test_more_pairs_bring_s_nearer():
    found = recovery.pairs({"K": 3, "samples": 10, "m": [50, 5_000]})["errors"]
    assert np.mean(found["all"]) <= np.mean(found["5000"]) < np.mean(found["50"])


def test_the_shift_makes_the_rows_of_the_gramian_sum_to_one():
    found = errata.shift(3)
    assert found["corrected"]["row_sum"] == pytest.approx(1, abs=0.01)
    assert found["literal"]["row_sum"] > 1.3


def test_the_lemma_fails_where_the_error_of_s_is_not_small():
    found = errata.lemma()
    assert found["error"] > found["lemma"]
    assert found["near_error"] < found["near_always"] < found["near_lemma"]


def test_errors_cancel_where_s_comes_from_the_points_of_q():
    found = errata.inverse(3)
    assert found["S of the same points"][1] < 1e-9
    assert found["the true S"][0] > 0.02


def test_the_estimate_of_b_lacks_what_was_not_learned():
    found = errata.ignorance(300)
    assert found["largest_gap"] < 0.01
    assert found["claimed"] > found["truth"] + 0.1


def test_the_term_with_delta_is_exceeded_more_often_as_rows_grow():
    shares = [errata.delta_term(n)["exceeded"] for n in (1_000, 100_000)]
    assert 0.05 < shares[0] < shares[1]


def test_two_problems_with_one_bayes_error_have_different_collision_matrices():
    one_pair = figure_1.one_pair()
    evenly = figure_1.evenly()
    assert evenly.bayes_error() == pytest.approx(one_pair.bayes_error(), abs=1e-3)
    S = one_pair.collision_matrix().matrix
    assert S[0, 1] > 0.3 > 0.01 > S[0, 2]
    even = evenly.collision_matrix().matrix
    assert even[0, 1] == pytest.approx(even[0, 2], abs=1e-3)


def test_scenarios_of_the_paper_are_not_dominant():
    found = errata.dominance()
    assert found["A, K = 5"]["factor"] > 1
    assert found["B, β = 0.35"]["factor"] < 1


def test_the_lemma_is_true_element_by_element_to_first_order():
    assert errata.norms(200)["element_wise"] <= 1


def test_the_product_of_two_symmetric_matrices_need_not_be_symmetric():
    assert errata.product()["asymmetry"] > 0.01


def test_the_quick_size_has_one_sample_of_every_experiment():
    quick = study.cells(quick=True)
    small = study.cells(quick=False)
    assert {cell["study"] for cell in quick} == {cell["study"] for cell in small}
    assert max(cell.get("seed", 0) for cell in quick) == 0


def test_the_time_of_the_quick_size_is_that_of_its_parts():
    found = study.timed({"parts": ["heuristic"]})
    assert found["cells"] == 6
    assert found["processor_seconds"] == pytest.approx(
        found["by_part"]["heuristic"], abs=0.1
    )
