"""Cases of run_plan: plans that are no all-reduce, and what they do to the chunks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.case import Case, Value, Values
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.exercises.sums_over_ranks.sums import members_of, whole_numbers
from labkit.plans.all_reduce import execute
from labkit.plans.all_reduce_facts import Step

Plan = list[dict[str, Value]]


def plan_case(
    name: str,
    plans: Sequence[Plan],
    sizes: Sequence[int],
    seed: int,
    *,
    world_size: int = 0,
    group: Sequence[int] = (),
    combine: str = "",
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Return a case in which member i of the group runs plans[i] on chunks of these sizes.

    Args:
        name: What is special about it.
        plans: One plan for each member; peers are ranks within the group.
        sizes: Elements of each chunk, equal on all ranks.
        seed: For the numbers in the chunks.
        world_size: Ranks in all; 0: as many as plans.
        group: Global ranks of the members; empty: everybody.
        combine: Name of the torch function a Reduce uses, "maximum"; empty: run_plan is called without one.
        dtype: Of the chunks.
    """
    size = world_size or len(plans)
    members = list(group) or list(range(size))
    tensors = whole_numbers(seed, size, (sum(sizes),), dtype)
    inputs: list[Values] = []
    for rank in range(size):
        plan = plans[members.index(rank)] if rank in members else []
        given: dict[str, Value] = {"tensor": tensors[rank], "sizes": list(sizes), "plan": [*plan]}
        if combine:
            given["combine"] = combine
        if group:
            given["group"] = [*members]
        inputs.append(given)
    return Case(name, size, tuple(inputs))


def rotation(world_size: int, num_chunks: int, shift: int, steps: int, reduce_on: Sequence[int] = ()) -> list[Plan]:
    """Return plans that pass chunk (step mod num_chunks) `shift` ranks on in every step, into the next chunk.

    Args:
        world_size: Number of ranks.
        num_chunks: Number of chunks, at least 2.
        shift: How far to the right a message goes.
        steps: Number of steps.
        reduce_on: Steps in which what arrives is added.
    """
    plans: list[Plan] = []
    for rank in range(world_size):
        plan: Plan = []
        for step in range(steps):
            into = (step + 1) % num_chunks
            plan.append({"kind": "Send", "step": step, "chunk": step % num_chunks, "peer": (rank + shift) % world_size})
            plan.append({"kind": "Recv", "step": step, "chunk": into, "peer": (rank - shift) % world_size})
            if step in reduce_on:
                plan.append({"kind": "Reduce", "step": step, "chunk": into})
        plans.append(plan)
    return plans


def drawn_plans(seed: int, world_size: int, num_chunks: int, steps: int) -> list[Plan]:
    """Return plans with messages drawn at random: several a step, none for some ranks, some reduced, some not.

    Within a step no chunk is both sent and received on a rank, nor received twice, and a pair of ranks exchanges one
    message in each direction at most; step numbers have gaps. The records of a step stand in any order.
    """
    draw = random.Random(seed)
    plans: list[Plan] = [[] for _ in range(world_size)]
    for turn in range(steps):
        step = 2 * turn + draw.randint(0, 1)
        sent: set[tuple[int, int]] = set()
        received: set[tuple[int, int]] = set()
        pairs = [(a, b) for a in range(world_size) for b in range(world_size) if a != b]
        draw.shuffle(pairs)
        arrivals: list[tuple[int, int, int]] = []
        for src, dst in pairs[: world_size + 1]:
            source = draw.randrange(num_chunks)
            target = source  # a plan's Send and Recv of one message name the same chunk
            if (src, source) in received or (dst, target) in sent | received:
                continue
            sent.add((src, source))
            received.add((dst, target))
            arrivals.append((src, dst, source))
        for src, dst, chunk in arrivals:
            plans[src].append({"kind": "Send", "step": step, "chunk": chunk, "peer": dst})
        for src, dst, chunk in arrivals:
            plans[dst].append({"kind": "Recv", "step": step, "chunk": chunk, "peer": src})
            if draw.random() < 0.5:
                plans[dst].append({"kind": "Reduce", "step": step, "chunk": chunk})
    return [_in_any_order(plan, random.Random(f"{seed} order {rank}")) for rank, plan in enumerate(plans)]


def _in_any_order(plan: Plan, draw: random.Random) -> Plan:
    """Return a plan with the records of each step in an order drawn at random."""
    steps: dict[Value, Plan] = {}
    for record in plan:
        steps.setdefault(record["step"], []).append(record)
    return [record for records in steps.values() for record in draw.sample(records, len(records))]


def reduces_behind(case: Case, *, directly: bool) -> Case:
    """Return the case without the Reduces that stand before the Recv of their chunk (a mistake).

    Args:
        case: Its plans.
        directly: Keep only those that stand right behind it.
    """

    def kept(plan: list[dict[str, Any]], place: int) -> bool:
        wanted = {**plan[place], "kind": "Recv"}
        before = plan[max(place - 1, 0) : place] if directly else plan[:place]
        return plan[place]["kind"] != "Reduce" or any(
            {name: value for name, value in each.items() if name != "peer"} == wanted for each in before
        )

    inputs = []
    for rank, given in enumerate(case.inputs):
        plan = plan_of(case, rank)
        inputs.append({**given, "plan": [plan[place] for place in range(len(plan)) if kept(plan, place)]})
    return replace(case, inputs=tuple(inputs))


def sizes_of(case: Case) -> list[int]:
    """Return the elements of each chunk."""
    return values.integers(case.inputs[0], "sizes")


def plan_of(case: Case, rank: int) -> list[dict[str, Any]]:
    """Return a rank's plan."""
    return values.records(case.inputs[rank], "plan")


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel: every chunk that a plan sends to another rank."""
    members, sizes = members_of(case), sizes_of(case)
    item = min(MOST_PACKED, values.tensor(case.inputs[0], "tensor").element_size())
    out, into = dict.fromkeys(members, 0), dict.fromkeys(members, 0)
    for step in execute([plan_of(case, rank) for rank in members], len(sizes)).steps:
        for each in step.transfers:
            if each.into >= 0 and each.src != each.dst:
                out[members[each.src]] += item * sizes[each.chunk]
                into[members[each.dst]] += item * sizes[each.chunk]
    return {rank: Bytes(out[rank], into[rank]) for rank in members}


def simulate(
    case: Case,
    *,
    reduce: bool | None = None,
    anywhere: bool = False,
    late_sends: bool = False,
    late_reduces: bool = False,
    combine: Callable[..., Tensor] | None = None,
    shared: int = 0,
    together: bool = False,
    with_others: bool = False,
    like_a_ring: bool = False,
) -> list[Tensor]:
    """Return each rank's tensor after all plans ran, in one process.

    Args:
        case: Chunks and plans.
        reduce: Whether all that arrives is added, or nothing; None: what the plan reduces.
        anywhere: Add what arrives for a chunk that the rank's plan reduces in any step (a mistake).
        late_sends: Send what the step's own receives have already changed (a mistake).
        late_reduces: Do all Reduces after the last step (a mistake).
        combine: What a Reduce does instead of what the case asks for.
        shared: Whether all that a rank adds in a step landed in one buffer (a mistake), in the order of its plan (1) or
            against it (-1); 2 and -2: all that it receives.
        together: Post the messages of all steps before any wait: what is sent is what was there at first (a mistake).
        with_others: Add all that arrives in a step in which the rank has any Reduce (a mistake).
        like_a_ring: Reduce in the first steps alone, one fewer than ranks, as in a ring (a mistake).
    """
    members, sizes = members_of(case), sizes_of(case)
    results = [values.tensor(given, "tensor").clone() for given in case.inputs]
    chunks = [torch.split(results[rank], sizes) for rank in members]
    combined = combine or getattr(torch, str(case.inputs[0].get("combine", "add")))
    plans = [plan_of(case, rank) for rank in members]
    steps = execute(plans, len(sizes)).steps
    added = {(each.dst, each.into) for step in steps for each in step.transfers if each.reduced and anywhere}
    kept: list[tuple[Tensor, Tensor]] = []
    first = [[chunk.clone() for chunk in row] for row in chunks]
    for step in steps:
        before = first if together else [[chunk.clone() for chunk in row] for row in chunks]
        reducing = {each.dst for each in step.transfers if each.reduced and with_others}
        landed = _in_one_buffer(step, plans, before, shared) if shared else {}
        for each in sorted(step.transfers, key=lambda transfer: transfer.dst):
            if each.into < 0:  # nobody receives it
                continue
            sent, target = (chunks if late_sends else before)[each.src][each.chunk], chunks[each.dst][each.into]
            if shared and (each.reduced or abs(shared) == 2):
                sent = landed[each.dst][: len(target)]
            adds = each.reduced or (each.dst, each.into) in added or each.dst in reducing
            adds = (adds and not (like_a_ring and step.number >= len(members) - 1)) if reduce is None else reduce
            if adds and (late_reduces or together):
                kept.append((target, sent.clone()))
                continue
            target.copy_(combined(target, sent) if adds else sent)
    for target, sent in kept:
        target.copy_(combined(target, sent))
    return results


def simulate_again_and_again(case: Case) -> list[Tensor]:
    """Return each rank's tensor where a step also deals with what arrived in the steps before it (a mistake)."""
    sizes, members = sizes_of(case), members_of(case)
    results = [values.tensor(given, "tensor").clone() for given in case.inputs]
    chunks = [torch.split(results[rank], sizes) for rank in members]
    combined = getattr(torch, str(case.inputs[0].get("combine", "add")))
    plans = [plan_of(case, rank) for rank in members]
    arrived: list[dict[int, Tensor]] = [{} for _ in members]
    for step in execute(plans, len(sizes)).steps:
        came = [each for each in step.transfers if each.into >= 0]
        sent = [chunks[each.src][each.chunk].clone() for each in came]
        for each, tensor in zip(came, sent, strict=True):
            arrived[each.dst][each.into] = tensor
        reduced = {(each.dst, each.into) for each in came if each.reduced}
        for rank, plan in enumerate(plans):
            if any(record["step"] == step.number for record in plan):
                for chunk, tensor in arrived[rank].items():
                    target = chunks[rank][chunk]
                    target.copy_(combined(target, tensor) if (rank, chunk) in reduced else tensor)
    return results


def _in_one_buffer(step: Step, plans: Sequence[Plan], sent: list[list[Tensor]], shared: int) -> dict[int, Tensor]:
    """Return what each rank's buffer holds after a step whose messages all landed in it (see simulate)."""
    arrivals = {(each.dst, each.into): each for each in step.transfers}
    landed: dict[int, Tensor] = {}
    for rank, plan in enumerate(plans):
        chunks = [each["chunk"] for each in plan if (each["kind"], each["step"]) == ("Recv", step.number)]
        for chunk in chunks[:: 1 if shared > 0 else -1]:
            each = arrivals[rank, cast(int, chunk)]
            if each.reduced or abs(shared) == 2:
                zone = landed.setdefault(rank, sent[0][0].new_zeros(max(map(len, sent[0]))))
                zone[: len(sent[each.src][each.chunk])] = sent[each.src][each.chunk]
    return landed


def executed(case: Case) -> list[Values]:
    """Return what each rank's tensor must be (the oracle)."""
    return [{"base": tensor} for tensor in simulate(case)]
