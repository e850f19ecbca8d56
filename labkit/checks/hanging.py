"""Who waited for what when a run did not end, and who was called that is not there."""

from __future__ import annotations

import re

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got
from labkit.checks.wire import Wire
from labkit.deadlock import FINISHED
from labkit.errors import NoSuchRank
from labkit.launch.reports import IN_NO_CALL

_WAITING = re.compile(r"\bi?(?:send|recv)\b")
_WAITS = re.compile(r"^rank \d+ waits in ", re.MULTILINE)


def hangs(failure: Failure) -> bool:
    """Return whether the run did not end."""
    return failure.kind in HANGS


def nobody_waits(failure: Failure) -> bool:
    """Return whether time was up and no rank stood in a communication call: whatever is wrong, it is no message."""
    return failure.kind == "timeout" and not failure.waits and not _WAITS.search(failure.detail)


def waits_in(failure: Failure, operation: str) -> bool:
    """Return whether a run hung with every rank that was left in this kind of call ("send" or "recv")."""
    operations = [wait.operation for wait in failure.waits] or _WAITING.findall(failure.detail)
    if not hangs(failure) or IN_NO_CALL in failure.detail:
        return False
    return bool(operations) and all(operation in each for each in operations)


def waits_on_the_finished(case: Case, failure: Failure) -> bool:
    """Return whether a run hung with a rank that waits for one that has finished."""
    finished = _finished(case, failure)
    return any(wait.peer in finished for wait in failure.waits)


def stays_away(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a run hung in collectives to which a rank that has finished never came."""
    if not isinstance(got, Failure) or not _finished(case, got) or not got.waits:
        return False
    return all(wait.peer is None and not _WAITING.search(wait.operation) for wait in got.waits)


def never_comes(case: Case, failure: Failure, wire: Wire) -> str:
    """Return, of a run that hung, who waits for itself or for a rank that has finished, in a sentence, or ""."""
    finished = _finished(case, failure)
    for wait in failure.waits:
        if wait.peer == wait.rank:
            return f"Rank {wait.rank} waits for itself."
        if wait.peer in finished and "send" in wait.operation:
            return f"Rank {wait.peer} has finished, so nobody takes what rank {wait.rank} sends it."
        if wait.peer in finished:
            sent = any(message.src == wait.peer for message in wire.messages)
            how = "" if sent or wire.collectives else " and has sent nothing"
            return f"Rank {wait.peer} has finished{how}, so what rank {wait.rank} waits for never comes."
    return ""


def all_alike(failure: Failure) -> str:
    """Return, of a deadlock in which all wait to send or all to receive, that the other end is missing, or ""."""
    if failure.kind != "deadlock" or len(failure.waits) < 2:
        return ""
    if waits_in(failure, "send"):
        return "All of them wait in a send: nobody has come to the receive that takes it."
    if waits_in(failure, "recv"):
        return "All of them wait in a receive: nobody has come to the send that it needs."
    return ""


def works_on(failure: Failure) -> str:
    """Return, of a run in which time was up and nobody waits, what to look for, or "" where its message says it."""
    if not nobody_waits(failure) or "endless loop" in failure.message:
        return ""
    return "Nothing waits for a message: look for a loop that does not end, or does too much, here or in another cell."


def _finished(case: Case, failure: Failure) -> set[int]:
    """Return the ranks that had finished: in a deadlock, all that do not wait."""
    if not hangs(failure):
        return set()
    others = set(range(case.world_size)) - {wait.rank for wait in failure.waits}
    return {rank for rank in others if failure.kind == "deadlock" or f"rank {rank} {FINISHED}" in failure.detail}


def looks_for_a_stranger(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a rank named, waits for, or sent to, a rank that the world does not have."""
    # A receive that names nobody (recv(src=None)) waits for rank -1, which a call that named it would not have come to.
    peers = [wait.peer for wait in failure.waits if wait.peer is not None and wait.peer >= 0]
    peers += [message.dst for message in wire.messages]
    return failure.error == NoSuchRank.__name__ or not all(0 <= peer < case.world_size for peer in peers)


def nobody_waited(case: Case, failure: Failure, wire: Wire, word: str) -> bool:
    """Return whether a run hung, and a rank was never going to wait for its isend or irecv, whichever the word says.

    That is sure of a rank that has finished, and of an isend whose receive was posted and hangs: where somebody keeps
    what isend returned, the message comes.
    """
    unwaited = [problem for problem in wire.problems_of("not_waited") if word in problem.text]
    finished = _finished(case, failure)
    return hangs(failure) and any(
        problem.rank in finished
        or (
            word == "isend"
            and wait.peer == problem.rank
            and "recv" in wait.operation
            and f" to rank {wait.rank} " in problem.text
        )
        for problem in unwaited
        for wait in failure.waits
    )
