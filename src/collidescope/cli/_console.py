"""What the user sees: results on standard output, the rest, errors too, on standard error."""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import typer
from rich.console import Console
from rich.text import Text

#: What a terminal obeys instead of showing it, and characters that turn the direction of writing.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
BAD_INPUT, FAILURE, INTERRUPTED = 2, 1, 130
#: Set it to see where an error comes from.
DEBUG = "COLLIDESCOPE_TRACEBACK"


class State:
    """State of the running command: the notes shown, the files written, whether it could print."""

    quiet = False
    noted: frozenset[str] = frozenset()
    written: tuple[Path, ...] = ()
    lost = False
    context: typer.Context | None = None


def say(text: str, style: str = "", *, always: bool = False) -> None:
    """A line for the user, on standard error."""
    if State.quiet and not always:
        return
    console = Console(stderr=True, highlight=False)
    is_command = text.startswith("Next:")
    # On a terminal lines break between words, but commands stay as they are, to be copied.
    soft_wrap = is_command or not console.is_terminal
    console.print(Text(printable(text), style=style), soft_wrap=soft_wrap)


def note(*lines: str) -> None:
    """Things worth knowing, each once."""
    for line in dict.fromkeys(for_terminal(line) for line in lines):
        if line and line not in State.noted:
            say(f"· {line}", "yellow")
        State.noted |= {line}


def fail(words: str) -> None:
    """An error, said also where notes are left out."""
    say(words, "bold red", always=True)


def for_terminal(words: str) -> str:
    """A message of the package as the command line says it: options in the place of Python.

    >>> for_terminal("use rare='drop', drop=['id'], or groups=X['age']")
    "use --rare drop, --drop 'id', or --groups 'age'"
    """
    said = {
        # The condition number stands in the report, under what to trust.
        r"S is nearly singular \(.*?\): .*?\(.*?\)(; )?": "",
        r"\bgroups=X\[(.+?)\]": r"--groups \1",
        r"\b(drop|keep)=\[(.+?)\]": r"--\1 \2",
        r"\bcategories=\[(.+?)\]": r"--category \1",
        r"\brare='(\w+)'": r"--rare \1",
        r"\bempty='drop'": "--skip-empty",
        r"X\.drop_duplicates\(\)": "--unique",
        r", or keep them in one fold \(groups=input_groups.*?\)": "",
        r"count_collisions\(X, y\)": "`collidescope count`",
        r"classes of fewer than (\d+) rows$": r"classes of fewer than \1 rows (--drop-rare \1)",
        r"classes of fewer than (\d+) rows;": r"classes of fewer than \1 rows (--drop-rare \1);",
        r" \(votes / \d+\)": "",
        r" \(groups=\)": " (--groups)",
        r": limit_ is None": ", so the range is not known",
        r", votes\.groupby\(level=0\)\.sum\(\)": "",
        r"merge what top_collisions shows": "merge the pairs that collide most",
        r"\bX lacks (a column|columns)": r"the table lacks \1",
        r"pass prices=\{.*?\}": "give --price row=0.1 or --price label=0.5",
        r"\bmust_merge\b": "--together",
        r"\bcannot_merge\b": "--apart",
        r"\bmax_pber\b": "--max-pber",
        r"\bn_groups\b(?!=)": "--groups",
        r"pass errors='skip'": "go on without them, with --skip-bad",
        r"pass a smaller size=.*most_bytes=": "use a smaller --size, such as --size 64",
    }
    for python, terminal in said.items():
        words = re.sub(python, terminal, words)
    return words.strip("; ")


def show(text: str) -> None:
    """Lines of the result, on standard output, or on standard error where that is closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.write(f"{fitted(printable(text), stream)}\n")
            stream.flush()
        except BrokenPipeError:
            # The reader, such as head, has seen enough: files may still be asked for.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return
    State.lost = True


def fitted(text: str, stream: TextIO) -> str:
    """Sentences broken between words, where ``stream`` is a terminal; tables and commands stay."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        _wrapped(line, width)
        if len(line) > width and "  " not in line.strip()
        else line
        for line in text.splitlines()
    )


def _wrapped(line: str, width: int) -> str:
    """A sentence over several lines; a command in it stays whole, to be copied."""
    joint = "\0"  # for a space within a command
    whole = re.sub("`.*?`", lambda found: found.group().replace(" ", joint), line)
    broken = textwrap.fill(
        whole,
        width,
        subsequent_indent="  " if line.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return broken.replace(joint, " ")


def printable(text: str) -> str:
    r"""Text as a terminal may see it: control characters, which it would obey, as ``\x1b``."""
    # Sentences set Arabic and Hebrew names between marks that pages obey, and many terminals print.
    text = text.replace("“\u2068", "“").replace("\u2069”", "”")
    return CONTROL.sub(
        lambda found: found.group().encode("unicode_escape").decode(), text
    )


def show_json(value: object) -> None:
    """The result for machines: JSON and nothing else on standard output."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    text = json.dumps(
        value,
        indent=1,
        ensure_ascii=codecs.lookup(encoding).name != "utf-8",
        allow_nan=False,
        default=lambda array: array.tolist(),
    )
    show(CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


class Listener(logging.Handler):
    """Turns what the package warns of, and logs about tables, into notes; ``said`` holds all."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.tell(record.getMessage())

    def tell(self, words: str) -> None:
        """Note ``words``, but for what was said before: warnings join several notes."""
        for earlier in self.said:
            words = words.replace(earlier, "")
        words = for_terminal(words).strip("; ")
        if words:
            self.said.append(words)
            note(words)


@contextmanager
def notes_as_they_come() -> Iterator[list[str]]:
    """What the package warns of, and logs about tables, as notes at once; gives all of them."""
    from collidescope._checks import CollisionWarning

    logger = logging.getLogger("collidescope.tables")
    level = logger.level
    listener = Listener()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CollisionWarning)
        warnings.showwarning = lambda message, *_, **__: listener.tell(str(message))
        logger.addHandler(listener)
        logger.setLevel(logging.INFO)
        try:
            yield listener.said
        finally:
            logger.removeHandler(listener)
            logger.setLevel(level)


@contextmanager
def guarded() -> Iterator[None]:
    """Around a command: every failure is explained in a paragraph, with an exit code."""
    State.quiet = False
    State.noted = frozenset()
    State.written = ()
    State.lost = False
    _open_closed_streams()
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        written = "nothing was written"
        if State.written:
            written = f"written: {', '.join(map(str, State.written))}"
        say(f"Stopped by Ctrl-C; {written}.", "bold", always=True)
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        raise typer.Exit(_explain(error)) from None
    if State.lost:
        raise typer.Exit(FAILURE)


def _open_closed_streams() -> None:
    """Give standard streams that are closed a place: the next file opened would take it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def explained(error: Exception) -> str:
    """What an error says, on one line."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror
        if error.filename:
            words += f": {error.filename}"
    return for_terminal(" ".join(words.split())) or type(error).__name__


def _explain(error: Exception) -> int:
    """Say what went wrong; the exit code."""
    bad = _is_bad_input(error)
    if isinstance(error, MemoryError):
        fail("Error: not enough memory. Try --sample 50000 for a first look.")
    elif bad or isinstance(error, OSError):
        fail(f"Error: {explained(error)}")
    else:
        fail(
            f"Unexpected error ({type(error).__name__}): {explained(error)}. This is "
            f"not your mistake. Set {DEBUG}=1 and run the same command again to see "
            "where it comes from, and please report it."
        )
    return BAD_INPUT if bad else FAILURE


def _is_bad_input(error: Exception) -> bool:
    """Checks of this package speak of the input; what a library raises may be about anything."""
    about_files = FileNotFoundError | IsADirectoryError | PermissionError
    if isinstance(error, about_files) and error.strerror is not None:
        return True
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    package = str(Path(__file__).parents[1])
    checked = isinstance(error, ValueError | ImportError | FileNotFoundError)
    return checked and raised_in.startswith(package)
