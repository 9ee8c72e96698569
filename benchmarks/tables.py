"""Write docs/benchmarks.md and the tables of docs/scale.md and the README from the JSON files in results/.

Nothing in them is typed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import purchase
from benchmarks._record import RESULTS
from benchmarks.accuracy import CASES, COVERAGE, PAPER, rivals
from benchmarks.tables_gpu import gpu_text
from experiments.markdown import best, table, where

ROOT = Path(__file__).parents[1]
#: A case of each kind, whose machine stands for the others.
FIRST = {"accuracy": "A3", "coverage": "cover-A", "paper": "paper-3"}


def load(name: str) -> dict[str, Any] | None:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


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
    head = ["problem", "rows", "seeds", *([] if measure == "posterior" else ["limit"]), *methods]
    return table(head, rows)


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


def scale_text() -> str:
    parts = []
    if (parquet := load("scale-parquet")) is not None:
        *sizes, last = parquet["results"]
        rows = [
            [f"{r['rows']:,.0f}", f"{r['file_mb']:,.0f} MB", f"{r['seconds']:.1f} s", f"{r['peak_mb']:.0f} MB"]
            for r in sizes
        ]
        parts.append(
            "S of ten classes from Parquet files in one pass (`accumulate(posterior_batches(path, label), classes)`), "
            f"each in a process of its own:\n\n{table(['rows', 'file', 'time', 'peak memory'], rows)}\n\n"
            f"From the second to the third the time grows with the rows to the power of {last['exponent']:.2f}."
        )
    if (cluster := load("scale-cluster")) is not None:
        found = cluster["results"]
        rows = [
            [name, f"{found[name]['seconds']:.1f} s", f"{found[name]['difference']:.1e}"]
            for name in ("both alive", "one killed")
        ]
        parts.append(
            f"The same {found['rows']:,} rows through a Dask cluster of two processes, beside the S of one process:"
            f"\n\n{table(['workers', 'time', 'largest difference of an entry of S'], rows)}"
        )
    if (fits := load("scale-fit")) is not None:
        rows = [
            [
                f"{r['rows']:,}",
                f"{r['table_mb']:,.0f} MB",
                f"{r['posteriors_mb']:,.0f} MB",
                f"{r['spool_s']:.1f} s",
                f"{r['spool_mb'] - r['start_mb']:,.0f} MB",
                f"{r['fit_s']:.0f} s",
                f"{r['fit_mb'] - r['start_mb']:,.0f} MB",
            ]
            for r in fits["results"]
        ]
        config = fits["config"]
        head = ["rows", "table", "posteriors", "`spool`", "memory of it", "`fit`", "memory of it"]
        parts.append(
            f"From Parquet files of {config['features']} features (float32), {config['classes']} classes, to a fitted "
            f"model (`clf.fit(*spool(path, label))`, {config['cv']} folds, {config['max_epochs']} epoch, one layer of "
            f"{config['hidden_layer_sizes'][0]} units), each in a process of its own. Seconds are those of one core. "
            f"Memory is what was added to that of the imported libraries; pages of the file that the system keeps for "
            f"speed are not counted:\n\n{table(head, rows)}"
        )
    return "\n\n".join(parts)


def growth_text() -> str:
    """Time against rows and features, with exponents; predicted against measured cost."""
    parts = []
    if (growth := load("scale-growth")) is not None:
        found, upper = growth["results"], growth["config"]["upper"]
        rows = [
            [f"{r['rows']:,}", *(f"{r[name]:.2f} s" for name in ("fit_s", "score_s", "stream_s")),
             f"{r['peak_bytes'] / 1e9:.2f} GB"]
            for r in found["rows"]
        ]  # fmt: skip
        d, k = found["rows"][0]["features"], found["rows"][0]["classes"]
        wide = [[str(r["features"]), f"{r['fit_s']:.2f} s", f"{r['score_s']:.2f} s"] for r in found["features"]]
        power = found["exponents"]
        parts.append(
            f"### Growth\n\nOne network of 64 units, two folds, two epochs, {d} features, {k} classes: the fit with "
            "its S, the posteriors of as many rows, and S of a stream of posteriors of ten classes:\n\n"
            f"{table(['rows', 'fit', 'posteriors', 'S of a stream', 'peak memory of the fit'], rows)}\n\n"
            f"Time grows with the rows to the power of {power['fit_s in n']:.2f} (fit), {power['score_s in n']:.2f} "
            f"(posteriors) and {power['stream_s in n']:.2f} (stream) over all sizes; over the largest {upper}, where "
            f"what every fit takes no longer shows, {power['fit_s in n, upper']:.2f}, "
            f"{power['score_s in n, upper']:.2f} and {power['stream_s in n, upper']:.2f}.\n\n"
            f"{found['features'][0]['rows']:,} rows:\n\n{table(['features', 'fit', 'posteriors'], wide)}\n\n"
            f"With the features it grows to the power of {power['fit_s in d']:.2f} (fit) and "
            f"{power['score_s in d']:.2f} (posteriors), over the largest {upper} {power['fit_s in d, upper']:.2f} and "
            f"{power['score_s in d, upper']:.2f}. The fastest of {growth['config']['repeats']} runs each. "
            f"{where(growth['environment'])}."
        )
    if (cost := load("scale-cost")) is not None:
        rows = [
            [f"{r['rows']:,} × {r['features']}, K = {r['classes']}",
             ", ".join(f"{name}={value}" for name, value in r["settings"].items()) or "default",
             f"{r['predicted']['seconds']:.1f} s", f"{r['fit_s']:.1f} s", f"{r['ratio']:.2f}",
             f"{r['predicted']['memory'] / 1e9:.2f} GB", f"{r['peak_bytes'] / 1e9:.2f} GB"]
            for r in cost["results"]
        ]  # fmt: skip
        head = ["table", "settings", "said", "took", "ratio", "memory, said", "held"]
        parts.append(
            "### Does the predicted cost come true?\n\n`estimate_cost` of each fit, with a probe of this machine just "
            f"before it, and what it took:\n\n{table(head, rows)}"
        )
    return "\n\n".join(parts)


def classes_text() -> str:
    if (stored := load("scale-classes")) is None:
        return ""
    *sizes, last = stored["results"]
    config, exponents = stored["config"], last["exponents"]
    stages = ["train", "score", "moments", "one step", "recovery", "shrink", "fit", "predict", "file", "report"]
    rows = [
        [
            f"{r['classes']:,}",
            *(f"{r['seconds'][name]:.1f}" for name in stages),
            f"{r['fit_gb']:.2f}",
            f"{r['peak_gb']:.2f}",
            "yes" if r["one_step"]["projection_converged"] else f"no ({r['one_step']['projection_iterations']} steps)",
        ]
        for r in sizes
    ]
    growth = [f"{exponents[name]:.1f}" for name in stages]
    rows.append(["exponent", *growth, f"{exponents['memory']:.1f}", "", ""])
    head = ["K", *stages, "GB, fit", "GB, all", "projection settled"]
    largest = sizes[-1]["bytes"]
    return (
        f"{config['rows']:,} rows × {config['features']} features, one hidden layer of 128, 2 folds, 2 epochs, "
        f"{config['threads']} thread, each K in a process of its own; seconds, and peak memory of the fit and of "
        f"everything:\n\n{table(head, rows)}\n\n"
        "`moments` is the pass over the held-out posteriors, `file` writing and reading S as .npz, `report` the page "
        "with the rows to look at. Exponents are those of growth from 500 classes on (of memory: what the fit adds). "
        f"With {sizes[-1]['classes']:,} classes the file of S has {largest['file'] / 2**20:,.0f} MB, the ten largest "
        f"entries of every row as JSON {largest['top'] / 2**20:.1f} MB, the report {largest['report'] / 2**20:.1f} MB. "
        f"From so few rows a class a network learns little of many classes (the PBER is {sizes[-1]['pber']:.4f} in the "
        f"last line, {sizes[-3]['pber']:.2f} with {sizes[-3]['classes']:,}), and S of nothing needs no projection: "
        "with more rows that part grows with the cube of the classes until it is cut short. "
        f"({where(stored['environment'])}.)"
        f"{learned_text(stages)}"
    )


def learned_text(stages: list[str]) -> str:
    """5,000 classes that were learned, on each device that it was run on."""
    runs = [run for device in ("cuda", "cpu") if (run := load(f"scale-learned-{device}")) is not None]
    if not runs:
        return ""
    rows, wheres = [], []
    for run in runs:
        r, device = run["results"], run["config"]["settings"]["device"]
        seconds = (f"{r['seconds'][name]:.1f}" for name in stages)
        rows.append([device, *seconds, f"{r['fit_gb']:.2f}", f"{r['peak_gb']:.2f}", f"{r['pber']:.2f}"])
        wheres.append(f"{device}: {where(run['environment'])}")
    config, r = runs[0]["config"], runs[0]["results"]
    settings = config["settings"]
    return (
        f"\n\nThe same with enough rows to learn them: {config['k']:,} classes, {config['rows']:,} rows × "
        f"{config['features']} features, one hidden layer of {settings['hidden_layer_sizes'][0]}, {settings['cv']} "
        f"folds, up to {settings['max_epochs']} epochs; {r['accuracy']:.0%} of new rows get their own class:\n\n"
        f"{table(['device', *stages, 'GB, fit', 'GB, all', 'PBER'], rows)}\n\n"
        "Here S has thousands of negative eigenvalues to begin with, and the projection is cut short "
        f"({r['one_step']['projection_iterations']} steps): {r['recovery']}. ({'; '.join(wheres)}.)"
    )


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

## Accuracy of S

Mean total variation distance of the rows of S to the truth, as a multiple of the *limit*: the one-step estimator with
the true posteriors of the same sample. Rivals are cross-fitted with the same folds and use the one-step estimator too.
A value below 1 is possible: where many entries vouch for the model's calibration its word is less noisy than labels.

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

From the same fits, mean TVD as a multiple of the limit:

{ours_table(accuracy)}

## Do the intervals cover?

Nominal 95% intervals of whole fits:

{coverage_table(accuracy)}

({machines.get("coverage")}.)

PBER is over-estimated by what the model has not learned yet, which no interval of a single fit can know: see
`learning_curve`.

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

{gpu_text(load)}
"""
    (ROOT / "docs" / "benchmarks.md").write_text(re.sub(r"\n{3,}", "\n\n", page))
    purchase.PAGE.write_text(purchase.fill(purchase.PAGE.read_text()))
    readme = ROOT / "README.md"
    block = f"<!-- benchmarks -->\n{accuracy_table(accuracy, 'mean')}\n<!-- /benchmarks -->"
    text = readme.read_text()
    readme.write_text(re.sub(r"<!-- benchmarks -->.*<!-- /benchmarks -->", lambda _: block, text, flags=re.DOTALL))
    print("→ docs/benchmarks.md, docs/scale.md, README.md")


if __name__ == "__main__":
    main()
