"""Files from strangers: models, matrices, checkpoints and tables that are damaged, lie, or mean harm.

A few hundred mutations on every run; ``make stress`` tries thousands. What it once found stands below by its cause.
"""

from __future__ import annotations

import gzip
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save as save_tensors
from safetensors.torch import save_file as save_torch
from torch import nn
from typer.testing import CliRunner

import collidescope as cs
from collidescope.cli._console import printable, show_json
from collidescope.cli.app import app
from collidescope.datasets import scenario_a
from collidescope.learners.trees import FOREST_KINDS, BoostedTrees, Forest
from collidescope.persistence import KEY, checksum, read_model, write_model
from collidescope.tables import reading
from collidescope.training import checkpoint
from stress import mutations as spoil
from stress import tables
from stress.targets import ACCEPTED, REFUSED, TARGETS, TINY, small_table, use_matrix

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(150, 0)


@pytest.fixture(scope="module")
def fitted(data):
    return {
        "factorised": cs.CollisionClassifier(**TINY).fit(*data),
        "pairwise": cs.CollisionClassifier(model="pairwise", n_references=5, **TINY).fit(*data),
    }


@pytest.fixture
def model(tmp_path, fitted):
    path = tmp_path / "model.collide"
    fitted["factorised"].save(path)
    return path


@pytest.fixture
def pairwise(tmp_path, fitted):
    path = tmp_path / "pairwise.collide"
    fitted["pairwise"].save(path)
    return path


def write_text(path, arrays, text):
    """A model file whose description is this text, with a checksum that fits."""
    header = f'{{"sha256": "{checksum(arrays, json.loads(text))}", {text[1:]}'
    path.write_bytes(save_tensors(arrays, metadata={KEY: header}))


def edit(description, *path, value):
    copy = json.loads(json.dumps(description))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


# ---------------------------------------------------------------- mutations


MUTATIONS = {"model": 60, "matrix": 100, "npz": 80, "checkpoint": 20, "forged": 40, "csv": 30}


@pytest.mark.parametrize(("target", "cases"), MUTATIONS.items())
def test_a_mutated_file_is_refused_with_our_own_error_or_works(tmp_path, target, cases):
    """``read`` lets any other error through, and raises where something accepted does not work."""
    subject = TARGETS[target](tmp_path)
    ends = set()
    for number in range(cases):
        content, suffix = subject.make(np.random.default_rng([1, number]))
        path = tmp_path / f"case{suffix}"
        path.write_bytes(content)
        ends.add(subject.read(path))
    assert ends <= {REFUSED, ACCEPTED}
    assert REFUSED in ends


def test_reading_a_model_runs_no_code_and_writes_nothing(model):
    """By the interpreter's own audit: no unpickling, no process, no socket, no file opened for writing."""
    acts, active = [], [True]

    def audit(event, args):
        if active and event in ("pickle.find_class", "os.system", "subprocess.Popen", "socket.connect", "os.exec"):
            acts.append(event)
        if active and event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
            acts.append(args)

    content = model.read_bytes()
    cs.load(model)
    sys.addaudithook(audit)  # stays for the life of the process, but only listens while active
    rng = np.random.default_rng(0)
    cases = [spoil.blind(rng, content) for _ in range(20)]
    active.clear()
    paths = []
    for number, case in enumerate(cases):
        paths.append(model.with_name(f"case{number}"))
        paths[-1].write_bytes(case)
    active.append(True)
    for path in [model, *paths]:
        try:
            cs.load(path)
        except cs.ModelFileError:
            continue
    active.clear()
    assert acts == []


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("raw", ["NaN", "-Infinity", "1e999", '"\\ud800"'])
def test_a_description_with_no_number_or_half_a_character_is_refused(model, raw):
    """They were read, and then the model could not be saved or shown."""
    arrays, description = read_model(model)
    text = json.dumps(edit(description, "history", value="@")).replace('"@"', raw)
    write_text(model, arrays, text)
    with pytest.raises(cs.ModelFileError):
        cs.load(model)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_weights_that_are_no_numbers_are_refused_when_read_not_when_used(model, pairwise, value):
    """They passed, and every prediction was nan."""
    for path in (model, pairwise):
        arrays, description = read_model(path)
        name = next(name for name in arrays if name.startswith("fold0/0.") and "weight" in name)
        spoiled = arrays[name].copy()
        spoiled.flat[0] = value
        write_model(path, arrays | {name: spoiled}, description)
        with pytest.raises(cs.ModelFileError, match="finite"):
            cs.load(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["pairs", "ridge"], -1.0),
        (["pairs", "ridge"], "much"),
        (["pairs", "solver"], 0.5),
        (["pairs", "recovery"], "other"),
        (["pairs", "n_references"], -3),
        (["folds", 0, "shift"], "nan"),
        (["folds", 0, "members", 0, "weight"], -1.0),
        (["folds", 0, "members", 0, "weight"], 0),
        (["folds", 0, "members", 0, "val_loss"], "nan"),
        (["reference_stderr"], "nan"),
        (["feature_names"], [["a"], ["b"], ["c"], ["d"]]),
        (["history"], [1, 2]),
        (["history", 0], {"network": [{"epoch": "one"}]}),
        (["capacities"], [{}]),
        (["capacities", 0], {"network": -7}),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused_when_read_not_when_used(pairwise, path, value):
    """The solver's settings, the members' weights and the history were taken as they came."""
    arrays, description = read_model(pairwise)
    write_model(pairwise, arrays, edit(description, *path, value=value))
    with pytest.raises(cs.ModelFileError):
        cs.load(pairwise)


def test_a_file_cannot_choose_where_a_refit_writes(model, tmp_path, data):
    """``checkpoint`` was taken from the file, so that a later ``fit`` wrote wherever its maker liked."""
    arrays, description = read_model(model)
    write_model(model, arrays, edit(description, "parameters", "checkpoint", value=str(tmp_path / "elsewhere")))
    clf = cs.load(model)
    assert clf.checkpoint is None
    clf.fit(*data)
    assert not (tmp_path / "elsewhere").exists()


def test_a_module_of_one_s_own_is_not_built_for_more_features_than_the_file_can_have(tmp_path, data):
    """The factory was called with whatever number the file gave, and took memory for it."""
    asked = []

    def factory(d, k):
        asked.append((d, k))
        return nn.Linear(d, k)

    settings = {"cv": 2, "max_epochs": 1, "random_state": 0}
    cs.CollisionClassifier(model=factory, **settings).fit(*data).save(tmp_path / "model")
    arrays, description = read_model(tmp_path / "model")
    asked.clear()
    for key, value in (("input_shape", [10**9]), ("n_classes", 10**9)):
        write_model(tmp_path / "model", arrays, edit(description, "folds", 0, key, value=value))
        with pytest.raises(cs.ModelFileError):
            cs.load(tmp_path / "model", model=factory)
    assert asked == []


@pytest.mark.parametrize("name", Forest._fields)
def test_trees_whose_pointers_are_of_another_kind_are_refused(name):
    """Pointers were joined before their kind was looked at, and the joined array was of the right one."""
    two = np.zeros(2)
    forest = Forest(*(two.astype(kind) for kind in FOREST_KINDS))._replace(
        base=np.zeros(3), roots=np.zeros(3, np.int64)
    )
    state = {f"{field}0": torch.from_numpy(array) for field, array in forest._asdict().items()}
    assert BoostedTrees.from_state(dict(state), 4, 3).n_forests == 1
    for kind in (torch.int32, torch.uint8, torch.float32):
        with pytest.raises(ValueError, match="trees"):
            BoostedTrees.from_state(state | {f"{name}0": state[f"{name}0"].to(kind)}, 4, 3)


def test_what_cannot_be_read_again_is_not_written(fitted, tmp_path):
    arrays, description = fitted["factorised"].export()
    with pytest.raises(ValueError, match="surrogates"):
        write_model(tmp_path / "model", arrays, description | {"extra": "\ud800"})
    assert not (tmp_path / "model").exists()


# ---------------------------------------------------------------- matrices


def matrix_text(**changes):
    matrix = cs.CollisionMatrix([[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "dog"])
    return spoil.dump(json.loads(matrix.to_json()) | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"matrix": [["@long", 0], [0, 1]]},
        {"priors": ["@long", 0.5]},
        {"pber_stderr": "@long"},
        {"info": {"x": "@overflow"}},
        {"info": {"x": "@surrogate"}},
        {"info": {"x": "@nest-900"}},
        {"info": {"x": [1]}},
        {"classes": ["cat", "@surrogate"]},
        {"classes": "@many"},
        {"matrix": "@deep-list"},
        {"matrix": "@nan"},
        {"covariance_lower": "@many"},
        {"counts": "@digits"},
    ],
    ids=str,
)
def test_a_matrix_that_could_not_be_used_is_refused_with_a_value_error(changes):
    """Whole numbers beyond the largest float raised OverflowError; infinities and half characters came through."""
    with pytest.raises(ValueError, match=r"."):
        cs.CollisionMatrix.from_json(matrix_text(**changes))


def test_names_with_control_characters_survive_a_file_and_harm_no_terminal(tmp_path):
    """They were printed as they are, and a terminal obeyed them."""
    path = tmp_path / "matrix.json"
    path.write_text(matrix_text(classes=["cat\x1b[2J", "dog\x9b\u202e"]))
    use_matrix(cs.CollisionMatrix.from_json(path))
    result = CliRunner().invoke(app, ["merge", str(path), "--groups", "2"])
    assert "cat" in result.output
    assert not [c for c in result.output if ord(c) < 32 and c != "\n"]
    assert "\x9b" not in result.output
    assert "\u202e" not in result.output


def test_json_for_machines_stays_json_when_names_hold_control_characters(capsys):
    show_json({"name": "a\x1b\x9b\u202e\nb"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"name": "a\x1b\x9b\u202e\nb"}
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)
    assert printable("ä\n\x07") == "ä\n\\x07"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"format": NaN}', "{", "\0"])
def test_a_command_on_broken_json_ends_with_a_sentence_and_exit_code_2(tmp_path, text):
    """Deep nesting ended in a RecursionError that was called unexpected."""
    path = tmp_path / "matrix.json"
    path.write_text(text if text.startswith("{") else '{"format": ' + text)
    result = CliRunner().invoke(app, ["merge", str(path), "--groups", "2"])
    assert result.exit_code == 2
    assert "Unexpected" not in result.output


# ---------------------------------------------------------------- checkpoints


def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path, data):
    """There was no checksum: a flipped bit in a weight was trained on from."""
    clf = cs.CollisionClassifier(**TINY, checkpoint=tmp_path).fit(*data)
    file = sorted(tmp_path.rglob("*.safetensors"))[0]
    content = bytearray(file.read_bytes())
    content[-20] ^= 64
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="checksum"):
        clf.fit(*data)


FORGERIES = {
    "optimizer.0.exp_avg_sq is missing": lambda header, tensors: tensors.pop("optimizer.0.exp_avg_sq"),
    "optimizer.0.step has kind": lambda header, tensors: tensors.update({"optimizer.0.step": torch.ones(3)}),
    "optimizer.0.exp_avg_sq must lie": lambda header, tensors: tensors["optimizer.0.exp_avg_sq"].fill_(-1),
    "waited has kind": lambda header, tensors: tensors.update(waited=tensors["waited"].double()),
    r"best\..* must lie": lambda header, tensors: first(tensors, "best.").fill_(torch.nan),
    r"module\..* must lie": lambda header, tensors: first(tensors, "module.").fill_(1e30),
    "module.more is missing or too many": lambda header, tensors: tensors.update({"module.more": torch.ones(1)}),
    "history must": lambda header, tensors: header["history"][0].update(val_loss=float("nan")),
    "history must hold": lambda header, tensors: header["history"][0].update(seconds="soon"),
    "history must hold finite": lambda header, tensors: header["history"][0].update(train_loss=10**400),
    "history must hold finite numbers": lambda header, tensors: header["history"].append([]),
    "history must hold finite numbers,": lambda header, tensors: header.update(history=7),
}


def first(tensors, prefix):
    return next(tensor for name, tensor in sorted(tensors.items()) if name.startswith(prefix))


@pytest.mark.parametrize(("said", "forge"), FORGERIES.items(), ids=range(len(FORGERIES)))
def test_a_checkpoint_edited_with_a_checksum_that_fits_is_refused_before_it_is_trained_on(tmp_path, data, said, forge):
    """State of the optimiser was a KeyError in the middle of a step; history and weights made models unreadable."""
    settings = {**TINY, "checkpoint": tmp_path}
    cs.CollisionClassifier(**settings).fit(*data)
    file = sorted(tmp_path.rglob("*.safetensors"))[0]
    header, tensors, _ = checkpoint._read(file)
    forge(header, tensors)
    header[checkpoint.CHECKSUM] = checkpoint._checksum(tensors, header)
    save_torch(tensors, file, metadata={"json": json.dumps(header)})
    with pytest.raises(ValueError, match=f"does not fit this network .{said}"):
        cs.CollisionClassifier(**(settings | {"max_epochs": 2})).fit(*data)


# ---------------------------------------------------------------- tables


def count(path):
    result = CliRunner().invoke(app, ["count", str(path), "--label", "y", "--json"])
    assert result.exit_code in (0, 2), result.output
    assert "Unexpected" not in result.output
    return result


ROWS = "".join(f"{'ab'[i % 2]},{'xy'[i % 3 > 0]}\n" for i in range(20))


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ((("f,y\n" + ROWS).replace("\n", "\r")).encode(), "lines that end in a carriage return alone"),
        (("f;y\n" + ROWS.replace(",", ";") + '"a;x\n').encode(), "a quote that never closes"),
        (("f,y\n" + ROWS).encode("utf-16")[:-1], "UTF-16 cut in the middle of a character"),
        (b"\xff\xfe" + ("f,y\n" + ROWS).encode(), "UTF-8 with the mark of UTF-16"),
        (b"\xff\xfe\x00\xd8\x00\xd8" * 20, "half characters of UTF-16"),
        (("f,y\n" + ROWS).encode() + b"\x00\xff\xfe,x\n", "bytes of another encoding at the end"),
        (("f,y\n" + ROWS + "a,x,z\n").encode(), "a ragged row"),
        (("f,y\n" + ROWS + "\x1b[2J,x\n").encode(), "control characters"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_strange_table_is_read_or_refused_with_a_sentence(tmp_path, content, cause):
    """The first four ended as unexpected errors of csv, pandas or the decoder."""
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    result = count(path)
    assert not [c for c in result.output if ord(c) < 32 and c != "\n"], cause


def test_lines_that_end_in_a_carriage_return_are_lines(tmp_path):
    (tmp_path / "a.csv").write_text("f,y\n" + ROWS)
    (tmp_path / "b.csv").write_bytes(("f,y\n" + ROWS).replace("\n", "\r").encode())
    a, b = (json.loads(count(tmp_path / name).stdout) for name in ("a.csv", "b.csv"))
    assert a["pber"] == b["pber"]


def test_a_damaged_gzip_is_refused_with_a_sentence(tmp_path):
    """zlib.error is no OSError, and came through."""
    packed = bytearray(gzip.compress(("f,y\n" + ROWS * 50).encode()))
    packed[len(packed) // 2] ^= 255
    (tmp_path / "table.csv.gz").write_bytes(bytes(packed))
    assert count(tmp_path / "table.csv.gz").exit_code == 2


@pytest.mark.parametrize("start", [b"f,y\n", b"\xff\xfe", b"\xff,y\n"], ids=["UTF-8", "UTF-16", "Latin-1"])
def test_a_compression_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, start):
    """It was unpacked whole, into memory."""
    monkeypatch.setattr(reading, "HARMLESS", 100_000)
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(start + b"0" * 3_000_000))
    result = count(tmp_path / "table.csv.gz")
    assert result.exit_code == 2
    assert "when unpacked" in result.output


def test_a_parquet_file_that_claims_endless_rows_is_refused_before_it_is_read(tmp_path, monkeypatch):
    import pandas as pd

    monkeypatch.setattr(reading, "HARMLESS", 10_000)
    pd.DataFrame({"f": ["a"] * 1_000_000, "y": ["x"] * 1_000_000}, dtype="category").to_parquet(tmp_path / "t.parquet")
    result = count(tmp_path / "t.parquet")
    assert result.exit_code == 2
    assert "claims 1,000,000 rows" in " ".join(result.output.split())


def test_thousands_of_columns_are_no_crash(tmp_path):
    line = ",".join(["1"] * 1000)
    head = ",".join(f"c{i}" for i in range(1000))
    (tmp_path / "wide.csv").write_text(f"{head},y\n" + f"{line},a\n{line},b\n" * 5)
    assert count(tmp_path / "wide.csv").exit_code == 0


# ---------------------------------------------------------------- what is written down


def test_every_cause_that_was_found_has_its_test():
    here = Path(__file__).parent
    for cause in tables.causes():
        file, name = cause["test"].split("::")
        assert f"def {name}(" in (here / file).read_text(), cause["cause"]


def test_the_page_on_reliability_shows_the_last_campaigns_and_they_were_large_and_clean():
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page, "run python -m stress.tables"
    fuzz, kills = (tables.results(name)["results"] for name in ("fuzz", "kills"))
    assert sum(target["tried"] for target in fuzz.values()) >= 10_000
    assert all(target["found"] == 0 for target in fuzz.values())
    assert kills["kills"] >= 20
    assert kills["same"] == kills["fits"]


# ---------------------------------------------------------------- matrices in arrays


def test_a_matrix_file_cannot_claim_more_memory_than_it_has_bytes(tmp_path):
    """numpy takes the memory that a header claims before it reads, and unpacks whatever is packed."""
    path = tmp_path / "matrix.npz"
    np.save(tmp_path / "matrix.npy", np.eye(2))
    content = (tmp_path / "matrix.npy").read_bytes()
    claim = b"'shape': (99999999999, 9), }"
    at = content.find(b"'shape': (2, 2), }")
    with zipfile.ZipFile(path, "w") as archive:  # with a CRC that fits
        archive.writestr("matrix.npy", content[:at] + claim + content[at + len(claim) :])
    with pytest.raises(ValueError, match=r"matrix\.npz.*claims shape"):
        cs.CollisionMatrix.from_npz(path)
    with open(path, "wb") as file:
        np.savez_compressed(file, description=np.array("{}"), matrix=np.zeros((2000, 2000)))
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"matrix\.npz.*is compressed, which to_npz never does"):
        cs.CollisionMatrix.from_npz(path)


def test_the_arrays_of_a_table_without_its_description_are_refused(tmp_path):
    """Such a file passed for a model of as many plain features as the table had been encoded to."""
    table, labels = small_table(120)
    path = tmp_path / "model"
    cs.TableClassifier(cs.CollisionClassifier(**TINY)).fit(table, labels).save(path)
    arrays, description = read_model(path)
    description.pop("table")
    write_model(path, arrays, description)
    with pytest.raises(cs.ModelFileError, match="holds arrays of a table it lacks"):
        cs.load(path)
