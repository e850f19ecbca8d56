"""What may pass on the wire: who talks to whom, how many messages, how many bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.checks.case import Case
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Message, Wire
from labkit.exercises.ring_all_reduce.sums import input_of, members_of
from labkit.words import join, plural, ranks_in_words


def itemsize_of(case: Case) -> int:
    """Return the bytes of one element on the wire; 16-bit floats may travel as float32."""
    return max(input_of(case, members_of(case)[0]).element_size(), 4)


def tensor_bytes(case: Case) -> int:
    """Return the bytes of what one rank contributes, at most."""
    return input_of(case, members_of(case)[0]).numel() * itemsize_of(case)


def chunk_bytes(case: Case, num_chunks: int) -> int:
    """Return the bytes of the longest of `num_chunks` chunks."""
    return math.ceil(input_of(case, members_of(case)[0]).numel() / num_chunks) * itemsize_of(case)


def library_calls(wire: Wire) -> Verdict | None:
    """Return a verdict if a collective of the library was called."""
    kinds = wire.collective_kinds()
    if not kinds:
        return None
    first = wire.collectives[0]
    return Verdict(
        False,
        message=f"{join(f'dist.{kind}' for kind in kinds)} was called; build it from send and receive calls alone.",
        expected="no collective of the library",
        got=join(kinds),
        rank=first.rank,
        call=first.sequence,
    )


def lost_messages(wire: Wire) -> Verdict | None:
    """Return a verdict if a message had no partner, or its buffer was written before it was received."""
    for problem in wire.problems_of("unmatched_send", "unmatched_recv", "size_mismatch", "changed_in_flight"):
        return Verdict(False, message=problem.text, problem=problem)
    return None


def outsiders(case: Case, wire: Wire) -> Verdict | None:
    """Return a verdict if a rank outside the group was sent a message or sent one."""
    members = set(members_of(case))
    for message in wire.messages:
        if not {message.src, message.dst} <= members:
            outsider = message.dst if message.dst not in members else message.src
            return Verdict(
                False,
                message=f"Rank {message.src} sent to rank {message.dst}, but rank {outsider} is not in the group "
                f"{members_of(case)}.",
                rank=message.src,
                call=message.sent,
            )
    return None


def total_text(messages: Sequence[Message]) -> str:
    """Return "4 messages of 12 bytes" or "3 messages, 40 bytes in all"."""
    sizes = {message.bytes for message in messages}
    text = plural(len(messages), "message")
    if len(sizes) == 1:
        return f"{text} of {sizes.pop()} bytes"
    return f"{text}, {sum(m.bytes for m in messages)} bytes in all" if messages else text


def ring_traffic(case: Case, wire: Wire) -> Verdict | None:
    """Return a verdict unless each member sends at most 2(N-1) chunks, all to one neighbour, all in one cycle."""
    members = members_of(case)
    count, chunk = len(members), chunk_bytes(case, len(members))
    most = 2 * (count - 1)
    for rank in members:
        sent = wire.sent_by(rank)
        expected = f"rank {rank} sends {plural(most, 'message')} of at most {chunk} bytes"
        if len(wire.peers(rank)) > 1:
            return Verdict(
                False,
                message=f"Rank {rank} sends to {ranks_in_words(wire.peers(rank))}; in a ring it sends to its right "
                "neighbour and to nobody else.",
                expected=expected,
                got=f"rank {rank} sends to {ranks_in_words(wire.peers(rank))}",
                rank=rank,
                call=wire.first_send(rank, set(wire.peers(rank)) - {sent[0].dst}),
            )
        largest = max((message.bytes for message in sent), default=0)
        if largest > chunk or len(sent) > most or sum(m.bytes for m in sent) > most * chunk:
            return Verdict(
                False,
                message=f"The sums are right, but rank {rank} sends {total_text(sent)}; a ring needs "
                f"{plural(most, 'message')} of one chunk, at most {chunk} bytes each.",
                expected=expected,
                got=f"rank {rank} sends {total_text(sent)}",
                rank=rank,
                call=next((message.sent for message in sent if message.bytes > chunk), None),
            )
    return _one_cycle(members, wire)


def _one_cycle(members: Sequence[int], wire: Wire) -> Verdict | None:
    right = {rank: wire.peers(rank)[0] for rank in members if wire.peers(rank)}
    if len(right) < len(members):
        return None  # some chunks are empty; the values have been judged
    at, seen = members[0], {members[0]}
    while right[at] not in seen:
        at = right[at]
        seen.add(at)
    if len(seen) == len(members):
        return None
    return Verdict(False, message=f"The messages go round {ranks_in_words(seen)} only, not round all {len(members)}.")


def root_traffic(case: Case, wire: Wire) -> Verdict | None:
    """Return a verdict unless every message has rank 0 at one end, one up and one down for each other rank."""
    whole = tensor_bytes(case)
    for message in wire.messages:
        if 0 not in (message.src, message.dst):
            return Verdict(
                False,
                message=f"Rank {message.src} sends to rank {message.dst}; here everything passes through rank 0.",
                expected="rank 0 at one end of every message",
                got=f"a message from rank {message.src} to rank {message.dst}",
                rank=message.src,
                call=message.sent,
            )
    for rank in range(1, case.world_size):
        up, down = wire.bytes_sent(rank), wire.bytes_received(rank)
        if up > whole or down > whole:
            return Verdict(
                False,
                message=f"Rank {rank} sends {up} and receives {down} bytes; its tensor has {whole}, once each way "
                f"is enough.",
                rank=rank,
            )
    return None


def tree_rounds(messages: Sequence[Message]) -> int:
    """Return how many rounds the messages need when a rank sends or receives one at a time, in its own order."""
    free: dict[int, int] = {}
    rounds = 0
    left = list(messages)
    done: set[tuple[int, int]] = set()
    order: dict[int, list[int]] = {}
    for message in messages:
        order.setdefault(message.src, []).append(message.sent)
        order.setdefault(message.dst, []).append(-1 if message.received is None else message.received)
    for positions in order.values():
        positions.sort()
    while left:
        ready = [m for m in left if _is_next(m.src, m.sent, order, done) and _is_next(m.dst, m.received, order, done)]
        if not ready:
            return rounds + len(left)  # posted together, in no order that can be told: count each
        for message in ready:
            at = max(free.get(message.src, 0), free.get(message.dst, 0)) + 1
            free[message.src] = free[message.dst] = at
            rounds = max(rounds, at)
            done.add((message.src, message.sent))
            done.add((message.dst, -1 if message.received is None else message.received))
            left.remove(message)
    return rounds


def _is_next(rank: int, position: int | None, order: dict[int, list[int]], done: set[tuple[int, int]]) -> bool:
    place = -1 if position is None else position
    return all((rank, earlier) in done for earlier in order[rank] if earlier < place)
