"""broadcast_module: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from typing import Any, cast

from labkit.checks.case import Case, Got, Value, Values
from labkit.checks.draws import part_of
from labkit.checks.judged import Mistake, judged
from labkit.checks.on_ranks.model_state import gradients_of, model_of, state_of
from labkit.checks.tensor_values import compare_ranks
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ddp import least_traffic, marks
from labkit.exercises.ddp.broadcast_module.driver import drive
from labkit.exercises.ddp.cases import PLAIN
from labkit.exercises.ddp.replay import models_of
from labkit.exercises.ddp.starting import names_of, same


def model_case(name: str, seed: int, world_size: int, **model: bool) -> Case:
    """Return a case of broadcast_module: every rank begins with another model."""
    about = cast(Value, {**PLAIN, **model})
    inputs = tuple({"seed": part_of(seed, "rank", rank), "model": about} for rank in range(world_size))
    return Case(name, world_size, inputs)


def root_state(case: Case) -> list[Values]:
    """Return rank 0's model for every rank (the oracle of broadcast_module)."""
    return [{"state": state_of(model)} for model in models_of(case)]


def structure(case: Case) -> list[Any]:
    """Return what results look like: the oracle's, no gradients yet, and whether tensors are those of before."""
    return [
        {"state": state_of(each), "gradients": gradients_of(each), "same_tensors": bool} for each in models_of(case)
    ]


def judge_start(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether every rank holds rank 0's parameters and buffers, in the tensors it had."""
    assert isinstance(got, tuple)
    wrong = compare_ranks(got, [dict(values) for values in root_state(case)], ("state",), "the value")
    if wrong is None and not all(values.get("same_tensors") for values in got):
        wrong = Verdict(
            False,
            message="The values are right but lie in other tensors than before: an optimizer that was made earlier "
            "would change the old ones. Write into the tensors that are there.",
        )
    return wrong or Verdict(True)


def _start_wrong(names: tuple[str, ...]) -> marks.Seen:
    return lambda case, got, wire: (
        bool(names_of(case, got, "state", root_state(case)))
        and names_of(case, got, "state", root_state(case)) <= set(names)
    )


def _other_root(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple) or case.world_size < 2:
        return False
    roots = [state_of(model_of(inputs)) for inputs in case.inputs[1:]]
    return any(all(same(values.get("state"), root) for values in got) for root in roots)


def _untouched(case: Case, got: Got, wire: Wire) -> bool:
    if not isinstance(got, tuple):
        return False
    return all(
        same(values.get("state"), state_of(model_of(inputs))) for values, inputs in zip(got, case.inputs, strict=True)
    )


EXERCISE = judged(
    id="broadcast_module",
    functions=("broadcast_module",),
    driver=drive,
    oracle=root_state,
    structure=structure,
    least=least_traffic.of_start,
    judge=judge_start,
    visible=(
        model_case("3 ranks, a model with biases", 311, 3, norm=False, frozen=False),
        model_case("2 ranks, BatchNorm and a frozen layer", 312, 2),
        model_case("4 ranks, all of it", 313, 4),
    ),
    hints=(
        "What does a model hold besides its weights? Print model.state_dict().keys() of one with BatchNorm.",
        "dist.broadcast(tensor, src=0) for every parameter and every buffer, on all ranks in the same order. It writes "
        "into the tensor that is there.",
        "for tensor in [*module.parameters(), *module.buffers()]: dist.broadcast(tensor.detach(), src=0)",
    ),
    mistakes=(
        Mistake(
            "buffers not broadcast",
            "The parameters are right, the buffers are not: BatchNorm's running statistics are in module.buffers().",
            _start_wrong(marks.BUFFERS),
        ),
        Mistake(
            "frozen parameters not broadcast",
            "Parameters that need no gradient stayed as they were on each rank; the forward pass uses them too.",
            _start_wrong(marks.FROZEN),
        ),
        Mistake(
            "biases not broadcast",
            "Weights are right and biases are not: take every parameter, whatever its name or shape.",
            lambda case, got, wire: (
                bool(wrong := names_of(case, got, "state", root_state(case)))
                and all(name.endswith("bias") or name in ("scale", "norm.weight", *marks.BUFFERS) for name in wrong)
            ),
        ),
        Mistake("nothing reached the model", "Every rank still has its own model.", _untouched),
        Mistake("another root", "The ranks agree, but not on rank 0's model: src=0.", _other_root),
        Mistake(
            "averaged instead of broadcast",
            "The ranks hold something that no rank began with: broadcast takes rank 0's values, all_reduce mixes them.",
            lambda case, got, wire: isinstance(got, tuple) and "all_reduce" in wire.collective_kinds(),
        ),
        Mistake(
            "ranks call different things",
            "Every rank must call broadcast, also the one that sends: src=0 says who gives. (The barrier is this "
            "check's own: a rank that waits there has left your code.)",
            marks.hangs,
        ),
    ),
)
