"""What is fuzzed: how a case is made from a seed, how it is read, and what counts as an honest end.

A case ends well when the file is refused with the error that the documentation names, or when it is
accepted and what came of it works. A target's ``read`` returns one of these two words and lets any
other error through.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import collidescope as cs
from collidescope import _store
from collidescope.datasets import scenario_a
from studies.faults import mutations as spoil
from studies.faults.watch import Finding, out_of_memory, place
from studies.measures import Array, Rng
from studies.models import pairwise

REFUSED, ACCEPTED = "refused", "accepted"
SHORT = {
    "cv": 2,
    "random_state": 0,
    "limit": False,
    "training": {"max_epochs": 2},
}
TINY = {**SHORT, "members": ["linear"]}


def check_probabilities(P: Array, shape: tuple[int, int]) -> None:
    """What a model that was accepted says must be rows of probabilities."""
    sums = abs(P.sum(axis=1) - 1)
    if P.shape != shape or not np.isfinite(P).all() or sums.max() > 1e-6:
        raise Finding("accepted, and predictions are no probabilities")


def refused(error: BaseException) -> str:
    if out_of_memory(error):
        raise Finding(
            f"memory: an allocation failed behind {type(error).__name__} {place(error)}"
        ) from error
    return REFUSED


def taken_apart(path: Path, kind: str) -> tuple[Any, dict[str, Array]]:
    """(skeleton, arrays) of a file of ours."""
    flat = _store._Flat(pack=False)
    return flat.add(_store.read(path, kind), ""), flat.arrays


def forged(
    kind: str, skeleton: Any, arrays: dict[str, Array], npz: bool = False
) -> bytes:
    """A file of any content, with a checksum that fits."""
    from safetensors.numpy import save

    content = {"format": _store.FORMAT, "version": _store.VERSION}
    text = spoil.dump(content | {"kind": kind, "tree": skeleton})
    text = f"{_store._checksum(text, arrays)}\n{text}"
    if not npz:
        return save(arrays, metadata={_store.HEADER: text})
    buffer = io.BytesIO()
    np.savez(buffer, **{_store.HEADER: np.array(text)}, **arrays)
    return buffer.getvalue()


def spoiled(rng: Rng, kind: str, skeleton: Any, arrays: dict[str, Array]) -> bytes:
    """A file of ours with another description, other arrays, or both."""
    what = rng.random()
    if what < 0.7:
        skeleton = spoil.spoil_json(rng, skeleton)
    if what > 0.6:
        arrays = spoil.spoil_arrays(rng, arrays)
    return forged(kind, skeleton, arrays)


def small_table(n: int = 60, seed: int = 0) -> tuple[pd.DataFrame, list[str]]:
    """Every kind of column."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, n)
    words = np.array(["oak", "elm", "ash", "fir", "yew"])
    days = pd.to_timedelta(rng.integers(0, 90, n), unit="D")
    frame = pd.DataFrame(
        {
            "width": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n) + kind),
            "tree": words[rng.integers(0, 5, n)],
            "day": pd.Timestamp("2024-01-01") + days,
            "note": [" ".join(rng.choice(words, 4)) + f" {i % 50}" for i in range(n)],
        }
    )
    return frame, np.array(["dog", "cat"])[kind].tolist()


class ModelFiles:
    """``cs.load``: bits, containers, descriptions and arrays, the last two with a checksum that
    fits."""

    def __init__(self, folder: Path) -> None:
        X, y = scenario_a(3).sample(150, 0)
        self.X = X[:4]
        self.table, labels = small_table()
        pool = cs.CollisionClassifier(**SHORT | {"limit": True})
        models = {
            "linear": cs.CollisionClassifier(**TINY).fit(X, y),
            "pool": pool.fit(X, np.array(["a", "b", "c"])[y]),
            "pairwise": pairwise(n_references=5, **SHORT).fit(X, y),
            "table": cs.TableClassifier(**TINY).fit(self.table, labels),
        }
        self.keep(models, folder)

    def keep(self, models: dict[str, Any], folder: Path) -> None:
        self.files = []
        for name, model in models.items():
            path = folder / name
            model.save(path)
            self.files.append((path.read_bytes(), *taken_apart(path, "model")))

    def make(self, rng: Rng) -> tuple[bytes, str]:
        data, skeleton, arrays = spoil.pick(rng, self.files)
        what = rng.random()
        if what < 0.25:
            return spoil.blind(rng, data), ".collide"
        if what < 0.4:
            return spoil.spoil_header(rng, data), ".collide"
        return spoiled(rng, "model", skeleton, arrays), ".collide"

    def read(self, path: Path) -> str:
        try:
            model = cs.load(path)
        except cs.ModelFileError as error:
            return refused(error)
        rows = self.X
        if isinstance(model, cs.TableClassifier):
            rows = self.table[:4]
        try:
            P = model.predict_proba(rows)
        except ValueError as error:
            if "X lacks" in str(error):  # an honest rename of a column
                return ACCEPTED
            raise
        check_probabilities(P, (4, len(model.classes_)))
        use_matrix(model.collision_matrix_)
        model.save(path)
        return ACCEPTED


class TreeFiles(ModelFiles):
    """Models with boosted trees, whose arrays point into one another."""

    def __init__(self, folder: Path) -> None:
        X, y = scenario_a(3).sample(1200, 0)
        self.X = X[:4]
        clf = cs.CollisionClassifier(members=["trees", "forest"], **SHORT)
        self.keep({"trees": clf.fit(X, y)}, folder)


class MatrixFiles:
    """``CollisionMatrix.from_json``."""

    open = staticmethod(cs.CollisionMatrix.from_json)

    def __init__(self, folder: Path) -> None:
        X, y = scenario_a(3).sample(90, 0)
        cm = cs.CollisionClassifier(**TINY).fit(X, y).collision_matrix_
        plain = cs.CollisionMatrix(
            [[0.9, 0.1], [0.2, 0.8]], priors=[2 / 3, 1 / 3], classes=["cat", "ä"]
        )
        self.files = [json.loads(matrix.to_json()) for matrix in (cm, plain)]

    def make(self, rng: Rng) -> tuple[bytes, str]:
        value = spoil.pick(rng, self.files)
        if rng.random() < 0.2:
            return spoil.blind(rng, json.dumps(value).encode()), ".json"
        return spoil.dump(spoil.spoil_json(rng, value)).encode(), ".json"

    def read(self, path: Path) -> str:
        try:
            cm = self.open(path)
        except ValueError as error:
            return refused(error)
        use_matrix(cm)
        return ACCEPTED


class ArrayFiles(MatrixFiles):
    """``CollisionMatrix.from_npz``: bytes, skeletons, arrays, entries that claim more than they
    hold or overlap."""

    open = staticmethod(cs.CollisionMatrix.from_npz)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.parts = []
        for value in self.files:
            cs.CollisionMatrix.from_dict(value).to_npz(folder / "matrix.npz")
            self.parts.append(taken_apart(folder / "matrix.npz", "matrix"))

    def make(self, rng: Rng) -> tuple[bytes, str]:
        skeleton, arrays = spoil.pick(rng, self.parts)
        way = int(rng.integers(6))
        if way == 1:
            skeleton = spoil.spoil_json(rng, skeleton)
        elif way in (2, 3):
            arrays = spoil.spoil_arrays(rng, arrays)
        data = forged("matrix", skeleton, arrays, npz=True)
        if way == 0:
            data = spoil.blind(rng, data)
        elif way == 4:  # another shape in a header, of the same length
            at = data.find(b"'shape': (")
            claim = b"'shape': (%d" % int(rng.integers(10, 10**9))
            data = data[:at] + claim + data[at + len(claim) :]
        elif way == 5:  # two entries of the directory for one place in the file
            places = [found.start() for found in re.finditer(b"PK\x01\x02", data)]
            one, other = rng.choice(places, 2).tolist()
            data = data[: one + 42] + data[other + 42 : other + 46] + data[one + 46 :]
        return data, ".npz"


def use_matrix(cm: cs.CollisionMatrix) -> None:
    """What anyone does with a matrix; none of it may fail."""
    if cs.CollisionMatrix.from_json(cm.to_json()) != cm:
        raise Finding("accepted, and does not survive a second file")
    str(cm).encode()
    cm._repr_html_().encode()
    cm.top_collisions()
    cm.interval()
    cm.pber_interval()
    if cm.n_classes > 2:
        cm.merge([cm.classes[:2].tolist()])


class Checkpoints:
    """A fit that finds a spoiled checkpoint: it is refused, or the result is that of an
    undisturbed fit."""

    settings: dict[str, Any] = {**SHORT, "members": ["network"]}  # noqa: RUF012
    factory: Any = None  #: of a custom module

    def __init__(self, folder: Path) -> None:
        self.X, self.y = scenario_a(3).sample(60, 0)
        self.folder = folder / "run"
        self.fit()
        self.path = next(self.folder.rglob("*.safetensors"))
        self.data = self.path.read_bytes()
        self.undisturbed = self.fit().collision_matrix_.matrix

    def fit(self, max_epochs: int = 2) -> Any:
        training = {"max_epochs": max_epochs, "patience": 5}
        settings = self.settings | {"training": training, "checkpoint": self.folder}
        return cs.CollisionClassifier(**settings).fit(self.X, self.y)

    def make(self, rng: Rng) -> tuple[bytes, str]:
        way = spoil.pick(rng, [spoil.blind, spoil.spoil_header])
        return way(rng, self.data), ".safetensors"

    def read(self, path: Path) -> str:
        os.replace(path, self.path)
        try:
            clf = self.fit()
        except (ValueError, FloatingPointError) as error:
            # the latter: training went astray from there, which is said
            return refused(error)
        finally:
            self.path.write_bytes(self.data)
        self.judge(clf)
        return ACCEPTED

    def judge(self, clf: Any) -> None:
        if not np.array_equal(clf.collision_matrix_.matrix, self.undisturbed):
            raise Finding("a damaged checkpoint was used")


class ForgedCheckpoints(Checkpoints):
    """Content changed and the checksum made to fit: refused, or a fit that works (other weights,
    no damage)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = []
        for epochs in (1, 2):  # trained on from there, and trained to the end
            self.path.unlink()
            self.fit(max_epochs=epochs)
            self.files.append(taken_apart(self.path, "checkpoint"))

    def make(self, rng: Rng) -> tuple[bytes, str]:
        skeleton, arrays = spoil.pick(rng, self.files)
        return spoiled(rng, "checkpoint", skeleton, arrays), ".safetensors"

    def judge(self, clf: Any) -> None:
        P = clf.predict_proba(self.X)
        check_probabilities(P, (len(self.X), len(clf.classes_)))
        use_matrix(clf.collision_matrix_)
        clf.save(self.folder / "model.collide")
        cs.load(self.folder / "model.collide", model=self.factory)


def custom(d: int, k: int) -> Any:
    """A module with statistics beside its weights."""
    from torch import nn

    return nn.Sequential(nn.Linear(d, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, k))


class CustomCheckpoints(ForgedCheckpoints):
    """The same with a custom module, whose buffers no optimiser knows."""

    settings: dict[str, Any] = {**SHORT, "members": [custom]}  # noqa: RUF012
    factory = staticmethod(custom)


def lines_of(table: pd.DataFrame) -> list[list[str]]:
    """The names of the columns, and the cells as text."""
    rows = [list(map(str, row)) for row in table.to_numpy().tolist()]
    return [list(table.columns), *rows]


class CommandLine:
    """A command on a spoiled file: exit 0 or 2, never a traceback, no control character on the
    terminal."""

    def __init__(self, folder: Path) -> None:
        table, labels = small_table(40)
        days = table["day"].dt.strftime("%Y-%m-%d")
        self.frame = table.assign(day=days, width=table["width"].round(1), label=labels)
        self.frames = {
            "count": self.frame[["tree", "label"]],
            "predict": self.frame,
        }
        self.out = folder / "out.csv"
        self.model = folder / "model.collide"
        model = cs.TableClassifier(**TINY).fit(self.frame.drop(columns="label"), labels)
        model.save(self.model)

    def command(self, path: Path) -> list[str]:
        if path.name.endswith("p") or self.kind == "predict":
            return ["predict", str(self.model), str(path), "--out", str(self.out)]
        return ["count", str(path), "--label", "label", "--json"]

    kind = "count"

    def make(self, rng: Rng) -> tuple[bytes, str]:
        self.kind = spoil.pick(rng, list(self.frames))
        return spoil.spoil_csv(rng, lines_of(self.frames[self.kind]))

    def read(self, path: Path) -> str:
        from typer.testing import CliRunner

        from collidescope.cli.app import app

        self.out.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(app, self.command(path))
        error = result.exception
        if error is not None and not isinstance(error, SystemExit):
            raise error
        said = result.output
        if result.exit_code not in (0, 2) or "Unexpected error" in said:
            raise Finding(f"exit {result.exit_code}: {said[-300:]}")
        if any(ord(c) < 32 and c not in "\n\t" for c in said):
            raise Finding(f"control characters on the terminal: {said[-200:]!r}")
        if self.out.exists():
            _no_formulas(self.out)
        if result.exit_code:
            return REFUSED
        return ACCEPTED


def _no_formulas(path: Path) -> None:
    for row in csv.reader(io.StringIO(path.read_text(), newline="")):
        for cell in row:
            signed = cell[:1] in ("+", "-") and not _number(cell)
            if signed or cell[:1] in ("=", "@", "\t", "\r"):
                raise Finding(f"a spreadsheet would run {cell[:40]!r}")


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class ParquetFiles(CommandLine):
    """The same with Parquet."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        whole = io.BytesIO()
        self.frame.to_parquet(whole)
        short = io.BytesIO()
        self.frames["count"].to_parquet(short, compression=None)
        self.data = {"count": short.getvalue(), "predict": whole.getvalue()}

    def make(self, rng: Rng) -> tuple[bytes, str]:
        self.kind = spoil.pick(rng, list(self.data))
        data = self.data[self.kind]
        if rng.random() < 0.5:
            return spoil.blind(rng, data), ".parquet"
        # the footer, where shapes and kinds stand
        length = int.from_bytes(data[-8:-4], "little")
        start = len(data) - 8 - length
        way = spoil.pick(rng, [spoil.flip_bits, spoil.flip_bits, spoil.noise])
        footer = way(rng, data[start:-8])
        size = len(footer).to_bytes(4, "little")
        return data[:start] + footer + size + b"PAR1", ".parquet"


class MatrixCommands(MatrixFiles):
    """``collidescope merge`` on spoiled matrices and models."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.line = CommandLine(folder)
        self.line.command = lambda path: ["merge", str(path), "--groups", "2"]
        self.models = ModelFiles(folder)

    def make(self, rng: Rng) -> tuple[bytes, str]:
        if rng.random() < 0.3:
            return self.models.make(rng)
        return super().make(rng)

    def read(self, path: Path) -> str:
        return self.line.read(path)


class Summaries(MatrixCommands):
    """``collidescope report`` on spoiled summaries."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        out = str(folder / "r.html")
        self.line.command = lambda path: ["report", str(path), "-o", out]
        from collidescope.show import summarise

        model = cs.load(self.line.model)
        found = [summarise(model), summarise(model.collision_matrix_)]
        self.files = [json.loads(json.dumps(summary)) for summary in found]

    def make(self, rng: Rng) -> tuple[bytes, str]:
        return MatrixFiles.make(self, rng)


TARGETS = {
    "model": ModelFiles,
    "trees": TreeFiles,
    "matrix": MatrixFiles,
    "npz": ArrayFiles,
    "checkpoint": Checkpoints,
    "forged": ForgedCheckpoints,
    "custom": CustomCheckpoints,
    "csv": CommandLine,
    "parquet": ParquetFiles,
    "merge": MatrixCommands,
    "summary": Summaries,
}
