"""Switching recording on and off in a rank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from labkit.launch.recording.event_log import DEFAULT_CAPACITY, EventLog
from labkit.launch.recording.recorder import Recorder

_recorder: Recorder | None = None
_undo: list[Callable[[], None]] = []


def install(log_path: str | Path, rank: int, *, capacity: int = DEFAULT_CAPACITY) -> bool:
    """Record this process's communication to log_path from now on; return False where the file cannot be made.

    Groups that exist already are not recorded: call it before user code. Without the file the rank runs as if nobody
    had asked; :func:`read_log` then says that there is no record.

    Args:
        log_path: A file that does not exist yet, in a directory of this run.
        rank: Global rank.
        capacity: Calls and spans kept; what comes after is counted.
    """
    global _recorder
    try:
        log = EventLog(log_path, rank, capacity)
    except OSError:
        return False

    import torch.distributed.rpc

    from labkit.launch.recording.gatherings import record_gatherings
    from labkit.launch.recording.recorded_group import RecordedGroup
    from labkit.torch_port.handles import keep_forward_handles
    from labkit.torch_port.wrapped_group import install as install_groups
    from labkit.torch_port.wrapped_group import wrapping_class

    # Everything under torch/ is torch's; a learner's own packages beside it are not.
    recorder = _recorder = Recorder(log, rank, (str(Path(torch.__file__).parent) + "/",))
    groups = wrapping_class(lambda outer, inner: RecordedGroup(recorder, outer, inner))
    _undo.extend((install_groups(groups), recorder.futures.install(), record_gatherings(recorder)))
    _undo.append(keep_forward_handles())
    if torch.distributed.rpc.is_available():
        from labkit.launch.recording.remote_calls import record_remote_calls

        _undo.append(record_remote_calls(recorder))
    return True


def close() -> None:
    """Write what is still pending and note the orderly end; calls made later are not recorded."""
    global _recorder
    if _recorder is None:
        return
    while _undo:
        _undo.pop()()
    recorder, _recorder = _recorder, None
    recorder.close()


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Keep the block's calls out of the record; groups made in it are recorded afterwards."""
    recorder = _recorder
    if recorder is None:
        yield
        return
    recorder.paused = True
    try:
        yield
    finally:
        recorder.paused = False


def span(name: str, kind: str = "compute") -> AbstractContextManager[None]:
    """Return a context manager that records its body under this name; it does nothing where recording is off.

    Args:
        name: What the picture shows.
        kind: "compute", "communication" or "host" choose the lane; any other word ("forward", "backward") is a kind of
            computation and becomes the span's kind.
    """
    return _nothing() if _recorder is None else _recorder.span(name, kind)


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield
