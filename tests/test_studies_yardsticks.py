"""The yardsticks: bounds of other projects, FeeBee's band, labels passed through T."""

import numpy as np
import pytest

from collidescope import CollisionClassifier
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.limit import limit_from_scores
from studies.accuracy import feebee, feebee_matrix
from studies.accuracy.limit import said_now, watched
from studies.baselines.bounds import BOUNDS, knn_bounds, mst_bounds
from studies.known import with_label_noise
from studies.measures import clear_best
from studies.problems import KINDS, OfKind


def test_the_spanning_tree_has_the_edges_one_would_draw():
    X = np.array([[0.0], [1.0], [2.5], [10.0], [11.0], [11.0]])
    y = np.array([0, 0, 1, 1, 0, 1])
    # edges 0-1, 1-2.5 (mixed), 2.5-10, and among 10, 11, 11 two of which at least one is mixed
    lower, upper = mst_bounds(X, y)
    assert upper in (pytest.approx(2 / 6), pytest.approx(3 / 6))
    assert lower == pytest.approx(bayes_error_bounds(upper, 2)[0])


def test_neighbours_vote_without_the_row_itself():
    X, y = np.array([[0.0], [1.0], [3.0], [4.5]]), np.array([0, 0, 1, 1])
    assert knn_bounds(X, y, 1) == (0.0, 0.0)
    assert knn_bounds(X, np.array([0, 1, 0, 0]), 1)[1] == 0.5


@pytest.mark.parametrize("name", BOUNDS)
def test_every_rival_is_near_the_bayes_error_of_an_easy_problem(name):
    problem = GaussianProblem([[0.0], [2.0]])
    lower, upper = BOUNDS[name](*problem.sample(1500, 0))
    assert lower - 0.03 < problem.bayes_error() < upper + 0.03


def test_the_truth_lies_in_the_band_at_every_share_of_noise():
    problem = scenario_a(3)
    for share in feebee.LEVELS:
        T = (1 - share) * np.eye(3) + share / 3
        error = with_label_noise(problem, T).bayes_error()
        assert feebee.outside(error, share, 3, problem.bayes_error()) == pytest.approx(
            0, abs=1e-9
        )
    assert feebee.outside(0.5, 0.0, 3, 0.1) == pytest.approx(0.4)


def test_scores_are_the_distances_of_both_estimates_from_the_band():
    limit = limit_from_scores(
        np.tile([0.3, 0.2], (9, 1)), [10, 20], errors=np.tile([0.3, 0.2], (9, 1))
    ).to_dict()
    run = {
        "kind": "estimates",
        "data": "toy",
        "share": 0.5,
        "classes": 2,
        "limit": limit,
    }
    run |= {name: [0.1, 0.4] for name in BOUNDS}
    # half of the labels of an error of at most 0.25 drawn anew: between 0.25 and 0.375
    reference = {"kind": "reference", "data": "toy", "error": 0.25}
    found = feebee.scores([reference, run]).loc["toy"]
    for name in BOUNDS:
        assert found.loc[name].to_dict() == pytest.approx(
            {"L": 0.15, "U": 0.025, "outside": 0}
        )
    low, high = feebee.ours_now(run, feebee.RANGE)
    ours = found.loc[feebee.RANGE]
    assert ours["L"] == pytest.approx(0.25 - low)
    assert ours["outside"] == (high < 0.25)
    likely = found.loc[feebee.LIKELY]
    assert likely["L"] == likely["U"] >= 0.05
    assert likely["outside"] == 1


@pytest.mark.parametrize("name", feebee_matrix.NOISE)
def test_labels_passed_through_t_change_b_as_the_planted_t_says(name):
    problem, T = scenario_a(3), feebee_matrix.NOISE[name](3)
    assert T.sum(axis=1) == pytest.approx(1)
    X, y = problem.sample(40_000, 0, stratified=False)
    shown = feebee_matrix.shown(y, T, np.random.default_rng(1))
    noisy = with_label_noise(problem, T)
    passed, stderr = feebee_matrix.one_step(problem.posteriors(X), y, T)
    given, own = feebee_matrix.one_step(noisy.posteriors(X), shown, np.eye(3))
    truth = noisy.collision_matrix().joint
    assert np.abs(passed - truth).max() < 5 * stderr.max()
    assert np.abs(given - truth).max() < 5 * own.max()


def test_a_lead_within_two_standard_errors_is_not_bold():
    texts = {"a": "a", "b": "b"}
    noise = np.array([0.5, -0.4, 0.3, -0.6])
    assert clear_best({"a": np.ones(4), "b": np.ones(4) + 0.1 + noise}, texts) == texts


def test_a_lead_beyond_two_standard_errors_is_bold():
    noise = np.array([0.5, -0.4, 0.3, -0.6])
    found = clear_best(
        {"a": np.ones(4), "b": np.ones(4) + 2 + noise}, {"a": "a", "b": "b"}
    )
    assert found == {"a": "**a**", "b": "b"}


@pytest.mark.parametrize("name", KINDS)
def test_made_up_labels_are_drawn_from_the_posteriors_beside_them(name):
    _, y, P = KINDS[name](4_000, np.random.default_rng(0))
    logs = np.log(np.maximum(P, 1e-300))
    surprise = logs[np.arange(4_000), y] - (P * logs).sum(axis=1)
    assert abs(surprise.mean()) <= 5 * surprise.std() / np.sqrt(4_000)
    assert abs(P.sum(axis=0) - np.bincount(y)).max() < 5 * np.sqrt(1_000)


def coin(n: int, rng: np.random.Generator) -> tuple:
    """A kind whose inputs tell the chance of heads, even from 0 to 1."""
    chance = rng.random(n)
    P = np.column_stack([chance, 1 - chance])
    return chance[:, None], (rng.random(n) >= chance).astype(int), P


def test_a_kind_knows_its_own_truth():
    kind = OfKind(coin)
    assert kind.collision_matrix().pber == pytest.approx(1 / 3, abs=0.005)
    assert kind.bayes_error() == pytest.approx(1 / 4, abs=0.005)


def test_todays_prior_gives_the_range_of_a_recorded_curve():
    scores = np.random.default_rng(0).exponential([0.4, 0.35, 0.32], (2000, 3))
    limit = limit_from_scores(scores, [250, 500, 1000], errors=scores > 0.5)
    recorded = {"curve": limit.to_dict(), "classes": 3, "low": -1.0, "high": -1.0}
    found = said_now(recorded | {"at_size": [{"weights": {"linear": 1.0}}]})
    assert (found["low"], found["high"]) == pytest.approx(
        limit.pber_interval(), abs=1e-6
    )


def test_a_fit_is_watched_at_every_size():
    X, y = GaussianProblem([[0.0], [2.0]]).sample(200, 0)
    with watched() as at_size:
        clf = CollisionClassifier(members=["linear"], cv=2, random_state=0).fit(X, y)
    assert len(at_size) == len(clf.posteriors_by_size_) > 1
