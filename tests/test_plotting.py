"""Displays show the data that they are given, for few classes and many, with any class names."""

import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import collidescope as cs
from collidescope.show import (
    CollisionMatrixDisplay,
    DendrogramDisplay,
    LimitDisplay,
    PosteriorDisplay,
)
from collidescope.show.displays import REACH
from helpers import limit_like, planted, random_posteriors

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

ODD = [
    "$a$",
    "$",
    "_under",
    "<b>&amp;</b>",
    "x" * 300,
    "two\nlines",
    r"\frac{1}{2}",
    "50%",
    "",
    "ünï ✓",
]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def exact(k, classes=None):
    return cs.CollisionMatrix(*planted(k), classes=classes)


def posteriors(n, k):
    return np.random.default_rng(0).dirichlet(np.ones(k), n)


def heat_map(cm, **options):
    return CollisionMatrixDisplay.from_matrix(cm, **options)


def tick_names(ax, side="y"):
    return [label.get_text() for label in getattr(ax, f"get_{side}ticklabels")()]


EVERY = {
    "heat map": lambda cm: heat_map(cm).plot,
    "pairs": lambda cm: heat_map(cm).plot_pairs,
    "dendrogram": lambda cm: DendrogramDisplay.from_plan(cs.consolidate(cm, 2)).plot,
    "limit": lambda cm: LimitDisplay.from_limit(limit_like(cm)).plot,
    "posteriors": lambda cm: (
        PosteriorDisplay.from_posteriors(
            posteriors(3, cm.n_classes),
            cm.classes,
            np.zeros((3, 5, 6)),
            [cm.classes[0]] * 3,
        ).plot
    ),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_display_draws_odd_names_on_any_axes(name):
    plot = EVERY[name](exact(len(ODD), ODD))
    display = plot()
    display.figure_.draw_without_rendering()
    texts = [
        text._preprocess_math(text.get_text())
        for text in display.figure_.findobj(matplotlib.text.Text)
    ]
    assert not any(mathematics for _, mathematics in texts)
    assert any("$a$" in text for text, _ in texts) or name in ("limit", "pairs")
    figure, (left, right) = plt.subplots(1, 2)
    assert plot(right) is display
    assert (display.ax_, display.figure_) == (right, figure)
    assert not left.has_data()
    with pytest.raises(ValueError, match="ax must be one matplotlib Axes, got ndarray"):
        plot(np.array([None, None]))


@pytest.mark.parametrize("name", EVERY)
def test_a_display_says_what_to_install(name, monkeypatch):
    plot = EVERY[name](exact(len(ODD), ODD))
    for module in list(sys.modules):
        if module.split(".")[0] == "matplotlib":
            monkeypatch.setitem(sys.modules, module, None)
    needs = r"Display.plot needs matplotlib: pip install collidescope\[plot\]"
    with pytest.raises(ImportError, match=needs):
        plot()


@pytest.mark.parametrize("name", ["heat map", "dendrogram", "posteriors"])
def test_many_classes_draw_without_names_on_top_of_each_other(name):
    display = EVERY[name](exact(100))()
    display.figure_.draw_without_rendering()
    for ax in [display.ax_, *getattr(display, "axes_", [])]:
        for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
            boxes = [label.get_window_extent() for label in labels if label.get_text()]
            assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_the_heat_map_shows_s():
    cm = exact(12)
    display = heat_map(cm).plot()
    shown = display.im_.get_array()
    assert_array_equal(shown.data, cm.matrix)
    assert_array_equal(shown.mask, np.eye(12, dtype=bool))
    written = [[float(text.get_text()) for text in row] for row in display.text_]
    assert_allclose(written, cm.matrix, atol=0.0051)
    places = [text.get_position() for text in display.text_[1]]
    assert places == [(j, 1) for j in range(12)]
    names = [str(name) for name in range(12)]
    assert tick_names(display.ax_, "x") == tick_names(display.ax_) == names
    assert heat_map(exact(21)).plot().text_ is None


def test_the_heat_map_takes_options():
    display = heat_map(exact(12)).plot()
    assert display.plot(include_values=False, colorbar=False).text_ is None
    assert display.colorbar_ is None
    assert display.plot(norm=plt.Normalize(0, 1), cmap="Blues").im_.norm.vmax == 1


@pytest.fixture
def image():
    """The heat map of a rare and a frequent collision."""
    S = [[0.08, 0.9, 0.02], [0.9, 0.1, 0.0], [0.02, 0.0, 0.98]]
    return heat_map(cs.CollisionMatrix(S)).plot().im_


def test_a_rare_collision_shows_beside_a_frequent_one(image):
    none, rare, frequent = image.to_rgba(np.array([[0.0, 0.02, 0.9]]))[0]
    assert np.abs(rare - none).max() > 0.1
    assert np.abs(frequent - rare).max() > 0.1


def test_the_diagonal_has_a_colour_of_no_collision(image):
    cells, own = image.to_rgba(image.get_array()), np.eye(3, dtype=bool)
    assert len(np.unique(cells[own], axis=0)) == 1
    assert not (cells[~own] == cells[0, 0]).all(axis=1).any()


def test_clustering_puts_classes_that_collide_side_by_side():
    group = np.arange(24) % 6
    B = np.where(group[:, None] == group, 0.02, 0.0) + 0.5 * np.eye(24)
    S = B / B.sum(axis=1, keepdims=True)
    cm = cs.CollisionMatrix(S, classes=[f"c{k}" for k in range(24)])
    display = heat_map(cm)
    order = display.order
    assert np.count_nonzero(np.diff(group[order])) == 5
    shown = display.plot().im_.get_array().data
    assert_array_equal(shown, cm.matrix[np.ix_(order, order)])
    names = tick_names(display.ax_)
    assert names == cm.classes[order][:: 24 // len(names)].tolist()
    assert heat_map(cm, order="given").order is None


def test_pairs_are_the_top_collisions_with_the_ends_of_their_intervals():
    P, codes = random_posteriors(np.random.default_rng(0), 250, 5)
    cm = cs.collision_matrix_from_posteriors(P, np.array(list("abcde"))[codes])
    display = heat_map(cm, level=0.9).plot_pairs(n=4)
    top = cm.top_collisions(4, 0.9)
    dots, _, (bars,) = display.errorbar_
    assert_allclose(dots.get_xdata(), top["rate"])
    ends = np.array(bars.get_segments())[:, :, 0]
    assert_allclose(ends, top[["low", "high"]])
    assert tick_names(display.ax_) == (top["class"] + " → " + top["other"]).tolist()
    swapped = CollisionMatrixDisplay(cm.matrix, low=cm.matrix + 0.1, high=cm.matrix)
    with pytest.raises(ValueError, match="low must not be above matrix"):
        swapped.plot_pairs()


def test_pairs_of_long_names_keep_what_tells_them_apart():
    names = [f"species with a long name, variety {i}" for i in range(3)]
    cm = cs.CollisionMatrix(0.7 * np.eye(3) + 0.1, classes=names)
    display = heat_map(cm).plot_pairs(n=2)
    for label in tick_names(display.ax_):
        one, other = label.split(" → ")
        assert one.startswith("species with")
        assert other.startswith("species with")
        assert one[-1] != other[-1]
    heights = [text.get_window_extent() for text in display.ax_.get_yticklabels()]
    box = display.ax_.figure.get_window_extent()
    assert all(own.width < 0.6 * box.width for own in heights)


def test_the_limit_is_a_curve_with_a_band_that_ends_in_the_range():
    limit = limit_like(exact(3))
    display = LimitDisplay.from_estimator(SimpleNamespace(limit_=limit)).plot()
    drawn = display.errorbar_[0].get_xydata()
    assert_allclose(drawn, limit.curve[["rows", "pber"]])
    ends = np.array(display.range_[2][0].get_segments())[0][:, 1]
    assert_allclose(ends, limit.pber_interval())
    rows = limit.curve["rows"].iloc[-1] * np.array([1, REACH])
    low, _, high = limit.continuation(rows, 0.95)
    band = display.band_.get_datalim(display.ax_.transData)
    assert_allclose([band.y0, band.y1], [low.min(), high.max()])


def test_learning_that_has_hardly_begun_has_no_band():
    display = LimitDisplay.from_limit(limit_like(exact(3), "hardly begun")).plot()
    assert display.band_ is None
    assert "hardly begun" in display.ax_.get_title()


def test_the_dendrogram_colours_the_merges_of_the_plan():
    cm = exact(6, list("abcdef"))
    plan = cs.consolidate(cm, 4)
    display = DendrogramDisplay.from_plan(plan).plot()
    drawn = display.dendrogram_
    assert tick_names(display.ax_) == cm.classes[drawn["leaves"]].tolist()
    heights = np.array(drawn["dcoord"])[:, 1]
    assert_allclose(np.sort(heights), plan.linkage[:, 2])
    merged = heights < display.cut_.get_xdata()[0]
    assert merged.sum() == 2
    assert len(set(np.array(drawn["color_list"])[merged])) == 1
    assert DendrogramDisplay.from_plan(cs.consolidate(cm)).plot().cut_ is None


def test_bars_show_the_posteriors_of_their_images():
    P, images = posteriors(8, 3), np.random.default_rng(1).random((8, 4, 5))
    made = PosteriorDisplay.from_posteriors(P, list("abc"), images, list("abcabcab"))
    display = made.plot(n_rows=5)
    widths = [[bar.get_width() for bar in bars] for bars in display.bars_]
    assert_allclose(widths, P[:5])
    shown = [image.get_array() for image in display.images_]
    assert_array_equal(shown, images[:5])
    pairs = zip(display.bars_, [0, 1, 2, 0, 1], strict=True)
    own = {bars[k].get_facecolor() for bars, k in pairs}
    assert len(own) == 1
    assert display.bars_[0][1].get_facecolor() not in own


def test_the_matrix_of_a_fitted_classifier_is_displayed():
    fitted = SimpleNamespace(collision_matrix_=exact(4))
    shown = CollisionMatrixDisplay.from_estimator(fitted).plot().im_.get_array().data
    assert_array_equal(shown, fitted.collision_matrix_.matrix)


def test_a_classifier_that_is_not_fitted_has_no_matrix_to_display():
    without = "CollisionClassifier without collision_matrix_: call fit"
    with pytest.raises(ValueError, match=without):
        CollisionMatrixDisplay.from_estimator(cs.CollisionClassifier())
