"""What a live notebook shows: two outputs, a picture that stays and a widget whose style hides it.

One output with both would show nothing once the kernel is gone: a page takes the widget first and never falls back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython import get_ipython
from IPython.display import display

from labkit.timeline.timeline import Timeline
from labkit.widgets.canvas import size_on_page
from labkit.widgets.live import is_live
from labkit.widgets.static_timeline import WIDTH, to_png
from labkit.widgets.timeline_view import TimelineView, view_of

_SHOWN: dict[str, tuple[str, list[TimelineView]]] = {}
"""For each cell the execution of it that displayed widgets last, and these."""


def put_out(view: TimelineView) -> None:
    """Display a widget in the running cell; those that an earlier execution of the cell displayed are let go.

    Their place in the page is gone, and without this their columns would stay, in the kernel and in the page.
    """

    parent: dict[str, Any] = getattr(get_ipython(), "get_parent", dict)()
    cell, execution = parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id", "")
    if cell is not None:
        before, views = _SHOWN.get(cell, ("", []))
        for old in views if before != execution else ():
            old.runs, old.paths = [], []  # JupyterLab holds models for as long as their kernel: let this one be empty
            old.layout.close()
            old.close()
        _SHOWN[cell] = (execution, [*(views if before == execution else ()), view])
    display(view)  # type: ignore[no-untyped-call]


def show(
    sentence: str,
    view: Callable[[], TimelineView],
    picture: Callable[[], bytes],
    afterwards: Callable[[TimelineView], None],
) -> None:
    """Put out the picture's place, the widget, the picture itself and what else the widget gets, as each is ready.

    Args:
        sentence: What stands for both where neither can be shown.
        view: Makes the widget.
        picture: Makes the PNG.
        afterwards: Gives the widget what it need not wait for.
    """

    place: Any = display({"text/plain": sentence}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    widget = view()
    put_out(widget)
    png = picture()
    place.update({"image/png": png, "text/plain": sentence}, raw=True, metadata=size_on_page(png, WIDTH))
    afterwards(widget)


def show_timeline(timeline: Timeline) -> None:
    """Put out a timeline's picture and widget, for a live page."""
    show(
        timeline.summary(),
        lambda: view_of(timeline),
        lambda: to_png(timeline),
        lambda view: view.add_paths([timeline]),
    )


def show_event(timeline: Timeline, row: int, event: str, reason: str) -> None:
    """Put out a timeline opened at an event: the widget in a live page, the picture with the event marked elsewhere.

    Args:
        timeline: What was recorded.
        row: The event.
        event: Which event that is, in words.
        reason: Why it is shown; ends the sentence.
    """

    sentence = f"Look here first: {event}, {reason}"
    words = f"{sentence}\n{timeline.summary().splitlines()[0]}"

    def picture() -> bytes:
        return to_png(timeline, event=row, note=sentence)

    if is_live():
        note = f"Look here first, {reason}"
        show(words, lambda: view_of(timeline, row=row, note=note), picture, lambda view: view.add_paths([timeline]))
    else:
        png = picture()
        shown = {"image/png": png, "text/plain": words}
        display(shown, raw=True, metadata=size_on_page(png, WIDTH))  # type: ignore[no-untyped-call]
