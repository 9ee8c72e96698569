"""The parts of docs/benchmarks.md about rows, files and classes that are many."""

from __future__ import annotations

from benchmarks._record import load
from experiments.markdown import table, where


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
    """Time against rows and features, with exponents."""
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
        f"The projection of the one-step estimate took {r['one_step']['projection_iterations']} steps"
        f"{'' if r['one_step']['projection_converged'] else ' and was cut short'}; recovery: {r['recovery']}. "
        f"({'; '.join(wheres)}.)"
    )
