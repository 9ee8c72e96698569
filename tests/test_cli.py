"""The command line: results on standard output, one paragraph for every mistake, exit codes that mean something."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
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
from helpers import bad, good, in_python, limit_like, run, told

FAST = "--cv 2 --members linear --no-limit"
P_COLUMNS = ["p_a", "p_b", "p_c"]


def page(name="r.html"):
    return Path(name).read_text(encoding="utf-8")


def write(table, name="t.csv", **options):
    pd.DataFrame(table).to_csv(name, index=False, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small table with an id, gaps, text levels, dates; a model and a matrix fitted on it; tables of posteriors."""
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(1)
    n = 300
    plan = rng.choice(["basic", "plus", "premium"], n, p=[0.5, 0.3, 0.2])
    price = np.select([plan == "basic", plan == "plus"], [20, 24], 90)
    days = pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    columns = {
        "customer_id": [f"C{i}" for i in rng.permutation(10**5)[:n]],
        "spend": (price * rng.lognormal(0, 0.4, n)).round(2),
        "city": rng.choice(["Paris", "Lyon", None], n),
        "joined": pd.to_datetime("2020-01-01") + days,
        "visits": rng.integers(0, 3, n),
    }
    table = pd.DataFrame(columns | {"plan": plan})
    table.loc[:3, "plan"], table.loc[4, "plan"] = None, "NA"
    write(table, path / "shop.csv")
    said = np.where(table["spend"] > 50, "premium", "basic")
    test = table.assign(said=said)[200:]
    test["spend"] += 0.01  # rows that were not in the fit
    write(test, path / "test.csv")
    names = {
        "--save": "m.collide",
        "--matrix": "m.json",
        "--out": "heldout.csv",
        "--report": "r.html",
    }
    outputs = [word for option, name in names.items() for word in (option, path / name)]
    done = good(f"fit {path / 'shop.csv'} --label plan {FAST}", *outputs)
    (path / "fit.out").write_text(done.stdout)
    (path / "fit.err").write_text(done.stderr)
    problem = GaussianProblem([[0.0, 0], [1.0, 0], [4, 0]], classes=list("abc"))
    X, y = problem.sample(300, 0)
    P = pd.DataFrame(problem.posteriors(X).round(6), columns=P_COLUMNS)
    P = P.div(P.sum(axis=1), axis=0)
    number = np.arange(300)
    more = {"y": y, "said": np.where(X[:, 0] > 2, "c", "a"), "site": number % 2}
    write(P.assign(**more, id=number), path / "p.csv")
    write((0.7 * P + 0.1).assign(**more, id=number)[:250], path / "later.csv")
    raw = {"x1": X[:, 0], "x2": X[:, 1], "site": number % 2, "y": y}
    write(raw, path / "raw.csv")
    cost = pd.DataFrame(1 - np.eye(3), index=list("abc"), columns=list("abc"))
    cost.to_csv(path / "cost.csv")
    (path / "other.json").write_text("{}")
    (path / "array.json").write_text('[{"a": 1, "y": "u"}]')
    return path


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    """Every test has the working folder for itself."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(made, tmp_path):
    """The working folder with the files that were made."""
    for path in made.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return made


def test_fit_prints_the_answer(folder):
    said = page("fit.out")
    assert said.startswith("Collision matrix of 3 classes from 295 rows")
    for part in (
        "95% interval",
        "basic     0.",
        "Most colliding pairs",
        "What to do about it:\n- ",
    ):
        assert part in said
    cm = cs.CollisionMatrix.from_json("m.json")
    assert cm == cs.load("m.collide").collision_matrix_
    assert str(cm) in said


def test_fit_notes_what_it_found(folder):
    noted = page("fit.err")
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
        r"Took \d+ s and \d\.\d GB",
    ):
        assert re.search(pattern, noted)


def test_fit_writes_the_held_out_rows(folder):
    heldout = pd.read_csv("heldout.csv")
    columns = "row plan predicted p_basic p_plus p_premium customer_id spend city joined visits"
    assert heldout.columns.tolist() == columns.split()
    # The first five have no label.
    assert heldout["row"].tolist() == list(range(5, 300))
    labels = pd.read_csv("shop.csv")["plan"].dropna().tolist()
    assert heldout["plan"].tolist() == labels
    total = heldout.filter(like="p_").sum(axis=1).to_numpy()
    assert total == pytest.approx(1, abs=1e-4)


def test_fit_writes_the_report(folder):
    assert "<title>Which classes of “plan” are mistaken for which? (shop.csv)" in page()
    used = "</bdi>, <bdi>".join(("spend", "city", "joined", "visits"))
    assert f"4 columns used: <bdi>{used}</bdi>" in page()


def test_json_is_the_summary_that_gives_the_report_again(folder):
    done = good(f"fit shop.csv -l plan {FAST} --json --quiet")
    summary = json.loads(done.stdout)
    assert done.stderr == ""
    assert summary["format"] == "collidescope.summary"
    assert any("customer_id" in note for note in summary["notes"])
    model = cs.load("m.collide")  # the seed is the same
    assert summary["matrix"] == model.collision_matrix_.matrix.tolist()
    Path("s.json").write_text(done.stdout)
    good("report s.json --out s.html --title", "Plans & more")
    assert "Plans &amp; more" in page("s.html")


def test_the_report_of_a_model_shows_given_rows(folder):
    good("report m.collide -o new.html")
    without = page("new.html")
    good("report m.collide -o new.html --table test.csv -l plan")
    for text in (without, page("new.html")):
        assert "Which classes of “plan” are mistaken" in text
    assert len(without) < len(page("new.html"))


def test_a_budget_says_what_it_left_out(folder):
    done = good("fit shop.csv -l plan --cv 2 --members linear --budget 0.000001")
    assert (
        "the budget of 1e-06 s was spent before models were trained on" in done.stderr
    )


def test_a_first_look_says_how_far_to_trust_it(folder):
    table = pd.read_csv("shop.csv")
    write(table.assign(invoice=table["plan"].str.upper()))
    command = "fit t.csv -l plan --cv 2 --no-limit --sample 100"
    done = good(f"{command} --quick --report new.html")
    assert "Collision matrix of 3 classes from 100 rows" in done.stdout
    assert "t.csv: 100 of 295 labelled rows" in done.stderr
    assert "a first look at 100 of 295 rows" in done.stderr
    advice = r"What to do about it:\n- .*\n- Read with care: column 'invoice'"
    assert re.search(advice, done.stdout)
    for said in (done.stdout, done.stderr, page("new.html")):
        assert "a small pool of models (--quick)" in said
    done = good(f"{command} --members linear --drop invoice --control --json")
    assert "'invoice' alone" not in done.stdout
    assert json.loads(done.stdout)["trust"]["control"]["passed"] in (True, False)
    assert "With shuffled labels every row of S should be the priors" in done.stderr


def test_rows_of_a_group_are_never_scored_by_a_model_that_saw_the_group(rng):
    """Every person has one label and one fingerprint: only a model that knows the person can be right."""
    people = {"print": rng.normal(size=60), "y": rng.choice(["a", "b"], 60)}
    table = pd.DataFrame(people).loc[np.repeat(np.arange(60), 8)]
    write(table.assign(person=table.index, z=rng.normal(size=480)))
    pber = []
    for option in ("--drop", "--groups"):
        command = "fit t.csv -l y --cv 3 --members trees --no-limit --matrix m"
        done = good(f"{command} {option} person")
        pber.append(cs.CollisionMatrix.from_json("m").pber)
        same = "rows with the same 'print' have the same label 100% of the time"
        assert same in done.stderr
    assert pber[1] > pber[0] + 0.1


def test_sample_weights_are_those_of_python(folder):
    table = pd.read_csv("shop.csv").assign(w=np.arange(300) % 3)
    write(table)
    good(f"fit t.csv -l plan {FAST} --sample-weight w --matrix m")
    used = table.dropna(subset="plan").reset_index(drop=True)
    model = TableClassifier(members=["linear"], limit=False, cv=2, random_state=0)
    model.fit(used.drop(columns=["plan", "w"]), used["plan"], sample_weight=used["w"])
    expected = pytest.approx(model.collision_matrix_.pber, abs=1e-6)
    assert cs.CollisionMatrix.from_json("m").pber == expected


def test_rows_that_stand_three_times_are_told_unless_made_unique(folder):
    table = pd.read_csv("shop.csv").drop(columns="customer_id").dropna(subset="plan")
    write(pd.concat([table] * 3))
    done = good(f"fit t.csv -l plan {FAST}")
    advice = r"What to do about it:\n- .*\n- Read with care: \d+ of 885 rows"
    assert re.search(advice, done.stdout)
    assert done.stderr.count("of 885 rows have a copy") == 1
    done = good(f"fit t.csv -l plan {FAST} --unique")
    assert "590 rows repeat an earlier one and are left out (--unique)" in done.stderr
    assert "have a copy" not in done.stderr


def test_rare_classes_get_fewer_folds_or_are_named_with_what_to_do():
    labels = ["a"] * 30 + ["b"] * 26 + ["rare"] * 2 + ["u", "v"]
    write({"x": np.arange(60) % 7, "y": labels})
    command = "fit t.csv -l y --members linear --no-limit"
    said = bad(command)
    assert "--rare drop" in said
    assert "--rare merge" in said
    for option, kept in {
        "--rare drop": "of 3 classes from 58 rows",
        "--rare merge": "of 4 classes from 60 rows",
        "--drop-rare 5": "of 2 classes from 56 rows",
    }.items():
        assert kept in good(f"{command} {option}").stdout


def test_a_headerless_table_of_formulas_survives_the_way_through_files(rng):
    lines = [
        f"{a:.2f}, {'u' if a + e > 0 else 'v'}, {'=A()' if a > 0 else '@B'}"
        for a, e in rng.normal(size=(80, 2))
    ]
    Path("t.data").write_text("\n".join(lines))
    good(f"fit t.data --no-header --label 3 {FAST} --save m")
    assert "read alike" in good("predict m t.data --out p.csv").stderr
    said = pd.read_csv("p.csv")["predicted"]
    assert set(said) <= {"'=A()", "'@B"}
    names = ["c1", "c2", "c3"]
    frame = pd.read_csv("t.data", header=None, skipinitialspace=True, names=names)
    write(frame.assign(said=said))
    good("audit m t.csv -l c3 -p said")
    assert run("fit t.data --label income").stderr.count("--no-header") == 1


def test_predict_answers_raw_rows_in_every_format(folder):
    new = pd.read_csv("shop.csv").drop(columns=["plan"]).head(20)
    new.loc[0, "city"] = "Rome"
    write(new.assign(more=1))
    command = "predict m.collide t.csv"
    done = good(f"{command} --out p.parquet --with customer_id")
    assert (
        "column 'city': 1 of 20 cells is not among the levels of training (such as 'Rome')"
        in done.stderr
    )
    assert "columns that the model does not know are ignored: 'more'" in done.stderr
    found = pd.read_parquet("p.parquet")
    columns = "row customer_id predicted p_basic p_plus p_premium"
    assert found.columns.tolist() == columns.split()
    with pytest.warns(cs.CollisionWarning, match="Rome"):
        expected = cs.load("m.collide").predict_proba(new)
    assert np.array_equal(found.filter(like="p_").to_numpy(), expected)
    head = good(command).stdout.splitlines()[0]
    assert head == "row,predicted,p_basic,p_plus,p_premium"
    assert np.array_equal(told(command)["posteriors"], expected)


def test_audit_is_that_of_python(folder):
    done = good(
        "audit m.collide test.csv --label plan --predicted said --report a.html"
    )
    test, model = pd.read_csv("test.csv"), cs.load("m.collide")
    P = model.predict_proba(test.drop(columns=["plan", "said"]))
    expected = cs.audit(
        P, y_true=test["plan"], y_pred=test["said"], classes=model.classes_
    )
    assert done.stdout.strip() == str(expected).strip()
    assert "classifier errs on" in page("a.html")


def test_a_cluster_is_the_unit_of_every_interval_of_an_audit_and_its_report(folder):
    answer = told("audit m.collide test.csv -l plan -p said --cluster visits")
    test = pd.read_csv("test.csv")
    model = cs.load("m.collide")
    P = model.predict_proba(test.drop(columns=["plan", "said"]))
    rows = {"y_pred": test["said"], "groups": test["visits"]}
    expected = cs.audit(
        P, y_true=test["plan"], classes=model.classes_, limit=model.limit_, **rows
    )
    assert answer["verdict"] == expected.verdict
    named = pd.DataFrame(P, columns=model.classes_)
    summary = cs.summarise(named, y=test["plan"], **rows)
    assert summary["audit"]["error_interval"] == list(expected.error_interval)
    grouped = cs.collision_matrix_from_posteriors(
        named, test["plan"], groups=test["visits"]
    )
    assert summary["pber"]["high"] == grouped.pber_interval()[1]


def test_a_change_between_tables_counts_the_clusters_of_both(folder):
    answer = told("compare heldout.csv heldout.csv -l plan --cluster visits")
    alone = told("compare heldout.csv heldout.csv -l plan")
    assert answer["interval"] != alone["interval"]


def test_audit_gives_rows_of_the_fit_their_held_out_posteriors(folder):
    model = cs.load("m.collide")
    shop = pd.read_csv("shop.csv").dropna(subset="plan")
    said = model.predict(shop.drop(columns="plan"))
    write(shop.assign(said=said))
    answer = told("audit m.collide t.csv -l plan -p said")
    own = cs.audit(model.posteriors_, y_true=shop["plan"], y_pred=said)
    assert answer["verdict"] == own.verdict
    notes = " ".join(answer["notes"])
    assert "295 of 295 rows are training rows of the model" in notes


def test_merge_is_that_of_python_from_a_matrix_or_a_model(folder):
    plan = cs.consolidate(cs.CollisionMatrix.from_json("m.json"), 2)
    for source in ("m.json", "m.collide"):
        answer = told(f"merge {source} --groups 2")
        assert (answer["groups"], answer["pber"]) == (plan.groups, plan.matrix.pber)
    good("merge m.json --groups 2 --matrix m.npz")
    assert cs.CollisionMatrix.from_npz("m.npz") == plan.matrix
    kept = told("merge m.json --groups 2 --apart basic,plus")
    assert not any({"basic", "plus"} <= set(group) for group in kept["groups"])
    assert "Choose with --groups N or --max-pber" in good("merge m.json").stderr


def test_long_or_arabic_names_are_readable_in_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = [f"a class with a very long name that goes on, number {k}" for k in range(4)]
    S = 0.4 * np.eye(6) + 0.1
    cs.CollisionMatrix(S, classes=["قطة", "كلب", *long]).to_json("m.json")
    lines = good("merge m.json").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("قطة" in line for line in lines)


@pytest.fixture
def limited(monkeypatch):
    """Makes the limit of the model that every file seems to hold."""

    def limited(limit=None):
        cm = cs.CollisionMatrix([[0.8, 0.2], [0.2, 0.8]], method="one-step")
        model = SimpleNamespace(collision_matrix_=cm, limit_=limit or limit_like(cm))
        monkeypatch.setattr("collidescope.cli._run.load", lambda path: model)

    return limited


def test_limit_says_what_unlimited_rows_would_leave(folder, limited):
    limited()
    said = good("limit m.collide --plot curve.png").stdout
    assert "Unlimited rows of this kind would leave 6.0% to 22.0%" in said
    assert (
        "more rows would lower it; twice the rows would leave about 17.7% (15.9% to 19.4%)."
        in said
    )
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    assert told("limit m.collide")["verdict"] == "more rows would lower it"


def test_limit_says_how_many_rows_a_target_needs(folder, limited, rng):
    sizes = np.array([250, 500, 1000, 2000])
    excess = sizes**-0.5 * rng.exponential(1.0, (4000, 4))
    scores = np.random.default_rng(1).exponential(0.2, (4000, 1)) + excess
    limit = cs.limit_from_scores(scores, sizes, baseline=0.5)
    limited(limit)
    needed = limit.rows_needed(0.215)
    assert str(needed) in good("limit m.collide --target 21.5%").stdout
    answer = told("limit m.collide --target 0.215")
    assert answer["rows_needed"]["likely"] == needed.likely
    assert "--target takes a share" in run("limit m.collide --target few").stderr


def test_posteriors_with_labels_give_the_matrix_of_python(folder):
    good("posteriors heldout.csv --label plan")  # as it is written
    table = pd.read_csv("heldout.csv").drop(columns=["row", "predicted"])
    table.to_parquet("h.parquet")
    write(table.rename(columns=lambda name: name.removeprefix("p_")), "h.csv")
    P = table[["p_basic", "p_plus", "p_premium"]].to_numpy()
    expected = cs.collision_matrix_from_posteriors(P, table["plan"])
    for name in ("h.parquet", "h.csv"):
        found = np.array(told(f"posteriors {name} --label plan")["matrix"])
        assert found == pytest.approx(expected.matrix, abs=1e-9)


def test_count_is_that_of_python_with_its_coverage(folder):
    options = "-l plan --drop spend --drop joined"
    done = good(f"count shop.csv {options} --matrix m")
    table = pd.read_csv("shop.csv").dropna(subset="plan")
    expected = cs.count_collisions(table[["city", "visits"]], table["plan"])
    assert cs.CollisionMatrix.from_json("m") == expected
    # Every row has a twin: the answer comes first.
    assert "If labelled again" in done.stdout
    counted = told(f"count shop.csv {options}")["matrix"]
    assert counted == told("report m -o c.html")["matrix"]
    write(table.assign(memo="long " * 5000))
    assert "Reading t.csv (7 MB) …" in good(f"count t.csv {options}").stderr


def test_commands_for_decisions_say_what_the_functions_say(folder):
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
        answer = told(f"{command} --report new.html --out t.csv")
        assert answer.pop("notes") is not None
        said = json.loads(json.dumps(found.to_dict()))
        said.pop("notes", None)
        assert answer == said, command
        text = page("new.html")
        assert says in text
        assert any(f"({name})</title>" in text for name in command.split()[1:3])
        assert "columns used" not in text  # those that stand beside posteriors are not
        assert len(pd.read_csv("t.csv")) == len(getattr(found, found.TABLE))


def test_columns_are_ranked_with_their_price(folder):
    command = "columns raw.csv -l y --unit x=x1,x2 --cost x=2 --budget 5"
    answer = told(f"{command} --report new.html --out t.csv")["table"]
    units = [row["unit"] for row in answer]
    assert pd.read_csv("t.csv")["unit"].tolist() == units == ["x", "site"]
    assert answer[0]["per_cost"] == pytest.approx(answer[0]["needed"] / 2)
    assert "Which column tells the classes apart?" in page("new.html")
    assert "columns used" in page("new.html")


def test_written_rows_keep_their_numbers(folder):
    frame = pd.read_csv("p.csv")
    P = frame[P_COLUMNS].to_numpy()
    expected = applications.ambiguous(P, y=frame["y"].to_numpy())
    expected = expected[expected["kind"] == "suspect label"]["index"].tolist()
    for name, read in (("rows.csv", pd.read_csv), ("rows.parquet", pd.read_parquet)):
        good(f"rows p.csv -l y --kind suspect -o {name}")
        written = read(name)
        assert written["row"].tolist() == written["x_id"].tolist() == expected
    assert len(told("rows p.csv -l y --top 3")["rows"]) == 3


@pytest.mark.parametrize(
    ("command", "bounds"),
    [
        ("audit p.csv -l y -p said", (0.01, 0.5)),
        ("compare p.csv later.csv -l y --id id", (0.001, 0.2)),
    ],
)
def test_a_bound_for_continuous_integration_is_an_exit_code(folder, command, bounds):
    codes = [run(f"{command} --fail-above {bound}").exit_code for bound in bounds]
    assert codes == [3, 0]


def test_a_printed_command_keeps_every_option_that_changes_the_numbers(folder):
    write(pd.read_csv("shop.csv").assign(w=1.0), header=False)
    kept = [
        "--no-header",
        "--label 6",
        "--drop c1",
        "--groups c5",
        "--no-limit",
        "--cv 2",
    ]
    command = f"fit t.csv {' '.join(kept)} --members linear --sample 200"
    lines = good(command).stderr.splitlines()
    again = next(line for line in lines if line.endswith("# all rows"))
    assert all(option in again for option in kept)
    assert "--sample" not in again
    report = next(line for line in lines if "--report report.html" in line)
    assert "--sample 200" in report


PYTHON = (
    "groups=X",
    "drop=[",
    "limit_ is None",
    "top_collisions",
    "groupby",
    "condition number",
)


def test_no_python_is_said_on_the_command_line(rng):
    group = np.repeat(np.arange(30), 4)
    y = rng.choice(["a", "b"], 30)[group]
    write({"patient": group, "x": rng.normal(size=120), "y": y})
    done = good("fit t.csv -l y --members linear --cv 2")
    said = done.stdout + done.stderr
    assert [python for python in PYTHON if python in said] == []
    assert "--groups 'patient'" in said


def test_held_out_rows_of_a_fit_can_be_grouped_by_an_input_column(folder):
    answer = told("groups heldout.csv -l plan --by city")
    assert {row["group"] for row in answer["table"]} == {"Lyon", "Paris", "(empty)"}


def test_some_input_columns_are_written_with_held_out_rows(folder):
    good(f"fit shop.csv -l plan {FAST} --with city --out h.csv")
    columns = pd.read_csv("h.csv").columns
    assert columns[-1] == "city"
    assert "spend" not in columns


def test_class_names_that_look_like_formulas_are_read_back():
    x = np.random.default_rng(0).normal(size=80)
    write({"x": x, "y": np.where(x > 0, "=A()", "@B;=C")})
    good(f"fit t.csv -l y {FAST} --out h.csv")
    assert told("posteriors h.csv -l y")["classes"] == ["=A()", "@B;=C"]


def test_copied_columns_may_be_called_like_those_of_the_result(folder):
    write(pd.read_csv("shop.csv").head(5).assign(row=7, predicted="x"))
    done = good("predict m.collide t.csv --with row --with predicted")
    head = "row,row (input),predicted (input),predicted,p_basic"
    assert done.stdout.startswith(head)


def test_training_rows_among_those_to_predict_are_named(folder):
    said = good("predict m.collide shop.csv").stderr
    assert "295 of 300 rows are training rows of the model" in said
    assert "training rows" not in good("predict m.collide test.csv").stderr


def test_an_empty_file_of_costs_is_a_mistake(folder):
    Path("empty.csv").write_text("")
    assert "empty.csv" in bad("ceilings p.csv -l y --cost empty.csv")


def test_columns_of_probabilities_come_before_one_hot_labels(folder):
    frame = pd.read_csv("p.csv")
    write(pd.concat([pd.get_dummies(frame["y"]).astype(int), frame], axis=1))
    pber = [told(f"posteriors {name} -l y")["pber"] for name in ("t.csv", "p.csv")]
    assert pber[0] == pber[1]


def test_one_hot_labels_are_no_probabilities(folder):
    y = pd.read_csv("p.csv")["y"]
    write(pd.get_dummies(y).astype(int).assign(y=y))
    assert "hold the labels" in bad("posteriors t.csv -l y")


def test_a_device_is_never_sent_control_characters(tmp_path):
    frame = pd.DataFrame({"name": ["\x1b[31mred"]})
    os.mkfifo("pipe")
    reading = os.open("pipe", os.O_RDWR | os.O_NONBLOCK)
    with open(reading, "rb", buffering=0) as end:
        write_table(frame, tmp_path / "pipe")
        assert end.read() == b"name\n\\x1b[31mred\n"


COUNTS = {"id": range(8), "cat": [3, 2, 0, 1, 3, 0, 2, 1], "dog": [0, 1, 3, 2] * 2}


def test_a_stream_that_leads_to_a_file_takes_a_table():
    write({"x": np.arange(40.0) % 9, "y": ["a", "b"] * 20})
    command = f"-m collidescope fit t.csv -l y {FAST} --quiet --json --out /dev/stderr"
    with open("rows.csv", "wb") as rows:
        subprocess.run(
            [sys.executable, *command.split()],
            stdout=subprocess.PIPE,
            stderr=rows,
            check=True,
        )
    assert page("rows.csv").startswith("row,y,predicted,p_a,p_b,x\n0,a,")


def test_copied_votes_are_said(rng):
    votes = {"item": np.repeat(np.arange(50), 4), "label": rng.choice(["a", "b"], 200)}
    write(pd.concat([pd.DataFrame(votes)] * 3))
    done = good("votes t.csv --item item -l label")
    assert "every count of votes is a multiple of 3" in done.stderr


def test_an_id_is_no_class_of_votes():
    write(COUNTS)
    assert "--item 'id'" in bad("votes t.csv --wide")
    assert told("votes t.csv --wide --item id")["classes"] == ["cat", "dog"]


def test_items_without_a_vote_are_named_or_left_out_on_request():
    write(COUNTS | {"cat": [3, 0, 0, 1, 3, 0, 2, 1], "dog": [0, 0, 3, 2] * 2})
    command = "votes t.csv --wide --item id"
    assert "(row 1, 5, counted from 0)" in bad(command)
    assert "2 items without a vote" in good(f"{command} --skip-empty").stderr


def test_a_column_per_annotator_is_the_same_as_a_row_per_vote(rng):
    cells = rng.choice(["cat", "dog", None], (60, 4), p=[0.5, 0.3, 0.2])
    wide = pd.DataFrame(cells, columns=list("wxyz")).dropna(how="all")
    wide = wide.assign(id=wide.index)
    write(wide, "w.csv")
    write(wide.melt("id", var_name="who", value_name="vote").dropna(), "l.csv")
    expected = told("votes l.csv --item id --label vote --annotator who")
    found = told("votes w.csv --annotator-columns --item id")
    assert found["matrix"] == expected["matrix"]
    assert found["votes"] == expected["votes"]


def test_a_merge_is_applied_to_a_table(folder):
    command = "merge m.json --groups 2 --apply shop.csv --label plan"
    good(f"{command} --mapping groups.json --out merged.csv")
    mapping = json.loads(page("groups.json"))
    plan = cs.consolidate(cs.CollisionMatrix.from_json("m.json"), 2)
    assert set(mapping.values()) == {str(name) for name in plan.matrix.classes}
    merged = pd.read_csv("merged.csv")[5:]
    before = pd.read_csv("shop.csv")["plan"][5:]
    assert merged["plan (before)"].tolist() == before.tolist()
    assert merged["plan"].tolist() == before.map(mapping).tolist()


def test_a_class_of_few_rows_is_named_with_the_option_that_leaves_it_out():
    labels = ["a"] * 40 + ["b"] * 40 + ["c"] * 2
    write({"x": np.random.default_rng(0).normal(size=82), "y": labels})
    said = good("fit t.csv -l y --members linear --no-limit").stderr
    assert "class 'c' has only 2 rows, so it is held out in 2 of the 5 folds" in said
    assert "--drop-rare 5" in said


def test_a_class_of_two_rows_keeps_the_range():
    labels = ["a"] * 100 + ["b"] * 100 + ["c"] * 2
    x = np.random.default_rng(0).normal(size=202) + 2 * (np.arange(202) // 100)
    write({"x": x, "y": labels})
    found = told("fit t.csv -l y --members linear")
    assert found["limit"]["state"] in ("settled", "still learning")


def test_unique_compares_a_feature_called_the_label():
    write({"the label": 1.5 * (np.arange(60) % 20), "y": ["a", "b"] * 30})
    assert "40 rows repeat" in good(f"fit t.csv -l y {FAST} --unique").stderr


def test_unique_takes_lists_in_cells():
    rows = [{"tags": [n % 3], "x": n % 5, "y": "ab"[n % 2]} for n in range(120)]
    Path("t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = good(f"fit t.jsonl -l y {FAST} --unique")
    assert "90 rows repeat an earlier one" in done.stderr


def test_given_posteriors_are_not_said_to_be_of_a_model_trained_here(folder):
    said = good("posteriors p.csv -l y").stdout
    assert "judged by held-out predictions of 300 rows" in said
    assert "trained on" not in said


def test_a_first_look_promises_no_direction(folder):
    done = good("fit raw.csv -l y --quick --no-limit --cv 2")
    assert "whose numbers may change with the full pool" in done.stderr
    assert "find less" not in done.stderr + done.stdout


def test_a_sample_does_not_hide_what_all_rows_show(rng):
    x = rng.normal(size=400)
    y = np.where(x + rng.normal(size=400) > 0, "a", "b")
    write({"counter": np.arange(400), "x": x, "y": y})
    said = good(f"fit t.csv -l y {FAST} --sample 100").stderr
    assert "column 'counter' is left out: it counts the rows" in said
    assert "as asked" not in said


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
    "limit m.json": "holds no learning curve",
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
    "plan m.collide shop.csv --price rows=1": "got 'rows'",
}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_told_in_one_paragraph(folder, tmp_path, command):
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run(command)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert re.search(MISTAKES[command], last), last
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (
            ZeroDivisionError("inner trouble"),
            1,
            "Unexpected error (ZeroDivisionError): inner trouble",
        ),
        (KeyboardInterrupt(), 130, "nothing was written"),
        (MemoryError(), 1, "--sample 50000"),
    ],
)
def test_a_fit_that_fails_ends_without_a_traceback(
    folder, monkeypatch, error, code, says
):
    monkeypatch.setattr(TableClassifier, "fit", Mock(side_effect=error))
    done = run(f"fit shop.csv -l plan {FAST} --save m")
    assert done.exit_code == code
    assert says in done.stderr
    assert (_console.DEBUG in done.stderr) == ("Unexpected" in says)
    assert "Traceback" not in done.stderr
    assert not Path("m").exists()


def test_ctrl_c_in_the_middle_keeps_what_was_learned(rng):
    table = pd.DataFrame(rng.normal(size=(2500, 8)), columns=list("abcdefgh"))
    write(table.assign(y=rng.integers(0, 3, 2500)))
    command = "-m collidescope fit t.csv -l y --members forest --no-limit --save m"
    options = {
        "stderr": subprocess.PIPE,
        "text": True,
        # What a shell starts in the background ignores Ctrl-C, and so do its children unless that is changed here.
        "preexec_fn": partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    }
    with subprocess.Popen([sys.executable, *command.split()], **options) as fit:
        for line in fit.stderr:
            if "training folds" in line:  # the first is trained
                fit.send_signal(signal.SIGINT)
                break
        said = fit.stderr.read()
    assert fit.returncode == 130, said
    assert "these are the results of the folds trained so far" in said
    assert cs.load("m").interrupted_


def test_the_demo_answers_as_fit_does(monkeypatch):
    quick = partial(cs.CollisionClassifier, members=["linear"], cv=2, limit=False)
    monkeypatch.setattr(cs, "CollisionClassifier", quick)
    said = good("demo -o r.html -q").stdout
    assert "Collision matrix of 10 classes from 1,797 rows" in said
    assert "What to do about it:" in said
    assert "cs." not in said
    assert "collidescope demo --matrix matrix.json && collidescope merge" in said
    assert "data:image/png" in page()


def test_help_teaches_by_example():
    for command in {
        command.__name__ for commands in PANELS.values() for command in commands
    } - {"demo"}:
        text = re.sub(r"\s+", " ", good(f"{command} --help").stdout)
        # not only in the line of usage
        assert text.count(f"collidescope {command} ") > 1


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
    out = in_python(HELP, "--version").stdout
    assert out.splitlines() == [f"collidescope {cs.__version__}", "0 []"]


def test_a_missing_extra_is_one_line():
    done = in_python("import sys; sys.modules['typer'] = None" + HELP, "--version")
    assert done.stdout == "2 []\n"
    assert done.stderr.strip().endswith('pip install "collidescope[cli]"')
    assert len(done.stderr.splitlines()) == 1


def test_cells_that_a_spreadsheet_would_run_are_disarmed():
    cells = ["=1+1", "@x", "-1", "+2.5", "ok", None, "a;=b", "a\n=b"]
    disarmed = ["'=1+1", "'@x", "-1", "+2.5", "ok", "", "a;'=b", '"a\n\'=b"']
    found = as_csv(pd.DataFrame({"=name": cells, "n": -1}))
    assert found == "'=name,n\n" + "".join(f"{cell},-1\n" for cell in disarmed)


def test_a_plan_of_a_model_ranks_what_has_a_price(folder):
    data = told("plan m.collide shop.csv --price merge=10 --price label=1")
    ranks = {row["option"]: row["rank"] for row in data["table"]}
    assert ranks["labels"] == 1
    assert ranks["votes"] is None


def test_a_plan_fits_a_table_first():
    X, y = GaussianProblem([[0.0, 0], [1.0, 0]]).sample(120, 0)
    write({"a": X[:, 0], "b": X[:, 1], "y": y})
    outputs = "--plot plan.svg --out plan.csv --report plan.html"
    done = good(f"plan t.csv -l y --price row=0.1 --price a=5 {outputs}")
    assert "PBER" in done.stdout.splitlines()[0]
    table = pd.read_csv("plan.csv")
    assert set(table[table["rank"].notna()]["option"]) == {"rows", "column"}
    assert "svg" in page("plan.svg")
    assert "What to do with the next euro" in page("plan.html")
    assert "collect 120 more rows</bdi>:" in page("plan.html")


def test_without_a_price_the_plan_asks_for_one_in_options(folder):
    assert "--price row=0.1" in good("plan m.collide shop.csv").stdout


PEOPLE = ["ann", "bob", "cid"]


def judged(kind):
    """Votes of people with judges who say what the first one says, or nonsense."""
    rng = np.random.default_rng(0)
    likely = rng.dirichlet([1, 1, 1], 400)
    names = np.array(["cat", "dog", "owl"])
    votes = np.array([names[rng.choice(3, 4, p=p)] for p in likely])
    table = pd.DataFrame(votes, columns=[*PEOPLE, "like"])
    table = table.assign(item=range(400), random=names[rng.integers(0, 3, 400)])
    if kind == "rows":
        judges = ["item", "like", "random"]
        return table.melt(judges, var_name="who", value_name="label")
    if kind == "columns":
        return table
    counts = {name: (table[PEOPLE] == name).sum(axis=1) for name in names}
    return table.assign(**counts).drop(columns=PEOPLE)


FORMATS = {
    "rows": "--label label",
    "wide": "--wide",
    "columns": "--annotator-columns",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_judges_are_compared_with_votes(kind):
    write(judged(kind))
    options = f"--item item {FORMATS[kind]} --judge like --judge random"
    found = told(f"votes t.csv {options}")["votes"]["judges"]["table"]
    verdicts = {row["judge"]: row["verdict"] for row in found}
    assert verdicts == {"like": "like one more human", "random": "worse than a human"}


def test_items_without_a_judge_are_left_out_of_the_comparison():
    table = judged("columns")
    table.loc[:9, "like"] = None
    write(table)
    options = "--item item --annotator-columns --drop random --judge like"
    done = good(f"votes t.csv {options}")
    assert "10 items lack the label of a judge" in done.stderr


def test_ordered_classes_merge_with_their_neighbours_only(rng):
    grade = np.repeat([0, 1, 2], 60)
    x = np.array([0, 5, 1])[grade] + rng.normal(size=180)
    write({"x": x, "y": np.array(["low", "medium", "high"])[grade]})
    command = f"fit t.csv -l y {FAST} --save m.collide --ordered"
    good(f"{command} low,medium,high")
    groups = told("merge m.collide --groups 2")["groups"]
    assert sorted(["low", "high"]) not in [sorted(group) for group in groups]
    assert "--ordered must name every class once" in bad(f"{command} low,high")


def test_notes_about_votes_are_said():
    table = judged("columns").drop(columns=["like", "random"])
    table.loc[:4, PEOPLE] = None
    write(table)
    done = good("votes t.csv --item item --annotator-columns --skip-empty")
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
