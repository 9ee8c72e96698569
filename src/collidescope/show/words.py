"""The answer in sentences. Numbers come in, plain words go out; nothing is computed here.

Sentences are text, not HTML: whoever prints them escapes them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

#: Longer names are cut in sentences; tables have them in full.
LONGEST = 40
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
#: Names of letters, digits and a few signs stand in a sentence without quotes.
SIMPLE = re.compile(r"[\w.+-]+")

#: How a matrix was made, by the beginning of ``info["method"]``.
METHODS = {
    "one-step, shrunk": "held-out chances of every row, corrected by the labels, drawn towards the chances themselves "
    "where labels are too few to tell",
    "one-step": "held-out chances of every row, corrected by the labels",
    "mean of p pᵀ": "held-out chances of every row, taken at their word: no labels were used",
    "gramian": "from how alike pairs of rows are (the road of the paper)",
    "counted": "counted over inputs that occur more than once: no model",
    "densities": "from known distributions, by simulation",
}

Summary = Mapping[str, Any]


def percent(value: float) -> str:
    """A share in words: one decimal, two where it is close to 0 or 1.

    >>> percent(0.0237), percent(0.0008), percent(0.00002), percent(0.0)
    ('2.4%', '0.08%', 'less than 0.01%', '0%')
    """
    if 0 < value < 0.0001:
        return "less than 0.01%"
    if value in (0, 1):
        return f"{value:.0%}"
    return f"{value:.2%}" if value < 0.01 or value > 0.99 else f"{value:.1%}"


def between(low: float | None, high: float | None) -> str:
    """`` (0.6% to 4.1%)``, or nothing where there is no interval."""
    return "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"


def quote(name: Any, longest: int = LONGEST) -> str:
    """A class name that can stand in a sentence: cut, on one line, in quotes unless it is one simple word.

    >>> quote("8"), quote("New York"), quote("")
    ('8', '“New York”', '(empty name)')
    """
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in str(name)).strip()
    if not text:
        return "(empty name)"
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    if any(unicodedata.bidirectional(c) in ("R", "AL", "RLE", "RLO", "LRO", "LRE", "RLI", "LRI", "FSI") for c in text):
        text = f"\u2068{text}\u2069"  # an isolate: the rest of the sentence keeps its direction
    return text if SIMPLE.fullmatch(text) else f"“{text}”"


def collision(first: str, other: str, rate: float, low: float | None, high: float | None) -> str:
    """What one entry of S says.

    >>> collision("8", "1", 0.0237, 0.0062, 0.0411)
    'An input labelled 8 would be labelled 1 in 2.4% of cases if it were seen again (0.62% to 4.1%).'
    """
    return (
        f"An input labelled {quote(first)} would be labelled {quote(other)} in {percent(rate)} of cases "
        f"if it were seen again{between(low, high)}."
    )


def headline(summary: Summary, method: str, coverage: float | None) -> list[str]:
    """PBER and Bayes error in words, and how to read them."""
    pber, bayes = summary["pber"], summary["bayes_error"]
    lines = [
        f"If an input were seen again, it would carry another label in {percent(pber['value'])} of cases"
        f"{between(pber['low'], pber['high'])}.",
        f"Even the best possible classifier of these inputs is wrong for {percent(bayes['low'])} to "
        f"{percent(bayes['high'])} of them."
        if bayes["high"] > 0
        else "No two classes collide: a perfect classifier of these inputs is possible.",
    ]
    if method.startswith("one-step"):
        lines.append(
            "Both are upper limits: what the model could not learn counts as collision, so a better model may lower "
            "them."
        )
    if coverage is not None:
        lines.append(
            f"Counted on {percent(coverage)} of the rows, those whose input occurs more than once; the others say "
            f"nothing here."
        )
    return lines


def what_to_do(summary: Summary) -> list[str]:
    """Advice that follows from the numbers, the most pressing first."""
    first = _trust_first(summary)
    pber = summary["pber"]
    quiet = (pber["value"] if pber["high"] is None else pber["high"]) < TINY
    if quiet and not first:
        top = f"at most {percent(pber['high'])}" if pber["high"] is not None else percent(pber["value"])
        advice = [
            f"Nothing needs doing about collisions: {top} of the inputs would carry another label if they were seen "
            f"again."
        ]
    else:
        advice = [*_about_classes(summary), *_more_rows(summary)]
    return [*first, *_about_labels(summary), *advice, *_about_classifier(summary)]


def _trust_first(summary: Summary) -> list[str]:
    trust = summary["trust"]
    lines = []
    if trust["control"]["passed"] is False:
        lines.append(
            "Do not act on these numbers yet: on shuffled labels, where there is nothing to find, the same method "
            "still found structure (see Trust)."
        )
    lines += [f"Read with care: {warning}." for warning in trust["warnings"]]
    return lines


def _about_classes(summary: Summary) -> list[str]:
    pber, path, names = summary["pber"]["value"], summary["merge_path"], summary["classes"]
    found = [pair for pair in summary["top_collisions"] if pair["rate"] > 0]
    if not found or len(path["pber"]) < 2:
        return []
    upper = summary["how"].startswith("one-step")
    model = ", or a model that learns more from them (a learning curve tells which)" if upper else ""
    if summary["n_classes"] == 2:
        return [
            f"With two classes there is nothing to merge. To tell {quote(names[0])} from {quote(names[1])} more often "
            f"takes inputs that differ between them: other features, sharper measurements{model}."
        ]
    a, b = quote(names[path["first"][1]]), quote(names[path["second"][1]])
    share = 1 - path["pber"][1] / pber
    after = f"from {percent(pber)} to {percent(path['pber'][1])}"
    # One collision that is told apart from zero; without intervals all count.
    sure = [pair for pair in found if pair["low"] is None or pair["low"] > 0]
    if share >= DOMINATES:
        lines = [
            f"Merge {a} and {b} if your use allows it: they make up {percent(share)} of all collisions, and merging "
            f"them lowers the rate of other labels {after}. That is exact and takes no retraining."
        ]
    else:
        half = next((step for step, left in enumerate(path["pber"]) if left <= pber / 2), None)
        groups = "" if half is None else f" To halve it takes merging down to {path['n_groups'][half]} groups."
        gain = "hardly lowers the rate of other labels"
        if percent(path["pber"][1]) != percent(pber):
            gain = f"lowers the rate of other labels only {after}"
        lines = [
            f"No single pair dominates: merging {a} and {b}, the best first step, {gain}.{groups} Try it in the merge "
            f"explorer."
        ]
    if sure:
        one, other = quote(sure[0]["class"]), quote(sure[0]["other"])
        lines.append(
            f"If {one} and {other} must stay apart, look for inputs that differ between them: other features, sharper "
            f"measurements{model}."
        )
    return lines


def _more_rows(summary: Summary) -> list[str]:
    pber, pairs = summary["pber"], summary["top_collisions"]
    if pber["high"] is None:
        return ["No intervals were estimated, so how far chance moves these numbers is not known."]
    lines = []
    maybe_zero = sum(1 for pair in pairs[:5] if pair["low"] is not None and pair["low"] <= 0)
    wide = pber["high"] - pber["low"] > 2 * WIDE * pber["value"]
    if maybe_zero or wide:
        which = (
            f"{maybe_zero} of the {min(len(pairs), 5)} pairs above could also be zero"
            if maybe_zero
            else f"the rate of other labels may be anything from {percent(pber['low'])} to {percent(pber['high'])}"
        )
        lines.append(f"More rows would make this surer: {which}. Four times the rows about halve the intervals.")
    counts = summary["counts"]
    if counts is not None and min(counts) < FEW_ROWS:
        small = sorted(zip(counts, summary["classes"], strict=True))
        few = [name for count, name in small if count < FEW_ROWS]
        named = ", ".join(quote(name) for name in few[:3]) + (" and others" if len(few) > 3 else "")
        lines.append(
            f"Gather more of {named}: fewer than {FEW_ROWS} rows (the least is {small[0][0]:,.0f}) say little about "
            f"{'a class' if len(few) == 1 else 'these classes'}."
        )
    return lines


def _about_labels(summary: Summary) -> list[str]:
    rows = summary["ambiguous_rows"]
    if rows is None or not rows["n_suspect"]:
        return []
    n, expected = rows["n_suspect"], rows["expected_suspect"]
    if n <= expected + BEYOND_CHANCE * expected**0.5:
        return []
    many = f"{n:,} rows carry a label that looks wrong" if n > 1 else "One row carries a label that looks wrong"
    chance = f"{expected:.0f}" if expected >= 1 else "none"
    return [f"{many}, where chance explains about {chance}: check {'them' if n > 1 else 'it'} first (see Rows)."]


def _about_classifier(summary: Summary) -> list[str]:
    audit = summary["audit"]
    return [] if audit is None else [audit["verdict"].replace("The classifier", "Your classifier", 1)]


def control(passed: bool | None, words: str) -> str:
    """The shuffled-label control in a sentence."""
    if passed is None:
        return (
            "Not run. It refits on shuffled labels, where there is nothing to find: "
            "clf.shuffled_control(X, y), then pass it as control."
        )
    return words


def conditioning(number: float | None, dominant: bool) -> str:
    """How far apart the classes are, as a whole."""
    if number is None:
        return "S is singular: some classes, or mixtures of them, cannot be told apart at all."
    own = (
        "Every class, seen again, is more often itself than all others together."
        if dominant
        else "Some class, seen again, is more often another class than itself."
    )
    return f"Condition number of S: {number:.3g} (1 is no collision at all). {own}"


def intervals(level: float, median: float | None, largest: float | None) -> str:
    """How wide the intervals are."""
    if median is None or largest is None:
        return "None: this matrix was made without standard errors."
    return f"At {level:.0%}. Standard errors of the rates: median {median:.4f}, largest {largest:.4f}."


def method(name: str) -> str:
    """How the matrix was made.

    >>> method("one-step")
    'one-step: held-out chances of every row, corrected by the labels'
    """
    return next((f"{name}: {said}" for start, said in METHODS.items() if name.startswith(start)), name)


def left_out(n_classes: int, shown: int) -> str:
    """What a report of very many classes does not show."""
    return (
        f"{n_classes:,} classes are too many to show: here are the {shown:,} that collide most, and all others as one "
        f"class. PBER, Bayes error and top pairs are those of all classes."
    )
