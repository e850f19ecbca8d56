"""A whole batch forward and backward through the stages."""

from __future__ import annotations

from dataclasses import replace

from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake, declared
from labkit.checks.hanging import hangs
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.one_batch.driver import drive
from labkit.exercises.stages import least_traffic, structure, training
from labkit.exercises.stages import training_mistakes as mistakes
from labkit.exercises.stages.pipeline_cases import expected, pipeline_case


def batch_case(name: str, seed: int, num_stages: int, num_samples: int, rows: int = 0, before: bool = False) -> Case:
    """Return a case of one_batch."""
    return pipeline_case(name, seed, [num_samples], None, num_stages=num_stages, rows=rows, before=before)


def _to_no_neighbour(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, Failure):
        return any(abs(message.src - message.dst) > 1 for message in wire.messages)
    return hangs(got) and any(wait.peer is not None and abs(wait.rank - wait.peer) > 1 for wait in got.waits)


MISTAKES = (
    mistakes.LIBRARY,
    mistakes.SENDS_BACK,
    mistakes.NO_LEAF,
    mistakes.NO_GRADIENT,
    mistakes.ECHO,
    mistakes.OWN_SUM,
    mistakes.NO_TARGETS,
    mistakes.NO_GRADS,
    mistakes.NOT_CONNECTED,
    mistakes.MEAN_OF_PRODUCT,
    mistakes.NOT_WAITED,
    mistakes.LOSS_EVERYWHERE,
    Mistake(
        "a message to no neighbour",
        "A stage exchanges messages with the stage before it and the stage after it alone: the data of a batch one "
        "way, their gradients the other, and nothing else.",
        seen=_to_no_neighbour,
    ),
    mistakes.DETACHED,
    mistakes.FORWARD_ONLY,
    mistakes.LAST_ONLY,
    mistakes.FORGOT_OLD,
    mistakes.PIPELINE_SHARE,
    replace(
        mistakes.SUM_OF_SAMPLES,
        hint="The gradients are those of a sum over the samples. loss_fn is the mean over them: multiply by nothing.",
    ),
    replace(
        mistakes.SCALED_AGAIN,
        hint="All gradients are right up to a factor: loss_fn is the mean over the samples already. Scale nothing.",
    ),
    mistakes.NOT_CONTIGUOUS,
    Mistake(
        "the first stage receives",
        "A rank names a rank before the first or after the last: a stage receives from stage - 1 and sends to stage + "
        "1, stage 0 has its inputs, and the last stage has its loss. In backward it is the other way round.",
        seen=lambda case, got, wire: isinstance(got, Failure) and mistakes.beyond_the_ends(case, got, wire),
    ),
    replace(
        mistakes.NOBODY_SENDS,
        hint="All waiting ranks are stuck in a receive, and nobody is left to send: compare what each stage sends with "
        "what its neighbours receive, and in which order.",
    ),
    mistakes.ROOM,
    mistakes.NO_TENSOR,
    mistakes.NO_LOSS,
    replace(
        mistakes.FORWARD_AGAIN,
        hint="Gradients are right, and yet the module did not run just once, with the whole batch, or a copy of it "
        "ran. num_samples, sample and the output itself tell every shape that you need.",
    ),
    mistakes.STILL_ATTACHED,
)

EXERCISE = declared(
    id="one_batch",
    functions=("run_stage",),
    driver=drive,
    oracle=expected,
    structure=structure.of_stages,
    least=least_traffic.of_stages,
    looks=(training.find,),
    visible=(
        batch_case("3 stages, 5 samples", 31, 3, 5),
        batch_case("4 stages, samples of 3 rows, added to earlier gradients", 32, 4, 3, rows=3, before=True),
        batch_case("one stage", 33, 1, 4),
    ),
    hints=(
        "What must each stage know before it can go forward, and what before it can go backward? Who has it?",
        "Forward: receive (not on stage 0), requires_grad_(), module, send the detached output (not on the last). "
        "Backward: receive a gradient shaped like your output (the last stage has its loss instead), "
        "torch.autograd.backward(output, gradient), send entered.grad back (not on stage 0).",
        "entered = sample.new_empty((num_samples, *sample.shape)); dist.recv(entered, src=stage - 1); "
        "entered.requires_grad_(); left = module(entered); dist.send(left.detach().contiguous(), dst=stage + 1); "
        "gradient = torch.empty_like(left, memory_format=torch.contiguous_format); dist.recv(gradient, src=stage + 1); "
        "torch.autograd.backward(left, gradient); dist.send(entered.grad, dst=stage - 1).",
    ),
    mistakes=MISTAKES,
)
