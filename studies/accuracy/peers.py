"""Beside the strongest peers: Brier score, error, calibration and cost on the tables of `real`.

Every peer is trained as it comes on 70% of the rows (at most 2,000) and scored on the others, two
splits per table, one thread. They need an environment of their own::

    python -m venv peers && peers/bin/pip install -r studies/accuracy/peers.txt
    peers/bin/python -m studies run peers

A training that takes more than so many processor seconds is stopped (the default, too) and is not
counted. AutoGluon has the models whose libraries are in that environment: LightGBM, CatBoost,
forests, networks of torch, but neither XGBoost nor fastai. TabPFN is its first version, whose
weights are in a package (``peers.txt`` says how to install it); those of later ones come from a
network that the machine may not have.
"""

from __future__ import annotations

import signal
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
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
from studies.measures import (
    brier_score,
    calibration_error,
    geometric_mean,
    mean_error,
)
from studies.real_data import load_brfss, load_covertype, load_letter
from studies.speed import sizes
from studies.speed.engine import adult
from studies.store import Cell, Record, Study, results

OURS = "collidescope"
TABPFN = "TabPFN v1"
BEST = "AutoGluon, best"
Pair = tuple[dict[str, Any], dict[str, Any]]
MOST_ROWS = 2_000
SPLITS = 2
#: Processor seconds of one training, on a table and on a large set.
MOST_SECONDS = 120
LARGE_SECONDS = 900
#: By the clock; about twenty times what ours takes on a small table.
BEST_SECONDS = 60
#: Of the held-out rows, for the standard errors of paired differences.
GROUPS = 20
#: Rows, columns and classes that TabPFN v1 was made for.
TABPFN_SIZES = (1_000, 100, 10)
#: A score of zero has no ratio.
SMALLEST = 1e-9
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


def run(cell: Cell) -> dict[str, Any]:
    """Scores on held-out rows, and processor seconds (of child processes too)."""
    name = cell["table"]
    if name in LARGE:
        problem = LARGE[name]()
        X, y = problem.X, problem.y
        most_rows, most_seconds = len(y), LARGE_SECONDS
    else:
        X, y = load(name)
        most_rows, most_seconds = MOST_ROWS, MOST_SECONDS
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
    return about | {
        "brier": brier_score(P, y[test]),
        "groups": grouped_scores(P, y[test]),
        "error": float(np.mean(P.argmax(axis=1) != y[test])),
        "calibration": calibration_error(P, y[test]),
        "seconds": seconds,
    }


def grouped_scores(P: np.ndarray, y: np.ndarray) -> list[float]:
    """Brier scores of GROUPS parts of the held-out rows, the same for every peer."""
    rows = np.arange(len(y)) % GROUPS
    return [
        round(brier_score(P[rows == group], y[rows == group]), 6)
        for group in range(GROUPS)
    ]


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
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


# ---------------------------------------------------------------- table


def by_case(records: list[Record]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """Results by peer, then by table and split."""
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for record in records:
        cell = record["cell"]
        if "brier" not in record["result"]:
            continue
        place = (cell["table"], cell["split"])
        found.setdefault(cell["peer"], {})[place] = record["result"]
    return found


def of_tables(records: list[Record]) -> list[Record]:
    return [record for record in records if record["cell"]["table"] not in LARGE]


def text(records: list[Record]) -> str:
    small = of_tables(records)
    rows = [compared(peer, pairs) for peer, pairs in shared_cases(small).items()]
    rows.sort(key=lambda row: float(row[2]))
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
    tables = {name for name, _ in by_case(small).get(OURS, {})}
    splits = {record["cell"]["split"] for record in small}
    names = {record["cell"]["peer"] for record in small}
    missing = [shown(peer) for peer in PEERS if peer not in names]
    unknown = f" Not run so far: {', '.join(missing)}." if missing else ""
    sizes = [record["result"]["rows"] for record in small]
    found = f"""## Beside the strongest peers

Each as it comes, trained on the same rows (70% of a table, at most {MOST_ROWS:,}), scored on the
others, on one thread; ratios are geometric means over the tables that the peer was run on. Above 1
ours is lower. *Clearly*: by more than 1% and by two standard errors of the paired difference, over
{GROUPS} parts of the held-out rows. Runs without parts are not judged: those of EBM and AutoGluon
were repeated with parts only where they were lower. Ours is a fit without the range ({made("peers", records)}).

So far {len(tables)} of the {len(KEEL) + 1 - len(LEFT_OUT)} tables, with {min(sizes):,} to
{max(sizes):,} training rows, {len(splits)} of {SPLITS} splits; the cheapest tables first, so a peer
with fewer cases has the smaller tables.{unknown} AutoGluon has neither XGBoost nor fastai. TabPFN v1 takes
at most {TABPFN_SIZES[0]:,} rows, {TABPFN_SIZES[1]} columns and {TABPFN_SIZES[2]} classes; weights of its
successors come from a network. Several peers have settings that were tuned for
thousands of rows: on the smallest tables LightGBM's tuned defaults hardly split at all.
{stopped(records)}{given(small)}

{table(head, rows)}

### Where a peer is clearly lower

{table(["table", "split", "peer", "its Brier score", "ours", "difference"], lower(small))}"""
    large = large_table(records)
    return found + large


def stopped(records: list[Record]) -> str:
    """What was stopped and does not count."""
    names = [
        f"{shown(record['cell']['peer'])} on {record['cell']['table']}"
        for record in records
        if "stopped" in record["result"]
    ]
    rule = (
        f"A training is stopped after {MOST_SECONDS} processor seconds ({LARGE_SECONDS} on a large "
        "set) and does not count; the earliest runs ended, unrecorded, after a minute of the clock"
    )
    if not names:
        return f"{rule}."
    return f"{rule}. Stopped: {', '.join(dict.fromkeys(names))}."


def given(records: list[Record]) -> str:
    """What the limit by the clock left AutoGluon on a machine with other work."""
    cases = by_case(records).get(BEST, {})
    seconds = [result["seconds"] for result in cases.values()]
    if not seconds:
        return ""
    return f""" {shown(BEST)} is given {BEST_SECONDS} s by the clock, on a machine with other work: it got
{min(seconds):.0f} to {max(seconds):.0f} processor seconds."""


def large_table(records: list[Record]) -> str:
    """Brier scores and processor seconds on the large sets; empty without records of them."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        cell = record["cell"]
        if cell["table"] in LARGE:
            found.setdefault(cell["table"], {})[cell["peer"]] = record["result"]
    if not found:
        return ""
    about = [next(iter(results_of.values())) for results_of in found.values()]
    labels = {"training rows": "rows", "columns": "columns", "K": "classes"}
    rows = [
        [label, *(f"{each[key]:,}" for each in about)] for label, key in labels.items()
    ]
    rows += [
        [shown(peer), *(scored(results_of, peer) for results_of in found.values())]
        for peer in OF_LARGE
    ]
    missing = [name for name in LARGE if name not in found]
    unknown = f" Not run so far: {', '.join(missing)}." if missing else ""
    return f"""

### Large sets

70% of the rows are trained on, one split: the Brier score on the others, its standard error, and
processor seconds of fit and prediction. Numbers are given to everyone as the default encodes them,
so CatBoost sees no categories.{unknown}

{table(["", *found], rows)}"""


def scored(results_of: dict[str, dict[str, Any]], peer: str) -> str:
    """A cell of the table of large sets."""
    found = results_of.get(peer)
    if found is None:
        return "not run"
    if "stopped" in found:
        return f"stopped after {found['seconds']:.0f} s"
    spread = mean_error(np.array(found["groups"]))
    return f"{found['brier']:.4f} ± {spread:.4f}, {found['seconds']:.0f} s"


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


def ratios(pairs: list[Pair], key: str) -> list[float]:
    """Theirs over ours; a score of zero has no ratio."""
    return [
        max(theirs[key], SMALLEST) / mine[key]
        for mine, theirs in pairs
        if mine[key] > SMALLEST
    ]


def difference(pair: Pair) -> tuple[float, float]:
    """Of theirs less ours, and its standard error over the parts of the held-out rows."""
    mine, theirs = (np.array(result["groups"]) for result in pair)
    gaps = theirs - mine
    return pair[1]["brier"] - pair[0]["brier"], mean_error(gaps)


def has_error(pair: Pair) -> bool:
    """Do both records have the scores of parts?"""
    return all("groups" in result for result in pair)


def verdict(pair: Pair) -> int:
    """-1 where theirs is clearly lower, 1 where it is clearly higher, else 0."""
    gap, spread = difference(pair)
    if abs(gap) <= max(2 * spread, 0.01 * pair[0]["brier"]):
        return 0
    return int(np.sign(gap))


def lower(records: list[Record]) -> list[list[str]]:
    """A row for every case in which a peer is clearly lower, by table."""
    found = by_case(records)
    own = found.pop(OURS, {})
    rows = []
    for peer, cases in found.items():
        for place in sorted(cases.keys() & own.keys()):
            pair = (own[place], cases[place])
            if not has_error(pair) or verdict(pair) >= 0:
                continue
            gap, spread = difference(pair)
            scores = [f"{result['brier']:.4f}" for result in reversed(pair)]
            row = [place[0], str(place[1]), shown(peer), *scores]
            rows.append([*row, f"{gap:.4f} ± {spread:.4f}"])
    return sorted(rows)


def picture(path: Path) -> None:
    """Brier score against cost, both over ours."""
    figure, ax = plt.subplots(figsize=(7.2, 3.8))
    points = {OURS: (1.0, 1.0)} | places(results("peers"))
    for peer, place in points.items():
        colour = "#c2410c" if peer == OURS else "#475569"
        ax.plot(*place, "o", color=colour)
        offset, side = (7, 3), "left"
        if is_left(place, points.values()):
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
            geometric_mean(ratios(pairs, "seconds")),
            geometric_mean(ratios(pairs, "brier")),
        )
        for peer, pairs in shared_cases(of_tables(records)).items()
    }


def is_left(place: tuple[float, float], others: Iterable[tuple[float, float]]) -> bool:
    """Is a point so near on the right that its mark would lie in this one's label?"""
    return any(
        1 < cost / place[0] < 6 and abs(score - place[1]) < 0.05
        for cost, score in others
    )


def sentence(page: str) -> str:
    """How the peers compare, in one sentence that links the page with the table."""
    small = of_tables(results("peers"))
    found = places(small)
    tables = {name for name, _ in by_case(small).get(OURS, {})}
    higher = sum(score > 1 for _, score in found.values())
    cheaper = [shown(peer) for peer, (cost, _) in found.items() if cost < 1]
    wins: dict[str, list[str]] = {}
    for name, _, peer, *_ in lower(small):
        wins.setdefault(peer, []).append(name)
    clear = [f"{peer} on {' and '.join(own)}" for peer, own in sorted(wins.items())]
    said = f"""Of {len(found)} strong peers, each trained as it comes on the same rows (at most {MOST_ROWS:,})
        of up to {len(tables)} tables, {higher} have a higher held-out Brier score than the default on average;
        {", ".join(sorted(cheaper))} cost less, and clearly lower are {", ".join(clear) or "none"}
        ([the table, and large sets]({page}#beside-the-strongest-peers))."""
    return textwrap.fill(" ".join(said.split()), 118, break_on_hyphens=False)


def shown(peer: str) -> str:
    """The name of a peer with its kind in brackets.

    >>> shown("AutoGluon, best"), shown("EBM")
    ('AutoGluon (best)', 'EBM')
    """
    name, _, kind = peer.partition(", ")
    return f"{name} ({kind})" if kind else name


def compared(peer: str, pairs: list[Pair]) -> list[str]:
    """A row of the table: a peer over ours, on the cases that both were run on."""
    briers = ratios(pairs, "brier")
    verdicts = [verdict(pair) for pair in pairs if has_error(pair)]
    mean_errors = [np.mean([pair[i]["error"] for pair in pairs]) for i in (0, 1)]
    gaps = [theirs["calibration"] - mine["calibration"] for mine, theirs in pairs]
    return [
        shown(peer),
        str(len(pairs)),
        f"{geometric_mean(briers):.3f}",
        f"{np.median(briers):.3f}",
        str(sum(own < 0.99 for own in briers)),
        f"{verdicts.count(-1)} of {len(verdicts)}",
        f"{verdicts.count(1)} of {len(verdicts)}",
        f"{mean_errors[1] / mean_errors[0]:.3f}",
        f"{np.mean(gaps):+.4f}",
        f"{geometric_mean(ratios(pairs, 'seconds')):.2g}",
    ]


STUDY = Study(
    "peers", "Beside AutoGluon, CatBoost, RealMLP and others", cells, run, text
)
