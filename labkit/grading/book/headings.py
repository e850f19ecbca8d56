"""What stands above a page about a lesson."""

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
