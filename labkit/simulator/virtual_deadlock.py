"""The report of a deadlock of virtual ranks: exact, because the scheduler knows what everybody waits for."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.deadlock import FINISHED, Standing, Waiting, line_of
from labkit.simulator.clock import RankClock


def describe(clocks: Sequence[RankClock]) -> tuple[str, dict[int, str]]:
    """Return the report as a whole, and what is known of each rank.

    Args:
        clocks: All ranks, then the threads they started, at the moment at which none can go on.
    """
    waits = [waiting for clock in clocks if (waiting := _waiting(clock)) is not None]
    num_ranks = 1 + max(clock.rank for clock in clocks)
    ended = {clock.number: FINISHED for clock in clocks if clock.done}
    names = {clock.number: clock.name for clock in clocks}
    standing = Standing(num_ranks, waits, ended, names)
    reports: dict[int, str] = {rank: f"rank {rank} {FINISHED}" for rank in ended if rank < num_ranks}
    for waiting in waits:
        before = f"{reports[waiting.rank]}\n" if waiting.rank in reports else ""
        reports[waiting.rank] = before + standing.sentence(waiting)
    return standing.report(), reports


def _waiting(clock: RankClock) -> Waiting | None:
    what = clock.waiting
    if what is None or clock.done:
        return None
    thread = clock.number if clock.label else -1
    peers, where = tuple(what.peers()), line_of(what.source)
    return Waiting(clock.rank, what.operation, peers, where=where, thread=thread, label=clock.label, **what.facts())
