"""A lesson with a cell of each kind goes all the way: built, shown, checked for drift, exported, released."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from labkit.errors import LessonError
from labkit.grading.handout.nbgrader_export import nbgrader_notebook
from labkit.grading.handout.release import release
from labkit.lessons.build import build, check
from labkit.lessons.manifest import read
from labkit.lessons.presentation import lesson_slides
from labkit.lessons.shown import shown_notebook
from labkit.lessons.source import load

pytestmark = pytest.mark.in_turn

SOURCE = Path(__file__).parent / "fixtures" / "05_kinds.py"
NOTEBOOK = "notebooks/05_kinds.ipynb"


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    course = tmp_path_factory.mktemp("kinds") / "course"
    (course / "solutions").mkdir(parents=True)
    shutil.copy(SOURCE, course / "solutions")
    build(course)
    return course


@pytest.fixture
def kinds(built_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built_once, tmp_path / "course"))


def cells(course: Path, name: str = NOTEBOOK) -> dict[str, Any]:
    notebook = json.loads((course / name).read_text(encoding="utf-8"))
    return {cell["id"]: cell | {"source": "".join(cell["source"])} for cell in notebook["cells"]}


def change(course: Path, cell_id: str, **values: Any) -> None:
    path = course / NOTEBOOK
    notebook = json.loads(path.read_text(encoding="utf-8"))
    (cell,) = [cell for cell in notebook["cells"] if cell["id"] == cell_id]
    cell |= values
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def figure_id(course: Path) -> str:
    (found,) = [name for name in cells(course) if name.startswith("figure-")]
    return found


def test_it_is_built_and_nothing_has_drifted(kinds: Path) -> None:
    assert check(kinds) == []
    nbformat.validate(nbformat.read(kinds / NOTEBOOK, as_version=4))  # type: ignore[no-untyped-call]
    assert [each.kind for each in read(kinds / NOTEBOOK).exercises] == ["find", "design", "write"]


def test_a_learner_gets_no_answer(kinds: Path) -> None:
    found = cells(kinds)
    assert found["find-who-waits"]["source"] == 'labkit.answer("who_waits", rank=None, waits_in=None, cause=None)'
    assert 'raise NotImplementedError("Exercise 5.2: Place jobs")' in found["design-place-jobs"]["source"]
    assert found["write-mean-in-words"]["source"].startswith("*Write two to five sentences")
    assert "Right. Rank 5" in json.dumps(cells(kinds, "solutions/05_kinds.ipynb")["find-who-waits"]["outputs"])


def test_a_figure_is_seen_before_its_cell_is_run(kinds: Path) -> None:
    figure = cells(kinds)[figure_id(kinds)]
    (output,) = figure["outputs"]
    assert figure["execution_count"] is None
    assert set(output["data"]) == {"image/png", "text/plain"} and output["output_type"] == "display_data"
    assert not any(cell.get("outputs") for name, cell in cells(kinds).items() if not name.startswith("figure-"))


def test_another_picture_is_drift(kinds: Path) -> None:
    name = figure_id(kinds)
    (output,) = cells(kinds)[name]["outputs"]
    change(kinds, name, outputs=[output | {"data": output["data"] | {"image/png": "aGVsbG8="}}])
    assert [each.cell for each in check(kinds)] == [name]
    change(kinds, name, outputs=[])
    assert [each.why for each in check(kinds)] == ["has no picture of its figure"]


@pytest.mark.long
def test_the_release_takes_the_figure_and_no_other_output(kinds: Path, tmp_path: Path) -> None:
    release(tmp_path / "released", course=kinds)
    assert cells(tmp_path / "released")[figure_id(kinds)]["outputs"]
    name = figure_id(kinds)
    (output,) = cells(kinds)[name]["outputs"]
    change(kinds, name, outputs=[output | {"data": {"text/plain": "the answer is 5"}}])
    with pytest.raises(LessonError, match="carries outputs of a run"):
        release(tmp_path / "other", course=kinds)


def test_every_kind_is_a_slide_with_its_minutes(kinds: Path) -> None:
    lesson = load(kinds / "solutions" / "05_kinds.py")
    slides = lesson_slides(lesson, shown_notebook(lesson, kinds / "solutions" / "05_kinds.ipynb"))
    assert [slide.exercise for slide in slides if slide.kind == "exercise"] == [each.id for each in lesson.exercises]
    assert all("minutes**" in slide.body for slide in slides if slide.kind == "exercise")
    assert any(slide.kind == "figure" for slide in slides)
    assert not any("divisor still counts" in part for slide in slides for part in (slide.body, *slide.notes))


def test_nbgrader_has_a_person_read_what_no_check_judges(kinds: Path) -> None:
    found = {cell.id: cell for cell in nbgrader_notebook(load(kinds / "solutions" / "05_kinds.py")).cells}
    assert "assert checked.passed" in found["check-place-jobs"].source
    asked = found["find-who-waits"].metadata.nbgrader
    assert (asked.grade, asked.solution) == (False, True)
    judged = next(cell for name, cell in found.items() if name.endswith("who-waits") and cell.metadata.nbgrader.grade)
    assert judged.metadata.nbgrader.points == 6 and "passed" in judged.source
    read = found["write-mean-in-words"].metadata.nbgrader
    assert (read.grade, read.solution, read.points) == (True, True, 3)
    assert found["write-mean-in-words"].metadata.nbgrader.cell_type == "markdown"
