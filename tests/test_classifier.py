"""CollisionClassifier: S and posteriors from labelled data, and what it says when they are not to be trusted."""

import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold

from collidescope import (
    CollisionClassifier,
    CollisionWarning,
    Pairwise,
    collision_matrix_from_posteriors,
    load,
    recover,
)
from collidescope.datasets import scenario_a
from collidescope.equations.gramian import gramian_from_posteriors
from collidescope.equations.posterior import shift_priors
from collidescope.matrix import Method
from collidescope.pairwise.printed import PrintedSettings, printed_fit
from collidescope.sample import make_sample
from collidescope.training import loop as training
from helpers import mean_tvd

#: Two members that are fitted in milliseconds.
QUICK = {"members": ["linear", "quadratic"], "limit": False, "cv": 2, "random_state": 0}
TRAINING = {
    "hidden_layer_sizes": (16,),
    "max_epochs": 20,
    "batch_size": 16,
    "learning_rate": 0.01,
}
PAIRWISE = {
    "members": [Pairwise()],
    "training": TRAINING,
    "limit": False,
    "cv": 2,
    "random_state": 0,
}
#: A network for three epochs.
BRIEF = {"hidden_layer_sizes": (), "max_epochs": 3, "patience": 0, "batch_size": 16}
SHORT = {
    "members": ["network"],
    "training": BRIEF,
    "limit": False,
    "cv": 2,
    "random_state": 0,
}
SHORT_PAIRS = PAIRWISE | {"training": BRIEF}

ignore_warnings = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(750, 0)


@pytest.fixture(scope="module")
def fitted(data):
    return CollisionClassifier(**QUICK).fit(*data)


@pytest.fixture(scope="module")
def small():
    return scenario_a(3).sample(150, 1)


def test_the_fit_is_nearly_as_close_to_the_truth_as_the_true_posteriors(data, fitted):
    problem, (X, y) = scenario_a(3), data
    truth = problem.collision_matrix().matrix
    best = mean_tvd(
        collision_matrix_from_posteriors(problem.posteriors(X), y).matrix, truth
    )
    assert mean_tvd(fitted.collision_matrix_.matrix, truth) < 1.5 * best + 0.01
    new, _ = problem.sample(500, 99)
    assert mean_tvd(fitted.predict_proba(new), problem.posteriors(new)) < 0.06


def test_similarity_is_the_product_of_posteriors(fitted):
    new, _ = scenario_a(3).sample(500, 99)
    sim = fitted.similarity(new[:20], new[30:60])
    assert sim == pytest.approx(
        fitted.predict_proba(new[:20]) @ fitted.predict_proba(new[30:60]).T
    )
    with pytest.raises(
        ValueError, match="3 features, but CollisionClassifier is expecting 4"
    ):
        fitted.similarity(new, new[:, :3])
    with pytest.raises(NotFittedError):
        CollisionClassifier().similarity(new, new)


def test_the_pairwise_model_needs_the_shift_to_find_the_truth(
    data,
):
    problem = scenario_a(3)
    pairwise = CollisionClassifier(**PAIRWISE).fit(*data)
    truth = problem.collision_matrix().matrix
    assert mean_tvd(pairwise.collision_matrix_.matrix, truth) < 0.06
    assert mean_tvd(pairwise.recovery_.matrix, truth) < 0.08
    X, _ = problem.sample(500, 99)
    assert mean_tvd(pairwise.predict_proba(X), problem.posteriors(X)) < 0.12
    sim = pairwise.similarity(X[:40], X[40:100])
    assert pairwise.similarity(X[40:100], X[:40]) == pytest.approx(sim.T, abs=1e-6)
    assert ((sim >= 0) & (sim <= 1)).all()
    assert (
        np.abs(
            sim - problem.posteriors(X[:40]) @ problem.posteriors(X[40:100]).T
        ).mean()
        < 0.1
    )
    printed = Pairwise(correction="none", solver="inverse")
    literal = CollisionClassifier(**(PAIRWISE | {"members": [printed]})).fit(*data)
    assert pairwise.gramian_.sum(axis=1) == pytest.approx(np.ones(3), abs=0.12)
    assert literal.gramian_.sum(axis=1).min() > 1.2
    P = literal.predict_proba(X)
    assert P.min() >= 0
    assert P.sum(axis=1) == pytest.approx(1)
    assert not np.allclose(P, pairwise.predict_proba(X), atol=1e-3)


@ignore_warnings
@pytest.mark.parametrize(
    "settings", [SHORT, SHORT_PAIRS, QUICK], ids=["network", "pairs", "pool"]
)
def test_rows_of_weight_zero_might_as_well_not_be_there(small, settings):
    X, y = small
    weight = np.ones(len(y))
    weight[::10] = 0
    kept = weight > 0
    clf = CollisionClassifier(**settings).fit(
        np.where(kept[:, None], X, 1e6), y, sample_weight=weight
    )
    without = CollisionClassifier(**settings).fit(
        X[kept], y[kept], sample_weight=weight[kept]
    )
    assert np.array_equal(
        clf.collision_matrix_.matrix, without.collision_matrix_.matrix
    )
    assert np.array_equal(clf.predict_proba(X), without.predict_proba(X))
    assert np.array_equal(clf.posteriors_[kept], without.posteriors_)
    assert np.isnan(clf.posteriors_[~kept]).all()


@pytest.mark.filterwarnings("error::collidescope.CollisionWarning")
def test_a_fit_says_nothing_unless_labels_are_noise_or_two_names_mean_one_class(
    data, rng
):
    X, y = data
    CollisionClassifier(**QUICK).fit(X, y)
    with pytest.warns(
        CollisionWarning,
        match=r"the model does no better than the priors .* 0.667 by chance",
    ):
        CollisionClassifier(**QUICK).fit(X, rng.permutation(y))
    copied = np.where((y == 2) & (rng.random(len(y)) < 0.5), 3, y)
    with pytest.warns(
        CollisionWarning, match=r"^S is nearly singular((?!no better).)*$"
    ):
        CollisionClassifier(**QUICK).fit(X, copied)


@ignore_warnings
@pytest.mark.parametrize("settings", [SHORT, SHORT_PAIRS], ids=["network", "pairs"])
def test_a_fit_resumed_from_its_checkpoint_ends_where_an_undisturbed_one_does(
    monkeypatch, tmp_path, small, settings
):
    X, y = small
    settings = settings | {"training": BRIEF | {"max_epochs": 4}}
    undisturbed = CollisionClassifier(**settings).fit(X, y)
    original, numbers = training.run_epoch, itertools.count(1)

    def run_epoch(*arguments):
        if next(numbers) == 7:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "run_epoch", run_epoch)
        half = CollisionClassifier(**settings, checkpoint=tmp_path).fit(X, y)
    assert half.interrupted_
    assert not np.array_equal(
        half.collision_matrix_.matrix, undisturbed.collision_matrix_.matrix
    )
    resumed = CollisionClassifier(**settings, checkpoint=tmp_path).fit(X, y)
    assert not resumed.interrupted_
    assert np.array_equal(
        resumed.collision_matrix_.matrix, undisturbed.collision_matrix_.matrix
    )
    assert np.array_equal(resumed.predict_proba(X), undisturbed.predict_proba(X))


@ignore_warnings
def test_splits_given_as_a_list_are_the_folds_of_the_table_also_when_weights_leave_rows_out(
    small, tmp_path
):
    X, y = small
    first = np.random.RandomState(0).randint(2**31 - 1, size=2)[0]
    splits = list(StratifiedKFold(2, shuffle=True, random_state=first).split(X, y))
    own = CollisionClassifier(**(SHORT | {"cv": splits})).fit(X, y)
    assert np.array_equal(
        own.posteriors_, CollisionClassifier(**SHORT).fit(X, y).posteriors_
    )
    own.save(tmp_path / "m.collide")
    assert load(tmp_path / "m.collide").cv == 2  # a file keeps their number
    weight = np.where(np.arange(len(y)) % 5, 1.0, 0.0)
    kept, position = np.flatnonzero(weight), np.cumsum(weight > 0) - 1
    fewer = [
        tuple(position[part[weight[part] > 0]] for part in split) for split in splits
    ]
    all_rows = CollisionClassifier(**(SHORT | {"cv": splits})).fit(
        X, y, sample_weight=weight
    )
    only = CollisionClassifier(**(SHORT | {"cv": fewer})).fit(X[kept], y[kept])
    assert np.allclose(
        all_rows.collision_matrix_.matrix, only.collision_matrix_.matrix, atol=1e-6
    )


@pytest.mark.parametrize("priors", ["uniform", [0.7, 0.2, 0.1]])
def test_other_priors_are_those_of_the_same_model_shifted(data, priors):
    X, y = data
    keep = np.r_[np.flatnonzero(y == 0)[:100], np.flatnonzero(y > 0)]
    X, y = X[keep], y[keep]
    natural = CollisionClassifier(**QUICK).fit(X, y)
    other = CollisionClassifier(**(QUICK | {"limit": True}), priors=priors).fit(X, y)
    target = np.full(3, 1 / 3) if priors == "uniform" else np.array(priors)
    shares = np.bincount(y) / len(y)
    assert other.priors_ == pytest.approx(target)
    assert other.predict_proba(X) == pytest.approx(
        shift_priors(natural.predict_proba(X), shares, target)
    )
    expected = collision_matrix_from_posteriors(natural.posteriors_, y, priors=target)
    assert other.one_step_.matrix == pytest.approx(expected.matrix)
    assert other.limit_.matrix.priors == pytest.approx(target)
    assert other.limit_.curve["pber"].iloc[-1] == pytest.approx(
        other.one_step_.pber, abs=0.01
    )


def test_every_estimate_comes_from_the_held_out_posteriors(data, fitted):
    _, y = data
    P = fitted.posteriors_
    one_step = collision_matrix_from_posteriors(P, y)
    # Too few classes to shrink.
    assert fitted.collision_matrix_.matrix == pytest.approx(one_step.matrix)
    assert fitted.one_step_.matrix == pytest.approx(one_step.matrix)
    assert fitted.one_step_.stderr == pytest.approx(one_step.stderr)
    G = gramian_from_posteriors(P, y)
    assert fitted.gramian_ == pytest.approx(G)
    assert fitted.recovery_.matrix == pytest.approx(recover(G, fitted.priors_).matrix)


@ignore_warnings
def test_s_of_the_pairs_is_recovered_from_their_gramian_where_asked(small):
    changes = {"training": BRIEF, "priors": "uniform"}
    settings = [
        Pairwise(estimate="gramian", recovery=how) for how in ("root", "gradient")
    ]
    root, descent = (
        CollisionClassifier(**(PAIRWISE | changes | {"members": [own]})).fit(*small)
        for own in settings
    )
    assert root.collision_matrix_.matrix == pytest.approx(recover(root.gramian_).matrix)
    assert root.collision_matrix_.stderr is None
    assert descent.recovery_.iterations > 0
    expected = recover(descent.gramian_, method="gradient").matrix
    assert descent.collision_matrix_.matrix == pytest.approx(expected)


@ignore_warnings
def test_the_standard_error_says_what_fewer_references_cost(small):
    settings = PAIRWISE | {"training": TRAINING | {"max_epochs": 5}}
    errors = [
        CollisionClassifier(**(settings | {"members": [Pairwise(n_references=m)]}))
        .fit(*small)
        .reference_stderr_
        for m in (2, 4, 12, "all")
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] / errors[2] == pytest.approx(np.sqrt(12 / 4), rel=0.35)
    assert CollisionClassifier(**QUICK).fit(*small).reference_stderr_ is None


@ignore_warnings
def test_the_range_stands_on_nested_subsets_of_the_same_folds_as_far_as_they_hold_pairs(
    data, small
):
    X, y = data
    clf = CollisionClassifier(**(QUICK | {"limit": True})).fit(X, y)
    without = CollisionClassifier(**QUICK).fit(X, y)
    assert clf.limit_.curve["rows"].tolist() == pytest.approx([47, 94, 188, 375], abs=1)
    assert np.array_equal(clf.posteriors_, without.posteriors_)
    assert clf.limit_.curve["pber"].iloc[-1] == pytest.approx(
        clf.one_step_.pber, abs=1e-3
    )
    low, high = clf.limit_.pber_interval()
    assert low <= scenario_a(3).collision_matrix().pber <= high
    assert without.limit_ is None
    settings = PAIRWISE | {"training": BRIEF | {"patience": 2}, "limit": True}
    assert (
        2 <= len(CollisionClassifier(**settings).fit(X[:300], y[:300]).limit_.curve) < 4
    )
    assert CollisionClassifier(**settings).fit(*small).limit_ is None


def test_a_group_counts_as_one_unit(small):
    X, y = small
    X, y, groups = (
        np.repeat(X, 4, axis=0),
        np.repeat(y, 4),
        np.repeat(np.arange(150), 4),
    )
    together = CollisionClassifier(**QUICK).fit(X, y, groups=groups)
    with pytest.warns(
        CollisionWarning,
        match=r"of 600 rows have a copy, with the same label, in another fold",
    ):
        apart = CollisionClassifier(**QUICK).fit(X, y)
    # one fold, one model, one answer
    assert np.ptp(together.posteriors_.reshape(-1, 4, 3), axis=1).max() < 1e-12
    assert np.ptp(apart.posteriors_.reshape(-1, 4, 3), axis=1).max() > 1e-4
    assert together.collision_matrix_.n_units == 150
    ratio = together.collision_matrix_.pber_stderr / apart.collision_matrix_.pber_stderr
    assert ratio == pytest.approx(2, rel=0.2)


def test_a_fit_to_votes_finds_the_truth(rng):
    problem = scenario_a(3)
    X, _ = problem.sample(400, 3)
    votes = np.stack([rng.multinomial(20, p) for p in problem.posteriors(X)])
    clf = CollisionClassifier(**(QUICK | {"limit": True})).fit(X, votes)
    assert clf.collision_matrix_.method == "one-step, votes"
    assert mean_tvd(clf.posteriors_, problem.posteriors(X)) < 0.06
    assert clf.collision_matrix_.pber == pytest.approx(
        problem.collision_matrix().pber, abs=0.02
    )
    assert clf.limit_.matrix is None


@ignore_warnings
def test_rare_classes_are_held_out_in_fewer_folds_refused_left_out_or_joined(small):
    X, y = small
    names = np.array(["a", "b", "c"], dtype=object)[y]
    names[:3] = "rare"
    with pytest.warns(
        CollisionWarning,
        match=r"'rare' has only 3 rows, so it is held out in 3 of the 5 folds",
    ):
        clf = CollisionClassifier(**(QUICK | {"cv": 5})).fit(X, names)
    assert len(clf.member_weights_) == 5
    assert not np.isnan(clf.posteriors_).any()
    names[:3] = ["one", "two", "a"]
    weight = np.ones(len(y))
    weight[np.flatnonzero(y == 2)[1:]] = (
        0  # such rows do not help a class that is too small
    )
    with pytest.raises(ValueError, match="class 2 of y is in 1"):
        CollisionClassifier(**QUICK).fit(X, y, weight)
    dropped = CollisionClassifier(**QUICK, rare="drop").fit(X, names)
    assert dropped.classes_.tolist() == ["a", "b", "c"]
    assert np.isnan(dropped.posteriors_[:2]).all()
    joined = CollisionClassifier(**QUICK, rare="merge").fit(X, names)
    assert joined.classes_.tolist() == ["a", "b", "c", "other classes"]


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 1), (1, 8, 8)])
def test_images_of_any_layout_reach_flat_members_alike_also_of_a_saved_model(
    shape, tmp_path, rng
):
    y = np.arange(120) % 2
    X = rng.normal(size=(120, 8, 8))
    X[y == 1, :4] += 1.0
    X = X.reshape(120, *shape)
    flat = CollisionClassifier(
        members=["neighbours"], limit=False, cv=2, random_state=0
    ).fit(X, y)
    assert (flat.predict(X) == y).mean() > 0.9
    with pytest.raises(ValueError, match="rows of shape"):
        flat.predict(X[:, :, :5])
    flat.save(tmp_path / "model.collide")
    loaded = load(tmp_path / "model.collide")
    for images in (X, X.tolist()):
        assert_array_equal(loaded.predict_proba(images), flat.predict_proba(X))


#: Where the map in docs/equations.md sends the reader of the paper: the caller's module and the
#: function's name.
PAPER = {
    "(31, 32) balanced risk": ("collidescope.pairwise.pairs", "balanced_risk"),
    "(34) Gramian from m per class": (
        "collidescope.pairwise.algorithms",
        "gramian_from_similarities",
    ),
    "(35, 36) S from G": ("collidescope.pairwise.algorithms", "recover"),
    "(44) posteriors": ("collidescope.pairwise.algorithms", "solve_posteriors"),
}


@ignore_warnings
def test_the_cross_fitted_paper_runs_the_functions_that_the_map_names(
    monkeypatch, small
):
    page = (Path(__file__).parents[1] / "docs" / "equations.md").read_text(
        encoding="utf-8"
    )
    called = set()
    for equation, (module, name) in PAPER.items():
        original = getattr(importlib.import_module(module), name)
        assert f"{original.__module__}.{name}" in page

        def spy(*given, equation=equation, original=original, **options):
            called.add(equation)
            return original(*given, **options)

        monkeypatch.setattr(importlib.import_module(module), name, spy)
    clf = CollisionClassifier.from_paper(
        cross_fitted=True,
        training={"max_epochs": 2, "hidden_layer_sizes": (8,)},
        n_references=5,
        cv=2,
    )
    assert [len(history["pairwise-8"]) for history in clf.fit(*small).history_] == [
        2,
        2,
    ]
    assert clf.priors_ == pytest.approx(np.full(3, 1 / 3))
    assert called == set(PAPER)


def test_the_cross_fitted_paper_makes_every_literal_choice():
    clf = CollisionClassifier.from_paper(cross_fitted=True, n_references=5, cv=2)
    literal = Pairwise(
        recovery="gradient",
        correction="none",
        solver="inverse",
        n_references=5,
        estimate="gramian",
    )
    assert clf.members == [literal]
    assert (clf.priors, clf.limit, clf.cv) == ("uniform", False, 2)
    assert clf.training["hidden_layer_sizes"] == (128,) * 6
    assert clf.training["patience"] == 0
    with pytest.raises(TypeError, match="nonsense"):
        CollisionClassifier.from_paper(cross_fitted=True, nonsense=1)


AS_PRINTED = {"hidden_layer_sizes": (8,), "max_epochs": 3, "max_steps": 50}


@pytest.fixture(scope="module")
def as_printed(small):
    clf = CollisionClassifier.from_paper(
        random_state=5, pairs_per_entry=200, **AS_PRINTED
    )
    with pytest.warns(
        CollisionWarning, match="given up after 50 steps.*above γ = 0.0001"
    ):
        return clf.fit(*small)


@pytest.fixture(scope="module")
def by_functions(small):
    X, y = small
    sample = make_sample(X, y)
    settings = PrintedSettings(pairs_per_entry=200, **AS_PRINTED)
    return printed_fit(np.asarray(sample.X), sample.codes, 3, settings, seed=5)


def test_from_paper_is_algorithm_1_as_printed(as_printed, by_functions):
    assert_array_equal(as_printed.gramian_, by_functions.gramian)
    assert_array_equal(as_printed.printed_.matrix, by_functions.matrix)


def test_posteriors_of_from_paper_are_the_inverse_as_printed(
    as_printed, by_functions, small
):
    rows = np.asarray(make_sample(*small).X)
    assert_array_equal(
        as_printed.predict_proba(small[0]), by_functions.posteriors(rows)
    )


def test_the_matrix_of_from_paper_says_that_it_is_in_sample(as_printed):
    cm = as_printed.collision_matrix_
    assert cm.method == Method.GRAMIAN
    assert cm.stderr is None
    assert "in-sample" in cm.diagnostics.recovery


def test_the_matrix_of_from_paper_says_that_the_descent_did_not_end(as_printed):
    assert not as_printed.converged_
    assert as_printed.collision_matrix_.diagnostics.converged is False


def test_from_paper_names_the_parameters_that_it_has():
    with pytest.raises(
        TypeError, match=r"no parameter 'nonsense'.*penalty, step_size, tolerance"
    ):
        CollisionClassifier.from_paper(nonsense=1)


def test_predictions_of_from_paper_are_names_of_classes(as_printed, small):
    X, y = small
    assert set(as_printed.predict(X)) <= set(y)
    assert as_printed.similarity(X[:2], X[:3]).shape == (2, 3)


def test_a_copy_of_from_paper_has_the_same_settings():
    clf = clone(
        CollisionClassifier.from_paper(penalty=0.5, step_size=1e-3, tolerance=0.01)
    )
    assert (clf.settings.penalty, clf.settings.step_size, clf.settings.tolerance) == (
        0.5,
        1e-3,
        0.01,
    )
