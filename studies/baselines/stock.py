"""Stock classifiers of scikit-learn and LightGBM, and the stack that a careful user would make."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from studies.measures import Array

SEED = 0


def scaled(model: Any) -> Any:
    """The model on standardised columns."""
    return make_pipeline(StandardScaler(), model)


def lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=SEED, n_jobs=1, verbose=-1)


#: Nothing is set but seeds, threads, posteriors and what keeps logistic regression and quadratic
#: discriminant analysis from failing (iterations, a little shrinkage).
STOCK = {
    "logistic": lambda: scaled(LogisticRegression(max_iter=1000)),
    "lasso": lambda: scaled(
        LogisticRegression(l1_ratio=1, solver="saga", max_iter=1000, random_state=SEED)
    ),
    "knn": lambda: scaled(KNeighborsClassifier()),
    "knn-unscaled": KNeighborsClassifier,
    "svc": lambda: scaled(SVC(probability=True, random_state=SEED)),
    "random-forest": lambda: RandomForestClassifier(random_state=SEED, n_jobs=1),
    "extra-trees": lambda: ExtraTreesClassifier(random_state=SEED, n_jobs=1),
    "hist-boosting": lambda: HistGradientBoostingClassifier(random_state=SEED),
    "mlp": lambda: scaled(MLPClassifier(random_state=SEED)),
    "naive-bayes": GaussianNB,
    "naive-bayes-signs": BernoulliNB,
    "linear-discriminant": LinearDiscriminantAnalysis,
    "quadratic-discriminant": lambda: QuadraticDiscriminantAnalysis(
        solver="eigen", shrinkage=0.1
    ),
}
if find_spec("lightgbm"):
    STOCK["lightgbm"] = lightgbm

#: As a reader knows them.
TITLES = {
    "logistic": "logistic regression",
    "lasso": "logistic regression, L1",
    "svc": "SVC (RBF, Platt)",
    "mlp": "MLP",
    "naive-bayes": "naive Bayes",
    "naive-bayes-signs": "naive Bayes of signs (Bernoulli)",
    "linear-discriminant": "linear discriminant",
    "quadratic-discriminant": "quadratic discriminant, shrunk",
    "hist-boosting": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "extra-trees": "extra trees",
    "random-forest": "random forest",
    "knn": "kNN, scaled",
    "knn-unscaled": "kNN, unscaled",
}


def tuned_stack() -> Any:
    """A careful user's answer: five models, three of them tuned, and a regression on top."""
    svc = GridSearchCV(
        scaled(SVC(probability=True, random_state=0)),
        {"svc__C": [1, 10]},
        scoring="neg_log_loss",
        cv=2,
    )
    boosting = GridSearchCV(
        HistGradientBoostingClassifier(early_stopping=True, random_state=0),
        {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 31]},
        scoring="neg_log_loss",
        cv=2,
    )
    logistic = scaled(LogisticRegressionCV(Cs=5, cv=3, scoring="neg_log_loss"))
    models = [
        ("logistic", logistic),
        ("quadratic", QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")),
        ("trees", ExtraTreesClassifier(200, min_samples_leaf=3, random_state=0)),
        ("boosting", boosting),
        ("svc", svc),
    ]
    final = LogisticRegression(C=0.1, max_iter=1000)
    return StackingClassifier(models, final, stack_method="predict_proba", cv=2)


def usual_rivals() -> dict[str, Any]:
    """The usual choices for posteriors, and the tuned stack."""
    network = MLPClassifier(
        (128, 128),
        early_stopping=True,
        max_iter=200,
        n_iter_no_change=12,
        random_state=0,
    )
    return {
        "logistic regression": scaled(LogisticRegression(max_iter=1000)),
        "quadratic discriminant": QuadraticDiscriminantAnalysis(
            solver="eigen", shrinkage="auto"
        ),
        "network (early stopping)": scaled(network),
        "gradient boosting": HistGradientBoostingClassifier(
            early_stopping=True, random_state=0
        ),
        "tuned stack": tuned_stack(),
    }


def held_out_posteriors(
    model: Any,
    X: Array,
    y: Array,
    new: Array | None = None,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Held-out posteriors of five stratified folds, and those of new rows, averaged over folds."""
    if new is None:
        new = X[:1]
    K = int(y.max()) + 1
    held_out = np.zeros((len(y), K))
    averaged = np.zeros((len(new), K))
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    for train, test in folds.split(X, y):
        fold = clone(model).fit(X[train], y[train])
        held_out[test[:, None], fold.classes_] = fold.predict_proba(X[test])
        averaged[:, fold.classes_] += fold.predict_proba(new) / folds.get_n_splits()
    return held_out, averaged
