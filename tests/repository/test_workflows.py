"""What other systems, containers and publishing run is what this repository has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import labkit
from tests.elsewhere.__main__ import FOLDERS, LEFT_OUT, NO_TESTS, NOTEBOOK

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "templates"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_every_folder_of_tests_runs_elsewhere_or_has_its_reason_not_to() -> None:
    there = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert there - {"__pycache__"} <= {*FOLDERS, *LEFT_OUT, *NO_TESTS}
    for folder in (*FOLDERS, *LEFT_OUT):
        assert any((ROOT / "tests" / folder).glob("**/test_*.py")), folder
    assert (ROOT / NOTEBOOK).is_file()


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_calls_targets_and_files_that_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"\bmake (?:--directory \S+ )?([a-z-]+)\b", text.partition("jobs:")[2]):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for script in re.findall(r"python (\S+\.py)", text):
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize(("tag", "passes"), [(f"v{labkit.__version__}", True), ("v0.0.0", False), ("main", False)])
def test_only_a_tag_that_is_the_version_is_published(tag: str, passes: bool) -> None:
    command = [sys.executable, str(TEMPLATES / "tagged_version.py"), tag]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes
    assert labkit.__version__ in done.stdout + done.stderr


def test_publishing_stores_no_token_and_only_the_last_step_may_ask_for_one() -> None:
    jobs = yaml.safe_load((TEMPLATES / "publish.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and "permissions" not in jobs["build"]
    assert "secrets." not in (TEMPLATES / "publish.yml").read_text(encoding="utf-8")


def test_a_container_holds_what_the_wheel_holds_and_runs_as_a_user() -> None:
    """`make dist` and the Dockerfile bring the same course."""
    dist = re.search(r"^dist:.*?(?=^\w)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M | re.S)
    assert dist is not None
    for part in ("notebooks", ".jupyter", "solutions/[0-9]*.py"):
        assert part in dist[0] and f"COPY {part}" in DOCKERFILE
    for stage in DOCKERFILE.split("\nFROM ")[1:]:
        assert re.findall(r"^USER (.+)$", stage, re.M)[-1:] == ["1000:1000"]


def test_whatever_the_dockerfile_copies_is_there_and_not_ignored() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [word for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.M) for word in line.split()[:-1]]
    assert len(copied) > 6
    for source in copied:
        assert any(ROOT.glob(source)), source
        assert source in let_in or source.split("/")[0] in {each.split("/")[0] for each in let_in}, source


def test_the_development_container_and_binder_use_what_the_repository_pins() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert f" AS {container['build']['target']}" in DOCKERFILE
    lines = (ROOT / ".binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    (pins,) = [line.split()[1] for line in lines if line.startswith("--constraint")]
    assert (ROOT / ".binder" / pins).resolve() == ROOT / "requirements.lock"
    assert "--editable ." in lines
