"""Networks side by side: each is trained on its own sample, on the loss of one alone."""

import numpy as np
import pytest
import torch

from collidescope.pairwise.pairs import balanced_risk
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from studies.baselines.bayesian import ElboObjective, MeanField
from studies.paper import together
from studies.paper.rows import Data
from studies.paper.together import BalancedPairs, Samples

CONFIG = TrainingConfig(hidden_layer_sizes=(8,), max_epochs=2, patience=0)


def data(seed, n=60, k=3):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % k)
    X = rng.normal(size=(n, 2)) + codes[:, None]
    return Data(X, codes, k, X[:4])


def drawn_pairs(samples, draws=200):
    generator = torch.Generator().manual_seed(0)
    pairs = BalancedPairs(samples)
    return torch.cat([pairs.draw(generator) for _ in range(draws)], dim=2)


def test_half_of_the_pairs_are_of_one_class():
    samples = Samples.of([data(0), data(1)], "cpu")
    i, j, same = drawn_pairs(samples)
    agree = samples.labels(i) == samples.labels(j)
    assert torch.equal(agree, same.bool())
    assert same.float().mean() == 0.5


def test_no_row_is_paired_with_itself():
    i, j, _ = drawn_pairs(Samples.of([data(0, n=9)], "cpu"))
    assert not (i == j).any()


def test_every_pair_of_rows_of_two_classes_is_as_likely():
    sample = data(0, n=9)
    i, j, same = drawn_pairs(Samples.of([sample], "cpu"), draws=4_000)
    counts = torch.zeros(9, 9)
    other = same[0] == 0
    counts.index_put_((i[0][other], j[0][other]), torch.ones(1), accumulate=True)
    differ = torch.from_numpy(sample.codes[:, None] != sample.codes)
    shares = counts[differ] / counts.sum()
    assert shares.std() < 0.06 * shares.mean()
    assert counts[~differ].sum() == 0


def test_classes_of_unequal_sizes_are_drawn_as_often():
    sample = data(0)
    few = Data(sample.X[:40], np.repeat([0, 1, 2], [30, 8, 2]), 3, sample.X_new)
    i, _, _ = drawn_pairs(Samples.of([few], "cpu"))
    counts = torch.bincount(torch.from_numpy(few.codes)[i[0]])
    assert (counts / counts.sum() - 1 / 3).abs().max() < 0.02


def test_a_network_is_trained_on_its_own_sample():
    """Members share no parameter: another neighbour changes nothing."""

    def first_member(second):
        samples = Samples.of([data(0), second], "cpu")
        *_, (_, networks) = together.classifiers(samples, CONFIG, 0)
        return together.member(networks, 0).weight.detach()

    torch.testing.assert_close(first_member(data(1)), first_member(data(2)))


@pytest.mark.parametrize("train", [together.classifiers, together.pair_networks])
def test_training_lowers_the_loss_of_every_member(train):
    parts = [data(0), data(1)]
    samples = Samples.of(parts, "cpu")
    config = TrainingConfig(
        hidden_layer_sizes=(16,), max_epochs=60, patience=0, learning_rate=3e-3
    )
    # The mean posterior of the right class, or of pairs, before and after.
    scores = []
    for _, networks in train(samples, config, 0):
        scores.append([quality(networks, part, m) for m, part in enumerate(parts)])
    assert (np.array(scores[-1]) > np.array(scores[0])).all()


def quality(networks, part, m):
    own = together.member(networks, m)
    if networks.shapes[0][0] == 2:
        P = together.mean_posteriors(own, part.X)
        return P[np.arange(len(part.codes)), part.codes].mean()
    V = together.contrast(own).grid(part.X, part.X)
    same = part.codes[:, None] == part.codes
    return V[same].mean() - V[~same].mean()


def test_the_contrast_of_a_member_is_the_difference_of_its_outputs():
    torch.manual_seed(0)
    networks = StackedMLP(3, 4, 2, (5,))
    A = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    found = together.contrast(together.member(networks, 1)).pairs(A, A[::-1])
    both = torch.from_numpy(np.hstack([A, A[::-1]]))
    different, same = networks.member(1, both).unbind(1)
    expected = torch.sigmoid(same - different).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_risk_of_a_stack_is_the_sum_of_its_members():
    logits = torch.randn(3, 10)
    same = (torch.arange(10) % 2).float().expand(3, 10)
    each = [balanced_risk(a, b) for a, b in zip(logits, same, strict=True)]
    torch.testing.assert_close(balanced_risk(logits, same) * 3, sum(each))


def test_the_bayesian_loss_is_that_of_pyro():
    pytest.importorskip("pyro")
    sample = data(0)
    X = torch.from_numpy(sample.X.astype(np.float32))
    y = torch.from_numpy(sample.codes)
    field = MeanField([2, 8, 3], 1.0, torch.Generator().manual_seed(0))
    rows = torch.arange(20)
    torch.manual_seed(1)
    expected = ElboObjective(X, y, 3, CONFIG, kl_weight=0.1).loss(field, rows[None])
    fields = together.MeanFields([field])
    torch.manual_seed(1)
    found = together.elbo_losses(fields, X[rows][None], y[rows][None], len(y), 0.1)
    torch.testing.assert_close(found[0], expected)


def test_an_epoch_is_cut_into_equal_steps():
    assert together.steps_of_an_epoch(50_000, 256) == (195, 256)
    assert together.steps_of_an_epoch(20, 64) == (1, 20)
