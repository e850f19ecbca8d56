"""docs/instructors.md: its commands run as they stand and say what it says they say."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labkit.cli import app
from labkit.grading.course import find_course
from labkit.grading.reports.class_report import class_csv
from labkit.grading.reports.results import read_result
from labkit.grading.reports.student_report import as_json, details, result_json
from labkit.grading.sandbox import bubblewrap
from labkit.grading.score import ExerciseResult, StudentResult
from tests.submissions.making import everything, write

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "instructors.md"


@dataclass(frozen=True)
class Step:
    """A command of the guide, and the lines it shows below it; "..." stands for anything."""

    command: str
    shown: tuple[str, ...]


def steps() -> list[Step]:
    found = []
    for block in re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        for piece in re.split(r"(?m)^\$ ", block)[1:]:
            command, *shown = piece.strip().split("\n")
            found.append(Step(command, tuple(shown)))
    return found


def shows(step: Step, said: str) -> None:
    """Hold what a command says to the lines that the guide shows below it."""
    for line in step.shown:
        assert fnmatch.filter(said.splitlines(), line.replace("[", "[[]").replace("...", "*")), (step, said)


def run_all(listed: list[Step], folder: Path) -> None:
    """Run commands in one shell's order, `labkit` and `python` on the path, and hold what they say to the guide."""
    programs = folder / "programs"
    programs.mkdir()
    for name, arguments in (("labkit", '-c "from labkit.cli import main; main()"'), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GITHUB_ACTIONS": "", "COLUMNS": "300"}
    for step in listed:
        if step.command.startswith("export "):
            name, _, value = step.command.removeprefix("export ").partition("=")
            environment[name] = value
            continue
        done = subprocess.run(
            ["bash", "-c", step.command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{step.command}\n{done.stdout}{done.stderr}"
        shows(step, done.stdout + done.stderr)


def test_the_guide_has_every_command_of_grading() -> None:
    commands = " ".join(step.command for step in steps())
    for word in (
        "doctor", "release", "grade", "gradebook record", "gradebook deadline", "gradebook show", "gradebook adjust",
        "gradebook history", "gradebook export", "--canvas", "--moodle", "--gradescope", "export-nbgrader",
    ):  # fmt: skip
        assert f"labkit {word}" in commands or (word.startswith("--") and word in commands), word
    assert len(steps()) > 20
    for path in re.findall(r"`(templates/[\w.]+)`", GUIDE.read_text()):
        assert (ROOT / path).is_file(), path


class Parsed(Exception):
    """A command was understood, with all its options, and not carried out."""


def understood(*_: object) -> object:
    raise Parsed


def leave_what_grading_leaves(folder: Path, made_from: dict[str, str]) -> None:
    """Write what `labkit grade` writes of submissions whose points are known, into the folder the guide names."""
    worth = json.loads(everything("02")["scores.json"])
    told = find_course("02", folder).manifest
    entries = []
    for name, kind in made_from.items():
        earned = worth[kind]["exercises"]
        results = tuple(
            ExerciseResult(each, "passed" if earned[each.id] else "failed", (), len(each.id)) for each in told.exercises
        )
        data = (folder / "build" / "submissions" / f"{name}.ipynb").read_bytes()
        result = StudentResult(name, "", results, submission_hash=hashlib.sha256(data).hexdigest(), course_hash="c")
        out = folder / "build" / "grades" / name
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_bytes(as_json(result_json(result, told.lesson)))
        (out / "details.json").write_bytes(as_json(details(result)))
        for each in ("feedback.html", "junit.xml"):
            (out / each).write_text("<p></p>")
        entries.append(read_result(out / "result.json"))
    (folder / "build" / "grades" / "gradebook.csv").write_bytes(class_csv(entries, told))


@pytest.mark.in_turn
def test_the_guides_commands_say_what_it_shows_once_a_class_is_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that follows grading runs, in this process; what takes a sandbox or minutes is understood, and no more."""
    for name in ("notebooks", "solutions"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labkit.commands.teaching.load", understood)
    ran, made_from = 0, {}
    for step in steps():
        program, *arguments = shlex.split(step.command)
        if program == "export":
            monkeypatch.setenv(*arguments[0].split("=", 1))
        elif program == "python":
            write("02", tmp_path / "build" / "made" / "02")
        elif program != "labkit":
            done = subprocess.run(["bash", "-c", step.command], capture_output=True, text=True, timeout=60, check=True)
            shows(step, done.stdout)
            if program == "cp":
                made_from[Path(arguments[1]).stem] = Path(arguments[0]).stem
        elif arguments[0] != "doctor":
            asked = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
            if isinstance(asked.exception, Parsed):
                if arguments[:2] == ["grade", "build/submissions"]:
                    leave_what_grading_leaves(tmp_path, made_from)
                continue
            assert asked.exit_code == 0, (step, asked.output, asked.exception)
            shows(step, asked.output)
            ran += 1
    assert ran > 20 and len(made_from) == 4
    assert "2026-12-02T18:20+01:00" in (tmp_path / "build" / "marks.csv").read_text()  # in the class's zone
    filled = (tmp_path / "build" / "for_canvas.csv").read_text()
    assert re.search(r'"Lovelace, Ada",12345,s1,ada@example.org,A,97.2\n', filled), filled
    assert zipfile.ZipFile("build/pages_for_canvas.zip").namelist() == [
        f"{name}.html" for name in sorted(made_from) if not name.endswith("67892_02_ring_all_reduce")
    ]


@pytest.mark.long
@pytest.mark.skipif(bool(bubblewrap.problem()), reason="the guide grades in a sandbox: see labkit doctor")
def test_the_guides_commands_run_as_they_stand_in_a_fresh_clone(tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "labkit")], check=True, timeout=120)
    run_all(steps(), tmp_path / "labkit")
