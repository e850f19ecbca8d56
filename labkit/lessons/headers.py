"""The header of an exercise's cell: which attributes each kind has, and what to write."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.lessons.lesson import TASKS
from labkit.lessons.manifest import Exercise
from labkit.slugs import is_slug

_COMMON: dict[str, tuple[type, str]] = {  # type, and what to write
    "exercise": (str, '"chunk_bounds"'),
    "title": (str, '"Chunk bounds"'),
    "points": (int, "6"),
    "difficulty": (int, "2"),
    "importance": (int, "5"),
    "minutes": (int, "6"),
    "bonus": (bool, "true"),
    "needs": (list, '["chunk_bounds"]'),
}
_PROVIDES = {"provides": (list, '["chunk_bounds"]'), "weights": (list, "[3, 2, 1]")}
_RUBRIC = {"rubric": (dict, '{"names the late rank": 2, "says what the others wait for": 2}')}
ATTRIBUTES: dict[str, dict[str, tuple[type, str]]] = {
    "exercise": _COMMON | _PROVIDES,
    "design": _COMMON | _PROVIDES,
    "find": _COMMON,
    "why": _COMMON,
    "write": {name: kind for name, kind in _COMMON.items() if name != "points"} | _RUBRIC,
}
"""By the cell's tag. What a ``write`` is worth follows from its rubric.

With ``weights`` (one for each hidden case, in their order) an exercise earns part of its points; without, all or none.
"""

_DEFAULTS: dict[str, Any] = {"bonus": False, "needs": [], "weights": []}
_QUESTION = _DEFAULTS | {"difficulty": 2, "importance": 4}
_DEFAULT_OF = {"find": _QUESTION, "write": _QUESTION, "why": _QUESTION | {"points": 0, "minutes": 1}}


class HeaderError(ValueError):
    """A header is not what the cell's tag asks for."""


def exercise_of(tag: str, written: Mapping[str, Any], number: str, above: Sequence[str]) -> Exercise:
    """Return the exercise that a cell's header declares.

    Args:
        tag: The cell's, one of TASKS.
        written: The header's attributes.
        number: What people will call it by, "2.4".
        above: Slugs of the exercises above it.

    Raises:
        HeaderError: If an attribute is missing, unknown, or of the wrong type; the message says what to write.
    """
    slug = written.get("exercise")
    if not slug:
        raise HeaderError(f'{_a(tag)} cell without an id; add exercise="chunk_bounds".')
    attributes = ATTRIBUTES[tag]
    refuse_unknown(written, tuple(attributes), tag)
    values = dict(_DEFAULT_OF.get(tag, _DEFAULTS)) | dict(written)
    for name, (kind, example) in attributes.items():
        value = values.get(name)
        if value is None:
            raise HeaderError(f"exercise {slug} without {name}; add {name}={example}.")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise HeaderError(f"exercise {slug} has {name}={value!r}; write {name}={example}.")
    if not is_slug(slug):
        raise HeaderError(f"exercise {slug!r}; write a slug such as chunk_bounds, the number is computed.")
    if slug in above:
        raise HeaderError(f"a second exercise {slug}; each needs its own slug.")
    for need in values["needs"]:
        if need not in above:
            there = ", ".join(above) or "none"
            raise HeaderError(f"exercise {slug} needs {need!r}, which is not above it; above are {there}.")
    if not all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in values["weights"]):
        raise HeaderError(
            f"exercise {slug} has weights={values['weights']!r}; write a whole number above 0 for each case."
        )
    rubric = values.pop("rubric", {})
    if tag == "write":
        values["points"] = _points(slug, rubric)
    del values["exercise"]
    names = {name: tuple(values.get(name, ())) for name in ("provides", "needs", "weights")}
    exercise = Exercise(id=slug, number=number, kind=TASKS[tag], **(values | names))
    if exercise.points < 0 or not 1 <= exercise.difficulty <= 5 or not 1 <= exercise.importance <= 5:
        raise HeaderError(f"exercise {slug}: points are 0 or more, difficulty and importance 1 to 5.")
    return exercise


def _points(slug: str, rubric: Mapping[str, object]) -> int:
    """Return the sum of a rubric's points."""
    points = [each for each in rubric.values() if isinstance(each, int) and not isinstance(each, bool) and each > 0]
    if not rubric or len(points) != len(rubric):
        raise HeaderError(f"exercise {slug} has rubric={dict(rubric)!r}; write rubric={_RUBRIC['rubric'][1]}.")
    return sum(points)


def refuse_unknown(written: Mapping[str, Any], allowed: Sequence[str], role: str | None) -> None:
    """Return if every attribute is among those allowed.

    Raises:
        HeaderError: At the first that is not.
    """
    for name in written:
        if name not in allowed:
            raise HeaderError(
                f"unknown attribute {name!r} in the header of {_a(role or 'plain')} cell"
                f"{nearest(name, allowed)}; {'known: ' + ', '.join(allowed) if allowed else 'remove it'}."
            )


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def nearest(name: str, known: Sequence[str]) -> str:
    """Return " (did you mean 'x'?)" where one of the known names is near, else ""."""
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
