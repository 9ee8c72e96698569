"""Votes as people have them: a column per annotator, items without a vote, tables pasted twice."""

import numpy as np
import pandas as pd
import pytest

import collidescope as cs
from collidescope.tables.votes import items_with_votes, votes_from_annotators

TABLE = pd.DataFrame(
    {
        "anna": ["cat", "dog", None],
        "bob": ["cat", " cat", "?"],
        "eve": ["dog", None, ""],
    },
    index=["x", "y", "z"],
)


def test_cells_are_counted_per_item_and_class():
    assert votes_from_annotators(TABLE, empty="drop").to_dict("index") == {
        "x": {"cat": 2, "dog": 1},
        "y": {"cat": 1, "dog": 1},
    }


def test_items_without_a_vote_are_named():
    with pytest.raises(
        ValueError, match=r"1 of 3 items without a vote \('z'\).*empty='drop'"
    ):
        votes_from_annotators(TABLE)


def test_a_column_may_name_the_items():
    votes = votes_from_annotators(TABLE.head(2).reset_index(names="item"), item="item")
    assert votes.index.tolist() == ["x", "y"]


def test_whole_numbers_stay_numbers():
    votes = votes_from_annotators(pd.DataFrame({"a": [10, 2], "b": [2.0, np.nan]}))
    assert votes.columns.tolist() == [2, 10]


def test_classes_may_be_more_than_those_chosen():
    votes = votes_from_annotators(TABLE.head(2), ["cat", "cow", "dog"])
    assert votes["cow"].tolist() == [0, 0]


def test_a_vote_for_another_class_is_named():
    with pytest.raises(ValueError, match="votes for 'dog', classes are 'cat', 'cow'"):
        votes_from_annotators(TABLE, ["cat", "cow"])


def test_one_annotator_is_not_enough():
    with pytest.raises(ValueError, match="at least 2 annotators, got 1"):
        votes_from_annotators(TABLE[["anna"]])


def test_spellings_of_one_class_are_said():
    with pytest.warns(match="classes 'Cat' and 'cat' differ only in spelling"):
        votes_from_annotators(pd.DataFrame({"a": ["Cat", "dog"], "b": ["cat", "dog"]}))


def test_the_matrix_is_that_of_the_counted_votes(rng):
    counts = rng.multinomial(5, [0.6, 0.3, 0.1], 200)
    cells = [np.repeat(["a", "b", "c"], own) for own in counts]
    table = pd.DataFrame([rng.permutation(own) for own in cells])
    ours = cs.collision_matrix_from_votes(votes_from_annotators(table))
    reference = cs.collision_matrix_from_votes(
        pd.DataFrame(counts, columns=list("abc"))
    )
    assert ours == reference


@pytest.mark.parametrize("again", [np.tile, lambda n, k: np.repeat(n, k)])
def test_a_table_that_stands_in_itself_three_times_is_said(again):
    votes = pd.DataFrame(
        np.random.default_rng(0).multinomial(5, [0.5, 0.5], 40), columns=["a", "b"]
    )
    assert len(items_with_votes(votes)) == 40
    with pytest.warns(match="the same 40 items 3 times over"):
        items_with_votes(votes.iloc[again(np.arange(40), 3)])
