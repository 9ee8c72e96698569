"""Ways to spoil a file: blind ones for any bytes, and ones that know JSON, safetensors and tables.

Every function takes a numpy Generator first, so that a case follows from its seed.
"""

from __future__ import annotations

import copy
import gzip
import json
from typing import Any

import numpy as np

from studies.measures import Array, Rng


def pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def times(rng: Rng, most: int) -> range:
    """As many turns as are drawn, from one to ``most``."""
    return range(int(rng.integers(1, most + 1)))


# ---------------------------------------------------------------- bytes


def flip_bits(rng: Rng, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in times(rng, 8):
        if out:
            out[int(rng.integers(len(out)))] ^= 1 << int(rng.integers(8))
    return bytes(out)


def cut(rng: Rng, data: bytes) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def splice(rng: Rng, data: bytes) -> bytes:
    """A piece of the file copied over another place of it, or put in between."""
    start, stop, at = rng.integers(len(data) + 1, size=3).tolist()
    piece = data[start : min(stop, start + 500)]
    behind = at
    if rng.random() < 0.5:
        behind += len(piece)
    return data[:at] + piece + data[behind:]


def noise(rng: Rng, data: bytes) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + rng.bytes(int(rng.integers(1, 60))) + data[at:]


def blind(rng: Rng, data: bytes) -> bytes:
    return pick(rng, [flip_bits, cut, splice, noise])(rng, data)


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
    for _ in times(rng, 3):
        _spoil_once(rng, box)
    return box[0]


def _spoil_once(rng: Rng, box: list[Any]) -> None:
    parent = box
    key = 0
    while isinstance(parent[key], dict | list) and parent[key]:
        if parent is not box and rng.random() < 0.2:
            break
        parent = parent[key]
        key = _place(rng, parent)
    what = rng.random()
    if what < 0.55 or parent is box:
        parent[key] = copy.deepcopy(pick(rng, HOSTILE))
    elif what < 0.7:
        del parent[key]
    elif what < 0.8 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(parent[key]))
    elif what < 0.9 and type(parent[key]) in (int, float):
        parent[key] *= pick(rng, [-1.0, 0.5, 2.0, 1e300, 1 + 1e-9])
    else:  # what stands elsewhere
        parent[key] = copy.deepcopy(parent[_place(rng, parent)])


def _place(rng: Rng, value: dict[str, Any] | list[Any]) -> Any:
    """A key of a dict or a position in a list."""
    if isinstance(value, dict):
        return pick(rng, list(value))
    return int(rng.integers(len(value)))


# ---------------------------------------------------------------- safetensors

#: What a header may claim of an array.
LIES = {
    "dtype": [
        "F64",
        "F32",
        "F16",
        "BF16",
        "I64",
        "I32",
        "U8",
        "BOOL",
        "F8_E4M3",
        "I16",
        "U64",
        "C64",
        "X9",
        "",
    ],
    "shape": [
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
    "data_offsets": [[0, 2**63], [8, 0], [-1, 8], [0], "x", [2**64, 2**65]],
}
METADATA = [7, [], {"collidescope": 5}, {"collidescope": {}}, {}, None]


def spoil_header(rng: Rng, data: bytes) -> bytes:
    """A safetensors container whose header lies: lengths, kinds, shapes, places."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    arrays = [header[name] for name in header if name != "__metadata__"]
    entry = pick(rng, arrays)
    others = ["another's place", "the whole body", "metadata", "JSON", "length"]
    lie = pick(rng, [*LIES, *others])
    match lie:
        case "another's place":
            entry["data_offsets"] = pick(rng, arrays)["data_offsets"]
        case "the whole body":
            entry["data_offsets"] = [0, len(body)]
        case "metadata":
            header["__metadata__"] = pick(rng, METADATA)
        case "JSON":
            header = spoil_json(rng, header)
        case "dtype" | "shape" | "data_offsets":
            entry[lie] = pick(rng, LIES[lie])
    text = dump(header).encode("utf-8", "surrogatepass")
    claimed = len(text)
    if lie == "length":
        claimed = pick(rng, [0, 1, length - 1, length + 8, 2**31, 2**63, 2**64 - 1])
    return claimed.to_bytes(8, "little") + text + body


NUMBERS = [np.nan, np.inf, -np.inf, 1e38, -1.0, 0.0]
KINDS = "f2 f4 f8 i1 i4 i8 u1 u2 u8 ?"


def spoil_arrays(rng: Rng, arrays: dict[str, Array]) -> dict[str, Array]:
    """Named arrays, one to three of them changed."""
    arrays = dict(arrays)
    for _ in times(rng, 3):
        if not arrays:
            break
        name = pick(rng, sorted(arrays))
        array = arrays.pop(name)
        match int(rng.integers(8)):
            case 0:  # left out
                continue
            case 1:
                arrays[f"{name}x"] = array
            case 2 if arrays:
                array = pick(rng, list(arrays.values()))
            case _:
                array = spoil_array(rng, array)
        arrays[name] = np.ascontiguousarray(array)
    return arrays


def spoil_array(rng: Rng, array: Array) -> Array:
    """Other numbers, another dtype or another shape."""
    match int(rng.integers(6)):
        case 0 if array.dtype.kind == "f" and array.size:
            array = array.copy()
            array.flat[int(rng.integers(array.size))] = pick(rng, NUMBERS)
            return array
        case 1:
            with np.errstate(all="ignore"):
                return array.astype(pick(rng, KINDS.split()))
        case 2 if array.ndim:
            return array[: len(array) // 2]
        case 3 if array.ndim:
            return np.concatenate([array, array], axis=int(rng.integers(array.ndim)))
        case 4:
            return np.zeros(pick(rng, [(0, 5), ()]), array.dtype)
    return pick(rng, [array.reshape(-1), array[None]])


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
    for _ in times(rng, 5):
        row = int(rng.integers(len(lines)))
        match int(rng.integers(7)):
            case 0:
                lines[row] = lines[row][:-1] or [""]
            case 1:
                lines[row].append(pick(rng, CELLS))
            case 2:
                column = int(rng.integers(len(lines[0])))
                value = pick(rng, CELLS)
                for line in lines[1:]:
                    line[column : column + 1] = [value]
            case 3:
                lines.insert(row, [""])
            case _:
                lines[row][int(rng.integers(len(lines[row])))] = pick(rng, CELLS)
    delimiter = pick(rng, ",,,;\t| ")
    ending = pick(rng, ["\n", "\n", "\r\n", "\r", "\n\r", "\x0b"])
    text = ending.join(delimiter.join(line) for line in lines) + ending
    encoding, other = (pick(rng, ENCODINGS.split()) for _ in range(2))
    data = text.encode(encoding, "replace")
    match int(rng.integers(8)):
        case 0:
            data = blind(rng, data)
        case 1:  # two encodings in one file
            rest = text[len(text) // 2 :]
            data = data[: len(data) // 2] + rest.encode(other, "replace")
        case 2:
            packed = gzip.compress(data, 1)
            if rng.random() < 0.6:
                packed = blind(rng, packed)
            return packed, ".csv.gz"
    suffixes = ".csv .csv .csv .tsv .txt .parquet .gz .xz .data"
    return data, pick(rng, suffixes.split())
