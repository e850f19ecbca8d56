"""The same GPT on the same mesh by torch's own: DeviceMesh, parallelize_module, fully_shard, pipelining.

And what one of its steps takes, beside one of another program's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from labkit.errors import ConfigError
from labkit.hybrid_gpt import warm_up
from labkit.models import GPT, VOCABULARY, Addition, Block, loss_of_logits, optimizer_for
from labkit.timeline import Lane, Timeline
from labkit.timeline.messages import RECEIVES, SENDS, is_call, of_kind
from labkit.timeline.metrics import lane_times


class _Block(nn.Module):
    """A block of the course's GPT with q, k and v apart, as torch's plan wants them."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.norm1, self.norm2, self.out, self.up, self.down = block.norm1, block.norm2, block.out, block.up, block.down
        self.width = block.out.in_features // block.num_heads
        for name, weight, bias in zip("qkv", block.qkv.weight.chunk(3), block.qkv.bias.chunk(3), strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            with torch.no_grad():
                layer.weight.copy_(weight)
                layer.bias.copy_(bias)
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        layers: list[Any] = [self.q, self.k, self.v]
        q, k, v = (each(normed).unflatten(-1, (-1, self.width)).transpose(1, 2) for each in layers)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return out


class _Stage(nn.Module):
    """A stage of the GPT; the first has the embedding, the last a layer for the logits that begins with its numbers."""

    def __init__(self, gpt: GPT, stage: int, num_stages: int) -> None:
        super().__init__()
        each = len(gpt.blocks) // num_stages
        self.tokens = gpt.tokens if stage == 0 else None
        self.positions = gpt.positions if stage == 0 else None
        self.blocks = nn.ModuleList(_Block(block) for block in gpt.blocks[stage * each : (stage + 1) * each])  # type: ignore[arg-type]
        self.norm, self.head = None, None
        if stage == num_stages - 1:
            self.norm = gpt.norm
            self.head = nn.Linear(gpt.tokens.embedding_dim, len(VOCABULARY), bias=False)
            with torch.no_grad():
                self.head.weight.copy_(gpt.tokens.weight)

    def forward(self, x: Tensor) -> Tensor:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        if self.head is None or self.norm is None:
            return x
        logits: Tensor = self.head(self.norm(x))
        return logits.clone()  # fully_shard warns of a view


def train_torchs(
    num_steps: int, *, shard: int = 2, pipeline: int = 2, tensor: int = 2, microbatch: int = 16
) -> list[float]:
    """Return the loss of each step on this replica, known on the last stage; others return []."""
    mesh = init_device_mesh("cpu", (shard, pipeline, tensor), mesh_dim_names=("shard", "pipeline", "tensor"))
    place = mesh.get_local_rank("pipeline")
    module = _Stage(GPT(), place, pipeline)
    plan: dict[str, Any] = {}
    for number in range(len(module.blocks)):
        plan |= {f"blocks.{number}.{name}": ColwiseParallel() for name in ("q", "k", "v", "up")}
        plan |= {f"blocks.{number}.{name}": RowwiseParallel() for name in ("out", "down")}
    if module.tokens is not None:
        plan["tokens"] = RowwiseParallel(input_layouts=Replicate())
    if module.head is not None:
        plan["head"] = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(module, mesh["tensor"], plan)
    for block in (*module.blocks, module):
        fully_shard(block, mesh=mesh["shard"], reshard_after_forward=False)
    group = mesh.get_group("pipeline")
    count = 64 // shard // microbatch
    stage = PipelineStage(module, place, pipeline, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, count, loss_fn=loss_of_logits)
    optimizer, found, share = optimizer_for(module), [], 64 // shard
    first = mesh.get_local_rank("shard") * share
    for step in range(num_steps):
        tokens, targets = (each[first : first + share].contiguous() for each in Addition().batch(step, 64))
        losses: list[Tensor] = []
        ends: dict[str, Any] = {"target": targets, "losses": losses} if place == pipeline - 1 else {}
        schedule.step(*([tokens] if place == 0 else []), **ends)
        warm_up(optimizer, step, num_steps)
        _tie(module, group)
        _clip(module, group)
        optimizer.step()
        optimizer.zero_grad()
        found += [torch.stack(losses).mean().item()] if losses else []
    return found


def _tie(module: _Stage, group: dist.ProcessGroup) -> None:
    """Add up what both uses of the embedding contribute; torch leaves that to the program. There are two stages."""
    if dist.get_world_size(group) == 2:
        layer: Any = module.tokens or module.head
        dist.all_reduce(layer.weight.grad.to_local(), group=group)


def _clip(module: _Stage, group: dist.ProcessGroup, max_norm: float = 1.0) -> None:
    """Clip by the norm of all stages: a DTensor knows along which axes it is cut; a tied weight counts once."""
    of_stage = dist.get_world_size() // dist.get_world_size(group)
    squares = torch.zeros(())
    gradients: dict[str, Any] = {name: each.grad for name, each in module.named_parameters()}
    for name, gradient in gradients.items():
        sizes = zip(gradient.placements, gradient.device_mesh.shape, strict=True)
        pieces = math.prod(size for placement, size in sizes if not placement.is_replicate())
        if not name.startswith("head"):
            squares += gradient.to_local().square().sum() * pieces / of_stage
    dist.all_reduce(squares)
    for gradient in gradients.values():
        gradient.to_local().mul_((max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0))


@dataclass(frozen=True)
class StepTimes:
    """What a step takes once a program is under way: means over ranks and steps.

    Attributes:
        begins_ms: From the start of the program to the first microbatch that leaves the first stage.
        step_ms: Of a step: the next three, and moments between them.
        operators_ms: Of operators.
        exposed_ms: Communication under which nothing was computed.
        waiting_ms: In calls in which nothing moved.
        hidden_ms: Communication under which something was computed.
        operators: How many.
        calls: Collectives.
        call_mb: Of their tensors.
        message_mb: Of what went to other stages.
    """

    begins_ms: float
    step_ms: float
    operators_ms: float
    exposed_ms: float
    waiting_ms: float
    hidden_ms: float
    operators: float
    calls: float
    call_mb: float
    message_mb: float


def step_times(timeline: Timeline, num_microbatches: int = 2) -> StepTimes:
    """Return what a step takes in all but the first and the last one.

    Args:
        timeline: Of three steps or more; rank 0 is on the first stage, and sends activations of one size.
        num_microbatches: That it sends on in a step.

    Raises:
        ConfigError: If there are fewer steps.
    """
    sends = (timeline.rank == 0) & (timeline.lane == Lane.COMMUNICATION) & of_kind(timeline, *SENDS)
    sends &= timeline.bytes == timeline.bytes[sends].max(initial=0)
    begins = np.sort(timeline.start_ns[sends])[::num_microbatches]
    if len(begins) < 3:
        raise ConfigError(f"rank 0 sends activations in {len(begins)} steps; a step in the middle takes 3")
    steps = len(begins) - 2
    there = timeline.select((timeline.start_ns >= begins[1]) & (timeline.start_ns < begins[-1]))
    times, point_to_point = lane_times(there), of_kind(there, *SENDS, *RECEIVES)
    calls, ranks = is_call(there), steps * timeline.num_ranks
    moved, hidden = times.communication_ns.sum(), times.hidden_ns.sum()
    collectives, sent = calls & ~point_to_point, calls & of_kind(there, *SENDS)
    return StepTimes(
        begins_ms=float(begins[0] - timeline.start_ns.min()) / 1e6,
        step_ms=float(begins[-1] - begins[1]) / steps / 1e6,
        operators_ms=float(times.compute_ns.sum()) / ranks / 1e6,
        exposed_ms=float(moved - hidden) / ranks / 1e6,
        waiting_ms=float(times.blocked_ns.sum()) / ranks / 1e6,
        hidden_ms=float(hidden) / ranks / 1e6,
        operators=float((there.lane == Lane.COMPUTE).sum()) / ranks,
        calls=float(collectives.sum()) / ranks,
        call_mb=float(there.bytes[collectives].sum()) / ranks / 1e6,
        message_mb=float(there.bytes[sent].sum()) / ranks / 1e6,
    )


def step_beside(yours: Timeline, torchs: Timeline) -> tuple[float, list[str]]:
    """Return by how many percent torch's step takes longer than yours, and the lines of a table that says why."""
    times = step_times(yours), step_times(torchs)
    longer = round(100 * (times[1].step_ms / times[0].step_ms - 1), 1)
    rows = [f"{'of each rank':38}{'yours':>8}{'torch':>8}"]
    for words, field, form in _ROWS:
        rows.append(f"{words:38}" + "".join(f"{getattr(each, field):8{form}}" for each in times))
    return longer, rows


_ROWS = (
    ("until the first message, ms", "begins_ms", ".2f"), ("a step, ms", "step_ms", ".2f"),
    ("  operators, ms", "operators_ms", ".2f"), ("  communication that nothing hides, ms", "exposed_ms", ".2f"),
    ("  waiting, ms", "waiting_ms", ".2f"), ("communication that is hidden, ms", "hidden_ms", ".2f"),
    ("operators", "operators", ".0f"), ("collectives", "calls", ".0f"), ("  their tensors, MB", "call_mb", ".2f"),
    ("messages to another stage, MB", "message_mb", ".2f"),
)  # fmt: skip
