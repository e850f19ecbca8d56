"""A rank is as separate as a process would be."""

from __future__ import annotations

import os
import random
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError, RankFailed

seen_in_this_module: list[int] = []


def _run(fn: Any, *args: Any, world_size: int = 3, **more: Any) -> Any:
    return labkit.run(fn, *args, on=labkit.virtual(world_size), echo=more.pop("echo", False), **more)


def test_two_ranks_never_train_one_shared_model() -> None:
    model = torch.nn.Linear(2, 2)

    def step() -> float:
        with torch.no_grad():
            model.weight.fill_(float(dist.get_rank()))
            dist.barrier()
        return float(model.weight.detach().sum())

    before = model.weight.detach().clone()
    assert _run(step).results == [0.0, 4.0, 8.0]
    assert torch.equal(model.weight, before)


def test_globals_of_the_functions_own_module_are_each_ranks_own() -> None:
    def note() -> int:
        seen_in_this_module.append(dist.get_rank())
        dist.barrier()
        return len(seen_in_this_module)

    assert _run(note).results == [1, 1, 1] and seen_in_this_module == []


class Counter:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.rank = dist.get_rank()


def test_a_class_is_each_ranks_own_and_results_are_of_the_callers_class() -> None:
    def make() -> tuple[Counter, int]:
        counter = Counter()
        dist.barrier()
        return counter, Counter.made

    results = _run(make).results
    assert [made for _, made in results] == [1, 1, 1] and Counter.made == 0
    assert all(type(counter) is Counter for counter, _ in results)


def test_objects_of_the_callers_classes_travel_between_ranks() -> None:
    def exchange() -> list[bool]:
        every: list[Any] = [None] * dist.get_world_size()
        counter = Counter()
        dist.all_gather_object(every, counter)
        return [type(one) is Counter for one in every]

    assert _run(exchange).results == [[True] * 3] * 3


def draw() -> list[float]:
    values = []
    for _ in range(3):
        values += [float(torch.rand(())), random.random(), float(np.random.rand()), float(np.random.randn())]
        dist.barrier()
    return values


def test_random_numbers_are_those_of_a_process_of_each_rank() -> None:
    virtual = _run(draw, seed=5).results
    assert virtual == labkit.run(draw, on=labkit.local(3, device="cpu"), seed=5, echo=False).results
    assert len({tuple(values) for values in virtual}) == 3


def test_the_callers_random_state_is_as_it_was() -> None:
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = [float(torch.rand(())), random.random(), float(np.random.rand())]
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    _run(draw)
    assert [float(torch.rand(())), random.random(), float(np.random.rand())] == expected


def test_the_environment_is_that_of_a_rank_and_stays_its_own() -> None:
    def look() -> tuple[str, ...]:
        os.environ["MINE"] = os.environ["RANK"]
        dist.barrier()
        return tuple(os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MINE"))

    found = labkit.run(look, on=labkit.virtual(4, gpus_per_node=2), echo=False).results
    assert found == [("0", "0", "4", "0"), ("1", "1", "4", "1"), ("2", "0", "4", "2"), ("3", "1", "4", "3")]
    assert "MINE" not in os.environ and "RANK" not in os.environ


def test_what_a_rank_prints_is_kept_apart_and_shown_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        print("rank", dist.get_rank(), "of", dist.get_world_size())

    run = _run(speak, world_size=2, echo=True)
    assert run.output == ["rank 0 of 2\n", "rank 1 of 2\n"]
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] rank 0 of 2", "[rank 1] rank 1 of 2"]


def test_grad_mode_and_default_dtype_do_not_leak() -> None:
    def change() -> tuple[bool, torch.dtype]:
        if dist.get_rank() == 0:
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
        dist.barrier()
        return torch.is_grad_enabled(), torch.zeros(1).dtype

    assert _run(change, world_size=2).results == [(False, torch.float64), (True, torch.float32)]
    assert torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32


def test_clocks_and_sleep_are_virtual() -> None:
    def straggle() -> tuple[float, float, float]:
        began, wall = time.perf_counter(), time.time()
        time.sleep(100.0 * dist.get_rank())
        dist.barrier()
        return time.perf_counter() - began, time.time() - wall, time.monotonic()

    before = time.monotonic()
    results = _run(straggle).results
    assert time.monotonic() - before < 200
    assert all(elapsed == pytest.approx(200.0, abs=0.01) for elapsed, *_ in results)
    assert all(wall == pytest.approx(200.0, abs=0.01) for _, wall, _ in results)


def test_a_loop_that_watches_the_clock_ends() -> None:
    def spin() -> float:
        until = time.perf_counter() + 1e-4
        while time.perf_counter() < until:
            pass
        return time.perf_counter()

    assert all(1e-4 <= end < 2e-4 for end in _run(spin).results)


def test_worker_processes_are_refused_in_words() -> None:
    def load() -> None:
        list(torch.utils.data.DataLoader(torch.arange(4), num_workers=1))

    with pytest.raises(RankFailed, match=r"DataLoader: num_workers=0"):
        _run(load)


def test_the_process_is_as_it_was_and_torch_distributed_is_there_for_real(tmp_path: Any) -> None:
    def fail() -> None:
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1:
            raise ValueError("on purpose")
        dist.barrier()

    clocks = (time.sleep, time.perf_counter, threading.Thread.start, dist.monitored_barrier, random.random)
    world = dist.distributed_c10d._world
    threads = torch.get_num_threads()
    with pytest.raises(RankFailed):
        _run(fail)
    assert (time.sleep, time.perf_counter, threading.Thread.start, dist.monitored_barrier, random.random) == clocks
    assert dist.distributed_c10d._world is world and torch.get_num_threads() == threads
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("virtual rank")]
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        value = torch.ones(2)
        dist.all_reduce(value)
        assert dist.get_backend() == "gloo" and value.tolist() == [1.0, 1.0]
        # A group of this process's own is not disturbed by a virtual run beside it.
        assert _run(lambda: dist.get_world_size()).results == [3, 3, 3]
        assert dist.get_world_size() == 1
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("backend", [None, "gloo", "nccl"])
def test_a_function_may_make_its_own_group_with_the_backend_it_would_use(backend: str | None) -> None:
    def join() -> tuple[str, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch built without NCCL says so
            dist.init_process_group(backend)
        value = torch.ones(1)
        dist.all_reduce(value)
        name = dist.get_backend()
        dist.destroy_process_group()
        return name, float(value)

    assert _run(join, init=False).results == [(backend or "undefined", 3.0)] * 3


def test_a_virtual_rank_cannot_hold_another_cluster() -> None:
    def nest() -> None:
        labkit.run(print, on=labkit.virtual(2))

    with pytest.raises(RankFailed, match="called inside a virtual rank"):
        _run(nest, world_size=1)


def test_what_cannot_be_copied_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be copied for each rank"):
        _run(lambda: lock)


def test_a_rank_knows_its_device() -> None:
    assert _run(lambda: str(labkit.device())).results == ["cpu"] * 3
