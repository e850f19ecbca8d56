"""What a rank holds during a step with one layout: the fullest stage, and of what."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.planner.costs import MemoryCosts
from labkit.planner.layout import Layout, Stage, stages
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
    parts = stages(model, layout.pipeline)
    return max(
        (_held(model, layout, costs, stage, number) for number, stage in enumerate(parts)), key=lambda held: held.total
    )


def _held(model: Model, layout: Layout, costs: MemoryCosts, stage: Stage, number: int) -> StepMemory:
    mine = stage.parameters(model, layout.tensor)
    tokens = layout.microbatch * model.sequence
    per_layer = tokens * (costs.hidden_bytes * model.hidden + costs.inner_bytes * model.intermediate) / layout.tensor
    in_flight = min(layout.accumulation, layout.pipeline - number)
    if layout.recompute == "full":
        # Each layer keeps its input; the layer that is computed again holds everything once.
        activations = in_flight * stage.layers * 2 * tokens * model.hidden / layout.tensor + per_layer
    else:
        activations = in_flight * stage.layers * per_layer
    logits = costs.logit_bytes * tokens * model.vocabulary / layout.tensor if stage.last else 0.0
    updated = mine / (layout.data if layout.zero else 1)
    kept = mine / (layout.data if layout.zero == 3 else 1)
    gathered = 2 * 2 * model.layer_parameters / layout.tensor if layout.zero == 3 else 0.0
    scratch = costs.scratch_bytes * mine if layout.zero < 3 else 0.0
    # The optimizer's scratch is needed when activations and logits are gone.
    return StepMemory(
        parameters=2 * kept + gathered,
        gradients=4 * (mine / layout.data if layout.zero > 1 else mine),
        optimizer=costs.optimizer_bytes * updated,
        activations=activations,
        logits=logits,
        other=costs.process_bytes + max(0.0, scratch - activations - logits),
        stage=number,
    )
