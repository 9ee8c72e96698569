"""Networks for small images, trained to their own end at every number of images.

Symbols: images of shape (n, C, H, W), K classes, E epochs, w channels. The first layer is fixed:
its filters whiten patches of 2 × 2 pixels. Three blocks follow, each of two convolutions, of w, 4w
and 4w channels, then the largest value over the image, and K logits (the shape is that of Jordan
2024, arXiv 2404.00498). The rate of SGD rises and falls once. Images are shifted with reflected
edges, and a square of each is blanked (cutout).

What is not fixed is chosen on images held out from the training rows, all by the Brier score after
calibration: whether images are mirrored, whether they are mixed in pairs, and how long a run is.
Runs start at the usual number of epochs and are doubled until a run of 2E epochs is not better than
one of E by 2% and beyond its standard error: then E is the end. Networks whose runs may not be
doubled again, for lack of time or because the user says so, are ``capped``. Mixing is better where
images are few or labels noisy, and takes longer to pay: its runs start where those of images as
they are ended. On a CPU images are never mixed: beside the member "gradients" that gains next to
nothing.

Of many images, the mean of two networks is no better than one trained for the time of both. Of few,
longer runs do not help and more networks do: on a GPU up to four are trained, with no more than
40,000 images for all of them together, and their logits are averaged.

Choices are made once, from the training images of the first fold, for all folds and sizes of the
learning curve: a curve then bends where rows no longer help, and not where another choice was made.

Logits z become posteriors (1 - noise) softmax(z / temperature) + noise / K. Where some labels are
wrong at random, a temperature alone would flatten all posteriors for the sake of those few.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from collidescope._checks import CollisionWarning, IntArray
from collidescope._saving import NOT_SAVED, check_array
from collidescope._scaling import blocks
from collidescope._threads import one_thread
from collidescope.learners.base import BLOCK_NUMBERS, Fitted, Member, Task, some
from collidescope.learners.network import (
    Arrays,
    FittedModule,
    History,
    loaded,
    state_arrays,
)
from collidescope.training.config import TrainingConfig
from collidescope.training.cycle import OneCycle
from collidescope.training.loop import Run, fit_loop, seeded_module
from collidescope.training.machine import device_of
from collidescope.training.recording import half_precision
from collidescope.training.rows import (
    Rows,
    as_rows,
    labels_and_weights,
    signature,
    tensor,
)

Shape = tuple[int, int, int]
LARGEST_SIDE = 96  #: images with a longer side are scaled down to it
N_RANDOM = 6  #: random numbers that an image takes in an epoch
RANDOM_NUMBERS = 2**24  #: as many differ in single precision


@dataclass(frozen=True)
class FittedConvolution(FittedModule):
    """The state of a network for images."""

    images: ClassVar[bool] = True
    single: ClassVar[float] = math.inf

    arrays: Arrays
    shape: Shape  #: channels, height and width
    width: Annotated[int, 1, 1024]
    n_classes: Annotated[int, "K"]
    mirrored: bool  #: whether logits of the mirror image count too
    temperature: Annotated[float, 0.01, 100.0]  #: of the logits
    noise: Annotated[float, 0.0, 1.0]  #: share of labels that are wrong at random
    history: History  #: of the first network
    networks: Annotated[int, 1, 16] = 1  #: whose logits are averaged
    interrupted: bool = field(default=False, metadata=NOT_SAVED)
    capped: bool = field(default=False, metadata=NOT_SAVED)  #: ended for lack of epochs
    #: that rows must have
    row_shape: tuple[int, ...] | None = field(default=None, metadata=NOT_SAVED)

    def __post_init__(self) -> None:
        if self.row_shape is None:
            return
        if self.shape != self.row_shape:
            said = f"images must have the shape {self.row_shape} of rows"
            raise ValueError(f"{said}, got {self.shape}")
        # Sizes first: nothing is allocated before the arrays are known to fit.
        with torch.device("meta"):
            expected = self._built().state_dict()
        wrong = expected.keys() ^ self.arrays.keys()
        if wrong:
            raise ValueError(f"arrays {sorted(wrong)} are missing or too many")
        for name, weights in expected.items():
            dtypes = ["i8"]
            if weights.is_floating_point():
                dtypes = ["f2", "f4"]
            shape = tuple(weights.shape)
            array = check_array(self.arrays[name], name, dtypes, shape)
            if name.endswith("running_var") and (array < 0).any():
                raise ValueError("variances must not be negative")

    @cached_property
    def module(self) -> Any:
        return loaded(self._built(), self.arrays, self.name)

    def _built(self) -> nn.Module:
        every = range(self.networks)
        return Mean([build(self.shape, self.n_classes, self.width) for _ in every])

    @property
    def row_numbers(self) -> float:
        """Numbers of an image on its way; a GPU takes a gigabyte of them at once."""
        height, width = small_size(self.shape[1:])
        pixels = height * width
        numbers = 4 * self.width * pixels
        device = device_of(self.module)
        if device.type == "cpu":
            return numbers
        gpu_numbers = 2**28
        return numbers * BLOCK_NUMBERS / gpu_numbers

    def logs(self, x: Tensor) -> Tensor:
        logits = averaged_logits(self.module, scaled_down(x), self.mirrored)
        # Not every device has double precision.
        return log_posteriors(logits.cpu().double(), self.temperature, self.noise)


@dataclass(frozen=True)
class Images:
    """Images with their classes and weights.

    Pixels are on the device where they take at most half of its free memory; else they stay on the
    host, and batches of them come over from pinned memory.
    """

    X: Rows
    y: Tensor
    w: Tensor

    @classmethod
    def of(cls, task: Task) -> Images:
        device = task.device
        pixels = small_images(task)
        weights = task.weights
        X = as_rows(pixels, device)
        y, w = labels_and_weights(task.codes, weights, device)
        assert w is not None
        return cls(X, y, w)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def device(self) -> torch.device:
        return self.y.device

    def take(self, rows: IntArray) -> Images:
        own = torch.from_numpy(rows)
        own = own.to(self.device)
        X = as_rows(self.X[own], self.device)
        return Images(X, self.y[own], self.w[own])


def small_images(task: Task, images_at_once: int = 1_024) -> Tensor:
    """Images with no side longer than :data:`LARGEST_SIDE`, on the host."""
    size = tuple(task.X.shape[2:])
    if small_size(size) == size:
        return tensor(task.X[:])
    n = len(task.codes)
    parts = []
    for block in blocks(n, 1, images_at_once):
        large = tensor(task.X[block])
        on_device = large.to(task.device)
        small = scaled_down(on_device)
        parts.append(small.cpu())
    return torch.cat(parts)


@dataclass(frozen=True)
class Convolution(Member):
    """Networks for images of 28 to 96 pixels; larger ones are scaled down."""

    gpu_width: int = 64  #: channels of the first block
    cpu_width: int = 16  #: what registers hold: 14 or 20 take as long as 16 or 32
    #: epochs of a run on 1,000 images, fewer in proportion to the square root of their number
    gpu_epochs: float = 80.0
    cpu_epochs: float = 20.0
    #: the longest run, in usual ones
    gpu_longest: float = 8.0
    cpu_longest: float = 4.0
    #: times the score of images as they are beyond which those mixed in pairs are tried no longer
    hopeless: float = 1.05
    #: most images that runs which choose learn from: on a GPU more take hardly longer, as epochs
    #: are fewer, and what is chosen suits many images better
    gpu_tried: int = 20_000
    cpu_tried: int = 2_500
    scored_images: int = 10_000  #: most images that they are judged by
    gpu_networks: int = 4  #: at most
    images_in_all: int = 40_000  #: most that several networks learn from, together
    parts: int = 3  #: of which one is held out for choosing

    images: ClassVar[bool] = True
    learned: ClassVar[type[Fitted]] = FittedConvolution

    def cost(self, n: int, d: int, k: int) -> float:
        """The cost of the last run on a CPU, if it is doubled once."""
        return 2 * self._run_seconds(n, d)

    def cost_once(self, n: int, d: int, k: int) -> float:
        """The cost of the runs that choose: two of the usual length, one of twice that."""
        held_out = n // self.parts
        not_held_out = n - held_out
        tried = min(not_held_out, self.cpu_tried)
        return 4 * self._run_seconds(tried, d)

    def _run_seconds(self, n: int, d: int) -> float:
        """About the seconds of a run of the usual length, on one core."""
        images = self.cpu_epochs * math.sqrt(1000 * n)
        return images * image_seconds(d)

    def unsaved_values(self, shape: tuple[int, ...]) -> dict[str, Any]:
        return {"row_shape": shape}

    def fit(self, task: Task) -> FittedConvolution:
        data = Images.of(task)
        shape: Shape = tuple(task.X.shape[1:])
        side = max(shape[1:])
        if side > LARGEST_SIDE:
            said = f"images of {shape[1]} × {shape[2]} pixels are scaled down to"
            small = " × ".join(str(length) for length in data.X.shape[2:])
            warnings.warn(
                f"{said} {small}: details are lost", CollisionWarning, stacklevel=2
            )
        with prepared(task.device):
            training = self.training(task)
            plan = self.remembered_plan(task, data)
            runs = self._runs(training, plan, data)
        first = runs[0]
        if first.interrupted and not first.history:
            raise KeyboardInterrupt
        module = rounded(Mean([run.module for run in runs])).eval()
        fitted = FittedConvolution(
            self.name,
            small_arrays(module),
            shape,
            training.width,
            task.n_classes,
            plan.variation.mirrored,
            plan.temperature,
            plan.noise,
            first.history,
            len(runs),
            interrupted=len(runs) < plan.networks or first.interrupted,
            capped=plan.capped,
        )
        vars(fitted)["module"] = module  # on its device
        return fitted

    def _runs(self, training: Training, plan: Plan, data: Images) -> list[Run]:
        """One run for each network; after Ctrl-C those that had ended, or the first as it is."""
        runs: list[Run] = []
        for number in range(plan.networks):
            run = training.run(
                data, plan.multiple, plan.variation, numbered(self.name, number), number
            )
            if run.interrupted and runs:
                break
            runs.append(run)
            if run.interrupted:
                break
        return runs

    def training(self, task: Task) -> Training:
        """The runs of a task, as suits the device."""
        settings = image_settings(task)
        if task.device == "cpu":
            return Training(task, settings, self.cpu_width, self.cpu_epochs)
        return Training(
            task,
            settings,
            self.gpu_width,
            self.gpu_epochs,
            mixes=True,
            most_networks=self.gpu_networks,
        )

    def remembered_plan(self, task: Task, data: Images) -> Plan:
        """The plan from the training images of the first fold, made once for all."""
        known = task.memory
        if self.name not in known:
            if task.first is not None:
                task = task.first()
                data = Images.of(task)
            training = self.training(task)
            known[self.name] = self.plan(training, data)
        plan: Plan = known[self.name]
        return plan

    def plan(self, training: Training, data: Images) -> Plan:
        """How images are varied and how long a run is, by images that are held out."""
        task = training.task
        part = task.inner_parts(self.parts, task.seed)
        generator = np.random.default_rng(task.seed)
        trained_on = np.flatnonzero(part != 0)
        scored = np.flatnonzero(part == 0)
        most_tried = self.gpu_tried
        longest = self.gpu_longest
        if task.device == "cpu":
            most_tried = self.cpu_tried
            longest = self.cpu_longest
        tried = data.take(some(trained_on, most_tried, generator))
        held_out = data.take(some(scored, self.scored_images, generator))
        if len(held_out) == 0:
            as_they_are = Variation(mirrored=False, mixed=False)
            return Plan(1.0, as_they_are, math.inf, 1.0, 0.0, capped=True)
        trials = Trials(training, tried, held_out, self.name)
        best = self._best(trials, longest)
        networks = min(training.most_networks, self.images_in_all // len(data))
        if networks < 2:
            return best
        return trials.averaged(best, networks)

    def _best(self, trials: Trials, longest: float) -> Plan:
        """How one network is trained."""
        variation = trials.better_mirrored()
        plain = trials.to_its_end(variation, 1.0, longest)
        if not trials.training.mixes:
            return plain
        mixed = variation._replace(mixed=True)
        first = trials.scores(plain.multiple, mixed)
        if first.mean > self.hopeless * plain.score:
            return plain
        other = trials.to_its_end(mixed, plain.multiple, longest)
        return min(plain, other, key=lambda plan: plan.score)


class Variation(NamedTuple):
    """How images are varied beside shifts and blank squares."""

    mirrored: bool
    mixed: bool


@dataclass(frozen=True)
class Plan:
    """How a network is trained on all images, and how its logits are calibrated."""

    multiple: float  #: of the usual number of epochs
    variation: Variation
    score: float  #: mean Brier score of held-out images
    temperature: float
    noise: float
    capped: bool
    networks: int = 1  #: whose logits are averaged


def numbered(name: str, number: int) -> str:
    """The name of a run of one of several networks."""
    return f"{name}-network-{number}" if number else name


def image_seconds(d: int) -> float:
    """About the seconds that an image of d numbers takes to train on once, with one core."""
    third = d // 3
    pixels = d
    if d % 3 == 0 and math.isqrt(third) ** 2 == third:  # a square of three colours
        pixels = third
    side = min(math.sqrt(pixels), LARGEST_SIDE)
    halvings = round(math.log2(side / 4))
    early = max(0, halvings - 3)  # before the layers that cost most
    costly = side**2 / 4.0**early
    return 5e-5 + 2.6e-7 * costly


def image_settings(task: Task) -> TrainingConfig:
    """What the user's ``training`` says of a network for images; the rest is refused by name."""
    given = task.training or {}
    config = TrainingConfig.from_mapping(given, task.device)
    known = ("max_epochs", "batch_size", "learning_rate", "weight_decay")
    for name in given:
        if name not in known:
            said = (
                f"training has {name!r}, which the member 'convolution' does not take"
            )
            hint = "leave it out, or choose members such as ['network']"
            raise ValueError(f"{said} (it takes {', '.join(known)}): {hint}")
    return config


@contextmanager
def prepared(device: str) -> Iterator[None]:
    """One thread on a CPU; warnings of torch that concern nobody are not shown."""
    with one_thread(device == "cpu"), warnings.catch_warnings():
        # Recorded steps have a stream of their own, and the first one finds no context: torch
        # says so, and goes on.
        known = "The AccumulateGrad node's stream|Attempting to run cuBLAS"
        warnings.filterwarnings("ignore", known)
        yield


def rounded(module: nn.Module) -> nn.Module:
    """Parameters in half precision, as files hold them."""
    for parameter in module.parameters():
        parameter.data = parameter.data.half().float()
    whole: Any = module
    contiguous: nn.Module = whole.to(memory_format=torch.contiguous_format)
    return contiguous


def small_arrays(module: nn.Module) -> Arrays:
    """The state of a module, its parameters in half precision."""
    arrays = state_arrays(module)
    for name, _ in module.named_parameters():
        arrays[name] = arrays[name].astype(np.float16)
    return arrays


class Scores(NamedTuple):
    """Logits of held-out images, how they are calibrated, and the Brier scores that follow."""

    logits: Tensor
    brier: Tensor
    mean: float  #: weighted
    temperature: float
    noise: float


def scored(logits: Tensor, y: Tensor, w: Tensor) -> Scores:
    """Brier scores of calibrated logits."""
    temperature, noise = calibrated(logits, y, w)
    P = log_posteriors(logits, temperature, noise).exp()
    n_classes = P.shape[1]
    onehot = functional.one_hot(y, n_classes)
    brier = (P - onehot).square().sum(1)
    weights = w.double()
    mean = float(torch.dot(brier, weights) / weights.sum())
    return Scores(logits, brier, mean, temperature, noise)


def held_out_logits(module: nn.Module, held_out: Images, mirrored: bool) -> Tensor:
    """Logits of images that a network has not seen."""
    images_at_once = 1_024
    n = len(held_out)
    parts = []
    with torch.inference_mode():
        for block in blocks(n, 1, images_at_once):
            x = held_out.X[block]
            part = averaged_logits(module, x, mirrored)
            parts.append(part.cpu())
    return torch.cat(parts).double()


def log_posteriors(logits: Tensor, temperature: float, noise: float) -> Tensor:
    """Logarithms of softmax(z / temperature), of which a share is spread over all classes."""
    n_classes = logits.shape[-1]
    P = torch.softmax(logits / temperature, -1)
    mixed = (1 - noise) * P + noise / n_classes
    return torch.log(mixed)


def calibrated(logits: Tensor, y: Tensor, w: Tensor) -> tuple[float, float]:
    """Temperature and noise of the lowest log loss; few images hardly move them from 1 and 0."""
    grid = torch.linspace(-2, 2, 33)
    powers = grid.tolist()
    noises = [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4]
    lowest = math.inf
    best = (1.0, 0.0)
    weights = w.to(logits)
    with one_thread():  # threads would wait for each other: every step is small
        for power, noise in product(powers, noises):
            temperature = 2**power
            logs = log_posteriors(logits, temperature, noise)
            losses = functional.nll_loss(logs, y, reduction="none")
            # A Gaussian, within a factor of √2 of 1 more often than not, and an exponential of
            # mean 0.05.
            prior = 2 * power**2 + 20 * noise
            loss = float(torch.dot(losses, weights)) + prior
            if loss < lowest:
                lowest = loss
                best = (temperature, noise)
    return best


def paired_gain(before: Tensor, after: Tensor, weights: Tensor) -> tuple[float, float]:
    """By how much the mean score fell, and the standard error of that."""
    precise = weights.double()
    share = precise / precise.sum()
    difference = (before - after).double()
    gain = torch.dot(share, difference)
    deviation = difference - gain
    variance = (share * deviation).square().sum()
    error = math.sqrt(variance)
    return float(gain), error


def averaged_logits(module: nn.Module, x: Tensor, mirrored: bool) -> Tensor:
    """Mean logits of an image, of the same moved by a pixel, and of their mirror images."""
    every_side = (1, 1, 1, 1)
    padded = functional.pad(x, every_side, mode="replicate")
    size = x.shape[2:]
    height, width = size
    moved_down = padded[:, :, :height, :width]
    moved_up = padded[:, :, 2:, 2:]
    views = [x, moved_down, moved_up]
    if mirrored:
        mirror_images = [view.flip(-1) for view in views]
        views += mirror_images
    total = torch.zeros((), device=x.device)
    for view in views:
        logits = module(view)
        total = total + logits
    n_views = len(views)
    return total / n_views


def scaled_down(x: Tensor, largest: int = LARGEST_SIDE) -> Tensor:
    """Images with no side longer than ``largest``: pixels are averaged."""
    height, width = small_size(tuple(x.shape[2:]), largest)
    if (height, width) == tuple(x.shape[2:]):
        return x
    return functional.interpolate(x, (height, width), mode="area")


def small_size(size: tuple[int, ...], largest: int = LARGEST_SIDE) -> tuple[int, int]:
    """Height and width, in proportion, with no side longer than ``largest``."""
    height, width = size
    factor = min(1.0, largest / max(size))
    return max(1, round(height * factor)), max(1, round(width * factor))


@dataclass(frozen=True)
class Training:
    """Runs of one network: they differ in images, length and variation."""

    task: Task
    config: TrainingConfig  #: what the user says
    width: int
    usual_epochs: float  #: on 1,000 images
    mixes: bool = False  #: whether images may be mixed in pairs
    most_networks: int = 1  #: whose logits are averaged
    highest_rate: float = 0.4  #: for batches of ``largest_batch``
    weight_decay: float = 5e-4
    largest_batch: int = 512

    def epochs(self, n: int, multiple: float) -> int:
        """Epochs of a run on n images that has ``multiple`` times the usual length."""
        fewest = 4
        usual = self.usual_epochs * math.sqrt(1000 / n)
        wanted = max(fewest, round(multiple * usual))
        if self._says("max_epochs"):
            return min(wanted, self.config.max_epochs)
        return wanted

    def _says(self, name: str) -> bool:
        return name in (self.task.training or {})

    def batch(self, n: int) -> int:
        """Images of a batch: about 64 steps are left per epoch, fewer where launches cost most."""
        if not isinstance(self.config.batch_size, str):
            return min(n, self.config.batch_size)
        smallest = 32
        steps = 64
        if self.task.device != "cpu":
            smallest = 64
            steps = 32
        share = max(smallest, n // steps)
        return min(n, self.largest_batch, share)

    def run(
        self,
        data: Images,
        multiple: float,
        variation: Variation,
        name: str,
        number: int = 0,
    ) -> Run:
        """A network trained on ``data`` for a multiple of the usual epochs.

        In the checkpoint folder it is under its own ``name``. Networks of other numbers have other
        seeds.
        """
        epochs = self.epochs(len(data), multiple)
        batch = self.batch(len(data))
        rate = self.highest_rate * batch / self.largest_batch
        if self._says("learning_rate"):
            rate = self.config.learning_rate
        decay = self.weight_decay
        if self._says("weight_decay"):
            decay = self.config.weight_decay
        cycle = OneCycle(epochs, rate, decay)
        config = TrainingConfig(max_epochs=epochs, patience=0, device=self.task.device)
        task = self.task
        seed = task.seed + variation.mixed
        if number > 0:
            entropy = np.random.SeedSequence([seed, number])
            seed = int(entropy.generate_state(1)[0])
        module = self._initial(data, seed)
        objective = ImageObjective(data, batch, variation, task.n_classes)
        return fit_loop(
            module,
            objective,
            config,
            seed,
            self._report,
            task.checkpoint,
            name,
            cycle,
        )

    def _initial(self, data: Images, seed: int) -> nn.Module:
        n_classes = self.task.n_classes
        device = self.task.device
        shape = tuple(data.X.shape[1:])
        made = partial(build, shape, n_classes, self.width)
        module: Any = seeded_module(made, seed)
        whiten(module, data)
        module.to(device)
        # Convolutions are a third faster with channels last.
        module.to(memory_format=torch.channels_last)
        initial: nn.Module = module
        return initial

    def _report(self, entry: dict[str, Any]) -> None:
        if self.task.report is not None:
            self.task.report({**entry, "val_loss": entry["train_loss"]})


@dataclass(frozen=True)
class Trials:
    """Runs that only help to choose, on some images, with others to score."""

    training: Training
    tried: Images
    held_out: Images
    name: str
    #: scores, by name of the run
    known: dict[str, Scores] = field(default_factory=dict)

    def better_mirrored(self) -> Variation:
        """Images as they are, mirrored where that scores better at the usual length."""
        plain = Variation(mirrored=False, mixed=False)
        mirrored = Variation(mirrored=True, mixed=False)
        if self.scores(1.0, mirrored).mean < self.scores(1.0, plain).mean:
            return mirrored
        return plain

    def to_its_end(self, variation: Variation, multiple: float, longest: float) -> Plan:
        """From ``multiple`` usual lengths on, runs are doubled until that gains next to nothing.

        A gain counts from 2% on where it is beyond its standard error, and from 5% on where few
        images are held out: to train too long costs less than to stop early.
        """
        n = len(self.tried)
        best = self.scores(multiple, variation)
        capped = True
        while multiple < longest:
            twice = 2 * multiple
            epochs = self.training.epochs(n, multiple)
            if self.training.epochs(n, twice) == epochs:  # the user says so
                break
            longer = self.scores(twice, variation)
            gain, error = paired_gain(best.brier, longer.brier, self.held_out.w.cpu())
            notable = max(0.02 * best.mean, min(error, 0.05 * best.mean), 0.001)
            if gain <= notable:
                capped = False
                break
            best = longer
            multiple = twice
        return Plan(
            multiple, variation, best.mean, best.temperature, best.noise, capped
        )

    def scores(self, multiple: float, variation: Variation) -> Scores:
        """Scores of held-out images by a network that is trained once."""
        n = len(self.tried)
        epochs = self.training.epochs(n, multiple)
        words = [self.name, f"{epochs}-epochs"]
        for kind, used in variation._asdict().items():
            if used:
                words.append(kind)
        name = "-".join(words)
        if name not in self.known:
            run = self.training.run(self.tried, multiple, variation, name)
            if run.interrupted:  # nothing of it is worth keeping
                raise KeyboardInterrupt
            held_out = self.held_out
            logits = held_out_logits(run.module, held_out, variation.mirrored)
            self.known[name] = scored(logits, held_out.y.cpu(), held_out.w.cpu())
        return self.known[name]

    def averaged(self, plan: Plan, networks: int) -> Plan:
        """The plan with several networks, their mean logits calibrated."""
        logits = [self.scores(plan.multiple, plan.variation).logits]
        for number in range(1, networks):
            name = numbered(f"{self.name}-trial", number)
            run = self.training.run(
                self.tried, plan.multiple, plan.variation, name, number
            )
            if run.interrupted:
                raise KeyboardInterrupt
            mirrored = plan.variation.mirrored
            logits.append(held_out_logits(run.module, self.held_out, mirrored))
        y = self.held_out.y.cpu()
        found = scored(torch.stack(logits).mean(0), y, self.held_out.w.cpu())
        return replace(
            plan,
            score=found.mean,
            temperature=found.temperature,
            noise=found.noise,
            networks=networks,
        )


class ImageObjective:
    """Cross-entropy of the class of varied images, an ``Objective`` of the training loop.

    A batch is a tensor (1 + N_RANDOM, B) of whole numbers: those of images, and random ones below
    RANDOM_NUMBERS for each.
    """

    n_members = 1

    def __init__(
        self, data: Images, batch: int, variation: Variation, n_classes: int
    ) -> None:
        self.data = data
        self.batch = batch
        self.variation = variation
        onehot = functional.one_hot(data.y, n_classes)
        weights = data.w[:, None]
        self.targets = onehot * weights

    @property
    def sample_batches(self) -> tuple[Tensor, Tensor] | None:
        """Two batches of the first images, varied differently; None for pixels on the host."""
        if self.data.X.data.device != self.data.device:
            return None
        images = torch.arange(self.batch, device=self.data.device)
        none = torch.zeros((N_RANDOM, self.batch), device=images.device).long()
        some = none + RANDOM_NUMBERS // 3
        first = torch.cat([images[None], none])
        second = torch.cat([images[None], some])
        return first, second

    @property
    def signature(self) -> str:
        own = signature(self.data.X, self.data.y, self.data.w)
        return f"{own} {self.batch} {self.variation}"

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        data = self.data
        size = self.batch
        n = len(data)
        device = data.device
        order = torch.randperm(n, generator=generator, device=device)
        noise = torch.rand(N_RANDOM, n, generator=generator, device=device)
        whole = (noise * RANDOM_NUMBERS).long()
        images = order[None]
        epoch = torch.cat([images, whole])
        for batch in torch.split(epoch, size, 1):
            # What is left over at the end is at another place in the next epoch.
            if batch.shape[1] == size:
                yield batch

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        rows = batch[0]
        random = batch[1:].float() / RANDOM_NUMBERS
        images = self.data.X[rows]
        labels = self.targets[rows]
        varied, targets = augment(images, labels, random, self.variation)
        x = varied.contiguous(memory_format=torch.channels_last)
        with half_precision(x.device):
            logits = module(x)
        return functional.cross_entropy(logits.float(), targets)

    def held_out_loss(self, module: nn.Module) -> Tensor:
        return torch.full((1,), math.nan, device=self.data.device)


class Mean(nn.Module):
    """Mean logits of several networks."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros((), device=x.device)
        for network in self.networks:
            total = total + network(x)
        return total / len(self.networks)


class Logits(nn.Module):
    """The largest value of every channel, and an eighth of the logits that follow from them.

    Small logits keep the first steps, at high rates, from being sure of anything.
    """

    def __init__(self, channels: int, n_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        largest = x.amax((2, 3))
        logits: Tensor = self.linear(largest) / 8
        return logits


def convolution(channels: int, out: int, halved: bool = False) -> nn.Sequential:
    """A 3 × 3 convolution with batch normalisation, halved in size where asked.

    At first it lets the channels that come in pass unchanged (Dirac), beside random ones.
    """
    layers = nn.Sequential()
    layer = nn.Conv2d(channels, out, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight.data[:channels])
    layers.append(layer)
    if halved:
        layers.append(nn.MaxPool2d(2))
    layers.append(nn.BatchNorm2d(out))
    layers.append(nn.GELU())
    return layers


def build(shape: tuple[int, ...], n_classes: int, width: int) -> nn.Sequential:
    """The network for images of one shape: the last layers see about four pixels a side."""
    channels, *size = shape
    small = small_size(tuple(size))
    shorter = min(small)
    nearest = round(math.log2(shorter / 4))
    halvings = max(0, nearest)
    side = min(2, shorter)  # of a patch
    n_filters = 2 * channels * side**2
    first = nn.Conv2d(channels, n_filters, side, bias=False)
    first.weight.requires_grad_(False)
    layers = nn.Sequential(first, nn.GELU())
    early = halvings - 3
    for _ in range(early):  # before the layers that cost most
        halving = nn.MaxPool2d(2)
        layers.append(halving)
    before = n_filters
    for number, factor in enumerate((1, 4, 4)):
        out = factor * width
        halved = halvings >= 3 - number
        layers.append(convolution(before, out, halved))
        layers.append(convolution(out, out))
        before = out
    layers.append(Logits(before, n_classes))
    return layers


def whiten(module: Any, data: Images, n_images: int = 4_000) -> None:
    """Set the first layer: what its filters say of patches has no correlation and equal variance.

    The filters are eigenvectors of the patches' second moments, over the roots of the eigenvalues,
    with both signs. Directions of next to no variance are not blown up.
    """
    weight = module[0].weight
    _, channels, side, _ = weight.shape
    x = scaled_down(data.X[:n_images]).double()
    patches = functional.unfold(x, side)
    d = channels * side**2
    rows = patches.transpose(1, 2).reshape(-1, d)
    moments = rows.T @ rows / len(rows)
    eigenvalues, vectors = torch.linalg.eigh(moments.cpu())
    spread = torch.sqrt(eigenvalues + (5e-4 * eigenvalues.mean() + 1e-12))
    filters = (vectors / spread).T
    both = torch.cat([filters, -filters])
    weight.data = both.reshape(weight.shape).to(weight)


def augment(
    x: Tensor, targets: Tensor, random: Tensor, variation: Variation
) -> tuple[Tensor, Tensor]:
    """Images shifted, with a blank square, half of them mirrored, mixed in pairs as labels are.

    ``random`` (N_RANDOM, n) are uniform numbers: two of the shift, two of the place of the square,
    whether to mirror, share of a pair. Shifts are up to an eighth of the side, and the square has a
    quarter of it.
    """
    shift_down, shift_right, top, left, mirror, share = random
    _, _, height, width = x.shape
    rows = reflected(height, shift_down)
    columns = reflected(width, shift_right)
    if variation.mirrored:
        of_image = mirror[:, None]
        mirrored = of_image < 0.5
        flipped = columns.flip(1)
        columns = torch.where(mirrored, flipped, columns)
    moved = taken(x, rows, columns)
    blank_rows = blanked(height, top)
    blank_columns = blanked(width, left)
    down = blank_rows[:, None, :, None]
    across = blank_columns[:, None, None, :]
    blank = down & across
    cut = moved.masked_fill(blank, 0.0)
    if not variation.mixed:
        return cut, targets
    # mixup (Zhang et al. 2018); batches are in random order: the image before is as good as any
    angle = torch.pi * share
    cosine = torch.cos(angle)
    half_cosine = 0.5 * cosine
    own = 0.5 - half_cosine
    own_pixels = own[:, None, None, None]
    own_labels = own[:, None]
    cut_before = cut.roll(1, 0)
    targets_before = targets.roll(1, 0)
    mixed = torch.lerp(cut_before, cut, own_pixels)
    labels = torch.lerp(targets_before, targets, own_labels)
    return mixed, labels


def taken(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels of every image at its own ``rows`` and ``columns``."""
    channels_last = x.permute(0, 2, 3, 1)
    image = torch.arange(len(x), device=x.device)
    found = channels_last[image[:, None, None], rows[:, :, None], columns[:, None, :]]
    return found.permute(0, 3, 1, 2)


def reflected(side: int, random: Tensor) -> Tensor:
    """Which pixels of a side stand where after a shift of every image: (n, side)."""
    largest = round(side / 8)
    n_shifts = 2 * largest + 1
    scaled = random * n_shifts
    shift = scaled.long() - largest
    unmoved = torch.arange(side, device=random.device)
    place = unmoved + shift[:, None]
    last = side - 1
    beyond_first = place.abs()
    from_last = last - beyond_first
    return last - from_last.abs()


def blanked(side: int, random: Tensor) -> Tensor:
    """Which pixels of a side are blank in every image: (n, side)."""
    length = round(side / 4)
    n_starts = side - length + 1
    scaled = random * n_starts
    start = scaled.long()[:, None]
    end = start + length
    device = random.device
    place = torch.arange(side, device=device)
    from_start = place >= start
    before_end = place < end
    return from_start & before_end
