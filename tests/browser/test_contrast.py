"""Every text of every view stands out from what is behind it, in both themes (WCAG 2.2, 1.4.3: 4.5; large type 3)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labkit.checks.ring_player import ring_player
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import compression_explorer
from labkit.widgets.palette import CATEGORIES
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.staleness_view import staleness_view
from tests.browser.figure_pages import ILLEGAL, Open
from tests.timeline.small_timelines import exchange
from tests.widgets.colour_vision import contrast

pytestmark = [pytest.mark.browser]

# Of each text its words, its colour, its size and what lies behind it, from the nearest on. Words that are faded on
# purpose (what is not followed, what is still to come) are no part of it.
TEXTS = """() => {
  const look = getComputedStyle;
  const clear = (at) => !(at instanceof Element) || (+look(at).opacity === 1 && clear(at.parentNode));
  const place = (shape, x, y) => new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
  const shapes = new Map([...document.querySelectorAll("svg")].map((svg) => [
    svg, [...svg.querySelectorAll("rect, path, circle")].filter((each) => !each.closest("defs") && clear(each))
      .map((each) => [each, each.getBoundingClientRect()]),
  ]));
  return [...document.querySelectorAll("body *")].flatMap((at) => {
    const own = [...at.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join("").trim();
    if (!own || at.matches("script, style, title, option, img") || !at.checkVisibility() || !clear(at)) return [];
    const { left, top, width, height } = at.getBoundingClientRect(), behind = [], svg = at.ownerSVGElement;
    const x = left + width / 2, y = top + height / 2;
    if (width < 2) return [];
    for (const [shape, box] of shapes.get(svg) ?? [])
      if (box.left <= x && x <= box.right && box.top <= y && y <= box.bottom && shape.isPointInFill(place(shape, x, y)))
        if (shape.compareDocumentPosition(at) & 4) behind.unshift(look(shape).fill); // it comes before the text
    for (let up = svg ?? at; up instanceof Element; up = up.parentNode) behind.push(look(up).backgroundColor);
    return [[own, svg ? look(at).fill : look(at).color, parseFloat(look(at).fontSize), +look(at).fontWeight, behind]];
  });
}"""
Colour = tuple[float, float, float, float]


def _read(css: str) -> Colour:
    """Return red, green, blue and opacity, from 0 to 1; none of it where something else than a colour is meant."""
    numbers = (
        [float(each) for each in re.findall(r"[\d.]+(?:e-?\d+)?", css)] if re.match(r"rgba?\(|color\(", css) else []
    )
    if not numbers:
        return (0, 0, 0, 0)
    scale = 1 if css.startswith("color(") else 255
    red, green, blue, alpha = [*(each / scale for each in numbers[:3]), *(numbers[3:] or [1.0])]
    return (red, green, blue, alpha)


def _over(upper: Colour, lower: Colour) -> Colour:
    share = upper[3]
    red, green, blue = (share * a + (1 - share) * b for a, b in zip(upper[:3], lower[:3], strict=True))
    return (red, green, blue, 1.0)


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{round(255 * each):02x}" for each in colour[:3])


def _faint(texts: list[Any], canvas: Colour) -> list[str]:
    """Return what stands out too little, in words."""
    found = []
    for words, ink, size, weight, behind in texts:
        ground = canvas
        for each in reversed(behind):
            ground = _over(_read(each), ground)
        ratio = contrast(_hex(_over(_read(ink), ground)), _hex(ground))
        large = size >= 24 or (size >= 18.66 and weight >= 700) or not re.search(r"\w", words)  # an arrow is a mark
        if ratio < (3 if large else 4.5):
            found.append(f"{words!r}: {_hex(_over(_read(ink), ground))} on {_hex(ground)} is {ratio:.2f}")
    return sorted(set(found))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("theme", "ground"), [pytest.param("light", "#ffffff", marks=pytest.mark.long), ("dark", "#121212")]
)
def test_every_word_of_the_explorers_stands_out(show: Open, theme: str, ground: str) -> None:
    figures = [
        ring_player(num_ranks=4),
        bucket_explorer(skew_s=2e-3, hook="fp16"),
        schedule_explorer(memory_limit=4),
        schedule_explorer(ILLEGAL, num_stages=2, num_microbatches=2),
        staleness_view(),
        compression_explorer(),
    ]
    page = show(*figures, theme=theme)
    live = ".labkit-figure[data-live] svg[role=img]"
    page.wait_for_function(f"document.querySelectorAll('{live}').length === {len(figures)}")
    canvas = _read("rgb(" + ",".join(str(int(ground[at : at + 2], 16)) for at in (1, 3, 5)) + ")")
    page.eval_on_selector_all("[data-act=table], [data-act=help]", "each => each.forEach(button => button.click())")
    texts = page.evaluate(TEXTS)
    assert len(texts) > 300
    assert _faint(texts, canvas) == []


@pytest.mark.in_turn
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_every_word_of_the_timeline_stands_out(open_timeline: Open, tmp_path: Path, theme: str) -> None:
    exchange().to_html(tmp_path / "page.html")
    page = open_timeline(tmp_path / "page.html", color_scheme=theme)
    for key in ("t", "?", "c"):
        page.press("canvas", key)
    page.wait_for_selector(".labkit-table td")  # it is written at the next frame
    texts = page.evaluate(TEXTS)
    canvas = page.evaluate("() => document.querySelector('.labkit-timeline').labkit.state.theme")
    assert len(texts) > 60
    assert _faint(texts, (1, 1, 1, 1) if theme == "light" else (0.07, 0.07, 0.07, 1)) == []
    for ink in ("ink", "quiet"):
        assert contrast(canvas[ink], canvas["paper"]) >= 4.5 and contrast(canvas[ink], canvas["band"]) >= 4.5
    for mark in ("arrow", "path", "alarm"):  # no text: what one must see to understand (1.4.11)
        assert contrast(canvas[mark], canvas["paper"]) >= 3 and contrast(canvas[mark], canvas["band"]) >= 2.9, mark
    assert canvas["colours"] == [each.colour if theme == "light" else each.dark for each in CATEGORIES]
    for bar, ink in zip(canvas["colours"], canvas["onBar"], strict=True):
        assert contrast(ink, bar) >= 4.5, bar
