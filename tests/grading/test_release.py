"""`labkit release`: what students get works on its own, and holds nothing they must not have."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

import labkit
from labkit.cli import app
from labkit.errors import ConfigError, LessonError
from labkit.grading.handout.release import release
from labkit.grading.handout.release_search import Secrets, search, secrets_of

pytestmark = pytest.mark.in_turn

ROOT = Path(__file__).parents[2]
ANSWER = "    # BEGIN SOLUTION count_bytes\n"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(ROOT / "solutions" / "hidden", folder / "solutions" / "hidden")
    for name in ("notebooks", "slides", "solutions"):
        (folder / name).mkdir(exist_ok=True)
        for path in [*(ROOT / name).glob("00_*"), *(ROOT / name).glob("02_*")]:
            shutil.copy(path, folder / name)
    return folder


@pytest.fixture(scope="module")
def secrets(course: Path) -> Secrets:
    """What the search looks for: reading it takes seconds."""
    return secrets_of(course, ROOT / "labkit")


@pytest.fixture(scope="module")
def bundle(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release, cloned afresh: as students get it."""
    folder = tmp_path_factory.mktemp("release")
    done = CliRunner().invoke(app, ["release", str(folder / "course"), "--course", str(course)])
    assert done.exit_code == 0, done.output
    assert "searched for" in done.output and "none is in it" in done.output
    settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "The course"]):
        subprocess.run(["git", *settings, *command], cwd=folder / "course", check=True, timeout=300)
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(folder / "course"), str(clone)], check=True, timeout=300)
    return clone


def in_bundle(bundle: Path, program: str) -> str:
    """Return what a program prints that finds labkit in the bundle and nowhere else, as do the processes it starts."""
    only = bundle.parent / "only"
    only.mkdir(exist_ok=True)
    (only / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [each for each in sys.meta_path if '__editable__' not in repr(each)]\n"
    )
    guard = (
        "import labkit, importlib.util, pathlib\n"
        f"assert pathlib.Path(labkit.__file__).is_relative_to({str(bundle)!r}), labkit.__file__\n"
        "assert importlib.util.find_spec('labkit.grading') is None\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{bundle}{os.pathsep}{only}"}
    done = subprocess.run(
        [sys.executable, "-c", guard + program],
        cwd=bundle / "notebooks", env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_bundle_holds_notebooks_slides_and_labkit_and_nothing_else(bundle: Path) -> None:
    names = {path.name for path in bundle.iterdir()} - {".git", ".labkit-release.json"}
    assert names == {
        ".gitignore", ".jupyter", "LICENSE", "Makefile", "README.md", "environment.yml", "labkit", "notebooks",
        "pages", "pyproject.toml", "requirements.lock", "slides",
    }  # fmt: skip
    handed_out = {"00_start_here.ipynb", "02_ring_all_reduce.ipynb"}
    assert {path.name for path in (bundle / "notebooks").iterdir()} == {*handed_out, ".originals", "AGENTS.md"}
    assert {path.name for path in (bundle / "notebooks" / ".originals").iterdir()} == handed_out
    assert not (bundle / "labkit" / "grading").exists()
    targets = subprocess.run(
        ["make", "help"], cwd=bundle, capture_output=True, text=True, timeout=300, check=True
    ).stdout
    assert "make lab" in targets and "make grade" not in targets and "make test" not in targets


def test_the_readme_names_only_commands_a_student_has_and_installs_only_what_lessons_need(bundle: Path) -> None:
    readme = (bundle / "README.md").read_text()
    named = set(re.findall(r"labkit ([a-z][\w-]*)", readme))
    assert {"lab", "doctor", "reset", "catch-up", "export"} <= named
    exported = re.findall(r"`labkit export (\d\d)`", readme)
    assert exported == ["02"]  # not every lesson's notebook is a program, and 00's is none
    shown = in_bundle(bundle, "from typer.testing import CliRunner\nfrom labkit.cli import app\n"
                      "print(CliRunner().invoke(app, ['--help']).output)\n")  # fmt: skip
    helped = set(re.findall(r"^. ([a-z][a-z-]+)  ", shown, re.MULTILINE))
    assert named <= helped and not helped & {"grade", "pack", "board", "release", "build", "review", "gradebook"}
    for name in re.findall(r"labkit\.(\w+)\(", readme):
        assert name in labkit.__all__, name
    for line in (
        "py -m venv .venv",
        ".venv\\Scripts\\Activate.ps1",
        "source .venv/bin/activate",
        "--no-index",
    ):
        assert line in readme, line
    for place in re.findall(r"\]\((?!http)([^)]+)\)", readme):
        assert (bundle / place).is_file(), place
    lock = (bundle / "requirements.lock").read_text()
    assert "torch==" in lock and "jupyterlab==" in lock and "setuptools==" in lock
    for unwanted in ("playwright", "sphinx", "mypy", "dask", "distributed", "psycopg", "pytest", "ruff"):
        assert not re.search(rf"(?mi)^{unwanted}", lock), unwanted


def test_the_pages_lead_to_slides_that_are_there(bundle: Path) -> None:
    index = (bundle / "pages" / "index.html").read_text()
    places = re.findall(r'href="([^"]+)"', index)
    assert len(places) >= 2 and all((bundle / "pages" / place).is_file() for place in places)


def test_notebooks_of_the_bundle_open_and_have_every_cell_of_the_course(bundle: Path, course: Path) -> None:
    for path in sorted((bundle / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        here, there = (json.loads(each.read_text()) for each in (path, course / "notebooks" / path.name))
        for cell in (cell for notebook in (here, there) for cell in notebook["cells"]):
            cell.pop("outputs", None)  # of figures: a class's recording is another
        assert here == there
        assert not any(cell.get("outputs") for cell in notebook.cells if "figure" not in cell.metadata.get("tags", ()))


def test_checks_pass_and_fail_with_the_bundle_alone(bundle: Path) -> None:
    said = in_bundle(
        bundle,
        "import torch, torch.distributed as dist\n"
        "def chunk_bounds(numel, num_chunks):\n"
        "    size, more = divmod(numel, num_chunks)\n"
        "    starts = [i * size + min(i, more) for i in range(num_chunks + 1)]\n"
        "    return list(zip(starts, starts[1:]))\n"
        "print(labkit.check('chunk_bounds', chunk_bounds))\n"
        "def chunk_bounds(numel, num_chunks):\n"
        "    raise NotImplementedError('Exercise 2.3: cut')\n"
        "print(labkit.check('chunk_bounds', chunk_bounds))\n"
        "print(labkit.hint('chunk_bounds'))\n"
        "def naive_all_reduce(tensor):\n"
        "    dist.all_reduce(tensor)\n"
        "print(labkit.check('naive_all_reduce', naive_all_reduce))\n"
        "def total(): \n"
        "    value = torch.tensor([float(dist.get_rank() + 1)]); dist.all_reduce(value); return value.item()\n"
        "print(labkit.run(total, on=labkit.local(2)).results)\n",
    )
    assert (
        "chunk_bounds" in said and "cases pass" in said and "not yet" in said and "Hint 1 of 3 for chunk_bounds" in said
    )
    assert "all_reduce" in said and "[3.0, 3.0]" in said


@pytest.mark.long
def test_a_class_gets_its_own_recording_and_no_key(bundle: Path) -> None:
    room = bundle / "labkit" / "exercises" / "start_here" / "who_waits"
    own = ROOT / "solutions" / "hidden" / "start_here" / "who_waits" / "recording.json"
    assert (room / "recording.json").read_bytes() == own.read_bytes()
    assert sorted(path.name for path in room.iterdir()) == ["question.json", "recording.json"]
    for path in (bundle / "notebooks").rglob("00_start_here.ipynb"):  # its figure showed labkit's recording
        assert not any(cell.get("outputs") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
    program = 'print(labkit.answer("who_waits", rank=2, waits_in="all_reduce", cause="loads its data late"))'
    assert "it counts when you hand in" in in_bundle(bundle, program)


def test_the_bundles_own_commands_say_that_it_cannot_grade(bundle: Path) -> None:
    said = in_bundle(
        bundle,
        "from typer.testing import CliRunner\nfrom labkit.cli import app\n"
        "from labkit.doctor import _sandbox\nprint(_sandbox())\n"
        "done = CliRunner().invoke(app, ['grade', '.', '--lesson', '02', '--out', 'x'])\n"
        "print(done.exit_code, done.output)\n",
    )
    assert "this copy of labkit is for students and does not grade" in said
    assert "part of the full repository, not of a student release" in said


@pytest.mark.long
def test_a_release_is_made_anew_over_an_earlier_one_and_never_over_other_files(course: Path, tmp_path: Path) -> None:
    release(tmp_path / "out", ["00", "02"], course)
    (tmp_path / "out" / "notes.txt").write_text("a student's own")
    assert release(tmp_path / "out", ["02"], course).lessons == ("02_ring_all_reduce",)
    notebooks = {path.relative_to(tmp_path / "out" / "notebooks") for path in (tmp_path / "out").rglob("*.ipynb")}
    assert notebooks == {Path("02_ring_all_reduce.ipynb"), Path(".originals/02_ring_all_reduce.ipynb")}
    assert (tmp_path / "out" / "notes.txt").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds 'thesis.txt' and is not an earlier release"):
        release(tmp_path / "other", ["02"], course)
    with pytest.raises(LessonError, match="No lesson is called '77'"):
        release(tmp_path / "new", ["77"], course)


@pytest.mark.parametrize(
    ("name", "leak", "why"),
    [
        ("labkit/ring.py", "solution", "holds lines of the answer to exercise ring_sum"),
        ("labkit/cases.py", "hidden", "holds lines of labkit/exercises/ring_all_reduce/ring_sum/hidden.py"),
        ("copy.txt", "whole hidden file", "is the instructors' file hidden.py"),
        ("slides/x.md", ANSWER, "holds a marker of a solution"),
        ("labkit/grading/score.py", "x = 1\n", "belongs to instructors"),
        ("labkit/cache.pyc", b"\xff\xfe\x00", "is neither text nor a picture"),
    ],
)
def test_the_search_finds_what_must_not_be_there(
    course: Path, secrets: Secrets, tmp_path: Path, name: str, leak: str | bytes, why: str
) -> None:
    folder = tmp_path / "bundle"
    (folder / name).parent.mkdir(parents=True)
    source = (course / "solutions" / "02_ring_all_reduce.py").read_text()
    hidden = (ROOT / "labkit" / "exercises" / "ring_all_reduce" / "ring_sum" / "hidden.py").read_text()
    if leak == "solution":  # indented anew and renamed about it: the lines are the same
        lines = source.split("# BEGIN SOLUTION ring_sum")[1].split("# END SOLUTION")[0].splitlines()[1:]
        leak = "class Mine:\n" + "\n".join(f"        {line.strip()}  " for line in lines)
    elif leak == "hidden":
        leak = "\n".join(hidden.splitlines()[10:20])
    elif leak == "whole hidden file":
        leak = hidden
    (folder / name).write_bytes(leak if isinstance(leak, bytes) else leak.encode())
    found = search(folder, secrets)
    assert any(why in str(each) for each in found), found


@pytest.mark.long
def test_a_notebook_that_was_run_or_shows_an_answer_is_not_released(course: Path, tmp_path: Path) -> None:
    mine = tmp_path / "course"
    shutil.copytree(course, mine)
    path = mine / "notebooks" / "02_ring_all_reduce.ipynb"
    content = json.loads(path.read_text())
    code = next(cell for cell in content["cells"] if cell["cell_type"] == "code")
    code["execution_count"], code["outputs"] = 1, [{"output_type": "stream", "name": "stdout", "text": "x"}]
    path.write_text(json.dumps(content))
    with pytest.raises(
        LessonError, match=r"nothing was released.*\n.*02_ring_all_reduce.ipynb: carries outputs of a run"
    ):
        release(tmp_path / "out", ["02"], mine)
    assert not (tmp_path / "out").exists()
    shutil.copy(mine / "solutions" / path.name, path)
    with pytest.raises(LessonError, match="shows a line of the answer"):
        release(tmp_path / "out", ["02"], mine)
    assert [each.name for each in tmp_path.iterdir()] == ["course"]


@pytest.mark.parametrize(
    "place", ["metadata", "attachment", "comment", "base64", "compressed", "hexadecimal", "output"]
)
def test_the_search_reads_what_stands_beside_the_text(
    course: Path, secrets: Secrets, tmp_path: Path, place: str
) -> None:
    source = (course / "solutions" / "02_ring_all_reduce.py").read_text()
    answer = textwrap.dedent(source.split("# BEGIN SOLUTION ring_sum")[1].split("# END SOLUTION")[0])
    encoded = base64.b64encode(answer.encode()).decode()
    cell = {"id": "a", "cell_type": "markdown", "metadata": {}, "source": ["# Hello"]}
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    if place == "metadata":
        content["metadata"] = {"notes": [{"text": answer.splitlines()}]}
    elif place == "attachment":
        cell["attachments"] = {"note.txt": {"text/plain": encoded}}
    elif place == "output":
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": answer}]
    elif place == "comment":
        cell["source"] = [f"#   {line}\n" for line in answer.splitlines()]
    elif place == "base64":
        cell["source"] = ["data = '''\n", *textwrap.wrap(encoded, 76), "'''"]
    elif place == "compressed":
        cell["source"] = [base64.b64encode(gzip.compress(answer.encode())).decode()]
    else:
        cell["source"] = [answer.encode().hex()]
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "02_ring_all_reduce.ipynb").write_text(json.dumps(content))
    found = search(tmp_path, secrets)
    assert any("holds lines of the answer to exercise ring_sum" in str(each) for each in found), found
