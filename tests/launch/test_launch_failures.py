"""What a learner reads when a rank fails or the ranks wait for each other."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from live_kernel import alive, noted, wait_until

import labkit
from labkit.errors import EnvironmentProblem, RankFailed, RunTimeout
from labkit.launch import supervisor
from labkit.launch.watchdog import cpu_seconds
from tests.linux import forks


def test_an_exception_on_one_rank_ends_the_others_within_two_seconds(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / str(os.getpid())).touch()
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 2:
            assert len(list(tmp_path.iterdir())) == 4
            (tmp_path.with_suffix(".raised")).write_text(str(time.monotonic()))
            raise KeyError("no such layer")
        dist.all_reduce(torch.ones(1000))

    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=labkit.local(4))
    ended = time.monotonic()
    assert caught.value.rank == 2, str(caught.value)
    waited_for_cores = max(1.0, os.getloadavg()[0])  # how often others run where this would
    assert ended - float((tmp_path.with_suffix(".raised")).read_text()) < 2.0 * waited_for_cores
    assert not alive(noted(tmp_path)), "when the error is there, the ranks are gone"
    error = caught.value
    assert str(error).startswith("rank 2 of 4 failed first: KeyError: 'no such layer'\n\nTraceback")
    assert "raise KeyError" in error.reports[2]
    for rank in (0, 1, 3):
        assert error.reports[rank].startswith(
            f"rank {rank} waits in all_reduce #2 (4 KB), which rank 2 has not reached\n"
        )
        assert "dist.all_reduce(torch.ones(1000))" in error.reports[rank]
    assert error.timeline is not None and error.timeline.num_ranks == 4
    assert len(error.output) == 4


@pytest.mark.in_turn
def test_a_deadlock_names_for_every_rank_its_line_and_what_it_waits_for() -> None:
    def work() -> None:
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        if dist.get_rank() == 0:
            dist.recv(tensor, src=1)
        else:
            dist.all_reduce(tensor)

    with pytest.raises(RunTimeout) as caught:
        labkit.run(work, on=labkit.local(2), timeout=60)
    message = str(caught.value)
    assert message.startswith("Deadlock: ")
    for line in (
        "They wait for each other in a circle: rank 0 -> rank 1 -> rank 0.",
        "  rank 0 waits in recv from rank 1 (16 B) at test_launch_failures.py, line ",
        "  rank 1 waits in all_reduce #2 (16 B), which rank 0 has not reached, at test_launch_failures.py, line ",
    ):
        assert line in message
    assert "dist.recv(tensor, src=1)" in caught.value.reports[0]
    assert "dist.all_reduce(tensor)" in caught.value.reports[1]
    assert caught.value.rank is None


def test_a_rank_that_has_finished_is_named_by_the_one_that_waits_for_it() -> None:
    def work() -> None:
        if dist.get_rank() == 1:
            dist.recv(torch.ones(2), src=0)

    with pytest.raises(RunTimeout, match=r"rank 1 waits in recv from rank 0 \(8 B\), which has finished"):
        labkit.run(work, on=labkit.local(2), stall=0.5)


def test_a_rank_that_does_not_exist_is_refused_and_the_rank_that_named_it_fails_first() -> None:
    """Gloo would read beyond its array for it: a wait for ever, or a segmentation fault one time in seven."""

    def work() -> None:
        dist.recv(torch.ones(2), src=dist.get_rank() + 1)

    with pytest.raises(RankFailed, match=r"rank 1 of 2 failed first: NoSuchRank: recv from rank 2: ") as caught:
        labkit.run(work, on=labkit.local(2))
    assert caught.value.reports[0].startswith("rank 0 waits in recv from rank 1 (8 B)\n")


def test_a_tensor_with_gaps_is_refused_where_gloo_would_leave_wrong_values_and_nowhere_else() -> None:
    def refused(call: Callable[[torch.Tensor], object]) -> str:
        with pytest.raises(RuntimeError) as error:
            call(torch.zeros(4, 4)[:, :2])
        return str(error.value)

    def work() -> tuple[list[str], list[float]]:
        full = [torch.ones(4, 2), torch.ones(4, 2)]
        texts = [
            refused(dist.all_reduce),
            refused(lambda column: dist.broadcast(column, 0)),
            refused(lambda column: dist.reduce(column, 0)),
            refused(lambda column: dist.scatter(column, full if dist.get_rank() == 0 else None, 0)),
            refused(lambda column: dist.reduce_scatter(column, full)),
            refused(lambda column: dist.all_to_all_single(column, torch.ones(4, 2))),
        ]
        wide = [torch.zeros(4, 4), torch.zeros(4, 4)]
        dist.all_gather([one[:, 1:3] for one in wide], torch.full((4, 4), dist.get_rank() + 1.0)[:, ::2])
        whole = torch.arange(6.0).reshape(2, 3).t()  # in another order, without a gap
        dist.all_reduce(whole)
        return texts, [wide[0].sum().item(), wide[1].sum().item(), whole[0, 1].item()]

    for texts, sums in labkit.run(work, on=labkit.local(2, device="cpu"), echo=False).results:
        assert all("got a tensor with gaps in memory, of shape (4, 2) and strides (4, 1)" in text for text in texts)
        assert sums == [8.0, 16.0, 6.0]


def test_ranks_in_different_collectives_are_told_apart() -> None:
    def work() -> None:
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(4), src=0)
            dist.barrier()
        else:
            dist.all_reduce(torch.ones(4))

    with pytest.raises(
        RunTimeout, match=r"rank 1 waits in all_reduce #1 \(16 B\), where rank 0 is in broadcast instead"
    ):
        labkit.run(work, on=labkit.local(2), stall=0.5)


def _one_makes_a_group() -> None:
    if dist.get_rank() == 0:
        dist.new_group([0, 1])


def _one_makes_a_group_and_one_is_at_a_barrier() -> None:
    _one_makes_a_group()
    dist.barrier()


def _one_begins() -> None:
    if os.environ["RANK"] == "0":
        dist.init_process_group("gloo")


def _one_asks_the_store() -> None:
    if dist.get_rank() == 0:
        dist.distributed_c10d._get_default_store().wait(["nothing"])


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("work", "says"),
    [
        (_one_makes_a_group, "waits in new_group #1, which rank 1 finished without"),
        pytest.param(
            _one_makes_a_group_and_one_is_at_a_barrier,
            "waits in new_group #1, which rank 1 has not reached",
            marks=pytest.mark.long,
        ),
        pytest.param(
            _one_begins, "waits in init_process_group #1, which rank 1 finished without", marks=pytest.mark.long
        ),
        pytest.param(_one_asks_the_store, r"waits in store.wait\(.*\), which nobody has set", marks=pytest.mark.long),
    ],
)
def test_who_waits_for_ranks_outside_of_any_group_is_in_a_deadlock_too(work: Callable[[], None], says: str) -> None:
    with pytest.raises(RunTimeout, match="(?s)^Deadlock: .*rank 0 " + says):
        labkit.run(work, on=labkit.local(2), stall=0.5, timeout=60, init=work is not _one_begins)


def _all_meet() -> None:
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    group, store = dist.new_group(), dist.distributed_c10d._get_default_store()
    time.sleep(0.1 * dist.get_rank())
    store.set(f"{dist.get_rank()}", "here")
    store.get(f"{1 - dist.get_rank()}")
    dist.barrier(group)


@pytest.mark.in_turn
def test_groups_that_are_made_leave_nothing_on_the_timeline() -> None:
    timeline = labkit.run(_all_meet, on=labkit.local(2), init=False).timeline
    assert timeline is not None and set(timeline.kind.tolist()) == {"barrier"}
    assert not timeline.problems


@pytest.mark.in_turn
def test_a_slow_sender_is_no_deadlock() -> None:
    """Rank 0 waits far longer than ``stall`` for a rank that is busy elsewhere."""

    def work() -> float:
        tensor = torch.zeros(1)
        if dist.get_rank() == 1:
            time.sleep(1.5)
            dist.send(torch.ones(1), dst=0)
        else:
            dist.recv(tensor, src=1)
        return tensor.item()

    assert labkit.run(work, on=labkit.local(2), stall=0.3).results == [1.0, 0.0]


@pytest.mark.in_turn
@forks
def test_the_time_limit_finds_a_rank_that_spins_and_one_that_is_blocked_in_native_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The limit passes when each rank has come where it stays."""

    def work() -> None:
        read_end, _ = os.pipe()
        (tmp_path / str(dist.get_rank())).touch()
        if dist.get_rank() == 0:
            while True:
                pass
        if dist.get_rank() == 1:
            ctypes.PyDLL(None).read(read_end, None, 1)  # keeps the interpreter lock: no Python runs here any more
        dist.barrier()

    rounds: list[int] = []

    def look(self: supervisor.Supervisor) -> None:
        if len(list(tmp_path.iterdir())) == 3 and all(state.started for state in self._states):
            rounds.append(1)

    def clock() -> float:
        return time.monotonic() + 1000 * (len(rounds) > 1)  # in the first of them the limit begins to count

    monkeypatch.setattr(supervisor.Supervisor, "_follow", look)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(supervisor, "_ARRIVE_LIMIT", 0.5)  # two of them never come
    with pytest.raises(RunTimeout) as caught:
        labkit.run(work, on=labkit.local(3), timeout=900)
    reports = caught.value.reports
    assert str(caught.value).startswith("The time limit of 900 s passed (timeout=900).")
    assert reports[0].startswith("rank 0 is in no communication call, it computes\n")
    assert "while True" in reports[0] or "pass" in reports[0]
    assert "ctypes.PyDLL(None).read(" in reports[1]
    assert reports[2].startswith("rank 2 waits in barrier #1, which ranks 0 and 1 have not reached\n")


def kill_one(number: int, expected: str) -> RankFailed:
    def work() -> None:
        if dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        dist.all_reduce(torch.ones(3))

    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=labkit.local(3))
    assert caught.value.rank == 1
    assert str(caught.value).startswith(f"rank 1 of 3 failed first: killed by {expected}\n")
    return caught.value


def test_sigkill_is_named_with_the_count_of_out_of_memory_kills() -> None:
    report = kill_one(signal.SIGKILL, "SIGKILL").reports[1]
    assert "rank 1 was killed by SIGKILL." in report
    assert "out-of-memory kill" in report or "cannot be read here" in report


def test_sigterm_is_named() -> None:
    kill_one(signal.SIGTERM, "SIGTERM")


def test_a_segmentation_fault_is_named_with_the_python_line() -> None:
    def work() -> None:
        if dist.get_rank() == 1:
            ctypes.string_at(0)
        dist.barrier()

    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=labkit.local(2))
    assert caught.value.rank == 1
    assert str(caught.value).startswith("rank 1 of 2 failed first: killed by SIGSEGV\n")
    assert "a segmentation fault" in caught.value.reports[1]
    assert "ctypes.string_at(0)" in caught.value.reports[1]


def test_a_bus_error_says_how_much_room_there_is() -> None:
    def work() -> None:
        with tempfile.TemporaryFile() as file:
            file.truncate(4096)
            mapped = mmap.mmap(file.fileno(), 4096)
            file.truncate(0)
            mapped[0]

    with pytest.raises(
        RankFailed, match=r"killed by SIGBUS: .*/dev/shm or the temporary folder is full .*/dev/shm has .* free"
    ):
        labkit.run(work, on=labkit.local(1))


def test_os_exit_is_named_with_its_status_and_the_last_output() -> None:
    def work() -> None:
        if dist.get_rank() == 2:
            print("so long")
            sys.stdout.flush()
            os._exit(7)
        dist.barrier()

    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=labkit.local(3), echo=False)
    assert caught.value.rank == 2
    assert str(caught.value).startswith("rank 2 of 3 failed first: ended with exit status 7\n")
    assert "os._exit()" in caught.value.reports[2] and "so long" in caught.value.reports[2]


def test_leaving_with_status_zero_before_returning_is_a_failure_too() -> None:
    with pytest.raises(RankFailed, match="rank 0 of 1 failed first: ended with exit status 0"):
        labkit.run(lambda: os._exit(0), on=labkit.local(1))


def test_sys_exit_is_told_to_return_instead() -> None:
    with pytest.raises(RankFailed, match=r"sys.exit\(3\) was called; return a value instead"):
        labkit.run(lambda: sys.exit(3), on=labkit.local(1))


def test_the_same_error_on_every_rank_is_told_once() -> None:
    def work() -> None:
        raise NotImplementedError("Exercise 2.3: chunk bounds")

    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=labkit.local(3))
    message = str(caught.value)
    assert message.startswith("rank 0 of 3 failed first: NotImplementedError: Exercise 2.3: chunk bounds\n")
    assert message.count("Traceback") == 1
    assert message.endswith("The same on ranks 1, 2.")


def test_an_error_that_comes_while_it_is_asked_where_others_stand_is_told_as_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, let_arrive = tmp_path / "asked", supervisor.Supervisor._let_arrive

    def ask(self: supervisor.Supervisor, states: list[Any]) -> None:
        asked.touch()
        let_arrive(self, states)

    def work() -> None:
        while dist.get_rank() and not asked.exists():
            time.sleep(0.01)
        raise NotImplementedError("Exercise 2.3: chunk bounds")

    monkeypatch.setattr(supervisor.Supervisor, "_let_arrive", ask)
    with pytest.raises(RankFailed) as caught:
        labkit.run(work, on=labkit.local(2))
    assert str(caught.value).endswith("The same on rank 1.")


def test_a_cause_and_its_context_stay_in_the_traceback() -> None:
    def work() -> None:
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("no plan for this rank") from error

    with pytest.raises(RankFailed, match=r"(?s)KeyError: 'missing'.*direct cause.*ValueError: no plan for this rank"):
        labkit.run(work, on=labkit.local(1))


@pytest.mark.in_turn
@forks
def test_when_the_preloaded_process_dies_the_run_says_so_and_the_next_one_works(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / str(os.getpid())).touch()
        if dist.get_rank() == 0:
            os.kill(os.getppid(), signal.SIGKILL)
        dist.barrier()
        time.sleep(1000)

    with pytest.raises(EnvironmentProblem, match="forked from has ended"):
        labkit.run(work, on=labkit.local(2))
    left = noted(tmp_path)
    wait_until(lambda: not alive(left))
    assert labkit.run(dist.get_rank, on=labkit.local(2)).results == [0, 1]


@pytest.mark.in_turn
def test_receives_nobody_waits_for_hide_no_deadlock() -> None:
    """Gloo's thread spins at messages that came and found no buffer, and unwaited receives look as if on their way."""

    def work() -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        for _ in range(3):
            dist.irecv(torch.zeros(3), src=(rank - 1) % world)
        for _ in range(4):
            sent = dist.isend(torch.ones(3), dst=(rank + 1) % world)
            assert sent is not None
            sent.wait()

    with pytest.raises(RunTimeout, match=r"(?s)^Deadlock: .*waits in isend to rank 1 \(12 B\)") as caught:
        labkit.run(work, on=labkit.local(3), timeout=60, stall=0.5)
    assert caught.value.rank is None


@pytest.mark.in_turn
def test_the_thread_that_moves_messages_is_no_work_of_the_learners() -> None:
    def work() -> tuple[float, float]:
        begun = cpu_seconds(os.getpid())
        rank, other = dist.get_rank(), 1 - dist.get_rank()
        tensor = torch.ones(8 << 20)
        for _ in range(20):
            (dist.send if rank else dist.recv)(tensor, other)
        used = sum(os.times()[:2])
        now = cpu_seconds(os.getpid())
        assert begun is not None and now is not None
        return now, used

    for own, all_threads in labkit.run(work, on=labkit.local(2)).results:
        assert own < all_threads  # 640 MB went through Gloo's own thread
