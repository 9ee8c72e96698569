"""The part of docs/benchmarks.md about a GPU."""

from __future__ import annotations

from typing import Any

from benchmarks._record import load
from experiments.markdown import table


def gpu_text() -> str:
    """All that ``benchmarks.scale_gpu`` recorded."""
    parts = []
    if (mnist := load("scale-gpu-mnist")) is not None:
        where = mnist["environment"]
        parts.append(
            f"Measured by `python -m benchmarks.scale_gpu` on one {mnist['config']['device']} "
            f"(torch {where['versions']['torch']}, {where['date']}), while other programs ran on the cores beside it: "
            f"times of the CPU are upper limits.\n\n{_mnist(mnist)}"
        )
    if (precision := load("scale-gpu-precision")) is not None:
        parts.append(_precision(precision))
    if (pairs := load("scale-gpu-pairs")) is not None:
        parts.append(_pairs(pairs))
    if (streaming := load("scale-gpu-streaming")) is not None:
        parts.append(_streaming(streaming))
    if (agreement := load("scale-gpu-agreement")) is not None:
        parts.append(_agreement(agreement))
    return "\n\n".join(parts)


def _mnist(stored: dict[str, Any]) -> str:
    header = ["encoder", "fit", "training", "scoring", "moving", "rest", "epochs of the folds"]
    header += ["scored a second", "of its forward rate", "PBER", "largest difference of S in standard errors"]
    rows = [
        [
            *(r["variant"], *(f"{r[name]:.2f} s" for name in ("seconds", "training", "scoring", "moving", "rest"))),
            " ".join(map(str, r["epochs"])),
            *(f"{r['rows_scored_per_second']:,.0f}", f"{r['share_of_forward']:.0%}", f"{r['pber']:.4f}"),
            f"{r['largest_difference_in_se']:.1f}",
        ]
        for r in stored["results"]
    ]
    settings = stored["config"]["mnist"]
    return (
        f"Cross-fitted S of all 60,000 images of MNIST, {settings['cv']} folds of at most {settings['max_epochs']} "
        "epochs with a convolutional encoder. *Moving* is standardising the images and bringing "
        "them to the GPU, *scoring* the held-out posteriors, *rest* S with intervals, Gramian and recovery. "
        f"Differences are between separately trained networks.\n\n{table(header, rows)}"
    )


def _precision(stored: dict[str, Any]) -> str:
    header = ["width", "encoder", "training step", "forward pass", "first three steps"]
    rows = [
        [
            *(str(r["width"]), r["variant"], f"{r['step_ms']:.2f} ms", f"{r['forward_ms']:.2f} ms"),
            f"{r['first_steps_s']:.1f} s",
        ]
        for r in stored["results"]
    ]
    return (
        "Does a lower precision (`Bfloat16(module)`) or `torch.compile` pay? Batches of 1,024 images, steady state, "
        f"and what the first steps took (compiling):\n\n{table(header, rows)}"
    )


def _pairs(stored: dict[str, Any]) -> str:
    header = ["network", "million pairs a second", "TFLOP/s", "of an 8192³ product", "of products of its own width"]
    rows = [
        [
            "×".join(map(str, r["hidden_layer_sizes"])),
            *(f"{r['pairs'] / r['seconds'] / 1e6:.0f}", f"{r['tflops']:.1f}", f"{r['share']:.0%}"),
            f"{r['tflops'] / r['shaped_tflops']:.0%}",
        ]
        for r in stored["results"]
    ]
    return f"Pair-wise scoring in float32 (both orders), beside the product's rate:\n\n{table(header, rows)}"


def _streaming(stored: dict[str, Any]) -> str:
    *runs, last = stored["results"]
    rows = [[r["where"], f"{r['epoch']:.3f} s", f"{r['seconds']:.1f} s"] for r in runs]
    return (
        f"{runs[0]['rows']:,} rows of {runs[0]['features']} features on the GPU, or brought over batch by batch from "
        f"pinned memory, as rows that do not fit are:\n\n{table(['rows', 'epoch', 'fit'], rows)}\n\n"
        f"The largest difference of an entry of S between the two is {last['largest_difference']:.1e}."
    )


def _agreement(stored: dict[str, Any]) -> str:
    header = ["fit", "rows", "CPU", "GPU", "largest difference of S in standard errors"]
    rows = [
        [
            *(r["case"], f"{r['rows']:,}", f"{r['seconds']['cpu']:.1f} s", f"{r['seconds']['cuda']:.1f} s"),
            f"{r['largest_in_se']:.2f}",
        ]
        for r in stored["results"]
    ]
    return f"The same fit with the same seed on both devices of that machine:\n\n{table(header, rows)}"
