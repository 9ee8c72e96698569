"""What unlimited rows of this kind would leave: the learning curve of the PBER, continued to its end.

A model that has not learned everything counts what it missed as ambiguity: with n rows it reports
PBER(n) = PBER + E‖p - y‖², too much by the excess. Held-out scores of the *same* rows at training sizes
m₁ < … < m_T = n show how the excess falls. One assumption continues the curve, that it falls like a power of m::

    s_t = L · (1 - f + f · (m_t / n)^-c) + noise        L = PBER(n), f = the share of it still to be learned
    b = L · (1 - f)                                     what unlimited rows would leave

Noise: the T×T covariance of the means. All are over the same rows, so their differences have small errors, and models
of one fold share its luck (:func:`_covariance`). Curves follow a power only roughly: ``DISCREPANCY``. Priors: L flat,
f ~ Beta(``SHARE``), c ~ ``EXPONENT``; ``benchmarks/limit.py --tune`` tells where they come from. For every (c, f) of a
grid L is normal, so b is a mixture of normals with marginal likelihoods as weights; 0 ≤ f ≤ 1 keeps b and the excess
from being negative. The 0/1 errors of the same rows are continued in the same way.

For the matrix B(m) = B∞ - E_m with E_m = E[δ δᵀ], δ = p - y. The contrast of sizes that estimates the excess of the
PBER, applied to every entry, gives the shape of E; its size is the excess that is believed of the PBER.

Nothing of this holds without the assumption: some curves are flat for any number of rows and fall later (Antos, Devroye
and Györfi, 1999). Where a curve has not begun to fall, or falls faster and faster, the lower end is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, ndtr, ndtri

from collidescope import _checks as check
from collidescope._checks import Array, ArrayLike, FloatArray, Given, IntArray, Names
from collidescope._text import limit_facts, limit_words, percent
from collidescope.equations.bounds import bayes_error_bounds
from collidescope.equations.posterior import shift_rows
from collidescope.equations.projection import project
from collidescope.intervals import UNSEEN, brier_interval, effective_units
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

MOST_SIZES = 100  #: of a curve: more than help, and few enough for a forged file to cost nothing
HEADER = {"format": "collidescope.limit", "version": 2}
#: The exponent c: median, and standard deviation of its logarithm. 1 is the rate of a correct parametric model.
EXPONENT = (0.5, 0.5)
EXPONENTS = np.linspace(0.05, 2.0, 40)
#: The share f of PBER(n) still to be learned: Beta(α, β), where nothing (0) and everything (1) are both likely.
SHARE = (0.5, 0.75)
SHARES = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 90)])
DISCREPANCY = (
    0.1  #: how far a curve strays from a power law: standard deviation of s_t in units of s_t - s_T
)
WIDENING = 1.5  #: "settled": all that may be left to learn widens the range at most so much beyond that of PBER(n)
SEEN = 2.0  #: z-value from which a difference counts as seen
LITTLE_SKILL = (
    0.1  #: skill below this share of the baseline is little, and drops must become smaller
)
TOO_MUCH = 2.0  #: how much worse a PBER below the truth is than one as far above it


class _Posterior(NamedTuple):
    """The grid: weights, normal b (means, deviations) and excess L · f of every (c, f), and the mean of c."""

    weights: FloatArray
    means: FloatArray
    deviations: FloatArray
    excess: FloatArray
    exponent: float

    def quantile(self, probability: float) -> float:
        """Of b, not below 0."""

        def beyond(b: float) -> float:
            return float(self.weights @ ndtr((b - self.means) / self.deviations)) - probability

        # A normal has 1e-19 of its mass beyond 9 deviations: the ends enclose every quantile that is asked for.
        low, high = (
            (self.means - 9 * self.deviations).min(),
            (self.means + 9 * self.deviations).max(),
        )
        return max(float(brentq(beyond, low, high, xtol=1e-9)), 0.0)

    def cautious_excess(self, noise: float) -> float:
        """The excess ê of the least expected |ê - e| / (e + noise), too much counted ``TOO_MUCH`` times."""
        # A weighted quantile: at the optimum TOO_MUCH times the weight below ê equals the weight above it.
        order = np.argsort(self.excess)
        weights = (self.weights / (np.maximum(self.excess, 0.0) + noise))[order]
        middle = np.searchsorted(weights.cumsum(), weights.sum() / (1 + TOO_MUCH))
        return float(max(self.excess[order][middle], 0.0))


@dataclass(frozen=True, eq=False, repr=False)
class Limit(Value):
    """A learning curve and where it ends. Made by :func:`limit_from_scores` and :func:`limit_from_posteriors`."""

    sizes: FloatArray  #: (T,) rows that the models were trained on, increasing
    scores: FloatArray  #: (T,) PBER at each size: mean Brier scores of the same held-out rows
    covariance: FloatArray  #: (T, T) of the scores, over rows and folds
    stderr: float  #: of the last score, over rows alone
    n_rows: float  #: held-out rows (the effective number when they are weighted)
    errors: FloatArray | None = None  #: (T,) share of the rows whose most likely class was wrong
    error_covariance: FloatArray | None = None  #: (T, T)
    baseline: float | None = None  #: score of the class shares
    skill_stderr: float | None = None  #: of its difference to the last score
    matrix: CollisionMatrix | None = None  #: S∞, S with unlimited rows
    #: independent units of rows, as many as if all weighed as much as the heaviest, default n_rows
    n_units: float | None = None
    grouped: bool = False  #: whether units are groups of rows

    def __post_init__(self) -> None:
        values: dict[str, Any] = {"sizes": _check_sizes(self.sizes)}
        if (self.errors is None) != (self.error_covariance is None):
            raise ValueError("errors and error_covariance must be given together")
        errors = () if self.errors is None else (("errors", 1), ("error_covariance", 2))
        for name, ndim in (("scores", 1), ("covariance", 2), *errors):
            values[name] = array = check.check_finite(getattr(self, name), name, ndim=ndim)
            if array.shape != (len(values["sizes"]),) * ndim:
                raise ValueError(
                    f"{name} must have one entry per size ({len(self.sizes)}), got shape {array.shape}"
                )
            if ndim == 1:
                check.check_non_negative(array, name, "it is a mean of squares or of errors")
            elif np.linalg.eigvalsh(array + array.T).min() < -1e-9 * np.abs(array).max():
                raise ValueError(f"{name} must be positive semi-definite")
        least_of = {"stderr": 0, "n_rows": 1, "baseline": 0, "skill_stderr": 0, "n_units": 1}
        for name, least in least_of.items():
            if getattr(self, name) is not None:
                values[name] = check.check_at_least(getattr(self, name), least, name)
        if not isinstance(self.matrix, CollisionMatrix | None):
            raise ValueError(f"matrix must be a CollisionMatrix, got {type(self.matrix).__name__}")
        self._freeze(values)

    @property
    def pber(self) -> float:
        """PBER with unlimited rows, as far as this curve makes it likely; that of :attr:`matrix` where there is one."""
        return float(self.scores[-1]) - self._excess if self.matrix is None else self.matrix.pber

    def pber_interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high) of the PBER with unlimited rows, if the excess falls like a power of the number of rows.

        The upper end is at least that of PBER(n), which needs no assumption.
        """
        tail = (1 - check.check_between(level, 0, 1, "level")) / 2
        low = 0.0 if self._not_begun else self._posterior.quantile(tail)
        high = max(self._posterior.quantile(1 - tail), self._plain_interval(level)[1])
        return min(low, self.pber), min(high, 1.0)

    @property
    def bayes_error(self) -> float | None:
        """Error of the best guess with unlimited rows, as far as the curve of the errors makes it likely."""
        if self.errors is None or self.error_covariance is None:
            return None
        fit = _fit(self.sizes, self.errors, self.error_covariance, self.n_rows)
        excess = fit.cautious_excess(
            np.hypot(np.sqrt(self.error_covariance[-1, -1]), UNSEEN / self.n_rows)
        )
        return max(float(self.errors[-1]) - excess, 0.0)

    def bayes_error_interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high) of the Bayes error, the lower end under the assumption of :meth:`pber_interval`.

        High needs no assumption: it is the upper limit of :meth:`CollisionMatrix.bayes_error_limit`. Low is the
        larger of Cover and Hart's bound at the lower end of the PBER and the end of the curve of the errors, each with
        half of the tail: the larger of two limits fails where either does.
        """
        low, high = self.pber_interval(level)
        k = (
            10**9 if self.matrix is None else self.matrix.n_classes
        )  # the bound is weakest for many classes
        if self.errors is None or self.error_covariance is None:
            return bayes_error_bounds(min(low, 1 - 1 / k), k)[0], high
        low = bayes_error_bounds(min(self.pber_interval((1 + level) / 2)[0], 1 - 1 / k), k)[0]
        stderr = np.hypot(np.sqrt(self.error_covariance[-1, -1]), UNSEEN / self.n_rows)
        # Posteriors without skill name one class for all rows, the best of k by luck: Bonferroni over k.
        choices = k if self._skill[2] < NO_SKILL and self.matrix is not None else 1
        high = min(high, float(self.errors[-1] - ndtri((1 - level) / 2 / choices) * stderr))
        if not self._not_begun:
            fit = _fit(self.sizes, self.errors, self.error_covariance, self.n_rows)
            low = max(low, fit.quantile((1 - level) / 4))
        return min(low, high), high

    @property
    def state(self) -> str:
        """One of "settled", "still learning" and "hardly begun"."""
        if self._not_begun:
            return "hardly begun"
        low, high = self.pber_interval()
        return (
            "settled" if high - low <= WIDENING * 2 * self._half_width(0.95) else "still learning"
        )

    @property
    def reason(self) -> str:
        """Why :attr:`state` is what it is, in one clause."""
        if self._not_begun or self.state == "settled":
            return (
                self._not_begun
                or "what may be left to learn is less than the luck in drawing the rows"
            )
        drop, stderr = self._contrast([1.0, -1.0])
        if drop < SEEN * stderr:
            return "too few rows to say: the last step changed the PBER less than luck would"
        return f"from {self.sizes[-2]:,.0f} to {self.sizes[-1]:,.0f} training rows the PBER fell by {drop:.2g}"

    @property
    def curve(self) -> pd.DataFrame:
        """One row per size: ``rows``, ``pber``, ``pber_stderr`` and, where known, ``error``, ``error_stderr``."""
        import pandas as pd

        columns = {
            "rows": self.sizes,
            "pber": self.scores,
            "pber_stderr": np.sqrt(np.diag(self.covariance)),
        }
        if self.errors is not None and self.error_covariance is not None:
            columns |= {
                "error": self.errors,
                "error_stderr": np.sqrt(np.diag(self.error_covariance)),
            }
        return pd.DataFrame(columns)

    def continuation(
        self, sizes: ArrayLike, level: float = 0.95
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(low, middle, high) of PBER(m) for training sizes m: what more rows would give, ``continuation([2 * n])``.

        They end in :meth:`pber_interval` and :attr:`pber`.
        """
        tail = (1 - check.check_between(level, 0, 1, "level")) / 2
        sizes = check.check_finite(sizes, "sizes", ndim=1)
        if sizes.min() < 1:
            raise ValueError(
                f"sizes must be numbers of training rows, 1 or more, got {sizes.min():g}"
            )
        fits = [_fit(self.sizes, self.scores, self.covariance, self.n_rows, size) for size in sizes]
        low, middle, high = (
            np.array([fit.quantile(q) for fit in fits]) for q in (tail, 0.5, 1 - tail)
        )
        middle = np.maximum(middle, self.pber)
        high = np.minimum(np.maximum(high, self._plain_interval(level)[1]), 1.0)
        return 0.0 * low if self._not_begun else np.minimum(low, middle), middle, high

    @cached_property
    def _posterior(self) -> _Posterior:
        return _fit(self.sizes, self.scores, self.covariance, self.n_rows)

    @property
    def _excess(self) -> float:
        return min(
            self._posterior.cautious_excess(self._half_width(0.95) / 2), float(self.scores[-1])
        )

    def _contrast(self, weights: Sequence[float]) -> tuple[float, float]:
        """Of the last scores: value and standard error."""
        w = np.concatenate([np.zeros(len(self.sizes) - len(weights)), weights])
        return float(w @ self.scores), float(np.sqrt(max(w @ self.covariance @ w, 0.0)))

    def _plain_interval(self, level: float) -> tuple[float, float]:
        """Of the last score, as :meth:`CollisionMatrix.pber_interval` has it."""
        units = self.n_rows if self.n_units is None else self.n_units
        return brier_interval(
            float(self.scores[-1]), self.stderr, units, level, grouped=self.grouped
        )

    def _half_width(self, level: float) -> float:
        low, high = self._plain_interval(level)
        return (high - low) / 2

    @property
    def _skill(self) -> tuple[float, float, float]:
        """By how much the last score beats the class shares, its standard error, and it as a share of theirs."""
        if self.baseline is None or self.skill_stderr is None:
            return np.inf, 0.0, np.inf
        skill = self.baseline - float(self.scores[-1])
        return skill, self.skill_stderr, skill / max(self.baseline, np.finfo(float).tiny)

    @cached_property
    def _not_begun(self) -> str:
        """Why learning has hardly begun, or nothing."""
        skill, stderr, share = self._skill
        if skill <= SEEN * stderr or share < NO_SKILL:
            return "the models predict hardly better than the class shares alone"
        if len(self.sizes) > 2:
            before, last = np.diff(
                np.log2(self.sizes[-3:])
            )  # drops per doubling: those of a power law become smaller
            # The last drop less the one before: (s₂ - s₃) / last - (s₁ - s₂) / before.
            growth, stderr = self._contrast([-1 / before, 1 / before + 1 / last, -1 / last])
            if growth > (0.0 if share < LITTLE_SKILL else SEEN * stderr + 1e-12):
                return "each doubling of the rows lowers the PBER by more than the one before"
        return ""

    def __str__(self) -> str:
        now = f"PBER {percent(float(self.scores[-1]))} ± {self._half_width(0.95):.2%} with {self.sizes[-1]:,.0f} rows"
        return f"{now}: {self.state} ({self.reason}).\n{limit_words(limit_facts(self))}"

    def __repr__(self) -> str:
        return f"<Limit: {self.state}, PBER {self.scores[-1]:.4f} now, about {self.pber:.4f} with unlimited rows>"

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
        if found != names:
            wrong = ", ".join(sorted(map(str, names ^ found)))
            raise ValueError(f"a limit is damaged, the file was cut or edited: check {wrong}")
        values = dict(tree)
        if values["matrix"] is not None and not isinstance(values["matrix"], CollisionMatrix):
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
        """The inverse of :meth:`to_dict` (arrays are taken too), with every check of the constructor."""
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
) -> Limit:
    """What unlimited rows would leave, from the held-out scores of models trained on more and more rows.

    Parameters
    ----------
    scores, errors : (n, T), the second optional
        Brier score ‖c - p‖² of every held-out row (c one-hot label, p posterior) by the model of every size, and 1
        where its most likely class was wrong, else 0. The same rows for every size: the curve is read from differences.
    sizes : (T,) training rows of the models, increasing; four that double each time are a good choice
    baseline : float or (n,), optional; Brier score of the class shares, 1 - Σ π², or that of every row
        Without it models that have learned nothing cannot be told from models that have nothing left to learn.
    folds, sample_weight : (n,), optional; the fold whose models scored each row, and its weight
    groups : (n,), optional; of rows of one patient, document or site: errors then count groups

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
    weights = check.unit_weights(check.check_weights(sample_weight, len(rows)))
    labels = np.zeros(len(rows)) if folds is None else check.check_labels(folds, "folds")
    check.check_same_length(rows, labels, "scores and folds")
    numbers = np.unique(labels, return_inverse=True)[1].ravel()
    units = check_units(groups, len(rows))
    means, covariance, row_covariance = _covariance(rows, weights, numbers, units)
    sizes_of_units = np.bincount(units, weights)
    values: dict[str, Any] = {
        "n_rows": float(weights.sum() ** 2 / (weights**2).sum()),
        "n_units": float(effective_units(*(np.sum(sizes_of_units**p) for p in (1, 2, 3)))),
        "grouped": groups is not None,
    }
    if errors is not None:
        wrong = _check_rows(errors, "errors", len(sizes))
        check.check_same_length(rows, wrong, "scores and errors")
        values["errors"], values["error_covariance"], _ = _covariance(
            wrong, weights, numbers, units
        )
    if baseline is not None:
        given = check.check_finite(baseline, "baseline", ndim=(0, 1))
        if given.shape not in ((), (len(rows),)):
            raise ValueError(
                f"baseline must be one number or one per row ({len(rows)}), got {len(given)}"
            )
        skill, variance, _ = _covariance((given - rows[:, -1])[:, None], weights, numbers, units)
        values |= {
            "baseline": float(means[-1] + skill[0]),
            "skill_stderr": float(np.sqrt(variance[0, 0])),
        }
    return Limit(sizes, means, covariance, float(np.sqrt(row_covariance[-1, -1])), **values)


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
) -> Limit:
    """What unlimited rows would leave of S, from held-out posteriors at several training sizes.

    Takes one n×K array of posteriors of the same rows per size, the class number of every row, the names of the classes
    and the ``priors`` to estimate for (by default the class shares of the rows); the rest as :func:`limit_from_scores`.
    """
    if len(posteriors) != np.size(sizes):
        raise ValueError(
            f"posteriors must hold one array per size ({np.size(sizes)}), got {len(posteriors)}"
        )
    k = check.check_posteriors(posteriors[0], "posteriors[0]").shape[1]
    arrays = [check.check_posteriors(P, f"posteriors[{t}]", k) for t, P in enumerate(posteriors)]
    names = check.check_classes(classes, k)
    labels = check.encode_labels(codes, np.arange(k), "codes")
    for P in arrays:
        check.check_same_length(P, labels, "posteriors and codes")
    weights = check.unit_weights(check.check_weights(sample_weight, len(labels)))
    totals = np.bincount(labels, weights, k)
    check.check_class_sizes(totals, names)
    counts, pi = totals**2 / np.bincount(labels, weights**2, k), totals / totals.sum()
    if (
        priors is not None
    ):  # shifted posteriors, and every row weighs as its class does in that population
        target = check.check_priors(priors, k)
        arrays = [shift_rows(P, target / pi) for P in arrays]
        weights, pi = weights * (target / pi)[labels], target
    onehot = np.eye(k)[labels]
    residuals = [onehot - P for P in arrays]
    scores = np.column_stack([(r**2).sum(axis=1) for r in residuals])
    errors, baseline = (
        np.column_stack([P.argmax(axis=1) != labels for P in arrays]),
        ((onehot - pi) ** 2).sum(axis=1),
    )
    limit = limit_from_scores(
        scores,
        sizes,
        errors=errors,
        baseline=baseline,
        folds=folds,
        sample_weight=weights,
        groups=groups,
    )
    units = check_units(groups, len(labels))
    matrix = _matrix(limit, residuals, onehot, weights / weights.sum(), pi, names, counts, units)
    return replace(limit, matrix=matrix)


def _fit(
    sizes: FloatArray, scores: FloatArray, noise: FloatArray, n_rows: float, size: float = np.inf
) -> _Posterior:
    """PBER(``size``) as a mixture over the grid of (c, f): generalised least squares for L at each of its points."""
    c, f = (axis.ravel() for axis in np.meshgrid(EXPONENTS, SHARES, indexing="ij"))
    halvings = np.log2(sizes[-1] / sizes)
    # s = L h + noise, h_t = 1 - f + f (m_t / n)^-c: (points of the grid, sizes).
    h = 1 + f[:, None] * (2.0 ** (c[:, None] * halvings) - 1)
    precision = np.linalg.inv(_noise(scores, noise, n_rows))
    # As L is flat, given (c, f) it is normal with mean ``level`` and precision ``information``, and integrating it out
    # leaves a likelihood ∝ exp(level² · information / 2) / √information.
    information = np.einsum("gt,ts,gs->g", h, precision, h)
    level = h @ precision @ scores / information
    edges = np.concatenate([[0.0], (SHARES[1:] + SHARES[:-1]) / 2, [1.0]])
    mass = np.tile(
        np.diff(betainc(*SHARE, edges)), len(EXPONENTS)
    )  # of the shares nearest to each of the grid
    # c is log-normal: its density, on an even grid, is exp(-z²/2) / c.
    z = np.log(c / EXPONENT[0]) / EXPONENT[1]
    log_weights = (
        (level**2 * information - np.log(information) - z**2) / 2 - np.log(c) + np.log(mass)
    )
    weights = np.exp(log_weights - log_weights.max())
    # PBER(size) as a share of L: 1 - f + f (size / n)^-c, and 1 - f with unlimited rows.
    kept = 1 - f * (1 - (size / sizes[-1]) ** -c)
    # The floor keeps normals normal where f = 1; it is far below what n rows can tell.
    deviations = np.maximum(kept / np.sqrt(information), 1e-3 / n_rows)
    weights /= weights.sum()
    return _Posterior(weights, level * kept, deviations, level * f, float(weights @ c))


def _covariance(
    rows: FloatArray, weights: FloatArray, folds: IntArray, units: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted means of the columns, their covariance over rows and folds, and that over rows alone.

    The luck of a fold's training rows moves its models, so that differences of sizes vary more between folds than rows
    explain: by the mean whitened square of the folds' differences, one factor for all, since few folds tell no more.
    """
    w, T = weights / weights.sum(), rows.shape[1]
    means = w @ rows
    centred = (rows - means) * w[:, None]
    over_rows = _cluster_covariance(centred, units)
    if folds.max() < 1 or T < 2:
        return means, over_rows, over_rows
    D = np.eye(T) - np.eye(T, k=1)  # u = D s: differences of neighbours, and the last mean
    V = D @ over_rows @ D.T
    by_fold = np.zeros((folds.max() + 1, T))
    np.add.at(by_fold, folds, centred @ D.T)
    inner, luck = V[:-1, :-1], by_fold[:, :-1]
    share = np.bincount(folds, w)
    # If rows alone varied, the sum of fold g would have covariance share_g (1 - share_g) V, as all folds add up to 0;
    # on average the whitened squares would add up to (T - 1)(1 - Σ share²), and the factor would be 1.
    factor = np.sum(luck * (luck @ np.linalg.pinv(inner, hermitian=True))) / (
        (T - 1) * (1 - (share**2).sum())
    )
    scale = np.append(np.full(T - 1, np.sqrt(max(float(factor), 1.0))), 1.0)
    # s = D⁻¹ u: differences of sizes widened, the last mean as it was.
    back = np.linalg.inv(D) * scale
    return means, back @ V @ back.T, over_rows


def check_units(groups: Given, n_rows: int) -> IntArray:
    """The number of the independent unit of every row: its group, or itself."""
    if groups is None:
        return np.arange(n_rows)
    return check.group_numbers(groups, n_rows)


def _cluster_covariance(influence: FloatArray, units: IntArray) -> FloatArray:
    """Of the sums of rows' influences, each of mean 0: over independent units, by G/(G-1)."""
    n_units = int(units.max()) + 1
    if n_units == len(units):  # every row is a unit
        sums = influence
    else:
        sums = np.zeros((n_units, influence.shape[1]))
        np.add.at(sums, units, influence)
    seen = float(np.count_nonzero(sums.any(axis=1)))  # not those of weight 0
    return seen / max(seen - 1, 1) * (sums.T @ sums)


def _matrix(
    limit: Limit,
    residuals: list[FloatArray],
    onehot: FloatArray,
    w: FloatArray,
    priors: FloatArray,
    classes: Array,
    counts: FloatArray,
    units: IntArray,
) -> CollisionMatrix:
    """S∞ from B∞ = diag(π) - Σ g_t Z_t, Z_t = mean(r rᵀ), r = c - p: B(m) is diag(π) - Z_m, its trace 1 - s_m.

    The excess ê of the PBER is taken from Z_n in a shape of trace 1: that of what was learned between the sizes (a
    contrast of all Z_t), drawn to Z_n / s_n (all collisions alike) as far as its entries are noise (James and Stein).
    """
    h = np.column_stack(
        [np.ones(len(limit.sizes)), (limit.sizes / limit.sizes[-1]) ** -limit._posterior.exponent]
    )
    W = np.linalg.solve(_noise(limit.scores, limit.covariance, limit.n_rows), h)
    contrast = (W @ np.linalg.inv(h.T @ W))[
        :, 1
    ]  # generalised least squares: contrast · scores ≈ excess at n
    Z = np.array([r.T @ (w[:, None] * r) for r in residuals])
    weighted = [w[:, None] * r for r in residuals]
    # Σ over rows of w² (r_t r_s)_i (r_t r_s)_j, from which the squares of any combination of the r_t r_tᵀ follow
    products = np.array([[(rr := r * v).T @ rr for v in weighted] for r in residuals])
    now, seen = float(limit.scores[-1]), float(contrast @ limit.scores)
    # The contrast sums to 0, so diag(π) - B∞ cancels: Σ contrast_t Z_t estimates E[δ δᵀ] at n rows, of trace ``seen``.
    learned, alike = np.tensordot(contrast, Z, 1), Z[-1] / max(now, np.finfo(float).tiny)
    noise = np.einsum("t,s,tsij->ij", contrast, contrast, products) - (w**2).sum() * learned**2
    scale = np.outer(priors, priors)
    distinct = float(((learned - seen * alike) ** 2 / scale).sum())
    # E[δ δᵀ] is positive semi-definite, so no entry exceeds its trace: where one does, most of the shape is noise.
    possible = min(max(seen, 0.0) / max(float(np.abs(learned).max()), np.finfo(float).tiny), 1.0)
    share = (
        possible * float(np.clip(1 - (noise / scale).sum() / distinct, 0, 1))
        if distinct > 0
        else 0.0
    )
    # shape = -Σ g_t Z_t, of trace 1; g then becomes the weights of Z_n - ê · shape.
    g = -share / max(seen, np.finfo(float).tiny) * contrast
    g[-1] -= (1 - share) / max(now, np.finfo(float).tiny)
    shape = -np.tensordot(g, Z, 1)
    g *= limit._excess
    g[-1] += 1
    mean = np.tensordot(g, Z, 1)
    B = project(np.diag(priors) - mean, priors).joint
    S = B / B.sum(axis=1, keepdims=True)
    # A row moves S_ij by -(Σ g_t r_ti r_tj + slope_ij c_i) / π_i, on average by nothing; the sum of squares of that:
    slope = S - np.eye(len(S))
    cross = sum(weight * (onehot * v).T @ v for weight, v in zip(g, weighted, strict=True))
    squares = np.einsum("t,s,tsij->ij", g, g, products) + slope * (
        2 * cross + slope * (w**2 @ onehot)[:, None]
    )
    # The excess may be wrong by as much as the range of the PBER says beyond the luck in drawing the rows.
    reach = (now - limit._excess - limit.pber_interval()[0]) / float(ndtri(0.975))
    doubt = np.sqrt(max(reach**2 - limit.stderr**2, 0.0))
    variance = (np.maximum(squares, 0.0) + (doubt * shape) ** 2) / priors[:, None] ** 2
    diagnostics = Diagnostics(excess=limit._excess, shape_learned=share)
    pber_stderr = float(np.hypot(limit.stderr, doubt))
    return CollisionMatrix(
        S,
        priors,
        classes,
        np.sqrt(variance),
        pber_stderr,
        counts,
        method=Method.LIMIT,
        diagnostics=diagnostics,
        n_units=limit.n_units,
        grouped=limit.grouped,
    )


def _noise(scores: FloatArray, covariance: FloatArray, n_rows: float) -> FloatArray:
    """Covariance of the scores around a power law."""
    # The last term keeps it invertible where two sizes have the same scores row by row.
    return covariance + np.diag((DISCREPANCY * (scores - scores[-1])) ** 2 + (UNSEEN / n_rows) ** 2)


def _check_sizes(sizes: ArrayLike) -> FloatArray:
    array = check.check_finite(sizes, "sizes", ndim=1)
    if not 2 <= len(array) <= MOST_SIZES or array[0] < 1 or (np.diff(array) <= 0).any():
        shown = array[:MOST_SIZES].tolist()
        raise ValueError(
            f"sizes must be 2 to {MOST_SIZES} increasing numbers of training rows, got {shown}"
        )
    return array


def _check_rows(values: ArrayLike, name: str, n_sizes: int) -> FloatArray:
    array = check.check_finite(values, name, ndim=2)
    if array.shape[1] != n_sizes or len(array) < 2:
        raise ValueError(
            f"{name} must have one column per size ({n_sizes}) and at least 2 rows, got {array.shape}"
        )
    check.check_non_negative(array, name, "pass squared distances, and 0 or 1 for errors")
    return array
