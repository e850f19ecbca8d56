"""Plans of all ranks, executed on sets of contributions."""

from __future__ import annotations

from collections import Counter

from labkit.plans.all_reduce import interpret

Plan = list[dict[str, object]]


def send(step: int, chunk: int, peer: int) -> dict[str, object]:
    return {"kind": "Send", "step": step, "chunk": chunk, "peer": peer}


def recv(step: int, chunk: int, peer: int) -> dict[str, object]:
    return {"kind": "Recv", "step": step, "chunk": chunk, "peer": peer}


def reduce(step: int, chunk: int) -> dict[str, object]:
    return {"kind": "Reduce", "step": step, "chunk": chunk}


def exchange_plans() -> list[Plan]:
    """Two ranks: each reduces one chunk, then they swap."""
    return [
        [send(0, 0, 1), recv(0, 1, 1), reduce(0, 1), send(1, 1, 1), recv(1, 0, 1)],
        [send(0, 1, 0), recv(0, 0, 0), reduce(0, 0), send(1, 0, 0), recv(1, 1, 0)],
    ]


def test_plans_that_work_leave_every_contribution_once_everywhere() -> None:
    outcome = interpret(exchange_plans(), 2)
    assert outcome.problem == ""
    assert all(chunk == Counter({0: 1, 1: 1}) for rank in outcome.contents for chunk in rank)


def test_a_send_takes_what_the_chunk_held_before_the_step() -> None:
    plans = [[send(0, 0, 1), recv(0, 1, 1)], [send(0, 1, 0), recv(0, 0, 0)]]
    outcome = interpret(plans, 2)
    assert outcome.contents[0] == (Counter({0: 1}), Counter({1: 1}))
    assert outcome.problem == (
        "At the end rank 0 holds chunk 0 with the contributions of rank 0 only; rank 1 is missing."
    )


def test_a_contribution_added_twice_is_named_with_step_rank_and_chunk() -> None:
    plans = exchange_plans()
    plans[0].append(reduce(1, 0))
    outcome = interpret(plans, 2)
    assert outcome.kind == "twice"
    assert outcome.problem == (
        "After step 1 rank 0 holds chunk 0 with the contribution of rank 0 twice: "
        "what came from rank 1 was added to a chunk that had it already."
    )


def test_a_receive_without_a_send_is_a_message_without_a_partner() -> None:
    outcome = interpret([[recv(0, 0, 1)], []], 1)
    assert outcome.kind == "unmatched"
    assert outcome.problem == (
        "A message has no partner: rank 0 waits in step 0 for chunk 0 from rank 1, whose plan has ended."
    )


def test_a_send_that_nobody_receives_is_a_message_without_a_partner() -> None:
    outcome = interpret([[send(0, 0, 1)], []], 1)
    assert outcome.problem == (
        "A message has no partner: rank 0 sends chunk 0 in step 0 to rank 1, whose plan has ended."
    )


def test_ranks_that_wait_for_each_other_are_a_deadlock() -> None:
    plans = [[recv(0, 0, 1), send(1, 1, 1)], [recv(0, 1, 0), send(1, 0, 0)]]
    outcome = interpret(plans, 2)
    assert outcome.kind == "deadlock"
    assert outcome.problem == (
        "Nobody can go on: rank 0 waits in step 0 for chunk 0 from rank 1; "
        "rank 1 waits in step 0 for chunk 1 from rank 0."
    )


def test_sender_and_receiver_must_name_the_same_chunk() -> None:
    outcome = interpret([[send(0, 0, 1)], [recv(0, 1, 0)]], 2)
    assert outcome.kind == "chunk_mismatch"
    assert "Rank 0 sends chunk 0 to rank 1" in outcome.problem
    assert "into chunk 1" in outcome.problem


def test_a_reduce_needs_a_receive_of_its_chunk_in_its_step() -> None:
    outcome = interpret([[reduce(0, 0)], []], 1)
    assert outcome.problem == (
        "In step 0 rank 0 reduces chunk 0 but receives nothing in that step; there is nothing to add."
    )


def test_what_is_no_record_or_out_of_range_is_named() -> None:
    assert interpret([[{"kind": "Copy"}], []], 1).problem == (
        "record 0 of rank 0's plan is a Copy; a plan holds Send, Recv and Reduce records."
    )
    assert "names chunk 2; there are chunks 0 to 1" in interpret([[send(0, 2, 1)], []], 2).problem
    assert "names peer 2; rank 0 of 2 can talk to rank 1." in interpret([[send(0, 0, 2)], []], 2).problem
    assert "has step 1.5" in interpret([[{**send(0, 0, 1), "step": "1.5"}], []], 2).problem
    assert "goes back from step 1 to step 0" in interpret([[send(1, 0, 1), send(0, 1, 1)], []], 2).problem


def test_sending_and_receiving_one_chunk_in_a_step_is_a_race() -> None:
    assert interpret([[send(0, 0, 1), recv(0, 0, 1)], [send(0, 0, 0), recv(0, 0, 0)]], 1).kind == "race"
