"""The table of what runs on the virtual cluster: every row is held by a test that is there."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made_pages() -> Any:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import made_pages
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return made_pages


def test_every_row_has_its_test_and_what_is_not_right_has_its_reason(made_pages: Any) -> None:
    rows = tomllib.loads((ROOT / "docs" / "what_runs.toml").read_text())["row"]
    assert rows and made_pages.what_runs_problems(rows) == []


def test_a_row_without_a_test_or_a_reason_is_named(made_pages: Any) -> None:
    rows = [
        {"what": "one", "outcome": "right", "test": "docs/test_what_runs.py::test_that_is_not_there"},
        {"what": "two", "outcome": "refused", "test": "docs/test_what_runs.py::made_pages"},
        {"what": "three", "outcome": "wrong", "test": "docs/test_what_runs.py::made_pages"},
    ]
    words = ("one: there is no test", "two: what is right needs no reason", "three: the outcome wrong is none of")
    assert all(text.startswith(part) for text, part in zip(made_pages.what_runs_problems(rows), words, strict=True))
