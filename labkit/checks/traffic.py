"""What is wrong on the wire in any exercise that sends and receives itself."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire
from labkit.words import join

LIBRARY, IN_FLIGHT, NOT_WAITED = "calls the library", "buffer reused in flight", "message not waited for"
NOT_SENT = "send not waited for"
SENT = (
    Mistake(
        LIBRARY,
        "You called a collective of torch.distributed; here you build it yourself, from dist.send, dist.recv, "
        "dist.isend, dist.irecv and dist.batch_isend_irecv.",
    ),
    Mistake(
        IN_FLIGHT,
        "A buffer was written after isend and before wait: the receiver may get the old or the new numbers. Wait for "
        "the isend, or receive into a buffer of its own.",
    ),
    Mistake(
        NOT_WAITED,
        "A tensor that irecv was given holds the message only after wait(): call it on what irecv, or each entry of "
        "what batch_isend_irecv, returned, before you read the tensor.",
    ),
)
"""What `library_calls`, `lost_messages` and `unread_messages` find."""
SEND_NOT_WAITED = Mistake(
    NOT_SENT,
    "isend only begins to send. The numbers have left when wait() returns; keep what isend returned, and wait for it "
    "before you return. Dropped, it may never leave, or leave when somebody has changed the tensor.",
)
"""What `unfinished_sends` finds."""


def library_calls(wire: Wire) -> Iterator[Finding]:
    """Yield a finding if a collective of the library was called."""
    kinds = wire.collective_kinds()
    if kinds:
        text = f"{join(f'dist.{kind}' for kind in kinds)} was called; build it from send and receive calls alone."
        first = wire.collectives[0]
        yield Finding(LIBRARY, text, "no collective of the library", join(kinds), first.rank, first.sequence)


def all_stand_in_send(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every rank that waits does so in a send."""
    return isinstance(got, Failure) and bool(got.waits) and all(wait.operation == "send" for wait in got.waits)


def lost_messages(wire: Wire) -> Iterator[Finding]:
    """Yield a finding for each message that had no partner, or whose buffer was written before it was received."""
    for problem in wire.problems_of("unmatched_send", "unmatched_recv", "size_mismatch", "changed_in_flight"):
        yield Finding(IN_FLIGHT if problem.kind == "changed_in_flight" else "", problem.text, problem=problem)


def unread_messages(wire: Wire) -> Iterator[Finding]:
    """Yield a finding for each message that a rank received without ever waiting for it."""
    receives = [problem for problem in wire.problems_of("not_waited") if "irecv" in problem.text]
    yield from (Finding(NOT_WAITED, problem.text, problem=problem) for problem in receives)


def unfinished_sends(wire: Wire) -> Iterator[Finding]:
    """Yield a finding for each message that a rank sent without ever waiting for it."""
    sends = [problem for problem in wire.problems_of("not_waited") if "isend" in problem.text]
    yield from (Finding(NOT_SENT, problem.text, problem=problem) for problem in sends)
