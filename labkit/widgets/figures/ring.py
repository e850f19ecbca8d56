"""One chunk going round a ring, as the ring's plan sends it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Content, Outcome, Transfer
from labkit.plans.reference.rings import ring_plan
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import letter, tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Path, Shape, Story, Words

_HEIGHT, _FAR = 282, 92
_MIDDLE = (WIDTH / 2, 146)
_CELLS = {3: 48, 4: 44, 5: 26, 6: 26}
"""Pixels of a chunk's cell, by the number of ranks; of more ranks 128 for all chunks of a rank."""
_MOST_BESIDE = 4
"""Ranks of rings that have room beside each other, one for each step."""
_SENT = 28
"""Pixels of a chunk on its arrow."""


def ring_round(num_ranks: int = 4) -> Story:
    """Return the figure of a ring all-reduce that follows chunk A: collected on one way round, handed out on the next.

    Halfway a frame shows the steps of the reduce-scatter beside each other, where ranks are few.

    Args:
        num_ranks: 3 to 8.
    """
    within("num_ranks", num_ranks, 3, 8)
    played = execute([ring_plan(rank, num_ranks) for rank in range(num_ranks)])
    corners = [_corner(rank, num_ranks) for rank in range(num_ranks)]
    begun = {(each.src, each.chunk) for each in played.steps[0].transfers}
    frames = [
        Frame(
            "A1 is a rank's own A. Who receives a chunk adds its own to it.", _state(played.contents(0), corners, begun)
        )
    ]
    halfway = num_ranks - 1
    for number, step in enumerate(played.steps):
        if number == halfway and num_ranks <= _MOST_BESIDE:
            frames.append(_all_steps(played, halfway))
        move = next(each for each in step.transfers if each.chunk == 0)
        held = played.contents(number + 1)
        count = held[move.dst][0].mask.bit_count()
        if move.reduced:
            says = f"Step {number}: rank {move.dst} adds its own A: a sum of {count} ranks."
        else:
            says = f"Step {number}: rank {move.src} sends the finished A on; rank {move.dst} keeps a copy."
        arrived = {(each.dst, each.chunk) for each in step.transfers}
        frames.append(Frame(says, _state(held, corners, arrived, move)))
    steps = len(played.steps)
    alike = f"The other chunks went round at the same time, each from another rank: {steps} steps in all."
    frames.append(Frame(alike, _state(played.contents(steps), corners, None)))
    title = f"Rank {halfway} completes chunk A in step {halfway - 1}"
    telling = num_ranks if num_ranks <= _MOST_BESIDE else halfway
    return Story(title, frames, _HEIGHT, {"steps": steps, "sent by a rank": f"{steps}/{num_ranks}"}, telling)


def _corner(rank: int, num_ranks: int) -> tuple[float, float]:
    return _around(_MIDDLE, rank, num_ranks, 2.2 * _FAR, _FAR)


def _around(middle: tuple[float, float], rank: int, num_ranks: int, wide: float, high: float) -> tuple[float, float]:
    """Return where a rank stands around a middle, so far from it at most; rank 0 above it."""
    angle = 2 * math.pi * rank / num_ranks - math.pi / 2
    return middle[0] + wide * math.cos(angle), middle[1] + high * math.sin(angle)


def _state(
    held: Sequence[Sequence[Content]],
    corners: list[tuple[float, float]],
    lit: set[tuple[int, int]] | None,
    move: Transfer | None = None,
) -> tuple[Shape, ...]:
    """Return the ring while chunk A stands at a rank; before its first step with what is sent then.

    Args:
        held: What each rank has of each chunk.
        corners: Where each rank stands.
        lit: The ranks and chunks that step forward, a chunk for each rank; None for all, and then nothing is sent.
        move: How chunk A came to the rank it stands at; None before the first step and after the last.
    """
    size = len(corners)
    cell = _CELLS.get(size, 128 / size)
    at = None if lit is None else move.dst if move else 0
    shapes: list[Shape] = []
    for rank, (x, y) in enumerate(corners):
        end = corners[(rank + 1) % size]
        near, far = _between((x, y), end, 0.3), _between((x, y), end, 0.7)
        is_own = rank == (move.src if move else at)
        stroke = "line" if lit is None else "send"
        shapes.append(Path((near, far), stroke, 6 if is_own else 3, arrow=True))
        if lit and move is None:
            (chunk,) = (each for one, each in lit if one == rank)
            middle_x, middle_y = _between((x, y), end, 0.47)
            left, top = middle_x - _SENT / 2, middle_y - _SENT / 2
            shapes.append(Box("", left, top, _SENT, _SENT, tint(chunk), letter(chunk), 18))
    for rank, (x, y) in enumerate(corners):
        left = x - size * cell / 2
        shapes.append(Words(x, y - cell / 2 - 7, f"rank {rank}", 16, "middle", bold=rank == at))
        for chunk in range(size):
            count = held[rank][chunk].mask.bit_count()
            is_lit = lit is None or (rank, chunk) in lit
            x0, side = left + chunk * cell, cell - 2
            key = "token" if chunk == 0 and rank == at else ""
            edge, words = "ink" if is_lit else "line", f"{letter(chunk)}{count}"
            box = Box(key, x0, y - side / 2, side, side, tint(chunk), words, round(cell * 0.45), edge, faint=not is_lit)
            shapes.append(box)
    count = held[at or 0][0].mask.bit_count()
    told = (f"A{count}: A summed", f"over {count} ranks") if count > 1 else ("step 0: each", "sends one chunk")
    for line, words in enumerate(told):
        shapes.append(Words(_MIDDLE[0], _MIDDLE[1] - 6 + 26 * line, words, 22, "middle"))
    return tuple(shapes)


def _all_steps(played: Outcome, steps: int) -> Frame:
    """Return the steps of the reduce-scatter beside each other, each a small ring of the sums that ranks then made."""
    wide, cell = WIDTH / steps, 48.0
    shapes: list[Shape] = []
    for number, step in enumerate(played.steps[:steps]):
        middle = (wide * (number + 0.5), _HEIGHT / 2)
        corners = [_around(middle, rank, played.num_ranks, 80, 82) for rank in range(played.num_ranks)]
        for each in step.transfers:
            end, width = (0.61, 6) if each.chunk == 0 else (0.66, 2.5)
            near, far = (_between(corners[each.src], corners[each.dst], share) for share in (0.4, end))
            shapes.append(Path((near, far), "send", width, arrow=True))
        for each in step.transfers:
            (x, y), sums = corners[each.dst], played.contents(number + 1)[each.dst][each.chunk]
            left, top, words = x - cell / 2, y - cell / 2, f"{letter(each.chunk)}{sums.mask.bit_count()}"
            shapes.append(Box("", left, top, cell, cell, tint(each.chunk), words, 23, "line"))
            if sums.complete:
                edges = ((0, 0), (cell, 0), (cell, cell), (0, cell), (0, 0))
                shapes.append(Path(tuple((left + right, top + down) for right, down in edges), "ink", 2))
            is_below = y > middle[1] + 1 or x > middle[0] + 1  # what arrives there comes from above
            name = y + cell / 2 + 17 if is_below else top - 6
            shapes.append(Words(x, name, f"rank {each.dst}", 14, "middle"))
        shapes.append(Words(middle[0], middle[1] + 7, f"step {number}", 20, "middle", bold=True))
    return Frame("Each square: a sum just made. Thick: A's way. Framed: complete.", tuple(shapes))


def _between(a: tuple[float, float], b: tuple[float, float], share: float) -> tuple[float, float]:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share
