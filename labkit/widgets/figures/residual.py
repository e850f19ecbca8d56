"""The kept part of a gradient and its residual, which the next step adds again."""

from __future__ import annotations

import random

from labkit.widgets.figures.sizes import within
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_ENTRIES, _SEED, _HEIGHT = 10, 3, 300
_LEVELS = {"gradient": 74.0, "sent": 168.0, "residual": 258.0}


def kept_and_residual(kept: int = 2, steps: int = 3) -> Story:
    """Return the figure of top-k with error feedback on a gradient of ten numbers.

    Args:
        kept: Entries sent in each step, 1 to 5.
        steps: 1 to 4.
    """
    within("kept", kept, 1, 5)
    within("steps", steps, 1, 4)
    draw = random.Random(_SEED)
    steady = [draw.uniform(0.25, 1.0) * draw.choice((-1, 1)) for _ in range(_ENTRIES)]
    residual, sent_once, frames = [0.0] * _ENTRIES, set(), []
    for step in range(1, steps + 1):
        whole = [old + new for old, new in zip(residual, steady, strict=True)]
        words = (
            f"A gradient of {_ENTRIES} entries."
            if step == 1
            else f"Step {step}: the next gradient comes on top of the residual."
        )
        frames.append(Frame(words, _state(step, whole, [], [])))
        chosen = sorted(sorted(range(_ENTRIES), key=lambda k: -abs(whole[k]))[:kept])
        sent_once |= set(chosen)
        frames.append(Frame(f"The {kept} largest are sent. The others stay behind as the residual.",
                            _state(step, whole, chosen, [k for k in range(_ENTRIES) if k not in chosen])))  # fmt: skip
        residual = [0.0 if k in chosen else value for k, value in enumerate(whole)]
    waiting = sum(value != 0 for value in residual)
    title = f"{kept} of {_ENTRIES} entries are sent a step; {waiting} wait in the residual, none is lost"
    numbers = {"sent a step": f"{kept} of {_ENTRIES}", f"sent at least once in {steps} steps": len(sent_once)}
    return Story(title, frames, _HEIGHT, numbers, telling=1)


def _state(step: int, whole: list[float], chosen: list[int], behind: list[int]) -> tuple[Shape, ...]:
    pitch, scale = (WIDTH - 130) / _ENTRIES, 44 / max(1.6, max(abs(value) for value in whole))
    shapes: list[Shape] = []
    for name, level in _LEVELS.items():
        label = "+ residual" if name == "gradient" and step > 1 and not behind else ""
        shapes += [Words(8, level + 4, name), Words(8, level + 22, label)]
        shapes.append(Path(((110, level), (WIDTH - 12, level)), "line", 1))
    for k, value in enumerate(whole):
        level = _LEVELS["sent" if k in chosen else "residual" if k in behind else "gradient"]
        tall = max(abs(value) * scale, 2)
        fill = "send" if k in chosen else "backward"
        top = level - tall if value > 0 else level
        shapes.append(Box(f"e{k}", 116 + k * pitch, top, pitch - 10, tall, fill, faint=k in behind, edge="ink"))
    return tuple(shapes)
