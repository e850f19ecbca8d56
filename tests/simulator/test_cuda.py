"""Virtual accelerators as CUDA devices: each row of the table in docs/bring_your_own.md."""

from __future__ import annotations

import copy
import io
import itertools
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import labkit
from labkit.errors import RankFailed
from labkit.simulator import cuda_functions


def _run(fn: Any, *args: Any, world_size: int = 2, cuda: bool = True, **more: Any) -> Any:
    return labkit.run(fn, *args, on=labkit.virtual(world_size, cuda=cuda, **more), echo=False)


def _mine() -> int:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.cuda.current_device()


def _said(call: Any) -> str:
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def test_devices_are_those_of_the_node_and_current_is_what_was_set() -> None:
    def look() -> tuple[Any, ...]:
        before = torch.cuda.current_device()
        mine = _mine()
        with torch.cuda.device(1 - mine):
            inside = torch.cuda.current_device()
        return torch.cuda.is_available(), torch.cuda.device_count(), before, mine, inside, str(labkit.device())

    found = _run(look, world_size=4, gpus_per_node=2).results
    assert found == [(True, 2, 0, rank % 2, 1 - rank % 2, f"cuda:{rank % 2}") for rank in range(4)]
    assert not torch.cuda.is_available() or torch.version.cuda


def test_without_cuda_functions_find_none() -> None:
    assert _run(torch.cuda.is_available, cuda=False).results == [torch.cuda.is_available()] * 2


def places() -> dict[str, Any]:
    mine = _mine()
    host, there = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
    module = torch.nn.Linear(2, 2).cuda()
    out = module(there).sum()
    out.backward()
    numbered = torch.nn.BatchNorm1d(2).to(mine)
    with torch.device("cuda"):
        inside = torch.zeros(1)
    torch.set_default_device("cuda")
    default = torch.zeros(1)
    torch.set_default_device(None)
    found = {
        "host": host, "there": there, "made of it": there @ there, "view": there[0], "like": torch.zeros_like(there),
        "new": there.new_ones(3), "host.cuda": host.cuda(), "host.to number": host.to(mine), "back": there.cpu(),
        "as other": host.to(there), "weight": module.weight, "grad": module.weight.grad, "loss": out,
        "module.to number": numbered.weight, "buffer": numbered.running_mean, "deepcopy": copy.deepcopy(there),
        "deepcopy of a module": copy.deepcopy(numbered).running_mean, "deepcopy on the host": copy.deepcopy(host),
        "inside": inside, "default": default, "after": torch.zeros(1),
    }  # fmt: skip
    return {name: (str(one.device), one.is_cuda, one.get_device(), one.type()) for name, one in found.items()}


def test_a_tensor_says_where_it_is() -> None:
    for rank, found in enumerate(_run(places).results):
        on, off = (f"cuda:{rank}", True, rank, "torch.cuda.FloatTensor"), ("cpu", False, -1, "torch.FloatTensor")
        assert {name for name, where in found.items() if where == off} == {
            "host",
            "back",
            "after",
            "deepcopy on the host",
        }
        assert all(where in (on, off) for where in found.values())


def test_a_tensor_on_the_device_is_a_copy_of_that_on_the_host() -> None:
    def change() -> tuple[float, float, bool]:
        _mine()
        host = torch.ones(3)
        there = host.to("cuda")
        there += 1
        return float(host.sum()), float(there.sum()), there.to("cuda") is there

    assert _run(change).results == [(3.0, 6.0, True)] * 2


def refusals() -> list[str]:
    mine = _mine()
    host, there = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
    return [
        _said(lambda: host + there),
        _said(lambda: torch.nn.functional.linear(there, host)),
        _said(lambda: there.numpy()),
        _said(lambda: host.to(1 - mine)),
        _said(lambda: host.to("cuda:9")),
        _said(lambda: torch.cuda.set_device("cpu")),
        _said(lambda: host.type("torch.cuda.FloatTensor")),
        _said(lambda: there + torch.tensor(1.0)),
    ]


def test_what_cuda_refuses_is_refused_and_other_ranks_devices_too() -> None:
    parts = (
        *("found at least two devices", "found at least two devices", "Use Tensor.cpu() to copy"),
        *("belongs to another rank", "invalid device ordinal: cuda:9", "Expected a cuda device", "is not modelled"),
        "nothing",  # a number of the host may meet tensors of the device
    )
    for said in _run(refusals).results:
        assert all(part in text for part, text in zip(parts, said, strict=True)), said


def test_a_program_that_sets_no_device_is_told_whose_cuda_0_is() -> None:
    with pytest.raises(RankFailed, match=r"Rank 1 put a tensor on cuda:0.*Call torch.cuda.set_device"):
        _run(lambda: torch.ones(1, device="cuda"))


def test_without_streams_events_tell_virtual_time_and_streams_keep_the_programs_order() -> None:
    def measure() -> tuple[float, float]:
        _mine()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        matrix = torch.ones(256, 256, device="cuda")
        stream = torch.cuda.Stream()
        start.record()
        with torch.cuda.stream(stream):
            product = matrix @ matrix
        end.record()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        return start.elapsed_time(end), float(product[0, 0])

    run = _run(measure, stream=False)
    (row,) = (row for row in run.timeline.spans(rank=0).rows() if row.name == "mm")
    assert run.results == [((row.end_ns - row.start_ns) / 1e6, 256.0)] * 2
    assert any("done in the order of the program" in problem.text for problem in run.timeline.problems)


def test_memory_is_that_of_the_virtual_device_and_the_host_is_not_in_it() -> None:
    def hold() -> list[int]:
        _mine()
        host = torch.ones(1_000_000)
        there = torch.ones(1000, device="cuda")
        first = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
        del there
        torch.cuda.reset_peak_memory_stats()
        after = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
        return [*first, *after, host.numel()]

    run = _run(hold)
    assert run.results == [[4096, 4096, 0, 0, 80 * 10**9, 1_000_000]] * 2
    assert run.timeline.tables["memory_peak"]["bytes"].tolist() == [4000, 4000]


def test_work_on_the_host_takes_no_virtual_time_and_copies_take_that_of_their_bytes() -> None:
    def work() -> tuple[float, ...]:
        _mine()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        marks[0].record()
        host = torch.ones(500, 500) @ torch.ones(500, 500)
        marks[1].record()
        there = host.to("cuda")
        marks[2].record()
        there.cpu()
        marks[3].record()
        return tuple(before.elapsed_time(after) for before, after in itertools.pairwise(marks))

    on_host, up, down = _run(work).results[0]
    assert on_host == 0 and up == down and 1_000_000 / 63e9 * 1e3 < up < 10 * 1_000_000 / 63e9 * 1e3


def train(dtype: torch.dtype | None) -> tuple[list[float], str, str]:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", _mine()) if on_gpu else torch.device("cpu")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
    data = TensorDataset(torch.randn(12, 8), torch.randint(0, 4, (12,)))
    losses, kinds = [], ("", "")
    for x, y in DataLoader(data, batch_size=4, pin_memory=on_gpu):
        assert x.is_pinned() == on_gpu
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            out = ddp(x.to(device, non_blocking=True))
            loss = torch.nn.functional.cross_entropy(out, y.to(device, non_blocking=True))
            kinds = str(out.dtype), str(torch.softmax(out, -1).dtype)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, *kinds


def test_training_on_virtual_devices_gives_the_losses_of_the_cpu() -> None:
    here, there = (_run(train, None, cuda=cuda).results for cuda in (False, True))
    assert all(a[0] == pytest.approx(b[0], rel=1e-5) for a, b in zip(here, there, strict=True))


@pytest.mark.in_turn
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_has_the_dtypes_of_cuda_and_the_scaler_works(dtype: torch.dtype) -> None:
    for losses, of_linear, of_softmax in _run(train, dtype).results:
        assert (of_linear, of_softmax) == (str(dtype), "torch.float32")
        assert all(0 < loss < 10 for loss in losses)


def test_files_say_which_device_a_tensor_was_on() -> None:
    def save() -> list[str]:
        _mine()
        file = io.BytesIO()
        torch.save({"there": torch.ones(2, device="cuda"), "here": torch.ones(2)}, file)
        found = []
        for where in (None, "cpu", f"cuda:{torch.cuda.current_device()}"):
            file.seek(0)
            found += [str(one.device) for one in torch.load(file, map_location=where).values()]
        return found

    assert _run(save).results == [[f"cuda:{r}", "cpu", "cpu", "cpu", f"cuda:{r}", f"cuda:{r}"] for r in (0, 1)]


def test_checkpointed_activations_are_computed_anew_on_the_device() -> None:
    def recompute() -> float:
        _mine()
        layer = torch.nn.Linear(4, 4).cuda()
        x = torch.ones(2, 4, device="cuda", requires_grad=True)

        def forward(x: torch.Tensor) -> torch.Tensor:
            return layer(x) + torch.arange(4, device="cuda")

        torch.utils.checkpoint.checkpoint(forward, x, use_reentrant=False).sum().backward()
        return float(x.grad.is_cuda)  # type: ignore[union-attr]

    assert _run(recompute).results == [1.0, 1.0]


def test_objects_with_tensors_of_a_device_arrive_on_the_receivers_own() -> None:
    def exchange() -> list[str]:
        _mine()
        every: list[Any] = [None] * 2
        dist.all_gather_object(every, torch.ones(1, device="cuda"))
        return [str(one.device) for one in every]

    assert _run(exchange).results == [["cuda:0"] * 2, ["cuda:1"] * 2]


def test_workers_of_a_loader_and_the_compiler_are_done_without_and_told() -> None:
    def load() -> float:
        _mine()
        data = TensorDataset(torch.arange(8.0))
        model = torch.compile(torch.nn.Linear(1, 1, device="cuda"))
        loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True, prefetch_factor=4)
        model(torch.ones(1, device="cuda"))
        return float(sum(batch.sum() for (batch,) in loader))

    run = _run(load)
    assert run.results == [28.0, 28.0]
    assert {problem.kind for problem in run.timeline.problems} == {"not_modelled"}
    texts = " ".join(problem.text for problem in run.timeline.problems)
    assert "DataLoader(num_workers=...)" in texts and "torch.compile" in texts


def test_batch_norm_over_ranks_is_refused_by_name() -> None:
    def norm() -> None:
        mine = _mine()
        torch.nn.SyncBatchNorm(2).to(mine)(torch.ones(3, 2, device=mine))

    with pytest.raises(RankFailed, match="SyncBatchNorm is not modelled by the virtual cluster"):
        _run(norm)


def test_events_and_streams_without_a_kind_of_device_are_the_same() -> None:
    def mark() -> float:
        _mine()
        start, end = torch.Event(enable_timing=True), torch.Event("cuda", enable_timing=True)
        start.record()
        torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        torch.cuda.current_stream().record_event(end)
        end.synchronize()
        return start.elapsed_time(end)

    assert all(elapsed > 0 for elapsed in _run(mark).results)


def test_every_public_name_of_torch_cuda_is_answered_left_or_refused_by_name() -> None:
    def ask() -> list[str]:
        return [_said(getattr(torch.cuda, name)) for name in cuda_functions.refused()]

    (said,) = _run(ask, world_size=1).results
    for name, text in zip(cuda_functions.refused(), said, strict=True):
        assert text.startswith(f"RuntimeError: torch.cuda.{name} is not modelled by the virtual cluster")
    assert {"CUDAGraph", "graph", "memory_snapshot", "utilization"} <= set(cuda_functions.refused())


def test_generators_of_the_device_draw_as_those_of_the_host() -> None:
    def draw() -> tuple[Any, ...]:
        mine = _mine()
        there = torch.Generator("cuda").manual_seed(3)
        drawn = torch.randn(2, device="cuda", generator=there)
        kept = there.get_state()
        again = torch.randn(2, device="cuda", generator=there)
        there.set_state(kept)
        host = torch.Generator().manual_seed(3)
        return (
            there.device == torch.device("cuda", mine) and isinstance(there, torch.Generator),
            str(drawn.device) == f"cuda:{mine}" and torch.equal(drawn.cpu(), torch.randn(2, generator=host)),
            torch.equal(again, torch.randn(2, device="cuda", generator=there)) and isinstance(host, torch.Generator),
            _said(lambda: torch.Generator(f"cuda:{1 - mine}")).split(",")[0],
        )

    found = _run(draw).results
    assert found == [(True, True, True, f"RuntimeError: Rank {r} put a tensor on cuda:{1 - r}") for r in range(2)]


def test_ranges_of_nvtx_are_regions_of_the_timeline() -> None:
    def work() -> tuple[int, int, int]:
        _mine()
        with torch.cuda.nvtx.range("epoch {}", 1):
            depth = torch.cuda.nvtx.range_push("step")
            torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")
            left = torch.cuda.nvtx.range_pop()
        number = torch.cuda.nvtx.range_start("beside")
        torch.cuda.nvtx.mark("here")
        torch.cuda.nvtx.range_end(number)
        return depth, left, torch.cuda.nvtx.range_pop()

    run = _run(work, world_size=1)
    regions = [span.name for span in run.timeline.rows() if span.lane.name == "REGION"]
    assert run.results == [(1, 1, -2)]
    assert regions == ["epoch 1", "step", "beside", "here"]


def test_a_stream_is_told_of_tensors_it_uses() -> None:
    def record() -> None:
        _mine()
        torch.ones(2, device="cuda").record_stream(torch.cuda.Stream())

    _run(record)


def test_a_tensor_that_no_host_could_hold_is_out_of_the_devices_memory() -> None:
    def grow() -> str:
        _mine()
        try:
            torch.empty(10**14, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            return str(error)
        return "made"

    said = _run(grow, world_size=1, gpu="h100").results[0]
    assert "empty makes a tensor of 400 TB" in said and "80 GB of the 80 GB of its h100 are free" in said


def test_a_tensor_that_only_the_device_has_room_for_is_the_hosts_to_refuse() -> None:
    def grow() -> str:
        _mine()
        return _said(lambda: torch.empty(10**14, device="cuda"))

    said = _run(grow, world_size=1, gpu="h100", memory="500 TB").results[0]
    assert said.startswith("RuntimeError: empty makes a tensor of 400 TB: the virtual h100 of rank 0 has room")


def test_torch_is_as_it_was_after_a_run() -> None:
    names = [(torch.cuda, name) for name in cuda_functions.ANSWERED if hasattr(torch.cuda, name)]
    names += [(torch.accelerator, name) for name in cuda_functions.ACCELERATOR if hasattr(torch.accelerator, name)]
    names += [(torch, "compile"), (torch, "set_autocast_enabled"), (DataLoader, "__init__")]
    names += [(torch, "Generator"), (torch.Tensor, "record_stream"), (torch.cuda.nvtx, "range_push")]
    before = [getattr(owner, name) for owner, name in names], torch.get_float32_matmul_precision()

    def change() -> None:
        torch.set_float32_matmul_precision("high")

    _run(change)
    assert ([getattr(owner, name) for owner, name in names], torch.get_float32_matmul_precision()) == before
