"""Loading onto another number of ranks, and reading no more than a rank needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Values
from labkit.checks.compare import difference
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import part_of
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import MOST_PACKED, Bytes
from labkit.checks.structure import ANYTHING, Each
from labkit.checks.values import integer, listed, tensors, texts
from labkit.checks.wire import Wire
from labkit.exercises.remote_calls.drawn import drawer
from labkit.exercises.when_machines_fail.reshard.driver import drive, padded


def reshard_case(
    name: str, seed: int, sizes: dict[str, int], saved_ranks: int, num_ranks: int, *, apart: bool = False
) -> Case:
    """Return a case of reshard: tensors of so many elements, saved by some ranks, loaded by others.

    Args:
        name: In words.
        seed: Draws the tensors.
        sizes: Elements of each.
        saved_ranks: How many have saved.
        num_ranks: How many load.
        apart: Whether the files lie on another rank, so that what is read is seen.
    """
    about: Values = {
        "sizes": [[each, size] for each, size in sizes.items()],
        "saved_ranks": saved_ranks, "num_ranks": num_ranks, "apart": apart,
    }  # fmt: skip
    drawn = part_of(seed, "rank", 1) if apart else seed
    wholes = [drawer(drawn + place, size)() for place, size in enumerate(sizes.values())]
    wholes[0] = wholes[0] if apart else wholes[0].float()  # each tensor has a dtype of its own
    files = {**about, "wholes": wholes}
    return Case(name, 2, (about, files)) if apart else Case(name, 1, (files,))


def wholes_of(case: Case) -> list[Tensor]:
    """Return the tensors that were saved."""
    return tensors(case.inputs[-1], "wholes")


def _needed(case: Case) -> int:
    """Return how many elements all ranks together need."""
    return sum(len(each) for each in wholes_of(case))


BYTES = 8
"""Of an element."""

Way = Callable[[Tensor, int, int, int], Tensor]


def _right(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    return padded(whole, num_ranks).view(num_ranks, -1)[rank]


def _padding_kept(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    """Return the part of what the files hold, their padding with it."""
    return padded(padded(whole, saved_ranks), num_ranks).view(num_ranks, -1)[rank]


def _not_padded(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    size = -(-whole.numel() // num_ranks)
    return whole[rank * size : (rank + 1) * size]


def _one_file(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    """Return what the saved rank of the same number holds, cut or padded."""
    mine = padded(whole, saved_ranks).view(saved_ranks, -1)[min(rank, saved_ranks - 1)]
    size = -(-whole.numel() // num_ranks)
    return torch.nn.functional.pad(mine, (0, max(0, size - mine.numel())))[:size]


def _dealt(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    return padded(whole, num_ranks)[rank::num_ranks]


def _saved_down(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    """Return the part where a saved shard's length was rounded down."""
    size, mine = whole.numel(), -(-whole.numel() // num_ranks)
    held = padded(whole, saved_ranks).view(saved_ranks, -1)[:, : size // saved_ranks].flatten()
    begin, end = min(rank * mine, size), min((rank + 1) * mine, size)
    return torch.nn.functional.pad(held[begin:end], (0, mine - (end - begin)))


def _zeros_first(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    mine = _not_padded(whole, saved_ranks, num_ranks, rank)
    return torch.nn.functional.pad(mine, (-(-whole.numel() // num_ranks) - mine.numel(), 0))


def _own_borders(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    """Return the part that begins at rank * size / num_ranks, rounded down, padded to what it should have."""
    size, length = whole.numel(), -(-whole.numel() // num_ranks)
    mine = whole[rank * size // num_ranks : (rank + 1) * size // num_ranks]
    return torch.nn.functional.pad(mine, (0, length - mine.numel()))


def _first_ones_longer(whole: Tensor, saved_ranks: int, num_ranks: int, rank: int) -> Tensor:
    """Return the part of a split in which the first ranks have the elements that are left over."""
    mine = whole.tensor_split(num_ranks)[rank]
    return torch.nn.functional.pad(mine, (0, -(-whole.numel() // num_ranks) - mine.numel()))


def structure(case: Case) -> list[Any]:
    """Return what results look like: the parts, and what each rank read of each tensor."""
    ranks, tensors = integer(case.inputs[0], "num_ranks"), len(listed(case.inputs[0], "sizes"))
    counts = Each(Each(int, least=tensors, most=tensors), least=ranks, most=ranks)
    loaded = {"parts": ANYTHING, "read": counts, "outside": Each(str, most=1)}
    return [loaded] if case.world_size == 1 else [loaded, {"served": int}]


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield the first part that is wrong, and what was read in vain."""
    inputs, came = case.inputs[0], got[0]
    saved_ranks, num_ranks = integer(inputs, "saved_ranks"), integer(inputs, "num_ranks")
    names, wholes = [str(name) for name, _ in listed(inputs, "sizes")], wholes_of(case)
    parts = came["parts"] if isinstance(came["parts"], list) and len(came["parts"]) == num_ranks else []
    if outside := texts(came, "outside"):
        yield Finding(_BEYOND, f"{outside[0]}, which is beyond that shard.")
    for rank in range(num_ranks):
        part = parts[rank] if parts else None
        if not isinstance(part, dict) or set(part) != set(names):
            yield Finding(
                _FORM, f"load_part returned {part!s:.60} on rank {rank}, expected a tensor for each of {names}."
            )
            return
        for name, whole in zip(names, wholes, strict=True):
            wanted, mine = _right(whole, saved_ranks, num_ranks, rank), part[name]
            problem = _differs(mine, wanted)
            if problem:
                what = f"{name} ({len(whole)} elements, {saved_ranks} ranks to {num_ranks})"
                yield Finding(_named(case, mine, whole, rank), f"{what} is wrong on rank {rank}: {problem}.")
    for rank, counts in enumerate(listed(came, "read")):
        for name, whole, count in zip(names, wholes, counts, strict=False):
            size = -(-len(whole) // num_ranks)
            needs = min(size, max(0, len(whole) - rank * size))
            if count > needs:
                text = f"Rank {rank} read {count} elements of {name}, and needs {needs}."
                yield Finding(
                    _EVERYTHING if count >= len(whole) > needs else _PADDING_READ, text, str(needs), str(count)
                )
    most = BYTES * _needed(case)
    if case.world_size > 1 and (read := wire.bytes_received(0)) > most:
        text = f"{read} bytes were read, and all parts together need {most}."
        yield Finding(_EVERYTHING, text, str(most), str(read))


def _differs(came: Any, wanted: Tensor) -> str:
    if not isinstance(came, Tensor):
        return f"{came!r:.40} is no tensor"
    if came.shape != wanted.shape:
        return f"shape {tuple(came.shape)}, expected {tuple(wanted.shape)}"
    if came.dtype != wanted.dtype:
        return f"dtype {came.dtype}, expected {wanted.dtype}"
    found = difference(came, wanted, torch.zeros_like(wanted))
    return "" if found is None else f"{found.got} where {found.expected} should be"


def _named(case: Case, came: Any, whole: Tensor, rank: int) -> str:
    saved_ranks, num_ranks = integer(case.inputs[0], "saved_ranks"), integer(case.inputs[0], "num_ranks")
    if not isinstance(came, Tensor):
        return _FORM
    ways: tuple[tuple[str, Way], ...] = (
        (_NOT_PADDED, _not_padded), (_PADDING, _padding_kept), (_ZEROS_FIRST, _zeros_first), (_BORDERS, _own_borders),
        (_BORDERS, _first_ones_longer), (_ONE_FILE, _one_file), (_DEALT, _dealt), (_SAVED_DOWN, _saved_down),
    )  # fmt: skip
    if isinstance(came, Tensor) and came.dtype != whole.dtype:
        return _DTYPE
    down = whole.numel() // num_ranks
    if down * num_ranks != whole.numel() and _are(came, whole[rank * down : (rank + 1) * down]):
        return _DOWN
    for name, way in ways:
        wrong = way(whole, saved_ranks, num_ranks, rank)
        if _are(came, wrong):
            return name
    right = _right(whole, saved_ranks, num_ranks, rank)
    if came.dim() == 1 and len(came) != len(right):
        return _DOWN if len(came) == down else _SHORT if len(came) < len(right) else _LONG
    some = came[: int(came.count_nonzero())]
    starts = range(len(whole) - len(some) + 1) if len(some) else ()
    return _ELSEWHERE if any(_are(some, whole[at : at + len(some)]) for at in starts) else ""


def _are(came: Tensor, other: Tensor) -> bool:
    return came.shape == other.shape and torch.equal(came, other)


(
    _NOT_PADDED, _PADDING, _ONE_FILE, _DEALT, _EVERYTHING, _PADDING_READ, _BEYOND, _FORM, _DTYPE, _DOWN, _NOTHING_READ,
    _SAVED_DOWN, _SHORT, _LONG, _ELSEWHERE, _ZEROS_FIRST, _BORDERS,
) = (
    "not padded", "padding in the middle", "one file each", "dealt out", "everything read", "padding read",
    "beyond the shard", "not a dict of tensors", "another dtype", "rounded down",
    "no piece at all", "saved shards rounded down",
    "elements are missing", "elements too many", "begins elsewhere", "zeros in front", "lengths that differ",
)  # fmt: skip

EXERCISE = declared(
    id="reshard",
    functions=("load_part",),
    driver=drive,
    oracle=lambda case: [],
    structure=structure,
    looks=(find,),
    mistakes=(
        Mistake(_NOT_PADDED, "Every rank's part is equally long: pad the whole tensor with zeros at its end."),
        Mistake(_PADDING,
                "The saved ranks padded the tensor, too, and their zeros are no elements: stop at sizes[name], not at "
                "the end of the last shard."),
        Mistake(_ONE_FILE, "Your part begins and ends where other numbers of ranks do not: read from every shard that "
                "overlaps it."),
        Mistake(_DEALT, "A part is a run of consecutive elements, not every so-manieth."),
        Mistake(_EVERYTHING,
                "You read the whole tensor and throw most of it away. With thousands of ranks, each would read the "
                "whole model."),
        Mistake(_PADDING_READ, "You read more than your part holds: elements of others, or their padding."),
        Mistake(_BEYOND, "Begin and end count within one saved rank's shard, from 0 to its length."),
        Mistake(_DTYPE, "Zeros of your own have torch's default dtype. Take that of what you read, read(0, name, 0, 0) "
                "if there is nothing to read: each tensor has its own."),
        Mistake(_ZEROS_FIRST, "Padding fills the end of the last shards: first the elements, then the zeros."),
        Mistake(_BORDERS, "On n ranks each shard has size / n elements, rounded up, and rank r's begins at r times as "
                "many. Only the last ones have less than that."),
        Mistake(_DOWN, "Where a tensor does not divide by the number of ranks, round a part's length up."),
        Mistake(_SAVED_DOWN, "A saved shard's length was rounded up, too: -(-size // saved_ranks). Rounded down, "
                "shards seem to begin too early, and the last elements to be on a rank that never was.",
                says=("is no saved rank",), certain=True),
        Mistake(_SHORT, "Your pieces are shorter than the part. Where do your part and a saved shard overlap: from the "
                "later of the two beginnings to the earlier of the two ends?"),
        Mistake(_LONG, "Your pieces are longer than the part: it ends before rank + 1 begins."),
        Mistake(_ELSEWHERE, "These are consecutive elements of the tensor, but they begin at another one than this "
                "rank's part does: all ranks before it have their parts first."),
        Mistake(_NOTHING_READ, "A rank may have no element of a tensor, and torch.cat needs one piece at least: an "
                "empty read is one.", says=("expected a non-empty list of Tensors",), certain=True),
        Mistake(_FORM, "Return a dict with a flat tensor for each name in sizes."),
    ),
    visible=(
        reshard_case("5 ranks to 3", 161, {"weight": 15, "bias": 7}, 5, 3),
        reshard_case("2 ranks to 3", 162, {"weight": 12, "bias": 5}, 2, 3),
        reshard_case("3 ranks to 4, nothing divides", 163, {"weight": 11, "bias": 2}, 3, 4),
    ),
    distributed=False,
    least=lambda case: {} if case.world_size == 1 else {0: Bytes(into=MOST_PACKED * _needed(case))},
    hints=(
        "Draw 11 elements in 3 equal boxes, and under them in 4. Which boxes above does the second one below touch?",
        "Your part is elements begin to end of the whole tensor, cut off at its size. Each saved rank holds another "
        "such run. Read where the two overlap, put the pieces one after another, and pad.",
        "length = -(-size // saved_ranks). For each saved rank r: a = max(begin, r * length), b = min(end, (r + 1) * "
        "length); if a < b: read(r, name, a - r * length, b - r * length). Then torch.cat and pad to -(-size // "
        "num_ranks).",
    ),
)  # fmt: skip
