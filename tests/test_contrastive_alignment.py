"""Pairs leave a rotation open; labels settle it, exactly where the class means are exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collidescope.pairwise.alignment import align, alignment

#: Posteriors of five inputs in tenths: ten rows of each, labelled in just these shares.
TENTHS = torch.tensor([[8, 1, 1], [2, 7, 1], [0, 4, 6], [5, 5, 0], [1, 0, 9]])


def population(tenths=TENTHS):
    """(posteriors of the rows, labels, priors) in which every mean over a class is exact."""
    K = tenths.shape[1]
    y = torch.repeat_interleave(torch.arange(K).repeat(len(tenths)), tenths.flatten())
    Y = (tenths.double() / 10).repeat_interleave(10, 0)
    return Y, y, Y.mean(0)


def rotation(K, seed=0):
    return torch.as_tensor(np.linalg.qr(np.random.default_rng(seed).standard_normal((K, K)))[0])


@pytest.mark.parametrize("Q", [torch.eye(3).double(), torch.eye(3).double()[[2, 0, 1]], rotation(3)])
def test_any_rotation_of_the_posteriors_is_undone(Q):
    Y, y, priors = population()
    R = alignment(Y @ Q.T, y, 3, priors)
    assert torch.allclose(R, Q.T, atol=1e-10)
    assert torch.allclose((Y @ Q.T) @ R.T, Y, atol=1e-10)
    assert torch.allclose(alignment(1e-3 * Y @ Q.T, y, 3, priors), R, atol=1e-10)  # only directions count


def test_classes_that_cannot_be_told_apart_leave_the_rest_as_it_is():
    twins = torch.tensor([[4, 4, 2], [1, 1, 8], [3, 3, 4]])
    Y, y, priors = population(twins)
    Q = rotation(3, 1)
    assert torch.allclose((Y @ Q.T) @ alignment(Y @ Q.T, y, 3, priors).T, Y, atol=1e-7)


@pytest.mark.parametrize("K", [2, 3, 5, 8])
def test_a_model_that_has_learned_nothing_gives_the_priors_back(K):
    priors = torch.linspace(1, 2, K).double()
    priors /= priors.sum()
    p = torch.softmax(torch.arange(K).double(), 0).expand(3 * K, K)
    R = alignment(p, torch.arange(3 * K) % K, K, priors)
    assert torch.allclose(align(p, R), priors.expand(3 * K, K), atol=1e-7)


def test_directions_that_are_noise_are_left_out_not_blown_up():
    Y, y, priors = population(torch.tensor([[4, 4, 2], [1, 1, 8], [3, 3, 4]]))
    noise = 1e-6 * torch.outer(torch.linspace(-1, 1, len(Y)).double(), torch.tensor([1.0, -1.0, 0.0]).double())
    R = alignment(Y + noise, y, 3, priors)
    assert int(torch.linalg.matrix_rank(R, atol=1e-9, rtol=0)) == 2
    assert float(torch.linalg.matrix_norm(R, 2)) == pytest.approx(1)


def test_a_class_of_one_row_counts_as_that_row():
    p = torch.tensor([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]], dtype=torch.float64)
    M = torch.tensor([[0.8, 0.2], [0.2, 0.8]], dtype=torch.float64)
    priors = torch.tensor([0.5, 0.5], dtype=torch.float64)
    # M is symmetric and positive definite: its polar factor is the identity.
    assert torch.allclose(alignment(p, torch.tensor([0, 0, 1]), 2, priors), torch.eye(2).double(), atol=1e-12)
    assert torch.allclose(alignment(M, torch.tensor([0, 1]), 2, priors), torch.eye(2).double(), atol=1e-12)


def test_aligned_posteriors_are_probabilities_and_batches_have_their_own_rotation():
    p = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    turns = torch.stack([torch.eye(3)[[1, 2, 0]], torch.eye(3)[[2, 0, 1]]]).double()
    assert torch.allclose(align(p.expand(2, 2, 3), turns), torch.stack([p[:, [1, 2, 0]], p[:, [2, 0, 1]]]).double())
    cut = align(torch.tensor([[1.5, -0.5, 0.5]]), torch.eye(3).double())
    assert torch.allclose(cut, torch.tensor([[1.5, 1e-6, 0.5]]).double() / 2.000001, rtol=1e-9)
