"""The ring as a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import Each, OneOf
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.ring_plan.driver import drive
from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_plan import Record, Recv, Reduce, Send, read_plan
from labkit.words import join, plural

_NO_PLAN, _MIXED, _LEFTWARD, _SAME_CHUNK, _NO_GATHER, _SHORT, _LONG, _REDUCES, _NEVER, _STEPS, _UNEVEN = (
    "not a list of records", "right and left mixed up", "the other way round", "sends the chunk it is receiving",
    "no all-gather", "too few steps", "too many steps", "reduces in the all-gather", "never reduces",
    "steps numbered wrongly", "ranks take different numbers of steps",
)  # fmt: skip
_MODULO, _ITSELF, _CHUNKS, _ORDER, _ALONE, _NOTHING = (
    "modulo forgotten", "a message to itself", "sender and receiver name different chunks",
    "complete chunks are sent in the wrong order", "a Send without its Recv", "a Reduce without its Recv",
)  # fmt: skip
_FEW, _NOT_ON = "some arrivals are not added", "what was reduced is not sent on"
_OTHERS, _MANY = "other ranks than the two neighbours", "several chunks in a step"
_OF_FAULT = {
    "no_plan": _NO_PLAN, "outside": _MODULO, "itself": _ITSELF, "backwards": _STEPS, "race": _SAME_CHUNK,
    "chunk_mismatch": _CHUNKS, "missing": _ORDER, "twice": _ORDER, "unmatched": _ALONE, "deadlock": _ALONE,
    "nothing_to_reduce": _NOTHING,
}  # fmt: skip
"""Kind of the first fault in the execution: the mistake it points to where the plans themselves show none."""
_CERTAIN = frozenset({"no_plan", "outside", "itself", "nothing_to_reduce"})
"""Kinds of faults that say all there is to say, whatever else the plans show."""


def plan_case(name: str, world_sizes: Sequence[int]) -> Case:
    """Return a case of ring_plan: the plans of every rank of these worlds."""
    return Case(name, 1, ({"world_sizes": list(world_sizes)},))


def _sizes(case: Case) -> list[int]:
    return values.integers(case.inputs[0], "world_sizes")


def complete_sums(case: Case) -> list[Values]:
    """Return, for each world size, what each chunk of each rank must hold: every rank's contribution (the oracle)."""
    return [{"contributions": [[list(range(size)) for _ in range(size)] for size in _sizes(case)]}]


def structure(case: Case) -> list[Any]:
    """Return what comes: for each rank of each world a list of records, or in words what else."""
    number = OneOf((int, str))
    fields = {"step": number, "chunk": number}
    message, reduce = {"kind": str, "peer": number, **fields}, {"kind": str, **fields}
    plan = OneOf((Each(OneOf((message, reduce))), str))
    return [{"plans": [[plan] * size for size in _sizes(case)]}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what keeps the plans of a world from being a ring all-reduce together."""
    worlds = list(zip(_sizes(case), values.listed(got[0], "plans"), strict=True))
    for size, plans in worlds:
        for rank, plan in enumerate(plans):
            if not isinstance(plan, list):
                text = f"ring_plan({rank}, {size}) returned {plan}; it must return a list of Send, Recv and Reduce."
                yield Finding(_NO_PLAN, text, rank=rank)
    records = [[read_plan(plan, rank)[0] for rank, plan in enumerate(plans)] for _, plans in worlds]
    shown = next(filter(None, map(_shown_by, records)), "")
    for (size, plans), read in zip(worlds, records, strict=True):
        for fault in execute(plans, size).faults:
            of_fault = _OF_FAULT.get(fault.kind, "")
            mistake = of_fault if fault.kind in _CERTAIN else shown or of_fault
            if mistake == _ORDER and _sends_another(size, read):
                mistake = _NOT_ON
            yield Finding(mistake, f"{size} ranks: {fault.text}")
        for text in _unlike_a_ring(size, read):
            yield Finding(shown or _STEPS, f"{size} ranks: {text}")


def _unlike_a_ring(size: int, plans: list[list[Record]]) -> Iterator[str]:
    """Yield what keeps these (working) plans from being a ring's."""
    for rank, plan in enumerate(plans):
        right, left = (rank + 1) % size, (rank - 1) % size
        ring = f"in the ring it sends to its right neighbour, rank {right}, and receives from its left one, rank {left}"
        for record in plan:
            if not isinstance(record, Reduce) and record.peer != (right if isinstance(record, Send) else left):
                kind = type(record).__name__
                yield f"rank {rank} has a {kind} with peer {record.peer} in step {record.step}; {ring}."
        steps, sends = {record.step for record in plan}, sum(isinstance(record, Send) for record in plan)
        if not len(steps) == sends == 2 * (size - 1) or steps != set(range(sends)):
            numbered = "" if steps == set(range(len(steps))) else f" numbered {join(sorted(steps))}"
            yield (
                f"rank {rank} has {plural(sends, 'Send')} in {plural(len(steps), 'step')}{numbered}; the ring takes "
                f"{2 * (size - 1)} steps, numbered from 0, with one Send and one Recv each."
            )


def _sends_another(size: int, plans: list[list[Record]]) -> bool:
    """Return whether some step of the reduce-scatter does not send the chunk that arrived in the step before."""
    for plan in plans:
        sent = {record.step: record.chunk for record in plan if isinstance(record, Send)}
        came = {record.step: record.chunk for record in plan if isinstance(record, Recv)}
        if any(sent.get(step) != came.get(step - 1) for step in range(1, size - 1)):
            return True
    return False


def _shown_by(plans: list[list[Record]]) -> str:
    """Return the mistake that the records of these plans show, or ""; with two ranks all mistakes look alike."""
    size = len(plans)
    if size < 3:
        return ""
    sends = [[record for record in plan if isinstance(record, Send)] for plan in plans]
    recvs = [[record for record in plan if isinstance(record, Recv)] for plan in plans]
    if not any(sends):
        return ""
    both = [(out, into) for out, into in zip(sends, recvs, strict=True) if out and into]
    num_sends, num_steps = len(sends[0]), len({record.step for record in plans[0]})
    num_reduces = sum(isinstance(record, Reduce) for record in plans[0])
    marks = {
        _MANY: max(Counter(each.step for each in sends[0]).values(), default=0) > 2,
        _OTHERS: any(len({each.peer for each in out}) > 1 for out in sends),
        _MIXED: len(both) == size and all({e.peer for e in out} == {e.peer for e in into} for out, into in both),
        _LEFTWARD: all(each.peer == (rank - 1) % size for rank, out in enumerate(sends) for each in out),
        _STEPS: num_sends == 2 * size - 2 and num_steps < num_sends,
        _SAME_CHUNK: any(out[0].step == into[0].step and out[0].chunk == into[0].chunk for out, into in both),
        _ALONE: any(len(out) != len(into) for out, into in zip(sends, recvs, strict=True)),
        _UNEVEN: len({len(plan) for plan in plans}) > 1,
        _NEVER: num_reduces == 0,
        _FEW: num_sends == 2 * size - 2 and num_reduces < size - 1,
        _NO_GATHER: num_sends == num_reduces == size - 1,
        _SHORT: num_sends < 2 * size - 2,
        _LONG: num_sends > 2 * size - 2,
        _REDUCES: num_reduces > size - 1,
    }
    return next((name for name, seen in marks.items() if seen), "")


EXERCISE = declared(
    id="ring_plan",
    functions=("ring_plan",),
    driver=drive,
    oracle=complete_sums,
    looks=(find,),
    structure=structure,
    visible=(
        plan_case("3 ranks", [3]),
        plan_case("4 and 5 ranks", [4, 5]),
        plan_case("2 ranks", [2]),
        plan_case("one rank: an empty plan", [1]),
    ),
    distributed=False,
    hints=(
        "Follow one chunk, not one rank. Chunk 0 starts on rank 0 and goes right: where is it after each step?",
        "In step s of the reduce-scatter rank r sends chunk (r - s) mod N and receives the chunk that its left "
        "neighbour sends, (r - s - 1) mod N, and reduces it. After N-1 steps rank r owns chunk (r + 1) mod N "
        "complete; the all-gather starts from that one and overwrites.",
        "for s in range(N - 1): Send(s, (rank - s) % N, right), Recv(s, (rank - s - 1) % N, left), Reduce(s, the same "
        "chunk). Then for s in range(N - 1): step N-1+s sends (rank + 1 - s) % N and receives (rank - s) % N, no "
        "Reduce.",
    ),
    mistakes=(
        Mistake(_NO_PLAN, "ring_plan returns one list of Send, Recv and Reduce records with whole numbers."),
        Mistake(_OTHERS,
                "A rank sends to one rank in some steps and to another in others. In a ring all its messages, those of "
                "the all-gather too, go to its right neighbour, (r + 1) % N, and come from its left one."),
        Mistake(_MANY, "A rank sends several chunks in a step. In each step it sends one and receives another."),
        Mistake(_MIXED,
                "Rank r sends and receives with the same neighbour: it sends to (r + 1) % N and receives from (r - 1) "
                "% N."),
        Mistake(_LEFTWARD, "The ring turns to the left: rank r sends to (r + 1) % N and receives from (r - 1) % N."),
        Mistake(_STEPS,
                "The reduce-scatter has the steps 0 to N-2, the all-gather N-1 to 2N-3, each with a number of its own; "
                "the records of a plan stand in the order of their steps."),
        Mistake(_SAME_CHUNK,
                "A step sends the very chunk that it receives. Send on in the next step what arrived in this one: in "
                "step 0 rank r sends its own chunk r and receives chunk (r - 1) mod N."),
        Mistake(_ALONE,
                "Every Send needs a Recv in the same step, on the rank it goes to, that names the sender; and every "
                "Recv a Send. Rank r sends to its right neighbour and receives from its left one in every step."),
        Mistake(_UNEVEN, "The number of steps depends on N alone; here it differs from rank to rank."),
        Mistake(_NEVER,
                "There is no Reduce in the reduce-scatter: without it a Recv overwrites the chunk and the rank's own "
                "part is lost."),
        Mistake(_FEW,
                "Some chunks that arrive in the reduce-scatter have no Reduce, so they replace what the rank had: each "
                "of the N - 1 steps needs one."),
        Mistake(_NO_GATHER,
                "The plan stops after the reduce-scatter: each rank has one complete chunk. Send the complete chunks "
                "round in N-1 more steps."),
        Mistake(_SHORT, "There are too few steps: reduce-scatter and all-gather take N-1 steps each, 2(N-1) in all."),
        Mistake(_LONG, "There are too many steps: each half takes N-1 steps, range(N - 1)."),
        Mistake(_REDUCES,
                "The all-gather reduces too: what arrives there is complete and must overwrite, so no Reduce in the "
                "second half."),
        Mistake(_MODULO,
                "A chunk or a peer is out of range: take it modulo the number of ranks (in Python -1 % N is N - 1)."),
        Mistake(_ITSELF,
                "A rank names itself as its neighbour. Its neighbours are the ranks before and after it, and the last "
                "rank is followed by rank 0. A rank that is alone has none, and an empty plan."),
        Mistake(_CHUNKS,
                "What a rank receives must be what its left neighbour sends in that step: put r - 1 in place of r "
                "into the formula of the chunk that is sent."),
        Mistake(_NOTHING, "A Reduce adds what a Recv of the same step and chunk has brought: that Recv is not there."),
        Mistake(_NOT_ON,
                "In the reduce-scatter a rank does not send on what it has just reduced: from step 1 on it sends the "
                "chunk that arrived in the step before."),
        Mistake(_ORDER,
                "The number of messages is right but the chunks are wrong. After the reduce-scatter, the chunk that "
                "is complete on a rank is the one it received last: the all-gather must start with that one."),
    ),
)  # fmt: skip
