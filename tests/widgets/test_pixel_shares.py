"""The share matrix against a count of ticks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.widgets.pixel_shares import owned_segments, share_matrix, snap_edges

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 2)), max_size=9)


def _arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start = np.array([row[0] for row in rows], dtype=np.int64)
    length = np.array([row[1] for row in rows], dtype=np.int64)
    return start, start + length, np.array([row[2] for row in rows], dtype=np.int64)


def _owner(rows: list[tuple[int, int, int]], tick: int) -> int | None:
    """Return whose tick it is, by the rule in words: last begun, then shorter, then later row."""
    active = [(b, -(b + n), row) for row, (b, n, _) in enumerate(rows) if b <= tick < b + n]
    return rows[max(active)[2]][2] if active else None


@pytest.mark.in_turn
@given(spans, st.integers(1, 12))
def test_every_column_holds_the_ticks_of_each_category(rows: list[tuple[int, int, int]], num_columns: int) -> None:
    ticks_per_column = 5
    window = (0, num_columns * ticks_per_column)
    expected = np.zeros((3, num_columns))
    for tick in range(*window):
        owner = _owner(rows, tick)
        if owner is not None:
            expected[owner, tick // ticks_per_column] += 1 / ticks_per_column
    assert share_matrix(*_arrays(rows), 3, window, num_columns) == pytest.approx(expected, abs=1e-9)


@given(spans)
def test_shares_of_a_column_never_exceed_one(rows: list[tuple[int, int, int]]) -> None:
    shares = share_matrix(*_arrays(rows), 3, (0, 37), 11)
    assert shares.min() >= 0 and shares.sum(0).max() <= 1 + 1e-9


@given(spans)
def test_segments_are_apart_and_in_order(rows: list[tuple[int, int, int]]) -> None:
    start, end, _ = owned_segments(*_arrays(rows))
    assert (end >= start).all() and (start[1:] >= end[:-1]).all()


def test_an_inner_region_lies_on_top_of_an_outer_one() -> None:
    start, end, owner = owned_segments(np.array([0, 10]), np.array([30, 20]), np.array([0, 1]))
    assert list(zip(start, end, owner, strict=True)) == [(0, 10, 0), (10, 20, 1), (20, 30, 0)]


def test_a_thousandth_of_a_column_is_a_thousandth() -> None:
    shares = share_matrix(np.array([500]), np.array([501]), np.array([0]), 1, (0, 10_000), 10)
    assert shares[0].tolist() == pytest.approx([0.001] + [0] * 9)


def test_the_edge_of_a_bar_is_one_whole_pixel_and_what_is_narrower_keeps_its_share() -> None:
    edge = np.array([[1, 1, 0.7, 0, 0, 0.4, 1], [0, 0, 0, 0, 0, 0.6, 0]], dtype=float)
    assert snap_edges(edge)[0].tolist() == [1, 1, 1, 0, 0, 0.4, 1]  # what nobody beside it has stays in its column
    meets = np.array([[1, 0.3, 0], [0, 0.7, 1]])
    assert snap_edges(meets).tolist() == [[1, 0, 0], [0, 1, 1]]
    narrow = np.array([[0, 0.3, 0, 0.2, 0.2, 0]])
    assert snap_edges(narrow).tolist() == narrow.tolist()
