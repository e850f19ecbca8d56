"""What every page that labkit serves shares: headers that keep it to itself, and refusals in words."""

from __future__ import annotations

from urllib.parse import urlsplit

import tornado.web


class GuardedHandler(tornado.web.RequestHandler):
    """Answers that no cache keeps, no other page frames, and that load nothing from elsewhere."""

    def set_default_headers(self) -> None:
        """Keep the answer to this page."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header(
            "Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline';"
            " script-src 'unsafe-inline'; frame-ancestors 'none'"
        )  # fmt: skip

    def is_sent_by_another_page(self) -> bool:
        """Return whether a page from elsewhere sends this: a browser says where from, labkit says nothing."""
        sender = self.request.headers.get("Origin")
        return self.request.method == "POST" and sender is not None and urlsplit(sender).netloc != self.request.host

    def refuse(self, status: int, why: str) -> None:
        """Answer in words."""
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(why)
