"""What was handed in and cannot be graded is told to whoever teaches; a request and a case survive their way."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grading.small_lesson import RIGHT, notebook
from labkit.cli import app
from labkit.grading.book.comments_and_requests import asking_text
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.course import Course, find_course
from labkit.grading.limits import Limits
from labkit.grading.notebook.other_lesson import other_lesson
from labkit.grading.notebook.rebuild import rebuild
from labkit.grading.reports.class_page import Line, class_page
from labkit.grading.reports.class_report import CASES, class_csv, read_cases
from labkit.grading.reports.feedback import feedback_html
from labkit.grading.reports.results import GradedExercise, GradedSubmission, read_result
from labkit.grading.reports.student_report import as_json, result_json
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.grading.submission import SubmittedNotebook, read_cells

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ring_course(tmp_path: Path) -> Course:
    """The course's notebooks 02 and 03."""
    folder = tmp_path / "course"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "solutions" / "hidden" / "ring_all_reduce").mkdir(parents=True)
    for name in ("02_ring_all_reduce", "03_collectives"):
        shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", folder / "notebooks")
    return find_course("02", folder)


def handed_in(name: str, change: object = None) -> SubmittedNotebook:
    content = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))
    if callable(change):
        change(content)
    return read_cells(json.dumps(content).encode(), Limits())


def test_another_lessons_notebook_is_told(ring_course: Course) -> None:
    told = (
        "This is the notebook of 03_collectives, not of 02_ring_all_reduce, so nothing was graded. Hand in the "
        "notebook 02_ring_all_reduce.ipynb."
    )
    assert other_lesson(handed_in("03_collectives"), ring_course) == told
    assert other_lesson(handed_in("03_collectives", lambda each: each.update(metadata={})), ring_course) == told
    assert other_lesson(handed_in("02_ring_all_reduce"), ring_course) == ""
    assert other_lesson(handed_in("02_ring_all_reduce", lambda each: each.update(metadata={})), ring_course) == ""
    assert other_lesson(SubmittedNotebook(), ring_course) == ""


def test_an_answer_of_this_lesson_in_another_notebook_is_graded(ring_course: Course) -> None:
    tagged = [cell for cell in ring_course.pristine["cells"] if "labkit" in cell["metadata"]]
    mine = next(cell for cell in tagged if cell["metadata"]["labkit"]["exercise"] == "ring_sum")
    assert other_lesson(handed_in("03_collectives", lambda each: each["cells"].append(mine)), ring_course) == ""


def test_lost_answers_stand_in_the_problem_column_and_are_not_called_untouched(course: Course, tmp_path: Path) -> None:
    content = notebook(RIGHT)
    content["cells"][3]["cell_type"] = "markdown"
    read = read_cells(json.dumps(content).encode(), Limits())
    rebuilt = rebuild(read.cells, course.pristine)
    results = tuple(
        ExerciseResult(each, "not_done", lost=rebuilt.lost.get(each.id, "")) for each in course.manifest.exercises
    )
    result = StudentResult("ada", "", results, submission_hash="a", course_hash="c")
    where = "cell 4 of the file holds it as Markdown; make it a code cell and hand in again"
    assert result.lost == f"90.1: {where}"
    page = feedback_html(result, "Small").decode()
    assert f"Not graded: {where}." in page
    (tmp_path / "result.json").write_bytes(as_json(result_json(result, "90_small")))
    entry = read_result(tmp_path / "result.json")
    row = next(csv.DictReader(class_csv([entry], course.manifest).decode().splitlines()))
    assert row["Problem"] == result.lost
    assert where in class_page([Line(name, name, entry.score, entry) for name in "ab"], "Small").decode()


@pytest.fixture
def book(tmp_path: Path) -> Gradebook:
    opened = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    ring = GradedExercise("ring_sum", 0, 12, "failed")
    opened.record([GradedSubmission("Souza, João da Silva", "ring_all_reduce", "ab12cd34" * 8, "c" * 64, (ring,))])
    return opened


LINE = asking_text("ring_all_reduce", "ring_sum", "Souza, João da Silva", "ab12cd34" * 8)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "mail",
    [
        f"Dear all,\n{LINE}It works at home.",
        LINE.replace("João da", "João\nda") + "It works\nat home.",
        LINE.replace(" da ", " \r\n> da ") + "It works at home.",
        LINE.replace(" ", "\n> > ") + "It works\n> > at home.",
        LINE.replace("Souza, ", "Souza,=\n ") + "It works at home.",
        LINE.replace("ring_sum ", "ring_sum\n    ") + "\n\nIt works at home.",
        LINE.replace(' "', " \u201c").replace('" ', "\u201d ") + "It works at home.",
        LINE.replace(" ", "\u00a0") + "It works at home.",
    ],
)
def test_a_request_survives_what_mailers_do_to_lines(book: Gradebook, mail: str) -> None:
    asked = book.ask(mail)
    assert (asked.student, asked.exercise) == ("Souza, João da Silva", "ring_sum")
    assert asked.words == "It works at home."
    book.close()


def test_a_case_that_grading_listed_is_closed_as_its_page_says(course: Course, tmp_path: Path) -> None:
    ring = ExerciseResult(course.manifest.exercises[0], "passed")
    for name in ("ada", "grace"):
        told = result_json(StudentResult(name, "", (ring,), submission_hash=name, course_hash="c"), "90_small")
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "result.json").write_bytes(as_json(told))
    (tmp_path / "out" / CASES).write_text(json.dumps({"3fa91c20": "ada and grace"}))
    assert read_cases(tmp_path / "out") == {"3fa91c20": "ada and grace"} and read_cases(tmp_path) == {}

    def labkit(*words: str) -> str:
        done = CliRunner().invoke(app, ["gradebook", *words, "--book", str(tmp_path / "book.db")])
        assert done.exit_code == 0, done.output
        return done.output

    labkit("record", str(tmp_path / "out"))
    assert "case 3fa91c20 (ada and grace) is closed" in labkit("close-case", "3fa91c20", "--note", "a pair")
    page = (ROOT / "labkit" / "grading" / "reports" / "copies_page.html").read_text(encoding="utf-8")
    assert "labkit gradebook close-case ID --note" in page and "--lesson" not in page
