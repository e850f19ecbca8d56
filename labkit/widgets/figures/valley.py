"""A worker that carries an old point of the loss valley and steps from where the others are now."""

from __future__ import annotations

import math

from labkit.errors import ConfigError
from labkit.widgets.figures.sizes import within
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words
from labkit.words import plural

_HEIGHT, _STEPS, _START = 280, 8, -1.0


def stale_worker(delay: int = 2, learning_rate: float = 0.6) -> Story:
    """Return the figure of descent on loss w²/2 with gradients that are `delay` steps old.

    Args:
        delay: Steps, 0 to 4.
        learning_rate: More than 0, at most 1.
    """
    within("delay", delay, 0, 4)
    if not 0 < learning_rate <= 1:
        raise ConfigError(f"learning_rate={learning_rate} was asked for; the figure shows values above 0, up to 1.")
    fresh, stale = _descend(0, learning_rate), _descend(delay, learning_rate)
    frames = [Frame("The server's weights lie up the slope. A worker takes a copy.", _state(stale, 0, 0))]
    for step in range(1, _STEPS + 1):
        old = max(step - 1 - delay, 0)
        slope = "downhill" if stale[old] * stale[step - 1] > 0 else "uphill"
        age = step - 1 - old
        what = f"gradient is {plural(age, 'step')} old and points {slope}" if age else "gradient is of this point"
        says = (
            f"Step {step}: the worker's {what}. Loss {stale[step - 1] ** 2 / 2:.2f} becomes {stale[step] ** 2 / 2:.2f}."
        )
        frames.append(Frame(says, _state(stale, step, old)))
    late, now = (f"{points[-1] ** 2 / 2:.2f}" for points in (stale, fresh))
    numbers = {f"loss after {_STEPS} steps, gradients fresh": now, f"{plural(delay, 'step')} old": late}
    title = f"Gradients {plural(delay, 'step')} old: after {_STEPS} steps the loss is {late}, with fresh ones {now}"
    telling = next((k for k in range(1, _STEPS + 1) if delay and stale[k - 1] * stale[max(k - 1 - delay, 0)] < 0), 1)
    return Story(title, frames, _HEIGHT, numbers, telling)


def _descend(delay: int, rate: float) -> list[float]:
    """Return the weight after each step; the gradient of w²/2 is w, taken `delay` steps ago."""
    points = [_START]
    for step in range(_STEPS):
        points.append(points[-1] - rate * points[max(step - delay, 0)])
    return points


def _state(points: list[float], step: int, old: int) -> tuple[Shape, ...]:
    reach = max(1.15, max(abs(w) for w in points) * 1.1)

    def at(w: float) -> tuple[float, float]:
        return WIDTH / 2 + w / reach * (WIDTH / 2 - 40), 236 - (w / reach) ** 2 * 180

    valley = tuple(at(reach * (k / 30 - 1)) for k in range(61))
    shapes: list[Shape] = [
        Path(valley, "line", 3),
        Words(WIDTH / 2, 20, "height: the loss; across: one weight", anchor="middle", fill="quiet"),
        Words(WIDTH / 2, 255, "best", 12, "middle", "quiet"),
    ]
    for before in range(step):
        shapes.append(Path((at(points[before]), at(points[before + 1])), "quiet", 1.2, dashed=True))
    (x, y), (ox, oy) = at(points[step]), at(points[old])
    if step:
        # What the worker's gradient asks for, where it was computed, and what it does to the server's weights.
        before_step = at(points[step - 1])
        asked = at(points[old] + points[step] - points[step - 1])
        if old != step - 1:
            shapes.append(Path(((ox, oy), asked), "backward", 3, dashed=True, arrow=True))
            shapes.append(Words(8, 274, "dashed: the worker's step, where it stood", 12, fill="quiet"))
        long = math.hypot(x - before_step[0], y - before_step[1])
        end = tuple(to + (of - to) * min(12 / max(long, 1), 1) for to, of in zip((x, y), before_step, strict=True))
        shapes.append(Path((before_step, (end[0], end[1])), "backward", 5, arrow=True))
    shapes.append(Path(((ox, oy - 26), (ox, oy - 4)), "quiet", 1, dashed=True))
    shapes.append(Box("worker", ox - 32, oy - 48, 64, 22, "ground", "worker", edge="ink", dashed=True))
    shapes.append(Box("server", x - 9, y - 9, 18, 18, "forward", edge="ground"))
    shapes.append(Words(x, y + 26, "server", 12, "middle"))
    return tuple(shapes)
