"""What find_stuck returns where one rule of the game is another: schedules in short, played until nobody goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

Posted = set[tuple[int, str]]
Matches = Callable[[int, str, Posted], bool]
"""Whether a message of a stage has a partner among those that were posted."""
_PARTNERS = {"s": "r", "r": "s", "sg": "rg", "rg": "sg"}


def _cut(record: str) -> tuple[str, str]:
    kind = record.rstrip("0123456789")
    return kind, record[len(kind) :]


def _peer(stage: int, kind: str) -> int:
    return stage + (1 if kind in ("s", "rg") else -1)


def the_partner(stage: int, record: str, posted: Posted) -> bool:
    """Return whether the partner was posted, as the lesson says."""
    kind, number = _cut(record)
    return (_peer(stage, kind), f"{_PARTNERS[kind]}{number}") in posted


def of_any_kind(stage: int, record: str, posted: Posted) -> bool:
    """Return whether the other stage has posted any message about this microbatch to this one."""
    kind, number = _cut(record)
    peer = _peer(stage, kind)
    return any(
        other == peer and _cut(each)[1] == number and _peer(other, _cut(each)[0]) == stage for other, each in posted
    )


def of_any_stage(stage: int, record: str, posted: Posted) -> bool:
    """Return whether a partner's kind and microbatch have been posted, by whichever stage."""
    kind, number = _cut(record)
    return any(each == f"{_PARTNERS[kind]}{number}" for _, each in posted)


def stuck(
    texts: Sequence[str], matches: Matches = the_partner, posts_anyway: Iterable[str] = (), *, ahead: bool = False
) -> dict[int, str]:
    """Return each stage that gets stuck, and its record, in short.

    Args:
        texts: The stages' schedules in short, "F0 s0 rg0 B0".
        matches: When a message has its partner.
        posts_anyway: Kinds of messages, "s" and "sg", that are posted even where there is nothing to send.
        ahead: Whether all messages are posted from the start, wherever their stages stand.
    """
    plans = [
        [step for message, run in groupby(text.split(), lambda each: _cut(each)[0] in _PARTNERS)
         for step in ([list(run)] if message else [[each] for each in run])]
        for text in texts
    ]  # fmt: skip
    at, done, posted = [0] * len(plans), set[tuple[int, str]](), set[tuple[int, str]]()
    if ahead:
        posted |= {(stage, each) for stage, plan in enumerate(plans) for step in plan for each in step}
    last = len(plans) - 1

    def ready(stage: int, record: str) -> bool:
        kind, number = _cut(record)
        needs = {"s": ["F"], "sg": ["B"], "F": ["r"] * (stage > 0), "B": ["F"] + ["rg"] * (stage < last)}
        return all((stage, each + number) in done for each in needs.get(kind, []))

    def can(stage: int, record: str) -> bool:
        return ready(stage, record) and (_cut(record)[0] not in _PARTNERS or matches(stage, record, posted))

    before = None
    while before != (at, posted):
        before = list(at), set(posted)
        for stage, plan in enumerate(plans):
            if at[stage] == len(plan):
                continue
            step = plan[at[stage]]
            messages = [each for each in step if _cut(each)[0] in _PARTNERS]
            posted |= {(stage, each) for each in messages if _cut(each)[0] in posts_anyway or ready(stage, each)}
            if all(can(stage, each) for each in step):
                done |= {(stage, each) for each in step}
                at[stage] += 1
    return {
        stage: next(each for each in plan[at[stage]] if not can(stage, each))
        for stage, plan in enumerate(plans)
        if at[stage] < len(plan)
    }
