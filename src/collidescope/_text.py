"""Results as text for terminals and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collidescope.matrix import CollisionMatrix

#: Up to this many classes S is shown in full; beyond it only its largest collisions.
TEXT_CLASSES = 12
HTML_CLASSES = 30
#: Cell colours (red, green, blue): an input staying in its class, an input found in another.
SAME, OTHER = "70,130,180", "214,69,65"


def headline(cm: CollisionMatrix) -> list[str]:
    """The answer in words."""
    interval = cm.pber_interval()
    pber = f"{cm.pber:.2%}" + ("" if interval is None else f" (95% interval {interval[0]:.2%} to {interval[1]:.2%})")
    low, high = cm.bayes_error_bounds()
    lines = [
        f"An input seen again falls into another class with probability {pber}.   [PBER]",
        f"The best possible classifier on these inputs errs between {low:.2%} and {high:.2%}.   [Bayes error]",
    ]
    if str(cm.info.get("method")).startswith("one-step"):
        lines.append(
            "Both are upper limits: what the model could not learn counts as collision, "
            "so a better model may lower them."
        )
    if cm.coverage is not None:
        lines.append(f"Counted on {cm.coverage:.1%} of the rows: those whose input occurs more than once.")
    return lines


def as_text(cm: CollisionMatrix) -> str:
    """Labelled S, or its largest collisions when there are too many classes to print."""
    rows = "" if cm.counts is None else f" from {cm.counts.sum():,.0f} rows"
    lines = [f"Collision matrix of {cm.n_classes} classes{rows}", *headline(cm), ""]
    if cm.n_classes > TEXT_CLASSES:
        lines.append(f"Largest collisions ({cm.n_classes} classes are too many to print; see .to_frame()):")
        lines.append(cm.top_collisions(10).to_string(index=False, float_format="{:.4f}".format))
        return "\n".join(lines)
    names = [str(name) for name in cm.classes]
    left, width = max(8, *(len(name) + 1 for name in names)), max(7, *(len(name) + 1 for name in names))
    lines.append("seen in".ljust(left) + "".join(name.rjust(width) for name in names) + "   ← seen again in")
    for name, row in zip(names, cm.matrix, strict=True):
        lines.append(name.ljust(left) + "".join(f"{value:.4f}".rjust(width) for value in row))
    if cm.stderr is not None:
        lines.append(f"Standard errors: median {np.median(cm.stderr):.4f}, largest {cm.stderr.max():.4f}.")
    return "\n".join(lines)


def as_html(cm: CollisionMatrix) -> str:
    """A coloured table with intervals on hover; every name escaped."""
    words = words_html(*headline(cm))
    if cm.n_classes > HTML_CLASSES:
        return words + cm.top_collisions(20).to_html(index=False, float_format="{:.4f}".format, escape=True)
    interval = cm.interval()
    names = [html.escape(str(name)) for name in cm.classes]
    head = "".join(f"<th scope='col'>{name}</th>" for name in names)
    body = ""
    for i, name in enumerate(names):
        cells = ""
        for j, other in enumerate(names):
            value = cm.matrix[i, j]
            between = "" if interval is None else f", 95% interval {interval[0][i, j]:.4f} to {interval[1][i, j]:.4f}"
            cells += (
                f"<td style='background:rgba({SAME if i == j else OTHER},{value**0.5:.2f})' "
                f"title='{name} → {other}: {value:.4f}{between}'>{value:.3f}</td>"
            )
        body += f"<tr><th scope='row'>{name}</th>{cells}</tr>"
    return f"{words}<table><thead><tr><th>seen in ↓, again in →</th>{head}</tr></thead><tbody>{body}</tbody></table>"


def words_html(*lines: str) -> str:
    """A paragraph for each line, escaped.

    >>> words_html("a < b")
    '<p>a &lt; b</p>'
    """
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def facts_html(facts: Mapping[str, Any]) -> str:
    """A small table of names and values, escaped; numbers in four digits.

    >>> facts_html({"PBER": 0.03841})
    "<table><tbody><tr><th scope='row'>PBER</th><td>0.03841</td></tr></tbody></table>"
    """
    body = ""
    for name, value in facts.items():
        shown = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
        body += f"<tr><th scope='row'>{html.escape(name)}</th><td>{html.escape(shown)}</td></tr>"
    return f"<table><tbody>{body}</tbody></table>"
