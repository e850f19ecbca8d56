"""Lesson 13 keeps its contract, and what it builds equals one process, its formulas and torch's own."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.models import GPT, Addition, loss_of, train_on_ranks
from labkit.plans.sharded_step import STATE_BYTES, UNET
from labkit.timeline.memory import memory_curve, memory_peaks, peak_memory_bytes
from labkit.timeline.metrics import busbw_factor, collective_timings, lane_times
from labkit.widgets.sharding_player import state_bytes
from tests.benchmarks.sharded import KINDS
from tests.benchmarks.sharded import step as trained_as
from tests.checks.lesson_cells import lesson as source_of
from tests.checks.lesson_cells import namespace
from tests.lessons.contract import LessonContract

ROOT = Path(__file__).parents[2]
KEYS = ROOT / "labkit" / "exercises" / "sharded_training"
RANKS, LAYERS, WIDTH, ROWS = 4, 3, 64, 128


class TestContract(LessonContract):
    number = "13"
    least_guesses = 1
    topics: ClassVar = {
        "the question": r"out of memory",
        "sixteen bytes": r"sixteen bytes a parameter",
        "the three stages": r"\*\*zero-1\*\*[\s\S]*\*\*zero-2\*\*[\s\S]*\*\*zero-3\*\*",
        "published models": r"gpt-3",
        "stuck": r"labkit\.lend\(",
        "padding": r"\*\*padded\*\*",
        "masters": r"\*\*master\*\*",
        "prefetching": r"\*\*prefetching\*\*",
        "the trap": r"empty the storage",
        "a recorded run": r'labkit\.recorded\("who_holds"\)',
        "checkpointing": r"\*\*activation checkpointing\*\*",
        "clipping": r"\*\*clipping\*\*",
        "hybrid sharding": r"\*\*hybrid sharding\*\*",
        "offload": r"\*\*offloading\*\*",
        "a checkpoint": r"\*\*checkpoint\*\*",
        "beside torch's": r"fully_shard",
        "the next lesson": r"the next question",
        "sources": r"### sources",
    }


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    return namespace(number="13")


@pytest.mark.in_turn
def test_the_recorded_run_is_what_the_virtual_cluster_does() -> None:
    record = runpy.run_path(str(ROOT / "solutions" / "hidden" / "sharded_training" / "who_holds" / "record.py"))[
        "record"
    ]
    kept, fresh = labkit.recorded("who_holds"), record(2, True)
    assert list(kept.rows()) == list(fresh.rows())
    key = json.loads((KEYS / "who_holds" / "key.json").read_text(encoding="utf-8"))["answers"]
    peaks = [each.bytes for each in memory_peaks(kept)]
    assert peaks.index(max(peaks)) == key["rank"]
    assert (max(peaks) - peaks[0]) / 1e6 == pytest.approx(key["extra_mb"], abs=0.05)


@pytest.mark.long
def test_where_the_stages_spend_their_time_is_what_the_text_says(answers: dict[str, Any]) -> None:
    world, parts, peaks, held = labkit.virtual(8, gpu="h100", link="pcie5"), [], [], []
    for stage in range(3):
        timeline = labkit.run(answers["two_steps"], stage, on=world, echo=False).timeline
        peaks.append(memory_peaks(timeline)[0])
        held.append(peaks[-1].by_category)
        lanes = lane_times(timeline)
        parts.append((lanes.compute_ns[0] / 1e6, (lanes.either_ns[0] - lanes.compute_ns[0]) / 1e6))
    (ddp, sent), (one, sent_by_one), (two, sent_by_two) = parts
    text = source_of("13").cells
    said = " ".join(cell.source.replace("\n", " ") for cell in text if cell.kind == "markdown")
    assert f"take {ddp:.1f} ms of computing and {sent:.1f} ms of communication that nothing hides" in said
    more, copied = sent_by_one - sent, one - ddp
    assert f"takes {more + copied:.1f} ms longer: {more:.1f} ms for its extra bytes, and {copied:.1f} ms for" in said
    later = f"still takes {two + sent_by_two - ddp - sent:.1f} ms longer: {sent_by_two - sent:.1f} ms because less of"
    assert f"{later} its communication is hidden, and {two - ddp:.1f} ms for copying" in said
    buffers, gradients = ((held[1][kind] - held[2][kind]) / 1e6 for kind in ("communication", "gradients"))
    assert f"It needs no whole gradients, which saves {gradients:.0f} MB" in said
    assert f"saves {buffers:.0f} MB of communication buffers. DDP makes buckets of {buffers / 2:.0f} MB for" in said
    assert "and new ones before the second. Here the first ones are not freed." in said  # so twice as much
    assert [peak.operator for peak in peaks[:2]] == ["_foreach_sqrt", "clone"]  # in the update, and in the gather
    state, other, beside = (
        [each[kind] / 1e6 for each in held[:2]] for kind in ("optimizer state", "other", "communication")
    )
    whole = held[0]["parameters"] / 1e6
    assert f"Adam's two means shrink from {state[0]:.1f} MB to {state[1]:.1f} MB" in said
    assert f"save {(peaks[0].bytes - peaks[1].bytes) / 1e6:.1f} MB, and not {state[0] - state[1]:.1f}?" in said
    shards = sum(held[1][kind] - held[0][kind] for kind in ("parameters", "gradients")) / 1e6
    assert f"*beside* the whole ones: {shards:.1f} MB" in said
    assert f"needs {other[0]:.1f} MB for square roots" in said and other[0] == whole == held[0]["gradients"] / 1e6
    gathered = beside[1] - beside[0]
    assert f"needs a buffer of {gathered:.1f} MB, and {other[1]:.1f} MB to copy one tensor out of it" in said
    assert f"{gathered:.1f}" == f"{other[0]:.1f}" and "Roots and buffer cancel out:" in said
    saved = (peaks[0].bytes - peaks[1].bytes) / 1e6
    assert f"{state[0] - state[1]:.1f} - {shards:.1f} - {other[1]:.1f} is {saved:.1f}, up to rounding" in said


def test_the_peaks_that_the_text_says_are_what_the_cell_printed() -> None:
    printed = (ROOT / "solutions" / "13_sharded_training.ipynb").read_text(encoding="utf-8")
    peaks = dict(re.findall(r"(DDP|ZeRO-[12]) +[\d.]+ ms, +([\d.]+) MB at its peak", printed))
    said = " ".join(cell.source.replace("\n", " ") for cell in source_of("13").cells if cell.kind == "markdown")
    falls = f"falls from {peaks['DDP']} MB to {peaks['ZeRO-1']} MB with ZeRO-1 and to {peaks['ZeRO-2']} MB with ZeRO-2"
    assert falls in said


def test_how_many_gpus_are_enough_for_the_model_that_opens_it_is_as_its_end_says() -> None:
    said = " ".join(cell.source.replace("\n", " ") for cell in source_of("13").cells if cell.kind == "markdown")

    def gigabytes(ranks: int, stage: int) -> float:
        return sum(state_bytes(7e9, ranks, stage)) / 1e9

    least = [next((n for n in range(1, 10_001) if gigabytes(n, stage) <= 24), None) for stage in (1, 2, 3)]
    assert least == [None, 10, 5]
    assert f"all parameters and gradients, {4 * 7} GB. With ZeRO-2 a GPU holds {2 * 7} GB of parameters" in said
    assert f"its share of {14 * 7} GB. On eight GPUs that is {gigabytes(8, 2):.2f} GB" in said
    assert f"Ten can hold the state, but nothing else: {24 - gigabytes(10, 2):.1f} GB are left." in said
    assert f"Sixteen are enough: {24 - gigabytes(16, 2):.1f} GB are left, if `step` gathers in buckets" in said
    assert f"*one* buffer of {2 * 7} GB" in said and 2 * 14 > 24  # beside the parameters: then no number is enough
    assert f"With ZeRO-3, the bonus, each of your eight holds {gigabytes(8, 3):.0f} GB." in said


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return out


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.blocks = nn.Linear(WIDTH, WIDTH), nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        for block in self.blocks:
            x = block(x)
        return x


def two_steps(kind: str, names: dict[str, Any]) -> None:
    """Train a stack for two steps, sharded in one way."""
    module = Stack()
    model: Any = module
    finish: Callable[[], object] = lambda: None  # noqa: E731
    if kind in ("DDP", "ZeRO-1 behind DDP"):
        model = nn.parallel.DistributedDataParallel(module)
    if kind == "ZeRO-3":
        model = names["ShardedModule"](module, module.blocks)
        finish = model.finish_gradient_synchronization
    if kind == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in (*module.blocks, module):
            fully_shard(block, mesh=mesh)
    sharded = {"ZeRO-1 behind DDP": "ShardedOptimizer", "ZeRO-2": "ScatteringOptimizer"}.get(kind)
    options: Any = {"foreach": False}
    if sharded:
        optimizer = names[sharded](model.parameters(), torch.optim.AdamW, **options)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), **options)
    for step in range(2):
        with labkit.span(f"step {step}", "host"):
            optimizer.zero_grad()
            torch.autograd.backward(model(torch.ones(ROWS, WIDTH)).sum())
            finish()
            optimizer.step()


@pytest.fixture(scope="module")
def timelines(answers: dict[str, Any]) -> dict[str, labkit.Timeline]:
    kinds = ("DDP", "ZeRO-1 behind DDP", "ZeRO-2", "ZeRO-3", "fully_shard")
    world = labkit.virtual(RANKS, gpu="h100", link="pcie5")
    runs = {kind: labkit.run(two_steps, kind, answers, on=world, echo=False) for kind in kinds}
    return {kind: run.timeline for kind, run in runs.items() if run.timeline is not None}


FACTOR = {"all_reduce": 2, "all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}
NUM_PARAMS = sum(each.numel() for each in Stack().parameters())


def sent(timeline: labkit.Timeline) -> float:
    """Return what rank 0 sends in the steps, in units of the parameters: a ring's all_reduce counts twice."""
    calls = [each for each in timeline.collectives() if each.rank == 0 and each.kind in FACTOR]
    return sum(FACTOR[each.kind] * each.bytes for each in calls) / (4 * NUM_PARAMS) / 2


@pytest.mark.in_turn
@pytest.mark.parametrize(("kind", "units"), [("DDP", 2.0), ("ZeRO-1 behind DDP", 3.0), ("ZeRO-2", 2.0)])
def test_the_bytes_sent_are_those_of_the_formulas(timelines: dict[str, Any], kind: str, units: float) -> None:
    assert sent(timelines[kind]) == pytest.approx(units, rel=0.001)


def test_zero_3_sends_half_as_much_again_but_for_what_stays_gathered(timelines: dict[str, Any]) -> None:
    block = sum(each.numel() for each in Block().parameters())
    root = NUM_PARAMS - LAYERS * block
    assert sent(timelines["ZeRO-3"]) == pytest.approx(3.0 - (block + root) / NUM_PARAMS, rel=0.001)
    assert sent(timelines["ZeRO-3"]) < sent(timelines["fully_shard"]) < 3.01


@pytest.mark.parametrize("rank", range(RANKS))
def test_each_rank_holds_to_the_byte_what_the_formula_says(timelines: dict[str, Any], rank: int) -> None:
    block = sum(each.numel() for each in Block().parameters())
    shards = 4 * NUM_PARAMS // RANKS  # every size here divides by the ranks
    steps = 4 * len(list(Stack().parameters()))  # AdamW counts them in a tensor for each parameter
    for kind in ("ZeRO-1 behind DDP", "ZeRO-2", "ZeRO-3"):
        assert peak_memory_bytes(timelines[kind], rank, "optimizer state") == 2 * shards + steps, kind
    assert peak_memory_bytes(timelines["DDP"], rank, "optimizer state") == 2 * 4 * NUM_PARAMS + steps
    root = 4 * (NUM_PARAMS - LAYERS * block)
    zero3 = timelines["ZeRO-3"]
    begins = min(span.start_ns for span in zero3.rows() if span.name == "step 0" and span.rank == rank)
    times, held = memory_curve(zero3, rank, "parameters")
    assert held[times > begins].max() == shards + root + 4 * block  # the whole model was there before the first step


def at_its_peak(kind: str) -> int:
    """Return what a rank holds at its peak by the formula: when the last block's `down` has its weight's gradient."""
    block, down = sum(each.numel() for each in Block().parameters()), sum(p.numel() for p in Block().down.parameters())
    state = 3 * NUM_PARAMS // RANKS + len(list(Stack().parameters()))  # shards, two means; AdamW's counters
    # Of a block: its input, what the norm gives, up's and gelu's outputs, the norm's mean and rstd of each row.
    saved = LAYERS * ROWS * (2 * WIDTH + 2 * 4 * WIDTH + 2)
    outside = ROWS * WIDTH + 2  # the batch, the loss, its gradient
    made = 4 * WIDTH * ROWS  # gelu's gradient
    if kind == "ZeRO-2":  # gelu's output has become its input's gradient, down's gradients are on their way
        return 4 * (state + NUM_PARAMS + saved + outside + made + down + down // RANKS)
    # The root, the block that computes, the one before on its way, and down's gradients.
    return 4 * (state + NUM_PARAMS - LAYERS * block + 2 * block + saved + outside + made + down)


@pytest.mark.parametrize("kind", ["ZeRO-2", "ZeRO-3"])
def test_the_whole_peak_of_each_rank_is_the_formulas_to_the_byte(timelines: dict[str, Any], kind: str) -> None:
    assert [peak_memory_bytes(timelines[kind], rank) for rank in range(RANKS)] == [at_its_peak(kind)] * RANKS


def test_at_its_peak_fully_shard_holds_the_same_and_a_number_for_each_rank(timelines: dict[str, Any]) -> None:
    mesh = 4 * RANKS  # its ranks, which fully_shard's DeviceMesh keeps on every rank
    for rank in range(RANKS):
        assert peak_memory_bytes(timelines["fully_shard"], rank) == at_its_peak("ZeRO-3") + mesh


def test_no_more_time_is_exposed_than_with_fully_shard(timelines: dict[str, Any]) -> None:
    exposed = {}
    for kind in ("ZeRO-3", "fully_shard"):
        times = lane_times(timelines[kind])
        exposed[kind] = (times.either_ns - times.compute_ns).max()
    assert exposed["ZeRO-3"] <= exposed["fully_shard"]


@pytest.mark.long
def test_a_mesh_of_two_nodes_loses_the_same_and_sends_across_them_what_the_formula_says(
    answers: dict[str, Any],
) -> None:
    num_bytes = 4 * sum(p.numel() for p in GPT(num_layers=4, width=192).parameters())
    world = labkit.virtual(8, gpu="h100", gpus_per_node=4)
    runs = {shape: labkit.run(answers["on_mesh"], *shape, on=world, echo=False) for shape in ((8,), (2, 4))}
    assert runs[8,].results == pytest.approx(runs[2, 4].results, abs=1e-4)
    assert runs[2, 4].timeline is not None
    across = [each for each in collective_timings(runs[2, 4].timeline) if each.num_ranks == 2]
    sent = sum(each.bytes * busbw_factor(each.kind, each.num_ranks) for each in across)
    assert sent / 3 / num_bytes == pytest.approx(1.0, rel=1e-4)


def trained(stage: int, names: dict[str, Any], size: int) -> dict[str, torch.Tensor]:
    """Return the parameters of a GPT after three steps on this rank's shares of the batches."""
    model: Any = GPT(num_layers=2, width=48).double()
    options: Any = {"lr": 3e-3, "weight_decay": 0.1}
    if stage == 3:
        optimizer: Any = torch.optim.AdamW(model.parameters(), **options)
        sharded = names["ShardedModule"](model, model.blocks)
        train_on_ranks(sharded, optimizer, 3, sharded.finish_gradient_synchronization, size=size)
        found: dict[str, torch.Tensor] = sharded.gather_full_params()
        return found
    kind = names["ShardedOptimizer" if stage == 1 else "ScatteringOptimizer"]
    optimizer = kind(model.parameters(), torch.optim.AdamW, **options)
    train_on_ranks(nn.parallel.DistributedDataParallel(model) if stage == 1 else model, optimizer, 3, size=size)
    return {name: each.detach().clone() for name, each in model.named_parameters()}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("stage", "ranks"), [(3, 2), *(pytest.param(*each, marks=pytest.mark.long) for each in ((1, 3), (2, 4), (3, 5)))]
)
def test_after_steps_of_adamw_every_stage_equals_one_process(answers: dict[str, Any], stage: int, ranks: int) -> None:
    size = 60
    alone = GPT(num_layers=2, width=48).double()
    optimizer = torch.optim.AdamW(alone.parameters(), lr=3e-3, weight_decay=0.1)
    for step in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(alone, *Addition().batch(step, size)))
        optimizer.step()

    together = labkit.run(trained, stage, answers, size, on=labkit.virtual(ranks), echo=False).results
    for name, right in alone.named_parameters():
        for rank in range(ranks):
            torch.testing.assert_close(
                together[rank][name], right.detach(), rtol=0, atol=2e-6, msg=f"{name}, rank {rank}"
            )


def every_kind(names: dict[str, Any], num_steps: int) -> dict[str, list[float]]:
    """Return the losses of one GPT trained on these ranks by DDP, by torch's two sharded ways, and by the lesson's."""
    return {kind: trained_as(kind, names, num_steps) for kind in KINDS}


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4])
def test_on_real_ranks_in_one_run_torchs_own_and_ours_lose_the_same(answers: dict[str, Any], ranks: int) -> None:
    for losses in labkit.run(every_kind, answers, 4, on=labkit.local(ranks, device="cpu"), echo=False).results:
        assert {"torch's ZeroRedundancyOptimizer", "torch's fully_shard", "DDP"} < set(losses)
        for kind, found in losses.items():
            assert found == pytest.approx(losses["DDP"], abs=2e-5), kind
        assert len(set(losses["DDP"])) == 4  # every step changes something


def test_what_the_u_nets_section_says_of_its_layers_and_of_its_room() -> None:
    params, activations = UNET.layer_params, UNET.activation_bytes
    assert f"{sum(params) / 1e9:.1f} billion" == "7.7 billion"
    assert [params[at] / params[0] for at in (0, 4, 8)] == [1, 4, 16]
    assert [activations[at] / activations[0] for at in (0, 4, 8)] == [1, 1 / 2, 1 / 4]
    state = STATE_BYTES * sum(params) / UNET.num_ranks
    assert (round(state / 1e9), round((UNET.memory_bytes - state) / 1e9)) == (15, 9)
    assert UNET.num_layers == 26
