"""Makes the pictures in docs/screenshots: the report of three data sets in a headless Chromium.

    python docs/screenshots.py

needs the extras ``report`` and ``dev`` and a Chromium on PATH, and takes about two minutes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

import collidescope as cs
from collidescope import applications

FOLDER = Path(__file__).parent / "screenshots"


def digits(path: Path) -> None:
    """Ten classes of images, with an audit and the shuffled-label control."""
    X, y = load_digits(return_X_y=True)
    clf = cs.CollisionClassifier(random_state=0).fit(X, y)
    y_pred = cross_val_predict(KNeighborsClassifier(40), X, y)
    options = {
        "y_pred": y_pred,
        "image_shape": (8, 8),
        "control": clf.shuffled_control(X, y),
    }
    cs.report(clf, X, y, path, title="Handwritten digits of 8×8 pixels", **options)


def tumours(path: Path) -> None:
    """Two classes of table rows, seen through two of their columns only."""
    data = load_breast_cancer(as_frame=True)
    X, y = (
        data.data[["mean texture", "mean smoothness"]],
        data.target_names[data.target],
    )
    P = cs.theory.crossfit_posteriors(
        LogisticRegression(max_iter=1000), X / X.std(), y, random_state=0
    )
    cs.report(P, X, y, path, title="Two kinds of tumours, two columns")


def decisions(path: Path) -> None:
    """What the commands for decisions answer, as sections of one report."""
    data = load_wine(as_frame=True)
    X, y = (
        data.data[["alcohol", "hue", "ash", "magnesium"]],
        data.target_names[data.target],
    )
    P = cs.theory.crossfit_posteriors(
        LogisticRegression(max_iter=1000), X / X.std(), y, random_state=0
    )
    half = np.where(
        X["magnesium"] > X["magnesium"].median(), "much magnesium", "little magnesium"
    )
    Q = cs.theory.crossfit_posteriors(
        LogisticRegression(max_iter=1000),
        (X / X.std())[["alcohol", "hue"]],
        y,
        random_state=0,
    )
    sections = [applications.ceilings(P, y), applications.collisions_by(P, y, half)]
    sections += [applications.split_candidates(P, y)]
    sections += [
        applications.column_value(None, X, y, random_state=0),
        applications.collision_change(P, y, Q),
    ]
    about = {"file": "wine.csv", "label": "cultivar"}
    cs.report(P, X, y, path, about=about, sections=sections)


def families(path: Path) -> None:
    """A hundred classes in twenty families, alike within a family."""
    rng = np.random.default_rng(0)
    family = np.repeat(np.arange(20), 5)
    centres = 2.2 * rng.standard_normal((20, 12))[family] + 0.9 * rng.standard_normal(
        (100, 12)
    )
    codes = rng.permutation(np.repeat(np.arange(100), 120))
    X = centres[codes] + rng.standard_normal((len(codes), 12))
    distance = ((X[:, None, :] - centres) ** 2).sum(axis=2)
    P = np.exp(-(distance - distance.min(axis=1, keepdims=True)) / 2)
    names = np.array(
        [f"family {chr(65 + f)}, kind {k % 5 + 1}" for k, f in enumerate(family)]
    )
    P /= P.sum(axis=1, keepdims=True)
    cm = cs.collision_matrix_from_posteriors(P, names[codes], classes=names)
    cs.report(cm, path=path, title="A hundred kinds in twenty families")


def move_to(page: Page, step: int) -> None:
    """Set the slider of the merge explorer."""
    slider = page.locator("#step")
    slider.evaluate(
        "(e, s) => { e.value = s; e.dispatchEvent(new Event('input')) }", step
    )
    page.wait_for_timeout(500)


def main() -> None:
    """Write all pictures."""
    browser_path = next(
        found for name in ("chromium", "google-chrome") if (found := shutil.which(name))
    )
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox"]
        )

        def visit(
            make,
            scheme: str = "light",
            width: int = 1200,
            height: int = 900,
            start: str = "answer",
        ) -> Page:
            path = Path(folder) / f"{make.__name__}.html"
            if not path.exists():
                make(path)
            view = {"width": width, "height": height}
            page = browser.new_page(
                color_scheme=scheme, viewport=view, reduced_motion="reduce"
            )
            page.goto(path.as_uri())
            if start != "answer":
                page.evaluate(
                    "id => document.getElementById(id).scrollIntoView()", start
                )
            page.wait_for_timeout(300)
            return page

        def keep(page: Page, name: str) -> None:
            page.screenshot(path=FOLDER / f"{name}.png")
            print(
                f"{name}.png, {(FOLDER / f'{name}.png').stat().st_size / 1000:.0f} kB"
            )

        keep(visit(digits, height=980), "report-answer")

        page = visit(digits, start="matrix", height=960)
        box = page.locator("#heatmap canvas").bounding_box()
        order = page.evaluate(
            "JSON.parse(document.getElementById('summary').textContent).leaf_order"
        )
        column, row = (
            (order.index(digit) + 0.5) / len(order) for digit in (1, 8)
        )  # 8 seen again as 1
        for shift in (0, 2):
            page.mouse.move(
                box["x"] + column * box["width"] + shift, box["y"] + row * box["height"]
            )
        page.wait_for_selector("#tip:not([hidden])")
        keep(page, "report-matrix")

        page = visit(digits, "dark", start="merge", height=960)
        move_to(page, 4)
        keep(page, "report-merging-dark")

        page = visit(families, start="matrix", height=960)
        keep(page, "report-hundred-classes")

        keep(visit(decisions, start="section-1", height=1300), "report-decisions")

        keep(visit(tumours, "dark", 390, 1200), "report-phone-dark")
        browser.close()


if __name__ == "__main__":
    main()
