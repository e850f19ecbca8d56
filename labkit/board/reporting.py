"""Telling the class board what a check found, beside the learner's work and never in its way."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request

from labkit.board.membership import Membership, member

SECONDS = 5.0


class _Sender:
    """Sends the newest result of each exercise; what could not be sent goes with the next one."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[bool, object]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._trouble = ""

    def tell(self, membership: Membership, exercise_id: str, passed: bool, plans: object) -> None:
        with self._lock:
            self._waiting[exercise_id] = passed, plans
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
                exercise_id, told = next(iter(self._waiting.items()))
            trouble, again = _post(membership, exercise_id, *told)
            with self._lock:
                if self._waiting.get(exercise_id) is told and not again:
                    del self._waiting[exercise_id]
                if trouble:
                    self._trouble = trouble
                if again:
                    self._thread = None
                    return


_SENDER = _Sender()


def report(exercise_id: str, passed: bool, plans: object = None) -> str:
    """Send a check's result to the class board if the learner has joined one; return what went wrong before, or "".

    Args:
        exercise_id: Its slug.
        passed: Whether it did.
        plans: Of a design that is data: the plan of each visible case, which the board scores itself; else None.
    """
    membership = member()
    if membership is None:
        return ""
    # First: a board that is away refuses at once, and what this very result meets is told with the next one.
    trouble = _SENDER.trouble()
    _SENDER.tell(membership, exercise_id, passed, plans)
    return trouble


def wait() -> None:
    """Return when the results so far were sent or failed."""
    _SENDER.wait()


def _post(membership: Membership, exercise_id: str, passed: bool, plans: object) -> tuple[str, bool]:
    """Return what is to be told the learner ("" if all is well), and whether to try again later."""
    body = {"nickname": membership.nickname, "key": membership.key, "exercise": exercise_id, "passed": passed}
    body |= {"plans": plans} if plans is not None else {}
    request = urllib.request.Request(
        f"{membership.link}/result", json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        # No proxy: the board is a machine in the room.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=SECONDS):
            return "", False
    except urllib.error.HTTPError as error:
        with error:
            why = error.read(500).decode("utf-8", "replace")
            return f"The class board did not take the result of {exercise_id}: {why}.", error.code >= 500
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return (
            f"The class board at {membership.link.partition('/c/')[0]} did not answer ({reason}). Your work is not"
            " touched by it; results go with your next check. labkit.leave_class() ends it.",
            True,
        )
