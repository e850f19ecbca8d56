"""What a training step must bring: gradients, loss, messages, order; and a wrong one in words, by its mistake."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.as_if import Way, as_if
from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import difference
from labkit.checks.finding import Finding
from labkit.checks.tensor_values import ratio_of
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.values import integer, integers, record, tensor, texts
from labkit.checks.wire import Wire
from labkit.exercises.stages import training_mistakes as mistakes
from labkit.exercises.stages.pipeline_cases import (
    Weigh,
    expected,
    gradients,
    gradients_of_echoes,
    members,
    num_stages,
    pipelines_of,
    sizes_of,
    stage_of,
)
from labkit.exercises.stages.written import short
from labkit.words import plural, times

Gradients = Mapping[str, "Tensor | None"]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with gradients and loss of the whole batch, and which message of the schedule is lost."""
    yield from _calls(wire)
    yield from _results(case, got, wire)
    yield from _afterwards(case, got, wire)


def find_in_order(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the same, and whether forwards and backwards ran in the schedule's order."""
    yield from _calls(wire)
    yield from _results(case, got, wire)
    yield from _order(case, got)
    yield from _afterwards(case, got, wire)


def _calls(wire: Wire) -> Iterator[Finding]:
    return (replace(each, mistake=mistakes.LIBRARY.name) for each in library_calls(wire))


def _afterwards(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    yield from _forwards(case, got)
    yield from _buffers(case, got)
    yield from _messages(case, wire)
    for each in lost_messages(wire):
        late = each.problem is not None and each.problem.kind in ("unmatched_recv", "changed_in_flight")
        yield replace(each, mistake=mistakes.NOT_WAITED.name if late else "")


def _results(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield each gradient and loss that is wrong by more than rounding, relative to the largest element."""
    for each in _wrong_gradients(case, got, 1e-9):
        yield replace(each, mistake=_of_results(case, got, wire))
    yield from _wrong_losses(case, got, 1e-9)


def _wrong_gradients(case: Case, got: tuple[Values, ...], slack: float) -> Iterator[Finding]:
    for rank, right in enumerate(expected(case)):
        if "grads" not in right:
            continue
        where = f"stage {stage_of(case, rank)} (rank {rank})"
        yield from wrong_gradient(rank, where, got[rank]["grads"], record(right, "grads"), slack)


def _wrong_losses(case: Case, got: tuple[Values, ...], slack: float) -> Iterator[Finding]:
    for rank, right in enumerate(expected(case)):
        if "grads" in right:
            yield from wrong_loss(rank, got[rank], cast("Tensor | None", right["loss"]), slack)


def _of_results(case: Case, got: tuple[Values, ...], wire: Wire) -> str:
    """Return the mistake that wrong gradients point to, or ""."""
    last, ranks = num_stages(case) - 1, members(case)
    came: Sequence[Gradients] = [cast(Gradients, got[rank]["grads"]) for rank in ranks]
    if any(len(got[rank]["wanted_gradient"]) < _num_forwards(case, rank) for rank in ranks):  # type: ignore[arg-type]
        return mistakes.LEFT_UNDONE.name
    if any(stage_of(case, rank) and not any(got[rank]["wanted_gradient"]) for rank in ranks):  # type: ignore[arg-type]
        return mistakes.NO_LEAF.name
    have = [_moved(case, rank, grads) for rank, grads in zip(ranks, came, strict=True)]
    went = [any(event != "F" for event in texts(got[rank], "events")) for rank in ranks]
    if any(backward and not each for backward, each in zip(went, have, strict=True)):
        return mistakes.NO_GRADS.name
    if not any(have):
        return mistakes.FORWARD_ONLY.name
    if last and all(each == (stage_of(case, rank) == last) for rank, each in zip(ranks, have, strict=True)):
        return mistakes.LAST_ONLY.name
    if any(have) and not all(backward or each for backward, each in zip(went, have, strict=True)):
        return mistakes.NOT_CONNECTED.name
    name = mistakes.ONE_ROOM.name if any(got[rank]["shared"] for rank in ranks) else as_if(came, _ways(case), _same)
    if name:
        return name
    if next(_wrong_gradients(case, got, 1e-6), None) is None and next(_wrong_losses(case, got, 1e-6), None) is None:
        return mistakes.FLOAT32.name
    if wire.problems_of("not_waited", "unmatched_recv", "changed_in_flight"):
        return mistakes.NOT_WAITED.name
    return mistakes.ROOM.name if any(_of_other_sizes(case, rank, wire) for rank in ranks) else ""


def _of_other_sizes(case: Case, rank: int, wire: Wire) -> bool:
    """Return whether a rank's messages are as many as they should be and of other sizes: gloo lets them pass."""
    wanted, sent = planned_messages(case, rank), [(m.dst, m.bytes) for m in wire.messages if m.src == rank]
    return wanted != sent and [dst for dst, _ in wanted] == [dst for dst, _ in sent]


def _forwards(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield which stage ran its module more often than it should."""
    for rank in members(case):
        ran, wanted = texts(got[rank], "events").count("F"), _num_forwards(case, rank)
        if ran > wanted:
            text = f"Stage {stage_of(case, rank)} (rank {rank}) ran its module {times(ran)}, expected {times(wanted)}."
            yield Finding(mistakes.FORWARD_AGAIN.name, text, str(wanted), str(ran), rank)


def _num_forwards(case: Case, rank: int) -> int:
    """Return how often a member runs its module: once for each microbatch of a schedule, or once."""
    inputs = case.inputs[rank]
    return len(integers(inputs, "sizes")) if "schedule" in inputs else 1


def _moved(case: Case, rank: int, grads: Gradients) -> bool:
    """Return whether a member has a gradient that it did not have before."""
    before = cast(Gradients, case.inputs[rank].get("before") or {})
    return any(
        grad is not None and not ((old := before.get(name)) is not None and torch.equal(grad, old))
        for name, grad in grads.items()
    )


def _ways(case: Case) -> Iterator[Way[Sequence[Gradients]]]:
    """Yield wrong steps that learners make, each with every member's gradients after it."""

    def weighed(weigh: Weigh, before: bool = True) -> Any:
        return lambda: gradients(case, weigh, before=before)[0]

    last = [each["microbatch"] for each in schedule_of(case, members(case)[0]) if each["kind"] == "Backward"][-1]
    yield mistakes.NOT_SCALED.name, weighed(lambda number, sizes, everybody: 1.0)
    yield mistakes.MEAN_OF_MEANS.name, weighed(lambda number, sizes, everybody: 1 / len(sizes))
    yield mistakes.SUM_OF_SAMPLES.name, weighed(lambda number, sizes, everybody: float(sizes[number]))
    yield mistakes.FORGOT_OLD.name, weighed(lambda number, sizes, everybody: sizes[number] / everybody, before=False)
    for before in (True, False):
        for weigh in (lambda number, sizes, everybody: sizes[number] / everybody, lambda number, sizes, everybody: 1.0):
            yield (
                mistakes.OVERWRITTEN.name,
                weighed(
                    lambda number, sizes, everybody, weigh=weigh: (  # type: ignore[misc]
                        weigh(number, sizes, everybody) if number == last else 0.0
                    ),
                    before,
                ),
            )
    yield mistakes.ECHO.name, lambda: gradients_of_echoes(case)
    yield mistakes.OWN_SUM.name, lambda: gradients_of_echoes(case, of_sums=True)
    yield mistakes.FIRST_AGAIN.name, lambda: gradients(case, pair=lambda number, count: 0)[0]
    yield (
        mistakes.PIPELINE_SHARE.name,
        weighed(lambda number, sizes, everybody: sizes[number] / everybody / num_stages(case)),
    )
    yield mistakes.SCALED_AGAIN.name, weighed(lambda number, sizes, everybody: sizes[number] / everybody / len(sizes))
    yield mistakes.SCALED_AGAIN.name, weighed(lambda number, sizes, everybody: 1 / everybody)
    yield mistakes.SCALED_AGAIN.name, weighed(lambda number, sizes, everybody: (sizes[number] / everybody) ** 2)
    yield mistakes.SCALED_AGAIN.name, lambda: _scaled_by_each_stage(case)
    yield mistakes.MEAN_OF_PRODUCT.name, lambda: _means_of_products(case)


def _means_of_products(case: Case) -> list[Gradients]:
    """Return each member's gradients where every stage but the last divides them by the entries of its output."""
    found: list[Gradients] = []
    ranks, last = members(case), num_stages(case) - 1
    for place, rank in enumerate(ranks):
        behind = [tensor(case.inputs[ranks[each + 1]], "sample").numel() for each in range(stage_of(case, rank), last)]

        def weigh(number: int, sizes: list[int], everybody: int, behind: list[int] = behind) -> float:
            return sizes[number] / everybody / math.prod(sizes[number] * entries for entries in behind)

        found.append(gradients(case, weigh)[0][place])
    return found


def _scaled_by_each_stage(case: Case) -> list[Gradients]:
    """Return each member's gradients where every stage weighs what comes back once more."""
    found: list[Gradients] = []
    for place, rank in enumerate(members(case)):
        power = num_stages(case) - stage_of(case, rank)
        weighed = gradients(case, lambda number, sizes, everybody, power=power: (sizes[number] / everybody) ** power)  # type: ignore[misc]
        found.append(weighed[0][place])
    return found


def _same(came: Sequence[Gradients], other: Sequence[Gradients]) -> bool:
    return all(
        gradient_difference(mine.get(name), grad) is None
        for mine, grads in zip(came, other, strict=True)
        for name, grad in grads.items()
    )


def wrong_gradient(
    rank: int, where: str, came: Any, wanted: Mapping[str, Any], slack: float = 1e-9
) -> Iterator[Finding]:
    """Yield each gradient of a rank that is wrong, by name; `where` says it to the learner."""
    for name, gradient in wanted.items():
        text = gradient_difference(came.get(name), gradient, slack)
        if text:
            said = f"The gradients are not those of the whole batch. First on {where}, gradient of {name}: {text[0]}."
            yield Finding("", said + _as_a_factor(came.get(name), gradient), text[1], text[2], rank)


def _as_a_factor(came: Any, wanted: Tensor | None) -> str:
    """Return by which factor all of a gradient is off, in a sentence, "" where there is none."""
    if not isinstance(came, Tensor) or wanted is None or came.shape != wanted.shape or came.numel() < 2:
        return ""
    ratio = ratio_of(came.to(wanted.dtype), wanted)
    return "" if ratio is None else f" All of it is {ratio:.6g} times what it should be."


def gradient_difference(found: Any, gradient: Tensor | None, slack: float = 1e-9) -> tuple[str, str, str] | None:
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


def wrong_loss(rank: int, values: Values, loss: Tensor | None, slack: float) -> Iterator[Finding]:
    """Yield what a rank returned in place of the loss, or of None where none is asked for."""
    returned = values["returned"]
    if loss is None:
        if returned != "NoneType":
            said = f"Rank {rank} does not hold the last stage and returned a {returned}, not None."
            yield Finding(mistakes.LOSS_EVERYWHERE.name, said, rank=rank)
        return
    came = values["loss"]
    if not isinstance(came, Tensor) or returned in ("float", "int"):
        said = f"The last stage (rank {rank}) returned {returned}, not the loss as a tensor."
        name = mistakes.NO_TENSOR.name if came is not None else mistakes.NO_LOSS.name if returned == "NoneType" else ""
        yield Finding(name, said, got=str(returned), rank=rank)
    elif came.numel() == 1 and came.dtype != loss.dtype:
        said = f"The last stage (rank {rank}) returned its loss as {came.dtype}; it is {loss.dtype}."
        yield Finding(mistakes.FLOAT32.name, said, str(loss.dtype), str(came.dtype), rank)
    elif came.numel() != 1 or abs(float(came) - float(loss)) > slack * (1 + abs(float(loss))):
        text = f"{float(came):.7g}" if came.numel() == 1 else f"a tensor of shape {tuple(came.shape)}"
        said = f"The last stage (rank {rank}) returned the loss {text}; the mean over the whole batch is "
        yield Finding(mistakes.OTHER_LOSS.name, f"{said}{float(loss):.7g}.", f"{float(loss):.7g}", text, rank)
    elif values["attached"]:
        said = "The returned loss still holds on to its graph, and with it all activations: detach it."
        yield Finding(mistakes.STILL_ATTACHED.name, said)


def planned_messages(case: Case, rank: int) -> list[tuple[int, int]]:
    """Return (peer, bytes) of each message a rank has to send, in order; empty messages are left out."""
    (row,) = [ranks for ranks in pipelines_of(case) if rank in ranks]
    stage, sizes = stage_of(case, rank), sizes_of(case, rank)
    found = []
    for each in schedule_of(case, rank):
        kind, number = each["kind"], integer(each, "microbatch")
        if kind == "Send":
            found.append((row[stage + 1], sizes[number] * _sample_bytes(case, row[stage + 1])))
        elif kind == "SendGrad":
            found.append((row[stage - 1], sizes[number] * _sample_bytes(case, rank)))
    return found


def _sample_bytes(case: Case, rank: int) -> int:
    sample = tensor(case.inputs[rank], "sample")
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


def _messages(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield which rank sent other messages than its schedule has, to one peer in another order."""
    for rank in members(case):
        wanted, sent = planned_messages(case, rank), [(m.dst, m.bytes) for m in wire.messages if m.src == rank]
        if len(wanted) != len(sent):
            due = "its schedule has" if "schedule" in case.inputs[rank] else "expected"
            said = f"Rank {rank} sent {plural(len(sent), 'message')}; {due} {len(wanted)}."
            yield Finding("", said, plural(len(wanted), "message"), plural(len(sent), "message"), rank)
        for peer in sorted({dst for dst, _ in wanted} | {dst for dst, _ in sent}):
            ours, theirs = ([size for dst, size in each if dst == peer] for each in (wanted, sent))
            if ours != theirs:
                name = "" if peer in members(case) else mistakes.GLOBAL_RANKS.name
                said = f"Rank {rank} sent messages of {theirs} bytes to rank {peer}; its schedule has {ours}."
                yield Finding(name, said, str(ours), str(theirs), rank)


def _buffers(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield which stage's buffer is not what one forward of each microbatch leaves there."""
    for rank, right in enumerate(expected(case)):
        text = gradient_difference(got[rank]["seen"], tensor(right, "seen")) if "seen" in right else None
        if text is not None:
            said = (
                f"The gradients are right, but a buffer of stage {stage_of(case, rank)} (rank {rank}) is not what one "
                f"forward of each microbatch leaves there: {text[0]}."
            )
            yield Finding(mistakes.FORWARD_AGAIN.name, said, text[1], text[2], rank)


def _order(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield which rank ran forwards and backwards in another order than its schedule, or kept too much."""
    for rank in members(case):
        work = [each for each in schedule_of(case, rank) if each["kind"] in ("Forward", "Backward")]
        order = [integer(each, "microbatch") for each in work if each["kind"] == "Forward"]
        wanted = [short(each) for each in work]
        events, sizes = texts(got[rank], "events"), integers(got[rank], "sizes")
        calls = iter(order)
        came = [
            f"F{next(calls, '?')}"
            if event == "F"
            else f"B{order[int(event[1:])] if int(event[1:]) < len(order) else '?'}"
            for event in events
        ]
        stage = f"Stage {stage_of(case, rank)} (rank {rank})"
        if came != wanted or sizes != [sizes_of(case, rank)[number] for number in order]:
            ran = " ".join(came) + (f" with sizes {sizes}" if came == wanted else "")
            again = events.count("F") > len(order)
            name = mistakes.FORWARD_AGAIN.name if again else mistakes.NOT_FOLLOWED.name
            yield Finding(name, f"{stage} did not follow its schedule.", " ".join(wanted), ran, rank)
        bound, held = _most_held(wanted), integer(got[rank], "held")
        if held > bound + 1:
            said = (
                f"{stage} held the outputs of {held} microbatches at once; its schedule never has more than {bound} "
                "that have gone forward and not backward."
            )
            yield Finding(mistakes.KEPT.name, said, f"at most {bound}", str(held), rank)


def _most_held(work: Sequence[str]) -> int:
    now = most = 0
    for each in work:
        now += 1 if each[0] == "F" else -1
        most = max(most, now)
    return most
