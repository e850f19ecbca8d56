"""Ranks wait in virtual time for the locks of a library that they share, wherever it keeps them and since when."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import labkit
from labkit.errors import RankFailed, RunTimeout
from labkit.simulator.library_locks import NEEDED

LIBRARY = """
import multiprocessing, threading

class Bar:
    lock = threading.RLock()

    def __init__(self):
        self.locks = [threading.Lock()]

    @classmethod
    def between_processes(cls):
        if not hasattr(cls, "processes_lock"):
            cls.processes_lock = multiprocessing.RLock()
        return cls.processes_lock

bar, plain, queue = Bar(), threading.Lock(), {"full": threading.Condition()}
signal = multiprocessing.Semaphore(0)
KINDS = {
    "of a module": lambda: plain, "of a class": lambda: Bar.lock, "in a list of an object": lambda: bar.locks[0],
    "in a condition": lambda: queue["full"], "between processes": Bar.between_processes,
}
"""
KINDS = ("of a module", "of a class", "in a list of an object", "in a condition", "between processes")


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "site-packages").mkdir()
    name = "locked_library"
    (tmp_path / "site-packages" / f"{name}.py").write_text(LIBRARY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    yield name
    sys.modules.pop(name, None)


def _hold(library: str, kind: str) -> float:
    """Hold a lock for a second while others may run; return how long it took to get it and hold it."""
    lock = importlib.import_module(library).KINDS[kind]()
    threading.Thread(target=time.sleep, args=(0.5,)).start()  # who has two lets those go first that are behind
    dist.barrier()
    begin = time.monotonic()
    with lock:
        time.sleep(1.0)
    return time.monotonic() - begin


def _run(fn: Any, *args: Any, world_size: int = 3) -> list[Any]:
    return list(labkit.run(fn, *args, on=labkit.virtual(world_size), echo=False, timeout=30).results)


@pytest.mark.parametrize("name", NEEDED)
def test_python_still_has(name: str) -> None:
    NEEDED[name]()


@pytest.mark.in_turn
@pytest.mark.parametrize("loaded", [True, False], ids=["loaded before", "first imported by a rank"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_waits_in_virtual_time_for_a_lock(library: str, kind: str, loaded: bool) -> None:
    if loaded:
        importlib.import_module(library).KINDS[kind]()
    waits = _run(_hold, library, kind)
    assert sorted(waits) == pytest.approx([1.0, 2.0, 3.0], rel=0.01)
    lock = sys.modules[library].KINDS[kind]()
    assert lock.acquire(False)  # and what is left is a lock for others
    lock.release()


def _signal(library: str) -> tuple[bool, float]:
    signal = importlib.import_module(library).signal

    def gives() -> None:
        time.sleep(1.0)
        signal.release()

    threading.Thread(target=gives).start()
    begin = time.monotonic()
    gave_up = not signal.acquire(timeout=0.25)
    signal.acquire()
    return gave_up, time.monotonic() - begin


def test_a_semaphore_between_processes_is_waited_for_and_given_up_in_virtual_time(library: str) -> None:
    importlib.import_module(library)
    assert _run(_signal, library, world_size=1) == [(True, pytest.approx(1.0, rel=0.01))]


def _stand(library: str) -> None:
    lock = importlib.import_module(library).Bar.between_processes()
    with lock:
        dist.barrier()


def test_a_lock_that_is_never_given_back_is_a_deadlock_that_names_who_has_it(library: str) -> None:
    with pytest.raises(RunTimeout, match=r"rank 0 took .*test_library_locks.py, line \d+.* and has not released"):
        _run(_stand, library, world_size=2)


def test_a_condition_of_a_library_wakes_a_rank(library: str) -> None:
    def meet() -> float:
        full = importlib.import_module(library).queue["full"]
        if dist.get_rank() == 0:
            with full, full:  # taken twice: both are given back while it waits
                full.wait()
        else:
            time.sleep(1.0)
            with full:
                full.notify()
        return time.monotonic()

    first, second = _run(meet, world_size=2)
    assert first == pytest.approx(1.0, rel=0.01) and second == pytest.approx(1.0, rel=0.01)


def test_an_error_under_a_lock_of_a_library_ends_the_run_and_leaves_the_lock_free(library: str) -> None:
    def fails() -> None:
        with importlib.import_module(library).Bar.between_processes():
            raise ValueError("under the lock")

    for _ in range(2):
        with pytest.raises(RankFailed, match="under the lock"):
            _run(fails, world_size=2)
