"""The answer in sentences. Numbers come in, plain words go out; nothing is estimated here.

Sentences are text, not HTML: whoever prints them escapes them. The headline itself, and how numbers
and names are written, are in :mod:`collidescope._text`, where ``print`` finds them too.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any

from collidescope._text import (
    READABLE,
    SMALLEST,
    between,
    duration,
    is_narrow,
    percent,
    quote,
)
from collidescope.matrix import Method

Summary = Mapping[str, Any]


def collision(
    first: str, other: str, rate: float, low: float | None, high: float | None
) -> str:
    """What one entry of S says.

    >>> collision("8", "1", 0.0237, 0.0062, 0.0411)
    'An input labelled 8 would next time be labelled 1 in 2.4% of cases (0.62% to 4.1%).'
    """
    return (
        f"An input labelled {quote(first)} would next time be labelled {quote(other)} "
        f"in {percent(rate)} of cases{between(low, high)}."
    )


def points(share: float, signed: bool = False) -> str:
    """A difference of shares in percentage points.

    >>> points(0.0123), points(0.00123, signed=True)
    ('1.2', '+0.12')
    """
    digits = ".2f" if abs(share) < 0.01 else ".1f"
    sign = "+" if signed else ""
    return format(100 * share, sign + digits)


def title(about: Summary) -> str:
    """The default title of the page.

    >>> title({"label": "income", "file": "adult.csv"})
    'Which classes of “income” are mistaken for which? (adult.csv)'
    """
    column = about.get("label")
    of = "" if column is None else f" of “{column}”"
    file = f" ({about['file']})" if about.get("file") else ""
    return f"Which classes{of} are mistaken for which?{file}"


def call(summary: Summary, python: str, command: str) -> str:
    """What to type: a command if the report was made by one, else the call in Python."""
    return f"`{command if summary['about'].get('command') else python}`"


def highest(pber: Summary) -> float:
    """The high end of its interval, or PBER itself where there is none."""
    return float(pber["value"] if pber["high"] is None else pber["high"])


def _ended(said: str) -> str:
    """A sentence with a full stop, unless it ends with a question mark."""
    return said if said.endswith((".", "?")) else f"{said}."


def what_to_do(summary: Summary) -> list[str]:
    """The answer first, then what to be careful about, then advice."""
    trust = summary["trust"]
    warnings = [f"Read with care: {_ended(said)}" for said in trust["warnings"]]
    if trust["control"]["passed"] is False:
        warnings.insert(
            0,
            (
                "Read with care: do not act on these numbers yet; on shuffled labels, "
                "where there is nothing to find, the fit still found structure."
            ),
        )
    harmless = not warnings and _is_harmless(summary)
    first = _nothing_to_do(summary["pber"]) if harmless else answer(summary)
    lines = [first, *warnings, *_about_labels(summary)]
    if not harmless:
        lines += _more_rows(summary)
        lines += _about_classes(summary)
        lines += _small_classes(summary)
    if summary["audit"] is not None:
        lines.append(summary["audit"]["verdict"])
    return lines


def _is_harmless(summary: Summary, tiny: float = 0.01) -> bool:
    """Is the PBER tiny for all inputs, as its interval says, or because S is known?"""
    certain = summary["pber"]["high"] is not None or summary["known"]
    return _covers_all(summary) and certain and highest(summary["pber"]) < tiny


def _covers_all(summary: Summary) -> bool:
    return summary["coverage"] in (None, 1)


def _nothing_to_do(pber: Summary) -> str:
    most = percent(highest(pber))
    if pber["high"] is not None:
        most = f"at most {most}"
    return f"Nothing needs doing about collisions: {most} of inputs would get another label."


def answer(summary: Summary) -> str:
    """The finding in a sentence."""
    pber = summary["pber"]
    inputs = "inputs" if _covers_all(summary) else "inputs with several labels"
    interval = between(pber["low"], pber["high"])
    share = percent(pber["value"])
    said = f"{share} of the {inputs} would get another label{interval}"
    if summary["how"] == Method.PLUG_IN:
        said = f"If the posteriors are right, {said}"
    said = said[0].upper() + said[1:]
    pair = _sure_pair(summary)
    if pair is None:
        return f"{said}."
    names = f"{quote(pair['class'])} would most often turn into {quote(pair['other'])}"
    return f"{said}; {names}, in {percent(pair['rate'])} of cases."


def _sure_pair(summary: Summary) -> Summary | None:
    """The leading collision whose interval excludes 0; without intervals the first."""
    pairs: list[Summary] = summary["top_collisions"]
    sure = [pair for pair in pairs if pair["low"] is None or pair["low"] > 0]
    return sure[0] if sure else None


def chance(summary: Summary) -> float:
    """PBER of labels that are drawn by the class shares, for any input."""
    return 1 - math.fsum(prior**2 for prior in summary["priors"])


#: A PBER above this share of that by chance is hardly better than chance.
NEARLY = 0.95


def at_chance(summary: Summary) -> bool:
    """May the inputs predict the class no better than the class shares do?"""
    return bool(
        summary["complete"] and highest(summary["pber"]) >= NEARLY * chance(summary)
    )


def _nearly_chance(summary: Summary) -> bool:
    """Is the PBER itself, and not only the end of its interval, nearly that by chance?"""
    return bool(summary["pber"]["value"] >= NEARLY * chance(summary))


def _more_rows(summary: Summary) -> list[str]:
    pber = summary["pber"]
    if summary["limit"] is not None:
        return [_from_curve(pber["value"], summary["limit"])]
    if pber["high"] is None:
        return [
            "No intervals were estimated, so the sampling error of these numbers is not known."
        ]
    if pber["high"] - pber["low"] <= pber["value"]:
        return []
    return [
        (
            "More rows would make this more precise: it may be anything from "
            f"{percent(pber['low'])} to {percent(pber['high'])}. Four times the rows "
            "halve that."
        )
    ]


def _from_curve(now: float, limit: Summary) -> str:
    """Would more rows help? In the words of the headline (``limit_words``)."""
    if limit["state"] not in READABLE:
        return f"Gather more rows, or try another model, before you act: {limit['reason']}."
    settled = limit["state"] == "settled"
    if settled and is_narrow(limit["low"], limit["high"]):
        return (
            "More rows of this kind would hardly help: more informative inputs, or fewer "
            "classes, would."
        )
    gain = max(0.0, now - limit["doubled"][1])
    twice = "twice the rows would do little"
    if gain >= SMALLEST:
        twice = (
            "twice the rows would lower the share of other labels by about "
            f"{points(gain)} percentage points"
        )
    if settled or limit["undecided"]:
        return (
            "It is unclear whether more rows of this kind would help: the change from the "
            f"last doubling of the rows is within sampling error. As a rough guess, {twice}."
        )
    left = max(0.0, now - limit["pber"])
    return (
        "More rows of this kind, or a model that learns more from them, would help: "
        f"about {points(left)} of the {points(now)} percentage points are not learned "
        f"yet; {twice}."
    )


def _about_classes(summary: Summary) -> list[str]:
    different = (
        "inputs that differ between them, such as other columns or better measurements"
    )
    if _are_images(summary):
        different = "images that show a difference, such as sharper or larger ones"
    elif summary["how"] == Method.COUNTED_VOTES:
        different = "clearer guidelines for the voters, or items that show more of each"
    names = summary["classes"]
    if not summary["top_collisions"]:
        return []
    if at_chance(summary) and not _nearly_chance(summary):
        unit = "items" if summary["how"] == Method.COUNTED_VOTES else "rows (or groups)"
        return [
            (
                "Whether these inputs predict the class better than the class shares alone is "
                f"not certain (by chance {percent(chance(summary))} would get another label): "
                f"gather more {unit} before you merge classes."
            )
        ]
    if at_chance(summary):
        return [
            (
                "These inputs hardly predict the class better than the class shares alone "
                f"(by chance {percent(chance(summary))} would get another label): look for "
                "other inputs; merging classes would only hide that."
            )
        ]
    if summary["merge_path"] is None:
        return [
            (
                "With two classes there is nothing to merge. To tell "
                f"{quote(names[0])} from {quote(names[1])} more often, look for "
                f"{different}."
            )
        ]
    lines = [_merge_advice(summary)]
    sure = _sure_pair(summary)
    if sure is not None:
        lines.append(
            f"If {quote(sure['class'])} and {quote(sure['other'])} must stay apart, "
            f"look for {different}."
        )
    return lines


def _are_images(summary: Summary) -> bool:
    rows = summary["ambiguous_rows"]
    return rows is not None and any(row["image"] for row in rows["rows"])


def _merge_advice(summary: Summary, dominates: float = 0.25) -> str:
    """The first merge, where it makes up much of all collisions; else how many it takes."""
    path = summary["merge_path"]
    pber = summary["pber"]["value"]
    one, other = (
        quote(summary["classes"][path[name][1]]) for name in ("first", "second")
    )
    if path["chance"][1]:
        return (
            f"Merging {one} and {other}, the best first step, would only hide that one of them "
            "is recognised no better than by chance: look for other inputs, or more rows of it."
        )
    rests = path["pber"]
    groups = path["n_groups"][1]
    share = 1 - rests[1] / pber
    after = f"from {percent(pber)} to {percent(rests[1])}"
    if share >= dominates:
        advice = (
            f"Merge {one} and {other} if your use allows it: they make up {percent(share)} "
            f"of all collisions, and merging them lowers the share of other labels {after}. "
            "The result is exact, with no retraining"
        )
    else:
        gain = f"lowers the share of other labels only {after}"
        if percent(rests[1]) == percent(pber):
            gain = "hardly lowers the share of other labels"
        advice = f"No single pair dominates: merging {one} and {other}, the best first step, {gain}"
        halves = [step for step, rest in enumerate(rests) if rest <= pber / 2]
        if halves:
            groups = path["n_groups"][halves[0]]
            advice += f". To halve it, merge down to {groups} groups"
    python = f"cs.consolidate(cm, n_groups={groups})"
    how = call(summary, python, _merge_command(summary, groups))
    return f"{advice}: {how}."


def _merge_command(summary: Summary, groups: int) -> str:
    about = summary["about"]
    if about.get("saved"):
        saved = shlex.quote(str(about["saved"]))
        return f"collidescope merge {saved} --groups {groups}"
    return (
        f"{about.get('command')} --matrix matrix.json && collidescope merge matrix.json "
        f"--groups {groups}"
    )


def _small_classes(summary: Summary, few: int = 30) -> list[str]:
    small = sorted(zip(summary["counts"] or (), summary["classes"], strict=False))
    names = [quote(name) for count, name in small if count < few]
    if not names:
        return []
    named = ", ".join(names[:3])
    if len(names) > 3:
        named += " and others"
    which = "a class" if len(names) == 1 else "these classes"
    unit = "items" if summary["how"] == Method.COUNTED_VOTES else "rows"
    return [
        (
            f"Gather more {unit} of {named}: fewer than {few} (the fewest are "
            f"{small[0][0]:,.0f}) say little about {which}."
        )
    ]


def _about_labels(summary: Summary, beyond_chance: float = 2.0) -> list[str]:
    """Suspect labels, where there are more than expected by this many standard deviations."""
    rows = summary["ambiguous_rows"]
    if rows is None:
        return []
    n = rows["n_suspect"]
    expected = rows["expected_suspect"]
    half = 0.5  # counts are whole: few are beyond chance less often than the deviation says
    if n <= expected + beyond_chance * expected**0.5 + half:
        return []
    by_chance = f"{expected:.0f}" if expected >= 1 else "none"
    explained = f"where chance explains about {by_chance}"
    if n == 1:
        return [
            f"One row carries a label that looks wrong, {explained}: check it first."
        ]
    return [
        f"{n:,} rows carry a label that looks wrong, {explained}: check them first."
    ]


def rows_to_look_at(rows: Summary) -> list[str]:
    """What "ambiguous" and "looks wrong" mean, and how many rows are either."""
    lines = [
        (
            f"{rows['n_ambiguous']:,} of {rows['n_rows']:,} rows are ambiguous: no class "
            "reaches a probability of 80%, or another class than the label reaches it "
            "while the label keeps more than 10%."
        )
    ]
    if rows["n_suspect"]:
        lines.append(
            f"{rows['n_suspect']:,} more have a label that looks wrong: another class "
            "reaches 80%, and the label has 10% or less. Chance alone would give about "
            f"{rows['expected_suspect']:,.0f}."
        )
    return lines


def control(summary: Summary, has_model: bool) -> str:
    """Why the shuffled-label control was not run, what it would cost and what it would miss."""
    if summary["how"] in (Method.COUNTED, Method.COUNTED_VOTES):
        return "Not needed: no model was fitted."
    if not has_model:
        return (
            "Not run: it refits the model on shuffled labels, and only the results of the "
            "model were given."
        )
    seconds = summary["about"].get("seconds")
    cost = "as long as the fit took"
    if seconds is not None:
        cost = f"about {duration(seconds)}"
    command = summary["about"].get("command") or ""
    if " fit " not in command:
        command = "collidescope fit TABLE --label COLUMN"
    python = "report(clf, X, y, control=clf.shuffled_control(X, y))"
    how = call(summary, python, f"{command} --control")
    return (
        "Not run. It fits again on shuffled labels, where there is nothing to find, and "
        f"takes {cost}: {how}. It does not detect target leakage, nor related rows in "
        "different folds."
    )


def conditioning(number: float, dominant: bool, near_singular: float = 1e3) -> str:
    """What the condition number of S says about the classes as a whole."""
    if not math.isfinite(number):
        return "S is singular: some classes, or mixtures of them, cannot be told apart at all."
    shown = f"{number:.3g}"
    if 1e3 <= number < 1e6:
        shown = f"{number:,.0f}"
    said = f"Condition number of S: {shown} (1 is no collision at all)."
    if number > near_singular:
        said += (
            " S is nearly singular: some classes, or mixtures of them, look alike here."
        )
    if dominant:
        return f"{said} Every class keeps its label in more than half of all cases."
    return f"{said} At least one class keeps its label in at most half of all cases."


def method(name: str) -> str:
    """How the matrix was made.

    >>> method("one-step")
    'one-step estimate: held-out probabilities of every row, corrected by the labels'
    """
    one_step = "held-out probabilities of every row, corrected by the labels"
    made = {
        "one-step, shrunk": (
            f"one-step estimate, shrunk: {one_step}, and shrunk towards the probabilities "
            "themselves where labels are too few"
        ),
        "one-step": f"one-step estimate: {one_step}",
        "one-step, votes": f"one-step estimate: {one_step}",
        "mean of p pᵀ": "plug-in estimate: the mean of p pᵀ over held-out probabilities p, "
        "without labels",
        "gramian": "from the similarity of pairs of rows (the paper's estimator)",
        "counted votes": "counted over inputs with several labels, without a model",
        "limit": "with unlimited rows, by continuing the learning curve",
        "counted": "counted over inputs that occur more than once, without a model",
        "densities": "from known distributions, by simulation",
    }
    return made.get(name, name)
