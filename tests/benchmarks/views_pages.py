"""Pages that draw one timeline with labkit, plotly or bokeh, all with the same two functions: begin() and zoom(i)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labkit.timeline import Timeline
from labkit.widgets.palette import CATEGORIES, categories_of
from labkit.widgets.timeline_columns import pack
from labkit.widgets.timeline_view import program, style

MEASURE = """
const frame = () => new Promise((done) => requestAnimationFrame(done));
// Zooms in and out again between the whole and a hundredth of it.
const windowAt = (i, low, high) => {
  const share = 0.9 ** (i % 80 < 40 ? i % 40 : 40 - (i % 40)), middle = low + 0.4 * (high - low);
  return [middle - (middle - low) * share, middle + (high - middle) * share];
};
window.measureFirst = async () => {
  const start = performance.now();
  await begin();
  await frame();
  await frame();
  return performance.now() - start;
};
window.measureZoom = async (count, limit) => {
  const frames = [], syncs = [], start = performance.now();
  await frame();
  for (let i = 1; i <= count && performance.now() - start < limit; i++) {
    const before = performance.now();
    await zoom(i);
    syncs.push(performance.now() - before);
    await frame();
    frames.push(performance.now() - before);
  }
  return { frames, syncs };
};
"""


def _page(body: str, scripts: str, module: bool = False) -> str:
    kind = ' type="module"' if module else ""
    return (
        f'<!doctype html><meta charset="utf-8"><body style="width:1200px">{body}'
        f"<script{kind}>{scripts}\n{MEASURE}\nwindow.ready = true;</script>"
    )


def ours(timeline: Timeline) -> str:
    """Return a page with the widget."""
    run = pack(timeline)
    data = json.dumps({**run, "columns": base64.b64encode(run["columns"]).decode()}).replace("<", "\\u003c")
    script = f"""{program()}
const run = {data};
run.columns = Uint8Array.from(atob(run.columns), (c) => c.charCodeAt(0));
const root = document.getElementById("view");
const begin = async () => {{ window.view = new labkit.TimelineView(root, {{ runs: [run] }}); }};
const zoom = async (i) => {{ view.show(...windowAt(i, ...view.state.whole)); }};
window.measureSync = (count) => {{
  const took = [];
  for (let i = 1; i <= count; i++) {{
    const before = performance.now();
    view.state.view = windowAt(i, ...view.state.whole);
    view.draw();
    took.push(performance.now() - before);
  }}
  return took;
}};
window.measureHover = (count) => {{
  const before = performance.now();
  for (let i = 0; i < count; i++)
    view.hover(view.under({{ offsetX: 150 + ((i * 37) % 900), offsetY: 30 + ((i * 11) % 200) }}));
  return (performance.now() - before) / count;
}};
"""
    return _page(f'<style>{style()}</style><div id="view"></div>', script, module=True)


def _columns(timeline: Timeline) -> dict[str, Any]:
    start = (timeline.start_ns - timeline.start_ns.min()) / 1e6
    row = timeline.rank * 2 + timeline.lane
    colour = np.array([category.colour for category in CATEGORIES])[categories_of(timeline)]
    return {"start": start, "end": start + (timeline.end_ns - timeline.start_ns) / 1e6, "row": row, "colour": colour}


def plotly(timeline: Timeline) -> str:
    """Return a page with plotly's horizontal bars."""
    go, package = import_module("plotly.graph_objects"), import_module("plotly")
    columns = _columns(timeline)
    figure = go.Figure()
    for colour in np.unique(columns["colour"]).tolist():
        mine = columns["colour"] == colour
        length = (columns["end"] - columns["start"])[mine]
        figure.add_bar(
            base=columns["start"][mine],
            x=length,
            y=columns["row"][mine],
            orientation="h",
            marker={"color": colour, "line": {"width": 0}},
        )
    figure.update_layout(barmode="overlay", width=1200, height=400)
    library = (Path(package.__file__).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    script = f"""
const figure = {figure.to_json()};
const begin = () => Plotly.newPlot("view", figure.data, figure.layout);
const zoom = (i) => Plotly.relayout("view", {{ "xaxis.range": windowAt(i, 0, {float(columns["end"].max())}) }});
"""
    return _page(f'<script>{library}</script><div id="view"></div>', script)


def bokeh(timeline: Timeline) -> str:
    """Return a page with bokeh's horizontal bars on its canvas."""
    plotting, embed = import_module("bokeh.plotting"), import_module("bokeh.embed")
    resources = import_module("bokeh.resources")
    columns = _columns(timeline)
    figure = plotting.figure(width=1200, height=400, tools="", name="bars", output_backend="canvas")
    source = import_module("bokeh.models").ColumnDataSource(columns)
    figure.hbar(y="row", left="start", right="end", height=0.8, color="colour", source=source, line_width=0)
    library = "\n".join(resources.INLINE.js_raw)
    script = f"""
const item = {json.dumps(embed.json_item(figure, "view"))};
let bars;
const begin = async () => {{
  await Bokeh.embed.embed_item(item);
  bars = Bokeh.documents[0].get_model_by_name("bars");
}};
const zoom = async (i) => {{
  const [start, end] = windowAt(i, 0, {float(columns["end"].max())});
  bars.x_range.setv({{ start, end }});
}};
"""
    return _page(f'<script>{library}</script><div id="view"></div>', script)


PAGES: dict[str, Callable[[Timeline], str]] = {"labkit": ours, "bokeh": bokeh, "plotly": plotly}
