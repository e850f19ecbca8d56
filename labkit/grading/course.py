"""Where a lesson's pristine notebook, hidden cases and checks are, and what it is worth."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labkit.checks.predictions import Plain
from labkit.errors import ConfigError
from labkit.lessons.manifest import Manifest
from labkit.lessons.manifest import read as read_manifest
from labkit.slugs import names_lesson

if TYPE_CHECKING:
    from labkit.checks.exercise import Exercise

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Course:
    """One lesson of a course, seen by the grader.

    Attributes:
        root: The course's folder, with ``notebooks/`` and ``solutions/hidden/``.
        lesson: The lesson's number, "02".
        notebook: The notebook learners get.
        hidden: The module with the hidden cases.
        checks: A module of the course with exercises of its own (``checks/lesson_NN.py``), or None for labkit's.
    """

    root: Path
    lesson: str
    notebook: Path
    hidden: Path
    checks: Path | None

    @property
    def name(self) -> str:
        """The lesson's full name, "02_ring_all_reduce"."""
        return self.notebook.stem

    @cached_property
    def pristine(self) -> dict[str, Any]:
        """The notebook learners get, as JSON."""
        found = json.loads(self.notebook.read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        for cell in found["cells"]:
            cell["source"] = "".join(cell["source"])
        return found

    @cached_property
    def manifest(self) -> Manifest:
        """The lesson's exercises and points, out of the notebook's metadata."""
        return read_manifest(self.notebook)

    @cached_property
    def revealed(self) -> dict[str, Plain]:
        """What the executed solution shows beside each prediction, by the prediction's id; empty without a solution."""
        from labkit.grading.guesses import revealed

        path = self.root / "solutions" / self.notebook.name
        if not path.is_file():
            return {}
        return revealed(json.loads(path.read_text(encoding="utf-8"))["cells"])

    @property
    def secrets(self) -> tuple[Path, ...]:
        """What no submission may see, wherever it lies: answers, hidden cases, the course's own checks."""
        own = (self.hidden.parent, *([self.checks] if self.checks else []))
        return (*(self.root / name for name in ("solutions", "tests", "checks")), *own)

    def fingerprint(self, seed: int) -> str:
        """Return a hash of everything besides the submission that a score depends on."""
        digest = hashlib.sha256(f"labkit grading 1, seed {seed}\n".encode())
        files = [self.notebook, self.hidden, *([self.checks] if self.checks else [])]
        checks = (path for path in (_PACKAGE / "checks").rglob("*.py") if not self._of_another_lesson(path))
        files += [*sorted(checks), _PACKAGE / "words.py"]
        files += sorted((_PACKAGE / "plans").rglob("*.py")) + sorted((_PACKAGE / "grading").rglob("*.py"))
        for path in files:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()

    def _of_another_lesson(self, path: Path) -> bool:
        names = [part.removesuffix(".py") for part in path.relative_to(_PACKAGE).parts]
        return any(name.startswith("lesson_") and name != f"lesson_{self.lesson}" for name in names)


def find_course(lesson: str, course: str | Path | None = None) -> Course:
    """Return the lesson `lesson` (its number, slug or full name) of the course in the folder `course`.

    Args:
        lesson: Its number, slug or name.
        course: The course's folder; else the working folder or the one labkit is installed from, whichever has it.

    Raises:
        ConfigError: If there is no such lesson; the message says what was looked for and what there is.
    """
    roots = [Path(course)] if course is not None else [Path.cwd(), _PACKAGE.parent]
    for root in roots:
        notebooks = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
        found = [path for path in notebooks if names_lesson(path.stem, lesson)]
        number = found[0].stem[:2] if found else lesson
        hidden = root / "solutions" / "hidden" / f"lesson_{number}.py"
        if len(found) == 1 and hidden.is_file():
            checks = root / "checks" / f"lesson_{number}.py"
            return Course(root.resolve(), number, found[0], hidden, checks if checks.is_file() else None)
    root = roots[0]
    there = sorted(path.stem for path in (root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    raise ConfigError(
        f"lesson {lesson!r} cannot be graded from {root}: that takes one notebook of that number or name in notebooks/ "
        f"and its solutions/hidden/lesson_NN.py. Notebooks there: {', '.join(there) or 'none'}. "
        "Name the course's folder with --course."
    )


def load_exercises(lesson: str, checks: str | Path | None) -> dict[str, Exercise]:
    """Return a lesson's exercises by id; loads torch, so never in the grading process.

    Args:
        lesson: Its number.
        checks: The course's own module of exercises, which has ``EXERCISES``, or None for labkit's.
    """
    if not checks:
        from labkit.checks.registry import exercises

        return exercises(lesson)
    return {exercise.id: exercise for exercise in load_module(Path(checks), f"course_checks_{lesson}").EXERCISES}


def load_module(path: Path, name: str) -> ModuleType:
    """Return a Python file of the course as a module."""
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
