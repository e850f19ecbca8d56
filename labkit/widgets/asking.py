"""A figure that is shown once its reader has written down a guess.

Until then nothing of it leaves the kernel: no page holds it, no saved notebook, no widget's state. In a lesson the
guess stands in a cell of its own, ``labkit.predict``, where it is saved and a grader reads it, and ``labkit.reveal``
takes the figure; this is for everybody else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from labkit.errors import ConfigError
from labkit.widgets.live import is_live


@dataclass(repr=False)
class Asking:
    """A question and, behind it, a timeline or an explorer; made by their ``ask``.

    In a live page the guess is typed under the question; anywhere else it is given to :meth:`answer`.

    Attributes:
        figure: What is hidden.
        question: What is asked.
        unit: Unit of the guess, or "".
        guess: What was guessed, None until then.
    """

    figure: Any
    question: str
    unit: str = ""
    guess: float | None = None

    def answer(self, guess: float) -> Asking:
        """Write the guess down and return the figure, which is now shown with it.

        Raises:
            ConfigError: If it is no finite number.
        """
        if isinstance(guess, bool) or not isinstance(guess, int | float) or not math.isfinite(guess):
            raise ConfigError(f"A guess is a number such as 0.5, not {guess!r}.")
        self.guess = float(guess)
        return self

    def __repr__(self) -> str:
        if self.guess is None:
            return f"{self.question} Guess first: the picture comes after that, here or from .answer(your guess)."
        return f"{self.question} Your guess: {self.guess:g} {self.unit}".rstrip() + "."

    def _ipython_display_(self) -> None:
        if not is_live():
            raise NotImplementedError  # IPython then asks for _repr_mimebundle_
        from IPython.display import display

        data, about = self._repr_mimebundle_()
        place: Any = display(data, metadata=about, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        box = _Form(self, place).box if self.guess is None else self._widget()
        if box is not None:
            display(box)  # type: ignore[no-untyped-call]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the question in words and, after the guess, all forms of the figure."""
        if self.guess is None:
            return {"text/plain": repr(self)}, {}
        shown = self.figure._repr_mimebundle_()
        data, about = shown if isinstance(shown, tuple) else (shown, {})
        if "text/html" in data:
            data = {**data, "text/html": f"<p>{escape(repr(self))}</p>\n{data['text/html']}"}
        return {**data, "text/plain": f"{self!r}\n{data['text/plain']}"}, about

    def _widget(self) -> Any:
        """Return the widget of a timeline; None for an explorer, which needs none."""
        return self.figure.explore() if hasattr(self.figure, "explore") else None


class _Form:
    """A line to type the guess in; the figure takes its place."""

    def __init__(self, asking: Asking, place: Any) -> None:
        import ipywidgets

        self.asking, self.place = asking, place
        self.text = ipywidgets.Text(placeholder="a number", description="Your guess")
        self.button = ipywidgets.Button(description="This is my guess", button_style="primary")
        self.said = ipywidgets.HTML()
        line = ipywidgets.HBox([self.text, ipywidgets.Label(asking.unit), self.button])
        self.box = ipywidgets.VBox([line, self.said])
        self.button.on_click(self._submit)
        self.text.on_msg(self._pressed)

    def _pressed(self, text: Any, content: dict[str, Any], buffers: Any) -> None:
        if content.get("event") == "submit":  # Enter
            self._submit()

    def _submit(self, _: Any = None) -> None:
        try:
            self.asking.answer(float(self.text.value.replace(",", ".")))
        except ValueError:  # a ConfigError is one
            self.said.value = "A guess is a number such as 0.5."
            return
        data, about = self.asking._repr_mimebundle_()
        self.place.update(data, metadata=about, raw=True)
        widget = self.asking._widget()
        words = type(self.said)(f"<b>{escape(repr(self.asking))}</b>")
        self.box.children = () if widget is None else (words, widget)
