"""A device's streams in the timeline: rows of their own, arrows of waits, what is exposed, and folded where many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from tests.browser.figure_pages import Open, open_more
from tests.widgets.sharded_run import sharded_run

pytestmark = [pytest.mark.browser, pytest.mark.in_turn]

VIEW = "document.querySelector('.labkit-timeline').labkit"
ROWS = "v.state.layout.rows.map(({ row, bar }) => [row.rank, row.stream ?? '', bar])"
NAMES = ["default stream", "copies, stream 1", "stream 2", "default group"]
HINT = "Streams are folded"


@pytest.fixture
def opened(open_timeline: Open, tmp_path: Path) -> Open:
    """Return a function that opens a timeline as a page of its own."""

    def opened(timeline: Timeline, width: int = 1000, **more: Any) -> Any:
        timeline.to_html(tmp_path / "page.html")
        page = open_timeline(tmp_path / "page.html", viewport={"width": width, "height": 800}, **more)
        page.errors = []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        return page

    return opened


def _of(page: Any, expression: str) -> Any:
    return page.evaluate(f"() => {{ const v = {VIEW}; v.draw(); return ({expression}); }}")


def _legend(page: Any) -> list[str]:
    return [words for words in page.locator(".labkit-legend > span:visible").all_inner_texts() if words]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_streams_have_rows_and_waits_have_arrows_that_the_legend_explains(opened: Any, scheme: str) -> None:
    page = opened(sharded_run(4), color_scheme=scheme)
    rows = _of(page, ROWS)
    assert [name for _, name, _ in rows if name] == NAMES  # of the first of four ranks that are alike
    assert {bar for *_, bar in rows} == {16}
    legend = " ".join(_legend(page))
    assert "a stream waited for another until then" in legend and "exposed: no computing hides it" in legend
    assert HINT not in page.inner_text(".labkit-detail")
    # An arrow is ink, between the two rows, where the wait was over.
    ink = """(() => {
      const { state } = v, run = state.runs[0], found = [];
      const rowOf = (event) => state.layout.rows.find(({ row }) => event >= row.first && event < row.last);
      const [r, g, b] = [1, 3, 5].map((at) => parseInt(state.theme.ink.slice(at, at + 2), 16));
      const [a, z] = state.view, scale = (state.right - 124) / (z - a);
      run.held_to.forEach((to, k) => {
        const [from, until] = [rowOf(run.held_from[k]), rowOf(to)];
        if (!from || from === until) return;
        const x = 124 + (run.held_until[k] - a) * scale;
        const [top, low] = [Math.min(from.y, until.y) + 16, Math.max(from.y, until.y)];
        const y = top + 5 < low ? low - 5 : top + 4;
        const { data } = v.canvas.getContext("2d").getImageData(Math.round(x) - 2, y, 4, 1);
        found.push([0, 4, 8, 12].some((at) => Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) < 260));
      });
      return found;
    })()"""
    found = _of(page, ink)
    assert len(found) > 10 and sum(found) >= 0.9 * len(found)
    page.press("canvas", "a")
    assert sum(_of(page, ink)) < 0.5 * len(found)
    assert "waited for another" not in " ".join(_legend(page))
    assert page.errors == []


def test_a_key_a_click_and_a_button_fold_streams_and_the_event_stays_in_focus(opened: Any) -> None:
    page = opened(sharded_run(4))
    numbers = json.loads(page.get_attribute(".labkit-timeline", "data-numbers"))
    page.focus("canvas")
    for _ in range(5):
        page.keyboard.press("ArrowDown")
    heard = [page.inner_text(".labkit-detail")]
    while "waited" not in heard[-1] and len(heard) < 9:
        page.keyboard.press("ArrowRight")
        heard.append(page.inner_text(".labkit-detail"))
    told = heard[-1]
    assert "all_gather_into_tensor" in told and "on default group" in told and "for all_gather_copy_in" in told
    page.keyboard.press("s")
    assert HINT in page.inner_text(".labkit-spoken")
    assert {name for _, name, _ in _of(page, ROWS)} == {""}
    assert _of(page, "v.describe(0, v.state.focus.event).text").split(" · ")[0] in told
    assert json.loads(page.get_attribute(".labkit-timeline", "data-numbers")) == numbers
    page.keyboard.press("s")
    assert page.inner_text(".labkit-spoken") == "Each stream has a row."
    place = _of(page, "v.state.layout.rows.find(({ row }) => row.stream === 'stream 2').y")
    page.locator("canvas").first.click(position={"x": 110, "y": place + 8})
    assert {name for _, name, _ in _of(page, ROWS)} == {""}
    open_more(page)
    button = page.get_by_role("button", name="Streams")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    page.wait_for_selector("button[aria-pressed=true]:has-text('Streams')")
    assert {name for _, name, _ in _of(page, ROWS) if name} == {*NAMES}
    assert page.errors == []


def _many(num_ranks: int) -> Timeline:
    """Return ranks whose times differ, each with five streams, of eight more than have room."""
    rank = np.repeat(np.arange(num_ranks), 5)
    lane = np.tile([COMPUTE, COMPUTE, COMPUTE, COMMUNICATION, COMPUTE], num_ranks)
    start = np.tile([0, 100, 200, 300, 900], num_ranks) * (1 + rank)
    table = {
        "span": np.flatnonzero(np.arange(5 * num_ranks) % 5 != 0),
        "stream": np.tile(["stream 1", "stream 2", "the default group", "stream 3"], num_ranks),
    }
    kind = np.where(lane == COMMUNICATION, "all_reduce", "operator")
    return Timeline(rank, lane, start, start + 90, kind, kind, tables={"stream": table})


def test_streams_without_room_are_folded_and_it_is_said_how_to_open_them(opened: Any) -> None:
    page = opened(_many(4))
    assert len({name for _, name, _ in _of(page, ROWS)}) == 5
    page = opened(_many(8), width=320)
    page.wait_for_selector("[data-painted]")
    assert {name for _, name, _ in _of(page, ROWS)} == {""}
    assert HINT in page.inner_text(".labkit-detail")
    page.focus("canvas")
    page.keyboard.press("s")
    assert len([name for _, name, _ in _of(page, ROWS) if name]) == 40
    page = opened(_many(12))  # a row a rank
    page.focus("canvas")
    page.keyboard.press("s")
    assert len([name for _, name, _ in _of(page, ROWS) if name]) == 60
    page.keyboard.press("r")
    assert {name for _, name, _ in _of(page, ROWS)} == {""}


def test_a_run_without_streams_has_no_word_of_them(opened: Any) -> None:
    timeline = sharded_run(4).select(np.ones(len(sharded_run(4)), dtype=bool))
    del timeline.tables["stream"], timeline.tables["held"]
    page = opened(timeline)
    open_more(page)
    assert page.get_by_role("button", name="Streams").count() == 0
    page.focus("canvas")
    page.keyboard.press("?")
    assert "stream" not in page.inner_text(".labkit-timeline").lower()
