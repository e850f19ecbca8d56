"""Frames come out whole, however the stream was cut, and lengths are looked at before the rest has come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.frames import LENGTHS, Cutter, FrameError, head
from labkit.launch.channel import Inbox, message


@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=30)), max_size=6), st.integers(1, 40))
def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut(frames: list[tuple[bytes, bytes]], at: int) -> None:
    stream = b"".join(head(header, len(payload)) + payload for header, payload in frames)
    cutter, found = Cutter(), []
    for start in range(0, len(stream), at):
        found += cutter.feed(stream[start : start + at])
    assert found == frames and cutter.missing == LENGTHS.size


@pytest.mark.parametrize("lengths", [(11, 0), (0, 21)])
def test_a_length_beyond_its_limit_is_refused_before_anything_of_it_has_come(lengths: tuple[int, int]) -> None:
    with pytest.raises(FrameError, match=r"(11|21) bytes came; at most (10|20) are taken"):
        Cutter(10, 20).feed(LENGTHS.pack(*lengths))


def test_messages_of_ranks_and_hosts_are_frames_too() -> None:
    data = message("result", [1, 2]) + message("hello")
    inbox = Inbox()
    assert inbox.feed(data[:-1]) == [("result", [1, 2])] and inbox.feed(data[-1:]) == [("hello", None)]
