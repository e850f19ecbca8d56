"""What comes of a pipeline's schedule: when each stage runs what, its bubble, its memory, and what cannot be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from labkit.plans.pipeline_records import Op, Record, num_chunks


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
        stuck: For each record that is never done: its stage and itself, in order.
        faults: What is wrong with the order, in sentences.
        blocked: For each stage that stands still: (stage, record, stage, record), the one waits for the other.
        v_shaped: Whether a microbatch comes back through the stages: stage 0 has the first chunk and the last.
    """

    name: str
    stages: tuple[tuple[Placed, ...], ...]
    stuck: tuple[tuple[int, Record], ...] = ()
    faults: tuple[str, ...] = ()
    blocked: tuple[tuple[int, Record, int, Record], ...] = ()
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


def needs(
    stage: int, op: Op, num_stages: int, chunks: int, stages: Sequence[Collection[Record]], v_shaped: bool = False
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


def most_held(order: Sequence[Record]) -> int:
    """Return the most forwards of a stage's order that have not gone backward yet, both parts of it, going through."""
    ops = [record for record in order if isinstance(record, Op)]
    parts = {(op.microbatch, op.chunk) for op in ops if op.kind == "W"}
    now = most = 0
    for op in ops:
        if op.kind == "F":
            now += 1
        elif op.kind == "W" or (op.microbatch, op.chunk) not in parts:
            now -= 1
        most = max(most, now)
    return most
