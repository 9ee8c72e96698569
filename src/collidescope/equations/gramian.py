"""The row Gramian G[i, j] = E Sim(x, x') over x of class i and x' of class j.

Equations (27) and (29) of the paper. Two methods, neither of which builds n² pairs:

- posteriors p (the factorised model, Sim = p·p'): with M[i] the mean of p over class i, G = M Mᵀ,
  and on the diagonal the pairs of a row with itself are left out;
- class similarities q[x, j] = mean of Sim(x, ·) over references of class j (the pair-wise model):
  G[i, j] is the mean of q_j over rows of class i (equation 34).

``codes`` are the class numbers 0 … K-1 of n rows, ``sample_weight`` their weights.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given, IntArray


def gramian_from_posteriors(
    P: ArrayLike, codes: ArrayLike, sample_weight: Given = None
) -> FloatArray:
    """G from held-out posteriors of shape (n, K), in O(n K²).

    >>> gramian_from_posteriors([[1, 0], [1, 0], [0, 1], [0, 1]], [0, 0, 1, 1])
    array([[1., 0.],
           [0., 1.]])
    """
    posteriors = check.check_posteriors(P)
    onto = _membership(codes, posteriors.shape, sample_weight)
    squared = onto.power(2)
    itself = squared.T @ np.einsum("ij,ij->i", posteriors, posteriors)
    own = np.asarray(squared.sum(axis=0), np.float64)
    means = np.asarray(onto.T @ posteriors)
    return without_own_pairs(means, own, itself)


def without_own_pairs(M: FloatArray, own: FloatArray, itself: FloatArray) -> FloatArray:
    """M Mᵀ of class means without the pairs of a row with itself.

    ``own`` is their share of the pairs of a class (Σ w² of weights that sum to 1), ``itself`` what
    they add.
    """
    single = own >= 1
    if single.any():
        raise ValueError(
            f"codes has a single row of class number {int(single.argmax())}: a pair "
            "needs two"
        )
    G = M @ M.T
    # G_ii is a mean over pairs of different rows, whose weights w_a w_b add up to 1 - Σ w². In
    # ‖M_i‖² every row is also paired with itself, and Sim(x, x) = ‖p‖² is larger on average than
    # Sim of two independent rows.
    np.fill_diagonal(G, (np.diag(G) - itself) / (1 - own))
    return G


def gramian_from_similarities(
    q: ArrayLike, codes: ArrayLike, sample_weight: Given = None
) -> FloatArray:
    """G from class similarities of shape (n, K): mean of q over each class, then symmetrised.

    >>> gramian_from_similarities([[0.9, 0.1], [0.3, 0.7]], [0, 1])
    array([[0.9, 0.2],
           [0.2, 0.7]])
    """
    scores = check.check_finite(q, "q", ndim=2)
    onto = _membership(codes, scores.shape, sample_weight)
    G = onto.T @ scores
    return np.asarray((G + G.T) / 2)


def _membership(
    codes: ArrayLike, shape: tuple[int, ...], sample_weight: Given
) -> csr_array:
    """n×K, sparse: the weight of each row within its class (columns sum to 1)."""
    n, k = shape
    weights = check.check_weights(sample_weight, n)
    numbers: IntArray = np.asarray(codes)
    whole = numbers.dtype.kind in "iu"
    one_each = numbers.shape == (n,)
    if not (whole and one_each) or numbers.min() < 0 or numbers.max() >= k:
        raise ValueError(
            f"codes must be {n} class numbers from 0 to {k - 1}, got {numbers.dtype} "
            f"of shape {numbers.shape}"
        )
    total = np.bincount(numbers, weights, k)
    missing = total <= 0
    if missing.any():
        raise ValueError(f"codes has no row of class number {int(missing.argmax())}")
    places = (np.arange(n), numbers)
    return csr_array((weights / total[numbers], places), shape=(n, k))
