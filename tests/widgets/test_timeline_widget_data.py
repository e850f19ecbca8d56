"""What the page is given: columns, labels, source lines; and when a notebook shows the widget at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

import labkit
from labkit.errors import ConfigError
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.timeline.metrics import collective_timings
from labkit.widgets import live, timeline_page, timeline_view
from labkit.widgets.layout import row_layout
from labkit.widgets.timeline_columns import BYTES_PER_EVENT, pack, pack_path
from tests.timeline.small_timelines import exchange

ROOT = Path(__file__).parents[2]


def _column(packed: dict, name: str) -> np.ndarray:
    kind, offset, length = packed["layout"][name]
    return np.frombuffer(packed["columns"], dtype=f"<{kind}", offset=offset, count=length)


def test_events_come_by_row_then_begin_with_the_longer_first() -> None:
    timeline = Timeline([1, 0, 0, 0], [COMPUTE] * 4, [5, 7, 3, 3], [9, 9, 4, 8], list("abcd"), ["span"] * 4)
    packed = pack(timeline)
    assert packed["rows"] == [[0, 0, 3], [1, 0, 1]]
    names = [packed["labels"][code][0] for code in _column(packed, "label")]
    assert names == ["d", "c", "b", "a"]
    assert _column(packed, "start").tolist() == [0, 0, 4, 2]
    assert _column(packed, "duration").tolist() == [5, 1, 2, 4]


def test_an_event_takes_28_bytes_and_every_column_is_aligned() -> None:
    count = 10_000
    lane, end = np.arange(count) % 2, np.arange(1, count + 1) * 10**9
    timeline = Timeline(np.zeros(count), lane, end - 5, end, ["x"] * count, ["span"] * count)
    packed = pack(timeline)
    assert len(packed["columns"]) <= BYTES_PER_EVENT * count
    assert all(offset % 8 == 0 for _, offset, _ in packed["layout"].values())
    assert len(json.dumps({key: value for key, value in packed.items() if key != "columns"})) < 3000
    assert _column(packed, "start")[-1] == (count - 1) * 10**9


def test_events_whose_name_is_their_kind_keep_both() -> None:
    words, lines = ["isend", "irecv"] * 3, np.array(["a.py:1", "a.py:1", "a.py:1", "a.py:1", "a.py:2", "a.py:2"])
    tables = {"source": {"span": np.arange(6), "line": lines}}
    timeline = Timeline(
        [0] * 6, [COMMUNICATION] * 6, range(6), range(1, 7), words, words, [4] * 6, [1, 1, 2, 2, 2, 2], tables=tables
    )
    packed = pack(timeline)
    found = [packed["labels"][code] for code in _column(packed, "label")]
    assert [label[:2] for label in found] == [[word, word] for word in words]
    assert [label[3:5] for label in found] == [[1, "a.py:1"]] * 2 + [[2, "a.py:1"]] * 2 + [[2, "a.py:2"]] * 2


def test_a_message_joins_the_places_of_its_two_events() -> None:
    packed = pack(exchange())
    names = [packed["labels"][code][0] for code in _column(packed, "label")]
    ends = _column(packed, "flow_from")[0], _column(packed, "flow_to")[0]
    assert [names[end] for end in ends] == ["isend", "recv"]
    assert [label[4] for label in packed["labels"] if label[0] in ("isend", "recv")] == ["a.py:1", "a.py:2"]


def test_a_source_line_in_a_file_is_shown_with_what_stands_there(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\n    dist.send(chunk, peer)\n")
    line = f"{tmp_path / 'mine.py'}:2"
    tables = {"source": {"span": np.array([0]), "line": np.array([line])}}
    packed = pack(Timeline([0], [COMMUNICATION], [0], [1], ["send"], ["send"], tables=tables))
    assert packed["labels"] == [["send", "send", 4, -1, "mine.py:2", "dist.send(chunk, peer)"]]


@pytest.mark.in_turn
def test_collectives_have_the_bus_bandwidth_of_the_metrics() -> None:
    def _work() -> None:
        import torch
        import torch.distributed as dist

        for size in (1000, 50_000):
            dist.all_reduce(torch.ones(size))
            dist.all_gather([torch.empty(size) for _ in range(4)], torch.ones(size))
        dist.barrier()

    timeline = labkit.run(_work, on=labkit.virtual(4), echo=False).timeline
    assert timeline is not None
    packed, expected = pack(timeline), [each for each in collective_timings(timeline) if np.isfinite(each.busbw)]
    took, size = _column(packed, "collective_duration"), _column(packed, "collective_bus_bytes")
    assert took.tolist() == [each.duration_ns for each in expected]
    assert size / took * 1e9 == pytest.approx([each.busbw for each in expected])


def test_memory_and_clock_errors_are_sent_where_the_record_has_them() -> None:
    def _work() -> None:
        import torch

        first = torch.ones(100_000)
        second = first * 2
        del first
        second.sum()

    timeline = labkit.run(_work, on=labkit.virtual(2), echo=False).timeline
    assert timeline is not None
    packed = pack(timeline)
    assert packed["memory"] == [0, 1] and packed["source"] == "simulated"
    assert _column(packed, "memory_held_1").max() == 800_000
    timeline.tables["clock"]["err_ns"] = np.array([0, 38_000])
    assert pack(timeline)["clock"] == [[1, 38_000]]


def test_how_far_clocks_may_be_off_is_said_beside_the_source() -> None:
    timeline = exchange()
    timeline.tables["clock"] = {
        "rank": np.arange(2),
        "method": np.array(["barrier"] * 2),
        "err_ns": np.array([5, 38_000]),
    }
    assert pack(timeline)["source"] == "measured, clocks ± 38 µs"


def test_what_is_wrong_in_the_record_is_said_first() -> None:
    assert pack(exchange())["says"] == "Rank 0 sent and nobody received."
    assert pack(Timeline([0], [COMPUTE], [0], [5], ["a"], ["span"]))["says"] == ""
    assert pack(Timeline(num_ranks=2))["says"] == "Nothing recorded."
    assert pack(Timeline(num_ranks=2))["title"] == "2 ranks, nothing recorded"


@pytest.mark.parametrize(("error_ns", "doubts"), [(99, True), (100, False)])
def test_a_message_that_arrives_before_it_left_is_doubted_beyond_the_error_of_the_clocks(
    error_ns: int, doubts: bool
) -> None:
    clock = {"clock": {"rank": np.array([1]), "err_ns": np.array([error_ns])}}
    timeline = Timeline(
        [0, 1], [COMMUNICATION] * 2, [200, 0], [300, 100], ["send", "recv"], ["send", "recv"], peer=[1, 0], flow=[0, 0],
        tables=clock,
    )  # fmt: skip
    assert ("1 message arrives before it left" in pack(timeline)["says"]) == doubts


def test_the_path_is_sent_in_pieces_that_follow_each_other() -> None:
    path = pack_path(exchange())
    start, end = _column(path, "path_start"), _column(path, "path_end")
    assert (start[1:] == end[:-1]).all() and end[-1] == 2_000_000
    assert path["text"].startswith("Critical path, 2 ms: computing 50 %")


def test_of_many_ranks_64_are_sent_or_those_that_were_asked_for() -> None:
    timeline = Timeline(np.arange(512), [COMPUTE] * 512, [0] * 512, [1] * 512, ["x"] * 512, ["span"] * 512)
    assert len(pack(timeline)["rows"]) == 64
    assert "(64 of the ranks shown)" in pack(timeline)["title"]
    assert [rank for rank, _, _ in pack(timeline, ranks=[400, 3])["rows"]] == [3, 400]
    with pytest.raises(ConfigError, match="no rank 512; its ranks are 0 to 511"):
        timeline.explore(ranks=[512])


def test_empty_timelines_can_be_explored_and_compared() -> None:
    for timeline in (Timeline(), Timeline(num_ranks=2)):
        assert repr(timeline.explore()) == f"{timeline!r}, to play with"
        assert labkit.compare(timeline, timeline).to_png().startswith(b"\x89PNG")


def test_a_view_opens_at_the_row_it_is_asked_for() -> None:
    view = exchange().explore(row=3)
    packed = view.runs[0]
    assert packed["labels"][_column(packed, "label")[view.focus]][0] == "recv"
    with pytest.raises(ConfigError, match="no row 4; its rows are 0 to 3"):
        exchange().explore(row=4)


def test_two_runs_are_compared_in_words_and_on_one_scale() -> None:
    timeline = exchange()
    both = labkit.compare(timeline, timeline.spans(lane=COMPUTE), names=("all", "computing"))
    cause = "mostly because less communication is exposed"  # 1.25 ms of the mean rank, of 1 ms in all
    assert repr(both).splitlines()[-1] == f"computing is 2 times faster than all, {cause}."
    assert [run["span"] for run in both.explore().runs] == [2_000_000, 1_000_000]
    queue, even = (
        Timeline(range(4), [COMMUNICATION] * 4, [0] * 4, ends, ["send"] * 4, ["send"] * 4)
        for ends in ([90, 20, 20, 20], [30] * 4)
    )
    told = [repr(labkit.compare(*pair, names=("one by one", "b"))) for pair in ((queue, even), (even, queue))]
    assert told[0].endswith("“b” is 3 times faster than “one by one”, mostly because bytes no longer queue at rank 0.")
    assert told[1].endswith("“b” takes 3 times as long as “one by one”, mostly because bytes queue at rank 0.")
    nothing = labkit.compare(timeline, Timeline(num_ranks=2), names=("all", "nothing"))
    assert repr(nothing).splitlines()[-1] == "nothing: 2 ranks, nothing recorded."
    assert labkit.compare(timeline, timeline, how="outline").explore().runs[0]["overlay"] is True
    with pytest.raises(ConfigError, match='how=\'above\' is not known; use "below" or "outline"'):
        labkit.compare(timeline, timeline, how="above")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="needs two timelines or runs, and got a int"):
        labkit.compare(timeline, 3)


@pytest.mark.parametrize("to", [1, 2])  # a rank of a row of its own, and one that the sender's row stands for
def test_pairs_that_exchange_messages_are_folded_beside_another_run(to: int) -> None:
    sender = [0, 1, 2, 3]
    receiver = [rank ^ to for rank in sender]
    pairs = Timeline(
        rank=sender + receiver, lane=[COMMUNICATION] * 8, start_ns=[0] * 8,
        end_ns=[100 + 10 * (rank % 2) for rank in sender + receiver],
        name=["isend"] * 4 + ["recv"] * 4, kind=["isend"] * 4 + ["recv"] * 4, bytes=[4] * 8,
        peer=receiver + sender, flow=[*range(4), *range(4)],
    )  # fmt: skip
    both = labkit.compare(pairs, pairs, names=("before", "after"))
    assert [run["alike"] for run in both.explore().runs] == [[[0, 2], [1, 3]]] * 2
    assert both.to_png().startswith(b"\x89PNG")
    assert row_layout(pairs, is_beside=True).names == {0: "0 and 2", 1: "1 and 3"}


@pytest.mark.in_turn
def test_a_page_of_its_own_asks_for_nothing(tmp_path: Path) -> None:
    timeline = exchange()
    timeline.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    outside = page.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in outside and "https://" not in outside and "import " not in timeline_view.program()
    assert page.count("</script>") == 1
    assert page == timeline_page.page(timeline)


ELSEWHERE = ("VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG")


def _in_no_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what says how a notebook is shown: the tests may be run from a terminal of VS Code."""
    for name in ("LABKIT_VIEWS", *ELSEWHERE):
        monkeypatch.delenv(name, raising=False)


def test_the_widget_is_shown_where_a_jupyter_server_started_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    _in_no_editor(monkeypatch)
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    assert live.is_live()
    monkeypatch.setenv("LABKIT_VIEWS", "static")
    assert not live.is_live()
    monkeypatch.delenv("JPY_SESSION_NAME")
    monkeypatch.setenv("LABKIT_VIEWS", "live")
    assert live.is_live()
    monkeypatch.delenv("LABKIT_VIEWS")
    assert not live.is_live()


@pytest.mark.parametrize("set_by", ELSEWHERE)
def test_vs_code_and_colab_get_pictures_until_told_otherwise(monkeypatch: pytest.MonkeyPatch, set_by: str) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    _in_no_editor(monkeypatch)
    assert live.is_live()
    monkeypatch.setenv(set_by, "1")
    assert not live.is_live()
    monkeypatch.setenv("LABKIT_VIEWS", "live")
    assert live.is_live()


SHOWN = """
from labkit.timeline import COMPUTE, Timeline
import labkit
timeline = Timeline([0], [COMPUTE], [0], [5], ["a"], ["span"])
display(timeline, labkit.compare(timeline, timeline))
timeline
"""


@pytest.mark.in_turn
def test_an_executed_notebook_holds_pictures_and_the_same_bytes_every_time(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SHOWN, id="shown")])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, tmp_path / "shown.ipynb")
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "shown.ipynb"]
    environment = {key: value for key, value in os.environ.items() if key not in ("JPY_SESSION_NAME", "LABKIT_VIEWS")}
    kept = []
    for number in range(2):
        ended = subprocess.run(
            [*command, f"{number}.ipynb"], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment
        )
        assert ended.returncode == 0, ended.stderr
        executed = nbformat.read(tmp_path / f"{number}.ipynb", as_version=4)
        kept.append(json.dumps([output.data for output in executed.cells[-1].outputs]))
        assert [sorted(output.data) for output in executed.cells[-1].outputs] == [["image/png", "text/plain"]] * 3
        assert "widgets" not in executed.metadata
    assert kept[0] == kept[1]
