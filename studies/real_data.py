"""Loaders for real tables, read from the folder that the environment variable
``COLLIDESCOPE_DATA`` names."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pandas as pd

from collidescope.equations.densities import draw_classes
from studies.measures import Array, Rng

VARIABLE = "COLLIDESCOPE_DATA"
Table = tuple[pd.DataFrame, Array]

ADULT_COLUMNS = """age workclass fnlwgt education education-num marital-status occupation
relationship race sex capital-gain capital-loss hours-per-week native-country"""
GERMAN_COLUMNS = """checking_account duration_months credit_history purpose credit_amount
savings_account employment_since instalment_rate personal_status_and_sex other_debtors
residence_since property age other_instalment_plans housing existing_credits job people_liable
telephone foreign_worker"""
LETTER_COLUMNS = """x-box y-box width high onpix x-bar y-bar x2bar y2bar xybar x2ybr xy2br x-ege
xegvy y-ege yegvx"""
COVERTYPE_COLUMNS = """elevation aspect slope horizontal_distance_to_hydrology
vertical_distance_to_hydrology horizontal_distance_to_roadways hillshade_9am hillshade_noon
hillshade_3pm horizontal_distance_to_fire_points"""
COVERTYPE_CLASSES = """spruce/fir,lodgepole pine,ponderosa pine,cottonwood/willow,aspen,douglas-fir,\
krummholz"""


def data_folder() -> Path:
    """The folder with the data sets, or a ``FileNotFoundError`` that says how to name one."""
    value = os.environ.get(VARIABLE)
    if not value:
        raise FileNotFoundError(
            f"set {VARIABLE} to the folder that holds the data sets"
        )
    folder = Path(value)
    if not folder.is_dir():
        raise FileNotFoundError(f"{VARIABLE} names {value!r}, which is not a folder")
    return folder


def load_brfss() -> Table:
    """CDC BRFSS 2015 health indicators: 253,680 × 21 and the labels none, prediabetes, diabetes."""
    X, y, names = _arrays("diabetes/brfss2015_012.npz", "X", "y", "names")
    labels = np.array(["none", "prediabetes", "diabetes"])
    return pd.DataFrame(X, columns=list(map(str, names))), labels[y]


def load_adult() -> Table:
    """UCI Adult, both parts together: 48,842 × 14 and the labels "<=50K", ">50K".

    Text columns are categorical; the "?" of a missing answer is a category like any other.
    """
    parts = []
    # the second part begins with a comment
    for name, skipped in (("adult.data", 0), ("adult.test", 1)):
        part = pd.read_csv(
            _existing(f"adult/{name}.gz", "a part of the UCI Adult table"),
            names=[*ADULT_COLUMNS.split(), "income"],
            skiprows=skipped,
            skipinitialspace=True,
            keep_default_na=False,
        )
        parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    labels = table.pop("income").str.removesuffix(".")
    return _with_categories(table), labels.to_numpy(dtype=str)


def load_law_school() -> Table:
    """LSAC law school study: 20,798 × 11 and the labels "fail", "pass" of the bar examination at
    the first attempt."""
    content = "11 columns of the LSAC study and pass_bar"
    table = pd.read_csv(_existing("lawschool/law_school_clean.csv.gz", content))
    passed = table.pop("pass_bar").to_numpy(dtype=np.intp)
    return _with_categories(table), np.array(["fail", "pass"])[passed]


def load_german_credit() -> Table:
    """UCI Statlog German Credit: 1,000 × 20 and the labels "good", "bad"; the codes A11 … A202
    stay as categories."""
    path = _existing(
        "german/german.data", "20 columns and the label, separated by spaces"
    )
    table = pd.read_csv(path, sep=" ", names=[*GERMAN_COLUMNS.split(), "risk"])
    risk = table.pop("risk").to_numpy(dtype=np.intp)
    return _with_categories(table), np.array(["good", "bad"])[risk - 1]


def load_letter() -> Table:
    """UCI Letter: 20,000 × 16 measures (0 to 15) of printed capitals, and the labels A to Z."""
    path = _existing("letter/letter-recognition.data.gz", "the letter and 16 columns")
    table = pd.read_csv(path, names=["letter", *LETTER_COLUMNS.split()])
    return table.drop(columns="letter"), table["letter"].to_numpy(dtype=str)


def load_covertype() -> Table:
    """UCI Covertype: 581,012 × 54 (10 measures, 44 indicators) and the names of 7 forest types."""
    X, y = _arrays("covertype/covtype.npz", "X", "y")
    names = COVERTYPE_COLUMNS.split()
    names += [f"wilderness_area_{i}" for i in range(1, 5)]
    names += [f"soil_type_{i}" for i in range(1, 41)]
    labels = np.array(COVERTYPE_CLASSES.split(","))
    return pd.DataFrame(X, columns=names), labels[y.astype(np.intp) - 1]


def load_fashion_votes() -> tuple[Array, Array]:
    """Fashion-MNIST-H: 10,000 images (n, 28, 28) and the votes on each, (n, 10)."""
    X, V = _arrays("fashion_mnist_h/fashion_mnist_h.npz", "X", "V")
    return X, V


def one_vote(votes: Array, rng: Rng) -> Array:
    """A vote of each item, drawn at random: a label as one annotator would give it."""
    return draw_classes(votes / votes.sum(axis=1, keepdims=True), rng)


def load_mnist(
    part: str = "train",
) -> tuple[Array, Array]:
    """MNIST: images of shape (n, 28, 28) and digits; ``part`` is "train" (60,000) or "test"
    (10,000)."""
    names = {"train": "train", "test": "t10k"}
    if part not in names:
        raise ValueError(f"part must be 'train' or 'test', got {part!r}")
    name = names[part]
    images = _read_idx(f"{name}-images", 16).reshape(-1, 28, 28)
    return images, _read_idx(f"{name}-labels", 8).astype(np.intp)


def _existing(name: str, content: str) -> Path:
    path = data_folder() / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: it holds {content}")
    return path


def _arrays(name: str, *names: str) -> list[Array]:
    with np.load(_existing(name, f"arrays {', '.join(names)}")) as arrays:
        return [arrays[own] for own in names]


def _with_categories(table: pd.DataFrame) -> pd.DataFrame:
    text = [name for name, dtype in table.dtypes.items() if dtype.kind not in "iuf"]
    return table.astype(dict.fromkeys(text, "category"))


def _read_idx(start: str, header: int) -> Array:
    folder = data_folder() / "mnist"
    paths = sorted(folder.glob(f"{start}*.gz"))
    if not paths:
        raise FileNotFoundError(
            f"{folder} holds no file {start}*.gz: it needs the four idx files of MNIST"
        )
    content = gzip.decompress(paths[0].read_bytes())
    return np.frombuffer(content, dtype=np.uint8, offset=header)
