"""What a live notebook shows: two outputs, a picture that stays and a widget whose style hides it.

One output with both would show nothing once the kernel is gone: a page takes the widget first and never falls back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.widgets.timeline_view import TimelineView


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
    from IPython.display import display

    place: Any = display({"text/plain": sentence}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    widget = view()
    display(widget)  # type: ignore[no-untyped-call]
    place.update({"image/png": picture(), "text/plain": sentence}, raw=True)
    afterwards(widget)
