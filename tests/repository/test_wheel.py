"""The wheel that `make dist` writes works alone: it writes lessons, lends answers, draws views."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from labkit.checks.kept_back import is_kept_back

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")]

LEARNER = """
import labkit, os, sys, torch
import torch.distributed as dist
from pathlib import Path
from labkit.commands.lab import write_lessons

assert sys.argv[1] in labkit.__file__, labkit.__file__
write_lessons(Path("mine"), print)
os.chdir("mine/notebooks")
mine = {"torch": torch, "dist": dist, "labkit": labkit}  # the lesson's first cell
print(labkit.lend("chunk_bounds", mine))
assert callable(mine["chunk_bounds"])
shown, _ = labkit.figure("ring", num_ranks=4)._repr_mimebundle_()
assert "image/png" in shown, list(shown)
"""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the last commit, where pip would put it."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, checkout], check=True, timeout=120)
    (checkout / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["make", "dist", "--assume-old=setup"], cwd=checkout, check=True, timeout=300)
    (wheel,) = (checkout / "dist").glob("labkit_torch-*-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    shutil.rmtree(checkout)
    return folder / "site"


def _python(unpacked: Path, folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_learner_needs_nothing_but_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    said = _python(unpacked, tmp_path, "-c", LEARNER, str(unpacked))
    assert "notebooks written" in said
    assert "chunk_bounds (Exercise 2." in said and "is lent" in said
    assert "labkit.lend" not in said
    assert (tmp_path / "mine" / ".jupyter" / "jupyter_lab_config.json").is_file()


def test_what_is_written_by_the_learner_stays(unpacked: Path, tmp_path: Path) -> None:
    again = (
        "from pathlib import Path\nfrom labkit.commands.lab import write_lessons\nwrite_lessons(Path('mine'), print)"
    )
    _python(unpacked, tmp_path, "-c", again)
    own = tmp_path / "mine" / "notebooks" / "02_ring_all_reduce.ipynb"
    own.write_text(own.read_text() + "\n")
    before = own.read_bytes()
    said = _python(unpacked, tmp_path, "-c", again)
    assert own.read_bytes() == before
    assert "0 notebooks written; " in said and "stay as they are" in said


def test_the_wheel_holds_no_hidden_case(unpacked: Path) -> None:
    names = [path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()]
    assert any(name.startswith("labkit/course/solutions/02_") for name in names)
    assert not [name for name in names if "solutions/hidden" in name or name.endswith(".key")]
    assert not [name for name in names if "/exercises/" in name and is_kept_back(name.rpartition("/")[2])]
