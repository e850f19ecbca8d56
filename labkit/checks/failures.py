"""A run that did not finish, in the learner's terms: their own lines, who waits for whom, what was not done yet."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from labkit.cells import cell_name
from labkit.checks.case import Failure, Wait
from labkit.checks.exercise import Exercise
from labkit.checks.from_timeline import waits_of
from labkit.checks.wire import WireProblem
from labkit.errors import RunError, RunTimeout
from labkit.timeline.span import Problem

_FRAME = re.compile(
    r'^  (?:File "(?P<path>[^"]*)"|(?P<cell>Cell In ?\[[^\]]*\])), line (?P<line>\d+)(, in (?P<function>.*))?$'
)
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(: (?P<text>.*))?$")
SIZES_DIFFER = "Two ranks disagree about the size of a message."
_SIZES_ELSEWHERE = ("which asked for", "which receives into")
"""How the grader's relay and virtual ranks say it."""
NOBODY_EXPECTED = "A message went to a rank nobody expected:"
_STUB = re.compile(r"Exercise \d+\.\d+: ")
_ADDRESS = re.compile(r"<(?:[\w.]+\.)?(?P<name>\w+) object at 0x[0-9a-f]+>")
_NOT_IN_GROUP = re.compile(r"^Global rank (?P<rank>-?\d+) is not part of group\b")
_NO_PAIR = ("Pair is not connected", "Connect timeout", "invalid rank", "not connected")
_SIZES = ("op.preamble.length", "Received data size doesn't match")
NOT_THEIRS = ("/labkit/", "/torch/", "/site-packages/", "<frozen ", "/lib/python3")
"""What the file names of code have that no learner wrote."""
_CALLBACK = re.compile(r"^Got the following error when running the callback: (?P<type>[A-Za-z_][\w.]*): ?(?P<text>.*)$")
_AT = re.compile(r"^  (?P<path>.+)\((?P<line>\d+)\): (?P<function>.+)$", re.MULTILINE)
"""How torch writes a frame of an error that a future's callback raised; the innermost comes first."""
_MOST_LINES = 24


def failure_of(
    error: RunError,
    exercise: Exercise,
    functions: Mapping[str, Callable[..., Any]],
    beyond: Collection[int] = (),
    seconds: float | None = None,
) -> Failure:
    """Return what a run's error means for the learner.

    Args:
        error: What the run raised.
        exercise: What was run.
        functions: The learner's functions, by name.
        beyond: Ranks that had done their part of the case that failed: what they wait for belongs to the next.
        seconds: The run's time limit, of a run in real time.
    """
    if isinstance(error, RunTimeout):
        return _hang(error, beyond, seconds)
    rank = error.rank
    report = error.reports.get(rank, "") if rank is not None else ""
    if "Traceback (most recent call last)" not in report:
        if any(words in printed for words in _SIZES for printed in error.output):
            return _repeating(Failure("died", rank, ""), SIZES_DIFFER, _first_problem(error, "size_mismatch"))
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Failure("died", rank, _sentence(first.replace(" failed first: ", " ended before its time: ", 1)))
    failure = failure_of_traceback(report, rank, exercise, functions)
    return _in_transport_words(failure, error)


def sizes_differ(failure: Failure) -> bool:
    """Return whether the two ends of a message disagreed about its size, whoever carried it."""
    return any(words in failure.message for words in (SIZES_DIFFER, *_SIZES_ELSEWHERE))


def _repeating(failure: Failure, words: str, problem: WireProblem | None) -> Failure:
    """Return the failure with these words as its message, and what was seen on the wire."""
    return replace(failure, message=f"{words} {problem.text if problem else ''}".strip(), problem=problem)


def _in_transport_words(failure: Failure, error: RunError) -> Failure:
    """Return in words what the transport says in its own terms; other failures as they are."""
    if any(words in failure.message for words in _SIZES):
        return _repeating(failure, SIZES_DIFFER, _first_problem(error, "size_mismatch"))
    if "enforce fail" not in failure.message or not any(words in failure.message for words in _NO_PAIR):
        return failure
    timeline = error.timeline
    for problem in _problems(error):
        if timeline is not None and problem.row >= 0 and timeline.peer[problem.row] == problem.rank:
            words = f"{NOBODY_EXPECTED} rank {problem.rank} has a message to or from itself."
            return _repeating(failure, words, _seen(problem))
    return _repeating(failure, NOBODY_EXPECTED, _first_problem(error, "unmatched_send", "unmatched_recv"))


def _problems(error: RunError) -> tuple[Problem, ...]:
    return error.timeline.problems if error.timeline is not None else ()


def _first_problem(error: RunError, *kinds: str) -> WireProblem | None:
    return next((_seen(problem) for problem in _problems(error) if problem.kind in kinds), None)


def _seen(problem: Problem) -> WireProblem:
    return WireProblem(problem.kind, problem.rank, problem.text)


def failure_of_traceback(
    report: str, rank: int | None, exercise: Exercise, functions: Mapping[str, Callable[..., Any]]
) -> Failure:
    """Return what a traceback, as Python prints it, means for the learner."""
    name, text = _last_error(report)
    if name == "NotImplementedError" and _STUB.match(text):
        if any(text in _texts(functions[each]) for each in exercise.functions):
            return Failure("not_implemented", rank, _sentence(f"Not done yet. {text}"), error=name)
        called = " and ".join(exercise.functions)
        return Failure(
            "not_implemented",
            rank,
            _sentence(f"{called} calls something that is not done yet. {text}"),
            error=name,
        )
    outside = _NOT_IN_GROUP.match(text)
    if outside:
        text = (
            f"peer {outside['rank']} was taken for a global rank, and global rank {outside['rank']} is not in the group"
        )
    text = _ADDRESS.sub(r"a \g<name>", text)
    who = "" if rank is None else f"Rank {rank} raised " if exercise.distributed else "It raised "
    if name == "WireFormatError":
        return Failure("bad_result", rank, _sentence(f"What came back cannot be judged: {text}"), error=name)
    callback = _CALLBACK.match(text)
    if callback:
        name, text = callback["type"].rpartition(".")[2], f"{callback['text']}, in a callback of a future"
    where = "\n".join(filter(None, [learners_lines(report), _callbacks_lines(report) if callback else ""]))
    said = f"{who}{name}: {text}" if text else f"{who}{name}"
    return Failure("exception", rank, _sentence(said), where or _line_behind(report), name)


def _texts(function: Callable[..., Any]) -> Iterator[object]:
    """Yield the constants in the code of a function, or of a class's methods: a stub's words are among them."""
    found = vars(function).values() if inspect.isclass(function) else [function]
    for each in found:
        code = getattr(inspect.unwrap(getattr(each, "__func__", each)), "__code__", None)
        if code is not None:
            yield from code.co_consts


def _last_error(report: str) -> tuple[str, str]:
    """Return type and first line of the exception a traceback ends with, and what goes on in indented lines."""
    lines = report.rstrip().splitlines()
    last_frame = max((i for i, line in enumerate(lines) if _FRAME.match(line)), default=-1)
    for number, line in enumerate(lines[last_frame + 1 :], last_frame + 1):
        match = _ERROR.match(line)
        if match:
            more = takewhile(lambda text: text.startswith(" "), lines[number + 1 :])
            return match["type"].rpartition(".")[2], " ".join([match["text"] or "", *map(str.strip, more)]).strip()
    return "an exception", lines[-1] if lines else ""


def learners_lines(report: str) -> str:
    """Return the frames of a traceback that are the learner's own, each as "Cell In[5], line 7, in ring_sum: code"."""
    found: list[str] = []
    lines = report.splitlines()
    for index, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame is None or any(part in (frame["path"] or "") for part in NOT_THEIRS):
            continue
        code = lines[index + 1].strip() if index + 1 < len(lines) and lines[index + 1].startswith("    ") else ""
        inside = f", in {frame['function']}" if frame["function"] and frame["function"] != "<module>" else ""
        cell = f"{frame['cell']}, " if frame["cell"] else ""
        found.append(f"{cell}line {frame['line']}{inside}" + (f":  {code}" if code else ""))
    return "\n".join(found[-_MOST_LINES:])


def _callbacks_lines(report: str) -> str:
    """Return the learner's frames of an error that a future's callback raised, as `learners_lines` has them."""
    found = []
    for frame in _AT.finditer(report.rpartition("\nAt:\n")[2]):
        if any(part in frame["path"] for part in NOT_THEIRS):
            continue
        code = linecache.getline(frame["path"], int(frame["line"])).strip()
        name = cell_name(frame["path"]) or (frame["path"] if frame["path"].startswith("Cell In") else "")
        cell = f"{name}, " if name else ""
        found.append(f"{cell}line {frame['line']}, in {frame['function']}" + (f":  {code}" if code else ""))
    return "\n".join(reversed(found))


def _line_behind(report: str) -> str:
    """Return which line met the error where none of the learner's was running, as a sentence, or ""."""
    lines = report.splitlines()
    places = [(at, frame) for at, line in enumerate(lines) if (frame := _FRAME.match(line)) and frame["path"]]
    if not places or places[-1][0] + 1 >= len(lines):
        return ""
    at, frame = places[-1]
    if "/labkit/" in frame["path"] and lines[at + 1].strip().startswith("raise "):
        return ""  # a driver's own error says itself what met what
    where = f"{frame['path'].rpartition('/')[2]}, in {frame['function']}:  {lines[at + 1].strip()}"
    met = "met this line of"
    if "NoneType" in lines[-1]:
        met = "is None, as where a return is missing, and met this line of"
    return f"None of your lines was running then. What they returned or left {met} {where}"


def _hang(error: RunTimeout, beyond: Collection[int], seconds: float | None) -> Failure:
    waits = tuple(wait for wait in waits_of(error.timeline) if wait.rank not in beyond)
    lines = [f"rank {wait.rank} waits in {_wait_text(wait)}" for wait in waits]
    known = {wait.rank for wait in waits}
    busy = [rank for rank in sorted(error.reports) if rank not in known and rank not in beyond]
    if waits and not busy:
        return Failure("deadlock", None, "A deadlock: every rank that is left waits.", "\n".join(lines), waits=waits)
    lines += [_stand(rank, error.reports[rank]) for rank in busy]
    message = "It did not finish in time: an endless loop, or a message that never comes."
    if seconds is not None and not waits:
        took = f"It took more than {seconds:.0f} s, all that this run had"
        message = f"{took}: an endless loop, or too much to do. On a busy machine everything takes longer."
    return Failure("timeout", busy[0] if busy else None, message, "\n".join(lines), waits=waits)


def _wait_text(wait: Wait) -> str:
    if wait.peer is None:
        return wait.operation
    if wait.peer < 0:  # a rank that is not there was refused before
        return f"{wait.operation} from any rank"
    return f"{wait.operation} {'to' if 'send' in wait.operation else 'from'} rank {wait.peer}"


def _stand(rank: int, report: str) -> str:
    """Return where a rank stands that waits for nobody: in the learner's lines where it is in one, outermost first."""
    first, _, stack = report.strip().partition("\n")
    own = learners_lines(stack)
    return f"{first}, in\n{own}" if own and first.startswith("rank ") else f"rank {rank}: {_first_lines(report)}"


def _first_lines(report: str) -> str:
    return " ".join(report.strip().split())[:200]


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."
