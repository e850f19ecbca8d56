"""The gradebook's database: opened, brought to this labkit's layout, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import Engine, create_engine, event, func, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.orm import Session

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.book.lesson_keys import key_by_slug
from labkit.grading.book.tables import VERSION, About, Table

_Value = TypeVar("_Value")
_MARK = {"about", "attempts"}
"""Tables that every gradebook has had from the first."""


class Database:
    """Tables in SQLite by default, in PostgreSQL by URL."""

    def __init__(
        self, url: str, now: Callable[[], datetime] = lambda: datetime.now(UTC), *, preview: bool = False
    ) -> None:
        """Open the database, and make its tables where they are not there.

        A book of an older layout gets the tables it lacks, and keys its lessons by slug; all else stays as it is.

        Args:
            url: SQLAlchemy's, ``sqlite:///grades/book.db`` or ``postgresql+psycopg://user@host/name``.
            now: The clock.
            preview: What is written can be read back here, and is gone when the database is closed.

        Raises:
            ConfigError: If the URL cannot be read, or a newer labkit made the tables.
            EnvironmentProblem: If the database does not answer.
        """
        self._now = now
        self._only: Session | None = None
        try:
            parsed = make_url(url)
            self._shown = parsed.render_as_string(hide_password=True)
            self._engine = _engine(url)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise ConfigError(
                f"{url!r} cannot be opened as a database ({error}); write sqlite:///grades/book.db or "
                "postgresql+psycopg://user@host/name (the latter needs: pip install 'labkit-torch[postgresql]')"
            ) from None
        with ExitStack() as undo:
            undo.callback(self.close)
            with self._reached():
                self._refuse_foreign()
                version = self._with_tables()
            if version is not None and version > VERSION:
                raise ConfigError(
                    f"{self._shown} was made by a newer labkit (its layout is {version}, and this labkit knows up to "
                    f"{VERSION}); upgrade labkit"
                )
            if preview:
                self._only = Session(self._engine)
            undo.pop_all()  # it stays open

    def _refuse_foreign(self) -> None:
        """Return if the database is new or a gradebook; a file of another program stays as it is."""
        if self._engine.dialect.name != "sqlite":
            return  # a server's database may hold what it likes beside ours
        there = set(inspect(self._engine).get_table_names())
        if there and not there >= _MARK:
            raise ConfigError(
                f"{self._shown} is another program's database (it has the tables {', '.join(sorted(there)[:5])}), so "
                "nothing was written to it; name a new file for the gradebook"
            )

    def _with_tables(self) -> int | None:
        """Make what is not there, and return the layout it had before; once more where another made it meanwhile."""
        for last in (False, False, True):
            try:
                with self._engine.begin() as connection:
                    if connection.dialect.name == "sqlite":
                        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the second waits for the first
                    Table.metadata.create_all(connection)
                    with Session(connection) as session:
                        version = session.scalar(select(func.max(About.version)))
                        if version is None or version < VERSION:
                            if version is not None:
                                key_by_slug(session)
                            session.add(About(version=VERSION))
                        session.commit()
                return version
            except (IntegrityError, OperationalError, ProgrammingError) as error:
                if last or not re.search(r"already exists|duplicate|unique", str(error.orig), re.IGNORECASE):
                    raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Let go of the database; of a preview nothing is left."""
        if self._only is not None:
            self._only.rollback()
            self._only.close()
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session to read with; of a preview the one that is written with, too."""
        with self._reached():
            if self._only is not None:
                yield self._only
            else:
                with Session(self._engine) as session:
                    yield session

    def _write(self, add: Callable[[Session], _Value]) -> _Value:
        """Return what `add` returns, its rows written together; once more if another grader wrote the same first."""
        with self._reached():
            if self._only is not None:
                value = add(self._only)
                self._only.flush()
                return value
            for last in (False, True):
                try:
                    with Session(self._engine) as session, session.begin():
                        return add(session)
                except IntegrityError:
                    if last:
                        raise
            raise AssertionError("unreachable")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            raise EnvironmentProblem(
                f"the gradebook {self._shown} does not answer ({str(error.orig).strip()}); nothing in it was changed. "
                "Check that the server runs, or that the folder exists and has space"
            ) from None
        except SQLAlchemyError as error:
            raise EnvironmentProblem(
                f"the gradebook {self._shown} failed, and nothing in it was changed: {getattr(error, 'orig', error)}. "
                "Check that it is a gradebook that labkit wrote"
            ) from None


def _engine(url: str) -> Engine:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def _safe(connection: object, record: object) -> None:
            cursor = connection.cursor()  # type: ignore[attr-defined]
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.execute("PRAGMA busy_timeout=30000")  # milliseconds that a second grader waits for the first
            cursor.close()

    return engine
