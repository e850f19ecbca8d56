"""The ready workflows, run as GitHub and GitLab run them: their own shell lines, in the order and folders of there.

What needs an administrator, a network or minutes (sudo, apt-get, git clone over https, make setup) is a stand-in that
leaves behind what it would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from labkit.grading.sandbox import bubblewrap

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "templates"
SMALL = {"LESSON": "90", "NOTEBOOK": "notebooks/90_small.ipynb"}
_LABKIT = Path(sys.executable).parent / "labkit"
_STAND_INS = {
    "sudo": 'echo "sudo $*" >> "$CALLED"',
    "apt-get": 'echo "apt-get $*" >> "$CALLED"',
    "git": 'echo "git $*" >> "$CALLED"\nfor last; do :; done\ncp -r "$COURSE" "$last"\nmkdir "$last/.git"',
    # make --directory FOLDER setup ...
    "make": f'echo "make $*" >> "$CALLED"\nmkdir -p "$2/.venv/bin"\nln -s {_LABKIT} "$2/.venv/bin/labkit"',
}


@dataclass(frozen=True)
class Ended:
    """A job that has ended.

    Attributes:
        status: The exit status of the step or line that grades.
        stdout: What it printed.
        stderr: What it said on standard error.
        kept: The files that are uploaded, links followed, by their path.
        called: The commands that have stand-ins, as they were called.
        course: The course, as the job used it.
    """

    status: int
    stdout: str
    stderr: str
    kept: dict[str, bytes]
    called: list[str]
    course: Path


def on_github(repository: Path, course: Path, folder: Path, **variables: str) -> Ended:
    """Return what became of a push on GitHub: each step in its order, in the workspace.

    Args:
        repository: What the student pushed; a link stays a link.
        course: The instructor's repository.
        folder: An empty one, for the runner.
        **variables: Of the environment.
    """
    workflow = yaml.safe_load((TEMPLATES / "github_classroom.yml").read_text())
    workspace, temporary = folder / "work" / "homework" / "homework", folder / "work" / "_temp"
    for each in (workspace, temporary):
        each.mkdir(parents=True)
    own = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace), "RUNNER_TEMP": str(temporary)}
    environment = _environment(folder, course) | workflow["env"] | SMALL | own | variables
    done: dict[str, subprocess.CompletedProcess[str]] = {}
    for step in workflow["jobs"]["grade"]["steps"]:
        given = step.get("with", {})
        if step.get("uses", "").startswith("actions/checkout"):
            assert given["persist-credentials"] is False  # else the token lies in .git/config
            shutil.copytree(course if "repository" in given else repository, workspace / given["path"], symlinks=True)
        elif step.get("uses", "").startswith("actions/upload-artifact"):
            patterns = given["path"].replace("${{ runner.temp }}", str(temporary)).split()
            kept = {str(path): path.read_bytes() for each in patterns for path in _matching(each)}
        elif "run" in step:
            done[step["name"]] = _run(step["run"], workspace, environment)
            if done[step["name"]].returncode and step["name"] != "Grade":
                raise AssertionError(done[step["name"]].stderr)
    graded = done["Grade"]
    return Ended(graded.returncode, graded.stdout, graded.stderr, kept, _called(folder), temporary / "course")


def on_gitlab(repository: Path, course: Path, folder: Path, **variables: str) -> Ended:
    """Return what became of a push on GitLab: all lines in one shell, which starts in the student's project."""
    settings = yaml.safe_load((TEMPLATES / "gitlab_ci.yml").read_text())
    job: dict[str, Any] = settings["grade"]
    project, temporary = folder / "builds" / "homework", folder / "tmp"
    shutil.copytree(repository, project, symlinks=True)
    temporary.mkdir()
    own = {"CI_PROJECT_DIR": str(project), "TMPDIR": str(temporary), "CI_SERVER_HOST": "gitlab.example"}
    environment = _environment(folder, course) | settings["variables"] | SMALL | own | {"COURSE_TOKEN": "t0ken"}
    graded = _run("\n".join([*job["before_script"], *job["script"]]), project, environment | variables)
    paths = [*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]]
    found = {path for each in paths for path in _matching(str(project / each))}
    kept = {str(path): path.read_bytes() for path in found}
    [used] = temporary.glob("*/course")
    return Ended(graded.returncode, graded.stdout, graded.stderr, kept, _called(folder), used)


def _environment(folder: Path, course: Path) -> dict[str, str]:
    programs = folder / "programs"
    programs.mkdir()
    for name, text in _STAND_INS.items():
        (programs / name).write_text(f"#!/bin/sh\nset -e\n{text}\n")
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "LABKIT_"))}
    return kept | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "CALLED": str(folder / "called"),
        "COURSE": str(course),
        "PYTHONPATH": ":",  # where somebody's profile ends in $PYTHONPATH; it names the working folder
    }


def _run(script: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    if bubblewrap.problem():
        script = script.replace("--no-second-run", "--no-second-run --sandbox none")
    command = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)


def _called(folder: Path) -> list[str]:
    return (folder / "called").read_text().splitlines()


def _matching(pattern: str) -> Iterator[Path]:
    """Yield the files that an upload takes: what a pattern names, and all below it, links followed."""
    for path in Path("/").glob(pattern.lstrip("/")):
        for folder, _, names in os.walk(path, followlinks=True):
            yield from (Path(folder) / name for name in names)
        if path.is_file():
            yield path
