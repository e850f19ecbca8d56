"""What the course at hand says of a lesson: its title, and its full marks where nothing is graded yet."""

from __future__ import annotations

from labkit.errors import ConfigError
from labkit.grading.course import find_course


def lesson_title(lesson: str) -> str:
    """Return a lesson's title, "02 Ring all-reduce": that of the course at hand, else its key in words.

    Args:
        lesson: Its slug or whole name.
    """
    try:
        return find_course(lesson).manifest.title
    except ConfigError:
        return lesson.replace("_", " ").capitalize()


def full_marks(lesson: str) -> float:
    """Return the points for a whole lesson without bonus: those of the course at hand, else 100.

    Args:
        lesson: Its slug or whole name.
    """
    try:
        return float(find_course(lesson).manifest.points)
    except ConfigError:
        return 100.0
