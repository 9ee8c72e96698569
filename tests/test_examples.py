"""The examples run as they are, without a screen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_says_something(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) >= 10


def test_there_is_an_example_of_every_application():
    assert {path.stem.removeprefix("plot_") for path in EXAMPLES} >= {
        "merge_classes",
        "label_smoothing",
        "adaptive_sampling",
        "audit_classifier",
        "ambiguous_rows",
    }
