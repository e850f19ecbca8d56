"""accumulating_ddp: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from dataclasses import replace

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake, declared, either
from labkit.checks.wire import Wire
from labkit.exercises.averaging import least_traffic, marks
from labkit.exercises.averaging.cases import PLAIN, training_case
from labkit.exercises.averaging.replay import expected, models_of
from labkit.exercises.averaging.stretches import stretches, trained
from labkit.exercises.averaging.training import steps_of, wrong_training
from labkit.exercises.averaging.wrappers import PASSES
from labkit.exercises.ddp_for_real_models.accumulating_ddp.driver import SILENCED, drive


def accumulating_case(
    name: str, seed: int, world_size: int, *steps: dict[str, object], two: bool = False, **model: int
) -> Case:
    """Return a case of accumulating_ddp; with `two`, a second wrapper works while the first is inside no_sync."""
    case = training_case(
        name, seed, world_size, wrapper="AccumulatingDDP", rule="total", steps=steps, model={**PLAIN, **model}
    )
    return replace(case, inputs=tuple({**inputs, "two": True} for inputs in case.inputs)) if two else case


def _outputs_of_quiet_passes(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether something travelled inside no_sync."""
    parts = stretches(case, wire, 0)
    quiet = {(number, run) for number, step in enumerate(steps_of(case)) for run in range(int(step.get("quiet", 0)))}
    return parts is not None and any((s.step, s.run) in quiet and s.calls for s in parts)


def _asked_in_forward(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether something travelled in the backward of those quiet passes alone whose forward ran before."""
    parts = stretches(case, wire, 0) or []
    ahead = {number for number, step in enumerate(steps_of(case)) if step.get("ahead")}
    return (
        bool(ahead)
        and _outputs_of_quiet_passes(case, got, wire)
        and all(
            s.step in ahead or not s.calls
            for s in parts
            if 0 <= s.step < len(steps_of(case)) and s.run < int(steps_of(case)[s.step].get("quiet", 0))
        )
    )


def _after_an_error(case: Case, got: Got, wire: Wire) -> bool:
    if isinstance(got, Failure):
        return _never_left(case, got, wire) and any(step.get("stumble") for step in steps_of(case))
    stumbles = [number for number, step in enumerate(steps_of(case)) if step.get("stumble")]
    return bool(stumbles) and any(
        {mark for names in marks.gradient_marks(case, got, number).values() for mark in names} <= {"own", "mean"}
        and marks.wrong_names(case, got, number)
        for number in stumbles
    )


def _leaves_twice(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether more than twice the gradients travelled in the last pass of a step, with nothing before it."""
    due = sum(size for _, size in trained(models_of(case)[0]))
    sent = [sum(size for _, size in marks.pieces(case, wire, number)) for number in range(len(steps_of(case)))]
    return isinstance(got, tuple) and any(each >= 2 * due for each in sent)


_never_left = marks.says("NoneType", "'wait'")


def _last_pass_only(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a step with quiet passes holds something else than the mean of what was accumulated."""
    quiet = [number for number, step in enumerate(steps_of(case)) if step.get("quiet")]
    return isinstance(got, tuple) and any(marks.wrong_names(case, got, number) for number in quiet)


MISTAKES = (
    marks.TORCH,
    Mistake("no context manager",
            "with ddp.no_sync() needs a context manager: put @contextmanager above the def of a function that yields.",
            seen=marks.says("context manager"), certain=True),
    Mistake("no_sync never yields",
            "no_sync ends before the with block has run, or without it: it must come to yield, exactly once.",
            seen=either(marks.says("is not an iterator"), marks.says("generator didn't")), certain=True),
    Mistake("a flag for all wrappers",
            "no_sync of one wrapper has silenced another. The flag is the wrapper's own: self.synchronize, and neither "
            "an attribute of the class nor a global.", seen=marks.says(SILENCED), certain=True),
    Mistake("no gradients inside no_sync",
            "no_sync puts off what travels, not the gradients: backward inside it adds to parameter.grad as ever, so "
            "leave autograd on.",
            seen=marks.says("does not require grad"), certain=True),
    Mistake("the flag is asked in forward",
            "A pass whose forward ran before no_sync, and whose backward ran inside, sent something. What travels is "
            "decided when backward runs: ask the flag in the hook, not in forward.", seen=_asked_in_forward),
    Mistake("sends inside no_sync",
            "Something travels inside no_sync, or as it ends. The flag must be down there, and while it is down the "
            "hook must return before it counts or sends; only the next backward outside sends.",
            seen=_outputs_of_quiet_passes),
    Mistake("the bucket leaves twice",
            "In one backward the bucket left more than once: a hook stays registered, so register one for each "
            "parameter, in __init__, and count each gradient once.", seen=_leaves_twice),
    Mistake("the exception stays inside",
            "An exception that was raised inside no_sync did not come out of it: use try and finally without except, "
            "or raise it again. Whoever called must learn of it.", seen=marks.says("did not come out of no_sync"),
            certain=True),
    Mistake("no_sync stays on after an error",
            "After an error inside no_sync nothing is averaged any more: put the flag back in a finally.",
            seen=_after_an_error, certain=True),
    Mistake("the bucket never left",
            "finish_gradient_synchronization waits for a bucket that nobody sent: the flag must be up again after "
            "no_sync, and outside of it each gradient must be counted, so that the last one sends the bucket.",
            seen=_never_left, certain=True),
    PASSES,
    Mistake("accumulation is wrong",
            "The averaged gradient is not that of all backward passes of the step together: the last pass must send "
            "what parameter.grad holds by then, all passes added up, not divided by their number.",
            seen=_last_pass_only),
)  # fmt: skip

EXERCISE = declared(
    id="accumulating_ddp",
    functions=("AccumulatingDDP",),
    driver=drive,
    oracle=expected,
    least=least_traffic.of_training,
    visible=(
        accumulating_case("3 ranks, three of four backward passes inside no_sync", 361, 3, {"passes": 4, "quiet": 3}),
        accumulating_case(
            "2 ranks, forward before no_sync, then a step without it",
            362,
            2,
            {"passes": 2, "quiet": 1, "ahead": True},
            {},
            two=True,
        ),
        accumulating_case(
            "3 ranks, after an error inside no_sync", 363, 3, {"stumble": True}, {"passes": 2, "quiet": 1}
        ),
        accumulating_case("3 ranks, two passes, each averaged, none cleared", 364, 3, {"passes": 2}, {"keep": True}),
    ),
    hints=(
        "Where do gradients go if nobody clears parameter.grad between two backward passes? What must the hook not do "
        "in the meantime?",
        "no_sync is a context manager: with @contextmanager it sets a flag, yields, and puts the old value back in a "
        "finally. While the flag is down, on_gradient returns at once and counts nothing.",
        "before, self.synchronize = self.synchronize, False; try: yield; finally: self.synchronize = before",
    ),
    looks=(wrong_training,),
    mistakes=MISTAKES,
)
