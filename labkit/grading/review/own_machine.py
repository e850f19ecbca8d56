"""Pages for whoever grades, served on this machine alone: who has the link's token may read and write."""

from __future__ import annotations

import asyncio
import hmac
import signal
from collections.abc import Callable

import tornado.httpserver
import tornado.netutil
import tornado.web

from labkit.board.guarded import GuardedHandler
from labkit.errors import EnvironmentProblem

MOST_BYTES = 16_384


class OwnHandler(GuardedHandler):
    """Answers to whoever has the link; `token` is in the path, first.

    Attributes:
        token: The link's.
        command: What printed the link.
    """

    token: str
    command: str

    def prepare(self) -> None:
        """Refuse whoever has no link."""
        # A page of elsewhere whose name was made to mean this machine sends its own name for the host.
        if self.request.host_name not in ("127.0.0.1", "localhost"):
            self.refuse(403, "this page can only be opened on this machine")
        elif self.is_sent_by_another_page():
            self.refuse(403, "this was sent by another page")
        elif not hmac.compare_digest(self.path_args[0].encode(), self.token.encode()):
            self.refuse(403, f"this is not the link that {self.command} printed")


def serve(application: tornado.web.Application, path: str, port: int, say: Callable[[str], None]) -> None:
    """Serve pages on this machine until interrupted.

    Args:
        application: What serves them.
        path: Of the first page, with its token.
        port: TCP port; 0 for any free one.
        say: Told the link.

    Raises:
        EnvironmentProblem: If the port is taken.
    """
    asyncio.run(_serve(application, path, port, say))


async def _serve(application: tornado.web.Application, path: str, port: int, say: Callable[[str], None]) -> None:
    try:
        sockets = tornado.netutil.bind_sockets(port, "127.0.0.1")
    except OSError as error:
        raise EnvironmentProblem(f"port {port} is taken ({error.strerror}); choose another with --port") from None
    server = tornado.httpserver.HTTPServer(application, max_body_size=MOST_BYTES, max_header_size=8192)
    server.add_sockets(sockets)
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    say(f"http://127.0.0.1:{sockets[0].getsockname()[1]}{path}")
    await stop.wait()
    server.stop()
    await server.close_all_connections()
