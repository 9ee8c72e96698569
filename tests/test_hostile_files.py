"""Files from strangers: models, matrices, checkpoints and tables, damaged or hostile.

A few hundred mutations on every run; ``make stress`` tries thousands. What it once found stands
below by its cause.
"""

import copy
import gzip
import io
import json
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors
from torch import nn

import collidescope as cs
from collidescope import _store
from collidescope.cli._console import printable, show_json
from helpers import run
from studies.faults import mutations as spoil
from studies.faults.targets import (
    ACCEPTED,
    REFUSED,
    SHORT,
    TARGETS,
    TINY,
    ModelFiles,
    forged,
    taken_apart,
    use_matrix,
)

pytestmark = pytest.mark.filterwarnings("ignore")
RUNS = {
    "model": 40,
    "matrix": 100,
    "npz": 80,
    "checkpoint": 20,
    "forged": 30,
    "custom": 20,
    "csv": 20,
    "parquet": 30,
}
RUNS["summary"] = 40
HEADERS = [
    "{}",
    "[1, 2]",
    "{not json",
    "[" * 200_000,
    '{"a":' * 100_000,
    "9" * 10_000,
    '{"format": "collidescope"}',
]


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    """Models of every kind, as bytes and taken apart, and the judge of what was read from their
    files."""
    return ModelFiles(tmp_path_factory.mktemp("models"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.collide"


@pytest.mark.parametrize(("target", "cases"), RUNS.items())
def test_a_mutated_file_is_refused_with_our_own_error_or_works(
    tmp_path, subject, target, cases
):
    """``read`` lets any other error through, and raises where something accepted does not work."""
    own = subject if target == "model" else TARGETS[target](tmp_path)
    ends = set()
    for number in range(cases):
        content, suffix = own.make(np.random.default_rng([1, number]))
        (tmp_path / f"case{suffix}").write_bytes(content)
        ends.add(own.read(tmp_path / f"case{suffix}"))
    assert REFUSED in ends
    assert ends <= {REFUSED, ACCEPTED}


def test_reading_a_model_only_reads(path, subject, rng):
    """By the interpreter's own audit: no unpickling, no process, no socket, no file opened for
    writing."""
    acts, active = [], []

    def audit(event, args):
        if active and event in (
            "pickle.find_class",
            "os.system",
            "subprocess.Popen",
            "socket.connect",
            "os.exec",
        ):
            acts.append(event)
        if (
            active
            and event == "open"
            and isinstance(args[1], str)
            and set(args[1]) & set("wax+")
        ):
            acts.append(args)

    content = subject.files[0][0]
    path.write_bytes(content)
    cs.load(path)
    # stays for the life of the process, but only listens while active
    sys.addaudithook(audit)
    for case in [content, *(spoil.blind(rng, content) for _ in range(20))]:
        path.write_bytes(case)
        active.append(True)
        try:
            cs.load(path)
        except cs.ModelFileError:
            continue
        finally:
            active.clear()
    assert acts == []


class Bomb:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def promise(shape, end, length=None):
    """A container whose header promises more than there is."""
    header = json.dumps(
        {"x": {"dtype": "F32", "shape": [shape], "data_offsets": [0, end]}}
    ).encode()
    return struct.pack("<Q", length or len(header)) + header


def test_what_is_no_file_of_ours_is_refused_unrun(tmp_path, path, rng):
    cases = [rng.bytes(size) for size in (0, 1, 8, 9, 100, 5000)]
    cases += [
        pickle.dumps(Bomb(tmp_path / "mark")),
        promise(2**40, 2**42),
        promise(2, 8, 2**62),
    ]
    for header in [
        None,
        {"other": "x"},
        *({_store.HEADER: f"{'0' * 64}\n{text}"} for text in HEADERS),
    ]:
        cases.append(save_tensors({"x": np.zeros(2)}, metadata=header))
    for case in cases:
        path.write_bytes(case)
        with pytest.raises(
            cs.ModelFileError, match="is not a model of collidescope, or is damaged"
        ):
            cs.load(path)
    assert not (tmp_path / "mark").exists()


def test_a_table_in_the_place_of_a_model_is_refused_in_our_words(path):
    path.write_text("x,y\n1,2\n" * 20)
    with pytest.raises(cs.ModelFileError, match="a table in its place, or cut short"):
        cs.load(path)


def test_a_file_of_another_version_is_named(path):
    text = json.dumps(
        {"format": "collidescope", "version": 99, "kind": "model", "tree": {}}
    )
    path.write_bytes(save_tensors({}, metadata={_store.HEADER: f"{'0' * 64}\n{text}"}))
    with pytest.raises(
        cs.ModelFileError,
        match=f"format version 99, this release reads {_store.VERSION}: update",
    ):
        cs.load(path)


def test_a_file_cut_short_anywhere_or_with_any_bit_flipped_is_refused(
    path, subject, rng
):
    content = subject.files[0][0]
    (length,) = struct.unpack("<Q", content[:8])
    ends = {0, 1, 7, 8, 9, 8 + length - 1, 8 + length, 8 + length + 1, len(content) - 1}
    for end in sorted(
        ends | set(np.linspace(0, len(content) - 1, 40).astype(int).tolist())
    ):
        path.write_bytes(content[:end])
        with pytest.raises(cs.ModelFileError):
            cs.load(path)
    flipped = 0
    for place in np.r_[
        np.arange(8),
        rng.integers(0, 8 + length, 100),
        rng.integers(8 + length, len(content), 100),
    ]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            cs.load(path)
        except cs.ModelFileError:
            flipped += 1
            continue
        assert chr(content[place]).isspace(), (
            "padding of the header aside, nothing may change unnoticed"
        )
    assert flipped > 200


TAGS = [
    {"$array": "b"},
    {"$array": "a", "dtype": "object"},
    {"$array": "a", "dtype": "float64", "shape": [2**40]},
    {"$text": [1, 2]},
    {"$objects": [[1]]},
    {"$code": "os.system"},
    [{"$array": "a"}, {"$array": "a", "dtype": "datetime64[s]"}],
    *(
        "@nan",
        "@overflow",
        "@surrogate",
        "@deep-list",
        "@digits",
    ),  # could not be written again
]


@pytest.mark.parametrize("tag", TAGS, ids=str)
def test_a_skeleton_that_lies_is_refused(path, tag):
    path.write_bytes(
        forged("model", {"x": tag, "a": {"$array": "a"}}, {"a": np.zeros(4, np.uint8)})
    )
    with pytest.raises(cs.ModelFileError):
        _store.read(path, "model")


def test_arrays_of_another_shape_or_of_no_numbers_are_noticed_when_loading_not_when_predicting(
    path, subject
):
    for _, skeleton, arrays in subject.files:
        for name, array in arrays.items():
            if array.dtype.kind not in "iuf":
                continue
            for case in (
                array[:-1] if array.ndim else array[None],
                array[..., None],
                np.zeros(0, array.dtype),
            ):
                path.write_bytes(
                    forged(
                        "model", skeleton, arrays | {name: np.ascontiguousarray(case)}
                    )
                )
                assert subject.read(path) in (REFUSED, ACCEPTED), name
            if array.dtype.kind == "f":
                path.write_bytes(
                    forged(
                        "model", skeleton, arrays | {name: np.full_like(array, np.nan)}
                    )
                )
                assert subject.read(path) == REFUSED, name


def leaves(skeleton, where=()):
    items = skeleton.items() if isinstance(skeleton, dict) else enumerate(skeleton)
    for key, value in items:
        if isinstance(value, dict | list) and not (
            isinstance(value, dict) and "$array" in value
        ):
            yield from leaves(value, (*where, key))
        yield (*where, key)


def edited(skeleton, where, value):
    changed = copy.deepcopy(skeleton)
    place = changed
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    return changed


@pytest.mark.parametrize(
    "value", [None, -1, 1e308, "nan", [10**9], {"$array": "another"}], ids=str
)
def test_any_entry_replaced_by_anything_is_refused_or_works(path, subject, value):
    """Settings of the solver, weights and history were taken as they came, and arrays asked whether
    they are true."""
    for _, skeleton, arrays in subject.files:
        places = list(leaves(skeleton))
        some = places[:: max(1, len(places) // 30)]
        for where in (
            [where for where in places if len(where) < 3]
            if isinstance(value, dict)
            else some
        ):
            given = arrays | (
                {"another": np.zeros((2, 3))} if isinstance(value, dict) else {}
            )
            path.write_bytes(forged("model", edited(skeleton, where, value), given))
            assert subject.read(path) in (REFUSED, ACCEPTED), where


def test_a_file_cannot_choose_where_a_refit_writes(path, subject, data, tmp_path):
    """``checkpoint`` was taken from the file, so that a later ``fit`` wrote wherever its maker
    liked."""
    _, skeleton, arrays = subject.files[0]
    for where in [where for where in leaves(skeleton) if where[-1] == "checkpoint"]:
        path.write_bytes(
            forged(
                "model", edited(skeleton, where, str(tmp_path / "elsewhere")), arrays
            )
        )
        cs.load(path).fit(*data)
    assert not (tmp_path / "elsewhere").exists()


def test_a_custom_module_is_not_built_for_more_features_than_the_file_can_have(
    path, data
):
    """The factory was called with whatever number the file gave, and took memory for it."""
    asked = []

    def factory(d, k):
        asked.append(max(d, k))
        return nn.Linear(d, k)

    cs.CollisionClassifier(**(SHORT | {"members": [factory]})).fit(*data).save(path)
    skeleton, arrays = taken_apart(path, "model")
    for where in leaves(skeleton):
        for value in (10**9, [10**9]):
            path.write_bytes(forged("model", edited(skeleton, where, value), arrays))
            try:
                cs.load(path, model=factory)
            except cs.ModelFileError:
                continue
    assert max(asked) < 10_000


def matrix_text(**changes):
    matrix = cs.CollisionMatrix(
        [[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "dog"]
    )
    return spoil.dump(json.loads(matrix.to_json()) | changes)


CHANGES = [
    {"matrix": [["@long", 0], [0, 1]]},
    {"matrix": "@deep-list"},
    {"diagnostics": {"moved": "@overflow"}},
    {"classes": ["cat", "@surrogate"]},
    {"classes": {"dtype": "datetime64[s]", "values": ["soon", "later"]}},
    {"covariance_lower": "@many"},
    {"covariance_lower": [1e-3, 0, 1e-3, 1e308, 0, 1e-3]},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_a_matrix_that_could_not_be_used_is_refused_with_a_value_error(changes):
    """Whole numbers beyond the largest float raised OverflowError; infinities and half characters
    came through."""
    with pytest.raises(ValueError, match=r"."):
        cs.CollisionMatrix.from_json(matrix_text(**changes))


def test_a_matrix_file_cannot_claim_more_memory_than_it_has_bytes(tmp_path):
    """numpy takes the memory that a header claims, and unpacks whatever is packed; entries may
    share their bytes."""
    path = tmp_path / "matrix.npz"
    buffer = io.BytesIO()
    np.save(buffer, np.eye(2))
    content, claim = buffer.getvalue(), b"'shape': (99999999999, 9), }"
    at = content.find(b"'shape': (2, 2), }")
    with zipfile.ZipFile(path, "w") as archive:  # with a CRC that fits
        archive.writestr(
            "matrix.npy", content[:at] + claim + content[at + len(claim) :]
        )
    with pytest.raises(ValueError, match=r"matrix\.npz.*claims shape"):
        cs.CollisionMatrix.from_npz(path)
    np.savez_compressed(path, matrix=np.zeros((20, 20)))
    with zipfile.ZipFile(path) as archive:
        assert sum(entry.file_size for entry in archive.filelist) > path.stat().st_size
    with pytest.raises(
        ValueError, match=r"matrix\.npz.*entries claim more bytes than it has"
    ):
        cs.CollisionMatrix.from_npz(path)
    np.savez_compressed(path, matrix=np.random.default_rng(0).normal(size=3))
    with pytest.raises(
        ValueError,
        match=r"matrix\.npz.*is compressed or occurs twice, which to_npz never does",
    ):
        cs.CollisionMatrix.from_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", content)
        archive.filelist *= 9  # nine entries of the directory for the bytes of one
    with pytest.raises(ValueError, match=r"matrix\.npz.*entries claim more bytes"):
        cs.CollisionMatrix.from_npz(path)


def test_names_with_control_characters_harm_no_terminal(tmp_path, capsys):
    path = tmp_path / "matrix.json"
    path.write_text(matrix_text(classes=["cat\x1b[2J", "dog\x9b\u202e"]))
    use_matrix(cs.CollisionMatrix.from_json(path))
    result = run("merge", path, "--groups", 2)
    assert "cat" in result.output
    assert not {"\x1b", "\x9b", "\u202e"} & set(result.output)
    show_json({"name": "a\x1b\x9b\u202e\nb"})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"name": "a\x1b\x9b\u202e\nb"}
    assert not {"\x1b", "\x9b", "\u202e"} & set(printed)
    assert (
        printable("ä\n\x07 “\u2068شارع\x07\u2069” \u2069")
        == "ä\n\\x07 “شارع\\x07” \\u2069"
    )


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"format": NaN}', "{", "\0"]
)
def test_a_command_on_broken_json_ends_with_exit_code_2(tmp_path, text):
    """Deep nesting ended in a RecursionError that was called unexpected."""
    path = tmp_path / "matrix.json"
    path.write_text(text if text.startswith("{") else '{"format": ' + text)
    result = run("merge", path, "--groups", 2)
    assert result.exit_code == 2
    assert "Unexpected" not in result.output


def first(arrays, part):
    return next(array for name, array in sorted(arrays.items()) if part in name)


FORGERIES = {
    "is missing or too many": lambda tree: tree["tensors"].pop(
        "optimizer.0.exp_avg_sq"
    ),
    "optimizer.0.step has dtype": lambda tree: tree["tensors"].update(
        {"optimizer.0.step": np.ones(3)}
    ),
    "optimizer.0.exp_avg_sq must be": lambda tree: tree["tensors"][
        "optimizer.0.exp_avg_sq"
    ].fill(-1),
    r"best\..* must be": lambda tree: first(tree["tensors"], "best.").fill(np.nan),
    r"module\..* must be": lambda tree: first(tree["tensors"], "module.").fill(1e30),
    "history must hold finite": lambda tree: tree["history"]["val_loss"].fill(np.nan),
}


@pytest.mark.parametrize(("said", "forge"), FORGERIES.items(), ids=list(FORGERIES))
def test_a_checkpoint_edited_with_a_checksum_that_fits_is_refused_before_it_is_trained_on(
    tmp_path, data, said, forge
):
    """State of the optimiser was a KeyError in the middle of a step; history and weights made
    models unreadable."""
    settings = {**TINY, "members": ["network"], "checkpoint": tmp_path}
    cs.CollisionClassifier(**settings).fit(*data)
    file = sorted(tmp_path.rglob("*.safetensors"))[0]
    tree = copy.deepcopy(_store.read(file, "checkpoint"))
    forge(tree)
    _store.write(file, "checkpoint", tree)
    with pytest.raises(ValueError, match=f"does not fit this network .*{said}"):
        cs.CollisionClassifier(**(settings | {"training": {"max_epochs": 3}})).fit(
            *data
        )


ROWS = "".join(f"{'ab'[i % 2]},{'xy'[i % 3 > 0]}\n" for i in range(20))
TABLES = {
    "lines that end in a carriage return alone": ("f,y\n" + ROWS)
    .replace("\n", "\r")
    .encode(),
    "UTF-16 cut in the middle of a character": ("f,y\n" + ROWS).encode("utf-16")[:-1],
    "bytes of another encoding at the end": ("f,y\n" + ROWS).encode()
    + b"\x00\xff\xfe,x\n",
    "damaged gzip": gzip.compress(("f,y\n" + ROWS * 50).encode())[:-40] + b"0" * 40,
    "a compression bomb": gzip.compress(b"f,y\n" + b"0" * 60_000_000),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_strange_table_is_read_or_refused_with_a_sentence(tmp_path, name):
    path = tmp_path / (
        "table.csv.gz" if TABLES[name][:2] == b"\x1f\x8b" else "table.csv"
    )
    path.write_bytes(TABLES[name])
    result = run("count", path, "--label", "y", "--json")
    assert result.exit_code in ((2,) if path.suffix == ".gz" else (0, 2)), result.output
    assert "Unexpected" not in result.output
    assert not [c for c in result.output if ord(c) < 32 and c != "\n"]
