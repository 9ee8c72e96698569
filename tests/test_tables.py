"""Tables: files are read as they are meant, columns become numbers that a saved model makes again,
traps are named."""

import copy
import gzip
import importlib.util
import re
import sys
import tarfile

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder

import collidescope as cs
from collidescope import _store
from collidescope._checks import spelling_variants
from collidescope._saving import to_tree
from collidescope.cli._inputs import clean_labels, match_labels
from collidescope.counting import input_groups
from collidescope.tables import TableClassifier, TableEncoder, read_table, screen
from collidescope.tables.numerals import number_form
from helpers import in_python

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")

ROWS = 240
LINES = "name{0}height{0}city\nanna{0}1.5{0}Köln\nbob{0}1.75{0}Paris\n"
SHORT = {
    "members": ["linear", "neighbours"],
    "limit": False,
    "cv": 2,
    "random_state": 0,
}
NEAR = SHORT | {"cv": 5, "members": ["neighbours"]}


@pytest.fixture(scope="module")
def mixed():
    """Numbers, levels, dates, booleans, text, with gaps of every kind."""
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.normal(40, 10, ROWS).round(1),
        "stamp": 1.7e9 + rng.normal(0, 3, ROWS),
    }
    columns |= {
        "colour": rng.choice(["red", "green", "blue"], ROWS),
        "sex": rng.choice(["f", "m"], ROWS),
    }
    columns |= {
        "flag": rng.random(ROWS) > 0.5,
        "asked": rng.choice(np.array([True, False, None], dtype=object), ROWS),
    }
    columns["when"] = pd.date_range("2024-01-01", periods=ROWS, freq="7h").strftime(
        "%d/%m/%Y %H:%M"
    )
    columns["day"] = pd.date_range("2024-01-01", periods=ROWS)
    columns["note"] = [
        f"order {rng.integers(900)} to {rng.choice(['rome', 'paris'])}"
        for _ in range(ROWS)
    ]
    table = pd.DataFrame(columns | {"empty": [None] * ROWS, "same": "x", "ones": 1})
    table.loc[3, "age"] = np.nan
    table.loc[5:9, "colour"] = table.loc[7, "when"] = None
    table.loc[11, "note"] = "?"
    return table


@pytest.fixture(scope="module")
def encoder(mixed):
    return TableEncoder.fit(mixed)


def column(encoder, table, name):
    """The features of one column, by name."""
    features = encoder.transform(table).rows
    names = encoder.feature_names
    return {
        own: features[:, k]
        for k, own in enumerate(names)
        if own.split("=")[0].split(" ")[0] == name
    }


def test_every_column_has_a_type(encoder):
    types = {
        "number": "age stamp flag asked",
        "category": "colour sex",
        "date": "when day",
        "text": "note",
    }
    assert encoder.types == {
        name: type_ for type_, names in types.items() for name in names.split()
    }
    table = pd.DataFrame({"region": [1, 2, 3] * 20, "x": np.arange(60.0)})
    assert TableEncoder.fit(table, categories=["region"]).feature_names == [
        "x",
        "region=1",
        "region=2",
        "region=3",
    ]


def test_columns_that_say_nothing_are_left_out(encoder):
    same = "it has the same value in every row"
    assert encoder.left_out == {"empty": "it has no values", "same": same, "ones": same}
    with pytest.raises(
        ValueError,
        match=r"no column that could tell classes apart.*'a': it has the same value",
    ):
        TableEncoder.fit(pd.DataFrame({"a": [1, 1], "b": [None, None]}))


def test_numbers_are_centred_at_the_median_which_stands_in_for_gaps(mixed, encoder):
    age = column(encoder, mixed, "age")
    assert age["age"] == pytest.approx(
        (mixed["age"] - mixed["age"].median()).fillna(0).to_numpy(), abs=1e-5
    )
    assert age["age missing"].nonzero()[0].tolist() == [3]
    # 1.7e9 has 128 between neighbours in float32: without centring nothing of it would be left
    stamp = column(encoder, mixed, "stamp")["stamp"]
    assert stamp == pytest.approx(
        (mixed["stamp"] - mixed["stamp"].median()).to_numpy(), abs=1e-4
    )


def test_levels_are_those_of_scikit_learn_s_one_hot_encoder(mixed, encoder):
    reference = OneHotEncoder(
        sparse_output=False,
        categories=[["blue", "green", "red"]],
        handle_unknown="ignore",
    )
    colours = mixed[["colour"]].astype(object).fillna("(none)")
    ours = column(encoder, mixed, "colour")
    assert list(ours) == ["colour=blue", "colour=green", "colour=red", "colour missing"]
    assert np.array_equal(
        np.column_stack(list(ours.values())[:3]), reference.fit_transform(colours)
    )
    assert ours["colour missing"].nonzero()[0].tolist() == [5, 6, 7, 8, 9]
    assert np.array_equal(
        column(encoder, mixed, "sex")["sex=m"],
        (mixed["sex"] == "m").to_numpy(dtype=np.float32),
    )


def test_unseen_levels_are_said(mixed, encoder):
    new = mixed.head(4).assign(colour="violet", sex="x", extra=1)
    assert not np.any(list(column(encoder, new, "colour").values()))
    assert column(encoder, new, "sex")["sex=m"].tolist() == [0.5] * 4
    notes = encoder.transform(new).surprises
    assert (
        "column 'colour': 4 of 4 cells are not among the levels of training (such as 'violet')"
        in notes
    )
    assert "columns that the model does not know are ignored: 'extra'" in notes


def test_text_is_what_skrub_s_string_encoder_makes_of_it(mixed, encoder):
    from skrub import StringEncoder

    texts = mixed["note"].where(mixed["note"] != "?").rename("note")
    reference = StringEncoder(30, random_state=0).fit_transform(texts).to_numpy()
    ours = np.column_stack(list(column(encoder, mixed, "note").values())[:-1])
    assert ours == pytest.approx(reference, abs=1e-4)


def test_dates_become_their_parts_in_the_format_of_training(mixed, encoder):
    when = column(encoder, mixed, "when")
    truth = pd.to_datetime(mixed["when"], format="%d/%m/%Y %H:%M")
    parts = {
        "month": truth.dt.month,
        "hour": truth.dt.hour,
        "total_seconds": (truth - truth[0]).dt.total_seconds(),
    }
    for part, values in parts.items():
        assert when[f"when {part}"] == pytest.approx(
            (values - values.median()).fillna(0).to_numpy(), abs=0.3
        )
    assert when["when missing"].nonzero()[0].tolist() == [7]
    assert "day hour" not in encoder.feature_names  # no time of day was seen


def test_a_table_gives_the_same_numbers_from_csv_or_parquet(mixed, encoder, tmp_path):
    mixed.to_csv(tmp_path / "t.csv", index=False)
    mixed.drop(columns="empty").to_parquet(tmp_path / "t.parquet")
    tables = [
        read_table(tmp_path / name, text=encoder.text_names).frame
        for name in ("t.csv", "t.parquet")
    ]
    features = [encoder.transform(table).rows for table in (mixed, *tables)]
    assert np.array_equal(features[0], features[2])
    assert features[1] == pytest.approx(features[0], abs=1e-4)


def test_codes_with_leading_zeros_stay_what_they_are(tmp_path):
    pd.DataFrame({"code": ["007", "7", "A1"] * 20, "x": range(60)}).to_csv(
        tmp_path / "t.csv", index=False
    )
    encoder = TableEncoder.fit(read_table(tmp_path / "t.csv").frame)
    pd.DataFrame({"code": ["007", "7"], "x": 1}).to_csv(
        tmp_path / "new.csv", index=False
    )
    features, gaps, surprises = encoder.transform(
        read_table(tmp_path / "new.csv", text=encoder.text_names).frame
    )
    assert gaps == []
    assert surprises == []
    assert not np.array_equal(features[0], features[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.drop(columns=["age", "sex"]),
            r"lacks columns .*fitted on: 'age', 'sex'",
        ),
        (lambda t: t.rename(columns={"age": "Age "}), r"is 'age' now called 'Age '\?"),
        (lambda t: t.head(0), "no rows"),
        (lambda t: pd.concat([t, t[["age"]]], axis=1), "'age' more than once"),
        (lambda t: t.assign(flag=1j), "complex numbers in the column 'flag'"),
        (lambda t: t.to_numpy(), "DataFrame with named columns"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_words(mixed, encoder, change, message):
    with pytest.raises(ValueError, match=message):
        encoder.transform(change(mixed))


def test_numbers_in_more_than_one_unit_are_pointed_out():
    amounts = [f"{i},{i % 10}00 {'kg' if i % 2 else 'g'}" for i in range(1, 61)]
    table = pd.DataFrame(
        {"weight": amounts, "code": [f"A{i}" for i in range(60)], "x": np.arange(60.0)}
    )
    (doubt,) = TableEncoder.fit(table).doubts(table)
    assert (
        "column 'weight' is taken as text, but looks like numbers (such as '1,100 kg')"
        in doubt
    )


def test_the_word_that_makes_a_column_of_numbers_text_is_named():
    cells = [f"{value:.3f}" for value in np.random.default_rng(0).random(60)]
    table = pd.DataFrame({"height": [*cells, "unknown"], "x": np.arange(61.0)})
    (doubt,) = TableEncoder.fit(table).doubts(table)
    assert "except for 'unknown': empty such cells" in doubt
    assert "more than one form" not in doubt


def test_columns_of_two_levels_are_named_by_both():
    table = pd.DataFrame({("a", "x"): np.arange(4.0), ("a", "y"): np.arange(4.0) % 2})
    encoder = TableEncoder.fit(table)
    assert list(encoder.types) == ["('a', 'x')", "('a', 'y')"]


AMOUNTS = {
    "money": (lambda v: f"${v:,.2f}", 12345.5, "$12,345.50"),
    "unit": (lambda v: f"{v:.1f}kg", 12.3, "12.3kg"),
    "percent": (lambda v: f"{v:.1f}%", 12.5, "12.5%"),
    "decimal comma": (lambda v: f"{v:.2f}".replace(".", ","), 37.5, "37,50"),
    "spaces": (
        lambda v: f"{v:,.1f}".replace(",", " ").replace(".", ","),
        1234.5,
        "1 234,5",
    ),
    "points": (lambda v: f"{v:,.1f}".translate({44: ".", 46: ","}), 1234.5, "1.234,5"),
    "apostrophes": (
        lambda v: f"CHF {v:,.2f}".replace(",", "’"),
        1234.5,
        "CHF 1’234.50",
    ),
    "parentheses": (lambda v: f"({v:.0f})" if v > 2000 else f"{v:.0f}", -12, "(12)"),
}


@pytest.mark.parametrize("form", AMOUNTS)
def test_numbers_in_text_are_read_as_numbers(form):
    write, value, example = AMOUNTS[form]
    values = np.random.default_rng(0).uniform(1, 5000, 60)
    table = pd.DataFrame(
        {"amount": [write(v) for v in values] + [None], "x": np.arange(61.0)}
    )
    encoder = TableEncoder.fit(table)
    assert encoder.types["amount"] == "number"
    new = pd.DataFrame({"amount": [example, "soon"], "x": 0.0})
    features, _, notes = encoder.transform(new)
    median = encoder.medians[list(encoder.types).index("amount")]
    assert features[0, 0] == pytest.approx(value - median, rel=1e-6)
    assert features[1, 0] == 0
    assert any("'amount': 1 of 2 cells is not numeric" in note for note in notes)


def test_numbers_in_text_are_no_ids(rng):
    y = rng.integers(0, 2, 200)
    table = pd.DataFrame(
        {"price": [f"${v:,.2f}" for v in 1000 + 400 * y + 900 * rng.random(200)]}
    )
    assert screen(table, y).ids == {}
    table["x"] = rng.random(200)
    model = TableClassifier(**SHORT).fit(table, y)
    (said,) = [note for note in model.notes_ if "'price'" in note]
    assert "text is read as numbers (such as '$1" in said
    assert "categories=['price'] keeps it as text" in said


def test_categories_keep_numbers_in_text_as_they_are():
    table = pd.DataFrame(
        {"size": ["1.5 kg", "2 kg", "3 kg"] * 20, "x": np.arange(60.0)}
    )
    assert TableEncoder.fit(table, categories=["size"]).types["size"] == "category"


def test_an_encoder_of_numbers_in_text_survives_a_file():
    table = pd.DataFrame({"p": [f"{k},5 %" for k in range(60)], "x": np.arange(60.0)})
    encoder = TableEncoder.fit(table)
    again = TableEncoder.restore(to_tree(encoder))
    assert np.array_equal(again.transform(table).rows, encoder.transform(table).rows)


@pytest.mark.parametrize(
    "words",
    [
        ["1 kg", "500 g"],
        ["A1", "A2"],
        ["12.05.2020"],
        ["10:30"],
        ["1-2"],
        ["192.168.1.1"],
        ["1e5x"],
    ],
)
def test_words_that_are_no_numbers_of_one_form_stay_words(words):
    assert number_form(words) is None


@pytest.mark.parametrize(
    "case",
    [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "latin-1"), ("|", "utf-16")],
    ids=repr,
)
def test_what_was_guessed_of_a_csv_is_said(tmp_path, case):
    (delimiter, encoding), path = case, tmp_path / "t.csv"
    path.write_bytes(LINES.format(delimiter).encode(encoding))
    found = read_table(path)
    assert found.frame.to_dict("list") == {
        "name": ["anna", "bob"],
        "height": [1.5, 1.75],
        "city": ["Köln", "Paris"],
    }
    said = " ".join(found.notes)
    assert ("Latin-1" in said) == (encoding == "latin-1")
    assert ("cut at" in said) == (delimiter != ",")


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ('a,b\n"x, y",1\n"line\nbreak",2\n', {}, [["x, y", 1], ["line\nbreak", 2]]),
        ("a;b\n1,5;x\n2,25;y\n", {}, [[1.5, "x"], [2.25, "y"]]),
        (
            "a remark\n1, x\n2, y\n",
            {"header": False, "skip_lines": 1},
            [[1, "x"], [2, "y"]],
        ),
        (
            "A11 6 x\nA12 48  y \n",
            {"header": False},
            [["A11", 6, "x"], ["A12", 48, "y"]],
        ),
    ],
)
def test_cells_are_cut_as_they_are_meant(tmp_path, content, options, rows):
    (tmp_path / "t.csv").write_text(content)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(content.encode()))
    for name in ("t.csv", "t.csv.gz"):
        assert read_table(tmp_path / name, **options).frame.to_numpy().tolist() == rows


def test_words_for_a_missing_cell_are_missing_but_none_is_an_answer_in_the_label(
    tmp_path,
):
    (tmp_path / "t.csv").write_text("x,y\nNA,None\n?,none\nNone,NA\n3,b\n")
    frame = read_table(tmp_path / "t.csv", label="y").frame
    assert frame["x"].isna().tolist() == [True, True, True, False]
    assert frame["y"].tolist() == ["None", "none", "NA", "b"]
    assert read_table(tmp_path / "t.csv", label="gone").label is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        (
            "a,b\n1,2\n3,4,5\n6,7\n",
            "line 3: 3 cells, but the first line has 2.*unquoted delimiter",
        ),
        ("a,b\n1,2\n3\n", "line 3: 1 cells, but the first line has 2.*cut short"),
        ("a,b\n1,2,3\n4,5,6\n", r"line 2: 3 cells.*row\.names=FALSE"),
        (
            'a,b,c\n1,"x,1\n2,y,1\n3,z,0\n',
            r'A quote \("\) opens in line 2 and closes only in line 4',
        ),
        ("a,b,a\n1,2,3\n", "column 'a' more than once: rename"),
        ('{"a": [1, 2]}', r"is JSON.*CSV or Parquet.*\.jsonl"),
        (b"PK\x03\x04rest", r"Excel workbook.*\.xlsx"),
        (b"PAR1 and nonsense", "cannot be read as Parquet"),
    ],
    ids=[
        "empty",
        "long",
        "short",
        "row names",
        "quote",
        "twice",
        "json",
        "excel",
        "parquet",
    ],
)
def test_a_file_that_is_no_table_is_refused_with_the_line(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_json_lines_are_read(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "y": "u"}\n\n{"y": "v", "b": "x"}\n')
    frame = read_table(path).frame.astype(object)
    assert frame.fillna("-").to_dict("list") == {
        "a": [1.0, "-"],
        "y": ["u", "v"],
        "b": ["-", "x"],
    }


def test_a_json_line_that_is_no_object_is_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n[1, 2]\n')
    with pytest.raises(ValueError, match="line 2: not an object"):
        read_table(path)


def test_excel_is_read_where_openpyxl_is(tmp_path):
    path = tmp_path / "t.xlsx"
    if importlib.util.find_spec("openpyxl"):
        pd.DataFrame({"a": [1, 2], "y": ["u", None]}).to_excel(path, index=False)
        assert read_table(path).frame.fillna("-").to_dict("list") == {
            "a": [1, 2],
            "y": ["u", "-"],
        }


def test_the_error_without_openpyxl_says_how_to_get_it(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"PK\x03\x04")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match="pip install openpyxl"):
        read_table(path)


def test_archives_are_refused_whatever_their_name(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,u\n2,v\n")
    for name, mode in (("t.tar", "w"), ("t.csv.gz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as archive:
            archive.add(tmp_path / "t.csv")
        with pytest.raises(ValueError, match="is an archive: unpack it"):
            read_table(tmp_path / name)


def test_folders_are_refused_as_tables(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        read_table(tmp_path)


READ_BOMBS = """
import resource, sys
from pathlib import Path
from collidescope.tables import read_table

read_table(sys.argv[1])
room = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + 400_000_000
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for name in sys.argv[1:]:
    try:
        print(read_table(name).frame.shape)
    except ValueError as error:
        print(error)
"""


def varint(value, length=1):
    """A positive number as Thrift writes it, in at least ``length`` bytes."""
    groups = [2 * value >> 7 * k & 127 for k in range(10)]
    used = max([k + 1 for k, group in enumerate(groups) if group] + [length])
    return bytes([group | 128 for group in groups[: used - 1]] + [groups[used - 1]])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")
def test_parquet_that_decodes_to_far_more_than_its_bytes_costs_little_memory(
    tmp_path, monkeypatch
):
    """Kilobytes of: one long page, numbers, a text or a list that repeats, texts that start alike,
    a forged size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)

    def repeated(value, n):
        return pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(n, np.int32)), pa.array([value])
        )

    lists = pa.ListArray.from_arrays(
        pa.array([0, 5_000_000, 5_000_000], pa.int32()), pa.array(np.zeros(5_000_000))
    )
    bombs = {
        "small": ({"t": ["x", "y"]}, {}),
        "page": ({"t": ["x" * 150_000_000]}, {"use_dictionary": False}),
        "numbers": ({"t": repeated(0.0, 10_000_000)}, {}),
        "text": ({"t": repeated("x" * 40_000_000, 600_000)}, {}),
        "lists": ({"t": ["x", "y"], "l": lists}, {}),
        "start": (
            {"t": ["x" * 10**6] * 300},
            {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
        ),
    }
    for name, (columns, options) in bombs.items():
        options = {
            "compression": "zstd",
            "write_statistics": False,
            "data_page_size": 2**30,
        } | options
        pq.write_table(pa.table(columns), name, **options)
        assert (tmp_path / name).stat().st_size < 40_000
    true = varint(
        pq.read_metadata("page").row_group(0).column(0).total_uncompressed_size
    )
    (tmp_path / "forged").write_bytes(
        (tmp_path / "page").read_bytes().replace(true, varint(40, len(true)))
    )
    assert (
        pq.read_metadata("forged").row_group(0).column(0).total_uncompressed_size == 40
    )
    # Statistics for an optional column that is said to be required: pyarrow's view of them ended
    # the process.
    (tmp_path / "column").write_bytes(
        (tmp_path / "small").read_bytes().replace(b"\x25\x02\x18", b"\x25\x00\x18")
    )
    said = in_python(READ_BOMBS, *bombs, "forged", "column").stdout.splitlines()
    grows, read = "it grows to 150,0", "(2, 1)"
    expected = [
        read,
        grows,
        "it grows to 80,0",
        "(600000, 1)",
        read,
        "Not yet implemented",
        grows,
        "cannot be read",
    ]
    for line, words in zip(said, expected, strict=True):
        assert words in line, said


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a ", " a", "b"], ["a", "b"]),
        ([1.0, 2.0, None, 1.0, 2.0], [1, 2]),
        (["007", "7", "1.10", "1.1", "+1"] * 2, ["+1", "007", "1.1", "1.10", "7"]),
        ([0.5, 1.5, 0.5, 1.5], ["0.5", "1.5"]),
        (
            pd.array([10**16 + 1, 10**16 + 2, None] * 2, dtype="Int64"),
            [10**16 + 1, 10**16 + 2],
        ),
    ],
)
def test_labels_keep_their_kind(values, classes):
    assert np.unique(clean_labels(pd.Series(values, name="y"))[0]).tolist() == classes


def test_labels_survive_csv_as_they_are_written(tmp_path):
    labels = ["12345678901234567", "12345678901234568", "", "007", "7"] * 4
    pd.DataFrame({"x": range(20), "y": labels}).to_csv(tmp_path / "t.csv", index=False)
    found = clean_labels(read_table(tmp_path / "t.csv", label="y").frame["y"])
    assert found[0].tolist() == [label for label in labels if label]


def test_labels_that_differ_in_a_full_stop_are_said():
    assert (
        "differ only in spelling"
        in clean_labels(pd.Series([">50K", ">50K.", "<=50K"] * 4, name="y"))[2][0]
    )


def test_labels_of_another_file_are_matched_by_what_they_say():
    y, rows = match_labels(pd.Series(["1.0", 0, None, 1.0]), [0, 1], "label")
    assert y.tolist() == [1, 0, 1]
    assert rows.tolist() == [True, True, False, True]
    with pytest.raises(ValueError, match=r"'>50K\.'.*same as '>50K'\?"):
        match_labels(pd.Series([">50K."], name="income"), ["<=50K", ">50K"], "label")


def test_ids_are_told_from_measurements():
    rng, n = np.random.default_rng(0), 400
    ids = {"unnamed 1": np.arange(n), "customer_id": rng.permutation(10**6)[:n]}
    ids["code"] = [f"x{i:04}" for i in rng.permutation(n)]
    measured = {
        "weight": rng.permutation(10**6)[:n],
        "height": rng.normal(size=n),
        "few": rng.integers(0, 9, n),
    }
    measured["when"] = pd.date_range("2020-01-01", periods=n).astype(str)
    table = pd.DataFrame(
        ids | measured | {"text": [f"a text with number {i} in it" for i in range(n)]}
    )
    y = rng.choice(["a", "b"], n)
    found = screen(table, y)
    assert set(found.ids) == set(ids)
    assert set(found.suspects) == {"weight"}
    assert found.leaks == {}
    assert set(screen(table, y, keep=["code"]).ids) == {"unnamed 1", "customer_id"}


@pytest.mark.parametrize("imbalance", [0.5, 0.97])
def test_only_columns_that_determine_the_label_are_leaks(imbalance):
    rng, n = np.random.default_rng(1), 2000
    y = np.where(rng.random(n) < imbalance, "no", "yes")
    leaks = {"copy": np.where(y == "yes", "accepted", "refused")}
    leaks["amount"] = np.where(y == "yes", rng.uniform(1, 9, n), 0.0)
    fine = {
        "good": np.where(rng.random(n) < 0.3, "x", y),
        "same": "x",
        "many": rng.integers(0, 1000, n).astype(str),
    }
    assert set(screen(pd.DataFrame(leaks | fine), y).leaks) == set(leaks)


def test_columns_that_name_groups_of_rows_with_one_label_are_found(rng):
    """30 patients, 20 rows each, one random label per patient: known patients are told apart, new
    ones are not."""
    patient = np.repeat(np.arange(30), 20)
    y = rng.integers(0, 2, 30)[patient]
    mostly = np.where(rng.random(600) < 0.2, 1 - y, y)
    groups = {
        "patient": patient,
        "code": np.array([f"s{i}" for i in rng.permutation(30)])[patient],
    }
    groups["print"] = rng.normal(size=30)[patient]
    others = {
        "score": (10 * rng.random(600) + 20 * y).astype(int),
        "x": rng.normal(size=600) + y,
    }
    table = pd.DataFrame(
        groups | others | {"city": rng.choice([f"c{i}" for i in range(30)], 600)}
    )
    found = screen(table, y)
    assert set(found.groups) == set(groups)
    assert set(found.leaks) == {"score"}
    assert found.groups["patient"] == (
        1.0,
        pytest.approx(np.mean(y) ** 2 + np.mean(1 - y) ** 2),
    )
    assert "groups=X['patient']" in found.cautions()[1]
    # the name says what it is: then less than certainty is enough
    assert set(screen(table, mostly).groups) == {"patient"}


def test_a_column_sorted_together_with_the_label_is_pointed_out(rng):
    y = np.sort(rng.integers(0, 3, 600))
    blurred, wrong = y.copy(), rng.permutation(600)[:20]
    blurred[wrong] = rng.integers(0, 3, 20)
    table = pd.DataFrame(
        {"time": np.cumsum(rng.random(600)), "x": rng.normal(size=600)}
    )
    assert screen(table, blurred).ordered == ["time"]
    assert set(screen(table, y).leaks) == {"time"}
    assert screen(table, rng.permutation(blurred)).ordered == []


@pytest.fixture(scope="module")
def labels(mixed):
    old = mixed["age"].fillna(40) + 5 * (mixed["colour"] == "red") > 41
    return pd.Series(np.where(old, "old", "young"), name="life")


@pytest.fixture(scope="module")
def model(mixed, labels):
    return TableClassifier(drop=["stamp"], **SHORT).fit(mixed, labels)


def test_a_saved_table_model_comes_back_whole(mixed, model, tmp_path):
    model.save(tmp_path / "model.collide")
    assert "column 'stamp' is left out: as asked" in model.notes_
    assert any(
        note.startswith("missing cells (of 240 rows): age 1, colour 5")
        for note in model.notes_
    )
    back = cs.load(tmp_path / "model.collide")
    odd = mixed.astype(object)
    odd.loc[0, "colour"], odd.loc[1, "age"], odd.loc[2, "when"], odd.loc[4, "note"] = (
        "violet",
        "old",
        "soon",
        None,
    )
    for rows in (
        mixed,
        odd,
        mixed.head(1),
        mixed.assign(when=None, note=None, colour=None),
    ):
        assert np.array_equal(back.predict_proba(rows), model.predict_proba(rows))
    assert back.notes_ == model.notes_
    assert back.collision_matrix_ == model.collision_matrix_
    assert (back.drop, back.label_, back.classes_.tolist()) == (
        ["stamp"],
        "life",
        ["old", "young"],
    )


def test_it_is_the_classifier_of_the_encoded_table_with_the_same_defaults(
    mixed, model, labels
):
    plain = cs.CollisionClassifier(**SHORT).fit(model.encode(mixed), labels)
    assert plain.collision_matrix_ == model.collision_matrix_
    assert np.array_equal(
        plain.predict_proba(model.encode(mixed)), model.predict_proba(mixed)
    )
    own = dict.fromkeys(["drop", "keep", "categories"], ())
    assert TableClassifier().get_params() == cs.CollisionClassifier().get_params() | own
    assert clone(TableClassifier(cv=3, drop=["a"])).get_params()["cv"] == 3
    with pytest.raises(TypeError, match="trees"):
        TableClassifier(trees=True)


def test_the_names_of_the_columns_are_kept(mixed, model, tmp_path):
    model.save(tmp_path / "m")
    for own in (model, cs.load(tmp_path / "m")):
        assert own.feature_names_in_.tolist() == mixed.columns.tolist()
        assert own.n_features_in_ == mixed.shape[1]


def test_predicting_learns_nothing(mixed, model):
    before = model.encoder_
    model.predict(mixed.head(5))
    model._validate(mixed.head(5))
    assert model.encoder_ is before


def test_labels_that_differ_only_in_spelling_are_said():
    table = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    with pytest.warns(match="classes 'Yes' and 'yes' differ only in spelling"):
        TableClassifier(**SHORT).fit(table, ["Yes", "no", "yes"] * 20)


@pytest.mark.parametrize("variant", ["1.0", "01", "1\u200b", "1 ", "１"])
def test_variants_of_a_label_are_recognised(variant):
    (said,) = spelling_variants(np.array(["1", variant, "2"]))
    assert "differ only in spelling" in said


def test_tables_of_arrow_are_taken_like_those_of_pandas(mixed, model, labels):
    table = pytest.importorskip("pyarrow").Table.from_pandas(mixed)
    again = TableClassifier(drop=["stamp"], **SHORT).fit(table, labels)
    assert again.collision_matrix_ == model.collision_matrix_
    assert np.array_equal(again.predict_proba(table), model.predict_proba(mixed))


def test_copies_are_counted_with_what_they_do_to_pber(rng):
    y = rng.integers(0, 2, 300)
    X = pd.DataFrame({"x": rng.normal(size=300) + y, "z": rng.normal(size=300)})
    half = pd.concat([X, X.head(150)], ignore_index=True), np.concatenate([y, y[:150]])
    honest = TableClassifier(**NEAR).fit(X, y)
    mended = TableClassifier(**NEAR).fit(*half, groups=input_groups(half[0]))
    assert honest.cautions_ == mended.cautions_ == []
    model = TableClassifier(**NEAR).fit(*half)
    assert (
        model.collision_matrix_.pber
        < honest.collision_matrix_.pber - 0.03
        < mended.collision_matrix_.pber
    )
    found = re.match(
        r"(\d+) of 450 rows .* PBER is ([\d.]+) on them and ([\d.]+) on the other",
        model.cautions_[0],
    )
    n, on, off = map(float, found.groups())
    assert 200 < n < 300  # copies in the same fold do no harm
    assert on < off
    assert (n * on + (450 - n) * off) / 450 == pytest.approx(
        model.one_step_.pber, abs=1e-3
    )


def test_the_column_of_groups_is_not_used(rng):
    y = rng.integers(0, 2, 300)
    X = pd.DataFrame({"x": rng.normal(size=300) + y, "z": rng.normal(size=300)})
    named = X.assign(patient=np.repeat(np.arange(60), 5))
    notes = TableClassifier(**SHORT).fit(named, y, groups=named["patient"]).notes_
    assert "column 'patient' is left out: it names the groups" in notes
    numbered = pd.DataFrame(named.to_numpy())  # whose names are numbers
    assert list(
        TableClassifier(**SHORT).fit(numbered, y, groups=numbered[2]).encoder_.types
    ) == [
        "0",
        "1",
    ]


EDITED = {
    "encoder types age": "os.system",
    "encoder medians": np.zeros(2),
    "encoder units": -np.ones(16),
}
EDITED |= {
    "encoder levels colour": ["a", "a"],
    "encoder formats when": [7, True],
    "notes": [3],
}
EDITED |= {
    "encoder texts note vocabulary": ["a"],
    "encoder texts note components": np.full((2, 3), np.nan),
}


@pytest.mark.parametrize("path", EDITED)
def test_an_edited_table_is_refused_when_it_is_loaded(model, tmp_path, path):
    tree = copy.deepcopy(model.export())
    place = tree["table"]
    *parents, last = path.split()
    for key in parents:
        place = place[key]
    assert last in place
    place[last] = EDITED[path]
    _store.write(tmp_path / "model", "model", tree)
    with pytest.raises(cs.ModelFileError, match="damaged or was edited"):
        cs.load(tmp_path / "model")


def test_a_left_out_column_of_amounts_leaves_no_form():
    table = pd.DataFrame({"fee": ["$5.00"] * 30, "x": np.arange(30) % 7})
    encoder = TableEncoder.fit(table)
    assert "fee" in encoder.left_out
    assert encoder.numerals == {}
