"""Beside the strongest peers: Brier score, error, calibration and cost on the tables of `real`.

Every peer is trained as it comes on 70% of the rows (at most 2,000) and scored on the others, two
splits per table, one thread. They need an environment of their own, which ``peers.txt`` says how to
make; there, ``python -m studies run peers --jobs 1`` goes on with what is missing.

A training that takes more than so many processor seconds is stopped (the default, too) and is not
counted. AutoGluon has the models whose libraries are in that environment: LightGBM, CatBoost,
forests, networks of torch, but neither XGBoost nor fastai. TabPFN is its first version, whose
weights are in a package; those of later ones come from a network that the machine may not have.
"""

from __future__ import annotations

import resource
import signal
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from collidescope import CollisionClassifier
from studies import drawing
from studies.accuracy.real import KEEL, LEFT_OUT, load
from studies.baselines.stock import lightgbm
from studies.markdown import conditions, made, table
from studies.measures import (
    brier_score,
    calibration_error,
    geometric_mean,
    mean_error,
)
from studies.real_data import load_brfss, load_covertype, load_letter
from studies.speed import sizes
from studies.speed.engine import adult
from studies.store import Cell, Record, Result, Study, flat, results

OURS = "collidescope"
TABPFN = "TabPFN v1"
#: Processor seconds; about twenty times what ours takes on a small table.
BEST_SECONDS = 60
BEST = f"AutoGluon, best, {BEST_SECONDS} s"

MOST_ROWS = 2_000
SPLITS = 2
#: Processor seconds of one training, on a table and on a large set.
MOST_SECONDS = 120
LARGE_SECONDS = 900
#: Of the held-out rows, for the standard errors of paired differences.
GROUPS = 20
#: Rows, columns and classes that TabPFN v1 was made for.
TABPFN_SIZES = (1_000, 100, 10)
#: Rows of which 70% are trained on, all of them.
LARGE: dict[str, Callable[[], sizes.Problem]] = {
    "Letter": lambda: sizes.some_rows(*load_letter(), 20_000),
    "Adult": lambda: sizes.Problem(*adult()),
    "Covertype": lambda: sizes.some_rows(*load_covertype(), 50_000),
    "BRFSS": lambda: sizes.some_rows(*load_brfss(), 60_000),
    "network teacher": sizes.teacher,
    "embeddings": lambda: sizes.embeddings(8_000, 256, 40),
}


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


def tabpfn() -> Any:
    from tabpfn import TabPFNClassifier

    return TabPFNClassifier(device="cpu")


class AutoGluon:
    """AutoGluon's predictor with scikit-learn's two verbs."""

    def __init__(self, presets: str, time_limit: float | None = None) -> None:
        self.presets = presets
        self.time_limit = time_limit

    def fit(self, X: np.ndarray, y: np.ndarray) -> AutoGluon:
        import pandas as pd
        from autogluon.tabular import TabularPredictor

        frame = pd.DataFrame(X).add_prefix("x")
        frame["the_class"] = y
        self._folder = tempfile.TemporaryDirectory()
        predictor = TabularPredictor(
            label="the_class", eval_metric="log_loss", path=self._folder.name
        )
        # its limit is by the clock, on which other work of the machine would count
        with mock.patch.object(time, "time", time.process_time):
            self._predictor = predictor.fit(
                frame,
                presets=self.presets,
                time_limit=self.time_limit,
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
    BEST: lambda: AutoGluon("best_quality", BEST_SECONDS),
    TABPFN: tabpfn,
}


#: Peers for the large sets; the presets of AutoGluon are timed for tables, TabPFN v1 has no room.
OF_LARGE = tuple(
    name for name in PEERS if name != TABPFN and not name.startswith("AutoGluon")
)


def cells(quick: bool) -> list[Cell]:
    """Every table with every peer and split, then the large sets."""
    if quick:
        return [
            {"table": "digits", "peer": name, "split": 0} for name in (OURS, "LightGBM")
        ]
    tables = [name for name in ("digits", *KEEL) if name not in LEFT_OUT]
    small = [
        {"table": name, "peer": peer, "split": split}
        for split in range(SPLITS)
        for peer in PEERS
        for name in tables
    ]
    large = [
        {"table": name, "peer": peer, "split": 0} for peer in OF_LARGE for name in LARGE
    ]
    return small + large


def run(cell: Cell) -> Result:
    """Scores on held-out rows, and processor seconds (of child processes too)."""
    X, y, most_rows, most_seconds = problem(cell["table"])
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.3, stratify=y, random_state=cell["split"]
    )
    train = train[:most_rows]
    classes = int(y.max()) + 1
    about = {"rows": len(train), "columns": X.shape[1], "classes": classes}
    if cell["peer"] == TABPFN and np.any(np.array(TABPFN_SIZES) < [*about.values()]):
        return about | {"refused": True}
    P = np.zeros((len(test), classes))
    before = processor_seconds()
    try:
        with stopped_after(most_seconds):
            model = PEERS[cell["peer"]]().fit(X[train], y[train])
            P[:, np.unique(y[train])] = model.predict_proba(X[test])
    except TimeoutError:
        return about | {"stopped": True, "seconds": processor_seconds() - before}
    seconds = processor_seconds() - before
    return about | scores(P, y[test]) | {"seconds": seconds}


def problem(name: str) -> tuple[np.ndarray, np.ndarray, int | None, int]:
    """X, class numbers, and the most rows and processor seconds of a training."""
    if name in LARGE:
        large = LARGE[name]()
        return large.X, large.y, None, LARGE_SECONDS
    return *load(name), MOST_ROWS, MOST_SECONDS


def scores(P: np.ndarray, y: np.ndarray) -> Result:
    """What posteriors of held-out rows are worth."""
    return {
        "brier": brier_score(P, y),
        "groups": grouped_scores(P, y),
        "error": float(np.mean(P.argmax(axis=1) != y)),
        "calibration": calibration_error(P, y),
    }


def grouped_scores(P: np.ndarray, y: np.ndarray) -> list[float]:
    """Brier scores of GROUPS parts of the held-out rows, the same for every peer."""
    parts = [slice(first, None, GROUPS) for first in range(GROUPS)]
    return [round(brier_score(P[part], y[part]), 6) for part in parts]


@contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    """TimeoutError in the block once this process has used so many seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# ---------------------------------------------------------------- table


@dataclass(frozen=True)
class Case:
    """A run of a peer, and ours of the same split of the same table."""

    theirs: Result
    ours: Result

    def ratio(self, measure: str) -> float:
        """Theirs over ours."""
        return self.theirs[measure] / self.ours[measure]

    @property
    def gap(self) -> float:
        """Their Brier score less ours."""
        return self.theirs["brier"] - self.ours["brier"]

    @property
    def spread(self) -> float:
        """The standard error of the gap, over the parts of the held-out rows."""
        return mean_error(np.subtract(self.theirs["groups"], self.ours["groups"]))

    @property
    def verdict(self) -> int | None:
        """-1 where theirs is clearly lower, 1 where clearly higher, else 0; None without parts."""
        if "groups" not in self.theirs:
            return None
        if abs(self.gap) <= max(2 * self.spread, 0.01 * self.ours["brier"]):
            return 0
        return int(np.sign(self.gap))


def by_peer(records: list[Record]) -> dict[str, list[Case]]:
    """The tables and splits that a peer and ours were both scored on."""
    scored = {
        (run["peer"], run["table"], run["split"]): run
        for run in map(flat, records)
        if run["table"] not in LARGE and "brier" in run
    }
    found: dict[str, list[Case]] = {}
    for (peer, *place), theirs in scored.items():
        ours = scored.get((OURS, *place))
        if peer != OURS and ours is not None:
            found.setdefault(peer, []).append(Case(theirs, ours))
    return found


def lower(records: list[Record]) -> list[Case]:
    """Where a peer is clearly lower, by table."""
    cases = [case for own in by_peer(records).values() for case in own]
    clear = [case for case in cases if case.verdict == -1]
    return sorted(clear, key=lambda case: (case.theirs["table"], case.theirs["split"]))


def text(records: list[Record]) -> str:
    head = [
        "peer",
        "tables × splits",
        "its Brier score / ours",
        "median",
        "lower by more than 1%",
        "clearly lower",
        "clearly higher",
        "its error / ours",
        "its calibration error − ours",
        "its processor seconds / ours",
    ]
    cases = by_peer(records)
    rows = [compared(peer, own) for peer, own in cases.items()]
    rows.sort(key=lambda row: float(row[2]))
    clear = ["table", "split", "peer", "its Brier score", "ours", "difference"]
    return f"""## Beside the strongest peers

Each as it comes, trained on the same rows (70% of a table, at most {MOST_ROWS:,}), scored on the
others, on one thread; ratios are geometric means over the tables that the peer was run on. Above 1
ours is lower. A mean over few tables hangs on those with the lowest scores, the median beside it
does not. *Clearly*: by more than 1% and by two standard errors of the paired difference, over
{GROUPS} parts of the held-out rows; runs without parts are not judged. Ours is a fit without the range
({made("peers", records)}).

{coverage(records)} The cheapest
tables were run first, so a peer with fewer cases has the smaller ones. The {BEST_SECONDS} s of AutoGluon's best
preset are processor seconds. AutoGluon has neither XGBoost nor fastai. TabPFN v1 takes at most
{TABPFN_SIZES[0]:,} rows, {TABPFN_SIZES[1]} columns and {TABPFN_SIZES[2]} classes; weights of its successors come from a network. Several
peers have settings that were tuned for thousands of rows: on the smallest tables LightGBM's tuned
defaults hardly split at all. {stopped(records)}

{table(head, rows)}

{conditions(records, "**{peer}**")}

### Where a peer is clearly lower

{table(clear, map(difference, lower(records)))}

{large_table(records)}"""


def coverage(records: list[Record]) -> str:
    """How many tables, and of how many rows, ours was run on."""
    runs = map(flat, records)
    own = [run for run in runs if run["peer"] == OURS and run["table"] not in LARGE]
    splits = Counter(run["split"] for run in own)
    counts = " and ".join(f"{n} (split {split})" for split, n in splits.items())
    sizes = [run["rows"] for run in own]
    tables = len(KEEL) + 1 - len(LEFT_OUT)
    return f"""So far {counts} of the {tables} tables, with {min(sizes):,} to {max(sizes):,} training
rows."""


def compared(peer: str, cases: list[Case]) -> list[str]:
    """A row of the table: a peer over ours."""
    briers = [case.ratio("brier") for case in cases]
    verdicts = [case.verdict for case in cases]
    judged = len(verdicts) - verdicts.count(None)
    errors = [case.theirs["error"] for case in cases]
    our_errors = [case.ours["error"] for case in cases]
    gaps = [case.theirs["calibration"] - case.ours["calibration"] for case in cases]
    return [
        shown(peer),
        str(len(cases)),
        f"{geometric_mean(briers):.3f}",
        f"{np.median(briers):.3f}",
        str(sum(own < 0.99 for own in briers)),
        f"{verdicts.count(-1)} of {judged}",
        f"{verdicts.count(1)} of {judged}",
        f"{sum(errors) / sum(our_errors):.3f}",
        f"{np.mean(gaps):+.4f}",
        f"{geometric_mean([case.ratio('seconds') for case in cases]):.2g}",
    ]


def difference(case: Case) -> list[str]:
    """A row of the table of cases that a peer wins."""
    run = case.theirs
    briers = [f"{found['brier']:.4f}" for found in (run, case.ours)]
    gap = f"{case.gap:.4f} ± {case.spread:.4f}"
    return [run["table"], str(run["split"]), shown(run["peer"]), *briers, gap]


def stopped(records: list[Record]) -> str:
    """What was stopped and does not count."""
    runs = [run for run in map(flat, records) if "stopped" in run]
    names = [f"{shown(run['peer'])} on {run['table']}" for run in runs]
    which = ", ".join(dict.fromkeys(names)) or "none so far"
    return f"""A training is stopped after {MOST_SECONDS} processor seconds ({LARGE_SECONDS} on a large set) and does
not count; stopped: {which}."""


def large_table(records: list[Record]) -> str:
    """Brier scores and processor seconds on the large sets; empty without records of them."""
    found = {(run["table"], run["peer"]): run for run in map(flat, records)}
    names = [name for name in LARGE if (name, OURS) in found]
    if not names:
        return ""
    labels = {"training rows": "rows", "columns": "columns", "K": "classes"}
    rows = [
        [label, *(f"{found[name, OURS][key]:,}" for name in names)]
        for label, key in labels.items()
    ]
    rows += [
        [shown(peer), *(scored(found.get((name, peer))) for name in names)]
        for peer in OF_LARGE
    ]
    return f"""### Large sets

70% of the rows are trained on, one split: the Brier score on the others, its standard error, and
processor seconds of fit and prediction. Numbers are given to everyone as the default encodes them,
so CatBoost sees no categories.

{table(["", *names], rows)}"""


def scored(found: Result | None) -> str:
    """A cell of the table of large sets."""
    if found is None:
        return "not run"
    if "stopped" in found:
        return f"stopped after {found['seconds']:.0f} s"
    spread = mean_error(np.array(found["groups"]))
    return f"{found['brier']:.4f} ± {spread:.4f}, {found['seconds']:.0f} s"


def picture(path: Path) -> None:
    """Brier score against cost, both over ours."""
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    points = {OURS: (1.0, 1.0)} | places(results("peers"))
    for peer, place in points.items():
        colour = "#c2410c" if peer == OURS else "#475569"
        ax.plot(*place, "o", color=colour)
        offset, side = (7, 3), "left"
        if place == max(points.values()) or is_left(place, points.values()):
            offset, side = (-7, 3), "right"
        ax.annotate(
            shown(peer),
            place,
            offset,
            textcoords="offset points",
            color=colour,
            ha=side,
        )
    ax.set_xscale("log")
    ax.margins(x=0.2, y=0.12)
    ax.set_xlabel("processor seconds, over those of collidescope")
    ax.set_ylabel("held-out Brier score, over ours")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#e5e7eb")
    ax.set_axisbelow(True)
    drawing.save(figure, path)


def places(records: list[Record]) -> dict[str, tuple[float, float]]:
    """Processor seconds and Brier score of every peer over ours, geometric means over tables."""
    return {
        peer: (
            geometric_mean([case.ratio("seconds") for case in cases]),
            geometric_mean([case.ratio("brier") for case in cases]),
        )
        for peer, cases in by_peer(records).items()
    }


def is_left(place: tuple[float, float], others: Iterable[tuple[float, float]]) -> bool:
    """Is a point so near on the right that its mark would lie in this one's label?"""
    return any(
        1 < cost / place[0] < 6 and abs(score - place[1]) < 0.05
        for cost, score in others
    )


def sentence(page: str) -> str:
    """How the peers compare, in one sentence that links the page with the table."""
    records = results("peers")
    cases = by_peer(records)
    tables = {case.theirs["table"] for own in cases.values() for case in own}
    found = places(records)
    below = [
        f"{shown(peer)}, run on {len(cases[peer])}"
        for peer, (_, score) in found.items()
        if score < 1
    ]
    cheaper = [shown(peer) for peer, (cost, _) in found.items() if cost < 1]
    wins: dict[str, dict[str, None]] = {}
    for case in lower(records):
        wins.setdefault(shown(case.theirs["peer"]), {})[case.theirs["table"]] = None
    clear = [f"{peer} on {' and '.join(own)}" for peer, own in wins.items()]
    said = f"""Of {len(found)} strong peers, each trained as it comes on the same rows (at most {MOST_ROWS:,})
        of up to {len(tables)} tables, {len(found) - len(below)} have a higher held-out Brier score than the default
        on average (lower: {listed(below)}); {listed(cheaper)} cost less, and clearly lower are {listed(clear)}
        ([the table, and large sets]({page}#beside-the-strongest-peers))."""
    return textwrap.fill(" ".join(said.split()), 118, break_on_hyphens=False)


def listed(names: Iterable[str]) -> str:
    """Names in their order.

    >>> listed(["b", "a"]), listed([])
    ('a, b', 'none')
    """
    return ", ".join(sorted(names)) or "none"


def shown(peer: str) -> str:
    """The name of a peer with its kind in brackets.

    >>> shown("AutoGluon, medium"), shown("EBM")
    ('AutoGluon (medium)', 'EBM')
    """
    name, _, kind = peer.partition(", ")
    return f"{name} ({kind})" if kind else name


STUDY = Study(
    "peers", "Beside AutoGluon, CatBoost, RealMLP and others", cells, run, text
)
