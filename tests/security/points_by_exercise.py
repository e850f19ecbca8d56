"""What the points of each exercise rest on, as its own hidden cases say it: the second table of docs/attacks.md.

``python -m tests.security.points_by_exercise`` prints the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from labkit.checks.case import Case
from labkit.checks.exercise import Exercise
from labkit.checks.hidden import hidden_cases
from labkit.checks.rooms import LABKIT, find
from labkit.lessons.source import load
from tests.checks.test_secret_inputs import ROOMS
from tests.submissions.making import LESSONS, graded_points, lesson_source

OPPOSITE = ("opposite", "apart")
"""What an input is called that says that a rank stands opposite, to which one process must turn."""
KINDS = (
    "values on several ranks, and what travelled", "a rank opposite", "a plan that is played", "values of one process",
    "a key",
)  # fmt: skip

_SECRET = 2**255 + 7


def kind_of(exercise: Exercise, cases: list[Case]) -> str:
    """Return what the points of an exercise with hidden cases rest on."""
    if exercise.challenge is not None:
        return KINDS[2]
    if any(case.world_size > 1 and any(case.inputs[0].get(key) for key in OPPOSITE) for case in cases):
        return KINDS[1]
    travels = any(case.world_size > 1 and exercise.least(case) for case in cases)
    return KINDS[0] if travels else KINDS[3]


@cache
def with_points() -> Mapping[str, Mapping[str, str]]:
    """Return for each lesson its exercises that have points, in their order, and what these rest on."""
    rooms = {path.name: path.parent.name for path in ROOMS}
    found: dict[str, dict[str, str]] = {}
    for number in LESSONS:
        points = graded_points(load(lesson_source(number)))
        found[number] = {
            slug: kind_of(find(slug), hidden_cases(LABKIT, rooms[slug], slug, 2**255 + 7))
            if slug in rooms
            else KINDS[4]
            for slug, of_it in points.items()
            if of_it > 0
        }
    return found


def table() -> str:
    """Return the table in Markdown."""
    lines = ["| lesson | " + " | ".join(KINDS) + " |", "|" + "---|" * (1 + len(KINDS))]
    for number, kinds in with_points().items():
        cells = [", ".join(f"`{slug}`" for slug, each in kinds.items() if each == kind) or "-" for kind in KINDS]
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
