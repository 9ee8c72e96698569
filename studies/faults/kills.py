"""Fits killed at random moments, then resumed.

Every fit runs in a forked process that a signal ends: SIGINT, SIGTERM or SIGKILL. It is started
again on the same checkpoint folder and killed again, until it comes through. Its S must be that of
an undisturbed fit, bit for bit.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import collidescope as cs
import collidescope.learners.network
from collidescope.datasets import scenario_a
from studies.measures import Rng
from studies.models import pairwise
from studies.store import Cell, Result, Study

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def module(d: int, k: int) -> Any:
    """A custom module."""
    from torch import nn

    return nn.Sequential(nn.Linear(d, 8), nn.ReLU(), nn.Linear(8, k))


KINDS = ("network", "module", "pairwise")
#: How a fit ended that was not killed outright.
DONE = 0
KEPT = 10
NOTHING = 11
FAILED = 12


def fit(kind: str, checkpoint: Path | None = None) -> cs.CollisionClassifier:
    """A fit of a second or less."""
    X, y = scenario_a(3).sample(200, 0)
    training = {"max_epochs": 40, "patience": 0}
    shared = {
        "cv": 2,
        "limit": False,
        "random_state": 0,
        "checkpoint": checkpoint,
    }
    if kind == "pairwise":
        training["hidden_layer_sizes"] = (8,)
        return pairwise(training=training, **shared).fit(X, y)
    member = {"network": "network", "module": module}[kind]
    clf = cs.CollisionClassifier(members=[member], training=training, **shared)
    return clf.fit(X, y)


def warm_up() -> None:
    """Import what every fit would import, without a gradient: after one torch cannot be forked."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.zeros(2)
    torch.optim.AdamW([parameter], fused=True).step()


def in_child(kind: str, folder: Path) -> int:
    """Start the fit in a process of its own; its number."""
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        warnings.simplefilter("ignore")
        os.write(os.open(folder / "started", os.O_CREAT | os.O_WRONLY), b"x")
        clf = fit(kind, folder / "run")
        code = KEPT if clf.interrupted_ else DONE
        if code == DONE:
            np.save(folder / "S.npy", clf.collision_matrix_.matrix)
    except KeyboardInterrupt:
        code = NOTHING
    except BaseException as error:
        (folder / "error").write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def kill_until_done(
    kind: str,
    expected: Any,
    seconds: float,
    rng: Rng,
    most: int,
    signals: Any = SIGNALS,
) -> dict[str, int]:
    """Kill one fit up to ``most`` times, then let it finish.

    How often each signal struck, and whether S is right.
    """
    struck = {each.name: 0 for each in signals}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for attempt in range(most + 1):
            (folder / "started").unlink(missing_ok=True)
            pid = in_child(kind, folder)
            while not (folder / "started").exists():
                time.sleep(0.001)
            sign = signals[int(rng.integers(len(signals)))]
            if attempt < most:
                time.sleep(float(rng.uniform(0, seconds)))
                os.kill(pid, sign)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code == FAILED:
                error = (folder / "error").read_text()
                raise AssertionError(f"{kind}: a fit failed after {struck}: {error}")
            if code == DONE:
                break
            struck[sign.name] += 1
        same = np.array_equal(np.load(folder / "S.npy"), expected)
        left = [
            path.name for path in (folder / "run").rglob("*") if ".new-" in path.name
        ]
    return struck | {"same": int(same), "left": len(left)}


def campaign(kills: int, seed: int = 0, kinds: tuple[str, ...] = KINDS) -> Result:
    """Until ``kills`` signals have struck, over all kinds of fit."""
    warnings.simplefilter("ignore")
    warm_up()
    rng = np.random.default_rng(seed)
    undisturbed = {}
    with tempfile.TemporaryDirectory() as name:
        # In children too: a process that has used torch's threads must not be forked.
        for kind in kinds:
            folder = Path(name) / kind
            folder.mkdir()
            started = time.perf_counter()
            os.waitpid(in_child(kind, folder), 0)
            undisturbed[kind] = np.load(folder / "S.npy"), time.perf_counter() - started
    total = Counter()
    while sum(total[each.name] for each in SIGNALS) < kills:
        kind = kinds[total["fits"] % len(kinds)]
        most = int(rng.integers(1, 5))
        total.update(kill_until_done(kind, *undisturbed[kind], rng, most))
        total["fits"] += 1
    struck = sum(total[each.name] for each in SIGNALS)
    found = total["fits"] - total["same"] + total["left"]
    return {"kills": struck, **total, "found": found}


def cells(quick: bool) -> list[Cell]:
    return [{"kills": 3 if quick else 60, "seed": 0}]


def run(cell: Cell) -> Result:
    return campaign(cell["kills"], cell["seed"])


STUDY = Study(
    "kills", "Fits killed at random moments, then resumed", cells, run, alone=True
)
