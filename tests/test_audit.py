"""The audit: an exact split, planted weaknesses found; ambiguous rows and suspect labels told apart
where planted."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

from collidescope import crossfit_posteriors
from collidescope.applications import (
    ambiguous,
    audit,
    bayes_confusion,
    label_error_scores,
)
from collidescope.datasets import GaussianProblem
from helpers import random_posteriors

#: a and b overlap, c and d differ mostly in the third feature, e and f not at all.
MEANS = [[0, 0, 0], [1.2, 0, 0], [6, 0, 0], [6.8, 0, 3], [0, 8, 0], [0, 8, 0]]
PROBLEM = GaussianProblem(MEANS, classes=list("abcdef"))
BLIND = GaussianProblem(np.array(MEANS)[:, :2], classes=list("abcdef"))


def rows(n=3000, seed=0):
    X, y = PROBLEM.sample(n, seed, stratified=False)
    return X, y, PROBLEM.posteriors(X)


def best(P):
    return PROBLEM.classes[P.argmax(axis=1)]


@pytest.mark.parametrize("k", [2, 3, 8])
def test_the_parts_of_the_error_add_up(k, rng):
    (P, y), (_, said) = random_posteriors(rng, 400, k), random_posteriors(rng, 400, k)
    report = audit(P, y_true=y, y_pred=said)
    assert report.error == report.best + report.fixable
    assert report.error == pytest.approx((said != y).mean(), abs=1e-15)
    assert report.best == (P.argmax(axis=1) != y).mean()
    pairs = report.pairs
    assert pairs["points"].sum() == pytest.approx(report.fixable, abs=1e-12)
    assert np.allclose(pairs["observed"] - pairs["best"], pairs["fixable"])


def test_the_best_rule_audited_by_itself_has_nothing_to_fix():
    X, y, P = rows()
    report = audit(P, X, y, P)
    assert report.fixable == 0
    assert report.fixable_interval[0] < 0 < report.fixable_interval[1]
    assert not report.pairs["flagged"].any()
    assert "better features or more rows" in report.verdict
    assert report.error_interval[0] < PROBLEM.bayes_error() < report.error_interval[1]
    assert report.bayes_error_limit > PROBLEM.bayes_error()
    assert report.bayes_error == pytest.approx(PROBLEM.bayes_error(), abs=0.01)
    assert report.notes == ()


@pytest.fixture(scope="module")
def blind():
    """(X, y, posteriors, what a classifier says that does not see the third feature, its audit)."""
    X, y, P = rows()
    said = best(BLIND.posteriors(X[:, :2]))
    return X, y, P, said, audit(P, y_true=y, y_pred=said)


def test_a_classifier_blind_to_one_feature_is_caught_at_the_pair_it_needs_that_feature_for(
    blind,
):
    report = blind[-1]
    found = report.pairs[report.pairs["flagged"]]
    assert set(found["true"] + found["predicted"]) == {"cd", "dc"}
    # independently: the distance of c and d is 0.8 without the feature and sqrt(0.64 + 9) with it
    without, with_it = (
        GaussianProblem([[0.0], [apart]]).bayes_error() for apart in (0.8, 9.64**0.5)
    )
    assert found["low"].max() < without - with_it < found["high"].min()
    assert report.fixable_interval[0] > 0
    fix = "could be fixed by a better model.*(c taken for d|d taken for c)"
    assert re.search(fix, report.verdict, re.DOTALL)


def test_rows_of_a_pair_are_split_by_what_the_best_rule_says(blind):
    X, y, P, said, report = blind
    everything = report.rows("c", "d", "all")
    assert everything.tolist() == np.flatnonzero((y == "c") & (said == "d")).tolist()
    kinds = ("fixable", "inherent", "other")
    parts = {kind: report.rows("c", "d", kind) for kind in kinds}
    assert np.array_equal(np.sort(np.concatenate(list(parts.values()))), everything)
    assert (best(P)[parts["fixable"]] == "c").all()
    assert (best(P)[parts["inherent"]] == "d").all()
    # a fixable row is one that the hidden feature would have settled: c has it at 0, d at 3
    assert (X[parts["fixable"], 2] < 2).all()
    assert len(parts["fixable"]) > 5 * len(parts["inherent"])


def test_trading_one_error_for_its_reverse_is_no_weakness():
    """e and f are one distribution: whoever tosses a coin between them is as good as the rule that
    always says e."""
    flags = 0
    for seed in range(60):
        _, y, P = rows(600, seed)
        said = best(P)
        twins = np.isin(said, ["e", "f"])
        said[twins] = np.random.default_rng(seed).choice(["e", "f"], twins.sum())
        pairs = audit(P, y_true=y, y_pred=said).pairs.set_index(["true", "predicted"])
        assert pairs.loc[("e", "f"), "fixable"] > 0.3
        flags += pairs["flagged"].any()
    # At a false discovery rate of 5% at most 3 are expected; 9 or more have a chance of 0.3%.
    assert flags <= 8


def test_posteriors_that_know_less_than_the_classifier_are_called_so():
    X, y, P = rows()
    report = audit(BLIND.posteriors(X[:, :2]), y_true=y, y_pred=P)
    assert report.fixable_interval[1] < 0
    assert "Use better posteriors" in report.verdict
    assert not report.pairs["flagged"].any()


@pytest.mark.parametrize(
    ("power", "word"), [(4, "over-confident"), (0.25, "under-confident")]
)
def test_posteriors_that_claim_too_much_or_too_little_are_called_so(power, word):
    _, y, P = rows()
    powers = P**power
    claimed = powers / powers.sum(axis=1, keepdims=True)
    assert word in audit(claimed, y_true=y, y_pred=P).notes[0]


def test_a_perfect_classifier_has_nothing_to_fix():
    y = np.array([0, 1] * 50)
    report = audit(np.eye(2)[y], y_true=y, y_pred=y)
    assert (report.error, report.fixable, len(report.pairs)) == (0, 0, 0)
    assert "nothing to fix" in report.verdict
    assert audit(np.full((100, 2), 0.5), y_true=y, y_pred=y).fixable == -0.5


def test_the_limit_tells_the_inherent_from_the_not_learned_yet():
    _, y, P = rows()
    said = best(P)[::-1]
    limit = SimpleNamespace(bayes_error_interval=lambda level: (0.05, 0.12))
    report = audit(P, y, said, limit=limit)
    assert report.inherent_interval == (0.05, 0.12)
    low, high = report.best_interval
    assert report.not_learned_interval == pytest.approx((low - 0.12, high - 0.05))
    assert "5.0 to 12.0 points are inherent" in report.verdict
    assert "not learned yet" in report.verdict
    without = audit(P, y_true=y, y_pred=said)  # the order that people try works too
    assert (without.not_learned_interval, without.fixable) == (None, report.fixable)
    assert "inherent in the data or not learned yet" in without.verdict


def test_a_class_without_rows_has_no_pairs_in_the_json():
    P = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1]]
    report = audit(P, y_true=["a", "b"], y_pred=["a", "c"], classes=list("abc"))
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert [(pair["true"], pair["predicted"]) for pair in data["pairs"]] == [("b", "c")]
    assert data["verdict"] == report.verdict


def test_bayes_confusion_is_the_same_without_labels():
    assert np.isnan(
        bayes_confusion([[0.8, 0.1, 0.1]], ["a"], classes=list("abc"))[2]
    ).all()
    problem = GaussianProblem([[-1.0], [1.0]], priors=[0.8, 0.2])
    X, y = problem.sample(100_000, 0)
    P = problem.posteriors(X)
    assert np.allclose(bayes_confusion(P, y), bayes_confusion(P), atol=0.01)
    edge = np.log(0.8 / 0.2) / 2  # where the posteriors are even
    assert bayes_confusion(P, y)[1, 0] == pytest.approx(norm.cdf(edge - 1), abs=0.01)


#: Two classes that overlap by half, two that stand alone.
OVERLAP = GaussianProblem(
    [[0, 0], [1, 0], [7, 0], [7, 7]], classes=["cat", "dog", "car", "bus"]
)


def noisy(rate, kind, seed, n=1500):
    """(X, shown labels, which are wrong): labels replaced by any other, or by the next class."""
    rng = np.random.default_rng(seed)
    X, y = OVERLAP.sample(n, rng)
    names = OVERLAP.classes
    codes = np.argmax(y[:, None] == names, axis=1)
    wrong = rng.random(n) < rate
    step = rng.integers(1, 4, n) if kind == "symmetric" else 1
    return X, names[np.where(wrong, (codes + step) % 4, codes)], wrong


def test_planted_errors_are_told_from_ambiguous_rows():
    X, y, wrong = noisy(0.05, "symmetric", 0)
    P = OVERLAP.posteriors(X)
    rows = ambiguous(P, y=y, classes=OVERLAP.classes).set_index("index").sort_index()
    kind = rows["kind"].to_numpy()
    alone = P[:, 2:].max(axis=1) > 0.99
    assert (kind[alone & wrong] == "suspect label").all()
    assert (kind[alone & ~wrong] == "clear").all()
    between = (P[:, 0] > 0.3) & (P[:, 1] > 0.3)
    assert (kind[between & ~wrong] == "ambiguous").all()
    assert (kind == "suspect label").sum() > 0.8 * (wrong & alone).sum()


def test_columns_say_what_the_posteriors_say():
    P = np.array([[0.6, 0.3, 0.1], [0.05, 0.05, 0.9], [0.2, 0.5, 0.3]])
    rows = ambiguous(P, y=["x", "x", "z"], classes=["x", "y", "z"])
    entropy = -(P * np.log(P)).sum(axis=1)
    assert np.allclose(rows.pop("entropy"), entropy[[2, 0, 1]])
    assert rows.to_numpy().tolist() == [
        [2, "z", "y", "z", 0.3, 0.5, 0.3, "ambiguous"],
        [0, "x", "x", "y", 0.6, 0.6, 0.3, "ambiguous"],
        [1, "x", "z", "x", 0.05, 0.9, 0.05, "suspect label"],
    ]
    rows = ambiguous([[1.0, 0.0], [0.5, 0.5]])  # without labels nothing is suspect
    assert rows["kind"].tolist() == ["ambiguous", "clear"]
    assert rows[["label", "p_label"]].isna().all(axis=None)
    assert rows["entropy"].tolist() == [np.log(2), 0.0]


def test_the_order_follows_the_question():
    P, y = random_posteriors(np.random.default_rng(0), 200, 4)
    assert ambiguous(P, y=y)["entropy"].is_monotonic_decreasing
    margin = ambiguous(P, y=y, by="margin")
    assert (margin["p_first"] - margin["p_second"]).is_monotonic_increasing
    by_label = ambiguous(P, y=y, by="label", top=7)["index"]
    order = np.argsort(-label_error_scores(P, y), kind="stable")
    assert by_label.tolist() == order[:7].tolist()


def test_without_stray_labels_scores_follow_the_posterior():
    P, _ = random_posteriors(np.random.default_rng(0), 200, 4)
    order = np.argsort(-label_error_scores(P, P.argmax(axis=1)))
    assert np.array_equal(order, np.argsort(P.max(axis=1)))
    scores = label_error_scores([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], ["a", "b", "b"])
    assert np.isfinite(scores).all()  # also of a posterior of zero
    assert scores.argmax() == 2


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
def test_label_errors_are_ranked_above_inherent_ambiguity(kind):
    """Against the usual -p(label) and the margin, on the same cross-fitted posteriors: never worse
    than both."""
    found = []
    for seed in range(4):
        X, y, wrong = noisy(0.1, kind, seed, 800)
        P = crossfit_posteriors(LogisticRegression(), X, y, random_state=0)
        own = np.arange(800), np.searchsorted(np.unique(y), y)
        p_label, others = P[own], P.copy()
        others[own] = 0
        scores = label_error_scores(P, y), -p_label, others.max(axis=1) - p_label
        found.append([average_precision_score(wrong, score) for score in scores])
    ours, confidence, margin = np.mean(found, axis=0)
    assert ours > max(confidence, margin) - 0.01
    assert ours > 0.75
    assert kind == "symmetric" or ours > confidence + 0.01
