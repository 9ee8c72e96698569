"""Results in words: the headline says nothing that a classifier could refute, and names are escaped
in notebooks."""

from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

import collidescope as cs
from collidescope._text import headline, limit_words, percent, quote, short
from collidescope.matrix import bayes_error_bounds
from collidescope.trust import learning_curve, shuffled_control
from helpers import limit_like

EVIL = "<script>alert('x')</script>"


def check(html: str) -> str:
    """``html``, in which every tag that opens is closed and no name is markup."""
    parser, opened = HTMLParser(), []
    parser.handle_starttag = lambda tag, attrs: opened.append(tag)
    parser.handle_endtag = lambda tag: (
        opened.pop() == tag or pytest.fail(f"{tag} closed out of turn")
    )
    parser.feed(html)
    assert opened == []
    assert "<script>" not in html
    return html


y = np.repeat([EVIL, "b & c", "d"], 40)
X = np.random.default_rng(0).normal(size=(120, 2)) + np.repeat(
    [[0, 0], [1, 0], [4, 4]], 40, axis=0
)


@pytest.fixture(scope="module")
def cm():
    return cs.estimate_collisions(
        LogisticRegression(), X, y, limit=False, random_state=0
    )


def test_a_known_matrix_keeps_cover_and_harts_two_ends():
    known = cs.CollisionMatrix([[0.9, 0.1], [0.1, 0.9]])
    least, most = known.bayes_error_bounds()
    assert headline(known) == [
        "If labelled again, 10.0% of the inputs would get another label. [PBER]",
        "The best possible classifier of these inputs errs on "
        f"{percent(least)} to {percent(most)}. [Bayes error]",
    ]
    assert "No two classes collide" in headline(cs.CollisionMatrix(np.eye(2)))[1]


def test_no_sentence_about_an_estimate_is_refuted_by_a_support_vector_machine():
    pixels, digits = load_digits(return_X_y=True)
    P = cross_val_predict(
        GaussianNB(var_smoothing=0.1), pixels, digits, cv=3, method="predict_proba"
    )
    estimated = cs.collision_matrix_from_posteriors(P, digits)
    error = 1 - cross_val_score(SVC(gamma=0.001), pixels, digits, cv=3).mean()
    assert (
        error < bayes_error_bounds(estimated.pber, 10)[0]
    )  # the two ends of old, which bounded nothing
    said = headline(estimated)
    assert not any(" to " in sentence for sentence in said[1:])
    assert "errs on at most" in said[2]
    assert "not learned yet" in said[1]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("settled", "It is unclear whether more rows of this kind would change that"),
        ("still learning", "the rest is what the model has not learned yet"),
        ("hardly begun", "no lower limit can be given: the curve bends the wrong way."),
    ],
)
def test_each_state_of_the_limit_is_said_in_its_way(cm, state, says):
    limit = limit_like(cm, state, reason="the curve bends the wrong way.")
    said = headline(cm, limit)
    low, high = limit.pber_interval()
    assert says in said[1]
    assert (f"{percent(low)} to {percent(high)}" in said[1]) == (
        state != "hardly begun"
    )
    assert ("at least" in said[2]) == (state != "hardly begun")


def test_a_matrix_says_the_limit_that_it_carries(cm):
    limit = limit_like(cm, "settled")
    said = headline(cm, limit)
    carrying = replace(cm, limit=limit)
    assert headline(carrying) == said
    assert all(sentence in str(carrying) for sentence in said)


def test_a_merged_matrix_has_no_limit_to_say(cm):
    carrying = replace(cm, limit=limit_like(cm, "settled"))
    merged = carrying.merge([[EVIL, "d"]])
    assert (
        "was not estimated" in headline(merged)[1]
    )  # the limit was that of the classes apart


def test_a_limit_that_may_be_nothing_is_said_as_at_most():
    facts = {
        "pber": 0.012,
        "low": 0.00002,
        "high": 0.018,
        "undecided": False,
    }
    learning = limit_words(facts | {"state": "still learning"})
    assert (
        "leave at most 1.8% (most likely 1.2%, perhaps nothing); the rest" in learning
    )
    assert "leave at most 1.8% (perhaps nothing)." in limit_words(
        facts | {"state": "settled"}
    )


@pytest.mark.parametrize(("coverage", "first"), [(0.0015, True), (0.8, False)])
def test_counting_a_few_rows_headlines_how_few(cm, coverage, first):
    said = headline(replace(cm, coverage=coverage, method="counted"))
    assert said[0].startswith(
        f"Counted without a model on {percent(coverage)} of the rows (120 of "
    )
    assert ("not an answer for the whole table" in said[0]) == first
    assert "best possible" not in " ".join(said)
    assert f"at least {percent(coverage * cm.pber_interval()[0])}" in said[2]


def test_names_are_kept_apart_from_the_direction_of_the_sentence():
    assert quote("x\u202ey") == "xy"
    assert quote("قطة") == "“\u2068قطة\u2069”"


def test_names_are_cut_in_the_middle():
    assert short("a" * 50 + "b" * 50, 11) == "aaaaa…bbbbb"
    names = [f"a very long name of class {k}" for k in range(12)]
    wide = cs.CollisionMatrix(0.5 * np.eye(12) + 0.5 / 12, classes=names)
    assert max(map(len, str(wide).splitlines())) < 180


def test_results_show_their_headline_with_every_name_escaped(cm):
    html = check(cm._repr_html_())
    assert "b &amp; c" in html
    assert percent(cm.pber) in html
    P = cross_val_predict(LogisticRegression(), X, y, method="predict_proba")
    results = [cm, cs.consolidate(cm, n_groups=2), cs.audit(P, None, y, np.roll(y, 1))]
    assert all("&lt;script&gt;" in check(result._repr_html_()) for result in results)
    control = shuffled_control(LogisticRegression(), X, y)
    assert f"{control.largest_deviation:.3f}" in check(control._repr_html_())
    curve = learning_curve(SimpleNamespace(limit_=limit_like(cm)))
    assert f"<td>{curve.frame['pber'].iloc[0]:.4f}</td>" in check(curve._repr_html_())
