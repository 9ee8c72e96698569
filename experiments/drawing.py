"""Matplotlib without a screen, and files that change only when their data do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

plt.switch_backend("Agg")
mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "collidescope", "figure.dpi": 120}


def save(figure: Any, path: Path) -> None:
    """Write the figure without a date and close it."""
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
