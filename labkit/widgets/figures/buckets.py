"""Gradients drop into buckets as backward makes them; a full bucket leaves while backward goes on."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.errors import ConfigError
from labkit.plans.reference.bucket_plans import bucket_plan
from labkit.units import format_percent
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import letter, tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Shape, Story, Words

_HEIGHT, _LAYERS, _BUCKETS, _NETWORK = 290, 26, 108, 224


def gradient_buckets(sizes_mb: Sequence[float] = (4, 12, 12, 12, 12, 8), cap_mb: float = 25) -> Story:
    """Return the figure of one backward pass with buckets.

    Args:
        sizes_mb: Of each layer's gradient, first layer first; 2 to 8.
        cap_mb: What a bucket holds.
    """
    within("len(sizes_mb)", len(sizes_mb), 2, 8)
    if min(sizes_mb) <= 0 or cap_mb <= 0:
        raise ConfigError(f"sizes_mb={tuple(sizes_mb)} and cap_mb={cap_mb} must be above 0.")
    plan = bucket_plan([round(1e6 * size) for size in sizes_mb], 1e6 * cap_mb)
    of = {layer: bucket for bucket, layers in enumerate(plan) for layer in layers}
    order = [layer for layers in plan for layer in layers]
    frames: list[Frame] = []
    left_at: dict[int, int] = {}
    says = "Forward is done. Backward begins at the last layer."
    for done in range(len(order) + 1):
        ready = order[:done]
        full = [k for k, layers in enumerate(plan) if set(layers) <= set(ready)]
        gone = [k for k in full if k not in left_at]
        if done:
            layer = ready[-1]
            says = f"Layer {layer}'s gradient drops into bucket {letter(of[layer])}."
            if gone:
                rest = len(order) - done
                more = f"while {rest} more layers compute" if rest else "and nothing is left to hide it"
                says = f"Bucket {letter(gone[0])} is full: it leaves, {more}."
        left_at |= dict.fromkeys(gone, done)
        frames.append(Frame(says, _state(sizes_mb, plan, of, ready, full)))
    early = sum(sum(sizes_mb[layer] for layer in layers) for k, layers in enumerate(plan) if left_at[k] < len(order))
    share = early / sum(sizes_mb)
    title = f"{len(plan)} buckets: {format_percent(share)} of the bytes leave before backward ends"
    telling = left_at[0]
    return Story(title, frames, _HEIGHT, {"buckets": len(plan), "bytes sent early": format_percent(share)}, telling)


def _state(
    sizes: Sequence[float], plan: Sequence[Sequence[int]], of: dict[int, int], ready: Sequence[int], full: Sequence[int]
) -> tuple[Shape, ...]:
    pitch = (WIDTH - 90) / len(sizes)
    scale = (WIDTH - 120 - 16 * len(plan)) / sum(sizes)
    shapes: list[Shape] = [
        Words(80, _LAYERS - 9, "← backward, from the last layer to the first", fill="quiet"),
        Words(8, _LAYERS + 22, "layers"), Words(8, _BUCKETS + 26, "buckets"), Words(8, _NETWORK + 26, "network"),
    ]  # fmt: skip
    computing = next((layer for layers in plan for layer in layers if layer not in ready), -1)
    for layer in range(len(sizes)):
        fill = "backward" if layer == computing else "none"
        shapes.append(
            Box(
                "",
                80 + layer * pitch,
                _LAYERS,
                pitch - 6,
                34,
                fill,
                f"layer {layer}",
                edge="ink" if fill != "none" else "line",
            )
        )
    x = 80.0
    for bucket, layers in enumerate(plan):
        wide = scale * sum(sizes[layer] for layer in layers) + 6
        y = _NETWORK if bucket in full else _BUCKETS
        shapes.append(Words(x, y - 5, f"bucket {letter(bucket)}" + (", all-reduce" if bucket in full else "")))
        edge = "collective" if bucket in full else "ink"
        shapes.append(Box(f"b{bucket}", x, y, wide, 40, edge=edge, dashed=bucket not in full))
        inside = x + 3
        for layer in layers:
            long = scale * sizes[layer]
            if layer in ready:
                shapes.append(Box(f"g{layer}", inside, y + 4, long - 2, 32, tint(bucket), f"{layer}"))
            inside += long
        x += wide + 16
    for layer in range(len(sizes)):
        if layer not in ready:
            middle = 80 + layer * pitch + pitch / 2
            shapes.append(Box(f"g{layer}", middle - 9, _LAYERS + 38, 18, 8, tint(of[layer]), faint=layer != computing))
    return tuple(shapes)
