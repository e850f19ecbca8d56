"""What libraries and torch's rarer parts do in a rank is right on virtual ranks, or refused in words."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit.errors import RankFailed, RunTimeout

dist: Any = torch.distributed
torch_: Any = torch  # what its types leave out

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]


def _virtual(fn: Any, *args: Any, world_size: int = 2) -> list[Any]:
    return labkit.run(fn, *args, on=labkit.virtual(world_size), echo=False, timeout=60).results


def _gradients(model: nn.Module) -> list[list[float]]:
    kept = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [(grad.to_dense() if grad.is_sparse else grad).flatten().tolist() for grad in kept]


def static_graph() -> list[list[float]]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), static_graph=True)
    for _ in range(3):
        model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
    return _gradients(model)


def uneven_inputs() -> list[list[float]]:
    from torch.distributed.algorithms.join import Join

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1))
    with Join([model]):
        for _ in range(3 + dist.get_rank()):
            model.zero_grad()
            model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
    return _gradients(model)


def uneven_inputs_of_a_sharded_optimizer() -> list[list[float]]:
    from torch.distributed.algorithms.join import Join
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    with Join([model, optimizer]):
        for _ in range(3 + dist.get_rank()):
            model.zero_grad()
            model(torch.ones(2, 4) * dist.get_rank()).sum().backward()
            optimizer.step()
    return [parameter.flatten().tolist() for parameter in model.parameters()]


def a_hook_that_waits_in_callbacks() -> list[list[float]]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 64))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        model.zero_grad()
        model(torch.arange(128.0).view(2, 64) * dist.get_rank()).sum().backward()
    return _gradients(model)


def a_store_of_its_own() -> Any:
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.TCPStore("127.0.0.1", 29517, size, rank == 0, timeout=timedelta(seconds=30))
    if rank == 1:
        time.sleep(0.5)
        store.set("said", "by 1")
    found = store.get("said"), store.add("count", 0), dist.HashStore().num_keys()
    dist.barrier()  # rank 0 is the server, until it lets go of the store
    return found


def functions_imported_inside() -> Any:
    import torch.distributed.nn

    given = torch.ones(2, requires_grad=True)
    total = torch.distributed.nn.functional.all_reduce(given * dist.get_rank())
    total.sum().backward()
    assert given.grad is not None
    return total.tolist(), given.grad.tolist()


def sparse_tensors() -> Any:
    torch.manual_seed(0)
    total = torch_.sparse_coo_tensor([[dist.get_rank()]], [1.0], (3,), check_invariants=False)
    dist.all_reduce(total)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(4, 2, sparse=True), nn.Linear(2, 1)))
    for _ in range(2):
        model(torch.tensor([dist.get_rank(), 3])).sum().backward()
    return total.to_dense().tolist(), _gradients(model)


class MixedTypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        kinds = (torch.complex64, torch.float32, torch.float64, torch.bfloat16)
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(2, dtype=kind)) for kind in kinds)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for scale in self.scales:
            product = (scale * given).sum()
            total = total + (product.real if product.is_complex() else product)
        return total


def complex_and_mixed_types() -> Any:
    model = DistributedDataParallel(MixedTypes())
    model(torch.tensor(1.0 + dist.get_rank())).backward()
    total = torch.tensor([1 + 2j]) * (1 + dist.get_rank())
    dist.all_reduce(total)
    return _gradients(model), total.tolist()


def calls_of_ranks_that_are_no_members() -> Any:
    group, said = dist.new_group([0]), []
    for call in (dist.barrier, dist.monitored_barrier, lambda one: dist.all_reduce(torch.ones(1), group=one)):
        said.append(call(group))
    dist.barrier()
    return said


def an_asynchronous_checkpoint(folder: str) -> Any:
    import torch.distributed.checkpoint as saved

    saved.async_save({"weight": torch.ones(4) * 3}, checkpoint_id=folder).result()
    loaded = {"weight": torch.zeros(4)}
    saved.load(loaded, checkpoint_id=folder)
    return loaded["weight"].tolist()


def sharded_attention() -> str:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn import functional

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    given = [torch.randn(2, 2, 16, 8) for _ in range(3)]
    try:
        with context_parallel(mesh, buffers=given, buffer_seq_dims=[2, 2, 2]):
            functional.scaled_dot_product_attention(given[0], given[1], given[2], is_causal=True)
    except NotImplementedError as error:
        return str(error)
    return "computed"


SAME: tuple[Callable[..., Any], ...] = (
    static_graph,
    uneven_inputs,
    uneven_inputs_of_a_sharded_optimizer,
    a_hook_that_waits_in_callbacks,
    a_store_of_its_own,
    functions_imported_inside,
    sparse_tensors,
    complex_and_mixed_types,
    calls_of_ranks_that_are_no_members,
    sharded_attention,
)


def _every() -> list[Any]:
    """Return what each gives, in one launch: processes take seconds to start."""
    found = []
    for fn in SAME:
        found.append(fn())
        dist.barrier()
    return found


@pytest.mark.in_turn
def test_rarer_parts_of_torch_give_what_they_give_in_processes() -> None:
    virtual = _virtual(_every)
    local = labkit.run(_every, on=labkit.local(2, device="cpu"), echo=False).results
    for place, fn in enumerate(SAME):
        ours, theirs = [rank[place] for rank in virtual], [rank[place] for rank in local]
        assert repr(ours) == repr(theirs), fn.__name__


def test_an_asynchronous_checkpoint_is_saved(tmp_path: Path) -> None:
    assert _virtual(an_asynchronous_checkpoint, str(tmp_path)) == [[3.0] * 4] * 2


def test_a_collective_that_cannot_be_computed_fails_on_all_its_ranks() -> None:
    def mismatched() -> list[str]:
        said = []
        for tensor, op in (
            (torch.ones(2 + dist.get_rank()), dist.ReduceOp.SUM),
            (torch.ones(2), dist.ReduceOp.BAND),
        ):
            try:
                dist.all_reduce(tensor, op=op)
            except RuntimeError as error:
                said.append(str(error))
        dist.all_reduce(torch.ones(1))
        return said

    first, second = _virtual(mismatched)
    assert first == second and "All ranks of a group must call the same" in first[0]
    assert "all_reduce BAND of 2 x float32" in first[1] and "cannot be computed, on any rank" in first[1]


@pytest.mark.in_turn
@pytest.mark.parametrize("call", [lambda sparse: dist.broadcast(sparse, 0), lambda sparse: dist.send(sparse, 1)])
def test_a_sparse_tensor_is_refused_where_there_is_no_such_collective(call: Any) -> None:
    def send() -> None:
        call(torch_.sparse_coo_tensor([[0]], [1.0], (3,), check_invariants=False))

    with pytest.raises(RankFailed, match=r"got a sparse_coo tensor|Sparse"):
        _virtual(send)


def test_torchs_profiler_is_refused_and_the_timeline_named() -> None:
    def profile() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            dist.barrier()

    with pytest.raises(RankFailed, match=r"The run's own timeline has every operator"):
        _virtual(profile)


@pytest.mark.in_turn
def test_a_rank_that_waits_for_real_is_named_within_seconds_and_others_go_on_after(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from labkit.simulator import standstill

    monkeypatch.setattr(standstill, "STAND_S", 0.5)

    def wait() -> int:
        import socket

        if dist.get_rank() == 0:
            one, other = socket.socketpair()
            one.settimeout(2.0)
            with one, other, pytest.raises(TimeoutError):
                one.recv(1)
        dist.barrier()
        return 1

    assert _virtual(wait) == [1, 1]
    said = capsys.readouterr().out
    assert said.count("Rank 0 stands in wait (test_foreign_code.py, line ") == 1 and "one.recv(1)" in said
    assert "It does not cover sockets" in said


_STUCK = """
import torch, torch.distributed as dist, labkit
from labkit.simulator import run, standstill
standstill.STAND_S, run._GRACE_S = 0.5, 0.5
def never():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model.register_comm_hook(None, eval("lambda state, bucket: torch.futures.Future()"))
    model(torch.ones(1, 2)).sum().backward()
try:
    labkit.run(never, on=labkit.virtual(2), echo=False, timeout=60)
except Exception as error:
    print(type(error).__name__, error, flush=True)
import os
os._exit(0)
"""


@pytest.mark.in_turn
def test_a_rank_that_waits_inside_cpp_ends_the_run_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(_STUCK)
    ran = subprocess.run([sys.executable, "stuck.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "rank 0 stands in torch.autograd.graph." in ran.stdout, ran.stdout + ran.stderr
    assert "stuck.py, line " in ran.stdout and "waits inside a library's C++" in ran.stdout


@pytest.mark.in_turn
def test_a_key_that_nobody_sets_is_a_deadlock_known_at_once() -> None:
    with pytest.raises(RunTimeout, match=r"store\.get\('never'\), which nobody has set"):
        _virtual(lambda: dist.HashStore().get("never"))


def test_a_hook_that_waits_during_the_backward_pass_and_futures_collected_from_handles_go_on() -> None:
    def trained() -> list[float]:
        dist: Any = torch.distributed
        ddp: Any = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))

        def waits(state: object, bucket: Any) -> Any:
            ddp.reducer._run_allreduce_hook(bucket).wait()  # as torch's own mixed precision does
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer().div_(dist.get_world_size()))
            return done

        waits.__annotations__.clear()  # torch compares them with types, and here they are text
        ddp.register_comm_hook(None, waits)
        ddp(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()
        handles = [dist.all_reduce(torch.full((2,), float(step)), async_op=True) for step in range(3)]
        sums = torch.futures.collect_all([handle.get_future() for handle in handles]).wait()
        return [ddp.module.weight.grad[0, 0].item(), *(one.value()[0][0].item() for one in sums)]

    assert labkit.run(trained, on=labkit.virtual(3), echo=False, timeout=60).results == [[4.0, 0.0, 3.0, 6.0]] * 3
