"""Plans played on all ranks at once, and what is said of those that are wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import labkit
from labkit.checks.ring_player import ring_player
from labkit.errors import ConfigError
from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Outcome
from labkit.plans.all_reduce_plan import Record
from labkit.plans.reference.rings import ring_plan
from labkit.plans.watched_ring import read_tag, tagged
from labkit.widgets.ring_player import as_data
from tests.widgets import ring_programs
from tests.widgets.in_page import Evaluate

Plan = list[dict[str, Any]]


def _plans(size: int) -> list[Plan]:
    plans = [ring_plan(rank, size) for rank in range(size)]
    return [[{"kind": type(record).__name__, **vars(record)} for record in plan] for plan in plans]


def _data(played: Outcome) -> list[dict[str, Any]]:
    return json.loads(json.dumps(as_data(played)["steps"]))


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 16])
def test_the_ring_completes_every_chunk_in_two_n_minus_two_steps(size: int) -> None:
    played = execute(_plans(size))
    assert len(played.steps) == 2 * (size - 1)
    assert played.num_complete() == size * size
    assert played.faults == ()


def test_javascript_and_python_play_the_same_ring(evaluate: Evaluate) -> None:
    found = evaluate("ring", "sizes.map((n) => ringSteps(n))", sizes=list(range(2, 17)))
    for step in (step for steps in found for step in steps):
        step["writes"].sort()
    assert found == [_data(execute(_plans(size))) for size in range(2, 17)]


@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 5, 8, 16])
def test_javascript_and_python_play_the_same_ring_of_any_number_of_chunks(evaluate: Evaluate, chunks: int) -> None:
    played = [execute([ring_plan(rank, size, chunks) for rank in range(size)], chunks) for size in range(2, 9)]
    assert [(each.num_complete(), each.faults) for each in played] == [(n * chunks, ()) for n in range(2, 9)]
    found = evaluate("ring", "sizes.map((n) => ringSteps(n, chunks))", sizes=list(range(2, 9)), chunks=chunks)
    for step in (step for steps in found for step in steps):
        step["writes"].sort()
    assert found == [_data(each) for each in played]


def test_fewer_or_more_chunks_than_ranks_take_longer_by_the_formula(evaluate: Evaluate) -> None:
    """16 MB over 4 ranks at 1 GB/s and 1 ms: 6 (1 + 4) ms with 4 chunks, 6 (1 + 16) with 1, 12 (1 + 2) with 8."""
    link = {"size": 16e6, "latency": 1e-3, "bandwidth": 1e9, "slow": -1}
    expression = (
        "[4, 1, 2, 8, 16].map((chunks) => [ringSeconds(4, { ...link, chunks }),"
        " Math.max(...transferTimes(ringSteps(4, chunks), 4, { ...link, chunks }).map((t) => t[4]))])"
    )
    found = evaluate("ring", expression, link=link)
    assert found == [[pytest.approx(each)] * 2 for each in (30e-3, 102e-3, 54e-3, 36e-3, 48e-3)]


def _drawn(seed: int) -> list[Plan]:
    """Return the ring's plans with some records changed."""
    draw = random.Random(seed)
    size = draw.randint(2, 6)
    plans = _plans(size)
    for _ in range(draw.randint(1, 4)):
        plan = draw.choice(plans)
        if not plan:
            continue
        record = draw.choice(plan)
        word = draw.choice([word for word in ("chunk", "peer", "step") if word in record])
        record[word] = draw.randint(0, size - 1)
        if draw.random() < 0.2:
            plan.remove(record)
    return plans


def test_javascript_holds_what_python_says_also_after_wrong_plans(evaluate: Evaluate) -> None:
    played = [execute(_drawn(seed)) for seed in range(60)]
    assert sum(bool(each.faults) for each in played) > 30
    cases = [[_data(each), each.num_ranks, len(each.steps)] for each in played]
    states = evaluate("ring", "cases.map(([steps, n, upto]) => stateBefore(steps, n, upto))", cases=cases)
    assert states == [[[[held.mask, int(held.wrong)] for held in row] for row in each.contents()] for each in played]


def _with(change: Callable[[list[Plan]], None], size: int = 4) -> list[str]:
    plans = _plans(size)
    change(plans)
    return [fault.text for fault in execute(plans).faults]


def test_a_wrong_chunk_is_named_with_the_one_expected() -> None:
    def change(plans: list[Plan]) -> None:
        plans[1][1]["chunk"] = plans[1][2]["chunk"] = 2

    assert _with(change)[0] == "Step 0: rank 1 expected c2 from rank 0, got c0."


def test_a_message_nobody_receives_and_one_nobody_sends_are_told_by_both_sides() -> None:
    def change(plans: list[Plan]) -> None:
        plans[0][0]["peer"] = 3

    assert _with(change)[:2] == [
        "Step 0: rank 1 waits for c0 from rank 0, which sends it nothing.",
        "Step 0: rank 0 sends c0 to rank 3, which does not receive it.",
    ]


def test_a_reduce_in_the_second_half_adds_a_second_time() -> None:
    def change(plans: list[Plan]) -> None:
        chunk = plans[0][10]["chunk"]
        plans[0].insert(11, {"kind": "Reduce", "step": 3, "chunk": chunk})

    assert _with(change)[0] == "Step 3: rank 0 adds rank 0's contribution to c0 a second time."


def test_a_forgotten_reduce_loses_contributions() -> None:
    def change(plans: list[Plan]) -> None:
        plans[2] = [record for record in plans[2] if record["kind"] != "Reduce"]

    texts = _with(change)
    assert len(texts) == 4
    assert texts[0].startswith("At the end c") and "lacks the contribution" in texts[0]


def test_a_number_outside_says_to_take_it_modulo() -> None:
    def change(plans: list[Plan]) -> None:
        plans[3][0]["peer"] = 4

    text = "Step 0: rank 3 has a Send with peer 4; there are peers 0 to 3. Take the number modulo 4."
    assert _with(change)[0] == text


@dataclass(frozen=True)
class Send:
    step: int
    chunk: Any
    peer: int


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (None, "rank 0 is a NoneType; a plan is a list"),
        ([3], "Record 0 of rank 0's plan is a int; a plan holds Send, Recv and Reduce"),
        ([Send(0, "0", 1)], "a Send, has chunk='0'; it must be a whole number"),
    ],
)
def test_what_is_no_plan_is_refused_in_words(plan: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ring_player(lambda rank, size: plan)


def test_a_plan_that_fails_for_some_worlds_is_played_for_the_others() -> None:
    def plan(rank: int, size: int) -> list[Record]:
        if size == 5:
            raise IndexError("list index out of range")
        return ring_plan(rank, size)

    worlds = ring_player(plan).data["played"]
    assert worlds[5]["faults"] == [[0, 0, "plan fails for 5 ranks: IndexError: list index out of range"]]
    assert len(worlds[8]["steps"]) == 14


def test_tags_tell_chunk_and_contributions_of_any_sum() -> None:
    mine = [tagged(rank, 8) for rank in range(8)]
    assert read_tag(mine[3][5] + mine[0][5], 8) == (5, (1, 0, 0, 1, 0, 0, 0, 0))
    assert read_tag(2 * mine[1][7], 8) == (7, (0, 2, 0, 0, 0, 0, 0, 0))
    assert read_tag(mine[0][1] + mine[1][2], 8) is None
    assert read_tag(sum(each[7] for each in mine), 8) == (7, (1,) * 8)
    assert [read_tag(value, 8) for value in (0.0, 0.5, -16.0, float("nan"), float("inf"))] == [None] * 5


@pytest.mark.in_turn
def test_a_real_ring_is_seen_to_send_what_its_plan_says() -> None:
    figure = ring_player(ring_programs.ring_sum, on=labkit.virtual(4))
    assert (figure.numbers["steps"], figure.numbers["complete"], figure.numbers["faults"]) == (6, 16, 0)
    assert figure.numbers["complete_chunks"][2] == [[1], [2], [3], [0]]
    assert figure.data["played"][4]["steps"] == _data(execute(_plans(4)))
    assert len(figure.data["times"]) == 24
    assert figure.to_html() == ring_player(ring_programs.ring_sum, on=labkit.virtual(4)).to_html()


@pytest.mark.in_turn
def test_a_real_ring_on_processes_is_seen_too() -> None:
    figure = ring_player(ring_programs.ring_sum, on=labkit.local(2))
    assert figure.numbers["complete_chunks"] == [[[1], [0]], [[0, 1], [0, 1]]]


def test_a_real_run_that_sends_the_wrong_chunk_is_red_with_both_names() -> None:
    figure = ring_player(ring_programs.sends_the_next_chunk_on_rank_2, on=labkit.virtual(4))
    assert figure.data["played"][4]["faults"][0] == [0, 2, "Step 0: rank 3 expected C from rank 2, got D."]
    assert figure.sentence.endswith("Step 0: rank 3 expected C from rank 2, got D.")


def test_what_is_no_ring_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="Rank 0 sent messages of 3 chunks; the ring player shows rings"):
        ring_player(ring_programs.sends_all_at_once, on=labkit.virtual(3))
    with pytest.raises(ConfigError, match="9 ranks were asked for; the ring player shows 2 to 8"):
        ring_player(ring_programs.ring_sum, on=labkit.virtual(9))


@pytest.mark.in_turn
@pytest.mark.parametrize("figure", [ring_player(), ring_player(ring_plan), ring_player(num_ranks=8)], ids=str)
def test_a_figure_is_small_and_the_same_every_time(figure: Any) -> None:
    bundle, _ = figure._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 92_000
    assert bundle["text/plain"] in bundle["text/html"]
    assert figure.to_svg().startswith("<svg xmlns=") and figure.to_svg().endswith("</svg>")


def test_the_number_of_chunks_is_the_rings_own() -> None:
    assert ring_player(num_chunks=8).sentence.endswith(
        "in 12 steps (plan: ring all-reduce): 32 of 32 chunks are complete at the end."
    )
    for given, chunks in ((ring_plan, 8), (None, 17)):
        with pytest.raises(ConfigError, match=f"num_chunks={chunks} was asked for; the ring takes 1 to 16 chunks"):
            ring_player(given, num_chunks=chunks)


@pytest.mark.in_turn
def test_bytes_repeat() -> None:
    assert ring_player(ring_plan)._repr_mimebundle_() == ring_player(ring_plan)._repr_mimebundle_()
