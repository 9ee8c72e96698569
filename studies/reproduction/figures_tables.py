"""Figures of the real tables, of counted collisions and of the divergences, drawn from records
alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from studies.drawing import plt, save
from studies.reproduction.tabular import AUTHORS, BOOSTING, NETWORK, OURS

Records = list[dict[str, Any]]

CURVES = {
    "collision": ("collision divergence", "C0", 2.5),
    "total_variation": ("total variation", "C1", 1.2),
    "hellinger": ("Hellinger", "C2", 1.2),
    "kl": ("KL", "C3", 1.2),
}
MODELS = {"quadratic": ("o", "C0"), "linear": ("^", "0.35")}
#: Entries of S that are smaller than this both ways are left out of the scatter: hundreds of them
#: lie on the origin.
SMALLEST_ENTRY = 0.02
#: Much text: a coarser picture stays below 150 kB.
TABLES_DPI = 85
SHORT = {"<=50K": "≤50K", ">50K": ">50K"}


# ---------------------------------------------------------------- divergences


def draw_divergences(records: Records, path: Path) -> None:
    """Exact curves of the four divergences, and estimates of the collision divergence from
    samples."""
    exact = {
        r["cell"]["scale"]: r["result"] for r in records if r["cell"]["part"] == "exact"
    }
    figure, panels = plt.subplots(
        1, len(exact), figsize=(4.6 * len(exact), 3.9), sharey=True, squeeze=False
    )
    for axes, (scale, curve) in zip(panels[0], sorted(exact.items()), strict=True):
        for name, (label, colour, width) in CURVES.items():
            axes.plot(
                curve["distances"],
                curve[name],
                color=colour,
                linewidth=width,
                label=label,
            )
        own = [
            r
            for r in records
            if r["cell"]["part"] == "estimate" and r["cell"]["scale"] == scale
        ]
        for number, (model, (marker, colour)) in enumerate(MODELS.items()):
            x, mean, spread = _over_seeds(
                [r for r in own if r["cell"]["model"] == model]
            )
            axes.errorbar(
                x + 0.03 * number,
                mean,
                spread,
                fmt=marker,
                color=colour,
                markersize=4,
                capsize=2,
                linewidth=1,
                markerfacecolor="white",
                label=f"estimated, {model} model",
            )
        axes.set(
            xlabel="μ",
            ylim=(-0.03, 1.2),
            xlim=(-0.1, 4),
            title=f"N(−μ, 1) and N(μ, {scale**2:g})",
        )
        axes.grid(alpha=0.3)
    panels[0, 0].set_ylabel("divergence")
    panels[0, -1].legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path)


def _over_seeds(records: Records) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances, mean estimates and their standard deviations over samples."""
    values = np.array(
        [[p["estimate"]["collision"] for p in r["result"]["points"]] for r in records]
    )
    distances = (
        np.array([p["distance"] for p in records[0]["result"]["points"]])
        if records
        else np.zeros(0)
    )
    if len(values) == 0:
        return distances, distances, distances
    return distances, values.mean(axis=0), values.std(axis=0)


# ---------------------------------------------------------------- tables


def draw_tabular(records: Records, path: Path) -> None:
    """S at uniform priors, a heat map for each table and method, with what it means for the
    rarer class."""
    names = list(dict.fromkeys(r["cell"]["dataset"] for r in records))
    tables = [name for name in names if not name.endswith(AUTHORS)]
    rows = [(method, "") for method in (OURS, BOOSTING, NETWORK)]
    rows += [
        (method, AUTHORS)
        for method in (OURS, NETWORK)
        if any(name.endswith(AUTHORS) for name in names)
    ]
    size = (1.75 * len(tables) + 0.5, 1.85 * len(rows))
    figure, panels = plt.subplots(
        len(rows), len(tables), figsize=size, dpi=TABLES_DPI, squeeze=False
    )
    for line, (method, variant) in zip(panels, rows, strict=True):
        for axes, table in zip(line, tables, strict=True):
            cell = {"dataset": table + variant, "method": method}
            own = [r["result"] for r in records if cell.items() <= r["cell"].items()]
            _heat_map(axes, own)
        label = method.replace(", ", ",\n") + (
            "\n(authors' encoding)" if variant else ""
        )
        line[0].set_ylabel(label, fontsize=7.5, labelpad=5)
    for axes, table in zip(panels[0], tables, strict=True):
        axes.annotate(
            table,
            (0.5, 1.3),
            xycoords="axes fraction",
            ha="center",
            fontsize=9,
            fontweight="bold",
        )
    figure.tight_layout()
    save(figure, path)


def _heat_map(axes: Any, results: list[dict[str, Any]]) -> None:
    if not results:
        axes.set_axis_off()
        return
    S = np.mean([result["uniform"]["matrix"] for result in results], axis=0)
    axes.imshow(S, vmin=0, vmax=1, cmap="Blues")
    stderr = _stderr(results)
    for (i, j), value in np.ndenumerate(S):
        text = (
            f"{value:.3f}"
            if stderr is None
            else f"{value:.3f}\n±{1.96 * stderr[i, j]:.3f}"
        )
        axes.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=7.5,
            color="white" if value > 0.6 else "black",
        )
    first = results[0]
    names = [SHORT.get(name, name) for name in first["classes"]]
    axes.set_xticks([0, 1], names, fontsize=7)
    axes.set_yticks([0, 1], names, fontsize=7, rotation=90, va="center")
    decided = {
        name: np.mean([r["decided"]["uniform"][name] for r in results])
        for name in ("recall", "precision")
    }
    positive = SHORT.get(first["positive"], first["positive"])
    axes.tick_params(length=2, pad=2)
    axes.set_title(
        f"{positive}: recall {decided['recall']:.0%},\nprecision {decided['precision']:.0%}",
        fontsize=7,
        pad=3,
    )


def _stderr(results: list[dict[str, Any]]) -> np.ndarray | None:
    """Of S, where the method gives one (the same rows with other seeds make it no smaller)."""
    own = [result["uniform"]["stderr"] for result in results]
    return None if own[0] is None else np.mean(own, axis=0)


# ---------------------------------------------------------------- counted


def draw_counted(records: Records, path: Path) -> None:
    """Entries of S, counted against estimated, with both 95% intervals."""
    methods = list(dict.fromkeys(r["cell"]["method"] for r in records))
    tables = list(
        dict.fromkeys((r["cell"]["dataset"], r["cell"]["train"]) for r in records)
    )
    figure, panels = plt.subplots(
        1, len(methods), figsize=(4.8 * len(methods), 4.6), sharey=True, squeeze=False
    )
    for axes, method in zip(panels[0], methods, strict=True):
        axes.plot([0, 1], [0, 1], color="0.6", linewidth=1)
        for number, key in enumerate(tables):
            for record in records:
                if (
                    record["cell"]["dataset"],
                    record["cell"]["train"],
                    record["cell"]["method"],
                ) == (*key, method):
                    _scatter(
                        axes,
                        record["result"],
                        f"C{number}",
                        _label(key, record["result"]),
                    )
        axes.set(title=method, xlabel="counted", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        axes.grid(alpha=0.3)
        axes.set_aspect("equal")
    panels[0, 0].set_ylabel("estimated on the same rows")
    panels[0, -1].legend(
        frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5)
    )
    save(figure, path)


def _label(key: tuple[str, str], result: dict[str, Any]) -> str:
    variant = ", model of all rows" if key[1] == "all" else ""
    return f"{key[0]}{variant} ({result['coverage']:.0%} of rows repeat)"


def _scatter(axes: Any, result: dict[str, Any], colour: str, label: str) -> None:
    counted, estimated = result["counted"], result["estimated"]
    x, y = (np.array(part["matrix"]).ravel() for part in (counted, estimated))
    shown = np.maximum(x, y) > SMALLEST_ENTRY
    bars = [
        np.array([value - np.ravel(part["low"]), np.ravel(part["high"]) - value])[
            :, shown
        ]
        for part, value in ((counted, x), (estimated, y))
    ]
    style = {
        "fmt": "o",
        "color": colour,
        "markersize": 3.5,
        "elinewidth": 0.7,
        "alpha": 0.8,
    }
    axes.errorbar(
        x[shown],
        y[shown],
        xerr=bars[0].clip(0),
        yerr=bars[1].clip(0),
        label=label,
        **style,
    )
