"""A gradebook is opened by several at once, and never in another program's file."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from labkit.errors import ConfigError
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.reports.results import GradedExercise, GradedSubmission

AT_ONCE = 6


@pytest.mark.in_turn
def test_first_recordings_on_a_new_gradebook_wait_for_each_other(tmp_path: Path) -> None:
    for attempt in range(5):
        together = threading.Barrier(AT_ONCE)
        url = f"sqlite:///{tmp_path / f'book{attempt}.db'}"

        def record(number: int, url: str = url, together: threading.Barrier = together) -> int:
            ring = GradedExercise("ring", 12, 12, "passed")
            mine = GradedSubmission(f"student {number}", "02_ring_all_reduce", "a" * 64, "c" * 64, (ring,))
            together.wait()
            opened = Gradebook(url)
            try:
                return opened.record([mine]).new_attempts
            finally:
                opened.close()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            assert list(pool.map(record, range(AT_ONCE))) == [1] * AT_ONCE
        opened = Gradebook(url)
        assert len(opened.grades("ring_all_reduce")) == AT_ONCE
        opened.close()


@pytest.mark.parametrize("tables", [["photos"], ["about", "pages"], ["marks"], ["class", "learner", "result"]])
def test_another_programs_file_stays_as_it_is(tmp_path: Path, tables: list[str]) -> None:
    path = tmp_path / "photos.db"
    with closing(sqlite3.connect(path)) as other:
        for table in tables:
            other.execute(f"CREATE TABLE {table} (name TEXT)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"is another program's database \(it has the tables .*\), so nothing was"):
        Gradebook(f"sqlite:///{path}")
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["photos.db"]
