"""Write the submissions to lesson 05 that grading is tested with: ``python tests/submissions/make_05.py``.

Each file in answers_05/ is a submission: a docstring that says what it is, then cells headed ``# %% 5.8``. A first
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
ANSWERS = HERE / "answers_05"
SUBMISSIONS = HERE / "05"
KEPT = ("given", "exercise", "predict", "check", "parameters")

# What each submission must get: the exercises whose points it loses, or None where nothing can be read.
EVERYTHING = tuple(f"5.{number}" for number in range(1, 14))
LOST: dict[str, tuple[str, ...] | None] = {
    "right_as_taught": (),
    "right_in_other_words": (),
    "right_with_separate_calls": (),
    "untouched": EVERYTHING,
    "unfinished": ("5.6", "5.7", "5.8", "5.9", "5.10", "5.11", "5.12", "5.13"),
    "loss_not_scaled": ("5.8", "5.11"),
    "mean_of_microbatches": ("5.8", "5.11"),
    "gradients_overwritten": ("5.8", "5.11"),
    "gpipe_passed_off_as_1f1b": ("5.7", "5.13"),
    "one_blocking_message_at_a_time": ("5.8", "5.11"),
    "waits_for_the_whole_pipeline": ("5.8",),
    "calls_the_librarys_checkpoint": ("5.10",),
    "truncated": None,
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
    lesson = load(ROOT / "solutions" / "05_pipeline.py")
    student = json.loads((ROOT / "notebooks" / "05_pipeline.ipynb").read_text(encoding="utf-8"))
    files = {}
    for path in sorted(ANSWERS.glob("*.py")):
        files[f"{path.stem}.ipynb"] = _notebook(student, answers(path.read_text(encoding="utf-8"), lesson))
    whole = files["right_as_taught.ipynb"]
    files["truncated.ipynb"] = whole[: len(whole) // 2]
    files["scores.json"] = (json.dumps(scores(lesson), indent=1) + "\n").encode()
    return files


def answers(text: str, lesson: Lesson) -> dict[str, str]:
    """Return the source of each exercise's cell that the submission fills in."""
    base = re.match(r"# base: (\w+)\n", text)
    assert base and base[1] in ("solution", "student"), "the first line says '# base: solution' or '# base: student'"
    found = {}
    if base[1] == "solution":
        found = {cell.exercise: _without_markers(cell.source) for cell in lesson.cells if cell.role == "exercise"}
    for head, body in re.findall(r"^# %% (5\.\d+)\n(.*?)(?=^# %% |\Z)", text, re.M | re.S):
        found[head] = body.strip("\n")
    return {number: source for number, source in found.items() if number is not None}


def _without_markers(source: str) -> str:
    lines = [line for line in source.splitlines() if not re.match(r"\s*# (BEGIN|END) SOLUTION", line)]
    return "\n".join(lines)


def _notebook(student: dict[str, Any], given: dict[str, str]) -> bytes:
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
    notebook = {**student, "cells": cells, "metadata": metadata}
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def scores(lesson: Lesson) -> dict[str, Any]:
    """Return what each submission must get: its score, whether it can be read, and the points of each exercise."""
    points = {exercise.id: exercise.points for exercise in lesson.exercises}
    result = {}
    for name, lost in LOST.items():
        got = {number: 0 if lost is None or number in lost else value for number, value in points.items()}
        result[name] = {"score": sum(got.values()), "readable": lost is not None, "exercises": got}
    return result


if __name__ == "__main__":
    main()
