"""When everything in a set of schedules happens, as a graph: what comes after what, and its longest way.

Each step of a schedule has two points, posted and done. Who cannot be reached stands in a circle: a deadlock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Data = Mapping[str, Any]
_PARTNER = {"Send": "Recv", "Recv": "Send", "SendGrad": "RecvGrad", "RecvGrad": "SendGrad"}


@dataclass(frozen=True)
class Times:
    """What became of the schedules.

    Attributes:
        makespan: When the last step is done, a Forward and a Backward lasting 1 each, messages nothing.
        stuck: (stage, record) that can never be done, of the lowest stage that cannot finish; None where all can.
    """

    makespan: int
    stuck: tuple[int, Data] | None


def times(schedules: Sequence[Sequence[Data]]) -> Times:
    """Return when the schedules are done, if messages that stand together are one batch and wait for their partners.

    Args:
        schedules: Each stage's records as data; every message has its partner (see form).
    """
    steps: list[tuple[int, list[Data]]] = []  # (stage, records)
    first, following = [], []
    for stage, schedule in enumerate(schedules):
        first.append(len(steps))
        for is_message, records in groupby(schedule, key=lambda record: record["kind"] in _PARTNER):
            together = list(records)
            steps += [(stage, together)] if is_message else [(stage, [record]) for record in together]
        following.append(len(steps))
    where = {
        (stage, record["kind"], record["microbatch"]): number
        for number, (stage, records) in enumerate(steps)
        for record in records
    }
    after: dict[tuple[str, int], list[tuple[str, int]]] = defaultdict(list)
    incoming: dict[tuple[str, int], int] = defaultdict(int)

    def edge(one: tuple[str, int], other: tuple[str, int]) -> None:
        after[one].append(other)
        incoming[other] += 1

    for number, (stage, own) in enumerate(steps):
        edge(("posted", number), ("done", number))
        if number + 1 < following[stage]:
            edge(("done", number), ("posted", number + 1))
        for record in own:
            if record["kind"] in _PARTNER:
                partner = where.get((record["peer"], _PARTNER[record["kind"]], record["microbatch"]))
                edge(("posted", partner) if partner is not None else ("never", number), ("done", number))
    at: dict[tuple[str, int], int] = {}
    ready = [("posted", start) for start, end in zip(first, following, strict=True) if start < end]
    latest: dict[tuple[str, int], int] = defaultdict(int)
    while ready:
        point = ready.pop()
        number = point[1]
        lasts = point[0] == "done" and steps[number][1][0]["kind"] not in _PARTNER
        at[point] = latest[point] + lasts
        for other in after[point]:
            latest[other] = max(latest[other], at[point])
            incoming[other] -= 1
            if not incoming[other]:
                ready.append(other)
    for number, (stage, own) in enumerate(steps):
        if ("done", number) in at:
            continue
        for record in own:
            partner = where.get((record.get("peer", -1), _PARTNER.get(record["kind"], ""), record["microbatch"]))
            if partner is None or ("posted", partner) not in at:
                return Times(0, (stage, record))
    return Times(max(at.values(), default=0), None)


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


def most_held(schedule: Sequence[Data]) -> int:
    """Return the most microbatches that have gone forward and not backward."""
    now = most = 0
    for record in schedule:
        now += {"Forward": 1, "Backward": -1}.get(record["kind"], 0)
        most = max(most, now)
    return most
