"""The timeline in a headless Chromium beside plotly, bokeh and matplotlib, and in a live JupyterLab."""

from __future__ import annotations

import io
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import nbformat
import numpy as np

from labkit.doctor import find_browser
from labkit.timeline import Timeline
from labkit.widgets.schedule_explorer import schedule_explorer
from labkit.widgets.static_timeline import to_png
from labkit.widgets.timeline_columns import pack
from tests.benchmarks.recording import synthetic
from tests.benchmarks.table import Bar, table
from tests.benchmarks.views_pages import PAGES

ROOT = Path(__file__).parents[2]
SIZES = (10_000, 100_000)
LARGEST = 1_000_000
PATIENCE_MS = 8_000
"""How long a renderer may zoom; the frames it managed are what is counted."""
CALLS, FEED_S = 4, 6.0


@contextmanager
def headless() -> Iterator[Any]:
    path = find_browser()
    if path is None:
        raise RuntimeError("no Chromium or Chrome on this machine: apt install chromium")
    with import_module("playwright.sync_api").sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        chromium = driver.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def _in_a_page(browser: Any, name: str, timeline: Timeline, folder: Path, repeats: int) -> dict[str, Any]:
    """Return medians over fresh pages, ms, and the addresses outside this machine that a page asked for."""
    path = folder / f"{name}-{len(timeline)}.html"
    path.write_text(PAGES[name](timeline), encoding="utf-8")
    first, frames, syncs, more, outside = [], [], [], {}, set()
    for _ in range(repeats):
        page = browser.new_page(viewport={"width": 1300, "height": 700})
        page.on("request", lambda request: outside.add(urllib.parse.urlsplit(request.url).scheme))
        page.set_default_timeout(150_000)
        page.goto(path.as_uri())
        page.wait_for_function("() => window.ready")
        first.append(page.evaluate("() => measureFirst()"))
        zoomed = page.evaluate(f"() => measureZoom(160, {PATIENCE_MS})")
        frames += zoomed["frames"]
        syncs += page.evaluate("() => measureSync(80)") if name == "labkit" else zoomed["syncs"]
        if name == "labkit":
            more = {"hover_ms": page.evaluate("() => measureHover(2000)")}
        page.close()
    found = {"first_ms": median(first), "frame_ms": median(frames), "frame_p95_ms": _p95(frames)}
    return {**found, "sync_ms": median(syncs), **more, "schemes": sorted(outside)}


REDRAW = """async () => {
  const root = document.querySelector(".labkit-figure"), took = {};
  const move = async (name, key, value) => {
    const slider = root.querySelector(`input[data-key="${key}"]`);
    slider.value = value;
    const start = performance.now();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    root.querySelector("svg[role=img]").getBBox();
    (took[name] ??= []).push(performance.now() - start);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  };
  for (let k = 0; k < 5; k++) {
    await move("M to 16", "m", 4);
    await move("M to 64", "m", 5);
    await move("moment", "step", 100 + k);
    await move("forward", "tf", 1.25 + 0.25 * (k % 2));
    await move("follow", "follow", k);
    await move("follow none", "follow", -1);
  }
  return took;
}"""


def _schedule(browser: Any, folder: Path) -> dict[str, float]:
    """Return how long two schedules of 16 stages and 64 microbatches take to be laid out anew, ms, by what is moved."""
    path = folder / "schedule.html"
    path.write_text(schedule_explorer(num_stages=16, num_microbatches=64).to_html(), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector(".labkit-figure[data-live] svg[role=img]")
    took = {name: median(each) for name, each in page.evaluate(REDRAW).items()}
    page.close()
    return took


def _matplotlib(timeline: Timeline) -> dict[str, float]:
    """Return the seconds of a broken_barh picture with the same bars, ms: the first, and one more after a zoom."""
    figure_class = import_module("matplotlib.figure").Figure
    figure = figure_class(figsize=(12, 4))
    import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    begin = time.perf_counter()
    axes = figure.add_subplot()
    for row in range(16):
        mine = (timeline.rank * 2 + timeline.lane) == row
        bars = np.stack([timeline.start_ns[mine], timeline.end_ns[mine] - timeline.start_ns[mine]], 1) / 1e6
        axes.broken_barh(bars, (row, 0.8))
    figure.savefig(io.BytesIO(), format="png")
    first = time.perf_counter()
    axes.set_xlim(0.3 * timeline.makespan_ns / 1e6, 0.5 * timeline.makespan_ns / 1e6)
    figure.savefig(io.BytesIO(), format="png")
    return {"first_ms": (first - begin) * 1e3, "frame_ms": (time.perf_counter() - first) * 1e3}


PREPARE = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from labkit.timeline import Timeline
from labkit.widgets.growing import GrowingTimeline
from tests.benchmarks.recording import synthetic
import numpy as np
timeline = synthetic(100_000)
"""
SHOW = "time.sleep(1.5); print('begin', time.time()); display(timeline)"
FEED = f"""
growing, ranks, begin, sent = GrowingTimeline(), np.repeat(np.arange(8), 25), time.time(), 0
while time.time() - begin < {FEED_S}:
    sent += 1
    time.sleep(max(0, begin + sent * 0.02 - time.time()))
    end = (sent * 20_000_000 + np.tile(np.arange(25) * 800_000, 8)).astype(np.int64)
    lane = np.tile(np.arange(25) % 2, 8)
    name = np.where(lane == 0, "forward", "all_reduce")
    kind = np.where(lane == 0, "span", "all_reduce")
    growing.add(Timeline(ranks, lane, end - 600_000, end, name, kind))
print("fed", sent, "messages in", time.time() - begin)
"""
WATCH = """() => {
  window.painted = [];
  window.latencies = [];
  window.fed = 0;
  const now = () => (performance.timeOrigin + performance.now()) / 1000;
  new MutationObserver((changes) => {
    for (const { target } of changes)
      if (target.dataset?.painted && !target.known) {
        target.known = true;
        window.painted.push(now());
        const view = target.labkit, { append, draw } = view, waiting = [];
        view.append = (message) => {
          const before = view.sequence;
          append.call(view, message);
          if (view.sequence !== before) waiting.push(message.sent);
        };
        view.draw = () => {
          draw.call(view);
          for (const sent of waiting.splice(0)) window.latencies.push(1000 * (now() - sent));
          window.fed = view.state.runs[0].start.length;
        };
      }
  }).observe(document.body, { subtree: true, attributes: true, attributeFilter: ["data-painted"] });
}"""


def _in_jupyterlab(browser: Any) -> dict[str, Any]:
    """Return ms from the call to the painted widget for each call, and the latencies of a live feed."""
    conftest = import_module("tests.browser.conftest")
    # The benchmark's own environment lies on top of the one that has JupyterLab and its extensions.
    python = Path(import_module("jupyterlab").__file__ or "").parents[4] / "bin" / "python"
    with ExitStack() as stack:
        folder, state = (stack.enter_context(tempfile.TemporaryDirectory()) for _ in range(2))
        with conftest.running_lab(Path(folder), Path(state), str(python)) as url:
            # High enough for every cell: JupyterLab makes only those near the view.
            context = browser.new_context(viewport={"width": 1400, "height": 4000})
            lab = conftest.Lab(url, Path(folder), context.new_page())
            context.on("request", lambda request: lab.requests.append(request.url))
            lab.page.goto(f"{url}/lab?token={conftest.TOKEN}&reset")
            lab.page.wait_for_selector("#jp-main-dock-panel", timeout=60_000)
            sources = [PREPARE, *[SHOW] * CALLS, FEED]
            lab.open("bench.ipynb", [nbformat.v4.new_code_cell(source) for source in sources])
            lab.page.evaluate(WATCH)
            lab.run_all(timeout_s=120)
            lab.page.wait_for_function(f"() => painted.length > {CALLS}", timeout=60_000)
            lab.page.wait_for_timeout(500)
            painted, latencies, fed = lab.page.evaluate("() => [painted, latencies, fed]")
            cells = lab.saved("bench.ipynb").cells
            context.close()
    begins = [float(cell.outputs[0].text.split()[1]) for cell in cells[1 : 1 + CALLS]]
    calls = [1e3 * (end - begin) for begin, end in zip(begins, painted, strict=False)]
    hosts = {urllib.parse.urlsplit(request).hostname for request in lab.requests} - {"127.0.0.1", None}
    return {"calls_ms": calls, "latencies_ms": latencies, "fed": fed, "hosts": sorted(hosts)}


def run(quick: bool = False) -> tuple[str, list[Bar], dict[str, Any]]:
    """Return the tables as text, the bars, and the figures as data."""
    repeats = 1 if quick else 3
    pages: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in [*PAGES, "matplotlib"]}
    timelines = {size: synthetic(size) for size in (*SIZES, LARGEST)}
    to_png(timelines[SIZES[0]])
    with tempfile.TemporaryDirectory() as folder, headless() as browser:
        for size in SIZES:
            for name in PAGES:
                slow = name != "labkit" and size == SIZES[-1]
                if not (quick and slow and name == "plotly"):
                    pages[name][size] = _in_a_page(browser, name, timelines[size], Path(folder), 1 if slow else repeats)
            pages["matplotlib"][size] = _matplotlib(timelines[size])
        if not quick:
            pages["labkit"][LARGEST] = _in_a_page(browser, "labkit", timelines[LARGEST], Path(folder), 1)
        schedule = _schedule(browser, Path(folder))
        lab = _in_jupyterlab(browser)
    rows = [
        [
            f"{name}, {size:,} spans",
            f"{found['first_ms']:.0f} ms",
            f"{found['frame_ms']:.1f} ms",
            f"{found['frame_p95_ms']:.1f} ms" if "frame_p95_ms" in found else "",
            f"{found['sync_ms']:.1f} ms" if "sync_ms" in found else "",
        ]
        for name, by_size in pages.items()
        for size, found in by_size.items()
    ]
    lines = ["A timeline of 8 ranks, 16 rows, in headless Chromium; matplotlib draws a PNG in Python instead"]
    lines.append(table(["", "first paint", "zoom, frame", "p95", "zoom, work"], rows))
    large = timelines[SIZES[-1]]
    static: dict[int, list[float]] = {size: [] for size in (SIZES[-1], LARGEST)}
    picture: dict[int, bytes] = {}
    for size, taken in static.items():
        for _ in range(3):
            recorded = timelines[size].select(np.ones(size, dtype=bool))  # a first picture: nothing is known of it yet
            begin = time.perf_counter()
            picture[size] = to_png(recorded)
            taken.append((time.perf_counter() - begin) * 1e3)
    calls, feed = lab["calls_ms"], lab["latencies_ms"]
    lines.append(
        f"In a live JupyterLab, 100,000 spans, call to paint: first {calls[0]:.0f} ms (imports too), then median "
        f"{median(calls[1:]):.0f} ms. Live feed of 10,000 spans/s for {FEED_S:g} s: {len(feed)} messages, "
        f"latency median {median(feed):.0f} ms, p95 {_p95(feed):.0f} ms, {lab['fed']:,} spans in view at the end."
    )
    redrawn = ", ".join(f"{name} {each:.0f} ms" for name, each in schedule.items())
    lines.append(f"Two schedules of 16 stages and 64 microbatches, drawn anew: {redrawn}.")
    ours = pages["labkit"][SIZES[-1]]
    scripts = sum(path.stat().st_size for path in (ROOT / "labkit/widgets/static").glob("*.js"))
    lines.append(f"JavaScript of all views: {scripts / 1e3:.1f} kB as sent.")
    columns = pack(large)["columns"]
    outside = [*lab["hosts"], *(scheme for scheme in ours["schemes"] if scheme not in ("file", "data", "blob"))]
    bars = [
        Bar("first paint at 100,000 spans, ms, at most 100", ours["first_ms"], 100),
        Bar(
            "frame while zooming at 100,000 spans, ms, median at most 16.7 (60 Hz, 0.2 for the clock)",
            ours["frame_ms"],
            16.9,
        ),
        Bar("the same, p95, ms, at most 33", ours["frame_p95_ms"], 33),
        Bar("schedules of 16 x 64 after any slider, ms, at most 50", max(schedule.values()), 50),
        Bar("hover, ms, at most 1", ours["hover_ms"], 1),
        Bar("call to painted in a live JupyterLab at 100,000 spans, ms, at most 300", median(calls[1:]), 300),
        Bar("bytes an event, at most 28", len(columns) / len(large), 28),
        Bar("live feed at 10,000 spans/s, p95, ms, at most 100", _p95(feed), 100),
        *(Bar(f"static picture of {size:,} spans, ms, at most 100", median(static[size]), 100) for size in static),
        Bar("the larger of the two, KB, at most 60", max(map(len, picture.values())) / 1e3, 60),
        Bar("JavaScript of all views as sent, kB, at most 150", scripts / 1e3, 150),
        Bar("hosts contacted besides this one, at most 0", len(outside), 0),
    ]
    peer = pages["bokeh"][SIZES[-1]]["first_ms"]
    bars.append(Bar("first paint at 100,000 spans over bokeh's, at most 1", ours["first_ms"] / peer, 1))
    return "\n".join(lines), bars, {"pages": pages, "jupyterlab": lab, "schedule_ms": schedule, "static_ms": static}
