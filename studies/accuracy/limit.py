"""Does the range with unlimited rows hold the truth, and is S∞ nearer to S than S(n)?

Sixteen problems whose S is known, most of them outside the families of the models, twelve more
(``FRESH``), and thirty-three kinds that were made up for another study (``KINDS``), on which no
prior of the range was chosen.

:func:`cautious` is how the prior of :mod:`collidescope.limit` was found: one step below the median
of the exponent under which the true PBER has the highest density. :func:`families_left_out` judges
that way of finding one, on kinds of problems that took no part in it.
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
from collidescope import limit as limits
from collidescope.crossfit import Pooled
from collidescope.equations.power_law import Prior
from collidescope.equations.recalibration import recalibration_gains
from collidescope.limit import Limit
from collidescope.matrix import CollisionMatrix
from collidescope.sample import Sample
from studies import known as datasets
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
    """Two samples of every problem at 3,000 rows, and one at 1,000; of the kinds one of each."""
    if quick:
        return [{"engine": "full", "problem": "ring", "rows": 300, "seed": 0}]
    many = [(3000, 0), (3000, 1), (1000, 0)]
    samples = dict.fromkeys(PROBLEMS | FRESH, many)
    samples |= {name: [(3000, 0), (1000, 0)] for name in KINDS}
    return [
        {"engine": "full", "problem": problem, "rows": rows, "seed": seed}
        for problem, drawn in samples.items()
        for rows, seed in drawn
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
    ) -> Pooled:
        pooled = pool(sample, tests, scores, names)
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


#: Medians of the exponent that :func:`cautious` chooses from, each √2 times the one before.
MEDIANS = (0.45, 0.63, 0.88, 1.25, 1.77, 2.5)


def curve_of(run: dict[str, Any], by_members: bool) -> Limit:
    """The curve of a run; all pools as if of one member, unless it goes ``by_members``."""
    limit = Limit.from_dict(run["curve"])
    if by_members:
        return limit
    return replace(limit, members=1.0)


@contextmanager
def under(prior: Prior) -> Iterator[None]:
    """Ranges of limits as this prior gives them."""
    with patch.object(limits, "PRIOR", prior):
        yield


def densities(run: dict[str, Any], by_members: bool) -> list[float]:
    """Log density of the true PBER under every median, in units of the PBER now."""
    found = []
    for median in MEDIANS:
        limit = curve_of(run, by_members)
        now = limit.scores[-1]
        with under(Prior(median)):
            end = limit._pber_curve.at()
        # No one needs the PBER nearer than to a hundredth of it.
        spread = np.hypot(end.deviations / now, 0.01)
        z = (run["truth"] - end.means) / now / spread
        at_truth = np.exp(-(z**2) / 2) / spread / np.sqrt(2 * np.pi)
        found.append(np.log(max(float(end.weights @ at_truth), 1e-3)))
    return found


def cautious(chosen: list[dict[str, Any]], known: np.ndarray) -> Prior:
    """One step below the median under which the true PBER has the highest density.

    ``known`` are :func:`densities`, a row per run; problems count the same. Curves without a lower
    end say nothing.
    """
    problems = pd.Series([run["problem"] for run in chosen])
    weight = 1 / problems.map(problems.value_counts()).to_numpy()
    endless = [bool(curve_of(run, True)._no_lower_end) for run in chosen]
    weight[endless] = 0
    likeliest = int((weight @ known).argmax())
    return Prior(MEDIANS[max(likeliest - 1, 0)])


#: Kinds of problems; those not named here are "fresh".
FAMILIES: dict[str, tuple[str, ...]] = {
    "clouds": (
        "Scenario A5",
        "ring",
        "tangled",
        "twonorm",
        "ringnorm",
        "heavy-tailed",
        "waveform",
    ),
    "linear": ("Scenario B(.25)", "LED", "sparse words"),
    "teachers": ("MLP teacher", "tree teacher"),
    "spatial": ("spiral", "interactions", "noisy chessboard"),
    "smooth": ("Friedman-like", "a regression, cut", "ten ordered classes"),
    "rules": (
        "a rare class",
        "parity of three signs",
        "board of 16 fields in noise",
        "sine of a product",
        "product or product or product",
        "largest of pairs",
        "near a diagonal",
        "turned boxes",
        "150 prototypes",
        "no noise",
        "nothing to learn",
    ),
    "counts and levels": (
        "a table of three categories",
        "five categories",
        "words",
        "counts and exposure",
        "presence of 200 words",
    ),
    "wide": (
        "5 of 200 columns",
        "4 of 300 columns, four classes",
        "200 columns, all of them",
        "30 of 300 means",
    ),
    "densities": (
        "unequal shares",
        "Cauchy columns",
        "mixtures",
        "series with memory",
        "correlations only",
        "scales only",
        "t classes",
        "Laplace",
        "exponential",
        "beta",
        "angles",
    ),
}


def family_of(run: dict[str, Any]) -> str:
    """The kind of a problem."""
    named = [name for name, own in FAMILIES.items() if run["problem"] in own]
    return named[0] if named else "fresh"


def families_left_out(
    chosen: list[dict[str, Any]], by_members: bool = True
) -> pd.DataFrame:
    """The range under the prior found on all other families: does it hold for this one?"""
    known = np.array([densities(run, by_members) for run in chosen])
    family = np.array([family_of(run) for run in chosen])
    rows = []
    for name in np.unique(family):
        out = family == name
        others = [run for run, left in zip(chosen, out, strict=True) if not left]
        prior = cautious(others, known[~out])
        for run in (run for run, left in zip(chosen, out, strict=True) if left):
            found = held_and_width(run, prior, by_members)
            rows.append({"family": name, "prior": prior, **found})
    return pd.DataFrame(rows)


def held_and_width(
    run: dict[str, Any], prior: Prior, by_members: bool
) -> dict[str, Any]:
    """Of the range and, for comparison, of that with equal tails; widths in PBERs of now."""
    limit = curve_of(run, by_members)
    equal = 0.0
    with under(prior):
        low, high = limit.pber_interval(LEVEL)
        if not limit._no_lower_end:
            equal = limit._pber_curve.at().quantile((1 - LEVEL) / 2)
    now = limit.scores[-1]
    return {
        "problem": run["problem"],
        "rows": run["rows"],
        "held": low <= run["truth"] <= high,
        "width": (high - low) / now,
        "held, equal tails": equal <= run["truth"] <= high,
        "width, equal tails": (high - equal) / now,
    }


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """Coverage of families left out, and overall, with the mean width at 3,000 rows."""
    rows = []
    names = sorted(frame["family"].unique())
    for name in [*names, "all"]:
        own = frame if name == "all" else frame[frame["family"] == name]
        large = own[own["rows"] == 3000]
        row = {"family": name, "fits": len(own)}
        for tails in ("", ", equal tails"):
            row[f"covers{tails}"] = own[f"held{tails}"].mean()
            row[f"width at 3,000 rows{tails}"] = large[f"width{tails}"].mean()
        prior = own["prior"].iloc[0]
        row["median"] = np.nan if name == "all" else prior.exponent
        rows.append(row)
    return pd.DataFrame(rows)


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

Of thirty-three kinds of problems that were made up to show what the pool lacks, and on which no
prior of the range was chosen, it holds the true PBER in {range_table(runs, KINDS)}

Ranges are those that today's prior gives for the recorded curves.

{again("limit")}

{left_out_text(runs)}

{doubled_text(runs)}"""


def left_out_text(runs: list[dict[str, Any]]) -> str:
    """The range under priors found on other families, with and without the members' number."""
    parts = {
        by_members: families_left_out(runs, by_members) for by_members in (True, False)
    }
    known = np.array([densities(run, True) for run in runs])
    found = cautious(runs, known).exponent
    nearer = nearer_table(runs).set_index("over").loc["problems"]
    beyond = nearer["beyond 1.15"] * nearer["number"]
    return f"""### Kinds of problems left out

The median of the exponent's prior is found on all other kinds of problems; on all of them it is
{found:g} / M, where M is the effective number of members. The range then holds the true PBER of
the kind that was left out in so many fits:

{left_out_table(parts[True])}

Had the prior not known the number of members:

{left_out_table(parts[False])}

Widths are in units of the PBER, with 3,000 rows. With equal tails the lower end is the 2.5%
quantile. S∞ is nearer to the truth than S(n) on {nearer["nearer"]:.0%} of {nearer["number"]:.0f}
problems, and on {beyond:.0f} of them more than 1.15 times as far off (at worst
{nearer["worst"]:.2f} times)."""


def left_out_table(found: pd.DataFrame) -> str:
    """A row per kind of problems."""
    rows = []
    for row in judged(found).to_dict("records"):
        shares = [f"{row[name]:.0%}" for name in ("covers", "covers, equal tails")]
        widths = [
            f"{row[name]:.2f}"
            for name in ("width at 3,000 rows", "width at 3,000 rows, equal tails")
        ]
        median = "" if np.isnan(row["median"]) else f"{row['median']:g}"
        ends = [shares[0], widths[0], shares[1], widths[1]]
        rows.append([row["family"], str(row["fits"]), median, *ends])
    head = ["left out", "fits", "median", "covers", "width"]
    head += ["covers, equal tails", "width, equal tails"]
    return table(head, rows)


def of_classes(limit: Limit, k: int) -> Limit:
    """A recorded limit with a matrix in place of its own, which is not kept.

    Of that the number of classes and the PBER matter to the range of the Bayes error.
    """
    ambiguous = min(limit.pber, 1 - 1 / k)
    others = ambiguous / (k - 1)
    S = np.full((k, k), others) + (1 - k * others) * np.eye(k)
    return replace(limit, matrix=CollisionMatrix(S))


def said_now(run: dict[str, Any]) -> dict[str, Any]:
    """The run, with the ranges that its recorded curve has today."""
    limit = of_classes(Limit.from_dict(run["curve"]), run["classes"])
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
