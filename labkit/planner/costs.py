"""What training programs take beyond datasheets: one table of constants, each with its meaning and where it comes from.

The peaks of devices and links are those of ``labkit.hardware``, which the virtual cluster goes by, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from labkit.errors import ConfigError
from labkit.words import join

#: Share of the bfloat16 peak that flash attention reaches, forward and backward; other devices as "".
ATTENTION_SHARE: Mapping[str, float] = MappingProxyType(
    {
        "a100": 0.60,  # FlashAttention-2: 50 to 73 % on A100 (Dao 2023, arXiv 2307.08691)
        "h100": 0.35,  # FlashAttention-2 on H100: 35 % (Shah et al. 2024, FlashAttention-3, arXiv 2407.08608)
        "h200": 0.35,
        "": 0.35,
    }
)


@dataclass(frozen=True)
class Costs:
    """What one program, on one kind of host, adds to arithmetic and bytes.

    Attributes:
        name: Which program this is.
        source: Where the figures come from.
        product_share: Share of what a large product reaches (``Device.compute_share``) that a layer's products reach.
        product_s: What each product costs besides, filling the device and draining it.
        attention_share: Share of the peak that attention's kernel reaches by device, "" for others, counting the scores
            that a causal mask leaves; None where all scores are priced as a product.
        by_size: Whether products reach what was measured of their size, where the device says that.
        whole_passes: Times that elementwise operators of a layer read or write a bfloat16 activation of the hidden
            size that every tensor rank has whole, forward and backward.
        hidden_passes: The same for those that tensor ranks split.
        kv_passes: The same for keys and values.
        inner_passes: The same for activations of the MLP's inner size.
        logit_bytes: Bytes that softmax and loss move for each logit, forward and backward.
        issue_s: What the host takes to issue a layer, forward and backward; the device waits where it is quicker.
        stage_s: What a stage's exchange with its neighbours costs it for each microbatch (shapes first, then tensors).
        accumulation_bytes: Bytes that adding a microbatch's gradients to those of the step moves for each parameter.
        shard_bytes: Bytes that copies into or out of sharded parameters move for each, by gather or scatter.
        collective_s: What a collective costs before its first step.
        inner_step_s: One step of a ring within a node.
        tensor_collectives: Collectives that tensor parallelism with sequence parallelism does for a layer, forward and
            backward.
        head_collectives: The same for the head.
        embedding_collectives: The same for the embedding.
        tensor_exposed: Share of tensor-parallel traffic within a node that no product hides.
        tensor_step_s: One step of a tensor-parallel ring that leaves its node.
        beside_pipeline_s: What such a step costs the host, within a node, too, while a pipeline across nodes has its
            receives in flight.
        network_share: Share of a network port's payload that gradients get.
        bucket_bytes: Gradients travel in buckets of so many bytes.
        zero_passes: How often float32 gradients pass the ring with ZeRO 1: once where each rank gets its share, twice
            where all get all.
        gathered_tensors: Tensors of a layer that ZeRO 1 gathers one by one.
        gradient_step_s: One step of the data-parallel ring within a node, for each bucket or tensor it is done for.
        gradient_hop_s: One such step between nodes.
        optimizer_passes: Bytes that the optimizer's step moves for each parameter that a rank updates.
        step_s: What a step costs besides (loss to the host, clipping, logging).
        retry_s: What each neighbour in a pipeline costs a stage for each microbatch when memory is nearly full: the
            allocator gives blocks back to the driver, which waits for the device.
        even_stages: Whether the program gives stages equal numbers of layers, and not equal work.
    """

    name: str
    source: str
    product_share: float = 1.0
    product_s: float = 0.0
    attention_share: Mapping[str, float] | None = field(default_factory=lambda: ATTENTION_SHARE)
    by_size: bool = False
    whole_passes: float = 0.0
    hidden_passes: float = 40.0
    kv_passes: float = 0.0
    inner_passes: float = 12.0
    logit_bytes: float = 24.0
    issue_s: float = 0.0
    stage_s: float = 0.0
    accumulation_bytes: float = 0.0
    shard_bytes: float = 0.0
    collective_s: float = 0.0
    inner_step_s: float = 0.0
    tensor_collectives: float = 8.0
    head_collectives: float = 0.0
    embedding_collectives: float = 0.0
    tensor_exposed: float = 1.0
    tensor_step_s: float = 0.0
    beside_pipeline_s: float = 0.0
    network_share: float = 1.0
    bucket_bytes: float = 25 * 2**20
    zero_passes: float = 1.0
    gathered_tensors: int = 0
    gradient_step_s: float = 0.0
    gradient_hop_s: float = 0.0
    optimizer_passes: float = 30.0
    step_s: float = 0.0
    retry_s: float = 0.0
    even_stages: bool = False


@dataclass(frozen=True)
class MemoryCosts:
    """What a rank holds for each number of the model.

    Attributes:
        source: Where the figures come from.
        hidden_bytes: Bytes of a layer's kept activations for each token and number of the hidden size.
        inner_bytes: The same for each number of the MLP's inner size.
        kv_bytes: The same for each number of keys.
        logit_bytes: Bytes held for each logit.
        optimizer_bytes: Bytes of optimizer state for each parameter that a rank updates.
        scratch_bytes: Bytes for each parameter that the optimizer's step needs besides.
        process_bytes: What a rank holds of any model.
        safe_share: Share of a device's memory up to which a plan is safe; above it the allocator has to retry.
    """

    source: str
    hidden_bytes: float
    inner_bytes: float
    logit_bytes: float
    optimizer_bytes: float
    scratch_bytes: float
    process_bytes: float
    safe_share: float
    kv_bytes: float = 0.0


#: Products of a layer: 5 projections and 2 of attention, once forward and twice backward.
PRODUCTS = 21
#: An MLP without a gate has 5 passes of its inner size where one with a gate has 18, and keeps half as much.
UNGATED_PASSES, UNGATED_BYTES = 5 / 18, 0.5

_FITTED = "fitted to nanotron's 688 published runs on 8 to 256 H100s (benchmarks of the Ultra-Scale Playbook, 2025)"

NANOTRON = Costs(
    "nanotron",
    _FITTED,
    product_share=0.780,
    product_s=34.2e-6,
    whole_passes=71.0,
    hidden_passes=71.0,
    inner_passes=23.0,
    logit_bytes=23.1,
    issue_s=4.39e-3,
    stage_s=2.07e-3,
    tensor_exposed=0.0,
    tensor_step_s=39.2e-6,
    beside_pipeline_s=329e-6,
    network_share=0.612,
    zero_passes=2.0,
    gathered_tensors=9,
    gradient_step_s=1.11e-6,
    gradient_hop_s=1.11e-6,
    optimizer_passes=0.0,
    step_s=46.4e-3,
    retry_s=0.5,
)

HELD_BY_NANOTRON = MemoryCosts(
    _FITTED,
    hidden_bytes=29.9,
    inner_bytes=7.28,
    logit_bytes=11.7,
    optimizer_bytes=12.2,
    scratch_bytes=6.32,
    process_bytes=454e6,
    safe_share=0.88,
)

#: Nothing was fitted for these: what nanotron does and they do not is left out. They send tensors alone, of known
#: shapes, and the host waits for none; tensor ranks share norms and residuals, too (Korthikanti et al. 2022), so what
#: was whole on each travels instead, and products wait for it; a replica's share of the gradients passes the ring once.
MEGATRON = replace(
    NANOTRON,
    name="Megatron-LM",
    source=f"nanotron's, {_FITTED}, without what Megatron-LM and torchtitan do otherwise",
    whole_passes=0.0,
    hidden_passes=NANOTRON.whole_passes + NANOTRON.hidden_passes,
    stage_s=0.0,
    tensor_exposed=1.0,
    beside_pipeline_s=0.0,
    zero_passes=1.0,
    retry_s=0.0,
    even_stages=True,
)

PROGRAMS: Mapping[str, Costs] = MappingProxyType({"nanotron": NANOTRON, "megatron": MEGATRON})


def costs_of(model: str, program: str = "") -> Costs:
    """Return the costs of a program, by default of nanotron for its own models and of Megatron-LM for others.

    Raises:
        ConfigError: If no program has this name.
    """
    name = program.strip().lower() or ("nanotron" if model.startswith("nanotron") else "megatron")
    if name not in PROGRAMS:
        raise ConfigError(f"no program is called {program!r}; use {join(PROGRAMS)}")
    return PROGRAMS[name]
