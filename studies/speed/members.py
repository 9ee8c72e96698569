"""Which member of the pool is needed where: the pool's Brier score without each of them.

Every member is trained once per fold on some rows of every data set: the real tables and the ten
held back of the study ``real``, the made-up problems, and planted embeddings. The pool of all is
then compared with the pools that lack one member, or all members of one module. Nothing is trained
again: only the weights are fitted anew.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from collidescope._threads import one_thread
from collidescope.crossfit import Engine, make_task, pool_folds, train_unit
from collidescope.folds import Folds, make_folds
from collidescope.learners import MEMBERS
from collidescope.models import models_for
from collidescope.sample import Sample, make_sample
from studies.accuracy import real
from studies.markdown import again, table
from studies.measures import brier_score, geometric_mean
from studies.problems import FRESH, KINDS
from studies.speed.sizes import embeddings
from studies.store import Cell, Record, Study

SEED = 0
FOLDS = 3
ROWS = 1_500  #: of a table at most
PLANTED_ROWS = 1_000
#: A table whose Brier score is below says little in ratios.
SMALLEST_SCORE = 0.005
Rows = tuple[np.ndarray, np.ndarray]


def some_rows(X: np.ndarray, y: np.ndarray) -> Rows:
    """At most so many rows, without classes that are too rare for the folds."""
    chosen = np.random.default_rng(SEED).permutation(len(y))[:ROWS]
    counts = np.bincount(y[chosen])
    kept = chosen[counts[y[chosen]] >= 2 * FOLDS]
    return X[kept], np.unique(y[kept], return_inverse=True)[1]


def real_rows(name: str) -> Rows:
    return some_rows(*real.load(name))


def kind_rows(name: str) -> Rows:
    X, y, _ = KINDS[name](PLANTED_ROWS, np.random.default_rng(SEED))
    return some_rows(X, y)


def fresh_rows(name: str) -> Rows:
    return some_rows(*FRESH[name]().sample(PLANTED_ROWS, SEED))


PLANTED: dict[str, Callable[[], Any]] = {
    "128 columns, 20 classes": lambda: embeddings(ROWS, 128, 20),
    "256 columns, 40 classes": lambda: embeddings(ROWS, 256, 40),
    "the same, heavy tails": lambda: embeddings(ROWS, 256, 40, heavy=True),
}


def planted_rows(name: str) -> Rows:
    problem = PLANTED[name]()
    return some_rows(problem.X, problem.y)


#: Kinds of data, with their sets and how these are loaded.
DATA: dict[str, tuple[Sequence[str], Callable[[str], Rows]]] = {
    "tables": (("digits", *real.KEEL), real_rows),
    "held back": (tuple(real.HELD_BACK), real_rows),
    "made up": (tuple(KINDS), kind_rows),
    "fresh": (tuple(FRESH), fresh_rows),
    "embeddings": (tuple(PLANTED), planted_rows),
}


def cells(quick: bool) -> list[Cell]:
    if quick:
        return [{"kind": "tables", "table": "digits"}]
    return [
        {"kind": kind, "table": name}
        for kind, (names, _) in DATA.items()
        for name in names
    ]


@dataclass(frozen=True)
class Trained:
    """What all members say of all rows, each held out once."""

    sample: Sample
    folds: Folds
    names: list[str]
    scores: list[np.ndarray]  #: (M, rows, K) log posteriors of every fold
    seconds: dict[str, float]  #: of the processor, all folds together

    def pooled_score(self, names: Sequence[str]) -> float:
        """The Brier score of a pool of some members."""
        places = [self.names.index(name) for name in names]
        tests = [test for _, test in self.folds.splits]
        scores = [each[places] for each in self.scores]
        pooled = pool_folds(self.sample, tests, scores, names)
        return brier_score(pooled.posteriors, self.sample.codes[pooled.rows])


def train(X: np.ndarray, y: np.ndarray) -> Trained:
    """Train every member that suits the rows on every fold."""
    sample = make_sample(X, y)
    folds = make_folds(sample, FOLDS, random_state=SEED)
    models = models_for("auto", sample, folds)
    scores = []
    seconds: dict[str, float] = defaultdict(float)
    for number, (_, test) in enumerate(folds.splits):
        task = make_task(sample, folds, Engine(), number)
        rows = sample.take(test)
        logs = []
        for model in models:
            start = time.process_time()
            logs.append(train_unit(copy(model), task, rows).scores)
            seconds[model.name] += time.process_time() - start
        scores.append(np.stack(logs))
    return Trained(sample, folds, [model.name for model in models], scores, seconds)


def module_of(name: str) -> str:
    """The module of a member."""
    return MEMBERS[name][0].split(".")[0]


def run(cell: Cell) -> dict[str, Any]:
    """Brier scores of the pool of all, of every member, and of the pools that lack some."""
    _, load = DATA[cell["kind"]]
    X, y = load(cell["table"])
    trained = train(X, y)
    names = trained.names
    with one_thread():
        without = {
            left_out: trained.pooled_score([name for name in names if name != left_out])
            for left_out in names
        }
        without_module = {
            module: trained.pooled_score(
                [name for name in names if module_of(name) != module]
            )
            for module in dict.fromkeys(map(module_of, names))
        }
        return {
            "rows": len(y),
            "columns": X.shape[1],
            "classes": int(y.max()) + 1,
            "pool": trained.pooled_score(names),
            "alone": {name: trained.pooled_score([name]) for name in names},
            "without": without,
            "without module": without_module,
            "seconds of members": trained.seconds,
        }


def losses(runs: Sequence[dict[str, Any]], key: str, name: str) -> dict[str, float]:
    """By how much the score of the pool rises without a member or module, by data set."""
    found = {}
    for run in runs:
        if name in run[key] and run["pool"] >= SMALLEST_SCORE:
            found[run["table"]] = run[key][name] / run["pool"] - 1
    return found


def mean_loss(lost: dict[str, float], n_sets: int) -> str:
    """The geometric mean over all data sets; where a member takes no part nothing is lost."""
    ratios = [1 + loss for loss in lost.values()]
    ratios += [1.0] * (n_sets - len(ratios))
    return f"{geometric_mean(ratios) - 1:+.2%}"


def most_lost(lost: dict[str, float], shown: int = 2) -> str:
    """The data sets that lose most."""
    worst = sorted(lost, key=lambda name: -lost[name])[:shown]
    return ", ".join(f"{name} {lost[name]:+.1%}" for name in worst if lost[name] > 0)


def rows_of(runs: Sequence[dict[str, Any]], key: str) -> list[list[str]]:
    """A row of the table for every member, or for every module."""
    names = dict.fromkeys(name for run in runs for name in run[key])
    rows = []
    for name in names:
        row = [name]
        for kind in DATA:
            own = [run for run in runs if run["kind"] == kind]
            n_sets = sum(run["pool"] >= SMALLEST_SCORE for run in own)
            row.append(mean_loss(losses(own, key, name), n_sets))
        row.append(most_lost(losses(runs, key, name)))
        rows.append(row)
    return rows


def text(records: list[Record]) -> str:
    runs = [record["cell"] | record["result"] for record in records]
    total = sum(sum(run["seconds of members"].values()) for run in runs)
    members = rows_of(runs, "without")
    for row in members:
        name = row[0]
        seconds = sum(run["seconds of members"].get(name, 0.0) for run in runs)
        row.append(f"{seconds / total:.1%}")
        if name not in MEMBERS:
            row[0] = f"{name} (left out since)"
    modules = rows_of(runs, "without module")
    kinds = [f"{kind} ({sum(run['kind'] == kind for run in runs)})" for kind in DATA]
    worst = "loses most"
    return f"""## Which member is needed where

Every member is trained on {FOLDS} folds of at most {ROWS:,} rows of each data set. By how much the
Brier score of the pool rises when a member is left out and the weights of the others are fitted
anew: the geometric mean over each kind of data, and the data sets that lose most. Members can
replace each other, so what the pool loses without two of them is not the sum. Rows are few: what a
member is worth with many is not seen here. Data sets whose score is below {SMALLEST_SCORE} do not
count. No setting was chosen on the tables "held back", and no prior of the range on the made-up
problems "fresh".

{table(["without", *kinds, worst, "share of the time"], members)}

The same without all members of a module:

{table(["without", *kinds, worst], modules)}

{again("members")}"""


STUDY = Study("members", "Which member of the pool is needed where", cells, run, text)
