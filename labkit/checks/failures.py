"""A run that did not finish, in the learner's terms: their own lines, who waits for whom, what was not done yet."""

from __future__ import annotations

import re

from labkit.checks.case import Failure, Wait
from labkit.checks.exercise import Exercise
from labkit.checks.from_timeline import waits_of
from labkit.errors import RankFailed, RunError, RunTimeout

_FRAME = re.compile(r'^  File "(?P<path>[^"]*)", line (?P<line>\d+)(, in (?P<function>.*))?$')
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(: (?P<text>.*))?$")
_STUB = re.compile(r"Exercise (?P<id>\d+\.\d+)\b")
_NOT_THEIRS = ("/labkit/", "/torch/", "/site-packages/", "<frozen ")
_MOST_LINES = 24


def failure_of(error: RunError, exercise: Exercise) -> Failure:
    """Return what a run's error means for the learner."""
    if isinstance(error, RunTimeout):
        return _hang(error)
    rank = error.rank
    report = error.reports.get(rank, "") if rank is not None else ""
    if "Traceback (most recent call last)" not in report:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Failure("died", rank, _sentence(first))
    return failure_of_traceback(report, rank, exercise)


def failure_of_traceback(report: str, rank: int | None, exercise: Exercise) -> Failure:
    """Return what a traceback, as Python prints it, means for the learner."""
    name, text = _last_error(report)
    stub = _STUB.match(text)
    if name == "NotImplementedError" and stub:
        if stub["id"] == exercise.id:
            return Failure("not_implemented", rank, _sentence(f"Not done yet. {text}"), error=name)
        called = " and ".join(exercise.functions)
        return Failure(
            "not_implemented",
            rank,
            _sentence(f"{called} calls something that is not done yet. {text}"),
            error=name,
        )
    who = "" if rank is None else f"Rank {rank} raised "
    if name == "WireFormatError":
        return Failure("bad_result", rank, _sentence(f"What came back cannot be judged: {text}"), error=name)
    return Failure("exception", rank, _sentence(f"{who}{name}: {text}"), learners_lines(report), name)


def _last_error(report: str) -> tuple[str, str]:
    """Return type and first line of the exception a traceback ends with."""
    lines = report.rstrip().splitlines()
    last_frame = max((i for i, line in enumerate(lines) if line.startswith("  ")), default=-1)
    for line in lines[last_frame + 1 :]:
        match = _ERROR.match(line)
        if match:
            return match["type"].rpartition(".")[2], (match["text"] or "").strip()
    return "an exception", lines[-1] if lines else ""


def learners_lines(report: str) -> str:
    """Return the frames of a traceback that are the learner's own, each as "line 7, in ring_sum: code"."""
    found: list[str] = []
    lines = report.splitlines()
    for index, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is None or any(part in frame["path"] for part in _NOT_THEIRS):
            continue
        code = lines[index + 1].strip() if index + 1 < len(lines) and lines[index + 1].startswith("    ") else ""
        inside = f", in {frame['function']}" if frame["function"] and frame["function"] != "<module>" else ""
        found.append(f"line {frame['line']}{inside}" + (f":  {code}" if code else ""))
    return "\n".join(found[-_MOST_LINES:])


def _hang(error: RunTimeout) -> Failure:
    waits = waits_of(error.timeline)
    lines = [f"rank {wait.rank} waits in {_wait_text(wait)}" for wait in waits]
    known = {wait.rank for wait in waits}
    busy = [rank for rank in sorted(error.reports) if rank not in known]
    if waits and not busy:
        return Failure("deadlock", None, "A deadlock: every rank that is left waits.", "\n".join(lines), waits=waits)
    lines += [f"rank {rank}: {_first_lines(error.reports[rank])}" for rank in busy]
    message = "It did not finish in time: an endless loop, or a message that never comes."
    return Failure("timeout", busy[0] if busy else None, message, "\n".join(lines), waits=waits)


def _wait_text(wait: Wait) -> str:
    if wait.peer is None:
        return wait.operation
    return f"{wait.operation} {'to' if 'send' in wait.operation else 'from'} rank {wait.peer}"


def _first_lines(report: str) -> str:
    return " ".join(report.strip().split())[:200]


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


__all__ = ["RankFailed", "failure_of", "failure_of_traceback", "learners_lines"]
