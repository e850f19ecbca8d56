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
        assert budget(lesson).promise == 30

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


def test_neither_the_network_nor_computing_takes_the_time_of_the_run_that_opens_it() -> None:
    of_the_class = NOTEBOOKS.parent / "solutions" / "hidden" / "start_here" / "who_waits" / "recording.json"
    for run in (labkit.recorded("who_waits"), labkit.Timeline.load(of_the_class)):
        moving_ns = sum(call.duration_ns for call in collective_timings(run))
        assert 0.02 < moving_ns / run.makespan_ns < 0.03
        assert float(busy_share(run).mean()) < 0.5
    text = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8").replace("\n# ", " ")
    assert "But data moves for **less than 3 %** of this run" in text


def test_what_one_late_rank_costs_is_what_both_recordings_show() -> None:
    of_the_class = NOTEBOOKS.parent / "solutions" / "hidden" / "start_here" / "who_waits" / "recording.json"
    for run in (labkit.recorded("who_waits"), labkit.Timeline.load(of_the_class)):
        calls = [span for span in run.rows() if span.name == "all_reduce"]
        first = [next(span for span in calls if span.rank == rank) for rank in range(8)]
        step_ns, late_ns = first[0].end_ns, max(span.start_ns for span in first)
        alike_ns = min(span.start_ns for span in first)
        others_ns = step_ns - (late_ns - alike_ns)
        assert 2 * others_ns < step_ns and [span.start_ns for span in first].count(alike_ns) == 7
        work = [span for span in run.rows() if span.rank == 0 and span.name in ("load batch", "forward and backward")]
        moves_ns = step_ns - late_ns
        assert f"{(sum(span.duration_ns for span in work[:2]) + moves_ns) / 1e6:.1f}" == "6.1"
        alone, thousand = (share * (step_ns - others_ns) / others_ns for share in (0.01, 1 - 0.99**1000))
        assert alone / (1 + alone) < 0.02 and thousand / (1 + thousand) > 0.5
    text = (NOTEBOOKS.parent / "solutions" / "00_start_here.py").read_text(encoding="utf-8").replace("\n# ", " ")
    assert "The other seven ranks need 6.1 ms for a step" in text and "takes more than twice as long" in text
    late = {ranks: f"{1 - 0.99**ranks:.0%}".replace("%", " %") for ranks in (8, 64, 1000)}
    assert f"With eight ranks, {late[8]} of all steps are late (1 - 0.99^8). With 64 ranks, {late[64]} are" in text
    assert late[1000] == "100 %"
    assert "What costs one GPU less than 2 % of its time costs a thousand GPUs more than half." in text


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
