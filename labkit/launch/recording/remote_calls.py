"""Calls of torch.distributed.rpc in a rank's record: at the caller until the reply is there, at the callee as they run.

What is wrapped is what torch's own functions call, so every way of importing them is seen. Bytes are those of tensors
among the arguments; a reply's are not known here. Methods called through an RRef are on record from the learner's line
on: the first one asks the owner for the object's type.

The caller's rank and the number of its record travel behind the pickled call, where unpickling ends before them: a
callee that is not recorded, or knows nothing of labkit, reads the same call as ever. Functions that torch carries out
in C++ (torch.add) are not pickled and not seen at the callee. A serving ends when its function returns; where that was
a future, its record names the serving, or the call, that completed it: from there the answer came.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Any
from weakref import WeakKeyDictionary

import torch

from labkit.launch.recording import layout
from labkit.launch.recording.call import Call
from labkit.launch.recording.recorder import Recorder
from labkit.timeline.span import Lane
from labkit.torch_port.futures import AnyFuture
from labkit.torch_port.remote_calls import METHOD_STAND_INS, PythonCall, creation_of, replace, torchs, worker_id

_TRAILER = Struct("<iq8s")
"""The caller's rank, the number of its record, and what tells that they are there: a pickle ends with a full stop."""
_SIGN = b"LABKITno"
_COMMUNICATION, _HOST = int(Lane.COMMUNICATION), int(Lane.HOST)


class _Thread(threading.local):
    """What a thread is about: the record whose call is being sent, the call that an RRef's method is, the serving."""

    record = -1
    method: Call | None = None
    serving = -1


class _Method(str):
    """The name of an RRef's method, on its way to where torch calls it, perhaps in another thread, with its call."""

    __slots__ = ("call",)
    call: Any


class _NumberedCall(PythonCall):  # type: ignore[misc]
    """A call as torch takes it, and who made it."""

    caller, record = -1, -1


def record_remote_calls(recorder: Recorder) -> Callable[[], None]:
    """Record remote calls from now on; return what undoes it."""
    invoke, call_method, remote, to_here = map(torchs, ("invoke", "call_method", "remote", "to_here"))
    futures, thread = recorder.futures, _Thread()
    futures.completing = lambda: thread.serving
    made: WeakKeyDictionary[Any, Call] = WeakKeyDictionary()

    def followed(call: Call | None, future: Any) -> Any:
        futures.bind(future, () if call is None else (call,))
        if call is not None:
            futures.when_done(future, lambda _: call.complete())
        return future

    def invoke_rpc(to: Any, func: Any, rpc_type: Any, *args: Any, **kwargs: Any) -> Any:
        call = None
        if getattr(func, "__name__", "") in METHOD_STAND_INS and args:
            rref, method, *rest = args[0]
            call = getattr(method, "call", thread.method)
            args = ((rref, str(method), *rest), *args[1:])
        if call is None:
            call = _begin(recorder, f"rpc_{rpc_type.value}", _name(func, args), _id_of(to), args[:2])
        with _sending(thread, call):
            return followed(call, invoke(to, func, rpc_type, *args, **kwargs))

    def method_called(rref: Any, rpc_api: Any, name: str, timeout: float, *args: Any, **kwargs: Any) -> Any:
        kind = rpc_api.__name__
        call = _begin(recorder, kind, name, int(rref.owner().id), (args, kwargs))
        if call is not None and kind == "rpc_async":
            name = _Method(name)
            name.call = call
        with _sending(thread, call), futures.unwatched():
            if kind == "rpc_async":
                return followed(call, call_method(rref, rpc_api, name, timeout, *args, **kwargs))
            thread.method = call
            try:
                value = call_method(rref, rpc_api, name, timeout, *args, **kwargs)
            finally:
                thread.method = None
        if kind == "remote":
            return reference_followed(call, value)
        if call is not None:
            call.complete()
        return value

    def reference_followed(call: Call | None, rref: Any) -> Any:
        if call is not None:
            made[rref] = call
            futures.when_done(creation_of(rref), lambda _: call.complete())
        return rref

    def remote_recorded(to: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        call = thread.method or _begin(recorder, "remote", _name(func, args), _id_of(to), (*args[:2], kwargs))
        with _sending(thread, call):
            return reference_followed(call, remote(to, func, *args, **kwargs))

    remote_recorded.__name__ = "remote"

    def to_here_recorded(rref: Any, *args: Any, **kwargs: Any) -> Any:
        maker = made.get(rref)
        if rref.is_owner() and (maker is None or maker.done):  # it is here
            return to_here(rref, *args, **kwargs)
        link = -1 if maker is None else maker.record
        call = _begin(recorder, "to_here", "to_here", int(rref.owner().id), (), link)
        with _sending(thread, call):
            value = to_here(rref, *args, **kwargs)
        if call is not None:
            call.complete()
        return value

    return replace(
        invoke=invoke_rpc,
        call_method=method_called,
        remote=remote_recorded,
        to_here=to_here_recorded,
        send_call=_numbered(torchs("send_call"), recorder, thread),
        send_remote=_numbered(torchs("send_remote"), recorder, thread),
        deserialize=_read_number(torchs("deserialize")),
        run=_serving(torchs("run"), recorder, thread),
    )


def _begin(recorder: Recorder, kind: str, name: str, peer: int, arguments: Any, link: int = -1) -> Call | None:
    """Return the record of a call that begins, on the line that called what calls this; None where none is kept."""
    if not recorder.active or not name:
        return None
    log, blocking = recorder.log, kind in ("rpc_sync", "to_here")
    source, _ = recorder.source_and_entry(sys._getframe(2), {})
    word, num_bytes, start_ns = log.intern(kind), _bytes_of(arguments), time.monotonic_ns()
    flags = layout.BLOCKING if blocking else 0
    record = log.begin(
        start_ns, _COMMUNICATION, word, log.intern(name), num_bytes=num_bytes, peer=peer, source=source, link=link,
        flags=flags,
    )  # fmt: skip
    return Call(
        recorder, record, word, num_bytes, peer, 0, 0, source, blocking, False, start_ns=start_ns, flags=flags,
        remote=True,
    )  # fmt: skip


@contextmanager
def _sending(thread: _Thread, call: Call | None) -> Iterator[None]:
    """Number what the thread sends meanwhile with this call."""
    was, thread.record = thread.record, -1 if call is None else call.record
    try:
        yield
    except BaseException:
        if call is not None:
            call.complete(flags=layout.FAILED)
        raise
    finally:
        thread.record = was


def _numbered(send: Any, recorder: Recorder, thread: _Thread) -> Any:
    """Return what sends a call with its number behind it."""

    def send_numbered(to: Any, pickled: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.record >= 0 and isinstance(pickled, bytes):
            pickled += _TRAILER.pack(recorder.rank, thread.record, _SIGN)
        return send(to, pickled, *args, **kwargs)

    return send_numbered


def _read_number(deserialize: Any) -> Any:
    """Return what reads a call and the number behind it."""

    def deserialize_numbered(pickled: Any, tensors: Any) -> Any:
        value = deserialize(pickled, tensors)
        if type(value) is PythonCall and pickled.endswith(_SIGN):
            value = _NumberedCall(*value)
            value.caller, value.record, _ = _TRAILER.unpack_from(pickled, len(pickled) - _TRAILER.size)
        return value

    return deserialize_numbered


def _serving(run: Any, recorder: Recorder, thread: _Thread) -> Any:
    """Return what carries out a call of another worker, on record."""
    futures = recorder.futures

    def run_function(python_udf: Any) -> Any:
        name = _name(getattr(python_udf, "func", None), (getattr(python_udf, "args", ()),))
        if not recorder.active or not name:
            return run(python_udf)
        log = recorder.log
        word = log.intern("rpc_serve")
        serving = log.begin(
            time.monotonic_ns(), _HOST, word, log.intern(name), peer=getattr(python_udf, "caller", -1),
            link=getattr(python_udf, "record", -1),
        )  # fmt: skip
        was, thread.serving = thread.serving, serving
        try:
            value = run(python_udf)
            if isinstance(value, AnyFuture):
                calls = futures.behind(value)
                futures.when_done(value, lambda future: answered(serving, future, calls))
            return value
        finally:
            thread.serving = was
            log.end(serving, time.monotonic_ns(), _HOST)

    def answered(serving: int, future: Any, calls: Sequence[Call] | None) -> None:
        calls = futures.behind(future) or calls
        by = max(calls, key=lambda call: call.end_ns).record if calls else futures.completed_by(future)
        if by != serving:
            recorder.log.answered_by(serving, by)

    return run_function


def _name(func: Any, args: Any) -> str:
    """Return what is called; the method behind an RRef for torch's stand-in, "" for what torch calls for itself."""
    name = str(getattr(func, "__qualname__", type(func).__name__))
    if not str(getattr(func, "__module__", "")).startswith("torch.distributed.rpc."):
        return name
    return str(args[0][1]) if name in METHOD_STAND_INS and args else ""


def _id_of(to: Any) -> int:
    try:
        return worker_id(to)
    except Exception:  # the call itself will say what is wrong
        return -1


def _bytes_of(value: Any) -> int:

    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        value = tuple(value.values())
    return sum(map(_bytes_of, value)) if isinstance(value, list | tuple) else 0
