"""The race: which models may still matter with all rows, told by their losses on few.

Symbols: a model trained on m rows has held-out log loss l(m) per row; a fit ends at n rows.
Curves cross (neighbours and networks are poor with few rows and may be best with many), so a
model is not judged by its loss on few rows but by where its own curve may lead. With the ratio of
the losses at the last two sizes, q = l(m) / l(m/2)::

    hope = l(m) · q^(2 log2(n / m))      it falls twice as fast as before, to the end
    bar  = min over models of l(m) · √q  the leader gains only half a doubling more

Most curves flatten as rows become more, so ``hope`` is optimistic and ``bar`` is not; twice, as
those of neighbours and networks may fall faster later (on covertype neighbours had no weight with
a quarter of the rows, and nearly half of it with all). A model whose
hope is above the bar, and whose training on all rows takes a notable share of the cost, goes if it
has no weight in the pool at m rows, or if that pool without it loses next to nothing. What costs
next to nothing stays. Costs are counted (``Member.cost``), not timed, so the same seed runs the
same race on any machine, busy or not; only with a ``budget`` does the clock decide too.

Small samples have no race: too few rows tell who leads, and none is dropped before one of them has
learned something. It is run once, before the folds are trained, on nested subsets (1/16 to 1/2, and
of many rows smaller ones) of the training rows of the first fold; other training rows of that fold
are scored. The last heat is the first fold itself, if it holds out enough rows: what has no place
in the pool of these is not trained on the other folds. What a heat has trained is not trained again
for the curve. The race decides which models are trained, never how they are weighed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from collidescope._checks import FloatArray, IntArray
from collidescope._progress import Progress
from collidescope.crossfit import (
    Ahead,
    Choice,
    Engine,
    FoldUnits,
    Part,
    SizeFit,
    at_once,
    counted_cost,
    named,
    train_folds,
)
from collidescope.folds import FRACTIONS, Folds, rows_without
from collidescope.learners.base import some
from collidescope.learners.pool import pool, pool_weights
from collidescope.models import Comparing, Fitted, Model
from collidescope.sample import Entries, Sample

if TYPE_CHECKING:
    import pandas as pd


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
    gain: float = 0.0  #: by which share the loss of the pool rises without it


@dataclass(frozen=True)
class Race:
    """What was dropped, when and why."""

    rounds: tuple[Round, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    #: what a budget left out
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """A row for every model: its loss at every size it was trained on, why it was dropped."""
        import pandas as pd

        if not self.rounds:
            return pd.DataFrame()
        reasons = {each.model: reason(each) for each in self.dropped}
        lines = []
        for model in self.rounds[0].losses:
            line: dict[str, object] = {"model": model}
            for each in self.rounds:
                column = f"{each.size:,.0f} rows"
                loss = each.losses.get(model, math.nan)
                line[column] = loss
            line["dropped"] = reasons.get(model, "")
            lines.append(line)
        return pd.DataFrame(lines)


def reason(dropped: Dropped) -> str:
    """Why a model left the race, in words."""
    parts = [
        f"with {dropped.size:,.0f} rows its log loss is {dropped.loss:.3f}",
        f"at best {dropped.hope:.3f} with all rows",
        f"where others reach {dropped.bar:.3f}",
    ]
    why = f"{dropped.cost:.0%} of the cost"
    if dropped.gain > 0:
        higher = f"{dropped.gain:.2%} higher"
        why += f", and without it the loss of the pool is {higher}"
    said = ", ".join(parts)
    return f"{said} ({why})"


#: The log loss of a pool of some models, by name, on the rows that a round scored.
PoolLoss = Callable[[Sequence[str]], float]


def run_round(
    before: Round,
    last: Round,
    n: float,
    costs: Mapping[str, float],
    pool_loss: PoolLoss,
    *,
    cheap: float = 0.01,
    worth: float = 0.01,
) -> list[Dropped]:
    """The models of ``last`` that cannot matter with ``n`` rows.

    Parameters
    ----------
    before, last : Round, two sizes; models that are not in both stay
    n : float, rows of the largest size
    costs : mapping of names to costs of training on n rows, in any unit
    pool_loss : callable, the log loss of a pool of models with the rows of ``last``
    cheap : float, share of the total cost below which a model stays
    worth : float, by which share a model must lower the loss of the pool to take all of the cost;
        one that takes a tenth of the cost a tenth of that

    Examples
    --------
    >>> few = Round(
    ...     1000, {"trees": 0.60, "network": 0.65, "linear": 0.70}, {"trees": 1.0}
    ... )
    >>> more = Round(
    ...     2000, {"trees": 0.55, "network": 0.58, "linear": 0.69}, {"trees": 1.0}
    ... )
    >>> costs = {"trees": 3.0, "network": 5.0, "linear": 2.0}
    >>> dropped = run_round(few, more, 16000, costs, pool_loss=lambda names: 0.55)
    >>> [each.model for each in dropped]
    ['linear']
    """
    losses = last.losses
    size = last.size
    common = [model for model in losses if model in before.losses]
    if not common:
        return []
    hopes = [continued(before, last, model, 0.5) for model in common]
    bar = min(hopes)
    doublings = math.log2(n / size)
    twice = 2 * doublings
    ahead = max(twice, 0.5)  # the leader's hope is the bar, or lower
    total = sum(costs[model] for model in losses)
    idle: list[Dropped] = []
    weighed: list[Dropped] = []
    for model in common:
        hope = continued(before, last, model, ahead)
        cost = costs[model]
        share = cost / total
        if hope <= bar or share <= cheap:
            continue
        loss = losses[model]
        hopeless = Dropped(model, size, loss, hope, bar, share)
        weight = last.weights.get(model)
        if weight:
            weighed.append(hopeless)
        else:
            idle.append(hopeless)
    gone = {each.model for each in idle}
    left = [model for model in losses if model not in gone]
    not_worth = _not_worth(weighed, left, pool_loss, worth)
    return idle + not_worth


def _not_worth(
    weighed: Sequence[Dropped], left: Sequence[str], pool_loss: PoolLoss, worth: float
) -> list[Dropped]:
    """The models with a weight that lower the loss of the pool by too little for their cost.

    The most expensive first; of two that do the same work one stays.
    """
    if not weighed:
        return []
    dropped = []
    names = list(left)
    loss = pool_loss(names)
    for each in sorted(weighed, key=lambda each: -each.cost):
        others = [name for name in names if name != each.model]
        without = pool_loss(others)
        gain = without / loss - 1
        if gain < worth * each.cost:
            dropped.append(replace(each, gain=max(gain, 0.0)))
            names = others
            loss = min(loss, without)
    return dropped


def tells(last: Round, skill: float = 0.01, many_rows: float = 5_000) -> bool:
    """Whether a model beats the class shares, or none did with so many rows.

    On 3,000 rows of a noisy chessboard, and of a wave along one direction, heats saw nothing yet,
    and dropped the models that learn it from all rows.
    """
    of_shares = last.losses.get("priors", math.inf)
    best = min(last.losses.values())
    return best < (1 - skill) * of_shares or last.size > many_rows


def continued(before: Round, last: Round, model: str, doublings: float) -> float:
    """The loss of a model after more doublings of the rows that each lower it in proportion."""
    loss = last.losses[model]
    seen = math.log2(last.size / before.size)
    ratio = min(loss / max(before.losses[model], 1e-12), 1.0)
    return float(loss * ratio ** (doublings / seen))


def worth_racing(
    models: Sequence[Model],
    costs: Mapping[str, float],
    folds: Folds,
    *,
    least_seconds: float = 2.0,
    least_rows: int = 1_200,
) -> bool:
    """Whether a race can save more than it costs, and has the rows to tell.

    With fewer training rows a heat scores so few others that sampling error decides which model
    leads, and dropping the others costs more of the score than it saves.
    """
    if len(models) <= 3 or folds.smallest < least_rows:
        return False
    seconds = sum(costs.values()) * len(folds.splits)
    return seconds > least_seconds


class Raced(Choice):
    """The models that a race has left, and what it knows of those that are trained next."""

    def __init__(
        self, models: Sequence[Model], costs: Mapping[str, float], n_held_out: int
    ) -> None:
        self.models = list(models)
        self.costs = costs  #: of training on the rows of a fold
        self.n_held_out = n_held_out  #: rows that the first fold holds out
        self.found = Race()
        #: what heats have trained, by the share of the rows and the name of the model
        self.fitted: dict[float, dict[str, Fitted]] = {}

    @property
    def by_first_fold(self) -> bool:
        """Whether the first fold is a heat: it must score as many rows as any other heat does.

        On 462 rows of the table "segment" it dropped the leaders, and the Brier score rose by 22%.
        """
        fewest_scored = 600
        return bool(self.found.rounds) and self.n_held_out >= fewest_scored

    def trained(self, share: float) -> Mapping[str, Fitted]:
        return self.fitted.get(share, {})

    def after_first_fold(
        self, sample: Sample, folds: Folds, units: FoldUnits
    ) -> list[str]:
        """The last heat: with all training rows of the first fold, scored where it holds out."""
        train, scored = folds.splits[0]
        last, pool_loss = scored_round(sample, units, len(train), scored)
        # Few models are left, so each takes a large share of the cost.
        self.drop(last, last.size, pool_loss, worth=0.002)
        return [model.name for model in self.models]

    def at_smaller_size(self, whole: SizeFit, size: float) -> list[str]:
        """Simple models without a weight are trained where they had one in the race."""
        names = []
        for model in whole.models:
            simple = model.simple and self._may_count(model.name, size)
            if simple or model.name in whole.weights:
                names.append(model.name)
        return names

    def _may_count(self, name: str, size: float, cheap: float = 0.01) -> bool:
        """Whether a model had a weight in a round of about so many rows or fewer, or is cheap."""
        most = 1.5 * size
        rounds = self.found.rounds
        near = [each for each in rounds if each.size < most]
        if not near:
            return True
        counted = any(each.weights.get(name) for each in near)
        if counted:
            return True
        costs = self.costs
        total = sum(costs[model.name] for model in self.models)
        return costs[name] <= cheap * total

    def keep_fitted(self, share: float, units: FoldUnits) -> None:
        """What a heat has trained, as far as it is still in the race."""
        names = [model.name for model in self.models]
        self.fitted[share] = {name: units[name].fitted for name in names}

    def drop(
        self, last: Round, n: float, pool_loss: PoolLoss, worth: float = 0.01
    ) -> list[Dropped]:
        """Add a round, and drop the models that cannot matter with n rows after it.

        None goes before one of them has learned something: all losses are noise until then.
        """
        found = self.found
        out = list[Dropped]()
        if found.rounds and tells(last):
            before = found.rounds[-1]
            out = run_round(before, last, n, self.costs, pool_loss, worth=worth)
        self.found = replace(
            found,
            rounds=(*found.rounds, last),
            dropped=(*found.dropped, *out),
        )
        gone = {each.model for each in out}
        models = self.models
        self.models = [model for model in models if model.name not in gone]
        return out


def race(
    sample: Sample, models: Sequence[Model], folds: Folds, engine: Engine
) -> Raced:
    """The models that may matter with all rows, and what was dropped when and why."""
    costs = counted_costs(models, sample, folds.smallest)
    _, held_out = folds.splits[0]
    raced = Raced(models, costs, len(held_out))
    compared = any(isinstance(model, Comparing) for model in models)
    if compared or not sample.in_memory:
        return raced
    if worth_racing(models, costs, folds):
        run_heats(raced, sample, folds, engine)
    if engine.budget is not None:
        of_a_fold = engine.seconds_left / len(folds.splits)
        keep_affordable(raced, of_a_fold, engine.budget)
    return raced


def keep_affordable(raced: Raced, seconds: float, budget: float) -> None:
    """Keep the best models of which a fold can be trained in so many seconds."""
    found = raced.found
    models = raced.models
    losses: Mapping[str, float] = {}
    if found.rounds:
        losses = found.rounds[-1].losses
    paid = affordable(models, losses, raced.costs, seconds)
    notes = left_out(models, paid, budget)
    raced.found = replace(found, notes=notes)
    raced.models = paid


def counted_costs(
    models: Sequence[Model], sample: Sample, n: float
) -> dict[str, float]:
    """About the processor seconds of training each model on n rows; 0 where it does not know."""
    return {model.name: counted_cost(model, sample, n, unknown=0.0) for model in models}


def run_heats(raced: Raced, sample: Sample, folds: Folds, engine: Engine) -> None:
    """Drop models after every heat that they cannot win, until another heat would not pay."""
    n = folds.smallest
    share_of_budget = 0.25
    with Progress("choosing models", 0, engine.verbose) as progress:
        heats = telling_heats(raced.models, sample, folds)
        ahead = Ahead()
        first_two = heats[:2]
        if sure_to_pay(raced, sample, first_two):
            parts = [Part(raced.models, heat) for heat in first_two]
            quiet = replace(engine, checkpoint=None)
            ahead = at_once(sample, parts, quiet, progress, ahead)
        for heat in heats:
            models = raced.models
            size = heat.size
            of_heat = counted_costs(models, sample, size)
            rounds = raced.found.rounds
            if rounds and not pays(rounds[-1], of_heat, raced.costs):
                break
            if engine.overdue(share_of_budget):
                break
            units = run_heat(sample, models, heat, engine, progress, ahead)
            _, scored = heat.splits[0]
            last, pool_loss = scored_round(sample, units, size, scored)
            out = raced.drop(last, n, pool_loss)
            if heat.share in FRACTIONS:
                raced.keep_fitted(heat.share, units)
            for each in out:
                why = reason(each)
                progress.say(f"dropped {each.model}: {why}")


def telling_heats(
    models: Sequence[Model], sample: Sample, folds: Folds, much: float = 0.8
) -> list[Folds]:
    """The heats, without a first one that costs nearly as much as the next and tells less."""
    heats = nested_heats(sample, folds)
    if len(heats) < 3:
        return heats
    first, second = (
        sum(counted_costs(models, sample, heat.size).values()) for heat in heats[:2]
    )
    if first > much * second:
        return heats[1:]
    return heats


def pays(last: Round, of_heat: Mapping[str, float], costs: Mapping[str, float]) -> bool:
    """Whether a heat costs less than training all models but the leader on all rows."""
    leader = min(last.losses, key=lambda name: last.losses[name])
    at_stake = sum(costs[name] for name in of_heat if name != leader)
    return sum(of_heat.values()) < at_stake


def sure_to_pay(raced: Raced, sample: Sample, heats: Sequence[Folds]) -> bool:
    """Whether heats pay whichever model leads; the first drops none, so the second is as large."""
    costs = raced.costs
    at_stake = sum(costs.values()) - max(costs.values())
    for heat in heats:
        of_heat = counted_costs(raced.models, sample, heat.size)
        if sum(of_heat.values()) >= at_stake:
            return False
    return True


def affordable(
    models: Sequence[AnyModel],
    losses: Mapping[str, float],
    costs: Mapping[str, float],
    seconds: float,
) -> list[AnyModel]:
    """The models of the lowest losses whose counted costs fit into so many seconds; at least one.

    Where no losses are known the cheapest come first.
    """

    def loss_then_cost(model: Model) -> tuple[float, float]:
        name = model.name
        loss = losses.get(name, math.inf)
        return loss, costs[name]

    names = set[str]()
    spent = 0.0
    ranked = sorted(models, key=loss_then_cost)
    for model in ranked:
        with_it = spent + costs[model.name]
        if with_it <= seconds:
            names.add(model.name)
            spent = with_it
    if not names:
        cheapest = min(models, key=lambda model: costs[model.name])
        return [cheapest]
    return [model for model in models if model.name in names]


def left_out(
    models: Sequence[Model], paid: Sequence[Model], budget: float
) -> tuple[str, ...]:
    """What a budget left out, in words."""
    names = [model.name for model in models if model not in paid]
    if not names:
        return ()
    said = f"for a budget of {budget:g} s these models were not trained: {', '.join(names)}"
    return (said,)


def nested_heats(
    sample: Sample, folds: Folds, most_scored: int = 4000, most_first: int = 8000
) -> list[Folds]:
    """Nested subsets of the first fold's training rows, each half of the next: to a half of them.

    Four, or more where the first would have more than ``most_first`` rows. Other training rows of
    the fold are scored. Sizes with too few rows of a class are left out.
    """
    train, _ = folds.splits[0]
    n_train = len(train)
    halvings = math.log2(n_train / most_first)
    n_heats = max(4, math.ceil(halvings))
    heats = []
    for power in range(n_heats, 0, -1):
        share = 0.5**power
        part = folds.smaller(sample, share)
        if part is not None:
            first = replace(
                part,
                splits=part.splits[:1],
                seeds=part.seeds[:1],
            )
            heats.append(first)
    if not heats:
        return []
    used, _ = heats[-1].splits[0]
    rest = rows_without(train, used)
    groups = sample.groups
    if groups is not None:
        used_groups = groups[used]
        taken = np.isin(groups[rest], used_groups)
        rest = rest[~taken]
    if not len(rest):
        return []
    generator = np.random.default_rng(folds.seed)
    scored = some(rest, most_scored, generator)
    return [_scoring(heat, scored) for heat in heats]


def _scoring(heat: Folds, scored: IntArray) -> Folds:
    train, _ = heat.splits[0]
    return replace(heat, splits=[(train, scored)])


def run_heat(
    sample: Sample,
    models: Sequence[Model],
    heat: Folds,
    engine: Engine,
    progress: Progress,
    ahead: Ahead,
) -> FoldUnits:
    """Train every model on the rows of a heat, and score the same other rows with each."""
    quiet = replace(engine, checkpoint=None)
    trained, interrupted = train_folds(
        sample, models, heat, quiet, progress, ahead=ahead
    )
    if interrupted:
        raise KeyboardInterrupt
    return trained[0]


def scored_round(
    sample: Sample, units: FoldUnits, size: float, scored: IntArray
) -> tuple[Round, PoolLoss]:
    """Losses and weights of models that were trained on so many rows, and losses of their pools."""
    entries = sample.entries(scored)
    codes = entries.codes
    place = entries.place
    counted = entries.weights
    scores = [np.asarray(unit.scores) for unit in units.values()]
    of_entries = [each[place] for each in scores]
    logs = np.stack(of_entries)
    n_entries = len(codes)
    every = np.arange(n_entries)
    likelihoods = logs[:, every, codes]  # of the labels
    means = np.average(likelihoods, axis=1, weights=counted)
    losses = -means
    weights = pool_weights(logs, codes, counted)
    names = list(units)
    last = Round(
        size=float(size),
        losses=named(names, losses),
        weights=named(names, weights),
    )
    pool_loss = pool_loss_of(logs, entries, names)
    return last, pool_loss


def pool_loss_of(
    logs: FloatArray,
    entries: Entries,
    names: Sequence[str],
    most_numbers: int = 500_000,
) -> PoolLoss:
    """The log loss of a pool as a function of its models, on some of the rows for speed."""
    step = math.ceil(logs.size / most_numbers)
    few = logs[:, ::step]
    codes = entries.codes[::step]
    row_weights = None
    if entries.weights is not None:
        row_weights = entries.weights[::step]

    every = np.arange(len(codes))

    def pool_loss(chosen: Sequence[str]) -> float:
        if not chosen:
            return math.inf
        places = [names.index(name) for name in chosen]
        own = few[places]
        weights = np.ones(1)
        if len(chosen) > 1:
            weights = pool_weights(own, codes, row_weights)
        P = pool(own, weights)
        right = np.maximum(P[every, codes], 1e-9)
        losses = -np.log(right)
        mean = np.average(losses, weights=row_weights)
        return float(mean)

    return pool_loss
