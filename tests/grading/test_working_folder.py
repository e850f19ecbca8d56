"""No process of ours imports anything from the working folder, which may be a student's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grading.shadowing import write_settings, write_shadows
from grading.small_lesson import RIGHT, write_submission
from labkit.errors import ConfigError
from labkit.grading.course import Course, find_course
from labkit.grading.sandbox import bubblewrap
from labkit.interpreter import python, safe_pythonpath

PACKAGE = Path(__file__).parents[2] / "labkit"
LABKIT = Path(sys.executable).parent / "labkit"
SANDBOX = "none" if bubblewrap.problem() else "bubblewrap"

TRAINS = "import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\ndist.destroy_process_group()\n"
SPAWNS = """\
import labkit
def rank():
    import torch.distributed as dist
    return dist.get_world_size()
if __name__ == "__main__":
    assert labkit.run(rank, on=labkit.local(2, start_method="spawn")).results == [2, 2]
"""
ON_DASK = """\
import labkit
from distributed import LocalCluster
def rank():
    import torch.distributed as dist
    return dist.get_world_size()
if __name__ == "__main__":
    here = {"processes": False, "protocol": "tcp", "dashboard_address": None}
    with LocalCluster(n_workers=1, threads_per_worker=2, **here) as dask:
        assert labkit.run(rank, on=labkit.cluster(dask.scheduler_address, ranks_per_host=2)).results == [2, 2]
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A student's repository: a right answer among namesakes of every module, and programs' settings."""
    folder = tmp_path / "repository"
    folder.mkdir()
    write_shadows(folder, tmp_path / "RAN")
    write_settings(folder, tmp_path / "RAN")
    write_submission(folder / "notebooks" / "90_small.ipynb", {"double": RIGHT["double"]})
    return folder


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    return subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, timeout=240)


def ran(theirs: Path) -> str:
    """Return which namesakes ran, and forget them."""
    told = theirs.parent / "RAN"
    return told.read_text() if told.exists() else ""


@pytest.mark.in_turn
def test_the_namesakes_do_run_where_python_is_started_as_usual(theirs: Path) -> None:
    run([sys.executable, "-m", "labkit.grading.workers.worker", "0"], theirs)
    assert "labkit, a package" in ran(theirs)


def grading(course: Course, folder: Path, *paths: str) -> list[str]:
    told = ["--course", str(course.root), "--key", str(folder / "key"), "--out", str(folder / "out")]
    return ["labkit", "grade", *paths, "--lesson", "90", *told, "--sandbox", SANDBOX]


@pytest.mark.in_turn
def test_grading_in_a_students_folder_runs_nothing_of_theirs(theirs: Path, course: Course, tmp_path: Path) -> None:
    done = run([str(LABKIT), *grading(course, tmp_path, "notebooks")[1:]], theirs)
    assert done.returncode == 0 and "1 submission graded" in done.stderr, done.stderr
    assert ran(theirs) == ""
    assert '"score": 2.0' in next((tmp_path / "out").glob("*/result.json")).read_text()


@pytest.mark.long
def test_where_a_pythonpath_names_the_working_folder_nothing_that_labkit_starts_goes_by_it(
    theirs: Path, course: Course, tmp_path: Path
) -> None:
    """Python itself goes by it before the first line of ours, so the program around it starts elsewhere here."""
    begin = f"import os, sys; os.chdir({str(theirs)!r}); os.environ['PYTHONPATH'] = '/nowhere:'"
    asked = f"sys.argv = {grading(course, tmp_path, 'notebooks')!r}"
    done = run(python("-c", f"{begin}; from labkit.cli import main; {asked}; main()"), tmp_path)
    assert done.returncode == 0 and "1 submission graded" in done.stderr, done.stderr
    assert ran(theirs) == ""


@pytest.mark.long
def test_looking_for_copies_in_a_students_folder_runs_nothing_of_theirs(
    theirs: Path, course: Course, tmp_path: Path
) -> None:
    out = str(tmp_path / "copies.html")
    done = run([str(LABKIT), "copies", ".", "--lesson", "90", "--course", str(course.root), "--out", out], theirs)
    assert done.returncode == 0, done.stderr
    assert ran(theirs) == ""


@pytest.mark.in_turn
def test_jupyterlab_starts_in_a_students_folder_without_anything_of_theirs(theirs: Path) -> None:
    """Neither a module nor a configuration, which is a program too."""
    (theirs / ".jupyter").mkdir(exist_ok=True)
    (theirs / ".jupyter" / "jupyter_lab_config.py").write_text(f'open({str(theirs.parent / "RAN")!r}, "a").write("it")')
    start = f"from labkit.commands.lab import _start; _start(Path({str(theirs)!r}), ['--show-config'])"
    done = run(python("-c", f"from pathlib import Path; {start}"), theirs)
    assert "only_opened" in done.stdout, done.stdout + done.stderr
    assert ran(theirs) == ""


@pytest.mark.long
def test_a_program_is_launched_from_a_students_folder_without_anything_of_theirs(theirs: Path) -> None:
    (theirs.parent / "train.py").write_text(TRAINS)
    done = run([str(LABKIT), "launch", "../train.py", "--on", "local:2"], theirs)
    assert done.returncode == 0 and "2 ranks" in done.stdout, done.stdout + done.stderr
    assert ran(theirs) == ""


@pytest.mark.long
@pytest.mark.parametrize("program", [SPAWNS, ON_DASK], ids=["spawned", "on a cluster"])
def test_ranks_that_start_in_a_students_folder_run_nothing_of_theirs(theirs: Path, program: str) -> None:
    path = theirs.parent / "program.py"
    path.write_text(program)
    done = run(python(str(path)), theirs)
    assert done.returncode == 0, done.stderr
    assert ran(theirs) == ""


def test_every_process_of_ours_is_started_in_the_one_way_that_is_safe() -> None:
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"sys\.executable", path.read_text(encoding="utf-8"))
    }
    assert named == {
        "interpreter.py",
        "commands/lab.py",  # names the program beside the command of `python`
        "grading/sandbox/environments.py",  # its folder, for PATH
        "grading/sandbox/view.py",  # its folder, to be seen
        "grading/notebook/sandboxed_kernel.py",  # a student's own kernel, in its sandbox
        "lessons/executed.py",  # the kernel of a lesson, in the author's folder
        "lessons/hosted.py",  # the first cell of a notebook on Colab or Kaggle, which is run there
    }


def test_a_pythonpath_names_no_folder_that_may_be_a_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    ours = str(tmp_path / "ours")
    for entry in (
        "",
        ".",
        "notebooks",
        str(tmp_path / "theirs"),
        str(tmp_path / "theirs" / "lib"),
        str(tmp_path / "link"),
    ):
        assert safe_pythonpath({"PYTHONPATH": f"{ours}:{entry}"}, "/labkit") == f"/labkit:{ours}"
    assert safe_pythonpath({}, "/labkit") == safe_pythonpath({"PYTHONPATH": ""}, "/labkit") == "/labkit"


def test_a_students_folder_is_not_taken_for_the_course(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What judges is code: of a course that a student commits, none is loaded unless it is named."""
    monkeypatch.chdir(course.root)
    assert find_course("90").root == course.root
    assert find_course("90", None, [tmp_path]).root == course.root
    for path in (Path("notebooks/90_small.ipynb"), Path(), course.root / "notebooks", Path("hw") / ".." / "hw"):
        with pytest.raises(ConfigError, match="with --course, the working folder too: submissions lie in it"):
            find_course("90", None, [path])
        assert find_course("90", Path(), [path]).root == course.root


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["--sandbox=none", "--course=theirs", "--out=x.ipynb", "-h"])
def test_a_file_that_is_named_like_an_option_is_not_taken_for_one(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    (tmp_path / "eve.ipynb").write_text("{}")
    done = run(["sh", "-c", f"{LABKIT} grade * --lesson 90 --course ."], tmp_path)
    assert done.returncode == 2 and "write ./* in place of *" in done.stderr, done.stderr
    assert {each.name for each in tmp_path.iterdir()} == {name, "eve.ipynb"}
