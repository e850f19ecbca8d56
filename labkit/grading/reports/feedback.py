"""The page a student reads: one HTML file that needs nothing else, for any width, light or dark."""

from __future__ import annotations

from labkit.grading.reports.guess_picture import guess_picture
from labkit.grading.reports.page import page
from labkit.grading.reports.student_report import pack_words, second_run_words
from labkit.grading.score import StudentResult


def feedback_html(result: StudentResult, lesson_title: str) -> bytes:
    """Return the page: points, and for each exercise what was tried, what came back, and the hint."""
    return page(
        "feedback.html",
        result=result,
        lesson_title=lesson_title,
        opening=_opening(result),
        picture=guess_picture,
        second_run_words=second_run_words,
        pack_words=pack_words,
    )


def _opening(result: StudentResult) -> str:
    if result.problem:
        return "We could not read this submission. Nothing is lost: here is what to do."
    passed = sum(each.state == "passed" for each in result.exercises)
    total = len(result.exercises)
    if passed == total:
        return f"Everything works. All {total} exercises pass on cases you had not seen."
    failed = sum(each.state == "failed" for each in result.exercises)
    open_ = total - passed - failed
    words = [f"{passed} of {total} exercises work." if passed else "No exercise passes all its hidden cases yet."]
    if failed:
        words.append(
            f"For the {'one that does' if failed == 1 else f'{failed} that do'} not work yet, "
            "see below what was tried, what came back, and where to look."
        )
    if open_:
        words.append(f"{open_} {'is' if open_ == 1 else 'are'} not started.")
    return " ".join(words)
