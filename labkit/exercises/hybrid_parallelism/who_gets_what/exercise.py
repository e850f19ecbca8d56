"""Batch arithmetic on a mesh, and who draws the same random numbers as whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, Result, declared
from labkit.checks.finding import Finding
from labkit.checks.structure import ANYTHING
from labkit.checks.values import integer
from labkit.checks.wire import Wire
from labkit.exercises.hybrid_parallelism.meshes import Sizes, as_value, places, sizes_of, world_size
from labkit.exercises.hybrid_parallelism.stages import replica
from labkit.exercises.hybrid_parallelism.who_gets_what.driver import drive

Place = Mapping[str, int]
Split = Callable[[int, int, Sizes, Place], Value]


def who_case(name: str, sizes: Sizes, batch: int, microbatch: int, seed: int = 7) -> Case:
    """Return a case: a mesh, a batch of so many samples, and a microbatch's size."""
    return Case(
        name, 1, ({"sizes": as_value(sizes), "batch": batch, "microbatch": microbatch, "seed": seed},)
    )  # fmt: skip


def _replicas(sizes: Sizes) -> int:
    return sizes.get("data", 1) * sizes.get("shard", 1)


def _split(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    """Return a rank's microbatches by the rule; nothing where they do not divide."""
    if batch % (microbatch * _replicas(sizes)):
        return None
    share = batch // _replicas(sizes)
    first = replica(place, sizes) * share
    return [list(range(at, at + microbatch)) for at in range(first, first + share, microbatch)]


def _by_rank(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    """Return a share of each rank, as if tensor ranks and stages had samples of their own."""
    share = batch // world_size(sizes)
    first = places(sizes).index(dict(place)) * share
    return [list(range(at, min(at + microbatch, first + share))) for at in range(first, first + share, microbatch)]


def _data_alone(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    share = batch // sizes.get("data", 1)
    first = place.get("data", 0) * share
    return [list(range(at, at + microbatch)) for at in range(first, first + share, microbatch)]


def _everything(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    return [list(range(at, min(at + microbatch, batch))) for at in range(0, batch, microbatch)]


def _by_count(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    """Return so many microbatches as one should be large."""
    share = batch // _replicas(sizes)
    first, size = replica(place, sizes) * share, share // microbatch
    return [list(range(at, at + size)) for at in range(first, first + share, size)] if size else None


def _strided(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    mine = list(range(batch))[replica(place, sizes) :: _replicas(sizes)]
    return [mine[at : at + microbatch] for at in range(0, len(mine), microbatch)]


def _dealt_microbatches(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    first, step = replica(place, sizes) * microbatch, _replicas(sizes) * microbatch
    return [list(range(at, at + microbatch)) for at in range(first, batch, step)]


def _striped(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    share = batch // _replicas(sizes)
    first, count = replica(place, sizes) * share, share // microbatch
    return [list(range(first + m, first + share, count)) for m in range(count)]


def _shard_first(batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    share = batch // _replicas(sizes)
    first = (place.get("shard", 0) * sizes.get("data", 1) + place.get("data", 0)) * share
    return [list(range(at, at + microbatch)) for at in range(first, first + share, microbatch)]


def _by_own_axis(first: str, batch: int, microbatch: int, sizes: Sizes, place: Place) -> Value:
    """Return the shares of replicas whose place on an axis is multiplied by that axis's own size."""
    last, share = {"data": "shard", "shard": "data"}[first], batch // _replicas(sizes)
    begin = (place.get(first, 0) * sizes.get(first, 1) + place.get(last, 0)) * share
    return [list(range(at, at + microbatch)) for at in range(begin, begin + share, microbatch)]


def _all(split: Split, case: Case, rank: int) -> list[Value]:
    inputs = case.inputs[0]
    sizes = sizes_of(inputs)
    batch, microbatch = integer(inputs, "batch"), integer(inputs, "microbatch")
    return [split(batch, microbatch, sizes, place) for place in places(sizes)]


def expected(case: Case) -> list[Values]:
    """Return every rank's microbatches, as far as they divide; seeds have no numbers that are right by themselves."""
    return [{"samples": _all(_split, case, 0)}] if None not in _all(_split, case, 0) else [{}]


def _of_each(case: Case, got: tuple[Values, ...], key: str) -> list[Any]:
    """Return what came for each rank's place; None for all where it is no list of as many."""
    found, count = got[0].get(key), len(places(sizes_of(case.inputs[0])))
    return found if isinstance(found, list) and len(found) == count else [None] * count


def _refusals(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what was refused without need, and what was not."""
    inputs, came = case.inputs[0], _of_each(case, got, "samples")
    sizes = sizes_of(inputs)
    must = None in _all(_split, case, 0)
    numbers = f"batch {inputs['batch']}, microbatch {inputs['microbatch']}, {_replicas(sizes)} replicas"
    for rank, each in enumerate(came):
        refused = isinstance(each, dict)
        if must and not refused:
            yield Finding(_UNEVEN, f"{numbers}: ValueError was expected on rank {rank}, none was raised.", rank=None)
        if refused and not must:
            yield Finding(_NEEDLESS, f"{numbers}: rank {rank} raised ValueError, and they do divide.")


def _held(case: Case, got: Got) -> tuple[list[list[int]], int]:
    """Return the samples of each replica, none where they are no numbers, and how many the batch has."""
    inputs = case.inputs[0]
    if not isinstance(got, tuple):
        return [], 0
    came = _of_each(case, got, "samples")
    first: dict[int, list[int]] = {}
    for place, each in zip(places(sizes_of(inputs)), came, strict=True):
        if not isinstance(each, list) or not all(isinstance(one, list) for one in each):
            return [], 0
        first.setdefault(replica(place, sizes_of(inputs)), [sample for one in each for sample in one])
    return list(first.values()), integer(inputs, "batch")


def _beyond(case: Case, got: Got, wire: Wire) -> bool:
    held, batch = _held(case, got)
    return any(sample not in range(batch) for each in held for sample in each)


def _other_error(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and "in my_samples" in got.detail and None in _all(_split, case, 0)


def _not_in_lists(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, tuple) and any(isinstance(each, str) for each in _of_each(case, got, "samples"))


def _twice(case: Case, got: Got, wire: Wire) -> bool:
    held, _ = _held(case, got)
    everybody = [sample for each in held for sample in each]
    return len(set(everybody)) < len(everybody)


def _left_out(case: Case, got: Got, wire: Wire) -> bool:
    held, batch = _held(case, got)
    return bool(held) and len({sample for each in held for sample in each}) < batch


def _seeds(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield two ranks that draw the same and should not, or that should and do not."""
    sizes = sizes_of(case.inputs[0])
    everybody = places(sizes)
    seed = integer(case.inputs[0], "seed")
    for kind in ("whole", "cut", "another_run", "another_cut"):
        seeds = _of_each(case, got, kind)
        if any(type(each) is not int for each in seeds):
            yield Finding(_NO_SEED, f"dropout_seed returned {next(s for s in seeds if type(s) is not int)}.")
            return
    if not seed and len(alike := set(_of_each(case, got, "whole") + _of_each(case, got, "cut"))) == 1:
        yield Finding(_PRODUCT, f"With seed=0 every rank has the seed {alike.pop()}, of cut and of uncut layers.")
    for kind in ("whole", "cut"):
        seeds = _of_each(case, got, kind)
        for one, first in enumerate(everybody):
            for other in range(one):
                differ = [axis for axis in sizes if first[axis] != everybody[other][axis]]
                same = kind == "whole" and differ == ["tensor"]
                if (seeds[one] == seeds[other]) != same:
                    yield Finding(_of_seeds(kind, differ), _said(kind, other, one, differ, same))
    whole, cut = (_of_each(case, got, kind) for kind in ("whole", "cut"))
    if both := set(whole) & set(cut):
        shared = both.pop()
        ranks = f"rank {whole.index(shared)} with is_cut=False and rank {cut.index(shared)} with is_cut=True"
        yield Finding(_BOTH, f"{ranks} have the same seed, and must not.")
    for seeds, kind, is_cut in ((whole, "another_run", False), (cut, "another_cut", True)):
        if any(one == other for one, other in zip(seeds, _of_each(case, got, kind), strict=True)):
            text = f"A rank has the same seed for seed={seed} and for seed={seed + 1}, with is_cut={is_cut}."
            yield Finding(_ALL_RUNS, text)


def _of_seeds(kind: str, differ: list[str]) -> str:
    if kind == "whole" and differ == ["tensor"]:
        return _APART
    return _ALIKE if differ == ["tensor"] else _REPEATS


def _said(kind: str, one: int, other: int, differ: list[str], same: bool) -> str:
    where = f"ranks {one} and {other} differ in {' and '.join(differ)}"
    have = "they must have the same seed, and have two" if same else "they have the same seed, and must not"
    return f"is_cut={kind == 'cut'}: {where}; {have}."


_UNEVEN, _NEEDLESS, _NO_SEED, _APART, _ALIKE, _REPEATS, _BOTH, _ALL_RUNS, _PRODUCT = (
    "does not divide", "a needless refusal", "no seed", "tensor ranks drift apart", "pieces drop alike",
    "replicas drop alike", "cut as uncut", "one seed for all runs", "a product with the seed",
)  # fmt: skip


def _way(split: Split) -> dict[str, object]:
    return {"samples": partial(_all, split)}


_MESH = {"data": 2, "shard": 1, "pipeline": 1, "tensor": 2}
EXERCISE = declared(
    id="who_gets_what",
    functions=("my_samples", "dropout_seed"),
    driver=drive,
    oracle=expected,
    structure=lambda case: [{"samples": ANYTHING, "whole": ANYTHING, "cut": ANYTHING}],
    looks=(
        _refusals,
        Result("samples", "my_samples is wrong. For all ranks it gives {got}."),
        _seeds,
    ),
    mistakes=(
        Mistake("each rank its own samples",
                "Tensor ranks and stages of one replica work on the same samples. Only \"data\" and \"shard\" "
                "split the "
                "batch.", _way(_by_rank)),  # type: ignore[arg-type]
        Mistake("data alone", "\"shard\" splits the batch, too: a replica is a place on \"data\" and on \"shard\".",
                _way(_data_alone)),  # type: ignore[arg-type]
        Mistake("the batch on every replica",
                "Every replica gets the whole batch: data x shard replicas share it.", _way(_everything)),  # type: ignore[arg-type]
        Mistake("microbatch is a size",
                "microbatch is how many samples one microbatch has, not how many microbatches there are.",
                _way(_by_count)),  # type: ignore[arg-type]
        Mistake("dealt out", "A replica gets a run of consecutive samples, not every so-manieth.", _way(_strided)),  # type: ignore[arg-type]
        Mistake("microbatches dealt out",
                "You deal whole microbatches out in turn. A replica takes one run of consecutive samples, then cuts "
                "that into microbatches.", _way(_dealt_microbatches)),  # type: ignore[arg-type]
        Mistake("striped microbatches",
                "A microbatch, too, is a run of consecutive samples, not every so-manieth of its replica's.",
                _way(_striped)),  # type: ignore[arg-type]
        Mistake("shard before data", "Replicas are counted along \"shard\" first: data place x shard ranks + shard "
                "place.", _way(_shard_first)),  # type: ignore[arg-type]
        Mistake("multiplied by its own axis",
                "A replica's number is data place x shard ranks + shard place: one step along \"data\" passes all "
                "shard ranks, so multiply by sizes[\"shard\"], not by the size of the place's own axis.",
                {"samples": tuple(partial(_all, partial(_by_own_axis, axis)) for axis in ("data", "shard"))}),
        Mistake("no microbatches",
                "Return a list of microbatches, each of them the list of its samples' numbers.", seen=_not_in_lists),
        Mistake("samples beyond the batch",
                "A replica takes samples that the batch does not have: replica r begins at r x (batch // replicas) "
                "and ends before the next one begins.", seen=_beyond),
        Mistake("a sample twice",
                "A sample is trained on twice: replica r begins where replica r - 1 ends, at r x (batch // replicas), "
                "and a microbatch where the one before ends.", seen=_twice),
        Mistake("samples left out",
                "Some samples are nobody's: the replicas' shares, and the microbatches of a share, leave no gap "
                "between them.", seen=_left_out),
        Mistake(_UNEVEN,
                "The microbatches of all replicas must make up the batch: refuse a batch that microbatch x data x "
                "shard "
                "does not divide, with a ValueError that says the numbers."),
        Mistake("another error than ValueError",
                "A batch that cannot be split is refused with a ValueError: who calls my_samples expects that one.",
                seen=_other_error, certain=True),
        Mistake(_NEEDLESS, "Refuse only what does not divide: tensor and pipeline ranks do not split the batch."),
        Mistake(_NO_SEED, "Return an int."),
        Mistake(_APART,
                "Where nothing is cut, tensor ranks hold the same activations. Another mask on each makes them drift "
                "apart: leave the tensor place out of the seed."),
        Mistake(_ALIKE,
                "Where activations are cut, each tensor rank has a piece of its own. One mask for all would repeat "
                "itself: let the tensor place count if is_cut."),
        Mistake(_PRODUCT, "A product with the run's seed is 0 in the run with seed 0: the places must be added to "
                "it."),
        Mistake(_REPEATS,
                "Other samples and other layers need other masks: places on \"data\", \"shard\" and \"pipeline\" all "
                "count, and no two combinations of places may end in the same number. Fixed strides, as 100 x stage, "
                "run into the next replica's with enough stages: multiply by sizes."),
        Mistake(_BOTH,
                "A cut layer and an uncut one are other layers and need other masks: is_cut itself counts in the "
                "seed."),
        Mistake(_ALL_RUNS, "Another run draws other masks: the seed you were given counts, too."),
    ),
    visible=(
        who_case("2 replicas of 2 tensor ranks, 8 samples", _MESH, 8, 2),
        who_case("2 x 2 replicas of 2 stages", {"data": 2, "shard": 2, "pipeline": 2, "tensor": 1}, 12, 3),
        who_case("6 samples in microbatches of 2 for 2 replicas", _MESH, 6, 2),
        who_case("9 samples in microbatches of 2 for 2 replicas", _MESH, 9, 2),
        who_case("3 stages of 2 tensor ranks, one replica", {"data": 1, "shard": 1, "pipeline": 3, "tensor": 2}, 10, 5,
                 seed=0),
        who_case("2 replicas of 12 stages", {"data": 1, "shard": 2, "pipeline": 12, "tensor": 2}, 8, 2),
    ),
    hints=(
        "Which axes see other samples? Which ranks hold the very same activations?",
        "The replica's number is its place on data times the shard ranks plus its place on shard. A rank's number in "
        "the mesh without the tensor axis tells apart all that must be apart.",
        "share = batch // replicas; range(first, first + share, microbatch). Seed: number = int(is_cut); for each of "
        "the four axes number = number * sizes[axis] + place[axis], with place 0 on tensor unless is_cut; "
        "seed x 2 x the ranks of the mesh + number: then no two runs share a seed either.",
    ),
    distributed=False,
)  # fmt: skip
