"""A rank's end of the relay: one socket, shared by all of the rank's process groups and threads."""

from __future__ import annotations

import linecache
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from labkit.grading.frames import Frame, read_frame, write_frame
from labkit.torch_port.followed_futures import Futures
from labkit.torch_port.group_tables import entry_codes
from labkit.torch_port.own_parallelism import own_part

Payload = bytes | bytearray | memoryview
ReadParts = Callable[[], tuple[Sequence[int], Payload, bool]]
CELL_MARK = "<exercise "
"""Files whose name begins so are cells of a learner's notebook."""
_BLOCKING = entry_codes()


def _wait_for_works(future: Any, works: tuple[Any, ...] | None, wait: Callable[[Any], Any]) -> Any:
    """Wait for a future, and thereby for the works behind it."""
    value = wait(future)
    for work in works or ():
        work.wait()
    return value


class RelayClient:
    """Posts, waits and reads answers; any thread may call.

    Args:
        sock: This rank's end of its socket to the relay.
        torchs_own: Whether torch's own parallel training may call; elsewhere learners build what it does.

    Attributes:
        futures: Knows which works are behind a future.
    """

    def __init__(self, sock: socket.socket, torchs_own: bool = True) -> None:
        self._torchs_own = torchs_own
        self._sock = sock
        self._lock = threading.Condition(threading.RLock())
        self._next_id = 0
        self._reading = False
        self._answers: dict[int, Frame] = {}
        self._unread: dict[int, Callable[[], Payload]] = {}
        self._unsent_parts: dict[int, ReadParts] = {}
        self.futures = Futures(_wait_for_works)

    def post(self, header: Mapping[str, Any], read: Callable[[], Payload] | None = None) -> int:
        """Announce a send or a receive and return its number.

        Args:
            header: What is posted.
            read: For a send, returns the buffer's bytes as they are when it is called.
        """
        self._refuse_torchs_own()
        with self._lock:
            number = self._number()
            if read is None:
                self._write({**header, "id": number, **learners_call()})
            elif threading.active_count() > 1:
                self._write({**header, "id": number, "eager": True, **learners_call()}, read())
            else:
                self._unread[number] = read
                self._write({**header, "id": number, **learners_call()})
            return number

    def post_collective(self, header: Mapping[str, Any], read: ReadParts) -> int:
        """Announce a collective and return its number.

        Args:
            header: What is announced.
            read: Returns the sizes of the parts, their bytes, and whether the tensors have been written to since.
        """
        self._refuse_torchs_own()
        with self._lock:
            number = self._number()
            self._unsent_parts[number] = read
            self._write({**header, "op": "collective", "id": number, "where": learners_line()})
            return number

    def wait(self, number: int, changed: bool = False, *, promised: bool = False, aside: bool = False) -> Frame:
        """Return the relay's answer to a post, waiting for it.

        Args:
            number: Of the post.
            changed: Whether a send's buffer was written since.
            promised: Whether a future was asked for, which the program need not wait for.
            aside: Whether it is not the program that waits but a callback, or another thread than the one that posted.
        """
        return self._ask("wait", number, changed, promised=promised, aside=aside)

    def waited(self, number: int, aside: bool) -> None:
        """Say that a collective is waited for whose promised answer has come; see wait."""
        with self._lock:
            self._write({"op": "waited", "id": number, "aside": aside})

    def test(self, number: int) -> Frame | None:
        """Return the relay's answer to a post, or None where it is not complete and no rank can go on without us."""
        answer = self._ask("test", number)
        return None if answer.header["op"] == "no" else answer

    def end(self) -> None:
        """Say that this rank has done its part; what is still to be sent is read now."""
        with self._lock:
            self._give_parts(ending=True)
            for number in list(self._unread):
                self._give(number)
            self._write({"op": "end"})

    # ----

    def _refuse_torchs_own(self) -> None:
        part = "" if self._torchs_own else own_part(sys._getframe(2))
        if part:
            raise RuntimeError(f"torch.{part.replace('/', '.')} communicates here; you build yourself what it does")

    def _number(self) -> int:
        self._next_id += 1
        return self._next_id

    def _write(self, header: Mapping[str, Any], payload: Payload = b"") -> None:
        try:
            write_frame(self._sock, header, payload)
        except OSError:
            raise ConnectionError("the connection to the other ranks is closed") from None

    def _give(self, number: int) -> None:
        read = self._unread.pop(number, None)
        if read is not None:
            self._write({"op": "data", "id": number}, read())

    def _give_parts(self, ending: bool = False) -> None:
        for number in list(self._unsent_parts):
            sizes, payload, changed = self._unsent_parts.pop(number)()
            about = {"changed": True} if changed and not ending else {}
            self._write({"op": "parts", "id": number, "sizes": list(sizes), **about}, payload)

    def _ask(self, op: str, number: int, changed: bool = False, **how: bool) -> Frame:
        with self._lock:
            self._give(number)
            self._give_parts()
            about = {"changed": changed, "threads": threading.active_count(), "where": learners_line()}
            about |= {key: True for key in how if how[key]}
            self._write({"op": op, "id": number, **about})
            while number not in self._answers:
                if self._reading:
                    self._lock.wait()
                    continue
                self._reading = True
                self._lock.release()
                try:
                    frame = read_frame(self._sock)
                finally:
                    self._lock.acquire()
                    self._reading = False
                    self._lock.notify_all()
                if frame is None:
                    raise ConnectionError("the connection to the other ranks is closed")
                if frame.header["op"] == "pull":
                    for wanted in frame.header["ids"]:
                        self._give(wanted)
                else:
                    self._answers[frame.header["id"]] = frame
            return self._answers.pop(number)


def learners_line() -> str:
    """Return the innermost line of the learner's notebook that is being run, or ""."""
    return str(learners_call()["where"])


def learners_call() -> dict[str, object]:
    """Return the learner's innermost line that is being run, or "", and whether it posts a message without waiting."""
    posted = True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        posted = posted and id(frame.f_code) not in _BLOCKING
        if name.startswith(CELL_MARK):
            line = linecache.getline(name, frame.f_lineno).strip()
            return {"where": f"{name[1:-1]}, line {frame.f_lineno}: {line}"[:190], "posted": posted}
        frame = frame.f_back
    return {"where": "", "posted": posted}
