"""Figures drawn from the records of the synthetic experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from studies.drawing import plt, save

Curves = dict[str, list[tuple[int, float, float]]]


def curves(records: list[dict[str, Any]]) -> Curves:
    """{method: [(epochs, seconds of training, mean TVD of S)]}, averaged over samples."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for record in records:
        for point in record["result"]["curve"]:
            for name, errors in point["S"].items():
                own = found.setdefault(name, {}).setdefault(point["epochs"], [])
                own.append((point["train_seconds"], errors[0]))
    return {
        name: [
            (epochs, *np.mean(values, axis=0).tolist())
            for epochs, values in sorted(points.items())
        ]
        for name, points in found.items()
    }


def draw_training_cost(points: Curves, path: Path) -> None:
    """Error of S against epochs of training; a method without epochs of its own is a line."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, (name, own) in enumerate(points.items()):
        if len(own) == 1:
            axes.axhline(own[0][2], color=f"C{number}", linestyle="--", label=name)
        else:
            axes.plot(
                [p[0] for p in own],
                [p[2] for p in own],
                f"C{number}",
                marker="o",
                markersize=5,
                label=name,
            )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="epochs of training",
        ylabel="mean TVD of S to the truth",
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)


def draw_variance(
    found: dict[str, dict[Any, np.ndarray]], bayes_error: dict[Any, float], path: Path
) -> None:
    """Posterior error against the Bayes error, error bars of one standard deviation over
    samples."""
    figure, axes = plt.subplots(figsize=(7, 4))
    keys = sorted(bayes_error, key=lambda key: bayes_error[key])
    for number, (name, columns) in enumerate(found.items()):
        own = [key for key in keys if key in columns]
        x = [bayes_error[key] + 0.003 * (number - len(found) / 2) for key in own]
        means, spread = (
            [columns[key].mean() for key in own],
            [columns[key].std(ddof=1) for key in own],
        )
        axes.errorbar(x, means, spread, marker="o", markersize=4, capsize=3, label=name)
    axes.set(
        xlabel="Bayes error of the problem",
        ylabel="TVD of the posteriors",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
