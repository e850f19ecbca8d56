"""The views' programs: joined from their sources by esbuild, where node is there, and held to them by hash everywhere.

Each file of ``labkit/widgets/static`` begins with a line that gives the hash of what it was made from and of what
follows, so that ``labkit build --check`` needs no node to tell a file that is older than its sources or was edited.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit.errors import LessonError
from labkit.lessons.drift import Drift

SOURCES, WRITTEN = Path("labkit", "widgets", "js"), Path("labkit", "widgets", "static")
_BUNDLER = SOURCES / "bundle.mjs"
_VERSIONS = SOURCES / "package-lock.json"
_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?from "(\.[^"]+)"(?: with \{[^}]*\})?;', re.MULTILINE)
_HEAD = re.compile(r'/\* Made by "labkit build" from \S+: sources ([0-9a-f]{16}), this ([0-9a-f]{16})\. \*/\n')
_CURE = "labkit build, on a machine with node"


def names(course: Path) -> list[str]:
    """Return the files that are made: one for each module and style sheet directly in the sources' folder."""
    found = (course / SOURCES).glob("*.*")
    return sorted(path.name for path in found if path.suffix in (".js", ".css"))


def sources(course: Path, name: str) -> list[Path]:
    """Return the module of this name and all that it imports, relative to the course."""
    found: list[Path] = []
    waiting = [course / SOURCES / name]
    while waiting:
        path = waiting.pop()
        if (own := path.relative_to(course.resolve())) not in found:
            found.append(own)
            waiting += [(path.parent / each).resolve() for each in _IMPORT.findall(path.read_text(encoding="utf-8"))]
    return sorted(found, key=Path.as_posix)


def drift(course: Path) -> Iterator[Drift]:
    """Yield what of the views' programs is not what its sources make; nothing where a course has no sources."""
    course = course.resolve()
    wanted = names(course)
    for name in wanted:
        path = course / WRITTEN / name
        if why := _wrong(course, path):
            yield Drift(path.relative_to(course).as_posix(), None, why, _CURE)
    if wanted:
        for path in sorted((course / WRITTEN).iterdir()):
            if path.name not in wanted:
                why = f"no file of this name is in {SOURCES.as_posix()}"
                yield Drift(path.relative_to(course).as_posix(), None, why, "remove the file")


def build(course: Path, say: Callable[[str], None]) -> list[str]:
    """Write those that are not what their sources make, and return their names; without node say so and write none.

    Raises:
        LessonError: If esbuild cannot be had or does not take the sources.
    """
    course = course.resolve()
    if not any(drift(course)):
        return []
    if shutil.which("node") is None:
        say(f"node is not on this machine: {WRITTEN.as_posix()} stays as it is, older than its sources.")
        return []
    written = []
    for name, made in _bundled(course).items():
        text = _head(course, name, made["text"]) + made["text"]
        path = course / WRITTEN / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            written.append(path.relative_to(course).as_posix())
    return written


def _wrong(course: Path, path: Path) -> str:
    """Return what is wrong with a file, or ""."""
    if not path.exists():
        return "is missing"
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    if head is None:
        return "does not say what it was made from"
    if head[2] != _hash(text[head.end() :]):
        return "was edited by hand"
    return "" if head[1] == _hash_of_sources(course, path.name) else "is not what its sources make"


def _head(course: Path, name: str, text: str) -> str:
    hashes = f"sources {_hash_of_sources(course, name)}, this {_hash(text)}"
    return f'/* Made by "labkit build" from ../{SOURCES.name}/{name}: {hashes}. */\n'


def _hash_of_sources(course: Path, name: str) -> str:
    """Return the hash of a file's sources, and of what joins them."""
    paths = [*sources(course, name), _BUNDLER, _VERSIONS]
    return _hash("\0".join(f"{path.as_posix()}\0{(course / path).read_text(encoding='utf-8')}" for path in paths))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _bundled(course: Path) -> dict[str, dict[str, Any]]:
    """Return what esbuild makes of the sources; it is fetched first where it is not there."""
    folder = course / SOURCES  # npm's files lie here: at the root, they would say how any program below it is read
    if not (folder / "node_modules" / "esbuild").exists():
        _run(folder, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])
    found: dict[str, dict[str, Any]] = json.loads(_run(folder, ["node", _BUNDLER.name]))
    for name, made in found.items():
        hashed = {path.as_posix() for path in sources(course, name)}
        if missed := {(SOURCES / each).as_posix() for each in made["sources"]} - hashed:
            raise LessonError(f"{name} was also joined from {sorted(missed)}, which its hash does not cover.")
    return found


def _run(folder: Path, command: list[str]) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise LessonError(f"`{' '.join(command)}` failed: {said.strip()}") from error
    return done.stdout
