"""Quantities in words."""

from __future__ import annotations

#: (seconds, name): up to ten days in hours, beyond in days, beyond two years in years.
UNITS = ((365.25 * 86400, "years", 2.0), (86400.0, "days", 10.0), (3600.0, "h", 1.0), (60.0, "min", 1.0))


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(3), duration(78), duration(3900), duration(3e6)
    ('3 s', '1.3 min', '1.1 h', '34.7 days')
    """
    for unit, name, least in UNITS:
        if seconds >= least * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{max(seconds, 1):.0f} s"


def size(n_bytes: float) -> str:
    """An amount of memory in words.

    >>> size(1.25e9), size(4e13)
    ('1.2 GB', '40.0 TB')
    """
    return f"{n_bytes / 1e12:,.1f} TB" if n_bytes >= 1e12 else f"{n_bytes / 1e9:.1f} GB"
