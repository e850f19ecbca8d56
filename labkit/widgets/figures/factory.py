"""Microbatches through a factory of stages: where stations stand empty, and what piles up beneath them."""

from __future__ import annotations

from collections.abc import Callable

from labkit.errors import ConfigError
from labkit.plans.pipeline import Placed, Schedule
from labkit.plans.pipeline_records import ops_of
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.schedules import gpipe, one_f_one_b
from labkit.units import format_percent
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Shape, Story, Words

_FORMS = {"gpipe": gpipe, "1f1b": one_f_one_b}
_TOP, _TALL, _CHIP = 22, 42, 18
_GRID = _TOP + _TALL + 68
_ROWS = 148
"""Pixels of all stages' rows below the stations."""
_KEY, _AXIS, _WHOLE, _LETTERS = 34, 28, 252, 19
"""Of the whole step: heights of its key, its axis and in all, and the size of letters that a room reads."""
_LEFT, _LEFT_WHOLE, _HELD, _ENDS = 78, 88, 90, 4
_LETTER, _AROUND = 0.65, 3
"""How wide a letter of a square is, as a part of its size, and the pixels that stay free beside them."""


def pipeline_factory(
    num_stages: int = 4, num_microbatches: int = 6, schedule: str = "gpipe", most_held: int = 0
) -> Story:
    """Return the figure of a pipeline at work: each frame is the time of one forward, the last one the whole step.

    Args:
        num_stages: 2 to 6.
        num_microbatches: 1 to 8.
        schedule: "gpipe" or "1f1b".
        most_held: GPipe runs in groups of that many microbatches, one after another; 0 for all in one.
    """
    within("num_stages", num_stages, 2, 6)
    within("num_microbatches", num_microbatches, 1, 8)
    if schedule not in _FORMS:
        raise ConfigError(f"schedule={schedule!r} was asked for; the figure shows 'gpipe' or '1f1b'.")
    within("most_held", most_held, 0, num_microbatches if schedule == "gpipe" else 0)
    make = _in_groups(most_held) if most_held else _FORMS[schedule]
    orders = [ops_of(make(stage, num_stages, num_microbatches), stage) for stage in range(num_stages)]
    placed = place(schedule, orders)
    peak = max(placed.peak(stage) for stage in range(num_stages))
    turns = round(placed.makespan)
    frames = [_frame(placed, time, turns) for time in range(turns)]
    title = _title(placed, num_microbatches, schedule, most_held)
    frames.append(_whole(placed, turns, "hold" in title))
    numbers = {"bubble": format_percent(placed.bubble(), 1), "most held": f"{peak:g}"}
    return Story(title, frames, _GRID + _ROWS + 4, numbers, telling=turns)


def _title(placed: Schedule, num_microbatches: int, schedule: str, most_held: int) -> str:
    """Return what the step shows: of one batch who works, of groups what they cost, of others what stands idle."""
    stages = len(placed.stages)
    if num_microbatches == 1:
        return "One batch: one stage works at a time"
    if 0 < most_held < num_microbatches:
        at_once = place("", [ops_of(gpipe(stage, stages, num_microbatches), stage) for stage in range(stages)])
        return f"GPipe in groups of {most_held} takes {placed.makespan:g} turns instead of {at_once.makespan:g}"
    name = "GPipe" if schedule == "gpipe" else "1F1B"
    held = f"{max(placed.peak(stage) for stage in range(stages)):g} microbatches"
    return f"{name}: stages stand idle {format_percent(placed.bubble())} of the time and hold up to {held}"


def _in_groups(most_held: int) -> Callable[[int, int, int], str]:
    """Return what makes GPipe's order in groups of so many microbatches: a group's forwards, then its backwards."""

    def order(stage: int, num_stages: int, num_microbatches: int) -> str:
        groups = [range(num_microbatches)[first:][:most_held] for first in range(0, num_microbatches, most_held)]
        return "".join(f"{kind}{number}" for group in groups for kind in "FB" for number in group)

    return order


def _running(placed: Schedule, stage: int, time: float) -> Placed | None:
    return next((each for each in placed.stages[stage] if each.start <= time + 1e-9 < each.end), None)


def _frame(placed: Schedule, time: int, turns: int) -> Frame:
    stages = len(placed.stages)
    pitch = WIDTH / stages
    shapes: list[Shape] = []
    idle = 0
    for stage in range(stages):
        left, now = stage * pitch + 12, _running(placed, stage, time)
        shapes.append(Words(left, _TOP - 8, f"stage {stage}", bold=True))
        idle += now is None
        shapes.append(
            Box("", left, _TOP, pitch - 24, _TALL, edge="line", hatched=now is None, words="" if now else "empty")
        )
        if now:
            forward = now.op.kind == "F"
            words = f"{'forward' if forward else 'backward'} {now.op.microbatch}"
            key = f"m{now.op.microbatch}"
            shapes.append(Box(key, left + 6, _TOP + 6, pitch - 36, 30, "forward" if forward else "backward", words))
        shapes.append(Words(left, _TOP + _TALL + 18, "activations held:", 12, fill="quiet"))
        chip = min(_CHIP, (pitch - 24) / 8)
        for at, microbatch in enumerate(_held(placed, stage, time)):
            key, x = f"a{stage}.{microbatch}", left + at * chip
            fill = tint(microbatch)
            shapes.append(Box(key, x, _TOP + _TALL + 25, chip - 2, _CHIP, fill, str(microbatch), 11, edge="none"))
        line, wide = _ROWS / stages, (WIDTH - _LEFT - 12) / turns
        shapes.append(Words(12, _GRID + (stage + 0.5) * line + 4, f"stage {stage}", 12))
        shapes += _row(placed, stage, time + 1, _GRID + stage * line, line, wide)
    stand = "stands" if idle == 1 else "stand"
    says = f"{idle} of {stages} stages {stand} empty." if idle else "every stage works."
    says = f"Turn {time + 1} of {turns}: {says}"
    if not time:
        says = f"Turn 1 of {turns}: microbatch 0 enters the first stage; {idle} of {stages} {stand} empty."
    return Frame(says, tuple(shapes))


def _whole(placed: Schedule, turns: int, is_holding: bool) -> Frame:
    """Return what the title says of the whole step: how much of it each stage stood empty, and the most it kept.

    Args:
        placed: The schedule.
        turns: How many it takes.
        is_holding: Whether the title speaks of what stages hold.
    """
    stages = len(placed.stages)
    line = (_WHOLE - _KEY - _AXIS) / stages
    peaks = [placed.peak(stage) for stage in range(stages)]
    are_alike = len(set(peaks)) == 1  # then the title says it
    wide = (WIDTH - _LEFT_WHOLE - (_ENDS if are_alike else _HELD)) / turns
    shapes: list[Shape] = _key()
    for stage in range(stages):
        top = _KEY + stage * line
        middle = top + line / 2 + _LETTERS / 3
        shapes.append(Words(1, middle, f"stage {stage}", _LETTERS))
        shapes += _row(placed, stage, turns, top, line, wide, _LEFT_WHOLE)
        if not are_alike:
            shapes.append(Words(WIDTH - 4, middle, f"holds {peaks[stage]:g}", _LETTERS, "end", bold=True))
    for turn in (*_round(turns), turns):
        words, anchor = (f"{turn} turns", "end") if turn == turns else (str(turn), "middle")
        shapes.append(Words(_LEFT_WHOLE + turn * wide, _WHOLE - 8, words, _LETTERS, anchor, bold=turn == turns))
    says = "0 is the forward of microbatch 0 (1 turn), B0 its backward (2)."
    if is_holding:
        says += " A\N{NO-BREAK SPACE}stage holds a microbatch from its forward to its backward."
    return Frame(says, tuple(shapes))


def _round(turns: int) -> range:
    """Return round numbers of turns from 0 on, none of them where the last one stands."""
    step = next(each for each in (1, 2, 5, 10) if turns <= 5 * each or each == 10)
    return range(0, turns - turns // 6, step)


def _key() -> list[Shape]:
    """Return what colours, letters and stripes of a whole step mean, above its rows."""
    entries = ((1, "0", "forward"), (147, "B0", "backward"), (309, "", "idle"))
    shapes: list[Shape] = []
    for x, letters, words in entries:
        fill = {"0": "forward", "B0": "backward"}.get(letters, "none")
        edge = "ground" if letters else "line"
        shapes.append(Box("", x, 1, 36, 24, fill, letters, _LETTERS - 2, edge=edge, hatched=not letters))
        shapes.append(Words(x + 44, 19, words, _LETTERS))
    return shapes


def _row(
    placed: Schedule, stage: int, until: int, top: float, line: float, wide: float, left: float = _LEFT
) -> list[Shape]:
    """Return what a stage has done in each turn so far, a square a turn, on the stripes of those in which it stood.

    Args:
        placed: The schedule.
        stage: Which.
        until: Turns that have passed.
        top: Where its row begins, pixels.
        line: From one row to the next.
        wide: Of a turn.
        left: Where the first turn begins.
    """
    is_whole = left != _LEFT
    letters = int(min(_LETTERS, (wide - _AROUND) / _LETTER)) if is_whole else 12
    edge = "none" if is_whole else "line"
    shapes: list[Shape] = [Box("", left, top, until * wide, line - 3, edge=edge, hatched=True)]
    for each in placed.stages[stage]:
        end = min(each.end, until)
        if each.start < until:
            fill = "forward" if each.op.kind == "F" else "backward"
            x, long = left + each.start * wide, (end - each.start) * wide
            words = f"B{each.op.microbatch}" if is_whole and fill == "backward" else str(each.op.microbatch)
            shapes.append(Box("", x, top, long, line - 3, fill, words, letters, edge="ground"))
    return shapes


def _held(placed: Schedule, stage: int, time: float) -> list[int]:
    """Return the microbatches whose activations a stage keeps at a time."""
    begun = [each.op.microbatch for each in placed.stages[stage] if each.op.kind == "F" and each.start <= time + 1e-9]
    over = {each.op.microbatch for each in placed.stages[stage] if each.op.kind != "F" and each.end <= time + 1e-9}
    return [microbatch for microbatch in begun if microbatch not in over]
