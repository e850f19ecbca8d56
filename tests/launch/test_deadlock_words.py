"""The words for ranks that cannot go on, from records alone: circles, many ranks, threads, ranks that died."""

from __future__ import annotations

import time

import pytest
import torch.distributed

from labkit.deadlock import ANY_RANK, FINISHED, Standing, Waiting, circle


def test_a_circle_is_found_behind_ranks_that_only_wait_for_it() -> None:
    assert circle({0: [1], 1: [3], 2: [1], 3: [2]}) == [1, 3, 2]


def test_no_circle_where_all_wait_for_one_that_waits_for_nobody() -> None:
    assert circle({1: [0], 2: [1]}) == []


def test_a_circle_of_a_thousand_ranks_is_found_and_told_in_two_lines() -> None:
    waits = [Waiting(rank, "send", ((rank + 1) % 1000,), (rank + 1) % 1000) for rank in range(1000)]
    began = time.process_time()
    headline = Standing(1000, waits).headline()
    assert "rank 4 -> rank 5 -> ... 994 more -> rank 0." in headline and time.process_time() - began < 5


def test_ranks_that_wait_alike_are_told_in_one_line() -> None:
    waits = [Waiting(rank, "barrier", (7,), number=0) for rank in range(40) if rank != 7]
    assert Standing(40, waits, {7: FINISHED}).lines() == [
        "ranks 0-6, 8-39 wait in barrier #1, which rank 7 finished without", "Finished: rank 7.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("waiting", "says"),
    [
        (Waiting(0, "recv", (0,), 0), "rank 0 waits in recv from rank 0, which only it could answer itself"),
        (Waiting(0, "recv", (2,), 2), "rank 0 waits in recv from rank 2, which ended with exit status 3"),
        (Waiting(0, "recv", (1, 2), ANY_RANK), "rank 0 waits in recv from any rank"),
        (Waiting(0, "recv", (1,), ANY_RANK), "rank 0 waits in recv from any rank, and rank 1 has finished"),
        (
            Waiting(0, "all_reduce", (1, 2), num_bytes=8, number=1),
            "rank 0 waits in all_reduce #2 (8 B), which rank 2 has not reached, which rank 1 finished without",
        ),
        (
            Waiting(0, "Lock.acquire", (5,), said="Lock.acquire", thread=9, label="Thread-2"),
            "rank 0 (Thread-2) waits in Lock.acquire",
        ),
    ],
)
def test_a_sentence_names_the_call_and_who_will_never_answer(waiting: Waiting, says: str) -> None:
    assert Standing(3, [waiting], {1: FINISHED, 2: "ended with exit status 3"}).sentence(waiting) == says


def test_a_rank_that_died_has_a_line_of_its_own() -> None:
    waits = [Waiting(0, "recv", (1,), 1)]
    assert Standing(3, waits, {1: "was killed by SIGKILL", 2: FINISHED}).lines() == [
        "rank 0 waits in recv from rank 1, which was killed by SIGKILL", "rank 1 was killed by SIGKILL",
        "Finished: rank 2.",
    ]  # fmt: skip


def test_four_at_one_place_are_told_it_once_and_in_a_script_the_way_out() -> None:
    def report(count: int, where: str) -> list[str]:
        waits = [Waiting(rank, "send", ((rank + 1) % count,), (rank + 1) % count, where=where) for rank in range(count)]
        return Standing(count, waits).report().splitlines()

    script = "exchange.py, line 6: dist.send(x, right)"
    *_, all_send, place, each, nothing, way_out = report(4, script)
    assert all_send == "All of them are in a send, and none has got as far as a receive."
    assert [place, each, nothing] == [f"All of them are at {script}", "  each waits in send to the next", ""]
    assert way_out.startswith("Way out: let rank 0 receive before it sends")
    assert hasattr(torch.distributed, way_out.removesuffix(".").rpartition(".")[2])
    assert report(3, script)[3] == f"  rank 0 waits in send to rank 1 at {script}"  # few lines keep their place
    assert report(4, "Cell In[5], line 3: dist.send(x, right)")[-1] == each  # a lesson asks for the way out
    many = [
        Waiting(rank, "send", ((rank + 1) % 4,), (rank + 1) % 4, num_bytes=8 << rank, where=script) for rank in range(4)
    ]
    assert Standing(4, many).report().splitlines()[5] == "  rank 1 waits in send to rank 2 (16 B)"  # not all alike
    receiving = [Waiting(rank, "recv", (1 - rank,), 1 - rank, where=script) for rank in range(2)]
    assert "batch_isend_irecv" not in Standing(2, receiving).report()
