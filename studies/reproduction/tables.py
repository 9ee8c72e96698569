"""Tables of methods by problems, and where their numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from studies.catalogue import every
from studies.markdown import earlier_pool, table, where
from studies.measures import mean_error
from studies.store import Cell, Record, Result, pool_of, stale

OURS = "collidescope"

#: Values over samples, by method and column.
Found = dict[str, dict[Hashable, np.ndarray]]
#: Titles of columns, by their keys.
Columns = Mapping[Hashable, str]


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
    pools = [pool_of(record) for record in records if of_ours(record)]
    made = f"{'; '.join(machines)}{earlier_pool(pools)}"
    return f"*{len(records)} runs, {seconds / 3600:.1f} core hours. {made}.*"


def of_ours(record: Record) -> bool:
    """Whether the pool took part."""
    return OURS in record["result"] or record["cell"].get("method") == OURS


def by_method(
    records: list[Record],
    column: Callable[[Cell], Hashable],
    measure: Callable[[Result], float | None],
) -> Found:
    """Values over seeds; ``column(cell)`` and ``measure(scores)`` say what to take."""
    found: dict[str, dict[Hashable, list[float]]] = {}
    for record in sorted(records, key=lambda r: r["cell"]["seed"]):
        key = column(record["cell"])
        for method, scores in record["result"].items():
            value = measure(scores)
            if value is not None:
                found.setdefault(method, {}).setdefault(key, []).append(value)
    return {
        method: {key: np.array(values) for key, values in columns.items()}
        for method, columns in found.items()
    }


def mean_and_error(values: np.ndarray) -> str:
    """Mean ± its standard error."""
    if len(values) < 2:
        return f"{values.mean():.4f}"
    return f"{values.mean():.4f} ± {mean_error(values):.4f}"


def method_table(
    found: Found,
    order: Sequence[str],
    columns: Columns,
    reference: Sequence[str] = (),
) -> str:
    """Methods by columns, the lowest of each column in bold.

    ``reference`` methods know the truth and do not compete.
    """
    present = [m for m in order if m in found] + [m for m in found if m not in order]
    rivals = [found[m] for m in present if m not in reference]
    lowest = {}
    for key in columns:
        means = [own[key].mean() for own in rivals if key in own]
        lowest[key] = min(means, default=np.inf)
    rows = []
    for method in present:
        name = method
        if method in reference:
            name = f"*{method}*"
        row = [name]
        for key in columns:
            values = found[method].get(key)
            text = ""
            if values is not None:
                text = mean_and_error(values)
                if method not in reference and values.mean() == lowest[key]:
                    text = f"**{text}**"
            row.append(text)
        rows.append(row)
    return table(["method", *columns.values()], rows)
