"""Cross-fitting: held-out scores and weights, nested subsets, pair-wise posteriors, Ctrl-C, files."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from collidescope import CollisionClassifier, crossfit
from collidescope.crossfit import PoolFit, fit_pool
from collidescope.folds import (
    Labels,
    Plan,
    Standardised,
    handle_rare,
    nested_splits,
    resolve_splits,
)
from collidescope.learners import recipes_for
from collidescope.learners.base import Foreign
from collidescope.pairwise.algorithms import (
    RIDGES,
    PairFit,
    PairModel,
    check_pair_members,
    fit_pairs,
)
from collidescope.pairwise.pairs import PairObjective
from helpers import random_posteriors


def problem(n=120, k=3, d=2, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.sort(np.arange(n) % k)
    return rng.normal(size=(n, d)) + 1.5 * codes[:, None], codes


def splits_of(codes, cv=3):
    return resolve_splits(cv, codes, np.unique(codes), 0)[0]


class Spy(LogisticRegression):
    """A classifier that remembers the rows it was trained on, and counts those that it meets again when it scores."""

    met = 0
    scored: list[bytes] = []  # noqa: RUF012 - shared by all clones on purpose

    def fit(self, X, y, sample_weight=None):
        self.seen_ = {row.tobytes() for row in X}
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X):
        rows = [row.tobytes() for row in X]
        Spy.met += sum(row in self.seen_ for row in rows)
        Spy.scored += rows
        return super().predict_proba(X)


def plan_of(X, codes, votes=None, cv=3, **training):
    labels = Labels(codes, int(codes.max()) + 1, None, votes)
    return Plan(Standardised.of(X), labels, splits_of(codes, cv), [1, 2, 3][:cv], training=training)


def pooled(X, codes, recipes, votes=None):
    return fit_pool(plan_of(X, codes, votes), recipes)


def test_no_label_takes_part_in_scoring_its_own_row(monkeypatch):
    """Neither through a model that was trained on the row, nor through the weights of the members."""
    X, codes = problem(n=180)
    Spy.met, Spy.scored, met, original = 0, [], [], crossfit.pool_weights
    monkeypatch.setattr(
        crossfit, "pool_weights", lambda logs, *rest: met.append(logs) or original(logs, *rest)
    )
    fitted, held_out = pooled(X, codes, recipes_for([("spy", Spy()), "linear"], None, 120, (2,), 3))
    assert Spy.met == 0
    assert len(Spy.scored) == len(set(Spy.scored)) == 180
    assert np.array_equal(held_out.rows, np.arange(180))
    tests = [test for _, test in splits_of(codes)]
    assert [logs.shape[1] for logs in met] == [180 - len(test) for test in tests] + [180]
    everything, *used = (
        {row.tobytes() for row in logs.transpose(1, 0, 2)} for logs in (met[-1], *met[:-1])
    )
    assert [len(everything - rows) for rows in used] == [len(test) for test in tests]
    fitted.posteriors(X)  # the spy does see: these rows are not new to all folds
    assert Spy.met > 0


def test_votes_teach_as_rows_of_their_weight_would():
    X, codes = problem(n=90)
    votes = np.zeros((90, 3))
    votes[np.arange(90), codes] = 3
    votes[np.arange(90), (codes + 1) % 3] = 1
    _, soft = pooled(
        X, codes, recipes_for([("mine", LogisticRegression())], None, 60, (2,), 3), votes
    )
    Z, P = Standardised.of(X).X, np.empty((90, 3))
    for train, test in splits_of(codes):
        both = np.concatenate([train, train])
        y = np.concatenate([codes[train], (codes[train] + 1) % 3])
        model = LogisticRegression().fit(Z[both], y, np.repeat([1.5, 0.5], len(train)))
        P[test] = model.predict_proba(Z[test])
    assert soft.posteriors == pytest.approx(P, abs=2e-3)


def test_new_rows_get_the_mean_of_the_folds_of_members_with_skill_also_from_an_export():
    X, codes = problem(n=600)
    dull = DummyClassifier(strategy="stratified", random_state=0)
    fitted, _ = pooled(X, codes, recipes_for(["neighbours", ("dull", dull)], None, 400, (2,), 3))
    assert all(list(kept) == ["neighbours"] for kept in (fitted.weights, *fitted.folds))
    fitted.weights["neighbours"] = 1.0
    Z = Standardised.of(X, fitted.centre, fitted.scale).X
    each = [np.exp(fold["neighbours"].log_posteriors(Z)) for fold in fitted.folds]
    assert fitted.posteriors(X) == pytest.approx(np.mean(each, axis=0), abs=1e-9)
    tree = fitted.export()
    assert np.array_equal(PoolFit.restore(tree).posteriors(X), fitted.posteriors(X))
    tree["folds"][0].clear()
    with pytest.raises(ValueError, match="every fold must hold the members"):
        PoolFit.restore(tree)
    wrong = recipes_for([("a", Contrary()), ("b", Contrary(C=0.1))], None, 400, (2,), 3)
    fitted, _ = pooled(X, codes, wrong)  # nobody has skill: all count the same
    assert all(
        weights == {"a": 0.5, "b": 0.5} for weights in (fitted.weights, *fitted.fold_weights)
    )


class Contrary(LogisticRegression):
    def predict_proba(self, X):
        return (1 - super().predict_proba(X)) / 2


class Interrupted(LogisticRegression):
    """Ctrl-C in the n-th fit."""

    left = 0

    def fit(self, X, y, sample_weight=None):
        Interrupted.left -= 1
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize(("at", "folds", "members"), [(2, 1, 1), (4, 1, 2), (6, 2, 2)])
def test_after_ctrl_c_whole_folds_are_kept_or_else_what_the_first_has(at, folds, members):
    X, codes = problem()
    Interrupted.left = at
    recipes = [Foreign(name, Interrupted()) for name in ("a", "b")]
    fitted, held_out = pooled(X, codes, recipes)
    assert fitted.interrupted
    assert (len(fitted.folds), len(fitted.fold_weights[0])) == (folds, members)
    assert np.array_equal(
        held_out.rows, np.sort(np.concatenate([test for _, test in splits_of(codes)[:folds]]))
    )
    Interrupted.left = 1  # before anything was trained it is passed on
    with pytest.raises(KeyboardInterrupt):
        pooled(X, codes, recipes)


def test_given_folds_keep_groups_apart_joined_classes_have_a_name_of_their_own_and_equal_weights_are_none():
    X, codes = problem(n=120)
    fit = CollisionClassifier(
        members=["forest"], limit=False, random_state=0, cv=KFold(3, shuffle=True, random_state=0)
    )
    with pytest.raises(ValueError, match=r"cv has .* of the groups on both sides of fold 0"):
        fit.fit(X, codes, groups=np.arange(120) % 40)
    with pytest.raises(ValueError, match="y has one of that name"):
        handle_rare(np.array(["other classes"] * 4 + ["s", "t"]), np.arange(6), "merge", [])
    plain, even = (
        clone(fit).fit(X, codes, sample_weight=w).posteriors_ for w in (None, np.full(120, 0.1))
    )
    np.testing.assert_array_equal(plain, even)


def test_subsets_are_nested_stratified_and_hold_every_class_or_whole_groups():
    codes = np.repeat([0, 1, 2], [200, 90, 10])
    splits = splits_of(codes)
    parts = {f: nested_splits(splits, codes, f, 7) for f in (0.125, 0.25, 0.5)}
    for number, (train, test) in enumerate(splits):
        inner = set()
        for f, smaller in parts.items():
            rows, same = smaller[number]
            assert np.array_equal(same, test)
            assert inner <= set(rows) <= set(train)
            assert len(rows) == np.ceil(f * len(train))
            share = np.bincount(codes[rows], minlength=3) / len(rows)
            assert share == pytest.approx(np.bincount(codes[train]) / len(train), abs=0.06)
            assert share.min() > 0
            inner = set(rows)
    assert nested_splits(splits, codes, 0.01, 7) is None
    codes, groups = np.tile([0, 1], 150), np.repeat(np.arange(30), 10)
    splits, _ = resolve_splits(3, codes, np.arange(2), 0, groups=groups)
    for (train, test), (rows, _) in zip(
        splits, nested_splits(splits, codes, 0.5, 1, groups), strict=True
    ):
        assert not set(groups[train]) & set(groups[test])
        counts = np.bincount(groups[rows], minlength=30)
        assert (
            (counts > 0) & (counts < 10)
        ).sum() <= 3  # one is cut at the end, two gave the first row of a class


def paired(X, codes, n_references=None, **changes):
    settings = {"hidden_layer_sizes": (8,), "max_epochs": 3} | changes
    return fit_pairs(plan_of(X, codes, **settings), n_references=n_references)


@pytest.mark.parametrize("n_references", [None, 4])
def test_references_are_held_out_rows_and_never_the_row_itself(monkeypatch, n_references):
    X, codes = problem(n=180)
    seen = []
    original = PairModel.class_similarity

    def spy(self, rows, references, own, correction):
        seen.append((np.asarray(rows), references.rows, own))
        return original(self, rows, references, own, correction)

    monkeypatch.setattr(PairModel, "class_similarity", spy)
    fitted, held_out = paired(X, codes, n_references)
    Z = Standardised.of(X).X
    for (rows, references, exclude), (_, test), kept in zip(
        seen, splits_of(codes), fitted.references, strict=True
    ):
        assert np.array_equal(rows, Z[test])
        held = {row.tobytes() for row in Z[test]}
        assert all(row.tobytes() in held for row in references)
        assert np.array_equal(rows[exclude >= 0], references[exclude[exclude >= 0]])
        assert np.bincount(kept.codes).tolist() == [n_references or 20] * 3
    assert held_out.posteriors.sum(axis=1) == pytest.approx(np.ones(180))


def test_noisy_similarities_get_a_ridge_and_exact_ones_none():
    S = np.array([[0.55, 0.45], [0.45, 0.55]])
    rng = np.random.default_rng(0)
    Y, codes = random_posteriors(rng, 2000, 2)
    fit = PairFit([], np.zeros(1), np.ones(1), np.full(2, 0.5), matrix=S)
    fit.choose_ridge(Y @ S.T, codes)
    assert fit.ridge == RIDGES[0]
    fit.choose_ridge(Y @ S.T + 0.05 * rng.standard_normal((2000, 2)), codes)
    assert fit.ridge > 0


def test_classes_too_small_for_pairs_are_named_before_anything_is_trained():
    codes, names = np.repeat([0, 1, 2], [60, 60, 12]), np.array(["a", "b", "c"])
    with pytest.raises(
        ValueError, match=r"cv=2 needs about 40 members of every class, class 'c' has 12"
    ):
        check_pair_members(plan_of(codes[:, None], codes, cv=2), names)
    check_pair_members(plan_of(codes[:, None], codes, cv=2, patience=0), names)


def test_without_early_stopping_the_pairs_come_from_all_training_rows(monkeypatch):
    X, codes = problem()
    sizes = []
    original = PairObjective.__init__

    def spy(self, rows, y, split, *rest):
        sizes.append([len(part) for part in split])
        original(self, rows, y, split, *rest)

    monkeypatch.setattr(PairObjective, "__init__", spy)
    fits = [
        paired(X, codes, patience=patience, hidden_layer_sizes="auto")[0] for patience in (0, 2)
    ]
    assert [each.weight for each in fits[0].folds[0].networks] == [
        0.5,
        0.5,
    ]  # no held-out loss tells them apart
    assert sizes == [[80, 0]] * 3 + [[72, 8]] * 3


def test_an_export_of_pairs_is_restored_as_it_was_and_refused_where_its_parts_do_not_fit():
    X, codes = problem()
    fitted = paired(X, codes, n_references=6, dropout=0.2)[0]
    tree = fitted.export()
    assert np.array_equal(PairFit.restore(tree).posteriors(X), fitted.posteriors(X))
    with pytest.raises(ValueError, match="every fold must have its references"):
        PairFit.restore(tree | {"references": tree["references"][1:]})
    tree["folds"][0]["networks"][0]["sizes"] = [4096]
    with pytest.raises(ValueError, match="does not fit the weights"):
        PairFit.restore(tree)
