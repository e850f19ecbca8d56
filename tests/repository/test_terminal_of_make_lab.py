"""What `make lab` prints before the address: what the self-check says, and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/lab/tree/00_start_here\.ipynb\?token=\w+\n")
NOTICE = re.compile(
    r"\[C [-\d:. ]+ ServerApp\] \n\s+To access the server, open this file in a browser:\n\s+file://\S+\n"
    r"\s+Or copy and paste one of these URLs:\n\s+http://localhost:\S+\n\s+"
)


def printed_before_the_address(command: list[str], path: str) -> str:
    """Return what comes before JupyterLab's own notice of where it is, from a terminal's point of view."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")} | {"PATH": path}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = ""
        try:
            for line in process.stdout:
                said += line
                if ADDRESS.search(line):
                    break
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    found = ADDRESS.search(said)
    assert found, said
    before, notices = NOTICE.subn("", said[: found.start()])
    assert notices == 1, said
    return before


@pytest.fixture(params=["with node", pytest.param("without node", marks=pytest.mark.long)])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """PATH as it is, or one with all that the system has but node."""
    if request.param == "with node":
        if shutil.which("node") is None:
            pytest.skip("node is not installed, so JupyterLab runs no program of its own with it")
        return os.environ["PATH"]
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            if program.name not in ("node", "nodejs") and not (tmp_path / program.name).is_symlink():
                (tmp_path / program.name).symlink_to(program)
    assert shutil.which("node", path=str(tmp_path)) is None
    return str(tmp_path)


def test_jupyterlab_prints_nothing_before_its_address(path: str) -> None:
    start = f"_start(Path({str(ROOT)!r}), ['--no-browser', '--port=0'])"
    program = f"from pathlib import Path; from labkit.commands.lab import _start; {start}"
    assert printed_before_the_address([sys.executable, "-P", "-c", program], path) == ""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lab_prints_what_the_self_check_says_and_nothing_else(path: str) -> None:
    subprocess.run(["make", "setup"], cwd=ROOT, check=True, capture_output=True, timeout=500)
    before = printed_before_the_address(["make", "lab", "ARGS=--no-browser --port=0"], path)

    def without_numbers(text: str) -> str:
        return re.sub(r"\d[\d.]*", "#", text)  # free memory and space differ from one second to the next

    program = "from labkit.doctor import as_text, examine; print(as_text(examine()))"
    checked = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=ROOT, env=os.environ | {"PATH": path}, text=True, check=True,
        stdout=subprocess.PIPE, timeout=300,
    )  # fmt: skip
    assert without_numbers(before) == without_numbers(checked.stdout)


def test_no_file_of_ours_says_how_node_reads_what_lies_in_the_environment() -> None:
    """A package.json holds for all programs below its folder, .venv's too."""
    assert [path.name for folder in (ROOT, ROOT / ".venv") for path in folder.glob("package*.json")] == []
