"""The manifest of a lesson: its exercises and their points, carried in the student notebook's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from labkit.errors import LessonError


@dataclass(frozen=True)
class Exercise:
    """One exercise of a lesson, as its source declares it.

    Attributes:
        id: Lesson and position, such as "2.3".
        title: A few words that name the task.
        provides: The functions or classes the exercise's cell defines.
        points: What a right answer earns.
        difficulty: 1 (easy) to 5.
        importance: 1 (an aside) to 5 (what follows stands on it).
        minutes: What a learner needs for it, about.
        bonus: True if its points come on top of the lesson's full marks.
    """

    id: str
    title: str
    provides: tuple[str, ...]
    points: int
    difficulty: int
    importance: int
    minutes: int
    bonus: bool = False


@dataclass(frozen=True)
class Manifest:
    """What graders and checks know of a lesson without its source.

    Attributes:
        lesson: The lesson's name, such as "02_ring_all_reduce".
        title: The lesson's heading.
        source_sha256: Hash of the source text the notebook was made from.
        exercises: In the order of the notebook.
    """

    lesson: str
    title: str
    source_sha256: str
    exercises: tuple[Exercise, ...]

    @property
    def points(self) -> int:
        """Full marks: the points of all exercises that are not bonus."""
        return sum(exercise.points for exercise in self.exercises if not exercise.bonus)

    def exercise(self, exercise_id: str) -> Exercise:
        """Return the exercise of this id.

        Raises:
            LessonError: If the lesson has none of that id; the message lists those it has.
        """
        for exercise in self.exercises:
            if exercise.id == exercise_id:
                return exercise
        known = ", ".join(exercise.id for exercise in self.exercises) or "none"
        raise LessonError(f"{self.lesson} has no exercise {exercise_id!r}; it has {known}.")

    def as_metadata(self) -> dict[str, Any]:
        """Return the manifest as plain JSON values, the ``labkit`` entry of a notebook's metadata."""
        plain = asdict(self)
        plain["exercises"] = [asdict(exercise) | {"provides": list(exercise.provides)} for exercise in self.exercises]
        return plain


def from_metadata(metadata: Mapping[str, Any], where: str) -> Manifest:
    """Return the manifest held in a notebook's metadata.

    Args:
        metadata: The whole metadata of the notebook.
        where: The notebook's name for messages.

    Raises:
        LessonError: If there is no manifest, or a field is missing or of the wrong type.
    """
    plain = metadata.get("labkit")
    if not isinstance(plain, Mapping):
        raise LessonError(f"{where} carries no labkit manifest; use a notebook that `labkit build` wrote.")
    for name in ("lesson", "title", "source_sha256"):
        _expect(plain, name, str, where)
    listed = _expect(plain, "exercises", list, where)
    return Manifest(
        lesson=plain["lesson"],
        title=plain["title"],
        source_sha256=plain["source_sha256"],
        exercises=tuple(_exercise(each, where) for each in listed),
    )


def read(notebook: Path) -> Manifest:
    """Return the manifest of a notebook file.

    Raises:
        LessonError: If the file is no notebook or carries no manifest.
    """
    try:
        content = json.loads(notebook.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LessonError(f"There is no notebook {notebook}; `labkit build` writes it from solutions/.") from None
    except ValueError as error:
        raise LessonError(f"{notebook} is not a notebook: {error}.") from error
    metadata = content.get("metadata") if isinstance(content, dict) else None
    return from_metadata(metadata if isinstance(metadata, dict) else {}, str(notebook))


_TYPES: dict[str, type] = {
    "id": str,
    "title": str,
    "provides": list,
    "points": int,
    "difficulty": int,
    "importance": int,
    "minutes": int,
    "bonus": bool,
}


def _exercise(plain: object, where: str) -> Exercise:
    if not isinstance(plain, Mapping):
        raise LessonError(f"{where}: an exercise in the manifest is {type(plain).__name__}, not an object.")
    values = {field.name: _expect(plain, field.name, _TYPES[field.name], where) for field in fields(Exercise)}
    if not all(isinstance(name, str) for name in values["provides"]):
        raise LessonError(f"{where}: the manifest's 'provides' of exercise {values['id']} holds more than names.")
    return Exercise(**(values | {"provides": tuple(values["provides"])}))


def _expect(plain: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = plain.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise LessonError(f"{where}: the manifest's {name!r} is {value!r}, not {kind.__name__}; rebuild the notebook.")
    return value
