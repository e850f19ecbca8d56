"""Ranks are alike that did the same at the same time."""

from __future__ import annotations

import numpy as np

import labkit
from labkit.timeline import COMMUNICATION, REGION, Timeline
from labkit.timeline.similar_ranks import similar_ranks


def calls(starts: list[int], kinds: list[str] | None = None, flow: list[int] | None = None) -> Timeline:
    """Return ranks with one call each, of 1000 ns."""
    count = len(starts)
    begin, kind = np.array(starts), kinds or ["all_reduce"] * count
    return Timeline(range(count), [COMMUNICATION] * count, begin, begin + 1000, kind, kind, flow=flow)


def test_three_ranks_of_the_same_calls_at_the_same_time_are_alike_and_two_are_not() -> None:
    assert similar_ranks(calls([0, 5, 0, 700]), range(4)) == [[0, 1, 2]]
    assert similar_ranks(calls([0, 0, 700]), range(3)) == []
    assert similar_ranks(calls([0, 0, 700]), range(3), even_few=True) == [[0, 1]]  # beside another run
    assert similar_ranks(calls([0] * 4, ["all_reduce", "all_reduce", "barrier", "all_reduce"]), range(4)) == [[0, 1, 3]]
    assert similar_ranks(Timeline(num_ranks=4), range(4)) == []


def test_up_to_eight_ranks_that_exchange_messages_stay_apart() -> None:
    for count, groups in ((8, 0), (9, 1)):
        kinds = ["isend"] * count
        assert len(similar_ranks(calls([0] * count, kinds, flow=list(range(count))), range(count))) == groups


def test_names_make_no_rank_unlike_another() -> None:
    plain = calls([0, 0, 0])
    named = Timeline(
        [0, *plain.rank], [REGION, *plain.lane], [0, *plain.start_ns], [900, *plain.end_ns], ["x", *plain.name],
        ["span", *plain.kind],
    )  # fmt: skip
    assert similar_ranks(named, range(3)) == [[0, 1, 2]]


def test_ranks_that_hold_more_memory_are_shown_apart() -> None:
    equal = labkit.recorded("who_holds")
    assert similar_ranks(equal, range(4)) == []
    del equal.tables["memory"]
    assert similar_ranks(equal, range(4)) == [[0, 1, 2, 3]]
