"""Input checks shared by every module.

Each check returns the input as a plain array, or raises a ``ValueError`` that names the argument,
says what came and what to try. Nothing is repaired here except floating-point rounding, by
tolerances that have a name.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence, Sized
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse, sparray, spmatrix

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
Array = npt.NDArray[Any]
ArrayLike = npt.ArrayLike  #: what callers may pass for an array
Given = ArrayLike | None
Names = Sequence[Any] | Array  #: of classes
SparseLike = sparray | spmatrix  #: of scipy.sparse, of any format

#: float32 probabilities sum to 1 within about K * 6e-8: nearer rows are scaled, others refused.
SUM_TOLERANCE = 1e-5
#: Rounding of a float64 sum over thousands of classes: rows this close to 1 are taken as they are.
EXACT_SUM = 1e-12
#: S and priors are float64: what is further from 1 was typed or rounded.
STOCHASTIC_TOLERANCE = 1e-8
#: Errors of S are divided by the squares of priors, and sums of squared weights are kept: beyond
#: these they overflow.
SMALLEST_PRIOR = 1e-100
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-100, 1e100


class CollisionWarning(UserWarning):
    """Something about the estimate that its reader should know."""


def to_numpy(values: object) -> Any:
    """Tensors as arrays, from any device, with or without gradients; all else as it is.

    bfloat16, which numpy lacks, becomes float32.
    """
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.numpy()


def sum_tolerance(values: Any) -> float:
    """How far from 1 the sum of a row may be, by the type in which its entries were rounded.

    Rounding moves a sum of probabilities by less than the spacing of the type at 1.
    """
    parts = [values]
    if not hasattr(values, "dtype"):
        parts = [values[name] for name in getattr(values, "columns", [])]
    dtypes = [str(getattr(part, "dtype", "")).lower() for part in parts]
    if any(dtype.endswith("bfloat16") for dtype in dtypes):
        return 2.0**-7  # which numpy's finfo lacks
    if any(dtype.endswith("float16") for dtype in dtypes):
        return float(np.finfo(np.float16).eps)
    return SUM_TOLERANCE


def check_finite(
    values: object, name: str, *, ndim: int | tuple[int, ...] | None = None
) -> FloatArray:
    """``values`` as a finite float64 array of ``ndim`` dimensions."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must not be a masked array: drop or fill what is masked, then pass a plain "
            f"array"
        )
    if issparse(values):
        raise ValueError(
            f"{name} must be a dense array here, got a sparse one: pass {name}.toarray()"
        )
    values = to_numpy(values)
    try:
        raw = np.asarray(values)
        if np.iscomplexobj(raw):
            raise TypeError("the imaginary part would be lost")
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:  # beyond the largest float
        dtype = f" of dtype {values.dtype}" if hasattr(values, "dtype") else ""
        raise ValueError(
            f"{name} must hold real numbers, got {type(values).__name__}{dtype} ({error})"
        ) from None
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if allowed is not None and array.ndim not in allowed:
        wanted = " or ".join(f"{d}-dimensional" for d in allowed)
        raise ValueError(f"{name} must be {wanted}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(
            f"{name} is empty (shape {array.shape}): pass at least one value"
        )
    if (bad := ~np.isfinite(array)).any():
        where = tuple(np.argwhere(bad)[0].tolist())
        raise ValueError(
            f"{name} must be finite, got {array[where]} at position {where} "
            f"({int(bad.sum())} such values in all): drop or impute them first"
        )
    return array


def check_square(
    values: ArrayLike, name: str, n_classes: int | None = None
) -> FloatArray:
    """``values`` as a finite K×K float64 array with K ≥ 2, or of so many classes."""
    array = check_finite(values, name, ndim=2)
    k, n_columns = array.shape
    if k != n_columns:
        raise ValueError(f"{name} must be square (K×K), got shape {array.shape}")
    if k < 2:
        raise ValueError(f"{name} must cover at least 2 classes, got {k}")
    if n_classes not in (None, k):
        raise ValueError(
            f"{name} must be {n_classes}×{n_classes}, one row and column per class, got "
            f"{array.shape}"
        )
    return array


def check_non_negative(array: FloatArray, name: str, what: str) -> None:
    """Refuse ``array`` when an entry is below zero; ``what`` says what to try."""
    if (array < 0).any():
        where = tuple(map(int, np.unravel_index(int(array.argmin()), array.shape)))
        raise ValueError(
            f"{name} must not be negative, got {array[where]:.6g} at position {where}: {what}"
        )


def check_stochastic(
    values: ArrayLike, name: str, n_classes: int | None = None
) -> FloatArray:
    """``values`` as a square, non-negative matrix whose rows sum to 1."""
    array = check_square(values, name, n_classes)
    check_non_negative(array, name, "a row of it is a probability distribution")
    totals = array.sum(axis=1)
    off = np.abs(totals - 1)
    row = int(off.argmax())
    if off[row] > STOCHASTIC_TOLERANCE:
        raise ValueError(
            f"every row of {name} must sum to 1, row {row} sums to {totals[row]:.10g} (typed "
            f"with few digits? divide by {name}.sum(axis=1, keepdims=True))"
        )
    return array


def check_priors(priors: ArrayLike, n_classes: int, name: str = "priors") -> FloatArray:
    """``priors`` as K positive numbers that sum to 1, in an array of their own."""
    if isinstance(priors, str):
        raise ValueError(
            f"{name} must be an array of {n_classes} probabilities, got the word {priors!r}"
        )
    array = check_finite(priors, name, ndim=1)
    one_each(array, n_classes, name, "class")
    k = int(array.argmin())
    if array[k] < SMALLEST_PRIOR:
        raise ValueError(
            f"{name} must be positive, got {array[k]:.6g} for class number {k}: leave "
            "such a class out"
        )
    total = array.sum()
    if abs(total - 1) > STOCHASTIC_TOLERANCE:
        raise ValueError(
            f"{name} must sum to 1, got {total:.10g} (counts or class weights? divide "
            "by their sum)"
        )
    return array.copy()


def priors_or_uniform(priors: Given, n_classes: int) -> FloatArray:
    """``priors`` as :func:`check_priors` has them; None stands for equal ones."""
    if priors is None:
        return np.full(n_classes, 1 / n_classes)
    return check_priors(priors, n_classes)


def check_posteriors(
    P: object, name: str = "P", n_classes: int | None = None
) -> FloatArray:
    """``P`` as an n×K array of probability rows, not to be written to.

    In float64, rows sum to 1 up to rounding.
    """
    array = check_finite(P, name, ndim=2)
    _check_columns(array.shape, name, n_classes)
    lowest = _check_probabilities(array, name)
    farthest = _check_sums(array.sum(axis=1), sum_tolerance(P), name)
    # as good as it gets: a copy of many rows costs more than all checks
    if lowest >= 0 and farthest <= EXACT_SUM:
        return array
    # with thousands of classes one copy is enough
    is_copy = isinstance(P, np.ndarray) and P.dtype != array.dtype
    if not is_copy:
        array = array.copy()
    np.maximum(array, 0.0, out=array)
    array /= array.sum(axis=1, keepdims=True)
    return array


def check_sparse_posteriors(P: SparseLike, name: str = "P") -> csr_array:
    """``P`` as a sparse n×K array of probability rows, as :func:`check_posteriors` of a dense one.

    What a row does not name has probability 0.

    >>> check_sparse_posteriors(csr_array([[0.6, 0.4, 0], [0, 0, 0.9]]))
    Traceback (most recent call last):
        ...
    ValueError: every row of P must sum to 1, row 1 sums to 0.9 (only the largest posteriors of
    every row? divide by the sum of each, sklearn.preprocessing.normalize(P, norm="l1"): the
    classes that are kept then share the rest)
    """
    rows = csr_array(P)  # type: ignore[call-overload]  # the stubs know no spmatrix
    _check_columns(rows.shape, name)
    if not rows.has_canonical_format:  # an entry given twice, columns in any order
        rows = rows.copy()
        rows.sum_duplicates()
    data = check_finite(rows.data, f"{name}.data", ndim=1)
    lowest = _check_probabilities(data, name)
    entries = (np.maximum(data, 0.0), rows.indices, rows.indptr)
    rows = csr_array(entries, rows.shape)
    totals: FloatArray = rows.sum(axis=1, dtype=np.float64)
    hint = (
        "only the largest posteriors of every row? divide by the sum of each, "
        'sklearn.preprocessing.normalize(P, norm="l1"): the classes that are kept then share the '
        "rest"
    )
    farthest = _check_sums(totals, SUM_TOLERANCE, name, hint)
    if lowest < 0 or farthest > EXACT_SUM:
        n_entries = np.diff(rows.indptr)
        rows.data /= np.repeat(totals, n_entries)
    return rows


def _check_columns(
    shape: tuple[int, ...], name: str, n_classes: int | None = None
) -> None:
    """Refuse posteriors without a column for every class."""
    if len(shape) != 2 or shape[1] < 2:
        raise ValueError(
            f"{name} must have one column per class, at least 2, got shape {shape} "
            "(binary scores? pass np.column_stack([1 - p, p]))"
        )
    if n_classes not in (None, shape[1]):
        raise ValueError(
            f"{name} must have one column per class ({n_classes}), got {shape[1]}"
        )


def _check_probabilities(
    values: FloatArray, name: str, rounding: float = 1e-9
) -> float:
    """The lowest of ``values``.

    A float32 softmax or a difference of float64 terms can leave a zero at -1e-9; what is lower is
    refused.
    """
    lowest = float(values.min())
    if lowest < -rounding:
        raise ValueError(
            f"{name} must hold probabilities, got {lowest:.6g} (logits? apply a softmax first)"
        )
    return lowest


def _check_sums(
    totals: FloatArray,
    tolerance: float,
    name: str,
    hint: str = "logits or one-vs-rest scores?",
) -> float:
    """How far from 1 the sum of a row is at most, refused beyond ``tolerance``."""
    off = np.abs(totals - 1)
    row = int(off.argmax())
    if off[row] > tolerance:
        raise ValueError(
            f"every row of {name} must sum to 1, row {row} sums to {totals[row]:.8g} "
            f"({hint})"
        )
    return float(off[row])


def check_weights(sample_weight: ArrayLike | None, n_rows: int) -> FloatArray:
    """``sample_weight`` as n non-negative numbers, not all zero; ones where it is None."""
    if sample_weight is None:
        return np.ones(n_rows)
    array = one_each(
        check_finite(sample_weight, "sample_weight", ndim=1), n_rows, "sample_weight"
    )
    check_non_negative(array, "sample_weight", "use 0 to leave a row out")
    if not array.any():
        raise ValueError(
            "sample_weight is zero for every row: nothing is left to estimate from"
        )
    return array


def check_votes(values: ArrayLike, name: str, *, every_row: bool = True) -> FloatArray:
    """``values`` as numbers of votes, rows × classes, with a vote in every row if ``every_row``."""
    array = check_finite(values, name, ndim=2 if every_row else None)
    check_non_negative(array, name, "a number of votes cannot be")
    odd = array % 1 != 0
    if odd.any():
        where = tuple(np.argwhere(odd)[0].tolist())
        raise ValueError(
            f"{name} must be whole numbers, got {array[where]:g} at position {where}: "
            "pass counts of votes, not their shares (which do not say how sure they "
            "are)"
        )
    if not every_row:
        return array
    voted = array.any(axis=1)
    if not voted.all():
        raise ValueError(
            f"{name} must have at least one vote per row, row {int(voted.argmin())} "
            "has none: leave such rows out"
        )
    return array


def one_each(values: Sized, n: int, name: str, what: str = "row") -> Any:
    """``values``, when there are ``n``: one per row, class or the like."""
    if len(values) != n:
        raise ValueError(
            f"{name} must have one entry per {what} ({n}), got {len(values)}"
        )
    return values


def check_text(value: object, name: str = "names", *, optional: bool = False) -> Any:
    """``value``, when it is text (or None, where ``optional``)."""
    if not isinstance(value, str) and not (optional and value is None):
        raise ValueError(f"{name} must be text, got {type(value).__name__}: {value!r}")
    return value


def unit_weights(weights: FloatArray, most_range: float = 1e30) -> FloatArray:
    """Weights in units of a power of two near the largest.

    The same shares to the last bit, and no square overflows. Networks are trained in float32, where
    a weight that is ``most_range`` times below the largest is none.
    """
    largest = weights.max()
    used = weights[weights > 0]
    if used.min() < largest / most_range:
        raise ValueError(
            f"sample_weight reaches from {used.min():.3g} to {largest:.3g}, which no "
            "estimate can use: set the small ones to 0, or the large ones lower"
        )
    _, exponent = np.frexp(largest)
    scaled = np.asarray(np.ldexp(weights, 1 - exponent))
    total = scaled.sum()
    effective = total**2 / (scaled**2).sum()
    if effective < 2 and len(used) >= 20:
        row = int(weights.argmax())
        raise ValueError(
            f"sample_weight gives row {row} ({largest:.3g}) {scaled[row] / total:.2%} of "
            f"all weight, so that {len(used):,} rows count as {effective:.2f}: is that "
            "weight right? lower it"
        )
    return scaled


def check_classes(
    classes: Sequence[Any] | Array | None, n_classes: int | None = None
) -> Array:
    """``classes`` as two or more distinct names, text as ``str``, mixed ones as objects.

    None stands for the numbers from 0.
    """
    if classes is None and n_classes is not None:
        classes = range(n_classes)
    single = isinstance(classes, (str, bytes)) or getattr(classes, "ndim", 1) == 0
    if single or not isinstance(classes, Iterable):
        raise ValueError(f"classes must be a list of names, got {classes!r}")
    times = isinstance(classes, np.ndarray) and classes.dtype.kind in "mM"
    if times and np.isnat(classes).any():
        raise ValueError(f"classes must be names, got a missing time among {classes}")
    names = [name.tolist() if hasattr(name, "tolist") else name for name in classes]
    if not all(map(_is_name, names)):
        raise ValueError(
            f"classes must be a flat list of names (text, numbers, booleans), got {names!r}"
        )
    if n_classes is not None and len(names) != n_classes:
        raise ValueError(
            f"classes must name each of the {n_classes} classes once, got {len(names)} names"
        )
    if len(names) < 2:
        raise ValueError(f"classes must name at least 2 classes, got {names}")
    if not all(map(_is_finite, names)):
        raise ValueError(
            f"classes must be names, got a missing or infinite value among {names}"
        )
    (most_frequent, times_named), *_ = Counter(names).most_common(1)
    if times_named > 1:
        raise ValueError(f"classes must be unique, {most_frequent!r} occurs twice")
    if times:  # numpy's own: as objects, those in nanoseconds would become integers
        return np.array(classes)
    plain = isinstance(names[0], (str, bool, int, float))
    one_kind = plain and len({type(name) for name in names}) == 1
    if one_kind and not any(map(_is_cut, names)):
        return np.asarray(names)
    return _objects(names)


def check_labels(y: ArrayLike, name: str = "y") -> Array:
    """``y`` as a non-empty 1-d array of labels without gaps."""
    y = to_numpy(y)
    try:
        array = np.asarray(y)
    except ValueError:
        raise ValueError(
            f"{name} must be a flat list of labels, got lists of different lengths"
        ) from None
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be a flat list of labels, got shape {array.shape}"
        )
    n = len(array)
    if n == 0:
        raise ValueError(f"{name} is empty: pass at least one labelled row")
    dtype = array.dtype.kind
    # in whole numbers nothing can be missing or mixed
    if isinstance(y, np.ndarray) and dtype in "iub":
        return array
    # As given, not as converted: numpy turns a nan among text into the word 'nan', and 1 into '1'.
    given = array.tolist()
    if isinstance(y, Iterable) and not isinstance(y, np.ndarray):
        given = list(y)
    missing = np.fromiter(map(_is_missing, given), bool, n)
    if dtype in "fc":
        missing |= ~np.isfinite(array)
    if missing.any():
        n_missing = int(missing.sum())
        lost = "1 missing value" if n_missing == 1 else f"{n_missing} missing values"
        raise ValueError(
            f"{name} has {lost} (first at row {int(missing.argmax())}): drop those rows"
        )
    kinds = {type(label) for label in given}
    text = {kind for kind in kinds if issubclass(kind, str)}
    truth = {kind for kind in kinds if issubclass(kind, (bool, np.bool_))}
    cut = dtype == "U" and any(map(_is_cut, given))
    # numpy would make one label of 1 and "1", of 1 and True, of "a" and "a\0": objects stay apart
    some_text = text and kinds - text
    some_truth = truth and kinds - truth
    if dtype != "O" and (some_text or some_truth or cut):
        return _objects(given)
    return array


def classes_of(y: Array, name: str = "y") -> Array:
    """The sorted distinct labels of ``y``, at least two."""
    kinds = []
    if y.dtype.kind == "O":
        kinds = sorted({type(label).__name__ for label in y.tolist()})
    try:
        if "bool" in kinds and len(kinds) > 1:
            raise TypeError("True == 1")
        classes = np.unique(y)
    except TypeError:
        raise ValueError(
            f"{name} mixes labels of kinds {kinds} that cannot be sorted: convert them to str"
        ) from None
    if classes.shape[0] < 2:
        raise ValueError(
            f"{name} holds a single class ({classes.tolist()[0]!r}): collisions need at least 2"
        )
    return classes


def spelling_variants(y: Array) -> list[str]:
    """What to say of labels that differ only in spelling: case, spaces, invisible marks, 1 and 1.0.

    >>> spelling_variants(np.array(["Yes", "no", "yes", "1", "01", "1.0"]))
    ["classes '01', '1' and '1.0' differ only in spelling: are they one?",
     "classes 'Yes' and 'yes' differ only in spelling: are they one?"]
    """
    if y.dtype.kind not in "UO":
        return []
    alike = defaultdict(list)
    spellings = {str(label) for label in y.tolist()}
    for label in sorted(spellings):
        alike[_plain_spelling(label)].append(label)
    found = []
    for names in alike.values():
        if len(names) > 1:
            *first, last = map(repr, names)
            found.append(
                f"classes {', '.join(first)} and {last} differ only in spelling: are "
                "they one?"
            )
    return found


def _plain_spelling(label: str) -> str:
    """A label without case, extra spaces, full stops at its ends, and characters nobody sees."""
    normal = unicodedata.normalize("NFKC", label)
    seen = "".join(char for char in normal if unicodedata.category(char) != "Cf")
    bare = seen.casefold().strip(" .")
    plain = " ".join(bare.split())
    try:
        return str(Decimal(plain).normalize())  # exact, unlike float
    except InvalidOperation:
        return plain


def encode_labels(y: ArrayLike, classes: Array, name: str = "y") -> IntArray:
    """The position of every label of ``y`` in ``classes``."""
    array = check_labels(y, name)
    if array.dtype.kind == classes.dtype.kind == "i":
        codes = _whole_number_codes(array, classes)
    else:
        codes = _label_codes(array, classes, name)
    unknown = codes < 0
    if unknown.any():
        first = int(unknown.argmax())
        shown = ", ".join(map(repr, classes.tolist()[:10]))
        if len(classes) > 10:
            shown += ", …"
        raise ValueError(
            f"{name} has the label {array.tolist()[first]!r}, which is not in classes "
            f"({shown})"
        )
    return codes


def _whole_number_codes(labels: IntArray, classes: IntArray) -> IntArray:
    """Positions in ``classes``, -1 for others, without a Python object per row."""
    order = np.argsort(classes, kind="stable")
    places = np.searchsorted(classes, labels, sorter=order)
    nearest = order[np.minimum(places, len(classes) - 1)]
    return np.where(classes[nearest] == labels, nearest, -1)


def _label_codes(labels: Array, classes: Array, name: str) -> IntArray:
    position = {label: k for k, label in enumerate(classes.tolist())}
    given = labels.tolist()
    try:
        codes = [position.get(label, -1) for label in given]
    except TypeError:  # no hashable
        kinds = sorted({type(label).__name__ for label in given})
        raise ValueError(
            f"{name} must hold labels (text, numbers, booleans), got {', '.join(kinds)}"
        ) from None
    return np.array(codes, dtype=np.intp)


def labelled_posteriors(
    P: object,
    y: Given = None,
    classes: Names | None = None,
    *,
    name: str = "P",
    y_name: str = "y",
) -> tuple[Any, IntArray | None, Array]:
    """(posteriors n×K, class numbers or None, class names), fitted together here and only here.

    ``P`` is an array, tensor or DataFrame (pandas, polars) of shape (n, K), n values of p(second
    class), or a sparse matrix of scipy, which stays sparse. Columns with names are aligned with the
    classes by name; names that do not fit are refused. ``classes`` are K names in the order of
    unnamed columns; default the sorted labels, the names of the columns, or 0 … K-1.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"b": [0.1, 0.6], "a": [0.9, 0.4]})
    >>> labelled_posteriors(table, ["a", "b"])
    (array([[0.9, 0.1],
           [0.4, 0.6]]), array([0, 1]), array(['a', 'b'], dtype='<U1'))
    """
    labels = None if y is None else check_labels(y, y_name)
    columns = column_names(P)
    posteriors: Any
    if isinstance(P, SparseLike):
        posteriors = check_sparse_posteriors(P, name)
    elif columns is None:
        posteriors = check_posteriors(_both_columns(P, name), name)
    else:
        posteriors = check_posteriors(P, name)
    names = _class_names(classes, labels, columns, posteriors.shape[1], name, y_name)
    if columns is not None:
        posteriors = aligned(posteriors, columns, names, name)
    if labels is None:
        return posteriors, None, names
    codes = encode_labels(labels, names, y_name)
    check_same_length(posteriors, codes, f"{name} and {y_name}")
    return posteriors, codes, names


def _class_names(
    classes: Names | None,
    labels: Array | None,
    columns: list[Any] | None,
    k: int,
    name: str,
    y_name: str,
) -> Array:
    """The names of the K classes: those given, the labels, or the names of the columns."""
    if classes is not None:
        return check_classes(classes, k)
    if labels is None:
        return check_classes(columns, k)
    names = classes_of(labels, y_name)
    if columns is not None:
        found = {str(label): label for label in names.tolist()}
        in_text = list(map(str, columns))
        if set(found) < set(in_text):  # classes without a row
            every = map(found.get, in_text, columns)
            return check_classes(list(every), k)
    if len(names) != k:
        raise ValueError(
            f"{name} has {k} columns and {y_name} has {len(names)} distinct labels: "
            "pass classes, in the order of the columns"
        )
    return names


def aligned(
    values: FloatArray, columns: list[Any], names: Array, name: str
) -> FloatArray:
    """The columns of ``values``, called ``columns``, in the order of ``names`` (as text)."""
    place = {str(column): position for position, column in enumerate(columns)}
    wanted = [str(own) for own in names.tolist()]
    if len(place) < len(columns) or set(wanted) != set(place):
        raise ValueError(
            f"{name} has columns {columns[:10]} for the classes {names.tolist()[:10]}: "
            f"rename the columns, or pass {name}.to_numpy() if in the order of the classes"
        )
    order = [place[own] for own in wanted]
    return values if order == sorted(order) else values[:, order]


def column_names(P: object) -> list[Any] | None:
    """Names of the columns of a table; None for arrays and for the names that tables invent."""
    columns = list(getattr(P, "columns", []))
    numbers = list(range(len(columns)))
    of_polars = [f"column_{k}" for k in numbers]
    if columns in (numbers, of_polars):
        return None
    return columns


def _both_columns(p: object, name: str) -> object:
    """Posteriors of both classes where ``p`` is a vector, those of the second class; else ``p``."""
    try:
        if np.ndim(to_numpy(p)) != 1:
            return p
    except ValueError:  # rows of different lengths: the checks say so
        return p
    positive = check_finite(p, name, ndim=1)
    if positive.min() < 0 or positive.max() > 1:
        farthest = np.abs(positive - 0.5).argmax()
        raise ValueError(
            f"{name} has one dimension, so it must hold the probability of the second "
            f"class, got {positive[farthest]:.6g}"
        )
    return np.column_stack([1 - positive, positive])


def check_same_length(first: Array | csr_array, second: Array, names: str) -> None:
    """Refuse two arrays with different numbers of rows."""
    if first.shape[0] != second.shape[0]:
        raise ValueError(
            f"{names} must have the same number of rows, got {first.shape[0]} and {second.shape[0]}"
        )


def check_choice(value: str, choices: Sequence[str], name: str) -> str:
    """``value``, when it is one of ``choices``."""
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}"
        )
    return value


def check_flag(value: bool, name: str) -> bool:
    """``value``, when it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_between(value: float, low: float, high: float, name: str) -> float:
    """``value`` as a float strictly between ``low`` and ``high``."""
    if not _is_number(value) or not low < value < high:
        wanted = f"between {low:g} and {high:g}"
        if np.isinf(high):
            wanted = f"above {low:g}"
        raise ValueError(f"{name} must be a number {wanted}, got {value!r}")
    return float(value)


def check_at_least(value: float, least: float, name: str) -> float:
    """``value`` as a finite float of at least ``least``."""
    if not _is_number(value) or not least <= value < np.inf:
        raise ValueError(
            f"{name} must be a number of at least {least:g}, got {value!r}"
        )
    return float(value)


def check_count(value: int, name: str, least: int = 1) -> int:
    """``value`` as a whole number of at least ``least``."""
    if not _is_whole(value) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {value!r}"
        )
    return int(value)


def check_n_jobs(n_jobs: int | None) -> int | None:
    """``n_jobs``, when it is None or a whole number other than 0."""
    if n_jobs is not None and (not _is_whole(n_jobs) or n_jobs == 0):
        raise ValueError(
            f"n_jobs must be None (one process), a number of processes, or -1 for all cores, got "
            f"{n_jobs!r}"
        )
    return n_jobs


def check_seed(random_state: object) -> Any:
    """``random_state``, when it is None, a seed, or a generator of numpy."""
    drawn = isinstance(random_state, (np.random.RandomState, np.random.Generator))
    if random_state is None or drawn:
        return random_state
    if _is_whole(random_state) and random_state in range(2**32):
        return random_state
    raise ValueError(
        f"random_state must be None, a whole number from 0 to 2³² - 1, a RandomState or a "
        f"Generator, got {random_state!r}"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, Hashable) and not isinstance(value, tuple)


def _is_finite(name: object) -> bool:
    if isinstance(name, float):
        return bool(np.isfinite(name))
    return name is not None


def _is_cut(name: object) -> bool:
    """Would numpy's text arrays drop zero characters at its end, which can make two names one?"""
    return isinstance(name, str) and name.endswith("\0")


def _objects(values: Sequence[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def collected(X: Any) -> Any:
    """What a lazy frame of polars stands for; all else as it is."""
    if hasattr(X, "collect") and hasattr(X, "collect_schema"):
        return X.collect()
    return X


def from_polars(X: object) -> Any:
    """Frames of polars as those of pandas, lazy ones collected; all else as it is."""
    X = collected(X)
    if hasattr(X, "to_pandas") and hasattr(X, "columns"):
        return X.to_pandas()
    return X


def _is_missing(label: object) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas.NA compares to NA, which is neither true nor false
        return True


def group_numbers(groups: ArrayLike, n_rows: int) -> IntArray:
    """A number 0 … G-1 for the group of every row, at least two groups."""
    labels = one_each(check_labels(groups, "groups"), n_rows, "groups")
    numbers: dict[Any, int] = {}
    codes = [numbers.setdefault(label, len(numbers)) for label in labels.tolist()]
    if len(numbers) < 2:
        raise ValueError(
            "groups must name at least 2 groups: intervals count them, got 1"
        )
    return np.array(codes, dtype=np.intp)


def check_class_sizes(counts: Array, classes: Array) -> None:
    """Refuse classes without rows."""
    if names := classes[counts <= 0].tolist():
        raise ValueError(
            f"classes {names} have no rows: leave them out of classes, or add rows of them"
        )
