"""The report in a real browser: no network, no errors, values on hover, merging by slider and keyboard, inert names."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata

import numpy as np
import pandas as pd
import pytest

import collidescope as cs
from collidescope._text import percent as shown
from helpers import limit_like, random_posteriors

EVIL = "<script>alert(1)</script>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZES = (2, 10, 100)


@pytest.fixture(scope="module")
def browser():
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        reason = f"no browser found: none of {', '.join(BROWSERS)} is on PATH"
        # Where everything must be tested a browser that is missing is a failure.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """K → (matrix, path), made when first asked for; one class tries to be a script."""
    made = {}
    folder = tmp_path_factory.mktemp("reports")

    def make(k):
        if k not in made:
            P, codes = random_posteriors(np.random.default_rng(k), 40 * k + 200, k, 3.0)
            classes = np.array([EVIL, *(f"class {i}" for i in range(1, k))], dtype=object)
            y = classes[codes]
            rows = pd.DataFrame({EVIL: [EVIL] * len(y)})
            path = folder / f"{k}.html"
            cm = cs.collision_matrix_from_posteriors(P, y, classes=classes)
            options = {"rows": rows, "y_pred": y[::-1], "title": EVIL, "notes": [EVIL], "limit": limit_like(cm)}
            cs.report(pd.DataFrame(P, columns=classes), None, y, path, **options)
            made[k] = cm, path
        return made[k]

    return make


class Visit:
    """A page, and everything that must not happen on it."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(offline=True, accept_downloads=True, **options)
        self.trouble = []
        self.page = page = self.context.new_page()
        page.on("console", lambda message: self.trouble.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self._asked)
        page.goto(path.as_uri())

    def _asked(self, request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.trouble.append(f"request: {request.url}")

    def said(self, selector):
        """Text of an element without the marks that keep directions apart."""
        text = self.page.locator(selector).inner_text()
        return "".join(c for c in text if unicodedata.category(c) != "Cf")


@pytest.fixture
def visit(browser):
    visits = []

    def go(path, **options):
        visits.append(Visit(browser, path, **options))
        return visits[-1]

    yield go
    for one in visits:
        one.context.close()
        assert one.trouble == []


@pytest.mark.parametrize("k", [2, 100])
def test_the_report_opens_without_network_or_errors_and_a_script_for_a_name_stays_a_name(visit, reports, k):
    cm, path = reports(k)
    page = visit(path).page
    assert page.title() == EVIL
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("script").count() == 3
    assert page.locator(".chart .main-svg").first.is_visible()
    assert f"{cm.pber:.1%}" in page.locator("#answer").inner_text()
    assert EVIL in page.locator("#ceilings").inner_text()
    assert EVIL in page.locator("#pair-class option").all_inner_texts()
    # In charts names are drawn as text: nothing but plotly's own elements stands in them.
    assert page.locator(".chart script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def percent(value):
    return shown(float(value))


def test_the_merged_matrix_of_the_page_is_that_of_the_package(visit, reports):
    k, (cm, path) = 10, reports(10)
    go = visit(path)
    page = go.page
    page.evaluate("document.getElementById('step').value = 4; document.getElementById('step-more').click()")
    said = go.said("#merge-said")
    assert said.startswith("5 groups. ")
    assert percent(cs.consolidate(cm).path["pber"].iloc[5]) in said
    assert "with unlimited rows about" in said
    summary = json.loads(page.locator("#summary").text_content())
    groups = {i: [i] for i in range(k)}
    for first, second in zip(summary["merge_path"]["first"][1:6], summary["merge_path"]["second"][1:6], strict=True):
        groups[first] += groups.pop(second)
    place = {number: rank for rank, number in enumerate(summary["merge_path"]["tree_order"])}
    order = sorted(groups.values(), key=lambda group: place[group[0]])
    merged = cm.merge([[cm.classes[i] for i in group] for group in order])
    # The package puts groups where their first members stood; the page follows the tree.
    by_first = sorted(range(len(order)), key=lambda g: min(order[g]))
    back = np.argsort(by_first)
    expected = merged.matrix[np.ix_(back, back)]
    off, own = page.evaluate("document.getElementById('merged').data.slice(0, 2).map(trace => trace.z)")
    off, own = np.array(off, dtype=float) ** 3, np.array(own, dtype=float)
    np.testing.assert_allclose(np.where(np.eye(len(own), dtype=bool), own, off), expected, atol=1e-12)


def test_the_keyboard_reaches_the_slider_and_moves_it(visit, reports):
    go = visit(reports(10)[1])
    page = go.page
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "step":
            break
    assert page.evaluate("document.activeElement.id") == "step"
    before, groups = go.said("#merge-said"), go.said("#groups")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.getElementById('merge-said').textContent.startsWith('9 groups')")
    assert go.said("#merge-said") != before
    assert go.said("#groups") != groups
    assert page.locator("#step").get_attribute("aria-valuetext").startswith("9 groups: ")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the button for one merge less
    assert go.said("#merge-said") == before
    assert page.locator("#merge-said").get_attribute("aria-live") == "polite"


def test_any_entry_can_be_read_without_a_mouse(visit, reports):
    cm, path = reports(10)
    go = visit(path)
    page = go.page
    page.focus("#pair-class")
    page.keyboard.type("class 7")
    page.focus("#pair-other")
    page.keyboard.type("class 3")
    assert f"Labelled class 7, seen again as class 3: {percent(cm.matrix[7, 3])}" in go.said("#pair-said")
    cells = page.locator("#matrix table tbody tr").nth(7).locator("td")
    assert cells.nth(3).text_content() == f"{100 * cm.matrix[7, 3]:.2f}"


def test_the_mouse_shows_the_numbers_of_a_cell_and_a_click_does_the_same_as_the_keyboard(visit, reports):
    cm, path = reports(10)
    go = visit(path)
    page = go.page
    page.select_option("#order", "given")
    page.locator("#heatmap").scroll_into_view_if_needed()
    box = page.locator("#heatmap .nsewdrag.drag").bounding_box()
    page.mouse.move(box["x"] + 0.34 * box["width"], box["y"] + 0.74 * box["height"])
    page.mouse.move(box["x"] + 0.35 * box["width"], box["y"] + 0.75 * box["height"])
    page.wait_for_selector("#heatmap .hoverlayer .hovertext")
    hover = page.locator("#heatmap .hoverlayer").text_content()
    low, high = cm.interval()
    for value in (cm.matrix[7, 3], low[7, 3], high[7, 3], cm.matrix[3, 7]):
        assert percent(value) in hover
    page.mouse.down()
    page.mouse.up()
    page.wait_for_timeout(500)  # plotly waits for a second click
    assert (page.input_value("#pair-class"), page.input_value("#pair-other")) == ("7", "3")
    page.locator("#curve").scroll_into_view_if_needed()
    box = page.locator("#curve .points path").nth(4).bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 1)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("document.getElementById('step').value === '4'")
    assert go.said("#merge-said").startswith("6 groups")


def test_odd_names_are_shown_as_they_are(visit, tmp_path):
    names = ["", "a" * 150, "قطة صغيرة", "🐈", "$x^2$", "<b>bold</b>", "a&amp;b", "{{ 7 * 7 }}", "%{z}", "x\ny"]
    S = 0.5 * np.eye(10) + 0.05
    path = cs.report(cs.CollisionMatrix(S, classes=names), path=tmp_path / "odd.html")
    go = visit(path)
    cells = go.page.locator("#matrix table tbody th").all_text_contents()
    assert cells == ["(empty name)", *names[1:]]
    ticks = go.page.evaluate("[...document.querySelectorAll('#heatmap .ytick text')].map(t => t.textContent)")
    plain = {"".join(c for c in tick if unicodedata.category(c) != "Cf") for tick in ticks}
    assert {"(empty name)", "قطة صغيرة", "🐈", "$x^2$", "<b>bold</b>", "a&amp;b", "{{ 7 * 7 }}", "%{z}", "x y"} < plain
    assert any(tick.startswith("aaa") and tick.endswith("…") for tick in plain)


def test_colours_follow_the_system_and_the_button(visit, reports):
    def ground(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = visit(reports(2)[1], color_scheme="light").page, visit(reports(2)[1], color_scheme="dark").page
    assert ground(light) == "rgb(255, 255, 255)"
    assert ground(dark) != ground(light)
    scales = [page.evaluate("document.getElementById('heatmap').data[0].colorscale[0][1]") for page in (light, dark)]
    assert scales[0] != scales[1]
    light.click("#theme")
    assert ground(light) == ground(dark)
    assert light.evaluate("document.getElementById('heatmap').data[0].colorscale[0][1]") == scales[1]


def test_it_prints_in_light_colours_within_the_paper_and_comes_back(visit, reports):
    page = visit(reports(10)[1], color_scheme="dark").page
    page.evaluate(
        """() => window.addEventListener("beforeprint", () => { window.atPrint = {
            wide: Math.max(...[...document.querySelectorAll(".chart .main-svg")].map(svg => svg.clientWidth)),
            ground: getComputedStyle(document.body).backgroundColor,
            closed: document.querySelectorAll("details[data-print]:not([open])").length }; })"""
    )
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.pdf(format="A4").startswith(b"%PDF")
    at_print = page.evaluate("window.atPrint")
    assert at_print["wide"] <= 690  # A4 less margins of 14 mm, in pixels
    assert at_print["ground"] == "rgb(255, 255, 255)"
    assert at_print["closed"] == 0
    page.wait_for_function("c => getComputedStyle(document.body).backgroundColor === c", arg=before)


@pytest.mark.parametrize("k", SIZES)
def test_it_fits_a_telephone_and_many_classes_start_folded(visit, reports, k):
    go = visit(reports(k)[1], viewport={"width": 360, "height": 740})
    page = go.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    folded = page.locator("details.fold:not([open])").count()
    assert (folded > 0) == (k == 100)
    if k == 100:
        assert page.evaluate("document.documentElement.scrollHeight") < 4000
        page.click("nav a[href='#matrix']")  # a link opens what it leads to, and the chart is drawn then
        page.wait_for_selector("#heatmap .main-svg")
        page.click("nav a[href='#ceilings']")
    heading = page.locator("#ceilings thead th", has_text="Draw finds").first.bounding_box()
    assert heading["x"] + heading["width"] <= 360  # the key columns come before the edge


def test_the_first_screen_has_two_numbers_and_the_curve(visit, reports):
    cm, path = reports(10)
    page = visit(path, viewport={"width": 1200, "height": 800}).page
    low, high = limit_like(cm).pber_interval()
    numbers = page.locator(".big")
    assert [numbers.nth(k).inner_text() for k in range(2)] == [percent(cm.pber), f"{percent(low)} to {percent(high)}"]
    for place in (numbers.nth(0), numbers.nth(1), page.locator("#limit .main-svg").first):
        box = place.bounding_box()
        assert box["y"] + box["height"] < 800
    curve = page.evaluate("document.getElementById('limit').data.find(trace => trace.error_y).y")
    np.testing.assert_allclose(curve, 100 * limit_like(cm).curve["pber"])


def test_two_classes_have_no_merge_explorer_and_the_matrix_once(visit, reports):
    page = visit(reports(2)[1]).page
    assert page.locator("#merge").count() == page.locator("#order").count() == 0
    assert page.locator(".chart").count() == 2  # the curve and the matrix


def test_the_words_are_there_without_javascript(visit, reports):
    cm, path = reports(10)
    page = visit(path, java_script_enabled=False).page
    text = page.locator("main").inner_text()
    assert f"{cm.pber:.1%}" in text
    assert "What to do" in text
    assert "Best guess finds" in text


def test_the_numbers_can_be_saved(visit, reports):
    page = visit(reports(10)[1]).page
    with page.expect_download() as download:
        page.click("#save")
    with open(download.value.path(), encoding="utf-8") as file:
        assert json.load(file) == json.loads(page.locator("#summary").text_content())


def test_everything_that_can_be_used_has_a_name_and_headings_go_in_order(visit, reports):
    page = visit(reports(10)[1]).page
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, a, img, [role=region], [role=img]")]
            .filter(e => !(e.getAttribute("aria-label") || e.innerText || e.alt || (e.labels && e.labels.length)))
            .map(e => e.outerHTML).filter(markup => !markup.includes("modebar"))"""
    )
    assert nameless == []
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1
