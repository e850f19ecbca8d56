"""The table of the first edition's numbers covers every exercise that has grown out of it."""

from __future__ import annotations

import ast
from pathlib import Path

from labkit.lessons import first_edition
from labkit.lessons.source import load
from labkit.slugs import is_slug

ROOT = Path(__file__).parents[2]
LESSONS = [load(path) for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))]


def test_every_number_means_an_exercise_of_its_own() -> None:
    slugs = first_edition.SLUGS
    assert len(slugs) == len(set(slugs.values())) == 74 and all(map(is_slug, slugs.values()))
    not_retold = [lesson for lesson in LESSONS if lesson.slug in first_edition.NOT_RETOLD]
    assert {exercise.id for lesson in not_retold for exercise in lesson.exercises if exercise.is_code} <= set(
        slugs.values()
    )


def test_nothing_else_of_labkit_knows_the_old_numbers() -> None:
    for path in (ROOT / "labkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = {f"{node.module}.{each.name}" for each in node.names}
                assert "labkit.lessons.first_edition.SLUGS" not in names or path.stem == "upgrading", path
                assert "labkit.lessons.first_edition" not in names, path
