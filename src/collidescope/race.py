"""The race: which models may still matter with all rows, told by their losses on few.

Symbols: a model trained on m rows has held-out log loss l(m) per row; a fit ends at n rows.
Curves cross (neighbours and networks are poor with few rows and may be best with many), so a
model is not judged by its loss on few rows but by where its own curve may lead. With the ratio of
the losses at the last two sizes, q = l(m) / l(m/2)::

    hope = l(m) · q^(1.25 log2(n / m))   it falls a quarter faster than before, to the end
    bar  = min over models of l(m) · √q  the leader gains only half a doubling more

Most curves flatten as rows become more, so ``hope`` is optimistic and ``bar`` is not. A model goes
if its hope is above the bar, it has no weight in the pool at m rows, and training it on all rows
costs a notable share: what costs
next to nothing stays. Costs are counted (``Member.cost``), not timed, so the same seed runs the same
race on any machine, busy or not.

The race is run once, before the folds are trained, on small nested subsets of the training rows of
the first fold; other training rows of that fold are scored. It decides which models are trained,
never how they are weighed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from collidescope._progress import Progress, Report
from collidescope.crossfit import Engine, Unit, make_task, train_unit
from collidescope.folds import Folds, run_units
from collidescope.learners.base import some
from collidescope.learners.pool import pool_weights
from collidescope.models import Comparing, Model
from collidescope.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)


class Costed(Model, Protocol):
    """A model that knows what it costs."""

    def cost(self, n: int, d: int, k: int) -> float:
        """About the processor seconds of a fit, counted from the sizes."""


AnyModel = TypeVar("AnyModel", bound=Model)


@dataclass(frozen=True)
class Round:
    """All models still in the race, trained on the same few rows."""

    size: float  #: rows trained on
    losses: Mapping[str, float]  #: held-out log loss per row
    weights: Mapping[str, float]  #: in the pool of this size


@dataclass(frozen=True)
class Dropped:
    """A model that left the race."""

    model: str
    size: float  #: rows it was last trained on
    loss: float  #: its loss with them
    hope: float  #: the loss it may reach with all rows
    bar: float  #: the loss that the leader reaches at least
    cost: float  #: share of the cost of training on all rows


@dataclass(frozen=True)
class Race:
    """What was dropped, when and why."""

    rounds: tuple[Round, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """A row for every model: its loss at every size it was trained on, and why it was dropped."""
        import pandas as pd

        why = {each.model: each for each in self.dropped}
        lines = []
        for model in self.rounds[0].losses if self.rounds else ():
            line: dict[str, object] = {"model": model}
            for each in self.rounds:
                line[f"{each.size:,.0f} rows"] = each.losses.get(model, math.nan)
            line["dropped"] = reason(why[model]) if model in why else ""
            lines.append(line)
        return pd.DataFrame(lines)

    @property
    def words(self) -> list[str]:
        """A sentence for every model that was dropped."""
        return [f"{each.model}: {reason(each)}" for each in self.dropped]


def reason(dropped: Dropped) -> str:
    """Why a model left the race, in words."""
    seen = f"with {dropped.size:,.0f} rows its log loss is {dropped.loss:.3f}"
    future = f"at best {dropped.hope:.3f} with all rows, where others reach {dropped.bar:.3f}"
    return f"{seen}, {future} ({dropped.cost:.0%} of the cost)"


def run_round(
    before: Round,
    last: Round,
    n: float,
    costs: Mapping[str, float],
    *,
    cheap: float = 0.02,
    least_weight: float = 0.02,
) -> list[Dropped]:
    """The models of ``last`` that cannot matter with ``n`` rows.

    Parameters
    ----------
    before, last : Round, two sizes; models that are not in both stay
    n : float, rows of the largest size
    costs : mapping of names to costs of training on n rows, in any unit
    cheap : float, share of the total cost below which a model stays
    least_weight : float, weight in the pool of ``last`` from which a model stays

    Examples
    --------
    >>> few = Round(1000, {"trees": 0.60, "network": 0.65, "linear": 0.70}, {"trees": 1.0})
    >>> more = Round(2000, {"trees": 0.55, "network": 0.58, "linear": 0.69}, {"trees": 1.0})
    >>> costs = {"trees": 3.0, "network": 5.0, "linear": 2.0}
    >>> [each.model for each in run_round(few, more, 16000, costs)]
    ['linear']
    """
    common = [model for model in last.losses if model in before.losses]
    if not common:
        return []
    bar = min(continued(before, last, model, 0.5) for model in common)
    ahead = 1.25 * math.log2(n / last.size)
    total = sum(costs[model] for model in last.losses)
    dropped = []
    for model in common:
        loss = last.losses[model]
        hope = continued(before, last, model, ahead)
        share = costs[model] / total
        weight = last.weights.get(model, 0.0)
        if hope > bar and weight < least_weight and share > cheap:
            dropped.append(Dropped(model, last.size, loss, hope, bar, share))
    return dropped


def continued(before: Round, last: Round, model: str, doublings: float) -> float:
    """The loss of a model after more doublings of the rows that each lower it in proportion."""
    loss = last.losses[model]
    seen = math.log2(last.size / before.size)
    ratio = min(loss / max(before.losses[model], 1e-12), 1.0)
    return float(loss * ratio ** (doublings / seen))


def worth_racing(models: Sequence[Model], costs: Mapping[str, float], n_folds: int) -> bool:
    """Whether a race can save more than it costs: a few seconds of training, or more."""
    if len(models) < 4 or any(isinstance(model, Comparing) for model in models):
        return False
    least_seconds = 2.0
    return sum(costs.values()) * n_folds > least_seconds


def race(
    sample: Sample, models: Sequence[AnyModel], folds: Folds, engine: Engine
) -> tuple[list[AnyModel], Race]:
    """The models that may matter with all rows, and what was dropped when and why."""
    n = min(len(train) for train, _ in folds.splits)
    d = math.prod(sample.X.shape[1:])
    costs = {}
    for model in models:
        if not hasattr(model, "cost"):
            return list(models), Race()
        costs[model.name] = model.cost(n, d, sample.n_classes)
    if not sample.in_memory or not worth_racing(models, costs, len(folds.splits)):
        return list(models), Race()
    running = list(models)
    rounds: list[Round] = []
    dropped: list[Dropped] = []
    heats = nested_heats(sample, folds)
    with Progress("choosing models", len(heats) * len(models), engine.verbose) as progress:
        for heat in heats:
            rounds.append(run_heat(sample, running, heat, engine, progress))
            if len(rounds) < 2:
                continue
            out = run_round(rounds[-2], rounds[-1], n, costs)
            dropped += out
            gone = {each.model for each in out}
            running = [model for model in running if model.name not in gone]
    found = Race(tuple(rounds), tuple(dropped))
    for words in found.words:
        logger.info("dropped %s", words)
    return running, found


def nested_heats(sample: Sample, folds: Folds, most_scored: int = 4000) -> list[Folds]:
    """Three nested subsets of the first fold's training rows, each half of the next.

    The largest is an eighth of them, or a quarter where an eighth is less than 1,000 rows; other
    training rows of the fold are scored. Sizes with too few rows of a class are left out.
    """
    train = folds.splits[0][0]
    n = len(train)
    largest = max(n / 8, min(n / 4, 1000)) / n
    first = replace(folds, splits=folds.splits[:1], seeds=folds.seeds[:1])
    parts = [first.smaller(sample, share) for share in (largest / 4, largest / 2, largest)]
    heats = [part for part in parts if part is not None]
    if not heats:
        return []
    used = heats[-1].splits[0][0]
    rest = np.setdiff1d(train, used)
    if sample.groups is not None:
        rest = rest[~np.isin(sample.groups[rest], sample.groups[used])]
    if not len(rest):
        return []
    scored = some(rest, most_scored, np.random.default_rng(folds.seed))
    return [replace(heat, splits=[(heat.splits[0][0], scored)]) for heat in heats]


def run_heat(
    sample: Sample, models: Sequence[Model], heat: Folds, engine: Engine, progress: Progress
) -> Round:
    """Train every model on the rows of a heat, and score the same other rows with each."""
    train, scored = heat.splits[0]
    quiet = replace(engine, checkpoint=None)
    task = make_task(sample, heat, quiet, 0)
    rows = sample.take(scored)

    def fit(number: int, report: Report | None) -> Unit:
        return train_unit(models[number], task, rows)

    units, interrupted = run_units(fit, len(models), engine.n_jobs, progress, 1)
    if interrupted:
        raise KeyboardInterrupt
    entries = sample.entries(scored)
    logs = np.stack([np.asarray(unit.scores)[entries.place] for unit in units])
    own = logs[:, np.arange(len(entries.codes)), entries.codes]
    losses = -np.average(own, axis=1, weights=entries.weights)
    weights = pool_weights(logs, entries.codes, entries.weights)
    names = [model.name for model in models]
    return Round(
        size=float(len(train)),
        losses=dict(zip(names, losses.tolist(), strict=True)),
        weights=dict(zip(names, weights.tolist(), strict=True)),
    )
