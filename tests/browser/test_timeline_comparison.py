"""Two runs in one timeline, told apart wherever they are shown; and a run in which nothing happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, HOST, Timeline
from labkit.widgets.timeline_columns import for_page
from labkit.widgets.timeline_page import view
from tests.browser.figure_pages import Open, open_more

pytestmark = [pytest.mark.browser]

VIEW = "document.querySelector('.labkit-timeline').labkit"
SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000


def step(compute_ms: int, reduce_ms: int, wait_ms: int) -> Timeline:
    """Return one rank that computes, then reduces while it waits for the last part of that."""
    ends = [compute_ms, compute_ms + reduce_ms, compute_ms + reduce_ms]
    starts = [0, compute_ms, compute_ms + reduce_ms - wait_ms]
    return Timeline(
        [0] * 3, [COMPUTE, COMMUNICATION, HOST], [each * MS for each in starts], [each * MS for each in ends],
        ["forward", "all_reduce", "wait"], ["span", "all_reduce", "wait"], bytes=[0, 8000, 0],
    )  # fmt: skip


@pytest.fixture
def opened(open_timeline: Open, tmp_path: Path) -> Open:
    """Return a function that opens timelines in one view, on a page of its own."""

    def opened(*timelines: Timeline, names: tuple[str, ...] = ("",), overlay: bool = False, **more: bool) -> Any:
        runs = [for_page(run, name, **more) | {"overlay": overlay} for run, name in zip(timelines, names, strict=True)]
        (tmp_path / "page.html").write_text(view(runs))
        return open_timeline(tmp_path / "page.html", viewport={"width": 1000, "height": 800}, accept_downloads=True)

    return opened


def _numbers(page: Any) -> dict[str, list[str]]:
    open_more(page)
    rows = [row.split("\t") for row in page.locator(".labkit-numbers tbody tr").all_inner_texts()]
    return {row[0]: row[1:] for row in rows}


def _words(page: Any, path: Path) -> list[str | None]:
    open_more(page)
    with page.expect_download() as download:
        page.select_option("select[aria-label=Export]", "SVG")
    download.value.save_as(path)
    return [each.text for each in ElementTree.fromstring(path.read_bytes()).iter(f"{SVG}text")]


def test_the_title_names_the_cause_as_the_picture_does_and_the_strip_waits_for_a_zoom(opened: Any) -> None:
    before, after, names = step(4, 4, 2), step(10, 4, 2), ("before", "after")
    page = opened(before, after, names=names)
    said = "after takes 1.75 times as long as before, mostly because ranks compute longer"
    assert page.inner_text(".labkit-title") == said[:1].upper() + said[1:]
    assert repr(labkit.compare(before, after, names=names)).splitlines()[-1] == f"{said}."
    assert page.locator("canvas.labkit-strip").is_hidden()  # the picture shows both runs whole
    page.evaluate(f"() => {VIEW}.show({2 * MS}, {4 * MS})")
    page.wait_for_selector("canvas.labkit-strip", state="visible")


def ring(num_ranks: int, chunk_ms: int) -> Timeline:
    """Return ranks that send to the next and receive from the one before, all at once, three times."""
    spans = [(rank, kind, turn) for rank in range(num_ranks) for turn in range(3) for kind in ("isend", "irecv")]
    peer = [(rank + (1 if kind == "isend" else -1)) % num_ranks for rank, kind, _ in spans]
    sender = [rank if kind == "isend" else at for (rank, kind, _), at in zip(spans, peer, strict=True)]
    flow = [turn * num_ranks + rank for (_, _, turn), rank in zip(spans, sender, strict=True)]
    kinds = [kind for _, kind, _ in spans]
    starts = [turn * chunk_ms * MS for _, _, turn in spans]
    return Timeline(
        [rank for rank, _, _ in spans], [COMMUNICATION] * len(spans), starts,
        [start + chunk_ms * MS for start in starts], kinds, kinds,
        bytes=[2_000_000] * len(spans), peer=peer, flow=flow,
    )  # fmt: skip


ROWS = f"() => {VIEW}.state.layout.rows.map(({{ run, row }}) => [run, row.rank])"


@pytest.mark.in_turn
def test_of_ranks_that_are_alike_and_exchange_messages_all_are_seen_and_one_step_is_enlarged(
    opened: Any, tmp_path: Path
) -> None:
    page = opened(ring(4, 3), ring(4, 1), names=("slow", "quick"), is_beside=True)
    assert page.evaluate(ROWS) == [[run, rank] for run in (0, 1) for rank in range(4)]
    bars = f"() => {VIEW}.state.layout.rows.map(({{ bar }}) => bar)"
    assert set(page.evaluate(bars)) == {28}  # what comes over what goes
    words = _words(page, tmp_path / "view.svg")
    assert words.count("each rank: 3 × 2 MB in, 3 × 2 MB out") == 1
    assert words.count("first of 3 steps of 2 MB, 4 times as wide") == 1
    assert words.count("send: 1 ms") == 1 and not any(each and "latency" in each for each in words)  # both end at once
    assert words.count("recv ← 3") == 3 + 3 + 1  # of each run its calls, and what is enlarged
    assert words.count("send → 1") == 3 + 3 + 1  # under it, as it begins as the receive does
    assert words.count("rank 0") == words.count("rank 3") == 2  # the rows of what is enlarged go on where theirs lie
    after = "() => { const { state, canvas } = VIEW; const { y } = state.layout.rows.at(-1); const { data } = "
    after += "canvas.getContext('2d').getImageData((canvas.width - 178) / 3 + 134, y * state.ratio + 3, 40, 1);"
    after += "return new Set(data.filter((each, at) => at % 4 === 0)).size + data[0] }"
    assert page.evaluate(after.replace("VIEW", VIEW)) == 256  # all white: where a run has ended it is not idle


@pytest.mark.in_turn
def test_a_step_is_enlarged_as_soon_as_a_window_has_room_for_all_ranks(opened: Any, tmp_path: Path) -> None:
    page = opened(ring(8, 3), ring(8, 1), names=("slow", "quick"), is_beside=True)
    rows = f"(many) => {VIEW}.state.layout.rows.length === many"
    for high, many in ((300, 2), (1600, 16), (300, 2)):
        page.set_viewport_size({"width": 1200, "height": high})
        page.evaluate(f"() => {{ {VIEW}.resize(); {VIEW}.draw(); }}")
        page.wait_for_function(rows, arg=many)
        said = [each for each in _words(page, tmp_path / "view.svg") if each and each.startswith("first of 3 steps")]
        assert len(said) == (many == 16)


@pytest.mark.in_turn
def test_of_more_alike_ranks_than_have_room_the_first_two_and_the_last_are_seen(opened: Any, tmp_path: Path) -> None:
    page = opened(ring(24, 3), ring(24, 1), names=("slow", "quick"), is_beside=True)
    assert page.evaluate(ROWS) == [[run, rank] for run in (0, 1) for rank in (0, 1, 23)]
    assert _words(page, tmp_path / "view.svg").count("▸ ranks 2-22 alike") == 2
    page.press("canvas", "f")
    page.wait_for_function(f"() => {VIEW}.state.layout.rows.length === 48")
    page.press("canvas", "f")
    page.wait_for_function(f"() => {VIEW}.state.layout.rows.length === 6")


@pytest.mark.in_turn
def test_a_message_that_a_pointer_finds_is_what_is_drawn_there(opened: Any) -> None:
    page = opened(ring(4, 3), ring(4, 1), names=("slow", "quick"), is_beside=True)
    page.set_viewport_size({"width": 1000, "height": 900})
    found = """(share) => { const { state, under } = VIEW; const { y, bar } = state.layout.rows[0];
      const { event } = under({ offsetX: 140, offsetY: y + share * bar }); const [run] = state.runs;
      return run.labels[run.label[event]][0]; }"""
    assert [page.evaluate(found.replace("VIEW", VIEW), share) for share in (0.25, 0.75)] == ["irecv", "isend"]


def adding(num_ranks: int) -> Timeline:
    """Return a ring all-reduce after a barrier: in the first steps ranks add what came, then they copy it."""
    steps = 2 * (num_ranks - 1)
    spans = [(rank, turn) for rank in range(num_ranks) for turn in range(steps)]
    table: dict[str, list[Any]] = {
        "rank": [],
        "lane": [],
        "start": [],
        "end": [],
        "name": [],
        "kind": [],
        "peer": [],
        "flow": [],
    }
    for rank, turn in [(rank, -1) for rank in range(num_ranks)] + spans:
        begin = 4 * (turn + 1) * MS
        sends = turn * num_ranks + rank
        hears = turn * num_ranks + (rank - 1) % num_ranks
        calls = (
            ("isend", COMMUNICATION, 0, 2, (rank + 1) % num_ranks, sends),
            ("irecv", COMMUNICATION, 0, 3, (rank - 1) % num_ranks, hears),
            ("add_" if turn < steps // 2 else "copy_", COMPUTE, 3, 4, -1, -1),
        )
        for name, lane, start, end, peer, flow in calls if turn >= 0 else [("barrier", COMMUNICATION, 0, 4, -1, -1)]:
            kind = "operator" if lane == COMPUTE else name
            row = (rank, lane, begin + start * MS, begin + end * MS, name, kind, peer, flow)
            for key, value in zip(table, row, strict=True):
                table[key].append(value)
    size = [500_000 * (flow >= 0) for flow in table["flow"]]
    return Timeline(
        table["rank"], table["lane"], table["start"], table["end"], table["name"], table["kind"],
        bytes=size, peer=table["peer"], flow=table["flow"],
    )  # fmt: skip


@pytest.mark.in_turn
def test_under_an_enlarged_step_it_stands_what_its_time_is_and_under_the_run_what_its_steps_are_for(
    opened: Any, tmp_path: Path
) -> None:
    page = opened(ring(4, 40), adding(4), names=("slow", "ring"), is_beside=True)  # a barrier stands before its steps
    words = _words(page, tmp_path / "view.svg")
    assert words.count("first of 6 steps of 500 KB, 17 times as wide") == 1
    parts = [each for each in words if each and each.endswith(" ms") and ": " in each]
    assert parts == ["send: 2 ms", "latency: 1 ms", "add: 1 ms"]
    assert "6 × 1 = 6 ms" in page.inner_text(".labkit-tiles")
    assert [each for each in words if each and " steps with " in each] == []  # there is no room for both
    page.set_viewport_size({"width": 1600, "height": 800})
    page.wait_for_function(f"() => {VIEW}.state.width > 1500")
    words = _words(page, tmp_path / "view.svg")
    assert [each for each in words if each and " steps with " in each] == ["3 steps with add", "3 steps with copy"]
    assert "collective: barrier" in page.inner_text(".labkit-legend")
    assert page.is_visible("[data-mark=copy]")  # in a colour of its own
    grey = """() => { const { state, canvas } = VIEW; const { y, bar } = state.layout.rows.find(({ run, row }) =>
      run === 1 && row.lane === 0); const { data } = canvas.getContext("2d").getImageData(124, y + bar / 2, 900, 1);
      return Array.from({ length: 900 }, (_, x) => data.slice(4 * x, 4 * x + 3).join()); }"""
    row = page.evaluate(grey.replace("VIEW", VIEW))
    blue, copied = row.index("0,114,178"), row.index("140,140,140")  # adds come first
    assert blue < copied and "0,114,178" not in row[copied : copied + 50]


def sending(end_ms: int) -> Timeline:
    """Return a rank that makes a tensor and sends it to another, which has it when the run ends."""
    return Timeline(
        [0, 0, 0, 1, 1], [COMPUTE, COMMUNICATION, COMPUTE, COMMUNICATION, COMPUTE],
        [0, MS, 80 * MS, MS, 0], [MS, (end_ms - 1) * MS, 90 * MS, end_ms * MS, MS],
        ["ones", "send", "add_", "recv", "ones"], ["operator", "send", "operator", "recv", "operator"],
        bytes=[0, 8000, 0, 8000, 0], peer=[-1, 1, -1, 0, -1], flow=[-1, 0, -1, 0, -1],
    )  # fmt: skip


@pytest.mark.in_turn
def test_a_bar_too_narrow_for_its_name_has_none_and_the_end_hides_no_arrow(opened: Any, tmp_path: Path) -> None:
    page = opened(sending(100), step(40, 40, 20), names=("sends", "reduces"))
    assert _words(page, tmp_path / "view.svg").count("ones") == 0
    paths = [each.attrib["d"] for each in ElementTree.parse(tmp_path / "view.svg").iter(f"{SVG}path")]
    tips = [float(d.split("L")[1].split()[0]) for d in paths if d.count("L") == 1]
    end = page.evaluate(f"() => {VIEW}.state.width - 54")
    assert tips == [pytest.approx(end - 4, abs=0.01)] * 2  # its ground and itself


@pytest.mark.in_turn
def test_two_runs_are_told_apart_in_numbers_strip_cursor_table_and_files(opened: Any, tmp_path: Path) -> None:
    page = opened(step(4, 4, 2), step(6, 2, 1), names=("before", "after"))
    numbers = _numbers(page)
    assert numbers["length"][:3] == ["8 ms", "8 ms", "0 ns"]
    assert numbers["computing"][:3] == ["50 %", "75 %", "+25.0 points"]
    assert numbers["time in compute"] == ["4 ms", "6 ms", "+2 ms"]
    assert numbers["time in collective"][:3] == ["4 ms", "2 ms", "−2 ms"]

    page.evaluate(f"() => {VIEW}.setOffset({2 * MS})")
    page.wait_for_function(f"() => {VIEW}.state.overviewBusy[1].at(0) === 0")
    busy = page.evaluate(
        f"() => {VIEW}.state.overviewBusy.map((shares) => [0.1, 0.9].map((at) => shares.at(at * shares.length)))"
    )
    assert busy == [[0.5, 0], [0, 0.5]]  # one of two rows at a time; the second run begins 2 ms later

    page.press("canvas", "Escape")
    for key in ("]", "]", "m", "]"):  # edges of both: 2 (the second run's begin), 4, 8
        page.press("canvas", key)
    assert page.evaluate(f"() => {VIEW}.state.measured") == [4 * MS, 8 * MS]
    assert (
        "Measured: 4 ms, from 4 ms to 8 ms; ranks busy before 100 %, blocked 0 %, after 100 %, blocked 0 %."
        in page.inner_text(".labkit-detail")
    )
    page.press("canvas", "c")
    said = page.inner_text(".labkit-detail")
    assert (
        "before: Critical path, 8 ms: computing 50 %" in said and "after: Critical path, 8 ms: computing 75 %" in said
    )
    page.press("canvas", "t")
    page.wait_for_selector(".labkit-table td")  # it is written at the next frame
    ranks = page.locator(".labkit-table tbody tr td:first-child").all_inner_texts()
    assert ranks == ["before 0"] * 2 + ["after 0"] * 2

    words = _words(page, tmp_path / "view.svg")
    assert {"before", "after"} <= set(words) and not {"ratio", "busy"} & set(words)
    open_more(page)
    with page.expect_download() as download:
        page.select_option("select[aria-label=Export]", "Chrome trace")
    trace = json.loads(Path(download.value.path()).read_text())["traceEvents"]
    named = {each["args"]["name"]: each["pid"] for each in trace if each["name"] == "process_name"}
    begins = {each["pid"]: each["ts"] for each in trace if each["name"] == "compute/forward"}
    assert begins == {named["before rank 0"]: 0, named["after rank 0"]: 2000}

    page.press("canvas", "o")  # one over the other: ratios, under a heading that says so
    words = _words(page, tmp_path / "outline.svg")
    assert {"ratio", "× 0.667", "× 2.00"} <= set(words) and "busy" not in words
    assert "ratio: busy time, before / after" in page.inner_text(".labkit-legend")


@pytest.mark.long
def test_of_a_run_in_which_nothing_was_recorded_the_view_says_so(opened: Any, tmp_path: Path) -> None:
    page = opened(Timeline(num_ranks=2))
    assert page.inner_text(".labkit-title") == "2 ranks, nothing recorded"
    assert page.inner_text(".labkit-detail") == "Nothing recorded."
    assert page.get_attribute("canvas", "aria-label") == "2 ranks, nothing recorded. Press ? for keys."
    numbers = _numbers(page)
    assert (numbers["length"], numbers["busy"], numbers["bubble"]) == (["0 ns"], ["–"], ["–"])
    page.press("canvas", "t")
    page.wait_for_function("() => document.querySelector('.labkit-table caption')?.innerText === 'Nothing recorded.'")
    assert _words(page, tmp_path / "view.svg") == []  # no axis over no time
    for key in ("ArrowRight", "ArrowDown", "]", "m", "c", "Enter", "+", "Home", " ", "o"):
        page.press("canvas", key)
    assert page.evaluate(f"() => {VIEW}.state.focus") is None
