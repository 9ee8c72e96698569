"""Counted S: repeated inputs and several labels per item, against brute force, planted truth and
the literature."""

import json
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.sparse import coo_array, csc_matrix

from collidescope import (
    CollisionMatrix,
    collision_matrix_from_posteriors,
    collision_matrix_from_votes,
)
from collidescope.applications.annotators import agreement, compare, compare_annotators
from collidescope.counting import (
    count_collisions,
    input_groups,
    repeated_rows,
    votes_needed,
)
from collidescope.equations.densities import draw_classes
from helpers import assert_same, planted, planted_population, random_posteriors, run
from studies.known import led


def draw_votes(
    rng: np.random.Generator, P: np.ndarray, weights: np.ndarray, numbers: np.ndarray
) -> np.ndarray:
    """Votes on random items of a finite population with posteriors ``P``; ``numbers`` of votes per
    item."""
    return rng.multinomial(numbers, P[rng.choice(len(P), len(numbers), p=weights)])


def unequal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Most items have two votes, some up to fifty."""
    return np.where(rng.random(n) < 0.7, 2, rng.integers(3, 51, n))


def one_row_per_vote(votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    items, classes = np.nonzero(votes)
    times = votes[items, classes]
    return np.repeat(items, times), np.repeat(classes, times)


@pytest.mark.parametrize("n", [300, 4000])
def test_intervals_cover_however_often_inputs_repeat(n, rng):
    """From 2 to 31 rows an input; the target is what counting estimates on average, the rows
    covered being random."""
    problem = led(0.2)
    runs = [
        count_collisions(*problem.sample(n, rng, stratified=False)) for _ in range(150)
    ]
    target = np.mean([cm.matrix for cm in runs], axis=0)
    inside = [
        (cm.interval()[0] <= target) & (target <= cm.interval()[1]) for cm in runs
    ]
    # of rates too low to be seen in 300 rows: nearly always
    assert np.mean(inside) > 0.93
    if n == 4000:  # every row is covered: counting is unbiased for the truth
        error = np.abs(target - problem.collision_matrix().matrix)
        assert error.max() < 5 * np.std(
            [cm.matrix for cm in runs], axis=0
        ).max() / np.sqrt(150)


def test_any_mixture_of_dtypes_is_grouped_by_exact_equality():
    table = pd.DataFrame(
        {
            "number": [1.0, 1.0, 2.0, 1.0],
            "text": ["x", "x", "x", "y"],
            "flag": [True] * 4,
        }
    )
    table = table.assign(
        category=pd.Categorical(["u"] * 4), when=pd.to_datetime(["2020-01-01"] * 4)
    )
    table["gap"] = [np.nan, np.nan, 1.0, np.nan]
    assert input_groups(table).tolist() == [0, 0, 1, 2]
    # products of levels overflow
    many = np.random.default_rng(0).integers(0, 2**31, (500, 60))
    assert input_groups(np.concatenate([many, many])).tolist() == [
        *range(500),
        *range(500),
    ]
    assert repeated_rows(table).tolist() == [True, True, False, False]
    assert repeated_rows(["a"]).tolist() == [False]
    letters = ["p", "p", "q", "q"]
    mixed = np.array([[1, "p"], [1, "p"], [2, "q"], [2, "q"]], dtype=object)
    for X in (
        np.array([[0.5], [0.5], [-0.0], [0.0]]),
        mixed,
        letters,
        pd.Series(letters, dtype="category"),
    ):
        assert count_collisions(X, ["a", "b", "a", "b"]).matrix.tolist() == [
            [0, 1],
            [1, 0],
        ]


def by_ratio(
    units: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """ΣZ/Σρ and its standard error, unit by unit."""
    Z, rho = (np.array(part) for part in zip(*units, strict=True))
    m = Z.sum(axis=0) / rho.sum(axis=0)[:, None]
    left = Z - m * rho[:, :, None]
    return m, np.sqrt(len(Z) / (len(Z) - 1) * (left**2).sum(axis=0)) / rho.sum(axis=0)[
        :, None
    ]


def test_an_input_seen_up_to_four_times_is_one_unit_of_the_standard_error():
    rng = np.random.default_rng(3)
    X = np.repeat(np.arange(60), rng.integers(1, 5, 60))
    y = rng.integers(0, 3, len(X))
    counts = [np.bincount(y[x == X], minlength=3).astype(float) for x in range(60)]
    units = [
        ((np.outer(n, n) - np.diag(n)) / (n.sum() - 1), n)
        for n in counts
        if n.sum() > 1
    ]
    m, stderr = by_ratio(units)
    cm = count_collisions(X, y)
    assert np.allclose(cm.matrix, m, atol=1e-12)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    off, sizes = (
        np.array([n.sum() - np.trace(Z) for Z, n in units]),
        np.array([n.sum() for _, n in units]),
    )
    left = off - cm.pber * sizes
    assert cm.pber_stderr == pytest.approx(
        np.sqrt(len(off) / (len(off) - 1) * left @ left) / sizes.sum()
    )
    assert cm.counts == pytest.approx(sum(n for _, n in units))
    assert np.allclose(cm.priors, cm.counts / cm.counts.sum())
    assert cm.coverage == pytest.approx(sizes.sum() / len(X))
    assert cm.balance_gap < 1e-12
    assert cm.diagnostics.distinct_inputs == len(units)
    assert np.allclose(cm.merge([[0], [1], [2]]).stderr, cm.stderr)


def test_an_input_seen_more_often_is_one_unit_per_row_with_the_other_rows_as_its_posterior():
    times, rng = 5, np.random.default_rng(4)
    X = np.repeat(np.arange(40), times)
    y = (X + (rng.random(len(X)) < 0.3)) % 3
    others = (X[:, None] == X).astype(int) - np.eye(len(X), dtype=int)
    P = others @ np.eye(3)[y] / (times - 1)
    cm, one_step = count_collisions(X, y), collision_matrix_from_posteriors(P, y)
    assert one_step.diagnostics.moved < 1e-9
    assert np.allclose(cm.matrix, [P[y == c].mean(axis=0) for c in range(3)])
    for field in ("stderr", "covariance", "pber_stderr"):
        assert np.allclose(
            getattr(cm, field), getattr(one_step, field), rtol=1e-9, atol=1e-15
        )


@pytest.mark.parametrize("k", [32, 40])  # 3,787 and 8,333 inputs are a block
def test_inputs_beyond_one_block_are_counted_as_within_one(k):
    rng = np.random.default_rng(5)
    X = np.repeat(np.arange(20_000), rng.choice([2, 6], 20_000))
    y, order = rng.integers(0, k, len(X)), rng.permutation(len(X))
    one, other = (
        count_collisions(X, y),
        count_collisions(X[order], y[order]),
    )  # other inputs in each block
    assert_same(one, other, rtol=1e-9)
    assert one.counts == pytest.approx(np.bincount(y))


@pytest.mark.parametrize(
    "k", [3, 40]
)  # dense sums with covariance, sparse sums without
def test_every_item_is_one_unit(k, rng):
    votes = draw_votes(
        rng, *planted_population(k, sharpness=1), rng.integers(0, 9, 30 * k)
    )
    totals, Z = votes.sum(axis=1), []
    for row in votes[
        totals > 1
    ]:  # the slow form: every ordered pair of different votes on one item
        pairs = [k * a + b for a, b in permutations(np.repeat(np.arange(k), row), 2)]
        Z.append(np.bincount(pairs, minlength=k * k).reshape(k, k) / len(pairs))
    Z = np.array(Z)
    n, rho = len(Z), Z.sum(axis=2)
    S, stderr = by_ratio(zip(Z, rho, strict=True))
    cm = collision_matrix_from_votes(votes)
    assert np.allclose(cm.matrix, S, atol=1e-12)
    assert np.allclose(cm.stderr, stderr)
    assert np.allclose(cm.counts, rho.sum(axis=0))
    assert cm.pber_stderr == pytest.approx(
        np.std(np.trace(Z, axis1=1, axis2=2), ddof=1) / np.sqrt(n)
    )
    i, j = np.triu_indices(k)
    assert k == 40 or np.allclose(cm.covariance, np.cov(Z[:, i, j].T) / n)
    assert cm.coverage == n / (totals > 0).sum()
    assert cm.diagnostics.inputs_seen_once == (totals == 1).sum()


@pytest.mark.parametrize("k", [4, 50])
def test_every_form_of_votes_gives_the_same_to_1e_12(k):
    da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(1)
    votes = draw_votes(rng, *planted_population(k, sharpness=1), unequal(rng, 1500))
    names = [f"class {j:02d}" for j in range(k)]
    frame = pd.DataFrame(votes, columns=names)
    cm = collision_matrix_from_votes(votes, names)
    items, codes = one_row_per_vote(votes)
    order, labels, cells = (
        rng.permutation(len(items)),
        np.array(names)[codes],
        coo_array(votes),
    )
    others = {
        "long": count_collisions(items[order], labels[order], average="items"),
        "long, objects": count_collisions(
            items.tolist(), labels.tolist(), average="items", classes=names
        ),
        "sparse": collision_matrix_from_votes(csc_matrix(votes), names),
        "frame": collision_matrix_from_votes(frame),
        "frame, by name": collision_matrix_from_votes(frame[names[::-1]], names),
        "dask array": collision_matrix_from_votes(
            da.from_array(votes, chunks=(400, k // 2)), names
        ),
        "dask frame": collision_matrix_from_votes(dd.from_pandas(frame, npartitions=5)),
    }
    for other in others.values():
        assert_same(other, cm, rtol=1e-12)
    twice = coo_array(
        (np.tile(cells.data, 2), (np.tile(cells.row, 2), np.tile(cells.col, 2)))
    )
    # parts of one cell add up
    assert np.allclose(collision_matrix_from_votes(twice, names).counts, cm.counts)


def test_the_mean_of_rows_is_not_that_of_items_where_votes_are_unequal():
    votes = [[50, 0], [1, 1], [0, 2]]
    items, labels = one_row_per_vote(np.array(votes))
    assert collision_matrix_from_votes(votes).pber == pytest.approx(1 / 3)
    assert count_collisions(items, labels).pber == pytest.approx(2 / 54)
    equal = one_row_per_vote(np.array([[3, 1], [0, 4], [2, 2]]))
    assert np.allclose(
        count_collisions(*equal).matrix,
        count_collisions(*equal, average="items").matrix,
    )


@pytest.mark.parametrize(
    "numbers", [lambda rng, n: np.full(n, 3), unequal], ids=["equal", "unequal"]
)
def test_votes_estimate_the_truth_whatever_their_number(numbers):
    rng = np.random.default_rng(2)
    P, weights = planted_population(3, sharpness=1.5)
    S, priors = planted(3, sharpness=1.5)
    B = priors[:, None] * S
    runs = [
        collision_matrix_from_votes(draw_votes(rng, P, weights, numbers(rng, 400)))
        for _ in range(300)
    ]
    joint = np.array([cm.joint for cm in runs])
    assert (np.abs(joint.mean(axis=0) - B) < 4 * joint.std(axis=0) / np.sqrt(300)).all()
    inside = [(cm.interval()[0] <= S) & (cm.interval()[1] >= S) for cm in runs]
    assert 0.93 < np.mean(inside) < 0.98
    pber = [
        cm.pber_interval()[0] <= 1 - np.trace(B) <= cm.pber_interval()[1] for cm in runs
    ]
    assert 0.91 < np.mean(pber) < 0.99


@pytest.mark.filterwarnings("error")
def test_plans_reach_just_the_width_they_promise():
    rng = np.random.default_rng(3)
    P, weights = planted_population(3, sharpness=1)
    first = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(20_000, 5)))
    for of in ("pber", (0, 2), "matrix"):
        plans = votes_needed(first, 0.005, of=of).set_index("votes_per_item")
        for each, least in ((2, 0.96), (5, 0.96), (3, 0.9), (20, 0.7)):
            cm = collision_matrix_from_votes(
                draw_votes(rng, P, weights, np.full(plans.loc[each, "items"], each))
            )
            stderr = {"pber": cm.pber_stderr, "matrix": cm.stderr.max()}.get(
                of
            ) or cm.stderr[0, 2]
            # exact with two votes and with as many as at hand; in between and beyond the plan is on
            # the safe side
            assert least < 1.96 * stderr / 0.005 < 1.04, (of, each)
    many = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(2000, 50)))
    plans = votes_needed(many, 0.01, level=0.9)
    assert plans["votes"].is_monotonic_increasing
    assert (
        votes_needed(collision_matrix_from_votes([[3, 0], [0, 3], [2, 1]] * 40), 0.05)[
            "votes_per_item"
        ][0]
        == 3
    )
    # two votes have the variance of a coin; from there to that of the votes at hand it falls no
    # more slowly than 2/N
    two, now = many.pber * (1 - many.pber), 2000 * many.pber_stderr**2
    steepest = (two - now) / (1 - 2 / 50)
    expected = np.ceil(
        (two - steepest * (1 - 2 / plans["votes_per_item"]))
        * (stats.norm.ppf(0.95) / 0.01) ** 2
    )
    assert plans["items"].tolist() == expected.tolist()
    assert plans.attrs["between"] + plans.attrs["within"] == pytest.approx(two)
    pairs_only = collision_matrix_from_votes(
        draw_votes(rng, P, weights, np.full(500, 2))
    )
    plans = votes_needed(pairs_only, 0.02)
    assert plans["items"].nunique() == 1  # two votes each say nothing about a third
    assert plans.attrs["within"] == 0


#: The worked example of Fleiss' kappa with ten subjects and fourteen raters, which has kappa =
#: 0.210.
FLEISS = [
    [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
]  # fmt: skip
#: Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C: nominal data with
#: gaps, alpha = 0.743.
OBSERVERS = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
KRIPPENDORFF = np.array(
    [[sum(row[u] == c for row in OBSERVERS) for c in "12345"] for u in range(12)]
)


def test_coefficients_are_those_of_the_literature():
    assert agreement(FLEISS)["value"]["Fleiss' kappa"] == pytest.approx(0.210, abs=5e-4)
    assert agreement(KRIPPENDORFF)["value"]["Krippendorff's alpha"] == pytest.approx(
        0.743, abs=5e-4
    )


def test_coefficients_are_the_functions_of_B_that_their_formulas_say():
    rng = np.random.default_rng(5)
    votes = draw_votes(
        rng, *planted_population(4, sharpness=1), rng.integers(2, 9, 100)
    )
    items, rows = (
        collision_matrix_from_votes(votes),
        count_collisions(*one_row_per_vote(votes)),
    )
    told = agreement(votes)
    by_chance = [1 - (cm.priors**2).sum() for cm in (items, rows)]
    assert told["value"]["Fleiss' kappa"] == pytest.approx(
        1 - items.pber / by_chance[0]
    )
    n = votes.sum()
    assert told["value"]["Krippendorff's alpha"] == pytest.approx(
        1 - rows.pber / by_chance[1] * (n - 1) / n
    )
    assert (told["low"]["PBER"], told["high"]["PBER"]) == pytest.approx(
        items.pber_interval()
    )
    # intervals: the jackknife over items is an independent way to the standard error
    for name in ("Fleiss' kappa", "Krippendorff's alpha"):
        left = [
            agreement(np.delete(votes, u, axis=0))["value"][name] for u in range(100)
        ]
        jackknife = np.sqrt(99 / 100 * ((np.array(left) - np.mean(left)) ** 2).sum())
        # The leverage of an item (3 of 100) widens the interval by 3%, one more item unlike all
        # others and fewer degrees of freedom by a few percent more.
        half = (told["high"][name] - told["low"][name]) / 2
        assert 1.03 <= half / (1.984 * jackknife) <= 1.15


def crowd(rng, n_items=200, n_people=6, each=4, careless=0.0):
    """Votes by people who draw them from the same posteriors; person 0 answers at random in a share
    of cases."""
    P, _ = random_posteriors(rng, n_items, 3)
    items = np.repeat(np.arange(n_items), each)
    who = np.argsort(rng.random((n_items, n_people)), axis=1)[:, :each].ravel()
    labels = draw_classes(P[items], rng)
    random = (who == 0) & (rng.random(len(items)) < careless)
    return items, np.where(random, rng.integers(0, 3, len(items)), labels), who


def test_only_a_careless_annotator_is_flagged():
    rng = np.random.default_rng(6)
    flagged = [
        compare_annotators(*crowd(rng)).annotators["flagged"].any() for _ in range(30)
    ]
    assert np.mean(flagged) <= 0.15  # 5% and two and a half standard errors
    items, who = (
        np.repeat(np.arange(50), 20),
        np.tile(np.arange(20), 50),
    )  # some never happen to use a rare class
    drawn = (
        np.where(rng.random(1000) < 0.05, 2, rng.integers(0, 2, 50)[items])
        for _ in range(30)
    )
    assert (
        sum(
            compare_annotators(items, labels, who).annotators["flagged"].any()
            for labels in drawn
        )
        <= 4
    )
    table = compare_annotators(*crowd(rng, 600, careless=0.7)).annotators
    assert table["annotator"][table["flagged"]].tolist() == [0]


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
            mine, rest = (
                part["label"][part["who"] == a],
                part["label"][part["who"] != a],
            )
            if len(mine) and len(rest) > 1:
                rate.append((rest == mine.iloc[0]).mean())
                others.append(np.mean([x == y for x, y in combinations(rest, 2)]))
        assert (row["rate"], row["others"]) == pytest.approx(
            (np.mean(rate), np.mean(others))
        )
        rest = who != a
        expected = count_collisions(items[rest], labels[rest], average="items")
        assert row["pber_without"] == pytest.approx(expected.pber)
        assert np.allclose(report.without(a).matrix, expected.matrix)
    for _, pair in report.pairs.iterrows():
        both = [
            table[table["who"] == pair[name]].set_index("item")["label"]
            for name in ("first", "second")
        ]
        same = np.equal(*pd.concat(both, axis=1, join="inner").to_numpy().T)
        assert (pair["items"], pair["agreement"]) == (
            len(same),
            pytest.approx(same.mean()),
        )
    assert (
        json.loads(json.dumps(report.to_dict()))["pairs"][0]["items"]
        == report.pairs["items"][0]
    )


def test_the_three_verdicts_are_found_where_they_were_planted():
    rng = np.random.default_rng(9)
    P = np.repeat(
        [[0.8, 0.2, 0, 0], [0.2, 0.8, 0, 0], [0, 0, 0.8, 0.2], [0, 0, 0.2, 0.8]],
        1000,
        axis=0,
    )
    counted = collision_matrix_from_votes(rng.multinomial(10, P), list("abcd"))
    y = draw_classes(P, rng)
    blind = P.copy()
    blind[:1000, :2] = blind[1000:2000, :2] = 0.5  # knows nothing about a and b
    # labels of c and d without the noise of the votes
    clean = np.where(np.arange(4000) >= 2000, P.argmax(axis=1), y)
    names = np.array(list("abcd"))
    blind[2000:] = np.eye(4)[clean[2000:]]
    estimated = collision_matrix_from_posteriors(blind, names[clean])
    pairs = compare(estimated, counted).pairs
    found = dict(
        zip(
            map(frozenset, pairs[["class", "other"]].to_numpy()),
            pairs["verdict"],
            strict=True,
        )
    )
    verdicts = [found[frozenset(pair)] for pair in ("ab", "cd", "ac")]
    assert verdicts == ["not learned yet", "label noise or leak", "agreed"]
    right = compare(collision_matrix_from_posteriors(P, names[y]), counted)
    assert set(right.pairs["verdict"]) == {"agreed"}
    assert right.pber["low"] < 0 < right.pber["high"]
    assert (
        "0 not learned yet, 0 label noise or leak, 6 agreed"
        in json.loads(json.dumps(right.to_dict()))["verdict"]
    )
    mixed = collision_matrix_from_votes(
        pd.DataFrame(rng.multinomial(10, P), columns=names)[list("dcab")]
    )
    assert set(
        compare(collision_matrix_from_posteriors(P, names[y]), mixed).pairs["verdict"]
    ) == {"agreed"}


def test_the_command_gives_the_matrix_of_python_in_both_forms(tmp_path):
    items, labels, who = crowd(np.random.default_rng(10), 100)
    table = pd.DataFrame(
        {"id": items, "who": who, "label": np.array(["cat", "dog", "owl"])[labels]}
    )
    table = pd.concat(
        [table, pd.DataFrame({"id": [1000], "who": [1], "label": ["cat"]})]
    )
    table.to_csv(tmp_path / "long.csv", index=False)
    pd.crosstab(table["id"], table["label"]).to_csv(tmp_path / "wide.csv")
    long = [
        "votes",
        tmp_path / "long.csv",
        "--item",
        "id",
        "--label",
        "label",
        "--annotator",
        "who",
    ]
    done = run(*long, "--report", tmp_path / "r.html", "--matrix", tmp_path / "m.json")
    assert done.exit_code == 0, done.stderr
    assert "1 items have a single vote" in done.stderr
    assert "Krippendorff's alpha" in done.stdout
    cm = CollisionMatrix.from_json(tmp_path / "m.json")
    assert cm == count_collisions(table["id"], table["label"], average="items")
    told = json.loads(run(*long, "--json").stdout)
    assert len(told["votes"]["annotators"]) == 6
    wide = json.loads(
        run("votes", tmp_path / "wide.csv", "--wide", "--item", "id", "--json").stdout
    )
    assert np.allclose(wide["matrix"], told["matrix"], atol=1e-12)


def test_the_held_out_vote_error_is_that_of_a_loop_over_votes():
    votes = np.random.default_rng(0).multinomial(5, [0.5, 0.3, 0.2], 200)
    wrong = []
    for item in votes:
        missed = 0.0
        for k in np.flatnonzero(item):
            others = item - np.eye(3, dtype=int)[k]
            leads = others == others.max()
            missed += item[k] * (1 - leads[k] / leads.sum())
        wrong.append(missed / 5)
    cm = collision_matrix_from_votes(votes)
    assert cm.held_out_error == pytest.approx(np.mean(wrong))
    assert cm.held_out_stderr == pytest.approx(np.std(wrong, ddof=1) / np.sqrt(200))


def test_the_error_limit_of_votes_holds_below_the_pber(rng):
    P, weights = planted_population(3, sharpness=1.5)
    best = 1 - weights @ P.max(axis=1)
    limits = []
    for _ in range(100):
        cm = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(400, 10)))
        limits.append(cm.bayes_error_limit())
    assert np.mean(np.array(limits) >= best) >= 0.95
    assert np.mean(limits) < cm.pber
