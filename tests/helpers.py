"""A zoo of planted problems, whose collision matrices are true by construction, and what else
tests share."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator, ClassifierMixin

from collidescope.equations.densities import draw_classes


def planted_population(
    n_classes, ratio=1.0, sharpness=4.0, seed=0
) -> tuple[np.ndarray, np.ndarray]:
    """(P, weights) of a random finite population: posteriors at random inputs with random weights.

    ``ratio``: prior of the most common class over the rarest, roughly. ``sharpness``: large is
    nearly separable (S ≈ I), small is nearly indistinguishable (S nearly singular).
    """
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(4 * n_classes + 50))
    logits = sharpness * rng.standard_normal((len(weights), n_classes)) + np.log(
        np.geomspace(1, 1 / ratio, n_classes)
    )
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    return P / P.sum(axis=1, keepdims=True), weights


def planted(
    n_classes, ratio=1.0, sharpness=4.0, seed=0
) -> tuple[np.ndarray, np.ndarray]:
    """(S, priors) of :func:`planted_population`."""
    P, weights = planted_population(n_classes, ratio, sharpness, seed)
    B = P.T @ (weights[:, None] * P)
    return B / B.sum(axis=1, keepdims=True), B.sum(axis=1) / B.sum()


def blocks(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Classes indistinguishable within a block and separable across blocks: exactly singular S."""
    S = block_diag(*(np.full((size, size), 1 / size) for size in sizes))
    return S, np.full(len(S), 1 / len(S))


#: name → (S, priors)
ZOO = {
    "identity": (np.eye(4), np.array([0.4, 0.3, 0.2, 0.1])),
    "uniform": (np.full((3, 3), 1 / 3), np.full(3, 1 / 3)),
    "blocks": blocks((2, 3, 1)),
    "two classes": planted(2),
    "two classes 100:1": planted(2, ratio=100, sharpness=1),
    "dominant": planted(5, sharpness=8),
    "not dominant": planted(5, sharpness=0.8),
    "near singular": planted(6, sharpness=0.02),
    "imbalanced": planted(6, ratio=100, sharpness=2),
    "fifty classes": planted(50),
    "fifty classes 100:1": planted(50, ratio=100),
    "two hundred classes": planted(200),
    "two hundred classes 100:1": planted(200, ratio=100),
}


def mean_tvd(S: np.ndarray, truth: np.ndarray) -> float:
    """Mean over rows of the total variation distance."""
    return float(np.abs(S - truth).sum(axis=1).mean() / 2)


def assert_same(one, other, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    """Two matrices agree in all that is estimated."""
    assert one.classes.tolist() == other.classes.tolist()
    for name in (
        "matrix",
        "priors",
        "stderr",
        "counts",
        "covariance",
        "pber_stderr",
        "held_out_error",
        "coverage",
    ):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None and second is None) or np.allclose(
            first, second, rtol=rtol, atol=atol
        ), name


def random_posteriors(
    rng, n: int, k: int, sharpness: float = 1.5
) -> tuple[np.ndarray, np.ndarray]:
    """(P, codes): posteriors at n inputs, every class present, labels drawn from them where
    possible."""
    logits = sharpness * rng.standard_normal((n, k))
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    codes = draw_classes(P, rng)
    codes[:k] = np.arange(k)
    return P, codes


def tempered(P: np.ndarray, power: float) -> np.ndarray:
    """Posteriors of an overconfident model (power > 1), or of an underconfident one."""
    return P**power / (P**power).sum(axis=1, keepdims=True)


def bars(n=120, side=8, seed=0, noise=0.3):
    """(images, codes): a bar of four pixels, upright or lying, anywhere in an image."""
    rng = np.random.default_rng(seed)
    X = noise * rng.normal(size=(n, 1, side, side)).astype(np.float32)
    codes = np.arange(n) % 2
    for image, code in zip(X[:, 0], codes, strict=True):
        place = tuple(rng.integers(0, side - 3, 2))
        upright = (slice(place[0], place[0] + 4), place[1])
        lying = (place[0], slice(place[1], place[1] + 4))
        image[upright if code == 0 else lying] += 2
    return X, codes


class Memoriser(ClassifierMixin, BaseEstimator):
    """Certain of what it saw, uniform elsewhere: betrays any row scored by a model trained on
    it."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.memory_ = {
            row.tobytes(): label for row, label in zip(np.asarray(X), y, strict=True)
        }
        return self

    def predict_proba(self, X):
        out = np.full((len(X), len(self.classes_)), 1 / len(self.classes_))
        for i, row in enumerate(np.asarray(X)):
            if row.tobytes() in self.memory_:
                out[i] = self.classes_ == self.memory_[row.tobytes()]
        return out

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def limit_like(
    cm,
    state: str = "still learning",
    *,
    share: float = 0.6,
    n: int = 1000,
    reason: str = "",
    undecided: bool = False,
):
    """What shows a ``Limit`` reads of one: a curve b + a/√m that ends in ``cm.pber``, with b =
    ``share`` of it."""
    sizes = np.array([n / 8, n / 4, n / 2, n])
    b = share * cm.pber
    curve = pd.DataFrame(
        {
            "rows": sizes,
            "pber": b + (cm.pber - b) * np.sqrt(n / sizes),
            "pber_stderr": 0.01,
        }
    )
    known = state in ("settled", "still learning")
    return SimpleNamespace(
        pber=b,
        pber_interval=lambda level=0.95: (0.5 * b if known else 0.0, 1.1 * cm.pber),
        bayes_error_interval=lambda level=0.95: (0.25 * b, 0.5 * cm.pber),
        matrix=type(cm)(
            (1 - share) * np.eye(cm.n_classes) + share * cm.matrix,
            cm.priors,
            cm.classes,
        ),
        curve=curve,
        continuation=lambda rows, level: [
            part * (b + (cm.pber - b) * np.sqrt(n / np.array(rows)))
            for part in (0.9, 1, 1.1)
        ],
        state=state,
        undecided=undecided,
        reason=reason,
        to_dict=lambda: {"format": "collidescope.limit", "sizes": sizes.tolist()},
    )


def run(command, *more):
    """The command line, in this process; ``more`` are words that hold spaces, and paths."""
    from typer.testing import CliRunner

    from collidescope.cli.app import app

    return CliRunner().invoke(app, [*command.split(), *map(str, more)])


def good(command, *more):
    """The result of a command that succeeds."""
    done = run(command, *more)
    assert done.exit_code == 0, done.stderr
    return done


def bad(command, *more):
    """What is said of a mistake."""
    done = run(command, *more)
    assert done.exit_code == 2
    return done.stderr


def told(command, *more):
    """The answer of a command as JSON."""
    return json.loads(good(f"{command} --json -q", *more).stdout)


def in_python(code, *arguments, **environment):
    """What a fresh interpreter does with the code: it must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done
