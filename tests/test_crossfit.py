"""Cross-fitting: held-out scores and weights, nested subsets, pair-wise posteriors, Ctrl-C, files."""

import os
import pickle
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from joblib import parallel_config, register_parallel_backend
from joblib._parallel_backends import ThreadingBackend
from joblib.externals.loky import get_reusable_executor
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from collidescope import CollisionClassifier, CollisionWarning, Pairwise, crossfit
from collidescope import folds as folds_module
from collidescope._progress import Progress
from collidescope._saving import from_tree, to_tree
from collidescope.crossfit import (
    Ahead,
    Choice,
    Engine,
    cross_fit,
    learns_from_few,
    make_task,
    train_folds,
    train_unit,
)
from collidescope.estimate import estimate
from collidescope.folds import (
    Folds,
    enough_folds,
    make_folds,
    nested_splits,
    resolve_splits,
    run_units,
    sharing_folds,
)
from collidescope.learners.softmax import Priors
from collidescope.models import as_model, models_for
from collidescope.pairwise.algorithms import (
    RIDGES,
    PairModel,
    best_ridge,
    check_pair_members,
)
from collidescope.pairwise.pairs import PairObjective
from collidescope.sample import handle_rare, make_sample
from collidescope.saving import SavedEnsemble
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


def fitted_to(X, codes, members, votes=None, cv=3, **training):
    """The cross-fit of all rows in folds whose seeds are known."""
    sample = make_sample(X, codes if votes is None else votes)
    folds = Folds(splits_of(codes, cv), [1, 2, 3][:cv])
    models = [as_model(entry) for entry in members]
    return cross_fit(
        sample, models, folds, limit=False, engine=Engine(training=training)
    )


def test_no_label_takes_part_in_scoring_its_own_row(monkeypatch):
    """Neither through a model that was trained on the row, nor through the weights of the members."""
    X, codes = problem(n=180)
    Spy.met, Spy.scored, met, original = 0, [], [], crossfit.pool_weights
    monkeypatch.setattr(
        crossfit,
        "pool_weights",
        lambda logs, *rest: met.append(logs) or original(logs, *rest),
    )
    fit = fitted_to(X, codes, [("spy", Spy()), "linear"])
    assert Spy.met == 0
    assert len(Spy.scored) == len(set(Spy.scored)) == 180
    assert np.array_equal(fit.held_out.rows, np.arange(180))
    tests = [test for _, test in splits_of(codes)]
    assert [logs.shape[1] for logs in met] == [180 - len(test) for test in tests] + [
        180
    ]
    everything, *used = (
        {row.tobytes() for row in logs.transpose(1, 0, 2)}
        for logs in (met[-1], *met[:-1])
    )
    assert [len(everything - rows) for rows in used] == [len(test) for test in tests]
    fit.ensemble.posteriors(X)  # the spy does see: these rows are not new to all folds
    assert Spy.met > 0


def test_votes_teach_as_rows_of_their_weight_would():
    X, codes = problem(n=90)
    votes = np.zeros((90, 3))
    votes[np.arange(90), codes] = 3
    votes[np.arange(90), (codes + 1) % 3] = 1
    soft = fitted_to(X, codes, [LogisticRegression()], votes).held_out
    Z = make_sample(X, codes).X
    P = np.empty((90, 3))
    for train, test in splits_of(codes):
        both = np.concatenate([train, train])
        y = np.concatenate([codes[train], (codes[train] + 1) % 3])
        model = LogisticRegression().fit(Z[both], y, np.repeat([1.5, 0.5], len(train)))
        P[test] = model.predict_proba(Z[test])
    assert soft.posteriors == pytest.approx(P, abs=2e-3)


@pytest.fixture(scope="module")
def neighbours():
    """Rows, and an ensemble of a member with skill and one without."""
    X, codes = problem(n=600)
    dull = DummyClassifier(strategy="stratified", random_state=0)
    return X, fitted_to(X, codes, ["neighbours", ("dull", dull)]).ensemble


def test_members_without_skill_have_no_part_in_the_ensemble(neighbours):
    _, fitted = neighbours
    assert all(list(kept) == ["neighbours"] for kept in (fitted.weights, *fitted.folds))


def test_new_rows_get_the_mean_of_the_folds(neighbours):
    X, fitted = neighbours
    alone = replace(fitted, weights={"neighbours": 1.0})
    Z = fitted.scaling.standardised(X)
    each = [np.exp(fold["neighbours"].log_posteriors(Z)) for fold in fitted.folds]
    assert alone.posteriors(X) == pytest.approx(np.mean(each, axis=0), abs=1e-9)


def test_an_export_without_the_members_of_a_fold_is_refused(neighbours):
    tree = to_tree(SavedEnsemble.of(neighbours[1]))
    tree["folds"][0].clear()
    with pytest.raises(ValueError, match="every fold must hold the members"):
        from_tree(SavedEnsemble, tree).restored(None)


def test_members_count_the_same_where_none_has_skill():
    X, codes = problem(n=600)
    fit = fitted_to(X, codes, [("a", Contrary()), ("b", Contrary(C=0.1))])
    equal = {"a": 0.5, "b": 0.5}
    assert all(
        weights == equal for weights in (fit.ensemble.weights, *fit.fold_weights)
    )


def test_a_pool_of_one_is_that_model_also_where_a_posterior_is_zero():
    logs = np.log(np.array([[[0.25, 0.75], [0.5, 0.5]]]))
    logs[0, 1] = [-np.inf, 0.0]
    assert_allclose(crossfit.pool(logs, [1.0]), [[0.25, 0.75], [0.0, 1.0]], rtol=1e-15)


def test_a_unit_gives_the_same_scores_alone_as_among_others():
    X, codes = problem()
    sample = make_sample(X, codes)
    folds = make_folds(sample, 3, random_state=0)
    models = [as_model(name) for name in ("forest", "linear", "kernel")]
    task = make_task(sample, folds, Engine(), 1)
    test = sample.take(folds.splits[1][1])
    with Progress("training folds", 3, verbose=0) as progress:
        together, _ = train_folds(sample, models, folds, Engine(), progress)
    for model in reversed(models):
        alone = train_unit(model, task, test)
        assert_array_equal(alone.scores, together[1][model.name].scores)


def test_members_may_be_plain_classifiers():
    X, codes = problem()
    fit = fitted_to(X, codes, [LogisticRegression(), "linear"])
    assert list(fit.fold_weights[0]) == ["logisticregression", "linear"]


def test_pairs_can_be_pooled_with_other_members():
    X, codes = problem(n=180)
    settings = {"hidden_layer_sizes": (8,), "max_epochs": 10, "learning_rate": 0.01}
    both = fitted_to(X, codes, [Pairwise(), "linear"], **settings)
    assert set(both.fold_weights[0]) == {"pairwise", "linear"}
    assert both.ensemble.comparison is None  # S is that of the pool
    P = both.ensemble.posteriors(X)
    assert P.sum(axis=1) == pytest.approx(np.ones(180))
    assert (P.argmax(axis=1) == codes).mean() > 0.6


class LinearAlone(Choice):
    """Trains the linear member alone on fewer rows."""

    def __init__(self):
        self.seen = []

    def at_smaller_size(self, whole, size):
        self.seen.append((list(whole.fold_weights[0]), size))
        return ["linear"]


def test_a_choice_decides_which_members_smaller_sizes_train():
    X, codes = problem()
    sample = make_sample(X, codes)
    folds = make_folds(sample, 2, random_state=0)
    choice = LinearAlone()
    models = [as_model("linear"), as_model("forest")]
    fit = cross_fit(sample, models, folds, choice=choice)
    sizes = [held_out.size for held_out in fit.curve[-2::-1]]
    assert choice.seen == [(["linear", "forest"], size) for size in sizes]


def test_a_spent_budget_warns_of_the_sizes_left_out():
    X, codes = problem(n=300)
    clf = CollisionClassifier(members=["linear"], cv=2, budget=1e-9, random_state=0)
    with pytest.warns(
        CollisionWarning, match=r"the budget of 1e-09 s was spent .* 75, 38, 19 rows"
    ):
        clf.fit(X, codes)
    assert clf.limit_ is None


def test_a_generator_is_as_good_a_seed_as_a_number():
    X, codes = problem()
    first, again, other = (
        CollisionClassifier(members=["forest"], cv=2, limit=False, random_state=own)
        .fit(X, codes)
        .posteriors_
        for own in map(np.random.default_rng, (0, 0, 1))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.fixture(scope="module")
def in_turn():
    return everything(n_jobs=1)


def everything(n_jobs):
    X, codes = problem(n=240)
    members = ["linear", "forest", "trees", "smooth"]
    return CollisionClassifier(
        members=members, cv=2, n_jobs=n_jobs, random_state=0
    ).fit(X, codes)


@pytest.fixture
def processes_for_all(monkeypatch):
    """Processes are started for the least work."""
    monkeypatch.setattr(crossfit.jobs_for, "__defaults__", (0.0,))


def assert_same_fit(one, other):
    S = other.collision_matrix_.matrix
    assert np.array_equal(one.collision_matrix_.matrix, S)


@pytest.mark.usefixtures("processes_for_all")
@pytest.mark.parametrize("n_jobs", [2, -1])
def test_any_number_of_jobs_gives_the_same_s(in_turn, n_jobs):
    clf = everything(n_jobs)
    assert_same_fit(clf, in_turn)
    assert clf.member_weights_ == in_turn.member_weights_
    assert clf.limit_.pber == in_turn.limit_.pber


class AllAtOnce(ThreadingBackend):
    """A back end that returns nothing before it has everything, as those of Ray and Spark."""

    supports_return_generator = False


@pytest.mark.usefixtures("processes_for_all")
def test_a_back_end_of_joblib_without_generators_gives_the_same_s(in_turn):
    register_parallel_backend("all at once", AllAtOnce)
    with parallel_config("all at once", n_jobs=2):
        assert_same_fit(everything(n_jobs=2), in_turn)


def test_little_work_starts_no_process(in_turn, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a process was started")

    monkeypatch.setattr(folds_module, "Parallel", refuse)
    assert_same_fit(everything(n_jobs=2), in_turn)
    # What a classifier of the user costs is not known, so that it is work for processes.
    with pytest.raises(AssertionError, match="was started"):
        CollisionClassifier(members=[LogisticRegression()], n_jobs=2).fit(*problem())


def calls_of(monkeypatch, names, n_jobs):
    """The units of two folds in the order in which they begin."""
    seen = []

    def run_units(calls, *arguments):
        seen.extend(calls)
        return [call(None) for call in calls], False

    monkeypatch.setattr(crossfit, "run_units", run_units)
    sample = make_sample(*problem(n=300))
    folds = make_folds(sample, 2, random_state=0)
    models = models_for(names, sample, folds)
    with Progress("training folds", 2, verbose=0) as progress:
        trained, _ = train_folds(sample, models, folds, Engine(n_jobs=n_jobs), progress)
    assert [list(units) for units in trained] == [names, names]
    return seen


@pytest.mark.usefixtures("processes_for_all")
def test_processes_begin_with_the_units_that_take_longest(monkeypatch):
    names = ["priors", "trees", "linear"]
    by_cost = ["trees", "linear", "priors"]
    begun = [call.model.name for call in calls_of(monkeypatch, names, n_jobs=2)]
    assert begun == [*by_cost, *by_cost]
    in_turn = [call.model.name for call in calls_of(monkeypatch, names, n_jobs=1)]
    assert in_turn == [*names, *names]


def test_a_unit_is_sent_with_its_own_model_alone(monkeypatch):
    """A process that trains no network then imports no torch, which takes it a second."""
    for call in calls_of(monkeypatch, ["linear", "network"], n_jobs=1):
        needs_torch = b"learners.network" in pickle.dumps(call)
        assert needs_torch == (call.model.name == "network")


def test_folds_trained_ahead_are_kept_after_ctrl_c_as_far_as_they_are_whole():
    sample = make_sample(*problem())
    folds = make_folds(sample, 3, random_state=0)
    models = models_for(["priors", "linear"], sample, folds)
    with Progress("training folds", 3, verbose=0) as progress:
        done, _ = train_folds(sample, models, folds, Engine(), progress)
        units = {(1.0, 0, name): unit for name, unit in done[0].items()}
        units[1.0, 1, "linear"] = done[1]["linear"]
        stopped = Ahead(units, interrupted=True)
        kept, interrupted = train_folds(
            sample, models, folds, Engine(), progress, ahead=stopped
        )
        assert interrupted
        assert [list(fold) for fold in kept] == [["priors", "linear"], ["linear"]]
        nothing = Ahead(interrupted=True)
        with pytest.raises(KeyboardInterrupt):
            train_folds(sample, models, folds, Engine(), progress, ahead=nothing)


@pytest.mark.parametrize(
    ("enough", "many", "n_trained"),
    [(25, 100, 3), (25, 101, 10), (5, 100, 2)],
    ids=["enough in three", "few rows", "enough in one"],
)
def test_no_more_folds_are_trained_than_give_enough_held_out_rows(
    enough, many, n_trained
):
    folds = make_folds(make_sample(*problem(n=100)), 10, random_state=0)
    fewer = enough_folds(folds, enough=enough, many=many)
    assert [len(test) for _, test in fewer.splits] == [10] * n_trained
    said = f"held-out rows are enough: {n_trained} of 10 folds are trained"
    assert any(said in note for note in fewer.notes) == (n_trained < 10)


@pytest.mark.parametrize(
    ("n_rows", "weights", "flat"),
    [
        (30_000, {"neighbours": 0.7, "linear": 0.3}, True),
        (30_000, {"neighbours": 0.4, "linear": 0.6}, False),
        (10_000, {"neighbours": 1.0}, False),
        (50_000, {"gaussian": 1.0}, False),
    ],
)
def test_a_pool_that_learns_from_a_sample_of_the_rows_is_capped(n_rows, weights, flat):
    models = [as_model(name) for name in weights]
    assert learns_from_few(models, weights, n_rows) == flat


@pytest.mark.parametrize(("d", "k", "n_models"), [(60, 4, 1), (12, 12, 4)])
def test_a_fit_takes_no_more_memory_than_the_page_on_scale_says(d, k, n_models, rng):
    n = 30_000
    X = rng.normal(size=(n, d))
    y = (X[:, :k] + rng.gumbel(size=(n, k))).argmax(axis=1)
    names = ["linear", "priors", "gaussian-independent", "counts"][:n_models]
    clf = CollisionClassifier(members=names, random_state=0)
    tracemalloc.start()
    try:
        clf.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < n * (200 + 20 * d + 32 * (n_models + 1) * k) + 32e6


def test_rows_of_folds_that_are_not_needed_have_no_posteriors(monkeypatch):
    X, codes = problem(n=300)
    monkeypatch.setattr(enough_folds, "__defaults__", (150, 300))
    clf = CollisionClassifier(members=["linear"], random_state=0)
    with pytest.warns(CollisionWarning, match="180 held-out rows are enough") as said:
        clf.fit(X, codes)
    assert "interrupted" not in str(said[0].message)
    assert np.isnan(clf.posteriors_).all(axis=1).sum() == 120
    assert clf.limit_ is not None
    assert clf.collision_matrix_.counts.sum() == 180


def test_fewer_folds_give_the_range_of_their_rows_also_with_votes(monkeypatch):
    X, codes = problem(n=300)
    votes = np.eye(3)[codes] * 2
    monkeypatch.setattr(enough_folds, "__defaults__", (150, 300))
    fit = CollisionClassifier(members=["linear"], random_state=0)
    with pytest.warns(CollisionWarning, match="are enough"):
        fit.fit(X, votes)
    assert fit.limit_ is not None


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
def test_after_ctrl_c_whole_folds_are_kept_or_else_what_the_first_has(
    at, folds, members
):
    X, codes = problem()
    Interrupted.left = at
    entries = [(name, Interrupted()) for name in ("a", "b")]
    fit = fitted_to(X, codes, entries)
    assert fit.interrupted
    assert (len(fit.ensemble.folds), len(fit.fold_weights[0])) == (folds, members)
    assert np.array_equal(
        fit.held_out.rows,
        np.sort(np.concatenate([test for _, test in splits_of(codes)[:folds]])),
    )
    Interrupted.left = 1  # before anything was trained it is passed on
    with pytest.raises(KeyboardInterrupt):
        fitted_to(X, codes, entries)


@pytest.fixture
def given_folds():
    """A classifier with a splitter of its own."""
    return CollisionClassifier(
        members=["forest"],
        limit=False,
        random_state=0,
        cv=KFold(3, shuffle=True, random_state=0),
    )


def test_given_folds_must_keep_groups_together(given_folds):
    said = r"cv has .* of the groups on both sides of fold 0"
    with pytest.raises(ValueError, match=said):
        given_folds.fit(*problem(), groups=np.arange(120) % 40)


def test_joined_classes_have_a_name_of_their_own():
    with pytest.raises(ValueError, match="y has one of that name"):
        handle_rare(
            np.array(["other classes"] * 4 + ["s", "t"]), np.arange(6), "merge", []
        )


def test_equal_weights_are_none(given_folds):
    plain, even = (
        clone(given_folds).fit(*problem(), sample_weight=w).posteriors_
        for w in (None, np.full(120, 0.1))
    )
    assert_array_equal(plain, even)


def test_nested_subsets_are_stratified():
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
            assert share == pytest.approx(
                np.bincount(codes[train]) / len(train), abs=0.06
            )
            assert share.min() > 0
            inner = set(rows)
    assert nested_splits(splits, codes, 0.01, 7) is None


def test_nested_subsets_hold_whole_groups():
    codes, groups = np.tile([0, 1], 150), np.repeat(np.arange(30), 10)
    splits, _ = resolve_splits(3, codes, np.arange(2), 0, groups=groups)
    for (train, test), (rows, _) in zip(
        splits, nested_splits(splits, codes, 0.5, 1, groups), strict=True
    ):
        assert not set(groups[train]) & set(groups[test])
        counts = np.bincount(groups[rows], minlength=30)
        # one is cut at the end, two gave the first row of a class
        assert ((counts > 0) & (counts < 10)).sum() <= 3


def paired(X, codes, n_references="all", **changes):
    settings = {"hidden_layer_sizes": (8,), "max_epochs": 3} | changes
    return fitted_to(X, codes, [Pairwise(n_references=n_references)], **settings)


@pytest.fixture
def pairs_of_a_file():
    """What a file holds of pairs."""
    fit = paired(*problem(), n_references=6, dropout=0.2)
    return to_tree(SavedEnsemble.of(fit.ensemble))


@pytest.mark.parametrize("n_references", ["all", 4])
def test_references_are_other_held_out_rows(monkeypatch, n_references):
    X, codes = problem(n=180)
    seen = []
    original = PairModel.class_similarity

    def spy(self, rows, references, own, correction):
        seen.append((np.asarray(rows), references.rows, own))
        return original(self, rows, references, own, correction)

    monkeypatch.setattr(PairModel, "class_similarity", spy)
    fit = paired(X, codes, n_references)
    Z = make_sample(X, codes).X
    for (rows, references, exclude), (_, test), kept in zip(
        seen, splits_of(codes), fit.ensemble.comparison.references, strict=True
    ):
        assert np.array_equal(rows, Z[test])
        held = {row.tobytes() for row in Z[test]}
        assert all(row.tobytes() in held for row in references)
        assert np.array_equal(rows[exclude >= 0], references[exclude[exclude >= 0]])
        assert (
            np.bincount(kept.codes).tolist() == [20 if n_references == "all" else 4] * 3
        )
    assert fit.held_out.posteriors.sum(axis=1) == pytest.approx(np.ones(180))


def test_only_noisy_similarities_get_a_ridge(rng):
    S = np.array([[0.55, 0.45], [0.45, 0.55]])
    Y, codes = random_posteriors(rng, 2000, 2)
    even = np.full(2, 0.5)
    assert best_ridge(Y @ S.T, S, even, codes) == RIDGES[0]
    noisy = Y @ S.T + 0.05 * rng.standard_normal((2000, 2))
    assert best_ridge(noisy, S, even, codes) > 0


def test_classes_too_small_for_pairs_are_named_before_anything_is_trained():
    names = np.repeat(["a", "b", "c"], [60, 60, 12])
    sample = make_sample(np.zeros((132, 1)), names)
    folds = Folds(splits_of(sample.codes, 2), [1, 2])
    with pytest.raises(
        ValueError,
        match=r"cv=2 needs about 40 members of every class, class 'c' has 12",
    ):
        check_pair_members(sample, folds, None)
    check_pair_members(sample, folds, {"patience": 0})


def test_without_early_stopping_the_pairs_come_from_all_training_rows(monkeypatch):
    X, codes = problem()
    sizes = []
    original = PairObjective.__init__

    def spy(self, rows, y, split, *rest):
        sizes.append([len(part) for part in split])
        original(self, rows, y, split, *rest)

    monkeypatch.setattr(PairObjective, "__init__", spy)
    fits = [
        paired(
            X, codes, patience=patience, hidden_layer_sizes="auto"
        ).ensemble.comparison
        for patience in (0, 2)
    ]
    # No held-out loss tells them apart.
    assert [each.weight for each in fits[0].folds[0].networks] == [0.5, 0.5]
    assert sizes == [[80, 0]] * 3 + [[72, 8]] * 3


def test_an_export_of_pairs_without_references_of_a_fold_is_refused(pairs_of_a_file):
    pairs_of_a_file["comparison"]["references"].pop()
    with pytest.raises(ValueError, match="every fold must have its references"):
        from_tree(SavedEnsemble, pairs_of_a_file).restored(None)


def test_an_export_of_pairs_of_another_network_is_refused(pairs_of_a_file):
    pairs_of_a_file["comparison"]["folds"][0][0]["sizes"] = [4096]
    with pytest.raises(ValueError, match="does not fit the weights"):
        from_tree(SavedEnsemble, pairs_of_a_file).restored(None)


def test_the_fit_of_a_model_does_not_doubt_the_order_of_its_columns(rng):
    y = np.arange(400) % 2
    sample = make_sample(rng.normal(size=(400, 2)) + 3 * y[:, None], y)
    folds = make_folds(sample, cv=2, random_state=0)
    fit = cross_fit(sample, models_for(["linear"], sample, folds), folds, limit=False)
    contradicted = replace(fit.held_out, posteriors=fit.held_out.posteriors[:, ::-1])
    with pytest.warns(CollisionWarning, match="over-confident$"):
        estimate(sample, replace(fit, curve=[contradicted]))


def two_of_five(codes):
    """The first two of five folds, as of many rows."""
    return splits_of(codes, 5)[:2]


def test_folds_of_which_some_are_trained_share_their_subsets():
    codes = np.repeat([0, 1, 2], [200, 90, 10])
    splits = two_of_five(codes)
    held_out = np.concatenate([test for _, test in splits])
    inner = set()
    for fraction in (0.125, 0.25, 0.5):
        (first, _), (second, _) = nested_splits(splits, codes, fraction, 7)
        assert first is second
        assert not np.intersect1d(first, held_out).size
        assert inner <= set(first)
        inner = set(first)


def test_folds_share_no_subset_that_would_lack_a_class():
    codes = np.repeat([0, 1], [200, 4])
    first, second = np.array_split(np.arange(200), 5)[:2]
    tests = [np.append(first, [200, 201]), np.append(second, [202, 203])]
    every = np.arange(204)
    splits = [(np.setdiff1d(every, test), test) for test in tests]
    assert sharing_folds(splits, codes) == [[0], [1]]


@pytest.mark.parametrize(
    ("n", "shared"),
    [(10_000, [[0, 1, 2], [3, 4]]), (9_990, [[0], [1], [2], [3], [4]])],
)
def test_of_many_rows_two_halves_of_the_folds_share_their_subsets(n, shared):
    codes = np.arange(n) % 3
    assert sharing_folds(splits_of(codes, 5), codes) == shared


def test_rows_that_a_fold_leaves_out_of_training_are_not_shared():
    codes = np.arange(10_000) % 3
    apart = 50  # rows next to those held out are too much like them
    splits = []
    for test in np.array_split(np.arange(10_000), 5):
        near = np.arange(test[0] - apart, test[-1] + apart + 1)
        splits.append((np.setdiff1d(np.arange(10_000), near), test))
    assert sharing_folds(splits, codes) == [[0, 1, 2], [3, 4]]
    smaller = nested_splits(splits, codes, 0.25, 7)
    for (rows, _), (train, _) in zip(smaller, splits, strict=True):
        assert np.isin(rows, train).all()


@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.125])
def test_no_model_of_a_shared_subset_has_seen_what_a_fold_holds_out(fraction):
    codes = np.arange(10_000) % 3
    splits = splits_of(codes, 5)
    smaller = nested_splits(splits, codes, fraction, 7)
    for (rows, same), (train, test) in zip(smaller, splits, strict=True):
        assert same is test
        assert not np.intersect1d(rows, test).size
        assert np.isin(rows, train).all()
        assert len(rows) == pytest.approx(fraction * len(train), rel=0.01)
    assert len({id(rows) for rows, _ in smaller}) == 2


@dataclass(frozen=True)
class Counting(Priors):
    """Counts the rows that it is trained on."""

    seen: list = field(default_factory=list)

    def learn(self, task):
        self.seen.append(len(task.codes))
        return super().learn(task)


def test_what_folds_share_is_trained_once():
    X, codes = problem(300)
    sample = make_sample(X, codes)
    folds = replace(make_folds(sample, 5, random_state=0), splits=two_of_five(codes))
    model = Counting("priors")
    fit = cross_fit(sample, [model], folds)
    assert model.seen == [240, 240, 120, 60, 30]
    for held_out in fit.curve:
        assert len(held_out.rows) == 120
        assert np.isfinite(held_out.posteriors).all()


#: what a process keeps
KEPT = []


@dataclass(frozen=True)
class Unit:
    process: int
    interrupted: bool = False


@dataclass(frozen=True)
class Growing:
    """A unit of a process that keeps 400 MB of the second one.

    It takes as long as joblib waits until it looks at the memory again.
    """

    def __call__(self, report):
        if len(KEPT) < 2:
            n_bytes = 400_000_000 * len(KEPT)
            KEPT.append(np.ones(n_bytes, dtype=np.uint8))
        time.sleep(1.1)
        return Unit(os.getpid())


@pytest.mark.slow
def test_a_process_that_grows_after_its_first_unit_is_not_replaced():
    """Joblib starts another one beyond 300 MB, which torch and a few arrays take."""
    get_reusable_executor().shutdown()
    calls = [Growing() for _ in range(8)]
    with Progress("units", 8, verbose=0) as progress:
        units, _ = run_units(calls, 2, progress, {})
    get_reusable_executor().shutdown()
    assert len({unit.process for unit in units}) <= 2


def test_a_network_is_trained_without_torchs_compiler():
    """Its import takes every process a second."""
    script = """
import sys
from collidescope import CollisionClassifier, datasets
X, y = datasets.scenario_a(3).sample(60, 0)
CollisionClassifier(members=["network"], limit=False, cv=2, device="cpu").fit(X, y)
assert "torch" in sys.modules
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
