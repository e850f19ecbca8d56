"""The board's server: ``labkit board``. Tornado, which JupyterLab brings, and one SQLite file.

Whoever has the class link can see the page and send results; it holds a token, so keep it in the room. Everything else
is refused. A result is nickname, exercise, passed or not, the name of a known mistake and, of a design, plans: data
that the board scores again itself. There is no field that could hold code. The instructor's link shows more, and can
remove or rename a learner and reveal what came out where all have guessed; keep it to yourself.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tornado.httpserver
import tornado.ioloop
import tornado.netutil
import tornado.web

from labkit.board.guarded import GuardedHandler
from labkit.board.relay import Reader, open_folder
from labkit.board.results import Exercises, Reported, reported
from labkit.board.room import Room
from labkit.errors import ConfigError, EnvironmentProblem

MOST_BYTES = 64 << 10
Score = Callable[[str, object], float]
HERE = Path(__file__).parent


def page() -> str:
    """Return the board's page, with its style and script in it: one answer, and nothing loaded from elsewhere."""
    whole = (HERE / "page.html").read_text(encoding="utf-8")
    for part in ("page.css", "guesses.js", "poll.js", "dots.js", "instructor.js", "page.js"):
        whole = whole.replace(f"/* {part} */", (HERE / part).read_text(encoding="utf-8"))
    return whole


class _Handler(GuardedHandler):
    """What every address shares: the token, and answers that tell a stranger nothing."""

    def initialize(self, board: Board) -> None:
        self.board = board

    def prepare(self) -> None:
        token, results = self.path_args[0] if self.path_args else "", self.board.results
        right = results.instructors_token if (self.request.path or "").startswith("/i/") else results.token
        if not hmac.compare_digest(token.encode(), right.encode()):
            self.refuse(403, "this board has no such class; compare the link with the one on the wall")
        elif self.is_sent_by_another_page():
            self.refuse(403, "another page sent this; the board takes what labkit and its own page send")

    def write_error(self, status_code: int, **_: object) -> None:
        self.refuse(status_code, self._reason)


class _Page(_Handler):
    def get(self, _: str) -> None:
        self.finish(page())


class _Standing(_Handler):
    def get(self, _: str) -> None:
        self.set_header("Cache-Control", "no-cache")  # keep it, and ask with the ETag whether it still holds
        self.finish(self.board.standing())


class _View(_Handler):
    def get(self, _: str) -> None:
        self.finish(json.dumps(self.board.results.instructors_view(self.board.exercises)))


class _Posted(_Handler):
    """What learners send."""

    def post(self, _: str, what: str) -> None:
        try:
            self.board.take(what, json.loads(self.request.body), self.request.remote_ip or "")
        except ConfigError as error:
            self.refuse(400, str(error))
        except (ValueError, RecursionError):
            self.refuse(400, "the body is not JSON")
        else:
            self.set_status(204)


class _Changed(_Handler):
    def post(self, _: str, what: str) -> None:
        try:
            self.board.change(what, json.loads(self.request.body))
        except ConfigError as error:
            self.refuse(400, str(error))
        except (ValueError, RecursionError):
            self.refuse(400, "the body is not JSON")
        else:
            self.set_status(204)


class _Nothing(_Handler):
    def prepare(self) -> None:
        self.refuse(404, "nothing is here")


class Board:
    """One class's board.

    Attributes:
        results: Where results are kept.
        exercises: The course's exercises by lesson.
        score: Returns what the plans of a design are worth, given its slug; raises ConfigError for what is no plan.
    """

    def __init__(self, results: Room, exercises: Exercises, score: Score) -> None:
        self.results = results
        self.exercises = exercises
        self._score = score
        self._standing: tuple[str, float] | None = None

    def scored(self, result: Reported) -> Reported:
        """Return a result with the score of its plans, which nobody else has the say of."""
        if result.plans is None or not result.passed:
            return result
        return replace(result, score=self._score(result.exercise, result.plans))

    def record(self, result: Reported, address: str) -> None:
        """Write down a result that came from an address."""
        self.results.record(result, address)
        self._standing = None

    def take(self, what: str, plain: object, address: str = "") -> None:
        """Write down what was sent: a result, a learner who joins, says, guesses or measured something.

        Raises:
            ConfigError: If it cannot be, in words for who sent it.
        """
        if what == "result":
            self.results.record(self.scored(reported(plain, self.exercises)), address)
        elif what in ("join", "say", "guess", "measured"):
            getattr(self.results, what)(plain, address)
        else:
            raise ConfigError(f"the board has no message {what!r}")
        self._standing = None

    def change(self, what: str, plain: object) -> None:
        """Do what the instructor asks for: remove or rename a learner, note that one was helped, reveal what came out.

        Raises:
            ConfigError: If it cannot be done.
        """
        if not isinstance(plain, dict) or not all(isinstance(each, str) for each in plain.values()):
            raise ConfigError("a change has fields of text: nickname and, for a new name, to; or guess")
        if what == "remove" and set(plain) == {"nickname"}:
            self.results.remove(plain["nickname"])
        elif what == "rename" and set(plain) == {"nickname", "to"}:
            self.results.rename(plain["nickname"], plain["to"])
        elif what == "helped" and set(plain) == {"nickname"}:
            self.results.helped(plain["nickname"])
        elif what == "reveal" and set(plain) == {"guess"}:
            self.results.reveal(plain["guess"])
        else:
            raise ConfigError("the changes are remove and helped (nickname), rename (nickname, to) and reveal (guess)")
        self._standing = None

    def standing(self) -> str:
        """Return the page's data as JSON, made anew when a result has come since, or 20 s have passed."""
        if self._standing is None or time.monotonic() > self._standing[1] + 20:
            self._standing = json.dumps(self.results.standing(self.exercises)), time.monotonic()
        return self._standing[0]

    def application(self) -> tornado.web.Application:
        """Return what serves the page, its data and the results."""
        own: dict[str, Any] = {"board": self}
        return tornado.web.Application(
            [
                (r"/c/([a-z0-9-]{1,32})", _Page, own),
                (r"/c/([a-z0-9-]{1,32})/standing", _Standing, own),
                (r"/c/([a-z0-9-]{1,32})/(result|join|say|guess|measured)", _Posted, own),
                (r"/i/([\w-]{1,32})", _Page, own),
                (r"/i/([\w-]{1,32})/standing", _View, own),
                (r"/i/([\w-]{1,32})/(remove|rename|helped|reveal)", _Changed, own),
            ],
            default_handler_class=_Nothing,
            default_handler_args=own,
            log_function=lambda handler: None,
        )


def serve(
    results_file: Path,
    exercises: Exercises,
    host: str,
    port: int,
    say: Callable[[str, str], None],
    score: Score,
    relay: Path | None = None,
    predictions: Mapping[str, str] | None = None,
    questions: Mapping[str, str] | None = None,
) -> None:
    """Serve a class until interrupted.

    Args:
        results_file: The SQLite file; a restart with the same file goes on with the same class link.
        exercises: The course's exercises by lesson.
        host: The address to listen on; "" for every one of this machine.
        port: TCP port; 0 for any free one.
        say: Told the class link and the instructor's.
        score: What the plans of a design are worth.
        relay: A folder that all can write to and that is read too, where learners cannot reach this machine; None for
            none.
        predictions: What the course has guessed, with its unit: nothing else comes onto the wall.
        questions: What the course asks there, by the same names.

    Raises:
        EnvironmentProblem: If the port is taken or the file cannot be used.
    """
    results = Room(results_file, predictions=predictions, questions=questions)
    try:
        if relay is not None:
            open_folder(relay, results.token, results.relay_secret)
        sockets = tornado.netutil.bind_sockets(port, host, family=socket.AF_INET)
    except EnvironmentProblem:
        results.close()
        raise
    except OSError as error:
        results.close()
        raise EnvironmentProblem(
            f"the board cannot listen on {host or 'this machine'}, port {port}: {error.strerror or error}; "
            f"choose another with {'--host' if error.errno == errno.EADDRNOTAVAIL else '--port'}"
        ) from error
    address = f"http://{host or own_address()}:{sockets[0].getsockname()[1]}"
    links = (f"{address}/c/{results.token}", f"{address}/i/{results.instructors_token}")
    board = Board(results, exercises, score)
    try:
        reader = Reader(relay, board.take, results.token, results.relay_secret) if relay else None
        asyncio.run(_serve(board, sockets, lambda: say(*links), reader))
    finally:
        results.close()


async def _serve(board: Board, sockets: list[socket.socket], ready: Callable[[], None], relay: Reader | None) -> None:
    server = tornado.httpserver.HTTPServer(
        board.application(), max_body_size=MOST_BYTES, max_header_size=8192, idle_connection_timeout=60
    )
    server.add_sockets(sockets)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    reading = tornado.ioloop.PeriodicCallback(relay.read, 1000) if relay is not None else None
    if reading is not None:
        reading.start()
    ready()
    await stop.wait()
    if reading is not None:
        reading.stop()
    server.stop()
    await server.close_all_connections()


def own_address() -> str:
    """Return the address other machines of the network reach this one by; 127.0.0.1 where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737's example network: nothing is sent, only a route is chosen
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
