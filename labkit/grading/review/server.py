"""The page of `labkit review`: tornado on this machine alone; who has the link's token may read and give points."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import tornado.web

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.review.own_machine import OwnHandler
from labkit.grading.review.questions import Answer, Question
from labkit.grading.review.readings import Reading, Readings

PAGE = Path(__file__).with_name("review.html")
MOST_LETTERS = 200


class Review:
    """What is being read, and what was given; the last gifts can be taken back.

    Args:
        questions: To be read.
        readings: Where points go.
        who: Who reads.
    """

    def __init__(self, questions: tuple[Question, ...], readings: Readings, who: str) -> None:
        self.token = secrets.token_urlsafe(16)
        self._questions = [readings.with_items(question) for question in questions]
        self._readings, self._who = readings, who
        self._answers = {
            each.id: (at, each) for at, question in enumerate(self._questions) for each in question.answers
        }
        self._given = {answer: each for question in self._questions for answer, each in readings.of(question).items()}
        self._before: list[tuple[str, Reading | None]] = []

    def state(self) -> dict[str, Any]:
        """Return what the page shows: no name of anybody who wrote."""
        return {
            "who": self._who,
            "questions": [
                {
                    "title": question.title,
                    "asked": question.asked,
                    "rubric": list(question.rubric.items()),
                    "full": question.full,
                    "model": question.model,
                    "answers": [
                        {"id": each.id, "text": each.text, "count": len(each.whose), "given": self._shown(each)}
                        for each in question.answers
                    ],
                }
                for question in self._questions
            ],
            "undo": bool(self._before),
        }

    def _shown(self, answer: Answer) -> dict[str, Any] | None:
        given = self._given.get(answer.id)
        return {"items": given.items, "who": given.who, "comment": given.comment} if given else None

    def give(self, answer_id: object, items: object, comment: object = "") -> None:
        """Give an answer its points, and whoever wrote it a comment.

        Raises:
            ConfigError: If there is no such answer or no such item of its rubric, or the comment is no text.
        """
        found = self._answers.get(answer_id) if isinstance(answer_id, str) else None
        if found is None:
            raise ConfigError("there is no such answer")
        at, answer = found
        question = self._questions[at]
        count = len(question.rubric)
        if not isinstance(items, list) or any(type(each) is not int or not 0 <= each < count for each in items):
            raise ConfigError(f"items of this rubric are numbers from 0 to {count - 1}")
        if not isinstance(comment, str):
            raise ConfigError("a comment is a text")
        reading = Reading(tuple(sorted(set(items))), self._who, comment.strip())
        self._readings.give(question, answer, reading)
        self._before.append((answer.id, self._given.get(answer.id)))
        self._given[answer.id] = reading

    def add_item(self, question: object, words: object, points: object) -> None:
        """Add an item to a question's rubric; everybody who reads it has it from then on.

        Raises:
            ConfigError: If there is no such question, or the item has no words of its own or no points.
        """
        if type(question) is not int or not 0 <= question < len(self._questions):
            raise ConfigError("there is no such question")
        asked = self._questions[question]
        if not isinstance(words, str) or not 0 < len(words.strip()) <= MOST_LETTERS or not words.isprintable():
            raise ConfigError(f"an item is one line of 1 to {MOST_LETTERS} letters")
        if words.strip() in asked.rubric:
            raise ConfigError(f"the rubric has {words.strip()!r} already")
        if type(points) is not int or not -asked.full <= points <= asked.full:
            raise ConfigError(f"an item is worth a whole number of points, {-asked.full} to {asked.full}")
        self._questions[question] = self._readings.add_item(asked, words.strip(), points, self._who)

    def undo(self) -> str:
        """Take the last gift back, and return whose answer it was, "" where there is none."""
        if not self._before:
            return ""
        answer_id, before = self._before[-1]
        at, answer = self._answers[answer_id]
        self._readings.give(self._questions[at], answer, before)
        self._before.pop()
        if before is None:
            self._given.pop(answer_id, None)
        else:
            self._given[answer_id] = before
        return answer_id

    def application(self) -> tornado.web.Application:
        """Return what serves it."""
        own: dict[str, Any] = {"review": self}
        paths = ((r"/r/([\w-]{1,64})", _Page), (r"/r/([\w-]{1,64})/state", _State), (r"/r/([\w-]{1,64})/give", _Give),
                 (r"/r/([\w-]{1,64})/item", _Item), (r"/r/([\w-]{1,64})/undo", _Undo))  # fmt: skip
        return tornado.web.Application(
            [(path, handler, own) for path, handler in paths], log_function=lambda handler: None
        )


class _Reviewing(OwnHandler):
    command = "labkit review"

    def initialize(self, review: Review) -> None:
        """Remember what is read."""
        self.review, self.token = review, review.token


class _Page(_Reviewing):
    def get(self, _: str) -> None:
        self.finish(PAGE.read_text(encoding="utf-8"))


class _State(_Reviewing):
    def get(self, _: str) -> None:
        self.finish(self.review.state())


class _Told(_Reviewing):
    """Something that the page tells as an object; what came of it is the state."""

    def post(self, _: str) -> None:
        try:
            told = json.loads(self.request.body)
            if not isinstance(told, dict):
                raise ConfigError("an answer and its items must be sent as an object")
            self.finish(self.answer(told))
        except ConfigError as error:
            self.refuse(400, str(error))
        except EnvironmentProblem as error:
            self.refuse(500, str(error))
        except (ValueError, RecursionError):
            self.refuse(400, "the body is not JSON")

    def answer(self, told: dict[str, Any]) -> dict[str, Any]:
        """Do what is told, and return what the page needs to know of it."""
        raise NotImplementedError


class _Give(_Told):
    def answer(self, told: dict[str, Any]) -> dict[str, Any]:
        self.review.give(told.get("answer"), told.get("items"), told.get("comment", ""))
        return {}


class _Item(_Told):
    def answer(self, told: dict[str, Any]) -> dict[str, Any]:
        self.review.add_item(told.get("question"), told.get("words"), told.get("points"))
        return self.review.state()


class _Undo(_Reviewing):
    def post(self, _: str) -> None:
        answer = self.review.undo()
        self.finish({**self.review.state(), "undone": answer})
