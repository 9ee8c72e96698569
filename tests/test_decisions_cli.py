"""Commands that go from S to a decision say what the functions say, write tables, and refuse in a sentence."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from collidescope.applications import ambiguous, audit, ceilings, collision_change, collisions_by, split_candidates
from collidescope.cli.app import app
from collidescope.datasets import GaussianProblem

PROBLEM = GaussianProblem([[0.0, 0], [1.0, 0], [4, 0]], classes=list("abc"))
P_COLUMNS = ["p_a", "p_b", "p_c"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    X, y = PROBLEM.sample(300, 0)
    frame = pd.DataFrame(PROBLEM.posteriors(X).round(6), columns=P_COLUMNS)
    frame = frame.div(frame.sum(axis=1), axis=0)
    frame = frame.assign(y=y, said=np.where(X[:, 0] > 2, "c", "a"), site=np.arange(300) % 2, id=np.arange(300))
    frame.to_csv(folder / "p.csv", index=False)
    later = frame.assign(**{name: 0.7 * frame[name] + 0.1 for name in P_COLUMNS}).iloc[:250]
    later.to_csv(folder / "later.csv", index=False)
    frame.assign(x1=X[:, 0], x2=X[:, 1])[["x1", "x2", "site", "y"]].to_csv(folder / "raw.csv", index=False)
    pd.DataFrame(1 - np.eye(3), index=list("abc"), columns=list("abc")).to_csv(folder / "cost.csv")
    return folder


def run(folder, *words):
    files = {path.name for path in folder.iterdir()}
    return CliRunner().invoke(app, [str(folder / word) if word in files else str(word) for word in words])


def told(folder, *words):
    done = run(folder, *words, "--json", "-q")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_commands_say_what_the_functions_say(tables):
    frame = pd.read_csv(tables / "p.csv")
    later = pd.read_csv(tables / "later.csv")
    P, y = frame[P_COLUMNS].to_numpy(), frame["y"].to_numpy()
    Q, z = later[P_COLUMNS].to_numpy(), later["y"].to_numpy()
    expected = {
        ("audit", "p.csv", "-l", "y", "-p", "said"): audit(P, y, frame["said"].to_numpy()),
        ("groups", "p.csv", "-l", "y", "--by", "site"): collisions_by(P, y, frame["site"].astype(str)),
        ("ceilings", "p.csv", "-l", "y", "--cost", "cost.csv"): ceilings(P, y, cost=1 - np.eye(3)),
        ("compare", "p.csv", "later.csv", "-l", "y"): collision_change(P, y, Q, z),
        ("compare", "p.csv", "later.csv", "-l", "y", "--id", "id"): collision_change(P[:250], z, Q),
        ("split", "p.csv", "-l", "y"): split_candidates(P, y),
    }
    for command, found in expected.items():
        answer = told(tables, *command)
        answer.pop("notes")
        said = found.to_dict()
        said.pop("notes", None)
        assert json.loads(json.dumps(said)) == answer, command


def test_rows_are_written_with_their_numbers_and_columns(tables, tmp_path):
    frame = pd.read_csv(tables / "p.csv")
    expected = ambiguous(frame[P_COLUMNS].to_numpy(), y=frame["y"].to_numpy())
    expected = expected[expected["kind"] == "suspect label"]
    for name in ("rows.csv", "rows.parquet"):
        assert run(tables, "rows", "p.csv", "-l", "y", "--kind", "suspect", "-o", tmp_path / name).exit_code == 0
        written = (pd.read_csv if name.endswith("csv") else pd.read_parquet)(tmp_path / name)
        assert written["row"].tolist() == expected["index"].tolist()
        assert written["x_id"].tolist() == expected["index"].tolist()
    assert len(told(tables, "rows", "p.csv", "-l", "y", "--top", 3)["rows"]) == 3


def test_columns_are_ranked_and_priced(tables, tmp_path):
    answer = told(
        tables, "columns", "raw.csv", "-l", "y", "--unit", "x=x1,x2", "--cost", "x=2", "-o", tmp_path / "c.csv"
    )
    assert answer["table"][0]["unit"] == "x"
    assert answer["table"][0]["per_cost"] == pytest.approx(answer["table"][0]["needed"] / 2)
    assert pd.read_csv(tmp_path / "c.csv")["unit"].tolist() == ["x", "site"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("groups", "p.csv", "-l", "y", "--by", "site"), "For whom do the classes collide?"),
        (("ceilings", "p.csv", "-l", "y"), "balanced accuracy"),
        (("columns", "raw.csv", "-l", "y", "--budget", "5"), "Which column tells the classes apart?"),
        (("compare", "p.csv", "later.csv", "-l", "y"), "Did collisions change?"),
        (("audit", "p.csv", "-l", "y", "-p", "said"), "could be fixed by a better model"),
    ],
)
def test_every_result_is_a_section_of_the_report(tables, tmp_path, words, says):
    done = run(tables, *words, "--report", tmp_path / "r.html", "-q")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "r.html").read_text()
    assert says in page
    assert words[1] in page or words[2] in page


def test_a_limit_for_continuous_integration_is_an_exit_code(tables):
    assert run(tables, "audit", "p.csv", "-l", "y", "-p", "said", "--fail-above", "0.01").exit_code == 3
    assert run(tables, "audit", "p.csv", "-l", "y", "-p", "said", "--fail-above", "0.5").exit_code == 0
    worse = ("compare", "p.csv", "later.csv", "-l", "y", "--id", "id", "--fail-above")
    assert run(tables, *worse, "0.001").exit_code == 3
    assert run(tables, *worse, "0.2").exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("audit", "p.csv", "-l", "y", "-p", "y"), "the same column 'y'"),
        (("audit", "p.csv", "-l", "y"), "--predicted"),
        (("audit", "raw.csv", "-l", "y", "-p", "site"), "no column of probabilities for class 'a'"),
        (("rows", "p.csv", "-l", "y", "--kind", "odd"), "--kind must be one of"),
        (("rows", "p.csv", "-l", "y", "-o", "rows.xyz"), "cannot tell the format"),
        (("groups", "p.csv", "-l", "y"), "name a column with --by"),
        (("groups", "p.csv", "-l", "y", "--by", "town"), "town"),
        (("ceilings", "p.csv", "-l", "y", "--cost", "raw.csv"), "raw.csv lacks class 'a'"),
        (("columns", "raw.csv", "-l", "y", "--cost", "x1"), "--cost takes NAME=VALUE"),
        (("columns", "raw.csv", "-l", "y", "--cost", "x1=much"), "must be a number, got 'much'"),
        (("compare", "p.csv", "later.csv", "-l", "y", "--id", "site"), "must name every row once"),
        (("split", "nowhere.csv", "-l", "y"), "nowhere.csv"),
    ],
)
def test_bad_input_ends_in_a_sentence_and_code_2(tables, words, says):
    done = run(tables, *words)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
