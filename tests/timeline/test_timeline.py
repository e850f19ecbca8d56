"""Columns, tables, files and sentences of a timeline."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_timelines import exchange

from labkit.errors import ConfigError
from labkit.timeline import COMMUNICATION, COMPUTE, Span, Timeline

spans = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([0, 1, 2]),
        st.integers(0, 10**12),
        st.integers(0, 10**9),
        st.text(max_size=8),
        st.sampled_from(["send", "recv", "all_reduce", "span", "wait"]),
        st.integers(0, 2**40),
    ),
    max_size=20,
)


def _timeline(rows: list[tuple[int, int, int, int, str, str, int]]) -> Timeline:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 7
    start = np.array(columns[2], dtype=np.int64)
    return Timeline(
        columns[0], columns[1], start, start + np.array(columns[3], np.int64), columns[4], columns[5], columns[6]
    )


@settings(max_examples=40, deadline=None)
@given(rows=spans)
def test_what_is_saved_is_what_is_loaded(tmp_path_factory: pytest.TempPathFactory, rows: list[object]) -> None:
    timeline = _timeline([row for row in rows if not row[4].endswith("\0")])  # type: ignore[index, arg-type, union-attr]
    path = tmp_path_factory.mktemp("archive") / "run"
    timeline.save(path)
    assert list(Timeline.load(path).rows()) == list(timeline.rows())


def test_tables_problems_and_ranks_without_spans_survive_the_file(tmp_path: Path) -> None:
    timeline = exchange()
    timeline.save(tmp_path / "run.npz")
    back = Timeline.load(tmp_path / "run.npz")
    assert back.problems == timeline.problems and back.num_ranks == 2
    assert {key: {c: v.tolist() for c, v in table.items()} for key, table in back.tables.items()} == {
        key: {c: v.tolist() for c, v in table.items()} for key, table in timeline.tables.items()
    }
    Timeline(num_ranks=7).save(tmp_path / "empty.npz")
    assert Timeline.load(tmp_path / "empty.npz").num_ranks == 7


def test_the_row_of_a_problem_follows_its_span() -> None:
    timeline = exchange()
    (there,) = timeline.spans(kind="isend").problems
    (gone,) = timeline.spans(rank=1).problems
    assert (timeline.problems[0].row, there.row, gone.row) == (1, 0, -1)
    assert there.text == gone.text == timeline.problems[0].text


def test_a_file_whose_problems_name_no_row_is_read(tmp_path: Path) -> None:
    path, timeline = tmp_path / "run.npz", exchange()
    timeline.save(path)
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    about = json.loads(str(arrays["about"]))
    about["problems"] = [each[:3] for each in about["problems"]]  # as it was written at first
    arrays["about"] = np.array(json.dumps(about))
    np.savez(path, **arrays)
    (problem,) = Timeline.load(path).problems
    assert problem.row == -1 and problem.text == timeline.problems[0].text


def test_a_file_that_is_no_timeline_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    np.savez(tmp_path / "pickle.npz", about=np.array([{}], dtype=object))
    with zipfile.ZipFile(tmp_path / "zip.npz", "w") as archive:
        archive.writestr("readme", "no arrays")
    for name in ("text.npz", "other.npz", "pickle.npz", "zip.npz"):
        with pytest.raises(ConfigError, match=f"{name} is not a timeline that labkit wrote"):
            Timeline.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Timeline.load(tmp_path / "missing.npz")


def test_spans_filters_and_keeps_the_tables_pointing_at_the_same_spans() -> None:
    timeline = exchange()
    assert [span.name for span in timeline.spans(rank=0).rows()] == ["forward", "isend", "wait"]
    assert [span.name for span in timeline.spans(lane=COMMUNICATION).rows()] == ["isend", "recv"]
    assert list(timeline.spans(rank=1, lane=COMMUNICATION, kind="recv").rows()) == [
        Span(1, COMMUNICATION, 500_000, 2_000_000, "recv", "recv", 4000, 0, 0)
    ]
    rest = timeline.select(timeline.lane != COMPUTE)
    assert rest.tables["source"]["span"].tolist() == [0, 2]
    assert (rest.tables["wait"]["span"].tolist(), rest.tables["wait"]["of"].tolist()) == ([1], [0])
    assert timeline.spans(rank=1).tables["wait"]["span"].tolist() == []
    assert timeline.spans(rank=1).num_ranks == 2
    assert len(timeline.spans(kind="broadcast")) == 0


def test_messages_and_collectives_are_positions_among_the_calls_of_a_rank() -> None:
    (message,) = exchange().messages()
    assert (message.src, message.dst, message.bytes, message.sequence, message.received) == (0, 1, 4000, 0, 0)
    assert exchange().collectives() == []


def test_columns_that_do_not_fit_are_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigError, match=r"rank has 2 entries, but \{'end_ns': 1\}"):
        Timeline([0, 1], [0, 0], [0, 0], [1], ["a", "b"], ["span", "span"])
    with pytest.raises(ConfigError, match="Span 1 ends before it starts"):
        Timeline([0, 1], [0, 0], [0, 5], [1, 4], ["a", "b"], ["span", "span"])


def test_columns_cannot_be_changed_under_a_reader() -> None:
    with pytest.raises(ValueError, match="read-only"):
        exchange().start_ns[0] = 5


def test_repr_and_sentence_hold_numbers_and_no_addresses() -> None:
    assert repr(exchange()) == "Timeline(2 ranks, 2 ms)"
    assert repr(Timeline()) == "Timeline(0 ranks, nothing recorded)"
    assert exchange().summary() == (
        "2 ranks, 2 ms, blocked 12 % of the time (each rank 0 to 25 %), 1 message (4 KB), "
        "ranks busy 50 to 100 % of the time, "
        "0 % of communication hidden under computation.\nRank 0 sent and nobody received."
    )
    assert Timeline(num_ranks=3).summary() == "3 ranks, nothing recorded."


@pytest.mark.in_turn
def test_a_timeline_needs_matplotlib_only_when_it_is_shown() -> None:
    program = """
import sys
from labkit.timeline import Timeline
timeline = Timeline([0], [0], [0], [10], ["forward"], ["span"])
timeline.summary(), repr(timeline)
assert not {"torch", "matplotlib", "labkit.widgets"} & set(sys.modules), "imported too much"
bundle, _ = timeline._repr_mimebundle_()
assert bundle["image/png"].startswith(b"\\x89PNG") and "matplotlib.pyplot" not in sys.modules
assert bundle["text/plain"] == timeline.summary()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
