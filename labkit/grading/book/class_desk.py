"""The class page with boxes to write into: comments and answers are in the gradebook as soon as they are sent."""

from __future__ import annotations

import secrets

import tornado.web

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.book.class_lines import class_lines
from labkit.grading.book.gradebook import Gradebook
from labkit.grading.book.headings import lesson_title
from labkit.grading.book.mark_page import mark_page
from labkit.grading.reports.class_page import class_page
from labkit.grading.review.own_machine import OwnHandler

_LINK = r"/class/([\w-]{1,64})"


class ClassDesk:
    """A lesson of a gradebook, looked at and written to by whoever grades.

    Args:
        book: The gradebook.
        lesson: Whole name.
        keep: Which attempt counts.
    """

    def __init__(self, book: Gradebook, lesson: str, keep: str) -> None:
        self.token = secrets.token_urlsafe(16)
        self._book, self._lesson, self._keep = book, lesson, keep
        self._title = lesson_title(lesson)
        self._grades = book.grades(lesson, keep)

    @property
    def path(self) -> str:
        """Where the class page is."""
        return f"/class/{self.token}/"

    def page(self) -> bytes:
        """Return the class page as the gradebook is now."""
        self._grades = self._book.grades(self._lesson, self._keep)
        pages = {grade.student: str(number) for number, grade in enumerate(self._grades)}
        return class_page(class_lines(self._book, self._lesson, self._grades, pages), self._title, desk=True)

    def student(self, number: int) -> bytes:
        """Return a student's page, with boxes.

        Raises:
            ConfigError: If there is nobody of this number.
        """
        return mark_page(self._book, self._lesson, self._grades[self._known(number)], self._title, desk=True)

    def comment(self, number: int, exercise: str, words: str) -> None:
        """Keep a comment to a student, about an exercise or ("") all of it.

        Raises:
            ConfigError: If it is empty, or there is nobody of this number.
        """
        self._book.comment(self._lesson, self._grades[self._known(number)].student, exercise, words)

    def answer(self, number: int, request: str, words: str, points: str) -> None:
        """Answer a student's request.

        Raises:
            ConfigError: If it is empty, not this student's, or the points are no number.
        """
        student = self._grades[self._known(number)].student
        mine = {str(each.id): each.id for each in self._book.requests(self._lesson) if each.student == student}
        try:
            given = float(points or 0)
        except ValueError:
            raise ConfigError(f"{points!r} is not a number of points") from None
        if request not in mine:
            raise ConfigError(f"{student} has no request {request}")
        self._book.answer(mine[request], words, given)
        self._grades = self._book.grades(self._lesson, self._keep)

    def _known(self, number: int) -> int:
        if number >= len(self._grades):
            raise ConfigError(f"this class has {len(self._grades)} students; load its page again")
        return number

    def application(self) -> tornado.web.Application:
        """Return what serves it."""
        own = {"desk": self}
        return tornado.web.Application(
            [(f"{_LINK}/", _Class, own), (rf"{_LINK}/(\d{{1,6}})", _Student, own)], log_function=lambda handler: None
        )


class _Handler(OwnHandler):
    command = "labkit gradebook page"

    def initialize(self, desk: ClassDesk) -> None:
        """Remember the desk; its pages say themselves what they may load."""
        self.desk, self.token = desk, desk.token
        self.set_header("Content-Security-Policy", "frame-ancestors 'self'")
        self.set_header("Referrer-Policy", "same-origin")  # else a form does not say which page sends it


class _Class(_Handler):
    def get(self, _: str) -> None:
        self.finish(self.desk.page())


class _Student(_Handler):
    def get(self, _: str, number: str) -> None:
        try:
            self.finish(self.desk.student(int(number)))
        except ConfigError as error:
            self.refuse(404, str(error))

    def post(self, _: str, number: str) -> None:
        exercise, words = self.get_body_argument("exercise", ""), self.get_body_argument("words", "")
        request = self.get_body_argument("request", "")
        try:
            if request:
                self.desk.answer(int(number), request, words, self.get_body_argument("points", ""))
            else:
                self.desk.comment(int(number), exercise, words)
        except ConfigError as error:
            self.refuse(400, str(error))
        except EnvironmentProblem as error:
            self.refuse(500, str(error))
        else:
            self.redirect(f"{number}#{exercise}" if exercise else number, status=303)
