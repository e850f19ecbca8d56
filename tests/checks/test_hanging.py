"""Who waited for what when a run did not end."""

from __future__ import annotations

from labkit.checks.case import Failure
from labkit.checks.hanging import waits_in
from labkit.launch.reports import IN_NO_CALL

_WAITING = "rank 1 waits in recv from rank 0\nrank 2 waits in recv from rank 1"


def test_ranks_that_all_wait_in_a_receive_are_told_from_those_that_wait_for_one_that_sleeps() -> None:
    stuck = Failure("timeout", 1, "It did not finish in time.", _WAITING)
    asleep = Failure("timeout", 1, "It did not finish in time.", f"{_WAITING}\nrank 0: rank 0 is {IN_NO_CALL}")
    assert waits_in(stuck, "recv") and not waits_in(stuck, "send")
    assert not waits_in(asleep, "recv")
