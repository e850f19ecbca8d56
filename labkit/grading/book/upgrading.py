"""A gradebook of the first edition, whose marks are by number, made one of this edition, by slug."""

from __future__ import annotations

from sqlalchemy import create_engine, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from labkit.errors import EnvironmentProblem
from labkit.grading.book.database import Database
from labkit.grading.book.opening import book_url, refuse_missing
from labkit.grading.book.tables import Mark
from labkit.lessons.first_edition import SLUGS


def upgrade_book(book: str) -> str:
    """Rename the marks of a gradebook, all or none, and return in words how many; again, it finds none.

    Points, times, reasons and adjustments stay as they are.

    Args:
        book: A file, or SQLAlchemy's URL.

    Raises:
        ConfigError: If there is no such file.
        EnvironmentProblem: If the database fails; it is then as it was.
    """
    refuse_missing(book)
    url = book_url(book)
    Database(url).close()  # brings tables and the keys of lessons to this layout
    engine = create_engine(url)
    try:
        with Session(engine) as session, session.begin():
            if engine.dialect.name == "postgresql":  # numbers were shorter than slugs
                session.execute(text("ALTER TABLE marks ALTER COLUMN exercise TYPE VARCHAR(60)"))
            names = set(session.scalars(select(Mark.exercise).distinct())) & SLUGS.keys()
            num_marks = 0
            for number in sorted(names):
                rows = session.scalars(select(Mark.id).where(Mark.exercise == number)).all()
                session.execute(update(Mark).where(Mark.exercise == number).values(exercise=SLUGS[number]))
                num_marks += len(rows)
    except SQLAlchemyError as error:
        raise EnvironmentProblem(f"the gradebook {book} failed, and nothing in it was changed: {error}") from None
    finally:
        engine.dispose()
    return f"{num_marks} marks of {len(names)} exercises now have the exercises' names."
