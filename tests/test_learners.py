"""The members of the pool: what each learns, what each writes, and how they are weighed."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import dirichlet_multinomial, multivariate_t
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB, GaussianNB, MultinomialNB

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
    softmax,
    trees,
)
from collidescope.learners.base import Fitted, Foreign, Task, squared_distances
from collidescope.learners.pool import _prior_weights, pool, pool_weights

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


def held_out(name: str, X: np.ndarray, codes: np.ndarray, n: int = 300) -> float:
    """Log loss on the rows after the first n, of a member that learned from those."""
    return log_loss(fitted(name, X[:n], codes[:n]), X[n:], codes[n:])


# What every member must do


@pytest.mark.parametrize("name", LEARN)
def test_every_member_learns_separated_classes(name: str) -> None:
    X, codes = blobs(600, 3, 3, apart=4.0)
    if name == "linear-axis":
        X[:, 1:] = 0
        # classes along one direction, the only thing this member can see
        X[:, 0] += 3 * codes
    X = np.rint(np.maximum(X, 0)) if name == "counts" else X
    member = fitted(
        name,
        X[:400],
        codes[:400],
        training={"max_epochs": 40, "hidden_layer_sizes": (16,)},
    )
    priors = fitted("priors", X[:400], codes[:400])
    assert log_loss(member, X[400:], codes[400:]) < 0.5 * log_loss(
        priors, X[400:], codes[400:]
    )


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(("n", "d", "k"), SHAPES.values(), ids=SHAPES)
def test_odd_shapes_give_finite_posteriors_that_a_file_brings_back(
    name: str, n: int, d: int, k: int
) -> None:
    X, codes = blobs(n, d, k)  # with many classes most have one or two rows
    X = np.column_stack([X, np.full(n, 3.0)]).astype(np.float32)  # a constant column
    member = fitted(name, X, codes)
    far = np.concatenate(
        [X[:5], np.full((2, d + 1), 20.0), np.full((1, d + 1), -20.0)]
    ).astype(np.float32)
    log_p = member.log_posteriors(far)
    assert log_p.shape == (8, k)
    assert np.isfinite(log_p).all()
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1, atol=1e-5)
    again = recipe(name).restore(copy.deepcopy(member.export()), (d + 1,), k)
    np.testing.assert_allclose(again.log_posteriors(far), log_p, atol=1e-5)


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_weight_zero_do_not_count_in_a_repeatable_fit(
    name: str,
) -> None:
    X, codes = blobs(300, 3, 3)
    wrong = np.where(np.arange(300) < 150, codes, (codes + 1) % 3)
    weight = np.where(np.arange(300) < 150, 2.0, 0.0)
    member, again = (
        fitted(name, X, wrong, sample_weight=weight, seed=5) for _ in range(2)
    )
    np.testing.assert_array_equal(member.log_posteriors(X), again.log_posteriors(X))
    if name in ("priors", "counts"):  # these features are no counts
        shares = np.bincount(codes[:150], minlength=3) / 150
        np.testing.assert_allclose(
            np.exp(member.log_posteriors(X[:1]))[0], shares, atol=0.01
        )
    else:
        poisoned = fitted(name, X, wrong)
        assert log_loss(member, X[150:], codes[150:]) < log_loss(
            poisoned, X[150:], codes[150:]
        )


@pytest.mark.parametrize("name", ["smooth", "smooth-small"])
def test_a_smooth_network_keeps_the_priors_where_one_class_has_all_rows(
    name: str,
) -> None:
    X, _ = blobs(60, 2, 2)
    own = Task(X, np.zeros(60, int), 2, training=QUICK_TRAINING)
    P = np.exp(recipe(name).fit(own).log_posteriors(X))
    np.testing.assert_allclose(P, np.tile(own.priors, (60, 1)), rtol=1e-6)


def test_inner_parts_are_stratified_without_groups() -> None:
    codes = np.repeat([0, 1, 2], [50, 30, 1])
    part = Task(None, codes, 3).inner_parts(5, seed=0)
    # the only row of a class is always trained on
    assert part[codes == 2].tolist() == [-1]
    for k in (0, 1):
        assert np.ptp(np.bincount(part[codes == k], minlength=5)) <= 1


def test_inner_parts_keep_groups_together() -> None:
    codes = np.repeat([0, 1, 2], [50, 30, 1])
    groups = np.arange(81) // 3
    part = Task(None, codes, 3, groups=groups).inner_parts(5, seed=0)
    assert all(len(set(part[groups == g])) == 1 for g in range(27))


def test_a_single_group_is_not_held_out() -> None:
    for name in ("trees", "network"):  # a single group cannot be held out
        X, codes = blobs(80, 3, 2)
        assert np.isfinite(
            fitted(name, X, codes, groups=np.zeros(80, dtype=int)).log_posteriors(X)
        ).all()


# What one member can do that others cannot


def test_softmax_regression_reaches_the_optimum_of_its_objective() -> None:
    X, codes = blobs(300, 3, 3, apart=0.7)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    reference = LogisticRegression(C=1 / 0.3, tol=1e-8, max_iter=5000).fit(X, codes)
    np.testing.assert_allclose(
        np.exp(fitted("linear", X, codes).log_posteriors(X)),
        reference.predict_proba(X),
        atol=5e-3,
    )


def test_products_see_what_lines_do_not() -> None:
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


def test_sparse_regression_leaves_out_what_says_nothing() -> None:
    X, codes = three_of_sixty()
    loss = held_out("linear-sparse", X, codes, 200)
    assert loss < 0.8 * held_out("linear", X, codes, 200)
    assert loss < 1.1 * held_out("linear", X[:, :3], codes, 200)
    last: Any = fitted("linear-sparse", X, codes)
    assert (last.scale[:3] > 0).all()
    assert (last.scale == 0).mean() > 0.7


def test_sparse_regression_changes_priors_as_its_equation_says() -> None:
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
    np.testing.assert_allclose(
        (rounds[1].scale / rounds[0].scale) ** 2, tau, rtol=1e-3, atol=1e-6
    )


def test_whitened_features_lead_to_the_same_optimum() -> None:
    X, codes = blobs(400, 5, 3, apart=0.7)
    X[:, 4] = X[:, 3] + 0.05 * X[:, 4]  # nearly the same feature twice
    whitened = (
        replace(recipe("linear"), whitened=True).fit(task(X, codes)).log_posteriors(X)
    )
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    reference = LogisticRegression(C=1 / 0.3, tol=1e-8, max_iter=5000).fit(
        scaled, codes
    )
    np.testing.assert_allclose(
        np.exp(whitened), reference.predict_proba(scaled), atol=5e-3
    )


def test_a_feature_of_two_values_has_no_steps() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    X[:, 1] = X[:, 1] > 0
    member: Any = fitted("additive", X, (X[:, 0] > 0).astype(int))
    assert member.features.stepped.tolist() == [0, 2]
    assert len(member.mean) == 3 + 2 * len(softmax.STEPS)


def test_naive_bayes_of_many_rows_is_that_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    codes, rates = (
        generator.choice(3, 9000, p=[0.6, 0.3, 0.1]),
        generator.uniform(0.2, 3, size=(3, 5)),
    )
    X = generator.poisson(rates[codes]).clip(max=3)
    standardised = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    for name, reference in (
        ("histograms", CategoricalNB()),
        ("counts", MultinomialNB()),
    ):
        ours = np.exp(
            fitted(name, standardised, codes).log_posteriors(standardised[:500])
        )
        np.testing.assert_allclose(
            ours, reference.fit(X, codes).predict_proba(X[:500]), atol=0.02
        )
    few = np.exp(
        fitted("histograms", standardised[:30], codes[:30]).log_posteriors(
            standardised[:500]
        )
    )
    assert few.max() < 0.99  # shares of a few rows stay near those of all classes
    least, below = (
        standardised.min(axis=0)[None],
        standardised.min(axis=0)[None] - 9,
    )  # no count is below zero
    np.testing.assert_array_equal(
        *(
            fitted("counts", standardised, codes).log_posteriors(x)
            for x in (least, below)
        )
    )
    noisy = standardised + generator.normal(size=X.shape).astype(np.float32)
    assert (
        np.ptp(fitted("counts", noisy, codes).log_posteriors(noisy), axis=0).max()
        < 1e-12
    )


def test_gaussian_classes_are_scored_by_a_t_density() -> None:
    generator = np.random.default_rng(0)
    codes = np.repeat([0, 1], [3000, 1000])
    X = generator.normal(size=(4000, 3)).astype(np.float32)
    X[codes == 1] = (
        X[codes == 1]
        @ np.array([[2, 0.5, 0], [0, 0.3, 0], [0.2, 0, 1]], dtype=np.float32)
        + 0.2
    )
    for name, blocks in (
        ("gaussian", [[0, 1, 2]]),
        ("gaussian-independent", [[0], [1], [2]]),
    ):
        fit: Any = fitted(name, X, codes).export()
        logs = np.log([0.75, 0.25]) + np.zeros((9, 2))
        for c in (0, 1):
            for F, own in zip(fit["factor"][c], blocks, strict=True):
                mean, shape = fit["mean"][c, own], np.linalg.inv(F @ F.T)
                x = X[codes == c][:, own] * fit["scale"][own]
                np.testing.assert_allclose(mean, x.mean(axis=0), atol=5e-3)
                np.testing.assert_allclose(
                    shape, np.cov(x.T).reshape(shape.shape), atol=0.02
                )
                logs[:, c] += multivariate_t(mean, shape, fit["degrees"][c]).logpdf(
                    (X[:9] * fit["scale"])[:, own]
                )
        expected = logs - np.logaddexp(*logs.T)[:, None]
        np.testing.assert_allclose(
            fitted(name, X, codes).log_posteriors(X[:9]), expected, atol=2e-3
        )
        some, twice = (
            slice(2990, 3010),
            np.repeat(np.arange(2990, 3010), 2),
        )  # of each class ten rows
        weighted = fitted(
            name, X[some], codes[some], sample_weight=np.full(20, 2.0)
        ).log_posteriors(X[:9])
        np.testing.assert_allclose(
            weighted,
            fitted(name, X[twice], codes[twice]).log_posteriors(X[:9]),
            atol=1e-6,
        )


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
def test_strengths_of_gaussian_classes_have_the_highest_marginal_likelihood(
    seed: int, B: int, p: int
) -> None:
    generator = np.random.default_rng(seed)
    wide, apart = 10.0 ** generator.uniform(-1, 1, 2)
    classes = [
        generator.normal(apart * c, wide**c, (n, B * p)) for c, n in ((0, 9), (1, 14))
    ]
    m, n = np.concatenate(classes).mean(axis=0), np.array([9.0, 14.0])
    blocks = [[rows.reshape(-1, B, p)[:, b] for b in range(B)] for rows in classes]
    A = np.array(
        [[(x - x.mean(axis=0)).T @ (x - x.mean(axis=0)) for x in own] for own in blocks]
    )
    means = np.array([rows.mean(axis=0) for rows in classes])
    recipe_of = gaussian.Gaussian("gaussian")
    moments = gaussian.ClassMoments(n, means, A, m, n.sum())
    prior = gaussian.likeliest_prior(moments, recipe_of.strengths, recipe_of.degrees)
    sigma, centre = prior.scatter / (prior.nu - p - 1), m.reshape(B, p)
    np.testing.assert_allclose(
        np.einsum("bii->bi", sigma), np.einsum("cbii->bi", A) / (n.sum() - 2) + 1e-4
    )
    grid = [
        (k, p + 1 + more) for k in recipe_of.strengths for more in recipe_of.degrees
    ]
    every = [(own[b], centre[b], sigma[b]) for own in blocks for b in range(B)]
    best = [
        sum(sequential(x, at, k, v, (v - p - 1) * own) for x, at, own in every)
        for k, v in grid
    ]
    assert grid[np.argmax(best)] == (prior.kappa, prior.nu)


def test_pseudo_counts_of_naive_bayes_have_the_highest_marginal_likelihood() -> None:
    generator = np.random.default_rng(0)
    for strength in (1.0, 30.0, 1000.0):
        shares = generator.dirichlet(strength * np.full(4, 0.25), (5, 3))
        N = np.array(
            [[generator.multinomial(60, own) for own in feature] for feature in shares]
        ).transpose(0, 2, 1)
        m = N.sum(axis=2) + 0.1
        m = m / m.sum(axis=1, keepdims=True)

        def likelihood(alpha: float, N: np.ndarray = N, m: np.ndarray = m) -> float:
            cells = ((d, k) for d in range(5) for k in range(3))
            return float(
                sum(
                    dirichlet_multinomial(alpha * m[d], 60).logpmf(N[d, :, k])
                    for d, k in cells
                )
            )

        alpha = max(independent.ALPHAS, key=likelihood)
        expected = np.log((N + alpha * m[:, :, None]) / (60 + alpha))
        np.testing.assert_allclose(
            independent.log_class_shares(N.astype(float)), expected, rtol=1e-5
        )


def test_features_are_standardised_by_weighted_moments_in_any_number_of_blocks() -> (
    None
):
    X, w = (
        np.random.default_rng(0).normal(3, 2, (90_000, 100)).astype(np.float32),
        1 + np.arange(90_000) % 7,
    )
    mean, scale = softmax.weighted_moments(softmax.Inputs(100), X, w)
    np.testing.assert_allclose(mean, np.average(X, axis=0, weights=w), rtol=1e-4)
    np.testing.assert_allclose(
        scale, np.average((X - mean) ** 2, axis=0, weights=w) ** -0.5, rtol=1e-4
    )


def test_members_learn_from_few_rows_what_they_are_made_for() -> None:
    generator = np.random.default_rng(0)
    X, codes = generator.normal(size=(2, 600, 10)), generator.integers(0, 2, 600)
    wide = X * np.where(codes[:, None] == 1, 1.5, 1.0)  # two variances, independent
    turned = np.where(
        codes[:, None] == 1, wide[0] @ np.linalg.qr(X[0, :10])[0] + X[0, :, ::-1], X[0]
    )
    assert held_out("gaussian", turned, codes) < held_out("quadratic", turned, codes)
    assert held_out("gaussian-independent", wide[0], codes) < held_out(
        "gaussian", wide[0], codes
    )
    x = X[0, :, :3]
    codes = (np.sin(2 * x[:, 0]) + np.abs(x[:, 1]) - 0.8 + 0.1 * x[:, 2] > 0).astype(
        int
    )
    assert held_out("additive", x, codes) < 0.3
    skewed, codes = np.exp(3 * x), (x.sum(axis=1) > 0).astype(int)
    assert held_out("ranked", skewed, codes) < 0.5 * held_out("linear", skewed, codes)


@pytest.mark.parametrize("few", [10, 300])
def test_kernel_leave_one_out_scores_are_those_of_refits_without_the_row(
    few: int,
) -> None:
    """Also where all but a few rows take a way of their own."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(25, 2)).astype(np.float32)
    Y = np.eye(2, dtype=np.float32)[generator.integers(0, 2, 25)] - 0.5
    squares = squared_distances(X, X)
    best = kernel.ridge(squares, Y, np.ones(25, dtype=np.float32), 0.5, few)
    coefficients, scores = best.coefficients, best.scores
    # The penalty that was chosen is the one whose ridge fit on all rows gives these coefficients.
    K = kernel.kernel(X, X, 0.5).astype(np.float64)
    errors = [
        np.abs(K @ (np.linalg.solve(K + p * np.eye(25), Y) - coefficients)).max()
        for p in kernel.PENALTIES
    ]
    penalty = kernel.PENALTIES[np.argmin(errors)]
    for i in range(25):
        rest = np.arange(25) != i
        alpha = np.linalg.solve(K[np.ix_(rest, rest)] + penalty * np.eye(24), Y[rest])
        np.testing.assert_allclose(scores[i], K[i, rest] @ alpha, atol=2e-3)
    even, uneven = (
        kernel.ridge(squares, Y, np.float32(4) + w, 0.5, few).coefficients
        for w in np.outer([0, 1e-4], X[:, 0]).astype("f4")
    )
    # equal weights have a way of their own
    np.testing.assert_allclose(K @ even, K @ uneven, atol=1e-3)


def test_a_kernel_machine_of_all_rows_has_the_best_of_all_penalties() -> None:
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
            np.testing.assert_allclose(own.scores, every.scores, atol=3e-3)


def test_a_kernel_matrix_that_rounding_spoils_is_no_solution() -> None:
    K = -np.eye(3, dtype=np.float32)
    Y = np.ones((3, 2), dtype=np.float32)
    _, away = kernel._solved(K, Y, penalty=0.1)
    assert np.isinf(away).all()


def test_neighbours_choose_the_scale_on_which_classes_separate() -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 6)).astype(np.float32)
    codes = (np.sin(3 * X[:, 0]) > 0).astype(int)
    # as measured, only the first feature has any extent
    spread = np.array([1.0, *[1e-3] * 5])
    blind = fitted("neighbours", X[:300], codes[:300])
    seeing = fitted("neighbours", X[:300], codes[:300], spread=spread)
    assert log_loss(seeing, X[300:], codes[300:]) < 0.7 * log_loss(
        blind, X[300:], codes[300:]
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_kernel_machine_finds_the_best_of_all_widths(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
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


def test_boosted_trees_score_as_lightgbm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    import lightgbm

    kept, train = [], lightgbm.train
    monkeypatch.setattr(
        lightgbm, "train", lambda *a, **k: kept.append(train(*a, **k)) or kept[-1]
    )
    X, codes = blobs(300, 4, 3, apart=0.8)
    ours = np.exp(fitted("trees", X, codes).log_posteriors(X))
    raw = np.mean([booster.predict(X, raw_score=True) for booster in kept], axis=0)
    reference = np.exp(raw - raw.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        ours, reference / reference.sum(axis=1, keepdims=True), atol=2e-3
    )  # half precision


@pytest.mark.parametrize(("few_rows", "kinds"), [(1000, 2), (200, 1)])
def test_many_rows_get_one_kind_of_boosted_trees(
    few_rows: int, kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lightgbm

    kept, train = [], lightgbm.train
    monkeypatch.setattr(
        lightgbm, "train", lambda *a, **k: kept.append(train(*a, **k)) or kept[-1]
    )
    X, codes = blobs(300, 4, 3, apart=0.8)
    replace(recipe("trees"), few_rows=few_rows).fit(Task(X, codes, 3))  # type: ignore[call-arg]
    assert len(kept) == kinds


def test_forests_score_as_their_leaves_say() -> None:
    X, codes = blobs(300, 4, 3, apart=0.8)
    member: Any = fitted("forest", X, codes)
    leaves, dense = member.trees.leaves(X[:20]), member.shares.toarray() / 255
    slow = np.stack([dense[row].sum(axis=0) + member.priors for row in leaves])
    np.testing.assert_allclose(
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
    """``tree`` with another value at a dotted place; without that entry where it is ABSENT."""
    first, _, rest = place.partition(".")
    if rest:
        return {**tree, first: edited(tree[first], rest, value)}
    changed = {**tree, first: value}
    if value is ABSENT:
        del changed[first]
    return changed


ABSENT = object()


def at(tree: dict[str, Any], place: str) -> Any:
    for key in place.split("."):
        tree = tree[key]
    return tree


@pytest.mark.parametrize("name", HOSTILE)
def test_what_does_not_fit_is_refused(name: str) -> None:
    tree = fitted(name, *blobs(60, 3, 2)).export()
    for entry, bad in HOSTILE[name].items():
        if bad is None:  # indices far outside, of the right dtype and shape
            own = at(tree, entry)
            bad = np.full_like(own, np.iinfo(own.dtype).max)
        for value in (bad, ABSENT):
            with pytest.raises(ValueError, match=r"."):
                recipe(name).restore(edited(tree, entry, value), (3,), 2)


@pytest.mark.parametrize("name", ["neighbours", "trees", "network"])
def test_half_precision_that_is_infinite_is_refused(name: str) -> None:
    tree = fitted(name, *blobs(60, 3, 2)).export()
    halves = [
        key
        for key, value in tree.items()
        if getattr(value, "dtype", None) == np.float16
    ]
    assert halves
    for key in halves:
        with pytest.raises(ValueError, match="finite"):
            recipe(name).restore(
                edited(tree, key, np.full_like(tree[key], np.inf)), (3,), 2
            )


def test_a_field_that_no_member_has_is_refused() -> None:
    tree = fitted("linear", *blobs(60, 3, 2)).export()
    with pytest.raises(ValueError, match="another"):
        recipe("linear").restore({**tree, "another": 1}, (3,), 2)


@pytest.mark.parametrize("step", [0, 5])
def test_a_tree_that_points_outside_of_itself_is_refused(step: int) -> None:
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


def test_a_classifier_of_scikit_learn_is_a_member_that_cannot_be_saved() -> None:
    X, codes = blobs(100, 3, 3)
    member = Foreign("bayes", GaussianNB()).fit(task(X, codes))
    np.testing.assert_allclose(
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


def test_a_discriminant_is_better_than_regression_on_embeddings() -> None:
    X, codes = embeddings(2500, 100, 20)
    fixed = held_out("linear", X, codes, 2000)
    assert held_out("discriminant", X, codes, 2000) < 0.8 * fixed


def bent(X: np.ndarray) -> np.ndarray:
    """Every column with heavy tails, one to one."""
    size = np.abs(X) ** 1.7
    return np.sign(X) * size


def test_heavy_tails_cost_a_discriminant_little() -> None:
    X, codes = embeddings(2500, 200, 20)
    straight = held_out("discriminant", X, codes, 2000)
    assert held_out("discriminant", bent(X), codes, 2000) < 1.1 * straight


def test_normal_scores_are_read_from_a_file() -> None:
    X, codes = embeddings(2500, 200, 20)
    X = bent(X)
    fit = fitted("discriminant", X, codes)
    assert isinstance(fit.features, discriminant.NormalScores)
    read = recipe("discriminant").restore(fit.export(), (200,), 20)
    np.testing.assert_array_equal(fit.log_posteriors(X), read.log_posteriors(X))


def test_quantiles_that_fall_are_refused() -> None:
    with pytest.raises(ValueError, match="do not decrease"):
        discriminant.NormalScores(np.array([[0], [2], [1]], np.float32))


def test_a_tuned_penalty_is_better_than_a_fixed_one_on_embeddings() -> None:
    X, codes = embeddings(2500, 100, 20)
    fixed = held_out("linear", X, codes, 2000)
    assert held_out("linear-tuned", X, codes, 2000) < 0.95 * fixed


def test_a_discriminant_of_many_rows_is_that_of_scikit_learn() -> None:
    X, codes = embeddings(30_000, 20, 3)
    reference = LinearDiscriminantAnalysis().fit(X, codes)
    ours = np.exp(fitted("discriminant", X, codes).log_posteriors(X[:500]))
    np.testing.assert_allclose(ours, reference.predict_proba(X[:500]), atol=0.03)


def test_a_tuned_penalty_is_for_many_weights() -> None:
    assert "linear-tuned" not in members_for(20_000, 50, 7)
    assert "linear-tuned" in members_for(6400, 256, 40)


def test_many_classes_of_many_features_get_the_members_for_embeddings() -> None:
    assert set(members_for(6400, 256, 40)) <= set(EMBEDDINGS)
    assert not set(members_for(1500, 64, 10)) <= set(EMBEDDINGS)


def test_boosted_trees_take_no_part_by_themselves_where_classes_times_features_are_many() -> (
    None
):
    assert "trees" in members_for(1500, 64, 10)
    assert not {"trees", "trees-plain"} & set(members_for(6400, 256, 40))


@pytest.mark.parametrize("name", TABLES)
def test_the_cost_grows_with_the_rows(name: str) -> None:
    member = recipe(name)
    assert 0 < member.cost(100, 10, 3) < member.cost(10_000, 10, 3)


# The pool


def test_the_pool_is_the_weighted_geometric_mean() -> None:
    generator = np.random.default_rng(0)
    P, w = generator.dirichlet(np.ones(4), size=(3, 10)), np.array([0.5, 0.0, 0.8])
    slow = np.array([[np.prod(P[:, i, k] ** w) for k in range(4)] for i in range(10)])
    np.testing.assert_allclose(
        pool(np.log(P), w), slow / slow.sum(axis=1, keepdims=True), rtol=1e-6
    )


def test_weights_sharpen_the_true_member() -> None:
    generator = np.random.default_rng(0)
    truth = generator.dirichlet(np.full(3, 0.5), size=4000)
    codes = np.array([generator.choice(3, p=p) for p in truth])
    noise = np.log(generator.dirichlet(np.ones(3), size=4000))
    flat = 0.5 * np.log(truth + 1e-6)
    flat -= np.log(np.exp(flat).sum(axis=1, keepdims=True))
    weights = pool_weights(np.stack([flat, noise]), codes)
    assert weights[1] == 0.0
    assert 1.8 < weights[0] < 2.2
    logs, half = np.stack([flat, noise])[:, :300], np.arange(300) < 150
    # rows of weight 0 do not count
    some = pool_weights(logs[:, half], codes[:300][half])
    np.testing.assert_allclose(
        pool_weights(logs, codes[:300], 2.0 * half), some, atol=0.35
    )


def test_weights_are_the_mode_under_their_prior() -> None:
    generator, rows = np.random.default_rng(6), np.arange(80)
    truth = generator.dirichlet(np.ones(3), size=80)
    codes = np.array([generator.choice(3, p=p) for p in truth])
    logs = np.log(truth) + 0.6 * generator.normal(size=(3, 80, 3))
    logs -= logsumexp(logs, axis=2, keepdims=True)
    w = generator.exponential(size=80)
    w *= 80 / w.sum()
    own, draws, chances = logs[:, rows, codes], np.random.default_rng(0), np.zeros(3)
    for _ in range(100):  # pseudo-BMA+
        u = draws.exponential(size=80) * w
        total = np.array(
            [sum(80 * u[i] / u.sum() * own[m, i] for i in rows) for m in range(3)]
        )
        chances += np.exp(total - logsumexp(total)) / 100
    prior = 0.5 / 3 + 0.5 * chances
    np.testing.assert_allclose(_prior_weights(own, w), prior, rtol=1e-9)

    def objective(a: np.ndarray) -> float:
        z = np.tensordot(a, logs, 1)
        return float(
            ((a - prior) ** 2).sum() / (2 * 0.4**2)
            - w @ (z[rows, codes] - logsumexp(z, axis=1))
        )

    mode = minimize(objective, prior, bounds=[(0, None)] * 3, tol=1e-12).x
    assert mode.min() > 0.1
    np.testing.assert_allclose(pool_weights(logs, codes, 3 * w), mode, atol=2e-4)


def test_labels_without_signal_give_no_lower_brier_score_than_the_priors() -> None:
    """Members trained once per outer fold, weights from the other folds: the pool must not find
    what is not there."""
    excess, names = (
        [],
        ("priors", "linear", "quadratic", "kernel", "neighbours", "trees"),
    )
    for seed in range(3):
        generator = np.random.default_rng(seed)
        X = generator.normal(size=(400, 4)).astype(np.float32)
        codes, fold = (
            generator.choice(3, 400, p=[0.5, 0.3, 0.2]),
            generator.permutation(400) % 4,
        )
        logs, P = np.empty((len(names), 400, 3)), np.empty((400, 3))
        for here in [fold == f for f in range(4)]:
            rest = task(X[~here], codes[~here], seed=seed)
            logs[:, here] = [
                recipe(name).fit(rest).log_posteriors(X[here]) for name in names
            ]
        for here in [fold == f for f in range(4)]:
            P[here] = pool(logs[:, here], pool_weights(logs[:, ~here], codes[~here]))
        onehot = np.eye(3)[codes]
        excess.append(
            np.square(P - onehot).sum(1).mean()
            - np.square([0.5, 0.3, 0.2] - onehot).sum(1).mean()
        )
    # above the sampling error of the mean of the differences
    assert -0.003 < np.mean(excess) < 0.01


def test_a_restored_convolution_knows_shapes_wherever_they_are() -> None:
    generator = np.random.default_rng(0)
    X = 0.3 * generator.normal(size=(240, 1, 8, 8)).astype(np.float32)
    codes = np.arange(240) % 2
    for image, code in zip(
        X, codes, strict=True
    ):  # a bar of four pixels, upright or lying, anywhere
        r, c = generator.integers(0, 5, 2)
        image[0, r : r + 4, c] += 2 * (code == 0)
        image[0, r, c : c + 4] += 2 * (code == 1)
    member = recipe("convolution").fit(Task(X[:180], codes[:180], 2, seed=1))
    assert log_loss(member, X[180:], codes[180:]) < 0.3
    assert members_for(240, 21, 3, images=True) == (
        *members_for(240, 21, 3),
        *ONLY_IMAGES,
    )
    assert not {"counts", "histograms", "gaussian", "kernel", "quadratic"} & set(
        members_for(240, 60_000, 20)
    )
    again = recipe("convolution").restore(copy.deepcopy(member.export()), (1, 8, 8), 2)
    np.testing.assert_allclose(
        again.log_posteriors(X), member.log_posteriors(X), atol=1e-5
    )
    tree = member.export()
    for bad in ({"width": 10**6}, {"shape": [1, 8, 9]}, {"arrays": {}}):
        with pytest.raises((ValueError, KeyError)):
            recipe("convolution").restore({**tree, **bad}, (1, 8, 8), 2)


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
