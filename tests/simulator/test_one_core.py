"""Ranks' threads on one core: kept there while the run gets all the time that passes, and let go where it does not."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import labkit
from labkit.simulator import one_core
from labkit.simulator.one_core import OneCore

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no threads are put on cores here")


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    ends = threading.Event()
    one = threading.Thread(target=ends.wait, daemon=True)
    one.start()
    yield one
    ends.set()
    one.join()


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, thread: threading.Thread) -> Callable[..., set[int]]:
    """Return what looks after a second in which the run got a share of the time, and says where its thread may run."""
    clock = {"monotonic": 100.0, "process_time": 5.0}
    switches = [0]
    time = SimpleNamespace(monotonic=lambda: clock["monotonic"], process_time=lambda: clock["process_time"])
    monkeypatch.setattr(one_core, "time", time)
    watched = OneCore(lambda: [thread], lambda: switches[0])
    watched._cores = sorted(os.sched_getaffinity(0))
    if len(watched._cores) < 2:
        pytest.skip("one core")

    def after_a_second(share: float, changes: int = 10_000) -> set[int]:
        clock["monotonic"] += 1.0
        clock["process_time"] += share
        switches[0] += changes
        watched.look()
        assert thread.native_id is not None
        return set(os.sched_getaffinity(thread.native_id))

    return after_a_second


def test_threads_are_kept_on_one_core_while_the_run_has_it_to_itself(look: Callable[..., set[int]]) -> None:
    assert [len(look(1.0)) for _ in range(3)] == [1, 1, 1]


def test_threads_that_wait_for_others_are_let_go_and_later_try_another_core(look: Callable[..., set[int]]) -> None:
    everywhere = set(os.sched_getaffinity(0))
    first = look(1.0)
    assert look(0.5) == everywhere
    again = next(cores for cores in (look(1.0) for _ in range(10)) if cores != everywhere)
    assert len(again) == 1 and again != first


def test_a_run_that_computes_more_than_it_changes_ranks_keeps_all_cores(look: Callable[..., set[int]]) -> None:
    assert look(1.0, changes=50) == set(os.sched_getaffinity(0))


def test_a_rank_that_asks_is_told_all_cores() -> None:
    def cores() -> set[int]:
        return os.sched_getaffinity(0)

    assert labkit.run(cores, on=labkit.virtual(2), echo=False).results == [os.sched_getaffinity(0)] * 2
