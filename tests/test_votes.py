"""Several labels per item: S against brute force and planted truth, agreement against the literature, the command."""

from __future__ import annotations

import json
import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array, csr_array
from typer.testing import CliRunner

from collidescope import CollisionMatrix, collision_matrix_from_posteriors
from collidescope.applications.annotators import agreement, compare_annotators
from collidescope.applications.comparison import compare
from collidescope.cli.app import app
from collidescope.counting import collision_matrix_from_votes, count_collisions, votes_needed
from helpers import planted_population, random_posteriors

FIELDS = ("matrix", "priors", "stderr", "counts", "covariance", "pber_stderr", "coverage")


def draw_votes(rng: np.random.Generator, P: np.ndarray, weights: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Votes on random items of a finite population with posteriors ``P``; ``numbers`` of votes per item."""
    return rng.multinomial(numbers, P[rng.choice(len(P), len(numbers), p=weights)])


def unequal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Most items have two votes, some up to fifty."""
    return np.where(rng.random(n) < 0.7, 2, rng.integers(3, 51, n))


def one_row_per_vote(votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    items, classes = np.nonzero(votes)
    times = votes[items, classes]
    return np.repeat(items, times), np.repeat(classes, times)


# ------------------------------------------------------------------------------------------------ the matrix


def test_every_item_weighs_the_same_and_is_one_unit_of_the_standard_error():
    rng = np.random.default_rng(0)
    votes = draw_votes(rng, *planted_population(3, sharpness=1), rng.integers(0, 9, 80))
    Z = []
    for row in votes:  # the slow form: every ordered pair of different votes on one item
        labels = np.repeat(np.arange(3), row)
        pairs = [(a, b) for a, b in combinations(labels, 2)] + [(b, a) for a, b in combinations(labels, 2)]
        if pairs:
            Z.append(np.bincount([3 * a + b for a, b in pairs], minlength=9).reshape(3, 3) / len(pairs))
    Z = np.array(Z)
    n, rho = len(Z), Z.sum(axis=2)
    S = Z.sum(axis=0) / rho.sum(axis=0)[:, None]
    left = Z - S * rho[:, :, None]
    cm = collision_matrix_from_votes(votes)
    assert np.allclose(cm.matrix, S, atol=1e-12)
    assert np.allclose(cm.stderr, np.sqrt(n / (n - 1) * (left**2).sum(axis=0)) / rho.sum(axis=0)[:, None])
    assert np.allclose(cm.counts, rho.sum(axis=0))
    assert cm.pber_stderr == pytest.approx(np.std(np.trace(Z, axis1=1, axis2=2), ddof=1) / np.sqrt(n))
    i, j = np.triu_indices(3)
    assert np.allclose(cm.covariance, np.cov(Z[:, i, j].T) / n)
    totals = votes.sum(axis=1)
    assert cm.coverage == n / (totals > 0).sum()
    assert cm.info["inputs_seen_once"] == (totals == 1).sum()


@pytest.mark.parametrize("k", [4, 50])  # dense sums with covariance, sparse sums without
def test_long_wide_sparse_and_dask_forms_are_the_same_to_1e_12(k):
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(1)
    votes = draw_votes(rng, *planted_population(k, sharpness=1), unequal(rng, 4000))
    names = [f"class {j:02d}" for j in range(k)]
    frame = pd.DataFrame(votes, columns=names)
    cm = collision_matrix_from_votes(votes, names)
    items, codes = one_row_per_vote(votes)
    order = rng.permutation(len(items))
    labels = np.array(names)[codes]
    twice = coo_array(votes)  # entries of one cell in two parts add up
    twice = coo_array((np.r_[twice.data, twice.data], (np.r_[twice.row, twice.row], np.r_[twice.col, twice.col])))
    others = {
        "long": count_collisions(items[order], labels[order], average="items"),
        "long, objects": count_collisions(items.tolist(), labels.tolist(), average="items", classes=names),
        "sparse": collision_matrix_from_votes(csr_array(votes), names),
        "frame": collision_matrix_from_votes(frame),
        "frame, by name": collision_matrix_from_votes(frame[names[::-1]], names),
        "dask array": collision_matrix_from_votes(da.from_array(votes, chunks=(700, k // 2)), names),
        "dask frame": collision_matrix_from_votes(dd.from_pandas(frame, npartitions=5)),
    }
    for how, other in others.items():
        assert other.classes.tolist() == names
        for field in FIELDS:
            if getattr(cm, field) is not None:
                assert np.allclose(getattr(other, field), getattr(cm, field), rtol=1e-12, atol=1e-12), (how, field)
    assert np.allclose(collision_matrix_from_votes(twice, names).counts, cm.counts)


def test_rows_and_items_are_different_means_where_votes_are_unequal():
    votes = [[50, 0], [1, 1], [0, 2]]
    items, labels = one_row_per_vote(np.array(votes))
    assert collision_matrix_from_votes(votes).pber == pytest.approx(1 / 3)
    assert count_collisions(items, labels).pber == pytest.approx(2 / 54)
    equal = [[3, 1], [0, 4], [2, 2]]
    by_rows, by_items = (count_collisions(*one_row_per_vote(np.array(equal)), average=a) for a in ("rows", "items"))
    assert np.allclose(by_rows.matrix, by_items.matrix)


@pytest.mark.parametrize("numbers", [lambda rng, n: np.full(n, 3), unequal], ids=["equal", "unequal"])
def test_unbiased_and_covering_whatever_the_number_of_votes(numbers):
    rng = np.random.default_rng(2)
    P, weights = planted_population(3, sharpness=1.5)
    B = P.T @ (weights[:, None] * P)
    S = B / B.sum(axis=1, keepdims=True)
    runs = [collision_matrix_from_votes(draw_votes(rng, P, weights, numbers(rng, 400))) for _ in range(300)]
    joint = np.array([cm.joint for cm in runs])
    assert (np.abs(joint.mean(axis=0) - B) < 4 * joint.std(axis=0) / np.sqrt(300)).all()
    inside = [(cm.interval()[0] <= S) & (cm.interval()[1] >= S) for cm in runs]
    assert 0.93 < np.mean(inside) < 0.97
    pber = [cm.pber_interval()[0] <= 1 - np.trace(B) <= cm.pber_interval()[1] for cm in runs]
    assert 0.91 < np.mean(pber) < 0.99


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("COLLIDESCOPE_DATA"), reason="COLLIDESCOPE_DATA is not set")
def test_two_votes_per_image_agree_with_all_votes_within_their_intervals():
    file = Path(os.environ["COLLIDESCOPE_DATA"]) / "fashion_mnist_h" / "fashion_mnist_h.npz"
    if not file.exists():
        pytest.skip("the votes on Fashion-MNIST are not there")
    votes = np.load(file)["V"]
    everything = collision_matrix_from_votes(votes)
    assert everything.pber == pytest.approx(0.4047, abs=5e-5)
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(20):
        two = np.array([rng.multivariate_hypergeometric(row, 2) for row in votes])
        low, high = collision_matrix_from_votes(two).interval()
        inside.append((low <= everything.matrix) & (everything.matrix <= high))
    assert 0.93 < np.mean(inside) < 0.97


def test_plans_reach_the_width_they_promise_and_not_much_less():
    rng = np.random.default_rng(3)
    P, weights = planted_population(3, sharpness=1)
    first = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(20_000, 5)))
    for of in ("pber", (0, 2), "matrix"):
        plans = votes_needed(first, 0.005, of=of).set_index("votes_per_item")
        for each, least in ((2, 0.96), (5, 0.96), (3, 0.9), (20, 0.7)):
            cm = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(plans.loc[each, "items"], each)))
            stderr = {"pber": cm.pber_stderr, "matrix": cm.stderr.max()}.get(of) or cm.stderr[0, 2]
            # exact with two votes and with as many as at hand; in between and beyond the plan is on the safe side
            assert least < 1.96 * stderr / 0.005 < 1.04, (of, each)
    pairs_only = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(500, 2)))
    plans = votes_needed(pairs_only, 0.02)
    assert plans["items"].nunique() == 1  # two votes each say nothing about a third
    assert plans.attrs["within"] == 0


# ------------------------------------------------------------------------------------------------ annotators

#: The worked example of Fleiss' kappa with ten subjects and fourteen raters, which has kappa = 0.210.
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
#: Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C: nominal data with gaps, alpha = 0.743.
OBSERVERS = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]


def krippendorff_votes() -> np.ndarray:
    return np.array([[sum(row[u] == c for row in OBSERVERS) for c in "12345"] for u in range(12)])


def test_kappa_and_alpha_are_those_of_the_literature():
    assert agreement(FLEISS)["value"]["Fleiss' kappa"] == pytest.approx(0.210, abs=5e-4)
    assert agreement(krippendorff_votes())["value"]["Krippendorff's alpha"] == pytest.approx(0.743, abs=5e-4)


def test_alpha_is_that_of_a_public_package():
    public = pytest.importorskip("krippendorff")
    rng = np.random.default_rng(4)
    votes = draw_votes(rng, *planted_population(4, sharpness=1), rng.integers(1, 9, 50))
    for table in (votes, krippendorff_votes(), np.array(FLEISS)):
        expected = public.alpha(value_counts=table, level_of_measurement="nominal")
        assert agreement(table)["value"]["Krippendorff's alpha"] == pytest.approx(expected, abs=1e-12)


def test_coefficients_are_the_functions_of_B_that_their_formulas_say():
    rng = np.random.default_rng(5)
    votes = draw_votes(rng, *planted_population(4, sharpness=1), rng.integers(2, 9, 300))
    items, rows = collision_matrix_from_votes(votes), count_collisions(*one_row_per_vote(votes))
    told = agreement(votes)
    by_chance = [1 - (cm.priors**2).sum() for cm in (items, rows)]
    assert told["value"]["Fleiss' kappa"] == pytest.approx(1 - items.pber / by_chance[0])
    n = votes.sum()
    assert told["value"]["Krippendorff's alpha"] == pytest.approx(1 - rows.pber / by_chance[1] * (n - 1) / n)
    assert (told["low"]["PBER"], told["high"]["PBER"]) == pytest.approx(items.pber_interval())
    # intervals: the jackknife over items is an independent road to the same standard error
    for name in ("Fleiss' kappa", "Krippendorff's alpha"):
        left = [agreement(np.delete(votes, u, axis=0))["value"][name] for u in range(0, 300)]
        jackknife = np.sqrt(299 / 300 * ((np.array(left) - np.mean(left)) ** 2).sum())
        assert (told["high"][name] - told["low"][name]) / 2 == pytest.approx(1.968 * jackknife, rel=0.03)


def crowd(rng, n_items=200, n_people=6, each=4, careless=0.0):
    """Votes by people who draw them from the same posteriors; person 0 answers at random in a share of cases."""
    P, _ = random_posteriors(rng, n_items, 3)
    items = np.repeat(np.arange(n_items), each)
    who = np.argsort(rng.random((n_items, n_people)), axis=1)[:, :each].ravel()
    labels = (rng.random((len(items), 1)) >= P[items].cumsum(axis=1)).sum(axis=1).clip(0, 2)
    random = (who == 0) & (rng.random(len(items)) < careless)
    return items, np.where(random, rng.integers(0, 3, len(items)), labels), who


def test_a_careless_annotator_is_flagged_alone_and_nobody_is_where_all_vote_alike():
    rng = np.random.default_rng(6)
    flagged = [compare_annotators(*crowd(rng)).annotators["flagged"].any() for _ in range(100)]
    assert np.mean(flagged) <= 0.11  # 5% and two and a half standard errors
    report = compare_annotators(*crowd(rng, 600, careless=0.7))
    assert report.annotators["annotator"][report.annotators["flagged"]].tolist() == [0]
    assert "differ" in str(compare_annotators(*crowd(rng)))


def test_an_annotator_who_prefers_a_class_where_opinions_are_even_is_flagged_by_the_use_of_it():
    rng = np.random.default_rng(7)
    items, who = np.repeat(np.arange(400), 5), np.tile(np.arange(5), 400)
    labels = rng.integers(0, 2, 2000)  # agreement is one half, whatever one says
    labels[who == 3] = 1
    table = compare_annotators(items, labels, who).annotators
    assert table["flagged"].tolist() == [False, False, False, True, False]
    assert abs(table["difference"][3]) < 0.05
    assert abs(table["used_by"][3]) == pytest.approx(0.5, abs=0.05)


def test_every_number_of_an_annotator_equals_a_loop_over_pairs():
    rng = np.random.default_rng(8)
    items, labels, who = crowd(rng, 40, 5, 3)
    items, labels, who = items[:-2], labels[:-2], who[:-2]  # an item with one vote
    report = compare_annotators(items, labels, who)
    table = pd.DataFrame({"item": items, "label": labels, "who": who})
    for a, row in report.annotators.iterrows():
        rate, others = [], []
        for _, part in table.groupby("item"):
            mine, rest = part["label"][part["who"] == a], part["label"][part["who"] != a]
            if len(mine) and len(rest) > 1:
                rate.append((rest == mine.iloc[0]).mean())
                others.append(np.mean([x == y for x, y in combinations(rest, 2)]))
        assert (row["rate"], row["others"]) == pytest.approx((np.mean(rate), np.mean(others)))
        rest = who != a
        expected = count_collisions(items[rest], labels[rest], average="items")
        assert row["pber_without"] == pytest.approx(expected.pber)
        assert np.allclose(report.without(a).matrix, expected.matrix)
    for _, pair in report.pairs.iterrows():
        both = [table[table["who"] == pair[name]].set_index("item")["label"] for name in ("first", "second")]
        same = np.equal(*pd.concat(both, axis=1, join="inner").to_numpy().T)
        assert (pair["items"], pair["agreement"]) == (len(same), pytest.approx(same.mean()))
    assert json.loads(json.dumps(report.to_dict()))["pairs"][0]["items"] == report.pairs["items"][0]


# ------------------------------------------------------------------------------------------------ comparison


def test_the_three_verdicts_are_found_where_they_were_planted():
    rng = np.random.default_rng(9)
    P = np.repeat([[0.8, 0.2, 0, 0], [0.2, 0.8, 0, 0], [0, 0, 0.8, 0.2], [0, 0, 0.2, 0.8]], 1000, axis=0)
    counted = collision_matrix_from_votes(rng.multinomial(10, P), list("abcd"))
    y = (rng.random((4000, 1)) >= P.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    blind = P.copy()
    blind[:1000, :2] = blind[1000:2000, :2] = 0.5  # knows nothing about a and b
    clean = np.where(np.arange(4000) >= 2000, P.argmax(axis=1), y)  # labels of c and d without the noise of the votes
    names = np.array(list("abcd"))
    blind[2000:] = np.eye(4)[clean[2000:]]
    estimated = collision_matrix_from_posteriors(blind, names[clean])
    verdicts = compare(estimated, counted).pairs.set_index(["class", "other"])["verdict"].to_dict()
    found = {frozenset(pair): verdict for pair, verdict in verdicts.items()}
    assert found[frozenset("ab")] == "not learned yet"
    assert found[frozenset("cd")] == "label noise or leak"
    assert found[frozenset("ac")] == "agreed"
    right = compare(collision_matrix_from_posteriors(P, names[y]), counted)
    assert set(right.pairs["verdict"]) == {"agreed"}
    assert right.pber["low"] < 0 < right.pber["high"]
    assert json.loads(json.dumps(right.to_dict()))["pairs"][0]["verdict"] == "agreed"
    mixed = collision_matrix_from_votes(pd.DataFrame(rng.multinomial(10, P), columns=names)[list("dcab")])
    assert set(compare(collision_matrix_from_posteriors(P, names[y]), mixed).pairs["verdict"]) == {"agreed"}


# ------------------------------------------------------------------------------------------------ bad input

PAIR = CollisionMatrix([[0.9, 0.1], [0.1, 0.9]])
VOTES = [[2, 1], [0, 2]]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: collision_matrix_from_votes([[2, -1], [0, 2]]), r"votes must not be negative, got -1"),
        (lambda: collision_matrix_from_votes([[0.5, 0.5], [0, 2]]), r"votes must be whole numbers, got 0.5.*shares"),
        (lambda: collision_matrix_from_votes([3, 1]), r"votes must be a table .*\(2,\)"),
        (lambda: collision_matrix_from_votes([[1, 0], [0, 1]]), "no item with two votes.*second label"),
        (lambda: count_collisions([1, 2], ["a", "b"], average="items"), "no input that occurs twice.*second label"),
        (lambda: collision_matrix_from_votes([[2, 1, 0], [0, 2, 0]]), r"votes has classes \[2\] that never occur"),
        (lambda: collision_matrix_from_votes(pd.DataFrame(VOTES, index=["x", "x"])), "item 'x' in two rows.*groupby"),
        (lambda: collision_matrix_from_votes(pd.DataFrame(VOTES), ["a", 0]), "a column 1 that is not in classes"),
        (lambda: collision_matrix_from_votes(pd.DataFrame(VOTES), [0, 1, 2]), "no column for the class 2"),
        (lambda: count_collisions([1, 1], ["a", "b"], classes=["a", "c"]), "which is not in classes"),
        (lambda: agreement([[2, 0], [1, 0]]), "fewer than two items with two votes"),
        (lambda: agreement([[2, 0], [3, 0]]), "all for one class"),
        (lambda: compare_annotators([1, 1], ["a", "b"], ["x", "x"]), "annotators holds a single"),
        (lambda: compare_annotators([1, 1, 2], ["a", "b", "a"], ["x", "x", "y"]), "'x' twice on one item.*row 1"),
        (lambda: compare(PAIR, collision_matrix_from_votes(VOTES)), "estimated has no standard errors"),
        (lambda: compare(collision_matrix_from_votes(VOTES), VOTES), "counted must be a CollisionMatrix, got list"),
        (lambda: compare(*(collision_matrix_from_votes(VOTES, c) for c in ("ab", "ac"))), "classes"),
        (lambda: votes_needed(PAIR), "cm must come from votes"),
        (lambda: votes_needed(collision_matrix_from_votes(VOTES), of="S"), "of must be 'pber', 'matrix' or a pair"),
    ],
)
def test_bad_input_is_refused_with_what_came_and_what_to_try(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# ------------------------------------------------------------------------------------------------ the command


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_the_command_gives_the_matrix_of_python_in_both_forms(tmp_path):
    items, labels, who = crowd(np.random.default_rng(10), 100)
    table = pd.DataFrame({"id": items, "who": who, "label": np.array(["cat", "dog", "owl"])[labels]})
    table = pd.concat([table, pd.DataFrame({"id": [1000], "who": [1], "label": ["cat"]})])
    table.to_csv(tmp_path / "long.csv", index=False)
    pd.crosstab(table["id"], table["label"]).to_csv(tmp_path / "wide.csv")
    long = ["votes", tmp_path / "long.csv", "--item", "id", "--label", "label", "--annotator", "who"]
    guess = collision_matrix_from_posteriors(np.full((90, 3), 1 / 3), ["cat", "dog", "owl"] * 30)
    guess.to_json(tmp_path / "guess.json")
    done = run(*long, "--report", tmp_path / "r.html", "--matrix", tmp_path / "m.json", "-m", tmp_path / "guess.json")
    assert done.exit_code == 0, done.stderr
    assert "1 items have a single vote" in done.stderr
    assert "Krippendorff's alpha" in done.stdout
    cm = CollisionMatrix.from_json(tmp_path / "m.json")
    assert cm == count_collisions(table["id"], table["label"], average="items")
    page = (tmp_path / "r.html").read_text()
    for says in (
        "Krippendorff",
        "Who votes differently?",
        "What the model sees, and what people do",
        "not learned yet",
    ):
        assert says in page
    told = json.loads(run(*long, "--json").stdout)
    assert len(told["votes"]["annotators"]) == 6
    wide = json.loads(run("votes", tmp_path / "wide.csv", "--wide", "--item", "id", "--json").stdout)
    assert np.allclose(wide["matrix"], told["matrix"], atol=1e-12)
    for bad, says in (
        (["votes", tmp_path / "long.csv", "--label", "label"], "--item"),
        (["votes", tmp_path / "wide.csv", "--wide", "--label", "cat"], "leave out --label"),
        ([*long[:-1], "whom"], "no column 'whom'"),
    ):
        done = run(*bad)
        assert (done.exit_code, says in done.stderr) == (2, True), done.stderr
