"""What to know about a table before a number is believed: ids, target leakage, groups, order.

A column is looked at alone, as numbers, as levels, as words, and by which of its cells are missing.
Nothing is fitted but small trees of one column, scored on rows that were held out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_array
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.tree import DecisionTreeClassifier

from collidescope import _rows
from collidescope._checks import Array, FloatArray, IntArray
from collidescope.sample import taken
from collidescope.tables.cells import DATE_PARTS, read_cells
from collidescope.tables.numerals import amounts

BoolArray = npt.NDArray[np.bool_]
T = TypeVar("T")

FEWEST_ROWS = 20  #: fewer rows cannot tell an id from a measurement
FEWEST_FOR_LEAKS = 50  #: nor a leak from chance
#: Words that end the name of an id; the second ones only where every value differs.
ID_WORDS = r"ids?|uu?id|[gp]id|guid|idno|idnum|idx|rowid|rownames?|rownum|recno"
WEAK_ID_WORDS = "index|key|nr|no|num|number|row|record|serial"
GROUP_WORDS = (
    "patient|subject|person|people|user|customer|client|session|document|donor|household|family"
    "|speaker|writer|group"
)


class Leak(NamedTuple):
    """A column that alone predicts the label."""

    share: float  #: of held-out rows that it gets right
    #: What about it does: "" for its values, "class" for a value that stands for one class,
    #: "words", "missingness", or which of its rows, "filled" or "missing", are of one class.
    by: str = ""


class Agreement(NamedTuple):
    """How often two rows of one value have one label."""

    share: float
    chance: float


@dataclass(frozen=True)
class Screening:
    """What was found."""

    #: Column → why it is taken for an id; such columns are left out.
    ids: dict[str, str] = field(default_factory=dict)
    #: Column → why it may be one; kept.
    suspects: dict[str, str] = field(default_factory=dict)
    leaks: dict[str, Leak] = field(default_factory=dict)
    groups: dict[str, Agreement] = field(default_factory=dict)
    #: Columns that are sorted in a table that is sorted by its label.
    ordered: list[str] = field(default_factory=list)
    #: Dates along which labels come in runs.
    in_runs: list[str] = field(default_factory=list)

    def without(
        self, columns: Container[str], ids_too: Container[str] = ()
    ) -> Screening:
        """The findings without some columns; ``ids_too`` are no longer taken for ids."""

        def kept(found: dict[str, T]) -> dict[str, T]:
            return {name: own for name, own in found.items() if name not in columns}

        ids = {name: why for name, why in self.ids.items() if name not in ids_too}
        return Screening(
            ids=kept(ids),
            suspects=kept(self.suspects),
            leaks=kept(self.leaks),
            groups=kept(self.groups),
            ordered=list(kept(dict.fromkeys(self.ordered))),
            in_runs=list(kept(dict.fromkeys(self.in_runs))),
        )

    def notes(self) -> list[str]:
        """About ids, with what to do in Python (``for_terminal`` makes options of it)."""
        ids = [
            f"column {name!r} is left out: {why} (keep=[{name!r}] uses it)"
            for name, why in self.ids.items()
        ]
        return ids + [
            f"column {name!r} {why}: if it names rows, leave it out (drop=[{name!r}])"
            for name, why in self.suspects.items()
        ]

    def cautions(self) -> list[str]:
        """What makes S look better than it is."""
        found = [_leak_caution(name, leak) for name, leak in self.leaks.items()]
        for name, (share, chance) in self.groups.items():
            found.append(
                f"rows with the same {name!r} have the same label {share:.0%} of the time "
                f"({chance:.0%} by chance): if it names patients, documents or the like, S is too "
                f"optimistic about new ones. Keep their rows in one fold with groups=X[{name!r}], "
                f"which also leaves the column out"
            )
        found.extend(
            f"column {name!r} is sorted, and so are the labels: if rows were collected class "
            f"by class, it tells the class by the time or place of collection; leave it out "
            f"then (drop=[{name!r}])"
            for name in self.ordered
        )
        found.extend(
            f"labels come in runs along {name!r}: rows near each other in time share their "
            f"label, so S is too optimistic about a later time. Keep rows of one period in one "
            f"fold (groups=), or leave the column out (drop=[{name!r}])"
            for name in self.in_runs
        )
        return found


def _leak_caution(name: str, leak: Leak) -> str:
    facts = {
        "": f"column {name!r} alone predicts the label on {leak.share:.1%} of held-out rows",
        "class": f"a value of column {name!r} tells one class from the others on {leak.share:.1%} "
        f"of the rows",
        "words": f"words in column {name!r} predict the label on {leak.share:.1%} of held-out rows",
        "missingness": f"whether column {name!r} has a value tells one class from the others on "
        f"{leak.share:.1%} of the rows",
        "filled": f"{leak.share:.1%} of the rows with a value in {name!r} are of one class",
        "missing": f"{leak.share:.1%} of the rows without a value in {name!r} are of one class",
    }
    return (
        f"{facts[leak.by]} (target leakage?): if it is only known once the label is, leave it out "
        f"(drop=[{name!r}]), or the result says that nothing collides"
    )


def screen(table: pd.DataFrame, y: Array, *, keep: Container[str] = ()) -> Screening:
    """Look for ids, leaks, groups and order among the columns of ``table``.

    Columns in ``keep`` are no ids. Rows without a label count for ids alone, so that the whole
    table can be screened before rows are left out or sampled.

    >>> table = pd.DataFrame(
    ...     {"ID": range(1, 101), "x": np.random.default_rng(0).random(100)}
    ... )
    >>> screen(table, np.arange(100) % 2).ids
    {'ID': 'it counts the rows'}
    """
    found = Screening()
    if len(table) < FEWEST_ROWS:
        return found
    rows = np.flatnonzero(pd.notna(y))
    labels = Labels.of(y[rows], table.iloc[rows])
    for _, series in table.items():
        column = Column.of(series)
        verdict = id_verdict(column, table.index)
        if verdict is not None and column.name not in keep:
            if verdict.certain:
                found.ids[column.name] = verdict.why
                continue
            found.suspects[column.name] = verdict.why
        if len(rows) >= FEWEST_FOR_LEAKS:
            _judge(column.take(rows), labels, found)
    return found


class Labels(NamedTuple):
    """The class numbers of the rows that have a label."""

    codes: IntArray
    n_classes: int
    chance: float  #: that two rows have the same label
    largest: float  #: share of the largest class
    table: pd.DataFrame

    @classmethod
    def of(cls, y: Array, table: pd.DataFrame) -> Labels:
        codes, names = pd.factorize(y)
        shares = np.bincount(codes, minlength=1) / max(len(codes), 1)
        chance = float((shares**2).sum())
        return cls(codes, len(names), chance, float(shares.max()), table)

    @property
    def fewest_groups(self) -> int:
        """Fewer values than this are an ordinary category, not names of groups."""
        return max(10, 3 * self.n_classes)

    def in_runs(self, order: IntArray) -> bool:
        """Do labels change far less often, in this order of the rows, than by chance?"""
        changes = int((np.diff(self.codes[order]) != 0).sum())
        expected = len(order) * (1 - self.chance)
        sorted_by_class = changes < self.n_classes and 4 * self.n_classes <= len(order)
        return sorted_by_class or changes <= 0.2 * expected

    def distinct_rows(self) -> IntArray:
        """The first of identical rows, label included."""
        hashes = _rows.row_hashes(self.table)
        pairs = np.column_stack([hashes, self.codes.astype(np.uint64)])
        return np.sort(np.unique(pairs, axis=0, return_index=True)[1])


@dataclass(frozen=True)
class Column:
    """One column as the screening sees it; arrays have an entry per row."""

    name: str
    kind: str  #: "number", "date" or "words"
    missing: BoolArray
    n_values: int  #: different values
    #: Numbers, or the seconds of dates; nan where missing.
    numbers: FloatArray | None = None
    parts: FloatArray | None = None  #: of dates
    #: Numbers of the values, -1 where missing; None for measurements that hardly repeat.
    levels: IntArray | None = None
    words: list[str] = field(default_factory=list)  #: the values, where they are words
    whole: bool = False  #: whether all numbers are whole
    integers: bool = False  #: whether they are stored so

    @classmethod
    def of(cls, series: pd.Series) -> Column:
        """A column of a table, by its type or by what its words say."""
        name = str(series.name)
        cells = read_cells(series)
        if cells.kind == "number":
            return cls._of_numbers(name, cells.values[:, 0], series)
        codes = cells.codes
        n_values = len(cells.words)
        if cells.kind == "words":
            return cls(
                name, "words", codes < 0, n_values, levels=codes, words=cells.words
            )
        seconds = cells.values[:, DATE_PARTS.index("total_seconds")]
        return cls(
            name,
            "date",
            np.isnan(seconds),
            n_values,
            numbers=seconds,
            parts=cells.values,
            levels=codes,
        )

    @classmethod
    def _of_numbers(cls, name: str, numbers: FloatArray, exact: pd.Series) -> Column:
        """Numbers; ``exact`` holds them where they may be too large for a float."""
        missing = np.isnan(numbers)
        filled = numbers[~missing]
        integers = pd.api.types.is_integer_dtype(exact.dtype)
        levels = None
        if integers:
            levels = np.asarray(pd.factorize(exact)[0], dtype=np.intp)
            n_values = int(levels.max()) + 1
        else:
            n_values = int((np.diff(np.sort(filled)) != 0).sum()) + min(len(filled), 1)
            if 2 * n_values <= len(numbers):
                levels = np.asarray(pd.factorize(numbers)[0], dtype=np.intp)
        return cls(
            name=name,
            kind="number",
            missing=missing,
            n_values=n_values,
            numbers=numbers,
            levels=levels,
            whole=bool((filled == np.round(filled)).all()),
            integers=integers,
        )

    def take(self, rows: IntArray) -> Column:
        """The column with some of the rows, in this order."""
        levels = taken(self.levels, rows)
        n_values = self.n_values
        if levels is not None:
            n_values = len(np.unique(levels[levels >= 0]))
        return replace(
            self,
            missing=self.missing[rows],
            n_values=n_values,
            numbers=taken(self.numbers, rows),
            parts=taken(self.parts, rows),
            levels=levels,
        )


# ---------------------------------------------------------------- ids


class Verdict(NamedTuple):
    """Whether a column is an id, and why."""

    certain: bool
    why: str


def is_id_name(name: str, weak: bool = True) -> bool:
    """Does the name of a column say that it names rows? Letter case does not matter.

    >>> [
    ...     is_id_name(name)
    ...     for name in ("ID", "customerId", "Unnamed: 0", "paid", "row names")
    ... ]
    [True, True, True, False, True]
    """
    tokens = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    parts = [token.lower() for token in tokens]
    if not parts:
        return name.strip() == "#"
    if name.startswith("__index_level"):
        return True
    if parts[0] in ("id", "unnamed"):
        return True
    if weak and re.fullmatch(WEAK_ID_WORDS, parts[-1]):
        return True
    return any(re.fullmatch(ID_WORDS, word) for word in (parts[-1], "".join(parts)))


def is_group_name(name: str) -> bool:
    """Does the name of a column say that it names patients, documents or the like?

    >>> [
    ...     is_group_name(name)
    ...     for name in ("patientID", "Subject no", "userid", "Personal")
    ... ]
    [True, True, True, False]
    """
    group = re.compile(rf"({GROUP_WORDS})(s|ids?|no|nr|num|names?|numbers?|codes?)?")
    tokens = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return any(group.fullmatch(token.lower()) for token in tokens)


def id_verdict(column: Column, index: pd.Index) -> Verdict | None:
    """Whether the values of a column name the rows, or None where they do not."""
    filled = ~column.missing
    n_filled = int(filled.sum())
    if n_filled < 0.9 * len(filled) or column.kind == "date":
        return None
    named = is_id_name(column.name)
    if column.n_values < n_filled:
        if (
            named
            and column.n_values >= 0.9 * n_filled
            and (column.words or column.whole)
        ):
            return Verdict(True, "nearly every value differs, as ids do")
        return None
    every = Verdict(True, "every value differs, as ids do")
    if column.numbers is not None:
        if not column.whole:  # fractions are measurements
            return None
        if counts_rows(column.numbers[filled], index[filled]):
            return Verdict(True, "it counts the rows")
        if not named and column.integers:
            return Verdict(False, "differs in every row")
        return every if named else None
    if named:
        return every
    if len(amounts(column.words)) >= 0.9 * column.n_values:
        return None
    words_per_cell = np.mean([len(word.split()) for word in column.words])
    return every if words_per_cell < 1.5 else None  # free text has more


def counts_rows(numbers: FloatArray, index: pd.Index) -> bool:
    """Are different whole numbers a counter of the rows, also after some rows were left out?

    ``index`` is that of the table: after ``table.sample(…)`` it still counts the rows.
    """
    n = len(numbers)
    spread = numbers.max() - numbers.min()
    if spread + 1 == n:
        return True
    if pd.api.types.is_integer_dtype(index.dtype):
        offsets = numbers - index.to_numpy(dtype=np.float64)
        if np.ptp(offsets) == 0:
            return True
    steps = np.diff(numbers)
    if not ((steps > 0).all() or (steps < 0).all()):
        return False
    # Evenly spread, as in a sample of a counter: the largest of n gaps is about log(n) times the
    # mean. Sorted measurements have longer tails.
    gaps = np.abs(steps)
    return bool(gaps.max() <= 3 * np.log(n) * gaps.mean())


# ---------------------------------------------------------------- leaks, groups, order


def _judge(column: Column, labels: Labels, found: Screening) -> None:
    """Note in ``found`` what a column says about the labels of its rows."""
    name = column.name
    named = is_group_name(name) or is_id_name(name, weak=False)
    measured = column.kind == "number" and not named
    agree = group_agreement(column, labels, named)
    leak = find_leak(column, labels)
    if (
        leak is None
        and agree is not None
        and measured
        and follows_value(column, labels)
    ):
        leak = level_leak(column, labels)
        agree = None
    if leak is not None and (agree is None or measured or leak.by):
        found.leaks[name] = leak
    elif agree is not None:
        found.groups[name] = agree
    elif column.kind == "number" and is_sorted_with_labels(column, labels):
        found.ordered.append(name)
    elif column.kind == "date" and has_runs(column, labels):
        found.in_runs.append(name)


def group_agreement(column: Column, labels: Labels, named: bool) -> Agreement | None:
    """How far rows of one value agree in their label, where values look like names of groups.

    Agreement is measured from chance (0) to certainty (1); a name like that of an id needs less.
    Without such a name most rows must have the label of the others of their value.
    """
    if column.levels is None:
        return None
    needed = 0.25 if named else 0.9
    enough = labels.chance + needed * (1 - labels.chance)
    if _agreement(column.levels, labels.codes, labels) < enough:
        return None
    if not named and level_accuracy(column.levels, labels.codes) < 0.95:
        return None
    # of rows that repeat as a whole, one each
    once = labels.distinct_rows()
    share = _agreement(column.levels[once], labels.codes[once], labels)
    if share < enough:
        return None
    return Agreement(share, labels.chance)


def _agreement(levels: IntArray, codes: IntArray, labels: Labels) -> float:
    """How often two rows of one level have the same label; 0 where levels are no groups of rows."""
    used = levels >= 0
    n_levels = len(np.unique(levels[used]))
    if n_levels < labels.fewest_groups or 2 * n_levels > used.sum():
        return 0.0
    return _rows.agreement(levels[used], codes[used])


def follows_value(column: Column, labels: Labels) -> bool:
    """Do labels change rarely along the values, as along those of a measurement?

    The labels of names of groups have nothing to do with the order of the names.
    """
    if column.numbers is None:
        return False
    order = np.lexsort((labels.codes, column.numbers))
    _, first = np.unique(column.numbers[order], return_index=True)
    changes = (np.diff(labels.codes[order][first]) != 0).mean()
    return bool(changes <= 0.5 * (1 - labels.chance))


def is_sorted_with_labels(column: Column, labels: Labels) -> bool:
    """Is the column sorted in a table that is sorted by its label?"""
    if column.numbers is None or column.n_values <= labels.n_classes + 8:
        return False
    places = np.flatnonzero(~column.missing)
    if len(places) < FEWEST_ROWS or not labels.in_runs(np.arange(len(labels.codes))):
        return False
    correlation = spearmanr(column.numbers[places], places).statistic
    return bool(abs(correlation) >= 0.99)


def has_runs(column: Column, labels: Labels) -> bool:
    """Do labels come in runs along the dates, in whichever order the rows are?"""
    places = np.flatnonzero(~column.missing)
    if column.numbers is None or column.n_values <= labels.n_classes + 8:
        return False
    if len(places) < FEWEST_FOR_LEAKS:
        return False
    # Rows of one date in no order.
    shuffled = np.random.default_rng(0).permutation(places)
    by_number = np.argsort(column.numbers[shuffled], kind="stable")
    return labels.in_runs(shuffled[by_number])


def find_leak(column: Column, labels: Labels, most_rows: int = 20_000) -> Leak | None:
    """What about one column predicts the label, or None; more rows would not change the verdict."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(labels.codes))[:most_rows]
    codes = labels.codes[rows]
    part = column.take(rows)
    filled = missingness_leak(part.missing, codes, labels)
    if filled is not None:
        return filled
    shares = []
    if part.levels is not None and part.n_values < labels.fewest_groups:
        shares.append(level_accuracy(part.levels, codes))
    if part.kind == "number" and part.numbers is not None:
        shares.append(number_accuracy(part.numbers, codes))
    if part.parts is not None:
        shares.append(tree_accuracy(_without_gaps(part.parts), codes))
    best = max(shares, default=0.0)
    if _is_leak(best, labels.largest, len(codes)):
        return Leak(best)
    of_class = class_leak(part, codes, labels)
    if of_class is not None:
        return of_class
    if part.words and part.n_values > 20:
        share = text_accuracy(part, codes)
        if _is_leak(share, labels.largest, len(codes)):
            return Leak(share, "words")
    return None


def class_leak(column: Column, codes: IntArray, labels: Labels) -> Leak | None:
    """Does a value stand for one of several classes, as in the dummy columns of a label?"""
    levels = column.levels
    if (
        levels is None
        or labels.n_classes < 3
        or column.n_values >= labels.fewest_groups
    ):
        return None
    sizes = np.bincount(codes, minlength=labels.n_classes)
    shares = []
    for level in np.unique(levels[levels >= 0]):
        own = np.bincount(codes[levels == level], minlength=labels.n_classes)
        shares.append(_one_class_only(own, sizes) or 0.0)
    best = max(shares, default=0.0)
    return Leak(best, "class") if best else None


def level_leak(column: Column, labels: Labels) -> Leak | None:
    """Do values that repeat predict the label?"""
    if column.levels is None:
        return None
    share = level_accuracy(column.levels, labels.codes)
    if not _is_leak(share, labels.largest, len(labels.codes)):
        return None
    return Leak(share)


def _is_leak(share: float, largest: float, n_rows: int) -> bool:
    """Is 98% right, and at most a fifth of the errors left that the largest class makes?

    Half a standard error is allowed for: with few rows 98% may come out as 97.5%.
    """
    naive_errors = 1 - largest
    most = 0.02 + 0.5 * np.sqrt(0.02 * 0.98 / n_rows)
    return 1 - share <= min(most, 0.2 * naive_errors) and naive_errors * n_rows >= 5


def missingness_leak(
    missing: BoolArray, codes: IntArray, labels: Labels
) -> Leak | None:
    """Does it tell a class from the others whether a cell is filled?

    Either a class is filled (or missing) and no other is, or the filled (or missing) rows are of
    one class alone, far beyond chance.
    """
    if not missing.any() or missing.all():
        return None
    sizes = np.bincount(codes, minlength=labels.n_classes)
    n_missing = np.bincount(codes[missing], minlength=labels.n_classes)
    n_filled = sizes - n_missing
    for own in (n_filled, n_missing):
        share = _one_class_only(own, sizes)
        if share is not None:
            return Leak(share, "missingness")
    for own, state in ((n_filled, "filled"), (n_missing, "missing")):
        purity = _purity(own, sizes)
        if purity is not None:
            return Leak(purity, state)
    return None


def _one_class_only(own: IntArray, sizes: IntArray) -> float | None:
    """Share of rows that are right where one class, of ``sizes``, is taken for the ``own`` rows."""
    n = int(sizes.sum())
    # Rows of other classes, and rows of the class elsewhere.
    wrong = own.sum() - own + sizes - own
    best = int(wrong.argmin())
    share = 1 - float(wrong[best]) / n
    largest = max(sizes[best], n - sizes[best]) / n
    if not _is_leak(share, largest, n):
        return None
    return share


def _purity(own: IntArray, sizes: IntArray) -> float | None:
    """Share of the largest class among ``own`` rows; None where chance, or few rows, explain it."""
    n = int(own.sum())
    best = int(own.argmax())
    purity = float(own[best] / n)
    n_all = sizes.sum()
    # log of the probability that all are of this class
    by_chance = n * np.log(sizes[best] / n_all)
    if n < 0.05 * n_all or by_chance > np.log(1e-6) or purity < 0.995:
        return None
    return purity


def level_accuracy(levels: IntArray, codes: IntArray) -> float:
    """Share of rows whose class is that of most other rows of their level.

    Every row is left out of the count that judges it. Rows that are alone in their level are not
    judged; 0 where these are the majority. A missing cell is a level like any other.
    """
    rows = pd.DataFrame({"level": levels, "class": codes})
    counts = rows.value_counts()  # largest first
    of_level = counts.groupby(level="level")
    sizes = of_level.sum()
    n_judged = int(sizes[sizes > 1].sum())
    if 2 * n_judged < len(codes):
        return 0.0
    # Right are the rows of the largest class, if it leads even without one of them.
    largest = of_level.nth(0).droplevel("class")
    second = of_level.nth(1).droplevel("class")
    second = second.reindex(largest.index, fill_value=0)
    leads = largest.to_numpy() - second.to_numpy() > 1
    return int(largest.to_numpy()[leads].sum()) / n_judged


def number_accuracy(numbers: FloatArray, codes: IntArray) -> float:
    """Share of held-out rows whose class a tree of one number tells; 0 when it is hopeless."""
    values = _without_gaps(numbers[:, None])
    # In the order of the values a leak has few changes of class: one per leaf, and two per error.
    order = np.lexsort((codes, values[:, 0]))
    n_changes = (np.diff(codes[order]) != 0).sum()
    errors = 0.02 * len(codes)
    if n_changes > _n_leaves(codes) + 4 * errors:
        return 0.0
    return tree_accuracy(values, codes)


def _without_gaps(numbers: FloatArray) -> FloatArray:
    """Numbers that a tree in float32 can hold, missing ones below all others."""
    lowest = np.nanmin(numbers, axis=0, initial=0.0)
    filled = np.where(np.isnan(numbers), lowest - 1 - np.abs(lowest), numbers)
    centred = filled - np.median(filled, axis=0)
    return centred.clip(-1e30, 1e30)


def _n_leaves(codes: IntArray) -> int:
    return int(codes.max()) + 1 + 8


def tree_accuracy(
    values: FloatArray | csr_array, codes: IntArray, few_rows: int = 2000
) -> float:
    """Share of held-out rows whose class a small tree tells; the rows are in random order.

    Few rows are held out in five folds, of many rows the second half. Rows of a class that the
    training rows do not have are not judged.
    """
    places = np.arange(len(codes))
    folds = [places >= len(codes) // 2]
    if len(codes) <= few_rows:
        folds = [places % 5 == k for k in range(5)]
    tree = DecisionTreeClassifier(
        max_leaf_nodes=_n_leaves(codes), min_samples_leaf=2, random_state=0
    )
    right = []
    for held_out in folds:
        trained = codes[~held_out]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # many classes, few rows
            tree.fit(values[~held_out], trained)
        own = codes[held_out]
        hits = tree.predict(values[held_out]) == own
        right.append(hits[np.isin(own, trained)])
    judged = np.concatenate(right)
    if not len(judged):
        return 0.0
    return float(judged.mean())


def text_accuracy(column: Column, codes: IntArray, most_rows: int = 4000) -> float:
    """Like :func:`tree_accuracy`, for the words of texts or paths, which may name the class."""
    codes = codes[:most_rows]
    levels = np.asarray(column.levels)[:most_rows]
    texts = [*column.words, ""]
    vectorizer = CountVectorizer(
        binary=True,
        token_pattern=r"[^\W\d_]+|\d+",
        min_df=2,
        max_features=1000,
        dtype=np.float32,
    )
    try:
        words = vectorizer.fit_transform([texts[level] for level in levels])
    except ValueError:  # no word occurs twice
        return 0.0
    return tree_accuracy(words.tocsr(), codes)
