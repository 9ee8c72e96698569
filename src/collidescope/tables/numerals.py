"""Numbers that are written as text: money, percentages, units, separators, decimal commas.

A column is read as numbers only if all of its cells fit one :class:`NumberForm`: the same currency
or unit in every cell, the same decimal mark, the same thousands separator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collidescope._checks import FloatArray


def _pattern() -> re.Pattern[str]:
    currency = "[$€£¥₹]|USD|EUR|GBP|CHF|JPY|CAD|AUD|INR"
    unit = r"[%‰]|[A-Za-zµμ°Ω][A-Za-zµμ°Ω/²³]{0,7}"
    before = rf"(?P<open>\()?\s*(?P<sign>[-+−])?\s*(?P<prefix>{currency})?\s*(?P<inner>[-+−])?"
    digits = r"(?P<digits>[0-9](?:[0-9.,'’\s]*[0-9])?)"
    behind = rf"\s*(?P<suffix>{currency}|{unit})?\s*(?P<close>\))?"
    return re.compile(before + digits + behind)


WRITTEN = _pattern()  #: a number with what may stand before and behind it


class NumberForm(NamedTuple):
    """How the numbers of a column are written; the fields are "" where there is nothing."""

    prefix: str  #: a currency before the digits
    suffix: str  #: a currency or unit behind them
    decimal: str  #: "." or ","
    thousands: str  #: ",", ".", a space or an apostrophe

    def parse(self, words: Sequence[str]) -> FloatArray:
        """The numbers that ``words`` stand for, nan where one is not written in this form."""
        return np.array([self._number(word) for word in words], dtype=np.float64)

    def _number(self, word: str) -> float:
        found = WRITTEN.fullmatch(word.strip())
        if found is None:
            return np.nan
        opened = bool(found["open"])
        if opened != bool(found["close"]):
            return np.nan
        affixes = (found["prefix"] or "", found["suffix"] or "")
        if affixes not in ((self.prefix, self.suffix), ("", "")):
            return np.nan
        digits = _plain_digits(found["digits"], self.decimal, self.thousands)
        if digits is None:
            return np.nan
        negative = opened or {found["sign"], found["inner"]} & {"-", "−"}
        return -float(digits) if negative else float(digits)


def number_form(words: Sequence[str]) -> NumberForm | None:
    """The form in which all of ``words`` are numbers, or None.

    >>> number_form(["$1,234.50", "$12", "($7.25)"]).parse(
    ...     ["$1,234.50", "($7.25)", "soon"]
    ... )
    array([1234.5 ,   -7.25,     nan])
    >>> number_form(["37,50", "1 234,5"]).parse(["37,50", "1 234,5"])
    array([  37.5, 1234.5])
    >>> number_form(["12 kg", "500 g"]) is None
    True
    """
    affixes: set[tuple[str, str]] = set()
    for word in words:
        match = WRITTEN.fullmatch(word.strip())
        if match is None:
            return None
        affixes.add((match["prefix"] or "", match["suffix"] or ""))
    if len(affixes) != 1:
        return None
    ((prefix, suffix),) = affixes
    # decimal mark and thousands separator, in this order, so that "1,234" is a thousand
    for separators in (".", ".,", ". ", ".'", ",", ",.", ", "):
        form = NumberForm(prefix, suffix, separators[0], separators[1:])
        if np.isfinite(form.parse(words)).all():
            return form
    return None


def amounts(words: Sequence[str], most_units: int = 3) -> list[str]:
    """The ``words`` that look like numbers, if they do so in more than one form.

    None of them where more than ``most_units`` letters or units follow the digits, as in codes.

    >>> amounts(["1,100 kg", "~7.5", "7.5", "soon"])
    ['1,100 kg', '~7.5', '7.5']
    """
    found = {}
    for word in words:
        match = WRITTEN.fullmatch(word.lstrip("~≈<>≤≥ "))
        if match is not None:
            found[word] = match["suffix"]
    if len(set(found.values()) - {None}) > most_units:
        return []
    return list(found)


def _plain_digits(digits: str, decimal: str, thousands: str) -> str | None:
    """The digits as Python writes a number, None if the separators are not these two."""
    digits = " ".join(digits.split()).replace("’", "'")
    whole, mark, fraction = digits.partition(decimal)
    if mark and not fraction.isdigit():
        return None
    if whole.isdigit():
        return f"{whole}.{fraction or 0}"
    grouped = rf"[1-9]\d{{0,2}}({re.escape(thousands)}\d{{3}})+"
    if not thousands or not re.fullmatch(grouped, whole):
        return None
    return f"{whole.replace(thousands, '')}.{fraction or 0}"
