"""Changes of a wrong answer, tried one after another in a process of their own.

What an answer prints, leaves in its globals or starts ends with that process. Ranks are virtual ones: a deadlock is
known at once. A change that does not come to an end is given up by an alarm, one that wants too much memory by a limit.
"""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.checks.case import Case, Got
from labkit.checks.exercise import Exercise, judge
from labkit.checks.failures import failure_of, failure_of_traceback
from labkit.checks.from_timeline import wire_of_case
from labkit.checks.rank_side import run_cases
from labkit.checks.rooms import find
from labkit.checks.sweep import world
from labkit.checks.undoing.changes import changes
from labkit.checks.undoing.places import Change
from labkit.checks.undoing.source import Live, Text
from labkit.checks.wire import Wire
from labkit.checks.wire_format import decode, encode
from labkit.errors import RunError
from labkit.launch.worker import seed_all
from labkit.worlds import run

if sys.platform == "linux":
    import resource

Functions = Mapping[str, Callable[..., Any]]
MOST_LINES = 2
_MORE = 50
"""So many changes are tried after one that was enough, in search of another line."""
_SLOWEST_S = 1.0
"""An answer whose failing case takes longer, of the processor's time, leaves no time to try anything."""
_LONGEST_S = 60.0
_ENDLESS_S = 0.5
"""How long a change of an answer that never ends may take."""
_ROOM_BYTES = 4 << 30


class _TooLong(BaseException):
    """Raised in a trial whose time is up."""


def try_changes(
    exercise_id: str, functions: Functions, texts: Sequence[Text], failed: int, ends: bool, file: str
) -> None:
    """Write to a file, a line for each, which changes make every visible case pass: at most one of two lines each.

    Where the answer touches a tensor before its message has come or left, which virtual ranks see, that is written
    instead, as {"seen": what}: what it computes then differs from run to run.

    Args:
        exercise_id: Its slug.
        functions: The learner's functions, and the given names, by name.
        texts: What they say.
        failed: Which visible case failed: changes with which it still does are tried on no other.
        ends: Whether it came to an end there; else no time is left for a second line.
        file: Where to write. What stands there when the time is up has been found.
    """
    _limit_memory()
    gc.unfreeze()  # a virtual run would count what is frozen each time
    os.chdir(Path(file).parent)
    exercise = find(exercise_id)
    first = exercise.visible[failed]
    others = [each for each in exercise.visible if each is not first]
    seconds, wire = _first_try(exercise, functions, first, ends)
    most = MOST_LINES if ends else 1
    races = wire.problems_of("read_before_wait", "changed_in_flight")
    if races:
        Path(file).write_text(json.dumps({"seen": races[0].text}) + "\n", encoding="utf-8")
    if races or seconds is None:
        return
    lines: set[tuple[str, int]] = set()
    last = math.inf
    for number, (text, live, change) in enumerate(_all_changes(functions, texts)):
        if number > last:
            return
        if (text.file, change.line) in lines:
            continue
        if _holds(exercise, functions, live, change, [first], seconds) and _holds(
            exercise, functions, live, change, others, 4 * seconds
        ):
            lines.add((text.file, change.line))
            where = f"line {change.line}, `{text.line(change.line)}`"
            with Path(file).open("a", encoding="utf-8") as found:
                found.write(json.dumps(change.says.format(where=where)) + "\n")
            if len(lines) == most:
                return
            last = number + _MORE


def _first_try(exercise: Exercise, functions: Functions, case: Case, ends: bool) -> tuple[float | None, Wire]:
    """Return how long a change may take in the case that failed, None where nothing is to be tried; and its wire."""
    began, computed = time.monotonic(), time.process_time()
    passes, wire = _tried(exercise, functions, case, _LONGEST_S if ends else _ENDLESS_S)
    if passes or time.process_time() - computed > _SLOWEST_S:
        return None, wire  # what made it fail is not there on virtual ranks, or takes too long
    return 0.3 + 3 * (time.monotonic() - began) if ends else _ENDLESS_S, wire


def _all_changes(functions: Functions, texts: Sequence[Text]) -> Iterator[tuple[Text, Live, Change]]:
    for text in texts:
        tree, live = text.parsed(), Live(text.file, functions)
        if live.is_up_to_date(tree):
            yield from ((text, live, each) for each in changes(tree))


def _holds(
    exercise: Exercise, functions: Functions, live: Live, change: Change, cases: Sequence[Case], seconds: float
) -> bool:
    """Return whether cases pass with a change."""
    try:
        with change.made(), live.changed(change.within):
            return all(_passes(exercise, functions, case, seconds) for case in cases)
    except (SyntaxError, ValueError, _TooLong):
        return False


def _passes(exercise: Exercise, functions: Functions, case: Case, seconds: float) -> bool:
    """Return whether a case passes within so many seconds."""
    return _tried(exercise, functions, case, seconds)[0]


def _tried(exercise: Exercise, functions: Functions, case: Case, seconds: float) -> tuple[bool, Wire]:
    """Return whether a case passes within so many seconds, and what travelled."""
    try:
        # A virtual run ends itself, and is not to be disturbed in it.
        with _alarm(seconds if not exercise.distributed else seconds + 2):
            got, wire = _brought(exercise, functions, case, seconds)
            return judge(exercise, case, got, wire).passed, wire
    except (Exception, SystemExit, KeyboardInterrupt, _TooLong):
        return False, Wire()


def _brought(exercise: Exercise, functions: Functions, case: Case, seconds: float) -> tuple[Got, Wire]:
    if not exercise.distributed and case.world_size == 1:
        seed_all(0, cuda=False)
        try:
            return (decode(encode(exercise.driver(functions, case.inputs[0]))),), Wire()
        except Exception:
            return failure_of_traceback(traceback.format_exc(), 0, exercise, functions), Wire()
    try:
        result = run(
            run_cases, exercise.driver, functions, [case.inputs],
            on=world(case.world_size), timeout=seconds, init=exercise.distributed or case.world_size > 1, echo=False,
        )  # fmt: skip
    except RunError as error:
        wire = Wire() if error.timeline is None else wire_of_case(error.timeline, 0)
        return failure_of(error, exercise, functions), wire
    assert result.timeline is not None
    return tuple(decode(of_rank[0]) for of_rank in result.results), wire_of_case(result.timeline, 0)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise in this thread when seconds have passed, and again where it went on."""

    def ring(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _limit_memory() -> None:
    """Let this process have little more memory than it has."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    room = has + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (room if most == resource.RLIM_INFINITY else min(room, most), most))
