"""What a stage of a pipeline does: forwards, backwards and messages, and how they are written in short.

F3 and B3 are forward and backward of microbatch 3, I3 and W3 the two parts of a backward (input, weights), F3.1 the
forward of chunk 1 of an interleaved stage; r3 and s3 receive and send an activation, rg3 and sg3 a gradient.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from labkit.errors import ConfigError

_WORK = {
    "Forward": "F",
    "ForwardChunk": "F",
    "Backward": "B",
    "BackwardChunk": "B",
    "BackwardInput": "I",
    "BackwardWeight": "W",
}
_MESSAGES = {"Recv": ("r", -1), "Send": ("s", 1), "RecvGrad": ("rg", 1), "SendGrad": ("sg", -1)}
"""In short, and the way from the stage to its peer: activations go on, gradients back."""
_KINDS = {short: kind for kind, (short, _) in _MESSAGES.items()}
_SHORT = re.compile(r"([FBIW]|rg|sg|r|s)(\d+)(?:\.(\d+))?")
LETTERS = {"Forward": "F", "Backward": "B"} | {kind: short for kind, (short, _) in _MESSAGES.items()}
"""How the records of a stage with one chunk are written in short."""
PARTNER = {"Send": "Recv", "Recv": "Send", "SendGrad": "RecvGrad", "RecvGrad": "SendGrad"}
"""Of each kind of message the kind that its peer has for it."""


@dataclass(frozen=True, order=True)
class Op:
    """One piece of a stage's work: kind is "F", "B", "I" or "W"."""

    kind: str
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


@dataclass(frozen=True, order=True)
class Message:
    """One end of a message: kind is "Recv", "Send", "RecvGrad" or "SendGrad", peer the stage at the other end."""

    kind: str
    microbatch: int
    peer: int

    def __str__(self) -> str:
        return f"{_MESSAGES[self.kind][0]}{self.microbatch}"


Record: TypeAlias = Op | Message


def read_short(text: str, stage: int) -> tuple[Record, ...]:
    """Return the records that a text such as "r0 F0 s0" stands for; messages go to the stages beside this one."""
    found: list[Record] = []
    for short, number, chunk in _SHORT.findall(text):
        if short in _KINDS:
            kind = _KINDS[short]
            found.append(Message(kind, int(number), stage + _MESSAGES[kind][1]))
        else:
            found.append(Op(short, int(number), int(chunk or 0)))
    return tuple(found)


def read_records(records: Any, stage: int) -> tuple[Record, ...]:
    """Return a stage's list as records.

    Args:
        records: A text in short, or a list of records: objects whose class is called Forward, Send, ..., mappings with
            their "kind", or words such as "F0".
        stage: Whose.

    Raises:
        ConfigError: If it is no such list.
    """
    if isinstance(records, str):
        return read_short(records, stage)
    if isinstance(records, Mapping) or not isinstance(records, Sequence):
        raise ConfigError(
            f"The schedule of stage {stage} is a {type(records).__name__}; it must be a list of Forward, Backward and "
            "message records."
        )
    return tuple(_read_each(records, stage))


def _read_each(records: Sequence[Any], stage: int) -> Iterator[Record]:
    for position, record in enumerate(records):
        fields = record if isinstance(record, Mapping) else _Fields(record)
        kind = fields["kind"]
        if kind in _WORK:
            yield Op(_WORK[kind], int(fields["microbatch"]), int(fields.get("chunk", 0)))
        elif kind in _MESSAGES:
            yield Message(kind, int(fields["microbatch"]), int(fields["peer"]))
        elif isinstance(record, str) and _SHORT.fullmatch(record):
            yield from read_short(record, stage)
        else:
            what = f"Record {position} of stage {stage} is a {kind}"
            raise ConfigError(f"{what}; a schedule holds Forward, Backward and message records.")


class _Fields:
    """An object's fields as a mapping has them; its class is its kind."""

    def __init__(self, record: object) -> None:
        self._record = record

    def __getitem__(self, name: str) -> Any:
        return type(self._record).__name__ if name == "kind" else getattr(self._record, name)

    def get(self, name: str, default: Any) -> Any:
        return getattr(self._record, name, default)


def ops_of(records: Any, stage: int) -> tuple[Op, ...]:
    """Return the work of a stage's list (see read_records); messages are left out."""
    return tuple(record for record in read_records(records, stage) if isinstance(record, Op))


def as_data(record: Record) -> dict[str, Any]:
    """Return a record of one chunk as plain data, which read_records takes."""
    if isinstance(record, Message):
        return {"kind": record.kind, "microbatch": record.microbatch, "peer": record.peer}
    kinds = {"F": "Forward", "B": "Backward", "I": "BackwardInput", "W": "BackwardWeight"}
    return {"kind": kinds[record.kind], "microbatch": record.microbatch}


def num_chunks(stages: Sequence[Sequence[Record]]) -> int:
    """Return how many chunks each stage has."""
    return 1 + max((op.chunk for stage in stages for op in stage if isinstance(op, Op)), default=0)
