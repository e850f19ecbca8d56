"""The sentence under a timeline counts messages, collectives and remote calls, each by its own name."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

import labkit
from labkit.timeline import COMMUNICATION, HOST, Timeline


def of(*kinds: str, num_bytes: int = 1000) -> str:
    """Return the sentence of a timeline with one call of each kind, one after the other on rank 0."""
    count = len(kinds)
    lanes = [HOST if kind in ("wait", "rpc_serve") else COMMUNICATION for kind in kinds]
    begins = list(range(0, 1000 * count, 1000))
    ends = [begin + 1000 for begin in begins]
    return Timeline([0] * count, lanes, begins, ends, list(kinds), list(kinds), bytes=[num_bytes] * count).summary()


def test_each_kind_of_call_is_counted_by_its_own_name() -> None:
    said = of("send", "isend", "recv", "irecv", "all_reduce", "barrier", "rpc_sync", "rpc_async", "remote", "to_here")
    assert said.startswith(
        "1 rank, 10 µs, blocked 0 % of the time, 2 messages (2 KB), 2 collective calls, "
        "4 remote calls (4 KB), bytes moving 100 % of the time"
    )


def test_what_is_not_there_is_not_counted_and_one_is_singular() -> None:
    assert of("rpc_sync").startswith("1 rank, 1 µs, blocked 0 % of the time, 1 remote call (1 KB), bytes")
    assert of("broadcast").startswith("1 rank, 1 µs, blocked 0 % of the time, 1 collective call, bytes")
    assert of("isend").startswith("1 rank, 1 µs, blocked 0 % of the time, 1 message (1 KB), bytes")


def test_waiting_and_serving_are_no_calls() -> None:
    assert of("wait", "rpc_serve") == "1 rank, 2 µs, blocked 50 % of the time, ranks busy 0 % of the time."


def asks_its_neighbour() -> float:
    """Return what the next worker makes of this one's rank, asked by rpc_sync after a barrier of two."""
    rank = dist.get_rank()
    dist.barrier()
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    found = rpc.rpc_sync(f"worker{1 - rank}", torch.add, args=(torch.ones(4), rank))
    rpc.shutdown()
    return float(found.sum())


def test_a_run_with_rpc_says_remote_calls() -> None:
    run = labkit.run(asks_its_neighbour, on=labkit.virtual(2))
    assert run.results == [4.0, 8.0]
    calls = int(sum(run.timeline.kind == "rpc_sync"))
    assert calls == 2
    assert f"{calls} remote calls (" in run.timeline.summary()
    assert "2 collective calls" in run.timeline.summary()
