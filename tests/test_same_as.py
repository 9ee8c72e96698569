"""What is done here for speed gives the numbers of the library that does the same."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import ExtraTreeClassifier

from collidescope.crossfit import pool_folds
from collidescope.folds import rows_without
from collidescope.learners import recipe
from collidescope.learners.base import Task, row_max, row_sums
from collidescope.learners.growing import MAX_DEPTH, Growth, LevelRows, seeds_of_trees
from collidescope.learners.kernel import PENALTIES, Basis, kernel, penalty_losses
from collidescope.sample import make_sample

SEED = 3


def rows(n=200, d=7, k=3):
    """Rows whose classes depend on two of the features, with uneven weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    logits = X[:, :2] @ rng.normal(size=(2, k))
    codes = (logits + rng.gumbel(size=(n, k))).argmax(axis=1)
    weights = rng.uniform(0.2, 2.0, n)
    return X, codes, weights / weights.mean()


@pytest.mark.parametrize("most_leaves", [None, 9])
def test_trees_are_those_of_extra_trees(most_leaves):
    X, codes, weights = rows()
    forest = ExtraTreesClassifier(
        5,
        max_depth=MAX_DEPTH,
        min_samples_leaf=2,
        max_leaf_nodes=most_leaves,
        random_state=SEED,
    )
    forest.fit(X, codes, sample_weight=weights)
    levels = LevelRows(X, codes, weights)
    for seed, theirs in zip(seeds_of_trees(5, SEED), forest.estimators_, strict=True):
        ours = levels.grown(Growth(2, most_leaves), seed)
        assert_array_equal(ours.threshold, theirs.tree_.threshold)
        assert_array_equal(ours.feature, theirs.tree_.feature)


def test_more_trees_begin_with_the_same_seeds():
    assert seeds_of_trees(50, SEED)[:4] == seeds_of_trees(4, SEED)


def test_a_row_has_the_shares_of_trees_that_did_not_see_it():
    X, codes, weights = rows()
    levels = LevelRows(X, codes, weights)
    (seed,) = seeds_of_trees(1, SEED)
    (_, drawn) = next(levels._bootstrapped([seed]))
    tree = ExtraTreeClassifier(
        max_depth=MAX_DEPTH, min_samples_leaf=4, random_state=seed
    )
    tree.fit(X, codes, sample_weight=drawn)
    expected = np.where((drawn == 0)[:, None], tree.predict_proba(X), 0.0)
    found = levels.left_out_shares(Growth(4), [seed])
    assert_array_equal(found, expected)


def test_rows_are_drawn_as_often_as_their_weights_say():
    X, codes, weights = rows()
    levels = LevelRows(X, codes, weights)
    counts = [drawn for _, drawn in levels._bootstrapped(range(400))]
    assert_allclose(np.mean(counts, axis=0), weights, atol=0.35)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_smooth_network_is_that_of_scikit_learn(k, weighted):
    X, codes, weights = rows(k=k)
    given = weights if weighted else None
    member = recipe("smooth")
    learned = member.fit(Task(X, codes, k, given, seed=SEED))
    network = MLPClassifier(
        (member.hidden,),
        activation="tanh",
        solver="lbfgs",
        alpha=member.penalty,
        max_iter=200,
        tol=1e-4,
        random_state=SEED,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit((X - learned.mean) * learned.scale, codes, given)
    expected = network.predict_proba((X - learned.mean) * learned.scale)
    P = np.exp(learned.log_posteriors(X))
    assert_allclose(P, expected, atol=1e-5)


@pytest.mark.parametrize("columns", [1, 2, 7, 8, 40])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_and_largest_numbers_of_rows_are_those_of_numpy(columns, dtype):
    values = np.random.default_rng(0).lognormal(size=(500, columns)).astype(dtype)
    assert_array_equal(row_sums(values)[:, 0], values.sum(axis=1))
    assert_array_equal(row_max(values)[:, 0], values.max(axis=1))


@pytest.mark.parametrize("classes", [2, 60])
def test_every_penalty_has_its_leave_one_out_loss(classes, rng):
    X = rng.normal(size=(70, 3)).astype(np.float32)
    Y = rng.normal(size=(70, classes)).astype(np.float32)
    values = kernel(X, X[:30], 0.5)
    basis = Basis.of(values, np.ones(70, np.float32))
    Z = values.astype(np.float64) @ basis.inverse_root
    for penalty, loss in zip(PENALTIES, penalty_losses(basis, Y), strict=True):
        hat = Z @ np.linalg.solve(Z.T @ Z + penalty * np.eye(30), Z.T)
        left_out = (Y - hat @ Y) / (1 - np.diag(hat))[:, None]
        assert loss == pytest.approx(np.square(left_out).mean(), rel=1e-3)


def test_rows_without_others_are_their_set_difference(rng):
    ours, *others = (rng.choice(50, 20, replace=False) for _ in range(3))
    expected = np.setdiff1d(ours, np.concatenate(others))
    assert_array_equal(rows_without(ours, *others), expected)


def test_weights_of_models_are_the_same_in_threads():
    X, codes, _ = rows()
    sample = make_sample(X, codes)
    tests = np.array_split(np.arange(200), 4)
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (5, 200)))
    scores = [logs[:, test] for test in tests]
    names = list("abcde")
    one, several = (pool_folds(sample, tests, scores, names, n) for n in (1, 4))
    assert one.fold_weights == several.fold_weights
    assert_array_equal(one.posteriors, several.posteriors)


@pytest.mark.parametrize("k", [2, 3])
def test_boosted_trees_score_as_lightgbm_does(k, monkeypatch):
    lightgbm = pytest.importorskip("lightgbm")
    boosters = []
    train = lightgbm.train

    def kept(*args, **options):
        boosters.append(train(*args, **options))
        return boosters[-1]

    monkeypatch.setattr(lightgbm, "train", kept)
    X, codes, _ = rows(k=k)
    learned = recipe("trees").fit(Task(X, codes, k))
    raw = np.mean([each.predict(X, raw_score=True) for each in boosters], axis=0)
    if k == 2:
        raw = np.column_stack([np.zeros(len(X)), raw])
    expected = softmax(raw, axis=1)
    P = np.exp(learned.log_posteriors(X))
    assert_allclose(P, expected, atol=2e-3)
