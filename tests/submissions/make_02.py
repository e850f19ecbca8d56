"""Write the submissions to lesson 02 that grading is tested with: ``python tests/submissions/make_02.py``.

Each file in answers_02/ is a submission: a docstring that says what it is, then cells headed ``# %% 2.6``. A first
line ``# base: solution`` fills the other exercises with the lesson's own answers, ``# base: student`` leaves them as
they are handed out. The notebooks hold the lesson's given, exercise, predict and check cells as the student notebook
has them, so they follow when the lesson changes; a test proves that what is committed is what this writes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from labkit.lessons.source import Lesson, load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ANSWERS = HERE / "answers_02"
SUBMISSIONS = HERE / "02"
KEPT = ("given", "exercise", "predict", "check", "parameters")

# What each submission must get: the exercises whose points it loses, or None where nothing can be read.
LOST: dict[str, tuple[str, ...] | None] = {
    "right_as_taught": (),
    "right_one_loop_per_collective": (),
    "right_in_few_lines": (),
    "unfinished": ("2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12"),
    "untouched": ("2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12"),
    "syntax_error": ("2.6",),
    "sends_what_it_just_received": ("2.4", "2.6", "2.7", "2.12"),
    "wrong_modulo": ("2.4", "2.6", "2.7", "2.12"),
    "forgets_the_last_gather_step": ("2.4", "2.6", "2.7", "2.12"),
    "blocking_sends_everywhere": ("2.6", "2.11"),
    "averages_and_divides_twice": ("2.6", "2.7"),
    "reuses_a_buffer_in_flight": ("2.6",),
    "needs_sizes_that_divide": ("2.3", "2.6", "2.7", "2.12"),
    "calls_the_library": ("2.1", "2.6", "2.7", "2.9", "2.10", "2.11", "2.12"),
    "world_of_four": ("2.6", "2.7"),
    "whole_tensor_each_step": ("2.6",),
    "never_ends": ("2.9",),
    "ends_the_process": ("2.10",),
    "truncated": None,
    "not_a_notebook": None,
    "empty_file": None,
}


def main() -> None:
    """Write every submission and scores.json."""
    SUBMISSIONS.mkdir(exist_ok=True)
    files = everything()
    for path in SUBMISSIONS.iterdir():
        if path.name not in files:
            path.unlink()
    for name, data in files.items():
        (SUBMISSIONS / name).write_bytes(data)
    sys.stdout.write(f"{len(files)} files in {SUBMISSIONS.name}/\n")


def everything() -> dict[str, bytes]:
    """Return the content of every file by name."""
    lesson = load(ROOT / "solutions" / "02_ring_all_reduce.py")
    student = json.loads((ROOT / "notebooks" / "02_ring_all_reduce.ipynb").read_text(encoding="utf-8"))
    files = {}
    for path in sorted(ANSWERS.glob("*.py")):
        files[f"{path.stem}.ipynb"] = notebook(student, answers(path.read_text(encoding="utf-8"), lesson))
    whole = files["right_as_taught.ipynb"]
    files["truncated.ipynb"] = whole[: len(whole) // 2]
    files["not_a_notebook.ipynb"] = b"%PDF-1.4\nLesson 2, my answers, printed to a file by mistake.\n"
    files["empty_file.ipynb"] = b""
    files["scores.json"] = (json.dumps(scores(lesson, LOST), indent=1) + "\n").encode()
    return files


def answers(text: str, lesson: Lesson) -> dict[str, str]:
    """Return the source of each exercise's cell that the submission fills in."""
    base = re.match(r"# base: (\w+)\n", text)
    assert base and base[1] in ("solution", "student"), "the first line says '# base: solution' or '# base: student'"
    found = {}
    if base[1] == "solution":
        found = {cell.exercise: _without_markers(cell.source) for cell in lesson.cells if cell.role == "exercise"}
    for head, body in re.findall(r"^# %% (\d+\.\d+)\n(.*?)(?=^# %% |\Z)", text, re.M | re.S):
        found[head] = body.strip("\n")
    return {number: source for number, source in found.items() if number is not None}


def _without_markers(source: str) -> str:
    lines = [line for line in source.splitlines() if not re.match(r"\s*# (BEGIN|END) SOLUTION", line)]
    return "\n".join(lines)


def notebook(student: dict[str, Any], given: dict[str, str]) -> bytes:
    """Return a submission: the cells that grading reads, with these answers in place of the stubs."""
    cells = []
    for cell in student["cells"]:
        tags = cell["metadata"].get("tags", [])
        if cell["cell_type"] != "code" or not set(tags) & set(KEPT):
            continue
        number = cell["metadata"].get("labkit", {}).get("exercise")
        if "exercise" in tags and number in given:
            cell = {**cell, "source": given[number].splitlines(keepends=True)}
        cells.append(cell)
    # The hash of the lesson's source would change with every word of its prose; grading does not read it here.
    metadata = {key: value for key, value in student["metadata"].items() if key != "labkit"}
    return (json.dumps({**student, "cells": cells, "metadata": metadata}, indent=1, ensure_ascii=False) + "\n").encode()


def scores(lesson: Lesson, lost_by: dict[str, tuple[str, ...] | None]) -> dict[str, Any]:
    """Return what each submission must get: its score, whether it can be read, and the points of each exercise."""
    points = {exercise.id: exercise.points for exercise in lesson.exercises}
    result = {}
    for name, lost in lost_by.items():
        got = {number: 0 if lost is None or number in lost else value for number, value in points.items()}
        result[name] = {"score": sum(got.values()), "readable": lost is not None, "exercises": got}
    return result


if __name__ == "__main__":
    main()
