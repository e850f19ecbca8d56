"""The bucket explorer's picture for pages where nothing can be played with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap

from labkit.plans.bucket_steps import Row, communication, exposed
from labkit.units import format_time
from labkit.widgets.language import LIGHT, letter, tint
from labkit.widgets.scene import GREY, INK, RED, Line, Mark, Rect, Scene, Text
from labkit.words import plural

_COMPUTE = {"F": LIGHT["forward"], "S": LIGHT["host"], "B": LIGHT["backward"], "O": LIGHT["optimizer"]}
_WIDTH, _LEFT, _RIGHT = 760, 82, 80


def still(
    sizes: Sequence[int],
    plan: Sequence[Sequence[int]],
    used: Sequence[int],
    rows: Sequence[tuple[str, Row]],
    sentence: str,
    problem: str,
) -> Scene:
    """Return the gradients in their buckets, and rows under each other on one axis.

    Args:
        sizes: Bytes of each parameter's gradient.
        plan: Its buckets.
        used: Indices in the order in which forward uses them.
        rows: What to draw, with a name: "model" and "slowest" are of this plan, others stand under their name.
        sentence: What it shows.
        problem: What is wrong with the plan, or "".
    """
    end = max(row.end for _, row in rows)

    def x(time: float) -> float:
        return _LEFT + time / end * (_WIDTH - _LEFT - _RIGHT)

    of = {index: number for number, bucket in enumerate(plan) for index in bucket}
    claim = f"✗ {problem}" if problem else _claim(plan, rows[0][1])
    marks: list[Mark] = [Text(10, 18, claim, 14, bold=True), Text(10, 47, "gradients", 11)]
    _, begin, over = next(each for each in rows[0][1].compute if each[0] == "B")
    summed, total = 0, sum(sizes)
    for index in reversed(used):
        left = x(begin + summed / total * (over - begin))
        summed += sizes[index]
        width = x(begin + summed / total * (over - begin)) - left
        number = of.get(index)
        fill = "none" if number is None else tint(number)
        marks.append(Rect(left, 32, width, 22, fill, RED if number is None else INK, 2 if number is None else 0.4))
    y = 66.0
    for name, row in rows:
        if name not in ("model", "slowest"):
            marks.append(Text(_LEFT, y + 8, name, 11, bold=True))
            y += 14
        marks += _row("slowest" if name == "slowest" else f"rank {row.rank}", row, x, y)
        y += 50
    for piece in wrap(sentence, 124):
        y += 16
        marks.append(Text(10, y, piece, 11, fill=GREY))
    return Scene(_WIDTH, round(y + 10), tuple(marks))


def _claim(plan: Sequence[Sequence[int]], row: Row) -> str:
    """Return how much of the communication backward hides."""
    late, whole = exposed(row), communication(row)
    share = min(round(100 * (1 - late / whole)), 99 if late else 100) if whole else 0
    hidden = f"backward hides {share} % of {_in_words(whole)} of communication"
    return f"{plural(len(plan), 'bucket')}: {hidden}; {_in_words(late)} is exposed"


def _in_words(time: float) -> str:
    """Return a time of a step of some ms, such that its parts add up."""
    return f"{1e3 * time:.2f} ms" if time < 9.995e-3 else format_time(1e9 * time)


def _row(name: str, row: Row, x: Callable[[float], float], y: float) -> list[Mark]:
    marks: list[Mark] = [Text(10, y + 14, name, 11), Text(10, y + 35, "all-reduce", 10, fill=GREY)]
    words = {"F": "forward", "S": "search", "B": "backward", "O": "optimizer"}
    for kind, start, end in (each for each in row.compute if each[2] > each[1]):
        width, fill = x(end) - x(start), _COMPUTE[kind]
        marks.append(Rect(x(start), y, width, 19, fill, INK, 0.8))
        if width > 60:
            marks.append(Text(x(start) + width / 2, y + 14, words[kind], 10.5, "middle", on=fill))
    for number, each in enumerate(row.sent):
        fill, left, width = tint(number), x(each.start), x(each.end) - x(each.start)
        marks.append(Rect(left, y + 22, width, 19, fill, INK, 0.8))
        if width > 16:
            marks.append(Text(left + width / 2, y + 36, letter(number), 11, "middle", on=fill))
        if each.end > row.computed:
            marks.append(Line(((x(max(each.start, row.computed)), y + 21), (x(each.end), y + 21)), RED, 4))
    if (over := max((each.end for each in row.sent), default=0.0)) > row.computed:
        marks.append(Text(x(over) + 4, y + 36, f"! {_in_words(exposed(row))}", 11, fill=RED, bold=True))
    marks.append(Line(((x(row.computed), y - 3), (x(row.computed), y + 45)), INK, 1.2, dashed=True))
    return marks
