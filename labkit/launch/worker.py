"""What happens inside a rank: enter the job's surroundings, join the group, call the function, report."""

from __future__ import annotations

import ctypes
import faulthandler
import linecache
import os
import random
import sys
import time
import traceback
from types import ModuleType
from typing import TextIO

from labkit.launch import by_value, program_end, recording
from labkit.launch import rank as rank_module
from labkit.launch.channel import RankChannel
from labkit.launch.job import Job
from labkit.launch.recording.flight import FlightWatch, is_read

_LAUNCHER = os.path.dirname(__file__)  # noqa: PTH120  # compared with the names of code objects, as text
_HIDDEN = (_LAUNCHER, os.path.join(os.path.dirname(_LAUNCHER), "scripts.py"))  # noqa: PTH118, PTH120


def run_rank(local_rank: int, job: Job, channel: RankChannel, stacks: TextIO, log_path: str | None) -> int:
    """Return the exit status of this rank after everything it has to do.

    Args:
        local_rank: Which of this host's ranks this process is.
        job: What to do.
        channel: Where results and errors go.
        stacks: File that a fatal signal writes the Python stack to.
        log_path: Where communication is recorded, or None.
    """
    faulthandler.enable(stacks, all_threads=False)
    rank, recording = job.first_rank + local_rank, False
    try:
        _enter(job, rank)
        channel.send("hello")
        main = _fresh_main()
        if log_path is not None:
            recording = _start_recording(log_path, rank)
        function, args = by_value.loads_in_rank(job.call, main)
        seed_all(job.seed + rank, cuda=job.device(rank).startswith("cuda"))
        _watch_flight_recorder(job, channel)
        if job.init:
            _join(job, rank)
        result = function(*args)
        message = _pack_result(result)
        program_end.ended()
        _flush()
        channel.send("result", message)
        # A rank that is done stays until all are: closing its sockets now would look like a crash to a slower rank.
        channel.wait_for_word()
        _leave_group()
        if recording:
            _stop_recording()
        program_end.forget(sys.modules["__main__"])
    except BaseException as error:
        _flush()
        described = describe_error(error)
        with program_end.at_latest(lambda: channel.send("error", described)):
            program_end.ended(failed=True)
            _flush()
        channel.wait_for_word()  # until this process is killed: its sockets stay open, so the others are not misled
        return 1
    _flush()
    return 0


def describe_error(error: BaseException) -> dict[str, object]:
    """Return an exception as data: type, message, traceback text without the launcher's own frames, time."""
    try:
        message = str(error)
    except Exception as second:
        message = f"(its message cannot be read: {type(second).__name__} in __str__)"
    if isinstance(error, SystemExit):
        message = f"sys.exit({error.code!r}) was called; return a value instead"
    described = traceback.TracebackException.from_exception(error)
    _drop_launcher_frames(described)
    return {
        "type": type(error).__name__,
        "message": message,
        "traceback": "".join(described.format()),
        "time": time.monotonic(),
    }


def _drop_launcher_frames(described: traceback.TracebackException | None) -> None:
    seen: set[int] = set()
    open_ones = [described]
    while open_ones:
        one = open_ones.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = [frame for frame in one.stack if not frame.filename.startswith(_HIDDEN)]
        one.stack = traceback.StackSummary.from_list(kept)
        open_ones += [one.__cause__, one.__context__, *(one.exceptions or ())]


def _enter(job: Job, rank: int) -> None:
    os.environ.clear()
    os.environ.update(job.rank_environ(rank))
    os.chdir(job.cwd)
    sys.path[:] = job.sys_path
    for name, text in job.sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    import torch

    from labkit.torch_port.meeting import meet_at, refuse_a_second_group
    from labkit.torch_port.stores import read_debug_level

    meet_at(job.environ["MASTER_ADDR"], int(job.environ["MASTER_PORT"]))
    if job.init:
        refuse_a_second_group()
    torch.set_num_threads(job.threads_per_rank)  # OMP_NUM_THREADS is read at import: too late here
    read_debug_level()  # so is TORCH_DISTRIBUTED_DEBUG
    if job.device(rank).startswith("cuda"):
        torch.cuda.set_device(job.device(rank))


def _fresh_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    return main


def seed_all(seed: int, *, cuda: bool) -> None:
    """Seed Python's, numpy's and torch's random numbers."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    if cuda:
        torch.manual_seed(seed)
    else:  # without the look at every accelerator, which formats a stack for each: 2 ms
        torch.default_generator.manual_seed(seed)


def _join(job: Job, rank: int) -> None:
    import torch.distributed as dist

    if "nccl" not in job.backend:
        dist.init_process_group(job.backend, rank=rank, world_size=job.world_size)
        return
    import torch

    # NCCL makes its communicator at the first call, which takes longer than all of a lesson's: it is made here, where
    # nothing is recorded, and named devices keep NCCL from guessing.
    device = torch.device(job.device(rank))
    dist.init_process_group(job.backend, rank=rank, world_size=job.world_size, device_id=device)
    with recording.unrecorded():
        dist.all_reduce(torch.zeros(1, device=device))
        torch.cuda.synchronize(device)


def _watch_flight_recorder(job: Job, channel: RankChannel) -> None:
    """Tell of the calls on torch's own record whenever they have come to rest, where that is worth reading."""
    if is_read(job.backend):
        from labkit.torch_port import flight_recorder

        FlightWatch(channel.send, flight_recorder.status, flight_recorder.calls).start()


def _leave_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def _pack_result(result: object) -> bytes:
    try:
        return by_value.dumps(result)
    except Exception as error:
        parts: dict[str, object] = {}
        if isinstance(result, list | tuple):
            parts = {f"item {i}": value for i, value in enumerate(result)}
        elif isinstance(result, dict):
            parts = {f"item {key!r}": value for key, value in result.items()}
        culprit = by_value.find_unpicklable(parts) or f"{type(result).__name__}: {error}"
        raise TypeError(
            f"The function's result cannot be sent back to the notebook: {culprit}. Return plain data or tensors."
        ) from None


def _start_recording(log_path: str, rank: int) -> bool:
    recording.install(log_path, rank)
    rank_module.set_span_recorder(recording.span)
    return True


def _stop_recording() -> None:
    recording.close()


def _flush() -> None:
    """Write out what Python and C still hold: the process ends without the usual goodbyes."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    if sys.platform != "win32":
        ctypes.CDLL(None).fflush(None)
