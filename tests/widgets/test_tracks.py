"""Of two runs, a still's row in which bytes go both ways at once is two tracks."""

from __future__ import annotations

import numpy as np

from labkit.timeline import COMMUNICATION, Timeline
from labkit.widgets.layout import NUM_COLUMNS, row_layout, window_of
from labkit.widgets.palette import RECEIVE, SEND
from labkit.widgets.static_timeline import picture_bars, picture_shares
from labkit.widgets.tracks import bands_of, tracks_of


def exchange(receives: int) -> Timeline:
    """Return a rank that passes a barrier, sends, and receives from a time on."""
    kinds = ["barrier", "isend", "irecv"]
    return Timeline([0] * 3, [COMMUNICATION] * 3, [0, 10, receives], [10, 20, 40], kinds, kinds, peer=[-1, 1, 1])


def test_what_comes_is_over_what_goes_and_a_barrier_in_both() -> None:
    timeline = exchange(10)
    layout = row_layout(timeline, is_beside=True)
    (bars,) = picture_bars(timeline, layout.rows)
    above, below = tracks_of(bars)
    assert [above[0].tolist(), above[1].tolist()] == [[0, 10], [10, 40]] and above[2][1] == RECEIVE
    assert [below[0].tolist(), below[1].tolist()] == [[0, 10], [10, 20]] and below[2][1] == SEND
    shares = picture_shares(timeline, rows=layout.rows)
    (top, high, comes), (under, as_high, goes) = bands_of(layout, shares, [bars], window_of(timeline))
    assert high == as_high == under - top == layout.bar_height // 2
    assert np.isclose([comes[RECEIVE].sum(), goes[SEND].sum()], [NUM_COLUMNS * 0.75, NUM_COLUMNS * 0.25]).all()
    assert not comes[SEND].any() and not goes[RECEIVE].any()


def test_calls_one_after_the_other_are_one_row_and_so_are_all_of_a_run_alone() -> None:
    timeline = exchange(20)
    layout = row_layout(timeline, is_beside=True)
    shares = picture_shares(timeline, rows=layout.rows)
    for bars in (picture_bars(timeline, layout.rows), ()):
        ((top, high, row),) = bands_of(layout, shares, bars, window_of(timeline))
        assert (top, high) == (layout.tops[0], layout.bar_height) and (row == shares[0]).all()
