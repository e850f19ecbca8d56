"""Runs with shapes only: what takes time and memory is what it is with values, and nothing is decided unseen."""

from __future__ import annotations

import io
import os
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.errors import ConfigError, RankFailed
from labkit.simulator.garbage import collected_by_us, swept


def _run(fn: Any, *args: Any, world_size: int = 2, **more: Any) -> Any:
    return labkit.run(fn, *args, on=labkit.virtual(world_size, cuda=True, **more), echo=False)


def _mine() -> int:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.cuda.current_device()


def _steps(model: Any, optimizer: Any, batch: tuple[int, ...], num_steps: int = 2) -> None:
    for _ in range(num_steps):
        loss = model(torch.randn(*batch, device="cuda")).float().pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def data_parallel() -> None:
    mine = _mine()
    embedding = torch.nn.Embedding(32, 16)
    head = torch.nn.Linear(16, 32, bias=False)
    head.weight = embedding.weight
    model = torch.nn.Sequential(embedding, torch.nn.LayerNorm(16), torch.nn.Dropout(0.1), head).to(mine)
    assert head.weight is embedding.weight
    wrapped = DistributedDataParallel(model, device_ids=[mine])
    optimizer = torch.optim.AdamW(wrapped.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(2):
        tokens = torch.randint(0, 32, (2, 8)).to(mine)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(wrapped(tokens).view(-1, 32), tokens.view(-1))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


def fully_sharded() -> None:
    _mine()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    with torch.device("meta"):
        model = torch.nn.Sequential(
            *[torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16)) for _ in range(2)]
        )
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    _steps(model, torch.optim.AdamW(model.parameters(), fused=True), (4, 16))


def tensor_parallel() -> None:
    _mine()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = torch.nn.Sequential(
        torch.nn.LayerNorm(16), torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 16)
    ).cuda()
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, plan)  # type: ignore[arg-type]
    _steps(model, torch.optim.Adam(model.parameters()), (2, 4, 16))


def _record(timeline: Any) -> tuple[Any, ...]:
    columns = (timeline.rank, timeline.name, timeline.bytes, timeline.start_ns, timeline.end_ns)
    memory = {
        name: [column.tolist() for column in timeline.tables[name].values()] for name in ("memory", "memory_peak")
    }
    return (
        list(zip(*(column.tolist() for column in columns), strict=True)),
        memory,
        timeline.tables["work"]["flops"].tolist(),
    )


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "program",
    [
        data_parallel,
        fully_sharded,
        tensor_parallel,
    ],
)
def test_operators_times_bytes_and_memory_are_those_with_values(program: Any) -> None:
    with_values, shapes = (_record(_run(program, shapes=shapes).timeline) for shapes in (False, True))
    assert shapes == with_values
    assert len(shapes[0]) > 50


def test_what_an_import_leaves_in_cycles_goes_and_what_the_program_left_stays() -> None:
    class Frame:
        me: Any

    def left() -> weakref.ref[Frame]:
        frame = Frame()
        frame.me = frame
        return weakref.ref(frame)

    with collected_by_us():
        programs = left()
        with swept():
            imports = left()
        assert imports() is None
        assert programs() is not None


def decisions() -> tuple[Any, ...]:
    _mine()
    model = torch.nn.Linear(4, 4).cuda()
    loss = model(torch.ones(2, 4, device="cuda")).sum()
    value = loss.item()
    best = 10.0 if value < 2 * value + 5 else 0.0
    if (loss > 3).any():
        best = -1.0
    numbers = torch.zeros(3)
    numbers[1] = value
    kept = torch.arange(6, device="cuda").view(2, 3)
    return value, f"{loss:.1f}", best, numbers.tolist(), kept.sum().item(), (kept > 2).nonzero().tolist()


def test_lines_that_read_or_decide_are_named() -> None:
    run = _run(decisions, shapes=True)
    assert run.results[0] == (1.0, "1.0", 10.0, [1.0] * 3, 15, [[1, 0], [1, 1], [1, 2]])
    said = [problem.text for problem in run.timeline.problems]
    begin = decisions.__code__.co_firstlineno
    for offset, what in ((4, "(item)"), (5, "decided"), (6, "decided"), (11, "(format)")):
        assert any(f"test_shapes.py, line {begin + offset} " in text and what in text for text in said), (offset, said)
    assert not any("nonzero" in text for text in said)


def guards() -> list[bool]:
    _mine()
    x = torch.randn(8, device="cuda")
    return [bool(each) for each in (torch.isfinite(x).all(), x.sum().isfinite(), x.isnan().any(), x.isinf().any())]


def test_what_was_not_computed_is_taken_to_be_finite_and_the_line_is_named() -> None:
    run = _run(guards, shapes=True)
    assert run.results == [[True, True, False, False]] * 2
    assert any("it got True" in problem.text for problem in run.timeline.problems)


def test_a_shape_that_hangs_on_values_is_refused() -> None:
    def choose() -> None:
        _mine()
        x = torch.randn(8, device="cuda")
        x[x > 0].sum()

    with pytest.raises(RankFailed, match="mask of values that were not computed"):
        _run(choose, shapes=True)
    with pytest.raises(ConfigError, match="cuda=False"):
        labkit.virtual(2, shapes=True, cuda=False)


def test_one_value_goes_to_wherever_a_mask_without_values_says() -> None:
    def filter_out() -> list[Any]:
        _mine()
        x = torch.randn(4, 8, device="cuda", requires_grad=True)
        y = x * 2
        y[y < torch.topk(y, 2).values[:, [-1]]] = -float("inf")
        y[:, 3:][y[:, 3:].isnan()] = 0.0
        y.sum().backward()
        assert x.grad is not None
        return [tuple(y.shape), tuple(x.grad.shape)]

    run = _run(filter_out, shapes=True)
    assert run.results == [[(4, 8), (4, 8)]] * 2
    assert run.results == _run(filter_out, shapes=False).results


def test_a_model_larger_than_this_host_is_built_on_the_host_and_moved() -> None:
    def build() -> tuple[Any, ...]:
        _mine()
        model = torch.nn.Sequential(*[torch.nn.Linear(65536, 65536, bias=False) for _ in range(4)]).to(torch.bfloat16)
        before = torch.cuda.memory_allocated()
        model.cuda()
        return before, torch.cuda.memory_allocated(), model[0].weight.device, model[0].weight.is_meta

    results = _run(build, shapes=True).results
    assert results == [(0, 4 * 65536**2 * 2, torch.device("cuda", rank), False) for rank in range(2)]


def checkpoint() -> tuple[Any, ...]:
    mine = _mine()
    model = torch.nn.Linear(4, 3).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}, file)
    file.seek(0)
    here = torch.load(file)
    file.seek(0)
    host = torch.load(file, map_location="cpu")
    model.load_state_dict(host["model"])
    optimizer.load_state_dict(here["optimizer"])
    weight = here["model"]["weight"]
    return (
        here["step"], tuple(weight.shape), weight.device.index == mine, str(host["model"]["weight"].device),
        optimizer.state[model.weight]["step"].item(), str(optimizer.state[model.weight]["exp_avg"].device)[:4],
    )  # fmt: skip


def test_checkpoints_hold_shapes_and_come_back() -> None:
    assert _run(checkpoint, shapes=True).results[1] == (7, (3, 4), True, "cpu", 1.0, "cuda")


def another_ranks_file() -> list[str]:
    mine = _mine()
    file = io.BytesIO()
    torch.save(torch.ones(2, device="cuda"), file)
    files: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(files, file.getvalue())
    theirs = files[1 - mine]
    asked: list[Any] = [None, {"cuda:0": "cpu"}, lambda storage, place: storage, lambda storage, place: None]
    return [str(torch.load(io.BytesIO(theirs), one).device) for one in asked]


@pytest.mark.parametrize("shapes", [False, True])
def test_a_tensor_of_another_ranks_device_comes_to_the_ranks_own_and_it_is_told(shapes: bool) -> None:
    run = _run(another_ranks_file, shapes=shapes)
    assert run.results == [["cuda:0", "cuda:0", "cpu", "cuda:0"], ["cuda:1", "cpu", "cpu", "cuda:1"]]
    assert any(problem.text.startswith("torch.load: a tensor saved on another") for problem in run.timeline.problems)
