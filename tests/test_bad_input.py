"""Bad input is refused in words: a ``ValueError`` that names the argument at fault and says what came.

Every table below is a list of promises, one a line: a call, a pattern for the message, and the claim as its id.
Families (priors, posteriors, labels, weights, classes, square matrices) are written once and asked of every
function that takes such an argument. Only a path that is missing is a ``FileNotFoundError``.
"""

from __future__ import annotations

import copy
import datetime
import json
import os
import pickle
import re
from dataclasses import FrozenInstanceError
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.stats import multivariate_normal, norm, poisson
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import ShuffleSplit

import collidescope as cs
from collidescope import datasets
from experiments import real_data

NAN, INF = float("nan"), float("inf")
TODAY = datetime.date(2025, 1, 1)

# What an error message must not consist of: the complaint of a library that does not know our arguments.
FOREIGN = re.compile(
    r"must not contain infs|could not be broadcast|cannot reshape|truth value|unhashable|has no attribute|"
    r"not subscriptable|not iterable|unsupported operand|not supported between|object of type|ufunc|"
    r"dictionary update|LinAlgError|_checks|__\w+__"
)


def expect_refusal(call, pattern, error=ValueError):
    """``call`` raises ``error`` (of no other type) with a message of a few words that matches ``pattern``."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert re.search(pattern, message, re.DOTALL), f"{message!r} does not match {pattern!r}"
    assert len(message.split()) >= 5, f"{message!r} says too little"
    # What numpy or json said may follow in brackets or after a colon, but the sentence itself is ours.
    said = re.sub(r"\(.*\)|:.*", "", message, flags=re.DOTALL)
    assert not FOREIGN.search(said), f"{message!r} speaks of what the caller cannot know"


def table(*rows):
    """The rows of a table, families flattened, as a ``parametrize`` of ``call, pattern``."""
    params = []
    for row in rows:
        params.extend(row if isinstance(row, list) else [row])
    return pytest.mark.parametrize(("call", "pattern"), params)


def case(claim, call, pattern):
    return pytest.param(call, pattern, id=claim)


def family(who, call, name, rows):
    """One claim for every (what came, value, pattern of what the message says about it), asked of ``call(value)``."""
    return [case(f"{who}, {name}: {what}", partial(call, value), rf"\b{name}\b.*{says}") for what, value, says in rows]


# ------------------------------------------------------------------------------------------------- good input

S = [[0.9, 0.1], [0.2, 0.8]]
SINGULAR = [[0.5, 0.5], [0.5, 0.5]]
G = np.array(S) @ np.array(S).T
B = [[0.4, 0.1], [0.1, 0.4]]
HALF = [0.5, 0.5]
P = [[0.9, 0.1], [0.4, 0.6], [0.7, 0.3], [0.2, 0.8]]
Y = ["a", "b", "a", "b"]
AB = ["a", "b"]
X = np.arange(20.0).reshape(10, 2)
Y10 = np.array(AB * 5)
FRAME = pd.DataFrame(X, columns=["u", "v"])
P10 = np.tile([[0.8, 0.2], [0.3, 0.7]], (5, 1))
REPEATED = ["x", "x", "y", "y"]
NORMS = [norm(-1), norm(1)]
PLANE = [multivariate_normal([0, 0]), multivariate_normal([1, 1])]
DUMMY = DummyClassifier(strategy="prior")


def cm(**changes):
    return cs.CollisionMatrix(**{"matrix": S, "classes": AB} | changes)


def estimated():
    """A matrix with everything an estimate has: intervals, counts, covariance."""
    return cs.collision_matrix_from_posteriors(P, Y)


def abc():
    return cs.CollisionMatrix(0.7 * np.eye(3) + 0.1, classes=["a", "b", "c"])


def accumulator(priors=None):
    return cs.CollisionAccumulator(AB, priors)


class Fixed(ClassifierMixin, BaseEstimator):
    """A fitted classifier that says what it is told to say."""

    def __init__(self, answer=None, classes=("a", "b")):
        self.answer, self.classes = answer, classes
        self.classes_ = np.array(classes)

    def predict_proba(self, X):
        return np.asarray(self.answer)

    def fit(self, X, y):
        return self


# ------------------------------------------------------------------------------------------------- families


def bad_numbers(who, call, name, good):
    """An array argument of fixed shape: missing, infinite, text, empty, ragged, one dimension too many or too few."""
    good = np.asarray(good, dtype=float)

    def with_first(value):
        array = good.copy()
        array.flat[0] = value
        return array

    rows = [
        ("NaN", with_first(NAN), "nan"),
        ("infinity", with_first(INF), "inf"),
        ("complex", good + 1j, "complex"),
        ("masked", np.ma.masked_less(good, 0.5), "masked"),
        ("None", None, "(shape|None|number)"),
        ("a word", "many", "(str|'many')"),
        ("text", np.full(good.shape, "many").tolist(), "(list|str)"),
        ("empty", np.zeros((0,) * good.ndim), "(empty|shape|0)"),
        ("ragged", [[0.5, 0.5], [0.5]], "(list|shape)"),
        ("a dimension too many", good[None, None], r"shape \(1, 1"),
        ("a scalar", 0.5, r"shape \(\)"),
    ]
    return family(who, call, name, rows)


def bad_square(who, call, name="matrix"):
    rows = [("not square", [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], r"\(2, 3\)"), ("one class", [[1.0]], "1")]
    return bad_numbers(who, call, name, S) + family(who, call, name, rows)


def bad_stochastic(who, call, name="matrix"):
    rows = [
        ("negative", [[1.1, -0.1], [0.2, 0.8]], "-0.1"),
        ("row does not sum to 1", [[0.9, 0.2], [0.2, 0.8]], "row 0 sums to 1.1"),
    ]
    return bad_square(who, call, name) + family(who, call, name, rows)


def bad_priors(who, call, name="priors", k=2, optional=True):
    even = [1 / k] * (k - 2)
    rows = [
        ("a zero", [0.0, 2 / k, *even], "0"),
        ("a negative", [-0.1, 2 / k + 0.1, *even], "-0.1"),
        ("sum over 1", [2 / k, 1 / k, *even], f"{1 + 1 / k:.6g}"),
        ("counts", [30] * k, f"{30 * k}"),
        ("too long", [1 / (k + 1)] * (k + 1), f"{k + 1}"),
        ("too short", [1.0], "1"),
        ("an unknown word", "balanced", "'balanced'"),
        ("2-dimensional", [[1 / k] * k], rf"\(1, {k}\)"),
        ("NaN", [NAN, 2 / k, *even], "nan"),
        ("infinity", [INF, 2 / k, *even], "inf"),
        ("text", ["much", "little", *["some"] * (k - 2)], "list"),
        ("empty", [], "empty"),
        ("a scalar", 0.5, r"shape \(\)"),
    ]
    return family(who, call, name, rows + ([] if optional else [("None", None, r"(shape \(\)|None)")]))


def bad_posteriors(who, call, name="P", any_width=False):
    rows = [
        ("1-dimensional", [0.9, 0.4, 0.7, 0.2], r"\(4,\)"),
        ("3-dimensional", [P], r"\(1, 4, 2\)"),
        ("a single column", [[0.9], [0.4], [0.7], [0.2]], r"(\(4, 1\)|got 1)"),
        ("no rows", np.zeros((0, 2)), r"empty.*\(0, 2\)"),
        ("NaN", [[NAN, 0.1], *P[1:]], "nan"),
        ("infinity", [[INF, 0.1], *P[1:]], "inf"),
        ("text", [["high", "low"]] * 4, "list"),
        ("None", None, r"\(\)"),
        ("a negative probability", [[1.1, -0.1], *P[1:]], "-0.1"),
        ("an unnormalised row", [P[0], [0.5, 0.6], *P[2:]], "row 1 sums to 1.1"),
        ("logits", [[2.5, -1.5]] * 4, "-1.5.*logits"),
        ("one-vs-rest scores", [[0.9, 0.9]] * 4, "1.8"),
    ]
    width = [] if any_width else [("too many columns", [[0.5, 0.25, 0.25]] * 4, "3")]
    return family(who, call, name, rows + width)


def bad_weights(who, call, n=4):
    rows = [
        ("negative", [-1.0] + [1.0] * (n - 1), "-1"),
        ("all zero", [0.0] * n, "zero for every row"),
        ("too short", [1.0] * (n - 1), f"{n - 1}"),
        ("too long", [1.0] * (n + 1), f"{n + 1}"),
        ("2-dimensional", [[1.0]] * n, rf"\({n}, 1\)"),
        ("a scalar", 1.0, r"\(\)"),
        ("NaN", [NAN] + [1.0] * (n - 1), "nan"),
        ("infinity", [INF] + [1.0] * (n - 1), "inf"),
        ("text", ["much"] * n, "list"),
        ("the word balanced", "balanced", "str"),
    ]
    return family(who, call, "sample_weight", rows)


def bad_labels(who, call, n=4, chunk=False):
    """``chunk``: the classes are known, so that one class among the labels is fine and others are not."""
    y = AB * (n // 2)
    rows = [
        ("a missing label (None)", [None, *y[1:]], "missing.*row 0"),
        ("a missing label (nan among numbers)", [NAN, *[0.0, 1.0] * (n // 2)][:n], "missing"),
        ("a missing label (nan among text)", [*y[:-1], NAN], "(missing|'nan')"),
        ("a missing label (pandas.NA)", pd.array([*y[:-1], None], dtype="string"), "missing"),
        ("infinity", [INF, *[0.0, 1.0] * (n // 2)][:n], "(missing|inf)"),
        ("empty", [], "empty"),
        ("a column", [[label] for label in y], rf"\({n}, 1\)"),
        ("ragged lists", [["a"], ["a", "b"]] * (n // 2), "(shape|flat|list)"),
        ("sets of labels", [{"a"}, {"b"}] * (n // 2), "(set|label)"),
        ("a word", "abab", r"\(\)"),
        ("too short", y[:-1], f"{n - 1}"),
        ("too long", [*y, "a"], f"{n + 1}"),
    ]
    alone = [
        ("one class only", ["a"] * n, "single class.*'?a"),
        ("kinds that cannot be sorted", np.array([1, "a"] * (n // 2), dtype=object), "int.*str"),
        ("None where labels are needed", None, r"(\(\)|None)"),
    ]
    known = [("a label outside classes", ["z", *y[1:]], "'z'.*classes.*'a'")]
    return family(who, call, "y", rows + (known if chunk else alone))


def bad_classes(who, call, k=2, sized=True):
    names = [f"c{i}" for i in range(k)]
    rows = [
        ("a name twice", ["c0", "c0", *names[2:]], "'c0'"),
        ("a single name", ["c0"], "(1|c0)"),
        ("empty", [], r"(0|\[\])"),
        ("nested", [[name] for name in names], rf"(\({k}, 1\)|flat)"),
        ("ragged", [["a"], ["a", "b"], *names[2:]], "(shape|flat|list)"),
        ("nan", [NAN, *names[1:]], "nan"),
        ("None among the names", [None, *names[1:]], "None"),
        ("dictionaries", [{"name": name} for name in names], "(dict|'name')"),
        ("a number", 5, "5"),
        ("a word", "abcdefghij"[:k], "'ab"),
    ]
    length = [("too many names", [*names, "more"], f"{k + 1}")] if sized else []
    return family(who, call, "classes", rows + length)


def bad_choice(who, call, name, *values):
    return family(who, call, name, [(repr(value), value, re.escape(repr(value))) for value in values])


# ------------------------------------------------------------------------------------------------- matrix.py


@table(
    bad_stochastic("CollisionMatrix", lambda v: cs.CollisionMatrix(v)),
    bad_priors("CollisionMatrix", lambda v: cm(priors=v)),
    bad_classes("CollisionMatrix", lambda v: cm(classes=v)),
    bad_numbers("CollisionMatrix", lambda v: cm(stderr=v if v is not None else "None"), "stderr", S),
    bad_numbers("CollisionMatrix", lambda v: cm(counts=v if v is not None else "None"), "counts", [3, 4]),
    bad_numbers("CollisionMatrix", lambda v: cm(covariance=v if v is not None else "None"), "covariance", np.eye(3)),
    case("stderr negative", lambda: cm(stderr=[[0.1, -0.1], [0.1, 0.1]]), "stderr.*-0.1"),
    case("stderr of other shape", lambda: cm(stderr=np.eye(3)), r"stderr.*\(3, 3\)"),
    case("counts negative", lambda: cm(counts=[3, -4]), "counts.*-4"),
    case("counts of other length", lambda: cm(counts=[1, 2, 3]), r"counts.*\(3,\)"),
    case("covariance of other shape", lambda: cm(covariance=np.eye(2)), r"covariance.*\(2, 2\)"),
    case("pber_stderr negative", lambda: cm(pber_stderr=-0.1), "pber_stderr.*-0.1"),
    case("pber_stderr NaN", lambda: cm(pber_stderr=NAN), "pber_stderr.*nan"),
    case("pber_stderr text", lambda: cm(pber_stderr="small"), "pber_stderr.*str"),
    case("pber_stderr a list", lambda: cm(pber_stderr=[0.1]), r"pber_stderr.*\(1,\)"),
    case("coverage over 1", lambda: cm(coverage=1.5), "coverage.*1.5"),
    case("coverage below 0", lambda: cm(coverage=-0.5), "coverage.*-0.5"),
    case("coverage infinite", lambda: cm(coverage=INF), "coverage.*inf"),
    case("info a number", lambda: cm(info=5), "info.*(5|int)"),
    case("info a word", lambda: cm(info="one-step"), "info.*(one-step|str)"),
)
def test_the_constructor_of_a_collision_matrix_refuses(call, pattern):
    expect_refusal(call, pattern)


@table(
    [
        bad
        for who in ("interval", "pber_interval", "bayes_error_bounds")
        for bad in bad_choice(who, lambda v, who=who: getattr(estimated(), who)(v), "level", 0, 1, -0.5, 95, NAN, "95%")
    ],
    bad_choice("top_k", lambda v: abc().top_k(v), "k", -1, 1.5, "many", None, True),
    bad_choice("top_collisions", lambda v: cm().top_collisions(level=v), "level", 0, 1, 2.0, "95%"),
    bad_choice("top_collisions", lambda v: cm().top_collisions(v), "n", -1, 2.5, "all", True, None),
    case("a level asked of a matrix without errors", lambda: cm().bayes_error_bounds(0.9), "level.*none"),
    [
        bad
        for who in ("precision", "false_positive_rate", "rates")
        for bad in bad_priors(who, lambda v, who=who: getattr(cm(), who)(v), "population_priors")
    ],
    case("empirical priors without counts", lambda: cm().precision("empirical"), "population_priors.*counts"),
    case("empirical priors, class never seen", lambda: cm(counts=[3, 0]).rates("empirical"), "population_priors.*0"),
    bad_choice("bayes_error_bounds", lambda v: cs.bayes_error_bounds(v, 2), "pber", -0.1, 1.1, NAN, INF, "0.5", None),
    bad_choice("bayes_error_bounds", lambda v: cs.bayes_error_bounds([v], 2), "pber", 0.5),
    bad_choice("bayes_error_bounds", lambda v: cs.bayes_error_bounds(0.1, v), "n_classes", 1, 0, -2, 2.5, "2", True),
)
def test_the_questions_asked_of_a_collision_matrix_refuse(call, pattern):
    expect_refusal(call, pattern)


@table(
    case("an unknown class", lambda: abc().merge([["a", "z"]]), "groups.*'z'.*'a'"),
    case("overlapping groups", lambda: abc().merge([["a", "b"], ["b", "c"]]), "groups.*overlap.*'b'"),
    case("a class twice in one group", lambda: abc().merge([["a", "a"]]), "groups.*'a'.*twice"),
    case("an empty group", lambda: abc().merge([["a", "b"], []]), "groups.*empty.*1"),
    case("every class in one group", lambda: abc().merge([["a", "b", "c"]]), "groups.*every class"),
    case("one word", lambda: abc().merge("ab"), "groups.*'ab'"),
    case("a flat list of words", lambda: abc().merge(["ab"]), "groups.*'ab'"),
    case("a number", lambda: abc().merge(5), "groups.*5"),
    case("None", lambda: abc().merge(None), "groups.*None"),
    case("a list as a class name", lambda: abc().merge([[["a"], "b"]]), r"groups.*\['a'\]"),
    case("too few names", lambda: abc().merge([["a", "b"]], names=[]), r"names.*1\), got 0"),
    case("too many names", lambda: abc().merge([["a", "b"]], names=["x", "y"]), r"names.*1\), got 2"),
    case("names a number", lambda: abc().merge([["a", "b"]], names=5), "names.*5"),
    case("names a word", lambda: abc().merge([["a", "b"]], names="vowel"), "names.*(5|'vowel')"),
    case("a name that another class has", lambda: abc().merge([["a", "b"]], names=["c"]), "names.*'c'"),
)
def test_merging_classes_refuses(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- files


def read(source):
    return cs.CollisionMatrix.from_json(source)


def edited(**changes):
    """The JSON of a matrix with entries changed; a value of ``...`` takes the entry out."""
    data = estimated().to_dict() | changes
    return json.dumps({name: value for name, value in data.items() if value is not ...})


@table(
    case("cut in the middle", lambda: read(edited()[:100]), "source.*JSON"),
    case("NaN token", lambda: read(edited(pber_stderr=NAN)), "source.*NaN"),
    case("Infinity token", lambda: read(edited(pber_stderr=INF)), "source.*Infinity"),
    case("a number too large", lambda: read(edited(coverage=77).replace(" 77,", " 1e999,")), "coverage.*inf"),
    case("other format", lambda: read(edited(format="other")), "collision matrix"),
    case("no format", lambda: read("{}"), "collision matrix"),
    case("later version", lambda: read(edited(version=99)), "version 99"),
    [
        case(f"no {name}", partial(read, edited(**{name: ...})), f"lacks {name}")
        for name in estimated().to_dict()
        if name not in ("format", "version")
    ],
    case("covariance too short", lambda: read(edited(covariance_lower=[1.0])), "covariance_lower.*got 1"),
    case("covariance with a gap", lambda: read(edited(covariance_lower=[None] * 6)), "covariance_lower.*nan"),
    case("covariance in words", lambda: read(edited(covariance_lower="x")), "covariance_lower"),
    case("matrix cut", lambda: read(edited(matrix=[[0.9, 0.1]])), r"matrix.*\(1, 2\)"),
    case("matrix of words", lambda: read(edited(matrix={"a": 1})), "matrix.*dict"),
    case("row edited", lambda: read(edited(matrix=[[0.9, 0.2], [0.2, 0.8]])), "matrix.*1.1"),
    case("priors edited", lambda: read(edited(priors=[0.9, 0.9])), "priors.*1.8"),
    case("classes cut", lambda: read(edited(classes=["a"], covariance_lower=None)), "classes.*1"),
    case("classes a word", lambda: read(edited(classes="ab")), "classes"),
    case("class null", lambda: read(edited(classes=[None, "b"])), "classes.*None"),
    case("classes mappings", lambda: read(edited(classes=[{}, {}])), r"classes.*(dict|\{\})"),
    case("counts negative", lambda: read(edited(counts=[-1, 2])), "counts.*-1"),
    case("stderr text", lambda: read(edited(stderr="small")), "stderr.*str"),
    case("info a list", lambda: read(edited(info=[1])), "info"),
    case("a list", lambda: cs.CollisionMatrix.from_dict([1]), "data.*collision matrix"),
    case("None", lambda: cs.CollisionMatrix.from_dict(None), "data.*collision matrix"),
    case("a number for a path", lambda: read(5), "source.*5"),
    case("no path", lambda: read(None), "source.*None"),
    case("empty text", lambda: read(""), "source.*empty"),
    case("text whose start is lost", lambda: read(edited()[5:]), "source"),
    case("a path with a zero byte", lambda: read("cm\0.json"), "source"),
)
def test_damaged_json_is_refused(call, pattern):
    expect_refusal(call, pattern)


def test_a_matrix_file_that_is_damaged_or_none_is_refused(tmp_path):
    path = tmp_path / "matrix.npz"
    expect_refusal(lambda: cs.CollisionMatrix.from_npz(path), "path.*matrix.npz", FileNotFoundError)
    estimated().to_npz(path)
    content = path.read_bytes()
    for damaged in (b"", b"no archive", content[:-30], content[:200]):
        path.write_bytes(damaged)
        expect_refusal(lambda: cs.CollisionMatrix.from_npz(path), "path.*matrix.npz.*to_npz")
    np.savez(path, matrix=np.eye(2))
    expect_refusal(lambda: cs.CollisionMatrix.from_npz(path), "path.*matrix.npz.*to_npz")
    np.savez(path, description=np.array("[1]"))
    expect_refusal(lambda: cs.CollisionMatrix.from_npz(path), "data.*collision matrix")
    np.savez(path, matrix=np.array([{}], dtype=object), description=np.array("{}"))  # would need pickle
    expect_refusal(lambda: cs.CollisionMatrix.from_npz(path), "path.*matrix.npz")


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80\x04\x95 pickled", b"[1, 2", b"a,b\n0.9,0.1\n", b"[" * 100_000],
    ids=["empty", "binary", "truncated", "csv", "nested too deep"],
)
def test_a_file_that_is_not_json_is_refused_by_its_name(tmp_path, content):
    path = tmp_path / "cm.json"
    path.write_bytes(content)
    expect_refusal(lambda: read(path), r"source.*cm\.json")


def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path):
    path = tmp_path / "cm.json"
    whole = estimated().to_json(path)
    for end in range(1, len(whole), 37):
        path.write_text(whole[:end])
        expect_refusal(lambda: read(path), r"source.*cm\.json")


def test_a_missing_file_is_a_file_not_found_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.json"):
        read(tmp_path / "gone.json")


def test_a_folder_is_not_a_file(tmp_path):
    expect_refusal(lambda: read(tmp_path), f"source.*{tmp_path.name}")
    expect_refusal(lambda: cm().to_json(tmp_path), f"path.*{tmp_path.name}")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_none_of_the_kinds_of_path_is_refused():
    expect_refusal(lambda: cm().to_json(5), "path.*5")


def test_writing_into_a_folder_that_does_not_exist_names_the_path_and_makes_nothing(tmp_path):
    path = tmp_path / "nowhere" / "cm.json"
    with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
        cm().to_json(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "pattern"),
    [
        pytest.param({"classes": [TODAY, "b"]}, r"(?=.*\bclass).*date", id="a date as class name"),
        pytest.param({"classes": [b"a", b"b"]}, r"(?=.*\bclass).*bytes", id="bytes as class names"),
        pytest.param({"classes": ["\ud800", "b"]}, "class", id="text that has no encoding as class name"),
        pytest.param({"info": {"when": TODAY}}, "info.*date", id="a date in info"),
        pytest.param({"info": {"moved": NAN}}, "info.*nan", id="NaN in info"),
        pytest.param({"info": {"moved": INF}}, "info.*inf", id="infinity in info"),
    ],
)
def test_a_matrix_that_json_cannot_hold_leaves_the_old_file_as_it_was(tmp_path, broken, pattern):
    path = tmp_path / "cm.json"
    old = cm()
    old.to_json(path)
    before = path.read_bytes()
    expect_refusal(lambda: cm(**broken).to_json(path), pattern)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["cm.json"]
    assert read(path) == old


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_disk_that_fails_leaves_the_old_file_as_it_was(tmp_path, monkeypatch, step):
    path = tmp_path / "cm.json"
    cm().to_json(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space"):
        estimated().to_json(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["cm.json"]


# ------------------------------------------------------------------------------------------------- recovery.py


@table(
    bad_square("recover", lambda v: cs.recover(v), "G"),
    bad_priors("recover", lambda v: cs.recover(G, v)),
    bad_choice("recover", lambda v: cs.recover(G, method=v), "method", "cholesky", "Root", "", None, 1),
    [
        bad
        for name in ("penalty", "learning_rate", "tolerance")
        for bad in bad_choice(
            "recover", lambda v, name=name: cs.recover(G, **{name: v}), name, 0, -1.0, NAN, INF, "small", None
        )
    ],
    bad_choice("recover", lambda v: cs.recover(G, max_iter=v), "max_iter", 0, -5, 10.5, "many", None),
    bad_classes("Recovery.to_collision_matrix", lambda v: cs.recover(G).to_collision_matrix(v)),
)
def test_recovery_refuses(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- projection.py


@table(
    bad_square("project", lambda v: cs.project(v, HALF), "B"),
    bad_priors("project", lambda v: cs.project(B, v), optional=False),
)
def test_projection_refuses(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- posterior.py


@table(
    bad_stochastic("solve_posteriors", lambda v: cs.solve_posteriors(HALF, v), "S"),
    bad_numbers("solve_posteriors", lambda v: cs.solve_posteriors(v, S), "q", [HALF]),
    bad_priors("solve_posteriors", lambda v: cs.solve_posteriors(HALF, S, priors=v)),
    bad_choice("solve_posteriors", lambda v: cs.solve_posteriors(HALF, S, v), "solver", "nnls", "Simplex", "", None),
    bad_choice(
        "solve_posteriors", lambda v: cs.solve_posteriors(HALF, S, ridge=v), "ridge", -1e-3, NAN, INF, "x", None
    ),
    case("too many columns", lambda: cs.solve_posteriors([[0.2, 0.3, 0.5]], S), r"\bq\b.*\(1, 3\)"),
    case("too few entries", lambda: cs.solve_posteriors([0.2], S), r"\bq\b.*\(1,\)"),
    case(
        "singular S with the inverse", lambda: cs.solve_posteriors(HALF, SINGULAR, "inverse"), "S is singular.*simplex"
    ),
)
def test_solving_posteriors_refuses(call, pattern):
    expect_refusal(call, pattern)


@table(
    bad_posteriors("shift_priors", lambda v: cs.shift_priors(v, HALF, HALF), any_width=True),
    bad_priors("shift_priors", lambda v: cs.shift_priors(P, v, HALF), "old", optional=False),
    bad_priors("shift_priors", lambda v: cs.shift_priors(P, HALF, v), "new", optional=False),
)
def test_shifting_priors_refuses(call, pattern):
    expect_refusal(call, pattern)


@table(
    bad_square("posterior_error_bound", lambda v: cs.posterior_error_bound(v, S, HALF, HALF), "S_hat"),
    bad_stochastic("posterior_error_bound", lambda v: cs.posterior_error_bound(S, v, HALF, HALF), "S"),
    bad_numbers("posterior_error_bound", lambda v: cs.posterior_error_bound(S, S, v, HALF), "q_hat", HALF),
    bad_numbers("posterior_error_bound", lambda v: cs.posterior_error_bound(S, S, HALF, v), "q", HALF),
    case("other size", lambda: cs.posterior_error_bound(np.eye(3), S, HALF, HALF), r"S_hat.*\(3, 3\)"),
    case("q too long", lambda: cs.posterior_error_bound(S, S, HALF, [0.2, 0.3, 0.5]), r"\bq\b.*\(3,\)"),
    case("q_hat too long", lambda: cs.posterior_error_bound(S, S, [0.2, 0.3, 0.5], HALF), r"q_hat.*\(3,\)"),
    case("q all zero", lambda: cs.posterior_error_bound(S, S, HALF, [0, 0]), r"\bq\b.*zeros"),
)
def test_the_posterior_error_bound_refuses(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- inference.py


def from_posteriors(P=P, y=Y, **options):
    return cs.collision_matrix_from_posteriors(P, y, **options)


@table(
    bad_posteriors("collision_matrix_from_posteriors", lambda v: from_posteriors(v)),
    bad_posteriors("collision_matrix_from_posteriors without y", lambda v: from_posteriors(v, None), any_width=True),
    bad_labels("collision_matrix_from_posteriors", lambda v: from_posteriors(y=v if v is not None else "None")),
    bad_labels("collision_matrix_from_posteriors with classes", lambda v: from_posteriors(y=v, classes=AB), chunk=True),
    bad_labels(
        "collision_matrix_from_posteriors with classes, uniform",
        lambda v: from_posteriors(y=v, classes=AB, priors="uniform"),
        chunk=True,
    ),
    bad_classes("collision_matrix_from_posteriors", lambda v: from_posteriors(y=None, classes=v)),
    bad_priors("collision_matrix_from_posteriors", lambda v: from_posteriors(priors=v), optional=False),
    bad_weights("collision_matrix_from_posteriors", lambda v: from_posteriors(sample_weight=v)),
    bad_weights(
        "collision_matrix_from_posteriors, uniform", lambda v: from_posteriors(sample_weight=v, priors="uniform")
    ),
    case("a class of classes without rows", lambda: from_posteriors(y=["a"] * 4, classes=AB), r"classes \['b'\]"),
    case(
        "a class of classes without rows, uniform",
        lambda: from_posteriors(y=["a"] * 4, classes=AB, priors="uniform"),
        r"classes \['b'\]",
    ),
    case("a class whose rows all weigh zero", lambda: from_posteriors(sample_weight=[1, 0, 1, 0]), r"classes \['b'\]"),
    case("fewer labels than columns", lambda: from_posteriors([[0.5, 0.3, 0.2]] * 4), "P has 3.*y has 2"),
    case("priors without y", lambda: from_posteriors(y=None, priors="uniform"), "priors.*y"),
    case("an array of priors without y", lambda: from_posteriors(y=None, priors=HALF), "priors.*y"),
)
def test_collisions_from_posteriors_refuse(call, pattern):
    expect_refusal(call, pattern)


def shrunk(P=P, y=Y, **options):
    return cs.shrunk_collision_matrix(P, y, **options)


@table(
    bad_posteriors("shrunk_collision_matrix", lambda v: shrunk(v)),
    bad_labels("shrunk_collision_matrix", lambda v: shrunk(y=v if v is not None else "None")),
    bad_priors("shrunk_collision_matrix", lambda v: shrunk(priors=v), optional=False),
    bad_weights("shrunk_collision_matrix", lambda v: shrunk(sample_weight=v)),
    case("no labels", lambda: shrunk(y=None), r"\by\b"),
)
def test_the_shrunk_estimate_refuses(call, pattern):
    expect_refusal(call, pattern)


@table(
    bad_labels("shuffled_control", lambda v: cs.shuffled_control(DUMMY, P, v if v is not None else "None")),
    case("a curve of a model without one", lambda: cs.learning_curve(DUMMY), "source.*DummyClassifier.*limit=True"),
    case("an unknown model", lambda: cs.CollisionClassifier(model="forest").fit(P, Y), "model.*'forest'"),
    case("a class with too few members", lambda: cs.CollisionClassifier(cv=3).fit(P, Y), "cv=3.*class.*has 2"),
)
def test_controls_and_the_classifier_refuse(call, pattern):
    expect_refusal(call, pattern)


@table(
    case("an array", lambda: cs.TableClassifier().fit(X, Y10), "X.*DataFrame.*ndarray"),
    case("labels of other length", lambda: cs.TableClassifier().fit(FRAME, Y), "X and y.*10 and 4"),
    case("a missing label", lambda: cs.TableClassifier().fit(FRAME, [None, *Y10[1:]]), "y has 1 missing label"),
    case("another classifier", lambda: cs.TableClassifier(DUMMY).fit(FRAME, Y10), "classifier.*DummyClassifier"),
    case("text for columns", lambda: cs.TableClassifier(drop="u").fit(FRAME, Y10), "drop.*list of columns.*'u'"),
    case("no such column", lambda: cs.TableClassifier(drop=["U"]).fit(FRAME, Y10), "lacks a column.*'U'.*'u'"),
    case("nothing left", lambda: cs.TableClassifier(drop=["u", "v"]).fit(FRAME, Y10), "X has no column.*as asked"),
)
def test_tables_refuse(call, pattern):
    expect_refusal(call, pattern)


def test_a_model_file_that_is_not_there_or_no_model_is_refused(tmp_path):
    expect_refusal(lambda: cs.load(tmp_path / "none.collide"), "path.*none", FileNotFoundError)
    (tmp_path / "text.collide").write_text("not a model, only some text")
    expect_refusal(lambda: cs.load(tmp_path / "text.collide"), "path.*text.*not a model", cs.ModelFileError)


@table(
    bad_classes("accumulate", lambda v: cs.accumulate([(P, Y)], v), sized=False),
    bad_priors("accumulate", lambda v: cs.accumulate([(P, Y)], AB, priors=v)),
    bad_posteriors("accumulate", lambda v: cs.accumulate([(v, Y)], AB)),
    bad_labels("accumulate", lambda v: cs.accumulate([(P, v)], AB), chunk=True),
    case("a file in the place of chunks", lambda: cs.accumulate("x.parquet", AB), "chunks.*posterior_batches"),
    case("a number in the place of chunks", lambda: cs.accumulate(3, AB), "chunks.*int"),
    case("nothing to accumulate", lambda: cs.accumulate([], AB), "empty"),
    # images have more dimensions, and any label will do
    [c for c in bad_numbers("spool", lambda v: cs.spool([(v, Y)]), "x", P) if "dimension too many" not in c.id],
    [c for c in bad_labels("spool", lambda v: cs.spool([(P, v)]), chunk=True) if "outside classes" not in c.id],
    case("nothing to spool", lambda: cs.spool([]), "source holds no rows"),
    case("an array to spool", lambda: cs.spool(X), "source.*ndarray.*fit"),
    case("a file without a target", lambda: cs.spool("x.parquet"), "target must name"),
)
def test_streams_are_refused(call, pattern):
    expect_refusal(call, pattern)


def test_files_of_posteriors_that_are_not_there_or_no_parquet_are_refused(tmp_path):
    expect_refusal(lambda: cs.posterior_batches(tmp_path / "none.parquet"), "path.*none", FileNotFoundError)
    expect_refusal(lambda: cs.spool(tmp_path / "none.parquet", "y"), "path.*none", FileNotFoundError)
    (tmp_path / "text.parquet").write_text("no Parquet")
    expect_refusal(lambda: cs.posterior_batches(tmp_path / "text.parquet"), "path.*text.*no Parquet")


@table(
    bad_classes("CollisionAccumulator", lambda v: cs.CollisionAccumulator(v), sized=False),
    bad_priors("CollisionAccumulator", lambda v: accumulator(v)),
    case("the word uniform", lambda: accumulator("uniform"), "priors.*'uniform'"),
    bad_posteriors("update", lambda v: accumulator().update(v, Y)),
    bad_posteriors("update without y", lambda v: accumulator().update(v)),
    bad_labels("update", lambda v: accumulator().update(P, v), chunk=True),
    bad_weights("update", lambda v: accumulator().update(P, Y, v)),
    case("labels after none", lambda: accumulator().update(P).update(P, Y), r"\by\b.*every update or in none"),
    case("none after labels", lambda: accumulator().update(P, Y).update(P), r"\by\b.*every update or in none"),
    case("priors without labels", lambda: accumulator(HALF).update(P), r"\by\b.*priors"),
    case("result of nothing", lambda: accumulator().result(), "empty.*update"),
    case("result of nothing, priors given", lambda: accumulator(HALF).result(), "empty.*update"),
    case("result with a class missing", lambda: accumulator().update(P, ["a"] * 4).result(), r"classes \['b'\]"),
    case("merge of other classes", lambda: accumulator().merge(cs.CollisionAccumulator(["a", "c"])), "other.*'c'.*'b'"),
    case(
        "merge of the same classes in another order",
        lambda: accumulator().merge(cs.CollisionAccumulator(["b", "a"])),
        "other.*'b', 'a'",
    ),
    case("merge of other priors", lambda: accumulator(HALF).merge(accumulator([0.6, 0.4])), "other.*priors.*0.6"),
    case("merge of priors and none", lambda: accumulator().merge(accumulator(HALF)), "other.*priors"),
    case("merge of none and priors", lambda: accumulator(HALF).merge(accumulator()), "other.*priors"),
    case(
        "merge of labelled and not", lambda: accumulator().update(P, Y).merge(accumulator().update(P)), "other.*label"
    ),
    case(
        "merge of unlabelled and labelled",
        lambda: accumulator().update(P).merge(accumulator().update(P, Y)),
        "other.*label",
    ),
    case("merge of a result", lambda: accumulator().merge(estimated()), "other.*CollisionMatrix"),
    case("merge of None", lambda: accumulator().merge(None), "other.*None"),
)
def test_the_accumulator_refuses(call, pattern):
    expect_refusal(call, pattern)


BAD_UPDATES = {
    "an unnormalised row at the end": ([*P, [0.5, 0.6]], [*Y, "a"], None),
    "a label outside classes at the end": (P, ["a", "b", "a", "z"], None),
    "a missing label": (P, ["a", "b", "a", None], None),
    "too few labels": (P, Y[:3], None),
    "too many columns": ([[0.5, 0.25, 0.25]], ["a"], None),
    "a negative weight at the end": (P, Y, [1, 1, 1, -1]),
    "weights all zero": (P, Y, [0, 0, 0, 0]),
    "no labels": (P, None, None),
}


@pytest.mark.parametrize("bad", BAD_UPDATES.values(), ids=BAD_UPDATES)
@pytest.mark.parametrize("priors", [None, HALF], ids=["own priors", "given priors"])
def test_a_failed_update_leaves_the_accumulator_as_it_was(bad, priors):
    parts = accumulator(priors).update(P, Y)
    before = parts.result()
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        parts.update(*bad)
    assert parts.n_rows == 4
    assert parts.result() == before
    parts.update(P, Y)
    assert parts.result() == accumulator(priors).update(P, Y).update(P, Y).result()


@pytest.mark.parametrize("bad", [bad for bad in BAD_UPDATES.values() if bad[1] is not None])
def test_a_failed_first_update_does_not_settle_whether_there_are_labels(bad):
    parts = accumulator()
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        parts.update(*bad)
    assert parts.n_rows == 0
    assert parts.update(P).result() == accumulator().update(P).result()


def test_a_failed_merge_leaves_both_accumulators_as_they_were():
    labelled, unlabelled = accumulator().update(P, Y), accumulator().update(P)
    before = labelled.result(), unlabelled.result()
    with pytest.raises(ValueError, match="other"):
        labelled.merge(unlabelled)
    assert (labelled.result(), unlabelled.result()) == before
    assert (labelled.n_rows, unlabelled.n_rows) == (4, 4)


# ------------------------------------------------------------------------------------------------- counting.py


@table(
    bad_labels("count_collisions", lambda v: cs.count_collisions(REPEATED, v)),
    [
        case(f"{who}, X: {what}", partial(call, value), rf"\bX\b.*{says}")
        for who, call in {
            "count_collisions": lambda v: cs.count_collisions(v, Y),
            "repeated_rows": cs.repeated_rows,
        }.items()
        for what, value, says in [
            ("sparse", csr_array(np.eye(4)), r"sparse.*toarray"),
            ("3-dimensional", np.zeros((4, 2, 2)), r"\(4, 2, 2\)"),
            ("no rows", np.zeros((0, 2)), r"empty.*\(0, 2\)"),
            ("no columns", np.zeros((4, 0)), r"empty.*\(4, 0\)"),
            ("an empty table", pd.DataFrame(), r"empty.*\(0, 0\)"),
            ("a scalar", 5, r"\(\)"),
            ("a word", "xxyy", r"\(\)"),
            ("None", None, r"\(\)"),
            ("ragged", [[1], [1, 2], [1], [1, 2]], "(compared|table)"),
            ("sets", pd.DataFrame({"tags": [{"a"}, {"b"}] * 2}), "'tags'"),
        ]
    ],
    case("fewer rows than labels", lambda: cs.count_collisions(REPEATED[:3], Y), "X and y.*3 and 4"),
    case("more rows than labels", lambda: cs.count_collisions(REPEATED, Y[:3]), "X and y.*4 and 3"),
    case("no repeated inputs", lambda: cs.count_collisions([1, 2, 3, 4], Y), r"\bX\b.*no input that occurs twice"),
    case(
        "a class never among repeated inputs",
        lambda: cs.count_collisions(["x", "x", "z", "x"], ["a", "b", "c", "a"]),
        r"\by\b.*\['c'\].*never",
    ),
)
def test_counting_refuses(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- density.py

SAMPLER_ONLY = SimpleNamespace(rvs=lambda size, random_state: np.zeros(size))
DENSITY_ONLY = SimpleNamespace(logpdf=lambda x: np.zeros(len(x)))

TAKES_DENSITIES = {
    "collision_matrix_from_densities": lambda d, **kw: cs.collision_matrix_from_densities(d, n_samples=100, **kw),
    "posteriors_from_densities": lambda d, **kw: cs.posteriors_from_densities([0.0], d, **kw),
    "BayesOptimalClassifier": cs.BayesOptimalClassifier,
    "ProbabilisticBayesClassifier": cs.ProbabilisticBayesClassifier,
}


@table(
    [
        bad
        for who, call in TAKES_DENSITIES.items()
        for bad in [
            *family(
                who,
                call,
                "densities",
                [
                    ("a single one", norm(0), "at least 2.*(rv|norm)"),
                    ("a list of one", [norm(0)], "at least 2.*1"),
                    ("empty", [], "at least 2.*0"),
                    ("None", None, "at least 2.*None"),
                    ("words", ["normal", "normal"], "rvs.*number 0.*str"),
                    ("without rvs", [norm(0), DENSITY_ONLY], "rvs.*number 1.*SimpleNamespace"),
                    ("without logpdf", [norm(0), SAMPLER_ONLY], "logpdf.*number 1.*SimpleNamespace"),
                ],
            ),
            *bad_priors(who, lambda v, call=call: call(NORMS, priors=v)),
        ]
    ],
    [
        bad
        for who, call in TAKES_DENSITIES.items()
        if who != "posteriors_from_densities"
        for bad in bad_classes(who, lambda v, call=call: call(NORMS, classes=v))
    ],
    case(
        "densities of different dimension",
        lambda: cs.collision_matrix_from_densities([norm(0), PLANE[0]], n_samples=100),
        "densities",
    ),
    case(
        "a density beside probabilities of counts",
        lambda: cs.collision_matrix_from_densities([norm(0), poisson(3)], n_samples=100),
        "densities",
    ),
    case(
        "too few samples to see a class",
        lambda: cs.collision_matrix_from_densities([norm(0), norm(900)], [0.999, 0.001], n_samples=10, random_state=0),
        "n_samples.*10",
    ),
)
def test_densities_are_refused(call, pattern):
    expect_refusal(call, pattern)


@table(
    [
        bad
        for who, call in {
            "posteriors_from_densities": lambda v: cs.posteriors_from_densities(v, NORMS),
            "BayesOptimalClassifier.predict": cs.BayesOptimalClassifier(NORMS).predict,
            "ProbabilisticBayesClassifier.predict": cs.ProbabilisticBayesClassifier(NORMS).predict,
            "predict_proba": cs.BayesOptimalClassifier(NORMS).predict_proba,
        }.items()
        for bad in family(
            who,
            call,
            "X",
            [
                ("empty", [], r"\(0,\)"),
                ("a scalar", 0.5, r"\(\)"),
                ("None", None, r"\(\)"),
                ("NaN", [0.0, NAN], "row 1"),
                ("infinity", [INF, 0.0], "row 0"),
                ("text", ["a", "b"], "(list|str)"),
                ("two columns for densities of a line", [[0.0, 1.0], [2.0, 3.0]], r"\(2, 2\)"),
                ("ragged", [[0.0], [1.0, 2.0]], "(list|shape)"),
            ],
        )
    ],
    case(
        "three columns in the plane", lambda: cs.posteriors_from_densities(np.zeros((4, 3)), PLANE), r"\bX\b.*\(4, 3\)"
    ),
    case(
        "one row of the plane without its row axis",
        lambda: cs.posteriors_from_densities([0.0, 1.0], PLANE),
        r"\bX\b.*\(2,\)",
    ),
)
def test_inputs_without_a_posterior_are_refused(call, pattern):
    expect_refusal(call, pattern)


def draws(n_samples=10, random_state=0):
    return {
        "collision_matrix_from_densities": lambda: cs.collision_matrix_from_densities(
            NORMS, n_samples=n_samples, random_state=random_state
        ),
        "BayesOptimalClassifier.error_rate": lambda: cs.BayesOptimalClassifier(NORMS).error_rate(
            n_samples, random_state
        ),
        "ProbabilisticBayesClassifier.error_rate": lambda: cs.ProbabilisticBayesClassifier(NORMS).error_rate(
            n_samples, random_state
        ),
        "divergences by draws": lambda: cs.divergences(*PLANE, n_samples=n_samples, random_state=random_state),
        "divergences by quadrature": lambda: cs.divergences(*NORMS, n_samples=n_samples, random_state=random_state),
        "collision_divergence": lambda: cs.collision_divergence(*NORMS, n_samples=n_samples, random_state=random_state),
    }


@table(
    [
        case(f"{who}, n_samples: {n!r}", call, f"n_samples.*{n}")
        for n in (0, 1, -1, 10.5, "many", None)
        for who, call in draws(n_samples=n).items()
    ],
    [
        case(f"{who}, random_state: {seed!r}", call, f"random_state.*{seed}")
        for seed in (-1, "seed", 1.5)
        for who, call in draws(random_state=seed).items()
    ],
    case(
        "predict, random_state",
        lambda: cs.ProbabilisticBayesClassifier(NORMS).predict([0.0], "seed"),
        "random_state.*seed",
    ),
)
def test_monte_carlo_refuses(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- divergence.py


@table(
    [
        bad
        for who, call in {"divergences": cs.divergences, "collision_divergence": cs.collision_divergence}.items()
        for bad in [
            case(f"{who}: f1 a word", partial(call, "normal", norm(0)), r"\bf1\b.*str"),
            case(f"{who}: f2 a word", partial(call, norm(0), "normal"), r"\bf2\b.*str"),
            case(f"{who}: f2 None", partial(call, norm(0), None), r"\bf2\b.*None"),
            case(f"{who}: f1 without logpdf", partial(call, SAMPLER_ONLY, norm(0)), r"\bf1\b.*logpdf"),
            case(f"{who}: f2 without rvs", partial(call, norm(0), DENSITY_ONLY), r"\bf2\b.*rvs"),
            case(f"{who}: a sample in place of a distribution", partial(call, [1.0, 2.0], norm(0)), r"\bf1\b.*list"),
            case(f"{who}: a line and a plane", partial(call, norm(0), PLANE[0]), r"\bf1 and f2\b"),
            case(f"{who}: a density and probabilities of counts", partial(call, norm(0), poisson(3)), r"\bf1 and f2\b"),
        ]
    ],
    bad_numbers("divergences_from_posteriors", cs.divergences_from_posteriors, "p", HALF),
    case("both columns", lambda: cs.divergences_from_posteriors(P), r"\bp\b.*\(4, 2\)"),
    case("below 0", lambda: cs.divergences_from_posteriors([0.5, -0.1]), r"\bp\b.*-0.1"),
    case("logits", lambda: cs.divergences_from_posteriors([0.5, 2.5]), r"\bp\b.*2.5"),
    bad_weights("divergences_from_posteriors", lambda v: cs.divergences_from_posteriors([0.1, 0.9, 0.5, 0.2], v)),
)
def test_divergences_refuse(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- estimators.py

CROSSFITS = {"estimate_collisions": cs.estimate_collisions, "crossfit_posteriors": cs.crossfit_posteriors}


@table(
    [
        bad
        for who, call in CROSSFITS.items()
        for bad in [
            *bad_labels(who, lambda v, call=call: call(DUMMY, X, v, cv=2), n=10),
            *bad_choice(
                who, lambda v, call=call: call(DUMMY, X, Y10, cv=v), "cv", "kfold", "Prefit", "", 1, 0, -3, 2.5
            ),
            *bad_choice(who, lambda v, call=call: call(DUMMY, X, Y10, random_state=v), "random_state", "seed", -1, 1.5),
            *bad_choice(who, lambda v, call=call: call(DUMMY, X, Y10, n_jobs=v), "n_jobs", 0, "all", 1.5),
            case(
                f"{who}: cv that leaves rows out",
                partial(call, DUMMY, X, Y10, cv=ShuffleSplit(2, random_state=0)),
                r"\bcv\b",
            ),
            case(
                f"{who}: a class with fewer members than folds",
                partial(call, DUMMY, X, ["a"] * 7 + ["b"] * 3),
                "cv=5.*'b' has 3",
            ),
            case(
                f"{who}: classifier without predict_proba",
                partial(call, RidgeClassifier(), X, Y10),
                "classifier.*predict_proba.*RidgeClassifier",
            ),
            case(f"{who}: classifier a word", partial(call, "logistic", X, Y10), "classifier.*predict_proba.*str"),
            case(f"{who}: classifier None", partial(call, None, X, Y10), "classifier.*predict_proba.*NoneType"),
            case(
                f"{who}: a class in place of an instance",
                partial(call, LogisticRegression, X, Y10),
                "classifier.*LogisticRegression",
            ),
            case(
                f"{who}: a classifier that cannot be cloned",
                partial(call, SimpleNamespace(predict_proba=lambda X: P10), X, Y10),
                "classifier.*SimpleNamespace",
            ),
            case(
                f"{who}: prefit, not fitted",
                partial(call, LogisticRegression(), X, Y10, cv="prefit"),
                "classifier.*not fitted",
            ),
            case(
                f"{who}: prefit with other classes",
                partial(call, Fixed(P10, ("a", "c")), X, Y10, cv="prefit"),
                r"\by\b.*'b'.*classifier.*'c'",
            ),
            case(
                f"{who}: prefit with more classes",
                partial(call, Fixed(P10, ("a", "b", "c")), X, Y10, cv="prefit"),
                r"\by\b.*'b'.*classifier.*'c'",
            ),
            case(
                f"{who}: scores that are no probabilities",
                partial(call, Fixed(np.tile([2.5, -1.5], (10, 1))), X, Y10, cv="prefit"),
                "predict_proba.*-1.5",
            ),
            case(
                f"{who}: scores that are NaN",
                partial(call, Fixed(np.full((10, 2), NAN)), X, Y10, cv="prefit"),
                "predict_proba.*nan",
            ),
            case(
                f"{who}: scores with a column too many",
                partial(call, Fixed(np.full((10, 4), 0.25)), X, Y10, cv="prefit"),
                "predict_proba.*4",
            ),
            case(
                f"{who}: fewer scores than rows", partial(call, Fixed(P10[:9]), X, Y10, cv="prefit"), "predict_proba.*9"
            ),
            case(f"{who}: X with fewer rows than y", partial(call, DUMMY, X[:9], Y10), "X and y.*9 and 10"),
            case(f"{who}: X with more rows than y", partial(call, DUMMY, X, Y10[:9]), "X and y.*10 and 9"),
            case(f"{who}: X a number", partial(call, DUMMY, 5, Y10), r"\bX\b.*(5|int)"),
            case(f"{who}: X None", partial(call, DUMMY, None, Y10), r"\bX\b.*None"),
            case(f"{who}: X a scalar array", partial(call, DUMMY, np.array(5.0), Y10), r"\bX\b.*\(\)"),
            case(
                f"{who}: X with NaN", partial(call, LogisticRegression(), np.where(X == 3, NAN, X), Y10), r"\bX\b.*NaN"
            ),
            case(
                f"{who}: X with infinity",
                partial(call, LogisticRegression(), np.where(X == 3, INF, X), Y10),
                r"\bX\b.*infinity",
            ),
        ]
    ],
    bad_priors("estimate_collisions", lambda v: cs.estimate_collisions(DUMMY, X, Y10, priors=v), optional=False),
    bad_weights("estimate_collisions", lambda v: cs.estimate_collisions(DUMMY, X, Y10, sample_weight=v), n=10),
)
def test_cross_fitting_refuses(call, pattern):
    expect_refusal(call, pattern)


@table(
    bad_numbers("estimate_divergences", lambda v: cs.estimate_divergences(DUMMY, v, X), "first", X),
    bad_numbers("estimate_divergences", lambda v: cs.estimate_divergences(DUMMY, X, v), "second", X),
    case("1-dimensional", lambda: cs.estimate_divergences(DUMMY, X[:, 0], X), r"first.*\(10,\)"),
    case("other columns", lambda: cs.estimate_divergences(DUMMY, X, X[:, :1]), "first and second.*2 and 1"),
    case("fewer rows than folds", lambda: cs.estimate_divergences(DUMMY, X, X[:3]), "second has 3|cv=5.*3"),
    case(
        "without predict_proba", lambda: cs.estimate_divergences(RidgeClassifier(), X, X), "classifier.*predict_proba"
    ),
    bad_choice("estimate_divergences", lambda v: cs.estimate_divergences(DUMMY, X, X, cv=v), "cv", 1, 0, "kfold", 2.5),
)
def test_divergences_between_samples_refuse(call, pattern):
    expect_refusal(call, pattern)


# ------------------------------------------------------------------------------------------------- datasets

GAUSSIANS = datasets.GaussianProblem([[-1.0], [1.0]])
FLIP = [[0.9, 0.1], [0.1, 0.9]]


@table(
    bad_numbers("GaussianProblem", lambda v: datasets.GaussianProblem(v), "means", [[-1.0], [1.0]]),
    case("means of one class", lambda: datasets.GaussianProblem([[1.0]]), "means.*1"),
    bad_choice("GaussianProblem", lambda v: datasets.GaussianProblem([[0], [1]], v), "scales", NAN, INF),
    case("scale zero", lambda: datasets.GaussianProblem([[0], [1]], 0.0), "scales.*0"),
    case("scale negative", lambda: datasets.GaussianProblem([[0], [1]], [1.0, -2.0]), "scales.*-2"),
    case("scales of other length", lambda: datasets.GaussianProblem([[0], [1]], [1.0, 2.0, 3.0]), r"scales.*3"),
    case("scales a matrix", lambda: datasets.GaussianProblem([[0], [1]], np.eye(2)), r"scales.*\(2, 2\)"),
    case("scales text", lambda: datasets.GaussianProblem([[0], [1]], "wide"), "scales.*str"),
    bad_priors("GaussianProblem", lambda v: datasets.GaussianProblem([[0], [1]], priors=v)),
    bad_classes("GaussianProblem", lambda v: datasets.GaussianProblem([[0], [1]], classes=v)),
    bad_numbers("GaussianProblem.posteriors", GAUSSIANS.posteriors, "X", [[0.0], [1.0]]),
    case("posteriors of other columns", lambda: GAUSSIANS.posteriors([[0.0, 1.0]]), r"\bX\b.*1 columns.*2"),
    bad_choice("sample", lambda v: GAUSSIANS.sample(v), "n_samples", 0, -1, 10.5, "many", None),
    bad_choice("sample", lambda v: GAUSSIANS.sample(5, v), "random_state", -1, "seed", 1.5),
    [
        bad
        for who, call in {"LedProblem": datasets.LedProblem, "led": datasets.led}.items()
        for bad in [
            *bad_choice(who, call, "noise", 0, 0.5, 1.0, -0.1, NAN, "some", None),
            *bad_priors(who, lambda v, call=call: call(0.1, v), k=10),
        ]
    ],
    case("six segments", lambda: datasets.led().posteriors(np.zeros((2, 6))), r"\bX\b.*\(2, 6\)"),
    case("a segment neither on nor off", lambda: datasets.led().posteriors(np.full((2, 7), 0.5)), r"\bX\b.*0.5"),
    bad_numbers("LedProblem.posteriors", datasets.led().posteriors, "X", np.zeros((2, 7))),
    [
        bad
        for who, call in {"NoisyLabels": datasets.NoisyLabels, "with_label_noise": datasets.with_label_noise}.items()
        for bad in [
            *bad_stochastic(who, lambda v, call=call: call(GAUSSIANS, v), "transition"),
            case(f"{who}: transition of other size", partial(call, GAUSSIANS, np.eye(3)), r"transition.*\(3, 3\)"),
            case(f"{who}: a label that is never shown", partial(call, GAUSSIANS, [[1, 0], [1, 0]]), "transition.*1"),
            case(f"{who}: problem a word", partial(call, "ring", FLIP), "problem.*str"),
            case(f"{who}: problem None", partial(call, None, FLIP), "problem.*None"),
        ]
    ],
    bad_choice("scenario_a", datasets.scenario_a, "n_classes", 2, 6, 0, "3", None, [3]),
    bad_choice("scenario_b", datasets.scenario_b, "overlap", 0, -1, NAN, INF, "some", None),
    [
        bad
        for who in ("equidistant", "imbalanced")
        for name, values in {
            "n_classes": (1, 0, -2, 2.5, "three"),
            "n_features": (0, -1, 2.5, "two"),
            "length": (0, -1.0, NAN, INF, "long"),
            "random_state": (-1, "seed", 1.5),
        }.items()
        for bad in bad_choice(who, lambda v, who=who, name=name: getattr(datasets, who)(**{name: v}), name, *values)
    ],
    bad_priors("equidistant", lambda v: datasets.equidistant(2, priors=v)),
    bad_choice("imbalanced", lambda v: datasets.imbalanced(ratio=v), "ratio", 0.5, -1, 0, NAN, INF, "steep", None),
    bad_choice("ring", lambda v: datasets.ring(v), "n_features", 1, 0, 2.5, "six"),
    bad_choice("ring", lambda v: datasets.ring(radius=v), "radius", 0, -1.0, NAN, INF, "wide"),
)
def test_problems_with_a_known_answer_refuse(call, pattern):
    expect_refusal(call, pattern)


@pytest.mark.parametrize("call", [real_data.data_folder, real_data.load_brfss])
def test_data_that_is_not_there_says_which_variable_to_set(call, tmp_path, monkeypatch):
    monkeypatch.delenv("COLLIDESCOPE_DATA", raising=False)
    expect_refusal(call, "set COLLIDESCOPE_DATA", FileNotFoundError)
    monkeypatch.setenv("COLLIDESCOPE_DATA", str(tmp_path / "gone"))
    expect_refusal(call, "COLLIDESCOPE_DATA.*gone", FileNotFoundError)


def test_a_data_folder_without_the_file_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLIDESCOPE_DATA", str(tmp_path))
    expect_refusal(real_data.load_brfss, r"brfss2015_012\.npz", FileNotFoundError)


# ------------------------------------------------------------------------------------------------- values stay as given

ARRAYS = ("matrix", "priors", "classes", "stderr", "counts", "covariance")
COPIES = {
    "itself": lambda value: value,
    "copied": copy.deepcopy,
    "pickled": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.mark.parametrize("name", [*ARRAYS, "pber_stderr", "coverage", "info", "brand_new"])
def test_no_attribute_of_a_collision_matrix_can_be_set(name):
    with pytest.raises(FrozenInstanceError):
        setattr(estimated(), name, None)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("how", COPIES)
def test_no_array_of_a_collision_matrix_can_be_written(how, name):
    array = getattr(COPIES[how](estimated()), name)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = array[1]


def aliases():
    """Name → (array given, what holds it, how to read it back)."""
    shares, means, flip = np.array([0.6, 0.4]), np.array([[-1.0], [1.0]]), np.array(FLIP)
    return {
        "CollisionMatrix": (shares, cm(priors=shares), lambda made: made.priors),
        "CollisionAccumulator": (shares, accumulator(shares), lambda made: made.priors),
        "Recovery": (shares, cs.recover(G, shares), lambda made: made.priors),
        "BayesOptimalClassifier": (shares, cs.BayesOptimalClassifier(NORMS, shares), lambda made: made.priors),
        "GaussianProblem, means": (means, datasets.GaussianProblem(means), lambda made: made.means),
        "GaussianProblem, priors": (shares, datasets.GaussianProblem(means, 1, shares), lambda made: made.priors),
        "LedProblem": (tens := np.full(10, 0.1), datasets.led(0.1, tens), lambda made: made.priors),
        "NoisyLabels": (flip, datasets.with_label_noise(GAUSSIANS, flip), lambda made: made.transition),
    }


@pytest.mark.parametrize("name", aliases())
def test_a_later_change_of_the_given_array_does_not_reach_inside(name):
    given, made, read = aliases()[name]
    before = read(made).copy()
    given[...] = given[::-1] / 2
    np.testing.assert_array_equal(read(made), before)


def inputs():
    """Fresh arrays of every kind that the functions take."""
    numbers = {
        "P": P,
        "S": S,
        "G": G,
        "B": [[0.52, -0.02], [-0.02, 0.52]],
        "priors": [0.6, 0.4],
        "half": HALF,
        "q": [[0.7, 0.2]],
        "one_q": [0.7, 0.2],
        "w": [1.0, 2.0, 0.5, 1.0],
        "p": [0.1, 0.9, 0.5, 0.0],
        "X": X,
        "X2": X[::-1] + 1,
        "x": [-0.5, 2.0],
        "means": [[-1.0], [1.0]],
        "scales": [1.0, 2.0],
        "flip": FLIP,
        "stderr": np.eye(2) / 9,
        "counts": [3.0, 4.0],
        "covariance": np.eye(3) / 99,
    }
    words = {"y": Y, "classes": AB, "Y10": Y10, "repeated": REPEATED}
    arrays = {name: np.array(value, dtype=float) for name, value in numbers.items()}
    return arrays | {name: np.array(value, dtype=object) for name, value in words.items()}


USES = {
    "CollisionMatrix": lambda a: cs.CollisionMatrix(
        a["S"], a["priors"], a["classes"], a["stderr"], None, a["counts"], a["covariance"]
    ).rates(a["priors"]),
    "merge": lambda a: abc().merge([np.array(["a", "b"])], names=a["repeated"][:1]),
    "recover": lambda a: cs.recover(a["G"], a["priors"]),
    "recover by descent": lambda a: cs.recover(a["G"], a["priors"], "gradient", max_iter=20),
    "project": lambda a: cs.project(a["B"], a["priors"]),
    "solve_posteriors": lambda a: cs.solve_posteriors(a["q"], a["S"], priors=a["priors"]),
    "solve_posteriors of one input": lambda a: cs.solve_posteriors(a["one_q"], a["S"]),
    "solve_posteriors by inverse": lambda a: cs.solve_posteriors(a["q"], a["S"], "inverse"),
    "shift_priors": lambda a: cs.shift_priors(a["P"], a["half"], a["priors"]),
    "posterior_error_bound": lambda a: cs.posterior_error_bound(a["S"], a["S"], a["one_q"], a["half"]),
    "CollisionAccumulator": lambda a: (
        cs.CollisionAccumulator(a["classes"], a["priors"])
        .update(a["P"], a["y"], a["w"])
        .merge(cs.CollisionAccumulator(a["classes"], a["priors"]).update(a["P"], a["y"]))
        .result()
    ),
    "CollisionAccumulator without labels": lambda a: accumulator().update(a["P"], sample_weight=a["w"]).result(),
    "collision_matrix_from_posteriors": lambda a: cs.collision_matrix_from_posteriors(
        a["P"], a["y"], classes=a["classes"], priors=a["priors"], sample_weight=a["w"]
    ),
    "count_collisions": lambda a: cs.count_collisions(a["repeated"], a["y"]),
    "repeated_rows": lambda a: cs.repeated_rows(a["X"]),
    "posteriors_from_densities": lambda a: cs.posteriors_from_densities(a["x"], NORMS, a["priors"]),
    "collision_matrix_from_densities": lambda a: cs.collision_matrix_from_densities(
        NORMS, a["priors"], classes=a["classes"], n_samples=100, random_state=0
    ),
    "BayesOptimalClassifier": lambda a: cs.BayesOptimalClassifier(NORMS, a["priors"], a["classes"]).predict(a["x"]),
    "ProbabilisticBayesClassifier": lambda a: cs.ProbabilisticBayesClassifier(NORMS, a["priors"]).predict(a["x"], 0),
    "divergences_from_posteriors": lambda a: cs.divergences_from_posteriors(a["p"], a["w"]),
    "crossfit_posteriors": lambda a: cs.crossfit_posteriors(DUMMY, a["X"], a["Y10"]),
    "estimate_collisions": lambda a: cs.estimate_collisions(DUMMY, a["X"], a["Y10"], priors=a["priors"]),
    "estimate_divergences": lambda a: cs.estimate_divergences(DUMMY, a["X"], a["X2"]),
    "GaussianProblem": lambda a: datasets.GaussianProblem(
        a["means"], a["scales"], a["priors"], a["classes"]
    ).posteriors(a["X"][:, :1]),
    "with_label_noise": lambda a: datasets.with_label_noise(
        datasets.GaussianProblem(a["means"]), a["flip"]
    ).collision_matrix(),
}


@pytest.mark.parametrize("writeable", [True, False], ids=["writeable", "read-only"])
@pytest.mark.parametrize("name", USES)
def test_no_function_changes_what_it_is_given(name, writeable):
    given, before = inputs(), inputs()
    for array in given.values():
        array.setflags(write=writeable)
    USES[name](given)
    for key, array in given.items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


@table(
    case("one class", lambda: datasets.tangled(n_classes=1), "n_classes.*1"),
    case("no part", lambda: datasets.tangled(n_parts=0), "n_parts.*0"),
    case("no feature", lambda: datasets.tangled(n_features=0), "n_features.*0"),
    case("a word for a seed", lambda: datasets.tangled(random_state="x"), "random_state.*'x'"),
    case("posteriors of other width", lambda: datasets.tangled().posteriors([[0.0]]), "X must have 8 columns, got 1"),
)
def test_tangled_classes_refuse(call, pattern):
    expect_refusal(call, pattern)


def test_no_function_changes_a_table_or_a_list_it_is_given():
    table_, labels, rows = pd.DataFrame({"x": REPEATED, "z": [1, 1, 2, 2]}), list(Y), [list(row) for row in P]
    cs.count_collisions(table_, labels)
    cs.collision_matrix_from_posteriors(rows, labels)
    pd.testing.assert_frame_equal(table_, pd.DataFrame({"x": REPEATED, "z": [1, 1, 2, 2]}))
    assert (labels, rows) == (Y, P)


# ---------------------------------------------------------------------------------------------- applications

BAD_POSTERIORS = [
    ("not a number", [[NAN, 1.0]] * 4, "nan"),
    ("logits", [[-3.0, 4.0]] * 4, "-3"),
    ("one column", [[1.0]] * 4, "at least 2"),
    ("empty", np.empty((0, 2)), "empty"),
]


@table(
    family("bayes_confusion", lambda p: cs.bayes_confusion(p, Y), "P", BAD_POSTERIORS),
    family("label_error_scores", lambda p: cs.label_error_scores(p, Y), "P", BAD_POSTERIORS),
    family("active_learning_score", cs.active_learning_score, "P", BAD_POSTERIORS[:3]),
    family("ambiguous", lambda p: cs.ambiguous(p, y=Y), "clf_or_posteriors", BAD_POSTERIORS),
    family("audit", lambda p: cs.audit(p, y_true=Y, y_pred=Y), "model_or_posteriors", BAD_POSTERIORS),
    case("too few labels", lambda: cs.bayes_confusion(P, Y[:3]), "4.*3"),
    case("a label unheard of", lambda: cs.label_error_scores(P, ["a", "b", "a", "z"], classes=AB), "y.*'z'"),
    case("an order unheard of", lambda: cs.ambiguous(P, y=Y, by="size"), "by.*'size'"),
    case("fewer than no rows", lambda: cs.ambiguous(P, y=Y, top=-1), "top.*-1"),
    case("a classifier without rows", lambda: cs.ambiguous(DUMMY), "X|fitted|predict"),
    case("no labels to audit with", lambda: cs.audit(P, y_pred=Y), "y_true"),
    case("nothing to audit", lambda: cs.audit(P, y_true=Y), "y_pred"),
    case("a prediction unheard of", lambda: cs.audit(P, y_true=Y, y_pred=["a", "b", "a", "z"]), "y_pred.*'z'"),
    case("a rate above 1", lambda: cs.audit(P, y_true=Y, y_pred=Y, fdr=1.5), r"fdr.*1\.5"),
    case("a level above 1", lambda: cs.audit(P, y_true=Y, y_pred=Y, level=95), "level.*95"),
    case("an array for a matrix", lambda: cs.AdaptiveSampler(S, Y), "cm.*CollisionMatrix"),
    case("a cap below 1", lambda: cs.AdaptiveSampler(cm(), Y, cap=0.5), r"cap.*0\.5"),
    case("a sampler's label unheard of", lambda: cs.AdaptiveSampler(cm(), ["a", "z"]), "'z'"),
    case("predictions too few", lambda: cs.AdaptiveSampler(cm(), Y).update(Y, Y[:2]), "4.*2"),
    case("an array to consolidate", lambda: cs.consolidate(S), "cm.*CollisionMatrix"),
    case("no group", lambda: cs.consolidate(abc(), 0), "n_groups.*0"),
    case("more groups than classes", lambda: cs.consolidate(abc(), 4), "n_groups.*4"),
    case("two targets", lambda: cs.consolidate(abc(), 2, max_pber=0.1), "n_groups.*max_pber|max_pber.*n_groups"),
    case("a class unheard of", lambda: cs.consolidate(abc(), 2, must_merge=[["a", "z"]]), "must_merge.*'z'"),
    case("strength above 1", lambda: cs.smooth_labels(Y, cm(), strength=1.5), r"strength.*1\.5"),
    case("strength not a number", lambda: cs.smoothing_matrix(cm(), NAN), "strength.*nan"),
    case("a label that S lacks", lambda: cs.smooth_labels(["a", "z"], cm()), "'z'"),
    case("no strength", lambda: cs.choose_smoothing(LogisticRegression(), X, Y10, cm(), strengths=()), "strengths"),
)
def test_applications_refuse(call, pattern):
    expect_refusal(call, pattern)


# ---------------------------------------------------------------------------------------------- displays


@table(
    case("an array for a matrix", lambda: cs.CollisionMatrixDisplay.from_matrix(S), "cm.*CollisionMatrix"),
    case("an order unheard of", lambda: cs.CollisionMatrixDisplay.from_matrix(cm(), order="size"), "order.*'size'"),
    case("an order with gaps", lambda: cs.CollisionMatrixDisplay(S, order=[0, 2]).plot(), "order.*0 to 1"),
    case("a matrix that is not square", lambda: cs.CollisionMatrixDisplay([HALF]).plot(), r"matrix.*\(1, 2\)"),
    case("too many names", lambda: cs.CollisionMatrixDisplay(S, classes=["a", "b", "c"]).plot(), "classes.*3"),
    case("no plan", lambda: cs.DendrogramDisplay.from_plan(cm()), "plan.*consolidate.*CollisionMatrix"),
    case(
        "a plan without a tree",
        lambda: cs.DendrogramDisplay.from_plan(cs.consolidate(abc(), method="optimal")),
        'linkage.*method="greedy"',
    ),
    case("no tree", lambda: cs.DendrogramDisplay(np.eye(4)).plot(), r"linkage.*\(4, 4\)"),
    bad_posteriors("PosteriorDisplay", cs.PosteriorDisplay.from_posteriors, any_width=True),
    bad_classes("PosteriorDisplay", lambda v: cs.PosteriorDisplay.from_posteriors(P, v)),
    case("flat images", lambda: cs.PosteriorDisplay.from_posteriors(P, images=np.ones((4, 9))), r"images.*\(4, 9\)"),
    case("a label unheard of", lambda: cs.PosteriorDisplay.from_posteriors(P, AB, labels=list("abaz")), "labels.*'z'"),
    case("too few labels", lambda: cs.PosteriorDisplay.from_posteriors(P, AB, labels=AB), "labels.*4 and 2"),
    bad_choice("PosteriorDisplay", lambda v: cs.PosteriorDisplay(P).plot(n_rows=v), "n_rows", 0, 1.5, "all"),
    bad_choice("plot_pairs", lambda v: cs.CollisionMatrixDisplay(S).plot_pairs(n=v), "n", 0, 2.5, "all"),
    case("a level above 1", lambda: cs.CollisionMatrixDisplay.from_matrix(estimated(), level=95), "level.*95"),
)
def test_displays_refuse(call, pattern):
    expect_refusal(call, pattern)


# ---------------------------------------------------------------------------------------------- the report

P_FIT = SimpleNamespace(collision_matrix_=estimated(), posteriors_=np.array(P))


@table(
    [row for row in bad_posteriors("summarise", lambda p: cs.summarise(p, y=Y), "source") if "None" not in row.id],
    bad_labels("summarise", lambda y: cs.summarise(P, y=y)),
    case("posteriors without labels", lambda: cs.summarise(P), "y is needed"),
    case("fewer labels than posteriors", lambda: cs.summarise(P, y=Y[:3]), "source and y.*4 and 3"),
    case("fewer labels than rows fitted", lambda: cs.summarise(P_FIT, y=Y[:3]), "y.*4 rows.*3"),
    case("other rows than those fitted", lambda: cs.summarise(P_FIT, X, Y10), "X.*4 rows.*10"),
    case("other rows than posteriors", lambda: cs.summarise(P, X, Y), "X and y.*10 and 4"),
    case("a class for a source", lambda: cs.summarise(cs.CollisionClassifier), "source.*class CollisionClassifier"),
    case("not fitted", lambda: cs.summarise(cs.CollisionClassifier()), "source.*collision_matrix_.*fit"),
    case("another classifier", lambda: cs.summarise(DUMMY), "source.*DummyClassifier.*crossfit_posteriors"),
    case("a file name for a source", lambda: cs.summarise("matrix.json"), "source.*str"),
    case("nothing", lambda: cs.summarise(None), "source.*NoneType"),
    case("a word for rows", lambda: cs.summarise(P_FIT, "rows", Y), "X.*str"),
    case("an audit of a matrix", lambda: cs.summarise(cm(), y_pred=Y), "y_pred.*posteriors"),
    case("an audit without labels", lambda: cs.summarise(P_FIT, y_pred=Y), "y_pred.*labels"),
    case("too few predictions", lambda: cs.summarise(P_FIT, y=Y, y_pred=Y[:2]), "y_pred.*4.*2"),
    case("a prediction unheard of", lambda: cs.summarise(P_FIT, y=Y, y_pred=list("abaz")), "y_pred.*'z'"),
    case("too few rows to show", lambda: cs.summarise(P, y=Y, rows=pd.DataFrame({"x": [1]})), "rows.*4.*1"),
    case("no table to show", lambda: cs.summarise(P, y=Y, rows=3), "rows.*DataFrame.*int"),
    case("an image without rows", lambda: cs.summarise(P, y=Y, image_shape=(2, 2)), "image_shape needs X"),
    case("an image too small", lambda: cs.summarise(P10, X, Y10, image_shape=(3, 3)), "image_shape.*9.*2 features"),
    case("an image of one side", lambda: cs.summarise(P10, X, Y10, image_shape=(2,)), r"image_shape.*height.*\(2,\)"),
    case("two channels", lambda: cs.summarise(P10, X, Y10, image_shape=(2, 2, 2)), "image_shape.*channels"),
    case("a side of an image", lambda: cs.summarise(P10, X, Y10, image_shape=8), "image_shape.*tuple.*8"),
    case("half a pixel", lambda: cs.summarise(P10, X, Y10, image_shape=(1, 2.0)), r"image_shape.*2\.0"),
    case("another control", lambda: cs.summarise(cm(), control=True), "control.*ShuffledControl.*bool"),
    case("a number for a title", lambda: cs.summarise(cm(), title=3), "title.*text.*3"),
    case("a number among notes", lambda: cs.summarise(cm(), notes=["a", 3]), "notes.*text.*3"),
    case("a number for notes", lambda: cs.summarise(cm(), notes=3), "notes.*int"),
    case("no summary", lambda: cs.write_report({"pber": 0.1}, "report.html"), "summary.*summarise"),
    case("a matrix for a summary", lambda: cs.write_report(cm().to_dict(), "report.html"), "summary.*summarise"),
    case(
        "a summary of another release",
        lambda: cs.write_report(cs.summarise(cm()) | {"version": 99}, "report.html"),
        "summary.*99.*update",
    ),
    case(
        "half a summary",
        lambda: cs.write_report({k: v for k, v in cs.summarise(cm()).items() if k != "joint"}, "report.html"),
        "summary.joint must be there",
    ),
    case(
        "a summary that was edited",
        lambda: cs.write_report(cs.summarise(cm()) | {"classes": ["a"]}, "report.html"),
        "summary.matrix must be 1×1",
    ),
    case("a folder for a file", lambda: cs.report(cm(), path="."), "path.*folder"),
    case("a number for a file", lambda: cs.report(cm(), path=3), "path.*3"),
    case("a name that is too long", lambda: cs.report(cm(), path="x" * 300), "path.*cannot be written"),
)
def test_reports_refuse(call, pattern):
    expect_refusal(call, pattern)


def test_a_report_in_a_folder_that_is_missing_is_refused(tmp_path):
    expect_refusal(lambda: cs.report(cm(), path=tmp_path / "no" / "report.html"), "path.*folder", FileNotFoundError)


LOADERS = {
    "load_adult": real_data.load_adult,
    "load_brfss": real_data.load_brfss,
    "load_covertype": real_data.load_covertype,
    "load_german_credit": real_data.load_german_credit,
    "load_law_school": real_data.load_law_school,
    "load_letter": real_data.load_letter,
    "load_mnist": real_data.load_mnist,
}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_name_the_variable_or_the_missing_file(name, monkeypatch, tmp_path):
    monkeypatch.delenv("COLLIDESCOPE_DATA", raising=False)
    expect_refusal(LOADERS[name], "COLLIDESCOPE_DATA", FileNotFoundError)
    monkeypatch.setenv("COLLIDESCOPE_DATA", str(tmp_path))
    expect_refusal(LOADERS[name], re.escape(str(tmp_path)), FileNotFoundError)


@table(
    bad_choice("Speed", lambda v: cs.Speed(product=v), "product", 0, -1.0, NAN, INF, "fast", None),
    case("a device that is not there", lambda: cs.Speed.measure("abacus"), "device.*abacus"),
)
def test_predictions_of_a_cost_refuse(call, pattern):
    expect_refusal(call, pattern)


def test_every_public_name_is_under_test_here():
    """Result containers aside, which are made by the functions and check nothing."""
    with open(__file__, encoding="utf-8") as file:
        text = file.read()
    containers = {"Divergences", "LearningCurve", "PosteriorErrorBound", "Projection", "Recovery", "ShuffledControl"}
    containers |= {"AuditReport", "ConsolidationPlan", "Cost", "SmoothingChoice", "SparseCollisions"}
    untested = containers | {"CollisionWarning", "Problem", "ClusteredProblem", "datasets"}
    assert [name for name in cs.__all__ if name not in untested and f"cs.{name}" not in text] == []
    assert [name for name in datasets.__all__ if name not in untested and f"datasets.{name}" not in text] == []
