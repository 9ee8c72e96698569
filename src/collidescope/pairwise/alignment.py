"""From the p of a model trained on pairs alone to posteriors.

Pairs only say which inputs belong together, so p is known up to a rotation that keeps p·p' (usually a permutation of
the classes), another one for every network. Labels settle it: with M[i] = mean of p over class i, the similarity of x
to class i is ``q(x) = M p(x) = S y(x)`` and ``S = Π⁻¹ (Π M Mᵀ Π)^{1/2}`` (theory: the Gramian's root), so

    ``y(x) = R p(x)`` with ``R = S⁻¹ M``.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Directions of B whose eigenvalue is below this share of the largest are noise: inverting them would blow it up.
SMALLEST_EIGENVALUE = 1e-4
#: A rotated p can leave the simplex; the logarithm of what is cut there still has to exist.
SMALLEST_POSTERIOR = 1e-6


def alignment(p: Tensor, y: Tensor, n_classes: int, priors: Tensor) -> Tensor:
    """R of shape (K, K) such that R p(x) estimates the posteriors.

    Parameters
    ----------
    p : float64 tensor of shape (n, K)
    y : long tensor of shape (n,)
        Every class must occur.
    n_classes : int
    priors : float64 tensor of shape (K,)
        Those of the pairs that p was trained on: uniform for balanced pairs.
    """
    onto = torch.nn.functional.one_hot(y, n_classes).double()
    M = (onto.T @ p.double()) / onto.sum(0).clamp_min(1)[:, None]
    joint = priors[:, None] * M
    values, vectors = torch.linalg.eigh(joint @ joint.T)
    root = values.clamp_min(0).sqrt()
    inverse = torch.where(root > SMALLEST_EIGENVALUE * root.max(), 1 / root.clamp_min(1e-30), 0.0)
    # S⁻¹ M = B⁻¹ Π M, with B = (Π M Mᵀ Π)^{1/2}: the orthogonal factor of the polar decomposition of Π M.
    R: Tensor = (vectors * inverse) @ vectors.T @ joint
    return R


def align(p: Tensor, R: Tensor) -> Tensor:
    """R p, brought back onto the simplex; p (..., n, K), R (..., K, K)."""
    y = (p.double() @ R.transpose(-1, -2)).clamp_min(SMALLEST_POSTERIOR)
    return y / y.sum(-1, keepdim=True)
