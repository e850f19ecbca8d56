"""The `relay` backend on real processes: the same numbers as gloo, later than gloo, and never lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from labkit.checks import wire_format
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import Outcome

Probe = Callable[..., Outcome]

RANDOM_PROGRAM = """
import random

def program(rank):
    n, draw, seen = dist.get_world_size(), random.Random(SEED), []

    def mine(numel, dtype=torch.float64):
        values = [[draw.randrange(-9, 9) for _ in range(numel)] for _ in range(n)]
        return torch.tensor(values[rank], dtype=dtype)

    groups = [dist.new_group(sorted(draw.sample(range(n), draw.randrange(1, n + 1)))) for _ in range(2)]
    for _ in range(40):
        what, numel, root = draw.randrange(14), draw.randrange(0, 6), draw.randrange(n)
        dtype = draw.choice([torch.float64, torch.float32, torch.int64])
        op = draw.choice([dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT])
        x = mine(numel + 1, dtype)
        if what == 0:
            dist.all_reduce(x, op)
        elif what == 1:
            dist.broadcast(x, root)
        elif what == 2:
            outs = [torch.zeros_like(x) for _ in range(n)]
            dist.all_gather(outs, x)
            x = torch.cat(outs)
        elif what == 3:
            dist.reduce(x, root, op)
            x = x if rank == root else x * 0
        elif what == 4:
            rows = mine((numel + 1) * n, dtype)
            dist.scatter(x, list(rows.chunk(n)) if rank == root else None, root)
        elif what == 5:
            outs = [torch.zeros_like(x) for _ in range(n)] if rank == root else None
            dist.gather(x, outs, root)
            x = torch.cat(outs) if outs else x
        elif what == 6:
            rows = mine((numel + 1) * n, dtype)
            dist.reduce_scatter_tensor(x, rows, op)
        elif what == 7:
            rows, x = mine(2 * n, dtype), torch.zeros(2 * n, dtype=dtype)
            dist.all_to_all_single(x, rows)
        elif what == 8:
            shift = draw.randrange(1, n)
            out = torch.zeros_like(x)
            ops = [dist.P2POp(dist.isend, x, (rank + shift) % n), dist.P2POp(dist.irecv, out, (rank - shift) % n)]
            for work in reversed(dist.batch_isend_irecv(ops)) if draw.random() < 0.5 else dist.batch_isend_irecv(ops):
                work.wait()
            x = out
        elif what == 9:
            group = draw.choice(groups)
            work = dist.all_reduce(x, op, group=group, async_op=True)
            if work is not None:
                work.wait()
        elif what == 10:
            told = [None] * n
            dist.all_gather_object(told, {"rank": rank, "x": x.tolist()})
            x = torch.tensor([value for each in told for value in each["x"]], dtype=dtype)
        elif what == 11:
            order = draw.sample(range(n), n)
            if rank == order[0]:
                total = x.clone()
                for _ in range(n - 1):
                    part = torch.zeros_like(x)
                    assert dist.recv(part, tag=3) in order[1:]
                    total += part
                x = total
            else:
                dist.send(x, order[0], tag=3)
            dist.barrier()
        elif what == 12:
            dist.barrier()
            if rank == root:
                for peer in range(n):
                    if peer != root:
                        dist.send(x, peer)
            else:
                dist.irecv(x, root).wait()
        else:
            half = (rank + n // 2) % n
            works = [dist.isend(x, half, tag=t) for t in (1, 2)] if n % 2 == 0 else []
            out = [torch.zeros_like(x) for _ in works]
            for t in range(len(works), 0, -1):
                dist.recv(out[t - 1], half, tag=t)
            for work in works:
                work.wait()
            x = torch.cat([x, *out])
        seen.append(x.double())
    return torch.cat([t.reshape(-1) for t in seen])
"""


def relay_results(outcome: Outcome) -> list[Any]:
    assert outcome.failure is None, outcome.failure
    return [wire_format.decode(result)["y"] for result in outcome.results]


@pytest.mark.in_turn
@pytest.mark.parametrize(("case", "world_size"), [(0, 2), (1, 3), pytest.param(2, 5, marks=pytest.mark.long)])
def test_random_programs_bring_the_same_numbers_as_gloo(case: int, world_size: int, probe: Probe) -> None:
    import torch

    import labkit

    for seed in (world_size, world_size + 100):
        source = RANDOM_PROGRAM.replace("SEED", str(seed))
        through_relay = relay_results(probe("program", {"program": source}, case=case, seconds=60))

        def on_gloo(source: str = source) -> Any:
            import torch.distributed as dist

            scope: dict[str, Any] = {"torch": torch, "dist": dist}
            exec(source, scope)
            return scope["program"](dist.get_rank())

        run = labkit.run(on_gloo, on=labkit.local(world_size, device="cpu"), timeout=300)
        for mine, theirs in zip(through_relay, run.results, strict=True):
            assert torch.equal(mine, theirs)


REUSED = """
def program(rank):
    n = dist.get_world_size()
    x, out = torch.full((4,), float(rank)), torch.empty(4)
    work = dist.isend(x, (rank + 1) % n)
    {between}
    dist.recv(out, (rank - 1) % n)
    work.wait()
    return out
"""


@pytest.mark.in_turn
def test_a_buffer_reused_while_isend_is_in_flight_is_wrong_every_time(probe: Probe) -> None:
    right = relay_results(probe("program", {"program": REUSED.format(between="pass")}, case=1))
    assert [float(t[0]) for t in right] == [2.0, 0.0, 1.0]
    for _ in range(5):
        outcome = probe("program", {"program": REUSED.format(between="x.fill_(-7.0)")}, case=1)
        assert [float(t[0]) for t in relay_results(outcome)] == [-7.0, -7.0, -7.0]
        assert [problem.kind for problem in outcome.wire.problems] == ["changed_in_flight"] * 3


def test_writing_elsewhere_in_the_same_storage_is_no_reuse(probe: Probe) -> None:
    source = """
def program(rank):
    n = dist.get_world_size()
    buffer = torch.arange(8.0) + 10 * rank
    out = torch.empty(4)
    work = dist.isend(buffer[:4], (rank + 1) % n)
    dist.recv(out, (rank - 1) % n)
    buffer[4:] += out
    work.wait()
    return buffer
"""
    outcome = probe("program", {"program": source}, case=1)
    assert outcome.failure is None and outcome.wire.problems == ()


def test_polling_is_completed_comes_to_an_end(probe: Probe) -> None:
    source = """
def program(rank):
    x = torch.tensor([float(rank)])
    work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
    while not work.is_completed():
        pass
    return x
"""
    assert [float(t[0]) for t in relay_results(probe("program", {"program": source}))] == [0.0, 0.0]


COMPUTES = """
import threading, time

def program(x):
    rank, seen = dist.get_rank(), torch.zeros(1)

    def later():
        until = time.process_time() + 3
        while time.process_time() < until:
            sum(range(10_000))
        dist.send(torch.ones(1), 1 - rank)

    thread = threading.Thread(target=later)
    thread.start()
    dist.recv(seen, 1 - rank)
    thread.join()
    return seen
"""


SLEEPS = """
import ctypes, errno, platform, time

def program(x):
    libc, word = ctypes.CDLL(None, use_errno=True), ctypes.c_int(0)
    began = time.monotonic()
    number = {"x86_64": 202, "aarch64": 98}[platform.machine()]
    came = libc.syscall(number, ctypes.byref(word), 0, 0, ctypes.byref((ctypes.c_long * 2)(5, 0)))
    return [came, ctypes.get_errno() == errno.EAGAIN, time.monotonic() - began < 4]
"""


def test_a_thread_that_no_other_can_wake_does_not_sleep(probe: Probe) -> None:
    assert relay_results(probe("program", {"program": SLEEPS})) == [[-1, True, True]] * 2


def test_ranks_that_wait_while_their_threads_compute_are_in_no_deadlock(probe: Probe) -> None:
    assert [float(seen) for seen in relay_results(probe("program", {"program": COMPUTES}))] == [1.0, 1.0]


def test_a_ring_in_a_thread_of_the_learners_own_works(probe: Probe) -> None:
    source = """
import threading

def program(rank):
    n, total, x = dist.get_world_size(), torch.tensor([float(rank)]), torch.tensor([float(rank)])

    def ring():
        nonlocal x
        for _ in range(n - 1):
            out = torch.empty(1)
            work = dist.isend(x, (rank + 1) % n)
            dist.recv(out, (rank - 1) % n)
            work.wait()
            total.add_(out)
            x = out

    thread = threading.Thread(target=ring)
    thread.start()
    thread.join()
    return total
"""
    assert [float(t[0]) for t in relay_results(probe("program", {"program": source}, case=2))] == [10.0] * 5


def test_the_relay_sees_every_message_and_collective(probe: Probe, oracle: Oracle) -> None:
    source = """
def program(rank):
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    return x
"""
    wire = probe("program", {"program": source}).wire
    assert [(m.src, m.dst, m.bytes, m.sent, m.received) for m in wire.messages] == [(0, 1, 12, 1, 1)]
    assert [(c.rank, c.kind, c.bytes) for c in wire.collectives] == [(0, "all_reduce", 12), (1, "all_reduce", 12)]


def test_a_tensor_that_is_not_contiguous_is_refused_as_gloo_refuses_it(probe: Probe) -> None:
    source = (
        "def program(rank):\n    x = torch.arange(6.0)[::2]\n    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)\n"
    )
    failure = probe("program", {"program": source}).failure
    assert failure is not None and "contiguous" in failure["message"]


ASKED = """
def program(rank):
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]
    futures = [work.get_future().then(lambda done: done.value()[0]) for work in works[:2]]
    works[1].wait()
    dist.barrier()
    works[2].wait()
    return torch.cat([future.value() for future in futures])
"""


def test_a_future_that_is_asked_for_is_not_waited_for_until_its_work_is(probe: Probe) -> None:
    outcome = probe("program", {"program": ASKED})
    assert [result.tolist() for result in relay_results(outcome)] == [[2.0] * 6] * 2
    waited = [(call.sequence, call.waited) for call in outcome.wire.collectives if call.kind == "all_reduce"]
    assert waited == [(0, None), (1, 3), (2, 4)] * 2


FUTURES = """
def program(rank):
    works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(7)]
    futures = [work.get_future() for work in works]
    futures[0].wait()
    futures[1].then(lambda done: done.wait()[0]).wait()
    dist.barrier()
    torch.futures.collect_all(futures[2:4]).wait()
    mine = torch.futures.Future()
    futures[4].add_done_callback(lambda done: mine.set_result(done.wait()[0]))
    dist.barrier()
    mine.wait()
    futures[5].then(lambda done: works[5].wait())
    thread = threading.Thread(target=futures[6].wait)
    thread.start()
    thread.join()
    dist.barrier()
    return mine.value()
"""


def test_waiting_for_a_future_is_waiting_for_its_work_but_in_a_callback_or_another_thread(probe: Probe) -> None:
    outcome = probe("program", {"program": "import threading\n" + FUTURES})
    assert [result.tolist() for result in relay_results(outcome)] == [[2.0]] * 2
    waited = [(call.sequence, call.waited) for call in outcome.wire.collectives if call.kind == "all_reduce"]
    assert waited == [(0, 7), (1, 7), (2, 8), (3, 8), (4, 9), (5, 10), (6, 10)] * 2
