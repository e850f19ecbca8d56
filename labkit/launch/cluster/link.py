"""A connection between the notebook and an agent, or two agents: each proves that it knows the secret, then messages.

Every message is pickled, so nothing is read before the other side is known. A thread sends, receives and keeps the
lease: who says nothing for a while is lost, whatever TCP thinks.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from typing import Any

from labkit.frames import FrameError
from labkit.launch.channel import Inbox, message

LEASE_SECONDS = 4.0
"""So long may the other side be silent; with the time to end ranks, a lost host is named within five seconds."""
_RENEW_SECONDS = 0.5
_HELLO_SECONDS = 10.0
_NONCE = 32
_CHUNK = 1 << 18
LOST = "lost"
"""Kind of the last message of every link: why it ended."""
_RENEW = "renew"


class NotTheSecret(OSError):
    """The other side does not know the secret."""


def connect(address: str, port: int, secret: bytes, tls: ssl.SSLContext | None, timeout: float) -> socket.socket:
    """Return a connection to who listens there and knows the secret.

    Raises:
        OSError: If nobody does.
    """
    sock = socket.create_connection((address, port), timeout)
    try:
        sock = tls.wrap_socket(sock, server_hostname=address) if tls is not None else sock
        return _proved(sock, secret, b"calls", b"answers")
    except BaseException:
        sock.close()
        raise


def answer(sock: socket.socket, secret: bytes, tls: ssl.SSLContext | None) -> socket.socket:
    """Return an accepted connection once the caller has shown that it knows the secret.

    Raises:
        OSError: If it has not.
    """
    try:
        sock.settimeout(_HELLO_SECONDS)
        sock = tls.wrap_socket(sock, server_side=True) if tls is not None else sock
        return _proved(sock, secret, b"answers", b"calls")
    except BaseException:
        sock.close()
        raise


def _proved(sock: socket.socket, secret: bytes, mine: bytes, theirs: bytes) -> socket.socket:
    """Let both sides show that they know the secret, which does not travel; no proof can be sent back as one's own.

    multiprocessing.connection has such a handshake, but in Python 3.11 it is HMAC-MD5, and it needs a Connection, which
    a TLS socket is not.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    nonce = secrets.token_bytes(_NONCE)
    sock.sendall(nonce)
    other = read_exactly(sock, _NONCE)
    sock.sendall(hmac.digest(secret, mine + nonce + other, "sha256"))
    if not hmac.compare_digest(read_exactly(sock, 32), hmac.digest(secret, theirs + other + nonce, "sha256")):
        raise NotTheSecret("the other side does not know this cluster's secret")
    sock.settimeout(None)
    return sock


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """Return this many bytes.

    Raises:
        OSError: If the other side hangs up before.
    """
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionResetError("the other side hung up")
        data += more
    return data


class Link:
    """Messages over a connection, in order, and a lease.

    Attributes:
        arrived: Becomes readable when take() has something.
        lost: Why the link ended, "" while it holds.
    """

    def __init__(self, sock: socket.socket, lease_seconds: float = LEASE_SECONDS) -> None:
        """Take over a connection on which both sides are known."""
        self.arrived, self._announce = socket.socketpair()
        self._woken, self._wake = socket.socketpair()
        for end in (sock, self.arrived, self._announce, self._woken, self._wake):
            end.setblocking(False)
        self.lost = ""
        self._sock = sock
        self._lease_seconds = lease_seconds
        self._lock = threading.Lock()
        self._out = bytearray()
        self._inbox = Inbox()
        self._messages: deque[tuple[str, Any]] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="labkit-link", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Return how many bytes are still to be sent."""
        return len(self._out)

    def send(self, kind: str, value: Any = None) -> None:
        """Send one message; to a link that is lost this is nothing."""
        data = message(kind, value)
        with self._lock:
            self._out += data
        _poke(self._wake)

    def take(self) -> list[tuple[str, Any]]:
        """Return the messages that have arrived since; the last of a link is ("lost", why)."""
        _drain(self.arrived)
        taken = []
        while self._messages:
            taken.append(self._messages.popleft())
        return taken

    def close(self) -> None:
        """Send what is still to be sent, hang up, and free everything."""
        self._closing = True
        _poke(self._wake)
        if threading.current_thread() is not self._thread:
            self._thread.join(2.0)
        for end in (self.arrived, self._announce, self._woken, self._wake):
            end.close()

    def _serve(self) -> None:
        try:
            self._exchange()
            why = "it was closed here"
        except TimeoutError as error:
            why = str(error)
        except (OSError, ValueError, FrameError) as error:
            why = f"the connection ended ({getattr(error, 'strerror', None) or error})"
        self._sock.close()
        self.lost = why
        self._messages.append((LOST, why))
        with contextlib.suppress(OSError):
            _poke(self._announce)

    def _exchange(self) -> None:
        heard = renewed = time.monotonic()
        selector = selectors.DefaultSelector()
        with selector:
            selector.register(self._sock, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                if now - renewed > _RENEW_SECONDS:
                    renewed = now
                    self.send(_RENEW)
                if now - heard > self._lease_seconds:
                    raise TimeoutError(f"no word from it for {self._lease_seconds:g} s")
                full = self._flush()
                if self._closing and not full:
                    return
                selector.modify(self._sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if full else 0))
                for key, _ in selector.select(_RENEW_SECONDS / 2):
                    if key.fileobj is self._woken:
                        _drain(self._woken)
                if self._receive():
                    heard = time.monotonic()

    def _flush(self) -> bool:
        """Send what can be sent now; return whether some is left."""
        with self._lock:
            while self._out:
                try:
                    sent = self._sock.send(memoryview(self._out)[:_CHUNK])
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    return True
                del self._out[:sent]
        return False

    def _receive(self) -> bool:
        """Take in what is there; return whether anything was."""
        anything = False
        while True:
            try:
                data = self._sock.recv(_CHUNK)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                raise ConnectionResetError("the other side hung up")
            anything = True
            self._keep(self._inbox.feed(data))
        return anything

    def _keep(self, messages: list[tuple[str, Any]]) -> None:
        told = [each for each in messages if each[0] != _RENEW]
        self._messages.extend(told)
        if told:
            _poke(self._announce)


def _poke(end: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError, OSError):
        end.send(b".")


def _drain(end: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError, OSError):
        while end.recv(4096):
            pass
