"""Gradients of three models: how many bytes each parameter's has, and when backward has it ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

Gradients = tuple[list[int], list[int]]
"""Bytes of each parameter's gradient, and the microsecond of backward in which it is complete."""

NETWORKS: Mapping[str, tuple[int, int]] = {
    "8 GPUs of one machine": (40, 130_000),
    "8 machines, 100 Gbit/s": (300, 6_500),
}
"""What an all-reduce costs whatever it carries, in us, and bytes a us it then carries."""


def tower(width: int = 384, depth: int = 40, backward_us: int = 6_000) -> Gradients:
    """Return equal linear layers: a large weight and a small bias, again and again."""
    work = [(width * width, width * width), (width, width)] * depth
    return _timed(work, backward_us)


def convolutions(channels: int = 64, blocks: int = 6, backward_us: int = 30_000) -> Gradients:
    """Return convolutions with norms: the last layers have most of the bytes, the first ones most of the work."""
    work = []
    for stage in range(4):
        pixels, wide = (56 >> stage) ** 2, channels << stage
        work += [(9 * wide * wide, 9 * wide * wide * pixels), (wide, wide * pixels), (wide, wide * pixels)] * blocks
    last = channels << 3
    return _timed([*work, (1000 * last, 1000 * last), (1000, 1000)], backward_us)


def gpt(width: int = 768, depth: int = 12, vocabulary: int = 50_304, backward_us: int = 90_000) -> Gradients:
    """Return a GPT whose output shares its weight with the embedding, which is therefore ready last."""
    weights = (width, width, 3 * width**2, 3 * width, width**2, width, width, width, 4 * width**2, 4 * width)
    block = [(numel, numel) for numel in (*weights, 4 * width**2, width)]
    output = vocabulary * width // 4
    return _timed(
        [(vocabulary * width, 0), (1024 * width, 0), *block * depth, (width, 1), (width, output)], backward_us
    )


MODELS: Mapping[str, Callable[[], Gradients]] = {
    "40 equal layers, 24 MB": tower,
    "a convolutional net, 77 MB": convolutions,
    "a GPT, 498 MB": gpt,
}


def _timed(work: Sequence[tuple[int, int]], backward_us: int) -> Gradients:
    """Return bytes and times of parameters with so many numbers and so much work, in the order of the model."""
    total, done = sum(operations for _, operations in work), 0
    ready = []
    for _, operations in reversed(work):
        done += operations
        ready.append(-(-done * backward_us // total))
    return [4 * numel for numel, _ in work], ready[::-1]
