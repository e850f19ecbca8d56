"""A cut between two stages: what crosses the cable forward and backward, and where autograd stops."""

from __future__ import annotations

from labkit.widgets.storyboard import Box, Frame, Path, Shape, Story, Words

_LETTERS, _HEIGHT = 19, 212
_LEFT, _RIGHT, _WIDE = 4, 416, 260
"""Left edges of the two stages, and how wide each is."""
_FORWARD, _BACKWARD, _TALL = 40, 138, 68
"""Tops of what is done forward and backward, and its height."""


def stages_and_cable() -> Story:
    """Return the figure of two stages and the cable between them: an output goes one way, its gradient the other."""
    sends = _box(_LEFT, _FORWARD, "forward", "y = module(…)")
    takes = _box(_RIGHT, _FORWARD, "forward", "loss of module(x)")
    turns = _box(_RIGHT, _BACKWARD, "backward", "loss.backward()")
    ends = _box(_LEFT, _BACKWARD, "backward", "y.backward(g)")
    begun = (*_stages(), sends, _arrow(forward=True))
    forward = (*_stages(), sends, takes, *_message("y", "x", forward=True))
    frames = [
        Frame("Stage 0 sends its output y.", (*begun, _moving("y", _LEFT + _WIDE + 8))),
        Frame("It arrives as x: numbers alone, without the graph that made them.", (*begun, _moving("x", _RIGHT - 38))),
        Frame("Stage 1 asks for a gradient of x, and runs its backward.", (*forward, turns)),
        Frame(
            "y arrives as x, and x.grad as g. Without\N{NO-BREAK SPACE}x.requires_grad_(), x.grad would be None.",
            (*forward, turns, *_message("x.grad", "g", forward=False), ends),
        ),
    ]
    return Story("Autograd stops at the cable: you carry the gradient", frames, _HEIGHT, telling=len(frames) - 1)


def _stages() -> tuple[Shape, ...]:
    """Return what stands above what the stages do."""
    middles = ((_LEFT + _WIDE / 2, "stage 0"), (_RIGHT + _WIDE / 2, "stage 1"), ((_LEFT + _WIDE + _RIGHT) / 2, "cable"))
    return tuple(Words(x, 22, words, _LETTERS, "middle", bold=True) for x, words in middles)


def _box(x: float, top: float, fill: str, words: str) -> Box:
    return Box("", x, top, _WIDE, _TALL, fill, words, _LETTERS, edge="none")


def _moving(words: str, x: float) -> Box:
    return Box("message", x, _FORWARD - 6, 30, 28, "ground", words, _LETTERS)


def _arrow(forward: bool) -> Path:
    ends = (_LEFT + _WIDE + 8, _RIGHT - 8)
    y = (_FORWARD if forward else _BACKWARD) + _TALL / 2 - 2
    return Path(tuple((x, y) for x in (ends if forward else ends[::-1])), "ink", 3, arrow=True)


def _message(leaves: str, arrives: str, forward: bool) -> tuple[Shape, ...]:
    """Return an arrow through the cable: what leaves stands at its begin, as what it arrives at its head."""
    arrow = _arrow(forward)
    (begin, y), (end, _) = arrow.points
    first, last = ("start", "end") if forward else ("end", "start")
    return (
        arrow,
        Words(begin, y - 13, leaves, _LETTERS, first, bold=True),
        Words(end, y - 13, arrives, _LETTERS, last, bold=True),
        Words((begin + end) / 2, y + 29, "forward" if forward else "backward", _LETTERS, "middle"),
    )
