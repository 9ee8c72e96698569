"""Mutants are made as promised and none where it would mean nothing. The campaign is ``make mutants``."""

import ast
import sys
from types import ModuleType

import pytest

from stress.mutants import transplant
from stress.operators import KINDS, mutants


def changed(source: str) -> dict[str, list[str]]:
    """Kind → texts of the source with one mistake of that kind."""
    texts: dict[str, list[str]] = {}
    for number, mutant in enumerate(mutants(source)[1]):
        tree, found = mutants(source)
        found[number].apply()
        texts.setdefault(mutant.kind, []).append(ast.unparse(ast.fix_missing_locations(tree)))
    return texts


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("z = x + y", "arithmetic", ["z = x - y"]),
        ("z /= 2 * y", "arithmetic", ["z *= 2 * y", "z = 2 * y", "z /= 2 / y"]),
        ("z = -x", "sign", ["z = x"]),
        ("z = x < y", "comparison", ["z = x <= y", "z = x >= y"]),
        ("z = a and b", "logic", ["z = a or b"]),
        ("z = a if b else c", "logic", ["z = a if not b else c"]),
        ("z = 1.5", "number", ["z = 2.5"]),
        ("def f(x):\n    return x", "return", ["def f(x):\n    return None"]),
        ("import math\nz = math.sqrt(x)", "call", ["import math\nz = x"]),
        ("x.sort()", "call", ["pass"]),
        ("z = x.sum(axis=a, out=b)", "keyword", ["z = x.sum(out=b)", "z = x.sum(axis=a)"]),
        ("for i in x:\n    break", "jump", ["for i in x:\n    continue"]),
        ("raise ValueError(x + y)", "jump", ["pass"]),
    ],
)
def test_each_kind_of_mistake_is_made(source, kind, expected):
    assert kind in KINDS
    assert changed(source)[kind] == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        "z: int | None",
        "def f(x: A | B) -> A | B:\n    ...",
        "@decorated(1 + 2)\ndef f():\n    ...",
        "assert x is not None",
        "import numpy as np",
        'z = f"{x + 1}"',
        "class A(B, frozen=True):\n    def __repr__(self):\n        return str(1 + 1)",
        "if TYPE_CHECKING:\n    import pandas",
        "z = float(x)",
        "z = isinstance(x, Sequence | int)",
    ],
)
def test_text_types_and_displays_are_left_alone(source):
    found = [mutant.what for mutant in mutants(source)[1] if "isinstance(" not in mutant.what.split(" | ", 1)[1]]
    assert not found


def test_a_mutant_reaches_functions_methods_and_constants_wherever_they_were_imported(monkeypatch):
    source = "K = 1\ndef f(x, n=1):\n    return x + n * K\nclass A:\n    @property\n    def p(self): return f(K)\n"
    module, other = ModuleType("planted"), ModuleType("other")
    for each in (module, other):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    exec(source, vars(module))
    other.K, f, a = module.K, module.f, module.A()
    expected = {"K|K": (1, 6, 2), "K = 1|K = 2": (2, 7, 4), "x +|x -": (1, 4, 0), "n=1|n=2": (1, 7, 3)}
    for change, values in expected.items():
        transplant(module, compile(source.replace(*change.split("|")), "planted", "exec"))
        assert (other.K, f(5), a.p) == values
