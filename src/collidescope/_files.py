"""Text files that are never half written, and JSON that cannot surprise."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Characters of a file's name that its half-written stand-in keeps: names have a limit of 255 bytes.
KEPT_NAME = 40


def replace_file(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path`` in one step or not at all: see :func:`replacing`."""
    with replacing(path) as beside:
        beside.write_bytes(content)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A name beside ``path`` to write to; then it is flushed to disk and renamed. Until then the old file is whole."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be a file name, got {path!r}")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"path must be a file name, got the folder {path}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {path} is in a folder that does not exist")
    beside = path.with_name(f"{unfinished_prefix(path)}{secrets.token_hex(8)}")  # no process id: these come again
    try:
        yield beside
        with open(beside, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:  # a full disk, a folder that may not be written to
        beside.unlink(missing_ok=True)
        words = f"{error.strerror or error}: {path} cannot be written; what was there before is as it was"
        raise OSError(*([] if error.errno is None else [error.errno]), words) from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def unfinished_prefix(path: Path) -> str:
    """How the names of half-written stand-ins for ``path`` start: a process that is killed leaves one behind."""
    return f".{path.name[:KEPT_NAME]}.new-"


def write_json(data: dict[str, Any], path: str | Path | None) -> str:
    """``data`` as JSON text with floats that read back bit for bit; also written to ``path`` when given."""
    parts = []  # key by key, so that the message can name the one at fault
    for key, value in data.items():
        try:
            part = json.dumps({key: value}, allow_nan=False, ensure_ascii=False, indent=1)
            part.encode()
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{key} cannot be written as JSON (only text, finite numbers, booleans): {error}"
            ) from None
        parts.append(part.removeprefix("{\n").removesuffix("\n}"))
    text = "{\n" + ",\n".join(parts) + "\n}"
    if path is not None:
        replace_file(path, text.encode())
    return text


def read_json(source: str | Path) -> Any:
    """The JSON value in the file ``source``, or in the text ``source`` when it starts with a brace."""
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"source must be a file name or JSON text, got {source!r}")
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    if not str(source):
        raise ValueError("source is empty: pass a file name or JSON text")
    try:
        text = str(source) if is_text else Path(source).read_bytes()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # a folder, a name too long or with a zero byte: text that lost its start
        raise ValueError(f"source cannot be read as a file ({str(source)[:80]!r}): {error}") from None
    where = "the text" if is_text else f"{source}"
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"source is not valid JSON ({where}): {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is not a number")
