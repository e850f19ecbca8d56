"""bucketed_ddp: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake, declared, either
from labkit.checks.wire import Wire
from labkit.exercises.averaging import least_traffic, marks, too_early
from labkit.exercises.averaging.cases import training_case
from labkit.exercises.averaging.replay import expected
from labkit.exercises.averaging.training import wrong_training
from labkit.exercises.averaging.wrappers import (
    AT_FIRST,
    DIVIDED_ON_ITS_WAY,
    EQUAL_LATER,
    NUMBERS,
    ONE_GO,
    left_behind,
    not_all_copied_back,
)
from labkit.exercises.ddp.bucketed_ddp.driver import drive
from labkit.exercises.ddp.par_programs import BUCKETS


def bucketed_case(name: str, seed: int, world_size: int, cap_bytes: int, num_steps: int = 2, **model: int) -> Case:
    """Return a case of bucketed_ddp."""
    return training_case(
        name, seed, world_size, wrapper="BucketedDDP", rule="buckets", steps=[{}] * num_steps, cap_bytes=cap_bytes,
        model={"unused": False, **model},
    )  # fmt: skip


def _packs_none(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a gradient that is None was packed, and not one copied back."""
    return marks.says("NoneType", kind="exception")(case, got, wire) and not marks.says("copy_")(case, got, wire)


def _unpacks_another(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a bucket was cut into the pieces of another one."""
    return isinstance(got, Failure) and "split_with_sizes" in got.message and "finish_gradient" in got.detail


def _fewer_than_planned(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether fewer buckets had left than there are when finish paired the two."""
    return isinstance(got, Failure) and "zip() argument" in got.message and "finish_gradient" in got.detail


def _none_in_a_lambda(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and "NoneType" in got.message and "in <lambda>" in got.detail


def _called_before(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a hook of register_hook, made with a lambda in the same line, found no gradient."""
    return _none_in_a_lambda(case, got, wire) and isinstance(got, Failure) and ".register_hook(" in got.detail


MISTAKES = (
    EQUAL_LATER,
    too_early.MEAN_AT_START,
    too_early.NOT_YET_EQUAL,
    *AT_FIRST,
    too_early.EVERY_FORWARD,
    DIVIDED_ON_ITS_WAY,
    too_early.COPIED_EARLY,
    too_early.SHUFFLED,
    too_early.IN_A_LIST,
    *NUMBERS,
    Mistake("buckets in the order of registration",
            "The buckets are cut from the first parameter to the last. Backward begins at the last layer: the first "
            "bucket must hold the last parameters, or none is full before backward ends. Use bucket_plan.",
            seen=marks.in_registration_order),
    Mistake("one all_reduce for each parameter",
            "Every parameter travels on its own, as in OverlappedDDP: pack those of a bucket into one flat tensor. "
            "Where you do, the cap is too small: bucket_cap_mb * 2**20 bytes.",
            seen=marks.one_for_each),
    marks.AFTER_BACKWARD,
    ONE_GO,
    Mistake("one bucket for all",
            "All gradients travel in one bucket although the cap is smaller: sizes are bytes, numel() * "
            "element_size(), and bucket_cap_mb is in units of 2**20 bytes.", seen=marks.one_for_all),
    Mistake("sent as they fill",
            "A bucket left before one that comes earlier in the plan. Another rank may fill them in another order, "
            "and then two different buckets are added: send the next of the plan when it is full, never a later one.",
            seen=either(marks.another_order, _unpacks_another), certain=True),
    Mistake("bytes counted otherwise",
            "The buckets are cut at another cap than the one given. The bytes of a gradient are parameter.numel() * "
            "parameter.element_size() (this model is float64, 8 bytes a number), and 1 MB is 2**20 bytes.",
            seen=marks.beside_the_cap),
    Mistake("not all copied back",
            "All buckets travelled, but some gradients are still the rank's own: after wait(), copy every piece of "
            "every bucket back to its parameter.grad.", seen=not_all_copied_back),
    Mistake("a full bucket stays behind",
            "Some gradients were averaged and others never left this rank: a bucket stayed behind. When one has left, "
            "the next may already be full, and no hook will fire for it again. Or it waits for the gradient of a "
            "frozen parameter, which never comes. Or it holds other parameters than the plan says.",
            seen=either(left_behind, _fewer_than_planned), certain=True),
    Mistake("no gradients after it",
            "After finish_gradient_synchronization a grad is None. The optimizer reads the mean only then: the caller "
            "sets every grad to None before the next step.", seen=marks.all_are("none")),
    Mistake("called before the gradient is there",
            "register_hook calls before the gradient is stored in .grad, register_post_accumulate_grad_hook when it is "
            "there.", seen=_called_before, certain=True),
    Mistake("every hook has the last index",
            "A bucket was packed before all its gradients were ready. Your hooks are lambdas made in a loop: each "
            "looks up the index when it is called, and by then it is the last one. partial(self.on_gradient, index) "
            "stores it right away.",
            seen=_none_in_a_lambda,
            certain=True),
    marks.NO_HANDLE,
    too_early.NONE_AT_THE_END,
    Mistake("packed too early",
            "A bucket was packed before all its gradients were ready: count down the bucket of the parameter whose "
            "hook was called, and pack at zero. If the first step went well, its counts were not reset.",
            seen=_packs_none, certain=True),
    marks.STALE,
    marks.BRANCH,
    marks.BLOCKING,
)  # fmt: skip

EXERCISE = declared(
    id="bucketed_ddp",
    functions=("BucketedDDP",),
    driver=drive,
    oracle=expected,
    least=least_traffic.of_training,
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
    looks=(wrong_training,),
    mistakes=MISTAKES,
    par=BUCKETS,
)
