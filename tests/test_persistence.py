"""Files: what was written comes back, and a write is whole or leaves everything as it was."""

import copy
import errno
import os
import stat
import subprocess
import sys
import threading
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from torch import nn

import collidescope as cs
from collidescope import _store
from collidescope.race import Dropped, Race, Round
from helpers import run

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")
POSIX = pytest.mark.skipif(
    os.name != "posix", reason="devices, pipes and links of POSIX"
)
SHORT = {"cv": 2, "random_state": 0, "limit": False, "training": {"max_epochs": 2}}
SMALL = SHORT | {"members": ["linear"]}
CM = cs.CollisionMatrix([[0.9, 0.1], [0.2, 0.8]])
LABELS = [
    ["b c", "z", "ä"],
    [False, True],
    [1.0, 2.0, 3.0],
    [12345678901234567, 12345678901234568],
]
DATES = np.array(["2020-01-01", "2020-02-01"], "datetime64[ns]")
LISTS = np.array([[1], [1, 2]], dtype=object)


def encoder(d, k):
    """Batch norm included: its counters must come through a file too."""
    return nn.Sequential(nn.Linear(d, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, k))


MODELS = {
    "pool": {"limit": True},
    "pairwise": {"members": [cs.Pairwise(n_references=5)]},
    "module": {"members": [encoder]},
    "body": {"members": [cs.Pairwise(n_references=5, network=encoder)]},
}


@pytest.fixture(scope="module")
def models(data):
    return {
        name: cs.CollisionClassifier(**(SHORT | changes)).fit(*data)
        for name, changes in MODELS.items()
    }


TREE = {
    "nested": {
        "list": [np.arange(3), np.zeros((0, 2), np.float32), np.array(5.0)],
        "$key": 1,
        "x": np.eye(2),
    },
    "nested/x": np.arange(4),  # two arrays with one path
    "$$key": "two",
    "collidescope": np.ones(2),
    "times": np.array(["2020-01-01", "NaT"], "datetime64[ns]"),
    "hours": np.arange(5000).astype("timedelta64[h]").reshape(50, 100),
    "text": np.array(["a", "bé"]),
    "objects": np.array(["a", 1, True, None, 12345678901234567], dtype=object),
    "booleans": np.arange(9000) % 3 == 0,
    "zeros": np.zeros((100, 100)),
    "big-endian": np.arange(3, dtype=">f8"),
    "transposed": np.arange(12, dtype=np.uint8).reshape(3, 4).T,
    "plain": [None, True, "ü", 0.1, 10**22],
}


def told(tree):
    """A tree with the type of everything in it."""
    if isinstance(tree, dict):
        return [(key, told(part)) for key, part in tree.items()]
    if isinstance(tree, list):
        return [told(part) for part in tree]
    if isinstance(tree, np.ndarray):
        return tree.shape, str(tree.dtype.newbyteorder("=")), told(tree.tolist())
    return type(tree), repr(tree)


@pytest.mark.parametrize("npz", [False, True])
@pytest.mark.parametrize("kind", ["model", "matrix", "checkpoint"])
def test_a_tree_comes_back_with_every_type(tmp_path, kind, npz):
    _store.write(tmp_path / "x", kind, TREE, npz=npz)
    assert told(_store.read(tmp_path / "x", kind)) == told(TREE)
    for other in {"model", "matrix", "checkpoint"} - {kind}:
        with pytest.raises(cs.ModelFileError, match=f"it holds a .*{kind}"):
            _store.read(tmp_path / "x", other)


def test_a_header_whose_length_reads_like_the_start_of_a_zip_file_is_none(tmp_path):
    """One length in 65,536 begins with the letters PK, and such a model could not be read."""
    path = tmp_path / "x"
    _store.write(path, "model", {"a": ""})
    length = int.from_bytes(path.read_bytes()[:8], "little")
    _store.write(path, "model", {"a": "x" * (int.from_bytes(b"PK", "little") - length)})
    assert path.read_bytes()[:2] == b"PK"
    assert set(_store.read(path, "model")["a"]) == {"x"}


def test_arrays_take_no_more_room_than_they_need(tmp_path):
    array, indices = np.random.default_rng(0).normal(size=1000), np.arange(100_000) // 7

    def size(kind, **tree):
        _store.write(tmp_path / "x", kind, tree)
        return (tmp_path / "x").stat().st_size

    assert (
        size("checkpoint", a=array, b=array.copy()) < size("checkpoint", a=array) + 500
    )
    assert size("model", a=indices) < size("checkpoint", a=indices) / 10


def test_a_model_file_takes_few_bytes_per_row(tmp_path):
    """Of members that keep rows or trees in every fold: a file was ten times as large."""
    y = np.arange(800) % 40
    X = np.random.default_rng(0).normal(size=(40, 20))[y] + np.random.default_rng(
        1
    ).normal(size=(800, 20))
    members = ["linear", "kernel", "neighbours", "forest", "trees"]
    cs.CollisionClassifier(**(SHORT | {"members": members})).fit(X, y).save(
        tmp_path / "model"
    )
    assert (tmp_path / "model").stat().st_size < 1_000 * len(y)


@pytest.mark.parametrize(
    "leaf",
    [
        object(),
        float("nan"),
        {1: 2},
        np.array([1j]),
        LISTS,
        "\ud800",
        np.float64("inf"),
    ],
)
def test_what_could_not_be_read_again_is_refused_before_anything_is_written(
    tmp_path, leaf
):
    (tmp_path / "x").write_text("old")
    with pytest.raises(ValueError, match=r"part|surrogates"):
        _store.write(tmp_path / "x", "model", {"part": leaf})
    assert (tmp_path / "x").read_text() == "old"


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_comes_back_bit_for_bit(tmp_path, data, models, name):
    X, _ = data
    clf, path = models[name], tmp_path / "model"
    clf.save(path)
    back = cs.load(path, model=encoder if name in ("module", "body") else None)
    for made in ("predict_proba", "predict"):
        assert np.array_equal(getattr(back, made)(X), getattr(clf, made)(X))
    assert np.array_equal(back.similarity(X[:9], X[:5]), clf.similarity(X[:9], X[:5]))
    assert (back.collision_matrix_, back.one_step_) == (
        clf.collision_matrix_,
        clf.one_step_,
    )
    assert np.array_equal(back.gramian_, clf.gramian_)
    assert np.array_equal(back.recovery_.matrix, clf.recovery_.matrix)
    assert (back.history_, back.member_weights_) == (clf.history_, clf.member_weights_)
    same = {name for name in clf.get_params() if name != "random_state"}
    assert {n: back.get_params()[n] for n in same} == {
        n: clf.get_params()[n] for n in same
    }
    back.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
    if name == "module":
        stored = _store.read(path, "model")["parameters"]["members"]
        assert stored == [{"module": True}]  # code stays out of files
        assert hasattr(back.fit(*data), "posteriors_")


@pytest.mark.parametrize(
    "labels",
    [*map(np.array, LABELS), DATES, np.array([1, 36], "timedelta64[h]")],
    ids=str,
)
def test_classes_survive_every_file_unchanged(tmp_path, data, labels):
    X, y = data
    clf = cs.CollisionClassifier(**SMALL).fit(X, labels[y % len(labels)])
    clf.save(tmp_path / "model")
    clf.collision_matrix_.to_npz(tmp_path / "matrix.npz")
    back, plain = (
        cs.load(tmp_path / "model"),
        cs.CollisionMatrix.from_json(clf.collision_matrix_.to_json()),
    )
    packed = cs.CollisionMatrix.from_npz(tmp_path / "matrix.npz")
    for found in (back.classes_, back.predict(X), plain.classes, packed.classes):
        assert found.dtype.kind == labels.dtype.kind
        assert set(found.tolist()) <= set(labels.tolist())
    assert np.array_equal(back.classes_, labels)


def test_parameters_from_numpy_come_back_with_the_feature_names(tmp_path, data):
    frame = pd.DataFrame(data[0], columns=["a", "b", "ü", "d"])
    settings = SMALL | {
        "cv": np.int64(2),
        "training": {"max_epochs": np.int32(2), "learning_rate": np.float64(0.01)},
    }
    clf = cs.CollisionClassifier(priors=pd.Series([0.5, 0.25, 0.25]), **settings).fit(
        frame, data[1]
    )
    clf.save(tmp_path / "model")
    back = cs.load(tmp_path / "model")
    assert back.feature_names_in_.tolist() == list(frame)
    assert np.array_equal(back.predict_proba(frame), clf.predict_proba(frame))
    assert (back.cv, back.training["max_epochs"]) == (2, 2)


def test_a_saved_model_keeps_its_race(tmp_path, models):
    clf = copy.copy(models["pool"])
    rounds = (Round(100.0, {"linear": 0.5, "trees": 0.4}, {"trees": 1.0}),)
    clf.race_ = Race(rounds, (Dropped("linear", 100.0, 0.5, 0.45, 0.39, 0.1),))
    clf.save(tmp_path / "model")
    assert cs.load(tmp_path / "model").race_ == clf.race_


def test_loading_does_not_solve(tmp_path, models):
    """A forged file with recovery="gradient" and 400 classes kept ``load`` busy for minutes."""
    tree = models["pool"].export()
    tree["recovery"] |= {"method": "gradient", "iterations": 12345}
    _store.write(tmp_path / "model", "model", tree)
    back = cs.load(tmp_path / "model").recovery_
    assert (back.method, back.iterations) == ("gradient", 12345)


@pytest.mark.parametrize("name", ["module", "body"])
@pytest.mark.parametrize(
    ("given", "said"), [(nn.Linear, "fit"), (None, "pass its factory as model=")]
)
def test_a_custom_module_must_be_given_again(tmp_path, models, name, given, said):
    models[name].save(tmp_path / "model")
    with pytest.raises(cs.ModelFileError, match=said):
        cs.load(tmp_path / "model", model=given)


def test_what_cannot_be_saved_or_loaded_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        cs.CollisionClassifier().save(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        cs.load(tmp_path / "model")
    with pytest.raises(ValueError, match="folder"):
        cs.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        cs.CollisionMatrix(np.eye(2)).to_json(tmp_path / "nowhere" / "cm.json")
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_an_output_leaves_the_kind_of_file_as_it_was(
    tmp_path,
):
    real, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    CM.to_json(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert cs.CollisionMatrix.from_json(real) == CM
    (tmp_path / "dangling").symlink_to(tmp_path / "made.json")
    CM.to_json(tmp_path / "dangling")
    assert cs.CollisionMatrix.from_json(tmp_path / "made.json") == CM
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    CM.to_json(pipe)
    reader.join()
    assert read[0].decode() == CM.to_json()
    CM.to_json("/dev/null")
    for device in ("/dev/null", pipe):
        with pytest.raises(ValueError, match="pipe"):
            cs.CollisionMatrix.from_json(device)
        assert not stat.S_ISREG(os.stat(device).st_mode)
    with pytest.raises(
        OSError, match="No space left on device: /dev/full cannot be written"
    ) as caught:
        CM.to_json("/dev/full")
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_disk_that_turns_read_only_leaves_the_old_file(monkeypatch, tmp_path, at):
    """As a full one does; even when the temporary file cannot be removed."""
    CM.to_json(tmp_path / "x")
    refuse = Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS)))
    monkeypatch.setattr(os, at, refuse)
    if at == "replace":
        monkeypatch.setattr("pathlib.Path.unlink", refuse)
    for write in (
        cs.CollisionMatrix(np.eye(2)).to_json,
        cs.CollisionMatrix(np.eye(2)).to_npz,
    ):
        with pytest.raises(
            OSError,
            match=r"Read-only file system: .*x cannot be written; what was there before is as",
        ):
            write(tmp_path / "x")
    assert at == "replace" or list(tmp_path.iterdir()) == [tmp_path / "x"]
    assert cs.CollisionMatrix.from_json(tmp_path / "x") == CM


def test_only_what_killed_writes_left_is_removed(tmp_path):
    path = tmp_path / ("n" * 250)  # as long as systems allow
    left = tmp_path / f".{'n' * _store.KEPT_NAME}.new-0123456789abcdef"
    left.write_text("half")
    with _store.writing(path) as first:
        CM.to_json(path)  # someone else, meanwhile
        first.write(b"first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_no_output_gets_a_name_that_was_not_given(tmp_path):
    """More than 1,000 classes changed the suffix after the check, and the input was overwritten."""
    cs.CollisionMatrix(np.eye(1001)).to_npz(tmp_path / "big.npz")
    before = (tmp_path / "big.npz").read_bytes()
    done = run(
        "merge",
        tmp_path / "big.npz",
        "--groups",
        1001,
        "--matrix",
        tmp_path / "big.json",
    )
    assert done.exit_code == 2
    assert "was not written" in done.stderr
    assert ".npz" in done.stderr
    assert "n_groups" in done.stdout
    assert (tmp_path / "big.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["big.npz"]


def test_outputs_are_tried_before_the_work(tmp_path):
    CM.to_json(tmp_path / "cm.json")
    for bad in (tmp_path, tmp_path / "no" / "x.json", tmp_path / "cm.json"):
        done = run("merge", tmp_path / "cm.json", "--matrix", bad)
        assert (done.exit_code, done.stdout) == (2, "")


def test_a_result_is_printed_before_it_is_written(tmp_path):
    CM.to_json(tmp_path / "cm.json")
    done = run("merge", tmp_path / "cm.json", "--matrix", "/dev/full")
    assert done.exit_code == 1
    assert "n_groups" in done.stdout
    assert "was not written. No space left" in " ".join(done.stderr.split())
    done = run("merge", tmp_path / "cm.json", "--matrix", "/dev/null")
    assert (done.exit_code, "matrix: /dev/null" in done.stderr) == (0, True)


@POSIX
@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-", "| true"])
def test_a_closed_stream_loses_neither_the_answer_nor_the_files(tmp_path, streams):
    CM.to_json(tmp_path / "cm.json")
    merge = (
        f"{sys.executable} -m collidescope merge cm.json --matrix out.json --groups 2"
    )
    command = f"{merge} {streams}; echo $? >code"
    done = subprocess.run(
        command, cwd=tmp_path, shell=True, capture_output=True, text=True
    )
    assert cs.CollisionMatrix.from_json(tmp_path / "out.json").n_classes == 2
    if "|" not in streams:
        assert ("n_groups" in done.stdout + done.stderr) != (streams == ">&- 2>&-")
        assert int((tmp_path / "code").read_text()) == (streams == ">&- 2>&-")


def test_names_that_a_stream_cannot_hold_stay_different(tmp_path):
    """Two classes both became "??"."""
    cs.CollisionMatrix(CM.matrix, classes=["东京", "京都"]).to_json(
        tmp_path / "cm.json"
    )
    command = [sys.executable, "-m", "collidescope", "merge", str(tmp_path / "cm.json")]
    env = os.environ | {"PYTHONIOENCODING": "cp1252:replace"}
    plain = subprocess.run(
        command, capture_output=True, env=env, check=True
    ).stdout.decode("cp1252")
    assert r"\u4e1c\u4eac" in plain
    assert r"\u4eac\u90fd" in plain
    told = subprocess.run(
        [*command, "--json"], capture_output=True, env=env, check=True
    ).stdout
    assert b"?" not in told
    assert r"\u4e1c" in told.decode("ascii")
