"""Displays show the data that they are given, for few classes and many, whatever the classes are called."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import collidescope as cs
from collidescope.show._base import plain
from collidescope.show.matrices import _ink_on
from helpers import planted, random_posteriors

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

ODD = ["$a$", "$", "_under", "<b>&amp;</b>", "x" * 300, "two\nlines", r"\frac{1}{2}", "50%", "", "ünï ✓"]
EPOCHS = [{"epoch": 1, "train_loss": 0.7, "val_loss": 0.8}, {"epoch": 2, "train_loss": 0.5, "val_loss": 0.6}]


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def exact(k, classes=None, seed=0):
    return cs.CollisionMatrix(*planted(k, seed=seed), classes=classes)


def estimated(k=4, classes=None):
    P, codes = random_posteriors(np.random.default_rng(0), 50 * k, k)
    return cs.collision_matrix_from_posteriors(P, codes if classes is None else np.array(classes)[codes])


def posteriors(n, k):
    return np.random.default_rng(0).dirichlet(np.ones(k), n)


def tick_names(ax, side="y"):
    return [label.get_text() for label in getattr(ax, f"get_{side}ticklabels")()]


def boxes_overlap(labels):
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    return any(a.overlaps(b) for a, b in pairwise(boxes))


def made(name, k, classes=None):
    """The display of that name of k classes."""
    cm = exact(k, classes)
    names = cm.classes.tolist()
    return {
        "CollisionMatrixDisplay": lambda: cs.CollisionMatrixDisplay.from_matrix(cm),
        "DendrogramDisplay": lambda: cs.DendrogramDisplay.from_plan(cs.consolidate(cm, 2)),
        "DivergencesDisplay": lambda: cs.DivergencesDisplay.from_divergences(np.full((k, 4), 0.5), np.arange(k)),
        "GramianDisplay": lambda: cs.GramianDisplay.from_matrix(cm),
        "HistoryDisplay": lambda: cs.HistoryDisplay([{str(name): EPOCHS for name in names[:3]}] * 2),
        "IntervalsDisplay": lambda: cs.IntervalsDisplay.from_matrix(replace(cm, stderr=np.full((k, k), 0.01))),
        "PosteriorDisplay": lambda: cs.PosteriorDisplay.from_posteriors(
            posteriors(3, k), names, np.random.default_rng(0).random((3, 5, 6)), [names[0]] * 3
        ),
        "PriorsDisplay": lambda: cs.PriorsDisplay.from_matrix(cm),
    }[name]()


EVERY = sorted(name for name in cs.__all__ if name.endswith("Display"))


# ------------------------------------------------------------------------------------------------- all displays


@pytest.mark.parametrize(
    ("name", "k"), [*((name, 2) for name in EVERY), ("CollisionMatrixDisplay", 20), ("DendrogramDisplay", 20)]
)
def test_a_display_draws_and_returns_itself(name, k):
    display = made(name, k)
    assert display.plot() is display
    assert display.ax_.figure is display.figure_
    display.figure_.draw_without_rendering()


@pytest.mark.parametrize("k", [60, 200])
@pytest.mark.parametrize("name", ["CollisionMatrixDisplay", "DendrogramDisplay", "PriorsDisplay", "PosteriorDisplay"])
def test_many_classes_draw_without_names_on_top_of_each_other(name, k):
    display = made(name, k).plot()
    display.figure_.draw_without_rendering()
    for ax in [display.ax_, *getattr(display, "axes_", [])]:
        assert not boxes_overlap(ax.get_yticklabels())
        assert not boxes_overlap(ax.get_xticklabels())


@pytest.mark.parametrize("name", EVERY)
def test_a_display_draws_on_axes_that_are_given(name):
    figure, (left, right) = plt.subplots(1, 2)
    display = made(name, 3).plot(right)
    assert display.ax_ is right
    assert display.figure_ is figure
    assert not left.has_data()
    figure.draw_without_rendering()


@pytest.mark.parametrize("name", EVERY)
def test_odd_names_are_printed_as_they_are(name):
    display = made(name, len(ODD), ODD).plot()
    display.figure_.draw_without_rendering()
    texts = [text._preprocess_math(text.get_text()) for text in display.figure_.findobj(matplotlib.text.Text)]
    assert not any(mathematics for _, mathematics in texts)
    assert any("$a$" in text for text, _ in texts) or name in ("IntervalsDisplay", "DivergencesDisplay")


def test_a_dollar_is_a_dollar_and_not_mathematics():
    text = plt.figure().text(0, 0, plain("$a$ and \\$"))
    assert text._preprocess_math(text.get_text()) == ("$a$ and \\$", False)


def test_long_names_are_cut():
    assert plain("x" * 300) == "x" * 23 + "…"


@pytest.mark.parametrize("name", EVERY)
def test_without_matplotlib_a_display_says_what_to_install(name, monkeypatch):
    display = made(name, 3)
    for module in [module for module in sys.modules if module.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{name}.plot needs matplotlib: pip install collidescope\[plot\]"):
        display.plot()


def test_making_a_display_imports_neither_matplotlib_nor_torch():
    code = (
        "import collidescope as cs, sys; cs.CollisionMatrixDisplay.from_matrix(cs.CollisionMatrix([[.9,.1],[.2,.8]])); "
        "print([m for m in ('matplotlib', 'torch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# ------------------------------------------------------------------------------------------------- heat maps


@pytest.mark.parametrize("k", [2, 10, 20])
def test_the_heat_map_shows_s_and_writes_its_entries(k):
    cm = exact(k)
    display = cs.CollisionMatrixDisplay.from_matrix(cm).plot()
    shown = display.im_.get_array()
    np.testing.assert_array_equal(shown.data, cm.matrix)
    np.testing.assert_array_equal(shown.mask, np.eye(k, dtype=bool))
    written = [[float(text.get_text()) for text in row] for row in display.text_]
    np.testing.assert_allclose(written, cm.matrix, atol=0.0051)
    assert [text.get_position() for text in display.text_[1]] == [(j, 1) for j in range(k)]
    assert tick_names(display.ax_, "x") == tick_names(display.ax_) == [str(name) for name in range(k)]


def test_a_rare_collision_shows_beside_a_frequent_one():
    cm = cs.CollisionMatrix([[0.08, 0.9, 0.02], [0.9, 0.1, 0.0], [0.02, 0.0, 0.98]])
    display = cs.CollisionMatrixDisplay.from_matrix(cm).plot()
    none, rare, frequent = display.im_.to_rgba(np.array([[0.0, 0.02, 0.9]]))[0]
    assert np.abs(rare - none).max() > 0.1
    assert np.abs(frequent - rare).max() > 0.1


def test_the_diagonal_has_one_colour_that_no_collision_has():
    cm = exact(5)
    image = cs.CollisionMatrixDisplay.from_matrix(cm).plot().im_
    cells = image.to_rgba(image.get_array())
    own = np.eye(5, dtype=bool)
    assert len(np.unique(cells[own], axis=0)) == 1
    assert not (cells[~own] == cells[0, 0]).all(axis=1).any()


def test_classes_that_never_collide_draw():
    display = cs.CollisionMatrixDisplay.from_matrix(cs.CollisionMatrix(np.eye(3))).plot()
    display.figure_.draw_without_rendering()
    assert display.text_[0, 1].get_text() == "0.000"


def test_values_are_readable_on_every_colour():
    def contrast(a, b):
        light, dark = sorted((luminance(a), luminance(b)), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    def luminance(colour):
        rgb = np.array(matplotlib.colors.to_rgb(colour))
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    colours = matplotlib.colormaps["OrRd"](np.linspace(0, 1, 50))
    assert min(contrast(colour[:3], _ink_on(colour)) for colour in colours) > 3.5


def test_many_classes_have_no_values_unless_asked_for():
    assert cs.CollisionMatrixDisplay.from_matrix(exact(21)).plot().text_ is None
    display = cs.CollisionMatrixDisplay.from_matrix(exact(3)).plot(include_values=False, colorbar=False)
    assert display.text_ is None
    assert display.colorbar_ is None


def test_clustering_puts_classes_that_collide_side_by_side():
    group = np.arange(24) % 6
    B = np.where(group[:, None] == group, 0.02, 0.0) + 0.5 * np.eye(24)
    cm = cs.CollisionMatrix(B / B.sum(axis=1, keepdims=True), classes=[f"c{k}" for k in range(24)])
    display = cs.CollisionMatrixDisplay.from_matrix(cm)
    assert np.count_nonzero(np.diff(group[display.order])) == 5
    shown = display.plot().im_.get_array().data
    np.testing.assert_array_equal(shown, cm.matrix[np.ix_(display.order, display.order)])
    names = tick_names(display.ax_)
    assert names == cm.classes[display.order][:: 24 // len(names)].tolist()
    assert cs.CollisionMatrixDisplay.from_matrix(cm, order="given").order is None


def test_the_gramian_of_a_classifier_is_shown():
    G = np.array([[0.8, 0.3], [0.3, 0.7]])
    clf = SimpleNamespace(gramian_=G, classes_=np.array(["a", "b"]))
    np.testing.assert_array_equal(cs.GramianDisplay.from_classifier(clf).plot().im_.get_array().data, G)
    cm = exact(3)
    np.testing.assert_array_equal(cs.GramianDisplay.from_matrix(cm).plot().im_.get_array().data, cm.gramian)


# ------------------------------------------------------------------------------------------------- curves and bars


def test_the_dendrogram_colours_the_merges_of_the_plan():
    cm = exact(6, list("abcdef"))
    plan = cs.consolidate(cm, 4)
    display = cs.DendrogramDisplay.from_plan(plan).plot()
    drawn = display.dendrogram_
    assert tick_names(display.ax_) == cm.classes[drawn["leaves"]].tolist()
    heights = np.array(drawn["dcoord"])[:, 1]
    np.testing.assert_allclose(np.sort(heights), plan.linkage[:, 2])
    merged = heights < display.cut_.get_xdata()[0]
    assert merged.sum() == 2
    assert len({colour for colour, m in zip(drawn["color_list"], merged, strict=True) if m}) == 1
    assert cs.DendrogramDisplay.from_plan(cs.consolidate(cm)).plot().cut_ is None


@pytest.mark.parametrize("positive", [None, 1])
def test_precision_over_priors_is_that_of_the_matrix(positive):
    cm = exact(3)
    display = cs.PriorsDisplay.from_matrix(cm, positive=positive).plot()
    assert list(display.precision_lines_) == ([0, 1, 2] if positive is None else [1])
    for k, line in display.precision_lines_.items():
        for share, precision in zip(*line.get_data(), strict=True):
            population = cm.priors * (1 - share) / (1 - cm.priors[k])
            population[k] = share
            assert precision == pytest.approx(cm.precision(population)[k])
        assert set(display.recall_lines_[k].get_ydata()) == {cm.recall()[k]}


def test_of_many_classes_those_found_least_often_have_curves():
    cm = exact(30)
    display = cs.PriorsDisplay.from_matrix(cm).plot()
    assert set(display.precision_lines_) == set(np.argsort(cm.recall())[:10].tolist())
    assert display.ax_.get_title() == "10 of 30 classes: those with the lowest recall"


def test_the_bars_are_the_posteriors_and_the_images_the_images():
    P, images = posteriors(8, 3), np.random.default_rng(1).random((8, 4, 5))
    display = cs.PosteriorDisplay.from_posteriors(P, ["a", "b", "c"], images, list("abcabcab")).plot(n_rows=5)
    np.testing.assert_allclose([[bar.get_width() for bar in bars] for bars in display.bars_], P[:5])
    np.testing.assert_array_equal([image.get_array() for image in display.images_], images[:5])
    own = [bars[k].get_facecolor() for bars, k in zip(display.bars_, [0, 1, 2, 0, 1], strict=True)]
    assert len(set(own)) == 1
    assert own[0] != display.bars_[0][1].get_facecolor()


def test_of_many_classes_the_most_likely_have_bars():
    P = posteriors(2, 50)
    display = cs.PosteriorDisplay.from_posteriors(P).plot()
    for row, bars, ax in zip(P, display.bars_, display.axes_, strict=True):
        assert [bar.get_width() for bar in bars] == sorted(row, reverse=True)[:8]
        assert tick_names(ax) == [str(k) for k in np.argsort(-row)[:8]]


def test_posteriors_draw_on_axes_without_a_place_in_a_grid():
    ax = plt.figure().add_axes((0.1, 0.1, 0.8, 0.4))
    display = cs.PosteriorDisplay.from_posteriors(posteriors(3, 3)).plot(ax)
    display.figure_.draw_without_rendering()
    assert all(0.05 < panel.get_position().y0 < panel.get_position().y1 < 0.55 for panel in display.axes_)


def test_colour_images_draw():
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    assert len(cs.PosteriorDisplay.from_posteriors(posteriors(2, 2), images=images).plot().images_) == 2


def test_the_history_of_every_fold_and_network_is_drawn():
    other = [{"epoch": 1, "train_loss": 0.4, "val_loss": 0.45}]
    clf = SimpleNamespace(history_=[{"linear": EPOCHS, "deep": other}, {"deep": EPOCHS}])
    lines = cs.HistoryDisplay.from_classifier(clf).plot().lines_
    assert list(lines) == [(0, "linear"), (0, "deep"), (1, "deep")]
    training, held_out = lines[1, "deep"]
    assert np.transpose(training.get_data()).tolist() == [[1, 0.7], [2, 0.5]]
    assert np.transpose(held_out.get_data()).tolist() == [[1, 0.8], [2, 0.6]]
    assert lines[0, "deep"][1].get_color() == held_out.get_color() != lines[0, "linear"][1].get_color()


def test_the_forest_plot_shows_the_top_collisions_and_the_ends_of_their_intervals():
    cm = estimated(5, list("abcde"))
    display = cs.IntervalsDisplay.from_matrix(cm, n=4, level=0.9).plot()
    top = cm.top_collisions(4, 0.9)
    dots, _, (bars,) = display.errorbar_
    np.testing.assert_allclose(dots.get_xdata(), top["rate"])
    ends = np.array(bars.get_segments())[:, :, 0]
    np.testing.assert_allclose(ends, top[["low", "high"]])
    assert tick_names(display.ax_) == [f"{a} → {b}" for a, b in zip(top["class"], top["other"], strict=True)]
    assert "90% interval" in display.ax_.get_xlabel()


def test_there_are_no_more_intervals_than_pairs():
    assert len(cs.IntervalsDisplay.from_matrix(estimated(2)).plot().names) == 1


def test_the_curves_are_the_divergences():
    distances = np.array([0.0, 0.5, 1.0])
    values = [cs.divergences(norm(0), norm(d)) for d in distances]
    lines = cs.DivergencesDisplay.from_divergences(values, distances).plot().lines_
    for name, line in lines.items():
        np.testing.assert_array_equal(line.get_xdata(), distances)
        np.testing.assert_array_equal(line.get_ydata(), [getattr(value, name) for value in values])
    assert list(lines) == list(cs.Divergences._fields)


def test_an_infinite_divergence_draws():
    values = [cs.Divergences(0.5, 0.6, 0.5, 1.0), cs.Divergences(1.0, 1.0, 1.0, np.inf)]
    display = cs.DivergencesDisplay.from_divergences(values, [1, 2]).plot()
    display.figure_.draw_without_rendering()
    assert np.isfinite(display.kl_ax_.get_ylim()).all()


# ------------------------------------------------------------------------------------------------- options


def test_options_reach_the_artists():
    assert cs.PriorsDisplay.from_matrix(exact(2)).plot(alpha=0.5).precision_lines_[0].get_alpha() == 0.5
    display = cs.CollisionMatrixDisplay.from_matrix(exact(2)).plot(norm=plt.Normalize(0, 1), cmap="Blues")
    assert display.im_.norm.vmax == 1
    assert display.im_.get_cmap().name.startswith("Blues")


@pytest.mark.parametrize("name", EVERY)
def test_a_display_refuses_an_array_of_axes(name):
    with pytest.raises(ValueError, match="ax must be one matplotlib Axes, got ndarray"):
        made(name, 3).plot(np.array([None, None]))
