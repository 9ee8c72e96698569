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


#: Studies of the reproduction in which the package is fitted again, beside those with a known S.
FITTED = {
    "the real tables": "tabular",
    "counted collisions": "counted",
    "merging": "merging",
    "label errors": "label-errors",
    "label smoothing": "smoothing",
    "MNIST": "mnist",
}


def _is_ours(cell: Cell) -> bool:
    """Whether the package was fitted; of MNIST: our encoder, not the ResNet of pairs."""
    if "model" in cell:
        return bool(cell["model"] == "factorised")
    return bool(cell.get("method", OURS) == OURS)


def earlier_runs() -> dict[str, tuple[int, int]]:
    """Of each of these studies: how many runs of ours are of an earlier pool, and how many there
    are."""
    found = {}
    for name, study in FITTED.items():
        pools = [
            pool_of(record)
            for record in store.results(study)
            if _is_ours(record["cell"])
        ]
        found[name] = (sum(pool != POOL for pool in pools), len(pools))
    return found


def told_earlier_runs() -> str:
    """The studies that have such runs, with their numbers."""
    parts = []
    for name, (old, every) in earlier_runs().items():
        if old:
            parts.append(f"{name} ({old} of {every} runs)")
    return ", ".join(parts)


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


def of_part(part: str) -> list[Record]:
    """Records of a part of ``paper-size``."""
    found = store.results("paper-size")
    return [record for record in found if record["cell"]["part"] == part]


def looks_of(part: str) -> dict[int, int]:
    """Samples by the number of epochs; 0 epochs for what has an end of its own."""
    found: Counter[int] = Counter()
    for record in of_part(part):
        found.update(map(int, record["result"]))
    return dict(sorted(found.items()))


def last_look(part: str) -> int:
    """The largest number of epochs that all samples have."""
    looks = looks_of(part)
    most = max(looks.values())
    return max(epochs for epochs, samples in looks.items() if samples == most)


def at_size(
    part: str, measure: str, epochs: int | None = None, method: str | None = None
) -> BySeed:
    """A measure on all 50,000 rows of Scenario B, after the most epochs unless told."""
    if epochs is None:
        epochs = last_look(part)
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


def trained_name(part: str) -> str:
    """The method, and how long it was trained."""
    return f"{part}, {last_look(part)} epochs"


def epochs_of(name: str, methods: Sequence[str]) -> dict[str, list[int]]:
    """How many epochs the baselines of a study of the reproduction have in the record."""
    by_method: dict[str, set[int]] = {method: set() for method in methods}
    for record in store.results(name):
        cell = record["cell"]
        if cell["method"] in methods:
            by_method[cell["method"]].add(cell["settings"]["max_epochs"])
    return {method: sorted(counts) for method, counts in by_method.items()}


def epochs_by_method(name: str, methods: Sequence[str]) -> str:
    """The same in words."""
    parts = []
    for method, counts in epochs_of(name, methods).items():
        parts.append(f"{method} {' and '.join(map(str, counts))}")
    return ", ".join(parts)
