"""Claims about ranks: how they come to their GPU, what backend they get, what comes back, what a failure leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import labkit
from labkit.errors import RankFailed
from labkit.gpu_report.claims.claim import DoesNotHold, Place, claim, equal, hold
from labkit.interpreter import python, safe_pythonpath
from labkit.launch.rank import device
from labkit.worlds import local, run


def total() -> float:
    """Return the sum of the ranks' numbers from 1 up, added on their devices."""
    tensor = torch.full((1000,), dist.get_rank() + 1.0, device=device())
    dist.all_reduce(tensor)
    return float(tensor[0])


def where() -> str:
    """Return this rank's device."""
    return str(device())


@claim(1, "one rank on one GPU uses NCCL")
def one_rank_on_one_gpu_runs_on_nccl(place: Place) -> None:
    """On a device of its own, with a sum that is right."""
    done = run(total, on=place.ranks(1))
    equal((done.backend, done.results), (place.backend, [1.0]))


@claim(1, "ranks find their GPU, forked from the zygote or spawned")
def ranks_come_to_their_gpu_however_they_are_started(place: Place) -> None:
    """Also where the process that asks has touched CUDA: a fork of it could not use it."""
    torch.ones(1, device=place.device)
    for start_method in ("auto", "spawn"):
        world = local(1, device=place.device, start_method=start_method)
        equal(run(total, on=world).results, [1.0])


@claim(1, "a notebook that has touched CUDA starts ranks all the same")
def a_process_that_has_touched_cuda_does_no_harm(place: Place) -> None:
    """Neither to its ranks nor to itself, run after run."""
    equal(torch.ones(3, device=place.device).sum().item(), 3.0)
    for _ in range(2):
        equal(run(total, on=place.ranks(1)).results, [1.0])
    equal(torch.ones(3, device=place.device).sum().item(), 3.0)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@claim(1, "`CUDA_VISIBLE_DEVICES` may be an index, a UUID or empty", cuda_only=True)
def visible_devices_are_taken_by_index_by_uuid_and_none(place: Place) -> None:
    """CUDA_VISIBLE_DEVICES names the GPUs that ranks may use."""
    for name in ("0", f"GPU-{torch.cuda.get_device_properties(0).uuid}"):
        with _environment("CUDA_VISIBLE_DEVICES", name):
            equal(run(where, on=local(1)).results, ["cuda:0"])
    with _environment("CUDA_VISIBLE_DEVICES", ""):
        found = run(where, on=local(1)).backend  # this process may have counted its GPUs before
        hold(found in ("gloo/cpu", "nccl/cuda"), f"with no GPU visible the backend was {found}")


@claim(1, "tensors and modules come back on the CPU, with their Parameters")
def tensors_and_modules_come_back_on_the_cpu(place: Place) -> None:
    """With their values, and modules with their Parameters."""
    tensor, module = run(
        lambda: (torch.arange(4, device=device()), torch.nn.Linear(3, 2).to(device())), on=place.ranks(1)
    ).results[0]
    equal((tensor.device.type, tensor.tolist()), ("cpu", [0, 1, 2, 3]))
    equal([each.device.type for each in module.parameters()], ["cpu", "cpu"])


@claim(1, "an error of the device names its rank")
def an_error_of_the_device_names_the_rank(place: Place) -> None:
    """An index beyond a tensor's end, which a GPU reports later than the line that made it."""

    def work() -> None:
        torch.zeros(4, device=device())[torch.tensor([9], device=device())].cpu()

    with _raises(RankFailed) as caught:
        run(work, on=place.ranks(1))
    hold("rank 0 of 1 failed first" in str(caught[0]), f"the error says: {caught[0]}")


@contextmanager
def _raises(kind: type[BaseException]) -> Iterator[list[Any]]:
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    hold(caught, f"{kind.__name__} was not raised")


def all_gather(tensor: torch.Tensor) -> torch.Tensor:
    """Return what all ranks have, a row for each."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts)


def all_gather_into_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return what all ranks have, one after another."""
    whole = tensor.new_empty(dist.get_world_size() * len(tensor))
    dist.all_gather_into_tensor(whole, tensor)
    return whole


def reduce_scatter_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of the sum."""
    part = tensor.new_empty(len(tensor) // dist.get_world_size())
    dist.reduce_scatter_tensor(part, tensor)
    return part


def reduce_scatter(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of the sum, of tensors in lists."""
    parts = list(tensor.chunk(dist.get_world_size()))
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts)
    return mine


def all_to_all_single(tensor: torch.Tensor) -> torch.Tensor:
    """Return what each rank has for this one."""
    got = torch.empty_like(tensor)
    dist.all_to_all_single(got, tensor)
    return got


def _in_place(collective: Callable[[torch.Tensor], object]) -> Callable[[torch.Tensor], torch.Tensor]:
    def call(tensor: torch.Tensor) -> torch.Tensor:
        collective(tensor)
        return tensor

    return call


COLLECTIVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all_reduce": _in_place(lambda tensor: dist.all_reduce(tensor)),
    "broadcast": _in_place(lambda tensor: dist.broadcast(tensor, 0)),
    "reduce": _in_place(lambda tensor: dist.reduce(tensor, 0)),
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "reduce_scatter": reduce_scatter,
    "all_to_all_single": all_to_all_single,
    "barrier": _in_place(lambda tensor: dist.barrier()),
}
"""The collectives that lessons use."""


def every_collective(on: str) -> dict[str, list[float] | str]:
    """Return what each collective gives on this rank, or the first line of its error."""
    found: dict[str, list[float] | str] = {}
    for name, collective in COLLECTIVES.items():
        size = dist.get_world_size()
        tensor = torch.arange(float(4 * size), device=on or device()) + 100 * dist.get_rank()
        try:
            came = collective(tensor)
            found[name] = came.flatten().tolist() if name != "reduce" or dist.get_rank() == 0 else []
        except (RuntimeError, ValueError, NotImplementedError) as error:
            found[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


@claim(1, "ranks that share a GPU run every collective of the lessons on CUDA tensors, through gloo")
def ranks_that_share_a_gpu_run_every_collective_of_the_lessons_on_gloo(place: Place) -> None:
    """With CUDA tensors, whose results are those of the CPU; and labkit says that they share."""
    size = place.num_gpus + 1
    said = StringIO()
    with redirect_stdout(said):
        shared = run(every_collective, "", on=local(size, device="auto" if place.device == "cuda" else "cpu"))
    equal(shared.backend, f"gloo/{place.device}")
    if place.device == "cuda":
        hold("share" in said.getvalue(), f"nothing was said of sharing, but {said.getvalue()!r}")
    right = run(every_collective, "cpu", on=local(size, device="cpu"), echo=False).results
    for name in COLLECTIVES:
        found, wanted = ([each[name] for each in results] for results in (shared.results, right))
        hold(found == wanted, f"{name}: expected {wanted}, got {found}")


@claim(1, "ranks that share a GPU send each other CPU tensors")
def point_to_point_between_ranks_that_share_a_gpu_works_on_cpu_tensors(place: Place) -> None:
    """Twice as many ranks as GPUs."""

    def swap() -> float:
        mine, other = torch.tensor([float(dist.get_rank())]), torch.zeros(1)
        peer = dist.get_rank() ^ 1
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, other, peer)]):
            work.wait()
        return other.item()

    equal(run(swap, on=place.ranks(2 * place.num_gpus), echo=False).results[:2], [1.0, 0.0])


@claim(1, "memory is free 5 s after a kill", cuda_only=True)
def a_gpus_memory_is_free_five_seconds_after_a_kill(place: Place) -> None:
    """A gigabyte of a rank that was killed."""

    def filling() -> None:
        torch.empty(1 << 30, dtype=torch.uint8, device=device())
        os.kill(os.getpid(), signal.SIGKILL)

    torch.cuda.synchronize()
    free_before = torch.cuda.mem_get_info()[0]
    with _raises(RankFailed) as caught:
        run(filling, on=place.ranks(1))
    hold("SIGKILL" in str(caught[0]), f"the error says: {caught[0]}")
    until, least = time.monotonic() + 5, free_before - (64 << 20)
    while torch.cuda.mem_get_info()[0] < least and time.monotonic() < until:
        time.sleep(0.05)
    free = torch.cuda.mem_get_info()[0]
    hold(free >= least, f"{free_before} bytes were free before, {free} are 5 s after the kill")


_LONG_KERNEL = """
import labkit, torch
from labkit.torch_port.cuda_kernels import keep_busy

def busy():
    keep_busy(1 << 40)
    print("the kernel runs", flush=True)
    torch.cuda.synchronize()

labkit.run(busy, on=labkit.local(1, device="cuda"))
"""


@contextmanager
def program(text: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program of its own that finds this labkit; it has ended when the block is left."""
    with tempfile.TemporaryDirectory(prefix="labkit-report-") as folder:
        script = Path(folder, "program.py")
        script.write_text(text, encoding="utf-8")
        path = safe_pythonpath(os.environ, str(Path(labkit.__file__).parents[1]))
        started = subprocess.Popen(
            python("-u", str(script), *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        try:
            yield started
        finally:
            started.kill()
            started.communicate()


@claim(1, "a run that is interrupted during a kernel gives the GPU back", cuda_only=True)
def a_run_is_interrupted_during_a_kernel_and_gives_the_gpu_back(place: Place) -> None:
    """By the signal that a notebook's stop button sends."""
    with program(_LONG_KERNEL) as running:
        assert running.stdout is not None
        while "the kernel runs" not in (line := running.stdout.readline()):
            if not line:
                raise DoesNotHold(f"the run ended before its kernel began: {running.communicate()[1][-2000:]}")
        running.send_signal(signal.SIGINT)
        try:
            errors = running.communicate(timeout=30)[1]
        except subprocess.TimeoutExpired:
            raise DoesNotHold("30 s after the interrupt the program still runs") from None
    hold("KeyboardInterrupt" in errors, f"the program said: {errors[-2000:]}")
    equal(run(total, on=place.ranks(1)).results, [1.0])


@claim(2, "two ranks on two GPUs use NCCL")
def two_ranks_on_two_gpus_run_on_nccl(place: Place) -> None:
    """Each on its own."""
    done = run(total, on=place.ranks(2))
    equal((done.backend, done.results), (place.backend, [3.0, 3.0]))
    if place.device == "cuda":
        equal(run(where, on=place.ranks(2)).results, ["cuda:0", "cuda:1"])


@claim(2, "one rank's exception or SIGKILL ends the others")
def one_ranks_end_ends_the_other_that_waits_for_it(place: Place) -> None:
    """Whether it raises or is killed."""

    def one_ends(how: str) -> None:
        tensor = torch.ones(1000, device=device())
        dist.all_reduce(tensor)
        if dist.get_rank() == 1:
            if how == "raises":
                raise ZeroDivisionError("mine")
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(tensor)
        tensor[0].item()

    for how in ("raises", "is killed"):
        with _raises(RankFailed) as caught:
            run(one_ends, how, on=place.ranks(2))
        hold(caught[0].rank == 1, f"rank 1 {how}, and rank {caught[0].rank} is named")


_ALL_GPUS = """
import sys, time, labkit

def resting():
    time.sleep(3)

labkit.run(resting, on=labkit.local(int(sys.argv[1]), device="cuda"))
"""


@claim(2, "two people who want all GPUs take turns, and the second is told", cuda_only=True)
def two_people_who_want_all_gpus_take_turns_and_the_second_is_told(place: Place) -> None:
    """Two programs that rest for 3 s each take 6."""
    begin = time.monotonic()
    with program(_ALL_GPUS, str(place.num_gpus)) as one, program(_ALL_GPUS, str(place.num_gpus)) as two:
        said = [each.communicate(timeout=120)[0] for each in (one, two)]
        equal([one.returncode, two.returncode], [0, 0])
    took = time.monotonic() - begin
    hold(took >= 6, f"both together took {took:.1f} s")
    hold(sum("GPU" in text for text in said) == 1, f"they were told: {said}")
