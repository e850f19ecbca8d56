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
    assert finding(timeline) == f"Rank 0 works; the others wait {100 * still:.0f} % of the time"
    assert title_of(timeline) == finding(timeline)


def _sums(arrivals: list[list[int]], num_broadcasts: int = 0) -> Timeline:
    """Ranks that compute until they come to each call, which ends 10 after the last of them; sums after broadcasts."""
    rows = []
    ranks = range(len(arrivals[0]))
    for number, comes in enumerate(arrivals):
        begin, end = 100 * number, 100 * number + max(comes) + 10
        rows += [(rank, COMPUTE, begin, begin + comes[rank], "span", 0) for rank in ranks]
        what = "all_reduce" if number >= num_broadcasts else "broadcast"
        rows += [(rank, COMMUNICATION, begin + comes[rank], end, what, number) for rank in ranks]
    rank, lane, start, end_ns, kind, number_of = (list(column) for column in zip(*rows, strict=True))
    calls = np.flatnonzero(np.array(lane) == COMMUNICATION)
    call = {"span": calls, "group": np.array(["all"] * len(calls)), "number": np.array(number_of)[calls]}
    call["blocking"] = np.ones(len(calls), bool)
    return Timeline(rank, lane, start, end_ns, kind, kind, tables={"call": call})


def test_the_rank_that_comes_last_to_the_calls_the_others_stand_in_is_named() -> None:
    timeline = _sums([[60, 60, 90], [62, 60, 90], [60, 61, 88]])
    assert finding(timeline) == "Rank 2 comes last; the others wait 29 % of the time for it"
    timeline.is_asked_about = True
    assert finding(timeline) == "2 of 3 ranks wait 29 % of the time"


def test_of_one_call_the_last_is_named_where_the_others_came_together() -> None:
    assert finding(_sums([[60, 62, 90]])).startswith("Rank 2 comes last; ")
    assert finding(_sums([[60, 70, 80]])) == "2 of 3 ranks wait, on average 17 % of the time"
    assert finding(_sums([[60, 90]])) == "1 of 2 ranks waits 30 % of the time"  # of two, one is always last


def test_a_setups_calls_to_which_all_come_at_once_do_not_hide_who_comes_last_to_the_others() -> None:
    setup = [[20, 20, 20, 20]] * 3
    told = "Ranks 2 and 3 come last; the others wait 20 % of the time for them"
    assert finding(_sums([*setup, [10, 10, 90, 90]], num_broadcasts=3)) == told
    assert finding(_sums([*setup, [10, 10, 90, 90]])) == "2 of 4 ranks wait 20 % of the time"  # once of four sums


def test_a_rank_that_waits_itself_is_not_late_nor_one_of_many_that_lie_apart() -> None:
    assert finding(_sums([[50, 60, 70, 80]] * 5)) == "3 of 4 ranks wait, on average 20 % of the time"
    assert finding(_sums([[80, 50, 50], [50, 80, 50], [50, 50, 80]])) == "Every rank waits 21 % of the time"


def test_where_nobody_is_waited_for_it_says_how_long_all_stand_still_or_what_communication_costs() -> None:
    assert finding(labkit.recorded("slow_ring")) == "Every rank waits 24 % of the time"

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
        assert asked == "late_rank" or finding(timeline).startswith("Rank ")


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
