"""A lesson for nbgrader: valid by its own validator, released by it without answers, and graded by it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.errors import LessonError
from labkit.grading.handout.nbgrader_export import export_nbgrader, nbgrader_notebook
from labkit.lessons.course import source_files
from labkit.lessons.source import load, parse

ROOT = Path(__file__).parents[2]
BENCH = ROOT / ".venv-bench" / "bin"
LESSONS = source_files(ROOT)
KEYS = {"schema_version", "grade_id", "grade", "solution", "locked", "task", "cell_type"}


def nbgrader(folder: Path, *words: str) -> str:
    """Return what nbgrader says, run as from its own environment."""
    if not (BENCH / "nbgrader").exists():
        pytest.skip("nbgrader is not installed beside (make bench installs it)")
    environment = {**os.environ, "PATH": f"{BENCH}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [str(BENCH / "python"), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def cells(path: Path) -> dict[str, Any]:
    return {cell["id"]: cell for cell in json.loads(path.read_text())["cells"]}


@pytest.mark.in_turn
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_lesson_has_a_solution_region_in_each_exercise_and_its_points_on_each_check(path: Path) -> None:
    lesson = load(path)
    notebook = nbgrader_notebook(lesson)
    ids = [cell["metadata"]["nbgrader"]["grade_id"] for cell in notebook["cells"] if "nbgrader" in cell["metadata"]]
    assert len(ids) == len(set(ids))
    worth = {exercise.id: exercise.points for exercise in lesson.exercises}
    points: dict[str, int] = {}
    for cell in notebook["cells"]:
        ours, theirs = cell["metadata"].get("labkit", {}), cell["metadata"].get("nbgrader")
        if theirs is None:
            assert not {"exercise", "check", "given"} & set(cell["metadata"].get("tags", []))
            assert not worth.get(ours.get("exercise", ""), 0)
            continue
        assert set(theirs) == KEYS | ({"points"} if theirs["grade"] else set()) and theirs["schema_version"] == 3
        assert theirs["locked"] != theirs["solution"]
        if theirs["grade"]:
            points[ours["exercise"]] = theirs["points"]
        if theirs["cell_type"] == "markdown":  # a person reads it
            continue
        if theirs["grade"]:
            assert len(re.findall(r"^assert \w+\.passed$", cell["source"], re.MULTILINE)) == 1
        if theirs["solution"]:
            assert "# BEGIN SOLUTION " not in cell["source"]
            assert cell["source"].count("### BEGIN") == cell["source"].count("### END") > 0
        ast.parse(cell["source"])
    assert points == {name: found for name, found in worth.items() if found}


HEAD = '# %% tags=["exercise"] exercise="twice" points=2 difficulty=1 importance=1 minutes=1 title="T" provides=["f"]\n'


def test_a_private_piece_moves_into_the_function_that_uses_it() -> None:
    source = (
        "# %% [markdown]\n# # A lesson\n\n"
        + HEAD
        + "# BEGIN SOLUTION twice\ndef _twice(x):\n    return 2 * x\n# END SOLUTION\n\n\n"
        'def f(x):\n    """Return 2x."""\n'
        "    # BEGIN SOLUTION twice\n    return _twice(x)\n    # END SOLUTION\n\n"
        '# %% tags=["check"]\nlabkit.check("twice", f)\n'
    )
    notebook = nbgrader_notebook(parse(source, "09_x.py"))
    [cell] = [cell for cell in notebook["cells"] if "exercise" in cell["metadata"].get("tags", [])]
    namespace: dict[str, Any] = {}
    exec(cell["source"], namespace)
    assert namespace["f"](3) == 6 and "_twice" not in namespace
    stub = cell["source"].split("    ### BEGIN SOLUTION")[0]
    assert stub.startswith("# Exercise 9.1: T\n") and stub.endswith("    # Exercise 9.1: T\n")


def test_a_lesson_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="No lesson is called '77'"):
        export_nbgrader("77", tmp_path, ROOT)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_nbgrader_takes_every_lesson_releases_it_without_answers_and_grades_it(tmp_path: Path) -> None:
    for path in LESSONS:
        words = ["export-nbgrader", path.stem, "--out", str(tmp_path), "--course", str(ROOT)]
        assert CliRunner().invoke(app, words).exit_code == 0
    (tmp_path / "nbgrader_config.py").write_text(
        'c = get_config()\nc.CourseDirectory.course_id = "x"\nc.ExecutePreprocessor.timeout = 200\n'
    )
    reads = (
        "import sys\nfrom nbgrader.nbgraderformat import read\n"
        "for path in sys.argv[1:]:\n    read(path, as_version=4)\nprint('valid', len(sys.argv) - 1)\n"
    )
    sources = sorted(map(str, tmp_path.glob("source/*/*.ipynb")))
    assert f"valid {len(LESSONS)}" in nbgrader(tmp_path, "-c", reads, *sources)
    for path in LESSONS:
        nbgrader(tmp_path, "-m", "nbgrader", "generate_assignment", path.stem, "--create")
        released = cells(tmp_path / "release" / path.stem / f"{path.stem}.ipynb")
        lesson = load(path)
        says = {each.id: f"# Exercise {each.number}: {each.title}" for each in lesson.exercises}
        for cell in lesson.cells:
            for each in cell.cuts:
                assert "\n".join(each.lines) not in "".join(released[cell.id]["source"])
                assert says[each.exercise] in "".join(released[cell.id]["source"])
    for student, folder in (("right", "source"), ("untouched", "release")):
        target = tmp_path / "submitted" / student / "00_start_here"
        shutil.copytree(tmp_path / folder / "00_start_here", target)
    nbgrader(tmp_path, "-m", "nbgrader", "autograde", "00_start_here", "--create")
    scores = (
        "SELECT student_id, SUM(auto_score) FROM submitted_assignment a "
        "JOIN submitted_notebook n ON a.id = n.assignment_id JOIN grade g ON g.notebook_id = n.id GROUP BY student_id"
    )
    connection = sqlite3.connect(tmp_path / "gradebook.db")
    found = dict(connection.execute(scores).fetchall())
    connection.close()
    assert found == {"right": float(sum(each.points for each in load(LESSONS[0]).exercises)), "untouched": 0.0}
