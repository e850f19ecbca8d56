"""How long a training step takes with one layout, and what the time goes to."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from labkit.hardware import Device, Link
from labkit.planner.costs import ATTENTION_SHARE, BUCKET_BYTES, PRODUCTS, TENSOR_COLLECTIVES, Costs
from labkit.planner.layout import Layout, Stage, stages
from labkit.planner.model import Model


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
        tensor: Exposed traffic of tensor parallelism.
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
    stages once (Narayanan et al. 2021, section 2.2.1).
    """
    parts = stages(model, layout.pipeline)
    layer = _layer(model, layout, machines, costs)
    head = _head(model, layout, machines, costs)
    each = [stage.layers * layer.seconds + (head.seconds if stage.last else 0.0) for stage in parts]
    busiest = max(range(len(parts)), key=each.__getitem__)
    exchange = _exchange(model, layout, machines, costs)
    count, stage = layout.accumulation, parts[busiest]
    heads = 1.0 if stage.last else 0.0

    def spent(what: str) -> float:
        return count * (stage.layers * float(getattr(layer, what)) + heads * float(getattr(head, what)))

    return StepTime(
        products=spent("products"),
        elementwise=spent("elementwise"),
        host=spent("host"),
        tensor=spent("tensor"),
        bubble=math.fsum(each) - each[busiest] + exchange * (layout.pipeline - 1),
        exchange=count * exchange,
        gradients=_gradients(model, layout, machines, costs, parts, spent_on_layers=count * each[busiest]),
        optimizer=_optimizer(model, layout, machines, costs, parts),
        retries=costs.retry_s * min(2, layout.pipeline - 1) * (count + layout.pipeline - 1) if tight else 0.0,
    )


def _passes(layout: Layout) -> float:
    """Return how much forward and backward are, in forwards."""
    return 4.0 if layout.recompute == "full" else 3.0


def _layer(model: Model, layout: Layout, machines: Machines, costs: Costs) -> _Layer:
    device, tokens = machines.device, layout.microbatch * model.sequence
    rate = device.flops_per_second("bfloat16") * device.compute_share * costs.product_share
    more = _passes(layout) / 3
    # A causal kernel computes half of the scores: 2 x tokens x sequence x hidden forward, 2.5 times that backward.
    scores = 7 * tokens * model.sequence * model.hidden / layout.tensor
    share = ATTENTION_SHARE.get(device.name, ATTENTION_SHARE[""])
    products = 6 * tokens * model.layer_parameters / layout.tensor / rate + PRODUCTS * costs.product_s
    products = more * (products + scores / (device.flops_per_second("bfloat16") * share))
    moved = costs.hidden_passes * model.hidden * (1 + 1 / layout.tensor) / 2 + (
        costs.inner_passes * model.intermediate / layout.tensor
    )
    elementwise = more * 2 * tokens * moved / (device.memory_bytes_per_second * device.memory_share)
    on_device = products + elementwise
    tensor, latency, to_issue = 0.0, 0.0, costs.issue_s * more
    if layout.tensor > 1:
        steps = TENSOR_COLLECTIVES * more * (layout.tensor - 1)
        num_bytes = TENSOR_COLLECTIVES * more * tokens * model.hidden * 2 * (layout.tensor - 1) / layout.tensor
        if layout.tensor > machines.node_size:
            tensor = num_bytes / (machines.network_bytes_per_second * machines.node_size)
            latency = steps * costs.tensor_step_s
        else:
            tensor = costs.tensor_exposed * num_bytes / machines.link.payload_bytes_per_second
        if layout.pipeline > 1 and layout.world_size > machines.node_size:
            to_issue += steps * costs.beside_pipeline_s
    return _Layer(products, elementwise, max(0.0, to_issue - on_device - tensor), tensor + latency)


def _head(model: Model, layout: Layout, machines: Machines, costs: Costs) -> _Layer:
    device, tokens = machines.device, layout.microbatch * model.sequence
    rate = device.flops_per_second("bfloat16") * device.compute_share * costs.product_share
    products = 6 * tokens * model.head_parameters / layout.tensor / rate
    moved = costs.logit_bytes * tokens * model.vocabulary / layout.tensor
    return _Layer(products, moved / (device.memory_bytes_per_second * device.memory_share), 0.0, 0.0)


def _exchange(model: Model, layout: Layout, machines: Machines, costs: Costs) -> float:
    if layout.pipeline == 1:
        return 0.0
    num_bytes = 2 * 2 * layout.microbatch * model.sequence * model.hidden / layout.tensor
    across = layout.world_size > machines.node_size
    rate = machines.network_bytes_per_second if across else machines.link.payload_bytes_per_second
    return costs.stage_s + num_bytes / rate


def _gradients(
    model: Model,
    layout: Layout,
    machines: Machines,
    costs: Costs,
    parts: tuple[Stage, ...],
    spent_on_layers: float,
) -> float:
    """Return what data parallelism exposes: gradients in float32 once a step, parameters in bfloat16 with ZeRO."""
    if layout.data == 1:
        return 0.0
    largest = max(stage.parameters(model, layout.tensor) for stage in parts)
    local = min(layout.data, max(1, machines.node_size // layout.tensor))
    share = (layout.data - 1) / layout.data
    rate = machines.link.payload_bytes_per_second
    if layout.data > local:
        # The groups of a node share its ports.
        sharing = min(layout.tensor, machines.node_size)
        rate = min(rate, machines.network_bytes_per_second * costs.network_share * machines.node_size / sharing)
    steps = layout.data - 1
    if layout.zero == 3:
        num_bytes = 3 * 2 * largest * share * layout.accumulation
        took = num_bytes / rate + 3 * layout.accumulation * model.layers * steps * costs.gradient_step_s
        return max(0.0, took - spent_on_layers * (1 - 1 / max(2, model.layers)))
    num_buckets = math.ceil(4 * largest / BUCKET_BYTES)
    reduced = 2 * 4 * largest * share / rate + 2 * num_buckets * steps * costs.gradient_step_s
    if layout.zero:
        gathered = 2 * largest * share / rate + 9 * max(stage.layers for stage in parts) * steps * costs.gradient_step_s
        return reduced * (0.5 if layout.zero == 2 else 1.0) + gathered
    return reduced


def _optimizer(model: Model, layout: Layout, machines: Machines, costs: Costs, parts: tuple[Stage, ...]) -> float:
    mine = max(stage.parameters(model, layout.tensor) for stage in parts) / (layout.data if layout.zero else 1)
    rate = machines.device.memory_bytes_per_second * machines.device.memory_share
    return costs.optimizer_passes * mine / rate + costs.step_s
