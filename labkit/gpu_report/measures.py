"""What is measured on the GPUs and forecast on the virtual cluster by the same programs: times, memory, clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from labkit.gpu_report.claims import Place
from labkit.gpu_report.claims.claim import finish
from labkit.gpu_report.claims.records import timeline_of
from labkit.gpu_report.stopwatch import Stopwatch
from labkit.hardware import Device
from labkit.launch import recording
from labkit.launch.rank import device, span
from labkit.models import GPT, VOCABULARY, loss_of_logits, optimizer_for
from labkit.torch_port.cuda_kernels import keep_busy
from labkit.virtual_world import virtual
from labkit.worlds import local, run

SIZES = tuple(2**power for power in (10, 14, 17, 20, 22, 24, 26, 28, 30))
"""Bytes that an all_reduce adds up, 1 KiB to 1 GiB."""
_QUEUED = 20_000_000  # cycles for which the device is busy while calls queue up behind: 10 ms on a current GPU
_LIMIT_S = 60.0
_WARM = 3  # steps before the times count
_LAUNCHED = 3  # steps whose launch alone is timed


def reduce_seconds(sizes: tuple[int, ...], on: str) -> list[float]:
    """Return the seconds an all_reduce of each size takes on this rank's device, the mean of several in a row.

    Args:
        sizes: Bytes.
        on: "meta" for sizes without values; "" for the rank's device.
    """
    found = []
    for size in sizes:
        tensor = torch.empty(size // 4, device=on or device())
        num_calls = max(3, min(20, 2**28 // size))
        dist.all_reduce(tensor)
        finish()
        dist.barrier()
        finish()
        if device().type == "cuda":
            keep_busy(_QUEUED)  # calls queue up behind it, so that launching them is not what is timed
        watch = Stopwatch()
        for _ in range(num_calls):
            dist.all_reduce(tensor)
        watch.stop()
        finish()
        found.append(watch.seconds / num_calls)
    return found


def _unrecorded(program: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    def alone() -> Any:
        with recording.unrecorded():
            return program(*args)

    return alone


def all_reduce(place: Place, gpu: Device | None) -> Iterator[dict[str, Any]]:
    """Yield what an all_reduce of each size takes: on NCCL beside the forecast; with one GPU on ranks that share it."""
    sizes = SIZES if place.device == "cuda" else SIZES[:3]
    count = max(place.num_gpus, 2 if place.device == "cpu" else 1)
    worlds = [(count, place.ranks(count), True)]
    if count == 1:
        worlds.append((2, local(2), False))
    for ranks, world, forecast in worlds:
        some = sizes if forecast else sizes[:6]
        done = run(_unrecorded(reduce_seconds, some, ""), on=world, timeout=_LIMIT_S, echo=False)
        wanted: list[float | None] = [None] * len(some)
        if forecast and gpu is not None:
            ahead = run(reduce_seconds, some, "meta", on=virtual(ranks, gpu=gpu), echo=False)
            wanted = [max(each) for each in zip(*ahead.results, strict=True)]
        slowest = [max(each) for each in zip(*done.results, strict=True)]
        for size, seconds, expected in zip(some, slowest, wanted, strict=True):
            yield {
                "ranks": ranks, "backend": done.backend, "bytes": size, "measured_us": 1e6 * seconds,
                "forecast_us": None if expected is None else 1e6 * expected,
            }  # fmt: skip


@dataclass(frozen=True)
class Training:
    """A GPT's training step.

    Attributes:
        num_layers: Blocks.
        width: Length of a token's vector.
        num_heads: Heads.
        num_tokens: Length of a sequence.
        batch: Sequences on each rank.
    """

    num_layers: int
    width: int
    num_heads: int
    num_tokens: int
    batch: int


LARGE = Training(12, 768, 12, 1024, 8)
"""The blocks of GPT-2 small; a step in float32 takes about 14 GB."""
SMALL = Training(12, 768, 12, 1024, 2)
"""The same where memory is small."""
REHEARSED = Training(2, 96, 4, 16, 8)


def train(shape: Training, dtype: str, num_steps: int, on: str) -> tuple[list[float], list[float], int]:
    """Return the seconds of each step, those of its launch alone, and the most bytes of tensors (0 for sizes only).

    A launch is timed while the device has nothing else to do: how long the host takes to hand it a whole step.

    Several ranks sum their gradients with an all_reduce for each parameter, while the backward pass goes on.

    Args:
        shape: What is trained.
        dtype: "float32" or "bfloat16", of weights and activations alike.
        num_steps: How many steps.
        on: "meta" for sizes without values; "" for the rank's device.
    """
    where = torch.device(on) if on else device()
    with torch.device(on or "cpu"):
        model = GPT(
            num_layers=shape.num_layers, width=shape.width, num_heads=shape.num_heads, num_tokens=shape.num_tokens
        )
    model = model.to(where).to(getattr(torch, dtype))
    under_way: list[Any] = []
    if dist.get_world_size() > 1:  # DistributedDataParallel asks for values, which the forecast has not
        for parameter in model.parameters():
            hooked: Any = parameter
            hooked.register_post_accumulate_grad_hook(
                lambda each: under_way.append(dist.all_reduce(each.grad, async_op=True))
            )
    optimizer = optimizer_for(model)
    for group in optimizer.param_groups:
        group["foreach"] = True  # as torch itself chooses for CUDA tensors, and not for the forecast's
    tokens = torch.zeros(shape.batch, shape.num_tokens, dtype=torch.long, device=where)
    tokens %= len(VOCABULARY)

    def step() -> None:
        loss = loss_of_logits(model(tokens), tokens)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for work in under_way:
            work.wait()
        under_way.clear()
        optimizer.step()

    watches, launches = [], []
    for _ in range(num_steps):
        watch = Stopwatch()
        step()
        watches.append(watch.stop())
    for _ in range(0 if on else _LAUNCHED):
        finish()
        begin_s = time.perf_counter()
        step()
        launches.append(time.perf_counter() - begin_s)
    finish()
    peak = torch.cuda.max_memory_allocated() if device().type == "cuda" else 0
    return [watch.seconds for watch in watches], launches, peak


def training_steps(place: Place, gpu: Device | None, memory_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield what a step takes on every GPU at once, beside the forecast, in float32 and in bfloat16."""
    shape = REHEARSED if place.device == "cpu" else LARGE if memory_bytes > 20e9 else SMALL
    num_steps = 10 if place.device == "cuda" else 2
    for dtype in ("float32", "bfloat16"):
        done = run(
            _unrecorded(train, shape, dtype, _WARM + num_steps, ""),
            on=place.ranks(place.num_gpus),
            timeout=_LIMIT_S,
            echo=False,
        )
        expected_s, expected_bytes = forecast_step(shape, dtype, place, gpu) if gpu else (None, None)
        yield {
            "ranks": place.num_gpus, "backend": done.backend, "dtype": dtype, "layers": shape.num_layers,
            "width": shape.width, "tokens": shape.num_tokens, "sequences": shape.batch, "steps": num_steps,
            "measured_ms": 1e3 * max(median(seconds[_WARM:]) for seconds, _, _ in done.results),
            "launched_ms": 1e3 * max(median(launches) for _, launches, _ in done.results),
            "forecast_ms": None if expected_s is None else 1e3 * expected_s,
            "measured_bytes": max(peak for _, _, peak in done.results) or None, "forecast_bytes": expected_bytes,
        }  # fmt: skip


def forecast_step(shape: Training, dtype: str, place: Place, gpu: Device) -> tuple[float, int]:
    """Return the seconds of a step on the virtual cluster, which is not the first, and the most bytes of a rank."""
    world = virtual(place.num_gpus, gpu=gpu, stream=place.device == "cuda")
    one, three = (
        timeline_of(run(train, shape, dtype, steps, "meta", on=world, timeout=_LIMIT_S, echo=False)) for steps in (1, 3)
    )
    return (three.makespan_ns - one.makespan_ns) / 2e9, int(three.tables["memory_peak"]["bytes"].max())


def _regions() -> tuple[dict[str, list[float]], list[float], list[float]]:
    """Return seconds by events of what is also on record, and of a call's launch with and without its record."""
    factor = torch.ones(2048 if device().type == "cuda" else 128, 1, device=device())
    matrix, tensor = factor @ factor.T, torch.ones(1 << 20, device=device())
    torch.mm(matrix, matrix)
    dist.all_reduce(tensor)
    finish()
    watches: dict[str, list[Stopwatch]] = {"all_reduce": [], "matmul": []}
    num_calls = 50 if device().type == "cuda" else 10
    for _ in range(num_calls):
        with span("matmul"):
            watch = Stopwatch()
            torch.mm(matrix, matrix)
            watches["matmul"].append(watch.stop())
        watch = Stopwatch()
        dist.all_reduce(tensor)
        watches["all_reduce"].append(watch.stop())
        finish()
    with recording.unrecorded():
        plain = _launches(tensor, 4 * num_calls)
    recorded = _launches(tensor, 4 * num_calls)
    return {name: [each.seconds for each in found] for name, found in watches.items()}, recorded, plain


def _launches(tensor: torch.Tensor, num_calls: int) -> list[float]:
    found = []
    for _ in range(num_calls):
        begin_s = time.perf_counter()
        dist.all_reduce(tensor[:1000])
        found.append(time.perf_counter() - begin_s)
        finish()
    return found


def timelines(place: Place) -> dict[str, Any]:
    """Return how the record of a run on all GPUs compares with CUDA's events, and what its clocks' error is."""
    done = run(_regions, on=place.ranks(place.num_gpus), timeout=_LIMIT_S, echo=False)
    timeline = timeline_of(done)
    clock = timeline.tables["clock"]
    found: dict[str, Any] = {
        "ranks": place.num_gpus, "backend": done.backend, "clock_error_ns": int(clock["err_ns"].max()),
        "clock_method": str(clock["method"][0]),
        "calls_made": 1 + 5 * len(done.results[0][0]["all_reduce"]),
        "calls_recorded": len(timeline.spans(kind="all_reduce")) // place.num_gpus,
        "launch_recorded_us": 1e6 * median(each for _, recorded, _ in done.results for each in recorded),
        "launch_unrecorded_us": 1e6 * median(each for _, _, plain in done.results for each in plain),
    }  # fmt: skip
    rows = [each for each in timeline.rows() if each.rank == 0]
    for name in ("all_reduce", "matmul"):
        ours = [(each.end_ns - each.start_ns) / 1e3 for each in rows if name in (each.name, each.kind)]
        theirs = [1e6 * each for each in done.results[0][0][name]]
        ours = ours[1 : 1 + len(theirs)] if name == "all_reduce" else ours
        found[name] = {"by_events_us": median(theirs), "on_record_us": median(ours)}
    return found
