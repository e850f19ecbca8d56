"""Where ranks wait for one another outside of any process group, in a rank's record for as long as it lasts."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from labkit.launch.recording import layout
from labkit.launch.recording.recorder import Recorder
from labkit.timeline.span import Lane
from labkit.torch_port.gatherings import watch_gatherings

_COMMUNICATION = int(Lane.COMMUNICATION)
_MOST_SAID = 200
"""So many ways to say a call go into the record, which has room for a limited number of names."""


def record_gatherings(recorder: Recorder) -> Callable[[], None]:
    """Record from now on that a rank makes a group or asks a store; one that is over leaves nothing on the timeline.

    Returns:
        What undoes it.
    """
    numbers: Counter[str] = Counter()
    inside = threading.local()
    known: set[str] = set()

    @contextmanager
    def around(name: str, ranks: Sequence[int], said: str = "") -> Iterator[None]:
        log = recorder.log
        source = 0
        if recorder.active and not getattr(inside, "one", False):
            source, _ = recorder.source_and_entry(sys._getframe(1), {})
        if not source:  # the launcher's own, or a part of one that is on record
            yield
            return
        described, since_ns = f"{name}|{','.join(map(str, ranks))}", time.monotonic_ns()
        if len(known) < _MOST_SAID:
            known.add(said)
        kind, word = log.intern(name), log.intern(said if said and said in known else name)
        number, group = numbers[described], log.intern(described)
        numbers[described] += 1
        record = log.begin(since_ns, _COMMUNICATION, kind, word, group=group, number=number, source=source)
        slot = log.waiting(since_ns, word, 0, -1, group, source, 0, record)
        inside.one = True
        try:
            yield
        finally:
            inside.one = False
            log.resumed(slot)
            log.end(record, time.monotonic_ns(), _COMMUNICATION, layout.NO_SPAN)

    return watch_gatherings(around)
