"""The page a student reads, of a graded file or of a mark: one HTML file that needs nothing else, light or dark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.grading.reports.page import page
from labkit.grading.reports.results import GradedSubmission
from labkit.grading.reports.student_report import details, write_whole
from labkit.grading.score import StudentResult

_UNKNOWN: dict[str, Any] = {
    "state": "not_graded", "points": 0.0, "worth": 0.0, "bonus": False, "is_code": True, "num_cases": 0, "line": 0,
    **dict.fromkeys(("number", "title", "said", "written", "pack", "lost", "second_run", "tried", "came_back"), ""),
    **dict.fromkeys(("hint", "picture", "source", "reading", "ask"), ""),
    **dict.fromkeys(("cases", "earlier", "comments", "requests"), ()),
}  # fmt: skip
"""What a page shows of an exercise of which only its points are known."""
_LATER = {"failed": 0, "not_done": 2, "passed": 3}
"""Where exercises of a state stand on the page: first those that a student can do something about."""


def feedback_html(result: StudentResult, lesson_title: str, heading: str = "") -> bytes:
    """Return the page of a graded file: points, and for each exercise what was tried, what came back, and the hint.

    Args:
        result: Of grading.
        lesson_title: The lesson's heading.
        heading: Whose it is; by default what the file is called.
    """
    return student_page(details(result), lesson_title, heading or result.name, result.score, result.max_score)


def write_headings(out: Path, entries: Iterable[GradedSubmission], title: str, people: Mapping[str, str]) -> None:
    """Write the feedback of those files again whose owner is not called as the file is.

    Args:
        out: The folder for reports.
        entries: What was graded.
        title: The lesson's heading.
        people: Whose files are, by their names.
    """
    for each in entries:
        heading = people.get(each.name, each.name)
        kept = out / each.name / "details.json"
        if heading != each.name and kept.is_file():
            found = json.loads(kept.read_text(encoding="utf-8"))
            page = student_page(found, title, heading, each.score, each.max_score)
            write_whole(kept.with_name("feedback.html"), page)


def student_page(
    found: Mapping[str, Any],
    lesson_title: str,
    heading: str,
    score: float,
    max_score: float,
    mark: Mapping[str, Any] | None = None,
    desk: bool = False,
) -> bytes:
    """Return the page that says what was found, and where there is a mark, what that rests on.

    Args:
        found: What `details` returned, or what the gradebook knows of it.
        lesson_title: The lesson's heading.
        heading: Whose it is.
        score: Points.
        max_score: Full marks.
        mark: What a mark rests on.
        desk: Whether whoever grades looks at it: then it has boxes to write into.
    """
    listed = [{**_UNKNOWN, **each} for each in found["exercises"]]
    first = sorted(listed, key=lambda each: _LATER.get(each["state"], 1))
    rest = {"notes": (), "notebook": "", "cell_notes": (), "predictions": (), "weighted": False}
    return page(
        "student_page.html",
        found={**rest, **found, "exercises": listed},
        first=first,
        lesson_title=lesson_title,
        heading=heading,
        opening=_opening([each["state"] for each in listed], found["problem"]),
        score=score,
        bonus=_bonus(listed, score),
        max_score=max_score,
        mark=mark,
        desk=desk,
    )


def _bonus(exercises: Sequence[Mapping[str, Any]], score: float) -> float:
    """Return the points of bonus exercises in a score; 0 where the score is not the sum of what was earned."""
    earned = sum(each["points"] for each in exercises)
    return sum(each["points"] for each in exercises if each["bonus"]) if abs(score - earned) < 1e-9 else 0.0


def _opening(states: Sequence[str], problem: str) -> str:
    if problem:
        return "We could not read this submission. Nothing is lost: here is what to do."
    passed, total = states.count("passed"), len(states)
    if not total:
        return ""
    if passed == total:
        return f"Everything works. All {total} exercises pass on cases you had not seen."
    failed, read = states.count("failed"), states.count("read") + states.count("to_read")
    open_ = total - passed - failed - read
    not_yet = f", {failed} {'does' if failed == 1 else 'do'} not yet" if failed else ""
    words = [
        f"{passed} of {total} exercises work{not_yet}." if passed else "No exercise passes all its hidden cases yet."
    ]
    if read:
        words.append(f"{read} {'is' if read == 1 else 'are'} read by a person.")
    if open_:
        words.append(f"{open_} {'is' if open_ == 1 else 'are'} not started.")
    return " ".join(words)
