"""A gradebook keeps lessons by slug: it outlives that the course numbers them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from labkit.errors import ConfigError
from labkit.grading.book.commands import lesson_named
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.reports.results import GradedExercise, GradedSubmission


def graded(lesson: str, sha256: str = "a", points: float = 4) -> GradedSubmission:
    return GradedSubmission("ada", lesson, sha256, "c", (GradedExercise("bucket_plan", points, 8, "passed"),))


def test_marks_recorded_under_one_number_are_there_under_the_next(tmp_path: Path) -> None:
    book = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    book.record([graded("03_ddp")])
    book.adjust("03_ddp", "ada", 1, "told the class")
    assert book.record([graded("04_ddp")]).new_attempts == 0
    assert book.lessons() == ["ddp"]
    for name in ("03_ddp", "04_ddp", "ddp"):
        (ada,) = book.grades(name)
        assert (ada.score, ada.num_attempts, lesson_named(book, name)) == (5, 1, "ddp")
    book.close()


def test_a_number_is_that_of_the_course_here_and_no_longer_what_it_once_was(tmp_path: Path) -> None:
    book = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    book.record([graded("07_ring_all_reduce")])
    assert lesson_named(book, "02") == lesson_named(book, "2") == "ring_all_reduce"
    with pytest.raises(ConfigError, match="no lesson '99': the gradebook has ring_all_reduce"):
        lesson_named(book, "99")
    book.close()


def test_a_request_pasted_from_a_page_with_the_old_number_finds_its_file(tmp_path: Path) -> None:
    book = Gradebook(f"sqlite:///{tmp_path / 'book.db'}")
    book.record([graded("04_ddp", "12345678" + "0" * 56)])
    asked = book.ask('labkit-regrade 03_ddp bucket_plan "ada" 12345678: it was right')
    assert [each.id for each in book.requests("ddp")] == [asked.id]
    book.close()


def book_of_layout_2(path: Path) -> str:
    """Return the URL of a book whose lessons are "03_ddp" and, for what was graded after the change, "04_ddp"."""
    url = f"sqlite:///{path}"
    made = Gradebook(url)
    made.record([graded("ddp", "a", 4), graded("ddp", "b", 6)])
    made.adjust("ddp", "ada", 1, "an oral")
    made.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in (
            "DELETE FROM about",
            "INSERT INTO about VALUES (2)",
            "UPDATE attempts SET lesson = '03_ddp'",
            "UPDATE attempts SET lesson = '04_ddp', submission_sha256 = 'a' WHERE submission_sha256 = 'b'",
            "UPDATE adjustments SET lesson = '03_ddp'",
        ):
            connection.execute(text(statement))
    engine.dispose()
    return url


def test_a_book_of_layout_2_gets_slugs_and_one_file_under_two_numbers_is_one_attempt(tmp_path: Path) -> None:
    url = book_of_layout_2(tmp_path / "book.db")
    for _ in range(2):
        book = Gradebook(url)
        (ada,) = book.grades("04_ddp")
        assert (book.lessons(), ada.num_attempts, ada.score) == (["ddp"], 1, 7)  # the later mark counts, and the oral
        assert any("regraded in attempt 1: 4 to 6" in words for _, words in book.history("ddp", "ada"))
        book.close()
