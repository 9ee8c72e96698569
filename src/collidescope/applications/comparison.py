"""An estimated collision matrix beside a counted one: what a model sees, and what people do.

An estimate from one label per input converges to B - E[δδᵀ]: whatever the model has not learned counts as collision, so
it is too high before it is right. A count over several labels per input has no model in it. For a pair of classes the
difference of the two rates S[i, j] says::

    estimated > counted    not learned yet: a better model, or more rows, would tell these classes apart
    estimated < counted    label noise or leak: people disagree more than the labels that the model was trained on show.
                           Either votes are noisier than labels, or inputs give the label away
    otherwise              agreed: the collision is in the inputs

The two are taken as independent. Where they share inputs their errors are mostly positively correlated, and the
intervals of the difference are too wide rather than too narrow. They are simultaneous (Bonferroni over the pairs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from collidescope import _checks as check
from collidescope._checks import FloatArray
from collidescope.applications._inputs import Told
from collidescope.matrix import UNSEEN, CollisionMatrix

__all__ = ["Comparison", "compare"]

NOT_LEARNED, NOISE, AGREED = "not learned yet", "label noise or leak", "agreed"
#: Class shares that differ by more than this describe different populations, and S depends on them.
PRIORS_GAP = 0.05


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Told):
    """What :func:`compare` found.

    ``pairs`` has one row per pair of classes, in the direction with the larger rate: ``class``, ``other``,
    ``estimated``, ``counted``, ``difference`` with its simultaneous interval ``low`` to ``high``, ``p_value``
    (corrected for the number of pairs) and ``verdict``; the largest differences, in standard errors, come first.
    ``pber`` is the same of the PBER.
    """

    TITLE: ClassVar[str] = "What the model sees, and what people do"
    TABLE: ClassVar[str] = "pairs"
    ROWS: ClassVar[tuple[int | None, int | None]] = (10, 20)
    pairs: pd.DataFrame
    pber: dict[str, Any]
    level: float
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The answer in words."""
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

    Examples
    --------
    >>> votes = [[9, 1, 0], [1, 9, 0], [0, 0, 10]] * 200
    >>> model = CollisionMatrix(
    ...     [[0.6, 0.18, 0.22], [0.18, 0.6, 0.22], [0.22, 0.22, 0.56]], stderr=np.full((3, 3), 0.01), pber_stderr=0.01
    ... )
    >>> from collidescope.counting import collision_matrix_from_votes
    >>> compare(model, collision_matrix_from_votes(votes)).pairs[["class", "other", "verdict"]].values.tolist()
    [[0, 2, 'not learned yet'], [1, 2, 'not learned yet'], [0, 1, 'agreed']]
    """
    check.check_between(level, 0, 1, "level")
    for name, cm in (("estimated", estimated), ("counted", counted)):
        if not isinstance(cm, CollisionMatrix):
            raise ValueError(f"{name} must be a CollisionMatrix, got {type(cm).__name__}")
        if cm.stderr is None or cm.pber_stderr is None:
            raise ValueError(f"{name} has no standard errors, so no difference can be judged: estimate it with labels")
    if set(estimated.classes.tolist()) != set(counted.classes.tolist()):
        odd = set(estimated.classes.tolist()) ^ set(counted.classes.tolist())
        raise ValueError(f"estimated and counted must have the same classes, only one has {sorted(map(str, odd))}")
    order = check.encode_labels(estimated.classes, counted.classes, "estimated")
    S, T = estimated.matrix, counted.matrix[np.ix_(order, order)]
    errors = np.hypot(_errors(estimated), _errors(counted)[np.ix_(order, order)])
    i, j = np.triu_indices(len(S), 1)
    swap = (S + T)[j, i] > (S + T)[i, j]
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    difference, stderr = (S - T)[i, j], errors[i, j]
    half = ndtri(1 - (1 - level) / 2 / len(i)) * stderr
    z = np.divide(np.abs(difference), stderr, out=np.where(difference == 0, 0.0, np.inf), where=stderr > 0)
    rates = {"estimated": S[i, j], "counted": T[i, j], "difference": difference}
    rates |= {"low": difference - half, "high": difference + half, "p_value": np.minimum(2 * ndtr(-z) * len(i), 1.0)}
    names = {"class": estimated.classes[i], "other": estimated.classes[j]}
    pairs = pd.DataFrame(names | rates | {"verdict": _verdict(difference, half)})
    pairs = pairs.iloc[np.argsort(-z, kind="stable")].reset_index(drop=True)
    gap = estimated.pber - counted.pber
    room = float(ndtri((1 + level) / 2) * np.hypot(estimated.pber_stderr or 0, counted.pber_stderr or 0))
    pber: dict[str, Any] = {"estimated": estimated.pber, "counted": counted.pber, "difference": gap, "low": gap - room}
    pber |= {"high": gap + room, "verdict": str(_verdict(np.array(gap), np.array(room)))}
    notes: tuple[str, ...] = ()
    unlike = np.abs(estimated.priors - counted.priors[order])
    if unlike.max() > PRIORS_GAP:
        k = int(unlike.argmax())
        notes += (
            f"The class shares differ ({estimated.classes[k]}: {estimated.priors[k]:.1%} estimated, "
            f"{counted.priors[order[k]]:.1%} counted), and S depends on them: compare the same population.",
        )
    if counted.coverage is not None and counted.coverage < 1 - PRIORS_GAP:
        notes += (f"The count speaks for {counted.coverage:.1%} of the inputs, the estimate for all of them.",)
    return Comparison(pairs, pber, level, notes)


def _errors(cm: CollisionMatrix) -> FloatArray:
    """Standard errors, not below what so few rows could show."""
    return np.asarray(cm.stderr if cm.counts is None else np.hypot(cm.stderr, UNSEEN / cm.counts[:, None]))  # type: ignore[arg-type]


def _verdict(difference: FloatArray, half: FloatArray) -> Any:
    return np.where(difference > half, NOT_LEARNED, np.where(difference < -half, NOISE, AGREED))
