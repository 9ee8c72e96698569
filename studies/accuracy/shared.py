"""What is lost where folds share the models of smaller sizes?

Of 10,000 rows or more two models of each smaller size serve all folds (``folds.sharing_folds``).
Here both ways on the same rows, whose truth is known: processor seconds, the range, and how far
S∞ is off.
"""

from __future__ import annotations

import time
from functools import partial
from unittest.mock import patch

import pandas as pd

from collidescope import folds
from studies.accuracy.limit import PROBLEMS, against_truth
from studies.markdown import again, columns
from studies.store import Cell, Record, Result, Study, flat, product


def cells(quick: bool) -> list[Cell]:
    """A sample of 12,000 rows of every problem, with and without shared models."""
    ways = (True, False)
    if quick:
        return product(problem=["ring"], rows=[300], shared=ways, seed=[0])
    return product(problem=PROBLEMS, rows=[12_000], shared=ways, seed=[0])


def run(cell: Cell) -> Result:
    """One fit of the default pool against the truth, and its processor seconds."""
    sharing = folds.sharing_folds
    if not cell["shared"]:
        sharing = partial(sharing, many=2 * cell["rows"])  # so few are not many
    started = time.process_time()
    with patch.object(folds, "sharing_folds", sharing):
        found = against_truth(PROBLEMS[cell["problem"]](), cell["rows"], cell["seed"])
    del found["moved"], found["at_size"]
    return found | {"processor": time.process_time() - started}


COLUMNS = """
problem | {problem}
true PBER | {truth:.3f}
range, shared | {shared[low]:.3f} to {shared[high]:.3f}
each its own | {own[low]:.3f} to {own[high]:.3f}
TVD of S∞, shared | {shared[tvd_limit]:.3f}
each its own | {own[tvd_limit]:.3f}
seconds, shared | {shared[processor]:.0f}
each its own | {own[processor]:.0f}
"""


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    ways = {
        "shared": [run for run in runs if run["shared"]],
        "own": [run for run in runs if not run["shared"]],
    }
    rows = []
    for shared, own in zip(*ways.values(), strict=True):
        rows.append(shared | {"shared": shared, "own": own})
    return f"""## Models of smaller sizes that folds share

Of 10,000 rows or more, two models of each smaller size serve all folds. Shared: \
{summary(ways["shared"])}; each fold with its own: {summary(ways["own"])}.

{columns(COLUMNS, rows)}

{again("shared")}"""


def summary(runs: list[Result]) -> str:
    """One way in a sentence."""
    fits = pd.DataFrame(runs)
    held = fits["truth"].between(fits["low"], fits["high"]).sum()
    width = ((fits["high"] - fits["low"]) / fits["pber"]).mean()
    seconds = fits["processor"].sum()
    return f"""the range holds the truth in {held} of {len(runs)} fits, its mean width is \
{width:.2f} × PBER, {seconds:,.0f} s in all"""


STUDY = Study("shared", "Models of smaller sizes that folds share", cells, run, text)
