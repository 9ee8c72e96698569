"""Write docs/benchmarks.md and the table of the README from the JSON files in results/.

Nothing in them is typed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._record import load
from benchmarks.accuracy import CASES, COVERAGE, PAPER, rivals
from benchmarks.tables_gpu import gpu_text
from benchmarks.tables_scale import classes_text, growth_text, scale_text
from experiments.markdown import best, table, where

ROOT = Path(__file__).parents[1]
#: The day on which the pool became the default.
POOL_SINCE = "2026-11-16"
#: A case of each kind, whose machine stands for the others.
FIRST = {"accuracy": "A3", "coverage": "cover-A", "paper": "paper-3"}


def accuracy_table(stored: dict[str, Any], measure: str) -> str:
    methods = ["collidescope", *rivals()]
    rows = []
    for case, (title, _, n, _) in CASES.items():
        if case not in stored:
            continue
        runs = stored[case]["runs"]
        limit = np.mean([run["limit"]["S"] for run in runs], axis=0)
        if measure == "posterior":
            values = [float(np.mean([run[m]["posterior"] for run in runs])) for m in methods]
            texts = [f"{value:.4f}" for value in values]
        else:
            column = {"mean": 0, "max": 1}[measure]
            values = [float(np.mean([run[m]["S"][column] for run in runs]) / limit[column]) for m in methods]
            texts = [f"{value:.2f}" for value in values]
        start = [title, f"{n:,}", str(len(runs))]
        rows.append(start + ([] if measure == "posterior" else [f"{limit[column]:.4f}"]) + best(values, texts))
    head = ["problem", "rows", "seeds", *([] if measure == "posterior" else ["oracle one-step"]), *methods]
    return table(head, rows)


def before_the_pool(stored: dict[str, Any]) -> str:
    """A caution where records are those of an earlier default."""
    dates = [stored[case]["environment"]["date"] for case in CASES if case in stored]
    if not dates or min(dates) >= POOL_SINCE:
        return ""
    return f"**Recorded on {min(dates)}, with the networks that were the default before the pool.**"


def ours_table(stored: dict[str, Any]) -> str:
    rows = []
    names = {"S": "default", "one-step": "one-step", "gramian": "Gramian root", "averages": "class averages"}
    for case, (title, *_) in CASES.items():
        if case not in stored:
            continue
        runs = stored[case]["runs"]
        limit = np.mean([run["limit"]["S"][0] for run in runs])
        values = [float(np.mean([run["collidescope"][key][0] for run in runs]) / limit) for key in names]
        seconds = np.mean([run["collidescope"]["seconds"] for run in runs])
        rows.append([title, *best(values, [f"{v:.2f}" for v in values]), f"{seconds:.0f} s"])
    return table(["problem", *names.values(), "fit, one core"], rows)


def coverage_table(stored: dict[str, Any]) -> str:
    rows = []
    for case, (title, _, n, _) in COVERAGE.items():
        if case in stored:
            runs = stored[case]["runs"]
            S, pber = np.mean([run["S"] for run in runs]), np.mean([run["PBER"] for run in runs])
            rows.append([title, f"{n:,}", str(len(runs)), f"{S:.1%}", f"{pber:.1%}"])
    return table(["problem", "rows", "fits", "entries of S", "PBER"], rows)


def paper_table(stored: dict[str, Any]) -> str:
    rows = []
    for case, (title, *_) in PAPER.items():
        if case in stored:
            runs = stored[case]["runs"]
            methods = ["literal", "corrected", "pairwise, early-stopped, corrected"]
            mean = [f"{np.mean([run[m]['S'][0] for run in runs]):.4f}" for m in methods]
            sums = [f"{np.mean([run[m]['gramian_row_sum'] for run in runs]):.2f}" for m in ("literal", "corrected")]
            rows.append([title, str(len(runs)), *sums, *mean])
    names = ["literal paper", "paper with the shift", "pair-wise, early-stopped, shift"]
    return table(["problem", "seeds", "row sums of Ĝ, literal", "with the shift", *(f"TVD: {n}" for n in names)], rows)


#: Rivals of benchmarks/real.py, as a reader knows them.
STOCK = {
    "logistic": "logistic regression",
    "svc": "SVC (RBF, Platt)",
    "mlp": "MLP",
    "hist-boosting": "HistGradientBoosting",
    "lightgbm": "LightGBM",
    "extra-trees": "extra trees",
    "random-forest": "random forest",
    "knn": "kNN, scaled",
    "knn-unscaled": "kNN, unscaled",
}


def real_text() -> str:
    """Brier score of the default over each stock classifier, and over the best of them on each table."""
    stored = load("real")
    if stored is None:
        return ""
    near_zero = stored["config"]["left_out_of_the_mean"]
    tables = {name: {m: r["brier"] for m, r in records.items()} for name, records in stored["results"].items()}
    rows = []
    for names, title in (
        (tuple(STOCK), "**the best of the nine on each table**"),
        *(((n,), t) for n, t in STOCK.items()),
    ):
        ratios = {name: brier["pool"] / max(min(brier[n] for n in names), 1e-9) for name, brier in tables.items()}
        within = sum(ratio <= 1.01 for ratio in ratios.values())
        kept = {name: ratio for name, ratio in ratios.items() if name not in near_zero}
        worst = max(kept, key=lambda name: kept[name])
        mean = float(np.exp(np.mean(np.log(list(kept.values())))))
        rows.append([title, f"{mean:.3f}", f"{within} of {len(ratios)}", f"{kept[worst]:.2f} ({worst})"])
    head = ["stock classifier", "geometric mean of the ratio", "lowest, or within 1%", "worst table"]
    return (
        f"{table(head, rows)}\n\nBelow 1 the default has the lower score. *{' and '.join(near_zero)}* count but are "
        "left out of the mean and of the worst: scores near zero have no ratio worth the name. "
        f"`python benchmarks/real.py` repeats it ({where(stored['environment'])})."
    )


def perturbed_table(stored: dict[str, Any]) -> str:
    rows = [
        [case, *(f"{row[key]:.1%}" for key in ("S", "worst_entry", "PBER", "merged"))]
        for case, row in stored["results"].items()
    ]
    return table(["problem", "entries of S", "worst entry", "PBER", "merged S"], rows)


def recovery_table(stored: dict[str, Any]) -> str:
    rows = []
    for r in stored["results"]["root_against_gradient"]:
        times = [f"{r['root_ms']:.2f} ms", f"{r['gradient_ms']:.0f} ms", f"{r['ratio']:,.0f} ×"]
        rows.append([r["gramian"], str(r["K"]), *times, f"{r['root_tvd']:.1e}", f"{r['gradient_tvd']:.1e}"])
    large = stored["results"]["large"]
    after = (
        f"\n\nK = {large['K']:,}: the whole recovery takes {large['ratio']:.1f} × one `scipy.linalg.eigh` of that size."
    )
    return table(["Gramian", "K", "root", "gradient descent", "ratio", "TVD, root", "TVD, descent"], rows) + after


def arithmetic_ratio(rows: int, epochs: int, width: int = 128, layers: int = 6, folds: int = 5) -> float:
    """Operations of pair-wise fit and scoring over those of the factorised model, whose scoring costs next to nothing.

    Training takes three times a forward pass of the rows of the other folds. A pair is scored in both orders, by the
    layers after the first (which is split); held-out rows meet their own fold, new rows every fold's references.
    """
    forward = 2 * width**2 * (layers - 1)
    training = 3 * forward * rows * (folds - 1) * epochs
    scoring = 2 * forward * rows * (rows / folds + rows)
    return (training + scoring) / training


def speed_text() -> str:
    parts = []
    if (models := load("speed-models")) is not None:
        rows = [
            [
                f"{r['rows']:,}",
                str(r["epochs"]),
                f"{r['factorised']:.2f} s",
                f"{r['pairwise']:.1f} s",
                f"{r['ratio']:.1f} ×",
                f"{arithmetic_ratio(r['rows'], r['epochs']):.1f} ×",
            ]
            for r in models["results"]
        ]
        head = ["rows", "epochs", "factorised", "pairwise", "ratio", "ratio of operations"]
        parts.append(
            "Fit, S and the posteriors of as many new rows on Scenario A (K = 5), a 6×128 network either way, the same "
            f"number of epochs:\n\n{table(head, rows)}\n\n"
            "The last column counts multiplications and additions: both models train at the same cost, pairs are "
            "scored on top. It is what the ratio can come to when neither wastes time; it grows with the rows (all "
            "pairs) and falls with the epochs. Short fits are the fastest of five in turns. "
            f"{where(models['environment'])}."
        )
    if (epochs := load("speed-epochs")) is not None:
        names = list(epochs["results"][0]["ratio"])
        rows = [[f"{r['rows']:,}", *(f"{r['ratio'][n]:.2f}" for n in names)] for r in epochs["results"]]
        parts.append(
            f"One epoch as a multiple of a plain classifier's, same network:\n\n{table(['rows', *names], rows)}"
        )
    if (scoring := load("speed-scoring")) is not None:
        rows = [
            [
                "×".join(map(str, r["hidden_layer_sizes"])),
                f"{r['scoring']:.0f}",
                f"{r['large']:.0f}",
                f"{r['share']:.0%}",
            ]
            for r in scoring["results"]
        ]
        head = ["network", "scoring, GFLOP/s", "matrix product, GFLOP/s", "share"]
        parts.append(f"Pair-wise scoring against the float32 matrix product of the same run:\n\n{table(head, rows)}")
    if (memory := load("speed-memory")) is not None:
        rows = [
            [f"{r['rows']:,} × {r['features']}", str(r["classes"]), f"{r['fit_s']:.0f} s", f"{r['peak_gb']:.2f} GB",
             f"{1e6 * r['fit_s'] / r['rows']:.0f} µs"]
            for r in memory["results"]
        ]  # fmt: skip
        head = ["rows × features", "K", "fit (2 folds, 3 epochs)", "peak memory", "fit per row"]
        parts.append(f"Large fits, each in a process of its own:\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def main() -> None:
    accuracy = load("accuracy") or {}
    machines = {kind: where(accuracy[case]["environment"]) for kind, case in FIRST.items() if case in accuracy}
    page = f"""# Benchmarks

Generated by `benchmarks/tables.py` from `benchmarks/results/*.json`, where every run is kept with its seed.

## Real tables

Held-out Brier score, which is the PBER that a fit reports, of the default over stock classifiers:

{real_text()}

## Accuracy of S

Mean total variation distance of the rows of S to the truth, as a multiple of the *oracle one-step* estimate: the same
estimator with the true posteriors of the same sample. It is no limit: the mean of y yᵀ with the true posteriors has
about half its error, and with many classes shrinkage goes below it. Rivals are cross-fitted with the same folds and use
the one-step estimator too. {before_the_pool(accuracy)}

{accuracy_table(accuracy, "mean")}

The same for the worst row of S:

{accuracy_table(accuracy, "max")}

## Accuracy of the posteriors

Mean total variation distance to the true posteriors of 5,000 new rows:

{accuracy_table(accuracy, "posterior")}

All three: {machines.get("accuracy")}.

How these runs came about: β=0.35 was extended from 3 to 14 seeds after its first result, and the number of classes from
which the default shrinks (K=50 here, none of the others) was chosen after seeing these problems.

## Which estimate of S?

From the same fits, mean TVD as a multiple of the oracle one-step estimate:

{ours_table(accuracy)}

## Do the intervals cover?

Nominal 95% intervals of whole fits:

{coverage_table(accuracy)}

({machines.get("coverage")}.)

PBER is over-estimated by what the model has not learned yet, which the interval of one training size cannot know:
[the range](range.md) is for that.

The one-step estimator alone, with true posteriors made wrong by O(n^-1/2), 1,000 replicates:

{perturbed_table(c) if (c := load("coverage")) else ""}

## The logit shift that the paper lacks

The pair-wise network as in the paper (6 × 128, 500 epochs, gradient descent on the Gramian), without and with the shift
of its logit by log(K - 1), at uniform priors:

{paper_table(accuracy)}

({machines.get("paper")}.)


## Recovery of S from G

{recovery_table(r) if (r := load("recovery")) else ""}

## Speed and memory

{speed_text()}

## More rows than memory

{scale_text()}

## Many classes

{classes_text()}

{growth_text()}

## A GPU

{gpu_text()}
"""
    (ROOT / "docs" / "benchmarks.md").write_text(re.sub(r"\n{3,}", "\n\n", page))
    readme = ROOT / "README.md"
    block = f"<!-- real -->\n{real_text()}\n<!-- /real -->"
    readme.write_text(re.sub(r"<!-- real -->.*<!-- /real -->", lambda _: block, readme.read_text(), flags=re.DOTALL))
    print("→ docs/benchmarks.md, README.md")


if __name__ == "__main__":
    main()
