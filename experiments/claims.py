"""Claims of the paper beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.markdown import table, where

Record = dict[str, Any]


def claims(rows: Iterable[tuple[str, str, bool | None]]) -> str:
    """A table of claim, what we got and verdict (None: cannot be told)."""
    words = {True: "held", False: "**did not hold**", None: "cannot be told"}
    return table(["the paper claims", "we got", "verdict"], [[c, got, words[held]] for c, got, held in rows])


def measured(records: list[Record]) -> str:
    """Where and when, one line for each machine."""
    machines = sorted({where(record["environment"]) for record in records})
    seconds = sum(record["seconds"] for record in records)
    return f"*{len(records)} runs, {seconds / 3600:.1f} core hours. {'; '.join(machines)}.*"


def by_method(records: list[Record], column: Any, measure: Any) -> dict[str, dict[Any, np.ndarray]]:
    """{method: {column: values over seeds}}; ``column(cell)`` and ``measure(scores)`` say what to take."""
    found: dict[str, dict[Any, list[float]]] = {}
    for record in sorted(records, key=lambda r: r["cell"]["seed"]):
        for method, scores in record["result"].items():
            value = measure(scores)
            if value is not None:
                found.setdefault(method, {}).setdefault(column(record["cell"]), []).append(value)
    return {method: {key: np.array(values) for key, values in columns.items()} for method, columns in found.items()}


def mean_and_error(values: np.ndarray) -> str:
    """Mean ± its standard error."""
    if len(values) < 2:
        return f"{values.mean():.4f}"
    return f"{values.mean():.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def method_table(
    found: dict[str, dict[Any, np.ndarray]], order: list[str], columns: dict[Any, str], reference: tuple[str, ...] = ()
) -> str:
    """Methods by columns, the lowest of each column in bold (``reference`` rows know the truth and do not compete)."""
    present = [m for m in order if m in found] + [m for m in found if m not in order]
    rows = []
    lowest = {
        key: min((found[m][key].mean() for m in present if m not in reference and key in found[m]), default=np.inf)
        for key in columns
    }
    for method in present:
        cells = []
        for key in columns:
            values = found[method].get(key)
            text = "" if values is None else mean_and_error(values)
            winner = values is not None and method not in reference and values.mean() == lowest[key]
            cells.append(f"**{text}**" if winner else text)
        rows.append([f"*{method}*" if method in reference else method, *cells])
    return table(["method", *columns.values()], rows)
