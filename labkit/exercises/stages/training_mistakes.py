"""Mistakes learners make in a training step of a pipeline: names, hints, and the signs a failure bears of them."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.checks.blame import Sign
from labkit.checks.case import Case, Failure
from labkit.checks.failures import sizes_differ
from labkit.checks.hanging import hangs, waits_in
from labkit.checks.wire import Wire
from labkit.errors import NoSuchRank
from labkit.exercises.stages.pipeline_cases import members

LIBRARY, NO_LEAF, DETACHED = "calls a collective", "no gradient for what entered", "the graph was cut"
FORWARD_ONLY, LAST_ONLY = "forward only", "only the last stage has gradients"
NOT_SCALED, MEAN_OF_MEANS, SUM_OF_SAMPLES = "loss not scaled", "mean of means", "sum over the samples"
SCALED_AGAIN, PIPELINE_SHARE = "scaled twice or in another place", "scaled by the number of stages"
FORGOT_OLD, OVERWRITTEN = "earlier gradients are lost", "overwritten instead of accumulated"
FIRST_AGAIN, NOT_FOLLOWED = "the same microbatch again", "the schedule is not followed"
KEPT, NOT_CONTIGUOUS = "keeps what it no longer needs", "not contiguous"
GLOBAL_RANKS, SENDS_WAIT = "peers taken as ranks of the world", "blocking sends face each other"
NOBODY_SENDS, MESSAGES_MISSING = "waits for a message that nobody sends", "messages left out"
ROOM, FLOAT32, NO_TENSOR = "room of another size", "counted in float32", "the loss is a number"
NOT_WAITED, FORWARD_AGAIN = "not waited for", "forward more than once"
STILL_ATTACHED = "the loss keeps its graph"

_HINTS = {
    LIBRARY: "A collective of torch.distributed was called: a pipeline needs point-to-point messages only, and a "
    "barrier makes all stages wait for each other.",
    NO_LEAF: "What a stage received is a plain tensor: make it a leaf with requires_grad_() before the module sees it. "
    "After backward its .grad is what the stage before waits for.",
    DETACHED: "Backward met a tensor without a graph. Detach only what is sent; keep the module's own output for "
    "backward, and run the module outside of torch.no_grad().",
    FORWARD_ONLY: "No stage has a gradient: run backward too, from the loss on the last stage down to the first.",
    LAST_ONLY: "Only the last stage has gradients: the gradient of what entered it must be sent back, and every stage "
    "goes on from there with torch.autograd.backward(left, gradient).",
    NOT_SCALED: "The gradients are the sum over the microbatches' means: multiply each microbatch's loss by its share "
    "of the samples, sizes[microbatch] / sum(sizes).",
    MEAN_OF_MEANS: "Each microbatch counts 1/M. They have different sizes: weigh each by sizes[microbatch] / "
    "sum(sizes).",
    SUM_OF_SAMPLES: "Each microbatch is weighed by its number of samples; divide by the samples of the whole batch "
    "too.",
    SCALED_AGAIN: "All gradients are right up to a factor: scale the loss once, by sizes[m] / sum(sizes), and nothing "
    "else.",
    PIPELINE_SHARE: "The gradients are divided by the number of stages: stages do not share samples; only "
    "microbatches do.",
    FORGOT_OLD: "Earlier gradients are gone: backward adds to .grad by itself; do not set it to zero or None.",
    OVERWRITTEN: "Only the last microbatch's gradient is there: add up over the microbatches, as backward does by "
    "itself.",
    FIRST_AGAIN: "Every microbatch that reaches the last stage has the inputs of microbatch 0: use record.microbatch, "
    "not 0.",
    NOT_FOLLOWED: (
        "Forwards and backwards did not run in the schedule's order. That order keeps all stages busy and the memory "
        "small: go through the records one by one."
    ),
    KEPT: "Outputs are kept after their backward: take them out of their dictionary, left.pop(m), and send "
    "left[m].detach(), without the graph. Else 1F1B holds as much as GPipe.",
    NOT_CONTIGUOUS: "A tensor that is sent must be contiguous: left.detach().contiguous(). A stage's output may be a "
    "view.",
    GLOBAL_RANKS: (
        "Peers are numbered within the group: pass group=group and group_src or group_dst. A plain src or dst is a "
        "rank of the whole world."
    ),
    SENDS_WAIT: (
        "All waiting ranks are stuck in a send, and nobody is left to receive. dist.isend returns at once: go on, and "
        "wait for it when there is nothing else to do."
    ),
    NOBODY_SENDS: (
        "All waiting ranks are stuck in a receive, and nobody is left to send: compare what each stage sends with "
        "what the others' schedules receive, and in which order. And wait() for what irecv and isend returned: a send "
        "that nobody waits for may never leave."
    ),
    MESSAGES_MISSING: "Some messages of the schedule were never sent: each Send and each SendGrad is one message.",
    ROOM: "Room was made for a message of another size. What enters is like `sample`, dtype included, once for each "
    "sample of the microbatch; a gradient is like the output that left.",
    FLOAT32: "The gradients are right to six digits: somewhere on the way a number was a float32 tensor. Weigh with "
    "Python's own numbers (item(), or sizes as they are), or with tensors of the gradients' dtype.",
    NO_TENSOR: "Return the loss as a tensor, detached. item() and float() stop the process until the number is known.",
    NOT_WAITED: "A message was used, or the function ended, before it arrived: call wait() on what irecv returned "
    "before you use the tensor, and on what isend returned before you return.",
    FORWARD_AGAIN: "Gradients are right, and yet the module did not run just once for each microbatch, or a copy of it "
    "ran: BatchNorm would count every call. sizes, sample and the output itself tell every shape that you need.",
    STILL_ATTACHED: "Return loss.detach(): a loss that still knows where it came from keeps every activation alive.",
}


def hints(*names: str) -> dict[str, str]:
    """Return the hints of these mistakes, by name."""
    return {name: _HINTS[name] for name in names}


def waits(case: Case, failure: Failure, operation: str) -> bool:
    """Return whether a run hung with every member that waits in this kind of call ("send" or "recv")."""
    if not failure.waits:  # the grader says in words who waits for what
        said = f"{failure.message} {failure.detail}" if failure.kind == "deadlock" else ""
        if " to receive " in said or " to send " in said:
            return (" to receive " in said) == (operation == "send") and (" to send " in said) == (operation == "recv")
        return waits_in(failure, operation)
    found = [wait for wait in failure.waits if wait.rank in members(case)]
    return hangs(failure) and bool(found) and all(operation in wait.operation for wait in found)


def beyond_the_ends(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether somebody sent to, or waits for, a rank that holds no stage."""
    if failure.error == NoSuchRank.__name__ or any(words in failure.message.lower() for words in _NO_SUCH_PEER):
        return True
    known = set(members(case))
    return any(not {message.src, message.dst} <= known for message in wire.messages) or any(
        wait.peer is not None and wait.peer not in known for wait in failure.waits if wait.rank in known
    )


_NO_SUCH_PEER = (
    "invalid rank",
    "not in the group",
    "not part of group",
    "nobody expected",
    "to or from itself",
    "with peer",
)


IN_THE_CODE: Mapping[str, Sign] = {
    LIBRARY: lambda case, failure, wire: bool(wire.collectives),
    NO_LEAF: lambda case, failure, wire: (
        failure.kind == "exception" and "NoneType" in failure.message and ".grad" in failure.detail
    ),
    DETACHED: lambda case, failure, wire: "does not require grad" in failure.message,
    NOT_CONTIGUOUS: lambda case, failure, wire: "contiguous" in failure.message and "NoneType" not in failure.message,
}
ON_THE_WAY: Mapping[str, Sign] = {
    GLOBAL_RANKS: lambda case, failure, wire: (
        members(case) != list(range(len(members(case)))) and beyond_the_ends(case, failure, wire)
    ),
    SENDS_WAIT: lambda case, failure, wire: waits(case, failure, "send"),
    NOBODY_SENDS: lambda case, failure, wire: waits(case, failure, "recv"),
    ROOM: lambda case, failure, wire: sizes_differ(failure),
}
CERTAIN = frozenset({NO_LEAF, DETACHED, NOT_CONTIGUOUS})
"""Mistakes that a plain Python error bears the sign of."""
