"""Does every printed confidence hold? Statements × options, simulated with known posteriors.

Each option draws samples of a population whose S, PBER and Bayes error are known. Each statement
(``studies/statements.py`` and its neighbours) is an interval or a limit that the package prints at
95%. Of each statement under each option: the share of samples in which it held, its simulation
error, and its mean width over that of an oracle, ±1.96 standard deviations of the estimate over all
samples. The tables are those of ``docs/limits.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from collidescope.equations.densities import draw_classes
from collidescope.equations.recalibration import raised
from studies import markdown
from studies.measures import Rng
from studies.statements import statements
from studies.store import Cell, Record, Result, Study
from studies.trial import Array, Held, Option, Population, Sample, Statements, Trial
from studies.vote_statements import Voting, vote_statements

#: What is not stated, by the option's posteriors.
ABOVE = "only limits from above: what was not learned counts as collision"

Draw = Callable[[Rng], Sample]
Cells = dict[str, dict[str, dict[str, Any]]]


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


def plain(p: Population, n: int, told: Array | None = None) -> Draw:
    """Independent rows; ``told`` are posteriors of the kinds other than the true ones."""
    shown = p.posteriors
    if told is not None:
        shown = told

    def draw(rng: Rng) -> Sample:
        kinds = rng.choice(len(p.weights), n, p=p.weights)
        labels = draw_classes(p.posteriors[kinds], rng)
        return Sample(kinds, shown[kinds], labels, {})

    return draw


def weighted(p: Population, n: int, spread: float) -> Draw:
    """Log-normal weights that say nothing about the rows."""

    def draw(rng: Rng) -> Sample:
        sample = plain(p, n)(rng)
        return sample._replace(options={"sample_weight": rng.lognormal(0, spread, n)})

    return draw


def skewed(p: Population, sizes: list[int], how: str) -> Draw:
    """Some rows of one class and many of another stand for shares that differ from theirs."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    density = p.weights[:, None] * p.posteriors / p.priors
    observed = np.array(sizes) / np.sum(sizes)
    shown = p.shifted(observed).posteriors
    given = {"priors": p.priors}
    if how == "uniform":
        given = {"priors": "uniform"}
    if how == "weights":
        shown = p.posteriors
        given = {"sample_weight": (p.priors / observed)[labels]}

    def draw(rng: Rng) -> Sample:
        by_class = zip(density.T, sizes, strict=True)
        drawn = [rng.choice(len(density), n, p=shares) for shares, n in by_class]
        kinds = np.concatenate(drawn)
        return Sample(kinds, shown[kinds], labels, given)

    return draw


def grouped(p: Population, n_groups: int, size: int, spread: float = 0.0) -> Draw:
    """Groups whose rows are of 10 neighbouring kinds, in the order of their ambiguity."""
    order = np.argsort(p.posteriors.max(axis=1))

    def draw(rng: Rng) -> Sample:
        start = np.repeat(rng.integers(0, len(order), n_groups), size)
        kinds = order[(start + rng.integers(0, 10, len(start))) % len(order)]
        given = {"groups": np.repeat(np.arange(n_groups), size)}
        if spread:
            given["sample_weight"] = rng.lognormal(0, spread, len(kinds))
        posteriors = p.posteriors[kinds]
        return Sample(kinds, posteriors, draw_classes(posteriors, rng), given)

    return draw


def at_priors(draw: Draw, priors: Array) -> Draw:
    """The same rows, for a population with other class shares."""

    def drawn(rng: Rng) -> Sample:
        sample = draw(rng)
        return sample._replace(options=sample.options | {"priors": priors})

    return drawn


def thinned(p: Population, n: int, times: float = 20.0) -> Draw:
    """The most ambiguous tenth of the kinds is drawn so many times less, and weighs as much more."""
    highest = p.posteriors.max(axis=1)
    weight = np.where(highest <= np.quantile(highest, 0.1), times, 1.0)
    chance = p.weights / weight
    chance /= chance.sum()

    def draw(rng: Rng) -> Sample:
        kinds = rng.choice(len(chance), n, p=chance)
        P = p.posteriors[kinds]
        return Sample(kinds, P, draw_classes(P, rng), {"sample_weight": weight[kinds]})

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
    alike = Population(np.full((1, 20), 0.05), np.ones(1))
    silent = Population(np.full((1, 3), 1 / 3), np.ones(1))
    for name, p, n in (
        ("equal weights, n=200", three, 200),
        ("equal weights, n=2000", three, 2000),
        ("K=2, n=200", two, 200),
        ("K=2, n=2000", two, 2000),
        ("K=10, n=2000", ten, 2000),
        ("K=20, all alike, n=400", alike, 400),
        ("inputs say nothing, n=200", silent, 200),
        ("K=50, n=2000", fifty, 2000),
    ):
        yield Option(name, p, plain(p, n))
    few = two.shifted(np.array([10, 1000]) / 1010)
    fewer = even.shifted(np.array([30, 300, 300]) / 630)
    other = np.array([0.2, 0.3, 0.5])
    groups = grouped(three, 40, 50)
    heavy = skewed(two, [10, 1000], "weights")
    heavier = skewed(two, [50, 2000], "weights")
    given = skewed(two, [10, 1000], "given")
    uniform = skewed(two, [10, 1000], "uniform")
    uniform_of_three = skewed(even, [30, 300, 300], "uniform")
    yield Option("lognormal weights (1), n=2000", three, weighted(three, 2000, 1.0))
    yield Option("lognormal weights (2), n=2000", three, weighted(three, 2000, 2.0))
    yield Option("10 heavy | 1000 light, weights", two, heavy)
    yield Option("50 heavy | 2000 light, weights", two, heavier)
    yield Option("10 | 1000, given priors", two, given, few)
    yield Option("10 | 1000, uniform", half, uniform, few)
    yield Option("30 | 300 | 300, uniform", even, uniform_of_three, fewer)
    yield Option("ambiguous rows weigh 20, n=2000", three, thinned(three, 2000))
    yield Option("40 groups × 50", three, groups)
    yield Option("15 groups × 50", three, grouped(three, 15, 50))
    yield Option("40 groups × 50, weights (0.5)", three, grouped(three, 40, 50, 0.5))
    elsewhere = three.shifted(other)
    shifted = at_priors(groups, other)
    yield Option("40 groups × 50, given priors", elsewhere, shifted, three)
    yield Option("a class of 1%, n=2000", rare, plain(rare, 2000))
    yield Option("0 to 3 errors, n=1000", sure, plain(sure, 1000))
    yield from wrong_posteriors(three)


def wrong_posteriors(p: Population) -> Iterator[Option]:
    """Posteriors that are not the true ones: what was not learned counts as collision."""
    about_truth = ("PBER", "S", "top collision", "recall", "merged S", "merged PBER")
    about_truth += ("compare PBER", "compare S", "expected distance", "gain of a merge")
    about_truth += ("consolidation path", "gain of labels")
    dropped = dict.fromkeys(about_truth, ABOVE)
    for name, told in (
        ("over-confident, n=2000", raised(p.posteriors, 2.0)),
        ("under-confident, n=2000", raised(p.posteriors, 0.5)),
        ("worse than the class shares, n=2000", p.posteriors[:, ::-1]),
    ):
        yield Option(name, p, plain(p, 2000, told), told=told, dropped=dropped)


def votings() -> Iterator[Voting]:
    """Every option of the grid for votes."""
    three = population(3, 2.0)
    two = population(2, 1.5)
    rare = population(3, 1.5, rare=True)
    rate = np.random.default_rng(0).beta(0.3, 3.0, 400)
    few = Population(np.column_stack([1 - rate, rate]), two.weights)
    yield Voting("400 items × 5 votes", three, 400, (5, 5))
    yield Voting("400 items × 2 votes", three, 400, (2, 2))
    yield Voting("400 items × 2 to 8 votes", three, 400, (2, 8))
    yield Voting("30 items × 3 votes", two, 30, (3, 3))
    yield Voting("30 items × 3 votes, skewed", few, 30, (3, 3))
    yield Voting("60 items × 2 votes, skewed", few, 60, (2, 2))
    yield Voting("K=10, 400 items × 5 votes", population(10, 2.5), 400, (5, 5))
    yield Voting("a class of 1%, 400 items × 5 votes", rare, 400, (5, 5))


def simulated(option: Option | Voting, rng: Rng) -> Statements:
    """What is said of one sample, without the statements that are not made of the option."""
    if isinstance(option, Voting):
        yield from vote_statements(option, rng)
        return
    trial = Trial(option, option.draw(rng), rng)
    for name, held in statements(trial):
        if name not in option.dropped:
            yield name, held


def simulate(option: Option | Voting, n_samples: int, seed: int = 0) -> Result:
    """Coverage, simulation error and width of every statement under one option."""
    rng = np.random.default_rng(seed)
    found = {}
    for _ in range(n_samples):
        for name, held in simulated(option, rng):
            found.setdefault(name, []).append(held)
    return {name: summary(helds) for name, helds in found.items()}


def summary(helds: list[Held]) -> Result:
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
    if held.at_once:
        return float(holds.all())
    return float(holds.mean())


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


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"option": "equal weights, n=200", "samples": 3, "seed": 0}]
    every = [*options(), *votings()]
    return [{"option": own.name, "samples": 500, "seed": 1} for own in every]


def run(cell: Cell) -> Result:
    warnings.simplefilter("ignore")
    by_name = {option.name: option for option in (*options(), *votings())}
    return simulate(by_name[cell["option"]], cell["samples"], cell["seed"])


# ---------------------------------------------------------------- tables


def by_option(records: list[Record]) -> Cells:
    """What was found, by option and statement."""
    return {record["cell"]["option"]: record["result"] for record in records}


def listed(cells: Cells) -> list[tuple[str, str, dict[str, Any]]]:
    """(option, statement, what was found) of every cell."""
    return [
        (option, statement, found)
        for option, of_option in cells.items()
        for statement, found in of_option.items()
    ]


def short(cells: Cells) -> list[str]:
    """Cells below 93% by more than two simulation standard errors."""
    return [
        f"{statement} | {option}: {found['covered']:.3f} ± {found['error']:.3f}"
        for option, statement, found in listed(cells)
        if found["covered"] + 2 * found["error"] < 0.93
    ]


def table(cells: Cells) -> str:
    """Markdown: options by statements, covered in percent (width over the oracle's)."""
    names = list(dict.fromkeys(statement for _, statement, _ in listed(cells)))
    rows = []
    for option, of_option in cells.items():
        shown = [_shown(of_option.get(name)) for name in names]
        rows.append([option.replace("|", "\\|"), *shown])
    return markdown.table(["option", *names], rows)


def _shown(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    covered = f"{100 * found['covered']:.1f}"
    if found["over_oracle"] is None:
        return covered
    return f"{covered} ({found['over_oracle']:.2f})"


NOW = "S and limits now"
#: Statements of the first table by their names, of the others by how their names begin; what is
#: left is in the last one.
PARTS = {
    NOW: "PBER|S|recall|top collision|Bayes error limit",
    "Learning curves": "range of|S∞|continuation|rows needed|shuffled control",
    "Metrics now (`ceilings`)": "ceiling:",
    "Metrics with unlimited rows (`ceilings`)": "range:",
    "Metrics of another model less these (`ceilings`)": "difference:",
    "Votes and repeated inputs": "voted|kappa|alpha|counted|votes",
    "Judges and annotators": "judge|annotator",
    "Audit and columns": "audit|columns",
    "Merged classes and plans": "merged|gain|consolidation|expected",
    "Rows of a fit": "fit:",
    "Comparisons, subgroups, changes": "",
}


def part_of(statement: str) -> str:
    """The title of its table."""
    beginnings = {title: tuple(part.split("|")) for title, part in PARTS.items()}
    if statement in beginnings.pop(NOW):
        return NOW
    found = [title for title, own in beginnings.items() if statement.startswith(own)]
    return found[0]


def tables(cells: Cells) -> str:
    """One table for each part of the statements."""
    blocks = {title: {} for title in PARTS}
    for option, statement, found in listed(cells):
        block = blocks[part_of(statement)]
        block.setdefault(option, {})[statement] = found
    written = [f"**{title}**\n\n{table(block)}" for title, block in blocks.items()]
    return "\n\n".join(written)


def text(records: list[Record]) -> str:
    """The tables, with what they are made of."""
    cells = by_option(records)
    every = listed(cells)
    statements = {statement for _, statement, _ in every}
    samples = [found["samples"] for _, _, found in every]
    below = "; ".join(short(cells)) or "none"
    option, statement, lowest = min(every, key=lambda cell: cell[2]["covered"])
    return f"""{len(statements)} statements, {len(cells)} options, {len(every)} cells; \
{min(samples)} to {max(samples)} samples per cell.
Below 93% by more than two simulation standard errors: {below}.
The lowest cell: {statement}, {option}: {lowest["covered"]:.1%} ± {lowest["error"]:.1%}.

{tables(cells)}"""


STUDY = Study("grid", "Does every printed confidence hold?", cells, run, text)
