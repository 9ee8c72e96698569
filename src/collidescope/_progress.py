"""Progress with an ETA on a terminal, one line a step elsewhere, silence when not asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any


class Progress:
    """Counts ``total`` steps; ``report`` may be called within a step to say what is going on.

    Parameters
    ----------
    what : str
    total : int
    verbose : int
        0 is silent.
    """

    def __init__(self, what: str, total: int, verbose: int) -> None:
        self.what, self.total, self.verbose = what, total, verbose
        self.done = 0
        self._bar: Any = None
        self._started = time.perf_counter()

    def __enter__(self) -> Progress:
        if self.verbose and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                TextColumn("left:"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task(self.what, total=self.total or None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, count: int = 1) -> None:
        """``count`` more steps are done."""
        self.done += count
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, description=self.what)
        elif self.verbose:
            elapsed = time.perf_counter() - self._started
            text = f"{self.what}: {self.done}, {elapsed:.0f} s"
            if self.total:
                left = elapsed / self.done * (self.total - self.done)
                text = f"{self.what}: {self.done} of {self.total}, {elapsed:.0f} s, about {left:.0f} s left"
            print(text, file=sys.stderr)

    @property
    def report(self) -> Callable[[dict[str, Any]], None] | None:
        """A callback for the training loop, or None when nobody looks."""
        return None if self._bar is None else self._show

    def _show(self, entry: dict[str, Any]) -> None:
        share = min(1.0, entry["epoch"] / max(entry["max_epochs"], 1)) * 0.9
        text = f"{self.what} · {entry['name']} epoch {entry['epoch']}, held-out loss {entry['val_loss']:.4f}"
        self._bar.update(self._task, completed=self.done + share, description=text)
