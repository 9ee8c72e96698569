"""Pieces of the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.store import POOL, Record, environments, pool_of, results


def table(head: str | Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the head may be one text, with ``|`` between its columns.

    >>> print(table("a | b", [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    if isinstance(head, str):
        head = [" ".join(title.split()) for title in head.split("|")]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def columns(shown: str, rows: Iterable[Mapping[str, Any]]) -> str:
    r"""A Markdown table with a line for each mapping.

    ``shown`` says on a line for each column its title and, behind ``|``, the format of its cells.

    >>> print(
    ...     columns(
    ...         "rows | {rows:,}\nheld | {held[0]:.0%}", [{"rows": 1000, "held": [0.5]}]
    ...     )
    ... )
    | rows | held |
    | --- | --- |
    | 1,000 | 50% |
    """
    pairs = [line.rsplit(" | ", 1) for line in shown.strip().splitlines()]
    titles = [title for title, _ in pairs]
    lines = [[form.format_map(row) for _, form in pairs] for row in rows]
    return table(titles, lines)


def where(environment: Mapping[str, Any]) -> str:
    """When and on what something was measured."""
    numbers = environment["versions"].items()
    versions = ", ".join(f"{name} {number}" for name, number in numbers if number)
    gpu = ""
    if "gpu" in environment:
        gpu = f", {environment['gpu']}"
    return (
        f"{environment['date']}, {environment['processor']} ({environment['cores']} cores){gpu}, "
        f"Python {environment['python']}, {versions}"
    )


def earlier_pool(pools: Sequence[int]) -> str:
    """What to say of runs of ours with these pools; nothing where all are the present one.

    >>> earlier_pool([POOL, POOL]), earlier_pool([3, POOL, 2])
    ('', '; 2 of 3 runs of ours with an earlier pool, of 2 or 3 members instead of ...')
    """
    earlier = [pool for pool in pools if pool != POOL]
    if not earlier:
        return ""
    which = "ours"
    if len(earlier) < len(pools):
        which = f"{len(earlier)} of {len(pools)} runs of ours"
    sizes = " or ".join(map(str, sorted(set(earlier))))
    return f"; {which} with an earlier pool, of {sizes} members instead of {POOL}"


def made(name: str, ours: Sequence[Record] | None = None) -> str:
    """When, on what and with which pool a study was made; ``ours``: the records that used it."""
    machines = dict.fromkeys(map(where, environments(name)))
    records = ours
    if ours is None:
        records = results(name)
    return "; ".join(machines) + earlier_pool([pool_of(record) for record in records])


def again(name: str) -> str:
    """The sentence that says how to repeat a study, and where its records come from."""
    return f"`python -m studies run {name}` repeats it ({made(name)})."


def conditions(records: Iterable[Record], of_cell: str) -> str:
    """How records were made that are not of today's settings, or were not made alone.

    ``of_cell`` is a format string for what names a cell.

    >>> made_so = {"cell": {"rows": 1000}, "conditions": "beside other work"}
    >>> conditions([made_so, {"cell": {"rows": 10}}], "{rows:,} rows")
    '1,000 rows: beside other work.'
    """
    cells = {}
    for record in records:
        words = record.get("conditions")
        if words:
            name = of_cell.format(**record["cell"])
            cells.setdefault(words, {})[name] = None
    said = [f"{', '.join(names)}: {words}." for words, names in cells.items()]
    return "\n\n".join(said)


def join(parts: Iterable[str]) -> str:
    """Paragraphs of a page, those that are empty left out."""
    text = "\n\n".join(part.strip() for part in parts if part)
    return re.sub(r"\n{3,}", "\n\n", text) + "\n"


def fill(path: Path, parts: Mapping[str, str]) -> None:
    """Put texts between ``<!-- NAME -->`` and ``<!-- /NAME -->`` of a page."""
    page = path.read_text(encoding="utf-8")
    for name, text in parts.items():
        start = f"<!-- {name} -->"
        end = f"<!-- /{name} -->"
        before, rest = page.split(start)
        after = rest.split(end)[1]
        page = f"{before}{start}\n{text.strip()}\n{end}{after}"
    path.write_text(page, encoding="utf-8")
