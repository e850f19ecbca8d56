"""A timeline in a live notebook: two outputs, a picture that stays and a widget that hides it.

One output with both would show nothing once the kernel is gone: a page takes the widget first and never falls back.
"""

from __future__ import annotations

from typing import Any

from labkit.timeline.timeline import Timeline
from labkit.widgets.static_timeline import to_png
from labkit.widgets.timeline_view import view_of


def show(timeline: Timeline) -> None:
    """Put out the picture's place, the widget, the picture itself and the critical path, in the order of their cost."""
    from IPython.display import display

    sentence = timeline.summary()
    picture: Any = display({"text/plain": sentence}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    view = view_of(timeline)
    display(view)  # type: ignore[no-untyped-call]
    picture.update({"image/png": to_png(timeline), "text/plain": sentence}, raw=True)
    view.add_paths([timeline])
