"""What a class's results add up to: how points are spread, how each exercise went, what went wrong most often."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle
from operator import mul

from labkit.checks.verdict import PLAIN_ERROR
from labkit.grading.reports.results import GradedExercise, GradedSubmission

_CAME_BACK = re.compile(r"^Came back: (.*)$", re.MULTILINE)
_NUMBER = re.compile(r"-?\b\d[\d.,]*(?:e[+-]?\d+)?\b")
_RAISED = re.compile(r"^(?:Rank \d+|It) raised (\w+)")
_KINDS = {
    "A deadlock": "a deadlock",
    "It did not finish": "no end in time",
    "It took more than": "no end in time",
    "What came back cannot": "no answer that can be read",
    "No result within": "no end in time",
    "Not tried": "not tried",
}
"""What came back, by how it begins, as `labkit.checks.failures` and the grader say it; all else is a wrong result."""
_ENDED = re.compile(r"^Rank \d+ (?:was ended|ended with|broke off|printed more)")
_MOST_BINS = 12


@dataclass(frozen=True)
class Fault:
    """What went wrong in an exercise for several students.

    Attributes:
        words: The mistake's name, or what came back, as the first of them reads it.
        who: The submissions of those students, by their names.
        named: Whether the check recognised it.
        kind: Of what it did not: "a wrong result", "a deadlock", "raises TypeError"; else "".
    """

    words: str
    who: tuple[str, ...]
    named: bool
    kind: str = ""

    @property
    def count(self) -> int:
        """How many students."""
        return len(self.who)

    @property
    def example(self) -> str:
        """The submission of the first of them, by its name."""
        return self.who[0]


@dataclass(frozen=True)
class ExerciseFigures:
    """How one exercise went.

    Attributes:
        id: Its slug.
        name: Number and title, "2.7 A drop-in for dist.all_reduce".
        max_points: What it earns, 0 for a bonus.
        counts: Students by state: passed, failed, to_read, read, not_done, not_graded.
        faults: The three commonest, those with a name before those without, the commonest of both first.
    """

    id: str
    name: str
    max_points: float
    counts: dict[str, int]
    faults: tuple[Fault, ...]

    @property
    def num_graded(self) -> int:
        """How many of its students could be graded."""
        return sum(self.counts.values()) - self.counts["not_graded"]

    @property
    def success(self) -> float:
        """The share of the graded who pass, 0 to 1."""
        return self.counts["passed"] / max(1, self.num_graded)


@dataclass(frozen=True)
class ClassFigures:
    """What the class page says.

    Attributes:
        num_students: Submissions.
        num_unread: Those of which nothing could be graded.
        mean: Of the points of those that count.
        median: Of the same.
        max_score: Full marks.
        most_bonus: The most that anybody earned beyond them in bonus exercises.
        step: Points from one bin to the next, a round number.
        bins: How many of those that count are in [0, step), [step, 2 step), ...; the last holds its upper end, too.
        exercises: In the lesson's order.
    """

    num_students: int
    num_unread: int
    mean: float
    median: float
    max_score: float
    most_bonus: float
    step: int
    bins: tuple[int, ...]
    exercises: tuple[ExerciseFigures, ...]

    @property
    def states(self) -> set[str]:
        """The states that there are."""
        return {state for each in self.exercises for state, count in each.counts.items() if count}

    def bin_of(self, score: float) -> int:
        """Return which of the bins holds a score."""
        return _bin(score, self.step, len(self.bins))


def class_figures(results: Sequence[GradedSubmission], scores: Sequence[float] = ()) -> ClassFigures:
    """Return the figures of a class of at least one.

    Args:
        results: What grading found.
        scores: What counts, in the same order, where that is not what was earned.
    """
    scores = scores or [result.score for result in results]
    most = max(result.max_score for result in results)
    most_bonus = max(result.bonus for result in results)
    graded = [score for result, score in zip(results, scores, strict=True) if has_score(result, score)]
    top = max(most + most_bonus, *graded, 1.0)
    step = _step(top)
    bins = [0] * math.ceil(top / step)
    for score in graded:
        bins[_bin(score, step, len(bins))] += 1
    by_id: dict[str, list[tuple[str, GradedExercise]]] = {}
    for name, each in ((result.name, each) for result in results for each in result.exercises):
        by_id.setdefault(each.id, []).append((name, each))
    return ClassFigures(
        len(results),
        sum(bool(result.problem) for result in results),
        statistics.fmean(graded or [0.0]),
        statistics.median(graded or [0.0]),
        most,
        most_bonus,
        step,
        tuple(bins),
        tuple(_exercise(listed) for listed in by_id.values()),
    )


def has_score(result: GradedSubmission, score: float) -> bool:
    """Return whether a score is one: of what could not be graded, nobody knows what it is worth."""
    return not result.problem or score > 0


def _step(top: float) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, ... points that needs few bins up to `top`."""
    steps = accumulate(cycle((2.0, 2.5, 2.0)), mul, initial=1.0)
    return next(int(step) for step in steps if top <= _MOST_BINS * step)


def _bin(score: float, step: int, count: int) -> int:
    return max(0, min(count - 1, int(score / step + 1e-9)))


def _exercise(handed_in: Sequence[tuple[str, GradedExercise]]) -> ExerciseFigures:
    listed = [each for _, each in handed_in]
    counts = Counter(each.state for each in listed)
    alike: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for name, each in handed_in:
        if each.state == "failed":
            words, named = _fault(each)
            alike.setdefault((words if named else _NUMBER.sub("…", words), named), []).append((words, name))
    commonest = sorted(alike.items(), key=lambda found: -len(found[1]))[:3]
    commonest.sort(key=lambda found: not found[0][1])  # a name says more than "a wrong result"
    common = tuple(
        Fault(found[0][0], tuple(name for _, name in found), named, "" if named else _kind(found[0][0]))
        for (_, named), found in commonest
    )
    states = {state: counts[state] for state in ("passed", "failed", "to_read", "read", "not_done", "not_graded")}
    worth = max(each.max_points for each in listed)  # of what could not be graded, a gradebook has none
    return ExerciseFigures(listed[0].id, listed[0].name, worth, states, common)


def _kind(came_back: str) -> str:
    """Return in words what kind of failure came back that no check has a name for."""
    if raised := _RAISED.match(came_back):
        return f"raises {raised[1]}"
    if _ENDED.match(came_back):
        return "a rank that ended early"
    return next((kind for begins, kind in _KINDS.items() if came_back.startswith(begins)), "a wrong result")


def _fault(each: GradedExercise) -> tuple[str, bool]:
    if each.mistake and each.mistake != PLAIN_ERROR:
        return each.mistake, True
    found = _CAME_BACK.search(each.said)
    return (found.group(1)[:160] if found else "not told"), False
