"""Ranks that run out of data at different times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, Seen, declared, either
from labkit.checks.draws import part_of
from labkit.checks.finding import Finding
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.checks.on_ranks.model_state import loss_of, state_of
from labkit.checks.tensor_values import close, compare_ranks
from labkit.checks.values import tensors
from labkit.checks.wire import Wire
from labkit.exercises.averaging import least_traffic, marks
from labkit.exercises.averaging.cases import PLAIN
from labkit.exercises.averaging.replay import models_of
from labkit.exercises.ddp_for_real_models.uneven_inputs.driver import drive

_NO_BATCH = "a step without a batch"
_ROUNDING = 1e-6
"""How many ranks have data may travel in float32, and a third of it is not a third in float64."""


def uneven_case(name: str, seed: int, counts: Sequence[int], **model: int) -> Case:
    """Return a case in which rank i has counts[i] batches of 3 to 5 samples; the model has no buffers."""
    inputs: list[Values] = []
    for rank, count in enumerate(counts):
        batches = [hard_batch(part_of(seed, "rank", rank, number), 3 + (rank + number) % 3) for number in range(count)]
        given: dict[str, Value] = {
            "seed": part_of(seed, "rank", rank), "model": {**PLAIN, "norm": False, **model}, "lr": 0.1,
            "x": [x for x, _ in batches], "y": [y for _, y in batches],
        }  # fmt: skip
        inputs.append(given)
    return Case(name, len(counts), tuple(inputs))


def _trained(case: Case, rule: str = "active") -> tuple[int, dict[str, Value]]:
    """Return the number of steps and the model afterwards, computed in one process.

    Args:
        case: The case.
        rule: "active" divides by the ranks that still have data, "world" by all, "twice" by the one and the other,
            "shortest" stops with the first that has none, "last" takes a rank's last batch again and divides by all,
            "last of those" by the ranks that still have data, "again" begins anew instead, "backwards" takes the last
            batch first, "samples" weighs each rank by the samples of its batch, "kept" never clears a gradient, "wrong
            way" multiplies the mean over all by the share of ranks that have data.
    """
    (model,) = models_of(case)[:1]
    xs = [tensors(inputs, "x") for inputs in case.inputs]
    ys = [tensors(inputs, "y") for inputs in case.inputs]
    lengths = [len(x) for x in xs]
    steps, before = min(lengths) if rule == "shortest" else max(lengths), 0
    for step in range(steps):
        data = sum(step < length for length in lengths)
        again = rule in ("last", "last of those", "again")
        places = {rank: _place(step, n, rule) for rank, n in enumerate(lengths) if step < n or (again and n)}
        _clear(model, case.world_size / before if rule == "kept" and before else 0)
        weights = {rank: len(xs[rank][place]) if rule == "samples" else 1 for rank, place in places.items()}
        for rank, place in places.items():
            torch.autograd.backward(weights[rank] * loss_of(model(xs[rank][place]), ys[rank][place]))
        size = case.world_size
        divisors = {"world": size, "last": size, "twice": data * size, "wrong way": size * size / data}
        _descend(model, divisors.get(rule, sum(weights.values()) if rule == "samples" else data))
        before = data
    return steps, state_of(model)


def _place(step: int, length: int, rule: str) -> int:
    """Return which of its batches a rank takes in a step."""
    if rule == "again":
        return step % length
    return length - 1 - step if rule == "backwards" else min(step, length - 1)


def _clear(model: HardModel, kept: float) -> None:
    """Clear the gradients, or multiply what is kept of them."""
    for parameter in model.parameters():
        parameter.grad = parameter.grad * kept if kept and parameter.grad is not None else None


@torch.no_grad()
def _descend(model: HardModel, divisor: float) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.sub_(0.1 * parameter.grad / divisor)


def expected(case: Case) -> list[Values]:
    """Return steps and final model for each rank (the oracle)."""
    steps, end = _trained(case)
    return [{"steps": steps, "end": end, "none": 0} for _ in range(case.world_size)]


def wrong_models(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: a final model, or the number of steps, which is that of the rank with most batches."""
    right = [dict(values) for values in expected(case)]
    if (found := compare_ranks(got, right, ("end",), "at the end the value", _ROUNDING)) is not None:
        yield found
    steps = _trained(case)[0]
    if any(values.get("steps") != steps for values in got):
        came = [values.get("steps") for values in got]
        yield Finding("", f"The models are right, but every rank takes {steps} steps, and the ranks returned {came}.")
    without = [values.get("none") for values in got]
    if any(type(count) is not int or count for count in without):
        said = f"Called again with no batch on any rank, it returned {without}; there are 0 steps to take then."
        yield Finding(_NO_BATCH, said)


def _as_if(rule: str) -> Seen:
    def seen(case: Case, got: Got, wire: Wire) -> bool:
        if not isinstance(got, tuple):
            return False
        end = _trained(case, rule)[1]
        differs = any(not close(value, _trained(case)[1][name]) for name, value in end.items())
        came: list[Any] = [values.get("end") for values in got]
        return differs and all(isinstance(c, dict) and all(close(c.get(n), v) for n, v in end.items()) for c in came)

    return seen


def _not_equal(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    ends: list[Any] = [values.get("end") for values in got]
    return any(not close(end.get(name), value) for end in ends[1:] for name, value in ends[0].items())


def _each_alone(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every rank ends with what its own batches alone make of rank 0's model."""
    if not isinstance(got, tuple) or case.world_size == 1:
        return False
    begun = case.inputs[0]["seed"]
    alone = [Case(case.name, 1, ({**inputs, "seed": begun},)) for inputs in case.inputs]
    return all(_all_end_with((values,), _trained(each)[1]) for values, each in zip(got, alone, strict=True))


def _all_end_with(got: Got, model: Mapping[str, Value], *tolerance: float) -> bool:
    ends: list[Any] = [values.get("end") for values in got] if isinstance(got, tuple) else []
    return bool(ends) and all(close(end.get(name), value, *tolerance) for end in ends for name, value in model.items())


def _counts_otherwise(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the model is right on every rank, and so it is only the count that is not."""
    return _all_end_with(got, _trained(case)[1], _ROUNDING)


def _as_it_began(case: Case, got: Got, wire: Wire) -> bool:
    return _all_end_with(got, state_of(models_of(case)[0]))


def _divides_by_nobody(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and got.error == "ZeroDivisionError"


MISTAKES = (
    Mistake(_NO_BATCH,
            "Where no rank has a batch, not even at the start, no step is taken and the count is 0: ask who has one "
            "before each step, the first too.", seen=_divides_by_nobody, certain=True),
    Mistake("another number of steps",
            "Return how many steps were taken together, also those for which this rank had no batch: count the steps "
            "of the loop, not this rank's batches.", seen=_counts_otherwise),
    Mistake("no step was taken",
            "Every rank ends with the model with which rank 0 began: no step changed it. Stop only where nobody has a "
            "batch, and call optimizer.step() in each step.", seen=_as_it_began),
    Mistake("divided by all ranks",
            "The mean is over all N ranks, also over those that had no data: the last steps are too small.",
            seen=_as_if("world")),
    Mistake("a batch comes twice",
            "A rank without data trained on its last batch again: that batch counts more often than others. It must "
            "add nothing, and the mean is over those that had something.", seen=_as_if("last")),
    Mistake("a batch comes twice among those that have one",
            "A rank without data trained on its last batch again. Its batches are used up: it must add nothing, only "
            "make the same calls and take the same step.", seen=_as_if("last of those")),
    Mistake("begins anew with the first batch",
            "A rank without data went through its batches once more. Each batch counts once: a rank without one must "
            "add nothing, only make the same calls and take the same step.", seen=_as_if("again")),
    Mistake("the last batch first",
            "The batches were taken from the end of the list, and their order counts: begin with batches[0].",
            seen=_as_if("backwards")),
    Mistake("divided by all ranks as well",
            "The gradients were divided twice, by the ranks that have a batch and by all ranks: "
            "finish_gradient_synchronization already divides by all N, which must be made good.", seen=_as_if("twice")),
    Mistake("scaled the wrong way",
            "The mean over all N ranks was made smaller where ranks have no data: their zeros are in it, so it is too "
            "small. Multiply by N and divide by the number of ranks that have a batch.", seen=_as_if("wrong way")),
    Mistake("gradients of earlier steps",
            "Gradients of earlier steps are still in parameter.grad: each step begins with optimizer.zero_grad(), on "
            "every rank.", seen=_as_if("kept")),
    Mistake("weighed by samples",
            "The ranks are weighed by the samples of their batches. Each rank that has a batch counts the same, "
            "however large the batch is.", seen=_as_if("samples")),
    Mistake("stops with the shortest",
            "Training stopped when the first rank ran out; the batches of the others were thrown away.",
            seen=_as_if("shortest")),
    Mistake("other calls without data",
            "The ranks called different things. A rank without a batch must make the calls that the others make, in "
            "every step: it asks who has one, and it calls finish_gradient_synchronization, which sends zeros for it.",
            seen=either(marks.says("must call the same"), marks.says("disagree about the size")), certain=True),
    Mistake("a rank leaves early",
            "The loop did not end on every rank. Either a rank that ran out of data returned early, or skipped a call "
            "that the others make: until nobody has data, every rank must make the same calls in every step. Or no "
            "rank ever runs out: each step takes another batch.", seen=marks.hangs),
    Mistake("steps with its own gradient",
            "Each rank has trained on its own batches alone: optimizer.step() used gradients that were no mean yet, or "
            "never became one. It comes after ddp.finish_gradient_synchronization().", seen=_each_alone),
    Mistake("the ranks end with different models",
            "The ranks do not end with the same model: a rank without data must take the same optimizer step, "
            "with the same gradients.",
            seen=_not_equal),
    Mistake("all ranks agree on a wrong model",
            "The ranks agree, but on a wrong model. Does every step begin with optimizer.zero_grad(), also on a rank "
            "without data? And is each gradient the mean over the ranks that had a batch?",
            seen=lambda case, got, wire: isinstance(got, tuple), general=True),
)  # fmt: skip

EXERCISE = declared(
    id="uneven_inputs",
    functions=("train_uneven",),
    given=("MiniDDP",),
    driver=drive,
    oracle=expected,
    least=least_traffic.of_batches,
    visible=(
        uneven_case("3 ranks with 2, 3 and 1 batches", 401, [2, 3, 1]),
        uneven_case("2 ranks, one has nothing at all", 402, [0, 2]),
        uneven_case("3 ranks, the same number each", 403, [2, 2, 2]),
        uneven_case("4 ranks with 2, 1, 0 and 2 batches", 404, [2, 1, 0, 2]),
    ),
    hints=(
        "How does a rank learn that somebody still has data? And what must a rank without data still do in each step?",
        "Before each step all_reduce a 1 or a 0: the sum is the number of ranks that have a batch. At 0 all stop. A "
        "rank without a batch calls finish_gradient_synchronization, which sends zeros for it; the mean was over all "
        "N ranks, so multiply each gradient by N and divide by the number that had data.",
        "while True: optimizer.zero_grad(); batch = next(batches, None); active = torch.tensor(float(batch is not "
        "None)); dist.all_reduce(active); if active == 0: break ... p.grad *= dist.get_world_size() / active",
    ),
    looks=(wrong_models,),
    mistakes=MISTAKES,
)
