"""On virtual ranks a check counts steps, knows a deadlock for certain, and sees what was touched in flight."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.checks.outcome import CaseOutcome
from labkit.checks.rooms import exercises, find, lesson_of
from labkit.checks.sweep import named, run_sweep
from tests.checks.lesson_cells import lesson, namespace

LESSONS = {"ring_all_reduce": "02", "collectives": "03"}
SWEPT = [each for slug in LESSONS for each, exercise in exercises(slug).items() if exercise.sweep is not None]


def swept(exercise_id: str, source: str = "") -> CaseOutcome:
    names: dict[str, Any] = namespace(extra=source, number=LESSONS[lesson_of(exercise_id)])
    exercise = find(exercise_id)
    return run_sweep(exercise, {name: names[name] for name in exercise.functions + exercise.given if name in names})


def verdict_of(outcome: CaseOutcome) -> Any:
    assert outcome.verdict is not None and not outcome.passed
    assert outcome.case.name.endswith(", on a virtual cluster")
    return outcome.verdict


def test_every_exercise_that_communicates_is_swept() -> None:
    assert set(SWEPT) == {
        "naive_all_reduce",
        "run_plan",
        "ring_sum",
        "any_tensor",
        "drop_in_all_reduce",
        "tree_all_reduce",
        "halving_doubling",
        "all_to_all",
        "hierarchical_all_reduce",
    }


def test_a_sweep_is_one_line_that_names_its_worlds() -> None:
    assert named(find("ring_sum")).name == (
        "virtual ranks, 2 to 9, 13 and 16 of them: results, bytes, steps, no deadlock, nothing touched in flight"
    )


def test_a_deadlock_shows_the_circle_and_each_ranks_own_line() -> None:
    verdict = verdict_of(
        swept(
            "ring_sum",
            "def ring_sum(tensor, group=None):\n"
            "    rank, n = dist.get_rank(), dist.get_world_size()\n"
            "    dist.send(tensor, (rank + 1) % n)\n"
            "    dist.recv(tensor, (rank - 1) % n)\n",
        )
    )
    assert verdict.message.startswith("Deadlock: 2 of 2 ranks wait and none can go on.")
    assert "in a circle: rank 0 -> rank 1 -> rank 0" in verdict.message
    assert "line 3: dist.send(tensor, (rank + 1) % n)" in verdict.message
    assert verdict.mistake == "everybody sends first"


REUSES = """
def ring_sum(tensor, group=None):
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.view(-1)
    chunks = [flat[start:end] for start, end in chunk_bounds(flat.numel(), n)]
    for records in ([r for r in ring_plan(rank, n) if r.step == step] for step in range(2 * (n - 1))):
        send, recv = records[:2]
        sending = dist.isend(chunks[send.chunk], send.peer)
        incoming = torch.empty_like(chunks[recv.chunk])
        receiving = dist.irecv(incoming, recv.peer)
        WAIT
        if len(records) == 3:
            chunks[recv.chunk] += incoming
        else:
            chunks[recv.chunk].copy_(incoming)
        receiving.wait()
        sending.wait()
"""


def test_a_buffer_read_before_its_wait_is_told_with_the_line() -> None:
    verdict = verdict_of(swept("ring_sum", REUSES.replace("        WAIT\n", "")))
    assert verdict.mistake == "read before wait" and "call wait() before you read it" in verdict.hint
    assert "read" in verdict.message and "line 12" in verdict.message


@pytest.mark.in_turn
def test_a_ring_that_waits_for_its_own_sends_last_is_right() -> None:
    assert swept("ring_sum", REUSES.replace("WAIT", "receiving.wait()")).passed


def test_a_buffer_written_while_it_is_sent_is_told_with_both_lines() -> None:
    verdict = verdict_of(
        swept(
            "naive_all_reduce",
            "def naive_all_reduce(tensor):\n"
            "    rank, n = dist.get_rank(), dist.get_world_size()\n"
            "    if rank:\n"
            "        work = dist.isend(tensor, 0)\n"
            "        dist.recv(tensor, 0)\n"
            "        work.wait()\n"
            "        return\n"
            "    incoming = torch.empty_like(tensor)\n"
            "    for peer in range(1, n):\n"
            "        dist.recv(incoming, peer)\n"
            "        tensor += incoming\n"
            "    works = [dist.isend(tensor, peer) for peer in range(1, n)]\n"
            "    tensor += 0\n"
            "    for work in works:\n"
            "        work.wait()\n",
        )
    )
    assert verdict.mistake == "buffer reused in flight"
    assert "wrote into the buffer of its isend" in verdict.message and "line 13" in verdict.message


def test_steps_are_counted_and_too_many_are_named() -> None:
    chain = """
def tree_all_reduce(tensor, group=None):
    rank, n = dist.get_rank(group), dist.get_world_size(group)
    incoming = torch.empty_like(tensor)
    if rank:
        dist.recv(incoming, rank - 1)
        tensor += incoming
    if rank < n - 1:
        dist.send(tensor, rank + 1)
        dist.recv(tensor, rank + 1)
    if rank:
        dist.send(tensor, rank - 1)
"""
    verdict = verdict_of(swept("tree_all_reduce", chain))
    assert verdict.mistake == "one after another"


def test_a_loop_without_end_is_ended_and_named() -> None:
    exercise = find("naive_all_reduce")
    names = namespace(extra="def naive_all_reduce(tensor):\n    while True:\n        pass\n")
    outcome = run_sweep(exercise, {"naive_all_reduce": names["naive_all_reduce"]}, seconds=0.5)
    assert "did not finish in time: an endless loop" in verdict_of(outcome).message


@pytest.mark.in_turn
@pytest.mark.parametrize("exercise_id", SWEPT)
def test_a_stub_fails_in_the_sweep_with_its_own_message(exercise_id: str) -> None:
    number = LESSONS[lesson_of(exercise_id)]
    names = namespace(solved=False, number=number)
    exercise = find(exercise_id)
    outcome = run_sweep(exercise, {name: names[name] for name in exercise.functions})
    about = lesson(number).manifest.exercise(exercise_id)
    assert f"Not done yet. Exercise {about.number}: {about.title}" in verdict_of(outcome).message
