"""Few entries: the largest, and some drawn by lot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.compare import wrong_value
from labkit.checks.declared import Mistake, declared
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.values import integer, number, record, records, tensor, text
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression import packets
from labkit.exercises.gradient_compression.few_entries.driver import drive
from labkit.exercises.gradient_compression.packets import Compressed, compressed, too_large, too_small

_FEW = 30
"""With fewer entries two draws may well be equal by chance."""
_NO_CHANCE = 1e6
"""So many ways to draw leave no chance that two calls draw alike."""
_CALLS = 12
"""So many calls of compress at most does a RandomK of a case get."""
_ONE_COUNTER, _UNPACKS_TOO = "one counter for all", "decompress counts, too"
_TIES = "all that are as large are kept"
_ORDER, _SEED_KIND, _ROWS, _NOT_ZERO, _BLOCK, _OTHER_SEED, _MOVED = (
    "parts in another order", "a seed of another kind", "the largest of each row", "not 0 elsewhere",
    "neighbours in place of lots", "another seed than seed + n", "values in other places",
)  # fmt: skip


def sparse_case(
    name: str,
    seed: int,
    sizes: Sequence[tuple[Sequence[int], float]],
    *,
    gaps: bool = False,
    double: bool | None = None,
    alike: bool = False,
    between: bool = False,
) -> Case:
    """Return a case: (shape, ratio) for both compressors; random-k twice with one seed and once with another.

    Args:
        name: What is special about it.
        seed: Draws the numbers.
        sizes: Shapes, and shares that are kept.
        gaps: Whether gradients are not contiguous.
        double: Whether they are in float64; None where those of more than one dimension are.
        alike: Whether all entries have the same magnitude.
        between: Whether random-k compresses a gradient of another shape after each call.
    """
    calls: list[Value] = []
    for place, (shape, ratio) in enumerate(sizes):
        wide = len(shape) > 1 if double is None else double
        gradient = normal(seed + place, *shape, dtype=torch.float64 if wide else torch.float32)
        gradient = gradient.sign() if alike else gradient
        calls.append(packets.call("TopK", gradient, ratio=ratio, gaps=gaps))
        lots = [part_of(seed, "lot", number) % 2**30 for number in range(2)]
        for noise, lot in ((1, lots[0]), (2, lots[0]), (1, lots[1])):
            of_lot: Any = packets.call("RandomK", gradient, times=3, noise=noise, gaps=gaps, ratio=ratio, seed=lot)
            calls.append({**of_lot, "between": torch.ones(3, 5)} if between else of_lot)
    return packets.packets_case(name, calls)


def kept(ratio: float, entries: int) -> int:
    """Return how many entries are kept."""
    return max(int(ratio * entries), 1)


def expected(case: Case) -> list[Values]:
    """Return what TopK must give; of RandomK, which may draw as it likes, only how many (the oracle)."""
    calls: list[Value] = []
    for each in records(case.inputs[0], "calls"):
        gradient = tensor(each, "gradient")
        count = kept(number(record(each, "options"), "ratio"), gradient.numel())
        largest = text(each, "compressor") == "TopK"
        calls.append([{"unpacked": _largest(gradient, count)} if largest else {"kept": count}] * integer(each, "times"))
    return [{"calls": calls}]


def _largest(gradient: Tensor, count: int) -> Tensor:
    flat = gradient.flatten()
    places = flat.abs().topk(count).indices
    return torch.zeros_like(flat).index_put((places,), flat[places]).view(gradient.shape)


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: gradient by gradient, then what RandomK drew over all of them, then what it disturbed."""
    for each in packets.findings(case, got, _look):
        if each.mistake == _MOVED:  # of another seed than it says, and not of the receiver's own
            yield from _seeds(case, got)
        yield each
    yield from _counters(case, got)
    yield from _lots(case, got)
    for one in compressed(case, got):
        if one.result["disturbed"]:
            message = f"{one.name} seeds torch's own generator, or changes its state."
            yield Finding("the global generator is disturbed", message)


def _look(one: Compressed) -> Iterator[Finding]:
    gradient, back = one.gradient, one.unpacked
    ratio = number(one.options, "ratio")
    count, what = kept(ratio, gradient.numel()), f"What {one.name} unpacked"
    there = back != 0
    own = torch.where(there, gradient, 0.0)
    if not torch.equal(back, own):
        yield wrong_value(_named(one, own, count), what, back, own)
    yield from _other_parts(one, count)
    if int(there.sum()) != count:
        yield Finding(
            _other_number(one, there, count),
            f"{one.name} kept {int(there.sum())} of {gradient.numel()} entries at a ratio of {ratio}.",
            f"{count} entries",
            f"{int(there.sum())} entries",
        )
    size = gradient.element_size()
    if one.name == "RandomK":
        yield from too_large(one, count * size + 8, "places travel")
        yield from too_small(one, count * size)
        return
    right = _largest(gradient, count)
    if not torch.equal(back.abs().flatten().sort().values, right.abs().flatten().sort().values):
        signed = gradient >= gradient.flatten().sort(descending=True).values[count - 1]
        name = "largest instead of largest magnitude" if torch.equal(there, signed) else "not the largest"
        yield wrong_value(name, what, back, right)
    long = any(part.dtype == torch.int64 for part in one.parts)
    yield from too_large(one, count * (size + 4), "places of eight bytes" if long else "zeros travel")
    yield from too_small(one, count * size)


def _other_parts(one: Compressed, count: int) -> Iterator[Finding]:
    """Yield that a packet has its two parts in another order, or a seed of another kind."""
    if len(one.parts) == 2 and not one.parts[0].is_floating_point() and one.parts[1].is_floating_point():
        kinds = " and ".join(str(part.dtype) for part in one.parts)
        yield Finding(_ORDER, f"{one.name}'s packet has parts of {kinds}.", "the kept values first", kinds)
    if one.name == "RandomK" and len(one.parts) == 2 and (one.parts[1].dtype, one.parts[1].numel()) != (torch.int64, 1):
        kind = f"{one.parts[1].dtype} of shape {tuple(one.parts[1].shape)}"
        yield Finding(_SEED_KIND, f"RandomK's second part is {kind}.", "torch.int64 of one entry", kind)


def _other_number(one: Compressed, there: Tensor, count: int) -> str:
    """Return why another number than `count` was kept; `there` says which entries were."""
    if one.name == "RandomK":
        twice = int(there.sum()) < count == one.parts[0].numel()
        return "a place drawn twice" if twice else "another number of entries"
    of_rows = there.reshape(-1, there.shape[-1]).sum(-1)
    by_rows = one.gradient.abs().topk(min(count, there.shape[-1])).indices  # taken for places in the flat gradient
    took_them = there.flatten().nonzero()[:, 0].tolist() == sorted(set(by_rows.flatten().tolist()))
    if there.dim() > 1 and (took_them or bool((of_rows == of_rows[0]).all())):
        return _ROWS
    sizes = one.gradient.abs()
    border = sizes.flatten().topk(count).values[-1]
    return _TIES if torch.equal(there, sizes >= border) else "another number of entries"


def _named(one: Compressed, own: Tensor, count: int) -> str:
    """Return what may have become of the entries that came back; `own` are those of the gradient in their places."""
    back, values = one.unpacked, one.parts[0].flatten()
    if torch.equal(back.abs(), own.abs()):
        return "signs lost"
    if int((back == one.gradient).sum()) == count and bool((back != 0).all()):
        return _NOT_ZERO
    if torch.allclose(back, own * own.numel() / count, rtol=1e-5):
        return "scaled up"
    moved = values.numel() == count and torch.equal(back[back != 0].sort().values, values.sort().values)
    return _MOVED if moved else "a wrong entry"


def _lots(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield what is wrong with the places that RandomK drew, over several calls and compressors."""
    drawn: dict[tuple[int, int], dict[int, list[list[int]]]] = {}
    for one in compressed(case, got):
        entries = one.gradient.numel()
        if one.name == "RandomK" and entries >= _FEW:
            of_calls = drawn.setdefault((entries, integer(one.options, "seed")), {})
            of_calls.setdefault(one.call, []).append(one.unpacked.flatten().nonzero().flatten().tolist())
    same = {key: list(of_calls.values()) for key, of_calls in drawn.items()}
    for (entries, seed), runs in same.items():
        if any(run[0] == run[1] == run[2] for run in runs):
            message = "RandomK kept the same places in three calls one after another."
            yield Finding("the same places in every call", message)
        kept = len(runs[0][0])
        if math.comb(entries, kept) > _NO_CHANCE and any(
            run[one] == run[other] for run in runs for one, other in ((0, 1), (1, 2), (0, 2))
        ):
            yield Finding("the same places in every call", "RandomK kept the same places in two calls of three.")
        if len(runs) == 2 and runs[0] != runs[1]:
            first, second = runs[0][0][:8], runs[1][0][:8]
            message = f"Two ranks with the seed {seed} kept different places in the first call: {first}, {second}."
            yield Finding("the seed is not used", message)
    if any(a == b for a, b in pairwise(runs[0] for runs in same.values())):
        yield Finding("every seed draws the same", "RandomK kept the same places with another seed.")
    every = [places for runs in same.values() for run in runs for places in run]
    if every and all(len(places) > 2 and places[-1] - places[0] == len(places) - 1 for places in every):
        yield Finding(_BLOCK, f"RandomK kept neighbours in each call, first {every[0]}.")
    yield from _seeds(case, got)


def _counters(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield that a RandomK goes on with another one's count of calls."""
    firsts: dict[int, int] = {}
    last = -1
    for one in compressed(case, got):
        begins, last = one.call != last, one.call
        if one.name != "RandomK" or not begins or len(one.parts) != 2 or one.parts[1].numel() != 1:
            continue
        seed, came = integer(one.options, "seed"), int(one.parts[1])
        if firsts.get(seed) == seed and 0 < came - seed <= _CALLS:
            message = f"Call 0 of another RandomK with the seed {seed}: the packet's seed is {came}."
            yield Finding(_ONE_COUNTER, message, f"{seed}", f"{came}")
        firsts.setdefault(seed, came)


def _seeds(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield the first call that draws with another seed than seed + n; n counts all calls of one RandomK, from 0."""
    number, last = 0, -1
    for one in compressed(case, got):
        number, last = (number + 1 if one.call == last else 0), one.call
        if one.name != "RandomK" or len(one.parts) != 2 or one.parts[1].numel() != 1:
            continue
        calls = number * (2 if "between" in records(case.inputs[0], "calls")[one.call] else 1)
        wanted, came = integer(one.options, "seed") + calls, int(one.parts[1])
        if came != wanted:
            message = f"Call {calls} of a RandomK with the seed {one.options['seed']}: the packet's seed is {came}."
            double = calls > 0 and "between" not in records(case.inputs[0], "calls")[one.call]
            name = _UNPACKS_TOO if double and came - wanted == calls else _OTHER_SEED
            yield Finding(name, message, f"{wanted}", f"{came}")


EXERCISE = declared(
    id="few_entries",
    functions=("TopK", "RandomK"),
    given=("Packet", "num_kept"),
    driver=drive,
    oracle=expected,
    looks=(find,),
    mistakes=(
        packets.LEFT,
        packets.GAPS,
        packets.OTHER_DTYPE,
        packets.PACKED_AS_OTHER_DTYPE,
        Mistake("places where the seed belongs",
                "The second part of a RandomK's packet is its seed, one number. Places do not travel: decompress draws "
                "them again.",
                says=("only one element tensors can be converted", "elements cannot be converted to Scalar"),
                certain=True),
        Mistake("places for values",
                "decompress takes the places for the values: compress and decompress have the parts in another order.",
                says=("Int for the source", "Long for the source"), certain=True),
        packets.NO_PACKET,
        packets.CHANGED,
        packets.NOTHING_BACK,
        packets.OTHER_SHAPE,
        Mistake("signs lost",
                "flat.abs().topk(k) gives magnitudes: use its indices only, and take the values from the gradient. "
                "This is the post of lesson 00."),
        Mistake("largest instead of largest magnitude",
                "You keep the largest entries, but a large negative one counts just as much: choose by magnitude."),
        Mistake("not the largest", "Other entries are larger in magnitude than those that were kept."),
        Mistake("places of eight bytes", "topk's indices are int64, eight bytes each. Send them as int32."),
        Mistake("places travel",
                "RandomK sends its places, but the receiver can draw them again from the seed: 8 bytes for all of "
                "them."),
        Mistake("zeros travel",
                "Entries that were not kept travel too, as zeros: send the kept values, and their places."),
        Mistake("another number of entries",
                "Keep exactly num_kept(ratio, numel) entries in each call: ratio is the share that is kept, and it "
                "rounds down."),
        Mistake(_ORDER, "A packet's first part holds the kept values; the indices, or the seed, come second."),
        Mistake(_SEED_KIND, "The second part of a RandomK's packet is its seed, an int64 tensor of one entry."),
        Mistake(_ROWS, "topk looked at each row by itself: choose among all entries, in the flat gradient."),
        Mistake(_NOT_ZERO, "The kept entries are right; all others come back as 0: begin with torch.zeros."),
        Mistake(_BLOCK, "The entries stand beside each other: draw each by lot, as torch.randperm does."),
        Mistake(_OTHER_SEED,
                "Call n draws with seed + n. n counts all calls of this RandomK from 0, whatever the shapes of their "
                "gradients, and the seed that was drawn with is the packet's second part."),
        Mistake(_TIES,
                "Several entries can be as large as the last one that is kept, and a threshold keeps them all. Take "
                "the indices of topk: there are num_kept(ratio, numel) of them, no more."),
        Mistake("a place drawn twice",
                "Some places were drawn twice: torch.randint draws with replacement, the first k of torch.randperm "
                "are all different."),
        Mistake(_MOVED,
                "The values are right but came back in other places: decompress must draw from the seed in the "
                "packet. self.seed and self.num_calls belong to this rank."),
        Mistake("the same places in every call",
                "RandomK draws the same places again, so others travel late or never: count the calls, and draw "
                "with seed + calls."),
        Mistake("the seed is not used",
                "Ranks with the same seed must draw the same places, whatever torch's own generator does: give "
                "torch.randperm a torch.Generator of your own."),
        Mistake("every seed draws the same", "RandomK must draw from the seed it was given, plus the number of calls."),
        Mistake("the global generator is disturbed",
                "torch.manual_seed sets the generator that dropout and shuffling draw from, for other threads inside "
                "fork_rng, too: seed a torch.Generator of your own, and hand it to torch.randperm."),
        Mistake(_ONE_COUNTER,
                "A new RandomK goes on with the count of an earlier one: the counter stands in the class, or outside. "
                "Each RandomK has one of its own, self.num_calls = 0 in __init__."),
        Mistake(_UNPACKS_TOO,
                "The seed goes up by two from one compress to the next. The counter counts calls of compress: "
                "decompress, which runs on other ranks, too, leaves it alone."),
        Mistake("scaled up",
                "The values came back times N/k. That would make a single packet right on average; with error "
                "feedback it counts twice. Send the entries as they are."),
    ),
    structure=packets.packets_structure,
    visible=(
        sparse_case("100 entries, a tenth", 631, [((100,), 0.1)]),
        sparse_case("a matrix, 8 of 77", 632, [((7, 11), 0.115)]),
        sparse_case("fewer than one", 633, [((6,), 0.01)]),
        sparse_case("not contiguous", 634, [((6, 8), 0.1)], gaps=True),
        sparse_case("all magnitudes alike, 4 of 40", 635, [((40,), 0.1)], alike=True),
        sparse_case("two shapes in turn", 636, [((50,), 0.1)], between=True),
    ),
    distributed=False,
    hints=(
        "topk returns values and indices. From which tensor must the values come? And what must the other rank know "
        "to draw the same places?",
        "TopK: indices of gradient.flatten().abs().topk(k), then flat[indices]. RandomK: a torch.Generator seeded with "
        "seed + calls, torch.randperm(numel, generator=...)[:k]; that sum travels, and decompress draws again.",
        "places = flat.abs().topk(k).indices; Packet((flat[places], places.to(torch.int32)), ...). And "
        "torch.randperm(n, generator=torch.Generator().manual_seed(int(seed)))[:k] in both methods.",
    ),
)  # fmt: skip
