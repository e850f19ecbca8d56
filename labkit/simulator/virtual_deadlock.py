"""The report of a deadlock: what every rank waits for, where, and who waits for whom in a circle."""

from __future__ import annotations

import linecache
from collections.abc import Sequence

from labkit.simulator.clock import RankClock, Waits, find_cycle
from labkit.simulator.record import at

_MOST_LINES = 16
_MOST_LINES_OF_MANY = 6


def describe(clocks: Sequence[RankClock]) -> tuple[str, dict[int, str]]:
    """Return the report as a whole, and what is known of each rank.

    Args:
        clocks: All ranks, then the threads they started, at the moment at which none can go on.
    """
    texts = {clock.number: _one(clock, clocks) for clock in clocks}
    num_ranks = 1 + max(clock.rank for clock in clocks)
    reports = {clock.rank: texts[clock.number] for clock in clocks[:num_ranks]}
    stuck = [clock for clock in clocks if not clock.done]
    for clock in stuck:
        if clock.label:
            reports[clock.rank] += f"\n{texts[clock.number]}"
    waiting = {clock.rank for clock in stuck}
    if len(waiting) == 1:
        headline = f"Deadlock: rank {stuck[0].rank} of {num_ranks} waits for something that can never happen."
    else:
        headline = f"Deadlock: {len(waiting)} of {num_ranks} ranks wait and none can go on."
    lines = [headline]
    cycle = find_cycle(list(clocks))
    if len(cycle) > 1:
        shown = cycle if len(cycle) <= _MOST_LINES else cycle[:_MOST_LINES_OF_MANY]
        chain = " -> ".join(clocks[number].name for number in shown)
        more = "" if len(shown) == len(cycle) else f" -> ... {len(cycle) - len(shown)} more"
        lines.append(f"They wait for each other in a circle: {chain}{more} -> {clocks[cycle[0]].name}.")
    order = [*cycle, *(clock.number for clock in stuck if clock.number not in cycle)]
    said = [texts[number] for number in order] if len(order) <= _MOST_LINES else _together(order, texts, clocks)
    lines += [f"  {text}" for text in said]
    return "\n".join(lines), reports


def _together(order: Sequence[int], texts: dict[int, str], clocks: Sequence[RankClock]) -> list[str]:
    """Return one line for all that wait alike: the first of these lines, and how many ranks are in none of them."""
    alike: dict[str, list[RankClock]] = {}
    for number in order:
        clock = clocks[number]
        alike.setdefault(texts[number].removeprefix(clock.name), []).append(clock)
    lines, left = [], len(order)
    for text, group in list(alike.items())[:_MOST_LINES_OF_MANY]:
        left -= len(group)
        ranks = [clock.rank for clock in group]
        alone = len(group) == 1 or any(clock.label for clock in group)
        names = ", ".join(clock.name for clock in group) if alone else f"ranks {_spans(ranks)}"
        lines.append(names + (text if len(group) == 1 else text.replace(" waits ", " wait ", 1)))
    if left:
        lines.append(f"... and {left} more ranks (see .reports of this error)")
    return lines


def _spans(ranks: Sequence[int]) -> str:
    """Return "0-299, 301-511"; of more than eight stretches the first eight."""
    stretches: list[list[int]] = []
    for rank in sorted(ranks):
        if stretches and rank == stretches[-1][1] + 1:
            stretches[-1][1] = rank
        else:
            stretches.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in stretches[:8]]
    return ", ".join(shown) + ("" if len(stretches) <= 8 else f", ... ({len(ranks)} in all)")


def _one(clock: RankClock, clocks: Sequence[RankClock]) -> str:
    if clock.done:
        return f"{clock.name} has finished"
    waiting = clock.waiting
    if waiting is None:
        return f"{clock.name} could go on"
    return f"{clock.name} waits in {waiting.text()}{at(waiting.source)}{_line(waiting)}{_why(clock, clocks)}"


def _line(waiting: Waits) -> str:
    path, _, number = waiting.source.rpartition(":")
    text = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    return f": {text}" if text else ""


def _why(clock: RankClock, clocks: Sequence[RankClock]) -> str:
    assert clock.waiting is not None
    peers = [clocks[number] for number in clock.waiting.peers() if number != clock.number]
    finished = [peer for peer in peers if peer.done]
    others = [peer for peer in peers if not peer.done]
    if clock.number in clock.waiting.peers() and not peers:
        return " - which only it could answer itself"
    said = []
    if finished:
        said.append(f"{_names(finished)} finished without it")
    if others:
        places = {peer.waiting.text() for peer in others if peer.waiting is not None}
        where = f"in {places.pop()}" if len(places) == 1 else "not there"
        said.append(f"{_names(others)} {'is' if len(others) == 1 else 'are'} {where}")
    return f" - {'; '.join(said)}" if said else ""


def _names(clocks: Sequence[RankClock]) -> str:
    if len(clocks) == 1:
        return clocks[0].name
    shown = ", ".join(clock.name.removeprefix("rank ") for clock in clocks[:6])
    return f"ranks {shown}{', ...' if len(clocks) > 6 else ''}"
