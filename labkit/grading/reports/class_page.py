"""The page an instructor reads after grading a class: one file that needs nothing else, light or dark.

It names students: it is not for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.grading.reports.class_figures import NUM_BINS, class_figures
from labkit.grading.reports.copies import Case
from labkit.grading.reports.page import page
from labkit.grading.reports.results import GradedSubmission


@dataclass(frozen=True)
class _Bar:
    """Students whose points are this share of full marks.

    Attributes:
        percent: The least of it.
        label: "10–19", of the last "90+".
        count: How many students.
        share: Its height, 1 of the highest bar.
    """

    percent: int
    label: str
    count: int
    share: float


def class_page(results: Sequence[GradedSubmission], title: str, cases: Sequence[Case] = ()) -> bytes:
    """Return the page of a class of at least one.

    Args:
        results: Everybody's, in any order.
        title: The lesson's heading.
        cases: Submissions that are alike.
    """
    figures = class_figures(results)
    students = sorted(results, key=lambda result: result.name)
    ids = [each.id for each in students[0].exercises]

    def states_of(student: GradedSubmission) -> list[str]:
        states = {each.id: each.state for each in student.exercises}
        return [states.get(each, "not_graded") for each in ids]

    packed = [(student, [each for each in student.exercises if each.pack == "answer"]) for student in students]
    unnamed = [(student, [each for each in student.exercises if each.pack == "unnamed"]) for student in students]
    return page(
        "class_page.html",
        packed=[(student, used) for student, used in packed if used],
        unnamed=[(student, used) for student, used in unnamed if used],
        title=title,
        figures=figures,
        bars=_bars(figures.bins),
        cases=cases,
        students=students,
        names={each.id: each.name for result in results for each in result.exercises},
        states_of=states_of,
        counted=_counted,
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _bars(bins: Sequence[int]) -> list[_Bar]:
    width, most = 100 // NUM_BINS, max(bins)
    labels = [f"{at * width}–{(at + 1) * width - 1}" for at in range(NUM_BINS - 1)]
    labels.append(f"{(NUM_BINS - 1) * width}+")
    return [
        _Bar(at * width, label, count, count / most) for at, (label, count) in enumerate(zip(labels, bins, strict=True))
    ]
