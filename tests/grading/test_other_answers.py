"""What is handed in besides functions: sentences go to a reader, literals are held against a key."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from labkit.checks.question import read_key, read_question
from labkit.grading.course import Course, find_course
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import CaseRun
from labkit.grading.keys import judge_answer
from labkit.grading.limits import Limits
from labkit.grading.notebook.rebuild import Rebuilt, rebuild
from labkit.grading.preloaded.template import Template
from labkit.grading.reports.feedback import feedback_html
from labkit.grading.reports.student_report import details, exercise_text, result_json
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.grading.submission import Submission, read_submission
from labkit.lessons.source import load
from labkit.lessons.student import student_notebook

ROOT = Path(__file__).parents[2]
SOURCE = Path(__file__).parents[1] / "lessons" / "fixtures" / "05_kinds.py"
WRITE = "write-mean-in-words"


@pytest.fixture
def handed_out() -> dict[str, Any]:
    return json.loads(json.dumps(student_notebook(load(SOURCE))))


def rebuilt_with(handed_out: dict[str, Any], tmp_path: Path, **sources: str) -> Rebuilt:
    """Return the rebuilt submission in which cells, by their id with underscores, hold other text."""
    content = json.loads(json.dumps(handed_out))
    for cell in content["cells"]:
        cell["source"] = sources.get(cell["id"].replace("-", "_"), cell["source"])
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    return rebuild(read_submission(Submission("x", path)).cells, handed_out)


def test_sentences_are_taken_as_text(handed_out: dict[str, Any], tmp_path: Path) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, write_mean_in_words="The mean is **too small**.")
    assert rebuilt.written == {"mean_in_words": "The mean is **too small**."}
    assert "mean_in_words" not in rebuilt.unchanged and rebuilt.notes == ()
    assert not any("too small" in source for _, source in rebuilt.answers())


@pytest.mark.parametrize("text", ["", "  \n", "*Write two to five sentences here, in place of this line.*\n"])
def test_a_placeholder_is_no_answer(handed_out: dict[str, Any], tmp_path: Path, text: str) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, write_mean_in_words=text)
    assert rebuilt.written == {} and "mean_in_words" in rebuilt.unchanged


def test_sentences_are_found_by_metadata_where_the_id_is_lost(handed_out: dict[str, Any], tmp_path: Path) -> None:
    content = json.loads(json.dumps(handed_out))
    (cell,) = [cell for cell in content["cells"] if cell["id"] == WRITE]
    cell |= {"id": "something-else", "source": "Every rank's divisor is right, its sum is not."}
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    rebuilt = rebuild(read_submission(Submission("x", path)).cells, handed_out)
    assert rebuilt.written == {"mean_in_words": "Every rank's divisor is right, its sum is not."}


def test_sentences_in_new_cells_below_the_placeholder_are_taken_along(
    handed_out: dict[str, Any], tmp_path: Path
) -> None:
    content = json.loads(json.dumps(handed_out))
    (at,) = [place for place, cell in enumerate(content["cells"]) if cell["id"] == WRITE]
    new = [{"cell_type": "markdown", "metadata": {}, "id": f"n{n}", "source": f"Part {n}."} for n in (1, 2)]
    content["cells"][at + 1 : at + 1] = new
    path = tmp_path / "x.ipynb"
    path.write_text(json.dumps(content), encoding="utf-8")
    rebuilt = rebuild(read_submission(Submission("x", path)).cells, handed_out)
    assert rebuilt.written == {"mean_in_words": "Part 1.\n\nPart 2."} and "taken along" in rebuilt.notes[0]


def test_the_model_answer_and_the_rubric_stay_with_instructors(handed_out: dict[str, Any]) -> None:
    lesson = load(SOURCE)
    assert lesson.rubrics == {"mean_in_words": {"says the mean is too small": 2, "names a test with unequal values": 1}}
    text = json.dumps(handed_out)
    assert "too small" not in text and "unequal" not in text
    assert lesson.manifest.exercise("mean_in_words").points == 3


FIND = 'labkit.answer("who_waits", rank={}, waits_in="all_reduce", cause="computes for longer")'


@pytest.fixture
def lesson_course(tmp_path: Path, handed_out: dict[str, Any]) -> Course:
    """A course of one lesson whose class has a key of its own."""
    root = tmp_path / "course"
    hidden = root / "solutions" / "hidden" / "kinds"
    shutil.copytree(ROOT / "solutions" / "hidden" / "start_here" / "who_waits", hidden / "who_waits")
    shutil.copytree(ROOT / "labkit" / "exercises" / "start_here", root / "exercises" / "kinds")
    (root / "notebooks").mkdir()
    (root / "notebooks" / "05_kinds.ipynb").write_text(json.dumps(handed_out), encoding="utf-8")
    return find_course("05", root)


def test_literals_are_taken_and_nothing_else_of_the_cell(handed_out: dict[str, Any], tmp_path: Path) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, find_who_waits=f"import os\n{FIND.format(2)}\nprint(1)")
    assert rebuilt.answered["who_waits"] == {"rank": 2, "waits_in": "all_reduce", "cause": "computes for longer"}
    (cell,) = [cell for cell in rebuilt.notebook.cells if cell.id == "find-who-waits"]
    assert cell.source.startswith('labkit.answer("who_waits", rank=2, waits_in=') and "os" not in cell.source


PLAIN = 'rank=2, waits_in="all_reduce", cause="computes for longer"'
FORMS = {
    "assigned": f'mine = labkit.answer("who_waits", {PLAIN})\nmine',
    "printed": f'print(labkit.answer("who_waits", {PLAIN}))',
    "by another name": f'from labkit import answer\nanswer("who_waits", {PLAIN})',
    "names": f"late = 2\n{FIND.format('late')}",
    "arithmetic": FIND.format("round(16e6 * 7 / 56e6) + 3 - 3"),
    "a dict": f'labkit.answer("who_waits", **dict({PLAIN}))',
    "timed": f"%time {FIND.format(2)}",
    "a timed cell": f"%%time\n{FIND.format(2)}",
    "help asked before": f"labkit.answer?\n{FIND.format(2)}",
    "the second try counts": f"{FIND.format(5)}\n{FIND.format(2)}",
}


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_is_read_as_learners_write_it(handed_out: dict[str, Any], tmp_path: Path, form: str) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, find_who_waits=FORMS[form])
    assert rebuilt.answered["who_waits"] == {"rank": 2, "waits_in": "all_reduce", "cause": "computes for longer"}


@pytest.mark.parametrize(
    "rank", ["len('ab')", "[2]", "1e999", "10 ** 400", "round(2, -10**9)", "'2' * 2", "__import__('os').getpid()"]
)
def test_what_is_no_literal_is_not_taken(handed_out: dict[str, Any], tmp_path: Path, rank: str) -> None:
    rebuilt = rebuilt_with(handed_out, tmp_path, find_who_waits=FIND.format(rank))
    assert rebuilt.answered == {} and "who_waits" in rebuilt.unchanged
    assert any("not a plain value" in note for note in rebuilt.notes)


def test_the_classs_key_decides(lesson_course: Course, handed_out: dict[str, Any], tmp_path: Path) -> None:
    exercise = lesson_course.manifest.exercise("who_waits")
    assert exercise.kind == "find" and exercise.points == 6
    right = rebuilt_with(handed_out, tmp_path, find_who_waits=FIND.format(2)).answered["who_waits"]
    assert judge_answer(lesson_course, exercise, right).state == "passed"
    for given in ({**right, "rank": 5}, {**right, "cause": None}, {"rank": 2}, {**right, "rank": int("9" * 400)}):
        found = judge_answer(lesson_course, exercise, given)
        assert found.state == "failed" and found.score == 0.0 and found.first_failure
    assert found.first_failure.message == "rank is a number; you gave one of more than 300 digits."
    labkits = {"rank": 5, "waits_in": "all_reduce", "cause": "loads its data late"}
    assert judge_answer(lesson_course, exercise, labkits).state == "failed"


def test_wrong_answers_are_told_alike_whichever_part_is_right(lesson_course: Course) -> None:
    """Told field by field, eight attempts find out which of four ranks, which operation and which cause it was."""
    exercise = lesson_course.manifest.exercise("who_waits")
    question = read_question(lesson_course.exercises / "who_waits" / "question.json")
    tries = [
        dict(zip(question.fields, each, strict=True))
        for each in product([0, 2], *(field.choices for field in list(question.fields.values())[1:]))
    ]
    told = {result_text(judge_answer(lesson_course, exercise, given)) for given in tries}
    assert len(tries) > 8 and len(told) == 2  # right, and not


def result_text(found: ExerciseResult) -> str:
    return f"{exercise_text(found)} {details(StudentResult('ada', '', (found,)))}"


def _keyed() -> list[tuple[str, str, float]]:
    """Return every ``find`` and ``why`` of the course: lesson's slug, its own, points."""
    return [
        (lesson.slug, each.id, each.points)
        for lesson in map(load, sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py")))
        for each in lesson.manifest.exercises
        if each.kind in ("find", "why")
    ]


def test_an_answer_that_labkit_itself_holds_earns_nothing() -> None:
    found = _keyed()
    assert any(points for *_, points in found)
    for lesson, slug, points in found:
        own = ROOT / "solutions" / "hidden" / lesson / slug
        if points:  # else it is for oneself
            labkits = read_key(ROOT / "labkit" / "exercises" / lesson / slug / "key.json").answers
            assert read_key(own / "key.json").answers != labkits, f"{slug} is read in the package"
            assert (own / "recording.json").is_file(), f"{slug}: a class looks at a run of its own"


def test_a_changed_key_is_another_course(lesson_course: Course) -> None:
    before = lesson_course.fingerprint(b"of the class")
    key = lesson_course.class_keys / "who_waits" / "key.json"
    key.write_text(key.read_text().replace('"rank": 2', '"rank": 3'))
    assert lesson_course.fingerprint(b"of the class") != before


def test_students_see_what_was_taken_of_theirs(
    lesson_course: Course, handed_out: dict[str, Any], tmp_path: Path
) -> None:
    manifest = lesson_course.manifest
    found = judge_answer(lesson_course, manifest.exercise("who_waits"), {"rank": 0, "waits_in": None, "cause": None})
    read = ExerciseResult(manifest.exercise("mean_in_words"), "to_read", written="The mean is <b>too small</b>.")
    page = feedback_html(StudentResult("ada", "", (found, read)), "Kinds").decode()
    assert "the rank that is late" in page and "no answer for what the other ranks wait in" in page
    assert "a person reads it" in page and "&lt;b&gt;too small" in page
    result = result_json(StudentResult("ada", "", (found, read)), "05_kinds")
    assert result["tests"][1]["extra_data"]["written"] == "The mean is <b>too small</b>."


def test_a_design_earns_its_points_by_beating_the_naive_one(oracle: Oracle, template: Template, tmp_path: Path) -> None:
    cell = {"id": "design-place-jobs", "name": "place_jobs", "kind": "exercise"}
    said = {}
    for name, body in {"naive": "[0] * len(minutes)", "better": "[job % 2 for job in range(len(minutes))]"}.items():
        source = f"def place_jobs(minutes, num_machines):\n    return {body}\n"
        (case,) = oracle.cases("place_jobs", 7)
        cells = [cell | {"source": source}]
        outcome = CaseRun(template, "place_jobs", cells, case, 1, tmp_path / name, 60.0, Limits()).run()
        said[name] = oracle.judge("place_jobs", case, outcome.results, outcome.failure, outcome.wire)
    assert not said["naive"].passed and "Points are for less" in said["naive"].message
    assert said["better"].passed and "best known" in said["better"].message
