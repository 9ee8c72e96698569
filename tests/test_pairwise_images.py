"""A custom pair-wise body, on images: model=("pairwise", factory) finds S and survives clones and files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from collidescope import CollisionClassifier, ModelFileError, _store, load
from collidescope.pairwise import scoring
from collidescope.pairwise.model import PairObjective
from collidescope.pairwise.networks import PairwiseImageNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.rows import as_rows

SIDE = 6


def body(channels, outputs):
    """Batch norm included: its counters must come through a file too."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * SIDE * SIDE, 32),
        nn.ReLU(),
        nn.Linear(32, outputs),
    )


def encoder(channels, k):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, k))


#: Classes 0 and 1 show a drawing that both make half of the time, class 2 never does.
PLANTED = np.array([[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]])
BRIEF = {"max_epochs": 2, "patience": 0, "batch_size": 32}
SHORT = {"training": BRIEF, "limit": False, "cv": 2, "random_state": 0}
LONG = SHORT | {"training": BRIEF | {"max_epochs": 12, "patience": 4}}

ignore_warnings = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


def drawings(n, seed, channels=1):
    """(X, y): a bright corner per class, and a fourth corner that classes 0 and 1 share."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    corner = np.where((y < 2) & (np.arange(n) // 3 % 2 == 0), 3, y)
    X = 0.3 * rng.normal(size=(n, channels, SIDE, SIDE))
    for i, (down, right) in enumerate([(0, 0), (0, 3), (3, 0), (3, 3)]):
        X[corner == i, :, down : down + 3, right : right + 3] += 1.0
    return X, y


@pytest.fixture(scope="module")
def data():
    return drawings(600, 0)


@pytest.fixture(scope="module")
def fitted(data):
    return CollisionClassifier(model=("pairwise", body), n_references=20, **LONG).fit(*data)


def test_the_planted_collision_is_found_by_both_roads_and_no_other(fitted):
    assert fitted.collision_matrix_.matrix == pytest.approx(PLANTED, abs=0.08)
    assert fitted.recovery_.matrix == pytest.approx(PLANTED, abs=0.1)


def test_posteriors_split_the_shared_drawing_and_nothing_else(fitted):
    X, y = drawings(120, 1)
    P = fitted.predict_proba(X)
    shared = (y < 2) & (np.arange(120) // 3 % 2 == 0)
    assert np.abs(P[shared, :2] - 0.5).mean() < 0.12
    assert (fitted.predict(X)[~shared] == y[~shared]).mean() > 0.95


def test_similarity_is_symmetric_and_knows_the_shared_drawing(fitted):
    X, y = drawings(60, 2)
    sim = fitted.similarity(X[:20], X[20:])
    assert fitted.similarity(X[20:], X[:20]) == pytest.approx(sim.T, abs=1e-6)
    assert ((sim >= 0) & (sim <= 1)).all()
    third = (y[:20, None] == 2) & (y[20:] == 2)
    apart = (y[:20, None] == 2) ^ (y[20:] == 2)
    assert sim[third].mean() > 0.9
    assert sim[apart].mean() < 0.1


def test_a_single_image_scores_like_one_of_many(data, fitted):
    X, _ = data
    assert fitted.predict_proba(X[:1]) == pytest.approx(fitted.predict_proba(X[:5])[:1], abs=1e-5)


@ignore_warnings
def test_a_single_image_of_an_encoder_scores_like_one_of_many_too(data, tmp_path):
    """A batch of one image was once taken for a stack of one batch."""
    X, _ = data
    clf = CollisionClassifier(model=encoder, **SHORT).fit(*data)
    assert clf.predict_proba(X[:1]) == pytest.approx(clf.predict_proba(X[:5])[:1], abs=1e-5)
    clf.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model", encoder).predict_proba(X[:1]), clf.predict_proba(X[:1]))


@ignore_warnings
@pytest.mark.parametrize("shape", [(2, SIDE, SIDE), (5,)], ids=["two channels", "a table"])
def test_the_body_is_built_for_both_inputs_together(shape):
    built = []

    def factory(d, k):
        built.append((d, k))
        return nn.Sequential(nn.Flatten(), nn.Linear(2 * int(np.prod(shape)), k))

    X = np.random.default_rng(0).normal(size=(150, *shape))
    CollisionClassifier(model=("pairwise", factory), **SHORT).fit(X, np.arange(150) % 3)
    assert set(built) == {(2 * shape[0], 1)}


def test_references_per_class_and_fold_are_those_asked_for(fitted):
    for rows, codes, weights in fitted._crossfit.references:
        assert weights is None
        assert rows.shape == (60, 1, SIDE, SIDE)
        assert np.bincount(codes).tolist() == [20, 20, 20]
    assert 0 < fitted.reference_stderr_ < 0.1


# ---------------------------------------------------------------- clones and files


@ignore_warnings
def test_a_clone_is_unfitted_and_fits_to_the_same_bits(data):
    X, y = data
    clf = CollisionClassifier(model=("pairwise", body), n_references=5, **SHORT).fit(X[:180], y[:180])
    copy = clone(clf)
    assert copy.model == ("pairwise", body)
    assert not hasattr(copy, "collision_matrix_")
    assert np.array_equal(copy.fit(X[:180], y[:180]).predict_proba(X[:9]), clf.predict_proba(X[:9]))


def test_a_saved_model_comes_back_bit_for_bit_and_to_the_same_bytes(tmp_path, data, fitted):
    X, _ = data
    fitted.save(tmp_path / "model")
    back = load(tmp_path / "model", model=("pairwise", body))
    assert back.model == ("pairwise", body)
    assert back.n_references == 20
    assert np.array_equal(back.predict_proba(X[:50]), fitted.predict_proba(X[:50]))
    assert np.array_equal(back.similarity(X[:9], X[:5]), fitted.similarity(X[:9], X[:5]))
    assert back.collision_matrix_ == fitted.collision_matrix_
    back.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_the_file_says_that_there_was_a_body_and_nothing_of_its_code(tmp_path, fitted):
    fitted.save(tmp_path / "model")
    tree = _store.read(tmp_path / "model", "model")
    assert tree["parameters"]["model"] is None
    assert tree["custom"] is True
    assert b"def body" not in (tmp_path / "model").read_bytes()


@ignore_warnings
def test_the_reader_must_give_the_kind_of_factory_that_was_fitted(tmp_path, data, fitted):
    fitted.save(tmp_path / "body")
    CollisionClassifier(model=encoder, **SHORT).fit(*data).save(tmp_path / "encoder")
    for given in (None, encoder, "pairwise"):
        with pytest.raises(ModelFileError, match=r"custom module: pass model=\('pairwise', its factory\)"):
            load(tmp_path / "body", model=given)
    for given in (None, ("pairwise", body)):
        with pytest.raises(ModelFileError, match="custom module: pass its factory as model="):
            load(tmp_path / "encoder", model=given)
    with pytest.raises(ModelFileError, match="do not fit"):
        load(tmp_path / "body", model=("pairwise", encoder))
    with pytest.raises(ValueError, match="model as a tuple must be"):
        load(tmp_path / "body", model=("pairwise", "body"))


# ---------------------------------------------------------------- the argument


@pytest.mark.parametrize(
    "model",
    [("pairwise",), ("pairwise", None), ("network", body), ("pairwise", body, body), (), ("pairwise", "body")],
)
def test_a_tuple_of_another_form_is_refused_with_the_form_it_should_have(data, model):
    with pytest.raises(ValueError, match=r"model as a tuple must be \('pairwise', factory\)"):
        CollisionClassifier(model=model, **SHORT).fit(*data)


def test_images_of_pairs_without_a_custom_body_are_refused(data):
    with pytest.raises(ValueError, match="dim 4"):
        CollisionClassifier(model="pairwise", **SHORT).fit(*data)


# ---------------------------------------------------------------- blocks of pairs


@pytest.mark.parametrize(("block_bytes", "at_once"), [(1, 8192), (40_000, 5), (2**21, 8192)])
def test_blocks_of_any_size_give_the_scores_of_single_pairs(monkeypatch, block_bytes, at_once):
    monkeypatch.setattr(scoring, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(scoring, "ROWS_AT_ONCE", at_once)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = PairwiseImageNetwork(body(2, 1)).eval()
        A, B = torch.randn(13, 1, SIDE, SIDE), torch.randn(7, 1, SIDE, SIDE)
    with torch.no_grad():
        single = torch.stack([torch.cat([module(a[None], b[None]) for b in B]) for a in A])
    assert scoring.similarity(module, A, B, shift=0.4) == pytest.approx(torch.sigmoid(single - 0.4), abs=1e-5)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    means = torch.stack([torch.sigmoid(single)[:, labels == k].mean(1) for k in range(3)], 1)
    assert scoring.class_similarity(module, A, B, labels, 3).q == pytest.approx(means.double(), abs=1e-5)


@pytest.mark.parametrize(("n", "batch"), [(9, 4), (8, 4), (10, 4), (4, 1)])
def test_no_batch_of_pairs_is_a_single_one_unless_all_are(n, batch):
    y = torch.arange(n) % 2
    config = TrainingConfig(batch_size=batch)
    split = torch.arange(n), torch.arange(0)
    objective = PairObjective(as_rows(torch.zeros(n, 2), "cpu"), y, split, config, seed=0)
    sizes = [len(i) for i, _, _ in objective.batches(torch.Generator().manual_seed(0))]
    assert sum(sizes) == n - (batch > 1 and n % batch == 1)
    assert batch == 1 or min(sizes) > 1
