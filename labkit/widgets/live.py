"""Whether a notebook shows the widget beside the picture.

A saved widget is a random number that means nothing without its kernel, so executed lessons, graded notebooks and
converted pages hold pictures only. A live page is known by what starts its kernel: a Jupyter server names the
notebook in JPY_SESSION_NAME. nbclient, papermill, nbval and `labkit build` start kernels without it. Where another
program starts the kernel (VS Code, Colab) the picture is shown, and ``timeline.explore()`` gives the widget.
"""

from __future__ import annotations

import os
import sys

VIEWS = "LABKIT_VIEWS"
"""Environment variable: "static" never adds the widget, "live" always does; "kept" keeps a timeline's columns beside
its picture (labkit.widgets.kept), for decks."""


def is_live() -> bool:
    """Return whether a person looks at this kernel's output as it comes, in a page that runs widgets."""
    asked = os.environ.get(VIEWS, "")
    if asked in ("static", "live", "kept"):
        return asked == "live"
    return "ipykernel" in sys.modules and bool(os.environ.get("JPY_SESSION_NAME"))
