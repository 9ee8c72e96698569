"""Networks have the symmetries and shapes that the theory asks for."""

import pytest
import torch
from torch import nn

from collidescope.pairwise.networks import PairwiseImageNetwork, PairwiseNetwork
from collidescope.training.networks import Bfloat16, OneMember, StackedMLP, mlp


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def test_no_hidden_layer_is_a_linear_model():
    net = mlp(4, 3)
    a, b = torch.randn(2, 5, 4)
    zero = net(torch.zeros(5, 4))
    assert torch.allclose(net(a + b) - zero, (net(a) - zero) + (net(b) - zero), atol=1e-6)


@pytest.mark.parametrize("sizes", [(0,), (-3, 2), (2.5,), 7])
def test_sizes_that_are_no_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="hidden_layer_sizes"):
        mlp(4, 3, sizes)


def test_the_pairwise_model_is_symmetric_though_its_body_is_not():
    net = PairwiseNetwork(4, (16,))
    a, b = torch.randn(2, 10, 4)
    assert not torch.allclose(net.one_way(a, b), net.one_way(b, a))
    assert torch.equal(net(a, b), net(b, a))
    assert torch.allclose(net(a, b), (net.one_way(a, b) + net.one_way(b, a)) / 2)


def test_images_meet_as_channels_and_stay_symmetric():
    net = PairwiseImageNetwork(nn.Sequential(nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 1)))
    a, b = torch.randn(2, 5, 3, 8, 8)
    assert net(a, b).shape == (5,)
    assert torch.equal(net(a, b), net(b, a))


def test_a_stack_computes_its_members_one_by_one():
    stack = StackedMLP(3, 4, 2, (8, 5), generator=torch.Generator().manual_seed(1))
    x = torch.randn(6, 4)
    together = stack(x)
    for m in range(3):
        plain = mlp(4, 2, (8, 5))
        linears = [layer for layer in plain if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for layer, weight, bias in zip(linears, stack.weights, stack.biases, strict=True):
                layer.weight.copy_(weight[m].T)
                layer.bias.copy_(bias[m, 0])
        assert torch.allclose(together[m], plain(x), atol=1e-6)
        assert torch.allclose(stack.member(m, x), plain(x), atol=1e-6)


def test_a_stack_takes_separate_inputs_for_its_members():
    stack = StackedMLP(2, 4, 3, (8,), generator=torch.Generator().manual_seed(1))
    x = torch.randn(2, 5, 4)
    assert torch.allclose(stack(x)[1], stack(x[1])[1], atol=1e-6)


def test_bfloat16_is_left_to_gpus():
    """On one processor products in bfloat16 were an illegal instruction, which ends the interpreter."""
    body = mlp(64, 3, (64,))
    x = torch.randn(50, 64)
    assert torch.equal(Bfloat16(body)(x), body(x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")
def test_bfloat16_changes_the_products_and_neither_weights_nor_output():
    body = mlp(64, 3, (64,)).cuda()
    x = torch.randn(50, 64, device="cuda")
    low = Bfloat16(body)(x)
    assert low.dtype == body[0].weight.dtype == torch.float32
    assert not torch.equal(low, body(x))
    assert torch.allclose(low, body(x), atol=0.05)


def test_any_encoder_can_stand_in_for_a_stack_of_one():
    encoder = mlp(4, 3)
    x = torch.randn(5, 4)
    assert torch.equal(OneMember(encoder)(x[None])[0], encoder(x))
