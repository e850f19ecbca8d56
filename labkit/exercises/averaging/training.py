"""Judging a wrapper: what the ranks hold after each step, and what passed on the wire while backward computed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

from labkit.checks.case import Case, Values
from labkit.checks.finding import Finding
from labkit.checks.tensor_values import compare_ranks
from labkit.checks.values import listed, text
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.averaging.on_ranks import LAYERS
from labkit.exercises.averaging.replay import Replay, models_of, replay
from labkit.exercises.averaging.stretches import (
    Stretch,
    in_another_order,
    of_backward,
    partition,
    ready_part,
    stretches,
    trained,
)
from labkit.plans.buckets import broken_rules
from labkit.words import join, plural

PARTS = ("loss", *reversed(LAYERS), "finish")
"""Stretches of backward and of the call of finish_gradient_synchronization, in order."""


@lru_cache(maxsize=64)
def _truth(key: _Key) -> Replay:
    return replay(key.case)


class _Key:
    """A case as a key: by identity, kept alive."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __hash__(self) -> int:
        return id(self.case)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other.case is self.case


def truth(case: Case) -> Replay:
    """Return what a case must bring; computed once."""
    return _truth(_Key(case))


def steps_of(case: Case) -> list[dict[str, Any]]:
    """Return rank 0's steps."""
    return listed(case.inputs[0], "steps")


def wrong_training(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: a value that some rank must hold and does not, or gradients that travel otherwise."""
    found = (
        wrong_values(case, got)
        or _not_readable(case, wire)
        or _touched(wire)
        or _unwaited(wire)
        or wrong_wire(case, wire)
    )
    if found is not None:
        yield found


def wrong_values(case: Case, got: tuple[Values, ...]) -> Finding | None:
    """Return what is wrong with the first tensor that is wrong, in the order of time."""
    expected = truth(case).expected
    found = compare_ranks(got, expected, ("begun",), "after construction the value")
    for number, step in enumerate(steps_of(case)):
        when = f"after step {number}" if len(steps_of(case)) > 1 else "after the step"
        quiet = int(step.get("quiet", 0))
        when += f" ({quiet} of {len(step['x'])} backward passes inside no_sync)" if quiet else ""
        found = (
            found
            or compare_ranks(got, expected, ("steps", number, "gradients"), f"{when} the gradient")
            or compare_ranks(got, expected, ("steps", number, "state"), f"{when} the value")
            or _wrong_outputs(got, expected, number)
        )
    found = found or compare_ranks(got, expected, ("end",), "at the end the value")
    if found is None and "evaluate" in case.inputs[0]:
        found = compare_ranks(got, expected, ("evaluated",), "in evaluation the")
    return found


def _wrong_outputs(got: tuple[Values, ...], expected: Any, number: int) -> Finding | None:
    def as_dict(values: Any) -> dict[str, Any]:
        outputs = values["steps"][number]["outputs"]
        return {"o": {f"pass {index}": output for index, output in enumerate(outputs)}}

    came = tuple(as_dict(values) for values in got)
    return compare_ranks(came, [as_dict(values) for values in expected], ("o",), f"in step {number} the output")


def _not_readable(case: Case, wire: Wire) -> Finding | None:
    if all(stretches(case, wire, rank) is not None for rank in range(case.world_size)):
        return None
    return Finding(
        "",
        message=(
            "This check separates the parts of a step with barriers of its own, and it found others: do not call "
            "dist.barrier() in your code; no rank needs it."
        ),
    )


def _touched(wire: Wire) -> Finding | None:
    """Return the first tensor that was used while a collective had it, whatever came of that."""
    problem = next(iter(wire.problems_of("changed_in_flight", "read_before_wait")), None)
    return None if problem is None else Finding("", problem.text, problem=problem)


def _unwaited(wire: Wire) -> Finding | None:
    for call in wire.collectives:
        if call.waited is None and call.kind != "barrier":
            return Finding(
                "",
                message=f"Rank {call.rank} was not seen to wait for one of its {call.kind}s of {call.bytes} bytes: "
                "what it reads afterwards may be old.",
                rank=call.rank,
                call=call.sequence,
            )
    return None


def wrong_wire(case: Case, wire: Wire) -> Finding | None:
    """Return what is wrong with the first stretch in which something travelled that should not, or not then."""
    for rank in range(case.world_size):
        parts = stretches(case, wire, rank)
        assert parts is not None
        for number, step in enumerate(steps_of(case)):
            for run in range(len(step["x"])):
                found = _forward(case, parts, rank, number, run) or _backward(case, parts, rank, number, run)
                if found is not None:
                    return found
    return None


def _forward(case: Case, parts: list[Stretch], rank: int, step: int, run: int) -> Finding | None:
    calls = [c for s in parts if (s.step, s.run, s.part) == (step, run, "forward") for c in s.calls]
    model = models_of(case)[0]
    allowed = sum(b.numel() * b.element_size() for b in model.buffers()) if case.about.get("buffers") else 0
    sent = sum(call.bytes for call in calls)
    if sent <= allowed:
        return None
    what = f"the buffers, {allowed} bytes" if allowed else "nothing"
    return Finding(
        "",
        message=f"The values are right, but in the forward pass of step {step} rank {rank} sends {sent} bytes "
        f"({join(sorted({c.kind for c in calls}))}); {what} must travel then: parameters stay equal by themselves.",
        expected=f"{allowed} bytes",
        got=f"{sent} bytes in {plural(len(calls), 'call')}",
        rank=rank,
    )


def _backward(case: Case, parts: list[Stretch], rank: int, step: int, run: int) -> Finding | None:
    calls = list(of_backward(parts, step, run))
    if run < int(steps_of(case)[step].get("quiet", 0)):
        if not calls:
            return None
        return Finding(
            "",
            message=f"Inside no_sync rank {rank} called {join(sorted({c.kind for _, c in calls}))}; nothing may travel "
            "there.",
            rank=rank,
        )
    others = sorted({call.kind for _, call in calls} - {"all_reduce"})
    if others:
        return Finding(
            "",
            message=f"While gradients are averaged rank {rank} called {join(others)}; one all_reduce for each piece "
            "is enough.",
            rank=rank,
        )
    rule = {"each": _each, "buckets": _buckets, "total": _total}[text(case.about, "rule")]
    return rule(case, rank, step, calls) or _waited_at_once(parts, rank, step, run)


def _each(case: Case, rank: int, step: int, calls: list[tuple[str, CollectiveCall]]) -> Finding | None:
    model = models_of(case)[0]
    due: dict[str, list[int]] = {part: [] for part in PARTS}
    for name, size in trained(model):
        due[ready_part(name, model)].append(size)
    came: dict[str, list[int]] = {part: [] for part in PARTS}
    for part, call in calls:
        came[part].append(call.bytes)
    if sorted(c.bytes for _, c in calls) != sorted(size for _, size in trained(model)):
        return _wrong_pieces(rank, [size for _, size in reversed(trained(model))], [c.bytes for _, c in calls])
    late = next((part for part in PARTS if sorted(due[part]) != sorted(came[part])), None)
    return None if late is None else _late(rank, step, "a gradient", late, calls)


def _wrong_pieces(rank: int, wanted: list[int], got: list[int]) -> Finding:
    return Finding(
        "",
        message=f"The gradients are right, but rank {rank} all-reduces {plural(len(got), 'piece')}, {sum(got)} bytes "
        f"together; the trained parameters are {len(wanted)}, {sum(wanted)} bytes together.",
        expected=f"bytes {wanted}, in an order of your backward",
        got=f"bytes {got}",
        rank=rank,
    )


def _late(rank: int, step: int, what: str, part: str, calls: list[tuple[str, CollectiveCall]]) -> Finding:
    during = sum(place != "finish" for place, _ in calls)
    return Finding(
        "",
        message=f"The gradients are right, but in step {step} rank {rank} does not send {what} as soon as it is "
        f"complete (in the backward of layer {part!r}). Of {plural(len(calls), 'all_reduce')} {during} began before "
        "backward had ended.",
        rank=rank,
    )


def _buckets(case: Case, rank: int, step: int, calls: list[tuple[str, CollectiveCall]]) -> Finding | None:
    model = models_of(case)[0]
    names = [name for name, _ in trained(model)]
    sizes = [size for _, size in trained(model)]
    pieces = [call.bytes for _, call in calls]
    cap = int(cast(float, case.inputs[0]["cap"]) * 2**20)
    plan = partition(sizes, pieces)
    if plan is None and in_another_order(sizes, pieces):
        return Finding(
            "",
            message=f"The gradients are right, but rank {rank} sends its buckets in another order than that of the "
            "plan, from the last parameter to the first.",
            expected=f"buckets cut from {list(reversed(sizes))} bytes, in this order, cap {cap}",
            got=f"bytes {pieces}",
            rank=rank,
        )
    if plan is None:
        return Finding(
            "",
            message=f"The gradients are right, but the all_reduces of rank {rank} are not buckets of consecutive "
            f"parameters from the last to the first: {sum(pieces)} bytes travelled, the trained parameters have "
            f"{sum(sizes)}.",
            expected=f"buckets cut from {list(reversed(sizes))} bytes, cap {cap}",
            got=f"bytes {pieces}",
            rank=rank,
        )
    for rule in broken_rules(plan, sizes, cap):
        return Finding("", message=f"The gradients are right. {rule.text}", got=f"bytes {pieces}, cap {cap}")
    ready = 0
    for number, (bucket, (part, _)) in enumerate(zip(plan, calls, strict=True)):
        ready = max([ready, *(PARTS.index(ready_part(names[index], model)) for index in bucket)])
        if PARTS.index(part) > ready:
            return _late(rank, step, f"bucket {number}", PARTS[ready], calls)
    return None


def _total(case: Case, rank: int, step: int, calls: list[tuple[str, CollectiveCall]]) -> Finding | None:
    sizes = [size for _, size in trained(models_of(case)[0])]
    sent, least = sum(call.bytes for _, call in calls), sum(sizes)
    most = least + 8 * len(sizes) + 64
    if not least <= sent <= most:
        return Finding(
            "",
            message=f"In step {step} rank {rank} all-reduces {sent} bytes; the gradients of all trained parameters, "
            f"used or not, have {least}, and flags for who used what need at most {most - least} more.",
            expected=f"{least} to {most} bytes",
            got=f"{sent} bytes",
            rank=rank,
        )
    if len(calls) > 2 * len(sizes):  # one for each gradient, and one for its flag
        said = f"In step {step} rank {rank} calls all_reduce {len(calls)} times for {len(sizes)} gradients"
        return Finding("", message=f"{said}: send each in one piece, or many in a bucket.", rank=rank)
    return None


def waits_in_backward(case: Case, wire: Wire) -> bool:
    """Return whether a rank waited for an all_reduce while its backward had more layers to compute."""
    for rank in range(case.world_size):
        parts = stretches(case, wire, rank)
        if parts is None:
            return False
        for number, step in enumerate(steps_of(case)):
            if any(_waited_at_once(parts, rank, number, run) for run in range(len(step["x"]))):
                return True
    return False


def _waited_at_once(parts: list[Stretch], rank: int, step: int, run: int) -> Finding | None:
    """Return what is wrong if an all_reduce was waited for while backward had more layers to compute."""
    inside = [s for s in parts if (s.step, s.run) == (step, run) and s.part in PARTS[:-2]]
    waited = [call for s in inside for call in s.calls if call.waited is not None and _before_mark(call, s, parts)]
    if not waited:
        return None
    return Finding(
        "",
        message=f"The gradients are right, but in step {step} rank {rank} waits for {plural(len(waited), 'all_reduce')}"
        " while backward still has layers to compute: nothing overlaps.",
        rank=rank,
    )


def _before_mark(call: CollectiveCall, stretch: Stretch, parts: list[Stretch]) -> bool:
    """Return whether a call was waited for before the barrier that ends its stretch."""
    barriers = parts.index(stretch)  # as many of the driver's barriers lie before this stretch
    calls_before = sum(len(s.calls) for s in parts[: barriers + 1])
    position_of_barrier = calls_before + barriers
    return call.waited is not None and call.waited <= position_of_barrier


__all__ = ["PARTS", "steps_of", "truth", "wrong_training", "wrong_values", "wrong_wire"]
