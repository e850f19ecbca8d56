"""The course's GPT on a mesh: this rank's stage and pieces of it, built from parts that a learner wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from labkit.launch.rank import span
from labkit.models import GPT, VOCABULARY, Block
from labkit.plans.mesh_weights import CUT, WHOLE, Weight

__all__ = [
    "HybridStage",
    "Weight",
    "adamw_over",
    "group_of_ends",
    "mean_losses",
    "one_f_one_b",
    "played_step",
    "warm_up",
]


class HybridStage(nn.Module):
    """This rank's stage of a GPT: its layers along "pipeline", its pieces of them along "tensor".

    Args:
        gpt: The whole model, the same on every rank.
        mesh: With sizes, place and groups by axis.
        parts: ParallelMLP, ParallelAttention, embed, cross_entropy and enter, as lesson 12 builds them.
    """

    def __init__(self, gpt: GPT, mesh: Any, parts: Any) -> None:
        super().__init__()
        self.parts, self.group = parts, mesh.groups["tensor"]
        stage, count = mesh.place["pipeline"], mesh.sizes["pipeline"]
        if len(gpt.blocks) % count:
            raise ValueError(f"{len(gpt.blocks)} blocks do not divide into {count} equal stages")
        each = len(gpt.blocks) // count
        self.is_first, self.is_last = stage == 0, stage == count - 1
        self.blocks = nn.ModuleList(
            _HybridBlock(block, parts, self.group)  # type: ignore[arg-type]
            for block in gpt.blocks[stage * each : (stage + 1) * each]
        )
        if self.is_first or self.is_last:
            size, place = dist.get_world_size(self.group), dist.get_rank(self.group)
            self.rows = nn.Parameter(gpt.tokens.weight.detach().tensor_split(size)[place].clone())
        if self.is_first:
            self.positions = gpt.positions
        if self.is_last:
            self.norm = gpt.norm

    def forward(self, x: Tensor) -> Tensor:
        """Return what the next stage reads; the last stage returns the logits of this rank's part of the vocabulary."""
        if self.is_first:
            x = self.parts.embed(x, self.rows, len(VOCABULARY), self.group) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.parts.enter(self.norm(x), self.group), self.rows) if self.is_last else x

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of a microbatch; the last stage calls it."""
        found: Tensor = self.parts.cross_entropy(logits.flatten(0, 1), targets.flatten(), len(VOCABULARY), self.group)
        return found

    def weights(self) -> list[Weight]:
        """Return every parameter, with who else holds it."""
        rows = getattr(self, "rows", None)
        blocks: list[Any] = list(self.blocks)
        whole = {each for block in blocks for each in block.whole}
        found = []
        for name, parameter in self.named_parameters():
            is_whole = parameter in whole or "norm" in name or "positions" in name
            tied = parameter is rows
            found.append(Weight(parameter, CUT if tied or not is_whole else WHOLE, tied))
        return found


class _HybridBlock(nn.Module):
    def __init__(self, block: Block, parts: Any, group: Any) -> None:
        super().__init__()
        self.norm1, self.norm2 = block.norm1, block.norm2
        last = (block.out.bias, block.down.bias)
        before = [each.detach().clone() for each in last]
        with torch.no_grad():
            for each in last:
                each.fill_(1.0)  # marked, to know it again among the parts' parameters
        self.attention = parts.ParallelAttention(block.qkv, block.out, block.num_heads, group)
        self.mlp = parts.ParallelMLP(block.up, block.down, group)
        self.whole: list[nn.Parameter] = []
        with torch.no_grad():
            for part, bias in zip((self.attention, self.mlp), before, strict=True):
                for parameter in part.parameters():
                    if parameter.shape == bias.shape and bool((parameter == 1.0).all()):
                        self.whole.append(parameter)
                        parameter.copy_(bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


def adamw_over(shards: Sequence[nn.Parameter], weights: Sequence[Weight], lr: float = 3e-3) -> torch.optim.AdamW:
    """Return AdamW over flat shards of weights; matrices decay, biases and norms do not."""
    pairs = list(zip(shards, weights, strict=True))
    groups = [
        {"params": [shard for shard, weight in pairs if (weight.parameter.dim() >= 2) == decays], "weight_decay": decay}
        for decays, decay in ((True, 0.1), (False, 0.0))
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def warm_up(optimizer: torch.optim.Optimizer, step: int, num_steps: int, lr: float = 3e-3) -> None:
    """Set the learning rate of a step, which rises over the first tenth of them."""
    for group in optimizer.param_groups:
        group["lr"] = lr * min(1.0, 10 * (step + 1) / num_steps)


def one_f_one_b(run_schedule: Any, num_stages: int, num_microbatches: int) -> list[list[Any]]:
    """Return the 1F1B schedule of every stage, messages included, in the records of lesson 08.

    Args:
        run_schedule: What carries schedules out; the records are those that it knows, of the module it stands in.
        num_stages: How many stages.
        num_microbatches: How many microbatches.
    """
    record = run_schedule.__globals__

    def forward(stage: int, m: int) -> list[Any]:
        come = [record["Recv"](stage - 1, m)] if stage else []
        go = [record["Send"](stage + 1, m)] if stage + 1 < num_stages else []
        return [*come, record["Forward"](m), *go]

    def backward(stage: int, m: int) -> list[Any]:
        come = [record["RecvGrad"](stage + 1, m)] if stage + 1 < num_stages else []
        go = [record["SendGrad"](stage - 1, m)] if stage else []
        return [*come, record["Backward"](m), *go]

    schedules = []
    for stage in range(num_stages):
        ahead = min(num_stages - stage, num_microbatches)
        records = [each for m in range(ahead) for each in forward(stage, m)]
        for m in range(num_microbatches):
            records += backward(stage, m)
            records += forward(stage, m + ahead) if m + ahead < num_microbatches else []
        schedules.append(records)
    return schedules


def group_of_ends(pipelines: Sequence[Sequence[int]]) -> Any:
    """Return the process group of the first and the last stage; None on other ranks, and where there is one stage.

    Args:
        pipelines: For each rank of the world the ranks of its pipeline, first stage first; every rank calls this.
    """
    found = None
    for first, last in sorted({(ranks[0], ranks[-1]) for ranks in pipelines}):
        if first != last:
            group = dist.new_group([first, last])
            found = group if dist.get_rank() in (first, last) else found
    return found


def mean_losses(results: Sequence[Sequence[float]]) -> list[float]:
    """Return the loss of each step, the mean over the ranks that know it."""
    known = [losses for losses in results if losses]
    return [round(sum(each) / len(each), 4) for each in zip(*known, strict=True)]


def played_step(mesh: Any, *, layers: int = 6, microbatches: int = 2, width: int = 4096, tokens: int = 4096) -> None:
    """Play a step of two stages without computing it: microbatches forward, then backward, then the gradients.

    Args:
        mesh: With place and groups along "data", "pipeline" and "tensor"; two ranks along "pipeline".
        layers: Of each stage; each sums an activation over "tensor", in both directions.
        microbatches: How many.
        width: Of an activation.
        tokens: Of a microbatch.
    """
    weights = [torch.empty(width, width // 8, device="meta", dtype=torch.bfloat16) for _ in range(layers)]
    activation = torch.empty(tokens, width, device="meta", dtype=torch.bfloat16)
    stage, pipeline = mesh.place["pipeline"], mesh.groups["pipeline"]
    dist.barrier()
    for name, first, products in (("F", 0, 1), ("B", 1, 2)):  # which stage begins; backward has two products
        for microbatch in range(microbatches):
            with span(f"{name}{microbatch}"):
                if stage != first:
                    dist.recv(activation, group=pipeline, group_src=first)
                for weight in weights:
                    for _ in range(products):
                        activation @ weight
                    dist.all_reduce(activation, group=mesh.groups["tensor"])
                if stage == first:
                    dist.send(activation, group=pipeline, group_dst=1 - first)
    for weight in weights:
        dist.all_reduce(weight, group=mesh.groups["data"])
