"""CollisionClassifier keeps scikit-learn's rules, alone and inside its tools."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_fit2d_1feature, parametrize_with_checks

from collidescope import CollisionClassifier, TableClassifier
from collidescope.datasets import scenario_a

TINY = {"members": ["linear"], "limit": False, "cv": 2, "random_state": 0}

#: What these small and short fits are worth is not the question here.
pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")

BY_ROW = (
    "folds, inner validation splits and batches are drawn by row, so a row of weight 2 and the row twice give "
    "different draws"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": BY_ROW,
    "check_sample_weight_equivalence_on_sparse_data": BY_ROW,
}


@parametrize_with_checks([CollisionClassifier(**TINY)], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_the_default_number_of_folds_is_lowered_for_small_classes():
    check_fit2d_1feature("CollisionClassifier", CollisionClassifier(members=["linear"], limit=False, random_state=0))


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(240, 0)


def test_a_pipeline_and_a_grid_search_over_members_find_what_a_single_fit_finds(data):
    X, y = data
    search = GridSearchCV(
        make_pipeline(StandardScaler(), CollisionClassifier(**TINY)),
        {"collisionclassifier__members": [["linear"], ["neighbours"]]},
        cv=2,
        scoring="neg_log_loss",
    ).fit(X, y)
    assert len(search.cv_results_["params"]) == 2
    assert (search.cv_results_["mean_test_score"] > -np.log(3)).all()
    members = search.best_params_["collisionclassifier__members"]
    chosen = CollisionClassifier(**(TINY | {"members": members})).fit(StandardScaler().fit_transform(X), y)
    best = search.best_estimator_[-1]
    assert np.array_equal(best.collision_matrix_.matrix, chosen.collision_matrix_.matrix)


def test_a_clone_is_unfitted_and_fits_to_the_same_bits(data):
    X, y = data
    clf = CollisionClassifier(**TINY).fit(X, y)
    copy = clone(clf)
    assert copy.get_params() == clf.get_params()
    assert not hasattr(copy, "collision_matrix_")
    assert np.array_equal(copy.fit(X, y).predict_proba(X), clf.predict_proba(X))


def test_fitting_leaves_parameters_and_data_alone(data):
    X, y = (part.copy() for part in data)
    clf = CollisionClassifier(**TINY, priors=np.array([0.5, 0.25, 0.25]))
    before = {name: repr(value) for name, value in clf.get_params().items()}
    clf.fit(X, y)
    assert {name: repr(value) for name, value in clf.get_params().items()} == before
    assert np.array_equal(X, data[0])
    assert np.array_equal(y, data[1])


@pytest.mark.parametrize("changes", [{"members": "quick"}, {"model": "pairwise"}], ids=["pool", "pairs"])
def test_joblib_brings_back_the_same_predictions(tmp_path, data, changes):
    X, y = data
    brief = {"training": {"hidden_layer_sizes": (8,), "max_epochs": 3}}
    clf = CollisionClassifier(**(TINY | brief | changes)).fit(X, y)
    joblib.dump(clf, tmp_path / "model.joblib")
    back = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(back.predict_proba(X), clf.predict_proba(X))
    assert back.collision_matrix_ == clf.collision_matrix_


@pytest.mark.parametrize("classifier", [CollisionClassifier, TableClassifier])
def test_routed_sample_weights_and_groups_reach_the_fit(data, classifier):
    X, y = pd.DataFrame(data[0], columns=list("abcd")), data[1]
    groups = np.arange(len(y)) // 2
    weight = np.where(y == 0, 3.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        clf = classifier(**TINY).set_fit_request(sample_weight=True, groups=True)
        params = {"sample_weight": weight, "groups": groups}
        result = cross_validate(
            clf.set_score_request(sample_weight=False), X, y, cv=2, params=params, return_estimator=True
        )
    for fitted in result["estimator"]:
        assert fitted.priors_ == pytest.approx([3 / 5, 1 / 5, 1 / 5])
        assert fitted.collision_matrix_.n_units < 120


def test_a_dataframe_gives_its_column_names_and_asks_for_them_again(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = CollisionClassifier(**TINY).fit(frame, pd.Series(y))
    assert clf.feature_names_in_.tolist() == list("abcd")
    assert clf.n_features_in_ == 4
    plain = CollisionClassifier(**TINY).fit(X, y)
    assert np.array_equal(clf.predict_proba(frame), plain.predict_proba(X))
    narrow = CollisionClassifier(**TINY).fit(X.astype(np.float32), y)
    assert narrow.collision_matrix_.matrix == pytest.approx(plain.collision_matrix_.matrix, abs=1e-4)
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[list("dcba")])


@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_matrix])
def test_sparse_input_equals_dense_input(data, container):
    X, y = data
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    dense, sparse = CollisionClassifier(**TINY).fit(X, y), CollisionClassifier(**TINY).fit(container(X), y)
    assert np.array_equal(sparse.collision_matrix_.matrix, dense.collision_matrix_.matrix)
    assert np.array_equal(sparse.predict_proba(container(X)), dense.predict_proba(X))
