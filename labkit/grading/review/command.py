"""`labkit review`: a page on which a person reads what students wrote, and gives points."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from labkit.errors import ConfigError
from labkit.grading.reports.results import read_results
from labkit.grading.review.own_machine import serve
from labkit.grading.review.questions import questions
from labkit.grading.review.readings import Readings
from labkit.grading.review.server import Review
from labkit.lessons.course import find_course, select, source_files
from labkit.lessons.source import load


def review(out: Path, book: str, who: str, port: int, course: Path | None, say: Callable[[str], None]) -> None:
    """Serve the page until interrupted; points are in the gradebook as soon as they are given.

    Args:
        out: What was --out of labkit grade.
        book: The gradebook in which it is recorded: a URL, or a file.
        who: Who reads.
        port: TCP port; 0 for any free one.
        course: A folder in the course, for the rubrics.
        say: Told the link.

    Raises:
        ConfigError: If there is nothing to read, or a file that was graded is not recorded.
    """
    if not who.strip() or not who.isprintable() or ": " in who:
        raise ConfigError(f"--by {who!r} is not a name; write one on a single line, without a colon")
    results = read_results(out)
    lesson = load(select(source_files(find_course(course, sources=True)), results[0].lesson))
    asked = questions(results, lesson, secrets.token_bytes(16))
    with closing(Readings(book if ":" in book else f"sqlite:///{book}")) as readings:
        read = Review(asked, readings, who.strip())
        serve(read.application(), f"/r/{read.token}", port, say)
