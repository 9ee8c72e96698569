"""Any classifier, cross-fitted: no row is scored by a model that saw it."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from collidescope import (
    collision_matrix_from_posteriors,
    count_collisions,
    crossfit_posteriors,
    estimate_collisions,
)
from collidescope.datasets import scenario_a
from collidescope.equations.densities import BayesOptimalClassifier
from helpers import Memoriser, mean_tvd
from studies.known import led


def test_no_row_is_scored_by_a_model_that_trained_on_it():
    X, y = scenario_a(3).sample(300, 0)
    assert np.allclose(crossfit_posteriors(Memoriser(), X, y, random_state=0), 1 / 3)


def test_a_good_model_recovers_the_truth_within_its_interval():
    problem, names = scenario_a(3), np.array(["low", "middle", "high"])
    X, y = problem.sample(3000, 0)
    options = {
        "priors": "uniform",
        "sample_weight": np.ones(3000),
        "cv": KFold(5, shuffle=True, random_state=0),
    }
    frame = pd.DataFrame(X, columns=list("abcd"))
    cm = estimate_collisions(
        LogisticRegression(), frame, pd.Series(names[y]), **options
    )
    assert np.allclose(cm.priors, 1 / 3)
    order = np.argsort(names)  # that of the classes
    truth = problem.collision_matrix().matrix[np.ix_(order, order)]
    assert mean_tvd(cm.matrix, truth) < 0.02
    assert ((cm.interval()[0] <= truth) & (truth <= cm.interval()[1])).mean() > 0.7


def test_the_true_posteriors_serve_as_a_fitted_classifier(rng):
    truth = BayesOptimalClassifier([norm(-1), norm(1)], classes=["low", "high"])
    y = np.repeat(["high", "low"], 500)
    X = rng.normal(np.where(y == "low", -1, 1))
    with pytest.raises(ValueError, match="knows"):
        # its columns are not in the order of the sorted labels
        estimate_collisions(truth, X, y, cv="prefit")
    truth = BayesOptimalClassifier([norm(1), norm(-1)], classes=["high", "low"])
    cm = estimate_collisions(truth, X, y, cv="prefit")
    assert cm == collision_matrix_from_posteriors(truth.predict_proba(X), y)


@pytest.mark.parametrize(
    "bad", [{"priors": [0.5, 0.6, 0.1]}, {"sample_weight": [-1.0] * 60}]
)
def test_options_are_checked_before_anything_is_fitted(bad):
    X, y = scenario_a(3).sample(60, 0)
    unwanted = SimpleNamespace(fit=None, predict_proba=None)
    with pytest.raises(ValueError, match=next(iter(bad))):
        estimate_collisions(unwanted, X, y, **bad)


def test_estimated_collisions_are_the_counted_ones_where_inputs_repeat():
    X, y = led(0.1).sample(20_000, 0)
    options = {"limit": False, "random_state": 0}
    # noisy segments are log-linear
    estimated = estimate_collisions(LogisticRegression(), X, y, **options)
    assert mean_tvd(estimated.matrix, count_collisions(X, y).matrix) < 0.01


def test_any_classifier_can_have_its_range():
    data = scenario_a(3).sample(750, 0)
    cm = estimate_collisions(LogisticRegression(), *data, random_state=0)
    limit = cm.limit
    assert limit.curve["rows"].tolist() == [75, 150, 300, 600]
    assert (
        limit.pber_interval()[0]
        <= scenario_a(3).collision_matrix().pber
        <= limit.pber_interval()[1]
    )
    assert limit.curve["pber"].iloc[-1] == pytest.approx(cm.pber, abs=2e-3)


def test_no_range_leaves_the_limit_empty():
    data = scenario_a(3).sample(150, 0)
    assert estimate_collisions(LogisticRegression(), *data, limit=False).limit is None
