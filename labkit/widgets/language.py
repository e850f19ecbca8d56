"""The visual language: what every hue, pattern and mark means, in every view.

It stands in ``labkit/widgets/js/language.json``, which Python and JavaScript both read. Forward is blue, backward amber
(the weight's gradient the same, dotted), the optimizer grey-green; point to point is violet, receiving lighter, a
collective indigo; a pale hatch is time blocked. Red means wrong or exposed, magenta the critical path. A chunk or a
bucket has a letter and a tint of its own, and no phase's colour. A guess is hollow, what was measured is filled, what
a model says is dashed.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

_LANGUAGE: dict[str, Any] = json.loads(
    files("labkit.widgets").joinpath("js", "language.json").read_text(encoding="utf-8")
)

LIGHT: dict[str, str] = {name: light for name, (light, _) in _LANGUAGE["colours"].items()}
"""The colour of each meaning on a white ground."""
DARK: dict[str, str] = {name: dark for name, (_, dark) in _LANGUAGE["colours"].items()}
"""The same meanings on a dark ground (#111111)."""
TINTS: tuple[str, ...] = tuple(_LANGUAGE["tints"])
"""Of chunks and buckets, on either ground; dark letters stand on them."""
SERIES: tuple[str, ...] = tuple(_LANGUAGE["series"])
"""Of lines beside each other, which dashes tell apart too; the first line of a picture is in ink."""
DASHES: tuple[str, ...] = tuple(_LANGUAGE["dashes"])
"""Of the lines of a picture, the one in ink first: pixels drawn and left out, in turns; "" for a whole line."""
FRESH, STALE = _LANGUAGE["staleness"]
"""Of a gradient that is not late at all, and of the latest."""
CLAIM, TEXT, LEAST = (_LANGUAGE["type"][name] for name in ("claim", "text", "least"))
"""Pixels of the three sizes of type."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def tint(number: int) -> str:
    """Return the tint of a chunk or bucket; after eight they come round again."""
    return TINTS[number % len(TINTS)]


def letter(number: int) -> str:
    """Return the letter of a chunk or bucket: A to Z, then A1 to Z1."""
    turn, place = divmod(number, len(_LETTERS))
    return _LETTERS[place] + (str(turn) if turn else "")
