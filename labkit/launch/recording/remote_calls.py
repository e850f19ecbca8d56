"""Calls of torch.distributed.rpc in a rank's record: at the caller until the reply is there, at the callee as they run.

What is wrapped is what torch's own functions call, so every way of importing them is seen. Bytes are those of tensors
among the arguments; a reply's are not known here.

The caller's rank and the number of its record travel behind the pickled call, where unpickling ends before them: a
callee that is not recorded, or knows nothing of labkit, reads the same call as ever. Functions that torch carries out
in C++ (torch.add) are not pickled and not seen at the callee; a method called by ``rref.remote()`` is seen there alone.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from labkit.launch.recording import layout
from labkit.launch.recording.recorder import Recorder
from labkit.timeline.span import Lane

_TRAILER = Struct("<iq8s")
"""The caller's rank, the number of its record, and what tells that they are there: a pickle ends with a full stop."""
_SIGN = b"LABKITno"
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
        (inside, "deserialize", inside.deserialize),
        (private, "_invoke_rpc_python_udf", private._invoke_rpc_python_udf),
        (private, "_invoke_remote_python_udf", private._invoke_remote_python_udf),
    ]
    invoke, run, remote, _, to_here, deserialize, *sending = (value for _, _, value in before)
    under_way = threading.local()

    class NumberedCall(inside.PythonUDF):  # type: ignore[misc,name-defined]
        """A call as torch takes it, and who made it."""

        caller, record = -1, -1

    def numbered(send: Any) -> Any:
        def send_numbered(to: Any, pickled: Any, *args: Any, **kwargs: Any) -> Any:
            record = getattr(under_way, "record", -1)
            if record >= 0 and isinstance(pickled, bytes):
                pickled += _TRAILER.pack(recorder.rank, record, _SIGN)
            return send(to, pickled, *args, **kwargs)

        return send_numbered

    def deserialize_numbered(pickled: Any, tensors: Any) -> Any:
        value = deserialize(pickled, tensors)
        if type(value) is inside.PythonUDF and pickled.endswith(_SIGN):
            value = NumberedCall(*value)
            value.caller, value.record, _ = _TRAILER.unpack_from(pickled, len(pickled) - _TRAILER.size)
        return value

    def invoke_rpc(to: Any, func: Any, rpc_type: Any, *args: Any, **kwargs: Any) -> Any:
        record = _begin(recorder, f"rpc_{rpc_type.value}", _name(func, args), _id_of(private, to), args[:2])
        with _ended_if_it_fails(recorder, record), _as(under_way, record):
            future = invoke(to, func, rpc_type, *args, **kwargs)
        future.add_done_callback(lambda _: _end(recorder, record, Lane.COMMUNICATION))
        return future

    def remote_recorded(to: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        record = _begin(recorder, "remote", _name(func, args), _id_of(private, to), (*args[:2], kwargs))
        with _ended_if_it_fails(recorder, record), _as(under_way, record):
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
        caller, link = getattr(python_udf, "caller", -1), getattr(python_udf, "record", -1)
        record = _begin(recorder, "rpc_serve", name, caller, (), Lane.HOST, link)
        try:
            return run(python_udf)
        finally:
            _end(recorder, record, Lane.HOST)

    private._invoke_rpc, inside._run_function = invoke_rpc, run_function
    private.remote = public.remote = remote_recorded
    reference.to_here = to_here_recorded
    inside.deserialize = deserialize_numbered
    private._invoke_rpc_python_udf, private._invoke_remote_python_udf = map(numbered, sending)

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


def _begin(
    recorder: Recorder, kind: str, name: str, peer: int, args: Any, lane: Lane = Lane.COMMUNICATION, link: int = -1
) -> int:
    if not recorder.active or not name:
        return -1
    log = recorder.log
    source, _ = recorder.source_and_entry(sys._getframe(1), {})
    return log.begin(
        time.monotonic_ns(), int(lane), log.intern(kind), log.intern(name), num_bytes=_bytes_of(args), peer=peer,
        source=source, link=link,
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


@contextmanager
def _as(under_way: threading.local, record: int) -> Iterator[None]:
    before, under_way.record = getattr(under_way, "record", -1), record
    try:
        yield
    finally:
        under_way.record = before


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
