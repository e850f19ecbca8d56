"""Write the submissions that grading is tested with: ``python -m tests.submissions.making 02 --into build/made``.

Each file in answers_NN/ is a submission: a docstring that says what it is, then cells headed ``# %% ring_sum``. A
first line ``# base: solution`` fills the other exercises with the lesson's own answers, ``# base: student`` leaves
them as they are handed out, and then they earn nothing. A second line ``# loses: ring_sum, run_plan`` names the filled
ones that earn nothing: what stands on a mistake made elsewhere keeps its points, because it passes with the reference
answer there (the second run). Lesson 02 also has files that are no notebooks. The notebooks hold the lesson's given,
exercise, predict and check cells as the student notebook has them, so they follow when the lesson changes; none is
committed. Tests ask the fixture ``submissions`` for a lesson's folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from labkit.checks.answer_cell import read_answer
from labkit.checks.question import KEY, read_key
from labkit.lessons.cuts import without_markers
from labkit.lessons.lesson import TASKS, Cell, Lesson
from labkit.lessons.source import load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LESSONS = tuple(sorted(path.name.removeprefix("answers_") for path in HERE.glob("answers_*")))
UNREADABLE = {"02": ("truncated", "not_a_notebook", "empty_file")}
KEPT = ("given", *TASKS, "predict", "check", "parameters")


def main() -> None:
    """Write the submissions of the lessons named on the command line, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="NN", help="such as 02; without any, all")
    parser.add_argument("--into", type=Path, required=True, help="the folder that gets a folder for each lesson")
    asked = parser.parse_args()
    for number in asked.lessons or LESSONS:
        write(number, asked.into / number)
        sys.stdout.write(f"{len(list((asked.into / number).iterdir()))} files in {asked.into / number}\n")


def write(number: str, folder: Path) -> None:
    """Write a lesson's submissions and scores.json into `folder`, made for them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in everything(number).items():
        (folder / name).write_bytes(data)


def everything(number: str) -> dict[str, bytes]:
    """Return the content of every submission of a lesson and of scores.json, by file name."""
    source = lesson_source(number)
    lesson = load(source)
    student = json.loads((ROOT / "notebooks" / f"{source.stem}.ipynb").read_text(encoding="utf-8"))
    files = {}
    for path in sorted((HERE / f"answers_{number}").glob("*.py")):
        files[f"{path.stem}.ipynb"] = _notebook(student, answers(path.read_text(encoding="utf-8"), lesson))
    lost_by = lost(number)
    for name in lost_by:
        if lost_by[name] is None:
            files[f"{name}.ipynb"] = _unreadable(name, files["right_as_taught.ipynb"])
    files["scores.json"] = (json.dumps(_scores(lesson, lost_by), indent=1) + "\n").encode()
    return files


def lesson_source(number: str) -> Path:
    """Return the source file of a lesson."""
    (source,) = (ROOT / "solutions").glob(f"{number}_*.py")
    return source


def style(number: str, name: str) -> dict[str, str]:
    """Return the exercises' cells of one file in answers_NN/, by exercise."""
    path = HERE / f"answers_{number}" / f"{name}.py"
    return answers(path.read_text(encoding="utf-8"), load(lesson_source(number)))


def answers(text: str, lesson: Lesson) -> dict[str, str]:
    """Return the source of each exercise's cell that the submission fills in."""
    base = re.match(r"# base: (\w+)\n", text)
    assert base and base[1] in ("solution", "student"), "the first line says '# base: solution' or '# base: student'"
    found = {}
    if base[1] == "solution":
        found = {cell.exercise: _answer(cell, lesson) for cell in lesson.cells if cell.role in TASKS}
    for head, body in re.findall(r"^# %% ([a-z]\w*)\n(.*?)(?=^# %% |\Z)", text, re.M | re.S):
        found[head] = body.strip("\n")
    return {number: source for number, source in found.items() if number is not None}


def _answer(cell: Cell, lesson: Lesson) -> str:
    """Return an exercise's cell with its answer; of a question, the one that the class's key says, or labkit's."""
    asked = read_answer(cell.source) if cell.role in ("find", "why") else None
    if asked is None:
        return without_markers(cell.source)
    places = (ROOT / "solutions" / "hidden", ROOT / "labkit" / "exercises")
    keys = (place / lesson.slug / asked.exercise / KEY for place in places)
    return asked.source(read_key(next(key for key in keys if key.exists())).answers)


def _notebook(student: dict[str, Any], given: dict[str, str]) -> bytes:
    """Return a submission: the cells that grading reads, with these answers in place of the stubs."""
    cells = []
    for cell in student["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or not set(tags) & set(KEPT):
            continue
        number = cell["metadata"].get("labkit", {}).get("exercise")
        if not TASKS.keys().isdisjoint(tags) and number in given:
            cell = {**cell, "source": given[number].splitlines(keepends=True)}
        cells.append(cell)
    # The hash of the lesson's source would change with every word of its prose; grading does not read it here.
    metadata = {key: value for key, value in student["metadata"].items() if key != "labkit"}
    return (json.dumps({**student, "cells": cells, "metadata": metadata}, indent=1, ensure_ascii=False) + "\n").encode()


def _unreadable(name: str, whole: bytes) -> bytes:
    return {
        "truncated": whole[: len(whole) // 2],
        "not_a_notebook": b"%PDF-1.4\nLesson 2, my answers, printed to a file by mistake.\n",
        "empty_file": b"",
    }[name]


def lost(number: str) -> dict[str, frozenset[str] | None]:
    """Return the exercises whose points each submission loses, None for a file that cannot be read.

    Raises:
        AssertionError: If a submission's second line names an exercise that it does not fill.
    """
    lesson = load(lesson_source(number))
    result: dict[str, frozenset[str] | None] = {}
    for path in sorted((HERE / f"answers_{number}").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        filled = answers(text, lesson).keys()
        said = re.match(r"# base: \w+\n# loses: (.+)\n", text)
        named = frozenset(said[1].split(", ")) if said else frozenset()
        assert named <= filled, f"{path.name}: loses {', '.join(sorted(named - filled))}, which it does not fill"
        result[path.stem] = named | {exercise.id for exercise in lesson.exercises if exercise.id not in filled}
    return result | dict.fromkeys(UNREADABLE.get(number, ()))


def graded_points(lesson: Lesson) -> dict[str, int]:
    """Return what grading can give for each exercise: nothing for sentences, which a person reads."""
    return {each.id: 0 if each.kind == "write" else each.points for each in lesson.exercises}


def _scores(lesson: Lesson, lost_by: dict[str, frozenset[str] | None]) -> dict[str, Any]:
    """Return what each submission must get: its score, whether it can be read, and the points of each exercise."""
    points = graded_points(lesson)
    result = {}
    for name, lost in lost_by.items():
        got = {number: 0 if lost is None or number in lost else value for number, value in points.items()}
        result[name] = {"score": sum(got.values()), "readable": lost is not None, "exercises": got}
    return result


if __name__ == "__main__":
    main()
