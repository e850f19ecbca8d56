"""What is the same for all submissions of a run, told to every worker; and what is said where a worker is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.grading.course import Course
from labkit.grading.limits import Limits
from labkit.lessons.catching_up import Pack


@dataclass(frozen=True)
class Setting:
    """What all workers are told.

    Attributes:
        course: The lesson.
        out: Where reports go.
        key: The class key.
        limits: What a submission may use.
        alone: A file whose lock is held by whoever must not be disturbed.
        points_only: Leave the notebooks unexecuted.
        sandbox: "bubblewrap", or "none".
        second_run: Whether what stands on a mistake is run once more with reference answers.
        packs: Answers of the lesson that were handed out.
        drawn: What the keys of runs of one's own say, by submission and slug; empty where all look at the same runs.
        gpus: UUIDs of the GPUs that hidden cases run on, in turns; empty for the CPU.
    """

    course: Course
    out: Path
    key: bytes
    limits: Limits
    alone: Path
    points_only: bool = False
    sandbox: str = "bubblewrap"
    second_run: bool = True
    packs: tuple[Pack, ...] = ()
    gpus: tuple[str, ...] = ()
    drawn: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def opening(self) -> dict[str, Any]:
        """Return it as plain data for a worker's first frame; `setting_of` is the way back."""
        course = self.course
        return {
            "course": {
                "root": str(course.root),
                "lesson": course.lesson,
                "notebook": str(course.notebook.resolve()),
                "class_keys": str(course.class_keys.resolve()),
                "exercises": str(course.exercises.resolve()) if course.exercises else None,
            },
            "out": str(self.out),
            "key": self.key.hex(),
            "limits": asdict(self.limits),
            "alone": str(self.alone),
            "points_only": self.points_only,
            "sandbox": self.sandbox,
            "second_run": self.second_run,
            "packs": [asdict(pack) for pack in self.packs],
            "gpus": list(self.gpus),
            "drawn": {name: dict(keys) for name, keys in self.drawn.items()},
        }

    def fingerprint(self) -> str:
        """Return what tells results of this setting from those of any other (see Course.fingerprint)."""
        return self.course.fingerprint(self.key, self.second_run, self.packs, on_gpu=bool(self.gpus), drawn=self.drawn)

    @property
    def most_seconds(self) -> float:
        """The longest one submission can take where nothing is broken."""
        limits = self.limits
        return limits.notebook_seconds + limits.probe_seconds + 4 * limits.retry_seconds + 120


def setting_of(opening: Mapping[str, Any]) -> Setting:
    """Return what `Setting.opening` has told."""
    course = dict(opening["course"])
    paths = {name: Path(course[name]) for name in ("root", "notebook", "class_keys")}
    exercises = Path(course["exercises"]) if course["exercises"] else None
    return Setting(
        course=Course(lesson=course["lesson"], exercises=exercises, **paths),
        out=Path(opening["out"]),
        key=bytes.fromhex(opening["key"]),
        limits=Limits(**opening["limits"]),
        alone=Path(opening["alone"]),
        points_only=opening["points_only"],
        sandbox=opening["sandbox"],
        second_run=opening["second_run"],
        packs=tuple(Pack(**pack) for pack in opening["packs"]),
        gpus=tuple(opening["gpus"]),
        drawn=opening["drawn"],
    )


def lost_words(why: str, count: int) -> str:
    """Return what a student is told whose grader was ended `count` times."""
    return (
        f"The process that graded this {why} {count} times while your code ran, so nothing could be scored. "
        "Does a cell end or kill processes, or use up the memory?"
    )


def fault_words(error: str) -> str:
    """Return what a student is told where the grader itself failed."""
    return f"The grader itself failed on this submission ({error}). This is not your fault; it must be graded again."
