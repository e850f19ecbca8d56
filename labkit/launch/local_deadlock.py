"""Whether ranks that all wait could still be served, by counting what was posted against what has arrived.

A message counts as arrived only when its wait() has returned: the count errs towards "could".
"""

from __future__ import annotations

from collections.abc import Mapping

from labkit.launch.recording import RankLog, Wait, layout
from labkit.launch.waits import meets
from labkit.timeline.messages import RECEIVES, SENDS


def nothing_in_flight(waiting: Mapping[int, RankLog], logs: Mapping[int, RankLog]) -> bool:
    """Return whether no wait of these ranks can end by what has already been posted.

    Args:
        waiting: Ranks of which every one waits in communication.
        logs: What all ranks recorded.
    """
    if any(log.dropped for log in logs.values()):
        return False
    return not any(_can_end(rank, wait, logs) for rank, log in waiting.items() for wait in log.waits)


def _can_end(rank: int, wait: Wait, logs: Mapping[int, RankLog]) -> bool:
    if wait.operation.startswith("store."):
        return True  # by whoever sets the key
    others = [other for other in logs if other != rank] if wait.peer is None else [wait.peer]
    if wait.group_ranks:  # only the group's own ranks can send to it
        others = [other for other in others if other in wait.group_ranks]
    if wait.operation in RECEIVES:
        return any(
            other not in logs
            or _count(logs[other], SENDS, rank, wait.tag) > _count(logs[rank], RECEIVES, other, wait.tag, done=True)
            for other in others
        )
    if wait.operation in SENDS:
        return any(
            other not in logs
            or _count(logs[other], RECEIVES, rank, wait.tag) > _count(logs[rank], SENDS, other, wait.tag, done=True)
            for other in others
        )
    members = wait.group_ranks or tuple(logs)
    return all(other not in logs or meets(logs[other], wait) for other in members)


def _count(log: RankLog, kinds: tuple[str, ...], peer: int, tag: int, *, done: bool = False) -> int:
    """Return how many calls with this tag and this peer, or one not yet known, a rank has begun or ended."""
    numbers = [number for number, name in enumerate(log.names) if name in kinds]
    records = log.records
    chosen = (records["peer"] == peer) | ((records["peer"] < 0) & (not done))
    chosen &= sum((records["kind"] == number for number in numbers), start=records["kind"] < 0)
    chosen &= records["tag"] == tag
    if done:
        chosen &= records["state"] == layout.DONE
    return int(chosen.sum())
