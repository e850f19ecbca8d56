"""Mistakes learners make in a training step of a pipeline, by name, with the hint that says so."""

from __future__ import annotations

from labkit.checks.case import Case, Failure, Got
from labkit.checks.hanging import waits_in
from labkit.checks.judged import Mistake
from labkit.checks.wire import Wire
from labkit.errors import NoSuchRank
from labkit.exercises.stages.pipeline_cases import members, num_stages, sizes_of, stage_of
from labkit.exercises.stages.training import (
    grads_of,
    planned_messages,
    results_as_if,
    schedule_of,
    wrong_buffer,
    wrong_results,
)


def _forward_only(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and not any(grads_of(case, got, rank) for rank in members(case))


def _last_stage_only(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or num_stages(case) == 1:
        return False
    last = num_stages(case) - 1
    have = {rank: bool(grads_of(case, got, rank)) for rank in members(case)}
    return all(have[rank] == (stage_of(case, rank) == last) for rank in have)


def _no_leaf(case: Case, got: Got, wire: Wire) -> bool:
    if isinstance(got, Failure):
        return got.kind == "exception" and "NoneType" in got.message and ".grad" in got.detail
    return (
        any(
            stage_of(case, rank) > 0 and not any(wanted if isinstance(wanted, list) else [])
            for rank in members(case)
            for wanted in [got[rank].get("wanted_gradient")]
        )
        and wrong_results(case, got) is not None
    )


def _no_graph(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and "does not require grad" in got.message


def _waits(case: Case, got: Got, operation: str) -> bool:
    """Return whether a run hung with every member that waits in this kind of call ("send" or "recv")."""
    if not isinstance(got, Failure) or not got.waits:  # the grader says in words who waits for what
        said = f"{got.message} {got.detail}" if isinstance(got, Failure) and got.kind == "deadlock" else ""
        if " to receive " in said or " to send " in said:
            return (" to receive " in said) == (operation == "send") and (" to send " in said) == (operation == "recv")
        return isinstance(got, Failure) and waits_in(got, operation)
    waits = [wait for wait in got.waits if wait.rank in members(case)]
    return got.kind in ("deadlock", "timeout") and bool(waits) and all(operation in wait.operation for wait in waits)


def _too_few_messages(case: Case, got: Got, wire: Wire) -> bool:
    counts = [(len(planned_messages(case, rank)), sum(m.src == rank for m in wire.messages)) for rank in members(case)]
    return isinstance(got, tuple) and any(sent < wanted for wanted, sent in counts)


def _to_a_rank_that_is_not_there(case: Case, got: Got, wire: Wire) -> bool:
    if isinstance(got, Failure) and (
        got.error == NoSuchRank.__name__ or any(words in got.message.lower() for words in _NO_SUCH_PEER)
    ):
        return True
    known = set(members(case))
    return any(not {message.src, message.dst} <= known for message in wire.messages) or any(
        wait.peer is not None and wait.peer not in known
        for wait in (got.waits if isinstance(got, Failure) else ())
        if wait.rank in known
    )


_OTHER_SIZE = ("disagree about the size", "which asked for")
_NO_SUCH_PEER = (
    "invalid rank",
    "not in the group",
    "not part of group",
    "nobody expected",
    "to or from itself",
    "with peer",
)


def _is_even(case: Case) -> bool:
    return all(len(set(sizes_of(case, rank))) == 1 for rank in members(case))


def _last_of(case: Case) -> int:
    work = [record for record in schedule_of(case, members(case)[0]) if record["kind"] == "Backward"]
    number = work[-1]["microbatch"]
    assert isinstance(number, int)
    return number


FORWARD_ONLY = Mistake(
    "forward only",
    "No stage has a gradient: run backward too, from the loss on the last stage down to the first.",
    _forward_only,
)
NO_LEAF = Mistake(
    "no gradient for what entered",
    "What a stage received is a plain tensor: make it a leaf with requires_grad_() before the module sees it. After "
    "backward its .grad is what the stage before waits for.",
    _no_leaf,
    certain=True,
)
DETACHED = Mistake(
    "the graph was cut",
    "Backward met a tensor without a graph. Detach only what is sent; keep the module's own output for backward, and "
    "run the module outside of torch.no_grad().",
    _no_graph,
    certain=True,
)
LAST_ONLY = Mistake(
    "only the last stage has gradients",
    "Only the last stage has gradients: the gradient of what entered it must be sent back, and every stage goes on "
    "from there with torch.autograd.backward(left, gradient).",
    _last_stage_only,
)
NOT_SCALED = Mistake(
    "loss not scaled",
    "The gradients are the sum over the microbatches' means: multiply each microbatch's loss by its share of the "
    "samples, sizes[microbatch] / sum(sizes).",
    results_as_if(lambda number, sizes, everybody: 1.0),
)
MEAN_OF_MEANS = Mistake(
    "mean of means",
    "Each microbatch counts 1/M. They have different sizes: weigh each by sizes[microbatch] / sum(sizes).",
    lambda case, got, wire: (
        not _is_even(case) and results_as_if(lambda number, sizes, everybody: 1 / len(sizes))(case, got, wire)
    ),
)
SUM_OF_SAMPLES = Mistake(
    "sum over the samples",
    "Each microbatch is weighed by its number of samples; divide by the samples of the whole batch too.",
    results_as_if(lambda number, sizes, everybody: float(sizes[number])),
)
FORGOT_OLD = Mistake(
    "gradients that were there are lost",
    "Gradients that were there before are gone: backward adds to .grad by itself; do not set it to zero or None.",
    lambda case, got, wire: "before" in case.inputs[members(case)[0]] and results_as_if(before=False)(case, got, wire),
)
OVERWRITTEN = Mistake(
    "overwritten instead of accumulated",
    "Only the last microbatch's gradient is there: add up over the microbatches, as backward does by itself.",
    lambda case, got, wire: any(
        results_as_if(
            lambda number, sizes, everybody, weight=weight: (  # type: ignore[misc]
                (sizes[number] / everybody if weight is None else weight) if number == _last_of(case) else 0.0
            ),
            before=before,
        )(case, got, wire)
        for weight in (None, 1.0)
        for before in (True, False)
    ),
)
FIRST_AGAIN = Mistake(
    "the same microbatch again",
    "Every microbatch that reaches the last stage has the inputs of microbatch 0: use record.microbatch, not 0.",
    results_as_if(pair=lambda number, count: 0),
)
PIPELINE_SHARE = Mistake(
    "scaled by the number of stages",
    "The gradients are divided by the number of stages: stages do not share samples; only microbatches do.",
    lambda case, got, wire: (
        num_stages(case) > 1
        and results_as_if(lambda number, sizes, everybody: sizes[number] / everybody / num_stages(case))(
            case, got, wire
        )
    ),
)
SENDS_WAIT = Mistake(
    "blocking sends face each other",
    "All ranks that wait stand in a send, and nobody is left who receives. dist.isend returns at once: go on, and wait "
    "for it when there is nothing else to do.",
    lambda case, got, wire: _waits(case, got, "send"),
)
NOBODY_SENDS = Mistake(
    "waits for a message that nobody sends",
    "All ranks that wait stand in a receive, and nobody is left who sends: compare what each stage sends with what the "
    "others' schedules receive, and in which order. And wait() for what irecv and isend returned: a send that nobody "
    "waits for may never leave.",
    lambda case, got, wire: _waits(case, got, "recv"),
)
MESSAGES_MISSING = Mistake(
    "messages left out",
    "Some messages of the schedule were never sent: each Send and each SendGrad is one message.",
    _too_few_messages,
)
GLOBAL_RANKS = Mistake(
    "peers taken as ranks of the world",
    "A peer counts within the group: hand group=group and group_src or group_dst to the call. A plain src or dst is "
    "a rank of the whole world.",
    lambda case, got, wire: (
        members(case) != list(range(len(members(case)))) and _to_a_rank_that_is_not_there(case, got, wire)
    ),
)
FLOAT32 = Mistake(
    "counted in float32",
    "The gradients are right to six digits: somewhere on the way a number was a float32 tensor. Weigh with Python's "
    "own numbers (item(), or sizes as they are), or with tensors of the gradients' dtype.",
    lambda case, got, wire: isinstance(got, tuple) and wrong_results(case, got, slack=1e-6) is None,
)
NOT_CONTIGUOUS = Mistake(
    "not contiguous",
    "A tensor that is sent must be contiguous: left.detach().contiguous(). A stage's output may be a view.",
    lambda case, got, wire: isinstance(got, Failure) and "contiguous" in got.message and "NoneType" not in got.message,
    certain=True,
)
STILL_ATTACHED = Mistake(
    "the loss drags its graph along",
    "Return loss.detach(): a loss that still knows where it came from keeps every activation alive.",
    lambda case, got, wire: any(values.get("attached") for values in got) if isinstance(got, tuple) else False,
)
FORWARD_AGAIN = Mistake(
    "forward more than once",
    "Gradients are right, and yet the module did not run just once for each microbatch, or a copy of it ran: BatchNorm "
    "would count every call. sizes, sample and the output itself tell every shape that you need.",
    lambda case, got, wire: (
        isinstance(got, tuple) and wrong_results(case, got) is None and wrong_buffer(case, got) is not None
    ),
)
NO_TENSOR = Mistake(
    "the loss is a number",
    "Return the loss as a tensor, detached. item() and float() stop the process until the number is there.",
    lambda case, got, wire: isinstance(got, tuple) and any(each.get("returned") in ("float", "int") for each in got),
)
ROOM = Mistake(
    "room of another size",
    "Room was made for a message of another size. What enters is like `sample`, dtype included, once for each sample "
    "of the microbatch; a gradient is like the output that left.",
    lambda case, got, wire: isinstance(got, Failure) and any(words in got.message for words in _OTHER_SIZE),
)
LIBRARY = Mistake(
    "calls a collective",
    "A collective of torch.distributed was called: a pipeline needs point-to-point messages only, and a barrier makes "
    "all stages wait for each other.",
    lambda case, got, wire: bool(wire.collectives),
)


def beyond_the_ends(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether somebody sent to, or waits for, a rank before the first or behind the last stage."""
    return _to_a_rank_that_is_not_there(case, got, wire)
