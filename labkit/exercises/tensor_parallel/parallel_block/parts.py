"""What a block's parts compute, and what they would compute with a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import values
from labkit.checks.case import Case, Values
from labkit.checks.groups import group_of
from labkit.exercises.tensor_parallel.members import part
from labkit.exercises.tensor_parallel.parallel_block.driver import layers_of

MLP, ATTENTION = "ParallelMLP", "ParallelAttention"
LR = 0.1
_OTHER_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": partial(functional.gelu, approximate="tanh"), "relu": functional.relu, "none": lambda middle: middle,
}  # fmt: skip
"""What is there in place of gelu where a mistake was made."""
_OTHER_ORDERS = {"k first": (1, 0, 2), "v first": (2, 1, 0), "v second": (0, 2, 1)}
"""Which thirds are taken for q, k and v where a mistake was made."""
_CUTS = ("rows", "columns", "bias rows", "no bias", "head by head")


def is_mlp(case: Case) -> bool:
    """Return whether a case asks for an MLP."""
    return values.text(case.inputs[0], "part") == MLP


def _shape(case: Case) -> tuple[int, int]:
    """Return how many things are shared out, and the width of each: hidden units, or heads."""
    units = cast("list[Tensor]", case.inputs[0]["layers"])[2].shape[1]
    count = units if is_mlp(case) else values.integer(case.inputs[0], "num_heads")
    return count, units // count


def units(case: Case, rank: int) -> slice:
    """Return which rows of the first layer (of each third, for attention) and columns of the second are a rank's."""
    count, width = _shape(case)
    mine = part(count, case, rank)
    return slice(mine.start * width, mine.stop * width)


def put_part(source: Sequence[Tensor], target: Sequence[Tensor], own: slice) -> None:
    """Copy a part of both layers, the last bias left out."""
    thirds = len(source[0]) // source[2].shape[1]
    for place in range(2):  # weight and bias of the first layer: q, k and v one after another, or one
        for third, into in zip(source[place].chunk(thirds), target[place].chunk(thirds), strict=True):
            into[own] = third[own]
    target[2][:, own] = source[2][:, own]


def whole_layers(case: Case) -> list[Tensor]:
    """Return the whole layers: each part as the rank has it whose part it is."""
    found = given_layers(case, 0)
    for rank in group_of(case, 0):
        put_part(given_layers(case, rank), found, units(case, rank))
    return [each.requires_grad_() for each in found]


def given_layers(case: Case, rank: int) -> list[Tensor]:
    """Return copies of what a rank is given: weight and bias of both layers."""
    return [each.detach().clone() for layer in layers_of(case.inputs[rank]) for each in layer.parameters()]


def computed(case: Case, tensors: Sequence[Tensor], x: Tensor, how: str = "") -> Tensor:
    """Return what an MLP, or attention, with these weights computes; a part's weights give a part's partial sum.

    Args:
        case: What is asked.
        tensors: Weight and bias of both layers.
        x: What the first layer reads.
        how: Another way to go on after it, see `after_first`.
    """
    return after_first(case, functional.linear(x, *tensors[:2]), tensors[2:], how)


def after_first(case: Case, middle: Tensor, tensors: Sequence[Tensor], how: str = "") -> Tensor:
    """Return what comes of the first layer's result.

    Args:
        case: What is asked.
        middle: What the first layer made.
        tensors: Weight and bias of the second layer.
        how: "later" sees later tokens, too, "zeros" gives them a score of 0; "by head" and "head by head" take q, k and
            v of one head after another; "flat" forgets to put the heads of a token together; "whole width" and "share
            of it" divide scores by the root of those; "share of heads" divides the width by a rank's heads, not by all;
            "tanh", "relu" and "none" are other activations of an MLP; "k first", "v first" and "v second" take one
            third for another.
    """
    if is_mlp(case):
        activation = _OTHER_ACTIVATIONS.get(how, functional.gelu)
        return functional.linear(activation(middle), *tensors)
    (batch, count), (heads, width) = middle.shape[:2], _shape(case)
    if how in ("by head", "head by head"):
        q, k, v = middle.view(batch, count, -1, 3, width).permute(3, 0, 2, 1, 4)
    else:
        thirds = [each.view(batch, count, -1, width).transpose(1, 2) for each in middle.chunk(3, dim=-1)]
        q, k, v = (thirds[place] for place in _OTHER_ORDERS.get(how, (0, 1, 2)))
    if how == "share of heads":
        q, k, v = (each.transpose(1, 2).reshape(batch, count, -1, heads * width // q.shape[1]) for each in (q, k, v))
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    by = {"share of heads": q.shape[-1], "whole width": heads * width, "share of it": heads * width / q.shape[1]}.get(
        how, width
    )
    if how == "zeros":
        earlier = torch.ones(count, count, dtype=torch.bool).tril()
        mixed = (by**-0.5 * q @ k.transpose(-1, -2)).masked_fill(~earlier, 0.0).softmax(-1) @ v
    else:
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=how != "later", scale=by**-0.5)
    mixed = mixed.reshape(batch, count, -1) if how == "flat" else mixed.transpose(1, 2).flatten(2)
    return functional.linear(mixed, *tensors)


def expected(case: Case) -> list[Values]:
    """Return what each rank gets: what one process computes with the whole layers and the batch of the rank's group."""
    return [{} if refused(case, rank) else _one_process(case, rank) for rank in range(case.world_size)]


def _one_process(case: Case, rank: int, kept: tuple[int, ...] = ()) -> Values:
    """Return what one process computes; the step leaves the tensors at the places `kept` as they were."""
    inputs, layers = case.inputs[rank], whole_layers(case)
    x = values.tensor(inputs, "x").clone().requires_grad_()
    out = computed(case, layers, x)
    torch.autograd.backward(out, values.tensor(inputs, "gradient"))
    with torch.no_grad():
        stepped = [
            each if place in kept else each - LR * each.grad
            for place, each in enumerate(layers)
            if each.grad is not None
        ]
        again = computed(case, stepped, values.tensor(inputs, "again"))
    return {"out": out.detach(), "kept": x.detach(), "gradient": x.grad, "again": again}


def refused(case: Case, rank: int) -> bool:
    """Return whether a rank of this case would have no head."""
    return not is_mlp(case) and len(group_of(case, rank)) > values.integer(case.inputs[0], "num_heads")


def most_numbers(case: Case, rank: int) -> int:
    """Return how many numbers a rank's part has, both biases included."""
    first, _, second, after = whole_layers(case)
    mine = units(case, rank)
    thirds = 1 if is_mlp(case) else 3
    numbers: int = (mine.stop - mine.start) * (thirds * (first.shape[1] + 1) + second.shape[0]) + after.numel()
    return numbers


def _right(case: Case, rank: int, key: str) -> Tensor:
    return values.tensor(expected(case)[rank], key)


def _last_bias(case: Case) -> Tensor:
    return whole_layers(case)[3].detach()


def _cut(case: Case, rank: int, mine: slice, mixed_up: str = "") -> list[Tensor]:
    """Return a rank's weights, the last bias zero.

    Args:
        case: What is asked.
        rank: Whose.
        mine: Its units.
        mixed_up: "rows" takes consecutive rows of q, k and v, "bias rows" of their bias alone, "columns" the first
            columns of `out` on every rank; "no bias" leaves the first layer's out; "head by head" takes q,
            k and v of a head to be one after another.
    """
    first, bias, second, _ = given_layers(case, rank)
    if is_mlp(case):
        first, bias = first[mine], bias[mine]
    elif mixed_up == "head by head":
        count, width = _shape(case)
        heads = slice(mine.start // width, mine.stop // width)
        first, bias = (each.view(count, 3, width, *each.shape[1:])[heads].flatten(0, 2) for each in (first, bias))
    elif mixed_up == "rows":
        rows = slice(3 * mine.start, 3 * mine.stop)
        first, bias = first[rows], bias[rows]
    else:
        consecutive = bias[3 * mine.start : 3 * mine.stop]
        first, bias = (torch.cat([third[mine] for third in whole.chunk(3)]) for whole in (first, bias))
        bias = consecutive if mixed_up == "bias rows" else bias
    bias = torch.zeros_like(bias) if mixed_up == "no bias" else bias
    columns = slice(0, mine.stop - mine.start) if mixed_up == "columns" else mine
    return [first, bias, second[:, columns], torch.zeros_like(second[:, 0])]


def own(case: Case, rank: int, how: str = "") -> Tensor:
    """Return a rank's partial sum, without the last bias."""
    mixed_up = how if how in _CUTS else ""
    tensors = _cut(case, rank, units(case, rank), mixed_up)
    return computed(case, tensors, values.tensor(case.inputs[rank], "x"), how)


def own_and_bias(case: Case, rank: int) -> Tensor:
    """Return a rank's partial sum with the last bias."""
    return own(case, rank) + _last_bias(case)


def _sum(case: Case, ranks: Iterable[int], how: str = "") -> Tensor:
    return torch.stack([own(case, each, how) for each in ranks]).sum(0) + _last_bias(case)


def put_together(case: Case, rank: int, how: str) -> Tensor:
    """Return the result where every rank computes its part in this way."""
    return _sum(case, group_of(case, rank), how)


def left_early(case: Case, rank: int, *, before: bool, again: bool) -> Tensor | None:
    """Return the result where hidden units are added up over the ranks; None for attention.

    Args:
        case: What is asked.
        rank: Whose.
        before: Whether before gelu, or behind it.
        again: Whether what the second layer makes is added up, too.
    """
    parts = [_cut(case, each, units(case, each)) for each in group_of(case, rank)]
    if not is_mlp(case) or len({len(each[1]) for each in parts}) > 1:
        return None
    x = values.tensor(case.inputs[rank], "x")
    made = [functional.linear(x, *each[:2]) for each in parts]
    added = torch.stack(made if before else [functional.gelu(each) for each in made]).sum(0)
    hidden = functional.gelu(added) if before else added
    second = torch.stack([each[2] for each in parts]).sum(0) if again else _cut(case, rank, units(case, rank))[2]
    return functional.linear(hidden, second, _last_bias(case))


def parts_of_heads(case: Case, rank: int, *, by_part: bool) -> Tensor | None:
    """Return attention's result where each rank has some columns of every head, with scores divided by their root or
    by the whole head's; None for an MLP, and where a rank would have none.
    """
    (count, width), ranks = _shape(case), group_of(case, rank)
    if is_mlp(case) or width < len(ranks):
        return None
    found, x = _last_bias(case), values.tensor(case.inputs[rank], "x")
    for each in ranks:
        mine = part(width, case, each)
        taken = torch.arange(count * width).view(count, width)[:, mine].flatten()
        first, bias, second, _ = given_layers(case, each)
        thirds = functional.linear(x, first, bias).chunk(3, dim=-1)
        q, k, v = (third[..., taken].view(*x.shape[:2], count, -1).transpose(1, 2) for third in thirds)
        scale = (q.shape[-1] if by_part else width) ** -0.5
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        found = found + functional.linear(mixed.transpose(1, 2).flatten(2), second[:, taken])
    return found


def columns_mixed_up(case: Case, rank: int, mlp: bool) -> Tensor | None:
    """Return the result where every rank takes the second layer's first columns; None where the other part is asked."""
    return put_together(case, rank, "columns") if is_mlp(case) == mlp else None


def rest_lost(case: Case, rank: int) -> Tensor | None:
    """Return the result where every rank takes count // N units, and nobody the rest."""
    (count, width), ranks = _shape(case), group_of(case, rank)
    each = count // len(ranks) * width
    if each * len(ranks) == count * width:
        return None
    parts = [_cut(case, rank, slice(place * each, (place + 1) * each)) for place in range(len(ranks))]
    x = values.tensor(case.inputs[rank], "x")
    return torch.stack([computed(case, tensors, x) for tensors in parts]).sum(0) + _last_bias(case)


def _of_all(case: Case) -> Case:
    return replace(case, inputs=tuple({**each, "groups": None} for each in case.inputs))


def group_ignored(case: Case, rank: int, *, cut: bool, added: bool) -> Tensor | None:
    """Return the result where the parts are cut, or added up, as if all ranks shared one copy."""
    if len(group_of(case, rank)) == case.world_size:
        return None
    return _sum(_of_all(case) if cut else case, range(case.world_size) if added else group_of(case, rank))


def other_biases(case: Case, rank: int, count: Callable[[int], int]) -> Tensor:
    """Return the result with so many times the last bias, of N ranks."""
    return _right(case, rank, "out") + (count(len(group_of(case, rank))) - 1) * _last_bias(case)


def own_gradient(case: Case, rank: int) -> Tensor:
    """Return the gradient of x behind a rank's own part."""
    x = values.tensor(case.inputs[rank], "x").clone().requires_grad_()
    partial = computed(case, _cut(case, rank, units(case, rank)), x)
    return torch.autograd.grad(partial, x, values.tensor(case.inputs[rank], "gradient"))[0]


def gradient_of_all(case: Case, rank: int) -> Tensor | None:
    """Return the gradient of x where all ranks add up theirs, not those of the group."""
    if len(group_of(case, rank)) == case.world_size:
        return None
    return torch.stack([own_gradient(case, each) for each in range(case.world_size)]).sum(0)


def entered_late(case: Case, rank: int) -> Tensor:
    """Return the gradient of x where what the first layer made is entered, instead of x."""
    found: list[Tensor] = []
    for each in group_of(case, rank):
        first, bias, *second = _cut(case, each, units(case, each))
        middle = functional.linear(values.tensor(case.inputs[each], "x"), first, bias).requires_grad_()
        after = after_first(case, middle, second)
        found += torch.autograd.grad(after, middle, values.tensor(case.inputs[each], "gradient"))
    return torch.stack(found).sum(0) @ _cut(case, rank, units(case, rank))[0]


def entered_hidden(case: Case, rank: int) -> Tensor | None:
    """Return the gradient of x where an MLP's hidden units are entered behind gelu; None for attention."""
    parts = {each: _cut(case, each, units(case, each)) for each in group_of(case, rank)}
    if not is_mlp(case) or len({len(each[1]) for each in parts.values()}) > 1:
        return None
    behind = torch.stack(
        [values.tensor(case.inputs[each], "gradient") @ tensors[2] for each, tensors in parts.items()]
    ).sum(0)
    x = values.tensor(case.inputs[rank], "x").clone().requires_grad_()
    hidden = functional.gelu(functional.linear(x, *parts[rank][:2]))
    return torch.autograd.grad(hidden, x, behind)[0]


def gathered_hidden(case: Case, rank: int) -> Tensor | None:
    """Return the gradient of x where an MLP cuts both layers by columns, and gathers hidden units without gradients."""
    if not is_mlp(case):
        return None
    found: list[Tensor] = []
    for each in group_of(case, rank):
        first, bias, second, _ = given_layers(case, each)
        mine, columns = units(case, each), part(len(second), case, each)
        x = values.tensor(case.inputs[each], "x").clone().requires_grad_()
        hidden = functional.gelu(functional.linear(x, first[mine], bias[mine]))
        behind = values.tensor(case.inputs[each], "gradient")[..., columns] @ second[columns][:, mine]
        found += torch.autograd.grad(hidden, x, behind)
    return torch.stack(found).sum(0)


def gradient_again(case: Case, rank: int) -> Tensor:
    """Return N times the gradient of x."""
    return len(group_of(case, rank)) * _right(case, rank, "gradient")


def untrained(case: Case, rank: int) -> Tensor:
    """Return the result after a step that moved nothing."""
    layers = [each.detach() for each in whole_layers(case)]
    return computed(case, layers, values.tensor(case.inputs[rank], "again"))


def untrained_but(case: Case, rank: int, kept: tuple[int, ...]) -> Tensor:
    """Return the result after a step that left these of the layers' weights and biases as they were."""
    return _one_process(case, rank, kept)["again"]  # type: ignore[return-value]


def other_step(case: Case, rank: int, times: Callable[[int], float]) -> Tensor:
    """Return the result after a step in which the bias goes further by so many steps, of N ranks."""
    gradient = values.tensor(case.inputs[rank], "gradient").flatten(0, 1).sum(0)
    return _right(case, rank, "again") - LR * gradient * times(len(group_of(case, rank)))


def sum_times(case: Case, rank: int, times: Callable[[int], float]) -> Tensor:
    """Return the result where what `leave` gives is multiplied by `times`, of N ranks."""
    bias = _last_bias(case)
    return (_right(case, rank, "out") - bias) * times(len(group_of(case, rank))) + bias
