"""What a change of the gradebook does to grades, in words: read before it is made for good."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta, tzinfo

from labkit.grading.book.class_time import shown
from labkit.grading.book.standing import Grade

_LISTED = 60


def changes(before: Iterable[Grade], after: Iterable[Grade], zone: tzinfo) -> list[str]:
    """Return a line for each student whose grade or lateness is another than before, at most 60."""
    was = {grade.student: grade for grade in before}
    lines = []
    for grade in after:
        old = was.get(grade.student)
        if old is None and not grade.percent_lost:
            continue
        if old is not None and (old.score, old.percent_lost) == (grade.score, grade.percent_lost):
            continue
        lines.append(_line(old, grade, zone))
    more = len(lines) - _LISTED
    return lines[:_LISTED] + ([f"and {more} more"] if more > 0 else [])


def _line(old: Grade | None, grade: Grade, zone: tzinfo) -> str:
    words = (
        f"{grade.student}: {old.score:g} before, {grade.score:g} now" if old else f"{grade.student}: {grade.score:g}"
    )
    if grade.percent_lost and grade.handed_in_at:
        words += f" (handed in {shown(grade.handed_in_at, zone)}, {late_words(grade.late_by)}: "
        words += f"{grade.percent_lost:g} % off)"
    elif old and old.percent_lost:
        words += " (nothing off for lateness)"
    return words


def late_words(late: timedelta) -> str:
    """Return how late something is, "1 day 3 h late"."""
    minutes = int(-(-late // timedelta(minutes=1)))
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    words = [f"{days} day{'s' if days != 1 else ''}"] if days else []
    words += [f"{hours} h"] if hours else []
    words += [f"{rest} min"] if rest and not (days and hours) else []
    return f"{' '.join(words) or '0 min'} late"
