"""Stills have no ground of their own: what is in them is read on a white page and on a dark one, by numbers."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure

import labkit
from labkit.timeline import COMMUNICATION, COMPUTE, Timeline
from labkit.widgets import guess_picture, plots
from labkit.widgets.colours import ARROW, GREY, INK, RED, ink_on, still_fill, still_ink
from labkit.widgets.explorer import Explorer
from labkit.widgets.language import DARK, FRESH, LIGHT, SERIES, STALE
from labkit.widgets.line_names import Ending, names_at
from labkit.widgets.palette import CATEGORIES
from labkit.widgets.scene import Rect, Text
from labkit.widgets.static_timeline import draw, encoded, of_few_colours, to_png
from tests.sampling import one_in
from tests.widgets.colour_vision import VISIONS, contrast, distance, least_distance
from tests.widgets.still_pixels import GROUNDS, on_ground, opacity_of

FIGURES = ("batch", "ring", "nodes", "buckets", "stale", "cable", "factory", "residual", "cuts", "zero", "mesh")


EXPLORERS = {
    "ring": labkit.ring_player,
    "schedule": lambda: labkit.schedule_explorer(memory_limit=3),
    "staleness": labkit.staleness_view,
    "buckets": labkit.bucket_explorer,
    "compression": labkit.compression_explorer,
    "sharding": labkit.sharding_player,
}
VIEWS = [*EXPLORERS, *(f"figure {name}" for name in FIGURES)]


@cache
def _view(name: str) -> Explorer:
    return EXPLORERS[name]() if name in EXPLORERS else labkit.figure(name.removeprefix("figure "))


def _least(colour: str) -> float:
    return min(contrast(colour, ground) for ground in GROUNDS.values())


def test_words_and_lines_of_every_meaning_are_read_on_both_grounds() -> None:
    for colour in (*LIGHT.values(), *DARK.values(), *SERIES, STALE, INK, GREY, RED, ARROW):
        assert _least(still_ink(colour)) >= 4.0, colour
    assert min(distance(RED, DARK[name], vision) for name in ("forward", "collective") for vision in VISIONS) >= 11


def test_bars_of_a_still_stand_out_on_both_grounds_and_from_each_other() -> None:
    bars = {category.name: category.dark for category in CATEGORIES if category.name != "blocked"}
    assert least_distance(list(dict.fromkeys(bars.values()))) >= 11
    for name, colour in bars.items():
        assert _least(colour) >= 1.4, name
        assert contrast(ink_on(colour), colour) >= 4.5, name


@pytest.mark.in_turn
@pytest.mark.parametrize("name", VIEWS)
def test_words_of_a_view_are_read_where_they_stand_and_fills_stand_out_or_have_an_edge(name: str) -> None:
    rects: list[Rect] = []
    for mark in _view(name).scene.marks:
        if isinstance(mark, Rect):
            rects.append(mark)
            fill = still_fill(mark.fill)
            if fill != "none" and mark.stroke == "none" and min(mark.width, mark.height) > 0:
                assert mark.opacity < 1 or _least(fill) >= 1.4, mark
        elif isinstance(mark, Text):
            x, y = mark.x, mark.y - 4
            under = [
                each.fill
                for each in rects
                if each.x < x < each.x + each.width and each.y < y < each.y + each.height and each.opacity == 1
            ]
            under = [still_fill(fill) for fill in under if still_fill(fill) != "none"]
            ink = ink_on(still_fill(mark.on)) if mark.on else still_ink(mark.fill)
            assert contrast(ink, under[-1]) >= 4.0 if under else _least(ink) >= 4.0, mark


@pytest.mark.in_turn
@pytest.mark.parametrize("name", one_in(4, VIEWS))
def test_a_view_has_no_slab_and_says_the_same_on_both_grounds(name: str) -> None:
    png = _view(name).to_png()
    opacity = opacity_of(png)
    assert opacity[0, 0] == opacity[-1, -1] == 0 and (opacity == 0).mean() > 0.25
    for ground in GROUNDS:
        seen = on_ground(png, ground).astype(int)
        assert (np.abs(seen - seen[0, 0]).max(2) > 40).mean() > 0.01


def _timeline(num_spans: int) -> Timeline:
    start = np.arange(num_spans) * 100
    lane = np.arange(num_spans) % 2
    kind = np.array(["span", "all_reduce"])[lane]
    lanes = np.array([COMPUTE, COMMUNICATION])[lane]
    return Timeline(np.arange(num_spans) % 3, lanes, start, start + 250, kind, kind)


@pytest.mark.in_turn
def test_a_timeline_and_two_beside_each_other_have_no_slab() -> None:
    few = _timeline(20)
    for png in (to_png(few), to_png(few, event=3, note="here"), labkit.compare(few, few).to_png(), to_png(Timeline())):
        opacity = opacity_of(png)
        assert opacity[0, 0] == opacity[-1, -1] == 0 < opacity.max() == 255
        seen = on_ground(png, "dark")
        assert (seen == 0x11).all(2).mean() > 0.4 and (seen > 240).all(2).mean() < 0.02, "white is in bars' names alone"


def test_a_timeline_s_bars_have_one_colour_on_both_grounds() -> None:
    light, dark = (on_ground(to_png(_timeline(4)), ground) for ground in GROUNDS)
    both = (light == dark).all(2)
    shown = {"#" + bytes(pixel).hex() for pixel in light[both].tolist()}
    assert {DARK["forward"], DARK["collective"], INK} <= shown


def test_few_colours_leave_words_grey_idle_empty_and_a_bar_s_colour_true() -> None:
    image = draw(_timeline(50))
    few, whole = of_few_colours(image), encoded(image)
    assert len(few) < len(whole)
    assert ((opacity_of(whole) == 0) == (opacity_of(few) == 0)).mean() > 0.99
    assert (opacity_of(few)[opacity_of(whole) == 0] == 0).all()
    for ground in GROUNDS:
        apart = np.abs(on_ground(few, ground).astype(int) - on_ground(whole, ground))
        assert apart.max() < 110 and apart.mean() < 0.6


@pytest.mark.in_turn
def test_a_guess_and_a_figure_of_matplotlib_have_no_slab_and_the_figure_is_left_as_it_was() -> None:
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4], "k", label="ring")
    axes.set(title="a", xlabel="b")
    axes.legend()
    axes.grid()
    before, after = io.BytesIO(), io.BytesIO()
    figure.savefig(before, format="png")
    stills = [plots.to_png(figure), guess_picture.to_png(100, 1400, "MB")]
    figure.savefig(after, format="png")
    assert before.getvalue() == after.getvalue()
    for png in stills:
        opacity = opacity_of(png)
        assert opacity[0, 0] == opacity[-1, -1] == 0 and (opacity == 0).mean() > 0.5
        solid = on_ground(png)[opacity == 255]
        colours = {"#" + bytes(pixel).hex() for pixel in solid.tolist()}
        assert colours and all(_least(colour) >= 4.0 for colour in colours)


def test_the_freshest_gradient_has_an_edge_for_it_is_near_white() -> None:
    rects = [mark for mark in _view("staleness").scene.marks if isinstance(mark, Rect)]
    assert _least(FRESH) < 1.4 and {mark.stroke for mark in rects} == {LIGHT["ink"]}


def test_a_still_s_title_is_computed_and_no_line_s_name_lies_over_another() -> None:
    titles = {name: _view(name).scene.marks[0] for name in EXPLORERS if name != "schedule"}
    assert {name: title.words for name, title in titles.items() if isinstance(title, Text)} == {
        "ring": "4 ranks sum a tensor; each sends 6/4 of it",
        "staleness": "Asynchronous: a gradient is 2.8 updates old on average, 10 at most",
        "buckets": "5 buckets: backward hides 80 % of 4.71 ms of communication; 0.94 ms is exposed",
        "compression": "At 1 GB/s top 1 % makes a step 4.6 times as fast",
        "sharding": "ZeRO-3 holds 8 times less than DDP and sends half as much again",
    }
    endings = [Ending(str(at), at, INK, "") for at in (40.0, 90.0, 92.0, 99.0)]
    heights = sorted(mark.y for mark in names_at(endings, 0, 30, 100) if isinstance(mark, Text))
    assert min(np.diff(heights)) >= 15 and heights[0] - 4 >= 30 and heights[-1] - 4 <= 100
