"""Data flows one way: a module imports only rooms of its own floor or above; torch is imported where it is used."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "collidescope"

#: From the top down; rooms of one floor may use each other.
FLOORS = [
    [
        "_checks",
        "_environment",
        "_progress",
        "_rows",
        "_saving",
        "_scaling",
        "_store",
        "_text",
        "_threads",
    ],
    ["intervals", "matrix", "equations", "limit", "scale"],
    ["onestep", "counting", "training"],
    ["folds", "learners", "pairwise", "crossfit", "estimators"],
    ["trust", "classifier", "tables"],
    ["applications", "show", "mlflow", "datasets"],
    ["cli", "__main__"],
]
FLOOR = {room: depth for depth, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_a_module_imports_nothing_from_the_floors_below():
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
        rooms = {name.split(".")[1] for name in found if name.startswith("collidescope.")}
        assert not {other for other in rooms if FLOOR[other] > FLOOR[room]}, path


def test_importing_the_package_brings_no_heavy_library_with_it_and_no_name_that_is_not_public():
    heavy = ("torch", "matplotlib", "plotly", "dask", "pandas", "sklearn", "scipy")
    code = f"import collidescope as cs, sys; print(hasattr(cs, 'nonsense'), [m for m in {heavy} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "False []"


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
    cs.CollisionClassifier(model="pairwise").fit(X, y)
except ImportError as error:
    print(error)
"""


def test_all_but_networks_works_without_torch_and_networks_say_what_to_install(tmp_path):
    call = [sys.executable, "-W", "ignore", "-c", WITHOUT_TORCH, str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
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
    raised = [inner for node in nodes if isinstance(node, ast.Raise) for inner in ast.walk(node)]
    texts = [
        node.value
        for node in raised
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {name for text in texts for name in re.findall(r"\b([a-z_]{3,})=", text)}
    assert len(named) > 10
    assert named <= known
