"""The timeline as a page of its own: program, style and columns in one HTML file."""

from __future__ import annotations

import json
from html import escape

from labkit.timeline.timeline import Timeline
from labkit.widgets.timeline_columns import as_text, pack, pack_path
from labkit.widgets.timeline_view import program, style


def page(timeline: Timeline) -> str:
    """Return the page; it opens in any browser, without a network and without a kernel."""
    run = pack(timeline)
    del run["focus"]
    runs = [as_text(run) | {"path": as_text(pack_path(timeline))}]
    data = json.dumps(runs, separators=(",", ":")).replace("<", "\\u003c")
    code = program().replace("</script", "<\\/script")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(run['title'])}</title>"
        f'<style>{style()}</style><body><div id="timeline"></div><script type="module">{code}\n'
        f'showPage(document.getElementById("timeline"), {data});</script></body></html>\n'
    )
