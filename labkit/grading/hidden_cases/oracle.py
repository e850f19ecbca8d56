"""The grading process's line to the oracle process; imports no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from labkit.checks.wire import Wire
from labkit.errors import EnvironmentProblem, LessonError
from labkit.grading.course import Course
from labkit.grading.frames import read_frame, write_frame
from labkit.grading.limits import Limits
from labkit.grading.preloaded.client import ORACLE, Preloaded, process_id

_ANSWER_SECONDS = 120.0


@dataclass(frozen=True)
class HiddenCase:
    """What the grading process knows of a hidden case: its name, and each rank's inputs as opaque bytes."""

    index: int
    name: str
    inputs: tuple[bytes, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.inputs)


@dataclass(frozen=True)
class Judged:
    """The verdict on one case, as it may be told: never with expected values. Its parts are a Verdict's."""

    passed: bool
    message: str = ""
    hint: str = ""
    mistake: str = ""
    rank: int | None = None
    call: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True)
class Left:
    """What a visible case says of an answer, and what the answer left behind in it (labkit.checks.fingerprint)."""

    passed: bool
    hint: str
    mistake: str
    told: str
    sums: Sequence[Sequence[float]]


class Oracle:
    """Asks the oracle process; start it once and use it for many submissions.

    Args:
        course: The lesson.
        limits: The largest result it shall read.
        preloaded: What it is forked from; else one of its own.
    """

    def __init__(self, course: Course, limits: Limits | None = None, preloaded: Preloaded | None = None) -> None:
        self._course, self._limits = course, limits or Limits()
        self._owns, self._preloaded = preloaded is None, preloaded or Preloaded()
        self._asked: tuple[str, int] | None = None
        self._start()

    def _start(self) -> None:
        course = self._course
        self._sock = self._preloaded.fork(ORACLE)
        self._process: psutil.Process | None = None
        opening = {
            "op": "open",
            "lesson": course.slug,
            "exercises": str(course.exercises) if course.exercises else None,
            "result_bytes": self._limits.result_bytes,
            "path": sys.path,
        }
        write_frame(self._sock, opening)
        self._exercises: tuple[str, ...] | None = None

    @property
    def pid(self) -> int:
        """The oracle's process id; the first use waits until it has loaded."""
        return int(self._there().pid)

    def _there(self) -> psutil.Process:
        if self._process is None:
            self._process = psutil.Process(process_id(self._sock))
            self._sock.settimeout(_ANSWER_SECONDS)
        return self._process

    @property
    def exercises(self) -> tuple[str, ...]:
        """Ids of the exercises it can judge; the first use waits until it has loaded."""
        if self._exercises is None:
            self._there()
            header, self._rank_side = self._answer()
            self._exercises = tuple(header["exercises"])
        return self._exercises

    @property
    def rank_side(self) -> bytes:
        """What ranks are told of the exercises, for a Template; the first use waits until it has loaded."""
        _ = self.exercises
        return self._rank_side

    def cases(self, exercise_id: str, secret: int) -> list[HiddenCase]:
        """Return the hidden cases of an exercise that follow from a submission's secret."""
        self._asked = (exercise_id, secret)
        return self._cases({"op": "cases", "exercise": exercise_id, "secret": secret})

    def visible_cases(self, exercise_id: str) -> list[HiddenCase]:
        """Return the cases that learners see of an exercise."""
        return self._cases({"op": "visible", "exercise": exercise_id})

    def _cases(self, request: Mapping[str, Any]) -> list[HiddenCase]:
        header, payload = self._ask(request)
        cases, start = [], 0
        for index, about in enumerate(header["cases"]):
            inputs = []
            for size in about["sizes"]:
                inputs.append(payload[start : start + size])
                start += size
            cases.append(HiddenCase(index, about["name"], tuple(inputs)))
        return cases

    def judge(
        self,
        exercise_id: str,
        case: HiddenCase,
        results: Sequence[bytes],
        failure: Mapping[str, Any] | None,
        wire: Wire,
    ) -> Judged:
        """Return the verdict on what a case brought: one encoded result a rank, or a failure's fields."""
        request = _brought("judge", exercise_id, case, results, failure, wire)
        try:
            header, _ = self._ask(request, b"".join(results))
        except (LessonError, EnvironmentProblem) as error:
            # What came back is the submission's: it must not end the class, and earns nothing.
            print(f"exercise {exercise_id}, {case.name}: what came back could not be judged: {error}", file=sys.stderr)
            if self._asked is not None and not isinstance(error, LessonError):
                self._end()
                self._start()
                self.cases(*self._asked)
            return Judged(
                False, "What came back could not be compared with anything: is it of the asked type and size?"
            )
        return Judged(**header)

    def left_behind(self, exercise_id: str, case: HiddenCase, results: Sequence[bytes], wire: Wire) -> Left:
        """Return what an answer left behind in a visible case.

        Raises:
            LessonError: If what came back cannot be read or judged.
        """
        header, _ = self._ask(_brought("left", exercise_id, case, results, None, wire), b"".join(results))
        return Left(**header)

    def close(self) -> None:
        """End the oracle process."""
        self._end()
        if self._owns:
            self._preloaded.close()

    def _end(self) -> None:
        self._sock.close()
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                self._process.kill()

    def _ask(self, request: Mapping[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
        _ = self.exercises  # the opening's answer comes first
        try:
            write_frame(self._sock, request, payload)
        except OSError as error:
            raise EnvironmentProblem(f"the oracle process is gone ({error})") from None
        return self._answer()

    def _answer(self) -> tuple[dict[str, Any], bytes]:
        try:
            frame = read_frame(self._sock)
        except TimeoutError:
            raise EnvironmentProblem(f"the oracle process gave no answer within {_ANSWER_SECONDS:g} s") from None
        if frame is None:
            raise EnvironmentProblem("the oracle process ended; what it printed is above")
        if "error" in frame.header:
            raise LessonError(f"the lesson's own checks failed: {frame.header['error']}\n{frame.header['traceback']}")
        return frame.header, bytes(frame.payload)


def _brought(
    op: str,
    exercise_id: str,
    case: HiddenCase,
    results: Sequence[bytes],
    failure: Mapping[str, Any] | None,
    wire: Wire,
) -> dict[str, Any]:
    """Return a request about what a case brought; the results follow it."""
    return {
        "op": op,
        "exercise": exercise_id,
        "case": case.index,
        "failure": dict(failure) if failure is not None else None,
        "sizes": [len(result) for result in results],
        "messages": [list(asdict(message).values()) for message in wire.messages],
        "collectives": [list(asdict(call).values()) for call in wire.collectives],
        "problems": [list(asdict(problem).values()) for problem in wire.problems],
    }
