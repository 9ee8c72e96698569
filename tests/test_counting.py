"""Counted S: repeated inputs and several labels per item, against brute force, planted truth and
the literature."""

import json
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array, csc_matrix
from scipy.stats import norm

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
from helpers import (
    assert_same,
    good,
    planted,
    planted_population,
    random_posteriors,
    told,
)
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
    each = np.array([cm.matrix for cm in runs])
    low, high = np.array([cm.interval() for cm in runs]).swapaxes(0, 1)
    target = each.mean(axis=0)
    # of rates too low to be seen in 300 rows: nearly always
    assert np.mean((low <= target) & (target <= high)) > 0.93
    if n == 4000:  # every row is covered: counting is unbiased for the truth
        error = np.abs(target - problem.collision_matrix().matrix)
        assert error.max() < 5 * each.std(axis=0).max() / np.sqrt(150)


def test_any_mixture_of_dtypes_is_grouped_by_exact_equality():
    columns = {
        "number": [1.0, 1.0, 2.0, 1.0],
        "text": ["x", "x", "x", "y"],
        "flag": [True] * 4,
        "category": pd.Categorical(["u"] * 4),
        "when": pd.to_datetime(["2020-01-01"] * 4),
        "gap": [np.nan, np.nan, 1.0, np.nan],
    }
    table = pd.DataFrame(columns)
    assert input_groups(table).tolist() == [0, 0, 1, 2]
    assert repeated_rows(table).tolist() == [True, True, False, False]


def test_products_of_levels_do_not_overflow(rng):
    many = rng.integers(0, 2**31, (500, 60))
    found = input_groups(np.concatenate([many, many])).tolist()
    assert found == [*range(500), *range(500)]


@pytest.mark.parametrize(
    "X",
    [
        np.array([[0.5], [0.5], [-0.0], [0.0]]),
        np.array([[1, "p"], [1, "p"], [2, "q"], [2, "q"]], dtype=object),
        list("ppqq"),
        pd.Series(list("ppqq"), dtype="category"),
    ],
    ids=["zeros", "objects", "text", "categories"],
)
def test_inputs_of_every_kind_are_counted(X):
    cm = count_collisions(X, ["a", "b", "a", "b"])
    assert cm.matrix.tolist() == [[0, 1], [1, 0]]


def by_ratio(Z, rho):
    """ΣZ/Σρ and its standard error, unit by unit."""
    total, n = rho.sum(axis=0)[:, None], len(Z)
    m = Z.sum(axis=0) / total
    left = Z - m * rho[:, :, None]
    return m, np.sqrt(n / (n - 1) * (left**2).sum(axis=0)) / total


def test_an_input_seen_up_to_four_times_is_one_unit_of_the_standard_error():
    rng = np.random.default_rng(3)
    X = np.repeat(np.arange(60), rng.integers(1, 5, 60))
    y = rng.integers(0, 3, len(X))
    counts = np.array([np.bincount(y[x == X], minlength=3) for x in range(60)])
    rho = counts[counts.sum(axis=1) > 1].astype(float)
    sizes = rho.sum(axis=1)
    pairs = rho[:, :, None] * rho[:, None] - rho[:, :, None] * np.eye(3)
    Z = pairs / (sizes - 1)[:, None, None]
    m, stderr = by_ratio(Z, rho)
    cm = count_collisions(X, y)
    assert np.allclose(cm.matrix, m, atol=1e-12)
    assert np.allclose(cm.stderr, stderr, rtol=1e-9)
    left = (1 - cm.pber) * sizes - np.trace(Z, axis1=1, axis2=2)
    n = len(sizes)
    expected = np.sqrt(n / (n - 1) * left @ left) / sizes.sum()
    assert cm.pber_stderr == pytest.approx(expected)
    assert cm.counts == pytest.approx(rho.sum(axis=0))
    assert np.allclose(cm.priors, cm.counts / cm.counts.sum())
    assert cm.coverage == pytest.approx(sizes.sum() / len(X))
    assert cm.diagnostics.distinct_inputs == n
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
    S, stderr = by_ratio(Z, rho)
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
    labels, order = np.array(names)[codes], rng.permutation(len(items))
    for other in (
        count_collisions(items[order], labels[order], average="items"),
        count_collisions(list(items), list(labels), average="items", classes=names),
        collision_matrix_from_votes(csc_matrix(votes), names),
        collision_matrix_from_votes(frame),
        collision_matrix_from_votes(frame[names[::-1]], names),
        collision_matrix_from_votes(da.from_array(votes, (400, k // 2)), names),
        collision_matrix_from_votes(dd.from_pandas(frame, npartitions=5)),
    ):
        assert_same(other, cm, rtol=1e-12)


def test_parts_of_one_cell_add_up():
    votes = coo_array(([2, 1, 1, 2], ([0, 0, 1, 1], [0, 0, 0, 1])))
    expected = collision_matrix_from_votes([[3, 0], [1, 2]])
    assert collision_matrix_from_votes(votes) == expected


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
    found = []
    for _ in range(300):
        cm = collision_matrix_from_votes(draw_votes(rng, P, weights, numbers(rng, 400)))
        low, high = cm.interval()
        found.append([cm.joint, (low <= S) & (high >= S)])
    joint, inside = np.mean(found, axis=0)
    error = np.std([each[0] for each in found], axis=0) / np.sqrt(300)
    assert (np.abs(joint - priors[:, None] * S) < 4 * error).all()
    assert 0.93 < inside.mean() < 0.98


@pytest.mark.filterwarnings("error")
def test_plans_reach_just_the_width_they_promise():
    rng = np.random.default_rng(3)
    P, weights = planted_population(3, sharpness=1)
    first = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(20_000, 5)))
    plans = votes_needed(first, 0.005).set_index("votes_per_item")
    # exact with two votes and with as many as at hand; in between and beyond the plan is on the
    # safe side
    for each, least in ((2, 0.96), (5, 0.96), (3, 0.9), (20, 0.7)):
        numbers = np.full(plans.loc[each, "items"], each)
        cm = collision_matrix_from_votes(draw_votes(rng, P, weights, numbers))
        assert least < 1.96 * cm.pber_stderr / 0.005 < 1.04, each


def test_more_votes_an_item_need_fewer_items_but_more_votes():
    rng = np.random.default_rng(3)
    P, weights = planted_population(3, sharpness=1)
    many = collision_matrix_from_votes(draw_votes(rng, P, weights, np.full(2000, 50)))
    plans = votes_needed(many, 0.01, level=0.9)
    assert plans["votes"].is_monotonic_increasing
    # Two votes have the variance of a coin; from there to that of the votes at hand it falls no
    # more slowly than 2/N.
    two = many.pber * (1 - many.pber)
    now = 2000 * many.pber_stderr**2
    steepest = (two - now) / (1 - 2 / 50)
    variance = two - steepest * (1 - 2 / plans["votes_per_item"])
    expected = np.ceil(variance * (norm.ppf(0.95) / 0.01) ** 2)
    assert plans["items"].tolist() == expected.tolist()


def test_two_votes_each_say_nothing_about_a_third():
    rng = np.random.default_rng(3)
    votes = draw_votes(rng, *planted_population(3, sharpness=1), np.full(500, 2))
    plans = votes_needed(collision_matrix_from_votes(votes), 0.02)
    assert plans["items"].nunique() == 1


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


@pytest.fixture
def hundred():
    """Votes on a hundred items of four classes."""
    rng = np.random.default_rng(5)
    numbers = rng.integers(2, 9, 100)
    return draw_votes(rng, *planted_population(4, sharpness=1), numbers)


def test_coefficients_are_the_functions_of_B_that_their_formulas_say(hundred):
    found = agreement(hundred)
    items = collision_matrix_from_votes(hundred)
    rows = count_collisions(*one_row_per_vote(hundred))
    kappa, alpha = (1 - cm.pber / (1 - (cm.priors**2).sum()) for cm in (items, rows))
    n = hundred.sum()
    alpha += (1 - alpha) / n
    assert found["value"]["Fleiss' kappa"] == pytest.approx(kappa)
    assert found["value"]["Krippendorff's alpha"] == pytest.approx(alpha)
    assert tuple(found.loc["PBER", ["low", "high"]]) == items.pber_interval()


@pytest.mark.parametrize("name", ["Fleiss' kappa", "Krippendorff's alpha"])
def test_intervals_of_coefficients_are_those_of_the_jackknife_over_items(hundred, name):
    left = [agreement(np.delete(hundred, u, axis=0))["value"][name] for u in range(100)]
    jackknife = np.sqrt(99) * np.std(left)
    found = agreement(hundred).loc[name]
    # The leverage of an item (3 of 100) widens the interval by 3%, one more item unlike all
    # others and fewer degrees of freedom by a few percent more.
    half = (found["high"] - found["low"]) / 2
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


def n_flagged(votes):
    """How many of these comparisons flag anybody."""
    return sum(compare_annotators(*own).annotators["flagged"].any() for own in votes)


def test_only_a_careless_annotator_is_flagged():
    rng = np.random.default_rng(6)
    # 5% and two and a half standard errors
    assert n_flagged(crowd(rng) for _ in range(30)) <= 0.15 * 30
    table = compare_annotators(*crowd(rng, 600, careless=0.7)).annotators
    assert table["annotator"][table["flagged"]].tolist() == [0]


def test_who_never_happens_to_use_a_rare_class_is_not_flagged():
    rng = np.random.default_rng(6)
    items, who = np.repeat(np.arange(50), 20), np.tile(np.arange(20), 50)

    def labels():
        common = rng.integers(0, 2, 50)[items]
        return np.where(rng.random(1000) < 0.05, 2, common)

    assert n_flagged((items, labels(), who) for _ in range(30)) <= 4


def test_an_annotator_who_prefers_a_class_where_opinions_are_even_is_flagged_by_the_use_of_it():
    rng = np.random.default_rng(7)
    items, who = np.repeat(np.arange(400), 5), np.tile(np.arange(5), 400)
    labels = rng.integers(0, 2, 2000)  # agreement is one half, whatever one says
    labels[who == 3] = 1
    table = compare_annotators(items, labels, who).annotators
    assert table["flagged"].tolist() == [False, False, False, True, False]
    assert abs(table["difference"][3]) < 0.05
    assert abs(table["used_by"][3]) == pytest.approx(0.5, abs=0.05)


@pytest.fixture
def report():
    """(a table of votes, one item having a single one, and the report about it)."""
    items, labels, who = crowd(np.random.default_rng(8), 40, 5, 3)
    table = pd.DataFrame({"item": items, "label": labels, "who": who})[:-2]
    return table, compare_annotators(table["item"], table["label"], table["who"])


def test_every_number_of_an_annotator_equals_a_loop_over_pairs(report):
    table, found = report
    for a, row in found.annotators.iterrows():
        rate, others = [], []
        for _, part in table.groupby("item"):
            own = part["who"] == a
            mine, rest = part["label"][own], part["label"][~own]
            if len(mine) and len(rest) > 1:
                rate.append((rest == mine.iloc[0]).mean())
                others.append(np.mean([x == y for x, y in combinations(rest, 2)]))
        expected = np.mean(rate), np.mean(others)
        assert (row["rate"], row["others"]) == pytest.approx(expected)
        rest = table[table["who"] != a]
        without = count_collisions(rest["item"], rest["label"], average="items")
        assert row["pber_without"] == pytest.approx(without.pber)
        assert np.allclose(found.without(a).matrix, without.matrix)


def test_every_pair_of_annotators_is_compared_on_the_items_of_both(report):
    table, found = report
    votes = table.pivot(index="item", columns="who", values="label")
    for _, pair in found.pairs.iterrows():
        both = votes[[pair["first"], pair["second"]]].dropna()
        same = both.nunique(axis=1) == 1
        assert pair["items"] == len(same)
        assert pair["agreement"] == pytest.approx(same.mean())
    written = json.loads(json.dumps(found.to_dict()))["pairs"]
    assert written[0]["items"] == found.pairs["items"][0]


@pytest.fixture
def opinions():
    """(rng, posteriors of 4,000 items, their S by ten votes each): a and b collide, c and d do."""
    rng = np.random.default_rng(9)
    P = np.kron(np.eye(2), [[0.8, 0.2], [0.2, 0.8]]).repeat(1000, axis=0)
    return rng, P, collision_matrix_from_votes(rng.multinomial(10, P), ABCD)


def verdicts(estimated, counted):
    pairs = compare(estimated, counted).pairs
    return dict(zip(pairs["class"] + pairs["other"], pairs["verdict"], strict=True))


ABCD = np.array(list("abcd"))


def test_the_three_verdicts_are_found_where_they_were_planted(opinions):
    rng, P, counted = opinions
    # labels of c and d without the noise of the votes
    labels = draw_classes(P, rng)
    labels[2000:] = P[2000:].argmax(axis=1)
    blind = np.eye(4)[labels]
    blind[:2000] = [0.5, 0.5, 0, 0]  # knows nothing about a and b
    found = verdicts(collision_matrix_from_posteriors(blind, ABCD[labels]), counted)
    planted_verdicts = {"not learned yet": "ab", "label noise or leak": "cd"}
    for verdict, (one, other) in planted_verdicts.items():
        assert verdict in (found.get(one + other), found.get(other + one))
    assert sum(verdict == "agreed" for verdict in found.values()) == 4


def test_the_true_posteriors_agree_with_votes_in_any_order_of_the_classes(opinions):
    rng, P, counted = opinions
    estimated = collision_matrix_from_posteriors(P, ABCD[draw_classes(P, rng)])
    votes = pd.DataFrame(rng.multinomial(10, P), columns=ABCD)[list("dcab")]
    for other in (counted, collision_matrix_from_votes(votes)):
        right = compare(estimated, other)
        assert set(right.pairs["verdict"]) == {"agreed"}
        assert right.pber["low"] < 0 < right.pber["high"]
    said = json.loads(json.dumps(right.to_dict()))["verdict"]
    assert "0 not learned yet, 0 label noise or leak, 6 agreed" in said


@pytest.fixture
def long(tmp_path, monkeypatch):
    """A table of a vote per row, one of which stands alone."""
    monkeypatch.chdir(tmp_path)
    items, labels, who = crowd(np.random.default_rng(10), 100)
    names = np.array(["cat", "dog", "owl"])[labels]
    table = pd.DataFrame({"id": items, "who": who, "label": names})
    table.loc[len(table)] = [1000, 1, "cat"]
    table.to_csv("long.csv", index=False)
    return table


LONG = "votes long.csv --item id --label label --annotator who"


def test_the_command_gives_the_matrix_of_python(long):
    done = good(f"{LONG} --report r.html --matrix m.json")
    assert "1 items have a single vote" in done.stderr
    assert "Krippendorff's alpha" in done.stdout
    expected = count_collisions(long["id"], long["label"], average="items")
    assert CollisionMatrix.from_json("m.json") == expected
    assert len(told(LONG)["votes"]["annotators"]) == 6


def test_the_command_takes_a_column_per_class(long):
    pd.crosstab(long["id"], long["label"]).to_csv("wide.csv")
    wide = told("votes wide.csv --wide --item id")["matrix"]
    assert np.allclose(wide, told(LONG)["matrix"], atol=1e-12)


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
