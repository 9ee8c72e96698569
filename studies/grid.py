"""Does every printed confidence hold? Statements × options, simulated with known posteriors.

Each option draws samples of a population whose S, PBER and Bayes error are known. Each statement
(``studies/statements.py`` and its neighbours) is an interval or a limit that the package prints at 95%. A cell is the
share of samples in which the statement held, its simulation error, and its mean width over that of
an oracle: the interval ±1.96 standard deviations of the estimate over all samples. ``python -m
studies.grid [--quick]`` appends a record to ``studies/results/grid.jsonl``; ``--page`` writes the
tables of the last record into ``docs/limits.md``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from collidescope._environment import environment
from collidescope.equations.recalibration import raised
from studies.fit_statements import fit_statements
from studies.statements import chosen_statements, now_statements, statements
from studies.trial import (
    LEVEL,
    Held,
    Option,
    Population,
    Sample,
    Statements,
    Trial,
    draw_labels,
)
from studies.vote_statements import vote_statements

RESULTS = Path(__file__).parent / "results" / "grid.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "limits.md"
#: What is not stated, by the option's posteriors.
ABOVE = "only limits from above: what was not learned counts as collision"

Draw = Callable[[np.random.Generator], Sample]
Make = Callable[[Trial], Statements]
Cells = dict[str, dict[str, dict[str, Any]]]
#: Statements that can be simulated alone, beside all of them.
ALONE: dict[str, Make] = {
    "all": statements,
    "chosen": chosen_statements,
    "now": now_statements,
    "fit": fit_statements,
}


def population(
    k: int, sharpness: float, seed: int = 0, rare: bool = False
) -> Population:
    """400 kinds of input, posteriors the softmax of normal logits; a class of 1% where ``rare``."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((400, k))
    if rare:
        logits[:, 0] -= 4.5
    posteriors = np.exp(logits - logits.max(axis=1, keepdims=True))
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    return Population(posteriors, np.full(400, 1 / 400))


def plain(p: Population, n: int, told: np.ndarray | None = None) -> Draw:
    """Independent rows; ``told`` are posteriors of the kinds other than the true ones."""
    shown = p.posteriors if told is None else told

    def draw(rng: np.random.Generator) -> Sample:
        kinds = rng.choice(len(p.weights), n, p=p.weights)
        return Sample(kinds, shown[kinds], draw_labels(rng, p.posteriors[kinds]), {})

    return draw


def weighted(p: Population, n: int, spread: float) -> Draw:
    """Log-normal weights that say nothing about the rows."""

    def draw(rng: np.random.Generator) -> Sample:
        sample = plain(p, n)(rng)
        return sample._replace(options={"sample_weight": rng.lognormal(0, spread, n)})

    return draw


def skewed(p: Population, sizes: list[int], how: str) -> Draw:
    """Some rows of one class and many of another stand for shares that differ from theirs."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    density = p.weights[:, None] * p.posteriors / p.priors
    observed = np.array(sizes) / np.sum(sizes)
    flow = density * observed
    at_observed = flow / flow.sum(axis=1, keepdims=True)

    def draw(rng: np.random.Generator) -> Sample:
        of_class = [
            rng.choice(len(density), n, p=density[:, c]) for c, n in enumerate(sizes)
        ]
        kinds = np.concatenate(of_class)
        if how == "weights":
            weight = (p.priors / observed)[labels]
            return Sample(kinds, p.posteriors[kinds], labels, {"sample_weight": weight})
        priors = "uniform" if how == "uniform" else p.priors
        return Sample(kinds, at_observed[kinds], labels, {"priors": priors})

    return draw


def grouped(p: Population, n_groups: int, size: int, spread: float = 0.0) -> Draw:
    """Groups whose rows are of 10 neighbouring kinds, in the order of their ambiguity."""
    order = np.argsort(p.posteriors.max(axis=1))

    def draw(rng: np.random.Generator) -> Sample:
        start = np.repeat(rng.integers(0, len(order), n_groups), size)
        kinds = order[(start + rng.integers(0, 10, len(start))) % len(order)]
        given: dict[str, Any] = {"groups": np.repeat(np.arange(n_groups), size)}
        if spread:
            given["sample_weight"] = rng.lognormal(0, spread, len(kinds))
        posteriors = p.posteriors[kinds]
        return Sample(kinds, posteriors, draw_labels(rng, posteriors), given)

    return draw


def at_priors(draw: Draw, priors: np.ndarray) -> Draw:
    """The same rows, for a population with other class shares."""

    def drawn(rng: np.random.Generator) -> Sample:
        sample = draw(rng)
        return sample._replace(options=sample.options | {"priors": priors})

    return drawn


def thinned(p: Population, n: int, times: float = 20.0) -> Draw:
    """The most ambiguous tenth of the kinds is drawn so many times less, and weighs as much more."""
    highest = p.posteriors.max(axis=1)
    weight = np.where(highest <= np.quantile(highest, 0.1), times, 1.0)
    chance = p.weights / weight
    chance /= chance.sum()

    def draw(rng: np.random.Generator) -> Sample:
        kinds = rng.choice(len(chance), n, p=chance)
        P = p.posteriors[kinds]
        return Sample(kinds, P, draw_labels(rng, P), {"sample_weight": weight[kinds]})

    return draw


def options() -> Iterator[Option]:
    """Every option of the grid but those of votes."""
    three = population(3, 2.0)
    two = population(2, 1.5)
    sure = Population(np.array([[0.999, 0.001], [0.001, 0.999]]), np.array([0.5, 0.5]))
    rare = population(3, 1.5, rare=True)
    even = three.shifted(np.full(3, 1 / 3))
    half = two.shifted(np.array([0.5, 0.5]))
    ten = population(10, 2.5)
    fifty = population(50, 4.0)
    yield Option("equal weights, n=200", three, plain(three, 200))
    yield Option("equal weights, n=2000", three, plain(three, 2000))
    yield Option("K=2, n=200", two, plain(two, 200))
    yield Option("K=2, n=2000", two, plain(two, 2000))
    yield Option("K=10, n=2000", ten, plain(ten, 2000))
    alike = Population(np.full((1, 20), 0.05), np.ones(1))
    yield Option("K=20, all alike, n=400", alike, plain(alike, 400))
    silent = Population(np.full((1, 3), 1 / 3), np.ones(1))
    yield Option("inputs say nothing, n=200", silent, plain(silent, 200))
    yield Option("K=50, n=2000", fifty, plain(fifty, 2000))
    yield Option("lognormal weights (1), n=2000", three, weighted(three, 2000, 1.0))
    yield Option("lognormal weights (2), n=2000", three, weighted(three, 2000, 2.0))
    yield Option(
        "10 heavy | 1000 light, weights", two, skewed(two, [10, 1000], "weights")
    )
    yield Option(
        "50 heavy | 2000 light, weights", two, skewed(two, [50, 2000], "weights")
    )
    few = two.shifted(np.array([10, 1000]) / 1010)
    fewer = even.shifted(np.array([30, 300, 300]) / 630)
    yield Option("10 | 1000, given priors", two, skewed(two, [10, 1000], "given"), few)
    yield Option("10 | 1000, uniform", half, skewed(two, [10, 1000], "uniform"), few)
    yield Option(
        "30 | 300 | 300, uniform", even, skewed(even, [30, 300, 300], "uniform"), fewer
    )
    yield Option("ambiguous rows weigh 20, n=2000", three, thinned(three, 2000))
    yield Option("40 groups × 50", three, grouped(three, 40, 50))
    yield Option("15 groups × 50", three, grouped(three, 15, 50))
    yield Option("40 groups × 50, weights (0.5)", three, grouped(three, 40, 50, 0.5))
    other = np.array([0.2, 0.3, 0.5])
    yield Option(
        "40 groups × 50, given priors",
        three.shifted(other),
        at_priors(grouped(three, 40, 50), other),
        three,
    )
    yield Option("a class of 1%, n=2000", rare, plain(rare, 2000))
    yield Option("0 to 3 errors, n=1000", sure, plain(sure, 1000))
    yield from wrong_posteriors(three)


def wrong_posteriors(p: Population) -> Iterator[Option]:
    """Posteriors that are not the true ones: what was not learned counts as collision."""
    about_truth = ("PBER", "S", "top collision", "recall", "merged S", "merged PBER")
    about_truth += ("compare PBER", "compare S", "expected distance", "gain of a merge")
    about_truth += ("consolidation path", "gain of labels")
    dropped = dict.fromkeys(about_truth, ABOVE)
    names = {
        "over-confident, n=2000": raised(p.posteriors, 2.0),
        "under-confident, n=2000": raised(p.posteriors, 0.5),
        "worse than the class shares, n=2000": p.posteriors[:, ::-1],
    }
    for name, told in names.items():
        yield Option(name, p, plain(p, 2000, told), None, told, dropped)


class Voting(NamedTuple):
    """How votes are drawn."""

    name: str
    target: Population
    items: int
    per_item: tuple[int, int]  #: least and most votes on an item


def votings() -> Iterator[Voting]:
    """Every option of the grid for votes."""
    three = population(3, 2.0)
    two = population(2, 1.5)
    skew = population(2, 1.0, seed=3)
    rate = np.random.default_rng(0).beta(0.3, 3.0, 400)
    few = Population(np.column_stack([1 - rate, rate]), skew.weights)
    yield Voting("400 items × 5 votes", three, 400, (5, 5))
    yield Voting("400 items × 2 votes", three, 400, (2, 2))
    yield Voting("400 items × 2 to 8 votes", three, 400, (2, 8))
    yield Voting("30 items × 3 votes", two, 30, (3, 3))
    yield Voting("30 items × 3 votes, skewed", few, 30, (3, 3))
    yield Voting("60 items × 2 votes, skewed", few, 60, (2, 2))
    yield Voting("K=10, 400 items × 5 votes", population(10, 2.5), 400, (5, 5))
    yield Voting(
        "a class of 1%, 400 items × 5 votes", population(3, 1.5, rare=True), 400, (5, 5)
    )


def cell(
    option: Option, n_samples: int, seed: int = 0, make: Make = statements
) -> dict[str, dict[str, Any]]:
    """Coverage, simulation error and width of every statement under one option."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[Held]] = {}
    for _ in range(n_samples):
        for name, held in make(Trial(option, option.draw(rng), rng)):
            if name not in option.dropped:
                found.setdefault(name, []).append(held)
    return {name: summary(helds) for name, helds in found.items()}


def vote_cell(
    voting: Voting, n_samples: int, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """The same of votes; a sample whose votes all name one class says nothing of kappa."""
    rng = np.random.default_rng(seed)
    p = voting.target
    found: dict[str, list[Held]] = {}
    least, most = voting.per_item
    for _ in range(n_samples):
        kinds = rng.choice(len(p.weights), voting.items, p=p.weights)
        number = rng.integers(least, most + 1, voting.items)
        votes = rng.multinomial(number, p.posteriors[kinds])
        if (votes.sum(axis=0) == 0).any():
            continue
        for name, held in vote_statements(p, kinds, votes, rng):
            found.setdefault(name, []).append(held)
    return {name: summary(helds) for name, helds in found.items()}


def summary(helds: list[Held]) -> dict[str, Any]:
    """Coverage and width of one statement over all samples."""
    per_sample = np.array([_share_held(held) for held in helds])
    width, ratio = _width_over_oracle(helds)
    return {
        "covered": float(per_sample.mean()),
        "error": float(per_sample.std() / np.sqrt(len(helds))),
        "width": width,
        "over_oracle": ratio,
        "samples": len(helds),
    }


def _share_held(held: Held) -> float:
    """Of the numbers of a statement; all or nothing where they are claimed together."""
    holds = (held.low <= held.truth + 1e-12) & (held.truth <= held.high + 1e-12)
    return float(holds.all() if held.at_once else holds.mean())


def _width_over_oracle(helds: list[Held]) -> tuple[float | None, float | None]:
    """Mean width, and its ratio to ±1.96 standard deviations of the middle over all samples.

    No ratio where samples have different numbers of numbers, or the middle does not vary.
    """
    widths = np.array([np.mean(held.high - held.low) for held in helds])
    if not np.isfinite(widths).all():
        return None, None
    width = float(widths.mean())
    if len({np.shape(held.low) for held in helds}) > 1:
        return width, None
    middles = np.array([(held.low + held.high) / 2 for held in helds])
    oracle = 2 * 1.96 * float(middles.std(axis=0).mean())
    if oracle < 1e-9:
        return width, None
    return width, width / oracle


def short(cells: Cells) -> list[str]:
    """Cells below 93% by more than two simulation standard errors."""
    return [
        f"{statement} | {option}: {found['covered']:.3f} ± {found['error']:.3f}"
        for option, of_option in cells.items()
        for statement, found in of_option.items()
        if found["covered"] + 2 * found["error"] < 0.93
    ]


def table(cells: Cells) -> str:
    """Markdown: options by statements, covered in percent (width over the oracle's)."""
    names = list(
        dict.fromkeys(name for of_option in cells.values() for name in of_option)
    )
    lines = ["| option | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for option, of_option in cells.items():
        shown = [_shown(of_option.get(name)) for name in names]
        if set(shown) != {"–"}:
            name = option.replace("|", "\\|")
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _shown(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    covered = f"{100 * found['covered']:.1f}"
    if found["over_oracle"] is None:
        return covered
    return f"{covered} ({found['over_oracle']:.2f})"


#: Which statements a table holds, by how their names begin; what is left is in the last one.
PARTS = {
    "S and limits now": ("PBER", "S", "recall", "top collision", "Bayes error limit"),
    "Learning curves": (
        "range of",
        "S∞",
        "continuation",
        "rows needed",
        "shuffled control",
    ),
    "Metrics now (`ceilings`)": ("ceiling:",),
    "Metrics with unlimited rows (`ceilings`)": ("range:",),
    "Metrics of another model less these (`ceilings`)": ("difference:",),
    "Votes and repeated inputs": ("voted", "kappa", "alpha", "counted", "votes"),
    "Judges and annotators": ("judge", "annotator"),
    "Audit and columns": ("audit", "columns"),
    "Merged classes and plans": ("merged", "gain", "consolidation", "expected"),
    "Rows of a fit": ("fit:",),
    "Comparisons, subgroups, changes": (),
}


def part_of(statement: str) -> str:
    """The title of its table."""
    for title, beginnings in PARTS.items():
        exact = title == "S and limits now"
        if exact and statement in beginnings:
            return title
        if not exact and statement.startswith(beginnings):
            return title
    return next(reversed(PARTS))


def tables(cells: Cells) -> str:
    """One table for each part of the statements."""
    blocks: dict[str, Cells] = {title: {} for title in PARTS}
    for option, of_option in cells.items():
        for name, found in of_option.items():
            blocks[part_of(name)].setdefault(option, {})[name] = found
    written = [f"**{title}**\n\n{table(block)}" for title, block in blocks.items()]
    return "\n\n".join(written)


def page_text(record: dict[str, Any]) -> str:
    """The tables of a record, with what they are made of."""
    cells = record["cells"]
    names = {name for of_option in cells.values() for name in of_option}
    every = [found for of_option in cells.values() for found in of_option.values()]
    below = "; ".join(record["short"]) or "none"
    lowest, option, statement = min(
        (found["covered"], option, name)
        for option, of_option in cells.items()
        for name, found in of_option.items()
    )
    error = cells[option][statement]["error"]
    samples = sorted({found["samples"] for found in every})
    return f"""{len(names)} statements, {len(cells)} options, {len(every)} cells; {samples[0]} to \
{samples[-1]} samples per cell.
Below 93% by more than two simulation standard errors: {below}.
The lowest cell: {statement}, {option}: {lowest:.1%} ± {error:.1%}.

{tables(cells)}"""


def write_page(record: dict[str, Any]) -> None:
    """Between the two marks of ``docs/limits.md``."""
    before, rest = PAGE.read_text().split("<!-- grid -->\n")
    after = rest.split("<!-- /grid -->\n")[1]
    PAGE.write_text(
        f"{before}<!-- grid -->\n{page_text(record)}\n<!-- /grid -->\n{after}"
    )


def last_record() -> dict[str, Any]:
    """The newest record of every cell, in the order of the options."""
    found: dict[str, Any] = {}
    cells: Cells = {}
    for line in RESULTS.read_text().splitlines():
        record = json.loads(line)
        found |= record
        for option, of_option in record["cells"].items():
            cells[option] = cells.get(option, {}) | of_option
    names = [part.name for part in (*options(), *votings())]
    ordered = {name: cells[name] for name in names if name in cells}
    return found | {"cells": ordered, "short": short(ordered)}


def named_cell(
    name: str, n_samples: int, seed: int, alone: str = "all"
) -> dict[str, dict[str, Any]]:
    """The cell of one option, or of one kind of votes."""
    warnings.simplefilter("ignore")
    for option in options():
        if option.name == name:
            return cell(option, n_samples, seed, ALONE[alone])
    return next(
        vote_cell(voting, n_samples, seed)
        for voting in votings()
        if voting.name == name
    )


def simulate(
    n_samples: int, seed: int, jobs: int, alone: str = "all", only: str = ""
) -> dict[str, Any]:
    """Every cell, or those of the options with ``only`` in their names, as a record."""
    started = time.perf_counter()
    dropped = {}
    for option in options():
        dropped |= {
            f"{name} | {option.name}": why for name, why in option.dropped.items()
        }
    parts: list[Option | Voting] = [*options()]
    if alone == "all":
        parts += votings()
    names = [part.name for part in parts if only in part.name]
    calls = (delayed(named_cell)(name, n_samples, seed, alone) for name in names)
    cells = dict(zip(names, Parallel(n_jobs=jobs)(calls), strict=True))
    return {
        "seed": seed,
        "samples": n_samples,
        "level": LEVEL,
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment(),
        "cells": cells,
        "not_stated": dropped,
        "short": short(cells),
    }


def main() -> None:
    """Run, record and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="40 samples per cell, no record"
    )
    parser.add_argument(
        "--page", action="store_true", help="write the page from the last record"
    )
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", choices=ALONE, default="all")
    parser.add_argument("--only", default="", help="part of the name of an option")
    args = parser.parse_args()
    if args.page:
        write_page(last_record())
        return
    n_samples = 40 if args.quick else args.samples
    record = simulate(n_samples, args.seed, args.jobs, args.alone, args.only)
    if not args.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
    print(page_text(record))
    print(f"Seed {args.seed}, {record['seconds']} s.")


if __name__ == "__main__":
    main()
