"""A saved notebook shows its pictures wherever it goes: page, paper, slides, Markdown, LaTeX, sites without scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from labkit.doctor import find_browser
from labkit.grading.relay.calls import Call
from labkit.grading.reports.call_picture import call_picture
from labkit.grading.reports.feedback import feedback_html
from labkit.grading.score import CaseResult, ExerciseResult, StudentResult
from labkit.lessons.manifest import Exercise
from tests.browser.views_notebook import EXPLORERS, NUM_PICTURES, NUM_TIMELINES, executed, sanitised

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.browser, pytest.mark.in_turn]

# Without what nbconvert's own pages load, so that every request is ours.
CONVERT = """
import sys
from nbconvert.nbconvertapp import NbConvertApp

own = [f"--HTMLExporter.{each}=" for each in ("require_js_url", "mathjax_url", "jupyter_widgets_base_url")]
for kind in ("html", "slides", "markdown", "latex"):
    NbConvertApp.clear_instance()
    NbConvertApp.launch_instance(["--to", kind, *own, sys.argv[1]])
"""
PAINTED = "images => images.filter(image => image.complete && image.naturalWidth > 300).length"
FIGURES = ".labkit-figure[data-live] svg[role=img]"
# nbconvert prints with Playwright's own Chromium; this prints with the one that is here.
PRINT = """
import sys
import playwright.async_api as api
from nbconvert.nbconvertapp import main

launch = api.BrowserType.launch
api.BrowserType.launch = lambda self, **options: launch(self, executable_path=sys.argv[1], **options)
main(["--to", "webpdf", "--disable-chromium-sandbox", "--log-level=ERROR", sys.argv[2]])
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executed(tmp_path_factory.mktemp("saved") / "views.ipynb")


def _run(*command: str) -> None:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def converted(notebook: Path) -> Path:
    """The folder with what nbconvert makes of the notebook: page, slides, Markdown and LaTeX."""
    _run("-c", CONVERT, str(notebook))
    return notebook.parent


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Return a function that opens a page without a network and keeps what it asked for."""
    contexts = []

    def opened(path: Path, **options: Any) -> Any:
        contexts.append(browser.new_context(offline=True, viewport={"width": 1000, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.asked, page.failed = [], []
        contexts[-1].on("request", lambda request: page.asked.append(request.url))
        page.on("pageerror", lambda error: page.failed.append(str(error)))
        page.goto(path.as_uri(), wait_until="commit")
        return page

    yield opened
    for context in contexts:
        context.close()


def wait_for_pictures(page: Any, count: int) -> None:
    """Wait until so many images are painted; a page without scripts has no frames of animation to wait for."""
    until = time.monotonic() + 180
    while (found := page.evaluate(f"() => ({PAINTED})([...document.images])")) != count and time.monotonic() < until:
        page.wait_for_timeout(50)
    assert found == count


@pytest.mark.long
def test_as_a_page_pictures_are_painted_explorers_play_and_nothing_is_asked_for(converted: Path, opened: Any) -> None:
    page = opened(converted / "views.html")
    page.wait_for_function(f"() => document.querySelectorAll('{FIGURES}').length === {len(EXPLORERS)}")
    wait_for_pictures(page, NUM_TIMELINES)
    for figure in page.query_selector_all(".labkit-figure"):
        before = figure.get_attribute("data-step")
        figure.query_selector(f"[data-act={'next' if before == '0' else 'back'}]").click()
        assert figure.get_attribute("data-step") != before
    assert "Guess first" in page.inner_text("body")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 1000
    assert not page.failed
    assert [url for url in page.asked if not url.startswith(("data:", "blob:"))] == [page.url]


def test_where_scripts_are_off_every_picture_is_painted(converted: Path, opened: Any) -> None:
    page = opened(converted / "views.html", java_script_enabled=False)
    wait_for_pictures(page, NUM_PICTURES)
    assert all(image.get_attribute("alt") for image in page.query_selector_all(".labkit-figure img"))


def test_a_site_that_strips_programs_styles_and_attributes_shows_every_picture(converted: Path, opened: Any) -> None:
    stripped = converted / "stripped.html"
    stripped.write_text(sanitised((converted / "views.html").read_text(encoding="utf-8")))
    page = opened(stripped, java_script_enabled=False)
    wait_for_pictures(page, NUM_PICTURES)
    assert "DecompressionStream" not in page.inner_text("body")


def test_as_slides_pictures_are_painted_and_explorers_live(converted: Path, opened: Any) -> None:
    page = opened(converted / "views.slides.html")
    page.wait_for_function(f"() => document.querySelectorAll('{FIGURES}').length === {len(EXPLORERS)}")
    wait_for_pictures(page, NUM_TIMELINES)


@pytest.mark.long
def test_on_paper_every_figure_is_whole(notebook: Path, tmp_path: Path) -> None:
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium or Chrome on this machine: apt install chromium")
    shutil.copy(notebook, tmp_path)
    _run("-c", PRINT, browser, str(tmp_path / "views.ipynb"))
    pdf = (tmp_path / "views.pdf").read_bytes()
    assert pdf.count(b"/Subtype /Image") >= NUM_TIMELINES
    rasteriser = shutil.which("pdftoppm")
    if rasteriser is None:
        pytest.skip("the pages' pictures were not looked at: apt install poppler-utils")
    subprocess.run([rasteriser, "-r", "50", tmp_path / "views.pdf", tmp_path / "page"], check=True, timeout=120)
    pages = [Image.open(path).convert("RGB") for path in sorted(tmp_path.glob("page*.ppm"))]
    assert 3 <= len(pages) <= 9
    # A collective on the timeline, as a still is filled, backward in the schedules, a bucket.
    for colour in ("423dff", "ddaa33", "0072b2"):
        assert max(_count(page, bytes.fromhex(colour)) for page in pages) > 100, colour


def _count(page: Image.Image, rgb: bytes) -> int:
    """Return how many pixels have a colour, but for what a printer rounds."""
    colours = page.getcolors(page.width * page.height) or ()
    return sum(number for number, pixel in colours if max(map(abs, map(int.__sub__, pixel, rgb))) <= 1)


@pytest.mark.long
def test_printed_explorers_end_inside_the_page(converted: Path, opened: Any) -> None:
    page = opened(converted / "views.html")
    page.wait_for_function(f"() => document.querySelectorAll('{FIGURES}').length === {len(EXPLORERS)}")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    reach = "all => all.map(each => each.getBoundingClientRect().right)"
    assert max(page.eval_on_selector_all(".labkit-figure svg, .labkit-figure svg rect", reach)) <= 720
    assert not [each for each in page.query_selector_all(".labkit-figure button") if each.is_visible()]


def test_as_markdown_and_latex_every_picture_is_there(converted: Path) -> None:
    markdown = (converted / "views.md").read_text(encoding="utf-8")
    assert len(re.findall(r"!\[png\]\(\S+\.png\)|<img [^>]*src=\"data:image/png;base64,", markdown)) == NUM_PICTURES
    included = re.findall(r"adjustimage.*\{(\S+?\.png)\}", (converted / "views.tex").read_text(encoding="utf-8"))
    assert len(included) == NUM_PICTURES
    assert all((converted / name).read_bytes().startswith(b"\x89PNG") for name in included)


def test_feedback_shows_a_failed_cases_calls_as_a_picture(tmp_path: Path, opened: Any) -> None:
    calls = [Call(rank, 0, "send", 1 - rank, 8, None, "waits") for rank in (0, 1)]
    case = CaseResult("2 ranks", False, "Both ranks wait.", "Look at send.", picture=call_picture(calls, 2))
    exercise = Exercise("naive_all_reduce", "Reduce to rank 0", ("f",), 8, 1, 1, 1, False)
    result = StudentResult("ann", "", (ExerciseResult(exercise, "failed", (case,), 1),), (), "", (), (), "a", "b")
    (tmp_path / "feedback.html").write_bytes(feedback_html(result, "Ring all-reduce"))
    page = opened(tmp_path / "feedback.html", java_script_enabled=False)
    picture = page.wait_for_selector("svg.calls", state="attached").bounding_box()
    assert picture["width"] > 200 and picture["x"] + picture["width"] <= 1000
    assert page.asked == [page.url]
