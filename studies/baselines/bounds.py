"""Bounds on the Bayes error from rows and labels alone, as other projects compute them.

Every function takes rows (n, d) and class numbers and returns a lower and an upper estimate.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform
from scipy.special import logsumexp
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.preprocessing import StandardScaler

from collidescope.equations.bounds import bayes_error_bounds
from studies.measures import Array

Bounds = tuple[float, float]


def _cover_hart(upper: float, K: int) -> Bounds:
    """The lower bound that belongs to an error of nearest neighbours."""
    return bayes_error_bounds(min(upper, 1 - 1 / K), K)[0], upper


def mst_bounds(X: Array, y: Array) -> Bounds:
    """GHP (Sekeh et al. 2020), DataEval's ``ber_mst``: edges between classes of a spanning tree.

    >>> mst_bounds(np.array([[0.0], [1.0], [2.0], [10.0]]), np.array([0, 0, 1, 1]))[1]
    0.25
    """
    # Zero means "no edge" to the sparse graph, and equal rows are near, not apart.
    distances = np.maximum(pdist(X), np.finfo(np.float64).tiny)
    tree = minimum_spanning_tree(squareform(distances)).tocoo()
    mixed = y[tree.row] != y[tree.col]
    return _cover_hart(float(mixed.sum() / len(y)), len(np.unique(y)))


def _neighbours(X: Array, y: Array, k: int) -> Array:
    """Labels of the k nearest other rows, (n, k)."""
    return y[NearestNeighbors(n_neighbors=k).fit(X).kneighbors(return_distance=False)]


def _votes(voters: Array, K: int) -> Array:
    return np.stack([(voters == k).sum(axis=1) for k in range(K)], axis=1)


def knn_bounds(X: Array, y: Array, k: int) -> Bounds:
    """Leave-one-out error of k neighbours (DataEval's ``ber_knn``), and its lower bound."""
    K = int(y.max()) + 1
    said = _votes(_neighbours(X, y, k), K).argmax(axis=1)
    upper = float((said != y).mean())
    if K == 2 and k > 2:
        # FeeBee; for more classes Cover and Hart's bound serves every k
        return upper / (1 + 1 / np.sqrt(k)), upper
    return _cover_hart(upper, K)


def knn_posterior_bounds(X: Array, y: Array, k: int) -> Bounds:
    """kNN-LOO of FeeBee: 1 - mean of the largest share among k neighbours.

    Once without the row itself and once with it.
    """
    K = int(y.max()) + 1
    others = _neighbours(X, y, k)
    with_itself = np.column_stack([others[:, : k - 1], y])
    errors = []
    for voters in (others, with_itself):
        largest = _votes(voters, K).max(axis=1)
        errors.append(1 - float(largest.mean() / k))
    return min(errors), max(errors)


def kde_estimate(X: Array, y: Array) -> Bounds:
    """1 - mean of the largest posterior of kernel densities, one per class, on held-out halves."""
    X = StandardScaler().fit_transform(X)
    n, d = X.shape
    K = int(y.max()) + 1
    kept = 0.0
    for train, test in StratifiedKFold(2, shuffle=True, random_state=0).split(X, y):
        logs = np.full((len(test), K), -np.inf)
        for k in range(K):
            own = X[train[y[train] == k]]
            if len(own):
                scott = len(own) ** (-1 / (d + 4))
                density = KernelDensity(bandwidth=scott).fit(own)
                logs[:, k] = density.score_samples(X[test]) + np.log(len(own))
        largest = logs.max(axis=1) - logsumexp(logs, axis=1)
        kept += float(np.exp(largest).sum())
    return 1 - kept / n, 1 - kept / n


BOUNDS = {
    "GHP, DataEval's ber_mst": mst_bounds,
    "1-NN (Cover–Hart), DataEval's ber_knn": partial(knn_bounds, k=1),
    "10-NN": partial(knn_bounds, k=10),
    "10-NN-LOO posteriors": partial(knn_posterior_bounds, k=10),
    "KDE": kde_estimate,
}
