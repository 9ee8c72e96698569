"""The summary says what the other rooms say, JSON can hold it, and the page escapes whatever it is given."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import sys
import zlib
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier

import collidescope as cs
from collidescope.show import words
from collidescope.show.html import in_script, render
from helpers import blocks, planted, random_posteriors

EVIL = "<script>alert(1)</script>"
ODD_NAMES = [EVIL, "", "a" * 150, "قطة", "🐈", "\ud800half", "$x$ & <b>", "\u2028 line", "&lt;", "'\"`"]


def posteriors(k, n=400, seed=0, sharpness=3.0):
    P, codes = random_posteriors(np.random.default_rng(seed), n, k, sharpness)
    return P, codes


def estimated(k, names=None, **options):
    P, codes = posteriors(k, **options)
    classes = np.array([f"c{i}" for i in range(k)] if names is None else names, dtype=object)
    return cs.collision_matrix_from_posteriors(P, classes[codes], classes=classes)


def replay(path, k, steps):
    """Groups after some steps of a merge path, from its columns alone."""
    groups = {i: [i] for i in range(k)}
    for step in range(1, steps + 1):
        groups[path["first"][step]] += groups.pop(path["second"][step])
    return list(groups.values())


# ------------------------------------------------------------------------------------------------ the summary


def test_a_summary_survives_json_unchanged():
    P, codes = posteriors(4)
    summary = cs.summarise(P, np.arange(800.0).reshape(400, 2), codes, y_pred=codes[::-1], notes=["a note"])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_the_summary_of_a_matrix_holds_its_numbers():
    cm = estimated(5)
    summary = cs.summarise(cm)
    low, high = cm.interval()
    assert summary["classes"] == cm.classes.tolist()
    for name, array in {"matrix": cm.matrix, "joint": cm.joint, "priors": cm.priors, "counts": cm.counts}.items():
        np.testing.assert_array_equal(summary[name], array)
    np.testing.assert_allclose(summary["low"], low, atol=1e-6)
    np.testing.assert_allclose(summary["high"], high, atol=1e-6)
    assert (summary["pber"]["low"], summary["pber"]["high"]) == cm.pber_interval()
    assert summary["pber"]["value"] == cm.pber
    assert (summary["bayes_error"]["low"], summary["bayes_error"]["high"]) == cm.bayes_error_bounds()
    assert sorted(summary["leaf_order"]) == list(range(5))
    top = cm.top_collisions(10)
    assert [(p["class"], p["other"], p["rate"]) for p in summary["top_collisions"]] == list(
        zip(top["class"], top["other"], top["rate"], strict=True)
    )
    np.testing.assert_allclose([c["recall"] for c in summary["ceilings"]], cm.recall())
    np.testing.assert_allclose([c["precision"] for c in summary["ceilings"]], cm.precision("empirical"))


def test_posteriors_and_their_matrix_have_the_same_summary():
    P, codes = posteriors(3)
    from_rows, from_matrix = cs.summarise(P, y=codes), cs.summarise(cs.collision_matrix_from_posteriors(P, codes))
    assert from_matrix["ambiguous_rows"] is None
    for name in ("matrix", "low", "pber", "top_collisions", "merge_path", "headline"):
        assert from_rows[name] == from_matrix[name]


def test_columns_called_like_the_labels_are_matched_by_name():
    P, codes = posteriors(3)
    y = np.array(["x", "y", "z"])[codes]
    straight = cs.summarise(pd.DataFrame(P, columns=["x", "y", "z"]), y=y)
    turned = cs.summarise(pd.DataFrame(P[:, [2, 0, 1]], columns=["z", "x", "y"]), y=y)
    assert turned["classes"] == ["z", "x", "y"]
    assert turned["pber"]["value"] == pytest.approx(straight["pber"]["value"])
    numbers = cs.summarise(pd.DataFrame(P[:, [2, 0, 1]], columns=["2", "0", "1"]), y=codes)
    assert numbers["pber"]["value"] == pytest.approx(straight["pber"]["value"])


@pytest.mark.parametrize("k", [2, 3, 8])
def test_every_step_of_the_merge_path_has_the_pber_of_its_merged_matrix(k):
    cm = estimated(k)
    path = cs.summarise(cm)["merge_path"]
    assert path["n_groups"] == list(range(k, 0, -1))
    for step in range(k - 1):
        groups = [[cm.classes[i] for i in group] for group in replay(path, k, step)]
        merged = cm.merge(groups)
        assert path["pber"][step] == pytest.approx(merged.pber, abs=1e-12)
        assert (path["low"][step], path["high"][step]) == pytest.approx(merged.pber_interval(), abs=1e-9)
        assert (path["bayes_low"][step], path["bayes_high"][step]) == pytest.approx(merged.bayes_error_bounds())
    assert path["pber"][-1] == 0


def test_many_classes_are_kept_small_and_the_totals_stay_those_of_all():
    S, priors = planted(300, sharpness=6)
    cm = cs.CollisionMatrix(S, priors)
    summary = cs.summarise(cm)
    assert not summary["complete"]
    assert summary["n_classes"] == 300
    assert len(summary["classes"]) == len(summary["matrix"]) == 101
    assert "too many" in summary["notes"][0]
    assert summary["pber"]["value"] == cm.pber
    assert len(json.dumps(summary)) < 1_500_000
    np.testing.assert_allclose(np.sum(summary["matrix"], axis=1), 1)
    shown = [int(name) for name in summary["classes"][:-1]]
    np.testing.assert_allclose(np.array(summary["matrix"])[:-1, :-1], cm.matrix[np.ix_(shown, shown)], rtol=1e-12)
    path = summary["merge_path"]
    assert path["n_groups"][0] == 300
    groups = [[shown[i] for i in group] for group in replay(path, 101, 20) if group != [100]]
    assert path["pber"][20] == pytest.approx(cm.merge(groups).pber, abs=1e-12)


def test_two_hundred_classes_are_kept_whole():
    S, priors = planted(200)
    summary = cs.summarise(cs.CollisionMatrix(S, priors))
    assert summary["complete"]
    assert len(summary["matrix"]) == 200
    assert len(json.dumps(summary["merge_path"])) < 40_000


def test_without_standard_errors_there_are_no_intervals():
    summary = cs.summarise(cs.CollisionMatrix([[0.9, 0.1], [0.2, 0.8]]))
    assert summary["low"] is summary["high"] is summary["counts"] is summary["pber"]["low"] is None
    assert any("No intervals were estimated" in line for line in summary["what_to_do"])


# ------------------------------------------------------------------------------------------------ rows


def fitted(P, y, classes, **more):
    cm = cs.collision_matrix_from_posteriors(P, y, classes=classes)
    return SimpleNamespace(collision_matrix_=cm, posteriors_=P, **more)


def test_rows_that_were_not_scored_are_left_out_and_the_others_keep_their_numbers():
    P = np.array([[0.99, 0.01], [0.5, 0.5], [0.01, 0.99], [0.9, 0.1], [0.3, 0.7], [0.98, 0.02]])
    y = np.array(["a", "b", "b", "a", "b", "b"])
    model = fitted(P, y, ["a", "b"])
    model.posteriors_ = P.copy()
    model.posteriors_[0] = np.nan
    rows = cs.summarise(model, y=y)["ambiguous_rows"]
    assert rows["n_rows"] == 5
    assert [row["index"] for row in rows["rows"]][:2] == [1, 4]
    assert rows["rows"][0]["label"] == "b"
    assert [row["index"] for row in rows["suspects"]] == [5]
    assert rows["suspects"][0]["posterior"][0] == {"class": "a", "probability": 0.98, "is_label": False}
    assert rows["suspects"][0]["posterior"][1]["is_label"]


def test_raw_rows_are_shown_in_the_place_of_encoded_ones():
    P, codes = posteriors(2, 30, sharpness=0.3)
    raw = pd.DataFrame({"town": [f"T{i}" for i in range(30)], "age": [None, *range(29)], EVIL: [0.1 + 0.2] * 30})
    summary = cs.summarise(P, np.zeros((30, 99)), codes, rows=raw)
    for row in summary["ambiguous_rows"]["rows"]:
        town, age, evil = row["values"]
        assert town == ["town", f"T{row['index']}"]
        assert age == ["age", "missing" if row["index"] == 0 else str(row["index"] - 1)]
        assert evil == [EVIL, "0.3"]


def test_columns_beyond_a_dozen_are_counted_not_shown():
    P, codes = posteriors(2, 30, sharpness=0.3)
    row = cs.summarise(P, np.arange(600.0).reshape(30, 20), codes)["ambiguous_rows"]["rows"][0]
    assert row["values"][1] == ["x1", str(20 * row["index"] + 1)]
    assert (len(row["values"]), row["columns_left"]) == (12, 8)


def pixels_of(uri):
    """Width, height, channels and raw pixels of a PNG without filters, read independently of the writer."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    at, body = 8, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            body += data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(
            data[at + 4 : at + 8 + length]
        )
        at += 12 + length
    channels = {0: 1, 2: 3, 6: 4}[kind]
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * channels)
    assert depth == 8
    assert not raw[:, 0].any()
    return raw[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3), (3, 2, 5), (4, 5, 6)])
def test_images_are_the_rows_themselves(shape):
    P, codes = posteriors(2, 40, sharpness=0.3)
    X = np.random.default_rng(0).integers(0, 256, (40, *shape)).astype(np.uint8)
    flat = cs.summarise(P, X.reshape(40, -1), codes, image_shape=shape)["ambiguous_rows"]["rows"]
    for row in flat:
        image = X[row["index"]]
        if len(shape) == 2:
            image = image[..., None]
        elif shape[2] not in (1, 3, 4):
            image = np.moveaxis(image, 0, -1)
        np.testing.assert_array_equal(pixels_of(row["image"]), image)
        assert row["values"] == []
    assert cs.summarise(P, X, codes)["ambiguous_rows"]["rows"] == flat


def test_the_brightest_value_of_other_numbers_is_white_and_large_images_are_thinned():
    P, codes = posteriors(2, 40, sharpness=0.3)
    X = np.tile(np.linspace(16, 0, 300), (40, 2))
    image = pixels_of(cs.summarise(P, X, codes, image_shape=(2, 300))["ambiguous_rows"]["rows"][0]["image"])
    assert image.shape[1] <= 128
    assert image.max() == 255
    assert image.min() < 5


def test_a_model_without_held_out_posteriors_is_asked_about_the_rows():
    P, codes = posteriors(2, 60)
    model = SimpleNamespace(
        collision_matrix_=cs.collision_matrix_from_posteriors(P, codes), predict_proba=lambda X: P[X[:, 0].astype(int)]
    )
    summary = cs.summarise(model, np.arange(10)[:, None], codes[:10])
    assert summary["ambiguous_rows"]["n_rows"] == 10
    assert summary["ambiguous_rows"]["fresh"]
    assert "look clearer than they are" in render(summary)
    assert cs.summarise(model)["ambiguous_rows"] is None


# ------------------------------------------------------------------------------------------------ audit and trust


def test_the_audit_is_that_of_the_package():
    P, codes = posteriors(3, 600)
    X = np.zeros((600, 1))
    constant = DummyClassifier(strategy="constant", constant=1).fit(X, codes)
    expected = cs.audit(P, X, codes, constant)
    for y_pred in (constant, np.ones(600, dtype=int)):
        audit = cs.summarise(P, X, codes, y_pred=y_pred)["audit"]
        assert audit["verdict"] == expected.verdict
        assert (audit["error"], audit["inherent"]) == (expected.error, expected.best)
        assert audit["n_flagged"] == int(expected.pairs["flagged"].sum()) > 0
    assert cs.summarise(P, y=codes)["audit"] is None


def control(passed):
    return cs.ShuffledControl(estimated(2), 0.02, 1.5 if passed else 9.9, 2.4, passed)


def test_the_shuffled_control_is_reported_and_a_failed_one_comes_first():
    cm = estimated(3)
    said = {
        name: cs.summarise(cm, control=c)
        for name, c in (("none", None), ("ok", control(True)), ("bad", control(False)))
    }
    assert said["none"]["trust"]["control"]["passed"] is None
    assert "Not run" in render(said["none"])
    assert said["ok"]["trust"]["control"]["passed"] is True
    assert said["bad"]["what_to_do"][0].startswith("Do not act on these numbers yet")
    assert not any("Do not act" in line for line in said["ok"]["what_to_do"])
    assert "Failed." in render(said["bad"])


def test_the_trust_panel_tells_how_a_real_fit_was_made():
    X, y = cs.datasets.GaussianProblem([[0, 0], [3, 3]]).sample(200, random_state=0)
    clf = cs.CollisionClassifier(cv=2, hidden_layer_sizes=(4,), max_epochs=40, random_state=7).fit(X, y)
    trust = cs.summarise(clf, X, y)["trust"]
    assert trust["seed"] == 7
    assert trust["training"]["folds"] == 2
    assert trust["training"]["epochs"][1] <= 40
    assert sum(trust["training"]["models"].values()) == pytest.approx(1)
    assert trust["settings"]["hidden_layer_sizes"] == "(4,)"
    assert trust["environment"]["versions"]["numpy"] == np.__version__
    page = render(cs.summarise(clf, X, y))
    assert f"numpy {np.__version__}" in page


# ------------------------------------------------------------------------------------------------ words


def advice(cm, **options):
    return " ".join(cs.summarise(cm, **options)["what_to_do"])


def with_errors(S, priors=None, n=10_000, stderr=0.001):
    S = np.array(S)
    return cs.CollisionMatrix(S, priors, stderr=np.full(S.shape, stderr), pber_stderr=stderr, counts=np.full(len(S), n))


def test_nothing_needs_doing_where_nothing_collides():
    assert advice(with_errors(np.eye(3), stderr=0.0)).startswith("Nothing needs doing")
    assert "No two classes collide" in " ".join(cs.summarise(cs.CollisionMatrix(np.eye(3)))["headline"])
    assert "No two classes collide" in render(cs.summarise(cs.CollisionMatrix(np.eye(3))))


def test_a_pair_that_dominates_is_to_be_merged_and_the_gain_is_that_of_merging():
    cm = with_errors([[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0, 1]])
    said = advice(cm)
    assert "Merge 0 and 1" in said
    assert f"from {cm.pber:.1%} to {cm.merge([[0, 1]]).pber:.0%}" in said


def test_where_no_pair_dominates_none_is_urged():
    S = np.full((6, 6), 0.04) + 0.76 * np.eye(6)
    said = advice(with_errors(S))
    assert "No single pair dominates" in said
    assert "Merge " not in said


def test_two_classes_are_never_to_be_merged():
    said = advice(with_errors([[0.8, 0.2], [0.2, 0.8]]))
    assert "nothing to merge" in said
    assert "To tell 0 from 1 more often takes inputs that differ" in said


def test_wide_intervals_and_small_classes_ask_for_more_rows():
    S = [[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0, 1]]
    assert "could also be zero" in advice(with_errors(S, stderr=0.2))
    assert "Gather more of 0, 1, 2" in advice(with_errors(S, n=12))
    assert "Gather" not in advice(with_errors(S))
    assert "could also be zero" not in advice(with_errors(S))


def test_a_matrix_that_cannot_be_trusted_says_so_first():
    S, priors = blocks((2, 2))
    first = cs.summarise(cs.CollisionMatrix(S, priors))["what_to_do"][0]
    assert first.startswith("Read with care: S is nearly singular")


def test_labels_that_look_wrong_are_to_be_checked_where_chance_does_not_explain_them():
    sure = np.tile([[0.999, 0.001], [0.001, 0.999]], (20, 1))
    y = np.tile(["a", "b"], 20)
    assert "looks wrong" not in " ".join(cs.summarise(sure, y=y)["what_to_do"])
    y[0] = "b"
    said = cs.summarise(sure, y=y)["what_to_do"]
    assert said[0].startswith("One row carries a label that looks wrong, where chance explains about none")
    # The same stray label is no news where one row in twenty strays by itself.
    unsure = np.where(sure > 0.5, 0.95, 0.05)
    summary = cs.summarise(unsure, y=y)
    assert summary["ambiguous_rows"]["n_suspect"] == 1
    assert summary["ambiguous_rows"]["expected_suspect"] == pytest.approx(2)
    assert "looks wrong" not in " ".join(summary["what_to_do"])


def test_names_are_cut_and_isolated_in_sentences():
    assert len(words.quote("a" * 100)) < 50
    assert "…" in words.quote("a" * 100)
    assert words.quote("قطة").strip("“”") == "\u2068قطة\u2069"
    assert "\n" not in words.quote("two\nlines")


# ------------------------------------------------------------------------------------------------ the page


class Reader(HTMLParser):
    """Elements, attributes and text of a page, as a parser of its own sees them."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.inside = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def odd_summary():
    """Names that try to break out, everywhere a name can stand."""
    P, codes = posteriors(len(ODD_NAMES), 300, sharpness=1.0)
    classes = np.array(ODD_NAMES, dtype=object)
    y = classes[codes]
    model = fitted(P, y, classes)
    rows = pd.DataFrame({name: [name] * 300 for name in ODD_NAMES if "half" not in name})  # pandas refuses halves
    options = {"title": EVIL, "notes": [EVIL, "</style>"], "rows": rows}
    return cs.summarise(model, None, y, y_pred=y[::-1], **options)


def test_no_name_or_value_becomes_markup(odd_summary):
    page = render(odd_summary)
    reader = Reader(page)
    assert EVIL not in page
    assert reader.tags.count("script") == 3
    assert reader.tags.count("style") == 1
    assert "b" not in reader.tags
    assert not [name for _, name, _ in reader.attributes if name.startswith("on")]
    page.encode()


def test_the_page_carries_its_summary(odd_summary):
    assert json.loads(Reader(render(odd_summary)).scripts[0]) == odd_summary


def test_the_page_loads_nothing(odd_summary):
    loads = [
        (tag, name, value)
        for tag, name, value in Reader(render(odd_summary)).attributes
        if name in ("src", "href", "action", "srcset", "poster", "data")
    ]
    assert all(value.startswith(("#", "data:image/png;base64,")) for _, _, value in loads)


def test_the_policy_lets_two_scripts_run_and_names_them_by_hash(odd_summary):
    page = render(odd_summary)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    policy = policy.replace("&#39;", "'")
    scripts = Reader(page).scripts[1:]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy.startswith("default-src 'none'; script-src " + " ".join(f"'sha256-{h}'" for h in hashes) + ";")
    assert "unsafe-eval" not in policy


def test_line_separators_and_brackets_cannot_end_the_data():
    assert re.search(r"[<>&\u2028\u2029]", in_script({"</script>": "\u2028 & <!--"})) is None


def test_the_same_summary_gives_the_same_page(tmp_path):
    summary = cs.summarise(estimated(3))
    read_back = json.loads(json.dumps(summary))
    first, second = cs.write_report(summary, tmp_path / "a.html"), cs.write_report(read_back, str(tmp_path / "b.html"))
    assert first == tmp_path / "a.html"
    assert first.read_bytes() == second.read_bytes()


def test_an_old_report_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    assert cs.report(estimated(2), path=path) == path
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_missing_extra_is_named_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r'pip install "collidescope\[report\]"'):
        cs.report("not even a source", path=tmp_path / "report.html")
    assert cs.summarise(estimated(2))["n_classes"] == 2


def test_summarising_brings_neither_jinja_nor_plotly_nor_torch():
    import subprocess

    code = (
        "import collidescope as cs, sys; cs.summarise([[.9,.1],[.2,.8],[.6,.4],[.3,.7]], y=[0, 1, 0, 1]); "
        "print([m for m in ('torch', 'jinja2', 'plotly', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
