"""Rounds of a tree: in each, a rank sends or receives one message, and the number of ranks that are done doubles."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.checks.wire import Message


def doublings(count: int) -> int:
    """Return how often 1 must be doubled to reach `count`."""
    return (count - 1).bit_length()


def is_power_of_two(count: int) -> bool:
    """Return whether `count` is 1, 2, 4, 8, ..."""
    return count & (count - 1) == 0


def rounds_of(messages: Sequence[Message]) -> int:
    """Return how many rounds the messages need when a rank sends or receives one at a time, in its own order."""
    ends = {message: ((message.src, message.sent), (message.dst, _received(message))) for message in messages}
    todo = {rank: sorted(place for pair in ends.values() for who, place in pair if who == rank)
            for message in messages for rank in (message.src, message.dst)}  # fmt: skip
    free = dict.fromkeys(todo, 0)
    left = list(messages)
    while left:
        ready = [message for message in left if all(todo[rank][0] == place for rank, place in ends[message])]
        if not ready:
            return max(free.values()) + len(left)  # posted together, in no order that can be told: count each
        for message in ready:
            at = max(free[message.src], free[message.dst]) + 1
            for rank, place in ends[message]:
                free[rank] = at
                todo[rank].remove(place)
            left.remove(message)
    return max(free.values(), default=0)


def _received(message: Message) -> int:
    return -1 if message.received is None else message.received
