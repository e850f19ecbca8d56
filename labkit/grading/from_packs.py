"""Which cells are answers of the packs that were handed out, and what they earn.

A cell is a pack's if its first line says so and its code is the pack's answer, names and comments aside; or if nothing
says so, but most of a pack's answer stands in what was handed in, and too much for chance (`reports.packs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import ConfigError
from labkit.grading.reports.packs import is_in
from labkit.grading.reports.similarity import tokens
from labkit.grading.score import ExerciseResult
from labkit.lessons.catching_up import MARK, Pack, read_pack


def read_packs(paths: Sequence[Path], lesson: str) -> tuple[Pack, ...]:
    """Return the packs of a lesson.

    Args:
        paths: Their files; packs of other lessons are passed over, for one list serves a course.
        lesson: The lesson's whole name.

    Raises:
        LessonError: If a file is no pack.
        ConfigError: If two packs of the lesson let the same exercise earn different shares.
    """
    packs = tuple(pack for pack in map(read_pack, paths) if pack.lesson == lesson)
    earns: dict[str, int] = {}
    for pack in packs:
        for exercise in pack.answers:
            if earns.setdefault(exercise, pack.earns) != pack.earns:
                raise ConfigError(
                    f"one pack lets {exercise} earn {earns[exercise]} %, another {pack.earns} %; name only the pack "
                    "you handed out"
                )
    return packs


def from_packs(
    results: Sequence[ExerciseResult], sources: Mapping[str, str], pristine: Mapping[str, Any], packs: Sequence[Pack]
) -> tuple[ExerciseResult, ...]:
    """Return the results, those of cells that a pack filled with what they earn.

    Args:
        results: What hidden cases said.
        sources: What was handed in for each exercise, by its slug.
        pristine: The notebook as it was handed out.
        packs: What was handed out of answers.
    """
    task = {str(cell["metadata"].get("labkit", {}).get("exercise")): cell["source"] for cell in pristine["cells"]}
    return tuple(_of_one(each, sources, task, packs) for each in results)


def _of_one(
    result: ExerciseResult, sources: Mapping[str, str], task: Mapping[str, str], packs: Sequence[Pack]
) -> ExerciseResult:
    slug = result.exercise.id
    source = sources.get(slug, "")
    marked = MARK.strip() in source
    for pack in packs:
        if slug not in pack.answers:
            continue
        same = marked and list(tokens(source)) == list(tokens(pack.answers[slug]))
        if same or is_in(pack.answers[slug], sources.values(), task.get(slug, "")):
            return replace(result, pack="answer", pack_earns=pack.earns)
    named = any(slug in pack.answers for pack in packs)
    return replace(result, pack="unnamed") if marked and not named else result
