"""pyproject.toml, requirements.lock and environment.yml name the same things."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import labkit

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
LOCK_LINES = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
LOCK = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in LOCK_LINES}
EXTRAS = PROJECT["optional-dependencies"]
WANTED = [Requirement(line) for line in PROJECT["dependencies"] + EXTRAS["dev"] + EXTRAS["docs"]]


def test_lock_holds_plain_pins_and_nothing_of_one_machine() -> None:
    for line in LOCK_LINES:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", line), line
    assert len(LOCK) == len(LOCK_LINES)


def test_lock_satisfies_every_requirement_of_pyproject() -> None:
    for requirement in WANTED:
        pinned = LOCK.get(canonicalize_name(requirement.name))
        assert pinned, f"requirements.lock has no {requirement.name}: make lock"
        assert requirement.specifier.contains(Version(pinned)), f"{requirement} against {pinned}: make lock"


def _closure(**python: str) -> set[str]:
    """Return every distribution that the requirements bring in on a Python, this one or that named, as installed."""
    found: set[str] = set()
    waiting = [(requirement, "") for requirement in WANTED]
    waiting += [(Requirement(line), "") for line in ["setuptools"]]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra, **python}):
            continue
        name = canonicalize_name(requirement.name)
        extras = ["", *requirement.extras]
        if name in found and not requirement.extras:
            continue
        found.add(name)
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        waiting += [(Requirement(line), each) for line in needs for each in extras]
    return found


def test_lock_pins_what_the_requirements_bring_and_no_more() -> None:
    oldest = PROJECT["requires-python"].removeprefix(">=").split(",")[0]
    ours = {name for name in _closure() if not name.startswith(("nvidia-", "cuda-", "triton"))}
    assert not ours - set(LOCK), "not pinned: make lock"
    theirs = _closure(python_version=oldest, python_full_version=f"{oldest}.0")
    assert not set(LOCK) - ours - theirs, "pinned for nobody: make lock"


def test_environment_yml_installs_the_lock_and_labkit_on_a_python_that_pyproject_allows() -> None:
    *conda, pip = ENVIRONMENT["dependencies"]
    assert pip == {"pip": ["-r requirements.lock", "-e ."]}
    python = next(line for line in conda if line.startswith("python="))
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python=") + ".0")
    assert ENVIRONMENT["name"] == "labkit"
    assert "pip" in conda


def test_ruff_checks_for_the_oldest_python_that_pyproject_allows() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert ruff["target-version"] == "py311"


def test_the_citation_names_the_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == labkit.__version__
    assert citation["license"] == PROJECT["license"]
