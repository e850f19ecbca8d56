"""Remote calls as their callees served them: where an answer came from, what was done inside, who stood in line."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from labkit.timeline.messages import REMOTE_CALLS, SERVED

if TYPE_CHECKING:
    from labkit.timeline.timeline import Timeline


class Servings:
    """The executions of remote calls, by rank and begin; of two that begin together the longer one comes first.

    Those are left out that no flow joins to a call, and those that began before their call, as clocks of two hosts may
    have it.

    Attributes:
        call: The call's row in the timeline.
        caller: Who called.
        called_ns: When.
        rank: Who served.
        start_ns: Begin.
        end_ns: End; the answer leaves then, unless it is left to another serving.
    """

    def __init__(self, timeline: Timeline) -> None:
        rows = np.flatnonzero((timeline.kind == SERVED) & (timeline.flow >= 0))
        calls = np.flatnonzero(np.isin(timeline.kind, REMOTE_CALLS) & (timeline.flow >= 0)) if len(rows) else rows
        _, of_call, of_row = np.intersect1d(timeline.flow[calls], timeline.flow[rows], return_indices=True)
        calls, rows = calls[of_call], rows[of_row]
        order = np.lexsort((rows, -timeline.end_ns[rows], timeline.start_ns[rows], timeline.rank[rows]))
        order = order[timeline.start_ns[calls[order]] <= timeline.start_ns[rows[order]]]
        calls, rows = calls[order], rows[order]
        self.call: list[int] = calls.tolist()
        self.caller: list[int] = timeline.rank[calls].tolist()
        self.called_ns: list[int] = timeline.start_ns[calls].tolist()
        self.rank: list[int] = timeline.rank[rows].tolist()
        self.start_ns: list[int] = timeline.start_ns[rows].tolist()
        self.end_ns: list[int] = timeline.end_ns[rows].tolist()
        self._first = np.searchsorted(timeline.rank[rows], np.arange(timeline.num_ranks + 1)).tolist()
        self._ended = {key: number for number, key in enumerate(zip(self.rank, self.end_ns, strict=True))}
        self._outlasting = self._find_outlasting()
        self._answer = {call: number for number, call in enumerate(self.call)}
        self._left: dict[int, int] = {}
        table = timeline.tables.get("reply")
        if table is not None:
            number_of = {row: number for number, row in enumerate(rows.tolist())}
            replies = zip(table["of"].tolist(), table["span"].tolist(), strict=True)
            self._left = {call: number_of[row] for call, row in replies if row in number_of}

    def answering(self, call: int, end_ns: int) -> int:
        """Return the serving that answered a call which ended then; -1 if it is not known, or came too late."""
        number = self._left.get(call, -1)
        if number >= 0:
            return number if self.start_ns[number] <= end_ns else -1
        number = self._answer.get(call, -1)
        return number if number >= 0 and self.end_ns[number] <= end_ns else -1

    def around(self, rank: int, start_ns: int, end_ns: int) -> int:
        """Return the serving that began last of those on this rank that hold this stretch of time; -1 for none."""
        first = self._first[rank]
        number = bisect_right(self.start_ns, start_ns, lo=first, hi=self._first[rank + 1]) - 1
        while number >= first and self.end_ns[number] < end_ns:
            number = self._outlasting[number]
        return number if number >= first else -1

    def ahead_of(self, number: int) -> int:
        """Return the serving that this one stood in line for: it ended as this one began; -1 for none."""
        begin = self.start_ns[number]
        ahead = self._ended.get((self.rank[number], begin), -1)
        return ahead if ahead >= 0 and self.start_ns[ahead] < begin else -1

    def _find_outlasting(self) -> list[int]:
        """Return for each the last one before it that ended after it, -1 for none; those between ended by then."""
        found: list[int] = []
        for number, end in enumerate(self.end_ns):
            other = number - 1
            while other >= 0 and self.end_ns[other] <= end:
                other = found[other]
            found.append(other)
        return found
