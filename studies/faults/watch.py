"""What a case may do: how long, how much memory, which acts. Anything else is a finding."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Memory that a case may add to the process: so much, and so many times the size of its file.
BASE_BYTES, PER_BYTE = 96 * 2**20, 60
#: Address space above what the process has after warming up: an allocation beyond it fails, and is
#: seen.
HEADROOM = 2**30
SECONDS = 20  #: of the processor: a busy machine makes no finding
#: Acts that reading a file never needs.
FORBIDDEN = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.",
)


class Finding(Exception):
    """A promise broken."""


class TooSlow(BaseException):
    """Past every ``except Exception``."""


class Watch:
    """Runs cases in this process; the promises are those of ``docs/reliability.md``."""

    def __init__(self, writable: Path) -> None:
        self.writable = str(writable.resolve())
        self.acts: list[str] = []
        self.active = False
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, self._slow)

    def limit_memory(self) -> None:
        """From here on allocations of more than ``HEADROOM`` fail."""
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + HEADROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def run(self, case: Callable[[], str], size: int) -> str:
        """The word that ``case`` returns; :class:`Finding` when it breaks a promise."""
        self.acts.clear()
        before = _peak()
        self.active = True
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            word = case()
        except Finding:
            raise
        except TooSlow:
            raise Finding(f"more than {SECONDS} s") from None
        except BaseException as error:
            raise Finding(
                f"{type(error).__name__}: {str(error)[:200]} {place(error)}"
            ) from error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.active = False
        if self.acts:
            raise Finding(f"acts: {self.acts[:3]}")
        grown = _peak() - before
        if grown > BASE_BYTES + PER_BYTE * size:
            raise Finding(f"memory: {grown >> 20} MiB for a file of {size:,} bytes")
        return word

    def _audit(self, event: str, args: Any) -> None:
        if not self.active:
            return
        if event.startswith(FORBIDDEN):
            self.acts.append(f"{event} {str(args)[:80]}")
        elif event == "open" and isinstance(args[0], str) and isinstance(args[2], int):
            writes = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            outside = not os.path.abspath(args[0]).startswith(
                (self.writable, "/dev/null")
            )
            if writes and outside:
                self.acts.append(f"writes {args[0]}")

    def _slow(self, *_: Any) -> None:
        raise TooSlow


def out_of_memory(error: BaseException | None) -> bool:
    """Is there a failed allocation behind ``error``? A bomb that only the limit stopped."""
    while error is not None:
        words = str(error).lower()
        if (
            isinstance(error, MemoryError)
            or "allocate" in words
            or "out of memory" in words
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def place(error: BaseException) -> str:
    """Where in the package it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/collidescope/" in frame.filename] or frames
    if not ours:
        return ""
    return f"({Path(ours[-1].filename).name}, {ours[-1].name})"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
