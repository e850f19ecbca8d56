"""What may pass on the wire of an all-reduce: who talks to whom, how many messages, how many bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from labkit.checks.case import Case
from labkit.checks.finding import Finding
from labkit.checks.wire import Message, Wire
from labkit.exercises.sums_over_ranks.sums import input_of, is_second_use, members_of
from labkit.words import plural, ranks_in_words

GROUP_RANKS, WHOLE_TENSOR, EVERYBODY, THROUGH_ONE, NOT_THROUGH_ROOT = (
    "group ranks taken for global ranks", "whole tensor at each step", "everything to everyone", "reduce to one rank",
    "does not pass through rank 0",
)  # fmt: skip


def itemsize_of(case: Case) -> int:
    """Return the bytes of one element on the wire; 16-bit floats may travel as float32."""
    return max(input_of(case, members_of(case)[0]).element_size(), 4)


def tensor_bytes(case: Case) -> int:
    """Return the bytes of what one rank contributes, at most."""
    return input_of(case, members_of(case)[0]).numel() * itemsize_of(case)


def chunk_bytes(case: Case, num_chunks: int) -> int:
    """Return the bytes of the longest of `num_chunks` chunks."""
    return math.ceil(input_of(case, members_of(case)[0]).numel() / num_chunks) * itemsize_of(case)


def sends_whole_tensors(case: Case, wire: Wire) -> bool:
    """Return whether every message that each member sends its one neighbour holds the whole tensor."""
    members, item = members_of(case), input_of(case, members_of(case)[0]).element_size()
    if len(members) < 2 or tensor_bytes(case) <= chunk_bytes(case, len(members)):
        return False
    smallest = min(min((message.bytes for message in wire.sent_by(rank)), default=0) for rank in members)
    return all(len(wire.peers(rank)) == 1 for rank in members) and smallest * max(4 // item, 1) >= tensor_bytes(case)


def sends_more_than_chunks(case: Case, wire: Wire) -> bool:
    """Return whether members send their one neighbour messages of several sizes, the largest more than a chunk."""
    members, item = members_of(case), input_of(case, members_of(case)[0]).element_size()
    sizes = [message.bytes * max(4 // item, 1) for rank in members for message in wire.sent_by(rank)]
    several = len(set(sizes)) > 1 and all(len(wire.peers(rank)) == 1 for rank in members)
    return several and max(sizes) > chunk_bytes(case, len(members))


def sends_to_everyone(case: Case, wire: Wire) -> bool:
    """Return whether each member sent to all others."""
    members = members_of(case)
    return len(members) > 2 and all(len(wire.peers(rank)) == len(members) - 1 for rank in members)


def passes_through_one(case: Case, wire: Wire) -> bool:
    """Return whether one rank is at an end of every message."""
    ends = [{message.src, message.dst} for message in wire.messages]
    return len(members_of(case)) > 2 and bool(ends) and bool(set.intersection(*ends))


def leaves_the_group(case: Case, wire: Wire) -> bool:
    """Return whether a rank outside the group sent or was sent a message."""
    return not {rank for message in wire.messages for rank in (message.src, message.dst)} <= set(members_of(case))


def outsiders(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield a finding if a rank outside the group was sent a message or sent one."""
    members = members_of(case)
    for message in wire.messages:
        if not {message.src, message.dst} <= set(members):
            text = f"Rank {message.src} sent to rank {message.dst}, but only {ranks_in_words(members)} take part."
            yield Finding(GROUP_RANKS, text, rank=message.src, call=message.sent)


def total_text(messages: Sequence[Message]) -> str:
    """Return "4 messages of 12 bytes" or "3 messages, 40 bytes in all"."""
    sizes = {message.bytes for message in messages}
    text = plural(len(messages), "message")
    if len(sizes) == 1:
        return f"{text} of {sizes.pop()} bytes"
    return f"{text}, {sum(m.bytes for m in messages)} bytes in all" if messages else text


def ring_traffic(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield a finding unless each member sends at most 2(N-1) chunks, all to one neighbour, all in one cycle."""
    if is_second_use(case):
        return
    members = members_of(case)
    chunk, most = chunk_bytes(case, len(members)), 2 * (len(members) - 1)
    for rank in members:
        sent, peers = wire.sent_by(rank), wire.peers(rank)
        expected = f"rank {rank} sends {plural(most, 'message')} of at most {chunk} bytes"
        if len(peers) > 1:
            yield Finding(
                THROUGH_ONE if passes_through_one(case, wire) else EVERYBODY if sends_to_everyone(case, wire) else "",
                f"Rank {rank} sends to {ranks_in_words(peers)}; in a ring it sends to its right neighbour and to "
                "nobody else.",
                expected,
                f"rank {rank} sends to {ranks_in_words(peers)}",
                rank,
                wire.first_send(rank, set(peers) - {sent[0].dst}),
            )
        largest = max((message.bytes for message in sent), default=0)
        if largest > chunk or len(sent) > most or sum(m.bytes for m in sent) > most * chunk:
            yield Finding(
                WHOLE_TENSOR if sends_whole_tensors(case, wire) else "",
                f"The sums are right, but rank {rank} sends {total_text(sent)}; a ring needs "
                f"{plural(most, 'message')} of one chunk, at most {chunk} bytes each.",
                expected,
                f"rank {rank} sends {total_text(sent)}",
                rank,
                next((message.sent for message in sent if message.bytes > chunk), None),
                most_bytes=chunk if largest > chunk else None,
            )
    yield from _one_cycle(members, wire)


def _one_cycle(members: Sequence[int], wire: Wire) -> Iterator[Finding]:
    right = {rank: wire.peers(rank)[0] for rank in members if wire.peers(rank)}
    if len(right) < len(members):
        return  # some chunks are empty; the values have been judged
    at, seen = members[0], {members[0]}
    while right[at] not in seen:
        at = right[at]
        seen.add(at)
    if len(seen) < len(members):
        yield Finding("", f"The messages go round {ranks_in_words(seen)} only, not round all {len(members)}.")


def root_traffic(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield a finding unless every message has rank 0 at one end, one up and one down for each other rank."""
    if is_second_use(case):
        return
    whole = tensor_bytes(case)
    for message in wire.messages:
        if 0 not in (message.src, message.dst):
            yield Finding(
                EVERYBODY if sends_to_everyone(case, wire) else NOT_THROUGH_ROOT,
                f"Rank {message.src} sends to rank {message.dst}; here everything passes through rank 0.",
                "rank 0 at one end of every message",
                f"a message from rank {message.src} to rank {message.dst}",
                message.src,
                message.sent,
            )
    for rank in range(1, case.world_size):
        up, down = wire.bytes_sent(rank), wire.bytes_received(rank)
        if up > whole or down > whole:
            text = f"Rank {rank} sends {up} and receives {down} bytes; its tensor has {whole}, once each way is enough."
            yield Finding("", text, rank=rank)
