"""Of a failed case the event to look at first is found, marked in the picture, and told in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labkit.checks.case import Case, Failure
from labkit.checks.exercise import judge
from labkit.checks.first_look import FirstLook, find_first_look
from labkit.checks.notebook import CheckResult
from labkit.checks.outcome import CaseOutcome
from labkit.checks.rank_side import CASE_KIND
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire, WireProblem
from labkit.exercises.start_here.average.exercise import EXERCISE
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.timeline.span import Problem
from labkit.widgets.layout import LEFT, NUM_COLUMNS, TOP, row_layout
from labkit.widgets.live import VIEWS
from labkit.widgets.static_timeline import to_png
from labkit.widgets.timeline_columns import pack
from tests.widgets.still_pixels import on_ground

WRONG = Verdict(False, message="Rank 1 receives in vain.", rank=1, call=2)


def recorded(problems: tuple[Problem, ...] = (), *, hangs: bool = False) -> Timeline:
    """Return two cases of two ranks; in the second, rank 1 sends, receives, and receives what never comes."""
    rows = [  # rank, start, end, name, kind, peer, flow
        (0, 0, 100, "case 0", CASE_KIND, -1, -1),
        (0, 10, 20, "send", "send", 1, 0),
        (1, 0, 100, "case 0", CASE_KIND, -1, -1),
        (1, 10, 20, "recv", "recv", 0, 0),
        (0, 200, 300, "case 1", CASE_KIND, -1, -1),
        (0, 210, 220, "recv", "recv", 1, 1),
        (0, 230, 240, "send", "send", 1, 2),
        (1, 200, 300, "case 1", CASE_KIND, -1, -1),
        (1, 210, 220, "send", "send", 0, 1),
        (1, 225, 240, "recv", "recv", 0, 2),
        (1, 250, 250, "recv", "recv", 0, -1),
    ]
    rank, start, end, name, kind, peer, flow = zip(*rows, strict=True)
    lane = [COMPUTE if each == CASE_KIND else COMMUNICATION for each in kind]
    calls = np.array([number for number, each in enumerate(kind) if each != CASE_KIND])
    tables = {
        "call": {"span": calls, "failed": calls == 9},
        "source": {"span": calls, "line": np.array([f"ring.py:{number}" for number in calls.tolist()])},
        "open": {"span": np.array([7, 10] if hangs else [], dtype=np.int64)},
    }
    return Timeline(rank, lane, start, end, name, kind, None, peer, flow, tables=tables, problems=problems)


def found(timeline: Timeline, verdict: Verdict = WRONG, got: Any = ()) -> FirstLook:
    """Return what is found in the second case."""
    look = find_first_look(timeline, 1, verdict, got)
    assert look is not None
    return look


def where(look: FirstLook) -> tuple[int, str, int]:
    """Return rank, kind and begin of the event."""
    part, row = look.timeline, look.row
    return int(part.rank[row]), str(part.kind[row]), int(part.start_ns[row])


def test_a_wrong_number_points_at_no_call() -> None:
    for text in ("Rank 1 is wrong.", "Rank 1 sends to rank 0; rank 0 is wrong."):  # whatever its words
        assert find_first_look(recorded(), 1, Verdict(False, text, got="rank 1: [3]", rank=1), ()) is None


def test_only_the_failed_case_is_shown_without_its_own_mark() -> None:
    part = found(recorded()).timeline
    assert len(part) == 5 and CASE_KIND not in part.kind and int(part.start_ns.min()) == 210


def test_the_call_the_verdict_is_about_is_the_one() -> None:
    look = found(recorded(), Verdict(False, "Here nothing passes from rank 1 to rank 0.", rank=1, call=0))
    assert where(look) == (1, "send", 210) and look.reason == "the call the check speaks of."
    assert look.event == "rank 1, send to rank 0, 0 ns after the case began"
    assert where(found(recorded(), Verdict(False, "Nor here.", rank=1, call=1))) == (1, "recv", 225)


@pytest.mark.parametrize(("row", "start"), [(9, 225), (10, 250)])
def test_a_problem_on_the_wire_points_at_its_own_call(row: int, start: int) -> None:
    problem = Problem("not_waited", 1, "Rank 1 never waited for its irecv from rank 0.", row)
    verdict = Verdict(False, "It is not waited for.", problem=WireProblem("not_waited", 1, problem.text))
    look = found(recorded((problem,)), verdict)
    assert where(look) == (1, "recv", start) and look.reason == "for which nobody waited."


def test_of_two_equal_problems_the_one_in_the_failed_case_is_shown() -> None:
    text = "Rank 1 posted recv and rank 0 has no send for it."
    both = (Problem("unmatched_recv", 1, text, 3), Problem("unmatched_recv", 1, text, 10))
    verdict = Verdict(False, text, problem=WireProblem("unmatched_recv", 1, text))
    assert where(found(recorded(both), verdict)) == (1, "recv", 250)
    assert find_first_look(recorded(both[:1]), 1, verdict, ()) is None


def test_a_failure_keeps_what_was_seen_on_the_wire() -> None:
    seen = WireProblem("unmatched_recv", 1, "Rank 1 posted recv and rank 0 has no send for it.")
    failure = Failure("exception", 0, "A message went to a rank nobody expected.", problem=seen)
    verdict = judge(EXERCISE, EXERCISE.visible[0], failure, Wire())
    assert (verdict.rank, verdict.problem) == (0, seen)
    timeline = recorded((Problem(seen.kind, seen.rank, seen.text, 10),))
    assert where(found(timeline, verdict, failure)) == (1, "recv", 250)


def test_of_a_hang_the_call_that_never_ended_is_marked_and_drawn_to_the_end() -> None:
    look = found(recorded(hangs=True), Verdict(False, "A deadlock."), Failure("deadlock", None, "A deadlock."))
    assert where(look) == (1, "recv", 250) and look.reason == "the call that never ended."
    assert int(look.timeline.end_ns[look.row]) == int(look.timeline.end_ns.max()) > 300


def test_of_an_exception_the_call_that_raised_is_marked() -> None:
    failure = Failure("exception", 1, "Rank 1 raised RuntimeError: no.", error="RuntimeError")
    assert where(found(recorded(), Verdict(False, failure.message), failure)) == (1, "recv", 225)


def marked_by_the_check(*, hangs: bool) -> Timeline:
    """Return a case in which the check's own barriers stand around a learner's call, and one within its backward."""
    rows = [  # rank, start, end, kind, line, group
        (0, 0, 100, CASE_KIND, "", ""),
        (0, 10, 20, "barrier", "", "group 1"),
        (0, 30, 40, "all_reduce", "ring.py:3", "world"),
        (0, 50, 60, "barrier", "ring.py:4", "group 1"),
        (0, 70, 80, "barrier", "", "group 1"),
    ]
    rank, start, end, kind, line, group = zip(*rows, strict=True)
    calls = np.arange(1, 5)
    tables = {
        "call": {"span": calls, "failed": calls == 4, "group": np.array(group[1:])},
        "source": {"span": calls, "line": np.array(line[1:])},
        "open": {"span": np.array([1, 3] if hangs else [], dtype=np.int64)},
    }
    lane = [COMPUTE, *[COMMUNICATION] * 4]
    name = ("case 0", *kind[1:])
    return Timeline(rank, lane, start, end, name, kind, tables=tables)


@pytest.mark.parametrize("kind", ["deadlock", "exception", "timeout"])
def test_the_checks_own_barriers_are_never_pointed_at(kind: Any) -> None:
    failure = Failure(kind, 0, "It failed.")
    look = find_first_look(marked_by_the_check(hangs=True), 0, Verdict(False, "It failed."), failure)
    assert look is not None and where(look) == (0, "all_reduce", 30)
    last = find_first_look(
        marked_by_the_check(hangs=False), 0, Verdict(False, "It died.", rank=0), Failure("died", 0, "It died.")
    )
    assert last is not None and where(last) == (0, "all_reduce", 30)


def test_of_many_ranks_the_row_of_the_event_is_shown_in_the_picture_and_on_the_page() -> None:
    ranks = np.arange(512)
    calls = ["all_reduce"] * 512
    timeline = Timeline(ranks, [COMMUNICATION] * 512, [0] * 512, [9] * 512, calls, calls)
    for row in (0, 3, 257, 511):
        assert (row, COMMUNICATION) in row_layout(timeline, row).rows  # beside one of those that are alike
        packed = pack(timeline, focus=row)
        assert packed["focus"] >= 0 and row in [rank for rank, *_ in packed["rows"]]


def test_a_case_without_calls_has_no_event() -> None:
    assert find_first_look(recorded().spans(kind=CASE_KIND), 1, WRONG, ()) is None
    assert find_first_look(None, 0, WRONG, ()) is None


def test_the_picture_has_a_red_frame_around_the_event() -> None:
    look = found(recorded())
    image = on_ground(to_png(look.timeline, event=look.row)).astype(int)
    red = (image[:, :, 0] > 150) & (image[:, :, 1] < 60)
    rows, columns = np.nonzero(red[TOP:])
    layout = row_layout(look.timeline)
    assert layout.tops[1] - 4 <= rows.min() < layout.tops[1] and columns.min() > LEFT + 0.9 * NUM_COLUMNS
    plain = on_ground(to_png(look.timeline)).astype(int)
    assert not ((plain[TOP:, :, 0] > 150) & (plain[TOP:, :, 1] < 60)).any()


def test_where_nobody_looks_a_failed_check_shows_its_lines_and_the_marked_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VIEWS, "static")
    shown: list[dict[str, Any]] = []
    for place in ("IPython.display.display", "labkit.widgets.display.display"):
        monkeypatch.setattr(place, lambda data, raw, metadata=None: shown.append(data))
    outcome = CaseOutcome(Case("2 ranks", 2, ({}, {})), WRONG, first_look=found(recorded()))
    CheckResult("naive_all_reduce", (outcome,), shown=outcome)._ipython_display_()
    assert "FAIL  2 ranks" in shown[0]["text/plain"] and "text/html" in shown[0]
    assert set(shown[1]) == {"image/png", "text/plain"} and shown[1]["text/plain"].startswith(
        "Look here first: rank 1, recv"
    )
    with pytest.raises(NotImplementedError):  # nothing to point at: the lines alone, as of a check that passed
        CheckResult("naive_all_reduce", (outcome,))._ipython_display_()
