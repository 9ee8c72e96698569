"""The report of an audit: numbers, words, rows."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope._text import OTHER, words_html

if TYPE_CHECKING:
    import pandas as pd

#: Pairs shown when a report is printed.
SHOWN = 5
SHOWN_HTML = 20

KINDS = ("fixable", "inherent", "other", "all")


@dataclass(frozen=True, eq=False, repr=False)
class AuditReport:
    """What a classifier gets wrong, split into what a better model could fix and what it could not.

    Made by :func:`audit`. Rates are shares of rows; intervals hold at ``level``.

    Attributes
    ----------
    error, error_interval : of the audited classifier
    inherent : float
        Error of the rule argmax p on the same rows: ``error = inherent + fixable``, exactly.
    fixable, fixable_interval : paired difference of the two errors
    bayes_error : float
        1 - mean(max p): what the posteriors themselves say the best rule errs.
    bayes_bounds : (low, high)
        Cover and Hart's bounds on the Bayes error from the Brier score of p, at the ends of its interval.
    pairs : DataFrame
        One row an ordered pair that occurs: ``true``, ``predicted``, ``rows`` (of the true class), ``observed``,
        ``inherent`` and ``fixable`` rates with ``low`` and ``high``, ``points`` (fixable as a share of all rows; they
        sum to the total), ``p_value``, ``flagged``. Largest ``fixable`` first.
    confusion, bayes_confusion : arrays of shape (K, K)
        P(ŷ = j | i) and P(argmax p = j | i) on these rows; nan where a class has none.
    cautions : tuple of str
    """

    classes: npt.NDArray[Any]
    n_rows: int
    error: float
    error_interval: tuple[float, float]
    inherent: float
    fixable: float
    fixable_interval: tuple[float, float]
    bayes_error: float
    bayes_bounds: tuple[float, float]
    pairs: pd.DataFrame
    confusion: FloatArray
    bayes_confusion: FloatArray
    level: float
    fdr: float
    cautions: tuple[str, ...] = ()
    #: Class numbers of y, ŷ and argmax p.
    _codes: tuple[IntArray, IntArray, IntArray] = field(default=(np.zeros(0, np.intp),) * 3)

    def rows(self, true: Any, predicted: Any, kind: str = "fixable") -> IntArray:
        """Numbers of the rows of class ``true`` that the classifier took for ``predicted``.

        ``kind``: "fixable" where argmax p is right, "inherent" where it says ``predicted`` too, "other" where it is
        wrong in another way, or "all" of them.
        """
        check.check_choice(kind, KINDS, "kind")
        i = int(check.encode_labels([true], self.classes, "true")[0])
        j = int(check.encode_labels([predicted], self.classes, "predicted")[0])
        if i == j:
            raise ValueError(f"predicted must be another class than true, got {predicted!r} for both")
        y, said, best = self._codes
        taken = (y == i) & (said == j)
        keep = {"fixable": best == i, "inherent": best == j, "other": (best != i) & (best != j), "all": taken}
        return np.flatnonzero(taken & keep[kind])

    @property
    def verdict(self) -> str:
        """The answer in words."""
        digits = 1 if self.error >= 0.01 else 2
        low, high = (f"{100 * end:.{digits}f}" for end in self.fixable_interval)
        said = f"The classifier errs on {self.error:.{digits}%} of rows."
        if self.fixable_interval[1] < 0:
            return (
                f"{said} The rule from these posteriors errs on {self.inherent:.{digits}%}: the classifier knows more "
                f"than they do, so they cannot say what is inherent. Use better posteriors."
            )
        if self.error == 0:
            return f"{said} There is nothing to fix."
        if self.fixable_interval[0] <= 0:
            return (
                f"{said} Nothing that a better model would fix is found: the best rule that these posteriors allow "
                f"errs on {self.inherent:.{digits}%} (difference {low} to {high} points). "
                f"To err less takes better features, not a better model, as far as these posteriors can see."
                f"{self._flag_words()}"
            )
        return (
            f"{said} About {100 * self.inherent:.{digits}f} points are inherent in the data (no model with these "
            f"features avoids them, as far as these posteriors can see), {100 * self.fixable:.{digits}f} points "
            f"({low} to {high}) could be fixed by a better model{self._largest_words()}."
        )

    def _largest_words(self) -> str:
        found = self.pairs[self.pairs["flagged"]] if self.pairs["flagged"].any() else self.pairs
        top = int(found["points"].to_numpy().argmax())
        true, predicted, points = (found[name].tolist()[top] for name in ("true", "predicted", "points"))
        part = "most of it" if points > self.fixable / 2 else "the largest part"
        return f", {part} {true} taken for {predicted}"

    def _flag_words(self) -> str:
        found = self.pairs[self.pairs["flagged"]].head(SHOWN)
        names = [f"{true} taken for {other}" for true, other in zip(found["true"], found["predicted"], strict=True)]
        return f" Some pairs still stand out: {', '.join(names)}." if names else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text, which JSON can hold."""
        data: dict[str, Any] = {"verdict": self.verdict, "classes": self.classes.tolist(), "n_rows": self.n_rows}
        for name in ("error", "inherent", "fixable", "bayes_error", "level", "fdr"):
            data[name] = float(getattr(self, name))
        for name in ("error_interval", "fixable_interval", "bayes_bounds", "cautions"):
            data[name] = list(getattr(self, name))
        for name in ("confusion", "bayes_confusion"):
            array = getattr(self, name)
            data[name] = [[None if np.isnan(value) else value for value in row] for row in array.tolist()]
        columns = {name: column.tolist() for name, column in self.pairs.items()}
        data["pairs"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return data

    def __repr__(self) -> str:
        return f"<AuditReport: {self.n_rows:,} rows, error {self.error:.4f}, fixable {self.fixable:.4f}>"

    def __str__(self) -> str:
        lines = [self.verdict, *self.cautions]
        low, high = self.bayes_bounds
        lines.append(f"The best possible classifier on these inputs errs between {low:.2%} and {high:.2%}.")
        shown = self.pairs[self.pairs["fixable"] > 0].head(SHOWN)
        if len(shown):
            table = shown.to_string(index=False, float_format="{:.4f}".format)
            lines += ["", f"Pairs with most to fix (flagged at a false discovery rate of {self.fdr:.0%}):", table]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        words = words_html(self.verdict, *self.cautions)
        head = "".join(f"<th scope='col'>{name}</th>" for name in self.pairs.columns)
        body = ""
        for row in self.to_dict()["pairs"][:SHOWN_HTML]:
            cells = ""
            for name, value in row.items():
                text = f"{value:.4f}" if isinstance(value, float) else html.escape(str(value))
                colour = f" style='background:rgba({OTHER},{max(row['fixable'], 0.0) ** 0.5:.2f})'"
                cells += f"<td{colour if name == 'fixable' else ''}>{text}</td>"
            body += f"<tr>{cells}</tr>"
        return f"{words}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
