"""Checks of arguments that the applications share."""

from __future__ import annotations

from typing import Any

from collidescope.matrix import CollisionMatrix


def check_matrix(cm: object) -> None:
    """Refuse what is not a collision matrix."""
    if not isinstance(cm, CollisionMatrix):
        raise ValueError(
            f"cm must be a CollisionMatrix, got {type(cm).__name__}: "
            f"write CollisionMatrix(S), or take the collision_matrix_ of a fitted classifier"
        )


def is_series(values: Any) -> bool:
    """Is it a pandas Series? Asked without importing pandas."""
    return type(values).__name__ == "Series" and type(values).__module__.split(".")[0] == "pandas"
