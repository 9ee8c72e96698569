"""The collision divergence beside total variation, Hellinger distance and KL (the paper's case
study of two classes).

Two Gaussians N(-μ, 1) and N(μ, scale²) move apart. ``exact`` cells hold all four divergences on a
grid of μ by quadrature, ``estimate`` cells those of samples, through a classifier that tells the
two samples apart, with the interval of the collision divergence. The ``claims`` cell checks each
statement of the paper, and the inequalities between the divergences that are known elsewhere, over
both scales.

A linear model is right for equal scales only. For unequal ones the true log-odds are quadratic:
what the linear model cannot see is taken for ambiguity, and its divergence stays too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm, uniform
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
#: Quadrature is right to about 1e-13; inequalities and identities are held to this.
TOLERANCE = 1e-9
#: Second differences below this may be rounding, in the flat tails.
FLAT = 1e-6


def pair(mu: float, scale: float) -> tuple[Any, Any]:
    """The two Gaussians."""
    return norm(-mu, 1.0), norm(mu, scale)


def run(cell: Cell) -> dict[str, Any]:
    """One part: exact values, estimates from one sample, or claims."""
    if cell["part"] == "exact":
        return exact(cell["scale"], cell["distances"])
    if cell["part"] == "estimate":
        return estimate(
            cell["scale"], cell["model"], cell["rows"], cell["distances"], cell["seed"]
        )
    return {"claims": check_claims(cell["distances"], cell["step"])}


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
        first, second = (
            rng.normal(-mu, 1.0, (rows, 1)),
            rng.normal(mu, scale, (rows, 1)),
        )
        found, cm = estimate_divergences(
            MODELS[model], first, second, random_state=seed
        )
        truth = divergences(*pair(mu, scale))
        low, high = cm.interval() or (cm.matrix, cm.matrix)
        # the divergence is 1 - 2 S₁₂: the ends change places
        interval = [max(0.0, 1 - 2 * float(high[0, 1])), 1 - 2 * float(low[0, 1])]
        points.append(
            {
                "distance": mu,
                "estimate": {
                    k: v if np.isfinite(v) else None for k, v in found._asdict().items()
                },
                "truth": truth._asdict(),
                "interval": interval,
                "covered": interval[0] <= truth.collision <= interval[1],
            }
        )
    return rounded({"points": points})


# ---------------------------------------------------------------- the claims


def check_claims(distances: list[float], step: float) -> list[dict[str, Any]]:
    """Statements about the divergences, each with its source, a verdict and the number behind
    it."""
    values = {
        (mu, scale): divergences(*pair(mu, scale))
        for scale in SCALES
        for mu in distances
    }
    D = np.array([v.collision for v in values.values()])
    TV = np.array([v.total_variation for v in values.values()])
    H2 = np.array([v.hellinger for v in values.values()]) ** 2
    KL = np.array([v.kl for v in values.values()])
    same = np.array([key == (0.0, 1.0) for key in values])
    far = divergences(*pair(40.0, 1.0))
    disjoint = divergences(uniform(0, 1), uniform(2, 1)).collision
    identity, error = _identities(distances)
    found: list[dict[str, Any]] = []

    def claim(source: str, statement: str, holds: bool, measured: str) -> None:
        found.append(
            {
                "source": source,
                "claim": statement,
                "holds": bool(holds),
                "measured": measured,
            }
        )

    claim(
        "paper",
        "S₁₂ lies between 0 and 1/2, so D between 0 and 1",
        D.min() >= -TOLERANCE and D.max() <= 1 + TOLERANCE,
        f"D from {abs(D.min()):.3g} to {D.max():.6f}",
    )
    claim(
        "paper",
        "S₁₂ is 1/2 (D is 0) only for identical distributions",
        abs(D[same]).max(initial=0.0) < TOLERANCE < D[~same].min(),
        f"D = {abs(D[same]).max(initial=0.0):.1g} for identical ones, at least "
        f"{D[~same].min():.3g} for others",
    )
    claim(
        "paper",
        "S₁₂ is 0 (D is 1) for disjoint supports",
        abs(disjoint - 1) < TOLERANCE,
        f"D = {disjoint:.6f} for uniform distributions on [0, 1] and [2, 3]",
    )
    claim(
        "paper",
        "at equal priors S₁₂ is the PBER",
        error < TOLERANCE,
        f"largest difference {error:.1g}",
    )
    claim(
        "paper",
        "D is the chance of class 1 less that of class 2, for inputs of class 1",
        identity < TOLERANCE,
        f"largest difference {identity:.1g} from a second rule of integration",
    )
    claim(
        "paper",
        "D is bounded by 1 where KL has no bound",
        max(D.max(), far.collision) <= 1 + TOLERANCE and far.kl > 1_000,
        f"at μ = 40 D is {far.collision:.4f} and KL {far.kl:,.0f}",
    )
    bends, unequal = inflections(step), inflections(step, SCALES[-1])
    others = [name for name in ("total variation", "Hellinger", "KL") if bends[name]]
    claim(
        "paper",
        "as a function of μ, D has two inflection points",
        len(bends["collision"]) == 1,
        "at μ = " + ", ".join(f"±{mu:.2f}" for mu in bends["collision"]),
    )
    claim(
        "paper",
        "that shape is distinct from total variation, Hellinger and KL",
        not others,
        "none of the three has an inflection point at μ > 0"
        if not others
        else f"also in {', '.join(others)}",
    )
    claim(
        "paper",
        "the shape is unique (for other divergences and scales as well)",
        not bends["Hellinger squared"]
        and not any(unequal[name] for name in unequal if name != "collision"),
        "the squared Hellinger distance bends twice too, at "
        f"μ = ±{bends['Hellinger squared'][0]:.2f}; "
        f"with scales 1 and {SCALES[-1]:g} so do "
        + ", ".join(name for name in unequal if unequal[name] and name != "collision"),
    )
    for statement, gap in (
        ("D ≤ total variation", TV - D),
        ("total variation² ≤ D", D - TV**2),
        ("Hellinger² ≤ D", D - H2),
        ("D ≤ 2 Hellinger²", 2 * H2 - D),
        ("D ≤ KL", KL - D),
    ):
        claim(
            "known",
            statement,
            gap.min() >= -TOLERANCE,
            f"smallest gap {gap.min():.2g} over {len(gap)} pairs",
        )
    forward, backward = (
        divergences(*pair(1.0, 2.0)),
        divergences(*reversed(pair(1.0, 2.0))),
    )
    claim(
        "known",
        "D is symmetric, KL is not",
        abs(forward.collision - backward.collision)
        < TOLERANCE
        < abs(forward.kl - backward.kl),
        f"μ = 1, scales 1 and 2: D {forward.collision:.4f} both ways, KL {forward.kl:.3f} and "
        f"{backward.kl:.3f}",
    )
    return found


def _identities(distances: list[float]) -> tuple[float, float]:
    """Largest errors of D = S₁₁ - S₁₂ and of S₁₂ = PBER, with S by the trapezoidal rule from its
    definition."""
    x = np.linspace(-30.0, 30.0, 60_001)
    differences, errors = [], []
    for scale in SCALES:
        for mu in distances:
            f1, f2 = (f.pdf(x) for f in pair(mu, scale))
            p = np.divide(f1, f1 + f2, out=np.full_like(x, 0.5), where=f1 + f2 > 0)
            S11, S12, S22 = (
                np.trapezoid(f * y, x) for f, y in ((f1, p), (f1, 1 - p), (f2, 1 - p))
            )
            D = divergences(*pair(mu, scale)).collision
            differences.append(abs(S11 - S12 - D))
            errors.append(abs(1 - (S11 + S22) / 2 - (1 - D) / 2))
    return float(max(differences)), float(max(errors))


def inflections(step: float, scale: float = 1.0) -> dict[str, list[float]]:
    """Where the curves over μ > 0 change from convex to concave or back; all are even in μ."""
    mu = np.arange(0, 4 + step / 2, step)
    rows = [divergences(*pair(m, scale)) for m in mu]
    curves = {
        "collision": np.array([row.collision for row in rows]),
        "total variation": np.array([row.total_variation for row in rows]),
        "Hellinger": np.array([row.hellinger for row in rows]),
        "Hellinger squared": np.array([row.hellinger for row in rows]) ** 2,
        "KL": np.array([row.kl for row in rows]),
    }
    found = {}
    for name, curve in curves.items():
        bend = np.diff(curve, 2) / step**2
        inner = mu[1:-1]
        kept = np.abs(bend) > FLAT
        signs, at = np.sign(bend[kept]), inner[kept]
        changes = np.flatnonzero(np.diff(signs))
        found[name] = [float(round((at[i] + at[i + 1]) / 2, 3)) for i in changes]
    return found


def _cells(quick: bool) -> list[Cell]:
    distances = GRID[::8] if quick else GRID
    sampled, rows, seeds = (SAMPLED[::4], 200, 1) if quick else (SAMPLED, 2_000, 10)
    cells: list[Cell] = [
        {"part": "exact", "scale": scale, "distances": distances} for scale in SCALES
    ]
    cells.append(
        {"part": "claims", "distances": distances, "step": 0.05 if quick else 0.01}
    )
    return cells + [
        {
            "part": "estimate",
            "scale": scale,
            "model": model,
            "rows": rows,
            "distances": sampled,
            "seed": seed,
        }
        for scale in SCALES
        for model in MODELS
        for seed in range(seeds)
    ]


STUDY = Study(
    "divergences", "The collision divergence beside its relatives", _cells, run
)
