"""What a rank of sharded_module may hold at which moment, and what must be under way then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from labkit.checks.case import Case, Values
from labkit.checks.cut_wire import waited_at_once
from labkit.checks.finding import Finding
from labkit.checks.values import integer, integers, listed, texts
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.sharded_training.on_ranks import model_for
from labkit.exercises.sharded_training.travels import gathers, not_the_drivers, parts_of, scatters
from labkit.words import join, plural

NEVER_FREED, ALL_AT_ONCE, NOT_AFTER_BACKWARD, FULL_STAYS, GRAPH_HOLDS = (
    "not freed after forward", "all gathered at once", "not freed after backward", "full parameters stay",
    "autograd holds it",
)  # fmt: skip
NO_PREFETCH, NO_PREFETCH_BACK, ALL_REDUCED, EACH, LATE, BLOCKS = (
    "no prefetch", "no prefetch in backward", "all-reduced", "a collective for each parameter", "all at the end",
    "waits in backward",
)  # fmt: skip
AHEAD, LEAVES = "gathered too far ahead", "leaves for children"


def on_ranks(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is whole when it should not be, and what travels at another time than it should."""
    leaves = _leaves_for_children(case, got)
    for rank, values in enumerate(got):
        for found in (*_shares(case, rank, values), *_memory(case, rank, values), *_wire(case, wire, rank)):
            yield replace(found, mistake=LEAVES) if leaves else found


def _leaves_for_children(case: Case, got: tuple[Values, ...]) -> bool:
    """Return whether of blocks that are the model's children, those made of others alone are not whole in forward."""
    if not case.inputs[0]["children"]:
        return False
    model = model_for(case.inputs[0])
    nested = {at for at, name in enumerate(texts(case.inputs[0], "blocks")) if list(getattr(model, name).children())}
    looks = [look for values in got for look in listed(values, "seen") if look[0] == "forward"]
    return bool(nested) and all((block in nested) != are_whole[block] for _, block, are_whole in looks)


def _shares(case: Case, rank: int, values: Values) -> Iterator[Finding]:
    sizes = [each.numel() for each in model_for(case.inputs[0]).parameters()]
    share = sum(-(-each // case.world_size) for each in sizes)
    most = max(integers(values, "shards"), default=0)
    if most > share or integer(values, "kept") > 2 * share:
        text = f"Outside forward and backward rank {rank}'s parameters have {most} elements of {sum(sizes)}."
        yield Finding("", text, f"at most {share}", str(most), rank)


def _memory(case: Case, rank: int, values: Values) -> Iterator[Finding]:
    names = texts(case.inputs[0], "blocks")
    last = len(names) - 1
    for when, block, are_whole in listed(values, "seen"):
        whole = [each for each, is_whole in enumerate(are_whole) if is_whole]
        others = [each for each in whole if each not in (block, block + 1, block - 1)]
        shown = join([names[each] for each in others])
        if when == "forward" and [each for each in whole if each < block]:
            shown = join([names[each] for each in whole if each < block])
            text = f"While {names[block]} computes in forward, rank {rank} still holds all of {shown}."
            yield Finding(NEVER_FREED, text, rank=rank)
        if when in ("forward", "backward") and others:
            name = ALL_AT_ONCE if when == "forward" else NOT_AFTER_BACKWARD
            text = f"While {names[block]} computes in {when}, rank {rank} holds all of {shown}."
            yield Finding(name, text, rank=rank)
        if when == "between" and [each for each in whole if each != last]:
            shown = join([names[each] for each in whole if each != last])
            yield Finding(NEVER_FREED, f"Between forward and backward rank {rank} holds all of {shown}.", rank=rank)
        if when in ("finish", "gathered") and whole:
            after = "finish_gradient_synchronization" if when == "finish" else "gather_full_params"
            shown = join([names[each] for each in whole])
            name = NOT_AFTER_BACKWARD if when == "finish" else FULL_STAYS
            yield Finding(name, f"After {after} rank {rank} holds all of {shown}.", rank=rank)
    model = model_for(case.inputs[0])
    in_root = {id(p) for name in names for p in getattr(model, name).parameters()}
    matrices = [p for p in model.parameters() if p.dim() == 2 and id(p) not in in_root]
    tied = model.remix.weight is model.mix.weight
    kept = 1 + len(matrices) + (1 if tied else 0)  # the last block's, and the root's
    saved = max(integers(values, "saved"), default=0)
    if saved > kept:
        text = f"Between forward and backward autograd holds {saved} whole weights on rank {rank}, though the "
        text += "parameters look free."
        yield Finding(GRAPH_HOLDS, text, f"at most {kept}", str(saved), rank)


def _wire(case: Case, wire: Wire, rank: int) -> Iterator[Finding]:
    names = texts(case.inputs[0], "blocks")
    count, num_steps = len(names), len(listed(case.inputs[0], "steps"))
    marks = [*[True] * count, False, *[True] * count, False, False, False]  # forward, between, backward, what is after
    in_a_step = len(marks)
    if found := not_the_drivers(case, wire, rank, marks * num_steps):
        yield found
        return
    parts = parts_of(wire, rank)
    model = model_for(case.inputs[0])
    uses = [set(getattr(model, name).parameters()) for name in names]
    trains = [any(p.requires_grad and sum(p in each for each in uses) == 1 for p in own) for own in uses]
    for step in range(num_steps):
        mine = parts[step * in_a_step : (step + 1) * in_a_step]
        yield from _of_step(case, rank, step, mine, trains)
        every = [call for part in mine[:-1] for call in part]
        if any(call.kind == "all_reduce" for call in every):
            yield Finding(ALL_REDUCED, f"In step {step} rank {rank} calls all_reduce.", rank=rank)
        if len(gathers(every)) > 2 * count + 2 or len(scatters(every)) > count + 1:
            often = f"{plural(len(gathers(every)), 'gather')} and {plural(len(scatters(every)), 'scatter')}"
            text = f"In step {step} rank {rank} calls {often} for {plural(count, 'block')}."
            yield Finding(EACH, text, rank=rank)


def _of_step(
    case: Case, rank: int, step: int, parts: list[list[CollectiveCall]], trains: list[bool]
) -> Iterator[Finding]:
    """Yield what is not under way when it should be. Parts: forward of each block, between, backward of each, rest."""
    names = texts(case.inputs[0], "blocks")
    last = len(names) - 1
    model = model_for(case.inputs[0])
    uses = [set(getattr(model, name).parameters()) for name in names]
    has = [any(sum(p in each for each in uses) == 1 for p in own) for own in uses]
    root = any(sum(p in each for each in uses) != 1 for p in model.parameters())
    for block in range(last):
        begun = len(gathers([call for part in parts[: block + 1] for call in part]))
        if begun < sum(has[: block + 2]) + root:
            text = f"In step {step}, when {names[block]} computes on rank {rank}, {names[block + 1]} is not under way."
            yield Finding(NO_PREFETCH, text, rank=rank)
        if begun > sum(has[: block + 2]) + root:
            when = f"In step {step}, when {names[block]} computes on rank {rank}"
            text = f"{when}, more than {names[block + 1]} is under way."
            yield Finding(AHEAD, text, rank=rank)
    back = parts[last + 2 :]
    early = last + 1  # parts before backward
    for place, block in enumerate(range(last, 0, -1)):
        calls = [call for part in [*parts[early : early + 1], *back[: place + 1]] for call in part]
        when = f"In step {step}, when backward is at {names[block]} on rank {rank}"
        if len(gathers(calls)) < sum(has[block - 1 : last]):
            text = f"{when}, {names[block - 1]} is not under way."
            yield Finding(NO_PREFETCH_BACK, text, rank=rank)
        if len(scatters(calls)) < sum(trains[block + 1 :]):
            text = f"{when}, gradients of the blocks behind it have not left."
            yield Finding(LATE, text, rank=rank)
    inside = scatters([call for part in back[: last + 2] for call in part])
    at_once = [call for call in inside if waited_at_once(call)]
    if len(inside) > 2 and len(at_once) > len(inside) / 2:  # the last before the root may be one: the root's hook waits
        text = f"In step {step} rank {rank} waits for {len(at_once)} of {len(inside)} reduce-scatters as they begin."
        yield Finding(BLOCKS, text, rank=rank)
