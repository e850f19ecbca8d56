"""A graded and recorded class that wrote answers, in a course that holds the lesson's source; `labkit review` of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from labkit.grading.book.gradebook import Gradebook
from labkit.grading.reports.results import read_results
from labkit.grading.reports.student_report import result_json
from labkit.grading.score import ExerciseResult, StudentResult
from labkit.lessons.source import load

SOURCE = Path(__file__).parents[1] / "lessons" / "fixtures" / "05_kinds.py"
_LABKIT = (sys.executable, "-c", "from labkit.cli import main; main()")


def write_answers(folder: Path, wrote: Mapping[str, str]) -> Path:
    """Return what was --out of grading: `wrote` holds each student's answer."""
    lesson = load(SOURCE)
    exercise = lesson.manifest.exercise("mean_in_words")
    for name, text in wrote.items():
        result = StudentResult(name, "", (ExerciseResult(exercise, "to_read", written=text),), submission_hash=name * 8)
        (folder / "out" / name).mkdir(parents=True)
        (folder / "out" / name / "result.json").write_text(json.dumps(result_json(result, lesson.name)))
    for each in ("solutions", "notebooks"):
        (folder / "course" / each).mkdir(parents=True)
    asks = SOURCE.read_text(encoding="utf-8").replace("never adds its value", "never calls `all_reduce`")
    (folder / "course" / "solutions" / SOURCE.name).write_text(asks, encoding="utf-8")
    with closing(Gradebook(f"sqlite:///{folder / 'book.db'}")) as book:
        book.record(read_results(folder / "out"))
    return folder / "out"


@contextmanager
def served(out: Path) -> Iterator[str]:
    """Give the link of a real `labkit review` of what `write_answers` has written, read by kim."""
    home = out.parent
    command = [*_LABKIT, "review", str(out), "--by", "kim", "--book", str(home / "book.db")]
    process = subprocess.Popen(
        [*command, "--course", str(home / "course")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    said = process.stdout.readline()
    found = re.match(r"Review: (http://127\.0\.0\.1:\d+/r/[\w-]+)\n", said)
    if not found:
        process.kill()
        raise RuntimeError(said + process.communicate(timeout=60)[0])
    try:
        yield found[1]
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()
