"""Which earlier exercises an answer stands on, read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from labkit.lessons import code
from labkit.lessons.lesson import Lesson
from labkit.lessons.reach import definitions


def needs_of(lesson: Lesson, called_with: Mapping[str, Sequence[str]] | None = None) -> dict[str, tuple[str, ...]]:
    """Return for each exercise the earlier ones whose functions or classes its answer uses, in the lesson's order.

    What an answer uses through a given cell counts; what it uses through another exercise is that exercise's need.

    Args:
        lesson: With its answers.
        called_with: For an exercise, names of the notebook that are handed to its answer when it is checked.
    """
    providers = {name: exercise.id for exercise in lesson.exercises for name in exercise.provides}
    given = [statement for cell in lesson.cells if cell.role == "given" for statement in code.body(cell.source)]
    found: dict[str, tuple[str, ...]] = {}
    earlier: list[str] = []
    for cell in lesson.cells:
        if not cell.is_code_exercise or cell.exercise is None:
            continue
        own = code.body(cell.source)
        defined = definitions(given) | definitions(own)
        waiting = {name for statement in own for name in _names(statement)} | set(
            (called_with or {}).get(cell.exercise, ())
        )
        used: set[str] = set()
        while waiting:
            name = waiting.pop()
            used.add(name)
            if name in defined:
                waiting |= _names(defined[name]) - used
        wanted = {providers[name] for name in used if name in providers}
        found[cell.exercise] = tuple(each for each in earlier if each in wanted)
        earlier.append(cell.exercise)
    return found


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
