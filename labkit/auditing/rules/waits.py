"""Whether a program waits for communication that it could have joined, put off or left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from labkit.auditing.catalogue import rule
from labkit.auditing.facts import Call
from labkit.auditing.finding import Change, Finding
from labkit.auditing.roles import data_parallel
from labkit.auditing.seen import Seen
from labkit.units import format_bytes, format_time

MANY_SMALL = rule(
    "many-small-messages",
    "gradients travel in a few large messages",
    seen="how many collectives carry a step's gradients, and how large each is",
    why="Each pays the latency of the network; what is in it hardly matters.",
    todo="Join the gradients in one buffer, or let DistributedDataParallel make buckets.",
    lesson="04",
)
AT_ONCE = rule(
    "waits-at-once",
    "what is issued asynchronously is waited for once there was something to do beside it",
    seen="how many operators a rank runs between a collective and its wait()",
    why="Nothing is hidden: the call is as dear as a blocking one.",
    todo="Issue all calls first, and wait when a result is needed.",
    lesson="04",
)
EACH_PASS = rule(
    "synchronised-each-microbatch",
    "gradients are averaged once for a step, not for each microbatch",
    seen="how many backward passes of a step average gradients in DistributedDataParallel",
    why="The sum of averages is the average of the sum: all but the last are sent for nothing.",
    todo="Run all microbatches but the last inside model.no_sync(), the forward pass too.",
    lesson="05",
    sources="speechbrain/speechbrain#1802, pytorch/PiPPy#1133",
)
READS = rule(
    "reads-each-step",
    "a step leaves its values on the device",
    seen="calls of .item() and the like on a device's tensors, in every step",
    why="The host waits until the device has done all it was given, and the device then waits for the host.",
    todo="Keep the value on the device, and read it every hundredth step.",
    lesson="11",
)
_SMALL = 1 << 20
_MANY = 4


def look(seen: Seen) -> Iterator[Finding]:
    """Yield what makes ranks wait."""
    steps = min(seen.num_steps.values(), default=0)
    if steps < 2:
        return
    step = 1  # the first one prepares
    calls = [call for call in seen.calls if call.rank == 0 and call.step == step and len(call.ranks) > 1]
    for finding in (_small(calls), _at_once(seen, calls), _passes(seen, calls, step), _reads(seen, steps)):
        if finding is not None:
            yield finding


def _small(calls: list[Call]) -> Finding | None:
    by_line: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.op and not call.in_backward and not call.before_backward and call.numel > 1 and call.bytes < _SMALL:
            by_line[call.source].append(call)
    for source, some in by_line.items():
        if len(some) < _MANY:
            continue
        num_bytes, took = sum(call.bytes for call in some), sum(call.ns for call in some)
        saves = max(0, took - max(call.ns for call in some))
        text = (
            f"Rank 0 reduces {len(some)} tensors one by one in a step, {format_bytes(num_bytes)} in all: that takes "
            f"{format_time(took)}, most of it latency."
        )
        todo = f"Join them in one buffer: up to {format_time(saves)} less a step."
        evidence = {"calls": len(some), "bytes": num_bytes, "takes_ns": took, "saves_at_most_ns": saves}
        change = Change("joined", "with one message for all, and a copy for each tensor", frozenset({source}))
        return Finding(MANY_SMALL, "slow", text, todo, 0, some[0].step, source, "", evidence, change)
    return None


def _at_once(seen: Seen, calls: list[Call]) -> Finding | None:
    waited = [
        call
        for call in calls
        if not call.row.blocking and call.numel > 1 and (call.hooked or not call.in_backward)
        and seen.done.get(id(call.row)) == call.operators
    ]  # fmt: skip
    issued = [call for call in calls if not call.row.blocking and (call.hooked or not call.in_backward)]
    if len(waited) < 2 or 2 * len(waited) <= len(issued):
        return None
    took = sum(call.ns for call in waited)
    text = (
        f"Rank 0 issues {len(waited)} asynchronous calls in step {waited[0].step} and runs no operator before it waits "
        f"for each: {format_time(took)} with nothing beside them."
    )
    todo = "Issue the next call, or compute, before wait()."
    evidence = {"calls": len(waited), "takes_ns": took}
    source = seen.waited_at.get(id(waited[0].row)) or waited[0].source
    change = Change("later", "with the waits before the step", frozenset(call.source for call in waited))
    return Finding(AT_ONCE, "slow", text, todo, 0, waited[0].step, source, "", evidence, change)


def _passes(seen: Seen, calls: list[Call], step: int) -> Finding | None:
    by_pass: dict[int, list[Call]] = defaultdict(list)
    groups = [set(ranks) for ranks in data_parallel(seen)]  # others reduce activations in their backward passes
    for call in calls:
        shared = any(set(call.ranks) <= group for group in groups)
        if call.in_backward and call.op and call.numel > 1 and not call.in_graph and shared:
            by_pass[call.passes].append(call)
    sizes = {sum(call.numel for call in some) for some in by_pass.values()}
    sources = {call.source for some in by_pass.values() for call in some}
    if len(by_pass) < 2 or len(sizes) > 1 or len(sources) > 1:
        return None
    last = max(by_pass)
    saves = sum(call.ns for number, some in by_pass.items() if number != last for call in some)
    text = (
        f"Rank 0 averages its gradients in each of {len(by_pass)} backward passes of step {step}: "
        f"{len(by_pass) - 1} of them are sent for nothing, {format_time(saves)} of communication."
    )
    todo = "Run all but the last microbatch, forward pass too, inside model.no_sync()."
    evidence = {"passes": len(by_pass), "saves_communication_ns": saves}
    forwards = [one.source for one in seen.inputs if one.rank == 0 and one.step == step]
    source = forwards[-1] if forwards else by_pass[last][0].source
    change = Change("free", "with the last microbatch's alone", frozenset(sources), but_pass=last)
    return Finding(EACH_PASS, "slow", text, todo, 0, step, source, "", evidence, change)


def _reads(seen: Seen, steps: int) -> Finding | None:
    by_line: dict[str, list[int]] = defaultdict(list)
    for read in seen.reads:
        if read.rank == 0 and read.step < steps:
            by_line[read.source].append(read.step)
    for source, some in by_line.items():
        if set(some) >= set(range(1, steps)) and steps > 2:
            text = f"Rank 0 reads {len(some) / len(set(some)):.3g} values from its device in every step."
            todo = "Read it once in a while; add up on the device in between."
            evidence = {"reads": len(some), "steps": len(set(some))}
            change = Change("reads", "without the host waiting there", frozenset({source}))
            return Finding(READS, "slow", text, todo, 0, some[0], source, "", evidence, change)
    return None
