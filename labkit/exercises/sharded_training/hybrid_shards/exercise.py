"""Hybrid sharding: shards inside a node, a copy of all of them in every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.blame import bearing, blaming
from labkit.checks.case import Case, Failure, Values
from labkit.checks.cut_wire import between_barriers, waited_at_once
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import both_ways
from labkit.checks.values import listed, tensors
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.sharded_training.flat import Shape, drawn, mean, rows, same
from labkit.exercises.sharded_training.hybrid_shards.driver import drive


def hybrid_case(
    name: str, seed: int, nodes: Sequence[Sequence[int]], shapes: Sequence[Shape], dtype: str = "float64"
) -> Case:
    """Return a case of hybrid_shards: nodes are lists of ranks, all equally long.

    Raises:
        ValueError: If a node's ranks do not ascend: new_group counts them in that order.
    """
    if any(list(each) != sorted(each) for each in nodes):
        raise ValueError(f"the ranks of each node have to ascend, not {nodes}")
    kind: torch.dtype = getattr(torch, dtype)
    size = sum(map(len, nodes))
    originals = [drawn(seed + at, shape, kind) for at, shape in enumerate(shapes)]
    inputs: list[Values] = []
    for rank in range(size):
        part, inside = draws.part_of(seed, "rank", rank), len(nodes[0])
        lengths = [rows(each, inside).shape[1] for each in originals]
        inputs.append({
            "tensors": [each.clone() for each in originals],
            "shards": [drawn(part + 100 + at, (length,), kind) for at, length in enumerate(lengths)],
            "targets": [torch.full(shape, -7.0, dtype=kind) for shape in shapes],
            "gradients": [drawn(part + at, shape, kind) for at, shape in enumerate(shapes)],
            "nodes": [list(each) for each in nodes],
        })  # fmt: skip
    return Case(name, size, tuple(inputs))


def _nodes(case: Case) -> list[list[int]]:
    return listed(case.inputs[0], "nodes")


def _node(case: Case, rank: int) -> list[int]:
    return next(each for each in _nodes(case) if rank in each)


def _means(case: Case, ranks: Sequence[int]) -> list[Tensor]:
    gradients = [tensors(case.inputs[rank], "gradients") for rank in ranks]
    return [mean(each) for each in zip(*gradients, strict=True)]


def _cut(case: Case, rank: int, originals: Sequence[Tensor]) -> list[Tensor]:
    node = _node(case, rank)
    return [rows(each, len(node))[node.index(rank)] for each in originals]


def _gathered(case: Case, node: Sequence[int]) -> list[Tensor]:
    shards = [tensors(case.inputs[rank], "shards") for rank in node]
    targets = tensors(case.inputs[0], "targets")
    return [
        torch.cat(parts)[: target.numel()].view(target.shape)
        for parts, target in zip(zip(*shards, strict=True), targets, strict=True)
    ]


def expected(case: Case) -> list[Values]:
    """Return each rank's shards, the filled tensors and the shards of the mean over all ranks (the oracle)."""
    originals = tensors(case.inputs[0], "tensors")
    means = _means(case, range(case.world_size))
    return [
        {
            "shards": _cut(case, rank, originals),
            "targets": _gathered(case, _node(case, rank)),
            "means": _cut(case, rank, means),
        }
        for rank in range(case.world_size)
    ]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with shards, gathered tensors and means, and with how they travelled."""
    for rank, (came, right) in enumerate(zip(got, expected(case), strict=True)):
        mine, wanted = tensors(came, "shards"), tensors(right, "shards")
        lengths, has = [each.numel() for each in wanted], [each.numel() for each in mine]
        if not same(mine, wanted):
            text = f"Rank {rank}'s shards are wrong; its node is {_node(case, rank)}."
            yield Finding(_of_shards(case, rank, mine), text, f"lengths {lengths}", f"lengths {has}", rank)
        if not same(tensors(came, "targets"), tensors(right, "targets")):
            text = f"After finish() rank {rank}'s tensors are not what the shards of its node are together."
            yield Finding(_TORN, text, rank=rank)
        means, of_all = tensors(came, "means"), tensors(right, "means")
        if not same(means, of_all):
            text = f"Rank {rank}'s shards of the mean over all {case.world_size} ranks are wrong."
            yield Finding(_of_means(case, rank, means), text, str(of_all[0][:4]), str(means[0][:4]), rank)
    for rank in range(case.world_size):
        yield from _travelled(case, rank, between_barriers(wire, rank))


def _of_shards(case: Case, rank: int, mine: list[Tensor]) -> str:
    originals = tensors(case.inputs[0], "tensors")
    inside = len(_node(case, rank))
    ways: list[tuple[str, Callable[[], list[Tensor]]]] = [
        (_OF_ALL, lambda: [rows(each, case.world_size)[rank] for each in originals]),
        (_GLOBAL, lambda: [rows(each, inside)[rank % inside] for each in originals]),
    ]
    return as_if(mine, ways, same)


def _of_means(case: Case, rank: int, means: list[Tensor]) -> str:
    count, node = len(_nodes(case)), _node(case, rank)
    of_node = _cut(case, rank, _means(case, node))
    of_all = _cut(case, rank, _means(case, range(case.world_size)))
    ways: list[tuple[str, Callable[[], list[Tensor]]]] = [
        (_OWN_NODE, lambda: of_node),
        (_OWN_NODE, lambda: [each / count for each in of_node]),
        (_SUM, lambda: [each * case.world_size for each in of_all]),
        (_SUM, lambda: [each * count for each in of_all]),
        (_SUM, lambda: [each * len(node) for each in of_all]),
        (_EVERYBODY, lambda: _of_everybody(case, 1)),
        (_EVERYBODY, lambda: _of_everybody(case, len(node))),
    ]
    return as_if(means, ways, same)


def _of_everybody(case: Case, times: int) -> list[Tensor]:
    """Return what an all_reduce over all ranks makes of the nodes' shards, where it should be over counterparts."""
    shards = [_cut(case, rank, _means(case, _node(case, rank))) for rank in range(case.world_size)]
    return [times * torch.stack(each).sum(0) / case.world_size for each in zip(*shards, strict=True)]


def _travelled(case: Case, rank: int, parts: list[list[CollectiveCall]]) -> Iterator[Finding]:
    originals, inside = tensors(case.inputs[0], "targets"), len(_node(case, rank))
    whole = sum(rows(each, inside).numel() * each.element_size() for each in originals)
    if len(parts) != 6:
        yield Finding("", "This check marks the wire with barriers of its own; call none in your code.", rank=rank)
        return
    calls = [*parts[3], *parts[4]]
    for call in calls:
        if call.kind == "all_reduce" and call.bytes > whole // inside:
            text = f"Rank {rank} sums {call.bytes} bytes with all_reduce; its shards have {whole // inside}."
            yield Finding(_WHOLE, text, rank=rank)
        if call.bytes > whole:
            text = f"Rank {rank} calls {call.kind} with {call.bytes} bytes; the padded tensors have {whole}."
            yield Finding(_WHOLE, text, rank=rank)
    if inside > 1:
        for begun, ended, what in (
            (parts[1], parts[2], "start_node_gather"),
            (parts[3], parts[4], "start_hybrid_scatter"),
        ):
            if not begun and ended:
                text = f"{what} starts nothing: rank {rank} communicates only when its function is called."
                yield Finding(_LATE, text, rank=rank)
            if any(waited_at_once(call) for call in begun):
                text = f"{what} returns on rank {rank} when all is over: nothing can overlap."
                yield Finding(_BLOCKS, text, rank=rank)
    for some, most, what in ((parts[1] + parts[2], 1, "start_node_gather"), (calls, 2, "start_hybrid_scatter")):
        if len(some) > most:
            text = f"In {what} rank {rank} calls {len(some)} collectives for {len(originals)} tensors."
            yield Finding(_MANY, text, rank=rank)


def _no_such_row(case: Case, failure: Failure, wire: Wire) -> bool:
    """Return whether a shard was looked for behind the node's last one."""
    return failure.error == "IndexError" and "node_shard_of" in failure.detail


_OF_ALL, _GLOBAL, _TORN, _OWN_NODE, _SUM, _EVERYBODY = (
    "shards of all ranks", "place in the world", "put together wrongly", "own node's mean", "sum for mean",
    "summed over everybody",
)  # fmt: skip
_LATE, _BLOCKS, _WHOLE, _MANY = ("begins in finish", "waits at once", "whole gradients across", "one collective each")
MISTAKES = {
    _OF_ALL: "A node holds everything, so a shard is a share of the node's ranks: dist.get_world_size(node).",
    _GLOBAL: "Which shard a rank has follows from its place in its node: dist.get_rank(node). Ranks of a node need not "
    "be neighbours.",
    _TORN: "Gather inside the node: group=node, and as many rows as it has ranks.",
    _OWN_NODE: "These are the gradients of one node. Its shards and their counterparts in the other nodes have to be "
    "added up: all_reduce in across.",
    _SUM: "Both collectives add up: divide by the ranks of node times those of across, which are all ranks.",
    _EVERYBODY: "The all_reduce has added up different shards. Only counterparts hold the same one: group=across.",
    _LATE: "Call the collective inside the node with async_op=True in the function that begins.",
    _BLOCKS: "Pass async_op=True, and call wait() in the function that you return.",
    _WHOLE: "Only shards cross the network: first reduce_scatter inside the node, then all_reduce the shard.",
    _MANY: "Lay the parts of all tensors into one buffer: one collective inside the node, one across.",
}

EXERCISE = Exercise(
    id="hybrid_shards",
    functions=("node_shard_of", "start_node_gather", "start_hybrid_scatter"),
    driver=drive,
    oracle=expected,
    find=find,
    least=lambda case: both_ways(range(case.world_size), 1),
    visible=(
        hybrid_case("4 ranks in 2 nodes, one tensor of 4 x 6", 1371, [[0, 1], [2, 3]], [(4, 6)]),
        hybrid_case("4 ranks, nodes of ranks 0 and 2, 1 and 3", 1372, [[0, 2], [1, 3]], [(4, 2), (6,)]),
        hybrid_case("4 ranks in 2 nodes, sizes that do not divide", 1373, [[0, 1], [2, 3]], [(5, 3), (), (7,)]),
        hybrid_case("3 ranks, one node", 1374, [[0, 1, 2]], [(3, 5), (4,)]),
    ),
    hints=(
        "It is flat_shards again, inside a group. What is missing afterwards are the other nodes' gradients, and every "
        "one of your shards has a counterpart there.",
        "Give all three the group: dist.get_world_size(node), dist.get_rank(node), group=node. In the function that "
        "start_hybrid_scatter returns, wait, all_reduce your part in across, and divide by both sizes.",
        "rows = functional.pad(flat, (0, -len(flat) % n)).view(n, -1) with n = dist.get_world_size(node); "
        "REDUCE_SCATTER(mine, rows.view(-1), group=node, async_op=True); later dist.all_reduce(mine, group=across).",
    ),
    mistakes=MISTAKES,
    blame=blaming({_GLOBAL: _no_such_row, _TORN: bearing("must be", "size", "shape", "expected")}),
    certain=frozenset({_GLOBAL}),
)
