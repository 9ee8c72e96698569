"""Results as text for terminals and as HTML for notebooks, and the headline that everything shares.

The headline makes three statements about an *estimated* S, none of which a better classifier can refute: PBER as these
rows show it now, the range that unlimited rows of this kind would leave (from a :class:`~collidescope.limit.Limit`),
and the error that the best possible classifier makes at most. Two-sided bounds are stated only where S itself is known.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collidescope.matrix import CollisionMatrix

#: Up to this many classes S is shown in full; beyond it only its largest collisions.
TEXT_CLASSES, HTML_CLASSES = 12, 30
#: Cell colours (red, green, blue): an input staying in its class, an input found in another.
SAME, OTHER = "70,130,180", "214,69,65"
#: Characters of a class name in a sentence, at the left of a table, and above one of its columns.
IN_SENTENCE, AT_LEFT, ABOVE = 40, 24, 10
#: Counted collisions speak for most rows only when more than half of them have a twin; below, coverage is the headline.
LOW_COVERAGE = 0.5
LEVEL = 0.95
#: Shares below one in ten thousand are not told apart.
SMALLEST = 0.0001
#: States of a limit whose curve can be continued.
READABLE = ("settled", "still learning")
#: Names of letters, digits and a few signs stand in a sentence without quotes.
SIMPLE = re.compile(r"[\w.+-]+")
#: Characters that turn the direction of writing; those of a name would reach beyond it.
DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")


def percent(value: float) -> str:
    """A share in words: one decimal, two where it is close to 0 or 1.

    >>> percent(0.0237), percent(0.0008), percent(0.00002), percent(0.0)
    ('2.4%', '0.08%', 'less than 0.01%', '0%')
    """
    if 0 < value < SMALLEST:
        return "less than 0.01%"
    if value in (0, 1):
        return f"{value:.0%}"
    return f"{value:.2%}" if value < 0.01 or value > 0.99 else f"{value:.1%}"


def between(low: float | None, high: float | None, before: str = "") -> str:
    """`` (0.6% to 4.1%)``, or nothing where there is no interval."""
    return "" if low is None or high is None else f" ({before}{percent(low)} to {percent(high)})"


def span(low: float, high: float) -> str:
    """A range in words.

    >>> span(0.02, 0.05), span(0.00001, 0.05)
    ('2.0% to 5.0%', 'at most 5.0%')
    """
    return f"at most {percent(high)}" if low < SMALLEST else f"{percent(low)} to {percent(high)}"


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(3), duration(78), duration(3900)
    ('3 s', '1.3 min', '1.1 h')
    """
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:,.1f} h"


def short(name: Any, longest: int) -> str:
    """A name on one line, cut in the middle: both ends tell names apart."""
    text = DIRECTION.sub("", str(name))
    text = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text
    ).strip()
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[: longest - 1 - half]}…{text[-half:]}"


def quote(name: Any, longest: int = IN_SENTENCE) -> str:
    """A class name that can stand in a sentence: cut, on one line, in quotes unless it is one simple word.

    >>> quote("8"), quote("New York"), quote("")
    ('8', '“New York”', '(empty name)')
    """
    text = short(name, longest)
    if not text:
        return "(empty name)"
    if any(unicodedata.bidirectional(c) in ("R", "AL") for c in text):
        text = f"\u2068{text}\u2069"  # an isolate: the rest of the sentence keeps its direction
    return text if SIMPLE.fullmatch(text) else f"“{text}”"


def limit_facts(limit: Any) -> dict[str, str | float | None]:
    """What the headline needs of a ``Limit``, as plain values."""
    pber, error = limit.pber_interval(LEVEL), limit.bayes_error_interval(LEVEL) or (None, None)
    facts = {"limit_pber": limit.pber, "limit_pber_low": pber[0], "limit_pber_high": pber[1]}
    facts |= {"limit_error_low": error[0], "limit_error_high": error[1]}
    plain = {name: None if value is None else float(value) for name, value in facts.items()}
    return {"limit_state": str(limit.state), "limit_reason": str(limit.reason or ""), **plain}


def headline(cm: CollisionMatrix, limit: Any = None) -> list[str]:
    """The answer in sentences, with intervals at ``LEVEL``.

    ``limit`` is by default ``cm.limit``; that of merged classes is not known.
    """
    low, high = cm.pber_interval(LEVEL) or (None, None)
    pber = f"{percent(cm.pber)} of inputs would get another label{between(low, high, f'{LEVEL:.0%} interval ')}"
    if cm.coverage is not None and cm.coverage < 1:
        return _counted(cm, cm.coverage, pber, low)
    if cm._is_known():
        least, most = cm.bayes_error_bounds(None if low is None else LEVEL)
        best = "No two classes collide: a perfect classifier of these inputs is possible."
        if most > 0:
            best = f"The best possible classifier of these inputs errs on {percent(least)} to {percent(most)}. "
            best += "[Bayes error]"
        return [f"Labelled a second time, {pber}. [PBER]", best]
    if cm.method == "limit":
        return [
            f"With unlimited rows of this kind, labelled a second time, {pber}. [PBER at the limit]"
        ]
    rows = "the data" if cm.counts is None else f"{cm.counts.sum():,.0f} rows"
    limit = cm.limit if limit is None else limit
    facts = {} if limit is None else limit_facts(limit)
    lines = [
        f"Labelled a second time, {pber}, as far as a model trained on {rows} can tell. [PBER now]"
    ]
    lines.append(limit_words(facts))
    at_most, at_least = upper_limit(cm), facts.get("limit_error_low")
    if at_most is not None:
        last = f"The best possible classifier errs on at most {percent(at_most)} ({LEVEL:.0%} confidence)"
        if (
            isinstance(at_least, float)
            and at_least >= SMALLEST
            and facts.get("limit_state") in READABLE
        ):
            last += (
                f", and on at least {percent(min(at_least, at_most))} if learning goes on as it did"
            )
        lines.append(f"{last}.")
    return lines


def limit_words(facts: Mapping[str, Any]) -> str:
    """What unlimited rows would leave, from :func:`limit_facts`."""
    state = facts.get("limit_state")
    ends: list[Any] = [facts.get(f"limit_pber{end}") for end in ("_low", "_high", "")]
    if state is None or not all(
        isinstance(end, int | float) for end in ends
    ):  # not made, or a damaged file
        unknown = "what unlimited rows would leave was not estimated"
        return f"Part of it may be what the model has not learned yet; {unknown}."
    if state not in READABLE:
        why = str(facts.get("limit_reason") or "too few rows to see how it falls").rstrip(".")
        return f"What unlimited rows would leave cannot be said, and no lower limit can be given: {why}."
    low, high, likely = ends
    left, most_likely = span(low, high), f"most likely {percent(likely)}"
    if low < SMALLEST:
        known = state == "still learning" and likely >= SMALLEST
        left += f" ({most_likely}, perhaps nothing)" if known else " (perhaps nothing)"
    elif state == "still learning":
        left += f", {most_likely}"
    if state == "settled":
        said = (
            f"More rows of this kind would hardly change that: unlimited rows would leave {left}."
        )
    else:
        said = f"Unlimited rows of this kind would leave {left}; the rest is what the model has not learned yet."
    return f"{said} [PBER at the limit]"


def upper_limit(cm: CollisionMatrix) -> float | None:
    """The error that the best possible classifier makes at most; None where S has no standard errors."""
    return None if cm.pber_stderr is None else cm.bayes_error_limit(LEVEL)


def _counted(cm: CollisionMatrix, coverage: float, pber: str, low: float | None) -> list[str]:
    """Counted collisions that speak for part of the rows: coverage comes first where it is low."""
    unit, which = "rows", "those whose input occurs more than once"
    if cm.method == "counted votes":
        unit, which = "items", "those with several labels"
    of_all = f"{percent(coverage)} of the {unit}"
    if cm.counts is not None and coverage > 0:
        of_all += f" ({cm.counts.sum():,.0f} of {cm.counts.sum() / coverage:,.0f})"
    lines = [f"Counted without a model on {of_all}: {which}."]
    if coverage < LOW_COVERAGE:
        lines[0] += " The others say nothing here, so this is not an answer for the whole table."
    lines.append(f"Of these, labelled a second time, {pber}. [PBER of inputs with several labels]")
    if low is not None:
        # B is an average over rows, and no row contributes less than zero.
        lines.append(
            f"For all {unit} together it is at least {percent(coverage * low)} ({LEVEL:.0%} confidence)."
        )
    return lines


def as_text(cm: CollisionMatrix) -> str:
    """Labelled S, or its largest collisions when there are too many classes to print."""
    rows = "" if cm.counts is None else f" from {cm.counts.sum():,.0f} rows"
    lines = [f"Collision matrix of {cm.n_classes} classes{rows}", *headline(cm), ""]
    if cm.n_classes > TEXT_CLASSES:
        lines.append(
            f"Largest collisions ({cm.n_classes} classes are too many to print; see .to_frame()):"
        )
        return "\n".join([*lines, pairs_text(cm, 10)])
    names, heads = ([short(name, longest) for name in cm.classes] for longest in (AT_LEFT, ABOVE))
    left, width = (
        max(8, *(len(name) + 1 for name in names)),
        max(7, *(len(name) + 1 for name in heads)),
    )
    lines.append(
        "seen in".ljust(left) + "".join(name.rjust(width) for name in heads) + "   ← seen again in"
    )
    for name, row in zip(names, cm.matrix, strict=True):
        lines.append(name.ljust(left) + "".join(f"{value:{width}.4f}" for value in row))
    if cm.stderr is not None:
        from numpy import median  # not at the top: the command line's help needs words and no numpy

        lines.append(
            f"Standard errors: median {median(cm.stderr):.4f}, largest {cm.stderr.max():.4f}."
        )
    return "\n".join(lines)


def pairs_text(cm: CollisionMatrix, n: int) -> str:
    """The ``n`` largest collisions as a table that fits a terminal."""
    table = cm.top_collisions(n)
    for column in ("class", "other"):
        table[column] = [short(name, AT_LEFT) for name in table[column]]
    return str(table.to_string(index=False, float_format="{:.4f}".format))


def as_html(cm: CollisionMatrix) -> str:
    """A coloured table with intervals on hover; every name escaped."""
    words = words_html(*headline(cm))
    if cm.n_classes > HTML_CLASSES:
        return words + cm.top_collisions(20).to_html(
            index=False, float_format="{:.4f}".format, escape=True
        )
    low, high = cm.interval() or (None, None)
    names = [html.escape(str(name)) for name in cm.classes]

    def cell(i: int, j: int) -> str:
        value = cm.matrix[i, j]
        ends = (
            ""
            if low is None or high is None
            else f", 95% interval {low[i, j]:.4f} to {high[i, j]:.4f}"
        )
        style = f"background:rgba({SAME if i == j else OTHER},{value**0.5:.2f})"
        return f"<td style='{style}' title='{names[i]} → {names[j]}: {value:.4f}{ends}'>{value:.3f}</td>"

    places = range(len(names))
    rows = (
        f"<tr><th scope='row'>{names[i]}</th>{''.join(cell(i, j) for j in places)}</tr>"
        for i in places
    )
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("seen in ↓, again in →", *names))
    return f"{words}<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def words_html(*lines: str) -> str:
    """A paragraph for each line, escaped."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)
