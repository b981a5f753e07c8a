"""The report page in a real browser: the system's Chromium, without a network, opened from disk."""

import json
import re
import shutil
from pathlib import Path

import pytest
from test_report import DIGITS, HERE, say
from worlds import run, trained, write_photos

from openworld.results.report import pictures
from openworld.runs.classes import NAMES
from openworld.runs.folder import RunFolder

CHROMIUM = shutil.which("chromium")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

HOSTILE = '"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Pages of a run on digits, of a run on photos with hostile class names, and of both runs."""
    root = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "MOST_POINTS", 200)
        patch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        patch.chdir(root)
        say(trained("digits", DIGITS), noise=0.5)
        photos = write_photos(root / "photos")
        for part in ("labelled", "test"):
            (photos / part / "cat").rename(photos / part / HOSTILE)
        tiny = ["--steps", 4, "--epoch-steps", 2, "--uncertainty-views", 2]
        assert run("train", photos, "--out", "hostile", *tiny, *HERE) == 0
        RunFolder(root / "hostile").write(NAMES, json.dumps({"novel-1": "</script><script>alert(2)</script>"}))
        for arguments in (["digits"], ["hostile"], ["digits", "hostile"]):
            assert run("report", *arguments, *HERE) == 0
    names = {"digits": "digits/report.html", "hostile": "hostile/report.html", "comparison": "comparison.html"}
    return {name: root / path for name, path in names.items()}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser, pages):
    """Return a function that opens a page. Any error, request or dialog of the page fails the test."""
    complaints, opened = [], []

    def answer(name: str, width: int = 1280, scheme: str = "light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        opened.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
        page.goto(pages[name].as_uri())
        return page

    yield answer
    for page in opened:
        page.close()
    assert complaints == []


def point_at(page, number: int) -> None:
    """Move the mouse to a point of the map."""
    drawing = page.locator("#feature-map")
    drawing.scroll_into_view_if_needed()
    box, point = drawing.bounding_box(), page.evaluate(f"data.map.points[{number}]")
    x = box["x"] + box["width"] * (20 + 760 * point["x"]) / 800
    page.mouse.move(x, box["y"] + box["height"] * (20 + 560 * point["y"]) / 600)


def background(page) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "hostile", "comparison"])
@pytest.mark.parametrize("width", [400, 1280])
def test_it_renders_and_nothing_overflows(show, name, width):
    page = show(name, width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widths = page.evaluate("[...document.querySelectorAll('.beside > *')].map(part => part.offsetWidth)")
    assert all(part == 0 or part > 280 for part in widths)  # beside each other only where there is room; 0 is hidden
    assert page.locator("h1").is_visible()
    assert page.locator("section").count() >= 3
    assert page.evaluate("[...document.images].every(image => !image.src || image.naturalWidth > 0)")
    assert (
        page.evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size")
        == page.locator("[id]").count()
    )


@pytest.mark.slow
def test_names_are_shown_and_do_not_act(show):
    page = show("hostile")
    assert page.locator("h3", has_text="</script><script>alert(2)</script>").count() == 1
    page.select_option("#choose-class", "row 0")
    assert HOSTILE in page.locator("#zoom").inner_text()
    point_at(page, 0)
    assert page.locator("[onerror]").count() == 0
    assert page.locator("script").count() == 2


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_the_button_is_pressed(show, scheme):
    dark, light = "rgb(20, 22, 26)", "rgb(247, 247, 245)"
    mine, other = (light, dark) if scheme == "light" else (dark, light)
    page = show("digits", scheme=scheme)
    button = page.locator("#theme")
    assert background(page) == mine
    assert button.inner_text() == ("dark" if scheme == "light" else "light")
    button.click()
    assert background(page) == other
    page.reload()
    assert background(page) == other
    button.click()
    assert background(page) == mine


@pytest.mark.slow
def test_the_map_shows_the_image_under_the_pointer(show):
    page = show("digits")
    card = page.locator("#map-card")
    assert card.is_hidden()
    point_at(page, 3)
    assert card.is_visible()
    text = card.inner_text()
    assert re.search(r"(unlabelled|test) image \d+", text)
    assert "predicted:" in text
    assert "true class:" in text
    assert (
        card.locator(".piece").evaluate("e => getComputedStyle(e).backgroundImage").startswith('url("data:image/webp')
    )
    assert card.locator(".piece").evaluate("e => getComputedStyle(e).imageRendering") == "pixelated"
    assert page.evaluate("document.querySelectorAll('#feature-map .at').length") == 1
    page.mouse.move(2, 2)
    assert card.is_hidden()


@pytest.mark.slow
def test_the_map_by_keyboard(show):
    page = show("digits")
    page.locator("[data-colour=truth]").focus()
    page.keyboard.press("Tab")
    card = page.locator("#map-card")
    assert card.is_visible()
    before = card.inner_text()
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    page.keyboard.press("ArrowRight")
    assert card.inner_text() != before
    page.keyboard.press("Escape")
    assert card.is_hidden()


@pytest.mark.slow
def test_the_legend_highlights_a_class_and_colours_can_be_true_ones(show):
    page = show("digits")

    def lit() -> set[int]:
        """Return the classes of the points that are not dimmed."""
        kind = "truth" if page.locator("[data-colour=truth]").get_attribute("aria-pressed") == "true" else "predicted"
        return set(
            page.evaluate(
                "kind => [...document.querySelectorAll('#feature-map path')]"
                ".map((mark, n) => mark.classList.contains('dim') ? -2 : data.map.points[n][kind])",
                kind,
            )
        ) - {-2}

    everything = lit()
    assert len(everything) > 5
    page.locator("[data-kind=predicted] button").nth(2).hover()
    assert lit() == {2}
    page.mouse.move(2, 2)
    assert lit() == everything
    page.locator("[data-colour=truth]").click()
    assert page.locator("[data-kind=predicted]").is_hidden()
    page.locator("[data-kind=truth] button").nth(7).click()
    page.mouse.move(2, 2)
    assert lit() == {7}
    strokes = page.evaluate("[...document.querySelectorAll('#feature-map path')].map(mark => mark.style.stroke)")
    truths = page.evaluate("data.map.points.map(point => data.map.colours.truth[point.truth])")
    assert strokes == truths


@pytest.mark.slow
def test_the_confusion_matrix_is_looked_into(show):
    page = show("digits")
    zoom = page.locator("#zoom")
    counts = page.evaluate("data.confusion.counts")
    page.select_option("#choose-class", "row 6")
    assert "True class 6" in zoom.inner_text()
    assert f"{sum(counts[6])} images" in zoom.inner_text()
    assert zoom.locator(".share").count() == sum(count > 0 for count in counts[6])
    assert page.locator(".cell.chosen").count() == zoom.locator(".share").count()
    label = page.locator(".label[data-column='5']")
    label.focus()
    page.keyboard.press("Enter")
    assert "Predicted class novel-1" in zoom.inner_text()
    assert f"{sum(row[5] for row in counts)} images, matches " in zoom.inner_text()
    assert page.locator("#choose-class").input_value() == "column 5"
    mistake = page.evaluate("data.confusion.examples[0]")
    page.locator(f".cell[data-row='{mistake['row']}'][data-column='{mistake['column']}']").click()
    assert f"{counts[mistake['row']][mistake['column']]} images: mistakes" in zoom.inner_text()
    zoom.locator(".piece").first.click()
    assert mistake["caption"] in page.locator("#enlarged pre").inner_text()
    page.locator("#enlarged button").click()
    page.locator(".confusion").click(position={"x": 5, "y": 5})
    assert "Nothing is chosen" in zoom.inner_text()


@pytest.mark.slow
def test_an_image_is_enlarged_with_what_is_known_of_it(show):
    page = show("digits")
    thumb = page.locator(".thumb").first
    thumb.click()
    assert page.locator("#enlarged").is_visible()
    assert page.locator("#enlarged pre").inner_text() == thumb.get_attribute("title")
    assert page.locator("#enlarged img").bounding_box()["width"] > 3 * thumb.bounding_box()["width"]
    page.keyboard.press("Escape")
    assert page.locator("#enlarged").is_hidden()


@pytest.mark.slow
def test_it_prints_with_everything_open(show):
    page = show("digits", scheme="dark")
    closed = "document.querySelectorAll('details:not([open])').length"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.closedThen = {closed} }})")
    before = page.evaluate(closed)
    assert before > 0
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.evaluate("closedThen") == 0
    assert page.evaluate(closed) == before
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.locator("nav").is_hidden()


@pytest.mark.slow
def test_links_of_a_comparison_lead_to_the_reports(show):
    page = show("comparison")
    page.locator("a", has_text="open").first.click()
    assert page.locator("#feature-map").count() == 1
