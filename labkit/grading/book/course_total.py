"""One mark for several lessons: weights, the lowest dropped, a cap on what bonus brings."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.errors import ConfigError
from labkit.grading.book.standing import Grade
from labkit.grading.reports.spreadsheet import inert


@dataclass(frozen=True)
class Total:
    """What a student has in a course.

    Attributes:
        student: Name.
        percent: Of the course, by weight.
        lessons: Percent of each lesson's full marks, after its cap.
        dropped: Lessons that do not count.
    """

    student: str
    percent: float
    lessons: Mapping[str, float]
    dropped: tuple[str, ...]


def course_totals(
    grades: Mapping[str, Sequence[Grade]], weights: Mapping[str, float], drop_lowest: int = 0, cap: float = 100.0
) -> list[Total]:
    """Return everybody's total, by name; who has nothing for a lesson has 0 percent of it.

    The lessons dropped are those that leave the student most.

    Args:
        grades: Of each lesson.
        weights: Of each lesson.
        drop_lowest: How many lessons of each student do not count.
        cap: The most percent that a lesson counts for; bonus exercises reach beyond 100.

    Raises:
        ConfigError: If a weight is not positive, or nothing would be left.
    """
    if wrong := [f"{lesson}:{weight:g}" for lesson, weight in weights.items() if weight <= 0]:
        raise ConfigError(f"the weight of {', '.join(wrong)} is not above 0; write one that is")
    if not 0 <= drop_lowest < len(weights):
        raise ConfigError(f"{drop_lowest} of {len(weights)} lessons cannot be dropped; use 0 to {len(weights) - 1}")
    percents: dict[str, dict[str, float]] = {}
    for lesson in weights:
        for grade in grades[lesson]:
            full = grade.max_score
            percent = 100 * grade.score / full if full else 0.0
            percents.setdefault(grade.student, dict.fromkeys(weights, 0.0))[lesson] = min(cap, percent)
    return [_total(student, percents[student], weights, drop_lowest) for student in sorted(percents)]


def out_of_points(totals: Sequence[Total], grades: Mapping[str, Sequence[Grade]], most: float) -> list[Grade]:
    """Return the totals as grades out of so many points, for the sheets of Canvas and Moodle.

    Args:
        totals: Everybody's.
        grades: Of each lesson; who has handed in nothing in any, and was given nothing, stays out of a sheet.
        most: What 100 percent is worth.

    Raises:
        ConfigError: If that is nothing.
    """
    if most <= 0:
        raise ConfigError(f"a total cannot be out of {most:g} points; use more than 0")
    tried: Counter[str] = Counter()
    for grade in (grade for each in grades.values() for grade in each):
        tried[grade.student] += grade.num_attempts + bool(grade.adjusted)
    scores = {each.student: round(each.percent * most / 100, 2) for each in totals}
    return [Grade(student, score, most, num_attempts=tried[student]) for student, score in scores.items()]


def totals_csv(totals: Sequence[Total]) -> bytes:
    """Return the totals as a table; a dropped lesson's percent stands in brackets."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    lessons = list(totals[0].lessons) if totals else []
    writer.writerow(["Student", "Total %", *lessons])
    for total in totals:
        shown = [
            f"({total.lessons[each]:g})" if each in total.dropped else f"{total.lessons[each]:g}" for each in lessons
        ]
        writer.writerow([inert(total.student), f"{total.percent:g}", *shown])
    return text.getvalue().encode("utf-8")


def _total(student: str, percents: Mapping[str, float], weights: Mapping[str, float], drop_lowest: int) -> Total:
    """Return a total; what is dropped is chosen one after the other, each time what leaves most."""
    counted = list(weights)
    for _ in range(drop_lowest):
        worst = max(counted, key=lambda out: _mean(percents, weights, [each for each in counted if each != out]))
        counted.remove(worst)
    dropped = tuple(each for each in weights if each not in counted)
    rounded = {lesson: round(percents[lesson], 2) for lesson in weights}
    return Total(student, round(_mean(percents, weights, counted), 2), rounded, dropped)


def _mean(percents: Mapping[str, float], weights: Mapping[str, float], lessons: Sequence[str]) -> float:
    return sum(weights[each] * percents[each] for each in lessons) / sum(weights[each] for each in lessons)
