"""What became of each case, and what can be said only when all are seen together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from labkit.checks.case import Case, Got
from labkit.checks.exercise import Exercise
from labkit.checks.first_look import FirstLook
from labkit.checks.verdict import PLAIN_ERROR, Verdict
from labkit.checks.wire import Wire
from labkit.words import join


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


def hint_across(exercise: Exercise, outcomes: Sequence[CaseOutcome]) -> str:
    """Return a hint that the pattern of passed and failed cases gives, or "".

    It names a world size that seems to be written into the code, and says where two ranks are too few to show a
    mistake. It is silent where the mistake has been recognised for sure.
    """
    shown = explained(exercise, outcomes)
    if shown is None or shown.verdict is None or shown.verdict.mistake == PLAIN_ERROR:
        return ""
    if shown.verdict.mistake in exercise.mistakes and shown.verdict.mistake not in exercise.general:
        return ""
    # A case that asks for an error says nothing of the numbers of ranks for which the sums are right.
    ran = [each for each in outcomes if each.verdict is not None and "Error" not in each.case.name]
    right = {outcome.case.world_size for outcome in ran if outcome.passed}
    wrong = {outcome.case.world_size for outcome in ran if not outcome.passed}
    if len(right) != 1 or right & wrong or right == {1}:
        return ""
    (size,) = right
    if size == 2:
        return (
            "It works with 2 ranks but with no other number: with two ranks, left and right are the same, and one "
            "step is all steps. Think it through with three."
        )
    return (
        f"It works with {size} ranks and not with {join(sorted(wrong))}: is {size} written into the code? Ask "
        "dist.get_world_size(group)."
    )
