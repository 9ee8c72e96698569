"""What unlimited rows of this kind would leave: the learning curve of the PBER, continued to its end.

A model that has not learned everything counts what it missed as ambiguity: with n rows it reports
PBER(n) = PBER + E‖p - y‖², too much by the excess. Held-out scores of the *same* rows at several training sizes
m₁ < … < m_T show how the excess falls. One assumption continues the curve, that it goes on falling like a power::

    s_t = L · (1 - f + f · (m_t / m_T)^-c) + noise        L = PBER(n), f = share of it still to be learned
    b = L · (1 - f)                                       what unlimited rows would leave

Noise: the T×T covariance of the means. All T means are over the same rows, so their differences have small errors;
models that share a fold share its luck, which the spread of the folds tells (:func:`_covariance`). Bends of the curve
that a power cannot follow enter as a random change of c from size to size (``BEND``).

Prior: L flat, f ~ Beta(``SHARE``), c ~ ``EXPONENT`` (how they were found: ``docs/range.md``). For every (c, f) on a grid L is normal, so b is a
mixture of normals with marginal likelihoods for weights. 0 ≤ f ≤ 1 keeps the excess and b from being negative.

The same on the 0/1 errors gives a range of the Bayes error. For the matrix B(t) = B∞ - E_t with E_t = E[δ δᵀ],
δ = p - y: the contrast of sizes that estimates the excess of the PBER, applied to every entry, gives the shape of E;
its size is the posterior mean of the excess, so that nothing is added where nothing was learned.

No method can do this without an assumption: there are problems whose curve is flat for any number of rows and falls
later (Antos, Devroye and Györfi, 1999). A curve that has not begun to fall, or falls faster and faster, has no lower
end but 0: state "hardly begun".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import betainc, ndtr, ndtri

from collidescope import _checks as check
from collidescope._checks import FloatArray, IntArray
from collidescope.equations.posterior import shift_rows
from collidescope.equations.projection import project
from collidescope.matrix import UNSEEN, CollisionMatrix, bayes_error_bounds

if TYPE_CHECKING:
    import pandas as pd

FORMAT = "collidescope.limit"
FORMAT_VERSION = 1
STATES = ("settled", "still learning", "hardly begun")
#: The exponent c: a normal (mean, standard deviation) cut to the grid.
EXPONENT = (0.6, 0.3)
EXPONENTS = np.linspace(0.1, 1.5, 36)
#: f, the share of PBER(n) still to be learned: Beta(α, β). α < 1 lets little or nothing be left.
SHARE = (0.5, 1.0)
SHARES = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 90)])
#: Standard deviation of the change of c from one halving to the next.
BEND = 0.05
#: "Settled": what may be left to learn widens the interval of PBER(n) by at most this factor.
SETTLED_WIDENING = 1.5
#: z-value from which a difference counts as seen: skill over the priors, a drop larger than the one before.
SEEN = 2.0
#: Skill below this share of the baseline is none: there may be a curve yet to begin.
LEAST_SKILL = 0.02


class _Posterior(NamedTuple):
    """b as a mixture of normals, and moments of the excess e = L · f."""

    weights: FloatArray
    means: FloatArray
    deviations: FloatArray
    excess: float
    excess_stderr: float
    exponent: float

    def quantile(self, probability: float) -> float:
        """Of b, not below 0."""
        low = float((self.means - 9 * self.deviations).min())
        high = float((self.means + 9 * self.deviations).max())
        with np.errstate(divide="ignore", invalid="ignore"):  # f = 1 leaves b = 0 without spread
            def beyond(b: float) -> float:
                z = np.where(self.deviations > 0, (b - self.means) / self.deviations, np.where(b >= self.means, 9, -9))
                return float(self.weights @ ndtr(z)) - probability

            return max(float(brentq(beyond, low - 1e-9, high + 1e-9, xtol=1e-9)), 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Limit:
    """A learning curve and where it ends. Made by :func:`limit_from_scores` and :func:`limit_from_posteriors`.

    Parameters
    ----------
    sizes : array of shape (T,)
        Rows that the models were trained on, increasing.
    scores : array of shape (T,)
        PBER at each size: the mean Brier score of the held-out rows.
    covariance : array of shape (T, T)
        Of ``scores``, over rows and folds.
    stderr : float
        Standard error of the last score over rows alone: that of the plain interval.
    n_rows : float
        Held-out rows behind every score (the effective number when they are weighted).
    errors, error_covariance : arrays of shapes (T,) and (T, T), optional
        The same for the share of held-out rows whose most likely class was wrong.
    baseline, skill_stderr : float, optional
        Score of the priors, and the standard error of its difference to the last score.
    matrix : CollisionMatrix, optional
        S∞: S with unlimited rows.
    """

    sizes: FloatArray
    scores: FloatArray
    covariance: FloatArray
    stderr: float
    n_rows: float
    errors: FloatArray | None = None
    error_covariance: FloatArray | None = None
    baseline: float | None = None
    skill_stderr: float | None = None
    matrix: CollisionMatrix | None = None

    def __post_init__(self) -> None:
        values: dict[str, Any] = {"sizes": _check_sizes(self.sizes)}
        count = len(values["sizes"])
        for name in ("scores", "covariance", "errors", "error_covariance"):
            if (given := getattr(self, name)) is None:
                continue
            values[name] = array = check.check_finite(given, name, ndim=2 if "covariance" in name else 1)
            if array.shape != (count,) * array.ndim:
                raise ValueError(f"{name} must have one entry per size ({count}), got shape {array.shape}")
            if "covariance" in name:
                values[name] = (array + array.T) / 2
                if (np.linalg.eigvalsh(values[name]) < -1e-9 * max(np.abs(array).max(), 1e-300)).any():
                    raise ValueError(f"{name} must be positive semi-definite")
            else:
                check.check_non_negative(array, name, "it is a mean of squares or of errors")
        if (self.errors is None) != (self.error_covariance is None):
            raise ValueError("errors and error_covariance must be given together")
        for name in ("stderr", "n_rows", "baseline", "skill_stderr"):
            if getattr(self, name) is not None:
                values[name] = check.check_at_least(getattr(self, name), 1 if name == "n_rows" else 0, name)
        if self.matrix is not None and not isinstance(self.matrix, CollisionMatrix):
            raise ValueError(f"matrix must be a CollisionMatrix, got {type(self.matrix).__name__}")
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value = value.copy()
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    # ---------------------------------------------------------------- the answer

    @property
    def pber(self) -> float:
        """PBER with unlimited rows: the posterior mean, or that of :attr:`matrix`."""
        if self.matrix is not None:
            return self.matrix.pber
        return max(float(self.scores[-1]) - self._posterior.excess, 0.0)

    def pber_interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high) for the PBER with unlimited rows, if the excess falls like a power of the number of rows.

        The upper end is at least that of PBER(n), which needs no assumption.
        """
        tail = (1 - check.check_between(level, 0, 1, "level")) / 2
        high = max(self._posterior.quantile(1 - tail), float(self.scores[-1]) + self._half_width(level))
        low = 0.0 if self._not_begun else self._posterior.quantile(tail)
        return min(low, self.pber), min(high, 1.0)

    def bayes_error_interval(self, level: float = 0.95) -> tuple[float, float]:
        """(low, high) for the Bayes error, the lower end under the assumption of :meth:`pber_interval`.

        High: the smaller of the held-out error and PBER(n), each with its one-sided limit at half of 1 - level; no
        assumption. Low: Cover and Hart's inequality on the lower end of the PBER.
        """
        low, high = self.pber_interval(level)
        k = self.matrix.n_classes if self.matrix is not None else 10**9  # any number of classes: the weakest bound
        least = bayes_error_bounds(min(low, (k - 1) / k), k)[0]
        if self.errors is not None and self.error_covariance is not None:
            stderr = float(np.hypot(np.sqrt(self.error_covariance[-1, -1]), UNSEEN / self.n_rows))
            high = min(high, float(self.errors[-1]) + float(ndtri((1 + level) / 2)) * stderr)
        return min(least, high), high

    @property
    def state(self) -> str:
        """Return "settled", "still learning" or "hardly begun"."""
        if self._not_begun:
            return "hardly begun"
        low, high = self.pber_interval()
        return "settled" if high - low <= SETTLED_WIDENING * 2 * self._half_width(0.95) else "still learning"

    @property
    def reason(self) -> str:
        """Why :attr:`state` is what it is, in one clause."""
        if self._not_begun:
            return self._not_begun
        if self.state == "settled":
            return "what may be left to learn is smaller than the luck in drawing the rows"
        drop, stderr = self._last_drop
        if drop < SEEN * stderr:
            return "too few rows to say: the last doubling changed less than luck would"
        return f"the last doubling of the rows lowered the PBER by {drop:.3g}"

    @property
    def curve(self) -> pd.DataFrame:
        """One row per size: ``rows``, ``pber``, ``pber_stderr`` and, where known, ``error``, ``error_stderr``."""
        import pandas as pd

        columns = {"rows": self.sizes, "pber": self.scores, "pber_stderr": np.sqrt(np.diag(self.covariance))}
        if self.errors is not None and self.error_covariance is not None:
            columns |= {"error": self.errors, "error_stderr": np.sqrt(np.diag(self.error_covariance))}
        return pd.DataFrame(columns)

    # ---------------------------------------------------------------- how

    @cached_property
    def _posterior(self) -> _Posterior:
        return _fit(self.sizes, self.scores, self.covariance, self.n_rows)

    @property
    def _last_drop(self) -> tuple[float, float]:
        V = self.covariance
        return float(self.scores[-2] - self.scores[-1]), float(np.sqrt(V[-1, -1] + V[-2, -2] - 2 * V[-1, -2]))

    def _half_width(self, level: float) -> float:
        """Of the plain interval of the last score, as :meth:`CollisionMatrix.pber_interval` has it."""
        return float(ndtri((1 + level) / 2) * np.hypot(self.stderr, UNSEEN / self.n_rows))

    @cached_property
    def _not_begun(self) -> str:
        """Why learning has hardly begun, or nothing."""
        s = self.scores
        if self.baseline is not None and self.skill_stderr is not None:
            skill = self.baseline - s[-1]
            if skill <= max(SEEN * self.skill_stderr, LEAST_SKILL * self.baseline):
                return "the models predict hardly better than the class shares alone"
        if len(s) > 2:
            # Drops per doubling: a power law's become smaller.
            per = np.diff(np.log2(self.sizes))
            contrast = np.zeros(len(s))
            contrast[-3:] = [-1 / per[-2], 1 / per[-2] + 1 / per[-1], -1 / per[-1]]
            growth, stderr = float(contrast @ s), float(np.sqrt(contrast @ self.covariance @ contrast))
            if growth > SEEN * max(stderr, 1e-12):
                return "every doubling of the rows lowers the PBER by more than the one before"
        return ""

    def __str__(self) -> str:
        now, (low, high), n = float(self.scores[-1]), self.pber_interval(), self.sizes[-1]
        half = self._half_width(0.95)
        lines = [f"PBER {now:.3f} ± {half:.3f} with {n:,.0f} training rows: {self.state} ({self.reason})."]
        lines.append(
            f"Unlimited rows of this kind would leave {low:.3f} to {high:.3f}, about {self.pber:.3f}, if the rest is "
            f"learned like a power of the number of rows."
        )
        return "\n".join(lines)

    def __repr__(self) -> str:
        low, high = self.pber_interval()
        return f"<Limit: {self.state}, PBER {self.scores[-1]:.4f} now, {low:.4f} to {high:.4f} with unlimited rows>"

    # ---------------------------------------------------------------- files

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and text."""
        data: dict[str, Any] = {"format": FORMAT, "version": FORMAT_VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            data[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
        return data | {"matrix": None if self.matrix is None else self.matrix.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Limit:
        """The inverse of :meth:`to_dict` (arrays are taken too), with every check of the constructor."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ValueError("data is not a limit: it must be what Limit.to_dict returned")
        if data.get("version") != FORMAT_VERSION:
            raise ValueError(f"data has format version {data.get('version')!r}, this release reads {FORMAT_VERSION}")
        if missing := [field.name for field in fields(cls) if field.name not in data]:
            raise ValueError(f"data lacks {', '.join(missing)}: the file was cut or edited")
        values = {field.name: data[field.name] for field in fields(cls)}
        matrix = values.pop("matrix")
        return cls(**values, matrix=None if matrix is None else CollisionMatrix.from_dict(matrix))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Limit):
            return False
        return all(
            np.array_equal(getattr(self, f.name), getattr(other, f.name))
            if isinstance(getattr(self, f.name), np.ndarray)
            else getattr(self, f.name) == getattr(other, f.name)
            for f in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self))


def limit_from_scores(
    scores: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    errors: npt.ArrayLike | None = None,
    baseline: npt.ArrayLike | None = None,
    folds: npt.ArrayLike | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> Limit:
    """What unlimited rows would leave, from the held-out scores of models trained on more and more rows.

    For custom training loops: score the same held-out rows with every model.

    Parameters
    ----------
    scores : array of shape (n, T)
        Brier score ‖c - p‖² of every held-out row (c one-hot label, p posterior) by the model of every size.
    sizes : array of shape (T,)
        Training rows of the models, increasing, at least 2 of them; four that double are a good choice.
    errors : array of shape (n, T), optional
        1 where the most likely class was wrong, else 0.
    baseline : float or array of shape (n,), optional
        Brier score of the class shares, 1 - Σ π², or that of every row. Without it a pool that has learned nothing
        cannot be told from one that has nothing left to learn.
    folds : array of shape (n,), optional
        Number of the fold that scored each row.
    sample_weight : array of shape (n,), optional

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sizes = np.array([250, 500, 1000, 2000])
    >>> row = rng.exponential(0.2, (4000, 1))  # what every model finds hard
    >>> scores = row + sizes**-0.5 * rng.exponential(1.0, (4000, 4))
    >>> limit = limit_from_scores(scores, sizes, baseline=0.5)
    >>> limit.state
    'still learning'
    >>> low, high = limit.pber_interval()
    >>> bool(low < 0.2 < high)
    True
    """
    sizes = _check_sizes(sizes)
    rows = _check_rows(scores, "scores", sizes)
    weights = check.unit_weights(check.check_weights(sample_weight, len(rows)))
    numbers = _check_folds(folds, len(rows))
    means, covariance, row_covariance = _covariance(rows, weights, numbers)
    values: dict[str, Any] = {}
    if errors is not None:
        wrong = _check_rows(errors, "errors", sizes)
        check.check_same_length(rows, wrong, "scores and errors")
        values["errors"], values["error_covariance"], _ = _covariance(wrong, weights, numbers)
    if baseline is not None:
        given = check.check_finite(baseline, "baseline", ndim=(0, 1))
        if given.shape not in ((), (len(rows),)):
            raise ValueError(f"baseline must be one number or one per row ({len(rows)}), got {len(given)}")
        skill, _, variance = _covariance((given - rows[:, -1])[:, None], weights, None)
        values |= {"baseline": float(means[-1] + skill[0]), "skill_stderr": float(np.sqrt(variance[0, 0]))}
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    return Limit(sizes, means, covariance, float(np.sqrt(row_covariance[-1, -1])), effective, **values)


def limit_from_posteriors(
    posteriors: Sequence[npt.ArrayLike],
    codes: npt.ArrayLike,
    sizes: npt.ArrayLike,
    *,
    folds: npt.ArrayLike | None = None,
    classes: Sequence[Any] | npt.NDArray[Any] | None = None,
    sample_weight: npt.ArrayLike | None = None,
    priors: npt.ArrayLike | None = None,
) -> Limit:
    """What unlimited rows would leave of S, from held-out posteriors at several training sizes.

    Parameters
    ----------
    posteriors : sequence of T arrays of shape (n, K)
        Posteriors of the same held-out rows, one array per size.
    codes : array of shape (n,)
        Class number of every row.
    sizes, folds, sample_weight
        As in :func:`limit_from_scores`.
    classes : sequence of K names, optional
    priors : array of shape (K,), optional
        Of the population to estimate for; by default the class shares of the rows.

    Returns
    -------
    Limit
        With S∞ in ``matrix``.
    """
    sizes = _check_sizes(sizes)
    if len(posteriors) != len(sizes):
        raise ValueError(f"posteriors must hold one array per size ({len(sizes)}), got {len(posteriors)}")
    arrays = [check.check_posteriors(P, f"posteriors[{t}]") for t, P in enumerate(posteriors)]
    n, k = arrays[0].shape
    names = check.check_classes(range(k) if classes is None else classes, k)
    labels = check.encode_labels(codes, np.arange(k), "codes")
    for t, P in enumerate(arrays):
        if P.shape != (len(labels), k):
            raise ValueError(f"posteriors[{t}] must have shape {(len(labels), k)}, got {P.shape}")
    weights = check.unit_weights(check.check_weights(sample_weight, n))
    counts = np.bincount(labels, weights, k)
    if not (counts > 0).all():
        raise ValueError(f"classes {names[counts <= 0].tolist()} have no rows: leave them out")
    pi = counts / counts.sum()
    members = counts**2 / np.bincount(labels, weights**2, k)
    if priors is not None:  # shifted posteriors, and every row weighs as its class does in that population
        target = check.check_priors(priors, k)
        arrays = [shift_rows(P, target / pi) for P in arrays]
        weights, pi = weights * (target / pi)[labels], target
    residuals = [-P for P in arrays]  # r = c - p
    for r in residuals:
        r[np.arange(n), labels] += 1
    scores = np.column_stack([np.einsum("ij,ij->i", r, r) for r in residuals])
    errors = np.column_stack([P.argmax(axis=1) != labels for P in arrays]).astype(float)
    constant = (pi**2).sum() + 1 - 2 * pi[labels]  # ‖c - π‖² of every row
    limit = limit_from_scores(
        scores, sizes, errors=errors, baseline=constant, folds=folds, sample_weight=weights
    )
    values = {field.name: getattr(limit, field.name) for field in fields(limit)}
    return Limit(**values | {"matrix": _matrix(limit, residuals, labels, weights, pi, names, members)})


# ---------------------------------------------------------------- the fit


def _fit(sizes: FloatArray, scores: FloatArray, covariance: FloatArray, n_rows: float) -> _Posterior:
    """b as a mixture over the grid of (c, f): generalised least squares for L, marginal likelihoods as weights."""
    halvings = np.log2(sizes[-1] / sizes)
    c, f = (axis.ravel() for axis in np.meshgrid(EXPONENTS, SHARES, indexing="ij"))
    rise = 2.0 ** (c[:, None] * halvings)  # (m_t / m_T)^-c
    h = 1 + f[:, None] * (rise - 1)
    bend = BEND * scores[-1] * f[:, None] * rise * halvings**2
    noise = covariance + np.eye(len(sizes)) * (UNSEEN / n_rows) ** 2
    V = noise + bend[:, :, None] * bend[:, None, :]
    solved = np.linalg.solve(V, np.stack([h, np.broadcast_to(scores, h.shape)], axis=2))
    information = (h * solved[:, :, 0]).sum(axis=1)
    level = (h * solved[:, :, 1]).sum(axis=1) / information
    misfit = (scores * solved[:, :, 1]).sum(axis=1) - level**2 * information
    log_weight = -(misfit + np.log(information) + np.linalg.slogdet(V)[1]) / 2 + _log_prior(c, f)
    weights = np.exp(log_weight - log_weight.max())
    weights /= weights.sum()
    means, deviations = level * (1 - f), (1 - f) / np.sqrt(information)
    excess = float(weights @ (level * f))
    spread = float(np.sqrt(weights @ ((level * f - excess) ** 2 + f**2 / information)))
    return _Posterior(weights, means, deviations, excess, spread, float(weights @ c))


def _log_prior(c: FloatArray, f: FloatArray) -> FloatArray:
    """Every share stands for the values nearer to it than to its neighbours."""
    edges = np.concatenate([[0.0], (SHARES[1:] + SHARES[:-1]) / 2, [1.0]])
    mass = np.diff(betainc(*SHARE, edges))
    mean, deviation = EXPONENT
    return np.log(mass)[np.searchsorted(SHARES, f)] - ((c - mean) / deviation) ** 2 / 2


def _covariance(
    rows: FloatArray, weights: FloatArray, folds: IntArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted means of the columns, their covariance over rows and folds, and that over rows alone.

    The luck of a fold's training rows moves its models: differences of sizes then vary more between folds than rows
    explain. By how much (one factor for all differences, or its estimate would be noise) is the mean whitened square of
    the folds' differences.
    """
    total = weights.sum()
    means = weights @ rows / total
    centred = (rows - means) * weights[:, None] / total
    over_rows = centred.T @ centred
    count = 0 if folds is None else int(folds.max()) + 1
    T = rows.shape[1]
    if folds is None or count < 2 or T < 2:
        return means, over_rows, over_rows
    # u = (differences of neighbours, last mean)
    D = np.vstack([-np.diff(np.eye(T), axis=0), np.eye(T)[-1]])
    differences = -np.diff(rows, axis=1)
    share = np.bincount(folds, weights, count) / total
    by_fold = np.column_stack([np.bincount(folds, weights * d, count) for d in differences.T]) / total
    by_fold = by_fold - share[:, None] * (weights @ differences / total)
    V = D @ over_rows @ D.T
    inner = V[:-1, :-1]
    if np.linalg.cond(inner) > 1e12:
        return means, over_rows, over_rows
    factor = np.einsum("ft,ft->", by_fold, np.linalg.solve(inner, by_fold.T).T) / ((T - 1) * (1 - (share**2).sum()))
    scale = np.append(np.full(T - 1, np.sqrt(max(float(factor), 1.0))), 1.0)
    back = np.linalg.inv(D)
    return means, back @ (V * np.outer(scale, scale)) @ back.T, over_rows


def _matrix(
    limit: Limit,
    residuals: list[FloatArray],
    codes: IntArray,
    weights: FloatArray,
    priors: FloatArray,
    classes: npt.NDArray[Any],
    counts: FloatArray,
) -> CollisionMatrix:
    """S∞ = Π⁻¹ (B(n) + κ Ê): Ê the contrast of sizes that estimates the excess, κ the share of it that is believed."""
    posterior, k = limit._posterior, len(priors)
    halvings = np.log2(limit.sizes[-1] / limit.sizes)
    h = np.column_stack([np.ones(len(halvings)), 2.0 ** (posterior.exponent * halvings)])
    W = np.linalg.solve(limit.covariance + np.eye(len(h)) * (UNSEEN / limit.n_rows) ** 2, h)
    contrast = (W @ np.linalg.inv(h.T @ W))[:, 1]  # generalised least squares: Σ contrast · scores = excess at n
    seen = float(contrast @ limit.scores)
    luck = float(contrast @ limit.covariance @ contrast)
    believed = seen / (seen**2 + luck) if seen > 0 else 0.0
    w = weights / weights.sum()
    # B(t) = diag(π) - mean(r rᵀ), so B∞ = diag(π) - Σ g_t mean(r_t r_tᵀ)
    g = -posterior.excess * believed * contrast
    g[-1] += 1
    means = [r.T @ (w[:, None] * r) for r in residuals]
    excess = sum(l * M for l, M in zip(contrast, means, strict=True))
    Z = sum(weight * M for weight, M in zip(g, means, strict=True))
    B = project(np.diag(priors) - Z, priors).joint
    S = B / B.sum(axis=1, keepdims=True)

    # Variance over rows of the influence (Z_ij + (S_ij - 1[i = j]) c_i) / π_i
    squares = np.zeros((k, k))
    for t, s in np.ndindex(len(g), len(g)):
        product = residuals[t] * residuals[s] * w[:, None]
        squares += g[t] * g[s] * (product.T @ product)
    ww = w**2
    cross = np.zeros((k, k))
    own = np.zeros((len(codes), k))
    own[np.arange(len(codes)), codes] = ww
    for weight, r in zip(g, residuals, strict=True):
        cross += weight * ((own * r).T @ r)
    slope = S - np.eye(k)
    mass = np.bincount(codes, ww, k)[:, None]
    mean = Z + slope * priors[:, None]
    total_squares = squares + 2 * slope * cross + slope**2 * mass - ww.sum() * mean**2
    inflation = (g @ limit.covariance @ g) / max(limit.stderr**2, 1e-300)
    del inflation
    variance = np.maximum(total_squares, 0.0) / priors[:, None] ** 2
    variance += (posterior.excess_stderr * believed * excess / priors[:, None]) ** 2
    pber_stderr = float(np.hypot(limit.stderr, posterior.excess_stderr))
    info = {"method": "limit", "excess": posterior.excess, "exponent": posterior.exponent}
    return CollisionMatrix(S, priors, classes, np.sqrt(variance), pber_stderr, counts, info=info)


def _check_sizes(sizes: npt.ArrayLike) -> FloatArray:
    array = check.check_finite(sizes, "sizes", ndim=1)
    if len(array) < 2 or array[0] < 1 or (np.diff(array) <= 0).any():
        raise ValueError(f"sizes must be at least 2 increasing numbers of training rows, got {array.tolist()}")
    return array


def _check_rows(values: npt.ArrayLike, name: str, sizes: FloatArray) -> FloatArray:
    array = check.check_finite(values, name, ndim=2)
    if array.shape[1] != len(sizes):
        raise ValueError(f"{name} must have one column per size ({len(sizes)}), got {array.shape[1]}")
    check.check_non_negative(array, name, "pass squared distances and 0/1 errors")
    if len(array) < 2:
        raise ValueError(f"{name} must have at least 2 rows, got {len(array)}")
    return array


def _check_folds(folds: npt.ArrayLike | None, n: int) -> IntArray | None:
    if folds is None:
        return None
    array = check.check_labels(folds, "folds")
    if len(array) != n:
        raise ValueError(f"folds must have one entry per row ({n}), got {len(array)}")
    return np.unique(array, return_inverse=True)[1].ravel()
