"""Boosted trees in the pool: the same posteriors as scikit-learn's, saved as arrays, weighed by held-out loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from collidescope import CollisionClassifier, load
from collidescope.datasets import scenario_a
from collidescope.learners.trees import LEARNING_RATE, MAX_DEPTH, BoostedTrees, grow

QUICK = {"max_epochs": 3, "cv": 2, "random_state": 0, "device": "cpu"}


def steps(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A label that follows from which side of a few thresholds the features lie on, with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    side = ((X[:, 0] > 0.5) ^ (X[:, 1] > -0.3)).astype(int) + (np.abs(X[:, 2]) > 1.2)
    return X, np.where(rng.random(n) < 0.9, side % n_classes, rng.integers(0, n_classes, n))


@pytest.fixture(scope="module", params=[2, 3])
def grown(request):
    K = request.param
    X, y = steps(400, K)
    rows = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    split = rows[:300], rows[300:]
    return X.astype(np.float32), y, K, split, grow(X.astype(np.float32), y, None, split, K, 0)


def test_torch_evaluates_the_trees_that_scikit_learn_grew(grown):
    X, y, K, (train, _), forest = grown
    rounds = len(forest.roots) // len(forest.base)
    settings = {"learning_rate": LEARNING_RATE, "max_depth": MAX_DEPTH, "early_stopping": False, "random_state": 0}
    expected = HistGradientBoostingClassifier(max_iter=rounds, **settings).fit(X[train], y[train]).predict_proba(X)
    p = torch.softmax(BoostedTrees([forest, forest], K)(torch.from_numpy(X)), -1)
    assert p.shape == (2, 400, K)
    assert np.abs(p[1].numpy() - expected).max() < 1e-12


def test_the_held_out_rows_choose_the_rounds(grown):
    X, y, _, (train, held_out), forest = grown
    settings = {"learning_rate": LEARNING_RATE, "max_depth": MAX_DEPTH, "early_stopping": False, "random_state": 0}
    model = HistGradientBoostingClassifier(max_iter=200, **settings).fit(X[train], y[train])
    losses = [log_loss(y[held_out], p) for p in model.staged_predict_proba(X[held_out])]
    assert len(forest.roots) // len(forest.base) == int(np.argmin(losses)) + 1


def test_weights_reach_the_trees():
    X, y = steps(400, 2)
    weight = np.where(y == 1, 10.0, 1.0)
    rows = torch.arange(400)
    split = rows[:300], rows[300:]
    plain, heavy = (BoostedTrees([grow(X, y, w, split, 2, 0)], 2)(torch.from_numpy(X))[0] for w in (None, weight))
    assert torch.softmax(heavy, -1)[:, 1].mean() > torch.softmax(plain, -1)[:, 1].mean() + 0.05


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
def test_trees_win_where_labels_follow_steps_and_lose_where_they_are_linear(tmp_path):
    X, y = steps(1200, 3)
    plain, trees = (CollisionClassifier(trees=t, **QUICK).fit(X, y) for t in (False, True))
    assert trees.collision_matrix_.pber < 0.8 * plain.collision_matrix_.pber
    assert min(fold["trees"] for fold in trees.capacities_) > 0.5
    trees.save(tmp_path / "m.collide")
    assert np.array_equal(load(tmp_path / "m.collide").predict_proba(X), trees.predict_proba(X))
    linear = CollisionClassifier(trees=True, **QUICK).fit(*scenario_a(3).sample(1200, 0))
    assert max(fold["trees"] for fold in linear.capacities_) < 0.3
    few = CollisionClassifier(trees=True, **QUICK).fit(*steps(300, 2))
    assert "trees" not in few.capacities_[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "pairwise"},
        {"loss": "pair"},
        {"hidden_layer_sizes": (8,)},
        {"model": lambda d, k: torch.nn.Linear(d, k)},
    ],
)
def test_trees_without_their_pool_are_refused(settings):
    with pytest.raises(ValueError, match="trees=True joins the pool"):
        CollisionClassifier(trees=True, **settings, **QUICK).fit(*steps(100, 2))
    with pytest.raises(ValueError, match="trees must be True or False"):
        CollisionClassifier(trees="yes", **QUICK).fit(*steps(100, 2))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["left0"].fill_(10**6),
        lambda s: s["roots0"].fill_(-1),
        lambda s: s["feature0"].fill_(4),
        lambda s: s["value0"].fill_(float("nan")),
        lambda s: s.update(base0=torch.zeros(5, dtype=torch.float64)),
        lambda s: s.update(right0=s["right0"][:-1]),
        lambda s: s.update(left0=s["left0"].double()),
        lambda s: s.clear(),
    ],
)
def test_trees_that_point_outside_are_refused(grown, change):
    *_, K, _, forest = grown
    state = {name: tensor.clone() for name, tensor in BoostedTrees([forest], K).state_dict().items()}
    change(state)
    with pytest.raises((ValueError, KeyError)):
        BoostedTrees.from_state(state, 4, K)
