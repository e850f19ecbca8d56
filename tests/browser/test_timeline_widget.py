"""The timeline in a live JupyterLab: what is painted, what keys and wheel do, and what is left without a kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from tests.browser.figure_pages import open_more
from tests.browser.views_notebook import FAILS

if TYPE_CHECKING:
    from tests.browser.conftest import Lab

pytestmark = [pytest.mark.browser]

# Rank 0 computes 60 % and communicates 30 % of the time, of which a third under computation; rank 1 computes 20 %.
TIMELINE = """
import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline

timeline = Timeline(
    rank=[0, 0, 1, 1],
    lane=[COMPUTE, COMMUNICATION, COMPUTE, COMMUNICATION],
    start_ns=[0, 500_000, 800_000, 100_000],
    end_ns=[600_000, 800_000, 1_000_000, 800_000],
    name=["forward", "send", "backward", "recv"],
    kind=["span", "send", "span", "recv"],
    bytes=[0, 4_000_000, 0, 4_000_000],
    peer=[-1, 1, -1, 0],
    flow=[-1, 0, -1, 0],
)
timeline
"""
LATER = "labkit.compare(timeline, timeline.spans(rank=0), names=('both', 'one'))"
WIDGET = ".labkit-timeline"


def _view(lab: Lab, expression: str, nth: int = 0) -> Any:
    """Evaluate something of the nth timeline in the page, `v` for short."""
    script = (
        f"() => {{ const v = document.querySelectorAll('{WIDGET}')[{nth}].labkit; return ({expression.strip()}); }}"
    )
    return lab.page.evaluate(script)


def _painted(lab: Lab, nth: int = 0) -> None:
    lab.page.wait_for_function(f"() => document.querySelectorAll('{WIDGET}')[{nth}]?.dataset.painted > 0")


def _cells(*sources: str) -> list[nbformat.NotebookNode]:
    return [nbformat.v4.new_code_cell(source.strip()) for source in sources]


SHARES = """
v.state.layout.rows.map((place) => {
  const scale = v.state.ratio, left = Math.round(124 * scale), width = Math.round(v.state.right * scale) - left;
  const y = Math.round(place.y * scale) + 1, pixels = v.canvas.getContext("2d").getImageData(left, y, width, 1).data;
  const ground = [1, 3, 5].map((at) => parseInt(v.state.theme.band.slice(at, at + 2), 16));
  let filled = 0;
  for (let x = 0; x < width; x++) filled += [0, 1, 2].some((c) => Math.abs(pixels[4 * x + c] - ground[c]) > 40);
  return filled / width;
})
"""


STANDS_STILL = """(selector) => new Promise((done) => {
  let before, calm = 0;
  const look = () => {
    const { top } = document.querySelector(selector).getBoundingClientRect();
    calm = top === before ? calm + 1 : 0;
    before = top;
    if (calm > 10) done();
    else requestAnimationFrame(look);
  };
  look();
})"""


@pytest.mark.long
def test_shares_are_painted_numbers_agree_and_keys_stay_in_the_widget(lab: Lab) -> None:
    lab.open("timeline.ipynb", _cells(TIMELINE, LATER))
    lab.run_all(timeout_s=60)
    _painted(lab, 0)
    _painted(lab, 1)
    assert not lab.errors()
    page = lab.page

    # What is painted, without the marks above it: a line of pixels of each row has the share of its spans.
    _view(lab, "v.press('a')")
    page.wait_for_function(f"() => document.querySelector('{WIDGET}').labkit.pending == null")
    assert _view(lab, SHARES) == pytest.approx([0.6, 0.3, 0.2, 0.3], abs=0.03)
    _view(lab, "v.press('a')")
    numbers = json.loads(_view(lab, "v.root.dataset.numbers"))
    assert numbers["busyShare"] == pytest.approx((0.8 + 0.5) / 2)
    assert numbers["computeShare"] == pytest.approx(0.4)
    assert (numbers["exposed"], numbers["communication"]) == (
        500_000,
        600_000,
    )  # since both ends are posted
    shown = page.locator(f"{WIDGET} >> nth=0 >> tr[data-number='sent'] td")
    assert shown.all_text_contents() == ["4 MB in 1 message", "4 MB in 1 message"]

    # The picture for pages without a kernel is there, and hidden.
    assert page.locator(".jp-RenderedImage img >> nth=0").is_hidden()
    lab.screenshot("timeline-widget")

    # Keys: none of them reaches the notebook, where a and b insert cells, x cuts one and dd deletes it.
    before = page.locator(".jp-Notebook .jp-Cell").count()
    page.focus(f"{WIDGET} canvas")
    for key in ("b", "a", "a", "x", "d", "d", "y", "m", "z", "Enter", "c", "c", "t", "t", "?", "?", "[", "]", "Escape"):
        page.keyboard.press(key)
    page.keyboard.press("Home")
    page.focus(f"{WIDGET} .labkit-head button >> nth=0")
    for key in ("b", "a", "x"):
        page.keyboard.press(key)
    assert page.locator(".jp-Notebook .jp-Cell").count() == before

    page.focus(f"{WIDGET} canvas")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    said = page.inner_text(f"{WIDGET} [aria-live] >> nth=0")
    assert "rank 0, send, 300 µs from 500 µs, to rank 1, 4 MB" in said
    page.keyboard.press("c")
    assert "Critical path, 1 ms" in page.inner_text(f"{WIDGET} .labkit-detail >> nth=0")
    page.keyboard.press("+")
    page.wait_for_function(f"() => document.querySelector('{WIDGET}').labkit.pending == null")
    assert json.loads(_view(lab, "v.root.dataset.numbers"))["window"] == pytest.approx(1e6 / 1.6)
    page.keyboard.press("Home")

    # The wheel zooms where the picture has the focus, or with Ctrl; else it scrolls the page.
    canvas = page.locator(f"{WIDGET} canvas >> nth=0")
    canvas.hover()
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"() => document.querySelector('{WIDGET}').labkit.state.view[1] < 999000")
    page.focus(f"{WIDGET} .labkit-head button >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelector('{WIDGET}').labkit.state.view[1] === 1000000")
    page.mouse.wheel(0, -120)
    page.evaluate(STANDS_STILL, f"{WIDGET} canvas")  # the page scrolls in steps
    assert _view(lab, "v.state.view") == [0, 1_000_000]

    # Dragging measures, ends snapped to the edges of spans.
    box = canvas.bounding_box()
    assert box is not None
    x = [box["x"] + _view(lab, f"124 + {share} * (v.state.right - 124)") for share in (0.5, 0.8)]
    y = box["y"] + _view(lab, "v.state.layout.rows[1].y + 5")
    page.mouse.move(x[0] + 3, y)
    page.mouse.down()
    page.mouse.move(x[1] - 4, y, steps=3)
    page.mouse.up()
    assert _view(lab, "v.state.measured") == [500_000, 800_000]
    assert "Measured: 300 µs" in page.inner_text(f"{WIDGET} .labkit-detail >> nth=0")

    # Two runs on one axis.
    page.locator(f"{WIDGET} >> nth=1").scroll_into_view_if_needed()
    assert _view(lab, "v.state.layout.rows.length", 1) == 7  # without the lane of a rank that computes next to nothing
    second = page.locator(f"{WIDGET} >> nth=1")
    open_more(second)
    second.locator("select[aria-label='align the runs at']").select_option("end")
    assert _view(lab, "v.state.offset", 1) == 200_000
    assert _view(lab, "v.state.view", 1) == [0, 1_000_000]
    _view(lab, "v.setOffset(-300000)", 1)
    assert _view(lab, "v.state.view", 1) == [-300_000, 1_000_000]  # who saw the whole sees it still
    _view(lab, "v.align('end')", 1)
    offset = second.locator(".labkit-compare input")
    assert offset.input_value() == "0.2"  # ms
    offset.fill("0.1")
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelectorAll('{WIDGET}')[1].labkit.state.offset === 100000")
    assert _view(lab, "v.state.whole", 1) == [0, 1_000_000]
    assert _view(lab, "v.state.view", 1) == [0, 1_000_000]
    _view(lab, "v.setOffset(-300000)", 1)
    assert _view(lab, "v.state.view", 1) == [-300_000, 1_000_000]  # who saw the whole sees it still
    _view(lab, "v.align('end')", 1)
    difference = page.locator(f"{WIDGET} >> nth=1 >> tr[data-number='sent'] td")
    assert difference.all_text_contents()[:3] == ["4 MB in 1 message", "4 MB in 1 message", "0 B"]
    lab.screenshot("timeline-compare")

    _without_a_kernel(lab, "timeline.ipynb")
    left = [url for url in lab.requests if urllib.parse.urlsplit(url).hostname not in ("127.0.0.1", None)]
    assert not left


# Two ranks take their next step when the page has shown both ends of the last one.
GROWING = """
import os, time
import labkit

def steps():
    for number in range(4):
        with labkit.span(f"step {number}"):
            time.sleep(0.01)
        while number < 3 and not os.path.exists(f"FOLDER/shown-{2 * number + 2}"):
            time.sleep(0.02)

run = labkit.run(steps, on=labkit.local(2, device="cpu"), watch=True, echo=False)
"""


@pytest.mark.long
def test_a_watched_run_grows_in_the_page_and_ends_as_a_picture_too(lab: Lab) -> None:
    lab.open("growing.ipynb", _cells(GROWING.replace("FOLDER", str(lab.folder))))
    lab.page.expose_function("shown", lambda count: (lab.folder / f"shown-{count}").touch())
    lab.page.evaluate(
        """() => {
      window.seen = new Set();
      window.painted = "its own events in each row";
      new MutationObserver(() => {
        const view = document.querySelector(".labkit-timeline")?.labkit;
        if (!view?.state.layout) return;
        const { runs: [run], layout } = view.state;
        if (!window.seen.has(run.start.length)) window.shown(run.start.length);
        window.seen.add(run.start.length);
        if (layout.rows.some(({ row }) => !run.rows.includes(row))) window.painted = "events of another row";
      }).observe(document.body, { subtree: true, childList: true, attributes: true });
    }"""
    )
    lab.run_all(timeout_s=60)
    lab.page.wait_for_function(f"() => document.querySelector('{WIDGET}')?.labkit.state.runs[0].path")
    assert not lab.errors()
    grew = sorted(lab.page.evaluate("() => [...window.seen]"))
    assert grew[-1] == 8 and {2, 4, 6} <= set(grew)
    assert re.match(r"2 ranks, \d", _view(lab, "v.title.textContent"))
    assert lab.page.evaluate("() => window.painted") == "its own events in each row"
    length = lab.page.locator(f"{WIDGET} tr[data-number='window'] td").all_text_contents()
    assert length[0] == length[1]  # the whole run's numbers are those of the finished record
    lab.screenshot("growing")
    kinds = [sorted(output.data) for output in lab.saved("growing.ipynb").cells[0].outputs]
    assert kinds == [["image/png", "text/plain"], ["application/vnd.jupyter.widget-view+json", "text/plain"]]


def _without_a_kernel(lab: Lab, name: str) -> None:
    """Save, end the kernel, open again: the picture is in the page, in the file, and in what the file is made into."""
    saved = lab.saved(name)
    kinds = [sorted(output.data) for output in saved.cells[0].outputs]
    assert kinds == [["image/png", "text/plain"], ["application/vnd.jupyter.widget-view+json", "text/plain"]]
    assert saved.cells[0].outputs[1].data["text/plain"] == "Timeline(2 ranks, 1 ms), to play with"
    assert "widgets" not in saved.metadata

    lab.end_kernel(name)
    lab.page.goto(f"{lab.url}/lab/workspaces/again/tree/{name}")
    picture = lab.page.wait_for_selector(".jp-RenderedImage img")
    assert picture.is_visible()
    lab.screenshot("timeline-reopened")

    convert = [sys.executable, "-m", "nbconvert", "--to", "html", "--stdout", str(lab.folder / name)]
    page = subprocess.run(convert, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'src="data:image/png;base64,' in page


@pytest.mark.long
def test_a_failed_check_opens_the_timeline_at_the_event_to_look_at(lab: Lab) -> None:
    lab.open("fails.ipynb", _cells("\nimport labkit\nimport torch\nimport torch.distributed as dist\n" + FAILS))
    lab.run_all(timeout_s=120)
    _painted(lab)
    assert not lab.errors()
    # All ranks hang in a receive. The one that began first is selected, whichever it was, and fills a third or more.
    focus = "[v.state.focus.event, v.state.runs[0].start, v.state.runs[0].end].map((x, i, [e]) => (i ? x[e] : e))"
    event, begin, end = _view(lab, focus)
    low, high = _view(lab, "v.state.view")
    assert low < begin < end < high and (end - begin) / (high - low) > 0.33
    assert re.match(r"rank [012], recv", _view(lab, f"v.describe(0, {event}).text"))
    assert re.search(r"from rank [01]", lab.page.inner_text(f"{WIDGET} .labkit-detail"))
    assert lab.page.locator(".jp-RenderedImage img").is_hidden()
    lab.screenshot("failed-check")
    kinds = [set(output.data) for output in lab.saved("fails.ipynb").cells[0].outputs]
    assert [("image/png" in data, "text/html" in data) for data in kinds][:2] == [(False, True), (True, False)]


SENDS = """
import labkit
import torch
import torch.distributed as dist

def exchange():
    value = torch.ones(1000)
    dist.all_reduce(value)  # this line

timeline = labkit.run(exchange, on=labkit.virtual(2)).timeline
"""


@pytest.mark.long
def test_an_event_leads_to_the_line_of_the_notebook_that_called_it(lab: Lab) -> None:
    lab.open("lines.ipynb", _cells(SENDS, "timeline"))
    lab.run_all(timeout_s=60)
    _painted(lab)
    assert not lab.errors()
    called = "v.state.runs[0].labels.findIndex(([name]) => name === 'all_reduce')"
    _view(lab, f"v.setFocus(0, v.state.runs[0].label.indexOf({called}))")
    link = lab.page.locator(f"{WIDGET} .labkit-detail .labkit-source")
    assert link.inner_text() == "Cell In[1], line 7"
    link.click()
    assert "dist.all_reduce(value)  # this line" in lab.page.inner_text(".cm-line.labkit-here")
