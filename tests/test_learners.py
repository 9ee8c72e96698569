"""The members of the pool: what each learns, what each writes, and how they are weighed."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import dirichlet_multinomial, multivariate_t
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB, GaussianNB, MultinomialNB

from collidescope.equations.densities import draw_classes
from collidescope.learners import (
    EMBEDDINGS,
    MEMBERS,
    ONLY_IMAGES,
    discriminant,
    gaussian,
    independent,
    kernel,
    members_for,
    recipe,
    trees,
)
from collidescope.learners import softmax as regression
from collidescope.learners.base import Fitted, Foreign, Task, squared_distances
from collidescope.learners.pool import _prior_weights, pool, pool_weights
from helpers import bars

TABLES = [name for name in MEMBERS if name not in ONLY_IMAGES]
LEARN = [name for name in TABLES if name != "priors"]
SHAPES = {"n<d": (12, 20, 3), "two classes": (60, 3, 2), "many classes": (230, 2, 100)}
#: Short runs: these tests ask for behaviour, not for accuracy.
QUICK_TRAINING = {"max_epochs": 8, "hidden_layer_sizes": (16,)}


def blobs(
    n: int, d: int, k: int, seed: int = 0, apart: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes around random centres, every class at least once."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(k, d)) * apart
    codes = np.concatenate([np.arange(k), generator.integers(0, k, n - k)])
    return (centres[codes] + generator.normal(size=(n, d))).astype(np.float32), codes


def task(X: np.ndarray, codes: np.ndarray, **options: Any) -> Task:
    return Task(
        X, codes, int(codes.max()) + 1, **{"training": QUICK_TRAINING, **options}
    )


def fitted(name: str, *args: Any, **options: Any) -> Fitted:
    return recipe(name).fit(task(*args, **options))


def log_loss(member: Fitted, X: np.ndarray, codes: np.ndarray) -> float:
    return float(-member.log_posteriors(X)[np.arange(len(codes)), codes].mean())


def held_out(name: str, X: np.ndarray, codes: np.ndarray, n: int = 300, **options: Any):
    """Log loss on the rows after the first n, of a member that learned from those."""
    return log_loss(fitted(name, X[:n], codes[:n], **options), X[n:], codes[n:])


# What every member must do


@pytest.mark.parametrize("name", LEARN)
def test_every_member_learns_separated_classes(name):
    X, codes = blobs(600, 3, 3, apart=4.0)
    if name == "linear-axis":
        X[:, 1:] = 0
        # classes along one direction, the only thing this member can see
        X[:, 0] += 3 * codes
    X = np.rint(np.maximum(X, 0)) if name == "counts" else X
    longer = QUICK_TRAINING | {"max_epochs": 40}
    loss = held_out(name, X, codes, 400, training=longer)
    assert loss < 0.5 * held_out("priors", X, codes, 400)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("n", "d", "k"), SHAPES.values(), ids=SHAPES)
def test_odd_shapes_give_finite_posteriors_that_a_file_brings_back(name, n, d, k):
    X, codes = blobs(n, d, k)  # with many classes most have one or two rows
    X = np.column_stack([X, np.full(n, 3.0)]).astype(np.float32)  # a constant column
    member = fitted(name, X, codes)
    far = np.concatenate([X[:5], np.outer([20, 20, -20], np.ones(d + 1))]).astype("f4")
    log_p = member.log_posteriors(far)
    assert np.isfinite(log_p).all()
    assert_allclose(np.exp(log_p).sum(axis=1), np.ones(8), atol=1e-5)
    again = recipe(name).restore(copy.deepcopy(member.export()), (d + 1,), k)
    assert_allclose(again.log_posteriors(far), log_p, atol=1e-5)


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_weight_zero_do_not_count_in_a_repeatable_fit(name):
    X, codes = blobs(300, 3, 3)
    first = np.arange(300) < 150
    wrong = np.where(first, codes, (codes + 1) % 3)
    member, again = (
        fitted(name, X, wrong, sample_weight=2.0 * first, seed=5) for _ in range(2)
    )
    assert_array_equal(member.log_posteriors(X), again.log_posteriors(X))
    if name in ("priors", "counts"):  # these features are no counts
        shares = np.bincount(codes[first], minlength=3) / 150
        P = np.exp(member.log_posteriors(X[:1]))
        assert_allclose(P[0], shares, atol=0.01)
    else:
        poisoned = fitted(name, X, wrong)
        new = X[~first], codes[~first]
        assert log_loss(member, *new) < log_loss(poisoned, *new)


@pytest.mark.parametrize("name", ["smooth", "smooth-small"])
def test_a_smooth_network_keeps_the_priors_where_one_class_has_all_rows(
    name,
):
    X, _ = blobs(60, 2, 2)
    own = Task(X, np.zeros(60, int), 2, training=QUICK_TRAINING)
    P = np.exp(recipe(name).fit(own).log_posteriors(X))
    assert_allclose(P, np.tile(own.priors, (60, 1)), rtol=1e-6)


UNEVEN = np.repeat([0, 1, 2], [50, 30, 1])


def test_inner_parts_are_stratified_without_groups():
    part = Task(None, UNEVEN, 3).inner_parts(5, seed=0)
    # the only row of a class is always trained on
    assert part[UNEVEN == 2].tolist() == [-1]
    for k in (0, 1):
        assert np.ptp(np.bincount(part[k == UNEVEN], minlength=5)) <= 1


def test_inner_parts_keep_groups_together():
    groups = np.arange(81) // 3
    part = Task(None, UNEVEN, 3, groups=groups).inner_parts(5, seed=0)
    assert (np.ptp(part.reshape(27, 3), axis=1) == 0).all()


@pytest.mark.parametrize("name", ["trees", "network"])
def test_a_single_group_is_not_held_out(name):
    X, codes = blobs(80, 3, 2)
    member = fitted(name, X, codes, groups=np.zeros(80, dtype=int))
    assert np.isfinite(member.log_posteriors(X)).all()


# What one member can do that others cannot


@pytest.mark.parametrize("whitened", [False, True])
def test_softmax_regression_reaches_the_optimum_of_its_objective(whitened):
    X, codes = blobs(400, 5, 3, apart=0.7)
    if whitened:
        X[:, 4] = X[:, 3] + 0.05 * X[:, 4]  # nearly the same feature twice
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    reference = LogisticRegression(C=1 / 0.3, tol=1e-8, max_iter=5000).fit(X, codes)
    member = replace(recipe("linear"), whitened=whitened).fit(task(X, codes))
    P = np.exp(member.log_posteriors(X))
    assert_allclose(P, reference.predict_proba(X), atol=5e-3)


def test_products_see_what_lines_do_not():
    X, _ = blobs(300, 3, 3, apart=0.7)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    codes = (X[:, 0] * X[:, 1] > 0).astype(int)
    assert held_out("linear", X, codes, 200) > 0.6
    assert held_out("quadratic", X, codes, 200) < 0.25


def three_of_sixty() -> tuple[np.ndarray, np.ndarray]:
    """Rows of sixty features, of which three matter."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(700, 60)).astype(np.float32)
    return X, (X[:, :3].sum(axis=1) + generator.logistic(size=700) > 0).astype(int)


def test_sparse_regression_leaves_out_what_says_nothing():
    X, codes = three_of_sixty()
    loss = held_out("linear-sparse", X, codes, 200)
    assert loss < 0.8 * held_out("linear", X, codes, 200)
    assert loss < 1.1 * held_out("linear", X[:, :3], codes, 200)
    last: Any = fitted("linear-sparse", X, codes)
    assert (last.scale[:3] > 0).all()
    assert (last.scale == 0).mean() > 0.7


def test_sparse_regression_changes_priors_as_its_equation_says():
    X, codes = three_of_sixty()
    rounds: list[Any] = []
    for number in (1, 2):
        shorter = replace(recipe("linear-sparse"), rounds=number)
        rounds.append(shorter.fit(task(X, codes)))
    p = np.exp(rounds[0].log_posteriors(X))
    z = (X - rounds[0].mean) * rounds[0].scale
    s2 = [
        [1 / (1 + sum(z[:, j] ** 2 * p[:, k] * (1 - p[:, k]))) for k in range(2)]
        for j in range(60)
    ]
    tau = (rounds[0].weight ** 2).sum(axis=1) / (1 + np.sum(1 - np.array(s2), axis=1))
    assert_allclose((rounds[1].scale / rounds[0].scale) ** 2, tau, rtol=1e-3, atol=1e-6)


def test_a_feature_of_two_values_has_no_steps():
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    X[:, 1] = X[:, 1] > 0
    member: Any = fitted("additive", X, (X[:, 0] > 0).astype(int))
    assert member.features.stepped.tolist() == [0, 2]
    assert len(member.mean) == 3 + 2 * len(regression.STEPS)


@pytest.fixture
def counted(rng):
    """Counts of five words in 9,000 texts of three classes, standardised, and their classes."""
    codes = rng.choice(3, 9000, p=[0.6, 0.3, 0.1])
    rates = rng.uniform(0.2, 3, size=(3, 5))
    X = rng.poisson(rates[codes]).clip(max=3)
    return X, ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), codes


@pytest.mark.parametrize(
    ("name", "reference"),
    [("histograms", CategoricalNB()), ("counts", MultinomialNB())],
)
def test_naive_bayes_of_many_rows_is_that_of_scikit_learn(counted, name, reference):
    X, standardised, codes = counted
    ours = np.exp(fitted(name, standardised, codes).log_posteriors(standardised[:500]))
    expected = reference.fit(X, codes).predict_proba(X[:500])
    assert_allclose(ours, expected, atol=0.02)


def test_class_shares_of_a_few_rows_stay_near_those_of_all_classes(counted):
    _, X, codes = counted
    few = fitted("histograms", X[:30], codes[:30])
    assert np.exp(few.log_posteriors(X[:500])).max() < 0.99


def test_no_count_is_below_zero(counted):
    _, X, codes = counted
    member = fitted("counts", X, codes)
    least = X.min(axis=0, keepdims=True)
    assert_array_equal(member.log_posteriors(least), member.log_posteriors(least - 9))


def test_features_that_are_no_counts_leave_the_priors(counted, rng):
    _, X, codes = counted
    noisy = X + rng.normal(size=X.shape).astype(np.float32)
    log_p = fitted("counts", noisy, codes).log_posteriors(noisy)
    assert np.ptp(log_p, axis=0).max() < 1e-12


GAUSSIANS = pytest.mark.parametrize(
    ("name", "blocks"),
    [("gaussian", [[0, 1, 2]]), ("gaussian-independent", [[0], [1], [2]])],
)


def two_gaussians() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    codes = np.repeat([0, 1], [3000, 1000])
    X[3000:] = X[3000:] @ [[2, 0.5, 0], [0, 0.3, 0], [0.2, 0, 1]] + 0.2
    return X, codes


@GAUSSIANS
def test_gaussian_classes_are_scored_by_a_t_density(name, blocks):
    X, codes = two_gaussians()
    member = fitted(name, X, codes)
    fit: Any = member.export()
    scaled = X * fit["scale"]
    logs = np.log([0.75, 0.25]) + np.zeros((9, 2))
    for c in (0, 1):
        for F, own in zip(fit["factor"][c], blocks, strict=True):
            mean, shape = fit["mean"][c, own], np.linalg.inv(F @ F.T)
            x = scaled[codes == c][:, own]
            assert_allclose(mean, x.mean(axis=0), atol=5e-3)
            assert_allclose(shape, np.cov(x.T).reshape(shape.shape), atol=0.02)
            density = multivariate_t(mean, shape, fit["degrees"][c])
            logs[:, c] += density.logpdf(scaled[:9, own])
    expected = logs - np.logaddexp(*logs.T)[:, None]
    assert_allclose(member.log_posteriors(X[:9]), expected, atol=2e-3)


@GAUSSIANS
def test_weights_of_gaussian_classes_count_as_copies(name, blocks):
    X, codes = two_gaussians()
    some = slice(2990, 3010)  # of each class ten rows
    twice = np.repeat(np.arange(2990, 3010), 2)
    weighted = fitted(name, X[some], codes[some], sample_weight=np.full(20, 2.0))
    copied = fitted(name, X[twice], codes[twice])
    assert_allclose(weighted.log_posteriors(X), copied.log_posteriors(X), atol=1e-6)


def sequential(
    rows: np.ndarray, m: np.ndarray, kappa: float, nu: float, scatter: np.ndarray
) -> float:
    """Log marginal likelihood of the rows of a class: each by its t density given the rows before
    it."""
    total, p, mean = 0.0, len(m), m
    for x in rows:
        df = nu - p + 1
        total += multivariate_t(mean, scatter * (kappa + 1) / (kappa * df), df).logpdf(
            x
        )
        scatter = scatter + kappa / (kappa + 1) * np.outer(x - mean, x - mean)
        mean, kappa, nu = (kappa * mean + x) / (kappa + 1), kappa + 1, nu + 1
    return total


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("B", "p"), [(1, 2), (2, 1)])
def test_strengths_of_gaussian_classes_have_the_highest_marginal_likelihood(seed, B, p):
    generator = np.random.default_rng(seed)
    wide, apart = 10.0 ** generator.uniform(-1, 1, 2)
    n = np.array([9.0, 14.0])
    classes = [generator.normal(apart * c, wide**c, (int(n[c]), B * p)) for c in (0, 1)]
    m = np.concatenate(classes).mean(axis=0)
    blocks = [[rows.reshape(-1, B, p)[:, b] for b in range(B)] for rows in classes]
    A = np.array([[np.cov(x.T, ddof=0) * len(x) for x in own] for own in blocks])
    A = A.reshape(2, B, p, p)
    means = np.array([rows.mean(axis=0) for rows in classes])
    member = gaussian.Gaussian("gaussian")
    moments = gaussian.ClassMoments(n, means, A, m, n.sum())
    prior = gaussian.likeliest_prior(moments, member.strengths, member.degrees)
    sigma = prior.scatter / (prior.nu - p - 1)
    pooled = np.einsum("cbii->bi", A) / (n.sum() - 2) + 1e-4
    assert_allclose(np.einsum("bii->bi", sigma), pooled)

    def likelihood(k: float, v: float) -> float:
        return sum(
            sequential(own[b], m.reshape(B, p)[b], k, v, (v - p - 1) * sigma[b])
            for own in blocks
            for b in range(B)
        )

    grid = [(k, p + 1 + more) for k in member.strengths for more in member.degrees]
    assert max(grid, key=lambda kv: likelihood(*kv)) == (prior.kappa, prior.nu)


@pytest.mark.parametrize("strength", [1.0, 30.0, 1000.0])
def test_pseudo_counts_of_naive_bayes_have_the_highest_marginal_likelihood(
    strength, rng
):
    shares = rng.dirichlet(strength * np.full(4, 0.25), (5, 3))
    N = rng.multinomial(60, shares)  # of five features, three classes, four values
    m = N.sum(axis=1) + 0.1
    m /= m.sum(axis=1, keepdims=True)

    def likelihood(alpha: float) -> float:
        return sum(
            dirichlet_multinomial(alpha * m[d], 60).logpmf(own)
            for d in range(5)
            for own in N[d]
        )

    alpha = max(independent.ALPHAS, key=likelihood)
    expected = np.log((N + alpha * m[:, None]) / (60 + alpha)).transpose(0, 2, 1)
    found = independent.log_class_shares(N.transpose(0, 2, 1).astype(float))
    assert_allclose(found, expected, rtol=1e-5)


def test_features_are_standardised_by_weighted_moments_in_any_number_of_blocks(rng):
    X = rng.normal(3, 2, (90_000, 100)).astype(np.float32)
    w = 1 + np.arange(90_000) % 7
    mean, scale = regression.weighted_moments(regression.Inputs(100), X, w)
    assert_allclose(mean, np.average(X, axis=0, weights=w), rtol=1e-4)
    variance = np.average((X - mean) ** 2, axis=0, weights=w)
    assert_allclose(scale, variance**-0.5, rtol=1e-4)


def two_kinds(rng):
    """(rows of ten features, which of two classes each is of)."""
    return rng.normal(size=(600, 10)), rng.integers(0, 2, 600)


def test_two_covariances_are_for_gaussian_classes(rng):
    X, codes = two_kinds(rng)
    turned = 1.5 * X @ np.linalg.qr(X[:10])[0] + X[:, ::-1]
    X = np.where(codes[:, None] == 1, turned, X)
    assert held_out("gaussian", X, codes) < held_out("quadratic", X, codes)


def test_two_variances_are_for_independent_gaussian_features(rng):
    X, codes = two_kinds(rng)
    X *= np.where(codes[:, None] == 1, 1.5, 1.0)
    loss = held_out("gaussian-independent", X, codes)
    assert loss < held_out("gaussian", X, codes)


def test_sums_of_curves_are_for_the_additive_member(rng):
    x = rng.normal(size=(600, 3))
    sums = np.sin(2 * x[:, 0]) + np.abs(x[:, 1]) - 0.8 + 0.1 * x[:, 2]
    assert held_out("additive", x, (sums > 0).astype(int)) < 0.3


def test_skewed_features_are_for_ranks(rng):
    x = rng.normal(size=(600, 3))
    skewed, codes = np.exp(3 * x), (x.sum(axis=1) > 0).astype(int)
    assert held_out("ranked", skewed, codes) < 0.5 * held_out("linear", skewed, codes)


@pytest.fixture
def ridge(rng):
    """(distances, kernel, targets, columns) of a ridge regression."""
    X = rng.normal(size=(25, 2)).astype(np.float32)
    Y = np.eye(2, dtype=np.float32)[rng.integers(0, 2, 25)] - 0.5
    K = kernel.kernel(X, X, 0.5).astype(np.float64)
    return squared_distances(X, X), K, Y, X


#: Up to so many rows all penalties are tried; beyond, a few are solved.
BOTH_WAYS = pytest.mark.parametrize("few", [10, 300])


@BOTH_WAYS
def test_kernel_leave_one_out_scores_are_those_of_refits_without_the_row(ridge, few):
    squares, K, Y, _ = ridge
    best = kernel.ridge(squares, Y, np.ones(25, dtype=np.float32), 0.5, few)

    def refit(rows, penalty):
        part = K[np.ix_(rows, rows)] + penalty * np.eye(len(rows))
        return np.linalg.solve(part, Y[rows])

    # The penalty that was chosen is the one whose fit on all rows gives these coefficients.
    rows = np.arange(25)
    penalty = min(
        kernel.PENALTIES,
        key=lambda p: np.abs(K @ (refit(rows, p) - best.coefficients)).max(),
    )
    for i in range(25):
        rest = np.delete(rows, i)
        expected = K[i, rest] @ refit(rest, penalty)
        assert_allclose(best.scores[i], expected, atol=2e-3)


@BOTH_WAYS
def test_equal_weights_of_the_kernel_machine_are_the_limit_of_unequal_ones(ridge, few):
    squares, K, Y, X = ridge
    even, uneven = (
        kernel.ridge(squares, Y, np.float32(4) + w, 0.5, few).coefficients
        for w in np.outer([0, 1e-4], X[:, 0]).astype("f4")
    )
    assert_allclose(K @ even, K @ uneven, atol=1e-3)


def test_a_kernel_machine_of_all_rows_has_the_best_of_all_penalties():
    """It does not try them all, so it is compared with one that does."""
    X, codes = blobs(400, 3, 3, seed=1, apart=0.5)
    rows = X.astype(np.float32)
    Y = np.eye(3, dtype=np.float32)[codes] - np.float32(1 / 3)
    squares = squared_distances(rows, rows)
    for weight in (1, 4):
        w = np.full(400, weight, dtype=np.float32)
        for gamma in (0.1, 1.0, 10.0):
            own = kernel.ridge(squares, Y, w, gamma)
            every = kernel.ridge(squares, Y, w, gamma, few=400)
            assert_allclose(own.scores, every.scores, atol=3e-3)


def test_a_kernel_matrix_that_rounding_spoils_is_no_solution():
    K = -np.eye(3, dtype=np.float32)
    Y = np.ones((3, 2), dtype=np.float32)
    _, away = kernel._solved(K, Y, penalty=0.1)
    assert np.isinf(away).all()


def test_neighbours_choose_the_scale_on_which_classes_separate(rng):
    X = rng.normal(size=(400, 6)).astype(np.float32)
    codes = (np.sin(3 * X[:, 0]) > 0).astype(int)
    # as measured, only the first feature has any extent
    spread = np.array([1.0, *[1e-3] * 5])
    seeing = held_out("neighbours", X, codes, spread=spread)
    assert seeing < 0.7 * held_out("neighbours", X, codes)


@pytest.mark.parametrize("seed", range(4))
def test_a_kernel_machine_finds_the_best_of_all_widths(monkeypatch, seed):
    """It does not try them all, so it is compared with a search that does."""
    X, codes = blobs(150, 2 + seed, 3, seed, apart=0.3 * 2**seed)
    stretched = X * np.float32(10.0) ** np.arange(2 + seed) / 3
    own = fitted("kernel", stretched.astype(np.float32), codes, seed=seed)

    def every(losses: Any, start: int) -> tuple[int, float]:
        found = [loss() for loss in losses]
        return int(np.argmin(found)), min(found)

    monkeypatch.setattr(kernel, "downhill", every)
    best = fitted("kernel", stretched.astype(np.float32), codes, seed=seed)
    assert own.gamma == best.gamma
    assert np.array_equal(own.spread, best.spread)


@pytest.mark.parametrize(("few_rows", "kinds"), [(1000, 2), (200, 1)])
def test_many_rows_get_one_kind_of_boosted_trees(few_rows, kinds, monkeypatch):
    import lightgbm

    kept, train = [], lightgbm.train
    monkeypatch.setattr(
        lightgbm, "train", lambda *a, **k: kept.append(train(*a, **k)) or kept[-1]
    )
    X, codes = blobs(300, 4, 3, apart=0.8)
    replace(recipe("trees"), few_rows=few_rows).fit(Task(X, codes, 3))  # type: ignore[call-arg]
    assert len(kept) == kinds


def test_forests_score_as_their_leaves_say():
    X, codes = blobs(300, 4, 3, apart=0.8)
    member: Any = fitted("forest", X, codes)
    leaves, dense = member.trees.leaves(X[:20]), member.shares.toarray() / 255
    slow = np.stack([dense[row].sum(axis=0) + member.priors for row in leaves])
    assert_allclose(
        np.exp(member.log_posteriors(X[:20])),
        slow / slow.sum(axis=1, keepdims=True),
        atol=1e-6,
    )


HOSTILE = {
    "linear": {
        "weight": np.full((3, 2), np.nan, np.float32),
        "bias": np.zeros(3, np.float32),
    },
    "kernel": {
        "landmarks": np.zeros((0, 3), np.float32),
        "gamma": np.nan,
        "calibration": np.full(3, np.inf),
    },
    "neighbours": {
        "spread": np.full(3, np.inf, np.float32),
        "codes": np.full(60, 9, np.uint16),
        "k": 10**9,
    },
    "forest": {
        "share_class": None,
        "priors": np.zeros(2, np.float32),
        "trees.sizes": np.zeros(3, np.uint16),
    },
    "trees": {
        "trees.feature": None,
        "trees.right": None,
        "values": np.zeros(1, np.float32),
        "trees.inner": np.zeros(1, np.uint8),
    },
    "network": {
        "history": "none",
        "hidden_layer_sizes": [10**9],
        "weight": np.zeros((1, 1), np.float16),
    },
    "priors": {"log_priors": np.array([np.nan, 0.0])},
    "additive": {
        "features.quantiles": np.array([[1] * 3, [0] * 3], np.float32),
        "features": {"type": "Inputs", "n_features": 3},
        "weight": np.zeros((3, 2), np.float32),
    },
    "gaussian": {
        "degrees": np.zeros(2),
        "factor": np.zeros((2, 2, 1, 1)),
        "mean": np.full((2, 3), np.inf),
    },
    "histograms": {
        "edges": np.zeros((3, 3), np.float32),
        "logs": np.zeros((3, 12, 3), np.float32),
    },
    "counts": {
        "weight": np.full((3, 2), np.inf, np.float32),
        "per_unit": np.zeros(2, np.float32),
    },
    "smooth": {
        "first": np.zeros((3, 0), np.float32),
        "second": np.zeros((32, 3), np.float32),
    },
}


def edited(tree: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """``tree`` with another value at a dotted place."""
    first, _, rest = place.partition(".")
    return {**tree, first: edited(tree[first], rest, value) if rest else value}


def at(tree: dict[str, Any], place: str) -> Any:
    for key in place.split("."):
        tree = tree[key]
    return tree


@pytest.mark.parametrize("name", HOSTILE)
def test_what_does_not_fit_is_refused(name):
    tree = fitted(name, *blobs(60, 3, 2)).export()
    for entry, bad in HOSTILE[name].items():
        if bad is None:  # indices far outside, of the right dtype and shape
            own = at(tree, entry)
            bad = np.full_like(own, np.iinfo(own.dtype).max)
        with pytest.raises(ValueError, match=r"."):
            recipe(name).restore(edited(tree, entry, bad), (3,), 2)


@pytest.mark.parametrize("step", [0, 5])
def test_a_tree_that_points_outside_of_itself_is_refused(step):
    with pytest.raises(ValueError, match="outside"):
        trees.Trees(
            feature=np.zeros(1, np.uint16),
            threshold=np.zeros(1, np.float32),
            cut=np.zeros(2, np.uint16),
            right=np.array([4, step], np.uint16),  # two would be right
            sizes=np.array([5], np.uint16),
            inner=np.packbits([1, 1, 0, 0, 0]),
            n_features=1,
        )


def test_a_classifier_of_scikit_learn_is_a_member_that_cannot_be_saved():
    X, codes = blobs(100, 3, 3)
    member = Foreign("bayes", GaussianNB()).fit(task(X, codes))
    assert_allclose(
        np.exp(member.log_posteriors(X)), member.fitted.predict_proba(X), atol=2e-3
    )
    with pytest.raises(ValueError, match="joblib"):
        member.export()


def embeddings(n: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes with one covariance, in a basis that mixes the features."""
    generator = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(k), generator.integers(0, k, n - k)])
    means = 0.3 * generator.normal(size=(k, d))
    rows = means[codes] + generator.normal(size=(n, d))
    mixed = rows @ (np.eye(d) + 0.6 * generator.normal(size=(d, d)) / np.sqrt(d))
    return mixed.astype(np.float32), codes


def test_a_discriminant_is_better_than_regression_on_embeddings():
    X, codes = embeddings(2500, 100, 20)
    fixed = held_out("linear", X, codes, 2000)
    assert held_out("discriminant", X, codes, 2000) < 0.8 * fixed


def bent(X: np.ndarray) -> np.ndarray:
    """Every column with heavy tails, one to one."""
    size = np.abs(X) ** 1.7
    return np.sign(X) * size


def test_heavy_tails_cost_a_discriminant_little():
    X, codes = embeddings(2500, 200, 20)
    straight = held_out("discriminant", X, codes, 2000)
    assert held_out("discriminant", bent(X), codes, 2000) < 1.1 * straight


def test_normal_scores_are_read_from_a_file():
    X, codes = embeddings(2500, 200, 20)
    X = bent(X)
    fit = fitted("discriminant", X, codes)
    assert isinstance(fit.features, discriminant.NormalScores)
    read = recipe("discriminant").restore(fit.export(), (200,), 20)
    assert_array_equal(fit.log_posteriors(X), read.log_posteriors(X))


def test_quantiles_that_fall_are_refused():
    with pytest.raises(ValueError, match="do not decrease"):
        discriminant.NormalScores(np.array([[0], [2], [1]], np.float32))


def test_a_tuned_penalty_is_better_than_a_fixed_one_on_embeddings():
    X, codes = embeddings(2500, 100, 20)
    fixed = held_out("linear", X, codes, 2000)
    assert held_out("linear-tuned", X, codes, 2000) < 0.95 * fixed


def test_a_discriminant_of_many_rows_is_that_of_scikit_learn():
    X, codes = embeddings(30_000, 20, 3)
    reference = LinearDiscriminantAnalysis().fit(X, codes)
    ours = np.exp(fitted("discriminant", X, codes).log_posteriors(X[:500]))
    assert_allclose(ours, reference.predict_proba(X[:500]), atol=0.03)


def test_a_tuned_penalty_is_for_many_weights():
    assert "linear-tuned" not in members_for(20_000, 50, 7)
    assert "linear-tuned" in members_for(6400, 256, 40)


def test_many_classes_of_many_features_get_the_members_for_embeddings():
    assert set(members_for(6400, 256, 40)) <= set(EMBEDDINGS)
    assert not set(members_for(1500, 64, 10)) <= set(EMBEDDINGS)


def test_boosted_trees_take_no_part_by_themselves_where_classes_times_features_are_many():
    assert "trees" in members_for(1500, 64, 10)
    assert not {"trees", "trees-plain"} & set(members_for(6400, 256, 40))


@pytest.mark.parametrize("name", TABLES)
def test_the_cost_grows_with_the_rows(name):
    member = recipe(name)
    assert 0 < member.cost(100, 10, 3) < member.cost(10_000, 10, 3)


# The pool


def test_the_pool_is_the_weighted_geometric_mean(rng):
    P, w = rng.dirichlet(np.ones(4), size=(3, 10)), np.array([0.5, 0.0, 0.8])
    slow = np.array([[np.prod(P[:, i, k] ** w) for k in range(4)] for i in range(10)])
    assert_allclose(
        pool(np.log(P), w), slow / slow.sum(axis=1, keepdims=True), rtol=1e-6
    )


@pytest.fixture
def flat_and_noise(rng):
    """(log posteriors of the truth's square root and of noise, codes)."""
    truth = rng.dirichlet(np.full(3, 0.5), size=4000)
    codes = draw_classes(truth, rng)
    noise = np.log(rng.dirichlet(np.ones(3), size=4000))
    flat = 0.5 * np.log(truth + 1e-6)
    flat -= logsumexp(flat, axis=1, keepdims=True)
    return np.stack([flat, noise]), codes


def test_weights_sharpen_the_true_member(flat_and_noise):
    weights = pool_weights(*flat_and_noise)
    assert weights[1] == 0.0
    assert 1.8 < weights[0] < 2.2


def test_rows_of_weight_zero_do_not_count_for_the_weights(flat_and_noise):
    logs, codes = flat_and_noise[0][:, :300], flat_and_noise[1][:300]
    half = np.arange(300) < 150
    some = pool_weights(logs[:, half], codes[half])
    assert_allclose(pool_weights(logs, codes, 2.0 * half), some, atol=0.35)


def test_weights_are_the_mode_under_their_prior():
    generator, rows = np.random.default_rng(6), np.arange(80)
    truth = generator.dirichlet(np.ones(3), size=80)
    codes = draw_classes(truth, generator)
    logs = np.log(truth) + 0.6 * generator.normal(size=(3, 80, 3))
    logs -= logsumexp(logs, axis=2, keepdims=True)
    w = generator.exponential(size=80)
    w *= 80 / w.sum()
    own = logs[:, rows, codes]
    # pseudo-BMA+
    u = np.random.default_rng(0).exponential(size=(100, 80)) * w
    total = 80 * u @ own.T / u.sum(axis=1, keepdims=True)
    prior = 0.5 / 3 + 0.5 * softmax(total, axis=1).mean(axis=0)
    assert_allclose(_prior_weights(own, w), prior, rtol=1e-9)

    def objective(a: np.ndarray) -> float:
        z = np.tensordot(a, logs, 1)
        fit = w @ (z[rows, codes] - logsumexp(z, axis=1))
        return float(((a - prior) ** 2).sum() / (2 * 0.4**2) - fit)

    mode = minimize(objective, prior, bounds=[(0, None)] * 3, tol=1e-12).x
    assert mode.min() > 0.1
    assert_allclose(pool_weights(logs, codes, 3 * w), mode, atol=2e-4)


def test_labels_without_signal_give_no_lower_brier_score_than_the_priors():
    """Members trained once per outer fold, weights from the other folds: the pool must not find
    what is not there."""
    names = ("priors", "linear", "quadratic", "kernel", "neighbours", "trees")
    shares = [0.5, 0.3, 0.2]
    excess = []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(400, 4)).astype(np.float32)
        codes = generator.choice(3, 400, p=shares)
        fold = generator.permutation(400) % 4
        logs, P = np.empty((len(names), 400, 3)), np.empty((400, 3))
        for here in fold == np.arange(4)[:, None]:
            rest = task(X[~here], codes[~here], seed=seed)
            members = [recipe(name).fit(rest) for name in names]
            logs[:, here] = [member.log_posteriors(X[here]) for member in members]
        for here in fold == np.arange(4)[:, None]:
            P[here] = pool(logs[:, here], pool_weights(logs[:, ~here], codes[~here]))
        lost, by_shares = (
            np.square(p - np.eye(3)[codes]).sum(1).mean() for p in (P, shares)
        )
        excess.append(lost - by_shares)
    # above the sampling error of the mean of the differences
    assert -0.003 < np.mean(excess) < 0.01


def test_a_convolution_knows_shapes_wherever_they_are():
    X, codes = bars(240)
    member = recipe("convolution").fit(Task(X[:180], codes[:180], 2, seed=1))
    assert log_loss(member, X[180:], codes[180:]) < 0.3


def test_images_have_members_of_their_own():
    flat = members_for(240, 21, 3)
    assert members_for(240, 21, 3, images=True) == (*flat, *ONLY_IMAGES)


def test_members_that_multiply_features_do_not_take_tens_of_thousands_of_them():
    slow = {"counts", "histograms", "gaussian", "kernel", "quadratic"}
    assert not slow & set(members_for(240, 60_000, 20))


def falling(**training: Any) -> Any:
    """A network whose rate falls over four epochs, as with many rows."""
    X, codes = blobs(400, 3, 3)
    many = replace(recipe("network"), stack_rows=100, many_epochs=4, many_batch=32)
    return many.fit(task(X, codes, training=training)), X, codes


def test_of_many_rows_the_rate_of_one_network_falls_once():
    fit, X, codes = falling(hidden_layer_sizes=(16,))
    assert len(fit.weight) == 1
    assert len(fit.history) == 4
    assert not fit.capped
    assert log_loss(fit, X, codes) < 0.5


def test_a_rate_that_the_user_sets_does_not_fall():
    fit, _, _ = falling(hidden_layer_sizes=(16,), max_epochs=6)
    assert len(fit.history) == 6


def test_trees_of_several_classes_grow_with_the_rows():
    boosting = recipe("trees")
    (few,) = boosting._kinds(24_000, 7)
    (many,) = boosting._kinds(48_000, 7)
    assert many.num_leaves == 2 * few.num_leaves
    assert many.max_depth == few.max_depth + 1
    rounds = [boosting._most_rounds(n, 7, 1) for n in (24_000, 48_000)]
    assert rounds == [285, 142]
    assert boosting._kinds(48_000, 2) == boosting.large_kinds
