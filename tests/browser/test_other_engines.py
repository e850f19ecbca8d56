"""Firefox and WebKit, the engine of Safari: every view is painted there, and answers wheel, pointer, keys and sliders.

Run where they are installed: `apt install firefox-esr webkit2gtk-driver xvfb`.
"""

from __future__ import annotations

import base64
import io
import json
import os
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
from PIL import Image

from labkit.checks.ring_player import ring_player
from labkit.plans.reference.rings import ring_plan
from labkit.widgets.bucket_explorer import bucket_explorer
from labkit.widgets.compression_explorer import compression_explorer
from labkit.widgets.explorer import Explorer
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.staleness_view import staleness_view
from tests.browser import painted
from tests.browser.conftest import TOKEN
from tests.browser.engines import Engine, Firefox, firefox, firefox_path, webkit, webkit_paths
from tests.browser.figure_pages import PAGE
from tests.browser.test_timeline_widget import TIMELINE
from tests.timeline.small_timelines import exchange

pytestmark = [pytest.mark.browser, pytest.mark.long]
_START = {"firefox": firefox, "webkit": webkit}
_HERE: dict[str, Callable[[], object]] = {"firefox": firefox_path, "webkit": webkit_paths}
_MADE: dict[str, Callable[[], Explorer]] = {
    "ring": lambda: ring_player(ring_plan),
    "bucket": bucket_explorer,
    "schedule": schedule_explorer,
    "staleness": staleness_view,
    "compression": compression_explorer,
}
V = "document.querySelector('.labkit-timeline').labkit"
# What a page saves, kept in the page: WebKit's small browser has no folder to save to.
KEEP = """() => {
  globalThis.saved = [];
  HTMLAnchorElement.prototype.click = function () {
    saved.push(fetch(this.href).then(async (answer) => {
      const bytes = new Uint8Array(await answer.arrayBuffer());
      let text = "";
      for (const byte of bytes) text += String.fromCharCode(byte);
      return [this.download, btoa(text)];
    }));
  };
}"""


@pytest.fixture(scope="module", params=[(name, theme) for name in _START for theme in ("light", "dark")], ids="-".join)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    name, theme = request.param
    if _HERE[name]() is None:
        pytest.skip(f"no {name} on this machine: apt install firefox-esr webkit2gtk-driver xvfb")
    with _START[name](tmp_path_factory.mktemp(name), dark=theme == "dark") as engine:
        yield engine


@dataclass(frozen=True)
class _Root:
    """The page's first timeline, as tests.browser.painted asks for it."""

    engine: Engine

    def evaluate(self, function: str) -> Any:
        return self.engine.evaluate(f"() => ({function})(document.querySelector('.labkit-timeline'))")


def seen(engine: Engine, name: str) -> None:
    """Save what the window shows where LABKIT_SCREENSHOTS names a folder, for people to look at."""
    folder = os.environ.get("LABKIT_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        engine.screenshot(Path(folder) / f"{engine.name}-{engine.theme}-{name}.png")


def saved(engine: Engine, count: int) -> dict[str, bytes]:
    """Return the files that the page has saved since KEEP was called, by name."""
    engine.wait("(count) => saved.length >= count", count)
    files = engine.evaluate("() => Promise.all(saved)")
    return {name: base64.b64decode(data) for name, data in files}


def test_the_timelines_page_is_painted_and_answers_wheel_pointer_and_keys(engine: Engine, tmp_path: Path) -> None:
    exchange().to_html(tmp_path / "page.html")
    engine.goto((tmp_path / "page.html").as_uri())
    engine.wait("() => document.querySelector('[data-painted]')")
    assert painted.check(_Root(engine)) == 4
    left, top, width, _ = engine.box("canvas")
    middle, row = left + width / 2, top + engine.evaluate(f"() => {V}.state.layout.rows[0].y + 4")
    engine.click("canvas")
    engine.wheel(middle, row, -300)
    engine.wait(f"() => {V}.state.view[1] - {V}.state.view[0] < 1.5e6")
    engine.press("Home", "c")
    assert "Critical path, 2 ms" in engine.evaluate("() => document.querySelector('.labkit-detail').textContent")
    engine.press("Escape", "ArrowRight")
    assert "rank 0, forward" in engine.evaluate("() => document.querySelector('[aria-live]').textContent")
    ends = engine.evaluate(f"() => [0.25, 0.5].map((share) => 124 + share * ({V}.state.right - 124))")
    engine.drag([(left + ends[0] + 2, row + 40), (left + ends[0] + 40, row + 40), (left + ends[1] - 3, row + 40)])
    assert engine.evaluate(f"() => {V}.state.measured") == [500_000, 1_000_000]
    seen(engine, "timeline")
    engine.press("t")
    engine.wait("() => document.querySelectorAll('.labkit-table tbody tr').length === 3")
    engine.evaluate(KEEP)
    for kind in ("PNG", "SVG", "HTML", "Chrome trace"):
        engine.evaluate(f"(kind) => {V}.export(kind)", kind)
    files = saved(engine, 4)
    assert Image.open(io.BytesIO(files["timeline.png"])).width > 600
    assert ElementTree.fromstring(files["timeline.svg"]).tag.endswith("svg")
    assert len(json.loads(files["timeline.json"])["traceEvents"]) > 4
    (tmp_path / "again.html").write_bytes(files["timeline.html"])
    engine.goto((tmp_path / "again.html").as_uri())
    engine.wait("() => document.querySelector('[data-painted]')")
    assert engine.evaluate(f"() => {V}.state.runs[0].start.length") == 3
    assert engine.evaluate(f"() => {V}.root.dataset.theme") == engine.theme


@pytest.mark.parametrize("name", _MADE)
def test_an_explorer_plays_and_saves_itself(engine: Engine, tmp_path: Path, name: str) -> None:
    theme = "light dark"
    (tmp_path / "figure.html").write_text(PAGE.format(theme=theme, body=_MADE[name]().to_html()))
    engine.goto((tmp_path / "figure.html").as_uri())
    engine.wait("() => document.querySelector('.labkit-figure[data-live] svg[role=img]')")
    engine.click("[data-part=stage]")
    engine.press("Home", "ArrowRight", "ArrowRight")
    assert engine.evaluate("() => document.querySelector('.labkit-figure').dataset.step") == "2"
    seen(engine, name)
    before = engine.evaluate("() => document.querySelector('svg[role=img]').innerHTML")
    engine.evaluate("() => document.querySelector('[data-part=sliders] input').focus()")
    engine.press("ArrowRight", "ArrowLeft", "ArrowLeft")
    assert engine.evaluate("() => document.querySelector('svg[role=img]').innerHTML") != before
    engine.evaluate(KEEP)
    for kind in ("svg", "png", "html"):
        engine.evaluate("() => { document.querySelector('[data-part=more]').open = true; }")
        engine.click(f"[data-act={kind}]")
    files = {name.rsplit(".", 1)[1]: data for name, data in saved(engine, 3).items()}
    assert ElementTree.fromstring(files["svg"]).tag.endswith("svg")
    assert len(Image.open(io.BytesIO(files["png"])).convert("RGB").getcolors(1 << 24)) > 4
    if os.environ.get("LABKIT_SCREENSHOTS"):
        (Path(os.environ["LABKIT_SCREENSHOTS"]) / f"{engine.name}-{engine.theme}-{name}-saved.png").write_bytes(
            files["png"]
        )
    values = engine.evaluate("() => [...document.querySelectorAll('[data-part=sliders] input')].map((e) => e.value)")
    (tmp_path / "again.html").write_bytes(files["html"])
    engine.goto((tmp_path / "again.html").as_uri())
    engine.wait("() => document.querySelector('.labkit-figure[data-live] svg[role=img]')")
    again = engine.evaluate("() => [...document.querySelectorAll('[data-part=sliders] input')].map((e) => e.value)")
    assert again == values


def test_an_operation_is_dragged_to_another_place(engine: Engine, tmp_path: Path) -> None:
    figure = schedule_explorer([["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]], num_stages=2)
    (tmp_path / "figure.html").write_text(PAGE.format(theme="light dark", body=figure.to_html()))
    engine.goto((tmp_path / "figure.html").as_uri())
    engine.wait("() => document.querySelector('.labkit-figure[data-live] svg[role=img]')")
    left, top, width, height = engine.box('[data-op="1:B0"]')
    x, y = left + width / 2, top + height / 2
    engine.drag([(x, y), (x - width, y), (x - 1.5 * width, y)])
    said = engine.evaluate("() => document.querySelector('[data-part=say]').textContent")
    assert said == "Stage 1: B0 stands before F0. Chosen: B0 of stage 1."


CELLS = (TIMELINE, "labkit.ring_player()", "timeline.ask('How much is idle?', '%')")


def _api(url: str, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"{url}/api/{path}?token={TOKEN}", method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or "null")


def test_in_a_live_jupyterlab_a_notebook_runs_is_saved_and_reopened(engine: Engine, server: tuple[str, Path]) -> None:
    url, folder = server
    name = f"{engine.name}-{engine.theme}.ipynb"
    kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernelspec}), folder / name)
    themed = f"{url}/lab/workspaces/{Path(name).stem}"
    engine.goto(f"{url}/lab?token={TOKEN}&reset")
    engine.wait("() => document.querySelector('#jp-main-dock-panel')")
    engine.goto(f"{themed}/tree/{name}")
    engine.wait("() => document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=idle]')")
    engine.wait("() => document.querySelectorAll('.jp-CodeCell').length === 3")
    until = time.monotonic() + 60
    while not any(each["path"] == name and each["kernel"]["connections"] for each in _api(url, "sessions")):
        assert time.monotonic() < until
        time.sleep(0.1)
    engine.click(".jp-CodeCell .jp-InputPrompt")
    # A Firefox without a window never says that something has got the focus, and JupyterLab waits to be told.
    engine.evaluate("() => { document.activeElement.dispatchEvent(new FocusEvent('focus')); }")
    for _ in CELLS:
        engine.press("Shift+Enter")
    engine.wait("() => document.querySelector('.labkit-timeline')?.dataset.painted > 0")
    live = "() => document.querySelector('.labkit-figure[data-live] svg[role=img]')"
    engine.wait(live)
    assert engine.evaluate("() => document.querySelectorAll('[data-mime-type$=error]').length") == 0
    assert painted.check(_Root(engine)) == 4
    hidden = "() => document.querySelector('.jp-RenderedImage img').getClientRects().length === 0"
    assert engine.evaluate(hidden)
    count = engine.evaluate("() => document.querySelectorAll('.jp-Cell').length")
    engine.click(".labkit-timeline canvas")
    engine.press("b", "a", "a", "x", "d", "d", "m", "Enter", "Home")
    left, top, width, _ = engine.box(".labkit-timeline canvas")
    at = left + width / 2, top + 30
    engine.hover(*at)
    until = time.monotonic() + 30
    while engine.evaluate(f"() => {V}.state.view[1]") > 999_000:  # the first turns may go to what the pointer left
        assert time.monotonic() < until, engine.evaluate("() => document.activeElement.outerHTML.slice(0, 99)")
        engine.wheel(*at, -300)
    seen(engine, "lab-timeline")
    engine.click("[data-part=stage]")
    engine.press("b", "a", "d", "d", "Home", "ArrowRight", "ArrowRight")
    assert engine.evaluate("() => document.querySelector('.labkit-figure').dataset.step") == "2"
    assert engine.evaluate("() => document.querySelectorAll('.jp-Cell').length") == count
    seen(engine, "lab-explorer")
    before = (folder / name).stat().st_mtime_ns
    engine.press("Control+s")
    while (folder / name).stat().st_mtime_ns == before:
        assert time.monotonic() < until + 60
        time.sleep(0.1)
    for session in _api(url, "sessions"):
        _api(url, f"sessions/{session['id']}", "DELETE")
    engine.goto(f"{url}/lab/workspaces/again-{Path(name).stem}/tree/{name}")
    engine.wait(live)
    engine.wait("() => document.querySelector('.jp-RenderedImage img')?.getClientRects().length")
    step = "() => Number(document.querySelector('.labkit-figure').dataset.step)"
    opened = engine.evaluate(step)
    engine.click("[data-act=next]")
    assert engine.evaluate(step) == opened + 1
    seen(engine, "lab-reopened")
    if isinstance(engine, Firefox):
        strangers = {urllib.parse.urlsplit(each).hostname for each in engine.asked if each.startswith("http")}
        assert strangers <= {"127.0.0.1"}
        assert not [each for each in engine.failed if "labkit" in each]
