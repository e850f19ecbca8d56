"""The planner beside published runs, cell by cell: what it says of nanotron's, to which its constants were fitted.

``nanotron_h100.csv``: benchmarks of the Ultra-Scale Playbook (Hugging Face 2025, Apache-2.0), 1,296 configurations on 8
to 256 H100s, of which 688 ran. ``llm_foundry.csv``: mosaicml/llm-foundry, scripts/train/benchmarking/README.md, FSDP;
nothing was fitted to it, nor to ``torchtitan.csv`` and ``other_systems.csv``.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from labkit.hardware import DEVICES, LINKS
from labkit.planner.layout import Layout
from labkit.planner.model import Model
from labkit.planner.plan import Job, Plan, planned
from labkit.planner.step import Machines
from labkit.planner.table import row_plan

_HERE = Path(__file__).parent
H100S = Machines(DEVICES["h100"], LINKS["nvlink4"], LINKS["ib_ndr"])
_LAYOUT = ("model", "nodes_of_8_h100", "microbatch", "grad_acc", "dp", "pp", "tp", "zero")


@dataclass(frozen=True)
class Run:
    """A published run beside its plan; `seconds` and `memory` are None where it did not run."""

    model: str
    nodes: int
    plan: Plan
    seconds: float | None
    tokens_per_second: float | None
    memory: float | None

    @property
    def error(self) -> float:
        """How much too long the plan is, as a share."""
        assert self.seconds is not None
        return self.plan.seconds / self.seconds - 1

    @property
    def neighbours(self) -> int:
        """How many neighbours its busiest stage has: two in the middle, one of two stages, none without a pipeline."""
        return min(2, self.plan.layout.pipeline - 1)

    @property
    def polled(self) -> bool:
        """Whether its host slept between looks at its messages, which no column says: its time does.

        nanotron's branch nouamane/bench2 sleeps 0.1 s at least six times for each neighbour and microbatch. A run
        polled if it took half of that longer than planned, and a third longer in all.
        """
        if self.seconds is None or not self.neighbours:
            return False
        more = self.seconds - self.plan.seconds
        return more > 0.3 * self.neighbours * self.plan.layout.accumulation and self.seconds > self.plan.seconds * 4 / 3


@cache
def nanotron() -> tuple[Run, ...]:
    """Return every published configuration but those that contradict another row of the same configuration."""
    with (_HERE / "nanotron_h100.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    seen = Counter(tuple(row[name] for name in _LAYOUT) for row in rows)
    found = []
    for row in rows:
        if seen[tuple(row[name] for name in _LAYOUT)] > 1:
            continue
        plan = row_plan(row, H100S)
        rate = float(row["tokens_per_s"]) if row["tokens_per_s"] else None
        seconds = plan.layout.batch * plan.job.model.sequence / rate if rate else None
        memory = float(row["gpu_memory_gb"]) if row["gpu_memory_gb"] else None
        found.append(Run(row["model"], int(row["nodes_of_8_h100"]), plan, seconds, rate, memory))
    return tuple(found)


def host_bound() -> list[Run]:
    """Return nanotron's runs without a pipeline in which the device waits for the host.

    One sequence at a time, 4 or 8 tensor ranks, models 1B and 3B, up to 8 nodes: there a layer takes the same time
    whatever its width and its tensor ranks.
    """
    return [
        run
        for run in nanotron()
        if run.seconds and run.plan.layout.pipeline == run.plan.layout.microbatch == 1 and run.nodes <= 8
        if run.plan.layout.tensor in (4, 8) and run.model in ("1B", "3B")
    ]


def host_of_nanotron() -> tuple[float, float]:
    """Return what nanotron's host takes to issue a layer, forward and backward, and for a step besides, in seconds.

    The two numbers with the least squares of relative errors over its host-bound runs, none of which has a pipeline, so
    none of which the published steps are drawn from.
    """
    runs = host_bound()
    layers = np.array([run.plan.layout.accumulation * run.plan.job.model.layers for run in runs])
    seconds = np.array([run.seconds for run in runs])
    found, *_ = np.linalg.lstsq(np.stack([layers, np.ones(len(runs))], axis=1) / seconds[:, None], np.ones(len(runs)))
    return float(found[0]), float(found[1])


def across_nodes() -> list[Run]:
    """Return nanotron's runs of one replica whose pipeline leaves its node, in which the device waits for the host.

    One sequence at a time, 4 or 8 tensor ranks, and models whose layers take the device less time than the host.
    """
    return [
        run
        for run in nanotron()
        if run.seconds and run.plan.layout.microbatch == run.plan.layout.data == 1 and run.nodes > 1
        if run.plan.layout.pipeline > 1 and run.plan.layout.tensor in (4, 8) and run.model in ("1B", "3B", "8B")
    ]


def beside_pipeline(layer_s: float, step_s: float) -> float:
    """Return what each tensor rank adds to a layer's issue where a pipeline leaves its node, in seconds.

    The number with the least squares of relative errors over the runs of one replica, none of which can be drawn.
    """
    runs = across_nodes()
    seconds = np.array([run.seconds for run in runs])
    layers = np.array([_layers_in_a_row(run) for run in runs])
    tensor = np.array([run.plan.layout.tensor for run in runs])
    left = (seconds - step_s - layers * layer_s) / seconds
    weights = layers * tensor / seconds
    return float(weights @ left / (weights @ weights))


def _layers_in_a_row(run: Run) -> int:
    """Return how many layers the fullest stage issues until the last microbatch has passed."""
    split = run.plan.layout
    fullest = max(part.layers for part in split.stages(run.plan.job.model))
    return fullest * (split.accumulation + split.pipeline - 1)


def kept_by_nanotron(model: str, tensor: int) -> float:
    """Return the bytes that a token more in a microbatch costs a rank of nanotron: its published memory, in GiB.

    Of runs without a pipeline on two nodes, with as many sequences as fit and the next fewer; the mean of those there
    are, with ZeRO and without.
    """
    grouped: dict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for run in nanotron():
        split = run.plan.layout
        if run.memory and run.model == model and split.pipeline == 1 and split.tensor == tensor and run.nodes == 2:
            grouped[split.data, split.sharding].append((split.microbatch, run.memory))
    slopes = []
    for sizes in grouped.values():
        if len(sizes) > 1:
            (few, less), (many, more) = sorted(sizes)[-2:]
            slopes.append((more - less) * 2**30 / (many - few) / 4096)
    return sum(slopes) / len(slopes)


@dataclass(frozen=True)
class Cell:
    """What a model's runs on so many nodes say of the planner.

    Attributes:
        model: Which.
        nodes: How many nodes of 8.
        num_runs: Runs with a figure.
        num_polled: Those whose hosts polled.
        error: Median of the absolute errors of step time.
        rank: Rank correlation of planned and measured throughput.
        rank_unpolled: The same without those that polled.
        pick: Throughput of the run that the planner puts first, over the best measured.
    """

    model: str
    nodes: int
    num_runs: int
    num_polled: int
    error: float
    rank: float
    rank_unpolled: float
    pick: float


@cache
def cells() -> tuple[Cell, ...]:
    """Return the cells, by model and number of nodes."""
    grouped: dict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in nanotron():
        if run.seconds is not None:
            grouped[run.model, run.nodes].append(run)
    found = []
    for (model, nodes), runs in sorted(grouped.items(), key=lambda item: (float(item[0][0][:-1]), item[0][1])):
        first = max(runs, key=lambda run: (run.plan.state != "too large", run.plan.tokens_per_second))
        best = max(run.tokens_per_second or 0.0 for run in runs)
        steady = [run for run in runs if not run.polled]
        found.append(
            Cell(
                model, nodes, len(runs), len(runs) - len(steady), median(abs(run.error) for run in runs),
                _rank_correlation(runs), _rank_correlation(steady), (first.tokens_per_second or 0.0) / best,
            )
        )  # fmt: skip
    return tuple(found)


@dataclass(frozen=True)
class Memory:
    """What the runs say of planned memory: median error, and how well "fits" foretells that a run had a figure."""

    error: float
    f1: float
    unsafe: float


@cache
def memory() -> Memory:
    """Return what all configurations say of planned memory."""
    runs = nanotron()
    errors = [abs(run.plan.memory.total / 1e9 / run.memory - 1) for run in runs if run.memory]
    both = sum(run.plan.fits and run.seconds is not None for run in runs)
    safe = sum(run.plan.fits for run in runs)
    ran = sum(run.seconds is not None for run in runs)
    return Memory(median(errors), 2 * both / (safe + ran), 1 - both / safe)


_MPT = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
    "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64),
}  # fmt: skip


@cache
def foundry_runs() -> tuple[Run, ...]:
    """Return llm-foundry's runs in bfloat16, whose processes FSDP shards; of their memory nothing is published."""
    found = []
    with (_HERE / "llm_foundry.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if "fp8" in row["Precision"]:
                continue
            layers, hidden, heads = _MPT[row["Model"]]
            sequence, size = int(row["SeqLen (T)"]), int(row["# GPUs"])
            model = Model(
                row["Model"], layers, hidden, heads, heads, 4 * hidden, 50_368, sequence, gated=False, tied=True
            )
            device = DEVICES[row["GPU"].split("_")[0]]
            if row["GPU"].endswith("40gb"):
                device = replace(device, memory_bytes=40 * 10**9)
            machines = Machines(
                device, LINKS[device.native_link], LINKS["ib_ndr" if device.name == "h100" else "ib_hdr"]
            )
            again = "full" if row["Activation Checkpointing"] == "True" else "none"
            zero = 3 if row["Sharding Strategy"] == "FULL_SHARD" else 2
            split = Layout(size, 1, 1, int(row["MicroBatchSize"]), int(row["GradAccum"]), zero, again)
            plan, rate = planned(Job(model, size, split.batch, machines), split), float(row["Throughput (T/s)"])
            found.append(Run(row["Model"], size // 8, plan, split.batch * sequence / rate, rate, None))
    return tuple(found)


@cache
def foundry() -> tuple[tuple[str, int, float], ...]:
    """Return (GPU, sequence, error of step time) of llm-foundry's runs in bfloat16."""
    found = []
    for run in foundry_runs():
        device = run.plan.job.machines.device
        found.append((f"{device.name}_{device.memory_bytes // 10**9}gb", run.plan.job.model.sequence, run.error))
    return tuple(found)


@cache
def polls() -> tuple[float, float, float]:
    """Return what a run that polled takes longer by neighbour and microbatch: the median, and what half lie between."""
    each = []
    for run in nanotron():
        if run.polled and run.seconds is not None:
            split = run.plan.layout
            messages = run.neighbours * split.accumulation + split.pipeline - 2
            each.append((run.seconds - run.plan.seconds) / messages)
    low, middle, high = np.quantile(each, (0.25, 0.5, 0.75))
    return float(middle), float(low), float(high)


@cache
def torchtitan() -> tuple[tuple[str, float], ...]:
    """Return (run, error of step time) of torchtitan's published runs in bfloat16.

    Its H100s have 96 GB at 2.4 TB/s (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md and
    asyncTP_llama3_h100_2025-06_torchtitan.md). Selective recomputation counts as full.
    """
    device = replace(DEVICES["h100"], memory_bytes=96 * 10**9, memory_bytes_per_second=2400e9)
    machines, found = replace(H100S, device=device), []
    with (_HERE / "torchtitan.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plan = row_plan(row, machines)
            measured = float(row["tokens_per_s_per_gpu"]) * plan.layout.world_size
            found.append((row["runs"], measured / plan.tokens_per_second - 1))
    return tuple(found)


@cache
def other_systems(*, chunks: bool = True) -> dict[str, dict[str, float]]:
    """Return the errors of step time of runs of each system, by run; without chunks as if all had run plain 1F1B.

    Megatron-LM as MegaScale ran it (Jiang and others 2024, arXiv 2402.15627, table 2; its microbatch and its NICs are
    not stated: 1 and 200 Gbit/s are taken) and as Korthikanti and others did (2022, arXiv 2205.05198; 1T has no
    chunks); Llama 3 405B (arXiv 2407.21783, table 4: operations a second; its chunks are not stated: a layer each).
    """
    found: dict[str, dict[str, float]] = defaultdict(dict)
    with (_HERE / "other_systems.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            device = DEVICES[row["gpu"]]
            row["chunks"] = row["chunks"] if chunks else ""
            plan = row_plan(row, Machines(device, LINKS[device.native_link], LINKS[row["nic"]]))
            if row["seconds"]:
                took = float(row["seconds"])
            else:
                rate = 1e12 * float(row["tflops_per_gpu"]) * plan.layout.world_size
                took = plan.layout.batch * plan.job.model.sequence * plan.job.model.flops_per_token / rate
            found[row["system"]][row["run"]] = plan.seconds / took - 1
    return dict(found)


def contradictions() -> tuple[int, int, list[float]]:
    """Return configurations published twice, those that ran once and failed once, and how far apart the others are."""
    grouped: dict[tuple[str, ...], list[float | None]] = defaultdict(list)
    with (_HERE / "nanotron_h100.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rate = row["tokens_per_s"]
            grouped[tuple(row[name] for name in _LAYOUT)].append(float(rate) if rate else None)
    twice = [rates for rates in grouped.values() if len(rates) > 1]
    torn = [rates for rates in twice if None in rates and any(rates)]
    apart = [max(rates) / min(rates) for rates in twice if None not in rates for rates in [[r for r in rates if r]]]
    return len(twice), len(torn), apart


def _rank_correlation(runs: list[Run]) -> float:
    """Return Spearman's rank correlation of planned and measured throughput."""
    planned_ranks = _ranks([run.plan.tokens_per_second for run in runs])
    measured_ranks = _ranks([run.tokens_per_second or 0.0 for run in runs])
    middle = (len(runs) - 1) / 2
    both = sum((one - middle) * (other - middle) for one, other in zip(planned_ranks, measured_ranks, strict=True))
    spread = sum((one - middle) ** 2 for one in planned_ranks) * sum((one - middle) ** 2 for one in measured_ranks)
    return float(both / spread**0.5)


def _ranks(values: list[float]) -> list[float]:
    ordered = sorted(values)
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(ordered):
        places[value].append(place)
    return [sum(places[value]) / len(places[value]) for value in values]
