"""One chunk going round a ring, as the ring's plan sends it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Content
from labkit.plans.reference.rings import ring_plan
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import letter, tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_HEIGHT, _FAR = 282, 92
_MIDDLE = (WIDTH / 2, 146)
_CELLS = {3: 48, 4: 44, 5: 26, 6: 26}
"""Pixels of a chunk's cell, by the number of ranks; of more ranks 128 for all chunks of a rank."""


def ring_round(num_ranks: int = 4) -> Story:
    """Return the figure of a ring all-reduce that follows chunk A: collected on one way round, handed out on the next.

    Args:
        num_ranks: 3 to 8.
    """
    within("num_ranks", num_ranks, 3, 8)
    played = execute([ring_plan(rank, num_ranks) for rank in range(num_ranks)])
    corners = [_corner(rank, num_ranks) for rank in range(num_ranks)]
    frames = [
        Frame(
            "Every rank has its own numbers in chunk A. Follow A of rank 0.",
            _state(played.contents(0), corners, 0),
        )
    ]
    at = 0
    for number, step in enumerate(played.steps):
        move = next(each for each in step.transfers if each.chunk == 0)
        at = move.dst
        count = played.contents(number + 1)[at][0].mask.bit_count()
        if move.reduced:
            says = f"Step {number}: rank {at} adds its own A: a sum of {count} ranks."
        else:
            says = f"Step {number}: rank {move.src} sends the finished A on; rank {at} keeps a copy."
        frames.append(Frame(says, _state(played.contents(number + 1), corners, at, sender=move.src)))
    steps = len(played.steps)
    alike = f"The other chunks went round at the same time, each from another rank: {steps} steps in all."
    frames.append(Frame(alike, _state(played.contents(steps), corners, None)))
    title = f"Chunk A is complete after step {num_ranks - 2}"
    return Story(title, frames, _HEIGHT, {"steps": steps, "sent by a rank": f"{steps}/{num_ranks}"}, num_ranks - 1)


def _corner(rank: int, num_ranks: int) -> tuple[float, float]:
    angle = 2 * math.pi * rank / num_ranks - math.pi / 2
    return _MIDDLE[0] + 2.2 * _FAR * math.cos(angle), _MIDDLE[1] + _FAR * math.sin(angle)


def _state(
    held: Sequence[Sequence[Content]],
    corners: list[tuple[float, float]],
    at: int | None,
    *,
    sender: int | None = None,
) -> tuple[Shape, ...]:
    """Return the ring while chunk A stands at a rank, or with all chunks lit where `at` is None.

    Args:
        held: What each rank has of each chunk.
        corners: Where each rank stands.
        at: The rank that chunk A stands at.
        sender: The rank that sent it there in this step: its arrow is drawn strong, the other ranks' pale.
    """
    size = len(corners)
    cell = _CELLS.get(size, 128 / size)
    shapes: list[Shape] = []
    for rank, (x, y) in enumerate(corners):
        end = corners[(rank + 1) % size]
        near, far = _between((x, y), end, 0.3), _between((x, y), end, 0.7)
        stroke, width = ("send", 6) if rank == sender else ("line", 3)
        shapes.append(Path((near, far), stroke, width, arrow=True))
    for rank, (x, y) in enumerate(corners):
        left = x - size * cell / 2
        shapes.append(Words(x, y - cell / 2 - 7, f"rank {rank}", 16, "middle", bold=rank == at))
        for chunk in range(size):
            count = held[rank][chunk].mask.bit_count()
            lit = at is None or chunk == 0
            x0, side = left + chunk * cell, cell - 2
            key = "token" if chunk == 0 and rank == at else ""
            edge, words = "ink" if lit else "line", f"{letter(chunk)}{count}"
            box = Box(key, x0, y - side / 2, side, side, tint(chunk), words, round(cell * 0.45), edge, faint=not lit)
            shapes.append(box)
    count = held[at or 0][0].mask.bit_count()
    for line, words in enumerate((f"A{count}: A summed", f"over {count} rank{'s' * (count > 1)}")):
        shapes.append(Words(_MIDDLE[0], _MIDDLE[1] - 6 + 26 * line, words, 22, "middle"))
    return tuple(shapes)


def _between(a: tuple[float, float], b: tuple[float, float], share: float) -> tuple[float, float]:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
