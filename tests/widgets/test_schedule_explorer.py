"""Schedules placed in time, held against closed forms, and what is said of those that cannot be carried out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from labkit.errors import ConfigError
from labkit.plans.pipeline import Schedule
from labkit.plans.pipeline_records import ops_of
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.schedules import FORMS, V_SHAPED, gpipe, interleaved, one_f_one_b, zb_h1, zb_v
from labkit.timeline import COMPUTE, Timeline
from labkit.widgets.schedule_explorer import closed_form, schedule_explorer
from tests.widgets.in_page import Evaluate


def zero_bubble(stage: int, num_stages: int, num_microbatches: int) -> list[str]:
    """ZB-H1 (Qi et al., 2023): the weights' part of microbatch j comes after the input's part of j + stage."""
    order, weights = [], 0
    for op in ops_of(one_f_one_b(stage, num_stages, num_microbatches), stage):
        order.append(str(op).replace("B", "I"))
        if op.kind == "B" and op.microbatch >= stage:
            order.append(f"W{weights}")
            weights += 1
    return order + [f"W{number}" for number in range(weights, num_microbatches)]


def _placed(make: Any, stages: int, count: int, **times: float) -> Schedule:
    lists = [ops_of(make(stage, stages, count), stage) for stage in range(stages)]
    return place(make.__name__, lists, v_shaped=make.__name__ in V_SHAPED, **times)


@pytest.mark.in_turn
@pytest.mark.parametrize("make", [gpipe, one_f_one_b])
@pytest.mark.parametrize(("stages", "count"), [(1, 1), (2, 1), (2, 5), (4, 8), (8, 3), (8, 32)])
def test_the_bubble_is_the_closed_forms(make: Any, stages: int, count: int) -> None:
    schedule = _placed(make, stages, count)
    assert schedule.bubble() == pytest.approx((stages - 1) / (count + stages - 1))
    assert closed_form(schedule) == pytest.approx(schedule.bubble())
    assert not schedule.faults


def test_stage_s_holds_all_microbatches_in_gpipe_and_p_minus_s_in_1f1b() -> None:
    assert [_placed(gpipe, 4, 8).peak(stage) for stage in range(4)] == [8, 8, 8, 8]
    assert [_placed(one_f_one_b, 4, 8).peak(stage) for stage in range(4)] == [4, 3, 2, 1]


def test_backward_in_two_parts_leaves_a_third_of_the_bubble() -> None:
    whole = _placed(one_f_one_b, 4, 8)
    parts = _placed(zero_bubble, 4, 8)
    assert parts.makespan - 8 * 3 == pytest.approx((whole.makespan - 8 * 3) / 3)
    assert parts.peak(0) == 4


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (3, 6), (4, 4), (4, 8), (8, 16)])
def test_two_chunks_divide_the_bubble_as_the_closed_form_says(stages: int, count: int) -> None:
    schedule = _placed(interleaved, stages, count)
    assert schedule.bubble() == pytest.approx((stages - 1) / (2 * count + stages - 1))
    assert closed_form(schedule) == pytest.approx(schedule.bubble())


@pytest.mark.in_turn
@pytest.mark.parametrize("stages", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 16])
def test_every_form_can_be_carried_out_for_any_numbers(stages: int, count: int) -> None:
    assert [name for name, make in FORMS.items() if _placed(make, stages, count).faults] == []


def test_zb_h1_waits_p_minus_one_times_what_w_leaves_over() -> None:
    """Qi et al. 2023, table 1: (P-1)(tF + tI - tW) of bubble on each stage, here with tF = 1, tI = 1.5, tW = 0.5."""
    assert [[zb_h1(s, p, m) for s in range(p)] for p, m in ((2, 3), (4, 8))] == [
        ["".join(zero_bubble(s, p, m)) for s in range(p)] for p, m in ((2, 3), (4, 8))
    ]
    schedule = _placed(zb_h1, 4, 8, weights=0.25)
    assert schedule.makespan == pytest.approx(8 * 3 + 3 * (1 + 1.5 - 0.5))


@pytest.mark.parametrize(("stages", "count"), [(1, 1), (2, 3), (2, 8), (3, 5), (4, 7), (4, 16), (8, 15), (8, 32)])
def test_zb_v_waits_only_until_its_first_operation_and_holds_what_1f1bs_fullest_holds(stages: int, count: int) -> None:
    """Qi et al. 2023, section 6: no bubble within a stage if F = I = W and M >= 2P - 1; at most P microbatches held."""
    schedule = _placed(zb_v, stages, count)
    assert not schedule.faults and not schedule.stuck
    for stage, row in enumerate(schedule.stages):
        assert row[0].start == pytest.approx(stage / 2)  # a chunk's forward takes half a microbatch's
        assert all(after.start == pytest.approx(before.end) for before, after in pairwise(row))
        assert schedule.peak(stage) == min(stages, count)
    assert schedule.bubble() == pytest.approx((stages - 1) / (6 * count + stages - 1))
    assert closed_form(schedule) == pytest.approx(schedule.bubble())


@pytest.mark.parametrize(("stages", "count"), [(2, 2), (2, 5), (4, 4), (4, 8), (8, 16)])
def test_zb_v_is_the_order_that_torch_carries_out(stages: int, count: int) -> None:
    from torch.distributed.pipelining.schedules import ScheduleZBVZeroBubble

    letters = {"FORWARD": "F", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
    torchs = ScheduleZBVZeroBubble.__new__(ScheduleZBVZeroBubble)
    torchs.pp_group_size, torchs._num_stages, torchs.num_stages, torchs._n_microbatches = stages, 0, 2 * stages, count
    for stage in range(stages):
        actions = [each for each in torchs._calculate_single_rank_operations(stage) if each is not None]
        words = [
            (letters[each.computation_type.name], each.microbatch_index, int(each.stage_index >= stages))
            for each in actions
        ]
        assert [(op.kind, op.microbatch, op.chunk) for op in ops_of(zb_v(stage, stages, count), stage)] == words


def test_the_second_chunk_of_a_v_comes_back_from_the_last_stage() -> None:
    placed = _placed(zb_v, 2, 3)
    ends = {(stage, str(each.op)): (each.start, each.end) for stage, row in enumerate(placed.stages) for each in row}
    assert ends[1, "F0.1"][0] >= ends[1, "F0"][1] and ends[0, "F0.1"][0] >= ends[1, "F0.1"][1]
    assert ends[1, "I0.1"][0] >= ends[0, "I0.1"][1] and ends[0, "I0"][0] >= ends[1, "I0"][1]
    straight = place("", [ops_of(zb_v(stage, 2, 3), stage) for stage in range(2)])
    assert [row[0].start for row in straight.stages] != [row[0].start for row in placed.stages] or straight.faults
    assert schedule_explorer(zb_v).data["schedules"] == [{"name": "zb_v", "form": "zb_v"}]
    assert schedule_explorer(zb_v).numbers["zb_v"]["bubble"] == pytest.approx(3 / 51)


def test_messages_make_the_bubble_larger() -> None:
    assert _placed(one_f_one_b, 4, 8, message=0.5).bubble() > _placed(one_f_one_b, 4, 8).bubble()


def _drawn(seed: int) -> list[list[str]]:
    """Return lists of a schedule in which some operations changed places, were lost or stand twice."""
    draw = random.Random(seed)
    stages, count = draw.randint(1, 4), draw.randint(1, 5)
    make = draw.choice([gpipe, one_f_one_b, zero_bubble])
    lists = [[str(op) for op in ops_of(make(stage, stages, count), stage)] for stage in range(stages)]
    for _ in range(draw.randint(0, 3)):
        ops = draw.choice(lists)
        first, second = draw.randrange(len(ops)), draw.randrange(len(ops))
        ops[first], ops[second] = ops[second], ops[first]
        if draw.random() < 0.2:
            ops.pop(first)
    return lists


def test_javascript_places_what_python_places_also_in_orders_that_cannot_be(evaluate: Evaluate) -> None:
    drawn = [_drawn(seed) for seed in range(80)]
    placed = [place("", [ops_of(ops, stage) for stage, ops in enumerate(lists)], 1, 2, 0.25, 0.25) for lists in drawn]
    assert 10 < sum(bool(schedule.stuck) for schedule in placed) < 70
    words = [["".join(ops) for ops in lists] for lists in drawn]
    expression = "words.map((lists) => place(lists.map(parse), { tf: 1, tb: 2, tm: 0.25, tw: 0.25 }))"
    found = evaluate("schedule", expression, words=words)
    for schedule, seen in zip(placed, found, strict=True):
        rows = [[[list(_triple(each.op)), each.start, each.end] for each in row] for row in schedule.stages]
        assert seen["stages"] == rows
        assert seen["stuck"] == [[stage, list(_triple(op))] for stage, op in schedule.stuck]
        assert seen["faults"] == list(schedule.faults)
        assert seen["blocked"] == [[s, list(_triple(op)), t, list(_triple(on))] for s, op, t, on in schedule.blocked]


def test_javascript_counts_bubble_and_memory_as_python_does(evaluate: Evaluate) -> None:
    made = [(make, stages, count) for make in (gpipe, one_f_one_b, zero_bubble) for stages, count in ((2, 3), (4, 8))]
    placed = [_placed(*each) for each in made]
    rows = [[[[list(_triple(o.op)), o.start, o.end] for o in row] for row in each.stages] for each in placed]
    bubbles = evaluate("schedule", "rows.map(bubbleOf)", rows=rows)
    assert bubbles == pytest.approx([each.bubble() for each in placed])
    held = evaluate("schedule", "rows.map((stages) => stages.map((ops) => heldBy(ops, 1)))", rows=rows)
    assert held == [[[list(p) for p in each.held(s)] for s in range(len(each.stages))] for each in placed]


@pytest.mark.parametrize(("stages", "count"), [(2, 3), (4, 8), (3, 1)])
@pytest.mark.parametrize("make", [gpipe, one_f_one_b, zero_bubble])
def test_the_critical_path_is_a_chain_without_gaps_and_the_idle_pieces_are_the_bubble(
    make: Any, stages: int, count: int
) -> None:
    schedule = _placed(make, stages, count, message=0.25)
    times = {(stage, placed.op): placed for stage, row in enumerate(schedule.stages) for placed in row}
    path = schedule.critical_path(0.25)
    assert times[path[0]].end == schedule.makespan and times[path[-1]].start == 0
    for after, before in pairwise(path):
        assert times[before].end + 0.25 * (after[0] != before[0]) == pytest.approx(times[after].start)
    idle = sum(end - start for _, start, end, _ in schedule.idle())
    assert idle == pytest.approx(schedule.bubble() * stages * schedule.makespan)


def test_gpipe_idles_in_the_warm_up_and_in_the_drain_alone() -> None:
    idle = schedule_explorer(gpipe).numbers["gpipe"]["idle"]
    assert idle == pytest.approx({"warm-up": 24 / 132, "steady": 0.0, "drain": 12 / 132}, abs=1e-9)


def test_javascript_finds_the_same_critical_path_and_idle_pieces(evaluate: Evaluate) -> None:
    made = [(make, stages, count) for make in (gpipe, one_f_one_b, zero_bubble) for stages, count in ((2, 3), (4, 8))]
    placed = [_placed(*each, message=0.5) for each in made]
    rows = [[[[list(_triple(o.op)), o.start, o.end] for o in row] for row in each.stages] for each in placed]
    paths = evaluate("schedule", "rows.map((stages) => criticalPath(stages, 0.5))", rows=rows)
    positions = [
        [[s, [o.op for o in each.stages[s]].index(op)] for s, op in each.critical_path(0.5)] for each in placed
    ]
    assert paths == positions
    idle = evaluate("schedule", "rows.map(idleOf)", rows=rows)
    parts = ["warm-up", "steady", "drain"]
    assert idle == [[[s, a, b, parts.index(part)] for s, a, b, part in each.idle()] for each in placed]


def test_a_stage_that_holds_more_than_its_memory_is_named() -> None:
    assert schedule_explorer(gpipe, memory_limit=4).sentence.endswith("More than the memory's 4 on stage 0, 1, 2, 3.")
    assert "memory's" not in schedule_explorer(one_f_one_b, memory_limit=4).sentence


def _triple(op: Any) -> tuple[str, int, int]:
    return op.kind, op.microbatch, op.chunk


def test_javascript_makes_the_same_forms(evaluate: Evaluate) -> None:
    sizes = [(p, m) for p in (1, 2, 4, 8) for m in (1, 3, 8)]
    for name, make in FORMS.items():
        expression = f"sizes.map(([p, m]) => Array.from({{ length: p }}, (_, s) => inForm('{name}', s, p, m)))"
        found = evaluate("schedule", expression, sizes=sizes)
        assert found == [[[list(_triple(op)) for op in ops_of(make(s, p, m), s)] for s in range(p)] for p, m in sizes]


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ([["F0", "B0"], ["B0", "F0"]], "Stage 1: B0 stands before F0."),
        ([["F0", "B0"], ["F0", "F1", "B0", "B1"]], "Stage 1 stands at F1, needs F1 of stage 0, but stage 0 has no F1."),
        ([["F0", "W0", "I0"]], "Stage 0: W0 stands before I0."),
        ([["F0", "B0", "B0"]], "Stage 0: B0 stands in the list twice."),
        ([["F0"]], "Stage 0: F0 has no backward."),
        ([["F0", "B0", "F1", "B1"], ["F1", "B1", "F0", "B0"]], None),
    ],
)
def test_an_order_that_cannot_be_names_the_dependency(lists: list[list[str]], says: str | None) -> None:
    faults = place("mine", [ops_of(ops, stage) for stage, ops in enumerate(lists)]).faults
    if says:
        assert faults[0] == says
    else:
        assert faults[0] == "Deadlock: stages 0 and 1 wait for each other."
        assert faults[1] == "Stage 0 stands at B0 and waits for B0 of stage 1, which stands at F1."


def test_a_function_that_makes_a_known_form_is_sent_by_name_alone() -> None:
    def mine(stage: int, num_stages: int, num_microbatches: int) -> list[str]:
        return [f"F{m}" for m in range(num_microbatches)] + [f"B{m}" for m in range(num_microbatches)]

    assert schedule_explorer(mine).data["schedules"] == [{"name": "mine", "form": "gpipe"}]
    assert schedule_explorer(zero_bubble).data["schedules"] == [{"name": "zero_bubble", "form": "zb_h1"}]


def test_a_function_wrong_for_some_numbers_is_sent_with_what_is_wrong() -> None:
    def mine(stage: int, num_stages: int, num_microbatches: int) -> list[str]:
        if num_microbatches == 1:
            raise IndexError("list index out of range")
        if num_stages == 8 and stage == 7:
            return ["B0", "F0"]
        return [str(op) for op in ops_of(gpipe(stage, num_stages, num_microbatches), stage)]

    (entry,) = schedule_explorer(mine).data["schedules"]
    assert entry["faults"]["2,1"] == ["mine fails for 2 stages and 1 microbatches: IndexError: list index out of range"]
    assert entry["lists"]["8,4"][7] == "B0F0"
    assert entry["lists"]["2,2"] == ["F0F1B0B1", "F0F1B0B1"]


def test_a_function_that_leaves_a_microbatch_out_is_told_so() -> None:
    def mine(stage: int, num_stages: int, num_microbatches: int) -> list[str]:
        return [f"{kind}{m}" for kind in "FB" for m in range(num_microbatches // 2 * 2)]

    (entry,) = schedule_explorer(mine).data["schedules"]
    assert entry["faults"] == {f"{p},1": ["mine has 0 microbatches; 1 were asked for."] for p in (2, 3, 4, 8)}


def test_a_run_shows_its_own_times() -> None:
    starts = [0, 100, 300, 100, 200]
    ends = [100, 200, 500, 200, 300]
    names = ["F0", "F1", "B0", "F0", "B0"]
    run = Timeline([0, 0, 0, 1, 1], [COMPUTE] * 5, starts, ends, names, ["span"] * 5)
    figure = schedule_explorer(run, num_stages=2, num_microbatches=2)
    assert figure.numbers["schedule 0"]["bubble"] == pytest.approx(1 - 600 / 1000)
    assert figure.data["schedules"][0]["placed"][1] == [["F0", 1e-7, 2e-7], ["B0", 2e-7, 3e-7]]
    # At the median times, 100 ns forward and 150 backward, stage 0 would wait for B0 of stage 1 until 350 ns.
    assert figure.data["schedules"][0]["model"][0][-1] == ["B0", 3.5e-7, 5e-7]


@dataclass(frozen=True)
class Pause:
    seconds: float


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "schedule 0 is a int; give a function"),
        ([[Pause(1.0)]], "Record 0 of stage 0 is a Pause; a schedule holds Forward"),
        ([None], "The schedule of stage 0 is a NoneType"),
        (Timeline(), "has no spans F0, B0, ...: wrap forward in labkit.span"),
    ],
)
def test_what_is_no_schedule_is_refused_in_words(given: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        schedule_explorer(given)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="17 stages and 8 microbatches were asked for"):
        schedule_explorer(num_stages=17)


@pytest.mark.in_turn
def test_a_figure_is_small_and_the_same_every_time() -> None:
    bundle, size = schedule_explorer(gpipe, zero_bubble)._repr_mimebundle_()
    assert len(bundle["text/html"]) + len(bundle["image/png"]) * 4 / 3 <= 106_000
    assert (bundle, size) == schedule_explorer(gpipe, zero_bubble)._repr_mimebundle_()
