"""What a case's messages and collectives come to: bytes that came, and where the case broke off, those announced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from labkit.checks.wire import CollectiveCall, Message, WireProblem
from labkit.grading.relay import exchanges
from labkit.grading.relay.records import ANY_SOURCE, Collective, Part, Post


def message(post: Post, over: bool) -> Message:
    """Return a send as a message; `over` says that every rank has finished its part."""
    came = post.came if post.came is not None else 0 if over else post.size
    return Message(post.rank, post.peer, came, post.position, post.match.position if post.match else None)


def call(collective: Collective, part: Part, waited: int | None, over: bool) -> CollectiveCall:
    """Return a member's call of a collective; `waited` is the position of the rank's first call afterwards."""
    given = [collective.parts[member].sizes if member in collective.parts else None for member in collective.members]
    size = exchanges.counted(part.name, collective.members.index(part.rank), given)
    if not over and part.sizes is None:
        size = part.announced
    return CollectiveCall(part.rank, part.name, size, part.position, waited)


def unmatched(sends: Iterable[Post], receives: Iterable[Post]) -> Iterator[WireProblem]:
    """Yield the sends that nobody received, and the receives that nobody served.

    Args:
        sends: All of them.
        receives: Those that are left.
    """
    for post in sends:
        if post.match is None:
            text = f"rank {post.rank} sent {post.size} bytes to rank {post.peer}, which never received them."
            yield WireProblem("unmatched_send", post.rank, text)
    for post in receives:
        source = "any rank" if post.peer == ANY_SOURCE else f"rank {post.peer}"
        text = f"rank {post.rank} asked for {post.size} bytes from {source}; they were never sent."
        yield WireProblem("unmatched_recv", post.rank, text)
