"""The page of `labkit review`: tornado on this machine alone; who has the link's token may read and give points."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tornado.httpserver
import tornado.netutil
import tornado.web

from labkit.board.guarded import GuardedHandler
from labkit.errors import ConfigError, EnvironmentProblem
from labkit.grading.review.questions import Answer, Question
from labkit.grading.review.readings import Reading, Readings

PAGE = Path(__file__).with_name("review.html")
MOST_BYTES = 4096


class Review:
    """What is being read, and what was given; the last gifts can be taken back.

    Args:
        questions: To be read.
        readings: Where points go.
        who: Who reads.
    """

    def __init__(self, questions: tuple[Question, ...], readings: Readings, who: str) -> None:
        self.token = secrets.token_urlsafe(16)
        self._questions, self._readings, self._who = questions, readings, who
        self._answers = {each.id: (question, each) for question in questions for each in question.answers}
        self._given = {answer: each for question in questions for answer, each in readings.of(question).items()}
        self._before: list[tuple[str, Reading | None]] = []

    def state(self) -> dict[str, Any]:
        """Return what the page shows: no name of anybody who wrote."""
        return {
            "who": self._who,
            "questions": [
                {
                    "title": question.title,
                    "rubric": list(question.rubric.items()),
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
        return {"items": given.items, "who": given.who} if given else None

    def give(self, answer_id: object, items: object) -> None:
        """Give an answer its points.

        Raises:
            ConfigError: If there is no such answer, or no such item of its rubric.
        """
        found = self._answers.get(answer_id) if isinstance(answer_id, str) else None
        if found is None:
            raise ConfigError("there is no such answer")
        question, answer = found
        count = len(question.rubric)
        if not isinstance(items, list) or any(type(each) is not int or not 0 <= each < count for each in items):
            raise ConfigError(f"items of this rubric are numbers from 0 to {count - 1}")
        reading = Reading(tuple(sorted(set(items))), self._who)
        self._readings.give(question, answer, reading)
        self._before.append((answer.id, self._given.get(answer.id)))
        self._given[answer.id] = reading

    def undo(self) -> str:
        """Take the last gift back, and return whose answer it was, "" where there is none."""
        if not self._before:
            return ""
        answer_id, before = self._before[-1]
        self._readings.give(*self._answers[answer_id], before)
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
                 (r"/r/([\w-]{1,64})/undo", _Undo))  # fmt: skip
        return tornado.web.Application(
            [(path, handler, own) for path, handler in paths], log_function=lambda handler: None
        )


class _Handler(GuardedHandler):
    def initialize(self, review: Review) -> None:
        self.review = review

    def prepare(self) -> None:
        # A page of elsewhere whose name was made to mean this machine sends its own name for the host.
        if self.request.host_name not in ("127.0.0.1", "localhost"):
            self.refuse(403, "this page can only be opened on this machine")
        elif not hmac.compare_digest(self.path_args[0].encode(), self.review.token.encode()):
            self.refuse(403, "this is not the link that labkit review printed")


class _Page(_Handler):
    def get(self, _: str) -> None:
        self.finish(PAGE.read_text(encoding="utf-8"))


class _State(_Handler):
    def get(self, _: str) -> None:
        self.finish(self.review.state())


class _Give(_Handler):
    def post(self, _: str) -> None:
        try:
            told = json.loads(self.request.body)
            if not isinstance(told, dict):
                raise ConfigError("an answer and its items must be sent as an object")
            self.review.give(told.get("answer"), told.get("items"))
        except ConfigError as error:
            self.refuse(400, str(error))
        except EnvironmentProblem as error:
            self.refuse(500, str(error))
        except (ValueError, RecursionError):
            self.refuse(400, "the body is not JSON")
        else:
            self.finish(self.review.state())


class _Undo(_Handler):
    def post(self, _: str) -> None:
        answer = self.review.undo()
        self.finish({**self.review.state(), "undone": answer})


def serve(review: Review, port: int, say: Callable[[str], None]) -> None:
    """Serve it on this machine until interrupted.

    Args:
        review: What is read.
        port: TCP port; 0 for any free one.
        say: Told the link.

    Raises:
        EnvironmentProblem: If the port is taken.
    """
    asyncio.run(_serve(review, port, say))


async def _serve(review: Review, port: int, say: Callable[[str], None]) -> None:
    try:
        sockets = tornado.netutil.bind_sockets(port, "127.0.0.1")
    except OSError as error:
        raise EnvironmentProblem(f"port {port} is taken ({error.strerror}); choose another with --port") from None
    server = tornado.httpserver.HTTPServer(review.application(), max_body_size=MOST_BYTES, max_header_size=8192)
    server.add_sockets(sockets)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    say(f"http://127.0.0.1:{sockets[0].getsockname()[1]}/r/{review.token}")
    await stop.wait()
    server.stop()
    await server.close_all_connections()
