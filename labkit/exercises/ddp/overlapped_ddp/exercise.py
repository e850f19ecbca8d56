"""overlapped_ddp: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from labkit.checks.case import Case
from labkit.checks.declared import Mistake, declared
from labkit.exercises.averaging import least_traffic, marks, too_early
from labkit.exercises.averaging.cases import training_case
from labkit.exercises.averaging.replay import expected
from labkit.exercises.averaging.training import wrong_training
from labkit.exercises.averaging.wrappers import (
    AT_FIRST,
    DIVIDED_ON_ITS_WAY,
    EQUAL_LATER,
    FIRST_STEP,
    NUMBERS,
    ONE_GO,
    ROOT_ALONE,
    left_behind,
)
from labkit.exercises.ddp.overlapped_ddp.driver import drive


def overlapped_case(name: str, seed: int, world_size: int, num_steps: int = 2, **model: int) -> Case:
    """Return a case of overlapped_ddp."""
    return training_case(
        name, seed, world_size, wrapper="OverlappedDDP", rule="each", steps=[{}] * num_steps,
        model={"unused": False, **model},
    )  # fmt: skip


MISTAKES = (
    EQUAL_LATER,
    marks.PARAMETERS,
    FIRST_STEP,
    too_early.MEAN_AT_START,
    too_early.NOT_YET_EQUAL,
    too_early.MORE_HOOKS,
    marks.TWO_HOOKS,
    too_early.LAST_PARAMETER,
    DIVIDED_ON_ITS_WAY,
    *AT_FIRST,
    too_early.EVERY_FORWARD,
    too_early.STALE,
    too_early.RETURNED_EARLY,
    too_early.TOUCHED,
    *NUMBERS,
    ONE_GO,
    Mistake(
        "some are left out",
        "Some gradients are averaged and others are still each rank's own: every parameter that needs a gradient "
        "needs a hook, and every hook its all_reduce.",
        seen=left_behind,
    ),
    marks.NO_HANDLE,
    too_early.NONE_AT_THE_END,
    too_early.NO_GRADIENT_YET,
    marks.AFTER_BACKWARD,
    marks.IN_FLIGHT,
    ROOT_ALONE,
    marks.BRANCH,
    marks.BLOCKING,
)

EXERCISE = declared(
    id="overlapped_ddp",
    functions=("OverlappedDDP",),
    driver=drive,
    oracle=expected,
    least=least_traffic.of_training,
    visible=(
        overlapped_case("3 ranks, two steps, a frozen layer", 311, 3, tied=False),
        overlapped_case("2 ranks, a weight that two layers share", 312, 2),
        overlapped_case("4 ranks, all of it", 313, 4, 3),
    ),
    hints=(
        "When does autograd know a parameter's gradient, and how can it tell you? What do you do with the handle that "
        "all_reduce returns?",
        "In __init__: broadcast_module, then parameter.register_post_accumulate_grad_hook(hook) for each parameter "
        "that needs a gradient. The hook divides parameter.grad by the world size and starts an all_reduce of it with "
        "async_op=True; the handle goes to a list. finish_gradient_synchronization waits for the list and empties it.",
        "parameter.grad /= dist.get_world_size(); self.handles.append(dist.all_reduce(parameter.grad, async_op=True))",
    ),
    looks=(wrong_training,),
    mistakes=MISTAKES,
)
