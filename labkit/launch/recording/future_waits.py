"""A rank that waits for a future, on record: as waiting for the call behind it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from labkit.launch.recording import layout
from labkit.timeline.span import Lane

if TYPE_CHECKING:
    from labkit.launch.recording.call import Call
    from labkit.launch.recording.recorder import Recorder

_HOST = int(Lane.HOST)


def wait_recorded(recorder: Recorder, future: Any, calls: Sequence[Call] | None, wait: Callable[[Any], Any]) -> Any:
    """Return what the future holds; write down who was waited for, and for how long.

    A wait for calls is on record even where they are complete already, once for each of them: whether a program waits
    is not to hang on how fast it was. A wait for a future that nothing is known of is, if it blocks. The callbacks of a
    future, which ask for what is there, do not wait.
    """
    waited = calls is not None and all(call.waited for call in calls)
    told = not (calls is None or waited) and not recorder.futures.in_callback
    if not recorder.active or calls == () or not (told or not future.done()):
        return wait(future)
    log, begin_ns = recorder.log, time.monotonic_ns()
    first = next((call for call in calls or () if not call.done), calls[0] if calls else None)
    record = slot = -1
    flags = layout.IN_CALLBACK if recorder.futures.in_callback else 0
    if first is not None:
        slot = first.wait_begins(begin_ns)
    if first is None or not first.blocking:
        record = _begin(recorder, first, begin_ns, flags)
    failed = layout.FAILED
    try:
        value = wait(future)
        failed = 0
    finally:
        end_ns = time.monotonic_ns()
        log.resumed(slot)
        log.end(record, end_ns, _HOST, flags | failed)
        calls = recorder.futures.behind(future) or calls or ()
        last = None
        if calls:  # of several it was the last that was waited for
            last = max(calls, key=lambda call: call.end_ns or end_ns)
            log.relink(record, last.record, last.peer)
            last.joined(end_ns, failed)
        for call in calls:
            call.waited = True
            if call is not last and record >= 0:
                other = log.begin(end_ns, _HOST, 0, 0, link=call.record, number=record, flags=layout.ALONGSIDE)
                log.end(other, end_ns, _HOST, layout.ALONGSIDE)
    return value


def _begin(recorder: Recorder, call: Call | None, begin_ns: int, flags: int) -> int:
    log = recorder.log
    word, (source, _) = log.intern("wait"), recorder.source_and_entry(sys._getframe(2), {})
    if call is None:
        return log.begin(begin_ns, _HOST, word, word, source=source, flags=flags)
    return log.begin(
        begin_ns, _HOST, word, word, num_bytes=call.num_bytes, peer=call.peer, tag=call.tag, group=call.group,
        source=source, link=call.record, flags=flags,
    )  # fmt: skip
