"""What the records of a schedule must be: asked for are work and messages of every microbatch on every stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def form(schedules: Sequence[Any], num_microbatches: int) -> str:
    """Return what is wrong with the records themselves, in a sentence, or "".

    Asked for are one Forward and one Backward of every microbatch on every stage, and the messages that belong to them:
    before Forward its Recv, after it its Send; before Backward its RecvGrad, after it its SendGrad.
    """
    for stage, schedule in enumerate(schedules):
        if not isinstance(schedule, list):
            return f"Stage {stage} returned {schedule}; asked for is a list of records."
        wanted = _wanted(stage, len(schedules))
        seen: dict[tuple[str, int], int] = {}
        for place, record in enumerate(schedule):
            problem = _one(record, wanted, num_microbatches)
            if problem:
                return f"Record {place} of stage {stage} of {len(schedules)} is {said(record)}; {problem}"
            key = (record["kind"], record["microbatch"])
            if key in seen:
                return f"Stage {stage} has {said(record)} twice, as records {seen[key]} and {place}."
            seen[key] = place
        for microbatch in range(num_microbatches):
            before = -1
            for kind in wanted:
                now = seen.get((kind, microbatch))
                if now is None:
                    return f"Stage {stage} of {len(schedules)} has no {kind} of microbatch {microbatch}."
                if now < before:
                    other = list(wanted)[list(wanted).index(kind) - 1]
                    return f"Stage {stage} has {kind} of microbatch {microbatch} before its {other}."
                before = now
    return ""


def _wanted(stage: int, num_stages: int) -> dict[str, int | None]:
    """Return the kinds of record a stage has for each microbatch, in their order, and the peer of each."""
    everything = (
        ("Recv", stage - 1), ("Forward", None), ("Send", stage + 1),
        ("RecvGrad", stage + 1), ("Backward", None), ("SendGrad", stage - 1),
    )  # fmt: skip
    return {kind: peer for kind, peer in everything if peer is None or 0 <= peer < num_stages}


def _one(record: Any, wanted: Mapping[str, int | None], num_microbatches: int) -> str:
    if not isinstance(record, dict):
        return "a schedule holds Recv, Forward, Send, RecvGrad, Backward and SendGrad records."
    kind, microbatch = str(record.get("kind")), record.get("microbatch")
    if kind not in wanted:
        if kind in ("Recv", "SendGrad"):
            return "the first stage has nobody before it."
        if kind in ("Send", "RecvGrad"):
            return "the last stage has nobody behind it."
        return "a schedule holds Recv, Forward, Send, RecvGrad, Backward and SendGrad records."
    if not isinstance(microbatch, int) or not 0 <= microbatch < num_microbatches:
        return f"there are microbatches 0 to {num_microbatches - 1}."
    peer = wanted[kind]
    if peer is not None and record.get("peer") != peer:
        return f"its peer must be stage {peer}."
    return ""


def said(record: Any) -> str:
    """Return a record as the lesson prints it: Send(peer=1, microbatch=0)."""
    if not isinstance(record, dict):
        return str(record)
    fields = ", ".join(f"{name}={record[name]}" for name in ("peer", "chunk", "microbatch") if name in record)
    return f"{record.get('kind')}({fields})"
