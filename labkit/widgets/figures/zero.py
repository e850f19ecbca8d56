"""Memory bars that ZeRO slices away, stage by stage, while what a step sends grows."""

from __future__ import annotations

from labkit.units import format_bytes
from labkit.widgets.figures.sizes import within
from labkit.widgets.sharding_player import KINDS, SENT, STAGES, state_bytes
from labkit.widgets.storyboard import Box, Frame, Shape, Story, Words

_SAYS = (
    "DDP: every rank holds everything. Most of it is optimizer state, and it is the same on every rank.",
    "ZeRO-1: each rank keeps one part of the optimizer state, updates it, and sends the new weights to all.",
    "ZeRO-2: a rank updates one part of the weights, so it keeps only that part of the gradient.",
    "ZeRO-3: each rank keeps one part of the weights too. A layer gathers the rest and drops it: more traffic.",
)
_SHOWN, _TOP, _BASE, _HEIGHT = 4, 34, 214, 268


def memory_slices(num_ranks: int = 8, num_params: float = 7e9) -> Story:
    """Return the figure of what a rank holds under DDP and ZeRO's stages, and what a step sends.

    Args:
        num_ranks: 2 to 64.
        num_params: Of the model; mixed precision with Adam keeps 16 bytes of each.
    """
    within("num_ranks", num_ranks, 2, 64)
    held = [state_bytes(num_params, num_ranks, stage) for stage in range(len(STAGES))]
    scale = (_BASE - _TOP) / sum(held[0])
    frames = [Frame(says, _state(stage, held[stage], num_ranks, scale)) for stage, says in enumerate(_SAYS)]
    saved = sum(held[0]) / sum(held[-1])
    title = f"ZeRO-3 on {num_ranks} ranks holds 1/{saved:.0f} of DDP's bytes and sends {SENT[-1]:g} times as many"
    numbers = {name: format_bytes(int(sum(each))) for name, each in zip(STAGES, held, strict=True)}
    return Story(title, frames, _HEIGHT, numbers, telling=2)


def _state(stage: int, held: tuple[float, float, float], num_ranks: int, scale: float) -> tuple[Shape, ...]:
    shown = min(num_ranks, _SHOWN)
    shapes: list[Shape] = [Words(8, 20, STAGES[stage], bold=True)]
    for place, (name, _, meaning) in enumerate(KINDS):
        shapes += [Box("", 110 + 130 * place, 9, 12, 12, meaning, edge="none"), Words(128 + 130 * place, 20, name)]
    whole = _BASE - _TOP
    for rank in range(shown):
        left = 16 + rank * 104
        shapes.append(Box("", left, _TOP, 76, whole, edge="line", dashed=True))
        base = float(_BASE)
        for (_, _, meaning), size in zip(KINDS, held, strict=True):
            tall = max(size * scale, 1.5)
            shapes.append(Box(f"{meaning}{rank}", left, base - tall, 76, tall, meaning, edge="none"))
            base -= tall
        shapes.append(Words(left + 38, _BASE + 18, f"rank {rank}", anchor="middle"))
    if num_ranks > shown:
        shapes.append(Words(16, _BASE + 38, f"and {num_ranks - shown} ranks alike", fill="quiet"))
    shapes.append(Words(16 + shown * 104, _TOP + 14, format_bytes(int(sum(held))), 16, bold=True))
    shapes.append(Words(16 + shown * 104, _TOP + 32, "held by a rank", fill="quiet"))
    x, unit = 16 + shown * 104, 90
    shapes.append(Box("sent", x, _BASE - 60, unit * SENT[stage], 22, "collective", edge="none"))
    shapes.append(Box("", x, _BASE - 60, unit, 22, edge="line", dashed=True))
    shapes.append(Words(x, _BASE - 20, f"sends {SENT[stage]:g} × DDP"))
    return tuple(shapes)
