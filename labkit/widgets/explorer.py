"""A figure that can be played with in a saved notebook: one HTML page part with its picture, program and data.

It needs no kernel and no network. Where scripts do not run, its picture stands; where HTML is not shown, a PNG does;
and everywhere there is a sentence.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

from labkit.widgets import programs
from labkit.widgets import scene as scenes
from labkit.widgets.asking import Asking
from labkit.widgets.canvas import size_on_page
from labkit.widgets.scene import Scene

# marimo sizes a frame when it has loaded, which is before a figure has come to life.
_FIT = """<script>
const figure = document.querySelector(".labkit-figure");
const fit = () => { frameElement.style.height = `${figure.offsetHeight + 32}px`; };
if (globalThis.frameElement) new ResizeObserver(fit).observe(figure);
</script>"""


@dataclass(frozen=True, repr=False)
class Explorer:
    """An explorer, which a notebook shows when it is the last line of a cell.

    Attributes:
        sentence: What it shows, in words.
        numbers: What it found, by name.
        script: The file in ``labkit/widgets/js`` that draws it.
        view: The function in there that is given the data.
        data: What is drawn; plain JSON.
        scene: The picture that stands where nothing can be played with.
    """

    sentence: str
    numbers: Mapping[str, Any]
    script: str
    view: str
    data: Mapping[str, Any]
    scene: Scene = field(compare=False)

    def ask(self, question: str, unit: str = "") -> Asking:
        """Return the figure behind a question: nothing of it is shown until its reader has written down a guess.

        In a lesson write the guess in a cell of its own with ``labkit.predict``, and give the figure to
        ``labkit.reveal``: that guess is saved, and a grader reads it.

        Args:
            question: What is asked, "Which bubble do 16 microbatches have?".
            unit: Unit of the guess, "%".
        """
        return Asking(self, question, unit)

    def to_html(self) -> str:
        """Return the figure as a part of a page, complete in itself."""
        data = json.dumps(self.data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
        mark = hashlib.sha256(f"{self.view}\n{data}".encode()).hexdigest()[:12]
        image = base64.b64encode(self._stills[1]).decode()
        return (
            f'<div class="labkit-figure" data-figure="f{mark}"><style>{programs.sent("figure.css")}</style>'
            f'<img style="max-width:100%" alt="{escape(self.sentence)}" '
            f'src="data:image/png;base64,{image}"></div>\n'
            f'<script type="module">\n{programs.explorer(self.script)}'
            f'figure.start("f{mark}",labkit.{self.view},{data});\n</script>'
        )

    def to_png(self) -> bytes:
        """Return the still picture as a PNG; it lies on a light page and on a dark one."""
        return self._stills[0]

    def to_svg(self) -> str:
        """Return the still picture as an SVG document."""
        return scenes.to_svg(self.scene, self.sentence)

    @cached_property
    def _stills(self) -> tuple[bytes, bytes]:
        return scenes.stills(self.scene)

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        """Return the figure for marimo, which gives a frame to HTML with a program, but to none in a bundle."""
        return self.to_html() + _FIT

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return all forms of the figure, of which a notebook takes the first that it can show, and their metadata."""
        shown = {"text/html": self.to_html(), "image/png": self.to_png(), "text/plain": self.sentence}
        return shown, size_on_page(self.to_png(), self.scene.width)
