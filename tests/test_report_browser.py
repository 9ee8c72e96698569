"""The report in a real browser: no network, no errors, values on hover, merging by slider and
keyboard, inert names."""

import json
import os
import shutil
import unicodedata

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import collidescope as cs
from collidescope._text import percent
from helpers import limit_like, random_posteriors

EVIL = "<script>alert(1)</script>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def bare(text):
    """Text without the marks that keep directions apart."""
    return "".join(c for c in text if unicodedata.category(c) != "Cf")


@pytest.fixture(scope="module")
def visit(tmp_path_factory):
    """Opens the report of K classes, one of which tries to be a script, and notes all that must not
    happen there."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        reason = f"no browser found: none of {', '.join(BROWSERS)} is on PATH"
        # Where everything must be tested a browser that is missing is a failure.
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    sync_api = pytest.importorskip("playwright.sync_api")
    made, trouble, folder = {}, [], tmp_path_factory.mktemp("reports")

    def report(k):
        if k not in made:
            P, codes = random_posteriors(np.random.default_rng(k), 40 * k + 200, k, 3.0)
            classes = np.array(
                [EVIL, *(f"class {i}" for i in range(1, k))], dtype=object
            )
            y = classes[codes]
            cm = cs.collision_matrix_from_posteriors(P, y, classes=classes)
            options = {
                "rows": pd.DataFrame({EVIL: [EVIL] * len(y)}),
                "limit": limit_like(cm),
                "y_pred": y[::-1],
            }
            table = {
                "columns": ["a long name of a column " * 3] * 9,
                "rows": [[0.123456] * 9],
            }
            options |= {
                "title": EVIL,
                "notes": [EVIL],
                "sections": [{"title": "A long title " * 4, "table": table}],
            }
            made[k] = (
                cm,
                cs.report(
                    pd.DataFrame(P, columns=classes),
                    None,
                    y,
                    folder / f"{k}.html",
                    **options,
                ),
            )
        return made[k]

    def asked(request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            trouble.append(f"request: {request.url}")

    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )

        def go(what, **options):
            cm, path = report(what) if isinstance(what, int) else (None, what)
            page = chromium.new_context(
                offline=True, accept_downloads=True, **options
            ).new_page()
            page.on(
                "console",
                lambda message: trouble.append(
                    f"console {message.type}: {message.text}"
                ),
            )
            page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
            page.on(
                "dialog",
                lambda dialog: (
                    trouble.append(f"dialog: {dialog.message}"),
                    dialog.dismiss(),
                ),
            )
            page.on("request", asked)
            page.goto(path.as_uri())
            return cm, page

        go.trouble = trouble
        yield go
        chromium.close()


@pytest.fixture(scope="module")
def ten(visit):
    """(matrix, page) of ten classes, which tests share."""
    return visit(10, viewport={"width": 1200, "height": 800})


@pytest.fixture(autouse=True)
def _no_trouble(visit):
    yield
    assert visit.trouble == []


@pytest.mark.parametrize("k", [2, 100])
def test_the_report_opens_though_a_name_is_a_script(visit, k):
    cm, page = visit(k)
    assert page.title() == page.locator("h1").inner_text() == EVIL
    assert page.locator("script").count() == 2
    assert page.locator(".chart svg").first.is_visible()
    assert f"{cm.pber:.1%}" in page.locator("#answer").inner_text()
    assert EVIL in page.locator("#ceilings").inner_text()
    assert EVIL in page.locator("#pair-class option").all_inner_texts()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if k == 2:  # nothing to merge, and the matrix once
        assert page.locator("#merge").count() == page.locator("#order").count() == 0
        assert page.locator(".chart").count() == 2  # the curve and the matrix


def test_the_first_screen_holds_the_answer(ten):
    cm, page = ten
    low, high = limit_like(cm).pber_interval()
    numbers = page.locator(".big")
    assert [numbers.nth(k).inner_text() for k in range(2)] == [
        percent(cm.pber),
        f"{percent(low)} to {percent(high)}",
    ]
    for place in (numbers.nth(0), numbers.nth(1), page.locator("#limit svg").first):
        box = place.bounding_box()
        assert box["y"] + box["height"] < 800
    dots = page.locator("#limit [data-tip]")
    tips = [dots.nth(k).get_attribute("data-tip") for k in range(dots.count())]
    assert tips[:-1] == [
        f"{rows:,.0f} rows: {percent(pber)}"
        for rows, pber in limit_like(cm).curve[["rows", "pber"]].to_numpy()
    ]


def test_the_merged_matrix_of_the_page_is_that_of_the_package(ten):
    cm, page = ten
    page.evaluate(
        "document.getElementById('step').value = 4; document.getElementById('step-more').click()"
    )
    said = bare(page.locator("#merge-said").inner_text())
    assert said.startswith("5 groups. ")
    assert percent(float(cs.consolidate(cm).path["pber"].iloc[5])) in said
    assert "with unlimited rows about" in said
    path = json.loads(page.locator("#summary").text_content())["merge_path"]
    groups = {i: [i] for i in range(10)}
    for first, second in zip(path["first"][1:6], path["second"][1:6], strict=True):
        groups[first] += groups.pop(second)
    order = sorted(
        groups.values(), key=lambda group: path["tree_order"].index(group[0])
    )
    merged = cm.merge([[cm.classes[i] for i in group] for group in order])
    # The package puts groups where their first members stood; the page follows the tree.
    back = np.argsort(sorted(range(len(order)), key=lambda g: min(order[g])))
    shown = page.evaluate("document.getElementById('merged').heat.S")
    assert_allclose(shown, merged.matrix[np.ix_(back, back)], atol=1e-12)


def test_the_keyboard_reaches_every_control(ten):
    cm, page = ten
    page.evaluate(
        "document.getElementById('step').value = 1; document.getElementById('step-less').click()"
    )
    page.evaluate(
        "document.activeElement.blur(); window.getSelection().removeAllRanges(); scrollTo(0, 0)"
    )
    page.focus(".skip")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "step":
            break
    before = page.locator("#merge-said").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "() => document.getElementById('merge-said').textContent.startsWith('9 groups')"
    )
    assert (
        page.locator("#step").get_attribute("aria-valuetext").startswith("9 groups: ")
    )
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the button for one merge less
    assert page.locator("#merge-said").inner_text() == before
    for select, name in (("#pair-class", "class 7"), ("#pair-other", "class 3")):
        page.focus(select)
        page.keyboard.type(name)
    said = bare(page.locator("#pair-said").inner_text())
    assert (
        f"Labelled “class 7”, seen again as “class 3”: {percent(float(cm.matrix[7, 3]))}"
        in said
    )
    cells = page.locator("#matrix table tbody tr").nth(7).locator("td")
    assert cells.nth(3).text_content() == f"{100 * cm.matrix[7, 3]:.2f}"


def test_the_mouse_reaches_what_the_keyboard_does(
    ten,
):
    cm, page = ten
    page.select_option("#order", "given")
    page.locator("#heatmap").scroll_into_view_if_needed()
    box = page.locator("#heatmap canvas").bounding_box()
    for shift in (0, 2):
        page.mouse.move(
            box["x"] + 0.35 * box["width"] + shift, box["y"] + 0.75 * box["height"]
        )
    hover = page.locator("#tip:not([hidden])").text_content()
    low, high = cm.interval()
    assert all(
        percent(float(v)) in hover
        for v in (cm.matrix[7, 3], low[7, 3], high[7, 3], cm.matrix[3, 7])
    )
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => document.getElementById('pair-class').value === '7'")
    assert page.input_value("#pair-other") == "3"
    page.locator("#curve").scroll_into_view_if_needed()
    box = page.locator("#curve [data-step='4']").bounding_box()
    for shift in (1, 0):
        page.mouse.move(
            box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + shift
        )
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("() => document.getElementById('step').value === '4'")
    assert page.locator("#merge-said").inner_text().startswith("6 groups")


def test_dragging_over_cells_zooms_until_a_double_click(ten):
    _, page = ten
    page.select_option("#order", "given")
    page.locator("#heatmap").scroll_into_view_if_needed()
    box = page.locator("#heatmap canvas").bounding_box()

    def at(column, row):
        page.mouse.move(
            box["x"] + (column + 0.5) * box["width"] / 10,
            box["y"] + (row + 0.5) * box["height"] / 10,
        )

    at(2, 2)
    page.mouse.down()
    at(4, 4)
    page.mouse.up()
    names = page.locator("#heatmap text.ytick")
    assert [bare(name) for name in names.all_text_contents()] == [
        "class 2",
        "class 3",
        "class 4",
    ]
    page.mouse.dblclick(box["x"] + 20, box["y"] + 20)
    assert names.count() == 10


def test_everything_that_can_be_used_has_a_name(ten):
    _, page = ten
    nameless = page.evaluate(
        """() => [...document.querySelectorAll(
                "button, select, input, a, img, [role=region], [role=img]")]
            .filter(e => !(e.getAttribute("aria-label") || e.innerText || e.alt
                || (e.labels && e.labels.length)))
            .map(e => e.outerHTML)"""
    )
    assert nameless == []


def test_headings_go_in_order(ten):
    _, page = ten
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))"
    )
    assert (levels[0], levels.count(1)) == (1, 1)
    assert max(np.diff(levels)) <= 1


def test_the_numbers_can_be_saved(ten):
    _, page = ten
    with page.expect_download() as download:
        page.click("#save")
    with open(download.value.path(), encoding="utf-8") as file:
        assert json.load(file) == json.loads(page.locator("#summary").text_content())


def test_odd_names_are_shown_as_they_are(visit, tmp_path):
    names = [
        "",
        "a" * 150,
        "قطة صغيرة",
        "🐈",
        "$x^2$",
        "<b>bold</b>",
        "a&amp;b",
        "{{ 7 * 7 }}",
        "%{z}",
        "x\ny",
    ]
    cm = cs.CollisionMatrix(0.5 * np.eye(10) + 0.05, classes=names)
    _, page = visit(cs.report(cm, path=tmp_path / "odd.html"))
    assert page.locator("#matrix table tbody th").all_text_contents() == [
        "(empty name)",
        *names[1:],
    ]
    ticks = page.evaluate(
        "[...document.querySelectorAll('#heatmap text.ytick')].map(t => t.textContent)"
    )
    plain = set(map(bare, ticks))
    assert {"(empty name)", *names[2:-1], "x y"} < plain
    assert any(tick.startswith("aaa") and "…" in tick for tick in plain)


def colours(page):
    """Of the page's ground and of a chart."""
    return page.evaluate(
        """() => {
            const canvas = document.querySelector("#heatmap canvas"), side = canvas.width;
            const pixel = canvas.getContext("2d").getImageData(0.75 * side, 0.25 * side, 1, 1).data;
            return [getComputedStyle(document.body).backgroundColor, [...pixel].join()];
        }"""
    )


def test_only_the_screen_is_ever_dark(visit):
    (_, light), (_, dark) = (
        visit(2, color_scheme=scheme) for scheme in ("light", "dark")
    )
    (white, bright), (black, dim) = colours(light), colours(dark)
    assert white == "rgb(255, 255, 255)" != black
    assert bright != dim
    light.click("#theme")
    assert colours(light) == [black, dim]
    dark.evaluate(
        """() => window.addEventListener("beforeprint", () => { window.atPrint = {
            wide: Math.max(
                ...[...document.querySelectorAll(".chart svg")].map(svg => svg.clientWidth)),
            ground: getComputedStyle(document.body).backgroundColor,
            closed: document.querySelectorAll("details[data-print]:not([open])").length }; })"""
    )
    assert dark.pdf(format="A4").startswith(b"%PDF")
    at_print = dark.evaluate("window.atPrint")
    assert at_print.pop("wide") <= 690  # A4 less margins of 14 mm, in pixels
    assert at_print == {"ground": white, "closed": 0}
    dark.wait_for_function(
        "c => getComputedStyle(document.body).backgroundColor === c", arg=black
    )


def test_a_long_page_starts_folded_on_a_telephone(visit):
    _, page = visit(100, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.documentElement.scrollHeight") < 8 * 740
    assert page.locator("details.fold:not([open])").count() > 0
    for name in (
        "matrix",
        "ceilings",
    ):  # a link opens what it leads to, and the chart is drawn then
        page.click(f"nav a[href='#{name}']")
    page.wait_for_selector("#heatmap svg")
    heading = page.locator(
        "#ceilings thead th", has_text="Draw finds"
    ).first.bounding_box()
    # the key columns come before the edge
    assert heading["x"] + heading["width"] <= 360
    arrow, title = (
        page.locator(f"#section-1 summary{part}").bounding_box() for part in ("", " h2")
    )
    # a long title stands beside its arrow, not below it
    assert title["y"] - arrow["y"] < 5


def test_words_need_no_javascript(visit):
    cm, page = visit(2, java_script_enabled=False)
    text = page.locator("main").inner_text()
    assert all(
        part in text for part in (f"{cm.pber:.1%}", "what to do", "Best guess finds")
    )
