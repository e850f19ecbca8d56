"""The timeline as a page of its own: program, style and columns in one HTML file."""

from __future__ import annotations

import base64
import json
from html import escape
from typing import Any

from labkit.timeline.timeline import Timeline
from labkit.widgets.timeline_columns import pack, pack_path
from labkit.widgets.timeline_view import program, style


def page(timeline: Timeline) -> str:
    """Return the page; it opens in any browser, without a network and without a kernel."""
    run = pack(timeline)
    del run["focus"]
    runs = [_as_text(run) | {"path": _as_text(pack_path(timeline))}]
    data = json.dumps(runs, separators=(",", ":")).replace("<", "\\u003c")
    code = program().replace("</script", "<\\/script")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(run['title'])}</title>"
        f'<style>{style()}</style><body><div id="timeline"></div><script type="module">{code}\n'
        f'showPage(document.getElementById("timeline"), {data});</script></body></html>\n'
    )


def _as_text(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "columns": base64.b64encode(part["columns"]).decode()}
