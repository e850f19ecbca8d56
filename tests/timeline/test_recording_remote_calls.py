"""Both ends of a real remote call carry one flow, and torch's RPC does what it does without a record."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.rpc as rpc
from recorded_ranks import record_of, run_ranks
from torch.futures import Future

from labkit.launch import recording
from labkit.timeline.critical_path import critical_path


class Box:
    """An object that is called where it lives."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self, number: int) -> int:
        self.value += number
        return self.value

    @rpc.functions.async_execution
    def later(self, number: int) -> Future[int]:
        future: Future[int] = Future()
        future.set_result(number)
        return future


def told(*args: Any, **kwargs: Any) -> Any:
    """Return what came, in words."""
    return repr(args), repr(sorted(kwargs.items()))


def relayed(to: str, number: int) -> Any:
    """Return what another worker was told by this one."""
    return rpc.rpc_sync(to, told, args=(number,))


def fails() -> None:
    """Raise."""
    raise KeyError("not there")


def waits(seconds: float) -> None:
    """Return too late."""
    time.sleep(seconds)


@rpc.functions.async_execution
def passed_on(to: str, number: int) -> Any:
    """Leave the answer to another worker."""
    return rpc.rpc_async(to, told, args=(number,)).then(lambda future: future.wait()[0])


@rpc.functions.async_execution
def no_future() -> Any:
    """Return what may not be returned."""
    return 1


def _refuses(future: Any) -> Any:
    raise LookupError("not this value")


def _completed(*, error: bool = False) -> Any:
    """Return a future that another thread completes."""
    future: Future[int] = Future()
    complete = (lambda: future.set_exception(OverflowError("too much"))) if error else (lambda: future.set_result(5))
    threading.Timer(0.01, complete).start()
    return future


def _chained(future: Any) -> Any:
    """Return a future that is completed in a callback of this one."""
    chained: Future[Any] = Future()
    future.add_done_callback(lambda complete: chained.set_result(complete.value()))
    return chained


def _value(future: Any) -> Any:
    return future.value()


def _twice(future: Any) -> tuple[Any, Any, bool]:
    return future.wait(), future.wait(), future.done()


def _error(call: Any) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error).partition("\n")[0]
    return "", ""


def remote_calls(rank: int, num_ranks: int, unrecorded: int = -1) -> Any:
    """Return what every kind of remote call gave the first rank."""
    if rank == unrecorded:
        recording.close()
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=num_ranks)
    found: list[Any] = []
    if rank == 0:
        box = rpc.remote("rank1", Box, args=(3,))
        found = [
            rpc.rpc_sync("rank1", told, args=(1, torch.ones(2), b"LABKITno"), kwargs={"key": "LABKITno"}),
            rpc.rpc_async("rank1", told).wait(),
            rpc.rpc_sync("rank1", torch.add, args=(torch.ones(2), 1)).tolist(),
            rpc.rpc_sync("rank0", told, args=(5,)),
            rpc.rpc_sync("rank1", relayed, args=("rank0", 7)),
            box.rpc_sync().add(4),
            box.rpc_async().later(8).wait(),
            box.remote().add(1).to_here(),
            box.to_here().value,
            _error(lambda: rpc.rpc_sync("rank1", fails)),
            _error(lambda: rpc.remote("rank1", fails).to_here()),
            _error(lambda: rpc.rpc_sync("rank1", waits, args=(0.5,), timeout=0.1))[0],
            _error(lambda: rpc.rpc_sync("rank1", lambda: 1))[0],
            _error(lambda: rpc.rpc_sync("nobody", told))[0],
            _error(lambda: box.rpc_sync().nothing())[0],
            rpc.rpc_async("rank1", told, args=(6,)).then(lambda future: future.wait()[0]).wait(),
            rpc.rpc_async("rank1", told, args=(6,)).then(lambda future: future.value()[0]).then(_value).wait(),
            [each.wait() for each in torch.futures.collect_all([box.rpc_async().add(n) for n in (0, 0)]).wait()],
            repr(
                torch.futures.wait_all([rpc.rpc_async("rank1", each, (torch.ones(1),)) for each in (told, torch.neg)])
            ),
            _chained(rpc.rpc_async("rank1", told, args=(7,))).wait(),
            _completed().wait(),
            rpc.rpc_sync("rank1", passed_on, args=("rank0", 8)),
            rpc.remote("rank1", passed_on, args=("rank0", 9)).to_here(),
            rpc.remote("rank1", Box, args=(3,)).rpc_async().add(2).wait(),
            rpc.remote("rank0", Box, args=(3,)).to_here().value,
            rpc.RRef(Box(4)).rpc_sync().add(2),
            rpc.RRef(Box(4)).remote().add(3).to_here(),
            _twice(box.rpc_async(timeout=30).add(number=1)),
            _error(_completed(error=True).wait),
            _error(rpc.rpc_async("rank1", told).then(_refuses).wait),
            _error(torch.futures.collect_all([rpc.rpc_async("rank1", fails)]).wait),
            _error(lambda: torch.futures.wait_all([rpc.rpc_async("rank1", fails)])),
            _error(rpc.rpc_async("rank1", fails).then(lambda future: future.wait()).wait)[0],
            _error(rpc.rpc_async("rank1", no_future).wait),
            _error(rpc.rpc_async("rank1", waits, args=(0.5,), timeout=0.1).wait)[0],
            _error(lambda: Future().then(5))[0],
            _error(lambda: box.rpc_async().nothing().wait())[0],
            _error(lambda: box.remote().nothing())[0],
            _error(lambda: rpc.remote("nobody", told))[0],
            _error(lambda: rpc.remote("rank1", fails).rpc_sync().add(1))[0],
            _error(lambda: rpc.rpc_async("rank1", 5))[0],
        ]
    rpc.shutdown()
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return run_ranks(remote_calls, 2, tmp_path_factory.mktemp("plain"), record=False)


@pytest.mark.long
def test_remote_calls_give_the_same_recorded_or_not(plain: list[Any], tmp_path: Path) -> None:
    assert plain[0][5:9] == [7, 8, 8, 8]
    assert [error[0] for error in plain[0][9:11]] == ["RuntimeError", "KeyError"]
    assert plain[0][11:15] == ["RuntimeError", "AttributeError", "RuntimeError", "AttributeError"]
    assert run_ranks(remote_calls, 2, tmp_path) == plain


@pytest.mark.in_turn
@pytest.mark.parametrize("unrecorded", [0, 1])
def test_a_rank_that_is_not_recorded_calls_and_serves_as_ever(
    plain: list[Any], tmp_path: Path, unrecorded: int
) -> None:
    assert run_ranks(remote_calls, 2, tmp_path, unrecorded) == plain


@pytest.mark.in_turn
def test_a_call_and_its_serving_share_a_flow_at_either_end(tmp_path: Path) -> None:
    run_ranks(remote_calls, 2, tmp_path)
    timeline = record_of(tmp_path, 2)
    spans = list(timeline.rows())
    assert not [span.name for span in spans if span.kind == "rpc_serve" and span.flow < 0]
    served = [span for span in spans if span.kind == "rpc_serve" and span.flow >= 0]
    calls = {span.flow: span for span in spans if span.kind in ("rpc_sync", "rpc_async", "remote")}
    assert len(served) >= 30
    for span in served:
        call = calls[span.flow]
        assert (call.rank, call.peer, call.name) == (span.peer, span.rank, span.name)
        assert call.start_ns <= span.start_ns
    assert len({span.flow for span in served}) == len(served)
    steps = critical_path(timeline)
    assert {step.rank for step in steps} == {0, 1}
    assert sum(step.end_ns - step.start_ns for step in steps) == timeline.makespan_ns
