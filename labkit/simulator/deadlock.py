"""The report of a deadlock: what every rank waits for, where, and who waits for whom in a circle."""

from __future__ import annotations

import linecache
from collections.abc import Sequence

from labkit.simulator.clock import RankClock, Waiting, find_cycle
from labkit.simulator.record import at

_MOST_LINES = 16


def describe(clocks: Sequence[RankClock]) -> tuple[str, dict[int, str]]:
    """Return the report as a whole, and what is known of each rank.

    Args:
        clocks: All ranks, at the moment at which none can go on.
    """
    reports = {clock.rank: _one(clock, clocks) for clock in clocks}
    stuck = [clock.rank for clock in clocks if not clock.done]
    if len(stuck) == 1:
        headline = f"Deadlock: rank {stuck[0]} of {len(clocks)} waits for something that can never happen."
    else:
        headline = f"Deadlock: {len(stuck)} of {len(clocks)} ranks wait and none can go on."
    lines = [headline]
    cycle = find_cycle(list(clocks))
    if cycle:
        shown = cycle if len(cycle) <= _MOST_LINES else [*cycle[: _MOST_LINES - 1]]
        chain = " -> ".join(f"rank {rank}" for rank in shown)
        more = "" if len(shown) == len(cycle) else f" -> ... {len(cycle) - len(shown)} more"
        lines.append(f"They wait for each other in a circle: {chain}{more} -> rank {cycle[0]}.")
    first = [rank for rank in cycle if rank in stuck]
    order = [*first, *(rank for rank in stuck if rank not in first)]
    lines += [f"  {reports[rank]}" for rank in order[:_MOST_LINES]]
    if len(order) > _MOST_LINES:
        lines.append(f"  ... and {len(order) - _MOST_LINES} more ranks (see .reports of this error)")
    return "\n".join(lines), reports


def _one(clock: RankClock, clocks: Sequence[RankClock]) -> str:
    if clock.done:
        return f"rank {clock.rank} has finished"
    waiting = clock.waiting
    if waiting is None:
        return f"rank {clock.rank} could go on"
    return f"rank {clock.rank} waits in {waiting.text()}{at(waiting.source)}{_line(waiting)}{_why(clock, clocks)}"


def _line(waiting: Waiting) -> str:
    path, _, number = waiting.source.rpartition(":")
    text = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    return f": {text}" if text else ""


def _why(clock: RankClock, clocks: Sequence[RankClock]) -> str:
    assert clock.waiting is not None
    peers = [peer for peer in clock.waiting.peers() if peer != clock.rank]
    finished = [peer for peer in peers if clocks[peer].done]
    others = [peer for peer in peers if not clocks[peer].done]
    if clock.rank in clock.waiting.peers() and not peers:
        return " - which only it could answer itself"
    said = []
    if finished:
        said.append(f"{_ranks(finished)} finished without it")
    if others:
        elsewhere = {peer: clocks[peer].waiting for peer in others}
        places = {wait.text() for wait in elsewhere.values() if wait is not None}
        where = f"in {places.pop()}" if len(places) == 1 else "not there"
        said.append(f"{_ranks(others)} {'is' if len(others) == 1 else 'are'} {where}")
    return f" - {'; '.join(said)}" if said else ""


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:6]))
    return f"ranks {shown}{', ...' if len(ranks) > 6 else ''}"
