"""The paper's equations: Gramian, recovery of S, projection, posteriors and priors, known densities, divergences."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad
from scipy.linalg import sqrtm
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from collidescope import (
    collision_divergence,
    collision_matrix_from_densities,
    posterior_error_bound,
    recover,
)
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.equations import projection
from collidescope.equations.bounds import condition_number
from collidescope.equations.densities import (
    BayesOptimalClassifier,
    ProbabilisticBayesClassifier,
    divergences,
    divergences_from_posteriors,
    log_density,
    posteriors_from_densities,
    sample_mixture,
)
from collidescope.equations.gramian import (
    gramian_from_posteriors,
    gramian_from_similarities,
)
from collidescope.equations.posterior import (
    brier_scores,
    shift_priors,
    solve_posteriors,
)
from collidescope.equations.projection import balance, project
from collidescope.estimators import estimate_divergences
from collidescope.onestep import CollisionAccumulator
from helpers import ZOO, mean_tvd, planted, random_posteriors

# ------------------------------------------------------------------------------------------ Gramian


def double_loop(sim, codes, weights, k):
    """Weighted mean of sim over ordered pairs of different rows, class by class."""
    total, share = np.zeros((k, k)), np.zeros((k, k))
    for a in range(len(codes)):
        for b in range(len(codes)):
            if a != b:
                total[codes[a], codes[b]] += weights[a] * weights[b] * sim[a, b]
                share[codes[a], codes[b]] += weights[a] * weights[b]
    return total / share


def sample(k, weighted, n=40):
    rng = np.random.default_rng(0)
    P, codes = random_posteriors(rng, n, k)
    codes[k : 2 * k] = np.arange(k)
    return P, codes, rng.uniform(0.1, 3.0, n) if weighted else np.ones(n)


@pytest.mark.parametrize(("k", "weighted"), [(2, True), (7, False)])
def test_posteriors_give_the_mean_similarity_of_all_pairs_of_different_rows(
    k, weighted
):
    P, codes, w = sample(k, weighted)
    G = gramian_from_posteriors(P, codes, w if weighted else None)
    assert_allclose(G, double_loop(P @ P.T, codes, w, k), atol=1e-12)
    assert np.array_equal(G, G.T)


@pytest.mark.parametrize("weighted", [False, True])
def test_similarities_give_the_same_gramian_as_the_pairs_behind_them(weighted):
    """q from a symmetric pair score, the row itself left out: both methods must agree."""
    P, codes, w = sample(3, weighted)
    sim = P @ P.T
    q = np.empty((len(codes), 3))
    for a, j in np.ndindex(q.shape):
        others = (codes == j) & (np.arange(len(codes)) != a)
        q[a, j] = np.average(sim[a, others], weights=w[others])
    off = gramian_from_similarities(q, codes, w if weighted else None) - double_loop(
        sim, codes, w, 3
    )
    # On the diagonal the two differ in whether a row's partners are weighted with or without that row.
    assert np.abs(off[~np.eye(3, dtype=bool)]).max() < 1e-12
    assert np.abs(np.diag(off)).max() < (0.02 if weighted else 1e-12)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([0, 0, 1, 2], "class numbers from 0 to 1"),
        ([0.0, 0.0, 1.0, 1.0], "class numbers from 0 to 1, got float64"),
        ([0, 0, 1], "4 class numbers"),
        ([0, 0, 0, 0], "no row of class number 1"),
        ([0, 0, 0, 1], "single row of class number 1"),
    ],
)
def test_wrong_codes_are_refused_by_name(codes, message):
    with pytest.raises(ValueError, match=message):
        gramian_from_posteriors(np.full((4, 2), 0.5), codes)


# ------------------------------------------------------------------------------------------ recovery


@pytest.mark.parametrize("name", ZOO)
def test_root_recovers_every_planted_matrix_from_its_exact_gramian(name):
    S, priors = ZOO[name]
    recovery = recover(S @ S.T, priors)
    assert np.abs(recovery.matrix - S).max() < 1e-6
    assert recovery.residual < 1e-6
    assert recovery.converged
    assert recovery.iterations == 0


@pytest.mark.parametrize("name", ZOO)
def test_projection_leaves_a_possible_matrix_as_it_is(name):
    S, priors = ZOO[name]
    projected = project(priors[:, None] * S, priors)
    assert projected.moved < 1e-9
    assert projected.iterations == 0


def descend(G, penalty, learning_rate, steps):
    """The paper's objective by automatic differentiation: (S of the lowest objective, its objective)."""
    S = torch.eye(len(G), dtype=torch.float64)
    G = torch.as_tensor(G)
    best, lowest = S, np.inf
    for _ in range(steps + 1):
        S.requires_grad_()
        away = (S.sum(1) - 1).abs().sum() + torch.where(S < 0, -S, 0.0).sum()
        objective = torch.linalg.matrix_norm(S @ S.T - G) + penalty * away
        if float(objective.detach()) < lowest:
            best, lowest = S.detach(), float(objective.detach())
        S = S.detach() - learning_rate * torch.autograd.grad(objective, S)[0]
    return best.numpy(), lowest


@pytest.mark.parametrize("penalty", [{}, {"penalty": 1.0}])  # 0.1 unless told otherwise
def test_gradient_descent_takes_the_steps_of_the_papers_objective(penalty):
    # No Gramian of a stochastic matrix: rows leave the simplex, so that both penalties count.
    G = np.array([[0.9, -0.3, 0.2], [-0.3, 0.7, 0.1], [0.2, 0.1, 0.4]])
    best, lowest = descend(G, penalty.get("penalty", 0.1), 0.03, 12)
    assert best.min() < 0
    found = recover(
        G, method="gradient", **penalty, learning_rate=0.03, tolerance=1e-6, max_iter=12
    )
    positive = np.maximum(best, 0)
    expected = positive / positive.sum(axis=1, keepdims=True)
    assert np.allclose(found.matrix, expected, atol=1e-12)
    assert found.moved == pytest.approx(np.abs(expected - best).max())
    assert found.iterations == 12
    assert f"{lowest:.3g}" in found.status


@pytest.fixture
def uneven():
    """(a Gramian that is not symmetric, priors, the recovery of S from both)."""
    S, priors = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.75, 0.25])
    G = S @ S.T + [[0.02, 0.01], [-0.01, 0.0]]
    return G, priors, recover(G, priors)


def test_a_recovery_tells_what_it_is_judged_by(uneven):
    G, priors, found = uneven
    even = (G + G.T) / 2
    residual = np.linalg.norm(found.matrix @ found.matrix.T - even)
    assert found.residual == pytest.approx(residual)
    assert found.min_eigenvalue == pytest.approx(np.linalg.eigvalsh(even)[0])
    root = np.real(sqrtm(priors[:, None] * even * priors)) / priors[:, None]
    assert found.moved == pytest.approx(np.abs(found.matrix - root).max())


def test_a_matrix_of_no_gramian_has_a_negative_eigenvalue():
    assert recover([[0.2, 0.8], [0.8, 0.2]]).min_eigenvalue < -0.5


def test_a_recovery_without_priors_takes_even_ones(uneven):
    assert recover(uneven[0]).priors.tolist() == [0.5, 0.5]


def test_a_recovery_becomes_a_matrix_that_keeps_what_it_is_judged_by(uneven):
    _, priors, found = uneven
    cm = found.to_collision_matrix(["cat", "dog"])
    assert cm.classes.tolist() == ["cat", "dog"]
    assert np.array_equal(cm.priors, priors)
    assert np.allclose(found.joint, cm.joint)
    assert (cm.diagnostics.moved, cm.diagnostics.residual) == (
        found.moved,
        found.residual,
    )
    assert cm.method == "gramian"


def test_the_condition_number_is_that_of_row_sums():
    # inverse ((0.7, -0.1), (-0.3, 0.9)) / 0.6: its largest row sum is 2
    assert condition_number([[0.9, 0.1], [0.3, 0.7]]) == pytest.approx(2)
    assert condition_number(np.full((2, 2), 0.5)) > 1e15


#: Symmetric, doubly stochastic and dominant: the setting of the paper's Theorem 1.
DOMINANT = 0.7 * np.eye(3) + 0.1


def test_descent_that_reaches_its_tolerance_is_near_s():
    G = DOMINANT @ DOMINANT.T
    descent = recover(G, method="gradient", learning_rate=1e-3, tolerance=1e-3)
    assert descent.converged
    assert "reached the tolerance" in descent.status
    assert mean_tvd(descent.matrix, DOMINANT) < 2e-3
    assert mean_tvd(recover(G).matrix, DOMINANT) < 1e-12


def test_descent_from_within_its_tolerance_takes_no_step():
    G = DOMINANT @ DOMINANT.T
    start = float(np.linalg.norm(np.eye(3) - G))
    at_once = recover(G, method="gradient", tolerance=start * (1 + 1e-12))
    assert (at_once.iterations, at_once.converged) == (0, True)
    assert np.array_equal(at_once.matrix, np.eye(3))


def test_descent_that_its_last_step_ended_says_so():
    early = recover(DOMINANT @ DOMINANT.T, method="gradient", max_iter=5)
    assert not early.converged
    assert "max_iter=5" in early.status


def test_descent_that_stalls_says_so():
    stalled = recover(
        2 * np.eye(3),
        method="gradient",
        learning_rate=1e-2,
        tolerance=1e-9,
        max_iter=100_000,
    )
    # after whole windows
    assert stalled.iterations % 2000 == 0 < stalled.iterations < 100_000
    assert stalled.converged
    assert "stalled" in stalled.status


# ------------------------------------------------------------------------------------------ projection


def noisy(
    seed: int, k: int = 5, noise: float = 0.03
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    S, priors = planted(k, ratio=10, sharpness=4, seed=seed)
    E = np.random.default_rng(seed).standard_normal((k, k)) * noise
    scale = np.sqrt(np.outer(priors, priors))
    return priors[:, None] * S, priors[:, None] * S + scale * (E + E.T) / 2, priors


@pytest.mark.parametrize("seed", range(3))
def test_projection_gives_a_possible_matrix(seed):
    _, estimate, priors = noisy(seed, k=8)
    result = project(estimate, priors)
    assert result.converged
    assert_possible(result.joint, priors)


@pytest.mark.parametrize("seed", range(3))
def test_projection_is_no_further_from_the_truth(seed):
    truth, estimate, priors = noisy(seed, k=8)
    scale = np.sqrt(np.outer(priors, priors))
    before = np.linalg.norm((estimate - truth) / scale)
    after = np.linalg.norm((project(estimate, priors).joint - truth) / scale)
    assert after <= before


@pytest.mark.parametrize("seed", range(3))
def test_recovery_gives_a_possible_matrix(seed):
    truth, _, priors = noisy(seed, k=8)
    S = truth / priors[:, None]
    noise = 0.03 * seed * np.random.default_rng(seed).standard_normal(S.shape)
    recovered = recover(S @ S.T + noise, priors)
    assert_possible(recovered.joint, priors)
    steps = recovered.iterations
    assert (steps > 0) == (seed > 0)
    expected = f"projected in {steps} steps" if steps else "scaling it to the priors"
    assert expected in recovered.status


def assert_possible(B, priors):
    """Non-negative, symmetric, with the priors as row sums, positive semi-definite."""
    assert B.min() >= 0
    assert np.abs(B - B.T).max() < 1e-12
    assert np.abs(B.sum(axis=1) - priors).max() < 1e-12
    scale = np.sqrt(np.outer(priors, priors))
    assert np.linalg.eigvalsh(B / scale)[0] > -1e-6


@pytest.mark.parametrize("seed", range(2))
def test_no_feasible_point_is_nearer(seed):
    """Against a general-purpose solver (SLSQP over the upper triangle, K = 3), an independent method."""
    _, estimate, priors = noisy(seed, k=3, noise=0.3)
    scale = np.sqrt(np.outer(priors, priors))
    i, j = np.triu_indices(3)

    def full(v: np.ndarray) -> np.ndarray:
        B = np.zeros((3, 3))
        B[i, j] = v
        return np.maximum(B, B.T) if (v >= 0).all() else B + np.triu(B, 1).T

    def distance(v: np.ndarray) -> float:
        return float((((full(v) - estimate) / scale) ** 2).sum())

    start = np.outer(priors, priors)[i, j]
    constraints = [
        {"type": "eq", "fun": lambda v: full(v).sum(axis=1) - priors},
        {"type": "ineq", "fun": lambda v: np.linalg.eigvalsh(full(v) / scale)},
    ]
    options = {"ftol": 1e-14, "maxiter": 500}
    reference = minimize(
        distance,
        start,
        constraints=constraints,
        bounds=[(0, 1)] * 6,
        method="SLSQP",
        options=options,
    )
    ours = project(estimate, priors).joint
    assert distance(ours[i, j]) <= reference.fun + 1e-5


@pytest.mark.parametrize("operations", [0.0, 5 * 10 * 20**3])
def test_a_projection_that_is_cut_short_says_so(monkeypatch, operations):
    _, estimate, priors = noisy(3, k=20, noise=1.0)
    assert project(estimate, priors).converged
    monkeypatch.setattr(projection, "MAX_OPERATIONS", operations)
    result = project(estimate, priors)
    assert not result.converged
    assert result.iterations == (1 if operations == 0 else 4)
    assert result.joint.min() >= 0
    assert np.abs(result.joint.sum(axis=1) - priors).max() < 1e-12
    if operations == 0:
        recovered = recover(estimate @ estimate / np.outer(priors, priors), priors)
        assert (
            "20 classes the projection was cut short after 1 steps" in recovered.status
        )


def test_balance_scales_from_both_sides_until_row_sums_fit():
    rng = np.random.default_rng(1)
    B = rng.random((5, 5)) ** 3
    B = B + B.T + 1e-3 * np.eye(5)
    priors = np.array([0.01, 0.09, 0.2, 0.3, 0.4])
    kept, scaled = B.copy(), balance(B, priors)
    assert np.abs(scaled.sum(axis=1) / priors - 1).max() < 1e-13
    # also where every row sums to too little
    assert balance(B / 1000, priors) == pytest.approx(scaled)
    d = np.sqrt(np.diag(scaled) / np.diag(B))
    assert np.allclose(scaled, B * np.outer(d, d))
    assert np.array_equal(B, kept)
    Y = rng.random((50, 5))
    assert np.linalg.eigvalsh(balance(Y.T @ Y, priors))[0] > 0
    zero = np.array([[0.0, 0.0], [0.0, 1.0]])
    assert balance(zero, np.array([0.5, 0.5])) is zero


def test_an_estimate_that_is_not_symmetric_is_made_so_first():
    B = np.array([[0.30, 0.24], [0.16, 0.30]])
    projected = project(B, [0.5, 0.5])
    assert projected.joint == pytest.approx(np.array([[0.3, 0.2], [0.2, 0.3]]))
    assert projected.moved == pytest.approx(0.08)
    assert projected.min_eigenvalue == 0


def test_negative_eigenvalues_are_reported():
    priors = np.array([0.5, 0.5])
    flipped = np.array([[0.1, 0.4], [0.4, 0.1]])  # C has the eigenvalues 1 and -0.6
    assert project(flipped, priors).min_eigenvalue == pytest.approx(-0.6)


# ------------------------------------------------------------------------------------------ posteriors and priors

S5, PRIORS5 = planted(5, ratio=5, sharpness=2, seed=4)


Y5 = np.random.default_rng(1).dirichlet(np.full(5, 0.3), 100)


@pytest.mark.parametrize("solver", ["simplex", "inverse"])
def test_a_solver_is_exact_for_exact_similarities(solver):
    y = solve_posteriors(Y5 @ S5.T, S5, solver=solver, ridge=0)
    assert np.abs(y - Y5).max() < 1e-6


def test_only_the_papers_inverse_leaves_the_simplex():
    Y = Y5
    q = Y @ S5.T + 0.05 * np.random.default_rng(2).standard_normal((100, 5))
    inverse, simplex = solve_posteriors(q, S5, "inverse"), solve_posteriors(q, S5)
    assert np.allclose(inverse @ S5.T, q)
    assert inverse.min() < 0 <= simplex.min()
    assert np.allclose(simplex.sum(axis=1), 1)
    assert (
        np.abs(simplex - Y).sum(axis=1).mean() < np.abs(inverse - Y).sum(axis=1).mean()
    )


@pytest.mark.parametrize(
    ("k", "overlap", "ridge"),
    [
        (2, 1e-2, 0.0),
        (5, 1e-4, 1e-9),
        (5, 0.9, 0.1),
        (30, 1e-1, 0.0),
        (30, 1e-4, 1e-3),
        (30, 0.0, 0.0),
    ],
)
def test_the_simplex_solver_is_optimal_also_where_s_is_nearly_singular(
    k, overlap, ridge
):
    rng = np.random.default_rng(5)
    S, priors = (
        (1 - overlap) / k + overlap * rng.dirichlet(np.ones(k), k),
        rng.dirichlet(np.full(k, 5.0)),
    )
    q = rng.dirichlet(np.full(k, 0.3), 100) @ S.T + 0.02 * rng.standard_normal((100, k))
    for centre, towards in ((np.full(k, 1 / k), None), (priors, priors)):
        y = solve_posteriors(q, S, ridge=ridge, priors=towards)
        assert y.min() >= 0
        assert np.allclose(y.sum(axis=1), 1)
        gradient = (y @ S.T - q) @ S + ridge * (y - centre)
        # a convex problem on the simplex: y is optimal if no class offers a smaller slope than the classes in use do
        assert ((gradient * y).sum(axis=1) - gradient.min(axis=1)).max() < 1e-9
    assert np.allclose(
        solve_posteriors(q[0], S, ridge=ridge, priors=priors), y[0], atol=1e-4
    )


def test_twin_classes_share_the_probability_of_the_merged_class():
    rng = np.random.default_rng(6)
    merged_S = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
    S = np.repeat(np.repeat(merged_S, 2, axis=0), 2, axis=1) / 2
    q = rng.dirichlet(np.full(6, 0.3), 500) @ S.T + 0.05 * rng.standard_normal((500, 6))
    y = solve_posteriors(q, S, ridge=0)
    assert np.abs(y[:, ::2] - y[:, 1::2]).max() < 1e-3
    twice = q[:, ::2] + q[:, 1::2]
    merged = solve_posteriors(twice, S[::2, ::2] * 2, ridge=0)
    assert np.abs(y[:, ::2] + y[:, 1::2] - merged).max() < 1e-6


def test_similarities_far_from_any_possible_ones_give_the_nearest_posterior():
    S = np.array([[0.8, 0.2], [0.3, 0.7]])
    y = solve_posteriors(1e6 * np.array([[1.0, 0.0], [-1.0, 3.0]]), S)
    assert y == pytest.approx(np.eye(2))


def test_a_huge_ridge_gives_the_priors():
    S = np.array([[0.8, 0.2], [0.3, 0.7]])
    priors = np.array([0.6, 0.4])
    assert solve_posteriors([0.1, 0.2], S, ridge=1e40, priors=priors) == pytest.approx(
        priors
    )


probabilities = st.lists(st.floats(0.01, 1), min_size=4, max_size=4).map(
    lambda v: np.array(v) / np.sum(v)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(probabilities, min_size=1, max_size=5), probabilities, probabilities)
def test_priors_shift_there_and_back(rows, old, new):
    P = np.array(rows)
    there = shift_priors(P, old, new)
    assert np.allclose(there.sum(axis=1), 1)
    assert np.allclose(shift_priors(there, new, old), P, atol=1e-10)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(2, 6), st.floats(0.3, 6), st.floats(1e-4, 0.2), st.integers(0, 100_000)
)
def test_the_bound_that_always_holds_is_never_violated(k, sharpness, noise, seed):
    rng = np.random.default_rng(seed)
    S, _ = planted(k, sharpness=sharpness, seed=seed)
    y = rng.dirichlet(np.full(k, 0.5))
    S_hat = S + noise * rng.standard_normal((k, k))
    q = S @ y
    q_hat = q + noise * rng.standard_normal(k)
    bound = posterior_error_bound(S_hat, S, q_hat, q)
    if np.isfinite(bound.always):
        error = np.abs(np.linalg.solve(S_hat, q_hat) - y).max()
        assert error <= bound.always * (1 + 1e-9)


def test_the_two_bounds_are_their_formulas():
    S = np.array([[0.8, 0.2], [0.3, 0.7]])
    S_hat = S + np.array([[0.01, -0.02], [0.0, 0.005]])
    q, q_hat = np.array([0.4, -0.5]), np.array([0.37, -0.52])
    bound = posterior_error_bound(S_hat, S, q_hat, q)
    inverse = np.array([[0.7, -0.2], [-0.3, 0.8]]) / 0.5
    kappa = 1.0 * max(abs(inverse).sum(axis=1))
    # the largest row sum of |Ŝ - S|, and the relative error of q
    error = 0.03 + 0.03 / 0.5
    epsilon = 0.3 / 0.7
    assert bound.condition == pytest.approx(kappa)
    assert bound.dominance_factor == pytest.approx(epsilon)
    assert bound.always == pytest.approx(kappa / (1 - kappa * 0.03) * error)
    assert bound.lemma == pytest.approx(2 * (1 + epsilon) / (1 - epsilon) * error)
    exactly_one = posterior_error_bound(np.diag([2.0, 1.0]), np.eye(2), q, q)
    assert exactly_one.always == np.inf  # r = 1
    assert (
        posterior_error_bound(np.eye(2)[::-1], np.eye(2)[::-1], q, q).dominance_factor
        == np.inf
    )


def test_the_papers_lemma_is_first_order_only():
    """S is diagonally dominant and Ŝ nearly singular: the lemma is finite, the error is larger."""
    S, S_hat = (
        np.array([[0.6, 0.4], [0.4, 0.6]]),
        np.array([[0.4999, 0.5001], [0.5001, 0.4999]]),
    )
    bound = posterior_error_bound(S_hat, S, S[:, 0], S[:, 0])
    assert bound.dominance_factor < 1
    assert np.abs(np.linalg.solve(S_hat, S[:, 0]) - [1.0, 0.0]).max() > bound.lemma
    assert bound.always == np.inf


def test_equal_priors_leave_posteriors_alone():
    P, priors = np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([0.3, 0.7])
    assert shift_priors(P, priors, priors * (1 + 1e-14)) is P
    assert not np.array_equal(shift_priors(P, [0.5, 0.5], [0.5 + 1e-9, 0.5 - 1e-9]), P)


def test_a_rare_class_that_gets_rarer_is_shifted():
    old, new = np.array([0.5, 0.5 - 1e-13, 1e-13]), np.array([0.5, 0.5 - 5e-14, 5e-14])
    assert np.allclose(
        shift_priors([[0.3, 0.3, 0.4]], old, new), [[0.375, 0.375, 0.25]]
    )


def test_brier_scores_do_not_depend_on_how_numbers_lie_in_memory():
    P, codes = random_posteriors(np.random.default_rng(0), 200, 3)
    by_column = brier_scores(np.asfortranarray(P), codes)
    assert (by_column == brier_scores(P, codes)).all()


# ------------------------------------------------------------------------------------------ known densities


def gaussians(problem):
    return [stats.multivariate_normal(mean) for mean in problem.means]


@pytest.mark.parametrize("k", [3, 5])
def test_monte_carlo_agrees_with_quadrature_within_its_standard_error(k):
    problem = scenario_a(k)
    cm = collision_matrix_from_densities(
        gaussians(problem), n_samples=100_000, random_state=0
    )
    truth = problem.collision_matrix()
    z = (cm.matrix - truth.matrix) / cm.stderr
    assert np.abs(z).max() < 4
    assert abs(cm.pber - truth.pber) < 4 * cm.pber_stderr
    assert np.allclose(cm.priors, 1 / k, rtol=0, atol=1e-12)
    assert cm.balance_gap < 1e-12


def test_the_probabilistic_classifier_errs_at_the_pber():
    problem = scenario_a(3)
    pbc = ProbabilisticBayesClassifier(gaussians(problem))
    X, y = problem.sample(60_000, 1, stratified=False)
    error = (pbc.predict(X, random_state=2) != y).mean()
    pber = problem.collision_matrix().pber
    assert abs(error - pber) < 4 * np.sqrt(pber * (1 - pber) / 60_000)


def test_the_best_classifier_says_the_most_likely_class():
    pair = [stats.norm(-1), stats.norm(1)]
    best = BayesOptimalClassifier(pair, [0.9, 0.1], classes=["low", "high"])
    edge = np.log(0.9 / 0.1) / 2  # where the posteriors are even
    assert best.predict([edge - 0.01, edge + 0.01]).tolist() == ["low", "high"]


def test_the_confusion_of_the_probabilistic_classifier_is_s():
    problem = scenario_a(3)
    pbc = ProbabilisticBayesClassifier(gaussians(problem))
    truth = problem.collision_matrix()
    X, y = problem.sample(60_000, 2)
    predicted = pbc.predict(X, random_state=3)
    confusion = np.stack(
        [np.bincount(predicted[y == k], minlength=3) / (y == k).sum() for k in range(3)]
    )
    assert np.abs(confusion - truth.matrix).max() < 4 * np.sqrt(0.25 / 20_000)


class Only:
    """A distribution with one of the four ways to tell its density."""

    def __init__(self, distribution, name):
        self.rvs = distribution.rvs
        setattr(self, name, getattr(distribution, name))


@pytest.mark.parametrize(
    ("family", "names"),
    [(stats.norm, ["logpdf", "pdf"]), (stats.poisson, ["logpmf", "pmf"])],
)
def test_densities_may_be_given_as_they_are_or_as_logarithms(family, names):
    X = np.array([0, 1, 2, 5])
    pair = [family(1), family(3)]
    expected = pair[0].pdf(X) if names[0] == "logpdf" else pair[0].pmf(X)
    for name in names:
        assert np.allclose(log_density(Only(pair[0], name), X), np.log(expected))
        P = posteriors_from_densities(X, [Only(f, name) for f in pair], [0.3, 0.7])
        assert np.allclose(P, posteriors_from_densities(X, pair, [0.3, 0.7]))


def test_where_one_density_is_zero_or_far_below_the_other_class_is_certain():
    with np.errstate(divide="raise"):
        P = posteriors_from_densities(
            [0.5, 1.5],
            [Only(stats.uniform(0, 1), "pdf"), Only(stats.uniform(0, 2), "pdf")],
        )
    assert np.allclose(P, [[2 / 3, 1 / 3], [0, 1]])
    assert posteriors_from_densities(
        [1000.0, -1000.0], [stats.norm(-1), stats.norm(1)]
    ).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("seed", range(3))
def test_draws_of_a_mixture_come_with_the_class_that_they_were_drawn_from(seed):
    # So few draws that classes with one draw and with none occur.
    places = [stats.multivariate_normal([10 * k, -10 * k], 1e-6) for k in range(3)]
    X, codes = sample_mixture(places, [0.2, 0.3, 0.5], 3, seed)
    assert X.shape == (3, 2)
    assert np.rint(X[:, 0] / 10).tolist() == codes.tolist()
    assert np.rint(X[:, 1] / -10).tolist() == codes.tolist()
    many = sample_mixture(places, [0.2, 0.3, 0.5], 4000, seed)[1]
    assert np.bincount(many) / 4000 == pytest.approx([0.2, 0.3, 0.5], abs=0.04)


def test_the_matrix_of_densities_is_that_of_the_posteriors_of_its_draws_at_the_given_priors():
    densities, priors = (
        [stats.norm(-1), stats.norm(1), stats.norm(4)],
        np.array([0.5, 0.3, 0.2]),
    )
    cm = collision_matrix_from_densities(
        densities, priors, classes=["a", "b", "c"], n_samples=50, random_state=1
    )
    X, _ = sample_mixture(densities, priors, 50, 1)
    drawn = (
        CollisionAccumulator(["a", "b", "c"])
        .update(posteriors_from_densities(X, densities, priors))
        .result()
    )
    assert cm.priors.tolist() == priors.tolist()
    assert np.allclose(cm.joint.sum(axis=0), priors)
    d = np.sqrt(np.diag(cm.joint) / np.diag(drawn.joint))  # D B D, from both sides
    assert np.allclose(cm.joint, drawn.joint * np.outer(d, d))
    assert np.array_equal(cm.classes, drawn.classes)
    assert cm.stderr.shape == (3, 3)
    assert cm.diagnostics.n_samples == 50
    assert collision_matrix_from_densities(
        densities, n_samples=50
    ).classes.tolist() == [0, 1, 2]
    even = BayesOptimalClassifier(densities)
    assert (even.classes_.tolist(), even.priors.tolist()) == ([0, 1, 2], [1 / 3] * 3)


# ------------------------------------------------------------------------------------------------ divergences


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_gaussians_at_plus_and_minus_mu_have_their_closed_forms(mu):
    """The paper's figure: N(μ, 1) against N(-μ, 1)."""
    result = divergences(stats.norm(mu), stats.norm(-mu))
    assert result.total_variation == pytest.approx(2 * stats.norm.cdf(mu) - 1, abs=1e-6)
    assert result.hellinger == pytest.approx(
        np.sqrt(1 - np.exp(-(mu**2) / 2)), abs=1e-9
    )
    assert result.kl == pytest.approx(2 * mu**2, rel=1e-9)
    S = GaussianProblem([[mu], [-mu]]).collision_matrix().matrix
    assert result.collision == pytest.approx(1 - 2 * S[0, 1], abs=1e-9)
    assert result.total_variation**2 <= result.collision <= result.total_variation


def test_difficult_densities_are_integrated_as_drawn():
    for f, own, other in (
        (stats.cauchy, (0,), (1,)),
        (stats.t, (3, 0), (3, 1)),
        (stats.gamma, (0.2,), (0.4,)),
    ):
        # without quantiles: Monte Carlo
        drawn = SimpleNamespace(logpdf=f(*own).logpdf, rvs=f(*own).rvs)
        expected = divergences(drawn, f(*other), n_samples=400_000, random_state=0)
        assert divergences(f(*own), f(*other)) == pytest.approx(expected, abs=0.006)


def test_divergences_of_equal_distributions_are_zero():
    assert divergences(stats.norm(0), stats.norm(0)) == pytest.approx(
        (0, 0, 0, 0), abs=1e-7
    )  # √ of a rounding error


def test_divergences_of_disjoint_distributions_are_at_their_limits():
    assert divergences(stats.uniform(0, 1), stats.uniform(5, 1)) == pytest.approx(
        (1, 1, 1, np.inf)
    )
    with np.errstate(over="raise", invalid="raise"):  # posteriors a hair from certain
        apart = divergences(stats.norm(0), stats.norm(1000, 1))
    assert apart[:3] == pytest.approx((1, 1, 1))
    assert apart.kl == pytest.approx(1000**2 / 2, rel=1e-6)


def test_samples_of_two_distributions_give_the_divergence_with_an_interval(rng):
    exact = divergences(stats.norm(0.7), stats.norm(-0.7))
    samples = rng.normal(0.7, 1, (6000, 1)), rng.normal(-0.7, 1, (1500, 1))
    result, cm = estimate_divergences(LogisticRegression(), *samples)
    assert result == pytest.approx(exact, abs=0.06)
    low, high = cm.interval()
    assert 1 - 2 * high[0, 1] < exact.collision < 1 - 2 * low[0, 1]
    assert result.collision == pytest.approx(1 - 2 * cm.matrix[0, 1])


def test_posteriors_give_the_means_of_the_four_formulas():
    each = np.array([0.1, 0.35, 0.5, 0.95])
    gap = 2 * each - 1
    hellinger = np.sqrt(1 - np.mean(2 * np.sqrt(each * (1 - each))))
    expected = (
        np.mean(gap**2),
        np.mean(np.abs(gap)),
        hellinger,
        np.mean(2 * each * np.log(each / (1 - each))),
    )
    assert divergences_from_posteriors(each) == pytest.approx(expected)


def test_weights_of_posteriors_count_as_copies():
    p = np.array([0.1, 0.35, 0.5, 0.95])
    copies = np.array([1, 4, 2, 3])
    repeated = divergences_from_posteriors(np.repeat(p, copies))
    assert divergences_from_posteriors(p, copies) == pytest.approx(repeated)


def test_discrete_distributions_go_by_monte_carlo():
    a, b = 0.3, 0.6
    drawn = divergences(stats.bernoulli(a), stats.bernoulli(b), random_state=0)
    p = np.array([[a, b], [1 - a, 1 - b]])
    assert drawn.total_variation == pytest.approx(b - a, abs=0.005)
    assert drawn.collision == pytest.approx(
        1 - (2 * p[:, 0] * p[:, 1] / p.sum(axis=1)).sum(), abs=0.005
    )
    assert drawn.kl == pytest.approx(stats.entropy(p[:, 0], p[:, 1]), abs=0.01)


def test_quadrature_reaches_ten_digits_where_widths_differ():
    f, g = stats.norm(0, 1), stats.norm(3, 5)
    overlap, _ = quad(
        lambda x: 2 * f.pdf(x) * g.pdf(x) / (f.pdf(x) + g.pdf(x)),
        -9,
        9,
        epsabs=1e-13,
        limit=500,
    )
    assert collision_divergence(f, g) == pytest.approx(1 - overlap, abs=1e-10)
