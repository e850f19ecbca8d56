"""What was begun in the first edition goes on in this one: answers, guesses, cells of one's own, marks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from labkit.errors import LessonError
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.tables import Mark
from labkit.grading.book.upgrading import upgrade_book
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.lessons.first_edition import GUESSES, NOT_RETOLD, SLUGS
from labkit.lessons.manifest import read
from labkit.lessons.pristine import ORIGINALS
from labkit.lessons.source import load
from labkit.lessons.student import student_text
from labkit.lessons.upgrading import upgrade

ROOT = Path(__file__).parents[2]
RING = ROOT / "solutions" / "02_ring_all_reduce.py"
NUMBERS = {slug: number for number, slug in SLUGS.items()}
GUESS_NUMBERS = {slug: number for number, slug in GUESSES.items()}


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A learner's folder of the first edition: one answer, one guess, one cell of their own, in lesson 02."""
    (tmp_path / "solutions").mkdir()
    shutil.copy(RING, tmp_path / "solutions")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    notebook = json.loads(student_text(load(RING)))
    about = notebook["metadata"]["labkit"]
    about["exercises"] = [each for each in about["exercises"] if each["id"] in NUMBERS]
    for exercise in about["exercises"]:
        exercise["id"] = NUMBERS[exercise["id"]]
        del exercise["number"], exercise["needs"]
    notebook["cells"] = [cell for cell in notebook["cells"] if _was_there(cell)]
    for cell in notebook["cells"]:
        if (slug := cell["metadata"].get("labkit", {}).get("exercise")) is not None:
            cell["metadata"]["labkit"]["exercise"] = NUMBERS[slug]
            kind = cell["id"].partition("-")[0]
            cell["id"] = f"{kind}-{NUMBERS[slug].replace('.', '-')}"
        if cell["id"].startswith("predict-"):
            source = "".join(cell["source"])
            slug = source.split('"')[1]
            cell["source"] = source.replace(slug, GUESS_NUMBERS[slug])
    change(notebook, "exercise-2-3", "def chunk_bounds(numel, num_chunks):\n    return []  # mine\n")
    (guess,) = (cell for cell in notebook["cells"] if "".join(cell["source"]).startswith('labkit.predict("2.6"'))
    guess["source"] = 'labkit.predict("2.6", 8.0, unit="times")'
    notebook["cells"].insert(5, dict(nbformat.v4.new_code_cell("print('my own note')")))  # type: ignore[no-untyped-call]
    (folder / "02_ring_all_reduce.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    return folder


def _was_there(cell: dict[str, Any]) -> bool:
    """Return whether the first edition had this exercise or this guess."""
    slug = cell["metadata"].get("labkit", {}).get("exercise")
    guess = "".join(cell["source"]).split('"')[1] if cell["id"].startswith("predict-") else None
    return (slug is None or slug in NUMBERS) and (guess is None or guess in GUESS_NUMBERS)


def change(notebook: dict[str, Any], cell_id: str, source: str) -> None:
    (cell,) = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
    cell["source"] = source


def sources(path: Path) -> dict[str, str]:
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(notebook)
    return {cell.id: cell.source for cell in notebook.cells}


def test_answers_guesses_and_own_cells_go_over_by_slug(begun: Path) -> None:
    before = (begun / "02_ring_all_reduce.ipynb").read_bytes()
    said: list[str] = []
    upgrade(begun, said.append)
    path = begun / "02_ring_all_reduce.ipynb"
    found = sources(path)
    assert "# mine" in found["exercise-chunk-bounds"]
    assert found["predict-ring-speedup"] == 'labkit.predict("ring_speedup", 8.0, unit="times")'
    assert list(found.values())[-1] == "print('my own note')"
    assert "NotImplementedError" in found["exercise-ring-plan"]
    assert [each.id for each in read(path).exercises] == [each.id for each in load(RING).exercises]
    assert (begun / "kept" / "02_ring_all_reduce.first-edition.ipynb").read_bytes() == before
    assert any("chunk_bounds, ring_speedup" in line for line in said)


def test_again_there_is_nothing_to_do(begun: Path) -> None:
    upgrade(begun, lambda line: None)
    before = (begun / "02_ring_all_reduce.ipynb").read_bytes()
    said: list[str] = []
    upgrade(begun, said.append)
    assert said == ["There is no notebook of the first edition here."]
    assert (begun / "02_ring_all_reduce.ipynb").read_bytes() == before


def test_a_lesson_that_moved_is_found_by_its_exercises(begun: Path) -> None:
    shutil.move(begun.parent / "solutions" / RING.name, begun.parent / "solutions" / "05_ring_all_reduce.py")
    upgrade(begun, lambda line: None)
    assert "# mine" in sources(begun / "05_ring_all_reduce.ipynb")["exercise-chunk-bounds"]
    assert not (begun / "02_ring_all_reduce.ipynb").exists()


def test_every_guess_of_a_lesson_not_retold_has_its_name() -> None:
    lessons = [load(path) for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))]
    named = {cell.source.split('"')[1] for lesson in lessons for cell in lesson.cells if cell.role == "predict"}
    not_retold = {each.id for lesson in lessons if lesson.slug in NOT_RETOLD for each in lesson.exercises}
    numbers = {number.partition(".")[0] for slug, number in NUMBERS.items() if slug in not_retold}
    assert {name for number, name in GUESSES.items() if number.partition(".")[0] in numbers} <= named
    assert len(set(GUESSES.values())) == len(GUESSES)


def test_marks_go_over_and_nothing_else_changes(tmp_path: Path) -> None:
    book = tmp_path / "book.db"
    gradebook = Gradebook(f"sqlite:///{book}")
    exercises = (GradedExercise("2.4", 12.0, 12.0, "passed"), GradedExercise("2.12", 0.0, 10.0, "failed"))
    gradebook.record([GradedSubmission("ada", "02_ring_all_reduce", "a" * 64, "b" * 64, exercises)])
    before = gradebook.grades("02_ring_all_reduce")
    gradebook.close()
    assert upgrade_book(str(book)) == "2 marks of 2 exercises now have the exercises' names."
    assert upgrade_book(f"sqlite:///{book}") == "0 marks of 0 exercises now have the exercises' names."
    engine = create_engine(f"sqlite:///{book}")
    with Session(engine) as session:
        assert set(session.scalars(select(Mark.exercise))) == {"ring_plan", "hierarchical_all_reduce"}
    engine.dispose()
    again = Gradebook(f"sqlite:///{book}")
    (ada,) = again.grades("02_ring_all_reduce")
    assert ada.points == {"ring_plan": 12.0, "hierarchical_all_reduce": 0.0}
    assert sum(before[0].points.values()) == sum(ada.points.values())
    again.close()


def test_originals_of_the_first_edition_are_none(begun: Path) -> None:
    (begun / ORIGINALS).mkdir()
    shutil.copy(begun / "02_ring_all_reduce.ipynb", begun / ORIGINALS)
    before = (begun / "02_ring_all_reduce.ipynb").read_bytes()
    with pytest.raises(LessonError, match=r"Run `labkit lab --folder .*`"):
        upgrade(begun, print)
    assert (begun / "02_ring_all_reduce.ipynb").read_bytes() == before
    new = student_text(load(RING))
    (begun / ORIGINALS / "02_ring_all_reduce.ipynb").write_text(new, encoding="utf-8")
    upgrade(begun, print)
    assert "# mine" in (begun / "02_ring_all_reduce.ipynb").read_text(encoding="utf-8")


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=r"There is no folder .*nowhere; name the one with your notebooks"):
        upgrade(tmp_path / "nowhere", print)
