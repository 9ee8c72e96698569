"""Does the range with unlimited rows hold the truth, and is S∞ nearer to S than S(n)?

Sixteen problems whose S is known, most of them outside the families of the models, twelve more
(``FRESH``), and thirty-three kinds that were made up for another study (``KINDS``). The prior of
the range was found on all of them: :mod:`studies.accuracy.prior` leaves families out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from collidescope import CollisionClassifier, crossfit
from collidescope.crossfit import Pooled
from collidescope.equations.recalibration import recalibration_gains
from collidescope.limit import PRIOR, Limit
from collidescope.matrix import CollisionMatrix
from collidescope.sample import Sample
from studies import known as datasets
from studies.accuracy import few_rows, prior
from studies.markdown import again, table
from studies.measures import tvd
from studies.problems import FRESH, KINDS, OfKind
from studies.store import Cell, Record, Study, flat, runs

PROBLEMS: dict[str, Callable[[], datasets.Problem]] = {
    "Scenario A5": lambda: datasets.scenario_a(5),
    "Scenario B(.25)": lambda: datasets.scenario_b(0.25),
    "ring": datasets.ring,
    "tangled": datasets.tangled,
    "LED": datasets.led,
    "twonorm": datasets.twonorm,
    "ringnorm": datasets.ringnorm,
    "waveform": datasets.waveform,
    "MLP teacher": datasets.mlp_teacher,
    "tree teacher": datasets.tree_teacher,
    "noisy chessboard": datasets.chessboard,
    "Friedman-like": datasets.friedman,
    "sparse words": datasets.sparse_words,
    "heavy-tailed": datasets.heavy_tailed,
    "spiral": datasets.spiral,
    "interactions": datasets.interactions,
}
#: Until most fields are seen the curve is flat: no method can tell that there is more to learn.
UNDETECTABLE = "noisy chessboard"
LEVEL = 0.95
Known = datasets.Problem | OfKind


def cells(quick: bool) -> list[Cell]:
    """Two samples of every problem at 3,000 rows, and two at 1,000."""
    if quick:
        return [{"engine": "full", "problem": "ring", "rows": 300, "seed": 0}]
    return [
        {"engine": "full", "problem": problem, "rows": rows, "seed": seed}
        for problem in (*PROBLEMS, *FRESH, *KINDS)
        for rows, seed in ((3000, 0), (3000, 1), (1000, 0), (1000, 1))
    ]


def run(cell: Cell) -> dict[str, Any]:
    """One fit against the truth."""
    name = cell["problem"]
    problem: Known
    if name in KINDS:
        problem = OfKind(KINDS[name])
    else:
        problem = (PROBLEMS | FRESH)[name]()
    return against_truth(problem, cell["rows"], cell["seed"])


def against_truth(problem: Known, rows: int, seed: int) -> dict[str, Any]:
    """What a fit of the default pool says, and what is true."""
    X, y = problem.sample(rows, seed, stratified=False)
    with watched() as at_size:
        clf = CollisionClassifier(random_state=seed).fit(X, y)
    ordered = list(clf.posteriors_by_size_.values())
    return compared(clf.collision_matrix_, clf.limit_, problem) | {
        "features": X.shape[1],
        "classes": len(clf.classes_),
        "at_size": at_size,
        "moved": [[rounded(_distance(a, b)) for b in ordered] for a in ordered],
    }


def compared(now: CollisionMatrix, limit: Limit, problem: Known) -> dict[str, Any]:
    """An estimate and its range beside the truth."""
    truth = problem.collision_matrix()
    low, high = limit.pber_interval(LEVEL)
    bayes_low, bayes_high = limit.bayes_error_interval(LEVEL)
    return {
        "truth": truth.pber,
        "pber": now.pber,
        "limit": limit.pber,
        "low": low,
        "high": high,
        "plain": list(now.pber_interval(LEVEL)),
        "state": limit.state,
        "reason": limit.reason,
        "bayes_error": problem.bayes_error(),
        "bayes_low": bayes_low,
        "bayes_high": bayes_high,
        "tvd_now": tvd(now.matrix, truth.matrix)[0],
        "tvd_limit": tvd(limit.matrix.matrix, truth.matrix)[0],
        "entries_now": covered(now, truth),
        "entries_limit": covered(limit.matrix, truth),
        "curve": limit.to_dict() | {"matrix": None},
    }


@contextmanager
def watched() -> Iterator[list[dict[str, Any]]]:
    """What is seen of the members at every size of a fit, all rows first."""
    found: list[dict[str, Any]] = []
    before: dict[str, np.ndarray] = {}

    def pool_folds(
        sample: Sample,
        tests: Sequence[np.ndarray],
        scores: Sequence[np.ndarray],
        names: Sequence[str],
        n_jobs: int | None,
    ) -> Pooled:
        pooled = pool(sample, tests, scores, names, n_jobs)
        rows = np.argsort(np.concatenate(tests))
        by_member = np.exp(np.concatenate(scores, axis=1)[:, rows].astype(float))
        own = dict(zip(names, by_member, strict=True))
        codes = sample.codes[pooled.rows]
        found.append(_seen(own, before, pooled, codes))
        before.clear()
        before.update(own)
        return pooled

    pool = crossfit.pool_folds
    with patch.object(crossfit, "pool_folds", pool_folds):
        yield found


def _seen(
    members: dict[str, np.ndarray],
    before: dict[str, np.ndarray],
    pooled: Pooled,
    codes: np.ndarray,
) -> dict[str, Any]:
    """Of the pool and its members at one size; ``before`` are the members at the next larger."""
    P = pooled.posteriors
    places = np.arange(len(codes))
    gains, power = recalibration_gains(P, codes, np.ones(len(P)), places)
    onehot = np.eye(P.shape[1])[codes]
    right = {name: p[places, codes] for name, p in members.items()}
    return {
        "said": rounded(1 - (P**2).sum(axis=1).mean()),
        "power": rounded(power),
        "gain": rounded(gains.mean()),
        "weights": {name: rounded(w) for name, w in pooled.weights.items()},
        "brier": {name: rounded(_distance(p, onehot)) for name, p in members.items()},
        "error": {
            name: rounded((p.argmax(axis=1) != codes).mean())
            for name, p in members.items()
        },
        "log_loss": {
            name: rounded(-np.log(np.maximum(p, 1e-9)).mean())
            for name, p in right.items()
        },
        "from_pool": {name: rounded(_distance(p, P)) for name, p in members.items()},
        "moved": {
            name: rounded(_distance(p, before[name]))
            for name, p in members.items()
            if name in before
        },
    }


def _distance(p: np.ndarray, q: np.ndarray) -> float:
    """The mean squared distance of posteriors of the same rows."""
    return float(((p - q) ** 2).sum(axis=1).mean())


def rounded(value: float) -> float:
    """Six digits tell what is to be told."""
    return float(f"{value:.6g}")


def covered(cm: CollisionMatrix, truth: CollisionMatrix) -> float | None:
    """Share of the true entries of S inside their intervals; None where none are stated."""
    ends = cm.interval(LEVEL)
    if ends is None:
        return None
    low, high = ends
    return float(((low <= truth.matrix) & (truth.matrix <= high)).mean())


def without_last_size(whole: Limit) -> Limit:
    """The PBER's curve as it was known before its last size."""
    return replace(
        whole,
        sizes=whole.sizes[:-1],
        scores=whole.scores[:-1],
        covariance=whole.covariance[:-1, :-1],
        errors=None,
        error_covariance=None,
        matrix=None,
    )


def doubled(run: dict[str, Any]) -> dict[str, Any]:
    """What a curve without its last size says about that size, and what was found there."""
    whole = Limit.from_dict(run["curve"])
    known = without_last_size(whole)
    low, said, high = (
        float(end[0]) for end in known.continuation([whole.sizes[-1]], LEVEL)
    )
    before, found = (float(score) for score in whole.scores[-2:])
    return {
        "problem": run["problem"],
        "state": known.state,
        "before": before,
        "fall": before - found,
        "said": before - said,
        "inside": low <= found <= high,
    }


def nearer_table(chosen: list[dict[str, Any]]) -> pd.DataFrame:
    """How often S∞ is nearer to the truth than S(n), and how much further off at worst."""
    frame = pd.DataFrame(chosen)[["problem", "rows", "tvd_now", "tvd_limit"]]
    by_problem = frame.groupby("problem").mean(numeric_only=True)
    by_size = frame.groupby(["problem", "rows"]).mean(numeric_only=True)
    rows = []
    for name, part in (
        ("problems", by_problem),
        ("problems and sizes", by_size),
        ("fits", frame),
    ):
        ratio = part["tvd_limit"] / part["tvd_now"]
        row = {"over": name, "number": len(ratio), "nearer": (ratio < 1).mean()}
        row["beyond 1.15"] = (ratio > 1.15).mean()
        row["worst"] = ratio.max()
        rows.append(row)
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- tables


def text(records: list[Record]) -> str:
    runs = [flat(record) for record in records]
    return f"""## The range with unlimited rows

The 95% range holds the true PBER in {range_table(runs, PROBLEMS)}

Of twelve other problems it holds the true PBER in {range_table(runs, FRESH)}

Of thirty-three kinds of problems that were made up to show what the pool lacks it holds the true
PBER in {range_table(runs, KINDS)}

Ranges are those that today's prior gives for the recorded curves; S∞ is as it was recorded. The
prior was found on these problems, among others: [below](#kinds-of-problems-left-out) is how it does
on kinds that took no part.

{again("limit")}

{left_out_text(runs)}

{doubled_text(runs)}"""


def left_out_text(runs: list[dict[str, Any]]) -> str:
    """The range under priors that were found on other families of problems."""
    curves = prior.made_up() + few_rows.curves()
    found = prior.likeliest(prior.Known.of_curves(curves))
    nearer = nearer_table(runs).set_index("over").loc["problems"]
    beyond = nearer["beyond 1.15"] * nearer["number"]
    of_members = [prior.blind(curve, "parametric") for curve in curves]
    of_nothing = [prior.blind(curve, "parametric", "members") for curve in curves]
    as_sure = PRIOR._replace(unsure=0.0)
    left_out = {
        "members, their kind and what is learned": prior.families_left_out(curves),
        "members and their kind": prior.families_left_out(curves, as_sure),
        "members and what is learned": prior.families_left_out(of_members),
        "what is learned": prior.families_left_out(of_nothing),
        "nothing": prior.families_left_out(of_nothing, as_sure),
    }
    first, *_ = left_out.values()
    return f"""### Kinds of problems left out

The exponent's prior has three numbers, and all are the likeliest on all recorded curves: those of
the {nearer["number"]:.0f} kinds of problems above, and those of few rows of real tables
([below](#few-rows-of-real-tables)), where the end is at most what all rows reach. The median is
{found.exponent:.2f} for a pool of parametric members alone and {found.slower:.2f} times that for a
pool without any, both over the effective number of members. The logarithm deviates by
{found.log_deviation:.2f} over the square root of the skill, the share of the way from the class
shares to a score of 0 that is gone. To judge this way of finding them they are found on all other
families. Then the range misses the truth of the family that was left out in so many fits:

{left_out_table(first)}

What the prior knows of the pool, each time found without the family that is judged:

{variants_table(left_out)}

Widths are in units of the PBER, with 3,000 rows. S∞ is nearer to the truth than S(n) on
{nearer["nearer"]:.0%} of {nearer["number"]:.0f} problems, and on {beyond:.0f} of them more than 1.15
times as far off (at worst {nearer["worst"]:.2f} times)."""


def left_out_table(found: pd.DataFrame) -> str:
    """A row per kind of problems."""
    rows = []
    for name, own in found.groupby("family"):
        chosen = own["prior"].iloc[0]
        found_there = [getattr(chosen, number) for number in prior.FOUND]
        numbers = [*(f"{number:.2f}" for number in found_there), mean_width(own)]
        refuted = own["refuted"].sum()
        rows.append([str(name), str(len(own)), str(refuted), *numbers])
    head = ["left out", "fits", "missed", "median", "times", "deviation", "width"]
    return table(head, rows)


def variants_table(left_out: dict[str, pd.DataFrame]) -> str:
    """A row per thing that a prior may know of the pool."""
    rows = []
    for name, found in left_out.items():
        real = found["family"] == prior.REAL
        own = found[~real]
        worst = 1 - own.groupby("family")["refuted"].mean().max()
        covered = [1 - own["refuted"].mean(), worst]
        shares = [f"{share:.1%}" for share in covered]
        refuted = f"{found[real]['refuted'].sum()} of {real.sum()}"
        rows.append([name, *shares, mean_width(own), refuted])
    head = "known | covers | worst family | width | refuted on real tables"
    return table(head, rows)


def mean_width(found: pd.DataFrame) -> str:
    """Of the fits with 3,000 rows."""
    large = found[found["rows"] == 3000]
    return f"{large['width'].mean():.2f}" if len(large) else ""


def said_now(run: dict[str, Any]) -> dict[str, Any]:
    """The run, with the ranges that its recorded curve has today."""
    limit = prior.limit_of(run["curve"], run["at_size"][0]["weights"])
    limit = prior.of_classes(limit, run["classes"])
    low, high = limit.pber_interval(LEVEL)
    bayes_low, bayes_high = limit.bayes_error_interval(LEVEL)
    ends = {"low": low, "high": high, "bayes_low": bayes_low, "bayes_high": bayes_high}
    return run | ends


def range_table(recorded: list[dict[str, Any]], problems: Iterable[str]) -> str:
    """How often the range holds the truth, and a row per problem and number of rows."""
    rows = []
    inside = []
    runs = [said_now(run) for run in recorded]
    for problem in problems:
        for n in sorted({run["rows"] for run in runs if run["problem"] == problem}):
            own = [
                run for run in runs if run["problem"] == problem and run["rows"] == n
            ]
            held = [run["low"] <= run["truth"] <= run["high"] for run in own]
            plain = [run["plain"][0] <= run["truth"] <= run["plain"][1] for run in own]
            bayes = [
                run["bayes_low"] <= run["bayes_error"] <= run["bayes_high"]
                for run in own
            ]
            means = {
                name: f"{np.mean([run[name] for run in own]):.3f}"
                for name in ("truth", "pber", "low", "high", "tvd_now", "tvd_limit")
            }
            *numbers, tvd_now, tvd_limit = means.values()
            shares = [f"{np.mean(part):.0%}" for part in (held, plain, bayes)]
            rows.append([problem, f"{n:,}", *numbers, *shares, tvd_now, tvd_limit])
            inside += held
    head = ["problem", "rows", "true PBER", "PBER now", "range from", "to", "covers"]
    head += [
        "plain interval covers",
        "Bayes error in its range",
        "TVD of S",
        "TVD of S∞",
    ]
    return f"{np.mean(inside):.1%} of {len(inside)} fits:\n\n{table(head, rows)}"


def doubled_text(runs: list[dict[str, Any]]) -> str:
    """Would twice the rows help? What curves without their last size say about it."""
    every = [doubled(run) for run in runs if len(run["curve"]["sizes"]) > 3]
    read = [run for run in every if run["state"] != "hardly begun"]
    rows = []
    for problem in dict.fromkeys(run["problem"] for run in read):
        own = [run for run in read if run["problem"] == problem]
        means = [
            np.mean([run[name] for run in own]) for name in ("before", "fall", "said")
        ]
        inside = np.mean([run["inside"] for run in own])
        numbers = [f"{mean:.4f}" for mean in means]
        rows.append([problem, str(len(own)), *numbers, f"{inside:.0%}"])
    off = np.mean([abs(run["fall"] - run["said"]) for run in read])
    moved = np.mean([abs(run["fall"]) for run in read])
    inside = np.mean([run["inside"] for run in read])
    return f"""## Would twice the rows help?

Every curve above without its last size, and what it says about that size: twice the rows.
{len(every) - len(read)} of {len(every)} say that learning has hardly begun, and nothing of more
rows. Of the others {inside:.1%} have the PBER that was found in their 95% band; the fall that was
predicted is off by {off:.4f} on average, where the PBER moved by {moved:.4f}. Means over the fits
of each problem:

{table(["problem", "fits", "PBER", "fell by", "predicted", "in the band"], rows)}"""


STUDY = Study(
    "limit", "The range with unlimited rows, against the truth", cells, run, text
)

if __name__ == "__main__":
    print(left_out_text(runs("limit")))
