"""The answer in sentences. Numbers come in, plain words go out; nothing is estimated here.

Sentences are text, not HTML: whoever prints them escapes them. The headline itself, and how numbers and names are
written, are in :mod:`collidescope._text`, where ``print`` finds them too.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from collidescope._text import READABLE, SMALLEST, between, duration, percent, quote
from collidescope.trust import UNKNOWN

#: A PBER that stays below this asks for nothing: fewer than one input in a hundred.
TINY = 0.01
#: A pair dominates when it makes up at least this share of all collisions.
DOMINATES = 0.25
#: Classes with fewer rows than this have intervals that say little.
FEW_ROWS = 30
#: A PBER interval whose half width is more than this share of the PBER is wide.
WIDE = 0.5
#: Labels that look wrong are news when there are more of them than expected by this many standard deviations.
BEYOND_CHANCE = 2.0
DIFFERENT = "inputs that differ between them: other columns, sharper measurements."

#: How a matrix was made, by the beginning of ``CollisionMatrix.method``.
METHODS = {
    "one-step, shrunk": "held-out probabilities of every row, corrected by the labels, drawn towards the probabilities "
    "themselves where labels are too few to tell",
    "one-step": "held-out probabilities of every row, corrected by the labels",
    "mean of p pᵀ": "the plug-in estimate from held-out probabilities: no labels were used",
    "gramian": "from how alike pairs of rows are (the paper's estimator)",
    "counted votes": "counted over several labels per input: no model",
    "limit": "with unlimited rows, by continuing the learning curve",
    "counted": "counted over inputs that occur more than once: no model",
    "densities": "from known distributions, by simulation",
}

Summary = Mapping[str, Any]


def collision(first: str, other: str, rate: float, low: float | None, high: float | None) -> str:
    """What one entry of S says.

    >>> collision("8", "1", 0.0237, 0.0062, 0.0411)
    'An input labelled 8 would be labelled 1 the second time in 2.4% of cases (0.62% to 4.1%).'
    """
    again = f"would be labelled {quote(other)} the second time in {percent(rate)} of cases"
    return f"An input labelled {quote(first)} {again}{between(low, high)}."


def points(share: float, signed: bool = False) -> str:
    """A difference of shares in percentage points.

    >>> points(0.0123), points(0.00123, signed=True)
    ('1.2', '+0.12')
    """
    return f"{100 * share:{'+' if signed else ''}.{2 if abs(share) < 0.01 else 1}f}"


def title(about: Summary) -> str:
    """What the page is called when nobody says."""
    label = "" if about.get("label") is None else f" of “{about['label']}”"
    return f"Which classes{label}{' in ' + about['file'] if about.get('file') else ''} collide?"


def call(summary: Summary, python: str, command: str) -> str:
    """What to type, where the reader stands: the command where there was one, else the call in Python."""
    return f"`{command}`" if summary["about"].get("command") else f"`{python}`"


def what_to_do(summary: Summary) -> list[str]:
    """Advice that follows from the numbers, the most pressing first."""
    trust, pber, audit = summary["trust"], summary["pber"], summary["audit"]
    first = [f"Read with care: {warning}." for warning in trust["warnings"]]
    if trust["control"]["passed"] is False:
        found = "on shuffled labels, where there is nothing to find, the same method still found structure."
        first.insert(0, f"Do not act on these numbers yet: {found}")
    at_most = pber["value"] if pber["high"] is None else pber["high"]
    if at_most < TINY and not first:
        top = ("" if pber["high"] is None else "at most ") + percent(at_most)
        advice = [f"Nothing needs doing about collisions: {top} of inputs would get another label."]
    else:
        advice = [*_more_rows(summary), *_about_classes(summary), *_small_classes(summary)]
    return [
        *first,
        *_about_labels(summary),
        *advice,
        *([] if audit is None else [audit["verdict"]]),
    ]


def _more_rows(summary: Summary) -> list[str]:
    pber, limit = summary["pber"], summary["limit"]
    if limit is None and pber["high"] is None:
        return ["No intervals were estimated, so how far chance moves these numbers is not known."]
    if limit is None:
        if pber["high"] - pber["low"] <= 2 * WIDE * pber["value"]:
            return []
        ends = f"it may be anything from {percent(pber['low'])} to {percent(pber['high'])}"
        return [
            f"More rows would make this surer: {ends}. Four times the rows about halve the interval."
        ]
    if limit["state"] not in READABLE:
        return [
            "Gather more rows, or try another model, before you act: learning has hardly begun."
        ]
    left, gain = (max(0.0, pber["value"] - end) for end in (limit["pber"], limit["doubled"][1]))
    twice = (
        f"twice the rows would take off about {points(gain)}"
        if gain >= SMALLEST
        else "twice the rows would do little"
    )
    if limit["reason"].startswith(UNKNOWN):
        said = f"the last doubling is within luck. At a guess, {twice}{' percentage points' * (gain >= SMALLEST)}"
        return [f"Whether more rows of this kind would help cannot be told yet: {said}."]
    if limit["state"] == "settled":
        return [
            "More rows of this kind would hardly help: it takes inputs that say more, or fewer classes."
        ]
    part = (
        f"about {points(left)} of the {points(pber['value'])} percentage points are not learned yet"
    )
    return [
        f"More rows of this kind, or a model that learns more from them, would help: {part}; {twice}."
    ]


def _about_classes(summary: Summary) -> list[str]:
    pber, path, names = summary["pber"]["value"], summary["merge_path"], summary["classes"]
    found = summary["top_collisions"]
    if not found:
        return []
    if path is None:
        pair = f"To tell {quote(names[0])} from {quote(names[1])} more often"
        return [f"With two classes there is nothing to merge. {pair} takes {DIFFERENT}"]
    a, b = quote(names[path["first"][1]]), quote(names[path["second"][1]])
    left, groups = path["pber"][1], path["n_groups"][1]
    share, after = 1 - left / pber, f"from {percent(pber)} to {percent(left)}"
    if share >= DOMINATES:
        gain = f"they make up {percent(share)} of all collisions, and merging them lowers the share of other labels"
        advice = f"Merge {a} and {b} if your use allows it: {gain} {after}. That is exact and takes no retraining"
    else:
        gain = f"lowers the share of other labels only {after}."
        if percent(left) == percent(pber):
            gain = "hardly lowers the share of other labels."
        if (
            half := next((step for step, rest in enumerate(path["pber"]) if rest <= pber / 2), None)
        ) is not None:
            groups = path["n_groups"][half]
            gain += f" To halve it takes merging down to {groups} groups"
        advice = (
            f"No single pair dominates: merging {a} and {b}, the best first step, {gain}".rstrip(
                "."
            )
        )
    saved, command = summary["about"].get("saved"), summary["about"].get("command")
    before = "" if saved else f"{command} --matrix matrix.json && "
    merge = (
        f"{before}collidescope merge {shlex.quote(str(saved or 'matrix.json'))} --groups {groups}"
    )
    lines = [f"{advice}: {call(summary, f'cs.consolidate(cm, n_groups={groups})', merge)}."]
    # One collision that is told apart from zero; without intervals all count.
    if (
        sure := next((pair for pair in found if pair["low"] is None or pair["low"] > 0), None)
    ) is not None:
        apart = f"If {quote(sure['class'])} and {quote(sure['other'])} must stay apart"
        lines.append(f"{apart}, look for {DIFFERENT}")
    return lines


def _small_classes(summary: Summary) -> list[str]:
    small = sorted(zip(summary["counts"] or (), summary["classes"], strict=False))
    few = [name for count, name in small if count < FEW_ROWS]
    if not few:
        return []
    named = ", ".join(quote(name) for name in few[:3]) + (" and others" if len(few) > 3 else "")
    rows, which = (
        f"{FEW_ROWS} rows (the least is {small[0][0]:,.0f})",
        "a class" if len(few) == 1 else "these classes",
    )
    return [f"Gather more of {named}: fewer than {rows} say little about {which}."]


def _about_labels(summary: Summary) -> list[str]:
    rows = summary["ambiguous_rows"] or {"n_suspect": 0, "expected_suspect": 0.0}
    n, expected = rows["n_suspect"], rows["expected_suspect"]
    if n <= expected + BEYOND_CHANCE * expected**0.5:
        return []
    many = (
        f"{n:,} rows carry a label that looks wrong"
        if n > 1
        else "One row carries a label that looks wrong"
    )
    chance = f"{expected:.0f}" if expected >= 1 else "none"
    return [
        f"{many}, where chance explains about {chance}: check {'them' if n > 1 else 'it'} first."
    ]


def rows_to_look_at(rows: Summary) -> list[str]:
    """What "ambiguous" and "looks wrong" mean, and how many rows are either."""
    why = "no class reaches a probability of 80%, or another class than the label reaches it while the label keeps more"
    lines = [f"{rows['n_ambiguous']:,} of {rows['n_rows']:,} rows are ambiguous: {why} than 10%."]
    if rows["n_suspect"]:
        chance = f"Chance alone would give about {rows['expected_suspect']:,.0f}."
        why = f"another class reaches 80%, and the label has 10% or less. {chance}"
        lines.append(f"{rows['n_suspect']:,} more have a label that looks wrong: {why}")
    return lines


def control(summary: Summary, has_model: bool) -> str:
    """Why the shuffled-label control was not run, what it would cost and what it would not see."""
    if not has_model:
        return "Not run: it fits again on shuffled labels, which takes the model and not only its results."
    seconds, command = summary["about"].get("seconds"), summary["about"].get("command") or ""
    cost = "as long as the fit took" if seconds is None else f"about {duration(seconds)}"
    again = (
        f"{command} --control"
        if " fit " in command
        else "collidescope fit TABLE --label COLUMN --control"
    )
    how = call(summary, "report(clf, X, y, control=clf.shuffled_control(X, y))", again)
    unseen = (
        "It would not find columns that give the label away, nor related rows in different folds."
    )
    return f"Not run. It fits again on shuffled labels, where nothing must be found, and takes {cost}: {how}. {unseen}"


def conditioning(number: float, dominant: bool) -> str:
    """How far apart the classes are, as a whole."""
    if not math.isfinite(number):
        return "S is singular: some classes, or mixtures of them, cannot be told apart at all."
    own = "Every class, seen again, is more often itself than all others together."
    own = own if dominant else "Some class, seen again, is more often another class than itself."
    return f"Condition number of S: {number:.3g} (1 is no collision at all). {own}"


def method(name: str) -> str:
    """How the matrix was made.

    >>> method("one-step")
    'one-step: held-out probabilities of every row, corrected by the labels'
    """
    return next(
        (f"{name}: {said}" for start, said in METHODS.items() if name.startswith(start)), name
    )
