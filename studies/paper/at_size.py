"""Experiments at the paper's own size: networks of 6 × 128, 500 epochs, all rows.

A cell is one method on one problem, with all of its samples: their networks are trained side by
side (:mod:`studies.paper.together`). One training gives the whole curve of Scenario C: the rate of
Adam is constant, so a network after 50 of 500 epochs is the one of 50 epochs. Results are kept by
sample, then by the number of epochs; 0 stands for what has an end of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from collidescope.pairwise.printed import Descent, PrintedSettings, solve_printed
from collidescope.training.networks import StackedMLP
from collidescope.training.rows import VALIDATION_FRACTION, stratified_split
from studies.baselines.bayesian import BayesianClassifier
from studies.baselines.mc_dropout import DropoutClassifier, thinned
from studies.baselines.temperature import TemperatureScaledClassifier
from studies.paper import rows, scenarios, together
from studies.paper.recovery import Descents
from studies.paper.rows import Data, FloatArray, IntArray
from studies.paper.together import Samples
from studies.store import Cell, Result

T = TypeVar("T")

#: The device of every network.
DEVICE = os.environ.get("STUDIES_DEVICE", "cpu")
PLAIN = "plain network"
CALIBRATED = "temperature (paper)"
DROPOUT = "Monte-Carlo dropout"
BAYESIAN = "Bayesian network"
UNTEMPERED = "Bayesian network, whole divergence"
RIVALS = (PLAIN, CALIBRATED, DROPOUT, BAYESIAN, UNTEMPERED)
#: Epochs of Scenario C.
CURVE = (5, 10, 20, 50, 100, 200, 500)
OVERLAPS = (0.15, 0.25, 0.35)
#: Samples of Scenario B: of what trains networks, and of the package's default.
SAMPLES = 10
OF_OURS = 5
#: Comparison points of each class in the fold of a held-out row.
POINTS = 300
FOLDS = 5


def cells(quick: bool) -> list[Cell]:
    """Scenario B by every method, then what is small: Scenario A and the tests of posteriors."""
    found = []
    for beta in OVERLAPS:
        for method in (rows.PRINTED, *RIVALS):
            found.append(cell_of(method, ["B", beta], 50_000, SAMPLES, CURVE))
        found.append(cell_of(rows.CROSS_FIT, ["B", beta], 50_000, SAMPLES, CURVE[-1:]))
    for problem, n, samples in small_problems():
        methods = [rows.PRINTED, rows.PLAIN]
        if problem[0] == "A":
            methods.append(UNTEMPERED)
        for method in methods:
            found.append(cell_of(method, problem, n, samples, CURVE[-1:]))
    for beta in OVERLAPS:
        for seed in range(OF_OURS):
            own = {"problem": ["B", beta], "rows": 50_000, "seed": seed}
            found.append({"part": rows.OURS, **own})
    if not quick:
        return found
    first = [cell for cell in found if cell["problem"] == ["B", OVERLAPS[0]]]
    return [in_small(cell) for cell in first if cell.get("seed", 0) == 0]


def small_problems() -> list[tuple[scenarios.Name, int, int]]:
    """Scenario A and Figures 9A and 9B: problem, rows and samples."""
    found: dict[str, tuple[scenarios.Name, int, int]] = {}
    every = [
        *scenarios.scenario_a_cells({}),
        *scenarios.posterior_cells({}),
        *scenarios.grid_cells({}),
    ]
    for cell in every:
        name = str(cell["problem"])
        samples = found.get(name, (None, None, 0))[2] + 1
        found[name] = (cell["problem"], cell["rows"], samples)
    return list(found.values())


def cell_of(
    method: str,
    problem: scenarios.Name,
    n: int,
    samples: int,
    looks: tuple[int, ...],
) -> Cell:
    """One method on all samples of a problem."""
    settings = scenarios.FULL | {"max_epochs": looks[-1]}
    if n > 10_000:
        settings |= {"pairs_per_entry": 20_000}
    own = {"problem": problem, "rows": n, "seeds": list(range(samples))}
    return {"part": method, **own, "settings": settings, "looks": list(looks)}


def in_small(cell: Cell) -> Cell:
    """The same with 250 rows and two epochs."""
    small = cell | {"rows": 250}
    if "settings" in cell:
        tiny = {"hidden_layer_sizes": [8, 8], "max_epochs": 2}
        tiny |= {"max_steps": 200, "pairs_per_entry": 50}
        few = {"seeds": [0, 1], "looks": [1, 2]}
        if cell["part"] == rows.CROSS_FIT:
            few["looks"] = [2]
        small |= few | {"settings": cell["settings"] | tiny}
    return small


def run(cell: Cell) -> Result:
    """Errors of every sample, after each of the epochs at which the training is looked at."""
    if cell["part"] == rows.OURS:
        return {str(cell["seed"]): {"0": scenarios.pool_run(cell)}}
    # Products of float32 numbers as such: a GPU would round their factors to ten bits.
    torch.backends.cuda.matmul.allow_tf32 = False
    data = [scenarios.data_of(cell | {"seed": seed}) for seed in cell["seeds"]]
    settings = scenarios.settings_of(cell)
    run_of = {rows.PRINTED: printed, rows.CROSS_FIT: cross_fitted}
    method = run_of.get(cell["part"], rival)
    result: Result = {str(seed): {} for seed in cell["seeds"]}
    for epoch, found in method(cell, data, settings):
        for seed, sample, each in zip(cell["seeds"], data, found, strict=True):
            own = cell | {"seed": seed}
            result[str(seed)][str(epoch)] = scenarios.scored(own, sample, each)
    return result


#: The rows of the table for every sample, after so many epochs.
Looks = Iterator[tuple[int, list[dict[str, rows.Row]]]]


def printed(cell: Cell, data: list[Data], settings: PrintedSettings) -> Looks:
    """Algorithms 1 and 2 as printed, and with the logit shift alone."""
    samples = Samples.of(data, DEVICE)
    trained = together.pair_networks(samples, settings.training(), cell["seeds"][0])
    looks: dict[int, list[rows.Printed]] = {}
    for epoch, networks in looked_at(trained, cell):
        looks[epoch] = []
        for m, sample in enumerate(data):
            V = together.contrast(together.member(networks, m))
            found = rows.printed_averages(V, sample, settings, cell["seeds"][m])
            looks[epoch].append(found)
    every = [each for found in looks.values() for each in found]
    read = iter(read_all(every, settings))
    for epoch, found in looks.items():
        yield epoch, [next(read) for _ in found]


def looked_at(trained: Iterator[tuple[int, T]], cell: Cell) -> Iterator[tuple[int, T]]:
    """The epochs at which the cell looks."""
    for epoch, networks in trained:
        if epoch in cell["looks"]:
            yield epoch, networks


def read_all(
    found: list[rows.Printed], settings: PrintedSettings
) -> list[dict[str, rows.Row]]:
    """``rows.read_verbatim`` of many V, whose descents run side by side."""
    plain = [each.plain for each in found]
    shift = [each.shift for each in found]
    early, last = descents([each.gramian for each in plain + shift], settings)
    read = []
    for number, each in enumerate(found):
        of_shift = last[len(found) + number]
        read.append(
            {
                rows.PRINTED: row_of(last[number], each.plain),
                rows.EARLY: row_of(early[number], each.plain),
                rows.SHIFT_ALONE: row_of(of_shift, each.shift),
            }
        )
    return read


def row_of(descent: Descent, averages: rows.Averages) -> rows.Row:
    """Where a descent ended, and the posteriors by S⁻¹q."""
    posteriors = solve_printed(descent.matrix, averages.q)
    return rows.Row(descent.matrix, posteriors, descent)


def descents(
    gramians: list[FloatArray], settings: PrintedSettings
) -> tuple[list[Descent], list[Descent]]:
    """Step C of all Gramians after a quarter of the steps, and after all of them."""
    running = Descents(
        np.array(gramians), settings.penalty, settings.step_size, settings.tolerance
    )
    quarter = ends_after(running, settings.max_steps // 4)
    return quarter, ends_after(running, settings.max_steps)


def ends_after(running: Descents, steps: int) -> list[Descent]:
    """Where each descent is after so many steps in all."""
    running.until(steps)
    running.look()
    found = []
    for S, G, done in zip(running.S, running.G, running.done, strict=True):
        gap = float(np.linalg.norm(S @ S.T - G))
        found.append(Descent(S, gap, steps, bool(done)))
    return found


def cross_fitted(cell: Cell, data: list[Data], settings: PrintedSettings) -> Looks:
    """V of five folds for each sample; held-out rows meet points of their own fold."""
    splits = [
        rows.folds_of(sample, seed, FOLDS)
        for sample, seed in zip(data, cell["seeds"], strict=True)
    ]
    fewest = min(len(train) for folds in splits for train, _ in folds)
    parts = []
    for sample, folds in zip(data, splits, strict=True):
        for train, _ in folds:
            parts.append(together.part_of(sample, train[:fewest]))
    samples = Samples.of(parts, DEVICE)
    trained = together.pair_networks(samples, settings.training(), cell["seeds"][0])
    for epoch, networks in looked_at(trained, cell):
        found = []
        for m, sample in enumerate(data):
            of_folds = range(m * FOLDS, (m + 1) * FOLDS)
            own = [together.member(networks, number) for number in of_folds]
            scores = held_out_scores(own, sample, splits[m], cell["seeds"][m])
            found.append(rows.read_cross_fit(scores, sample, settings))
        yield epoch, found


def held_out_scores(
    networks: list[StackedMLP],
    sample: Data,
    folds: list[tuple[IntArray, IntArray]],
    seed: int,
) -> rows.CrossFit:
    """Every row by the V of the fold that holds it out."""
    rng = np.random.default_rng(seed)
    scores = rows.CrossFit(rows.HeldOut(sample, FOLDS), rows.HeldOut(sample, FOLDS))
    for network, (_, test) in zip(networks, folds, strict=True):
        points = []
        for k in range(sample.n_classes):
            of_class = test[sample.codes[test] == k]
            points.append(rng.permutation(of_class)[:POINTS])
        V = together.contrast(network)
        scores.add(V, sample, test, np.concatenate(points))
    return scores


# ------------------------------------------------------------------------------------------
# classifiers, through Algorithm 3

#: Posteriors of rows by the network of one sample.
Posteriors = Callable[[FloatArray], FloatArray]
Networks = Iterator[tuple[int, list[Posteriors]]]


def rival(cell: Cell, data: list[Data], settings: PrintedSettings) -> Looks:
    """Class means of a classifier's posteriors."""
    name = cell["part"]
    scaled = [together.standardised(sample) for sample in data]
    train = TRAINED_BY.get(name, classifiers)
    for epoch, posteriors_of in train(cell, scaled, settings):
        found = []
        for sample, posteriors in zip(scaled, posteriors_of, strict=True):
            S = rows.class_means(posteriors(sample.X), sample.codes)
            found.append({name: rows.Row(S, posteriors(sample.X_new))})
        yield epoch, found


def classifiers(cell: Cell, data: list[Data], settings: PrintedSettings) -> Networks:
    """Plain networks."""
    samples = Samples.of(data, DEVICE)
    trained = together.classifiers(samples, settings.training(), cell["seeds"][0])
    for epoch, networks in looked_at(trained, cell):
        own = [together.member(networks, m) for m in range(len(data))]
        yield epoch, [partial(together.mean_posteriors, each) for each in own]


def dropout(cell: Cell, data: list[Data], settings: PrintedSettings) -> Networks:
    """Monte-Carlo dropout."""
    share = DropoutClassifier.dropout
    config = replace(settings.training(), dropout=share)
    trained = together.classifiers(Samples.of(data, DEVICE), config, cell["seeds"][0])
    for epoch, networks in looked_at(trained, cell):
        found: list[Posteriors] = []
        for m, seed in enumerate(cell["seeds"]):
            generator = torch.Generator().manual_seed(seed)
            whole = together.member(networks, m)
            passes = thinned(whole, share, DropoutClassifier.n_passes, generator)
            found.append(partial(together.mean_posteriors, passes))
        yield epoch, found


def calibrated(cell: Cell, data: list[Data], settings: PrintedSettings) -> Networks:
    """Plain networks on nine tenths of the rows, their temperatures chosen on the last tenth."""
    splits = []
    for sample, seed in zip(data, cell["seeds"], strict=True):
        codes = torch.from_numpy(sample.codes)
        splits.append(stratified_split(codes, VALIDATION_FRACTION, seed))
    fewest = min(len(train) for train, _ in splits)
    parts = []
    for sample, (train, _) in zip(data, splits, strict=True):
        parts.append(together.part_of(sample, train.numpy()[:fewest]))
    scaling = TemperatureScaledClassifier()
    for epoch, uncalibrated in classifiers(cell, parts, settings):
        found: list[Posteriors] = []
        for m, (sample, posteriors) in enumerate(zip(data, uncalibrated, strict=True)):
            watched = splits[m][1].numpy()
            P = posteriors(sample.X[watched])
            # Logits but for one number a row, which no softmax sees.
            logits = np.log(np.maximum(P, np.finfo(np.float64).tiny))
            T = scaling.best_temperature(logits, sample.codes[watched])
            found.append(partial(posteriors, temperature=T))
        yield epoch, found


def bayesian(cell: Cell, data: list[Data], settings: PrintedSettings) -> Networks:
    """Networks drawn from a mean-field posterior; cold, or with the whole divergence."""
    kl_weight = 1.0
    if cell["part"] == BAYESIAN:
        kl_weight = BayesianClassifier.kl_weight
    samples = Samples.of(data, DEVICE)
    training = settings.training()
    trained = together.bayesian_networks(samples, training, kl_weight, cell["seeds"][0])
    for epoch, fields in looked_at(trained, cell):
        found: list[Posteriors] = []
        for m, seed in enumerate(cell["seeds"]):
            drawn = fields.draw(m, BayesianClassifier.n_draws, seed)
            found.append(partial(together.mean_posteriors, drawn))
        yield epoch, found


#: Plain networks where no other is named.
TRAINED_BY = {
    CALIBRATED: calibrated,
    DROPOUT: dropout,
    BAYESIAN: bayesian,
    UNTEMPERED: bayesian,
}
