"""The map from the paper's equations to lines: complete, and every name in it exists."""

import ast
import functools
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    recover,
    solve_posteriors,
)
from collidescope.counting import count_collisions
from collidescope.datasets import equidistant, scenario_a, scenario_b
from collidescope.equations import bounds, densities
from collidescope.equations.gramian import (
    gramian_from_posteriors,
    gramian_from_similarities,
)
from collidescope.pairwise import pairs, printed, scoring
from collidescope.pairwise.pairs import PairObjective
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.loop import fit_loop
from collidescope.training.networks import mlp

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "equations.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
#: "[`name`](file "dotted.name")"
LINKED = re.findall(r"\[`(\w+)`\]\((\S+) \"([\w.]+)\"\)", PAGE)

#: Numbered equations of the manuscript.
EQUATIONS = range(1, 66)
STATEMENTS = [
    *(f"Definition {number}" for number in range(1, 10)),
    *("Proposition 1", "Theorem 1", "Theorem 2", "Theorem 3", "Lemma 1", "Lemma 2"),
    *("Algorithm 1", "Algorithm 2", "Algorithm 3"),
]


def named(dotted):
    """The object of a dotted name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ImportError(dotted)


@pytest.mark.parametrize("number", EQUATIONS)
def test_every_numbered_equation_has_a_row(number):
    assert any(f"({number})" in row[0] for row in ROWS)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_has_a_row(statement):
    assert any(re.search(rf"{statement}\b", row[0]) for row in ROWS)


def test_every_row_names_a_function():
    without = [
        row[0]
        for row in ROWS[1:]
        if "`" not in row[2] and row[0].strip() != "The paper"
    ]
    assert without == []


@pytest.mark.parametrize(("name", "file", "dotted"), sorted(set(LINKED)))
def test_a_linked_function_is_defined_in_the_file_that_the_link_leads_to(
    name, file, dotted
):
    tree = ast.parse((DOCS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    assert named(dotted) is not None
    assert dotted.endswith(name)


#: One problem, exact: two classes, its S, and posteriors of three inputs.
S = np.array([[0.8, 0.2], [0.2, 0.8]])
HALF = np.array([0.5, 0.5])
CM = CollisionMatrix(S, HALF)
Y = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]])
X, CODES = scenario_a(3).sample(60, 0)
PARTS = [X[k == CODES] for k in range(3)]
SMALL = printed.PrintedSettings(hidden_layer_sizes=(8,), max_epochs=1, max_steps=10)
DENSITIES = [norm(-1, 1), norm(1, 1)]
LABELS = torch.tensor([0, 0, 1, 1])
INPUTS = torch.zeros(4, 2)


@functools.cache
def network():
    return PairwiseNetwork(mlp(4, 1, (4,)))


@functools.cache
def contrast():
    return printed.step_a(X, CODES, SMALL)


def trained():
    y = torch.tensor([0, 1] * 10)
    everything = torch.arange(20)
    split = (everything, everything[:0])
    objective = PairObjective(torch.randn(20, 2), y, split, SMALL.training(), 0)
    return fit_loop(network(), objective, SMALL.training(), 0).history[0]["train_loss"]


#: How each function of the map is called; the results are numbers.
CALLS = {
    "counting.count_collisions": lambda: (
        count_collisions([[0], [0], [1], [1]], [0, 1, 1, 1]).matrix
    ),
    "datasets.Problem.posteriors": lambda: scenario_a(3).posteriors(X),
    "datasets.equidistant": lambda: equidistant(3, 2, 2.0).means,
    "datasets.scenario_a": lambda: scenario_a(3).means,
    "datasets.scenario_b": lambda: scenario_b(0.25).means,
    "equations.bounds.condition_number": lambda: bounds.condition_number(S),
    "equations.bounds.pac_bound": lambda: bounds.pac_bound(100, 2, 2.0),
    "equations.bounds.posterior_error_bound": lambda: bounds.posterior_error_bound(
        S, S, S @ Y[0], S @ Y[0]
    ),
    "equations.densities.BayesOptimalClassifier": lambda: (
        densities.BayesOptimalClassifier(DENSITIES).predict([[0.5]])
    ),
    "equations.densities.ProbabilisticBayesClassifier": lambda: (
        densities.ProbabilisticBayesClassifier(DENSITIES).predict([[0.5]])
    ),
    "equations.densities.collision_divergence": lambda: densities.collision_divergence(
        *DENSITIES
    ),
    "equations.densities.collision_matrix_from_densities": lambda: (
        densities.collision_matrix_from_densities(DENSITIES).matrix
    ),
    "equations.densities.divergences": lambda: densities.divergences(*DENSITIES),
    "equations.densities.posteriors_from_densities": lambda: (
        densities.posteriors_from_densities([[0.5]], DENSITIES)
    ),
    "equations.gramian.gramian_from_posteriors": lambda: gramian_from_posteriors(
        np.vstack([Y, Y]), [0, 1, 1] * 2
    ),
    "equations.gramian.gramian_from_similarities": lambda: gramian_from_similarities(
        Y @ S.T, np.array([0, 1, 1])
    ),
    "equations.posterior.solve_posteriors": lambda: solve_posteriors(Y @ S.T, S),
    "equations.recovery.recover": lambda: recover(S @ S.T).matrix,
    "matrix.CollisionMatrix": lambda: CM.matrix,
    "matrix.CollisionMatrix.dominance_factor": lambda: CM.dominance_factor,
    "matrix.CollisionMatrix.gramian": lambda: CM.gramian,
    "matrix.CollisionMatrix.is_diagonally_dominant": lambda: CM.is_diagonally_dominant,
    "matrix.CollisionMatrix.pber": lambda: CM.pber,
    "matrix.CollisionMatrix.precision": lambda: CM.precision(),
    "matrix.CollisionMatrix.recall": lambda: CM.recall(),
    "onestep.collision_matrix_from_posteriors": lambda: (
        collision_matrix_from_posteriors(Y).matrix
    ),
    "pairwise.pairs.balanced_risk": lambda: pairs.balanced_risk(
        torch.zeros(2), torch.tensor([1.0, 0.0])
    ),
    "pairwise.pairs.same_log_odds_shift": lambda: pairs.same_log_odds_shift(3),
    "pairwise.pairs.sample_pairs": lambda: pairs.sample_pairs(LABELS, 8)[2],
    "pairwise.printed.descent_direction": lambda: printed.descent_direction(
        S, S @ S.T, 0.1
    )[0],
    "pairwise.printed.expected_similarity": lambda: printed.expected_similarity(
        contrast(), X, PARTS
    ),
    "pairwise.printed.is_feasible": lambda: printed.is_feasible(S),
    "pairwise.printed.nearest_dominant": lambda: printed.nearest_dominant(S),
    "pairwise.printed.printed_fit": lambda: printed.printed_fit(
        X, CODES, 3, SMALL
    ).posteriors(X),
    "pairwise.printed.solve_printed": lambda: printed.solve_printed(S, Y @ S.T),
    "pairwise.printed.step_a": lambda: contrast().grid(X, X),
    "pairwise.printed.step_b": lambda: printed.step_b(contrast(), PARTS),
    "pairwise.printed.step_c": lambda: printed.step_c(S @ S.T, max_steps=5).matrix,
    "pairwise.scoring.PairwiseNetwork": lambda: network()(INPUTS, INPUTS).detach(),
    "pairwise.scoring.class_similarity": lambda: scoring.class_similarity(
        network(), INPUTS, INPUTS, LABELS, 2
    )[0],
    "pairwise.scoring.similarity": lambda: scoring.similarity(
        network(), INPUTS, INPUTS
    ),
    "training.loop.fit_loop": trained,
    "training.networks.mlp": lambda: mlp(2, 1, (4,))(INPUTS).detach(),
}


def test_every_function_of_the_map_is_called():
    assert {dotted for _, _, dotted in LINKED} == {f"collidescope.{n}" for n in CALLS}


@pytest.mark.parametrize("name", CALLS)
def test_a_named_function_runs(name):
    assert np.isfinite(np.asarray(CALLS[name](), dtype=float)).all()


def test_links_are_found():
    assert len(LINKED) > 50


def test_matrices_with_one_gramian_differ_by_an_orthogonal_factor():
    """Lemma 1, with Q = V_B U_Bᵀ U_A V_Aᵀ as its proof gives it."""
    rng = np.random.default_rng(0)
    B = rng.normal(size=(4, 4))
    A = B @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    np.testing.assert_allclose(A @ A.T, B @ B.T)
    U_A, _, V_A = np.linalg.svd(A)
    U_B, _, V_B = np.linalg.svd(B)
    Q = V_B.T @ U_B.T @ U_A @ V_A
    np.testing.assert_allclose(Q @ Q.T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(B @ Q, A, atol=1e-9)


def test_expected_similarities_are_s_times_the_posterior():
    """(39) to (43), over a population of three inputs."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(3), 3)
    share = rng.dirichlet(np.ones(3))
    of_class = P * share[:, None] / (share @ P)
    S = of_class.T @ P
    q = np.array([[of_class[:, i] @ (P @ y) for i in range(3)] for y in P])
    np.testing.assert_allclose(q, P @ S.T)
