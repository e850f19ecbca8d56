"""What a rank holds during a step with one layout: the fullest stage, and of what."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.planner.costs import UNGATED_BYTES, MemoryCosts
from labkit.planner.layout import Layout, Stage
from labkit.planner.model import Model


@dataclass(frozen=True)
class StepMemory:
    """Bytes that the fullest rank holds at its fullest moment; the parts add up to ``total``.

    Attributes:
        parameters: Parameters in bfloat16.
        gradients: Gradients in float32, in which microbatches are added up.
        optimizer: The optimizer's two moments and its float32 copy of the parameters.
        activations: What forward keeps for backward, of all microbatches in flight.
        logits: The head's scores with their softmax and gradient.
        other: The process itself, the communicators' buffers, the optimizer's scratch.
        stage: Which stage this is.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    other: float
    stage: int

    @property
    def total(self) -> float:
        """Bytes in all."""
        return math.fsum((self.parameters, self.gradients, self.optimizer, self.activations, self.logits, self.other))


def step_memory(model: Model, layout: Layout, costs: MemoryCosts) -> StepMemory:
    """Return what the fullest stage holds.

    Stage s of p has p - s microbatches in flight (Narayanan et al. 2021, section 2.2.1), so the first stage is mostly
    the fullest; the last holds the logits.
    """
    first: dict[Stage, int] = {}  # of stages that are alike, the first has most in flight
    for number, stage in enumerate(layout.stages(model)):
        first.setdefault(stage, number)
    held = (_held(model, layout, costs, stage, number) for stage, number in first.items())
    return max(held, key=lambda one: one.total)


def _held(model: Model, layout: Layout, costs: MemoryCosts, stage: Stage, number: int) -> StepMemory:
    mine = stage.parameters(model, layout.tensor)
    tokens = layout.microbatch * model.sequence / layout.context
    of_token = costs.hidden_bytes * model.hidden + costs.kv_bytes * model.hidden * model.kv_heads / model.heads
    of_token += costs.inner_bytes * model.intermediate * (1.0 if model.gated else UNGATED_BYTES)
    per_layer = tokens * of_token / layout.tensor
    in_flight: float = min(layout.accumulation, layout.pipeline - number)
    if layout.chunks > 1:  # Narayanan et al. 2021, section 2.2.2; a stage's chunks have 1 / chunks of its layers
        ahead = 2 * (layout.pipeline - number - 1) + (layout.chunks - 1) * layout.pipeline
        in_flight = min(layout.accumulation, (ahead + 1) / layout.chunks)
    logits = costs.logit_bytes * tokens * model.vocabulary / layout.tensor if stage.last else 0.0
    if layout.recompute == "full":
        # Each layer keeps its input; one that is computed again holds everything, once the logits are gone.
        inputs = in_flight * stage.layers * 2 * tokens * model.hidden / layout.tensor
        activations = inputs + max(0.0, per_layer - logits)
    else:
        activations = in_flight * stage.layers * per_layer
    updated = mine / (layout.replicas if layout.sharding else 1)
    kept = mine / (layout.replicas if layout.sharding == 3 else 1)
    # FSDP holds what it computes with and what comes next: two layers, or a layer and the head.
    most = max(model.layer_parameters, model.head_parameters if stage.first or stage.last else 0)
    gathered = 2 * (model.layer_parameters + most) / layout.tensor if layout.sharding == 3 else 0.0
    scratch = costs.scratch_bytes * (updated if layout.sharding > 1 else mine)
    # The optimizer's scratch is needed when activations and logits are gone.
    return StepMemory(
        parameters=2 * kept + gathered,
        gradients=4 * (mine / layout.replicas if layout.sharding > 1 else mine),
        optimizer=costs.optimizer_bytes * updated,
        activations=activations,
        logits=logits,
        other=costs.process_bytes + max(0.0, scratch - activations - logits),
        stage=number,
    )
