"""Images with human votes: is the counted truth inside the range?

Fashion-MNIST-H has 10,000 images with about 67 votes each. One vote per image is drawn and given as
its label; S, PBER and the range that follow are compared with the truth counted from pairs of votes
on one image.
"""

from __future__ import annotations

import time

import numpy as np

from collidescope import (
    CollisionClassifier,
    CollisionMatrix,
    collision_matrix_from_votes,
)
from studies.markdown import again, columns
from studies.measures import tvd
from studies.real_data import load_fashion_votes, one_vote
from studies.store import Cell, Record, Result, Study, flat


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"seed": 0, "rows": 150}]
    return [{"seed": seed, "rows": 10_000} for seed in range(5)]


def run(cell: Cell) -> Result:
    """What a fit on one vote per image says, beside the truth."""
    images, votes = load_fashion_votes()
    X = images[: cell["rows"]]
    votes = votes[: cell["rows"]]
    truth = collision_matrix_from_votes(votes)
    y = one_vote(votes, np.random.default_rng(cell["seed"]))
    start = time.perf_counter()
    clf = CollisionClassifier(random_state=cell["seed"]).fit(X, y)
    seconds = time.perf_counter() - start
    limit = clf.limit_
    return {
        "seconds": seconds,
        "truth": truth.pber,
        "pber": clf.collision_matrix_.pber,
        "pber_interval": clf.collision_matrix_.pber_interval(),
        "range": limit.pber_interval(),
        "state": limit.state,
        "limit": limit.pber,
        "curve": limit.curve["pber"].tolist(),
        "S": against(clf.collision_matrix_, truth),
        "S at the limit": against(limit.matrix, truth),
    }


def against(found: CollisionMatrix, truth: CollisionMatrix) -> dict[str, float]:
    low, high = found.interval()
    inside = (low <= truth.matrix) & (truth.matrix <= high)
    return {"tvd": tvd(found.matrix, truth.matrix)[0], "covered": float(inside.mean())}


COLUMNS = """
draw | {seed}
truth | {truth:.3f}
PBER now | {pber:.3f}
range | {range[0]:.3f} to {range[1]:.3f}
TVD of S | {S[tvd]:.3f}
TVD of S∞ | {S at the limit[tvd]:.3f}
entries of S covered | {S[covered]:.0%}
of S∞ | {S at the limit[covered]:.0%}
"""


def text(records: list[Record]) -> str:
    return f"""## Images with human votes

Fashion-MNIST-H: 10,000 images with about 67 votes each. The default is given one vote per image;
the truth is counted from pairs of votes on one image.

{columns(COLUMNS, map(flat, records))}

{again("fashion")}"""


STUDY = Study(
    "fashion", "Images with human votes: is the truth in the range?", cells, run, text
)
