"""The command line: results on standard output, one paragraph for every mistake, exit codes that mean something."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import collidescope as cs
from collidescope.cli import _console
from collidescope.cli._run import as_csv, matrix_text, write_matrix
from collidescope.cli.app import app
from collidescope.tables import TableClassifier
from helpers import limit_like

FAST = ["--cv", "2", "--members", "linear", "--no-limit"]
COMMANDS = ["fit", "predict", "posteriors", "count", "merge", "limit", "audit", "report"]


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def good(*args):
    done = run(*args)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small table with an id, gaps, text levels, dates; a model and a matrix fitted on it."""
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(1)
    n = 300
    plan = rng.choice(["basic", "plus", "premium"], n, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame(
        {
            "customer_id": [f"C{i}" for i in rng.permutation(10**5)[:n]],
            "spend": (np.select([plan == "basic", plan == "plus"], [20, 24], 90) * rng.lognormal(0, 0.4, n)).round(2),
            "city": rng.choice(["Paris", "Lyon", None], n),
            "joined": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "visits": rng.integers(0, 3, n),
            "plan": plan,
        }
    )
    table.loc[:4, "plan"] = None
    table.to_csv(path / "shop.csv", index=False)
    test = table.iloc[200:].assign(said=np.where(table["spend"][200:] > 50, "premium", "basic"))
    test["spend"] += 0.01  # rows that were not in the fit
    test.to_csv(path / "test.csv", index=False)
    done = good(
        *("fit", path / "shop.csv", "--label", "plan", *FAST, "--save", path / "m.collide"),
        *("--matrix", path / "m.json", "--out", path / "heldout.csv", "--report", path / "r.html"),
    )
    (path / "fit.out").write_text(done.stdout)
    (path / "fit.err").write_text(done.stderr)
    return path


# ---------------------------------------------------------------- fit


def test_fit_prints_the_answer_how_sure_it_is_and_what_to_do(folder):
    said = (folder / "fit.out").read_text()
    assert said.startswith("Collision matrix of 3 classes from 295 rows")
    for part in ("95% interval", "basic     0.", "Most colliding pairs", "What to do about it:\n- "):
        assert part in said
    assert str(cs.load(folder / "m.collide").collision_matrix_) in said


def test_fit_says_on_standard_error_what_it_found_left_out_and_expects(folder):
    said = (folder / "fit.err").read_text()
    assert "shop.csv: 295 labelled rows, 5 columns; 3 classes in 'plan': basic " in said
    assert "5 of 300 rows have no label in 'plan', and are left out (the first is row 0)" in said
    assert "column 'customer_id' is left out: every value differs" in said
    assert re.search(r"missing cells \(of 295 rows\): city \d+", said)
    assert re.search(r"295 rows × 4 columns → \d+ features", said)
    assert re.search(r"training folds: .*left", said)
    assert re.search(r"Took \d+ s and \d\.\d GB", said)
    assert f"collidescope merge {folder / 'm.json'}" in said


def test_fit_writes_model_matrix_posteriors_and_report(folder):
    model = cs.load(folder / "m.collide")
    assert isinstance(model, TableClassifier)
    assert cs.CollisionMatrix.from_json(folder / "m.json") == model.collision_matrix_
    heldout = pd.read_csv(folder / "heldout.csv")
    assert heldout.columns.tolist() == ["row", "plan", "predicted", "p_basic", "p_plus", "p_premium"]
    assert heldout["row"].tolist() == list(range(5, 300))  # the first five have no label
    assert heldout["plan"].tolist() == pd.read_csv(folder / "shop.csv")["plan"].dropna().tolist()
    assert heldout.filter(like="p_").sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-4)
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "customer_id" in page
    assert "<title>Which classes of “plan” in shop.csv collide?" in page
    used = "</bdi>, <bdi>".join(("spend", "city", "joined", "visits"))
    assert f"4 columns used: <bdi>{used}</bdi>" in page


def test_json_is_the_summary_and_nothing_else_is_on_standard_output(folder, tmp_path):
    done = good("fit", folder / "shop.csv", "-l", "plan", *FAST, "--json")
    summary = json.loads(done.stdout)
    assert summary["format"] == "collidescope.summary"
    assert summary["classes"] == ["basic", "plus", "premium"]
    assert any("customer_id" in note for note in summary["notes"])
    assert summary["matrix"] == cs.load(folder / "m.collide").collision_matrix_.matrix.tolist()
    (tmp_path / "s.json").write_text(done.stdout)
    good("report", tmp_path / "s.json", "--out", tmp_path / "s.html", "--title", "Plans & more")
    assert "Plans &amp; more" in (tmp_path / "s.html").read_text(encoding="utf-8")


def test_quiet_leaves_the_result_only(folder):
    done = good("fit", folder / "shop.csv", "-l", "plan", *FAST, "--quiet")
    found, first = (text.split("What to do")[0] for text in (done.stdout, (folder / "fit.out").read_text()))
    assert found == first  # the seed makes it the same; advice names the files that were written
    assert done.stderr == ""


def test_a_sample_is_a_first_look_and_says_so(folder):
    done = good("fit", folder / "shop.csv", "-l", "plan", *FAST, "--sample", "100")
    assert "Collision matrix of 3 classes from 100 rows" in done.stdout
    assert "shop.csv: 100 of 295 labelled rows" in done.stderr
    assert "a first look at 100 of 295 rows" in done.stderr


def test_a_column_that_gives_the_label_away_is_the_first_advice(folder, tmp_path):
    table = pd.read_csv(folder / "shop.csv").assign(invoice=lambda t: t["plan"].str.upper())
    table.to_csv(tmp_path / "t.csv", index=False)
    done = good("fit", tmp_path / "t.csv", "-l", "plan", *FAST)
    assert "What to do about it:\n- column 'invoice' alone gives the label away on 100.0% of held-out" in done.stdout
    assert "'invoice'" not in good("fit", tmp_path / "t.csv", "-l", "plan", *FAST, "--drop", "invoice").stdout


def test_shuffled_labels_are_the_control(folder):
    done = good("fit", folder / "shop.csv", "-l", "plan", *FAST, "--control", "--json")
    assert json.loads(done.stdout)["trust"]["control"]["passed"] in (True, False)
    assert "With shuffled labels every row of S should be the priors" in done.stderr


def test_rows_of_a_group_are_never_scored_by_a_model_that_saw_the_group(tmp_path):
    """Every person has one label and one fingerprint: only a model that knows the person can be right."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(60), 8)
    table = pd.DataFrame(
        {"person": person, "print": rng.normal(size=60)[person], "y": rng.choice(["a", "b"], 60)[person]}
    ).assign(z=rng.normal(size=480))
    table.to_csv(tmp_path / "t.csv", index=False)
    pber = {}
    command = ["fit", tmp_path / "t.csv", "-l", "y", "--cv", 3, "--members", "trees", "--no-limit"]
    for name, more in (("apart", ["--drop", "person"]), ("together", ["--groups", "person"])):
        done = good(*command, *more, "--matrix", tmp_path / "m")
        pber[name] = cs.CollisionMatrix.from_json(tmp_path / "m").pber
        assert "rows with the same 'print' have the same label 100% of the time" in done.stderr
    assert pber["together"] > pber["apart"] + 0.1
    assert run(*command, "--groups", "Person").exit_code == 2


def test_sample_weights_are_those_of_python(folder, tmp_path):
    table = pd.read_csv(folder / "shop.csv").assign(w=np.arange(300) % 3)
    table.to_csv(tmp_path / "t.csv", index=False)
    good("fit", tmp_path / "t.csv", "-l", "plan", *FAST, "--sample-weight", "w", "--matrix", tmp_path / "m")
    used = table.dropna(subset="plan").reset_index(drop=True)
    model = TableClassifier(members=["linear"], limit=False, cv=2, random_state=0)
    model.fit(used.drop(columns=["plan", "w"]), used["plan"], sample_weight=used["w"])
    found = cs.CollisionMatrix.from_json(tmp_path / "m")
    assert found.matrix == pytest.approx(model.collision_matrix_.matrix, abs=1e-6)
    table.assign(w="x").to_csv(tmp_path / "t.csv", index=False)
    done = run("fit", tmp_path / "t.csv", "-l", "plan", *FAST, "--sample-weight", "w")
    assert done.exit_code == 2
    assert "295 cells without a number (row 0: 'x')" in done.stderr


def test_a_table_whose_rows_stand_three_times_is_told_so_and_can_be_made_unique(folder, tmp_path):
    table = pd.read_csv(folder / "shop.csv").drop(columns="customer_id").dropna(subset="plan")
    pd.concat([table] * 3).to_csv(tmp_path / "t.csv", index=False)
    done = good("fit", tmp_path / "t.csv", "-l", "plan", *FAST)
    assert "of 885 rows have a copy, with the same label, in another fold" in done.stderr
    assert re.search(r"What to do about it:\n- \d+ of 885 rows", done.stdout)
    done = good("fit", tmp_path / "t.csv", "-l", "plan", *FAST, "--unique")
    assert "590 rows repeat an earlier one and are left out (--unique)" in done.stderr
    assert "have a copy" not in done.stderr
    assert "from 295 rows" in done.stdout


def test_quick_says_in_its_output_and_report_that_the_full_pool_would_find_less(folder, tmp_path):
    done = good("fit", folder / "shop.csv", "-l", "plan", "--quick", "--report", tmp_path / "r.html")
    assert "the full pool would find less" in done.stdout
    assert "the full pool would find less" in done.stderr
    assert "the full pool would find less" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_a_reader_that_closes_the_output_does_not_cost_the_files(folder, tmp_path):
    command = [sys.executable, "-m", "collidescope", "merge", folder / "m.json", "--json", "--matrix", tmp_path / "m"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        done.stdout.close()
        said = done.stderr.read()
    assert "Traceback" not in said
    assert cs.CollisionMatrix.from_json(tmp_path / "m").n_classes == 3


def test_rare_classes_get_fewer_folds_or_are_named_with_what_to_do(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "y": ["a"] * 30 + ["b"] * 26 + ["rare"] * 2 + ["u", "v"]})
    table.to_csv(tmp_path / "t.csv", index=False)
    command = ["fit", tmp_path / "t.csv", "-l", "y", "--members", "linear", "--no-limit"]
    done = run(*command)
    assert done.exit_code == 2
    assert "rare='drop'" in done.stderr
    assert "rare='merge'" in done.stderr
    assert "of 3 classes from 58 rows" in good(*command, "--rare", "drop").stdout
    assert "of 4 classes from 60 rows" in good(*command, "--rare", "merge").stdout
    assert "of 2 classes from 56 rows" in good(*command, "--drop-rare", "5").stdout


def test_a_table_without_header_is_fitted_and_predicted_alike(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{a:.2f}, {'u' if a + e > 0 else 'v'}, {'A' if a > 0 else 'B'}" for a, e in rng.normal(size=(80, 2))]
    (tmp_path / "t.data").write_text("\n".join(lines))
    good("fit", tmp_path / "t.data", "--no-header", "--label", "3", *FAST, "--save", tmp_path / "m")
    done = good("predict", tmp_path / "m", tmp_path / "t.data")
    assert len(done.stdout.splitlines()) == 81
    assert "read alike" in done.stderr
    assert run("fit", tmp_path / "t.data", "--label", "income").stderr.count("--no-header") == 1


# ---------------------------------------------------------------- predict and audit


def test_predict_takes_raw_rows_in_a_new_process(folder):
    new = pd.read_csv(folder / "shop.csv").drop(columns=["plan"]).head(20)
    new.loc[0, "city"] = "Rome"
    new.assign(more=1).to_csv(folder / "new.csv", index=False)
    command = [sys.executable, "-m", "collidescope", "predict", "m.collide", "new.csv", "--out", "p.parquet"]
    done = subprocess.run([*command, "--with", "customer_id"], cwd=folder, capture_output=True, text=True, check=True)
    assert "column 'city': 1 of 20 cells are levels that training did not have (such as 'Rome')" in done.stderr
    assert "columns that the model does not know are ignored: 'more'" in done.stderr
    found = pd.read_parquet(folder / "p.parquet")
    assert found.columns.tolist() == ["row", "customer_id", "predicted", "p_basic", "p_plus", "p_premium"]
    model = cs.load(folder / "m.collide")
    with pytest.warns(cs.CollisionWarning, match="Rome"):
        assert np.array_equal(found.filter(like="p_").to_numpy(), model.predict_proba(new))


def test_predict_prints_csv_or_json_without_a_file(folder):
    done = good("predict", folder / "m.collide", folder / "test.csv")
    assert done.stdout.splitlines()[0] == "row,predicted,p_basic,p_plus,p_premium"
    told = json.loads(good("predict", folder / "m.collide", folder / "test.csv", "--json").stdout)
    assert told["classes"] == ["basic", "plus", "premium"]
    assert np.array(told["posteriors"]).shape == (100, 3)


def test_a_missing_column_is_named(folder, tmp_path):
    table = pd.read_csv(folder / "test.csv").rename(columns={"spend": "Spend "}).drop(columns="joined")
    table.to_csv(tmp_path / "t.csv", index=False)
    done = run("predict", folder / "m.collide", tmp_path / "t.csv")
    assert done.exit_code == 2
    assert "lacks columns that the model was fitted on: 'spend', 'joined'" in done.stderr
    assert "is 'spend' now called 'Spend'?" in done.stderr


def test_audit_is_that_of_python_and_speaks_in_words(folder, tmp_path):
    done = good("audit", folder / "m.collide", folder / "test.csv", "--label", "plan", "--predicted", "said")
    test, model = pd.read_csv(folder / "test.csv"), cs.load(folder / "m.collide")
    expected = cs.audit(
        model.predict_proba(test.drop(columns=["plan", "said"])),
        y_true=test["plan"],
        y_pred=test["said"],
        classes=model.classes_,
    )
    assert done.stdout.strip() == str(expected).strip()
    command = ["audit", folder / "m.collide", folder / "test.csv", "-l", "plan", "-p", "said", "--json"]
    assert json.loads(good(*command, "--report", tmp_path / "a.html").stdout)["verdict"] == expected.verdict
    assert "classifier errs on" in (tmp_path / "a.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------- posteriors, count, merge, report


def test_posteriors_with_labels_give_the_matrix_of_python(folder, tmp_path):
    good("posteriors", folder / "heldout.csv", "--label", "plan")  # as it is written
    table = pd.read_csv(folder / "heldout.csv").drop(columns=["row", "predicted"])
    table.to_parquet(tmp_path / "h.parquet")
    table.rename(columns=lambda name: name.removeprefix("p_")).to_csv(tmp_path / "h.csv", index=False)
    P = table[["p_basic", "p_plus", "p_premium"]].to_numpy()
    expected = cs.collision_matrix_from_posteriors(P, table["plan"])
    for name in ("h.parquet", "h.csv"):
        good("posteriors", tmp_path / name, "--label", "plan", "--matrix", tmp_path / "m.json")
        assert cs.CollisionMatrix.from_json(tmp_path / "m.json").matrix == pytest.approx(expected.matrix, abs=1e-9)
    done = run("posteriors", tmp_path / "h.csv", "--label", "premium")
    assert done.exit_code == 2


def test_posteriors_without_a_column_for_a_class_say_which(tmp_path):
    pd.DataFrame({"p_a": [0.2, 0.9], "y": ["b", "a"]}).loc[[0, 1] * 5].to_csv(tmp_path / "t.csv", index=False)
    done = run("posteriors", tmp_path / "t.csv", "-l", "y")
    assert done.exit_code == 2
    assert "no column of probabilities for class 'b'" in done.stderr
    assert "p_a is 1 - p_b" in done.stderr


def test_count_is_that_of_python_with_its_coverage(folder, tmp_path):
    done = good(
        "count", folder / "shop.csv", "-l", "plan", "--drop", "spend", "--drop", "joined", "--matrix", tmp_path / "m"
    )
    table = pd.read_csv(folder / "shop.csv").dropna(subset="plan")
    assert cs.CollisionMatrix.from_json(tmp_path / "m") == cs.count_collisions(table[["city", "visits"]], table["plan"])
    assert "Labelled a second time" in done.stdout  # every row has a twin: the answer comes first
    table.assign(spend=table["spend"].where(table.index > 12, 0), joined="").to_csv(tmp_path / "t.csv", index=False)
    few = good("count", tmp_path / "t.csv", "-l", "plan", "--drop", "city", "--report", tmp_path / "c.html").stdout
    assert few.splitlines()[1].startswith("Counted without a model on ")  # few have: how few comes first
    assert "best possible classifier" not in few
    assert "in t.csv collide?</title>" in (tmp_path / "c.html").read_text(encoding="utf-8")
    alone = run("count", folder / "shop.csv", "-l", "plan", "--keep", "customer_id")
    assert alone.exit_code == 2
    assert "no two rows of shop.csv are alike" in alone.stderr


def test_merge_is_that_of_python_from_a_matrix_or_a_model(folder, tmp_path):
    plan = cs.consolidate(cs.CollisionMatrix.from_json(folder / "m.json"), 2)
    for source in ("m.json", "m.collide"):
        told = json.loads(good("merge", folder / source, "--groups", 2, "--json").stdout)
        assert told["groups"] == plan.groups
        assert told["pber"] == plan.matrix.pber
    good("merge", folder / "m.json", "--groups", 2, "--matrix", tmp_path / "merged.json")
    assert cs.CollisionMatrix.from_json(tmp_path / "merged.json") == plan.matrix
    kept = json.loads(good("merge", folder / "m.json", "--groups", 2, "--apart", "basic,plus", "--json").stdout)
    assert not any({"basic", "plus"} <= set(group) for group in kept["groups"])
    assert "Choose with --groups N or --max-pber" in good("merge", folder / "m.json").stderr
    assert "PBER" in good("merge", folder / "m.json", "--max-pber", 0.5).stdout


def test_mistakes_in_merging_are_told_with_the_flags_that_were_typed(folder):
    for args, says in (
        (["--together", "basic,plus", "--apart", "basic,plus"], "--together joins 'basic' and 'plus', which --apart"),
        (["--together", "basic,plus,premium"], "--together joins every class into one"),
        (["--apart", "basic,plsu"], "--apart .*'plsu'"),
        (["--groups", "7"], "--groups .*7"),
    ):
        done = run("merge", folder / "m.json", *args)
        assert done.exit_code == 2
        assert re.search(says, done.stderr), done.stderr
        assert "must_merge" not in done.stderr


def test_long_names_fit_the_terminal_and_arabic_ones_are_readable(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    names = ["قطة", "كلب", *(f"a class with a very long name that goes on, number {k}" for k in range(4))]
    cm = cs.CollisionMatrix(0.4 * np.eye(6) + 0.1, classes=names)
    cm.to_json(tmp_path / "m.json")
    lines = good("merge", tmp_path / "m.json").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("قطة" in line for line in lines)
    cm = cs.CollisionMatrix([[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0, 1]], classes=["قطة", "كلب", "owl"])
    said = matrix_text(cm, cs.summarise(cm))
    assert "Merge “قطة” and “كلب”" in said


def test_a_matrix_is_binary_where_its_name_says_so_and_no_other_name_is_ever_written(folder, tmp_path):
    good("merge", folder / "m.json", "--groups", 2, "--matrix", tmp_path / "merged.npz")
    merged = cs.CollisionMatrix.from_npz(tmp_path / "merged.npz")
    assert merged == cs.consolidate(cs.CollisionMatrix.from_json(folder / "m.json"), 2).matrix
    good("report", tmp_path / "merged.npz", "-o", tmp_path / "r.html")
    many = cs.CollisionMatrix(np.eye(1001))
    with pytest.raises(ValueError, match="too large for JSON"):
        write_matrix(many, tmp_path / "large.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged.npz", "r.html"]


class WithLimit:
    """A saved model that carries a limit, as far as the command looks at one."""

    collision_matrix_ = cs.CollisionMatrix([[0.8, 0.2], [0.2, 0.8]], info={"method": "one-step"})
    limit_ = limit_like(collision_matrix_)


def test_limit_says_what_unlimited_rows_would_leave_in_words_json_and_a_picture(folder, tmp_path, monkeypatch):
    done = run("limit", folder / "m.json")
    assert done.exit_code == 2
    assert "holds no limit" in done.stderr
    monkeypatch.setattr("collidescope.cli._inputs.load_source", lambda path: WithLimit)
    done = good("limit", folder / "m.collide", "--plot", tmp_path / "curve.png")
    assert "Unlimited rows of this kind would leave 6.0% to 22.0%" in done.stdout
    assert "Verdict: more rows would lower it." in done.stdout
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(good("limit", folder / "m.collide", "--json").stdout)
    assert told["verdict"] == "more rows would lower it"


def test_a_report_of_a_model_shows_rows_it_is_given(folder, tmp_path):
    page = tmp_path / "r.html"
    sizes = []
    for more in ([], ["--table", folder / "test.csv", "-l", "plan"]):
        good("report", folder / "m.collide", "-o", page, *more)
        sizes.append(page.stat().st_size)
    assert sizes[0] < sizes[1]
    assert "premium" in page.read_text(encoding="utf-8")


# ---------------------------------------------------------------- mistakes

MISTAKES = {
    "no such file": (["fit", "shpo.csv", "-l", "plan"], r"did you mean shop\.csv\?"),
    "no label": (["fit", "shop.csv"], "--label 'plan' for example: shop.csv has 'customer_id'"),
    "no such label": (["fit", "shop.csv", "-l", "Plans"], "no column 'Plans' in shop.csv: did you mean 'plan'"),
    "a number as label": (["fit", "shop.csv", "-l", "spend"], "bin it first"),
    "output over the input": (["predict", "m.collide", "test.csv", "--out", "test.csv"], "is the file that is read"),
    "output in no folder": (
        ["fit", "shop.csv", "-l", "plan", "--save", "no/m"],
        "no/m is in a folder that does not exist",
    ),
    "an output of no format": (["predict", "m.collide", "test.csv", "--out", "p.xlsx"], r"end in \.csv"),
    "no model": (["predict", "shop.csv", "test.csv"], "not a model"),
    "a table as matrix": (["merge", "shop.csv"], "not a model"),
    "other JSON": (["merge", "other.json"], "neither a matrix .* nor a summary"),
    "a percentage": (["merge", "m.json", "--max-pber", "5"], "divide by 100"),
    "a prediction that is the label": (
        ["audit", "m.collide", "test.csv", "-l", "plan", "-p", "plan"],
        "--label and --predicted are the same column 'plan'",
    ),
    "an unknown member": (["fit", "shop.csv", "-l", "plan", "--members", "tree"], "'tree'"),
    "the label as groups": (["fit", "shop.csv", "-l", "plan", "--groups", "plan"], "is the label"),
    "labels of another model": (
        ["audit", "m.collide", "test.csv", "-l", "city", "-p", "said"],
        "not classes of the model",
    ),
    "a delimiter too long": (["count", "shop.csv", "-l", "plan", "--delimiter", "ab"], "one character"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_paragraph_exit_code_2_and_no_traceback(folder, monkeypatch, name):
    args, pattern = MISTAKES[name]
    monkeypatch.chdir(folder)
    Path("other.json").write_text("{}")
    before = sorted(path.name for path in folder.iterdir())
    done = run(*args)
    assert done.exit_code == 2, done.stderr
    assert done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("Error: ")
    assert re.search(pattern, last), last
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_an_unexpected_failure_is_exit_code_1_and_says_how_to_see_more(folder, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("inner trouble")

    monkeypatch.setattr(TableClassifier, "fit", broken)
    done = run("fit", folder / "shop.csv", "-l", "plan", *FAST)
    assert done.exit_code == 1
    assert "Unexpected error (ZeroDivisionError): inner trouble" in done.stderr
    assert _console.DEBUG in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_before_anything_was_learned_is_exit_code_130(folder, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableClassifier, "fit", interrupted)
    done = run("fit", folder / "shop.csv", "-l", "plan", *FAST, "--save", tmp_path / "m")
    assert done.exit_code == 130
    assert "nothing was written" in done.stderr
    assert not (tmp_path / "m").exists()


def test_ctrl_c_in_the_middle_keeps_what_was_learned_and_is_exit_code_130(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(6000, 8)), columns=list("abcdefgh")).assign(y=rng.integers(0, 3, 6000))
    table.to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, "-m", "collidescope", "fit", "t.csv", "-l", "y", "--members", "forest", "--no-limit"]
    # What a shell starts in the background ignores Ctrl-C, and so do its children unless they are told otherwise.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    options = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heard}
    with subprocess.Popen([*command, "--save", "m"], **options) as fit:
        for line in fit.stderr:
            if "training folds" in line:  # the first is trained
                fit.send_signal(signal.SIGINT)
                break
        said = fit.stderr.read()
    assert fit.returncode == 130, said
    assert "this is what the folds trained so far say" in said
    assert cs.load(tmp_path / "m").interrupted_


# ---------------------------------------------------------------- the rest


def test_help_teaches_by_example_and_lists_the_exit_codes():
    for command in COMMANDS:
        assert f"collidescope {command} " in re.sub(r"\s+", " ", good(command, "--help").stdout)
    assert "130 ended by Ctrl-C" in re.sub(r"\s+", " ", good("--help").stdout)


def test_the_module_and_the_version():
    done = subprocess.run(
        [sys.executable, "-m", "collidescope", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"collidescope {cs.__version__}"


def test_help_is_quick_because_nothing_heavy_is_loaded():
    code = (
        "import sys; from collidescope.cli.app import app; "
        "print([m for m in ('torch', 'pandas', 'sklearn', 'skrub', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_a_missing_extra_is_one_line_that_names_it():
    code = "import sys; sys.modules['typer'] = None; from collidescope.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().endswith('pip install "collidescope[cli]"')
    assert len(done.stderr.strip().splitlines()) == 1


def test_cells_that_a_spreadsheet_would_run_are_disarmed():
    table = pd.DataFrame({"=name": ["=1+1", "@x", "-1", "+2.5", "ok", None], "n": [-1, 2, 3, 4, 5, 6]})
    assert as_csv(table).splitlines() == ["'=name,n", "'=1+1,-1", "'@x,2", "-1,3", "+2.5,4", "ok,5", ",6"]


def test_class_names_that_are_formulas_survive_the_way_through_files(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "y": ["=cmd()", "@b"] * 30})
    table.to_csv(tmp_path / "t.csv", index=False)
    good("fit", tmp_path / "t.csv", "-l", "y", *FAST, "--save", tmp_path / "m")
    good("predict", tmp_path / "m", tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    said = pd.read_csv(tmp_path / "p.csv")
    assert set(said["predicted"]) <= {"'=cmd()", "'@b"}
    table.assign(said=said["predicted"]).to_csv(tmp_path / "a.csv", index=False)
    good("audit", tmp_path / "m", tmp_path / "a.csv", "-l", "y", "-p", "said")
