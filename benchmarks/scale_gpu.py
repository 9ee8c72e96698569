"""What a GPU brings: S of full MNIST end to end, scoring against the encoder's forward pass, pairs against products.

COLLIDESCOPE_DATA=… python -m benchmarks.scale_gpu              all parts
COLLIDESCOPE_DATA=… python -m benchmarks.scale_gpu --part pairs
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks._record import save
from collidescope import CollisionClassifier, CollisionMatrix
from collidescope.datasets import GaussianProblem, scenario_a
from collidescope.learners import bridge
from collidescope.pairwise.networks import PairwiseNetwork
from collidescope.pairwise.scoring import class_similarity
from collidescope.training import rows
from collidescope.training.networks import Bfloat16
from experiments.mnist_networks import conv_encoder
from experiments.real_data import load_mnist

MNIST = {"cv": 5, "max_epochs": 12, "patience": 4, "batch_size": 512, "learning_rate": 2e-3, "random_state": 0}
ENCODER: dict[str, Any] = {"width": 32, "dropout": 0.3, "jitter": True}
VARIANTS: dict[str, dict[str, bool]] = {"float32": {}, "bfloat16": {"low": True}, "compiled": {"compiled": True}}
VARIANTS["both"] = VARIANTS["bfloat16"] | VARIANTS["compiled"]


def encoder(d: int, k: int, *, low: bool = False, compiled: bool = False, width: int = 32) -> nn.Module:
    """The convolutional encoder, in bfloat16 or compiled where asked."""
    body: nn.Module = conv_encoder(d, k, width, ENCODER["dropout"], ENCODER["jitter"])
    body = torch.compile(body) if compiled else body  # type: ignore[assignment]
    return Bfloat16(body) if low else body


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Add the time that calls of ``bridge.name`` take."""
    original = getattr(bridge, name)

    def call(*arguments: Any) -> Any:
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = original(*arguments)
        torch.cuda.synchronize()
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
        return result

    setattr(bridge, name, call)
    try:
        yield
    finally:
        setattr(bridge, name, original)


def best(call: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the fastest of several calls, on the GPU."""
    fastest = np.inf
    for _ in range(times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        fastest = min(fastest, time.perf_counter() - start)
    return float(fastest)


def apart(cm: CollisionMatrix, other: CollisionMatrix) -> float:
    """The largest difference of an entry in standard errors, those of the interval (which count an unseen row)."""
    low, high = cm.interval() or (cm.matrix, cm.matrix)
    half = np.maximum(high - cm.matrix, cm.matrix - low)  # the interval is cut at 0 and 1
    return float((1.96 * np.abs(cm.matrix - other.matrix) / half).max())


def mnist() -> list[dict[str, Any]]:
    """Cross-fitted S of all 60,000 images: time of training, scoring and the rest, by precision and compiler."""
    images, labels = load_mnist("train")
    X = images[:, None].astype(np.float32) / 255
    settings = MNIST | {"device": "cuda"}
    CollisionClassifier(model=encoder, **(settings | {"max_epochs": 1, "cv": 2})).fit(X[:2000], labels[:2000])  # warm
    found = []
    first = None
    for name, options in list(VARIANTS.items())[:3]:
        seconds: dict[str, float] = {}
        start = time.perf_counter()
        with timed("train_fold", seconds), timed("posteriors", seconds), timed("hold", seconds):
            clf = CollisionClassifier(model=partial(encoder, **options), **settings).fit(X, labels)
        total = time.perf_counter() - start
        fold = clf._crossfit.folds[0]
        held = bridge.hold(X, clf._crossfit.centre, clf._crossfit.scale, "cuda")
        scoring = best(lambda fold=fold, held=held: bridge.posteriors(fold, held))
        module = fold.members[0].module.eval()
        on_gpu = held[:]

        def forward(module: nn.Module = module, on_gpu: torch.Tensor = on_gpu) -> None:
            with torch.inference_mode():
                for part in torch.split(on_gpu, 8192):
                    module(part)

        own = best(forward)
        entry: dict[str, Any] = {"variant": name, "seconds": total, "training": seconds["train_fold"]}
        entry |= {"scoring": seconds["posteriors"], "moving": seconds["hold"]}
        entry["rest"] = total - entry["training"] - entry["scoring"] - entry["moving"]
        epochs = [len(history) for each in clf.history_ for history in each.values()]
        entry |= {"epochs": epochs, "images_per_second": 0.8 * len(X) * sum(epochs) / seconds["train_fold"]}
        entry |= {"rows_scored_per_second": len(X) / scoring, "forward_per_second": len(X) / own}
        entry["share_of_forward"] = own / scoring
        cm = clf.one_step_
        entry |= {"pber": cm.pber, "pber_interval": cm.pber_interval(), "accuracy": clf_accuracy(clf, labels)}
        if first is None:
            first = cm
        entry["largest_difference_in_se"] = apart(cm, first)
        print(
            f"{name}: {total:.1f} s = training {entry['training']:.1f} + scoring {entry['scoring']:.2f} + moving "
            f"{entry['moving']:.2f} + rest {entry['rest']:.2f}; epochs {epochs}, scoring at "
            f"{entry['share_of_forward']:.0%} of the forward pass, "
            f"PBER {cm.pber:.4f}",
            flush=True,
        )
        found.append(entry)
    return found


def precision() -> list[dict[str, Any]]:
    """A training step and the scoring of a batch, steady, by width, precision and compiler."""
    found = []
    x, y = torch.rand(1024, 1, 28, 28, device="cuda"), torch.randint(0, 10, (1024,), device="cuda")
    for width in (32, 128):
        for name, options in VARIANTS.items():
            torch.compiler.reset()  # after eight modules of one shape it would no longer compile
            module = encoder(1, 10, width=width, **options).cuda()
            optimizer = torch.optim.AdamW(module.parameters(), fused=True)

            def step(module: nn.Module = module, optimizer: torch.optim.AdamW = optimizer) -> None:
                optimizer.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(module(x), y).backward()
                optimizer.step()

            def forward(module: nn.Module = module) -> None:
                with torch.inference_mode():
                    module(x)

            started = time.perf_counter()
            best(step, 3)
            preparing = time.perf_counter() - started
            entry = {"width": width, "variant": name, "step_ms": 1e3 * best(step, 30), "first_steps_s": preparing}
            module.eval()
            best(forward, 3)
            entry["forward_ms"] = 1e3 * best(forward, 30)
            print(entry, flush=True)
            found.append(entry)
    return found


def clf_accuracy(clf: CollisionClassifier, labels: np.ndarray) -> float:
    """Of the held-out posteriors."""
    return float((clf.classes_[clf.posteriors_.argmax(1)] == labels).mean())


def pairs() -> list[dict[str, Any]]:
    """Pair-wise scoring as a share of the matrix-multiply rate measured beside it."""
    found = []
    torch.manual_seed(0)
    for sizes in ((128,) * 6, (256,) * 4, (512,) * 3):
        module = PairwiseNetwork(20, sizes).eval().cuda()
        n = 6000
        X, y = torch.randn(n, 20, device="cuda"), torch.arange(n) % 10
        flops = 2 * sum(a * b for a, b in zip(sizes, [*sizes[1:], 1], strict=True)) * 2 * n * n
        square = torch.randn(8192, 8192, device="cuda")
        product = 2 * 8192**3 / best(lambda s=square: s @ s)
        tall = torch.randn(2**20, sizes[0], device="cuda")
        small = torch.randn(sizes[0], sizes[0], device="cuda")
        shaped = 2 * 2**20 * sizes[0] ** 2 / best(lambda a=tall, b=small: a @ b)
        seconds = best(lambda m=module, X=X, y=y: class_similarity(m, X, X, y, 10, exclude_self=True), 3)
        rate = flops / seconds
        entry = {"hidden_layer_sizes": list(sizes), "pairs": n * n, "seconds": seconds, "tflops": rate / 1e12}
        entry |= {"product_tflops": product / 1e12, "shaped_tflops": shaped / 1e12, "share": rate / product}
        shares = f"{rate / product:.0%} of {product / 1e12:.1f} (8192³), {rate / shaped:.0%} of {shaped / 1e12:.1f}"
        print(f"{sizes}: {n * n / seconds / 1e6:.0f} million pairs/s, {rate / 1e12:.1f} TFLOP/s, {shares} (shaped)")
        found.append(entry)
    return found


def streaming() -> list[dict[str, Any]]:
    """An epoch with the rows on the GPU, and with every batch brought over from pinned memory."""
    found = []
    problem = GaussianProblem(np.random.default_rng(0).standard_normal((10, 100)) * 0.3)
    X, y = problem.sample(500_000, 0)
    X = X.astype(np.float32)
    settings = {"hidden_layer_sizes": (512, 512), "max_epochs": 2, "batch_size": 4096, "cv": 2}
    settings |= {"device": "cuda", "random_state": 0}
    share = rows.GPU_SHARE
    matrices = []
    for name, limit in (("warm", share), ("resident", share), ("streamed", 0.0)):
        rows.GPU_SHARE = limit
        try:
            start = time.perf_counter()
            clf = CollisionClassifier(**settings).fit(X, y)
            total = time.perf_counter() - start
        finally:
            rows.GPU_SHARE = share
        epoch = [entry["seconds"] for each in clf.history_ for history in each.values() for entry in history]
        matrices.append(clf.one_step_.matrix)
        if name != "warm":
            found.append({"rows": len(X), "features": 100, "where": name, "seconds": total, "epoch": float(min(epoch))})
            print(f"{name}: fit {total:.1f} s, epoch {min(epoch):.2f} s", flush=True)
    found.append({"largest_difference": float(np.abs(matrices[2] - matrices[1]).max())})
    return found


def agreement() -> list[dict[str, Any]]:
    """S from the GPU against S from the CPU in standard errors, and which of them was faster."""
    warnings.simplefilter("ignore")
    found = []
    cases: list[tuple[str, Any, int, dict[str, Any]]] = [
        ("Scenario A, K = 5, default", scenario_a(5), 1250, {}),
        ("Scenario A, K = 5, default", scenario_a(5), 10_000, {}),
        ("Scenario A, K = 5, default", scenario_a(5), 100_000, {"max_epochs": 5}),
        ("Scenario A, K = 5, pairwise", scenario_a(5), 1250, {"model": "pairwise", "max_epochs": 20}),
    ]
    for name, problem, n, settings in cases:
        X, y = problem.sample(n, 0)
        fits, seconds = {}, {}
        for device in ("cpu", "cuda"):
            start = time.perf_counter()
            fits[device] = CollisionClassifier(**settings, device=device, random_state=0).fit(X, y).one_step_
            seconds[device] = time.perf_counter() - start
        worst = apart(fits["cuda"], fits["cpu"])
        found.append({"case": name, "rows": n, "settings": settings, "seconds": seconds, "largest_in_se": worst})
        print(
            f"{name}, {n}: cpu {seconds['cpu']:.1f} s, cuda {seconds['cuda']:.1f} s, {worst:.2f} se apart", flush=True
        )
    return found


PARTS = {"mnist": mnist, "precision": precision, "pairs": pairs, "streaming": streaming, "agreement": agreement}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU here")
    for name in options.part or PARTS:
        print(f"-- {name}", flush=True)
        save(f"scale-gpu-{name}", {"device": torch.cuda.get_device_name(), "mnist": MNIST | ENCODER}, PARTS[name]())


if __name__ == "__main__":
    main()
