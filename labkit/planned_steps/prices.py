"""What the virtual cluster prices a planned step at, as the planner's tables of costs.

Peaks and shares are those of ``labkit.hardware``, which both go by, and latencies are those of
``labkit.simulator.nccl``. How often the program of this package moves an activation was counted on its operators; what
simulated steps take beside plans at these prices holds it.
"""

from __future__ import annotations

from labkit.planner.costs import Costs, MemoryCosts
from labkit.planner.step import Machines
from labkit.simulator.nccl import PROTOCOLS

LAYER_OPERATORS = 56
"""Kernels of a layer, forward and backward, with the addition of its gradients."""


def cluster_costs(machines: Machines) -> Costs:
    """Return what the virtual cluster prices besides arithmetic and bytes on these machines."""
    simple = next(each for each in PROTOCOLS if each.name == "Simple")
    share = machines.device.attention_share
    steps, inside = simple.step_us["ring"], machines.link.nccl or "net"
    return Costs(
        "the virtual cluster",
        "counted on the operators of the step, priced as the virtual cluster prices them",
        attention_share=None if share is None else {"": share},
        by_size=True,
        hidden_passes=46.0,
        kv_passes=28.0,
        inner_passes=18.0,
        logit_bytes=64.0,
        issue_s=LAYER_OPERATORS * machines.device.launch_ns / 1e9,
        accumulation_bytes=10.0,
        shard_bytes=4.5,
        collective_s=simple.base_us["ring"] / 1e6,
        inner_step_s=steps[inside] / 1e6,
        tensor_collectives=10.0,
        head_collectives=3.0,
        embedding_collectives=2.0,
        tensor_step_s=steps["net"] / 1e6,
        bucket_bytes=float("inf"),
        gradient_step_s=steps[inside] / 1e6,
        gradient_hop_s=steps["net"] / 1e6,
        optimizer_passes=32.0,
    )


CLUSTER_MEMORY = MemoryCosts(
    "counted on what the step keeps for backward",
    hidden_bytes=16.0,
    kv_bytes=6.0,
    inner_bytes=8.0,
    logit_bytes=6.0,
    optimizer_bytes=12.0,
    scratch_bytes=2.0,
    process_bytes=0.0,
    safe_share=1.0,
)
