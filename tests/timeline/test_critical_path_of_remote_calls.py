"""The critical path through remote calls: request, serving, reply, and the queue in front of a server."""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch.distributed.rpc as rpc
from torch.futures import Future

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, HOST, Timeline
from labkit.timeline.critical_path import critical_path, in_words

Drawn = tuple[int, int, int, str, int]  # rank, begin, end, kind, flow


def _timeline(
    *spans: Drawn, waits: tuple[tuple[int, int], ...] = (), replies: tuple[tuple[int, int], ...] = ()
) -> Timeline:
    lanes = {"compute": COMPUTE, "rpc_serve": HOST, "wait": HOST}
    rank, start, end, kind, flow = zip(*spans, strict=True)
    calls = [row for row, word in enumerate(kind) if word not in lanes]
    tables = {
        "call": {
            "span": np.array(calls), "group": np.array([""] * len(calls)), "number": np.zeros(len(calls), dtype=int),
            "blocking": np.array([kind[row] != "rpc_async" for row in calls], dtype=bool),
        },
        "wait": dict(zip(("span", "of"), np.array(waits, dtype=int).reshape(-1, 2).T, strict=True)),
        "reply": dict(zip(("span", "of"), np.array(replies, dtype=int).reshape(-1, 2).T, strict=True)),
    }  # fmt: skip
    lane = [lanes.get(word, COMMUNICATION) for word in kind]
    return Timeline(rank, lane, start, end, kind, kind, flow=flow, tables=tables)


def _pieces(timeline: Timeline) -> list[tuple[int, int, int, int, str]]:
    steps = critical_path(timeline)
    assert all(before.end_ns == after.start_ns and before.rank == after.from_rank for before, after in pairwise(steps))
    assert sum(step.end_ns - step.start_ns for step in steps) == timeline.makespan_ns
    return [(step.from_rank, step.rank, step.start_ns, step.end_ns, step.kind) for step in steps]


def test_a_call_leads_through_reply_serving_and_request_back_to_its_caller() -> None:
    timeline = _timeline(
        (1, 0, 10, "compute", -1), (1, 10, 40, "rpc_sync", 0), (0, 15, 32, "rpc_serve", 0), (1, 40, 50, "compute", -1)
    )
    assert _pieces(timeline) == [
        (1, 1, 0, 10, "program"), (1, 0, 10, 15, "call"), (0, 0, 15, 32, "program"), (0, 1, 32, 40, "call"),
        (1, 1, 40, 50, "program"),
    ]  # fmt: skip
    words = in_words(timeline, critical_path(timeline))
    assert "computing 40 %, communicating 26 %, neither 34 %; it visits 2 ranks and changes ranks 2 times." in words


def test_a_call_that_stood_in_line_leads_through_the_one_it_waited_for() -> None:
    timeline = _timeline(
        (1, 0, 4, "compute", -1), (1, 4, 35, "rpc_sync", 0), (0, 10, 30, "rpc_serve", 0),
        (2, 0, 9, "compute", -1), (2, 9, 60, "rpc_sync", 1), (0, 30, 50, "rpc_serve", 1),
    )  # fmt: skip
    assert _pieces(timeline) == [
        (1, 1, 0, 4, "program"), (1, 0, 4, 10, "call"), (0, 0, 10, 30, "program"), (0, 0, 30, 50, "program"),
        (0, 2, 50, 60, "call"),
    ]  # fmt: skip


def test_a_call_made_after_the_one_before_it_was_served_stood_in_no_line() -> None:
    timeline = _timeline(
        (1, 0, 35, "rpc_sync", 0), (0, 10, 30, "rpc_serve", 0),
        (2, 0, 9, "compute", -1), (2, 9, 60, "rpc_sync", 1), (0, 31, 50, "rpc_serve", 1),
    )  # fmt: skip
    assert _pieces(timeline)[0] == (2, 2, 0, 9, "program")


def test_an_asynchronous_call_is_on_the_path_where_its_caller_waits_for_it() -> None:
    spans: list[Drawn] = [
        (1, 0, 40, "rpc_async", 0), (0, 5, 35, "rpc_serve", 0), (1, 1, 20, "compute", -1), (1, 20, 40, "wait", -1),
        (1, 40, 45, "compute", -1),
    ]  # fmt: skip
    assert _pieces(_timeline(*spans, waits=((3, 0),))) == [
        (1, 0, 0, 5, "call"), (0, 0, 5, 35, "program"), (0, 1, 35, 40, "call"), (1, 1, 40, 45, "program")
    ]  # fmt: skip
    assert _pieces(_timeline(*spans)) == [(1, 1, 0, 45, "program")]


def test_a_call_that_gave_up_before_it_was_served_is_its_callers_own() -> None:
    timeline = _timeline((1, 0, 20, "rpc_sync", 0), (0, 5, 35, "rpc_serve", 0), (1, 20, 50, "compute", -1))
    assert _pieces(timeline) == [(1, 1, 0, 20, "call"), (1, 1, 20, 50, "program")]


def test_an_answer_left_to_a_later_call_comes_from_there() -> None:
    timeline = _timeline(
        (1, 0, 40, "rpc_sync", 0), (0, 5, 6, "rpc_serve", 0),
        (2, 0, 20, "compute", -1), (2, 20, 36, "rpc_sync", 1), (0, 25, 30, "rpc_serve", 1),
        replies=((4, 0),),
    )  # fmt: skip
    assert _pieces(timeline) == [
        (2, 2, 0, 20, "program"), (2, 0, 20, 25, "call"), (0, 0, 25, 30, "program"), (0, 1, 30, 40, "call")
    ]  # fmt: skip


def test_what_a_serving_calls_itself_is_inside_of_it_and_other_threads_are_not() -> None:
    timeline = _timeline(
        (0, 0, 60, "rpc_sync", 0), (1, 5, 55, "rpc_serve", 0),
        (1, 10, 30, "rpc_sync", 1), (2, 15, 25, "rpc_serve", 1),
        (1, 2, 40, "rpc_sync", 2), (3, 4, 38, "rpc_serve", 2),
    )  # fmt: skip
    assert _pieces(timeline) == [
        (0, 1, 0, 5, "call"), (1, 1, 5, 10, "program"), (1, 2, 10, 15, "call"), (2, 2, 15, 25, "program"),
        (2, 1, 25, 30, "call"), (1, 1, 30, 55, "program"), (1, 0, 55, 60, "call"),
    ]  # fmt: skip


@pytest.mark.parametrize("num_ranks", [1, 2, 5])
def test_calls_that_take_no_time_do_not_go_round_in_circles(num_ranks: int) -> None:
    calls: list[Drawn] = [(rank, 5, 5, "rpc_sync", rank) for rank in range(num_ranks)]
    served: list[Drawn] = [((rank + 1) % num_ranks, 5, 5, "rpc_serve", rank) for rank in range(num_ranks)]
    assert critical_path(_timeline(*calls, *served)) == []


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", range(50))
def test_pieces_add_up_and_time_goes_backwards_whatever_was_recorded(seed: int) -> None:
    random = np.random.default_rng(seed)
    spans: list[Drawn] = []
    for flow in range(30):
        caller, callee = random.integers(0, 4, 2).tolist()
        begin, end = sorted(random.integers(0, 25, 2).tolist())
        served, done = sorted(random.integers(0, 25, 2).tolist())
        spans.append((caller, begin, end, str(random.choice(["rpc_sync", "rpc_async", "to_here"])), flow))
        spans.append((callee, served, done, "rpc_serve", flow))
    replies = tuple((1 + 2 * int(by), 2 * int(of)) for by, of in random.integers(0, 30, (6, 2)))
    timeline = _timeline(*spans, *((rank, 0, 1, "compute", -1) for rank in range(4)), replies=replies)
    steps = critical_path(timeline)  # one that takes no time is left out, also where it changes ranks
    assert all(before.end_ns == after.start_ns for before, after in pairwise(steps))
    assert (steps[0].start_ns, steps[-1].end_ns) == (0, timeline.end_ns.max())


class Turns:
    """A server that computes on its only thread, and one that answers all when the last has come."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers, self.here, self.future = num_workers, 0, Future[int]()

    def turn(self) -> None:
        time.sleep(0.020)

    @rpc.functions.async_execution
    def meet(self) -> Future[int]:
        self.here += 1
        future = self.future
        if self.here == self.num_workers:
            future.set_result(self.here)
        return future


def _worker(server: rpc.RRef[Turns], late: float) -> None:
    time.sleep(late)
    server.rpc_sync().turn()
    time.sleep(late)
    server.rpc_sync().meet()


def _serve(num_threads: int = 16, late: float = 0.0) -> None:
    rank = int(os.environ["RANK"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=16 if rank else num_threads)
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=3, rpc_backend_options=options)
    if rank == 0:
        server = rpc.RRef(Turns(2))
        for call in [rpc.rpc_async(f"rank{peer}", _worker, args=(server, late * (peer == 1))) for peer in (1, 2)]:
            call.wait()
    rpc.shutdown()


def test_a_virtual_parameter_server_is_on_the_path_of_its_workers() -> None:
    timeline = labkit.run(partial(_serve, 1), on=labkit.virtual(3), init=False).timeline
    steps = critical_path(timeline)
    assert sum(step.end_ns - step.start_ns for step in steps) == timeline.makespan_ns
    on_server = sum(s.end_ns - s.start_ns for s in steps if s.kind == "program" and s.from_rank == s.rank == 0)
    assert on_server >= 40_000_000  # two turns, one after the other
    assert in_words(timeline, steps).count("visits 1 rank ") == 0


def test_the_virtual_meeting_waits_for_the_worker_that_came_last() -> None:
    timeline = labkit.run(partial(_serve, 16, 0.1), on=labkit.virtual(3), init=False).timeline
    steps = critical_path(timeline)
    slow = sum(s.end_ns - s.start_ns for s in steps if s.kind == "program" and s.rank == 1)
    assert slow >= 200_000_000
    assert len(timeline.tables["reply"]["of"]) == 1
