"""The evaluator logs into a real local MLflow store what the estimator says."""

import re
from pathlib import Path

import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.datasets import GaussianProblem

mlflow = pytest.importorskip("mlflow")
PAGE = Path(__file__).parents[1] / "docs" / "watch.md"


def recipe() -> str:
    """The code block of the page that calls the evaluator."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "mlflow" in block]
    return code


@pytest.mark.filterwarnings("ignore")  # those of mlflow itself
def test_a_run_gets_the_estimate_with_its_report(tmp_path, monkeypatch):
    from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry

    from collidescope.mlflow import CollisionEvaluator

    monkeypatch.chdir(tmp_path)
    # mlflow-skinny has no database
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    if "collidescope" not in _model_evaluation_registry._registry:
        # the entry point, where the package is installed
        _model_evaluation_registry.register("collidescope", CollisionEvaluator)
    problem = GaussianProblem([[0.0, 0], [2.0, 0]])
    X, y = problem.sample(600, 0)
    columns = ["u", "v"]
    model = LogisticRegression().fit(pd.DataFrame(X[:300], columns=columns), y[:300])
    rows = pd.DataFrame(X[300:], columns=columns)
    with mlflow.start_run() as run:
        uri = mlflow.sklearn.log_model(
            model, name="model", serialization_format="pickle"
        ).model_uri
        given = {"mlflow": mlflow, "uri": uri, "data": rows.assign(y=y[300:])}
        exec(compile(recipe(), str(PAGE), "exec"), given)
    expected = collision_matrix_from_posteriors(model.predict_proba(rows), y[300:])
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged["pber"] == pytest.approx(expected.pber)
    assert (logged["pber_low"], logged["pber_high"]) == pytest.approx(
        expected.pber_interval()
    )
    folder = mlflow.artifacts.download_artifacts(
        run_id=run.info.run_id, artifact_path="collidescope"
    )
    assert CollisionMatrix.from_json(f"{folder}/collision_matrix.json") == expected
    assert "PBER" in Path(folder, "report.html").read_text(encoding="utf-8")


def test_a_model_without_probabilities_is_refused():
    from collidescope.mlflow import CollisionEvaluator

    assert not CollisionEvaluator.can_evaluate(model_type="regressor")
    with pytest.raises(ValueError, match="predict_proba"):
        CollisionEvaluator().evaluate(dataset=None, run_id="", model=object())
