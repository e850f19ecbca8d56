"""Several pipelines on a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from labkit.checks.case import Case, Failure, Got
from labkit.checks.judged import Mistake, judged
from labkit.checks.wire import Wire
from labkit.exercises.pipeline import least_traffic, structure, written
from labkit.exercises.pipeline import training_mistakes as mistakes
from labkit.exercises.pipeline.data_and_pipeline.driver import drive
from labkit.exercises.pipeline.pipeline_cases import Write, expected, members, pipeline_case, pipelines_of, sizes_of
from labkit.exercises.pipeline.training import judge_step, results_as_if, wrong_results
from labkit.exercises.pipeline.written import RECORDS
from labkit.exercises.pipeline.written import written as schedules


def mesh_case(name: str, seed: int, num_stages: int, pipelines: Sequence[Sequence[int]], write: Write) -> Case:
    """Return a case of data_and_pipeline: the sizes of the microbatches of each pipeline."""
    return pipeline_case(name, seed, (), write, num_stages=num_stages, pipelines=pipelines)


def _own(case: Case, everybody: int) -> dict[int, int]:
    """Return the samples of each pipeline, by its first rank."""
    return {row[0]: sum(sizes_of(case, row[0])) for row in pipelines_of(case)}


def _no_column(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and not any(call.kind != "barrier" for call in wire.collectives)


def _uneven(case: Case) -> bool:
    return len(set(_own(case, 0).values())) > 1


def _sum_of_means(case: Case, got: Got, wire: Wire) -> bool:
    return results_as_if(lambda number, sizes, everybody: sizes[number] / sum(sizes))(case, got, wire)


def _mean_of_means(case: Case, got: Got, wire: Wire) -> bool:
    count = len(pipelines_of(case))
    return _uneven(case) and results_as_if(lambda number, sizes, everybody: sizes[number] / sum(sizes) / count)(
        case, got, wire
    )


def _loss_only(case: Case, got: Got, wire: Wire) -> bool:
    verdict = wrong_results(case, got) if isinstance(got, tuple) else None
    return verdict is not None and "returned the loss" in verdict.message


def _over_everybody(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    counts = [sum(call.rank == rank for call in wire.collectives) for rank in members(case)]
    shapes = {name for values in got for name in cast(dict[str, object], values.get("grads") or {})}
    return bool(shapes) and min(counts) > 0 and wrong_results(case, got) is not None


EXERCISE = judged(
    id="data_and_pipeline",
    functions=("hybrid_step",),
    given=RECORDS,
    driver=drive,
    oracle=expected,
    structure=structure.of_stages,
    least=least_traffic.of_stages,
    judge=partial(judge_step, collectives=True),
    visible=(
        mesh_case(
            "2 pipelines of 3 stages, 7 and 5 samples", 71, 3, [[3, 2, 2], [2, 2, 1]], schedules(written.GPIPE_3_3)
        ),
        mesh_case(
            "4 pipelines of one stage", 72, 1, [[1, 2, 1], [2, 2, 1], [1, 1, 1], [3, 1, 2]], schedules(written.ONE_3)
        ),
    ),
    hints=(
        "Which ranks hold the same parameters as this one? What has run_schedule computed, and for which samples?",
        "run_schedule within mesh.get_group('pipe'). Then every gradient times own samples over all samples, and "
        "summed over mesh.get_group('data'); the loss on the last stages likewise. All samples: an all_reduce of "
        "sum(sizes) over the column.",
        "everybody = torch.tensor(float(sum(sizes)), dtype=torch.float64, device=...); dist.all_reduce(everybody, "
        "group=mesh.get_group('data')); for each p.grad that is there: p.grad *= sum(sizes) / everybody.item(); "
        "dist.all_reduce(p.grad, group=mesh.get_group('data')).",
    ),
    mistakes=(
        Mistake(
            "a parameter without a gradient",
            "Not every parameter has a gradient: one that is frozen or was not used has None, in every pipeline alike. "
            "Leave it out.",
            lambda case, got, wire: isinstance(got, Failure) and "NoneType" in got.message,
            certain=True,
        ),
        mistakes.FLOAT32,
        Mistake(
            "no sum over the column",
            "The pipelines were not brought together: all-reduce every gradient over mesh.get_group('data').",
            _no_column,
        ),
        Mistake(
            "summed, not weighed",
            "The gradients of the pipelines' means were added: weigh each by its own samples over all samples.",
            _sum_of_means,
        ),
        Mistake(
            "mean over the pipelines",
            "Each pipeline counts alike. They have different numbers of samples: weigh each by its own over all.",
            _mean_of_means,
        ),
        Mistake(
            "the loss of one pipeline",
            "The gradients are right, the loss is one pipeline's: weigh and sum it over the column too.",
            _loss_only,
        ),
        Mistake(
            "the wrong axis",
            "Gradients were summed over other ranks than those with the same stage, or the schedule ran in another "
            "group: the schedule goes along 'pipe', gradients along 'data'.",
            lambda case, got, wire: not isinstance(got, tuple) or _over_everybody(case, got, wire),
        ),
        mistakes.FORWARD_ONLY,
        mistakes.FORWARD_AGAIN,
    ),
)
