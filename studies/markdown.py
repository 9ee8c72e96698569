"""Pieces of the generated pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collidescope.learners import MEMBERS

#: Pools are known by the number of their members: that of today, and that of records without a mark.
POOL, FIRST_POOL = len(MEMBERS), 14


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def where(environment: dict[str, Any]) -> str:
    """When and on what something was measured."""
    versions = ", ".join(
        f"{name} {number}" for name, number in environment["versions"].items() if number
    )
    gpu = f", {environment['gpu']}" if "gpu" in environment else ""
    return (
        f"{environment['date']}, {environment['processor']} ({environment['cores']} cores){gpu}, "
        f"Python {environment['python']}, {versions}"
    )


def pool_of(made: dict[str, Any]) -> int:
    """How many members the pool had when something was measured: that of records without a mark was the first."""
    return made.get("pool", FIRST_POOL)


def earlier_pool(pools: Sequence[int]) -> str:
    """What to say of runs of ours with these pools; nothing where all are the present one.

    >>> earlier_pool([POOL, POOL]), earlier_pool([3, POOL, 2])
    ('', '; 2 of 3 runs of ours with an earlier pool, of 2 or 3 members instead of ...')
    """
    if not (earlier := [pool for pool in pools if pool != POOL]):
        return ""
    which = "ours" if len(earlier) == len(pools) else f"{len(earlier)} of {len(pools)} runs of ours"
    sizes = " or ".join(map(str, sorted(set(earlier))))
    return f"; {which} with an earlier pool, of {sizes} members instead of {POOL}"


def best(values: Sequence[float], texts: Sequence[str]) -> list[str]:
    """The lowest in bold."""
    return [
        f"**{text}**" if value == min(values) else text
        for value, text in zip(values, texts, strict=True)
    ]
