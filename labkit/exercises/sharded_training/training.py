"""One process in the place of all ranks: what parameters must be after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Result, Way
from labkit.checks.finding import Find, Finding
from labkit.checks.least_traffic import MOST_PACKED, Bytes, both_ways
from labkit.checks.on_ranks.hard_model import HardModel, hard_batch
from labkit.checks.tensor_values import close
from labkit.checks.values import flag, integer, listed, texts
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.on_ranks import (
    OPTIONS,
    grouped,
    kind_for,
    model_for,
    right_in_its_shard,
    scaled,
    slow_down,
)
from labkit.exercises.sharded_training.travels import answered
from labkit.words import join

Parameters = Mapping[str, Value]


def training_case(
    name: str, seed: int, world_size: int, *, same_batch: bool, num_steps: int = 3, groups: bool = False,
    slower: bool = False, spare: Sequence[int] = (), adamax: bool = False, apart: bool = False,
    about: Mapping[str, Value] | None = None, more: Mapping[str, Value] | None = None, **model: int,
) -> Case:  # fmt: skip
    """Return a case in which a hard model takes some steps.

    Args:
        name: In words.
        seed: Draws it.
        world_size: Number of ranks.
        same_batch: Every rank has the same samples; else each has its own.
        num_steps: How many.
        groups: Two groups of parameters, with options of their own.
        slower: Learning rates are halved before the last step.
        spare: The steps in which the spare layer is used; it is there if this is not ().
        adamax: The optimizer that is handed over is Adamax; else AdamW.
        apart: Each rank's gradients are right in its own shard alone.
        about: What only the judge knows.
        more: What ranks are given besides.
        model: Of the hard model; see there.
    """
    options: dict[str, Value] = {"unused": bool(spare), **model}
    inputs = []
    for rank in range(world_size):
        steps: list[Value] = []
        for number in range(num_steps):
            whose = () if same_batch else ("rank", rank)
            part = draws.part_of(seed, *whose, "batch", number)
            x, y = hard_batch(part, 4)
            steps.append({"x": x, "y": y, "spare": number in spare, "slower": slower and number == num_steps - 1})
        inputs.append({
            "seed": draws.part_of(seed, "model"), "model": options, "groups": groups, "steps": steps,
            **({"adamax": True} if adamax else {}), **(more or {}),
            **({"beside": draws.part_of(seed, "rank", rank, "beside")} if apart else {}),
        })  # fmt: skip
    return Case(name, world_size, tuple(inputs), about or {})


def alone(
    case: Case, *, groups: bool | None = None, slower: bool | None = None, zeros: bool = False, ranks: int = 0,
    plain: bool = False, forgets: bool = False, unsharded: int | None = None, parameters: bool = False,
    one_rate: bool = False, again: str = "",
) -> list[dict[str, Tensor]]:  # fmt: skip
    """Return the parameters after each step of one process that has all ranks' samples.

    Args:
        case: What is trained.
        groups: Whether groups are kept; None for what the case says.
        slower: Whether learning rates change; None for what the case says.
        zeros: Parameters without a gradient get zeros.
        ranks: Gradients are multiplied by the number of ranks to this power.
        plain: The optimizer gets no options beside the groups' own.
        forgets: It has no state when a step begins.
        parameters: What travels is parameters in place of their gradients.
        one_rate: All groups take the learning rate of the first.
        again: "stale" takes a parameter's last gradient where it has none; "sum" adds up those of all steps.
        unsharded: The rank whose gradients it takes whole, where they are right in a shard alone.
    """
    inputs = case.inputs[0]
    model = model_for(inputs)
    given = grouped(model, flag(inputs, "groups") if groups is None else groups)
    optimizer = kind_for(inputs)(given, **({} if plain else OPTIONS))
    found = []
    earlier: dict[Tensor, Tensor] = {}
    for number, step in enumerate(listed(inputs, "steps")):
        optimizer.zero_grad()
        if step["slower"] if slower is None else slower:
            slow_down(optimizer)
        with _marked(model, case, number):
            torch.autograd.backward(_loss(model, case, number))
        if unsharded is not None and "beside" in case.inputs[unsharded]:
            seed = integer(case.inputs[unsharded], "beside")
            right_in_its_shard(model, seed, number, unsharded, case.world_size)
        for parameter in filter(lambda each: each.requires_grad, model.parameters()):
            if parameter.grad is not None:
                parameter.grad = parameter.detach().clone() if parameters else parameter.grad
                parameter.grad *= float(case.world_size) ** ranks
            elif zeros:
                parameter.grad = torch.zeros_like(parameter)
        if again:
            _with_earlier(model, earlier, added=again == "sum")
        if forgets:
            optimizer.state = {}
        for group in optimizer.param_groups if one_rate else ():
            group["lr"] = optimizer.param_groups[0]["lr"]
        optimizer.step()
        found.append({name: each.detach().clone() for name, each in model.named_parameters()})
    return found


def _with_earlier(model: nn.Module, earlier: dict[Tensor, Tensor], added: bool) -> None:
    """Give parameters gradients of earlier steps: to all, added up, or to those that have none; note what they have."""
    for parameter in model.parameters():
        old = earlier.get(parameter)
        if old is not None and (added or parameter.grad is None):
            parameter.grad = old if parameter.grad is None else parameter.grad + old
        if parameter.grad is not None:
            earlier[parameter] = parameter.grad.clone()


@contextmanager
def _marked(model: HardModel, case: Case, step: int) -> Iterator[None]:
    """Scale what the driver's marks scale by the numbers that they ask for.

    In forward these are the inputs of blocks, in backward the gradients of their outputs. Without blocks it is the
    gradient of what `fixed` returns (scattered_gradients).
    """
    names = texts(case.inputs[0], "blocks") if "blocks" in case.inputs[0] else []
    inputs, outputs = names, list(reversed(names)) or ["fixed"]
    first = step * (len(inputs) + len(outputs))
    come = [answered(case, first + place) for place in range(len(inputs) + len(outputs))]
    hooks = [
        *(getattr(model, name).register_forward_pre_hook(_scales_input(come.pop(0))) for name in inputs),
        *(getattr(model, name).register_forward_hook(_scales_gradient(come.pop(0))) for name in outputs),
    ]
    yield
    for hook in hooks:
        hook.remove()


def _scales_input(number: float) -> Callable[..., Tensor]:
    return lambda layer, given: scaled(given[0], number)


def _scales_gradient(number: float) -> Callable[..., None]:
    def on_output(layer: nn.Module, given: object, output: Tensor) -> None:
        output.register_hook(lambda gradient: scaled(gradient, number))  # type: ignore[no-untyped-call]

    return on_output


def _loss(model: HardModel, case: Case, number: int) -> Tensor:
    losses = []
    for inputs in case.inputs:
        step = listed(inputs, "steps")[number]
        losses.append(nn.functional.mse_loss(model(step["x"], spare=step["spare"]), step["y"]))
    return torch.stack(losses).mean()


def begun(case: Case) -> dict[str, Tensor]:
    """Return the parameters before the first step."""
    return {name: each.detach().clone() for name, each in model_for(case.inputs[0]).named_parameters()}


def wrong_names(came: Parameters, right: Parameters) -> list[str]:
    """Return the names of the parameters that differ."""
    return [name for name in right if not close(came.get(name), right[name])]


def trained(**how: Any) -> Way:
    """Return the way of one process that trains so; see `alone`."""
    return lambda case, rank: alone(case, **how)


def _equal(came: Sequence[Parameters], right: Sequence[Parameters]) -> bool:
    return not any(wrong_names(a, b) for a, b in zip(came, right, strict=True))


def _first_wrong(came: Sequence[Parameters], right: Sequence[Parameters]) -> Mapping[str, object]:
    step, names = next((at, wrong_names(*pair)) for at, pair in enumerate(zip(came, right, strict=True))
                       if wrong_names(*pair))  # fmt: skip
    before = " The steps before are right: what does a step leave behind, or find, that is of another?" if step else ""
    return {"step": step, "names": join(names), "before": before, "got": "", "wanted": ""}


STEPS = Result(
    "steps", "After step {step} rank {rank} has wrong values in {names}.{before}", same=_equal, shown=_first_wrong
)
"""The parameters after each step, by name."""


def num_trained(case: Case) -> list[int]:
    """Return the size of each parameter that is ever trained."""
    return [each.numel() for each in model_for(case.inputs[0]).parameters() if each.requires_grad]


def least_traffic(case: Case) -> dict[int, Bytes]:
    """Return what must travel where ranks have samples of their own: each step, a number for each trained element."""
    size = MOST_PACKED // 2 if case.inputs[0].get("dtype") else MOST_PACKED
    steps = listed(case.inputs[0], "steps")
    return both_ways(range(case.world_size), len(steps) * sum(num_trained(case)), size)


def steps_that_came(values: Values) -> Sequence[Parameters]:
    """Return the parameters after each step on a rank."""
    return cast(list[Parameters], values["steps"])


def first_steps(got: Got) -> list[Parameters]:
    """Return the parameters after step 0 of each rank; of none, where the run failed."""
    return [] if isinstance(got, Failure) else [steps_that_came(values)[0] for values in got]


def own_gradients(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in step 0 each rank has updated its shard by the gradients of its own samples."""
    alike = [alone(Case("", 1, (inputs,)))[0] for inputs in case.inputs]
    found = {}
    for name, first in alike[0].items():
        size = -(-first.numel() // len(alike))
        parts = [each[name].reshape(-1)[rank * size : (rank + 1) * size] for rank, each in enumerate(alike)]
        found[name] = torch.cat(parts).view(first.shape)
    return any(not wrong_names(came, found) for came in first_steps(got))


EVERYTHING, UNEQUAL = "everything on every rank", "more than a share"


def keeps_its_share(unequal: str = EVERYTHING) -> Find:
    """Return the rule that no rank's optimizer keeps more than a share of the state.

    Args:
        unequal: The mistake where a rank keeps more, and not all.
    """

    def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
        sizes = num_trained(case)
        share = 2 * (sum(-(-each // case.world_size) for each in sizes) + max(sizes) // 2)
        for rank, values in enumerate(got):
            kept = integer(values, "kept")
            if kept > share:
                text = f"The values are right, but rank {rank}'s optimizer keeps {kept} elements; all ranks' together "
                name = EVERYTHING if kept >= 2 * sum(sizes) else unequal
                yield Finding(name, f"{text}need {2 * sum(sizes)}.", f"at most {share}", str(kept), rank)

    return find
