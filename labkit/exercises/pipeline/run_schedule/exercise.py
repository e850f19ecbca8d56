"""The executor of schedules."""

from __future__ import annotations

from functools import partial

from labkit.checks.case import Case, Failure, Got
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.par import PAR
from labkit.exercises.pipeline.run_schedule.driver import drive
from labkit.exercises.stages import least_traffic, structure, written
from labkit.exercises.stages import training_mistakes as mistakes
from labkit.exercises.stages.pipeline_cases import expected, pipeline_case
from labkit.exercises.stages.training import judge_step, results_as_if, wrong_order, wrong_results
from labkit.exercises.stages.written import RECORDS
from labkit.exercises.stages.written import written as schedules


def _ignores_the_order(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and (wrong_order(case, got) or Verdict(True)).message.endswith("its schedule.")


def _keeps_everything(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and "held the outputs" in (wrong_order(case, got) or Verdict(True)).message


EXERCISE = judged(
    id="run_schedule",
    functions=("run_schedule",),
    given=RECORDS,
    driver=drive,
    oracle=expected,
    order_given=True,
    structure=structure.of_stages,
    least=least_traffic.of_stages,
    judge=partial(judge_step, follows=True),
    par=PAR,
    visible=(
        pipeline_case("3 stages, GPipe, 4 x 2 samples", 41, [2, 2, 2, 2], schedules(written.GPIPE_3_4), num_stages=3),
        pipeline_case(
            "4 stages, 1F1B, 3 + 2 + 4 + 1 + 2 samples, gradients that were there before",
            42,
            [3, 2, 4, 1, 2],
            schedules(written.ALTERNATING_4_5),
            num_stages=4,
            before=True,
        ),
        pipeline_case(
            "3 stages, microbatches in another order, samples of 3 rows",
            43,
            [2, 1, 3, 2],
            schedules(written.DRAWN_3_4),
            num_stages=3,
            rows=3,
        ),
        pipeline_case("one stage, 2 + 3 + 1 samples", 44, [2, 3, 1], schedules(written.ONE_3), num_stages=1),
        pipeline_case(
            "2 stages, received long before it is needed",
            46,
            [1, 3, 2, 2],
            schedules(written.EARLY_2_4),
            num_stages=2,
        ),
        pipeline_case(
            "5 ranks, of which 1, 3 and 4 are the stages",
            45,
            [3, 2],
            schedules(written.ALTERNATING_3_2),
            num_stages=3,
            group=(1, 3, 4),
            world_size=5,
        ),
    ),
    hints=(
        "What does each kind of record need, and what does it leave for a later one? Keep that in dictionaries, by "
        "microbatch.",
        "Recv makes room and posts an irecv; Forward waits for it and makes left[m] (on the last stage the weighed "
        "loss); Send posts left[m].detach(); RecvGrad makes room for gradients[m]; Backward waits for that and runs "
        "torch.autograd.backward(left.pop(m), gradients.pop(m, None)); SendGrad posts entered.pop(m).grad. Sends are "
        "waited for at the end.",
        "coming[m] = dist.irecv(buffer, group=group, group_src=record.peer), and coming.pop(m).wait() in m's Forward; "
        "sent.append(dist.isend(tensor.contiguous(), group=group, group_dst=record.peer)); the loss of microbatch m is "
        "loss_fn(out, targets[m]) * (sizes[m] / sum(sizes)), and what is returned is the sum of these, detached.",
    ),
    mistakes=(
        mistakes.LIBRARY,
        mistakes.NO_LEAF,
        mistakes.DETACHED,
        mistakes.FORWARD_ONLY,
        mistakes.LAST_ONLY,
        mistakes.NOT_SCALED,
        mistakes.MEAN_OF_MEANS,
        mistakes.SUM_OF_SAMPLES,
        mistakes.FORGOT_OLD,
        mistakes.OVERWRITTEN,
        mistakes.FIRST_AGAIN,
        mistakes.PIPELINE_SHARE,
        Mistake(
            "microbatches in the order of their numbers",
            "Each record says which microbatch it is about: take its inputs and its targets, make room for "
            "sizes[record.microbatch] samples, and count neither forwards nor messages.",
            lambda case, got, wire: (
                "another order" in case.name
                and (
                    "disagree about the size" in got.message or "which asked for" in got.message
                    if isinstance(got, Failure)
                    else wrong_results(case, got) is not None or _ignores_the_order(case, got, wire)
                )
            ),
        ),
        Mistake(
            "the schedule is not followed",
            "Forwards and backwards ran in another order than the schedule says. Its order is what keeps all stages at "
            "work and the memory small: go through the records one by one.",
            _ignores_the_order,
        ),
        Mistake(
            "keeps what it no longer needs",
            "Outputs are kept after their backward: take them out of their dictionary, left.pop(m), and send "
            "left[m].detach(), without the graph. Else 1F1B holds as much as GPipe.",
            _keeps_everything,
        ),
        mistakes.NOT_CONTIGUOUS,
        mistakes.GLOBAL_RANKS,
        mistakes.SENDS_WAIT,
        mistakes.NOBODY_SENDS,
        mistakes.MESSAGES_MISSING,
        mistakes.ROOM,
        mistakes.FLOAT32,
        mistakes.NO_TENSOR,
        Mistake(
            "not waited for",
            "A message was used, or the function ended, before it was there: call wait() on what irecv returned before "
            "you use the tensor, and on what isend returned before you return.",
            lambda case, got, wire: (
                isinstance(got, tuple) and bool(wire.problems_of("not_waited", "unmatched_recv", "changed_in_flight"))
            ),
        ),
        Mistake(
            "scaled twice or in another place",
            "All gradients are right up to a factor: scale the loss once, by sizes[m] / sum(sizes), and nothing else.",
            lambda case, got, wire: any(
                results_as_if(lambda number, sizes, everybody, factor=factor: factor(number, sizes))(case, got, wire)  # type: ignore[misc]
                for factor in (
                    lambda number, sizes: sizes[number] / sum(sizes) / len(sizes),
                    lambda number, sizes: 1 / sum(sizes),
                    lambda number, sizes: (sizes[number] / sum(sizes)) ** 2,
                )
            ),
        ),
        mistakes.FORWARD_AGAIN,
        mistakes.STILL_ATTACHED,
    ),
)
