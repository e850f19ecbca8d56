"""What ranks of a hidden case wait for on the relay; labkit.deadlock makes sentences of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labkit.deadlock import FINISHED, Standing, Waiting
from labkit.grading.relay.records import ANY_SOURCE, Deadlock, RankState
from labkit.launch.reports import IN_NO_CALL


def describe_deadlock(ranks: Sequence[RankState]) -> Deadlock:
    """Return who waits for whom, where no rank can go on."""
    standing = _standing(ranks)
    return Deadlock(standing.waits[0].rank, standing.headline(), tuple(standing.lines()))


def rank_lines(ranks: Sequence[RankState]) -> tuple[str, ...]:
    """Return a line for each rank: what it waits for, how it ended, or that it is elsewhere."""
    standing = _standing(ranks)
    lines = {rank: f"rank {rank} {words}" for rank, words in standing.ended.items()}
    for rank in range(len(ranks)):
        waits = [standing.sentence(waiting) for waiting in standing.waits if waiting.rank == rank]
        elsewhere = f"rank {rank} is {IN_NO_CALL}: it computes, sleeps, or waits for something else"
        lines.setdefault(rank, "\n".join(waits) or elsewhere)
    return tuple(lines[rank] for rank in range(len(ranks)))


def _standing(ranks: Sequence[RankState]) -> Standing:
    waits = [waiting for rank in range(len(ranks)) for waiting in _waits(ranks, rank)]
    over = {rank: state.gone or FINISHED for rank, state in enumerate(ranks) if state.gone or state.ended}
    return Standing(len(ranks), waits, {rank: words for rank, words in over.items() if not ranks[rank].waits})


def _waits(ranks: Sequence[RankState], rank: int) -> Iterator[Waiting]:
    state = ranks[rank]
    for number in sorted(state.waits):
        where = state.waits[number]
        if number in state.posts:
            post = state.posts[number]
            others = tuple(other for other in range(len(ranks)) if other != rank)
            peers = others if post.peer == ANY_SOURCE else (post.peer,)
            operation = f"i{post.kind}" if post.posted else post.kind
            yield Waiting(rank, operation, peers, post.peer, post.tag, post.size, post.group, where=where)
            continue
        collective, part = state.parts[number]
        missing = [member for member in collective.members if member not in collective.parts]
        late = missing or [m for m in collective.members if collective.parts[m].contribution is None]
        yield Waiting(
            rank, part.name, tuple(late), num_bytes=part.announced, members=collective.members,
            number=collective.number, where=where,
        )  # fmt: skip
