"""Two estimates beside each other: of a model and of people (:func:`compare`), of two fits or periods.

Whatever a model has not learned counts as collision; a count over several labels per input has no model in it. For a
pair of classes the difference of the two rates S[i, j] says::

    estimated > counted    not learned yet: a better model, or more rows, would tell these classes apart
    estimated < counted    label noise or leak: votes are noisier than labels, or inputs give the label away
    otherwise              agreed: the collision is in the inputs

The two are taken as independent: where they share inputs, intervals are too wide rather than too narrow. They are
simultaneous (Bonferroni over the pairs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtr, ndtri

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope.applications import _inputs as inputs
from collidescope.applications._inputs import Names, Told, loss_and_rates, mean_and_error, residuals, scored
from collidescope.matrix import UNSEEN, CollisionMatrix

NOT_LEARNED, NOISE, AGREED = "not learned yet", "label noise or leak", "agreed"
PRIORS_GAP = 0.05  #: class shares that differ by more describe different populations, and S depends on them


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Told, title="What the model sees, and what people do", table="pairs", rows=(10, 20)):
    """What :func:`compare` found.

    ``pairs`` has one row per pair of classes, in the direction with the larger rate: ``class``, ``other``,
    ``estimated``, ``counted``, ``difference`` with its simultaneous interval ``low`` to ``high``, ``p_value``
    (corrected for the number of pairs) and ``verdict``; the largest differences, in standard errors, come first.
    ``pber`` is the same of the PBER.
    """

    pairs: pd.DataFrame
    pber: dict[str, Any]
    level: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        counts = self.pairs["verdict"].value_counts()
        told = ", ".join(f"{int(counts.get(name, 0))} {name}" for name in (NOT_LEARNED, NOISE, AGREED))
        both = f"Estimated PBER {self.pber['estimated']:.4f}, counted {self.pber['counted']:.4f}"
        return f"{both}: {self.pber['verdict']}. Pairs of classes: {told}."

    def _shown(self, most: int | None) -> pd.DataFrame:
        return self.pairs[self.pairs["verdict"] != AGREED][:most]


def compare(estimated: CollisionMatrix, counted: CollisionMatrix, *, level: float = 0.95) -> Comparison:
    """Compare what a model sees as collision with what several labels per input show, pair by pair.

    ``estimated`` comes from a model, ``counted`` from ``collision_matrix_from_votes`` or ``count_collisions``, for the
    same classes. With probability ``level`` no pair is called different that is not.

    >>> from collidescope.counting import collision_matrix_from_votes
    >>> people = collision_matrix_from_votes([[9, 1, 0], [1, 9, 0], [0, 0, 10]] * 200)
    >>> S = [[0.6, 0.18, 0.22], [0.18, 0.6, 0.22], [0.22, 0.22, 0.56]]
    >>> model = CollisionMatrix(S, stderr=np.full((3, 3), 0.01), pber_stderr=0.01)
    >>> compare(model, people).pairs[["class", "other", "verdict"]].values.tolist()
    [[0, 2, 'not learned yet'], [1, 2, 'not learned yet'], [0, 1, 'agreed']]
    """
    inputs.check_rates(level=level)
    for name, cm in (("estimated", estimated), ("counted", counted)):
        inputs.check_matrix(cm, name)
        if cm.stderr is None or cm.pber_stderr is None:
            raise ValueError(f"{name} has no standard errors, so no difference can be judged: estimate it with labels")
    if odd := set(estimated.classes.tolist()) ^ set(counted.classes.tolist()):
        raise ValueError(f"estimated and counted must have the same classes, only one has {sorted(map(str, odd))}")
    order = check.encode_labels(estimated.classes, counted.classes, "estimated")
    same = np.ix_(order, order)
    S, T, errors = estimated.matrix, counted.matrix[same], np.hypot(_errors(estimated), _errors(counted)[same])
    i, j = np.triu_indices(len(S), 1)
    swap = (S + T)[j, i] > (S + T)[i, j]
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    stderr, names = errors[i, j], {"class": estimated.classes[i], "other": estimated.classes[j]}
    pairs = pd.DataFrame(names | _compared(S[i, j], T[i, j], ndtri(1 - (1 - level) / 2 / len(i)) * stderr))
    gap = pairs["difference"].abs().to_numpy()
    z = np.divide(gap, stderr, out=np.where(gap == 0, 0.0, np.inf), where=stderr > 0)
    pairs.insert(7, "p_value", np.minimum(2 * ndtr(-z) * len(i), 1.0))
    pairs = pairs.iloc[np.argsort(-z, kind="stable")].reset_index(drop=True)
    room = float(ndtri((1 + level) / 2) * np.hypot(estimated.pber_stderr or 0, counted.pber_stderr or 0))
    pber = _compared(estimated.pber, counted.pber, room)
    pber["verdict"] = str(pber["verdict"])
    notes = []
    unlike = np.abs(estimated.priors - counted.priors[order])
    if unlike.max() > PRIORS_GAP:
        k = int(unlike.argmax())
        both = f"{estimated.priors[k]:.1%} estimated, {counted.priors[order[k]]:.1%} counted"
        why = "and S depends on them: compare the same population."
        notes.append(f"The class shares differ ({estimated.classes[k]}: {both}), {why}")
    if counted.coverage is not None and counted.coverage < 1 - PRIORS_GAP:
        notes.append(f"The count speaks for {counted.coverage:.1%} of the inputs, the estimate for all of them.")
    return Comparison(pairs, pber, level, tuple(notes))


def _errors(cm: CollisionMatrix) -> FloatArray:
    return np.asarray(cm.stderr if cm.counts is None else np.hypot(cm.stderr, UNSEEN / cm.counts[:, None]))  # type: ignore[arg-type]


def _compared(estimated: Any, counted: Any, half: Any) -> dict[str, Any]:
    gap = estimated - counted
    verdict = np.where(gap > half, NOT_LEARNED, np.where(gap < -half, NOISE, AGREED))
    both = {"estimated": estimated, "counted": counted, "difference": gap}
    return both | {"low": gap - half, "high": gap + half, "verdict": verdict}


@dataclass(frozen=True, eq=False, repr=False)
class CollisionChange(Told, title="Did collisions change?"):
    """How collisions changed between two fits or two periods, made by :func:`collision_change`.

    ``before``, ``after`` and ``change`` (with ``interval``) are of the PBER, ``paired`` where both are about the same
    rows; ``table`` has per pair ``class``, ``other``, ``before``, ``after``, ``difference``, ``low``, ``high``,
    ``p_value``, ``flagged``.
    """

    before: float
    after: float
    change: float
    interval: tuple[float, float]
    paired: bool
    table: pd.DataFrame

    @property
    def verdict(self) -> str:
        low, high = self.interval
        how = "the same rows, paired" if self.paired else "different rows"
        word = "rose" if low > 0 else "fell" if high < 0 else "did not change beyond chance"
        change = f"change {100 * self.change:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f}; {how})"
        return f"PBER {word}: {self.before:.2%} before, {self.after:.2%} after, {change}."


def collision_change(
    P_before: npt.ArrayLike,
    y_before: npt.ArrayLike,
    P_after: npt.ArrayLike,
    y_after: npt.ArrayLike | None = None,
    *,
    classes: Names | None = None,
    level: float = 0.95,
    fdr: float = 0.05,
) -> CollisionChange:
    """Compare two fits on the same rows (leave ``y_after`` out: paired), or two periods with their own rows.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(1000)
    >>> y = (rng.random(1000) < p).astype(int)
    >>> sharp, blunt = np.column_stack([1 - p, p]), np.full((1000, 2), 0.5)
    >>> collision_change(blunt, y, sharp).interval[1] < 0
    True
    """
    inputs.check_rates(level=level, fdr=fdr)
    first, codes, names, _ = scored(P_before, None, y_before, classes, "P_before", "y_before")
    paired = y_after is None
    labels, y_name = (y_before, "y_before") if y_after is None else (y_after, "y_after")
    second, later, *_ = scored(P_after, None, labels, names, "P_after", y_name)
    r = residuals(first, codes), residuals(second, later)
    i, j = inputs.largest_collisions(np.concatenate(r))
    before, after = (loss_and_rates(part, (i, j)) for part in r)
    gap = mean_and_error(after - before) if paired else mean_and_error(after).minus(mean_and_error(before))
    rates = {"before": before.mean(axis=0), "after": after.mean(axis=0)} | gap.columns("difference", level)
    was, now, change, low, high = (float(values[0]) for values in rates.values())
    rates = {"class": names[i], "other": names[j]} | {name: values[1:] for name, values in rates.items()}
    pairs = inputs.flagged(pd.DataFrame(rates | {"p_value": gap.p_value()[1:]}), fdr)
    return CollisionChange(was, now, change, (low, high), paired, pairs)
