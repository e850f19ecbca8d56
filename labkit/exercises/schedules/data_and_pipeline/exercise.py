"""Several pipelines on a mesh: what is left to do when each of them has run its schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.as_if import Way, as_if
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.parting import parting
from labkit.checks.structure import and_more
from labkit.checks.values import integer, integers, record, tensor
from labkit.checks.wire import Wire
from labkit.exercises.schedules.data_and_pipeline.driver import drive

_SHAPES = {"weight": (3, 4), "bias": (5,), "frozen": (2, 2), "spare": (3,)}
Gradients = Mapping[str, "Tensor | None"]


def mesh_case(name: str, seed: int, num_stages: int, samples: Sequence[int]) -> Case:
    """Return a case: a pipeline of that many stages for each number of samples."""
    inputs: list[Values] = []
    for rank in range(len(samples) * num_stages):
        pipeline, stage = divmod(rank, num_stages)

        def drawn(what: str, *shape: int, rank: int = rank) -> Tensor:
            return normal(part_of(seed, "rank", rank, what), *shape, dtype=torch.float64)

        whose = ("stage", stage) if len(samples) > 1 else ("rank", rank)
        start: dict[str, Value] = {
            each: normal(part_of(seed, *whose, each), *shape, dtype=torch.float64) for each, shape in _SHAPES.items()
        }
        gradients: dict[str, Value] = {each: drawn(each, *_SHAPES[each]) for each in ("weight", "bias")}
        found: dict[str, Value] = {"parameters": start, "gradients": gradients, "mesh": [len(samples), num_stages]}
        found |= {"scale": drawn("scale", 1), "num_samples": samples[pipeline]}
        found["before"] = {each: drawn(f"{each} before", *_SHAPES[each]) for each in ("weight", "bias")}
        if stage == num_stages - 1:
            found["loss"] = drawn("loss", 1)
        inputs.append(found)
    return Case(name, len(inputs), tuple(inputs))


Weigh = Callable[[int, int, int], float]
"""The weight of a pipeline: (its samples, everybody's, how many pipelines)."""


def _ranks(case: Case) -> tuple[int, list[int]]:
    num_pipelines, num_stages = integers(case.inputs[0], "mesh")
    return num_stages, list(range(num_pipelines * num_stages))


def _column(case: Case, rank: int) -> list[int]:
    num_stages, ranks = _ranks(case)
    return ranks[rank % num_stages :: num_stages]


def _row(case: Case, rank: int) -> list[int]:
    num_stages, ranks = _ranks(case)
    return ranks[rank // num_stages * num_stages :][:num_stages]


def _summed(
    case: Case, ranks: list[int], weigh: Weigh, along: Callable[[Case, int], list[int]] = _row
) -> tuple[dict[str, Tensor | None], Tensor | None]:
    """Return gradients and loss that come of these ranks' parts, where schedules ran along rows, or columns."""
    counts = [integer(case.inputs[each], "num_samples") for each in ranks]
    total: dict[str, Tensor | None] = dict.fromkeys(_SHAPES)
    loss: Tensor | None = None
    for each, count in zip(ranks, counts, strict=True):
        inputs = case.inputs[each]
        factor = weigh(count, sum(counts), len(ranks)) * tensor(case.inputs[along(case, each)[0]], "scale")
        for name, gradient in record(inputs, "gradients").items():
            before = total[name]
            total[name] = cast(Tensor, gradient) * factor + (0 if before is None else before)
        if "loss" in inputs:
            loss = tensor(inputs, "loss") * factor + (0 if loss is None else loss)
    return total, loss


def _right(own: int, everybody: int, pipelines: int) -> float:
    return own / everybody


def expected(case: Case) -> list[Values]:
    """Return each rank's gradients, and the last stages' loss (the oracle)."""
    found: list[Values] = []
    for rank in range(case.world_size):
        gradients, loss = _summed(case, _column(case, rank), _right)
        found.append({"grads": gradients, "loss": loss, "moved": False})
    return found


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: every rank's gradients, to those with the same stage."""
    size = sum(len(torch.empty(_SHAPES[each]).flatten()) for each in ("weight", "bias"))
    num_stages, _ = _ranks(case)
    return {rank: each for stage in range(num_stages) for rank, each in both_ways(_column(case, stage), size).items()}


def _how_off(case: Case, got: tuple[Values, ...], name: str) -> str:
    """Return how all ranks' gradients of this name are off, in a sentence that begins with a space, or ""."""
    every = zip(got, expected(case), strict=True)
    both = [(cast(Gradients, came["grads"]), cast(Gradients, right["grads"])) for came, right in every]
    pairs = {rank: (came.get(name), right[name]) for rank, (came, right) in enumerate(both) if name in right}
    return parting(pairs, [rank for rank, pair in pairs.items() if _apart(*pair)])


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with gradients, with the loss, and with how often the pipeline ran."""
    for rank, (values, right) in enumerate(zip(got, expected(case), strict=True)):
        if values["runs"] != 1:
            yield Finding(_RUNS, f"Rank {rank} called run_step {values['runs']} times.", "once", rank=rank)
        came, wanted = cast(Gradients, values["grads"]), cast(Gradients, right["grads"])
        for name, gradient in wanted.items():
            if _apart(came.get(name), gradient):
                text = f"On rank {rank} the gradient of {name} is not that of the mean over all samples."
                head = _column(case, rank)[0]
                alone = head != rank and not _gradients_apart(case, got, head)
                mistake = _ONE_PIPELINE if alone else _of_gradients(case, rank, came)
                text += "" if mistake else _how_off(case, got, name)
                yield Finding(mistake, text, _begin(gradient), _begin(came.get(name)), rank)
        if values["moved"]:
            yield Finding(_MOVED, f"The parameters of rank {rank} have changed.", rank=rank)
    for rank, (values, right) in enumerate(zip(got, expected(case), strict=True)):
        mine, loss = values["loss"], right["loss"]
        if loss is None and values["returned"] != "NoneType":
            yield Finding(
                _LOSS_EVERYWHERE, f"Rank {rank} does not hold the last stage.", "None", str(values["returned"])
            )
        if _apart(cast("Tensor | None", mine), cast("Tensor | None", loss)):
            text = f"The gradients are right. The loss that rank {rank} returns is not the mean over all samples."
            if mine is None:
                what = "no loss" if values["returned"] == "NoneType" else f"a {values['returned']} for the loss"
                yield Finding(
                    _NOT_RETURNED, f"The gradients are right. Rank {rank} returns {what}.", _begin(loss), "None"
                )
            yield Finding(_ONE_LOSS, text, _begin(loss), _begin(mine), rank)


def _gradients_apart(case: Case, got: tuple[Values, ...], rank: int) -> bool:
    came, wanted = cast(Gradients, got[rank]["grads"]), cast(Gradients, expected(case)[rank]["grads"])
    return any(_apart(came.get(name), gradient) for name, gradient in wanted.items())


def _of_gradients(case: Case, rank: int, came: Gradients) -> str:
    def way(ranks: list[int], weigh: Weigh) -> Callable[[], Gradients]:
        return lambda: _summed(case, ranks, weigh)[0]

    column, (num_stages, everyone) = _column(case, rank), _ranks(case)
    mine = integer(case.inputs[rank], "num_samples")
    ways: list[Way[Gradients]] = [
        (_NO_SUM, way([rank], lambda own, everybody, pipelines: 1.0)),
        (_UNWEIGHED, way(column, lambda own, everybody, pipelines: 1.0)),
        (_UPSIDE_DOWN, way(column, lambda own, everybody, pipelines: everybody / own)),
        (_ALIKE, way(column, lambda own, everybody, pipelines: 1 / pipelines)),
        (_AVERAGED, way(column, lambda own, everybody, pipelines: own / everybody / pipelines)),
        (_SUM_TO_N, way(column, lambda own, everybody, pipelines: own / everybody * pipelines)),
        (_COUNTED, way(column, lambda own, everybody, pipelines: own / everybody / num_stages)),
        (_COUNTED, way(column, lambda own, everybody, pipelines: 1 / num_stages)),
        (_AFTER, way(column, lambda own, everybody, pipelines: mine / everybody)),
        (_NO_MEAN, way(column, lambda own, everybody, pipelines: 1 / everybody)),
        (_OLD, lambda: _with_old(case, rank, _right)),
        (_OLD, lambda: _with_old(case, rank, _right, weighed=True)),
        (_BY_SAMPLES, way(column, lambda own, everybody, pipelines: float(own))),
        (_NO_ROW, way([rank], lambda own, everybody, pipelines: own / _everybody(case))),
        (_AXIS, lambda: _summed(case, column, _right, _column)[0]),
        (_AXIS, way(_row(case, rank), lambda own, everybody, pipelines: 1.0)),
        (_AXIS, way(_row(case, rank), _right)),
        (_ALL, way(everyone, lambda own, everybody, pipelines: 1.0)),
        (_ALL, way(everyone, _right)),
        (_ALL, way(everyone, lambda own, everybody, pipelines: own / _everybody(case))),
    ]

    def close(one: Gradients, other: Gradients) -> bool:
        return not any(_apart(one.get(name), other[name], 1e-6) for name in other)

    own = _summed(case, [rank], lambda own, everybody, pipelines: 1.0)[0]
    right = _summed(case, column, _right)[0]
    if any(right[name] is None and came.get(name) is not None for name in right):
        return _ZEROS
    off = [name for name in right if _apart(came.get(name), right[name])]
    if 0 < len(off) < sum(each is not None for each in right.values()) and not any(
        _apart(came.get(name), own[name]) for name in off
    ):
        return _SOME
    return _FLOAT32 if close(came, _summed(case, column, _right)[0]) else as_if(came, ways, close)


def _with_old(case: Case, rank: int, weigh: Weigh, weighed: bool = False) -> Gradients:
    """Return the right gradients with those of the step before added, this rank's or the column's weighed sum."""
    total = _summed(case, _column(case, rank), weigh)[0]
    ranks = _column(case, rank) if weighed else [rank]
    counts = [integer(case.inputs[each], "num_samples") for each in ranks]
    for each, count in zip(ranks, counts, strict=True):
        for name, old in record(case.inputs[each], "before").items():
            total[name] = cast(Tensor, total[name]) + cast(Tensor, old) * (count / sum(counts))
    return total


def _on_none(got: Got) -> str:
    """Return the line of the learner's on which None was used as a tensor, or ""."""
    if not isinstance(got, Failure) or "NoneType" not in got.message:
        return ""
    return got.detail.rpartition("\n")[2]


def _loss_is_none(case: Case, got: Got, wire: Wire) -> bool:
    return "loss" in _on_none(got)


def _no_gradient(case: Case, got: Got, wire: Wire) -> bool:
    return bool(_on_none(got)) and not _loss_is_none(case, got, wire)


def _everybody(case: Case) -> int:
    num_stages, ranks = _ranks(case)
    return sum(integer(case.inputs[each], "num_samples") for each in ranks[::num_stages])


def _apart(one: Any, other: Any, slack: float = 1e-9) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or bool((one - other).abs().max() > slack * (1 + other.abs().max()))


def _begin(found: Any) -> str:
    return "None" if found is None else f"{found.flatten()[0].item():.6g} first"


_RUNS, _MOVED, _LOSS_EVERYWHERE, _ONE_LOSS, _NO_SUM, _UNWEIGHED = (
    "the schedule does not run once", "parameters changed", "a loss on every stage", "the loss of one pipeline",
    "no sum over the column", "summed, not weighed",
)  # fmt: skip
_NO_LOSS, _SOME, _NOT_RETURNED = "no loss on this stage", "some gradients left as they were", "the loss not returned"
_UPSIDE_DOWN = "weighed upside down"
_COUNTED, _AVERAGED, _ZEROS, _ONE_PIPELINE = (
    "samples counted along the pipeline", "weighed and averaged", "a gradient in place of None",
    "summed on one pipeline alone",
)  # fmt: skip
_SUM_TO_N, _AFTER, _NO_MEAN, _OLD, _A_MESH = (
    "weights that add up to N", "weighed after the sum", "divided by all samples alone", "an earlier gradient added",
    "a mesh for a group",
)  # fmt: skip
_ALIKE, _BY_SAMPLES, _NO_ROW, _AXIS, _ALL, _FLOAT32, _NONE = (
    "mean over the pipelines", "times the samples", "weighed, not summed", "the wrong axis", "summed over all ranks",
    "counted in float32",
    "a parameter without a gradient",
)  # fmt: skip
EXERCISE = declared(
    id="data_and_pipeline",
    functions=("hybrid_step",),
    driver=drive,
    oracle=expected,
    structure=and_more(expected, returned="", runs=0),
    looks=(find,),
    visible=(
        mesh_case("2 pipelines of 3 stages, 7 and 5 samples", 71, 3, [7, 5]),
        mesh_case("4 pipelines of one stage", 72, 1, [4, 5, 3, 6]),
        mesh_case("one pipeline of 2 stages", 73, 2, [6]),
    ),
    least=least,
    hints=(
        "Which ranks hold the same parameters as this one? Whose samples are in the gradient that run_step left here?",
        "run_step within mesh.get_group('pipe'). Then every gradient times own samples over all samples, and summed "
        "over mesh.get_group('data'); the loss likewise. All samples: an all_reduce of num_samples over the column.",
        "everybody = torch.tensor(float(num_samples), dtype=torch.float64); dist.all_reduce(everybody, group=data); "
        "for each p.grad that is there: p.grad *= num_samples / everybody.item(); dist.all_reduce(p.grad, group=data).",
    ),
    mistakes=(
        Mistake(_RUNS, "Call run_step once: it runs the whole schedule of this rank's pipeline."),
        Mistake(_MOVED, "hybrid_step changes gradients; the optimizer's step comes later."),
        Mistake(_LOSS_EVERYWHERE, "Return what run_step returned where that is None: only last stages have a loss."),
        Mistake(_ONE_LOSS, "Weigh the loss like the gradients, and sum it over the column too."),
        Mistake(_NO_SUM,
                "Each .grad is still that of its own pipeline: after run_step, all-reduce every p.grad over "
                "mesh.get_group('data'), and p.grad itself. What is done to a new tensor, such as p.grad * share, does "
                "not reach it."),
        Mistake(_UNWEIGHED,
                "The gradients of the pipelines' means were added: weigh each by its own samples over all samples, on "
                "every stage."),
        Mistake(_COUNTED,
                "num_samples was added up over other ranks than those with the same stage. All stages of a pipeline "
                "see the same samples: count them once for each pipeline, over mesh.get_group('data')."),
        Mistake(_AVERAGED,
                "The weights already add up to 1: own samples over all samples. Sum the weighed gradients, and divide "
                "by nothing more (no ReduceOp.AVG)."),
        Mistake(_SUM_TO_N,
                "The weights of N pipelines add up to N, so the sum is N times too large. A weight is the pipeline's "
                "own samples over all samples, not over their mean."),
        Mistake(_ZEROS,
                "A frozen or unused parameter has None for its gradient, and keeps it. Zeros in its place would let "
                "weight decay or momentum move it."),
        Mistake(_ONE_PIPELINE,
                "The first pipeline has the right gradients, and this one does not: every rank needs the sum, because "
                "every one takes the optimizer's step. Use all_reduce over the column, not reduce."),
        Mistake(_UPSIDE_DOWN, "The weight is upside down: this pipeline's samples over everybody's, at most 1."),
        Mistake(_ALIKE,
                "Each pipeline has the same weight, but they have different numbers of samples: weigh each by its own "
                "over all."),
        Mistake(_BY_SAMPLES, "Gradients are weighed by the samples themselves: divide by everybody's samples."),
        Mistake(_NO_ROW, "Each pipeline's gradients are weighed but never summed: all-reduce them over the column."),
        Mistake(_AFTER,
                "The sum was weighed by this pipeline's share: multiply each gradient by its own pipeline's share "
                "first, and sum then."),
        Mistake(_NO_MEAN,
                "The means were added and divided by all samples. Each gradient is that of a mean: times its own "
                "samples it is that of a sum, and only sums are divided by all samples."),
        Mistake(_OLD,
                "The gradient of the step before is in it. run_step overwrites .grad, and nothing has to be kept of "
                "what was there."),
        Mistake(_A_MESH,
                "A mesh was given where a process group is asked for: mesh.get_group('pipe') is one, mesh['pipe'] is "
                "a smaller mesh.",
                seen=lambda case, got, wire: isinstance(got, Failure) and "DeviceMesh" in got.message, certain=True),
        Mistake(_AXIS,
                "Something was summed over other ranks than those with the same stage, or the schedule ran in another "
                "group: the schedule goes along 'pipe', gradients and losses along 'data'.",
                says=("deadlock", "timeout", "size", "shape", "group")),
        Mistake(_ALL,
                "Gradients were summed over all ranks: without group= a collective includes everybody, other stages "
                "too. Pass mesh.get_group('data')."),
        Mistake(_FLOAT32,
                "The gradients are right to six digits: somewhere a number was a float32 tensor. Weigh with Python's "
                "own numbers (item())."),
        Mistake(_NONE,
                "Not all that you weigh is there. A parameter that is frozen or was not used has None for a gradient, "
                "and a stage that is not the last has None for a loss: leave them out.",
                seen=_no_gradient, certain=True),
        Mistake(_NO_LOSS,
                "run_step returns a loss on the last stage alone, and None on the others: there is nothing to weigh "
                "there, and hybrid_step returns None.", seen=_loss_is_none, certain=True),
        Mistake(_SOME,
                "Some gradients are right, and these are as run_step left them. Weigh and sum every gradient that is "
                "there: does a loop end after its first round?"),
        Mistake(_NOT_RETURNED,
                "Every pipeline's last stage returns the loss, as a tensor (no item()), not that of one pipeline "
                "alone."),
    ),
)  # fmt: skip
