"""Fourteen points where an implementation can depart from the paper, and what became of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from studies.markdown import table
from studies.paper.records import at_full_size, results
from studies.paper.verdicts import means


class Point(NamedTuple):
    """What the paper says, what became of it, and what shows that."""

    says: str
    state: str
    shown: str


def file(path: str, name: str) -> str:
    """A link to a function or a test."""
    return f"[`{name}`](../{path})"


def printed_test(name: str) -> str:
    """A test of Algorithm 1 as printed."""
    return file("tests/test_printed.py", f"test_{name}")


def study_test(name: str) -> str:
    """A test of an experiment."""
    return file("tests/test_paper_study.py", f"test_{name}")


def converged() -> str:
    """Shares of samples in which the descent ended, of the first and the last setting of γ."""
    wanted = {"K": 5, "corrected": False, "penalty": 0.1, "step_size": 1e-3}
    shares = []
    for record in results("sensitivity"):
        cell = record["cell"]
        if wanted.items() <= cell.items():
            last = list(record["result"]["looks"].values())[-1]
            shares.append(f"γ = {cell['tolerance']:g}: {last['converged']:.0%}")
    return ", ".join(shares)


def pairs_gap() -> str:
    """What 20,000 pairs per entry lose against all."""
    parts = []
    for record in results("pairs"):
        errors = record["result"]["errors"]
        everything = np.mean(errors["all"])
        gap = np.mean(errors["20000"]) / everything - 1
        parts.append(f"K = {record['cell']['K']}: {gap:+.0%}")
    return ", ".join(parts)


def points() -> list[Point]:
    """In the order of the paper's sections."""
    raw = means(at_full_size("A", "mean"))
    normalised = means(at_full_size("A", "normalised"))
    return [
        Point(
            "Step B (34) averages over T, the rows that V was trained on; V is not symmetrised, "
            "nothing is clipped, there are no folds",
            "`from_paper()` does so; `from_paper(cross_fitted=True)` is the other",
            f"{printed_test('the_gramian_averages_over_the_rows_that_v_was_trained_on')}, "
            f"{printed_test('v_is_that_of_the_ordered_pair')}. Scenario A at the paper's size: "
            f"{raw}; rows scaled to 1: {normalised}",
        ),
        Point(
            "λ, η, γ and the end of the loop are left open",
            "parameters of `from_paper()`, with a warning where the loop was given up",
            f"[sensitivity](#sensitivity-to-λ-η-γ-and-the-number-of-steps); share that converged "
            f"at K = 5, as printed: {converged()}; "
            f"{printed_test('a_descent_that_reaches_its_limit_of_steps_says_so')}",
        ),
        Point(
            "m counts random pairs for each entry of G, m K² evaluations of V",
            "`pairs_per_entry`",
            f"{printed_test('step_b_asks_for_m_pairs_of_every_entry')}; error with m = 20,000 "
            f"against all 62,500 pairs: {pairs_gap()}",
        ),
        Point(
            "unequal priors: descent from I; (35) asks for diagonally dominant matrices",
            "`from_paper()` descends on V's own Gramian for any class sizes; "
            "`from_paper(feasible=True)` projects onto the set of (35)",
            f"{printed_test('unequal_classes_are_given_to_the_descent_from_the_identity')}, "
            f"{printed_test('a_fit_can_be_kept_in_the_feasible_set')}, "
            f"{printed_test('no_feasible_matrix_is_nearer_than_the_nearest')}",
        ),
        Point(
            "adaptive sampling: more of *both* classes of a confused pair, or a larger loss",
            "`AdaptiveSampler` and `CostCrossEntropy.set_cost`",
            file(
                "tests/test_smoothing.py",
                "test_both_classes_of_a_planted_pair_are_drawn_more_often",
            )
            + "; verdicts in the table above",
        ),
        Point(
            "all models train 500 epochs; Scenario B has all references and full batches",
            "500 epochs for every model; Scenario B has all rows, random pairs of all of them, and "
            "batches of 256",
            "[at the paper's size](#at-the-papers-size)",
        ),
        Point(
            "also claimed: the mean TVD of Scenario A, the time and the architecture of V, "
            "Figure 1B",
            "each has a row and a verdict",
            "the table above",
        ),
        Point(
            "differences between methods are differences between samples, too",
            "paired differences, their standard errors, and a third verdict",
            study_test("95_percent_intervals_decide_a_verdict"),
        ),
        Point(
            "S and q may come from the same points, whose errors then cancel",
            "erratum 5 compares both",
            study_test("errors_cancel_where_s_comes_from_the_points_of_q"),
        ),
        Point(
            "what it does not claim: a unique shape at other scales, success at unequal priors, "
            "no precision above that of S",
            "these rows have no verdict or say what is claimed; errata 9 and 13 "
            "test the statements themselves",
            study_test("the_estimate_of_b_lacks_what_was_not_learned")
            + ", "
            + study_test("the_term_with_delta_is_exceeded_more_often_as_rows_grow"),
        ),
        Point(
            '"ours" is today\'s default',
            "so it is in every table of this page",
            "[at the paper's size](#at-the-papers-size)",
        ),
        Point(
            "Theorem 1 and Lemma 2 ask for diagonal dominance, which the paper's own scenarios "
            "lack",
            "[erratum 16](errata.md)",
            study_test("scenarios_of_the_paper_are_not_dominant"),
        ),
        Point(
            "the `while` of Algorithm 1 looks at ‖S Sᵀ - G‖ alone; slips in (31), (32), Section 5 "
            "and Lemma 2",
            "[errata 17 and 18](errata.md)",
            printed_test("the_descent_can_end_with_rows_that_do_not_sum_to_one"),
        ),
        Point(
            "65 numbered equations, 9 definitions, 2 lemmas, 3 theorems, 3 algorithms",
            "[the map](equations.md) has them all, and every function that it names "
            "runs",
            file("tests/test_equations_map.py", "test_a_named_function_runs"),
        ),
    ]


def points_table() -> str:
    """All of them, numbered."""
    body = [[str(number), *point] for number, point in enumerate(points(), start=1)]
    return table(["", "the paper", "here", "shown by"], body)
