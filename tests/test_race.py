"""The race before the folds: which models are dropped, why, and that it is the same race again."""

import itertools
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression

from collidescope import CollisionClassifier, CollisionWarning, crossfit
from collidescope.crossfit import Engine, cross_fit
from collidescope.folds import make_folds
from collidescope.models import models_for
from collidescope.race import (
    Race,
    Raced,
    Round,
    affordable,
    nested_heats,
    race,
    run_round,
)
from collidescope.sample import make_sample
from collidescope.training import loop

NAMES = ("leader", "late", "hopeless", "cheap", "helper")
COSTS = {"leader": 4.0, "late": 4.0, "hopeless": 4.0, "cheap": 0.01, "helper": 4.0}
FEW = Round(1000, dict(zip(NAMES, (0.50, 0.80, 0.70, 0.70, 0.70), strict=True)), {})
MORE = Round(
    2000,
    dict(zip(NAMES, (0.48, 0.64, 0.69, 0.69, 0.69), strict=True)),
    {"leader": 0.8, "helper": 0.2},
)


def dropped(pool_loss=lambda names: 0.5 - 0.02 * ("helper" in names), more=MORE):
    return [each.model for each in run_round(FEW, more, 32_000, COSTS, pool_loss)]


def test_a_curve_that_may_cross_the_leader_stays():
    assert "late" not in dropped()


def test_an_expensive_model_that_cannot_reach_the_leader_goes():
    assert "hopeless" in dropped()


def test_a_cheap_model_stays_however_bad():
    assert "cheap" not in dropped()


def test_a_model_whose_pool_would_lose_without_it_stays():
    assert "helper" not in dropped()


def test_a_weight_that_gains_nothing_keeps_no_expensive_model():
    assert "helper" in dropped(pool_loss=lambda names: 0.5)


def test_of_two_models_that_do_the_same_work_one_stays():
    more = replace(MORE, weights={"helper": 0.3, "hopeless": 0.3})
    either = dropped(
        lambda names: 0.5 - 0.1 * bool({"helper", "hopeless"} & set(names)), more
    )
    assert len({"helper", "hopeless"} & set(either)) == 1


@pytest.mark.parametrize("size", [2_000.0, 20_000.0])
@pytest.mark.parametrize("of_shares", [0.48, 0.9])
def test_few_rows_drop_no_model_before_one_beats_the_class_shares(size, of_shares):
    models = [SimpleNamespace(name=name) for name in (*NAMES, "priors")]
    costs = COSTS | {"priors": 0.0}
    raced = Raced(models, costs, n_held_out=1_000)
    for each in (FEW, replace(MORE, size=size)):
        each = replace(each, losses=each.losses | {"priors": of_shares})
        raced.drop(each, 32_000, lambda names: 0.5)
    assert bool(raced.found.dropped) == (of_shares == 0.9 or size == 20_000)


def test_a_wave_that_no_heat_has_seen_is_learned_from_all_rows(rng):
    X = rng.normal(size=(3_000, 6))
    y = (rng.random(3_000) < 0.5 + 0.45 * np.sin(1.4 * X.sum(axis=1))).astype(int)
    clf = CollisionClassifier(limit=False, random_state=0).fit(X, y)
    assert clf.collision_matrix_.pber < 0.35


def test_with_all_rows_in_the_last_round_the_leader_is_not_dropped():
    last = replace(MORE, size=32_000.0)
    found = run_round(FEW, last, 32_000, COSTS, lambda names: 0.5)
    assert "leader" not in [each.model for each in found]


def problem(n=1800, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    logits = X @ rng.normal(size=(d, 3))
    return X, (logits + rng.gumbel(size=(n, 3))).argmax(axis=1)


def thirds(n=1800):
    """(sample, three folds of it)."""
    sample = make_sample(*problem(n=n))
    return sample, make_folds(sample, 3, random_state=0)


@dataclass(frozen=True)
class Priced:
    """A classifier with a cost of its own."""

    name: str
    price: float
    inner: object
    images: bool = False
    simple: bool = False
    parametric: bool = False

    def cost(self, n, d, k):
        return self.price * n

    def fit(self, task):
        return self.inner.fit(task)


def priced(sample, folds):
    by_name = {model.name: model for model in models_for("auto", sample, folds)}
    prices = {"linear": 1e-6, "priors": 1e-2, "gaussian": 1e-3, "histograms": 1e-2}
    return [Priced(name, price, by_name[name]) for name, price in prices.items()]


def raced(n_jobs=None, budget=None):
    sample, folds = thirds()
    engine = Engine(n_jobs=n_jobs, budget=budget)
    found = race(sample, priced(sample, folds), folds, engine)
    return found.models, found.found


def test_an_expensive_model_of_no_use_is_not_trained():
    left, found = raced()
    assert "priors" not in [model.name for model in left]
    assert "priors" in [each.model for each in found.dropped]


def test_a_small_sample_has_no_race():
    sample, folds = thirds(n=900)
    models = models_for("auto", sample, folds)
    raced = race(sample, models, folds, Engine())
    assert (raced.models, raced.found) == (models, Race())


def test_the_table_says_why_a_model_was_dropped():
    _, found = raced()
    table = found.table.set_index("model")
    assert "of the cost" in table.loc["priors", "dropped"]
    assert table.loc["linear", "dropped"] == ""
    assert math.isfinite(table.loc["linear"].iloc[0])


def test_heats_score_rows_that_no_heat_trains_on():
    sample, folds = thirds()
    held_out = folds.splits[0][1]
    sizes = []
    for heat in nested_heats(sample, folds):
        train, scored = heat.splits[0]
        sizes.append(len(train))
        assert not np.intersect1d(train, scored).size
        assert not np.intersect1d(held_out, np.union1d(train, scored)).size
    assert sizes == [75, 150, 300, 600]


def test_models_that_the_user_names_are_all_trained():
    X, y = problem(400)
    named = [
        "linear",
        "priors",
        "gaussian",
        "histograms",
        ("mine", LogisticRegression()),
    ]
    clf = CollisionClassifier(members=named, cv=2, limit=False, random_state=0).fit(
        X, y
    )
    assert set(clf.member_weights_[0]) == {
        "linear",
        "priors",
        "gaussian",
        "histograms",
        "mine",
    }
    assert clf.race_ == Race()


def test_a_budget_takes_the_best_models_that_fit_in():
    models = [Priced(name, 1.0, None) for name in ("a", "b", "c")]
    costs = {"a": 5.0, "b": 3.0, "c": 1.0}
    losses = {"a": 0.1, "b": 0.2, "c": 0.3}
    assert [model.name for model in affordable(models, losses, costs, 6.5)] == [
        "a",
        "c",
    ]
    assert [model.name for model in affordable(models, losses, costs, 0.0)] == ["c"]


def test_a_budget_says_which_models_were_not_trained():
    X, y = problem(400)
    clf = CollisionClassifier(cv=2, limit=False, budget=1e-9, random_state=0)
    with pytest.warns(
        CollisionWarning, match=r"budget of 1e-09 s these models were not trained:"
    ):
        clf.fit(X, y)
    assert len(clf.member_weights_[0]) == 1


def test_progress_says_what_was_dropped(capsys):
    sample, folds = thirds()
    race(sample, priced(sample, folds), folds, Engine(verbose=1))
    assert "dropped priors: with" in capsys.readouterr().err


def chosen(sizes, weights, costs):
    """A race with a round of each size, and the weights of models in it."""
    models = [Priced(name, 1.0, None, simple=True) for name in costs]
    raced = Raced(models, costs, 600)
    for size, of_round in zip(sizes, weights, strict=True):
        losses = dict.fromkeys(costs, 0.5)
        raced.drop(Round(size, losses, of_round), 8000, lambda names: 0.5)
    whole = SimpleNamespace(models=models, weights={"a": 1.0})
    return lambda size: raced.at_smaller_size(whole, size)


def test_a_simple_model_is_trained_on_few_rows_where_it_had_a_weight_in_the_race():
    costs = {"a": 1.0, "b": 1.0, "c": 1.0, "free": 0.01}
    names = chosen([1000], [{"a": 0.5, "b": 0.5, "c": 0.0}], costs)
    assert names(1000) == ["a", "b", "free"]


def test_every_simple_model_is_trained_at_sizes_that_the_race_did_not_see():
    costs = {"a": 1.0, "b": 1.0}
    assert chosen([4000], [{"a": 1.0}], costs)(1000) == ["a", "b"]


def whole_fit(**settings):
    sample, folds = thirds()
    prices = {"linear": 1e-3, "linear-tuned": 1.0, "gaussian": 1e-3, "priors": 1e-3}
    models = [
        Priced(name, price, models_for([name], sample, folds)[0])
        for name, price in prices.items()
    ]
    engine = Engine(**settings)
    raced = race(sample, models, folds, engine)
    return raced, cross_fit(sample, raced.models, folds, engine=engine, choice=raced)


@pytest.fixture(scope="module")
def in_turn():
    """The race and the fit in one process."""
    return whole_fit()


def assert_same_curve(one, other):
    for mine, theirs in zip(one.curve, other.curve, strict=True):
        assert_array_equal(mine.posteriors, theirs.posteriors)


@pytest.mark.parametrize(("n_held_out", "tells"), [(599, False), (600, True)])
def test_the_first_fold_is_a_heat_where_it_scores_as_many_rows_as_others(
    n_held_out, tells
):
    raced = Raced([], {}, n_held_out)
    assert not raced.by_first_fold  # nor is it where there was no race
    raced.found = Race(rounds=(FEW,))
    assert raced.by_first_fold == tells


def test_the_first_fold_is_the_last_heat(in_turn):
    raced, fit = in_turn
    assert raced.found.rounds[-1].size == len(fit.folds.splits[0][0])
    last = [each.model for each in raced.found.dropped if each.size == 1200]
    assert last
    for name in last:
        assert all(name not in weights for weights in fit.fold_weights)


def test_what_a_heat_has_trained_is_that_of_a_fit_without_a_race(in_turn):
    raced, fit = in_turn
    alone = cross_fit(make_sample(*problem()), raced.models, fit.folds)
    assert_same_curve(fit, alone)


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_a_raced_fit_is_the_same_for_any_number_of_jobs(in_turn, n_jobs):
    raced, fit = whole_fit(n_jobs=n_jobs)
    assert raced.found == in_turn[0].found
    assert_same_curve(fit, in_turn[1])


@pytest.fixture
def sent(monkeypatch):
    """How many units each batch had that was sent to processes."""
    sizes = []

    def run_units(calls, *arguments):
        sizes.append(len(calls))
        return [call(None) for call in calls], False

    monkeypatch.setattr(crossfit, "run_units", run_units)
    return sizes


def test_heats_that_pay_whoever_leads_are_run_at_once(sent):
    in_turn = raced()
    n_models = len(in_turn[1].rounds[0].losses)
    sent.clear()
    assert raced(n_jobs=2)[1] == in_turn[1]
    assert sent[0] == 2 * n_models
    assert len(sent) == len(in_turn[1].rounds) - 1


def test_many_processes_train_all_folds_and_sizes_at_once(in_turn, sent, monkeypatch):
    """The race and S are those of one process, whatever was trained and not needed."""
    alone, of_one = in_turn
    n_heats = len(alone.found.rounds) - 1
    monkeypatch.setattr(crossfit, "effective_n_jobs", lambda n_jobs: 1_000)
    raced, fit = whole_fit(n_jobs=2)
    (of_fit,) = sent[n_heats:]
    n_units = len(fit.curve) * len(fit.folds.splits)
    assert of_fit > n_units * len(fit.fold_weights[0])
    assert raced.found == alone.found
    assert fit.fold_weights == of_one.fold_weights
    assert_same_curve(fit, of_one)


def interrupted_at(monkeypatch, epoch):
    """Ctrl-C in an epoch of the networks that are trained from now on."""
    original = loop.run_epoch
    numbers = itertools.count(1)

    def run_epoch(*arguments):
        if next(numbers) == epoch:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(loop, "run_epoch", run_epoch)


def test_a_raced_fit_resumed_from_its_checkpoint_ends_as_an_undisturbed_one(
    monkeypatch, tmp_path
):
    sample, folds = thirds()
    prices = {"linear": 1e-3, "gaussian": 1e-3, "priors": 1e-3, "network": 1e-9}
    models = [
        Priced(each.name, prices[each.name], each)
        for each in models_for(list(prices), sample, folds)
    ]
    training = {"hidden_layer_sizes": (8,), "max_epochs": 4}

    def fitted(checkpoint=None, at=None):
        engine = Engine(training=training, checkpoint=checkpoint)
        raced = race(sample, models, folds, engine)
        with monkeypatch.context() as patch:
            if at is not None:
                interrupted_at(patch, at)
            return cross_fit(sample, raced.models, folds, engine=engine, choice=raced)

    assert fitted(tmp_path, at=6).interrupted
    assert_same_curve(fitted(tmp_path), fitted())


def test_ctrl_c_after_the_first_fold_keeps_what_it_has_trained():
    sample, folds = thirds()
    raced = race(sample, priced(sample, folds), folds, Engine())
    linear = raced.models[0]
    n_fits = itertools.count(1)

    def fit(task):
        if next(n_fits) == 2:
            raise KeyboardInterrupt
        return linear.inner.fit(task)

    raced.models[0] = replace(linear, inner=SimpleNamespace(fit=fit))
    crossfit = cross_fit(sample, raced.models, folds, limit=False, choice=raced)
    assert crossfit.interrupted
    assert len(crossfit.ensemble.folds) == 1


def test_the_first_heat_of_many_rows_is_small():
    sample = make_sample(*problem(n=4000))
    heats = nested_heats(sample, make_folds(sample, 4, random_state=0), most_first=100)
    assert [len(heat.splits[0][0]) for heat in heats] == [94, 188, 375, 750, 1500]
