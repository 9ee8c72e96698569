"""S in training: soft targets, the loss against them and their strength; draws of what is confused beyond need."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from collidescope import (
    AdaptiveSampler,
    CollisionMatrix,
    active_learning_score,
    collision_matrix_from_posteriors,
)
from collidescope.applications import (
    bayes_confusion,
    choose_smoothing,
    smooth_labels,
    smoothing_matrix,
)
from collidescope.applications.smoothing_loss import SmoothedCrossEntropy
from collidescope.applications.training import MEMORY
from collidescope.datasets import GaussianProblem, imbalanced, with_label_noise
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
    frame = smooth_labels(pd.Series(Y, index=[3, 1, 4, 1, 5]), CM, 0.3)
    assert frame.equals(pd.DataFrame(smooth_labels(Y, CM, 0.3), [3, 1, 4, 1, 5], NAMES))


def test_the_loss_is_the_cross_entropy_against_soft_targets_which_travel_with_the_module():
    rng = np.random.default_rng(0)
    logits, codes = rng.standard_normal((50, 4)), rng.integers(0, 4, 50)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    each = -((0.7 * np.eye(4) + 0.3 * CM.matrix)[codes] * log_p).sum(axis=1)
    for reduction, expected in (("mean", each.mean()), ("sum", each.sum()), ("none", each)):
        loss = SmoothedCrossEntropy(CM, 0.3, reduction)(torch.tensor(logits), torch.tensor(codes))
        assert loss.numpy() == pytest.approx(expected, rel=1e-6)
    # strength 0 is plain cross-entropy, and a uniform S uniform smoothing
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(30, 5, generator=generator), torch.arange(30) % 5
    for strength in (0, 0.15):
        uniform = nn.functional.cross_entropy(logits, labels, label_smoothing=strength)
        assert torch.allclose(
            SmoothedCrossEntropy(np.full((5, 5), 0.2), strength)(logits, labels), uniform
        )
    loss, other = SmoothedCrossEntropy(CM, 0.2), SmoothedCrossEntropy(np.eye(4), 0.2)
    assert not list(loss.parameters())
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.targets, loss.targets)
    assert loss.double().targets.dtype == torch.float64
    assert loss.to("meta").targets.device.type == "meta"


def noisy(seed=0):
    """Two classes that a line separates, each label wrong one time in four, features that invite overfitting."""
    clean = GaussianProblem(np.outer([-3.0, 3.0], np.eye(12)[0]))
    problem = with_label_noise(clean, [[0.75, 0.25], [0.25, 0.75]])
    X, y = problem.sample(120, seed)
    return X, y, problem.collision_matrix()


def test_noisy_labels_ask_for_smoothing_and_losses_are_those_of_weighted_copies_made_by_hand():
    choice = choose_smoothing(LogisticRegression(C=1e4, max_iter=2000), *noisy())
    assert choice.best >= 0.1
    assert choice.gain > 0
    assert choice.losses.min() == choice.losses[choice.strengths == choice.best]
    assert choice.gain == pytest.approx(choice.losses[0] - choice.losses.min())
    assert 0 < choice.gain_stderr < 1
    assert "Best strength" in str(choice)
    # by a slow reference: every row once for every class, with no copy left out
    X, y, cm = noisy(1)
    total = 0.0
    for train, test in StratifiedKFold(2, shuffle=True, random_state=5).split(X, y):
        weights = smooth_labels(y[train], cm, 0.5).ravel()
        model = LogisticRegression().fit(
            np.repeat(X[train], 2, axis=0), np.tile([0, 1], len(train)), weights
        )
        total += -np.log(model.predict_proba(X[test])[np.arange(len(test)), y[test]]).sum()
    choice = choose_smoothing(LogisticRegression(), X, y, cm, strengths=[0.5], cv=2, random_state=5)
    assert choice.losses[0] == pytest.approx(total / len(y), rel=1e-6)


def test_pipelines_frames_text_labels_and_absent_classes_are_taken():
    P, codes = random_posteriors(np.random.default_rng(0), 300, 3)
    cm = collision_matrix_from_posteriors(P, np.array(["a", "b", "c"])[codes])
    keep = codes != 2
    X, y = pd.DataFrame(np.log(P[keep])), np.array(["a", "b", "c"])[codes[keep]]
    choice = choose_smoothing(
        make_pipeline(StandardScaler(), LogisticRegression()), X, y, cm, strengths=(0.2, 0), cv=2
    )
    assert choice.strengths.tolist() == [0, 0.2]
    assert np.isfinite(choice.losses).all()


#: a and b overlap, c and d do not; c and d differ in the second feature only.
PROBLEM = GaussianProblem([[0, 0], [1, 0], [8, 0], [8, 4]], classes=list("abcd"))
TRAIN = np.repeat(list("abcd"), 50)
UNEVEN = imbalanced(4, ratio=20, length=3, random_state=0)


def rows(n, seed, problem=PROBLEM):
    X, y = problem.sample(n, seed)
    return X, y, problem.posteriors(X)


@pytest.mark.parametrize("said", ["posteriors", "labels drawn from them", "the best rule"])
def test_weights_stay_even_when_all_confusion_is_inherent(said):
    """The best rule is held against its own confusion; a false discovery in 5% of the samples is allowed."""
    problem = UNEVEN if said == "the best rule" else PROBLEM
    reference = (
        bayes_confusion(UNEVEN.posteriors(UNEVEN.sample(50_000, 99)[0]))
        if problem is UNEVEN
        else None
    )
    changed = 0
    for seed in range(20):
        _, y, P = rows(1000, seed, problem)
        drawn = (
            (np.random.default_rng(seed).random((len(P), 1)) >= P.cumsum(axis=1))
            .sum(axis=1)
            .clip(0, 3)
        )
        codes = {"labels drawn from them": drawn, "the best rule": P.argmax(axis=1)}.get(said)
        sampler = AdaptiveSampler(problem.collision_matrix(), y, inherent=reference)
        sampler.update(y, P if codes is None else np.asarray(problem.classes)[codes])
        changed += int((sampler.weights_ != 1).any())
    assert changed <= 4  # 5 or more of 20 have a chance of 0.3%


def test_the_planted_pair_is_drawn_more_often_and_inherent_confusion_is_not():
    X, y, _ = rows(1000, 0)
    blind = GaussianProblem(PROBLEM.means[:, :1], classes=list("abcd")).posteriors(
        X[:, :1]
    )  # c and d look the same
    sampler = AdaptiveSampler(PROBLEM.collision_matrix(), TRAIN, random_state=0).update(y, blind)
    found = sampler.excess_[sampler.excess_["significant"]]
    assert set(zip(found["true"], found["predicted"], strict=True)) == {("c", "d"), ("d", "c")}
    weights = dict(zip("abcd", sampler.class_weights_, strict=True))
    assert weights["a"] == weights["b"] < 1 < min(weights["c"], weights["d"])
    assert np.array_equal(sampler.weights_, sampler.class_weights_[np.repeat(range(4), 50)])
    counts = np.bincount(TRAIN[list(sampler)].astype("U1").view(np.int32) - ord("a"))
    assert min(counts[2:]) > 55 > 45 > max(counts[:2])
    cost = sampler.cost_matrix_
    assert cost[2, 3] == pytest.approx(1 + found.query("true == 'c'")["excess"].iloc[0])
    assert (*np.diag(cost), cost[0, 1]) == (0, 0, 0, 0, 1)


def test_an_excess_that_stays_raises_the_weight_to_its_limit_and_one_that_goes_lets_it_fall():
    cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]])
    y = np.repeat([0, 1], 500)
    bad = np.repeat([0, 1, 1, 0], [450, 50, 400, 100])  # class 1: 0.2 instead of 0.1
    good = np.repeat([0, 1, 1, 0], [450, 50, 450, 50])
    sampler = AdaptiveSampler(cm, y)
    for said, ratio in ((bad, np.exp(0.1 / (1 - MEMORY))), (good, 1.0)):
        for _ in range(60):
            sampler.update(y, said)
        assert sampler.class_weights_[1] / sampler.class_weights_[0] == pytest.approx(
            ratio, rel=1e-4
        )


def test_weights_have_mean_one_and_no_class_comes_oftener_than_the_cap():
    rng = np.random.default_rng(0)
    y = rng.choice(6, 1000, p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.02])
    sampler = AdaptiveSampler(CollisionMatrix(np.eye(6)), y, cap=3.0)
    ratios = []
    for _ in range(20):
        said = y.copy()
        said[y < 3] = rng.permutation(y[y < 3])
        sampler.update(y, said)
        assert sampler.weights_.mean() == pytest.approx(1)
        ratios.append(sampler.class_weights_.max() / sampler.class_weights_.min())
    assert max(ratios) == pytest.approx(3)


def test_a_class_taken_for_many_others_is_found_where_no_pair_is():
    k, n = 12, 30
    y = np.repeat(np.arange(k), n)
    said = y.copy()
    said[:9] = np.arange(1, 10)  # three in ten of the first class, each row for another class
    sampler = AdaptiveSampler(CollisionMatrix(np.eye(k)), y).update(y, said)
    assert not sampler.excess_["significant"].any()
    found = sampler.class_excess_[sampler.class_excess_["significant"]]
    assert found["class"].tolist() == [0]
    assert found["excess"].iloc[0] == pytest.approx(0.3)
    assert sampler.class_weights_[0] / sampler.class_weights_[1] == pytest.approx(np.exp(0.3))


def test_every_row_comes_as_often_as_its_weight_says_also_in_a_data_loader_of_torch():
    sampler = AdaptiveSampler(
        CollisionMatrix(np.eye(4), classes=list("abcd")), TRAIN, random_state=0
    )
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(200))
    assert first != second
    loader = torch.utils.data.DataLoader(torch.arange(200), batch_size=32, sampler=sampler)
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(200))
    y = np.repeat(list("abcd"), 200)
    sampler.update(y, np.roll(y, 30))
    times = np.zeros(200)
    for _ in range(400):
        picks = np.bincount(list(sampler), minlength=200)
        assert picks.sum() == len(sampler) == 200
        assert (np.abs(picks - sampler.weights_) < 1 + 1e-9).all()
        times += picks
    assert np.abs(times / 400 - sampler.weights_).max() < 0.1


def test_known_ambiguity_scores_low_and_the_unexplored_high():
    """Bootstrap members agree where classes overlap, and disagree about the cluster of which they saw three rows."""
    problem = GaussianProblem([[0, 0], [1, 0], [8, 0], [8, 1]])
    X, y = problem.sample(4000, 0)
    rng = np.random.default_rng(0)
    far = np.flatnonzero(X[:, 0] > 4)
    labelled = np.concatenate([np.flatnonzero(X[:, 0] <= 4), rng.choice(far, 6, replace=False)])
    X_new, _ = problem.sample(1000, 1)
    members = []
    for _ in range(10):
        part = rng.choice(labelled, len(labelled))
        part = np.append(
            part, [np.flatnonzero(y == k)[0] for k in range(4)]
        )  # every member knows every class
        members.append(LogisticRegression(C=100.0).fit(X[part], y[part]).predict_proba(X_new))
    score, plain = (
        active_learning_score(np.array(members)),
        active_learning_score(np.mean(members, axis=0)),
    )
    known, unexplored = np.abs(X_new[:, 0] - 0.5) < 0.5, X_new[:, 0] > 6
    assert plain[known].mean() > 0.6  # as doubtful as two classes can be
    assert score[known].max() < 0.03
    assert score[unexplored].mean() > 5 * score[known].mean()
    top = np.argsort(-score)[:100]  # the cluster, and the gap before it
    assert (X_new[top, 0] > 2.5).all()
    assert (
        known[np.argsort(-plain)[:100]].mean() > 0.2
    )  # where plain doubt would have sent the labeller


def test_one_models_doubt_is_discounted_by_what_its_class_has_anyway():
    _, y, P = rows(4000, 0)
    cm = collision_matrix_from_posteriors(P, y)
    known = P[(P[:, 0] > 0.4) & (P[:, 1] > 0.4)]
    assert len(known) > 50
    scores = active_learning_score(np.concatenate([known, np.full((1, 4), 0.25)]), inherent=cm)
    assert scores[:-1].max() < 0.2 < 0.6 < scores[-1]
    assert np.array_equal(active_learning_score(known, inherent=cm.matrix), scores[:-1])
    assert (active_learning_score(known) > 0.6).all()
    assert active_learning_score([[1.0, 0.0, 0.0, 0.0]], inherent=cm).tolist() == [0.0]
