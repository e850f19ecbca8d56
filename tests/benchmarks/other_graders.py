"""nbgrader and otter-grader on an assignment equal to ours: one function to write, visible and hidden tests of it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GIVEN = "import torch\n"
STUB = "def double(x):\n    raise NotImplementedError\n"
ANSWER = "def double(x):\n    return x + x\n"
VISIBLE, HIDDEN = "double(3) == 6", "double(123457) == 246914"
POINTS = 2


def code(source: str, cell_id: str, **metadata: Any) -> dict[str, Any]:
    """Return a code cell."""
    return {
        "cell_type": "code", "id": cell_id, "metadata": metadata, "source": source, "execution_count": None,
        "outputs": [],
    }  # fmt: skip


def raw(source: str, cell_id: str) -> dict[str, Any]:
    """Return a raw cell, which otter's marks are."""
    return {"cell_type": "raw", "id": cell_id, "metadata": {}, "source": source}


def notebook(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a notebook of these cells."""
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec}, "cells": cells}


def run_in(folder: Path, command: list[str], timeout: float, around: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a grader's command, with the programs beside its interpreter on the path; `around` is put before it."""
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ["PATH"]])
    return subprocess.run(
        [*around, *command], cwd=folder, capture_output=True, text=True, timeout=timeout,
        env=os.environ | {"PATH": path}, start_new_session=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


class Nbgrader:
    """A course with one assignment.

    Args:
        folder: Where it is made; must not exist.
        given: The first cell.
        python: The interpreter nbgrader is installed for.
        seconds: What a cell may take.
    """

    name = "nbgrader"

    def __init__(self, folder: Path, given: str = GIVEN, python: str = sys.executable, seconds: float = 30) -> None:
        self.folder, self._python = folder, python
        self.around: list[str] = []
        source = folder / "source" / "ps1"
        source.mkdir(parents=True)
        settings = (
            "c = get_config()\nc.CourseDirectory.course_id = 'course'\n"
            f"c.Execute.timeout = {seconds:g}\nc.ExecutePreprocessor.timeout = {seconds:g}\n"
        )
        (folder / "nbgrader_config.py").write_text(settings)
        common = {"schema_version": 3, "task": False}
        answer = {**common, "grade": False, "solution": True, "locked": False, "grade_id": "answer"}
        tests = {**common, "grade": True, "solution": False, "locked": True, "grade_id": "tests", "points": POINTS}
        hidden = f"### BEGIN HIDDEN TESTS\nassert {HIDDEN}\n### END HIDDEN TESTS\n"
        cells = [
            code(given, "given"),
            code(f"### BEGIN SOLUTION\n{ANSWER}### END SOLUTION\n", "answer", nbgrader=answer),
            code(f"assert {VISIBLE}\n{hidden}", "tests", nbgrader=tests),
        ]
        (source / "p.ipynb").write_text(json.dumps(notebook(cells)))
        made = self.run("generate_assignment", "ps1")
        released = folder / "release" / "ps1" / "p.ipynb"
        if not released.is_file():
            raise RuntimeError(f"nbgrader made no assignment: {made.stdout[-500:]}{made.stderr[-500:]}")
        self._released = json.loads(released.read_text())

    def run(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run one of nbgrader's commands and return how it ended."""
        command = [self._python, "-m", "nbgrader", *arguments]
        return run_in(self.folder, command, timeout, self.around)

    def submit(self, student: str, answer: str = ANSWER) -> None:
        """Hand in an answer."""
        content = json.loads(json.dumps(self._released))
        content["cells"][1]["source"] = answer
        path = self.folder / "submitted" / student / "ps1" / "p.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))

    def grade(self, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Grade whoever has handed in and is not graded."""
        return self.run("autograde", "ps1", timeout=timeout)

    def scores(self) -> Mapping[str, float]:
        """Return the score of each student who has one."""
        self.run("export")
        path = self.folder / "grades.csv"
        if not path.is_file():
            return {}
        with open(path, newline="") as file:
            return {row["student_id"]: float(row["score"] or 0) for row in csv.DictReader(file)}


class Otter:
    """An assignment of otter-grader, graded without a container, as its `otter run` does.

    Args:
        folder: Where it is made; must not exist.
        given: The first cell.
        python: The interpreter otter is installed for.
    """

    name = "otter"

    def __init__(self, folder: Path, given: str = GIVEN, python: str = sys.executable) -> None:
        self.folder, self._python = folder, python
        self.around: list[str] = []
        folder.mkdir(parents=True)
        hidden = f'""" # BEGIN TEST CONFIG\nhidden: true\n""" # END TEST CONFIG\nassert {HIDDEN}'
        answer = "def double(x):\n    # BEGIN SOLUTION\n    return x + x\n    # END SOLUTION\n"
        cells = [
            raw("# ASSIGNMENT CONFIG\nenvironment: false\nrequirements: []\nexport_cell: false", "config"),
            code(given, "given"),
            raw(f"# BEGIN QUESTION\nname: q1\npoints: {POINTS}", "b-question"),
            raw("# BEGIN SOLUTION", "b-solution"),
            code(answer, "answer"),
            raw("# END SOLUTION", "e-solution"),
            raw("# BEGIN TESTS", "b-tests"),
            code(f"assert {VISIBLE}", "visible"),
            code(hidden, "hidden"),
            raw("# END TESTS", "e-tests"),
            raw("# END QUESTION", "e-question"),
        ]
        (folder / "p.ipynb").write_text(json.dumps(notebook(cells)))
        made = self.run("assign", "--no-run-tests", "--no-pdfs", "p.ipynb", "dist")
        found = sorted((folder / "dist" / "autograder").glob("*.zip"))
        if not found:
            raise RuntimeError(f"otter assign made no autograder: {made.stdout[-500:]}{made.stderr[-500:]}")
        self._zip = found[0]
        self._released = json.loads((folder / "dist" / "student" / "p.ipynb").read_text())
        self._graded: dict[str, float] = {}

    def run(self, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run one of otter's commands and return how it ended."""
        command = [self._python, "-m", "otter", *arguments]
        return run_in(self.folder, command, timeout, self.around)

    def submit(self, student: str, answer: str = ANSWER) -> None:
        """Hand in an answer."""
        content = json.loads(json.dumps(self._released))
        for cell in content["cells"]:
            if "".join(cell["source"]).startswith("def double"):
                cell["source"] = answer
        (self.folder / f"{student}.ipynb").write_text(json.dumps(content))

    def grade_one(self, student: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Grade one submission."""
        out = self.folder / "out" / student
        out.mkdir(parents=True)
        arguments = ("run", "--no-logo", "-a", str(self._zip), "-o", str(out), f"{student}.ipynb")
        ended = self.run(*arguments, timeout=timeout)
        path = out / "results.json"
        if path.is_file():
            tests = json.loads(path.read_text())["tests"]
            self._graded[student] = sum(float(test.get("score", 0)) for test in tests)
        return ended

    def scores(self) -> Mapping[str, float]:
        """Return the score of each student who has one."""
        return self._graded
