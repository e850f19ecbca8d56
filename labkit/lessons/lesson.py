"""A lesson as plain data: its cells, its exercises, and what each cell is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from labkit.lessons.cuts import Cut
from labkit.lessons.manifest import Exercise, Manifest

TASKS = {"exercise": "build", "design": "design", "find": "find", "why": "why", "write": "write"}
"""Tags of cells in which a learner earns something, and what kind of exercise each is."""

CODE_TASKS = ("exercise", "design")
"""Those in which a learner writes functions that are run."""

KEYED = ("find", "why")
"""Those that hold one call of `labkit.answer`, which a key judges."""

ROLES = ("parameters", "given", *TASKS, "predict", "figure", "check", "solution", "slide-only", "stop")
MODIFIERS = ("slide", "no-slide", "nbval-ignore-output", "export")


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson's source.

    Attributes:
        id: Stable: from the exercise's slug where there is one, else from the content.
        kind: "markdown" or "code".
        source: As written, answers and markers included.
        student_source: The same with answers cut.
        tags: As written.
        exercise: The exercise that one of TASKS or a ``check`` cell belongs to.
        cuts: What was cut from it.
        line: Line of its ``# %%`` header in the source file, from 1.
        seconds: The most that running it takes on two cores, where its header declares it; else 0.
    """

    id: str
    kind: Literal["markdown", "code"]
    source: str
    student_source: str
    tags: tuple[str, ...]
    exercise: str | None
    cuts: tuple[Cut, ...]
    line: int
    seconds: int = 0

    @property
    def role(self) -> str | None:
        """What the cell is for: one of ROLES, or None for plain prose and demonstrations."""
        return next((tag for tag in self.tags if tag in ROLES), None)

    @property
    def is_code_exercise(self) -> bool:
        """Whether a learner writes functions here that are run: an ``exercise`` or a ``design``."""
        return self.role in CODE_TASKS


@dataclass(frozen=True)
class Lesson:
    """A lesson as its source describes it.

    Attributes:
        name: The file's stem, such as "02_ring_all_reduce".
        title: Its first heading.
        file: The source file's name for messages.
        cells: In order.
        exercises: In order.
        source_sha256: Hash of the source text.
        rubrics: By slug of a ``write``: what a reader gives points for, and how many. Instructors' alone.
    """

    name: str
    title: str
    file: str
    cells: tuple[Cell, ...]
    exercises: tuple[Exercise, ...]
    source_sha256: str
    rubrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The lesson's key, such as "ring_all_reduce"; the number before it in the name may change."""
        return self.name.partition("_")[2]

    @property
    def manifest(self) -> Manifest:
        """What the student notebook's metadata says of the lesson."""
        return Manifest(self.name, self.title, self.source_sha256, self.exercises)
