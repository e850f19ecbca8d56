"""What a still of a timeline says and marks first of all."""

from __future__ import annotations

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
    assert finding(timeline) == f"Rank 0 works; the others stand still {100 * still:.0f} % of the time"
    assert title_of(timeline) == finding(timeline)


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
