"""What a rank waits for when it waits for a remote call: whom, for which call, at which line, until whose answer."""

from __future__ import annotations

import linecache
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from recorded_ranks import record_of, run_ranks, start_ranks, stop_ranks
from torch.futures import Future

from labkit.deadlock import FINISHED, Standing
from labkit.launch.recording import RankLog, layout, read_log
from labkit.launch.waits import collectives_begun, waiting_of
from labkit.timeline import Timeline
from labkit.timeline.critical_path import critical_path
from labkit.timeline.metrics import wait_ns

_open = threading.Event()


def held() -> str:
    """Return once somebody calls let_go here."""
    assert _open.wait(60)
    _open.clear()
    return "held"


def let_go() -> None:
    """Let held() return."""
    _open.set()


def at_once() -> str:
    """Return."""
    return "at once"


class Meeting:
    """Answers all who came when the second has come."""

    def __init__(self) -> None:
        self.future: Future[str] = Future()
        self.came = threading.Event()

    @rpc.functions.async_execution
    def first(self) -> Future[str]:
        self.came.set()
        return self.future

    def second(self) -> None:
        assert self.came.wait(60)
        self.future.set_result("met")


@rpc.functions.async_execution
def passed_on() -> Any:
    """Leave the answer to the first rank's at_once."""
    return rpc.rpc_async("rank0", at_once)


def made_slowly() -> str:
    """Return an object once let_go is called."""
    return held()


def waiting(rank: int, num_ranks: int) -> None:
    """Wait for remote calls in every way there is, each on a line of its own that names it."""
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=num_ranks)
    if rank == 0:
        call = rpc.rpc_async("rank1", held)
        rpc.rpc_sync("rank1", let_go)
        call.wait()  # a call
        call.wait()  # again
        call = rpc.rpc_async("rank1", at_once)
        while not call.done():
            pass
        call.wait()  # a call that is done
        rpc.rpc_async("rank1", at_once).then(lambda future: future.wait()).wait()  # what follows a call
        calls = [rpc.rpc_async("rank2", held), rpc.rpc_async("rank1", at_once)]
        calls[1].then(lambda _: rpc.rpc_async("rank2", let_go))
        torch.futures.wait_all(calls)  # two calls
        chained: Future[Any] = Future()
        rpc.rpc_async("rank2", at_once).then(lambda future: chained.set_result(future.value()))
        chained.wait()  # a future completed in a callback
        other: Future[int] = Future()
        threading.Timer(0.05, other.set_result, (1,)).start()
        other.wait()  # no call
        meeting = rpc.remote("rank2", Meeting)
        first = meeting.rpc_async().first()
        meeting.rpc_sync().second()
        first.wait()  # an answer left to another call
        rpc.rpc_sync("rank1", passed_on)
        made = rpc.remote("rank1", made_slowly)
        rpc.rpc_async("rank1", at_once).then(lambda _: rpc.rpc_async("rank1", let_go))
        made.to_here()
        made.to_here()  # once more
        own = rpc.remote("rank0", held)
        rpc.rpc_async("rank1", at_once).then(lambda _: let_go())
        own.to_here()
    rpc.shutdown()


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    folder = tmp_path_factory.mktemp("waits")
    run_ranks(waiting, 3, folder)
    found: Timeline = record_of(folder, 3)
    return found


def _line(timeline: Timeline, row: int) -> str:
    table = timeline.tables["source"]
    (place,) = np.flatnonzero(table["span"] == row)
    file, _, line = str(table["line"][place]).rpartition(":")
    return linecache.getline(file, int(line))


def _waits(timeline: Timeline) -> list[tuple[str, list[str]]]:
    """Return for each wait of the first rank what its line says, and the calls it was for."""
    table, found = timeline.tables["wait"], []
    for row in np.flatnonzero((timeline.kind == "wait") & (timeline.rank == 0)).tolist():
        of = table["of"][table["span"] == row].tolist()
        found.append(
            (_line(timeline, row).partition("# ")[2].strip(), [f"{timeline.name[c]} {timeline.peer[c]}" for c in of])
        )
    return found


@pytest.mark.in_turn
def test_every_wait_for_a_remote_call_is_on_record_once_with_its_calls_and_its_line(timeline: Timeline) -> None:
    assert _waits(timeline) == [
        ("a call", ["held 1"]),
        ("a call that is done", ["at_once 1"]),
        ("what follows a call", ["at_once 1"]),
        ("two calls", ["held 2", "at_once 1"]),
        ("a future completed in a callback", ["at_once 2"]),
        ("no call", []),
        ("an answer left to another call", ["first 2"]),
    ]


def test_a_wait_has_the_peer_of_its_call_and_ends_with_it_at_the_earliest(timeline: Timeline) -> None:
    table = timeline.tables["wait"]
    assert (timeline.peer[table["span"][: len(set(table["span"].tolist()))]] >= 1).all()
    for span, of in zip(table["span"].tolist(), table["of"].tolist(), strict=True):
        assert timeline.start_ns[of] <= timeline.start_ns[span]
        assert timeline.end_ns[of] <= timeline.end_ns[span] or timeline.name[of] == timeline.name[table["of"][0]]


def test_calls_that_block_count_as_waiting_and_leave_no_wait_of_their_own(timeline: Timeline) -> None:
    table = timeline.tables["call"]
    blocking = {str(kind) for kind in timeline.kind[table["span"][table["blocking"]]]}
    assert blocking == {"rpc_sync", "to_here"}
    mine = (timeline.rank == 0) & np.isin(timeline.kind, ("wait", "rpc_sync", "to_here"))
    assert 0 < wait_ns(timeline)[0] < (timeline.end_ns - timeline.start_ns)[mine].sum()  # it moves at times


def test_an_answer_that_was_left_to_another_call_is_told_apart_from_serving(timeline: Timeline) -> None:
    table, name = timeline.tables["reply"], timeline.name
    pairs = zip(table["span"], table["of"], strict=True)
    replies = [(str(name[by]), str(timeline.kind[by]), str(name[of])) for by, of in pairs]
    assert sorted(replies) == [
        ("at_once", "rpc_async", "passed_on"), ("held", "rpc_serve", "to_here"),
        ("made_slowly", "rpc_serve", "to_here"), ("second", "rpc_serve", "first"),
    ]  # fmt: skip
    serving = {str(timeline.name[row]): row for row in np.flatnonzero(timeline.kind == "rpc_serve").tolist()}
    call = {str(timeline.name[row]): row for row in np.flatnonzero(timeline.kind == "rpc_async").tolist()}
    assert timeline.start_ns[serving["first"]] < timeline.end_ns[serving["second"]]
    assert timeline.start_ns[serving["second"]] < timeline.end_ns[call["first"]]


def test_a_serving_is_at_the_line_that_called_it(timeline: Timeline) -> None:
    for row in np.flatnonzero(timeline.kind == "rpc_serve").tolist():
        if timeline.rank[row]:
            assert f"{timeline.name[row]}" in _line(timeline, row) or "meeting" in _line(timeline, row)


def test_the_critical_path_goes_where_the_waits_lead(timeline: Timeline) -> None:
    steps = critical_path(timeline)
    assert sum(step.end_ns - step.start_ns for step in steps) == timeline.makespan_ns
    through = {str(timeline.name[step.row]) for step in steps if step.kind == "call" and step.from_rank != step.rank}
    assert {"second", "to_here"} <= through  # the others may have been there when they were asked for


def in_callbacks(rank: int, num_ranks: int) -> float:
    """Wait for an all_reduce: for its future in the program, for its handle in a callback and in another thread."""
    dist.init_process_group("gloo")
    values = [torch.ones(4) for _ in range(4)]
    works = [dist.all_reduce(value, async_op=True) for value in values[:3]]
    works[1].get_future().then(lambda _: works[0].wait()).wait()
    thread = threading.Thread(target=works[2].wait)
    thread.start()
    thread.join()
    dist.all_reduce(values[3], async_op=True).get_future().wait()
    dist.destroy_process_group()
    return float(sum(values).sum())


def test_a_future_of_a_collective_is_waited_for_like_its_handle(tmp_path: Path) -> None:
    assert run_ranks(in_callbacks, 2, tmp_path) == [32.0, 32.0]
    timeline = record_of(tmp_path, 2)
    table = timeline.tables["wait"]
    number_of = dict(zip(*(timeline.tables["call"][key].tolist() for key in ("span", "number")), strict=True))
    for rank in range(2):
        mine = timeline.rank[table["span"]] == rank
        waits = sorted(
            zip((number_of[of] for of in table["of"][mine].tolist()), table["aside"][mine].tolist(), strict=True)
        )
        assert waits == [(0, True), (1, False), (2, True), (3, False)]


def stuck(rank: int, num_ranks: int) -> None:
    """Wait for answers that do not come."""
    rpc.init_rpc(f"rank{rank}", rank=rank, world_size=num_ranks)
    if rank == 0:
        rpc.rpc_async("rank1", held).then(lambda future: future.value()).wait()
    elif rank == 1:
        rpc.rpc_sync("rank3", held)
    elif rank == 2:
        rpc.remote("rank3", held).to_here()
    else:
        Future().wait()  # type: ignore[var-annotated]


@pytest.mark.in_turn
def test_who_waits_for_whose_answer_is_said_while_they_wait(tmp_path: Path) -> None:
    wanted = [
        "rank 0 waits in rpc_async held() on rank 1",
        "rank 1 waits in rpc_sync held() on rank 3, and rank 3 has finished",
        "rank 2 waits in to_here for an object on rank 3, and rank 3 has finished",
        "rank 3 waits in Future.wait, for a future that nobody has completed",
    ]
    ranks, end = start_ranks(stuck, 4, tmp_path), time.monotonic() + 240
    try:
        said: list[str] = []
        while said != wanted and time.monotonic() < end:
            logs = {rank: read_log(tmp_path / f"{rank}.log") for rank in range(4)}
            waits = [waiting_of(rank, logs) for rank in range(4)]
            standing = Standing(4, [each for each in waits if each is not None], {3: FINISHED})
            said = [standing.sentence(each, placed=False) for each in standing.waits]
            time.sleep(0.01)
    finally:
        for process, _ in ranks:
            process.kill()
        stop_ranks(ranks)
    assert said == wanted
    assert not any(log.waits for log in logs.values())  # they may have others to serve: no deadlock by themselves


def test_a_record_whose_names_were_just_being_written_is_of_no_group_yet() -> None:
    record = np.zeros(1, layout.DTYPE)
    record["group"], record["number"] = 3, 7
    assert collectives_begun(RankLog(0, record), "default") == 0
