"""Do printed confidences hold with training, under groups, weights and few errors?

``studies/grid.py`` asks the same with posteriors that are given. Here the default pool is trained
on every sample. Four cases with known truth, a sample per seed:

- *groups*: 40 groups of 25 rows; a group lies near the boundary of the classes, or far from it
- *weights*: 1,000 independent rows with log-normal weights (σ = 1) that say nothing about them
- *few errors*: 1,000 rows of two clouds that a line separates, .11% of the labels flipped
- *rotated chessboard*: 400 rows, 16 fields turned by 30°, 10% of the labels flipped; boosted
  members alone, which cut along the axes
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from collidescope import CollisionClassifier
from studies.accuracy.made_up import holds
from studies.markdown import again, columns
from studies.measures import Array, Rng
from studies.store import Cell, Record, Result, Study, flat, grouped

LEVEL = 0.95


class Drawn(NamedTuple):
    """A sample and the truth about its population."""

    X: Array
    y: Array
    options: dict[str, Any]
    pber: float
    bayes_error: float
    members: str | list[str] = "auto"


def _logistic(x: Array, rng: Rng) -> tuple[Array, Array]:
    """Inputs and labels: the first of four features tells the class, with P(1) = expit(1.5 x)."""
    noise = rng.standard_normal((len(x), 3))
    y = rng.random(len(x)) < expit(1.5 * x)
    return np.column_stack([x, noise]), y.astype(int)


def _logistic_truth(deviation: float) -> tuple[float, float]:
    """PBER and Bayes error where that feature is normal: means over its quantiles."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    p = expit(1.5 * deviation * nodes)
    weights = weights / weights.sum()
    return float(weights @ (2 * p * (1 - p))), float(weights @ np.minimum(p, 1 - p))


def groups(rng: Rng) -> Drawn:
    number = np.repeat(np.arange(40), 25)
    x = rng.normal(0, 1.5, 40)[number] + rng.normal(0, 0.5, 1000)
    X, y = _logistic(x, rng)
    pber, error = _logistic_truth(float(np.hypot(1.5, 0.5)))
    return Drawn(X, y, {"groups": number}, pber, error)


def weights(rng: Rng) -> Drawn:
    X, y = _logistic(rng.normal(0, 1.5, 1000), rng)
    pber, error = _logistic_truth(1.5)
    return Drawn(X, y, {"sample_weight": rng.lognormal(0, 1, 1000)}, pber, error)


def few_errors(rng: Rng) -> Drawn:
    flipped = 0.0011
    side = rng.integers(0, 2, 1000)
    X = rng.standard_normal((1000, 4))
    X[:, 0] = 6 * side - 3 + 0.5 * X[:, 0]
    y = side ^ (rng.random(1000) < flipped)
    return Drawn(X, y, {}, 2 * flipped * (1 - flipped), flipped)


def rotated_chessboard(rng: Rng) -> Drawn:
    noise = 0.1
    at = rng.random((400, 2))
    colour = np.floor(4 * at).sum(axis=1).astype(int) % 2
    y = colour ^ (rng.random(400) < noise)
    cos = np.cos(np.pi / 6)
    sin = np.sin(np.pi / 6)
    X = at @ np.array([[cos, -sin], [sin, cos]])
    boosted = ["priors", "trees", "trees-plain"]
    return Drawn(X, y, {}, 2 * noise * (1 - noise), noise, boosted)


CASES = {
    "groups": groups,
    "weights": weights,
    "few errors": few_errors,
    "rotated chessboard": rotated_chessboard,
}


def cells(quick: bool) -> list[Cell]:
    """100 samples of each case; of the chessboard 50."""
    if quick:
        return [{"case": "few errors", "seed": 0}]
    return [
        {"case": case, "seed": seed}
        for seed in range(100)
        for case in CASES
        if seed < 50 or case != "rotated chessboard"
    ]


def run(cell: Cell) -> Result:
    """One fit against the truth."""
    drawn = CASES[cell["case"]](np.random.default_rng(cell["seed"]))
    clf = CollisionClassifier(drawn.members, random_state=cell["seed"], n_jobs=1)
    clf.fit(drawn.X, drawn.y, **drawn.options)
    limit = clf.limit_
    now = clf.collision_matrix_
    return {
        "pber": drawn.pber,
        "bayes_error": drawn.bayes_error,
        "plain": list(now.pber_interval(LEVEL)),
        "range": list(limit.pber_interval(LEVEL)),
        "bayes_range": list(limit.bayes_error_interval(LEVEL)),
        "error_limit": now.bayes_error_limit(LEVEL),
        "state": limit.state,
        "curve": limit.to_dict() | {"matrix": None},
    }


COLUMNS = """
case | {case}
true PBER | {pber:.4f}
plain interval | {plain} of {fits}
range of PBER | {range} of {fits}
range of the Bayes error | {bayes_range} of {fits}
error limit | {error_limit} of {fits}
mean width of the range | {width:.4f}
"""


def of_case(runs: list[Result]) -> Result:
    """In how many of the samples the statements held."""
    return {
        "case": runs[0]["case"],
        "pber": runs[0]["pber"],
        "fits": len(runs),
        "plain": sum(holds(run, "pber", "plain") for run in runs),
        "range": sum(holds(run, "pber", "range") for run in runs),
        "bayes_range": sum(holds(run, "bayes_error", "bayes_range") for run in runs),
        "error_limit": sum(run["bayes_error"] <= run["error_limit"] for run in runs),
        "width": np.mean([run["range"][1] - run["range"][0] for run in runs]),
    }


def text(records: list[Record]) -> str:
    rows = [of_case(own) for own in grouped(map(flat, records), "case")]
    return f"""## Confidences with training

The default pool (the chessboard: boosted members alone) is trained on every sample. In how many of
the samples did a statement at 95% hold? The plain interval is about the PBER of these models at this
number of rows, so where much is left to learn it misses the truth, as it should.

{columns(COLUMNS, rows)}

{again("trained")}"""


STUDY = Study(
    "trained", "Groups, weights and few errors, with training", cells, run, text
)
