"""What a learner reads when something is wrong."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.checks.case import Failure
from labkit.checks.failures import sizes_differ
from labkit.errors import RankFailed, RunTimeout


def _run(fn: Callable[..., object], world_size: int = 3, **more: object) -> labkit.Run:
    return labkit.run(fn, on=labkit.virtual(world_size), echo=False, **more)  # type: ignore[arg-type]


def _line_of(fn: Callable[..., object], text: str) -> int:
    import inspect

    lines, first = inspect.getsourcelines(fn)
    return next(first + place for place, line in enumerate(lines) if text in line)


def test_a_ring_of_blocking_sends_names_the_circle_and_every_ranks_line() -> None:
    def ring() -> None:
        rank, size = dist.get_rank(), dist.get_world_size()
        dist.send(torch.ones(4), (rank + 1) % size)
        dist.recv(torch.ones(4), (rank - 1) % size)

    with pytest.raises(RunTimeout) as caught:
        _run(ring)
    text, line = str(caught.value), _line_of(ring, "dist.send")
    assert "3 of 3 ranks wait and none can go on" in text
    assert "in a circle: rank 0 -> rank 1 -> rank 2 -> rank 0" in text
    for rank in range(3):
        there = f"rank {rank} waits in send to rank {(rank + 1) % 3} (16 B) at test_errors.py, line {line}: dist.send("
        assert there in text and there in caught.value.reports[rank]
    assert "dist.send(torch.ones(4), (rank + 1) % size)" in text
    assert caught.value.timeline is not None and len(caught.value.timeline.tables["open"]["span"]) == 3


def test_a_rank_that_finished_early_is_named_to_those_who_wait_for_it() -> None:
    def leave() -> None:
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(1))

    with pytest.raises(RunTimeout) as caught:
        _run(leave)
    text = str(caught.value)
    assert "2 of 3 ranks wait" in text and "circle" not in text
    assert "rank 0 waits in all_reduce #2 (4 B), which rank 1 finished without, at test_errors.py, line " in text
    assert caught.value.reports[1] == "rank 1 has finished"


def test_different_collectives_are_explained_with_both_lines() -> None:
    def mixed() -> None:
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(4), src=0)
        else:
            dist.all_reduce(torch.ones(4))

    with pytest.raises(RankFailed) as caught:
        _run(mixed, 2)
    text = str(caught.value)
    assert f"Rank 1 called all_reduce SUM of 4 x float32 (test_errors.py, line {_line_of(mixed, 'all_reduce')})" in text
    assert "as collective 1 of the default group, where rank 0 called broadcast 4 x float32 from group rank 0" in text


@pytest.mark.parametrize(
    ("size", "dtype", "said"), [(5, torch.float32, "5 x float32"), (4, torch.float64, "4 x float64")]
)
def test_sizes_and_dtypes_that_differ_are_explained(size: int, dtype: torch.dtype, said: str) -> None:
    def differ() -> None:
        dist.all_reduce(torch.ones(size, dtype=dtype) if dist.get_rank() else torch.ones(4))

    with pytest.raises(
        RankFailed, match=f"called all_reduce SUM of {said}.*rank 0 called all_reduce SUM of 4 x float32"
    ):
        _run(differ, 2)


def test_ends_of_a_message_that_do_not_fit_are_explained() -> None:
    def differ() -> None:
        if dist.get_rank():
            dist.recv(torch.ones(3), 0)
        else:
            dist.send(torch.ones(4), 1)

    with pytest.raises(RankFailed, match=r"Rank 0 sent 4 x float32 to rank 1 .* receives into 3 x float32") as told:
        _run(differ, 2)
    assert sizes_differ(Failure("exception", 0, str(told.value)))


def test_a_buffer_written_while_it_is_being_sent_is_told_with_both_lines() -> None:
    def reuse() -> None:
        value = torch.ones(4)
        if dist.get_rank() == 0:
            work = dist.isend(value, 1)
            value[1:2].mul_(2)
            work.wait()
        else:
            dist.recv(value, 0)

    timeline = _run(reuse, 2).timeline
    assert timeline is not None
    (problem,) = timeline.problems
    assert problem.kind == "changed_in_flight" and problem.rank == 0
    assert (timeline.rank[problem.row], timeline.kind[problem.row]) == (0, "isend")
    sent, written = _line_of(reuse, "dist.isend"), _line_of(reuse, "mul_(2)")
    assert f"wrote into the buffer of its isend (test_errors.py, line {sent})" in problem.text
    assert f"at test_errors.py, line {written}, before wait() returned" in problem.text


@pytest.mark.parametrize(("touch", "kind"), [("mul_(2)", "changed_in_flight"), ("add(1)", "read_before_wait")])
def test_the_tensor_of_an_asynchronous_collective_is_the_networks_until_wait(touch: str, kind: str) -> None:
    def early() -> None:
        value = torch.ones(4)
        work = dist.all_reduce(value, async_op=True)
        value.mul_(2) if touch == "mul_(2)" else value.add(1)
        work.wait()
        value.mul_(2)

    first, _ = _run(early, 2).timeline.problems  # type: ignore[union-attr]
    assert (first.kind, first.rank) == (kind, 0)
    assert f"the buffer of its all_reduce (test_errors.py, line {_line_of(early, 'all_reduce')})" in first.text


def test_what_a_collective_only_gives_may_be_read_before_wait_and_everything_after_it() -> None:
    def right() -> None:
        mine, every = torch.ones(4), [torch.zeros(4) for _ in range(dist.get_world_size())]
        work = dist.all_gather(every, mine, async_op=True)
        mine + 1
        work.wait()
        torch.stack(every).mul_(2)
        dist.all_reduce(mine)
        mine.mul_(2)

    assert _run(right, 2).timeline.problems == ()  # type: ignore[union-attr]


def test_a_neighbour_of_a_buffer_in_flight_may_be_written() -> None:
    def beside() -> None:
        value = torch.ones(8)
        if dist.get_rank() == 0:
            work = dist.isend(value[:4], 1)
            value[4:].mul_(2)
            work.wait()
        else:
            dist.recv(value[:4], 0)

    assert _run(beside, 2).timeline.problems == ()  # type: ignore[union-attr]


def test_reading_what_has_not_been_waited_for_is_told() -> None:
    def early() -> None:
        value = torch.zeros(4)
        if dist.get_rank():
            work = dist.irecv(value, 0)
            value + 1
            work.wait()
        else:
            dist.send(torch.ones(4), 1)

    (problem,) = _run(early, 2).timeline.problems  # type: ignore[union-attr]
    assert problem.kind == "read_before_wait" and f"line {_line_of(early, 'value + 1')}" in problem.text


def test_messages_nobody_received_and_works_nobody_waited_for_are_listed() -> None:
    def forget() -> None:
        if dist.get_rank() == 0:
            dist.isend(torch.ones(4), 1)
            dist.isend(torch.ones(4), 1, tag=9)
        elif dist.get_rank() == 1:
            dist.recv(torch.ones(4), 0)

    timeline = _run(forget).timeline
    assert timeline is not None
    problems = timeline.problems
    assert [problem.kind for problem in problems] == ["unmatched_send", "not_waited"]
    assert [timeline.flow[problem.row] >= 0 for problem in problems] == [False, True]
    assert "rank 1 has no receive for it" in problems[0].text


def test_a_collective_that_one_rank_never_called_is_listed() -> None:
    def forget() -> None:
        if dist.get_rank():
            dist.all_reduce(torch.ones(4), async_op=True)

    problems = _run(forget).timeline.problems  # type: ignore[union-attr]
    assert [(problem.kind, problem.rank) for problem in problems] == [
        ("unmatched_collective", 1),
        ("unmatched_collective", 2),
    ]
    assert "rank 0 never did" in problems[0].text


def test_a_group_that_one_of_its_ranks_never_made_is_listed() -> None:
    def forget() -> None:
        dist.new_group([0, 2])
        if dist.get_rank() == 0:
            dist.new_group([0, 1])

    (problem,) = _run(forget).timeline.problems  # type: ignore[union-attr]
    assert (problem.kind, problem.rank) == ("unmatched_group", 0)
    assert "rank 1 never did" in problem.text


def test_the_rank_that_raised_is_first_with_its_own_traceback_and_no_line_of_ours() -> None:
    def fail() -> None:
        if dist.get_rank() == 2:
            raise KeyError("the learner's mistake")
        dist.barrier()

    with pytest.raises(RankFailed, match="rank 2 of 3 failed first: KeyError") as caught:
        _run(fail)
    assert caught.value.rank == 2 and "in fail" in str(caught.value) and "labkit/simulator" not in str(caught.value)


@pytest.mark.in_turn
def test_a_loop_that_never_ends_is_ended_when_the_time_is_up() -> None:
    def spin() -> None:
        while True:
            pass

    with pytest.raises(RunTimeout, match="The time limit passed while rank 0 of 2 was running"):
        _run(spin, 2, timeout=0.5)


@pytest.mark.in_turn
def test_polling_for_what_never_comes_is_ended_when_the_time_is_up() -> None:
    def poll() -> None:
        work = dist.irecv(torch.ones(1), (dist.get_rank() + 1) % 2)
        while not work.is_completed():
            pass

    with pytest.raises(RunTimeout, match="The time limit passed"):
        _run(poll, 2, timeout=0.5)


def test_polling_for_what_comes_ends() -> None:
    def poll() -> float:
        value = torch.zeros(1)
        if dist.get_rank():
            time.sleep(1e-4)
            dist.send(torch.ones(1), 0)
            return 1.0
        work = dist.irecv(value, 1)
        while not work.is_completed():
            pass
        return float(value)

    assert _run(poll, 2).results == [1.0, 1.0]


def test_a_learners_except_does_not_swallow_the_end_of_the_run() -> None:
    def swallow() -> str:
        if dist.get_rank() == 1:
            raise ValueError("first")
        try:
            dist.barrier()
        except Exception:
            return "swallowed"
        return "went on"

    with pytest.raises(RankFailed, match="rank 1 of 3 failed first: ValueError: first"):
        _run(swallow)


def test_monitored_barrier_names_who_is_missing() -> None:
    def miss() -> None:
        if dist.get_rank() != 1:
            dist.monitored_barrier()

    with pytest.raises(RunTimeout, match=r"waits in monitored_barrier #1, which rank 1 finished without, at "):
        _run(miss)
    assert len(_run(dist.monitored_barrier).results) == 3


def test_an_interrupt_ends_every_rank_and_goes_on_to_the_caller() -> None:
    def interrupt() -> None:
        import _thread

        if dist.get_rank() == 0:
            _thread.interrupt_main()
        while True:
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            _run(interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("virtual rank")]
    assert _run(dist.get_rank).results == [0, 1, 2]


def test_tensors_without_values_are_timed_like_those_with() -> None:
    def step(device: str) -> torch.Size:
        value = torch.empty(64, 64, device=device)
        value @ value
        dist.all_reduce(value)
        gathered = torch.empty(128, 64, device=device)
        dist.all_gather_single(gathered, value)
        if dist.get_rank():
            dist.recv(value, 0)
        else:
            dist.send(value, 1)
        return gathered.shape

    runs = [labkit.run(step, device, on=labkit.virtual(2), echo=False) for device in ("cpu", "meta")]
    assert runs[0].results == runs[1].results == [torch.Size([128, 64])] * 2
    assert runs[0].timeline.makespan_ns == runs[1].timeline.makespan_ns  # type: ignore[union-attr]
