"""mini_ddp: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.cut_wire import between_barriers
from labkit.checks.declared import Mistake, declared, either
from labkit.checks.finding import Finding
from labkit.checks.tensor_values import at, close
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.averaging import least_traffic, marks
from labkit.exercises.averaging.cases import training_case
from labkit.exercises.averaging.gradient_marks import times
from labkit.exercises.averaging.replay import expected, models_of
from labkit.exercises.averaging.stretches import MARKS, labels, stretches, trained
from labkit.exercises.averaging.training import steps_of, truth, wrong_training
from labkit.exercises.averaging.wrappers import PASSES, ROOT_ALONE, SENT_QUIETLY, left_behind, not_all_copied_back
from labkit.exercises.ddp_for_real_models.mini_ddp.driver import drive
from labkit.words import join


def mini_case(
    name: str,
    seed: int,
    world_size: int,
    spare: dict[int, list[int]],
    perfect: int | None = None,
    quiet: int | None = None,
    counted: tuple[int, int] | None = None,
    idle: tuple[int, int] | None = None,
    **model: int,
) -> Case:
    """Return a case of mini_ddp.

    Args:
        name: What is special about it.
        seed: Draws models and batches.
        world_size: Ranks.
        spare: Step -> ranks that use the spare layer in it.
        perfect: A step whose gradients are zero.
        quiet: A step of two passes, the first inside no_sync; the spare layer is used only there.
        counted: A step and a rank that has counted one batch more before it.
        idle: A step and a rank that uses no parameter in it: it makes no backward.
        model: Options of the hard model.
    """
    steps: list[dict[str, object]] = [{"perfect": True} if number == perfect else {} for number in range(3)]
    if quiet is not None:
        steps[quiet] = {"passes": 2, "quiet": 1, "spare_passes": 1}
    if idle is not None:
        steps[idle[0]]["idle"] = [idle[1]]
    return training_case(
        name, seed, world_size, wrapper="MiniDDP", rule="total", steps=steps, model=model, buffers=True, spare=spare,
        counted=counted, evaluated=model.get("norm", 1) > 0,
    )  # fmt: skip


_EVALUATED = "buffers sent in evaluation"


def _evaluation(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield which rank sends something when the model is evaluated."""
    for rank in range(case.world_size):
        for part in stretches(case, wire, rank) or []:
            if part.part == "evaluate" and part.calls:
                kinds = join(sorted({call.kind for call in part.calls}))
                text = f"In evaluation rank {rank} calls {kinds}; nothing must travel then."
                yield Finding(_EVALUATED, text, rank=rank, call=part.calls[0].sequence)


def _zeros_are_none(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether nothing is wrong but gradients of a step in which all are zero: they are None."""
    wrong = [n for n, step in enumerate(steps_of(case)) if marks.wrong_names(case, got, n) and not step.get("perfect")]
    right = isinstance(got, tuple) and not wrong
    return right and any(
        step.get("perfect") and marks.wrong_names(case, got, n) for n, step in enumerate(steps_of(case))
    )


def _unused_got_zeros(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    for number in range(len(steps_of(case))):
        if marks.wrong_names(case, got, number) - set(marks.SPARE):
            return False
        for values, wanted in zip(got, truth(case).expected, strict=True):
            came = _gradients(values, number)
            right = _gradients(wanted, number)
            if any(right.get(name) is None and came.get(name) is not None for name in marks.SPARE if name in right):
                return True
    return False


def _gradients(values: object, step: int) -> dict[str, Value]:
    try:
        return cast(dict[str, Value], cast(dict[str, list[dict[str, object]]], values)["steps"][step]["gradients"])
    except (KeyError, IndexError, TypeError):
        return {}


def _of_users_alone(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether nothing is wrong but what only some ranks used, which is divided by their number."""
    wrong = 0
    for number in range(len(steps_of(case))):
        users = sum(own[marks.SPARE[0]] is not None for own in truth(case).own[number])
        for name, shares in marks.gradient_marks(case, got, number).items():
            if shares != {"mean"}:
                wrong += 1
                if name not in marks.SPARE or not users or not shares <= {"own", times(case.world_size / users)}:
                    return False
    return wrong > 0


def _an_old_gradient(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether ranks that did not use a layer put in what it had in an earlier step: their own, or the mean."""
    if not isinstance(got, tuple):
        return False
    for number in range(1, len(steps_of(case))):
        for name in marks.wrong_names(case, got, number):
            came = [_gradients(values, number).get(name) for values in got]
            for left in _left_over(case, number, name):
                if left is not None and all(close(each, left) for each in came):
                    return True
    return False


def _left_over(case: Case, step: int, name: str) -> Iterator[Tensor | None]:
    """Yield the mean if a rank without a gradient adds its last own one, and if it adds the last mean."""
    for means in (False, True):
        parts: list[Tensor | None] = []
        for rank in range(case.world_size):
            of_steps = [own[rank][name] for own in truth(case).own[: step + 1]]
            before = [_gradients(truth(case).expected[rank], n).get(name) for n in range(step)]
            old = [each for each in (before if means else of_steps[:-1]) if isinstance(each, Tensor)]
            parts.append(of_steps[-1] if of_steps[-1] is not None else old[-1] if old else None)
        there = [each for each in parts if each is not None]
        yield torch.stack(there).sum(0) / case.world_size if there else None


def _only_a_later_step(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first step is right and a later one, which asks no more of the wrapper, is not."""
    if not marks.only_later_steps(case, got, wire):
        return False
    more = ("quiet", "perfect", "idle")
    wrong = (n for n in range(len(steps_of(case))) if marks.wrong_names(case, got, n) - set(marks.SPARE))
    first = next(wrong, None)
    return first is not None and not any(steps_of(case)[first].get(what) for what in more)


def _another_collective(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether something else than all_reduce is called while gradients are averaged."""
    parts = stretches(case, wire, 0) or []
    averaging = [each for each in parts if each.part not in ("start", "construct", "forward", "evaluate", "end")]
    return any(call.kind != "all_reduce" for each in averaging for call in each.calls)


def _used_by_some_not_averaged(case: Case, got: Got, wire: Wire) -> bool:
    return any(
        bool(marks.wrong_names(case, got, number)) and marks.wrong_names(case, got, number) <= set(marks.SPARE)
        for number in range(len(steps_of(case)))
    )


def _last_pass_only(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether nothing is wrong but a layer that was used only inside no_sync."""
    steps = steps_of(case)
    wrong = {number: names for number in range(len(steps)) if (names := marks.wrong_names(case, got, number))}
    return isinstance(got, tuple) and any(
        names <= set(marks.SPARE) and "spare_passes" in steps[number] for number, names in wrong.items()
    )


def _buffers_at_the_end(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether nothing but broadcasts of the buffers was called beside the all_reduces of a step."""
    buffers = sum(b.numel() * b.element_size() for b in models_of(case)[0].buffers())
    others: dict[int, list[CollectiveCall]] = {}
    for each in stretches(case, wire, 0) or []:
        if each.part not in ("start", "construct", "forward", "evaluate", "end"):
            others.setdefault(each.step, []).extend(call for call in each.calls if call.kind != "all_reduce")
    called = [calls for calls in others.values() if calls]
    return (
        buffers > 0
        and bool(called)
        and all(
            {call.kind for call in calls} == {"broadcast"} and sum(call.bytes for call in calls) == buffers
            for calls in called
        )
    )


def _leaves_twice(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether ranks wait for one another, and one has sent the bucket twice in a step."""
    due = sum(size for _, size in trained(models_of(case)[0]))
    for rank in range(case.world_size):
        sent: dict[int, int] = {}
        for (step, _, part), calls in zip(labels(case), between_barriers(wire, rank, MARKS), strict=False):
            if part not in ("start", "construct", "forward"):
                sent[step] = sent.get(step, 0) + sum(c.bytes >= due for c in calls if c.kind == "all_reduce")
        if any(count > 1 for count in sent.values()):
            return marks.hangs(case, got, wire)
    return False


def _calls_more_where_unused(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether exactly the ranks that did not use the layer in some step wait in an all_reduce."""
    if not isinstance(got, Failure) or not marks.hangs(case, got, wire):
        return False
    waiting = {wait.rank for wait in got.waits if wait.operation == "all_reduce"}
    users = [{rank for rank, own in enumerate(of) if own[marks.SPARE[0]] is not None} for of in truth(case).own]
    return any(each and waiting and waiting == set(range(case.world_size)) - each for each in users)


def _used_before(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether what nobody uses in a step is None as long as nobody has used it, and has zeros afterwards."""
    if not isinstance(got, tuple):
        return False
    seen: dict[bool, set[bool]] = {False: set(), True: set()}
    used = False
    for number in range(len(steps_of(case))):
        if any(own[marks.SPARE[0]] is not None for own in truth(case).own[number]):
            used = True
        else:
            seen[used] |= {_gradients(values, number).get(marks.SPARE[0]) is not None for values in got}
    return seen == {False: {False}, True: {True}}


def _flags_asked_for_one(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in a step of one pass the ranks that alone used something still have their own, others None."""
    if not isinstance(got, tuple):
        return False
    for number, step in enumerate(steps_of(case)):
        own = [of_rank[marks.SPARE[0]] for of_rank in truth(case).own[number]]
        came = [_gradients(values, number).get(marks.SPARE[0]) for values in got]
        some = any(each is None for each in own) and any(each is not None for each in own)
        if some and not step.get("quiet") and all(close(one, mine) for one, mine in zip(came, own, strict=True)):
            return not marks.wrong_names(case, got, number) - set(marks.SPARE)
    return False


def _averages_buffers(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether forward failed to divide whole numbers that it had added up."""
    failed = marks.says("can't be cast")(case, got, wire)
    return failed and isinstance(got, Failure) and "in forward" in got.detail


def _too_few_bytes(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether less travelled in a step than the gradients of all trained parameters."""
    due = sum(size for _, size in trained(models_of(case)[0]))
    sent = [sum(size for _, size in marks.pieces(case, wire, number)) for number in range(len(steps_of(case)))]
    return isinstance(got, tuple) and any(0 < each < due for each in sent)


def _too_many_bytes(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether more travelled in a step than the gradients and 8 bytes for each of them."""
    sizes = [size for _, size in trained(models_of(case)[0])]
    sent = [sum(size for _, size in marks.pieces(case, wire, number)) for number in range(len(steps_of(case)))]
    return isinstance(got, tuple) and any(each > sum(sizes) + 8 * len(sizes) for each in sent)


def _chatty_forward(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether more than the buffers travelled in a forward pass."""
    buffers = sum(b.numel() * b.element_size() for b in models_of(case)[0].buffers())
    sent = [sum(c.bytes for c in s.calls) for s in stretches(case, wire, 0) or [] if s.part == "forward"]
    return isinstance(got, tuple) and any(each > buffers for each in sent)


def _buffers_drift(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or marks.begun_wrong(case, got):
        return False
    places: list[tuple[object, ...]] = [
        *(("steps", number, "state") for number in range(len(steps_of(case)))),
        ("end",),
    ]
    for values, wanted in zip(got, truth(case).expected, strict=True):
        for place in places:
            came, right = at(values, place), at(wanted, place)
            if isinstance(came, dict) and isinstance(right, dict):
                wrong = {name for name in right if not close(came.get(name), right[name])}
                if wrong:
                    return wrong <= set(marks.BUFFERS)
    return False


MISTAKES = (
    Mistake(_EVALUATED,
            "Only a forward pass in training takes rank 0's buffers: ask self.training; whether gradients are on tells "
            "something else. A rank that evaluates alone would wait for ever."),
    PASSES,
    SENT_QUIETLY,
    marks.TORCH,
    marks.UNWAITED,
    marks.OWN,
    marks.DATA,
    Mistake("not ready for the next step",
            "The first step is right and a later one is not. When finish_gradient_synchronization returns, the wrapper "
            "must stand as at the beginning, with no work and nothing counted: then the next step sends anew.",
            seen=_only_a_later_step),
    Mistake("buffers at the end of the step",
            "Rank 0's buffers go out when the step is over. They are due before each forward in training, also before "
            "a second one of a step: then every rank computes with them.", seen=_buffers_at_the_end),
    Mistake("another collective for the gradients",
            "Gradients, and the answers who used what, travel by all_reduce alone: a sum of flags tells whether "
            "somebody used a parameter. No all_gather, no reduce and no broadcast.", seen=_another_collective),
    Mistake("what was used stays used",
            "A parameter that an earlier step used counts as used in this one, in which nobody used it, and gets "
            "zeros: what notes who used what must be empty when a step is over. Or ask whether grad is None.",
            seen=_used_before),
    Mistake("an unused parameter gets zeros",
            "A parameter that no rank used must keep grad None: with zeros an optimizer with momentum or weight decay "
            "would move it.", seen=_unused_got_zeros),
    Mistake("zero taken for none",
            "A gradient can exist and be zero, so its values do not tell whether the parameter was used. Test whether "
            "grad is None, on every rank, and send the answers.", seen=_zeros_are_none),
    Mistake("no gradient to copy into",
            "Another rank used the parameter and this one did not, so its grad is None and there is no tensor to copy "
            "into: set parameter.grad to a copy of the average.", seen=marks.says("NoneType", "copy_"), certain=True),
    Mistake("None goes into the bucket",
            "grad is None where this rank did not use the parameter. Put zeros in its place, so that the bucket is "
            "equally long on every rank. (Or the bucket left too early: inside no_sync the hook must not count.)",
            seen=marks.says("NoneType", "flatten"), certain=True),
    Mistake("not all copied back",
            "All gradients travelled, but some parameters still have the rank's own: when the bucket is back, go "
            "through all of self.trained and give each its mean.", seen=not_all_copied_back),
    Mistake("the bucket leaves twice",
            "A rank that used every parameter had sent the bucket when backward ended, and "
            "finish_gradient_synchronization sent it again. Launch there only what has not left: self.work is None.",
            seen=_leaves_twice, certain=True),
    Mistake("one call more where it was unused",
            "Ranks that did not use a parameter make an all_reduce that the others do not make. No call may depend on "
            "what a rank itself used: let the flags travel with the bucket, on every rank.",
            seen=_calls_more_where_unused, certain=True),
    ROOT_ALONE,
    Mistake("an unused parameter stops everything",
            "A bucket with a parameter that this rank did not use never gets full, and others wait for it. Launch "
            "what has not left in finish_gradient_synchronization, with zeros, on every rank: also where a rank used "
            "none of it.",
            seen=either(marks.hangs, marks.says("NoneType", "'wait'"), left_behind),
            certain=True),
    Mistake("buffers drift apart",
            "The buffers differ from rank 0's. Before each forward in training, also before a second one of a step, "
            "every rank takes rank 0's as they are, those of whole numbers too: dist.broadcast, no mean.",
            seen=either(_buffers_drift, _averages_buffers), certain=True),
    Mistake("only the last pass tells who used what",
            "A parameter used in an earlier pass, inside no_sync, was used in this step: its gradient is waiting in "
            "grad, and needs the mean like any other.", seen=_last_pass_only),
    Mistake("the mean of those that used it",
            "What only some ranks used is divided by their number. The mean is over all ranks: those that did not use "
            "the parameter contribute zeros and count.", seen=_of_users_alone),
    Mistake("an old gradient for what was not used",
            "A rank that did not use the parameter contributes what an earlier step left in the bucket. Its part is "
            "zeros, anew in every step.", seen=_an_old_gradient),
    Mistake("used only if all used it",
            "Some ranks used it, and each rank was left with what it had. If flags are averaged with the gradients, a "
            "flag of one rank in three comes back as 1/3: ask whether it is above 0.", seen=_flags_asked_for_one),
    Mistake("what only some ranks used is not averaged",
            "A parameter that one rank used needs the same gradient on all ranks, also on those that did not use it: "
            "their part is zero, and the mean is still over all ranks.", seen=_used_by_some_not_averaged),
    Mistake("parameters sent in every step",
            "Parameters travel in the forward pass. They begin equal and take equal steps, so they stay equal: only "
            "buffers need rank 0's values each time.", seen=_chatty_forward),
    Mistake("too much beside the gradients",
            "Beside each gradient a step needs one number, which tells whether this rank used the parameter: at most "
            "8 bytes for each parameter tensor.", seen=_too_many_bytes),
    Mistake("an unused parameter is left out",
            "In every step all trained parameters travel, as zeros where this rank, or even no rank, used one: every "
            "all_reduce wants a message of the same size from each rank.",
            seen=either(_too_few_bytes, marks.says("split_with_sizes")), certain=True),
)  # fmt: skip

EXERCISE = declared(
    id="mini_ddp",
    functions=("MiniDDP",),
    driver=drive,
    oracle=expected,
    least=least_traffic.of_training,
    visible=(
        mini_case("3 ranks, a layer that nobody uses", 371, 3, {}, norm=False),
        mini_case("3 ranks, a layer that only rank 1 uses in step 1", 372, 3, {1: [1]}, norm=False),
        mini_case("2 ranks, a layer that rank 1 uses only inside no_sync", 376, 2, {1: [1]}, quiet=1, norm=False),
        mini_case("2 ranks, BatchNorm; rank 1 has counted a batch more", 373, 2, {0: [0, 1]}, counted=(1, 1)),
        mini_case("2 ranks, a step whose gradients are all zero", 375, 2, {1: [1]}, perfect=1, norm=False),
        mini_case("4 ranks, all of it; step 1 has two passes", 374, 4, {0: [2], 2: [0, 3]}, quiet=1, idle=(2, 1)),
    ),
    hints=(
        "A hook that never fires leaves its bucket waiting. Who can still start that bucket, and when do you know "
        "that no more gradients will come?",
        "finish_gradient_synchronization launches the bucket if it has not left, with zeros for missing gradients. Let "
        "a flag for each parameter travel with it: 1 where this rank used it. A sum of flags of 0 means nobody did, "
        "and its grad stays None. forward broadcasts the buffers from rank 0.",
        "parts = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in trained], and one "
        "tensor of flags; when it comes back: if flag > 0: p.grad = average.clone()",
    ),
    looks=(_evaluation, wrong_training),
    mistakes=MISTAKES,
)
