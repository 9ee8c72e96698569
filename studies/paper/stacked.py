"""Scenarios A, B and C at the paper's own size, with the networks of many samples side by side.

A network of 6 × 128 leaves a GPU idle. So the networks of all samples of a problem are trained as
one stack: a batched product instead of a product for each. They share no weight, so each is trained
as if it were alone. A curve is one training that is looked at after several numbers of epochs: the
rate of Adam is constant, so the network after 50 of 500 epochs is the one of 50 epochs.

The parts of the study: V on all rows (``printed``), V of five folds (``folds``), and the
baselines, a plain network, temperature scaling, Monte-Carlo dropout and a Bayesian network.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.model_selection import StratifiedKFold, train_test_split
from torch import Tensor, nn

from collidescope import (
    collision_matrix_from_posteriors,
    recover,
    solve_posteriors,
)
from collidescope._scaling import apply_scaling, fit_scaling
from collidescope.pairwise.pairs import balanced_risk
from collidescope.pairwise.printed import Descent, PrintedSettings, solve_printed
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import Objective, epoch_generator, fit_loop
from collidescope.training.networks import FactorisedObjective, StackedMLP
from collidescope.training.rows import Rows, Split, as_rows
from studies.baselines.bayesian import MeanField
from studies.baselines.mc_dropout import thinned
from studies.baselines.temperature import TEMPERATURES
from studies.measures import calibration_error
from studies.paper import rows, scenarios
from studies.paper.recovery import Descents
from studies.paper.rows import FloatArray, IntArray, shifted
from studies.store import Cell, Result

#: The device of every network.
DEVICE = os.environ.get("STUDIES_DEVICE", "cpu")
#: Bytes of the activations of a layer, for the pairs that are scored at once.
SCORED_BYTES = 2**29 if DEVICE.startswith("cuda") else 2**24
#: Share of the rows on which the temperature is chosen; Guo et al. and the baseline here have it.
TEMPERATURE_SHARE = 0.1
DROPOUT = 0.2
#: The paper's h, passes with dropout and draws of the Bayesian network.
DRAWS = 50
#: Weight of the divergence in the Bayesian network, as in the baseline.
KL_WEIGHT = 0.1
FOLDS = 5

#: (epochs, results of all samples)
Look = tuple[int, list[dict[str, rows.Row]]]


@dataclass
class Stack:
    """Samples of one size, and which rows each network of the stack is trained on."""

    samples: list[rows.Data]
    owner: list[int]  #: the sample of every network
    own_rows: list[IntArray]  #: rows of that sample, one array for every network

    def inputs(self, standardised: bool) -> tuple[Rows, Tensor]:
        """Rows of all samples one below the other, and their class numbers, on the device."""
        X = np.concatenate([scaled(each, standardised)[0] for each in self.samples])
        codes = np.concatenate([each.codes for each in self.samples])
        return as_rows(X, DEVICE), torch.from_numpy(codes.astype(np.int64)).to(DEVICE)

    def splits(self) -> list[Split]:
        """Places of the rows of every network; nothing is held out."""
        starts = np.cumsum([0] + [len(each.codes) for each in self.samples])
        found = []
        for owner, own in zip(self.owner, self.own_rows, strict=True):
            places = torch.from_numpy(own + starts[owner]).to(DEVICE)
            found.append((places, places[:0]))
        return found


def whole(samples: list[rows.Data]) -> Stack:
    """One network a sample, on all of its rows."""
    every = [np.arange(len(each.codes)) for each in samples]
    return Stack(samples, list(range(len(samples))), every)


def scaled(data: rows.Data, standardised: bool) -> tuple[FloatArray, FloatArray]:
    """Rows and new rows: as they are for V, standardised for the baselines."""
    if not standardised:
        return data.X, data.X_new
    centre, scale = fit_scaling(data.X)
    return apply_scaling(data.X, centre, scale), apply_scaling(
        data.X_new, centre, scale
    )


# ------------------------------------------------------------------------------------------
# training


class StackedPairs:
    """The risk (32) of V for every network of a stack, on pairs drawn as (31) says."""

    sample_batches = None  #: no step is recorded

    def __init__(
        self, X: Rows, y: Tensor, splits: Sequence[Split], config: TrainingConfig
    ) -> None:
        self.X = X
        self.n_members = len(splits)
        self.length = min(len(own) for own, _ in splits)
        self.batch_size = config.batch_for(self.length)
        k = int(y.max()) + 1
        places = [[own[y[own] == c] for c in range(k)] for own, _ in splits]
        self.sizes = torch.tensor(
            [[len(part) for part in parts] for parts in places], device=y.device
        )
        longest = int(self.sizes.max())
        self.table = torch.zeros(
            (self.n_members, k, longest), dtype=torch.long, device=y.device
        )
        for member, parts in enumerate(places):
            for c, part in enumerate(parts):
                self.table[member, c, : len(part)] = part

    @property
    def signature(self) -> str:
        return "stacked pairs"

    def draw(self, generator: torch.Generator) -> Tensor:
        """Rows i, rows j and whether they are of one class, (3, M, pairs of an epoch)."""
        device = self.table.device
        members, k, _ = self.table.shape
        shape = (members, self.length)
        member = torch.arange(members, device=device)[:, None]
        first = torch.randint(k, shape, generator=generator, device=device)
        other = torch.randint(k - 1, shape, generator=generator, device=device)
        other += other >= first
        same = (torch.arange(self.length, device=device) % 2 == 1).expand(shape)
        second = torch.where(same, first, other)
        uniform = torch.rand((2, *shape), generator=generator, device=device)
        sizes = self.sizes[member, first]
        i = (uniform[0] * sizes).long().minimum(sizes - 1)
        # One row less where both are of one class: a row is not compared with itself.
        left = self.sizes[member, second] - same.long()
        j = (uniform[1] * left).long().minimum(left - 1)
        j += same & (j >= i)
        rows_i = self.table[member, first, i]
        rows_j = self.table[member, second, j]
        return torch.stack([rows_i, rows_j, same.long()])

    def batches(self, generator: torch.Generator) -> Iterator[Tensor]:
        pairs = self.draw(generator)
        for start in range(0, self.length, self.batch_size):
            yield pairs[:, :, start : start + self.batch_size]

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        i, j, same = batch
        left = self.X[i.reshape(-1)].view(*i.shape, -1)
        right = self.X[j.reshape(-1)].view(*j.shape, -1)
        outputs = module(torch.cat([left, right], dim=-1))
        logits = outputs[..., 1] - outputs[..., 0]
        # The mean over all, times the networks: the sum of the means of each.
        return self.n_members * balanced_risk(logits, same.float())

    def held_out_loss(self, module: nn.Module) -> Tensor:
        return torch.full((self.n_members,), math.nan, device=self.table.device)


class MeanFields(nn.Module):
    """The baseline's mean-field posteriors side by side."""

    prior: Tensor

    def __init__(self, members: list[MeanField]) -> None:
        super().__init__()
        self.shapes = members[0].shapes
        self.register_buffer("prior", members[0].prior.clone(), persistent=False)
        loc = torch.stack([each.loc.detach() for each in members])
        log_scale = torch.stack([each.log_scale.detach() for each in members])
        self.loc = nn.Parameter(loc)
        self.log_scale = nn.Parameter(log_scale)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (M, B, K) of one draw for each."""
        noise = torch.randn_like(self.loc)
        z = self.loc + self.log_scale.exp() * noise
        pieces = torch.split(
            z * self.prior, [shape.numel() for shape in self.shapes], dim=-1
        )
        parts = [
            piece.view(-1, *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]
        *hidden, weight, bias = parts
        for w, b in zip(hidden[::2], hidden[1::2], strict=True):
            x = torch.relu(torch.baddbmm(b, x, w))
        return torch.baddbmm(bias, x, weight)

    def divergences(self) -> Tensor:
        """KL(q ‖ prior), (M,)."""
        variance = (2 * self.log_scale).exp()
        squares = variance + self.loc * self.loc - 1
        return (squares / 2 - self.log_scale).sum(1)


class StackedElbo(FactorisedObjective):
    """-ELBO / n of every network, with the weight of the baseline on the divergence."""

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        assert isinstance(module, MeanFields)
        losses = super().loss(module, batch)
        return losses + KL_WEIGHT * module.divergences().sum() / self.epoch_length


def config_of(settings: PrintedSettings) -> TrainingConfig:
    """The training of the paper, on the device of the study."""
    config = settings.training()
    return TrainingConfig(
        hidden_layer_sizes=config.hidden_layer_sizes,
        max_epochs=config.max_epochs,
        patience=0,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        weight_decay=0.0,
        device=DEVICE,
    )


def train(
    module: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    looks: Sequence[int],
    seed: int,
    look: Callable[[int], None],
) -> None:
    """Train to the last epoch; ``look`` is called after each of the epochs ``looks``."""

    def watch(entry: dict[str, Any]) -> None:
        if entry["epoch"] in looks:
            # The generators of the training must not feel the look.
            with torch.random.fork_rng(devices=cuda_devices()):
                look(entry["epoch"])
            module.train()

    fit_loop(module, objective, config, seed, progress=watch)


def cuda_devices() -> list[torch.device]:
    """The GPU, if it is one of CUDA."""
    if DEVICE.startswith("cuda"):
        return [torch.device(DEVICE)]
    return []


def stack_of_networks(members: int, n_in: int, n_out: int, *more: Any) -> StackedMLP:
    """Networks with the initial weights of seed 0."""
    return StackedMLP(members, n_in, n_out, *more, generator=epoch_generator(0, 0))


# ------------------------------------------------------------------------------------------
# scoring


class Scorer:
    """V of one network of a stack, in one order, for all pairs of two sets."""

    def __init__(self, stack: StackedMLP, member: int) -> None:
        self.layers = []
        for weight, bias in stack.layers:
            self.layers.append((weight[member].detach(), bias[member, 0].detach()))
        weight, bias = self.layers[-1]
        merged = weight[:, 1:] - weight[:, :1]
        self.layers[-1] = (merged, bias[1:] - bias[:1])

    def logits(self, left: Tensor, right: Tensor) -> Tensor:
        """(a, b): the two halves of the first layer once for each input."""
        (weight, bias), *others = self.layers
        d = left.shape[1]
        of_left = left @ weight[:d] + bias
        of_right = right @ weight[d:]
        h = (of_left[:, None] + of_right).flatten(0, 1).relu_()
        for weight, bias in others[:-1]:
            h = torch.addmm(bias, h, weight).relu_()
        weight, bias = others[-1]
        return torch.addmm(bias, h, weight).view(len(left), len(right))

    def means(
        self, A: Tensor, B: Tensor, members: Tensor, own: Tensor | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Mean V, and mean shifted V, of the rows of A with the rows of B of each class, (a, K).

        ``members`` are one-hot classes of B. ``own``: the place of each row of A in B, whose pair
        with itself is left out.
        """
        k = members.shape[1]
        width = max(weight.shape[1] for weight, _ in self.layers)
        height = max(1, SCORED_BYTES // (4 * width * len(B)))
        onto = members.double()
        plain = []
        similar = []
        with torch.inference_mode():
            for part in torch.split(torch.arange(len(A), device=A.device), height):
                V = torch.sigmoid(self.logits(A[part], B))
                sim = V / (V + (k - 1) * (1 - V))
                if own is not None:
                    columns = own[part][:, None]
                    V.scatter_(1, columns, 0.0)
                    sim.scatter_(1, columns, 0.0)
                plain.append(V.double() @ onto)
                similar.append(sim.double() @ onto)
        counts = members.sum(0).double().expand(len(A), k)
        if own is not None:
            counts = counts - members[own].double()
        of_plain = torch.cat(plain) / counts
        of_similar = torch.cat(similar) / counts
        return of_plain.cpu().numpy(), of_similar.cpu().numpy()

    def gramians(
        self, X: Tensor, codes: IntArray, pairs: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Step B with m pairs for each entry: of V, and of the shifted V."""
        k = int(codes.max()) + 1
        places = [np.flatnonzero(codes == c) for c in range(k)]
        G = np.empty((2, k, k))
        for i in range(k):
            for j in range(k):
                first = torch.from_numpy(rng.choice(places[i], pairs)).to(X.device)
                second = torch.from_numpy(rng.choice(places[j], pairs)).to(X.device)
                V = self.pairs(X[first], X[second])
                G[0, i, j] = V.mean()
                G[1, i, j] = shifted(V, k).mean()
        return G[0], G[1]

    def pairs(self, left: Tensor, right: Tensor) -> FloatArray:
        """V of rows of one with the rows of the other beside them."""
        h = torch.cat([left, right], dim=1)
        with torch.inference_mode():
            for weight, bias in self.layers[:-1]:
                h = torch.addmm(bias, h, weight).relu_()
            weight, bias = self.layers[-1]
            logits = torch.addmm(bias, h, weight).flatten()
            return torch.sigmoid(logits.double()).cpu().numpy()


def one_hot(codes: IntArray, k: int) -> Tensor:
    """Classes as float32 on the device."""
    return torch.eye(k, device=DEVICE)[torch.from_numpy(codes).to(DEVICE)]


def on_device(X: FloatArray) -> Tensor:
    """Rows as float32 on the device."""
    return torch.from_numpy(np.ascontiguousarray(X, dtype=np.float32)).to(DEVICE)


def descended(
    grams: list[FloatArray], q: list[FloatArray], settings: PrintedSettings
) -> tuple[list[rows.Row], list[rows.Row]]:
    """The paper's descent on several Gramians at once, after a quarter of the steps and all."""
    descents = Descents(
        np.array(grams), settings.penalty, settings.step_size, settings.tolerance
    )
    stages = []
    for steps in (settings.max_steps // 4, settings.max_steps):
        descents.until(steps)
        descents.look()
        found = []
        for S, G, own, done in zip(descents.S, grams, q, descents.done, strict=True):
            gap = float(np.linalg.norm(S @ S.T - G))
            end = Descent(S.copy(), gap, steps, bool(done))
            found.append(rows.Row(end.matrix, solve_printed(S, own), end))
        stages.append(found)
    return stages[0], stages[1]


# ------------------------------------------------------------------------------------------
# the parts


def printed(
    samples: list[rows.Data], settings: PrintedSettings, looks: Sequence[int]
) -> Iterator[Look]:
    """Algorithms 1 and 2 as printed; q from all rows of T, or as many as the settings say."""
    stack = whole(samples)
    yield from of_pairs(stack, settings, looks, printed_look)


def folds(
    samples: list[rows.Data], settings: PrintedSettings, looks: Sequence[int]
) -> Iterator[Look]:
    """V of five folds: Ĝ from held-out rows, with and without the shift, root, one-step."""
    owner = []
    own_rows = []
    for number, data in enumerate(samples):
        splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=number)
        for training, _ in splitter.split(data.X, data.codes):
            owner.append(number)
            own_rows.append(training)
    yield from of_pairs(Stack(samples, owner, own_rows), settings, looks, folds_look)


PairsLook = Callable[[Stack, StackedMLP, PrintedSettings], list[dict[str, rows.Row]]]


def of_pairs(
    stack: Stack, settings: PrintedSettings, looks: Sequence[int], scored: PairsLook
) -> Iterator[Look]:
    """Train the V of every network, and look."""
    X, y = stack.inputs(standardised=False)
    config = config_of(settings)
    objective = StackedPairs(X, y, stack.splits(), config)
    d = X.shape[1]
    module = stack_of_networks(
        len(stack.owner), 2 * d, 2, settings.hidden_layer_sizes
    ).to(DEVICE)
    yield from looked(
        module, objective, config, looks, lambda: scored(stack, module, settings)
    )


def looked(
    module: nn.Module,
    objective: Objective,
    config: TrainingConfig,
    looks: Sequence[int],
    scored: Callable[[], list[dict[str, rows.Row]]],
) -> Iterator[Look]:
    """Train and give what is found after each of the epochs, as it is found."""
    # A look may be the last that there is time for, so it is handed on at once.
    done: list[Look] = []
    started = time.perf_counter()

    def look(epoch: int) -> None:
        module.eval()
        print(f"epoch {epoch}: {time.perf_counter() - started:.0f} s", flush=True)
        try:
            with torch.no_grad(), fast_products():
                done.append((epoch, scored()))
        except (ValueError, ArithmeticError, RuntimeError, np.linalg.LinAlgError):
            if epoch == max(looks):
                raise
            # A network that has learned little may be past solving; later ones need not be.
            traceback.print_exc()
            return
        if LISTENER:
            LISTENER[0](done[-1])

    train(module, objective, config, looks, 0, look)
    yield from done


#: Told of every look as soon as it is there.
LISTENER: list[Callable[[Look], None]] = []


@contextmanager
def fast_products() -> Iterator[None]:
    """Products of ten bits on a GPU while scoring alone, never in training."""
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def printed_look(
    stack: Stack, module: StackedMLP, settings: PrintedSettings
) -> list[dict[str, rows.Row]]:
    """As printed, a quarter of the steps, and with the shift alone, for every sample."""
    found: dict[str, list[FloatArray]] = {"G": [], "G'": [], "q": [], "q'": []}
    for number, data in enumerate(stack.samples):
        scorer = Scorer(module, number)
        X = on_device(data.X)
        rng = np.random.default_rng(number)
        pairs = settings.pairs_per_entry
        if pairs is None:
            plain, similar = scorer.means(X, X, one_hot(data.codes, data.n_classes))
            G = rows.class_means(plain, data.codes)
            G_similar = rows.class_means(similar, data.codes)
        else:
            G, G_similar = scorer.gramians(X, data.codes, pairs, rng)
        points = comparison_rows(data, settings.comparison_points, rng)
        q, q_similar = scorer.means(
            on_device(data.X_new),
            on_device(data.X[points]),
            one_hot(data.codes[points], data.n_classes),
        )
        for name, value in zip(found, (G, G_similar, q, q_similar), strict=True):
            found[name].append(value)
    grams = [*found["G"], *found["G'"]]
    early, late = descended(grams, [*found["q"], *found["q'"]], settings)
    n = len(stack.samples)
    return [
        {rows.PRINTED: a, rows.EARLY: b, rows.SHIFT_ALONE: c}
        for a, b, c in zip(late[:n], early[:n], late[n:], strict=True)
    ]


def comparison_rows(
    data: rows.Data, points: int | None, rng: np.random.Generator
) -> IntArray:
    """Rows of T that a new row is compared with, as many of every class; None for all."""
    if points is None:
        return np.arange(len(data.codes))
    chosen = []
    for c in range(data.n_classes):
        chosen.append(rng.permutation(np.flatnonzero(data.codes == c))[:points])
    return np.concatenate(chosen)


def folds_look(
    stack: Stack, module: StackedMLP, settings: PrintedSettings
) -> list[dict[str, rows.Row]]:
    """The four cross-fitted estimates of every sample."""
    both = []
    for number, data in enumerate(stack.samples):
        plain = rows.HeldOut(data, FOLDS)
        similar = rows.HeldOut(data, FOLDS)
        for member, owner in enumerate(stack.owner):
            if owner != number:
                continue
            test = np.setdiff1d(np.arange(len(data.codes)), stack.own_rows[member])
            scorer = Scorer(module, member)
            X = on_device(data.X[test])
            members = one_hot(data.codes[test], data.n_classes)
            own = torch.arange(len(test), device=DEVICE)
            found = scorer.means(X, X, members, own)
            new = scorer.means(on_device(data.X_new), X, members)
            for held, q, q_new in zip((plain, similar), found, new, strict=True):
                held.q[test] = q
                held.q_new += q_new / FOLDS
        both.append((plain, similar))
    grams = []
    q_new = []
    for which in range(2):
        for each, data in zip(both, stack.samples, strict=True):
            grams.append(rows.class_means(each[which].q, data.codes))
            q_new.append(each[which].q_new)
    _, late = descended(grams, q_new, settings)
    n = len(stack.samples)
    results = [
        {rows.CROSS_FIT: of_plain, rows.SHIFT: of_similar}
        for of_plain, of_similar in zip(late[:n], late[n:], strict=True)
    ]
    for result, (_, similar), data in zip(results, both, stack.samples, strict=True):
        root = recover(rows.class_means(similar.q, data.codes)).matrix
        held_out = solve_posteriors(similar.q, root, ridge=0.01)
        new_rows = solve_posteriors(similar.q_new, root, ridge=0.01)
        S = collision_matrix_from_posteriors(held_out, data.codes, priors="uniform")
        result[rows.CLOSED] = rows.Row(root, new_rows)
        result[rows.ONE_STEP] = rows.Row(S.matrix, new_rows)
    return results


# ------------------------------------------------------------------------------------------
# baselines


def mean_posteriors(networks: StackedMLP, X: FloatArray) -> FloatArray:
    """Mean posterior over the networks of a stack."""
    parts = []
    with torch.inference_mode():
        for part in torch.split(on_device(X), 10_000):
            logits = networks(part)
            parts.append(torch.softmax(logits.double(), -1).mean(0))
    return torch.cat(parts).cpu().numpy()


def averaged(P: FloatArray, P_new: FloatArray, data: rows.Data) -> rows.Row:
    """Algorithm 3."""
    return rows.Row(rows.class_means(P, data.codes), P_new)


def one_network(stack: StackedMLP, member: int) -> StackedMLP:
    """A network of a stack alone."""
    n_in, sizes = stack.shapes[0][0], [b for _, b in stack.shapes]
    found = StackedMLP(1, n_in, sizes[-1], sizes[:-1], generator=torch.Generator())
    found.weight = nn.Parameter(stack.weight[member : member + 1].detach())
    found.bias = nn.Parameter(stack.bias[member : member + 1].detach())
    return found


def classifiers(
    stack: Stack,
    settings: PrintedSettings,
    looks: Sequence[int],
    name: str,
    read: Callable[[StackedMLP, int], StackedMLP],
    dropout: float = 0.0,
) -> Iterator[Look]:
    """A network from x to K classes for every sample, and Algorithm 3."""
    X, y = stack.inputs(standardised=True)
    config = config_of(settings)
    objective = FactorisedObjective(X, y, stack.splits(), config)
    k = stack.samples[0].n_classes
    sizes = settings.hidden_layer_sizes
    members = len(stack.owner)
    module = stack_of_networks(members, X.shape[1], k, sizes, dropout).to(DEVICE)

    def scored() -> list[dict[str, rows.Row]]:
        found = []
        for member, data in enumerate(stack.samples):
            networks = read(module, member).eval()
            rows_own, rows_new = scaled(data, True)
            P = mean_posteriors(networks, rows_own)
            P_new = mean_posteriors(networks, rows_new)
            found.append({name: averaged(P, P_new, data)})
        return found

    yield from looked(module, objective, config, looks, scored)


def plain(
    samples: list[rows.Data], settings: PrintedSettings, looks: Sequence[int]
) -> Iterator[Look]:
    """A plain network on all rows."""
    stack = whole(samples)
    yield from classifiers(stack, settings, looks, rows.PLAIN, one_network)


def dropout(
    samples: list[rows.Data], settings: PrintedSettings, looks: Sequence[int]
) -> Iterator[Look]:
    """Monte-Carlo dropout."""

    def passes(stack: StackedMLP, member: int) -> StackedMLP:
        generator = torch.Generator().manual_seed(member)
        network = one_network(stack, member)
        return thinned(network, DROPOUT, DRAWS, generator)

    stack = whole(samples)
    yield from classifiers(
        stack, settings, looks, "Monte-Carlo dropout", passes, DROPOUT
    )


def temperature(
    samples: list[rows.Data], settings: PrintedSettings, looks: Sequence[int]
) -> Iterator[Look]:
    """A network on nine tenths of the rows, with the temperature that suits the last tenth."""
    parts = [
        train_test_split(
            np.arange(len(data.codes)),
            test_size=TEMPERATURE_SHARE,
            stratify=data.codes,
            random_state=number,
        )
        for number, data in enumerate(samples)
    ]
    kept = [part[0] for part in parts]
    held_out = [part[1] for part in parts]
    stack = Stack(samples, list(range(len(samples))), kept)
    chosen: list[float] = []

    def cooled(networks: StackedMLP, member: int) -> StackedMLP:
        network = one_network(networks, member)
        data = samples[member]
        own = held_out[member]
        X, _ = scaled(data, True)
        P = mean_posteriors(network, X[own])
        T = best_temperature(np.log(np.maximum(P, 1e-300)), data.codes[own])
        chosen.append(T)
        last = math.prod(network.shapes[-1])
        with torch.no_grad():
            network.weight[:, -last:] /= T
            network.bias[:, -network.shapes[-1][1] :] /= T
        return network

    yield from classifiers(stack, settings, looks, "temperature (paper)", cooled)


def best_temperature(logits: FloatArray, codes: IntArray) -> float:
    """That with the lowest ECE, of several the one nearest to 1."""
    errors = np.array(
        [calibration_error(softmax(logits / T, axis=1), codes) for T in TEMPERATURES]
    )
    best = TEMPERATURES[errors == errors.min()]
    return float(min(best, key=lambda T: abs(np.log(T))))


def bayesian(
    samples: list[rows.Data], settings: PrintedSettings, looks: Sequence[int]
) -> Iterator[Look]:
    """The mean-field Bayesian network of the baselines."""
    stack = whole(samples)
    X, y = stack.inputs(standardised=True)
    config = config_of(settings)
    objective = StackedElbo(X, y, stack.splits(), config)
    k = samples[0].n_classes
    sizes = [X.shape[1], *settings.hidden_layer_sizes, k]
    members = [
        MeanField(sizes, 1.0, epoch_generator(number, 0))
        for number in range(len(samples))
    ]
    module = MeanFields(members).to(DEVICE)

    def scored() -> list[dict[str, rows.Row]]:
        found = []
        for number, data in enumerate(samples):
            own = members[number]
            own.loc = nn.Parameter(module.loc[number].detach().cpu())
            own.log_scale = nn.Parameter(module.log_scale[number].detach().cpu())
            generator = torch.Generator().manual_seed(number)
            networks = own.draw(DRAWS, generator).to(DEVICE)
            rows_own, rows_new = scaled(data, True)
            P = mean_posteriors(networks, rows_own)
            P_new = mean_posteriors(networks, rows_new)
            found.append({"Bayesian network": averaged(P, P_new, data)})
        return found

    yield from looked(module, objective, config, looks, scored)


PARTS = {
    "printed": printed,
    "folds": folds,
    "plain": plain,
    "temperature": temperature,
    "dropout": dropout,
    "bayesian": bayesian,
}


# ------------------------------------------------------------------------------------------
# cells


def cell_of(part: str, problem: list[Any], n: int, seed: int, epochs: int) -> Cell:
    """One network, or the five of the folds."""
    settings = {"hidden_layer_sizes": [128] * 6, "max_epochs": epochs}
    if problem[0] == "B":
        settings["pairs_per_entry"] = 20_000
    else:
        settings["comparison_points"] = 50
    return {
        "part": part,
        "problem": problem,
        "rows": n,
        "seed": seed,
        "settings": settings,
    }


def cells(quick: bool) -> list[Cell]:
    """Scenario B and C, then A and the means on a line; every method."""
    if quick:
        made = [cell_of(part, ["B", 0.15], 250, 0, 2) for part in PARTS]
        for cell in made:
            cell["settings"] |= {"hidden_layer_sizes": [8, 8], "max_steps": 100}
            cell["settings"]["pairs_per_entry"] = 100
        return made
    found = []
    for part, looks in LOOKS.items():
        samples = FOLDED_SAMPLES if part == "folds" else SAMPLES
        for beta, n in samples.items():
            for epochs in looks:
                for seed in range(n):
                    found.append(cell_of(part, ["B", beta], 50_000, seed, epochs))
    small: list[tuple[list[Any], int]] = [(["A", k], 250 * k) for k in (3, 4, 5)]
    small += [(["line", 4, 10, 3.0 * gap], 1_000) for gap in (1, 2, 3)]
    for part in ("printed", "folds"):
        for problem, n in small:
            for seed in range(10):
                found.append(cell_of(part, problem, n, seed, 500))
    return found


#: Epochs of Scenario C.
CURVE = (5, 10, 20, 50, 100, 200, 500)
#: Epochs after which each part is looked at.
LOOKS = {
    "printed": CURVE,
    "folds": (20, 100, 500),
    "plain": (100, 500),
    "temperature": (100, 500),
    "dropout": (100, 500),
    "bayesian": CURVE,
}
#: Samples of Scenario B by overlap; folds take five networks for each.
SAMPLES = {0.15: 10, 0.25: 6, 0.35: 6}
FOLDED_SAMPLES = {0.15: 8, 0.25: 4, 0.35: 4}


def run_many(cells: list[Cell], looks: Sequence[int]) -> Iterator[list[Result]]:
    """Results of cells that differ in the problem's sample alone, after each of the epochs."""
    samples = [scenarios.data_of(cell) for cell in cells]
    part = PARTS[cells[0]["part"]]
    settings = scenarios.settings_of(cells[0])
    for _, found in part(samples, settings, looks):
        yield results_of(cells, samples, found)


def results_of(
    cells: list[Cell], samples: list[rows.Data], found: list[dict[str, rows.Row]]
) -> list[Result]:
    """Errors of every sample."""
    return [
        scenarios.scored(cell, data, own)
        for cell, data, own in zip(cells, samples, found, strict=True)
    ]


def run(cell: Cell) -> Result:
    """One sample alone."""
    (results,) = run_many([cell], [cell["settings"]["max_epochs"]])
    return results[0]
