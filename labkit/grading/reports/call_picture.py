"""A case as a picture: each rank a row, its calls in their order, messages as arrows, what went wrong in red.

The relay reads no clock, so that a program gets the same verdict on any machine; the picture has no time either, but an
order: a receive never stands left of its send. SVG without script or style of its own: the page's style colours it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from labkit.grading.plain_text import plain_text
from labkit.grading.relay.calls import Call
from labkit.grading.reports.page import fragment

MAX_RANKS = 12
MAX_COLUMNS = 36


def call_picture(
    calls: Sequence[Call], world_size: int, failed_rank: int | None = None, most_bytes: int | None = None
) -> str:
    """Return the picture of a case as a ``<figure>``, or "" where no rank communicated.

    Args:
        calls: As :func:`labkit.grading.relay.calls.calls_of` returns them.
        world_size: Number of ranks.
        failed_rank: The rank that raised or ended, if one did.
        most_bytes: What a message may hold at most, where one holds more: the rest is drawn as too much.
    """
    if not calls:
        return ""
    ranks = list(range(world_size))[:MAX_RANKS]
    columns = _columns(calls)
    first = _first_column(calls, columns)
    shown = {
        (call.rank, call.position): call
        for call in calls
        if call.rank in ranks and first <= columns[call.rank, call.position] < first + MAX_COLUMNS
    }
    num_columns = max(columns[key] for key in shown) - first + 1 if shown else 1
    kinds = {_kind_of(call) for call in calls}
    waits = _waits(list(shown.values()))
    beside = max((len(words) for _, words in waits), default=0)
    place = _Places({key: columns[key] - first for key in shown}, num_columns, len(ranks), beside)
    return fragment(
        "call_picture.html",
        calls=shown.values(),
        place=place,
        waits=waits,
        arrows=[
            (call, place.arrow(call, shown[_other(call)]))
            for call in shown.values()
            if call.kind == "send" and call.match is not None and _other(call) in shown
        ],
        ranks=ranks,
        failed_rank=failed_rank,
        kinds=[kind for kind in ("send", "recv", "collective") if kind in kinds],
        kind_of=_kind_of,
        label_of=_label_of,
        words_of=_words_of,
        told=_in_words(calls),
        most=most_bytes or 0,
        over=any(call.kind == "send" and call.bytes > (most_bytes or call.bytes) for call in calls),
        is_over=lambda call: bool(most_bytes) and call.peer is not None and call.bytes > most_bytes,
        cut_words=_cut_words(world_size, len(shown), sum(call.rank in ranks for call in calls), first),
    )


def _waits(shown: Sequence[Call]) -> list[tuple[Call, str]]:
    """Return for each rank that waits its last call, and whom it waits for, whichever of its calls does."""
    found = []
    for rank in sorted({call.rank for call in shown}):
        own = sorted((call for call in shown if call.rank == rank), key=lambda call: call.position)
        peers = sorted({call.peer for call in own if call.fate == "waits" and call.peer is not None})
        if peers:
            listed = ", ".join(map(str, peers[:4])) + (", ..." if len(peers) > 4 else "")
            whom = "any rank" if peers[0] < 0 else f"rank{'s' * (len(peers) > 1)} {listed}"
            found.append((own[-1], f"waits for {whom}"))
    return found


def _columns(calls: Sequence[Call]) -> dict[tuple[int, int], int]:
    """Return each call's column: right of the rank's call before, and not left of the send it receives from."""
    by_key = {(call.rank, call.position): call for call in calls}
    order: dict[int, list[int]] = {}
    for rank, position in sorted(by_key):
        order.setdefault(rank, []).append(position)
    columns: dict[tuple[int, int], int] = {}
    last = dict.fromkeys(order, -1)
    waiting = {rank: list(reversed(positions)) for rank, positions in order.items()}
    while any(waiting.values()):
        ready = [rank for rank in waiting if waiting[rank] and _ready(by_key[rank, waiting[rank][-1]], columns)]
        # Two ranks that post their receives first wait for each other here, though not in truth: the earliest goes on.
        for rank in ready or [min((rank for rank in waiting if waiting[rank]), key=lambda rank: (last[rank], rank))]:
            call = by_key[rank, waiting[rank].pop()]
            sent = columns.get(_other(call), -1) if call.kind == "recv" else -1
            columns[rank, call.position] = last[rank] = max(last[rank] + 1, sent)
    return columns


def _ready(call: Call, columns: Mapping[tuple[int, int], int]) -> bool:
    return call.kind != "recv" or call.match is None or _other(call) in columns


def _other(call: Call) -> tuple[int, int]:
    return (-1 if call.peer is None else call.peer, -1 if call.match is None else call.match)


def _first_column(calls: Sequence[Call], columns: Mapping[tuple[int, int], int]) -> int:
    """Return where a picture that cannot hold everything begins: so that it ends with the first fault."""
    faults = [columns[call.rank, call.position] for call in calls if call.fate != "met"]
    return max(0, min(faults, default=0) - MAX_COLUMNS + 2)


class _Places:
    """Where calls stand, in pixels."""

    left, all_width, bar_height = 64, 720, 20
    _top, _row, _letter = 8, 46, 6.6

    def __init__(
        self, columns: Mapping[tuple[int, int], int], num_columns: int, num_ranks: int, letters_beside: int = 0
    ) -> None:
        self._columns = columns
        right = max(24.0, 12 + self._letter * letters_beside)
        self._step = (self.all_width - self.left - right) / max(num_columns, 4)
        self.bar_width = max(3.0, min(self._step * 0.82, 124.0))
        self.right = self.left + self._step * num_columns
        self.all_height = self._top + self._row * num_ranks + 4

    def x(self, call: Call) -> float:
        """Return the left edge of a call's bar."""
        return self.left + self._columns[call.rank, call.position] * self._step

    def middle(self, call: Call) -> float:
        """Return the middle of a call's bar, from the left."""
        return self.x(call) + self.bar_width / 2

    def arrow(self, send: Call, receive: Call) -> tuple[float, float, float, float, float]:
        """Return where a message's arrow begins and ends, and its head's angle in degrees.

        It runs from the end of the send to the begin of the receive, in the gap before that: over no call between. In
        one column it runs from bar to bar.
        """
        if self.x(receive) > self.x(send):
            middle = self.bar_height / 2
            x1, y1 = self.x(send) + self.bar_width, self.y(send.rank) + middle
            x2, y2 = self.x(receive), self.y(receive.rank) + middle
        else:
            is_down = receive.rank > send.rank
            x1, y1 = self.middle(send), self.y(send.rank) + self.bar_height * is_down
            x2, y2 = self.middle(receive), self.y(receive.rank) + self.bar_height * (not is_down)
        return x1, y1, x2, y2, math.degrees(math.atan2(y2 - y1, x2 - x1))

    def y(self, rank: int) -> float:
        """Return the upper edge of a rank's bars."""
        return self._top + rank * self._row + (self._row - self.bar_height) / 2


def _kind_of(call: Call) -> str:
    return call.kind if call.kind in ("send", "recv") else "collective"


def _label_of(call: Call) -> str:
    return call.kind if _kind_of(call) == "collective" else f"{call.bytes} B"


def _words_of(call: Call) -> str:
    """Return what hovering over a call says."""
    if call.peer is None:
        did = f"calls {call.kind}"
    elif call.kind == "send":
        did = f"sends {call.bytes} bytes to rank {call.peer}"
    else:
        did = f"receives {call.bytes} bytes from {'any rank' if call.peer < 0 else f'rank {call.peer}'}"
    missing = {"met": "", "waits": "; it waits here", "unmet": "; the other side never came"}[call.fate]
    where = f" ({call.where})" if call.where else ""
    return plain_text(f"rank {call.rank}, call {call.position + 1}: {did}{missing}{where}", 300)


def _in_words(calls: Sequence[Call]) -> str:
    sends = [call for call in calls if call.kind == "send"]
    kinds = sorted({call.kind for call in calls if call.peer is None})
    sent = sum(call.bytes for call in sends)
    arrived = sum(call.match is not None for call in sends)
    some = "" if arrived == len(sends) else f", {arrived} of them received"
    together = "together " if len(sends) > 1 else ""
    words = [f"{len(sends)} message{'s' * (len(sends) != 1)}, {together}{sent} bytes{some}."] if sends else []
    if kinds:
        words.append(f"Collectives: {plain_text(', '.join(kinds), 200)}.")
    stuck = sorted({call.rank for call in calls if call.fate == "waits"})
    if stuck:
        listed = ", ".join(map(str, stuck[:8])) + (", ..." if len(stuck) > 8 else "")
        words.append(f"In red: where rank{'s' * (len(stuck) > 1)} {listed} waited in vain.")
    elif any(call.fate == "unmet" for call in calls):
        words.append("In red: what had no other side.")
    return " ".join(words)


def _cut_words(world_size: int, num_shown: int, num_calls: int, first: int) -> str:
    cut = []
    if world_size > MAX_RANKS:
        cut.append(f"{MAX_RANKS} of {world_size} ranks")
    if num_shown < num_calls:
        cut.append(f"{num_shown} of their {num_calls} calls{', the ones up to the fault' if first else ''}")
    return f" Shown: {', '.join(cut)}." if cut else ""
