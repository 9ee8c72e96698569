"""Tables of polars, eager and lazy, are taken wherever those of pandas are."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import collidescope as cs

pl = pytest.importorskip("polars")
SHORT = {"members": ["linear"], "cv": 3, "random_state": 0}


@pytest.fixture(scope="module")
def wine():
    """Three columns, each row twice so that inputs repeat, and the labels."""
    X, y = load_wine(return_X_y=True, as_frame=True)
    some = X[["alcohol", "malic_acid", "ash"]].iloc[::2]
    twice = pd.concat([some, some], ignore_index=True)
    return twice, np.tile(y.to_numpy()[::2], 2)


@pytest.fixture(scope="module")
def fitted(wine):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cs.CollisionWarning)
        return cs.CollisionClassifier(**SHORT).fit(*wine)


CALLS = {
    "fit": lambda clf, X, y: cs.CollisionClassifier(**SHORT).fit(X, y).posteriors_,
    "fit a table": lambda clf, X, y: cs.TableClassifier(**SHORT).fit(X, y).posteriors_,
    "predict": lambda clf, X, y: clf.predict_proba(X),
    "estimate": lambda clf, X, y: (
        cs.estimate_collisions(clf, X, y, cv="prefit", limit=False).matrix
    ),
    "count": lambda clf, X, y: cs.count_collisions(X, y).matrix,
    "audit": lambda clf, X, y: cs.audit(clf, X, y, np.zeros_like(y)),
    "columns": lambda clf, X, y: cs.column_value(clf, X, y, random_state=0).table,
    "report": lambda clf, X, y: cs.plot.summarise(clf, X, y),
}


@pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
@pytest.mark.filterwarnings("error::polars.exceptions.PerformanceWarning")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_frames_of_polars_give_what_those_of_pandas_give(wine, fitted, call):
    X, y = wine
    frame = pl.from_pandas(X)
    wanted, eager, lazy = (
        str(call(fitted, own, y)) for own in (X, frame, frame.lazy())
    )
    assert eager == lazy == wanted
