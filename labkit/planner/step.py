"""How long a training step takes with one layout, and what the time goes to."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

from labkit.hardware import Device, Link
from labkit.planner.costs import PRODUCTS, UNGATED_PASSES, Costs
from labkit.planner.layout import Layout, Stage, largest_stage
from labkit.planner.model import Model
from labkit.planner.products import head_products, layer_products


@dataclass(frozen=True)
class Machines:
    """What the ranks run on.

    Attributes:
        device: The accelerator.
        link: Between the accelerators of a node.
        nic: A node's ports to the network, one for each accelerator.
        node_size: Accelerators of a node.
        oversubscription: How many times the ports of the nodes exceed what the network's core carries.
    """

    device: Device
    link: Link
    nic: Link
    node_size: int = 8
    oversubscription: float = 1.0

    @property
    def network_bytes_per_second(self) -> float:
        """What one accelerator's port carries when all are busy."""
        return self.nic.payload_bytes_per_second / self.oversubscription


@dataclass(frozen=True)
class StepTime:
    """Where a step's seconds go; the parts add up to ``total``.

    Attributes:
        products: Products and attention on the busiest stage.
        elementwise: Its elementwise operators, loss and softmax.
        host: What the device waits for the host to issue.
        tensor: Exposed traffic of tensor and context parallelism.
        bubble: The pipeline's ramp-up and ramp-down, and stages that wait for the busiest.
        exchange: Stages' exchanges with their neighbours.
        gradients: Exposed traffic of data parallelism (and of parameters, with ZeRO).
        optimizer: The optimizer's step, and what a step costs besides.
        retries: What the allocator's retries cost where memory is nearly full.
    """

    products: float
    elementwise: float
    host: float
    tensor: float
    bubble: float
    exchange: float
    gradients: float
    optimizer: float
    retries: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of a step."""
        return math.fsum(asdict(self).values())


@dataclass(frozen=True)
class _Layer:
    """One layer or the head, for one microbatch, forward and backward: what the device takes, and what holds it up."""

    products: float
    elementwise: float
    host: float
    tensor: float

    @property
    def seconds(self) -> float:
        return self.products + self.elementwise + self.host + self.tensor


def step_time(model: Model, layout: Layout, machines: Machines, costs: Costs, *, tight: bool = False) -> StepTime:
    """Return what a step takes, and of what.

    Args:
        model: What is trained.
        layout: How the step is split.
        machines: What it runs on.
        costs: What the program takes beyond arithmetic and bytes.
        tight: Whether memory is so full that the allocator has to retry.

    The pipeline is 1F1B with a flush: the busiest stage computes every microbatch, and the first and last wait for all
    stages once (Narayanan et al. 2021, section 2.2.1). With chunks they wait for a chunk of each, and exchange as many
    times more (section 2.2.2).
    """
    parts = layout.stages(model)
    layer = _layer(model, layout, machines, costs)
    ends = _embedding(model, layout, machines, costs), _head(model, layout, machines, costs)
    kinds = {stage: _of_stage(stage, layer, *ends) for stage in set(parts)}
    each = [kinds[stage] for stage in parts]
    took = {stage: kind.seconds for stage, kind in kinds.items()}
    waits = _waits([took[stage] for stage in parts], layout)
    count, hop = layout.accumulation, _hop(model, layout, machines)
    exchanges = [costs.stage_s + hop * _batches(number, layout) for number in range(layout.pipeline)]
    if layout.pipeline == 1:
        exchanges = [0.0]
    busiest = max(
        range(layout.pipeline),
        key=lambda number: count * (took[parts[number]] + layout.chunks * exchanges[number]) + waits[number],
    )
    spent = each[busiest]
    return StepTime(
        products=count * spent.products,
        elementwise=count * spent.elementwise,
        host=count * spent.host,
        tensor=count * spent.tensor,
        bubble=waits[busiest] / layout.chunks + (costs.stage_s + 2 * hop) * (layout.pipeline - 1),
        exchange=count * exchanges[busiest] * layout.chunks,
        gradients=_gradients(model, layout, machines, costs, parts, spent_on_layers=count * spent.seconds),
        optimizer=_optimizer(model, layout, machines, costs),
        retries=costs.retry_s * min(2, layout.pipeline - 1) * (count + layout.pipeline - 1) if tight else 0.0,
    )


def _of_stage(stage: Stage, layer: _Layer, embedding: _Layer, head: _Layer) -> _Layer:
    """Return what a stage takes for one microbatch."""
    pieces = [(stage.layers, layer), (int(stage.first), embedding), (int(stage.last), head)]
    return _Layer(*(math.fsum(count * getattr(piece, part.name) for count, piece in pieces) for part in fields(_Layer)))


def _waits(each: list[float], layout: Layout) -> list[float]:
    """Return how long each stage of a 1F1B pipeline waits for others in a step, if it is the slowest.

    It waits for the stages before it at both ends of the step. A microbatch comes back from the stages behind it after
    a while; the stage has as many others in flight as there are stages behind, which it computes forward meanwhile at
    the beginning, and backward at the end. With fewer microbatches than that all are in flight at once, and come back
    as fast as the slowest stage behind lets them.
    """
    found, before, whole, in_flight = [], 0.0, math.fsum(each), len(each)
    slowest = 0.0
    slowest_behind: list[float] = []
    for seconds in reversed(each):
        slowest_behind.append(slowest)
        slowest = max(slowest, seconds)
    for seconds, slow in zip(each, reversed(slowest_behind), strict=True):
        behind, in_flight = max(0.0, whole - before - seconds), in_flight - 1
        forward = seconds / _passes(layout)
        backward, more = seconds - forward, layout.accumulation - 1
        if more <= in_flight:
            waits = max(behind - more * min(forward, backward), behind + more * (slow - seconds), 0.0)
        else:
            waits = max(0.0, behind - in_flight * forward) + max(0.0, behind - in_flight * backward)
        found.append(before + waits)
        before += seconds
    return found


def _batches(number: int, layout: Layout) -> int:
    """Return how often a stage exchanges for each microbatch; what it sends and receives then passes at once."""
    return 1 if number in (0, layout.pipeline - 1) else 2


def _passes(layout: Layout) -> float:
    """Return how much forward and backward are, in forwards."""
    return 4.0 if layout.recompute == "full" else 3.0


def _layer(model: Model, layout: Layout, machines: Machines, costs: Costs) -> _Layer:
    device, tokens = machines.device, _tokens(model, layout)
    rate = device.flops_per_second("bfloat16") * device.compute_share * costs.product_share
    more = _passes(layout) / 3
    peak = device.flops_per_second("bfloat16")
    # A causal kernel computes half of the scores: 2 x tokens x sequence x hidden forward, 2.5 times that backward.
    scores = 7 * tokens * model.sequence * model.hidden / layout.tensor
    if costs.attention_share is None:
        attention = 2 * scores / (peak * device.compute_share)
    else:
        attention = scores / (peak * costs.attention_share.get(device.name, costs.attention_share[""]))
    if costs.by_size and device.products is not None:
        products = layer_products(model, layout, device.products, tokens)
    else:
        products = 6 * tokens * model.layer_parameters / layout.tensor / rate + PRODUCTS * costs.product_s
    products = more * (products + attention)
    cut = costs.hidden_passes * model.hidden + costs.kv_passes * model.hidden * model.kv_heads / model.heads
    cut += costs.inner_passes * model.intermediate * (1.0 if model.gated else UNGATED_PASSES)
    moved = more * 2 * tokens * (costs.whole_passes * model.hidden + cut / layout.tensor)
    elementwise = _moving(moved + _kept_up(layout, costs) * model.layer_parameters / layout.tensor, device)
    on_device = products + elementwise
    tensor, latency, to_issue = 0.0, 0.0, costs.issue_s * more
    if layout.tensor > 1:
        calls = costs.tensor_collectives * more
        steps = calls * (layout.tensor - 1)
        tensor, latency = _tensor(model, layout, machines, costs, calls)
        if layout.pipeline > 1 and layout.world_size > machines.node_size:
            to_issue += steps * costs.beside_pipeline_s
    if layout.context > 1:
        tensor += more * _context(model, layout, machines)
    return _Layer(products, elementwise, max(0.0, to_issue - on_device - tensor), tensor + latency)


def _tokens(model: Model, layout: Layout) -> float:
    """Return the tokens of a microbatch that a rank and its tensor ranks have."""
    return layout.microbatch * model.sequence / layout.context


def _context(model: Model, layout: Layout, machines: Machines) -> float:
    """Return what keys and values take that each rank of a sequence gathers, and their gradients on the way back.

    So Llama 3 does it (arXiv 2407.21783, section 3.3.2); no product hides it.
    """
    numbers = 2 * layout.microbatch * model.sequence * model.hidden * model.kv_heads / model.heads / layout.tensor
    across = layout.tensor * layout.context > machines.node_size
    rate = machines.network_bytes_per_second if across else machines.link.payload_bytes_per_second
    return 2 * 2 * numbers * (layout.context - 1) / layout.context / rate


def _tensor(model: Model, layout: Layout, machines: Machines, costs: Costs, calls: float) -> tuple[float, float]:
    """Return what bytes and latency of so many tensor-parallel gathers and scatters take."""
    steps = calls * (layout.tensor - 1)
    tokens = _tokens(model, layout)
    num_bytes = 2 * steps * tokens * model.hidden / layout.tensor
    if layout.tensor > machines.node_size:
        return num_bytes / (machines.network_bytes_per_second * machines.node_size), steps * costs.tensor_step_s
    moved = costs.tensor_exposed * num_bytes / machines.link.payload_bytes_per_second
    return moved, calls * costs.collective_s + steps * costs.inner_step_s


def _moving(num_bytes: float, device: Device) -> float:
    return num_bytes / (device.memory_bytes_per_second * device.memory_share)


def _kept_up(layout: Layout, costs: Costs) -> float:
    """Return the bytes that a microbatch moves for each parameter besides products."""
    return _sharded_calls(layout) * costs.shard_bytes if layout.sharding > 1 else costs.accumulation_bytes


def _sharded_calls(layout: Layout) -> int:
    """Return how often a microbatch gathers or scatters: ZeRO 2 gathers once, ZeRO 3 again for backward."""
    return 2 if layout.sharding == 2 else 3


def _head(model: Model, layout: Layout, machines: Machines, costs: Costs) -> _Layer:
    device, tokens = machines.device, _tokens(model, layout)
    rate = device.flops_per_second("bfloat16") * device.compute_share * costs.product_share
    products = 6 * tokens * model.head_parameters / layout.tensor / rate
    if costs.by_size and device.products is not None:
        products = head_products(model, layout, device.products, tokens)
    moved = costs.logit_bytes * tokens * model.vocabulary + _kept_up(layout, costs) * model.head_parameters
    tensor = sum(_tensor(model, layout, machines, costs, costs.head_collectives)) if layout.tensor > 1 else 0.0
    return _Layer(products, _moving(moved / layout.tensor, device), 0.0, tensor)


def _embedding(model: Model, layout: Layout, machines: Machines, costs: Costs) -> _Layer:
    moved = _kept_up(layout, costs) * model.head_parameters / layout.tensor
    tensor = sum(_tensor(model, layout, machines, costs, costs.embedding_collectives)) if layout.tensor > 1 else 0.0
    return _Layer(0.0, _moving(moved, machines.device), 0.0, tensor)


def _hop(model: Model, layout: Layout, machines: Machines) -> float:
    """Return how long an activation takes to the next stage."""
    num_bytes = 2 * _tokens(model, layout) * model.hidden / layout.tensor
    across = layout.world_size > machines.node_size
    rate = machines.network_bytes_per_second if across else machines.link.payload_bytes_per_second
    return num_bytes / rate


def _gradients(
    model: Model,
    layout: Layout,
    machines: Machines,
    costs: Costs,
    parts: tuple[Stage, ...],
    spent_on_layers: float,
) -> float:
    """Return what data parallelism exposes: gradients in float32 once a step, parameters in bfloat16 with ZeRO."""
    ranks = layout.replicas
    if ranks == 1:
        return 0.0
    largest = largest_stage(model, layout) / layout.tensor
    local = min(ranks, max(1, machines.node_size // layout.tensor))
    share = (ranks - 1) / ranks
    rate = machines.link.payload_bytes_per_second
    if ranks > local:
        # The groups of a node share its ports.
        sharing = min(layout.tensor, machines.node_size)
        rate = min(rate, machines.network_bytes_per_second * costs.network_share * machines.node_size / sharing)
    over = (ranks - 1) // local
    latency = (ranks - 1 - over) * costs.gradient_step_s + over * costs.gradient_hop_s + costs.collective_s
    most = max(stage.layers for stage in parts)
    if layout.sharding > 1:
        calls = _sharded_calls(layout) * layout.accumulation
        took = calls * (2 * largest * share / rate + most * latency)
        # Nothing covers the first gather of a microbatch and its last scatter.
        ends = 2 * 2 * (model.head_parameters + model.layer_parameters) / layout.tensor * share / rate + 2 * latency
        return max(layout.accumulation * ends, took - spent_on_layers * (1 - 1 / max(2, most)))
    num_buckets = max(1, math.ceil(4 * largest / costs.bucket_bytes))
    once = 4 * largest * share / rate + num_buckets * latency
    if layout.sharding:
        return costs.zero_passes * once + 2 * largest * share / rate + costs.gathered_tensors * most * latency
    return 2 * once


def _optimizer(model: Model, layout: Layout, machines: Machines, costs: Costs) -> float:
    mine = largest_stage(model, layout) / layout.tensor / (layout.replicas if layout.sharding else 1)
    return _moving(costs.optimizer_passes * mine, machines.device) + costs.step_s
