"""Messages and remote calls between ranks: what the watch notes of each."""

from __future__ import annotations

from typing import Any

from labkit.auditing.probes import Probes
from labkit.auditing.rank_watch import RankWatch
from labkit.auditing.seen import Seen
from labkit.simulator.messages import ANY_SOURCE, Posted
from labkit.simulator.record import Row


def posts(seen: Seen, mine: RankWatch, probes: Probes | None, posted: Posted) -> None:
    """Note who sends to whom, and whether whoever sends is answered before another is listened to."""
    mine.num_messages += 1
    mine.exchanged.message(posted, mine.step)
    if posted.sends:
        seen.messages.add((mine.rank, posted.peer))
        if probes is not None and probes.keeps_sent:
            probes.add(mine, "sent", f"to rank {posted.peer}", posted.tensor, posted.row.source)
        if mine.heard is not None and mine.heard.peer == posted.peer:
            mine.heard = None
        return
    if posted.peer != ANY_SOURCE:
        return
    if mine.heard is not None:
        seen.any_source[mine.heard.row.source] = False
    seen.any_source.setdefault(posted.row.source, True)
    mine.heard = posted


def asks(seen: Seen, mine: RankWatch, probes: Probes | None, row: Row, number: int, request: list[Any]) -> None:
    """Note a remote call, and what it gives."""
    mine.num_messages += 1
    seen.handlers.setdefault(row.name, row.source)
    if probes is not None and probes.keeps_sent:
        probes.add(mine, "sent", _named(row, number), request[1:], row.source)


def hears(mine: RankWatch, probes: Probes | None, row: Row, number: int, value: Any) -> None:
    """Note what a remote call brings back."""
    if probes is not None and probes.keeps_sent:
        probes.add(mine, "answered", _named(row, number), value, row.source)


def _named(row: Row, number: int) -> str:
    return f"to rank {row.peer}, {row.name}() as call {number}"
