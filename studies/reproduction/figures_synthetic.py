"""Figures drawn from the records of the synthetic experiments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import numpy as np

from studies.drawing import plt, save
from studies.measures import mean_error
from studies.reproduction.tables import Columns, Found

#: Errors of S by method, epochs and sample.
Curves = dict[str, dict[int, dict[int, float]]]


def draw_bars(
    found: Found, methods: Sequence[str], columns: Columns, label: str, path: Path
) -> None:
    """Groups of bars, one for each column; whiskers are standard errors."""
    figure, axes = plt.subplots(figsize=(7, 3.2))
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        own = [found[method][key] for key in columns]
        means = [values.mean() for values in own]
        errors = [mean_error(values) for values in own]
        place = np.arange(len(columns)) + (number - (len(methods) - 1) / 2) * width
        axes.bar(place, means, width, yerr=errors, capsize=2, label=method)
    axes.set_xticks(range(len(columns)), list(columns.values()))
    axes.set_ylabel(label)
    axes.grid(alpha=0.3, axis="y")
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)


def draw_training_cost(points: Curves, path: Path) -> None:
    """Error of S against epochs of training; a method without epochs of its own is a line."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, (name, own) in enumerate(points.items()):
        colour = f"C{number}"
        errors = [np.mean(list(samples.values())) for samples in own.values()]
        if len(errors) == 1:
            axes.axhline(errors[0], color=colour, linestyle="--", label=name)
        else:
            axes.plot(list(own), errors, colour, marker="o", markersize=5, label=name)
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
    found: Found, bayes_error: Mapping[Hashable, float], path: Path
) -> None:
    """Posterior error against the Bayes error; bars are standard deviations over samples."""
    figure, axes = plt.subplots(figsize=(7, 4))
    keys = sorted(bayes_error, key=lambda key: bayes_error[key])
    for number, (name, columns) in enumerate(found.items()):
        own = [key for key in keys if key in columns]
        aside = 0.003 * (number - len(found) / 2)
        x = [bayes_error[key] + aside for key in own]
        means = [columns[key].mean() for key in own]
        spread = [columns[key].std(ddof=1) for key in own]
        axes.errorbar(x, means, spread, marker="o", markersize=4, capsize=3, label=name)
    axes.set(
        xlabel="Bayes error of the problem",
        ylabel="TVD of the posteriors",
        ylim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
