"""Beside the strongest peers: Brier score, error, calibration and cost on the tables of `real`.

Every peer is trained as it comes on 70% of the rows (at most 2,000) and scored on the others, two
splits per table, one thread. They need an environment of their own::

    python -m venv peers && peers/bin/pip install -r studies/accuracy/peers.txt
    peers/bin/python -m studies run peers

A run that takes more than a minute of the clock is stopped (the default, too) and is not counted.
TabPFN is not among them: its weights come from a network that the machine may not have. AutoGluon
has the models whose libraries are in that environment: LightGBM, CatBoost, forests, networks of
torch, but neither XGBoost nor fastai.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from collidescope import CollisionClassifier
from studies import drawing
from studies.accuracy.real import KEEL, LEFT_OUT, load
from studies.baselines.stock import lightgbm
from studies.markdown import made, table
from studies.measures import brier_score, calibration_error, geometric_mean
from studies.store import Cell, Record, Study, results

OURS = "collidescope"
Pair = tuple[dict[str, Any], dict[str, Any]]
MOST_ROWS = 2_000
SPLITS = 2
MOST_SECONDS = 60
#: A score of zero has no ratio.
SMALLEST = 1e-9


def ours() -> Any:
    return CollisionClassifier(limit=False, random_state=0, device="cpu")


def catboost() -> Any:
    from catboost import CatBoostClassifier

    return CatBoostClassifier(
        thread_count=1, verbose=0, random_seed=0, allow_writing_files=False
    )


def explainable() -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier

    return ExplainableBoostingClassifier(n_jobs=1, random_state=0)


def of_pytabkit(name: str) -> Callable[[], Any]:
    """A classifier of pytabkit with its tuned defaults."""

    def make() -> Any:
        import pytabkit

        settings = {"n_threads": 1, "random_state": 0, "device": "cpu"}
        if name.startswith("LGBM"):
            settings.pop("device")
        return getattr(pytabkit, name)(**settings)

    return make


class AutoGluon:
    """AutoGluon's predictor with scikit-learn's two verbs."""

    def __init__(self, presets: str) -> None:
        self.presets = presets

    def fit(self, X: np.ndarray, y: np.ndarray) -> AutoGluon:
        import pandas as pd
        from autogluon.tabular import TabularPredictor

        frame = pd.DataFrame(X).add_prefix("x")
        frame["the_class"] = y
        self._folder = tempfile.TemporaryDirectory()
        predictor = TabularPredictor(
            label="the_class", eval_metric="log_loss", path=self._folder.name
        )
        self._predictor = predictor.fit(
            frame,
            presets=self.presets,
            num_cpus=1,
            num_gpus=0,
            verbosity=0,
            ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},
        )
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        import pandas as pd

        frame = pd.DataFrame(X).add_prefix("x")
        found = self._predictor.predict_proba(frame)
        return np.asarray(found[list(self.classes_)])


PEERS: dict[str, Callable[[], Any]] = {
    OURS: ours,
    "LightGBM": lightgbm,
    "LightGBM, tuned defaults": of_pytabkit("LGBM_TD_Classifier"),
    "CatBoost": catboost,
    "EBM": explainable,
    "xRFM": of_pytabkit("XRFM_D_Classifier"),
    "RealMLP": of_pytabkit("RealMLP_TD_Classifier"),
    "TabM": of_pytabkit("TabM_D_Classifier"),
    "AutoGluon, medium": lambda: AutoGluon("medium_quality"),
    "AutoGluon, best": lambda: AutoGluon("best_quality"),
}


def cells(quick: bool) -> list[Cell]:
    """Every table with every peer and split."""
    if quick:
        return [
            {"table": "digits", "peer": name, "split": 0} for name in (OURS, "LightGBM")
        ]
    return [
        {"table": name, "peer": peer, "split": split}
        for peer in PEERS
        for name in ("digits", *KEEL)
        if name not in LEFT_OUT
        for split in range(SPLITS)
    ]


def run(cell: Cell) -> dict[str, Any]:
    """Scores on held-out rows, and processor seconds (of child processes too)."""
    X, y = load(cell["table"])
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.3, stratify=y, random_state=cell["split"]
    )
    train = train[:MOST_ROWS]
    P = np.zeros((len(test), int(y.max()) + 1))
    before = processor_seconds()
    try:
        with stopped_after(MOST_SECONDS):
            model = PEERS[cell["peer"]]().fit(X[train], y[train])
            P[:, np.unique(y[train])] = model.predict_proba(X[test])
    except TimeoutError:
        return {"rows": len(train), "stopped": True}
    seconds = processor_seconds() - before
    return {
        "rows": len(train),
        "brier": brier_score(P, y[test]),
        "error": float(np.mean(P.argmax(axis=1) != y[test])),
        "calibration": calibration_error(P, y[test]),
        "seconds": seconds,
    }


@contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    """TimeoutError in the block once so many seconds have passed."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# ---------------------------------------------------------------- table


def by_case(records: list[Record]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """Results by peer, then by table and split."""
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for record in records:
        cell = record["cell"]
        if "stopped" in record["result"]:
            continue
        place = (cell["table"], cell["split"])
        found.setdefault(cell["peer"], {})[place] = record["result"]
    return found


def text(records: list[Record]) -> str:
    rows = [compared(peer, pairs) for peer, pairs in shared_cases(records).items()]
    rows.sort(key=lambda row: float(row[2]))
    head = [
        "peer",
        "tables × splits",
        "its Brier score / ours",
        "lower than ours by more than 1%",
        "its error / ours",
        "its calibration error − ours",
        "its processor seconds / ours",
    ]
    tables = {record["cell"]["table"] for record in records}
    splits = {record["cell"]["split"] for record in records}
    sizes = [record["result"]["rows"] for record in records]
    return f"""## Beside the strongest peers

Each as it comes, trained on the same rows (70% of a table, at most {MOST_ROWS:,}), scored on the
others, on one thread; ratios are geometric means over the tables that the peer was run on. Above 1
ours is lower. Ours is a fit without the range ({made("peers", records)}).

So far run: {len(tables)} of the {len(KEEL) + 1 - len(LEFT_OUT)} tables, the smallest, with
{min(sizes):,} to {max(sizes):,} training rows, {len(splits)} of {SPLITS} splits; AutoGluon without
XGBoost and fastai. Several peers have settings that were tuned for thousands of rows (on the
smallest tables, LightGBM's tuned defaults hardly split at all), so this says little about larger
tables. Runs of more than {MOST_SECONDS} s were stopped and do not count: some with TabM and EBM.

{table(head, rows)}"""


def shared_cases(records: list[Record]) -> dict[str, list[Pair]]:
    """Of every peer the results of ours and its own, where both were run."""
    found = by_case(records)
    own = found.pop(OURS, {})
    pairs = {
        peer: [
            (own[place], theirs[place]) for place in sorted(theirs.keys() & own.keys())
        ]
        for peer, theirs in found.items()
    }
    return {peer: cases for peer, cases in pairs.items() if cases}


def ratio(pairs: list[Pair], key: str) -> float:
    """Geometric mean of theirs over ours; a score of zero has no ratio."""
    ratios = [
        max(theirs[key], SMALLEST) / mine[key]
        for mine, theirs in pairs
        if mine[key] > SMALLEST
    ]
    return geometric_mean(ratios)


def picture(path: Path) -> None:
    """Brier score against cost, both over ours."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6))
    points = {OURS: (1.0, 1.0)}
    for peer, pairs in shared_cases(results("peers")).items():
        points[peer] = (ratio(pairs, "seconds"), ratio(pairs, "brier"))
    for peer, (cost, score) in points.items():
        colour = "#c2410c" if peer == OURS else "#475569"
        ax.plot(cost, score, "o", color=colour)
        ax.annotate(
            peer, (cost, score), (6, 4), textcoords="offset points", color=colour
        )
    ax.set_xscale("log")
    ax.margins(x=0.25, y=0.15)
    ax.set_xlabel("processor seconds, over those of collidescope")
    ax.set_ylabel("held-out Brier score, over ours")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#e5e7eb")
    ax.set_axisbelow(True)
    drawing.save(figure, path)


def compared(peer: str, pairs: list[Pair]) -> list[str]:
    """A row of the table: a peer over ours, on the cases that both were run on."""
    lower = sum(theirs["brier"] < 0.99 * mine["brier"] for mine, theirs in pairs)
    mean_error = [np.mean([pair[i]["error"] for pair in pairs]) for i in (0, 1)]
    gaps = [theirs["calibration"] - mine["calibration"] for mine, theirs in pairs]
    return [
        peer,
        str(len(pairs)),
        f"{ratio(pairs, 'brier'):.3f}",
        f"{lower} of {len(pairs)}",
        f"{mean_error[1] / mean_error[0]:.3f}",
        f"{np.mean(gaps):+.4f}",
        f"{ratio(pairs, 'seconds'):.2g}",
    ]


STUDY = Study(
    "peers", "Beside AutoGluon, CatBoost, RealMLP and others", cells, run, text
)
