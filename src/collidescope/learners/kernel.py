"""Kernel machine: ridge regression of one-hot labels, with leave-one-out in closed form.

Symbols: n rows, K classes, m landmarks z_j (all rows while n is small),
k(x, z) = exp(-γ‖x - z‖²) + 1, Y the one-hot labels less the priors. With features
φ(x) = k(x, Z) L⁻ᵀ, where k(Z, Z) = L Lᵀ (Nyström), ridge regression with penalty λ
has the leave-one-out residuals ``(Y - F) / (1 - h)``, h the diagonal of the hat matrix, so γ, λ and
the scale of the features are chosen without any split. The leave-one-out scores then fit the
numbers that turn scores into log posteriors, which are linear in f, in log max(f, ε) and in the log
priors.

With eigenvectors every λ is a division. Where every row is a landmark, K their kernel matrix, the
coefficients are C Y with C = (K + λ)⁻¹, and 1 - h = λ diag C: a Cholesky factor for each λ that is
tried, which takes a seventh of the time of eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, eigh
from scipy.linalg.lapack import dtrtri, spotrf, strtri

from collidescope._checks import IntArray
from collidescope.learners.base import (
    ArrayMember,
    Fitted,
    FittedArrays,
    Float32,
    FloatArray,
    Task,
    double,
    log_softmax,
    single,
    squared_distances,
)
from collidescope.learners.pool import likeliest

Floats = npt.NDArray[np.floating[Any]]

MOST_LANDMARKS = 1_500  #: and those that a file may claim
#: λ, in units of the mean eigenvalue's scale (1 on the diagonal of the kernel matrix).
PENALTIES = tuple(10.0**e for e in (-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))


@dataclass(frozen=True)
class FittedKernel(FittedArrays):
    """Landmarks, their coefficients, and the calibration of the scores."""

    landmarks: Annotated[Float32, "f4 m d"]
    coefficients: Annotated[Float32, "f4 m K"]
    spread: Annotated[Float32, "f4 d"]
    log_priors: Annotated[Float32, "f4 K"]
    calibration: Annotated[FloatArray, "f8 3"]
    gamma: Annotated[float, 0.0, 1e30]

    def __post_init__(self) -> None:
        m = len(self.landmarks)
        if not 0 < m <= MOST_LANDMARKS:
            wanted = f"1 to {MOST_LANDMARKS} landmarks"
            raise ValueError(f"a kernel machine must have {wanted}, got {m}")

    @property
    def row_numbers(self) -> int:
        return sum(self.coefficients.shape) + len(self.spread)

    def score(self, x: Float32) -> FloatArray:
        logits = np.tensordot(self.calibration, self.evidence(x), 1)
        return log_softmax(logits)

    def evidence(self, x: Float32) -> Floats:
        """What the log posteriors of rows are made of: see :func:`evidence`."""
        k = kernel(
            x * self.spread,
            self.landmarks,
            self.gamma,
        )
        f = k @ self.coefficients
        return evidence(f, self.log_priors)


@dataclass(frozen=True)
class Kernel(ArrayMember):
    """Gaussian kernel machine."""

    most_features: float = 5_000
    #: γ that are tried, in units of one over the median squared distance between two rows
    gammas: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)
    most_rows: int = 30_000  #: rows that take part at all
    fewest_landmarks: int = 700
    #: rows × landmarks beyond which there are fewer landmarks
    most_values: int = 6_000_000
    choosing_rows: int = 2_000  #: rows that choose γ and the scale of the features
    choosing_landmarks: int = 300
    #: A scale whose loss at the usual γ is so many times the lowest is not followed: another γ
    #: lowers a loss by less. Of 386 samples 4 got another kernel so, with a loss up to 2.4% higher.
    hopeless: float = 1.25
    largest_calibration: float = 50.0  #: weight of the scores in the log posteriors

    learned: ClassVar[type[Fitted]] = FittedKernel

    def cost(self, n: int, d: int, k: int) -> float:
        rows = min(n, self.most_rows)
        landmarks = self._n_landmarks(rows)
        few = min(n, self.choosing_rows)
        few_landmarks = min(few, self.choosing_landmarks)
        tried = 2 * len(self.gammas)
        once = _ridge_cost(few, d, k, few_landmarks)
        return tried * once + _ridge_cost(rows, d, k, landmarks)

    def _n_landmarks(self, n: int) -> int:
        most = max(self.most_values // n, self.fewest_landmarks)
        return min(n, most, MOST_LANDMARKS)

    def learn(self, task: Task) -> FittedKernel:
        generator = np.random.default_rng(task.seed)
        used = np.flatnonzero(task.weights > 0)
        shuffled = generator.permutation(used)
        # Landmarks are the first.
        rows = task.rows(shuffled[: self.most_rows])
        w = single(rows.weights)
        priors = task.priors
        onehot = np.eye(task.n_classes, dtype=np.float32)
        Y = onehot[rows.codes] - single(priors)
        gamma, spread = self._chosen_kernel(rows.X, Y, w, task.scales())
        m = self._n_landmarks(len(w))
        scaled = rows.X * spread
        best = ridge(squared_distances(scaled, scaled[:m]), Y, w, gamma)
        log_priors = single(np.log(priors))
        return FittedKernel(
            name=self.name,
            landmarks=scaled[:m],
            coefficients=single(best.coefficients),
            spread=spread,
            log_priors=log_priors,
            calibration=self._calibration(best.scores, rows.codes, w, log_priors),
            gamma=gamma,
        )

    def _calibration(
        self, scores: Floats, codes: IntArray, w: Float32, log_priors: Float32
    ) -> FloatArray:
        """Non-negative weights of the evidence that make the labels likeliest, rows left out."""
        exact = double(w)
        factor = len(w) / exact.sum()
        return likeliest(
            evidence(scores, log_priors),
            codes,
            w=exact * factor,
            start=np.array([4.0, 0.5, 0.5]),
            bounds=[(0, self.largest_calibration), (0, 2), (0, 2)],
        )

    def _chosen_kernel(
        self, X: Float32, Y: Float32, w: Float32, scales: list[Float32]
    ) -> tuple[float, Float32]:
        """γ and the scale of the features with the lowest leave-one-out loss of a few rows."""
        n = self.choosing_rows
        start = 1
        searches = []
        for spread in scales:
            scaled = X[:n] * spread
            unit = 1 / max(_median_square(scaled), 1e-30)
            landmarks = scaled[: self.choosing_landmarks]
            squares = squared_distances(scaled, landmarks)
            gammas = [factor * unit for factor in self.gammas]
            losses = [
                cache(partial(_loss, squares, Y[:n], w[:n], gamma)) for gamma in gammas
            ]
            searches.append((losses, gammas, spread))
        searches.sort(key=lambda search: search[0][start]())
        lowest = np.inf
        for losses, gammas, spread in searches:
            if losses[start]() > self.hopeless * lowest:
                break
            place, loss = downhill(losses, start)
            if loss < lowest:
                lowest = loss
                best = (gammas[place], spread)
        return best


def downhill(losses: Sequence[Callable[[], float]], start: int) -> tuple[int, float]:
    """The place of the lowest of losses that fall and then rise, and that loss.

    Only those between ``start`` and the first that is no lower are computed. On 108 samples of
    real tables it found the lowest of all losses of a kernel.

    >>> values = [3.0, 2.0, 1.0, 4.0]
    >>> downhill([lambda value=value: value for value in values], start=1)
    (2, 1.0)
    """
    lowest = losses[start]()
    place = start
    for step in (1, -1):
        following = losses[start + 1 :]
        if step < 0:
            following = losses[:start][::-1]
        for loss in following:
            found = loss()
            if found >= lowest:
                break
            lowest = found
            place += step
        if place != start:
            break
    return place, lowest


def _loss(squares: Float32, Y: Floats, w: Floats, gamma: float) -> float:
    """The loss of :func:`ridge`, without what makes predictions."""
    basis = Basis.of(_values(squares, gamma), w)
    return float(min(penalty_losses(basis, Y * _roots(w))))


def evidence(f: Floats, log_priors: Float32) -> Floats:
    """What log posteriors are made of, (3, n, K): scores, their logarithms, and log priors.

    Scores are about .02 uncertain: below, their logarithm says nothing.
    """
    f = f + np.exp(log_priors)
    certain = np.maximum(f, 0.02)
    given = np.broadcast_to(log_priors, f.shape)
    return np.stack([f, np.log(certain), given])


def kernel(A: Float32, B: Float32, gamma: float) -> Float32:
    """exp(-γ‖a - b‖²) + 1: the constant is an intercept, which holds far from every landmark."""
    return _values(squared_distances(A, B), gamma)


def _values(squares: Float32, gamma: float) -> Float32:
    """The kernel at these squared distances."""
    values = squares * np.float32(-gamma)
    np.exp(values, out=values)
    values += np.float32(1.0)
    return values


def _median_square(scaled: Float32) -> float:
    """Median squared distance of neighbours in the (random) order of the rows."""
    steps = np.diff(scaled, axis=0)
    if len(steps) == 0:
        return 1.0
    squares = np.square(steps).sum(axis=1)
    median = float(np.median(squares))
    return median or float(squares.mean())


@dataclass(frozen=True)
class Ridge:
    """A ridge regression with the best penalty."""

    coefficients: Floats  #: (m, K)
    scores: Floats  #: (n, K), each without its row


def ridge(
    squares: Float32, Y: Floats, w: Floats, gamma: float, few: int = 300
) -> Ridge:
    """The regression of Y on the kernel, from squared distances of the rows to the landmarks.

    The first rows are the landmarks. Penalties are far above float32 rounding.
    """
    n, m = squares.shape
    values = _values(squares, gamma)
    if n == m > few and np.ptp(w) == 0:
        # The penalty of a few of the rows is about that of all.
        basis = Basis.of(values[:few, :few], w[:few])
        losses = penalty_losses(basis, Y[:few] * _roots(w[:few]))
        return _exact(values, Y, float(w[0]), start=int(np.argmin(losses)))
    root_w = _roots(w)
    basis = Basis.of(values, w)
    target = Y * root_w
    best = int(np.argmin(penalty_losses(basis, target)))
    rotated, residuals = _solution(basis, target, PENALTIES[best])
    # f(x) = k(x, Z) L⁻ᵀ V (AᵀA + λ)⁻¹ AᵀY: all of it but k(x, Z).
    return Ridge(
        coefficients=basis.coefficients(rotated),
        scores=Y - residuals / root_w,
    )


def _exact(K: Float32, Y: Floats, weight: float, start: int) -> Ridge:
    """The regression where every row is a landmark and weighs the same.

    The best penalty is the first one that no neighbour beats, from ``start`` on: losses fall and
    then rise.
    """

    @cache
    def solution(penalty: float) -> tuple[Floats, Floats]:
        return _solved(K, Y, penalty / weight)

    def loss(penalty: float) -> float:
        _, away = solution(penalty)
        return float(np.square(away).mean())

    place, _ = downhill([partial(loss, penalty) for penalty in PENALTIES], start)
    coefficients, away = solution(PENALTIES[place])
    return Ridge(coefficients=coefficients, scores=Y - away)


def _solved(K: Float32, Y: Floats, penalty: float) -> tuple[Floats, Floats]:
    """The coefficients (K + λ)⁻¹ Y, and the leave-one-out residuals.

    Infinite residuals where rounding leaves no Cholesky factor.
    """
    shifted = K.T.copy(order="F")
    diagonal = np.arange(len(K))
    shifted[diagonal, diagonal] += np.float32(penalty)
    L, failed = spotrf(shifted, lower=1, overwrite_a=1)
    if failed:
        return Y, np.full_like(Y, np.inf)
    root, _ = strtri(L, lower=1, overwrite_c=1)
    coefficients = root.T @ (root @ Y)
    of_rows = np.einsum("nm,nm->m", root, root)  # diag C, as C = rootᵀ root
    away = penalty * coefficients
    return coefficients, away / _slack(penalty * of_rows[:, None])


@dataclass(frozen=True)
class Basis:
    """The features of the rows in a basis where AᵀA = diag(e), which V rotates them into."""

    A: Floats  #: (n, r)
    e: Floats  #: (r,)
    inverse_root: Floats  #: L⁻ᵀ
    V: Floats | None  #: None: the identity

    @classmethod
    def of(cls, values: Float32, w: Floats) -> Basis:
        """From the kernel of the rows and the landmarks, which are the first rows."""
        n, m = values.shape
        among = values[:m]
        if m == n and np.ptp(w) == 0:
            # Every row is a landmark: its eigenvectors are such a basis.
            s, U = _leading_eigenvectors(among)
            e = w[0] * s
            return cls(U * np.sqrt(e), e, U / np.sqrt(s), None)
        inverse_root = _inverse_root(among)
        Z = values @ inverse_root
        Z *= _roots(w)
        gram = Z.T @ Z
        e, V = _eigenvectors(gram)
        return cls(Z @ V, np.maximum(e, 0), inverse_root, V)

    def coefficients(self, rotated: Floats) -> Floats:
        """Coefficients of the kernel's values, from those of A."""
        if self.V is not None:
            rotated = self.V @ rotated
        of_values: Floats = self.inverse_root @ rotated
        return of_values


def _roots(w: Floats) -> Floats:
    """√w of every row, (n, 1)."""
    return np.sqrt(w)[:, None]


def _eigenvectors(matrix: Floats) -> tuple[Floats, Floats]:
    s, U = eigh(
        matrix,
        overwrite_a=True,
        check_finite=False,
        driver="evd",
    )
    return s, U


def _leading_eigenvectors(K: Floats, tolerance: float = 1e-6) -> tuple[Floats, Floats]:
    """Eigenvalues and vectors; those below a share of the largest are rounding."""
    s, U = _eigenvectors(K)
    kept = s > tolerance * s[-1]
    return s[kept], U[:, kept]


def _inverse_root(K: Floats, tolerance: float = 1e-6) -> Floats:
    """L⁻ᵀ of K = L Lᵀ: a root of its inverse that takes a quarter of the time of eigenvectors.

    A share of the largest possible eigenvalue on the diagonal keeps rounding out.
    """
    m = len(K)
    exact = double(K)
    diagonal = np.arange(m)
    exact[diagonal, diagonal] += tolerance * 2 * m
    L = cholesky(exact, lower=True, overwrite_a=True, check_finite=False)
    inverse, _ = dtrtri(L, lower=1, overwrite_c=1)
    return single(inverse.T)


def penalty_losses(basis: Basis, target: Floats, most_columns: int = 100) -> Floats:
    """The mean squared leave-one-out residual with each of the penalties.

    A penalty is a division in the basis: h = Σ_j A_j² / (e_j + λ). Products with A, which are most
    of the work, are made for several penalties at once.
    """
    A = basis.A
    K = target.shape[1]
    ATY = A.T @ target
    shrunk = [_shrunk(basis, penalty) for penalty in PENALTIES]
    hat = (A * A) @ np.concatenate(shrunk, axis=1)
    slack = _slack(1 - hat)
    found = []
    n_together = max(1, most_columns // K)
    for first in range(0, len(PENALTIES), n_together):
        rotated = [ATY * each for each in shrunk[first : first + n_together]]
        fitted = A @ np.concatenate(rotated, axis=1)
        for number in range(len(rotated)):
            own = fitted[:, number * K : (number + 1) * K]
            away = target - own
            squares = np.einsum("nk,nk->n", away, away)
            squares /= np.square(slack[:, first + number])
            found.append(squares.mean() / K)
    return np.array(found)


def _solution(basis: Basis, target: Floats, penalty: float) -> tuple[Floats, Floats]:
    """Coefficients in the basis, and leave-one-out residuals (y - f) / (1 - h)."""
    A = basis.A
    shrunk = _shrunk(basis, penalty)
    squares = A * A
    slack = _slack(1 - squares @ shrunk)
    rotated = (A.T @ target) * shrunk
    fitted = A @ rotated
    return rotated, (target - fitted) / slack


def _shrunk(basis: Basis, penalty: float) -> Floats:
    """1 / (e + λ), (r, 1)."""
    damped = basis.e + np.float32(penalty)
    return (1 / damped)[:, None]


def _slack(own: Floats, smallest: float = 1e-4) -> Floats:
    """1 - h, the part of a score that the row did not make itself; not too small a divisor."""
    slack: Floats = np.maximum(own, smallest)
    return slack


def _ridge_cost(n: int, d: int, k: int, m: int) -> float:
    """Seconds of :func:`ridge`: kernel values, the Gram matrix, eigenvectors, penalties."""
    n_values = n * m
    values = n_values * (2e-11 * d + 1.5e-9)
    gram = 2.5e-11 * n * m * m
    eigenvectors = 1.2e-10 * m**3
    penalty = 1e-10 * len(PENALTIES)
    columns = k + 4
    penalties = penalty * n * m * columns
    return values + gram + eigenvectors + penalties
