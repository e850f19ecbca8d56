"""A lesson's row in its course's README: title and minutes are the source's, what is built there is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from labkit.lessons.budget import budget
from labkit.lessons.lesson import Lesson

README = Path("README.md")


def with_row(text: str, lesson: Lesson) -> str:
    """Return a README with the lesson's title and minutes in its row, if it has one."""
    takes = budget(lesson)
    core = "+".join(map(str, takes.promises))  # a number for each sitting
    minutes = f"{core}; {takes.bonus}" if takes.bonus else core
    link = f"(notebooks/{lesson.name}.ipynb)"
    row = re.compile(rf"^\| \[[^\]]*\]{re.escape(link)} \| (.+) \| [^|]* \|$", re.MULTILINE)
    return row.sub(lambda found: f"| [{lesson.manifest.title}]{link} | {found[1]} | {minutes} |", text)


def read(course: Path) -> str | None:
    """Return a course's README, or None where it has none."""
    path = course / README
    return path.read_text(encoding="utf-8") if path.is_file() else None
