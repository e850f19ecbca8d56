"""What a plan of compressed steps comes to: bytes, and the loss of a small model that trains with it.

A plan says for every step, and for every layer in it, how many entries of the gradient each rank sends and with how
many bits each: the largest ones, with error feedback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

BITS = (4, 8, 16, 32)
NUM_RANKS, NUM_SEEDS, BATCH, RATE, MOMENTUM = 4, 3, 16, 0.01, 0.9
_TEST = 512

Plan: TypeAlias = Sequence[Sequence[tuple[int, int]]]
"""For each step, for each layer: how many entries, and how many bits each has."""


def packet_bytes(entries: int, bits: int, size: int) -> int:
    """Return the bytes of a packet.

    Entries of fewer than 32 bits share a scale of 4 bytes. Unless all are sent, their places travel too: as 4 bytes
    each, or as one bit for every entry of the layer, whichever is less.

    Args:
        entries: How many are sent; 0 sends nothing at all.
        bits: Of each.
        size: Entries of the layer.
    """
    if entries == 0:
        return 0
    places = 0 if entries == size else min(4 * entries, -(-size // 8))
    return -(-entries * bits // 8) + places + (4 if bits < 32 else 0)


def plan_bytes(plan: Plan, sizes: Sequence[int]) -> int:
    """Return the bytes that one rank sends over all steps."""
    return sum(packet_bytes(*chosen, size) for step in plan for chosen, size in zip(step, sizes, strict=True))


def most_entries(num_bytes: int, bits: int, size: int) -> int:
    """Return the most entries of a layer whose packet has at most so many bytes."""
    low, high = 0, size
    if packet_bytes(size, bits, size) <= num_bytes:
        return size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if packet_bytes(middle, bits, size) <= num_bytes else (low, middle)
    return low


def final_loss(plan: Plan, shapes: Sequence[tuple[int, int]], seed: int) -> float:
    """Return the loss after training with the plan, its mean over NUM_SEEDS tasks.

    Four ranks train a network of tanh layers to imitate another one, by SGD with momentum. What a step leaves out of a
    layer stays in that rank's residual.

    Args:
        plan: How each step is compressed.
        shapes: Inputs and outputs of each layer.
        seed: Draws tasks, weights and batches.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors this small are slower with more, and much slower where others need the cores
    try:
        return _final_loss(plan, shapes, seed)
    finally:
        torch.set_num_threads(threads)


def _final_loss(plan: Plan, shapes: Sequence[tuple[int, int]], seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(NUM_SEEDS, *shape, generator=generator, dtype=torch.float64)

    teacher = [1.5 * draw(*shape) / shape[0] ** 0.5 for shape in shapes]
    weights = [draw(*shape) / shape[0] ** 0.5 for shape in shapes]
    speeds = [torch.zeros_like(each) for each in weights]
    unsent = [torch.zeros(NUM_SEEDS, NUM_RANKS, *shape, dtype=torch.float64) for shape in shapes]
    for step in plan:
        x = draw(NUM_RANKS * BATCH, shapes[0][0])
        gradients = _gradients(weights, x, _layers(teacher, x)[-1])
        for layer, (entries, bits) in enumerate(step):
            unsent[layer] += gradients[layer]
            sent = _sent(unsent[layer], entries, bits)
            unsent[layer] -= sent
            speeds[layer] = MOMENTUM * speeds[layer] + sent.mean(1)
            weights[layer] = weights[layer] - RATE * speeds[layer]
    x = draw(_TEST, shapes[0][0])
    return float((_layers(weights, x)[-1] - _layers(teacher, x)[-1]).square().mean())


def _layers(weights: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """Return the input and what each layer makes of it; the last has no tanh."""
    values = [x]
    for place, weight in enumerate(weights):
        out = values[-1] @ weight
        values.append(out if place == len(weights) - 1 else out.tanh())
    return values


def _gradients(weights: Sequence[Tensor], x: Tensor, wanted: Tensor) -> list[Tensor]:
    """Return each layer's gradient on each rank, shape (seeds, ranks, inputs, outputs)."""
    values, found = _layers(weights, x), []
    slope = (values[-1] - wanted) / BATCH
    for place in range(len(weights) - 1, -1, -1):
        a, b = (each.view(NUM_SEEDS, NUM_RANKS, BATCH, -1) for each in (values[place], slope))
        found.append(a.transpose(2, 3) @ b)
        slope = (slope @ weights[place].transpose(1, 2)) * (1 - values[place].square())
    return found[::-1]


def _sent(gradient: Tensor, entries: int, bits: int) -> Tensor:
    """Return what is left of each rank's gradient: its largest entries, as whole numbers of a scale."""
    if entries == 0:
        return torch.zeros_like(gradient)
    flat = gradient.flatten(2)
    places = flat.abs().topk(entries, dim=2).indices
    kept = flat.gather(2, places)
    if bits < 32:
        scale = kept.abs().amax(2, keepdim=True).clamp(min=1e-30) / (2 ** (bits - 1) - 1)
        kept = (kept / scale).round() * scale
    return torch.zeros_like(flat).scatter(2, places, kept).view_as(gradient)
