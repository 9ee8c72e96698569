"""An evaluator for MLflow: S, PBER with its interval, the range and the report of a run.

Registered as the entry point ``mlflow.model_evaluator`` named ``collidescope``::

    mlflow.models.evaluate(
        model_uri,
        data,
        targets="y",
        model_type="classifier",
        evaluators=["collidescope"],
    )

The evaluated rows must be rows that the model was not trained on. The model needs
``predict_proba``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mlflow.models.evaluation.base import (
    EvaluationDataset,
    EvaluationResult,
    ModelEvaluator,
)
from mlflow.tracking import MlflowClient

from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import collision_matrix_from_posteriors


class CollisionEvaluator(ModelEvaluator):  # type: ignore[misc]
    """Logs PBER, S and the report.

    Metrics: ``pber``, ``pber_low``, ``pber_high``, and of a model with a limit ``pber_limit_low``
    and ``pber_limit_high``. Artifacts: ``collision_matrix.json`` and ``report.html``.
    ``evaluator_config`` may hold ``report`` (default True) and ``title``.
    """

    @classmethod
    def can_evaluate(cls, *, model_type: str, **kwargs: object) -> bool:
        """Classifiers only."""
        return model_type == "classifier"

    def evaluate(
        self,
        *,
        dataset: EvaluationDataset,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None = None,
        model: object = None,
        **_: object,
    ) -> EvaluationResult:
        """Score the rows with the model, estimate S, log it."""
        config = dict(evaluator_config or {})
        raw: Any = model
        if hasattr(model, "get_raw_model"):
            raw = model.get_raw_model()
        if not hasattr(raw, "predict_proba"):
            needs = "the collidescope evaluator needs a model with predict_proba"
            hint = (
                "log the classifier itself, with mlflow.sklearn.log_model for example"
            )
            raise ValueError(f"{needs}, got {type(raw).__name__}: {hint}")
        y = np.asarray(dataset.labels_data)
        P = raw.predict_proba(dataset.features_data)
        cm = collision_matrix_from_posteriors(P, y, classes=list(raw.classes_))
        metrics = _metrics(cm, getattr(raw, "limit_", None))
        client = MlflowClient()
        for name, value in metrics.items():
            client.log_metric(run_id, name, value)
        with tempfile.TemporaryDirectory() as folder:
            cm.to_json(Path(folder) / "collision_matrix.json")
            if config.get("report", True):
                from collidescope.show import report

                path = Path(folder) / "report.html"
                report(P, y=y, path=path, title=config.get("title"))
            client.log_artifacts(run_id, folder, "collidescope")
        return EvaluationResult(metrics=metrics, artifacts={})


def _metrics(cm: CollisionMatrix, limit: Limit | None) -> dict[str, float]:
    """PBER and its interval; with a limit the range that unlimited rows would leave."""
    low, high = cm.pber_interval() or (np.nan, np.nan)
    found = {"pber": cm.pber, "pber_low": low, "pber_high": high}
    if limit is not None:
        low, high = limit.pber_interval()
        found["pber_limit_low"] = float(low)
        found["pber_limit_high"] = float(high)
    return found
