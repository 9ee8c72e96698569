"""Speed as ratios measured side by side in one run, and peak memory of large fits in processes of their own.

python -m benchmarks.speed              # everything (about ten minutes on two cores)
python -m benchmarks.speed --part models
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks._record import best_of, save
from collidescope import CollisionClassifier
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.pairwise.networks import PairwiseNetwork
from collidescope.pairwise.scoring import class_similarity
from collidescope.training.config import TrainingConfig
from collidescope.training.loop import epoch_generator, make_optimizer, run_epoch
from collidescope.training.networks import mlp
from collidescope.training.objectives import FactorisedObjective, PairwiseObjective

DEPTH = (128,) * 6  # the paper's architecture


#: Rows and epochs at which the two models are compared: pairs grow with the square of the rows, training does not.
SIZES = ((1250, 1), (1250, 5), (1250, 20), (1250, 100), (5000, 1), (5000, 5), (5000, 20))
#: Rows × epochs up to which a fit is so short that it is repeated.
SHORT = 6_250


def models() -> list[dict[str, Any]]:
    """Fit + score (S, and the posteriors of as many new rows) with either model: same network, same epochs."""
    warnings.simplefilter("ignore")
    for model in ("factorised", "pairwise"):  # what is imported and compiled once is not part of a fit
        clf = CollisionClassifier(model, hidden_layer_sizes=(8,), max_epochs=1, device="cpu", random_state=0)
        clf.fit(*scenario_a(5).sample(1250, 0))
    rows = []
    for n, count in SIZES:
        X, y = scenario_a(5).sample(n, 0)
        new, _ = scenario_a(5).sample(n, 1)
        repeats = 5 if n * count <= SHORT else 1
        times: dict[str, float] = {}
        for _ in range(repeats):  # in turns, so that a slow moment of the machine meets both alike; the fastest counts
            for model in ("factorised", "pairwise"):
                clf = CollisionClassifier(
                    model, hidden_layer_sizes=DEPTH, max_epochs=count, patience=0, device="cpu", random_state=0
                )
                start = time.perf_counter()
                clf.fit(X, y)
                fit = time.perf_counter() - start
                clf.predict_proba(new)
                whole = time.perf_counter() - start
                times[f"{model}_fit"] = min(fit, times.get(f"{model}_fit", fit))
                times[model] = min(whole, times.get(model, whole))
        ratio = times["pairwise"] / times["factorised"]
        rows.append({"rows": n, "epochs": count, "repeats": repeats, **times, "ratio": ratio})
        print(f"{n} rows, {count} epochs: {times['factorised']:.2f} s, {times['pairwise']:.1f} s, ratio {ratio:.1f}")
    return rows


class Stack(nn.Module):
    """A plain classifier as the training loop wants it: (1, B, d) → (1, B, K)."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x[0])[None]


def epochs() -> list[dict[str, Any]]:
    """Time of one epoch of either model (and of the pair loss) against a plain classifier's, interleaved."""
    out = []
    for n in (1250, 20_000):
        X, y = scenario_a(5).sample(n, 0)
        Xt, yt = torch.from_numpy(X.astype(np.float32)), torch.from_numpy(y)
        everything = torch.arange(n)
        batch = TrainingConfig().batch_for(n)
        plain = mlp(4, 5, DEPTH)
        adam = torch.optim.AdamW(plain.parameters(), lr=1e-3, fused=True)

        def plain_epoch(Xt=Xt, yt=yt, n=n, batch=batch, plain=plain, adam=adam) -> None:
            order = torch.randperm(n)
            for start in range(0, n, batch):
                rows = order[start : start + batch]
                adam.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(plain(Xt[rows]), yt[rows]).backward()
                adam.step()

        calls = {"plain classifier": plain_epoch}
        for name in ("cross-entropy", "pair", "both", "pairwise"):
            pairwise = name == "pairwise"
            config = TrainingConfig(model="pairwise" if pairwise else "factorised", loss="pair" if pairwise else name)
            split = (everything, everything[:64])
            if pairwise:
                module: nn.Module = PairwiseNetwork(4, DEPTH)
                objective: Any = PairwiseObjective(Xt, yt, split, config, 0)
            else:
                module = Stack(mlp(4, 5, DEPTH))
                objective = FactorisedObjective(Xt, yt, 5, [split], config)
            optimizer = make_optimizer(module, config)
            calls[name] = lambda m=module, o=objective, opt=optimizer: run_epoch(m, o, opt, epoch_generator(0, 1))
        best = dict.fromkeys(calls, np.inf)
        for _ in range(7):  # interleaved, so that a slow moment of the machine meets every call alike
            for name, call in calls.items():
                best[name] = min(best[name], best_of(call, 1))
        row = {"rows": n, "seconds": best, "ratio": {k: v / best["plain classifier"] for k, v in best.items()}}
        print(n, {k: round(v, 2) for k, v in row["ratio"].items()})
        out.append(row)
    return out


def scoring() -> list[dict[str, Any]]:
    """Pair-wise scoring as a share of the matrix-multiply rate measured beside it, per network."""
    out = []
    torch.manual_seed(0)
    for sizes in (DEPTH, (128, 128), (256, 256)):
        module = PairwiseNetwork(20, sizes).eval()
        X = torch.randn(800, 20)
        y = torch.arange(800) % 5
        widths = list(sizes)
        flops = 2 * sum(a * b for a, b in zip(widths, [*widths[1:], 1], strict=True)) * 2 * 800 * 800
        A, B = torch.randn(4096, widths[0]), torch.randn(widths[0], widths[0])
        square = torch.randn(1536, 1536)
        rates = {"large": 0.0, "shaped": 0.0, "scoring": 0.0}
        for _ in range(5):
            rates["large"] = max(rates["large"], 2 * 1536**3 / best_of(lambda s=square: s @ s, 1))
            rates["shaped"] = max(rates["shaped"], 2 * 4096 * widths[0] ** 2 / best_of(lambda A=A, B=B: A @ B, 20))
            seconds = best_of(lambda m=module, X=X, y=y: class_similarity(m, X, X, y, 5, exclude_self=True), 1)
            rates["scoring"] = max(rates["scoring"], flops / seconds)
        share = rates["scoring"] / rates["large"]
        print(
            f"{sizes}: {rates['scoring'] / 1e9:.0f} GFLOP/s, {share:.0%} of {rates['large'] / 1e9:.0f} (1536³ product)"
        )
        out.append({"hidden_layer_sizes": list(sizes), **{k: v / 1e9 for k, v in rates.items()}, "share": share})
    return out


def large(case: str) -> dict[str, Any]:
    """One large fit in this process: time and peak memory."""
    warnings.simplefilter("ignore")
    n, d, k = {
        "rows": (200_000, 20, 10),
        "K250": (100_000, 64, 250),
        "K500": (100_000, 64, 500),
        "K1000": (100_000, 64, 1000),
    }[case]
    rng = np.random.default_rng(0)
    problem = GaussianProblem(rng.standard_normal((k, d)) * (0.6 if k > 10 else 0.8))
    X, y = problem.sample(n, 1)
    X = X.astype(np.float32)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings: dict[str, Any] = {"cv": 2, "max_epochs": 3, "device": "cpu", "random_state": 0}
    if k > 10:
        settings["hidden_layer_sizes"] = (128,)
    start = time.perf_counter()
    clf = CollisionClassifier(**settings).fit(X, y)
    fit = time.perf_counter() - start
    start = time.perf_counter()
    accuracy = clf.score(X[:5000], y[:5000])
    predict = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = {
        "case": case,
        "rows": n,
        "features": d,
        "classes": k,
        "settings": settings,
        "fit_s": fit,
        "predict_5000_s": predict,
    }
    row |= {
        "peak_gb": peak / 2**20,
        "before_fit_gb": base / 2**20,
        "accuracy": accuracy,
        "pber": clf.collision_matrix_.pber,
    }
    return row | {"recovery": clf.recovery_.status, "info": dict(clf.collision_matrix_.info)}


def memory() -> list[dict[str, Any]]:
    out = []
    for case in ("rows", "K250", "K500", "K1000"):
        code = f"import json; from benchmarks.speed import large; print(json.dumps(large({case!r})))"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1]
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        row = json.loads(done.stdout.splitlines()[-1])
        print(f"{case}: fit {row['fit_s']:.0f} s, peak {row['peak_gb']:.2f} GB, {row['recovery'][:70]}")
        out.append(row)
    return out


PARTS = {"models": models, "epochs": epochs, "scoring": scoring, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.part or PARTS:
        print(f"-- {name}")
        save(f"speed-{name}", {"threads": options.threads}, PARTS[name]())


if __name__ == "__main__":
    main()
