"""What a program takes for its process's own is each virtual rank's own, or the run says that it is shared."""

from __future__ import annotations

import asyncio
import builtins
import copy
import faulthandler
import os
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import labkit
from labkit.errors import RankFailed


def _run(fn: Any, size: int = 2, **more: Any) -> labkit.Run:
    return labkit.run(fn, on=labkit.virtual(size, **more), echo=False, timeout=60)


def _told(run: labkit.Run) -> str:
    assert run.timeline is not None
    return " ".join(problem.text for problem in run.timeline.problems)


@pytest.mark.parametrize("ask", ["then", "add_done_callback"])
def test_what_is_asked_of_a_handles_future_happens_when_the_handle_is_waited_for(ask: str) -> None:
    def halved() -> float:
        value = torch.tensor([dist.get_rank() + 1.0])
        handle = dist.all_reduce(value, async_op=True)
        assert handle is not None
        getattr(handle.get_future(), ask)(lambda _: value.div_(2))
        handle.wait()
        return float(value)

    assert _run(halved).results == [1.5, 1.5]


def test_uneven_shards_of_two_axes_are_gathered_as_real_ranks_gather_them() -> None:
    def gathered() -> list[float]:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

        mesh = init_device_mesh("cpu", (3, 2))
        rows = distribute_tensor(torch.arange(7.0), mesh, [Shard(0), Shard(0)])
        shards: list[float] = rows.redistribute(mesh, [Shard(0), Replicate()]).to_local().tolist()  # type: ignore[no-untyped-call]
        return shards

    assert _run(gathered, 6).results == [[0.0, 1.0, 2.0]] * 2 + [[3.0, 4.0, 5.0]] * 2 + [[6.0]] * 2


def test_a_copy_of_the_environment_is_of_the_rank_that_makes_it_and_of_that_moment() -> None:
    def copied() -> tuple[str, str]:
        before = copy.deepcopy(os.environ)
        os.environ["RANK"] = "many"
        return before["RANK"], os.environ["RANK"]

    assert _run(copied).results == [("0", "many"), ("1", "many")]


def test_a_file_that_another_rank_has_locked_is_waited_for_in_virtual_time(tmp_path: Path) -> None:
    fcntl: Any = pytest.importorskip("fcntl")
    (tmp_path / "lock").touch()

    def one_after_the_other(path: str) -> float:
        time.sleep(dist.get_rank())
        with open(path) as file:  # as programs do
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(5)
            fcntl.flock(file, fcntl.LOCK_UN)
        return time.monotonic()

    run = labkit.run(one_after_the_other, str(tmp_path / "lock"), on=labkit.virtual(2), echo=False, timeout=60)
    first, second = run.results
    assert 5 <= second - first < 6


def test_hooks_of_every_optimizer_are_each_ranks_own() -> None:
    def steps() -> int:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        seen = []
        register_optimizer_step_pre_hook(lambda *_: seen.append(dist.get_rank()))
        dist.barrier()
        parameter = nn.Parameter(torch.ones(1))
        parameter.grad = torch.ones(1)
        torch.optim.SGD([parameter], lr=0.1).step()
        return len(seen)

    assert _run(steps, 3).results == [1, 1, 1]


def test_flags_that_a_block_sets_are_back_after_it_on_every_rank() -> None:
    def flags() -> tuple[bool, ...]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        found = []
        with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(deterministic=True):
            dist.barrier()
            found.append(torch.backends.cuda.flash_sdp_enabled())
        dist.barrier()
        return (*found, torch.backends.cuda.flash_sdp_enabled(), torch.backends.cudnn.deterministic)

    assert _run(flags).results == [(False, True, False)] * 2
    assert torch.backends.cuda.flash_sdp_enabled() and not torch.backends.cudnn.deterministic


def test_what_is_not_a_number_is_neither_the_least_nor_the_most() -> None:
    def extremes() -> tuple[float, float]:
        pair = [torch.tensor([float("nan") if dist.get_rank() == 1 else dist.get_rank() + 1.0]) for _ in range(2)]
        dist.all_reduce(pair[0], op=dist.ReduceOp.MIN)
        dist.all_reduce(pair[1], op=dist.ReduceOp.MAX)
        return float(pair[0]), float(pair[1])

    assert _run(extremes, 3).results == [(1.0, 3.0)] * 3


def test_a_loop_that_asks_the_store_makes_time_pass() -> None:
    def asks() -> int:
        store = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 0:
            time.sleep(0.01)
            store.set("go", "1")
        while not store.check(["go"]):
            pass
        return 1

    assert _run(asks).results == [1, 1]


def test_a_wait_with_a_limit_of_its_own_ends_there_and_the_program_goes_on() -> None:
    def waits() -> list[str]:
        said: list[str] = []
        if dist.get_rank() == 0:
            value = torch.zeros(1)
            handle = dist.irecv(value, 1)
            assert handle is not None
            for wait in (
                lambda: handle.wait(timedelta(seconds=2)),
                lambda: dist.distributed_c10d._get_default_store().wait(["never"], timedelta(seconds=1)),
            ):
                try:
                    wait()
                except RuntimeError as error:
                    said.append(f"{type(error).__name__} at {time.perf_counter():.3f}: {error}")
            handle.wait()
            said.append(str(float(value)))
        else:
            time.sleep(5)
            dist.send(torch.ones(1), 0)
        return said

    said = _run(waits).results[0]
    assert said[0].startswith("RuntimeError at 2.000: Timed out waiting 2000 milliseconds for irecv from rank 1")
    assert said[1].startswith("DistStoreError at 3.000: wait timeout after 1000ms, keys: ")
    assert said[2] == "1.0"


@pytest.mark.parametrize("by", ["all_reduce", "message"])
def test_autograd_does_not_learn_what_a_collective_wrote_as_with_gloo(by: str) -> None:
    def gradient() -> float:
        x = torch.ones(1, requires_grad=True)
        loss = x.exp()  # its gradient needs the output
        shown = loss.detach()
        if by == "all_reduce":
            dist.all_reduce(shown)
        elif dist.get_rank() == 0:
            dist.send(torch.full((1,), 5.0), 1)
        else:
            dist.recv(shown, 0)
        loss.sum().backward()
        assert x.grad is not None
        return float(x.grad)

    first, second = _run(gradient).results
    assert (first, second) == pytest.approx((2 * torch.e, 2 * torch.e) if by == "all_reduce" else (torch.e, 5.0))


def test_timers_of_an_event_loop_are_virtual() -> None:
    async def naps() -> list[int]:
        async def nap(number: int) -> int:
            await asyncio.sleep(100.0 * (number + 1))
            return number

        return list(await asyncio.gather(*(nap(number) for number in range(3))))

    def loop() -> tuple[list[int], float]:
        begin = time.perf_counter()
        return asyncio.run(naps()), time.perf_counter() - begin

    assert _run(loop).results == [([0, 1, 2], pytest.approx(300, rel=1e-3))] * 2


def test_os_exit_ends_the_rank_and_not_whoever_asked_for_the_run() -> None:
    def leaves() -> None:
        if dist.get_rank() == 1:
            os._exit(3)
        dist.barrier()

    with pytest.raises(RankFailed, match="rank 1 of 2 failed first") as failed:
        _run(leaves)
    assert "SystemExit: 3" in str(failed.value) or "sys.exit(3)" in str(failed.value)


def test_a_program_that_asks_for_the_processs_number_is_told_that_ranks_share_it() -> None:
    run = _run(lambda: os.getpid())
    assert run.results == [os.getpid()] * 2
    assert "os.getpid() returns the same number on every rank" in _told(run)
    assert "getpid" not in _told(_run(lambda: torch.ones(1)))


def test_names_that_a_program_adds_to_installed_modules_are_told_and_gone() -> None:
    def adds() -> int:
        nn.Linear.of_rank = dist.get_rank()  # type: ignore[attr-defined]
        builtins.WHO_I_AM = dist.get_rank()  # type: ignore[attr-defined]
        torch.Tensor.plus_rank = lambda self: self + dist.get_rank()  # type: ignore[attr-defined]
        return 0

    told = _told(_run(adds))
    for place in ("torch.nn.modules.linear.Linear.of_rank", "builtins.WHO_I_AM", "torch.Tensor.plus_rank"):
        assert f"The program set {place}. Ranks share installed modules" in told
    assert not hasattr(nn.Linear, "of_rank") and not hasattr(builtins, "WHO_I_AM")
    assert not hasattr(torch.Tensor, "plus_rank")


def test_a_ranks_output_takes_bytes_and_says_how_it_reads_them() -> None:
    def prints() -> str:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        sys.stdout.buffer.write("Grüße\n".encode())
        faulthandler.enable()
        return sys.stdout.encoding

    run = _run(prints)
    assert run.results == ["utf-8"] * 2
    assert run.output[1] == "Grüße\n"
    faulthandler.disable()


def test_fully_shard_finds_the_virtual_devices_by_itself() -> None:
    def loss() -> float:
        from torch.distributed.fsdp import fully_shard

        torch.manual_seed(0)
        torch.cuda.set_device(dist.get_rank())
        model = nn.Linear(4, 4).to(labkit.device())
        fully_shard(model)
        out = model(torch.ones(2, 4, device=labkit.device())).sum()
        out.backward()
        return float(out.detach())

    first, second = _run(loss, cuda=True).results
    assert first == second != 0.0


@pytest.mark.parametrize("on", [labkit.virtual(2), labkit.local(2, device="cpu")], ids=["virtual", "local"])
def test_a_function_may_set_what_torch_keeps_in_modules_of_classes_of_their_own(on: Any) -> None:
    def faster() -> bool:
        torch.backends.cudnn.benchmark = True
        return bool(torch.backends.cudnn.benchmark)

    assert labkit.run(faster, on=on, echo=False).results == [True, True]
    assert not torch.backends.cudnn.benchmark


def test_warnings_name_the_line_that_led_to_them_and_none_of_labkit() -> None:
    def warned() -> int:
        warnings.simplefilter("always")
        torch.ones(3, 3, 1).T.sum()  # C++ warns
        torch.cuda.amp.GradScaler()  # Python warns of its caller
        return warned.__code__.co_firstlineno

    with warnings.catch_warnings(record=True) as said:
        first = _run(warned, 1, cuda=True).results[0]
    for offset, what in ((2, "x.T"), (3, "GradScaler")):
        assert [(one.filename, one.lineno) for one in said if what in str(one.message)] == [(__file__, first + offset)]
