"""Images from files: arrays of uint8 with labels and paths, and bad files by name."""

import gc

import numpy as np
import pandas as pd
import pytest

Image = pytest.importorskip("PIL.Image")

from collidescope.tables.images import read_images  # noqa: E402

rng = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    """Three images of two classes, 8 × 6 pixels, in colour."""
    for name in ("cat/1.png", "cat/2.png", "dog/1.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)).save(path)
    return tmp_path


def test_a_folder_of_subfolders_is_read_to_the_pixel(folder):
    X, y, paths = read_images(folder)
    assert (X.shape, X.dtype) == ((3, 8, 6, 3), np.uint8)
    assert y.tolist() == ["cat", "cat", "dog"]
    for own, path in zip(X, paths, strict=True):
        assert np.array_equal(own, np.asarray(Image.open(path)))


def test_a_table_of_labelled_paths_is_read(folder):
    table = pd.DataFrame({"label": [1, 0], "path": ["dog/1.png", "cat/2.png"]})
    table.to_csv(folder / "list.csv", index=False)
    X, y, paths = read_images(folder / "list.csv")
    assert y.tolist() == [1, 0]
    assert np.array_equal(X, read_images(folder)[0][[2, 1]])
    assert paths[0] == folder / "dog" / "1.png"


def test_grey_images_have_one_channel(folder):
    for path in folder.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert read_images(folder)[0].shape == (3, 8, 6, 1)


def test_16_bit_images_keep_their_upper_half(folder):
    for path in folder.rglob("*.png"):
        Image.fromarray(np.full((8, 6), 0x80FF, dtype=np.uint16)).save(path)
    assert (read_images(folder)[0] == 0x80).all()


def test_images_of_several_sizes_are_scaled_with_a_warning(folder):
    Image.new("RGB", (30, 20), (255, 0, 0)).save(folder / "dog" / "2.png")
    with pytest.warns(match="images of 2 sizes are scaled to 8 × 6 pixels"):
        X, _, _ = read_images(folder)
    assert (X[-1] == [255, 0, 0]).all()


@pytest.mark.filterwarnings("ignore:images of")
@pytest.mark.parametrize(("size", "shape"), [(4, (4, 4)), ((5, 3), (5, 3))])
def test_a_size_may_be_asked_for(folder, size, shape):
    assert read_images(folder, size)[0].shape == (3, *shape, 3)


@pytest.fixture
def broken(folder):
    whole = (folder / "cat" / "1.png").read_bytes()
    (folder / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "text.jpg").write_text("no image")
    return folder


def test_bad_files_are_named(broken):
    with pytest.raises(
        ValueError, match=r"of 5 files .*text\.jpg.* cannot be read.*errors='skip'"
    ):
        read_images(broken)


def test_bad_files_are_skipped_on_request(broken):
    with pytest.warns(match=r"2 of 5 files .*cut\.png.*text\.jpg.* are left out"):
        X, y, paths = read_images(broken, errors="skip")
    assert (len(X), y.tolist(), len(paths)) == (3, ["cat", "cat", "dog"], 3)


def test_files_that_are_no_images_by_name_are_passed_over(folder):
    (folder / "cat" / "Thumbs.db").write_text("")
    (folder / "cat" / "._1.png").write_text("")
    assert len(read_images(folder)[0]) == 3


def test_an_array_beyond_memory_is_refused_with_a_size_to_try(folder):
    with pytest.raises(
        ValueError, match=r"3 images of 8 × 6 take 0.0 GB: pass a smaller size="
    ):
        read_images(folder, most_bytes=100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "dog" / "1.png").unlink(), "no image in the subfolder 'dog'"),
        (
            lambda f: (f / "dog").rename(f / ".dog"),
            "one subfolder per class, at least 2, it has 1",
        ),
    ],
)
def test_a_folder_without_two_classes_is_refused(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        read_images(folder)


def test_a_largest_side_of_nothing_is_refused(folder):
    with pytest.raises(ValueError, match="largest_side"):
        read_images(folder, largest_side=0)


def test_a_file_that_is_cut_short_is_named_and_closed(folder, recwarn):
    whole = folder / "cat" / "1.png"
    whole.write_bytes(whole.read_bytes()[:80])
    with pytest.raises(ValueError, match=r"1\.png"):
        read_images(folder)
    gc.collect()
    assert not [met for met in recwarn if met.category is ResourceWarning]
