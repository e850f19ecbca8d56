"""Colours mixed and measured, and those of a still, which nobody can tell the ground it will lie on.

A notebook that is not trusted shows a picture's PNG alone, on a light page or on a dark one. So a still has no ground
of its own. Its fills are the visual language's for a dark ground, which stand out on white too; its words and lines
have each meaning's hue at the one lightness that is read on white and on #111111 alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from labkit.widgets.language import DARK, LIGHT

_MIDDLE = 0.191
"""The luminance whose contrast with white is what it is with #111111: 4.3 to 1."""


def luminance(colour: str) -> float:
    """Return how much light a colour ``#rrggbb`` gives, 0 to 1, as WCAG counts it."""
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb(colour)]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def ink_on(fill: str) -> str:
    """Return black or white, whichever stands out more on a colour ``#rrggbb``."""
    return "#000000" if luminance(fill) > 0.18 else "#ffffff"


def between(low: str, high: str, share: float) -> str:
    """Return the colour at a share of 0 to 1 on the way between two."""
    share = min(max(share, 0.0), 1.0)
    mixed = (round(255 * (a + (b - a) * share)) for a, b in zip(rgb(low), rgb(high), strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def rgb(colour: str) -> Sequence[float]:
    """Return red, green and blue, each of 0 to 1."""
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def still_fill(colour: str) -> str:
    """Return a meaning's colour on white as a still is filled with it, "none" for the ground's; any other stays."""
    if colour == LIGHT["ground"]:
        return "none"
    return still_ink(colour) if colour in _INKS else _DARK_OF.get(colour, colour)


@cache
def still_ink(colour: str) -> str:
    """Return the colour in which a still has words and lines of a colour; "none" stays."""
    if colour == "none":
        return colour
    light = luminance(colour) > _MIDDLE
    other = _DARK_OF.get(colour, "#000000" if light else "#ffffff")
    if (luminance(other) > _MIDDLE) == light:
        other = "#000000" if light else "#ffffff"
    shares = [step / 256 for step in range(257)]
    return min((between(colour, other, share) for share in shares), key=lambda each: abs(luminance(each) - _MIDDLE))


_INKS = {LIGHT[name] for name in ("ink", "quiet", "line", "wrong", "path")}
_DARK_OF = {light: DARK[name] for name, light in LIGHT.items()}
INK, GREY, RED, ARROW = (still_ink(LIGHT[name]) for name in ("ink", "quiet", "wrong", "send"))
"""Of a still's words and lines."""
