"""Few entries: the largest, and some drawn by lot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.case import Case, Value, Values
from labkit.checks.judged import judged
from labkit.checks.structure import Each, OneOf
from labkit.checks.wire import Wire
from labkit.exercises.gradient_compression.few_entries.driver import drive
from labkit.exercises.gradient_compression.findings import Finding, judging, mistakes, raising, wrong_value
from labkit.exercises.gradient_compression.packets import (
    COMMON,
    LEFT_BEHIND,
    Compressed,
    call,
    compressed,
    drawn,
    first_finding,
    packets_case,
    too_large,
)


def sparse_case(name: str, seed: int, sizes: Sequence[tuple[Sequence[int], float]]) -> Case:
    """Return a case: (shape, ratio) for both compressors; random-k twice with one seed and once with another.

    Gradients of more than one dimension are in float64.
    """
    calls: list[Value] = []
    for place, (shape, ratio) in enumerate(sizes):
        gradient = drawn(seed + place, *shape, dtype=torch.float32 if len(shape) == 1 else torch.float64)
        calls.append(call("TopK", gradient, ratio=ratio))
        for noise, lot in ((1, seed), (2, seed), (1, seed + 1000)):
            calls.append(call("RandomK", gradient, times=3, noise=noise, ratio=ratio, seed=lot))
    return packets_case(name, calls)


def kept(ratio: float, entries: int) -> int:
    """Return how many entries are kept."""
    return max(int(ratio * entries), 1)


def expected(case: Case) -> list[Values]:
    """Return what TopK must give; of RandomK, which may draw as it likes, only how many (the oracle)."""
    came: list[Value] = []
    for each in cast(list[dict[str, Any]], case.inputs[0]["calls"]):
        count = kept(each["options"]["ratio"], each["gradient"].numel())
        came.append([{"back": _largest(each["gradient"], count)} if each["compressor"] == "TopK" else {"kept": count}])
    return [{"came": came}]


def structure(case: Case) -> list[Any]:
    """Return what comes of each time a gradient is compressed."""
    came = []
    for each in cast(list[dict[str, Any]], case.inputs[0]["calls"]):
        result = {"parts": Each(Tensor, 1), "back": each["gradient"], "changed": bool, "disturbed": bool}
        came.append([OneOf((result, {"problem": str}))] * each["times"])
    return [{"came": came}]


def _largest(gradient: Tensor, count: int) -> Tensor:
    border = gradient.abs().flatten().sort(descending=True).values[count - 1]
    return torch.where(gradient.abs() >= border, gradient, torch.zeros_like(gradient))


def _look(one: Compressed, result: dict[str, Any]) -> Finding | None:
    gradient, back = one.gradient, cast(Tensor, result["back"])
    count, what = kept(float(one.options["ratio"]), gradient.numel()), f"What {one.name} unpacked"
    there = back != 0
    if bool(there.any()) and torch.equal(back.abs(), torch.where(there, gradient.abs(), 0.0)):
        if not torch.equal(back, torch.where(there, gradient, 0.0)):
            return wrong_value("signs lost", what, back, torch.where(there, gradient, 0.0))
    elif torch.allclose(back, torch.where(there, gradient * gradient.numel() / count, 0.0), rtol=1e-5):
        return wrong_value("scaled up", what, back, torch.where(there, gradient, 0.0))
    else:
        values = cast(Tensor, result["parts"][0])
        moved = values.numel() == count and torch.equal(back[there].sort().values, values.flatten().sort().values)
        name = "values in other places" if moved else "a wrong entry"
        return wrong_value(name, what, back, torch.where(there, gradient, 0.0))
    if int(there.sum()) != count:
        twice = one.name == "RandomK" and int(there.sum()) < count == result["parts"][0].numel()
        return Finding(
            "a place drawn twice" if twice else "another number of entries",
            f"{one.name} kept {int(there.sum())} of {gradient.numel()} entries at a ratio of {one.options['ratio']}.",
            f"{count} entries",
            f"{int(there.sum())} entries",
        )
    size = gradient.element_size()
    if one.name == "TopK":
        right = _largest(gradient, count)
        if not torch.equal(back, right):
            signed = gradient >= gradient.flatten().sort(descending=True).values[count - 1]
            name = "largest instead of largest magnitude" if torch.equal(there, signed) else "not the largest"
            return wrong_value(name, what, back, right)
        long = any(part.dtype == torch.int64 for part in result["parts"])
        return too_large(one, result, count * (size + 4), "places of eight bytes" if long else "zeros travel")
    return too_large(one, result, count * size + 8, "places travel")


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Finding | None:
    """Return the first thing that is wrong."""
    return first_finding(case, got, _look) or _lots(case, got) or _disturbed(case, got)


def _disturbed(case: Case, got: tuple[Values, ...]) -> Finding | None:
    """Return a finding if torch's own generator is not as it was."""
    for one in compressed(case, got):
        if any(result["disturbed"] for result in one.came):
            return Finding(
                "the global generator is disturbed",
                f"After {one.name}, torch's own generator stands elsewhere than before.",
            )
    return None


def _lots(case: Case, got: tuple[Values, ...]) -> Finding | None:
    """Return what is wrong with the places that RandomK drew, over several calls and compressors."""
    drawn_places: dict[tuple[int, int, int], list[list[int]]] = {}
    for place, one in enumerate(compressed(case, got)):
        if one.name == "RandomK":
            where = [cast(Tensor, result["back"]).flatten().nonzero().flatten().tolist() for result in one.came]
            key = (
                id(one.gradient) if one.gradient.numel() == 0 else one.gradient.numel(),
                int(one.options["seed"]),
                place,
            )
            drawn_places[key] = where
    same: dict[tuple[int, int], list[list[list[int]]]] = {}
    for (entries, seed, _), where in drawn_places.items():
        same.setdefault((entries, seed), []).append(where)
    for (entries, seed), runs in same.items():
        if entries < 30:
            continue  # too few entries to tell chance from a mistake
        if any(run[0] == run[1] == run[2] for run in runs):
            return Finding(
                "the same places in every call", "RandomK kept the same places in three calls one after another."
            )
        if len(runs) == 2 and runs[0] != runs[1]:
            return Finding(
                "the seed is not used",
                f"Two ranks with the seed {seed} kept other places: {runs[0][0][:8]} and {runs[1][0][:8]} in the "
                "first call.",
            )
    firsts = [runs[0] for (entries, _), runs in same.items() if entries >= 30]
    if len(firsts) >= 2 and any(a == b for a, b in pairwise(firsts)):
        return Finding("every seed draws the same", "RandomK kept the same places with another seed.")
    return None


EXERCISE = judged(
    id="few_entries",
    functions=("TopK", "RandomK"),
    given=("Packet", "num_kept"),
    driver=drive,
    oracle=expected,
    structure=structure,
    judge=judging(find),
    visible=(
        sparse_case("100 entries, a tenth", 631, [((100,), 0.1)]),
        sparse_case("a matrix, 8 of 77", 632, [((7, 11), 0.115)]),
        sparse_case("fewer than one", 633, [((6,), 0.01)]),
    ),
    distributed=False,
    hints=(
        "topk gives two things, values and indices. Of which tensor must the values come? And what must the other rank "
        "know so that it can draw the same places?",
        "TopK: indices of gradient.flatten().abs().topk(k), then flat[indices]. RandomK: a torch.Generator seeded with "
        "seed + calls, torch.randperm(numel, generator=...)[:k]; that sum travels, and decompress draws again.",
        "places = flat.abs().topk(k).indices; Packet((flat[places], places.to(torch.int32)), ...). And "
        "torch.randperm(n, generator=torch.Generator().manual_seed(int(seed)))[:k] in both methods.",
    ),
    mistakes=(
        LEFT_BEHIND,
        raising("dtype lost", COMMON["dtype_lost"], "source and destination dtypes match"),
        *mistakes(
            find,
            **COMMON,
            signs_lost="flat.abs().topk(k) gives magnitudes: use its indices only, and take the values from the "
            "gradient. "
            "This is the post of lesson 00.",
            largest_instead_of_largest_magnitude="You keep the largest entries; a large negative one counts as much: "
            "look for places by magnitude.",
            places_of_eight_bytes="topk's indices are int64, eight bytes each. Send them as int32.",
            places_travel="RandomK sends its places. The receiver can draw them again from the seed: 8 bytes for "
            "all of them.",
            zeros_travel="Entries that were not kept travel too, as zeros: send the kept values, and their places.",
            another_number_of_entries="Keep num_kept(ratio, numel) entries; it rounds down.",
            a_place_drawn_twice="Some places were drawn twice: torch.randint draws with replacement, the first k of "
            "torch.randperm are all different.",
            values_in_other_places="The values are right and came back in other places: decompress must draw from the "
            "seed that is in the packet. self.seed and self.num_calls are this rank's own.",
            the_same_places_in_every_call="RandomK draws the same places in every call, so the others never "
            "travel: count "
            "the calls, and draw with seed + calls.",
            the_seed_is_not_used="Ranks with the same seed must draw the same places, whatever torch's own "
            "generator does: "
            "give torch.randperm a torch.Generator of your own.",
            every_seed_draws_the_same="RandomK must draw from the seed it was given, plus the number of calls.",
            the_global_generator_is_disturbed="torch.manual_seed sets the generator that dropout and shuffling draw "
            "from: seed a torch.Generator of your own, and hand it to torch.randperm.",
            scaled_up="The values came back times N/k. That would make a single packet right on average; with error "
            "feedback it counts twice. Send the entries as they are.",
        ),
    ),
)
