"""Values by problem and seed, from the experiments here and from the reproduction."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from studies import store
from studies.paper import rows
from studies.store import POOL, Cell, Record, Result, pool_of

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


def problem_name(cell: Cell) -> str:
    """A short name of the problem of a cell."""
    return name_of(cell["problem"])


def values(
    part: str, method: str, measure: str, name: Callable[[Cell], str] = problem_name
) -> BySeed:
    """A measure of one method; ours comes from where the pool was run."""
    if method == rows.OURS:
        return ours(part, measure)
    found: BySeed = defaultdict(dict)
    for record in results(part):
        cell = record["cell"]
        score = record["result"].get(method, {}).get(measure)
        if score is not None:
            found[name(cell)][cell["seed"]] = score
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
# at the paper's own size


def of_part(part: str, n: int | None = 50_000) -> list[Record]:
    """A part of ``paper-size``, sample by sample; of Scenario B unless told."""
    found = []
    for record in store.results("paper-size"):
        cell = record["cell"]
        if cell["part"] != part or cell.get("rows") != n:
            continue
        for seed, looks in record["result"].items():
            found.append({"cell": cell | {"seed": int(seed)}, "result": looks})
    return found


def at_full_size(start: str, measure: str, method: str = rows.PRINTED) -> BySeed:
    """Scenario A and the tests of posteriors with the paper's own network."""
    found: BySeed = defaultdict(dict)
    for record in store.results("paper-size"):
        cell = record["cell"]
        if cell.get("rows", 50_000) >= 50_000:
            continue
        where = name_of(cell["problem"])
        if not where.startswith(start):
            continue
        for seed, looks in record["result"].items():
            (last,) = looks.values()
            if method in last:
                found[where][int(seed)] = last[method][measure]
    return found


def looks_of(part: str, n: int | None = 50_000) -> dict[int, int]:
    """Samples by the number of epochs; 0 epochs for what has an end of its own."""
    found: Counter[int] = Counter()
    for record in of_part(part, n):
        found.update(map(int, record["result"]))
    return dict(sorted(found.items()))


def at_size(
    part: str, measure: str, epochs: int | None = None, method: str | None = None
) -> BySeed:
    """A measure on all 50,000 rows of Scenario B, after the most epochs unless told."""
    if epochs is None:
        epochs = max(looks_of(part))
    found: BySeed = defaultdict(dict)
    for record in of_part(part):
        look = record["result"].get(str(epochs))
        if look is not None:
            where = name_of(record["cell"]["problem"])
            found[where][record["cell"]["seed"]] = look[method or part][measure]
    return {where: found[where] for where in sorted(found)}


def curve(part: str, method: str) -> dict[int, dict[int, float]]:
    """Scenario C: the error of S at the largest overlap, by epochs and sample."""
    found = {}
    for epochs in looks_of(part):
        by_overlap = at_size(part, "mean", epochs, method)
        found[epochs] = next(iter(by_overlap.values()))
    return found
