"""The timeline as a page of its own: picture, program, style and columns in one HTML file."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from labkit.timeline.timeline import Timeline
from labkit.widgets.static_timeline import WIDTH, to_png
from labkit.widgets.timeline_columns import for_page
from labkit.widgets.timeline_view import program, style

_HEARD = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"


def page(timeline: Timeline) -> str:
    """Return the page; it opens in any browser, without a network and without a kernel.

    Where programs may not run, or not this one, the picture and the sentence stay.
    """
    run = for_page(timeline)
    image = base64.b64encode(to_png(timeline)).decode()
    still = (
        f'<img style="max-width:100%" width="{WIDTH}" alt="" src="data:image/png;base64,{image}">'
        f"<p>{escape(timeline.summary())}</p>"
    )
    return whole([run], still)


def whole(runs: Sequence[dict[str, Any]], still: str) -> str:
    """Return the page of runs that were packed for one.

    Args:
        runs: One or two, from :func:`~labkit.widgets.timeline_columns.for_page`.
        still: HTML that stands in their place until the program runs.
    """
    title = runs[0]["title"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>{view(runs, still, title)}</body></html>\n"
    )


def view(runs: Sequence[dict[str, Any]], still: str = "", title: str = "Timeline") -> str:
    """Return style, place and program of one view of runs, as HTML from the head's end on.

    Args:
        runs: One or two, from :func:`~labkit.widgets.timeline_columns.for_page`.
        still: HTML that stands in its place until the program runs.
        title: The page's heading, for those who listen to it.
    """
    data = json.dumps(runs, separators=(",", ":")).replace("<", "\\u003c")
    code = program() + '\ndocument.getElementById("timeline").replaceChildren();'
    return (
        f'<style>{style()}</style><body><main><h1 style="{_HEARD}">{escape(title)}</h1><div id="timeline">{still}</div>'
        f'</main><script type="module">{code}\n'
        f'labkit.showPage(document.getElementById("timeline"), {data});</script>'
    )
