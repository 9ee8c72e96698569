"""What applications say of a fit for other priors, of weighted rows, or of rows in groups."""

from types import SimpleNamespace

import numpy as np
import pytest

import collidescope as cs
from collidescope.applications._inputs import row_posteriors
from collidescope.datasets import GaussianProblem
from collidescope.limit import limit_from_posteriors
from collidescope.show.summary import summarise

#: The second class is rare among the rows; the fit is asked about equal shares.
RARE = GaussianProblem([[0.0, 0.0], [1.5, 0.0]], priors=[0.9, 0.1])
X, y = RARE.sample(1500, random_state=1)
PATIENT = np.arange(1500) // 30


def fitted(priors="empirical", **given):
    clf = cs.CollisionClassifier(
        members=["linear"], priors=priors, cv=3, random_state=0
    )
    return clf.fit(X, y, **given)


def row(found, metric="accuracy"):
    return found.table.set_index("metric").loc[metric]


def test_ceilings_of_a_fit_for_other_priors_are_those_of_its_rows():
    """Counted for equal shares, the most likely class would err on one row in seven."""
    found = row(cs.ceilings(fitted("uniform")))
    wanted = row(cs.ceilings(fitted()))
    assert found["now"] == pytest.approx(wanted["now"], abs=1e-9)
    assert found["low"] == pytest.approx(wanted["low"], abs=1e-9)
    ends = found["limit_low"], found["limit_high"]
    assert ends[0] < 1 - RARE.bayes_error() < ends[1]


def test_an_audit_by_a_fit_for_other_priors_does_not_find_the_best_rule_worse():
    said = RARE.posteriors(X).argmax(axis=1)
    found = cs.audit(fitted("uniform"), X, y, said)
    assert found.fixable_interval[0] < 0 < found.fixable_interval[1]
    # the range of the fit is that of equal shares
    assert found.inherent_interval is None


def test_chance_explains_the_unlikely_labels_of_a_fit_for_other_priors():
    """Labels were drawn from the posteriors, so none of them is wrong."""
    rows = summarise(fitted("uniform"), X, y)["ambiguous_rows"]
    expected = rows["expected_suspect"]
    assert abs(rows["n_suspect"] - expected) < 3 * expected**0.5


def test_posteriors_of_the_rows_are_those_before_they_were_shifted():
    shifted = fitted("uniform")
    plain = fitted()
    assert row_posteriors(shifted.posteriors_, shifted) == pytest.approx(
        plain.posteriors_, abs=1e-6
    )


def test_a_plan_for_other_priors_speaks_of_the_pber_of_the_fit():
    clf = fitted("uniform")
    found = cs.plan(clf, prices={"row": 1.0, "label": 1.0})
    assert found.pber == clf.collision_matrix_.pber
    assert "labels" not in found.table["option"].tolist()


def test_a_weighted_fit_gives_no_range_of_metrics_that_count_every_row_once():
    weights = np.random.default_rng(0).lognormal(0, 0.5, len(y))
    clf = fitted(sample_weight=weights)
    assert np.isnan(cs.ceilings(clf).table["limit_high"]).all()
    assert not np.isnan(cs.ceilings(fitted()).table["limit_high"]).all()


@pytest.mark.parametrize(
    "made", [cs.ceilings, lambda clf: cs.collisions_by(clf, None, y)]
)
def test_groups_of_the_fit_are_those_of_its_intervals(made):
    clf = fitted(groups=PATIENT)
    own = made(clf).table
    alone = SimpleNamespace(
        predict_proba=None,
        posteriors_=clf.posteriors_,
        classes_=clf.classes_,
        labels_=y,
    )
    assert (own["high"] - own["low"]).mean() > 0
    assert not own["high"].equals(made(alone).table["high"])


def test_a_file_without_the_groups_of_its_fit_gives_no_interval(tmp_path):
    clf = fitted(groups=PATIENT)
    clf.save(tmp_path / "model.collide")
    loaded = cs.load(tmp_path / "model.collide")
    with pytest.raises(ValueError, match="groups is needed"):
        cs.ceilings(loaded, y)
    again = cs.ceilings(loaded, y, groups=PATIENT).table
    assert again["high"].to_numpy() == pytest.approx(
        cs.ceilings(clf).table["high"].to_numpy(), abs=1e-3
    )


def test_the_audit_of_a_report_counts_the_groups_of_the_fit():
    said = np.where(X[:, 0] > 1.5, 1, 0)
    clf = fitted(groups=PATIENT)
    found = summarise(clf, X, y, y_pred=said)["audit"]
    wanted = cs.audit(clf.posteriors_, None, y, said, groups=PATIENT)
    assert found["error_interval"] == pytest.approx(wanted.error_interval)


def test_few_audited_rows_do_not_tell_what_is_not_learned_yet():
    """A hundred rows, of which 2 more or less are errors, beside the range of 20,000."""
    problem = GaussianProblem([[0.0], [2.0]])
    many, labels = problem.sample(20_000, random_state=0)
    P = problem.posteriors(many)
    limit = limit_from_posteriors([P, P, P, P], labels, [2500, 5000, 10_000, 20_000])
    held = 0
    for seed in range(40):
        few, own = problem.sample(100, random_state=seed + 1)
        posteriors = problem.posteriors(few)
        said = posteriors.argmax(axis=1)
        found = cs.audit(posteriors, None, own, said, limit=limit)
        assert found.not_learned_interval is not None
        held += found.not_learned_interval[0] == 0  # all is learned
    assert held >= 38
