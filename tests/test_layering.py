"""Data flows one way: a module imports only rooms above its own, and importing the package stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "collidescope"

#: From the top down; rooms on one line do not import each other.
ROOMS = [
    ["_checks", "_environment", "_files", "_progress", "_scaling", "_text", "_words"],
    ["_merging", "_sparse", "_matrix_files"],
    ["matrix", "moments"],
    ["equations"],
    ["inference", "shrinkage", "scale"],
    ["counting", "training"],
    ["pairwise"],
    ["learners"],
    ["crossfit", "persistence"],
    ["estimators"],
    ["_models", "trust"],
    ["classifier"],
    ["loading"],
    ["tables"],
    ["applications"],
    ["show"],
    ["datasets"],
    ["demo"],
    ["cli"],
    ["__main__"],
]
FLOOR = {room: depth for depth, rooms in enumerate(ROOMS) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports when it runs (imports for type checkers alone do not count)."""
    tree = ast.parse(path.read_text())
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    rooms: set[str] = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [
                f"{node.module}.{alias.name}" if node.module == "collidescope" else node.module for alias in node.names
            ]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("collidescope.")}
    return rooms


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_rooms_above_its_own(path):
    own = room_of(path)
    assert own in FLOOR, f"{own} has no place in ROOMS"
    below = {room for room in imported_rooms(path) - {own} if FLOOR[room] >= FLOOR[own]}
    assert not below


def test_torch_is_imported_where_networks_are_trained_and_nowhere_else():
    guilty = {
        room_of(path)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "torch" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch")
    }
    assert guilty == {"applications", "training", "pairwise", "learners", "scale"}


def test_importing_the_package_brings_no_heavy_library_with_it():
    heavy = ("torch", "matplotlib", "plotly", "dask", "pandas", "sklearn")
    code = f"import collidescope, sys; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_using_posteriors_brings_no_torch():
    code = (
        "import collidescope as cs, sys; cs.collision_matrix_from_posteriors([[.9,.1],[.2,.8]], [0, 1]); "
        "print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"


def test_every_public_name_is_there():
    import collidescope

    for name in collidescope.__all__:
        assert getattr(collidescope, name) is not None
    assert set(collidescope.__all__) == set(collidescope._HOME) | {"datasets"}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        collidescope.nonsense  # noqa: B018
