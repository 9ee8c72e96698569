"""S in training: soft targets, the loss against them and their strength; draws of what is confused
beyond need."""

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
from collidescope.applications.smoothing_loss import (
    CostCrossEntropy,
    SmoothedCrossEntropy,
)
from collidescope.datasets import GaussianProblem
from helpers import ZOO, planted, random_posteriors
from studies.known import imbalanced, with_label_noise

NAMES = ["cat", "dog", "car", "van"]
CM = CollisionMatrix(*planted(4, sharpness=1.5), classes=NAMES)
Y = ["van", "cat", "dog", "dog", "car"]


@pytest.mark.parametrize("strength", [0, 0.1, 0.7, 1])
def test_strength_leads_from_labels_to_rows_of_S(strength):
    for S, priors in ZOO.values():
        T = smoothing_matrix(CollisionMatrix(S, priors), strength)
        eye = np.eye(len(S))
        assert np.allclose(T.sum(axis=1), 1, atol=1e-12)
        assert T.min() >= 0
        assert np.allclose(T - eye, strength * (S - eye), atol=1e-15)


def test_targets_of_a_series_keep_its_index():
    index = [3, 1, 4, 1, 5]
    frame = smooth_labels(pd.Series(Y, index=index), CM, 0.3)
    assert frame.equals(pd.DataFrame(smooth_labels(Y, CM, 0.3), index, NAMES))


def test_the_loss_is_the_cross_entropy_against_soft_targets(rng):
    logits, codes = rng.standard_normal((50, 4)), rng.integers(0, 4, 50)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    each = -((0.7 * np.eye(4) + 0.3 * CM.matrix)[codes] * log_p).sum(axis=1)
    made = {"mean": each.mean(), "sum": each.sum(), "none": each}
    for reduction, expected in made.items():
        loss = SmoothedCrossEntropy(CM, 0.3, reduction)
        found = loss(torch.tensor(logits), torch.tensor(codes)).numpy()
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("strength", [0, 0.15])
def test_a_uniform_matrix_is_uniform_smoothing(strength):
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 5
    uniform = nn.functional.cross_entropy(logits, labels, label_smoothing=strength)
    loss = SmoothedCrossEntropy(np.full((5, 5), 0.2), strength)
    assert torch.allclose(loss(logits, labels), uniform)


def test_soft_targets_travel_with_the_module():
    loss, other = SmoothedCrossEntropy(CM, 0.2), SmoothedCrossEntropy(np.eye(4), 0.2)
    assert not list(loss.parameters())
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.targets, loss.targets)
    assert loss.double().targets.dtype == torch.float64
    assert loss.to("meta").targets.device.type == "meta"


def noisy(seed=0):
    """Two classes that a line separates, each label wrong one time in four, features that invite
    overfitting."""
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


def test_losses_are_those_of_weighted_copies_made_by_hand():
    # by a slow reference: every row once for every class, with no copy left out
    X, y, cm = noisy(1)
    total = 0.0
    for train, test in StratifiedKFold(2, shuffle=True, random_state=5).split(X, y):
        copies = np.repeat(X[train], 2, axis=0)
        weights = smooth_labels(y[train], cm, 0.5).ravel()
        model = LogisticRegression().fit(copies, np.tile([0, 1], len(train)), weights)
        p = model.predict_proba(X[test])[np.arange(len(test)), y[test]]
        total -= np.log(p).sum()
    options = {"strengths": [0.5], "cv": 2, "random_state": 5}
    choice = choose_smoothing(LogisticRegression(), X, y, cm, **options)
    assert choice.losses[0] == pytest.approx(total / len(y), rel=1e-6)


def test_a_pipeline_on_a_frame_is_taken_though_a_class_is_absent():
    P, codes = random_posteriors(np.random.default_rng(0), 300, 3)
    y = np.array(["a", "b", "c"])[codes]
    cm = collision_matrix_from_posteriors(P, y)
    keep = codes != 2
    X = pd.DataFrame(np.log(P[keep]))
    model = make_pipeline(StandardScaler(), LogisticRegression())
    choice = choose_smoothing(model, X, y[keep], cm, strengths=(0.2, 0), cv=2)
    assert choice.strengths.tolist() == [0, 0.2]
    assert np.isfinite(choice.losses).all()


#: a and b overlap, c and d do not; c and d differ in the second feature only.
PROBLEM = GaussianProblem([[0, 0], [1, 0], [8, 0], [8, 4]], classes=list("abcd"))
TRAIN = np.repeat(list("abcd"), 50)
UNEVEN = imbalanced(4, ratio=20, length=3, random_state=0)


def rows(n, seed, problem=PROBLEM):
    X, y = problem.sample(n, seed)
    return X, y, problem.posteriors(X)


@pytest.mark.parametrize("said", ["posteriors", "the best rule"])
def test_weights_stay_nearly_even_when_all_confusion_is_inherent(said):
    """The best rule is held against its own confusion; what is left is sampling error."""
    problem = UNEVEN if said == "the best rule" else PROBLEM
    reference = None
    if problem is UNEVEN:
        reference = bayes_confusion(UNEVEN.posteriors(UNEVEN.sample(50_000, 99)[0]))
    _, y, P = rows(20_000, 1, problem)
    sampler = AdaptiveSampler(problem.collision_matrix(), y, inherent=reference)
    sampler.update(y, P if reference is None else problem.classes[P.argmax(axis=1)])
    assert np.abs(np.log(sampler.class_weights_)).max() < 0.06


@pytest.fixture
def pair():
    """A sampler of three classes that do not collide, of which a is taken for b."""
    y = np.repeat(list("abc"), 100)
    said = y.copy()
    said[:30] = "b"
    cm = CollisionMatrix(np.eye(3), classes=list("abc"))
    return AdaptiveSampler(cm, y).update(y, said)


def test_both_classes_of_a_planted_pair_are_drawn_more_often(pair):
    weights = pair.class_weights_
    assert weights[0] == weights[1]
    assert weights[0] / weights[2] == pytest.approx(np.exp(0.3))


def test_inherent_confusion_is_not_drawn_more_often():
    X, y, _ = rows(1000, 0)
    # c and d look the same.
    blind = GaussianProblem(PROBLEM.means[:, :1], classes=list("abcd"))
    sampler = AdaptiveSampler(PROBLEM.collision_matrix(), TRAIN, random_state=0)
    sampler.update(y, blind.posteriors(X[:, :1]))
    weights = sampler.class_weights_
    assert max(weights[:2]) < 1 < min(weights[2:])
    assert np.array_equal(sampler.weights_, np.repeat(weights, 50))
    counts = np.bincount(np.searchsorted(list("abcd"), TRAIN[list(sampler)]))
    assert min(counts[2:]) > 55 > 45 > max(counts[:2])


def test_costs_are_one_plus_the_excess_of_each_error(pair):
    expected = np.array([[0, 1.3, 1], [1, 0, 1], [1, 1, 0]])
    assert pair.cost_matrix_ == pytest.approx(expected)


def test_a_weight_rises_only_while_its_excess_stays():
    y = np.repeat([0, 1, 2], 500)
    bad = np.where((np.arange(1500) % 10 == 0) & (y == 1), 0, y)
    sampler = AdaptiveSampler(CollisionMatrix(np.eye(3)), y)
    for said, ratio in ((bad, np.exp(0.1 / (1 - sampler.memory))), (y, 1.0)):
        for _ in range(60):
            sampler.update(y, said)
        weights = sampler.class_weights_
        assert weights[1] / weights[2] == pytest.approx(ratio, rel=1e-4)


def test_an_error_that_costs_more_adds_more_to_the_loss(rng):
    logits = torch.tensor(rng.standard_normal((50, 3)))
    codes = torch.tensor(rng.integers(0, 3, 50))
    cost = np.array([[0, 2.0, 1], [1, 0, 1], [1, 4, 0]])
    p = torch.softmax(logits, 1).numpy()
    expected = [
        -np.log(row[i]) * (row @ cost[i]) / np.delete(row, i).sum()
        for row, i in zip(p, codes.tolist(), strict=True)
    ]
    each = CostCrossEntropy(cost).each(logits, codes).numpy()
    assert each == pytest.approx(expected, rel=1e-6)


def test_with_costs_of_one_the_loss_is_plain_cross_entropy():
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 4
    plain = nn.functional.cross_entropy(logits, labels)
    assert torch.allclose(CostCrossEntropy(1 - np.eye(4))(logits, labels), plain)


def test_the_costs_of_a_sampler_are_taken():
    y = np.repeat([0, 1], 50)
    sampler = AdaptiveSampler(CollisionMatrix(np.eye(2)), y)
    loss = CostCrossEntropy(1 - np.eye(2))
    loss.set_cost(sampler.update(y, np.zeros(100, dtype=int)).cost_matrix_)
    wrong = torch.tensor([[1.0, 0.0]])
    label = torch.tensor([1])
    plain = nn.functional.cross_entropy(wrong, label)
    assert float(loss(wrong, label)) == pytest.approx(2 * float(plain))


def test_weights_of_mean_one_stay_below_the_cap(rng):
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


def test_every_row_comes_as_often_as_its_weight_says_also_in_a_data_loader_of_torch():
    cm = CollisionMatrix(np.eye(4), classes=list("abcd"))
    sampler = AdaptiveSampler(cm, TRAIN, random_state=0)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(200))
    assert first != second
    loader = torch.utils.data.DataLoader(
        torch.arange(200), batch_size=32, sampler=sampler
    )
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


def test_the_unexplored_scores_above_known_ambiguity(rng):
    """Bootstrap members agree where classes overlap, and disagree about the cluster of which they
    saw three rows."""
    problem = GaussianProblem([[0, 0], [1, 0], [8, 0], [8, 1]])
    X, y = problem.sample(4000, 0)
    near = np.flatnonzero(X[:, 0] <= 4)
    few = rng.choice(np.flatnonzero(X[:, 0] > 4), 6, replace=False)
    labelled = np.concatenate([near, few])
    one_of_each = np.unique(y, return_index=True)[1]  # every member knows every class
    X_new, _ = problem.sample(1000, 1)
    members = []
    for _ in range(10):
        part = np.append(rng.choice(labelled, len(labelled)), one_of_each)
        model = LogisticRegression(C=100.0).fit(X[part], y[part])
        members.append(model.predict_proba(X_new))
    score = active_learning_score(np.array(members))
    plain = active_learning_score(np.mean(members, axis=0))
    known, unexplored = np.abs(X_new[:, 0] - 0.5) < 0.5, X_new[:, 0] > 6
    assert plain[known].mean() > 0.6  # as doubtful as two classes can be
    assert score[known].max() < 0.03
    assert score[unexplored].mean() > 5 * score[known].mean()
    top = np.argsort(-score)[:100]  # the cluster, and the gap before it
    assert (X_new[top, 0] > 2.5).all()
    # Where plain doubt would have sent the labeller.
    assert known[np.argsort(-plain)[:100]].mean() > 0.2


def test_one_models_doubt_is_discounted_by_what_its_class_has_anyway():
    _, y, P = rows(4000, 0)
    cm = collision_matrix_from_posteriors(P, y)
    known = P[(P[:, 0] > 0.4) & (P[:, 1] > 0.4)]
    assert len(known) > 50
    unclear = np.full((1, 4), 0.25)
    scores = active_learning_score(np.concatenate([known, unclear]), inherent=cm)
    assert scores[:-1].max() < 0.2 < 0.6 < scores[-1]
    assert np.array_equal(active_learning_score(known, inherent=cm.matrix), scores[:-1])
    assert (active_learning_score(known) > 0.6).all()
    assert active_learning_score([[1.0, 0.0, 0.0, 0.0]], inherent=cm).tolist() == [0.0]
