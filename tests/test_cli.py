"""The command line: results on standard output, one paragraph for every mistake, exit codes that mean something."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import collidescope as cs
from collidescope import applications
from collidescope.cli import _console
from collidescope.cli._run import as_csv, write_table
from collidescope.cli.app import PANELS
from collidescope.datasets import GaussianProblem
from collidescope.tables import TableClassifier
from helpers import limit_like, run

FAST = ["--cv", "2", "--members", "linear", "--no-limit"]
P_COLUMNS = ["p_a", "p_b", "p_c"]


def good(*args):
    done = run(*args)
    assert done.exit_code == 0, done.stderr
    return done


def told(*args):
    return json.loads(good(*args, "--json", "-q").stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small table with an id, gaps, text levels, dates; a model and a matrix fitted on it; tables of posteriors."""
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(1)
    n = 300
    plan = rng.choice(["basic", "plus", "premium"], n, p=[0.5, 0.3, 0.2])
    columns = {
        "customer_id": [f"C{i}" for i in rng.permutation(10**5)[:n]],
        "spend": (
            np.select([plan == "basic", plan == "plus"], [20, 24], 90)
            * rng.lognormal(0, 0.4, n)
        ).round(2),
        "city": rng.choice(["Paris", "Lyon", None], n),
        "joined": pd.to_datetime("2020-01-01")
        + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
        "visits": rng.integers(0, 3, n),
    }
    table = pd.DataFrame(columns | {"plan": plan})
    table.loc[:3, "plan"], table.loc[4, "plan"] = None, "NA"
    table.to_csv(path / "shop.csv", index=False)
    test = table.iloc[200:].assign(
        said=np.where(table["spend"][200:] > 50, "premium", "basic")
    )
    test["spend"] += 0.01  # rows that were not in the fit
    test.to_csv(path / "test.csv", index=False)
    outputs = [
        "--save",
        path / "m.collide",
        "--matrix",
        path / "m.json",
        "--out",
        path / "heldout.csv",
    ]
    done = good(
        "fit",
        path / "shop.csv",
        "--label",
        "plan",
        *FAST,
        *outputs,
        "--report",
        path / "r.html",
    )
    (path / "fit.out").write_text(done.stdout)
    (path / "fit.err").write_text(done.stderr)
    problem = GaussianProblem([[0.0, 0], [1.0, 0], [4, 0]], classes=list("abc"))
    X, y = problem.sample(300, 0)
    frame = pd.DataFrame(problem.posteriors(X).round(6), columns=P_COLUMNS)
    frame = frame.div(frame.sum(axis=1), axis=0)
    frame = frame.assign(
        y=y,
        said=np.where(X[:, 0] > 2, "c", "a"),
        site=np.arange(300) % 2,
        id=np.arange(300),
    )
    frame.to_csv(path / "p.csv", index=False)
    frame.assign(**{name: 0.7 * frame[name] + 0.1 for name in P_COLUMNS})[:250].to_csv(
        path / "later.csv", index=False
    )
    frame.assign(x1=X[:, 0], x2=X[:, 1])[["x1", "x2", "site", "y"]].to_csv(
        path / "raw.csv", index=False
    )
    pd.DataFrame(1 - np.eye(3), index=list("abc"), columns=list("abc")).to_csv(
        path / "cost.csv"
    )
    (path / "other.json").write_text("{}")
    (path / "array.json").write_text('[{"a": 1, "y": "u"}]')
    return path


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_fit_prints_the_answer(folder):
    said = (folder / "fit.out").read_text()
    assert said.startswith("Collision matrix of 3 classes from 295 rows")
    for part in (
        "95% interval",
        "basic     0.",
        "Most colliding pairs",
        "What to do about it:\n- ",
    ):
        assert part in said
    cm = cs.CollisionMatrix.from_json(folder / "m.json")
    assert cm == cs.load(folder / "m.collide").collision_matrix_
    assert str(cm) in said


def test_fit_notes_what_it_found(folder):
    noted = (folder / "fit.err").read_text()
    for part in (
        "shop.csv: 295 labelled rows, 5 columns; 3 classes in 'plan': basic ",
        "5 of 300 rows have no label in 'plan', written as 'NA', and are left out (the first is row 0)",
        "column 'customer_id' is left out: every value differs",
        f"collidescope merge {folder / 'm.json'}",
    ):
        assert part in noted
    for pattern in (
        r"of 295 rows\): city \d+",
        r"295 rows × 4 columns → \d+ features",
        "training folds: .*left",
    ):
        assert re.search(pattern, noted)
    assert re.search(r"Took \d+ s and \d\.\d GB", noted)


def test_fit_writes_the_held_out_rows(folder):
    heldout = pd.read_csv(folder / "heldout.csv")
    assert heldout.columns.tolist() == [
        "row",
        "plan",
        "predicted",
        "p_basic",
        "p_plus",
        "p_premium",
        "customer_id",
        "spend",
        "city",
        "joined",
        "visits",
    ]
    assert heldout["row"].tolist() == list(
        range(5, 300)
    )  # the first five have no label
    assert (
        heldout["plan"].tolist()
        == pd.read_csv(folder / "shop.csv")["plan"].dropna().tolist()
    )
    assert heldout.filter(like="p_").sum(axis=1).to_numpy() == pytest.approx(
        1, abs=1e-4
    )


def test_fit_writes_the_report(folder):
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "<title>Which classes of “plan” are mistaken for which? (shop.csv)" in page
    used = "</bdi>, <bdi>".join(("spend", "city", "joined", "visits"))
    assert f"4 columns used: <bdi>{used}</bdi>" in page


def test_json_is_the_summary_that_gives_the_report_again(folder, tmp_path):
    done = good("fit", folder / "shop.csv", "-l", "plan", *FAST, "--json", "--quiet")
    summary = json.loads(done.stdout)
    assert done.stderr == ""
    assert summary["format"] == "collidescope.summary"
    assert any("customer_id" in note for note in summary["notes"])
    assert (
        summary["matrix"]
        == cs.load(folder / "m.collide").collision_matrix_.matrix.tolist()
    )  # the seed is the same
    (tmp_path / "s.json").write_text(done.stdout)
    good(
        "report",
        tmp_path / "s.json",
        "--out",
        tmp_path / "s.html",
        "--title",
        "Plans & more",
    )
    assert "Plans &amp; more" in (tmp_path / "s.html").read_text(encoding="utf-8")


def test_the_report_of_a_model_shows_given_rows(folder, tmp_path):
    pages = []
    for more in ([], ["--table", folder / "test.csv", "-l", "plan"]):
        good("report", folder / "m.collide", "-o", tmp_path / "r.html", *more)
        pages.append((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert all("Which classes of “plan” are mistaken" in page for page in pages)
    assert len(pages[0]) < len(pages[1])


def test_a_budget_says_what_it_left_out(folder):
    command = [
        "fit",
        folder / "shop.csv",
        "-l",
        "plan",
        "--cv",
        2,
        "--members",
        "linear",
    ]
    done = good(*command, "--budget", "0.000001")
    assert (
        "the budget of 1e-06 s was spent before models were trained on" in done.stderr
    )


def test_a_first_look_says_how_far_to_trust_it(folder, tmp_path):
    table = pd.read_csv(folder / "shop.csv").assign(
        invoice=lambda t: t["plan"].str.upper()
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [
        "fit",
        tmp_path / "t.csv",
        "-l",
        "plan",
        "--cv",
        2,
        "--no-limit",
        "--sample",
        100,
    ]
    done = good(*command, "--quick", "--report", tmp_path / "r.html")
    assert "Collision matrix of 3 classes from 100 rows" in done.stdout
    assert "t.csv: 100 of 295 labelled rows" in done.stderr
    assert "a first look at 100 of 295 rows" in done.stderr
    assert re.search(
        r"What to do about it:\n- .*\n- Read with care: column 'invoice'", done.stdout
    )
    for said in (
        done.stdout,
        done.stderr,
        (tmp_path / "r.html").read_text(encoding="utf-8"),
    ):
        assert "a small pool of models (--quick)" in said
    done = good(
        *command, "--members", "linear", "--drop", "invoice", "--control", "--json"
    )
    assert "'invoice' alone" not in done.stdout
    assert json.loads(done.stdout)["trust"]["control"]["passed"] in (True, False)
    assert "With shuffled labels every row of S should be the priors" in done.stderr


def test_rows_of_a_group_are_never_scored_by_a_model_that_saw_the_group(tmp_path):
    """Every person has one label and one fingerprint: only a model that knows the person can be right."""
    rng, person = np.random.default_rng(0), np.repeat(np.arange(60), 8)
    columns = {
        "person": person,
        "print": rng.normal(size=60)[person],
        "y": rng.choice(["a", "b"], 60)[person],
    }
    pd.DataFrame(columns).assign(z=rng.normal(size=480)).to_csv(
        tmp_path / "t.csv", index=False
    )
    pber = {}
    command = [
        "fit",
        tmp_path / "t.csv",
        "-l",
        "y",
        "--cv",
        3,
        "--members",
        "trees",
        "--no-limit",
    ]
    for name, more in (
        ("apart", ["--drop", "person"]),
        ("together", ["--groups", "person"]),
    ):
        done = good(*command, *more, "--matrix", tmp_path / "m")
        pber[name] = cs.CollisionMatrix.from_json(tmp_path / "m").pber
        assert (
            "rows with the same 'print' have the same label 100% of the time"
            in done.stderr
        )
    assert pber["together"] > pber["apart"] + 0.1


def test_sample_weights_are_those_of_python(folder, tmp_path):
    table = pd.read_csv(folder / "shop.csv").assign(w=np.arange(300) % 3)
    table.to_csv(tmp_path / "t.csv", index=False)
    good(
        "fit",
        tmp_path / "t.csv",
        "-l",
        "plan",
        *FAST,
        "--sample-weight",
        "w",
        "--matrix",
        tmp_path / "m",
    )
    used = table.dropna(subset="plan").reset_index(drop=True)
    model = TableClassifier(members=["linear"], limit=False, cv=2, random_state=0)
    model.fit(used.drop(columns=["plan", "w"]), used["plan"], sample_weight=used["w"])
    assert cs.CollisionMatrix.from_json(tmp_path / "m").pber == pytest.approx(
        model.collision_matrix_.pber, abs=1e-6
    )


def test_rows_that_stand_three_times_are_told_unless_made_unique(folder, tmp_path):
    table = (
        pd.read_csv(folder / "shop.csv")
        .drop(columns="customer_id")
        .dropna(subset="plan")
    )
    pd.concat([table] * 3).to_csv(tmp_path / "t.csv", index=False)
    done = good("fit", tmp_path / "t.csv", "-l", "plan", *FAST)
    assert re.search(
        r"What to do about it:\n- .*\n- Read with care: \d+ of 885 rows", done.stdout
    )
    assert done.stderr.count("of 885 rows have a copy") == 1
    done = good("fit", tmp_path / "t.csv", "-l", "plan", *FAST, "--unique")
    assert "590 rows repeat an earlier one and are left out (--unique)" in done.stderr
    assert "have a copy" not in done.stderr


def test_rare_classes_get_fewer_folds_or_are_named_with_what_to_do(tmp_path):
    labels = ["a"] * 30 + ["b"] * 26 + ["rare"] * 2 + ["u", "v"]
    pd.DataFrame({"x": np.arange(60) % 7, "y": labels}).to_csv(
        tmp_path / "t.csv", index=False
    )
    command = [
        "fit",
        tmp_path / "t.csv",
        "-l",
        "y",
        "--members",
        "linear",
        "--no-limit",
    ]
    done = run(*command)
    assert (
        done.exit_code,
        "--rare drop" in done.stderr,
        "--rare merge" in done.stderr,
    ) == (
        2,
        True,
        True,
    )
    assert "of 3 classes from 58 rows" in good(*command, "--rare", "drop").stdout
    assert "of 4 classes from 60 rows" in good(*command, "--rare", "merge").stdout
    assert "of 2 classes from 56 rows" in good(*command, "--drop-rare", "5").stdout


def test_a_headerless_table_of_formulas_survives_the_way_through_files(
    tmp_path,
):
    rng = np.random.default_rng(0)
    lines = [
        f"{a:.2f}, {'u' if a + e > 0 else 'v'}, {'=A()' if a > 0 else '@B'}"
        for a, e in rng.normal(size=(80, 2))
    ]
    (tmp_path / "t.data").write_text("\n".join(lines))
    good(
        "fit",
        tmp_path / "t.data",
        "--no-header",
        "--label",
        "3",
        *FAST,
        "--save",
        tmp_path / "m",
    )
    done = good(
        "predict", tmp_path / "m", tmp_path / "t.data", "--out", tmp_path / "p.csv"
    )
    assert "read alike" in done.stderr
    said = pd.read_csv(tmp_path / "p.csv")["predicted"]
    assert set(said) <= {"'=A()", "'@B"}
    frame = pd.read_csv(
        tmp_path / "t.data",
        header=None,
        skipinitialspace=True,
        names=["c1", "c2", "c3"],
    )
    frame.assign(said=said).to_csv(tmp_path / "a.csv", index=False)
    good("audit", tmp_path / "m", tmp_path / "a.csv", "-l", "c3", "-p", "said")
    assert (
        run("fit", tmp_path / "t.data", "--label", "income").stderr.count("--no-header")
        == 1
    )


def test_predict_answers_raw_rows_in_every_format(folder, tmp_path):
    new = pd.read_csv(folder / "shop.csv").drop(columns=["plan"]).head(20)
    new.loc[0, "city"] = "Rome"
    new.assign(more=1).to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", folder / "m.collide", tmp_path / "new.csv"]
    done = good(*command, "--out", tmp_path / "p.parquet", "--with", "customer_id")
    assert (
        "column 'city': 1 of 20 cells are levels that training did not have (such as 'Rome')"
        in done.stderr
    )
    assert "columns that the model does not know are ignored: 'more'" in done.stderr
    found = pd.read_parquet(tmp_path / "p.parquet")
    assert found.columns.tolist() == [
        "row",
        "customer_id",
        "predicted",
        "p_basic",
        "p_plus",
        "p_premium",
    ]
    with pytest.warns(cs.CollisionWarning, match="Rome"):
        expected = cs.load(folder / "m.collide").predict_proba(new)
    assert np.array_equal(found.filter(like="p_").to_numpy(), expected)
    assert (
        good(*command).stdout.splitlines()[0]
        == "row,predicted,p_basic,p_plus,p_premium"
    )
    assert np.array_equal(told(*command)["posteriors"], expected)


def test_audit_is_that_of_python(folder, tmp_path):
    command = [
        "audit",
        folder / "m.collide",
        folder / "test.csv",
        "--label",
        "plan",
        "--predicted",
        "said",
    ]
    done = good(*command, "--report", tmp_path / "a.html")
    test, model = pd.read_csv(folder / "test.csv"), cs.load(folder / "m.collide")
    P = model.predict_proba(test.drop(columns=["plan", "said"]))
    expected = cs.audit(
        P, y_true=test["plan"], y_pred=test["said"], classes=model.classes_
    )
    assert done.stdout.strip() == str(expected).strip()
    assert "classifier errs on" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_cluster_is_the_unit_of_every_interval_of_an_audit_and_its_report(folder):
    command = ["audit", folder / "m.collide", folder / "test.csv"]
    command += ["-l", "plan", "-p", "said", "--cluster", "visits"]
    answer = told(*command)
    test, model = pd.read_csv(folder / "test.csv"), cs.load(folder / "m.collide")
    P = model.predict_proba(test.drop(columns=["plan", "said"]))
    y, said, visits = test["plan"], test["said"], test["visits"]
    expected = cs.audit(
        P,
        y_true=y,
        y_pred=said,
        classes=model.classes_,
        groups=visits,
        limit=model.limit_,
    )
    assert answer["verdict"] == expected.verdict
    named = pd.DataFrame(P, columns=model.classes_)
    summary = cs.summarise(named, y=y, y_pred=said, groups=visits)
    assert summary["audit"]["error_interval"] == list(expected.error_interval)
    grouped = cs.collision_matrix_from_posteriors(named, y, groups=visits)
    assert summary["pber"]["high"] == grouped.pber_interval()[1]


def test_a_change_between_tables_counts_the_clusters_of_both(folder):
    answer = told(
        "compare",
        folder / "heldout.csv",
        folder / "heldout.csv",
        "-l",
        "plan",
        "--cluster",
        "visits",
    )
    alone = told(
        "compare", folder / "heldout.csv", folder / "heldout.csv", "-l", "plan"
    )
    assert answer["interval"] != alone["interval"]


def test_audit_gives_rows_of_the_fit_their_held_out_posteriors(folder, tmp_path):
    model = cs.load(folder / "m.collide")
    shop = pd.read_csv(folder / "shop.csv").dropna(subset="plan")
    shop.assign(said=model.predict(shop.drop(columns="plan"))).to_csv(
        tmp_path / "t.csv", index=False
    )
    answer = told(
        "audit", folder / "m.collide", tmp_path / "t.csv", "-l", "plan", "-p", "said"
    )
    own = cs.audit(
        model.posteriors_,
        y_true=shop["plan"],
        y_pred=model.predict(shop.drop(columns="plan")),
    )
    assert answer["verdict"] == own.verdict
    assert any(
        "295 of 295 rows are training rows of the model" in note
        for note in answer["notes"]
    )


def test_merge_is_that_of_python_from_a_matrix_or_a_model(folder, tmp_path):
    plan = cs.consolidate(cs.CollisionMatrix.from_json(folder / "m.json"), 2)
    for source in ("m.json", "m.collide"):
        answer = told("merge", folder / source, "--groups", 2)
        assert (answer["groups"], answer["pber"]) == (plan.groups, plan.matrix.pber)
    good("merge", folder / "m.json", "--groups", 2, "--matrix", tmp_path / "m.npz")
    assert cs.CollisionMatrix.from_npz(tmp_path / "m.npz") == plan.matrix
    kept = told("merge", folder / "m.json", "--groups", 2, "--apart", "basic,plus")
    assert not any({"basic", "plus"} <= set(group) for group in kept["groups"])
    assert (
        "Choose with --groups N or --max-pber"
        in good("merge", folder / "m.json").stderr
    )


def test_long_or_arabic_names_are_readable_in_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [
        "قطة",
        "كلب",
        *(f"a class with a very long name that goes on, number {k}" for k in range(4)),
    ]
    cs.CollisionMatrix(0.4 * np.eye(6) + 0.1, classes=names).to_json(
        tmp_path / "m.json"
    )
    lines = good("merge", tmp_path / "m.json").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("قطة" in line for line in lines)


def test_limit_says_what_unlimited_rows_would_leave(folder, tmp_path, monkeypatch):
    cm = cs.CollisionMatrix([[0.8, 0.2], [0.2, 0.8]], method="one-step")
    model = SimpleNamespace(collision_matrix_=cm, limit_=limit_like(cm))
    monkeypatch.setattr("collidescope.cli._run.load", lambda path: model)
    done = good("limit", folder / "m.collide", "--plot", tmp_path / "curve.png")
    assert "Unlimited rows of this kind would leave 6.0% to 22.0%" in done.stdout
    assert (
        "more rows would lower it; twice the rows would leave about 17.7% (15.9% to 19.4%)."
        in done.stdout
    )
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert told("limit", folder / "m.collide")["verdict"] == "more rows would lower it"


def test_limit_says_how_many_rows_a_target_needs(folder, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = np.array([250, 500, 1000, 2000])
    scores = rng.exponential(0.2, (4000, 1)) + sizes**-0.5 * rng.exponential(
        1.0, (4000, 4)
    )
    limit = cs.limit_from_scores(scores, sizes, baseline=0.5)
    cm = cs.CollisionMatrix([[0.8, 0.2], [0.2, 0.8]], method="one-step")
    model = SimpleNamespace(collision_matrix_=cm, limit_=limit)
    monkeypatch.setattr("collidescope.cli._run.load", lambda path: model)
    command = ["limit", folder / "m.collide", "--target"]
    needed = limit.rows_needed(0.215)
    assert str(needed) in good(*command, "21.5%").stdout
    assert told(*command, "0.215")["rows_needed"]["likely"] == needed.likely
    assert "--target takes a share" in run(*command, "few").stderr


def test_posteriors_with_labels_give_the_matrix_of_python(folder, tmp_path):
    good("posteriors", folder / "heldout.csv", "--label", "plan")  # as it is written
    table = pd.read_csv(folder / "heldout.csv").drop(columns=["row", "predicted"])
    table.to_parquet(tmp_path / "h.parquet")
    table.rename(columns=lambda name: name.removeprefix("p_")).to_csv(
        tmp_path / "h.csv", index=False
    )
    expected = cs.collision_matrix_from_posteriors(
        table[["p_basic", "p_plus", "p_premium"]].to_numpy(), table["plan"]
    )
    for name in ("h.parquet", "h.csv"):
        found = np.array(
            told("posteriors", tmp_path / name, "--label", "plan")["matrix"]
        )
        assert found == pytest.approx(expected.matrix, abs=1e-9)


def test_count_is_that_of_python_with_its_coverage(folder, tmp_path):
    command = [
        "count",
        folder / "shop.csv",
        "-l",
        "plan",
        "--drop",
        "spend",
        "--drop",
        "joined",
    ]
    done = good(*command, "--matrix", tmp_path / "m")
    table = pd.read_csv(folder / "shop.csv").dropna(subset="plan")
    assert cs.CollisionMatrix.from_json(tmp_path / "m") == cs.count_collisions(
        table[["city", "visits"]], table["plan"]
    )
    assert (
        "If labelled again" in done.stdout
    )  # every row has a twin: the answer comes first
    assert (
        told(*command)["matrix"]
        == told("report", tmp_path / "m", "-o", tmp_path / "c.html")["matrix"]
    )
    table.assign(memo="long " * 5000).to_csv(tmp_path / "t.csv", index=False)
    done = good(
        "count", tmp_path / "t.csv", "-l", "plan", "--drop", "spend", "--drop", "joined"
    )
    assert "Reading t.csv (7 MB) …" in done.stderr


def test_commands_for_decisions_say_what_the_functions_say(here, tmp_path):
    frame, later = pd.read_csv("p.csv"), pd.read_csv("later.csv")
    (P, y), (Q, z) = (
        (table[P_COLUMNS].to_numpy(), table["y"].to_numpy()) for table in (frame, later)
    )
    change, changed = applications.collision_change, "Did collisions change?"
    decided = {  # what the functions say, by the command that asks them, and what its page must hold
        "audit p.csv -l y -p said": (
            cs.audit(P, y, frame["said"].to_numpy()),
            "could be fixed by a better model",
        ),
        "groups p.csv -l y --by site": (
            cs.collisions_by(P, y, frame["site"].astype(str)),
            "For whom do the classes",
        ),
        "ceilings p.csv -l y --cost cost.csv": (
            cs.ceilings(P, y, cost=1 - np.eye(3)),
            "balanced accuracy",
        ),
        "compare p.csv later.csv -l y": (change(P, y, Q, z), changed),
        "compare p.csv later.csv -l y --id id": (change(P[:250], z, Q), changed),
        "split p.csv -l y": (cs.split_candidates(P, y), "Which classes look like two?"),
    }
    for command, (found, says) in decided.items():
        answer = told(
            *command.split(),
            "--report",
            tmp_path / "r.html",
            "--out",
            tmp_path / "t.csv",
        )
        said = json.loads(json.dumps(found.to_dict()))
        assert answer.pop("notes") is not None
        assert answer == {
            name: part for name, part in said.items() if name != "notes"
        }, command
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert says in page
        assert any(f"({name})</title>" in page for name in command.split()[1:3])
        assert "columns used" not in page  # those that stand beside posteriors are not
        assert len(pd.read_csv(tmp_path / "t.csv")) == len(getattr(found, found.TABLE))


def test_columns_are_ranked_with_their_price(here, tmp_path):
    command = [
        "columns",
        "raw.csv",
        "-l",
        "y",
        "--unit",
        "x=x1,x2",
        "--cost",
        "x=2",
        "--budget",
        "5",
    ]
    answer = told(
        *command, "--report", tmp_path / "r.html", "--out", tmp_path / "t.csv"
    )["table"]
    assert (
        pd.read_csv(tmp_path / "t.csv")["unit"].tolist()
        == [row["unit"] for row in answer]
        == ["x", "site"]
    )
    assert answer[0]["per_cost"] == pytest.approx(answer[0]["needed"] / 2)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Which column tells the classes apart?" in page
    assert "columns used" in page


def test_written_rows_keep_their_numbers(here, tmp_path):
    frame = pd.read_csv("p.csv")
    expected = applications.ambiguous(
        frame[P_COLUMNS].to_numpy(), y=frame["y"].to_numpy()
    )
    expected = expected[expected["kind"] == "suspect label"]["index"].tolist()
    for name, read in (("rows.csv", pd.read_csv), ("rows.parquet", pd.read_parquet)):
        good("rows", "p.csv", "-l", "y", "--kind", "suspect", "-o", tmp_path / name)
        written = read(tmp_path / name)
        assert written["row"].tolist() == written["x_id"].tolist() == expected
    assert len(told("rows", "p.csv", "-l", "y", "--top", 3)["rows"]) == 3


def test_a_bound_for_continuous_integration_is_an_exit_code(here):
    worse = "compare p.csv later.csv -l y --id id --fail-above"
    for command, bounds in (
        ("audit p.csv -l y -p said --fail-above", (0.01, 0.5)),
        (worse, (0.001, 0.2)),
    ):
        assert [run(*command.split(), bound).exit_code for bound in bounds] == [3, 0]


def test_a_printed_command_keeps_every_option_that_changes_the_numbers(
    folder, tmp_path
):
    table = pd.read_csv(folder / "shop.csv").assign(w=1.0)
    table.to_csv(tmp_path / "t.csv", index=False, header=False)
    options = [
        "--no-header",
        "--label",
        "6",
        "--drop",
        "c1",
        "--groups",
        "c5",
        "--members",
        "linear",
    ]
    done = good(
        "fit", tmp_path / "t.csv", *options, "--cv", 2, "--no-limit", "--sample", 200
    )
    again = next(
        line for line in done.stderr.splitlines() if line.endswith("# all rows")
    )
    for kept in (
        "--no-header",
        "--label 6",
        "--drop c1",
        "--groups c5",
        "--no-limit",
        "--cv 2",
    ):
        assert kept in again
    assert "--sample" not in again
    report = next(
        line for line in done.stderr.splitlines() if "--report report.html" in line
    )
    assert "--sample 200" in report


def test_no_python_is_said_on_the_command_line(tmp_path):
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(30), 4)
    columns = {
        "patient": group,
        "x": rng.normal(size=120),
        "y": rng.choice(["a", "b"], 30)[group],
    }
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    done = good("fit", tmp_path / "t.csv", "-l", "y", "--members", "linear", "--cv", 2)
    said = done.stdout + done.stderr
    for python in (
        "groups=X",
        "drop=[",
        "limit_ is None",
        "top_collisions",
        "groupby",
        "condition number",
    ):
        assert python not in said
    assert "--groups 'patient'" in said


def test_held_out_rows_of_a_fit_can_be_grouped_by_an_input_column(here):
    answer = told("groups", "heldout.csv", "-l", "plan", "--by", "city")
    assert {row["group"] for row in answer["table"]} == {"Lyon", "Paris", "(empty)"}


def test_some_input_columns_are_written_with_held_out_rows(here, tmp_path):
    written = ["--with", "city", "--out", tmp_path / "h.csv"]
    good("fit", "shop.csv", "-l", "plan", *FAST, *written)
    assert pd.read_csv(tmp_path / "h.csv").columns[-1] == "city"
    assert "spend" not in pd.read_csv(tmp_path / "h.csv")


def test_class_names_that_look_like_formulas_are_read_back(tmp_path):
    x = np.random.default_rng(0).normal(size=80)
    frame = pd.DataFrame({"x": x, "y": np.where(x > 0, "=A()", "@B;=C")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    good("fit", tmp_path / "t.csv", "-l", "y", *FAST, "--out", tmp_path / "h.csv")
    answer = told("posteriors", tmp_path / "h.csv", "-l", "y")
    assert answer["classes"] == ["=A()", "@B;=C"]


def test_copied_columns_may_be_called_like_those_of_the_result(folder, tmp_path):
    new = pd.read_csv(folder / "shop.csv").head(5).assign(row=7, predicted="x")
    new.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", folder / "m.collide", tmp_path / "new.csv", "--with", "row"]
    head = good(*command, "--with", "predicted").stdout.splitlines()[0]
    assert head.startswith("row,row (input),predicted (input),predicted,p_basic")


def test_training_rows_among_those_to_predict_are_named(folder):
    done = good("predict", folder / "m.collide", folder / "shop.csv")
    assert "295 of 300 rows are training rows of the model" in done.stderr
    done = good("predict", folder / "m.collide", folder / "test.csv")
    assert "training rows" not in done.stderr


def test_an_empty_file_of_costs_is_a_mistake(here, tmp_path):
    (tmp_path / "cost.csv").write_text("")
    done = run("ceilings", "p.csv", "-l", "y", "--cost", tmp_path / "cost.csv")
    assert done.exit_code == 2
    assert "cost.csv" in done.stderr


def test_columns_of_probabilities_come_before_one_hot_labels(here, tmp_path):
    frame = pd.read_csv("p.csv")
    one_hot = pd.get_dummies(frame["y"]).astype(int)
    pd.concat([one_hot, frame], axis=1).to_csv(tmp_path / "o.csv", index=False)
    pber = [
        told("posteriors", path, "-l", "y")["pber"]
        for path in (tmp_path / "o.csv", "p.csv")
    ]
    assert pber[0] == pber[1]


def test_one_hot_labels_are_no_probabilities(here, tmp_path):
    frame = pd.read_csv("p.csv")
    one_hot = pd.get_dummies(frame["y"]).astype(int)
    one_hot.assign(y=frame["y"]).to_csv(tmp_path / "o.csv", index=False)
    done = run("posteriors", tmp_path / "o.csv", "-l", "y")
    assert (done.exit_code, "hold the labels" in done.stderr) == (2, True)


def test_a_device_is_never_sent_control_characters(tmp_path):
    frame = pd.DataFrame({"name": ["\x1b[31mred"]})
    os.mkfifo(tmp_path / "pipe")
    with open(
        os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0
    ) as end:
        write_table(frame, tmp_path / "pipe")
        assert end.read() == b"name\n\\x1b[31mred\n"


COUNTS = pd.DataFrame(
    {"id": range(8), "cat": [3, 2, 0, 1, 3, 0, 2, 1], "dog": [0, 1, 3, 2] * 2}
)


def test_a_stream_that_leads_to_a_file_takes_a_table(tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0) % 9, "y": ["a", "b"] * 20})
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = ["-l", "y", *FAST, "--quiet", "--json", "--out", "/dev/stderr"]
    with open(tmp_path / "rows.csv", "wb") as rows:
        command = [sys.executable, "-m", "collidescope", "fit", tmp_path / "t.csv"]
        subprocess.run(
            [*command, *options], stdout=subprocess.PIPE, stderr=rows, check=True
        )
    written = (tmp_path / "rows.csv").read_text(encoding="utf-8")
    assert written.startswith("row,y,predicted,p_a,p_b,x\n0,a,")


def test_copied_votes_are_said(tmp_path):
    rng = np.random.default_rng(0)
    votes = pd.DataFrame({"item": np.repeat(np.arange(50), 4)})
    votes["label"] = rng.choice(["a", "b"], 200)
    pd.concat([votes] * 3).to_csv(tmp_path / "v.csv", index=False)
    done = good("votes", tmp_path / "v.csv", "--item", "item", "-l", "label")
    assert "every count of votes is a multiple of 3" in done.stderr


def test_an_id_is_no_class_of_votes(tmp_path):
    COUNTS.to_csv(tmp_path / "v.csv", index=False)
    done = run("votes", tmp_path / "v.csv", "--wide")
    assert (done.exit_code, "--item 'id'" in done.stderr) == (2, True)
    assert told("votes", tmp_path / "v.csv", "--wide", "--item", "id")["classes"] == [
        "cat",
        "dog",
    ]


def test_items_without_a_vote_are_named_or_left_out_on_request(tmp_path):
    COUNTS.assign(cat=[3, 0, 0, 1, 3, 0, 2, 1], dog=[0, 0, 3, 2] * 2).to_csv(
        tmp_path / "v.csv", index=False
    )
    command = ["votes", tmp_path / "v.csv", "--wide", "--item", "id"]
    done = run(*command)
    assert (done.exit_code, "(row 1, 5, counted from 0)" in done.stderr) == (2, True)
    assert "2 items without a vote" in good(*command, "--skip-empty").stderr


def test_a_column_per_annotator_is_the_same_as_a_row_per_vote(tmp_path):
    rng = np.random.default_rng(0)
    cells = rng.choice(["cat", "dog", None], (60, 4), p=[0.5, 0.3, 0.2])
    wide = pd.DataFrame(cells, columns=list("wxyz")).assign(id=np.arange(60))
    wide = wide[wide[list("wxyz")].notna().any(axis=1)]
    wide.to_csv(tmp_path / "w.csv", index=False)
    long = wide.melt("id", var_name="who", value_name="vote").dropna()
    long.to_csv(tmp_path / "l.csv", index=False)
    options = ["--item", "id", "--label", "vote", "--annotator", "who"]
    expected = told("votes", tmp_path / "l.csv", *options)
    found = told("votes", tmp_path / "w.csv", "--annotator-columns", "--item", "id")
    assert found["matrix"] == expected["matrix"]
    assert found["votes"] == expected["votes"]


def test_a_merge_is_applied_to_a_table(folder, tmp_path):
    outputs = ["--mapping", tmp_path / "groups.json", "--out", tmp_path / "merged.csv"]
    applied = ["--groups", 2, "--apply", folder / "shop.csv", "--label", "plan"]
    good("merge", folder / "m.json", *applied, *outputs)
    mapping = json.loads((tmp_path / "groups.json").read_text())
    plan = cs.consolidate(cs.CollisionMatrix.from_json(folder / "m.json"), 2)
    assert set(mapping.values()) == {str(name) for name in plan.matrix.classes}
    merged = pd.read_csv(tmp_path / "merged.csv")
    before = pd.read_csv(folder / "shop.csv")["plan"]
    assert merged["plan (before)"].tolist()[5:] == before.tolist()[5:]
    assert merged["plan"].tolist()[5:] == before.map(mapping).tolist()[5:]


def test_a_merge_finds_the_column_of_the_classes(folder, tmp_path):
    named = tmp_path / "named.csv"
    found = tmp_path / "found.csv"
    command = [
        "merge",
        folder / "m.json",
        "--groups",
        2,
        "--apply",
        folder / "shop.csv",
    ]
    good(*command, "--label", "plan", "--out", named)
    good(*command, "--out", found)
    assert found.read_bytes() == named.read_bytes()


def test_a_class_of_few_rows_is_named_with_the_option_that_leaves_it_out(tmp_path):
    labels = ["a"] * 40 + ["b"] * 40 + ["c"] * 2
    x = np.random.default_rng(0).normal(size=82)
    pd.DataFrame({"x": x, "y": labels}).to_csv(tmp_path / "t.csv", index=False)
    done = good(
        "fit", tmp_path / "t.csv", "-l", "y", "--members", "linear", "--no-limit"
    )
    assert (
        "class 'c' has only 2 rows, so it is held out in 2 of the 5 folds"
        in done.stderr
    )
    assert "--drop-rare 5" in done.stderr


def test_a_class_of_two_rows_keeps_the_range(tmp_path):
    labels = ["a"] * 100 + ["b"] * 100 + ["c"] * 2
    x = np.random.default_rng(0).normal(size=202) + 2 * (np.arange(202) // 100)
    pd.DataFrame({"x": x, "y": labels}).to_csv(tmp_path / "t.csv", index=False)
    found = told("fit", tmp_path / "t.csv", "-l", "y", "--members", "linear")
    assert found["limit"]["state"] in ("settled", "still learning")


def test_unique_compares_a_feature_called_the_label(tmp_path):
    columns = {"the label": 1.5 * (np.arange(60) % 20), "y": ["a", "b"] * 30}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    done = good("fit", tmp_path / "t.csv", "-l", "y", *FAST, "--unique")
    assert "40 rows repeat" in done.stderr


def test_unique_takes_lists_in_cells(tmp_path):
    rows = [{"tags": [n % 3], "x": n % 5, "y": "ab"[n % 2]} for n in range(120)]
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    done = good("fit", tmp_path / "t.jsonl", "-l", "y", *FAST, "--unique")
    assert "90 rows repeat an earlier one" in done.stderr


def test_given_posteriors_are_not_said_to_be_of_a_model_trained_here(here):
    said = good("posteriors", "p.csv", "-l", "y").stdout
    assert "judged by held-out predictions of 300 rows" in said
    assert "trained on" not in said


def test_a_first_look_promises_no_direction(here):
    done = good("fit", "raw.csv", "-l", "y", "--quick", "--no-limit", "--cv", 2)
    assert "whose numbers may change with the full pool" in done.stderr
    assert "find less" not in done.stderr + done.stdout


def test_a_sample_does_not_hide_what_all_rows_show(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"counter": np.arange(400), "x": rng.normal(size=400)}
    columns["y"] = np.where(columns["x"] + rng.normal(size=400) > 0, "a", "b")
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    done = good("fit", tmp_path / "t.csv", "-l", "y", *FAST, "--sample", 100)
    assert "column 'counter' is left out: it counts the rows" in done.stderr
    assert "as asked" not in done.stderr


MISTAKES = {
    "fit shpo.csv -l plan": r"did you mean shop\.csv\?",
    "fit shop.csv": "--label 'plan' for example: shop.csv has 'customer_id'",
    "fit shop.csv -l Plans": "no column 'Plans' in shop.csv: did you mean 'plan'",
    "fit shop.csv -l spend": "a number to predict, not classes; bin it first",
    "fit shop.csv -l plan --save no/m": "no/m is in a folder that does not exist",
    "fit shop.csv -l plan --members tree": "'tree'",
    "fit shop.csv -l plan --sample-weight city": r"cells without a number \(row 0",
    "fit array.json -l y": r"JSON.*\.jsonl",
    "predict m.collide test.csv --out test.csv": "is the file that is read",
    "predict m.collide test.csv --out p.xlsx": r"end in \.csv",
    "predict shop.csv test.csv": "not a model",
    "merge other.json": "neither a matrix .* nor a summary",
    "merge m.json --max-pber 5": "divide by 100",
    "merge m.json --together basic,plus --apart basic,plus": "--together joins 'basic' and 'plus', which --apart",
    "merge m.json --apart basic,plsu": "--apart .*'plsu'",
    "merge m.json --groups 7": "--groups .*7",
    "limit m.json": "holds no limit",
    "merge m.json --groups 2 --apply shop.csv": "--apply TABLE and --out FILE go together",
    "merge m.json --mapping m2.json": "choose a merge first",
    "votes shop.csv --wide --annotator-columns": "two kinds of table",
    "report m.json --table test.csv": "--table needs a model",
    "posteriors heldout.csv -l predicted --delimiter ab": "one character",
    "posteriors raw.csv -l y": "no column of probabilities for class 'a'",
    "count shop.csv -l plan --keep customer_id": "no two rows of shop.csv are alike",
    "votes shop.csv -l plan": "--item",
    "votes shop.csv --wide --label plan": "leave out --label",
    "votes shop.csv --item city --label plan --annotator whom": "no column 'whom'",
    "audit m.collide test.csv -l plan -p plan": "--predicted 'plan' is the label: name another column",
    "audit m.collide test.csv -l city -p said": "not classes of the model",
    "rows p.csv -l y --kind odd": "--kind must be one of",
    "groups p.csv -l y": "name a column with --by",
    "ceilings p.csv -l y --cost raw.csv": "raw.csv lacks class 'a'",
    "columns raw.csv -l y --cost x1=much": "must be a number, got 'much'",
    "compare p.csv later.csv -l y --id site": "must name every row once",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_told_in_one_paragraph(here, command):
    before = sorted(path.name for path in here.iterdir())
    done = run(*command.split())
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert re.search(MISTAKES[command], last), last
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in here.iterdir()) == before


def test_a_fit_that_fails_ends_without_a_traceback(folder, monkeypatch, tmp_path):
    for error, code, says in (
        (
            ZeroDivisionError("inner trouble"),
            1,
            "Unexpected error (ZeroDivisionError): inner trouble",
        ),
        (KeyboardInterrupt(), 130, "nothing was written"),
        (MemoryError(), 1, "--sample 50000"),
    ):
        monkeypatch.setattr(TableClassifier, "fit", Mock(side_effect=error))
        done = run(
            "fit", folder / "shop.csv", "-l", "plan", *FAST, "--save", tmp_path / "m"
        )
        assert done.exit_code == code
        assert says in done.stderr
        assert (_console.DEBUG in done.stderr) == ("Unexpected" in says)
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "m").exists()


def test_ctrl_c_in_the_middle_keeps_what_was_learned(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(2500, 8)), columns=list("abcdefgh")).assign(
        y=rng.integers(0, 3, 2500)
    )
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [
        sys.executable,
        "-m",
        "collidescope",
        "fit",
        "t.csv",
        "-l",
        "y",
        "--members",
        "forest",
        "--no-limit",
    ]
    # What a shell starts in the background ignores Ctrl-C, and so do its children unless they are told otherwise.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    options = {
        "cwd": tmp_path,
        "stderr": subprocess.PIPE,
        "text": True,
        "preexec_fn": heard,
    }
    with subprocess.Popen([*command, "--save", "m"], **options) as fit:
        for line in fit.stderr:
            if "training folds" in line:  # the first is trained
                fit.send_signal(signal.SIGINT)
                break
        said = fit.stderr.read()
    assert fit.returncode == 130, said
    assert "this is what the folds trained so far say" in said
    assert cs.load(tmp_path / "m").interrupted_


def test_the_demo_answers_as_fit_does(tmp_path, monkeypatch):
    quick = partial(cs.CollisionClassifier, members=["linear"], cv=2, limit=False)
    monkeypatch.setattr(cs, "CollisionClassifier", quick)
    done = good("demo", "-o", tmp_path / "r.html", "-q")
    assert "Collision matrix of 10 classes from 1,797 rows" in done.stdout
    assert "What to do about it:" in done.stdout
    assert "cs." not in done.stdout
    assert "collidescope demo --matrix matrix.json && collidescope merge" in done.stdout
    assert "data:image/png" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_help_teaches_by_example():
    for command in {
        command.__name__ for commands in PANELS.values() for command in commands
    } - {"demo"}:
        page = re.sub(r"\s+", " ", good(command, "--help").stdout)
        assert (
            page.count(f"collidescope {command} ") > 1
        )  # not only in the line of usage


def test_help_lists_the_exit_codes():
    assert "130 ended by Ctrl-C" in re.sub(r"\s+", " ", good("--help").stdout)


HELP = """
import sys
from collidescope.cli import main
try:
    main()
except SystemExit as end:
    print(end.code, [m for m in ("torch", "pandas", "sklearn", "skrub", "numpy") if m in sys.modules])
"""


def test_the_version_loads_nothing_heavy():
    call = [sys.executable, "-c", HELP, "--version"]
    out = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [f"collidescope {cs.__version__}", "0 []"]


def test_a_missing_extra_is_one_line():
    call = [sys.executable, "-c", HELP, "--version"]
    call[2] = "import sys; sys.modules['typer'] = None" + HELP
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"
    assert done.stderr.strip().endswith('pip install "collidescope[cli]"')
    assert len(done.stderr.splitlines()) == 1


def test_cells_that_a_spreadsheet_would_run_are_disarmed():
    cells = ["=1+1", "@x", "-1", "+2.5", "ok", None, "a;=b", "a\n=b"]
    disarmed = ["'=1+1", "'@x", "-1", "+2.5", "ok", "", "a;'=b", '"a\n\'=b"']
    found = as_csv(pd.DataFrame({"=name": cells, "n": -1}))
    assert found == "'=name,n\n" + "".join(f"{cell},-1\n" for cell in disarmed)


def test_a_plan_of_a_model_ranks_what_has_a_price(folder):
    command = ["plan", folder / "m.collide", folder / "shop.csv"]
    data = told(*command, "--price", "merge=10", "--price", "label=1")
    ranks = {row["option"]: row["rank"] for row in data["table"]}
    assert ranks["labels"] == 1
    assert ranks["votes"] is None


def test_a_plan_fits_a_table_first(tmp_path):
    X, y = GaussianProblem([[0.0, 0], [1.0, 0]]).sample(120, 0)
    pd.DataFrame(X, columns=["a", "b"]).assign(y=y).to_csv(
        tmp_path / "t.csv", index=False
    )
    outputs = ["--plot", tmp_path / "plan.svg", "--out", tmp_path / "plan.csv"]
    command = [
        "plan",
        tmp_path / "t.csv",
        "-l",
        "y",
        "--price",
        "row=0.1",
        "--price",
        "a=5",
    ]
    done = good(*command, *outputs, "--report", tmp_path / "plan.html")
    assert "PBER" in done.stdout.splitlines()[0]
    table = pd.read_csv(tmp_path / "plan.csv")
    assert set(table[table["rank"].notna()]["option"]) == {"rows", "column"}
    assert "svg" in (tmp_path / "plan.svg").read_text()
    page = (tmp_path / "plan.html").read_text()
    assert "What to do with the next euro" in page
    assert "collect 120 more rows</bdi>:" in page


def test_a_price_of_nothing_known_is_refused(folder):
    done = run("plan", folder / "m.collide", folder / "shop.csv", "--price", "rows=1")
    assert done.exit_code == 2
    assert "got 'rows'" in done.stderr


def test_without_a_price_the_plan_asks_for_one_in_options(folder):
    done = good("plan", folder / "m.collide", folder / "shop.csv")
    assert "--price row=0.1" in done.stdout


def judged(tmp_path, kind):
    """Votes of people with judges who say what the first one says, or nonsense."""
    rng = np.random.default_rng(0)
    likely = rng.dirichlet([1, 1, 1], 400)
    names = np.array(["cat", "dog", "owl"])
    people = np.array([names[rng.choice(3, 4, p=p)] for p in likely])
    table = pd.DataFrame(people[:, :3], columns=["ann", "bob", "cid"]).assign(
        item=range(400)
    )
    table = table.assign(like=people[:, 3], random=names[rng.integers(0, 3, 400)])
    if kind == "rows":
        table = table.melt(
            ["item", "like", "random"], var_name="who", value_name="label"
        )
    elif kind == "wide":
        for name in names:
            table[name] = (table[["ann", "bob", "cid"]] == name).sum(axis=1)
        table = table.drop(columns=["ann", "bob", "cid"])
    table.to_csv(tmp_path / "votes.csv", index=False)
    return tmp_path / "votes.csv"


FORMATS = {
    "rows": ["--label", "label"],
    "wide": ["--wide"],
    "columns": ["--annotator-columns"],
}


@pytest.mark.parametrize("kind", FORMATS)
def test_judges_are_compared_with_votes(tmp_path, kind):
    command = ["votes", judged(tmp_path, kind), "--item", "item", *FORMATS[kind]]
    data = told(*command, "--judge", "like", "--judge", "random")
    verdicts = {
        row["judge"]: row["verdict"] for row in data["votes"]["judges"]["table"]
    }
    assert verdicts == {"like": "like one more human", "random": "worse than a human"}


def test_items_without_a_judge_are_left_out_of_the_comparison(tmp_path):
    path = judged(tmp_path, "columns")
    table = pd.read_csv(path)
    table.loc[:9, "like"] = None
    table.to_csv(path, index=False)
    done = good(
        "votes",
        path,
        "--item",
        "item",
        "--annotator-columns",
        "--drop",
        "random",
        "--judge",
        "like",
    )
    assert "10 items lack the label of a judge" in done.stderr


def test_ordered_classes_merge_with_their_neighbours_only(tmp_path):
    rng = np.random.default_rng(0)
    grade = np.repeat([0, 1, 2], 60)
    names = np.array(["low", "medium", "high"])
    table = pd.DataFrame({"x": np.array([0, 5, 1])[grade] + rng.normal(size=180)})
    table.assign(y=names[grade]).to_csv(tmp_path / "t.csv", index=False)
    command = [
        "fit",
        tmp_path / "t.csv",
        "-l",
        "y",
        *FAST,
        "--save",
        tmp_path / "m.collide",
    ]
    good(*command, "--ordered", "low,medium,high")
    groups = told("merge", tmp_path / "m.collide", "--groups", 2)["groups"]
    assert sorted(["low", "high"]) not in [sorted(group) for group in groups]
    done = run(*command, "--ordered", "low,high")
    assert done.exit_code == 2
    assert "--ordered must name every class once" in done.stderr


def test_notes_about_votes_are_said(tmp_path):
    path = judged(tmp_path, "columns")
    table = pd.read_csv(path).drop(columns=["like", "random"])
    table.loc[:4, ["ann", "bob", "cid"]] = None
    table.to_csv(path, index=False)
    done = good("votes", path, "--item", "item", "--annotator-columns", "--skip-empty")
    assert "5 items without a vote are left out" in done.stderr


def test_a_command_in_a_sentence_is_not_broken(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    command = "`collidescope fit table.csv --label income --matrix matrix.json`"
    sentence = f"- No single pair dominates, and merging hardly helps: {command}."
    lines = _console.fitted(sentence, Mock(isatty=lambda: True)).splitlines()
    assert lines[-1] == f"  {command}."
    assert max(map(len, lines[:-1])) <= 60


def test_ten_classes_fit_a_terminal_of_80_columns():
    cm = cs.collision_matrix_from_posteriors(np.full((30, 10), 0.1))
    head, names = str(cm).splitlines()[4:6]
    assert head == "seen in ↓, seen again in →"
    assert names.split() == [str(k) for k in range(10)]
    assert len(names) <= 80
