"""Mutants are made as promised. The campaign is ``make mutants``."""

import ast
import signal

import pytest

from helpers import in_python
from studies.faults.mutants import outcome
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


READ = """
import ast
from studies.faults.mutants import read_with, source_of
path = source_of("equations.bounds")
read_with(ast.parse(path.read_text() + "PLANTED = 7"), path)
from collidescope.equations import bounds
print(bounds.PLANTED)
"""


def test_a_module_is_read_with_the_mistake():
    assert in_python(READ).stdout == "7\n"


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, "survived"), (1 << 8, "killed"), (signal.SIGXCPU, "timed out")],
)
def test_how_a_process_ended_says_what_became_of_the_mutant(status, expected):
    assert outcome(status) == expected
