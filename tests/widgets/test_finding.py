"""What a still of a timeline says and marks first of all."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.timeline.metrics import wait_ns
from labkit.widgets.colours import RED
from labkit.widgets.finding import finding
from labkit.widgets.static_timeline import title_of, to_png
from tests.widgets.still_pixels import on_ground

MS = 1_000_000


def _to_rank_0() -> None:
    """Reduce to rank 0, one rank after the other, and send the sum back."""
    tensor = torch.ones(1_000_000)
    if dist.get_rank():
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return
    others = range(1, dist.get_world_size())
    for rank in others:
        part = torch.empty_like(tensor)
        dist.recv(part, rank)
        tensor += part
    for rank in others:
        dist.send(tensor, rank)


def test_the_rank_that_works_while_the_others_stand_still_is_named() -> None:
    timeline = labkit.run(_to_rank_0, on=labkit.virtual(6)).timeline
    assert timeline is not None
    still = wait_ns(timeline)[1:].mean() / timeline.makespan_ns
    assert finding(timeline) == f"Rank 0 works; the others are blocked {100 * still:.0f} % of the time"
    assert title_of(timeline) == finding(timeline)


def test_the_rank_that_comes_last_to_the_call_the_others_stand_in_is_named() -> None:
    begins, ends = [0, 0, 0, 70, 60, 80], [70, 60, 80, 100, 100, 100]
    lanes, kinds = [COMPUTE] * 3 + [COMMUNICATION] * 3, ["span"] * 3 + ["all_reduce"] * 3
    call = {"span": np.arange(3, 6), "group": np.array(["all"] * 3), "number": np.zeros(3, int), "blocking": np.ones(3)}
    timeline = Timeline([0, 1, 2] * 2, lanes, begins, ends, kinds, kinds, tables={"call": call})
    assert finding(timeline) == "Rank 2 comes last; the others wait 15 % of the time for it"  # 10 and 20 of 100
    timeline.is_asked_about = True
    assert finding(timeline) == "Ranks are blocked 0 to 20 % of the time"


def test_where_nobody_is_waited_for_it_says_how_long_all_stand_still_or_what_communication_costs() -> None:
    assert finding(labkit.recorded("slow_ring")) == "Every rank is blocked 25 to 26 % of the time"

    def step(compute_end: int) -> Timeline:
        lanes, kinds = [COMPUTE, COMMUNICATION] * 2, ["span", "all_reduce"] * 2
        return Timeline([0, 0, 1, 1], lanes, [0, 5 * MS] * 2, [compute_end, 10 * MS] * 2, kinds, kinds)

    assert finding(step(5 * MS)) == "Communication takes 50 % of the time, and none of it is hidden"
    assert finding(step(8 * MS)) == "Computation hides 60 % of communication; the rest takes 20 % of the time"
    assert finding(step(10 * MS)) == "Computation hides all communication, 50 % of the time"


def test_a_recorded_run_that_a_question_is_asked_of_names_no_rank() -> None:
    for asked in ("who_waits", "hot_spot", "late_rank"):
        timeline = labkit.recorded(asked)
        assert "ank " not in title_of(timeline)
        timeline.is_asked_about = False
        assert finding(timeline).startswith("Rank ")


def test_a_run_without_waiting_is_titled_by_its_size() -> None:
    timeline = Timeline([0, 1], [COMPUTE] * 2, [0, 0], [MS, MS], ["a", "b"], ["span"] * 2)
    assert finding(timeline) == "" and title_of(timeline).startswith("2 ranks")


def test_exposed_communication_has_a_red_edge_where_some_is_hidden_and_none_where_none_is() -> None:
    def reds(compute_end: int) -> int:
        lanes, kinds = [COMPUTE, COMMUNICATION] * 2, ["span", "all_reduce"] * 2
        starts, ends = [0, 5 * MS] * 2, [compute_end, 10 * MS] * 2
        timeline = Timeline([0, 0, 1, 1], lanes, starts, ends, kinds, kinds)
        pixels = on_ground(to_png(timeline)).reshape(-1, 3)
        red = [int(RED[at : at + 2], 16) for at in (1, 3, 5)]
        return int((pixels == red).all(1).sum())

    assert reds(8 * MS) > 100
    assert reds(5 * MS) == 0
