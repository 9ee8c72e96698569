"""The rivals: what each of them promises, on problems whose truth is known."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import softmax

from collidescope._scaling import apply_scaling, fit_scaling
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.training.config import TrainingConfig
from studies import baselines as rivals
from studies.baselines import bayesian
from studies.baselines.bounds import knn_bounds
from studies.known import with_label_noise
from studies.measures import calibration_error, tvd

TINY = {
    "hidden_layer_sizes": (8,),
    "max_epochs": 3,
    "batch_size": 32,
    "device": "cpu",
    "random_state": 0,
}
KINDS = (
    rivals.NetworkClassifier,
    rivals.TemperatureScaledClassifier,
    rivals.DropoutClassifier,
)
PROBLEM = scenario_a(3)
DATA, NEW = PROBLEM.sample(150, 0), PROBLEM.sample(2000, 1)
P2, X4 = [[0.9, 0.1], [0.2, 0.8]], np.arange(8.0).reshape(4, 2)
every_rival = pytest.mark.parametrize(
    "kind", [*KINDS, rivals.BayesianClassifier, rivals.DeepEnsemble]
)


@every_rival
def test_posteriors_come_nearer_to_the_truth_than_the_priors(kind):
    X, Y = NEW[0], PROBLEM.posteriors(NEW[0])
    clf = kind(
        **(
            TINY
            | {"hidden_layer_sizes": (16,), "max_epochs": 25, "learning_rate": 0.01}
        )
    )
    P = clf.fit(*PROBLEM.sample(450, 2)).predict_proba(X)
    assert P.sum(axis=1) == pytest.approx(1)
    assert tvd(P, Y)[0] < 0.7 * tvd(np.broadcast_to(PROBLEM.priors, Y.shape), Y)[0]


@every_rival
def test_the_seed_decides_and_other_draws_are_left_alone(kind):
    X, y = DATA
    before = torch.get_rng_state()

    def posteriors(seed):
        clf = kind(**(TINY | {"max_epochs": 5, "random_state": seed})).fit(X, y)
        return pickle.loads(pickle.dumps(clf)).predict_proba(X)

    first = posteriors(0)
    assert np.array_equal(posteriors(0), first)
    assert np.abs(posteriors(1) - first).max() > 1e-4
    assert torch.equal(torch.get_rng_state(), before)


@every_rival
def test_fewer_epochs_are_the_beginning_of_more(kind):
    short, long = (
        kind(**(TINY | {"max_epochs": epochs})).fit(*DATA) for epochs in (2, 5)
    )
    losses = [entry["train_loss"] for entry in long.history_]
    assert [entry["train_loss"] for entry in short.history_] == losses[:2]
    assert len(losses) == 5


def test_the_calibration_error_of_a_small_table_is_the_one_computed_by_hand():
    P = np.array([[0.95, 0.05], [0.85, 0.15], [0.3, 0.7], [0.6, 0.4], [0.45, 0.55]])
    y = np.array([0, 1, 1, 1, 1])
    # Four bins (0.5, 0.75] and (0.75, 1]: 0.7 and 0.55 right, 0.6 wrong; 0.95 right, 0.85 wrong.
    by_hand = 3 / 5 * abs(2 / 3 - (0.7 + 0.6 + 0.55) / 3) + 2 / 5 * abs(
        1 / 2 - (0.95 + 0.85) / 2
    )
    assert calibration_error(P, y, 4) == pytest.approx(by_hand)


def test_temperature_scaling_lowers_the_calibration_error_of_an_overfitted_network():
    X, y = NEW
    settings = {
        "hidden_layer_sizes": (64, 64),
        "max_epochs": 120,
        "learning_rate": 0.01,
        "device": "cpu",
    }
    clf = rivals.TemperatureScaledClassifier(
        **settings, validation_fraction=0.25, random_state=0
    )
    clf.fit(*PROBLEM.sample(300, 0))
    before, after = (
        calibration_error(m.predict_proba(X), y) for m in (clf.network_, clf)
    )
    assert clf.temperature_ > 2
    assert after < 0.5 * before
    assert np.array_equal(clf.predict(X), clf.network_.predict(X))


def test_the_ensembles_posterior_is_the_mean_of_its_members():
    X, y = DATA
    clf = rivals.DeepEnsemble(n_members=4, **TINY).fit(X, y)
    rows = torch.from_numpy(apply_scaling(X, *fit_scaling(X)))
    with torch.inference_mode():
        members = np.stack(
            [
                softmax(clf.module_.member(m, rows).double().numpy(), axis=1)
                for m in range(4)
            ]
        )
    assert clf.predict_proba(X) == pytest.approx(members.mean(axis=0), abs=1e-6)
    assert np.abs(members[1:] - members[0]).max(axis=(1, 2)).min() > 0.01


def test_the_bayesian_loss_is_the_evidence_lower_bound():
    X, y = torch.from_numpy(DATA[0]).float(), torch.from_numpy(DATA[1])
    module = bayesian.MeanField([4, 3], prior_scale=0.7)
    objective = bayesian.ElboObjective(
        X, y, 3, TrainingConfig(hidden_layer_sizes=()), kl_weight=0.3
    )
    rows = torch.tensor([3, 1, 4, 15])
    torch.manual_seed(0)
    loss = objective.loss(module, rows[None])

    torch.manual_seed(0)
    mean, scale = module.loc * module.prior, module.log_scale.exp() * module.prior
    w = mean + scale * torch.randn(len(module.loc))  # the weights themselves
    of_labels = (X[rows] @ w[:12].view(4, 3) + w[12:]).log_softmax(-1)
    likelihood = len(y) / 4 * of_labels[range(4), y[rows]].sum()
    normal = torch.distributions.Normal
    divergence = torch.distributions.kl_divergence(
        normal(mean, scale), normal(0.0, module.prior)
    ).sum()
    by_hand = (0.3 * divergence - likelihood) / len(y)
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)


def test_class_averages_are_near_the_truth_at_the_true_posteriors():
    X, y = NEW
    P = PROBLEM.posteriors(X)
    cm = rivals.class_averages(P, y)
    for k in range(3):
        assert cm.matrix[k] == pytest.approx(P[y == k].mean(axis=0))
    assert cm.priors == pytest.approx(np.bincount(y) / len(y))
    assert cm.matrix == pytest.approx(PROBLEM.collision_matrix().matrix, abs=0.03)


def test_the_confident_joint_says_what_the_given_labels_truly_are():
    """Separable classes; of the rows that are truly "b", 30% are given the label "a", and none
    the other way."""
    clean = GaussianProblem(
        [[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], classes=["a", "b", "c"]
    )
    problem = with_label_noise(
        clean, [[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]]
    )
    X, y = problem.sample(3000, 0)
    J = rivals.confident_joint_matrix(problem.posteriors(X), y)
    assert J.sum(axis=1) == pytest.approx(1)
    assert J[0, 1] == pytest.approx(0.3 / 1.3, abs=0.03)  # P(true b | given a)
    assert J[1, 0] < 0.01
    assert J[2] == pytest.approx([0, 0, 1], abs=0.01)
    # S is about a second draw of the label, and is symmetric in B where the joint of given and true
    # label is not
    assert problem.collision_matrix().matrix[1, 0] == pytest.approx(0.3, abs=0.01)


def test_the_error_of_one_neighbour_is_the_pber():
    _, upper = knn_bounds(*PROBLEM.sample(4000, 3), 1)
    assert upper == pytest.approx(PROBLEM.collision_matrix().pber, abs=0.03)


def test_settings_reach_the_networks_of_all_paper_rivals():
    X, y = DATA
    found = rivals.paper_rivals(**TINY, n_passes=7)
    assert len(found) == 8
    for name, clf in found.items():
        parameters = clf.get_params()
        for setting, value in TINY.items():
            assert (
                parameters.get(setting, parameters.get(f"estimator__{setting}"))
                == value
            ), name
    assert found["Monte-Carlo dropout"].n_passes == 7
    for name in ("temperature (scikit-learn)", "Platt", "isotonic"):
        P = found[name].fit(X, y).predict_proba(X)
        assert P.sum(axis=1) == pytest.approx(1), name


def fitted(kind=rivals.NetworkClassifier, y=(0, 0, 1, 1), **changes):
    return lambda: kind(**(TINY | changes)).fit(X4, list(y))


REFUSED = {
    "one class": (fitted(y=(1, 1, 1, 1)), "y holds a single class"),
    "no pass": (fitted(rivals.DropoutClassifier, n_passes=0), "n_passes.*0"),
    "no prior": (fitted(rivals.BayesianClassifier, prior_scale=0.0), "prior_scale.*0"),
    "all rows held out": (
        fitted(rivals.TemperatureScaledClassifier, validation_fraction=1),
        "validation_fraction.*1",
    ),
    "an average of nothing": (
        lambda: rivals.class_averages(P2, ["a", "a"], ["a", "b"]),
        "no row of class 'b'",
    ),
    "unknown setting": (lambda: rivals.paper_rivals(epochs=3), "'epochs'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_in_words(name):
    call, pattern = REFUSED[name]
    with pytest.raises(ValueError, match=pattern):
        call()
