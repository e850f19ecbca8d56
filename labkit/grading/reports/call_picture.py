"""A case as a picture: each rank a row, its calls in their order, messages as arrows, what went wrong in red.

The relay reads no clock, so that a program gets the same verdict on any machine; the picture has no time either, but an
order: a receive never stands left of its send. SVG without script or style of its own: the page's style colours it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from labkit.grading.plain_text import plain_text
from labkit.grading.relay.calls import Call

MAX_RANKS = 12
MAX_COLUMNS = 36
_LEFT, _TOP, _ROW, _BAR = 64, 8, 46, 20
_WIDTH = 720
_SHAPES = {"send": "send", "recv": "recv"}


def call_picture(calls: Sequence[Call], world_size: int, failed_rank: int | None = None) -> str:
    """Return the picture of a case as a ``<figure>``, or "" where no rank communicated.

    Args:
        calls: As :func:`labkit.grading.relay.calls.calls_of` returns them.
        world_size: Number of ranks.
        failed_rank: The rank that raised or ended, if one did.
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
    step = (_WIDTH - _LEFT - 24) / max(num_columns, 6)
    place = _Places({key: columns[key] - first for key in shown}, step)
    height = _TOP + _ROW * len(ranks) + 4
    parts = [
        f'<svg class="calls" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(_in_words(calls))}">',
        *(_row(rank, rank == failed_rank) for rank in ranks),
        *(_bar(call, place) for call in shown.values()),
        *(_arrow(call, shown, place) for call in shown.values() if call.kind == "send"),
        *(_stub(call, place) for call in shown.values() if call.fate != "met" and call.peer is not None),
        "</svg>",
    ]
    cut = _cut_words(world_size, len(shown), sum(call.rank in ranks for call in calls), first)
    key = _key(calls)
    return f"<figure>{''.join(parts)}<figcaption>{key} {escape(_in_words(calls))}{cut}</figcaption></figure>"


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

    def __init__(self, columns: Mapping[tuple[int, int], int], step: float) -> None:
        self._columns = columns
        self.width = max(3.0, min(step * 0.82, 96.0))
        self.step = step

    def x(self, rank: int, position: int) -> float:
        """Return the left edge of a call's bar."""
        return _LEFT + self._columns[rank, position] * self.step

    @staticmethod
    def y(rank: int) -> float:
        """Return the upper edge of a rank's bars."""
        return _TOP + rank * _ROW + (_ROW - _BAR) / 2


def _row(rank: int, failed: bool) -> str:
    y = _TOP + rank * _ROW + _ROW / 2
    mark = ' class="stuck"' if failed else ""
    name = f'<text x="4" y="{y + 4:g}"{mark}>rank {rank}</text>'
    return f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:g}" y2="{y:g}"/>{name}'


def _bar(call: Call, place: _Places) -> str:
    x, y = place.x(call.rank, call.position), place.y(call.rank)
    kind = _SHAPES.get(call.kind, "collective")
    state = "" if call.fate == "met" else " stuck"
    word = f"{call.bytes} B" if kind != "collective" else call.kind
    room = place.width / 6.5
    label = (
        f'<text class="in" x="{x + place.width / 2:.1f}" y="{y + 14:g}">{escape(plain_text(word, 40))}</text>'
        if len(word) <= room
        else ""
    )
    box = f'<rect x="{x:.1f}" y="{y:g}" width="{place.width:.1f}" height="{_BAR}" rx="2"/>'
    return f'<g class="{kind}{state}"><title>{escape(_call_words(call))}</title>{box}{label}</g>'


def _arrow(call: Call, shown: Mapping[tuple[int, int], Call], place: _Places) -> str:
    if call.match is None or _other(call) not in shown:
        return ""
    peer, match = _other(call)
    down = peer > call.rank
    x1, y1 = place.x(call.rank, call.position) + place.width / 2, place.y(call.rank) + (_BAR if down else 0)
    x2, y2 = place.x(peer, match) + place.width / 2, place.y(peer) + (0 if down else _BAR)
    tip = -6 if down else 6
    head = f'<path class="head" d="M{x2:.1f} {y2:g}l-3.5 {tip}h7z"/>'
    return f'<path class="message" d="M{x1:.1f} {y1:g}L{x2:.1f} {y2 + tip / 2:g}"/>{head}'


def _stub(call: Call, place: _Places) -> str:
    """Return the sign of a message that had no other side: a broken line towards the peer."""
    x, y = place.x(call.rank, call.position) + place.width / 2, place.y(call.rank)
    down = call.peer is not None and call.peer > call.rank
    start, end = (y + _BAR, y + _BAR + 11) if down else (y, y - 11)
    waits = ""
    if call.fate == "waits":
        whom = "any rank" if call.peer is None or call.peer < 0 else f"rank {call.peer}"
        waits = f'<text class="stuck" x="{x + place.width / 2 + 6:.1f}" y="{y + 14:g}">waits for {whom}</text>'
    return f'<path class="missing" d="M{x:.1f} {start:g}V{end:g}"/>{waits}'


def _call_words(call: Call) -> str:
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
    words = [f"{len(sends)} message{'s' * (len(sends) != 1)} with {sent} bytes{some}."] if sends else []
    if kinds:
        words.append(f"Collectives: {plain_text(', '.join(kinds), 200)}.")
    stuck = sorted({call.rank for call in calls if call.fate == "waits"})
    if stuck:
        listed = ", ".join(map(str, stuck[:8])) + (", ..." if len(stuck) > 8 else "")
        words.append(f"In red: where rank{'s' * (len(stuck) > 1)} {listed} waited in vain.")
    elif any(call.fate == "unmet" for call in calls):
        words.append("In red: what had no other side.")
    return " ".join(words)


def _key(calls: Sequence[Call]) -> str:
    kinds = {_SHAPES.get(call.kind, "collective") for call in calls}
    words = {"send": "sends", "recv": "receives", "collective": "collective"}
    items = "".join(f'<span class="key {kind}">{word}</span>' for kind, word in words.items() if kind in kinds)
    return f"{items}Each rank's calls in their order, not to a scale of time; an arrow is a message."


def _cut_words(world_size: int, num_shown: int, num_calls: int, first: int) -> str:
    cut = []
    if world_size > MAX_RANKS:
        cut.append(f"{MAX_RANKS} of {world_size} ranks")
    if num_shown < num_calls:
        cut.append(f"{num_shown} of their {num_calls} calls{', the ones up to the fault' if first else ''}")
    return f" Shown: {', '.join(cut)}." if cut else ""
