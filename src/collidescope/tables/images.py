"""Images from files: a folder with one subfolder per class, or a table of paths and labels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from collidescope._checks import (
    Array,
    CollisionWarning,
    IntArray,
    check_choice,
    check_count,
)
from collidescope.tables.cells import listed
from collidescope.tables.reading import read_table

if TYPE_CHECKING:
    from PIL import Image

Images = npt.NDArray[np.uint8]


def read_images(
    source: str | Path,
    size: int | tuple[int, int] | None = None,
    *,
    label: str | None = None,
    largest_side: int | None = None,
    errors: str = "raise",
    most_bytes: int = 4_000_000_000,
) -> tuple[Images, Array, list[Path]]:
    """Images as an array, with their labels and paths: ``X, y, paths = read_images("photos")``.

    Parameters
    ----------
    source : folder or table
        A folder with one subfolder per class, or a table (CSV, Parquet) with a column of paths,
        relative to its folder, and a column of labels.
    size : int or (height, width), optional
        What images are scaled to. By default they stay as they are if all have one size, else they
        are scaled to the median height and width, and a warning says so.
    label : the column of labels, optional
        By default one that is called "label", "class", "target" or "y", else the last one.
    largest_side : int, optional
        Larger images are scaled down until no side is longer, unless ``size`` is given.
    errors : "raise" or "skip"
        Whether files that cannot be read are an error, or are left out with a warning.
    most_bytes : int, the most memory that the array may take

    Returns
    -------
    X : array of uint8, images × height × width × channels (1 if all are grey, else 3)
    y : array of labels
    paths : list of Path

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name, grey in (("day", 200), ("night", 20)):
    ...         own = Path(folder) / name
    ...         own.mkdir()
    ...         Image.new("L", (4, 3), grey).save(own / "1.png")
    ...     X, y, paths = read_images(folder)
    >>> X.shape, X[:, 0, 0, 0].tolist(), y.tolist()
    ((2, 3, 4, 1), [200, 20], ['day', 'night'])
    """
    check_choice(errors, ["raise", "skip"], "errors")
    if largest_side is not None:
        check_count(largest_side, "largest_side")
    source = Path(source)
    if source.is_dir():
        if label is not None:
            raise ValueError(
                f"label {label!r} is not for a folder, where labels are the names of "
                "subfolders: leave it out"
            )
        paths, labels = _of_folder(source)
    else:
        paths, labels = _of_table(source, label)
    X, kept = _read(paths, size, None, largest_side, errors, most_bytes)
    return X, labels[kept], [paths[number] for number in kept]


def new_images(
    folder: Path,
    shape: tuple[int, ...],
    errors: str,
    most_bytes: int = 4_000_000_000,
) -> tuple[Images, list[Path]]:
    """All images below a folder, as a fit on images (C, H, W) takes them, and their paths."""
    paths = _images_below(folder)
    if not paths:
        raise ValueError(f"source {str(folder)!r} has no image")
    channels, height, width = shape
    X, kept = _read(paths, (height, width), channels, None, errors, most_bytes)
    return X, [paths[number] for number in kept]


def _read(
    paths: Sequence[Path],
    size: int | tuple[int, int] | None,
    channels: int | None,
    largest_side: int | None,
    errors: str,
    most_bytes: int,
) -> tuple[Images, IntArray]:
    """Images that can be read, and the numbers of their paths; warns of the rest."""
    bad: dict[Path, str] = {}
    shapes = [_shape(path, bad) for path in paths]
    _check_bad(bad, len(paths), errors)
    good = [shape for shape in shapes if shape is not None]
    height, width = _common_size(good, size, largest_side)
    if channels is None:
        channels = max(shape[2] for shape in good)
    _check_memory((len(good), height, width, channels), most_bytes)
    X = np.zeros((len(paths), height, width, channels), dtype=np.uint8)
    for number, path in enumerate(paths):
        if path not in bad:
            _read_into(X[number], path, bad)
    _check_bad(bad, len(paths), errors)
    notes = []
    kept = np.flatnonzero([path not in bad for path in paths])
    if bad:
        X = X[kept]
        notes.append(f"{_bad_files(bad, len(paths))} are left out")
    sizes = {shape[:2] for shape in good}
    if sizes != {(height, width)}:
        given = f"{len(sizes)} sizes"
        if len(sizes) == 1:
            given = "{} × {} pixels".format(*sizes.pop())
        notes.append(f"images of {given} are scaled to {height} × {width} pixels")
    for note in notes:
        warnings.warn(note, CollisionWarning, stacklevel=3)
    return X, kept


def _check_memory(shape: tuple[int, int, int, int], most_bytes: int) -> None:
    needed = math.prod(shape)
    if needed > most_bytes:
        raise ValueError(
            f"{shape[0]:,} images of {shape[1]} × {shape[2]} take {needed / 1e9:.1f} GB: "
            "pass a smaller size=, such as size=64, or more most_bytes="
        )


def _of_folder(folder: Path) -> tuple[list[Path], Array]:
    """Files and the names of the subfolders they are in; what is no image by its name is left."""
    classes = [own for own in _shown(folder.iterdir()) if own.is_dir()]
    source = f"source {str(folder)!r}"
    if len(classes) < 2:
        raise ValueError(
            f"{source} must have one subfolder per class, at least 2, it has "
            f"{len(classes)}"
        )
    paths: list[Path] = []
    labels: list[str] = []
    for own in classes:
        images = _images_below(own)
        if not images:
            raise ValueError(f"{source} has no image in the subfolder {own.name!r}")
        paths += images
        labels += [own.name] * len(images)
    return paths, np.array(labels)


def _images_below(folder: Path) -> list[Path]:
    known = _image_module().registered_extensions()
    files = _shown(folder.rglob("*"))
    return [path for path in files if path.suffix.lower() in known and path.is_file()]


def _shown(paths: Iterable[Path]) -> list[Path]:
    """The paths that are not hidden, sorted."""
    return sorted(path for path in paths if not path.name.startswith("."))


def _of_table(table: Path, label: str | None) -> tuple[list[Path], Array]:
    """Paths and labels of a table, by the names of its columns, or the first and the last."""
    frame = read_table(table).frame
    if frame.shape[1] < 2:
        raise ValueError(
            f"source {str(table)!r} must have a column of paths and one of labels"
        )
    names = [str(name) for name in frame.columns]
    if label is not None and label not in names:
        raise ValueError(
            f"label {label!r} is no column of {table.name}: it has {listed(names)}"
        )
    features = [name for name in names if name != label]
    path_column = _named(
        features, ["path", "file", "filename", "image", "filepath"], features[0]
    )
    rest = [name for name in names if name != path_column]
    label_column = label or _named(rest, ["label", "class", "target", "y"], rest[-1])
    labels = frame[label_column]
    n_missing = int(labels.isna().sum())
    if n_missing:
        raise ValueError(
            f"source {str(table)!r} has {n_missing} rows without a label in "
            f"{label_column!r}: drop those rows"
        )
    folder = table.parent
    paths = [folder / str(name) for name in frame[path_column]]
    return paths, labels.to_numpy()


def _named(names: Sequence[str], wanted: Sequence[str], default: str) -> str:
    found = [name for name in names if name.casefold() in wanted]
    return found[0] if found else default


def _image_module() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("images need Pillow: pip install pillow") from None
    return Image


def _opened(path: Path) -> Image.Image:
    """An image the right way up; OSError or ValueError where the file is none."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            upright.format = image.format  # which turning it may lose
        return upright


def _unreadable() -> tuple[type[Exception], ...]:
    from PIL import Image

    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    return (OSError, ValueError, SyntaxError, EOFError, *bombs)


def _shape(path: Path, bad: dict[Path, str]) -> tuple[int, int, int] | None:
    """Height, width and channels of a file; None where it is ``bad``."""
    try:
        image = _opened(path)
    except _unreadable() as error:
        bad[path] = str(error)
        return None
    channels = 1 if _is_grey(image) else 3
    return image.height, image.width, channels


def _is_grey(image: Image.Image) -> bool:
    return image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I")


def _read_into(target: Images, path: Path, bad: dict[Path, str]) -> None:
    """Write the pixels of a file, scaled, into ``target``."""
    from PIL import Image

    height, width, channels = target.shape
    try:
        image = _opened(path)
        # Older versions of Pillow (10.0) open a PNG of 16 bits as one of 32.
        wide = image.mode == "I" and image.format == "PNG"
        if wide or image.mode.startswith("I;16"):  # 16 bits: the upper 8
            upper = np.asarray(image) >> 8
            image = Image.fromarray(upper.astype(np.uint8))
        mode = "RGB"
        if channels == 1:
            mode = "L"
        image = image.convert(mode)
        if image.size != (width, height):
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        target[:] = np.asarray(image).reshape(target.shape)
    except _unreadable() as error:
        bad[path] = str(error)


def _common_size(
    shapes: Sequence[tuple[int, int, int]],
    size: int | tuple[int, int] | None,
    largest_side: int | None,
) -> tuple[int, int]:
    """``size``, or the median of all, made smaller until no side is longer than allowed."""
    if isinstance(size, int):
        size = (size, size)
    if size is not None:
        for side in size:
            check_count(side, "size")
        return size
    sides = np.median([shape[:2] for shape in shapes], axis=0).astype(int)
    factor = min(1.0, (largest_side or np.inf) / sides.max())
    height, width = np.maximum(1, np.rint(sides * factor)).astype(int).tolist()
    return height, width


def _check_bad(bad: dict[Path, str], n_files: int, errors: str) -> None:
    if bad and errors == "raise":
        files = _bad_files(bad, n_files)
        path, why = next(iter(bad.items()))
        raise ValueError(
            f"{files} cannot be read ({path.name}: {why}): remove them, or pass "
            "errors='skip'"
        )
    if len(bad) == n_files:
        raise ValueError(f"none of the {n_files:,} files can be read as an image")


def _bad_files(bad: dict[Path, str], n_files: int) -> str:
    return f"{len(bad):,} of {n_files:,} files ({listed(list(bad))})"
