"""docs/instructors.md: its commands run as they stand and say what it says they say."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from grading.small_lesson import RIGHT, write_submission
from labkit.grading.course import Course
from labkit.grading.sandbox import bubblewrap

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
        said = (done.stdout + done.stderr).splitlines()
        for line in step.shown:
            assert fnmatch.filter(said, line.replace("[", "[[]").replace("...", "*")), (step, said)


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


@pytest.mark.skipif(bool(bubblewrap.problem()), reason="the guide grades in a sandbox: see labkit doctor")
def test_the_guides_main_commands_work_on_a_small_lesson(course: Course, tmp_path: Path) -> None:
    """From release to marks; the long test below runs every command, on the real lesson."""
    folder = tmp_path / "course"
    shutil.copytree(course.root, folder)
    submissions = folder / "build" / "made" / "90"
    write_submission(submissions / "right_as_taught.ipynb", RIGHT)
    write_submission(submissions / "wrong_modulo.ipynb", {"double": RIGHT["double"]})
    write_submission(submissions / "blocking_sends_everywhere.ipynb", {**RIGHT, "shift": RIGHT["double"]})
    listed = []
    for step in steps():
        if not re.search(
            r"doctor|making|nbgrader|--again|--exercise|history|--student|canvas|moodle|gradescope", step.command
        ):
            command = re.sub(r"(--lesson |made/)02\b", r"\g<1>90", step.command).replace("ring_sum", "shift")
            listed.append(Step(command, step.shown if step.command.startswith("labkit gradebook export") else ()))
    run_all(listed, folder)
    assert (folder / "build" / "grades" / "class.html").is_file()
    assert (folder / "build" / "marks.csv").read_text().splitlines()[1].startswith("Ada L.,10,10")


@pytest.mark.long
@pytest.mark.skipif(bool(bubblewrap.problem()), reason="the guide grades in a sandbox: see labkit doctor")
def test_the_guides_commands_run_as_they_stand_in_a_fresh_clone(tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "labkit")], check=True, timeout=120)
    run_all(steps(), tmp_path / "labkit")
