"""Views for readers who use a keyboard, a screen reader, large type, high contrast or their own eyes' colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit import figure
from labkit.checks.ring_player import ring_player
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import compression_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.sharding_player import sharding_player
from labkit.widgets.staleness_view import staleness_view
from tests.browser.figure_pages import ILLEGAL, Open
from tests.sampling import one_in
from tests.timeline.small_timelines import exchange
from tests.widgets.colour_vision import contrast

pytestmark = [pytest.mark.browser]

FIGURES: list[Callable[[], Explorer]] = [
    lambda: ring_player(num_ranks=4),
    lambda: bucket_explorer(skew_s=2e-3),
    lambda: schedule_explorer(memory_limit=4),
    lambda: schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2),
    staleness_view,
    compression_explorer,
    sharding_player,
    lambda: figure("ring"),
]
VIEWS = ["timeline", "explorers"]


@pytest.fixture
def opened(open_timeline: Open, show: Open, tmp_path: Path) -> Open:
    """Return a function that opens one view in a page of its own."""

    def opened(view: str, theme: str = "light", width: int = 640, **options: Any) -> Any:
        if view != "timeline":
            page = show(*(make() for make in FIGURES), width=width, theme=theme, **options)
            live = ".labkit-figure[data-live] svg[role=img]"
            page.wait_for_function(f"document.querySelectorAll('{live}').length === {len(FIGURES)}")
            return page
        exchange().to_html(tmp_path / "timeline.html")
        viewport = {"width": width, "height": 900}
        return open_timeline(tmp_path / "timeline.html", viewport=viewport, color_scheme=theme, **options)

    return opened


FOCUSED = """() => {
  const at = document.activeElement, style = getComputedStyle(at);
  if (at === document.body) return null;
  const name = at.ariaLabel ?? at.labels?.[0]?.textContent ?? at.textContent;
  const all = [...document.querySelectorAll("*")];
  return [all.indexOf(at), name.trim(), style.outlineStyle, parseFloat(style.outlineWidth), style.outlineColor];
}"""
CONTROLS = """() => [...document.querySelectorAll("button, input, select, summary, [tabindex='0']")].filter(
  (each) => each.checkVisibility() && !each.disabled && each.getClientRects().length).length"""


def _hex(colour: str) -> str:
    """Return "rgb(1, 2, 3)" as "#010203"."""
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("view", "theme", "ground"),
    [
        pytest.param(view, theme, ground, marks=[] if (view, theme) == ("explorers", "light") else pytest.mark.long)
        for view in VIEWS
        for theme, ground in (("light", "#ffffff"), ("dark", "#121212"))
    ],
)
def test_tab_reaches_every_control_in_order_and_each_has_a_name_and_a_ring(
    opened: Callable[..., Any], view: str, theme: str, ground: str
) -> None:
    page = opened(view, theme)
    seen = []
    for _ in range(200):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        if focused is None:
            break
        seen.append(focused)
    assert len(seen) == page.evaluate(CONTROLS) > 5
    assert [place for place, *_ in seen] == sorted(place for place, *_ in seen)
    assert [place for place, name, *_ in seen if not name] == []
    for _, name, style, width, colour in seen:
        assert style == "auto" or (style == "solid" and width >= 2), name
        assert style == "auto" or contrast(_hex(colour), ground) >= 3, name


UNNAMED = """() => [...document.querySelectorAll("input, select")].filter((each) => {
  const label = each.labels?.[0]?.cloneNode(true);
  label?.querySelectorAll("output, input, select").forEach((part) => part.remove());
  return !(each.ariaLabel ?? label?.textContent ?? "").trim();
}).map((each) => each.outerHTML)"""


@pytest.mark.in_turn
@pytest.mark.parametrize("view", one_in(2, VIEWS))
def test_what_is_set_has_a_name_beside_its_value(opened: Callable[..., Any], view: str) -> None:
    page = opened(view)
    assert page.evaluate(UNNAMED) == []
    if view == "explorers":
        assert page.locator(".labkit-figure").last.get_by_role("slider", name="step", exact=True).count() == 1


@pytest.mark.in_turn
def test_a_timeline_s_page_is_all_main_part_and_its_title_the_one_heading(opened: Callable[..., Any]) -> None:
    page = opened("timeline")
    assert page.locator("main h1").inner_text() == page.title()
    assert page.locator("main").count() == page.locator("h1").count() == 1
    assert page.locator("body > :not(main, script)").count() == 0
    assert page.inner_text(".labkit-title") == page.title()  # what is seen; the heading is for those who listen


OUTSIDE = """() => [...document.querySelectorAll("svg[role=img] text, button, label, dd, canvas")].filter((each) => {
  const at = each.getBoundingClientRect();
  return each.checkVisibility() && (at.left < -1 || at.right > innerWidth + 1);
}).map((each) => each.textContent || each.tagName)"""


@pytest.mark.in_turn
@pytest.mark.parametrize("view", one_in(2, reversed(VIEWS)))
def test_at_320_pixels_which_are_640_at_200_percent_nothing_is_outside(opened: Callable[..., Any], view: str) -> None:
    page = opened(view, width=320)
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 320


@pytest.mark.long
def test_under_forced_colours_the_legend_and_pressed_buttons_keep_theirs(opened: Callable[..., Any]) -> None:
    page = opened("timeline", forced_colors="active")
    looks = "each => each.map(mark => getComputedStyle(mark).background)"
    patches = page.eval_on_selector_all(".labkit-legend i[data-category]", looks)
    assert len(set(patches)) == len(patches) > 3
    pressed = page.eval_on_selector("[aria-pressed=true]", "each => getComputedStyle(each).backgroundColor")
    assert pressed != page.eval_on_selector("[aria-pressed=false]", "each => getComputedStyle(each).backgroundColor")


@pytest.mark.long
def test_the_table_of_a_timeline_says_every_bar_and_the_explorers_tables_have_heads(
    opened: Callable[..., Any],
) -> None:
    page = opened("timeline")
    page.press("canvas", "t")
    rows = page.inner_text(".labkit-table tbody").split("\n")
    assert [row.split("\t")[:5] for row in rows] == [
        ["0", "forward", "span", "0 ns", "1 ms"],
        ["0", "isend", "isend", "1 ms", "1 ms"],
        ["1", "recv", "recv", "500 µs", "1.5 ms"],
    ]
    page = opened("explorers")
    page.click("summary >> nth=0")
    page.click("[data-act=table] >> nth=0")
    heads = "each => each.map(head => head.scope + ' ' + head.textContent)"
    assert page.eval_on_selector_all("[data-part=table]:not([hidden]) th", heads)[:2] == ["col rank", "col chunk A"]


@pytest.mark.long
def test_what_a_figure_says_is_not_read_aloud_while_it_plays(opened: Callable[..., Any]) -> None:
    page = opened("explorers")
    assert page.get_attribute("[data-part=say]", "aria-live") == "polite"
    page.click("[data-act=play] >> nth=0")
    page.wait_for_selector("[data-part=say][aria-live=off] >> nth=0", state="attached")
    page.click("[data-act=play] >> nth=0")
    page.click("[data-act=back] >> nth=0")
    assert page.get_attribute("[data-part=say]", "aria-live") == "polite"
