"""Does the range with unlimited rows hold the truth, and is S∞ nearer to S than S(n)?

Sixteen problems whose S is known, most of them outside the families of the models, and twelve more (``--fresh``) on
which no prior of the range was chosen. ``python -m benchmarks.limit --engine full`` fits CollisionClassifier;
``--engine fast`` a small pool of scikit-learn's models. Runs that are in
``results/limit.json`` are not repeated; ``--report`` prints the tables alone, from the recorded curves.

``--tune`` is how the priors of :mod:`collidescope.limit` were found: of the candidates, those under which the true PBER
has the highest density on runs with even seeds, among those that cover 94% of them; odd seeds are for the check.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from benchmarks import _record
from collidescope import limit as limits
from collidescope.limit import Limit, limit_from_posteriors
from collidescope.matrix import CollisionMatrix
from collidescope.onestep import CollisionAccumulator
from studies import known as datasets

PROBLEMS: dict[str, Callable[[], datasets.Problem]] = {
    "Scenario A5": lambda: datasets.scenario_a(5),
    "Scenario B(.25)": lambda: datasets.scenario_b(0.25),
    "ring": datasets.ring,
    "tangled": datasets.tangled,
    "LED": datasets.led,
    "twonorm": datasets.twonorm,
    "ringnorm": datasets.ringnorm,
    "waveform": datasets.waveform,
    "MLP teacher": datasets.mlp_teacher,
    "tree teacher": datasets.tree_teacher,
    "noisy chessboard": datasets.chessboard,
    "Friedman-like": datasets.friedman,
    "sparse words": datasets.sparse_words,
    "heavy-tailed": datasets.heavy_tailed,
    "spiral": datasets.spiral,
    "interactions": datasets.interactions,
}


def posteriors_of(logits: Any) -> Any:
    """The softmax of logits, one row each; of one column, or flat, they are the log odds of two classes."""
    z = np.reshape(logits, (len(logits), -1))
    return softmax(np.hstack([z, np.zeros((len(z), 1))]) if z.shape[1] == 1 else z, axis=1)


def of_logits(
    inputs: Callable[[int, Any], Any], logits: Callable[[Any], Any]
) -> Callable[[], datasets.Problem]:
    """Labels drawn from the softmax of the logits."""
    return lambda: datasets.taught(inputs, lambda X: posteriors_of(logits(X)))


def normal(d: int) -> Callable[[int, Any], Any]:
    return lambda n, rng: rng.normal(size=(n, d))


def uniform(d: int) -> Callable[[int, Any], Any]:
    return lambda n, rng: rng.uniform(-2, 2, size=(n, d))


def deep(X: Any) -> Any:
    """A network of three random layers."""
    rng, Z = np.random.default_rng(10), X
    for _ in range(3):
        Z = np.tanh(1.6 * Z @ rng.normal(size=(Z.shape[1], 16)) / np.sqrt(Z.shape[1]))
    return 1.2 * Z @ rng.normal(size=(16, 5))


def fixed(seed: int, *shape: int) -> Any:
    """Random coefficients that are the same in every sample."""
    return np.random.default_rng(seed).normal(size=shape)


FRESH: dict[str, Callable[[], datasets.Problem]] = {
    "additive": of_logits(
        uniform(6),
        lambda X: (
            2 * np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 2.8 + 1.5 * np.abs(X[:, 2]) + (X[:, 3] > 0)
        ),
    ),
    "sine": of_logits(uniform(1), lambda X: 3 * np.sin(6 * X)),
    "log-normal": of_logits(
        lambda n, rng: np.exp(1.5 * rng.normal(size=(n, 8))),
        lambda X: 0.6 * np.log(X) @ fixed(4, 8, 3),
    ),
    "ratios": of_logits(
        lambda n, rng: np.exp(rng.normal(size=(n, 5))),
        lambda X: 2 * np.log(X[:, 0] / X[:, 1]) + 2 * np.log(X[:, 2] + X[:, 3]),
    ),
    "hinges": of_logits(
        normal(10),
        lambda X: 0.8 * np.maximum(X @ fixed(6, 10, 12) + fixed(7, 12), 0) @ fixed(8, 12, 4),
    ),
    "single index": of_logits(
        normal(15), lambda X: 3 * np.sin(2.5 * X @ fixed(9, 15) / np.sqrt(15))
    ),
    "steps": of_logits(
        uniform(5),
        lambda X: (
            2 * (X[:, 0] > -0.8) - 3 * (X[:, 0] > 0.8) + 1.5 * (X[:, 1] > 0) - 2 * (X[:, 2] > -1.2)
        ),
    ),
    "circle in noise": of_logits(normal(20), lambda X: 2 * np.square(X[:, :2]).sum(axis=1) - 4),
    "exclusive or in noise": of_logits(normal(12), lambda X: 3 * np.sign(X[:, 0] * X[:, 1])),
    "categories": of_logits(
        lambda n, rng: rng.integers(0, 8, size=(n, 6)).astype(float),
        lambda X: sum(fixed(column, 8, 3)[X[:, column].astype(int)] for column in range(6)),
    ),
    "deep network": of_logits(normal(12), deep),
    "bumps": of_logits(
        uniform(3),
        lambda X: (
            4
            * np.exp(-np.square(X[:, None] - fixed(11, 20, 3)).sum(axis=2) / 0.6)
            @ fixed(12, 20, 3)
        ),
    ),
}
#: Nothing can be learned before most fields are seen, and until then the curve is flat: no method can tell.
UNDETECTABLE = ("noisy chessboard",)
ROWS = (1000, 3000)
FRACTIONS = (1 / 8, 1 / 4, 1 / 2, 1.0)
FOLDS = 5
LEVEL = 0.95


def fast_posteriors(X: Any, y: Any, seed: int) -> tuple[list[Any], Any, list[float]]:
    """(posteriors at every size, fold of every row, sizes): nested training rows inside outer folds."""
    from sklearn.model_selection import StratifiedKFold

    rng = np.random.default_rng(seed)
    k, folds = int(y.max()) + 1, np.empty(len(y), dtype=int)
    P = np.empty((len(FRACTIONS), len(y), k))
    for fold, (train, test) in enumerate(
        StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y)
    ):
        folds[test] = fold
        train = rng.permutation(train)
        for t, fraction in enumerate(FRACTIONS):
            P[t, test] = fast_pool(X, y, train[: round(fraction * len(train))], test, k, seed)
    return list(P), folds, [fraction * len(y) * (1 - 1 / FOLDS) for fraction in FRACTIONS]


def fast_pool(X: Any, y: Any, train: Any, test: Any, k: int, seed: int) -> Any:
    """Posteriors of ``test``: members pooled geometrically, weighted by their log loss on a fifth of ``train``."""
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import RobustScaler

    centred = RobustScaler().fit(X[train])
    Z = np.clip(centred.transform(X), -6, 6)
    cut = max(len(train) // 5, 1)
    own, validation = train[cut:], train[:cut]
    members = [
        DummyClassifier(),
        LogisticRegression(C=0.3, max_iter=200),
        QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1),
        KNeighborsClassifier(max(int(np.sqrt(len(own))) // 2, 3)),
        ExtraTreesClassifier(40, min_samples_leaf=3, max_features=0.3, random_state=seed),
        HistGradientBoostingClassifier(
            max_iter=25, learning_rate=0.2, max_leaf_nodes=8, random_state=seed
        ),
    ]
    logs, losses = [], []
    for member in members:
        try:
            member.fit(Z[own], y[own])
        except (ValueError, np.linalg.LinAlgError):
            continue  # too few rows of a class for it
        both = np.full((cut + len(test), k), 1e-3)
        both[:, member.classes_] += member.predict_proba(Z[np.concatenate([validation, test])])
        log = np.log(both / both.sum(axis=1, keepdims=True))
        losses.append(-log[np.arange(cut), y[validation]].sum())
        logs.append(log[cut:])
    weights = np.exp(-(np.array(losses) - min(losses)) / 2)
    pooled = np.exp(np.tensordot(weights / weights.sum(), np.array(logs), 1))
    return pooled / pooled.sum(axis=1, keepdims=True)


def fast(X: Any, y: Any, seed: int) -> tuple[Limit, CollisionMatrix]:
    posteriors, folds, sizes = fast_posteriors(X, y, seed)
    now = CollisionAccumulator(np.arange(posteriors[0].shape[1])).update(posteriors[-1], y).result()
    return limit_from_posteriors(posteriors, y, sizes, folds=folds), now


def full(X: Any, y: Any, seed: int) -> tuple[Limit, CollisionMatrix]:
    from collidescope import CollisionClassifier

    clf = CollisionClassifier(random_state=seed).fit(X, y)
    return clf.limit_, clf.collision_matrix_


ENGINES = {"fast": fast, "full": full}


def mean_tvd(S: Any, truth: Any) -> float:
    return float(np.abs(S - truth).sum(axis=1).mean() / 2)


def covered(cm: CollisionMatrix, truth: CollisionMatrix) -> float:
    low, high = cm.interval(LEVEL)  # type: ignore[misc]
    return float(((low <= truth.matrix) & (truth.matrix <= high)).mean())


def judged(limit: Limit, now: CollisionMatrix, problem: datasets.Problem) -> dict[str, Any]:
    """One run against the truth."""
    truth = problem.collision_matrix()
    plain, best = now.pber_interval(LEVEL), limit.bayes_error_interval(LEVEL)
    assert plain is not None
    assert limit.matrix is not None
    low, high = limit.pber_interval(LEVEL)
    return {
        "truth": truth.pber,
        "pber": now.pber,
        "limit": limit.pber,
        "low": low,
        "high": high,
        "plain": list(plain),
        "state": limit.state,
        "reason": limit.reason,
        "bayes_error": problem.bayes_error(),
        "bayes_low": best[0],
        "bayes_high": best[1],
        "tvd_now": mean_tvd(now.matrix, truth.matrix),
        "tvd_limit": mean_tvd(limit.matrix.matrix, truth.matrix),
        "entries_now": covered(now, truth),
        "entries_limit": covered(limit.matrix, truth),
        "curve": limit.to_dict() | {"matrix": None},
    }


def measure(engine: str, problem: str, rows: int, seed: int) -> dict[str, Any]:
    known = (PROBLEMS | FRESH)[problem]()
    X, y = known.sample(rows, seed, stratified=False)
    return judged(*ENGINES[engine](X, y, seed), known)


def again(run: dict[str, Any]) -> dict[str, Any]:
    """A recorded run with what its curve says now; S∞ stays as it was recorded, for the posteriors were not kept."""
    limit = Limit.from_dict(run["curve"])
    (low, high), (bayes_low, bayes_high) = (
        limit.pber_interval(LEVEL),
        limit.bayes_error_interval(LEVEL),
    )
    ends = {"low": low, "high": high, "bayes_low": bayes_low, "bayes_high": bayes_high}
    return run | ends | {"limit": limit.pber, "state": limit.state}


def doubled(run: dict[str, Any]) -> dict[str, Any]:
    """What a recorded curve without its last size says about that size, twice the rows, and what was found there."""
    whole = Limit.from_dict(run["curve"])
    left: dict[str, Any] = {"sizes": whole.sizes[:-1], "scores": whole.scores[:-1]}
    left |= {
        "covariance": whole.covariance[:-1, :-1],
        "errors": None,
        "error_covariance": None,
        "matrix": None,
    }
    known = replace(whole, **left)
    low, said, high = (float(end[0]) for end in known.continuation([whole.sizes[-1]], LEVEL))
    before, found = (float(score) for score in whole.scores[-2:])
    falls = {
        "before": before,
        "fall": before - found,
        "said": before - said,
        "inside": low <= found <= high,
    }
    return {"problem": run["problem"], "state": known.state} | falls


def tables(runs: list[dict[str, Any]]) -> None:
    """One line per problem, and what is asked of all; ranges are those of the recorded curves as the priors are now."""
    frame = pd.DataFrame([again(r) for r in runs])
    frame["covers"] = (frame.low <= frame.truth) & (frame.truth <= frame.high)
    frame["plain covers"] = [
        a <= t <= b for (a, b), t in zip(frame.plain, frame.truth, strict=True)
    ]
    frame["width"] = (frame.high - frame.low) / frame.pber
    frame["wider"] = (frame.high - frame.low) / [b - a for a, b in frame.plain]
    frame["bayes covers"] = (frame.bayes_low <= frame.bayes_error) & (
        frame.bayes_error <= frame.bayes_high
    )
    for state in ("settled", "hardly begun"):
        frame[state] = frame.state == state
    columns = [
        "truth",
        "pber",
        "limit",
        "low",
        "high",
        "plain covers",
        "covers",
        "width",
        "settled",
        "hardly begun",
    ]
    columns += ["tvd_now", "tvd_limit", "entries_now", "entries_limit", "bayes covers"]
    by = frame.groupby(["problem", "rows"], sort=False)[columns].mean()
    by["tvd ratio"] = by.tvd_limit / by.tvd_now
    print(by.round(3).to_string())
    detectable = frame[~frame.problem.isin(UNDETECTABLE)]
    settled = detectable[detectable.settled]
    tvd = frame.groupby("problem")[["tvd_now", "tvd_limit"]].mean()
    ratio = tvd.tvd_limit / tvd.tvd_now
    facts = {
        "runs": len(frame),
        "PBER covered by the plain interval": frame["plain covers"].mean(),
        "PBER covered by the range": frame.covers.mean(),
        f"the same without {', '.join(UNDETECTABLE)}": detectable.covers.mean(),
        "the same on the worst problem": detectable.groupby("problem").covers.mean().min(),
        f"hardly begun on {', '.join(UNDETECTABLE)}": frame[frame.problem.isin(UNDETECTABLE)][
            "hardly begun"
        ].mean(),
        "width / PBER(n)": frame.width.mean(),
        "Bayes error covered": frame["bayes covers"].mean(),
        "settled runs": len(settled),
        "their range / plain interval, at most": settled.wider.max(),
        "problems where S∞ is no worse than S(n)": (ratio <= 1).mean(),
        "largest TVD of S∞ / TVD of S(n)": ratio.max(),
        "entries of S covered by S(n)": frame.entries_now.mean(),
        "entries of S covered by S∞": frame.entries_limit.mean(),
    }
    print("\n".join(f"{value:8.3f}  {name}" for name, value in facts.items()))


def tune(runs: list[dict[str, Any]]) -> None:
    """Candidates for the priors: log density of the truth, coverage and width, on runs of even and of odd seeds."""
    runs = [r for r in runs if r["problem"] not in UNDETECTABLE]
    rows = []
    candidates = itertools.product((0.4, 0.5, 0.6, 0.7), (0.4, 0.5), (0.75, 1.0), (0.05, 0.1))
    for median, deviation, beta, limits.DISCREPANCY in candidates:
        limits.EXPONENT, limits.SHARE = (median, deviation), (0.5, beta)
        row = {"c": median, "deviation": deviation, "beta": beta, "discrepancy": limits.DISCREPANCY}
        for half, odd in (("even", 0), ("odd", 1)):
            found = np.array([_density_and_range(r) for r in runs if r["seed"] % 2 == odd])
            row |= dict(
                zip(
                    (f"log density, {half}", f"covers, {half}", f"width, {half}"),
                    found.mean(axis=0),
                    strict=True,
                )
            )
        rows.append(row)
    frame = pd.DataFrame(rows).sort_values("log density, even", ascending=False)
    print(frame.round(3).to_string(index=False))


def _density_and_range(run: dict[str, Any]) -> tuple[float, bool, float]:
    limit, truth = Limit.from_dict(run["curve"]), run["truth"]
    fit, now = limit._posterior, limit.scores[-1]
    spread = np.hypot(
        fit.deviations, 0.01 * now
    )  # no one needs the PBER nearer than to a hundredth of it
    density = (
        fit.weights
        @ (np.exp(-(((truth - fit.means) / spread) ** 2) / 2) / spread)
        * now
        / np.sqrt(2 * np.pi)
    )
    low, high = limit.pber_interval(LEVEL)
    return float(np.log(max(density, 1e-3))), low <= truth <= high, (high - low) / now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="full")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--problems", nargs="*", choices=PROBLEMS | FRESH)
    parser.add_argument(
        "--fresh", action="store_true", help="problems on which no prior was chosen"
    )
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--again", action="store_true", help="once more where the pool was another")
    parser.add_argument(
        "--report", action="store_true", help="print the tables of what is recorded"
    )
    parser.add_argument("--tune", action="store_true", help="compare priors on what is recorded")
    args = parser.parse_args()
    problems = args.problems or list(FRESH if args.fresh else PROBLEMS)
    cells = [
        {"engine": args.engine, "problem": problem, "rows": rows, "seed": seed}
        for seed in range(args.seeds)
        for rows in sorted(args.rows, reverse=True)
        for problem in problems
    ]
    config = {"level": LEVEL, "folds": FOLDS, "fractions": FRACTIONS}
    only_show = args.report or args.tune
    runs = _record.resume(
        "limit", config, [] if only_show else cells, measure, args.jobs, again=args.again
    )
    order = {name: place for place, name in enumerate(PROBLEMS | FRESH)}
    chosen = [
        r
        for r in runs
        if r["engine"] == args.engine and r["problem"] in problems and r["rows"] in args.rows
    ]
    if args.tune:
        tune(chosen)
        return
    tables(sorted(chosen, key=lambda r: (order[r["problem"]], r["rows"], r["seed"])))


if __name__ == "__main__":
    main()
