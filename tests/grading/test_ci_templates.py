"""The workflows for GitHub Classroom and GitLab: they grade, and a student's repository steers nothing in them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from grading.ci_jobs import ROOT, TEMPLATES, Ended, on_github, on_gitlab
from grading.shadowing import write_shadows
from grading.small_lesson import RIGHT, write_submission
from labkit.grading.course import Course

Job = Callable[..., Ended]


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """A student's repository with one right answer and a wrong one."""
    folder = tmp_path / "pushed"
    write_submission(
        folder / "notebooks" / "90_small.ipynb", {"double": RIGHT["double"], "total": "def total(x):\n    return x\n"}
    )
    return folder


@pytest.fixture
def theirs(course: Course, tmp_path: Path) -> Path:
    """The instructor's repository: the course with a solution, which no student has seen."""
    folder = shutil.copytree(course.root, tmp_path / "labkit", symlinks=True)
    shutil.rmtree(folder / ".venv", ignore_errors=True)
    write_submission(folder / "solutions" / "90_small.ipynb", RIGHT)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_nothing_came_out(ended: Ended, course: Path) -> None:
    """The uploaded files are the student's three, and hold no line of hidden cases or of the solution."""
    assert {Path(name).name for name in ended.kept} <= {"feedback.html", "result.json", "junit.xml"}
    hidden = "\n".join(path.read_text() for path in (course / "exercises").rglob("hidden*.py"))
    secret = {line.strip() for line in f"{hidden}\n{RIGHT['total']}".splitlines()}
    told = "".join(data.decode() for data in ended.kept.values())
    assert not [line for line in secret if len(line) > 20 and line in told]
    used = {name: data for name, data in files(ended.course).items() if ".venv" not in Path(name).parts}
    assert used == files(course)


def assert_told_to_github(ended: Ended, summary: str) -> None:
    stop, resume = re.findall(r"^::(?:stop-commands::)?([0-9a-f]{32})(?:::)?$", ended.stdout, re.MULTILINE)
    assert stop == resume
    [line] = [line for line in ended.stdout.splitlines() if line.startswith("::error ")]
    assert line.startswith("::error file=notebooks/90_small.ipynb,line=") and "title=90.3 Total::Tried: " in line
    assert "2 of 10 points" in summary and "<details><summary>90.3 Total" in summary


@pytest.mark.in_turn
@pytest.mark.parametrize("job", [on_github, pytest.param(on_gitlab, marks=pytest.mark.long)])
def test_a_hostile_repository_is_graded_and_nothing_of_it_runs_or_is_followed(
    job: Job, pushed: Path, theirs: Path, tmp_path: Path
) -> None:
    write_shadows(pushed, tmp_path / "RAN")
    for name in ("course", "grading", "submission", "class.key"):
        (pushed / name).write_text("in the way")
    for name in ("grades", "feedback"):
        (pushed / name).symlink_to(theirs / "solutions")
    for case in (theirs / "exercises").rglob("*.py"):
        own = pushed / case.relative_to(theirs)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(f'open({str(tmp_path / "RAN")!r}, "a")\n')
    summary = tmp_path / "summary.md"
    ended = job(pushed, theirs, tmp_path / "runner", GITHUB_STEP_SUMMARY=str(summary))
    assert ended.status == 1 and "labkit: below 50 %: notebooks" in ended.stderr, ended.stderr
    assert not (tmp_path / "RAN").exists()
    assert {Path(name).name for name in ended.kept} == {"feedback.html", "result.json", "junit.xml"}
    [result] = [data for name, data in ended.kept.items() if name.endswith("result.json")]
    assert b'"score": 2.0' in result
    assert_nothing_came_out(ended, theirs)
    if job is on_github:
        assert_told_to_github(ended, summary.read_text())
        assert [each.split()[0] for each in ended.called] == ["sudo", "sudo", "sudo", "make"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("job", "link"),
    [
        (on_gitlab, "notebooks/90_small.ipynb"),
        pytest.param(on_github, "notebooks", marks=pytest.mark.long),
        pytest.param(on_github, "notebooks/90_small.ipynb", marks=pytest.mark.long),
        pytest.param(on_gitlab, "notebooks", marks=pytest.mark.long),
    ],
)
def test_a_link_in_place_of_a_notebook_or_its_folder_is_refused_in_words(
    job: Job, link: str, pushed: Path, theirs: Path, tmp_path: Path
) -> None:
    shutil.rmtree(pushed / "notebooks")
    (pushed / link).parent.mkdir(exist_ok=True)
    answer = theirs / "solutions" / Path(link).relative_to("notebooks")
    (pushed / link).symlink_to(answer)
    ended = job(pushed, theirs, tmp_path / "runner")
    assert ended.status == 2
    assert re.search(
        rf"labkit: the submission \S+90_small.ipynb.* is a link to {answer}, and links are not", ended.stderr
    )
    assert "put a plain " in ended.stderr and not ended.kept
    assert_nothing_came_out(ended, theirs)


def test_the_github_workflow_may_read_and_uses_only_githubs_own_actions() -> None:
    workflow = yaml.safe_load((TEMPLATES / "github_classroom.yml").read_text())
    assert workflow[True] == ["push", "workflow_dispatch"]  # YAML reads `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    assert {step["uses"].split("@")[0] for step in workflow["jobs"]["grade"]["steps"] if "uses" in step} == {
        "actions/checkout", "actions/setup-python", "actions/upload-artifact",
    }  # fmt: skip


@pytest.mark.long
def test_the_gitlab_job_grades_and_its_junit_file_is_where_it_says(pushed: Path, theirs: Path, tmp_path: Path) -> None:
    job = yaml.safe_load((TEMPLATES / "gitlab_ci.yml").read_text())["grade"]
    assert "cache" not in job  # GitLab keeps one in the project, where a student could put packages of their own
    ended = on_gitlab(pushed, theirs, tmp_path / "runner", FAIL_UNDER="20")
    assert ended.status == 0, ended.stderr
    assert "::" not in ended.stdout
    assert [name.rpartition("/feedback/")[2] for name in ended.kept].count("junit.xml") == 1
    assert not (ended.course / ".git").exists()  # it held the token


def test_a_students_own_job_has_no_second_run() -> None:
    """It starts as often as its student likes, on machines that others' jobs share."""
    for file in ("github_classroom.yml", "gitlab_ci.yml"):
        commands = (TEMPLATES / file).read_text().split("labkit grade ")[1:]
        assert commands and all("--no-second-run" in command.split("--out")[0] for command in commands)


def test_the_templates_name_a_lesson_that_is_there() -> None:
    for file, key in (("github_classroom.yml", "env"), ("gitlab_ci.yml", "variables")):
        settings = yaml.safe_load((TEMPLATES / file).read_text())[key]
        assert (ROOT / settings["NOTEBOOK"]).is_file()
        assert settings["NOTEBOOK"].startswith(f"notebooks/{settings['LESSON']}_")
