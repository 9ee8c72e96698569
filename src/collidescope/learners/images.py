"""A small convolutional network for images, with light augmentation where held-out images like it.

Symbols: images of shape (n, C, H, W), K classes. Blocks of two 3×3 convolutions with batch normalisation, halved in
size between blocks, then a pooled linear layer. The learning rate rises and falls once (one cycle),
and the average of the last epochs' weights (an exponential moving average) is kept. Whether images are shifted by a
pixel or so, and mirrored, is chosen in a short run by the loss of held-out images; then all images are trained on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from collidescope.learners.base import LOG_FLOOR, FloatArray, Member, Task, Tree, by_blocks, checked
from collidescope.training.loop import epoch_generator, seeded_module
from collidescope.training.machine import flushed_denormals, one_thread

#: Channels of the first block on a CPU and on a GPU; they double with every block.
CPU_WIDTH, GPU_WIDTH = 24, 64
#: Images below this side are not halved again.
SMALLEST_SIDE = 8
#: Gradient steps of the whole training and of each short run, within limits in epochs.
CPU_STEPS, GPU_STEPS, SHORT = 400, 4_000, 0.25
FEWEST_EPOCHS, MOST_EPOCHS = 8, 40
BATCH = 64
LEARNING_RATE, WEIGHT_DECAY, DROPOUT = 4e-3, 0.05, 0.1
#: Share of a step by which the averaged weights follow the trained ones.
FOLLOW = 0.02
#: (largest shift as a share of the side, mirrored) as tried.
AUGMENTATIONS = ((0.0, False), (0.08, False), (0.08, True))
PARTS = 6
#: A file may not claim wider networks.
MOST_WIDTH, MOST_SIDE, MOST_CHANNELS = 1024, 4096, 4096


class Convolution(Member):
    """A small convolutional network."""

    name = "convolution"
    images = True

    module: nn.Sequential
    shape: tuple[int, int, int]
    width: int

    def fit(self, task: Task) -> Self:
        X = torch.from_numpy(np.array(task.X[:], dtype=np.float32)).to(task.device)
        y = torch.from_numpy(np.asarray(task.codes, dtype=np.int64)).to(task.device)
        w = torch.from_numpy(task.weights.astype(np.float32)).to(task.device)
        self.shape = (int(X.shape[1]), int(X.shape[2]), int(X.shape[3]))
        gpu = task.device != "cpu"
        self.width = GPU_WIDTH if gpu else CPU_WIDTH
        part = torch.from_numpy(task.inner_parts(PARTS, task.seed)).to(task.device)
        steps = GPU_STEPS if gpu else CPU_STEPS
        # Deterministic kernels: the same seed gives the same network on one machine.
        with torch.random.fork_rng(devices=[]), flushed_denormals(), one_thread(not gpu):
            chosen, best = AUGMENTATIONS[0], math.inf
            rest = part == 0
            for augmentation in AUGMENTATIONS if bool(rest.any()) else ():
                module = self._train(task, X[~rest], y[~rest], w[~rest], augmentation, int(SHORT * steps), "choosing")
                with torch.inference_mode():
                    logits = torch.cat([module(x) for x in torch.split(X[rest], BATCH * 16)])
                    each = nn.functional.cross_entropy(logits, y[rest], reduction="none")
                loss = float((each * w[rest]).sum() / w[rest].sum())
                if loss < best:
                    chosen, best = augmentation, loss
            self.module = self._train(task, X, y, w, chosen, steps, self.name)
        for parameter in self.module.parameters():
            parameter.data = parameter.data.half().float()
        return self

    def _train(
        self, task: Task, X: Tensor, y: Tensor, w: Tensor, augmentation: tuple[float, bool], steps: int, name: str
    ) -> nn.Sequential:
        K = task.n_classes
        module, averaged = (
            seeded_module(lambda: build(self.shape, K, self.width), task.seed).to(task.device) for _ in range(2)
        )
        per_epoch = math.ceil(len(X) / BATCH)
        epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS if steps > CPU_STEPS * SHORT else 3, round(steps / per_epoch)))
        optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * per_epoch)
        for epoch in range(1, epochs + 1):
            module.train()
            torch.manual_seed(epoch_generator(task.seed, epoch).initial_seed() % 2**63)
            total = 0.0
            for rows in _batches(len(X), task.seed, epoch, task.device):
                loss = nn.functional.cross_entropy(module(augment(X[rows], *augmentation)), y[rows], reduction="none")
                loss = (loss * w[rows]).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += float(loss.detach()) if task.device == "cpu" else 0.0
                _follow(averaged, module)
            if task.report is not None:
                entry = {"name": name, "epoch": epoch, "max_epochs": epochs, "val_loss": total / per_epoch}
                task.report(entry)
        assert isinstance(averaged, nn.Sequential)
        return averaged.eval()

    def log_posteriors(self, X: Any) -> FloatArray:
        device = next(self.module.parameters()).device

        def score(x: Any) -> FloatArray:
            with torch.inference_mode():
                return torch.log_softmax(self.module(torch.from_numpy(x).to(device)).double(), -1).cpu().numpy()

        with one_thread(str(device) == "cpu"):
            out = by_blocks(score, X, 4 * self.width * self.shape[1] * self.shape[2])
        return np.maximum(out, LOG_FLOOR, out=out)

    def export(self) -> Tree:
        state = {name.replace(".", "_"): tensor.cpu().numpy() for name, tensor in self.module.state_dict().items()}
        parameters = {name.replace(".", "_") for name, _ in self.module.named_parameters()}
        arrays = {name: array.astype(np.float16) if name in parameters else array for name, array in state.items()}
        return {"arrays": arrays, "shape": list(self.shape), "width": self.width}

    @classmethod
    def restore(cls, tree: Tree, n_features: int, n_classes: int) -> Self:
        member = cls()
        shape, width = tree["shape"], tree["width"]
        limits = (MOST_CHANNELS, MOST_SIDE, MOST_SIDE, MOST_WIDTH)
        numbers = [*shape, width] if isinstance(shape, list) else []
        fits = len(numbers) == 4 and all(
            type(v) is int and 0 < v <= most for v, most in zip(numbers, limits, strict=True)
        )
        if not fits or math.prod(shape) != n_features:
            raise ValueError(
                f"images must have a shape of {n_features} numbers and a known width, got {shape!r}, {width!r}"
            )
        member.shape, member.width = (shape[0], shape[1], shape[2]), width
        with torch.device("meta"):  # sizes first: nothing is allocated before the arrays are known to fit
            expected = build(member.shape, n_classes, width).state_dict()
        parameters, state = tree["arrays"], {}
        for name, tensor in expected.items():
            dtypes = (np.int64,) if not tensor.is_floating_point() else (np.float16, np.float32)
            array = checked(parameters, name.replace(".", "_"), dtypes, tuple(tensor.shape))
            state[name] = torch.from_numpy(array.astype(array.dtype if array.dtype == np.int64 else np.float32))
            if name.endswith("running_var") and (array < 0).any():
                raise ValueError("variances must not be negative")
        member.module = build(member.shape, n_classes, width)
        member.module.load_state_dict(state)
        member.module.eval()
        return member


def build(shape: tuple[int, int, int], n_classes: int, width: int) -> nn.Sequential:
    """The network for images of one shape."""
    channels, side = shape[0], min(shape[1:])
    layers: list[nn.Module] = []
    halvings = max(0, round(math.log2(max(side, 1) / SMALLEST_SIDE))) + 1
    for block in range(halvings + 1):
        out = width * 2 ** min(block, 2)
        for _ in range(2):
            layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        if block < halvings and side > 3:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(4 * channels, n_classes)
    )


def augment(x: Tensor, shift: float, mirrored: bool) -> Tensor:
    """Images shifted by up to ``shift`` of their side, and half of them mirrored."""
    n, _, height, width = x.shape
    if shift:
        # One affine map per image; bilinear, so that shifts by fractions of a pixel help small images too.
        theta = torch.zeros(n, 2, 3, device=x.device)
        theta[:, 0, 0] = theta[:, 1, 1] = 1
        theta[:, :, 2] = (torch.rand(n, 2) * 4 - 2).to(x.device) * shift
        angle = ((torch.rand(n) * 2 - 1) * 0.15).to(x.device)
        theta[:, 0, 1], theta[:, 1, 0] = -angle, angle
        grid = nn.functional.affine_grid(theta, [n, 1, height, width], align_corners=False)
        x = nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
    if mirrored:
        x = torch.where((torch.rand(n) < 0.5).to(x.device)[:, None, None, None], x.flip(-1), x)
    return x


def _batches(n: int, seed: int, epoch: int, device: str) -> Iterator[Tensor]:
    order = torch.randperm(n, generator=epoch_generator(seed, epoch)).to(device)
    parts = list(torch.split(order, BATCH))
    if len(parts) > 1 and len(parts[-1]) == 1:  # batch normalisation cannot take a single image
        parts[-2:] = [torch.cat(parts[-2:])]
    yield from parts


@torch.no_grad()
def _follow(averaged: nn.Module, module: nn.Module) -> None:
    for mean, now in zip(averaged.state_dict().values(), module.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(now, FOLLOW)
        else:
            mean.copy_(now)
