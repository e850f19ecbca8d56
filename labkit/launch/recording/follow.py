"""Reading event logs while the ranks write them: what was finished since the last look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.launch.recording import layout
from labkit.launch.recording.assemble import columns_of
from labkit.launch.recording.read import RankLog, describe_group
from labkit.timeline.span import Lane
from labkit.timeline.timeline import Timeline


class Follower:
    """Remembers which records it has told of."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._told: dict[int, npt.NDArray[np.bool_]] = {}
        self._origin_ns: int | None = None

    def new(self, logs: Iterable[RankLog]) -> Timeline:
        """Return the spans that ended since the last call, times from when the first rank seen began to record.

        Which calls met is not said: the others may not have ended.
        """
        parts = []
        for log in logs:
            done = log.records["state"] == layout.DONE
            fresh = done.copy()
            told = self._told.get(log.rank)
            if told is not None:
                fresh[: len(told)] &= ~told
            self._told[log.rank] = done
            if self._origin_ns is None and log.started_ns:
                self._origin_ns = log.started_ns
            if fresh.any():
                parts.append(columns_of(replace(log, records=log.records[fresh]), None))
        if not parts:
            return Timeline(num_ranks=self._num_ranks)
        rows: dict[str, Any] = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        sourced = np.flatnonzero(rows["source"] != "")
        calls = np.flatnonzero(rows["lane"] == Lane.COMMUNICATION)
        names = ("rank", "lane", "name", "kind", "bytes", "peer")
        return Timeline(
            **{name: rows[name] for name in names},
            start_ns=np.maximum(rows["start_ns"] - (self._origin_ns or 0), 0),
            end_ns=np.maximum(rows["end_ns"] - (self._origin_ns or 0), 0),
            tables={
                "source": {"span": sourced, "line": rows["source"][sourced]},
                "call": {
                    "span": calls,
                    "group": np.array([describe_group(each)[0] for each in rows["group"][calls].tolist()], np.str_),
                    "number": rows["number"][calls],
                    "tag": rows["tag"][calls],
                    "blocking": (rows["flags"][calls] & (layout.BLOCKING | layout.DEVICE_TIME)) == layout.BLOCKING,
                },
            },
            num_ranks=self._num_ranks,
        )
