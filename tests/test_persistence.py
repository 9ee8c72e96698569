"""Model files: what was saved comes back, and no file, however broken or hostile, does anything but raise."""

from __future__ import annotations

import json
import os
import pickle
import struct

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from torch import nn

from collidescope import CollisionClassifier, ModelFileError, load
from collidescope.datasets import scenario_a
from collidescope.persistence import FORMAT_VERSION, KEY, checksum, read_model, write_model

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")

SHORT = {"max_epochs": 2, "cv": 2, "random_state": 0}


def encoder(d, k):
    return nn.Sequential(nn.Linear(d, 5), nn.ReLU(), nn.Linear(5, k))


MODELS = {
    "factorised": {"hidden_layer_sizes": (6,)},
    "auto": {"hidden_layer_sizes": "auto"},
    "pair loss": {"hidden_layer_sizes": (6,), "loss": "pair"},
    "pairwise": {"model": "pairwise", "hidden_layer_sizes": (6,), "n_references": 5},
    "module": {"model": encoder},
}


@pytest.fixture(scope="module")
def data():
    return scenario_a(3).sample(150, 0)


@pytest.fixture(scope="module")
def models(data):
    return {name: CollisionClassifier(**(SHORT | changes)).fit(*data) for name, changes in MODELS.items()}


@pytest.fixture(params=["factorised", "pairwise"])
def saved(request, models, tmp_path):
    path = tmp_path / "model.safetensors"
    models[request.param].save(path)
    return path


# ---------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_comes_back_bit_for_bit(tmp_path, data, models, name):
    X, _ = data
    clf = models[name]
    clf.save(tmp_path / "model")
    back = load(tmp_path / "model", model=encoder if name == "module" else None)
    assert np.array_equal(back.predict_proba(X), clf.predict_proba(X))
    assert np.array_equal(back.predict(X), clf.predict(X))
    assert np.array_equal(back.similarity(X[:9], X[:5]), clf.similarity(X[:9], X[:5]))
    assert back.collision_matrix_ == clf.collision_matrix_
    assert back.one_step_ == clf.one_step_
    assert np.array_equal(back.gramian_, clf.gramian_)
    assert np.array_equal(back.priors_, clf.priors_)
    assert back.recovery_.condition == pytest.approx(clf.recovery_.condition)
    assert back.n_features_in_ == 4
    assert back.history_ == clf.history_
    assert back.capacities_ == clf.capacities_
    assert back.reference_stderr_ == clf.reference_stderr_
    same = {name for name in clf.get_params() if name != "random_state"}
    assert {n: back.get_params()[n] for n in same} == {n: clf.get_params()[n] for n in same}


def test_a_model_that_came_back_can_be_saved_again_to_the_same_bytes_and_refitted(tmp_path, data, saved):
    back = load(saved)
    back.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()
    assert hasattr(back.fit(*data), "posteriors_")


@pytest.mark.parametrize("labels", [[3, 5, 900], ["ä", "b c", "z"], [False, True], [1.0, 2.0, 3.0]], ids=str)
def test_classes_keep_their_names_and_kind(tmp_path, data, labels):
    X, y = data
    named = np.array(labels)[y % len(labels)]
    clf = CollisionClassifier(**SHORT, hidden_layer_sizes=()).fit(X, named)
    clf.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.classes_.tolist() == sorted(labels)
    assert {type(label) for label in back.predict(X).tolist()} == {type(label) for label in labels}
    assert back.predict(X).tolist() == clf.predict(X).tolist()


def test_feature_names_come_back_and_are_asked_for(tmp_path, data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "ü", "d"])
    clf = CollisionClassifier(**SHORT, hidden_layer_sizes=()).fit(frame, y)
    clf.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.feature_names_in_.tolist() == ["a", "b", "ü", "d"]
    assert np.array_equal(back.predict_proba(frame), clf.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        back.predict(frame.rename(columns={"a": "other"}))


def test_parameters_from_numpy_and_pandas_are_saved_too(tmp_path, data):
    """As a grid search over arrays leaves them."""
    clf = CollisionClassifier(
        priors=pd.Series([0.5, 0.25, 0.25]),
        cv=np.int64(2),
        max_epochs=np.int32(2),
        hidden_layer_sizes=np.array([4]),
        learning_rate=np.float64(0.01),
    ).fit(*data)
    clf.save(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.priors == [0.5, 0.25, 0.25]
    assert (back.cv, back.max_epochs, back.hidden_layer_sizes) == (2, 2, (4,))
    assert np.array_equal(back.predict_proba(data[0]), clf.predict_proba(data[0]))


def test_an_image_model_comes_back(tmp_path):
    def factory(d, k):
        return nn.Sequential(nn.Conv2d(d, 2, 3), nn.Flatten(), nn.Linear(2 * 36, k))

    X = np.random.default_rng(0).normal(size=(40, 1, 8, 8))
    clf = CollisionClassifier(**SHORT, model=factory).fit(X, np.arange(40) % 2)
    clf.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model", factory).predict_proba(X), clf.predict_proba(X))


def test_a_module_of_one_s_own_must_be_given_again_and_must_fit(tmp_path, models):
    models["module"].save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="pass its factory as model="):
        load(tmp_path / "model")
    with pytest.raises(ModelFileError, match="do not fit"):
        load(tmp_path / "model", model=lambda d, k: nn.Linear(d, k))


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        CollisionClassifier().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the format


def test_the_file_is_safetensors_with_plain_weights(saved):
    content = saved.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert json.loads(header["__metadata__"][KEY])["version"] == FORMAT_VERSION
    assert load_tensors(content)["train_priors"] == pytest.approx(np.full(3, 1 / 3))


class Bomb:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", ["pickle", "torch", "joblib"])
def test_a_pickle_in_disguise_is_refused_and_not_run(tmp_path, kind):
    import joblib

    path, mark = tmp_path / "model.safetensors", tmp_path / "mark"
    write = {
        "pickle": lambda: path.write_bytes(pickle.dumps(Bomb(mark))),
        "torch": lambda: torch.save(Bomb(mark), path),
        "joblib": lambda: joblib.dump(Bomb(mark), path),
    }
    write[kind]()
    with pytest.raises(ModelFileError, match="not a model of collidescope"):
        load(path)
    assert not mark.exists()


def test_a_file_that_is_not_there_is_called_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a file"):
        load(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="not a file"):
        load(tmp_path)


# ---------------------------------------------------------------- damage


def test_a_file_cut_short_anywhere_is_refused(saved):
    content = saved.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    ends = {0, 1, 7, 8, 9, 8 + length - 1, 8 + length, 8 + length + 1, len(content) - 1}
    ends |= set(np.linspace(0, len(content) - 1, 60).astype(int).tolist())
    for end in sorted(ends):
        saved.write_bytes(content[:end])
        with pytest.raises(ModelFileError):
            load(saved)
    saved.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError):
        load(saved)


def test_any_flipped_bit_is_noticed(saved, data):
    """Random bits all over the file, half of them in the header; one that passes (the 17th digit) changes no number."""
    X, _ = data
    content = saved.read_bytes()
    whole = load(saved)
    expected, description = whole.predict_proba(X[:5]), whole.export()[1]
    (length,) = struct.unpack("<Q", content[:8])
    rng = np.random.default_rng(0)
    places = np.r_[np.arange(8), rng.integers(0, 8 + length, 150), rng.integers(0, len(content), 150)]
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(damaged))
        try:
            back = load(saved)
        except ModelFileError:
            continue
        assert np.array_equal(back.predict_proba(X[:5]), expected)
        assert back.export()[1] == description


def test_random_bytes_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    for size in (0, 1, 8, 9, 100, 5000):
        (tmp_path / "model").write_bytes(rng.bytes(size))
        with pytest.raises(ModelFileError):
            load(tmp_path / "model")


# ---------------------------------------------------------------- files made to harm


def test_another_version_is_named(saved):
    arrays, description = read_model(saved)
    write_model(saved, arrays, description | {"version": 99})
    with pytest.raises(ModelFileError, match=rf"format version 99, this release reads {FORMAT_VERSION}: update"):
        load(saved)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "not a model of collidescope"),
        ({"other": "x"}, "a safetensors file, but not a model"),
        ({KEY: "{}"}, "holds no model"),
        ({KEY: "[1, 2]"}, "holds no model"),
        ({KEY: "{not json"}, "damaged"),
        ({KEY: "[" * 200_000}, "damaged"),
        ({KEY: '{"a":' * 100_000}, "damaged"),
        ({KEY: "9" * 10_000}, "damaged"),
    ],
    ids=["none", "other", "empty", "list", "broken", "nested lists", "nested objects", "endless number"],
)
def test_a_safetensors_file_that_holds_something_else_is_refused(tmp_path, metadata, message):
    (tmp_path / "model").write_bytes(save_tensors({"x": np.zeros(2)}, metadata=metadata))
    with pytest.raises(ModelFileError, match=message):
        load(tmp_path / "model")


def test_tensors_of_a_type_numpy_lacks_are_refused(tmp_path):
    from safetensors.torch import save as save_torch

    (tmp_path / "model").write_bytes(save_torch({"x": torch.zeros(2, dtype=torch.float8_e4m3fn)}, metadata={KEY: "{}"}))
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    for length in (len(header), 2**62):
        (tmp_path / "model").write_bytes(struct.pack("<Q", length) + header)
        with pytest.raises(ModelFileError):
            load(tmp_path / "model")


def test_every_missing_part_is_noticed(saved):
    arrays, description = read_model(saved)
    for name in arrays:
        write_model(saved, {other: array for other, array in arrays.items() if other != name}, description)
        with pytest.raises(ModelFileError):
            load(saved)
    for name in description:
        write_model(saved, arrays, {other: value for other, value in description.items() if other != name})
        if name not in ("format", "version"):  # these two are written anew
            with pytest.raises(ModelFileError):
                load(saved)


def test_tensors_of_another_shape_are_noticed_when_loading_not_when_predicting(saved):
    arrays, description = read_model(saved)
    for name, array in arrays.items():
        for wrong in (array[:-1], np.concatenate([array, array]), array[..., None], np.zeros(0, array.dtype)):
            write_model(saved, arrays | {name: wrong}, description)
            with pytest.raises(ModelFileError):
                load(saved)


@pytest.mark.parametrize("name", ["centre", "scale", "train_priors", "priors", "gramian"])
def test_numbers_that_are_none_are_noticed(saved, name):
    arrays, description = read_model(saved)
    write_model(saved, arrays | {name: np.full_like(arrays[name], np.nan)}, description)
    with pytest.raises(ModelFileError, match="finite"):
        load(saved)


def edited(description, path, value):
    """A deep copy with one entry changed."""
    copy = json.loads(json.dumps(description))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


@pytest.mark.parametrize("name", ["collision_matrix/matrix", "collision_matrix/stderr", "one_step/priors", "gramian"])
def test_arrays_of_a_matrix_that_do_not_fit_are_refused(saved, name):
    arrays, description = read_model(saved)
    for wrong in (-arrays[name], arrays[name][:-1], np.full_like(arrays[name], np.nan)):
        if name == "gramian" and wrong.shape == arrays[name].shape and np.isfinite(wrong).all():
            continue  # any finite square matrix may be an estimate of it
        write_model(saved, arrays | {name: wrong}, description)
        with pytest.raises(ModelFileError):
            load(saved)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["parameters"], [1]),
        (["parameters", "model"], "nonsense"),
        (["parameters", "recovery"], "nonsense"),
        (["parameters", "cv"], "many"),
        (["parameters", "__class__"], "x"),
        (["parameters", "priors_"], 1),
        (["folds"], []),
        (["folds"], 3),
        (["folds", 0, "model"], "nonsense"),
        (["folds", 0, "n_classes"], 4),
        (["folds", 0, "n_classes"], 10**9),
        (["folds", 0, "n_classes"], -1),
        (["folds", 0, "input_shape"], [10**9]),
        (["folds", 0, "input_shape"], []),
        (["folds", 0, "members"], []),
        (["folds", 0, "members", 0, "kind"], "os.system"),
        (["folds", 0, "members", 0, "hidden_layer_sizes"], [10**9]),
        (["folds", 0, "members", 0, "hidden_layer_sizes"], [10**6, 10**6]),
        (["folds", 0, "members", 0, "hidden_layer_sizes"], [[1]]),
        (["folds", 0, "members", 0, "weight"], "much"),
        (["folds", 0, "members", 0, "weight"], 1e999),
        (["collision_matrix"], {}),
        (["collision_matrix", "classes"], ["a", "b"]),
        (["collision_matrix", "classes"], ["a", "a", "b"]),
        (["collision_matrix", "matrix"], [[0.5, 0.5], [0.5, 0.5]]),
        (["collision_matrix", "arrays"], ["matrix", "priors"]),
        (["one_step", "priors"], [1.0, 2.0, 3.0]),
        (["feature_names"], ["a", "b"]),
        (["feature_names"], 5),
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_is_refused_before_memory_is_taken_for_it(saved, path, value):
    arrays, description = read_model(saved)
    description = edited(description, path, value)
    header = json.dumps({"sha256": checksum(arrays, description), **description}).replace("Infinity", "1e999")
    saved.write_bytes(save_tensors(arrays, metadata={KEY: header}))
    with pytest.raises(ModelFileError):
        load(saved)


def test_an_edited_description_without_its_checksum_is_refused(saved):
    arrays, description = read_model(saved)
    for header in (description, {"sha256": "0" * 64, **description}):
        saved.write_bytes(save_tensors(arrays, metadata={KEY: json.dumps(header)}))
        with pytest.raises(ModelFileError, match="checksum"):
            load(saved)


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_file_whole_and_nothing_beside_it(monkeypatch, models, saved, at):
    before = saved.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, at, fail)
    with pytest.raises(OSError, match="disk full"):
        models["auto"].save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_what_json_cannot_hold_is_refused_before_anything_is_written(models, saved):
    before = saved.read_bytes()
    arrays, description = read_model(saved)
    with pytest.raises(TypeError, match="cannot hold"):
        write_model(saved, arrays, description | {"extra": object()})
    with pytest.raises(ValueError, match="JSON"):
        write_model(saved, arrays, description | {"extra": float("nan")})
    assert saved.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path, models):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        models["factorised"].save(tmp_path / "nowhere" / "model")
