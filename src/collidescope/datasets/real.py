"""Loaders for real tables, read from the folder that the environment variable ``COLLIDESCOPE_DATA`` names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

VARIABLE = "COLLIDESCOPE_DATA"


def data_folder() -> Path:
    """The folder with the data sets, or a ``FileNotFoundError`` that says how to name one."""
    value = os.environ.get(VARIABLE)
    if not value:
        raise FileNotFoundError(f"set {VARIABLE} to the folder that holds the data sets")
    folder = Path(value)
    if not folder.is_dir():
        raise FileNotFoundError(f"{VARIABLE} names {value!r}, which is not a folder")
    return folder


def load_brfss() -> tuple[pd.DataFrame, npt.NDArray[Any]]:
    """CDC BRFSS 2015 health indicators: 253,680 × 21 and the labels none, prediabetes, diabetes."""
    import pandas as pd

    path = data_folder() / "diabetes" / "brfss2015_012.npz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: it holds arrays X, y and names")
    with np.load(path, allow_pickle=False) as arrays:
        X = pd.DataFrame(arrays["X"], columns=[str(name) for name in arrays["names"]])
        y = np.array(["none", "prediabetes", "diabetes"])[arrays["y"]]
    return X, y
