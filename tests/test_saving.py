"""Frozen dataclasses come back from a tree by the types of their fields, and nothing else does."""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from collidescope import _store
from collidescope._saving import NOT_SAVED, from_tree, to_tree

Float32 = npt.NDArray[np.float32]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Circle:
    radius: Annotated[float, 0.0, 10.0]


@dataclass(frozen=True)
class Grid:
    points: Annotated[Float32, "f4 n d"]
    n_features: Annotated[int, "d"]


@dataclass(frozen=True)
class Everything:
    name: str
    number: int
    share: float
    yes: bool
    colour: Colour
    kind: Literal["a", "b"]
    shape: Circle | Grid
    shapes: list[Circle]
    pair: tuple[int, str]
    sizes: tuple[int, ...]
    by_name: dict[str, float]
    perhaps: Circle | None
    bound: Annotated[float, "infinite"]
    weights: Annotated[npt.NDArray[Any], "f4|f8 n"]
    codes: Annotated[npt.NDArray[Any], "i8 n 2"]
    labels: npt.NDArray[Any]
    plain: Any
    cached: int = field(default=0, metadata=NOT_SAVED)


def everything(**changes: Any) -> Everything:
    values: dict[str, Any] = {
        "name": "x",
        "number": 3,
        "share": 0.5,
        "yes": True,
        "colour": Colour.BLUE,
        "kind": "a",
        "shape": Circle(2.0),
        "shapes": [Circle(1.0), Circle(3.0)],
        "pair": (1, "one"),
        "sizes": (4, 5, 6),
        "by_name": {"a": 0.25},
        "perhaps": None,
        "bound": math.inf,
        "weights": np.ones(4),
        "codes": np.zeros((4, 2), np.int64),
        "labels": np.array(["a", "b"]),
        "plain": {"epochs": [1, 2]},
    }
    return Everything(**(values | changes))


def same(first: Any, second: Any) -> bool:
    return _store._dumps(flat(first)) == _store._dumps(flat(second))


def flat(value: Any) -> Any:
    """A tree with arrays as text."""
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.astype(str).tolist()]
    if isinstance(value, dict):
        return {key: flat(part) for key, part in value.items()}
    if isinstance(value, list):
        return [flat(part) for part in value]
    return value


GRID = Grid(np.ones((2, 3), np.float32), 3)


@pytest.mark.parametrize(
    "changes", [{}, {"shape": GRID}, {"perhaps": Circle(1.0)}], ids=str
)
def test_a_dataclass_comes_back_from_a_file(tmp_path, changes):
    tree = to_tree(everything(**changes))
    _store.write(tmp_path / "x", "model", tree)
    back = from_tree(Everything, _store.read(tmp_path / "x", "model"))
    assert same(to_tree(back), tree)
    assert type(back.shape) is type(everything(**changes).shape)
    assert (back.colour, back.pair, back.bound) == (Colour.BLUE, (1, "one"), math.inf)


def test_values_of_fields_that_are_not_saved_can_be_given():
    tree = to_tree(everything(cached=7))
    assert "cached" not in tree
    assert from_tree(Everything, tree).cached == 0
    assert from_tree(Everything, tree, given={"cached": 5}).cached == 5


REFUSED = {
    "name": [1, None, ["x"]],
    "number": ["3", 3.0, True, None],
    "share": ["0.5", math.nan, 10**400, True],
    "yes": [1, "true"],
    "colour": ["green", 0, [], {}],
    "kind": ["c", 1, ["a"]],
    "shape": [
        {"type": "Circle"},
        {"type": "Circle", "radius": 11.0},
        {"type": "Circle", "radius": 1.0, "more": 1},
        {"type": "Square", "radius": 1.0},
        {"type": "Grid", "points": np.ones((2, 3), np.float32), "n_features": 4},
        {"type": ["Circle"], "radius": 1.0},
        [1.0],
    ],
    "shapes": [{"type": "Circle", "radius": 1.0}, [1.0], None],
    "pair": [[1], [1, 2], ["one", 1], "1o"],
    "sizes": [[4, "5"], 4, np.arange(3)],
    "by_name": [{"a": "b"}, [["a", 0.25]]],
    "perhaps": [1.0, {}, "None"],
    "bound": ["inf", np.array(math.nan), np.array([math.inf]), np.array(1, np.int64)],
    "weights": [np.ones((4, 1)), np.ones(4, np.int64), np.full(4, np.nan), [1.0] * 4],
    "codes": [np.zeros((4, 3), np.int64), np.zeros((5, 2), np.int64), np.zeros((4, 2))],
    "labels": [["a", "b"], "a", None],
}
CASES = [(name, value) for name, values in REFUSED.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=str)
def test_a_field_of_another_type_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        from_tree(Everything, to_tree(everything()) | {name: value})


def test_a_missing_field_is_refused():
    tree = to_tree(everything())
    del tree["share"]
    with pytest.raises(ValueError, match="share"):
        from_tree(Everything, tree)


def test_an_unknown_field_is_refused():
    with pytest.raises(ValueError, match="stranger"):
        from_tree(Everything, to_tree(everything()) | {"stranger": 1})


def test_sizes_that_are_known_bind_the_arrays():
    tree = to_tree(GRID)
    assert from_tree(Grid, tree, {"d": 3}).n_features == 3
    with pytest.raises(ValueError, match="shape"):
        from_tree(Grid, tree, {"d": 5})


def test_sizes_of_one_part_say_nothing_about_another():
    @dataclass(frozen=True)
    class Both:
        first: Any
        second: Any

    Both.__annotations__.update(first=Grid, second=Grid)
    other = Grid(np.ones((2, 5), np.float32), 5)
    back = from_tree(Both, to_tree(Both(GRID, other)))
    assert (back.first.n_features, back.second.n_features) == (3, 5)
