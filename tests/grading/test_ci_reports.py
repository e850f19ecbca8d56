"""Grading in CI: what GitHub is told, and that the ready workflows hold commands that work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from grading.small_lesson import RIGHT, write_submission
from labkit.grading.course import Course
from labkit.grading.reports.class_report import ClassReport
from labkit.grading.reports.github import failure_commands, job_summary
from labkit.grading.reports.results import GradedExercise, GradedSubmission
from labkit.grading.sandbox import bubblewrap

ROOT = Path(__file__).parents[2]
SANDBOX = "none" if bubblewrap.problem() else "bubblewrap"


def result(name: str, *states: str, said: str = "Tried: 2 ranks\nCame back: no", problem: str = "") -> GradedSubmission:
    exercises = (
        GradedExercise(f"task_{at}", 4.0 if state == "passed" else 0.0, 4.0, state, f"Task {at}", said, "", f"1.{at}")
        for at, state in enumerate(states, 1)
    )
    return GradedSubmission(name, "01_x", "s", "c", tuple(exercises), problem)


def report(*results: GradedSubmission, **paths: Path) -> ClassReport:
    return ClassReport(results, (), 1.0, Path("out"), paths)


def test_an_annotation_stands_at_the_cell_and_cannot_become_another_command(tmp_path: Path) -> None:
    path = write_submission(tmp_path / "work" / "a,b:c.ipynb", {})
    path.write_text('{\n "cells": [\n  {\n   "id": "exercise-task-2",\n   "source": []\n  }\n ]\n}\n')
    hostile = "Came back: 50%\n::set-env name=X::y\r\n::error::z"
    [line] = failure_commands(report(result("a", "passed", "failed", said=hostile), a=path), tmp_path / "work")
    assert line.startswith("::error file=a%2Cb%3Ac.ipynb,line=4,title=1.2 Task 2::Came back: 50%25%0A::set-env")
    assert "\n" not in line and "\r" not in line


def test_github_shows_ten_annotations_so_the_tenth_says_how_many_more_there_are(tmp_path: Path) -> None:
    many = failure_commands(report(result("a", *["failed"] * 14)), tmp_path)
    assert len(many) == 10 and "5 more exercises fail" in many[-1]
    assert len(failure_commands(report(result("a", *["failed"] * 10)), tmp_path)) == 10


def test_the_summary_holds_every_exercise_and_no_markup_of_a_students(tmp_path: Path) -> None:
    said = "Came back: </pre><img src=x> | ![x](y) ``` <script>"
    text = job_summary(report(result("a", "passed", "failed", "not_done", said=said)))
    assert "4 of 12 points" in text and "| ✅ works | 1.1 Task 1 | 4 of 4 |" in text and "⬜ not started" in text
    assert "<img" not in text and "<script" not in text and "&lt;/pre&gt;" in text
    odd = job_summary(report(result("x|y [z](w)\n# h", "passed"), result("b", problem="No <file> | here.")))
    assert "2 submissions" in odd and "x&#124;y &#91;z&#93;(w) &#35; h" in odd and "&lt;file&gt; &#124; here." in odd
    assert len(job_summary(report(*(result(f"s{n}", "failed") for n in range(40_000)))).encode()) < 1 << 20


# ---- the ready workflows


def github_steps() -> tuple[dict[str, Any], dict[str, str]]:
    workflow = yaml.safe_load((ROOT / "templates" / "github_classroom.yml").read_text())
    steps = workflow["jobs"]["grade"]["steps"]
    assert {step["uses"].split("@")[0] for step in steps if "uses" in step} == {
        "actions/checkout", "actions/setup-python", "actions/upload-artifact",
    }  # fmt: skip
    return workflow, {step["name"]: step["run"] for step in steps if "run" in step}


@pytest.fixture(scope="module")
def workspace(course: Course, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student's repository, checked out, with the course fetched beside it and labkit installed in that."""
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "course").symlink_to(course.root)
    (course.root / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    labkit = course.root / ".venv" / "bin" / "labkit"
    labkit.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from labkit.cli import main; main()" "$@"\n')
    labkit.chmod(0o755)
    write_submission(folder / "notebooks" / "90_small.ipynb", {"double": RIGHT["double"], "total": RIGHT["shift"]})
    return folder


def run(script: str, workspace: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=workspace, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


SMALL = {"LESSON": "90", "NOTEBOOK": "notebooks/90_small.ipynb"}


def test_the_github_workflow_grades_annotates_and_fails_under_its_bar(workspace: Path, tmp_path: Path) -> None:
    workflow, steps = github_steps()
    assert workflow[True] == ["push", "workflow_dispatch"]  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    if SANDBOX == "none":
        steps["Grade"] += " --sandbox none"
    summary = tmp_path / "summary.md"
    environment = {**workflow["env"], **SMALL, "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace)}
    done = run(steps["Grade"], workspace, {**environment, "GITHUB_STEP_SUMMARY": str(summary)})
    assert done.returncode == 1 and "labkit: below 50 %: notebooks" in done.stderr, done.stderr
    stop, resume = re.findall(r"^::(?:stop-commands::)?([0-9a-f]{32})(?:::)?$", done.stdout, re.MULTILINE)
    assert stop == resume
    [line] = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert line.startswith("::error file=notebooks/90_small.ipynb,line=") and "title=90.3 Total::Tried: " in line
    assert "2 of 10 points" in summary.read_text() and "<details><summary>90.3 Total" in summary.read_text()
    passing = run(steps["Grade"], workspace, {**environment, "FAIL_UNDER": "20"})
    assert passing.returncode == 0 and "1 of 1 are graded already" in passing.stderr


def test_the_other_steps_of_the_workflow_are_commands_that_exist(workspace: Path, tmp_path: Path) -> None:
    _, steps = github_steps()
    assert set(steps) == {"Allow a sandbox", "Install", "Grade"}
    (tmp_path / "sudo").write_text('#!/bin/sh\necho "$@" >> "$CALLED"\n')
    (tmp_path / "sudo").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLED": str(tmp_path / "called")}
    assert run(steps["Allow a sandbox"], workspace, environment).returncode == 0
    assert len((tmp_path / "called").read_text().splitlines()) == 3
    makes = steps["Install"].replace("--directory course", f"--dry-run --directory {ROOT}")
    assert run(makes, workspace, {}).returncode == 0


@pytest.mark.long
def test_the_gitlab_job_grades_and_its_junit_files_are_where_it_says(workspace: Path) -> None:
    job = yaml.safe_load((ROOT / "templates" / "gitlab_ci.yml").read_text())
    assert [word for line in job["grade"]["before_script"] for word in line.split()].count("install") == 1
    [command] = job["grade"]["script"]
    out = workspace / "gitlab"
    out.mkdir()
    (out / "notebooks").symlink_to(workspace / "notebooks")
    (out / "course").symlink_to(workspace / "course")
    done = run(
        command, out, {**job["variables"], **SMALL, "SANDBOX": SANDBOX, "FAIL_UNDER": "20", "GITHUB_ACTIONS": ""}
    )
    assert done.returncode == 0, done.stderr
    assert "::" not in done.stdout
    assert len(list(out.glob(job["grade"]["artifacts"]["reports"]["junit"]))) == 1


def test_the_templates_name_a_lesson_that_is_there() -> None:
    for settings in (
        github_steps()[0]["env"],
        yaml.safe_load((ROOT / "templates" / "gitlab_ci.yml").read_text())["variables"],
    ):
        assert (ROOT / settings["NOTEBOOK"]).is_file() and settings["NOTEBOOK"].startswith(
            f"notebooks/{settings['LESSON']}_"
        )
