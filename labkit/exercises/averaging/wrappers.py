"""overlapped_ddp and what grows out of it: the wrapper, from one hook per parameter to MiniDDP."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake
from labkit.checks.tensor_values import at, close
from labkit.checks.wire import Wire
from labkit.exercises.averaging import marks
from labkit.exercises.averaging.gradient_marks import times
from labkit.exercises.averaging.on_ranks import LAYERS
from labkit.exercises.averaging.replay import models_of
from labkit.exercises.averaging.stretches import stretches, trained
from labkit.exercises.averaging.training import steps_of, truth


def left_behind(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in one step some gradients were averaged and others are still each rank's own."""
    for number in range(len(steps_of(case))):
        found = marks.gradient_marks(case, got, number).values()
        if any(names <= {"own", "own/N"} for names in found) and {"mean"} in found:
            return True
    return False


def not_all_copied_back(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all gradients travelled, and yet some are still each rank's own."""
    due = sum(size for _, size in trained(models_of(case)[0]))
    sent = [sum(size for _, size in marks.pieces(case, wire, number)) for number in range(len(steps_of(case)))]
    return left_behind(case, got, wire) and all(each >= due for each in sent)


def mean_over_passes(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first step that is wrong holds what its passes added up, divided by their number."""
    for number, step in enumerate(steps_of(case)):
        found = [names for name, names in marks.gradient_marks(case, got, number).items() if name not in marks.SPARE]
        if any(names != {"mean"} for names in found):
            passes = 1 + int(step.get("quiet", 0))
            return passes > 1 and all(names == {times(1 / passes)} for names in found)
    return False


def divided_on_its_way(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether gradients are sums in which some ranks' parts were divided by N and others' were not."""
    if not isinstance(got, tuple):
        return False
    replay, size = truth(case), case.world_size
    wrong = marks.wrong_names(case, got) - set(marks.SPARE)
    for name in wrong:
        own = [of[name] for of in replay.own[0]]
        came = [(at(one, ("steps", 0, "gradients")) or {}).get(name) for one in got]
        if any(each is None for each in own) or not all(isinstance(each, Tensor) for each in came):
            return False
        sums = [
            torch.stack([part / by for part, by in zip(own, divided, strict=True)]).sum(0)  # type: ignore[operator, misc]
            for divided in product((1, size), repeat=size)
            if len(set(divided)) > 1
        ]
        if not any(close(one, each) or close(one, each / size) for one in came for each in sums):
            return False
    return bool(wrong)


def begins_equal_later(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether ranks held unlike parameters after construction, and rank 0's in the first step."""
    wrong = marks.begun_wrong(case, got) - set(marks.BUFFERS)
    if not wrong or not isinstance(got, tuple):
        return False
    wanted = truth(case).expected[0]["begun"]
    later = [at(one, ("steps", 0, "state")) or {} for one in got]
    return isinstance(wanted, dict) and all(close(one.get(name), wanted[name]) for one in later for name in wrong)


def leaves_in_one_go(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether all of several all_reduces began in the hooks of the layer whose backward is the last."""
    found = {part for part, _ in marks.pieces(case, wire)}
    return isinstance(got, tuple) and len(marks.pieces(case, wire)) > 1 and found == {LAYERS[0]}


def _later_marks(case: Case, got: Got) -> set[str]:
    """Return what the gradients of the second step are, where those of the first are right."""
    if len(steps_of(case)) < 2 or not isinstance(got, tuple) or marks.wrong_names(case, got, 0):
        return set()
    found = [names for name, names in marks.gradient_marks(case, got, 1).items() if name not in marks.SPARE]
    return {mark for names in found for mark in names}


def first_step_alone(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the first step is right, and in the second every rank has its own gradients."""
    found = _later_marks(case, got)
    return bool(found) and found <= {"own", "own/N"}


def travels_quietly(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether something travelled in the backward of a pass inside no_sync."""
    quiet = [int(step.get("quiet", 0)) for step in steps_of(case)]
    return any(
        0 <= each.step < len(quiet) and each.run < quiet[each.step] and each.part != "forward" and each.calls
        for rank in range(case.world_size)
        for each in stretches(case, wire, rank) or ()
    )


def some_wait_in_broadcast(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether some ranks wait in a broadcast that others have not called, and nobody waits in an all_reduce."""
    if not isinstance(got, Failure) or not marks.hangs(case, got, wire):
        return False
    waiting = {wait.rank: wait.operation for wait in got.waits}
    return {"broadcast"} < set(waiting.values()) and "all_reduce" not in waiting.values()


ROOT_ALONE = Mistake(
    "a broadcast that not every rank calls",
    "Some ranks call a broadcast that others do not. Every rank calls it, for each tensor: src=0 says whose numbers go "
    "out, and the others take theirs from the same call.",
    seen=some_wait_in_broadcast,
    certain=True,
)
EQUAL_LATER = Mistake(
    "broadcast in a step",
    "After construction the ranks hold different models, and equal ones only once the module has run: broadcast rank "
    "0's parameters and buffers in __init__, once. They stay equal by themselves.",
    seen=begins_equal_later,
)
ONE_GO = Mistake(
    "all in the last hook",
    "Everything leaves in one go, in the hook of the gradient that comes last. Start each all_reduce in the hook of "
    "the gradient that it waits for, while backward goes on.",
    seen=leaves_in_one_go,
)
FIRST_STEP = Mistake(
    "the first step alone",
    "The first step is right, and from the second on every rank keeps its own gradients: hooks stay registered, and "
    "must do their work in every step.",
    seen=first_step_alone,
)
PASSES = Mistake(
    "mean over the passes",
    "The gradients are divided by the number of backward passes: no_sync only puts off the message, and "
    "passes add up. Whoever wants their mean divides each loss.",
    seen=mean_over_passes,
)
DIVIDED_ON_ITS_WAY = Mistake(
    "divided on its way",
    "The sum has the gradients of some ranks as they were and those of others divided: the division came while the "
    "all_reduce was in flight. Divide before the call, or after wait().",
    seen=divided_on_its_way,
)
SENT_QUIETLY = Mistake(
    "sends inside no_sync",
    "Something travels in a backward inside no_sync. While the flag is down the hook must return before it counts or "
    "sends; only the next backward outside sends.",
    seen=travels_quietly,
)
AT_FIRST = (
    marks.TORCH,
    marks.TO_ONE,
    marks.UNWAITED,
    marks.NOTHING_AT_START,
    marks.BUFFERS_AT_START,
    marks.FROZEN_AT_START,
    marks.TIED,
)
"""What is looked for before what the numbers are."""
NUMBERS = (
    marks.SUM,
    marks.SOME_SUMS,
    marks.MULTIPLIED,
    marks.CONSTANT,
    marks.TWICE,
    marks.BIASES,
    marks.OWN,
    marks.FROZEN_SENT,
)
