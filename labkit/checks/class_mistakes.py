"""Mistakes that an instructor has named for a class: known by fingerprints, asked where a check has no hint of its own.

labkit/exercises/LESSON/SLUG/mistakes.json    what `labkit mistake add` has kept; a release hands it out
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from labkit.checks.case import Failure
from labkit.checks.exercise import Exercise
from labkit.checks.fingerprint import CasePrint, Fingerprint, are_alike, fingerprint_of
from labkit.checks.kept_back import MISTAKES
from labkit.checks.outcome import CaseOutcome, explained
from labkit.checks.rooms import folder_of
from labkit.errors import ConfigError


@dataclass(frozen=True)
class ClassMistake:
    """A mistake of a class.

    Attributes:
        name: A few words, unique within the exercise.
        hint: A sentence or two that name it and point at the cure.
        fingerprints: One for each answer that it was added from.
    """

    name: str
    hint: str
    fingerprints: tuple[Fingerprint, ...]

    def left(self, fingerprint: Fingerprint) -> bool:
        """Return whether it leaves this behind."""
        return any(are_alike(each, fingerprint) for each in self.fingerprints)


def read_mistakes(room: Path) -> tuple[ClassMistake, ...]:
    """Return the mistakes that a class has named in an exercise.

    Args:
        room: The exercise's folder.

    Raises:
        ConfigError: If the file is not as `write_mistakes` leaves it.
    """
    path = room / MISTAKES
    if not path.is_file():
        return ()
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            ClassMistake(each["name"], each["hint"], tuple(map(_read, each["fingerprints"]))) for each in listed
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is not what `labkit mistake add` writes ({error!r}); restore it or delete it"
        ) from None


def write_mistakes(room: Path, mistakes: Sequence[ClassMistake]) -> Path:
    """Return the file in which the mistakes of an exercise are now."""
    listed = [
        {"name": each.name, "hint": each.hint, "fingerprints": [list(map(_plain, one)) for one in each.fingerprints]}
        for each in mistakes
    ]
    path = room / MISTAKES
    if not listed:
        path.unlink(missing_ok=True)
        return path
    path.write_text(json.dumps(listed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def with_class_hint(exercise: Exercise, outcomes: Sequence[CaseOutcome]) -> list[CaseOutcome]:
    """Return the outcomes, the explained one with a class mistake's hint where no declared mistake is recognised.

    Args:
        exercise: What was checked.
        outcomes: Of its visible cases.
    """
    shown = explained(exercise, outcomes)
    if shown is None or shown.verdict is None or shown.verdict.hint or isinstance(shown.got, Failure):
        return list(outcomes)
    fingerprint = fingerprint_of(outcomes)
    found = next((each for each in read_mistakes(folder_of(exercise.id)) if each.left(fingerprint)), None)
    if found is None:
        return list(outcomes)
    told = replace(shown, verdict=replace(shown.verdict, hint=found.hint, mistake=found.name))
    return [told if each is shown else each for each in outcomes]


def _plain(case: CasePrint | str) -> Any:
    return asdict(case) if isinstance(case, CasePrint) else case


def _read(cases: list[Any]) -> Fingerprint:
    return tuple(
        each if isinstance(each, str) else CasePrint(each["told"], tuple(map(tuple, each["sums"]))) for each in cases
    )
