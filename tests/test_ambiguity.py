"""Ambiguous rows and suspect labels, told apart where the truth is planted."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from collidescope import crossfit_posteriors
from collidescope.applications import ambiguous, label_error_scores
from collidescope.applications.audit import stray_labels
from collidescope.datasets import GaussianProblem
from helpers import random_posteriors

#: Two classes that overlap by half, two that stand alone.
PROBLEM = GaussianProblem([[0, 0], [1, 0], [7, 0], [7, 7]], classes=["cat", "dog", "car", "bus"])


def noisy(rate, kind, seed, n=1500):
    """(X, shown labels, which are wrong): labels replaced by any other, or by the next class."""
    rng = np.random.default_rng(seed)
    X, y = PROBLEM.sample(n, rng)
    codes = np.array([PROBLEM.classes.tolist().index(name) for name in y])
    wrong = rng.random(n) < rate
    step = rng.integers(1, 4, n) if kind == "symmetric" else np.ones(n, dtype=int)
    return X, PROBLEM.classes[np.where(wrong, (codes + step) % 4, codes)], wrong


def test_overlapping_classes_are_ambiguous_and_planted_errors_are_suspect():
    X, y, wrong = noisy(0.05, "symmetric", 0)
    P = PROBLEM.posteriors(X)
    rows = ambiguous(P, y=y, classes=PROBLEM.classes).set_index("index").sort_index()
    alone = P[:, 2:].max(axis=1) > 0.99
    assert (rows["kind"].to_numpy()[alone & wrong] == "suspect label").all()
    assert (rows["kind"].to_numpy()[alone & ~wrong] == "clear").all()
    between = (P[:, 0] > 0.3) & (P[:, 1] > 0.3)
    assert (rows["kind"].to_numpy()[between & ~wrong] == "ambiguous").all()
    assert (rows["kind"] == "suspect label").sum() > 0.8 * (wrong & alone).sum()


def test_columns_say_what_the_posteriors_say():
    P = np.array([[0.6, 0.3, 0.1], [0.05, 0.05, 0.9], [0.2, 0.5, 0.3]])
    rows = ambiguous(P, y=["x", "x", "z"], classes=["x", "y", "z"])
    assert np.allclose(rows.pop("entropy"), [-(p * np.log(p)).sum() for p in P[[2, 0, 1]]])
    assert rows.to_numpy().tolist() == [
        [2, "z", "y", "z", 0.3, 0.5, 0.3, "ambiguous"],
        [0, "x", "x", "y", 0.6, 0.6, 0.3, "ambiguous"],
        [1, "x", "z", "x", 0.05, 0.9, 0.05, "suspect label"],
    ]
    rows = ambiguous([[1.0, 0.0], [0.5, 0.5]])  # without labels nothing is suspect
    assert rows["kind"].tolist() == ["ambiguous", "clear"]
    assert rows[["label", "p_label"]].isna().all(axis=None)
    assert rows["entropy"].tolist() == [np.log(2), 0.0]


def test_the_order_follows_the_question():
    P, y = random_posteriors(np.random.default_rng(0), 200, 4)
    assert ambiguous(P, y=y)["entropy"].is_monotonic_decreasing
    margin = ambiguous(P, y=y, by="margin")
    assert (margin["p_first"] - margin["p_second"]).is_monotonic_increasing
    by_label = ambiguous(P, y=y, by="label", top=7)
    assert by_label["index"].tolist() == np.argsort(-label_error_scores(P, y), kind="stable")[:7].tolist()


def test_with_no_stray_labels_the_order_is_that_of_the_posterior_of_the_label():
    P, _ = random_posteriors(np.random.default_rng(1), 300, 5)
    y = P.argmax(axis=1)
    assert np.array_equal(np.argsort(-label_error_scores(P, y)), np.argsort(P[np.arange(300), y]))
    scores = label_error_scores([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], ["a", "b", "b"])
    assert np.isfinite(scores).all()  # also of a posterior of zero
    assert scores.argmax() == 2


def test_stray_labels_are_counted_on_clear_rows_and_more_on_the_clearest():
    P = np.array([[0.9, 0.05, 0.05]] * 6 + [[1.0, 0.0, 0.0]] + [[0.6, 0.4, 0.0]] * 50)
    codes = np.array([0, 0, 1, 1, 1, 2] + [2] + [1] * 50)
    R = stray_labels(P, codes)
    # at 0.9, halfway between 0.8 and 1, a row counts a quarter; one label in either direction is imagined
    assert np.allclose(R[0], [0, (3 / 4 + 1) / 4, (1 / 4 + 1 + 1) / 4])
    assert np.allclose(R[1:], [[0.5, 0, 0.5], [0.5, 0.5, 0]])


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_label_errors_are_ranked_above_inherent_ambiguity(kind):
    """Against the usual -p(label) and the margin, on the same cross-fitted posteriors: never worse than both."""
    found = []
    for seed in range(4):
        X, y, wrong = noisy(0.1, kind, seed, 800)
        P = crossfit_posteriors(LogisticRegression(), X, y)
        own = np.arange(800), np.searchsorted(np.unique(y), y)
        p_label, others = P[own], P.copy()
        others[own] = 0
        scores = label_error_scores(P, y), -p_label, others.max(axis=1) - p_label
        found.append([average_precision_score(wrong, score) for score in scores])
    ours, confidence, margin = np.mean(found, axis=0)
    assert ours > max(confidence, margin) - 0.01
    assert ours > 0.75
    assert kind == "symmetric" or ours > confidence + 0.01


P4 = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]
Y4 = ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: ambiguous([[2.0, -1.0]] * 4, y=Y4), "clf_or_posteriors must hold probabilities"),
        (lambda: label_error_scores([[0.9, 0.2]] * 4, Y4), "every row of P must sum to 1"),
        (lambda: ambiguous(P4, by="doubt"), "by must be one of"),
        (lambda: ambiguous(P4, by="label"), "y is needed"),
        (lambda: ambiguous(DummyClassifier().fit([[0]] * 4, Y4)), "X is needed"),
        (lambda: ambiguous([[0.2, 0.3, 0.5]] * 4, y=Y4), "pass classes"),
    ],
)
def test_bad_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
