"""Hostile data: each case is refused by name, answered with a warning, or answered without one; all are run.

docs/reliability-data.md shows the same table; ``python tests/test_hostile_data.py`` writes it.
"""

import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import model_selection
from sklearn.linear_model import LogisticRegression

import collidescope as cs
from collidescope.estimate import cautions

PAGE = Path(__file__).parents[1] / "docs" / "reliability-data.md"
MARKS = "<!-- hostile -->", "<!-- /hostile -->"
TINY = {"members": ["linear"], "limit": False, "cv": 2, "random_state": 0}
N = 120
NAN, INF = float("nan"), float("inf")

rng = np.random.default_rng(0)
y = np.arange(N) % 3
X = rng.normal(size=(N, 2)) + 2 * np.column_stack([y, y == 1])
NOISE = rng.normal(size=(N, 500))
LEVELS = np.array(["u", "v", "w"])[rng.integers(0, 3, N)]
FIRST = np.arange(N)[:, None] == 0
ONES = np.ones(N)


def fit(features=X, labels=y, weight=None, **changes):
    return cs.CollisionClassifier(**(TINY | changes)).fit(features, labels, weight)


def estimate(features=X, labels=y, **changes):
    options = {"limit": False, "random_state": 0} | changes
    return cs.estimate_collisions(
        LogisticRegression(max_iter=500), features, labels, **options
    )


def table(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": LEVELS} | columns)


def fit_table(**columns):
    return cs.TableClassifier(**TINY).fit(table(**columns), y)


def fit_runs():
    """A class lasts for ten days."""
    days = pd.DataFrame(
        {"a": rng.normal(size=N), "day": pd.date_range("2024-01-01", periods=N)}
    )
    return cs.TableClassifier(**TINY).fit(days, rng.permutation(12).repeat(10) % 3)


def names(*labels):
    """One label a class, as a list: what numpy would make of it is part of the case."""
    return [labels[k] for k in y]


def value(result) -> cs.CollisionMatrix:
    return (
        result if isinstance(result, cs.CollisionMatrix) else result.collision_matrix_
    )


def near(expected: Callable[[], Any], within: float):
    """S is that of another call, up to ``within``."""
    return lambda result: (
        np.abs(value(result).matrix - value(expected()).matrix).max() <= within
    )


def equal_rows(result) -> bool:
    """Every row of S is the priors: nothing can be told apart."""
    return np.abs(value(result).matrix - 1 / 3).max() < 0.05


def identity_inside(result) -> bool:
    low, high = result.collision_matrix_.interval()
    return bool(((low <= np.eye(3) + 1e-12) & (np.eye(3) <= high + 1e-12)).all())


def on_simplex(posteriors) -> bool:
    return bool(
        np.isfinite(posteriors).all()
        and np.allclose(posteriors.sum(axis=1), 1)
        and posteriors.min() >= 0
    )


def noted(words: str):
    return lambda result: any(words in note for note in result.notes_)


def classes(*expected):
    def same(result):
        found = value(result).classes.tolist()
        return found == list(expected) and list(map(type, found)) == list(
            map(type, expected)
        )

    return same


def half_copied():
    measured = np.repeat(rng.normal(size=(200, 2)), 3, axis=0)
    codes = rng.integers(0, 4, (200, 2)) * 1.0
    labels = np.concatenate(
        [np.repeat(rng.integers(0, 2, 200), 3), rng.integers(0, 2, 200)]
    )
    return np.vstack([measured, codes]), labels


def codes_copied():
    """Discrete rows three times, beside separate rows of the same kind of codes."""
    codes = np.repeat(rng.integers(0, 6, (200, 3)), 3, axis=0)
    separate = np.repeat(rng.integers(0, 2, (200, 1)), 3, axis=1)
    labels = [np.repeat(rng.integers(0, 2, 200), 3), rng.integers(0, 2, 200)]
    return np.vstack([codes, separate]) * 1.0, np.concatenate(labels)


def separate_codes():
    """Discrete rows that repeat by chance, most with the label of the others."""
    codes = rng.integers(0, 4, (400, 3))
    return codes * 1.0, (codes.sum(axis=1) > 4) ^ (rng.random(400) < 0.1)


def votes_without_a_lead():
    """Class 1 gets votes, and leads nowhere."""
    return np.array([[3, 1, 0], [0, 1, 3], [4, 0, 2]])[y]


class Case(NamedTuple):
    """``how`` is "refused", "warned" or "answered"; ``says`` is a pattern of the message, ``then`` a further check."""

    how: str
    data: str
    call: str
    run: Callable[[], Any]
    says: str
    happens: str
    then: Callable[[Any], Any] = lambda result: True


FIT, TABLE, ESTIMATE = (
    "`CollisionClassifier.fit`",
    "`TableClassifier.fit`",
    "`estimate_collisions`",
)
PREDICT, POSTERIORS, COUNT = (
    "`predict_proba`",
    "`collision_matrix_from_posteriors`",
    "`count_collisions`",
)
refused, warned = partial(Case, "refused"), partial(Case, "warned")


def answered(data, call, run, happens, then=lambda result: True):
    return Case("answered", data, call, run, "", happens, then)


COPIES = "rows have a copy, with the same label, in another fold.*drop_duplicates.*groups=.*count_collisions"

# fmt: off
CASES = {
    "Features": [
        answered("a constant feature", FIT, lambda: fit(np.column_stack([X, np.full(N, 7.0)])),
            "taken out: S as without it", near(fit, 0.02)),
        warned("every feature constant", FIT, lambda: fit(np.ones((N, 2))), "no better than the priors",
            "every row of S is the priors", equal_rows),
        warned("every row twice", FIT, lambda: fit(np.repeat(X, 2, axis=0), np.repeat(y, 2)), COPIES,
            "counts the copies, gives PBER with and without them, and says what to do"),
        warned("200 measured rows three times beside 200 rows of codes", FIT, lambda: fit(*half_copied()), COPIES,
            "judged input by input: the codes are no copies"),
        warned("200 rows of codes three times beside 200 other rows of codes", FIT, lambda: fit(*codes_copied()), COPIES,
            "judged by how often rows occur: labels alone would not tell"),
        answered("rows of codes that repeat by chance", FIT, lambda: fit(*separate_codes()), "no copies are said"),
        answered("values of 1e300", FIT, lambda: fit(X * 1e300), "S as in any other unit", near(fit, 1e-6)),
        answered("denormal values (1e-310)", FIT, lambda: fit(X * 1e-310), "S as in any other unit", near(fit, 1e-6)),
        answered("values of ±1.7e308 only", FIT, lambda: fit(np.sign(X) * 1.7e308),
            "no overflow: classes are told apart", lambda result: result.collision_matrix_.pber < 0.55),
        answered("one row of 1e300 among ordinary ones", FIT, lambda: fit(np.where(FIRST, 1e300, X)),
            "brought back to 20 scales from the centre: the others still tell the classes apart",
            lambda result: result.collision_matrix_.pber < 0.5),
        answered("an offset of 1e9 (times in seconds)", FIT, lambda: fit(X + 1e9), "S as without it", near(fit, 1e-6)),
        refused("a cell that is NaN", FIT, lambda: fit(np.where(FIRST, NAN, X)), "X contains NaN.*TableClassifier",
            "names X, NaN, and `TableClassifier`, which takes gaps"),
        refused("a cell that is infinite", FIT, lambda: fit(np.where(FIRST, INF, X)), "X contains infinity",
            "names X and infinity"),
        refused("masked values", FIT, lambda: fit(np.ma.array(X, mask=X > 2)), "X has masked values",
            "numpy would use them as if they were not masked"),
        refused("text", FIT, lambda: fit(np.array([["a", "b"]] * N)), "X must hold numbers.*TableClassifier",
            "names `TableClassifier`, which takes text"),
        refused("complex numbers", FIT, lambda: fit(X + 1j), "X must hold real numbers",
            "the imaginary part is not lost"),
        refused("two columns of one name", FIT, lambda: fit(pd.DataFrame(X, columns=["a", "a"])),
            "X has the column 'a' more than once", "names the column"),
        answered("dates", FIT, lambda: fit((X * 1e6).astype("datetime64[s]")), "numbers like any other",
            near(fit, 0.02)),
        answered("booleans", FIT, lambda: fit(X > 1), "0 and 1: S to the last bit",
            near(lambda: fit((X > 1) * 1.0), 0)),
        answered("whole numbers up to 2⁶⁴ - 1", FIT,
            lambda: fit(np.array([0, 2**64 - 1], dtype=np.uint64)[(X > 1).astype(int)]),
            "no overflow: an answer as of 0 and 1", near(lambda: fit((X > 1) * 1.0), 0.1)),
        warned("500 features of noise and 120 rows", FIT, lambda: fit(NOISE), "no better than the priors",
            "every row of S is the priors, nothing is learned by heart", equal_rows),
        refused("no feature", FIT, lambda: fit(np.empty((N, 0))), r"0 feature\(s\)", "says how many are needed"),
        answered("images", FIT, lambda: fit(X[:, :, None]), "flat for models that need it", near(fit, 1e-6)),
        refused("NaN within a sparse matrix", FIT, lambda: fit(sp.csr_matrix(np.where(FIRST, NAN, X))),
            "X contains NaN", "names X and NaN"),
    ],
    "Tables": [
        answered("a column without values", TABLE, lambda: fit_table(c=NAN), "left out; `notes_` says so",
            noted("column 'c' is left out: it has no values")),
        warned("dates along which labels come in runs", TABLE, lambda: fit_runs(), "labels come in runs along 'day'",
            "names the column; `groups=` keeps periods together"),
        warned("a column filled for one class only", TABLE, lambda: fit_table(c=np.where(y == 1, "seen", None)),
            "whether column 'c' has a value tells one class", "names the column"),
        warned("paths that name the class", TABLE,
            lambda: fit_table(c=[f"/{'pqr'[k]}/{n % 20}.png" for n, k in enumerate(y)]),
            "words in column 'c' predict the label", "names the column"),
        answered("amounts such as $1,234.50", TABLE, lambda: fit_table(c=[f"${v:,.2f}" for v in 2000 + 500 * X[:, 1]]),
            "numbers; `notes_` says so", noted("column 'c': text is read as numbers (such as '$")),
        answered("a column that counts the rows", TABLE, lambda: fit_table(c=np.arange(N)),
            "left out; `notes_` says so and how to keep it", noted("column 'c' is left out: it counts the rows")),
        answered("infinite cells", TABLE, lambda: fit_table(c=np.where(rng.random(N) < 0.2, INF, X[:, 1])),
            "taken as missing; `notes_` says how many",
            noted("cells are not numeric, taken as missing (such as 'inf')")),
        answered("a column of values near 1e300", TABLE, lambda: fit_table(c=X[:, 1] * 1e300),
            "S as in any other unit", near(lambda: fit_table(c=X[:, 1]), 1e-4)),
        warned("a column that is the label", TABLE, lambda: fit_table(c=np.array(["p", "q", "r"])[y]),
            "column 'c' alone predicts the label", "names the column"),
        warned("every row twice", TABLE,
            lambda: cs.TableClassifier(**TINY).fit(pd.concat([table()] * 2), np.tile(y, 2)), COPIES, "as above"),
        warned("levels that training did not have", PREDICT, lambda: fit_table().predict_proba(table(b="new")),
            "column 'b'.*not among the levels of training.*'new'", "posteriors of the other columns", on_simplex),
        answered("missing numbers where training had none", PREDICT, lambda: fit_table().predict_proba(table(a=NAN)),
            "the median stands in", on_simplex),
        refused("a column is gone", PREDICT, lambda: fit_table().predict_proba(table().drop(columns="b")),
            "X lacks a column that the model was fitted on: 'b'", "names the column"),
    ],
    "Classes": [
        answered("perfectly separable", FIT, lambda: fit(X * 0.01 + 10 * np.column_stack([y, y == 1])),
            "S = I lies within the intervals", identity_inside),
        refused("one class with a single row", FIT, lambda: fit(labels=np.where(np.arange(N) == 0, 7, y)),
            "class 7 of y is in 1 of the rows.*rare='drop'.*rare='merge'", "says what leaves it out and what joins it"),
        warned("one class with 2 members among 2,000, `cv=2`", FIT,
            lambda: fit(np.arange(2e3)[:, None], np.arange(2000) > 1997), "no better than the priors",
            "S says that the class cannot be told from the other",
            lambda result: value(result).matrix[1, 1] < 0.1 and result.collision_matrix_.interval()[1][1, 1] > 0.2),
        answered("as many classes as rows", POSTERIORS,
            lambda: cs.collision_matrix_from_posteriors(np.full((N, N), 1 / N), np.arange(N)),
            "S from one row a class", lambda cm: np.allclose(cm.matrix, 1 / N)),
        refused("one class", FIT, lambda: fit(labels=np.zeros(N)), "y holds a single class",
            "says that two are needed"),
        refused("a prior of 0, or of 1e-300", FIT, lambda: fit(priors=[1e-300, 0.5, 0.5]),
            "priors must be positive, got 1e-300 for class number 0", "leave such a class out"),
        warned("a prior of 1e-12", FIT, lambda: fit(priors=[1e-12, 0.5, 0.5 - 1e-12]), "nearly singular",
            "S is finite; that class is never seen again", lambda result: value(result).matrix[0, 0] < 1e-9),
    ],
    "Labels": [
        refused('text and numbers in one list (`1`, `"1"`)', FIT, lambda: fit(labels=names(1, "1", "b")),
            r"y mixes labels of kinds \['int', 'str'\]", "numpy would make one class of two"),
        refused("`1` and `True`", FIT, lambda: fit(labels=names(1, True, 2)),
            r"y mixes labels of kinds \['bool', 'int'\]", "Python takes them for equal"),
        refused("missing labels (None, NA)", FIT,
            lambda: fit(labels=pd.Series(names("a", "b", None), dtype="string")), "y has 40 missing values",
            "says how many and where the first is"),
        refused("NaN among numbers", FIT, lambda: fit(labels=np.where(y == 2, NAN, y)),
            r"y has 40 missing values \(first at row 2\)", "says how many and where the first is"),
        refused("numbers with fractions", ESTIMATE, lambda: estimate(labels=y + 0.5),
            "y must hold classes.*continuous", "a regression target is no class"),
        refused("bytes", FIT, lambda: fit(labels=np.array([b"a", b"b", b"c"])[y]), "y must hold classes.*bytes",
            "decode them"),
        answered("names that end in a zero character", FIT, lambda: fit(labels=names("a", "a\0", "b")),
            "stay apart, though numpy cuts them", classes("a", "a\0", "b")),
        warned("names that only look alike (é as one character and as two)", FIT,
            lambda: fit(labels=names("e", "e\u0301", "é")), "differ only in spelling", "different classes",
            classes("e", "e\u0301", "é")),
        warned("Yes and yes, or 1, 1.0 and 01", FIT, lambda: fit(labels=names("1", "01", "1.0")),
            "classes '01', '1' and '1.0' differ only in spelling", "names them", classes("01", "1", "1.0")),
        warned("a zero-width space", ESTIMATE, lambda: estimate(labels=names("a", "a\u200b", "b")),
            "differ only in spelling", "names them"),
        warned("two spaces for one", POSTERIORS,
            lambda: cs.collision_matrix_from_posteriors(fit().posteriors_, names("a", "New York", "New  York")),
            "'New  York' and 'New York' differ only in spelling", "names them"),
        answered("long numbers that differ in the last digit", FIT,
            lambda: fit(labels=names("12345678901234567", "12345678901234568", "2")), "different classes"),
        answered("whole numbers around 2⁵³", FIT, lambda: fit(labels=np.array([3, 2**53, 2**53 + 1])[y]),
            "stay apart", classes(3, 2**53, 2**53 + 1)),
        answered("0.0 and -0.0", FIT, lambda: fit(labels=np.array([0.0, -0.0, 1.0])[y]), "one class: they are equal",
            classes(0.0, 1.0)),
        answered("a categorical with a level that has no rows", FIT,
            lambda: fit(labels=pd.Categorical(names("a", "b", "c"), categories=["z", "c", "b", "a"])),
            "the level is no class", classes("a", "b", "c")),
        warned("votes with a class that leads in no row", FIT, lambda: fit(labels=votes_without_a_lead()),
            "nearly singular", "S of all classes: that one cannot be told from the others", classes(0, 1, 2)),
        refused("votes with a class that one row has", FIT,
            lambda: fit(labels=votes_without_a_lead() * [1, 0, 1] + [0, 1, 0] * FIRST),
            "has votes for class 1 in no training row of fold", "names the class"),
        warned("votes that all stand there three times", "`collision_matrix_from_votes`",
            lambda: cs.collision_matrix_from_votes(3 * votes_without_a_lead()), "every count of votes is a multiple of 3",
            "says that PBER is too low"),
        refused("two columns", FIT, lambda: fit(labels=np.column_stack([y, y])), "pass one column", "taken as votes"),
    ],
    "Weights": [
        answered("zero for some rows", FIT, lambda: fit(weight=(np.arange(N) >= 30) * 1.0),
            "S as without those rows, to the bit", near(lambda: fit(X[30:], y[30:]), 0)),
        refused("zero for all", FIT, lambda: fit(weight=0 * ONES), "sample_weight is zero for every row", "says so"),
        warned("zero for a whole class", FIT, lambda: fit(weight=(y > 0) * 1.0), r"classes \[0\] have weight 0",
            "S of the other classes", classes(1, 2)),
        refused("NaN", FIT, lambda: fit(weight=np.where(y == 0, NAN, 1)), "sample_weight must be finite", "says where"),
        answered("1e300 everywhere", FIT, lambda: fit(weight=1e300 * ONES), "S as with 1", near(fit, 1e-6)),
        answered("1e-300 everywhere", ESTIMATE, lambda: estimate(sample_weight=1e-300 * ONES), "S as with 1",
            near(estimate, 1e-9)),
        refused("1e25 in one row, 1 in the others", FIT, lambda: fit(weight=np.where(np.arange(N) == 7, 1e25, 1)),
            r"gives row 7 \(1e\+25\) 100.00% of all weight.*120 rows count as 1.00", "names the row"),
        refused("1e-40 beside 1", FIT, lambda: fit(weight=np.where(y == 0, 1e-40, 1)),
            "sample_weight reaches from 1e-40 to 1", "as good as 0, and 0 says what is meant"),
    ],
    "New rows, posteriors, counts": [
        answered("new rows of ±1e308", PREDICT, lambda: fit().predict_proba([[1e308, -1e308]]),
            "posteriors on the simplex", on_simplex),
        answered("a feature that was constant in training", PREDICT,
            lambda: fit(np.column_stack([X, ONES])).predict_proba(np.column_stack([X, -1e308 * ONES])),
            "still not looked at", on_simplex),
        refused("a new row with NaN", PREDICT, lambda: fit().predict_proba([[NAN, 0.0]]), "X contains NaN",
            "names X and NaN"),
        warned("posteriors that are sure and wrong", POSTERIORS,
            lambda: cs.collision_matrix_from_posteriors(np.eye(3)[(y + 1) % 3], y),
            r"another order than the classes.*\[1, 2, 0\] on 100.0%",
            "says in which order the columns would fit; S falls to the priors", equal_rows),
        warned("posteriors in reversed order", POSTERIORS,
            lambda: cs.collision_matrix_from_posteriors(fit().posteriors_[:, ::-1], y),
            r"another order than the classes.*\[2, 1, 0\]", "says in which order the columns would fit"),
        warned("predicted classes for posteriors", POSTERIORS,
            lambda: cs.collision_matrix_from_posteriors(np.eye(3)[fit().posteriors_.argmax(axis=1)], y),
            "all 0 or 1.*twice the error rate", "asks for probabilities"),
        warned("posteriors of exactly 0 and 1, all right", POSTERIORS,
            lambda: cs.collision_matrix_from_posteriors(np.eye(3)[y], y), "are they made from the labels",
            "asks whether they are the labels; S = I, with intervals wider than 0",
            lambda cm: np.array_equal(cm.matrix, np.eye(3)) and cm.pber_interval()[1] > 0),
        answered("NaN among the inputs", COUNT,
            lambda: cs.count_collisions([[NAN], [NAN], [1.0], [1.0]], [0, 1, 0, 1]), "NaN equals NaN",
            lambda cm: cm.coverage == 1),
        answered("all inputs the same", COUNT, lambda: cs.count_collisions(np.ones(N), y),
            "S is the shares of the classes", equal_rows),
    ],
}
# fmt: on
ALL = [case for cases in CASES.values() for case in cases]


def sane(result) -> None:
    if isinstance(result, np.ndarray):
        return
    cm = value(result)
    assert np.isfinite(cm.matrix).all()
    assert cm.matrix.min() >= 0
    assert cm.matrix.sum(axis=1) == pytest.approx(np.ones(cm.n_classes), abs=1e-9)
    assert np.isfinite(cm.stderr).all()
    low, high = cm.interval()
    assert ((low >= 0) & (low <= cm.matrix) & (cm.matrix <= high) & (high <= 1)).all()
    assert 0 <= cm.pber_interval()[0] <= cm.pber_interval()[1] <= 1
    if not isinstance(result, cs.CollisionMatrix):
        posteriors = result.posteriors_
        assert on_simplex(posteriors[~np.isnan(posteriors).all(axis=1)])


@pytest.mark.parametrize(
    "case", ALL, ids=[f"{case.data}, {case.call.strip('`')}" for case in ALL]
)
def test_what_happens_is_what_the_table_says(case):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case.how == "refused":
            with pytest.raises(ValueError, match=re.compile(case.says, re.DOTALL)):
                case.run()
            return
        result = case.run()
    messages = [str(warning.message) for warning in caught]
    assert all(
        issubclass(warning.category, cs.CollisionWarning) for warning in caught
    ), messages
    if case.how == "answered":
        assert messages == []
    else:
        assert len(messages) >= 1
        assert any(re.search(case.says, words, re.DOTALL) for words in messages), (
            messages
        )
    sane(result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert case.then(result)


def test_posteriors_that_are_classes_are_said_without_labels():
    with pytest.warns(
        cs.CollisionWarning, match="all 0 or 1 .* say nothing of collisions"
    ):
        cs.collision_matrix_from_posteriors(np.eye(3)[y])


def test_a_matrix_with_a_range_says_what_unlimited_rows_would_leave():
    said = str(estimate(limit=True))
    assert "[PBER at the limit]" in said
    assert "was not estimated" not in said


def test_a_model_that_may_beat_the_priors_is_not_said_to_do_no_better():
    own = np.where(np.arange(20) < 14, 0.9, 0.3)
    posteriors = np.column_stack([own, 1 - own])
    one_step = cs.collision_matrix_from_posteriors(posteriors, np.arange(20) > 11)
    (said,) = cautions(one_step, one_step, 0.0)
    assert "the model may do no better than the priors" in said


def test_few_rows_do_not_say_that_a_model_does_no_better_than_the_priors():
    rows = np.arange(40)
    P = np.where(rows[:, None] % 2 == [0, 1], 0.66, 0.34)
    labels = np.where(rows < 22, rows, rows + 1) % 2  # right on 22 of 40 by chance
    one_step = cs.collision_matrix_from_posteriors(P, labels)
    assert one_step.pber >= 0.499
    said = " ".join(cautions(one_step, one_step, 0.0))
    assert "the model may do no better than the priors" in said


def test_no_splitter_is_advised_that_a_fit_refuses():
    """Every row must be held out once, which splits of time series do not do."""
    package = Path(cs.__file__).parent
    code = "\n".join(path.read_text() for path in package.rglob("*.py"))
    advised = set(re.findall(r"\b[A-Z]\w*(?:KFold|Split|Group(?:s)?Out)\b", code))
    assert "GroupKFold" in advised
    for name in advised:
        splitter = getattr(model_selection, name)(3)
        estimate(cv=splitter, groups=np.arange(N) // 3 if "Group" in name else None)


def test_classes_that_a_report_joins_are_explained(tmp_path):
    many = np.eye(214) * 0.5 + 0.5 / 214
    cm = cs.collision_matrix_from_posteriors(np.repeat(many, 3, axis=0))
    page = cs.report(cm, path=tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Of 214 classes, the 100 that collide most have a row" in page


def test_no_jobs_are_refused_by_every_function_that_has_some():
    for call in (fit, estimate):
        with pytest.raises(ValueError, match="n_jobs must be None"):
            call(n_jobs=0)


def page_table() -> str:
    words = {"refused": "an error", "warned": "a warning", "answered": "an answer"}
    lines = []
    for heading, cases in CASES.items():
        lines += [f"| {heading} | call | | what happens |", "|---|---|---|---|"]
        lines += [
            f"| {case.data} | {case.call} | {words[case.how]} | {case.happens} |"
            for case in cases
        ]
        lines.append("")
    return "\n".join(lines)


def test_the_page_shows_this_table():
    start, end = MARKS
    text = PAGE.read_text(encoding="utf-8")
    shown = text[text.index(start) + len(start) : text.index(end)].strip()
    assert shown == page_table().strip(), "run `python tests/test_hostile_data.py`"


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(MARKS[0])
    PAGE.write_text(
        f"{before}{MARKS[0]}\n\n{page_table()}\n{MARKS[1]}{rest.split(MARKS[1])[1]}",
        encoding="utf-8",
    )
