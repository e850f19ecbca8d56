"""When a pipeline's stages run what, given the order of each stage's work, and what in that order cannot be.

An operation is written as in the lessons: F3 and B3 are forward and backward of microbatch 3, I3 and W3 the two parts
of a backward (input, weights), F3.1 the forward of chunk 1 of an interleaved stage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError

_LETTERS = {
    "Forward": "F",
    "ForwardChunk": "F",
    "Backward": "B",
    "BackwardChunk": "B",
    "BackwardInput": "I",
    "BackwardWeight": "W",
}
_MESSAGES = ("Send", "Recv", "SendGrad", "RecvGrad")
_SHORT = re.compile(r"([FBIW])(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, order=True)
class Op:
    """One piece of a stage's work: kind is "F", "B", "I" or "W"."""

    kind: str
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


@dataclass(frozen=True)
class Placed:
    """An operation and when it runs."""

    op: Op
    start: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """What every stage runs and when.

    Attributes:
        name: Its name.
        stages: For each stage its operations in order; those after a place where it is stuck are missing.
        stuck: For each operation that is never reached: its stage and itself, in order.
        faults: What is wrong with the order, in sentences.
        blocked: For each stage that stands still: (stage, operation, stage, operation), the one waits for the other.
        v_shaped: Whether a microbatch comes back through the stages: stage 0 has the first chunk and the last.
    """

    name: str
    stages: tuple[tuple[Placed, ...], ...]
    stuck: tuple[tuple[int, Op], ...] = ()
    faults: tuple[str, ...] = ()
    blocked: tuple[tuple[int, Op, int, Op], ...] = ()
    v_shaped: bool = False

    @property
    def makespan(self) -> float:
        """Return the time from the first start to the last end."""
        every = [placed for stage in self.stages for placed in stage]
        return max((p.end for p in every), default=0.0) - min((p.start for p in every), default=0.0)

    def bubble(self) -> float:
        """Return the share of time in which a stage runs nothing, over all stages."""
        work = sum(placed.end - placed.start for stage in self.stages for placed in stage)
        whole = len(self.stages) * self.makespan
        return 1 - work / whole if whole else 0.0

    def idle(self) -> list[tuple[int, float, float, str]]:
        """Return (stage, from, to, part) of each piece of the bubble.

        The part is "warm-up" before the stage's first backward, "drain" after its last forward, else "steady".
        """
        end = max((placed.end for row in self.stages for placed in row), default=0.0)
        found = []
        for stage, row in enumerate(self.stages):
            first = next((placed.start for placed in row if placed.op.kind != "F"), end)
            last = max((placed.end for placed in row if placed.op.kind == "F"), default=0.0)
            before = 0.0
            for start, then in [*((placed.start, placed.end) for placed in row), (end, end)]:
                if start > before + 1e-12 * end:
                    part = "warm-up" if start <= first else "drain" if before >= last else "steady"
                    found.append((stage, before, start, part))
                before = then
        return found

    def critical_path(self, message: float = 0.0) -> list[tuple[int, Op]]:
        """Return the chain of operations, last first, in which each waited for the one after it in this list.

        Args:
            message: Time from one stage to another.
        """
        lists = [[placed.op for placed in row] for row in self.stages]
        chunks, path = num_chunks(lists), []
        ends = {(stage, placed.op): placed.end for stage, row in enumerate(self.stages) for placed in row}
        at = max(((stage, row[-1]) for stage, row in enumerate(lists) if row), key=ends.__getitem__, default=None)
        while at is not None:
            path.append(at)
            stage, op = at
            position = lists[stage].index(op)
            before = [(stage, lists[stage][position - 1])] if position else []
            before += [each for each in needs(stage, op, len(lists), chunks, lists, self.v_shaped) if each in ends]
            at, latest = None, -1.0
            for each in before:
                arrives = ends[each] + (message if each[0] != stage else 0.0)
                if at is None or arrives > latest + 1e-9:
                    at, latest = each, arrives
        return path

    def held(self, stage: int) -> list[tuple[float, float]]:
        """Return (time, microbatches whose activations a stage holds from then on); a chunk counts as its share."""
        share = 1 / num_chunks([[placed.op for placed in row] for row in self.stages])
        parts = {(p.op.microbatch, p.op.chunk) for p in self.stages[stage] if p.op.kind == "W"}
        changes: dict[float, float] = {}
        for placed in self.stages[stage]:
            if placed.op.kind == "F":
                changes[placed.start] = changes.get(placed.start, 0.0) + share
            elif placed.op.kind == "W" or (placed.op.microbatch, placed.op.chunk) not in parts:
                changes[placed.end] = changes.get(placed.end, 0.0) - share
        now, line = 0.0, []
        for time in sorted(changes):
            now += changes[time]
            line.append((time, round(now, 6)))
        return line

    def peak(self, stage: int) -> float:
        """Return the most microbatches whose activations a stage holds."""
        return max((value for _, value in self.held(stage)), default=0.0)


def num_chunks(stages: Sequence[Sequence[Op]]) -> int:
    """Return how many chunks each stage has."""
    return 1 + max((op.chunk for stage in stages for op in stage), default=0)


def ops_of(records: Any, stage: int) -> tuple[Op, ...]:
    """Return the operations of a stage's list of records; messages are left out.

    Args:
        records: Records of lesson 05, or words such as "F0".
        stage: Named in the error.

    Raises:
        ConfigError: If it is no such list.
    """
    if isinstance(records, str):
        return tuple(Op(kind, int(number), int(chunk or 0)) for kind, number, chunk in _SHORT.findall(records))
    if isinstance(records, Mapping) or not isinstance(records, Sequence):
        raise ConfigError(
            f"The schedule of stage {stage} is a {type(records).__name__}; it must be a list of Forward, Backward and "
            "message records."
        )
    ops = []
    for position, record in enumerate(records):
        kind = type(record).__name__
        if kind in _LETTERS:
            ops.append(Op(_LETTERS[kind], int(record.microbatch), int(getattr(record, "chunk", 0))))
        elif isinstance(record, str) and (match := _SHORT.fullmatch(record)):
            ops.append(Op(match[1], int(match[2]), int(match[3] or 0)))
        elif kind not in _MESSAGES:
            what = f"Record {position} of stage {stage} is a {kind}"
            raise ConfigError(f"{what}; a schedule holds Forward, Backward and message records.")
    return tuple(ops)


def place(
    name: str,
    stages: Sequence[Sequence[Op]],
    forward: float = 1.0,
    backward: float = 2.0,
    message: float = 0.0,
    weights: float = 0.5,
    v_shaped: bool = False,
) -> Schedule:
    """Return when each operation runs: as soon as its stage is free and what it needs has arrived.

    Args:
        name: Of the schedule.
        stages: The order of each stage's work.
        forward: Time of a microbatch's forward on one stage, all chunks together.
        backward: Time of its backward, both parts together.
        message: Time from one stage to another.
        weights: Share of the backward that is W, 0 to 1; I is the rest.
        v_shaped: Whether every second chunk is handed from the last stage to the first.
    """
    chunks, size = num_chunks(stages), len(stages)
    whole = {"F": forward, "B": backward, "I": backward - backward * weights, "W": backward * weights}
    lasts = {kind: time / chunks for kind, time in whole.items()}
    ends: dict[tuple[int, Op], float] = {}
    placed: list[list[Placed]] = [[] for _ in stages]
    moved = True
    while moved:
        moved = False
        for stage, ops in enumerate(stages):
            while len(placed[stage]) < len(ops):
                op = ops[len(placed[stage])]
                wanted = needs(stage, op, size, chunks, stages, v_shaped)
                if any(each not in ends for each in wanted):
                    break
                free = placed[stage][-1].end if placed[stage] else 0.0
                start = max([free, *(ends[each] + (message if each[0] != stage else 0.0) for each in wanted)])
                placed[stage].append(Placed(op, start, start + lasts[op.kind]))
                ends.setdefault((stage, op), start + lasts[op.kind])
                moved = True
    stuck = tuple((stage, op) for stage, ops in enumerate(stages) for op in ops[len(placed[stage]) :])
    blocked = _blocked(stages, placed, ends, chunks, v_shaped)
    faults = [*_order_faults(stages, placed, blocked), *_count_faults(stages)]
    return Schedule(name, tuple(map(tuple, placed)), stuck, tuple(faults), tuple(blocked), v_shaped)


def needs(
    stage: int, op: Op, num_stages: int, chunks: int, stages: Sequence[Sequence[Op]], v_shaped: bool = False
) -> list[tuple[int, Op]]:
    """Return what must have ended before an operation, as (stage, operation)."""

    def turned(place: int, chunk: int) -> int:
        return num_stages - 1 - place if v_shaped and chunk % 2 else place

    part, last = op.chunk * num_stages + turned(stage, op.chunk), chunks * num_stages - 1

    def at(part: int, kind: str) -> tuple[int, Op]:
        chunk, place = divmod(part, num_stages)
        where, there = turned(place, chunk), Op(kind, op.microbatch, chunk)
        in_parts = Op("I", op.microbatch, there.chunk)
        return where, in_parts if kind == "B" and in_parts in stages[where] else there

    if op.kind == "F":
        return [at(part - 1, "F")] if part > 0 else []
    if op.kind == "W":
        return [(stage, Op("I", op.microbatch, op.chunk))]
    return [at(part, "F"), *([at(part + 1, "B")] if part < last else [])]


def _blocked(
    stages: Sequence[Sequence[Op]],
    placed: Sequence[Sequence[Placed]],
    ends: Mapping[tuple[int, Op], float],
    chunks: int,
    v_shaped: bool,
) -> list[tuple[int, Op, int, Op]]:
    found = []
    for stage, ops in enumerate(stages):
        if len(placed[stage]) < len(ops):
            op = ops[len(placed[stage])]
            missing = [each for each in needs(stage, op, len(stages), chunks, stages, v_shaped) if each not in ends]
            first = min(missing, key=lambda each: (each[0] != stage, each[1] in stages[each[0]]))
            found.append((stage, op, *first))
    return found


def _order_faults(
    stages: Sequence[Sequence[Op]], placed: Sequence[Sequence[Placed]], blocked: Sequence[tuple[int, Op, int, Op]]
) -> list[str]:
    faults, waits_on = [], {}
    for stage, op, where, wanted in blocked:
        if wanted not in stages[where]:
            what = "" if where == stage else f", needs {wanted} of stage {where}"
            faults.append(f"Stage {stage} stands at {op}{what}, but stage {where} has no {wanted}.")
        elif where == stage:
            faults.append(f"Stage {stage}: {op} stands before {wanted}.")
        else:
            there = stages[where][len(placed[where])]
            waits_on[stage] = where
            waits = f"waits for {wanted} of stage {where}, which stands at {there}"
            faults.append(f"Stage {stage} stands at {op} and {waits}.")
    ordered = sorted(faults, key=lambda text: "waits for" in text)
    at = sum("waits for" not in text for text in ordered)
    return [*ordered[:at], *_deadlock(waits_on), *ordered[at:]]


def _deadlock(waits_on: Mapping[int, int]) -> list[str]:
    """Return a sentence that names stages which wait for each other in a circle, if there are any."""
    for stage in waits_on:
        at: int | None = stage
        for _ in range(len(waits_on) + 1):
            at = waits_on.get(at) if at is not None else None
        if at is None:
            continue
        circle = [at]
        while (following := waits_on[circle[-1]]) != at:
            circle.append(following)
        return [f"Deadlock: stages {' and '.join(map(str, sorted(circle)))} wait for each other."]
    return []


def _count_faults(stages: Sequence[Sequence[Op]]) -> list[str]:
    faults = []
    for stage, ops in enumerate(stages):
        seen: set[Op] = set()
        for op in ops:
            faults += [f"Stage {stage}: {op} stands in the list twice."] if op in seen else []
            seen.add(op)
        forwards = sorted(op for op in seen if op.kind == "F")
        without = [op for op in forwards if not {Op(kind, op.microbatch, op.chunk) for kind in "BI"} & seen]
        if without:
            faults.append(f"Stage {stage}: {without[0]} has no backward.")
    return faults
