"""overlapped_ddp and what grows out of it: the wrapper, from one hook per parameter to MiniDDP."""

from __future__ import annotations

from typing import cast

from labkit.checks.case import Case, Failure, Got
from labkit.checks.drivers.lesson_03 import train
from labkit.checks.exercise import Exercise
from labkit.checks.lesson_03 import marks
from labkit.checks.lesson_03.cases import training_case
from labkit.checks.lesson_03.par_programs import BUCKETS
from labkit.checks.lesson_03.replay import expected, models_of
from labkit.checks.lesson_03.stretches import stretches
from labkit.checks.lesson_03.training import judge, steps_of, truth
from labkit.checks.tensor_values import close
from labkit.checks.verdict import Mistake
from labkit.checks.wire import Wire


def overlapped_case(name: str, seed: int, world_size: int, num_steps: int = 2, **model: bool) -> Case:
    """Return a case of overlapped_ddp."""
    return training_case(
        name, seed, world_size, wrapper="OverlappedDDP", rule="each", steps=[{}] * num_steps,
        model={"unused": False, **model},
    )  # fmt: skip


def bucketed_case(name: str, seed: int, world_size: int, cap_bytes: int, num_steps: int = 2, **model: bool) -> Case:
    """Return a case of bucketed_ddp."""
    return training_case(
        name, seed, world_size, wrapper="BucketedDDP", rule="buckets", steps=[{}] * num_steps, cap_bytes=cap_bytes,
        model={"unused": False, **model},
    )  # fmt: skip


def accumulating_case(name: str, seed: int, world_size: int, cap_bytes: int, *steps: dict[str, object]) -> Case:
    """Return a case of accumulating_ddp."""
    return training_case(
        name, seed, world_size, wrapper="AccumulatingDDP", rule="buckets", steps=steps, cap_bytes=cap_bytes
    )


def mini_case(
    name: str, seed: int, world_size: int, cap_bytes: int, spare: dict[int, list[int]], **model: bool
) -> Case:  # fmt: skip
    """Return a case of mini_ddp: `spare` says which ranks use the spare layer in which step."""
    return training_case(
        name, seed, world_size, wrapper="MiniDDP", rule="total", steps=[{}] * 3, cap_bytes=cap_bytes,
        model=model, buffers=True, spare=spare,
    )  # fmt: skip


def _outputs_of_quiet_passes(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether something travelled inside no_sync."""
    parts = stretches(case, wire, 0)
    quiet = {(number, run) for number, step in enumerate(steps_of(case)) for run in range(int(step.get("quiet", 0)))}
    return parts is not None and any((s.step, s.run) in quiet and s.calls for s in parts)


def _after_an_error(case: Case, got: Got, wire: Wire) -> bool:
    stumbles = [number for number, step in enumerate(steps_of(case)) if step.get("stumble")]
    return bool(stumbles) and any(
        {mark for names in marks.gradient_marks(case, got, number).values() for mark in names} <= {"own", "mean"}
        and marks.wrong_names(case, got, number)
        for number in stumbles
    )


def _last_pass_only(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a step with quiet passes holds something else than the mean of what was accumulated."""
    quiet = [number for number, step in enumerate(steps_of(case)) if step.get("quiet")]
    return isinstance(got, tuple) and any(marks.wrong_names(case, got, number) for number in quiet)


def _unused_got_zeros(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    for number in range(len(steps_of(case))):
        for values, wanted in zip(got, truth(case).expected, strict=True):
            came = _gradients(values, number)
            right = _gradients(wanted, number)
            if any(right.get(name) is None and came.get(name) is not None for name in marks.SPARE if name in right):
                return True
    return False


def _gradients(values: object, step: int) -> dict[str, object]:
    try:
        return cast(dict[str, object], cast(dict[str, list[dict[str, object]]], values)["steps"][step]["gradients"])
    except (KeyError, IndexError, TypeError):
        return {}


def _used_by_some_not_averaged(case: Case, got: Got, wire: Wire) -> bool:
    return any(
        bool(marks.wrong_names(case, got, number)) and marks.wrong_names(case, got, number) <= set(marks.SPARE)
        for number in range(len(steps_of(case)))
    )


def _chatty_forward(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether more than the buffers travelled in a forward pass."""
    buffers = sum(b.numel() * b.element_size() for b in models_of(case)[0].buffers())
    sent = [sum(c.bytes for c in s.calls) for s in stretches(case, wire, 0) or [] if s.part == "forward"]
    return isinstance(got, tuple) and any(each > buffers for each in sent)


def _left_behind(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether some gradients were averaged and others are still each rank's own."""
    found = [marks.gradient_marks(case, got, number) for number in range(len(steps_of(case)))]
    own = any(names <= {"own", "own/N"} for of_step in found for names in of_step.values())
    return own and any(names == {"mean"} for of_step in found for names in of_step.values())


def _buffers_drift(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or marks.begun_wrong(case, got):
        return False
    for values, wanted in zip(got, truth(case).expected, strict=True):
        came, right = values.get("end"), wanted["end"]
        if isinstance(came, dict) and isinstance(right, dict):
            wrong = {name for name in right if not close(came.get(name), right[name])}
            if wrong and wrong <= set(marks.BUFFERS):
                return True
    return False


COMMON = (
    marks.TORCH,
    marks.UNWAITED,
    marks.NOTHING_AT_START,
    marks.BUFFERS_AT_START,
    marks.FROZEN_AT_START,
    marks.TIED,
    marks.SUM,
    marks.CONSTANT,
    marks.TWICE,
    marks.BIASES,
    marks.OWN,
    marks.FROZEN_SENT,
)

OVERLAPPED = Exercise(
    id="overlapped_ddp",
    functions=("OverlappedDDP",),
    driver=train,
    oracle=expected,
    judge=judge,
    visible=(
        overlapped_case("3 ranks, two steps, a frozen layer", 311, 3, tied=False),
        overlapped_case("2 ranks, a weight that two layers share", 312, 2),
        overlapped_case("4 ranks, all of it", 313, 4, 3),
    ),
    hints=(
        "When does autograd know a parameter's gradient, and whom can it tell? What may you do meanwhile with a handle "
        "that all_reduce returns?",
        "In __init__: broadcast_module, then parameter.register_post_accumulate_grad_hook(hook) for each parameter "
        "that needs a gradient. The hook divides parameter.grad by the world size and starts an all_reduce of it with "
        "async_op=True; the handle goes to a list. finish_gradient_synchronization waits for the list and empties it.",
        "parameter.grad /= dist.get_world_size(); self.handles.append(dist.all_reduce(parameter.grad, async_op=True))",
    ),
    mistakes=(*COMMON, marks.AFTER_BACKWARD, marks.IN_FLIGHT, marks.STALE, marks.BRANCH, marks.BLOCKING),
)

BUCKETED = Exercise(
    id="bucketed_ddp",
    functions=("BucketedDDP",),
    driver=train,
    oracle=expected,
    judge=judge,
    visible=(
        bucketed_case("3 ranks, buckets of 320 bytes", 351, 3, 320, tied=False, frozen=False),
        bucketed_case("3 ranks, a frozen layer and a shared weight", 352, 3, 200),
        bucketed_case("4 ranks, one bucket for all", 353, 4, 1 << 20),
        bucketed_case("2 ranks, buckets smaller than some parameters, three steps", 354, 2, 64, 3),
    ),
    hints=(
        "What must be true of every parameter in a bucket before the bucket may leave? Who notices it?",
        "Count for each bucket the gradients that are still missing. The hook subtracts one; at zero it packs the "
        "gradients in one flat tensor and starts an asynchronous all_reduce. Keep bucket, flat tensor and handle. "
        "finish waits for each and copies the pieces back to parameter.grad, then resets the counts.",
        "flat = torch.cat([p.grad.reshape(-1) for p in bucket]) / dist.get_world_size(); handle = "
        "dist.all_reduce(flat, async_op=True) ... handle.wait(); p.grad.copy_(flat[start:end].view_as(p))",
    ),
    mistakes=(
        *COMMON,
        Mistake(
            "buckets in the order of registration",
            "The buckets are cut from the first parameter to the last. Backward begins at the last layer: the first "
            "bucket must hold the last parameters, or none is full before backward ends. Use bucket_plan.",
            marks.in_registration_order,
        ),
        Mistake(
            "one all_reduce for each parameter",
            "Every parameter travels by itself, as in OverlappedDDP: pack those of a bucket into one flat tensor.",
            marks.one_for_each,
        ),
        marks.AFTER_BACKWARD,
        Mistake(
            "one bucket for all",
            "All gradients travel in one piece although the cap is smaller: bucket_cap_mb is in units of 2**20 bytes.",
            marks.one_for_all,
        ),
        Mistake(
            "sent as they fill",
            "A bucket left before one that comes earlier in the plan. Another rank may fill them in another order, and "
            "then two different buckets are added: send the next of the plan when it is full, never a later one.",
            marks.another_order,
        ),
        Mistake(
            "bytes counted otherwise",
            "The buckets are cut at another cap than the one given. The bytes of a gradient are parameter.numel() * "
            "parameter.element_size() (this model is float64, 8 bytes a number), and 1 MB is 2**20 bytes.",
            marks.beside_the_cap,
        ),
        Mistake(
            "a full bucket stays behind",
            "Some gradients were averaged and others never left this rank: when a bucket has gone, the next one of the "
            "plan may be full already. Send them while the next is full, not if it is.",
            _left_behind,
        ),
        Mistake(
            "every hook has the last index",
            "A bucket was packed before all its gradients were there. Your hooks are lambdas made in a loop: each "
            "looks up the index when it is called, and then it is the last one. partial(self.on_gradient, index) has "
            "it already.",
            lambda case, got, wire: (
                marks.says("NoneType")(case, got, wire) and isinstance(got, Failure) and "in <lambda>" in got.detail
            ),
            certain=True,
        ),
        Mistake(
            "packed too early",
            "A bucket was packed before all its gradients were there: count down the bucket of the parameter whose "
            "hook was called, and pack at zero.",
            marks.says("NoneType", kind="exception"),
            certain=True,
        ),
        marks.STALE,
        marks.BRANCH,
        marks.IN_FLIGHT,
        marks.BLOCKING,
    ),
    par=BUCKETS,
)

ACCUMULATING = Exercise(
    id="accumulating_ddp",
    functions=("AccumulatingDDP",),
    driver=train,
    oracle=expected,
    judge=judge,
    visible=(
        accumulating_case(
            "3 ranks, two of three backward passes inside no_sync", 361, 3, 320, {"passes": 3, "quiet": 2}
        ),
        accumulating_case("2 ranks, then a step without no_sync", 362, 2, 320, {"passes": 2, "quiet": 1}, {}),
        accumulating_case(
            "3 ranks, after an error inside no_sync", 363, 3, 200, {"stumble": True}, {"passes": 2, "quiet": 1}
        ),
        accumulating_case(
            "3 ranks, two passes, each averaged, none cleared", 364, 3, 320, {"passes": 2}, {"keep": True}
        ),
    ),
    hints=(
        "Where do gradients go when nobody clears parameter.grad between two backward passes? What must the hook not "
        "do meanwhile?",
        "no_sync is a context manager: with @contextmanager it sets a flag, yields, and puts the old value back in a "
        "finally. While the flag is down, the hook returns at once, and no bucket counts.",
        "before, self.synchronize = self.synchronize, False; try: yield; finally: self.synchronize = before",
    ),
    mistakes=(
        Mistake(
            "a generator is no context",
            "with ddp.no_sync() wants a context manager: a function that yields becomes one by @contextmanager above "
            "its def.",
            marks.says("context manager"),
            certain=True,
        ),
        Mistake(
            "sends inside no_sync",
            "Something travels inside no_sync. The hook must return before it counts or sends.",
            _outputs_of_quiet_passes,
        ),
        Mistake(
            "no_sync stays on after an error",
            "After an error inside no_sync nothing is averaged any more: put the flag back in a finally.",
            _after_an_error,
        ),
        *COMMON,
        Mistake(
            "accumulation is wrong",
            "The averaged gradient is not that of all backward passes of the step together: the last pass must send "
            "what parameter.grad holds by then, all passes added up, undivided by their number.",
            _last_pass_only,
        ),
        marks.AFTER_BACKWARD,
        marks.STALE,
        marks.BRANCH,
        marks.BLOCKING,
    ),
)

MINI = Exercise(
    id="mini_ddp",
    functions=("MiniDDP",),
    driver=train,
    oracle=expected,
    judge=judge,
    visible=(
        mini_case("3 ranks, a layer that nobody uses", 371, 3, 200, {}, norm=False),
        mini_case("3 ranks, a layer that only rank 1 uses in step 1", 372, 3, 200, {1: [1]}, norm=False),
        mini_case("2 ranks, BatchNorm", 373, 2, 320, {0: [0, 1]}),
        mini_case("4 ranks, all of it", 374, 4, 200, {0: [2], 2: [0, 3]}),
    ),
    hints=(
        "A hook that never fires leaves its bucket waiting. Who can still start that bucket, and when is it known that "
        "nothing more will come?",
        "finish_gradient_synchronization starts every bucket that has not left, with zeros for missing gradients, in "
        "the order of the plan on every rank. Let a flag for each parameter travel in the bucket: 1 where this rank "
        "used it. A sum of flags of 0 means nobody did, and its grad stays None. forward broadcasts the buffers from "
        "rank 0.",
        "parts = [torch.zeros_like(p).view(-1) if p.grad is None else p.grad.view(-1) for p in bucket] plus one tensor "
        "of flags; when it comes back: if flag > 0: p.grad = average.clone()",
    ),
    mistakes=(
        *COMMON,
        Mistake(
            "an unused parameter gets zeros",
            "A parameter that no rank used must keep grad None: with zeros an optimizer with momentum or weight decay "
            "would move it.",
            _unused_got_zeros,
        ),
        Mistake(
            "no gradient to copy into",
            "Another rank used the parameter and this one did not, so its grad is None and there is no tensor to copy "
            "into: make a copy of the average its parameter.grad.",
            marks.says("NoneType", "copy_"),
            certain=True,
        ),
        Mistake(
            "an unused parameter stops everything",
            "A bucket with a parameter that this rank did not use never gets full, and others wait for it. Start what "
            "is left in finish_gradient_synchronization, with zeros, on every rank: every bucket from the first that "
            "has not been sent, also those that are full and were waiting for their turn.",
            lambda case, got, wire: (
                marks.hangs(case, got, wire) or marks.says("NoneType")(case, got, wire) or _left_behind(case, got, wire)
            ),
            certain=True,
        ),
        Mistake(
            "buffers drift apart",
            "Each rank keeps its own running statistics. Before each forward pass in training, broadcast the buffers "
            "from rank 0.",
            _buffers_drift,
        ),
        Mistake(
            "what only some ranks used is not averaged",
            "A parameter that one rank used needs the same gradient on all ranks, also on those that did not use it: "
            "their part is zero, and the mean is still over all ranks.",
            _used_by_some_not_averaged,
        ),
        Mistake(
            "parameters sent in every step",
            "Parameters travel in the forward pass. They begin equal and take equal steps, so they stay equal: only "
            "buffers need rank 0's values again.",
            _chatty_forward,
        ),
        marks.AFTER_BACKWARD,
        marks.STALE,
        marks.BLOCKING,
    ),
)
