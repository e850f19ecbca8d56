"""The picture, read back pixel by pixel."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labkit.timeline import COMMUNICATION, COMPUTE, HOST, REGION, Timeline
from labkit.timeline.streams import streams
from labkit.timeline.transfers import transfer_table
from labkit.widgets.annotations import lanes_in_words
from labkit.widgets.canvas import size_on_page
from labkit.widgets.layout import LEFT, NUM_COLUMNS, TOP, picture_rows, row_layout, shown_ranks, time_unit
from labkit.widgets.palette import CATEGORIES, categories_of, category_of
from labkit.widgets.static_timeline import (
    MAX_BYTES,
    WIDTH,
    category_in_words,
    picture_shares,
    title_of,
    to_png,
)
from tests.widgets.sharded_run import sharded_run
from tests.widgets.still_pixels import on_ground

WHITE = (255, 255, 255)
FORWARD, BACKWARD = ((0x13, 0x95, 0xF9), (0xE8, 0xB1, 0x30))


def _bar(timeline: Timeline, row: int) -> np.ndarray:
    """Return the pixels of the upper line of a row's bar, shape (NUM_COLUMNS, 3)."""
    image = on_ground(to_png(timeline))
    return image[TOP + row_layout(timeline).tops[row], LEFT : LEFT + NUM_COLUMNS]


def test_idle_pixels_are_ground_and_busy_ones_have_their_categorys_colour() -> None:
    timeline = Timeline([0, 0], [COMPUTE] * 2, [0, 570], [190, 760], ["forward", "backward"], ["span"] * 2)
    bar = _bar(timeline, 0)
    assert {tuple(pixel) for pixel in bar[2:188]} == {FORWARD}
    assert {tuple(pixel) for pixel in bar[192:568]} == {WHITE}
    assert {tuple(pixel) for pixel in bar[572:758]} == {BACKWARD}


def test_a_pixel_that_is_three_quarters_idle_is_three_quarters_ground() -> None:
    quarter = np.arange(NUM_COLUMNS) * 100
    rank, lane = np.zeros(NUM_COLUMNS), np.full(NUM_COLUMNS, COMPUTE)
    timeline = Timeline(rank, lane, quarter, quarter + 25, ["x"] * NUM_COLUMNS, ["span"] * NUM_COLUMNS)
    shares = picture_shares(Timeline([0, 0], [COMPUTE] * 2, [0, 75_000], [1, 76_000], ["x"] * 2, ["span"] * 2))
    assert shares.sum() == pytest.approx((1 + 1000) / 100)
    picture = _bar(timeline, 0).astype(float)
    paint = np.array(FORWARD)
    mean = picture.mean(0)
    assert mean == pytest.approx(255 - 0.25 * (255 - paint), abs=1.5)


def test_waiting_is_striped_so_that_it_differs_without_colour() -> None:
    tables = {
        "transfer": transfer_table([(0, 100, 100)]),
        "call": {"span": np.array([0]), "blocking": np.array([True])},
    }
    timeline = Timeline([0], [COMMUNICATION], [0], [100], ["recv"], ["recv"], tables=tables)
    image = on_ground(to_png(timeline))
    top = TOP + row_layout(timeline).tops[0]
    shades = image[top, LEFT : LEFT + NUM_COLUMNS, 0].astype(int)
    assert {round(shade, -1) for shade in shades.tolist()} == {100, 240}
    below = image[top + 1, LEFT : LEFT + NUM_COLUMNS, 0].astype(int)
    assert np.abs(shades[1:] - below[:-1]).max() <= 1, "each line of pixels lies one to the left of that above"


def test_numbers_beside_the_picture_come_from_the_same_spans() -> None:
    timeline = Timeline([0, 0, 1], [COMPUTE] * 3, [0, 10, 50], [60, 40, 100], ["a", "b", "c"], ["span"] * 3)
    shares = picture_shares(timeline)
    assert shares.sum((1, 2)) / NUM_COLUMNS == pytest.approx([0.6, 0.5])


def test_rows_are_ranks_by_lane_and_lanes_nobody_uses_take_no_room() -> None:
    timeline = Timeline([0, 2], [COMPUTE, HOST], [0, 0], [1, 1], ["a", "b"], ["span"] * 2)
    assert picture_rows(timeline) == [(rank, lane) for rank in range(3) for lane in (COMPUTE, HOST)]


@pytest.mark.in_turn
@pytest.mark.parametrize("num_ranks", [1, 8, 64, 256])
def test_a_picture_of_any_size_is_at_most_60_kilobytes(num_ranks: int) -> None:
    random = np.random.default_rng(0)
    per_rank = 300
    duration = random.lognormal(8, 1.5, (num_ranks, per_rank)).astype(np.int64) + 1
    end = np.cumsum(duration + random.integers(0, 3000, duration.shape), axis=1)
    lane = random.integers(0, 3, (num_ranks, per_rank))
    kind = np.array(["span", "all_reduce", "wait"])[lane]
    timeline = Timeline(
        np.repeat(np.arange(num_ranks), per_rank), lane.ravel(), (end - duration).ravel(), end.ravel(),
        kind.ravel(), kind.ravel(),
    )  # fmt: skip
    png = to_png(timeline)
    assert len(png) <= MAX_BYTES
    image = on_ground(png)
    assert image.shape[1] == WIDTH
    # Reducing colours must not tint what is idle: below the last bar of the first rank lies the gap to the next.
    layout = row_layout(timeline)
    gap = image[TOP + layout.rank_height + 1, LEFT : LEFT + NUM_COLUMNS]
    assert {tuple(pixel) for pixel in gap} == {WHITE}


def test_of_more_than_64_ranks_an_even_choice_is_shown_and_the_title_says_so() -> None:
    timeline = Timeline(np.arange(512), [COMPUTE] * 512, [0] * 512, [1] * 512, ["x"] * 512, ["span"] * 512)
    ranks = shown_ranks(timeline)
    assert len(ranks) == 64 and (ranks[0], ranks[-1]) == (0, 511)
    assert picture_rows(timeline) == [(0, COMPUTE)]  # they did the same
    assert {b - a for a, b in itertools.pairwise(ranks)} == {8, 9}
    assert title_of(timeline) == "512 ranks, 1 ns (64 of the ranks shown)"


def test_a_shorter_run_beside_a_longer_one_is_not_idle_after_its_end() -> None:
    alone = Timeline([0], [COMPUTE], [0], [50], ["a"], ["span"])
    pixels = [on_ground(png) for png in (to_png(alone), to_png(alone, lasting_ns=100))]
    right = [image[TOP : TOP + 16, LEFT + NUM_COLUMNS + 1 :] for image in pixels]
    assert (right[0] == right[1]).all() and (right[0] < 255).any()  # "100 %" in both
    blue = [(image[TOP, LEFT : LEFT + NUM_COLUMNS] == FORWARD).all(1).mean() for image in pixels]
    assert blue == pytest.approx([1, 0.5], abs=0.01)


def test_ranks_that_are_alike_have_one_row_with_their_number_and_the_one_that_is_asked_for_its_own() -> None:
    ends = [100] * 5 + [60]
    timeline = Timeline(range(6), [COMPUTE] * 6, [0] * 6, ends, ["x"] * 6, ["span"] * 6)
    assert picture_rows(timeline) == [(0, COMPUTE), (5, COMPUTE)]
    assert row_layout(timeline).names == {0: "0-4 alike"}
    apart = Timeline(range(9), [COMPUTE] * 9, [0] * 9, [60, 100] * 4 + [60], ["x"] * 9, ["span"] * 9)
    assert row_layout(apart).names == {0: "5 alike", 1: "1,3,5,7"}  # of those that have no room how many they are
    assert [rank for rank, _ in picture_rows(timeline, needed=3)] == [0, 3, 5]


def test_calls_that_follow_each_other_at_once_are_parted_by_a_line_of_ground() -> None:
    once = Timeline([0], [COMPUTE], [0], [100], ["x"], ["span"])
    twice = Timeline([0, 0], [COMPUTE] * 2, [0, 50], [50, 100], ["x"] * 2, ["span"] * 2)
    middle = NUM_COLUMNS // 2
    assert (_bar(once, 0)[middle] != 255).any() and (_bar(twice, 0)[middle] == 255).all()


def test_the_picture_of_an_empty_timeline_has_no_axis_and_says_so() -> None:
    assert size_on_page(to_png(Timeline(num_ranks=2)), WIDTH)["image/png"]["height"] == TOP
    assert title_of(Timeline(num_ranks=2)) == "2 ranks, nothing recorded"


def test_an_empty_timeline_has_a_picture_too() -> None:
    assert to_png(Timeline()).startswith(b"\x89PNG")
    assert to_png(Timeline(num_ranks=4)).startswith(b"\x89PNG")
    assert to_png(Timeline([0], [COMPUTE], [5], [5], ["instant"], ["span"])).startswith(b"\x89PNG")


def test_a_picture_has_two_pixels_each_way_for_each_it_takes_and_one_where_it_would_be_too_large() -> None:
    once = Timeline([0], [COMPUTE], [0], [100], ["x"], ["span"])
    shown, metadata = once._repr_mimebundle_()
    image = Image.open(io.BytesIO(shown["image/png"]))
    assert image.width == 2 * WIDTH and metadata["image/png"] == {"width": WIDTH, "height": image.height // 2}
    assert (np.asarray(image)[1::2] != np.asarray(image)[::2]).any(), "what is drawn is finer, not only larger"
    begins = np.random.default_rng(0).integers(0, 10**6, (64, 300))
    ranks = np.repeat(np.arange(64), 300)
    many = Timeline(ranks, [COMPUTE] * 19_200, begins.ravel(), begins.ravel() + 900, ["x"] * 19_200, ["span"] * 19_200)
    assert Image.open(io.BytesIO(to_png(many))).width == WIDTH


def test_the_axis_has_the_unit_in_which_it_is_at_least_one() -> None:
    assert [time_unit(t)[0] for t in (0, 999, 1000, 10**6, 10**9, 10**12)] == ["ns", "ns", "µs", "ms", "s", "s"]


def test_every_kind_of_span_has_a_category() -> None:
    name = {number: category.name for number, category in enumerate(CATEGORIES)}
    assert name[category_of(COMMUNICATION, "isend", "isend")] == "send"
    assert name[category_of(COMMUNICATION, "recv", "recv")] == "receive"
    assert name[category_of(COMMUNICATION, "all_gather_into_tensor", "x")] == "collective"
    assert name[category_of(COMPUTE, "span", "Backward 3")] == "backward"
    assert name[category_of(COMPUTE, "backward_weight", "x")] == "backward weight"
    assert name[category_of(COMPUTE, "span", "optimizer")] == "optimizer"
    assert name[category_of(HOST, "wait", "wait")] == "blocked"
    timeline = Timeline([0] * 3, [0, 1, 2], [0] * 3, [1] * 3, ["a", "send", "b"], ["span", "send", "span"])
    assert [name[number] for number in categories_of(timeline)] == ["compute", "send", "host"]


def test_drawing_leaves_pyplot_alone(tmp_path: Path) -> None:
    to_png(Timeline([0], [COMPUTE], [0], [5], ["a"], ["span"]))
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


def test_a_lane_in_which_no_rank_is_for_half_a_percent_of_the_time_has_no_row_in_a_picture() -> None:
    def rows_of(computed: int) -> set[int]:
        lanes = [COMPUTE, HOST] * 2
        ends = [computed, 1000, 0, 900]
        timeline = Timeline([0, 0, 1, 1], lanes, [0] * 4, ends, ["a"] * 4, ["span"] * 4)
        return {lane for _, lane in row_layout(timeline).rows}

    assert rows_of(4) == {HOST} and rows_of(6) == {COMPUTE, HOST}


def test_brackets_that_say_no_more_than_colours_have_no_rows_and_blue_is_called_forward() -> None:
    def of(name: str) -> Timeline:
        lanes, begins, ends = [COMPUTE, COMPUTE, REGION, REGION], [0, 50, 0, 50], [50, 100, 50, 100]
        return Timeline([0] * 4, lanes, begins, ends, ["add", "mul", "forward", name], ["add", "mul", "span", "span"])

    assert picture_rows(of("backward")) == [(0, COMPUTE)]
    assert picture_rows(of("block 1")) == [(0, REGION), (0, COMPUTE)]
    assert category_in_words(of("backward"), 0).name == "forward"
    assert category_in_words(of("block 1"), 0).name == "compute"  # nothing is backward


@pytest.mark.in_turn
def test_a_still_says_how_many_streams_lie_in_its_rows() -> None:
    timeline = sharded_run(2)
    layout = row_layout(timeline)
    assert lanes_in_words(timeline, layout) == ", 4 streams folded"
    alone = timeline.select(streams(timeline)[1] != 2)  # then each lane holds one, and copies are the host's
    assert len(streams(alone)[0]) == 3 and lanes_in_words(alone, row_layout(alone)) == ""
