"""The examples run as they are, without a screen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    environment.pop("COLLIDESCOPE_DATA", None)  # the data that everybody has
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.split()) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_title(path):
    title, underline = path.read_text(encoding="utf-8").splitlines()[1:3]
    assert set(underline) == {"="}
    assert len(underline) == len(title)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_alternates_prose_with_code(path):
    assert path.read_text(encoding="utf-8").count("\n# %%\n") >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws_a_figure(path):
    assert "plt.show()" in path.read_text(encoding="utf-8")
