"""overlapped_ddp and what grows out of it: the wrapper, from one hook per parameter to MiniDDP."""

from __future__ import annotations

from labkit.checks.case import Case, Got
from labkit.checks.wire import Wire
from labkit.exercises.averaging import marks
from labkit.exercises.averaging.training import steps_of


def left_behind(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in one step some gradients were averaged and others are still each rank's own."""
    for number in range(len(steps_of(case))):
        found = marks.gradient_marks(case, got, number).values()
        if any(names <= {"own", "own/N"} for names in found) and {"mean"} in found:
            return True
    return False


COMMON = (
    marks.TORCH,
    marks.TO_ONE,
    marks.TOO_EARLY,
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
