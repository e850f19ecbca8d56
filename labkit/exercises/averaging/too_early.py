"""Tensors used before wait() had returned, hooks that fire for another parameter, broadcasts at the wrong time."""

from __future__ import annotations

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake, Seen, either
from labkit.checks.tensor_values import at, close, elements_apart
from labkit.checks.wire import Wire
from labkit.exercises.averaging import marks
from labkit.exercises.averaging.replay import models_of
from labkit.exercises.averaging.stretches import stretches, trained
from labkit.exercises.averaging.training import steps_of, truth


def _steps_touched(case: Case, wire: Wire) -> set[int]:
    """Return the steps whose collectives were given a tensor that was read or written before wait() returned."""
    found = set()
    for rank in range(case.world_size):
        step_of = {call.sequence: part.step for part in stretches(case, wire, rank) or () for call in part.calls}
        for problem in wire.problems_of("changed_in_flight", "read_before_wait"):
            if problem.rank == rank and problem.sequence in step_of:
                found.add(step_of[problem.sequence])
    return found


def touched(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a tensor of the first step was read or written before wait() returned."""
    return isinstance(got, tuple) and 0 in _steps_touched(case, wire)


def _autograd_reads(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether something read a tensor on its way at no line of Python: autograd, after a hook returned it."""
    read = wire.problems_of("read_before_wait")
    return touched(case, got, wire) and any("at a line that is not known" in problem.text for problem in read)


def touched_later(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether tensors of later steps were, and none of the first."""
    steps = _steps_touched(case, wire)
    return isinstance(got, tuple) and bool(steps) and min(steps) > 0


def _own_parts_came_back(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in the first wrong step each element is the mean, or the rank's own divided by N."""
    if not isinstance(got, tuple):
        return False
    replay = truth(case)
    for number in range(len(steps_of(case))):
        wrong = False
        for rank, (values, wanted) in enumerate(zip(got, replay.expected, strict=True)):
            came, right = (at(each, ("steps", number, "gradients")) for each in (values, wanted))
            for name, mean in (right or {}).items():
                mine, own = (came or {}).get(name), replay.own[number][rank][name]
                if close(mine, mean):
                    continue
                if not isinstance(mine, Tensor) or not isinstance(mean, Tensor) or own is None:
                    return False
                if (elements_apart(mine, mean) & elements_apart(mine, own / case.world_size)).any():
                    return False
                wrong = True
        if wrong:
            return True
    return False


def _hooks_again(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each parameter is reduced once in the first step, and twice in the second."""
    if len(steps_of(case)) < 2 or not isinstance(got, tuple):
        return False
    first, second = (sorted(size for _, size in marks.pieces(case, wire, step)) for step in (0, 1))
    return first == sorted(size for _, size in trained(models_of(case)[0])) and second == sorted(2 * first)


def _one_parameter_for_all(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether as many all_reduces as there are parameters had the last one's size, and parameters differ."""
    sizes, sent = [size for _, size in trained(models_of(case)[0])], [size for _, size in marks.pieces(case, wire)]
    return len(set(sizes)) > 1 and sent == [sizes[-1]] * len(sizes)


def _broadcasts_unwaited(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and any(c.kind == "broadcast" and c.waited is None for c in wire.collectives)


def _averages_at_start(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether construction all-reduced, and failed or left the mean of the ranks' values."""
    if isinstance(got, Failure):
        return "in __init__" in got.detail and any(call.kind == "all_reduce" for call in wire.collectives)
    parts = stretches(case, wire, 0) or []
    sent = any(call.kind == "all_reduce" for part in parts if part.part == "construct" for call in part.calls)
    return sent and bool(marks.begun_wrong(case, got))


def _broadcasts_in_forward(case: Case, got: Got, wire: Wire) -> bool:
    parts = stretches(case, wire, 0) or []
    sent = any(call.kind == "broadcast" for part in parts if part.part == "forward" for call in part.calls)
    return sent and not marks.begun_wrong(case, got)


def _shuffled(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether each rank's gradients hold the numbers of the means, some at other places."""
    if not isinstance(got, tuple) or not marks.wrong_names(case, got):
        return False
    for values, wanted in zip(got, truth(case).expected, strict=True):
        pair = [at(each, ("steps", 0, "gradients")) or {} for each in (values, wanted)]
        flat = [[each.flatten() for each in found.values() if isinstance(each, Tensor)] for found in pair]
        came, right = (torch.cat(each).sort().values if each else torch.zeros(0) for each in flat)
        if not close(came, right):
            return False
    return True


def _looks_into_a_missing_gradient(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a hook failed on what a gradient that is None has not."""
    return marks.says("'NoneType' object has no attribute")(case, got, wire) and (
        isinstance(got, Failure) and ".grad." in got.detail.rstrip().rpartition("\n")[2]
    )


def _none_at_the_end(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether finish_gradient_synchronization itself met a gradient that is None, and not to copy into it."""
    if not marks.says("NoneType")(case, got, wire) or not isinstance(got, Failure) or "copy_" in got.message:
        return False
    last = got.detail.rstrip().rpartition("\n")[2]
    return "in finish_gradient_synchronization" in last and ".grad" in last


def _says_of_a_list(*words: str) -> Seen:
    """Return a test: a failure with these words in a line that looks a tensor up in a list."""
    lookups = (" in self.", " not in ", ".index(", " == ", ".remove(", ".count(")

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, Failure):
            return False
        line = got.detail.rstrip().rpartition("\n")[2].partition(":")[2]
        return any(word in got.message for word in words) and any(each in line for each in lookups)

    return seen


TOUCHED = Mistake(
    "touched before wait() returned",
    "From all_reduce(async_op=True) until wait() on its handle has returned, the tensor belongs to the network: what "
    "is read or written there then may be the old numbers or the new. Divide before the call, or after wait().",
    seen=touched,
)
RETURNED_EARLY = Mistake(
    "autograd read it on its way",
    "Autograd, no line of yours, read a gradient while its all_reduce was on its way. register_hook calls before "
    "parameter.grad is written, and what the hook returns is copied there at once, wait() or not. What you need is "
    "register_post_accumulate_grad_hook, which calls when parameter.grad is complete.",
    seen=_autograd_reads,
)
COPIED_EARLY = Mistake(
    "copied back too early",
    "Numbers that came back are this rank's own bucket: it was read before wait() had returned, or before it was sent. "
    "Only after handle.wait() does the flat tensor hold the mean: copy the pieces back then.",
    seen=_own_parts_came_back,
)
STALE = Mistake(marks.STALE.name, marks.STALE.hint, seen=either(marks.only_later_steps, touched_later))
MORE_HOOKS = Mistake(
    "hooks added in every step",
    "In the second step every gradient is divided and all-reduced once more than in the first: a hook stays "
    "registered, so register it once, in __init__, and not in forward.",
    seen=_hooks_again,
)
LAST_PARAMETER = Mistake(
    "every hook has the last parameter",
    "Every hook reduced the same parameter, the last one. Your hooks are lambdas made in a loop: each looks the "
    "name up when it is called, and by then it is the last parameter. Use the one that autograd hands over.",
    seen=_one_parameter_for_all,
)
NOT_YET_EQUAL = Mistake(
    "a broadcast not waited for",
    "A broadcast with async_op=True was never waited for, so the values of rank 0 have not come: wait for its handle, "
    "or leave async_op out.",
    seen=_broadcasts_unwaited,
)
MEAN_AT_START = Mistake(
    "averaged at the start",
    "Construction averages the ranks' values. They begin equal if all take rank 0's as they are: broadcast_module.",
    seen=_averages_at_start,
    certain=True,
)
EVERY_FORWARD = Mistake(
    "broadcast in every forward",
    "Every forward broadcasts. Once, in __init__, is enough: parameters stay equal by equal steps, and this wrapper "
    "leaves each rank its own buffers after that.",
    seen=_broadcasts_in_forward,
)
IN_A_LIST = Mistake(
    "a tensor looked up in a list",
    "x in list, list.index(x) and == compare tensors element by element, and tensors of other shapes cannot be "
    "compared. Look parameters up in a set or a dict, which go by identity, or by their index.",
    seen=_says_of_a_list("must match the size of tensor", "Boolean value of Tensor"),
    certain=True,
)
SHUFFLED = Mistake(
    "pieces for other parameters",
    "The numbers are the means, and some are in other parameters' gradients: cut the flat tensor in the order in which "
    "the gradients were packed.",
    seen=_shuffled,
)
NONE_AT_THE_END = Mistake(
    "a frozen parameter has no gradient",
    "A grad is None in finish_gradient_synchronization: that of a frozen parameter (requires_grad=False), which gets "
    "no gradient and keeps None. Go through the parameters that require one.",
    seen=_none_at_the_end,
    certain=True,
)
NO_GRADIENT_YET = Mistake(
    "a hook before the gradient is written",
    "A gradient is None in your hook. register_hook calls before parameter.grad is written; what you "
    "need is register_post_accumulate_grad_hook, which calls afterwards.",
    seen=either(
        marks.says("NoneType", "Invalid function argument"),
        marks.says("unsupported operand", "'NoneType' and 'int'"),
        _looks_into_a_missing_gradient,
    ),
    certain=True,
)
