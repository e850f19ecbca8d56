"""Grading beside nbgrader and otter-grader on an equal tiny assignment; how much of lesson 02 is not the student's.

The assignment is one function, with a visible and hidden tests; the same notebook for all, once with ``import torch``,
as a lesson's notebook has it, and once without. Ours runs in a sandbox, theirs in none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmarks import other_graders
from tests.benchmarks.table import Bar, ratio, table

ROOT = Path(__file__).parents[2]
FURTHER = {"labkit": 12, "nbgrader": 3}
"""How many more are graded in one go: as many as take seconds, for their time is a difference of two."""
KINDS = {"torch": "import torch\n", "plain": "import math\n"}


class Ours:
    """A course with one exercise, in the tests' small course, graded by `labkit grade`.

    Args:
        folder: Where it is made; must not exist.
        given: The notebook's first cell.
    """

    name = "labkit"

    def __init__(self, folder: Path, given: str) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        from grading.small_lesson import notebook, write_course

        self.folder = folder
        write_course(folder / "course")
        content = notebook()
        manifest = content["metadata"]["labkit"]
        manifest["exercises"] = manifest["exercises"][:1]
        keep = ("intro", "given-1-imports", "exercise-double", "check-double")
        content["cells"] = [cell for cell in content["cells"] if cell["id"] in keep]
        content["cells"][1]["source"] = given
        content["cells"][3]["source"] = f"assert {other_graders.VISIBLE}"
        (folder / "course" / "notebooks" / "90_small.ipynb").write_text(json.dumps(content))
        self._content = content

    def submit(self, student: str) -> None:
        """Hand in the right answer."""
        self._content["cells"][2]["source"] = other_graders.ANSWER
        path = self.folder / "in" / f"{student}.ipynb"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(self._content))

    def grade(self, sandbox: str = "bubblewrap") -> subprocess.CompletedProcess[str]:
        """Grade whoever has handed in and is not graded."""
        arguments = [str(self.folder / "in"), "--lesson", "90", "--course", str(self.folder / "course"), "--jobs", "1"]
        arguments += ["--out", str(self.folder / "out"), "--sandbox", sandbox]
        program = "import sys; from labkit.cli import main; sys.argv[1:1] = ['grade']; main()"
        return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=600)

    def scores(self) -> dict[str, float]:
        """Return each student's score."""
        paths = (self.folder / "out").glob("*/result.json")
        return {path.parent.name: float(json.loads(path.read_text())["score"]) for path in paths}


def run(quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table, the bars and the figures."""
    with tempfile.TemporaryDirectory(prefix="lk-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        seconds = {kind: _measure(folder / kind, given, 1 if quick else 3) for kind, given in KINDS.items()}
        share = _lesson_02(folder / "02")
    rows = []
    for kind, found in seconds.items():
        for grader, (first, further) in found.items():
            rows.append(
                [f"{grader}, {'import torch' if kind == 'torch' else 'no torch'}", _text(first), _text(further)]
            )
    bars = []
    for kind, found in seconds.items():
        best = [
            min((each[i] for name, each in found.items() if name != "labkit" and each[i]), default=None) for i in (0, 1)
        ]
        what = "with import torch" if kind == "torch" else "without torch"
        bars.append(
            Bar(
                f"one submission {what}, cold, at most 0.6x the faster of the others",
                ratio(found["labkit"][0], best[0]),
                0.6,
            )
        )
        bars.append(
            Bar(
                f"one more submission {what}, at most 0.15x the faster of the others",
                ratio(found["labkit"][1], best[1]),
                0.15,
            )
        )
    text = table(["seconds", "one, cold", "a further one"], rows)
    for what, spent in share.items():
        text += (
            f"\n  lesson 02, one submission, {what}: {spent['seconds']:.1f} s, of which {spent['own_seconds']:.1f} s "
            f"in the student's code: {100 * spent['not_own_share']:.0f} % is not the student's own code"
        )
    return text, bars, {"seconds": seconds, "lesson_02": share}


def _text(seconds: float | None) -> str:
    return "not measured" if seconds is None else f"{seconds:.2f}"


def _measure(folder: Path, given: str, repeats: int) -> dict[str, tuple[float | None, float | None]]:
    """Return for each grader the seconds of one submission, cold, and of each further one.

    Of `repeats` the best of one and the best of many count, and further ones are their difference: two sittings that a
    busy machine slowed unequally are not taken from each other. The slowest, otter, is looked at once: no bar rests on
    it.
    """
    makers: dict[str, Callable[[Path], Any]] = {
        "labkit": lambda path: Ours(path, given),
        "nbgrader": lambda path: other_graders.Nbgrader(path, given),
        "otter": lambda path: other_graders.Otter(path, given),
    }
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in makers}
    problems: dict[str, str] = {}
    for repeat in range(repeats):
        for name, make in makers.items():
            if name in problems or (name == "otter" and repeat):
                continue
            try:
                first, many = _once(make(folder / f"{name}{repeat}"))
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                problems[name] = str(error)
                sys.stderr.write(f"{name}: {error}\n")
                continue
            found[name][0].append(first)
            found[name][1].append(many)
            shutil.rmtree(folder / f"{name}{repeat}")
    return {name: _best(name, first, many) for name, (first, many) in found.items()}


def _best(name: str, first: list[float], many: list[float]) -> tuple[float | None, float | None]:
    if not first:
        return None, None
    one = min(first)
    return one, one if name == "otter" else (min(many) - one) / FURTHER[name]


def _once(grader: Any) -> tuple[float, float]:
    """Return the seconds of one submission, and of one more than `FURTHER` in one go."""
    names = [f"student{number}" for number in range(FURTHER.get(grader.name, 0) + 2)]
    if isinstance(grader, other_graders.Otter):  # a process for each submission; nothing is shared between two
        grader.submit(names[0])
        one = _timed(lambda: grader.grade_one(names[0]))
        _require(grader, names[:1])
        return one, one
    grader.submit(names[0])
    one = _timed(grader.grade)
    for name in names[1:]:
        grader.submit(name)
    many = _timed(grader.grade)
    _require(grader, names)
    return one, many


def _timed(work: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    begin = time.perf_counter()
    ended = work()
    seconds = time.perf_counter() - begin
    if ended.returncode:
        raise RuntimeError(f"status {ended.returncode}: {ended.stdout[-400:]}{ended.stderr[-400:]}")
    return seconds


def _require(grader: Any, names: list[str]) -> None:
    scores = grader.scores()
    if {name: scores.get(name) for name in names} != dict.fromkeys(names, float(other_graders.POINTS)):
        raise RuntimeError(f"{grader.name} scored {scores}")


def _lesson_02(folder: Path) -> dict[str, dict[str, float]]:
    """Return what of grading an answer to lesson 02 is the student's own code, for a worker that has graded before.

    The student's own is what the notebook's cells take, or what the functions take in the ranks of hidden cases,
    whichever is more, for the two run beside each other. All else is not: starting and ending kernel and ranks, their
    sandboxes, handing cells over, making cases, judging, reports.
    """
    from labkit.grading.course import find_course
    from labkit.grading.hidden_cases.probe import CaseRun
    from labkit.grading.limits import Limits
    from labkit.grading.notebook.execute import NotebookReader
    from labkit.grading.setting import Setting
    from labkit.grading.student import Grader
    from labkit.grading.submission import Submission
    from tests.submissions.making import everything

    own: dict[str, float] = {"cells": 0.0, "cases": 0.0}
    run_notebook, run_case = NotebookReader.run, CaseRun.run

    def timed_notebook(self: NotebookReader, *args: Any) -> Any:
        found = run_notebook(self, *args)
        own["cells"] += found.cells_seconds
        return found

    def timed_case(self: CaseRun) -> Any:
        outcome = run_case(self)
        own["cases"] += outcome.claimed_seconds
        return outcome

    folder.mkdir(parents=True)
    (folder / "alone").touch()
    right = folder / "right_as_taught.ipynb"
    right.write_bytes(everything("02")[right.name])
    submission = Submission("right", right)
    grader = Grader(
        Setting(find_course("02", ROOT), folder / "out", bytes(32), Limits(), folder / "alone", points_only=True)
    )
    NotebookReader.run, CaseRun.run = timed_notebook, timed_case  # type: ignore[method-assign]
    found = {}
    try:
        grader.grade(submission, lambda stage: None)
        for what in ("--points-only", "with its notebook"):
            grader.setting = replace(grader.setting, points_only=what == "--points-only")
            own |= dict.fromkeys(own, 0.0)
            begin = time.perf_counter()
            result = grader.grade(submission, lambda stage: None)
            seconds = time.perf_counter() - begin
            mine = max(own.values())
            found[what] = {
                "seconds": seconds,
                "cells_seconds": own["cells"],
                "cases_seconds": own["cases"],
                "own_seconds": mine,
                "not_own_share": 1 - mine / seconds,
                "score": result.score,
            }
    finally:
        NotebookReader.run, CaseRun.run = run_notebook, run_case  # type: ignore[method-assign]
        grader.close()
    return found
