"""What an explorer saves: the files are opened again and looked at."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from labkit.checks.ring_player import ring_player
from labkit.plans.reference.rings import ring_plan
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import compression_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.staleness_view import staleness_view
from tests.browser.figure_pages import Open, number, set_slider

pytestmark = [pytest.mark.browser]
_MADE = {
    "ring": lambda: ring_player(ring_plan),
    "bucket": lambda: bucket_explorer(skew_s=1e-3, hook="fp16"),
    "schedule": schedule_explorer,
    "staleness": staleness_view,
    "compression": compression_explorer,
}


def saved(page: Any, kind: str, folder: Path) -> Path:
    """Return the file that a figure's button saves when it is pressed by key."""
    page.eval_on_selector("[data-part=more]", "more => { more.open = true; }")
    page.focus(f"[data-act={kind}]")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    path = folder / str(download.value.suggested_filename)
    download.value.save_as(path)
    page.wait_for_function(f"document.querySelector('[data-part=say]').textContent === 'Saved as {path.name}.'")
    return path


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(float)


_DRAWN = """() => new Promise((drawn) => {
    const look = (last) => requestAnimationFrame(() => requestAnimationFrame(() => {
        const now = document.querySelector("svg[role=img]");
        now === last ? drawn() : look(now);
    }));
    look(null);
})"""
"""Waits until a figure is drawn no more: each drawing is another element, and one may still follow a change of size."""


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("name", "theme"),
    [
        pytest.param(name, ("light", "dark")[k % 2], marks=[] if k == 0 else pytest.mark.long)
        for k, name in enumerate(_MADE)
    ],
)
def test_the_picture_saved_is_the_one_on_the_screen(
    show: Open, browser: Any, tmp_path: Path, name: str, theme: str
) -> None:
    figure: Explorer = _MADE[name]()
    page = show(figure, theme=theme, device_scale_factor=2, accept_downloads=True, width=900)
    page.focus("[data-part=stage]")
    page.add_style_tag(content="[data-part=stage]{position:absolute;left:0;top:500px;width:800px}")  # on whole pixels
    page.wait_for_function("document.querySelector('svg[role=img]').clientWidth === 800")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.evaluate(_DRAWN)
    seen = pixels(page.screenshot(clip=page.locator("svg[role=img]").bounding_box()))
    png = pixels(saved(page, "png", tmp_path).read_bytes())
    left, top = 24, 64
    here = png[top : top + seen.shape[0], left : left + seen.shape[1]]
    assert here.shape == seen.shape
    assert np.abs(here - seen).mean() < 2  # of 255: edges may be smoothed otherwise
    svg = saved(page, "svg", tmp_path)
    root = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    assert "var(" not in svg.read_text(encoding="utf-8")
    assert "color-mix" not in svg.read_text(encoding="utf-8")
    assert not [each for each in root.iter() if each.tag.endswith(("image", "script", "use"))]
    context = browser.new_context(device_scale_factor=2, color_scheme="light" if theme == "dark" else "dark")
    again = context.new_page()
    again.set_viewport_size({"width": round(png.shape[1] / 2), "height": round(png.shape[0] / 2)})
    again.goto(svg.as_uri())
    opened = pixels(again.screenshot())
    context.close()
    rows, columns = (min(a, b) for a, b in zip(opened.shape[:2], png.shape[:2], strict=True))
    assert np.abs(opened[:rows, :columns] - png[:rows, :columns]).mean() < 2
    assert not page.failed


@pytest.mark.long
def test_the_page_saved_plays_from_where_it_was(show: Open, browser: Any, tmp_path: Path) -> None:
    page = show(bucket_explorer(), ring_player(num_ranks=3), accept_downloads=True)
    set_slider(page, "cap", 11)
    set_slider(page, "step", 0)
    step = number(page, "step")
    context = browser.new_context(offline=True)
    again = context.new_page()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url.split(":")[0]))
    again.goto(saved(page, "html", tmp_path).as_uri())
    again.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    assert again.locator("main.labkit-figure").count() == again.locator("h1").count() == 1
    assert again.title() == again.inner_text("h1")
    assert (number(again, "step"), again.get_attribute(".labkit-figure", "data-step")) == (step, "0")
    assert again.get_attribute('input[data-key="cap"]', "value") == "11"
    set_slider(again, "cap", 4)
    assert number(again, "step") != step
    again.keyboard.press("Tab")
    assert set(asked) <= {"file", "blob", "data"}
    context.close()
