"""What GPUs this host has that work: the one answer that runs, the self-check and calibration go by.

    python -m labkit.launch.gpus

prints it, and ends with exit code 1 where no GPU can be used.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from labkit.interpreter import python
from labkit.launch import gpu_probe

_PATIENCE_S = 120


@dataclass(frozen=True)
class Gpu:
    """A GPU that works.

    Attributes:
        name: What CUDA_VISIBLE_DEVICES calls it wherever it stands in the list: its UUID.
        model: The maker's name for it.
        memory_bytes: Its memory.
    """

    name: str
    model: str
    memory_bytes: int


@dataclass(frozen=True)
class Gpus:
    """The GPUs of this host.

    Attributes:
        usable: Those on which an addition came out right.
        counted: How many torch counts, which asks the driver and tries nothing.
        nccl: NCCL's version, "" where torch has none.
        problem: Why GPUs that are counted are not usable; "" where all are.
    """

    usable: tuple[Gpu, ...] = ()
    counted: int = 0
    nccl: str = ""
    problem: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return what CUDA_VISIBLE_DEVICES calls those that work."""
        return tuple(gpu.name for gpu in self.usable)


def gpus() -> Gpus:
    """Return which GPUs of this host work; asked once per process and value of CUDA_VISIBLE_DEVICES.

    A child process tries each (some seconds); where torch counts none, nothing is started.
    """
    return _tried(os.environ.get("CUDA_VISIBLE_DEVICES"))


@lru_cache
def _tried(visible: str | None) -> Gpus:
    import torch

    counted = torch.cuda.device_count()  # asks NVML: no CUDA context is made here
    return probe(counted, visible) if counted else Gpus()


def probe(counted: int, visible: str | None) -> Gpus:
    """Return what a child process found that tried each GPU.

    Args:
        counted: How many there should be.
        visible: The value of CUDA_VISIBLE_DEVICES, or None.
    """
    command = python("-W", "ignore", str(Path(gpu_probe.__file__)))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return Gpus(counted=counted, problem=f"a process that tried them did not answer for {_PATIENCE_S} s")
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return Gpus(counted=counted, problem=_how_it_ended(done))
    named = [name.strip() for name in (visible or "").split(",")]
    usable, problems = [], []
    for index, each in enumerate(found["gpus"]):
        if "problem" in each:
            problems.append((index, each["problem"]))
        else:
            # Part of a GPU has a name of its own, which properties do not give; the whole one's UUID is not visible.
            is_part = index < len(named) and named[index].startswith("MIG-")
            usable.append(Gpu(named[index] if is_part else each["uuid"], each["model"], each["memory"]))
    return Gpus(tuple(usable), found["counted"], found["nccl"], _in_words(problems, found["counted"]))


def _in_words(problems: list[tuple[int, str]], counted: int) -> str:
    if len(problems) == counted and len({words for _, words in problems}) == 1:
        return problems[0][1]
    return "; ".join(f"GPU {index}: {words}" for index, words in problems)


def _how_it_ended(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"a process that tried them was ended by {signal.Signals(-done.returncode).name}"
    last = (done.stderr.strip().splitlines() or ["and said nothing"])[-1]
    return f"a process that tried them failed: {last}"


if __name__ == "__main__":
    here = gpus()
    for gpu in here.usable:
        print(f"{gpu.name}  {gpu.model}, {gpu.memory_bytes / 1e9:.0f} GB")
    if here.problem:
        print(f"{here.counted} counted, {len(here.usable)} usable: {here.problem}")
    if not here.usable:
        sys.exit("No GPU can be used here; torch counts " + str(here.counted) + ".")
