"""Whether a notebook shows the widget beside the picture.

A saved widget is a random number that means nothing without its kernel, so executed lessons, graded notebooks and
converted pages hold pictures only. A live page is known by what starts its kernel: a Jupyter server names the
notebook in JPY_SESSION_NAME. nbclient, papermill, nbval and `labkit build` start kernels without it.

VS Code and Colab get the picture, whatever they set: the style that hides it behind the widget is JupyterLab's, and
whether they replace an output that is already shown was never tried. There ``timeline.explore()`` gives the widget, and
LABKIT_VIEWS=live both. VS Code is known by VSCODE_PID (microsoft/vscode-python #5875) or, in a container, VSCODE_CWD
(holoviz/panel #5200), which its terminals do not pass on (microsoft/vscode, sanitizeProcessEnvironment); Colab by the
module that anywidget asks for.
"""

from __future__ import annotations

import os
import sys

VIEWS = "LABKIT_VIEWS"
"""Environment variable: "static" never adds the widget, "live" always does; "kept" keeps a timeline's columns beside
its picture (labkit.widgets.deck_data), for decks."""


_OTHERS = {"VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG"}


def is_live() -> bool:
    """Return whether a person looks at this kernel's output as it comes, in a page that runs widgets."""
    asked = os.environ.get(VIEWS, "")
    if asked in ("static", "live", "kept"):
        return asked == "live"
    if "google.colab" in sys.modules or not _OTHERS.isdisjoint(os.environ):
        return False
    return "ipykernel" in sys.modules and bool(os.environ.get("JPY_SESSION_NAME"))
