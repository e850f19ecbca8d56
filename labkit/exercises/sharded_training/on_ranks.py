"""What the drivers of this lesson share: AdamW that says what it keeps, and marks on the wire."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from labkit.checks.case import Value, Values
from labkit.checks.on_ranks.hard_model import HardModel, hard_model
from labkit.checks.on_ranks.model_state import loss_of
from labkit.checks.values import flag, integer, listed, texts
from labkit.torch_port.generators import generator

OPTIONS = {"lr": 0.05, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
_DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}
"""Torch's, for those who hand no options over."""
NUM_MARKS = 256
Cut = Callable[[], object]


class PlainAdamW:
    """AdamW element by element; torch.optim would first load its compiler, seconds in each fresh rank."""

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        groups = list(params)
        if not groups or not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.defaults = {**_DEFAULTS, **options}
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Take one more group of parameters."""
        self.param_groups.append({**self.defaults, **group, "params": list(group["params"])})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or fill them with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = None if set_to_none else torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if parameter not in self.state:
            zeros, count = torch.zeros_like(parameter), torch.zeros((), dtype=torch.float64)
            self.state[parameter] = {"step": count, "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        state["step"] += 1
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        mean, square = (
            state["exp_avg"] / (1 - beta1 ** state["step"]),
            state["exp_avg_sq"] / (1 - beta2 ** state["step"]),
        )
        parameter.sub_(group["lr"] * mean / (square.sqrt() + group["eps"]))

    @property
    def num_kept(self) -> int:
        """How many elements its state has, counters left out."""
        return sum(each.numel() for state in self.state.values() for name, each in state.items() if name != "step")

    def state_dict(self) -> dict[str, Any]:
        """Return state and options in torch's form: parameters have numbers."""
        numbers: dict[Tensor, int] = {}
        for group in self.param_groups:
            numbers.update({each: len(numbers) + at for at, each in enumerate(group["params"])})
        groups = [{**group, "params": [numbers[each] for each in group["params"]]} for group in self.param_groups]
        return {"state": {numbers[each]: dict(state) for each, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take up a copy of what state_dict returned."""
        params = [each for group in self.param_groups for each in group["params"]]
        self.state = {params[number]: copy.deepcopy(state) for number, state in saved["state"].items()}
        both = zip(self.param_groups, saved["param_groups"], strict=True)
        self.param_groups = [{**about, "params": group["params"]} for group, about in both]  # new dicts, as torch's are


class PlainAdamax(PlainAdamW):
    """Adamax element by element: as much state as AdamW has, under another name, and other steps."""

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if parameter not in self.state:
            zeros, count = torch.zeros_like(parameter), torch.zeros((), dtype=torch.float64)
            self.state[parameter] = {"step": count, "exp_avg": zeros, "exp_inf": zeros.clone()}
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        state["step"] += 1
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_inf"].copy_(torch.maximum(beta2 * state["exp_inf"], gradient.abs() + group["eps"]))
        parameter.sub_(group["lr"] / (1 - beta1 ** state["step"]) * state["exp_avg"] / state["exp_inf"])


def kind_for(inputs: Values) -> type[PlainAdamW]:
    """Return the optimizer that a case trains with."""
    return PlainAdamax if inputs.get("adamax") else PlainAdamW


def keeping(made: list[PlainAdamW], kind: type[PlainAdamW] = PlainAdamW) -> type[PlainAdamW]:
    """Return an optimizer of a kind that notes each that is made."""

    class Kept(kind):  # type: ignore[valid-type, misc]
        def __init__(self, params: Iterable[Any], **options: Any) -> None:
            super().__init__(params, **options)
            made.append(self)

    Kept.__name__ = Kept.__qualname__ = f"Kept{kind.__name__}"
    return Kept


def num_kept(made: list[PlainAdamW]) -> int:
    """Return how many elements of state this rank keeps."""
    return sum(each.num_kept for each in made)


def grouped(model: nn.Module, groups: bool) -> list[Any]:
    """Return the model's parameters, or two groups of them: matrices decay, the others do not and are slower."""
    if not groups:
        return list(model.parameters())
    matrices = [each for each in model.parameters() if each.dim() >= 2]
    others = [each for each in model.parameters() if each.dim() < 2]
    return [{"params": matrices}, {"params": others, "weight_decay": 0.0, "lr": OPTIONS["lr"] / 2}]  # type: ignore[operator]


def handed(model: nn.Module, inputs: Values) -> Any:
    """Return what an optimizer is given: groups, or an iterator over parameters, as model.parameters() is."""
    given = grouped(model, flag(inputs, "groups"))
    return given if inputs["groups"] else iter(given)


def slow_down(optimizer: Any) -> None:
    """Halve every group's learning rate, as a schedule does."""
    for group in optimizer.param_groups:
        group["lr"] /= 2


def backward(model: nn.Module, step: dict[str, Any]) -> None:
    """Compute the gradients of a step's loss."""
    options = {"spare": True} if step.get("spare") else {}
    torch.autograd.backward(loss_of(model(step["x"], **options), step["y"]))


def right_in_its_shard(model: nn.Module, seed: int, step: int, rank: int, world_size: int) -> None:
    """Put other numbers beside a rank's own shard of every gradient: of the rest nobody may make use here.

    Args:
        model: Its gradients are there.
        seed: The rank's own.
        step: Which step this is.
        rank: Whose shard stays.
        world_size: How many shards there are.
    """
    for place, parameter in enumerate(model.parameters()):
        if parameter.grad is not None:
            share = -(-parameter.numel() // world_size)
            draw = generator(seed, "beside", step, place)
            other = torch.randn(parameter.numel(), generator=draw, dtype=parameter.dtype)
            other[rank * share : (rank + 1) * share] = 0
            parameter.grad += other.view_as(parameter)


def steps_of(inputs: Values) -> list[dict[str, Any]]:
    """Return the steps that a rank is to take."""
    return listed(inputs, "steps")


def cutter() -> Cut:
    """Return what marks the wire: a barrier in a group of its own, whose order other calls do not depend on."""
    group = dist.new_group()
    return lambda: dist.barrier(group)


def asker(inputs: Values, cut: Cut) -> Callable[[], float]:
    """Return what asks for the next number: in turn each rank gives all ranks one that it has drawn.

    It marks the wire as a barrier does, and cannot be held back: who asks needs the number at once. In a case without
    marks it is `cut`, and what comes is 0.
    """
    if "marks" not in inputs:

        def nothing() -> float:
            cut()
            return 0.0

        return nothing
    group, drawn, count = dist.new_group(), drawn_marks(inputs), itertools.count()

    def ask() -> float:
        number, size = next(count), dist.get_world_size()
        came, source = torch.empty(1, dtype=torch.float64), number % size
        mine = [drawn[number : number + 1]] * size if source == dist.get_rank() else None
        dist.scatter(came, mine, src=source, group=group)
        return float(came)

    return ask


def drawn_marks(inputs: Values) -> Tensor:
    """Return the numbers that a rank gives when it is asked, more than any case asks for."""
    draw = generator(integer(inputs, "marks"), "marks")
    return torch.rand(NUM_MARKS, generator=draw, dtype=torch.float64)


def scaled(tensor: Tensor, number: float) -> Tensor:
    """Return a tensor times what follows from a number, another factor for each column; by 0 the tensor itself.

    Who learns the number later cannot make up for it: gradients of the layers before are no longer multiples.
    """
    if not number:
        return tensor
    factors = 1 + number * torch.linspace(-0.25, 0.25, tensor.shape[-1], dtype=torch.float64)
    return (tensor.double() * factors).to(tensor.dtype)


def goes_back(loss: Tensor) -> bool:
    """Return whether autograd still goes back through a loss: it refuses where it has seen what it kept change."""
    try:
        torch.autograd.backward(loss)
    except RuntimeError:
        return False
    return True


def squares_of(tensors: list[Tensor]) -> Tensor:
    """Return a loss for which autograd keeps these tensors, which become parameters."""
    return torch.stack([each.requires_grad_().square().sum() for each in tensors]).sum()


def values_of(model: nn.Module) -> dict[str, Value]:
    """Return a copy of each parameter by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def model_for(inputs: Values) -> HardModel:
    """Return this rank's model; where its children are the blocks, it has no others, in the order of their use."""
    model = hard_model(integer(inputs, "seed"), norm=False, **cast(dict[str, Any], inputs.get("model", {})))
    if inputs.get("children"):
        layers = {name: getattr(model, name) for name, _ in model.named_children()}
        for name, layer in layers.items():
            delattr(model, name)
            model.__dict__[name] = layer  # forward still finds it
        for name in texts(inputs, "blocks"):
            del model.__dict__[name]
            setattr(model, name, layers[name])
    return model
