"""Steps of published runs beside the same steps on the virtual cluster, which knows nothing of those runs.

Forty runs were drawn before any of them was simulated: twenty of llm-foundry's FSDP runs in bfloat16, twenty of
nanotron's that are split three ways (replicas, stages and tensor ranks, at most 16 of the latter two together, so that
32 ranks run). None was left out afterwards, and nothing in the cluster is fitted to any of them. What runs is neither
program but one GPT in plain torch, ``labkit.planned_steps.program``, in the same configuration, with what each program
does otherwise, ``labkit.planned_steps.programs``. Which of two versions of nanotron ran no column of its table says:
runs that took as much longer than a plan as the polling one sleeps are run as that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

from labkit.planned_steps.programs import PROGRAMS
from labkit.planned_steps.verify import Simulated, Verified, simulate
from tests.benchmarks.table import Bar, table
from tests.planner.published_runs import Run, foundry_runs, nanotron

GIB = 2**30
"""What nanotron's table calls a GB: helpers.py divides max_memory_allocated() by 1024**3."""
SEED, OF_EACH, MOST_RANKS = 37, 20, 16
TITLE = (
    "Whole steps of published runs. None of the programs ran here: each row is one GPT in plain torch "
    "(labkit/planned_steps) in that run's configuration, with what the program does otherwise (programs.py there). "
    "Which runs of nanotron polled is read from their own time"
)
HEAD = (
    "run", "GPUs", "split", "published, s", "here, s", "off", "published, GB", "here, GB", "off",
    "where a fitted plan takes longer",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A published run and its step on the virtual cluster."""

    program: str
    run: Run
    here: Simulated

    @property
    def off(self) -> float:
        """How much too long the step is here, as a share."""
        assert self.run.seconds is not None
        return self.here.seconds / self.run.seconds - 1

    @property
    def memory_off(self) -> float | None:
        """How much too much memory it takes here, as a share; None where none is published."""
        return None if self.run.memory is None else self.here.memory_bytes / GIB / self.run.memory - 1

    @property
    def too_large(self) -> bool:
        """Whether it takes more here than the accelerator has on which it ran."""
        return self.here.memory_bytes > self.run.plan.job.machines.device.memory_bytes

    def cells(self) -> list[str]:
        """Return its row."""
        model, device, split = self.run.plan.job.model, self.run.plan.job.machines.device, self.run.plan.layout
        name = f"{self.program} {self.run.model}, {model.sequence} tokens"
        gpus = f"{split.world_size} {device.name}" + (" of 40 GB" if device.memory_bytes < 50e9 else "")
        # What a plan that was fitted to nanotron's runs has more than the cluster, part by part.
        part, more = max(Verified(self.run.plan, self.here).differences(), key=lambda each: each[1])
        memory = ["-", f"{self.here.memory_bytes / 1e9:.1f}", "-"]
        if self.run.memory is not None and self.memory_off is not None:
            memory[0], memory[2] = f"{self.run.memory * GIB / 1e9:.1f}", f"{self.memory_off:+.0%}"
        return [
            name, gpus, str(split), f"{self.run.seconds:.3g}", f"{self.here.seconds:.3g}", f"{self.off:+.0%}", *memory,
            f"{part}, {more:.2g} s" if more > 0 else "nothing",
        ]  # fmt: skip


def drawn() -> list[tuple[str, Run]]:
    """Return the runs that the seed draws, with the program of each."""
    three_ways = [
        run
        for run in nanotron()
        if run.seconds
        and min(run.plan.layout.data, run.plan.layout.pipeline, run.plan.layout.tensor) > 1
        and run.plan.layout.pipeline * run.plan.layout.tensor <= MOST_RANKS
    ]
    return [
        *(("llm-foundry", run) for run in Random(SEED).sample(foundry_runs(), OF_EACH)),
        *(("nanotron", run) for run in Random(SEED).sample(three_ways, OF_EACH)),
    ]


def steps(of_each: int = OF_EACH) -> Iterator[Step]:
    """Yield the drawn runs, or the first of each program, with their steps on the virtual cluster."""
    runs = drawn()
    for program, run in [*runs[:of_each], *runs[OF_EACH : OF_EACH + of_each]]:
        version = "nanotron, polling" if run.polled else program
        yield Step(version, run, simulate(run.plan, PROGRAMS[version]))


def compared(of_each: int = OF_EACH) -> tuple[str, list[Bar], list[list[str]]]:
    """Return what the steps are off as text, as bars, and as the rows of a table with its head first."""
    found = list(steps(of_each))
    cells = [each.cells() for each in found]
    told = [TITLE, table(list(HEAD), cells)]
    for program in dict.fromkeys(each.program for each in found):
        off = [each.off for each in found if each.program == program]
        told.append(
            f"  {program}: {median(map(abs, off)):.1%} off in the median, {median(off):+.1%} as a mean error, "
            f"{max(off, key=abs):+.1%} at worst, of {len(off)}"
        )
    told.append(f"  {sum(each.too_large for each in found)} take more memory here than their accelerator has")
    memory = [abs(each.memory_off) for each in found if each.memory_off is not None]
    bars = [
        Bar(f"step time of {len(found)} published runs, median error", median(abs(each.off) for each in found), 0.15),
        Bar("runs of these that are more than 30 % off", float(sum(abs(each.off) > 0.30 for each in found)), 2.0),
        Bar(f"peak memory of the {len(memory)} that publish it, median error", median(memory), 0.10),
    ]
    return "\n".join(told), bars, [list(HEAD), *cells]


def run(*, quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the table, its bars and the figures; quick, of the first two runs of each program."""
    text, bars, rows = compared(2 if quick else OF_EACH)
    return text, bars, {"tables": {TITLE: rows}}
