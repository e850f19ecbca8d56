"""What recording costs a rank per call, and what the static picture costs at each size."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from tests.benchmarks.table import Bar, table

NUM_CALLS, NUM_ROUNDS = 300, 7
NUM_SPANS = (1_000, 10_000, 100_000, 1_000_000)
CALLS = ("send, recv", "all_reduce")


@contextmanager
def _group(recorded: bool, meeting: str, rank: int, world_size: int) -> Iterator[None]:
    """Hold a default group, recorded or as torch makes it."""
    recording = c10d.ProcessGroup
    if not recorded:
        c10d.ProcessGroup = torch._C._distributed_c10d.ProcessGroup
    try:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
        yield
        dist.destroy_process_group()
    finally:
        c10d.ProcessGroup = recording


def _seconds_per_call(name: str, rank: int) -> float:
    value = torch.zeros(1)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(NUM_CALLS):
        if name == "all_reduce":
            dist.all_reduce(value)
        elif rank == 0:
            dist.send(value, 1)
            dist.recv(value, 1)
        else:
            dist.recv(value, 0)
            dist.send(value, 0)
    return (time.perf_counter() - begin) / (NUM_CALLS * (1 if name == "all_reduce" else 2))


def _both(folder: str) -> dict[str, dict[str, float]]:
    """Return this rank's seconds per call, recorded and not, in turn in the same processes."""
    import os

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    seconds: dict[str, dict[str, list[float]]] = {name: {"recorded": [], "plain": []} for name in CALLS}
    for repeat in range(NUM_ROUNDS):
        for how in ("recorded", "plain"):
            with _group(how == "recorded", f"{folder}/{how}-{repeat}", rank, world_size):
                for name in CALLS:
                    seconds[name][how].append(_seconds_per_call(name, rank))
    return {name: {how: median(values) for how, values in by_how.items()} for name, by_how in seconds.items()}


def synthetic(num_spans: int, num_ranks: int = 8) -> Timeline:
    """Return a timeline whose ranks compute and communicate in turn, a quarter of the gaps idle; always the same."""
    random = np.random.default_rng(7)
    per_rank = num_spans // num_ranks
    durations = random.lognormal(10, 1, (num_ranks, per_rank)).astype(np.int64) + 1
    gaps = durations * (random.random((num_ranks, per_rank)) < 0.25)
    ends = np.cumsum(durations + gaps, axis=1) - gaps
    lane = np.tile(np.arange(per_rank) % 2, num_ranks)
    return Timeline(
        rank=np.repeat(np.arange(num_ranks), per_rank),
        lane=np.where(lane == 0, int(COMPUTE), int(COMMUNICATION)),
        start_ns=(ends - durations).ravel(),
        end_ns=ends.ravel(),
        name=np.where(lane == 0, "forward", "all_reduce"),
        kind=np.where(lane == 0, "span", "all_reduce"),
    )


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the tables as text, the bars, and the figures as data."""
    with tempfile.TemporaryDirectory() as folder:
        world = labkit.local(2, device="cpu")
        costs = labkit.run(_both, folder, on=world, init=False, echo=False).results[0]
    rows = [
        [
            name,
            f"{cost['plain'] * 1e6:.1f} us",
            f"{cost['recorded'] * 1e6:.1f} us",
            f"{(cost['recorded'] - cost['plain']) * 1e6:+.1f} us",
        ]
        for name, cost in costs.items()
    ]
    lines = ["One call of 4 bytes between 2 ranks over gloo, median, recorded and not, in the same processes"]
    lines.append(table(["", "plain", "recorded", "difference"], rows))

    to_png = import_module("labkit.widgets.static_timeline").to_png
    to_png(synthetic(NUM_SPANS[0]))  # the first picture of a process also loads matplotlib's fonts
    pictures, bars = [], []
    for num_spans in NUM_SPANS[:2] if quick else NUM_SPANS:
        timeline = synthetic(num_spans)
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            png = to_png(timeline)
            seconds.append(time.perf_counter() - begin)
        pictures.append({"spans": num_spans, "seconds": median(seconds), "bytes": len(png)})
        size = f"{num_spans:,} spans"
        bars.append(Bar(f"picture of {size}, ms, at most 100", median(seconds) * 1e3, 100))
        bars.append(Bar(f"picture of {size}, KB, at most 60", len(png) / 1e3, 60))
    lines.append("The static picture of a timeline of 8 ranks")
    shown = [[f"{p['spans']:,} spans", f"{p['seconds'] * 1e3:.0f} ms", f"{p['bytes'] / 1e3:.0f} KB"] for p in pictures]
    lines.append(table(["", "to draw", "size"], shown))
    return "\n".join(lines), bars, {"seconds_per_call": costs, "pictures": pictures}
