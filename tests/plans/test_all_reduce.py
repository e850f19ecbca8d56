"""Plans of all ranks, executed on sets of contributions."""

from __future__ import annotations

import pytest

from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Content
from labkit.plans.all_reduce_plan import Fault, Record, Recv, Reduce, Send, read_plan
from labkit.plans.reference.rings import ring_plan
from labkit.plans.reference.trees import tree_plan


def exchange_plans() -> list[list[Record]]:
    """Two ranks: each reduces one chunk, then they swap."""
    return [
        [Send(0, 0, 1), Recv(0, 1, 1), Reduce(0, 1), Send(1, 1, 1), Recv(1, 0, 1)],
        [Send(0, 1, 0), Recv(0, 0, 0), Reduce(0, 0), Send(1, 0, 0), Recv(1, 1, 0)],
    ]


def first(plans: list[list[Record]], num_chunks: int) -> Fault:
    return execute(plans, num_chunks).faults[0]


def test_plans_that_work_leave_every_contribution_once_everywhere() -> None:
    outcome = execute(exchange_plans(), 2)
    assert outcome.faults == ()
    assert {content for chunks in outcome.contents() for content in chunks} == {Content((1, 1))}


def test_a_plan_is_the_same_as_records_and_as_data() -> None:
    as_data = [[{"kind": type(record).__name__, **vars(record)} for record in plan] for plan in exchange_plans()]
    assert execute(as_data, 2) == execute(exchange_plans(), 2)
    assert read_plan(as_data[0], 0) == (exchange_plans()[0], [])


def test_a_send_takes_what_the_chunk_held_before_the_step() -> None:
    outcome = execute([[Send(0, 0, 1), Recv(0, 1, 1)], [Send(0, 1, 0), Recv(0, 0, 0)]], 2)
    assert outcome.contents()[0] == [Content((1, 0)), Content((0, 1))]
    text = "At the end c0 on rank 0 lacks the contribution of rank 1, and 1 more of its chunks lack some."
    assert outcome.faults[0] == Fault("missing", text, 0)


def test_a_contribution_added_twice_is_named_with_step_rank_and_chunk() -> None:
    plans = exchange_plans()
    plans[0].append(Reduce(1, 0))
    assert first(plans, 2) == Fault("twice", "Step 1: rank 0 adds rank 0's contribution to c0 a second time.", 0, 1)


def test_a_message_without_a_partner_is_told_by_the_side_that_waits() -> None:
    assert first([[Recv(0, 0, 1)], []], 1) == Fault(
        "unmatched", "Step 0: rank 0 waits for c0 from rank 1, which sends it nothing.", 0, 0
    )
    assert first([[Send(0, 0, 1)], []], 1) == Fault(
        "unmatched", "Step 0: rank 0 sends c0 to rank 1, which does not receive it.", 0, 0
    )


def test_ranks_that_wait_for_each_other_are_a_deadlock() -> None:
    plans: list[list[Record]] = [[Recv(0, 0, 1), Send(1, 1, 1)], [Recv(0, 1, 0), Send(1, 0, 0)]]
    assert [(fault.kind, fault.text) for fault in execute(plans, 2).faults[:2]] == [
        ("deadlock", "Step 0: rank 0 waits for c0 from rank 1, which sends it in step 1 only."),
        ("deadlock", "Step 0: rank 1 waits for c1 from rank 0, which sends it in step 1 only."),
    ]


def test_messages_meet_in_the_order_they_were_sent_whatever_their_steps() -> None:
    late: list[list[Record]] = [[Send(0, 0, 1)], [Recv(3, 0, 0), Reduce(3, 0), Send(4, 0, 0)]]
    assert execute([[*late[0], Recv(9, 0, 1)], late[1]], 1).faults == ()
    swapped: list[list[Record]] = [[Send(0, 0, 1), Send(1, 1, 1)], [Recv(1, 1, 0)]]
    assert first(swapped, 2).text == "Step 1: rank 1 expected c1 from rank 0, got c0, which it sends in step 0."


def test_what_is_wrong_in_one_step_does_not_end_the_others() -> None:
    plans = [ring_plan(rank, 4) for rank in range(4)]
    plans[0] = [record for record in plans[0] if record != Recv(5, plans[0][-1].chunk, 3)]
    outcome = execute(plans)
    assert [fault.text for fault in outcome.faults] == [
        "Step 5: rank 3 sends c2 to rank 0, which does not receive it.",
        "At the end c2 on rank 0 lacks the contribution of rank 1.",
    ]
    assert outcome.num_complete() == 15


def test_sender_and_receiver_must_name_the_same_chunk() -> None:
    outcome = execute([[Send(0, 0, 1)], [Recv(0, 1, 0)]], 2)
    assert outcome.faults[0] == Fault("chunk_mismatch", "Step 0: rank 1 expected c1 from rank 0, got c0.", 1, 0)
    assert outcome.contents()[1][1] == Content((1, 0), foreign=True)


def test_a_reduce_needs_a_receive_of_its_chunk_in_its_step() -> None:
    assert first([[Reduce(0, 0)], []], 1).text == "Step 0: rank 0 reduces c0, but nothing arrived for it."


@pytest.mark.parametrize(
    ("entry", "kind", "text"),
    [
        (3, "no_plan", "Record 0 of rank 0's plan is a int; a plan holds Send, Recv and Reduce records."),
        ({"kind": "Copy"}, "no_plan", "Record 0 of rank 0's plan is a Copy; a plan holds"),
        ({"kind": "Send", "step": "1.5"}, "no_plan", "Record 0 of rank 0's plan, a Send, has step='1.5'; it must be"),
        (Send(0, True, 1), "no_plan", "has chunk=True; it must be a whole number."),
        (
            Send(0, 2, 1),
            "outside",
            "rank 0 has a Send with chunk 2; there are chunks 0 to 1. Take the number",
        ),
        (Recv(0, 0, -1), "outside", "rank 0 has a Recv with peer -1; there are peers 0 to 1."),
        (Send(0, 0, 0), "itself", "Step 0: rank 0 has a Send with peer 0, which is itself."),
    ],
)
def test_what_is_no_record_or_out_of_range_is_named_and_left_out(entry: object, kind: str, text: str) -> None:
    outcome = execute([[entry], []], 2)
    assert outcome.faults[0].kind == kind and text in outcome.faults[0].text
    assert outcome.messages == ()


def test_what_is_no_list_is_no_plan() -> None:
    assert [execute([plan], 1).faults[0].kind for plan in (None, "Send", {"kind": "Send"})] == ["no_plan"] * 3


def test_steps_that_go_back_are_named() -> None:
    assert first([[Send(1, 0, 1), Send(0, 1, 1)], []], 2) == Fault(
        "backwards", "Rank 0's plan goes back from step 1 to step 0; number the steps on.", 0, 0
    )


def test_sending_and_receiving_one_chunk_in_a_step_is_a_race() -> None:
    assert first([[Send(0, 0, 1), Recv(0, 0, 1)], [Send(0, 0, 0), Recv(0, 0, 0)]], 1) == Fault(
        "race",
        "Step 0: rank 0 sends c0 to rank 1 and receives into it; the plan does not say which comes first.",
        0,
        0,
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 16])
def test_a_tree_is_right_in_two_log2_steps(size: int) -> None:
    outcome = execute([tree_plan(rank, size) for rank in range(size)], 1)
    assert outcome.faults == () and outcome.num_complete() == size
    assert len(outcome.steps) == 2 * (size - 1).bit_length()
    assert len(outcome.messages) == 2 * (size - 1)


def test_time_is_that_of_the_formulas() -> None:
    """A ring of 4 sends 6 quarters, a tree of 8 the whole six times; 16 MB at 1 GB/s and 1 ms."""
    ring, tree = (
        execute([ring_plan(rank, 4) for rank in range(4)]),
        execute([tree_plan(rank, 8) for rank in range(8)], 1),
    )
    assert ring.seconds(16e6, 1e-3, 1e9) == pytest.approx(6 * (1e-3 + 4e-3))
    assert tree.seconds(16e6, 1e-3, 1e9) == pytest.approx(6 * (1e-3 + 16e-3))
