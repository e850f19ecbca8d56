"""Calls of torch.distributed.rpc in a rank's record: at the caller until the reply is there, at the callee as they run.

What is wrapped is what torch's own functions call, so every way of importing them is seen. Bytes are those of tensors
among the arguments; a reply's are not known here. Caller and callee share no flow: torch sends no number along.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from labkit.launch.recording import layout
from labkit.launch.recording.recorder import Recorder
from labkit.timeline.span import Lane

_STAND_INS = ("_local_invoke", "_local_invoke_async_execution")


def record_remote_calls(recorder: Recorder) -> Callable[[], None]:
    """Record remote calls from now on; return what undoes it. Without torch's RPC nothing is done."""
    import torch.distributed as dist

    if not dist.rpc.is_available():
        return lambda: None
    from torch.distributed.rpc import api, internal

    places: Any = (api, internal, dist.rpc, api.PyRRef)  # type: ignore[attr-defined]
    private, inside, public, reference = places
    before = [
        (private, "_invoke_rpc", private._invoke_rpc),
        (inside, "_run_function", inside._run_function),
        (private, "remote", private.remote),
        (public, "remote", public.remote),
        (reference, "to_here", reference.to_here),
    ]
    invoke, run, remote, to_here = (value for place, (_, _, value) in enumerate(before) if place != 3)

    def invoke_rpc(to: Any, func: Any, rpc_type: Any, *args: Any, **kwargs: Any) -> Any:
        record = _begin(recorder, f"rpc_{rpc_type.value}", _name(func, args), _id_of(private, to), args[:2])
        with _ended_if_it_fails(recorder, record):
            future = invoke(to, func, rpc_type, *args, **kwargs)
        future.add_done_callback(lambda _: _end(recorder, record, Lane.COMMUNICATION))
        return future

    def remote_recorded(to: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        record = _begin(recorder, "remote", _name(func, args), _id_of(private, to), (*args[:2], kwargs))
        with _ended_if_it_fails(recorder, record):
            rref = remote(to, func, *args, **kwargs)
        rref._get_future().add_done_callback(lambda _: _end(recorder, record, Lane.COMMUNICATION))
        return rref

    def to_here_recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_owner():
            return to_here(self, *args, **kwargs)
        record = _begin(recorder, "to_here", "to_here", int(self.owner().id), ())
        with _ended_if_it_fails(recorder, record):
            value = to_here(self, *args, **kwargs)
        _end(recorder, record, Lane.COMMUNICATION)
        return value

    def run_function(python_udf: Any) -> Any:
        name = _name(getattr(python_udf, "func", None), (getattr(python_udf, "args", ()),))
        record = _begin(recorder, "rpc_serve", name, -1, (), Lane.HOST)
        try:
            return run(python_udf)
        finally:
            _end(recorder, record, Lane.HOST)

    private._invoke_rpc, inside._run_function = invoke_rpc, run_function
    private.remote = public.remote = remote_recorded
    reference.to_here = to_here_recorded

    def undo() -> None:
        for owner, name, value in before:
            setattr(owner, name, value)

    return undo


def _name(func: Any, args: Any) -> str:
    """Return what is called; the method behind an RRef for torch's stand-in, "" for what torch calls for itself."""
    name = str(getattr(func, "__qualname__", type(func).__name__))
    if not str(getattr(func, "__module__", "")).startswith("torch.distributed.rpc."):
        return name
    return str(args[0][1]) if name in _STAND_INS and args else ""


def _begin(recorder: Recorder, kind: str, name: str, peer: int, args: Any, lane: Lane = Lane.COMMUNICATION) -> int:
    if not recorder.active or not name:
        return -1
    log = recorder.log
    source, _ = recorder.source_and_entry(sys._getframe(1), {})
    return log.begin(
        time.monotonic_ns(), int(lane), log.intern(kind), log.intern(name), num_bytes=_bytes_of(args), peer=peer,
        source=source,
    )  # fmt: skip


def _end(recorder: Recorder, record: int, lane: Lane, flags: int = 0) -> None:
    if recorder.active:
        recorder.log.end(record, time.monotonic_ns(), int(lane), flags)


@contextmanager
def _ended_if_it_fails(recorder: Recorder, record: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _end(recorder, record, Lane.COMMUNICATION, layout.FAILED)
        raise


def _id_of(api: Any, to: Any) -> int:
    try:
        return int(api._to_worker_info(to).id)
    except Exception:  # the call itself will say what is wrong
        return -1


def _bytes_of(value: Any) -> int:
    import torch

    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(_bytes_of, value)) if isinstance(value, list | tuple) else 0
