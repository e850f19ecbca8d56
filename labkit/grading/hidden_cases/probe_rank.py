"""The untrusted side of the probe: a template process that has loaded torch, and the ranks it forks.

The template runs no line of a submission; it forks a rank for each case, which gets the cells as text and its inputs
as data, runs the exercise's driver, and sends back data. It knows no expected value, and has loaded neither an oracle
nor a judge. In a sandbox of its own, it makes one for each rank.

It is itself forked from `labkit.grading.preloaded.process`.
"""

from __future__ import annotations

import ctypes
import io
import os
import random
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist

from labkit.checks import wire_format
from labkit.checks.case import Values
from labkit.checks.exercise import Exercise, functions_for
from labkit.checks.rank_side import moved
from labkit.grading.frames import read_frame, write_frame
from labkit.grading.hidden_cases import rank_exercise
from labkit.grading.hidden_cases.rank_cells import describe, run_cells
from labkit.grading.hidden_cases.rank_exercise import RankExercise
from labkit.grading.relay.client import RelayClient
from labkit.grading.relay.relay_port import register
from labkit.grading.sandbox.entry import enter
from labkit.grading.sandbox.process_tree import become_subreaper
from labkit.grading.sandbox.rank_namespaces import RankNamespaces
from labkit.launch.gpu_probe import try_gpu
from labkit.torch_port.own_parallelism import close_reducer
from labkit.torch_port.stores import HashStore

_MAX_TEXT = 4000
_PR_SET_PDEATHSIG = 1
_RANK_FDS = (3, 4)


def serve(control: socket.socket) -> None:
    """Enter the sandbox, then serve fork requests until the trusted side closes the socket."""
    if enter(control) is None:
        return
    opening = read_frame(control)
    if opening is None:
        return
    become_subreaper()
    torch.set_num_threads(1)
    exercises = rank_exercise.unpack(bytes(opening.payload))
    told = opening.header
    poller = select.poll()
    namespaces = RankNamespaces(told["scratch_bytes"], told["on_gpu"], poller) if told["divide"] else None
    num_threads = len(list(Path("/proc/self/task").iterdir())) if sys.platform == "linux" else 1
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    write_frame(control, {"op": "ready", "pid": os.getpid(), "threads": num_threads})
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    while True:
        fd = poller.poll()[0][0]  # one at a time: to answer it may close another
        if fd == wake_read:
            os.read(wake_read, 4096)
            _report_exits(control, namespaces)
        elif fd == control.fileno():
            if not _fork_one(control, exercises, namespaces):
                return
        elif namespaces is not None:
            namespaces.heard(fd)


def _fork_one(control: socket.socket, exercises: Mapping[str, RankExercise], namespaces: RankNamespaces | None) -> bool:
    """Fork one rank; return False where the trusted side is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(control, 1, 3)
    except ConnectionResetError:
        return False
    if not data or len(fds) != 3:
        return False
    for fd in fds:  # those that come over a socket are inheritable
        os.set_inheritable(fd, False)
    request = read_frame(control)
    if request is None:
        return False
    pid = namespaces.fork() if namespaces else os.fork()
    if pid == 0:
        _rank_process(control, fds, request.header, exercises)
    for fd in fds:
        os.close(fd)
    write_frame(control, {"op": "started", "rank": request.header["rank"], "case": request.header["case"], "pid": pid})
    return True


def _report_exits(control: socket.socket, namespaces: RankNamespaces | None) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = namespaces.ended(pid, status) if namespaces else os.waitstatus_to_exitcode(status)
        if code is not None:
            write_frame(control, {"op": "exit", "pid": pid, "code": code})


# ---- in the rank


def _rank_process(
    control: socket.socket, fds: list[int], options: Mapping[str, Any], exercises: Mapping[str, RankExercise]
) -> NoReturn:
    try:
        _confine(control, fds, options)
        jobs = socket.socket(fileno=_RANK_FDS[1])
        job = read_frame(jobs)
        if job is not None:
            _run_job(jobs, socket.socket(fileno=_RANK_FDS[0]), job.header, bytes(job.payload), exercises)
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _confine(control: socket.socket, fds: list[int], options: Mapping[str, Any]) -> None:
    """Leave the template behind: own session, limits, descriptors, environment and folder."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    relay, jobs, output = (os.dup2(fd, 1000 + index) for index, fd in enumerate(fds))
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (output, 1), (output, 2), (relay, 3), (jobs, 4)):
        os.dup2(source, target, inheritable=target < 3)
    control.detach()
    os.closerange(5, 4096)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_CPU: options["cpu_seconds"],
        resource.RLIMIT_FSIZE: options["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: options["processes"],
    }
    if not options["on_gpu"]:  # CUDA reserves addresses for all memory there is; what is used of it is still watched
        limits[resource.RLIMIT_AS] = used + options["memory_bytes"]
    if sys.platform == "linux":  # bounds that all processes of a user share, where a rank comes nowhere near
        limits |= {resource.RLIMIT_MEMLOCK: 1 << 20, resource.RLIMIT_MSGQUEUE: 0, resource.RLIMIT_SIGPENDING: 256}
    for what, value in limits.items():
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))
    os.environ.clear()
    os.environ.update(options["environment"])
    os.chdir(options["work"])
    sys.argv = [""]
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), "utf-8", "replace", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), "utf-8", "replace", write_through=True)


def _run_job(
    jobs: socket.socket,
    relay: socket.socket,
    header: Mapping[str, Any],
    inputs: bytes,
    exercises: Mapping[str, RankExercise],
) -> None:
    exercise = exercises[header["exercise"]]
    rank, world_size = int(header["rank"]), int(header["world_size"])
    random.seed(header["seed"])
    torch.default_generator.manual_seed(header["seed"])  # torch.manual_seed looks for devices, which a rank has none of
    # After a fork the first call that asks for torch's thread pool replaces it, unguarded (caffe2, pthreadpool-cpp.cc):
    # it must not be one of two threads that a submission has just started ("Invalid thread pool!").
    torch.set_num_threads(1)
    place = None
    if header["on_gpu"]:
        problem = try_gpu(0).get("problem")
        if problem:  # before any line of the submission
            write_frame(jobs, {"failure": _no_gpu(rank, str(problem)), "cell_errors": [], "seconds": 0.0})
            return
        place = torch.device("cuda", 0)
        torch.cuda.set_device(place)
        torch.cuda.manual_seed(header["seed"])
    if not exercise.torchs_own:
        close_reducer()
    client = RelayClient(relay, torchs_own=exercise.torchs_own)
    register(client, devices=("cpu",) if place is None else ("cpu", "cuda"))
    if exercise.distributed or world_size > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size))
        dist.init_process_group("relay", store=HashStore(), rank=rank, world_size=world_size)
    values: Values = wire_format.decode(inputs)
    if place is not None:
        values = moved(values, place)
    begin = time.perf_counter()
    namespace, errors = run_cells(header["cells"])
    result: bytes = b""
    functions = functions_for(cast(Exercise, exercise), namespace)  # it reads names only
    missing = [name for name in exercise.functions if not callable(functions.get(name))]
    failure: dict[str, Any] | None = None
    if missing:
        failure = _missing(missing, exercise.id, errors)
    else:
        try:
            with nullcontext() if place is None else place:
                result = wire_format.encode(exercise.driver(functions, values))
            client.end()
        except BaseException as error:
            failure = describe(error)
            if failure["kind"] == "exception":
                who = f"Rank {rank} raised" if world_size > 1 else "It raised"
                failure["message"] = f"{who} {failure['message']}"
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    about = {"failure": failure, "cell_errors": errors, "seconds": time.perf_counter() - begin}
    write_frame(jobs, about, b"" if failure else result)


def _missing(names: list[str], exercise_id: str, errors: list[dict[str, str]]) -> dict[str, str]:
    own = [error for error in errors if error["name"] == exercise_id]
    wanted = " and ".join(names)
    verb = "is" if len(names) == 1 else "are"
    if own:
        message = f"{wanted} {verb} not defined, because its cell stopped: {own[0]['message']}"
        return {"kind": "exception", "message": message, "detail": own[0]["detail"], "error": own[0]["error"]}
    return {
        "kind": "exception",
        "message": f"{wanted} {verb} not defined: the cell of exercise {exercise_id} must define it by this name.",
        "detail": "",
        "error": "NameError",
    }


def _no_gpu(rank: int, problem: str) -> dict[str, str]:
    return {"kind": "no_gpu", "message": f"rank {rank} can use no GPU: {problem}", "detail": "", "error": ""}
