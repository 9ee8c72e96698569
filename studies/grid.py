"""Does every printed confidence hold? Statements × options, simulated with true posteriors.

Each option draws samples of a population whose S, PBER and Bayes error are known. Each statement is
an interval or a limit that the package prints at 95%. A cell is the share of samples in which the
statement held, its simulation error, and its mean width over that of an oracle: the interval
±1.96 standard deviations of the estimate over all samples. ``python -m studies.grid [--quick]``
appends a record to ``studies/results/grid.jsonl`` and prints the table.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import collidescope as cs
from collidescope._environment import environment
from collidescope.limit import limit_from_posteriors
from collidescope.matrix import CollisionMatrix

LEVEL = 0.95
RESULTS = Path(__file__).parent / "results" / "grid.jsonl"


@dataclass(frozen=True)
class Population:
    """Finitely many kinds of input with known posteriors: every expectation is a sum over them."""

    posteriors: np.ndarray  #: (M, K) y(x) of every kind
    weights: np.ndarray  #: (M,) how common it is

    @property
    def priors(self) -> np.ndarray:
        return self.weights @ self.posteriors

    def joint(self) -> np.ndarray:
        """B = E[y yᵀ]."""
        return self.posteriors.T @ (self.weights[:, None] * self.posteriors)

    def bayes_error(self) -> float:
        return float(1 - self.weights @ self.posteriors.max(axis=1))

    def shifted(self, priors: np.ndarray) -> Population:
        """The same classes at other priors."""
        density = self.weights[:, None] * self.posteriors / self.priors
        flow = density * priors
        total = flow.sum(axis=1)
        return Population(flow / total[:, None], total)


def population(k: int, sharpness: float, seed: int = 0, rare: bool = False) -> Population:
    """400 kinds of input, posteriors the softmax of normal logits; a class of 1% where ``rare``."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.standard_normal((400, k))
    if rare:
        logits[:, 0] -= 4.5
    posteriors = np.exp(logits - logits.max(axis=1, keepdims=True))
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    return Population(posteriors, np.full(400, 1 / 400))


class Sample(NamedTuple):
    """Rows and what the estimators are told of them."""

    posteriors: np.ndarray
    truth: np.ndarray  #: true posteriors of the rows: those above may be worse
    labels: np.ndarray
    options: dict[str, Any]


@dataclass(frozen=True)
class Option:
    """How samples are drawn, and the population that the statements are about."""

    name: str
    target: Population
    draw: Callable[[np.random.Generator], Sample]
    #: statements that are not made under this option, and why
    dropped: dict[str, str] = field(default_factory=dict)


def draw_labels(rng: np.random.Generator, posteriors: np.ndarray) -> np.ndarray:
    """A label of every row, drawn from its posterior."""
    return (rng.random((len(posteriors), 1)) >= posteriors.cumsum(axis=1)[:, :-1]).sum(axis=1)


def plain(p: Population, n: int, power: float = 1.0) -> Callable[[np.random.Generator], Sample]:
    """Independent rows; posteriors sharpened (over-confident) or flattened by ``power``."""

    def draw(rng: np.random.Generator) -> Sample:
        truth = p.posteriors[rng.choice(len(p.weights), n, p=p.weights)]
        labels = draw_labels(rng, truth)
        told = truth**power
        return Sample(told / told.sum(axis=1, keepdims=True), truth, labels, {})

    return draw


def weighted(p: Population, n: int, spread: float) -> Callable[[np.random.Generator], Sample]:
    """Log-normal weights that say nothing about the rows."""

    def draw(rng: np.random.Generator) -> Sample:
        sample = plain(p, n)(rng)
        return sample._replace(options={"sample_weight": rng.lognormal(0, spread, n)})

    return draw


def skewed(p: Population, sizes: list[int], how: str) -> Callable[[np.random.Generator], Sample]:
    """Some rows of one class and many of another stand for shares that differ from theirs."""
    k = len(sizes)
    density = p.weights[:, None] * p.posteriors / p.priors
    observed = np.array(sizes) / np.sum(sizes)
    flow = density * observed
    at_observed = flow / flow.sum(axis=1, keepdims=True)

    def draw(rng: np.random.Generator) -> Sample:
        labels = np.repeat(np.arange(k), sizes)
        kinds = np.concatenate(
            [rng.choice(len(density), n, p=density[:, c]) for c, n in enumerate(sizes)]
        )
        if how == "weights":
            weight = (p.priors / observed)[labels]
            truth = p.posteriors[kinds]
            return Sample(truth, truth, labels, {"sample_weight": weight})
        truth = at_observed[kinds]
        priors = "uniform" if how == "uniform" else p.priors
        return Sample(truth, truth, labels, {"priors": priors})

    return draw


def grouped(
    p: Population, n_groups: int, size: int, spread: float = 0.0
) -> Callable[[np.random.Generator], Sample]:
    """Groups whose rows are of 10 neighbouring kinds, in the order of their ambiguity."""
    order = np.argsort(p.posteriors.max(axis=1))

    def draw(rng: np.random.Generator) -> Sample:
        start = np.repeat(rng.integers(0, len(order), n_groups), size)
        kinds = order[(start + rng.integers(0, 10, len(start))) % len(order)]
        truth = p.posteriors[kinds]
        options: dict[str, Any] = {"groups": np.repeat(np.arange(n_groups), size)}
        if spread:
            options["sample_weight"] = rng.lognormal(0, spread, len(kinds))
        return Sample(truth, truth, draw_labels(rng, truth), options)

    return draw


def options() -> Iterator[Option]:
    """Every option of the grid."""
    three = population(3, 2.0)
    two = population(2, 1.5)
    sure = Population(np.array([[0.999, 0.001], [0.001, 0.999]]), np.array([0.5, 0.5]))
    rare = population(3, 1.5, rare=True)
    even = three.shifted(np.full(3, 1 / 3))
    yield Option("equal weights, n=200", three, plain(three, 200))
    yield Option("equal weights, n=2000", three, plain(three, 2000))
    yield Option("K=2, n=200", two, plain(two, 200))
    yield Option("K=2, n=2000", two, plain(two, 2000))
    ten = population(10, 2.5)
    yield Option("K=10, n=2000", ten, plain(ten, 2000))
    fifty = population(50, 4.0)
    yield Option("K=50, n=2000", fifty, plain(fifty, 2000))
    yield Option("lognormal weights (1), n=2000", three, weighted(three, 2000, 1.0))
    yield Option("lognormal weights (2), n=2000", three, weighted(three, 2000, 2.0))
    yield Option("10 heavy | 1000 light, weights", two, skewed(two, [10, 1000], "weights"))
    yield Option("50 heavy | 2000 light, weights", two, skewed(two, [50, 2000], "weights"))
    yield Option("10 | 1000, given priors", two, skewed(two, [10, 1000], "given"))
    yield Option(
        "10 | 1000, uniform", two.shifted(np.array([0.5, 0.5])), skewed(two, [10, 1000], "uniform")
    )
    yield Option("30 | 300 | 300, uniform", even, skewed(even, [30, 300, 300], "uniform"))
    yield Option("40 groups × 50", three, grouped(three, 40, 50))
    yield Option("15 groups × 50", three, grouped(three, 15, 50))
    yield Option("40 groups × 50, weights (0.5)", three, grouped(three, 40, 50, 0.5))
    yield Option("a class of 1%, n=2000", rare, plain(rare, 2000))
    yield Option("0 to 3 errors, n=1000", sure, plain(sure, 1000))
    # Posteriors that are not the true ones: what was not learned counts as collision, so only the
    # limits from above are stated.
    for name, power in (("over-confident", 2.0), ("under-confident", 0.5)):
        above = "only limits from above: what was not learned counts as collision"
        shared = "an error that the models of every size share is not on the curve"
        names = ("PBER", "S", "top collision", "recall", "merged S", "merged PBER")
        wrong = dict.fromkeys(names, above) | dict.fromkeys(("range of PBER", "S∞"), shared)
        yield Option(f"{name}, n=2000", three, plain(three, 2000, power), wrong)


class Held(NamedTuple):
    """One statement of one sample: its ends, and the truth it is about."""

    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray


def statements(option: Option, sample: Sample) -> Iterator[tuple[str, Held]]:
    """Every statement of one sample."""
    B = option.target.joint()
    priors = B.sum(axis=1)
    S = B / priors[:, None]
    pber = np.array(1 - np.trace(B))
    best = np.array(option.target.bayes_error())
    zero = np.array(0.0)
    cm = cs.collision_matrix_from_posteriors(sample.posteriors, sample.labels, **sample.options)
    interval = cm.interval(LEVEL)
    pber_ends = cm.pber_interval(LEVEL)
    if interval is None or pber_ends is None:
        raise ValueError("an estimate from labels must have intervals")
    low, high = interval
    yield "PBER", Held(*map(np.array, pber_ends), pber)
    yield "S", Held(low, high, S)
    yield "recall", Held(np.diag(low), np.diag(high), np.diag(S))
    top = cm.top_collisions(1, LEVEL).iloc[0]
    entry = S[int(top["class"]), int(top["other"])]
    yield "top collision", Held(np.array(top["low"]), np.array(top["high"]), np.array(entry))
    yield "Bayes error limit", Held(zero, np.array(cm.bayes_error_limit(LEVEL)), best)
    if 2 < cm.n_classes <= 20:
        yield from merged_statements(cm, B)
    yield from range_statements(sample, cm.n_classes, pber, best, S)


def merged_statements(cm: CollisionMatrix, B: np.ndarray) -> Iterator[tuple[str, Held]]:
    """Of the first two classes merged."""
    merged = cm.merge([[0, 1]])
    A = np.eye(cm.n_classes)[:, 1:]
    A[0, 0] = 1
    joint = A.T @ B @ A
    ends, pber = merged.interval(LEVEL), merged.pber_interval(LEVEL)
    if ends is None or pber is None:
        return
    yield "merged S", Held(*ends, joint / joint.sum(axis=1, keepdims=True))
    yield "merged PBER", Held(*map(np.array, pber), np.array(1 - np.trace(joint)))


def range_statements(
    sample: Sample, k: int, pber: np.ndarray, best: np.ndarray, S: np.ndarray
) -> Iterator[tuple[str, Held]]:
    """Of a curve whose excess falls like 1/√m, by noise added to the logits of every row."""
    if k > 20:
        return
    rng = np.random.default_rng(len(sample.labels))
    logits = np.log(np.maximum(sample.posteriors, 1e-12))
    noise = rng.standard_normal((len(sample.labels), k))
    sizes = np.array([250, 500, 1000, 2000])
    curves = []
    for size in sizes:
        told = np.exp(logits + 0.5 * (size / 250) ** -0.25 * noise)
        curves.append(told / told.sum(axis=1, keepdims=True))
    given = dict(sample.options)
    priors = given.pop("priors", None)
    if isinstance(priors, str):
        priors = np.full(k, 1 / k)
    limit = limit_from_posteriors(curves, sample.labels, sizes, priors=priors, **given)
    yield "range of PBER", Held(*map(np.array, limit.pber_interval(LEVEL)), pber)
    yield "range of Bayes error", Held(*map(np.array, limit.bayes_error_interval(LEVEL)), best)
    if limit.matrix is not None:
        ends = limit.matrix.interval(LEVEL)
        if ends is not None:
            yield "S∞", Held(*ends, S)


def vote_statements(option: Option, rng: np.random.Generator) -> Iterator[tuple[str, Held]]:
    """Counted over five votes per item, and over inputs that repeat."""
    B = option.target.joint()
    S = B / B.sum(axis=1, keepdims=True)
    p = option.target
    kinds = rng.choice(len(p.weights), 400, p=p.weights)
    votes = rng.multinomial(5, p.posteriors[kinds])
    voted = cs.collision_matrix_from_votes(votes)
    rows = rng.choice(len(p.weights), 2000, p=p.weights)
    counted = cs.count_collisions(rows, draw_labels(rng, p.posteriors[rows]))
    for name, cm in (("voted", voted), ("counted", counted)):
        ends, pber = cm.interval(LEVEL), cm.pber_interval(LEVEL)
        if ends is not None and pber is not None:
            yield f"{name} S", Held(*ends, S)
            yield f"{name} PBER", Held(*map(np.array, pber), np.array(1 - np.trace(B)))
    limit = np.array(voted.bayes_error_limit(LEVEL))
    yield "voted Bayes error limit", Held(np.array(0.0), limit, np.array(p.bayes_error()))


def cell(option: Option, n_samples: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """Coverage, simulation error and width of every statement under one option."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[Held]] = {}
    for _ in range(n_samples):
        made = dict(statements(option, option.draw(rng)))
        if option.name == "equal weights, n=2000":
            made |= dict(vote_statements(option, rng))
        for name, held in made.items():
            if name not in option.dropped:
                found.setdefault(name, []).append(held)
    return {name: summary(helds) for name, helds in found.items()}


def summary(helds: list[Held]) -> dict[str, float]:
    """Coverage and width of one statement over all samples."""
    low, high, truth = (np.array([held[part] for held in helds]) for part in range(3))
    inside = (low <= truth + 1e-12) & (truth <= high + 1e-12)
    per_sample = inside.reshape(len(helds), -1).mean(axis=1)
    # Oracle: ±1.96 standard deviations of the middle over all samples.
    oracle = 2 * 1.96 * ((low + high) / 2).std(axis=0)
    width = (high - low).mean(axis=0)
    ratio = width.mean() / max(float(oracle.mean()), 1e-12)
    return {
        "covered": float(per_sample.mean()),
        "error": float(per_sample.std() / np.sqrt(len(helds))),
        "width": float(width.mean()),
        "over_oracle": float(ratio),
        "samples": len(helds),
    }


def short(cells: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Cells below 93% by more than two simulation standard errors."""
    return [
        f"{statement} | {option}: {found['covered']:.3f} ± {found['error']:.3f}"
        for option, of_option in cells.items()
        for statement, found in of_option.items()
        if found["covered"] + 2 * found["error"] < 0.93
    ]


def table(cells: dict[str, dict[str, dict[str, float]]]) -> str:
    """Markdown: options by statements, covered in percent (width over the oracle's)."""
    names = list(dict.fromkeys(name for of_option in cells.values() for name in of_option))
    lines = ["| option | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for option, of_option in cells.items():
        shown = []
        for name in names:
            found = of_option.get(name)
            if found is None:
                shown.append("–")
            else:
                shown.append(f"{100 * found['covered']:.1f} ({found['over_oracle']:.2f})")
        name = option.replace("|", "\\|")
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run, record and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="40 samples per cell, no record")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    n_samples = 40 if args.quick else args.samples
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    cells = {}
    dropped = {}
    for option in options():
        cells[option.name] = cell(option, n_samples, args.seed)
        dropped |= {f"{name} | {option.name}": why for name, why in option.dropped.items()}
    record = {
        "seed": args.seed,
        "samples": n_samples,
        "level": LEVEL,
        "seconds": round(time.perf_counter() - started, 1),
        "environment": environment(),
        "cells": cells,
        "not_stated": dropped,
        "short": short(cells),
    }
    if not args.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        with RESULTS.open("a") as file:
            file.write(json.dumps(record) + "\n")
    print(table(cells))
    print(f"\nNominal {LEVEL:.0%}; in brackets the mean width over that of an oracle's interval.")
    print(f"Seed {args.seed}, {n_samples} samples per cell, {record['seconds']} s.")
    print("Below 93% by more than two simulation errors: " + ("; ".join(record["short"]) or "none"))


if __name__ == "__main__":
    main()
