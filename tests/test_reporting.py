"""The summary says what the other modules say, JSON can hold it, and the page escapes its input."""

import base64
import copy
import functools
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import collidescope as cs
from collidescope.datasets import scenario_a
from collidescope.equations.densities import draw_classes
from collidescope.matrix import Method
from collidescope.show import words
from collidescope.show.html import check_summary, render
from collidescope.trust import ShuffledControl
from helpers import blocks, limit_like, planted, random_posteriors

EVIL = "<script>alert(1)</script>"
PAIR = [[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0, 1]]
ODD_NAMES = [
    EVIL,
    "",
    "a" * 150,
    "قطة",
    "🐈",
    "\ud800half",
    "$x$ & <b>",
    "\u2028 line",
    "&lt;",
    "'\"`",
]


def posteriors(k, n=400, seed=0, sharpness=3.0):
    return random_posteriors(np.random.default_rng(seed), n, k, sharpness)


def estimated(k, **options):
    P, codes = posteriors(k, **options)
    classes = np.array([f"c{i}" for i in range(k)], dtype=object)
    return cs.collision_matrix_from_posteriors(P, classes[codes], classes=classes)


def looked_at(*args, **options):
    """The part of the summary about rows."""
    return cs.summarise(*args, **options)["ambiguous_rows"]


def advice(*args, **options):
    """What to do, as one text."""
    return " ".join(cs.summarise(*args, **options)["what_to_do"])


def replay(path, k, steps):
    """Groups after some steps of a merge path, from its columns alone."""
    groups = {i: [i] for i in range(k)}
    for step in range(1, steps + 1):
        groups[path["first"][step]] += groups.pop(path["second"][step])
    return list(groups.values())


def test_the_summary_of_a_matrix_holds_its_numbers_as_json():
    cm = estimated(5)
    summary = cs.summarise(cm)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    for name in ("matrix", "joint", "priors", "counts"):
        assert_array_equal(summary[name], getattr(cm, name))
    ends = [summary["low"], summary["high"]]
    assert_allclose(ends, cm.interval(), atol=1e-6)
    assert tuple(summary["pber"].values()) == (cm.pber, *cm.pber_interval())
    keys = ["class", "other", "rate"]
    pairs = [[pair[key] for key in keys] for pair in summary["top_collisions"]]
    assert pairs == cm.top_collisions(10)[keys].to_numpy().tolist()
    assert_allclose([c["draw"] for c in summary["ceilings"]], cm.recall())


def test_posteriors_have_the_summary_of_their_matrix():
    P, codes = posteriors(3)
    y = np.array(["x", "y", "z"])[codes]
    from_rows = cs.summarise(P, y=y)
    from_matrix = cs.summarise(cs.collision_matrix_from_posteriors(P, y))
    for name in ("matrix", "low", "pber", "top_collisions", "merge_path", "headline"):
        assert from_rows[name] == from_matrix[name]


def test_columns_of_posteriors_are_matched_by_name():
    P, codes = posteriors(3)
    y = np.array(["x", "y", "z"])[codes]
    turned = pd.DataFrame(P[:, [2, 0, 1]], columns=["z", "x", "y"])
    one, other = (cs.summarise(given, y=y)["pber"]["value"] for given in (P, turned))
    assert one == pytest.approx(other)


def test_every_step_of_the_merge_path_has_the_pber_of_its_merged_matrix():
    cm = estimated(6)
    limit = limit_like(cm)
    path = cs.summarise(cm, limit=limit)["merge_path"]
    assert path["n_groups"] == list(range(6, 0, -1))
    for step in range(5):
        groups = [[cm.classes[i] for i in group] for group in replay(path, 6, step)]
        merged = cm.merge(groups)
        assert path["pber"][step] == pytest.approx(merged.pber, abs=1e-12)
        low, high = merged.pber_interval()
        assert path["low"][step] == pytest.approx(low, abs=1e-9)
        # The grouping was chosen for its low PBER, which the upper end allows for.
        assert path["high"][step] >= high - 1e-9
        left = limit.matrix.merge(groups).pber
        assert path["limit"][step] == pytest.approx(left, abs=1e-12)
    assert path["pber"][-1] == 0


def test_two_classes_have_nothing_to_merge():
    assert cs.summarise(estimated(2))["merge_path"] is None


def test_a_short_summary_of_many_classes_keeps_their_totals():
    cm = cs.CollisionMatrix(*planted(300, sharpness=6))
    summary = cs.summarise(cm)
    assert not summary["complete"]
    assert summary["n_classes"] == 300
    assert summary["pber"]["value"] == cm.pber
    assert len(summary["classes"]) == len(summary["matrix"]) == 101
    assert "too many" in summary["notes"][0]
    assert len(json.dumps(summary)) < 1_500_000
    shown = [int(name) for name in summary["classes"][:-1]]
    S = np.array(summary["matrix"])[:-1, :-1]
    assert_allclose(S, cm.matrix[np.ix_(shown, shown)], rtol=1e-12)
    path = summary["merge_path"]
    left = [group for group in replay(path, 101, 20) if group != [100]]
    merged = cm.merge([[shown[i] for i in group] for group in left])
    assert path["pber"][20] == pytest.approx(merged.pber, abs=1e-12)
    check_summary(summary)


def test_the_limit_of_a_model_is_told_with_its_curve():
    P, codes = posteriors(3)
    cm = cs.collision_matrix_from_posteriors(P, codes)
    limit = limit_like(cm)
    model = SimpleNamespace(collision_matrix_=cm, posteriors_=P, limit_=limit)
    summary = cs.summarise(model, y=codes)
    told = summary["limit"]
    assert told["curve"]["pber"] == limit.curve["pber"].tolist()
    assert (told["low"], told["high"]) == limit.pber_interval()
    classes = pd.DataFrame(summary["ceilings"])
    assert_allclose(classes["draw_limit"], limit.matrix.recall())
    # The best guess is the recall of argmax p on held-out rows, another number than S_kk.
    found = [(P.argmax(axis=1) == codes)[codes == k].mean() for k in range(3)]
    assert_allclose(classes["best_guess"], found)
    assert re.search(
        r"not learned yet; twice the rows would lower the share of other labels by about "
        r"[\d.]+ percentage points\.$",
        summary["what_to_do"][1],
    )
    assert told["words"] in summary["headline"]


def test_a_curve_that_has_hardly_begun_asks_for_more_rows():
    cm = estimated(3)
    limit = limit_like(cm, "hardly begun", reason="nothing is seen")
    hardly = cs.summarise(cm, limit=limit)
    assert hardly["limit"]["band"] is None
    assert "Gather more rows" in hardly["what_to_do"][1]
    assert "not known" in render(hardly)


def test_sections_of_other_results_are_shown_as_they_are():
    rows = [["age", np.float64(0.25)], [EVIL, None], ["n", 3]]
    table = {"columns": ["column", EVIL], "rows": rows}
    section = {"title": "Columns", "sentences": [EVIL], "table": table}
    page = render(cs.summarise(estimated(2), sections=[section]))
    assert '<a href="#section-1"><bdi>Columns</bdi></a>' in page
    assert re.search(r'<td class="number"><bdi>0.2500</bdi></td>', page)
    assert EVIL not in page


def test_rows_left_out_do_not_renumber_the_others():
    p = np.array([0.99, 0.5, 0.01, 0.9, 0.3, 0.98])
    P = np.column_stack([p, 1 - p])
    y = np.array(["a", "b", "b", "a", "b", "b"])
    cm = cs.collision_matrix_from_posteriors(P, y)
    P[0] = np.nan
    rows = looked_at(SimpleNamespace(collision_matrix_=cm, posteriors_=P), y=y)
    assert (rows["n_rows"], rows["rows"][0]["label"]) == (5, "b")
    assert [row["index"] for row in rows["rows"]][:2] == [1, 4]
    assert [row["index"] for row in rows["suspects"]] == [5]
    assert rows["suspects"][0]["posterior"][0] == {
        "class": "a",
        "probability": 0.98,
        "is_label": False,
    }


def test_raw_rows_are_shown_in_the_place_of_encoded_ones():
    P, codes = posteriors(2, 30, sharpness=0.3)
    towns = [f"T{i}" for i in range(30)]
    columns = {"town": towns, "age": [None, *range(29)], EVIL: [0.1 + 0.2] * 30}
    found = looked_at(P, np.zeros((30, 99)), codes, rows=pd.DataFrame(columns))
    for row in found["rows"]:
        town, age, evil = row["values"]
        assert town == ["town", f"T{row['index']}"]
        assert age == ["age", "missing" if row["index"] == 0 else str(row["index"] - 1)]
        assert evil == [EVIL, "0.3"]


def test_columns_beyond_a_dozen_are_counted():
    P, codes = posteriors(2, 30, sharpness=0.3)
    row = looked_at(P, np.arange(600.0).reshape(30, 20), codes)["rows"][0]
    assert row["values"][1] == ["x1", str(20 * row["index"] + 1)]
    assert (len(row["values"]), row["columns_left"]) == (12, 8)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3), (3, 2, 5)])
def test_images_are_the_rows_themselves(shape):
    from PIL import Image

    P, codes = posteriors(2, 40, sharpness=0.3)
    X = np.random.default_rng(0).integers(0, 256, (40, *shape)).astype(np.uint8)
    flat = looked_at(P, X.reshape(40, -1), codes, image_shape=shape)["rows"]
    for row in flat:
        image = X[row["index"]]
        content = base64.b64decode(row["image"].removeprefix("data:image/png;base64,"))
        shown = np.moveaxis(image, 0, -1) if len(image) == 3 else image
        picture = np.asarray(Image.open(io.BytesIO(content)))
        assert_array_equal(picture, shown)
    assert looked_at(P, X, codes)["rows"] == flat


def test_a_model_without_held_out_posteriors_is_asked_about_the_rows():
    P, codes = posteriors(2, 60)
    cm = cs.collision_matrix_from_posteriors(P, codes)
    model = SimpleNamespace(
        collision_matrix_=cm, predict_proba=lambda X: P[X[:, 0].astype(int)]
    )
    summary = cs.summarise(model, np.arange(10)[:, None], codes[:10])
    assert summary["ambiguous_rows"]["n_rows"] == 10
    assert "look clearer than they are" in render(summary)
    assert looked_at(model) is None


@pytest.fixture(scope="module")
def quick():
    """(a classifier, its rows and labels)."""
    X, y = scenario_a(3).sample(90, 0)
    clf = cs.CollisionClassifier(members=["linear"], limit=False, cv=2, random_state=0)
    return clf.fit(X, y), X, y


def test_rows_of_the_fit_are_known_in_any_order(quick):
    clf, X, y = quick
    own, other = (looked_at(clf, part, y) for part in (X, X[::-1]))
    assert (own["fresh"], other["fresh"]) == (False, True)
    assert own["rows"][0]["index"] == 89 - other["rows"][0]["index"]
    assert looked_at(clf, X[:20], y[:20])["n_rows"] == 20


def test_the_audit_is_that_of_the_package():
    P, codes = posteriors(3, 600)
    constant = np.ones(600, dtype=int)
    limit = limit_like(cs.collision_matrix_from_posteriors(P, codes))
    for known, says in (
        (None, "Not learned yet, or inherent"),
        (limit, "<dt>Not learned yet</dt>"),
    ):
        expected = cs.audit(P, None, codes, constant, limit=known)
        summary = cs.summarise(P, y=codes, y_pred=constant, limit=known)
        audit = summary["audit"]
        for name in ("error", "best", "fixable", "verdict"):
            assert audit[name] == getattr(expected, name)
        assert (audit["inherent_interval"] is None) == (known is None)
        assert audit["verdict"] in summary["what_to_do"]
        assert says in render(summary)


def test_the_shuffled_control_is_reported():
    cm = estimated(3)
    passed, failed = (
        cs.summarise(cm, control=ShuffledControl(cm, 0.02, 1.5, 2.4, good))
        for good in (True, False)
    )
    assert "do not act on these numbers yet" in failed["what_to_do"][1]
    assert not any("do not act" in line for line in passed["what_to_do"])
    assert "Failed." in render(failed)


FIT = {"command": "collidescope fit t.csv --label y", "seconds": 90}


@pytest.mark.parametrize(
    ("has_model", "about", "says"),
    [
        (False, {}, "only the results of the model were given"),
        (
            True,
            {},
            "as long as the fit took: `report(clf, X, y, control=clf.shuffled_control(X, y))`",
        ),
        (True, FIT, "about 1.5 min: `collidescope fit t.csv --label y --control`"),
    ],
)
def test_a_control_that_was_not_run_has_its_command(has_model, about, says):
    cm = estimated(3)
    source = SimpleNamespace(collision_matrix_=cm) if has_model else cm
    assert says in cs.summarise(source, about=about)["trust"]["control"]["words"]


def with_errors(S, n=10_000, stderr=0.001):
    S = np.array(S)
    return cs.CollisionMatrix(
        S,
        stderr=np.full(S.shape, stderr),
        pber_stderr=stderr,
        counts=np.full(len(S), n),
    )


@pytest.mark.parametrize(
    ("cm", "about", "says"),
    [
        (with_errors(np.eye(3), stderr=0.0), {}, "^Nothing needs doing"),
        (
            with_errors(PAIR),
            {},
            r"Merge 0 and 1 .* from 13.3% to 0%.*`cs.consolidate\(cm, n_groups=2\)`",
        ),
        (
            with_errors(PAIR),
            {"command": "x", "saved": "my m.json"},
            "`collidescope merge 'my m.json' --groups 2`",
        ),
        (
            with_errors(np.full((6, 6), 0.04) + 0.76 * np.eye(6)),
            {},
            "No single pair dominates",
        ),
        (
            with_errors([[0.8, 0.2], [0.2, 0.8]]),
            {},
            "With two classes there is nothing to merge. To tell 0 from 1",
        ),
        (with_errors(PAIR, stderr=0.2), {}, "More rows would make this more precise"),
        (with_errors(PAIR, n=12), {}, "Gather more rows of 0, 1, 2: fewer than 30"),
        (cs.CollisionMatrix(PAIR), {}, "No intervals were estimated"),
    ],
)
def test_advice_can_be_done_where_the_reader_stands(cm, about, says):
    assert re.search(says, advice(cm, about=about))


def warned(*cautions):
    return cs.summarise(
        with_errors(np.eye(3), stderr=0.0), about={"cautions": list(cautions)}
    )


def test_the_first_advice_is_the_answer():
    said = cs.summarise(with_errors(PAIR))["what_to_do"][0]
    assert said == (
        "13.3% of the inputs would get another label (13.1% to 13.5%); "
        "0 would most often turn into 1, in 20.0% of cases."
    )


def test_nothing_needs_doing_is_never_said_beside_a_warning():
    assert warned()["what_to_do"][0].startswith("Nothing needs doing")
    said = warned("column 'invoice' predicts the label")["what_to_do"]
    assert not any("Nothing needs doing" in line for line in said)
    assert said[1] == "Read with care: column 'invoice' predicts the label."


def test_a_class_told_no_better_than_chance_is_not_to_be_merged():
    """The rare class makes up most collisions because no row is known to be of it."""
    P = np.tile([[0.985, 0.003, 0.012], [0.003, 0.985, 0.012]], (2000, 1))
    y = draw_classes(P, np.random.default_rng(0))
    said = cs.summarise(P, y=y)["what_to_do"]
    assert not any(line.startswith("Merge ") for line in said)
    assert any("recognised no better than by chance" in line for line in said)


def test_posteriors_without_labels_are_not_called_harmless():
    """They may be as sure as they like: nothing checked them."""
    sure = np.tile([[0.999, 0.001], [0.001, 0.999]], (100, 1))
    said = cs.summarise(cs.collision_matrix_from_posteriors(sure))["what_to_do"]
    assert said[0].startswith("If the posteriors are right, 0.20% of the inputs")
    assert not any("Nothing needs doing" in line for line in said)


def test_a_count_of_few_rows_speaks_of_these_alone():
    """4,000 rows, all alike in pairs, beside 40,000 that occur once."""
    inputs = np.concatenate([np.repeat(np.arange(2000), 2), np.arange(2000, 42_000)])
    found = cs.summarise(cs.count_collisions(inputs, inputs % 2))
    assert found["pber"]["high"] < 0.01
    first = found["what_to_do"][0]
    assert first.startswith("0% of the inputs with several labels would get another")


def test_labels_that_agree_no_better_than_chance_are_no_fault_of_a_model():
    votes = np.random.default_rng(0).multinomial(3, [0.5, 0.3, 0.2], 100)
    said = cs.summarise(cs.collision_matrix_from_votes(votes))["what_to_do"][1]
    assert "labels of one input may agree no better than those of any two" in said
    assert "model" not in said


def test_a_near_singular_matrix_is_no_matter_of_the_first_screen():
    summary = cs.summarise(cs.CollisionMatrix(*blocks((2, 2))))
    assert not any("singular" in line for line in summary["what_to_do"])
    assert "singular" in summary["trust"]["conditioning"]


def test_no_merge_is_advised_at_chance_level():
    priors = np.array([0.3, 0.3, 0.4])
    said = advice(cs.CollisionMatrix(np.tile(priors, (3, 1)), priors))
    assert "hardly predict the class better than the class shares alone" in said
    assert "Merge " not in said
    assert "consolidate" not in said


def test_a_wide_interval_is_not_taken_for_inputs_that_predict_nothing():
    """PBER 0.28 of 0.66 by chance, from three groups: the interval reaches 1."""
    P = np.where(np.eye(3)[np.arange(90) % 3] == 1, 0.84, 0.08)
    y = np.where(np.arange(90) % 7 == 0, (np.arange(90) + 1) % 3, np.arange(90) % 3)
    cm = cs.collision_matrix_from_posteriors(P, y, groups=np.arange(90) // 45)
    assert cm.pber < 0.5 < cm.pber_interval()[1]
    said = advice(cm)
    assert "hardly predict the class" not in said
    assert "the inputs say nothing" not in said
    assert "is not certain" in said
    assert "gather more rows (or groups)" in said


def test_the_answer_begins_with_a_capital_letter():
    matrix = np.array([[0.99999, 0.00001], [0.00001, 0.99999]])
    summary = cs.summarise(cs.CollisionMatrix(matrix))
    assert words.answer(summary).startswith("Less than 0.01% of the inputs")


def test_a_condition_number_of_thousands_is_written_in_full():
    assert "S: 1,030 (" in words.conditioning(1030.2, dominant=False)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.19, 0.21, "would hardly help"),
        (0.06, 0.21, "It is unclear whether"),
        (0.0, 0.21, "It is unclear whether"),
    ],
)
def test_more_rows_are_said_to_hardly_help_only_where_the_range_is_narrow(
    low, high, says
):
    cm = cs.CollisionMatrix(
        [[0.8, 0.2], [0.2, 0.8]], pber_stderr=0.005, method=Method.ONE_STEP
    )
    limit = limit_like(cm, "settled")
    limit.pber_interval = lambda level=0.95: (low, high)
    summary = cs.summarise(cm, limit=limit)
    assert says in " ".join(summary["what_to_do"])
    hardly = "would hardly change that" in summary["headline"][1]
    assert hardly == (says == "would hardly help")


def test_posteriors_without_labels_carry_no_confidence_statement():
    P, _ = posteriors(3)
    summary = cs.summarise(cs.collision_matrix_from_posteriors(P))
    assert summary["pber"]["low"] is None
    assert summary["low"] is None
    assert summary["bayes_error_at_most"] is None
    assert "95%" not in " ".join(summary["headline"])
    assert "to check this with" in summary["headline"][1]


def test_pairs_that_may_be_nothing_stand_behind_those_that_are_not():
    S = np.kron(np.diag([0.4, 0.1]), [[0, 1], [1, 0]]) + np.diag([0.6, 0.6, 0.9, 0.9])
    stderr = np.repeat([0.3, 0.3, 0.01, 0.01], 4).reshape(4, 4)
    cm = cs.CollisionMatrix(S, stderr=stderr, pber_stderr=0.01, counts=[2, 2, 900, 900])
    first = cs.summarise(cm)["top_collisions"][0]
    assert {first["class"], first["other"]} == {"2", "3"}


def test_a_race_of_models_is_a_section_of_the_report():
    table = pd.DataFrame(
        {"model": ["linear"], "dropped": ["costs more than it is worth"]}
    )
    race = SimpleNamespace(table=table)
    model = SimpleNamespace(collision_matrix_=estimated(3), race_=race)
    assert cs.summarise(model)["sections"][0]["title"] == "The models tried"


def test_a_report_takes_sparse_rows(tmp_path, quick):
    from scipy.sparse import csr_array

    clf, X, y = quick
    clf = clone(clf).fit(csr_array(X), y)
    path = cs.report(clf, csr_array(X), y, tmp_path / "r.html")
    assert "Rows to look at" in path.read_text(encoding="utf-8")


def test_a_page_stays_small(tmp_path):
    page = cs.report(cs.CollisionMatrix(*planted(30)), path=tmp_path / "r.html")
    assert page.stat().st_size < 300_000


def test_labels_that_look_wrong_are_to_be_checked_where_chance_does_not_explain_them():
    sure = np.tile([[0.999, 0.001], [0.001, 0.999]], (20, 1))
    y = np.tile(["a", "b"], 20)
    assert "looks wrong" not in advice(sure, y=y)
    y[0] = "b"
    said = cs.summarise(sure, y=y)["what_to_do"]
    first = "One row carries a label that looks wrong, where chance explains about none"
    assert said[1].startswith(first)
    # The same stray label is no news where one row in twenty strays by itself.
    noisy = np.where(sure > 0.5, 0.95, 0.05)
    rows = looked_at(noisy, y=y)
    assert rows["n_suspect"] == 1
    assert rows["expected_suspect"] == pytest.approx(2)
    assert "looks wrong" not in advice(noisy, y=y)


class Reader(HTMLParser):
    """Elements, attributes and scripts of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.scripts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        if self.tags and self.lasttag == "script" and self.cdata_elem:
            self.scripts.append(data)


@functools.cache
def odd():
    """(summary, page): names that try to break out, everywhere a name can stand."""
    P, codes = posteriors(len(ODD_NAMES), 300, sharpness=1.0)
    classes = np.array(ODD_NAMES, dtype=object)
    y = classes[codes]
    cm = cs.collision_matrix_from_posteriors(P, y, classes=classes)
    # pandas refuses halves
    rows = {name: [name] * 300 for name in ODD_NAMES if "half" not in name}
    summary = cs.summarise(
        SimpleNamespace(collision_matrix_=cm, posteriors_=P),
        np.zeros((300, 4, 4)),
        y,
        y_pred=y[::-1],
        title=EVIL,
        notes=[EVIL, "</style>"],
        rows=pd.DataFrame(rows),
        limit=limit_like(cm),
        about={"file": EVIL, "label": EVIL, "columns": [EVIL], "command": EVIL},
    )
    return summary, render(summary)


def test_no_name_or_value_becomes_markup():
    summary, page = odd()
    reader = Reader(page)
    assert EVIL not in page
    assert [reader.tags.count(tag) for tag in ("script", "style", "b")] == [2, 1, 0]
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert json.loads(reader.scripts[0]) == summary


def test_the_page_loads_nothing():
    loading = ("src", "href", "action", "srcset", "poster")
    for name, value in Reader(odd()[1]).attributes:
        if name in loading:
            assert value.startswith(("#", "data:image/png;base64,"))


def test_the_policy_knows_the_script_by_its_hash():
    reader = Reader(odd()[1])
    policy = next(
        value for _, value in reader.attributes if "default-src" in str(value)
    )
    digests = [hashlib.sha256(text.encode()).digest() for text in reader.scripts[1:]]
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    allowed = " ".join(hashes)
    assert policy.startswith(f"default-src 'none'; script-src {allowed};")
    assert "unsafe-eval" not in policy


def test_a_picture_is_data_of_a_known_kind_or_refused():
    summary = copy.deepcopy(odd()[0])
    for image in (
        "https://example.com/x.png",
        "data:text/html;base64,AA",
        "data:image/svg+xml;base64,AA",
    ):
        summary["ambiguous_rows"]["rows"][0]["image"] = image
        with pytest.raises(ValueError, match=r"image must be a picture as a data: URI"):
            check_summary(summary)
