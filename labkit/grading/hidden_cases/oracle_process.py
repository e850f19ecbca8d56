"""The trusted process that knows what is right: makes hidden cases and judges what came back as data.

It has torch loaded, loads the hidden cases, and never a line of a submission. It is forked from
`labkit.grading.preloaded.process`.
"""

from __future__ import annotations

import re
import resource
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from labkit.checks import wire_format
from labkit.checks.case import Case, Failure, Got
from labkit.checks.exercise import Exercise, judge
from labkit.checks.fingerprint import case_print
from labkit.checks.hidden import hidden_cases
from labkit.checks.rooms import LABKIT, exercises, own_package
from labkit.checks.wire import CollectiveCall, Message, Wire, WireProblem
from labkit.grading.frames import read_frame, write_frame
from labkit.grading.hidden_cases import rank_exercise
from labkit.grading.sandbox.no_root import give_up_root

_EXPECTED = re.compile(
    r",\s+expected\s+(?:\[.*?\](?=[.,:; ]|$)|\([^()]*\)|torch\.Size\(.*?\)|[-+]?\w[\w.+-]*\w|\w)", re.DOTALL
)
_MEMORY_BYTES = 8 << 30


class Oracle:
    """Hidden cases of one lesson, made for one submission at a time."""

    def __init__(self, lesson: str, own_exercises: str | None, result_bytes: int) -> None:
        self._lesson, self._package = lesson, own_package(Path(own_exercises).parent) if own_exercises else LABKIT
        self.exercises: Mapping[str, Exercise] = exercises(lesson, self._package)
        self._limits = wire_format.Limits(max_bytes=result_bytes)
        self._cases: dict[str, list[Case]] = {}

    @property
    def rank_side(self) -> bytes:
        """What ranks are told of the exercises."""
        return rank_exercise.pack(self.exercises, self._package, self._lesson)

    def cases(self, exercise_id: str, secret: int) -> tuple[list[dict[str, Any]], bytes]:
        """Return what may be told of an exercise's cases, and the inputs of all their ranks."""
        return self._told(exercise_id, hidden_cases(self._package, self._lesson, exercise_id, secret))

    def visible(self, exercise_id: str) -> tuple[list[dict[str, Any]], bytes]:
        """Return the same of the cases that learners see."""
        return self._told(exercise_id, list(self.exercises[exercise_id].visible))

    def _told(self, exercise_id: str, cases: list[Case]) -> tuple[list[dict[str, Any]], bytes]:
        self._cases[exercise_id] = cases
        about, blobs = [], []
        for case in cases:
            inputs = [wire_format.encode(values) for values in case.inputs]
            about.append({"name": case.name, "world_size": case.world_size, "sizes": [len(blob) for blob in inputs]})
            blobs += inputs
        return about, b"".join(blobs)

    def judge(self, header: Mapping[str, Any], payload: memoryview) -> dict[str, Any]:
        """Return the verdict on what one case brought."""
        exercise, case, got, wire = self._brought(header, payload)
        verdict = judge(exercise, case, got, wire)
        message = without_expected(verdict.message)
        about = {"passed": verdict.passed, "message": message, "hint": verdict.hint, "mistake": verdict.mistake}
        return {**about, "rank": verdict.rank, "call": verdict.call, "most_bytes": verdict.most_bytes}

    def left_behind(self, header: Mapping[str, Any], payload: memoryview) -> dict[str, Any]:
        """Return the verdict on a visible case, and what was left behind in it."""
        exercise, case, got, wire = self._brought(header, payload)
        verdict = judge(exercise, case, got, wire)
        if isinstance(got, Failure):
            raise wire_format.WireFormatError(got.message)
        left = case_print(got, wire)
        about = {"passed": verdict.passed, "hint": verdict.hint, "mistake": verdict.mistake}
        return {**about, "told": left.told, "sums": left.sums}

    def _brought(self, header: Mapping[str, Any], payload: memoryview) -> tuple[Exercise, Case, Got, Wire]:
        exercise = self.exercises[header["exercise"]]
        wire = Wire(
            tuple(Message(*entry) for entry in header["messages"]),
            tuple(CollectiveCall(*entry) for entry in header["collectives"]),
            tuple(WireProblem(*entry) for entry in header["problems"]),
        )
        return exercise, self._cases[exercise.id][header["case"]], self._got(header, payload), wire

    def _got(self, header: Mapping[str, Any], payload: memoryview) -> Got:
        if header["failure"] is not None:
            return Failure(**header["failure"])
        results, start = [], 0
        for rank, size in enumerate(header["sizes"]):
            try:
                results.append(wire_format.decode(bytes(payload[start : start + size]), self._limits))
            except wire_format.WireFormatError as error:
                return Failure("bad_result", rank, f"Rank {rank} returned something that cannot be read: {error}")
            start += size
        return tuple(results)


def without_expected(message: str) -> str:
    """Return a judge's message without the values it names as ", expected ...": hidden cases keep theirs."""
    return _EXPECTED.sub("", message)


def serve(sock: socket.socket) -> None:
    """Answer requests until the grading process closes its socket."""
    torch.set_num_threads(1)
    if sys.platform == "linux":  # a result that swells when it is compared costs itself, not the machine
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_BYTES, used + _MEMORY_BYTES))
    oracle: Oracle | None = None
    while (frame := read_frame(sock)) is not None:
        request, payload = frame.header, b""
        answer: dict[str, Any]
        try:
            if request["op"] == "open":
                give_up_root(may_read=True)
                sys.path[:] = request["path"]
                oracle = Oracle(request["lesson"], request["exercises"], request["result_bytes"])
                answer, payload = {"exercises": list(oracle.exercises)}, oracle.rank_side
            elif request["op"] == "cases":
                assert oracle is not None
                about, payload = oracle.cases(request["exercise"], request["secret"])
                answer = {"cases": about}
            elif request["op"] == "visible":
                assert oracle is not None
                about, payload = oracle.visible(request["exercise"])
                answer = {"cases": about}
            elif request["op"] == "left":
                assert oracle is not None
                answer = oracle.left_behind(request, memoryview(frame.payload))
            else:
                assert oracle is not None
                answer = oracle.judge(request, memoryview(frame.payload))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        with suppress(BrokenPipeError):  # the next read finds the socket closed
            write_frame(sock, answer, payload)
