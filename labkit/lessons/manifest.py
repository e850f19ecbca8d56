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
        id: Its slug, such as "chunk_bounds": unique in the course, and the same wherever it stands.
        title: A few words that name the task.
        provides: The functions or classes the exercise's cell defines.
        points: What a right answer earns.
        difficulty: 1 (easy) to 5.
        importance: 1 (an aside) to 5 (what follows stands on it).
        minutes: What a learner needs for it, about.
        bonus: True if its points come on top of the lesson's full marks.
        number: What people call it by, the lesson's number and its position there: "2.3". No key.
        needs: Earlier exercises of the lesson that its answer stands on.
        weights: For partial credit: what each hidden case weighs, in their order; () for all or nothing.
        kind: What a learner does: "build" or "design" code, "find" something in a recorded run, say "why", "write".
    """

    id: str
    title: str
    provides: tuple[str, ...]
    points: int
    difficulty: int
    importance: int
    minutes: int
    bonus: bool = False
    number: str = ""
    needs: tuple[str, ...] = ()
    kind: str = "build"
    weights: tuple[int, ...] = ()

    @property
    def is_code(self) -> bool:
        """Whether what is handed in is run: functions, and no words or literals."""
        return self.kind in ("build", "design")

    @property
    def name(self) -> str:
        """Its number and title, as people read it: "2.3 Chunk bounds"."""
        return f"{self.number or self.id} {self.title}"


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

    def number(self, exercise_id: str) -> str:
        """Return what people call an exercise by, "2.3"; a key that the lesson does not have stands for itself."""
        return next((each.number for each in self.exercises if each.id == exercise_id and each.number), exercise_id)

    def as_metadata(self) -> dict[str, Any]:
        """Return the manifest as plain JSON values, the ``labkit`` entry of a notebook's metadata."""
        plain = asdict(self)
        for exercise in plain["exercises"]:
            exercise |= {"provides": list(exercise["provides"]), "needs": list(exercise["needs"])}
            if exercise["kind"] == "build":
                del exercise["kind"]
            if weights := exercise.pop("weights"):
                exercise["weights"] = list(weights)
        plain["exercises"] = list(plain["exercises"])
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
        raise LessonError(f"{where} has no labkit manifest; use a notebook that `labkit build` wrote.")
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


_OPTIONAL: dict[str, Any] = {"needs": [], "kind": "build", "weights": []}
_TYPES: dict[str, type] = {
    "id": str,
    "number": str,
    "needs": list,
    "title": str,
    "provides": list,
    "points": int,
    "difficulty": int,
    "importance": int,
    "minutes": int,
    "bonus": bool,
    "kind": str,
    "weights": list,
}


def _exercise(plain: object, where: str) -> Exercise:
    if not isinstance(plain, Mapping):
        raise LessonError(
            f"{where}: an exercise in the manifest is {type(plain).__name__}, not an object; rebuild the notebook."
        )
    whole = _OPTIONAL | dict(plain)
    values = {field.name: _expect(whole, field.name, _TYPES[field.name], where) for field in fields(Exercise)}
    for listed in ("provides", "needs"):
        if not all(isinstance(name, str) for name in values[listed]):
            raise LessonError(
                f"{where}: the manifest's {listed!r} of exercise {values['id']} must hold only names; rebuild the "
                "notebook."
            )
    if not all(isinstance(each, int) and each > 0 for each in values["weights"]):
        raise LessonError(
            f"{where}: the manifest's 'weights' of exercise {values['id']} must hold only whole numbers; rebuild the "
            "notebook."
        )
    return Exercise(**(values | {name: tuple(values[name]) for name in ("provides", "needs", "weights")}))


def _expect(plain: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = plain.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise LessonError(f"{where}: the manifest's {name!r} is {value!r}, not {kind.__name__}; rebuild the notebook.")
    return value
