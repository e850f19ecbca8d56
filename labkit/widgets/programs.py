"""What a page runs: the views' programs and style sheets, as ``labkit build`` wrote them to ``labkit/widgets/static``.

Their sources are the modules in ``labkit/widgets/js``. Each program is one script that asks for nothing.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def sent(name: str) -> str:
    """Return a file of ``labkit/widgets/static`` as a page gets it."""
    return files("labkit.widgets").joinpath("static", name).read_text(encoding="utf-8")


def explorer(name: str) -> str:
    """Return an explorer's program: what all explorers share as ``figure``, its own views as ``labkit``."""
    return sent("figure.js") + sent(name)
