"""A class of made results and answers: what a page must hold and how long it may take, without grading anybody."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from labkit.grading.reports.results import GradedExercise, GradedSubmission

MISTAKES = {"1.1": "divides by two", "1.3": "whole tensor at each step", "1.4": "one chunk is missing"}
TITLES = ("Byte counts", "Chunk bounds", "A plan for the ring", "The ring adds up", "Drop-in", "A tree")

NAMES = ("rank", "n", "step", "left", "right", "chunk", "total", "size", "start", "end")
SHAPES = (
    "    {a} = ({b} + {k}) % n",
    "    for {a} in range({b}, {k}):\n        {c} += {a} * {b}",
    "    if {a} < {b} - {k}:\n        {c}[{a}:{b}].copy_({a})",
    "    work = dist.isend({a}[{b}], {c}, group)",
    "    dist.batch_isend_irecv(ops)[{k}].wait()",
    "    {a} = torch.empty_like({b}[{k}:{c}])",
    "    {c} = [{a} for {b} in {c} if {a} != {k}]",
    "    while {a} > {k} and not {b}:\n        {a} -= {c} // {k}",
)


def made_results(count: int, seed: int = 1) -> list[GradedSubmission]:
    """Return `count` results of a lesson of six exercises, the last a bonus, with spread abilities."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        ability = draw.gauss(0.6, 0.25)
        exercises = []
        for at, title in enumerate(TITLES, start=1):
            points, identity = 4.0 * at, f"1.{at}"
            passed = draw.random() < ability + 0.25 - at * 0.08
            state = "passed" if passed else "not_done" if draw.random() < 0.3 else "failed"
            mistake = MISTAKES.get(identity, "off by one") if state == "failed" and draw.random() < 0.8 else ""
            came_back = f"Came back: Rank {at} has {draw.random():.3f} in element 4."
            said = f"Tried: 3 ranks\n{came_back}" if state == "failed" else ""
            earned = points if state == "passed" else 0.0
            exercises.append(GradedExercise(identity, earned, 0.0 if at == 6 else points, state, title, said, mistake))
        made.append(GradedSubmission(f"student {number:03}", "01_made", "s", "c", tuple(exercises)))
    worth = [0 if at == 6 else 4 * at for at in range(1, 7)]
    unread = tuple(GradedExercise(f"1.{at}", 0, worth[at - 1], "not_graded", TITLES[at - 1]) for at in range(1, 7))
    made.append(GradedSubmission("torn <b>", "01_made", "s", "c", unread, problem="The file is cut off or damaged."))
    return made


def made_answers(names: Sequence[str], seed: int = 1) -> dict[str, dict[str, str]]:
    """Return for each name some 250 lines of code nobody else wrote, in six cells, with idioms many share."""
    draw = random.Random(seed)
    return {name: {f"1.{at}": _cell(draw, at) for at in range(1, 7)} for name in names}


def _cell(draw: random.Random, at: int) -> str:
    lines = [f"def answer_{at}(tensor, group=None):", "    rank, n = dist.get_rank(group), dist.get_world_size(group)"]
    for _ in range(40):
        a, b, c = (draw.choice(NAMES) for _ in range(3))
        lines.append(draw.choice(SHAPES).format(a=a, b=b, c=c, k=draw.randrange(1, 9)))
    return "\n".join([*lines, "    return tensor"])


def renamed(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the same answers with other names, other spaces and comments of their own."""
    words = {"rank": "me", "step": "turn", "chunk": "piece", "total": "acc", "left": "prev", "tensor": "t", "n": "w"}
    out = {}
    for number, source in cells.items():
        for word, other in words.items():
            source = source.replace(f" {word} ", f"  {other} ").replace(f"({word},", f"({other},")
        out[number] = "# my own work\n" + source.replace("\n    ", "\n    # so\n    ")
    return out
