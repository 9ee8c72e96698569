"""Networks of one shape side by side, each trained on a sample of its own.

Symbols: M samples of n rows, d features, K classes, B rows (or pairs) a step. Members of a stack
share no parameter and Adam works entry by entry, so each is trained as if it were alone: a step
moves M networks in the time of one. On a GPU a step is one recorded launch.

An epoch is cut into equal steps of about ``batch_for(n)`` rows. The few that are left over, other
ones each time, are not shown in that epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from collidescope._scaling import apply_scaling, fit_scaling
from collidescope.pairwise.pairs import balanced_risk
from collidescope.pairwise.printed import TrainedContrast, TwoOutputs, contrast_of
from collidescope.pairwise.scoring import PairwiseNetwork
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP, mlp
from collidescope.training.recording import capture, put_back
from studies.baselines.bayesian import MeanField
from studies.paper.rows import Data, FloatArray, IntArray

Batch = Tensor
Loss = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Samples:
    """All samples on the device of the networks: ``X`` (M, n, d) and ``y`` (M, n)."""

    X: Tensor
    y: Tensor
    n_classes: int

    @classmethod
    def of(cls, data: Sequence[Data], device: str) -> Samples:
        X = np.stack([each.X for each in data]).astype(np.float32)
        y = np.stack([each.codes for each in data])
        n_classes = data[0].n_classes
        return cls(
            torch.from_numpy(X).to(device), torch.from_numpy(y).to(device), n_classes
        )

    def __len__(self) -> int:
        return len(self.y)

    @property
    def rows(self) -> int:
        return int(self.y.shape[1])

    def inputs(self, index: Tensor) -> Tensor:
        """Rows ``index`` (M, B) of each sample: (M, B, d)."""
        return torch.take_along_dim(self.X, index[..., None], dim=1)

    def labels(self, index: Tensor) -> Tensor:
        """Their class numbers, (M, B)."""
        return torch.take_along_dim(self.y, index, dim=1)


def steps_of_an_epoch(rows: int, usual: int) -> tuple[int, int]:
    """How many steps, and rows in each: equal parts of about the usual size.

    >>> steps_of_an_epoch(750, 64)
    (12, 62)
    """
    steps = max(1, round(rows / usual))
    return steps, rows // steps


def shuffled(samples: Samples, generator: torch.Generator) -> Tensor:
    """The rows of each sample in an order of its own, (M, n)."""
    shape = samples.y.shape
    return torch.rand(shape, generator=generator, device=generator.device).argsort(1)


class BalancedPairs:
    """Pairs of each sample as (31) asks: half of one class, half of two, classes uniform."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.order = samples.y.argsort(dim=1, stable=True)
        classes = torch.arange(samples.n_classes, device=samples.y.device)
        self.sizes = (samples.y[:, :, None] == classes).sum(1)
        self.first = self.sizes.cumsum(1) - self.sizes

    def draw(self, generator: torch.Generator) -> Tensor:
        """As many ordered pairs of different rows as there are rows: i, j and "same", (3, M, n)."""
        M, n = self.samples.y.shape
        K = self.samples.n_classes
        shape = (M, n)
        device = generator.device
        of_first = torch.randint(K, shape, generator=generator, device=device)
        of_other = torch.randint(K - 1, shape, generator=generator, device=device)
        of_other += of_other >= of_first
        same = (torch.arange(n, device=device) % 2 == 1).expand(shape)
        of_second = torch.where(same, of_first, of_other)
        i = self._places(of_first, torch.zeros_like(same), generator)
        # Of the other rows of the class: those from the first row on move up by one.
        j = self._places(of_second, same, generator)
        j += same & (j >= i)
        rows = [torch.take_along_dim(self.order, place, 1) for place in (i, j)]
        return torch.stack([*rows, same.long()])

    def _places(
        self, classes: Tensor, one_less: Tensor, generator: torch.Generator
    ) -> Tensor:
        """A place of each class, every one as likely; of one row less where that is asked."""
        sizes = torch.take_along_dim(self.sizes, classes, 1) - one_less.long()
        device = generator.device
        uniform = torch.rand(
            classes.shape, generator=generator, device=device, dtype=torch.float64
        )
        return torch.take_along_dim(self.first, classes, 1) + (uniform * sizes).long()


def train(
    module: nn.Module,
    loss: Loss,
    epochs: Iterator[Sequence[Batch]],
    learning_rate: float,
) -> Iterator[int]:
    """Adam at one rate over the batches of each epoch; yields the number of each when it is over.

    All batches have one shape, and a GPU is given each step as one recorded launch.
    """
    weights = list(module.parameters())
    on_gpu = weights[0].device.type == "cuda"
    optimizer = torch.optim.Adam(
        weights, lr=learning_rate, fused=True, capturable=on_gpu
    )

    def step(batch: Batch) -> Tensor:
        value = loss(batch)
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return value.detach()

    played: Loss | None = None
    for number, batches in enumerate(epochs, start=1):
        module.train()
        if played is None:
            played = _recorded(step, batches[0], module, optimizer) if on_gpu else step
        for batch in batches:
            last = played(batch)
        if not bool(torch.isfinite(last)):
            raise FloatingPointError(f"the loss of epoch {number} is {float(last)}")
        module.eval()
        yield number


def _recorded(
    step: Loss, batch: Batch, module: nn.Module, optimizer: torch.optim.Optimizer
) -> Loss:
    """One launch for each step; what recording moved is put back."""
    state = list(module.state_dict().values())
    before = [tensor.detach().clone() for tensor in state]
    played = capture(step, batch)
    put_back(state, before)
    moments = [t for each in optimizer.state.values() for t in each.values()]
    put_back(moments, [torch.zeros_like(moment) for moment in moments])
    return played


# ------------------------------------------------------------------------------------------
# V


def member(networks: StackedMLP, m: int) -> StackedMLP:
    """The network of sample m as it is now, as a stack of one."""
    alone = StackedMLP(1, *_ends(networks), _hidden(networks))
    alone.weight = nn.Parameter(networks.weight[m : m + 1].detach().clone())
    alone.bias = nn.Parameter(networks.bias[m : m + 1].detach().clone())
    return alone.eval()


def _ends(networks: StackedMLP) -> tuple[int, int]:
    return networks.shapes[0][0], networks.shapes[-1][1]


def _hidden(networks: StackedMLP) -> list[int]:
    return [outputs for _, outputs in networks.shapes[:-1]]


def pair_networks(
    samples: Samples, config: TrainingConfig, seed: int
) -> Iterator[tuple[int, StackedMLP]]:
    """After every epoch, V of every sample on the empirical risk (32), as ``step_a`` trains one."""
    device = samples.X.device
    generator = torch.Generator(device=device).manual_seed(seed)
    n_in = 2 * samples.X.shape[2]
    torch.manual_seed(seed)
    sizes = config.hidden_layer_sizes
    networks = StackedMLP(len(samples), n_in, 2, sizes, config.dropout).to(device)
    pairs = BalancedPairs(samples)
    steps, size = steps_of_an_epoch(samples.rows, config.batch_for(samples.rows))

    def loss(batch: Batch) -> Tensor:
        i, j, same = batch
        both = torch.cat([samples.inputs(i), samples.inputs(j)], dim=2)
        different, alike = networks(both).unbind(2)
        # Members have as many pairs each, so their mean risks add up to M times this one.
        risk = balanced_risk(alike - different, same.float())
        return risk * len(samples)

    def epochs() -> Iterator[Sequence[Batch]]:
        for _ in range(config.max_epochs):
            drawn = pairs.draw(generator)[:, :, : steps * size]
            yield drawn.split(size, dim=2)

    for epoch in train(networks, loss, epochs(), config.learning_rate):
        yield epoch, networks


def contrast(network: StackedMLP) -> TrainedContrast:
    """V of a stack of one."""
    body = mlp(*_ends(network), _hidden(network)).to(network.weight.device)
    linear = [layer for layer in body if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, (weight, bias) in zip(linear, network.layers, strict=True):
            layer.weight.copy_(weight[0].T)
            layer.bias.copy_(bias[0, 0])
    return contrast_of(PairwiseNetwork(TwoOutputs(body)))


# ------------------------------------------------------------------------------------------
# classifiers


def standardised(data: Data) -> Data:
    """Columns with mean 0 and spread 1, the new rows by the same numbers."""
    scaling = fit_scaling(data.X)
    X_new = apply_scaling(data.X_new, *scaling)
    return Data(apply_scaling(data.X, *scaling), data.codes, data.n_classes, X_new)


def part_of(data: Data, rows: IntArray) -> Data:
    """Some rows of a sample."""
    return Data(data.X[rows], data.codes[rows], data.n_classes, data.X_new)


def _row_epochs(
    samples: Samples, config: TrainingConfig, generator: torch.Generator
) -> Iterator[Sequence[Batch]]:
    steps, size = steps_of_an_epoch(samples.rows, config.batch_for(samples.rows))
    for _ in range(config.max_epochs):
        order = shuffled(samples, generator)[:, : steps * size]
        yield order.split(size, dim=1)


def _mean_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each member, (M,)."""
    each = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none"
    )
    return each.view(labels.shape).mean(1)


def classifiers(
    samples: Samples, config: TrainingConfig, seed: int
) -> Iterator[tuple[int, StackedMLP]]:
    """After every epoch, a plain network for every sample, with dropout where the settings ask for it."""
    device = samples.X.device
    generator = torch.Generator(device=device).manual_seed(seed)
    torch.manual_seed(seed)
    networks = StackedMLP(
        len(samples),
        samples.X.shape[2],
        samples.n_classes,
        config.hidden_layer_sizes,
        config.dropout,
    ).to(device)

    def loss(batch: Batch) -> Tensor:
        logits = networks(samples.inputs(batch))
        return _mean_losses(logits, samples.labels(batch)).sum()

    epochs = _row_epochs(samples, config, generator)
    for epoch in train(networks, loss, epochs, config.learning_rate):
        yield epoch, networks


class MeanFields(nn.Module):
    """Approximate posteriors of M networks, those of :class:`MeanField`, side by side."""

    def __init__(self, members: Sequence[MeanField]) -> None:
        super().__init__()
        self.like = [
            members[0]
        ]  # in a list, so that its own parameters are not trained
        self.loc = nn.Parameter(torch.stack([m.loc.detach() for m in members]))
        scales = [m.log_scale.detach() for m in members]
        self.log_scale = nn.Parameter(torch.stack(scales))

    def forward(self, x: Tensor) -> Tensor:
        """Logits (M, B, K) of rows (M, B, d), with weights drawn once for each member."""
        z = self.loc + self.log_scale.exp() * torch.randn_like(self.loc)
        *hidden, weight, bias = self.like[0].parts(z)
        for w, b in zip(hidden[::2], hidden[1::2], strict=True):
            x = torch.relu(torch.baddbmm(b, x, w))
        return torch.baddbmm(bias, x, weight)

    def divergences(self) -> Tensor:
        """KL(q ‖ prior) of each member, (M,)."""
        squares = (2 * self.log_scale).exp() + self.loc * self.loc - 1
        return (squares / 2 - self.log_scale).sum(1)

    def draw(self, m: int, n_draws: int, seed: int) -> StackedMLP:
        """Networks of member m with weights drawn from its posterior."""
        member = self.like[0]
        with torch.no_grad():
            member.loc.copy_(self.loc[m])
            member.log_scale.copy_(self.log_scale[m])
        return member.draw(n_draws, torch.Generator().manual_seed(seed))


def elbo_losses(
    fields: MeanFields, x: Tensor, labels: Tensor, rows: int, kl_weight: float
) -> Tensor:
    """-ELBO / n of each member on a batch: the loss that the baseline has from Pyro."""
    return _mean_losses(fields(x), labels) + kl_weight * fields.divergences() / rows


def bayesian_networks(
    samples: Samples,
    config: TrainingConfig,
    kl_weight: float,
    seed: int,
) -> Iterator[tuple[int, MeanFields]]:
    """After every epoch, the approximate posterior for every sample."""
    device = samples.X.device
    generator = torch.Generator(device=device).manual_seed(seed)
    sizes = [samples.X.shape[2], *config.hidden_layer_sizes, samples.n_classes]
    initial = torch.Generator().manual_seed(seed)
    members = [MeanField(sizes, 1.0, initial).to(device) for _ in range(len(samples))]
    fields = MeanFields(members)
    torch.manual_seed(seed)

    def loss(batch: Batch) -> Tensor:
        x = samples.inputs(batch)
        y = samples.labels(batch)
        return elbo_losses(fields, x, y, samples.rows, kl_weight).sum()

    epochs = _row_epochs(samples, config, generator)
    for epoch in train(fields, loss, epochs, config.learning_rate):
        yield epoch, fields


def mean_posteriors(
    networks: StackedMLP, X: FloatArray, temperature: float = 1.0
) -> FloatArray:
    """Mean over the stack of softmax(logits / temperature), (n, K)."""
    place = networks.weight.device
    rows = torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32))
    parts = []
    with torch.inference_mode():
        for part in rows.split(max(1, 65_536 // networks.n_members)):
            logits = networks(part.to(place)).double() / temperature
            parts.append(torch.softmax(logits, -1).mean(0).cpu())
    return torch.cat(parts).numpy()
