"""What the user sees: results on standard output, the rest on standard error; errors as one paragraph."""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

#: What a terminal obeys instead of showing it, and characters that turn the direction of writing.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
#: Set it to see where an error comes from.
DEBUG = "COLLIDESCOPE_TRACEBACK"
PACKAGE = str(Path(__file__).parents[1])


class State:
    """Of the running command: are notes left out, which were said, what was written, was there nowhere to print?"""

    quiet = False
    noted: frozenset[str] = frozenset()
    written: tuple[Path, ...] = ()
    lost = False


def say(text: str, style: str = "", *, always: bool = False) -> None:
    """A line for the user, on standard error."""
    if always or not State.quiet:
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            Text(printable(text), style=style)
        )


def note(*lines: str) -> None:
    """Things worth knowing, each once."""
    for line in dict.fromkeys(lines):
        if line not in State.noted:
            say(f"· {line}", "yellow")
    State.noted |= {*lines}


def fail(words: str) -> None:
    """An error, said also where notes are left out."""
    say(words, "bold red", always=True)


def show(text: str) -> None:
    """Lines of the result, on standard output, or on standard error where that is closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            try:
                stream.write(f"{printable(text)}\n")
                stream.flush()
            except (
                BrokenPipeError
            ):  # the reader, such as head, has seen enough: files may still be asked for
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return
    State.lost = True


def printable(text: str) -> str:
    r"""Text from files as a terminal may see it: control characters, which it would obey, as ``\x1b``."""
    # Our sentences set Arabic and Hebrew names between marks that pages obey, and that many terminals print.
    text = text.replace("“\u2068", "“").replace("\u2069”", "”")
    return CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def show_json(value: Any) -> None:
    """The result for machines: JSON and nothing else on standard output."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    escaped = codecs.lookup(encoding).name != "utf-8"
    text = json.dumps(
        value, indent=1, ensure_ascii=escaped, allow_nan=False, default=lambda array: array.tolist()
    )
    show(CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


@contextmanager
def notes_as_they_come() -> Iterator[list[str]]:
    """What the package warns of, and logs about tables, as notes at once; gives all of them."""
    from collidescope._checks import CollisionWarning

    logger, said = logging.getLogger("collidescope.tables"), list[str]()
    handler, level = logging.Handler(), logger.level

    def tell(words: str) -> None:
        if words not in said:
            said.append(words)
        note(words)

    handler.emit = lambda record: tell(record.getMessage())  # type: ignore[method-assign]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CollisionWarning)
        warnings.showwarning = lambda message, *_, **__: tell(str(message))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield said
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


@contextmanager
def guarded() -> Iterator[None]:
    """Around a command: every failure told in a paragraph, and an exit code that says which kind it was."""
    State.quiet, State.noted, State.written, State.lost = False, frozenset(), (), False
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file that is opened would take its place
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        done = ", ".join(map(str, State.written))
        say(
            f"Stopped by Ctrl-C; {f'written: {done}' if done else 'nothing was written'}.",
            "bold",
            always=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        raise typer.Exit(_explain(error)) from None
    if State.lost:
        raise typer.Exit(FAILURE)


def explained(error: Exception) -> str:
    """What an error says, on one line."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror + (f": {error.filename}" if error.filename else "")
    return " ".join(words.split()) or type(error).__name__


def _explain(error: Exception) -> int:
    # Checks of this package speak of the input; what a library under it raises may be about anything.
    ours = traceback.extract_tb(error.__traceback__)[-1].filename.startswith(PACKAGE)
    bad = (
        isinstance(error, FileNotFoundError | IsADirectoryError | PermissionError)
        and error.strerror is not None
    )
    bad = bad or (isinstance(error, ValueError | ImportError | FileNotFoundError) and ours)
    if isinstance(error, MemoryError):
        fail("Error: not enough memory. Try --sample 50000 for a first look.")
    elif bad or isinstance(error, OSError):
        fail(f"Error: {explained(error)}")
    else:
        hint = f"Set {DEBUG}=1 and run the same command again to see where it comes from, and please report it."
        fail(
            f"Unexpected error ({type(error).__name__}): {explained(error)}. This is not your mistake. {hint}"
        )
    return BAD_INPUT if bad else FAILURE
