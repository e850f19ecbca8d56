"""What a step would take if nobody came late: as long as it takes in a run in which nobody does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.timeline import REGION, Timeline
from labkit.timeline.in_time import lost_ns, step_in_time_ns
from labkit.widgets.timeline_columns import pack

pytestmark = [pytest.mark.in_turn]


def trains(late: dict[int, float], elements: int, is_async: bool, sends: bool) -> None:
    """Train three steps, some ranks so many times as slowly; gradients are summed while backward runs, or after it."""
    slow = late.get(dist.get_rank(), 1)
    grads = [torch.ones(elements) for _ in range(4)]
    for _ in range(3):
        with labkit.span("forward"):
            for _ in range(round(8 * slow)):
                torch.zeros(512, 512) @ torch.zeros(512, 512)
        works = []
        with labkit.span("backward"):
            for grad in grads:
                for _ in range(round(4 * slow)):
                    torch.zeros(512, 512) @ torch.zeros(512, 512)
                if is_async:
                    works.append(dist.all_reduce(grad, async_op=True))
        for grad in grads if not is_async else []:
            dist.all_reduce(grad)
        for work in works:
            work.wait()
        if sends and dist.get_rank() == 0:
            dist.send(grads[0], 1)
        elif sends and dist.get_rank() == 1:
            dist.recv(grads[0], 0)
        with labkit.span("optimizer"):
            for grad in grads:
                grad.mul_(0.9)


def _run(late: dict[int, float], elements: int = 1_500_000, *, is_async: bool = True, sends: bool = False) -> Timeline:
    return labkit.run(trains, late, elements, is_async, sends, on=labkit.virtual(4), echo=False).timeline


def _step_ns(timeline: Timeline) -> float:
    mine = (timeline.rank == 0) & (timeline.lane == REGION)
    ends = timeline.end_ns[mine & (timeline.name == "optimizer")]
    return float((ends.max() - timeline.start_ns[mine].min()) / len(ends))


@pytest.mark.parametrize("elements", [200_000, 1_500_000, 6_000_000])  # less than computing, and more
@pytest.mark.parametrize("late", [{2: 1.25}, {2: 4}, {1: 2, 3: 2}])
def test_a_step_in_time_takes_as_long_as_in_a_run_in_which_nobody_is_late(
    late: dict[int, float], elements: int
) -> None:
    slow, quick = _run(late, elements), _run({}, elements)
    found = step_in_time_ns(slow, list(late))
    assert found == pytest.approx(_step_ns(quick), rel=1e-3)
    assert _step_ns(slow) > 1.01 * _step_ns(quick) or elements == 6_000_000


def test_it_is_not_known_where_ranks_wait_before_they_have_made_their_calls_or_send_messages() -> None:
    assert step_in_time_ns(_run({2: 2}, is_async=False), [2]) is None
    assert step_in_time_ns(_run({2: 2}, sends=True), [2]) is None
    assert step_in_time_ns(Timeline(num_ranks=2), [1]) is None


def test_it_is_sent_of_a_run_whose_headline_says_who_comes_last() -> None:
    slow = _run({2: 2})
    packed = pack(slow)
    lost, step = lost_ns(slow, [2]) or (0, 0)
    assert step == pytest.approx(_step_ns(slow)) and lost == pytest.approx(step - _step_ns(_run({})), rel=2e-3)
    assert packed["title"].startswith("Rank 2 comes last; it costs every step ")
    assert packed["title"].endswith(f" µs ({100 * lost / step:.0f} %)")
    slow.tables["clock"]["method"][:] = "measured"  # of real processes nobody knows how long bytes would have moved
    assert lost_ns(slow, [2]) is None and "the others wait" in pack(slow)["title"]
    slow.tables["clock"]["method"][:] = "virtual time"
    assert packed["in_time"] == step_in_time_ns(slow, [2])
    assert "in_time" not in pack(_run({})) and np.isfinite(packed["in_time"])
