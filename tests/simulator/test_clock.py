"""The scheduler: who runs when."""

from __future__ import annotations

import threading
from collections.abc import Callable

from labkit.simulator.clock import Abandoned, Event, Scheduler, Waiting


def _waiting(peers: list[int] | None = None) -> Waiting:
    return Waiting("recv", lambda: peers or [], lambda: "recv", "")


def _run(scheduler: Scheduler, bodies: list[Callable[[], None]]) -> list[threading.Thread]:
    def live(rank: int) -> None:
        try:
            scheduler.enter(rank)
            bodies[rank]()
            scheduler.leave(rank)
        except Abandoned:
            pass

    threads = [threading.Thread(target=live, args=(rank,), daemon=True) for rank in range(len(bodies))]
    for thread in threads:
        thread.start()
    scheduler.start()
    for thread in threads:
        thread.join(20)
    return threads


def test_what_was_posted_later_in_time_happens_later_whoever_ran_first() -> None:
    scheduler = Scheduler(2)
    seen: list[tuple[int, int]] = []

    def body(rank: int) -> None:
        # Rank 0 runs first and far ahead; its action at 100 must wait for rank 1's at 10.
        scheduler.clocks[rank].now_ns = [100, 10][rank]
        now_ns, event = scheduler.clocks[rank].now_ns, Event()

        def action() -> None:
            seen.append((now_ns, rank))
            scheduler.fire(event, now_ns + 5)

        scheduler.act(now_ns, action)
        scheduler.wait(rank, event, _waiting())
        assert scheduler.clocks[rank].now_ns == now_ns + 5

    _run(scheduler, [lambda: body(0), lambda: body(1)])
    assert seen == [(10, 1), (100, 0)]


def test_ties_go_by_the_order_in_which_they_were_posted_and_runs_repeat() -> None:
    def order() -> list[int]:
        scheduler, seen = Scheduler(5), []

        def body(rank: int) -> None:
            event = Event()
            scheduler.act(7, lambda: (seen.append(rank), scheduler.fire(event, 7))[1])
            scheduler.wait(rank, event, _waiting())

        _run(scheduler, [lambda rank=rank: body(rank) for rank in range(5)])
        return seen

    assert order() == order() == [0, 1, 2, 3, 4]


def test_an_event_in_the_past_does_not_turn_a_clock_back() -> None:
    scheduler = Scheduler(1)

    def body() -> None:
        event = Event()
        scheduler.fire(event, 3)
        scheduler.clocks[0].now_ns = 10
        scheduler.wait(0, event, _waiting())

    _run(scheduler, [body])
    assert scheduler.clocks[0].now_ns == 10


def test_a_rank_that_waits_for_nothing_that_can_happen_ends_the_run_for_all() -> None:
    found: list[str] = []

    def deadlocked() -> BaseException:
        found.append("deadlock")
        return RuntimeError("deadlock")

    scheduler = Scheduler(3, deadlocked=deadlocked)
    threads = _run(scheduler, [lambda rank=rank: scheduler.wait(rank, Event(), _waiting()) for rank in range(3)])
    assert found == ["deadlock"] and not any(thread.is_alive() for thread in threads)


def test_a_rank_left_alone_by_those_that_finished_is_a_deadlock_too() -> None:
    scheduler = Scheduler(2, deadlocked=lambda: RuntimeError("deadlock"))
    _run(scheduler, [lambda: scheduler.wait(0, Event(), _waiting()), lambda: None])
    assert isinstance(scheduler.failure, RuntimeError)
