"""Write docs/benchmarks.md, docs/reproduction.md and tables of other pages from records; nothing in them is typed.

A section whose record does not exist yet is left out.

    python -m studies.accuracy.tables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.accuracy import decisions, duel, feebee, feebee_matrix
from studies.accuracy._record import load
from studies.accuracy.limit import FRESH, PROBLEMS, doubled
from studies.accuracy.real import HALF, HELD_BACK, LEFT_OUT, RIVALS
from studies.accuracy.scenarios import COVERAGE, INSIDE, ORACLE, OURS, OUTSIDE, PAPER, rivals
from studies.markdown import earlier_pool, pool_of, table, where
from studies.reproduction import pages as reproduction
from studies.speed.tables import engine_text, scale_text, speed_text

ROOT = Path(__file__).parents[2]
#: A lead counts when it is more than so many of its standard errors.
CLEAR = 2.0

Runs = list[dict[str, Any]]


def clear_best(values: dict[str, np.ndarray], texts: dict[str, str]) -> list[str]:
    """The lowest mean in bold, unless some other is within two standard errors of the paired difference.

    >>> clear_best(
    ...     {"a": np.array([1.0, 1.1]), "b": np.array([2.0, 2.2])}, {"a": "1.05", "b": "2.10"}
    ... )
    ['**1.05**', '2.10']
    """
    best = min(values, key=lambda name: values[name].mean())
    gaps = [values[name] - values[best] for name in values if name != best]
    clear = all(
        len(gap) > 1 and gap.mean() > CLEAR * gap.std(ddof=1) / np.sqrt(len(gap)) for gap in gaps
    )
    return [f"**{texts[name]}**" if clear and name == best else texts[name] for name in values]


def made(stored: dict[str, Any]) -> str:
    """When, on what and with which pool a record was made; its first runs may be those of another machine."""
    text = "; ".join(dict.fromkeys(map(where, [stored["environment"], *stored.get("earlier", ())])))
    results = stored["results"]
    if isinstance(results, dict):  # by table and method, or what was measured in one go
        results = [records["pool"] for records in results.values() if "pool" in records] or [
            stored["environment"]
        ]
    return text + earlier_pool([pool_of(run) for run in results if run.get("kind") != "reference"])


def of_case(runs: Runs, case: str) -> Runs:
    return sorted((run for run in runs if run["case"] == case), key=lambda run: run["seed"])


def accuracy_table(
    runs: Runs, cases: dict[str, Any], measure: Callable[[dict[str, Any]], float], ratio: bool
) -> str:
    """One row per problem: the oracle's error, and every method's as a multiple of it (± its standard error)."""
    methods = [OURS, *rivals()]
    rows = []
    for case, (title, _, n, _) in cases.items():
        if not (own := [run for run in of_case(runs, case) if not run["alone"]]):
            continue
        base = float(np.mean([measure(run[ORACLE]) for run in own])) if ratio else 1.0
        values = {
            m: np.array([measure(run[m]) for run in own]) / base for m in methods if m in own[0]
        }
        digits = 2 if ratio else 4
        errors = {
            m: v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else np.nan for m, v in values.items()
        }
        texts = {m: f"{v.mean():.{digits}f} ± {errors[m]:.{digits}f}" for m, v in values.items()}
        shown = dict(zip(values, clear_best(values, texts), strict=True))
        rows.append(
            [
                title,
                f"{n:,}",
                str(len(own)),
                *([f"{base:.4f}"] if ratio else []),
                *(shown.get(m, "") for m in methods),
            ]
        )
    return (
        table(["problem", "rows", "seeds", *([ORACLE] if ratio else []), *methods], rows)
        if rows
        else ""
    )


def ours_table(runs: Runs) -> str:
    names = {
        "S": "default",
        "one-step": "one-step",
        "gramian": "Gramian root",
        "averages": "class averages",
    }
    names["at the limit"] = "S∞"
    rows = []
    for case, (title, *_) in (INSIDE | OUTSIDE).items():
        if not (own := of_case(runs, case)):
            continue
        oracle = np.array([run[ORACLE]["S"][0] for run in own])
        plug_in = np.mean([run["oracle plug-in"]["S"][0] for run in own]) / oracle.mean()
        values = {
            name: np.array([run[OURS][name][0] for run in own if name in run[OURS]])
            for name in names
        }
        values = {name: v / oracle.mean() for name, v in values.items() if len(v) == len(own)}
        texts = {name: f"{v.mean():.2f}" for name, v in values.items()}
        ratios = values["S"] - oracle * values["S"].mean() / oracle.mean()
        texts["S"] = f"{values['S'].mean():.3f} ± {ratios.std(ddof=1) / np.sqrt(len(own)):.3f}"
        shown = dict(zip(values, clear_best(values, texts), strict=True))
        seconds = np.mean([run[OURS]["seconds"] for run in own])
        sizes = [title, str(len(own)), f"{oracle.mean():.4f}"]
        rows.append(
            [*sizes, *(shown.get(name, "") for name in names), f"{plug_in:.2f}", f"{seconds:.0f} s"]
        )
    return table(
        ["problem", "seeds", ORACLE, *names.values(), "mean(y yᵀ), true y", "fit, one core"], rows
    )


def accuracy_text() -> str:
    if (stored := load("scenarios")) is None:
        return ""
    runs: Runs = stored["results"]
    mean, worst = (lambda scores, i=i: scores["S"][i] for i in (0, 1))  # type: ignore[misc]
    parts = [
        f"""## Accuracy of S

Mean total variation distance of the rows of S to the truth, as a multiple of that of the *oracle one-step* estimate:
the one-step estimator with the true posteriors of the same sample (± standard error over seeds). It is no limit: see
the last columns of [the table below](#which-estimate-of-s). Rivals are cross-fitted with the same folds and use the
one-step estimator too; the tuned stack is left out where it would take hours. Bold: lower than every other by more than
two standard errors of the paired difference.

{accuracy_table(runs, INSIDE, mean, True)}

The number of classes from which the default shrinks was chosen on problems like these.

Problems outside that family:

{accuracy_table(runs, OUTSIDE, mean, True)}

The same for the worst row of S:

{accuracy_table(runs, INSIDE | OUTSIDE, worst, True)}

## Accuracy of the posteriors

Mean total variation distance to the true posteriors of {stored["config"]["test_rows"]:,} new rows:

{accuracy_table(runs, INSIDE | OUTSIDE, lambda scores: scores["posterior"], False)}

## Which estimate of S?

Mean TVD as a multiple of the oracle one-step estimate (± standard error of the ratio), from the same fits and, on
problems where rivals would take hours, from more:

{ours_table(runs)}"""
    ]
    rows = []
    for case, (title, _, n, _) in COVERAGE.items():
        if own := of_case(runs, case):
            covered = [f"{np.mean([run[name] for run in own]):.1%}" for name in ("S", "PBER")]
            rows.append([title, f"{n:,}", str(len(own)), *covered])
    if rows:
        head = ["problem", "rows", "fits", "entries of S", "PBER"]
        parts.append(
            "## Do the intervals cover?\n\nNominal 95% intervals of whole fits, which are about the luck "
            "in drawing rows "
            f"alone (what was not learned yet: the range, below):\n\n{table(head, rows)}"
        )
    rows = []
    methods = ["literal", "corrected", "pairwise, early-stopped, corrected"]
    for case, (title, *_) in PAPER.items():
        if own := of_case(runs, case):
            errors = [f"{np.mean([run[m]['S'][0] for run in own]):.4f}" for m in methods]
            sums = [
                f"{np.mean([run[m]['gramian_row_sum'] for run in own]):.2f}" for m in methods[:2]
            ]
            rows.append([title, str(len(own)), *sums, *errors])
    if rows:
        head = [
            "problem",
            "seeds",
            "row sums of Ĝ, literal",
            "with the shift",
            "TVD: literal paper",
        ]
        head += ["TVD: paper with the shift", "TVD: pair-wise, early-stopped, shift"]
        parts.append(
            "## The logit shift that the paper lacks\n\nThe pair-wise network as in the paper (6 × 128, "
            "500 epochs on all "
            "rows of its folds, gradient descent on the Gramian), without and with the shift of its logit by "
            f"log(K - 1), at uniform priors:\n\n{table(head, rows)}"
        )
    return "\n\n".join([*parts, f"({made(stored)}.)"])


def coverage_text() -> str:
    if (stored := load("coverage-few-classes")) is None:
        return ""
    names = ("S", "worst_entry", "PBER", "merged")
    rows = [
        [case, *(f"{row[name]:.1%}" for name in names)] for case, row in stored["results"].items()
    ]
    return (
        "## The one-step estimator's intervals\n\nWith true posteriors made wrong by O(n^-1/2), 1,000 replicates:\n\n"
        + table(["problem", "entries of S", "worst entry", "PBER", "merged S"], rows)
    )


def range_text() -> str:
    if (stored := load("limit")) is None:
        return ""
    runs: Runs = [run for run in stored["results"] if run["engine"] == "full"]
    known, fresh = range_table(runs, PROBLEMS), range_table(runs, FRESH)
    return (
        f"## The range with unlimited rows\n\nThe 95% range holds the true PBER in {known}\n\nOn these no prior of the "
        f"range was chosen; it holds the true PBER in {fresh}\n\n`python -m studies.accuracy.limit` and, for the second, "
        f"`--fresh` repeat it ({made(stored)}).\n\n{doubled_text(runs)}"
    )


def doubled_text(runs: Runs) -> str:
    """Would twice the rows help? What curves without their last size say about it."""
    every = [doubled(run) for run in runs if len(run["curve"]["sizes"]) > 3]
    read = [run for run in every if run["state"] != "hardly begun"]
    rows = []
    for problem in dict.fromkeys(run["problem"] for run in read):
        own = [run for run in read if run["problem"] == problem]
        numbers = [
            f"{np.mean([run[name] for run in own]):.4f}" for name in ("before", "fall", "said")
        ]
        rows.append(
            [problem, str(len(own)), *numbers, f"{np.mean([run['inside'] for run in own]):.0%}"]
        )
    off, fall = (
        np.mean([abs(run["fall"] - part * run["said"]) for run in read]) for part in (1, 0)
    )
    inside = np.mean([run["inside"] for run in read])
    return (
        "## Would twice the rows help?\n\nEvery curve above without its last size, and what it says about that size: "
        f"twice the rows. {len(every) - len(read)} of {len(every)} say that learning has hardly begun, and nothing of "
        f"more rows. Of the others {inside:.1%} have the PBER that was found in their 95% band; the fall that was said "
        f"is off by {off:.4f} on average, where the PBER moved by {fall:.4f}. Means over the fits of each problem:\n\n"
        + table(["problem", "fits", "PBER", "fell by", "said", "in the band"], rows)
    )


def range_table(runs: Runs, problems: Iterable[str]) -> str:
    """How often the range holds the truth, and a row per problem and number of rows."""
    rows: list[list[str]] = []
    runs = [run for run in runs if run["problem"] in problems]
    inside = [run["low"] <= run["truth"] <= run["high"] for run in runs]
    for problem in problems:
        for n in sorted({run["rows"] for run in runs if run["problem"] == problem}):
            own = [run for run in runs if run["problem"] == problem and run["rows"] == n]
            mean = lambda name, own=own: np.mean([run[name] for run in own])  # noqa: E731
            covered = np.mean([run["low"] <= run["truth"] <= run["high"] for run in own])
            plain = np.mean([run["plain"][0] <= run["truth"] <= run["plain"][1] for run in own])
            bayes = np.mean(
                [run["bayes_low"] <= run["bayes_error"] <= run["bayes_high"] for run in own]
            )
            numbers = [f"{mean(name):.3f}" for name in ("truth", "pber", "low", "high")]
            tvd = [f"{mean(name):.3f}" for name in ("tvd_now", "tvd_limit")]
            rows.append(
                [
                    problem,
                    f"{n:,}",
                    *numbers,
                    f"{covered:.0%}",
                    f"{plain:.0%}",
                    f"{bayes:.0%}",
                    *tvd,
                ]
            )
    head = [
        "problem",
        "rows",
        "true PBER",
        "PBER now",
        "range from",
        "to",
        "covers",
        "plain interval covers",
    ]
    head += ["Bayes error in its range", "TVD of S", "TVD of S∞"]
    return (
        f"{np.mean(inside):.1%} of {len(runs)} fits:\n\n{table(head, rows)}"
        if runs
        else "no fit yet."
    )


def real_text() -> str:
    if (stored := load("real")) is None:
        return ""
    rows, ratios, everyone = [], [], []
    apart: list[list[str]] = []
    for name, records in sorted(stored["results"].items()):
        others = {m: r["brier"] for m, r in records.items() if m in RIVALS}
        if "pool" not in records or not others:
            continue
        best = min(others, key=lambda m: others[m])
        ratio = records["pool"]["brier"] / max(others[best], 1e-9)
        size = [f"{records['pool'][key]:,}" for key in ("rows", "columns", "classes")]
        if name not in HELD_BACK:
            everyone.append(ratio)
            if name not in LEFT_OUT:
                ratios.append(ratio)
        (apart if name in HELD_BACK else rows).append(
            [
                name,
                *size,
                f"{records['pool']['brier']:.4f}",
                f"{best} {others[best]:.4f}",
                f"{ratio:.3f}",
            ]
        )
    if not rows:
        return ""
    head = ["table", "rows", "columns", "K", "default", "best of the stock classifiers", "ratio"]
    halves = [records[HALF] for records in stored["results"].values() if HALF in records]
    above = [half for half in halves if half["error"] - half["error_limit"] > 2 * half["stderr"]]
    within = sum(ratio <= 1.01 for ratio in everyone)
    return (
        "## Real tables: Brier scores\n\nThe held-out Brier score is the estimated PBER, so the lower one "
        "is nearer to the "
        f"truth. The default against the best, *in hindsight*, of {len(RIVALS)} stock classifiers on the same folds: "
        f"geometric mean of the ratios {np.exp(np.mean(np.log(ratios))):.3f} (without {' and '.join(LEFT_OUT)}, near "
        f"zero), lowest or within 1% on {within} of {len(everyone)}.\n\n{table(head, rows)}\n\nSettings of the pool "
        "were chosen on some of them. On these nothing was chosen but, on the planted ones and Fashion-MNIST-H's, "
        f"how wide rows are treated:\n\n{table(head, apart)}\n\nFitted on half of the rows, the default's error on the "
        "other half lies above the upper limit that it printed by two standard errors on "
        f"{len(above)} of {len(halves)} tables."
    )


def made_up_text() -> str:
    if (stored := load("made_up")) is None:
        return ""
    rows, ratios, runs = [], [], stored["results"]
    for problem in dict.fromkeys(run["problem"] for run in runs):
        own = [run for run in runs if run["problem"] == problem]
        scores = {name: np.mean([run["brier"][name] for run in own]) for name in own[0]["brier"]}
        ours = scores.pop("pool")
        best = min(scores, key=lambda name: scores[name])
        ratios.append(ours / scores[best])
        size = [f"{own[0][key]:,}" for key in ("rows", "columns", "classes")]
        held = sum(run["range"][0] <= run["truth"] <= run["range"][1] for run in own)
        numbers = [
            f"{own[0]['truth']:.3f}",
            f"{ours:.3f}",
            f"{best} {scores[best]:.3f}",
            f"{ratios[-1]:.3f}",
        ]
        rows.append([problem, *size, *numbers, f"{held} of {len(own)}"])
    held, errors = (
        sum(run[ends][0] <= run[truth] <= run[ends][1] for run in runs)
        for truth, ends in (("truth", "range"), ("bayes_error", "bayes_range"))
    )
    head = [
        "problem",
        "rows",
        "columns",
        "K",
        "true PBER",
        "default",
        "best of the stock classifiers",
        "ratio",
    ]
    return (
        f"## Made-up problems: Brier scores on fresh rows\n\n{len(rows)} kinds of problems, of few rows, where a stock "
        "classifier might be ahead. Half of them showed what the pool lacked, so they are no independent check of its "
        "members; the range was not made on them. The default against the best, *in hindsight*, of the stock "
        f"classifiers above and multinomial naive Bayes: geometric mean of the ratios "
        f"{np.exp(np.mean(np.log(ratios))):.3f}, lowest or within 1% on {sum(r <= 1.01 for r in ratios)} of "
        f"{len(rows)}. The range holds the true PBER in {held} of {len(runs)} fits, that of the Bayes error in "
        f"{errors}.\n\n"
        f"{table([*head, 'range holds it'], rows)}\n\n`python -m studies.accuracy.made_up` repeats it ({made(stored)})."
    )


def nested_text() -> str:
    if (stored := load("nested")) is None:
        return ""
    rows = [
        [
            r["table"],
            f"{r['rows']:,}",
            f"{r['outer']:.4f}",
            f"{r['nested']:.4f}",
            f"{r['difference']:+.4f} ± {r['stderr']:.4f}",
        ]
        for r in stored["results"]
    ]
    far = [r["table"] for r in stored["results"] if abs(r["difference"]) > 2 * r["stderr"]]
    head = ["table", "rows", "weights from the other folds", "nested weights", "difference"]
    return (
        "## Do weights of the other folds flatter the pool?\n\nA row's weights are fitted on rows of the other folds, "
        "whose models saw its label. Nested weights cannot pass it on, but they are fitted for models of a fifth fewer "
        f"rows. Brier scores differ by more than two standard errors on {len(far)} of {len(rows)} tables"
        f"{' (' + ', '.join(far) + ')' if far else ''}:\n\n{table(head, rows)}"
    )


def feebee_text() -> str:
    if (stored := load("feebee")) is None:
        return ""
    runs: Runs = stored["results"]
    found = feebee.scores(runs)
    if not any(found.values()):
        return ""
    names, single = [*feebee.RIVALS, feebee.LIKELY, feebee.RANGE], ("KDE", feebee.LIKELY)
    rows, lost = [], []
    for data, scores in found.items():
        total = {name: scores[name]["L"] + scores[name]["U"] for name in names}
        best = min(total, key=lambda name: total[name])
        if best != feebee.LIKELY:
            lost.append(f"{data} ({best})")
        for name in names:
            numbers = [f"{scores[name]['L']:.4f}", f"{scores[name]['U']:.4f}", f"{total[name]:.4f}"]
            numbers[2] = f"**{numbers[2]}**" if name == best else numbers[2]
            rows.append(
                [data, name, *numbers, "" if name in single else f"{scores[name]['outside']:.0%}"]
            )
    missed = {
        name: np.mean([scores[name]["outside"] for scores in found.values()])
        for name in {*names} - {*single}
    }
    second = min({*missed} - {feebee.RANGE}, key=lambda name: missed[name])
    verdict = f"others are lower on {', '.join(lost)}" if lost else "lowest on every set"
    references = {r["data"]: r for r in runs if r["kind"] == "reference"}
    known = ", ".join(
        f"{data} {feebee.PUBLISHED.get(data, r['error']):.4f}"
        + (
            " (published)"
            if data in feebee.PUBLISHED
            else f" ({r['model']}, {r['trained']:,} rows)"
        )
        for data, r in references.items()
    )
    own = [r for r in runs if r["kind"] == "estimates"]
    sizes = " or ".join(f"{n:,}" for n in sorted({r["rows"] for r in own}))
    counts = {data: len({r["run"] for r in own if r["data"] == data}) for data in found}
    samples = " or ".join(str(n) for n in sorted(set(counts.values())))
    gaps = {
        data: [
            p for p in feebee.LEVELS if not any((r["data"], r["share"]) == (data, p) for r in own)
        ]
        for data in found
    }
    without = "".join(
        f" ({data} without ρ = {', '.join(map(str, gap))})" for data, gap in gaps.items() if gap
    )
    head = ["data", "estimator", "L", "U", "L + U", "cannot hold the truth"]
    return f"""## FeeBee: estimates of the Bayes error

Labels replaced at random (ρ = 0, 0.1, …, 1) move the Bayes error by a known amount; L and U are the mean distances of
an estimator's lower and upper estimate from the band in which it must lie (Renggli et al., 2021). Everyone has the same
raw pixels or columns, {sizes} rows of each set, samples: {samples}{without}. The last column is the share of pairs of
estimates that lie wholly above or below the band (of single values it says nothing).

{table(head, rows)}

Our most likely value of the Bayes error: {verdict}. Our range at 95% makes another promise than a yardstick of
distances rewards: where nine labels in ten are noise it says that nothing can be told (a lower end of 0, which L counts
as an error of up to 0.9). It cannot hold the truth in {missed[feebee.RANGE]:.0%} of the cases, the next best pair
({second}) in {missed[second]:.0%}. Best known error: {known}.
`python -m studies.accuracy.feebee` repeats it ({made(stored)})."""


def matrix_text() -> str:
    if (stored := load("feebee-matrix")) is None:
        return ""
    runs: Runs = stored["results"]
    rows = []
    for name in feebee_matrix.NOISE:
        for data in dict.fromkeys(run["table"] for run in runs):
            own = [run["noise"][name] for run in runs if run["table"] == data]

            def mean(key: str, own: Sequence[dict[str, Any]] = own) -> float:
                return float(np.mean([v for e in own if (v := e.get(key)) is not None] or [np.nan]))

            numbers = [f"{mean(key):.4f}" for key in ("planted", "error", "limit_error")]
            covered = [f"{mean(key):.0%}" for key in ("covered", "limit_covered")]
            keys = ("rank", "cleanlab_rank", "spectral_rank")
            ranks = ["" if np.isnan(mean(key)) else f"{mean(key):.2f}" for key in keys]
            rows.append([name, data, *numbers, *covered, *ranks])
    every = [entry for run in runs for entry in run["noise"].values()]
    keys = (
        "planted",
        "error",
        "limit_error",
        "covered",
        "limit_covered",
        "rank",
        "cleanlab_rank",
        "spectral_rank",
    )
    means = {
        key: np.mean([v for entry in every if (v := entry.get(key)) is not None] or [np.nan])
        for key in keys
    }
    head = ["noise", "table", "planted change", "error", "error, S∞", "covered", "covered, S∞"]
    head += ["rank", "rank, cleanlab", "rank, spectral-metric"]
    return f"""## FeeBee for matrices

Labels passed through a known T turn B into TᵀBT exactly. B from one half of a real table, B' from the other half with
noisy labels; per entry the mean change that was planted, the mean error of B' - TᵀBT and how often it lies within 95%
of its standard errors; Spearman's correlation with the planted change of our change, of that of cleanlab's confident
joint and of the class similarities of spectral-metric. Samples of each table: {len({run["seed"] for run in runs})}.

{table(head, rows)}

On average the error is {means["error"]:.4f} ({means["limit_error"]:.4f} for S∞) where {means["planted"]:.4f} was
planted. {means["covered"]:.0%} of the entries are covered ({means["limit_covered"]:.0%} for S∞): the half with noisy
labels has more left to learn, which intervals of S at n rows do not count and those of S∞ do. The mean
rank correlation is {means["rank"]:.2f}, cleanlab's {means["cleanlab_rank"]:.2f}, spectral-metric's
{means["spectral_rank"]:.2f}. `python -m studies.accuracy.feebee_matrix` repeats it ({made(stored)})."""


def duel_text() -> str:
    if (stored := load("duel")) is None:
        return ""
    rows = []
    for run in sorted(stored["results"], key=lambda r: r["method"] in (duel.POOL, duel.NETWORK)):
        own = [f"{run[key]:.2%}" if key in run else "" for key in ("held_out_error", "test_error")]
        said = f"at {'least' if 'test_error' in run else 'most'} {1 - run['high']:.1%}"
        rows.append([run["method"], f"{run['low']:.2%}", f"{run['high']:.2%}", said, *own])
    head = [
        "method",
        "lower",
        "upper",
        "best possible accuracy",
        "own held-out error",
        "own test error",
    ]
    size, tested = (
        stored["results"][0]["rows"],
        max(run.get("test_rows", 0) for run in stored["results"]),
    )
    best = min(run["test_error"] for run in stored["results"] if "test_error" in run)
    refuted = [run["method"] for run in stored["results"] if run["low"] > best]
    return f"""## {size:,} images of 1, 4 and 9

DataEval's tutorial reads from `ber_mst` on such images of MNIST which accuracy is possible at most. Bounds on the Bayes
error from the same images, and the errors of our models on held-out images and on {tested:,} test images:

```python
# not run: needs the images of MNIST
from studies.accuracy.duel import images
from studies.accuracy.feebee import mst_bounds
from collidescope import CollisionClassifier

X, y = images("train", {size})
X = X.reshape(len(X), -1)
print(mst_bounds(X, y), CollisionClassifier(random_state=0).fit(X, y).limit_.bayes_error_interval())
```

{table(head, rows)}

The Bayes error is at most the error of any classifier. A small convolutional network errs on {best:.2%} of
the test images, which refutes the lower bounds of: {"; ".join(refuted) or "none"}. `python -m studies.accuracy.duel` repeats
it ({made(stored)})."""


def recovery_text() -> str:
    if (stored := load("recovery")) is None:
        return ""
    rows = []
    for r in stored["results"]["root_against_gradient"]:
        times = [f"{r['root_ms']:.2f} ms", f"{r['gradient_ms']:.0f} ms", f"{r['ratio']:,.0f} ×"]
        rows.append(
            [r["gramian"], str(r["K"]), *times, f"{r['root_tvd']:.1e}", f"{r['gradient_tvd']:.1e}"]
        )
    large = stored["results"]["large"]
    head = ["Gramian", "K", "root", "gradient descent", "ratio", "TVD, root", "TVD, descent"]
    return (
        f"## Recovery of S from G\n\n{table(head, rows)}\n\nK = {large['K']:,}: the whole recovery takes "
        f"{large['ratio']:.1f} × one `scipy.linalg.eigh` of that size."
    )


def fashion_text() -> str:
    """Images with human votes."""
    if (stored := load("fashion")) is None:
        return ""
    head = [
        "draw",
        "truth",
        "PBER now",
        "range",
        "TVD of S",
        "TVD of S∞",
        "entries of S covered",
        "of S∞",
    ]
    rows = [
        [
            str(draw),
            *(f"{r[name]:.3f}" for name in ("truth", "pber")),
            "{:.3f} to {:.3f}".format(*r["range"]),
            *(f"{r[name]['tvd']:.3f}" for name in ("S", "S at the limit")),
            *(f"{r[name]['covered']:.0%}" for name in ("S", "S at the limit")),
        ]
        for draw, r in enumerate(stored["results"])
    ]
    source = f"`python -m studies.accuracy.fashion` repeats it ({made(stored)})."
    return (
        "## Images with human votes\n\nFashion-MNIST-H: 10,000 images with about 67 votes each. The default is given "
        "one vote per image; the truth is counted from pairs of votes on one image.\n\n"
        f"{table(head, rows)}\n\n{source}"
    )


#: Rivals of studies/accuracy/real.py, as a reader knows them.
STOCK = {
    "logistic": "logistic regression",
    "lasso": "logistic regression, L1",
    "svc": "SVC (RBF, Platt)",
    "mlp": "MLP",
    "naive-bayes": "naive Bayes",
    "naive-bayes-signs": "naive Bayes of signs (Bernoulli)",
    "linear-discriminant": "linear discriminant",
    "quadratic-discriminant": "quadratic discriminant, shrunk",
    "hist-boosting": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "extra-trees": "extra trees",
    "random-forest": "random forest",
    "knn": "kNN, scaled",
    "knn-unscaled": "kNN, unscaled",
}


def real_summary() -> str:
    """Brier score of the default over each stock classifier, and over the best of them on each table."""
    stored = load("real")
    if stored is None:
        return ""
    near_zero = stored["config"]["left_out_of_the_mean"]
    tables = {
        name: {m: r["brier"] for m, r in records.items() if "brier" in r}
        for name, records in stored["results"].items()
    }
    tables = {name: briers for name, briers in tables.items() if name not in HELD_BACK}
    rows = []
    for names, title in (
        (tuple(STOCK), "**the best of these on each table**"),
        *(((n,), t) for n, t in STOCK.items()),
    ):
        ratios = {
            name: brier["pool"] / max(min(brier[n] for n in names), 1e-9)
            for name, brier in tables.items()
        }
        within = sum(ratio <= 1.01 for ratio in ratios.values())
        kept = {name: ratio for name, ratio in ratios.items() if name not in near_zero}
        worst = max(kept, key=lambda name: kept[name])
        mean = float(np.exp(np.mean(np.log(list(kept.values())))))
        rows.append(
            [title, f"{mean:.3f}", f"{within} of {len(ratios)}", f"{kept[worst]:.2f} ({worst})"]
        )
    head = [
        "stock classifier",
        "geometric mean of the ratio",
        "lowest, or within 1%",
        "worst table",
    ]
    return (
        f"{table(head, rows)}\n\nBelow 1 the default has the lower score. *{' and '.join(near_zero)}* count but are "
        "left out of the mean and of the worst: scores near zero have no ratio worth the name. "
        f"`python -m studies.accuracy.real` repeats it ({made(stored)})."
    )


SECTIONS = (accuracy_text, range_text, fashion_text, real_text, made_up_text, nested_text)
SECTIONS += (
    feebee_text,
    matrix_text,
    duel_text,
    coverage_text,
    recovery_text,
    engine_text,
    speed_text,
    scale_text,
)


def page() -> str:
    """docs/benchmarks.md."""
    head = (
        "# Benchmarks\n\nGenerated by `python -m studies.accuracy.tables` from `studies/results/*.json`, "
        "where every run is "
        "kept with its seed."
    )
    return (
        re.sub(
            r"\n{3,}",
            "\n\n",
            "\n\n".join([head, *filter(None, (section() for section in SECTIONS))]),
        )
        + "\n"
    )


def fill(path: Path, parts: dict[str, str]) -> None:
    """Put texts between ``<!-- NAME -->`` and ``<!-- /NAME -->``."""
    page = path.read_text()
    for name, text in parts.items():
        block = f"<!-- {name} -->\n{text}\n<!-- /{name} -->"
        page = re.sub(
            rf"<!-- {name} -->.*<!-- /{name} -->",
            lambda _, block=block: block,
            page,
            flags=re.DOTALL,
        )
    path.write_text(page)


def main() -> None:
    (ROOT / "docs" / "benchmarks.md").write_text(page())
    print("→ docs/benchmarks.md")
    fill(ROOT / "README.md", {"real": real_summary()})
    fill(ROOT / "docs" / "decisions.md", decisions.page_tables())
    reproduction.write()


if __name__ == "__main__":
    main()
