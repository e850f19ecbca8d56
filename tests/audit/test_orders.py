"""What hangs on two ranks that are late at once, or on whose remote call is handled first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc

import labkit
from labkit.auditing.finding import Finding
from labkit.virtual_world import VirtualWorld

THREE, FOUR = labkit.virtual(3), labkit.virtual(4)
kept: dict[int, torch.Tensor] = {}


def either(waits: bool = False) -> None:
    """Let ranks 1 and 2 leave a file each, which rank 0 looks for after a while: one is enough."""
    rank = dist.get_rank()
    if rank in (1, 2):
        told = dist.isend(torch.ones(1), 3)
        Path(f"left by {rank}").touch()
        told.wait()
    elif rank == 3:
        asked, *told = [dist.irecv(torch.empty(1), sender) for sender in (0, 1, 2)]
        asked.wait()
        dist.send(torch.ones(1), 0)
        for work in told:
            work.wait()
    else:
        for _ in range(50):
            nn.functional.relu(torch.ones(64, 64))
        dist.send(torch.ones(1), 3)
        dist.recv(torch.empty(1), 3)
    if waits:
        dist.barrier()
    found = torch.zeros(1)
    if rank == 0 and list(Path().glob("left*")):
        found += 1
    dist.broadcast(found, 0)


def hand_in(worker: int, value: torch.Tensor, by_worker: bool) -> None:
    """Keep what a worker brings."""
    kept[worker if by_worker else len(kept)] = value


def collect(by_worker: bool = False) -> None:
    """Let workers call rank 0, which stacks what they brought."""
    rank = dist.get_rank()
    kept.clear()
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=dist.get_world_size())
    if rank:
        rpc.rpc_sync("rank0", hand_in, args=(rank, torch.tensor([float(rank)]), by_worker))
    dist.barrier()
    found = torch.cat([kept[place] for place in sorted(kept)]) if rank == 0 else torch.empty(2)
    dist.broadcast(found, 0)
    rpc.shutdown()


def add(value: torch.Tensor) -> torch.Tensor:
    """Add to what is kept, and return it."""
    kept[0] = kept.get(0, torch.zeros(1)) + value
    return kept[0]


def asynchronous() -> None:
    """Let each worker add what it makes of the answer before: nobody waits for another, on purpose."""
    rank = dist.get_rank()
    kept.clear()
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=dist.get_world_size())
    value = torch.tensor([float(rank)])
    for _ in range(3 if rank else 0):
        value = 0.5 * rpc.rpc_sync("rank0", add, args=(value,))
    dist.barrier()
    dist.broadcast(kept[0] if rank == 0 else torch.empty(1), 0)
    rpc.shutdown()


def _late(fn: Callable[..., None], world: VirtualWorld, *args: object) -> list[Finding]:
    return list(labkit.audit(fn, *args, on=world, late=True).findings)


@pytest.mark.in_turn
def test_two_ranks_that_must_both_be_late_are_named_with_a_delay_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (one,) = _late(either, FOUR)
    assert one.rule == "ends-otherwise-when-late"
    assert re.findall(r"Pause\((\d), seconds=[\d.e-]+, call=1\)", one.advice) == ["1", "2"]
    assert "list(Path().glob" in Path(one.file).read_text().splitlines()[one.line - 1]
    assert not _late(either, FOUR, True)


@pytest.mark.in_turn
def test_a_result_that_the_order_of_remote_calls_decides_is_found_at_the_line_that_keeps_them() -> None:
    (one,) = _late(collect, THREE)
    assert (one.rule, one.severity) == ("ends-otherwise-when-late", "suspected")
    assert "kept[worker if by_worker" in Path(one.file).read_text().splitlines()[one.line - 1]
    assert len(one.evidence["pauses"]) == 1 and "call=1" in one.evidence["pauses"][0]
    assert not _late(collect, THREE, True)


@pytest.mark.in_turn
def test_a_server_that_answers_each_call_as_it_comes_is_asynchronous_on_purpose() -> None:
    found = labkit.audit(asynchronous, on=THREE, late=True)
    assert not found.findings
    assert "asynchronous server" in found.not_looked_at["ends-otherwise-when-late"]
