"""Bad input is refused in words: a ``ValueError`` that names the argument and says what came.

Every public function is tried once per argument, to see that it calls the check for it; what no
such case reaches of ``collidescope._checks`` is tried there. A case is a call and a pattern for the
message.
"""

import copy
import datetime
import json
import pickle
import re
from dataclasses import FrozenInstanceError
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from scipy.stats import multivariate_normal, norm, uniform
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GroupKFold, ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier

import collidescope as cs
from collidescope import _checks as check
from collidescope import applications, datasets
from collidescope.applications import annotators
from collidescope.applications.smoothing_loss import SmoothedCrossEntropy
from collidescope.cli._inputs import clean_labels
from collidescope.counting import input_groups, votes_needed
from collidescope.equations.bounds import pac_bound
from collidescope.equations.densities import (
    divergences_from_posteriors,
    posteriors_from_densities,
)
from collidescope.learners.base import Foreign, Task
from collidescope.matrix import Diagnostics
from studies import known

NAN, INF = float("nan"), float("inf")
# What an error message must not consist of: the complaint of a library that does not know our arguments.
FOREIGN = re.compile(
    r"must not contain infs|could not be broadcast|cannot reshape|truth value|unhashable|has no attribute|"
    r"not subscriptable|not iterable|unsupported operand|not supported between|object of type|ufunc|"
    r"dictionary update|LinAlgError|_checks|__\w+__"
)


def expect_refusal(call, pattern, error=ValueError):
    """``call`` raises ``error`` with a message of a few words that matches ``pattern``."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert re.search(pattern, message, re.DOTALL), (
        f"{message!r} does not match {pattern!r}"
    )
    assert len(message.split()) >= 5, f"{message!r} says too little"
    # What numpy or json said may follow in brackets or after a colon, but the sentence itself is ours.
    said = re.sub(r"\(.*\)|:.*", "", message, flags=re.DOTALL)
    assert not FOREIGN.search(said), (
        f"{message!r} speaks of what the caller cannot know"
    )


S = [[0.9, 0.1], [0.2, 0.8]]
SINGULAR = [[0.5, 0.5], [0.5, 0.5]]
G = np.array(S) @ np.array(S).T
HALF = [0.5, 0.5]
P = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]
LOGITS = [[2.5, -1.5]] * 4
Y = ["a", "b", "a", "b"]
AB = ["a", "b"]
X = np.arange(20.0).reshape(10, 2)
Y10 = np.array(AB * 5)
FRAME = pd.DataFrame(X, columns=["u", "v"])
DATES = pd.DataFrame({"x": 1.0, "day": pd.date_range("2020-01-01", periods=6)})
P10 = np.tile([[0.8, 0.2], [0.3, 0.7]], (5, 1))
P3 = [[0.6, 0.3, 0.1]] * 10
REPEATED = ["x", "x", "y", "y"]
VOTES = [[2, 1], [0, 2]]
NORMS = [norm(-1), norm(1)]
SAMPLER_ONLY = SimpleNamespace(rvs=lambda size, random_state: np.zeros(size))
DUMMY = DummyClassifier(strategy="prior")
FITTED = DummyClassifier().fit(P, Y)
MEANS = [[-1.0], [1.0]]
GAUSSIANS = datasets.GaussianProblem(MEANS)
ABCD = cs.CollisionMatrix(0.7 * np.eye(4) + 0.075, classes=list("abcd"))


def cm(**changes):
    return cs.CollisionMatrix(**{"matrix": S, "classes": AB} | changes)


def estimated(y=Y, **more):
    """A matrix with everything an estimate has: intervals, counts, covariance."""
    return cs.collision_matrix_from_posteriors(P, y, **more)


def abc():
    return cs.CollisionMatrix(0.7 * np.eye(3) + 0.1, classes=["a", "b", "c"])


def accumulator(priors=None):
    return cs.CollisionAccumulator(AB, priors)


def fit(y=Y, **settings):
    return cs.CollisionClassifier(**settings).fit(P, y)


def choose(classifier, y=Y10, **options):
    return applications.choose_smoothing(classifier, X, y, cm(), **options)


class Fixed(ClassifierMixin, BaseEstimator):
    """A fitted classifier that says what it is told to say."""

    def __init__(self, answer=None, classes=("a", "b")):
        self.answer, self.classes = answer, classes
        self.classes_ = np.array(classes)

    def predict_proba(self, X):
        return np.asarray(self.answer)

    def fit(self, X, y):
        return self


def edited(**changes):
    """The JSON of a matrix with entries changed; a value of ``...`` takes the entry out."""
    data = estimated().to_dict() | changes
    return json.dumps({name: value for name, value in data.items() if value is not ...})


def read(text):
    return cs.CollisionMatrix.from_json(text)


REFUSALS = [
    # arguments
    (lambda: check.check_finite([1j], "x"), "x must hold real numbers.*imaginary"),
    (lambda: check.check_finite(np.ma.masked_less([0.1, 0.9], 0.5), "x"), "x.*masked"),
    (lambda: check.check_finite("many", "x"), "x must hold real numbers, got str"),
    (lambda: check.check_finite([], "x"), "x is empty"),
    (
        lambda: check.check_square([[1, 2, 3], [4, 5, 6]], "G"),
        r"G must be square.*\(2, 3\)",
    ),
    (
        lambda: check.check_stochastic([[1.1, -0.1], [0, 1]], "S"),
        r"S must not be negative, got -0.1 at position \(0, 1\)",
    ),
    (
        lambda: check.check_posteriors([[0.9], [0.1]]),
        r"P must have one column per class.*\(2, 1\).*column_stack",
    ),
    (
        lambda: check.check_posteriors([[0.5, 0.25, 0.25]], n_classes=2),
        r"P must have one column per class \(2\), got 3",
    ),
    (
        lambda: check.check_posteriors([[0.9, 0.9]]),
        "every row of P must sum to 1, row 0 sums to 1.8",
    ),
    (
        lambda: check.check_weights([1], 2),
        r"sample_weight must have one entry per row \(2\), got 1",
    ),
    (lambda: check.check_labels([]), "y is empty"),
    (lambda: check.check_labels([["a"], ["a", "b"]]), "y must be a flat list"),
    (lambda: check.encode_labels([{"a"}], np.array(AB)), "y must hold labels.*set"),
    (lambda: check.check_classes([["a"], ["b"]]), "classes must be a flat list"),
    (lambda: check.check_classes([NAN, 1.0]), "classes must be names.*nan"),
    (
        lambda: check.check_classes(np.array(["2020-01-01", "NaT"], "M8[D]")),
        "classes must be names.*NaT",
    ),
    (lambda: check.check_count(True, "n"), "n.*True"),
    (
        lambda: check.check_between(0, 0, INF, "budget"),
        "budget must be a number above 0, got 0",
    ),
    # collision matrix
    (
        lambda: cm(matrix=[[0.9, 0.2], [0.2, 0.8]]),
        "every row of matrix must sum to 1, row 0 sums to 1.1",
    ),
    (lambda: cm(priors=[30, 30]), "priors must sum to 1, got 60.*counts"),
    (lambda: cm(classes=["a", "a"]), "classes must be unique, 'a' occurs twice"),
    (lambda: cm(stderr=np.eye(3)), r"stderr.*\(3, 3\)"),
    (lambda: cm(counts=[1, 2, 3]), r"counts.*\(3,\)"),
    (lambda: cm(covariance=np.eye(2)), r"covariance.*\(2, 2\)"),
    (lambda: cm(method="magic"), "method must be one of .*'magic'"),
    (lambda: estimated().interval(95), "level.*95"),
    (lambda: cm().top_collisions(-1), "n .*-1"),
    (lambda: cm().top_collisions(level="95%"), "level.*95%"),
    (lambda: abc().top_k(1.5), "k .*1.5"),
    (lambda: cm().precision([30, 30]), "population_priors.*60"),
    (lambda: cm().precision("empirical"), "population_priors.*counts"),
    (
        lambda: cm(counts=[3, 0]).precision("empirical"),
        "population_priors must be positive, got 0 for class number 1",
    ),
    (lambda: abc().merge([["a", "z"]]), "groups.*'z'.*'a'"),
    (lambda: abc().merge([["a", "b"], ["b", "c"]]), "groups.*overlap.*'b'"),
    (lambda: abc().merge([["a", "b"], []]), "groups.*empty.*1"),
    (
        lambda: abc().merge("ab"),
        "groups must be a list of lists of class names, got 'ab'",
    ),
    (
        lambda: abc().merge([["a", "b"]], names="ab"),
        "names must be a list with one name per group, got 'ab'",
    ),
    (
        lambda: abc().merge([["a", "b"]], names=["x", "y"]),
        r"names must have one entry per group \(1\), got 2",
    ),
    (lambda: abc().merge([["a", ["b"]]]), r"groups names the class \['b'\]"),
    (lambda: abc().merge([["a", "b", "c"]]), "merges every class into one"),
    (lambda: abc().merge([["a"], ["b"]], names=["x", "x"]), "'x' occurs twice"),
    (lambda: abc().pber_interval(2), "level"),
    (lambda: abc().bayes_error_bounds(0.95), "level needs an estimated standard error"),
    (
        lambda: abc().precision("uniform"),
        "population_priors must be one of 'empirical'",
    ),
    (lambda: cm(counts=[-1, 2]), "counts must not be negative"),
    (lambda: cm(counts=[1e300, 1]), "counts must hold numbers up to"),
    *(
        (
            lambda data=data: cs.CollisionMatrix.from_dict(data),
            "not a collision matrix.*to_dict",
        )
        for data in ([("format", "collidescope.matrix")], "text", None)
    ),
    (lambda: cs.CollisionMatrix.restore(3), "damaged: check .*matrix"),
    (
        lambda: cs.CollisionMatrix.restore(
            abc().export() | {"diagnostics": {"a": [1]}}
        ),
        "damaged: check diagnostics",
    ),
    # recovery
    (
        lambda: cs.recover([[1, NAN], [0, 1]]),
        "G must be finite, got nan at position .0, 1. .1 such",
    ),
    (lambda: cs.recover(G, [30, 30]), "priors.*60"),
    (lambda: cs.recover(G, method="cholesky"), "method.*'cholesky'"),
    (lambda: cs.recover(G, penalty=0), "penalty.*0"),
    (
        lambda: cs.recover(G, max_iter=10.5),
        "max_iter must be a whole number of at least 1, got 10.5",
    ),
    (lambda: cs.recover(G).to_collision_matrix(["a"]), "classes.*1"),
    (lambda: cs.solve_posteriors(HALF, [[0.9, 0.2], [0.2, 0.8]]), "S.*1.1"),
    (lambda: cs.solve_posteriors([[0.2, 0.3, 0.5]], S), r"q.*\(1, 3\)"),
    (
        lambda: cs.solve_posteriors([[[0.5, 0.5]]], S),
        r"q must be 1-dimensional or 2-dimensional.*\(1, 1, 2\)",
    ),
    (lambda: cs.solve_posteriors(HALF, S, priors=[30, 30]), "priors.*60"),
    (lambda: cs.solve_posteriors(HALF, S, "nnls"), "solver.*'nnls'"),
    (
        lambda: cs.solve_posteriors(HALF, S, ridge=-1),
        "ridge must be a number of at least 0, got -1",
    ),
    (lambda: cs.solve_posteriors(HALF, SINGULAR, "inverse"), "S is singular.*simplex"),
    (lambda: cs.shift_priors(LOGITS, HALF, HALF), "P.*logits"),
    (lambda: cs.shift_priors(P, [30, 30], HALF), "old.*60"),
    (lambda: cs.shift_priors(P, HALF, [30, 30]), "new.*60"),
    (lambda: cs.posterior_error_bound(np.eye(3), S, HALF, HALF), r"S_hat.*\(3, 3\)"),
    (
        lambda: cs.posterior_error_bound(S, [[0.9, 0.2], [0.2, 0.8]], HALF, HALF),
        "S .*1.1",
    ),
    (lambda: cs.posterior_error_bound(S, S, HALF, [0, 0]), "q .*zeros"),
    # densities
    (lambda: cs.collision_divergence("normal", norm(0)), "f1.*str"),
    (lambda: cs.collision_divergence(norm(0), SAMPLER_ONLY), "f2.*logpdf"),
    (
        lambda: cs.collision_divergence(norm(0), multivariate_normal([0, 0])),
        "f1 and f2",
    ),
    (
        lambda: divergences_from_posteriors([0.5, 1.5]),
        r"p must be between 0 and 1, got 0\.5 to 1\.5",
    ),
    (lambda: posteriors_from_densities([], NORMS), "at least one input"),
    (
        lambda: posteriors_from_densities([0.5, 9], [uniform(0, 1), uniform(0, 2)]),
        r"input \(row 1\) where every density is zero",
    ),
    (lambda: pac_bound(16, 4, 2), "more than K² = 16 rows"),
    (lambda: pac_bound(100, 1, 2), "at least 2 classes"),
    (lambda: pac_bound(100, 4, NAN), "d must be positive and finite"),
    (
        lambda: pac_bound(100, 4, 2, delta=1.0),
        "delta must be a number between 0 and 1, got 1",
    ),
    (lambda: cs.collision_matrix_from_densities([norm(0)]), "densities.*at least 2.*1"),
    (
        lambda: cs.collision_matrix_from_densities([norm(0), SAMPLER_ONLY]),
        "densities.*logpdf.*number 1",
    ),
    (lambda: cs.collision_matrix_from_densities(NORMS, [30, 30]), "priors.*60"),
    (lambda: cs.collision_matrix_from_densities(NORMS, n_samples=1), "n_samples.*1"),
    (
        lambda: cs.collision_matrix_from_densities(NORMS, random_state="seed"),
        "random_state.*seed",
    ),
    # accumulator
    (lambda: cs.CollisionAccumulator(["a", "a"]), "classes.*'a'"),
    (lambda: accumulator("uniform"), "priors must be an array.*'uniform'"),
    (lambda: accumulator().update(LOGITS, Y), "P.*logits"),
    (
        lambda: cs.CollisionAccumulator(range(401), np.full(401, 1 / 401)),
        "priors with 401 classes.*sample_weight",
    ),
    (lambda: accumulator().update(P, Y, [1, 1, 1, -1]), "sample_weight.*-1"),
    (
        lambda: accumulator().update(P, Y, [1, 1, 1, 1e-101]),
        "sample_weight must be 0 or between 1e-100 and 1e",
    ),
    (
        lambda: accumulator().update(P, Y, [1, 1, 1, 1.1e100]),
        "sample_weight must be 0 or between 1e-100 and 1e",
    ),
    (lambda: accumulator().update(P).update(P, Y), "y .*every update or in none"),
    (lambda: accumulator().result(), "empty.*update"),
    (lambda: accumulator().update(P, ["a"] * 4).result(), r"classes \['b'\]"),
    (
        lambda: accumulator().update(P, Y).merge(3),
        "other must be a CollisionAccumulator, got int",
    ),
    (
        lambda: accumulator().merge(cs.CollisionAccumulator(["b", "a"])),
        "other.*'b', 'a'",
    ),
    (lambda: accumulator(HALF).merge(accumulator([0.6, 0.4])), "other.*priors.*0.6"),
    (lambda: accumulator().update(P, Y).merge(accumulator().update(P)), "other.*label"),
    # posteriors
    (
        lambda: cs.collision_matrix_from_posteriors(LOGITS, Y),
        r"P must hold probabilities, got -1.5 \(logits",
    ),
    (lambda: cs.collision_matrix_from_posteriors(P, Y[:3]), "P and y.*4 and 3"),
    (
        lambda: cs.collision_matrix_from_posteriors(P, [None, "b", "a", "b"]),
        r"y has 1 missing value \(first at row 0\)",
    ),
    (
        lambda: cs.collision_matrix_from_posteriors(
            P, ["z", "b", "a", "b"], classes=AB
        ),
        r"y .*'z', .*not in classes \('a', 'b'\)",
    ),
    (
        lambda: cs.collision_matrix_from_posteriors(P, classes=["a", "a"]),
        "classes.*'a'",
    ),
    (lambda: cs.collision_matrix_from_posteriors(P, Y, priors=[30, 30]), "priors.*60"),
    (lambda: cs.collision_matrix_from_posteriors(P, priors="uniform"), "priors.*y"),
    (
        lambda: cs.collision_matrix_from_posteriors(P, Y, sample_weight=[1, 1, 1, -1]),
        "sample_weight must not be negative, got -1",
    ),
    (
        lambda: cs.collision_matrix_from_posteriors(P, Y, sample_weight=[1, 0, 1, 0]),
        r"classes \['b'\]",
    ),
    (
        lambda: cs.collision_matrix_from_posteriors([[0.5, 0.3, 0.2]] * 4, Y),
        "P has 3 columns and y has 2 .*labels: pass classes",
    ),
    (
        lambda: cs.collision_matrix_from_posteriors(
            pd.DataFrame([HALF] * 4, columns=["a", "a"]), Y
        ),
        r"P has columns \['a', 'a'\]",
    ),
    (
        lambda: cs.collision_matrix_from_posteriors([0.1, 1.8], AB),
        r"P has one dimension.*second class, got 1\.8",
    ),
    (
        lambda: estimated(groups=[1, 2, 3]),
        r"groups must have one entry per row \(4\), got 3",
    ),
    (lambda: estimated(groups=["a"] * 4), "groups must name at least 2 groups"),
    (lambda: estimated(groups=[1, None, 2, 3]), "groups has 1 missing"),
    (lambda: estimated(votes=np.ones((4, 2))), "votes must be given without y"),
    (
        lambda: estimated(None, votes=np.ones((4, 2)), priors="uniform"),
        "votes must be given.*priors='empirical'",
    ),
    (
        lambda: estimated(None, votes=np.ones((4, 3))),
        r"votes must have the shape of P \(4, 2\), got \(4, 3\)",
    ),
    (
        lambda: estimated(None, votes=[[1, 0], [0, 0], [1, 1], [0, 2]]),
        "at least one vote per row, row 1 has none",
    ),
    (
        lambda: estimated(None, votes=[[1, 0], [0, 1], [1, 1], [0, -2]]),
        "votes must not be negative",
    ),
    (lambda: estimated(None, votes=[[1, 0]] * 4), "classes .1. have no rows"),
    (
        lambda: estimated(priors="even"),
        "priors must be one of 'empirical', 'uniform', got 'even'",
    ),
    (
        lambda: estimated(classes=["a", "b", "c"]),
        "classes must name each of the 2 classes once, got 3",
    ),
    # counts
    (lambda: input_groups(np.empty((0, 1))), r"X is empty \(shape \(0, 1\)\)"),
    (lambda: cs.count_collisions(REPEATED, [None, "b", "a", "b"]), "y has 1 missing"),
    (
        lambda: cs.count_collisions(REPEATED[:3], Y),
        "X and y must have the same number of rows, got 3 and 4",
    ),
    (lambda: cs.count_collisions(csr_array(np.eye(4)), Y), "X.*sparse.*toarray"),
    (
        lambda: cs.count_collisions(pd.DataFrame({"tags": [{"a"}, {"b"}] * 2}), Y),
        "'tags'",
    ),
    (
        lambda: cs.count_collisions([1, 2, 3, 4], Y),
        "X.*no input that occurs twice.*second label",
    ),
    (
        lambda: cs.count_collisions(["x", "x", "z", "x"], ["a", "b", "c", "a"]),
        r"y .*\['c'\].*never",
    ),
    (
        lambda: cs.collision_matrix_from_votes([[0.5, 0.5], [0, 2]]),
        "votes must be whole numbers, got 0.5.*shares",
    ),
    (lambda: cs.collision_matrix_from_votes([3, 1]), r"votes must be a table .*\(2,\)"),
    (
        lambda: cs.collision_matrix_from_votes([[1, 0], [0, 1]]),
        "no item with two votes.*second label",
    ),
    (
        lambda: cs.collision_matrix_from_votes([[2, 1, 0], [0, 2, 0]]),
        r"votes has classes \[2\] that never occur",
    ),
    (
        lambda: cs.collision_matrix_from_votes(pd.DataFrame(VOTES, index=["x", "x"])),
        "item 'x' in two rows.*groupby",
    ),
    (
        lambda: cs.collision_matrix_from_votes(pd.DataFrame(VOTES), ["a", 0]),
        "a column 1 that is not in classes",
    ),
    (
        lambda: cs.collision_matrix_from_votes(pd.DataFrame(VOTES), [0, 1, 2]),
        "no column for the class 2",
    ),
    (lambda: votes_needed(cm()), "cm must come from votes"),
    (
        lambda: votes_needed(cs.collision_matrix_from_votes(VOTES), 2),
        "half_width must be a number between 0 and 1",
    ),
    (
        lambda: votes_needed(cs.collision_matrix_from_votes(VOTES), level=1.5),
        "level must be a number between 0 and 1",
    ),
    # annotators
    (
        lambda: annotators.agreement([[2, 0], [1, 0]]),
        "fewer than two items with two votes",
    ),
    (lambda: annotators.agreement([[2, 0], [3, 0]]), "all for one class"),
    (
        lambda: annotators.compare_annotators([1, 1], AB, ["x", "x"]),
        "annotators holds a single",
    ),
    (
        lambda: annotators.compare_annotators(
            [1, 1, 2], ["a", "b", "a"], ["x", "x", "y"]
        ),
        "'x' twice on one item.*row 1",
    ),
    (
        lambda: annotators.compare(cm(), cs.collision_matrix_from_votes(VOTES)),
        "estimated has no standard errors",
    ),
    # estimate collisions
    (lambda: cs.estimate_collisions(DUMMY, X, Y10[:9]), "X and y.*10 and 9"),
    (lambda: cs.estimate_collisions(DUMMY, X, Y10, cv="kfold"), "cv.*'kfold'"),
    (
        lambda: cs.estimate_collisions(
            DUMMY, X, Y10, cv=ShuffleSplit(2, random_state=0)
        ),
        "cv must test every one of the 10 rows",
    ),
    (
        lambda: cs.estimate_collisions(DUMMY, X, Y10, cv=[(range(-10, 0), range(10))]),
        "fold 0 has the row -10, .*: write 0",
    ),
    (
        lambda: cs.estimate_collisions(DUMMY, X, Y10, random_state="seed"),
        "random_state.*seed",
    ),
    (
        lambda: cs.estimate_collisions(RidgeClassifier(), X, Y10),
        "classifier must have predict_proba, RidgeClassifier does not",
    ),
    (
        lambda: cs.estimate_collisions(
            LogisticRegression(), np.where(X == 3, NAN, X), Y10
        ),
        "X.*NaN",
    ),
    (
        lambda: cs.estimate_collisions(LogisticRegression(), X, Y10, cv="prefit"),
        "classifier.*not fitted",
    ),
    (
        lambda: cs.estimate_collisions(Fixed(P10, ("a", "c")), X, Y10, cv="prefit"),
        "y .*'b'.*classifier.*'c'",
    ),
    (
        lambda: cs.estimate_collisions(
            Fixed(np.tile([2.5, -1.5], (10, 1))), X, Y10, cv="prefit"
        ),
        "predict_proba.*-1.5",
    ),
    # fit
    (lambda: fit(y=Y[:3]), "samples.*4, 3"),
    (lambda: fit(y=np.array([[1, 0]] * 4)), "no vote for"),
    (lambda: fit(budget=0), "budget must be"),
    (lambda: fit(random_state="seed"), "random_state must be .* got 'seed'"),
    (
        lambda: fit(members="nonsense"),
        "members must be .*or a list of models, got 'nonsense': for one model alone",
    ),
    (lambda: cs.Pairwise(estimate="nonsense"), "estimate must be"),
    (lambda: fit(rare="nonsense"), "rare must be one of"),
    (lambda: fit(limit="yes"), "limit must be True or False, got 'yes'"),
    (lambda: fit(cv=1), "cv must be a whole number of at least 2, got 1"),
    (lambda: fit(cv="prefit"), "cv must be a whole number"),
    (lambda: fit(cv=GroupKFold(2)), "cv must be a number of folds.*groups"),
    (lambda: fit(cv=[]), "cv must have at least 2 folds, got none"),
    (
        lambda: fit(cv=[([0, 1, 2, 3], [0, 1]), ([0, 1], [2, 3])]),
        "cv trains fold 0 on row 0, which it holds out",
    ),
    (
        lambda: fit(cv=[([-4, -3, 2, 3], [0, 1]), ([0, 1], [2, 3])]),
        "fold 0 has the row -4, rows are numbered from 0 to 3: write 0",
    ),
    (
        lambda: fit(n_jobs=0),
        "n_jobs must be None .one process., a number of processes, or -1 for all cores, got 0",
    ),
    (lambda: fit(n_jobs=1.5), "n_jobs must be None .*got 1.5"),
    (
        lambda: fit(random_state="x"),
        "random_state must be None, a whole number .*got 'x'",
    ),
    (
        lambda: fit(random_state=-1),
        "random_state must be None, a whole number .*got -1",
    ),
    (
        lambda: fit(members=None),
        "members must be 'auto', 'quick' or a list of models, got None",
    ),
    (
        lambda: fit(cv=[([0, 2], [1, 3]), ([1, 3], [0, 2])]),
        "cv leaves class 'b' out of .* fold 0",
    ),
    (
        lambda: cs.Pairwise(n_references=1),
        "n_references must be a whole number of at least 2, got 1",
    ),
    (lambda: fit(training=5), "training must be a mapping"),
    (
        lambda: fit(training={"epochs": 3}),
        "training has no setting 'epochs': it knows hidden_layer_sizes",
    ),
    (
        lambda: fit(device="nonsense", members=["network"], cv=2),
        "device 'nonsense' cannot be used here",
    ),
    (
        lambda: fit(priors=[0.5, 0.3, 0.2]),
        r"priors must have one entry per class \(2\), got 3",
    ),
    (
        lambda: cs.CollisionClassifier().fit(P, Y, groups=[1, 2]),
        "groups must have one entry per row",
    ),
    (
        lambda: Foreign("knn", KNeighborsClassifier()).fit(
            Task(X, Y10 == "b", 2, sample_weight=np.ones(10))
        ),
        "sample_weight",
    ),
    (lambda: fit(cv=2, members=["linear", "linear"]), "none twice"),
    (lambda: fit(cv=2, members=[]), "at least one"),
    (lambda: fit(cv=2, members=["nonsense"]), "members must be names"),
    (lambda: fit(cv=2, members=[("mine", RidgeClassifier())]), "fit and predict_proba"),
    (lambda: fit(cv=2, members=["convolution"]), "needs images"),
    (
        lambda: cs.CollisionClassifier().fit(DATES, [0, 1] * 3),
        "X must hold numbers: .*use TableClassifier",
    ),
    # tables
    (
        lambda: clean_labels(pd.Series([f"name {i}" for i in range(100)])),
        "100 different values in 100 rows.*right column",
    ),
    (lambda: clean_labels(pd.Series(["a"] * 5)), "single value"),
    (lambda: clean_labels(pd.Series([None] * 5)), "no values"),
    (lambda: cs.TableClassifier().fit(X, Y10), "X.*DataFrame.*ndarray"),
    (
        lambda: cs.TableClassifier(drop="u").fit(FRAME, Y10),
        "drop.*list of columns.*'u'",
    ),
    (
        lambda: cs.TableClassifier(drop=["U"]).fit(FRAME, Y10),
        "lacks a column.*'U'.*'u'",
    ),
    (
        lambda: cs.TableClassifier(drop=["u", "v"]).fit(FRAME, Y10),
        "X has no column.*as asked",
    ),
    (
        lambda: cs.TableClassifier().fit(pd.Series(["a", "b"], dtype="str"), [0, 1]),
        "X must be a DataFrame .* got Series",
    ),
    # consolidate
    (lambda: cs.consolidate(S), "cm.*CollisionMatrix"),
    (lambda: cs.consolidate(abc(), 4), "n_groups.*4"),
    (lambda: cs.consolidate(abc(), 2, max_pber=0.1), "max_pber"),
    (lambda: cs.consolidate(abc(), 2, must_merge=[["a", "z"]]), "must_merge.*'z'"),
    (lambda: cs.consolidate(ABCD, max_pber=1.5), "max_pber.*1.5.*percentage"),
    (
        lambda: cs.consolidate(ABCD, max_pber=0.001),
        "max_pber=0.001 is out of reach.*2 groups still have 0",
    ),
    (
        lambda: cs.consolidate(ABCD, must_merge=[list("abc")], max_group_size=2),
        "must_merge joins 3 .*max_group_size allows 2",
    ),
    (lambda: cs.consolidate(ABCD, balance=2), "balance must be between 0.*got 2"),
    (
        lambda: cs.consolidate(ABCD, must_merge="ab"),
        "must_merge must be a list of lists of class names, got 'ab'",
    ),
    (
        lambda: cs.consolidate(ABCD, must_merge=[("a", "b"), ("b", "c"), ("d", "a")]),
        "must_merge joins every class into one",
    ),
    (
        lambda: cs.consolidate(
            ABCD, must_merge=[("a", "b"), ("b", "c")], cannot_merge=[("a", "c")]
        ),
        "must_merge joins 'a' and 'c'",
    ),
    (
        lambda: cs.consolidate(ABCD, 3, cannot_merge=[list("abcd")]),
        "n_groups must be from 4 to 4 here.*keep 4 groups apart",
    ),
    (
        lambda: cs.consolidate(ABCD, 3, names=["x"]),
        r"names must have one entry per group \(3\), got 1",
    ),
    # training
    (lambda: cs.smooth_labels(Y, cm(), strength=1.5), "strength.*1.5"),
    (lambda: cs.smooth_labels(["a", "z"], cm()), "'z'"),
    (lambda: cs.AdaptiveSampler(S, Y), "cm.*CollisionMatrix"),
    (lambda: cs.AdaptiveSampler(cm(), Y).update(Y, Y[:2]), "4.*2"),
    (
        lambda: applications.smoothing_matrix(S),
        "cm must be a CollisionMatrix, got list",
    ),
    (
        lambda: SmoothedCrossEntropy(ABCD)(torch.zeros(1, 4), torch.tensor([0.0])),
        "labels must be.*float32",
    ),
    (
        lambda: SmoothedCrossEntropy(ABCD, reduction="max"),
        "reduction must be one of 'mean', 'sum', 'none'",
    ),
    (
        lambda: SmoothedCrossEntropy(ABCD)(torch.zeros(2, 3), torch.tensor([0, 1])),
        r"logits.*\(B, 4.*\(2, 3\)",
    ),
    (
        lambda: SmoothedCrossEntropy(ABCD)(torch.zeros(1, 4), torch.tensor([7])),
        "labels.*from 0 to 3, got 7 to 7",
    ),
    (
        lambda: choose(LogisticRegression),
        "classifier must be.*write LogisticRegression",
    ),
    (
        lambda: choose(KNeighborsClassifier()),
        "sample_weight.*KNeighborsClassifier does not",
    ),
    (lambda: choose(LogisticRegression(), ["a"] * 10), "y holds a single class .*'a'"),
    (
        lambda: choose(LogisticRegression(), strengths=[0, 2]),
        "strengths must be a number from 0.*2",
    ),
    (
        lambda: cs.AdaptiveSampler(cm(), Y, inherent=np.eye(3)),
        r"inherent must be 2×2.*\(3, 3\)",
    ),
    (lambda: cs.active_learning_score([0.5, 0.5]), r"P must be.*\(2,\)"),
    (lambda: cs.active_learning_score([[[0.5, 0.5]]]), "P must hold at least 2 models"),
    (
        lambda: cs.active_learning_score([[[0.5, 0.5]]] * 2, inherent=np.eye(2)),
        "inherent must be left out",
    ),
    # audit
    (lambda: cs.audit(LOGITS, y_true=Y, y_pred=Y), "model_or_posteriors.*logits"),
    (lambda: cs.audit(P, y_true=Y, y_pred=["a", "b", "a", "z"]), "y_pred.*'z'"),
    (lambda: cs.audit(P, y_pred=Y), "y_true"),
    (lambda: cs.ambiguous(LOGITS, y=Y), "clf_or_posteriors.*logits"),
    (
        lambda: cs.audit(P, X, Y),
        r"y_pred is needed: write audit\(posteriors, y_true=y, y_pred=",
    ),
    (
        lambda: cs.audit(P, y_true=Y, y_pred=Y[:3]),
        "y_true and y_pred must have the same number of rows",
    ),
    (
        lambda: cs.audit(P, y_true=Y, y_pred=LogisticRegression),
        "y_pred must be.*the class LogisticRegression",
    ),
    (
        lambda: cs.audit(P, y_true=Y, y_pred=FITTED),
        "X is needed: y_pred is an estimator",
    ),
    (
        lambda: cs.audit(FITTED, P, Y, Y, classes=["b", "a"]),
        "classes must be left out or equal",
    ),
    (
        lambda: cs.audit(P, y_true=Y, y_pred=Y).rows("a", "a"),
        "predicted must be another class",
    ),
    (
        lambda: cs.audit(P, y_true=Y, y_pred=Y).rows("a", "b", "bad"),
        "kind must be one of",
    ),
    (lambda: cs.ambiguous(P, by="label"), "y is needed"),
    (lambda: cs.ambiguous(FITTED), "X is needed"),
    # report
    (lambda: cs.CollisionMatrixDisplay.from_matrix(S), "cm.*CollisionMatrix"),
    (
        lambda: cs.CollisionMatrixDisplay.from_matrix(cm(), order="size"),
        "order.*'size'",
    ),
    (
        lambda: cs.LimitDisplay.from_estimator(SimpleNamespace(limit_=None)),
        "got SimpleNamespace",
    ),
    (
        lambda: cs.DendrogramDisplay.from_plan(cm()),
        "plan.*consolidate.*CollisionMatrix",
    ),
    (lambda: cs.report(DUMMY, path="report.html"), "source.*DummyClassifier"),
    (lambda: cs.report(LOGITS, y=Y, path="report.html"), "source.*logits"),
    (
        lambda: cs.summarise(cm(), about={"path": "x"}),
        "about must be a mapping with some of file",
    ),
    (lambda: cs.report(cm(), path="."), "path.*folder"),
    (
        lambda: cs.summarise(cs.TableClassifier()),
        "call fit of this TableClassifier first",
    ),
    # problems
    (lambda: datasets.GaussianProblem([[NAN], [1.0]]), "means.*nan"),
    (lambda: datasets.GaussianProblem(MEANS, [1.0, -2.0]), "scales.*-2"),
    (lambda: datasets.GaussianProblem(MEANS, priors=[30, 30]), "priors.*60"),
    (lambda: GAUSSIANS.sample(0), "n_samples.*0"),
    (
        lambda: datasets.GaussianProblem([[-9.0], [9.0]]).posteriors([[1.7e308]]),
        "X is too far",
    ),
    (lambda: known.led(0.5), "noise.*0.5"),
    (lambda: known.with_label_noise(GAUSSIANS, np.eye(3)), r"transition.*\(3, 3\)"),
    (lambda: datasets.scenario_a(6), "n_classes.*6"),
    (lambda: datasets.equidistant(n_classes=1), "n_classes.*1"),
    # json
    (lambda: read(edited(pber_stderr=NAN)), "source.*finite"),
    (lambda: read(edited(format="other")), "collision matrix"),
    (lambda: read(edited(version=99)), "version 99"),
    (lambda: read(edited(stderr=...)), "stderr"),
    (lambda: read(edited(extra=1)), "extra"),
    (lambda: read(edited(covariance_lower=[1.0])), "covariance_lower.*got 1"),
    (lambda: read(edited(priors=[0.9, 0.9])), "priors.*1.8"),
    (lambda: read(edited(classes="ab")), "classes must be a list of names, got 'ab'"),
    (lambda: read(edited(classes={"dtype": "object", "values": [1, 2]})), "classes"),
    (lambda: read(edited(diagnostics=[1])), "diagnostics"),
    (lambda: read(5), "source.*5"),
    (lambda: cm().to_json(5), "path.*5"),
    # decisions
    (
        lambda: cs.collisions_by(P10, Y10, ["x"] * 3),
        r"by must have one entry per row \(10\), got 3",
    ),
    (lambda: cs.collisions_by(P10, None, Y10), "y is needed"),
    (lambda: cs.ceilings(LogisticRegression(), Y10), "P must be held-out posteriors"),
    (lambda: cs.ceilings(P10, Y10, cost=np.eye(3)), "cost must be 2×2"),
    (
        lambda: cs.ceilings(P10, Y10, y_pred=Y10[:3]),
        r"y_pred must have one entry per row \(10\), got 3",
    ),
    (
        lambda: cs.ceilings(P10, Y10, posteriors_by_size={10: P10, 20: P10}),
        "3 training sizes or more",
    ),
    (
        lambda: cs.ceilings(P10, Y10, posteriors_by_size={1: P10, 2: P10, 3: P10[:2]}),
        r"\[3\] must have the 10 rows",
    ),
    (lambda: cs.ceilings(P3, Y10, classes=list("abc")), "rows of every class"),
    (lambda: cs.column_value(None, FRAME[["u"]], Y10), "at least 2 columns"),
    (
        lambda: cs.column_value(None, FRAME, Y10, columns=["w"]),
        "columns names 'w', which X lacks",
    ),
    (lambda: cs.column_value(None, FRAME, Y10, columns="u"), "columns must be a list"),
    (lambda: cs.column_value(None, FRAME, Y10, costs={"w": 1}), "costs names 'w'"),
    (lambda: cs.column_value(None, FRAME, Y10, costs={"u": 0}), r"costs\['u'\].*0"),
    (lambda: cs.column_value(None, FRAME, Y10, budget=2), "budget.*at least 5"),
    (
        lambda: cs.column_value(LogisticRegression, FRAME, Y10),
        "clf must be an instance",
    ),
    (lambda: cs.split_candidates(P10, Y10), "at least 3 classes, got 2"),
    (
        lambda: cs.split_candidates(P3, Y10, classes=list("abc")).rows(9),
        "number must be below",
    ),
    (lambda: cs.plan(None, prices=[1]), "prices must be a mapping .* got list"),
]


@pytest.mark.parametrize(
    ("call", "pattern"), REFUSALS, ids=[case[1] for case in REFUSALS]
)
def test_bad_input_is_refused_in_our_words(call, pattern):
    expect_refusal(call, pattern)


@pytest.mark.parametrize(
    "broken",
    [
        {"classes": [datetime.date(2025, 1, 1), "b"]},
        {"classes": ["\ud800", "b"]},
        {"diagnostics": Diagnostics(moved=NAN)},
    ],
    ids=["a date", "half a character", "NaN"],
)
def test_a_matrix_that_json_cannot_hold_leaves_the_old_file_as_it_was(tmp_path, broken):
    path = tmp_path / "cm.json"
    cm().to_json(path)
    expect_refusal(lambda: cm(**broken).to_json(path), next(iter(broken)))
    assert read(path) == cm()
    assert [entry.name for entry in tmp_path.iterdir()] == ["cm.json"]


@pytest.mark.parametrize(
    "bad",
    [
        ([*P, [0.5, 0.6]], [*Y, "a"]),
        (P, ["a", "b", "a", "z"]),
        (P, Y, [0] * 4),
        (P, None),
    ],
)
@pytest.mark.parametrize("priors", [None, HALF], ids=["own priors", "given priors"])
def test_a_failed_update_leaves_the_accumulator_as_it_was(bad, priors):
    parts = accumulator(priors).update(P, Y)
    before = parts.result()
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        parts.update(*bad)
    assert parts.result() == before
    assert (
        parts.update(P, Y).result()
        == accumulator(priors).update(P, Y).update(P, Y).result()
    )


@pytest.mark.parametrize(
    "how",
    [
        lambda value: value,
        copy.deepcopy,
        lambda value: pickle.loads(pickle.dumps(value)),
    ],
)
def test_nothing_of_a_collision_matrix_can_be_changed(how):
    value = how(estimated())
    for name in ("matrix", "priors", "classes", "stderr", "counts", "covariance"):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)
        with pytest.raises(ValueError, match="read-only"):
            getattr(value, name)[0] = getattr(value, name)[1]


def test_a_later_change_of_a_given_array_does_not_reach_inside():
    shares, means = np.array([0.6, 0.4]), np.array(MEANS)
    made = [
        cm(priors=shares),
        accumulator(shares),
        cs.recover(G, shares),
        datasets.GaussianProblem(means, 1, shares),
    ]
    shares[...], means[...] = 0.5, 7.0
    assert [value.priors.tolist() for value in made] == [[0.6, 0.4]] * 4
    assert made[-1].means.tolist() == MEANS


USES = [
    lambda own: cs.CollisionMatrix(own.S, own.priors, own.AB).precision(own.priors),
    lambda own: cs.recover(own.G, own.priors, "gradient", max_iter=20),
    lambda own: cs.solve_posteriors(own.q, own.S, priors=own.priors),
    lambda own: cs.solve_posteriors(own.q, own.S, "inverse"),
    lambda own: cs.shift_priors(own.P, own.half, own.priors),
    lambda own: cs.posterior_error_bound(own.S, own.S, own.q[0], own.half),
    lambda own: (
        cs.CollisionAccumulator(own.AB, own.priors)
        .update(own.P, own.Y, own.weights)
        .result()
    ),
    lambda own: cs.collision_matrix_from_posteriors(
        own.P, own.Y, classes=own.AB, priors=own.priors, sample_weight=own.weights
    ),
    lambda own: cs.count_collisions(own.repeated, own.Y),
    lambda own: cs.collision_matrix_from_densities(
        NORMS, own.priors, n_samples=100, random_state=0
    ),
    lambda own: cs.estimate_collisions(DUMMY, own.X, own.Y10, priors=own.priors),
    lambda own: datasets.GaussianProblem(
        own.means, own.half, own.priors, own.AB
    ).posteriors(own.X[:, :1]),
]


GIVEN = {
    "P": P,
    "S": S,
    "G": G,
    "priors": [0.6, 0.4],
    "half": HALF,
    "q": [[0.7, 0.2]],
    "means": MEANS,
    "X": X,
    "weights": [1.0, 2.0, 0.5, 1.0],
    "Y10": Y10,
}
TEXTS = {"Y": Y, "AB": AB, "repeated": REPEATED}


@pytest.mark.parametrize("writeable", [True, False], ids=["writeable", "read-only"])
@pytest.mark.parametrize("use", USES)
def test_no_function_changes_what_it_is_given(use, writeable):
    given = {name: np.array(value) for name, value in GIVEN.items()}
    given |= {name: np.array(value, object) for name, value in TEXTS.items()}
    before = copy.deepcopy(given)
    for array in given.values():
        array.setflags(write=writeable)
    use(SimpleNamespace(**given))
    for name, array in given.items():
        assert_array_equal(array, before[name], err_msg=name)
