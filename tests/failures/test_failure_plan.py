"""Failures injected into a run: when they happen, what other ranks see of them, and how all are restarted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import ConfigError, RankFailed, RunTimeout
from labkit.failures import Cut, Disk, Failure, Flip, Full, Hang, Kill, Pause, PowerCut, Restarts, Slow


def four_sums() -> tuple[str, float, float]:
    """Return which attempt this is, when it began, and a sum that ranks made together."""
    began, total = time.monotonic(), torch.zeros(())
    try:
        for _ in range(4):
            part = torch.ones(()) * (dist.get_rank() + 1)
            dist.all_reduce(part)
            total += part
    except RuntimeError as error:
        print(f"saw: {error}")
        raise
    finally:
        print("unwound")
    return os.environ["TORCHELASTIC_RESTART_COUNT"], began, float(total)


def _run(failure: Failure, fn: Any = four_sums, *, ranks: int = 2, **world: Any) -> labkit.Run[Any]:
    return labkit.run(fn, on=labkit.virtual(ranks, failures=[failure], **world), echo=False)


def test_a_killed_rank_unwinds_nothing_and_its_peer_loses_its_connection_as_over_gloo() -> None:
    with pytest.raises(RankFailed, match="rank 1 of 2 failed first: killed by SIGKILL at all_reduce 3") as caught:
        _run(Kill(1, call=3, op="all_reduce"))
    assert caught.value.rank == 1 and caught.value.output[1] == ""
    assert caught.value.output[0] == "saw: Connection closed by peer: rank 1 is gone\nunwound\n"


def test_all_ranks_are_started_again_after_the_agent_has_looked_and_met() -> None:
    run = _run(Kill(1, call=3), restarts=Restarts(1, monitor_s=0.1, rendezvous_s=2.0, start_s=4.0))
    assert run.results == [("1", pytest.approx(6.1), 12.0)] * 2
    assert run.timeline is not None
    assert run.timeline.tables["attempt"]["cause"].tolist() == ["killed by SIGKILL at call 3", ""]
    shown = [(span.rank, span.name) for span in run.timeline.spans(kind="failure").rows()]
    assert shown == [
        (0, "raised RuntimeError"), (0, "restart 1 of 1"), (1, "killed"), (1, "restart 1 of 1"),
    ]  # fmt: skip
    again = _run(Kill(1, call=3), restarts=Restarts(1, monitor_s=0.1, rendezvous_s=2.0, start_s=4.0))
    assert again.timeline is not None and list(again.timeline.rows()) == list(run.timeline.rows())


def test_a_kill_at_a_time_meets_a_rank_where_it_waits() -> None:
    def waits() -> None:
        if dist.get_rank() == 0:
            time.sleep(2.0)
        dist.barrier()

    with pytest.raises(RankFailed, match=r"killed by SIGKILL at 1 s\n\nIt ended at 1\.0+ s .*saw it at 1\.1"):
        _run(Kill(1, at_s=1.0), waits)


@pytest.mark.in_turn
def test_a_rank_that_hangs_is_found_by_the_time_limit_of_a_call() -> None:
    with pytest.raises(RunTimeout, match=r"Rank 1\] Watchdog caught collective .* timeout: all_reduce .* 1800000 m"):
        _run(Hang(0, call=2))
    run = _run(Hang(0, call=2), restarts=1)
    assert [result[0] for result in run.results] == ["1", "1"] and 1800 < run.results[0][1] < 1810


def test_a_message_to_a_dead_rank_fails_and_one_over_a_cut_link_never_comes() -> None:
    def exchange() -> None:
        time.sleep(1.0)
        if dist.get_rank() == 0:
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(torch.ones(4), 0)

    with pytest.raises(RankFailed) as caught:
        _run(Kill(0, call=1), exchange)
    assert caught.value.rank == 0
    with pytest.raises(RunTimeout, match=r"Watchdog caught .*send to rank 1"):
        _run(Cut(0, 1, at_s=0.5), exchange)


def test_a_cut_link_stops_what_goes_over_it_and_nothing_else() -> None:
    def in_pairs() -> None:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        dist.all_reduce(torch.ones(4), group=groups[dist.get_rank() // 2])

    assert _run(Cut(1, 2, at_s=0.0), in_pairs, ranks=4).timeline is not None
    with pytest.raises(RunTimeout):
        _run(Cut(2, 3, at_s=0.0), in_pairs, ranks=4)


@pytest.mark.in_turn
def test_a_slow_rank_takes_so_many_times_longer_from_then_on() -> None:
    def multiplies() -> float:
        value, began = torch.ones(512, 512), time.monotonic()
        dist.barrier()
        for _ in range(20):
            value @ value
        return time.monotonic() - began

    alone = labkit.run(multiplies, on=labkit.virtual(2), echo=False).results
    slowed = _run(Slow(1, factor=3.0, call=1), multiplies).results
    assert slowed[0] == alone[0] and slowed[1] / alone[1] == pytest.approx(3.0, rel=0.1)


def test_a_rank_that_is_paused_lets_the_others_go_first_and_goes_on() -> None:
    def comes() -> tuple[list[int], float]:
        if dist.get_rank():
            dist.send(torch.ones(1), 0)
            return [], time.monotonic()
        return [dist.recv(torch.empty(1)) for _ in range(2)], time.monotonic()

    alone = labkit.run(comes, on=labkit.virtual(3), echo=False).results
    paused = _run(Pause(1, seconds=0.5, call=1), comes, ranks=3).results
    assert (alone[0][0], paused[0][0]) == ([1, 2], [2, 1])
    assert paused[0][1] == pytest.approx(0.5, abs=0.01) and paused[2][1] < 0.01


def test_a_bit_flips_in_memory_for_all_and_on_the_wire_for_one() -> None:
    sign = {"call": 2, "bit": 31}
    memory, wire = (_run(Flip(0, **sign, where=where)).results for where in ("memory", "wire"))  # type: ignore[arg-type]
    assert [result[2] for result in memory] == [3.0 * 3 + 1.0] * 2  # -1 + 2 once, in place of 1 + 2
    assert [result[2] for result in wire] == [3.0 * 3 - 3.0, 3.0 * 4]


def writes() -> str:
    """Write a file synced with its folder, one synced alone, and one that is not; return what is found."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        for name in ("whole", "nameless", "unsynced"):
            with Path(name).open("w") as file:
                file.write(name)
                file.flush()
                if name != "unsynced":
                    os.fsync(file.fileno())
            if name == "whole":
                folder = os.open(".", os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
        Path("whole").write_text("changed")
        dist.barrier()
    return " ".join(f"{path.name}={path.read_text()}" for path in sorted(Path().iterdir()))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("keeps", "left"),
    [
        ("nothing", "whole=whole"),
        ("names", "nameless=nameless unsynced= whole=whole"),
        ("torn", "nameless=nameless unsynced=un\0\0\0ced whole=cholged"),
    ],
)
def test_a_power_cut_leaves_what_was_synced(keeps: Any, left: str) -> None:
    assert _run(PowerCut(call=1, keeps=keeps), writes, ranks=1, restarts=1).results == [left]


def test_a_kill_leaves_what_was_written_and_loses_what_python_still_buffers() -> None:
    def buffers() -> str:
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            with Path("whole").open("w") as file:
                file.write("written")
            with Path("part").open("w") as file:
                file.write("buffered")
                dist.barrier()
        return " ".join(f"{path.name}={path.read_text()}" for path in sorted(Path().iterdir()))

    assert _run(Kill(0, call=1), buffers, ranks=1, restarts=1).results == ["part= whole=written"]


def test_a_full_disk_takes_no_more_and_a_disk_of_a_node_is_its_own(tmp_path: Path) -> None:
    def fills() -> list[str]:
        for number in range(2):
            Path(f"{number}").write_text("x" * 100)
        return sorted(path.name for path in Path().iterdir())

    with pytest.raises(RankFailed, match="No space left on device"):
        _run(Full(file=3), fills, ranks=1)
    world = labkit.virtual(2, gpus_per_node=1, disk=Disk(tmp_path, per_node=True))
    assert labkit.run(fills, on=world, echo=False).results == [["0", "1"]] * 2
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "node0", "node0/0", "node0/1", "node1", "node1/0", "node1/1",
    ]  # fmt: skip


def test_files_take_virtual_time() -> None:
    def saves() -> float:
        began = time.monotonic()
        torch.save(torch.zeros(250_000), "zeros.pt")
        return time.monotonic() - began

    world = labkit.virtual(1, disk=Disk(bytes_per_second=1e6, latency_s=0.0))
    assert labkit.run(saves, on=world, echo=False).results[0] == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Kill(1), "has 0 moments"),
        (lambda: Kill(1, step=1, call=1), "has 2 moments"),
        (lambda: Kill(1, step=0), "counts nothing; the first is 1"),
        (lambda: Kill(1, file=1, op="read"), "is no file operation; use one of open, write"),
        (lambda: Flip(1, at_s=1.0), "A bit flips in a tensor"),
        (lambda: Slow(1, factor=0.5, step=1), "makes nothing slower"),
        (lambda: Pause(1, seconds=0.0, step=1), "is no pause"),
        (lambda: Pause(1, times=2, at_s=1.0), "counts events"),
        (lambda: labkit.virtual(2, failures=[Kill(2, step=1)]), "names rank 2; the ranks are 0 to 1"),
        (lambda: labkit.virtual(2, failures=[Cut(1, 1, step=1)]), "cuts rank 1 off from itself"),
        (lambda: labkit.virtual(2, failures=[PowerCut(node=1, step=1)]), "names node 1; the nodes are 0 to 0"),
        (lambda: labkit.virtual(2, failures=["kill"]), "use records of labkit.failures"),  # type: ignore[list-item]
        (lambda: labkit.virtual(2, restarts=-1), "is no number of restarts"),
        (lambda: Disk("/nowhere"), "there is no such folder"),
    ],
)
def test_what_cannot_be_injected_into_a_world_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.in_turn
def test_each_failure_stands_on_the_timeline_as_what_it_is() -> None:
    failures = [
        Slow(0, factor=2.0, call=1), Flip(1, call=1), Full(node=0, call=2), Kill(1, call=3),
        PowerCut(call=2, attempt=1), Hang(1, call=2, attempt=2), Cut(0, 1, call=2, attempt=3),
    ]  # fmt: skip
    run = labkit.run(four_sums, on=labkit.virtual(2, failures=failures, restarts=4), echo=False)
    assert run.timeline is not None
    words = {span.name for span in run.timeline.spans(kind="failure").rows()}
    assert {
        "2 times slower", "bit flipped (memory)", "disk full on node 0", "killed", "power cut of node 0", "hangs",
        "link to rank 1 cut",
    } <= words  # fmt: skip
    assert [result[0] for result in run.results] == ["4", "4"]
