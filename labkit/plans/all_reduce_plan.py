"""What a plan of an all-reduce is: a rank's messages and additions, chunk by chunk, and how one is read from data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Send:
    """Send a chunk to a peer, with what it holds when the step begins."""

    step: int
    chunk: int
    peer: int


@dataclass(frozen=True)
class Recv:
    """Receive a chunk from a peer; it takes the place of what is there, unless the step reduces it."""

    step: int
    chunk: int
    peer: int


@dataclass(frozen=True)
class Reduce:
    """Add what the step receives for a chunk to what is there."""

    step: int
    chunk: int


Record: TypeAlias = Send | Recv | Reduce
_KINDS: Mapping[str, tuple[type[Record], tuple[str, ...]]] = {
    "Send": (Send, ("step", "chunk", "peer")),
    "Recv": (Recv, ("step", "chunk", "peer")),
    "Reduce": (Reduce, ("step", "chunk")),
}


@dataclass(frozen=True)
class Fault:
    """Something that is wrong in the plans.

    Attributes:
        kind: What, in a word. Of a record: "no_plan" (it is none), "outside" (no such chunk or peer), "itself" (a
            message to oneself), "backwards" (its step is over). Of a step: "nothing_to_reduce", "race" (one chunk is
            sent and received). Of all ranks together: "unmatched" (a message has no partner), "deadlock" (it has one
            that never comes), "chunk_mismatch", "twice" (a contribution), "missing".
        text: A sentence for the learner, with the numbers.
        rank: Whose plan.
        step: The step's number in the plan; -1: none, or the end.
    """

    kind: str
    text: str
    rank: int
    step: int = -1


def read_plan(plan: object, rank: int) -> tuple[list[Record], list[Fault]]:
    """Return a plan's records, and a fault for each entry that is none.

    Args:
        plan: A list of records: objects whose class is called Send, Recv or Reduce, or mappings with their "kind".
        rank: Named in the faults.
    """
    if isinstance(plan, str | Mapping) or not isinstance(plan, Sequence):
        what = f"The plan of rank {rank} is a {type(plan).__name__}; a plan is a list of Send, Recv and Reduce records."
        return [], [Fault("no_plan", what, rank)]
    records: list[Record] = []
    faults: list[Fault] = []
    for position, entry in enumerate(plan):
        found = _record(entry, f"Record {position} of rank {rank}'s plan")
        if isinstance(found, str):
            faults.append(Fault("no_plan", found, rank))
        else:
            records.append(found)
    return records, faults


def _record(entry: Any, place: str) -> Record | str:
    """Return a record, or in a sentence why it is none."""
    is_data = isinstance(entry, Mapping)
    kind = entry.get("kind") if is_data else type(entry).__name__
    if kind not in _KINDS:
        return f"{place} is a {kind}; a plan holds Send, Recv and Reduce records."
    make, names = _KINDS[kind]
    values: list[Any] = [entry.get(name) if is_data else getattr(entry, name, None) for name in names]
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, int) or isinstance(value, bool):
            return f"{place}, a {kind}, has {name}={value!r}; it must be a whole number."
    return make(*values)
