"""Adaptive sampling: even weights while confusion is inherent, more of what is confused beyond it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.applications import AdaptiveSampler, active_learning_score, bayes_confusion
from collidescope.applications.training import MEMORY
from collidescope.datasets import GaussianProblem, imbalanced

#: a and b overlap, c and d do not; c and d differ in the second feature only.
PROBLEM = GaussianProblem([[0, 0], [1, 0], [8, 0], [8, 4]], classes=list("abcd"))
TRAIN = np.repeat(list("abcd"), 50)


def rows(n, seed, problem=PROBLEM):
    X, y = problem.sample(n, seed)
    return X, y, problem.posteriors(X)


UNEVEN = imbalanced(4, ratio=20, length=3, random_state=0)


@pytest.mark.parametrize("said", ["posteriors", "labels drawn from them", "the best rule"])
def test_weights_stay_even_when_all_confusion_is_inherent(said):
    """The best rule is held against its own confusion; a false discovery in 5% of the samples is allowed."""
    problem = UNEVEN if said == "the best rule" else PROBLEM
    reference = bayes_confusion(UNEVEN.posteriors(UNEVEN.sample(50_000, 99)[0])) if problem is UNEVEN else None
    changed = 0
    for seed in range(20):
        _, y, P = rows(1000, seed, problem)
        drawn = (np.random.default_rng(seed).random((len(P), 1)) >= P.cumsum(axis=1)).sum(axis=1).clip(0, 3)
        codes = {"labels drawn from them": drawn, "the best rule": P.argmax(axis=1)}.get(said)
        sampler = AdaptiveSampler(problem.collision_matrix(), y, inherent=reference)
        sampler.update(y, P if codes is None else np.asarray(problem.classes)[codes])
        changed += int((sampler.weights_ != 1).any())
    assert changed <= 4  # 5 or more of 20 have a chance of 0.3%


def test_the_planted_pair_is_drawn_more_often_and_inherent_confusion_is_not():
    X, y, _ = rows(1000, 0)
    blind = GaussianProblem(PROBLEM.means[:, :1], classes=list("abcd")).posteriors(X[:, :1])  # c and d look the same
    sampler = AdaptiveSampler(PROBLEM.collision_matrix(), TRAIN, random_state=0).update(y, blind)
    found = sampler.excess_[sampler.excess_["significant"]]
    assert set(zip(found["true"], found["predicted"], strict=True)) == {("c", "d"), ("d", "c")}
    weights = dict(zip("abcd", sampler.class_weights_, strict=True))
    assert weights["a"] == weights["b"] < 1 < min(weights["c"], weights["d"])
    assert np.array_equal(sampler.weights_, sampler.class_weights_[np.repeat(range(4), 50)])
    counts = np.bincount(TRAIN[list(sampler)].astype("U1").view(np.int32) - ord("a"))
    assert min(counts[2:]) > 55 > 45 > max(counts[:2])
    assert sampler.cost_matrix_[2, 3] == pytest.approx(1 + found.query("true == 'c'")["excess"].iloc[0])
    assert np.all(np.diag(sampler.cost_matrix_) == 0)
    assert sampler.cost_matrix_[0, 1] == 1


def test_an_excess_that_stays_raises_the_weight_to_its_limit_and_one_that_goes_lets_it_fall():
    cm = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]])
    y = np.repeat([0, 1], 500)
    bad = np.repeat([0, 1, 1, 0], [450, 50, 400, 100])  # class 1: 0.2 instead of 0.1
    good = np.repeat([0, 1, 1, 0], [450, 50, 450, 50])
    sampler = AdaptiveSampler(cm, y)
    for said, ratio in ((bad, np.exp(0.1 / (1 - MEMORY))), (good, 1.0)):
        for _ in range(60):
            sampler.update(y, said)
        assert sampler.class_weights_[1] / sampler.class_weights_[0] == pytest.approx(ratio, rel=1e-4)


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


def test_every_row_comes_as_often_as_its_weight_says():
    sampler = AdaptiveSampler(CollisionMatrix(np.eye(4), classes=list("abcd")), TRAIN, random_state=0)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(200))
    assert first != second
    y = np.repeat(list("abcd"), 200)
    sampler.update(y, np.roll(y, 30))
    times = np.zeros(200)
    for _ in range(400):
        picks = np.bincount(list(sampler), minlength=200)
        assert picks.sum() == len(sampler) == 200
        assert (np.abs(picks - sampler.weights_) < 1 + 1e-9).all()
        times += picks
    assert np.abs(times / 400 - sampler.weights_).max() < 0.1


def test_a_data_loader_of_torch_takes_it():
    torch = pytest.importorskip("torch")
    sampler = AdaptiveSampler(CollisionMatrix(np.eye(4), classes=list("abcd")), TRAIN, random_state=0)
    loader = torch.utils.data.DataLoader(torch.arange(200), batch_size=32, sampler=sampler)
    assert len(loader) == 7
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(200))


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
        part = np.append(part, [np.flatnonzero(y == k)[0] for k in range(4)])  # every member knows every class
        members.append(LogisticRegression(C=100.0).fit(X[part], y[part]).predict_proba(X_new))
    score, plain = active_learning_score(np.array(members)), active_learning_score(np.mean(members, axis=0))
    known, unexplored = np.abs(X_new[:, 0] - 0.5) < 0.5, X_new[:, 0] > 6
    assert plain[known].mean() > 0.6  # as doubtful as two classes can be
    assert score[known].max() < 0.03
    assert score[unexplored].mean() > 5 * score[known].mean()
    top = np.argsort(-score)[:100]  # the cluster, and the gap before it
    assert (X_new[top, 0] > 2.5).all()
    assert known[np.argsort(-plain)[:100]].mean() > 0.2  # where plain doubt would have sent the labeller


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


AB = CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], classes=["a", "b"])
Y4 = ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: AdaptiveSampler(np.eye(2), Y4), "cm must be a CollisionMatrix"),
        (lambda: AdaptiveSampler(AB, Y4, cap=0.5), "cap must be a number of at least 1"),
        (lambda: AdaptiveSampler(AB, Y4, inherent=np.eye(3)), r"inherent must be 2×2.*\(3, 3\)"),
        (lambda: AdaptiveSampler(AB, Y4).update(Y4, Y4[:3]), "y_true and y_pred"),
        (lambda: AdaptiveSampler(AB, Y4).update(Y4, [["a"], ["a", "b"]] * 2), "y_pred must be a flat list"),
        (lambda: active_learning_score([0.5, 0.5]), r"P must be.*\(2,\)"),
        (lambda: active_learning_score([[[0.5, 0.5]]]), "P must hold at least 2 models"),
        (lambda: active_learning_score([[[0.5, 0.5]]] * 2, inherent=np.eye(2)), "inherent must be left out"),
    ],
)
def test_bad_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()
