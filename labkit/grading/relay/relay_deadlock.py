"""Ranks that do not go on, in words: for each rank what it waits for on the relay, and from whom."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.grading.relay.records import ANY_SOURCE, Deadlock, Post, RankState
from labkit.launch.reports import IN_NO_CALL
from labkit.words import tagged


def describe_deadlock(ranks: Sequence[RankState]) -> Deadlock:
    """Return who waits for whom, where no rank can go on."""
    waiting = [rank for rank, state in enumerate(ranks) if state.waits]
    kinds = {
        ranks[rank].posts[number].kind if number in ranks[rank].posts else "collective"
        for rank in waiting
        for number in ranks[rank].waits
    }
    if len(waiting) == len(ranks) > 1 and kinds == {"send"}:
        text = "Deadlock: every rank waits for its send to be received, and no rank has got as far as receiving."
    elif len(waiting) == len(ranks) > 1 and kinds == {"recv"}:
        text = "Deadlock: every rank waits to receive, and nothing has been sent that would answer it."
    elif len(waiting) == len(ranks) > 1:
        text = "Deadlock: every rank waits for another one."
    else:
        asked = {other for rank in waiting for number in ranks[rank].waits for other in _peers(ranks, rank, number)}
        names = _listed([f"rank {rank}" for rank in waiting])
        rest = _listed([f"rank {rank}" for rank in sorted(asked - set(waiting))])
        verb = "waits" if len(waiting) == 1 else "wait"
        text = f"Deadlock: {names} still {verb} for what {rest} will never do."
        if not rest:
            text = f"Deadlock: {names} {verb} for {'each other' if len(waiting) > 1 else 'itself'}."
    return Deadlock(waiting[0], text, rank_lines(ranks))


def rank_lines(ranks: Sequence[RankState]) -> tuple[str, ...]:
    """Return a line for each rank: what it waits for, how it ended, or that it is elsewhere."""
    return tuple(f"rank {rank} {_words(ranks, rank)}" for rank in range(len(ranks)))


def _words(ranks: Sequence[RankState], rank: int) -> str:
    state = ranks[rank]
    if state.waits:
        return "waits " + ", and ".join(_wait_words(ranks, rank, number) for number in sorted(state.waits))
    if state.gone:
        return state.gone
    return "has finished" if state.ended else f"is {IN_NO_CALL}: it computes, sleeps, or waits for something else"


def _peers(ranks: Sequence[RankState], rank: int, number: int) -> set[int]:
    """Return the ranks of which any, or each, can end this wait."""
    if number in ranks[rank].posts:
        peer = ranks[rank].posts[number].peer
        return set(range(len(ranks))) - {rank} if peer == ANY_SOURCE else {peer}
    return set(_late(ranks[rank], number))


def _late(state: RankState, number: int) -> list[int]:
    collective, _ = state.parts[number]
    missing = [member for member in collective.members if member not in collective.parts]
    return missing or [m for m in collective.members if collective.parts[m].contribution is None]


def _other_tag(ranks: Sequence[RankState], post: Post) -> str:
    """Return what the other end does with a message of another tag, "" where it does nothing of the kind."""
    there = ranks[post.peer] if post.peer != ANY_SOURCE else RankState()
    for other in (there.posts[number] for number in sorted(there.waits) if number in there.posts):
        opposite = other.kind != post.kind and other.peer == post.rank and other.group == post.group
        if opposite and other.match is None and other.tag != post.tag:
            return f", which {'asks for' if post.kind == 'send' else 'sends'} tag {other.tag}"
    return ""


def _wait_words(ranks: Sequence[RankState], rank: int, number: int) -> str:
    state = ranks[rank]
    where = f" ({state.waits[number]})" if state.waits[number] else ""
    if number in state.posts:
        post = state.posts[number]
        size = f"{post.size} byte{'' if post.size == 1 else 's'}"
        more = f"{tagged(post.tag)}{_other_tag(ranks, post)}{where}"
        if post.kind == "send":
            return f"for rank {post.peer} to receive {size}{more}"
        source = "any rank" if post.peer == ANY_SOURCE else f"rank {post.peer}"
        return f"for {size} from {source}{more}"
    _, part = state.parts[number]
    late = _listed([f"rank {member}" for member in _late(state, number)])
    return f"in {part.name} for {late or 'the others'}{where}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""
