"""What happens inside a rank: unpack, seed, join the group, call the function, report."""

from __future__ import annotations

import faulthandler
import linecache
import os
import random
import sys
import time
import traceback
from types import ModuleType, TracebackType
from typing import TextIO

from labkit.launch import by_value, rank as rank_module
from labkit.launch.channel import RankChannel
from labkit.launch.job import Job, unpack

_LAUNCHER = os.path.dirname(__file__)


def run_rank(rank: int, payload: bytes, channel: RankChannel, stacks: TextIO, log_path: str | None) -> int:
    """Return the exit status of this rank after everything it has to do.

    Args:
        rank: Which rank this process is.
        payload: The packed job.
        channel: Where results and errors go.
        stacks: File that a fatal signal writes the Python stack to.
        log_path: Where communication is recorded, or None.
    """
    faulthandler.enable(stacks, all_threads=False)
    channel.send("hello", {"pid": os.getpid()})
    recording = False
    try:
        job = unpack(payload)
        _enter(job, rank)
        main = _fresh_main()
        if job.record and log_path is not None:
            recording = _start_recording(log_path, rank)
        function, args = by_value.loads_in_rank(job.call, main)
        _seed(job.seed + rank)
        if job.init:
            _join(job, rank)
        result = function(*args)
        channel.send("result", _pack_result(result))
    except BaseException as error:
        channel.send("error", describe_error(error))
        _flush()
        channel.wait_for_word()
        return 1
    _flush()
    # A rank that is done stays until all are: closing its sockets now would look like a crash to a slower rank.
    channel.wait_for_word()
    try:
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
    except BaseException as error:
        channel.send("error", describe_error(error))
        return 1
    finally:
        if recording:
            _stop_recording()
        _flush()
    return 0


def describe_error(error: BaseException) -> dict[str, object]:
    """Return an exception as data: type, message, traceback text without the launcher's own frames, time."""
    if isinstance(error, SystemExit) and error.code in (None, 0):
        message = "the function called sys.exit(); return a value instead"
    else:
        message = str(error)
    return {
        "type": type(error).__name__,
        "message": message,
        "traceback": "".join(traceback.format_exception(type(error), error, _learner_part(error.__traceback__))),
        "time": time.time(),
    }


def _learner_part(tb: TracebackType | None) -> TracebackType | None:
    start = tb
    while tb is not None and os.path.dirname(tb.tb_frame.f_code.co_filename) == _LAUNCHER:
        tb = tb.tb_next
    return tb or start


def _enter(job: Job, rank: int) -> None:
    os.environ.clear()
    os.environ.update(job.rank_environ(rank))
    os.chdir(job.cwd)
    sys.path[:] = job.sys_path
    for name, text in job.sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(job.threads_per_rank)  # OMP_NUM_THREADS is read at import: too late here
    dist.set_debug_level_from_env()  # so is TORCH_DISTRIBUTED_DEBUG
    if job.devices[rank].startswith("cuda"):
        torch.cuda.set_device(job.devices[rank])


def _fresh_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    return main


def _seed(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _join(job: Job, rank: int) -> None:
    import torch.distributed as dist

    dist.init_process_group(job.backend, rank=rank, world_size=job.world_size)


def _pack_result(result: object) -> bytes:
    try:
        return by_value.dumps(result)
    except Exception as error:
        parts = (
            {f"item {i}": v for i, v in enumerate(result)}
            if isinstance(result, list | tuple)
            else {f"item {k!r}": v for k, v in result.items()}
            if isinstance(result, dict)
            else {}
        )
        culprit = by_value.find_unpicklable(parts) or f"{type(result).__name__}: {error}"
        raise TypeError(
            f"The function's result cannot be sent back to the notebook: {culprit}. Return plain data or tensors."
        ) from error


def _start_recording(log_path: str, rank: int) -> bool:
    try:
        from labkit.launch import recording
    except ImportError:
        return False
    if not hasattr(recording, "install"):
        return False
    recording.install(log_path, rank)
    return True


def _stop_recording() -> None:
    from labkit.launch import recording

    recording.close()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue


__all__ = ["describe_error", "rank_module", "run_rank"]
