"""The ring as a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from labkit.checks.case import Case, Got, Values
from labkit.checks.judged import Mistake, judged
from labkit.checks.structure import Each, OneOf
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce.ring_plan.driver import drive
from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_plan import Fault, Reduce, Send, read_plan
from labkit.words import plural


def plan_case(name: str, world_sizes: Sequence[int]) -> Case:
    """Return a case of ring_plan: the plans of every rank of these worlds."""
    return Case(name, 1, ({"world_sizes": list(world_sizes)},))


def complete_sums(case: Case) -> list[Values]:
    """Return, for each world size, what each chunk of each rank must hold: every rank's contribution (the oracle)."""
    sizes = cast(list[int], case.inputs[0]["world_sizes"])
    return [{"contributions": [[list(range(size)) for _ in range(size)] for size in sizes]}]


def structure(case: Case) -> list[Any]:
    """Return what comes: for each rank of each world a list of records, or in words what else."""
    number = OneOf((int, str))
    fields = {"step": number, "chunk": number}
    message, reduce = {"kind": str, "peer": number, **fields}, {"kind": str, **fields}
    plan = OneOf((Each(OneOf((message, reduce))), str))
    return [{"plans": [[plan] * size for size in cast(list[int], case.inputs[0]["world_sizes"])]}]


def _plans(case: Case, got: Got) -> list[tuple[int, list[Any]]]:
    if not isinstance(got, tuple):
        return []
    sizes = cast(list[int], case.inputs[0]["world_sizes"])
    plans = cast(list[list[Any]], got[0].get("plans") or [])
    return list(zip(sizes, plans, strict=False))


def _first_fault(case: Case, got: Got) -> Fault | None:
    for size, plans in _plans(case, got):
        if not all(isinstance(plan, list) for plan in plans):
            return None
        if faults := execute(plans, size).faults:
            return faults[0]
    return None


def judge_plan(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether the plans together are a ring all-reduce."""
    if not _plans(case, got):
        return Verdict(False, message="ring_plan was not called.")
    for size, plans in _plans(case, got):
        for rank, plan in enumerate(plans):
            if not isinstance(plan, list):
                return Verdict(
                    False,
                    message=f"ring_plan({rank}, {size}) returned {plan}; it must return a list of Send, Recv and "
                    f"Reduce.",
                    rank=rank,
                )
        faults = execute(plans, size).faults
        if text := faults[0].text if faults else _ring_form(size, plans):
            return Verdict(False, message=f"World of {size}: {text}")
    return Verdict(True)


def _ring_form(size: int, plans: list[list[Any]]) -> str:
    """Return what keeps these (working) plans from being a ring's, or ""."""
    for rank, plan in enumerate(plans):
        right, left = (rank + 1) % size, (rank - 1) % size
        records = read_plan(plan, rank)[0]
        for record in records:
            wanted = right if isinstance(record, Send) else left
            if not isinstance(record, Reduce) and record.peer != wanted:
                return (
                    f"rank {rank} has a {type(record).__name__} with peer {record.peer} in step {record.step}; in the "
                    f"ring it sends to its right neighbour, rank {right}, and receives from its left one, rank {left}."
                )
        steps = {record.step for record in records}
        sends = sum(isinstance(record, Send) for record in records)
        if len(steps) != sends or sends != 2 * (size - 1) or (steps and steps != set(range(len(steps)))):
            return (
                f"rank {rank} has {plural(sends, 'Send')} in {plural(len(steps), 'step')}; the ring takes "
                f"{2 * (size - 1)} steps, numbered from 0, with one Send and one Recv each."
            )
    return ""


def _problem_is(*kinds: str) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        found = _first_fault(case, got)
        return found is not None and found.kind in kinds

    return seen


def _counts(case: Case, got: Got) -> tuple[int, int, int, int] | None:
    """Return (world size, sends, reduces, steps) of rank 0 in the first world of three or more."""
    for size, plans in _plans(case, got):
        if size >= 3 and isinstance(plans[0], list):
            kinds = [record.get("kind") for record in plans[0]]
            return size, kinds.count("Send"), kinds.count("Reduce"), len({str(r.get("step")) for r in plans[0]})
    return None


def _count_is(test: Callable[[int, int, int, int], bool]) -> Callable[[Case, Got, Wire], bool]:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        found = _counts(case, got)
        return found is not None and test(*found)

    return seen


def _first_step_sends_same_as_received(case: Case, got: Got, wire: Wire) -> bool:
    for size, plans in _plans(case, got):
        if size < 3 or not all(isinstance(plan, list) for plan in plans):
            continue
        for plan in plans:
            sent = next((record.get("chunk") for record in plan if record.get("kind") == "Send"), None)
            received = next((record.get("chunk") for record in plan if record.get("kind") == "Recv"), None)
            if sent is not None and sent == received:
                return True
    return False


def _same_neighbour(case: Case, got: Got, wire: Wire) -> bool:
    for size, plans in _plans(case, got):
        if size < 3 or not all(isinstance(plan, list) for plan in plans):
            continue
        for plan in plans:
            to = {record.get("peer") for record in plan if record.get("kind") == "Send"}
            source = {record.get("peer") for record in plan if record.get("kind") == "Recv"}
            if to and to == source:
                return True
    return False


def _leftward(case: Case, got: Got, wire: Wire) -> bool:
    for size, plans in _plans(case, got):
        if size >= 3 and all(isinstance(plan, list) for plan in plans):
            return all(
                record.get("peer") == (rank - 1) % size
                for rank, plan in enumerate(plans)
                for record in plan
                if record.get("kind") == "Send"
            )
    return False


EXERCISE = judged(
    id="ring_plan",
    functions=("ring_plan",),
    driver=drive,
    oracle=complete_sums,
    structure=structure,
    judge=judge_plan,
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
        Mistake(
            "right and left mixed up",
            "Rank r sends and receives with the same neighbour: it sends to (r + 1) % N and receives from (r - 1) % N.",
            _same_neighbour,
        ),
        Mistake(
            "the other way round",
            "The ring turns to the left: rank r sends to (r + 1) % N and receives from (r - 1) % N.",
            _leftward,
        ),
        Mistake(
            "sends the chunk it is receiving",
            "A step sends the very chunk that it receives. What came in one step is sent on in the next one: in step "
            "0 rank r sends its own chunk r and receives chunk (r - 1) mod N.",
            lambda case, got, wire: (
                _first_step_sends_same_as_received(case, got, wire) or _problem_is("race")(case, got, wire)
            ),
        ),
        Mistake(
            "no all-gather",
            "The plan stops after the reduce-scatter: each rank has one complete chunk. Send the complete chunks "
            "round in N-1 more steps.",
            _count_is(lambda n, sends, reduces, steps: sends == n - 1),
        ),
        Mistake(
            "one step too few",
            "The plan is one step short: reduce-scatter and all-gather take N-1 steps each, 2(N-1) in all.",
            _count_is(lambda n, sends, reduces, steps: sends == 2 * n - 3),
        ),
        Mistake(
            "one step too many",
            "There are too many steps: each half takes N-1 steps, range(N - 1).",
            _count_is(lambda n, sends, reduces, steps: sends > 2 * n - 2),
        ),
        Mistake(
            "reduces in the all-gather",
            "The all-gather reduces too: what arrives there is complete and must overwrite, so no Reduce in the "
            "second half.",
            _count_is(lambda n, sends, reduces, steps: reduces > n - 1),
        ),
        Mistake(
            "never reduces",
            "There is no Reduce in the reduce-scatter: without it a Recv overwrites the chunk and the own part is "
            "lost.",
            _count_is(lambda n, sends, reduces, steps: reduces == 0),
        ),
        Mistake(
            "steps of the all-gather start at 0 again",
            "The steps go back: the all-gather's steps are numbered on, N-1 to 2N-3.",
            _count_is(lambda n, sends, reduces, steps: sends == 2 * n - 2 and steps == n - 1),
        ),
        Mistake(
            "modulo forgotten",
            "A chunk or a peer is out of range: take it modulo the number of ranks (in Python -1 % N is N - 1).",
            _problem_is("no_plan", "outside", "itself", "backwards", "nothing_to_reduce"),
        ),
        Mistake(
            "sender and receiver name different chunks",
            "What a rank receives must be what its left neighbour sends in that step: put r - 1 for r into the "
            "formula of the chunk that is sent.",
            _problem_is("chunk_mismatch"),
        ),
        Mistake(
            "complete chunks are sent in the wrong order",
            "The numbers of messages are right, the chunks are not: after the reduce-scatter rank r owns chunk (r + "
            "1) mod N, and the all-gather must start with that one.",
            _problem_is("missing", "twice"),
        ),
        Mistake(
            "a message without a partner",
            "Every Send needs a Recv on the other side, in the same order: the neighbours' plans do not fit together.",
            _problem_is("unmatched", "deadlock"),
        ),
    ),
)
