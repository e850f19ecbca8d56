"""The schedule explorer: which stage of a pipeline runs what and when, the bubble, and the memory it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.errors import ConfigError
from labkit.plans.pipeline import Schedule
from labkit.plans.pipeline_records import Op, Record, ops_of
from labkit.plans.pipeline_run import closed_form, measured, predicted
from labkit.plans.pipeline_timing import culprits, place
from labkit.plans.reference.schedules import FORMS, V_SHAPED
from labkit.timeline.timeline import Timeline
from labkit.units import format_percent
from labkit.widgets.explorer import Explorer
from labkit.widgets.language import LIGHT
from labkit.widgets.scene import GREY, INK, RED, Line, Mark, Rect, Scene, Text

FILL = {kind: LIGHT["forward" if kind == "F" else "backward"] for kind in "FBIW"}
_STAGES, _MICROBATCHES = (2, 3, 4, 8), (1, 2, 4, 8, 16)
_WIDTH, _LEFT, _RIGHT = 760, 58, 58


def schedule_explorer(
    *schedules: Any, num_stages: int = 4, num_microbatches: int = 8, memory_limit: int = 0, **named: Any
) -> Explorer:
    """Return a figure that shows pipeline schedules one above the other: bubble, memory, and mistakes in red.

    Without an argument it shows GPipe and 1F1B, and interleaved 1F1B (two chunks), ZB-H1 or ZB-V below when chosen.
    Functions are tried for other numbers of stages and microbatches too: the sliders work without a kernel. The
    operation under the pointer is marked in every schedule, with its microbatch's path. You can drag an operation to
    another place in its stage's order, and see at once what changes, or why it cannot go there.

    Args:
        *schedules: Each a function make(stage, num_stages, num_microbatches) that returns a stage's records; or a list
            with the records of every stage; or the timeline of a run with spans F0, B0, ...
        num_stages: P, to begin with, 1 to 16.
        num_microbatches: M, to begin with, 1 to 64.
        memory_limit: Microbatches whose activations a stage has memory for; 0: any number.
        **named: The same, by the names to show; an underscore is shown as a space.

    Raises:
        ConfigError: If one is none of these.
    """
    if not (1 <= num_stages <= 16 and 1 <= num_microbatches <= 64):
        raise ConfigError(
            f"{num_stages} stages and {num_microbatches} microbatches were asked for; 1 to 16 stages and 1 to 64 "
            "microbatches are shown."
        )
    given = {str(getattr(each, "__name__", f"schedule {at}")): each for at, each in enumerate(schedules)}
    given |= {name.replace("_", " "): each for name, each in named.items()}
    given = given or {"GPipe": FORMS["gpipe"], "1F1B": FORMS["one_f_one_b"]}
    sizes = sorted({*_STAGES, num_stages}), sorted({*_MICROBATCHES, num_microbatches})
    shown, entries = [], []
    for name, each in given.items():
        schedule, entry = _read(name, each, (num_stages, num_microbatches), sizes)
        shown.append(schedule)
        entries.append(entry)
    tried = any(("lists" in entry and len(entry["lists"]) > 1) or "form" in entry for entry in entries)
    p, m = sizes if tried else ([num_stages], [_num_microbatches(shown)])
    data: dict[str, Any] = {"source": "", "p": p, "m": m, "at": [num_stages, num_microbatches], "schedules": entries}
    data["limit"] = memory_limit
    numbers = {s.name: _numbers(s) for s in shown}
    sentence = " ".join(_sentence(each, memory_limit) for each in shown)
    scene = _still(shown, memory_limit)
    return Explorer(sentence, numbers, "schedule_explorer.js", "scheduleExplorer", data, scene)


def _numbers(schedule: Schedule) -> dict[str, Any]:
    """Return the bubble, its parts as shares of all stages' time, peaks, and the length of the critical path."""
    whole = len(schedule.stages) * schedule.makespan or 1.0
    parts = dict.fromkeys(("warm-up", "steady", "drain"), 0.0)
    for _, start, end, part in schedule.idle():
        parts[part] += (end - start) / whole
    peaks = [schedule.peak(stage) for stage in range(len(schedule.stages))]
    return {"bubble": schedule.bubble(), "idle": parts, "peaks": peaks, "critical": len(schedule.critical_path())}


def _read(
    name: str, given: Any, at: tuple[int, int], sizes: tuple[list[int], list[int]]
) -> tuple[Schedule, dict[str, Any]]:
    """Return a schedule at the numbers asked for, and what the program in the page needs to know of it."""
    if isinstance(given, Timeline):
        schedule = measured(name, given)
        return schedule, {"name": name, "placed": _times(schedule), "model": _times(predicted(schedule))}
    if callable(given):
        form = _form(given, sizes)
        schedule = place(name, _lists(given, *at), v_shaped=form in V_SHAPED)
        if form:
            return schedule, {"name": name, "form": form}
        lists, faults = {}, {}
        for stages in sizes[0]:
            for count in sizes[1]:
                key = f"{stages},{count}"
                try:
                    found = _lists(given, stages, count)
                except Exception as error:  # the learner's function may raise anything; the figure says for which
                    if (stages, count) == at:
                        raise
                    says = f"{type(error).__name__}: {error}"
                    faults[key] = [f"{name} fails for {stages} stages and {count} microbatches: {says}"]
                    continue
                lists[key] = ["".join(map(str, ops)) for ops in found]
                if wrong := _other_numbers(name, found, count):  # what else is wrong the program in the page finds
                    faults[key] = wrong
        return schedule, {"name": name, "lists": lists, "faults": faults}
    if isinstance(given, Mapping | str) or not isinstance(given, Sequence):
        raise ConfigError(
            f"{name} is a {type(given).__name__}; give a function of (stage, num_stages, num_microbatches), a list "
            "with one list of records for each stage, or the timeline of a run."
        )
    found = [ops_of(records, stage) for stage, records in enumerate(given)]
    return place(name, found), {"name": name, "lists": {f"{at[0]},{at[1]}": ["".join(map(str, ops)) for ops in found]}}


def _times(schedule: Schedule) -> list[list[list[Any]]]:
    return [[[str(placed.op), _short(placed.start), _short(placed.end)] for placed in row] for row in schedule.stages]


def _short(seconds: float) -> float:
    return float(f"{seconds:.6g}")


def _lists(make: Callable[..., Any], num_stages: int, num_microbatches: int) -> list[tuple[Op, ...]]:
    return [ops_of(make(stage, num_stages, num_microbatches), stage) for stage in range(num_stages)]


def _form(make: Callable[..., Any], sizes: tuple[list[int], list[int]]) -> str:
    """Return the name of the form that a function makes for all these numbers, or ""."""
    left = set(FORMS)
    for stages in sizes[0]:
        for count in sizes[1]:
            try:
                found = _lists(make, stages, count)
            except Exception:  # then it is no form; what it raised is told where its lists are made
                return ""
            left = {form for form in left if found == _lists(FORMS[form], stages, count)}
            if not left:
                return ""
    return min(left)


def _other_numbers(name: str, stages: Sequence[Sequence[Op]], count: int) -> list[str]:
    """Return a sentence where a schedule is not one of that many microbatches."""
    found = len({op.microbatch for ops in stages for op in ops})
    return [f"{name} has {found} microbatches; {count} were asked for."] if found != count else []


def _num_microbatches(schedules: Sequence[Schedule]) -> int:
    return max((1 + placed.op.microbatch for each in schedules for row in each.stages for placed in row), default=1)


def _sentence(schedule: Schedule, limit: int) -> str:
    if schedule.stuck:
        return f"{schedule.name} cannot be carried out: {schedule.faults[0]}"
    peaks = ", ".join(f"{schedule.peak(stage):g}" for stage in range(len(schedule.stages)))
    bubble, formula = (format_percent(each, 1) for each in (schedule.bubble(), closed_form(schedule)))
    text = f"{schedule.name}: bubble {bubble}, by the formula {formula}"
    text += f"; microbatches held at most, stage by stage: {peaks}."
    if over := [str(stage) for stage in range(len(schedule.stages)) if schedule.peak(stage) > limit > 0]:
        text += f" More than the memory's {limit} on stage {', '.join(over)}."
    return text + (f" {schedule.faults[0]}" if schedule.faults else "")


def _still(schedules: Sequence[Schedule], limit: int) -> Scene:
    marks: list[Mark] = []
    y, wide = 8.0, _WIDTH - _LEFT - _RIGHT
    for schedule in schedules:
        end = schedule.makespan * (1.25 if schedule.stuck else 1.0) or 1.0
        right = "cannot be carried out" if schedule.stuck else f"bubble {format_percent(schedule.bubble(), 1)}"
        right += "" if schedule.stuck else f", formula: {format_percent(closed_form(schedule), 1)}"
        marks.append(Text(10, y + 14, schedule.name, 13, bold=True))
        marks.append(Text(_WIDTH - 10, y + 14, right, 11.5, "end", RED if schedule.stuck else INK))
        y += 22
        guilty = culprits(schedule)
        cells: dict[tuple[int, Record], tuple[float, float]] = {}  # the middle of each operation's lower edge
        for stage, row in enumerate(schedule.stages):
            marks.append(Text(10, y + 14, f"stage {stage}", 11))
            peak = schedule.peak(stage)
            marks.append(Text(_WIDTH - 10, y + 14, f"most {peak:g}", 11, "end", RED if peak > limit > 0 else GREY))
            marks.append(Line(((_LEFT, y + 19.5), (_LEFT + wide * schedule.makespan / end, y + 19.5)), LIGHT["line"]))
            for placed in row:
                x, width = _LEFT + placed.start / end * wide, (placed.end - placed.start) / end * wide
                fill = FILL[placed.op.kind]
                cells[stage, placed.op] = x + width / 2, y + 19
                marks.append(Rect(x, y, width, 19, fill, INK, 0.6))
                if placed.op.chunk % 2:
                    marks.append(Rect(x, y + 13, width, 6, "#000000", opacity=0.33))
                if width > 7 * len(str(placed.op)):
                    marks.append(Text(x + width / 2, y + 14, str(placed.op), 10.5, "middle", on=fill))
            after = _LEFT + max((placed.end for placed in row), default=0.0) / end * wide + 4
            for place_, (_, op) in enumerate([each for each in schedule.stuck if each[0] == stage][:6]):
                cells[stage, op] = after + 24 * place_ + 11, y + 19
                edge, follows = (RED, False) if (stage, op) in guilty else (GREY, True)
                marks.append(Rect(after + 24 * place_, y, 22, 19, "none", edge, 1.5, dashed=follows))
                marks.append(Text(after + 24 * place_ + 11, y + 14, str(op), 10.5, "middle", edge))
            y += 28
        for waiting, op, where, wanted in schedule.blocked:
            if (where, wanted) in cells and (waiting, op) in cells:
                (x0, y0), (x1, y1) = cells[where, wanted], cells[waiting, op]
                low = max(y0, y1) + 8
                edge, follows = (RED, False) if (waiting, op) in guilty else (GREY, True)
                marks.append(Line(((x0, y0), (x0, low), (x1, low), (x1, y1)), edge, 1.5, dashed=follows))
        for fault in schedule.faults[:3]:
            marks.append(Text(10, y + 12, fault, 11, fill=RED))
            y += 16
        y += 10
    legend = "F forward, B backward (I, W: its parts), a dark foot: odd chunk; empty: bubble; time runs to the right"
    marks.append(Text(10, y + 4, legend, 10.5, fill=GREY))
    return Scene(_WIDTH, round(y + 12), tuple(marks))
