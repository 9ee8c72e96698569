"""A small convolutional network for images, with light augmentation where held-out images like it.

Symbols: images of shape (n, C, H, W), K classes. Blocks of two 3×3 convolutions with batch
normalisation, halved in size between blocks, then a pooled linear layer. The learning rate rises
and falls once (one cycle), and the average of the last epochs' weights (an exponential moving
average) is kept. Images are shifted by a pixel or so; whether they are mirrored and mixed is chosen
in short runs by the loss of held-out images, then all are trained on.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from collidescope._saving import NOT_SAVED, check_array
from collidescope._threads import one_thread
from collidescope.learners.base import Fitted, Member, Task
from collidescope.learners.network import Arrays, FittedModule, loaded, state_arrays
from collidescope.training.loop import epoch_generator, seeded_module
from collidescope.training.machine import flushed_denormals


@dataclass(frozen=True)
class FittedConvolution(FittedModule):
    """The state of a convolutional network."""

    images: ClassVar[bool] = True
    single: ClassVar[float] = math.inf

    arrays: Arrays
    shape: tuple[int, int, int]  #: channels, height and width
    width: Annotated[int, 1, 1024]
    n_classes: Annotated[int, "K"]
    row_shape: tuple[int, ...] | None = field(
        default=None, metadata=NOT_SAVED
    )  #: that rows must have

    def __post_init__(self) -> None:
        if self.row_shape is None:
            return
        if self.shape != self.row_shape:
            said = f"images must have the shape {self.row_shape} of rows"
            raise ValueError(f"{said}, got {self.shape}")
        # Sizes first: nothing is allocated before the arrays are known to fit.
        with torch.device("meta"):
            expected = build(self.shape, self.n_classes, self.width).state_dict()
        wrong = expected.keys() ^ self.arrays.keys()
        if wrong:
            raise ValueError(f"arrays {sorted(wrong)} are missing or too many")
        for name, weights in expected.items():
            dtypes = ["i8"]
            if weights.is_floating_point():
                dtypes = ["f2", "f4"]
            array = check_array(self.arrays[name], name, dtypes, tuple(weights.shape))
            if name.endswith("running_var") and (array < 0).any():
                raise ValueError("variances must not be negative")

    @cached_property
    def module(self) -> Any:
        module = build(self.shape, self.n_classes, self.width)
        return loaded(module, self.arrays, self.name)

    @property
    def row_numbers(self) -> float:
        return 4 * self.width * self.shape[1] * self.shape[2]


@dataclass(frozen=True)
class Images:
    """Images on the device, with their classes and weights."""

    X: Tensor
    y: Tensor
    w: Tensor

    @classmethod
    def of(cls, task: Task) -> Images:
        X = torch.from_numpy(np.array(task.X[:], np.float32))
        y = torch.from_numpy(np.asarray(task.codes, np.int64))
        w = torch.from_numpy(task.weights.astype(np.float32))
        return cls(X.to(task.device), y.to(task.device), w.to(task.device))

    def take(self, rows: Tensor) -> Images:
        return Images(self.X[rows], self.y[rows], self.w[rows])


@dataclass(frozen=True)
class Convolution(Member):
    """A small convolutional network."""

    cpu_width: int = 16  #: channels of the first block; they double with every block
    gpu_width: int = 64
    #: images shown in training: longer learns the noise of labels by heart
    cpu_images: int = 25_600
    gpu_images: int = 64_000
    epochs: tuple[int, int] = (6, 40)  #: the fewest and the most
    #: how images may be varied, tried in turn: "mixed" is in pairs, with their labels
    varied: tuple[str, ...] = ("mirrored", "mixed")
    choosing_share: float = 0.4  #: of the epochs, in runs that choose
    choosing_images: int = 3_000
    parts: int = 6  #: of which one is held out for choosing

    images: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedConvolution

    def cost(self, n: int, d: int, k: int) -> float:
        shown = max(self.cpu_images, self.epochs[0] * n)
        return 2e-7 * (1 + 3 * self.choosing_share) * shown * d * self.cpu_width

    def unsaved_values(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"row_shape": shape}

    def fit(self, task: Task) -> FittedConvolution:
        data = Images.of(task)
        shape: tuple[int, int, int] = tuple(data.X.shape[1:])  # type: ignore[assignment]
        width = self.cpu_width
        shown = self.cpu_images
        if task.device != "cpu":
            width = self.gpu_width
            shown = self.gpu_images
        fewest, most = self.epochs
        epochs = min(most, max(fewest, round(shown / len(data.X))))
        with deterministic_training(task.device):
            varied = self._chosen_variations(task, data, width, epochs)
            training = Training(task, data, width, epochs, varied, self.name)
            module = training.run()
        for parameter in module.parameters():
            parameter.data = parameter.data.half().float()
        fitted = FittedConvolution(self.name, _small(module), shape, width, task.n_classes)
        vars(fitted)["module"] = module  # on its device
        return fitted

    def _chosen_variations(
        self, task: Task, data: Images, width: int, epochs: int
    ) -> frozenset[str]:
        """Those that lower the loss of held-out images after short runs."""
        part = torch.from_numpy(task.inner_parts(self.parts, task.seed)).to(task.device)
        tried = data.take((part > 0).nonzero()[:, 0][: self.choosing_images])
        held_out = data.take((part == 0).nonzero()[:, 0][: self.choosing_images])
        chosen = frozenset[str]()
        if len(held_out.X) == 0:
            return chosen
        few = max(3, round(self.choosing_share * epochs))
        lowest = math.inf
        for change in ((), *((own,) for own in self.varied)):
            varied = chosen.union(change)
            training = Training(task, tried, width, few, varied, "choosing")
            loss = _held_out_loss(training.run(), held_out)
            if loss < lowest:
                chosen = varied
                lowest = loss
        return chosen


@contextmanager
def deterministic_training(device: str) -> Iterator[None]:
    """Deterministic kernels: the same seed gives the same network on one machine."""
    with (
        torch.random.fork_rng(devices=[]),
        flushed_denormals(),
        one_thread(device == "cpu"),
        warnings.catch_warnings(),
    ):
        # Recorded steps have a stream of their own, and the first one finds no context: torch
        # says so, and goes on.
        known = "The AccumulateGrad node's stream|Attempting to run cuBLAS"
        warnings.filterwarnings("ignore", known)
        yield


def _held_out_loss(module: nn.Module, held_out: Images) -> float:
    images_at_once = 1_024
    with torch.inference_mode():
        parts = torch.split(held_out.X, images_at_once)
        logits = torch.cat([module(x) for x in parts])
        each = nn.functional.cross_entropy(logits, held_out.y, reduction="none")
    return float((each * held_out.w).sum() / held_out.w.sum())


def _small(module: nn.Module) -> Arrays:
    """The state of a module, its parameters in half precision."""
    parameters = dict(module.named_parameters())
    arrays = state_arrays(module)
    return {
        name: array.astype(np.float16) if name in parameters else array
        for name, array in arrays.items()
    }


@dataclass(frozen=True)
class Training:
    """One run: a network trained on ``data`` for a number of epochs."""

    task: Task
    data: Images
    width: int
    epochs: int
    varied: frozenset[str]
    name: str
    learning_rate: float = 4e-3
    weight_decay: float = 0.05
    follow: float = 0.02  #: share of a step by which the averaged weights follow the trained ones

    @property
    def on_gpu(self) -> bool:
        return torch.device(self.task.device).type == "cuda"

    @property
    def batch(self) -> int:
        """Images of a batch leave about 64 steps per epoch."""
        smallest, largest, steps = 64, 512, 64
        return min(largest, max(smallest, len(self.data.X) // steps))

    @property
    def steps(self) -> int:
        return len(_batches(torch.empty(len(self.data.X)), self.batch))

    def run(self) -> nn.Module:
        """The averaged weights after the last epoch."""
        module = self._initial()
        optimizer = torch.optim.AdamW(
            module.parameters(),
            self.learning_rate,
            weight_decay=self.weight_decay,
            fused=self.on_gpu,
        )
        total_steps = self.epochs * self.steps
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.learning_rate, total_steps=total_steps
        )
        average = Average(module, self.follow)
        module.train()
        forward = self._recorded(module)
        for epoch in range(1, self.epochs + 1):
            loss = torch.zeros((), device=self.task.device)
            for x, targets in self._augmented(epoch):
                step_loss = self._loss(forward, module, x, targets)
                optimizer.zero_grad(set_to_none=True)
                step_loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                average.update()
                loss += step_loss.detach()
            self._report(epoch, loss)
        if forward is not module:  # graph and module hold on to each other, and to memory
            del forward.forward
        averaged: Any = average.module.eval()
        contiguous: nn.Module = averaged.to(memory_format=torch.contiguous_format)
        return contiguous

    def _initial(self) -> nn.Module:
        shape = tuple(self.data.X.shape[1:])
        n_classes = self.task.n_classes
        module: Any = seeded_module(lambda: build(shape, n_classes, self.width), self.task.seed)
        # Convolutions are a third faster with channels last.
        on_device = module.to(self.task.device)
        initial: nn.Module = on_device.to(memory_format=torch.channels_last)
        return initial

    @property
    def _precision(self) -> torch.autocast:
        device = torch.device(self.task.device).type
        return torch.autocast(device, torch.bfloat16, enabled=self.on_gpu, cache_enabled=False)

    def _recorded(self, module: nn.Module) -> Any:
        """The module with its kernels launched at once, where that can be: on a GPU.

        Launching the kernels of a small step one by one takes several times as long as the step.
        Not in threads: no other thread may ask for memory of the GPU while a step is recorded.
        """
        alone = threading.current_thread() is threading.main_thread()
        if not self.on_gpu or not alone or len(self.data.X) < self.batch:
            return module
        # every step writes over the sample
        sample = self.data.X[: self.batch].clone(memory_format=torch.channels_last)
        with self._precision, torch.cuda.device(self.data.X.device):
            return torch.cuda.make_graphed_callables(nn.Sequential(module), (sample,))

    def _augmented(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of varied images and their weighted labels.

        Random numbers of the whole epoch come from the CPU, the same for every device, and travel
        at once.
        """
        n = len(self.data.X)
        onehot = nn.functional.one_hot(self.data.y, self.task.n_classes)
        Y = onehot * self.data.w[:, None]
        generator = epoch_generator(self.task.seed, epoch)
        torch.manual_seed(generator.initial_seed() % 2**63)  # of dropout
        order = torch.randperm(n, generator=generator)
        noise = torch.rand(n, N_RANDOM, generator=generator)
        of_rows = _batches(order.to(self.task.device), self.batch)
        of_noise = _batches(noise.to(self.task.device), self.batch)
        for rows, random in zip(of_rows, of_noise, strict=True):
            x, targets = augment(self.data.X[rows], Y[rows], random, self.varied)
            yield x.contiguous(memory_format=torch.channels_last), targets

    def _loss(
        self, forward: Callable[[Tensor], Tensor], module: nn.Module, x: Tensor, targets: Tensor
    ) -> Tensor:
        own: Callable[[Tensor], Tensor] = module
        if len(x) == self.batch:
            own = forward
        with self._precision:
            logits = own(x)
        return nn.functional.cross_entropy(logits.float(), targets)

    def _report(self, epoch: int, loss: Tensor) -> None:
        if self.task.report is not None:
            entry = {"name": self.name, "epoch": epoch, "max_epochs": self.epochs}
            self.task.report({**entry, "val_loss": float(loss) / self.steps})


class Average:
    """An exponential moving average of the weights of a module, from its first step on."""

    def __init__(self, module: nn.Module, follow: float) -> None:
        self.trained = module
        self.module = module
        self.average = get_ema_multi_avg_fn(1 - follow)  # type: ignore[no-untyped-call]

    def update(self) -> None:
        if self.module is self.trained:
            self.module = deepcopy(self.trained)
        self.average(_floats(self.module), _floats(self.trained), None)


def _floats(module: nn.Module) -> list[Tensor]:
    """Weights, and the averages that batch normalisation keeps, which are averaged too."""
    return [t for t in module.state_dict().values() if t.is_floating_point()]


def build(shape: tuple[int, ...], n_classes: int, width: int) -> nn.Sequential:
    """The network for images of one shape."""
    smallest_side = 8  # images below are not halved again
    channels = shape[0]
    side = min(shape[1:])
    layers: list[nn.Module] = []
    halvings = max(0, round(math.log2(max(side, 1) / smallest_side))) + 1
    for block in range(halvings + 1):
        out = width * 2 ** min(block, 2)
        for _ in range(2):
            layers.append(nn.Conv2d(channels, out, 3, padding=1, bias=False))
            layers += [nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        if block < halvings and side > 3:
            layers.append(nn.MaxPool2d(2))
            side //= 2
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.1)]
    layers.append(nn.Linear(4 * channels, n_classes))
    return nn.Sequential(*layers)


N_RANDOM = 5  #: random numbers that an image takes


def augment(
    x: Tensor,
    targets: Tensor,
    random: Tensor,
    varied: frozenset[str],
    largest_shift: float = 0.08,
    largest_angle: float = 0.15,
) -> tuple[Tensor, Tensor]:
    """Images shifted and turned a little, half of them mirrored, mixed in pairs as labels are.

    ``random`` (n, N_RANDOM) are uniform numbers: shifts (as a share of the side), angle (in
    radians), whether to mirror, share of a pair.
    """
    n, _, height, width = x.shape
    # One affine map per image; bilinear, so that shifts by fractions of a pixel help small images.
    theta = torch.zeros(n, 2, 3, device=x.device)
    theta[:, 0, 0] = 1
    theta[:, 1, 1] = 1
    theta[:, :, 2] = (random[:, :2] * 4 - 2) * largest_shift
    theta[:, 1, 0] = (random[:, 2] * 2 - 1) * largest_angle
    theta[:, 0, 1] = -theta[:, 1, 0]
    grid = nn.functional.affine_grid(theta, [n, 1, height, width], align_corners=False)
    x = nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
    if "mirrored" in varied:
        mirrored = random[:, 3, None, None, None] < 0.5
        x = torch.where(mirrored, x.flip(-1), x)
    if "mixed" in varied:
        # mixup (Zhang et al. 2018); batches are in random order: the image before is as good as any
        share = 0.5 - 0.5 * torch.cos(torch.pi * random[:, 4])
        x = torch.lerp(x.roll(1, 0), x, share[:, None, None, None])
        targets = torch.lerp(targets.roll(1, 0), targets, share[:, None])
    return x, targets


def _batches(whole: Tensor, size: int) -> list[Tensor]:
    parts = list(torch.split(whole, size))
    if len(parts) > 1 and len(parts[-1]) == 1:  # batch normalisation cannot take a single image
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts
