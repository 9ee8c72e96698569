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
from studies.known import led

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
def test_the_parts_of_the_error_add_up(k):
    rng = np.random.default_rng(0)
    (P, y), (_, said) = random_posteriors(rng, 400, k), random_posteriors(rng, 400, k)
    report = audit(P, y_true=y, y_pred=said)
    assert report.error == report.best + report.fixable
    assert report.error == pytest.approx((said != y).mean(), abs=1e-15)
    assert report.best == (P.argmax(axis=1) != y).mean()
    assert report.pairs["points"].sum() == pytest.approx(report.fixable, abs=1e-12)
    assert np.allclose(
        report.pairs["observed"] - report.pairs["best"], report.pairs["fixable"]
    )


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


def test_a_classifier_blind_to_one_feature_is_caught_at_the_pair_it_needs_that_feature_for():
    X, y, P = rows()
    blind = BLIND.classes[BLIND.posteriors(X[:, :2]).argmax(axis=1)]
    report = audit(P, y_true=y, y_pred=blind)
    found = report.pairs[report.pairs["flagged"]]
    assert set(zip(found["true"], found["predicted"], strict=True)) == {
        ("c", "d"),
        ("d", "c"),
    }
    # independently: the distance of c and d is 0.8 without the feature and sqrt(0.64 + 9) with it
    expected = (
        GaussianProblem([[0.0], [0.8]]).bayes_error()
        - GaussianProblem([[0.0], [9.64**0.5]]).bayes_error()
    )
    assert ((found["low"] < expected) & (expected < found["high"])).all()
    assert report.fixable_interval[0] > 0
    assert re.search(
        "could be fixed by a better model.*(c taken for d|d taken for c)",
        report.verdict,
        re.DOTALL,
    )
    everything = report.rows("c", "d", "all")
    assert everything.tolist() == np.flatnonzero((y == "c") & (blind == "d")).tolist()
    parts = {
        kind: report.rows("c", "d", kind) for kind in ("fixable", "inherent", "other")
    }
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
        report = audit(P, y_true=y, y_pred=said)
        assert (
            report.pairs.query("true == 'e' and predicted == 'f'")["fixable"].iloc[0]
            > 0.3
        )
        flags += int(report.pairs["flagged"].any())
    assert (
        flags <= 8
    )  # at a false discovery rate of 5% at most 3 are expected; 9 or more have a chance of 0.3%


def test_the_interval_of_what_is_fixable_covers():
    problem = led(0.15)
    X, y = problem.sample(200_000, 1, stratified=False)
    P = problem.posteriors(X)
    said = problem.posteriors(np.where(np.arange(X.shape[1]) == 3, 0, X)).argmax(
        axis=1
    )  # one segment is broken
    truth = (said != y).mean() - (P.argmax(axis=1) != y).mean()
    parts = [slice(start, start + 300) for start in range(0, 60_000, 300)]
    ends = np.array(
        [
            audit(P[part], y_true=y[part], y_pred=said[part]).fixable_interval
            for part in parts
        ]
    )
    assert (
        180 <= ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum() <= 199
    )  # of 200 at 95%


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
    limit = SimpleNamespace(bayes_error_interval=lambda level: (0.05, 0.12))
    report = audit(P, y, best(P)[::-1], limit=limit)
    assert report.inherent_interval == (0.05, 0.12)
    low, high = report.best_interval
    assert report.not_learned_interval == pytest.approx((low - 0.12, high - 0.05))
    assert "5.0 to 12.0 points are inherent" in report.verdict
    assert "not learned yet" in report.verdict
    without = audit(
        P, y_true=y, y_pred=best(P)[::-1]
    )  # the order that people try works too
    assert (without.not_learned_interval, without.fixable) == (None, report.fixable)
    assert "inherent in the data or not learned yet" in without.verdict


def test_a_class_without_rows_has_no_pairs_in_the_json():
    report = audit(
        [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1]],
        y_true=["a", "b"],
        y_pred=["a", "c"],
        classes=list("abc"),
    )
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
    codes = np.array([OVERLAP.classes.tolist().index(name) for name in y])
    wrong = rng.random(n) < rate
    step = rng.integers(1, 4, n) if kind == "symmetric" else np.ones(n, dtype=int)
    return X, OVERLAP.classes[np.where(wrong, (codes + step) % 4, codes)], wrong


def test_planted_errors_are_told_from_ambiguous_rows():
    X, y, wrong = noisy(0.05, "symmetric", 0)
    P = OVERLAP.posteriors(X)
    rows = ambiguous(P, y=y, classes=OVERLAP.classes).set_index("index").sort_index()
    alone = P[:, 2:].max(axis=1) > 0.99
    assert (rows["kind"].to_numpy()[alone & wrong] == "suspect label").all()
    assert (rows["kind"].to_numpy()[alone & ~wrong] == "clear").all()
    between = (P[:, 0] > 0.3) & (P[:, 1] > 0.3)
    assert (rows["kind"].to_numpy()[between & ~wrong] == "ambiguous").all()
    assert (rows["kind"] == "suspect label").sum() > 0.8 * (wrong & alone).sum()


def test_columns_say_what_the_posteriors_say():
    P = np.array([[0.6, 0.3, 0.1], [0.05, 0.05, 0.9], [0.2, 0.5, 0.3]])
    rows = ambiguous(P, y=["x", "x", "z"], classes=["x", "y", "z"])
    assert np.allclose(
        rows.pop("entropy"), [-(p * np.log(p)).sum() for p in P[[2, 0, 1]]]
    )
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
    by_label = ambiguous(P, y=y, by="label", top=7)
    assert (
        by_label["index"].tolist()
        == np.argsort(-label_error_scores(P, y), kind="stable")[:7].tolist()
    )


def test_without_stray_labels_scores_follow_the_posterior():
    P, _ = random_posteriors(np.random.default_rng(0), 200, 4)
    likely = P.argmax(axis=1)
    assert np.array_equal(
        np.argsort(-label_error_scores(P, likely)), np.argsort(P.max(axis=1))
    )
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
