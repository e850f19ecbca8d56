"""Who waited for what when a run did not end."""

from __future__ import annotations

import pytest

from labkit.checks.case import Case, Failure, FailureKind, Wait
from labkit.checks.exercise import judge
from labkit.checks.failures import failure_of
from labkit.checks.hanging import all_alike, never_comes, nobody_waited, nobody_waits, stays_away, waits_in
from labkit.checks.rooms import exercises, find, lessons
from labkit.checks.wire import Message, Wire, WireProblem
from labkit.errors import RunTimeout
from labkit.launch.reports import IN_NO_CALL

_WAITING = "rank 1 waits in recv from rank 0\nrank 2 waits in recv from rank 1"


def test_ranks_that_all_wait_in_a_receive_are_told_from_those_that_wait_for_one_that_sleeps() -> None:
    stuck = Failure("timeout", 1, "It did not finish in time.", _WAITING)
    asleep = Failure("timeout", 1, "It did not finish in time.", f"{_WAITING}\nrank 0: rank 0 is {IN_NO_CALL}")
    assert waits_in(stuck, "recv") and not waits_in(stuck, "send")
    assert not waits_in(asleep, "recv")


def test_who_has_finished_without_a_message_is_told_from_one_who_has_sent() -> None:
    case = Case("two ranks", 2, ({}, {}))
    stuck = Failure("deadlock", None, "", waits=(Wait(0, "recv", 1),))
    sent = Wire(messages=(Message(src=1, dst=0, bytes=8, sent=0),))
    assert never_comes(case, stuck, Wire()) == (
        "Rank 1 has finished and has sent nothing, so what rank 0 waits for never comes."
    )
    assert never_comes(case, stuck, sent) == "Rank 1 has finished, so what rank 0 waits for never comes."


def test_a_message_that_nobody_waited_for_is_told_from_one_whose_wait_was_still_to_come() -> None:
    case = Case("two ranks", 2, ({}, {}))
    problem = WireProblem("not_waited", 1, "Rank 1 never waited for its isend to rank 0 (a.py, line 3).")
    wire = Wire(problems=(problem,))
    posted = Failure("deadlock", None, "", waits=(Wait(0, "recv", 1), Wait(1, "recv", 0)))
    assert nobody_waited(case, posted, wire, "isend") and not nobody_waited(case, posted, wire, "irecv")
    elsewhere = Failure("deadlock", None, "", waits=(Wait(0, "send", 1), Wait(1, "recv", 0)))
    assert not nobody_waited(case, elsewhere, wire, "isend")  # rank 1 may wait for it behind its recv
    finished = Failure("deadlock", None, "", waits=(Wait(0, "send", 1),))
    assert nobody_waited(case, finished, wire, "isend")
    assert not nobody_waited(case, Failure("exception", 0, ""), wire, "isend")


def test_ranks_that_all_wait_in_one_kind_of_call_are_told_that_the_other_end_is_missing() -> None:
    sends = (Wait(0, "send", 1), Wait(1, "isend", 0))
    both = (Wait(0, "send", 1), Wait(1, "recv", 0))
    assert all_alike(Failure("deadlock", None, "", waits=sends)).startswith("All of them wait in a send: nobody has")
    assert all_alike(Failure("deadlock", None, "", waits=(Wait(0, "recv", 1), Wait(1, "recv", 0)))).startswith(
        "All of them wait in a receive"
    )
    assert all_alike(Failure("deadlock", None, "", waits=both)) == ""


def test_a_rank_that_computes_for_ever_is_told_with_the_learner_s_lines() -> None:
    report = (
        f"rank 0 is {IN_NO_CALL}, it computes\n"
        '  File "<cell 16>", line 47, in find_stuck\n    if not all(can(stage, record) for record in step):\n'
        '  File "<cell 16>", line 47, in <genexpr>\n    if not all(can(stage, record) for record in step):'
    )
    failure = failure_of(RunTimeout("too late", reports={0: report}), find("find_deadlock"), {})
    assert failure.detail.splitlines()[:2] == [
        f"rank 0 is {IN_NO_CALL}, it computes, in",
        "line 47, in find_stuck:  if not all(can(stage, record) for record in step):",
    ]


def test_a_rank_that_never_came_to_a_collective_is_told_from_one_that_owes_a_message() -> None:
    case = Case("three ranks", 3, ({}, {}, {}))
    both = (Wait(0, "all_reduce"), Wait(1, "all_reduce"))
    assert stays_away(case, Failure("deadlock", None, "", waits=both), Wire())
    assert not stays_away(
        case, Failure("deadlock", None, "", waits=(Wait(0, "all_reduce"), Wait(1, "recv", 2))), Wire()
    )
    assert not stays_away(case, Failure("deadlock", None, "", waits=(*both, Wait(2, "all_gather"))), Wire())


KINDS: tuple[FailureKind, ...] = ("not_implemented", "exception", "deadlock", "timeout", "died", "bad_result")


@pytest.mark.in_turn
@pytest.mark.parametrize("lesson", lessons())
def test_every_failure_is_judged_and_an_endless_loop_is_no_mistake_about_messages(lesson: str) -> None:
    for exercise in exercises(lesson).values():
        case = exercise.visible[0]
        ranks = "\n".join(f"rank {rank} is {IN_NO_CALL}" for rank in range(case.world_size))
        for kind in KINDS:
            failed = Failure(kind, 0, "It took more than 25 s.", ranks, "KeyError" if kind == "exception" else "")
            verdict = judge(exercise, case, failed, Wire())
            assert not verdict.passed, (exercise.id, kind)
            if kind == "timeout":
                assert verdict.mistake in {"", *exercise.endless}, (exercise.id, verdict)
                assert verdict.mistake or "look for a loop that does not end" in verdict.message


def test_a_rank_that_waits_is_not_a_loop() -> None:
    waiting = f"rank 0 is {IN_NO_CALL}: it computes\nrank 1 waits in all_reduce, for rank 0"
    assert not nobody_waits(Failure("timeout", 0, "", waiting))
    assert not nobody_waits(Failure("timeout", 0, "", waits=(Wait(1, "recv", 0),)))
    assert not nobody_waits(Failure("deadlock", None, ""))
    assert nobody_waits(Failure("timeout", 0, "", waiting.partition("\n")[0]))
