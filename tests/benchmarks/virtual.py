"""What simulating costs: a ring at several numbers of ranks, training beside the same numerics in one process, and one
step of a model of 70 billion parameters on 512 accelerators (64 and a smaller model where a look is enough), and 4,096
ranks of which 64 run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from statistics import median
from typing import Any

import torch

import labkit
from tests.benchmarks import folded
from tests.benchmarks.ring import solution
from tests.benchmarks.table import Bar, table
from tests.benchmarks.without_dist import seconds_alone

NUM_RANKS = (8, 64, 256)
NUM_STEPS = 10
NUMEL = 4096
TIMES_ALONE = 1.5
"""How much more than the ranks' own work a run is to take. The machine's speed is in both."""
PATIENCE_SECONDS = 30 * 60
STEP_BYTES = 8e9


def _ring(ring_all_reduce: Any) -> float:
    """Reduce with the learner's own ring; every rank brings the same, so the sum is known."""
    tensor = torch.arange(float(NUMEL))
    ring_all_reduce(tensor)
    return float(tensor[1])


def _train(width: int, batch: int) -> float:
    """Train a small model without any communication; return its loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.ReLU(), torch.nn.Linear(4 * width, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.ones(batch, width)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def _plain_seconds(num_ranks: int, width: int, batch: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        begin = time.perf_counter()
        for _ in range(num_ranks):
            _train(width, batch)
        return time.perf_counter() - begin
    finally:
        torch.set_num_threads(before)


def _plain_ring_seconds(num_ranks: int) -> float:
    """Return the seconds of a ring's arithmetic and changes of thread alone: what no simulator of threads can save.

    As many threads take turns, and each does in its turn what a step does to its chunk: copy, take over, add.
    """
    before, num_steps = torch.get_num_threads(), 2 * (num_ranks - 1)
    batons = [threading.Lock() for _ in range(num_ranks)]
    for baton in batons:
        baton.acquire()

    def live(rank: int) -> None:
        chunks = list(torch.arange(float(NUMEL)).chunk(num_ranks))
        landing = torch.empty_like(chunks[0])
        for step in range(num_steps):
            batons[rank].acquire()
            chunk = chunks[(rank - step) % len(chunks)]
            landing[: len(chunk)].copy_(chunk.clone())
            torch.add(chunk, landing[: len(chunk)], out=chunk)
            batons[(rank + 1) % num_ranks].release()

    torch.set_num_threads(1)
    try:
        threads = [threading.Thread(target=live, args=(rank,)) for rank in range(num_ranks)]
        for thread in threads:
            thread.start()
        begin = time.perf_counter()
        batons[0].release()
        for thread in threads:
            thread.join()
        return time.perf_counter() - begin
    finally:
        torch.set_num_threads(before)


def _alone_ring_seconds(ring_all_reduce: Any, num_ranks: int) -> float:
    """Return the processor time of the same function on all ranks, in turns, with a `dist` that does nothing."""
    names = ring_all_reduce.__globals__
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return sum(seconds_alone(lambda: _ring(ring_all_reduce), names, rank, num_ranks) for rank in range(num_ranks))
    finally:
        torch.set_num_threads(before)


def _rings(quick: bool) -> tuple[str, dict[int, dict[str, float]]]:
    ring = solution("ring_all_reduce")
    labkit.run(_ring, ring, on=labkit.virtual(2), echo=False)  # what is imported on first use is not counted
    figures: dict[int, dict[str, float]] = {}
    rows = []
    for num_ranks in NUM_RANKS[:2] if quick else NUM_RANKS:
        begin, cpu = time.perf_counter(), time.process_time()
        run = labkit.run(_ring, ring, on=labkit.virtual(num_ranks), echo=False, timeout=None)
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
        if run.results != [float(num_ranks)] * num_ranks:
            raise ValueError(f"the ring of {num_ranks} ranks gave {run.results[:4]}")
        plain, alone = _plain_ring_seconds(num_ranks), _alone_ring_seconds(ring, num_ranks)
        spans, messages = len(run.timeline), 2 * num_ranks * (num_ranks - 1)
        figures[num_ranks] = {
            "seconds": seconds, "cpu_seconds": cpu_seconds, "spans": spans, "messages": messages, "plain": plain,
            "alone": alone,
        }  # fmt: skip
        rows.append(
            [
                f"{num_ranks}",
                f"{seconds:.2f}",
                f"{cpu_seconds:.2f}",
                f"{cpu_seconds / alone:.1f}",
                f"{seconds / plain:.1f}",
                f"{messages}",
                f"{spans}",
                f"{spans / seconds:.0f}",
            ]
        )
    head = [
        *("ranks", "seconds", "of processor time", "times itself alone", "times plain threads", "messages", "spans"),
        "spans per second",
    ]
    return "The solution's ring all-reduce in virtual time\n" + table(head, rows), figures


def _training(quick: bool) -> tuple[str, dict[str, Any], dict[str, float]]:
    figures: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    rows = []
    for name, width, batch in (("operators of 10 us", 32, 16), ("operators of 1 ms", 256, 128)):
        labkit.run(_train, width, batch, on=labkit.virtual(4), echo=False)
        simulated, plain = [], []
        for _ in range(3 if quick else 7):
            begin = time.perf_counter()
            labkit.run(_train, width, batch, on=labkit.virtual(4), echo=False)
            simulated.append(time.perf_counter() - begin)
            plain.append(_plain_seconds(4, width, batch))
        ratios[name] = median(one / other for one, other in zip(simulated, plain, strict=True))
        figures[name] = {"simulated": simulated, "plain": plain}
        rows.append([name, f"{min(simulated):.3f}", f"{min(plain):.3f}", f"{ratios[name]:.2f}"])
    head = [f"{NUM_STEPS} training steps on 4 ranks", "simulated, s", "without, s", "ratio"]
    return table(head, rows), figures, ratios


def _big_step(quick: bool) -> tuple[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.benchmarks.big_step", *(["--small"] if quick else [])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    figures: dict[str, Any] = json.loads(ended.stdout)
    hand = figures["by_hand"]
    text = (
        f"One step of {figures['parameters'] / 1e9:.1f} billion parameters on {figures['ranks']} virtual H100s: "
        f"{figures['seconds']:.0f} s, of processor time {figures['cpu_seconds']:.0f} s, "
        f"{figures['resident_bytes'] / 1e9:.2f} GB of this host\n"
        f"  {figures['cpu_seconds'] / figures['alone_s']:.2f} times the processor time of the same step without "
        f"communication, on meta, one rank after the other ({figures['alone_s']:.0f} s)\n"
        f"  predicted: {figures['step_s']:.3f} s, {100 * figures['mfu']:.1f} % of peak; arithmetic and bubble alone, "
        f"by hand: {hand['with_bubble_s']:.3f} s; fullest device {figures['device_peak_bytes'] / 1e9:.1f} GB"
    )
    return text, figures


def _folded(quick: bool) -> tuple[str, float, bool]:
    """Return a text, what 4,096 ranks of which 64 run take over those 64 alone, and whether a fold keeps all times."""
    size = ["--layers", "1", "--steps", "1"] if quick else []
    command = [sys.executable, "-m", "tests.benchmarks.folded", *size]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    figures = json.loads(ended.stdout)
    few, many = figures["few_s"], figures["many_s"]
    is_same = "the same" if figures["is_same"] else "another"
    text = (
        f"FSDP2 over replicas of {folded.SHARD} ranks, shapes only: {2 * folded.SHARD} ranks take {few:.1f} s of "
        f"processor time, {folded.MANY} of which {2 * folded.SHARD} run {many:.1f} s. With a fold the timeline of "
        f"{folded.COMPARED} ranks in replicas of {folded.COMPARED_SHARD} is {is_same}."
    )
    return text, many / few, figures["is_same"]


def run(quick: bool) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return a table, the bars and the figures."""
    rings_text, rings = _rings(quick)
    training_text, training, ratios = _training(quick)
    step_text, step = _big_step(quick)
    folded_text, folded_ratio, is_same = _folded(quick)
    bars = [
        Bar(f"simulated training, {name}, at most {limit:g} times the same numerics", ratios[name], limit)
        for name, limit in zip(ratios, (12.0, 2.0), strict=True)
    ]
    bars += [
        Bar("4,096 ranks of which 64 run, over 64 ranks, at most 2 times", folded_ratio, 2.0),
        Bar("timelines that a fold changes", float(not is_same), 0.0),
    ]
    most = max(rings)
    bars += [
        Bar(
            f"a ring of {most} ranks, at most {TIMES_ALONE:g} times its functions without communication",
            rings[most]["cpu_seconds"] / rings[most]["alone"], TIMES_ALONE,
        ),
        Bar(
            f"a 3D step on {step['ranks']} ranks, at most {TIMES_ALONE:g} times itself without communication",
            step["cpu_seconds"] / step["alone_s"], TIMES_ALONE,
        ),
    ]  # fmt: skip
    if not quick:
        bars.append(Bar("the step on 512 ranks takes at most 8 GB of this host", step["resident_bytes"], STEP_BYTES))
    figures = {"rings": rings, "training": training, "step": step, "fold": folded_ratio}
    return "\n\n".join([rings_text, training_text, step_text, folded_text]), bars, figures
