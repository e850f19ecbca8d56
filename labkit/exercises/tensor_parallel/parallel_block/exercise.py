"""A block in pieces: an MLP by its hidden units, attention by its heads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT
from labkit.exercises.tensor_parallel.parallel_block.driver import drive
from labkit.exercises.tensor_parallel.parallel_block.parts import (
    ATTENTION,
    LR,
    MLP,
    columns_mixed_up,
    entered_hidden,
    entered_late,
    expected,
    gathered_hidden,
    gradient_again,
    gradient_of_all,
    group_ignored,
    left_early,
    most_numbers,
    other_biases,
    other_step,
    own,
    own_and_bias,
    own_gradient,
    parts_of_heads,
    put_part,
    put_together,
    refused,
    rest_lost,
    sum_times,
    units,
    untrained,
    untrained_but,
)


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
        groups: Ranks that share a copy, and work on a batch of their own; None is all.
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
        "part": which, "num_heads": heads, "layers": layers, "lr": LR,
    }  # fmt: skip
    if groups is not None:
        inputs["groups"] = [list(each) for each in groups]
    batches: list[dict[str, Value]] = [
        {key: drawn(f"{key} of batch {batch}", 2, 5, width) for key in ("x", "gradient", "again")}
        for batch in range(len(groups or [0]))
    ]
    of_rank = {rank: batch for batch, ranks in enumerate(groups or [range(world_size)]) for rank in ranks}
    case = Case(name, world_size, tuple({**inputs, **batches[of_rank[rank]]} for rank in range(world_size)))
    if not apart:
        return case
    return replace(case, inputs=tuple({**x, "layers": _apart(case, n, seed)} for n, x in enumerate(case.inputs)))


def _apart(case: Case, rank: int, seed: int) -> list[Value]:
    """Return the layers of a case with another's numbers beside a rank's own part; a bias that is added once stays."""
    whole = cast("list[Tensor]", case.inputs[0]["layers"])
    mine = units(case, rank)
    layers = [
        normal(part_of(seed, "rank", rank, place), *each.shape, dtype=each.dtype) / 2
        for place, each in enumerate(whole[:3])
    ]
    put_part(whole, layers, mine)
    return [*layers, whole[3]]


def structure(case: Case) -> list[object]:
    """Return what results look like; a refusal is a text alone."""
    more = {"raised": str, "held": int, "layers_kept": bool}
    return [{**right, **more} if right else {"raised": str} for right in expected(case)]


def _refusals(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what was refused without need, and what was not."""
    for rank, came in enumerate(got):
        raised = values.text(came, "raised")
        if refused(case, rank) and not raised:
            heads, size = values.integer(case.inputs[0], "num_heads"), len(group_of(case, rank))
            text = f"{heads} heads for {size} ranks: ValueError was expected on rank {rank}, none was raised."
            yield Finding(_NO_REFUSAL, text, rank=rank)
        elif raised and not refused(case, rank):
            yield Finding(_NEEDLESS, f"Rank {rank} raised ValueError: {raised}", rank=rank)


def _changed_layers(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        if "layers_kept" in came and not values.flag(came, "layers_kept"):
            yield Finding(_LAYERS, f"On rank {rank} the layers given were changed.", rank=rank)


def _kept_too_much(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, came in enumerate(got):
        held, most = values.integer(came, "held") if "held" in came else 0, most_numbers(case, rank)
        if held > most:
            ranks = group_of(case, rank)
            in_all = sum(values.integer(got[each], "held") for each in ranks)
            other_cut = in_all <= sum(most_numbers(case, each) for each in ranks)
            text = f"Rank {rank} keeps {held} numbers, its part has {most}."
            spare = held - most == len(cast("list[Tensor]", case.inputs[rank]["layers"])[3])
            yield Finding(_CUT if other_cut else _SPARE if spare else _KEPT, text, rank=rank)


def _must_refuse(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the cut leaves a rank without heads, so that a failure is that nobody refused."""
    return isinstance(got, Failure) and any(refused(case, rank) for rank in range(case.world_size))


def _no_whole_heads(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a reshape failed where heads are no multiple of the ranks: it does not where they are."""
    heads = values.integer(case.inputs[0], "num_heads") if values.text(case.inputs[0], "part") == ATTENTION else 0
    unfit = isinstance(got, Failure) and any(
        words in got.message for words in ("multiply up to", "is invalid for input")
    )
    return unfit and bool(heads % len(group_of(case, 0)))


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a partial sum of each rank, and a gradient."""
    if any(refused(case, rank) for rank in range(case.world_size)):
        return {}
    return both_ways(range(case.world_size), 2 * math.prod(values.tensor(case.inputs[0], "x").shape))


_KEPT, _SPARE, _CUT, _LAYERS, _NO_REFUSAL, _NEEDLESS = (
    "keeps more than its part", "one bias too many", "another cut",
    "the layers given were changed", "no refusal", "a needless refusal",
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
                {"out": partial(other_biases, count=lambda n: n)}),
        Mistake("no bias", "The second layer's bias is missing in the result. If one rank adds it, it is the first of "
                "each group: dist.get_rank(group) == 0.",
                {"out": partial(other_biases, count=lambda n: 0)}),
        Mistake("bias taken off", "The second layer's bias is subtracted: add it.",
                {"out": partial(other_biases, count=lambda n: -1)}),
        Mistake("no bias in the first layer", "The first layer's bias is missing: this rank's entries belong in it.",
                {"out": partial(put_together, how="no bias")}),
        Mistake("group ignored",
                "The result, or its gradient, is made as if all ranks shared one copy. Hand the group on: to my_part, "
                "enter and leave.",
                {"out": tuple(partial(group_ignored, cut=cut, added=added)
                              for cut, added in ((True, True), (False, True), (True, False))),
                 "gradient": gradient_of_all}),
        Mistake("not summed", "The result is this rank's partial sum: `leave` it.", {"out": (own, own_and_bias)},
                everywhere=True),
        Mistake("mean instead of sum",
                "The partial sums are averaged. They are parts of one sum: `leave` adds them up.",
                {"out": partial(sum_times, times=lambda n: 1 / n)}),
        Mistake("summed twice", "What `leave` returns is the whole sum already: `leave` it once.",
                {"out": partial(sum_times, times=lambda n: n)}),
        Mistake("heads of another width",
                "A head's width is out.in_features // num_heads, of all heads. This rank's share has fewer heads, not "
                "wider ones.", {"out": partial(put_together, how="share of heads")}),
        Mistake("the rest is lost",
                "Nobody computes the units, or heads, that are left over where the count does not divide: cut with "
                "my_part.", {"out": rest_lost}),
        Mistake("wrong half of q, k and v",
                "You took consecutive rows of qkv.weight. It is q on top of k on top of v: take this rank's heads out "
                "of each third (chunk(3)), of the bias, too.",
                {"out": partial(put_together, how="rows")}),
        Mistake("wrong part of qkv.bias",
                "You took consecutive entries of qkv.bias. It is q's, then k's, then v's: take this rank's heads out "
                "of each third, as you did of qkv.weight.", {"out": partial(put_together, how="bias rows")}),
        Mistake("left too early",
                "You add hidden units of all ranks up, before the second layer. Each rank has other units: what is "
                "added up are the partial sums behind it.",
                {"out": tuple(partial(left_early, before=before, again=again)
                              for before in (False, True) for again in (False, True))}),
        Mistake("wrong columns of out",
                "The columns of out.weight belong to the heads: rank 1's heads meet the columns after rank 0's.",
                {"out": partial(columns_mixed_up, mlp=False)}),
        Mistake("wrong columns of down",
                "The columns of down.weight belong to the hidden units: rank 1's meet the columns after rank 0's.",
                {"out": partial(columns_mixed_up, mlp=True)}),
        Mistake("later tokens seen",
                "Queries see later tokens. Attention is causal: is_causal=True. (A score of 0 hides nothing, because "
                "exp(0) is 1: a mask puts -inf there.)",
                {"out": (partial(put_together, how="later"), partial(put_together, how="zeros"))}),
        Mistake("q, k and v mixed up",
                "Your part of qkv makes q of all your heads, then k, then v: chunk(3, dim=-1) first, then take the "
                "heads apart.",
                {"out": partial(put_together, how="by head")}),
        Mistake("rows of whole heads",
                "You took rows of qkv.weight as if q, k and v of one head stood together. q of all heads comes first, "
                "then all of k, then all of v: take your heads out of each third (chunk(3)), of the bias, too.",
                {"out": partial(put_together, how="head by head")}),
        Mistake("a part of every head",
                "Each rank has some columns of every head. A score is a sum over a whole head, so a head is on one "
                "rank: cut the heads, not their width.",
                {"out": (partial(parts_of_heads, by_part=True), partial(parts_of_heads, by_part=False))}),
        Mistake("cut through a head",
                "This rank's part is no whole number of heads, because the width was cut and not the heads. Cut them, "
                "my_part(num_heads, group), and multiply both ends by a head's width.",
                seen=_no_whole_heads, certain=True),
        Mistake("one third for another",
                "Of what your part of qkv makes, the first third is q, the second k, the last v.",
                {"out": tuple(partial(put_together, how=how) for how in ("k first", "v first", "v second"))}),
        Mistake("heads and tokens mixed up",
                "What attention returns has shape (B, H, T, K). Put heads beside K, transpose(1, 2), before you join "
                "them.", {"out": partial(put_together, how="flat")}),
        Mistake("scores scaled otherwise",
                "Scores are divided by the root of *one head's* width, on however many ranks.",
                {"out": (partial(put_together, how="whole width"), partial(put_together, how="share of it"))}),
        Mistake("another activation",
                "Between the two layers stands another function than gelu: functional.gelu as it is, without "
                "approximate=\"tanh\".",
                {"out": tuple(partial(put_together, how=how) for how in ("tanh", "relu", "none"))}),
        Mistake("gradient not reduced", "The gradient of x is this rank's own. `enter` x before the first layer.",
                {"gradient": own_gradient}),
        Mistake("entered too late",
                "You enter what the first layer made. Each rank has other units there, so their gradients are not to "
                "be added up: `enter` x, before the first layer.", {"gradient": (entered_late, entered_hidden)}),
        Mistake("gathered without gradients",
                "Hidden units that came from other ranks got no gradient: autograd knows nothing of all_gather. Cut "
                "the second layer by rows, and nothing has to be gathered.", {"gradient": gathered_hidden}),
        Mistake("gradient reduced again", "The gradient of x is N times too large: somewhere it is reduced twice.",
                {"gradient": gradient_again}),
        Mistake("a step changes nothing",
                "After a step of SGD the module computes what it did before: its tensors are not parameters. Wrap "
                "them in nn.Parameter, and cut with detach().", {"again": untrained}),
        Mistake("the bias takes no step",
                "After a step the second layer's bias is what it was before. It is trained, too: an nn.Parameter.",
                {"again": partial(other_step, times=lambda n: -1)}),
        Mistake("the first bias takes no step",
                "After a step the first layer's bias is what it was before. It is trained, too: an nn.Parameter.",
                {"again": partial(untrained_but, kept=(1,))}),
        Mistake("a weight takes no step",
                "After a step one layer's weight is what it was before. It is trained, too: an nn.Parameter, not a "
                "buffer or a plain tensor.",
                {"again": tuple(partial(untrained_but, kept=kept) for kept in ((0,), (2,), (0, 1), (2, 3)))}),
        Mistake("the bias takes another step",
                "The second layer's bias takes a step N times too large, or too small. Every rank can have its whole "
                "gradient: keep the whole bias on each, add it behind `leave`, and neither divide it nor add its "
                "gradients up.",
                {"again": (partial(other_step, times=lambda n: 1 / n - 1),
                           partial(other_step, times=lambda n: n - 1))}),
        Mistake(_KEPT,
                "This rank keeps more in memory than its part. Copy its rows or columns, [mine].clone(): a slice of a "
                "copy keeps the whole copy, and so does a list, a buffer or a submodule with the layer in it."),
        Mistake(_SPARE,
                "What is too much is as large as the second layer's bias: an nn.Linear for your part has made one of "
                "its own (bias=False), or the bias is kept twice."),
        Mistake("numbers of another dtype",
                "A tensor of yours has another dtype than the layers. nn.Linear(...) and torch.empty(...) make float32 "
                "unless you say dtype=up.weight.dtype.", says=("must have the same dtype",), certain=True),
        Mistake(_CUT, "Another rank should have some of that: cut with my_part, whose parts differ by at most one."),
        Mistake(_LAYERS,
                "The layers that were given are not what they were: your part was put into them, or your parameters "
                "are views of them, which a step changes. Make parameters of your own, from a clone()."),
        Mistake(_NO_REFUSAL,
                "With more ranks than heads a rank would have none: raise a ValueError that says both numbers, on "
                "*every* rank.",
                seen=_must_refuse, certain=True),
        Mistake(_NEEDLESS,
                "This can be cut. Count the ranks of the *group*; heads need not divide evenly; an MLP has no heads."),
        Mistake(NOTHING, NO_GRADIENT),
    ),
    visible=(
        block_case("an MLP on 2 ranks", 1211, 2, MLP),
        block_case("attention on 2 ranks", 1212, 2, ATTENTION),
        block_case("an MLP of 7 hidden units on 3 ranks", 1213, 3, MLP, hidden=7),
        block_case("5 heads on 3 ranks", 1214, 3, ATTENTION, heads=5),
        block_case("2 heads on 3 ranks", 1215, 3, ATTENTION, heads=2),
        block_case("4 ranks, an MLP and a batch on each two", 1216, 4, MLP, groups=[[0, 1], [2, 3]]),
        block_case("4 ranks, 2 heads and a batch on each two", 1217, 4, ATTENTION, heads=2, groups=[[0, 1], [2, 3]]),
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
