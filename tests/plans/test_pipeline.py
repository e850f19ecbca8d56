"""Schedules with and without messages, placed in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from labkit.checks.case import Case
from labkit.errors import ConfigError
from labkit.exercises.schedules.find_deadlock.exercise import EXERCISE as FIND_DEADLOCK
from labkit.plans.pipeline import Schedule, most_held
from labkit.plans.pipeline_records import Message, Op, Record, as_data, read_records, read_short
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.schedules import FORMS, V_SHAPED, gpipe, one_f_one_b

GPIPE_2_2 = ("F0 s0 F1 s1 rg0 B0 rg1 B1", "r0 F0 r1 F1 B0 sg0 B1 sg1")


def placed(texts: tuple[str, ...]) -> Schedule:
    return place("", [read_short(text, stage) for stage, text in enumerate(texts)], 1, 1)


@dataclass(frozen=True)
class Recv:
    peer: int
    microbatch: int


def test_a_record_is_the_same_in_short_as_an_object_and_as_data() -> None:
    assert read_short("r0 F0 sg0", 1) == (Message("Recv", 0, 0), Op("F", 0), Message("SendGrad", 0, 0))
    assert read_records([Recv(0, 0)], 1) == (Message("Recv", 0, 0),)
    short = read_short(GPIPE_2_2[0], 0)
    assert read_records([as_data(record) for record in short], 0) == short
    assert " ".join(map(str, short)) == GPIPE_2_2[0]


def test_what_is_no_record_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="Record 1 of stage 0 is a int; a schedule holds Forward"):
        read_records(["F0", 3], 0)
    with pytest.raises(ConfigError, match="The schedule of stage 2 is a NoneType; it must be a list"):
        read_records(None, 2)


def test_messages_that_stand_together_let_1f1b_take_as_long_as_without_messages() -> None:
    with_messages = ("F0 s0 F1 s1 rg0 B0 F2 s2 rg1 B1 rg2 B2", "r0 F0 B0 sg0 r1 F1 B1 sg1 r2 F2 B2 sg2")
    alone = place("", [read_short(one_f_one_b(stage, 2, 3), stage) for stage in range(2)], 1, 1)
    assert placed(with_messages).makespan == alone.makespan == 2 * (3 + 1)


@pytest.mark.parametrize(
    ("texts", "stands"),
    [
        (GPIPE_2_2, {}),
        (("F0 s0 F1 s1 rg0 B0 rg1 B1", "r0 F0 B0 sg0"), {0: "s1"}),
        (("F0 s0 B0 rg0", "r0 F0 B0 sg0"), {0: "B0", 1: "sg0"}),
        (("F0 s0 rg0 B0", "r0 F0 sg0 B0"), {0: "rg0", 1: "sg0"}),
        (("F0 s0 F1 s1 B0 rg0 B1 rg1", "r0 F0 B0 sg0 r1 F1 B1 sg1"), {0: "B0", 1: "sg0"}),
    ],
)
def test_a_stage_stands_at_the_first_record_of_its_step_that_cannot_be_done(
    texts: tuple[str, ...], stands: dict[int, str]
) -> None:
    assert {stage: str(record) for stage, record, *_ in placed(texts).blocked} == stands


def test_a_message_without_a_partner_is_said_with_both_sides() -> None:
    faults = placed(("F0 s0 F1 s1 rg0 B0 rg1 B1", "r0 F0 B0 sg0")).faults
    assert faults == ("Stage 0 stands at s1, needs r1 of stage 1, but stage 1 has no r1.",)


def test_sends_that_face_each_other_are_a_deadlock() -> None:
    faults = placed(
        ("F0 s0 F1 s1 F2 s2 F3 s3 rg0 B0 rg1 B1 rg2 B2 rg3 B3", "r0 F0 r1 F1 B0 sg0 B1 sg1 r2 F2 r3 F3 B2 sg2 B3 sg3")
    ).faults
    assert faults[0] == "Deadlock: stages 0 and 1 wait for each other."
    assert "Stage 0 stands at s2 and waits for r2 of stage 1, which stands at sg0." in faults


@pytest.mark.parametrize("name", FORMS)
def test_the_order_alone_tells_how_much_is_held_as_its_times_do(name: str) -> None:
    orders = [read_short(FORMS[name](stage, 4, 8), stage) for stage in range(4)]
    schedule = place(name, orders, v_shaped=name in V_SHAPED)
    chunks = 2 if name in ("interleaved", "zb_v") else 1
    assert [most_held(order) for order in orders] == [chunks * schedule.peak(stage) for stage in range(4)]


def test_gpipe_holds_every_microbatch_and_1f1b_as_many_as_there_are_stages_behind() -> None:
    assert [most_held(read_short(gpipe(stage, 3, 5), stage)) for stage in range(3)] == [5, 5, 5]
    assert [most_held(read_short(one_f_one_b(stage, 3, 5), stage)) for stage in range(3)] == [3, 2, 1]


@pytest.mark.parametrize("case", FIND_DEADLOCK.visible, ids=lambda case: case.name)
def test_stuck_stages_found_by_hand_are_those_that_are_found_here(case: Case) -> None:
    texts, right = cast(list[list[str]], case.about["texts"]), cast(list[dict[str, Any]], case.about["stuck"])
    found = [{str(stage): as_data(cast(Record, at)) for stage, at, *_ in placed(tuple(each)).blocked} for each in texts]
    assert found == right
