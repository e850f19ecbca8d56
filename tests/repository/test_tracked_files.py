"""What every tracked file must hold to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_BYTES = 500_000
LIMIT_EXECUTED_BYTES = 800_000  # a solution with its pictures, up to 60 KB each
LIMIT_LINES = 400

# Written so that this file does not find itself. A container's user and somebody who is nowhere are of no machine.
OF_ONE_MACHINE = re.compile(r"/(?<![\w.]/)(?:wor[k]/|home/(?!learner\b|ada\b)[a-z]|User[s]/[A-Za-z]|tmp/brie[f])")
INDEXES = re.compile(
    r"download\.pytorch\.or[g]|pypi\.org/simpl[e]|files\.pythonhosted|--extra-index-ur[l]|--find-link[s]"
)
FOR_OTHERS = {
    "labkit/grading/handout/runtime_lock.py": "Gradescope's machines and students' take PyTorch's build without CUDA",
    "labkit/grading/handout/wheels.py": "students without a network get PyTorch's build without CUDA, from a folder",
    "labkit/grading/handout/students_readme.py": "the same, and wheels from a USB stick",
    "Dockerfile": "an image has PyTorch's build without CUDA, which is gigabytes smaller, unless told otherwise",
    ".binder/requirements.txt": "Binder has no GPU",
}


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()!r}"
        for path in _tracked()
        for match in OF_ONE_MACHINE.finditer(_text(path))
    ]
    assert not found


def test_no_file_names_a_package_index() -> None:
    paths = [path for path in _tracked() if str(path.relative_to(ROOT)) not in FOR_OTHERS]
    found = [f"{path.relative_to(ROOT)}: {m.group()!r}" for path in paths for m in INDEXES.finditer(_text(path))]
    assert not found


def test_no_file_is_large() -> None:
    large = {
        str(path.relative_to(ROOT)): path.stat().st_size
        for path in _tracked()
        if path.stat().st_size > (LIMIT_EXECUTED_BYTES if path.match("solutions/*.ipynb") else LIMIT_BYTES)
    }
    assert not large


def test_no_module_is_long() -> None:
    lines = {str(path.relative_to(ROOT)): _text(path).count("\n") for path in (ROOT / "labkit").rglob("*.py")}
    assert not {name: count for name, count in lines.items() if count > LIMIT_LINES}


def test_no_module_is_named_for_anything_it_might_hold() -> None:
    vague = {"utils.py", "util.py", "helpers.py", "common.py", "misc.py"}
    assert not [path for path in _tracked() if path.name in vague]


def test_no_file_is_ignored_and_tracked_at_once() -> None:
    command = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert not listed.stdout


def test_no_two_test_files_share_a_name() -> None:
    # pytest imports a test file by its bare name; a second one of that name is not collected.
    names = [path.name for path in _tracked() if path.match("tests/**/test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
