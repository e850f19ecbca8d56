"""The executor of schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from labkit.checks.case import Case, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.wire import Wire
from labkit.exercises.pipeline.par import PAR
from labkit.exercises.pipeline.run_schedule.driver import drive
from labkit.exercises.stages import least_traffic, structure, training, written
from labkit.exercises.stages import training_mistakes as mistakes
from labkit.exercises.stages.pipeline_cases import expected, members, pipeline_case
from labkit.exercises.stages.written import RECORDS
from labkit.exercises.stages.written import written as schedules


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with a step; where microbatches come in another order, who counts them is named."""
    for each in training.find_in_order(case, got, wire):
        counts = "another order" in case.name and each.mistake in ("", mistakes.NOT_FOLLOWED.name)
        yield replace(each, mistake=_COUNTS) if counts else each
    yield from _left_in_flight(case, wire)


def _left_in_flight(case: Case, wire: Wire) -> Iterator[Finding]:
    """Yield each gradient whose send nobody waited for: nothing that comes later tells that it has arrived."""
    order = {rank: place for place, rank in enumerate(members(case))}
    for problem in wire.problems_of("not_waited"):
        to = re.search(r"its isend to rank (\d+)", problem.text)
        if to and order[int(to[1])] < order[problem.rank]:
            yield Finding(mistakes.NOT_WAITED.name, problem.text, rank=problem.rank, problem=problem)


_COUNTS = "microbatches in the order of their numbers"
MISTAKES = (
    mistakes.LIBRARY,
    mistakes.NO_LEAF,
    mistakes.NO_GRADIENT,
    mistakes.LEFT_UNDONE,
    mistakes.ECHO,
    mistakes.OWN_SUM,
    mistakes.NO_TARGETS,
    mistakes.NO_GRADS,
    mistakes.NOT_CONNECTED,
    mistakes.ONE_ROOM,
    mistakes.MEAN_OF_PRODUCT,
    mistakes.LOSS_EVERYWHERE,
    mistakes.DETACHED,
    mistakes.FORWARD_ONLY,
    mistakes.LAST_ONLY,
    mistakes.NOT_SCALED,
    mistakes.MEAN_OF_MEANS,
    mistakes.SUM_OF_SAMPLES,
    mistakes.SCALED_AGAIN,
    mistakes.FORGOT_OLD,
    mistakes.OVERWRITTEN,
    mistakes.FIRST_AGAIN,
    mistakes.PIPELINE_SHARE,
    mistakes.NOT_FOLLOWED,
    mistakes.KEPT,
    mistakes.NOT_CONTIGUOUS,
    mistakes.FLOAT32,
    mistakes.NO_TENSOR,
    mistakes.NO_LOSS,
    mistakes.NOT_WAITED,
    mistakes.FORWARD_AGAIN,
    mistakes.STILL_ATTACHED,
    mistakes.OTHER_LOSS,
    Mistake(
        _COUNTS,
        "Each record says which microbatch it is about: take its inputs and its targets, make room for "
        "sizes[record.microbatch] samples, and count neither forwards nor messages.",
    ),
    mistakes.GLOBAL_RANKS,
    mistakes.SENDS_WAIT,
    mistakes.NOBODY_SENDS,
    mistakes.ROOM_OF_ANOTHER,
    mistakes.ROOM,
)

EXERCISE = declared(
    id="run_schedule",
    functions=("run_schedule",),
    given=RECORDS,
    driver=drive,
    oracle=expected,
    order_given=True,
    structure=structure.of_stages,
    least=least_traffic.of_stages,
    looks=(find,),
    par=PAR,
    visible=(
        pipeline_case("3 stages, GPipe, 4 x 2 samples", 41, [2, 2, 2, 2], schedules(written.GPIPE_3_4), num_stages=3),
        pipeline_case(
            "4 stages, 1F1B, 3 + 2 + 4 + 1 + 2 samples, added to earlier gradients",
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
            "2 stages, received long before it is needed, in another order",
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
    mistakes=MISTAKES,
)
