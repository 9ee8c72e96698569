"""The MNIST experiment at its quick size: what its records hold, how it goes on, and the figures drawn from them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from collidescope import CollisionClassifier
from collidescope.equations.gramian import gramian_from_similarities
from experiments import figures_mnist, mnist, store
from experiments.mnist import MNIST, Data, ambiguous_images, calibration, cells, class_means, plain, score_folds
from experiments.mnist_networks import conv_encoder, n_weights, resnet18
from experiments.runner import run

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


@pytest.fixture(scope="module", autouse=True)
def results_apart(tmp_path_factory):
    """Neither the recorded results nor the folder of temporary files are touched."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "RESULTS", tmp_path_factory.mktemp("results"))
        patch.setattr(mnist.tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        yield


@pytest.fixture(scope="module")
def records(results_apart):
    run(MNIST, quick=True, verbose=0)
    return {record["cell"]["model"]: record for record in store.results("mnist", quick=True)}


# ---------------------------------------------------------------- records


def test_a_finished_experiment_runs_nothing_again(records):
    def never(cell):
        raise AssertionError("this cell was done")

    before = store.path_of("mnist", quick=True).read_bytes()
    run(dataclasses.replace(MNIST, run=never), quick=True, verbose=0)
    assert store.path_of("mnist", quick=True).read_bytes() == before
    assert len(before) < 300_000


def test_the_factorised_record_holds_s_with_its_intervals_and_how_good_the_posteriors_are(records):
    result = records["factorised"]["result"]
    S, stderr, low, high = (np.array(result[name]) for name in ("S", "stderr", "low", "high"))
    assert S.shape == stderr.shape == (10, 10)
    assert S.sum(axis=1) == pytest.approx(np.ones(10))
    assert ((low <= S) & (high >= S)).all()
    assert np.array(result["gramian_S"]).sum(axis=1) == pytest.approx(np.ones(10))
    assert result["pber"] == pytest.approx(1 - np.array(result["priors"]) @ np.diag(S))
    assert result["pber_interval"][0] < result["pber"] < result["pber_interval"][1]
    assert result["bayes_error_bounds"][0] < result["bayes_error_bounds"][1]
    assert result["rows"] == sum(result["counts"]) == 450
    assert result["held_out"]["accuracy"] > 0.4
    assert result["test"]["accuracy"] > 0.4
    assert 0 < result["held_out"]["brier"] < 0.9
    assert result["held_out"]["log_loss"] < np.log(10)
    assert (len(result["capacities"]), len(result["epochs"]), len(result["held_out_losses"])) == (2, 2, 2)
    assert min(result["seconds"].values()) > 0


def test_the_ten_largest_pairs_come_with_intervals_and_in_order(records):
    result = records["factorised"]["result"]
    rates = [pair["rate"] for pair in result["top"]]
    S = np.array(result["S"])
    assert len({frozenset((pair["class"], pair["other"])) for pair in result["top"]}) == 10
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(S[~np.eye(10, dtype=bool)].max())
    assert all(pair["low"] <= pair["rate"] == pytest.approx(S[pair["class"], pair["other"]]) for pair in result["top"])


def test_images_come_back_from_the_record_with_their_labels_and_posteriors(records):
    result, data = records["factorised"]["result"], mnist.load_data("digits")
    images = result["images"]
    assert len(images) >= 24
    assert len({image["row"] for image in images}) == len(images)
    for image in images:
        assert np.array_equal(figures_mnist.pixels_of(image, result["shape"]), data.images[image["row"]])
        assert image["label"] == data.labels[image["row"]]
        assert sum(image["posterior"]) == pytest.approx(1, abs=1e-3)
    reasons = [image["why"] for image in images]
    assert reasons.count("entropy") == 8
    assert {"4 or 9", "3 or 5", "1 or 7", "clear"} <= set(reasons)


def test_the_pairwise_record_reads_one_training_both_ways(records):
    result = records["pairwise"]["result"]
    literal, shifted = (result["corrections"][name] for name in ("none", "prior"))
    for each in (literal, shifted):
        S = np.array(each["S"])
        assert S.sum(axis=1) == pytest.approx(np.ones(10))
        assert np.array(each["gramian"]).sum(axis=1) == pytest.approx(each["row_sums"])
        assert each["S_4_9"]["root"] == pytest.approx(S[4, 9])
        assert each["S_4_9"]["gradient"] == pytest.approx(each["S_gradient"][4][9])
        # so short a training may leave S nearly singular, where only a few rows are solved for
        rows = 450 if each["condition"] < mnist.NEARLY_SINGULAR else mnist.FEW_ROWS
        assert (len(each["top"]), len(each["top_gradient"]), each["posteriors"]) == (10, 10, rows)
        assert each["accuracy"] > 0.2
    assert min(literal["row_sums"]) > max(shifted["row_sums"]) > 0.5
    assert result["pairs_scored"] == 450 * result["references"]
    assert set(result["seconds"]) == {"training", "scoring", "recovery"}


def test_the_full_size_is_all_of_mnist_in_five_folds():
    full = cells(quick=False)
    assert [cell["model"] for cell in full] == ["factorised", "pairwise"]
    assert {(cell["data"], cell["cv"], cell["seed"]) for cell in full} == {("mnist", 5, 0)}
    assert json.loads(json.dumps(full)) == full
    assert len({store.key_of(cell) for cell in full + cells(quick=True)}) == 4


# ---------------------------------------------------------------- one pass over the pairs


def drawings(n=240):
    """Three digits that are bright in a third each; 0 and 1 are the same every fourth time."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 3
    images = rng.integers(0, 60, size=(n, 12, 12)).astype(np.uint8)
    third = np.where((labels == 1) & (np.arange(n) % 4 == 0), 0, labels)
    for i, place in enumerate(third):
        images[i, 4 * place : 4 * place + 4] += 150
    return Data(images, labels, images, labels)


SMALL = cells(quick=True)[1] | {"max_epochs": 3, "width": 4, "n_references": 5}


def test_one_pass_gives_the_gramians_of_two_fits_of_the_classifier():
    data = drawings()
    q, histories, _ = score_folds(SMALL, data)
    names = ("cv", "max_epochs", "patience", "batch_size", "learning_rate", "weight_decay", "n_references")
    for correction, scores in q.items():
        clf = CollisionClassifier(
            model=("pairwise", lambda channels, k: resnet18(channels, k, 4)),
            estimate="gramian",
            priors="uniform",
            correction=correction,
            random_state=SMALL["seed"],
            **{name: SMALL[name] for name in names},
        ).fit(mnist.as_input(data.images), data.labels)
        assert gramian_from_similarities(scores, data.labels) == pytest.approx(clf.gramian_, abs=1e-5)
        assert [entry["val_loss"] for entry in clf.history_[0]["pairwise-module"]] == [
            entry["val_loss"] for entry in histories[0]["pairwise-module"]
        ]


def test_a_run_that_was_stopped_goes_on_with_the_next_fold(monkeypatch):
    data, original, calls = drawings(), mnist.score_fold, []

    def counted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    whole = score_folds(SMALL, data)[0]
    monkeypatch.setattr(mnist, "score_fold", counted)
    with pytest.raises(KeyboardInterrupt):
        score_folds(SMALL, data)
    resumed = score_folds(SMALL, data)[0]
    assert len(calls) == 3  # the first fold, the stopped one, and that one again
    assert all(np.array_equal(resumed[name], whole[name]) for name in whole)
    score_folds(SMALL, data)
    assert len(calls) == 5  # nothing was left behind for another run


def test_class_means_leave_a_row_s_pair_with_itself_out():
    rng = np.random.default_rng(0)
    scores, codes, own = rng.random((4, 6)), np.array([0, 1, 0, 1, 0, 1]), np.array([-1, 2, 5, -1])
    for x in range(4):
        for k in range(2):
            wanted = [scores[x, r] for r in range(6) if codes[r] == k and r != own[x]]
            assert class_means(scores, codes, own, 2)[x, k] == pytest.approx(np.mean(wanted))


# ---------------------------------------------------------------- what is told


def test_the_most_even_images_of_a_pair_are_found():
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 10
    P = np.full((300, 10), 0.001) + 0.99 * np.eye(10)[labels]
    P[7] = [0, 0, 0.48, 0, 0, 0, 0, 0.52, 0, 0]
    P[100:108] = 0.1
    data = Data(rng.integers(0, 255, (300, 3, 3)).astype(np.uint8), labels, np.empty((0, 3, 3), np.uint8), labels[:0])
    images = ambiguous_images(P, data, [(7, 2)])
    assert {image["row"] for image in images if image["why"] == "entropy"} == set(range(100, 108))
    assert next(image for image in images if image["why"] == "2 or 7")["row"] == 7


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_that_spoiled_calibrated_posteriors_is_found(temperature):
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), size=20_000)
    y = (rng.random((len(P), 1)) > P.cumsum(axis=1)).sum(axis=1)
    sharpened = P**temperature / (P**temperature).sum(axis=1, keepdims=True)
    found = calibration(sharpened, y)
    assert found["temperature"] == pytest.approx(temperature, rel=0.05)
    assert (found["calibration_error"] < 0.02) == (temperature == 1.0)


def test_what_json_cannot_hold_becomes_none():
    assert plain({"a": np.array([1.0, np.nan]), 3: (np.float32(0.5), np.inf, "x")}) == {
        "a": [1, None],
        "3": [0.5, None, "x"],
    }


# ---------------------------------------------------------------- networks


def test_resnet_18_has_the_weights_of_he_et_al_but_for_its_two_channels_and_one_output():
    published = 11_689_512  # three channels, 1,000 classes
    assert n_weights(resnet18(2, 1)) == published - 7 * 7 * 64 - (513 * 1000 - 513)
    assert n_weights(resnet18(3, 1000)) == published


@pytest.mark.parametrize("side", [8, 16, 28])
def test_networks_take_small_images_and_score_each_by_itself(side):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for network, channels in ((conv_encoder(1, 10, width=4), 1), (resnet18(2, 1, 4), 2)):
            x = torch.rand(5, channels, side, side)
            network.eval()
            with torch.no_grad():
                assert torch.allclose(network(x)[:2], network(x[:2]), atol=1e-5)
            network.train()
            assert network(x).shape[0] == 5


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize(
    ("draw", "model", "options", "suffix"),
    [
        (figures_mnist.draw_matrix, "factorised", {}, ".png"),
        (figures_mnist.draw_matrix, "pairwise", {"correction": "none"}, ".svg"),
        (figures_mnist.draw_ambiguous, "factorised", {}, ".svg"),
        (figures_mnist.draw_pairs, "factorised", {}, ".png"),
    ],
)
def test_figures_are_drawn_from_the_records_and_stay_small(records, tmp_path, draw, model, options, suffix):
    path = tmp_path / "folder" / f"figure{suffix}"
    draw(records[model], path, **options)
    assert 5_000 < path.stat().st_size < 150_000


def test_a_record_gives_the_same_bytes_whenever_it_is_drawn(records, tmp_path):
    for name in ("first.svg", "again.svg"):
        figures_mnist.draw_pairs(records["factorised"], tmp_path / name)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
