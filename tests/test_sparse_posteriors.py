"""Sparse posteriors give the numbers of dense ones, in the memory of their entries."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix
from sklearn.preprocessing import normalize

from collidescope import (
    CollisionAccumulator,
    CollisionWarning,
    collision_matrix_from_posteriors,
    onestep,
)
from collidescope.equations.densities import draw_classes
from collidescope.theory import (
    accumulate,
    gramian_from_posteriors,
    shrunk_collision_matrix,
)
from helpers import assert_same

pytestmark = pytest.mark.filterwarnings("ignore::collidescope.CollisionWarning")


def top_rows(n: int, k: int, kept: int = 3, seed: int = 0) -> tuple[csr_array, ...]:
    """Posteriors with ``kept`` entries a row, labels drawn from them, weights and groups."""
    rng = np.random.default_rng(seed)
    columns = np.argsort(rng.random((n, k)), axis=1)[:, :kept]
    P = np.zeros((n, k))
    np.put_along_axis(P, columns, rng.dirichlet(np.full(kept, 0.4), n), axis=1)
    y = draw_classes(P, rng)
    y[:k] = np.arange(k)  # every class has a row, some beyond the kept classes
    w = rng.uniform(0.2, 2.0, n)
    w[-1] = 1e-5  # such weights keep the sums of dense rows in float64
    groups = rng.integers(0, n // 4, n)
    groups[: n // 10] = 0  # one of many rows
    return csr_array(P), y, w, groups


#: two classes, the most with a covariance, and more
@pytest.mark.parametrize("k", [2, 32, 33])
@pytest.mark.parametrize("given", ["y", "groups", "uniform", "uniform groups", ""])
def test_sparse_posteriors_give_the_numbers_of_dense_ones(k, given):
    P, y, w, groups = top_rows(900, k, kept=min(k, 3))
    more = {"classes": np.arange(k), "sample_weight": w}
    if given:
        more["y"] = y
    if "groups" in given:
        more["groups"] = groups
    if "uniform" in given:
        more["priors"] = "uniform"
    expected = collision_matrix_from_posteriors(P.toarray(), **more)
    assert_same(collision_matrix_from_posteriors(P, **more), expected, 1e-12)


def test_priors_of_many_classes_shift_sparse_rows_as_dense_ones(monkeypatch):
    monkeypatch.setattr(onestep, "MAX_STRATA", 10)
    P, y, w, _ = top_rows(900, 40)
    more = {"sample_weight": w, "priors": "uniform"}
    expected = collision_matrix_from_posteriors(P.toarray(), y, **more)
    assert_same(collision_matrix_from_posteriors(P, y, **more), expected, 1e-12)


def test_groups_of_unlabelled_sparse_rows_give_the_numbers_of_dense_ones():
    P, _, _, groups = top_rows(900, 40)
    expected = collision_matrix_from_posteriors(P.toarray(), groups=groups)
    assert_same(collision_matrix_from_posteriors(P, groups=groups), expected, 1e-12)


@pytest.mark.parametrize("form", [csr_matrix, csc_matrix, coo_array])
def test_every_sparse_format_is_taken(form):
    P, y, w, _ = top_rows(900, 40)
    expected = collision_matrix_from_posteriors(P, y, sample_weight=w)
    found = collision_matrix_from_posteriors(form(P), y, sample_weight=w)
    assert_same(found, expected, 1e-12)


def test_an_entry_given_twice_is_added_up():
    row, column = [0, 0, 0, 1, 1], [0, 1, 0, 1, 0]
    twice = coo_array(([0.5, 0.1, 0.4, 0.8, 0.2], (row, column))).tocsr()
    doubled = csr_array(
        (np.array([0.5, 0.4, 0.1, 0.8, 0.2]), [0, 0, 1, 1, 0], [0, 3, 5])
    )
    expected = collision_matrix_from_posteriors(twice.toarray(), ["a", "b"])
    assert_same(collision_matrix_from_posteriors(doubled, ["a", "b"]), expected, 1e-12)


def test_an_accumulator_adds_sparse_chunks_up():
    P, y, w, _ = top_rows(900, 40)
    chunks = [(P[part], y[part], w[part]) for part in np.split(np.arange(900), 3)]
    expected = collision_matrix_from_posteriors(P.toarray(), y, sample_weight=w)
    assert_same(accumulate(chunks, np.arange(40)), expected, 1e-12)


def test_an_accumulator_with_priors_takes_sparse_chunks():
    P, y, w, _ = top_rows(900, 5)
    parts = []
    for rows in (P, P.toarray()):
        accumulator = CollisionAccumulator(np.arange(5), priors=np.full(5, 0.2))
        parts.append(accumulator.update(rows, y, w).result())
    assert_same(*parts, 1e-12)


def test_shrinking_takes_sparse_posteriors():
    P, y, w, _ = top_rows(900, 60)
    expected = shrunk_collision_matrix(P.toarray(), y, sample_weight=w)
    found = shrunk_collision_matrix(P, y, sample_weight=w)
    assert found.diagnostics.one_step_share < 1
    assert_same(found, expected, 1e-12)


def test_float32_rounding_of_sparse_rows_is_scaled_away():
    P, y, _, _ = top_rows(900, 40)
    found = collision_matrix_from_posteriors(P.astype(np.float32), y)
    expected = collision_matrix_from_posteriors(P.toarray().astype(np.float32), y)
    assert_same(found, expected, 1e-12)


def test_truncated_rows_are_refused_with_the_line_that_scales_them():
    P, y, _, _ = top_rows(900, 40)
    P.data[0] = 0
    with pytest.raises(
        ValueError, match=r"row 0 sums to .*normalize\(P, norm=\"l1\"\)"
    ):
        collision_matrix_from_posteriors(P, y)
    assert collision_matrix_from_posteriors(normalize(P, norm="l1"), y).pber > 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [(np.nan, "P.data must be finite"), (-0.5, "P must hold probabilities")],
)
def test_a_bad_entry_of_sparse_rows_is_refused(entry, message):
    P, y, _, _ = top_rows(900, 40)
    P.data[7] = entry
    with pytest.raises(ValueError, match=message):
        collision_matrix_from_posteriors(P, y)


def test_other_labels_than_columns_are_refused():
    P, y, _, _ = top_rows(900, 40)
    with pytest.raises(ValueError, match="P has 40 columns and y has 39 distinct"):
        collision_matrix_from_posteriors(P, np.minimum(y, 38))


def test_votes_beside_sparse_posteriors_are_refused():
    P, _, _, _ = top_rows(900, 40)
    with pytest.raises(ValueError, match=r"votes must be left out with a sparse P"):
        collision_matrix_from_posteriors(P, votes=np.ones((900, 40)))


def test_functions_of_dense_posteriors_say_how_to_make_them():
    P, y, _, _ = top_rows(900, 40)
    with pytest.raises(ValueError, match=r"dense array here.*P\.toarray\(\)"):
        gramian_from_posteriors(P, y)


@pytest.mark.filterwarnings("default")
def test_permuted_columns_of_sparse_rows_are_warned_of():
    P, y, _, _ = top_rows(900, 40)
    with pytest.warns(CollisionWarning, match="in another order"):
        collision_matrix_from_posteriors(csr_array(P[:, ::-1]), y)


@pytest.mark.parametrize("labelled", [True, False])
def test_memory_follows_the_entries(labelled):
    n, k, kept = 100_000, 500, 4
    first = np.random.default_rng(0).integers(0, k, n)
    columns = (first[:, None] + np.arange(kept)) % k
    P = csr_array(
        (np.full(n * kept, 1 / kept), columns.ravel(), np.arange(0, n * kept + 1, kept))
    )
    accumulator = CollisionAccumulator(np.arange(k))
    tracemalloc.start()
    accumulator.update(P, first if labelled else None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * k / 4
