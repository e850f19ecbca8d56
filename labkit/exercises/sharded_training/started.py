"""Transfers that a driver begins in one part of the wire and ends in the next, and what may go wrong between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.cut_wire import waited_at_once
from labkit.checks.declared import Mistake, Result, Seen
from labkit.checks.finding import Find, Finding
from labkit.checks.values import tensors
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.sharded_training.flat import same
from labkit.exercises.sharded_training.travels import answered, calls_of, not_the_drivers, parts_of


@dataclass(frozen=True)
class Started:
    """A function that begins a transfer and returns what ends it.

    Attributes:
        what: Its name.
        part: In which part of the wire, between the driver's barriers, it begins; it ends in the next one.
        most: How many collectives it may call.
    """

    what: str
    part: int
    most: int = 1


MARKS = (False, True, False, True, False)
"""Which of a driver's marks may ask for a number: those between the beginning of each of two transfers and its end."""
HEARD = Result("heard", "On rank {rank} another rank's number has not come when this check asked for it.")
"""What came when the driver asked, where a case's marks ask: who holds a mark back has something else."""
LATE, BLOCKS, MANY = "begins in finish", "waits at once", "one collective each"
STARTED = (
    Mistake(LATE, "Call the collective with async_op=True in the function that begins, and only wait in the one it "
            "returns."),
    Mistake(BLOCKS, "Pass async_op=True, and call wait() in the function that you return."),
    Mistake(MANY, "Lay the parts of all tensors into one buffer, and send that: each collective costs a latency."),
)  # fmt: skip


def heard(case: Case) -> Values:
    """Return what comes when a driver's marks ask."""
    return {"heard": [answered(case, number) for number in range(sum(MARKS))]}


def waits(wire: Wire, calls: Sequence[CollectiveCall]) -> bool:
    """Return whether somebody waits for these calls; where nobody saw any call end, they may."""
    seen = any(call.waited is not None for call in wire.collectives)
    return not seen or all(call.waited is not None for call in calls)


def _nobody_waits(case: Case, got: Got, wire: Wire) -> bool:
    ranks = range(0 if isinstance(got, Failure) else case.world_size)
    return not all(waits(wire, calls_of(wire, rank)) for rank in ranks)


NEVER_WAITS = Mistake(
    "never waits",
    "Call wait() on the collective's handle before you use its result: without it, the buffer may hold anything.",
    seen=_nobody_waits,
)
SHARES_MEMORY = Mistake(
    "shares memory",
    "A view keeps the whole tensor's memory alive, which a shard is there to free. Return a copy: .clone().",
)


SEEN = Mistake(
    "autograd sees it",
    "For autograd these are parameters, and writing into them is an error in training. Write into tensor.data.",
    says=("leaf Variable",),
)
NOT_CAST = Mistake(
    "not cast before the gather",
    "The shards have another dtype than the tensors they are gathered for. Cast them to the tensors' dtype first.",
    says=("give both the same dtype", "invalid tensor type", "same type as input tensor"),
)
WIDER = Mistake(
    "wider than the tensors",
    "You send more bytes than the tensors have. Shards travel in the dtype of the tensors.",
)


def put_elsewhere(filled: Callable[[Case, int], list[Tensor]]) -> Seen:
    """Return the mark that a rank's tensors hold the numbers that were gathered, and not where they belong."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if isinstance(got, Failure):
            return False
        for rank, came in enumerate(got):
            right, mine = filled(case, rank), tensors(came, "targets")
            numbers = {0.0, *(number for each in right for number in each.flatten().tolist())}
            there = {number for each in mine for number in each.flatten().tolist()}
            if there != {0.0} and there <= numbers and not same(mine, right):
                return True
        return False

    return seen


def transfers(wire: Wire, started: Sequence[Started], rank: int) -> Iterator[tuple[Started, list[CollectiveCall]]]:
    """Yield what each of them called on a rank."""
    parts = parts_of(wire, rank)
    yield from ((each, [*parts[each.part], *parts[each.part + 1]]) for each in started)


def overlapping(started: Sequence[Started]) -> Find:
    """Return the rule that each begins at once, blocks nobody, is waited for, and calls no more than it may."""

    def find(case: Case, got: object, wire: Wire) -> Iterator[Finding]:
        for rank in range(case.world_size):
            if found := not_the_drivers(case, wire, rank, MARKS):
                yield found
                return
            parts = parts_of(wire, rank)
            for each in started:
                begun, ended = parts[each.part], parts[each.part + 1]
                if not begun and ended:
                    text = f"{each.what} starts nothing: rank {rank} communicates only when its function is called."
                    yield Finding(LATE, text, rank=rank)
                if len(begun) + len(ended) > each.most:
                    text = f"In {each.what} rank {rank} calls {len(begun) + len(ended)} collectives."
                    yield Finding(MANY, text, f"at most {each.most}", rank=rank)
                if not waits(wire, [*begun, *ended]):
                    text = f"{each.what} of rank {rank} ends before anybody has waited for what it sends."
                    yield Finding(NEVER_WAITS.name, text, rank=rank)
                if any(waited_at_once(call) for call in begun):
                    text = f"{each.what} returns on rank {rank} when all is over: nothing can overlap."
                    yield Finding(BLOCKS, text, rank=rank)

    return find
