"""The recipe for Spark in the documentation gives the matrix of one array."""

import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collidescope import collision_matrix_from_posteriors
from collidescope.datasets import scenario_a
from helpers import assert_same

pyspark_sql = pytest.importorskip("pyspark.sql")
if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
NAMES = ["a", "b", "c"]


def recipe() -> str:
    """The code block of the page that imports pyspark."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "pyspark" in block]
    return code


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """Two workers on this machine, which read relative paths below ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = pyspark_sql.SparkSession.builder.master("local[2]")
    builder = builder.config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    yield session
    session.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of pyspark, about pandas 3
def test_the_recipe_gives_the_matrix_of_one_array(spark, tmp_path):
    problem = scenario_a(3)
    X, codes = problem.sample(900, 0)
    table = pd.DataFrame(problem.posteriors(X), columns=NAMES)
    table["label"] = np.array(NAMES)[codes]
    (tmp_path / "heldout.parquet").mkdir()
    for number in range(3):
        part = table[number::3]
        part.to_parquet(tmp_path / "heldout.parquet" / f"part-{number}.parquet")
    found = {"__name__": "__main__"}
    exec(compile(recipe(), str(PAGE), "exec"), found)
    assert found["total"].n_rows == 900
    expected = collision_matrix_from_posteriors(table[NAMES], table["label"])
    assert_same(found["cm"], expected)
