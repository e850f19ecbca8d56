"""The lists by which tests/conftest.py orders and groups files name files that are there."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST_FIRST, ONE_JUPYTERLAB

ROOT = Path(__file__).parents[2]


def test_every_file_that_is_ordered_or_grouped_is_there() -> None:
    assert not [file for file in {*LONGEST_FIRST, *ONE_JUPYTERLAB} if not (ROOT / file).is_file()]
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
