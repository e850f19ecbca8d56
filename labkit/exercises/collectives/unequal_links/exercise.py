"""A design: the plans of an all-reduce for a cluster with one network card for each node, and slow links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from labkit.checks import values
from labkit.checks.case import Case, Value, Values
from labkit.checks.challenge import Challenge, Pars
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import Each, OneOf
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.collectives.plan_time import plan_ns
from labkit.exercises.collectives.unequal_links.driver import drive
from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Outcome, at_first
from labkit.plans.all_reduce_plan import Record, read_plan
from labkit.simulator.cluster import Cluster, describe
from labkit.words import ranks_in_words

NUM_BYTES = 64 * 10**6
MOST_CHUNKS, MOST_RECORDS = 64, 2000

_NO_PLANS, _NUMBER, _CHUNKS, _LONG, _FAULTY, _LOST, _TWICE, _SAME, _ALONE, _OUTSIDE, _BACK = (
    "not a list of plans", "one plan for each rank", "too many chunks", "too many records", "not a list of records",
    "a contribution is missing", "a contribution counts twice", "a chunk is sent and received in one step",
    "a message without a partner", "no such peer or chunk", "steps go back",
)  # fmt: skip
_REPLACED, _EMPTY = "a sum is replaced by one with less in it", "empty plans"
_OF_FAULT = {
    "no_plan": _FAULTY, "outside": _OUTSIDE, "itself": _OUTSIDE, "backwards": _BACK, "race": _SAME,
    "chunk_mismatch": _ALONE, "missing": _LOST, "twice": _TWICE, "unmatched": _ALONE, "deadlock": _ALONE,
    "nothing_to_reduce": _ALONE,
}  # fmt: skip


def cluster_of(num_ranks: int, ranks_per_node: int, slow: Sequence[tuple[int, int, float]]) -> Cluster:
    """Return H100s with NVLink inside a node and one 400 Gb/s card between nodes.

    Args:
        num_ranks: In all.
        ranks_per_node: In each node.
        slow: (source, destination, factor): bytes take that much longer this way.
    """
    ways = {(src, dst): factor for src, dst, factor in slow}
    return describe(num_ranks, gpus_per_node=ranks_per_node, nics_per_node=1, slow_links=ways)


def cluster_case(
    name: str, num_ranks: int, ranks_per_node: int, slow: Sequence[tuple[int, int, float]], pars_us: Sequence[float]
) -> Case:
    """Return a case of unequal_links.

    Args:
        name: What is special about the cluster.
        num_ranks: In all.
        ranks_per_node: In each node.
        slow: (source, destination, factor) of each slow link.
        pars_us: Microseconds of the ring in the order of ranks, of BlueConnect around slow links, of the best known.
    """
    links: list[Value] = [[src, dst, factor] for src, dst, factor in slow]
    inputs: Values = {"num_ranks": num_ranks, "ranks_per_node": ranks_per_node, "slow_links": links}
    return Case(name, 1, (inputs,), {"pars": list(pars_us)})


def structure(case: Case) -> list[Any]:
    """Return what comes: for each rank a list of records, or in words what else."""
    number = OneOf((int, str))
    fields = {"step": number, "chunk": number}
    message, reduce = {"kind": str, "peer": number, **fields}, {"kind": str, **fields}
    plan = OneOf((Each(OneOf((message, reduce))), str))
    return [{"plans": OneOf((Each(plan), str))}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what keeps the plans from being an all-reduce together."""
    plans, size = got[0]["plans"], values.integer(case.inputs[0], "num_ranks")
    if not isinstance(plans, list):
        yield Finding(_NO_PLANS, f"all_reduce_plans returned {plans}; it must return a list of plans.")
        return
    if len(plans) != size:
        yield Finding(_NUMBER, f"There are {len(plans)} plans for {size} ranks.")
        return
    for rank, plan in enumerate(plans):
        if not isinstance(plan, list):
            yield Finding(_FAULTY, f"The plan of rank {rank} is {plan}; it must be a list of records.", rank=rank)
            return
        if len(plan) > MOST_RECORDS:
            text = f"Rank {rank}'s plan has {len(plan)} records; it may have {MOST_RECORDS}."
            yield Finding(_LONG, text, rank=rank)
            return
    records = _records(plans)
    chunks = _num_chunks(records)
    if chunks > MOST_CHUNKS:
        yield Finding(_CHUNKS, f"The plans name chunk {chunks - 1}, so there would be {chunks} chunks.")
        return
    outcome = execute(plans, chunks)
    lost = _replaced(outcome) if any(records) else "All plans are empty: nobody sends anything."
    for fault in outcome.faults:
        name, more = _OF_FAULT.get(fault.kind, ""), ""
        if fault.kind == "missing" and lost:
            name, more = _REPLACED if any(records) else _EMPTY, f" {lost}"
        yield Finding(name, fault.text + more, rank=fault.rank)


def _replaced(outcome: Outcome) -> str:
    """Return which sum was first replaced by one that lacks some of its contributions, as a sentence, or ""."""
    held = at_first(outcome.num_ranks, outcome.num_chunks)
    for step in outcome.steps:
        for write in step.writes:
            old, new = held[write.rank][write.chunk], write.content
            gone = [rank for rank, count in enumerate(old.counts) if count and not new.counts[rank]]
            if gone and not new.foreign:
                what = f"the contribution{'s' * (len(gone) > 1)} of {ranks_in_words(gone)}"
                return (
                    f"First in step {step.number}: rank {write.rank} receives c{write.chunk} without a Reduce, and "
                    f"loses {what}, which it had."
                )
            held[write.rank][write.chunk] = new
    return ""


def _records(plans: Sequence[object]) -> list[list[Record]]:
    return [read_plan(plan, rank)[0] for rank, plan in enumerate(plans)]


def _num_chunks(records: Sequence[Sequence[Record]]) -> int:
    return 1 + max((record.chunk for plan in records for record in plan), default=0)


def score(case: Case, got: tuple[Values, ...]) -> float:
    """Return the microseconds that right plans take."""
    asked = case.inputs[0]
    slow = cast("list[tuple[int, int, float]]", asked["slow_links"])
    cluster = cluster_of(values.integer(asked, "num_ranks"), values.integer(asked, "ranks_per_node"), slow)
    records = _records(listed(got[0], "plans"))
    return plan_ns(records, cluster, -(-NUM_BYTES // _num_chunks(records))) / 1e3


def _pars(case: Case) -> Pars:
    return Pars(*listed(case.about, "pars"))


_OF_EIGHT = (2463.538, 1644.736, 1429.028)
"""The pars of two nodes of four: the fast ones go around any slow link."""
_BOTH_WAYS = [(1, 2, 6.0), (2, 1, 6.0)]
_UNEVEN = [(src, dst, 4.0) for src, dst in ((0, 1), (1, 0), (2, 3), (3, 2), (4, 6), (6, 4), (5, 7), (7, 5))]

EXERCISE = declared(
    id="unequal_links",
    functions=("all_reduce_plans",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    visible=(
        cluster_case("two nodes of four", 8, 4, [], _OF_EIGHT),
        cluster_case("two nodes of four, ranks 1 and 2 on a slow link", 8, 4, _BOTH_WAYS, _OF_EIGHT),
        cluster_case("two nodes of four, half of the pairs on slow links", 8, 4, _UNEVEN, _OF_EIGHT),
        cluster_case("three nodes of two", 6, 2, [], [2315.23, 1974.086, 1818.802]),
    ),
    hints=(
        "Where do the bytes of a plain ring go? Count those that pass one network card, then count how many really "
        "have to. Which links can a ring avoid altogether?",
        "Two levels: a reduce-scatter inside each node, over the fast links; then each rank all-reduces its own piece "
        "with the ranks at the same place in the other nodes, so that a card carries the tensor once; then an "
        "all-gather inside each node. Inside a node the ring may pass its ranks in any order, so take one that avoids "
        "slow links.",
        "Cut the tensor into num_ranks chunks; piece p of a node with G ranks is the M = num_ranks / G chunks p * M "
        "to p * M + M - 1. With position i in the order of its node, a rank sends piece (i - s - 1) % G in step s and "
        "reduces piece (i - s - 2) % G, for G - 1 steps; it then owns piece i, and does the ring of M with its "
        "chunks. For the order, try itertools.permutations and keep the one whose slowest link is fastest. To beat "
        "the reference: cut everything into slices, and start the next slice inside the node while this one is on "
        "the card.",
    ),
    mistakes=(
        Mistake(_NO_PLANS,
                "all_reduce_plans returns a list with one plan for each rank, and a plan is a list of Send, Recv and "
                "Reduce."),
        Mistake(_NUMBER,
                "The list has one plan for each rank, rank 0's first; a rank with nothing to do has an empty plan."),
        Mistake(_CHUNKS, f"A tensor is cut into at most {MOST_CHUNKS} chunks, numbered from 0."),
        Mistake(_LONG, f"A plan has at most {MOST_RECORDS} records."),
        Mistake(_FAULTY, "A plan is a list of Send, Recv and Reduce records, with whole numbers in them."),
        Mistake(_LOST,
                "In the end every chunk on every rank must hold every rank's contribution. Look at the rank and the "
                "chunk that are named: who should have sent them the rest? labkit.ring_player(plans) shows it where "
                "there are as many chunks as ranks."),
        Mistake(_REPLACED,
                "A Recv without a Reduce replaces what the chunk held, so what arrives there must have all of it: "
                "either this Recv wants a Reduce, or the sender should have had that contribution before."),
        Mistake(_EMPTY,
                "No rank has a record in its plan: does the loop that makes them run, and are they kept?"),
        Mistake(_TWICE,
                "A contribution was added to a chunk that had it already: once two ranks hold the same sum, what one "
                "sends to the other must replace it, without a Reduce."),
        Mistake(_SAME,
                "What a step sends is what the chunk held before the step. Send it in one step and receive it in "
                "another."),
        Mistake(_ALONE,
                "Every Send needs a Recv of the same chunk on the other side, and messages between two ranks arrive "
                "in the order in which they were sent."),
        Mistake(_OUTSIDE, "Peers are ranks of this cluster, 0 to num_ranks - 1, and nobody sends to itself."),
        Mistake(_BACK, "List the records in the order of their steps."),
    ),
    distributed=False,
    challenge=Challenge("µs", score, _pars, plan="plans", reference="BlueConnect"),
)  # fmt: skip
