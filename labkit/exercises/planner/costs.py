"""What a step costs by its parts, and by what each usual mistake makes of them.

Keywords say what differs from the right formula; without them it is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

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


def product_seconds(job: Job, rows: int, inner: int, columns: int) -> float:
    """Return how long a product takes: the longest of its operations, its bytes and a launch."""
    moved = 2 * (rows * inner + inner * columns + rows * columns)
    return max(2 * rows * inner * columns / job.flops, moved / job.memory_bytes_s, job.launch_s)


def layer_seconds(
    job: Job, plan: Plan, *, cut: bool = True, both: bool = False, microbatch: bool = True,
    sums: tuple[float, float] = (2.0, 2.0), halves: int = 2, backward: int = 2, again: bool = True,
    sums_again: bool = True, fp32: bool = False, other: str = "",
) -> tuple[float, float]:  # fmt: skip
    """Return what a layer takes a microbatch, forward and backward.

    Args:
        job: What is trained.
        plan: How it is split.
        cut: Whether tensor ranks share the products.
        both: Whether inner and outer dim are both cut.
        microbatch: Whether it has more than one sequence.
        sums: All-reduces forward and backward.
        halves: Of an all-reduce.
        backward: Products of it, for each one forward.
        again: Whether recomputation counts.
        sums_again: Whether its all-reduces do.
        fp32: Whether activations travel in four bytes.
        other: "columns" or "rows" where all four products are cut so, "swapped" where the wrong two are, "piece" where
            a piece of the activation travels, "no tokens" where a sequence is one row, "stage" where all layers of a
            stage count, "replicas" where these sum the activation, "one product" where all four are timed as one,
            "at once" where a whole product is timed and then divided, "sequence" where one sequence's activation
            travels, "one byte" where a number of it takes one, "q alone" where the first product has h columns,
            "largest" where the longest of the four products counts alone, "hidden" where what the third product makes
            travels, four times the activation, "tokens" where tensor ranks share the rows and each has whole matrices,
            "tokens travel" where their rows alone travel then, too, "hidden second" where the second all-reduce alone
            is of what the third product makes, "replica" where all microbatches of a replica go through at once.
    """
    by_tokens = other in ("tokens", "tokens travel")
    rows, h = (plan.microbatch if microbatch else 1) * (1 if other == "no tokens" else job.num_tokens), job.width
    rows *= plan.num_microbatches(job) if other == "replica" else 1
    t = plan.tensor if cut and other != "at once" and not by_tokens else 1
    b = t if both else 1
    pieces: tuple[tuple[int, int], ...] = (
        (h // b, 3 * h // t),
        (h // t, h // b),
        (h // b, 4 * h // t),
        (4 * h // t, h // b),
    )
    if other == "columns":
        pieces = ((h, 3 * h // t), (h, h // t), (h, 4 * h // t), (4 * h, h // t))
    if other == "rows":
        pieces = ((h // t, 3 * h), (h // t, h), (h // t, 4 * h), (4 * h // t, h))
    if other == "swapped":
        pieces = ((h // t, 3 * h), (h, h // t), (h // t, 4 * h), (4 * h, h // t))
    if other == "q alone":
        pieces = ((h, h // t), *pieces[1:])
    if other == "one product":
        pieces = ((h, 12 * h // t),)
    times = [product_seconds(job, rows // plan.tensor if by_tokens else rows, *piece) for piece in pieces]
    products = max(times) if other == "largest" else sum(times)
    products /= plan.tensor if other == "at once" else 1
    smaller = {
        "piece": plan.tensor, "tokens travel": plan.tensor, "sequence": plan.microbatch, "one byte": 2, "hidden": 0.25,
    }.get(other, 1)  # fmt: skip
    reduce = halves * scatter_seconds(
        job,
        plan,
        "data" if other == "replicas" else "tensor",
        (4 if fp32 else 2) * rows * h / smaller,
    )
    if other == "hidden second":
        reduce = 0.5 * reduce + halves * 0.5 * scatter_seconds(job, plan, "tensor", 8 * rows * h)
    forward = products + sums[0] * reduce
    repeated = products + (sums[0] * reduce if sums_again else 0.0) if plan.recompute and again else 0.0
    layers = job.num_layers // plan.pipeline if other == "stage" else 1
    return layers * forward, layers * (backward * products + sums[1] * reduce + repeated)


def head_seconds(job: Job, plan: Plan) -> tuple[float, float]:
    """Return what the head takes a microbatch, forward and backward."""
    rows = plan.microbatch * job.num_tokens
    product = product_seconds(job, rows, job.width, job.vocabulary // plan.tensor)
    return product, 2 * product + 2 * scatter_seconds(job, plan, "tensor", 2 * rows * job.width)


def stage_bytes(job: Job, plan: Plan, *, in_flight: str = "", without: str = "", on_top: str = "") -> list[float]:
    """Return the most that a rank of each stage holds.

    Args:
        job: What is trained.
        plan: How it is split.
        in_flight: "one", "stages", "all", "unlimited", "warmup", "reversed" or "one more" in place of what is right,
            "warmup, or one" where the last stage has its one, "batch" or "sequences" where these are taken for
            microbatches (of all replicas, or of one),
            "added" where it is added to the layers, "replicas" where those of all replicas are counted.
        without: "whole" (the layer that is computed again), "cut" (activations), "again" (recomputation), "microbatch"
            (one sequence), "tokens", "width", "layers" (one), "split" (all layers), "input" (of the layer that is
            computed again), "cut again" (this layer is not cut) or "cut inputs" (what is kept for it is not).
        on_top: "layers" or "microbatches" where a layer is computed again for each of these at once, "replicas" where
            these share activations, "stages" where stages do, though each has its own layers, "bytes" where each
            byte is taken for a number of two, "always" where a layer is computed again in every plan, "everything"
            where all layers of all microbatches are computed again at once.
    """
    count, layers, p = plan.num_microbatches(job), job.num_layers // plan.pipeline, plan.pipeline
    tokens, again = plan.microbatch * job.num_tokens, plan.recompute and without != "again"
    rows = {"microbatch": job.num_tokens, "tokens": plan.microbatch}.get(without, tokens)
    width = 1 if without == "width" else job.width
    shared = {"replicas": plan.data, "stages": p}.get(on_top, 1)
    numbers = rows * width / (1 if without == "cut" else plan.tensor) / shared
    held_layers = {"layers": 1, "split": job.num_layers}.get(without, layers)
    found = []
    for stage in range(p):
        flying = {
            "one": 1, "stages": min(p, count), "all": count, "unlimited": p - stage,
            "one more": min(p - stage + 1, count), "warmup": min(p - stage - 1, count),
            "warmup, or one": max(1, min(p - stage - 1, count)), "batch": min(p - stage, job.batch),
            "sequences": min(p - stage, job.batch // plan.data),
            "reversed": min(stage + 1, count), "replicas": min(p - stage, count * plan.data),
            "added": min(p - stage, count) + held_layers,
        }  # fmt: skip
        num = flying.get(in_flight, min(p - stage, count))
        times = {"layers": layers, "microbatches": num, "everything": layers * num}.get(on_top, 1)
        times *= plan.tensor if without == "cut again" else 1
        kept = (num if in_flight == "added" else num * held_layers) * (INPUT if again else KEPT) + (
            times * KEPT if (again or on_top == "always") and without != "whole" else 0
        )
        kept *= plan.tensor if again and without == "cut inputs" else 1
        kept -= INPUT if again and without == "input" else 0
        kept *= 2 if on_top == "bytes" else 1
        params = (layers * job.layer_params + ((stage == 0) + (stage == p - 1)) * job.end_params) / plan.tensor
        logits = LOGITS * tokens * job.vocabulary / plan.tensor if stage == p - 1 else 0.0
        found.append(params * (STATE + SHARDED / plan.data) + kept * numbers + logits)
    return found


def exposed_seconds(computing: Sequence[float], takes: Sequence[float]) -> float:
    """Return how long buckets still travel when all is computed; each waits for the one before it."""
    link_free = 0.0
    ready = list(accumulate(computing))
    for begin, long in zip(ready, takes, strict=True):
        link_free = max(begin, link_free) + long
    return link_free - (ready[-1] if ready else 0.0)


def gradient_seconds(job: Job, plan: Plan, backward: float) -> float:
    """Return what follows the first stage's last backward: its gradients' rest, and parameters back.

    On a single stage the head's gradients leave first: what its backward takes hides none of them.
    """
    layers = job.num_layers // plan.pipeline
    buckets, computing = [job.layer_params] * layers + [job.end_params], [backward] * layers + [0.0]
    if plan.pipeline == 1:
        buckets, computing = [job.end_params, *buckets], [0.0, *computing]
    takes = [scatter_seconds(job, plan, "data", 4 * params / plan.tensor) for params in buckets]
    return exposed_seconds(computing, takes) + scatter_seconds(job, plan, "data", 2 * sum(buckets) / plan.tensor)


def step_seconds(
    job: Job, plan: Plan, *, fill: str = "", head: bool = True, hops: float = 2.0, gradients: bool = True,
    counts: str = "", per_layer: bool = False, head_pass: str = "", hides: str = "",
    each: str = "", passes: str = "",
) -> float:  # fmt: skip
    """Return what a step takes.

    Args:
        job: What is trained.
        plan: How it is split.
        fill: "none", "alike", "share", "mean", "one more" (microbatch), "one less", "layers" (without the head's own
            pass), "forward" (the bubble's alone), "p" (stages fill it, not p - 1), "first" (the first
            stage sets the pace), "head alone" (which is all of the last stage) or "sum" (no overlap) in place of a
            bubble that is right.
        head: Whether the last stage has it.
        hops: Messages to the next stage and back that nothing hides, for each stage but one.
        gradients: Whether what is left of them counts.
        counts: "batch" where each replica takes the whole one, "sequences" where these are taken for microbatches.
        per_layer: Whether a stage is taken for a layer.
        head_pass: "forward" or "backward" where only that of the head counts, "once" where it counts once a step,
            "again" where plans that recompute run its forward once more, "both ends" where the first stage has it, too.
        hides: "stage" where its whole backward is taken for a layer's where gradients are hidden, "forward" where a
            layer's forward is taken to hide them, too, "forward alone" where it hides them in backward's place.
        each: "hop" where every microbatch pays its messages, "gradients" where every stage's rest of gradients counts.
        passes: "forward" or "backward" where only that of a layer counts, "again" where forward counts once more in
            plans that recompute.
    """
    forward, backward, of_head, of_gradients, hop = _parts(job, plan)
    layers = 1 if per_layer else job.num_layers // plan.pipeline
    layer = {"forward": forward, "backward": backward}.get(passes, forward + backward)
    layer += forward if passes == "again" and plan.recompute else 0.0
    stages = [layers * layer] * plan.pipeline
    head_takes = {"forward": of_head[0], "backward": of_head[1]}.get(head_pass, sum(of_head))
    head_takes += of_head[0] if head_pass == "again" and plan.recompute else 0.0
    stages[0] += head_takes if head_pass == "both ends" else 0.0
    stages[-1] = (0.0 if fill == "head alone" else stages[-1]) + (head_takes if head and head_pass != "once" else 0.0)
    of_batch = {"batch": job.batch // plan.microbatch, "sequences": job.batch // plan.data}
    count = of_batch.get(counts, plan.num_microbatches(job))
    slowest, p = max(stages), plan.pipeline
    pipe = {
        "none": count * slowest,
        "alike": (count + p - 1) * slowest,
        "share": count * slowest * (1 + (p - 1) / (count + p - 1)),
        "one more": count * slowest + sum(stages),
        "layers": (count - 1) * slowest + p * layers * (forward + backward),
        "first": (count - 1) * stages[0] + sum(stages),
        "sum": count * sum(stages),
        "one less": (count - 2) * slowest + sum(stages),
        "forward": count * slowest + (p - 1) * layers * forward,
        "p": count * slowest + p * layers * (forward + backward),
        "mean": (count - 1) * sum(stages) / p + sum(stages),
    }.get(fill, (count - 1) * slowest + sum(stages))
    rest = of_gradients * (p if each == "gradients" else 1) if gradients else 0.0
    if hides:
        long = {"stage": layers * backward, "forward alone": forward}.get(hides, forward + backward)
        rest = gradient_seconds(job, plan, long)
    rest += sum(of_head) if head_pass == "once" else 0.0
    return pipe + hops * (p - 1) * hop * (count if each == "hop" else 1) + rest


def layer_parts(job: Job, plan: Plan) -> dict[str, tuple[float, float]]:
    """Return what a layer's two times are added up of, by name."""
    again, rows, h, t = 1 if plan.recompute else 0, plan.microbatch * job.num_tokens, job.width, plan.tensor
    shapes = {"first": (h, 3 * h // t), "second": (h // t, h), "third": (h, 4 * h // t), "fourth": (4 * h // t, h)}
    takes = {name: product_seconds(job, rows, *shape) for name, shape in shapes.items()}
    products, sums = sum(takes.values()), 4 * scatter_seconds(job, plan, "tensor", 2 * rows * h)
    return {
        **{f"the {name} product": (each, (2 + again) * each) for name, each in takes.items()},
        "what is computed": (products, (2 + again) * products),
        "what is computed forward": (products, again * products),
        "what is computed in forward alone": (products, 0.0),
        "what is computed in backward": (0.0, 2 * products),
        "what is computed again": (0.0, again * products),
        "the all-reduces": (sums, (1 + again) * sums),
        "those of forward": (sums, 0.0),
        "those of backward": (0.0, sums),
        "what runs again": (0.0, again * (products + sums)),
    }


def stage_parts(job: Job, plan: Plan) -> dict[str, list[float]]:
    """Return what a stage's activations are added up of, by name, stage by stage."""
    layers, p = job.num_layers // plan.pipeline, plan.pipeline
    numbers = plan.microbatch * job.num_tokens * job.width / plan.tensor
    flying = [min(p - stage, plan.num_microbatches(job)) for stage in range(p)]
    kept = [num * layers * (INPUT if plan.recompute else KEPT) * numbers for num in flying]
    again = [KEPT * numbers if plan.recompute else 0.0] * p
    return {
        "all that activations take": [one + other for one, other in zip(kept, again, strict=True)],
        "what layers keep": kept,
        "the layer that is computed again": again,
        "what one microbatch's layers keep": [layers * (INPUT if plan.recompute else KEPT) * numbers] * p,
        "what one layer keeps": [num * (INPUT if plan.recompute else KEPT) * numbers for num in flying],
    }


def step_parts(job: Job, plan: Plan) -> dict[str, float]:
    """Return what a step's time is added up of, by name."""
    forward, backward, of_head, of_gradients, hop = _parts(job, plan)
    layers, p, count = job.num_layers // plan.pipeline, plan.pipeline, plan.num_microbatches(job)
    stage, way = layers * (forward + backward), 2 * (p - 1) * hop
    slowest = stage + sum(of_head)
    return {
        "the slowest stage, for each microbatch but one,": (count - 1) * slowest,
        "the first microbatch's way through all stages": p * stage + sum(of_head),
        "the messages": way,
        "one message": hop if p > 1 else 0.0,
        "what is left of the gradients": of_gradients,
        "the head": count * sum(of_head),
        "the head's forward": count * of_head[0],
        "the head's backward": count * of_head[1],
        "what a stage's layers take": (count - 1 + p) * stage,
        "forward of a stage's layers": (count - 1 + p) * layers * forward,
        "backward of a stage's layers": (count - 1 + p) * layers * backward,
        "the slowest stage for a single microbatch": slowest,
        "all but the gradients": (count - 1) * slowest + p * stage + sum(of_head) + way,
        "all that stages take": (count - 1) * slowest + p * stage + sum(of_head),
    }


@lru_cache(maxsize=4096)
def _parts(job: Job, plan: Plan) -> tuple[float, float, tuple[float, float], float, float]:
    """Return what all formulas of a step are made of; each is asked for by a dozen wrong ones."""
    forward, backward = layer_seconds(job, plan)
    of_head = head_seconds(job, plan)
    rest = gradient_seconds(job, plan, backward)
    return forward, backward, of_head, rest, hop_seconds(job, plan)
