"""Partial credit where an exercise's header weighs its hidden cases; else all or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grading.conftest import SANDBOX
from grading.small_lesson import RIGHT, notebook, write_course, write_submission
from labkit.errors import EnvironmentProblem
from labkit.grading.grade import grade
from labkit.grading.reports.student_report import exercise_text
from labkit.grading.score import CaseResult, ExerciseResult
from labkit.lessons.headers import HeaderError, exercise_of
from labkit.lessons.manifest import Exercise, Manifest, from_metadata

HEADER = {
    "exercise": "total", "title": "Total", "points": 10, "difficulty": 1, "importance": 5, "minutes": 4,
    "provides": ["total"],
}  # fmt: skip


def result(weights: tuple[int, ...], passed: list[bool]) -> ExerciseResult:
    exercise = Exercise("total", "Total", ("total",), 10, 1, 5, 4, weights=weights)
    cases = tuple(CaseResult(f"case {number}", each) for number, each in enumerate(passed))
    return ExerciseResult(exercise, "passed" if all(passed) else "failed", cases, len(weights) or len(passed))


@pytest.mark.parametrize(
    ("weights", "passed", "score"),
    [((3, 2, 1), [True, False, True], 6.67), ((3, 2, 1), [True, True, True], 10), ((), [True, False, True], 0),
     ((3, 2, 1), [True], 5), ((3, 2, 1), [False, False, False], 0)],
)  # fmt: skip
def test_weighted_cases_earn_their_share_and_others_all_or_nothing(
    weights: tuple[int, ...], passed: list[bool], score: float
) -> None:
    found = result(weights, passed)
    if len(passed) < len(weights):  # cases after one that hangs are not tried, and earn nothing
        found = ExerciseResult(found.exercise, "failed", found.cases, len(weights))
    assert found.score == score


def test_a_student_reads_what_the_cases_earned() -> None:
    assert "they earn 6.67 of 10 points" in exercise_text(result((3, 2, 1), [True, False, True]))
    assert "points are given for all of them together" in exercise_text(result((), [True, False, True]))


def test_weights_stand_in_the_header_and_in_the_manifest_where_there_are_any() -> None:
    weighted = exercise_of("exercise", HEADER | {"weights": [3, 2, 1]}, "90.1", ())
    plain = exercise_of("exercise", HEADER, "90.1", ())
    for exercise in (weighted, plain):
        metadata = Manifest("90_small", "Small", "0", (exercise,)).as_metadata()
        assert ("weights" in metadata["exercises"][0]) == bool(exercise.weights)
        assert from_metadata({"labkit": json.loads(json.dumps(metadata))}, "x").exercises == (exercise,)
    for wrong in ([0, 1], ["a"], [True]):
        with pytest.raises(HeaderError, match="write a whole number above 0 for each case"):
            exercise_of("exercise", HEADER | {"weights": wrong}, "90.1", ())


def weighted_course(folder: Path, weights: list[int]) -> Path:
    course = write_course(folder)
    content = notebook()
    content["metadata"]["labkit"]["exercises"][1]["weights"] = weights
    (course / "notebooks" / "90_small.ipynb").write_text(json.dumps(content))
    return course


@pytest.mark.in_turn
def test_a_submission_earns_part_of_its_points(tmp_path: Path) -> None:
    first_alone = RIGHT["shift"].replace("    out =", "    x = x if n == 3 else x + 1\n    out =")
    write_submission(tmp_path / "in" / "ada.ipynb", {"double": RIGHT["double"], "shift": first_alone})
    options = {"points_only": True, "sandbox": SANDBOX, "key": tmp_path / "key", "second_run": False}
    course = weighted_course(tmp_path / "course", [1, 2])
    [ada] = grade([tmp_path / "in"], "90", tmp_path / "out", course=course, **options)  # type: ignore[arg-type]
    assert ada.points == {"double": 2, "shift": 2, "total": 0}  # 2 ranks fail, 3 ranks pass


@pytest.mark.long
def test_weights_for_another_number_of_cases_end_the_run_in_words(tmp_path: Path) -> None:
    write_submission(tmp_path / "in" / "ada.ipynb", {"shift": RIGHT["shift"]})
    options = {"points_only": True, "sandbox": SANDBOX, "key": tmp_path / "key"}
    course = weighted_course(tmp_path / "course", [1] * 77)
    with pytest.raises(EnvironmentProblem, match=r"hidden cases but 77 weights"):
        grade([tmp_path / "in"], "90", tmp_path / "out", course=course, **options)  # type: ignore[arg-type]
