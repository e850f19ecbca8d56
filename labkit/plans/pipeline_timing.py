"""When a pipeline's stages run what, given the order of each stage's work, and what in that order cannot be.

Schedules are lists of work alone, or of work and messages. Without messages what a stage makes is there for the next
one as soon as it is made. With messages, those that stand together are posted together, and each is done when its
partner has been posted, too: a stage waits at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from labkit.plans.pipeline import Placed, Schedule, needs
from labkit.plans.pipeline_records import PARTNER, Message, Op, Record, num_chunks

Waiting = tuple[int, Record, int, Record]
"""A stage, the record it stands at, and another stage and what it waits for there."""


def place(
    name: str,
    stages: Sequence[Sequence[Record]],
    forward: float = 1.0,
    backward: float = 2.0,
    message: float = 0.0,
    weights: float = 0.5,
    v_shaped: bool = False,
) -> Schedule:
    """Return when each operation runs: as soon as its stage is free and what it needs has arrived.

    Args:
        name: Of the schedule.
        stages: The order of each stage's work, all of them with their messages (one chunk a stage) or all without.
        forward: Time of a microbatch's forward on one stage, all chunks together.
        backward: Time of its backward, both parts together.
        message: Time from one stage to another.
        weights: Share of the backward that is W, 0 to 1; I is the rest.
        v_shaped: Whether every second chunk is handed from the last stage to the first.
    """
    chunks = num_chunks(stages)
    whole = {"F": forward, "B": backward, "I": backward - backward * weights, "W": backward * weights}
    placing = _Placing(stages, {kind: time / chunks for kind, time in whole.items()}, message, v_shaped)
    placing.run()
    blocked = placing.blocked()
    faults = (*_order_faults(stages, blocked), *_count_faults(stages))
    return Schedule(name, tuple(map(tuple, placing.placed)), placing.stuck(), faults, tuple(blocked), v_shaped)


class _Placing:
    """Where every stage stands.

    Attributes:
        placed: For each stage its operations that are done.
    """

    def __init__(
        self, stages: Sequence[Sequence[Record]], lasts: Mapping[str, float], message: float, v_shaped: bool
    ) -> None:
        self.placed: list[list[Placed]] = [[] for _ in stages]
        self._stages = [frozenset(records) for records in stages]
        self._lasts, self._message, self._v_shaped = lasts, message, v_shaped
        self._with_messages = any(isinstance(record, Message) for records in stages for record in records)
        self._chunks = num_chunks(stages)
        self._steps = [_steps(records) for records in stages]
        self._at = [0] * len(stages)
        self._free = [0.0] * len(stages)
        self._posted: dict[tuple[int, Record], float] = {}
        self._ends: dict[tuple[int, Record], float] = {}

    def run(self) -> None:
        """Go round until no stage can go on."""
        moved = True
        while moved:
            moved = False
            for stage in range(len(self._stages)):
                while self._at[stage] < len(self._steps[stage]) and self._goes_on(stage):
                    moved = True

    def stuck(self) -> tuple[tuple[int, Record], ...]:
        """Return the stage and each of its records that are never done, in order."""
        left = (mine[at:] for mine, at in zip(self._steps, self._at, strict=True))
        return tuple((stage, record) for stage, steps in enumerate(left) for step in steps for record in step)

    def blocked(self) -> list[Waiting]:
        """Return for each stage that stands still the record it stands at and what it waits for."""
        found: list[Waiting] = []
        for stage, steps in enumerate(self._steps):
            for record in steps[self._at[stage]] if self._at[stage] < len(steps) else ():
                missing = self._missing(stage, record)
                if missing:
                    there = self._stages
                    first = min(missing, key=lambda each: (each[0] != stage, each[1] in there[each[0]]))
                    found.append((stage, record, *first))
                    break
        return found

    def _goes_on(self, stage: int) -> bool:
        """Return whether the stage posted a message of its step, or ended the step."""
        step, moved = self._steps[stage][self._at[stage]], False
        for record in step:
            if isinstance(record, Message) and (stage, record) not in self._posted and not self._unmet(stage, record):
                self._posted[stage, record] = self._free[stage]
                moved = True
        if any(self._missing(stage, record) for record in step):
            return moved
        done = [self._done(stage, record) for record in step]
        for record, end in zip(step, done, strict=True):
            self._ends.setdefault((stage, record), end)
        self._free[stage] = max(done)
        self._at[stage] += 1
        return True

    def _done(self, stage: int, record: Record) -> float:
        """Return when a record is done, of which nothing is missing; work is placed."""
        if isinstance(record, Message):
            return max(self._posted[stage, record], self._posted[_other_end(stage, record)]) + self._message
        arrived = (
            self._ends[each] + (self._message if each[0] != stage else 0.0) for each in self._needs(stage, record)
        )
        start = max([self._free[stage], *arrived])
        end = start + self._lasts[record.kind]
        self.placed[stage].append(Placed(record, start, end))
        return end

    def _missing(self, stage: int, record: Record) -> list[tuple[int, Record]]:
        """Return what keeps a record from being done."""
        unmet = self._unmet(stage, record)
        if isinstance(record, Message) and _other_end(stage, record) not in self._posted:
            unmet.append(_other_end(stage, record))
        return unmet

    def _unmet(self, stage: int, record: Record) -> list[tuple[int, Record]]:
        return [each for each in self._needs(stage, record) if each not in self._ends]

    def _needs(self, stage: int, record: Record) -> Sequence[tuple[int, Record]]:
        if self._with_messages:
            return _needs_on_the_stage(stage, record, len(self._stages))
        assert isinstance(record, Op)
        return needs(stage, record, len(self._stages), self._chunks, self._stages, self._v_shaped)


def _steps(records: Sequence[Record]) -> list[list[Record]]:
    """Return work alone, and messages that stand together in one list."""
    found: list[list[Record]] = []
    for is_message, group in groupby(records, key=lambda record: isinstance(record, Message)):
        together = list(group)
        found += [together] if is_message else [[record] for record in together]
    return found


def _other_end(stage: int, message: Message) -> tuple[int, Message]:
    return message.peer, Message(PARTNER[message.kind], message.microbatch, stage)


def _needs_on_the_stage(stage: int, record: Record, num_stages: int) -> list[tuple[int, Record]]:
    """Return what must be done on the same stage before a record of a schedule with messages."""
    number = record.microbatch
    wanted: dict[str, list[Record]] = {
        "F": [Message("Recv", number, stage - 1)] if stage > 0 else [],
        "Send": [Op("F", number)],
        "B": [Op("F", number), *([Message("RecvGrad", number, stage + 1)] if stage < num_stages - 1 else [])],
        "SendGrad": [Op("B", number)],
    }
    return [(stage, each) for each in wanted.get(record.kind, [])]


def _order_faults(stages: Sequence[Sequence[Record]], blocked: Sequence[Waiting]) -> list[str]:
    faults, waits_on = [], {}
    stands = {stage: record for stage, record, *_ in blocked}
    for stage, op, where, wanted in blocked:
        if wanted not in stages[where]:
            what = "" if where == stage else f", needs {wanted} of stage {where}"
            faults.append(f"Stage {stage} stands at {op}{what}, but stage {where} has no {wanted}.")
        elif where == stage:
            faults.append(f"Stage {stage}: {op} stands before {wanted}.")
        else:
            waits_on[stage] = where
            waits = f"waits for {wanted} of stage {where}, which stands at {stands[where]}"
            faults.append(f"Stage {stage} stands at {op} and {waits}.")
    ordered = sorted(faults, key=lambda text: "waits for" in text)
    at = sum("waits for" not in text for text in ordered)
    circle = _circle(waits_on)
    deadlock = [f"Deadlock: stages {' and '.join(map(str, circle))} wait for each other."] if circle else []
    return [*ordered[:at], *deadlock, *ordered[at:]]


def culprits(schedule: Schedule) -> set[tuple[int, Record]]:
    """Return which records of which stages keep a schedule from going on; all else that stands still only follows."""
    everything: set[tuple[int, Record]] = {
        (stage, placed.op) for stage, row in enumerate(schedule.stages) for placed in row
    }
    everything |= set(schedule.stuck)
    own = {each[:2] for each in schedule.blocked if each[0] == each[2] or each[2:] not in everything}
    circle = _circle({stage: where for stage, op, where, _ in schedule.blocked if (stage, op) not in own})
    return own | {each[:2] for each in schedule.blocked if each[0] in circle}


def _circle(waits_on: Mapping[int, int]) -> list[int]:
    """Return stages which wait for each other in a circle, if there are any."""
    for stage in waits_on:
        at: int | None = stage
        for _ in range(len(waits_on) + 1):
            at = waits_on.get(at) if at is not None else None
        if at is None:
            continue
        circle = [at]
        while (following := waits_on[circle[-1]]) != at:
            circle.append(following)
        return sorted(circle)
    return []


def _count_faults(stages: Sequence[Sequence[Record]]) -> list[str]:
    faults = []
    for stage, ops in enumerate(stages):
        seen: set[Record] = set()
        for op in ops:
            faults += [f"Stage {stage}: {op} stands in the list twice."] if op in seen else []
            seen.add(op)
        forwards = sorted(op for op in seen if isinstance(op, Op) and op.kind == "F")
        without = [op for op in forwards if not {Op(kind, op.microbatch, op.chunk) for kind in "BI"} & seen]
        if without:
            faults.append(f"Stage {stage}: {without[0]} has no backward.")
    return faults
