"""The class as one page: a line for each student, found by typing and sorted by a click; for instructors."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import tzinfo
from pathlib import Path

from markupsafe import Markup

from labkit.grading.book.class_time import shown
from labkit.grading.book.standing import Grade
from labkit.grading.reports import page as pages
from labkit.grading.submission import safe_name

_SCRIPT = Path(pages.__file__).with_name("class_table.js")


def class_table(grades: Sequence[Grade], title: str, zone: tzinfo) -> bytes:
    """Return the page; without scripts it is a plain table.

    Args:
        grades: Everybody's, in any order.
        title: The lesson's name.
        zone: The class's, in which times are shown.
    """
    script = _SCRIPT.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    exercises = list(dict.fromkeys(exercise for grade in grades for exercise in grade.points))
    return pages.page(
        "class_table.html",
        title=title,
        grades=sorted(grades, key=lambda grade: grade.student),
        files={grade.student: safe_name(grade.student) for grade in grades},
        when={grade.student: shown(grade.handed_in_at, zone) if grade.handed_in_at else "" for grade in grades},
        exercises=exercises,
        script=Markup(script),
        policy=Markup(f"; script-src 'sha256-{digest}'"),
    )
