"""Flat shards: cut, gathered, scattered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.as_if import as_if
from labkit.checks.blame import by_signs
from labkit.checks.case import Case, Values
from labkit.checks.cut_wire import between_barriers, waited_at_once
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import both_ways
from labkit.checks.values import tensors
from labkit.checks.wire import CollectiveCall, Wire
from labkit.exercises.sharded_training.flat import Shape, drawn, mean, rows, same
from labkit.exercises.sharded_training.flat_shards.driver import drive
from labkit.exercises.sharded_training.marked_wire import calls_of


def shards_case(name: str, seed: int, world_size: int, shapes: Sequence[Shape], dtype: str = "float64") -> Case:
    """Return a case of flat_shards; targets have another dtype than the tensors where it is bfloat16."""
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
        })  # fmt: skip
    return Case(name, world_size, tuple(inputs))


def _mean(case: Case) -> list[Tensor]:
    gradients = [tensors(inputs, "gradients") for inputs in case.inputs]
    return [mean(each) for each in zip(*gradients, strict=True)]


def expected(case: Case) -> list[Values]:
    """Return each rank's shards, the filled tensors and the shards of the mean (the oracle)."""
    whole, size = tensors(case.inputs[0], "tensors"), case.world_size
    targets = tensors(case.inputs[0], "targets")
    filled = [each.to(target.dtype) for each, target in zip(whole, targets, strict=True)]
    return [
        {
            "shards": [rows(each, size)[rank] for each in whole],
            "copied": True,
            "targets": filled,
            "kept_memory": True,
            "unseen": True,
            "means": [rows(each, size)[rank] for each in _mean(case)],
        }
        for rank in range(size)
    ]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with shards, gathered tensors and means, and with how they travelled."""
    whole = tensors(case.inputs[0], "tensors")
    for rank, (came, right) in enumerate(zip(got, expected(case), strict=True)):
        mine, wanted = tensors(came, "shards"), tensors(right, "shards")
        if not same(mine, wanted):
            first = next(at for at, (a, b) in enumerate(zip(mine, wanted, strict=True)) if not same([a], [b]))
            one, other = wanted[first], mine[first]
            text = f"Rank {rank}'s shard of tensor {first}, of shape {tuple(whole[first].shape)}, is wrong"
            name, shown = _of_shards(case, rank, mine), [f"{len(one)} elements", f"{len(other)} elements"]
            if len(one) == len(other):
                text += "; these are its last elements"
                shown = [str([round(x, 4) for x in each.tolist()[-4:]]) for each in (one, other)]
            yield Finding(name, f"{text}.", shown[0], shown[1], rank)
        if not came["copied"]:
            yield Finding(_VIEW, f"Rank {rank}'s shards share the memory of the whole tensors.", rank=rank)
        if not same(tensors(came, "targets"), tensors(right, "targets")):
            untouched = all(bool((each == -7).all()) for each in tensors(came, "targets"))
            name = _UNWAITED if not _waits(wire, calls_of(wire, rank)) else _NOT_FILLED if untouched else _TORN
            yield Finding(name, f"After finish() rank {rank}'s tensors are not what was cut into shards.", rank=rank)
        if not came["kept_memory"]:
            yield Finding(_NEW_MEMORY, f"Rank {rank}'s tensors have other memory than before.", rank=rank)
        if not came["unseen"]:
            yield Finding(_SEEN, f"Autograd has seen rank {rank}'s tensors change.", rank=rank)
        means, of_all = tensors(came, "means"), tensors(right, "means")
        if not same(means, of_all):
            ways = [
                (_SUM, lambda of_all=of_all: [case.world_size * each for each in of_all]),
                (_DIVIDED, lambda of_all=of_all: [each / case.world_size for each in of_all]),
            ]
            name = as_if(means, ways, same) if _waits(wire, calls_of(wire, rank)) else _UNWAITED
            yield Finding(
                name, f"Rank {rank}'s shards of the mean are wrong.", str(of_all[0][:4]), str(means[0][:4]), rank
            )
    yield from _travelled(case, wire)


def _of_shards(case: Case, rank: int, mine: list[Tensor]) -> str:
    whole, size = tensors(case.inputs[0], "tensors"), case.world_size
    ways: list[tuple[str, Callable[[], list[Tensor]]]] = [
        (_STRIDED, lambda: [rows(each, size).reshape(-1)[rank::size] for each in whole]),
        (_FRONT, lambda: [_padded_in_front(each, size)[rank] for each in whole]),
    ]
    found = as_if(mine, ways, same)
    if found:
        return found
    sizes = [int(rows(torch.ones(each.shape), size)[rank].sum()) for each in whole]
    padded = [rows(each, size).shape[1] for each in whole]
    return _SHORT if [each.numel() for each in mine] == sizes != padded else ""


def _padded_in_front(tensor: Tensor, size: int) -> Tensor:
    flat = tensor.reshape(-1)
    return torch.cat([flat.new_zeros(-len(flat) % size), flat]).view(size, -1)


def _waits(wire: Wire, calls: Sequence[CollectiveCall]) -> bool:
    """Return whether somebody waits for these calls; where nobody saw any call end, they may."""
    seen = any(call.waited is not None for call in wire.collectives)
    return not seen or all(call.waited is not None for call in calls)


def _travelled(case: Case, wire: Wire) -> Iterator[Finding]:
    whole, size = tensors(case.inputs[0], "targets"), case.world_size
    most = sum(rows(each, size).numel() * each.element_size() for each in whole)
    for rank in range(size):
        parts = between_barriers(wire, rank)
        if len(parts) != 6:
            yield Finding("", "This check marks the wire with barriers of its own; call none in your code.", rank=rank)
            continue
        for begun, ended, what in ((parts[1], parts[2], "start_gather"), (parts[3], parts[4], "start_scatter")):
            if not begun and ended:
                yield Finding(
                    _LATE, f"{what} starts nothing: rank {rank} communicates only when finish() is called.", rank=rank
                )
            calls = [*begun, *ended]
            if any(call.kind == "all_reduce" for call in calls):
                yield Finding(
                    _WHOLE, f"In {what} rank {rank} calls all_reduce, which brings everything to everybody.", rank=rank
                )
            if len(calls) > 1:
                yield Finding(
                    _MANY,
                    f"In {what} rank {rank} calls {len(calls)} collectives for {len(whole)} tensors.",
                    rank=rank,
                )
            if any(call.bytes > most for call in calls):
                sent = sum(call.bytes for call in calls)
                yield Finding(_WIDE, f"In {what} {sent} bytes travel; the padded tensors have {most}.", rank=rank)
            if not _waits(wire, calls):
                text = f"{what} of rank {rank} gets what came before anybody has waited for it."
                yield Finding(_UNWAITED, text, rank=rank)
            if any(waited_at_once(call) for call in begun):
                yield Finding(
                    _BLOCKS, f"{what} returns on rank {rank} when all is over: nothing can overlap.", rank=rank
                )


_STRIDED, _SHORT, _NOT_FILLED, _TORN, _NEW_MEMORY, _SUM = (
    "every N-th element", "not padded", "not filled", "put together wrongly", "other memory",
    "sum for mean",
)  # fmt: skip
_VIEW, _FRONT, _SEEN, _UNWAITED, _DIVIDED = (
    "shares memory", "padded in front", "autograd sees it", "never waits", "divided twice",
)  # fmt: skip
_LATE, _WHOLE, _MANY, _WIDE, _BLOCKS = (
    "begins in finish", "all_reduce", "one collective each", "wider than the tensors", "waits at once",
)  # fmt: skip
MISTAKES = {
    _STRIDED: "A shard is a run of consecutive elements: rank 0 has the first ones, rank 1 the next.",
    _SHORT: (
        "A collective needs shards of equal size that cover the whole tensor. Round numel / world_size up, and pad "
        "the last shard with zeros."
    ),
    _NOT_FILLED: "The tensors did not change. finish() must copy the gathered values into tensor.data.",
    _TORN: (
        "The gathered values come rank by rank, and within a rank tensor by tensor. View it as (world_size, ...), cut "
        "it into columns, one for each tensor; a column, flattened, is the padded tensor."
    ),
    _NEW_MEMORY: "The tensors must keep their memory: copy into tensor.data instead of replacing it.",
    _SUM: "reduce_scatter adds up. Divide by the number of ranks.",
    _VIEW: "A view keeps the whole tensor's memory alive, which a shard is there to free. Return a copy: .clone().",
    _FRONT: "The zeros go after the tensor's end, in the last shard: pad(flat, (0, missing)).",
    _SEEN: "For autograd these are parameters, and writing into them is an error in training. Write into tensor.data.",
    _UNWAITED: (
        "Call wait() on the collective's handle before you use its result: without it, the buffer may hold anything."
    ),
    _DIVIDED: "This is smaller than the mean: divide by the number of ranks once.",
    _LATE: "Call the collective with async_op=True in the function that begins, and only wait in the one it returns.",
    _WHOLE: "An all_reduce sends twice the bytes that a reduce_scatter or an all_gather does.",
    _MANY: "Lay the parts of all tensors into one buffer, and send that: each collective costs a latency.",
    _WIDE: "You send more bytes than the tensors have. Shards travel in the dtype of the tensors.",
    _BLOCKS: "Pass async_op=True, and call wait() in the function that you return.",
}

EXERCISE = Exercise(
    id="flat_shards",
    functions=("shard_of", "start_gather", "start_scatter"),
    driver=drive,
    oracle=expected,
    find=find,
    least=lambda case: both_ways(range(case.world_size), 1),
    visible=(
        shards_case("2 ranks, one tensor of 4 x 6", 1301, 2, [(4, 6)]),
        shards_case("4 ranks, 5 x 7 does not divide", 1302, 4, [(5, 7)]),
        shards_case("3 ranks, a list of tensors, a scalar among them", 1303, 3, [(4, 3), (), (7,)]),
        shards_case("2 ranks, float32 shards of bfloat16 tensors", 1304, 2, [(3, 5), (4,)], "bfloat16"),
    ),
    hints=(
        "See a tensor as a table with one row for each rank: pad it, flatten it, view it as (world_size, -1). A "
        "shard is "
        "a row of it.",
        "Put the tables of a list side by side: torch.cat(tables, 1). Row r is all that rank r owns. Gathering "
        "fills the "
        "rows of such a table, scattering sends them; afterwards cut it into columns again, table.split(sizes, 1).",
        "rows = functional.pad(flat, (0, -len(flat) % n)).view(n, -1); work = REDUCE_SCATTER(mine, rows.view(-1), "
        "async_op=True); the function you return calls work.wait() and then splits mine / n.",
    ),
    mistakes=MISTAKES,
    blame=by_signs({_SEEN: ("leaf Variable",), _SHORT: ("must be", "size", "divisible", "expected")}),
)
