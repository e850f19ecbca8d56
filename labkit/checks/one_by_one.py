"""Whether messages that were posted one by one would wait for each other for ever on NCCL.

Gloo takes a message when one end is posted. NCCL begins when both are, and lets the rank's next call wait until then
(it makes a connection of the two first, or runs the calls of a stream in their order); what is posted in one
``dist.batch_isend_irecv`` begins together. So calls that went well on the CPU are gone through once more by that rule.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from labkit.timeline import Timeline
from labkit.timeline.messages import RECEIVES, SENDS, is_call
from labkit.timeline.source_lines import shown_source

_MOST_NAMED = 3
_Key = tuple[object, ...]


@dataclass
class _Step:
    """What a rank posts at once: a call, or a batch of them."""

    rows: list[int] = field(default_factory=list)
    keys: list[_Key] = field(default_factory=list)
    batched: bool = False


def would_hang(timeline: Timeline | None) -> str:
    """Return which calls would wait for each other on NCCL, as a sentence with their lines; "" where none would.

    Args:
        timeline: A recorded run on the CPU that ended well, or a case of one.
    """
    if timeline is None or "batched" not in timeline.tables.get("call", {}):
        return ""
    ranks = _steps(timeline)
    needs: dict[_Key, set[tuple[int, int]]] = defaultdict(set)
    for rank, steps in ranks.items():
        for place, step in enumerate(steps):
            for key in step.keys:
                needs[key].add((rank, place))
    at = dict.fromkeys(ranks, 0)
    moved = True
    while moved:
        moved = False
        for rank, steps in ranks.items():
            while at[rank] < len(steps) and all(
                at[other] >= place for key in steps[at[rank]].keys for other, place in needs[key]
            ):
                at[rank] += 1
                moved = True
    stuck = {rank: steps[at[rank]] for rank, steps in ranks.items() if at[rank] < len(steps)}
    alone = [(rank, row) for rank, step in sorted(stuck.items()) for row in step.rows if not step.batched]
    messages = [(rank, row) for rank, row in alone if str(timeline.kind[row]) in (*SENDS, *RECEIVES)]
    return _in_words(timeline, messages) if messages else ""


def _steps(timeline: Timeline) -> dict[int, list[_Step]]:
    """Return what each rank posted, in order."""
    calls = timeline.tables["call"]
    about = {
        int(span): (str(group), int(number), bool(batched))
        for span, group, number, batched in zip(
            calls["span"], calls["group"], calls["number"], calls["batched"], strict=True
        )
    }
    ranks: dict[int, list[_Step]] = defaultdict(list)
    for row in np.flatnonzero(is_call(timeline) & (timeline.kind != "wait")).tolist():
        rank, flow, kind = int(timeline.rank[row]), int(timeline.flow[row]), str(timeline.kind[row])
        group, number, batched = about.get(row, ("", -1, False))
        message = kind in (*SENDS, *RECEIVES)
        if (message and flow < 0) or (not message and number < 0):
            continue  # nobody met it
        steps = ranks[rank]
        # Batches that follow each other count as one: what is told is certain, not all there is.
        if not (batched and steps and steps[-1].batched):
            steps.append(_Step(batched=batched))
        steps[-1].rows.append(row)
        steps[-1].keys.append(("message", flow) if message else ("collective", group, number))
    return ranks


def _in_words(timeline: Timeline, stuck: list[tuple[int, int]]) -> str:
    sources = timeline.tables.get("source", {"span": (), "line": ()})
    lines = {int(span): str(line) for span, line in zip(sources["span"], sources["line"], strict=True)}
    named = []
    for rank, row in stuck[:_MOST_NAMED]:
        kind, peer = str(timeline.kind[row]), int(timeline.peer[row])
        where = shown_source(lines[row])[0] if row in lines else ""
        named.append(
            f"rank {rank} in {kind} {'to' if kind in SENDS else 'from'} rank {peer}{f' ({where})' * bool(where)}"
        )
    more = f" and {len(stuck) - _MOST_NAMED} more" if len(stuck) > _MOST_NAMED else ""
    return (
        f"On GPUs this can hang: {', '.join(named)}{more} would each wait for the other end, which is posted later. "
        "NCCL begins a message when both ends are posted, and calls come one after the other; gloo does not mind. "
        "Post sends and receives that belong together in one dist.batch_isend_irecv."
    )
