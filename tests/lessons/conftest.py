"""A small course of one lesson, built once and copied for each test that changes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labkit.lessons.build import build

SOURCE = Path(__file__).parent / "fixtures" / "03_mean_over_ranks.py"


@pytest.fixture
def source_text() -> str:
    return SOURCE.read_text(encoding="utf-8")


@pytest.fixture
def unbuilt(tmp_path: Path) -> Path:
    """A course that holds one source and nothing made from it."""
    course = tmp_path / "course"
    (course / "solutions").mkdir(parents=True)
    shutil.copy(SOURCE, course / "solutions")
    return course


@pytest.fixture(scope="session")
def _built_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    course = tmp_path_factory.mktemp("built") / "course"
    (course / "solutions").mkdir(parents=True)
    shutil.copy(SOURCE, course / "solutions")
    build(course)
    return course


@pytest.fixture
def course(_built_once: Path, tmp_path: Path) -> Path:
    """A built course of one's own."""
    return Path(shutil.copytree(_built_once, tmp_path / "course"))
