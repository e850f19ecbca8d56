"""What torch's flight recorder says of a rank, as the log that our own recording would have written.

Ours sees more: every message, and since when. This one also holds what ours was not there for: a communicator's first
call, calls beyond our log's capacity, groups that were made past torch.distributed.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from labkit.launch.recording import layout
from labkit.launch.recording.read import RankLog, Wait
from labkit.timeline.span import Lane

LOOK_SECONDS = 0.4
SWITCHES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""How many calls torch keeps; 2000 where neither is set."""
_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
    "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip


def is_read(backend: str) -> bool:
    """Return whether torch's record is worth reading in a rank whose groups are of this backend."""
    asked = {os.environ[name] for name in SWITCHES if name in os.environ}
    return "0" not in asked and ("nccl" in backend or bool(asked))


class FlightWatch:
    """Tells the supervisor what is on torch's record, each time a rank's communication has come to rest."""

    def __init__(
        self, tell: Callable[[str, Any], None], status: Callable[[], Any], calls: Callable[[], list[dict[str, Any]]]
    ) -> None:
        """Take how to tell, and labkit.torch_port.flight_recorder's two functions."""
        self._tell, self._status, self._calls = tell, status, calls
        self._before: Any = None
        self._told: Any = None

    def start(self) -> None:
        """Look from now on, in a thread of its own."""
        threading.Thread(target=self._watch, name="labkit-flight-recorder", daemon=True).start()

    def look(self) -> None:
        """Tell of the calls where nothing has changed since the last look, once."""
        now = self._status()
        if now == self._before and now != self._told:
            self._tell("flight", self._calls())
            self._told = now
        self._before = now

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            self.look()


def log_of(rank: int, calls: Sequence[Mapping[str, Any]]) -> RankLog:
    """Return a rank's log made of torch's record: its calls, and as a wait the oldest that is not complete.

    Args:
        rank: Its global rank.
        calls: What labkit.torch_port.flight_recorder.calls() returned there.
    """
    names: dict[str, int] = {"": 0}
    records = np.zeros(len(calls), layout.DTYPE)
    waits = []
    done = _done(calls)
    for row, call in enumerate(calls):
        backend, _, name = str(call["profiling_name"]).partition(":")
        kind, _, ends = name.partition(" ")
        ranks = tuple(call["ranks"])
        peer, group = _peer(kind, ends, ranks), f"{backend}:{call['process_group'][0]}"
        number = max(_sequence(call) - 1, 0)
        record = records[row]
        record["kind"] = record["name"] = names.setdefault(kind, len(names))
        record["group"] = names.setdefault(f"{group}|{','.join(map(str, ranks))}", len(names))
        record["source"] = names.setdefault(call["source"], len(names))
        record["start"], record["bytes"], record["peer"] = call["time_created_ns"], _bytes(call), peer
        record["number"], record["lane"] = number, int(Lane.COMMUNICATION)
        record["state"] = layout.DONE if done[row] else layout.OPEN
        if not done[row]:
            other = None if peer < 0 else peer
            since_ns, on_device = int(call["time_created_ns"]), backend == "nccl"
            waits.append(
                Wait(kind, other, _bytes(call), group, ranks, number, since_ns, call["source"], 0, on_device=on_device)
            )
    return RankLog(rank, records, tuple(names), tuple(waits[:1]), tuple(waits))


def _done(calls: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return which calls are complete; one of a batch is when the batch is, whose entry follows."""
    found = [bool(call["retired"]) or call["state"] == "completed" for call in calls]
    batches: dict[tuple[str, bool, int], bool] = {}
    for row in reversed(range(len(calls))):
        call = calls[row]
        of_batch = (call["process_group"][0], bool(call["is_p2p"]), _sequence(call))
        if call["profiling_name"].endswith(":coalesced"):
            batches[of_batch] = found[row]
        elif of_batch in batches:
            found[row] = batches[of_batch]
    return found


def _sequence(call: Mapping[str, Any]) -> int:
    return int(call["p2p_seq_id"] if call["is_p2p"] else call["collective_seq_id"])


def _peer(kind: str, ends: str, ranks: Sequence[int]) -> int:
    """Return the global rank at the other end: torch writes "send 0->1" and "recv 0<-1", in ranks of the group."""
    if kind not in ("send", "recv"):
        return -1
    other = int(ends.replace("<-", "->").partition("->")[2])
    return ranks[other] if other < len(ranks) else other


def _bytes(call: Mapping[str, Any]) -> int:
    kind = str(call["profiling_name"]).partition(":")[2]
    side = "output" if kind.startswith("recv") else "input"
    sizes = zip(call[f"{side}_sizes"], call[f"{side}_dtypes"], strict=False)
    return sum(math.prod(size) * _BYTES.get(dtype, 0) for size, dtype in sizes)
