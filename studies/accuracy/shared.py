"""What is lost where folds share the models of smaller sizes?

Of 10,000 rows or more two models of each smaller size serve all folds (``folds.sharing_folds``).
Here both ways on the same rows, whose truth is known: processor seconds, the range, and how far
S∞ is off.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any
from unittest.mock import patch

from collidescope import folds
from studies.accuracy.limit import PROBLEMS, against_truth
from studies.markdown import again, table
from studies.store import Cell, Record, Result, Study, flat


def cells(quick: bool) -> list[Cell]:
    """A sample of 12,000 rows of every problem, with and without shared models."""
    rows, problems = 12_000, list(PROBLEMS)
    if quick:
        rows, problems = 300, ["ring"]
    return [
        {"problem": problem, "rows": rows, "shared": shared, "seed": 0}
        for problem in problems
        for shared in (True, False)
    ]


def run(cell: Cell) -> Result:
    """One fit of the default pool against the truth, and its processor seconds."""
    sharing: Any = folds.sharing_folds
    if not cell["shared"]:
        sharing = partial(sharing, many=2 * cell["rows"])  # so few are not many
    started = time.process_time()
    with patch.object(folds, "sharing_folds", sharing):
        found = against_truth(PROBLEMS[cell["problem"]](), cell["rows"], cell["seed"])
    del found["moved"], found["at_size"]
    return found | {"processor": time.process_time() - started}


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    rows = []
    for problem in PROBLEMS:
        own = {run["shared"]: run for run in runs if run["problem"] == problem}
        if len(own) < 2:
            continue
        row = [problem, f"{own[True]['truth']:.3f}"]
        for shared in (True, False):
            row.append(f"{own[shared]['low']:.3f} to {own[shared]['high']:.3f}")
        for name, digits in (("tvd_limit", 3), ("processor", 0)):
            for shared in (True, False):
                row.append(f"{own[shared][name]:.{digits}f}")
        rows.append(row)
    head = "problem | true PBER | range, shared | each its own"
    head += " | TVD of S∞, shared | each its own | seconds, shared | each its own"
    return f"""## Models of smaller sizes that folds share

Of 10,000 rows or more, two models of each smaller size serve all folds. {summary(runs)}

{table(head, rows)}

{again("shared")}"""


def summary(runs: list[dict[str, Any]]) -> str:
    """Both ways in one sentence each."""
    said = []
    for shared, way in ((True, "shared"), (False, "each fold with its own")):
        own = [run for run in runs if run["shared"] == shared]
        held = sum(run["low"] <= run["truth"] <= run["high"] for run in own)
        width = sum((run["high"] - run["low"]) / run["pber"] for run in own)
        seconds = sum(run["processor"] for run in own)
        part = f"{way}: the range holds the truth in {held} of {len(own)} fits, its mean width is"
        said.append(f"{part} {width / len(own):.2f} × PBER, {seconds:,.0f} s in all")
    both = "; ".join(said)
    return f"{both[0].upper()}{both[1:]}."


STUDY = Study("shared", "Models of smaller sizes that folds share", cells, run, text)
