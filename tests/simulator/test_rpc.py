"""torch.distributed.rpc in virtual time gives what it gives between processes, and says when it cannot go on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from equality import same
from rpc_programs import PROGRAMS, Counter, echo

import labkit
from labkit.errors import RankFailed, RunTimeout
from labkit.timeline.span import Lane

# init_rpc itself calls what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a Backend:UserWarning")


def _run(fn: Callable[..., Any], *args: Any, world_size: int = 2, **more: Any) -> Any:
    world = labkit.virtual(world_size, **more)
    return labkit.run(fn, *args, on=world, init=False, echo=False, timeout=300)


def _join(threads: int = 16, timeout: float | None = None) -> int:
    rank = int(os.environ["RANK"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=threads)
    if timeout is not None:
        options.rpc_timeout = timeout
    rpc.init_rpc(f"worker{rank}", rpc_backend_options=options)
    return rank


def every_program() -> list[Any]:
    return [program() for program in PROGRAMS.values()]


@pytest.mark.in_turn
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_between_processes(name: str) -> None:
    real = labkit.run(PROGRAMS[name], on=labkit.local(3, device="cpu"), init=False, echo=False).results
    virtual = _run(PROGRAMS[name], world_size=3).results
    for rank, (theirs, ours) in enumerate(zip(real, virtual, strict=True)):
        assert same(theirs, ours), f"rank {rank}: between processes {theirs}, virtual {ours}"


def _counted_down(to: str, left: int) -> int:
    if left == 0:
        return 0
    return int(rpc.rpc_sync(to, _counted_down, (rpc.get_worker_info().name, left - 1))) + 1


def to_and_fro(threads: int, timeout: float | None) -> int | None:
    rank = _join(threads, timeout)
    done = rpc.rpc_sync("worker1", _counted_down, ("worker0", 1)) if rank == 0 else None
    rpc.shutdown()
    return done


def test_a_reply_needs_a_thread_that_no_handler_holds() -> None:
    assert _run(to_and_fro, 2, None).results == [1, None]
    with pytest.raises(RankFailed, match=r"RPC ran for more than set timeout \(4000 ms\)"):
        _run(to_and_fro, 1, 4.0)
    with pytest.raises(RunTimeout, match="whose reply worker1 cannot take in: its only thread is busy"):
        _run(to_and_fro, 1, None)


_DIGESTS = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
import labkit, rpc_programs
for name, program in rpc_programs.PROGRAMS.items():
    timeline = labkit.run(program, on=labkit.virtual(3, jitter=0.1), init=False, echo=False).timeline
    digest = hashlib.sha256()
    for column in ("rank", "lane", "start_ns", "end_ns", "name", "kind", "bytes", "peer", "flow"):
        digest.update(getattr(timeline, column).tobytes())
    print(name, len(timeline), digest.hexdigest())
"""


@pytest.mark.long
def test_fresh_processes_agree_on_every_timeline() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _DIGESTS, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True,
            cwd=Path(labkit.__file__).parents[1], env={"PYTHONHASHSEED": str(seed), "PATH": ""},
        )
        for seed in (1, 2)
    ]  # fmt: skip
    found = [process.communicate(timeout=300)[0].splitlines() for process in processes]
    assert len(found[0]) == len(PROGRAMS) and found[0] == found[1]


def slow_echo(value: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return value


def queue_up(threads: int) -> float:
    rank = _join(threads)
    if rank:
        futures = [rpc.rpc_async("worker0", slow_echo, (number, 1.0)) for number in range(6)]
        assert torch.futures.wait_all(futures) == list(range(6))
    took = time.perf_counter()
    rpc.shutdown()
    return took


@pytest.mark.in_turn
@pytest.mark.parametrize(("threads", "rounds"), [(1, 6), (2, 3), (4, 2), (16, 1)])
def test_a_server_handles_as_many_calls_at_once_as_it_has_threads(threads: int, rounds: int) -> None:
    assert _run(queue_up, threads).results[1] == pytest.approx(rounds, abs=0.01)


def tell_three(rank: int) -> None:
    if rank == 0:
        rpc.rpc_sync("worker1", echo, (torch.zeros(1000),))
        rpc.rpc_async("worker1", echo, (torch.zeros(1000),)).wait()
        rpc.remote("worker1", Counter).confirmed_by_owner()


def call_thrice() -> None:
    tell_three(_join())
    rpc.shutdown()


def test_the_timeline_shows_calls_executions_and_what_joins_them() -> None:
    timeline = _run(call_thrice).timeline
    calls = [span for span in timeline.rows() if span.kind in ("rpc_sync", "rpc_async", "remote")]
    served = {span.flow: span for span in timeline.rows() if span.kind == "rpc_serve"}
    assert [(span.rank, span.peer, span.kind, span.name) for span in calls] == [
        (0, 1, "rpc_sync", "echo"), (0, 1, "rpc_async", "echo"), (0, 1, "remote", "Counter"),
    ]  # fmt: skip
    for span in calls:
        execution = served[span.flow]
        assert (execution.rank, execution.peer, execution.name) == (1, 0, span.name)
        assert span.start_ns < execution.start_ns <= execution.end_ns < span.end_ns
    assert 4000 <= calls[0].bytes < 4400
    assert timeline.collectives() == [] and timeline.messages() == [] and not timeline.problems


def test_a_large_argument_takes_the_time_of_the_link() -> None:
    def send(numel: int) -> float:
        rank = _join()
        began = time.perf_counter()
        if rank == 0:
            rpc.rpc_sync("worker1", echo, (torch.zeros(numel),))
        took = time.perf_counter() - began
        rpc.shutdown()
        return took

    empty, full = (_run(send, numel, link="ethernet_10g").results[0] for numel in (1, 10_000_000))
    there_and_back = 2 * 40e6 / (10e9 / 8)
    assert there_and_back < full - empty < 1.2 * there_and_back


def test_timeouts_are_in_virtual_time() -> None:
    def give_up() -> Any:
        rank = _join(timeout=5.0)
        told = []
        if rank:
            for limit in ({"timeout": 0.5}, {}, {"timeout": 0}):
                began = time.perf_counter()
                try:
                    rpc.rpc_sync("worker0", slow_echo, (1, 100.0), **limit)
                except RuntimeError as error:
                    told.append((str(error), round(time.perf_counter() - began, 3)))
                else:
                    told.append(("came", round(time.perf_counter() - began, 1)))
        rpc.shutdown()
        return told

    text = "RPCErr:1:RPC ran for more than set timeout ({} ms) and will now be marked with an error"
    assert _run(give_up).results[1] == [(text.format(500), 0.5), (text.format(5000), 5.0), ("came", 100.0)]


@rpc.functions.async_execution
def never() -> Any:
    return torch.futures.Future()


def hold(seconds: float) -> None:
    threading.Event().wait()


def test_a_deadlock_names_the_calls_and_the_worker() -> None:
    def circle() -> None:
        rank = _join(threads=1)
        rpc.rpc_sync(1 - rank, ask_back, (rank,))

    with pytest.raises(RunTimeout) as caught:
        _run(circle)
    text = str(caught.value)
    assert "rank 0 waits in rpc_sync ask_back() on worker1 (rank 1)" in text
    assert "test_rpc.py, line" in text and "whose only thread is busy" in text


def ask_back(rank: int) -> None:
    rpc.rpc_sync(rank, echo, (1,))


def test_a_future_that_nobody_completes_is_told() -> None:
    def wait() -> None:
        if _join():
            rpc.rpc_sync("worker0", never)
        rpc.shutdown()

    with pytest.raises(RunTimeout, match=r"never\(\) on worker0 \(rank 0\), whose handler returned a future"):
        _run(wait)


def test_a_handler_that_hangs_is_told_with_its_line() -> None:
    def wait() -> None:
        if _join():
            rpc.rpc_sync("worker0", hold, (1.0,))
        rpc.shutdown()

    with pytest.raises(RunTimeout) as caught:
        _run(wait)
    text = str(caught.value)
    assert "rank 0 (hold() for worker1) waits in Event.wait at test_rpc.py, line" in text
    assert "rank 0 waits in rpc.shutdown, which 1 of 2 workers have called" in text


def test_a_limit_that_was_asked_for_ends_what_would_be_a_deadlock() -> None:
    def wait() -> str:
        told = ""
        if _join():
            try:
                rpc.rpc_sync("worker0", never, timeout=2.0)
            except RuntimeError as error:
                told = str(error)
        rpc.shutdown()
        return told

    assert "more than set timeout (2000 ms)" in _run(wait).results[1]


def test_a_worker_that_left_lets_calls_to_it_fail() -> None:
    def leave() -> Any:
        rank = _join()
        if rank == 0:
            time.sleep(1.0)
            rpc.shutdown(graceful=False)
            return None
        told = []
        for wait in (0.0, 2.0):
            time.sleep(wait)
            try:
                rpc.rpc_sync("worker0", slow_echo, (1, 50.0))
            except RuntimeError as error:
                told.append((str(error), round(time.perf_counter(), 1)))
        rpc.shutdown(graceful=False)
        return told

    text = "slow_echo() could not be answered: worker0 (rank 0) has shut RPC down"
    assert _run(leave).results[1] == [(text, 1.0), (text, 3.0)]


def test_a_worker_whose_function_returned_lets_calls_to_it_fail() -> None:
    def forget() -> None:
        if _join():
            time.sleep(1.0)
            rpc.rpc_sync("worker0", echo, (1,))

    with pytest.raises(RankFailed, match=r"the function of worker0 \(rank 0\) has returned without rpc.shutdown"):
        _run(forget)


def test_names_and_numbers_must_fit() -> None:
    def both_the_same() -> None:
        rpc.init_rpc("server", rank=int(os.environ["RANK"]), world_size=2)

    def one_too_few() -> None:
        rpc.init_rpc(f"worker{os.environ['RANK']}", rank=int(os.environ["RANK"]), world_size=3)

    with pytest.raises(RankFailed, match="RPC worker name server is not unique"):
        _run(both_the_same)
    with pytest.raises(RunTimeout, match="init_rpc, where 2 of 3 workers have come"):
        _run(one_too_few)


def test_some_ranks_may_use_rpc_beside_a_process_group_of_all() -> None:
    def mixed() -> float:
        rank = dist.get_rank()
        value = torch.full((1,), float(rank))
        if rank:
            rpc.init_rpc(f"worker{rank}", rank=rank - 1, world_size=2)
            value = rpc.rpc_sync(f"worker{3 - rank}", echo, (value,))
            rpc.shutdown()
            rpc.init_rpc(f"again{rank}", rank=2 - rank, world_size=2)
            assert rpc.get_worker_info().id == 2 - rank and rpc.get_worker_info(0).name == "again2"
            rpc.shutdown()
        dist.all_reduce(value)
        return float(value)

    assert labkit.run(mixed, on=labkit.virtual(3), echo=False).results == [3.0] * 3


@pytest.mark.parametrize("name", ["context", "backward", "get_gradients"])
def test_distributed_autograd_is_refused_in_words(name: str) -> None:
    def use() -> None:
        getattr(dist_autograd, name)(0)

    with pytest.raises(RankFailed, match=f"dist_autograd.{name} does not exist on the virtual cluster"):
        _run(use)


@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # torch's optimizers are scripted on import
def test_distributed_optimizer_is_refused_in_words() -> None:
    from torch.distributed.optim import DistributedOptimizer

    def use() -> None:
        DistributedOptimizer(torch.optim.SGD, [], lr=0.1)

    with pytest.raises(RankFailed, match="DistributedOptimizer does not exist on the virtual cluster"):
        _run(use)


def test_torch_is_as_it_was_and_no_thread_is_left() -> None:
    def names() -> list[Any]:
        return [rpc.rpc_sync, rpc.RRef, rpc.api.RRef, rpc.init_rpc, torch.futures.Future.wait, torch.futures.wait_all,
                threading.Lock, threading.Thread.start, dist_autograd.context, torch.futures.collect_all]  # fmt: skip

    before, threads = names(), set(threading.enumerate())

    def fail_while_others_wait() -> None:
        rank = _join()
        threading.Thread(target=threading.Event().wait).start()
        if rank == 1:
            rpc.rpc_async("worker0", hold, (1.0,))
            time.sleep(1.0)
            raise ValueError("on purpose")
        rpc.shutdown()

    with pytest.raises(RankFailed, match="on purpose"):
        _run(fail_while_others_wait)
    assert names() == before and set(threading.enumerate()) == threads
    future: torch.futures.Future[int] = torch.futures.Future()
    future.set_result(3)
    assert future.then(lambda one: one.value() + 1).wait() == 4


def apply_without_a_lock(times: int) -> None:
    for _ in range(times):
        weights = shared["weights"]
        shared["weights"] = weights + 1


shared: dict[str, torch.Tensor] = {}


def lose_updates(with_lock: bool) -> float:
    rank = _join()
    if rank == 0:
        shared["weights"] = torch.zeros(1)
    time.sleep(1.0)
    if rank:
        work = apply_with_a_lock if with_lock else apply_without_a_lock
        rpc.rpc_sync("worker0", work, (10,))
    rpc.shutdown()
    return float(shared["weights"]) if rank == 0 else 0.0


lock_of: dict[str, Any] = {}


def apply_with_a_lock(times: int) -> None:
    lock = lock_of.setdefault("one", threading.Lock())
    for _ in range(times):
        with lock:
            apply_without_a_lock(1)


def test_pushes_without_a_lock_lose_updates_and_with_one_do_not() -> None:
    assert _run(lose_updates, True, world_size=5).results[0] == 40.0
    lost = [_run(lose_updates, False, world_size=5).results[0] for _ in range(2)]
    assert lost[0] == lost[1] < 40.0


def test_meta_tensors_go_by_their_size() -> None:
    def send() -> Any:
        rank = _join()
        back = rpc.rpc_sync("worker1", echo, (torch.empty(1 << 28, device="meta"),)) if rank == 0 else None
        rpc.shutdown()
        return None if back is None else (str(back.device), back.numel())

    run = _run(send)
    assert run.results[0] == ("meta", 1 << 28)
    assert next(span for span in run.timeline.rows() if span.kind == "rpc_sync").bytes > 1 << 30


@pytest.mark.in_turn
def test_a_real_run_shows_calls_and_executions_too() -> None:
    timeline = labkit.run(PROGRAMS["remote_objects"], on=labkit.local(3, device="cpu"), init=False, echo=False).timeline
    spans = list(timeline.rows())
    called = {(span.kind, span.name, span.peer) for span in spans if span.lane == Lane.COMMUNICATION}
    assert {
        ("remote", "Counter", 1),
        ("rpc_sync", "add", 2),
        ("rpc_async", "add", 0),
        ("to_here", "to_here", 2),
    } <= called
    assert ("rpc_sync", "total_of", 1) in called and all(span.end_ns > span.start_ns for span in spans)
    assert {(span.rank, span.name) for span in spans if span.kind == "rpc_serve"} >= {(1, "Counter"), (2, "add")}
    assert timeline.collectives() == [] and not timeline.problems
