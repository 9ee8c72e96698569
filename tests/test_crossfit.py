"""Cross-fitting: held-out scores, pair-wise posteriors, folds that were interrupted, and their way through a file."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from collidescope import CollisionClassifier, crossfit
from collidescope.crossfit import RIDGES, CrossFit, PairSolver, check_pair_members, cross_fit
from collidescope.datasets import scenario_a
from collidescope.equations.posterior import shift_priors
from collidescope.learners import bridge
from collidescope.learners.fold_models import FoldModel, PairwiseFoldModel
from collidescope.learners.members import Member
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from helpers import ZOO, random_posteriors


def problem(n=120, k=3, d=2, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.sort(np.arange(n) % k)
    return rng.normal(size=(n, d)) + 1.5 * codes[:, None], codes


def splits_of(codes, cv=3):
    return list(StratifiedKFold(cv, shuffle=True, random_state=0).split(codes, codes))


def config(model="factorised", **changes):
    return TrainingConfig(model=model, **({"hidden_layer_sizes": (8,), "max_epochs": 3} | changes))


class Spy:
    """Records which rows a fold is trained on and which it scores, by their bytes."""

    def __init__(self, monkeypatch):
        self.overlaps, self.scored, self.references = 0, [], []
        self.train_fold, self.posteriors, self.similarity = (
            bridge.train_fold,
            bridge.posteriors,
            bridge.class_similarity,
        )
        for name in ("train_fold", "posteriors", "class_similarity"):
            monkeypatch.setattr(bridge, name, getattr(self, f"spy_{name}"))

    @staticmethod
    def rows(X):
        return [row.tobytes() for row in np.asarray(X)]

    def spy_train_fold(self, X, *rest):
        fold = self.train_fold(X, *rest)
        fold.trained_on = set(self.rows(X))
        return fold

    def spy_posteriors(self, fold, X):
        self.note(fold, X, self.scored)
        return self.posteriors(fold, X)

    def spy_class_similarity(self, fold, X, references, codes, weights, exclude, correction):
        self.note(fold, X, self.scored)
        self.note(fold, references, self.references)
        if exclude is not None:
            rows, others = self.rows(X), self.rows(references)
            assert [others.index(row) if row in others else -1 for row in rows] == exclude.tolist()
        return self.similarity(fold, X, references, codes, weights, exclude, correction)

    def note(self, fold, X, log):
        self.overlaps += len(fold.trained_on & set(self.rows(X)))
        log.extend(self.rows(X))


@pytest.mark.parametrize("model", ["factorised", "pairwise"])
@pytest.mark.parametrize("n_references", [None, 4])
def test_no_row_and_no_reference_is_scored_by_a_fold_that_trained_on_it(monkeypatch, model, n_references):
    X, codes = problem(n=180)
    spy = Spy(monkeypatch)
    pairs = PairSolver(n_references=n_references) if model == "pairwise" else None
    fitted, held_out = cross_fit(X, codes, splits_of(codes), config(model), [1, 2, 3], pairs=pairs)
    assert spy.overlaps == 0
    assert len(spy.scored) == len(set(spy.scored)) == len(X)
    assert np.array_equal(held_out.rows, np.arange(len(X)))
    if pairs is not None:
        per_fold = 180 if n_references is None else 3 * 3 * n_references
        assert len(spy.references) == len(set(spy.references)) == per_fold
    # The spy does see: new rows are scored by all folds, and these rows are not new to them.
    fitted.posteriors(X)
    assert spy.overlaps > 0


class ConstantFold:
    """A trained fold that says the same of every row."""

    interrupted, members = False, ()

    def __init__(self, p):
        self.p = np.asarray(p)


def test_new_rows_get_the_mean_of_the_folds(monkeypatch):
    monkeypatch.setattr(bridge, "posteriors", lambda fold, X: np.tile(fold.p, (len(X), 1)))
    folds = [ConstantFold([0.9, 0.1]), ConstantFold([0.5, 0.5])]
    fitted = CrossFit(folds, np.zeros(1), np.ones(1), np.array([0.5, 0.5]), None)
    assert fitted.posteriors(np.zeros((3, 1))) == pytest.approx(np.tile([0.7, 0.3], (3, 1)))


@pytest.mark.parametrize("solver", ["simplex", "inverse"])
@pytest.mark.parametrize("name", ["dominant", "two classes"])
def test_exact_similarities_are_solved_for_the_posteriors_behind_them(solver, name):
    """q = S y at uniform priors; the answer at others is the shifted y."""
    S = ZOO[name][0]
    k = len(S)
    uniform, priors = np.full(k, 1 / k), np.arange(1, k + 1) / (k * (k + 1) / 2)
    y, _ = random_posteriors(np.random.default_rng(0), 50, k)
    solved = PairSolver(solver=solver, matrix=S).solve(y @ S.T, priors)
    assert solved == pytest.approx(shift_priors(y, uniform, priors), abs=1e-6)


def test_the_inverse_is_cut_to_the_simplex_where_noise_took_it_out():
    S = np.array([[0.6, 0.4], [0.4, 0.6]])
    solved = PairSolver(solver="inverse", matrix=S).solve(np.array([[0.9, 0.1], [0.1, 0.9]]), np.array([0.5, 0.5]))
    assert solved == pytest.approx(np.eye(2))


def test_noisy_similarities_get_a_ridge_and_exact_ones_none():
    rng = np.random.default_rng(0)
    S = np.full((3, 3), 0.3) + 0.1 * np.eye(3)
    y, codes = random_posteriors(rng, 2000, 3, sharpness=1.0)
    priors = np.full(3, 1 / 3)
    exact, noisy = PairSolver(matrix=S), PairSolver(matrix=S)
    exact.choose_ridge(y @ S.T, codes, priors)
    noisy.choose_ridge(y @ S.T + rng.normal(0, 0.1, y.shape), codes, priors)
    assert exact.ridge < noisy.ridge
    assert noisy.ridge in RIDGES


def test_so_many_references_of_each_class_are_drawn_and_all_when_there_are_fewer():
    codes = np.repeat([0, 1, 2], [50, 20, 3])
    rows = PairSolver(n_references=5).choose_references(codes, np.random.default_rng(0))
    assert np.bincount(codes[rows]).tolist() == [5, 5, 3]
    assert len(set(rows)) == 13
    assert np.array_equal(PairSolver().choose_references(codes, np.random.default_rng(0)), np.arange(73))
    other = PairSolver(n_references=5).choose_references(codes, np.random.default_rng(1))
    assert set(rows) != set(other)


def counting_interrupt(monkeypatch, at):
    """Ctrl-C in the epoch number ``at``, counted over all folds."""
    from collidescope.training import loop as training

    original, calls = training.run_epoch, []

    def run_epoch(*arguments):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(training, "run_epoch", run_epoch)


@pytest.mark.parametrize("model", ["factorised", "pairwise"])
@pytest.mark.parametrize(("at", "kept"), [(4, 1), (5, 2), (7, 2), (8, 3)])
def test_after_ctrl_c_exactly_the_folds_with_a_trained_model_are_kept(monkeypatch, model, at, kept):
    """Three epochs a fold: Ctrl-C in the first epoch of a fold leaves nothing of it, later its best weights."""
    X, codes = problem(n=180)
    splits = splits_of(codes)
    counting_interrupt(monkeypatch, at)
    pairs = PairSolver() if model == "pairwise" else None
    fitted, held_out = cross_fit(X, codes, splits, config(model, patience=0), [1, 2, 3], pairs=pairs)
    assert fitted.interrupted
    assert len(fitted.folds) == kept
    assert np.array_equal(held_out.rows, np.sort(np.concatenate([test for _, test in splits[:kept]])))
    assert np.isfinite(held_out.posteriors).all()
    assert fitted.posteriors(X[:5]).sum(axis=1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize("model", ["factorised", "pairwise"])
def test_ctrl_c_before_anything_was_trained_is_passed_on(monkeypatch, model):
    X, codes = problem(n=180)
    counting_interrupt(monkeypatch, 1)
    pairs = PairSolver() if model == "pairwise" else None
    with pytest.raises(KeyboardInterrupt):
        cross_fit(X, codes, splits_of(codes), config(model), [1, 2, 3], pairs=pairs)


def test_ctrl_c_outside_the_epochs_keeps_the_folds_too(monkeypatch):
    X, codes = problem()
    original, calls = bridge.train_fold, []

    def train_fold(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(bridge, "train_fold", train_fold)
    fitted, _ = cross_fit(X, codes, splits_of(codes), config(), [1, 2, 3])
    assert fitted.interrupted
    assert len(fitted.folds) == 2


def test_other_errors_in_a_fold_are_not_swallowed():
    X, codes = problem()
    with pytest.raises(FloatingPointError, match="learning_rate"):
        cross_fit(X, codes, splits_of(codes), config(learning_rate=1e30), [1, 2, 3])


def test_classes_too_small_for_pairs_are_named_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(bridge, "train_fold", lambda *_: pytest.fail("trained"))
    codes = np.repeat([0, 1], [200, 3])
    with pytest.raises(ValueError, match=r"cv=2 needs about 40 members of every class, class 'rare' has 3"):
        check_pair_members(codes, np.array(["common", "rare"]), splits_of(codes, 2), config("pairwise"), [1, 2])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cv", [2, 5])
def test_the_number_of_members_the_message_asks_for_is_enough(cv, seed):
    need = {2: 40, 5: 25}[cv]
    codes = np.repeat([0, 1], [200, need])
    splits = list(StratifiedKFold(cv, shuffle=True, random_state=seed).split(codes, codes))
    check_pair_members(codes, np.array(["common", "rare"]), splits, config("pairwise"), list(range(seed, seed + cv)))
    X = np.random.default_rng(seed).normal(size=(len(codes), 2)).astype(np.float32)
    train = splits[0][0]
    fold = bridge.train_fold(X[train], codes[train], 2, config("pairwise", max_epochs=1), seed)
    assert isinstance(fold, PairwiseFoldModel)


@pytest.mark.parametrize("model", ["factorised", "pairwise"])
def test_an_exported_fit_comes_back_with_the_same_scores(model):
    X, codes = problem(n=180)
    pairs = PairSolver(n_references=6) if model == "pairwise" else None
    fitted, _ = cross_fit(X, codes, splits_of(codes), config(model), [1, 2, 3], pairs=pairs)
    back = CrossFit.from_export(*fitted.export(), factory=None)
    assert np.array_equal(back.posteriors(X), fitted.posteriors(X))
    if model == "pairwise":
        assert np.array_equal(back.pair_similarity(X[:9], X[:7]), fitted.pair_similarity(X[:9], X[:7]))


def test_references_keep_their_weights_and_means_are_weighted():
    """They were averaged as if every row weighed the same."""
    X, codes = problem(n=180)
    weight = np.where(X[:, 0] > np.median(X[:, 0]), 3.0, 0.5)
    pairs = PairSolver(n_references=20)
    given = {"sample_weight": weight, "pairs": pairs, "rng": np.random.default_rng(0)}
    fitted, _ = cross_fit(X, codes, splits_of(codes), config("pairwise"), [1, 2, 3], **given)
    rows, own, weights = pairs.references[0]
    assert set(np.unique(weights)) == {0.5, 3.0}
    new = problem(n=12, seed=5)[0]
    held = fitted._hold(new)
    sims = bridge.pair_similarity(fitted.folds[0], held, rows, True)
    q = bridge.class_similarity(fitted.folds[0], held, rows, own, weights, None, True)[0]
    expected = np.stack([np.average(sims[:, own == k], axis=1, weights=weights[own == k]) for k in range(3)], axis=1)
    assert q == pytest.approx(expected, abs=1e-6)
    arrays, description = fitted.export()
    back = CrossFit.from_export(arrays, description, factory=None)
    assert np.array_equal(back.posteriors(new), fitted.posteriors(new))
    for bad in (weights * 0, weights[:-1], np.full_like(weights, np.nan)):
        with pytest.raises(ValueError, match="weights"):
            CrossFit.from_export(arrays | {"pairs/1/weights": bad}, description, factory=None)


def test_a_fold_is_untrained_only_when_ctrl_c_came_before_its_first_epoch():
    import torch

    def fold(interrupted, *histories):
        members = [Member(str(i), StackedMLP(1, 2, 2), {}, list(h)) for i, h in enumerate(histories)]
        return FoldModel(members, 2, (2,), torch.ones(2) / 2, False, interrupted)

    epoch = {"epoch": 1}
    assert not bridge.is_trained(fold(True, []))
    assert bridge.is_trained(fold(True, [epoch]))
    assert bridge.is_trained(fold(True, [], []))  # a regression that was fitted, then a network that was not
    assert bridge.is_trained(fold(False, []))


def test_auto_is_a_device_that_works_and_nonsense_is_refused_with_the_reason():
    assert bridge.resolve_device("auto") in ("cpu", "cuda")
    assert bridge.resolve_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="device 'nonsense' cannot be used here"):
        bridge.resolve_device("nonsense")


def test_very_many_posteriors_are_kept_in_float32_and_give_the_same_matrix(monkeypatch):
    X, y = scenario_a(4).sample(400, 0)
    settings = {"hidden_layer_sizes": (8,), "max_epochs": 2, "cv": 2, "random_state": 0, "priors": "uniform"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        double = CollisionClassifier(**settings).fit(X, y)
        monkeypatch.setattr(crossfit, "DOUBLE_NUMBERS", 100)
        monkeypatch.setattr(crossfit, "SCORED_NUMBERS", 50)
        single = CollisionClassifier(**settings).fit(X, y)
    assert double.posteriors_.dtype == np.float64
    assert single.posteriors_.dtype == np.float32
    assert single.posteriors_ == pytest.approx(double.posteriors_, abs=1e-6)
    assert single.collision_matrix_.matrix == pytest.approx(double.collision_matrix_.matrix, abs=1e-6)
    assert single.gramian_ == pytest.approx(double.gramian_, abs=1e-6)
