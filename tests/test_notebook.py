"""Results show themselves in notebooks: as HTML, with every name escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import collidescope as cs

EVIL = "<script>alert('x')</script>"
VOID = {"br", "img", "input", "meta", "link", "hr"}


class Balance(HTMLParser):
    """Tags that were opened and never closed, or closed and never opened."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def check(html: str) -> str:
    parser = Balance()
    parser.feed(html)
    assert not parser.open
    assert not parser.wrong
    assert "<script>" not in html
    return html


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.repeat([EVIL, "b & c", "d"], 40)
    return rng.normal(size=(120, 2)) + np.repeat([[0, 0], [1, 0], [4, 4]], 40, axis=0), y


@pytest.fixture(scope="module")
def cm(rows):
    return cs.estimate_collisions(LogisticRegression(), *rows)


def test_a_collision_matrix_shows_escaped_names_and_its_headline(cm):
    html = check(cm._repr_html_())
    assert "&lt;script&gt;" in html
    assert "b &amp; c" in html
    assert f"{cm.pber:.2%}" in html


def test_a_plan_and_an_audit_show_escaped_names(rows, cm):
    X, y = rows
    assert "&lt;script&gt;" in check(cs.consolidate(cm, n_groups=2)._repr_html_())
    P = cs.crossfit_posteriors(LogisticRegression(), X, y)
    report = cs.audit(P, None, y, np.roll(y, 1))
    html = check(report._repr_html_())
    assert "&lt;script&gt;" in html
    assert f"{report.error:.1%}" in html


def test_the_controls_show_their_verdict(rows):
    control = cs.shuffled_control(LogisticRegression(), *rows)
    assert f"{control.largest_deviation:.3f}" in check(control._repr_html_())
    curve = cs.learning_curve(LogisticRegression(), *rows)
    html = check(curve._repr_html_())
    assert all(f"<td>{size}</td>" in html for size in curve.sizes)
    assert curve.to_frame()["pber"].tolist() == curve.pber.tolist()


def test_a_choice_of_smoothing_shows_every_strength(rows, cm):
    choice = cs.choose_smoothing(LogisticRegression(), *rows, cm, strengths=(0, 0.1))
    html = check(choice._repr_html_())
    assert f"Best strength {choice.best:g}" in html
    assert all(f"{loss:.4f}" in html for loss in choice.losses)


def test_a_recovery_shows_its_diagnostics_and_the_matrix(cm):
    recovery = cs.recover(cm.gramian, cm.priors)
    html = check(recovery._repr_html_())
    assert "condition number" in html
    assert f"{recovery.matrix[0, 1]:.3f}" in html


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (cs.divergences(norm(-1), norm(1)), "0.5504"),
        (cs.project([[0.52, -0.02], [-0.02, 0.52]], [0.5, 0.5]), "largest change"),
        (cs.posterior_error_bound(np.eye(2), np.eye(2), [0.6, 0.4], [0.5, 0.5]), "always holds"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_small_results_are_tables_of_names_and_values(result, shown):
    html = check(result._repr_html_())
    assert shown in html
    assert len(re.findall("<tr>", html)) == 4


def test_every_public_result_has_a_form_for_notebooks():
    results = [
        *("AuditReport", "CollisionClassifier", "CollisionMatrix", "ConsolidationPlan", "Divergences", "LearningCurve"),
        *("PosteriorErrorBound", "Projection", "Recovery", "ShuffledControl", "SmoothingChoice"),
    ]
    assert [name for name in results if not hasattr(getattr(cs, name), "_repr_html_")] == []
