"""What a step costs by its parts, and by what each usual mistake makes of them.

Keywords say what differs from the right formula; without them it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from labkit.plans.planned_step import (
    INPUT,
    KEPT,
    LOGITS,
    SHARDED,
    STATE,
    Job,
    Plan,
    hop_seconds,
    scatter_seconds,
)


def product_seconds(
    job: Job, rows: int, inner: int, columns: int, *, once: bool = False, moved: bool = True, launch: bool = True,
    added: bool = False, peak: bool = False, writes: bool = True, number_bytes: int = 2,
) -> float:  # fmt: skip
    """Return how long a product takes: the longest of its operations, its bytes and a launch."""
    parts = [(1 if once else 2) * rows * inner * columns / (job.peak_flops if peak else job.flops)]
    numbers = rows * inner + inner * columns + (rows * columns if writes else 0)
    parts += [number_bytes * numbers / job.memory_bytes_s] if moved else []
    parts += [job.launch_s] if launch else []
    return sum(parts) if added else max(parts)


def layer_seconds(
    job: Job, plan: Plan, *, cut: bool = True, both: bool = False, at_once: bool = False, microbatch: bool = True,
    sums: tuple[float, float] = (2.0, 2.0), halves: int = 2, backward: int = 2, again: bool = True,
    sums_again: bool = True, fp32: bool = False, columns: bool = False,
) -> tuple[float, float]:  # fmt: skip
    """Return what a layer takes a microbatch, forward and backward.

    Args:
        job: What is trained.
        plan: How it is split.
        cut: Whether tensor ranks share the products.
        both: Whether inner and outer dim are both cut.
        at_once: Whether a whole product is timed and then divided.
        microbatch: Whether it has more than one sequence.
        sums: All-reduces forward and backward.
        halves: Of an all-reduce.
        backward: Products of it, for each one forward.
        again: Whether recomputation counts.
        sums_again: Whether its all-reduces do.
        fp32: Whether activations travel in four bytes.
        columns: Whether all four products are cut by columns.
    """
    rows, h = (plan.microbatch if microbatch else 1) * job.num_tokens, job.width
    t = plan.tensor if cut and not at_once else 1
    b = t if both else 1
    pieces = ((h // b, 3 * h // t), (h // t, h // b), (h // b, 4 * h // t), (4 * h // t, h // b))
    if columns:
        pieces = ((h, 3 * h // t), (h, h // t), (h, 4 * h // t), (4 * h, h // t))
    products = sum(product_seconds(job, rows, *piece) for piece in pieces)
    products /= plan.tensor if at_once else 1
    reduce = halves * scatter_seconds(job, plan, "tensor", (4 if fp32 else 2) * rows * h)
    forward = products + sums[0] * reduce
    repeated = products + (sums[0] * reduce if sums_again else 0.0) if plan.recompute and again else 0.0
    return forward, backward * products + sums[1] * reduce + repeated


def head_seconds(job: Job, plan: Plan) -> tuple[float, float]:
    """Return what the head takes a microbatch, forward and backward."""
    rows = plan.microbatch * job.num_tokens
    product = product_seconds(job, rows, job.width, job.vocabulary // plan.tensor)
    return product, 2 * product + 2 * scatter_seconds(job, plan, "tensor", 2 * rows * job.width)


def stage_bytes(
    job: Job, plan: Plan, *, state: int = STATE, sharded: int = SHARDED, shared: bool = True, in_flight: str = "",
    ends: str = "", without: str = "", unit: float = 1.0, zero2: bool = False, scores: str = "last",
) -> list[float]:  # fmt: skip
    """Return the most that a rank of each stage holds.

    Args:
        job: What is trained.
        plan: How it is split.
        state: Bytes of a parameter and its gradient.
        sharded: Of its optimizer's state.
        shared: Whether replicas share that.
        in_flight: "one", "stages", "all", "unlimited", "warmup" or "reversed" in place of what is right.
        ends: "first", "last" or "none" where only these are there, "everywhere", or "one" on a single stage.
        without: "logits", "whole" (the layer that is computed again), "cut" (activations), "again" (recomputation),
            "microbatch" (one sequence) or "input" (of the layer that is computed again).
        unit: What the bytes are divided by.
        zero2: Whether replicas share gradients, too.
        scores: Where logits are: "last" or "everywhere".
    """
    count, layers, p = plan.num_microbatches(job), job.num_layers // plan.pipeline, plan.pipeline
    tokens = (1 if without == "microbatch" else plan.microbatch) * job.num_tokens
    again = plan.recompute and without != "again"
    numbers = tokens * job.width / (1 if without == "cut" else plan.tensor)
    of_each = state + sharded / (plan.data if shared else 1) - (4 - 4 / plan.data if zero2 else 0)
    found = []
    for stage in range(p):
        first, last = int(stage == 0), int(stage == p - 1)
        of_ends = {"first": first, "last": last, "none": 0, "everywhere": 2, "one": min(1, first + last)}
        params = (layers * job.layer_params + of_ends.get(ends, first + last) * job.end_params) / plan.tensor
        flying = {
            "one": 1, "stages": min(p, count), "all": count, "unlimited": p - stage,
            "warmup": min(p - stage - 1, count), "reversed": min(stage + 1, count),
        }  # fmt: skip
        num = flying.get(in_flight, min(p - stage, count))
        kept = num * layers * (INPUT if again else KEPT) + (KEPT if again and without != "whole" else 0)
        kept -= INPUT if again and without == "input" else 0
        holds = (last or scores == "everywhere") and without != "logits"
        logits = LOGITS * tokens * job.vocabulary / plan.tensor if holds else 0.0
        found.append((params * of_each + kept * numbers + logits) / unit)
    return found


def exposed_seconds(computing: Sequence[float], takes: Sequence[float]) -> float:
    """Return how long buckets still travel when all is computed; each waits for the one before it."""
    now = done = 0.0
    for computed, travels in zip(computing, takes, strict=True):
        now += computed
        done = max(now, done) + travels
    return done - now


def gradient_seconds(job: Job, plan: Plan, backward: float, head_backward: float) -> float:
    """Return what follows the first stage's last backward: its gradients' rest, and parameters back."""
    layers = job.num_layers // plan.pipeline
    buckets, computing = [job.layer_params] * layers + [job.end_params], [backward] * layers + [0.0]
    if plan.pipeline == 1:
        buckets, computing = [job.end_params, *buckets], [head_backward, *computing]
    takes = [scatter_seconds(job, plan, "data", 4 * params / plan.tensor) for params in buckets]
    return exposed_seconds(computing, takes) + scatter_seconds(job, plan, "data", 2 * sum(buckets) / plan.tensor)


def step_seconds(
    job: Job, plan: Plan, *, fill: str = "", head: bool = True, hops: float = 2.0, gradients: bool = True,
    whole_batch: bool = False, per_layer: bool = False,
    head_once: bool = False, head_forward: bool = False, stage_backward: bool = False,
) -> float:  # fmt: skip
    """Return what a step takes.

    Args:
        job: What is trained.
        plan: How it is split.
        fill: "none", "alike" or "share" in place of a bubble that is right.
        head: Whether the last stage has it.
        hops: Messages to the next stage and back that nothing hides, for each stage but one.
        gradients: Whether what is left of them counts.
        whole_batch: Whether each replica takes the whole batch.
        per_layer: Whether a stage is taken for a layer.
        head_once: Whether the head counts once a step.
        head_forward: Whether only its forward counts.
        stage_backward: Whether a stage's backward is taken for a layer's where gradients are hidden.
    """
    forward, backward, of_head, of_gradients, hop = _parts(job, plan)
    layers = 1 if per_layer else job.num_layers // plan.pipeline
    stages = [layers * (forward + backward)] * plan.pipeline
    stages[-1] += sum(of_head[:1] if head_forward else of_head) if head and not head_once else 0.0
    count = job.batch // plan.microbatch if whole_batch else plan.num_microbatches(job)
    slowest, p = max(stages), plan.pipeline
    pipe = {
        "none": count * slowest,
        "alike": (count + p - 1) * slowest,
        "share": count * slowest * (1 + (p - 1) / (count + p - 1)),
        "mean": (count - 1) * sum(stages) / p + sum(stages),
    }.get(fill, (count - 1) * slowest + sum(stages))
    rest = of_gradients if gradients else 0.0
    if stage_backward:
        rest = gradient_seconds(job, plan, layers * backward, of_head[1])
    rest += sum(of_head) if head_once else 0.0
    return pipe + hops * (p - 1) * hop + rest


@lru_cache(maxsize=4096)
def _parts(job: Job, plan: Plan) -> tuple[float, float, tuple[float, float], float, float]:
    """Return what all formulas of a step are made of; each is asked for by a dozen wrong ones."""
    forward, backward = layer_seconds(job, plan)
    of_head = head_seconds(job, plan)
    rest = gradient_seconds(job, plan, backward, of_head[1])
    return forward, backward, of_head, rest, hop_seconds(job, plan)
