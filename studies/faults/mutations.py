"""Ways to spoil a file: blind ones for any bytes, and ones that know JSON, safetensors and tables.

Every function takes a numpy Generator first, so that a case follows from its seed.
"""

from __future__ import annotations

import copy
import gzip
import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

Rng = np.random.Generator

# ---------------------------------------------------------------- bytes


def flip_bits(rng: Rng, data: bytes) -> bytes:
    out = bytearray(data)
    for place in rng.integers(0, max(len(out), 1), int(rng.integers(1, 9))):
        if out:
            out[place] ^= 1 << int(rng.integers(8))
    return bytes(out)


def cut(rng: Rng, data: bytes) -> bytes:
    return data[: int(rng.integers(0, len(data) + 1))]


def splice(rng: Rng, data: bytes) -> bytes:
    """A piece of the file copied over another place of it, or put in between."""
    start, stop = sorted(rng.integers(0, len(data) + 1, 2).tolist())
    piece = data[start : min(stop, start + 500)]
    at = int(rng.integers(0, len(data) + 1))
    behind = at + len(piece) if rng.random() < 0.5 else at
    return data[:at] + piece + data[behind:]


def noise(rng: Rng, data: bytes) -> bytes:
    at = int(rng.integers(0, len(data) + 1))
    return data[:at] + rng.bytes(int(rng.integers(1, 60))) + data[at:]


BLIND = [flip_bits, cut, splice, noise]


def blind(rng: Rng, data: bytes) -> bytes:
    return BLIND[int(rng.integers(len(BLIND)))](rng, data)


# ---------------------------------------------------------------- JSON

#: Stand in a value and become raw text, which ``json.dumps`` would not write.
RAW = {
    "@deep-list": "[" * 100_000 + "]" * 100_000,
    "@deep-object": '{"a":' * 50_000 + "0" + "}" * 50_000,
    "@nest-900": "[" * 900 + "]" * 900,
    "@nan": "NaN",
    "@infinity": "-Infinity",
    "@overflow": "1e999",
    "@digits": "9" * 5000,
    "@long": "1" + "0" * 400,
    "@surrogate": '"\\ud800"',
    "@zero": '"a\\u0000b"',
    "@many": "[" + "[]," * 200_000 + "0]",
    "@twice": '{"format": 1, "format": 2}',
}
HOSTILE = [
    *RAW,
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    10**9,
    2**31,
    2**63,
    -(2**63) - 1,
    0.5,
    -0.0,
    1e308,
    5e-324,
    "",
    "0",
    "nan",
    "../../../../tmp/x",
    "/dev/zero",
    "a" * 100_000,
    "\x1b[2J\r\n",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "__import__('os').system('true')",
    "cuda:7",
    [],
    {},
    [[]],
    [None],
    [1, 2, 3],
    [10**9],
    [1e308] * 3,
    {"__class__": "os.system"},
]


def dump(value: Any) -> str:
    """JSON text, with the raw pieces put in."""
    text = json.dumps(value)
    for mark, raw in RAW.items():
        text = text.replace(json.dumps(mark), raw)
    return text


def spoil_json(rng: Rng, value: Any) -> Any:
    """A copy with one to three changes at random places."""
    box = [copy.deepcopy(value)]
    for _ in range(int(rng.integers(1, 4))):
        _spoil_once(rng, box)
    return box[0]


def _spoil_once(rng: Rng, box: list[Any]) -> None:
    parent = box
    key = 0
    while True:
        here = parent[key]
        if not isinstance(here, dict | list) or not here:
            break
        if parent is not box and rng.random() < 0.2:
            break
        parent = here
        key = _place(rng, here)
    what = rng.random()
    if what < 0.55 or parent is box:
        parent[key] = copy.deepcopy(HOSTILE[int(rng.integers(len(HOSTILE)))])
    elif what < 0.7:
        del parent[key]
    elif what < 0.8 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif what < 0.9 and type(parent[key]) in (int, float):
        parent[key] = parent[key] * float(rng.choice([-1, 0.5, 2, 1e300, 1 + 1e-9]))
    else:  # what stands elsewhere
        parent[key] = copy.deepcopy(parent[_place(rng, parent)])


def _place(rng: Rng, value: dict[str, Any] | list[Any]) -> Any:
    """A key of a dict or a position in a list."""
    return _pick(rng, list(value) if isinstance(value, dict) else range(len(value)))


def _pick(rng: Rng, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


# ---------------------------------------------------------------- safetensors

DTYPES = "F64 F32 F16 BF16 I64 I32 U8 BOOL F8_E4M3 I16 U64 C64 X9 "


def spoil_header(rng: Rng, data: bytes) -> bytes:
    """A safetensors container whose header lies: lengths, kinds, shapes, places."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    names = [name for name in header if name != "__metadata__"]
    entry = header[_pick(rng, names)]
    what = int(rng.integers(7))
    if what == 0:
        entry["dtype"] = _pick(rng, DTYPES.split(" "))
    elif what == 1:
        entry["shape"] = _pick(
            rng,
            [
                [2**40],
                [2**63],
                [-1],
                [0, 2**62],
                [1] * 200,
                [],
                ["3"],
                7,
                [2**32, 2**32],
            ],
        )
    elif what == 2:
        entry["data_offsets"] = _pick(
            rng, [[0, 2**63], [8, 0], [-1, 8], [0], [0, len(body)], "x", [2**64, 2**65]]
        )
    elif what == 3:
        entry["data_offsets"] = header[_pick(rng, names)]["data_offsets"]
    elif what == 4:
        header["__metadata__"] = _pick(
            rng, [7, [], {"collidescope": 5}, {"collidescope": {}}, {}, None]
        )
    elif what == 5:
        header = spoil_json(rng, header)
    text = dump(header).encode("utf-8", "surrogatepass")
    if what == 6:
        length = int(
            _pick(rng, [0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])
        )
        return struct.pack("<Q", length) + text + body
    return struct.pack("<Q", len(text)) + text + body


def spoil_arrays(rng: Rng, arrays: dict[str, Any]) -> dict[str, Any]:
    """Named arrays, one to three of them changed."""
    arrays = dict(arrays)
    for _ in range(int(rng.integers(1, 4))):
        if not arrays:
            break
        name = _pick(rng, sorted(arrays))
        array = arrays[name]
        what = int(rng.integers(9))
        if what == 0 and array.dtype.kind == "f" and array.size:
            array = array.copy()
            array.flat[int(rng.integers(array.size))] = _pick(
                rng, [np.nan, np.inf, -np.inf, 1e38, -1.0, 0.0]
            )
        elif what == 1:
            kinds = "f2 f4 f8 i1 i4 i8 u1 u2 u8 ?"
            kind = _pick(rng, kinds.split())
            with np.errstate(all="ignore"):
                array = array.astype(kind)
        elif what == 2:
            array = array.reshape(-1) if rng.random() < 0.5 else array[None]
        elif what == 3 and array.ndim:
            array = array[: len(array) // 2]
        elif what == 4 and array.ndim:
            array = np.concatenate([array, array], axis=int(rng.integers(array.ndim)))
        elif what == 5:
            array = np.zeros((0, 5) if rng.random() < 0.5 else (), array.dtype)
        elif what == 6:
            del arrays[name]
            continue
        elif what == 7:
            arrays[f"{name}x"] = array
            continue
        else:
            array = arrays[_pick(rng, sorted(arrays))]
        arrays[name] = np.ascontiguousarray(array)
    return arrays


# ---------------------------------------------------------------- tables

CELLS = [
    "",
    " ",
    '"',
    '"a\nb"',
    "'",
    "\x00",
    "\x1b[31m",
    "\u202e",
    "=1+1",
    "@SUM(A1)",
    "-2+3",
    "1e999",
    "-1e999",
    "nan",
    "NA",
    "9" * 400,
    "0x10",
    "1,5",
    "ä",
    "日本",
    "x" * 5000,
    "1970-01-01",
    "99999-99-99",
    "True",
    "\t",
    ";;;;",
    "\ufeff",
    "<b>",
]
ENCODINGS = "utf-8 utf-8-sig latin-1 utf-16 utf-16-le cp1252 utf-32 shift-jis"


def spoil_csv(rng: Rng, lines: list[list[str]]) -> tuple[bytes, str]:
    """(content, suffix) of a table that is none, or nearly."""
    lines = [list(line) for line in lines]
    for _ in range(int(rng.integers(1, 6))):
        row = int(rng.integers(len(lines)))
        what = int(rng.integers(7))
        if what <= 2:
            lines[row][int(rng.integers(len(lines[row])))] = _pick(rng, CELLS)
        elif what == 3 and len(lines[row]) > 1:
            lines[row].pop()
        elif what == 4:
            lines[row].append(_pick(rng, CELLS))
        elif what == 5:
            column = int(rng.integers(len(lines[0])))
            value = _pick(rng, CELLS)
            for line in lines[1:]:
                if column < len(line):
                    line[column] = value
        else:
            lines.insert(row, [""])
    delimiter = _pick(rng, [",", ",", ",", ";", "\t", "|", " "])
    ending = _pick(rng, ["\n", "\n", "\r\n", "\r", "\n\r", "\x0b"])
    text = ending.join(delimiter.join(line) for line in lines) + ending
    data = text.encode(_pick(rng, ENCODINGS.split()), "replace")
    what = int(rng.integers(8))
    if what == 0:
        data = blind(rng, data)
    elif what == 1:  # two encodings in one file
        rest = text[len(text) // 2 :]
        other = rest.encode(_pick(rng, ENCODINGS.split()), "replace")
        data = data[: len(data) // 2] + other
    elif what == 2:
        packed = gzip.compress(data, 1)
        return (packed if rng.random() < 0.4 else blind(rng, packed)), ".csv.gz"
    suffixes = ".csv .csv .csv .tsv .txt .parquet .gz .xz .data"
    return data, _pick(rng, suffixes.split())
