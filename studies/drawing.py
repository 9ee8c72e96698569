"""Matplotlib without a screen, and files that change only when their data do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

plt.switch_backend("Agg")
mpl.rcParams |= {
    "svg.fonttype": "none",
    "svg.hashsalt": "collidescope",
    "figure.dpi": 120,
}


def save(figure: Any, path: Path) -> None:
    """Write the figure without a date or version and close it: the same data give the same
    bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Software": None}
    if path.suffix == ".svg":
        metadata = {"Date": None}
    figure.savefig(path, bbox_inches="tight", dpi=110, metadata=metadata)
    plt.close(figure)
