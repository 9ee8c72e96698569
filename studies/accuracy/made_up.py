"""Where would a stock classifier be ahead? Thirty-three kinds of made-up problems, far from each other, of few rows.

The default and the stock classifiers of :mod:`studies.accuracy.real` (and multinomial naive Bayes, where no feature is
negative) learn from the same rows. Brier scores are those of fresh rows; that of the true posteriors is the PBER. Half
of these kinds showed what the pool lacked (sparse regression, naive Bayes), so they are no independent check of its
members; no prior of the range was chosen on any of them.

    python -m studies.accuracy.made_up --jobs 2 [--rows 500] [--seeds 2] [--problems words angles]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import logsumexp, softmax
from sklearn.naive_bayes import MultinomialNB

from collidescope import CollisionClassifier
from studies.accuracy import _record, real
from studies.accuracy.limit import fixed, normal, posteriors_of, uniform

#: (rows, generator) → inputs, labels, true posteriors
Sample = tuple[Any, Any, Any]
Kind = Callable[[int, Any], Sample]
TEST_ROWS, TRUTH_ROWS, LEVEL = 5_000, 50_000, 0.95


def drawn(P: Any, rng: Any) -> Any:
    return (rng.random((len(P), 1)) >= P.cumsum(axis=1)[:, :-1]).sum(axis=1)


def of_logits(inputs: Callable[[int, Any], Any], logits: Callable[[Any], Any]) -> Kind:
    """Labels drawn from the softmax of the logits."""

    def sample(n: int, rng: Any) -> Sample:
        X = inputs(n, rng)
        P = posteriors_of(logits(X))
        return X, drawn(P, rng), P

    return sample


def of_classes(
    draw: Callable[[Any, Any], Any], log_densities: Callable[[Any], Any], priors: Any
) -> Kind:
    """Inputs drawn class by class."""

    def sample(n: int, rng: Any) -> Sample:
        y = rng.choice(len(priors), n, p=priors)
        X = draw(y, rng)
        return X, y, softmax(log_densities(X) + np.log(priors), axis=1)

    return sample


def shifted(means: Any, priors: Any) -> Kind:
    """Gaussian classes with one covariance, the identity."""
    return of_classes(
        lambda y, rng: means[y] + rng.normal(size=(len(y), means.shape[1])),
        lambda X: X @ means.T - 0.5 * np.square(means).sum(axis=1),
        priors,
    )


def ordered(
    inputs: Callable[[int, Any], Any], score: Callable[[Any], Any], edges: Any, noise: float
) -> Kind:
    """Classes are intervals of a score with Gaussian noise."""

    def sample(n: int, rng: Any) -> Sample:
        X = inputs(n, rng)
        below = stats.norm.cdf((edges - score(X)[:, None]) / noise)
        P = np.diff(np.hstack([np.zeros((n, 1)), below, np.ones((n, 1))]), axis=1)
        return X, drawn(P, rng), P

    return sample


def codes(levels: int, columns: int) -> Callable[[int, Any], Any]:
    """Categories, one-hot."""
    return lambda n, rng: np.eye(levels)[rng.integers(0, levels, (n, columns))].reshape(n, -1)


def even(k: int) -> Any:
    return np.full(k, 1 / k)


def topics(words: int, k: int) -> Any:
    """Shares of words: common ones, and those of each topic."""
    common, own = (
        np.random.default_rng(s).dirichlet(np.full(words, a), n)
        for s, a, n in ((3, 0.3, 1), (4, 0.1, k))
    )
    return 0.7 * common + 0.3 * own + 1e-12


def series(y: Any, rng: Any, memory: Any) -> Any:
    X = rng.normal(size=(len(y), 40))
    for t in range(1, 40):
        X[:, t] += memory[y] * X[:, t - 1]
    return X


def pairs(y: Any, rng: Any, rho: Any) -> Any:
    """Three pairs of log-normal features, correlated by class."""
    Z = rng.normal(size=(len(y), 3, 2))
    Z[..., 1] = rho[y][:, None] * Z[..., 0] + np.sqrt(1 - rho[y] ** 2)[:, None] * Z[..., 1]
    return np.exp(1.2 * Z).reshape(len(y), 6)


def pair_densities(X: Any, rho: Any) -> Any:
    u, v = np.log(X.reshape(len(X), 3, 2, 1)).transpose(2, 0, 1, 3) / 1.2
    return (-0.5 * np.square(v - rho * u) / (1 - rho**2) - 0.5 * np.log(1 - rho**2)).sum(axis=1)


def t_classes(A: Any, means: Any) -> Kind:
    """Multivariate t with three degrees of freedom, each class with its own scale matrix."""
    classes = [
        stats.multivariate_t(mean, own @ own.T, df=3) for mean, own in zip(means, A, strict=True)
    ]

    def draw(y: Any, rng: Any) -> Any:
        z = rng.normal(size=(len(y), means.shape[1])) / np.sqrt(
            rng.chisquare(3, size=(len(y), 1)) / 3
        )
        return means[y] + np.einsum("nij,nj->ni", A[y], z)

    return of_classes(
        draw, lambda X: np.stack([c.logpdf(X) for c in classes], axis=1), even(len(means))
    )


def mixtures(centres: Any, sd: float) -> Kind:
    """Several Gaussians per class, (classes, Gaussians, features)."""
    k, parts, d = centres.shape
    return of_classes(
        lambda y, rng: (
            centres[y, rng.integers(0, parts, len(y))] + sd * rng.normal(size=(len(y), d))
        ),
        lambda X: logsumexp(
            -np.square(X[:, None, None] - centres).sum(axis=3) / (2 * sd**2), axis=2
        ),
        even(k),
    )


def independent(family: Callable[..., Any], *parameters: Any) -> Kind:
    """Features that are independent within a class, of one of scipy's families; parameters are (classes, features)."""
    k = len(parameters[0])
    log = family(*parameters).logpmf if hasattr(family, "logpmf") else family(*parameters).logpdf
    return of_classes(
        lambda y, rng: np.asarray(
            family(*(own[y] for own in parameters)).rvs(random_state=rng), dtype=float
        ),
        lambda X: log(X[:, None]).sum(axis=2),
        even(k),
    )


def words(shares: Any, length: float) -> Kind:
    """Counts of words in texts of different lengths."""
    return of_classes(
        lambda y, rng: (
            rng.multinomial(
                rng.poisson(length, len(y)) + 3, shares[y] / shares[y].sum(axis=1)[:, None]
            )
            * 1.0
        ),
        lambda X: X @ np.log(shares / shares.sum(axis=1)[:, None]).T,
        even(len(shares)),
    )


MEANS = np.pad(0.5 * fixed(1, 3, 30), ((0, 0), (0, 270)))
CELLS, TURN, PROTOTYPES = (
    1.5 * fixed(11, 6, 6, 6, 3),
    np.linalg.qr(fixed(14, 6, 6))[0],
    fixed(19, 150, 6),
)
MEMORY, RHO = np.array([0.1, 0.35, 0.6]), np.array([-0.6, 0.0, 0.6])
HALVES = 0.5 ** np.arange(6) / (0.5 ** np.arange(6)).sum()
KINDS: dict[str, Kind] = {
    "5 of 200 columns": of_logits(normal(200), lambda X: X[:, :5] @ [2, -2, 1.5, 1.5, -1]),
    "4 of 300 columns, four classes": of_logits(
        normal(300), lambda X: 2 * X[:, :4] @ fixed(2, 4, 4)
    ),
    "200 columns, all of them": of_logits(normal(200), lambda X: 0.17 * X @ fixed(23, 200, 3)),
    "30 of 300 means": shifted(MEANS, even(3)),
    "a rare class": of_logits(
        normal(8), lambda X: 1.2 * X[:, 0] + 1.5 * np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] - 4.5
    ),
    "unequal shares": shifted(1.1 * fixed(15, 6, 6), HALVES),
    "Cauchy columns": of_logits(
        lambda n, rng: rng.standard_t(1, (n, 8)), lambda X: 1.2 * np.arctan(X) @ fixed(8, 8, 3)
    ),
    "parity of three signs": of_logits(normal(6), lambda X: 3 * np.sign(X[:, :3].prod(axis=1))),
    "board of 16 fields in noise": of_logits(
        uniform(5), lambda X: 3 * (-1.0) ** np.floor(X[:, :2] + 2).sum(axis=1)
    ),
    "sine of a product": of_logits(normal(6), lambda X: 3 * np.sin(3 * X[:, 0] * X[:, 1])),
    "product or product or product": of_logits(
        lambda n, rng: rng.integers(0, 2, (n, 15)).astype(float),
        lambda X: 6 * (X[:, :6:2] * X[:, 1:6:2]).any(axis=1) - 3,
    ),
    "largest of pairs": of_logits(normal(10), lambda X: 3 * np.maximum(X[:, ::2], X[:, 1::2])),
    "near a diagonal": of_logits(uniform(6), lambda X: 6 * (np.abs(X[:, 0] - X[:, 1]) < 0.7) - 3),
    "turned boxes": of_logits(
        normal(6),
        lambda X: (
            5 * ((X @ TURN)[:, 0] > 0) * ((X @ TURN)[:, 1] > -0.5)
            - 3 * ((X @ TURN)[:, 2] > 0.3)
            - 1
        ),
    ),
    "150 prototypes": of_logits(
        normal(6),
        lambda X: 3 * np.eye(3)[np.square(X[:, None] - PROTOTYPES).sum(axis=2).argmin(axis=1) % 3],
    ),
    "five categories": of_logits(codes(12, 5), lambda X: X @ fixed(10, 60, 3)),
    "a table of three categories": of_logits(
        codes(6, 3), lambda X: CELLS[tuple(X.reshape(-1, 3, 6).argmax(axis=2).T)]
    ),
    "nothing to learn": of_logits(normal(20), lambda X: np.tile([1, 0.5, 0, -0.5], (len(X), 1))),
    "no noise": of_logits(normal(5), lambda X: 200 * X @ fixed(13, 5)),
    "ten ordered classes": ordered(
        normal(12), lambda X: X @ fixed(22, 12), np.linspace(-5, 5, 9), 1.2
    ),
    "a regression, cut": ordered(
        uniform(10),
        lambda X: 10 * np.sin(X[:, 0] * X[:, 1]) + 5 * X[:, 2] ** 2 + 3 * X[:, 3],
        np.array([-2.0, 4.0, 10.0, 16.0]),
        2.0,
    ),
    "words": words(topics(250, 4), 15),
    "counts and exposure": of_classes(
        lambda y, rng: rng.poisson(
            25 * np.exp(rng.normal(size=(len(y), 1))) * topics(10, 4)[y]
        ).astype(float),
        lambda X: X @ np.log(topics(10, 4)).T,
        even(4),
    ),
    "presence of 200 words": independent(
        stats.bernoulli, 1 / (1 + np.exp(1.5 - fixed(16, 200) - 0.5 * fixed(17, 3, 200)))
    ),
    "mixtures": mixtures(1.4 * fixed(9, 4, 3, 6), 0.8),
    "series with memory": of_classes(
        lambda y, rng: series(y, rng, MEMORY),
        lambda X: np.stack(
            [-0.5 * np.square(X[:, 1:] - m * X[:, :-1]).sum(axis=1) for m in MEMORY], axis=1
        ),
        even(3),
    ),
    "correlations only": of_classes(
        lambda y, rng: pairs(y, rng, RHO), lambda X: pair_densities(X, RHO), even(3)
    ),
    "scales only": independent(
        stats.norm, np.zeros((3, 15)), np.repeat([[1.0], [1.25], [1.6]], 15, axis=1)
    ),
    "t classes": t_classes(0.5 * fixed(21, 3, 5, 5) + np.eye(5), fixed(22, 3, 5)),
    "Laplace": independent(stats.laplace, 0.7 * fixed(12, 4, 10)),
    "exponential": independent(
        stats.gamma, np.ones((4, 8)), np.zeros((4, 8)), np.exp(0.35 * fixed(26, 4, 8))
    ),
    "beta": independent(
        stats.beta, np.exp(0.5 * fixed(27, 3, 6) + 0.3), np.exp(0.5 * fixed(28, 3, 6) + 0.3)
    ),
    "angles": independent(
        stats.vonmises, np.full((3, 3), 1.5), np.array([[0, 1, 0], [1.5, 2.5, -1.5], [3, 4, -3]])
    ),
}


def measure(problem: str, rows: int, seed: int) -> dict[str, Any]:
    """Brier scores of ours and of the stock classifiers on fresh rows, and the range beside the truth."""
    sample = KINDS[problem]
    X, y, _ = sample(rows, np.random.default_rng(seed))
    fresh, labels, P = sample(TEST_ROWS, np.random.default_rng(1_000 + seed))
    _, _, truth = sample(TRUTH_ROWS, np.random.default_rng(5))
    ours = CollisionClassifier(random_state=seed, device="cpu").fit(X, y)
    assert ours.limit_ is not None
    shown = np.eye(P.shape[1])[labels]
    found = {"pool": ours.predict_proba(fresh)}
    stock = real.RIVALS | ({"naive-bayes-counts": MultinomialNB} if (X >= 0).all() else {})
    for name, make in stock.items():
        model = make().fit(X, y)
        found[name] = np.zeros_like(P)
        found[name][:, model.classes_] = model.predict_proba(fresh)
    low, high = ours.limit_.pber_interval(LEVEL)
    errors = ours.limit_.bayes_error_interval(LEVEL)
    return {
        "columns": X.shape[1],
        "classes": P.shape[1],
        "brier": {
            name: float(np.square(Q - shown).sum(axis=1).mean()) for name, Q in found.items()
        },
        "truth": float(1 - np.square(truth).sum(axis=1).mean()),
        "range": [low, high],
        "bayes_error": float(1 - truth.max(axis=1).mean()),
        "bayes_range": list(errors),
        "state": ours.limit_.state,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--problems", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    cells = [
        {"problem": p, "rows": args.rows, "seed": seed}
        for seed in range(args.seeds)
        for p in args.problems
    ]
    config = {"level": LEVEL, "test_rows": TEST_ROWS, "truth_rows": TRUTH_ROWS}
    for run in _record.resume("made_up", config, cells, measure, args.jobs):
        stock = {name: score for name, score in run["brier"].items() if name != "pool"}
        best = min(stock, key=lambda name: stock[name])
        ratio, (low, high) = run["brier"]["pool"] / stock[best], run["range"]
        held = "holds" if low <= run["truth"] <= high else "MISSES"
        said = f"{run['brier']['pool']:.4f} {stock[best]:.4f} {best:22s} {ratio:.3f}"
        print(
            f"{run['problem']:32s} {run['rows']:5d} {said} PBER {run['truth']:.3f}, {low:.3f} to {high:.3f} {held}"
        )


if __name__ == "__main__":
    main()
