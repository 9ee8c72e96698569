"""Progress with an ETA: a bar on a terminal, one line per step elsewhere, always a log entry."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

logger = logging.getLogger("collidescope")
logger.addHandler(logging.NullHandler())

#: Told of every epoch's {"name", "epoch", "max_epochs", "val_loss"}.
Report = Callable[[dict[str, Any]], None]


class Progress:
    """Counts ``total`` steps (``verbose`` 0: silently); the logger "collidescope" logs each."""

    def __init__(self, what: str, total: int, verbose: int) -> None:
        self.what, self.total, self.verbose = what, total, verbose
        self.done = 0.0
        self._bar: Any = None
        self._started = time.perf_counter()

    def __enter__(self) -> Progress:
        if self.verbose and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            # Two parts text and one part bar share what share and ETA, which are never cut, leave
            # of the line.
            text = TextColumn(
                "{task.description}",
                table_column=Column(ratio=2, no_wrap=True, overflow="ellipsis"),
            )
            pace = TextColumn("{task.fields[pace]}", table_column=Column(no_wrap=True))
            bar = BarColumn(None, table_column=Column(ratio=1))
            self._bar = Bar(text, bar, pace, console=Console(stderr=True), expand=True)
            self._task = self._bar.add_task(
                self.what, total=self.total or None, pace=""
            )
            self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, count: float = 1) -> None:
        """``count`` more steps are done."""
        self.done += count
        elapsed = time.perf_counter() - self._started
        text = f"{self.what}: {elapsed:.0f} s"
        if self.done >= 1:
            text = f"{self.what}: {self.done:.0f} done, {elapsed:.0f} s"
        if self.total:
            per_step = elapsed / self.done
            left = per_step * (self.total - self.done)
            # A share: steps are of any size, and of a fit eight to a fold.
            share = self.done / self.total
            text = f"{self.what}: {share:.0%}, {elapsed:.0f} s, about {left:.0f} s left"
        logger.info(text)
        if self._bar is not None:
            self._move(self.done, elapsed, self.what)
        elif self.verbose:
            print(text, file=sys.stderr)

    def say(self, text: str) -> None:
        """A line of its own, above the bar where there is one."""
        logger.info(text)
        if self._bar is not None:
            self._bar.console.print(text)
        elif self.verbose:
            print(text, file=sys.stderr)

    @property
    def report(self) -> Report | None:
        """A callback for the training loop, or None when nobody looks."""
        return None if self._bar is None else self._show

    def _show(self, entry: dict[str, Any], most: float = 0.9) -> None:
        # A step at work counts at most this share of it: it is done only when it says so.
        share = min(1.0, entry["epoch"] / max(entry["max_epochs"], 1)) * most
        text = (
            f"{self.what} · {entry['name']}, epoch {entry['epoch']}, loss "
            f"{entry['val_loss']:.4f}"
        )
        self._move(self.done + share, time.perf_counter() - self._started, text)

    def _move(self, done: float, elapsed: float, text: str) -> None:
        pace = f"{timedelta(seconds=round(elapsed))} so far"
        if self.total:
            # Epochs of the first step say little about its end, as most networks stop early.
            if self.done:
                ahead = elapsed / done * (self.total - done)
                pace = f"{timedelta(seconds=round(ahead))} left"
            pace = f"{done / self.total:.0%}, {pace}"
        self._bar.update(self._task, completed=done, description=text, pace=pace)
