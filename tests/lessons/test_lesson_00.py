"""Lesson 00 keeps its contract, is short, and comes first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.lessons.budget import budget
from labkit.lessons.source import Lesson
from labkit.simulator.algorithms import choose
from labkit.simulator.cluster import describe
from labkit.simulator.network import Network
from labkit.timeline.metrics import busy_share, collective_timings
from tests.lessons.contract import LessonContract

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
KEYS = Path(__file__).parents[2] / "labkit" / "exercises" / "start_here"
NOT_THE_CALL = ("load batch", "forward and backward")


def both_recordings() -> list[labkit.Timeline]:
    """Return the run that labkit hands out, and a class's own: the text is true of both."""
    of_the_class = NOTEBOOKS.parent / "solutions" / "hidden" / "start_here" / "who_waits" / "recording.json"
    return [labkit.recorded("who_waits"), labkit.Timeline.load(of_the_class)]


class TestContract(LessonContract):
    number = "00"
    points = 20
    topics: ClassVar = {
        "three worlds": r"three worlds",
        "the first timeline": r"timeline",
        "a deadlock, read": r"deadlock",
        "stuck": r"labkit\.lend\(",
        "who is waiting": r"who is waiting\?[\s\S]*who is waiting, and for whom",
        "a post with bugs": r"a blog post with bugs",
        "where the post is mended": r"lesson 06",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }
    slides = (4, 25)

    def test_its_core_takes_half_an_hour(self, lesson: Lesson) -> None:
        assert budget(lesson).promises == (30,)

    def test_no_cell_is_over_long(self, lesson: Lesson) -> None:
        for cell in lesson.cells:
            assert len(cell.source.splitlines()) <= 32, f"line {cell.line}"


def test_where_the_first_all_reduce_spends_its_time_is_as_the_text_says() -> None:
    text = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8").replace("\n# ", " ")
    cluster, size = describe(8), 100 * 10**6
    traffic = choose("all_reduce", range(8), size, Network(cluster))
    carried = max(traffic.edges.values())
    rate = cluster.link.payload_bytes_per_second / traffic.bytes_on_wire
    assert traffic.algorithm == "nvls" and carried / size == 9 / 8
    took = f"{carried / 1e6} MB take {1e3 * carried / rate:.2f} ms"
    assert f"leave about {rate / 1e9:.0f} of the 450 GB/s for data: {took}" in text
    assert f"{1e3 * size / cluster.link.bytes_per_second:.2f} ms. Why does the all_reduce take twice that?" in text


def test_eight_gpus_are_as_good_as_the_answer_says() -> None:
    share = float(busy_share(labkit.recorded("who_waits")).mean())
    reason = (KEYS / "who_waits" / "key.json").read_text(encoding="utf-8")
    assert f"busy {share:.0%}".replace("%", " %") in reason and f"eight GPUs is {8 * share:.1f}." in reason


def test_all_reduce_takes_most_of_the_time_that_the_network_does_not() -> None:
    for run in both_recordings():
        moving = collective_timings(run)
        assert 0.02 < sum(call.duration_ns for call in moving) / run.makespan_ns < 0.03
        assert {call.bytes for call in moving} == {96 * 10**6} and all(call.duration_ns < 0.5e6 for call in moving)
        calls = [
            [span.duration_ns for span in run.rows() if (span.rank, span.name) == (rank, "all_reduce")]
            for rank in range(8)
        ]
        late, *others = sorted(calls, key=sum)
        assert all(2 * sum(each) > run.makespan_ns and min(each) > 8e6 for each in others)
        assert all(20 * mine < theirs for each in others for mine, theirs in zip(late, each, strict=True))
    text = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8").replace("\n# ", " ")
    assert "seven of the eight GPUs spend more than half of the time communicating" in text
    assert (
        "Data moves for **less than 3 %** of this run" in text
        and "seven ranks in all_reduce for more than 8 ms" in text
    )
    assert "96 MB" in text and "The late rank spends less than a twentieth of that in all_reduce" in text


def test_the_step_of_a_rank_that_is_never_late_is_that_of_both_recordings() -> None:
    for run in both_recordings():
        calls = [span for span in run.rows() if span.name == "all_reduce"]
        late_ns = max(next(span.start_ns for span in calls if span.rank == rank) for rank in range(8))
        first = min(calls, key=lambda span: span.start_ns)
        work = [span for span in run.rows() if span.rank == first.rank and span.name in NOT_THE_CALL]
        calls_ms, moves_ms = sum(span.duration_ns for span in work[:2]) / 1e6, (first.end_ns - late_ns) / 1e6
        assert (f"{calls_ms:.1f}", f"{moves_ms:.1f}", f"{calls_ms + moves_ms:.1f}") == ("5.7", "0.4", "6.1")
    text = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8").replace("\n# ", " ")
    assert "6.1 ms for a step: 5.7 ms until it calls all_reduce (like the seven here), and 0.4 ms for the call" in text


def test_what_rare_delays_cost_many_ranks_is_what_the_cell_measures() -> None:
    source = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8")
    names: dict[str, Any] = {"torch": torch}
    exec(source[source.index("def mean_ms(") : source.index("table = [")], names)
    (alone, call_alone), (step, call) = names["means"][1], names["means"][64]
    text = source.replace("\n# ", " ")
    assert f"On average that makes {alone:.1f} ms for each rank" in text and f"notes: {step:.1f} ms, because" in text
    cost = f"one of the 64 ranks. Its own late batches cost it {0.01 * 10:.1f} ms a step."
    assert f"{cost} Its all_reduce takes {call:.1f} ms instead of {call_alone:.1f}." in text
    share = f"{1 - 0.99**64:.0%}".replace("%", " %")
    assert f"somebody is late in {share} of all steps (1 - 0.99^64)" in text
    assert step == pytest.approx(6.1 + 10 * (1 - 0.99**64), rel=0.01)
    assert 10 * (1 - 0.99**1024) > 9.99 and names["means"][1024][0] > 16.09  # "nearly every step"
    assert int(2 * 6.1) == 12 and "two batches in stock has work for 12 ms" in text


def test_it_is_the_first_notebook_that_make_lab_opens() -> None:
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))[0] == "00_start_here.ipynb"


@pytest.mark.in_turn
@pytest.mark.parametrize(("mended", "weight"), [(["start"], "0.0"), (["start", "join"], "-1.2")])
def test_the_posts_server_has_the_bugs_that_the_text_names(mended: list[str], weight: str) -> None:
    source = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8")
    post = source[source.index("class PostServer:") : source.index("posted = labkit.run(")]
    post = post.replace('  # "serves in the background"', "\n        self.thread.start()")
    if "join" in mended:
        post = post.replace("        return self.weight", "        self.thread.join()\n        return self.weight")
    names: dict[str, Any] = {"torch": torch, "dist": dist, "threading": threading}
    exec(post, names)
    run = labkit.run(names["post_training"], 4, on=labkit.virtual(4))
    assert run.results[0] == f"served, weight {weight}" and run.timeline is not None
    if "join" in mended:
        assert {problem.text.partition(" to rank")[0] for problem in run.timeline.problems} == {
            f"Rank {worker} never waited for its isend" for worker in (1, 2, 3)
        }
