"""What a timeline can do besides bars: strip, memory, the clock's error, critical path, table, and files that open."""

from __future__ import annotations

import io
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, REGION, Timeline
from labkit.timeline.memory import memory_curve
from labkit.timeline.metrics import busy_share
from labkit.timeline.transfers import transfer_table
from tests.browser.figure_pages import Open, open_more
from tests.widgets.known_runs import Known, timeline_of
from tests.widgets.known_steps import one_late

pytestmark = [pytest.mark.browser]

VIEW = "document.querySelector('.labkit-timeline').labkit"
SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000


def steps() -> Timeline:
    """Return rank 0 computing 4 ms and sending 2 ms, rank 1 receiving and computing 2 ms, clocks known to 0.2 ms."""
    return Timeline(
        rank=[0, 0, 1, 1],
        lane=[COMPUTE, COMMUNICATION, COMMUNICATION, COMPUTE],
        start_ns=[0, 4 * MS, 3 * MS, 6 * MS],
        end_ns=[4 * MS, 6 * MS, 6 * MS, 8 * MS],
        name=["forward", "send", "recv", "backward"],
        kind=["span", "send", "recv", "span"],
        bytes=[0, 5000, 5000, 0],
        peer=[-1, 1, 0, -1],
        flow=[-1, 0, 0, -1],
        tables={"clock": {"rank": np.array([0, 1]), "err_ns": np.array([0, MS // 5])}},
    )


@pytest.fixture
def opened(open_timeline: Open, tmp_path: Path) -> Open:
    """Return a function that opens a timeline as a page of its own."""

    def opened(timeline: Timeline) -> Any:
        timeline.to_html(tmp_path / "page.html")
        return open_timeline(tmp_path / "page.html", viewport={"width": 1000, "height": 800}, accept_downloads=True)

    return opened


def _of(page: Any, expression: str) -> Any:
    return page.evaluate(f"() => {{ const v = {VIEW}; v.draw(); return ({expression}); }}")


def _pixels(page: Any, canvas: str, colour: str, box: str) -> list[int]:
    """Return for each pixel column of a box [x, y, width, height] how many pixels have the colour "#rrggbb"."""
    script = f"""() => {{
      const v = {VIEW}; v.draw();
      const [x, y, width, height] = {box}, [r, g, b] = [1, 3, 5].map((at) => parseInt({colour}.slice(at, at + 2), 16));
      const {{ data }} = {canvas}.getContext("2d").getImageData(x, y, width, height);
      return Array.from({{ length: width }}, (_, c) => Array.from({{ length: height }}, (_, l) => 4 * (l * width + c))
        .filter((at) => Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b) < 12).length);
    }}"""
    return list(page.evaluate(script))


@pytest.mark.long
def test_the_strip_shows_how_busy_the_run_is_and_moves_the_window(opened: Any) -> None:
    page = opened(steps())
    busy = np.array(_of(page, "[...v.state.overviewBusy[0]]"))
    columns = len(busy)
    # Computing and communicating are two rows of each rank: one of four is filled, two while the message moves.
    assert busy[columns // 8] == pytest.approx(0.25) and busy[int(0.6 * columns)] == pytest.approx(0.5)
    assert busy.mean() == pytest.approx((4 + 2 + 2 + 2) / 8 / 4, abs=0.01)
    assert page.locator("canvas.labkit-strip").is_hidden()  # the picture shows the whole run
    painted = np.array(_pixels(page, "v.strip", "v.state.theme.quiet", "[124, 0, v.state.right - 124, 26]"))
    assert painted.sum() == 0 or painted.max() <= 26  # covered by the window's shade while all is in view
    page.evaluate(f"() => {VIEW}.show({2 * MS}, {4 * MS})")
    page.wait_for_selector("canvas.labkit-strip", state="visible")
    painted = np.array(_pixels(page, "v.strip", "v.state.theme.quiet", "[124, 0, v.state.right - 124, 26]"))
    outside = [x for x in range(columns) if not 0.23 * columns < x < 0.52 * columns]
    assert np.abs(painted[outside] - 22 * busy[outside]).max() <= 2

    box = page.locator("canvas.labkit-strip").bounding_box()
    at = lambda time: box["x"] + 124 + time / 8 * columns  # noqa: E731  (ms)
    for begin, end in ((3.0, 5.0), (6.0, 7.0)):  # its middle moves the window, its edge makes it longer
        page.mouse.move(at(begin), box["y"] + 10)
        page.mouse.down()
        page.mouse.move(at(end), box["y"] + 10, steps=3)
        page.mouse.up()
    assert np.array(_of(page, "v.state.view")) / MS == pytest.approx([4, 7], abs=0.05)
    assert json.loads(_of(page, "v.root.dataset.numbers"))["window"] == pytest.approx(3 * MS, rel=0.02)


def holds_memory() -> None:
    held = [torch.zeros(1_000_000)]
    for _ in range(3):
        held.append(held[-1] @ torch.zeros(1_000_000, 1) + torch.zeros(1_000_000))
        dist.all_reduce(held[-1])


@pytest.mark.long
def test_the_memory_of_a_rank_is_drawn_under_its_rows_when_it_is_asked_for(opened: Any) -> None:
    timeline = labkit.run(holds_memory, on=labkit.virtual(2)).timeline
    page = opened(timeline)
    assert _of(page, "v.state.layout.memories") == []
    open_more(page)
    page.click("text=Memory")
    places = _of(page, "v.state.layout.memories")
    assert [place["rank"] for place in places] == [0, 1]
    most = max(int(memory_curve(timeline, rank)[1].max()) for rank in (0, 1))
    assert most >= 4 * 4_000_000
    for place in places:
        times, held = memory_curve(timeline, place["rank"])
        box = f"[124, {round(place['y'])}, v.state.right - 124, {place['height']}]"
        painted = _pixels(page, "v.canvas", "v.state.theme.held", box)
        low, high = _of(page, "v.state.view")
        edges = timeline.start_ns.min() + low + np.linspace(0, high - low, len(painted) + 1)
        first, last = (np.searchsorted(times, each, side="right") - 1 for each in (edges[:-1], edges[1:]))
        steady = np.flatnonzero((first == last) & (first >= 0))[1:-1]
        expected = held[first[steady]] / most * (place["height"] - 1)
        assert len(steady) > 100
        off = np.abs(np.array(painted)[steady] - expected) > 2.5
        assert off.mean() < 0.08  # ticks and marks stand over it


@pytest.mark.long
def test_the_error_of_a_clock_is_drawn_at_the_edges_of_its_bars_and_said(opened: Any) -> None:
    page = opened(steps())
    scale = (_of(page, "v.state.right") - 124) / (8 * MS)
    rows = _of(page, "v.state.layout.rows.map(({ y, bar, row }) => [row.rank, row.lane, y, bar])")
    (place,) = [each for each in rows if each[:2] == [1, COMPUTE]]
    edge, reach = 124 + 6 * MS * scale, 0.2 * MS * scale
    ground = "v.state.theme.band"
    box = f"[{round(edge - 3 * reach)}, {round(place[2])}, {round(3 * reach) - 1}, {place[3]}]"
    free = np.array(_pixels(page, "v.canvas", ground, box))
    # Left of the bar, where nothing runs, the whisker reaches as far as the clock may be off, and no farther.
    marked = np.flatnonzero(free < free[0])
    assert len(marked) and abs((len(free) - marked.min()) - reach) <= 2.5
    page.evaluate(f"() => {VIEW}.setFocus(0, 2)")
    assert "rank 1, backward (span)" in (said := page.inner_text(".labkit-detail")) or "rank 1" in said
    assert "clock ± 200 µs" in said


@pytest.mark.in_turn
def test_the_critical_path_is_drawn_over_both_ranks(opened: Any) -> None:
    page = opened(steps())
    columns = """[...Array(v.state.right - 124).keys()].map((x) =>
      v.canvas.getContext("2d").getImageData(124 + x, 0, 1, v.canvas.height).data.join())"""
    plain = _of(page, columns)
    page.press("canvas", "c")
    assert page.inner_text(".labkit-detail").startswith("Critical path, 8 ms")
    changed = np.array(plain) != np.array(_of(page, columns))
    assert changed.mean() > 0.95  # from the first begin to the last end
    on_edge = """[[0, 0.25], [1, 0.875], [1, 0.4]].map(([rank, share]) => {
      const { y } = v.state.layout.rows.find(({ row }) => row.rank === rank && row.lane === 0);
      const x = Math.round(124 + share * (v.state.right - 124));
      const [r, g, b] = v.canvas.getContext("2d").getImageData(x, y + 1, 1, 1).data;
      return "#" + [r, g, b].map((part) => part.toString(16).padStart(2, "0")).join("") === v.state.theme.path;
    })"""
    assert _of(page, on_edge) == [True, True, False]  # forward, then backward of the other rank; it idles before
    page.press("canvas", "c")
    assert _of(page, columns) == plain


@pytest.mark.in_turn
def test_the_table_lists_the_events_in_view_for_a_screen_reader(opened: Any) -> None:
    page = opened(steps())
    assert not page.is_visible(".labkit-table")
    open_more(page)
    page.click("button:has-text('Table')")
    page.wait_for_selector(".labkit-table td")  # it is written at the next frame
    rows = [row.split("\t") for row in page.locator(".labkit-table tr").all_inner_texts()]
    assert rows[0] == ["rank", "event", "kind", "begin", "length", "bytes", "peer", "line"]
    assert [row[:7] for row in rows[1:]] == [
        ["0", "forward", "span", "0 ns", "4 ms", "", ""],
        ["0", "send", "send", "4 ms", "2 ms", "5 KB", "1"],
        ["1", "backward", "span", "6 ms", "2 ms", "", ""],
        ["1", "recv", "recv", "3 ms", "3 ms", "5 KB", "0"],
    ]
    assert page.inner_text(".labkit-table caption") == "4 events in view."
    page.evaluate(f"() => {VIEW}.show({6.5 * MS}, {8 * MS})")
    page.wait_for_function("() => document.querySelector('.labkit-table caption').innerText === '1 event in view.'")


def _export(page: Any, kind: str, path: Path) -> bytes:
    open_more(page)
    with page.expect_download() as download:
        page.select_option("select[aria-label=Export]", kind)
    download.value.save_as(path)
    return path.read_bytes()


@pytest.mark.long
def test_each_of_the_four_files_opens_and_says_what_the_view_says(opened: Any, browser: Any, tmp_path: Path) -> None:
    timeline = steps()
    page = opened(timeline)
    image = Image.open(io.BytesIO(_export(page, "PNG", tmp_path / "view.png"))).convert("RGB")
    blue = tuple(int(_of(page, "v.state.theme.colours[0]")[at : at + 2], 16) for at in (1, 3, 5))
    place = _of(page, "v.state.layout.rows[0].y")
    width = _of(page, "v.state.right") - 124
    line = [
        image.getpixel((124 + x, image.height - _of(page, "v.canvas.height") + round(place) + 1)) for x in range(width)
    ]
    assert np.mean([colour == blue for colour in line]) == pytest.approx(0.5, abs=0.02)  # 4 of 8 ms

    drawing = ElementTree.fromstring(_export(page, "SVG", tmp_path / "view.svg"))
    bars = [each for each in drawing.iter(f"{SVG}path") if each.get("fill") == _of(page, "v.state.theme.colours[0]")]
    wide = [float((each.get("d") or "").split("h")[1].split("v")[0]) for each in bars]
    assert sum(wide) == pytest.approx(width / 2, abs=2)

    trace = json.loads(_export(page, "Chrome trace", tmp_path / "trace.json"))["traceEvents"]
    spans = {each["name"]: (each["ts"], each["dur"]) for each in trace if each["ph"] == "X"}
    assert spans["compute/forward"] == (0, 4000) and spans["comm/recv"] == (3000, 3000) and len(spans) == 4
    assert [each["ph"] for each in trace if each["ph"] in "sf"] == ["s", "f"]

    _export(page, "HTML", tmp_path / "again.html")
    again = browser.new_page()
    again.goto((tmp_path / "again.html").as_uri())
    again.wait_for_selector("[data-painted]")
    numbers = json.loads(_of(again, "v.root.dataset.numbers"))
    assert numbers["busyShare"] == pytest.approx(busy_share(timeline).mean())
    again.close()


def alike(num_ranks: int) -> Timeline:
    """Return ranks that compute 4 ms with an all_reduce of 3 ms from 2 ms on, named, the last rank half as fast."""
    slow = [1 + (rank == num_ranks - 1) for rank in range(num_ranks)]
    spans = [(rank, lane, slow[rank] * begin, slow[rank] * end) for rank in range(num_ranks)
             for lane, begin, end in ((REGION, 0, 5), (COMPUTE, 0, 4), (COMMUNICATION, 2, 5))]  # fmt: skip
    rank, lane, start, end = np.array(spans).T
    kind = np.array(["operator", "all_reduce", "", "span"])[lane]
    return Timeline(rank, lane, start * MS, end * MS, np.where(lane == REGION, "step", kind), kind)


@pytest.mark.long
def test_ranks_that_are_alike_are_folded_and_a_click_on_their_name_unfolds_them(opened: Any) -> None:
    page = opened(alike(6))
    ranks = "[...new Set(v.state.layout.rows.map(({ row }) => row.rank))]"
    assert _of(page, ranks) == [0, 5]
    assert _of(page, "v.root.dataset.numbers").count("busyShare") == 1  # of all ranks, folded or not
    before = json.loads(_of(page, "v.root.dataset.numbers"))
    page.locator("canvas >> nth=0").click(position={"x": 20, "y": 40})
    page.wait_for_function(f"() => {VIEW}.state.folded === false")
    assert _of(page, ranks) == [0, 1, 2, 3, 4, 5]
    assert json.loads(_of(page, "v.root.dataset.numbers")) == before
    page.press("canvas", "f")
    page.wait_for_function(f"() => {VIEW}.state.folded === true")
    assert _of(page, ranks) == [0, 5]


def cluster(num_ranks: int = 64, steps: int = 52) -> Timeline:
    """Return ranks that compute 4 to 5 ms and all-reduce, rank 13 twice and rank 40 half as long."""
    draw = np.random.default_rng(0)
    work = draw.uniform(4, 5, (steps, num_ranks)) * MS
    if num_ranks > 40:
        work[:, 13], work[:, 40] = 10 * MS, 2 * MS
    begin = np.arange(steps)[:, None] * 11 * MS + np.zeros(num_ranks)
    middle, end = begin + work, begin + 11 * MS
    ranks = np.tile(np.arange(num_ranks), 3 * steps)
    start, stop = np.stack((begin, begin + work / 3, middle), 1), np.stack((begin + work / 3, middle, end), 1)
    lane = np.tile(np.repeat([COMPUTE, COMPUTE, COMMUNICATION], num_ranks), steps)
    name = np.tile(np.repeat(["forward", "backward", "all_reduce"], num_ranks), steps)
    span = np.flatnonzero(lane == COMMUNICATION)
    same = np.ones(len(span), dtype=bool)
    calls = {"span": span, "group": np.array(["all"] * len(span)), "number": span // (3 * num_ranks), "blocking": same}
    kind = np.where(lane == COMPUTE, "span", "all_reduce")
    whole = start.astype(np.int64).ravel(), stop.astype(np.int64).ravel()
    return Timeline(ranks, lane, *whole, name, kind, tables={"call": calls})


@pytest.mark.in_turn
def test_many_ranks_are_a_cluster_the_slowest_and_outliers_first_and_all_on_the_first_screen(opened: Any) -> None:
    timeline = cluster()
    page = opened(timeline)
    assert len(timeline) == 9984
    assert _of(page, "v.state.layout.heads.map(({ text }) => text)") == [
        "slowest: computes 2.2 × as long as the median rank", "outliers", "the others",
    ]  # fmt: skip
    assert _of(page, "v.state.layout.rows.map(({ row }) => row.rank)") == [13, 13, 40, 40, 0, 0]  # the rest is alike
    page.press("canvas", "f")
    rows = _of(page, "v.state.layout.rows.map(({ y, bar, row }) => [row.rank, row.lane, y, bar])")
    assert [row[0] for row in rows[:6:2]] == [13, 40, 0] and len(rows) == 128
    for (rank, lane, y, bar), (below, under, where, thin) in zip(rows[::2], rows[1::2], strict=True):
        assert (rank, lane, under) == (below, COMPUTE, COMMUNICATION) and where == y + bar and thin < bar
    assert _of(page, "v.state.layout.height") <= page.locator(".labkit-plot").bounding_box()["height"] <= 640
    before = rows[-1][3]
    page.press("canvas", ">")  # the other axis
    page.press("canvas", ">")
    assert _of(page, "v.state.layout.rows.at(-1).bar") > before
    open_more(page)
    page.click("text=Cluster")
    assert _of(page, "v.state.layout.heads") == []


@pytest.mark.in_turn
def test_the_collective_under_the_pointer_lights_up_on_every_rank_and_is_told_beside_it(opened: Any) -> None:
    page = opened(cluster(4, 3))
    row = "v.state.layout.rows.find(({ row }) => row.rank === 2 && row.lane === 1)"
    x, y = 124 + (_of(page, "v.state.right") - 124) * 9.9 / 33, _of(page, f"{row}.y + 3")
    page.hover("canvas >> nth=0", position={"x": x, "y": y})
    page.wait_for_function(f"() => {VIEW}.state.lit.size === 4")
    begins, names = "v.state.runs[0].start[at]", "v.state.runs[0].labels[v.state.runs[0].label[at]][0]"
    assert set(_of(page, f"[...v.state.lit].map((at) => {names})")) == {"all_reduce"}
    assert max(_of(page, f"[...v.state.lit].map((at) => {begins})")) < 11 * MS  # of the first step alone
    assert page.inner_text(".labkit-tip").startswith("rank 2, all_reduce, ")
    page.mouse.move(5, 5)
    page.wait_for_function(f"() => {VIEW}.state.lit.size === 0")
    assert page.locator(".labkit-tip").is_hidden()
    page.press("canvas", "ArrowDown")  # by keys, too
    page.press("canvas", "ArrowDown")
    assert len(_of(page, "[...v.state.lit]")) == 4
    page.press("canvas", "Escape")
    assert _of(page, "[...v.state.lit]") == []


@pytest.mark.long
def test_what_no_computation_hides_has_a_red_edge_and_a_name_has_no_bar(opened: Any) -> None:
    page = opened(alike(1))
    assert "exposed" in page.inner_text(".labkit-legend")
    (place,) = [each for each in _of(page, "v.state.layout.rows.map(({ row, y, bar }) => [row.lane, y, bar])")
                if each[0] == COMMUNICATION]  # fmt: skip
    _, y, bar = place
    red = np.array(_pixels(page, "v.canvas", "v.state.theme.alarm", f"[124, {y + bar - 2}, v.state.right - 124, 2]"))
    columns = len(red)
    # The all_reduce lasts from 4 to 10 ms; the rank computes until 8.
    assert red[: int(0.79 * columns)].max() == 0 and red[int(0.81 * columns) : int(0.99 * columns)].min() > 0
    numbers = json.loads(_of(page, "v.root.dataset.numbers"))
    assert (numbers["compute"], numbers["communication"], numbers["exposed"]) == (8 * MS, 6 * MS, 2 * MS)


def late() -> Timeline:
    """Return three ranks that compute 4 ms, the last one 6 ms, and then all-reduce for 2 ms once all are there."""
    work = [4, 4, 6]
    both = [(rank, lane, begin, end) for rank, long in enumerate(work)
            for lane, begin, end in ((COMPUTE, 0, long), (COMMUNICATION, long, 8))]  # fmt: skip
    rank, lane, start, end = np.array(both).T
    kind = np.array(["operator", "all_reduce"])[lane]
    calls = np.flatnonzero(lane == COMMUNICATION)
    call = {"span": calls, "group": np.array(["world"] * 3), "number": np.zeros(3, dtype=np.int64)}
    tables = {
        "call": call | {"blocking": np.ones(3, dtype=bool)},
        "transfer": transfer_table([(int(span), 6 * MS, 8 * MS) for span in calls]),
    }
    return Timeline(rank, lane, start * MS, end * MS, kind, kind, bytes=[0, 8] * 3, tables=tables)


@pytest.mark.in_turn
def test_who_comes_last_is_tied_to_the_ends_of_the_waits_which_are_red_and_say_how_long_they_are(opened: Any) -> None:
    page = opened(late())
    assert page.inner_text(".labkit-title") == "Rank 2 comes last; the others wait 25 % of the time for it"
    tiles = page.locator(".labkit-tiles div").all_inner_texts()
    assert tiles[1].split("\n") == ["computes 1.5 times as long", "rank 2: 6 ms, the others 4 ms"]
    assert tiles[2].split("\n") == ["2 ms", "waiting, each of ranks 0, 1"]  # the title says the share
    words = _exported(page)
    assert words.count("waits 2 ms") == 2  # over the waits of ranks 0 and 1
    rows = "v.state.layout.rows.map(({ row, y, bar }) => [row.rank, row.lane, y, bar])"
    at = {(rank, lane): (y, bar) for rank, lane, y, bar in _of(page, rows)}
    (computing, high), (waits, bar), (ends, _) = at[1, COMPUTE], at[1, COMMUNICATION], at[2, COMPUTE]
    assert waits - computing - high > 14  # the words stand between the lanes, and no arrow goes through them
    alarm = _pixels(page, "v.canvas", "v.state.theme.alarm", f"[124, {waits}, v.state.right - 124, {bar}]")
    assert max(alarm) > 0 and alarm.index(next(filter(None, alarm))) / len(alarm) == pytest.approx(0.5, abs=0.01)
    assert not page.is_visible("[data-mark=hidden]")
    assert page.inner_text("[data-mark=late]") == "↑ held up by rank 2"
    between = f"[124, {waits + bar}, v.state.right - 124, {ends - waits - bar}]"
    tie = np.array(_pixels(page, "v.canvas", "v.state.theme.alarm", between))
    columns = np.flatnonzero(tie == ends - waits - bar) / (len(tie) - 1)
    assert len(columns) == 2 and columns == pytest.approx(0.75, abs=0.01)  # from who ends the wait to it
    near, far = (f"[124, {y}, v.state.right - 124, 2]" for y in (waits + bar + 4, ends - 2))
    head, tail = (np.count_nonzero(_pixels(page, "v.canvas", "v.state.theme.alarm", box)) for box in (near, far))
    assert head > tail == 2  # with a head where it waits
    page = opened(steps())
    assert not [each for each in _exported(page) if each.startswith("waits ")]
    assert not page.is_visible("[data-mark=late]")


def trains(times: float) -> None:
    """Train three steps with async all-reduces; rank 2 computes so many times as long."""
    late = times if dist.get_rank() == 2 else 1
    grads = [torch.ones(1_500_000) for _ in range(4)]
    for _ in range(3):
        with labkit.span("forward"):
            for _ in range(int(8 * late)):
                torch.zeros(512, 512) @ torch.zeros(512, 512)
        works = []
        with labkit.span("backward"):
            for grad in grads:
                for _ in range(int(4 * late)):
                    torch.zeros(512, 512) @ torch.zeros(512, 512)
                works.append(dist.all_reduce(grad, async_op=True))
        for work in works:
            work.wait()
        with labkit.span("optimizer"):
            for grad in grads:
                grad.mul_(0.9)


@pytest.mark.in_turn
def test_the_first_step_is_told_and_title_and_tile_say_what_lateness_costs_as_a_sum_of_what_is_seen(
    opened: Open,
) -> None:
    page = opened(labkit.run(trains, 1.75, on=labkit.virtual(8)).timeline)
    quick = labkit.run(trains, 1, on=labkit.virtual(8)).timeline
    edges = _of(page, "JSON.parse(v.root.dataset.numbers).edges")
    assert len(edges) == 4 and 0 < edges[0] < 0.1 * edges[1]  # the first step begins with its forward
    tiles = [tile.split("\n") for tile in page.locator(".labkit-tiles div").all_inner_texts()]
    ends = np.sort(quick.end_ns[(quick.rank == 0) & (quick.name == "optimizer") & (quick.lane == REGION)])
    saved = (edges[3] - edges[0]) / 3 - (ends[2] - ends[0]) / 2  # beside a run in which rank 2 is as quick
    page.set_viewport_size({"width": 1440, "height": 900})
    words = _exported(page)
    cause, (cost, label) = tiles  # the title says how long a step is, and what is lost of it
    assert cause == ["computes 1.7 times as long", "rank 2, compared with the others"]
    assert label == "starting late + waiting, each step" and cost.endswith(f" = {saved / 1e3:.3g} µs")
    late, waiting = re.findall(r"[\d.]+", cost)[:2]
    assert f"{float(late) + float(waiting):.3g}" == f"{saved / 1e3:.3g}"
    step = (edges[3] - edges[0]) / 3
    part = f"{saved / 1e3:.3g} of {step / 1e3:.3g} µs ({100 * saved / step:.0f} %)"
    assert page.inner_text(".labkit-title") == f"Rank 2 comes last; it costs every step {part}"
    assert {"step 1", "step 2", "step 3", "▸ 7 alike", "0, 1, 3-7"} <= set(words)
    named = [each for each in words if re.match("(starts|waits|done) ", each)]  # in words in the first of the steps
    assert named[0] == f"starts {late} µs late" and len(named) == 2
    assert re.fullmatch(rf"waits \d times, {waiting} µs in all", named[1])
    assert (words.count(f"{late} µs"), words.count(f"{waiting} µs")) == (2, 2)  # in the others what is the same
    assert page.inner_text("[data-mark=hidden]") == "┅ called; rank 2 has not called yet"
    assert page.is_visible("[data-mark=other]")  # before step 1
    page.evaluate(f"() => {VIEW}.show({edges[1]}, {edges[3]})")  # of those in view
    words = _exported(page)
    assert [each for each in words if re.match("(starts|waits|done) ", each)] == named
    assert (words.count(f"{late} µs"), words.count(f"{waiting} µs")) == (1, 1)
    page.evaluate(f"() => {VIEW}.press('Home')")
    page.set_viewport_size({"width": 420, "height": 900})  # no room for both: no number that stands for the other
    page.evaluate(f"() => {VIEW}.resize()")
    assert not [each for each in _exported(page) if re.search(r"\d µs", each)]
    title = "{ ...v.packed[0], title: v.packed[0].title.replace('Rank 2 comes', 'Ranks 2 and 3 come') }"
    _of(page, f"v.setRuns([{title}])")
    assert page.text_content("[data-mark=hidden]") == "┅ called; the last rank has not called yet"


@pytest.mark.in_turn
def test_that_a_rank_waits_is_said_once_in_a_row_and_then_how_long_each_time(opened: Any) -> None:
    page = opened(timeline_of(Known("late", one_late, 4), 0))
    page.set_viewport_size({"width": 1440, "height": 900})
    words = _exported(page)
    assert len([each for each in words if re.fullmatch(r"waits [\d.]+ ms", each)]) == 3  # of three ranks
    assert len([each for each in words if re.fullmatch(r"[\d.]+ ms", each)]) == 3 * 5  # in six steps


# [words, left, right, middle] of all that a canvas is painted with; no line is higher than 14 pixels.
PAINTED = f"""() => {{
  const painted = [];
  const {{ fillText }} = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (words, x, y, most = Infinity) {{
    const wide = Math.min(this.measureText(words).width, most);
    const left = x - {{ left: 0, center: wide / 2, right: wide }}[this.textAlign];
    painted.push([words, left, left + wide, y]);
  }};
  {VIEW}.draw();
  Object.assign(CanvasRenderingContext2D.prototype, {{ fillText }});
  return painted;
}}"""


@pytest.mark.in_turn
@pytest.mark.parametrize("has_memory", [True, False])
def test_names_before_rows_keep_off_each_other_and_what_was_held_off_the_area_that_shows_it(
    opened: Any, has_memory: bool
) -> None:
    page = opened(labkit.run(holds_memory, on=labkit.virtual(4)).timeline)
    if has_memory:
        page.press("canvas", "y")
    words = [each for each in page.evaluate(PAINTED) if each[3] > 16]  # below the axis
    names = [each for each in words if each[1] < 124 - 10]
    assert {"compute", "comm"} < {name for name, *_ in names} and any("alike" in name for name, *_ in names)
    for (one, left, right, y), (other, begin, end, middle) in combinations(names, 2):
        apart = max(left, begin) - min(right, end)
        assert apart > 7 or abs(y - middle) >= 14, (one, other)
    held = [each for each in words if each[0].endswith(" MB")]
    assert bool(held) == has_memory and all(left > _of(page, "v.state.width") - 54 for _, left, *_ in held)


@pytest.mark.in_turn
def test_where_waits_have_no_room_for_words_a_run_opens_on_the_first_of_the_steps_it_speaks_of(
    open_timeline: Open, tmp_path: Path
) -> None:
    labkit.run(trains, 1.75, on=labkit.virtual(8)).timeline.to_html(tmp_path / "page.html")
    wide, page = (
        open_timeline(tmp_path / "page.html", viewport={"width": width, "height": 800}, accept_downloads=True)
        for width in (1000, 400)
    )
    tiles = [each.locator(".labkit-tiles").inner_text() for each in (wide, page)]
    assert tiles[0] == tiles[1] and "in view" not in tiles[1]  # what is said of each step
    first = _of(wide, "JSON.parse(v.root.dataset.numbers).edges")[:2]
    assert _of(page, "v.state.view") == first and _of(wide, "v.state.view") == _of(wide, "v.state.whole")
    late, waiting = re.findall(r"[\d.]+", tiles[0].split("compared with the others")[1])[:2]
    words = [each[0] for each in page.evaluate(PAINTED)]
    assert {"step 1 of 3", f"{late} µs late", f"waits {waiting} µs"} <= set(words)
    assert page.locator("canvas.labkit-strip").is_hidden()
    hint = "getComputedStyle(v.plot, '::after').content"
    assert (_of(page, hint), _of(wide, hint)) == ('"Fit shows all steps."', "none")
    page.emulate_media(media="print")
    assert _of(page, hint) == "none"  # nobody taps on paper
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 800, "height": 400})  # held the other way
    page.wait_for_function(f"() => {VIEW}.state.width > 700")
    assert _of(page, "v.state.view") == first
    page.click("text=Fit")
    page.wait_for_function(f"() => {VIEW}.root.dataset.begun === 'false'")
    assert _of(page, "v.state.view") == _of(page, "v.state.whole") and _of(page, hint) == "none"
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function(f"() => {VIEW}.state.width < 400")
    assert _of(page, "v.state.view") == _of(page, "v.state.whole")


@pytest.mark.in_turn
def test_time_has_the_whole_width_where_nothing_stands_beside_the_rows(opened: Any) -> None:
    beside = "v.state.width - v.state.right"
    assert _of(opened(steps()), beside) == 54  # how busy each row is
    page = opened(late())
    assert _of(page, beside) == 8
    assert max(right for _, _, right, _ in page.evaluate(PAINTED)) <= _of(page, "v.state.width")
    page = opened(labkit.run(holds_memory, on=labkit.virtual(2)).timeline)
    page.press("canvas", "y")
    assert _of(page, beside) == 54  # how much each rank held


@pytest.mark.in_turn
def test_a_picture_is_drawn_for_paper_before_it_is_printed(opened: Any) -> None:
    page = opened(late())
    page.evaluate(f"""() => {{
      const view = {VIEW}, draw = view.draw.bind(view);
      window.drawn = [];
      view.draw = () => window.drawn.push(view.canvas.style.width) && draw();
      addEventListener("afterprint", () => window.drawn.push("printed"));
    }}""")
    wide = _of(page, "v.canvas.style.width")
    page.pdf()
    drawn = page.evaluate("() => window.drawn")
    assert [each for each in drawn[: drawn.index("printed")] if each != wide]


def _exported(page: Any) -> list[str]:
    """Return all words of the picture as an SVG document."""
    open_more(page)
    with page.expect_download() as download:
        page.select_option("select[aria-label=Export]", "SVG")
    return [each.text or "" for each in ElementTree.parse(download.value.path()).iter(f"{SVG}text")]


# What JupyterLab says of every list in an output.
OF_JUPYTERLAB = """
.jp-RenderedHTMLCommon dl { display: grid; grid-template-columns: 200px 1fr; overflow: hidden }
.jp-RenderedHTMLCommon dt { float: left; width: 20%; font-weight: bold }
.jp-RenderedHTMLCommon dd { float: left; width: 80%; margin-left: 40px }
"""
TILES = """() => [...document.querySelectorAll(".labkit-tiles div")].map((tile) => {
  const [value, label] = [...tile.children].map((each) => each.getBoundingClientRect());
  return [Math.round(value.top), Math.round(value.left - label.left), label.top >= value.bottom - 1];
})"""


def test_tiles_stand_beside_each_other_with_labels_beneath_in_a_host_that_styles_lists(opened: Open) -> None:
    page = opened(steps())
    page.evaluate("document.body.classList.add('jp-RenderedHTMLCommon')")
    page.evaluate(
        f"document.head.prepend(Object.assign(document.createElement('style'), {{textContent: `{OF_JUPYTERLAB}`}}))"
    )
    tiles = page.evaluate(TILES)
    assert len(tiles) == 3 and len({top for top, _, _ in tiles}) == 1
    assert all(aside == 0 and is_beneath for _, aside, is_beneath in tiles)


def test_in_a_low_notebook_the_numbers_stand_on_a_line_and_rows_are_low(opened: Open) -> None:
    page = opened(steps())
    page.set_viewport_size({"width": 1000, "height": 1200})
    page.evaluate("document.body.classList.add('jp-Notebook', 'jp-OutputArea')")
    bars = "[...new Set(v.state.layout.rows.map(({ bar }) => bar))]"
    _of(page, "v.resize()")
    assert all(is_beneath for *_, is_beneath in page.evaluate(TILES)) and _of(page, bars) == [16]
    page.set_viewport_size({"width": 1000, "height": 900})
    _of(page, "v.resize()")
    assert not any(is_beneath for *_, is_beneath in page.evaluate(TILES)) and _of(page, bars) == [14]
