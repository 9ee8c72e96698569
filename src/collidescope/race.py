"""The race: which models may still matter with all rows, told by their losses on few.

Symbols: a model trained on m rows has held-out log loss l(m) per row; a fit ends at n rows.
Curves cross (neighbours and networks are poor with few rows and may be best with many), so a
model is not judged by its loss on few rows but by where its own curve may lead. With the fall per
doubling of the last two sizes, d = l(m/2) - l(m)::

    hope(m → n)  = l(m) - d · log2(n / m)      it goes on falling as fast: the best that may happen
    bar          = min over models of l(m) - d/2    the leader gains only half a step more

Falls become smaller as rows become more (the curve is convex in log m, but for a few that bend
late), so ``hope`` is optimistic and ``bar`` is not. A model goes if its hope is above the bar, it
has no weight in the pool at m rows, and training it on all rows costs a notable share: what costs
next to nothing stays. Costs are counted (:meth:`Member.cost`), not timed, so the same seed runs the
same race on any machine, whatever else that machine does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


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
    doublings = math.log2(last.size / before.size)
    fall = {
        model: max(before.losses[model] - last.losses[model], 0.0) / doublings for model in common
    }
    bar = min(last.losses[model] - 0.5 * fall[model] for model in common)
    total = sum(costs[model] for model in last.losses)
    dropped = []
    for model in common:
        loss = last.losses[model]
        hope = loss - fall[model] * math.log2(n / last.size)
        share = costs[model] / total
        weight = last.weights.get(model, 0.0)
        if hope > bar and weight < least_weight and share > cheap:
            dropped.append(Dropped(model, last.size, loss, hope, bar, share))
    return dropped


def run_race(rounds: Sequence[Round], n: float, costs: Mapping[str, float]) -> Race:
    """The race over recorded rounds, smallest size first: see :func:`run_round`."""
    dropped: list[Dropped] = []
    gone: set[str] = set()
    kept: list[Round] = []
    for each in rounds:
        still = Round(each.size, _without(each.losses, gone), _without(each.weights, gone))
        kept.append(still)
        if len(kept) > 1:
            dropped += run_round(kept[-2], still, n, costs)
            gone = {one.model for one in dropped}
    return Race(tuple(kept), tuple(dropped))


def _without(values: Mapping[str, float], gone: Iterable[str]) -> dict[str, float]:
    absent = set(gone)
    return {model: value for model, value in values.items() if model not in absent}
