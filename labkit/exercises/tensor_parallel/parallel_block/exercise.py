"""A block in pieces: an MLP by its hidden units, attention by its heads."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from labkit.checks import values
from labkit.checks.as_if import Way
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, members, part, wrong_tensors
from labkit.exercises.tensor_parallel.parallel_block.driver import drive, layers_of

MLP, ATTENTION = "ParallelMLP", "ParallelAttention"
LR = 0.1
_BIAS_EVERYWHERE, _NO_BIAS, _UNSUMMED, _WRONG_ROWS, _WRONG_COLUMNS, _UNREDUCED, _AGAIN = (
    "bias on every rank", "no bias", "not summed", "wrong half of q, k and v", "wrong columns of out",
    "gradient not reduced", "gradient reduced again",
)  # fmt: skip
_UNTRAINED, _SHARED_STEP, _KEPT, _LAYERS, _NO_REFUSAL, _NEEDLESS = (
    "a step changes nothing", "the bias takes another step", "keeps more than its part",
    "the layers given were changed", "no refusal", "a needless refusal",
)  # fmt: skip
MISTAKES = {
    _BIAS_EVERYWHERE: (
        "The result contains the second layer's bias once per rank. Add it after the sum, or on one rank only."
    ),
    _NO_BIAS: "The second layer's bias is missing in the result.",
    _UNSUMMED: "The result is this rank's partial sum: `leave` it.",
    _WRONG_ROWS: "You took consecutive rows of qkv.weight. It is q on top of k on top of v: take this rank's heads out "
    "of each third (chunk(3)), of the bias, too.",
    _WRONG_COLUMNS: "The columns of out.weight belong to the heads: rank 1's heads meet the columns after rank 0's.",
    _UNREDUCED: "The gradient of x is this rank's own. `enter` x before the first layer.",
    _AGAIN: "The gradient of x is N times too large: somewhere it is reduced twice.",
    _UNTRAINED: "After a step of SGD the module computes what it did before: its tensors are not parameters. Wrap them "
    "in nn.Parameter, and cut with detach().",
    _SHARED_STEP: "After a step the bias is off: its parts on all ranks must add up to the whole bias before and after "
    "it. A bias divided by N takes a step that is divided, too.",
    _KEPT: "This rank holds more than its part. Copy its rows or columns (clone()), and keep no reference to the whole "
    "layer as a submodule.",
    _LAYERS: "The layers that were given hold other numbers after the step: your parameters are views of them. Take a "
    "clone().",
    _NO_REFUSAL: "With more ranks than heads a rank would have none: raise a ValueError that says both numbers.",
    _NEEDLESS: "This can be cut: heads need not divide evenly, and an MLP has no heads.",
    NOTHING: NO_GRADIENT,
}  # fmt: skip


def block_case(
    name: str, seed: int, world_size: int, which: str, *, heads: int = 4, head_width: int = 3, hidden: int = 12,
    groups: list[list[int]] | None = None,
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
    return Case(name, world_size, (inputs,) * world_size)


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
    return [
        each.detach().clone().requires_grad_() for layer in layers_of(case.inputs[0]) for each in layer.parameters()
    ]


def _refused(case: Case, rank: int) -> bool:
    inputs = case.inputs[0]
    return values.text(inputs, "part") == ATTENTION and len(members(case, rank)) > values.integer(inputs, "num_heads")


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
        return torch.stack([_own(case, each, mixed_up=mixed_up) for each in members(case, rank)]).sum(0)
    inputs, (first, bias, second, _) = case.inputs[0], [each.detach() for each in _layers(case)]
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


def _out_ways(case: Case, right: Tensor, rank: int) -> list[Way[Tensor]]:
    bias, size = _layers(case)[3].detach(), len(members(case, rank))
    found: list[Way[Tensor]] = [
        (_BIAS_EVERYWHERE, lambda: right + (size - 1) * bias),
        (_NO_BIAS, lambda: right - bias),
        (_UNSUMMED, lambda: _own(case, rank)),
        (_UNSUMMED, lambda: _own(case, rank) + bias),
    ]
    for name, mixed_up in ((_WRONG_ROWS, "rows"), (_WRONG_COLUMNS, "columns")):
        found.append((name, lambda mixed_up=mixed_up: _own(case, rank, mixed_up=mixed_up, summed=True) + bias))  # type: ignore[misc]
    return found


def _gradient_ways(case: Case, right: Tensor, rank: int) -> list[Way[Tensor]]:
    def own() -> Tensor:
        inputs = dict(case.inputs[0])
        x = inputs["x"] = values.tensor(inputs, "x").clone().requires_grad_()
        partial = _own(Case(case.name, case.world_size, (inputs,) * case.world_size), rank)
        return torch.autograd.grad(partial, x, values.tensor(inputs, "gradient"))[0]

    return [(_UNREDUCED, own), (_AGAIN, lambda: len(members(case, rank)) * right)]


def _again_ways(case: Case, right: Tensor, rank: int) -> list[Way[Tensor]]:
    inputs, size = case.inputs[0], len(members(case, rank))
    gradient = values.tensor(inputs, "gradient").flatten(0, 1).sum(0)
    layers = [each.detach() for each in _layers(case)]
    which, heads = values.text(inputs, "part"), values.integer(inputs, "num_heads")
    return [
        (_UNTRAINED, lambda: _computed(which, layers, values.tensor(inputs, "again"), heads)),
        (_SHARED_STEP, lambda: right + LR * gradient * (1 - 1 / size)),
        (_SHARED_STEP, lambda: right - LR * gradient * (size - 1)),
    ]


def most_numbers(case: Case, rank: int) -> int:
    """Return how many numbers a rank's part has, both biases included."""
    first, _, second, after = _layers(case)
    heads = values.integer(case.inputs[0], "num_heads")
    is_mlp = values.text(case.inputs[0], "part") == MLP
    mine = part(second.shape[1] if is_mlp else heads, case, rank)
    units = (mine.stop - mine.start) * (1 if is_mlp else second.shape[1] // heads)
    numbers: int = units * ((1 if is_mlp else 3) * (first.shape[1] + 1) + second.shape[0]) + after.numel()
    return numbers


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: refusals, results, gradients, what a step does, what a rank keeps."""
    right = expected(case)
    for rank, came in enumerate(got):
        raised = values.text(came, "raised")
        if _refused(case, rank) and not raised:
            heads, size = values.integer(case.inputs[0], "num_heads"), len(members(case, rank))
            text = f"{heads} heads for {size} ranks: ValueError was expected on rank {rank}, none was raised."
            yield Finding(_NO_REFUSAL, text, rank=rank)
        elif raised and not _refused(case, rank):
            yield Finding(_NEEDLESS, f"Rank {rank} raised ValueError: {raised}", rank=rank)
    looks = (("out", "the result", _out_ways), ("gradient", "the gradient of x", _gradient_ways))
    for key, what, ways in (*looks, ("again", "the result after a step of SGD", _again_ways)):
        if key == "again":
            for rank, came in enumerate(got):
                if "layers_kept" in came and not values.flag(came, "layers_kept"):
                    yield Finding(_LAYERS, f"On rank {rank} the layers given were changed by the step.", rank=rank)
        yield from wrong_tensors(
            got,
            right,
            key,
            what,
            lambda rank, key=key, ways=ways: ways(case, values.tensor(right[rank], key), rank),  # type: ignore[misc]
        )
    for rank, came in enumerate(got):
        if "numel" in came and values.integer(came, "numel") > most_numbers(case, rank):
            text = f"Rank {rank} holds {came['numel']} numbers as parameters, its part has {most_numbers(case, rank)}."
            yield Finding(_KEPT, text, rank=rank)


def blame(case: Case, failure: Failure, wire: Wire) -> Iterator[str]:
    """Yield that nobody refused, where the cut left a rank without heads."""
    if any(_refused(case, rank) for rank in range(case.world_size)):
        yield _NO_REFUSAL


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a partial sum of each rank, and a gradient."""
    if any(_refused(case, rank) for rank in range(case.world_size)):
        return {}
    return both_ways(range(case.world_size), 2 * math.prod(values.tensor(case.inputs[0], "x").shape))


EXERCISE = Exercise(
    id="parallel_block",
    functions=(MLP, ATTENTION),
    driver=drive,
    oracle=expected,
    structure=structure,
    find=find,
    blame=blame,
    certain=frozenset({_NO_REFUSAL}),
    least=least,
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
    mistakes=MISTAKES,
)
