"""Networks for images of digits: a small convolutional encoder, and the paper's ResNet-18 for
pairs.

Shapes: B images of C channels; the encoder gives (B, K) logits. The pair-wise body takes the 2C
channels of two images and gives (B, 1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Limits of the random change of each training image: turn (radians), relative size, shift (share
#: of half the side).
TURN, SIZE, SHIFT = math.radians(10), 0.1, 2 / 14


class Jitter(nn.Module):
    """Turns, scales and shifts every image a little while training; nothing when scoring."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        turn, size, down, right = torch.rand(4, len(x), device=x.device) * 2 - 1
        cosine = torch.cos(turn * TURN) * (1 + size * SIZE)
        sine = torch.sin(turn * TURN) * (1 + size * SIZE)
        rows = [
            torch.stack([cosine, -sine, right * SHIFT], -1),
            torch.stack([sine, cosine, down * SHIFT], -1),
        ]
        grid = functional.affine_grid(
            torch.stack(rows, 1), list(x.shape), align_corners=False
        )
        return functional.grid_sample(
            x, grid, padding_mode="border", align_corners=False
        )


def conv_encoder(
    channels: int, k: int, width: int = 32, dropout: float = 0.3, jitter: bool = True
) -> nn.Sequential:
    """Three pairs of 3×3 convolutions with batch norm, the side halved between them, mean over
    places, k logits.

    About 290,000 weights at the width of 32; for images of 8×8 pixels and more.

    >>> conv_encoder(1, 10, width=4)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    layers: list[nn.Module] = [Jitter()] if jitter else []
    for stage, after in enumerate((width, 2 * width, 4 * width)):
        before = channels if stage == 0 else after // 2
        layers += [nn.MaxPool2d(2)] if stage else []
        for inputs in (before, after):
            layers += [
                nn.Conv2d(inputs, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(4 * width, k),
    )


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut (He et al. 2016, the block of ResNet-18)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.first_norm(self.first(x)), inplace=True)
        y = self.second_norm(self.second(y))
        return functional.relu(y + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    """ResNet-18: a 7×7 stem with stride 2, max pooling, two blocks of each width, mean over places,
    one layer.

    Parameters
    ----------
    channels, outputs : int
    width : int
        Of the first blocks, doubled three times: 64 is the ResNet-18 of He et al. (11 million
        weights).
    """

    def __init__(self, channels: int, outputs: int, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, padding=1),
        )
        blocks = []
        for stage in range(4):
            after = width * 2**stage
            before = after if stage == 0 else after // 2
            blocks += [
                BasicBlock(before, after, 1 if stage == 0 else 2),
                BasicBlock(after, after, 1),
            ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu"
                )

    def forward(self, x: Tensor) -> Tensor:
        # Channels last is the order in which a GPU's matrix units read images.
        x = self.blocks(self.stem(x.contiguous(memory_format=torch.channels_last)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def resnet18(channels: int, outputs: int, width: int = 64) -> ResNet18:
    """:class:`ResNet18` as a factory: ``Pairwise(network=resnet18)`` calls it with (2C, 1).

    >>> sum(p.numel() for p in resnet18(2, 1).parameters())
    11173889
    """
    return ResNet18(channels, outputs, width)


def n_weights(module: nn.Module) -> int:
    """Number of trained parameters."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
