"""The collision divergence beside total variation, Hellinger distance and KL (the paper's case
study of two classes).

Two Gaussians N(-μ, 1) and N(μ, scale²) move apart. ``exact`` cells hold all four divergences on a
grid of μ by quadrature, ``estimate`` cells those of samples, through a classifier that tells the
two samples apart, with the interval of the collision divergence. The ``relations`` cell has the
inequalities between the divergences and their inflection points, over both scales.

A linear model is right for equal scales only. For unequal ones the true log-odds are quadratic:
what the linear model cannot see is taken for ambiguity, and its divergence stays too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from collidescope.equations.densities import Divergences, divergences
from collidescope.estimators import estimate_divergences
from studies.reproduction.tabular import rounded
from studies.store import Cell, Study

SCALES = (1.0, 2.0)
GRID = [round(0.05 * i, 2) for i in range(81)]
SAMPLED = [round(0.25 * i, 2) for i in range(13)]
MODELS = {
    "linear": LogisticRegression(),
    "quadratic": make_pipeline(PolynomialFeatures(2), LogisticRegression()),
}
#: Second differences below this may be rounding, in the flat tails.
FLAT = 1e-6


def pair(mu: float, scale: float) -> tuple[Any, Any]:
    """The two Gaussians."""
    return norm(-mu, 1.0), norm(mu, scale)


def run(cell: Cell) -> dict[str, Any]:
    """One part: exact values, estimates from one sample, or relations."""
    parts = {"exact": exact, "estimate": estimate, "relations": relations}
    settings = {name: value for name, value in cell.items() if name != "part"}
    return parts[cell["part"]](**settings)


def exact(scale: float, distances: list[float]) -> dict[str, Any]:
    """All four on a grid, and KL the other way round."""
    forward = [divergences(*pair(mu, scale)) for mu in distances]
    backward = [divergences(*reversed(pair(mu, scale))).kl for mu in distances]
    columns = {
        name: [getattr(row, name) for row in forward] for name in Divergences._fields
    }
    return rounded({"distances": distances, **columns, "kl_reversed": backward})


def estimate(
    scale: float, model: str, rows: int, distances: list[float], seed: int
) -> dict[str, Any]:
    """Divergences of samples of ``rows`` each, with the interval of the collision divergence,
    and the truth."""
    points = []
    for number, mu in enumerate(distances):
        rng = np.random.default_rng([seed, number])
        first = rng.normal(-mu, 1.0, (rows, 1))
        second = rng.normal(mu, scale, (rows, 1))
        model_of = MODELS[model]
        found, cm = estimate_divergences(model_of, first, second, random_state=seed)
        truth = divergences(*pair(mu, scale))
        low, high = cm.interval()
        # the divergence is 1 - 2 S₁₂: the ends change places
        interval = [max(0.0, 1 - 2 * float(high[0, 1])), 1 - 2 * float(low[0, 1])]
        point = {"distance": mu, "truth": truth._asdict(), "interval": interval}
        point["estimate"] = {
            name: value if np.isfinite(value) else None
            for name, value in found._asdict().items()
        }
        point["covered"] = interval[0] <= truth.collision <= interval[1]
        points.append(point)
    return rounded({"points": points})


# ---------------------------------------------------------------- relations


def relations(distances: list[float], step: float) -> dict[str, Any]:
    """Smallest gaps of inequalities, largest errors of identities, and inflection points."""
    values = [divergences(*pair(mu, scale)) for scale in SCALES for mu in distances]
    D, TV, H, KL = np.transpose(values)
    H2 = H**2
    gaps = {
        "0 ≤ D": D,
        "D ≤ 1": 1 - D,
        "D ≤ total variation": TV - D,
        "total variation² ≤ D": D - TV**2,
        "Hellinger² ≤ D": D - H2,
        "D ≤ 2 Hellinger²": 2 * H2 - D,
        "D ≤ KL": KL - D,
    }
    return {
        "gaps": {name: float(gap.min()) for name, gap in gaps.items()},
        "inflections": {f"{scale:g}": inflections(step, scale) for scale in SCALES},
    }


def inflections(step: float, scale: float = 1.0) -> dict[str, list[float]]:
    """Where the curves over μ > 0 change from convex to concave or back; all are even in μ."""
    mu = np.arange(0, 4 + step / 2, step)
    D, TV, H, KL = np.transpose([divergences(*pair(m, scale)) for m in mu])
    curves = {"collision": D, "total variation": TV, "Hellinger": H}
    curves |= {"Hellinger squared": H**2, "KL": KL}
    found = {}
    for name, curve in curves.items():
        bend = np.diff(curve, 2) / step**2
        kept = np.abs(bend) > FLAT
        at = mu[1:-1][kept]
        changes = np.flatnonzero(np.diff(np.sign(bend[kept])))
        found[name] = [float(round((at[i] + at[i + 1]) / 2, 3)) for i in changes]
    return found


def _cells(quick: bool) -> list[Cell]:
    distances = GRID[::8] if quick else GRID
    sampled, rows, seeds = (SAMPLED[::4], 200, 1) if quick else (SAMPLED, 2_000, 10)
    step = 0.05 if quick else 0.01
    exact_cells: list[Cell] = [
        {"part": "exact", "scale": scale, "distances": distances} for scale in SCALES
    ]
    shared = {"part": "estimate", "rows": rows, "distances": sampled}
    return [
        *exact_cells,
        {"part": "relations", "distances": distances, "step": step},
        *(
            shared | {"scale": scale, "model": model, "seed": seed}
            for scale in SCALES
            for model in MODELS
            for seed in range(seeds)
        ),
    ]


STUDY = Study(
    "divergences", "The collision divergence beside its relatives", _cells, run
)
