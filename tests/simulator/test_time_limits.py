"""Time limits of groups end a wait in virtual time, and the program goes on, as on gloo."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RunTimeout


def _late() -> tuple[str, float]:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    before = time.monotonic()
    if dist.get_rank() == 1:
        time.sleep(3)
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except RuntimeError as error:
        assert "was not done after 1000 milliseconds" in str(error)
        return "gave up", round(time.monotonic() - before, 1)
    return "passed", 0.0


def _missing() -> str:
    if dist.get_rank() == 1:
        time.sleep(3)
        return "elsewhere"
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=1))
    except RuntimeError as error:
        assert "rank 1 failed to pass it in time" in str(error)
        return "gave up"
    return "passed"


def _message() -> str:
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    try:
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1), 1, group=group)
    except RuntimeError:
        return "gave up"
    return "done"


def test_a_collective_that_a_rank_comes_to_too_late_fails_on_all_ranks_and_they_go_on() -> None:
    assert labkit.run(_late, on=labkit.virtual(2), echo=False).results == [("gave up", 1.0), ("gave up", 3.0)]


@pytest.mark.parametrize(("program", "other"), [(_missing, "elsewhere"), (_message, "done")])
def test_a_wait_for_who_never_comes_ends_at_the_limit(program: Any, other: str) -> None:
    assert labkit.run(program, on=labkit.virtual(2), echo=False).results == ["gave up", other]


def test_who_comes_in_time_is_waited_for_and_without_a_limit_a_deadlock_is_known_at_once() -> None:
    def in_time() -> float:
        group = dist.new_group([0, 1], timeout=timedelta(seconds=5))
        if dist.get_rank() == 1:
            time.sleep(3)
        value = torch.ones(1)
        dist.all_reduce(value, group=group)
        return float(value)

    def alone() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))

    assert labkit.run(in_time, on=labkit.virtual(2), echo=False).results == [2.0, 2.0]
    with pytest.raises(RunTimeout, match="Deadlock"):
        labkit.run(alone, on=labkit.virtual(2), echo=False)
