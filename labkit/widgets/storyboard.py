"""A small figure told in a few frames: what stands in two frames under one key moves from one place to the other.

Colours are meanings of the visual language ("forward", "wrong", "ink") or tints of chunks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from labkit.widgets.explorer import Explorer
from labkit.widgets.language import CLAIM, LIGHT, TEXT
from labkit.widgets.scene import Line, Mark, Rect, Scene, Text

WIDTH = 680
"""Pixels that a figure is drawn on; a page wider or narrower than that scales it."""
_HEAD = 34
_FAINT = 0.3
_EMPTY = ("none", LIGHT["ground"])


@dataclass(frozen=True)
class Box:
    """A rectangle with words in it.

    Attributes:
        key: What it is, from frame to frame; "" for what never moves.
        x: Its left edge.
        y: Its top.
        width: Pixels.
        height: Pixels.
        fill: A meaning, a tint, or "none".
        words: In its middle.
        size: Of the words' letters, pixels.
        edge: A meaning, or "none".
        dashed: Whether its edge is: a model, or a place that is empty.
        faint: Whether it steps back.
        hatched: Whether it stands still: stripes.
    """

    key: str
    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    words: str = ""
    size: float = TEXT
    edge: str = "ink"
    dashed: bool = False
    faint: bool = False
    hatched: bool = False


@dataclass(frozen=True)
class Words:
    """A line of text; x and y are its anchor and its baseline."""

    x: float
    y: float
    words: str
    size: float = TEXT
    anchor: str = "start"
    fill: str = "ink"
    bold: bool = False


@dataclass(frozen=True)
class Path:
    """A line through points, with a head where it is an arrow."""

    points: tuple[tuple[float, float], ...]
    stroke: str = "line"
    width: float = 2.0
    dashed: bool = False
    arrow: bool = False


Shape = Box | Words | Path


@dataclass(frozen=True)
class Frame:
    """One state of a figure.

    Attributes:
        says: What happens here, in a sentence.
        shapes: What is painted, in order.
    """

    says: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Story:
    """A figure.

    Attributes:
        title: The finding, computed.
        frames: Two or more.
        height: Pixels of a frame.
        numbers: What was computed, by name.
        telling: The frame that a still shows, and a page opens at.
    """

    title: str
    frames: Sequence[Frame]
    height: float
    numbers: Mapping[str, Any] = field(default_factory=dict)
    telling: int = 0

    def explorer(self) -> Explorer:
        """Return the figure that a notebook shows."""
        every = list(dict.fromkeys(shape for frame in self.frames for shape in frame.shapes))
        number = {shape: at for at, shape in enumerate(every)}
        frames = [{"says": frame.says, "shapes": [number[each] for each in frame.shapes]} for frame in self.frames]
        data = {
            "title": self.title,
            "width": WIDTH,
            "height": self.height,
            "begin": self.telling,
            "numbers": [[name, str(value)] for name, value in self.numbers.items()],
            "shapes": [_as_data(each) for each in every],
            "frames": frames,
        }
        sentence = f"{self.title}. {self.frames[self.telling].says}"
        return Explorer(sentence, dict(self.numbers), "storyboard.js", "storyboard", data, self._still())

    def _still(self) -> Scene:
        """Return the most telling frame."""
        frame = self.frames[self.telling]
        marks: list[Mark] = [Text(8, 20, self.title, CLAIM, bold=True)]
        for shape in frame.shapes:
            marks += _marks(shape, marks)
        marks.append(Text(8, _HEAD + self.height + 14, frame.says, TEXT))
        return Scene(WIDTH, round(_HEAD + self.height + 24), tuple(marks))


def _as_data(shape: Shape) -> dict[str, Any]:
    """Return a shape as the page reads it; what is as usual is left out."""
    usual = {"key": "", "fill": "none", "words": "", "edge": "ink", "anchor": "start", "bold": False, "size": TEXT}
    usual |= {"dashed": False, "faint": False, "hatched": False, "arrow": False}
    is_words = isinstance(shape, Words)
    given = {name: _short(value) for name, value in asdict(shape).items()}.items()
    kept = {
        name: value for name, value in given if usual.get(name, object()) != value or (is_words and name == "words")
    }
    return {"kind": type(shape).__name__.lower()} | kept


def _short(value: Any) -> Any:
    """Return a number to a tenth of a pixel, a point's too."""
    if isinstance(value, tuple):
        return [_short(each) for each in value]
    if not isinstance(value, float):
        return value
    return int(value) if value.is_integer() else round(value, 1)


def _colour(meaning: str) -> str:
    return LIGHT.get(meaning, meaning)


def _marks(shape: Shape, below: Sequence[Mark]) -> list[Mark]:
    """Return a shape for a still, below its title; below is what lies under it."""
    if isinstance(shape, Words):
        x, y, bold = shape.x, shape.y + _HEAD, shape.bold
        on = _fill_at(x, y - 4, below)
        return [Text(x, y, shape.words, shape.size, shape.anchor, _colour(shape.fill), bold, on)]
    if isinstance(shape, Path):
        points, colour = tuple((x, y + _HEAD) for x, y in shape.points), _colour(shape.stroke)
        head = [Line(_head_of(points, 4 + 1.5 * shape.width), colour, shape.width)] if shape.arrow else []
        return [Line(points, colour, shape.width, shape.dashed), *head]
    x, y, wide, tall = shape.x, shape.y + _HEAD, shape.width, shape.height
    fill, edge = _colour(shape.fill), _colour(shape.edge)
    if shape.faint and edge != "none":
        edge = LIGHT["line"]
    if shape.faint and shape.words:
        fill = "none"  # words on a faint tint would be read on one ground only
    marks: list[Mark] = [Rect(x, y, wide, tall, fill, edge, 1.0, shape.dashed, _FAINT if shape.faint else 1.0)]
    if shape.hatched:
        for at in range(6, round(wide + tall), 7):
            bottom, top = (max(at - tall, 0), min(at, tall)), (min(at, wide), max(at - wide, 0))
            marks.append(Line(((x + bottom[0], y + bottom[1]), (x + top[0], y + top[1])), LIGHT["line"], 0.5))
    if shape.words:
        across, down = x + wide / 2, y + tall / 2
        on = _fill_at(across, down, [*below, *marks])
        marks.append(Text(across, down + 0.35 * shape.size, shape.words, shape.size, "middle", on=on))
    return marks


def _head_of(points: Sequence[tuple[float, float]], long: float) -> tuple[tuple[float, float], ...]:
    """Return the two strokes of an arrow's head, of this length."""
    (x0, y0), (x, y) = points[-2:]
    back = math.atan2(y0 - y, x0 - x)
    barbs = [(x + long * math.cos(back + turn), y + long * math.sin(back + turn)) for turn in (-0.5, 0.5)]
    return barbs[0], (x, y), barbs[1]


def _fill_at(x: float, y: float, marks: Sequence[Mark]) -> str:
    """Return the colour that is seen at a place, "" where it is the ground."""
    boxes = [each for each in marks if isinstance(each, Rect) and each.opacity == 1 and each.fill not in _EMPTY]
    at = (each.fill for each in boxes if 0 <= x - each.x <= each.width and 0 <= y - each.y <= each.height)
    return ([*at] or [""])[-1]
