"""What an executed lesson keeps of a timeline beside its picture, so that a deck shows it live and runs nothing.

It travels as metadata of the output, which notebooks carry and do not show. Lines of code are left out: the run was
that of a solution, and a deck holds no answer.
"""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Sequence
from typing import Any

from labkit.timeline.timeline import Timeline
from labkit.widgets.canvas import size_on_page
from labkit.widgets.live import VIEWS
from labkit.widgets.static_timeline import WIDTH, to_png
from labkit.widgets.timeline_columns import for_page

MOST_BYTES = 150_000
"""A timeline that needs more, deflated and as text, is kept as its picture only."""


def bundle(timeline: Timeline) -> Any:
    """Return a timeline's static picture and sentence, and the metadata of its output."""
    png = to_png(timeline)
    return {"image/png": png, "text/plain": timeline.summary()}, size_on_page(png, WIDTH) | metadata([timeline])


def metadata(timelines: Sequence[Timeline], **packed: Any) -> dict[str, Any]:
    """Return the metadata of an output that shows the timelines; empty unless LABKIT_VIEWS is "kept".

    Args:
        timelines: One, or the two of a comparison.
        packed: What their page is told beyond the columns: ``names``, ``ranks``, ``overlay``.
    """
    if os.environ.get(VIEWS) != "kept":
        return {}
    names = packed.get("names", [""] * len(timelines))
    runs = []
    for timeline, name in zip(timelines, names, strict=True):
        run = for_page(timeline, name, packed.get("ranks"), is_beside=len(timelines) > 1)
        run["labels"] = [[*label[:4], "", ""] for label in run["labels"]]
        runs.append(run)
    runs[0]["overlay"] = packed.get("overlay", False)
    text = json.dumps(runs, separators=(",", ":"), ensure_ascii=False)
    kept = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return {"labkit": {"timeline": kept}} if len(kept) <= MOST_BYTES else {}


def runs(output_metadata: dict[str, Any]) -> str | None:
    """Return what ``showPage`` of the timeline's program takes, as JSON that may stand in a script; None if none."""
    kept = output_metadata.get("labkit", {}).get("timeline")
    if kept is None:
        return None
    return zlib.decompress(base64.b64decode(kept)).decode().replace("<", "\\u003c")
