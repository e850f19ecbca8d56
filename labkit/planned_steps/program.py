"""One training step in any layout of the planner: what a rank runs.

A pipeline in the 1F1B order with a flush (Narayanan and others 2021, arXiv 2104.04473) of stages as the planner cuts
them; gradients add up in float32; replicas sum them once a step, and with ZeRO 1 each keeps a share of the optimizer's
state (Rajbhandari and others 2020, arXiv 1910.02054). ZeRO 2 and 3 are torch's ``fully_shard``, which gathers and sums
in every microbatch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from labkit.planned_steps.neighbours import Neighbours, neighbours
from labkit.planned_steps.pieces import ALL_GATHER, REDUCE_SCATTER, Embedding, Head, PlannedBlock, rotation
from labkit.planned_steps.programs import PLAIN, Program
from labkit.planner.layout import Layout
from labkit.planner.model import Model

AXES = ("pipeline", "data", "tensor")


@dataclass(frozen=True)
class Moments:
    """When a rank's step began, and when each part of it was done, in seconds; and its memory.

    Attributes:
        begin: The step begins.
        computed: All microbatches are forward and backward.
        reduced: Replicas have summed gradients.
        updated: The optimizer has stepped.
        end: The weights are where they are used.
        peak_bytes: What the rank held at most.
    """

    begin: float
    computed: float
    reduced: float
    updated: float
    end: float
    peak_bytes: int


class PlannedStage(nn.Module):
    """This rank's piece of its stage."""

    def __init__(self, model: Model, layout: Layout, mesh: DeviceMesh, program: Program = PLAIN) -> None:
        super().__init__()
        self.layer_s = program.layer_s
        part, group = layout.stages(model)[mesh.get_local_rank("pipeline")], mesh.get_group("tensor")
        self.again = layout.recompute == "full"
        self.embedding = Embedding(model, group) if part.first else None
        self.blocks = nn.ModuleList(PlannedBlock(model, group, program) for _ in range(part.layers))
        self.head = Head(model, group, program) if part.last else None

    def forward(self, x: Tensor, targets: Tensor, turned: tuple[Tensor, Tensor]) -> Tensor:
        """Return what the next stage reads, or the loss; where the loss stands alone on a stage, that hands it on."""
        if self.embedding is not None:
            x = self.embedding(x)
        elif not self.blocks and self.head is None:
            return x * 1.0
        for block in self.blocks:
            time.sleep(self.layer_s / 3)  # issuing backward takes twice as long as forward
            x = checkpoint(block, x, turned, use_reentrant=False) if self.again else block(x, turned)
            if self.layer_s and x.requires_grad:
                x.register_hook(self._issues_backward)  # type: ignore[no-untyped-call]
        return x if self.head is None else self.head(x, targets)

    def _issues_backward(self, _: Tensor) -> None:
        time.sleep(2 * self.layer_s / 3)


class _Sums:
    """Gradients of all microbatches, added up in float32; the optimizer's share of them, and its update."""

    def __init__(self, stage: PlannedStage, layout: Layout, group: Any, program: Program) -> None:
        self.together = program.gradients_together
        self.parameters, self.group, self.zero = list(stage.parameters()), group, layout.sharding
        size = sum(each.numel() for each in self.parameters)
        size += -size % layout.data
        self.gradients = torch.zeros(size, dtype=torch.float32, device="cuda")
        self.weights = torch.empty(size, dtype=torch.bfloat16, device="cuda")
        buckets = program.reducer_buckets and layout.data > 1 and not layout.sharding
        self.buckets = torch.empty_like(self.weights) if buckets else None
        self.adds: list[Any] = []
        at = 0
        for each in self.parameters:
            piece = slice(at, at + each.numel())
            each.data = self.weights[piece].view_as(each)
            self.adds.append(_adds_to(self.gradients[piece].view_as(each)))
            if not self.together:
                each.register_post_accumulate_grad_hook(self.adds[-1])  # type: ignore[no-untyped-call]
            at += each.numel()
        share = size // layout.data if layout.sharding else size
        self.mine = torch.empty(share, dtype=torch.float32, device="cuda")
        self.optimizer = _with_state([self.mine])

    def after_backward(self) -> None:
        """Add the gradients that one backward pass left, if none was added meanwhile."""
        if self.together:
            for each, add in zip(self.parameters, self.adds, strict=True):
                add(each)

    def reduce(self) -> None:
        """Let replicas sum; with ZeRO 1 this one keeps its share."""
        if dist.get_world_size(self.group) > 1 and self.zero:
            self.mine.grad = torch.empty_like(self.mine)
            REDUCE_SCATTER(self.mine.grad, self.gradients, op=dist.ReduceOp.AVG, group=self.group)
            return
        if dist.get_world_size(self.group) > 1:
            dist.all_reduce(self.gradients, op=dist.ReduceOp.AVG, group=self.group)
        self.mine.grad = self.gradients

    def update(self) -> None:
        """Take the optimizer's step, and round what it updated."""
        self.optimizer.step()
        self.share = self.mine.bfloat16()
        if len(self.share) == len(self.weights):
            self.weights.copy_(self.share)

    def spread(self) -> None:
        """Let each replica have the weights of all shares."""
        if len(self.share) < len(self.weights):
            ALL_GATHER(self.weights, self.share, group=self.group)


def _with_state(parameters: Iterable[Any]) -> torch.optim.AdamW:
    """Return AdamW that has its moments, which it makes in its first step."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    for each in optimizer.param_groups[0]["params"]:
        each.grad = torch.zeros_like(each)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def _adds_to(total: Tensor) -> Any:
    def add(parameter: Tensor) -> None:
        total.add_(parameter.grad)  # type: ignore[arg-type]
        parameter.grad = None

    return add


class _Sharded:
    """A stage that fully_shard wraps, which gathers and sums by itself."""

    def __init__(self, stage: PlannedStage, layout: Layout, mesh: DeviceMesh) -> None:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        keeps: dict[str, Any] = {
            "mesh": mesh["data"],
            "mp_policy": policy,
            "reshard_after_forward": layout.sharding == 3,
        }
        for part in (stage.embedding, *stage.blocks, stage.head):
            if part is not None:
                fully_shard(part, **keeps)
        fully_shard(stage, **keeps)
        stage.to_empty(device="cuda")
        self.optimizer = _with_state(stage.parameters())

    def after_backward(self) -> None:
        """Do nothing: fully_shard adds up."""

    def reduce(self) -> None:
        """Do nothing: backward has summed."""

    def update(self) -> None:
        """Take the optimizer's step."""
        self.optimizer.step()

    def spread(self) -> None:
        """Do nothing: the next forward gathers."""


def planned_step(model: Model, layout: Layout, program: Program = PLAIN) -> Moments:
    """Build this rank's piece of the model, run a step as a program does, and return its moments."""
    shape = (layout.pipeline, layout.data, layout.tensor)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=AXES)
    sums: _Sums | _Sharded
    with _default_dtype(torch.float32 if layout.sharding > 1 else torch.bfloat16):
        with torch.device("meta" if layout.sharding > 1 else "cuda"):
            stage = PlannedStage(model, layout, mesh, program)
        if layout.sharding > 1:
            sums = _Sharded(stage, layout, mesh)
        else:
            sums = _Sums(stage, layout, mesh.get_group("data"), program)
    turned = tuple(each.cuda() for each in rotation(model))
    tokens = torch.zeros(model.sequence, layout.microbatch, dtype=torch.long, device="cuda")
    near = neighbours(model, layout, mesh, program)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    with set_checkpoint_early_stop(False):
        _one_f_one_b(layout, stage, near, sums, tokens, turned)
    computed = _now()
    sums.reduce()
    reduced = _now()
    time.sleep(program.step_s)
    sums.update()
    updated = _now()
    sums.spread()
    return Moments(begin, computed, reduced, updated, _now(), torch.cuda.max_memory_allocated())


def _now() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _one_f_one_b(
    layout: Layout, stage: PlannedStage, near: Neighbours, sums: _Sums | _Sharded, tokens: Tensor, turned: Any
) -> None:
    """Run all microbatches forward and backward; gradients add up."""
    waiting: deque[tuple[Tensor | None, Tensor]] = deque()

    def forward(given: Tensor | None) -> Tensor:
        if given is not None:
            given.requires_grad_()
        y: Tensor = stage(tokens if given is None else given, tokens, turned)
        waiting.append((given, y))
        return y

    def backward(gradient: Tensor | None) -> Tensor | None:
        given, y = waiting.popleft()
        if gradient is None:
            (y / layout.accumulation).backward()  # type: ignore[no-untyped-call]
        else:
            y.backward(gradient)  # type: ignore[no-untyped-call]
        sums.after_backward()
        return None if given is None else given.grad

    ahead = min(layout.pipeline - 1 - near.stage, layout.accumulation)
    steady = layout.accumulation - ahead
    for _ in range(ahead):
        given, _ = near.exchange(want_input=True)
        near.exchange(forward=forward(given))
    given, _ = near.exchange(want_input=True) if steady else (None, None)
    for number in range(steady):
        _, gradient = near.exchange(forward=forward(given), want_gradient=True)
        given, _ = near.exchange(backward=backward(gradient), want_input=number < steady - 1)
    for _ in range(ahead):
        _, gradient = near.exchange(want_gradient=True)
        near.exchange(backward=backward(gradient))
