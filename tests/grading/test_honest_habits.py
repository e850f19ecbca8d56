"""What honest learners do to their notebooks costs them nothing: each habit has its points."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest

from grading.class_with_known_scores import command, wrong_scores
from grading.conftest import SANDBOX
from grading.honest_habits import Habit, habits, places
from grading.odd_habits import HABITS
from grading.small_lesson import RIGHT, code_cell, notebook
from labkit.grading.course import Course
from labkit.grading.hidden_cases.oracle import Oracle
from labkit.grading.hidden_cases.probe import CaseRun
from labkit.grading.limits import Limits
from labkit.grading.notebook.rebuild import Rebuilt, rebuild
from labkit.grading.preloaded.template import Template
from labkit.grading.reports.student_report import exercise_text
from labkit.grading.sandbox import bubblewrap
from labkit.grading.setting import Setting
from labkit.grading.student import Grader
from labkit.grading.submission import Submission, read_cells, read_submission
from tests.submissions.making import ROOT, everything


def rebuilt_from(content: dict[str, Any], folder: Path) -> Rebuilt:
    path = folder / "x.ipynb"
    path.write_text(json.dumps(content))
    read = read_submission(Submission("x", path))
    assert not read.problem
    return rebuild(read.cells, notebook())


@pytest.mark.in_turn
@pytest.mark.parametrize("name", habits())
def test_a_habit_costs_nothing(name: str, template: Template, oracle: Oracle, tmp_path: Path) -> None:
    content = notebook(RIGHT)
    habits()[name](content, places(content)["double"])
    rebuilt = rebuilt_from(content, tmp_path)
    assert rebuilt.unchanged == () and rebuilt.lost == {}
    for exercise in ("double", "total") if "all" in name else ("double",):
        case = oracle.cases(exercise, 7)[0]
        cells = rebuilt.cells_until(exercise)
        outcome = CaseRun(template, exercise, cells, case, 1, tmp_path / "case", 60.0, Limits()).run()
        verdict = oracle.judge(exercise, case, outcome.results, outcome.failure, outcome.wire)
        assert verdict.passed, (verdict.message, cells)


def test_what_an_answer_takes_along_is_told_and_runs_before_it_in_the_notebook(tmp_path: Path) -> None:
    content = notebook(RIGHT | {"double": "def double(x):\n    return mine(x)\n"})
    content["cells"].insert(2, code_cell("own", "print('no')\ndef mine(x):\n    return x + x\nprint(mine(1))\n", []))
    rebuilt = rebuilt_from(content, tmp_path)
    cells = [cell.source for cell in rebuilt.notebook.cells]
    place = cells.index("def double(x):\n    return mine(x)\n")
    assert cells[place - 1] == "def mine(x):\n    return x + x\n"
    assert rebuilt.notes == ("Exercise 90.1: what it needs of cell 3 of your file was taken along.",)
    assert rebuilt.sources()["double"] == "def mine(x):\n    return x + x\n\n\ndef double(x):\n    return mine(x)\n"


@pytest.mark.parametrize(
    ("use", "cell", "said"),
    [
        ("N", "exec(''.join(['N', '=2']))", r"it uses N, which no cell makes .* \(cell 3 .*write `N = ...` in a cell"),
        ("N", "for name in 'NM':\n    globals()[name] = 2", r"it uses N, which no cell makes .* \(cell 3 "),
        ("mine.N", "import mine", "it imports mine, which no cell writes and which is not installed"),
    ],
)
def test_what_only_a_running_notebook_knows_is_named_with_what_to_do(
    use: str, cell: str, said: str, tmp_path: Path
) -> None:
    rebuilt = rebuilt_from(_using(use, cell), tmp_path)
    assert re.match(said, rebuilt.lost["double"]), rebuilt.lost
    assert f"Exercise 90.1: {rebuilt.lost['double']}." in rebuilt.notes and set(rebuilt.lost) == {"double"}


def _using(use: str, cell: str) -> dict[str, Any]:
    content = notebook(RIGHT | {"double": f"def double(x):\n    return x * {use}\n"})
    content["cells"].insert(2, code_cell("own", cell, []))
    return content


@pytest.mark.in_turn
def test_it_stands_in_the_problem_column_where_the_answer_fails(
    grader: Callable[[Setting], Grader], course: Course, tmp_path: Path
) -> None:
    (tmp_path / "x.ipynb").write_text(json.dumps(_using("mine.N", "import mine")))
    (tmp_path / "alone").touch()
    setting = Setting(course, tmp_path / "out", b"key", Limits(), tmp_path / "alone", True, SANDBOX)
    result = grader(setting).grade(Submission("x", tmp_path / "x.ipynb"), lambda stage: None)
    assert [each.state for each in result.exercises] == ["failed", "passed", "passed"]
    assert result.lost == f"90.1: {result.exercises[0].lost}" and "it imports mine" in result.lost
    assert exercise_text(result.exercises[0]) == f"Not graded: {result.exercises[0].lost}."


def test_two_helpers_of_one_name_serve_the_exercise_they_stand_above(tmp_path: Path) -> None:
    content = notebook(RIGHT | {name: f"def {name}(x):\n    return mine(x)\n" for name in ("double", "shift")})
    content["cells"].insert(places(content)["shift"], code_cell("b", "def mine(x):\n    return 'shift'\n", []))
    content["cells"].insert(places(content)["double"], code_cell("a", "def mine(x):\n    return 'double'\n", []))
    rebuilt = rebuilt_from(content, tmp_path)
    for name in ("double", "shift"):
        namespace: dict[str, object] = {}
        for cell in rebuilt.cells_until(name):
            if cell["kind"] != "given":
                exec(cell["source"], namespace)
        assert eval(f"{name}(1)", namespace) == name


@pytest.mark.in_turn
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")), ids=lambda path: path.stem[:2])
def test_a_notebook_as_handed_out_has_no_answer_anywhere(path: Path) -> None:
    handed_out = nbformat.read(path, as_version=4)
    rebuilt = rebuild(read_cells(path.read_bytes(), Limits()).cells, handed_out)
    assert len(rebuilt.unchanged) == len(handed_out["metadata"]["labkit"]["exercises"])
    assert rebuilt.notes == () and all(cell["kind"] != "needed" for cell in rebuilt.cells)


def write_class(folder: Path, lesson: str, changes: Mapping[str, Habit]) -> dict[str, dict[str, Any]]:
    """Write a right submission for each habit into `folder`, each at another exercise; return what each must get."""
    made = everything(lesson)
    right = json.loads(made["scores.json"])["right_as_taught"]
    folder.mkdir(parents=True)
    expected = {}
    for number, (name, habit) in enumerate(changes.items()):
        content = json.loads(made["right_as_taught.ipynb"])
        found = places(content)
        habit(content, list(found.values())[number % len(found)])
        student = f"student-{number:03}"
        (folder / f"{student}.ipynb").write_text(json.dumps(content))
        expected[student] = right | {"kind": name}
    return expected


@pytest.mark.skipif(bool(bubblewrap.problem()), reason=f"no sandbox here: {bubblewrap.problem()}")
@pytest.mark.long
@pytest.mark.parametrize(
    ("lesson", "changes"),
    [("02", habits()), ("04", habits()), ("02", HABITS)],
    ids=["common in 02", "common in 04", "rare in 02"],
)
def test_a_class_of_such_notebooks_has_exactly_its_points(
    lesson: str, changes: Mapping[str, Habit], tmp_path: Path
) -> None:
    expected = write_class(tmp_path / "in", lesson, changes)
    assert len(expected) >= 40
    ended = subprocess.run(command(tmp_path, 2, lesson, points_only=True), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert wrong_scores(tmp_path / "out", expected) == []
