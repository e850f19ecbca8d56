"""What a program compiles: the operators between two products are one kernel, which moves what a kernel would."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard

import labkit
from labkit.simulator.compiled import NOTE
from labkit.timeline.span import Lane

SIDE = 1024
BYTES = 4 * SIDE * SIDE
"""Of one matrix."""


def block_of(compile_: Any) -> float:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    x = torch.randn(SIDE, SIDE, device="cuda", requires_grad=True)
    weight = torch.ones(SIDE, SIDE, device="cuda")

    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2 + 1) @ weight

    (torch.compile(block, **compile_) if compile_ is not None else block)(x).sum().backward()
    assert x.grad is not None
    return float(x.grad.double().sum())


def _rows(run: Any) -> list[tuple[str, int, int]]:
    """Return name, bytes and nanoseconds of what rank 0's device computed, after the two tensors were made."""
    timeline = run.timeline
    found = (timeline.lane == Lane.COMPUTE) & (timeline.rank == 0)
    spent = timeline.end_ns - timeline.start_ns
    return list(zip(*(one[found].tolist() for one in (timeline.name, timeline.bytes, spent)), strict=True))[2:]


def _run(compile_: Any, *, shapes: bool) -> Any:
    return labkit.run(block_of, compile_, on=labkit.virtual(1, cuda=True, shapes=shapes), echo=False)


@pytest.mark.in_turn
def test_a_compiled_region_reads_and_writes_its_edges_and_what_the_backward_pass_keeps() -> None:
    rows = _rows(_run({}, shapes=True))
    device = labkit.virtual(1).cluster.device
    # Forward: x is read, gelu's input (kept for the backward pass) and output are written. Backward: the product's
    # gradient and gelu's input are read, and the gradient of x is written. As separate kernels: 6 and 5 matrices.
    matrix_ns = BYTES / (device.memory_bytes_per_second * device.memory_share) * 1e9
    assert [row for row in rows if row[0] == "fused"] == [("fused", 3 * BYTES, math.ceil(3 * matrix_ns))] * 2
    plain = _rows(_run(None, shapes=True))
    joined = ("mul", "add", "gelu", "gelu_backward")
    separate = [num_bytes for name, num_bytes, _ in plain if name in joined]
    assert sum(separate) == (2 + 2 + 2 + 3 + 2) * BYTES
    assert [row for row in plain if row[0] not in joined] == [row for row in rows if row[0] != "fused"]


@pytest.mark.in_turn
@pytest.mark.parametrize("compile_", [{"disable": True}, {"backend": "eager"}])
def test_what_the_compiler_is_told_to_leave_is_left(compile_: Any) -> None:
    assert _rows(_run(compile_, shapes=True)) == _rows(_run(None, shapes=True))


def test_compiling_changes_no_values_and_is_told() -> None:
    compiled, plain = (_run(one, shapes=False) for one in ({}, None))
    assert compiled.results == plain.results
    assert [one.text for one in compiled.timeline.problems] == [NOTE]


def sharded() -> int:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)) for _ in range(2)]
    ).cuda()
    for block in model:
        block.compile()
        fully_shard(block)
    fully_shard(model)
    for _ in range(2):
        model(torch.ones(64, 256, device="cuda")).sum().backward()
    return torch.cuda.max_memory_allocated()


def test_blocks_that_are_compiled_and_sharded_gather_and_reduce_as_before() -> None:
    run = labkit.run(sharded, on=labkit.virtual(2, cuda=True, shapes=True), echo=False)
    timeline = run.timeline
    kinds = timeline.kind[(timeline.lane == Lane.COMMUNICATION) & (timeline.rank == 0)].tolist()
    assert kinds.count("reduce_scatter_tensor") == 4 and kinds.count("all_gather_into_tensor") >= 4
    names = timeline.name[(timeline.lane == Lane.COMPUTE) & (timeline.rank == 0)].tolist()
    assert "fused" in names and "gelu" not in names and "native_layer_norm" not in names
