"""The Makefile says what each target does, and what is wrong in words."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
CONTRACT = {"setup", "lab", "lint", "type", "test", "test-all", "test-gpu", "test-browser", "build", "bench", "slides"}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def _make(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    given = [f"{name}={value}" for name, value in variables.items()]
    # PATH alone: what a `make` above this test put into the environment must not steer the one below it.
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    command = ["make", "--no-print-directory", *arguments, *given]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout without an environment."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def _program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_every_target_is_phony_and_documented() -> None:
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())  # type: ignore[index]
    documented = set(re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE))
    assert phony - {"stale"} == documented
    assert documented >= CONTRACT | {"grade", "clean", "lock"}


def test_help_lists_the_targets() -> None:
    listed = _make("help").stdout
    assert all(f"make {target} " in listed for target in CONTRACT)


def test_a_python_that_is_too_old_is_named_with_what_to_do(bare: Path) -> None:
    script = 'case "$2" in *version_info\\[:2\\]*) echo 3.9;; *) exit 1;; esac'
    old = _program(bare / "python-old", script)
    tried = _make("setup", cwd=bare, PYTHON=old)
    assert tried.returncode != 0
    assert "labkit needs Python 3.11 to 3.14" in tried.stderr
    assert f"found: {old} (3.9)" in tried.stderr
    assert "make setup PYTHON=" in tried.stderr
    assert not (bare / ".venv").exists()


def test_no_python_at_all_is_said(bare: Path) -> None:
    tried = _make("setup", cwd=bare, PYTHON=str(bare / "absent"))
    assert tried.returncode != 0
    assert "found: none" in tried.stderr


def test_a_missing_venv_module_is_said_with_its_package(bare: Path) -> None:
    script = 'case "$2" in *version_info\\[:2\\]*) echo 3.12;; *ensurepip*) exit 1;; *) exit 0;; esac'
    tried = _make("setup", cwd=bare, PYTHON=_program(bare / "python-bare", script))
    assert tried.returncode != 0
    assert "apt install python3.12-venv" in tried.stderr


def test_a_second_setup_does_nothing() -> None:
    stamp, *sources = (ROOT / name for name in (".venv/.installed", "requirements.lock", "pyproject.toml"))
    if not stamp.exists() or any(path.stat().st_mtime > stamp.stat().st_mtime for path in sources):
        pytest.skip("this environment was not made by `make setup`, or is due for one")
    assert "pip" not in _make("--dry-run", "setup").stdout


def test_lab_passes_its_arguments_on() -> None:
    printed = _make("--dry-run", "lab", ARGS="--no-browser --port 8899").stdout
    assert re.search(r"labkit lab -- --no-browser --port 8899", printed)
