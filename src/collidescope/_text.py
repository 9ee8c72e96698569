"""Results as text for terminals and as HTML for notebooks, and the headline that everything shares.

The headline makes three statements about an *estimated* S, none of which a better classifier can
refute: PBER as these rows show it now, the range that unlimited rows of this kind would leave (from
a :class:`~collidescope.limit.Limit`), and the error that the best possible classifier makes at
most. Two-sided bounds are stated only where S itself is known, and posteriors without labels carry
no statement of confidence at all.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from collidescope.limit import Limit
    from collidescope.matrix import CollisionMatrix

#: Up to this many classes S is shown in full; beyond it only its largest collisions.
TEXT_CLASSES, HTML_CLASSES = 12, 30
LEVEL = 0.95
#: Shares below one in ten thousand are all written as "less than 0.01%".
SMALLEST = 0.0001
#: States of a limit whose curve can be continued.
READABLE = ("settled", "still learning")
#: How the reason of a limit begins where the last step of the curve is within sampling error.
UNKNOWN = "too few rows to say"


def percent(value: float) -> str:
    """A share as a percentage: one decimal, two where it is close to 0 or 1.

    >>> percent(0.0237), percent(0.0008), percent(0.00002), percent(0.0)
    ('2.4%', '0.08%', 'less than 0.01%', '0%')
    """
    if 0 < value < SMALLEST:
        return "less than 0.01%"
    if value in (0, 1):
        return f"{value:.0%}"
    if value < 0.01 or value > 0.99:
        return f"{value:.2%}"
    return f"{value:.1%}"


def between(low: float | None, high: float | None, before: str = "") -> str:
    """`` (0.6% to 4.1%)``, or nothing where there is no interval."""
    if low is None or high is None:
        return ""
    return f" ({before}{percent(low)} to {percent(high)})"


def span(low: float, high: float) -> str:
    """A range in words.

    >>> span(0.02, 0.05), span(0.00001, 0.05)
    ('2.0% to 5.0%', 'at most 5.0%')
    """
    if low < SMALLEST:
        return f"at most {percent(high)}"
    return f"{percent(low)} to {percent(high)}"


def is_narrow(low: float, high: float, least: float = 0.75) -> bool:
    """Is a range narrow: is its low end at least this share of the high end?

    >>> is_narrow(0.19, 0.22), is_narrow(0.06, 0.22), is_narrow(0.0, 0.00005)
    (True, False, False)
    """
    return low >= SMALLEST and low >= least * high


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(3), duration(78), duration(3900)
    ('3 s', '1.3 min', '1.1 h')
    """
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:,.1f} h"


def first_line(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def short(name: object, longest: int) -> str:
    """A name on one line, cut in the middle: both ends tell names apart."""
    # Characters that turn the direction of writing would reach beyond the name.
    text = re.sub("[\u202a-\u202e\u2066-\u2069]", "", str(name))
    breaks = ("Cc", "Zl", "Zp")
    letters = []
    for letter in text:
        if unicodedata.category(letter) in breaks:
            letter = " "
        letters.append(letter)
    text = "".join(letters).strip()
    if len(text) <= longest:
        return text
    shown = longest - 1
    half = shown // 2
    start = text[: shown - half]
    return f"{start}…{text[-half:]}"


def quote(name: object, longest: int = 40) -> str:
    """A class name that can stand in a sentence: cut, in quotes unless it is one simple word.

    >>> quote("8"), quote("New York"), quote("")
    ('8', '“New York”', '(empty name)')
    """
    text = short(name, longest)
    if not text:
        return "(empty name)"
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text):
        text = f"\u2068{text}\u2069"  # an isolate: the rest of the sentence keeps its direction
    if re.fullmatch(r"[\w.+-]+", text):
        return text
    return f"“{text}”"


def limit_facts(limit: Limit) -> dict[str, Any]:
    """What is said of a ``Limit``, as plain values: its state, and its ranges at ``LEVEL``."""
    low, high = limit.pber_interval(LEVEL)
    error_low, error_high = limit.bayes_error_interval(LEVEL)
    return {
        "state": limit.state,
        "reason": limit.reason,
        "undecided": bool(limit.undecided),
        "pber": limit.pber,
        "low": low,
        "high": high,
        "error_low": error_low,
        "error_high": error_high,
    }


def headline(cm: CollisionMatrix, limit: Limit | None = None) -> list[str]:
    """The answer in sentences, with intervals at ``LEVEL``.

    ``limit`` is by default the one that ``cm`` holds.
    """
    if cm.coverage is not None and cm.coverage < 1:
        return _counted(cm, cm.coverage)
    if cm._is_known():
        return _known(cm)
    if cm.method == "limit":
        # Its range is that of the curve, which the matrix does not hold.
        most_likely = f"{percent(cm.pber)} of the inputs would most likely get another"
        return [
            f"With unlimited rows of this kind, {most_likely} label. [PBER at the limit]"
        ]
    if not cm.uses_labels:
        said = f"If labelled again, {percent(cm.pber)} of the inputs would get another label"
        unchecked = (
            "There were no labels to check this with, so no interval can be given."
        )
        return [f"{said}, if the posteriors are right. [plug-in PBER]", unchecked]
    return _estimated(cm, limit or cm.limit)


def another_label(cm: CollisionMatrix) -> str:
    """PBER in words, with its interval."""
    low, high = cm.pber_interval(LEVEL) or (None, None)
    interval = between(low, high, f"{LEVEL:.0%} interval ")
    return f"{percent(cm.pber)} of the inputs would get another label{interval}"


def known_error(cm: CollisionMatrix) -> tuple[float, float]:
    """Bounds on the Bayes error where S is known, from the interval of the PBER if it has one."""
    level = None
    if cm.pber_stderr is not None:
        level = LEVEL
    return cm.bayes_error_bounds(level)


def _known(cm: CollisionMatrix) -> list[str]:
    first = f"If labelled again, {another_label(cm)}. [PBER]"
    least, most = known_error(cm)
    if most == 0:
        return [
            first,
            "No two classes collide: a perfect classifier of these inputs is possible.",
        ]
    return [
        first,
        (
            f"The best possible classifier of these inputs errs on {percent(least)} to "
            f"{percent(most)}. [Bayes error]"
        ),
    ]


def _estimated(cm: CollisionMatrix, limit: Limit | None) -> list[str]:
    rows = ""
    if cm.counts is not None:
        rows = f" of {cm.counts.sum():,.0f} rows"
    first = (
        f"If labelled again, {another_label(cm)}, judged by held-out "
        f"predictions{rows}. [PBER now]"
    )
    at_the_limit = (
        "Part of it may be what the model has not learned yet; what unlimited rows "
        "would leave was not estimated."
    )
    at_least = 0.0
    if limit is not None:
        facts = limit_facts(limit)
        at_the_limit = limit_words(facts)
        if limit.state in READABLE:
            at_least = facts["error_low"]
    lines = [first, at_the_limit]
    at_most = upper_limit(cm)
    if at_most is None:
        return lines
    last = f"The best possible classifier errs on at most {percent(at_most)}"
    last += f" ({LEVEL:.0%} confidence)"
    if at_least >= SMALLEST:
        least = percent(min(at_least, at_most))
        last += f", and on at least {least} if learning continues as it did"
    return [*lines, f"{last}."]


def limit_words(facts: Mapping[str, Any]) -> str:
    """What unlimited rows would leave, from :func:`limit_facts`."""
    state = facts["state"]
    if state not in READABLE:
        why = facts["reason"].rstrip(".")
        return (
            "What unlimited rows would leave is not known, and no lower limit can be "
            f"given: {why}."
        )
    low = facts["low"]
    high = facts["high"]
    pber_left = _left(low, high, facts["pber"], state)
    left = f"unlimited rows would leave {pber_left}"
    if state == "settled" and is_narrow(low, high):
        said = f"More rows of this kind would hardly change that: {left}"
    elif state == "settled" or facts["undecided"]:
        said = f"It is unclear whether more rows of this kind would change that: {left}"
    else:
        said = (
            f"Unlimited rows of this kind would leave {pber_left}; the rest is what "
            "the model has not learned yet"
        )
    return f"{said}. [PBER at the limit]"


def _left(low: float, high: float, likely: float, state: str) -> str:
    """The range at the limit; "most likely" only where the curve is seen to fall."""
    left = span(low, high)
    falls = state == "still learning"
    if low >= SMALLEST and falls:
        return f"{left}, most likely {percent(likely)}"
    if low >= SMALLEST:
        return left
    if falls and likely >= SMALLEST:
        return f"{left} (most likely {percent(likely)}, perhaps nothing)"
    return f"{left} (perhaps nothing)"


def upper_limit(cm: CollisionMatrix) -> float | None:
    """Upper limit of the error of the best possible classifier; None where there is none."""
    if cm.pber_stderr is None or not cm.uses_labels:
        return None
    return cm.bayes_error_limit(LEVEL)


def _counted(
    cm: CollisionMatrix, coverage: float, low_coverage: float = 0.5
) -> list[str]:
    """Counted collisions of part of the rows: coverage comes first."""
    unit = _unit(cm)
    which = "those whose input occurs more than once"
    if unit == "items":
        which = "those with several labels"
    of_all = f"{percent(coverage)} of the {unit}"
    if cm.counts is not None and coverage > 0:
        n = cm.counts.sum()
        of_all += f" ({n:,.0f} of {n / coverage:,.0f})"
    first = f"Counted without a model on {of_all}: {which}."
    if coverage < low_coverage:
        first += (
            " The others are not counted, so this is not an answer for the whole table."
        )
    lines = [
        first,
        f"If these are labelled again, {another_label(cm)}. [PBER of inputs with several labels]",
    ]
    interval = cm.pber_interval(LEVEL)
    if interval is not None:
        # B is an average over rows, and no row contributes less than zero.
        least = percent(coverage * interval[0])
        lines.append(
            f"For all {unit} together it is at least {least} ({LEVEL:.0%} confidence)."
        )
    return lines


def as_text(cm: CollisionMatrix, more: str = "see .to_frame()") -> str:
    """Labelled S, or its largest collisions when there are too many classes to print.

    ``more`` says where all of them are.
    """
    rows = "" if cm.counts is None else f" from {cm.counts.sum():,.0f} {_unit(cm)}"
    lines = [f"Collision matrix of {cm.n_classes} classes{rows}", *headline(cm), ""]
    if cm.n_classes > TEXT_CLASSES:
        return "\n".join(
            [
                *lines,
                (
                    f"Largest collisions ({cm.n_classes} classes are too many to print; "
                    f"{more}):"
                ),
                pairs_text(cm, 10),
            ]
        )
    lines += _matrix_lines(cm)
    stderr = cm.stderr
    if stderr is not None:
        # Not at the top: the help of the command line needs no numpy.
        from numpy import median

        lines.append(
            f"Standard errors: median {median(stderr):.4f}, largest {stderr.max():.4f}."
        )
    return "\n".join(lines)


def _unit(cm: CollisionMatrix) -> str:
    """What the counts of a matrix count."""
    return "items" if cm.method == "counted votes" else "rows"


def _matrix_lines(cm: CollisionMatrix) -> list[str]:
    classes = cm.classes
    names = [short(name, 24) for name in classes]
    heads = [short(name, 10) for name in classes]
    left = 1 + max(7, *map(len, names))
    width = 1 + max(6, *map(len, heads))
    top = "seen in".ljust(left)
    for name in heads:
        top += name.rjust(width)
    lines = [f"{top}   ← seen again in"]
    if len(lines[0]) > 80:  # too wide for a terminal
        lines = ["seen in ↓, seen again in →", top.replace("seen in", "       ", 1)]
    for name, row in zip(names, cm.matrix, strict=True):
        line = name.ljust(left)
        for value in row:
            line += f"{value:{width}.4f}"
        lines.append(line)
    return lines


def leading_pairs(cm: CollisionMatrix, n: int, level: float = LEVEL) -> pd.DataFrame:
    """The ``n`` largest collisions; those whose interval reaches 0 come last."""
    candidates = cm.top_collisions(4 * n, level)
    perhaps_nothing = candidates["low"].fillna(1.0) <= 0
    order = perhaps_nothing.sort_values(kind="stable").index
    return candidates.loc[order].head(n).reset_index(drop=True)


def pairs_text(cm: CollisionMatrix, n: int) -> str:
    """The ``n`` leading collisions as a table that fits a terminal."""
    table = leading_pairs(cm, n)
    for column in ("class", "other"):
        table[column] = [short(name, 24) for name in table[column]]
    return str(table.to_string(index=False, float_format="{:.4f}".format))


def as_html(cm: CollisionMatrix) -> str:
    """A coloured table with intervals on hover; every name escaped."""
    words = words_html(*headline(cm))
    if cm.n_classes > HTML_CLASSES:
        pairs = leading_pairs(cm, 20)
        table = pairs.to_html(index=False, float_format="{:.4f}".format, escape=True)
        return words + table
    names = [html.escape(str(name)) for name in cm.classes]
    head = "<th scope='col'>seen in ↓, again in →</th>"
    body = ""
    for i, name in enumerate(names):
        head += f"<th scope='col'>{name}</th>"
        body += _html_row(cm, names, i)
    return f"{words}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_row(cm: CollisionMatrix, names: list[str], i: int) -> str:
    """A row of the table: blue where an input stays in its class, red where it does not."""
    blue, red = "70,130,180", "214,69,65"
    ends = cm.interval()
    cells = f"<th scope='row'>{names[i]}</th>"
    for j, value in enumerate(cm.matrix[i]):
        colour = blue if i == j else red
        style = f"background:rgba({colour},{value**0.5:.2f})"
        said = f"{names[i]} → {names[j]}: {value:.4f}"
        if ends is not None:
            low, high = ends
            said += f", 95% interval {low[i, j]:.4f} to {high[i, j]:.4f}"
        cells += f"<td style='{style}' title='{said}'>{value:.3f}</td>"
    return f"<tr>{cells}</tr>"


def words_html(*lines: str) -> str:
    """A paragraph for each line, escaped."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)
