"""A figure of matplotlib as a still: without a ground of its own, its words and lines read on any page."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.spines import Spine
from matplotlib.text import Text

from labkit.widgets.colours import GREY, still_ink

_FAINT = 0.3


def to_png(figure: Any) -> bytes:
    """Return a figure of matplotlib as a PNG; the figure itself is left as it was."""
    buffer = io.BytesIO()
    before = [(change, was) for change, was, _ in _changes(figure)]
    try:
        for change, _, becomes in [*_changes(figure)]:
            change(becomes)
        figure.savefig(buffer, format="png", facecolor="none", edgecolor="none", metadata={"Software": None})
    finally:
        for change, was in before:
            change(was)
    return buffer.getvalue()


def _changes(figure: Any) -> Iterator[tuple[Callable[[Any], Any], Any, Any]]:
    """Yield what sets a colour, what it is, and what it is in a still."""
    figure.draw_without_rendering()  # ticks and their labels are made when they are drawn
    for artist in figure.findobj():
        if isinstance(artist, Text):
            yield artist.set_color, artist.get_color(), _ink(artist.get_color())
        elif isinstance(artist, Line2D):
            yield artist.set_color, artist.get_color(), _ink(artist.get_color())
            yield artist.set_markeredgecolor, artist.get_markeredgecolor(), _ink(artist.get_markeredgecolor())
        elif isinstance(artist, Spine):
            yield artist.set_edgecolor, artist.get_edgecolor(), GREY
    for axes in figure.axes:
        for grid in (*axes.get_xgridlines(), *axes.get_ygridlines()):
            yield grid.set_alpha, grid.get_alpha(), _FAINT
        legend = axes.get_legend()
        for patch in (axes.patch, *([legend.get_frame()] if legend else [])):
            yield patch.set_facecolor, patch.get_facecolor(), "none"


def _ink(colour: Any) -> Any:
    return colour if str(colour) == "none" else still_ink(to_hex(colour))
