"""A block in pieces: an MLP by its hidden units, attention by its heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import values
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, part
from labkit.exercises.tensor_parallel.parallel_block.driver import drive, layers_of

MLP, ATTENTION = "ParallelMLP", "ParallelAttention"
LR = 0.1


def block_case(
    name: str, seed: int, world_size: int, which: str, *, heads: int = 4, head_width: int = 3, hidden: int = 12,
    groups: list[list[int]] | None = None, apart: bool = False,
) -> Case:  # fmt: skip
    """Return a case of parallel_block.

    Args:
        name: What is special about it.
        seed: Of the weights and of x.
        world_size: How many ranks.
        which: "ParallelMLP" or "ParallelAttention".
        heads: How many; the width is theirs together.
        head_width: Of each.
        hidden: Units of an MLP.
        groups: Ranks that share a copy; None is all.
        apart: Each rank's layers are right in its own part alone; what others need of them are other numbers.
    """
    width = heads * head_width
    middle = (3 * width, width) if which == ATTENTION else (hidden, hidden)

    def drawn(what: str, *shape: int, scale: float = 1.0) -> Tensor:
        return normal(part_of(seed, what), *shape, scale=scale, dtype=torch.float64)

    layers: list[Value] = [
        drawn("first", middle[0], width, scale=width**-0.5), drawn("first bias", middle[0]),
        drawn("second", width, middle[1], scale=middle[1] ** -0.5), drawn("second bias", width),
    ]  # fmt: skip
    inputs: dict[str, Value] = {
        "part": which, "num_heads": heads, "layers": layers, "lr": LR, "x": drawn("x", 2, 5, width),
        "gradient": drawn("gradient", 2, 5, width), "again": drawn("again", 2, 5, width),
    }  # fmt: skip
    if groups is not None:
        inputs["groups"] = [list(each) for each in groups]
    case = Case(name, world_size, (inputs,) * world_size)
    if not apart:
        return case
    return Case(name, world_size, tuple({**inputs, "layers": _apart(case, rank, seed)} for rank in range(world_size)))


def _apart(case: Case, rank: int, seed: int) -> list[Value]:
    """Return the layers of a case with another's numbers beside a rank's own part; a bias that is added once stays."""
    whole = cast("list[Tensor]", case.inputs[0]["layers"])
    own = _units(case, rank)
    layers = [
        normal(part_of(seed, "rank", rank, place), *each.shape, dtype=each.dtype) / 2
        for place, each in enumerate(whole[:3])
    ]
    _put_part(whole, layers, own)
    return [*layers, whole[3]]


def _units(case: Case, rank: int) -> slice:
    """Return which rows of the first layer (of each third, for attention) and columns of the second are a rank's."""
    inputs = case.inputs[0]
    units = cast("list[Tensor]", inputs["layers"])[2].shape[1]
    if values.text(inputs, "part") == MLP:
        return part(units, case, rank)
    heads = values.integer(inputs, "num_heads")
    mine = part(heads, case, rank)
    return slice(mine.start * (units // heads), mine.stop * (units // heads))


def _put_part(source: Sequence[Tensor], target: Sequence[Tensor], own: slice) -> None:
    """Copy a part of both layers, the last bias left out."""
    thirds = len(source[0]) // source[2].shape[1]
    for place in range(2):  # weight and bias of the first layer: q, k and v one after another, or one
        for third, into in zip(source[place].chunk(thirds), target[place].chunk(thirds), strict=True):
            into[own] = third[own]
    target[2][:, own] = source[2][:, own]


def _computed(which: str, tensors: list[Tensor], x: Tensor, num_heads: int) -> Tensor:
    """Return what an MLP, or attention, with these weights computes; a part's weights give a part's partial sum."""
    first, bias, second, after = tensors
    middle = functional.linear(x, first, bias)
    if which == MLP:
        return functional.linear(functional.gelu(middle), second, after)
    q, k, v = (each.view(*each.shape[:2], num_heads, -1).transpose(1, 2) for each in middle.chunk(3, dim=-1))
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return functional.linear(mixed.transpose(1, 2).flatten(2), second, after)


def _layers(case: Case) -> list[Tensor]:
    """Return the whole layers: each part as the rank has it whose part it is."""
    found = _given_layers(case, 0)
    for rank in group_of(case, 0):
        _put_part(_given_layers(case, rank), found, _units(case, rank))
    return [each.requires_grad_() for each in found]


def _given_layers(case: Case, rank: int) -> list[Tensor]:
    return [each.detach().clone() for layer in layers_of(case.inputs[rank]) for each in layer.parameters()]


def _refused(case: Case, rank: int) -> bool:
    inputs = case.inputs[0]
    return values.text(inputs, "part") == ATTENTION and len(group_of(case, rank)) > values.integer(inputs, "num_heads")


def expected(case: Case) -> list[Values]:
    """Return what each rank gets: what one process computes with the whole layers."""
    inputs, layers = case.inputs[0], _layers(case)
    which, heads = values.text(inputs, "part"), values.integer(inputs, "num_heads")
    x = values.tensor(inputs, "x").clone().requires_grad_()
    out = _computed(which, layers, x, heads)
    torch.autograd.backward(out, values.tensor(inputs, "gradient"))
    with torch.no_grad():
        stepped = [each - LR * each.grad for each in layers if each.grad is not None]
        again = _computed(which, stepped, values.tensor(inputs, "again"), heads)
    right: Values = {"out": out.detach(), "kept": x.detach(), "gradient": x.grad, "again": again}
    return [{} if _refused(case, rank) else right for rank in range(case.world_size)]


def structure(case: Case) -> list[object]:
    """Return what results look like; a refusal is a text alone."""
    more = {"raised": str, "numel": int, "layers_kept": bool}
    return [{**right, **more} if right else {"raised": str} for right in expected(case)]


def _own(case: Case, rank: int, *, mixed_up: str = "", summed: bool = False) -> Tensor:
    """Return a rank's partial sum without bias, or the sum of the parts that all ranks would compute.

    Args:
        case: What is asked.
        rank: Whose.
        mixed_up: "rows" takes consecutive rows of q, k and v, "columns" the first columns of `out` on every rank.
        summed: Whether all parts of the rank's group are added up.
    """
    if summed:
        return torch.stack([_own(case, each, mixed_up=mixed_up) for each in group_of(case, rank)]).sum(0)
    inputs, (first, bias, second, _) = case.inputs[rank], _given_layers(case, rank)
    which, heads = values.text(inputs, "part"), values.integer(inputs, "num_heads")
    mine = part(second.shape[1] if which == MLP else heads, case, rank)
    count = mine.stop - mine.start
    each = 1 if which == MLP else second.shape[1] // heads
    columns = slice(mine.start * each, mine.stop * each)
    if which == MLP:
        first, bias = first[columns], bias[columns]
    elif mixed_up == "rows":
        rows = slice(3 * columns.start, 3 * columns.stop)
        first, bias = first[rows], bias[rows]
    else:
        first, bias = (torch.cat([third[columns] for third in whole.chunk(3)]) for whole in (first, bias))
    if mixed_up == "columns":
        columns = slice(0, count * each)
    tensors = [first, bias, second[:, columns], torch.zeros_like(second[:, 0])]
    return _computed(which, tensors, values.tensor(inputs, "x"), count)


def _right(case: Case, rank: int, key: str) -> Tensor:
    return values.tensor(expected(case)[rank], key)


def _last_bias(case: Case) -> Tensor:
    return _layers(case)[3].detach()


def _other_biases(case: Case, rank: int, count: Callable[[int], int]) -> Tensor:
    """Return the result with so many times the last bias, of N ranks."""
    return _right(case, rank, "out") + (count(len(group_of(case, rank))) - 1) * _last_bias(case)


def _mixed_up(case: Case, rank: int, what: str) -> Tensor:
    return _own(case, rank, mixed_up=what, summed=True) + _last_bias(case)


def _own_gradient(case: Case, rank: int) -> Tensor:
    x = values.tensor(case.inputs[rank], "x").clone().requires_grad_()
    partial = _own(Case(case.name, case.world_size, tuple({**each, "x": x} for each in case.inputs)), rank)
    return torch.autograd.grad(partial, x, values.tensor(case.inputs[rank], "gradient"))[0]


def _untrained(case: Case, rank: int) -> Tensor:
    inputs, layers = case.inputs[0], [each.detach() for each in _layers(case)]
    which, heads = values.text(inputs, "part"), values.integer(inputs, "num_heads")
    return _computed(which, layers, values.tensor(inputs, "again"), heads)


def _other_step(case: Case, rank: int, times: Callable[[int], float]) -> Tensor:
    """Return the result after a step in which the bias goes further by so many steps, of N ranks."""
    gradient = values.tensor(case.inputs[0], "gradient").flatten(0, 1).sum(0)
    return _right(case, rank, "again") - LR * gradient * times(len(group_of(case, rank)))


def most_numbers(case: Case, rank: int) -> int:
    """Return how many numbers a rank's part has, both biases included."""
    first, _, second, after = _layers(case)
    heads = values.integer(case.inputs[0], "num_heads")
    is_mlp = values.text(case.inputs[0], "part") == MLP
    mine = part(second.shape[1] if is_mlp else heads, case, rank)
    units = (mine.stop - mine.start) * (1 if is_mlp else second.shape[1] // heads)
    numbers: int = units * ((1 if is_mlp else 3) * (first.shape[1] + 1) + second.shape[0]) + after.numel()
    return numbers


def _refusals(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what was refused without need, and what was not."""
    for rank, came in enumerate(got):
        raised = values.text(came, "raised")
        if _refused(case, rank) and not raised:
            heads, size = values.integer(case.inputs[0], "num_heads"), len(group_of(case, rank))
            text = f"{heads} heads for {size} ranks: ValueError was expected on rank {rank}, none was raised."
            yield Finding(_NO_REFUSAL, text, rank=rank)
        elif raised and not _refused(case, rank):
            yield Finding(_NEEDLESS, f"Rank {rank} raised ValueError: {raised}", rank=rank)


def _changed_layers(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        if "layers_kept" in came and not values.flag(came, "layers_kept"):
            yield Finding(_LAYERS, f"On rank {rank} the layers given were changed by the step.", rank=rank)


def _kept_too_much(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        if "numel" in came and values.integer(came, "numel") > most_numbers(case, rank):
            text = f"Rank {rank} holds {came['numel']} numbers as parameters, its part has {most_numbers(case, rank)}."
            yield Finding(_KEPT, text, rank=rank)


def _must_refuse(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the cut leaves a rank without heads, so that a failure is that nobody refused."""
    return isinstance(got, Failure) and any(_refused(case, rank) for rank in range(case.world_size))


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a partial sum of each rank, and a gradient."""
    if any(_refused(case, rank) for rank in range(case.world_size)):
        return {}
    return both_ways(range(case.world_size), 2 * math.prod(values.tensor(case.inputs[0], "x").shape))


_KEPT, _LAYERS, _NO_REFUSAL, _NEEDLESS = (
    "keeps more than its part", "the layers given were changed", "no refusal", "a needless refusal",
)  # fmt: skip

EXERCISE = declared(
    id="parallel_block",
    functions=(MLP, ATTENTION),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least,
    looks=(
        _refusals,
        tensor_result("out", "the result"),
        tensor_result("gradient", "the gradient of x"),
        _changed_layers,
        tensor_result("again", "the result after a step of SGD"),
        _kept_too_much,
    ),
    mistakes=(
        Mistake("bias on every rank",
                "The result contains the second layer's bias once per rank. Add it after the sum, or on one rank only.",
                {"out": partial(_other_biases, count=lambda n: n)}),
        Mistake("no bias", "The second layer's bias is missing in the result.",
                {"out": partial(_other_biases, count=lambda n: 0)}),
        Mistake("not summed", "The result is this rank's partial sum: `leave` it.",
                {"out": (_own, lambda case, rank: _own(case, rank) + _last_bias(case))}),
        Mistake("wrong half of q, k and v",
                "You took consecutive rows of qkv.weight. It is q on top of k on top of v: take this rank's heads out "
                "of each third (chunk(3)), of the bias, too.", {"out": partial(_mixed_up, what="rows")}),
        Mistake("wrong columns of out",
                "The columns of out.weight belong to the heads: rank 1's heads meet the columns after rank 0's.",
                {"out": partial(_mixed_up, what="columns")}),
        Mistake("gradient not reduced", "The gradient of x is this rank's own. `enter` x before the first layer.",
                {"gradient": _own_gradient}),
        Mistake("gradient reduced again", "The gradient of x is N times too large: somewhere it is reduced twice.",
                {"gradient": lambda case, rank: len(group_of(case, rank)) * _right(case, rank, "gradient")}),
        Mistake("a step changes nothing",
                "After a step of SGD the module computes what it did before: its tensors are not parameters. Wrap "
                "them in nn.Parameter, and cut with detach().", {"again": _untrained}),
        Mistake("the bias takes another step",
                "After a step the bias is off: its parts on all ranks must add up to the whole bias before and after "
                "it. A bias divided by N takes a step that is divided, too.",
                {"again": (partial(_other_step, times=lambda n: 1 / n - 1),
                           partial(_other_step, times=lambda n: n - 1))}),
        Mistake(_KEPT,
                "This rank holds more than its part. Copy its rows or columns (clone()), and keep no reference to the "
                "whole layer as a submodule."),
        Mistake(_LAYERS,
                "The layers that were given hold other numbers after the step: your parameters are views of them. "
                "Take a clone()."),
        Mistake(_NO_REFUSAL,
                "With more ranks than heads a rank would have none: raise a ValueError that says both numbers.",
                seen=_must_refuse, certain=True),
        Mistake(_NEEDLESS, "This can be cut: heads need not divide evenly, and an MLP has no heads."),
        Mistake(NOTHING, NO_GRADIENT),
    ),
    visible=(
        block_case("an MLP on 2 ranks", 1211, 2, MLP),
        block_case("attention on 2 ranks", 1212, 2, ATTENTION),
        block_case("an MLP of 7 hidden units on 3 ranks", 1213, 3, MLP, hidden=7),
        block_case("5 heads on 3 ranks", 1214, 3, ATTENTION, heads=5),
        block_case("2 heads on 3 ranks", 1215, 3, ATTENTION, heads=2),
        block_case("4 ranks, an MLP on each two", 1216, 4, MLP, groups=[[0, 1], [2, 3]]),
    ),
    hints=(
        "Draw both weights as PyTorch stores them, (out, in). Which rows of the first and which columns of the second "
        "are one hidden unit's? Which are one head's?",
        "MLP: up.weight[mine], up.bias[mine], down.weight[:, mine], and down.bias after the sum. Attention: the same, "
        "where mine is heads times their width, taken out of each of qkv.weight.chunk(3).",
        "qkv = torch.cat([each[mine] for each in qkv.weight.detach().chunk(3)]); forward: linear(enter(x), ...), "
        "chunk(3, dim=-1), unflatten(-1, (-1, head_width)).transpose(1, 2), attention, transpose(1, 2).flatten(2), "
        "leave(linear(...), group) + bias.",
    ),
)  # fmt: skip
