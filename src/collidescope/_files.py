"""Text files that are never half written, and JSON that cannot surprise."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any


def replace_file(path: str | Path, content: bytes) -> None:
    """Write ``content`` beside ``path``, flush it to disk, then rename: the old file stays whole until then."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_json(data: dict[str, Any], path: str | Path | None) -> str:
    """``data`` as JSON text with floats that read back bit for bit; also written to ``path`` when given."""
    try:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, indent=1)
    except TypeError as error:
        raise ValueError(
            f"cannot be written as JSON: {error} (class names must be text, numbers or booleans)"
        ) from None
    if path is not None:
        replace_file(path, text.encode())
    return text


def read_json(source: str | Path) -> Any:
    """The JSON value in the file ``source``, or in the text ``source`` when it starts with a brace."""
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    text = source if is_text else Path(source).read_bytes()
    where = "the text" if is_text else f"{source}"
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"source is not valid JSON ({where}): {error}") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is not a number")
