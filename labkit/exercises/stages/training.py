"""What a training step must bring: gradients, loss, messages, order; and a wrong one in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.compare import difference
from labkit.checks.judged import first_verdict
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.stages.pipeline_cases import (
    Pair,
    Weigh,
    expected,
    gradients,
    members,
    num_stages,
    pipelines_of,
    right_weight,
    sizes_of,
    stage_of,
)
from labkit.exercises.stages.written import short
from labkit.words import plural

Seen = Callable[[Case, Got, Wire], bool]


def wrong_results(case: Case, got: tuple[Values, ...], slack: float = 1e-9) -> Verdict | None:
    """Return a verdict if a gradient or the loss is wrong by more than slack, relative to the largest element."""
    for rank, right in enumerate(expected(case)):
        if "grads" not in right:
            continue
        where = f"stage {stage_of(case, rank)} (rank {rank})"
        wrong = wrong_gradient(rank, where, got[rank].get("grads"), cast(Mapping[str, Any], right["grads"]), slack)
        if wrong is not None:
            return wrong
        verdict = wrong_loss(rank, got[rank], cast("Tensor | None", right["loss"]), slack)
        if verdict is not None:
            return verdict
    return None


def wrong_gradient(rank: int, where: str, came: Any, wanted: Mapping[str, Any], slack: float = 1e-9) -> Verdict | None:
    """Return a verdict on the first gradient of a rank that is wrong, by name; `where` says it to the learner."""
    for name, gradient in wanted.items():
        text = apart(came.get(name) if isinstance(came, dict) else None, gradient, slack)
        if text:
            return Verdict(
                False,
                message=f"The gradients are not those of the whole batch. First on {where}, gradient of {name}: "
                f"{text[0]}.",
                expected=text[1],
                got=text[2],
                rank=rank,
            )
    return None


def apart(found: Any, gradient: Tensor | None, slack: float = 1e-9) -> tuple[str, str, str] | None:
    """Return where a gradient is wrong, what it should be there and what it is; None where it is right."""
    if gradient is None:
        return None if found is None else ("there should be none", "None", "a tensor")
    if found is None:
        return "there is none", "a tensor", "None"
    allowed = torch.full(gradient.shape, slack * (1.0 + float(gradient.abs().max())), dtype=torch.float64)
    wrong = difference(found, gradient, allowed)
    if wrong is None:
        return None
    place = f"element {wrong.index}" if wrong.index >= 0 else f"its {wrong.what}"
    return f"{place} is {wrong.got}, expected {wrong.expected}", wrong.expected, wrong.got


def wrong_loss(rank: int, values: Values, loss: Tensor | None, slack: float) -> Verdict | None:
    """Return a verdict if a rank returned something else than the loss, or than None where none is asked for."""
    returned = values.get("returned")
    if loss is None:
        if returned == "NoneType":
            return None
        return Verdict(
            False, message=f"Rank {rank} does not hold the last stage and returned a {returned}, not None.", rank=rank
        )
    came = values.get("loss")
    if not isinstance(came, Tensor) or returned in ("float", "int"):
        return Verdict(
            False,
            message=f"The last stage (rank {rank}) returned {returned}, not the loss as a tensor.",
            got=str(returned),
            rank=rank,
        )
    if came.numel() != 1 or abs(float(came) - float(loss)) > slack * (1 + abs(float(loss))):
        text = f"{float(came):.7g}" if came.numel() == 1 else f"a tensor of shape {tuple(came.shape)}"
        return Verdict(
            False,
            message=f"The last stage (rank {rank}) returned the loss {text}; the mean over the whole batch is "
            f"{float(loss):.7g}.",
            expected=f"{float(loss):.7g}",
            got=text,
            rank=rank,
        )
    if values.get("attached"):
        return Verdict(
            False, message="The returned loss still holds on to its graph, and with it all activations: detach it."
        )
    return None


def planned_messages(case: Case, rank: int) -> list[tuple[int, int]]:
    """Return (peer, bytes) of each message a rank has to send, in order; empty messages are left out."""
    (row,) = [ranks for ranks in pipelines_of(case) if rank in ranks]
    stage, sizes = stage_of(case, rank), sizes_of(case, rank)
    found = []
    for record in schedule_of(case, rank):
        kind, number = record["kind"], cast(int, record["microbatch"])
        if kind == "Send":
            found.append((row[stage + 1], sizes[number] * _sample_bytes(case, row[stage + 1])))
        elif kind == "SendGrad":
            found.append((row[stage - 1], sizes[number] * _sample_bytes(case, rank)))
    return found


def _sample_bytes(case: Case, rank: int) -> int:
    sample = cast(Tensor, case.inputs[rank]["sample"])
    return sample.numel() * sample.element_size()


def schedule_of(case: Case, rank: int) -> list[dict[str, Value]]:
    """Return the schedule a rank was given; for the whole batch at once, the one it comes to."""
    given = case.inputs[rank].get("schedule")
    if given is not None:
        return cast(list[dict[str, Value]], given)
    stage, last = stage_of(case, rank), num_stages(case) - 1
    sends = [{"kind": "Send", "microbatch": 0}] if stage < last else []
    returns = [{"kind": "SendGrad", "microbatch": 0}] if stage > 0 else []
    return cast(
        list[dict[str, Value]],
        [{"kind": "Forward", "microbatch": 0}, *sends, {"kind": "Backward", "microbatch": 0}, *returns],
    )


def wrong_messages(case: Case, wire: Wire) -> Verdict | None:
    """Return a verdict if a rank sent other messages than its schedule has, to one peer in another order."""
    for rank in members(case):
        wanted, sent = planned_messages(case, rank), [(m.dst, m.bytes) for m in wire.messages if m.src == rank]
        if len(wanted) != len(sent):
            return Verdict(
                False,
                message=f"Rank {rank} sent {plural(len(sent), 'message')}; its schedule has {len(wanted)}.",
                expected=plural(len(wanted), "message"),
                got=plural(len(sent), "message"),
                rank=rank,
            )
        for peer in sorted({dst for dst, _ in wanted} | {dst for dst, _ in sent}):
            ours, theirs = ([size for dst, size in each if dst == peer] for each in (wanted, sent))
            if ours != theirs:
                return Verdict(
                    False,
                    message=f"Rank {rank} sent messages of {theirs} bytes to rank {peer}; its schedule has {ours}.",
                    expected=str(ours),
                    got=str(theirs),
                    rank=rank,
                )
    return None


def judge_step(case: Case, got: Got, wire: Wire, *, follows: bool = False, collectives: bool = False) -> Verdict:
    """Return whether gradients and loss are those of the whole batch, and every message of the schedule arrived.

    Args:
        case: The step.
        got: What came.
        wire: What passed.
        follows: Whether forwards and backwards must run in the schedule's order too.
        collectives: Whether collectives of the library may be called.
    """
    assert isinstance(got, tuple)
    return (
        (None if collectives else first_verdict(library_calls(wire)))
        or wrong_results(case, got)
        or (wrong_order(case, got) if follows else None)
        or wrong_buffer(case, got)
        or wrong_messages(case, wire)
        or first_verdict(lost_messages(wire))
        or Verdict(True)
    )


def wrong_buffer(case: Case, got: tuple[Values, ...]) -> Verdict | None:
    """Return a verdict if a stage's buffer is not what one forward of each microbatch leaves there."""
    for rank, right in enumerate(expected(case)):
        text = apart(got[rank].get("seen"), cast(Tensor, right["seen"])) if "seen" in right else None
        if text is not None:
            return Verdict(
                False,
                message=f"The gradients are right, but a buffer of stage {stage_of(case, rank)} (rank {rank}) is not "
                f"what one forward of each microbatch leaves there: {text[0]}.",
                expected=text[1],
                got=text[2],
                rank=rank,
            )
    return None


def wrong_order(case: Case, got: tuple[Values, ...]) -> Verdict | None:
    """Return a verdict if a rank ran forwards and backwards in another order than its schedule, or kept too much."""
    for rank in members(case):
        work = [record for record in schedule_of(case, rank) if record["kind"] in ("Forward", "Backward")]
        order = [record["microbatch"] for record in work if record["kind"] == "Forward"]
        wanted = [short(record) for record in work]
        events = cast(list[str], got[rank].get("events") or [])
        sizes = cast(list[int], got[rank].get("sizes") or [])
        calls = iter(order)
        came = [
            f"F{next(calls, '?')}"
            if event == "F"
            else f"B{order[int(event[1:])] if int(event[1:]) < len(order) else '?'}"
            for event in events
        ]
        if came != wanted or sizes != [sizes_of(case, rank)[cast(int, number)] for number in order]:
            return Verdict(
                False,
                message=f"Stage {stage_of(case, rank)} (rank {rank}) did not follow its schedule.",
                expected=" ".join(wanted),
                got=" ".join(came) + (f" with sizes {sizes}" if came == wanted else ""),
                rank=rank,
            )
        bound, held = _most_held(wanted), cast(int, got[rank].get("held") or 0)
        if held > bound + 1:
            return Verdict(
                False,
                message=f"Stage {stage_of(case, rank)} (rank {rank}) held the outputs of {held} microbatches at once; "
                f"its schedule never has more than {bound} that have gone forward and not backward.",
                expected=f"at most {bound}",
                got=str(held),
                rank=rank,
            )
    return None


def _most_held(work: Sequence[str]) -> int:
    now = most = 0
    for each in work:
        now += 1 if each[0] == "F" else -1
        most = max(most, now)
    return most


def results_as_if(weigh: Weigh = right_weight, pair: Pair = lambda number, count: number, before: bool = True) -> Seen:
    """Return whether all gradients are those of a known wrong step (and not the right ones)."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple) or wrong_results(case, got) is None:
            return False
        wrong, _ = gradients(case, weigh, pair, before)
        right, _ = gradients(case)
        differs = False
        for rank, grads, good in zip(members(case), wrong, right, strict=True):
            came = got[rank].get("grads")
            if not isinstance(came, dict):
                return False
            for name, gradient in grads.items():
                if apart(came.get(name), gradient) is not None:
                    return False
                differs = differs or apart(good[name], gradient) is not None
        return differs

    return seen


def grads_of(case: Case, got: Got, rank: int) -> dict[str, Any]:
    """Return a member's gradients by name; empty where there are none."""
    came = got[rank].get("grads") if isinstance(got, tuple) else None
    before = case.inputs[rank].get("before") or {}
    if not isinstance(came, dict) or not isinstance(before, dict):
        return {}
    return {
        name: value
        for name, value in came.items()
        if isinstance(value, Tensor) and not (name in before and torch.equal(value, cast(Tensor, before[name])))
    }
