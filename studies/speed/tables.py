"""Sections of docs/benchmarks.md about time and memory: :mod:`studies.accuracy.tables` writes them."""

from __future__ import annotations

from typing import Any

from studies.accuracy._record import load
from studies.markdown import earlier_pool, pool_of, table, where


def engine_text() -> str:
    if (stored := load("engine")) is None:
        return ""
    results = stored["results"]
    rows = [
        [
            name,
            f"{r['rows']:,}",
            *(f"{r[key]:.1f} s" for key in ("members", "fit", "with range")),
            *(f"{r[key]:.2f}" for key in ("fit / members", "range / fit")),
        ]
        for name, r in results.items()
        if name != "busy"
    ]
    head = [
        "data",
        "rows",
        "members alone",
        "fit",
        "fit with its range",
        "fit / members",
        "range / fit",
    ]
    busy = "".join(
        f" A fit of {r['rows']:,} rows beside a process that takes one core takes {r['ratio']:.2f} times as long as on "
        f"an idle machine of {stored['environment']['cores']} virtual cores (a plain loop in one thread "
        f"{r['ratio of a plain loop']:.2f} times)."
        for r in results.get("busy", ())
    )
    return (
        "## What the pool and the range cost\n\nProcessor seconds on one thread: every member fitted and scored once "
        f"per fold, the fit without its range, and with it.\n\n{table(head, rows)}\n\n{busy.strip()} "
        f"`python -m studies.speed.engine --busy` repeats it ({where(stored['environment'])}"
        f"{earlier_pool([pool_of(stored['environment'])])})."
    )


def speed_text() -> str:
    parts = []
    if (stored := load("speed-models")) is not None:
        rows = [
            [
                f"{r['rows']:,}",
                str(r["epochs"]),
                f"{r['factorised']:.2f} s",
                f"{r['pairwise']:.1f} s",
                f"{r['ratio']:.1f} ×",
            ]
            for r in stored["results"]
        ]
        head = ["rows", "epochs", "factorised", "pairwise", "ratio"]
        parts.append(
            "Fit and the posteriors of as many new rows on Scenario A (K = 5), a 6×128 network either way, the same "
            f"number of epochs:\n\n{table(head, rows)}"
        )
    if (stored := load("speed-scoring")) is not None:
        rows = [
            [
                "×".join(map(str, r["hidden_layer_sizes"])),
                f"{r['scoring']:.0f}",
                f"{r['large']:.0f}",
                f"{r['share']:.0%}",
            ]
            for r in stored["results"]
        ]
        head = ["network", "scoring, GFLOP/s", "matrix product, GFLOP/s", "share"]
        parts.append(
            f"Pair-wise scoring against the float32 matrix product of the same run:\n\n{table(head, rows)}"
        )
    if (stored := load("scale-growth")) is not None:
        rows = [_fit_row(r) for r in stored["results"]]
        parts.append(f"Fits of the default (with its range), one core:\n\n{table(FIT_HEAD, rows)}")
    return "## Speed and memory\n\n" + "\n\n".join(parts) if parts else ""


FIT_HEAD = [
    "rows",
    "features",
    "K",
    "fit",
    "predict 1,000 rows",
    "file",
    "report",
    "memory of the fit",
]


def _fit_row(r: dict[str, Any]) -> list[str]:
    seconds = [f"{r['seconds'][name]:.2f} s" for name in ("fit", "predict 1,000", "file", "report")]
    return [
        f"{r['rows']:,}",
        f"{r['features']:,}",
        f"{r['classes']:,}",
        *seconds,
        f"{r['fit_mb']:,.0f} MB",
    ]


def scale_text() -> str:
    parts = []
    if (stored := load("scale-parquet")) is not None:
        *sizes, last = stored["results"]
        rows = [
            [
                f"{r['rows']:,.0f}",
                f"{r['file_mb']:,.0f} MB",
                f"{r['seconds']:.1f} s",
                f"{r['peak_mb']:.0f} MB",
            ]
            for r in sizes
        ]
        parts.append(
            "S of ten classes from Parquet files in one pass (`accumulate(posterior_batches(path, label), classes)`), "
            f"each in a process of its own:\n\n{table(['rows', 'file', 'time', 'peak memory'], rows)}\n\n"
            f"From the second to the third the time grows with the rows to the power of {last['exponent']:.2f}."
        )
    if (stored := load("scale-cluster")) is not None:
        found = stored["results"]
        rows = [
            [name, f"{found[name]['seconds']:.1f} s", f"{found[name]['difference']:.1e}"]
            for name in ("both alive", "one killed")
        ]
        parts.append(
            f"The same {found['rows']:,} rows through a Dask cluster of two processes, beside the S of one process:"
            f"\n\n{table(['workers', 'time', 'largest difference of an entry of S'], rows)}"
        )
    if (stored := load("scale-fit")) is not None:
        rows = [
            [f"{r['rows']:,}", f"{r['table_mb']:,.0f} MB", f"{r['posteriors_mb']:,.0f} MB", f"{r['spool_s']:.1f} s",
             f"{r['spool_mb'] - r['start_mb']:,.0f} MB", f"{r['fit_s']:.0f} s",
             f"{r['fit_mb'] - r['start_mb']:,.0f} MB"]
            for r in stored["results"]
        ]  # fmt: skip
        head = ["rows", "table", "posteriors", "`spool`", "memory of it", "`fit`", "memory of it"]
        parts.append(
            "From a Parquet file of 20 features to a fitted network (`clf.fit(*spool(path, label))`, two "
            "folds, one epoch, "
            f"one layer of 64), seconds of one core, memory added to that of the libraries:\n\n{table(head, rows)}"
        )
    text = "## More rows than memory\n\n" + "\n\n".join(parts) if parts else ""
    if (stored := load("scale-classes")) is not None:
        rows = [_fit_row(r) for r in stored["results"]]
        text += f"\n\n## Many classes\n\nOne network of 128 units, two folds, two epochs:\n\n{table(FIT_HEAD, rows)}"
    if (stored := load("scale-gpu")) is not None:
        found = stored["results"]
        rows = [
            [r["name"], f"{r['seconds']:.0f} s", f"{r['pber']:.4f}", f"{r['error']:.2%}"]
            for r in found["mnist"]
        ]
        pairs = "; ".join(
            f"{'×'.join(map(str, r['hidden_layer_sizes']))}: {r['pairs_per_second'] / 1e6:,.0f} million "
            "pairs a second, "
            f"{r['share']:.0%} of the matrix product's rate"
            for r in found["pairs"]
        )
        head = ["model", "seconds", "PBER", "held-out error"]
        text += (
            f"\n\n## A GPU\n\nS of {found['mnist'][0]['rows']:,} images of MNIST on one {found['device']}, without "
            "the range, in five folds, after a first fit of 2,000 images that loads CUDA's libraries (further "
            "processes load them again; the custom network is a small "
            f"convolutional encoder of 12 epochs):\n\n{table(head, rows)}\n\nPair-wise scoring: {pairs}. "
            f"`python -m studies.speed.scale --part gpu` repeats it ({where(stored['environment'])})."
        )
    return text
