"""One training step of Llama 3 70B on 512 virtual H100s: python -m tests.benchmarks.big_step [--small] prints JSON.

Pipeline 8 x data 8 x tensor 8, 16 microbatches of one sequence of 4,096 tokens; --small is one of the data parallel
copies with two layers a stage and 4 microbatches. The shape is that of Table 3 of Grattafiori et al. 2024, "The Llama 3
Herd of Models" (arXiv 2407.21783), the vocabulary that of the released weights. It runs in a process of its own, so
that its memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import replace
from typing import Any

import torch

import labkit
from tests.benchmarks import transformer_3d
from tests.benchmarks.transformer_3d import Shape, train_step
from tests.benchmarks.without_dist import OneOf, seconds_alone

LLAMA_3_70B = Shape(
    layers=80, hidden=8192, heads=64, kv_heads=8, inner=28672, vocab=128_256, sequence=4096, pipeline=8, data=8,
    tensor=8, num_microbatches=16,
)  # fmt: skip
SMALL = replace(LLAMA_3_70B, layers=16, data=1, num_microbatches=4)


def by_hand(shape: Shape) -> dict[str, float]:
    """Return the seconds of a step from arithmetic alone: 6 N per token at the rate matrix products reach, and bubble.

    What it leaves out makes the simulated step longer: attention's own products (two for each pair of positions),
    whatever is limited by memory, communication that nothing hides, and the update.
    """
    device = labkit.virtual(1).cluster.device
    num_ranks = shape.pipeline * shape.data * shape.tensor
    flops = 6 * shape.num_parameters * shape.tokens
    rate = num_ranks * device.peak_flops["bfloat16"]
    bubble = (shape.num_microbatches + shape.pipeline - 1) / shape.num_microbatches
    return {"flops": flops, "at_peak_s": flops / rate, "with_bubble_s": flops / rate / device.compute_share * bubble}


def alone(shape: Shape) -> float:
    """Return the processor time of the step without communication, on meta: a rank of each stage, times its copies."""
    copies, total = shape.data * shape.tensor, 0.0
    for stage in range(shape.pipeline):
        mesh = OneOf({"pp": stage, "dp": 0, "tp": 0})
        total += seconds_alone(
            lambda: train_step(shape), vars(transformer_3d), stage * copies, shape.pipeline * copies,
            init_device_mesh=lambda *args, mesh=mesh, **more: mesh,
        )  # fmt: skip
    return copies * total


def measure(shape: Shape) -> dict[str, Any]:
    """Return what simulating one step took and what it predicts."""
    num_ranks = shape.pipeline * shape.data * shape.tensor
    begin, cpu = time.perf_counter(), time.process_time()
    run = labkit.run(
        train_step, shape, on=labkit.virtual(num_ranks, join_operators=True), echo=False, timeout=None
    )  # fmt: skip
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    torch.set_num_threads(1)
    hand, step = by_hand(shape), float(run.results[0])
    return {
        "ranks": num_ranks,
        "parameters": shape.num_parameters,
        "seconds": seconds,
        "alone_s": alone(shape),
        "cpu_seconds": cpu_seconds,
        "resident_bytes": peak,
        "spans": len(run.timeline),
        "step_s": step,
        "mfu": hand["at_peak_s"] / step,
        "by_hand": hand,
        "device_peak_bytes": int(run.timeline.tables["memory_peak"]["bytes"].max()),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.big_step", description=__doc__)
    parser.add_argument("--small", action="store_true")
    sys.stdout.write(json.dumps(measure(SMALL if parser.parse_args().small else LLAMA_3_70B)) + "\n")


if __name__ == "__main__":
    main()
