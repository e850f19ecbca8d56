"""``labkit.sharding_player``: who holds what, moment by moment, under each stage of ZeRO, and what it sends."""

from __future__ import annotations

from labkit.errors import ConfigError
from labkit.units import format_bytes
from labkit.widgets.explorer import Explorer
from labkit.widgets.language import LIGHT
from labkit.widgets.scene import GREY, Mark, Rect, Scene, Text

STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
KINDS = (("parameters", 2, "forward"), ("gradients", 2, "backward"), ("optimizer", 12, "optimizer"))
"""Name, bytes a parameter, and meaning of each kind of number."""
_SIZES = (2, 4, 8, 16, 32, 64)
SENT = (1.0, 1.0, 1.0, 1.5)
"""What a step sends under each stage, over DDP's."""
_WIDTH, _LEFT, _ROW = 760, 90, 58


def state_bytes(num_params: float, num_ranks: int, stage: int) -> tuple[float, float, float]:
    """Return what a rank holds of parameters, gradients and optimizer state under a stage of ZeRO, 0 for DDP."""
    parameters, gradients, optimizer = (num_params * size for _, size, _ in KINDS)
    return (
        parameters / (num_ranks if stage >= 3 else 1),
        gradients / (num_ranks if stage >= 2 else 1),
        optimizer / (num_ranks if stage >= 1 else 1),
    )


def sharding_player(num_params: float = 7e9, num_ranks: int = 8, *, stage: int = 3) -> Explorer:
    """Return a figure that plays a training step: what every rank holds of each block, and what it has sent.

    Args:
        num_params: Parameters of the model; mixed precision with Adam keeps 16 bytes of each.
        num_ranks: Ranks to begin with: 2, 4, 8, 16, 32 or 64.
        stage: ZeRO stage to begin with, 1 to 3; 0 for DDP.

    Raises:
        ConfigError: If there is no such stage, or another number of ranks.
    """
    if num_ranks not in _SIZES or stage not in range(4):
        raise ConfigError(f"sharding_player shows stages 0 to 3 on {', '.join(map(str, _SIZES))} ranks.")
    held = [sum(state_bytes(num_params, num_ranks, each)) for each in range(4)]
    parts = [f"{name} {format_bytes(int(size))}" for name, size in zip(STAGES, held, strict=True)]
    sentence = f"{num_params / 1e9:g} billion parameters on {num_ranks} ranks, held by each: {', '.join(parts)}."
    numbers = {"held": dict(zip(STAGES, held, strict=True)), "sent": dict(zip(STAGES, SENT, strict=True))}
    data = {
        "title": "Sharded training", "source": f"{num_params / 1e9:g} billion parameters, four equal blocks",
        "params": num_params, "n": num_ranks, "sizes": _SIZES, "stage": stage,
    }  # fmt: skip
    scene = _still(num_params, num_ranks, held)
    return Explorer(sentence, numbers, "sharding_player.js", "shardingPlayer", data, scene)


def _still(num_params: float, num_ranks: int, held: list[float]) -> Scene:
    """Return the bars of memory that the stages slice away, with what each sends."""
    saved = held[0] / held[3]
    marks: list[Mark] = [
        Text(12, 24, f"ZeRO-3 holds {saved:.0f} times less than DDP and sends half as much again", 15, bold=True),
        Text(
            12, 43, f"{num_params / 1e9:g} billion parameters on {num_ranks} ranks; what each rank holds", 12, fill=GREY
        ),
    ]
    for place, (name, _, colour) in enumerate(KINDS):
        marks += [Rect(_LEFT + 120 * place, 54, 12, 12, LIGHT[colour]), Text(_LEFT + 18 + 120 * place, 64, name, 12)]
    scale = (_WIDTH - _LEFT - 180) / held[0]
    for stage, name in enumerate(STAGES):
        y, x = 80 + _ROW * stage, float(_LEFT)
        marks.append(Text(12, y + 24, name, 13))
        for (_, _, colour), size in zip(KINDS, state_bytes(num_params, num_ranks, stage), strict=True):
            marks.append(Rect(x, y, max(size * scale, 1), 38, LIGHT[colour]))
            x += size * scale
        marks.append(Rect(_LEFT, y, held[0] * scale, 38, "none", GREY, 1, dashed=True))
        words = f"{format_bytes(int(held[stage]))}, sends {SENT[stage]:g} x DDP"
        marks.append(Text(_LEFT + held[0] * scale + 8, y + 24, words, 12))
    return Scene(_WIDTH, 80 + 4 * _ROW, tuple(marks))
