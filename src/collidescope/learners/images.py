"""A small convolutional network for images, with light augmentation where held-out images like it.

Symbols: images of shape (n, C, H, W), K classes. Blocks of two 3×3 convolutions with batch normalisation, halved in
size between blocks, then a pooled linear layer. The learning rate rises and falls once (one cycle), and the average of
the last epochs' weights (an exponential moving average) is kept. Images are shifted by a pixel or so; whether they are
mirrored and mixed is chosen in short runs by the loss of held-out images, then all are trained on.
"""

from __future__ import annotations

import math
import threading
import warnings
from copy import deepcopy
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from collidescope._threads import one_thread
from collidescope.learners.base import Task, Tree, checked
from collidescope.learners.network import TorchMember
from collidescope.training.loop import epoch_generator, seeded_module
from collidescope.training.machine import flushed_denormals

CPU_WIDTH, GPU_WIDTH = (
    16,
    64,
)  #: channels of the first block on a CPU and on a GPU; they double with every block
SMALLEST_SIDE = 8  #: images below this side are not halved again
#: Images shown in training (longer learns the noise of labels by heart), epochs, and what runs that choose take.
CPU_IMAGES, GPU_IMAGES = 25_600, 64_000
FEWEST_EPOCHS, MOST_EPOCHS = 6, 40
CHOOSING_SHARE, FEWEST_CHOOSING, CHOOSING_IMAGES = 0.4, 3, 3_000
STEPS, SMALLEST_BATCH, LARGEST_BATCH = (
    64,
    64,
    512,
)  #: images of a batch leave so many steps per epoch
SCORED = 1_024  #: images that are scored at once
LEARNING_RATE, WEIGHT_DECAY, DROPOUT = 4e-3, 0.05, 0.1
FOLLOW = 0.02  #: share of a step by which the averaged weights follow the trained ones
#: How images may be varied: what is tried in turn, and kept where held-out images like it (mixed: with their labels).
TRIED = ("mirrored", "mixed")
LARGEST_SHIFT = 0.08  #: as a share of the side
LARGEST_ANGLE, N_RANDOM = 0.15, 5  #: radians, and random numbers that an image takes
PARTS = 6
MOST_WIDTH = 1024  #: a file may not claim wider networks


class Convolution(TorchMember):
    """A small convolutional network."""

    images, single = True, math.inf

    shape: tuple[int, ...]  #: channels, height and width
    width: int

    def fit(self, task: Task) -> Self:
        arrays = (
            np.array(task.X[:], np.float32),
            np.asarray(task.codes, np.int64),
            task.weights.astype(np.float32),
        )
        X, y, w = data = [torch.from_numpy(array).to(task.device) for array in arrays]
        gpu, self.shape = task.device != "cpu", tuple(X.shape[1:])
        self.width = GPU_WIDTH if gpu else CPU_WIDTH
        part = torch.from_numpy(task.inner_parts(PARTS, task.seed)).to(task.device)
        tried, rest = (kept.nonzero()[:, 0][:CHOOSING_IMAGES] for kept in (part > 0, part == 0))
        epochs = min(
            MOST_EPOCHS, max(FEWEST_EPOCHS, round((GPU_IMAGES if gpu else CPU_IMAGES) / len(X)))
        )
        few = max(FEWEST_CHOOSING, round(CHOOSING_SHARE * epochs))
        # Deterministic kernels: the same seed gives the same network on one machine.
        with (
            torch.random.fork_rng(devices=[]),
            flushed_denormals(),
            one_thread(not gpu),
            warnings.catch_warnings(),
        ):
            # Recorded steps have a stream of their own, and the first one finds no context: torch says so, and goes on.
            warnings.filterwarnings(
                "ignore", "The AccumulateGrad node's stream|Attempting to run cuBLAS"
            )
            chosen, best = frozenset[str](), math.inf
            for change in ((), *((each,) for each in TRIED)) if len(rest) else ():
                module = self._train(
                    task, [each[tried] for each in data], chosen.union(change), few, "choosing"
                )
                with torch.inference_mode():
                    logits = torch.cat([module(x) for x in torch.split(X[rest], SCORED)])
                    each = nn.functional.cross_entropy(logits, y[rest], reduction="none")
                loss = float((each * w[rest]).sum() / w[rest].sum())
                if loss < best:
                    chosen, best = chosen.union(change), loss
            self.module = self._train(task, data, chosen, epochs, self.name)
        for parameter in self.module.parameters():
            parameter.data = parameter.data.half().float()
        return self

    def _train(
        self, task: Task, data: list[Tensor], varied: frozenset[str], epochs: int, name: str
    ) -> nn.Module:
        X, y, w = data
        device = torch.device(task.device).type
        module = seeded_module(lambda: build(self.shape, task.n_classes, self.width), task.seed)
        # Convolutions are a third faster with channels last.
        module = module.to(task.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        batch = min(LARGEST_BATCH, max(SMALLEST_BATCH, len(X) // STEPS))
        averaged, follow = module, get_ema_multi_avg_fn(1 - FOLLOW)  # type: ignore[no-untyped-call]
        Y = nn.functional.one_hot(y, task.n_classes) * w[:, None]
        steps = len(_batches(torch.empty(len(X)), batch))
        cuda = device == "cuda"
        optimizer = torch.optim.AdamW(
            module.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=cuda
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, LEARNING_RATE, total_steps=epochs * steps
        )
        module.train()
        precision = torch.autocast(device, torch.bfloat16, enabled=cuda, cache_enabled=False)
        forward = module
        # Launching the kernels of a small step one by one takes several times as long as the step. Not in threads: no
        # other thread may ask for memory of the GPU while a step is recorded.
        recorded = (
            cuda and len(X) >= batch and threading.current_thread() is threading.main_thread()
        )
        if recorded:
            sample = X[:batch].clone(
                memory_format=torch.channels_last
            )  # which every step writes over
            with precision, torch.cuda.device(X.device):
                forward = torch.cuda.make_graphed_callables(nn.Sequential(module), (sample,))
        for epoch in range(1, epochs + 1):
            # Random numbers of the whole epoch come from the CPU, the same for every device, and travel at once.
            generator = epoch_generator(task.seed, epoch)
            torch.manual_seed(generator.initial_seed() % 2**63)  # of dropout
            order = torch.randperm(len(X), generator=generator).to(task.device)
            noise = torch.rand(len(X), N_RANDOM, generator=generator).to(task.device)
            total = torch.zeros((), device=task.device)
            for rows, random in zip(_batches(order, batch), _batches(noise, batch), strict=True):
                x, targets = augment(X[rows], Y[rows], random, varied)
                x = x.contiguous(memory_format=torch.channels_last)
                with precision:
                    logits = (forward if len(x) == batch else module)(x)
                loss = nn.functional.cross_entropy(logits.float(), targets)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                if averaged is module:
                    averaged = deepcopy(module)
                    # Batch normalisation keeps averages of its own, which are averaged too.
                    pair = [
                        [t for t in m.state_dict().values() if t.is_floating_point()]
                        for m in (averaged, module)
                    ]
                follow(*pair, None)
                total += loss.detach()
            if task.report is not None:
                task.report(
                    {
                        "name": name,
                        "epoch": epoch,
                        "max_epochs": epochs,
                        "val_loss": float(total) / steps,
                    }
                )
        if recorded:
            del (
                forward.forward
            )  # graph and module hold on to each other, and to the memory of a step
        return averaged.eval().to(memory_format=torch.contiguous_format)  # type: ignore[no-any-return]

    @property
    def row_numbers(self) -> float:
        return 4 * self.width * self.shape[1] * self.shape[2]

    def export(self) -> Tree:
        parameters = dict(self.module.named_parameters())
        state = {
            name: t.half() if name in parameters else t
            for name, t in self.module.state_dict().items()
        }
        arrays = {name.replace(".", "_"): t.cpu().numpy() for name, t in state.items()}
        return {"arrays": arrays, "shape": list(self.shape), "width": self.width}

    def restore(self, tree: Tree, shape: tuple[int, ...], n_classes: int) -> Self:
        self.shape, self.width = shape, tree["width"]
        if len(shape) != 3 or tree["shape"] != list(shape):
            raise ValueError(f"images must have the shape {shape} of rows, got {tree['shape']!r}")
        if type(self.width) is not int or not 0 < self.width <= MOST_WIDTH:
            raise ValueError(
                f"width must be a whole number between 1 and {MOST_WIDTH}, got {self.width!r}"
            )
        with torch.device(
            "meta"
        ):  # sizes first: nothing is allocated before the arrays are known to fit
            expected = build(shape, n_classes, self.width).state_dict()
        state = {}
        for name, t in expected.items():
            dtypes = ["f2", "f4"] if t.is_floating_point() else ["i8"]
            state[name] = checked(tree["arrays"], name.replace(".", "_"), dtypes, tuple(t.shape))
            if name.endswith("running_var") and (state[name] < 0).any():
                raise ValueError("variances must not be negative")
        return self.load(build(shape, n_classes, self.width), state)


def build(shape: tuple[int, ...], n_classes: int, width: int) -> nn.Sequential:
    """The network for images of one shape."""
    channels, side = shape[0], min(shape[1:])
    layers: list[nn.Module] = []
    halvings = max(0, round(math.log2(max(side, 1) / SMALLEST_SIDE))) + 1
    for block in range(halvings + 1):
        out = width * 2 ** min(block, 2)
        for _ in range(2):
            layers += [
                nn.Conv2d(channels, out, 3, padding=1, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(),
            ]
            channels = out
        if block < halvings and side > 3:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    layers += [
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(DROPOUT),
        nn.Linear(4 * channels, n_classes),
    ]
    return nn.Sequential(*layers)


def augment(
    x: Tensor, targets: Tensor, random: Tensor, varied: frozenset[str]
) -> tuple[Tensor, Tensor]:
    """Images shifted and turned a little, half of them mirrored, mixed in pairs as their weighted labels are.

    ``random`` (n, N_RANDOM) are uniform numbers: shifts, angle, whether to mirror, share of a pair.
    """
    n, _, height, width = x.shape
    # One affine map per image; bilinear, so that shifts by fractions of a pixel help small images too.
    theta = torch.zeros(n, 2, 3, device=x.device)
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta[:, :, 2] = (random[:, :2] * 4 - 2) * LARGEST_SHIFT
    theta[:, 1, 0] = (random[:, 2] * 2 - 1) * LARGEST_ANGLE
    theta[:, 0, 1] = -theta[:, 1, 0]
    grid = nn.functional.affine_grid(theta, [n, 1, height, width], align_corners=False)
    x = nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
    if "mirrored" in varied:
        x = torch.where(random[:, 3, None, None, None] < 0.5, x.flip(-1), x)
    if (
        "mixed" in varied
    ):  # mixup (Zhang et al. 2018); batches are in random order: the image before is as good as any
        share = 0.5 - 0.5 * torch.cos(torch.pi * random[:, 4])
        x = torch.lerp(x.roll(1, 0), x, share[:, None, None, None])
        targets = torch.lerp(targets.roll(1, 0), targets, share[:, None])
    return x, targets


def _batches(whole: Tensor, size: int) -> list[Tensor]:
    parts = list(torch.split(whole, size))
    if len(parts) > 1 and len(parts[-1]) == 1:  # batch normalisation cannot take a single image
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
