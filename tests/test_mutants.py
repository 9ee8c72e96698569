"""Mutants are made as promised. The campaign is ``make mutants``."""

import ast
import sys
from types import ModuleType

import pytest

from studies.faults.mutants import transplant
from studies.faults.operators import KINDS, mutants


def changed(source: str) -> dict[str, list[str]]:
    """Kind → texts of the source with one mistake of that kind."""
    texts: dict[str, list[str]] = {}
    for number, mutant in enumerate(mutants(source)[1]):
        tree, found = mutants(source)
        found[number].apply()
        texts.setdefault(mutant.kind, []).append(
            ast.unparse(ast.fix_missing_locations(tree))
        )
    return texts


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("z = x + y", "arithmetic", ["z = x - y"]),
        ("z /= 2 * y", "arithmetic", ["z *= 2 * y", "z = 2 * y", "z /= 2 / y"]),
        ("z = -x", "sign", ["z = x"]),
        ("z = x < y", "comparison", ["z = x <= y", "z = x >= y"]),
        ("z = a and b", "logic", ["z = a or b"]),
        ("z = 1.5", "number", ["z = 2.5"]),
        ("def f(x):\n    return x", "return", ["def f(x):\n    return None"]),
        ("import math\nz = math.sqrt(x)", "call", ["import math\nz = x"]),
        (
            "z = x.sum(axis=a, out=b)",
            "keyword",
            ["z = x.sum(out=b)", "z = x.sum(axis=a)"],
        ),
        ("for i in x:\n    break", "jump", ["for i in x:\n    continue"]),
    ],
)
def test_each_kind_of_mistake_is_made(source, kind, expected):
    assert kind in KINDS
    assert changed(source)[kind] == expected


def test_a_mutant_reaches_names_wherever_they_were_imported(
    monkeypatch,
):
    source = "K = 1\ndef f(x, n=1):\n    return x + n * K\n"
    source += "class A:\n    @property\n    def p(self): return f(K)\n"
    module, other = ModuleType("planted"), ModuleType("other")
    for each in (module, other):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    exec(source, vars(module))
    other.K, f, a = module.K, module.f, module.A()
    expected = {
        "K|K": (1, 6, 2),
        "K = 1|K = 2": (2, 7, 4),
        "x +|x -": (1, 4, 0),
        "n=1|n=2": (1, 7, 3),
    }
    for change, values in expected.items():
        transplant(
            module, compile(source.replace(*change.split("|")), "planted", "exec")
        )
        assert (other.K, f(5), a.p) == values
