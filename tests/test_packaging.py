"""The package as others get it: built, installed into an empty environment and used."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USE = """
import sys
import numpy as np
import collidescope as cs

X = np.random.default_rng(0).normal(size=(60, 2))
y = (X[:, 0] > 0).astype(int)
clf = cs.CollisionClassifier(members=["linear"], cv=2, limit=False, random_state=0).fit(X, y)
print(cs.__file__, clf.collision_matrix_.n_classes)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A folder with the wheel and the sdist of a clean copy, built without the network."""
    pytest.importorskip("setuptools")
    source = tmp_path_factory.mktemp("source") / "collidescope"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    folder = tmp_path_factory.mktemp("dist")
    build = f"""
import setuptools.build_meta as backend
backend.build_sdist({str(folder)!r})
backend.build_wheel({str(folder)!r})
"""
    command = [sys.executable, "-c", build]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def python(dist, tmp_path_factory):
    """An interpreter whose only package of its own is the wheel; the others are those of this one.

    A line in a ``.pth`` file lends it the packages that are installed here.
    """
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    (packages / "lent.pth").write_text("\n".join(map(str, lent_folders())))
    return folder / "bin" / "python"


def lent_folders() -> list[Path]:
    import numpy

    return [Path(numpy.__file__).parents[1]]


def in_environment(
    python: Path, *arguments: str, cwd: Path
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    command = [str(python), *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_the_installed_wheel_fits(python, tmp_path):
    done = in_environment(python, "-c", USE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    where, classes = done.stdout.split()
    assert Path(where).is_relative_to(python.parents[1])
    assert classes == "2"


@pytest.mark.slow
def test_the_command_line_of_the_installed_wheel_answers(python, tmp_path):
    done = in_environment(python, "-m", "collidescope", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fit" in done.stdout


@pytest.fixture(scope="module")
def packed(dist):
    """The names of files in the wheel, without those about it."""
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_the_wheel_holds_just_the_package(packed):
    source = ROOT / "src"
    paths = [path for path in (source / "collidescope").rglob("*") if path.is_file()]
    ours = {str(path.relative_to(source)) for path in paths}
    assert packed == {name for name in ours if "__pycache__" not in name}
    kinds = {Path(name).suffix for name in packed}
    assert kinds == {".py", ".typed", ".j2", ".js", ".css"}


@pytest.mark.slow
def test_the_sdist_holds_what_the_wheel_is_built_from(dist, packed):
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE"} <= held
    assert {f"src/{name}" for name in packed} <= held


def test_the_citation_names_the_paper():
    assert "arXiv:2411.12127" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_page_that_llms_txt_names_exists():
    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    pages = re.findall(r"\]\(([^)]+)\)", text)
    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_every_name_that_llms_txt_gives_is_public():
    import collidescope as cs

    text = (ROOT / "llms.txt").read_text(encoding="utf-8")
    names = set(re.findall(r"`cs\.(\w+)", text))
    assert names
    assert {name for name in names if not hasattr(cs, name)} == set()
