"""What a virtual rank's memory holds: closed forms, and torch's own MemTracker as the peer."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.timeline.memory import CATEGORIES, memory_curve, memory_peaks, peak_memory_bytes

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
]

WIDTH, LAYERS, BATCH = 64, 6, 32
WEIGHT = WIDTH * WIDTH * 4
OUTPUT = BATCH * WIDTH * 4


def _model(layers: int = LAYERS) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)))


def _run(fn: Callable[..., Any], *args: Any, ranks: int = 1, **world: Any) -> labkit.Run:
    return labkit.run(fn, *args, on=labkit.virtual(ranks, **world), echo=False)


def _peak(run: labkit.Run, category: str | None = None, rank: int = 0) -> int:
    return peak_memory_bytes(run.timeline, rank, category)


def train(optimizer: Callable[..., torch.optim.Optimizer], steps: int = 2) -> None:
    model = _model()
    stepper = optimizer(model.parameters(), lr=0.1)
    for _ in range(steps):
        stepper.zero_grad()
        model(torch.randn(BATCH, WIDTH)).sum().backward()
        stepper.step()


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("optimizer", "states"), [(torch.optim.SGD, 0), (partial(torch.optim.SGD, momentum=0.9), 1), (torch.optim.Adam, 2)]
)
def test_training_holds_four_bytes_a_parameter_as_many_of_gradients_and_those_of_the_optimizer(
    optimizer: Any, states: int
) -> None:
    run, size = _run(train, optimizer), LAYERS * WEIGHT
    assert _peak(run, "parameters") == _peak(run, "gradients") == size
    counters = 4 * LAYERS if states == 2 else 0  # Adam counts the steps of each tensor in a tensor
    assert _peak(run, "optimizer state") == states * size + counters


def test_forward_keeps_each_layers_input_for_backward() -> None:
    run = _run(train, torch.optim.SGD, 1)
    # The input of every layer; what sum() gives and backward's first gradient are one number each.
    assert _peak(run, "activations") == LAYERS * OUTPUT + 4 + 4


def infer() -> None:
    model = _model()
    with torch.no_grad():
        model(torch.randn(BATCH, WIDTH))


def test_without_grad_two_layers_outputs_are_the_most_that_lives() -> None:
    run = _run(infer)
    assert _peak(run, "activations") == 0
    assert _peak(run, "other") == 3 * OUTPUT  # the input, which the caller holds, one layer's input and its output


def checkpointed(recompute: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(8)]
    value = torch.randn(512, WIDTH, requires_grad=True)
    for block in blocks:
        value = checkpoint(block, value, use_reentrant=False) if recompute else block(value)
    value.sum().backward()


def test_activation_checkpointing_keeps_the_inputs_of_blocks_and_one_block() -> None:
    plain, recomputed = (_run(checkpointed, recompute) for recompute in (False, True))
    output = 512 * WIDTH * 4
    # Of each block the outputs of both ReLUs, and the first input; loss and its gradient are a number each.
    assert _peak(plain, "activations") == (1 + 2 * 8) * output + 8
    # Inputs and the last output of the blocks, and of the one computed anew both ReLUs and what one takes in.
    assert _peak(recomputed, "activations") == (1 + 8 + 3) * output + 8


def buffered() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
    model(torch.randn(BATCH, WIDTH)).sum().backward()


def test_buffers_of_modules_are_told_from_parameters() -> None:
    assert _peak(_run(buffered), "buffers") == 2 * WIDTH * 4 + 8  # mean, variance, number of batches


def test_a_model_made_before_the_run_counts_from_its_beginning() -> None:
    model = _model()
    run = _run(lambda: model(torch.ones(1, WIDTH)).sum().item())
    times, held = memory_curve(run.timeline, 0, "parameters")
    assert (times[0], held[0], held[-1]) == (0, LAYERS * WEIGHT, LAYERS * WEIGHT)


def on_meta() -> None:
    with torch.device("meta"):
        train(torch.optim.Adam)


def test_meta_tensors_count_what_they_would_hold() -> None:
    real, meta = _run(train, torch.optim.Adam), _run(on_meta)
    for category in ("parameters", "gradients", "activations"):
        assert _peak(real, category) == _peak(meta, category), category
    assert _peak(meta) == pytest.approx(_peak(real), rel=0.01)


def pipeline(schedule: str, microbatches: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    model, kept, sending = _model(3), [], []  # type: ignore[var-annotated]

    def send(tensor: torch.Tensor, to: int) -> None:
        while sending:
            sending.pop().wait()
        sending.append(dist.isend(tensor, to))

    def forward() -> None:
        if rank:
            value = torch.empty(BATCH, WIDTH)
            dist.recv(value, rank - 1)
            value.requires_grad_()
        else:
            value = torch.randn(BATCH, WIDTH)
        output = model(value)
        kept.append((value, output))
        if rank < size - 1:
            send(output.detach(), rank + 1)

    def backward() -> None:
        value, output = kept.pop(0)
        gradient = torch.ones_like(output)
        if rank < size - 1:
            dist.recv(gradient, rank + 1)
        output.backward(gradient)
        if rank:
            send(value.grad, rank - 1)

    first = microbatches if schedule == "gpipe" else min(size - rank, microbatches)
    for _ in range(first):
        forward()
    for done in range(microbatches):
        backward()
        if first + done < microbatches:
            forward()
    while sending:
        sending.pop().wait()


@pytest.mark.in_turn
@pytest.mark.parametrize(("stages", "microbatches"), [(4, 8), (3, 2)])
def test_gpipe_holds_every_microbatch_and_1f1b_as_many_as_stages_follow(stages: int, microbatches: int) -> None:
    gpipe, one = (_run(pipeline, schedule, microbatches, ranks=stages) for schedule in ("gpipe", "1f1b"))
    held = 4 * OUTPUT  # what came in, what each of the two inner layers takes in, what went out
    for rank in range(stages):
        first = OUTPUT * (rank == stages - 1)  # the gradient that the last stage starts from
        assert _peak(gpipe, "activations", rank) == microbatches * held + first, rank
        assert _peak(one, "activations", rank) == min(stages - rank, microbatches) * held + first, rank


def sharded(shard: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = _model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if shard:
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    stepper = torch.optim.Adam(model.parameters())
    for _ in range(2):
        model(torch.randn(4, WIDTH)).sum().backward()
        stepper.step()
        stepper.zero_grad()


@pytest.mark.in_turn
def test_fully_shard_leaves_each_rank_a_share_of_parameters_gradients_and_state() -> None:
    ranks, size = 4, LAYERS * WEIGHT
    run = _run(sharded, True, ranks=ranks)
    held = memory_curve(run.timeline, 1, "parameters")[1]
    assert held[-1] == size // ranks
    assert _peak(run, "optimizer state", 1) == 2 * size // ranks + 4 * LAYERS
    assert size // ranks <= _peak(run, "gradients", 1) < size // 2
    assert _peak(run, "communication", 1) > 0  # what layers are gathered into


def redundant(zero: bool) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(_model(8))
    stepper: Any
    if zero:
        stepper = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    else:
        stepper = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        stepper.zero_grad()
        model(torch.randn(4, WIDTH)).sum().backward()
        stepper.step()


@pytest.mark.in_turn
def test_the_zero_redundancy_optimizer_holds_a_share_of_the_state() -> None:
    plain, zero = (_run(redundant, kind, ranks=4) for kind in (False, True))
    assert _peak(plain, "optimizer state") == 2 * 8 * WEIGHT + 4 * 8
    assert _peak(zero, "optimizer state") == 2 * 2 * WEIGHT + 4 * 2


def data_parallel(view: bool) -> None:
    model = nn.parallel.DistributedDataParallel(_model(), gradient_as_bucket_view=view)
    for _ in range(2):
        model(torch.randn(4, WIDTH)).sum().backward()


def test_ddp_holds_its_buckets_beside_the_gradients_unless_these_are_views_of_them() -> None:
    apart, views = (_run(data_parallel, view, ranks=2) for view in (False, True))
    size = LAYERS * WEIGHT
    assert _peak(apart, "gradients") == size and _peak(apart, "communication") >= size
    assert _peak(views, "gradients") >= size and _peak(views, "communication") < size // 4
    ends = [memory_curve(run.timeline, 0)[1][-1] for run in (apart, views)]
    assert ends[0] - ends[1] == pytest.approx(size, rel=0.01)


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 15 * 15, 10)
    )


def _transformer() -> nn.Module:
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True), 2, enable_nested_tensor=False
    )


PEERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)), (16, 32)),
    "convolutions": (_convolutions, (4, 3, 32, 32)),
    "transformer": (_transformer, (2, 12, 32)),
}


def one_step(name: str) -> None:
    make, shape = PEERS[name]
    torch.manual_seed(0)
    model = make()
    stepper = torch.optim.Adam(model.parameters())
    model(torch.randn(*shape)).sum().backward()
    stepper.step()


@pytest.mark.in_turn
@pytest.mark.parametrize("name", PEERS)
def test_peaks_are_those_of_torchs_own_tracker(name: str) -> None:
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    gc.disable()
    try:
        with tracker:
            one_step(name)
    finally:
        gc.enable()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    theirs = {str(getattr(key, "value", key)): size for key, size in peak.items()}
    run = _run(one_step, name)
    assert _peak(run) == theirs["Total"]
    [ours] = memory_peaks(run.timeline)
    assert ours.bytes == theirs["Total"] == sum(ours.by_category.values())
    assert ours.by_category["parameters"] == theirs["Parameter"]
    assert ours.by_category.get("buffers", 0) == theirs["Buffer"]


def test_the_peak_names_its_time_and_operator() -> None:
    def fn() -> None:
        small = torch.ones(1000)
        big = torch.cat([small] * 50)
        del big
        small.add(1)

    [peak] = memory_peaks(_run(fn).timeline)
    assert (peak.bytes, peak.operator, peak.capacity) == (51 * 4000, "cat", 80 * 10**9)
    assert peak.time_ns > 0 and peak.by_category == {"other": 51 * 4000}
    assert set(peak.by_category) <= set(CATEGORIES)


def cycles() -> None:
    class Node:
        pass

    for _ in range(3000):
        node: Any = Node()
        node.itself, node.tensor = node, torch.ones(100)


@pytest.mark.in_turn
def test_tensors_in_reference_cycles_are_freed_at_the_same_points_of_every_run() -> None:
    curves = []
    for number in range(3):
        junk = [[] for _ in range(number * 251)]  # Python's own collection would come at other points
        curves.append(memory_curve(_run(cycles, ranks=2).timeline, 1))
        del junk
    for times, held in curves[1:]:
        assert times.tolist() == curves[0][0].tolist() and held.tolist() == curves[0][1].tolist()
    assert 0 < curves[0][1].max() < 3000 * 400


def test_pythons_collection_is_as_it_was_after_a_run() -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    _run(infer)
    assert gc.isenabled() and gc.get_freeze_count() == frozen


def test_what_went_before_the_last_message_does_not_count_to_the_end() -> None:
    """What a rank's last variables hold does: nobody knows how soon Python takes them apart."""

    def gather(tensor: torch.Tensor) -> None:
        if dist.get_rank():
            dist.send(tensor, 0)
            return
        for peer in range(1, dist.get_world_size()):
            part = torch.empty_like(tensor)
            dist.recv(part, peer)

    _, held = memory_curve(_run(lambda: gather(torch.ones(1000)), ranks=4).timeline, 0)
    assert held.tolist() == [4_000, 8_000, 12_000, 8_000, 12_000, 8_000]
