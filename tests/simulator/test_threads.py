"""Threads that a rank starts have its rank, a clock of their own, and locks that wait in virtual time."""

from __future__ import annotations

import os
import queue
import random
import string
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock, RLock
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RankFailed, RunTimeout
from labkit.simulator.locks import NEEDED


def _run(fn: Any, *args: Any, world_size: int = 2) -> Any:
    return labkit.run(fn, *args, on=labkit.virtual(world_size), echo=False, timeout=300)


@pytest.mark.parametrize("name", NEEDED)
def test_python_still_has(name: str) -> None:
    try:
        NEEDED[name]()
    except AttributeError:
        pytest.fail(f"Python has no {name} any more; threads of virtual ranks need it: labkit/simulator/locks.py.")


def _in_threads(work: Any, number: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    return threads


def test_a_thread_has_the_rank_and_the_surroundings_of_its_creator() -> None:
    def look() -> Any:
        found = []

        def ask(_: int) -> None:
            print("said by", os.environ["RANK"])
            value = torch.ones(1)
            dist.all_reduce(value)
            drawn = float(torch.rand(())), random.random(), float(np.random.rand())
            found.append((dist.get_rank(), float(value), torch.is_grad_enabled(), drawn))

        with torch.no_grad():
            _in_threads(ask, 1)[0].join()
        return found[0]

    def draw() -> Any:
        return float(torch.rand(())), random.random(), float(np.random.rand())

    run = _run(look)
    assert run.results == [(rank, 2.0, True, drawn) for rank, drawn in enumerate(_run(draw).results)]
    assert run.output == ["said by 0\n", "said by 1\n"]


def test_threads_overlap_and_join_waits_in_virtual_time() -> None:
    def wait() -> list[float]:
        seen = []
        time.sleep(1.0)
        threads = _in_threads(lambda index: time.sleep(2.0 * index), 4)
        for thread in threads:
            thread.join()
            seen.append(round(time.perf_counter(), 3))
        return seen

    assert _run(wait).results == [[1.0, 3.0, 5.0, 7.0]] * 2


def test_a_rank_ends_when_its_last_thread_ends_unless_it_is_a_daemon() -> None:
    def leave(daemon: bool) -> None:
        threading.Thread(target=time.sleep, args=(5.0,), daemon=daemon).start()

    assert _run(leave, False).elapsed_ns == pytest.approx(5e9, rel=0.01)
    assert _run(leave, True).elapsed_ns < 10e6


def test_join_with_a_limit_and_is_alive_tell_by_virtual_time() -> None:
    def ask() -> list[Any]:
        (thread,) = _in_threads(lambda _: time.sleep(3.0), 1)
        seen: list[Any] = [thread.is_alive()]
        for limit in (1.0, 0.0, 5.0):
            thread.join(limit)
            seen.append((thread.is_alive(), round(time.perf_counter(), 3)))
        return seen

    assert _run(ask).results[0] == [True, (True, 1.0), (True, 1.0), (False, 3.0)]


def test_a_lock_held_over_a_wait_lets_the_others_wait_and_serves_them_in_turn() -> None:
    def take_turns() -> list[Any]:
        lock, seen = Lock(), []

        def work(index: int) -> None:
            time.sleep(0.001 * index)
            with lock:
                time.sleep(1.0)
                seen.append((index, round(time.perf_counter(), 2)))

        for thread in _in_threads(work, 4):
            thread.join()
        return seen

    assert _run(take_turns).results[0] == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]


def test_what_python_builds_on_locks_waits_in_virtual_time() -> None:
    def use() -> Any:
        seen: dict[str, Any] = {}
        event, condition, semaphore = threading.Event(), threading.Condition(), threading.Semaphore(1)
        barrier, items, own = threading.Barrier(3), queue.Queue(maxsize=1), RLock()
        simple: queue.SimpleQueue[float] = queue.SimpleQueue()

        def work(index: int) -> None:
            with semaphore, own, own:
                time.sleep(1.0)
            barrier.wait()
            if index == 0:
                time.sleep(1.0)
                event.set()
                with condition:
                    condition.notify_all()
                for item in range(3):
                    items.put(item)
                simple.put(time.perf_counter())

        threads = _in_threads(work, 2)
        barrier.wait()
        seen["barrier"] = time.perf_counter()
        seen["too early"] = event.wait(0.5), time.perf_counter()
        with condition:
            seen["condition"] = condition.wait(10.0), time.perf_counter()
        seen["event"] = event.is_set()
        for _ in range(3):
            time.sleep(1.0)
            seen["item"] = items.get(), time.perf_counter()
        try:
            items.get(timeout=2.0)
        except queue.Empty:
            seen["empty"] = time.perf_counter()
        seen["simple"] = simple.get()
        timer = threading.Timer(1.5, event.clear)
        timer.start()
        timer.join()
        seen["timer"] = event.is_set(), time.perf_counter()
        for thread in threads:
            thread.join()
        return {
            key: tuple(round(part, 2) for part in value) if isinstance(value, tuple) else round(value, 2)
            for key, value in seen.items()
        }

    assert _run(use).results[0] == {
        "barrier": 2.0, "too early": (False, 2.5), "condition": (True, 3.0), "event": True, "item": (2, 6.0),
        "empty": 8.0, "simple": 5.0, "timer": (False, 9.5),
    }  # fmt: skip


def test_a_pool_of_threads_takes_as_long_as_its_threads_allow() -> None:
    def work() -> Any:
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(lambda x=x: (time.sleep(1.0), x * x)[1]) for x in range(7)]
            values = [call.result() for call in calls]
        return values, round(time.perf_counter(), 2)

    assert _run(work).results == [([0, 1, 4, 9, 16, 25, 36], 3.0)] * 2


def test_a_race_has_one_outcome() -> None:
    def race() -> float:
        shared = {"weights": torch.zeros(1)}

        def work(index: int) -> None:
            for _ in range(10):
                read = shared["weights"]
                shared["weights"] = read + 1

        for thread in _in_threads(work, 4):
            thread.join()
        return float(shared["weights"])

    found = {value for _ in range(2) for value in _run(race).results}
    assert len(found) == 1 and found.pop() < 40.0


def test_a_loop_that_watches_what_another_thread_does_ends() -> None:
    def watch() -> float:
        done: list[int] = []
        _in_threads(lambda _: (time.sleep(1.0), done.append(1)), 1)
        while not done:
            time.sleep(0.3)
        return round(time.perf_counter(), 2)

    assert _run(watch).results == [1.2] * 2


def test_an_exception_ends_the_thread_alone_and_is_printed() -> None:
    def fail() -> int:
        def work(index: int) -> None:
            raise ValueError("on purpose")

        _in_threads(work, 1)[0].join()
        return 3

    run = _run(fail)
    assert run.results == [3, 3]
    assert run.output[0].startswith("Exception in thread Thread-1 (work):\nTraceback")
    assert str(Path(labkit.__file__).parent) not in run.output[0], "none of our own frames"
    assert 'raise ValueError("on purpose")' in run.output[0]


def test_a_deadlock_of_threads_names_lock_holder_and_lines() -> None:
    def hang() -> None:
        lock = Lock()

        def work(index: int) -> None:
            lock.acquire()
            queue.Queue().get()

        _in_threads(work, 1)
        time.sleep(1.0)
        with lock:
            pass

    with pytest.raises(RunTimeout) as caught:
        _run(hang, world_size=1)
    text = str(caught.value)
    assert "rank 0 waits in Lock.acquire, which rank 0 (Thread-1 (work)) took (test_threads.py, line" in text
    assert "rank 0 (Thread-1 (work)) waits in Queue.get at test_threads.py, line" in text
    assert "queue.Queue().get()" in caught.value.reports[0]


def test_a_thread_that_takes_a_lock_twice_is_told() -> None:
    def hang() -> None:
        lock = Lock()
        with lock, lock:
            pass

    with pytest.raises(RunTimeout, match=r"rank 1 waits in Lock\.acquire, which it took itself"):
        _run(hang)


def test_no_thread_is_left_whatever_happens() -> None:
    before = set(threading.enumerate())

    def fail() -> None:
        held = Lock()
        held.acquire()
        _in_threads(lambda index: held.acquire() if index else time.sleep(1e6), 3)
        pool = ThreadPoolExecutor(2)
        pool.submit(held.acquire)
        dist.barrier()
        if dist.get_rank() == 1:
            raise ValueError("on purpose")
        dist.barrier()

    with pytest.raises(RankFailed, match="on purpose"):
        _run(fail)

    def forget() -> None:
        ThreadPoolExecutor(2).submit(time.sleep, 1.0)
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    _run(forget)
    assert set(threading.enumerate()) <= before  # some of another test may have ended meanwhile
    lock = threading.Lock()
    assert type(lock).__module__ == "_thread" and lock.acquire(timeout=1.0)


def test_a_lock_that_outlives_its_run_is_a_plain_lock() -> None:
    labkit.run(_keep, on=labkit.virtual(1), echo=False)
    kept = vars(string).pop("kept")
    assert kept.acquire(timeout=0.1) and not kept.acquire(blocking=False) and kept.locked()
    other = threading.Thread(target=kept.release)
    other.start()
    other.join(10.0)
    assert kept.acquire(timeout=10.0)


def _keep() -> None:
    this_is_shared: Any = string  # a module of Python itself, the same for all ranks and their caller
    this_is_shared.kept = threading.Lock()
