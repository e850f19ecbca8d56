"""``labkit.predict`` and ``labkit.reveal``: a guess is written down first, and shown beside what came out."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, TypeAlias

from labkit.board.reporting import report_guess, report_measured
from labkit.slugs import is_slug
from labkit.widgets.live import is_live
from labkit.words import in_points

Plain: TypeAlias = int | float | str | bool | None
"""What may be guessed: a number, a word, yes or no; None is no guess yet."""

_DRAWN = (1e-30, 1e30)  # an axis beyond these has no ticks that say anything


@dataclass(frozen=True)
class Prediction:
    """A guess that was written down; shown by the notebook as one line.

    Attributes:
        id: What is guessed, "root_megabytes".
        guess: What was written down; None if nothing was.
        unit: Its unit, or "".
        problem: Why it was not written down, or "".
    """

    id: str
    guess: Plain
    unit: str = ""
    problem: str = ""

    def __repr__(self) -> str:
        if self.problem:
            return self.problem
        if self.guess is None:
            return f"No guess yet for {self.id}: put yours in place of None, and run this cell again."
        return f"Your guess for {self.id} is written down: {with_unit(self.guess, self.unit)}."


@dataclass(frozen=True)
class Revealed:
    """A guess beside what came out; drawn by the notebook when both are numbers.

    Attributes:
        id: As in the prediction.
        guess: What was written down.
        result: What came out.
        unit: Of both.
        problem: Why nothing is revealed, or "".
        figure: An explorer, a timeline, a comparison, a matplotlib figure or text that is shown with them and not
            before, or None.
    """

    id: str
    guess: Plain
    result: Plain
    unit: str = ""
    problem: str = ""
    figure: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        if self.problem:
            return self.problem
        sentence = f"You guessed {with_unit(self.guess, self.unit)}, it is {with_unit(self.result, self.unit)}"
        return f"{sentence}: {how_far(self.guess, self.result, self.unit)}."

    def _ipython_display_(self) -> None:
        """Show the line, and a timeline as the widget it is in a live page."""

        if self.problem or not hasattr(self.figure, "_ipython_display_") or not is_live():
            raise NotImplementedError  # IPython then asks for _repr_mimebundle_
        from IPython.display import display

        about = {"labkit": {"prediction": self.id, "result": self.result, "unit": self.unit}}
        display({"text/plain": repr(self)}, raw=True, metadata=about)  # type: ignore[no-untyped-call]
        self.figure._ipython_display_()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the line and, of two numbers, the picture; the metadata keeps the result for the grader's report."""
        data: dict[str, Any] = {"text/plain": repr(self)}
        if self.problem:
            return data, {}
        kept: dict[str, Any] = {}
        size: dict[str, Any] = {}
        if self.figure is not None:
            shown, about = _forms_of(self.figure)
            kept, size = about.get("labkit", {}), {kind: of for kind, of in about.items() if kind == "image/png"}
            data["text/plain"] += f"\n{shown['text/plain']}"
            if "text/html" in shown:
                data["text/html"] = f"<p>{escape(repr(self))}</p>\n{shown['text/html']}"
            if "image/png" in shown:
                data["image/png"] = shown["image/png"]
        elif _can_be_drawn(self.guess) and _can_be_drawn(self.result):
            from labkit.widgets.canvas import size_on_page
            from labkit.widgets.guess_picture import WIDTH, to_png

            data["image/png"] = to_png(float(self.guess), float(self.result), self.unit)  # type: ignore[arg-type]
            size = size_on_page(data["image/png"], WIDTH)
        return data, {**size, "labkit": {**kept, "prediction": self.id, "result": self.result, "unit": self.unit}}


_written: dict[str, Prediction] = {}


def predict(guess_id: str, guess: Plain, *, unit: str = "") -> Prediction:
    """Return your guess, written down until :func:`reveal` shows it beside the number that came out.

    It is not scored. Running the cell again replaces the guess. If you joined a class board, it appears there as a bar
    among everybody's, without a name.

    Args:
        guess_id: What is guessed, "root_megabytes".
        guess: A plain number, word or True or False; None is no guess yet.
        unit: Unit of a number, "ms".
    """
    if problem := _not_an_id(guess_id, "predict"):
        return Prediction("", None, problem=problem)
    value = _plain(guess)
    if value is _NOT_PLAIN:
        what = "is not finite" if isinstance(guess, float) else f"is a {type(guess).__name__}"
        return Prediction(
            guess_id, None, problem=f"A guess is a plain number such as 0.5, a word in quotes or True; this {what}."
        )
    prediction = Prediction(guess_id, value, unit)  # type: ignore[arg-type]
    _written[guess_id] = prediction
    report_guess(guess_id, prediction.guess, unit)
    return prediction


def reveal(guess_id: str, result: Any, figure: Any = None) -> Revealed:
    """Return your guess beside what came out, as a line and a small picture; in words if there is no guess yet.

    If you joined a class board, the instructor can show there what came out, beside everybody's guesses.

    Args:
        guess_id: As in :func:`predict`.
        result: The number (a tensor of one element counts as one), word or flag that came out, in the guess's unit.
        figure: What to show with them, such as labkit.ring_player(), a run's timeline, labkit.compare(...), a figure of
            matplotlib's, or text: a table as a list of lines. It stays hidden until there is a guess.
    """
    if problem := _not_an_id(guess_id, "reveal"):
        return Revealed("", None, None, problem=problem)
    value = _plain(result)
    if value is _NOT_PLAIN or value is None:
        problem = f"There is nothing to reveal for {guess_id} yet: the result is {_in_words(result)}."
        return Revealed(guess_id, None, None, problem=problem)
    written = _written.get(guess_id)
    if written is None or written.guess is None:
        problem = (
            f'Write your guess first: run the cell above that begins labkit.predict("{guess_id}", ...)'
            f"{' with your guess in place of None' if written else ''}, then this one."
        )
        return Revealed(guess_id, None, None, problem=problem)
    report_measured(guess_id, value)
    return Revealed(guess_id, written.guess, value, written.unit, figure=figure)  # type: ignore[arg-type]


def with_unit(value: Plain, unit: str) -> str:
    """Return a value as a sentence shows it: "0.27 ms", "1,400 MB", "yes"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, float):
        text = f"{float(f'{value:.4g}'):,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    else:
        return repr(value)
    return f"{text} {unit}".rstrip()


def how_far(guess: Plain, result: Plain, unit: str = "") -> str:
    """Return how a guess compares with the result: "within 1 %", "too low by a factor of 3.1".

    Percentages are compared in percentage points: "2.5 percentage points too low".
    """
    if not (_is_number(guess) and _is_number(result)):
        return "as you said" if guess == result else "not what you said"
    mine, found = float(guess), float(result)  # type: ignore[arg-type]
    if mine == found:
        return "exactly"
    if unit == "%":
        return f"{in_points(mine, found)} too {'high' if mine > found else 'low'}"
    if mine * found <= 0 or mine < 0:
        return f"off by {with_unit(abs(found - mine), '')}"
    if abs(mine / found - 1) < 0.005:
        return "within 1 %"
    if abs(mine / found - 1) < 0.5:
        return f"{abs(mine / found - 1) * 100:.0f} % too {'high' if mine > found else 'low'}"
    factor = with_unit(float(f"{max(mine / found, found / mine):.2g}"), "")
    return f"too {'high' if mine > found else 'low'} by a factor of {factor}"


def _forms_of(figure: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a notebook can show of something, and the metadata of that."""
    if isinstance(figure, str):
        return {"text/plain": figure}, {}
    if isinstance(figure, list):
        return {"text/plain": "\n".join(map(str, figure))}, {}
    if hasattr(figure, "savefig"):
        from labkit.widgets.plots import to_png

        png = to_png(figure)
        titles = "; ".join(filter(None, (axes.get_title() for axes in figure.axes)))
        image = base64.b64encode(png).decode()
        html = f'<img style="max-width:100%" alt="{escape(titles)}" src="data:image/png;base64,{image}">'
        return {"text/plain": titles, "text/html": html, "image/png": png}, {}
    shown = figure._repr_mimebundle_()
    return shown if isinstance(shown, tuple) else (shown, {})


_NOT_PLAIN = object()


def _plain(value: Any) -> object:
    """Return a number, word, flag or None as Python's own; a tensor or array of one element as its number."""
    if hasattr(value, "item") and not isinstance(value, Mapping):
        try:
            value = value.item()
        except (RuntimeError, ValueError):
            return _NOT_PLAIN
    if not isinstance(value, int | float | str | bool | None):
        return _NOT_PLAIN
    return _NOT_PLAIN if isinstance(value, float) and not math.isfinite(value) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _can_be_drawn(value: object) -> bool:
    return _is_number(value) and (value == 0 or _DRAWN[0] <= abs(float(value)) <= _DRAWN[1])  # type: ignore[arg-type]


def _in_words(value: object) -> str:
    if value is None:
        return "None"
    return f"{value}" if isinstance(value, float) else f"a {type(value).__name__}"


def _not_an_id(identity: object, verb: str) -> str:
    if is_slug(identity):
        return ""
    return (
        f'labkit.{verb} begins with what is guessed, a name in quotes, as in labkit.{verb}("root_megabytes", ...); '
        f"this is {identity!r}."
    )
