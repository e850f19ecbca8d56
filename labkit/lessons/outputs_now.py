"""Stored figures that an older version of their program wrote."""

from __future__ import annotations

import re
from typing import Any

from labkit.widgets import programs

_STARTED = re.compile(r'figure\.start\("f[0-9a-f]+",labkit\.([a-z])(\w+),')


def as_drawn_now(html: str) -> str:
    """Return an explorer with the program and the style sheet that draw it now; anything else unchanged."""
    started = _STARTED.search(html)
    if started is None:
        return html
    name = started[1] + re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", started[2])
    before, opening, _ = html.partition('<script type="module">\n')
    head, style, rest = before.partition("<style>")
    if style:
        before = head + style + programs.sent("figure.css") + rest[rest.index("</style>") :]
    return f"{before}{opening}{programs.explorer(f'{name}.js')}{html[started.start() :]}"


def draw_now(cell: Any) -> bool:
    """Give an executed cell's figures the programs of today; return whether one had another."""
    changed = False
    for output in cell.get("outputs", []):
        html = output.get("data", {}).get("text/html", "")
        now = as_drawn_now(html)
        if now != html:
            output["data"]["text/html"], changed = now, True
    return changed
