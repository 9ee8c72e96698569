"""Claims of the paper beside what was measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from studies.catalogue import every
from studies.markdown import earlier_pool, table, where
from studies.store import Record, pool_of, stale

WORDS = {True: "held", False: "**did not hold**", None: "cannot be told"}
#: Methods that are the paper's own, and ours, in the list of all claims.
PAPER = (
    "literal paper",
    "pair-wise, literal",
    "the paper's network",
    "the paper's network, 80-10-10",
)
OURS = "collidescope"


class Claim(NamedTuple):
    """What the paper says, by which method it was tried ("" for mathematics), what came out and
    whether it holds."""

    claim: str
    method: str
    got: str
    held: bool | None


class Section(NamedTuple):
    """A part of the page, and the claims in it."""

    text: str
    claims: Sequence[Claim] = ()


def claims(rows: Iterable[Claim], head: str = "the paper claims") -> str:
    """A table of claim, method, what we got and verdict."""
    return table(
        [head, "method", "we got", "verdict"],
        [[c.claim, c.method, c.got, WORDS[c.held]] for c in rows],
    )


def summary(sections: Iterable[Section]) -> str:
    """All claims, with the verdict by the paper's own method and by ours."""
    rows: list[list[str]] = []
    for section in sections:
        title = section.text.splitlines()[0].lstrip("# ")
        link = (
            f"[{title}](#{re.sub(r'[^a-z0-9 -]', '', title.lower()).replace(' ', '-')})"
        )
        for claim in dict.fromkeys(c.claim for c in section.claims):
            own = [c for c in section.claims if c.claim == claim]
            sides = [
                [c.held for c in own if c.method in names]
                for names in (("", *PAPER), ("", OURS))
            ]
            rows.append([link, claim, *map(_together, sides)])
    return table(
        ["section", "the paper claims", "by the paper's own method", "by ours"], rows
    )


def _together(verdicts: list[bool | None]) -> str:
    """One verdict for all trials of a claim."""
    if not verdicts:
        return "–"
    if len(set(verdicts)) == 1:
        return WORDS[verdicts[0]]
    return f"held in {verdicts.count(True)} of {len(verdicts)} trials"


def not_again(name: str) -> str:
    """Which methods of a study have records of earlier settings alone."""
    study = every()[name]
    present = {cell["method"] for cell in study.cells(False)}
    earlier = dict.fromkeys(cell["method"] for cell in stale(study))
    old = [method for method in earlier if method in present]
    if not old:
        return ""
    return f"*Not run again with the present settings yet: {', '.join(old)}.*"


def measured(records: list[Record]) -> str:
    """Where and when, one line for each machine."""
    machines = sorted({where(record["environment"]) for record in records})
    seconds = sum(record["seconds"] for record in records)
    ours = [
        r for r in records if OURS in r["result"] or r["cell"].get("method") == OURS
    ]
    pools = earlier_pool([pool_of(record) for record in ours])
    where_and_when = f"{'; '.join(machines)}{pools}"
    return f"*{len(records)} runs, {seconds / 3600:.1f} core hours. {where_and_when}.*"


def by_method(
    records: list[Record], column: Any, measure: Any
) -> dict[str, dict[Any, np.ndarray]]:
    """{method: {column: values over seeds}}; ``column(cell)`` and ``measure(scores)`` say what
    to take."""
    found: dict[str, dict[Any, list[float]]] = {}
    for record in sorted(records, key=lambda r: r["cell"]["seed"]):
        for method, scores in record["result"].items():
            value = measure(scores)
            if value is not None:
                found.setdefault(method, {}).setdefault(
                    column(record["cell"]), []
                ).append(value)
    return {
        method: {key: np.array(values) for key, values in columns.items()}
        for method, columns in found.items()
    }


def mean_and_error(values: np.ndarray) -> str:
    """Mean ± its standard error."""
    if len(values) < 2:
        return f"{values.mean():.4f}"
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def method_table(
    found: dict[str, dict[Any, np.ndarray]],
    order: list[str],
    columns: dict[Any, str],
    reference: tuple[str, ...] = (),
) -> str:
    """Methods by columns, the lowest of each column in bold (``reference`` rows know the truth
    and do not compete)."""
    present = [m for m in order if m in found] + [m for m in found if m not in order]
    rows = []
    lowest = {
        key: min(
            (
                found[m][key].mean()
                for m in present
                if m not in reference and key in found[m]
            ),
            default=np.inf,
        )
        for key in columns
    }
    for method in present:
        cells = []
        for key in columns:
            values = found[method].get(key)
            text = "" if values is None else mean_and_error(values)
            winner = (
                values is not None
                and method not in reference
                and values.mean() == lowest[key]
            )
            cells.append(f"**{text}**" if winner else text)
        rows.append([f"*{method}*" if method in reference else method, *cells])
    return table(["method", *columns.values()], rows)
