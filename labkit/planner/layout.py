"""How a step is split: data, pipeline and tensor parallel, microbatches, and which layers a stage gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from labkit.errors import ConfigError
from labkit.planner.model import Model
from labkit.words import plural

RECOMPUTE = ("none", "full")
_ROUNDING = 1e-3  # a stage that lacks less of its share is full


@dataclass(frozen=True, order=True)
class Layout:
    """One way to split a training step.

    Ranks are numbered as Megatron-LM and nanotron number them: tensor ranks are neighbours, then data, then pipeline.

    Attributes:
        data: Replicas that each take a share of the batch.
        pipeline: Stages.
        tensor: Ranks that split each layer.
        microbatch: Sequences that pass through the model at a time.
        accumulation: Microbatches of a step and replica.
        zero: 0 keeps everything on each replica, 1 shards the optimizer, 2 also gradients, 3 also parameters (FSDP).
        recompute: "none", or "full": only each layer's input is kept, the rest is computed again.
        chunks: Pieces of each stage in an interleaved pipeline, 1 for 1F1B.
        even: Whether stages have equal numbers of layers, and not equal work.
        context: Ranks that share a sequence's tokens, between tensor ranks and replicas; known in tables alone.
    """

    data: int
    pipeline: int
    tensor: int
    microbatch: int
    accumulation: int
    zero: int = 0
    recompute: str = "none"
    chunks: int = 1
    even: bool = False
    context: int = 1

    def __post_init__(self) -> None:
        counts = (self.data, self.pipeline, self.tensor, self.microbatch, self.accumulation, self.chunks, self.context)
        if min(counts) < 1:
            raise ConfigError(f"a layout's numbers are at least 1, got {counts}")
        if self.zero not in (0, 1, 2, 3):
            raise ConfigError(f"zero is {self.zero}; it is 0, 1, 2 or 3")
        if self.recompute not in RECOMPUTE:
            raise ConfigError(f"recompute is {self.recompute!r}; it is {' or '.join(map(repr, RECOMPUTE))}")

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.replicas * self.pipeline * self.tensor

    @property
    def replicas(self) -> int:
        """Ranks that hold the same piece of the model: those of one sequence are such, too."""
        return self.data * self.context

    @property
    def batch(self) -> int:
        """Sequences of one step."""
        return self.data * self.microbatch * self.accumulation

    @property
    def sharding(self) -> int:
        """The stage of ZeRO that a step comes to.

        In a pipeline, parameters that were gathered stay until the step's last microbatch, and gradients are summed
        there, as Llama 3's and torchtitan's are; that is what ZeRO 1 holds and moves.
        """
        return min(self.zero, 1) if self.pipeline > 1 else self.zero

    def stages(self, model: Model) -> tuple[Stage, ...]:
        """Return what each stage of a model holds."""
        return stages(model, self.pipeline, self.even)

    def __str__(self) -> str:
        parts = [f"data {self.data}", f"pipeline {self.pipeline}", f"tensor {self.tensor}"]
        parts += [f"microbatch {self.microbatch} x {self.accumulation}", f"ZeRO {self.zero}"]
        parts += ["recompute"] if self.recompute == "full" else []
        parts += [f"context {self.context}"] if self.context > 1 else []
        return ", ".join(parts + ([f"{self.chunks} chunks a stage"] if self.chunks > 1 else []))


@dataclass(frozen=True)
class Stage:
    """What one stage of a pipeline holds.

    Attributes:
        layers: How many.
        first: Whether the embedding is here.
        last: Whether the head is here.
        empty: Whether nothing is here, not even the loss.
    """

    layers: int
    first: bool
    last: bool
    empty: bool = False

    def parameters(self, model: Model, tensor: int) -> float:
        """Return the parameters of one of its tensor ranks."""
        ends = int(self.first) + int(self.last) - (1 if self.first and self.last and model.tied else 0)
        return (self.layers * model.layer_parameters + ends * model.head_parameters) / tensor


@lru_cache(maxsize=4096)
def stages(model: Model, pipeline: int, even: bool = False) -> tuple[Stage, ...]:
    """Return what each stage holds: layers and then the head, until a stage passes its share of the work.

    A stage's share is an equal part of all products; the head counts as what its product costs beside a layer's, so the
    last stage gets fewer layers. nanotron cuts so (``build_model`` in ``models/base.py``). The loss follows the head;
    where the head fills its stage, it stands alone on the next.

    Even stages have as many layers each, as Megatron-LM's; where stages do not divide the layers, embedding and head
    count as one each, as torchtitan's and Llama 3's do.
    """
    if even:
        return _even_stages(model, pipeline)
    costs = [float(model.layer_parameters)] * model.layers + [float(model.head_parameters)]
    share = math.fsum(costs) / pipeline
    counts, at, head, done = [0] * pipeline, 0, 0, 0.0
    for index, cost in enumerate(costs):
        done += cost
        if index < model.layers:
            counts[at] += 1
        else:
            head = at
        if at < pipeline - 1 and done >= share * (at + 1) * (1 - _ROUNDING):
            at += 1
    return tuple(
        Stage(count, first=number == 0, last=number == head, empty=number > at) for number, count in enumerate(counts)
    )


def _even_stages(model: Model, pipeline: int) -> tuple[Stage, ...]:
    each, more = divmod(model.layers, pipeline)
    counts = [each] * pipeline
    if more:
        each, more = divmod(model.layers + 2, pipeline)
        counts = [each + (number < more) for number in range(pipeline)]
        counts[0] -= 1
        counts[-1] -= 1
    last = pipeline - 1
    return tuple(
        Stage(max(count, 0), number == 0, number == last, empty=count < (0 if number in (0, last) else 1))
        for number, count in enumerate(counts)
    )


@lru_cache(maxsize=4096)
def largest_stage(model: Model, layout: Layout) -> float:
    """Return the parameters of the stage that has most, all of its tensor ranks together."""
    return max(stage.parameters(model, 1) for stage in layout.stages(model))


def problem(model: Model, layout: Layout) -> str:
    """Return why a layout cannot run whatever the memory, "" where it can."""
    if model.heads % layout.tensor or model.intermediate % layout.tensor:
        return f"tensor {layout.tensor} does not divide {model.heads} heads and an MLP of {model.intermediate}"
    if model.sequence % layout.context:
        return f"context {layout.context} does not divide a sequence of {model.sequence}"
    empty = _empty(model, layout.pipeline, layout.even)
    if layout.chunks > 1 and (layout.pipeline == 1 or layout.accumulation % layout.pipeline):
        return (
            f"{layout.chunks} chunks need a pipeline whose stages divide the microbatches: "
            f"{layout.accumulation} microbatches, {layout.pipeline} stages"
        )
    if empty:
        return f"pipeline {layout.pipeline} leaves {plural(empty, 'stage')} empty ({model.layers} layers)"
    return ""


def layouts(
    model: Model,
    world_size: int,
    batch: int,
    *,
    node_size: int = 8,
    zeros: Sequence[int] = (0, 1, 2, 3),
    recomputes: Sequence[str] = RECOMPUTE,
    largest_tensor: int | None = None,
    even: bool = False,
) -> list[Layout]:
    """Return every layout of so many ranks that divides the model and the batch.

    Args:
        model: What is trained.
        world_size: Ranks.
        batch: Sequences of a step.
        node_size: Ranks of a node.
        zeros: Stages of ZeRO that may be used; those above 1 go without a pipeline, because a pipeline would gather and
            scatter in every microbatch.
        recomputes: What may be computed again.
        largest_tensor: Most ranks that split a layer, by default a node's.
        even: Whether stages have equal numbers of layers.
    """
    found = []
    for tensor in _divisors(world_size):
        if tensor > (largest_tensor or node_size) or model.heads % tensor or model.intermediate % tensor:
            continue
        for pipeline in _divisors(world_size // tensor):
            if _empty(model, pipeline, even):
                continue
            data = world_size // tensor // pipeline
            if batch % data:
                continue
            for microbatch in _divisors(batch // data):
                if microbatch & (microbatch - 1):
                    continue
                for zero in zeros:
                    if (zero and data == 1) or (zero > 1 and pipeline > 1):
                        continue
                    for recompute in recomputes:
                        count = batch // data // microbatch
                        found.append(Layout(data, pipeline, tensor, microbatch, count, zero, recompute, even=even))
    return found


def _empty(model: Model, pipeline: int, even: bool) -> int:
    return sum(stage.empty for stage in stages(model, pipeline, even))


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
