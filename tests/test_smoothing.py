"""Soft targets: rows of (1 - a) I + a S in every kind of container, the loss against them, and the choice of a."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.applications import choose_smoothing, smooth_labels, smoothing_matrix
from collidescope.applications.smoothing_loss import SmoothedCrossEntropy
from collidescope.applications.training import expand
from collidescope.datasets import GaussianProblem, with_label_noise
from helpers import ZOO, planted, random_posteriors

NAMES = ["cat", "dog", "car", "van"]
CM = CollisionMatrix(*planted(4, sharpness=1.5), classes=NAMES)
Y = ["van", "cat", "dog", "dog", "car"]


@pytest.mark.parametrize("strength", [0, 0.1, 0.7, 1])
def test_targets_are_distributions_and_strength_counts_from_labels_to_rows_of_S(strength):
    for S, priors in ZOO.values():
        T = smoothing_matrix(CollisionMatrix(S, priors), strength)
        assert np.allclose(T.sum(axis=1), 1, atol=1e-12)
        assert T.min() >= 0
        assert np.allclose(T - np.eye(len(S)), strength * (S - np.eye(len(S))), atol=1e-15)


def test_lists_and_series_agree():
    rows, index = smooth_labels(Y, CM, 0.3), [3, 1, 4, 1, 5]
    assert rows.dtype == np.float64
    assert smooth_labels(pd.Series(Y, index=index), CM, 0.3).equals(pd.DataFrame(rows, index, NAMES))


def test_expanded_rows_carry_the_targets():
    T = smoothing_matrix(CM, 0.4)
    codes = np.array([2, 0, 3, 3])
    rows, labels, weights = expand(codes, T)
    again = np.zeros((4, 4))
    again[rows, labels] = weights
    assert np.allclose(again, T[codes], atol=1e-6)
    assert [part.tolist() for part in expand(codes, np.eye(4))] == [[0, 1, 2, 3], codes.tolist(), [1] * 4]


def test_the_loss_is_the_cross_entropy_against_soft_targets():
    rng = np.random.default_rng(0)
    logits, codes = rng.standard_normal((50, 4)), rng.integers(0, 4, 50)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    each = -((0.7 * np.eye(4) + 0.3 * CM.matrix)[codes] * log_p).sum(axis=1)
    for reduction, expected in (("mean", each.mean()), ("sum", each.sum()), ("none", each)):
        loss = SmoothedCrossEntropy(CM, 0.3, reduction)(torch.tensor(logits), torch.tensor(codes))
        assert loss.numpy() == pytest.approx(expected, rel=1e-6)


def test_strength_0_is_plain_cross_entropy_and_a_uniform_S_is_uniform_smoothing():
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(30, 5, generator=generator), torch.arange(30) % 5
    for strength in (0, 0.15):
        uniform = nn.functional.cross_entropy(logits, labels, label_smoothing=strength)
        assert torch.allclose(SmoothedCrossEntropy(np.full((5, 5), 0.2), strength)(logits, labels), uniform)


def test_targets_travel_with_the_module():
    loss, other = SmoothedCrossEntropy(CM, 0.2), SmoothedCrossEntropy(np.eye(4), 0.2)
    assert list(loss.state_dict()) == ["targets"]
    assert not list(loss.parameters())
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.targets, loss.targets)
    assert loss.double().targets.dtype == torch.float64
    assert loss.to("meta").targets.device.type == "meta"
    assert "strength=0.2" in repr(other)


def noisy(seed=0):
    """Two classes that a line separates, each label wrong one time in four, features that invite overfitting."""
    clean = GaussianProblem(np.outer([-3.0, 3.0], np.eye(12)[0]))
    problem = with_label_noise(clean, [[0.75, 0.25], [0.25, 0.75]])
    X, y = problem.sample(120, seed)
    return X, y, problem.collision_matrix()


def test_noisy_labels_ask_for_smoothing():
    choice = choose_smoothing(LogisticRegression(C=1e4, max_iter=2000), *noisy())
    assert choice.best >= 0.1
    assert choice.gain > 0
    assert choice.losses.min() == choice.losses[choice.strengths == choice.best]
    assert choice.gain == pytest.approx(choice.losses[0] - choice.losses.min())
    assert 0 < choice.gain_stderr < 1
    assert "Best strength" in str(choice)
    assert choice._shown().shape == (8, 2)


def test_losses_are_those_of_weighted_copies_made_by_hand():
    """One fold by a slow reference: every row once for every class, with no copy left out."""
    X, y, cm = noisy(1)
    total = 0.0
    for train, test in StratifiedKFold(2, shuffle=True, random_state=5).split(X, y):
        soft = smooth_labels(y[train], cm, 0.5)
        model = LogisticRegression().fit(
            np.repeat(X[train], 2, axis=0), np.tile([0, 1], len(train)), sample_weight=soft.ravel()
        )
        total += -np.log(model.predict_proba(X[test])[np.arange(len(test)), y[test]]).sum()
    choice = choose_smoothing(LogisticRegression(), X, y, cm, strengths=[0.5], cv=2, random_state=5)
    assert choice.losses[0] == pytest.approx(total / len(y), rel=1e-6)


def test_pipelines_frames_text_labels_and_absent_classes_are_taken():
    P, codes = random_posteriors(np.random.default_rng(0), 300, 3)
    cm = collision_matrix_from_posteriors(P, np.array(["a", "b", "c"])[codes])
    keep = codes != 2
    X, y = pd.DataFrame(np.log(P[keep])), np.array(["a", "b", "c"])[codes[keep]]
    choice = choose_smoothing(make_pipeline(StandardScaler(), LogisticRegression()), X, y, cm, strengths=(0.2, 0), cv=2)
    assert choice.strengths.tolist() == [0, 0.2]
    assert np.isfinite(choice.losses).all()


AB = CollisionMatrix([[0.8, 0.2], [0.2, 0.8]], classes=["a", "b"])


def choose(**changes):
    given = {"classifier": LogisticRegression(), "X": np.arange(16.0).reshape(8, 2), "y": list("abababab"), "cm": AB}
    return choose_smoothing(**(given | changes))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: smoothing_matrix(CM.matrix), "cm must be a CollisionMatrix, got ndarray"),
        (lambda: SmoothedCrossEntropy(CM)(torch.zeros(1, 4), torch.tensor([0.0])), "labels must be.*float32"),
        (lambda: SmoothedCrossEntropy(CM, reduction="max"), "reduction must be one of 'mean', 'sum', 'none'"),
        (lambda: SmoothedCrossEntropy(CM)(torch.zeros(2, 3), torch.tensor([0, 1])), r"logits.*\(B, 4.*\(2, 3\)"),
        (lambda: SmoothedCrossEntropy(CM)(torch.zeros(1, 4), torch.tensor([7])), "labels.*from 0 to 3, got 7 to 7"),
        (lambda: choose(classifier=LogisticRegression), "classifier must be.*write LogisticRegression"),
        (lambda: choose(classifier="logistic"), "classifier must be a scikit-learn classifier, got 'logistic'"),
        (lambda: choose(classifier=RidgeClassifier()), "classifier must have predict_proba, RidgeClassifier has not"),
        (lambda: choose(classifier=KNeighborsClassifier()), "sample_weight.*KNeighborsClassifier does not"),
        (lambda: choose(y=["a"] * 8), "y holds a single class .*'a'"),
        (lambda: choose(strengths=[0, 2]), "strengths must be a number from 0.*2"),
        (lambda: choose(random_state=-1), "random_state must be a whole number.*-1"),
    ],
)
def test_bad_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
