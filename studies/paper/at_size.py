"""Scenarios B and C at the paper's own size: all 50,000 rows, networks of 6 × 128.

One training gives the whole curve of Scenario C: the rate of Adam is constant, so a network after
50 of 500 epochs is the one of 50 epochs. Results are kept by the number of epochs; 0 stands for
what has an end of its own.
"""

from __future__ import annotations

import os
import time

import numpy as np

from collidescope.pairwise.printed import Contrast, step_a, step_b
from studies.baselines import paper_rivals
from studies.paper import rows, scenarios
from studies.store import Cell, Result

#: The device of every network.
DEVICE = os.environ.get("STUDIES_DEVICE", "cpu")
#: Epochs of Scenario C.
CURVE = (5, 10, 20, 50, 100, 200, 500)
#: Samples of what takes seconds (or a GPU), by overlap.
SAMPLES = {0.15: 10, 0.25: 6, 0.35: 6}
#: Samples of V; all but the first one are trained as long as the rivals.
OF_V = 3
#: The paper has 500 epochs; these are as many as there was time for on one GPU.
RIVALS = {
    "plain network": (100,),
    "temperature (paper)": (100,),
    "Monte-Carlo dropout": (100,),
    "Bayesian network": CURVE[:4],
}


def cells(quick: bool) -> list[Cell]:
    """V of every sample, then the rivals, then the package's default."""
    found = []
    for seed in range(OF_V):
        for beta in SAMPLES:
            looks = CURVE[:5] if found else CURVE
            found.append(cell_of(rows.PRINTED, beta, seed, looks))
    for beta, samples in SAMPLES.items():
        for seed in range(samples):
            for method, looks in RIVALS.items():
                found.append(cell_of(method, beta, seed, looks))
            own = {"problem": ["B", beta], "rows": 50_000, "seed": seed}
            found.append({"part": rows.OURS, **own})
    if not quick:
        return found
    first = [cell for cell in found if cell["seed"] == 0 and cell["problem"][1] == 0.15]
    return [in_small(cell) for cell in first]


def cell_of(method: str, beta: float, seed: int, looks: tuple[int, ...]) -> Cell:
    """One training."""
    cell = scenarios.scenario_b_cell(beta, seed, 50_000, scenarios.FULL)
    settings = cell["settings"]
    if method != rows.PRINTED:
        del settings["pairs_per_entry"]
    settings["max_epochs"] = looks[-1]
    return {"part": method, **cell, "looks": list(looks)}


def in_small(cell: Cell) -> Cell:
    """The same with 250 rows and two epochs."""
    small = cell | {"rows": 250}
    if "settings" in cell:
        tiny = {"hidden_layer_sizes": [8, 8], "max_epochs": 2}
        small |= {"settings": cell["settings"] | tiny, "looks": [1, 2]}
    return small


def run(cell: Cell) -> Result:
    """Errors after each of the epochs at which the training is looked at."""
    if cell["part"] == rows.PRINTED:
        return printed(cell)
    if cell["part"] == rows.OURS:
        return {"0": scenarios.pool_run(cell)}
    return rival(cell)


def printed(cell: Cell) -> Result:
    """Algorithms 1 and 2 as printed."""
    data = scenarios.data_of(cell)
    settings = scenarios.settings_of(cell)
    seed = cell["seed"]
    looks = {}
    started = time.process_time()

    def watch(epoch: int, V: Contrast) -> None:
        if epoch not in cell["looks"]:
            return
        seconds = time.process_time() - started
        rng = np.random.default_rng(seed)
        G = step_b(V, data.by_class(), settings.pairs_per_entry, rng)
        verbatim = rows.Printed(V, G, seconds)
        found = rows.read_verbatim(verbatim, data, settings, seed)
        about = {"row_sum": float(G.sum(axis=1).mean())}
        looks[str(epoch)] = scenarios.scored(cell, data, found) | {"gramian": about}

    step_a(data.X, data.codes, settings, seed, watch=watch)
    return looks


def rival(cell: Cell) -> Result:
    """A classifier through Algorithm 3; the same training, as far as each look."""
    data = scenarios.data_of(cell)
    name = cell["part"]
    layers = tuple(cell["settings"]["hidden_layer_sizes"])
    looks = {}
    for epochs in cell["looks"]:
        models = paper_rivals(
            random_state=cell["seed"],
            hidden_layer_sizes=layers,
            max_epochs=epochs,
            device=DEVICE,
        )
        started = time.process_time()
        model = models[name].fit(data.X, data.codes)
        seconds = time.process_time() - started
        S = rows.class_means(model.predict_proba(data.X), data.codes)
        row = rows.Row(S, model.predict_proba(data.X_new), None, seconds)
        looks[str(epochs)] = scenarios.scored(cell, data, {name: row})
    return looks
