"""Files: trees of arrays and plain values, JSON, and one way to write anything.

A *tree* is nested dicts and lists whose leaves are numpy arrays, text, finite numbers, booleans or None. Models,
matrices and checkpoints are trees, and :func:`write` stores one in a safetensors file: arrays as tensors, the rest as
JSON in the header, with a checksum of all of it::

    header["collidescope"]   a line with the SHA-256 of the next one and of every array, and the JSON text
                             {"format": "collidescope", "version": 3, "kind": "model", "tree": skeleton}
    skeleton                 the tree; instead of an array {"$array": name of its tensor}

Text and object arrays (class names) stand in the skeleton, times are integer tensors with their dtype. Equal arrays
are stored once, large ones of models compressed. Matrices can also be ``.npz`` files of the same entries.

Nothing in a file is trusted: no code is run, sizes are compared with the length of the file before memory is taken,
and whatever is wrong ends in a :class:`ModelFileError`. The checksum detects damage; it is not a signature.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT, VERSION = "collidescope", 3
KINDS = {"model": "a model", "matrix": "a collision matrix", "checkpoint": "a training checkpoint"}
HEADER = "collidescope"  #: the entry that holds checksum and skeleton
#: Keys of a dict in the skeleton that stands for an array. A dict's own keys that start with "$" get another one.
ARRAY, TEXT, OBJECTS, DTYPE, SHAPE = "$array", "$text", "$objects", "dtype", "shape"
#: Array types that safetensors and numpy share.
STORED = {
    np.dtype(name)
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
CONTAINERS = (Mapping, list, tuple, np.ndarray)
TIMES = re.compile(r"(datetime64|timedelta64)(\[\d{0,9}[a-zA-Z]{1,2}\])?")
#: Arrays of this many bytes are stored once when they are equal, and in models compressed when that saves a tenth. None
#: may grow by more than MOST_GROWTH when it is read, for that is how files fill the memory: smaller ones are padded.
LARGE, WORTH, MOST_GROWTH = 4096, 0.9, 50
#: Open files of this process: what stands behind them may be a file, but it must not be replaced.
DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|\d+)/fd/\d+")
KEPT_NAME = 40  #: characters of a file's name that its temporary stand-in keeps: names have a limit of 255 bytes
LEAST_ROOM = (
    1 << 14
)  #: what :func:`check_output` writes to see whether there is room: less than our files in use

Tree = dict[str, Any]
Arrays = dict[str, npt.NDArray[Any]]


class ModelFileError(ValueError):
    """A file that is not ours, is damaged, or comes from another release."""


def write(path: str | Path, kind: str, tree: Mapping[str, Any], *, npz: bool = False) -> None:
    """Write ``tree`` as a file of ``kind`` ("model", "matrix" or "checkpoint"): see :func:`writing`."""
    flat = _Flat(pack=kind == "model")
    text = _dumps({"format": FORMAT, "version": VERSION, "kind": kind, "tree": flat.add(tree, "")})
    text = f"{_checksum(text, flat.arrays)}\n{text}"
    with writing(path) as file:
        if npz:
            entries: dict[str, Any] = {HEADER: np.array(text), **flat.arrays}
            np.savez(
                file, **entries
            )  # without allow_pickle, which numpy 1.26 would write as an array
        else:
            from safetensors.numpy import save

            file.write(save(flat.arrays, metadata={HEADER: text}))


def read(path: str | Path, kind: str) -> Tree:
    """The tree in a file of ``kind`` that :func:`write` wrote."""
    from safetensors import safe_open

    path = regular_file(path)
    try:
        with open(path, "rb") as start:
            zipped = (
                start.read(4) == b"PK\3\4"
            )  # two bytes could be the length of a safetensors header
        if zipped:
            return _checked(*_read_npz(path), kind)
        # It refuses tensors that overlap, leave gaps, or reach beyond the end of the file.
        with safe_open(str(path), framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return _checked((file.metadata() or {}).get(HEADER), arrays, kind)
    except (
        Exception
    ) as error:  # damaged bytes raise many types of error in the libraries that parse them
        words = f"{KINDS[kind]} of collidescope, or is damaged: {error if str(error) else type(error).__name__}"
        raise ModelFileError(f"path {str(path)!r} is not {words}") from None


def _checked(header: str | None, arrays: Arrays, kind: str) -> Tree:
    """The tree of a file's header and arrays, which may come from anyone."""
    checksum, _, text = (header or "").partition("\n")
    content = _loads(text) if header else None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("it is a file of another program")
    if (found := content.get("version")) != VERSION:
        raise ValueError(
            f"it has format version {found!r}, this release reads {VERSION}: update, or write it again"
        )
    if checksum != _checksum(text, arrays):
        raise ValueError("its content does not match its checksum")
    if content["kind"] != kind:
        raise ValueError(f"it holds {KINDS.get(content['kind'], 'something else')}")
    used: dict[str, Any] = {}
    tree = _unflatten(content["tree"], arrays, used)
    if not isinstance(tree, dict) or used.keys() != arrays.keys():
        raise ValueError("it holds arrays that belong to nothing")
    return tree


class _Flat:
    """The arrays of a tree by the names of their tensors."""

    def __init__(self, pack: bool) -> None:
        self.pack = pack
        self.arrays: Arrays = {}
        self._names: dict[Any, str] = {}

    def add(self, value: Any, where: str) -> Any:
        """The skeleton of ``value``; ``where`` is its place in the tree, as errors and tensors name it."""
        if isinstance(value, np.ndarray):
            return self._add_array(value, where)
        if isinstance(value, list | tuple):
            return [self.add(part, f"{where}/{i}") for i, part in enumerate(value)]
        if isinstance(value, Mapping):
            if not all(isinstance(key, str) for key in value):
                raise ValueError(
                    f"{where or 'the tree'} cannot be written: keys must be text, got {list(value)[:5]}"
                )
            inside = f"{where}/" if where else ""
            return {
                f"{'$' * key.startswith('$')}{key}": self.add(part, inside + key)
                for key, part in value.items()
            }
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = value.item()
        if (
            value is None
            or isinstance(value, bool | int | str)
            or (isinstance(value, float) and math.isfinite(value))
        ):
            return value
        raise ValueError(
            f"{where} cannot be written to a file, got {value!r}: use text, finite numbers or arrays"
        )

    def _add_array(self, array: npt.NDArray[Any], where: str) -> dict[str, Any]:
        if array.dtype.kind == "U":
            return {TEXT: array.tolist()}
        if (
            array.dtype.kind == "O"
            and array.ndim == 1
            and not any(isinstance(part, CONTAINERS) for part in array)
        ):
            return {OBJECTS: self.add(array.tolist(), where)}
        times = array.dtype.kind in "mM"
        plain = array.view(np.int64) if times else array
        plain = np.ascontiguousarray(plain, plain.dtype.newbyteorder("=")).reshape(array.shape)
        if plain.dtype not in STORED:
            raise ValueError(
                f"{where} cannot be written to a file: it is an array of dtype {array.dtype}"
            )
        leaf: dict[str, Any] = {DTYPE: array.dtype.name} if times else {}
        large = plain.nbytes >= LARGE
        packed = _pack(plain) if self.pack and large else plain
        if packed.nbytes < WORTH * plain.nbytes:
            plain, leaf = packed, {DTYPE: array.dtype.name, SHAPE: list(array.shape)}
        twin = (str(leaf), plain.dtype, plain.shape, _digest(plain)) if large else object()
        if twin not in self._names:
            while where in self.arrays or where == HEADER:  # a key may hold a slash
                where += "'"
            self._names[twin], self.arrays[where] = where, plain
        return {ARRAY: self._names[twin]} | leaf


def _pack(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Compressed, with the first bytes of all numbers first: high bytes of indices and of sorted numbers are alike."""
    columns = array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T
    packed = np.frombuffer(zlib.compress(columns.tobytes(), level=1), np.uint8)
    return np.pad(packed, (0, max(0, math.ceil(array.nbytes / MOST_GROWTH) - packed.size)))


def _unpack(packed: npt.NDArray[Any], shape: Any, dtype: str) -> npt.NDArray[Any]:
    plain = np.dtype(np.int64 if TIMES.fullmatch(dtype) else dtype)
    size = math.prod(shape) * plain.itemsize
    if plain not in STORED or packed.dtype != np.uint8 or not 0 < size <= MOST_GROWTH * packed.size:
        raise ValueError(f"{packed.size} bytes claim shape {shape} of {dtype}")
    columns = zlib.decompressobj().decompress(packed.tobytes(), size)
    return (
        np.frombuffer(columns, np.uint8)
        .reshape(plain.itemsize, -1)
        .T.copy()
        .view(plain)
        .reshape(shape)
    )


def _unflatten(node: Any, arrays: Arrays, used: dict[str, Any]) -> Any:
    """The inverse of :meth:`_Flat.add`; an error on what it would not have returned."""
    if isinstance(node, list):
        return [_unflatten(part, arrays, used) for part in node]
    if not isinstance(node, dict):
        return node
    tags = [key for key in node if key.startswith("$") and not key.startswith("$$")]
    if not tags:
        return {key.removeprefix("$"): _unflatten(part, arrays, used) for key, part in node.items()}
    value, dtype = node[tags[0]], node.get(DTYPE)
    if ARRAY in tags and node.keys() <= {ARRAY, DTYPE, SHAPE}:
        if value not in used:  # once, however often it is named
            array = (
                _unpack(arrays[value], node[SHAPE], str(dtype)) if SHAPE in node else arrays[value]
            )
            used[value] = node, array.view(dtype) if TIMES.fullmatch(str(dtype)) else array
        if used[value][0] == node:
            return used[value][1]
    if (
        node.keys() == {TEXT} and (text := np.array(value, dtype=np.str_)).tolist() == value
    ):  # nothing but text
        return text
    if node.keys() == {OBJECTS} and not any(isinstance(part, list | dict) for part in value):
        objects = np.empty(len(value), dtype=object)
        objects[:] = value
        return objects
    raise ValueError(f"{tags[0]!r} has a wrong content")


def _digest(array: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()


def _checksum(text: str, arrays: Arrays) -> str:
    """Of all content, against damage that would otherwise pass as other numbers."""
    lines = [
        f"{name} {own.dtype} {own.shape} {_digest(own)}" for name, own in sorted(arrays.items())
    ]
    return hashlib.sha256("\n".join([text, *lines]).encode()).hexdigest()


def _read_npz(path: Path) -> tuple[str | None, Arrays]:
    """Header and arrays of an .npz file; together they take no more bytes than it has."""
    arrays: Arrays = {}
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise ValueError("its entries claim more bytes than it has")
        for entry in archive.infolist():
            name, size = entry.filename.removesuffix(".npy"), entry.file_size
            if entry.compress_type != zipfile.ZIP_STORED or name in arrays:
                raise ValueError(
                    f"{entry.filename} is compressed or occurs twice, which to_npz never does"
                )
            with archive.open(entry) as file:
                major, _ = npy.read_magic(file)
                shape, _, dtype = (
                    npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
                )(file)
                if math.prod(shape) * dtype.itemsize > size or (
                    dtype not in STORED and name != HEADER
                ):
                    raise ValueError(
                        f"{entry.filename} claims shape {shape} of {dtype} in {size} bytes"
                    )
                file.seek(0)
                arrays[name] = npy.read_array(file, allow_pickle=False)
    return str(arrays.pop(HEADER)) if HEADER in arrays else None, arrays


def write_json(data: Mapping[str, Any], path: str | Path | None = None) -> str:
    """``data`` as JSON text with floats that read back bit for bit; also written to ``path`` when given."""
    for key, value in data.items():  # one by one, so that the message can name the one at fault
        try:
            _dumps({key: value}, indent=1)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{key} cannot be written as JSON (text, finite numbers, booleans): {error}"
            ) from None
    text = _dumps(data, indent=1)
    if path is not None:
        write_bytes(path, text.encode())
    return text


def read_json(source: str | Path) -> Any:
    """The JSON value in the file ``source``, or in the text ``source`` when it starts with a brace."""
    if not isinstance(source, str | os.PathLike) or not str(source):
        raise ValueError(f"source must be a file name or JSON text, got {source!r}")
    text: str | bytes = str(source)
    where: str | Path = "the text"
    if not isinstance(source, str) or not source.lstrip().startswith("{"):
        try:
            text, where = regular_file(source).read_bytes(), source
        except FileNotFoundError:
            raise
        except (
            OSError,
            ValueError,
        ) as error:  # a name too long or with a zero byte: text that lost its start
            raise ValueError(
                f"source cannot be read as a file ({str(source)[:80]!r}): {error}"
            ) from None
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"source is not valid JSON, in which numbers are finite ({where}): {error}"
        ) from None


def _dumps(value: Any, **options: Any) -> str:
    """JSON that any reader takes: NaN, infinities and halves of surrogate pairs are refused."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, **options)
    text.encode()
    return text


def _loads(text: str | bytes) -> Any:
    value = json.loads(text)
    _dumps(
        value
    )  # NaN and 1e999 are read as numbers, "\ud800" as half a character: none could be written again
    return value


def plain_labels(labels: npt.NDArray[Any]) -> Any:
    """Class names as JSON: a list, or for times a dict with their dtype and values."""
    if labels.dtype.kind not in "mM":
        return labels.tolist()
    return {
        DTYPE: labels.dtype.name,
        "values": labels.astype(str if labels.dtype.kind == "M" else np.int64).tolist(),
    }


def labels_from_plain(value: Any) -> Any:
    """The inverse of :func:`plain_labels`, for what a file holds."""
    if not isinstance(value, Mapping):
        return value
    if value.keys() != {DTYPE, "values"} or not TIMES.fullmatch(str(value[DTYPE])):
        raise ValueError(
            f"classes must be a list, or times with their dtype, got {str(value)[:80]}"
        )
    return np.array(value["values"]).astype(value[DTYPE])


def regular_file(path: str | Path) -> Path:
    """``path``, when it is a file: a device or FIFO may never end. Else an error, with a name like it."""
    path = Path(path)
    if path.is_file():
        return path
    if path.exists():
        raise ValueError(
            f"{path} is a {'folder' if path.is_dir() else 'device or pipe'}: name a file"
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}, so no {path.name} in it")
    near = get_close_matches(
        path.name, [other.name for other in path.parent.iterdir() if other.is_file()], 1
    )
    hint = f": did you mean {near[0]}?" if near else f" in {path.parent.resolve()}"
    raise FileNotFoundError(f"there is no file {path}{hint}")


def made_folder(path: str | Path, name: str) -> Path:
    """``path`` as a folder, made where there is none; ``name`` is the argument that it came from."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{name} must be the name of a folder, got {path!r}")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{name} {str(path)!r} cannot be a folder: {error.strerror}") from None
    return Path(path)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write into, for every output of the package.

    A regular file is replaced at once when all is on disk, keeps its permissions, and stays as it was when anything
    fails. Links are followed, devices and FIFOs written into; folders, sockets and block devices are refused.
    """
    target, mode = _target(path)
    if target is None:
        with _naming(path), open(path, "ab") as file:
            yield file
    else:
        with _naming(path, "; what was there before is as it was"), replacing(target, mode) as file:
            yield file


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path``: see :func:`writing`."""
    with writing(path) as file:
        file.write(content)


def check_output(path: str | Path) -> None:
    """Try whether :func:`writing` to ``path`` can work, before the work whose result goes there; changes nothing."""
    target, mode = _target(path)
    with _naming(path):
        if (mode is not None or target is None) and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if target is not None:
            with replacing(target, keep=False) as file:
                file.write(bytes(LEAST_ROOM))


@contextmanager
def replacing(target: Path, mode: int | None = None, keep: bool = True) -> Iterator[BinaryIO]:
    """A temporary file that takes the place of ``target`` when the block ends, unless it is only tried (``keep``).

    It lies beside ``target`` and is locked until its process ends: those that killed writes left are removed.
    """
    prefix = f".{target.name[:KEPT_NAME]}.new-"
    ours = re.compile(re.escape(prefix) + "[0-9a-f]{16}")
    with suppress(OSError):  # a folder that may be written to but not listed
        for name in filter(ours.fullmatch, os.listdir(target.parent)):
            with suppress(OSError), open(target.with_name(name), "r+b") as left:
                _lock(left)
                os.unlink(left.name)
    beside = target.with_name(f"{prefix}{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            with suppress(OSError):  # a file system without locks
                _lock(file)
            yield file
            file.flush()
            if not keep:
                return
            os.fsync(file.fileno())
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))
            if fcntl is None:  # Windows does not rename open files
                file.close()
            os.replace(beside, target)
    finally:
        with suppress(OSError):  # on a read-only file system: the cause is the error worth showing
            beside.unlink(missing_ok=True)


def _lock(file: BinaryIO) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _target(path: str | Path) -> tuple[Path | None, int | None]:
    """The file to replace and the mode it has; no file for what is written into; ValueError for any other thing."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be a file name, got {path!r}")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:  # a loop of links, a zero byte, a name too long
        raise ValueError(f"path must be a file name, got {str(path)[:80]!r}: {error}") from None
    if mode is not None and (
        stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or DESCRIPTOR.fullmatch(str(path))
    ):
        return None, None
    if mode is not None and not stat.S_ISREG(mode):
        raise ValueError(
            f"path must be a file name, got a {'folder' if stat.S_ISDIR(mode) else 'device'}: {path}"
        )
    target = Path(
        os.path.realpath(path)
    )  # what a symbolic link points to, which may be yet to be made
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path {path} is in a folder that does not exist: make the folder first"
        )
    return target, mode


@contextmanager
def _naming(path: str | Path, more: str = "") -> Iterator[None]:
    """Errors of the system with the name of the file: a full disk, a folder that may not be written to."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        words = f"{error.strerror or error}: {path} cannot be written{more}"
        raise OSError(*([] if error.errno is None else [error.errno]), words) from None
