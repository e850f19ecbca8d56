"""Mistakes that learners make in a training step of a pipeline, each with its hint and the signs a failure bears."""

from __future__ import annotations

import re

from labkit.checks.blame import Sign
from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake, Seen
from labkit.checks.failures import sizes_differ
from labkit.checks.hanging import hangs, waits_in, waits_on_the_finished
from labkit.checks.wire import Wire
from labkit.errors import NoSuchRank
from labkit.exercises.stages.pipeline_cases import members, sizes_of


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


def _failed(sign: Sign) -> Seen:
    """Return the mark that a run failed, and bears this sign."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        return isinstance(got, Failure) and sign(case, got, wire)

    return seen


def _nothing_entered(case: Case, failure: Failure, wire: Wire) -> bool:
    of_a_parameter = "unsupported operand" in failure.message  # a frozen or unused one has None for its gradient
    found = failure.kind == "exception" and "NoneType" in failure.message and ".grad" in failure.detail
    return found and not of_a_parameter


def _loss_without_targets(case: Case, failure: Failure, wire: Wire) -> bool:
    last = [rank for rank in members(case) if "targets" in case.inputs[rank]]
    line = failure.detail.rpartition("\n")[2]
    return failure.rank not in last and "loss_fn(" in line and failure.error in ("AttributeError", "TypeError")


def _other_room(case: Case, failure: Failure, wire: Wire) -> bool:
    return sizes_differ(failure) or "Mismatch in shape: grad_output" in failure.message


def _of_another_microbatch(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether the room and the message are as two microbatches' samples, of one of which it was made."""
    sizes = set(sizes_of(case, members(case)[0]))
    numbers = [int(each) for each in _SENT_AND_ROOM.findall(failure.message)]
    return (
        sizes_differ(failure)
        and len(numbers) == 2
        and any(numbers[0] * room == numbers[1] * sent for sent in sizes for room in sizes - {sent})
    )


_SENT_AND_ROOM = re.compile(r"(?:sent|asked for|receives into) (\d+) (?:B|x)\b")


def _never_left(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a rank waits for one that has finished, where a send was not waited for, or both ends of a message
    wait for each other, where a receive was not.
    """
    alone = [problem.text for problem in wire.problems_of("not_waited")]
    if any("isend" in text for text in alone) and waits(case, failure, "recv"):
        return waits_on_the_finished(case, failure)
    receives = {(wait.peer, wait.rank) for wait in failure.waits if "recv" in wait.operation}
    facing = any((wait.rank, wait.peer) in receives for wait in failure.waits if "send" in wait.operation)
    return hangs(failure) and facing and any("irecv" in text for text in alone)


def _not_contiguous(case: Case, failure: Failure, wire: Wire) -> bool:
    return "contiguous" in failure.message and "NoneType" not in failure.message


def _beyond_the_group(case: Case, failure: Failure, wire: Wire) -> bool:
    return members(case) != list(range(len(members(case)))) and beyond_the_ends(case, failure, wire)


LIBRARY = Mistake(
    "calls a collective",
    "A collective of torch.distributed was called: a pipeline needs point-to-point messages only, and a barrier makes "
    "all stages wait for each other.",
    seen=_failed(lambda case, failure, wire: bool(wire.collectives)),
)
ECHO = Mistake(
    "what entered was sent back",
    "Each stage was sent back what it had sent itself. Send the gradient of what entered, entered.grad, not what "
    "entered or its data.",
)
SENDS_BACK = Mistake(
    "the first stage sends back",
    "Stage 0 has no stage before it: nothing entered it but its inputs, and there is nobody to send a gradient to.",
    seen=_failed(lambda case, failure, wire: failure.rank == 0 and _nothing_entered(case, failure, wire)),
    certain=True,
)
NO_LEAF = Mistake(
    "no gradient for what entered",
    "What entered has no .grad. What a stage received is a plain tensor: make it a leaf with requires_grad_(), and "
    "hand the module this very tensor, no copy of it. After backward its .grad is what the stage before waits for.",
    seen=_failed(_nothing_entered),
    certain=True,
)
LEFT_UNDONE = Mistake(
    "work left undone",
    "A stage ended before it had run its module on each microbatch: go through all of its work, to the last record.",
)
DETACHED = Mistake(
    "the graph was cut",
    "Backward met a tensor without a graph. Detach only what is sent; keep the module's own output for backward, and "
    "run the module outside of torch.no_grad().",
    seen=_failed(lambda case, failure, wire: "does not require grad" in failure.message),
    certain=True,
)
FORWARD_ONLY = Mistake(
    "forward only",
    "No stage has a gradient: run backward too, from the loss on the last stage down to the first.",
)
LAST_ONLY = Mistake(
    "only the last stage has gradients",
    "Only the last stage has gradients: the gradient of what entered it must be sent back, and every stage goes on "
    "from there with torch.autograd.backward(left, gradient).",
)
NOT_SCALED = Mistake(
    "loss not scaled",
    "The gradients are the sum over the microbatches' means: multiply each microbatch's loss by its share of the "
    "samples, sizes[microbatch] / sum(sizes).",
)
MEAN_OF_MEANS = Mistake(
    "mean of means",
    "Each microbatch counts 1/M. They have different sizes: weigh each by sizes[microbatch] / sum(sizes).",
)
SUM_OF_SAMPLES = Mistake(
    "sum over the samples",
    "Each microbatch is weighed by its number of samples; divide by the samples of the whole batch too.",
)
SCALED_AGAIN = Mistake(
    "scaled twice or in another place",
    "All gradients are right up to a factor: scale the loss once, by sizes[m] / sum(sizes), and nothing else.",
)
PIPELINE_SHARE = Mistake(
    "scaled by the number of stages",
    "The gradients are divided by the number of stages: stages do not share samples; only microbatches do.",
)
FORGOT_OLD = Mistake(
    "earlier gradients are lost",
    "Earlier gradients are gone: backward adds to .grad by itself; do not set it to zero or None.",
)
OVERWRITTEN = Mistake(
    "overwritten instead of accumulated",
    "Only the last microbatch's gradient is there: add up over the microbatches, as backward does by itself.",
)
FIRST_AGAIN = Mistake(
    "the same microbatch again",
    "Every microbatch that reaches the last stage has the inputs of microbatch 0: use record.microbatch, not 0.",
)
NOT_FOLLOWED = Mistake(
    "the schedule is not followed",
    "Forwards and backwards did not run in the schedule's order. That order keeps all stages busy and the memory "
    "small: go through the records one by one.",
)
NO_GRADIENT = Mistake(
    "backward without a gradient",
    "Only one number begins a backward by itself: the loss, on the last stage. On every other stage an output needs "
    "the gradient that came for it: torch.autograd.backward(left, gradient).",
    says=("grad can be implicitly created",),
)
KEPT = Mistake(
    "keeps what it no longer needs",
    "Outputs or their graphs are kept after backward: take them out of their dictionary, left.pop(m), send "
    "left[m].detach(), and add up losses detached. Else 1F1B holds as much as GPipe.",
)
NOT_CONTIGUOUS = Mistake(
    "not contiguous",
    "What is sent, and what is received into, must be contiguous: left.detach().contiguous(), and "
    "torch.empty_like(left, memory_format=torch.contiguous_format). A stage's output may be a view.",
    seen=_failed(_not_contiguous),
    certain=True,
)
GLOBAL_RANKS = Mistake(
    "peers taken as ranks of the world",
    "Peers are numbered within the group: pass group=group and group_src or group_dst. A plain src or dst is a rank "
    "of the whole world.",
    seen=_failed(_beyond_the_group),
)
SENDS_WAIT = Mistake(
    "blocking sends face each other",
    "All waiting ranks are stuck in a send, and nobody is left to receive. dist.isend returns at once: go on, and "
    "wait for it when there is nothing else to do.",
    seen=_failed(lambda case, failure, wire: waits(case, failure, "send")),
)
NOBODY_SENDS = Mistake(
    "waits for a message that nobody sends",
    "All waiting ranks are stuck in a receive: compare what each stage sends with what the others' schedules receive, "
    "and in which order. Wait for a receive when the work that needs it begins, not where its record stands. And wait "
    "for what isend returned: a send that nobody waits for may never leave.",
    seen=_failed(lambda case, failure, wire: waits(case, failure, "recv")),
)
ROOM = Mistake(
    "room of another size",
    "A message and the room made for it differ. What enters is like `sample`, dtype included, once for each sample of "
    "the microbatch; a gradient is received like the output that left, and what goes back is the gradient of what "
    "entered.",
    seen=_failed(_other_room),
)
ROOM_OF_ANOTHER = Mistake(
    "room of another microbatch",
    "A message has the samples of one microbatch, and the room for it those of another. Each record says which one it "
    "is about: take inputs[record.microbatch], make room for sizes[record.microbatch] samples, not for sizes[0], and "
    "count neither forwards nor messages.",
    seen=_failed(_of_another_microbatch),
)
ONE_ROOM = Mistake(
    "one room for several microbatches",
    "A microbatch entered the module in the memory of another one that had not gone backward: what that one's backward "
    "needs is overwritten. Make new room for each receive.",
)
NO_TARGETS = Mistake(
    "a loss where no targets are",
    "loss_fn was called on a stage that has no targets. Every stage is given loss_fn; the last stage is the one that "
    "has targets.",
    seen=_failed(_loss_without_targets),
    certain=True,
)
NO_GRADS = Mistake(
    "gradients not added to .grad",
    "Backward went through a stage's module, and its parameters have no .grad. torch.autograd.grad returns gradients "
    "and leaves .grad alone; torch.autograd.backward(left, gradient) adds to it, and to that of what entered.",
)
NOT_CONNECTED = Mistake(
    "backward does not reach the module",
    "Backward did not come to a stage's module: what it began with is cut off from the module's output, by a detach() "
    "or a new tensor in between. Detach only what is sent and what is returned.",
)
MEAN_OF_PRODUCT = Mistake(
    "the mean of a product",
    "Each stage but the last divides its gradients by the number of entries of its output, as (left * gradient).mean() "
    "does. What backward needs is the sum of that product; torch.autograd.backward(left, gradient) has it built in.",
)
FLOAT32 = Mistake(
    "counted in float32",
    "Gradients and loss are right to six digits: somewhere on the way a number was a float32 tensor. Weigh with "
    "Python's own numbers (item(), or sizes as they are), or with tensors of the gradients' dtype.",
)
NO_TENSOR = Mistake(
    "the loss is a number",
    "Return the loss as a tensor, detached. item() and float() stop the process until the number is known.",
)
NO_LOSS = Mistake(
    "no loss returned",
    "The last stage returned None: after all of its work, and not before, it returns the loss, detached.",
)
NOT_WAITED = Mistake(
    "not waited for",
    "A message was used, or the function ended, before it arrived: call wait() on what irecv returned before you use "
    "the tensor, and on what isend returned before you return.",
    seen=_failed(_never_left),
)
FORWARD_AGAIN = Mistake(
    "forward more than once",
    "Gradients are right, and yet the module did not run just once for each microbatch, or a copy of it ran: "
    "BatchNorm would count every call. sizes, sample and the output itself tell every shape that you need.",
)
STILL_ATTACHED = Mistake(
    "the loss keeps its graph",
    "Return loss.detach(): a loss that still knows where it came from keeps every activation alive.",
)
OTHER_LOSS = Mistake(
    "another loss than the gradients'",
    "The gradients are right, and the loss that is returned is another one: add up the scaled losses that backward "
    "began with, and detach the sum.",
)
OWN_SUM = Mistake(
    "each stage goes backward from its own output",
    "Backward began with the sum of the stage's own output, as if that were a loss. It begins with the gradient that "
    "the next stage sends: torch.autograd.backward(left, gradient).",
)
LOSS_EVERYWHERE = Mistake(
    "a loss on every stage",
    "Only the last stage has a loss to return; the others return None.",
)
