"""Flat shards: cut, gathered, scattered."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.cut_wire import waited_at_once
from labkit.checks.declared import Mistake, declared, flag_result
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import both_ways
from labkit.checks.values import tensors
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.flat import Shape, drawn, mean, rows, same, tensors_result
from labkit.exercises.sharded_training.flat_shards.driver import drive
from labkit.exercises.sharded_training.started import (
    HEARD,
    MARKS,
    NEVER_WAITS,
    NOT_CAST,
    SEEN,
    SHARES_MEMORY,
    WIDER,
    heard,
    put_elsewhere,
    waits,
)
from labkit.exercises.sharded_training.travels import not_the_drivers, parts_of

_BOTH = (("start_gather", 1), ("start_scatter", 3))
"""What begins a transfer, and in which part of the wire between the driver's barriers; it ends in the next part."""


def shards_case(
    name: str, seed: int, world_size: int, shapes: Sequence[Shape], dtype: str = "float64", turn: bool = False
) -> Case:
    """Return a case of flat_shards; targets have another dtype than the tensors where it is bfloat16.

    Args:
        name: In words.
        seed: Draws it.
        world_size: Number of ranks.
        shapes: Of the tensors.
        dtype: Of what is filled and of gradients.
        turn: Whether matrices to cut and to scatter are transposed views.
    """
    kind: torch.dtype = getattr(torch, dtype)
    cut = torch.float32 if dtype == "bfloat16" else kind
    whole = [drawn(seed + at, shape, cut) for at, shape in enumerate(shapes)]
    inputs: list[Values] = []
    for rank in range(world_size):
        part = draws.part_of(seed, "rank", rank)
        inputs.append({
            "tensors": [each.clone() for each in whole],
            "targets": [torch.full(shape, -7.0, dtype=kind) for shape in shapes],
            "gradients": [drawn(part + at, shape, kind) for at, shape in enumerate(shapes)],
            "transposed": turn,
        })  # fmt: skip
    return Case(name, world_size, tuple(inputs))


def _whole(case: Case, key: str = "tensors") -> list[Tensor]:
    return tensors(case.inputs[0], key)


def _means(case: Case, rank: int, factor: float = 1.0) -> list[Tensor]:
    gradients = [tensors(inputs, "gradients") for inputs in case.inputs]
    return [rows(factor * mean(each), case.world_size)[rank] for each in zip(*gradients, strict=True)]


def _filled(case: Case, rank: int) -> list[Tensor]:
    return [each.to(target.dtype) for each, target in zip(_whole(case), _whole(case, "targets"), strict=True)]


def expected(case: Case) -> list[Values]:
    """Return each rank's shards, the filled tensors and the shards of the mean (the oracle)."""
    flags: Values = {"copied": True, "kept_memory": True, "unseen": True, "untouched": True, **heard(case)}
    return [
        {
            **flags, "shards": [rows(each, case.world_size)[rank] for each in _whole(case)],
            "targets": _filled(case, rank), "means": _means(case, rank),
        }
        for rank in range(case.world_size)
    ]  # fmt: skip


def _strided(case: Case, rank: int) -> list[Tensor]:
    return [rows(each, case.world_size).reshape(-1)[rank :: case.world_size] for each in _whole(case)]


def _cut_short(case: Case, rank: int) -> list[Tensor]:
    return [torch.split(each.reshape(-1), rows(each, case.world_size).shape[1])[rank] for each in _whole(case)]


def _means_cut_short(case: Case, rank: int) -> list[Tensor]:
    """Return the shards of the mean without what was filled up, which may be nothing."""
    found = zip(_means(case, rank), _whole(case), strict=True)
    return [each[: max(0, min(len(each), of.numel() - rank * len(each)))] for each, of in found]


def _one_more(case: Case, rank: int) -> list[Tensor]:
    """Return shards of numel // N + 1 elements."""
    found = []
    for each in _whole(case):
        size = each.numel() // case.world_size + 1
        filled = torch.cat([each.reshape(-1), each.new_zeros(size * case.world_size - each.numel())])
        found.append(filled[rank * size : (rank + 1) * size])
    return found


def _concatenation_cut(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether means are pieces of all tensors laid end to end, or too few numbers for shards of each."""
    sizes = [rows(each, case.world_size).shape[1] for each in _whole(case)]
    least = -(-sum(each.numel() for each in _whole(case)) // case.world_size)
    if least == sum(sizes):
        return False
    if isinstance(got, Failure):
        said = re.search(r"sum exactly to (\d+)", got.message)
        return said is not None and int(said[1]) == least
    gradients = [tensors(inputs, "gradients") for inputs in case.inputs]
    flat = torch.cat([mean(each).reshape(-1) for each in zip(*gradients, strict=True)])
    parts = rows(flat, case.world_size)
    return all(same([torch.cat(tensors(came, "means"))], [part]) for came, part in zip(got, parts, strict=True))


def _padded_in_front(case: Case, rank: int) -> list[Tensor]:
    flat = [each.reshape(-1) for each in _whole(case)]
    padded = [torch.cat([each.new_zeros(-len(each) % case.world_size), each]) for each in flat]
    return [rows(each, case.world_size)[rank] for each in padded]


def _ends_at_the_end(case: Case, rank: int) -> list[Tensor]:
    flat = [each.reshape(-1) for each in _whole(case)]
    sizes = [-(-len(each) // case.world_size) for each in flat]
    firsts = [max(0, min(rank * size, len(each) - size)) for each, size in zip(flat, sizes, strict=True)]
    return [each[first : first + size] for each, first, size in zip(flat, firsts, sizes, strict=True)]


def _padded_otherwise(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether shards are right but for what lies past their tensor's end."""
    if isinstance(got, Failure):
        return False
    found = False
    for rank, came in enumerate(got):
        for mine, whole in zip(tensors(came, "shards"), _whole(case), strict=True):
            wanted = rows(whole, case.world_size)[rank]
            inside = max(0, min(len(wanted), whole.numel() - rank * len(wanted)))
            if mine.shape != wanted.shape or not torch.equal(mine[:inside], wanted[:inside]):
                return False
            found |= bool(mine[inside:].any())
    return found


def _list_cut(case: Case, rank: int) -> list[Tensor]:
    gradients = [tensors(inputs, "gradients") for inputs in case.inputs]
    tables = [rows(mean(each), case.world_size) for each in zip(*gradients, strict=True)]
    mine = rows(torch.cat([each.reshape(-1) for each in tables]), case.world_size)[rank]
    return list(torch.split(mine, [each.shape[1] for each in tables]))


def _shards_right(case: Case, got: Got) -> bool:
    return not isinstance(got, Failure) and all(
        same(tensors(came, "shards"), [rows(each, case.world_size)[rank] for each in _whole(case)])
        for rank, came in enumerate(got)
    )


def _put_elsewhere(case: Case, got: Got, wire: Wire) -> bool:
    return _shards_right(case, got) and put_elsewhere(_filled)(case, got, wire)


def _too_few(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a tensor could not be filled because its shards, cut without padding, have fewer elements."""
    found = re.search(r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)", getattr(got, "message", ""))
    if found is None:
        return False
    needs, has = math.prod(map(int, found[1].split(","))), int(found[2])
    return has == needs - needs % case.world_size < needs


def _travelled(case: Case, got: object, wire: Wire) -> Iterator[Finding]:
    """Yield what begins too late, blocks, brings more than it has to, or is waited for by nobody."""
    padded = [rows(each, case.world_size) for each in _whole(case, "targets")]
    most = sum(each.numel() * each.element_size() for each in padded)
    for rank in range(case.world_size):
        if found := not_the_drivers(case, wire, rank, MARKS):
            yield found
            return
        parts = parts_of(wire, rank)
        for what, part in _BOTH:
            begun, ended = parts[part : part + 2]
            calls = [*begun, *ended]
            if not begun and ended:
                text = f"{what} starts nothing: rank {rank} communicates only when finish() is called."
                yield Finding("begins in finish", text, rank=rank)
            if any(call.kind == "all_reduce" for call in calls):
                text = f"In {what} rank {rank} calls all_reduce, which brings everything to everybody."
                yield Finding("all_reduce", text, rank=rank)
            if len(calls) > 1:
                text = f"In {what} rank {rank} calls {len(calls)} collectives for {len(padded)} tensors."
                yield Finding("one collective each", text, rank=rank)
            if any(call.bytes > most for call in calls):
                text = f"In {what} {sum(call.bytes for call in calls)} bytes travel; the padded tensors have {most}."
                yield Finding("wider than the tensors", text, rank=rank)
            if not waits(wire, calls):
                text = f"{what} of rank {rank} gets what came before anybody has waited for it."
                yield Finding("never waits", text, rank=rank)
            if any(waited_at_once(call) for call in begun):
                text = f"{what} returns on rank {rank} when all is over: nothing can overlap."
                yield Finding("waits at once", text, rank=rank)


EXERCISE = declared(
    id="flat_shards",
    functions=("shard_of", "start_gather", "start_scatter"),
    driver=drive,
    oracle=expected,
    least=lambda case: both_ways(range(case.world_size), 1),
    looks=(
        tensors_result("shards", "Rank {rank}'s shard of tensor {tensor} is wrong."),
        flag_result("copied", "Rank {rank}'s shards share the memory of the whole tensors.", "shares memory"),
        tensors_result(
            "targets", "After finish() rank {rank}'s tensors are not what was cut into shards."
        ),
        flag_result("kept_memory", "Rank {rank}'s tensors have other memory than before.", "other memory"),
        flag_result("unseen", "Autograd has seen rank {rank}'s tensors change.", "autograd sees it"),
        flag_result(
            "untouched", "start_gather of rank {rank} reads or writes its tensors, which may have no memory yet.",
            "touched too early",
        ),
        tensors_result("means", "Rank {rank}'s shard of the mean of tensor {tensor} is wrong."),
        _travelled,
        HEARD,
    ),
    mistakes=(
        Mistake("every N-th element",
                "A shard is a run of consecutive elements: rank 0 has the first ones, rank 1 the next.",
                {"shards": _strided}),
        Mistake("padded in front", "The zeros go after the tensor's end, in the last shard: pad(flat, (0, missing)).",
                {"shards": _padded_in_front}),
        Mistake("not padded with zeros",
                "What lies past the tensor's end is 0. The last shard holds no element that is another shard's.",
                {"shards": _ends_at_the_end}, seen=_padded_otherwise),
        NEVER_WAITS,
        Mistake("not padded",
                "A collective needs shards of equal size that cover the whole tensor. Round numel / world_size up, "
                "and pad the last shard with zeros.",
                {"shards": _cut_short}, says=("in the same order", "disagree about the size"), seen=_too_few,
                certain=True),
        Mistake("one element too many",
                "numel // N + 1 is one too many where N divides: round numel / N up, -(-numel // N).",
                {"shards": _one_more}),
        Mistake("view of another layout",
                "A gradient may be a transposed view, and view(-1) needs elements that lie in order: use reshape(-1), "
                "which copies where it must.", says=("view size is not compatible",), certain=True),
        Mistake("not filled", "The tensors did not change. finish() must copy the gathered values into tensor.data.",
                {"targets": lambda case, rank: _whole(case, "targets")}),
        Mistake("put together wrongly",
                "The gathered values come rank by rank, and within a rank tensor by tensor. View them as (world_size, "
                "...) and cut that into columns, one for each tensor; a column, flattened, is the padded tensor.",
                seen=_put_elsewhere),
        Mistake("other memory", "The tensors must keep their memory: copy into tensor.data instead of replacing it."),
        SEEN,
        Mistake("touched too early",
                "While start_gather runs, the tensors' storage may be empty. Make the buffers from the shards, and "
                "leave the tensors to finish()."),
        Mistake("sum instead of mean", "reduce_scatter adds up. Divide by the number of ranks.",
                {"means": lambda case, rank: _means(case, rank, case.world_size)}),
        Mistake("divided twice", "This is smaller than the mean: divide by the number of ranks once.",
                {"means": lambda case, rank: _means(case, rank, 1 / case.world_size)}),
        Mistake("the list cut, not each tensor",
                "A rank gets a shard of each tensor, not one piece of all tensors laid end to end. Put the tables of "
                "the tensors side by side, a row for each rank.",
                {"means": _list_cut}, seen=_concatenation_cut, certain=True),
        Mistake("padding cut off",
                "Your shards of a mean end where the tensor ends. All ranks' shards have the same length, zeros "
                "included, as those that shard_of returns.", {"means": _means_cut_short}),
        SHARES_MEMORY,
        Mistake("all_reduce", "An all_reduce sends twice the bytes that a reduce_scatter or an all_gather does."),
        NOT_CAST,
        WIDER,
        Mistake("begins in finish",
                "Call the collective with async_op=True in the function that begins, and only wait in the one it "
                "returns."),
        Mistake("waits at once", "Pass async_op=True, and call wait() in the function that you return."),
        Mistake("one collective each",
                "Lay the parts of all tensors into one buffer, and send that: each collective costs a latency."),
    ),
    visible=(
        shards_case("2 ranks, one tensor of 4 x 6", 1301, 2, [(4, 6)]),
        shards_case("4 ranks, 5 x 7 does not divide", 1302, 4, [(5, 7)]),
        shards_case("3 ranks, a list of tensors, a scalar among them", 1303, 3, [(4, 3), (), (7,)], turn=True),
        shards_case("2 ranks, float32 shards of bfloat16 tensors", 1304, 2, [(3, 5), (4,)], "bfloat16"),
    ),
    hints=(
        "See a tensor as a table with one row for each rank: pad it, flatten it, view it as (world_size, -1). A "
        "shard is a row of it.",
        "Put the tables of a list side by side: torch.cat(tables, 1). Row r is all that rank r owns. Gathering fills "
        "the rows of such a table, scattering sends them; afterwards cut it into columns again, table.split(sizes, 1).",
        "rows = nn.functional.pad(flat, (0, -len(flat) % n)).view(n, -1); work = REDUCE_SCATTER(mine, rows.view(-1), "
        "async_op=True); the function you return calls work.wait() and then splits mine / n.",
    ),
)  # fmt: skip
