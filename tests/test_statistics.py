"""Statistics that hold: no alarm beyond the nominal rate where there is nothing, S = I where classes are separable,
and no dependence on what should not matter."""

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.intervals import interval
from collidescope.trust import shuffled_control

TRAINING = {
    "hidden_layer_sizes": (),
    "max_epochs": 15,
    "batch_size": 32,
    "learning_rate": 0.05,
}
TINY = {
    "members": ["network"],
    "limit": False,
    "training": TRAINING,
    "cv": 2,
    "random_state": 0,
}

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(240, 0)


def most(repetitions: int, rate: float = 0.05) -> int:
    """So many alarms at the nominal rate that more have a chance below 1 in 1,000."""
    return int(binom.isf(1e-3, repetitions, rate))


def alarms(seed: int) -> dict[str, float]:
    """What is said of 240 labels of four classes that have nothing to do with the features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(240, 4))
    y = rng.permutation(np.arange(240) % 4)
    model = LogisticRegression()
    cm = cs.estimate_collisions(model, X, y, random_state=seed)
    low, high = cm.interval(0.95)
    below, above = cm.pber_interval(0.95)
    chance = 1 - (cm.priors**2).sum()
    P = cs.crossfit_posteriors(model, X, y, random_state=seed)
    said = cs.crossfit_posteriors(GaussianNB(), X, y, random_state=seed).argmax(axis=1)
    return {
        "entries missed": ((low > cm.priors) | (high < cm.priors)).mean(),
        "PBER missed": not below <= chance <= above,
        "structure claimed": above < chance,
        "audit flags": cs.audit(P, y_true=y, y_pred=said).pairs["flagged"].any(),
        "control fails": not shuffled_control(model, X, y, seed).passed,
    }


def test_labels_that_are_noise_raise_no_more_alarms_than_promised():
    """Intervals of S and PBER and the shuffled control at 95%, the audit's flags at a false discovery rate of 5%."""
    found = [alarms(seed) for seed in range(30)]
    for name in ("PBER missed", "structure claimed", "audit flags", "control fails"):
        assert sum(row[name] for row in found) <= most(len(found)), name
    assert np.mean([row["entries missed"] for row in found]) <= 0.08


def test_a_preference_among_classes_nobody_can_tell_apart_is_nothing_to_fix():
    """Two rules on noise, each with its favourites: the one confused its own more often and was flagged for it."""
    flags, repetitions = 0, 40
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        y = np.arange(3000) % 5
        best, said = (
            rng.choice(5, 3000, p=[0.1, 0.1, 0.2, 0.3, 0.3]),
            rng.choice(5, 3000, p=[0.3, 0.3, 0.2, 0.1, 0.1]),
        )
        report = cs.audit(0.2 * np.eye(5)[best] + 0.16, y_true=y, y_pred=said)
        flags += bool(report.pairs["flagged"].any())
    assert flags <= most(repetitions)


def apart(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clouds twenty standard deviations apart."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    return rng.normal(size=(n, k)) + 20 * np.eye(k)[y], y


def assert_is_identity(cm: cs.CollisionMatrix) -> None:
    low, high = cm.interval()
    assert (low <= np.eye(3) + 1e-12).all()
    assert (np.eye(3) <= high + 1e-12).all()


@pytest.mark.parametrize("seed", range(6))
def test_separable_classes_give_the_identity_within_the_intervals(seed):
    X, y = apart(3, 150, seed)
    cm = cs.estimate_collisions(LogisticRegression(), X, y, random_state=seed)
    assert_is_identity(cm)
    assert cm.pber_interval()[0] == 0


@pytest.mark.slow
def test_separable_classes_give_the_identity_with_the_default_model():
    clf = cs.CollisionClassifier(cv=2, random_state=0).fit(*apart(3, 90, 0))
    assert_is_identity(clf.collision_matrix_)
    assert clf.collision_matrix_.pber < 1e-3


def variants(
    X: np.ndarray, y: np.ndarray, seed: int
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(X, y, the order that brings S back) of the same data written differently."""
    rows = np.random.default_rng(seed).permutation(len(y))
    same = np.arange(y.max() + 1)
    order = np.roll(same, 1)
    names = np.array([f"class {c}" for c in same])
    return {
        "another order of rows": (X[rows], y[rows], same),
        "other names": (X, names[y], same),
        "another order of classes": (X, order[y], order),
        "another order of features": (X[:, ::-1].copy(), y, same),
    }


def test_what_should_not_matter_changes_a_fit_no_more_than_another_seed(data):
    X, y = data

    def fit(features, labels, seed):
        return (
            cs.CollisionClassifier(**(TINY | {"random_state": seed}))
            .fit(features, labels)
            .one_step_.matrix
        )

    base = [fit(X, y, seed) for seed in range(4)]
    by_seed = np.mean(
        [np.abs(base[a] - base[b]).mean() for a in range(4) for b in range(a)]
    )
    assert by_seed > 1e-4  # else there is nothing to compare with
    changes: dict[str, list[float]] = {}
    for seed in range(4):
        for name, (Z, labels, back) in variants(X, y, seed).items():
            S = fit(Z, labels, seed)[np.ix_(back, back)]
            changes.setdefault(name, []).append(float(np.abs(S - base[seed]).mean()))
    assert changes.pop("other names") == [0.0] * 4
    for name, values in changes.items():
        assert np.mean(values) < 2 * by_seed, name


@pytest.mark.parametrize("size", [1, 7, 100])
def test_no_way_to_divide_the_rows_changes_the_posteriors(data, size):
    X, y = data
    clf = cs.CollisionClassifier(**TINY).fit(X, y)
    parts = [
        clf.predict_proba(X[start : start + size]) for start in range(0, 240, size)
    ]
    # networks compute in float32, whose last bits depend on the shape of the matrices
    assert np.concatenate(parts) == pytest.approx(clf.predict_proba(X), abs=1e-6)


IN_JOBS = {
    "any classifier": lambda n_jobs, X, y: cs.estimate_collisions(
        LogisticRegression(), X, y, random_state=0, n_jobs=n_jobs
    ),
    "networks": lambda n_jobs, X, y: (
        cs.CollisionClassifier(**TINY, n_jobs=n_jobs).fit(X, y).collision_matrix_
    ),
}


@pytest.mark.parametrize("made", IN_JOBS.values(), ids=IN_JOBS)
def test_no_number_of_jobs_changes_the_answer(data, made):
    assert made(2, *data) == made(1, *data)


def test_many_intervals_are_those_of_few_within_a_fiftieth_of_a_standard_error(rng):
    mean = np.concatenate([np.zeros(9000), rng.beta(0.1, 3, 21_000)])
    units = np.exp(rng.uniform(1, 9, len(mean)))
    stderr = np.sqrt(mean * (1 - mean) / units)
    some = rng.permutation(len(mean))[:3000]
    many = interval(mean, stderr, units, 0.95)
    few = interval(mean[some], stderr[some], units[some], 0.95)
    for end, exact in zip(many, few, strict=True):
        off = np.abs(end[some] - exact)
        assert (off <= 0.02 * (stderr[some] + 1 / units[some])).all()
