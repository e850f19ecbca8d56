"""What became of each case, and what can be said only when all are seen together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType

from labkit.checks.case import Case, Got
from labkit.checks.exercise import Exercise
from labkit.checks.first_look import FirstLook
from labkit.checks.groups import in_groups
from labkit.checks.verdict import PLAIN_ERROR, Verdict
from labkit.checks.wire import Wire
from labkit.words import join

_COLLECTIVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "all_to_all_single"})


@dataclass(frozen=True)
class CaseOutcome:
    """What became of a case.

    Attributes:
        case: The case.
        verdict: What the judge said; None where it was not run because an earlier one hung.
        printed: What the ranks printed in it.
        first_look: Of a failed case, the event to look at first, where its run has one.
        got: What it brought; None where it was not run.
        on_gpus: What would become of it on GPUs although it is right on the CPU, or "".
        wire: What passed on the wire.
    """

    case: Case
    verdict: Verdict | None
    printed: tuple[str, ...] = ()
    first_look: FirstLook | None = None
    got: Got | None = None
    on_gpus: str = ""
    wire: Wire = field(default_factory=Wire)

    @property
    def passed(self) -> bool:
        """Return whether the case ran and is right."""
        return self.verdict is not None and self.verdict.passed


def explained(exercise: Exercise, outcomes: Sequence[CaseOutcome]) -> CaseOutcome | None:
    """Return the failed case that is explained: the first, for cases go from simple to particular."""
    return next((each for each in outcomes if each.verdict is not None and not each.passed), None)


def hint_across(exercise: Exercise, outcomes: Sequence[CaseOutcome], functions: Iterable[object] = ()) -> str:
    """Return a hint that the pattern of passed and failed cases gives, or "".

    It names a group that is not asked for and a world size that is written into the code, and says where two ranks are
    too few to show a mistake. It is silent where the mistake has been recognised for sure.

    Args:
        exercise: What was checked.
        outcomes: Of its cases.
        functions: The learner's.
    """
    shown = explained(exercise, outcomes)
    if shown is None or shown.verdict is None:
        return ""
    if shown.verdict.mistake in exercise.mistakes and shown.verdict.mistake not in exercise.general:
        return ""
    # A case that asks for an error says nothing of the numbers of ranks for which the sums are right.
    ran = [each for each in outcomes if each.verdict is not None and "Error" not in each.case.name]
    alone = [each for each in ran if not in_groups(each.case)]
    if alone and all(each.passed for each in alone) and not all(each.passed for each in ran):
        return (
            "It works wherever all ranks are one group, and fails where a group has only some of them. Ask the group "
            "for ranks, sizes and parts, and send and reduce in it."
        )
    if shown.verdict.mistake == PLAIN_ERROR:
        return ""
    right = {outcome.case.world_size for outcome in ran if outcome.passed}
    wrong = {outcome.case.world_size for outcome in ran if not outcome.passed}
    if len(right) != 1 or right & wrong or right == {1}:
        return ""
    (size,) = right
    if size == 2:
        if _only_collectives(functions):
            return ""
        return (
            "It works with 2 ranks but with no other number: with two ranks, left and right are the same, and one "
            "step is all steps. Think it through with three."
        )
    if size not in _constants(functions) or _asks_for_ranks(functions):  # cases differ in more than the number of ranks
        return ""
    return (
        f"It works with {size} ranks and not with {join(sorted(wrong))}: is the {size} in your code the number of "
        "ranks? Ask dist.get_world_size(group)."
    )


def _constants(functions: Iterable[object]) -> set[object]:
    """Return the numbers that functions and classes have in their code, and in that of the functions they call."""
    return {one for code in _codes(functions) for one in code.co_consts if isinstance(one, int)}


def _asks_for_ranks(functions: Iterable[object]) -> bool:
    """Return whether functions ask for the number of ranks, so that a constant in them is likely something else."""
    return any("get_world_size" in code.co_names for code in _codes(functions))


def _only_collectives(functions: Iterable[object]) -> bool:
    """Return whether functions call collectives and send nothing: none of them has a left or a right."""
    names = {name for code in _codes(functions) for name in code.co_names}
    return bool(names & _COLLECTIVES) and not any("send" in name or "recv" in name for name in names)


def _codes(functions: Iterable[object]) -> list[CodeType]:
    """Return the code of functions and classes, and of the functions of the same module that they call."""
    found: list[CodeType] = []
    waiting, seen = list(functions), set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, CodeType):
            found.append(each)
            waiting += [one for one in each.co_consts if isinstance(one, CodeType)]
        elif isinstance(each, FunctionType):
            called = (each.__globals__.get(name) for name in each.__code__.co_names)
            ours = each.__module__
            waiting += [each.__code__, *(one for one in called if getattr(one, "__module__", None) == ours)]
        elif isinstance(each, type):
            waiting += vars(each).values()
        elif isinstance(each, staticmethod | classmethod):
            waiting.append(each.__func__)
    return found
