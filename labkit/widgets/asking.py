"""A timeline that is shown once its reader has written down a guess."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.timeline.timeline import Timeline
from labkit.widgets.live import is_live
from labkit.widgets.static_timeline import to_png
from labkit.widgets.timeline_view import TimelineView, view_of


@dataclass(frozen=True, repr=False)
class AskingTimeline:
    """A question and, behind it, a timeline; made by ``timeline.ask``.

    Where widgets run, the question stands in the picture's place; after the guess come bars and numbers, and the guess
    among them. Where they do not run, the question stands alone.

    Attributes:
        timeline: What is hidden.
        question: What is asked.
        unit: Of the guess, or "".
        view: The widget, which holds the guess.
    """

    timeline: Timeline
    question: str
    unit: str = ""
    view: TimelineView = field(init=False, compare=False)

    def __post_init__(self) -> None:
        view = view_of(self.timeline)
        view.ask = {"question": self.question, "unit": self.unit}
        object.__setattr__(self, "view", view)

    @property
    def guess(self) -> float | None:
        """Return what was guessed, None where nothing was yet."""
        guess: float | None = self.view.guess
        return guess

    def __repr__(self) -> str:
        if self.guess is None:
            return f"{self.question} Guess first: the timeline is shown after that, where figures can be played with."
        return f"{self.question} Your guess: {self.guess:g} {self.unit}".rstrip() + f".\n{self.timeline.summary()}"

    def _ipython_display_(self) -> None:
        if not is_live():
            raise NotImplementedError  # IPython then asks for _repr_mimebundle_
        from IPython.display import display

        place: Any = display({"text/plain": repr(self)}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

        def keep(change: Any) -> None:
            """Leave a picture for pages without a kernel."""
            place.update(self._repr_mimebundle_(), raw=True)

        self.view.observe(keep, "guess")
        display(self.view)  # type: ignore[no-untyped-call]
        self.view.add_paths([self.timeline])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the question in words and, after the guess, the picture."""
        picture = {} if self.guess is None else {"image/png": to_png(self.timeline)}
        return {**picture, "text/plain": repr(self)}
