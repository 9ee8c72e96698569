"""Pieces of the generated pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def where(environment: dict[str, Any]) -> str:
    """When and on what something was measured."""
    versions = ", ".join(f"{name} {number}" for name, number in environment["versions"].items() if number)
    gpu = f", {environment['gpu']}" if "gpu" in environment else ""
    return (
        f"{environment['date']}, {environment['processor']} ({environment['cores']} cores){gpu}, "
        f"Python {environment['python']}, {versions}"
    )


def best(values: Sequence[float], texts: Sequence[str]) -> list[str]:
    """The lowest in bold."""
    return [f"**{text}**" if value == min(values) else text for value, text in zip(values, texts, strict=True)]
