"""Microbatches through a factory of stages: where stations stand empty, and what piles up beneath them."""

from __future__ import annotations

from labkit.errors import ConfigError
from labkit.plans.pipeline import Placed, Schedule
from labkit.plans.pipeline_records import ops_of
from labkit.plans.pipeline_timing import place
from labkit.plans.reference.schedules import gpipe, one_f_one_b
from labkit.units import format_percent
from labkit.widgets.figures.sizes import within
from labkit.widgets.language import tint
from labkit.widgets.storyboard import WIDTH, Box, Frame, Shape, Story, Words
from labkit.words import plural

_FORMS = {"gpipe": gpipe, "1f1b": one_f_one_b}
_TOP, _TALL, _PILE = 40, 54, 14


def pipeline_factory(num_stages: int = 4, num_microbatches: int = 6, schedule: str = "gpipe") -> Story:
    """Return the figure of a pipeline at work: each frame is the time of one forward.

    Args:
        num_stages: 2 to 6.
        num_microbatches: 1 to 8.
        schedule: "gpipe" or "1f1b".
    """
    within("num_stages", num_stages, 2, 6)
    within("num_microbatches", num_microbatches, 1, 8)
    if schedule not in _FORMS:
        raise ConfigError(f"schedule={schedule!r} was asked for; the figure shows 'gpipe' or '1f1b'.")
    orders = [ops_of(_FORMS[schedule](stage, num_stages, num_microbatches), stage) for stage in range(num_stages)]
    placed = place(schedule, orders)
    peak = max(placed.peak(stage) for stage in range(num_stages))
    height = _TOP + _TALL + 46 + peak * _PILE + 8
    times = range(round(placed.makespan))
    frames = [_frame(placed, time, height) for time in times]
    idle = [sum(_running(placed, stage, time) is None for stage in range(num_stages)) for time in times]
    name = "GPipe" if schedule == "gpipe" else "1F1B"
    held, empty = plural(round(peak), "activation"), format_percent(placed.bubble())
    title = f"{name}: stages stand empty {empty} of the time and hold up to {held}"
    numbers = {"bubble": format_percent(placed.bubble(), 1), "most held": f"{peak:g}"}
    return Story(title, frames, height, numbers, telling=next((t for t in times if t >= 2 and idle[t]), 0))


def _running(placed: Schedule, stage: int, time: float) -> Placed | None:
    return next((each for each in placed.stages[stage] if each.start <= time + 1e-9 < each.end), None)


def _frame(placed: Schedule, time: int, height: float) -> Frame:
    stages = len(placed.stages)
    pitch = WIDTH / stages
    shapes: list[Shape] = []
    idle = 0
    for stage in range(stages):
        left, now = stage * pitch + 12, _running(placed, stage, time)
        shapes.append(Words(left, _TOP - 10, f"stage {stage}", bold=True))
        idle += now is None
        shapes.append(
            Box("", left, _TOP, pitch - 24, _TALL, edge="line", hatched=now is None, words="" if now else "empty")
        )
        if now:
            forward = now.op.kind == "F"
            words = f"{'forward' if forward else 'backward'} {now.op.microbatch}"
            key = f"m{now.op.microbatch}"
            shapes.append(Box(key, left + 8, _TOP + 9, pitch - 40, 36, "forward" if forward else "backward", words))
        shapes.append(Words(left, _TOP + _TALL + 18, "keeps activations of", 12, fill="quiet"))
        for row, microbatch in enumerate(_held(placed, stage, time)):
            y = height - 10 - (row + 1) * _PILE
            shapes.append(Box(f"a{stage}.{microbatch}", left, y, pitch - 24, _PILE - 2, tint(microbatch), edge="none"))
            shapes.append(Words(left + 4, y + 10, str(microbatch), 11, fill="#000000"))
    stand = "stands" if idle == 1 else "stand"
    says = f"Time {time}: {idle} of {stages} stages {stand} empty." if idle else f"Time {time}: every stage works."
    if not time:
        says = f"Microbatch 0 enters the first stage; {idle} of {stages} {stand} empty."
    return Frame(says, tuple(shapes))


def _held(placed: Schedule, stage: int, time: float) -> list[int]:
    """Return the microbatches whose activations a stage keeps at a time."""
    begun = [each.op.microbatch for each in placed.stages[stage] if each.op.kind == "F" and each.start <= time + 1e-9]
    over = {each.op.microbatch for each in placed.stages[stage] if each.op.kind != "F" and each.end <= time + 1e-9}
    return [microbatch for microbatch in begun if microbatch not in over]
