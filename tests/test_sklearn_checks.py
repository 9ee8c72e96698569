"""CollisionClassifier keeps scikit-learn's rules, alone and inside its tools."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from collidescope import CollisionClassifier, TableClassifier
from collidescope.datasets import scenario_a

TINY = {"members": ["linear"], "limit": False, "cv": 2, "random_state": 0}

#: What these small and short fits are worth is not the question here.
pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")

BY_ROW = "folds and batches are drawn by row: a row of weight 2 and the row twice give different draws"
EXPECTED_FAILURES = {
    f"check_sample_weight_equivalence_on_{kind}_data": BY_ROW
    for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [CollisionClassifier(**TINY)], expected_failed_checks=lambda _: EXPECTED_FAILURES
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(240, 0)


def test_a_grid_search_over_members_finds_what_a_single_fit_finds(data):
    X, y = data
    grid = {"collisionclassifier__members": [["linear"], ["neighbours"]]}
    pipeline = make_pipeline(StandardScaler(), CollisionClassifier(**TINY))
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(X, y)
    assert len(search.cv_results_["params"]) == 2
    assert (search.cv_results_["mean_test_score"] > -np.log(3)).all()
    members = search.best_params_["collisionclassifier__members"]
    chosen = CollisionClassifier(**(TINY | {"members": members})).fit(
        StandardScaler().fit_transform(X), y
    )
    best = search.best_estimator_[-1]
    assert np.array_equal(
        best.collision_matrix_.matrix, chosen.collision_matrix_.matrix
    )


@pytest.mark.parametrize("classifier", [CollisionClassifier, TableClassifier])
def test_routed_metadata_reaches_the_fit(data, classifier):
    X, y = pd.DataFrame(data[0], columns=list("abcd")), data[1]
    params = {
        "sample_weight": np.where(y == 0, 3.0, 1.0),
        "groups": np.arange(len(y)) // 2,
    }
    with sklearn.config_context(enable_metadata_routing=True):
        clf = classifier(**TINY).set_fit_request(sample_weight=True, groups=True)
        clf.set_score_request(sample_weight=False)
        result = cross_validate(clf, X, y, cv=2, params=params, return_estimator=True)
    for fitted in result["estimator"]:
        assert fitted.priors_ == pytest.approx([3 / 5, 1 / 5, 1 / 5])
        assert fitted.collision_matrix_.n_units < 120


def test_a_clone_a_dataframe_or_float32_gives_what_an_array_gives(data):
    X, y = data
    plain = CollisionClassifier(**TINY).fit(X, y)
    assert np.array_equal(clone(plain).fit(X, y).posteriors_, plain.posteriors_)
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert np.array_equal(
        CollisionClassifier(**TINY).fit(frame, pd.Series(y)).posteriors_,
        plain.posteriors_,
    )
    narrow = CollisionClassifier(**TINY).fit(X.astype(np.float32), y)
    assert narrow.collision_matrix_.matrix == pytest.approx(
        plain.collision_matrix_.matrix, abs=1e-4
    )


@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix])
def test_sparse_input_equals_dense_input(data, container):
    X, y = data
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    dense, sparse = (
        CollisionClassifier(**TINY).fit(X, y),
        CollisionClassifier(**TINY).fit(container(X), y),
    )
    assert np.array_equal(
        sparse.collision_matrix_.matrix, dense.collision_matrix_.matrix
    )
    assert np.array_equal(sparse.predict_proba(container(X)), dense.predict_proba(X))
