"""Hybrid sharding: shards inside a node, a copy of all of them in every node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Got, Values
from labkit.checks.declared import Mistake, declared, failed_in, flag_result
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import both_ways
from labkit.checks.values import tensors
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.flat import Shape, drawn, mean, rows, same, tensors_result
from labkit.exercises.sharded_training.hybrid_shards.driver import drive
from labkit.exercises.sharded_training.started import (
    HEARD,
    NEVER_WAITS,
    NOT_CAST,
    SEEN,
    SHARES_MEMORY,
    STARTED,
    WIDER,
    Started,
    heard,
    overlapping,
    put_elsewhere,
    transfers,
)

_BOTH = (Started("start_node_gather", 1), Started("start_hybrid_scatter", 3, most=2))
node_of = partial(group_of, key="nodes")


def hybrid_case(
    name: str, seed: int, nodes: Sequence[Sequence[int]], shapes: Sequence[Shape], dtype: str = "float64"
) -> Case:
    """Return a case of hybrid_shards: nodes are lists of ranks, all equally long.

    Shards of bfloat16 tensors are float32: each is a number that bfloat16 holds.

    Raises:
        ValueError: If a node's ranks do not ascend: new_group counts them in that order.
    """
    if any(list(each) != sorted(each) for each in nodes):
        raise ValueError(f"the ranks of each node have to ascend, not {nodes}")
    kind: torch.dtype = getattr(torch, dtype)
    size, inside = sum(map(len, nodes)), len(nodes[0])
    originals = [drawn(seed + at, shape, kind) for at, shape in enumerate(shapes)]
    inputs: list[Values] = []
    for rank in range(size):
        part = draws.part_of(seed, "rank", rank)
        lengths = [rows(each, inside).shape[1] for each in originals]
        inputs.append({
            "tensors": [each.clone() for each in originals],
            "shards": [_master(drawn(part + 100 + at, (length,), kind)) for at, length in enumerate(lengths)],
            "targets": [torch.full(shape, -7.0, dtype=kind) for shape in shapes],
            "gradients": [drawn(part + at, shape, kind) for at, shape in enumerate(shapes)],
            "nodes": [list(each) for each in nodes],
        })  # fmt: skip
    return Case(name, size, tuple(inputs))


def _master(shard: Tensor) -> Tensor:
    return shard.float() if shard.dtype == torch.bfloat16 else shard


def _cut(case: Case, rank: int, originals: Sequence[Tensor]) -> list[Tensor]:
    node = node_of(case, rank)
    return [rows(each, len(node))[node.index(rank)] for each in originals]


def _gathered(case: Case, rank: int) -> list[Tensor]:
    parts = zip(*(tensors(case.inputs[each], "shards") for each in node_of(case, rank)), strict=True)
    like = tensors(case.inputs[0], "targets")
    return [torch.cat(each)[: to.numel()].view(to.shape).to(to.dtype) for each, to in zip(parts, like, strict=True)]


def _mean(case: Case, rank: int, factor: float = 1.0, *, alone: bool = False) -> list[Tensor]:
    """Return a rank's shards of the mean over all ranks, or over its node alone."""
    over = node_of(case, rank) if alone else range(case.world_size)
    gradients = zip(*(tensors(case.inputs[each], "gradients") for each in over), strict=True)
    return _cut(case, rank, [factor * mean(each) for each in gradients])


def _gathered_in_the_world(case: Case, rank: int) -> list[Tensor]:
    """Return what comes of gathering from the first ranks there are, whosever node they are in."""
    first = range(len(node_of(case, rank)))
    parts = zip(*(tensors(case.inputs[each], "shards") for each in first), strict=True)
    like = tensors(case.inputs[0], "targets")
    return [torch.cat(each)[: to.numel()].view(to.shape) for each, to in zip(parts, like, strict=True)]


def _groups_swapped(case: Case, rank: int) -> list[Tensor]:
    """Return the shards of the mean by the place among counterparts, where there are as many as ranks in a node."""
    numbers = list(dict.fromkeys(tuple(node_of(case, each)) for each in range(case.world_size)))
    place = numbers.index(tuple(node_of(case, rank)))
    gradients = zip(*(tensors(each, "gradients") for each in case.inputs), strict=True)
    return [rows(mean(each), len(numbers))[place] for each in gradients]


def _num_nodes(case: Case) -> int:
    return case.world_size // len(node_of(case, 0))


def _of_everybody(case: Case, rank: int, times: int, *, node: bool = False) -> list[Tensor]:
    """Return what an all_reduce over all ranks, or those of the node, makes of the nodes' shards."""
    shards = [_mean(case, each, alone=True) for each in (node_of(case, rank) if node else range(case.world_size))]
    return [times * torch.stack(each).sum(0) / case.world_size for each in zip(*shards, strict=True)]


def expected(case: Case) -> list[Values]:
    """Return each rank's shards, the filled tensors and the shards of the mean over all ranks (the oracle)."""
    originals = tensors(case.inputs[0], "tensors")
    return [
        {
            "shards": _cut(case, rank, originals), "copied": True, "unseen": True, "targets": _gathered(case, rank),
            "means": _mean(case, rank), "kept_memory": True, **heard(case),
        }
        for rank in range(case.world_size)
    ]  # fmt: skip


def _of_all(case: Case, rank: int) -> list[Tensor]:
    return [rows(each, case.world_size)[rank] for each in tensors(case.inputs[0], "tensors")]


def _by_world_rank(case: Case, rank: int) -> list[Tensor]:
    inside = len(node_of(case, rank))
    return [rows(each, inside)[rank % inside] for each in tensors(case.inputs[0], "tensors")]


def _by_number_of_node(case: Case, rank: int) -> list[Tensor]:
    """Return shards by the quotient of a rank and the number of nodes."""
    inside = len(node_of(case, rank))
    place = rank // _num_nodes(case)
    return [rows(each, inside)[place] for each in tensors(case.inputs[0], "tensors")]


def _too_many_rows(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether what a node scatters was cut into as many pieces as there are ranks in the world."""
    said = re.search(r"of (\d+) elements on \d+ ranks leaves each \d+, and the output has (\d+)",
                     getattr(got, "message", ""))  # fmt: skip
    return said is not None and int(said[1]) == int(said[2]) * case.world_size


def _list_cut(case: Case, rank: int) -> list[Tensor] | None:
    """Return a rank's piece of the means of all tensors laid end to end, None where it cannot be cut so."""
    node, lengths = node_of(case, rank), [each.shape[1] for each in _tables(case)]
    gradients = zip(*(tensors(each, "gradients") for each in case.inputs), strict=True)
    mine = rows(torch.cat([mean(each).reshape(-1) for each in gradients]), len(node))[node.index(rank)]
    return list(torch.split(mine, lengths)) if len(mine) == sum(lengths) and len(lengths) > 1 else None


def _tables(case: Case) -> list[Tensor]:
    return [rows(each, len(node_of(case, 0))) for each in tensors(case.inputs[0], "tensors")]


def _sizes_of_the_list(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a piece of all tensors laid end to end was too short for shards of each."""
    said = re.search(r"sum exactly to (\d+)", getattr(got, "message", ""))
    inside, numbers = len(node_of(case, 0)), sum(each.numel() for each in tensors(case.inputs[0], "tensors"))
    return said is not None and int(said[1]) == -(-numbers // inside) < sum(each.shape[1] for each in _tables(case))


def _across_in_vain(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that all ranks add up across the nodes, and still return what one node alone has."""
    if _num_nodes(case) == 1:
        return
    alone = [_mean(case, rank, by, alone=True) for rank in range(case.world_size) for by in (1, 1 / _num_nodes(case))]
    of_one = all(any(same(tensors(came, "means"), each) for each in alone) for came in got)
    crosses = {call.rank for call in wire.collectives if call.kind == "all_reduce"} == set(range(case.world_size))
    if crosses and of_one:
        text = "All ranks call all_reduce across the nodes, and what they return is still one node's sum alone."
        yield Finding("across in vain", text)


def _across(case: Case, got: object, wire: Wire) -> Iterator[Finding]:
    """Yield what crosses the network and is no shard."""
    for rank in range(case.world_size):
        inside = len(node_of(case, rank))
        padded = [rows(each, inside) for each in tensors(case.inputs[0], "targets")]
        whole = sum(each.numel() * each.element_size() for each in padded)
        for _, calls in transfers(wire, _BOTH[:1], rank):
            if any(call.bytes > whole for call in calls):
                text = f"In start_node_gather rank {rank} gathers {max(call.bytes for call in calls)} bytes."
                yield Finding(WIDER.name, text, f"at most {whole}", rank=rank)
        for _, calls in transfers(wire, _BOTH[1:], rank):
            for call in calls:
                most = whole // inside if call.kind == "all_reduce" else whole
                if call.bytes > most:
                    text = f"Rank {rank} calls {call.kind} with {call.bytes} bytes."
                    yield Finding("whole gradients across", text, f"at most {most}", str(call.bytes), rank)


EXERCISE = declared(
    id="hybrid_shards",
    functions=("node_shard_of", "start_node_gather", "start_hybrid_scatter"),
    driver=drive,
    oracle=expected,
    least=lambda case: both_ways(range(case.world_size), 1),
    looks=(
        tensors_result("shards", "{ranks}: the shard of tensor {tensor} on rank {rank} is wrong."),
        flag_result("copied", "Rank {rank}'s shards share the memory of the whole tensors.", "shares memory"),
        tensors_result(
            "targets", "After finish() rank {rank}'s tensor {tensor} is not what its node's shards are together."
        ),
        flag_result("kept_memory", "Rank {rank}'s tensors have other memory than before.", "other memory"),
        flag_result("unseen", "Autograd has seen rank {rank}'s tensors change.", SEEN.name),
        _across_in_vain,
        tensors_result("means", "{ranks}: rank {rank}'s shard of the mean of tensor {tensor} over all ranks is wrong."),
        _across,
        overlapping(_BOTH),
        HEARD,
    ),
    mistakes=(
        Mistake("shards of all ranks",
                "A node holds everything, so a shard is a share of the node's ranks: dist.get_world_size(node).",
                {"shards": _of_all}, seen=_too_many_rows, certain=True),
        Mistake("place in the world",
                "Which shard a rank has follows from its place in its node: dist.get_rank(node). Ranks of a node need "
                "not be neighbours.",
                {"shards": (_by_world_rank, _by_number_of_node)},
                seen=failed_in("node_shard_of", "IndexError"), certain=True),
        NEVER_WAITS,
        Mistake("not inside the node", "Gather inside the node: group=node, and as many rows as it has ranks.",
                {"targets": _gathered_in_the_world}, says=("times input tensor size", "times output tensor size")),
        Mistake("put together wrongly",
                "The gathered values come rank by rank of the node, and within a rank tensor by tensor: view them as "
                "(ranks of the node, ...), and cut that into columns.", seen=put_elsewhere(_gathered)),
        SHARES_MEMORY,
        SEEN,
        NOT_CAST,
        WIDER,
        Mistake("other memory",
                "The tensors must keep their memory: copy into tensor.data instead of replacing it."),
        Mistake("across in vain",
                "What crosses is a shard of the node's sum. That is there only when you have waited for the "
                "reduce_scatter: all_reduce then, and return what comes of it."),
        Mistake("own node's mean",
                "These are the gradients of one node. Its shards and their counterparts in the other nodes have to be "
                "added up: all_reduce in across.",
                {"means": (partial(_mean, alone=True),
                           lambda case, rank: _mean(case, rank, 1 / _num_nodes(case), alone=True))}),
        Mistake("sum instead of mean",
                "Both collectives add up: divide by the ranks of node times those of across, which are all ranks.",
                {"means": (lambda case, rank: _mean(case, rank, case.world_size),
                           lambda case, rank: _mean(case, rank, _num_nodes(case)),
                           lambda case, rank: _mean(case, rank, len(node_of(case, rank))))}),
        Mistake("groups swapped",
                "This is the shard of another place: the reduce_scatter ran in across, and the all_reduce in node. "
                "Scatter inside the node, then add up across.", {"means": _groups_swapped}),
        Mistake("summed over everybody",
                "The all_reduce has added up different shards. Only counterparts hold the same one: group=across.",
                {"means": (partial(_of_everybody, times=1),
                           lambda case, rank: _of_everybody(case, rank, len(node_of(case, rank))),
                           lambda case, rank: _of_everybody(case, rank, len(node_of(case, rank)), node=True))}),
        Mistake("the list cut, not each tensor",
                "A rank gets a shard of each tensor, not one piece of all tensors laid end to end: pad each by itself, "
                "and put their tables side by side, a row for each rank of the node.",
                {"means": _list_cut}, seen=_sizes_of_the_list, certain=True),
        Mistake("whole gradients across",
                "Only shards cross the network: first reduce_scatter inside the node, then all_reduce the shard."),
        *STARTED,
    ),
    visible=(
        hybrid_case("4 ranks in 2 nodes, one tensor of 4 x 6", 1371, [[0, 1], [2, 3]], [(4, 6)]),
        hybrid_case("4 ranks, nodes of ranks 0 and 2, 1 and 3", 1372, [[0, 2], [1, 3]], [(4, 2), (6,)]),
        hybrid_case("4 ranks in 2 nodes, sizes that do not divide", 1373, [[0, 1], [2, 3]], [(5, 3), (), (7,)]),
        hybrid_case("3 ranks, one node", 1374, [[0, 1, 2]], [(3, 5), (4,)]),
        hybrid_case("2 ranks, float32 shards of bfloat16 tensors", 1375, [[0, 1]], [(3, 5), (4,)], "bfloat16"),
    ),
    hints=(
        "It is flat_shards again, inside a group. What is missing afterwards are the other nodes' gradients, and every "
        "one of your shards has a counterpart there.",
        "Give all three the group: dist.get_world_size(node), dist.get_rank(node), group=node. In the function that "
        "start_hybrid_scatter returns, wait, all_reduce your part in across, and divide by both sizes.",
        "rows = nn.functional.pad(flat, (0, -len(flat) % n)).view(n, -1) with n = dist.get_world_size(node); "
        "REDUCE_SCATTER(mine, rows.view(-1), group=node, async_op=True); later dist.all_reduce(mine, group=across).",
    ),
)  # fmt: skip
