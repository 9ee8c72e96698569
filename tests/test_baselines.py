"""The rivals: what each of them promises, on problems whose truth is known."""

from __future__ import annotations

import pickle
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from collidescope._scaling import apply_scaling, fit_scaling
from collidescope.datasets import GaussianProblem, scenario_a, with_label_noise
from collidescope.estimators import crossfit_posteriors
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from experiments import baselines as rivals
from experiments.baselines import _base, bayesian, mc_dropout, temperature

TINY = {"hidden_layer_sizes": (8,), "max_epochs": 3, "batch_size": 32, "device": "cpu", "random_state": 0}
KINDS = [
    rivals.NetworkClassifier,
    rivals.TemperatureScaledClassifier,
    rivals.DropoutClassifier,
    rivals.BayesianClassifier,
    rivals.DeepEnsemble,
]
every_rival = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def problem():
    return scenario_a(3)


@pytest.fixture(scope="module")
def data(problem):
    return problem.sample(150, 0)


@pytest.fixture(scope="module")
def new(problem):
    return problem.sample(2000, 1)


@pytest.fixture(scope="module")
def overconfident(problem):
    """A plain network that knows its few rows by heart."""
    settings = {"hidden_layer_sizes": (64, 64), "max_epochs": 120, "learning_rate": 0.01, "device": "cpu"}
    return rivals.TemperatureScaledClassifier(**settings, validation_fraction=0.25, random_state=0).fit(
        *problem.sample(300, 0)
    )


def tvd(P, truth):
    return np.abs(P - truth).sum(axis=1).mean() / 2


# ---------------------------------------------------------------- all of them


@every_rival
def test_posteriors_come_nearer_to_the_truth_than_the_priors(kind, problem, new):
    X, Y = new[0], problem.posteriors(new[0])
    clf = kind(**(TINY | {"hidden_layer_sizes": (16,), "max_epochs": 25, "learning_rate": 0.01}))
    P = clf.fit(*problem.sample(450, 2)).predict_proba(X)
    assert P.sum(axis=1) == pytest.approx(1)
    assert tvd(P, Y) < 0.7 * tvd(np.broadcast_to(problem.priors, Y.shape), Y)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
@every_rival
def test_an_accelerator_learns_as_well_and_keeps_its_warm_start(kind, problem, new):
    X, Y = new[0], problem.posteriors(new[0])
    settings = TINY | {"hidden_layer_sizes": (16,), "learning_rate": 0.01, "device": "cuda"}
    clf = kind(**(settings | {"max_epochs": 10}), warm_start=True).fit(*problem.sample(450, 2))
    P = clf.set_params(max_epochs=25).fit(*problem.sample(450, 2)).predict_proba(X)
    assert tvd(P, Y) < 0.7 * tvd(np.broadcast_to(problem.priors, Y.shape), Y)
    long = kind(**(settings | {"max_epochs": 25})).fit(*problem.sample(450, 2))
    assert long.predict_proba(X) == pytest.approx(P, abs=1e-4)


@every_rival
@pytest.mark.parametrize("random_state", [0, None])
def test_a_warm_start_ends_where_one_long_fit_ends(kind, random_state, data):
    X, y = data
    clf = kind(**(TINY | {"max_epochs": 2, "random_state": random_state}), warm_start=True).fit(X, y)
    early = clf.predict_proba(X)
    clf = pickle.loads(pickle.dumps(clf)).set_params(max_epochs=5).fit(X, y)
    assert [entry["epoch"] for entry in clf.history_] == [1, 2, 3, 4, 5]
    assert np.abs(clf.predict_proba(X) - early).max() > 1e-4
    if random_state is not None:
        long = kind(**(TINY | {"max_epochs": 5})).fit(X, y)
        assert np.array_equal(clf.predict_proba(X), long.predict_proba(X))
    again = clf.predict_proba(X)
    assert np.array_equal(clf.fit(X, y).predict_proba(X), again)


def test_a_warm_start_keeps_the_patience_of_the_fit_it_continues(data):
    X, y = data
    settings = TINY | {"patience": 3, "learning_rate": 0.05}
    whole = rivals.NetworkClassifier(**(settings | {"max_epochs": 60})).fit(X, y)
    assert len(whole.history_) < 60
    parts = rivals.NetworkClassifier(**settings, warm_start=True)
    for max_epochs in (2, 7, 60):
        parts.set_params(max_epochs=max_epochs).fit(X, y)
    assert len(parts.history_) == len(whole.history_)
    assert np.array_equal(parts.predict_proba(X), whole.predict_proba(X))


@every_rival
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(kind, data):
    X, y = data
    first = kind(**TINY).fit(X, y).predict_proba(X)
    torch.rand(3)  # whatever else draws from the global generator
    before = torch.get_rng_state()
    assert np.array_equal(kind(**TINY).fit(X, y).predict_proba(X), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.abs(kind(**(TINY | {"random_state": 1})).fit(X, y).predict_proba(X) - first).max() > 1e-4


@every_rival
def test_a_row_is_predicted_the_same_alone_and_in_company(kind, data):
    X, y = data
    clf = kind(**TINY).fit(X, y)
    alone = np.concatenate([clf.predict_proba(X[i : i + 1]) for i in range(5)])
    assert alone == pytest.approx(clf.predict_proba(X)[:5], abs=1e-12)


@every_rival
def test_units_of_the_inputs_do_not_matter(kind, data):
    X, y = data
    there, here = kind(**TINY).fit(1e6 * X + 5, y), kind(**TINY).fit(X, y)
    assert there.predict_proba(1e6 * X + 5) == pytest.approx(here.predict_proba(X), abs=1e-3)


@every_rival
def test_a_clone_is_unfitted_and_a_pipeline_with_names_works(kind, data):
    X, y = data
    frame, names = pd.DataFrame(X, columns=list("abcd")), np.array(["east", "north", "west"])[y]
    clf = kind(**TINY).fit(frame, names)
    assert clf.classes_.tolist() == ["east", "north", "west"]
    assert clf.n_features_in_ == 4
    assert set(clf.predict(frame)) <= set(names)
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(frame)
    piped = make_pipeline(StandardScaler(), copy).fit(frame, names)
    assert piped.predict_proba(frame) == pytest.approx(clf.predict_proba(frame), abs=1e-3)


@parametrize_with_checks([rivals.NetworkClassifier(**(TINY | {"max_epochs": 12, "learning_rate": 0.1}))])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_an_interrupted_fit_does_not_pass_for_a_fit(data, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_base.AllRowsObjective, "backward", interrupt)
    for warm_start in (False, True):
        clf = rivals.NetworkClassifier(**TINY, warm_start=warm_start)
        with pytest.raises(KeyboardInterrupt):
            clf.fit(*data)
        with pytest.raises(NotFittedError):
            clf.predict_proba(data[0])


def test_a_refused_fit_leaves_no_mixture_of_two_fits_behind(data):
    X, y = data
    clf = rivals.NetworkClassifier(**TINY, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="warm_start"):
        clf.fit(X[:80], y[:80])
    with pytest.raises(NotFittedError):
        clf.predict_proba(X)


# ---------------------------------------------------------------- plain network


def test_without_patience_every_epoch_is_run_and_nothing_is_held_out(data):
    clf = rivals.NetworkClassifier(**(TINY | {"max_epochs": 40, "learning_rate": 0.05})).fit(*data)
    assert len(clf.history_) == 40
    assert all(np.isnan(entry["val_loss"]) for entry in clf.history_)


def test_patience_keeps_the_weights_of_the_best_epoch(data):
    X, y = data
    clf = rivals.NetworkClassifier(**(TINY | {"max_epochs": 60, "learning_rate": 0.05}), patience=3).fit(X, y)
    losses = [entry["val_loss"] for entry in clf.history_]
    assert len(losses) < 60
    seeds = _base.Seeds.drawn(0)
    _, held_out = _base.validation_split(torch.from_numpy(y), 0.1, seeds.split)
    assert log_loss(y[held_out], clf.predict_proba(X[held_out])) == pytest.approx(min(losses), abs=1e-5)


def test_logits_are_those_behind_the_posteriors(data):
    X, y = data
    clf = rivals.NetworkClassifier(**TINY).fit(X, y)
    assert softmax(clf.predict_logits(X), axis=1) == pytest.approx(clf.predict_proba(X))
    assert softmax(clf.decision_function(X), axis=1) == pytest.approx(clf.predict_proba(X))
    two = clf.fit(X[y < 2], y[y < 2])
    P = two.predict_proba(X)
    assert two.decision_function(X) == pytest.approx(np.log(P[:, 1] / P[:, 0]))


# ---------------------------------------------------------------- temperature


def test_the_calibration_error_of_a_small_table_is_the_one_computed_by_hand():
    P = [[0.95, 0.05], [0.85, 0.15], [0.3, 0.7], [0.6, 0.4], [0.45, 0.55]]
    y = ["a", "b", "b", "b", "b"]
    # Four bins (0.5, 0.75] and (0.75, 1]: 0.7 and 0.55 right, 0.6 wrong; 0.95 right, 0.85 wrong.
    by_hand = 3 / 5 * abs(2 / 3 - (0.7 + 0.6 + 0.55) / 3) + 2 / 5 * abs(1 / 2 - (0.95 + 0.85) / 2)
    assert rivals.expected_calibration_error(P, y, n_bins=4) == pytest.approx(by_hand)


def test_true_posteriors_have_almost_no_calibration_error(problem, new):
    X, y = new
    P = problem.posteriors(X)
    assert rivals.expected_calibration_error(P, y) < 0.04
    sharp = P**3 / (P**3).sum(axis=1, keepdims=True)
    assert rivals.expected_calibration_error(sharp, y) > 0.1


def test_temperature_scaling_lowers_the_calibration_error_of_an_overconfident_network(overconfident, new):
    X, y = new
    before = rivals.expected_calibration_error(overconfident.network_.predict_proba(X), y)
    after = rivals.expected_calibration_error(overconfident.predict_proba(X), y)
    assert overconfident.temperature_ > 2
    assert after < 0.5 * before
    assert np.array_equal(overconfident.predict(X), overconfident.network_.predict(X))


def test_no_other_temperature_has_a_lower_calibration_error_on_the_validation_part(overconfident, problem):
    X, y = problem.sample(300, 0)
    seeds = _base.Seeds.drawn(0)
    _, held_out = _base.validation_split(torch.from_numpy(y), 0.25, seeds.split)
    logits = overconfident.network_.predict_logits(X[held_out])

    def error(T):
        return rivals.expected_calibration_error(softmax(logits / T, axis=1), y[held_out])

    assert error(overconfident.temperature_) == pytest.approx(min(map(error, temperature.TEMPERATURES)))


# ---------------------------------------------------------------- Monte-Carlo dropout


def test_many_passes_agree_with_dropout_left_on_row_by_row(data):
    X, y = data
    clf = rivals.DropoutClassifier(0.3, 3000, **(TINY | {"hidden_layer_sizes": (8, 8), "max_epochs": 20})).fit(X, y)
    rows = torch.from_numpy(apply_scaling(X[:20], *fit_scaling(X)))
    torch.manual_seed(0)
    clf.module_.train()
    with torch.inference_mode():
        literal = torch.stack([clf.module_(rows)[0].softmax(-1) for _ in range(3000)]).mean(0).numpy()
    # A posterior's standard deviation between passes is at most 0.5: 3,000 of them agree within 0.04.
    assert clf.predict_proba(X[:20]) == pytest.approx(literal, abs=0.04)


def test_a_pass_without_dropout_is_the_network_itself(data):
    network = StackedMLP(1, 4, 3, (8, 8))
    rows = torch.from_numpy(data[0]).float()
    passes = mc_dropout.thinned(network, 0.0, 3, torch.Generator())(rows)
    assert torch.allclose(passes, network(rows).expand(3, -1, -1), atol=1e-6)
    assert not torch.allclose(mc_dropout.thinned(network, 0.5, 3, torch.Generator())(rows), passes, atol=1e-2)


# ---------------------------------------------------------------- ensemble


def test_the_ensembles_posterior_is_the_mean_of_its_members(data):
    X, y = data
    clf = rivals.DeepEnsemble(4, **TINY).fit(X, y)
    rows = torch.from_numpy(apply_scaling(X, *fit_scaling(X)))
    with torch.inference_mode():
        members = np.stack([softmax(clf.module_.member(m, rows).double().numpy(), axis=1) for m in range(4)])
    assert clf.predict_proba(X) == pytest.approx(members.mean(axis=0), abs=1e-6)
    assert np.abs(members[1:] - members[0]).max(axis=(1, 2)).min() > 0.01


def test_an_ensemble_of_one_is_the_plain_network(data):
    X, y = data
    one, plain = rivals.DeepEnsemble(1, **TINY).fit(X, y), rivals.NetworkClassifier(**TINY).fit(X, y)
    assert np.array_equal(one.predict_proba(X), plain.predict_proba(X))


# ---------------------------------------------------------------- Bayesian network


def test_the_bayesian_loss_is_the_evidence_lower_bound(data):
    X, y = torch.from_numpy(data[0]).float(), torch.from_numpy(data[1])
    module = bayesian.MeanField([4, 5, 6, 3], prior_scale=0.7)
    objective = bayesian.ElboObjective(X, y, 3, TrainingConfig(hidden_layer_sizes=(5, 6)), kl_weight=0.3)
    rows = torch.tensor([[3, 1, 4, 15]])
    torch.manual_seed(0)
    loss = objective.loss(module, rows).detach()

    torch.manual_seed(0)
    scale = module.log_scale.exp() * module.prior  # of the weights themselves
    noise = torch.randn(len(module.loc))
    w = module.loc * module.prior + scale * noise
    h, start = X[rows[0]], 0
    for layer, (a, b) in enumerate([(4, 5), (5, 6), (6, 3)]):
        weight, bias = w[start : start + a * b].view(a, b), w[start + a * b : start + a * b + b]
        start += a * b + b
        h = (torch.relu(h) if layer else h) @ weight + bias
    posterior = torch.distributions.Normal(module.loc * module.prior, scale)
    divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, module.prior)).sum()
    likelihood = len(y) / 4 * h.log_softmax(-1).gather(1, y[rows[0]][:, None]).sum()
    by_hand = (0.3 * divergence - likelihood).detach() / len(y)
    assert float(loss) == pytest.approx(float(by_hand), rel=1e-4)


def test_drawn_networks_scatter_around_the_mean_as_the_posterior_says():
    module = bayesian.MeanField([2, 3], prior_scale=1.0)
    drawn = module.draw(20_000, torch.Generator().manual_seed(0))
    weights = torch.cat([drawn.weights[0].flatten(1), drawn.biases[0].flatten(1)], dim=1).detach()
    assert weights.mean(0) == pytest.approx((module.loc * module.prior).detach(), abs=0.01)
    assert weights.std(0) == pytest.approx((module.log_scale.exp() * module.prior).detach(), rel=0.05)


def test_the_papers_deep_network_leaves_the_prior_with_the_default_settings(problem):
    X, y = problem.sample(750, 1)
    Y = problem.posteriors(X)
    P = rivals.BayesianClassifier(max_epochs=15, device="cpu", random_state=1).fit(X, y).predict_proba(X)
    assert tvd(P, Y) < 0.4 * tvd(np.full_like(Y, 1 / 3), Y)


def test_an_overwhelming_prior_leaves_no_word_to_the_data(problem, data):
    X, y = data
    settings = TINY | {"max_epochs": 40, "learning_rate": 0.05}
    free = rivals.BayesianClassifier(**settings, kl_weight=0.01).fit(X, y).predict_proba(X)
    bound = rivals.BayesianClassifier(**settings, kl_weight=100.0, prior_scale=0.3).fit(X, y).predict_proba(X)
    assert bound == pytest.approx(np.full_like(bound, 1 / 3), abs=0.05)
    assert tvd(free, problem.posteriors(X)) < 0.5 * tvd(bound, problem.posteriors(X))


def test_a_bayesian_fit_leaves_pyros_global_state_alone(data):
    import pyro

    pyro.clear_param_store()
    pyro.param("somebody else's", torch.ones(1))
    rivals.BayesianClassifier(**TINY).fit(*data).predict_proba(data[0])
    assert list(pyro.get_param_store().keys()) == ["somebody else's"]
    pyro.clear_param_store()


@pytest.mark.parametrize(
    ("library", "call"),
    [
        ("pyro", lambda X, y: rivals.BayesianClassifier(**TINY).fit(X, y)),
        ("cleanlab.count", lambda X, y: rivals.confident_joint_matrix(np.eye(3)[y], y)),
        ("cleanlab.dataset", lambda X, y: rivals.overlapping_classes(np.eye(3)[y], y)),
    ],
)
def test_a_missing_library_is_asked_for_by_name(library, call, data, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=r"needs (pyro-ppl|cleanlab): pip install collidescope\[baselines\]"):
        call(*data)


# ---------------------------------------------------------------- class averages


def test_class_averages_equal_the_slow_loop(problem, new):
    X, y = new
    P = problem.posteriors(X)
    cm = rivals.class_averages(P, y)
    for k in range(3):
        rows = [P[i] for i in range(len(y)) if y[i] == k]
        assert cm.matrix[k] == pytest.approx(sum(rows) / len(rows))
    assert cm.priors == pytest.approx(np.bincount(y) / len(y))
    assert cm.info["method"] == "class averages"
    assert cm.stderr is None
    assert cm.matrix == pytest.approx(problem.collision_matrix().matrix, abs=0.03)


def test_class_averages_keep_names_and_the_order_of_the_columns():
    P = [[0.9, 0.1], [0.2, 0.8]]
    cm = rivals.class_averages(P, ["yes", "no"], classes=["yes", "no"])
    assert cm.classes.tolist() == ["yes", "no"]
    assert cm.matrix.tolist() == P


def test_algorithm_3_scores_rows_it_was_trained_on_and_cross_fitting_does_not(problem):
    X, y = problem.sample(300, 0)
    tree = DecisionTreeClassifier(random_state=0)
    literal, honest = rivals.average_collision_matrix(tree, X, y), rivals.average_collision_matrix(tree, X, y, cv=3)
    assert literal.pber == 0
    assert literal.info["cross-fitted"] is False
    assert honest.info["cross-fitted"] is True
    held_out = crossfit_posteriors(tree, X, y, cv=3, random_state=0)
    assert np.array_equal(honest.matrix, rivals.class_averages(held_out, y).matrix)
    assert not hasattr(tree, "classes_")


# ---------------------------------------------------------------- other projects


@pytest.fixture(scope="module")
def mislabelled():
    """Separable classes; of the rows that are truly "b", 30% are given the label "a", and none the other way."""
    noise = [[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]]
    clean = GaussianProblem([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], classes=["a", "b", "c"])
    problem = with_label_noise(clean, noise)
    X, y = problem.sample(3000, 0)
    return problem.posteriors(X), y, problem


def test_the_confident_joint_says_what_the_given_labels_truly_are(mislabelled):
    P, y, problem = mislabelled
    J = rivals.confident_joint_matrix(P, y)
    assert J.sum(axis=1) == pytest.approx(1)
    # P(true b | given a) = (1/3 · 0.3) / (1/3 · 1.3)
    assert J[0, 1] == pytest.approx(0.3 / 1.3, abs=0.03)
    assert J[1, 0] < 0.01
    assert J[2] == pytest.approx([0, 0, 1], abs=0.01)
    # S is about a second draw of the label, and is symmetric in B where the joint of given and true label is not
    S = problem.collision_matrix().matrix
    assert S[1, 0] == pytest.approx(0.3, abs=0.01)


def test_overlapping_classes_are_named_worst_pair_first(mislabelled):
    P, y, _ = mislabelled
    table = rivals.overlapping_classes(P, y)
    assert table.loc[0, ["Class Name A", "Class Name B"]].tolist() == ["a", "b"]
    assert table.loc[0, "Joint Probability"] == pytest.approx(0.1, abs=0.02)


def test_nearest_neighbours_of_four_points_err_as_counted():
    X = [[0.0], [1.0], [3.0], [4.5]]
    assert rivals.knn_bayes_error(X, ["a", "a", "b", "b"]) == (0.0, 0.0)
    # 0 → 1 wrong, 1 → 0 wrong, 3 → 4.5 right, 4.5 → 3 right; Cover and Hart at 1/2 of two classes
    lower, upper = rivals.knn_bayes_error(X, ["a", "b", "a", "a"])
    assert (lower, upper) == (pytest.approx(0.5), 0.5)
    # Two neighbours disagree: the nearer one decides, as with one neighbour.
    three = X[:3], ["a", "b", "b"]
    assert rivals.knn_bayes_error(*three, n_neighbors=2) == rivals.knn_bayes_error(*three)


def test_a_row_is_not_its_own_neighbour_even_when_it_has_a_duplicate():
    assert rivals.knn_bayes_error([[0.0], [0.0], [5.0], [5.0]], [0, 1, 0, 1]).upper == 1.0
    assert rivals.knn_bayes_error([[0.0], [0.0], [5.0], [5.0]], [0, 0, 1, 1]).upper == 0.0


@pytest.mark.parametrize("n_features", [1, 20])
def test_equal_rows_vote_in_random_order(n_features):
    y = np.repeat([0, 1], [2100, 900])  # sorted: the first of the equal rows would always be of class 0
    upper = rivals.knn_bayes_error(np.full((3000, n_features), 7.0), y).upper
    assert upper == pytest.approx(2 * 0.7 * 0.3, abs=0.04)


def test_nearest_neighbours_bound_the_bayes_error(problem):
    X, y = problem.sample(4000, 3)
    for n_neighbors in (1, 15):
        lower, upper = rivals.knn_bayes_error(X, y, n_neighbors)
        assert lower < problem.bayes_error() < upper
    assert rivals.knn_bayes_error(X, y).upper == pytest.approx(problem.collision_matrix().pber, abs=0.03)


# ---------------------------------------------------------------- by name


def test_settings_reach_the_networks_of_all_paper_rivals(data):
    X, y = data
    found = rivals.paper_rivals(**TINY, n_passes=7)
    assert len(found) == 8
    for name, clf in found.items():
        parameters = clf.get_params()
        for setting, value in TINY.items():
            assert parameters.get(setting, parameters.get(f"estimator__{setting}")) == value, name
    assert found["Monte-Carlo dropout"].n_passes == 7
    for name in ("temperature (scikit-learn)", "Platt", "isotonic"):
        P = found[name].fit(X, y).predict_proba(X)
        assert P.sum(axis=1) == pytest.approx(1), name


def test_careful_rivals_fit(problem, data, new):
    for name, clf in rivals.careful_rivals(random_state=1, device="cpu").items():
        P = clf.fit(*data).predict_proba(new[0])
        assert tvd(P, problem.posteriors(new[0])) < 0.25, name


# ---------------------------------------------------------------- bad input

P2, Y2 = [[0.9, 0.1], [0.2, 0.8]], [0, 1]
X4 = np.arange(8.0).reshape(4, 2)


def fitted(kind=rivals.NetworkClassifier, X=X4, y=(0, 0, 1, 1), **changes):
    return lambda: kind(**(TINY | changes)).fit(X, list(y))


def refitted(data, **changes):
    clf = rivals.NetworkClassifier(**TINY, warm_start=True).fit(X4, [0, 0, 1, 1])
    return clf.set_params(**changes).fit(*data)


REFUSED = {
    "nan in X": (fitted(X=[[0.0], [np.nan], [1.0], [2.0]]), "NaN"),
    "other rows in y": (fitted(y=(0, 1)), r"inconsistent numbers.*4, 2"),
    "flat X": (fitted(X=[0.0, 1.0, 2.0, 3.0]), "2D array"),
    "one class": (fitted(y=(1, 1, 1, 1)), "y holds a single class"),
    "other columns": (lambda: fitted()().predict([[0.0]]), "1 features.*2 features"),
    "a word for layers": (fitted(hidden_layer_sizes="auto"), "hidden_layer_sizes.*'auto'"),
    "no unit": (fitted(hidden_layer_sizes=(8, 0)), r"hidden_layer_sizes.*\(8, 0\)"),
    "no epoch": (fitted(max_epochs=0), "max_epochs.*0"),
    "no step": (fitted(learning_rate=0.0), "learning_rate.*0"),
    "all units left out": (fitted(rivals.DropoutClassifier, dropout=1.0), "dropout.*1"),
    "no pass": (fitted(rivals.DropoutClassifier, n_passes=0), "n_passes.*0"),
    "no member": (fitted(rivals.DeepEnsemble, n_members=0), "n_members.*0"),
    "no draw": (fitted(rivals.BayesianClassifier, n_draws=0), "n_draws.*0"),
    "no prior": (fitted(rivals.BayesianClassifier, prior_scale=0.0), "prior_scale.*0"),
    "negative divergence": (fitted(rivals.BayesianClassifier, kl_weight=-1.0), "kl_weight.*-1"),
    "no bin in the fit": (fitted(rivals.TemperatureScaledClassifier, n_bins=0), "n_bins.*0"),
    "all rows held out": (fitted(rivals.TemperatureScaledClassifier, validation_fraction=1), "validation_fraction.*1"),
    "nothing to hold out": (fitted(y=(0, 1, 2, 3), patience=1), "validation_fraction=0.1 of 4 rows"),
    "unknown device": (fitted(device="abacus"), "device 'abacus'"),
    "warm start on other rows": (lambda: refitted((X4[::-1], [0, 0, 0, 1])), "warm_start.*X or y changed"),
    "warm start with other steps": (lambda: refitted((X4, [0, 0, 1, 1]), learning_rate=0.1), "learning_rate changed"),
    "warm start with other layers": (lambda: refitted((X4, [0, 0, 1, 1]), hidden_layer_sizes=(9,)), "layer_sizes ch"),
    "no bin": (lambda: rivals.expected_calibration_error(P2, Y2, 0), "n_bins.*0"),
    "logits": (lambda: rivals.expected_calibration_error([[3.0, -2.0], [1.0, 0.0]], Y2), "P.*-2"),
    "a class without rows": (lambda: rivals.expected_calibration_error(np.eye(3)[:2], Y2), "3 columns.*classes="),
    "other rows in P": (lambda: rivals.class_averages(P2, [0, 1, 1]), "P and y.*2 and 3"),
    "an average of nothing": (lambda: rivals.class_averages(P2, ["a", "a"], ["a", "b"]), "no row of class 'b'"),
    "an unknown label": (lambda: rivals.class_averages(P2, ["a", "c"], ["a", "b"]), "'c'"),
    "one fold": (lambda: rivals.average_collision_matrix(LogisticRegression(), X4, [0, 0, 1, 1], cv=1), "cv.*1"),
    "nan in P": (lambda: rivals.confident_joint_matrix([[np.nan, 1.0], [0.0, 1.0]], Y2), "P.*nan"),
    "one class in y": (lambda: rivals.overlapping_classes(P2, [0, 0]), "single class"),
    "no neighbour": (lambda: rivals.knn_bayes_error(X4, [0, 0, 1, 1], 0), "n_neighbors.*0"),
    "too many neighbours": (lambda: rivals.knn_bayes_error(X4, [0, 0, 1, 1], 4), "n_neighbors.*4"),
    "nan in the rows": (lambda: rivals.knn_bayes_error([[np.nan], [1.0]], Y2), "X.*nan"),
    "other labels than rows": (lambda: rivals.knn_bayes_error(X4, Y2), "X and y.*4 and 2"),
    "unknown setting": (lambda: rivals.paper_rivals(epochs=3), "'epochs'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_words(name):
    call, pattern = REFUSED[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the pattern is checked below, across lines)
        call()
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)
