"""The command ``fit`` on image files: folders, tables of paths, bad files, the report."""

import io

import numpy as np
import pandas as pd
import pytest

Image = pytest.importorskip("PIL.Image")

import collidescope as cs  # noqa: E402
from helpers import bad, good, told  # noqa: E402

FAST = "fit photos --cv 2 --members linear --no-limit"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Sixty grey images of two classes that overlap, 8 × 6 pixels."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    for shade, name in ((90, "dusk"), (130, "noon")):
        own = folder / name
        own.mkdir(parents=True)
        for number in range(30):
            pixels = shade + rng.normal(0, 30) + rng.normal(0, 20, (8, 6))
            grey = np.clip(pixels, 0, 255).astype(np.uint8)
            Image.fromarray(grey).save(own / f"{number:02}.png")
    return folder


def test_a_folder_is_fitted(photos):
    summary = told(FAST)
    assert summary["classes"] == ["dusk", "noon"]
    assert summary["n_rows"] == 60


def test_a_table_of_paths_is_fitted(photos):
    files = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.png"))
    light = [file.startswith("noon") for file in files]
    table = pd.DataFrame({"file": files, "number": range(60), "bright": light})
    table.to_csv(photos / "list.csv", index=False)
    command = FAST.replace("photos", "photos/list.csv --images --label bright")
    assert told(command)["classes"] == ["False", "True"]


@pytest.fixture
def broken(photos):
    """A file among the images that is none."""
    (photos / "dusk" / "broken.png").write_text("no image")


def test_a_file_that_is_no_image_is_named(broken):
    said = bad(FAST)
    assert "broken.png" in said
    assert "--skip-bad" in said


def test_files_that_are_no_images_are_skipped_on_request(broken):
    summary = told(f"{FAST} --skip-bad")
    assert summary["n_rows"] == 60
    assert any("broken.png" in note for note in summary["notes"])


def test_posteriors_are_written_with_the_names_of_files(photos):
    good(f"{FAST} -q --out heldout.csv")
    table = pd.read_csv("heldout.csv")
    assert table["file"][0] == "dusk/00.png"
    assert table["label"].tolist() == ["dusk"] * 30 + ["noon"] * 30


def test_the_model_of_a_folder_scores_images(photos):
    good(f"{FAST} -q --save m.collide")
    X, _, _ = cs.read_images(photos)
    assert cs.load("m.collide").predict_proba(X).shape == (60, 2)


@pytest.mark.parametrize("option", ["--drop file", "--groups a", "--unique"])
def test_options_of_columns_are_refused(photos, option):
    assert option.split()[0] in bad(f"{FAST} {option}")


def test_a_sample_of_images_is_fitted(photos):
    assert told(f"{FAST} --sample 40")["n_rows"] == 40


def test_large_images_are_scaled_down_with_a_note(photos):
    for path in photos.rglob("*.png"):
        Image.open(path).resize((300, 400)).save(path)
    notes = told(FAST)["notes"]
    assert any("scaled to 96 × 72 pixels" in note for note in notes)


def test_the_report_shows_images_between_classes(photos, tmp_path):
    good(f"{FAST} -q --report report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Images between <bdi>dusk</bdi> and <bdi>noon</bdi>" in page


def test_images_between_classes_are_likely_of_both(photos):
    (pair,) = told(FAST)["ambiguous_rows"]["pairs"]
    for row in pair["rows"]:
        assert row["image"].startswith("data:image/png")
        assert min(bar["probability"] for bar in row["posterior"]) >= 0.1


@pytest.fixture
def saved(photos):
    good(f"{FAST} --save photos.collide")
    return photos


def predicted(command):
    """The table that a command prints."""
    return pd.read_csv(io.StringIO(good(f"predict photos.collide {command}").stdout))


def test_images_below_a_folder_are_predicted_by_name(saved, tmp_path):
    new = tmp_path / "new" / "today"
    new.mkdir(parents=True)
    large = np.full((16, 12), 230, np.uint8)  # twice the size: it is scaled
    Image.fromarray(large).save(new / "bright.png")
    table = predicted("new")
    assert table[["file", "predicted"]].to_numpy().tolist() == [
        ["today/bright.png", "noon"]
    ]


def test_new_images_that_cannot_be_read_are_named(saved):
    (saved / "dusk" / "broken.png").write_text("no image")
    assert "broken.png" in bad("predict photos.collide photos")


def test_new_images_that_cannot_be_read_are_left_out_on_request(saved):
    (saved / "dusk" / "broken.png").write_text("no image")
    assert len(predicted("photos --skip-bad")) == 60


def test_a_folder_is_nothing_for_a_model_of_a_table(photos, rng):
    table = pd.DataFrame({"x": rng.normal(size=60), "y": np.arange(60) % 2})
    table.to_csv("table.csv", index=False)
    good(FAST.replace("photos", "table.csv --label y --save table.collide"))
    assert "the model was fitted on a table" in bad("predict table.collide photos")


def test_a_table_is_nothing_for_a_model_of_images(saved, tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n1,2\n3,4\n")
    assert "the model was fitted on images" in bad("predict photos.collide table.csv")
