"""What unlimited rows of this kind would leave: the learning curve, continued to its end.

A model that has not learned everything counts what it missed as ambiguity: with n rows it reports
PBER(n) = PBER + E‖p - y‖², too much by the excess. Held-out scores of the *same* rows at training
sizes m₁ < … < m_T = n show how the excess falls. One assumption continues the curve, that it falls
like a power of m (:mod:`collidescope.equations.power_law`).

Noise: the T×T covariance of the means, over independent units (rows, or groups of rows). All means
are over the same rows, so their differences have small errors, and models of one fold share the
sampling error of its training rows (:mod:`collidescope.equations.held_out`). Curves follow a power
only roughly. The 0/1 errors of the same rows are continued in the same way.

For the matrix B(m) = B∞ - E_m with E_m = E[δ δᵀ], δ = p - y. The contrast of sizes that estimates
the excess of the PBER, applied to every entry, gives the shape of E; its size is the excess that
is believed of the PBER.

Nothing of this holds without the assumption: some curves are flat for any number of rows and fall
later (Antos, Devroye and Györfi, 1999). There is no lower end where a curve has not begun to fall,
falls faster and faster, does not fit a power at all, was ended by a cap on training, or contains
miscalibration that more rows do not remove (:func:`without_end_if_miscalibrated`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import chdtri, ndtri

from collidescope import _checks as check
from collidescope._checks import ArrayLike, FloatArray, Given, IntArray, Names
from collidescope._text import limit_facts, limit_words, percent
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.equations.held_out import (
    HeldOut,
    OuterProducts,
    covariance_of_means,
    power_sums,
    sums_by_number,
)
from collidescope.equations.posterior import shift_rows
from collidescope.equations.power_law import Mixture, PowerLaw, Prior, fit_power_law
from collidescope.equations.projection import project
from collidescope.equations.recalibration import recalibration_gains
from collidescope.intervals import (
    UNSEEN,
    brier_interval,
    effective_units,
    score_interval,
    upper_limit,
    widening,
)
from collidescope.matrix import (
    NO_SKILL,
    CollisionMatrix,
    Diagnostics,
    Method,
    Value,
    opened,
    plain,
)

if TYPE_CHECKING:
    import pandas as pd

HEADER = {"format": "collidescope.limit", "version": 1}
PRIOR = Prior()
MOST_MEMBERS = 4.0  #: more are weights of few rows, which stay near equal ones
SEEN = 2.0  #: z-value from which a difference counts as seen
TINY = float(np.finfo(float).tiny)


class Pool(NamedTuple):
    """What a pool of models is made of, as far as it tells how soon learning ends."""

    members: float  #: (Σ w)² / Σ w²: how many share the weight
    parametric: float  #: share of the weight of models of a fixed form

    @classmethod
    def of_weights(
        cls, weights: Mapping[str, float], parametric: Container[str]
    ) -> Pool:
        """The pool of models with these weights, by the names of those that are parametric.

        >>> Pool.of_weights({"linear": 0.5, "trees": 0.5, "forest": 0.0}, ["linear"])
        Pool(members=2.0, parametric=0.5)
        """
        w = np.array(list(weights.values()))
        fixed = np.array([name in parametric for name in weights])
        members = w.sum() ** 2 / (w @ w)
        share = w[fixed].sum() / w.sum()
        # Two sums of the same numbers may differ in rounding.
        return cls(float(members), min(float(share), 1.0))


UNKNOWN_POOL = Pool(members=2.5, parametric=0.0)  #: the median exponent is then 1/2
UNKNOWN_SKILL = 0.5  #: where the score of the class shares is not known


class RowsNeeded(NamedTuple):
    """Training rows for a target: inf where it cannot be reached. See :meth:`Limit.rows_needed`."""

    low: float
    likely: float
    high: float
    target: float
    of: str
    level: float

    def __str__(self) -> str:
        name = {"pber": "PBER", "error": "error"}[self.of]
        goal = f"{name} {self.target:.1%}"
        if np.isinf(self.low):
            return f"{goal} cannot be reached with more rows of this kind ({self.level:.0%})."
        if np.isinf(self.likely):
            least = f"at least {self.low:,.0f} training rows"
            return f"{goal} needs {least}, and probably cannot be reached."
        if np.isinf(self.high):
            likely = f"about {self.likely:,.0f} training rows, at least {self.low:,.0f}"
            return f"{goal} needs {likely}; perhaps it cannot be reached."
        ends = f"{self.low:,.0f} to {self.high:,.0f}"
        return f"{goal} needs about {self.likely:,.0f} training rows ({ends})."


def _smallest_size(curve: PowerLaw, target: float, wanted: float, most: float) -> float:
    """The smallest size at which the curve is at the target with the chance wanted, to 1%."""
    if curve.at(most).chance(target) < wanted:
        return np.inf
    low = 1.0
    high = most
    if curve.at(curve.rows).chance(target) >= wanted:
        high = curve.rows
    while high / low > 1.01:
        middle = float(np.sqrt(low * high))
        if curve.at(middle).chance(target) >= wanted:
            high = middle
        else:
            low = middle
    return float(np.ceil(high))


@dataclass(frozen=True, eq=False, repr=False)
class Limit(Value):
    """A learning curve and where it ends.

    Made by :func:`limit_from_scores` and :func:`limit_from_posteriors`.
    """

    sizes: FloatArray  #: (T,) rows that the models were trained on, increasing
    scores: FloatArray  #: (T,) PBER at each size: mean Brier scores of the same held-out rows
    covariance: FloatArray  #: (T, T) of the scores, over rows and folds
    stderr: float  #: of the last score, over rows alone
    n_rows: float  #: held-out rows (the effective number when they are weighted)
    errors: FloatArray | None = (
        None  #: (T,) share of the rows whose most likely class was wrong
    )
    error_covariance: FloatArray | None = None  #: (T, T)
    baseline: float | None = None  #: score of the class shares
    skill_stderr: float | None = None  #: of its difference to the last score
    matrix: CollisionMatrix | None = None  #: S∞, S with unlimited rows
    n_units: float | None = (
        None  #: effective number of independent units, default n_rows
    )
    grouped: bool = False  #: whether units are groups of rows
    capped: bool = False  #: whether a model stopped at a cap of steps or time
    #: to which posteriors are raised to be calibrated, where more rows do not do that; else None
    power: float | None = None
    #: effective number of members that share the weight of the pool: see :class:`Pool`
    members: float | None = None
    #: share of that weight that members of a fixed form have
    parametric: float | None = None

    def __post_init__(self) -> None:
        sizes = _check_sizes(self.sizes)
        n_sizes = len(sizes)
        values: dict[str, Any] = {"sizes": sizes}
        for name in ("scores", "covariance", "stderr", "n_rows"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} must be given, got None")
        if (self.errors is None) != (self.error_covariance is None):
            raise ValueError("errors and error_covariance must be given together")
        for name in ("scores", "errors"):
            if getattr(self, name) is not None:
                array = self._check_curve(name, n_sizes, ndim=1)
                check.check_non_negative(
                    array, name, "it is a mean of squares or of errors"
                )
                values[name] = array
        for name in ("covariance", "error_covariance"):
            if getattr(self, name) is not None:
                array = self._check_curve(name, n_sizes, ndim=2)
                symmetric = array + array.T
                eigenvalues = np.linalg.eigvalsh(symmetric)
                lowest = eigenvalues.min()
                rounding = 1e-9 * np.abs(array).max()
                if lowest < -rounding:
                    raise ValueError(f"{name} must be positive semi-definite")
                values[name] = array
        least_of = {"stderr": 0, "n_rows": 1, "n_units": 1}
        least_of |= {"baseline": 0, "skill_stderr": 0, "power": 0, "members": 1}
        least_of |= {"parametric": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if value is not None:
                values[name] = check.check_at_least(value, least, name)
        if self.parametric is not None and self.parametric > 1:
            wanted = "a share, at most 1"
            raise ValueError(f"parametric must be {wanted}, got {self.parametric}")
        values["grouped"] = bool(self.grouped)
        values["capped"] = bool(self.capped)
        if not isinstance(self.matrix, CollisionMatrix | None):
            came = type(self.matrix).__name__
            raise ValueError(f"matrix must be a CollisionMatrix, got {came}")
        self._freeze(values)

    def _check_curve(self, name: str, n_sizes: int, ndim: int) -> FloatArray:
        given = getattr(self, name)
        array = check.check_finite(given, name, ndim=ndim)
        shape = array.shape
        if shape != (n_sizes,) * ndim:
            wanted = f"one entry per size ({n_sizes})"
            raise ValueError(f"{name} must have {wanted}, got shape {shape}")
        return array

    @property
    def pber(self) -> float:
        """PBER with unlimited rows, as far as this curve makes it likely.

        That of :attr:`matrix` where there is one.
        """
        if self.matrix is not None:
            return self.matrix.pber
        return float(self.scores[-1]) - self._excess

    def pber_interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high) of the PBER with unlimited rows.

        The lower end holds if the excess falls like a power of the number of rows. The upper end
        is at least that of PBER(n), which needs no assumption.
        """
        check.check_between(level, 0, 1, "level")
        low, high = self._ends(self._pber_curve.at(), level)
        return min(low, self.pber), high

    def _ends(self, curve: Mixture, level: float) -> tuple[float, float]:
        """(low, high) of a score of the curve, not within the plain interval."""
        outside = 1 - level
        tail = outside / 2
        plain_low, plain_high = self._plain_interval(level)
        curve_high = curve.quantile(1 - tail)
        high = max(curve_high, plain_high)
        high = min(high, 1.0)
        if self._no_lower_end:
            return 0.0, high
        # Where much is left to learn the score is hardly ever above: the lower end has the rest.
        above = 1 - curve.chance(high)
        below = max(outside - above, tail)
        curve_low = curve.quantile(below)
        low = min(curve_low, plain_low)
        return low, high

    @property
    def bayes_error(self) -> float | None:
        """Error of the best guess with unlimited rows, as far as the curve makes it likely."""
        curve = self._error_curve
        if self.errors is None or curve is None:
            return None
        unseen = UNSEEN / self.n_rows
        noise = float(np.hypot(self._error_stderr, unseen))
        excess = curve.cautious_excess(noise)
        left = float(self.errors[-1]) - excess
        return min(max(left, 0.0), self.pber)

    def bayes_error_interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high) of the Bayes error, low under the assumption of :meth:`pber_interval`.

        High needs no assumption: see :meth:`CollisionMatrix.bayes_error_limit`. Low is the larger
        of Cover and Hart's bound at the lower end of the PBER and the end of the curve of the
        errors, each with half of the tail: the larger of two limits fails where either does.
        """
        pber_low, high = self.pber_interval(level)
        if self.errors is None or self._error_curve is None:
            return self._cover_hart(pber_low), high
        one_sided = (1 + level) / 2
        low = self._cover_hart(self.pber_interval(one_sided)[0])
        if not self._no_lower_end:
            low = max(low, self._error_curve.at().quantile((1 - level) / 4))
        # Posteriors without skill name the class that happens to be frequent among these rows.
        if self._skill[2] >= NO_SKILL:
            at_most = upper_limit(
                self.errors[-1],
                self._error_stderr,
                self._units,
                one_sided,
                grouped=self.grouped,
                counted=True,
            )
            high = min(high, float(at_most))
        likely = self.bayes_error
        assert likely is not None  # there is a curve of the errors
        return min(low, likely, high), max(likely, high)

    def _cover_hart(self, pber: float) -> float:
        """The least Bayes error of such a PBER."""
        k = 10**9  # the bound is weakest for many classes
        if self.matrix is not None:
            k = self.matrix.n_classes
        return bayes_error_bounds(min(pber, 1 - 1 / k), k)[0]

    @property
    def state(self) -> str:
        """Either "settled" or "still learning", or the state in which there is no lower end.

        That is "hardly begun", "refuted" (the curve does not fall like a power of the rows),
        "capped" (limited by training, not by rows) or "miscalibrated" (over- or under-confident
        posteriors, however many the rows).
        """
        if self.capped:
            return "capped"
        if self.power is not None:
            return "miscalibrated"
        if self._not_begun:
            return "hardly begun"
        if self._refuted:
            return "refuted"
        low, high = self.pber_interval()
        # All that may be left to learn widens the range by half at most.
        if high - low <= 1.5 * 2 * self._half_width(0.95):
            return "settled"
        return "still learning"

    @property
    def reason(self) -> str:
        """Why :attr:`state` is what it is, in one clause."""
        if self._no_lower_end:
            return self._no_lower_end
        if self.state == "settled":
            return "what may be left to learn is less than the sampling error"
        if self.undecided:
            return "the last step changed the PBER by less than its error"
        drop, _ = self._contrast([1.0, -1.0])
        before, last = self.sizes[-2:]
        return f"from {before:,.0f} to {last:,.0f} training rows the PBER fell by {drop:.2g}"

    @property
    def undecided(self) -> bool:
        """Whether the rows are too few to say if more would help."""
        drop, stderr = self._contrast([1.0, -1.0])
        return self.state == "still learning" and drop < SEEN * stderr

    @property
    def curve(self) -> pd.DataFrame:
        """One row per size: ``rows``, ``pber``, ``pber_stderr``.

        Where they are known also ``error`` and ``error_stderr``.
        """
        import pandas as pd

        columns = {
            "rows": self.sizes,
            "pber": self.scores,
            "pber_stderr": np.sqrt(np.diag(self.covariance)),
        }
        if self.errors is not None and self.error_covariance is not None:
            columns["error"] = self.errors
            columns["error_stderr"] = np.sqrt(np.diag(self.error_covariance))
        return pd.DataFrame(columns)

    def continuation(
        self, sizes: ArrayLike, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(low, middle, high) of PBER(m) for training sizes m: what more rows would give.

        ``continuation([2 * n])`` for twice as many. They end in :meth:`pber_interval` and
        :attr:`pber`.
        """
        check.check_between(level, 0, 1, "level")
        sizes = check.check_finite(sizes, "sizes", ndim=1)
        smallest = sizes.min()
        if smallest < 1:
            wanted = "numbers of training rows, 1 or more"
            raise ValueError(f"sizes must be {wanted}, got {smallest:g}")
        curve = self._pber_curve
        bands = [curve.at(size) for size in sizes]
        ends = [self._ends(band, level) for band in bands]
        low, high = np.transpose(ends)
        medians = [band.quantile(0.5) for band in bands]
        middle = np.clip(medians, self.pber, 1.0)
        low = np.minimum(low, middle)
        return low, middle, high

    def rows_needed(
        self,
        target: float,
        *,
        of: str = "pber",
        level: float = 0.95,
        most: float = 1e12,
    ) -> RowsNeeded:
        """How many training rows would bring the PBER, or the error, down to ``target``?

        ``low``, ``likely`` and ``high`` are the smallest numbers of training rows at which the
        curve is at or below the target with a small chance, an even one, and a large one
        ((1 - level) / 2, 1/2, (1 + level) / 2); inf where more than ``most`` rows would not do. It
        rests on the assumption of :meth:`pber_interval`.

        >>> limit = Limit(
        ...     [250, 500, 1000], [0.4, 0.3, 0.25], 1e-6 * np.eye(3), 0.003, 4000
        ... )
        >>> found = limit.rows_needed(0.23)
        >>> bool(1000 < found.low < found.likely < found.high)
        True
        """
        check.check_between(target, 0, 1, "target")
        outside = 1 - check.check_between(level, 0, 1, "level")
        tail = outside / 2
        check.check_choice(of, ["pber", "error"], "of")
        curve: PowerLaw | None = self._pber_curve
        if of == "error":
            curve = self._error_curve
        if curve is None:
            raise ValueError(
                "of='error' needs a limit with errors: make it with errors="
            )
        low = _smallest_size(curve, target, tail, most)
        likely = _smallest_size(curve, target, 0.5, most)
        high = _smallest_size(curve, target, 1 - tail, most)
        # Of such a curve nobody knows where it ends, and few errors leave its height open.
        errors = float(self.scores[-1]) / 2 * self._units
        if self._no_lower_end or errors < 10:
            low = min(low, curve.rows)
            high = np.inf
        return RowsNeeded(
            low=low,
            likely=likely,
            high=high,
            target=float(target),
            of=of,
            level=level,
        )

    @cached_property
    def _pber_curve(self) -> PowerLaw:
        noise = _noise(self, self.scores, self.covariance)
        return fit_power_law(self.sizes, self.scores, noise, self._floor, self._prior)

    @cached_property
    def _error_curve(self) -> PowerLaw | None:
        if self.errors is None or self.error_covariance is None:
            return None
        noise = _noise(self, self.errors, self.error_covariance)
        return fit_power_law(self.sizes, self.errors, noise, self._floor, self._prior)

    @property
    def _prior(self) -> Prior:
        pool = UNKNOWN_POOL
        if self.members is not None:
            members = min(self.members, MOST_MEMBERS)
            pool = pool._replace(members=members)
        if self.parametric is not None:
            pool = pool._replace(parametric=self.parametric)
        _, _, skill = self._skill
        if np.isinf(skill):
            skill = UNKNOWN_SKILL
        return PRIOR.of_pool(*pool, max(skill, NO_SKILL))

    @property
    def _floor(self) -> float:
        """A standard deviation far below what n rows can tell."""
        return 1e-3 / self.n_rows

    @property
    def _error_stderr(self) -> float:
        if self.error_covariance is None:
            return np.inf
        return float(np.sqrt(self.error_covariance[-1, -1]))

    @property
    def _excess(self) -> float:
        cautious = self._pber_curve.cautious_excess(self._half_width(0.95) / 2)
        return min(cautious, float(self.scores[-1]))

    @property
    def _units(self) -> float:
        if self.n_units is None:
            return self.n_rows
        return self.n_units

    def _contrast(self, weights: Sequence[float]) -> tuple[float, float]:
        """A contrast of the last scores, and its standard error."""
        w = np.concatenate([np.zeros(len(self.sizes) - len(weights)), weights])
        return float(w @ self.scores), float(np.sqrt(max(w @ self.covariance @ w, 0.0)))

    def _plain_interval(self, level: float) -> tuple[float, float]:
        """The interval of the last score, as in :meth:`CollisionMatrix.pber_interval`."""
        now = float(self.scores[-1])
        return brier_interval(
            now, self.stderr, self._units, level, grouped=self.grouped
        )

    def _half_width(self, level: float) -> float:
        now = float(self.scores[-1])
        low, high = score_interval(
            now, self.stderr, self._units, level, grouped=self.grouped
        )
        return (high - low) / 2

    @property
    def _skill(self) -> tuple[float, float, float]:
        """How much the last score beats the class shares: value, standard error, and share."""
        if self.baseline is None or self.skill_stderr is None:
            return np.inf, 0.0, np.inf
        skill = self.baseline - float(self.scores[-1])
        return skill, self.skill_stderr, skill / max(self.baseline, TINY)

    @cached_property
    def _no_lower_end(self) -> str:
        """Why the curve cannot be continued, or nothing."""
        if self.capped:
            why = "a model stopped at a cap of rows, steps or time"
            return f"limited by training, not by rows: {why}"
        if self.power is not None:
            kind = "over" if self.power < 1 else "under"
            return f"posteriors are {kind}-confident, which more rows do not change: calibrate them"
        return self._not_begun or self._refuted

    @cached_property
    def _not_begun(self) -> str:
        """Why learning has hardly begun, or nothing."""
        skill, stderr, share = self._skill
        if skill <= SEEN * stderr or share < NO_SKILL:
            return "the models predict hardly better than the class shares alone"
        if len(self.sizes) > 2:
            # Drops per doubling: those of a power law become smaller.
            doublings = np.diff(np.log2(self.sizes))
            drops = -np.diff(self.scores) / doublings
            before, last = doublings[-2:]
            # The last drop less the one before: (s₂ - s₃) / last - (s₁ - s₂) / before.
            weights = [-1 / before, 1 / before + 1 / last, -1 / last]
            growth, stderr = self._contrast(weights)
            allowed = SEEN * stderr + 1e-12
            # Where an earlier drop was larger, the one before was small by chance.
            largest = drops[-1] == drops.max()
            if share < 0.1:  # little skill: drops must become smaller
                allowed = 0.0
                largest = True
            if growth > allowed and largest:
                return "each doubling of the rows lowers the PBER by more than the one before"
        return ""

    @cached_property
    def _refuted(self) -> str:
        """Why no power law can be the curve, or nothing: a χ² test at 1 in 1,000."""
        free = len(self.sizes) - 3  # level, share and exponent are fitted
        if free < 1 or self._pber_curve.misfit <= chdtri(free, 0.001):
            return ""
        return "the PBER does not fall like a power of the number of rows"

    def __str__(self) -> str:
        now = f"PBER {percent(float(self.scores[-1]))} ± {self._half_width(0.95):.2%}"
        rows = f"with {self.sizes[-1]:,.0f} rows"
        return f"{now} {rows}: {self.state} ({self.reason}).\n{limit_words(limit_facts(self))}"

    def __repr__(self) -> str:
        now = f"PBER {self.scores[-1]:.4f} now"
        return (
            f"<Limit: {self.state}, {now}, about {self.pber:.4f} with unlimited rows>"
        )

    def export(self) -> dict[str, Any]:
        """Everything a file holds, as arrays and plain values: see :meth:`restore`."""
        tree = self._values()
        if self.matrix is not None:
            tree["matrix"] = self.matrix.export()
        return tree

    @classmethod
    def restore(cls, tree: Any) -> Limit:
        """The inverse of :meth:`export`, with every check of the constructor."""
        if isinstance(tree, Mapping) and "format" in tree:
            return cls.from_dict(tree)
        names = {field.name for field in fields(cls)}
        found = set(tree) if isinstance(tree, Mapping) else set()
        found |= {
            "n_units",
            "grouped",
            "capped",
            "power",
            "members",
            "parametric",
        }  # a record of an earlier release has none
        if found != names:
            wrong = ", ".join(sorted(map(str, names ^ found)))
            raise ValueError(
                f"a limit is damaged, the file was cut or edited: check {wrong}"
            )
        values = dict(tree)
        if values["matrix"] is not None and not isinstance(
            values["matrix"], CollisionMatrix
        ):
            values["matrix"] = CollisionMatrix.restore(values["matrix"])
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text."""
        tree = plain(self._values())
        if self.matrix is not None:
            tree["matrix"] = self.matrix.to_dict()
        return HEADER | tree

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """The inverse of :meth:`to_dict`, arrays too, with every check of the constructor."""
        tree = opened(data, HEADER, "a limit", "Limit.to_dict")
        if tree.get("matrix") is not None:
            tree["matrix"] = CollisionMatrix.from_dict(tree["matrix"])
        return cls.restore(tree)


def limit_from_scores(
    scores: ArrayLike,
    sizes: ArrayLike,
    *,
    errors: Given = None,
    baseline: Given = None,
    folds: Given = None,
    sample_weight: Given = None,
    groups: Given = None,
    capped: bool = False,
) -> Limit:
    """What unlimited rows would leave, from held-out scores of models of growing training sizes.

    Parameters
    ----------
    scores, errors : (n, T), the second optional
        Brier score ‖c - p‖² of every held-out row (c one-hot label, p posterior) by the model of
        every size, and 1 where its most likely class was wrong, else 0. The same rows for every
        size: the curve is read from differences.
    sizes : (T,) training rows of the models, increasing; four that double are a good choice
    baseline : float or (n,), optional; Brier score of the class shares, or that of every row
        Without it models that have learned nothing look like models that have nothing left to
        learn.
    folds, sample_weight : (n,), optional; the fold whose models scored each row, and its weight
    groups : (n,), optional; of rows of one patient, document or site: errors then count groups
    capped : whether a model stopped at a cap of steps or time: there is no lower end then

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sizes = np.array([250, 500, 1000, 2000])
    >>> hard = rng.exponential(0.2, (4000, 1))  # what no model can know
    >>> limit = limit_from_scores(
    ...     hard + sizes**-0.5 * rng.exponential(1.0, (4000, 4)), sizes, baseline=0.5
    ... )
    >>> low, high = limit.pber_interval()
    >>> limit.state, bool(low < 0.2 < high)
    ('still learning', True)
    """
    sizes = _check_sizes(sizes)
    rows = _check_rows(scores, "scores", len(sizes))
    sample = _held_out(len(rows), sample_weight, folds, groups)
    means, covariance, row_covariance = covariance_of_means(rows, sample)
    stderr = np.sqrt(row_covariance[-1, -1])
    w = sample.weights
    of_units = np.bincount(sample.units, w).astype(np.float64)
    limit = Limit(
        sizes,
        means,
        covariance,
        float(stderr),
        n_rows=float(w.sum() ** 2 / (w**2).sum()),
        n_units=float(effective_units(*power_sums(of_units))),
        grouped=groups is not None,
        capped=capped,
    )
    if errors is not None:
        wrong = _check_rows(errors, "errors", len(sizes))
        check.check_same_length(rows, wrong, "scores and errors")
        rates, error_covariance, _ = covariance_of_means(wrong, sample)
        limit = replace(limit, errors=rates, error_covariance=error_covariance)
    if baseline is not None:
        limit = _with_skill(limit, baseline, rows[:, -1], sample)
    return limit


def _with_skill(
    limit: Limit, baseline: ArrayLike, last: FloatArray, sample: HeldOut
) -> Limit:
    """The limit with the score of the class shares, and the error of its difference to the last."""
    given = check.check_finite(baseline, "baseline", ndim=(0, 1))
    if given.shape not in ((), last.shape):
        wanted = f"one number or one per row ({len(last)})"
        raise ValueError(f"baseline must be {wanted}, got {len(given)}")
    gained = given - last
    (skill,), covariance, _ = covariance_of_means(gained[:, None], sample)
    stderr = float(np.sqrt(covariance[0, 0]))
    of_shares = max(float(limit.scores[-1] + skill), 0.0)
    return replace(limit, baseline=of_shares, skill_stderr=stderr)


def limit_from_posteriors(
    posteriors: Sequence[ArrayLike],
    codes: ArrayLike,
    sizes: ArrayLike,
    *,
    folds: Given = None,
    classes: Names | None = None,
    sample_weight: Given = None,
    priors: Given = None,
    groups: Given = None,
    capped: bool = False,
    pool: Pool | None = None,
) -> Limit:
    """What unlimited rows would leave of S, from held-out posteriors at several training sizes.

    Takes one n×K array of posteriors of the same rows per size, the class number of every row, the
    names of the classes, the ``priors`` to estimate for (by default the class shares of the rows)
    and, of a ``pool`` of several models, what it is made of (:class:`Pool`), which tells how soon
    learning ends. The rest as :func:`limit_from_scores`.
    """
    n_sizes = np.size(sizes)
    arrays = _check_arrays(posteriors, n_sizes)
    k = arrays[0].shape[1]
    names = check.check_classes(classes, k)
    labels = check.encode_labels(codes, np.arange(k), "codes")
    for P in arrays:
        check.check_same_length(P, labels, "posteriors and codes")
    n = len(labels)
    given = check.check_weights(sample_weight, n)
    weights = check.unit_weights(given)
    totals = np.bincount(labels, weights, k)
    check.check_class_sizes(totals, names)
    counts = totals**2 / np.bincount(labels, weights**2, k)
    pi = totals / totals.sum()
    if priors is not None:
        # Shifted posteriors, and every row weighs as its class does in that population.
        target = check.check_priors(priors, k)
        ratio = target / pi
        arrays = [shift_rows(P, ratio) for P in arrays]
        weights = weights * ratio[labels]
        pi = target
    onehot = np.eye(k)[labels]
    residuals = [onehot - P for P in arrays]
    scores = [(r**2).sum(axis=1) for r in residuals]
    errors = [P.argmax(axis=1) != labels for P in arrays]
    baseline = ((onehot - pi) ** 2).sum(axis=1)
    limit = limit_from_scores(
        np.column_stack(scores),
        sizes,
        errors=np.column_stack(errors),
        baseline=baseline,
        folds=folds,
        sample_weight=weights,
        groups=groups,
        capped=capped,
    )
    if pool is not None:
        limit = replace(limit, **pool._asdict())
    sample = _held_out(n, weights, None, groups)
    limit = without_end_if_miscalibrated(limit, arrays, labels, weights, groups)
    matrix = _matrix(limit, residuals, onehot, sample, pi)
    named = replace(matrix, classes=names, counts=counts)
    return replace(limit, matrix=named)


def _held_out(n: int, weights: Given, folds: Given, groups: Given) -> HeldOut:
    """The held-out rows, checked."""
    numbers = np.zeros(n, dtype=np.intp)
    if folds is not None:
        labels = check.check_labels(folds, "folds")
        check.check_same_length(numbers, labels, "scores and folds")
        _, inverse = np.unique(labels, return_inverse=True)
        numbers = inverse.ravel()
    units = np.arange(n)
    if groups is not None:
        units = check.group_numbers(groups, n)
    given = check.check_weights(weights, n)
    return HeldOut(check.unit_weights(given), numbers, units)


def without_end_if_miscalibrated(
    limit: Limit,
    posteriors: Sequence[FloatArray],
    codes: IntArray,
    sample_weight: Given = None,
    groups: Given = None,
) -> Limit:
    """The limit, with the power that calibrates the posteriors where they need one.

    They need one where it lowers the score on other rows beyond the error of that gain. The excess
    then has a part that does not fall like a power of the rows, unless the gain at n is clearly
    smaller than at the smallest size.
    """
    sample = _held_out(len(codes), sample_weight, None, groups)
    w = sample.weights
    gains, power = recalibration_gains(posteriors[-1], codes, w, sample.units)
    (last,), (variance,), _ = covariance_of_means(gains[:, None], sample)
    unseen = UNSEEN / limit.n_rows
    error = np.hypot(np.sqrt(variance[0]), unseen)
    if last <= SEEN * error:
        return limit
    gains, _ = recalibration_gains(posteriors[0], codes, w, sample.units)
    first = w @ gains / w.sum()
    growth = limit.sizes[-1] / limit.sizes[0]
    if last < first * growth**-0.25:
        return limit
    return replace(limit, power=power)


def _noise(limit: Limit, scores: FloatArray, covariance: FloatArray) -> FloatArray:
    """Covariance of the scores around a power law."""
    # Few units know the covariance badly. The last term keeps it invertible where two sizes have
    # the same scores row by row.
    widened = covariance * (widening(limit._units) / widening(limit.n_rows))
    unseen = UNSEEN / limit._units
    strayed = PRIOR.discrepancy * (scores - scores[-1])
    return widened + np.diag(strayed**2 + unseen**2)


def _matrix(
    limit: Limit,
    residuals: list[FloatArray],
    onehot: FloatArray,
    sample: HeldOut,
    priors: FloatArray,
) -> CollisionMatrix:
    """S∞ from B∞ = diag(π) - Σ g_t Z_t, Z_t = mean(r rᵀ), r = c - p.

    B(m) is diag(π) - Z_m, its trace 1 - s_m. The excess ê of the PBER is taken from Z_n in a shape
    of trace 1: that of what was learned between the sizes (a contrast of all Z_t), drawn to
    Z_n / s_n (all collisions alike) as far as its entries are noise (James and Stein).
    """
    w = sample.weights / sample.weights.sum()
    rows = OuterProducts(residuals, onehot, w, sample.units)
    Z = np.array([r.T @ (w[:, None] * r) for r in residuals])
    now = float(limit.scores[-1])
    contrast = _excess_contrast(limit)
    share = _learned_share(limit, contrast, Z, rows, priors)
    # shape = -Σ g_t Z_t, of trace 1; g then becomes the weights of Z_n - ê · shape.
    seen = float(contrast @ limit.scores)
    g = -share / max(seen, TINY) * contrast
    g[-1] -= (1 - share) / max(now, TINY)
    shape = -np.tensordot(g, Z, 1)
    g *= limit._excess
    g[-1] += 1
    B = project(np.diag(priors) - np.tensordot(g, Z, 1), priors).joint
    S = B / B.sum(axis=1, keepdims=True)
    # A row moves S_ij by -(Σ g_t r_ti r_tj + slope_ij c_i) / π_i, on average by nothing.
    squares = rows.sum_of_squares(g, slope=S - np.eye(len(S)))
    doubt = _doubt(limit)
    of_doubt = (doubt * shape) ** 2
    variance = (np.maximum(squares, 0.0) + of_doubt) / priors[:, None] ** 2
    stderr: FloatArray | None = np.sqrt(variance)
    pber_stderr: float | None = float(np.hypot(limit.stderr, doubt))
    if limit._skill[0] < 0:  # worse than the class shares: nothing is known of S∞
        stderr = None
        pber_stderr = None
    of_units = sums_by_number(w[:, None] * onehot, sample.units)
    return CollisionMatrix(
        S,
        priors,
        stderr=stderr,
        pber_stderr=pber_stderr,
        method=Method.LIMIT,
        diagnostics=Diagnostics(excess=limit._excess, shape_learned=share),
        units=effective_units(*power_sums(of_units)),
        n_units=limit.n_units,
        grouped=limit.grouped,
    )


def _doubt(limit: Limit) -> float:
    """Standard error of the excess: the width of the range beyond the sampling error."""
    tail = 0.025
    low = 0.0
    if not limit._no_lower_end:
        low = limit._pber_curve.at().quantile(tail)
    believed = float(limit.scores[-1]) - limit._excess
    z = -float(ndtri(tail))
    reach = max(believed - low, 0.0) / z
    variance = max(reach**2 - limit.stderr**2, 0.0)
    return float(np.sqrt(variance))


def _excess_contrast(limit: Limit) -> FloatArray:
    """Weights of the sizes, adding up to 0, whose sum with the scores estimates the excess at n."""
    falls = (limit.sizes / limit.sizes[-1]) ** -limit._pber_curve.exponent
    h = np.column_stack([np.ones(len(falls)), falls])
    # Generalised least squares.
    W = np.linalg.solve(_noise(limit, limit.scores, limit.covariance), h)
    return np.asarray((W @ np.linalg.inv(h.T @ W))[:, 1])


def _learned_share(
    limit: Limit,
    contrast: FloatArray,
    Z: FloatArray,
    rows: OuterProducts,
    priors: FloatArray,
) -> float:
    """How far the contrast of the sizes tells the shape of E[δ δᵀ], and not noise: 0 to 1."""
    scores = limit.scores
    now = float(scores[-1])
    seen = float(contrast @ scores)
    # The contrast sums to 0, so diag(π) - B∞ cancels: this estimates E[δ δᵀ], of trace ``seen``.
    learned = np.tensordot(contrast, Z, 1)
    alike = Z[-1] / max(now, TINY)
    noise = rows.sum_of_squares(contrast, mean=learned)
    scale = np.outer(priors, priors)
    apart = learned - seen * alike
    distinct = float((apart**2 / scale).sum())
    if distinct <= 0:
        return 0.0
    # E[δ δᵀ] is positive semi-definite, so no entry exceeds its trace: where one does, most of the
    # shape is noise.
    largest = max(float(np.abs(learned).max()), TINY)
    possible = min(max(seen, 0.0) / largest, 1.0)
    noisy = float((noise / scale).sum()) / distinct
    share = min(max(1 - noisy, 0.0), 1.0)
    return possible * share


def _check_sizes(sizes: ArrayLike, most: int = 100) -> FloatArray:
    """More sizes than ``most`` do not help, and a forged file should cost nothing."""
    array = check.check_finite(sizes, "sizes", ndim=1)
    increasing = (np.diff(array) > 0).all()
    allowed = 2 <= len(array) <= most
    if not allowed or array[0] < 1 or not increasing:
        wanted = f"2 to {most} increasing numbers of training rows"
        came = array[:most].tolist()
        raise ValueError(f"sizes must be {wanted}, got {came}")
    return array


def _check_rows(values: ArrayLike, name: str, n_sizes: int) -> FloatArray:
    array = check.check_finite(values, name, ndim=2)
    n_rows, width = array.shape
    if width != n_sizes or n_rows < 2:
        wanted = f"one column per size ({n_sizes}) and at least 2 rows"
        raise ValueError(f"{name} must have {wanted}, got {array.shape}")
    check.check_non_negative(
        array, name, "pass squared distances, and 0 or 1 for errors"
    )
    return array


def _check_arrays(posteriors: Sequence[ArrayLike], n_sizes: int) -> list[FloatArray]:
    if len(posteriors) != n_sizes:
        wanted = f"one array per size ({n_sizes})"
        raise ValueError(f"posteriors must hold {wanted}, got {len(posteriors)}")
    first = check.check_posteriors(posteriors[0], "posteriors[0]")
    k = first.shape[1]
    rest = [
        check.check_posteriors(P, f"posteriors[{t}]", k)
        for t, P in enumerate(posteriors[1:], start=1)
    ]
    return [first, *rest]
