"""Calls of torch.distributed that random programs do not draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit


def _results(fn: Callable[..., Any], world_size: int = 3, **more: Any) -> list[Any]:
    return labkit.run(fn, on=labkit.virtual(world_size, **more), echo=False).results


def test_a_future_waits_in_virtual_time_and_so_does_what_follows_from_it() -> None:
    def chain() -> list[float]:
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        more = doubled.then(lambda done: done.value() + 1)
        return [float(more.wait()), float(doubled.wait()), float(future.wait()[0])]

    assert _results(chain) == [[7.0, 6.0, 3.0]] * 3


def test_a_future_of_a_collective_that_is_complete_is_complete() -> None:
    def look() -> tuple[bool, float]:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.wait()
        return work.get_future().done(), float(work.get_future().value()[0])

    assert _results(look) == [(True, 3.0)] * 3


def test_coalesced_collectives_give_what_single_ones_give() -> None:
    from torch.distributed.distributed_c10d import _coalescing_manager

    def coalesce() -> list[list[float]]:
        values = [torch.ones(2) * (dist.get_rank() + at) for at in range(3)]
        with _coalescing_manager(async_ops=True) as manager:
            for value in values:
                dist.all_reduce(value)
        manager.wait()
        outputs = [torch.empty(3) for _ in range(2)]
        with _coalescing_manager(device=torch.device("cpu")):
            for at, output in enumerate(outputs):
                dist.all_gather_single(output, torch.tensor([float(dist.get_rank() * 10 + at)]))
        return [value.tolist() for value in (*values, *outputs)]

    assert _results(coalesce) == [[[3.0] * 2, [6.0] * 2, [9.0] * 2, [0.0, 10.0, 20.0], [1.0, 11.0, 21.0]]] * 3


@pytest.mark.skipif(not hasattr(dist, "gather_single"), reason="dist.gather_single came with torch 2.15")
def test_a_gather_into_one_tensor_gives_the_root_everybodys() -> None:
    def gather() -> list[float] | None:
        output = torch.zeros(6) if dist.get_rank() == 1 else None
        dist.gather_single(torch.arange(2.0) + 10 * dist.get_rank(), output, dst=1)  # type: ignore[attr-defined]
        return None if output is None else output.tolist()

    assert _results(gather) == [None, [0.0, 1.0, 10.0, 11.0, 20.0, 21.0], None]


def test_a_message_to_oneself_arrives() -> None:
    def itself() -> float:
        got = torch.zeros(1)
        works = [dist.isend(torch.ones(1) * 5, dist.get_rank()), dist.irecv(got, dist.get_rank())]
        for work in works:
            work.wait()
        return float(got)

    assert _results(itself, 2) == [5.0, 5.0]


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "broadcast": lambda column: dist.broadcast(column, 0),
    "all_reduce": dist.all_reduce,
    "isend": lambda column: dist.isend(column, (dist.get_rank() + 1) % 2),
}


@pytest.mark.parametrize("call", CALLS)
def test_tensors_with_gaps_are_refused_as_nccl_does_for_gloo_would_leave_wrong_values(call: str) -> None:
    def column() -> str:
        with pytest.raises(RuntimeError) as refused:
            CALLS[call](torch.arange(6.0).reshape(2, 3)[:, 1])
        CALLS["all_reduce"](torch.arange(6.0).reshape(2, 3).t())  # every element of a piece of memory, in another order
        return str(refused.value)

    assert all(f"{call} got a tensor with gaps in memory" in text for text in _results(column, 2))


def test_a_receive_from_any_rank_takes_who_sent_first_in_virtual_time() -> None:
    import time

    def first() -> list[int]:
        rank, got = dist.get_rank(), torch.zeros(1)
        if rank:
            time.sleep(0.001 * (4 - rank))  # rank 3 sends first, though it runs last
            dist.send(torch.ones(1) * rank, 0)
            return []
        return [dist.recv(got) for _ in range(3)]

    assert _results(first, 4)[0] == [3, 2, 1]


def test_a_receive_from_any_rank_meets_sends_that_were_posted_before_it_and_lie_later_in_time() -> None:
    import time

    def last() -> list[int]:
        rank, got = dist.get_rank(), torch.zeros(1)
        if rank < 2:
            time.sleep(0.001 * (2 - rank))  # rank 1 sends first; both have posted when rank 2 asks at 0 ms
            dist.send(torch.ones(1) * rank, 2)
            return []
        return [dist.recv(got) for _ in range(2)]

    assert _results(last, 3)[2] == [1, 0]


def test_groups_of_groups_do_not_mix() -> None:
    def nested() -> list[float]:
        rank = dist.get_rank()
        halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        value = torch.ones(1) * rank
        dist.all_reduce(value, group=halves[rank // 2])
        even = dist.new_group([0, 2])
        if rank % 2 == 0:
            dist.all_reduce(value, group=even)
        return value.tolist()

    assert _results(nested, 4) == [[6.0], [1.0], [6.0], [5.0]]


def test_the_store_that_ranks_meet_at_waits_in_virtual_time() -> None:
    import time

    def meet() -> tuple[bytes, int, bool]:
        store = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 2:
            time.sleep(5)
            store.set("word", "hello")
        word = store.get("word")
        count = store.add("count", 1)
        return word, count, time.perf_counter() >= 5

    assert sorted(_results(meet)) == [(b"hello", 1, True), (b"hello", 2, True), (b"hello", 3, True)]


def test_an_average_and_a_sum_of_scaled_values() -> None:
    def average() -> float:
        value = torch.ones(1) * dist.get_rank()
        dist.all_reduce(value, op=dist.ReduceOp.AVG)
        return float(value)

    assert _results(average) == [1.0] * 3

    def scaled() -> float:
        value = torch.ones(1)
        dist.all_reduce(value, op=dist._make_nccl_premul_sum(2.0))
        return float(value)

    assert _results(scaled) == [6.0] * 3


@pytest.mark.in_turn
def test_a_slow_link_and_jitter_show_in_a_run() -> None:
    def step() -> None:
        dist.all_reduce(torch.ones(1_000_000))

    def makespan(**more: Any) -> int:
        run = labkit.run(step, on=labkit.virtual(4, **more), echo=False)
        assert run.timeline is not None
        return run.timeline.makespan_ns

    plain = makespan()
    assert makespan(slow_links={(1, 2): 4.0}) > 2 * plain
    assert plain < makespan(jitter=0.5, seed=1) == makespan(jitter=0.5, seed=1) != makespan(jitter=0.5, seed=2)
    assert makespan(link="pcie4") > 3 * plain


@pytest.mark.in_turn
def test_a_world_with_more_ranks_than_processes_could_be_had_runs() -> None:
    def everybody() -> float:
        value = torch.ones(1)
        dist.all_reduce(value)
        return float(value)

    assert _results(everybody, 300) == [300.0] * 300


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # what replaces them torch 2.11 does not have
@pytest.mark.parametrize("cuda", [False, True])
def test_functional_collectives_of_a_program_and_their_gradients_are_right(cuda: bool) -> None:
    def program() -> list[list[float]]:
        from torch.distributed import _functional_collectives

        functional: Any = _functional_collectives
        group, rank = dist.group.WORLD, dist.get_rank()
        given = (torch.arange(4.0) + rank).to(labkit.device())
        wanted = given.clone().requires_grad_()
        (functional.all_to_all_single_autograd(wanted, None, None, group) * (2 + rank)).sum().backward()
        found = [
            functional.wait_tensor(functional.all_reduce(given, "avg", group)),
            functional.broadcast(given, 1, group),
            functional.all_gather_tensor(given, 0, group),
            functional.reduce_scatter_tensor(given, "sum", 0, group),
            functional.all_to_all_single(given, None, None, group),
            functional.permute_tensor(given, [1, 0], group),
            *functional.all_reduce_coalesced([given, given * 2], "sum", group),
            wanted.grad,
        ]
        return [(one + 0).tolist() for one in found if one is not None]

    both = _results(program, world_size=2, cuda=cuda)
    first, second = [0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]
    for rank, found in enumerate(both):
        average, given, every, part, pieces, other, total, double, gradient = found
        assert average == [0.5, 1.5, 2.5, 3.5]
        assert (given, every) == (second, first + second)
        assert part == ([1.0, 3.0], [5.0, 7.0])[rank]
        assert pieces == ([0.0, 1.0, 1.0, 2.0], [2.0, 3.0, 3.0, 4.0])[rank]
        assert other == (second, first)[rank]
        assert (total, double) == ([1.0, 3.0, 5.0, 7.0], [2.0, 6.0, 10.0, 14.0])
        assert gradient == [2.0, 2.0, 3.0, 3.0]
