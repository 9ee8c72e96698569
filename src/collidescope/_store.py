"""Files: trees of arrays and plain values, JSON, and one way to write anything.

A *tree* is nested dicts and lists whose leaves are numpy arrays, text, finite numbers, booleans or
None. Models, matrices and checkpoints are trees, and :func:`write` stores one in a safetensors
file: arrays as tensors, the rest as JSON in the header, with a checksum of all of it::

    header["collidescope"]   a line with the SHA-256 of the next one and of every array, and the
                             JSON text {"format": "collidescope", "version": 6, "kind": "model",
                             "tree": skeleton}
    skeleton                 the tree; instead of an array {"$array": name of its tensor}

Text and object arrays (class names) stand in the skeleton, times are integer tensors with their
dtype. Equal arrays are stored once, large ones of models compressed. Matrices can also be ``.npz``
files of the same entries.

Nothing in a file is trusted: no code is run, sizes are compared with the length of the file before
memory is taken, and anything wrong ends in a :class:`ModelFileError`. The checksum detects damage;
it is not a signature.
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
from typing import IO, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = "collidescope"
VERSION = 6
KINDS = {
    "model": "a model",
    "matrix": "a collision matrix",
    "checkpoint": "a training checkpoint",
}
HEADER = "collidescope"  #: the entry that holds checksum and skeleton
#: Array types that safetensors and numpy share.
STORED = {
    np.dtype(code)
    for code in ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
}
TIMES = re.compile(r"(datetime64|timedelta64)(\[\d{0,9}[a-zA-Z]{1,2}\])?")
#: No array may grow by more than this when it is read, for that is how files fill the memory:
#: smaller ones are padded.
MOST_GROWTH = 50
#: Characters of a file's name that its temporary stand-in keeps: names have at most 255 bytes.
KEPT_NAME = 40

Tree = dict[str, Any]
Arrays = dict[str, npt.NDArray[Any]]


class ModelFileError(ValueError):
    """A file that is not ours, is damaged, or comes from another release."""


def write(
    path: str | Path, kind: str, tree: Mapping[str, Any], *, npz: bool = False
) -> None:
    """Write ``tree`` as a file of ``kind``, "model", "matrix" or "checkpoint": :func:`writing`."""
    flat = _Flat(pack=kind == "model")
    skeleton = flat.add(tree, "")
    content = {"format": FORMAT, "version": VERSION, "kind": kind, "tree": skeleton}
    text = _dumps(content)
    header = f"{_checksum(text, flat.arrays)}\n{text}"
    with writing(path) as file:
        if npz:
            # without allow_pickle, which numpy 1.26 would write as an array
            entries: dict[str, Any] = {HEADER: np.array(header), **flat.arrays}
            np.savez(file, **entries)
        else:
            from safetensors.numpy import save

            file.write(save(flat.arrays, metadata={HEADER: header}))


def read(path: str | Path, kind: str) -> Tree:
    """The tree in a file of ``kind`` that :func:`write` wrote."""
    path = regular_file(path)
    try:
        header, arrays = _read_entries(path)
        return _checked(header, arrays, kind)
    except Exception as error:
        # damaged bytes raise many types of error in the libraries that parse them
        cause = str(error) or type(error).__name__
        raise ModelFileError(
            f"path {str(path)!r} is not {KINDS[kind]} of collidescope, or is damaged: "
            f"{cause}"
        ) from None


def _read_entries(path: Path) -> tuple[str | None, Arrays]:
    """Header and arrays of a file."""
    from safetensors import SafetensorError, safe_open

    with open(path, "rb") as start:
        # two bytes could be the length of a safetensors header
        zipped = start.read(4) == b"PK\3\4"
    if zipped:
        return _read_npz(path)
    # It refuses tensors that overlap, leave gaps, or reach beyond the end of the file.
    try:
        with safe_open(str(path), framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(
            "its bytes are not those of such a file (a table in its place, or cut short?)"
        ) from error
    return metadata.get(HEADER), arrays


def _checked(header: str | None, arrays: Arrays, kind: str) -> Tree:
    """The tree of a file's header and arrays, which may come from anyone."""
    checksum, _, text = (header or "").partition("\n")
    content = _loads(text) if header else None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("it is a file of another program")
    found = content.get("version")
    if found != VERSION:
        raise ValueError(
            f"it has format version {found!r}, this release reads {VERSION}: update, "
            "or write it again"
        )
    if checksum != _checksum(text, arrays):
        raise ValueError("its content does not match its checksum")
    if content["kind"] != kind:
        raise ValueError(f"it holds {KINDS.get(content['kind'], 'something else')}")
    reading = _Reading(arrays)
    tree = reading.value(content["tree"])
    if not isinstance(tree, dict) or reading.used.keys() != arrays.keys():
        raise ValueError("it holds arrays that belong to nothing")
    return tree


class _Flat:
    """The arrays of a tree by the names of their tensors."""

    def __init__(self, pack: bool) -> None:
        self.pack = pack
        self.arrays: Arrays = {}
        self._names: dict[Any, str] = {}

    def add(self, value: object, where: str) -> Any:
        """The skeleton of ``value``, whose place in the tree errors and tensors are named by."""
        if isinstance(value, np.ndarray):
            return self._add_array(value, where)
        if isinstance(value, list | tuple):
            return [
                self.add(part, f"{where}/{number}") for number, part in enumerate(value)
            ]
        if isinstance(value, Mapping):
            return self._add_mapping(value, where)
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        raise ValueError(
            f"{where} cannot be written to a file, got {value!r}: use text, finite "
            "numbers or arrays"
        )

    def _add_mapping(self, value: Mapping[Any, Any], where: str) -> dict[str, Any]:
        """A dict's own keys that start with "$" get another one."""
        added = {}
        for key, part in value.items():
            if not isinstance(key, str):
                raise ValueError(
                    f"{where or 'the tree'} cannot be written: keys must be text, got "
                    f"{key!r}"
                )
            written = f"${key}" if key.startswith("$") else key
            added[written] = self.add(part, f"{where}/{key}" if where else key)
        return added

    def _add_array(self, array: npt.NDArray[Any], where: str) -> dict[str, Any]:
        kind = array.dtype.kind
        if kind == "U":
            return {"$text": array.tolist()}
        if kind == "O" and array.ndim == 1 and not _has_containers(array):
            return {"$objects": self.add(array.tolist(), where)}
        leaf: dict[str, Any] = {}
        plain = array
        if kind in "mM":
            plain = array.view(np.int64)
            leaf = {"dtype": array.dtype.name}
        plain = np.ascontiguousarray(plain, plain.dtype.newbyteorder("="))
        plain = plain.reshape(array.shape)
        if plain.dtype not in STORED:
            raise ValueError(
                f"{where} cannot be written to a file: it is an array of dtype "
                f"{array.dtype}"
            )
        large = plain.nbytes >= 4096  # bytes: such are stored once when they are equal
        if large and self.pack:
            packed = _pack(plain)
            if packed.nbytes < 0.9 * plain.nbytes:
                plain = packed
                leaf = {"dtype": array.dtype.name, "shape": list(array.shape)}
        return {"$array": self._name(plain, leaf, where, large)} | leaf

    def _name(
        self, plain: npt.NDArray[Any], leaf: Tree, where: str, large: bool
    ) -> str:
        """The name of a tensor: a new one, or that of an equal array."""
        twin: Any = object()
        if large:
            twin = (str(leaf), plain.dtype, plain.shape, _digest(plain))
        if twin not in self._names:
            while where in self.arrays or where == HEADER:  # a key may hold a slash
                where += "'"
            self._names[twin] = where
            self.arrays[where] = plain
        return self._names[twin]


def _has_containers(array: npt.NDArray[Any]) -> bool:
    return any(isinstance(part, Mapping | list | tuple | np.ndarray) for part in array)


def _pack(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Compressed, the first bytes of all numbers first: high bytes of indices are alike."""
    columns = array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T
    packed = np.frombuffer(zlib.compress(columns.tobytes(), level=1), np.uint8)
    fewest = math.ceil(array.nbytes / MOST_GROWTH)
    return np.pad(packed, (0, max(0, fewest - packed.size)))


def _unpack(packed: npt.NDArray[Any], shape: list[int], dtype: str) -> npt.NDArray[Any]:
    plain = np.dtype(np.int64 if TIMES.fullmatch(dtype) else dtype)
    size = math.prod(shape) * plain.itemsize
    known = plain in STORED and packed.dtype == np.uint8
    if not known or not 0 < size <= MOST_GROWTH * packed.size:
        raise ValueError(f"{packed.size} bytes claim shape {shape} of {dtype}")
    unpacked = zlib.decompressobj().decompress(packed.tobytes(), size)
    columns = np.frombuffer(unpacked, np.uint8).reshape(plain.itemsize, -1)
    return columns.T.copy().view(plain).reshape(shape)


class _Reading:
    """The inverse of :class:`_Flat`; an error on what it would not have written."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self.used: dict[str, tuple[Tree, npt.NDArray[Any]]] = {}

    def value(self, node: object) -> Any:
        if isinstance(node, list):
            return [self.value(part) for part in node]
        if not isinstance(node, dict):
            return node
        tags = [key for key in node if key.startswith("$") and not key.startswith("$$")]
        if not tags:
            return {
                key.removeprefix("$"): self.value(part) for key, part in node.items()
            }
        keys = node.keys()
        found = None
        if "$array" in tags and keys <= {"$array", "dtype", "shape"}:
            found = self._array(node)
        elif keys == {"$text"}:
            found = _text_array(node["$text"])
        elif keys == {"$objects"}:
            found = _object_array(node["$objects"])
        if found is None:
            raise ValueError(f"{tags[0]!r} has a wrong content")
        return found

    def _array(self, node: Tree) -> npt.NDArray[Any] | None:
        """Read once, however often it is named; nothing where it is named in another way."""
        name = node["$array"]
        dtype = str(node.get("dtype"))
        if name not in self.used:
            array = self.arrays[name]
            if "shape" in node:
                array = _unpack(array, node["shape"], dtype)
            if TIMES.fullmatch(dtype):
                array = array.view(dtype)
            self.used[name] = (node, array)
        first, array = self.used[name]
        return array if first == node else None


def _text_array(value: list[object]) -> npt.NDArray[Any] | None:
    text = np.array(value, dtype=np.str_)
    return text if text.tolist() == value else None  # something else than text


def _object_array(value: list[object]) -> npt.NDArray[Any] | None:
    if any(isinstance(part, list | dict) for part in value):
        return None
    objects = np.empty(len(value), dtype=object)
    objects[:] = value
    return objects


def _digest(array: npt.NDArray[Any]) -> str:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return hashlib.sha256(content.data).hexdigest()


def _checksum(text: str, arrays: Arrays) -> str:
    """The checksum of all content: without it, damage could pass as other numbers."""
    lines = [
        f"{name} {own.dtype} {own.shape} {_digest(own)}"
        for name, own in sorted(arrays.items())
    ]
    return hashlib.sha256("\n".join([text, *lines]).encode()).hexdigest()


def _read_npz(path: Path) -> tuple[str | None, Arrays]:
    """Header and arrays of an .npz file; together they take no more bytes than it has."""
    arrays: Arrays = {}
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise ValueError("its entries claim more bytes than it has")
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if entry.compress_type != zipfile.ZIP_STORED or name in arrays:
                raise ValueError(
                    f"{entry.filename} is compressed or occurs twice, which to_npz "
                    "never does"
                )
            with archive.open(entry) as file:
                _check_claim(file, entry, name)
                file.seek(0)
                arrays[name] = npy.read_array(file, allow_pickle=False)
    if HEADER not in arrays:
        return None, arrays
    return str(arrays.pop(HEADER)), arrays


def _check_claim(file: IO[bytes], entry: zipfile.ZipInfo, name: str) -> None:
    """Refuse an entry whose header claims more than it holds: numpy would take the memory."""
    major, _ = npy.read_magic(file)
    later = npy.read_array_header_2_0
    shape, _, dtype = npy.read_array_header_1_0(file) if major == 1 else later(file)
    known = name == HEADER or dtype in STORED
    if not known or math.prod(shape) * dtype.itemsize > entry.file_size:
        raise ValueError(
            f"{entry.filename} claims shape {shape} of {dtype} in {entry.file_size} bytes"
        )


def write_json(data: Mapping[str, Any], path: str | Path | None = None) -> str:
    """``data`` as JSON text with floats that read back bit for bit; also written to ``path``."""
    # one by one, so that the message can name the one at fault
    for key, value in data.items():
        try:
            _dumps({key: value}, indent=1)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{key} cannot be written as JSON (text, finite numbers, booleans): "
                f"{error}"
            ) from None
    text = _dumps(data, indent=1)
    if path is not None:
        write_bytes(path, text.encode())
    return text


def read_json(source: str | Path) -> Any:
    """The JSON value in the file ``source``, or in the text ``source`` that starts with a brace."""
    if not isinstance(source, str | os.PathLike) or not str(source):
        raise ValueError(f"source must be a file name or JSON text, got {source!r}")
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    where = "the text" if is_text else source
    text = str(source) if is_text else _read_source(source)
    try:
        return _loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"source is not valid JSON, in which numbers are finite ({where}): {error}"
        ) from None


def _read_source(source: str | Path) -> bytes:
    try:
        return regular_file(source).read_bytes()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        # a name too long or with a zero byte: text that lost its start
        raise ValueError(
            f"source cannot be read as a file ({str(source)[:80]!r}): {error}"
        ) from None


def _dumps(value: object, indent: int | None = None) -> str:
    """JSON that any reader takes: NaN, infinities and halves of surrogate pairs are refused."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)
    text.encode()
    return text


def _loads(text: str | bytes) -> Any:
    value = json.loads(text)
    # NaN and 1e999 are read as numbers, "\ud800" as half a character: none could be written again
    _dumps(value)
    return value


def plain_labels(labels: npt.NDArray[Any]) -> Any:
    """Class names as JSON: a list, or for times a dict with their dtype and values."""
    if labels.dtype.kind not in "mM":
        return labels.tolist()
    written: Any = str if labels.dtype.kind == "M" else np.int64
    return {"dtype": labels.dtype.name, "values": labels.astype(written).tolist()}


def labels_from_plain(value: object) -> Any:
    """The inverse of :func:`plain_labels`, for what a file holds."""
    if not isinstance(value, Mapping):
        return value
    dtype = str(value.get("dtype"))
    is_whole = value.keys() == {"dtype", "values"}
    if not is_whole or not TIMES.fullmatch(dtype):
        raise ValueError(
            f"classes must be a list, or times with their dtype, got {str(value)[:80]}"
        )
    return np.array(value["values"]).astype(dtype)


def regular_file(path: str | Path) -> Path:
    """``path``, when it is a file: a device may never end. Else an error, with a name like it."""
    path = Path(path)
    if path.is_file():
        return path
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file")
    if path.exists():
        raise ValueError(f"{path} is a device or pipe: name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"there is no folder {path.parent}, so no {path.name} in it"
        )
    files = [other.name for other in path.parent.iterdir() if other.is_file()]
    hint = f" in {path.parent.resolve()}"
    if near := get_close_matches(path.name, files, 1):
        hint = f": did you mean {near[0]}?"
    raise FileNotFoundError(f"there is no file {path}{hint}")


def check_growth(
    path: Path, size: int, most: int = 200, harmless: int = 50_000_000
) -> None:
    """Refuse a table that grows to ``most`` times its size, beyond ``harmless`` bytes: a bomb."""
    if size > max(harmless, most * path.stat().st_size):
        raise OSError(
            f"it grows to {size:,} bytes or more, {most} times its size: if that is "
            "right, unpack it first, or give a sample of it"
        )


def made_folder(path: str | Path, name: str) -> Path:
    """``path`` as a folder, made where there is none; ``name`` is the argument it came from."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"{name} must be the name of a folder, got {path!r}")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{name} {str(path)!r} cannot be a folder: {error.strerror}"
        ) from None
    return Path(path)


@contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write into, for every output of the package.

    A regular file is replaced at once when all is on disk, keeps its permissions, and stays as it
    was when anything fails. Links are followed, devices and FIFOs written into; folders, sockets
    and block devices are refused.
    """
    target, mode = _target(path)
    if target is None:
        with _naming(path), open(path, "ab") as file:
            yield file
    else:
        with (
            _naming(path, "; what was there before is as it was"),
            replacing(target, mode) as file,
        ):
            yield file


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write ``content`` to ``path``: see :func:`writing`."""
    with writing(path) as file:
        file.write(content)


def check_output(path: str | Path, fewest_bytes: int = 1 << 14) -> None:
    """Try whether :func:`writing` to ``path`` can work, before the work; changes nothing.

    It writes fewer bytes than our files take.
    """
    target, mode = _target(path)
    there = target is None or mode is not None
    with _naming(path):
        if there and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if target is not None:
            with replacing(target, keep=False) as file:
                file.write(bytes(fewest_bytes))


@contextmanager
def replacing(
    target: Path, mode: int | None = None, keep: bool = True
) -> Iterator[BinaryIO]:
    """A temporary file that takes the place of ``target`` when the block ends.

    Unless it is only tried (not ``keep``). It lies beside ``target`` and is locked until its
    process ends: those that killed writes left are removed.
    """
    prefix = f".{target.name[:KEPT_NAME]}.new-"
    _remove_left(target, prefix)
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
        # on a read-only file system: the cause is the error worth showing
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _remove_left(target: Path, prefix: str) -> None:
    """Remove the files that killed writes left beside ``target``, which nobody has locked."""
    ours = re.compile(f"{re.escape(prefix)}[0-9a-f]{{16}}")
    with suppress(OSError):  # a folder that may be written to but not listed
        for name in filter(ours.fullmatch, os.listdir(target.parent)):
            path = target.with_name(name)
            with suppress(OSError), open(path, "r+b") as left:
                _lock(left)
                path.unlink()


def _lock(file: BinaryIO) -> None:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _target(path: str | Path) -> tuple[Path | None, int | None]:
    """The file to replace and its mode; no file for what is written into; else ValueError."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be a file name, got {path!r}")
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        # a loop of links, a zero byte, a name too long
        raise ValueError(
            f"path must be a file name, got {str(path)[:80]!r}: {error}"
        ) from None
    if mode is not None and _is_written_into(path, mode):
        return None, None
    if mode is not None and stat.S_ISDIR(mode):
        raise ValueError(f"path must be a file name, got a folder: {path}")
    if mode is not None and not stat.S_ISREG(mode):
        raise ValueError(f"path must be a file name, got a device: {path}")
    # what a symbolic link points to, which may be yet to be made
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"path {path} is in a folder that does not exist: make the folder first"
        )
    return target, mode


def _is_written_into(path: str | Path, mode: int) -> bool:
    """Devices, FIFOs and open files of a process, behind which may be a file: not replaced."""
    descriptor = r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|\d+)/fd/\d+"
    if re.fullmatch(descriptor, str(path)):
        return True
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


@contextmanager
def _naming(path: str | Path, more: str = "") -> Iterator[None]:
    """Errors of the system with the name of the file: a full disk, a folder that is protected."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        words = f"{error.strerror or error}: {path} cannot be written{more}"
        if error.errno is None:
            raise OSError(words) from None
        raise OSError(error.errno, words) from None
