"""The map from the paper's equations to lines: complete, and every name in it exists."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "equations.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
#: "[`name`](file "dotted.name")"
LINKED = re.findall(r"\[`(\w+)`\]\((\S+) \"([\w.]+)\"\)", PAGE)

#: Numbered equations of the manuscript.
EQUATIONS = range(1, 66)
STATEMENTS = [
    *(f"Definition {number}" for number in range(1, 10)),
    *("Proposition 1", "Theorem 1", "Theorem 2", "Theorem 3", "Lemma 1", "Lemma 2"),
    *("Algorithm 1", "Algorithm 2", "Algorithm 3"),
]


def named(dotted):
    """The object of a dotted name."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ImportError(dotted)


@pytest.mark.parametrize("number", EQUATIONS)
def test_every_numbered_equation_has_a_row(number):
    assert any(f"({number})" in row[0] for row in ROWS)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_has_a_row(statement):
    assert any(re.search(rf"{statement}\b", row[0]) for row in ROWS)


def test_every_row_names_a_function():
    without = [
        row[0]
        for row in ROWS[1:]
        if "`" not in row[2] and row[0].strip() != "The paper"
    ]
    assert without == []


@pytest.mark.parametrize(("name", "file", "dotted"), sorted(set(LINKED)))
def test_a_linked_function_is_defined_in_the_file_that_the_link_leads_to(
    name, file, dotted
):
    tree = ast.parse((DOCS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    assert named(dotted) is not None
    assert dotted.endswith(name)


def test_links_are_found():
    assert len(LINKED) > 50


def test_matrices_with_one_gramian_differ_by_an_orthogonal_factor(rng):
    """Lemma 1, with Q = V_B U_Bᵀ U_A V_Aᵀ as its proof gives it."""
    B = rng.normal(size=(4, 4))
    A = B @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert_allclose(A @ A.T, B @ B.T)
    U_A, _, V_A = np.linalg.svd(A)
    U_B, _, V_B = np.linalg.svd(B)
    Q = V_B.T @ U_B.T @ U_A @ V_A
    assert_allclose(Q @ Q.T, np.eye(4), atol=1e-12)
    assert_allclose(B @ Q, A, atol=1e-9)


def test_expected_similarities_are_s_times_the_posterior(rng):
    """(39) to (43), over a population of three inputs."""
    P = rng.dirichlet(np.ones(3), 3)
    share = rng.dirichlet(np.ones(3))
    of_class = P * share[:, None] / (share @ P)
    S = of_class.T @ P
    q = np.array([[of_class[:, i] @ (P @ y) for i in range(3)] for y in P])
    assert_allclose(q, P @ S.T)
