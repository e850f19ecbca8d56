"""A communication hook: by hand with buckets of our own, and under torch's DDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.checks.on_ranks.model_state import loss_of
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.compression_hook.driver import drive
from labkit.exercises.gradient_compression.findings import (
    TOO_EARLY,
    Finding,
    hanging,
    judging,
    mistakes,
    near,
    normal,
    raising,
    unlike,
    wrong_value,
)
from labkit.exercises.gradient_compression.hook_wire import wrong_on_the_wire
from labkit.exercises.gradient_compression.par import HOOK

WINDOW = "window"
ROUNDING = "rounding"
_MODEL = {"norm": False, "unused": False}


def hook_case(
    name: str,
    seed: int,
    world_size: int,
    kind: str,
    steps: Sequence[Sequence[int]],
    *,
    overlap: bool = False,
    group: Sequence[int] | None = None,
    length: int = 3,
) -> Case:
    """Return a case: for each step the sizes of its buckets.

    Args:
        name: What is special about it.
        seed: Draws the gradients.
        world_size: Ranks.
        kind: "window" for packets that must be gathered, "rounding" for packets that may be added (of every second
            entry).
        steps: For each step the number of entries of each bucket.
        overlap: Whether it is looked at that the hook does not wait for a work.
        group: Global ranks that take part; None is everybody.
        length: Of a window.
    """
    members = list(range(world_size)) if group is None else list(group)
    inputs: list[Values] = []
    for rank in range(world_size):
        buffers: list[Value] = [
            [
                normal(seed + 1000 * step + 10 * number + rank, size, dtype=torch.float64)
                for number, size in enumerate(sizes)
            ]
            for step, sizes in enumerate(steps)
        ]
        compressor: dict[str, Value] = {"kind": kind, "step": 0.25, "every": 2, "start": 2 * rank, "length": length}
        mine: dict[str, Value] = {"compressor": compressor, "steps": buffers}
        inputs.append(mine if group is None else {**mine, "group": list(members)})
    return Case(name, world_size, tuple(inputs), {"ranks": cast(Value, members), "overlap": overlap})


def ddp_case(name: str, seed: int, world_size: int, steps: int = 2) -> Case:
    """Return a case under torch's DDP, with the hard model in several buckets."""
    inputs: list[Values] = []
    for rank in range(world_size):
        batches = [hard_batch(seed + 100 * rank + step, 5) for step in range(steps)]
        x, y = [list(each) for each in zip(*batches, strict=True)]
        compressor: dict[str, Value] = {"kind": ROUNDING, "step": 2.0**-12}
        inputs.append(
            {"seed": seed, "model": cast(Value, dict(_MODEL)), "compressor": compressor, "cap": 0.0003, "x": x, "y": y}
        )
    return Case(name, world_size, tuple(inputs), {"ddp": True})


def unpacked(about: Mapping[str, Any], gradient: Tensor) -> Tensor:
    """Return what compressing and unpacking with a stand-in leaves of a gradient."""
    if about["kind"] == ROUNDING:
        step, every = float(about["step"]), int(about.get("every", 1))
        rounded = torch.zeros_like(gradient)
        rounded.view(-1)[::every] = (gradient.flatten()[::every] / step).round() * step
        return rounded
    start, left = min(int(about["start"]), max(0, gradient.numel() - int(about["length"]))), torch.zeros_like(gradient)
    end = start + int(about["length"])
    left[start:end] = gradient[start:end]
    return left


def _buffers(case: Case, step: int, bucket: int) -> list[tuple[Mapping[str, Any], Tensor]]:
    found = []
    for rank in cast(list[int], case.about["ranks"]):
        steps = cast(list[list[Tensor]], case.inputs[rank]["steps"])
        found.append((cast(Mapping[str, Any], case.inputs[rank]["compressor"]), steps[step][bucket]))
    return found


def mean_of(case: Case, step: int, bucket: int) -> Tensor:
    """Return what every member must get for a bucket."""
    pairs = _buffers(case, step, bucket)
    return torch.stack([unpacked(about, gradient / len(pairs)) for about, gradient in pairs]).sum(0)


def expected(case: Case) -> list[Values]:
    """Return what each rank must have (the oracle)."""
    if case.about.get("ddp"):
        return cast(list[Values], [{"gradients": cast(Value, _ddp_gradients(case))}] * case.world_size)
    steps = cast(list[list[Tensor]], case.inputs[0]["steps"])
    means: list[Value] = [
        {"means": [mean_of(case, step, bucket) for bucket in range(len(buffers))]} for step, buffers in enumerate(steps)
    ]
    ranks = cast(list[int], case.about["ranks"])
    return [{"steps": means} if rank in ranks else {"member": False} for rank in range(case.world_size)]


def _ddp_gradients(case: Case) -> list[dict[str, Tensor]]:
    model = HardModel(cast(int, case.inputs[0]["seed"]), **_MODEL)
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    steps = []
    for number in range(len(cast(list[Tensor], case.inputs[0]["x"]))):
        totals = {name: torch.zeros_like(each) for name, each in trained.items()}
        for inputs in case.inputs:
            x, y = (cast(list[Tensor], inputs[side])[number] for side in ("x", "y"))
            gradients = torch.autograd.grad(loss_of(model(x), y), list(trained.values()))
            for name, gradient in zip(trained, gradients, strict=True):
                totals[name] += unpacked(cast(Mapping[str, Any], inputs["compressor"]), gradient / case.world_size)
        steps.append(totals)
    return steps


def _on_ddp(case: Case, got: tuple[Values, ...]) -> Finding | None:
    step = cast(float, cast(dict[str, Any], case.inputs[0]["compressor"])["step"])
    for number, wanted in enumerate(_ddp_gradients(case)):
        for rank, values in enumerate(got):
            came = cast(list[dict[str, Value]], values["gradients"])[number]
            for name, right in wanted.items():
                mine = came.get(name)
                # a gradient at the border of two steps may round either way on each rank
                if not isinstance(mine, Tensor) or bool(((mine - right).abs() > case.world_size * step).any()):
                    what = f"Under torch's DDP, step {number}, rank {rank}: the gradient of {name}"
                    shown = mine if isinstance(mine, Tensor) else torch.full_like(right, float("nan"))
                    ratio = float(shown.flatten()[0] / right.flatten()[0]) if right.numel() else 1.0
                    name = "sum instead of mean" if abs(ratio - case.world_size) < 0.05 else "wrong under DDP"
                    return wrong_value(name, what, shown, right, rank=rank)
    return None


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong: keys, the wire, then values in the order of time."""
    if case.about.get("ddp"):
        return _on_ddp(case, got)
    ranks = cast(list[int], case.about["ranks"])
    for rank in ranks:
        found = _wrong_keys(case, got[rank], rank)
        if found is not None:
            return found
    futures = [mean for step in cast(list[dict[str, Any]], got[ranks[0]]["steps"]) for mean in step["means"]]
    odd = next((mean for mean in futures if isinstance(mean, str)), None)
    if odd is not None:
        return Finding("no future", f"The hook returned {odd}; DDP wants a torch.futures.Future of a tensor.")
    return wrong_on_the_wire(case, wire) or _wrong_values(case, got) or _wrong_count(case, got)


def _wrong_keys(case: Case, values: Values, rank: int) -> Finding | None:
    steps = cast(list[list[Tensor]], case.inputs[rank]["steps"])
    keys, calls = cast(list[str], values["keys"]), sum(len(buffers) for buffers in steps)
    if len(keys) != calls:
        return Finding(
            "the memory is not used",
            f"Rank {rank}: state.feedback.compress was called {len(keys)} times for {calls} buckets.",
            f"{calls} calls",
            f"{len(keys)} calls",
            rank=rank,
        )
    of_bucket: dict[tuple[int, int], set[str]] = {}
    places = iter(keys)
    for buffers in steps:
        for number, buffer in enumerate(buffers):
            of_bucket.setdefault((number, buffer.numel()), set()).add(next(places))
    for (number, size), used in of_bucket.items():
        if len(used) > 1:
            return Finding(
                "another key in every step",
                f"Rank {rank}: bucket {number} had the keys {', '.join(sorted(used))}.",
                rank=rank,
            )
        others = {other for place, keys in of_bucket.items() if place != (number, size) for other in keys}
        if used & others:
            return Finding(
                "one key for several buckets", f"Rank {rank}: several buckets have the key {used.pop()}.", rank=rank
            )
    return None


def _wrong_values(case: Case, got: tuple[Values, ...]) -> Finding | None:
    ranks = cast(list[int], case.about["ranks"])
    fed = {rank: iter(cast(list[Tensor], got[rank]["fed"])) for rank in ranks}
    for step, buffers in enumerate(cast(list[list[Tensor]], case.inputs[0]["steps"])):
        for place, rank in enumerate(ranks):
            came = cast(list[dict[str, Any]], got[rank]["steps"])[step]
            for bucket in range(len(buffers)):
                given = next(fed[rank])
                right, mean = mean_of(case, step, bucket), came["means"][bucket]
                what = f"Step {step}, bucket {bucket}, rank {rank}: the mean"
                odd = unlike(mean, right, what, rank=rank)
                if odd is not None:
                    return odd
                if not near(mean, right, 1e-9):
                    return wrong_value(_named(case, step, bucket, place, mean, given), what, mean, right, rank=rank)
            if came["changed"]:
                return Finding(
                    "the buffer was changed",
                    f"Step {step}, rank {rank}: the hook changed a bucket's buffer.",
                    rank=rank,
                )
    return None


def _named(case: Case, step: int, bucket: int, place: int, mean: Tensor, given: Tensor) -> str:
    pairs = _buffers(case, step, bucket)
    count = len(pairs)
    whole = torch.stack([unpacked(about, gradient) for about, gradient in pairs]).sum(0)
    about, own = pairs[place]
    named = {
        "sum instead of mean": whole,
        "divided twice": mean_of(case, step, bucket) / count,
        "divided after compressing": whole / count,
        "only my own packet": unpacked(about, own / count),
        "only my own packet ": unpacked(about, own),
    }
    named |= {
        f"one buffer for all ranks{' ' * other}": unpacked(theirs, gradient / count) * count
        for other, (theirs, gradient) in enumerate(pairs)
        if about["kind"] == WINDOW
    }
    return next((name for name, wrong in named.items() if near(mean, wrong, 1e-9)), "a wrong mean").strip()


def _wrong_count(case: Case, got: tuple[Values, ...]) -> Finding | None:
    for rank in cast(list[int], case.about["ranks"]):
        about = cast(dict[str, Any], case.inputs[rank]["compressor"])
        sizes = [
            buffer.numel() for buffers in cast(list[list[Tensor]], case.inputs[rank]["steps"]) for buffer in buffers
        ]
        right = sum(8 + 8 * (-(-size // 2) if about["kind"] == ROUNDING else int(about["length"])) for size in sizes)
        if got[rank]["sent_bytes"] != right:
            came = got[rank]["sent_bytes"]
            return Finding(
                "bytes not counted",
                f"Rank {rank}: state.sent_bytes is {came}, expected {right}.",
                str(right),
                f"{came}",
                rank=rank,
            )
    return None


EXERCISE = judged(
    id="compression_hook",
    functions=("compression_hook",),
    given=("Packet", "HookState"),
    driver=drive,
    oracle=expected,
    judge=judging(find),
    visible=(
        hook_case("3 ranks, packets that must be gathered", 661, 3, WINDOW, [(40,), (40,)]),
        hook_case("3 ranks, packets that may be added", 662, 3, ROUNDING, [(11,), (11,)]),
        hook_case(
            "2 ranks, three buckets, and the hook must not wait", 663, 2, WINDOW, [(40, 40, 40)] * 2, overlap=True
        ),
        hook_case(
            "3 ranks, three buckets that may be added, and no waiting", 664, 3, ROUNDING, [(5, 9, 4)] * 2, overlap=True
        ),
        hook_case(
            "3 ranks, buckets built anew after the first step", 665, 3, WINDOW, [(60, 40), (40, 30, 30), (40, 30, 30)]
        ),
        hook_case("4 ranks, of which 0, 1 and 3 take part", 667, 4, WINDOW, [(40,)], group=(0, 1, 3)),
        ddp_case("3 ranks under torch's DDP, two steps", 666, 3),
    ),
    hints=(
        "What must be done at once, while backward goes on, and what only when everything has come? Write the second "
        "half as a function, and give it to .then.",
        "Compress buffer / N with the key (index, numel). Addable: all_reduce of parts[0] with async_op=True, and "
        "its future "
        "unpacks this packet. Else an asynchronous all_gather for each part, collect_all of their futures, and "
        "then add up "
        "the unpacked packets. No wait() anywhere.",
        "return work.get_future().then(lambda _: feedback.decompress(packet)); and "
        "torch.futures.collect_all([work.get_future() for work in works]).then(add_up), where add_up sums "
        "feedback.decompress(replace(packet, parts=parts)) for parts in zip(*gathered).",
    ),
    mistakes=(
        raising(
            "a residual of a bucket that is no more",
            "DDP builds its buckets anew after the first step: bucket 0 has another size then. Take the size into "
            "the key: "
            "(bucket.index(), bucket.buffer().numel()).",
            "a bucket of another size",
        ),
        raising(
            "the other parts are added too",
            "Only the first part of an addable packet is summed; the others are the same on all ranks and stay.",
            "only the first part may be added",
        ),
        raising(
            "added what cannot be added",
            "This compressor's packets cannot be added: gather them. Look at compressor.addable.",
            "starts were added up",
        ),
        TOO_EARLY,
        raising(
            "communicates in then",
            "Two collectives met that do not belong together: one was started inside .then, where ranks come in any "
            "order. Start all of them in the hook itself, and only compute in .then.",
            "disagree about the size",
        ),
        raising(
            "arguments with other names",
            "torch's DDP looks for an argument that is named bucket: def compression_hook(state, bucket).",
            "KeyError: 'bucket'",
        ),
        raising("no future", "DDP wants a torch.futures.Future: return work.get_future().then(...).", "Future object"),
        hanging(
            "all ranks of the world",
            "Somebody waits for ranks that do not take part: hand group=state.group to the collective.",
        ),
        *mistakes(
            find,
            the_memory_is_not_used="Compress through state.feedback, once for each bucket: without it what is not "
            "sent is "
            "lost.",
            one_key_for_several_buckets="Two buckets share a residual: the key is (bucket.index(), "
            "bucket.buffer().numel()).",
            another_key_in_every_step="The same bucket has another key in the next step, so its residual is never "
            "used: "
            "an id() or a counter is no key.",
            no_future="DDP wants a torch.futures.Future: return work.get_future().then(...).",
            gathers_what_can_be_added="This compressor is addable: one all_reduce of parts[0]. Gathering grows "
            "with the "
            "number of ranks.",
            added_what_cannot_be_added="This compressor's packets cannot be added: gather every part.",
            more_than_packets_travels="More bytes travel than the packets have: compress first, unpack after the "
            "exchange.",
            waits_inside_the_hook="The hook waits before it returns, so backward stands still and nothing overlaps: "
            "async_op=True, no wait() for a work or for its future, and what comes afterwards goes into .then(...).",
            sum_instead_of_mean="The sum over the ranks came back: a hook must give the mean, and DDP has not divided.",
            divided_twice="Divided by the number of ranks twice.",
            divided_after_compressing="The division comes after compressing. Divide the buffer first: sums of float16 "
            "overflow, and the residual would be in other units.",
            only_my_own_packet="The value of the future is this rank's own packet: unpack what all ranks sent.",
            the_buffer_was_changed="bucket.buffer() was changed: buffer / n makes a new tensor, buffer /= n does not.",
            one_buffer_for_all_ranks="Every rank's packet is the same one: [tensor] * N is N times the same tensor. "
            "Make each anew: [torch.empty_like(part) for _ in range(N)].",
            bytes_not_counted="Add wire_bytes(packet) to state.sent_bytes for each bucket.",
        ),
    ),
    par=HOOK,
)
