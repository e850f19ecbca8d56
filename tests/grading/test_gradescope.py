"""Gradescope: results in the documented form, and an autograder that runs when unpacked as Gradescope unpacks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from grading.small_lesson import RIGHT, write_submission
from labkit.cli import app
from labkit.errors import ConfigError
from labkit.grading.course import Course, find_course
from labkit.grading.handout.gradescope import write_autograder
from labkit.grading.handout.runtime_lock import CPU_BUILDS, pinned

VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
FORMAT = {"enum": ["text", "html", "simple_format", "md", "ansi"]}
TEXT, NUMBER, OBJECT = {"type": "string"}, {"type": "number"}, {"type": "object"}
# After Gradescope's "Autograder Specifications", as of 2026.
RESULTS = {
    "type": "object",
    "additionalProperties": False,
    "anyOf": [{"required": ["score"]}, {"required": ["tests"]}],
    "properties": {
        "score": NUMBER, "execution_time": NUMBER, "output": TEXT, "output_format": FORMAT,
        "test_output_format": FORMAT, "test_name_format": FORMAT, "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY, "extra_data": OBJECT, "leaderboard": {"type": "array"},
        "tests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "score": NUMBER, "max_score": NUMBER, "status": {"enum": ["passed", "failed"]}, "name": TEXT,
                    "name_format": FORMAT, "number": TEXT, "output": TEXT, "output_format": FORMAT,
                    "tags": {"type": "array", "items": TEXT}, "visibility": VISIBILITY, "extra_data": OBJECT,
                },
            },
        },
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(course: Course, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/autograder as Gradescope makes it, at another place, with our Python for its virtual environment."""
    root = tmp_path_factory.mktemp("gradescope")
    done = CliRunner().invoke(
        app, ["grade", "--gradescope", str(root / "a.zip"), "--lesson", "90", "--course", str(course.root)]
    )
    assert done.exit_code == 0, done.output
    assert "give it to Gradescope and to nobody else" in done.output
    with zipfile.ZipFile(root / "a.zip") as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, root / "source"))
            path.chmod(entry.external_attr >> 16 & 0o777)
    (root / "source" / "run_autograder").rename(root / "run_autograder")
    (root / "results").mkdir()
    (root / "venv" / "bin").mkdir(parents=True)
    python = root / "venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return root


def graded(root: Path, submission: dict[str, str] | None) -> tuple[dict[str, Any], str]:
    for path in (root / "submission").rglob("*"):
        path.unlink()
    (root / "submission").mkdir(exist_ok=True)
    if submission is not None:
        write_submission(root / "submission" / "my work (2).ipynb", submission)
    environment, command = {**os.environ, "AUTOGRADER_ROOT": str(root)}, [root / "run_autograder"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((root / "results" / "results.json").read_text())
    jsonschema.validate(content, RESULTS)
    return content, done.stdout


@pytest.mark.in_turn
def test_the_zip_holds_labkit_and_hidden_cases_and_no_solution(unpacked: Path) -> None:
    with zipfile.ZipFile(unpacked / "a.zip") as archive:
        names = set(archive.namelist())
    assert {
        "setup.sh",
        "run_autograder",
        "pyproject.toml",
        "requirements.lock",
        "labkit/grading/handout/gradescope.py",
    } <= names
    lock = (unpacked / "source" / "requirements.lock").read_text()
    assert "torch==" in lock and "setuptools==" in lock and "playwright" not in lock and "Sphinx" not in lock
    own = find_course("90", unpacked / "source").own_files()
    judging = {name for name in names if name.startswith(("solutions/", "notebooks/", "exercises/", "tests/"))}
    assert judging == {"notebooks/90_small.ipynb", *own} and "exercises/small/double/exercise.py" in own
    assert os.access(unpacked / "run_autograder", os.X_OK) and os.access(unpacked / "source" / "setup.sh", os.X_OK)


@pytest.mark.in_turn
def test_a_submission_of_any_name_is_graded_where_gradescope_puts_it(unpacked: Path) -> None:
    content, _ = graded(unpacked, {"double": RIGHT["double"], "shift": RIGHT["total"].replace("total", "shift")})
    assert (content["score"], [test["score"] for test in content["tests"]]) == (2, [2, 0, 0])
    assert [test["status"] for test in content["tests"]] == ["passed", "failed", "failed"]
    assert "SECRET" not in json.dumps(content) and content["stdout_visibility"] == "hidden"


@pytest.mark.long
def test_a_submission_without_a_notebook_is_told_what_is_missing(unpacked: Path) -> None:
    content, _ = graded(unpacked, None)
    assert content["score"] == 0 and "There is no notebook in what was handed in." in content["output"]


@pytest.mark.long
def test_where_no_sandbox_can_be_had_the_instructor_is_told_and_the_student_is_not(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{unpacked / 'venv' / 'bin'}:{only_sh(unpacked)}")
    content, said = graded(unpacked, {"double": RIGHT["double"]})
    assert content["score"] == 2 and "sandbox" not in json.dumps(content)
    assert "This container allows no sandbox" in said and "could have read hidden cases" in said


def only_sh(root: Path) -> Path:
    """Return a folder of programs without bubblewrap."""
    folder = root / "programs"
    folder.mkdir(exist_ok=True)
    for name in ("sh", "bash", "env"):
        if not (folder / name).exists():
            (folder / name).symlink_to(Path("/usr/bin") / name)
    return folder


def test_setup_installs_from_the_zip_alone_with_the_first_python_that_can_be_had(
    unpacked: Path, tmp_path: Path
) -> None:
    """With programs that write down how they are called in place of apt-get and Python."""
    programs = only_sh(tmp_path)
    write = 'echo "${0##*/} $*" >> "$AUTOGRADER_ROOT/called"\n'
    (programs / "apt-get").write_text(f"#!/bin/sh\n{write}case $* in *python3.12*) exit 100;; esac\n")
    fake = f'#!/bin/sh\n{write}mkdir -p "$3/bin"; cp "$0" "$3/bin/python"\n'
    (programs / "python3.13").write_text(f"{fake.replace('mkdir', '[ $2 = venv ] && mkdir')}exit 0\n")
    for name in ("mkdir", "cp"):
        (programs / name).symlink_to(Path("/usr/bin") / name)
    for path in (programs / "apt-get", programs / "python3.13"):
        path.chmod(0o755)
    environment = {"PATH": str(programs), "AUTOGRADER_ROOT": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", unpacked / "source" / "setup.sh"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lock = (unpacked / "source" / "requirements.lock").read_text()
    called = (tmp_path / "called").read_text().replace(str(tmp_path), "ROOT").splitlines()
    assert called[1].endswith("bubblewrap") and called[2].endswith("python3.12-venv")
    assert called[3:] == [
        "apt-get install -y --no-install-recommends python3.13-venv",
        "python3.13 -m venv ROOT/venv",
        f"python -m pip install --index-url {CPU_BUILDS} {pinned(lock, 'torch')}",
        "python -m pip install -r ROOT/source/requirements.lock",
        "python -m pip install --no-deps --no-build-isolation --editable ROOT/source",
    ]


def test_mistakes_are_told_before_anything_is_written(course: Course, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"writes a zip, and autograder.tar does not end in .zip"):
        write_autograder(tmp_path / "autograder.tar", "90", course.root)
    with pytest.raises(ConfigError, match="lesson '77' cannot be graded"):
        write_autograder(tmp_path / "a.zip", "77", course.root)
    ended = CliRunner().invoke(app, ["grade", "--lesson", "90"])
    assert ended.exit_code == 2 and "the folder for the reports with --out" in ended.stderr
    assert list(tmp_path.iterdir()) == []
