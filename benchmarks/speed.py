"""Pair-wise against factorised: time of fit and scoring with the same network, and scoring beside the matrix product.

python -m benchmarks.speed [--part scoring]
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch

from benchmarks._record import best_of, save
from collidescope import CollisionClassifier, Pairwise
from collidescope.datasets import scenario_a
from collidescope.pairwise.scoring import PairwiseNetwork, class_similarity
from collidescope.training.networks import mlp

DEPTH = (128,) * 6  # the paper's architecture
#: Rows and epochs at which the two models are compared: pairs grow with the square of the rows, training does not.
SIZES = ((1250, 1), (1250, 20), (5000, 1), (5000, 20))


def models() -> list[dict[str, Any]]:
    """Fit and the posteriors of as many new rows with either model: same network, same epochs."""
    warnings.simplefilter("ignore")
    kinds: dict[str, dict[str, Any]] = {
        "factorised": {"members": ["network"]},
        "pairwise": {"members": [Pairwise()]},
    }
    rows = []
    for n, epochs in SIZES:
        X, y = scenario_a(5).sample(n, 0)
        new, _ = scenario_a(5).sample(n, 1)
        training = {"hidden_layer_sizes": DEPTH, "max_epochs": epochs, "patience": 0}
        seconds = {}
        for name, kind in kinds.items():
            clf = CollisionClassifier(
                **kind, training=training, limit=False, device="cpu", random_state=0
            )
            start = time.perf_counter()
            clf.fit(X, y).predict_proba(new)
            seconds[name] = time.perf_counter() - start
        rows.append(
            {
                "rows": n,
                "epochs": epochs,
                **seconds,
                "ratio": seconds["pairwise"] / seconds["factorised"],
            }
        )
        print(rows[-1], flush=True)
    return rows


def scoring() -> list[dict[str, Any]]:
    """Pair-wise scoring as a share of the matrix-multiply rate measured beside it, per network."""
    out = []
    torch.manual_seed(0)
    for sizes in (DEPTH, (128, 128), (256, 256)):
        module = PairwiseNetwork(mlp(40, 1, sizes)).eval()
        X = torch.randn(800, 20)
        y = torch.arange(800) % 5
        flops = 2 * sum(a * b for a, b in zip(sizes, [*sizes[1:], 1], strict=True)) * 2 * 800 * 800
        square = torch.randn(1536, 1536)
        rates = {"large": 0.0, "scoring": 0.0}
        for _ in range(5):
            rates["large"] = max(rates["large"], 2 * 1536**3 / best_of(lambda s=square: s @ s, 1))
            seconds = best_of(
                lambda m=module, X=X, y=y: class_similarity(m, X, X, y, 5, torch.arange(len(X))), 1
            )
            rates["scoring"] = max(rates["scoring"], flops / seconds)
        share = rates["scoring"] / rates["large"]
        print(
            f"{sizes}: {rates['scoring'] / 1e9:.0f} GFLOP/s, {share:.0%} of {rates['large'] / 1e9:.0f} (1536³ product)"
        )
        out.append(
            {
                "hidden_layer_sizes": list(sizes),
                **{k: v / 1e9 for k, v in rates.items()},
                "share": share,
            }
        )
    return out


PARTS = {"models": models, "scoring": scoring}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.part or PARTS:
        print(f"-- {name}")
        save(f"speed-{name}", {"threads": options.threads}, PARTS[name]())


if __name__ == "__main__":
    main()
