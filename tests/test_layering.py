"""Data flow one way: a module imports nothing from below it in the drawing; torch is imported where it is used."""

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

from sklearn.datasets import load_iris

import collidescope as cs
from helpers import in_python

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "collidescope"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = sorted(
    path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"
)


def drawing() -> dict[str, int]:
    """The floor of every module and folder, as the drawing in CONTRIBUTING.md numbers them."""
    lines = re.findall(r"^ *(\d+)  (\S.*?)(?:   .*)?$", PAGE, re.MULTILINE)
    return {
        room.removesuffix("/"): int(number)
        for number, rooms in lines
        for room in rooms.split()
    }


def test_every_module_is_in_the_drawing():
    rooms = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in FILES}
    assert set(drawing()) == rooms


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_module_imports_nothing_from_below_it_in_the_drawing():
    floor = drawing()
    for path in FILES:
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text())
        guards = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
        ]
        typing_only = {inner for guard in guards for inner in ast.walk(guard)}
        found = imports(node for node in ast.walk(tree) if node not in typing_only)
        rooms = {
            name.split(".")[1] for name in found if name.startswith("collidescope.")
        }
        assert not {other for other in rooms if floor[other] > floor[room]}, path


def test_importing_the_package_brings_no_heavy_library_with_it():
    heavy = ("torch", "matplotlib", "plotly", "dask", "pandas", "sklearn", "scipy")
    code = f"import collidescope, sys; print([name for name in {heavy} if name in sys.modules])"
    assert in_python(code).stdout.strip() == "[]"


def test_the_package_lists_public_names_only():
    assert dir(cs) == sorted([*cs.__all__, "__version__"])
    assert not [name for name in cs.__all__ if name.startswith("_")]
    assert not hasattr(cs, "nonsense")


WITHOUT_TORCH = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *rest):
        return None if name.split(".")[0] == "torch" else self.finder.find_spec(name, *rest)
sys.meta_path[:] = map(Without, sys.meta_path)
import numpy as np, pandas as pd, collidescope as cs
from sklearn.linear_model import LogisticRegression
rng = np.random.default_rng(0)
y = np.repeat([0, 1], 40)
X = rng.normal(size=(80, 3)) + y[:, None]
cm = cs.collision_matrix_from_posteriors([[.9, .1], [.2, .8], [.7, .3]], [0, 1, 0])
cs.count_collisions(y % 2, y), cs.collision_matrix_from_votes([[2, 1], [0, 3]])
cs.estimate_collisions(LogisticRegression(), X, y, cv=2, limit=True)
members = ["linear", "quadratic", "forest", "trees", "neighbours", "kernel"]
clf = cs.CollisionClassifier(members=members, cv=2, limit=False, random_state=0).fit(X, y)
clf.save(sys.argv[1] + "/a"), cs.load(sys.argv[1] + "/a").predict_proba(X)
table = cs.TableClassifier(members="quick", cv=2, limit=False, random_state=0)
table.fit(pd.DataFrame({"x": X[:, 0], "z": np.where(X[:, 1] > 0, "a", "b")}), y)
cs.summarise(clf, X, y), cs.audit(clf.posteriors_, y_true=y, y_pred=clf.predict(X)), cs.consolidate(cm)
try:
    cs.CollisionClassifier(members=[cs.Pairwise()]).fit(X, y)
except ImportError as error:
    print(error)
"""


def test_without_torch_only_networks_fail_with_what_to_install(tmp_path):
    done = in_python(WITHOUT_TORCH, tmp_path, PYTHONWARNINGS="ignore")
    assert "collidescope[torch]" in done.stdout


def test_a_setting_that_an_error_or_warning_names_exists():
    trees = [ast.parse(path.read_text()) for path in FILES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    signatures = [node for node in nodes if isinstance(node, ast.arguments)]
    known = {
        argument.arg
        for signature in signatures
        for argument in signature.args + signature.kwonlyargs
    }
    known |= {
        node.target.id
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    known |= {"axis", "keepdims", "mmap_mode"}  # of numpy
    raised = [
        inner
        for node in nodes
        if isinstance(node, ast.Raise)
        for inner in ast.walk(node)
    ]
    texts = [
        node.value
        for node in raised
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {name for text in texts for name in re.findall(r"\b([a-z_]{3,})=", text)}
    assert len(named) > 10
    assert named <= known


def trace() -> str:
    """Which modules a fit goes through, by the first call into each from ``fit`` and from the steps it calls."""
    X, y = load_iris(return_X_y=True)
    clf = cs.CollisionClassifier(members=["linear"], cv=2, random_state=0)
    entered = {"classifier": "classifier.fit"}

    def module(frame: FrameType | None) -> str:
        path = Path(frame.f_code.co_filename) if frame else Path()
        if not path.is_relative_to(PACKAGE):
            return ""
        return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(
            ".__init__"
        )

    def enter(frame: FrameType, event: str, _: object) -> None:
        callee = module(frame)
        caller = module(frame.f_back)
        name = frame.f_code.co_name
        hidden = not callee or callee.startswith("_") or name.startswith(("_", "<"))
        if event != "call" or hidden or callee in entered:
            return
        if caller == "classifier" and frame.f_back.f_code.co_name == "fit":
            entered[callee] = f"  {callee}.{name}"
        elif caller in ("models", "crossfit", "estimate") and caller in entered:
            entered[callee] = f"    {callee}.{name}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.setprofile(enter)
        try:
            clf.fit(X, y)
        finally:
            sys.setprofile(None)
    return "\n".join(entered.values())


def test_the_page_shows_the_trace_of_a_fit():
    assert trace() in PAGE, (
        f"run {Path(__file__).name} and put what it prints into CONTRIBUTING.md"
    )


if __name__ == "__main__":
    print(trace())
