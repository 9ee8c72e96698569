"""Values by problem and seed, from the experiments here and from the reproduction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from studies import store
from studies.paper import rows
from studies.store import POOL, Record, Result, pool_of

#: Values by problem, then by seed.
BySeed = dict[str, dict[int, float]]

#: Where the package's default was run on the samples of an experiment.
POOL_RECORDS = {"ablation": "scenario-a", "posteriors": "posterior-variance"}


def results(part: str) -> list[Record]:
    """The records of one experiment."""
    found = store.results("paper")
    return [record for record in found if record["cell"]["study"] == part]


def name_of(problem: Sequence[Any]) -> str:
    """A short name of a problem."""
    kind, *arguments = problem
    if kind == "A":
        return f"A, K = {arguments[0]}"
    if kind == "B":
        return f"B, β = {arguments[0]}"
    k, d, length = arguments
    gap = f"gap {length / (k - 1):g}"
    if (k, d) == (4, 10):
        return gap
    return f"K = {k}, d = {d}, {gap}"


def values(part: str, method: str, measure: str) -> BySeed:
    """A measure of one method; ours comes from where the pool was run."""
    if method == rows.OURS:
        return ours(part, measure)
    found: BySeed = defaultdict(dict)
    for record in results(part):
        cell = record["cell"]
        score = record["result"].get(method, {}).get(measure)
        if score is not None:
            found[name_of(cell["problem"])][cell["seed"]] = score
    return found


def ours(part: str, measure: str) -> BySeed:
    """The package's default with today's pool, on the samples of an experiment."""
    found: BySeed = {}
    if part in POOL_RECORDS:
        places = {"mean": mean_error, "max": largest_error, "posterior": posterior}
        found = reproduced(POOL_RECORDS[part], OURS, places[measure], today=True)
    problems = {name_of(record["cell"]["problem"]) for record in results(part)}
    for record in results("pool"):
        where = name_of(record["cell"]["problem"])
        if where in problems and pool_of(record) == POOL:
            own = found.setdefault(where, {})
            own[record["cell"]["seed"]] = record["result"][rows.OURS][measure]
    return found


#: The package's default in the records of the reproduction.
OURS = "collidescope"


def reproduced(
    name: str, method: str, measure: Callable[[Result], float], today: bool = False
) -> BySeed:
    """Of the reproduction, which has the paper's own sizes; ``today``: with today's pool alone."""
    found: BySeed = defaultdict(dict)
    for record in store.results(name):
        if method not in record["result"] or (today and pool_of(record) != POOL):
            continue
        cell = record["cell"]
        where = name_of([cell["problem"], *cell["arguments"]])
        found[where][cell["seed"]] = measure(record["result"][method])
    return found


def mean_error(score: Result) -> float:
    """Mean TVD of S."""
    return float(score["S"][0])


def largest_error(score: Result) -> float:
    """Largest TVD of a row of S."""
    return float(score["S"][1])


def posterior(score: Result) -> float:
    """Mean TVD of posteriors."""
    return float(score["posterior"])


# ------------------------------------------------------------------------------------------
# networks side by side on a GPU, within a given time

#: The method of each part.
SIDE_BY_SIDE = {
    "plain": rows.PLAIN,
    "temperature": "temperature (paper)",
    "dropout": "Monte-Carlo dropout",
    "bayesian": "Bayesian network",
    "ours": rows.OURS,
}


def stacked(part: str, **wanted: Any) -> list[Record]:
    """Records of a part of ``paper-stacked`` whose cells have these settings."""
    found = []
    for record in store.results("paper-stacked"):
        cell = record["cell"]
        if cell["part"] == part and wanted.items() <= cell.items():
            found.append(record)
    return found


def epochs_of(record: Record) -> int:
    """After how many epochs a network was looked at; 0 of what has its own end."""
    cell = record["cell"]
    return int(cell.get("settings", cell).get("max_epochs", 0))


def epochs_reached(part: str) -> int:
    """The largest number of epochs that there was time for."""
    return max((epochs_of(record) for record in stacked(part)), default=0)


def at_scale(part: str, measure: str, epochs: int | None = None) -> BySeed:
    """A measure on all 50,000 rows of Scenario B, after the most epochs unless told."""
    if epochs is None:
        epochs = epochs_reached(part)
    found: BySeed = defaultdict(dict)
    for record in stacked(part):
        if epochs_of(record) == epochs:
            where = name_of(record["cell"]["problem"])
            score = record["result"][SIDE_BY_SIDE[part]][measure]
            found[where][record["cell"]["seed"]] = score
    return {where: found[where] for where in sorted(found)}


def at_scale_name(part: str) -> str:
    """The method, and how long it was trained."""
    epochs = epochs_reached(part)
    if epochs == 0:
        return SIDE_BY_SIDE[part]
    return f"{SIDE_BY_SIDE[part]}, {epochs} epochs"


def board() -> dict[str, Any]:
    """What became of every process of that run."""
    return dict(store.header("paper-stacked").get("board", {}))


def epochs_by_method(name: str, methods: Sequence[str]) -> str:
    """How many epochs the baselines of a study of the reproduction have in the record."""
    by_method: dict[str, set[int]] = {}
    for record in store.results(name):
        cell = record["cell"]
        if cell["method"] in methods:
            own = by_method.setdefault(cell["method"], set())
            own.add(cell["settings"]["max_epochs"])
    parts = []
    for method in methods:
        counts = sorted(by_method.get(method, ()))
        parts.append(f"{method} {' and '.join(map(str, counts))}")
    return ", ".join(parts)
