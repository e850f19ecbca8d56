"""Telling the class board what a check found, beside the learner's work and never in its way."""

from __future__ import annotations

import threading

from labkit.board.membership import Membership, member
from labkit.board.posting import post

_LATER = " Your work is not affected; results are sent with your next check. labkit.leave_class() ends it."


class _Sender:
    """Sends the newest of each thing there is to tell; what could not be sent goes with the next one."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], dict[str, object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._trouble = ""

    def tell(self, membership: Membership, what: str, about: str, body: dict[str, object]) -> None:
        with self._lock:
            self._waiting[what, about] = body
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._send, args=(membership,), name="class board", daemon=True)
                self._thread.start()

    def trouble(self) -> str:
        """Return what went wrong since the last call, "" if nothing did."""
        with self._lock:
            trouble, self._trouble = self._trouble, ""
        return trouble

    def wait(self) -> None:
        """Return when what there was to send was tried."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _send(self, membership: Membership) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                told, body = next(iter(self._waiting.items()))
            trouble, again = post(membership, told[0], body)
            with self._lock:
                if self._waiting.get(told) is body and not again:
                    del self._waiting[told]
                if trouble:
                    self._trouble = trouble + (_LATER if again else "")
                if again:
                    self._thread = None
                    return


_SENDER = _Sender()


def report(exercise_id: str, passed: bool, plans: object = None, mistake: str = "") -> str:
    """Send a check's result to the class board if the learner has joined one; return what went wrong before, or "".

    Args:
        exercise_id: Its slug.
        passed: Whether it did.
        plans: Of a design that is data: the plan of each visible case, which the board scores itself; else None.
        mistake: The name of the mistake that was recognised, or "".
    """
    membership = member()
    if membership is None:
        return ""
    # First: a board that is away refuses at once, and what this very result meets is told with the next one.
    trouble = _SENDER.trouble()
    body: dict[str, object] = {"exercise": exercise_id, "passed": passed}
    body |= {"plans": plans} if plans is not None else {}
    body |= {"mistake": mistake} if mistake else {}
    _SENDER.tell(membership, "result", exercise_id, body)
    return trouble


def report_guess(guess_id: str, value: object, unit: str) -> None:
    """Send a guess to the class board if the learner has joined one; trouble is told with the next check."""
    membership = member()
    if membership is not None and value is not None:
        _SENDER.tell(membership, "guess", guess_id, {"guess": guess_id, "value": value, "unit": unit})


def report_measured(guess_id: str, value: object) -> None:
    """Send what came out where the learner has guessed; the wall shows it when the instructor reveals it."""
    membership = member()
    if membership is not None:
        _SENDER.tell(membership, "measured", guess_id, {"guess": guess_id, "value": value})


def wait() -> None:
    """Return when the results so far were sent or failed."""
    _SENDER.wait()
