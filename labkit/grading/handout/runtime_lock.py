"""requirements.lock without what only tests, documentation and extras need: what students and autograders install."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from labkit.errors import ConfigError

CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
"""PyTorch's builds without CUDA."""
_ALWAYS = ("setuptools", "wheel")  # labkit itself is built with them
_PINNED = re.compile(r"^([\w.-]+)==")


def runtime_lock(repository: Path) -> str:
    """Return the lines of requirements.lock for what labkit asks for itself, directly or through another.

    Args:
        repository: Holds ``pyproject.toml`` and ``requirements.lock``; its packages are installed here.
    """
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: set[str] = set(_ALWAYS)
    waiting = [Requirement(each) for each in project["dependencies"]]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        wanted.add(name)
        for extra in ("", *asked.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            try:
                needs = requires(asked.name) or []
            except PackageNotFoundError:  # for another platform than this one
                continue
            below = (Requirement(each) for each in needs)
            waiting += [each for each in below if each.marker is None or each.marker.evaluate({"extra": extra})]
    lines = (repository / "requirements.lock").read_text(encoding="utf-8").splitlines()
    kept = [
        line
        for line in lines
        if line.startswith("#") or ((found := _PINNED.match(line)) and canonicalize_name(found[1]) in wanted)
    ]
    return "\n".join(kept) + "\n"


def pinned(lock: str, name: str) -> str:
    """Return the line of a lock that pins a package, "torch==2.13.0"."""
    for line in lock.splitlines():
        if line.startswith(f"{name}=="):
            return line
    raise ConfigError(f"requirements.lock does not pin {name}; `make lock` writes the file again")
