"""The repository labkit runs from, for commands that make bundles of it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from labkit.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[3]


def repository_files(names: Sequence[str], command: str) -> list[str]:
    """Return the repository's files as they lie there: all that git does not ignore, all where it is no git checkout.

    Args:
        names: Files and folders at its root.
        command: Who asks, for the message.

    Raises:
        ConfigError: If labkit is not installed from its repository.
    """
    if not (REPOSITORY / "pyproject.toml").is_file():
        raise ConfigError(f"{REPOSITORY} has no pyproject.toml; run {command} in a clone of labkit's repository")
    listing = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(listing, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        listed = subprocess.CompletedProcess(listing, 1, "", "")
    if listed.returncode == 0 and "labkit/cli.py\0" in listed.stdout:
        found = [name for name in listed.stdout.split("\0") if name and (REPOSITORY / name).is_file()]
    else:
        paths = [path for name in names for path in (REPOSITORY / name, *(REPOSITORY / name).rglob("*"))]
        plain = (path for path in paths if path.is_file() and path.parent.name != "__pycache__")
        found = [path.relative_to(REPOSITORY).as_posix() for path in plain]
    return [name for name in found if name.split("/")[0] in names]
