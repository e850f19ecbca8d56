"""Stored outputs that another version wrote: figures whose programs are older, checks whose cases are others today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from labkit.errors import ConfigError
from labkit.widgets import programs

_CHECKED = re.compile(r'^labkit\.(?:check|challenge)\("(\w+)"', re.M)
_PASSED = re.compile(r"^  pass  (.+)$", re.M)
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


def with_other_cases(notebook: Any) -> Iterator[tuple[str, str]]:
    """Yield (cell id, what is wrong) where a check's stored result tells of other cases than labkit's check has."""
    from labkit.checks.rooms import find

    for cell in notebook["cells"]:
        checked = _CHECKED.search(cell["source"])
        told = [line for output in cell.get("outputs", []) for line in _PASSED.findall(_text(output))]
        if cell["cell_type"] != "code" or not checked or not told:
            continue
        try:
            names = [case.name for case in find(checked[1]).visible]
        except ConfigError:  # a course's own exercise
            continue
        for name in names:
            if not any(line == name or line.startswith(f"{name}: ") for line in told):
                yield cell["id"], f"the check has a case {name!r}, of which its stored result says nothing"


def _text(output: Any) -> str:
    return str(output.get("data", {}).get("text/plain", ""))
