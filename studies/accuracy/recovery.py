"""Root against the paper's gradient descent on the same Gramian, and one ``eigh`` of its size."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from collidescope import recover
from studies.markdown import table
from studies.measures import tvd
from studies.speed.clock import best_of
from studies.store import Cell, Record, Result, Study, by_part

DESCENT = "root_against_gradient"
LARGE = "large"


def planted(k: int, sharpness: float, rng: np.random.Generator) -> np.ndarray:
    """A symmetric collision matrix (uniform priors): posteriors at random inputs, balanced."""
    P = np.exp(sharpness * rng.standard_normal((6 * k, k)))
    P /= P.sum(axis=1, keepdims=True)
    B = P.T @ P
    d = np.ones(k)
    for _ in range(2000):
        d *= np.sqrt(1 / (d * (B @ d)))
    return B * np.outer(d, d)


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"part": DESCENT}]
    return [{"part": DESCENT}, {"part": LARGE}]


def run(cell: Cell) -> Result:
    rng = np.random.default_rng(0)
    if cell["part"] == LARGE:
        return large(rng)
    rows = []
    for k in (3, 5, 10, 20):
        S = planted(k, 3.0, rng)
        rows += [compare(S, noise, rng) for noise in (0.0, 0.01)]
    return {"rows": rows}


def compare(S: np.ndarray, noise: float, rng: np.random.Generator) -> Result:
    """Time and error of both, on an exact Gramian or one with errors in proportion to it."""
    k = len(S)
    exact = S @ S.T
    E = noise * rng.standard_normal((k, k)) * exact
    G = exact + (E + E.T) / 2
    descent = recover(G, method="gradient")
    fast = best_of(lambda: recover(G), 50)
    slow = best_of(lambda: recover(G, method="gradient"), 2)
    return {
        "gramian": "noisy" if noise else "exact",
        "K": k,
        "root_ms": 1e3 * fast,
        "gradient_ms": 1e3 * slow,
        "ratio": slow / fast,
        "root_tvd": tvd(recover(G).matrix, S)[0],
        "gradient_tvd": tvd(descent.matrix, S)[0],
        "gradient_status": descent.status,
    }


def large(rng: np.random.Generator, k: int = 1000) -> Result:
    S = planted(k, 3.0, rng)
    G = S @ S.T
    one = best_of(lambda: eigh(G), 3)
    whole = best_of(lambda: recover(G), 3)
    return {
        "K": k,
        "eigh_s": one,
        "recover_s": whole,
        "ratio": whole / one,
        "root_tvd": tvd(recover(G).matrix, S)[0],
    }


def text(records: list[Record]) -> str:
    found = by_part(records)
    rows = []
    for r in found[DESCENT]["rows"]:
        times = [
            f"{r['root_ms']:.2f} ms",
            f"{r['gradient_ms']:.0f} ms",
            f"{r['ratio']:,.0f} ×",
        ]
        errors = [f"{r['root_tvd']:.1e}", f"{r['gradient_tvd']:.1e}"]
        rows.append([r["gramian"], str(r["K"]), *times, *errors])
    head = [
        "Gramian",
        "K",
        "root",
        "gradient descent",
        "ratio",
        "TVD, root",
        "TVD, descent",
    ]
    return f"""## Recovery of S from G

{table(head, rows)}

K = {found[LARGE]["K"]:,}: the whole recovery takes {found[LARGE]["ratio"]:.1f} × one
`scipy.linalg.eigh` of that size."""


STUDY = Study(
    "recovery", "S from its Gramian: root against descent", cells, run, text, alone=True
)
