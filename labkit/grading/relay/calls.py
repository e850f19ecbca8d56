"""What each rank called in one case, in its own order, as the relay saw it: the record a picture is drawn from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.grading.relay.records import Post, RankState

Fate = Literal["met", "waits", "unmet"]


@dataclass(frozen=True)
class Call:
    """One call of a rank.

    Attributes:
        rank: Who called.
        position: Its number among the rank's calls, from 0.
        kind: "send", "recv", or a collective's name.
        peer: The other rank; -1 for any, None for a collective.
        bytes: The size of what was sent or asked for.
        match: The other side's position, or None.
        fate: "met" if its other side came; else "waits" where the rank was stuck in it, "unmet" where it went on.
        where: The line of the learner's that called, or "".
    """

    rank: int
    position: int
    kind: str
    peer: int | None
    bytes: int
    match: int | None
    fate: Fate
    where: str = ""


def calls_of(ranks: Sequence[RankState]) -> tuple[Call, ...]:
    """Return every call of every rank, by rank and position."""
    found = []
    for rank, state in enumerate(ranks):
        found += [_of_post(rank, post, state) for post in state.posts.values()]
        for number, (collective, part) in state.parts.items():
            met = set(collective.members) == set(collective.parts)
            fate: Fate = "met" if met else "waits" if number in state.waits else "unmet"
            found.append(Call(rank, part.position, part.name, None, sum(part.sizes or ()), None, fate, part.where))
    return tuple(sorted(found, key=lambda call: (call.rank, call.position)))


def line_of(calls: Sequence[Call], exercise_id: str, rank: int | None, position: int | None) -> int:
    """Return the line of an exercise's cell, from 1, in which a rank made a call; 0 where that is not known."""
    where = next((each.where for each in calls if (each.rank, each.position) == (rank, position)), "")
    found = re.match(rf"exercise {re.escape(exercise_id)}, line (\d{{1,5}}):", where)
    return int(found[1]) if found else 0


def _of_post(rank: int, post: Post, state: RankState) -> Call:
    fate: Fate = "met" if post.match is not None else "waits" if post.id in state.waits else "unmet"
    match = post.match.position if post.match is not None else None
    peer = post.match.rank if post.match is not None else post.peer
    return Call(rank, post.position, post.kind, peer, post.size, match, fate, post.where)
