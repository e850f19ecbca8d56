"""The timeline as a page of its own: it opens without a server, exports what it shows, and fits a narrow window."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.browser.figure_pages import Open, open_more
from tests.timeline.small_timelines import exchange

pytestmark = [pytest.mark.browser]

VIEW = "document.querySelector('.labkit-timeline').labkit"


def _export(page: Any, kind: str, path: Path) -> str:
    open_more(page)
    with page.expect_download() as download:
        page.select_option("select[aria-label=Export]", kind)
    download.value.save_as(path)
    return path.read_text(errors="replace")


@pytest.mark.in_turn
def test_it_exports_pictures_a_trace_and_itself(open_timeline: Open, tmp_path: Path) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html")
    trace = json.loads(_export(page, "Chrome trace", tmp_path / "trace.json"))
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 3  # a wait is no bar
    assert _export(page, "PNG", tmp_path / "view.png")[1:4] == "PNG"
    page.press("canvas", "c")
    page.evaluate(f"() => {VIEW}.setFocus(0, 0)")
    drawing = ElementTree.fromstring(_export(page, "SVG", tmp_path / "view.svg"))
    words = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"rank 0", "rank 1", "compute", "forward", "isend → 1", "recv ← 0", "time (ms)"} <= set(words)
    theme = page.evaluate(f"() => {VIEW}.state.theme")
    strokes = {each.get("stroke") for each in drawing.iter("{http://www.w3.org/2000/svg}path")}
    assert {theme["arrow"], theme["path"], theme["ink"]} <= strokes  # a message, the critical path, the frame
    _export(page, "HTML", tmp_path / "again.html")
    again = open_timeline(tmp_path / "again.html")
    assert again.evaluate(f"() => {VIEW}.state.runs[0].start.length") == 3
    again.press("canvas", "c")
    assert "Critical path, 2 ms" in again.inner_text(".labkit-detail")


FIRST = """async () => {
  const old = document.querySelector(".labkit-timeline").labkit, root = document.createElement("div");
  window.fired = 0;
  for (let k = 0; k < 9; k++) setTimeout(() => window.fired++, 300);
  document.body.append(root);
  const view = new old.constructor(root, { runs: old.packed });
  await new Promise(requestAnimationFrame);
  const { data } = view.canvas.getContext("2d").getImageData(0, 0, view.canvas.width, view.canvas.height);
  return [new Set(new Uint32Array(data.buffer)).size > 5, root.dataset.painted ?? ""];
}"""


@pytest.mark.in_turn
def test_the_picture_is_seen_before_its_numbers_are_counted_and_no_other_timer_is_cleared(
    open_timeline: Open, tmp_path: Path
) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html")
    assert page.evaluate(FIRST) == [True, ""]
    page.wait_for_function(
        "() => document.querySelectorAll('.labkit-timeline[data-painted][data-numbers]').length === 2"
    )
    page.evaluate("() => document.querySelectorAll('.labkit-timeline')[1].labkit.draw()")
    page.wait_for_function("() => window.fired === 9")


@pytest.mark.in_turn
def test_it_opens_with_zoom_and_path_and_a_key_shows_the_rest_under_more(open_timeline: Open, tmp_path: Path) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html")
    seen = "[...document.querySelectorAll('button, select, input')].filter((each) => each.checkVisibility())"
    names = f"{seen}.map((each) => each.ariaLabel ?? each.textContent)"
    first = ["Fit", "−", "+", "Critical path", "More"]
    assert page.evaluate(names) == first
    more = page.get_by_role("button", name="More")
    assert more.get_attribute("aria-expanded") == "false"
    more.press("Enter")
    assert more.get_attribute("aria-expanded") == "true"
    assert page.evaluate(names) == [*first, "Arrows", "Table", "Export", "Keys"]
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Arrows"
    more.press(" ")
    assert page.evaluate(names) == first and more.get_attribute("aria-expanded") == "false"


@pytest.mark.long
def test_it_follows_a_change_of_scheme_and_leaves_f5_to_the_browser(open_timeline: Open, tmp_path: Path) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html", viewport={"width": 900, "height": 700})
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"() => {VIEW}.root.dataset.theme === 'dark'")
    pressed = "new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true })"
    left = page.evaluate(f"() => ['F5', 'Home'].filter((key) => {VIEW}.canvas.dispatchEvent({pressed}))")
    assert left == ["F5"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("scheme", "theme"), [pytest.param("light", "light", marks=pytest.mark.long), ("dark", "dark")]
)
def test_it_takes_the_readers_theme_and_fits_640_pixels(
    open_timeline: Open, tmp_path: Path, scheme: str, theme: str
) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html", color_scheme=scheme, viewport={"width": 640, "height": 900})
    assert page.evaluate(f"() => {VIEW}.root.dataset.theme") == theme
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 640


@pytest.mark.long
def test_where_less_motion_is_asked_for_the_cursor_does_not_run(open_timeline: Open, tmp_path: Path) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html", reduced_motion="reduce")
    page.press("canvas", " ")
    assert "reduced motion" in page.inner_text(".labkit-detail")
    assert page.evaluate(f"() => {VIEW}.playing ?? null") is None
    page.press("canvas", "]")
    assert page.inner_text(".labkit-detail").startswith("500 µs: rank 0: forward, rank 1: recv")
