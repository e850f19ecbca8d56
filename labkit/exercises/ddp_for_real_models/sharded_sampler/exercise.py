"""Who sees which samples: compared with torch's own DistributedSampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch.utils.data import DistributedSampler

from labkit.checks.case import Case, Got, Values
from labkit.checks.declared import Mistake, declared, either
from labkit.checks.finding import Finding
from labkit.checks.structure import Each
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.averaging import marks
from labkit.exercises.ddp_for_real_models.sharded_sampler.driver import drive, most_indices

_TENSORS, _GLOBAL = "tensors for indices", "the global generator"
About = dict[str, Any]
Drawn = list[list[dict[str, Any]]]  # [rank][epoch]


def sampler_case(name: str, samplers: Sequence[About]) -> Case:
    """Return a case: size, world_size, epochs, and any of shuffle, seed, drop_last, for each sampler."""
    return Case(name, 1, ({"samplers": [dict(about) for about in samplers]},))


def _torchs(about: About) -> Drawn:
    options = {name: about[name] for name in ("shuffle", "seed", "drop_last") if name in about}
    drawn: Drawn = []
    for rank in range(about["world_size"]):
        sampler: Any = DistributedSampler(
            cast(Any, range(about["size"])), num_replicas=about["world_size"], rank=rank, **options
        )
        epochs = []
        for epoch in about["epochs"]:
            if epoch is not None:
                sampler.set_epoch(epoch)
            epochs.append({"length": len(sampler), "indices": list(sampler), "tensors": 0})
        drawn.append(epochs)
    return drawn


def expected(case: Case) -> list[Values]:
    """Return what torch's sampler yields (the oracle)."""
    return [{"drawn": [_torchs(about) for about in _abouts(case)], "reseeded": 0}]


def _abouts(case: Case) -> list[About]:
    return listed(case.inputs[0], "samplers")


def _pairs(case: Case, got: Got) -> list[tuple[About, Drawn, Drawn]]:
    """Return about, what should have come and what came, of each sampler."""
    came = got[0].get("drawn") if isinstance(got, tuple) else None
    if not isinstance(came, list) or len(came) != len(_abouts(case)):
        return []
    return [(about, _torchs(about), cast(Drawn, mine)) for about, mine in zip(_abouts(case), came, strict=True)]


def _structure(case: Case) -> list[Any]:
    """Return what the result looks like: how many indices there are is looked at with them."""
    epochs = [
        [[{"length": int, "indices": Each(int), "tensors": int}] * len(about["epochs"])] * about["world_size"]
        for about in _abouts(case)
    ]
    return [{"drawn": epochs, "reseeded": int}]


def _goes_on(about: About, epoch: dict[str, Any]) -> bool:
    """Return whether a sampler was cut off."""
    return len(epoch["indices"]) == most_indices(about["size"])


def wrong_indices(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield each epoch in which a rank draws something else than torch's sampler draws."""
    for about, wanted, mine in _pairs(case, got):
        for rank, (right, came) in enumerate(zip(wanted, mine, strict=True)):
            for number, (one, other) in enumerate(zip(right, came, strict=True)):
                epoch = about["epochs"][number]
                when = "set_epoch never called" if epoch is None else f"epoch {epoch}"
                where = f"{about['size']} samples, rank {rank} of {about['world_size']}, {when}"
                if one["indices"] != other["indices"]:
                    more = " or more; it does not end" if _goes_on(about, other) else ", not those of torch's sampler"
                    said = f"{where}: it yields {len(other['indices'])} indices{more}."
                    yield Finding("", said, str(one["indices"][:20]), str(other["indices"][:20]))
                elif one["length"] != other["length"]:
                    said = f"{where}: len() says {other['length']}, it yields {len(one['indices'])}."
                    yield Finding("", said)
                elif other["tensors"]:
                    yield Finding(
                        _TENSORS, f"{where}: the numbers are right, and {other['tensors']} of them are tensors."
                    )
    if got[0].get("reseeded"):
        yield Finding(_GLOBAL, "The indices are right, and torch's global generator has another state afterwards.")


def _as_if(of: Callable[[About, int, int], list[int]]) -> Any:
    """Return a test: everything that came is what a known wrong rule gives, and something is wrong."""

    def seen(case: Case, got: Got, wire: Wire) -> bool:
        pairs = _pairs(case, got)
        wrong = [pair for pair in pairs if any(
            [e["indices"] for e in a] != [e["indices"] for e in b] for a, b in zip(pair[1], pair[2], strict=True)
        )]  # fmt: skip
        return bool(wrong) and all(
            came["indices"] == of(about, rank, number)
            for about, _, mine in wrong
            for rank, epochs in enumerate(mine)
            for number, came in enumerate(epochs)
        )

    return seen


def _order(
    about: About, number: int, *, epochs: bool = True, seed: int | None = None, size: int | None = None
) -> list[int]:
    size = about["size"] if size is None else size
    if not about.get("shuffle", True):
        return list(range(size))
    said = [epoch for epoch in about["epochs"][: number + 1] if epoch is not None] if epochs else []
    generator = torch.Generator().manual_seed((about.get("seed", 0) if seed is None else seed) + [0, *said][-1])
    return cast(list[int], torch.randperm(size, generator=generator).tolist())


def _share(order: list[int], about: About, rank: int, *, pad: bool = True, blocks: bool = False) -> list[int]:
    size, ranks = len(order), about["world_size"]
    if about.get("drop_last"):
        order = order[: size // ranks * ranks]
    elif pad:
        total = math.ceil(size / ranks) * ranks
        order = (order * math.ceil(total / max(size, 1)))[:total]
    each = len(order) // ranks
    return order[rank * each : (rank + 1) * each] if blocks else order[rank::ranks]


def _padded_first(about: About, rank: int, number: int) -> list[int]:
    """Return a rank's part where the list is padded, or cut, before it is shuffled."""
    size, ranks = about["size"], about["world_size"]
    total = size // ranks * ranks if about.get("drop_last") else math.ceil(size / ranks) * ranks
    return [int(index) % size for index in _order(about, number, size=total)[rank::ranks]]


def _kept_all(about: About, rank: int, number: int) -> list[int]:
    return _share(_order(about, number), {**about, "drop_last": False}, rank)


def _shuffled_all_the_same(about: About, rank: int, number: int) -> list[int]:
    return _share(_order({**about, "shuffle": True}, number), about, rank)


def _one_row_too_many(about: About, rank: int, number: int) -> list[int]:
    """Return a rank's part where the list is padded even if it can be dealt out evenly."""
    order, ranks = _order(about, number), about["world_size"]
    if about.get("drop_last"):
        return _share(order, about, rank)
    total = (len(order) // ranks + 1) * ranks
    dealt: list[int] = (order * math.ceil(total / len(order)))[:total][rank::ranks]
    return dealt


def _nearest(half: float) -> Callable[[About, int, int], list[int]]:
    """Return a rule: each rank's number of samples is rounded to the nearest, halves up if 0.5, as round() if 0."""

    def part(about: About, rank: int, number: int) -> list[int]:
        order, ranks = _order(about, number), about["world_size"]
        if about.get("drop_last"):
            return _share(order, about, rank)
        total = ranks * (math.floor(len(order) / ranks + half) if half else round(len(order) / ranks))
        dealt: list[int] = (order * math.ceil(total / max(len(order), 1)))[:total][rank::ranks]
        return dealt

    return part


def _dropped(about: About, rank: int, number: int) -> list[int]:
    return _share(_order(about, number), {**about, "drop_last": True}, rank)


def _shuffled_in_parts(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every rank has its part of 0, 1, 2, ... in an order of its own."""
    pairs = [(about, mine) for about, _, mine in _pairs(case, got) if about.get("shuffle", True)]
    return bool(pairs) and all(
        sorted(epoch["indices"]) == sorted(_share(list(range(about["size"])), about, rank))
        for about, mine in pairs
        for rank, epochs in enumerate(mine)
        for epoch in epochs
    )


def _epochs_added(about: About, rank: int, number: int) -> list[int]:
    """Return a rank's part where every set_epoch adds to the ones before."""
    total = sum(epoch or 0 for epoch in about["epochs"][: number + 1])
    return _share(_order({**about, "epochs": [total]}, 0), about, rank)


def _only_the_end(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether every rank's part is right but for its last index, where samples are repeated."""
    wrong = [
        (one["indices"], other["indices"])
        for _, wanted, mine in _pairs(case, got)
        for right, came in zip(wanted, mine, strict=True)
        for one, other in zip(right, came, strict=True)
        if one["indices"] != other["indices"]
    ]
    return bool(wrong) and all(len(one) == len(other) and one[:-1] == other[:-1] for one, other in wrong)


def _only_the_length(case: Case, got: Got, wire: Wire) -> bool:
    came = [(one, other) for _, wanted, mine in _pairs(case, got) for pair in zip(wanted, mine, strict=True)
            for one, other in zip(*pair, strict=True)]  # fmt: skip
    same = all(one["indices"] == other["indices"] for one, other in came)
    return bool(came) and same and any(one["length"] != other["length"] for one, other in came)


def _moves_on_by_itself(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether an order changes although set_epoch was not called in between."""
    return any(
        epoch is None and number and mine[0][number]["indices"] != mine[0][number - 1]["indices"]
        for about, _, mine in _pairs(case, got)
        for number, epoch in enumerate(about["epochs"])
    )


def _another_shuffle(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the ranks cut one order of all samples, and it is not that of torch's sampler."""
    for about, wanted, mine in _pairs(case, got):
        for number in range(len(about["epochs"])):
            came = {index for epochs in mine for index in epochs[number]["indices"]}
            whole = came == set(range(about["size"])) or bool(about.get("drop_last"))
            if about.get("shuffle", True) and whole and any(
                one[number]["indices"] != other[number]["indices"] for one, other in zip(wanted, mine, strict=True)
            ):  # fmt: skip
                return True
    return False


def _any_goes_on(case: Case, got: Got, wire: Wire) -> bool:
    return any(_goes_on(about, each) for about, _, mine in _pairs(case, got) for epochs in mine for each in epochs)


def _some_never_come(case: Case, got: Got, wire: Wire) -> bool:
    for about, _, mine in _pairs(case, got):
        came = {index for epochs in mine for index in epochs[0]["indices"]}
        if about.get("shuffle", True) and not about.get("drop_last") and set(range(about["size"])) - came:
            return True
    return False


def _fewer_than_half(case: Case, got: Got, wire: Wire) -> bool:
    return any(2 * about["size"] < about["world_size"] and mine != wanted for about, wanted, mine in _pairs(case, got))


MISTAKES = (
    Mistake("a list is no iterator",
            "__iter__ must return an iterator: iter(...) of your list, or let it yield one index after another.",
            seen=marks.says("returned non-iterator"), certain=True),
    Mistake("it does not end",
            "It never ends: an epoch is over when this rank's part has come once. The next epoch asks for a new "
            "iterator.",
            seen=_any_goes_on),
    Mistake("set_epoch forgotten",
            "Every epoch has the same order: set_epoch must change the seed of the shuffle, seed + epoch.",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number, epochs=False), about, rank))),
    Mistake("each rank shuffles for itself",
            "The ranks shuffle differently, so some samples come twice and some never: give each a generator of its "
            "own, seeded with seed + epoch and with nothing of the rank.",
            seen=_some_never_come),
    Mistake("blocks instead of strides",
            "Each rank takes a block of neighbours; torch's sampler deals them out like cards: rank, rank + N, ...",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number), about, rank, blocks=True))),
    Mistake("ranks get unequal numbers",
            "Some ranks get one sample more than others. They would take one more step and wait forever in its "
            "all_reduce: repeat samples from the beginning until all ranks have the same number.",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number), about, rank, pad=False))),
    Mistake("padded even if it divides",
            "The list gets more samples although it can be dealt out evenly: pad to the next multiple of world_size, "
            "which is its own length where that is one.", seen=_as_if(_one_row_too_many)),
    Mistake("padded or cut before the shuffle",
            "The list is padded or cut first and shuffled then. Shuffle the numbers 0 to size - 1, as they are; then "
            "repeat that order's beginning, or cut its end off.", seen=_as_if(_padded_first)),
    Mistake("drop_last ignored",
            "drop_last=True has no effect: then the list is cut to the multiple of world_size below it, and "
            "len() follows.",
            seen=_as_if(_kept_all)),
    Mistake("shuffle ignored", "shuffle=False has no effect: then the order is 0, 1, 2, ...",
            seen=_as_if(_shuffled_all_the_same)),
    Mistake("a new order without set_epoch",
            "The order changes from one epoch to the next although nobody called set_epoch: without it every epoch has "
            "the same order.", seen=_moves_on_by_itself),
    Mistake("len() says something else",
            "The indices are right. len() must say how many of them this rank yields in an epoch, not how many samples "
            "there are.", seen=_only_the_length),
    Mistake("seed ignored", "The seed has no effect: the generator's seed is seed + epoch.",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number, seed=0), about, rank))),
    Mistake("not rounded up",
            "How many samples a rank gets is rounded down, or to the nearest, and those left over come to nobody. "
            "Without drop_last it is rounded up, and the list is padded.",
            seen=either(_as_if(_dropped), _as_if(_nearest(0.5)), _as_if(_nearest(0.0)))),
    Mistake("shuffled after it is dealt out",
            "Each rank has the samples that it would have without shuffling, in another order: it would see the same "
            "ones in every epoch. Shuffle the whole list, and deal it out then.", seen=_shuffled_in_parts),
    Mistake(_TENSORS,
            "A sampler yields whole numbers, and an element of a tensor is a tensor: torch.randperm(...).tolist()."),
    Mistake(_GLOBAL,
            "torch.manual_seed, and torch.randperm without a generator, change what everybody else draws: dropout, "
            "initial weights. Seed a generator of your own: torch.Generator().manual_seed(seed + epoch)."),
    Mistake("epochs add up",
            "set_epoch was added to what had been set before. The seed of an epoch is seed + epoch, whatever was set "
            "earlier.", seen=_as_if(_epochs_added)),
    Mistake("too few samples to repeat once",
            "With fewer samples than ranks the list must be repeated more than once to reach everybody.",
            seen=_fewer_than_half),
    Mistake("padded with other samples",
            "All is right but the samples that are repeated at the end: they come from the beginning of the shuffled "
            "list, one after another.", seen=_only_the_end),
    Mistake("another shuffle",
            "The ranks deal out one order, but not torch's: torch.randperm(size, generator=g), with a new generator g "
            "in each epoch, seeded with seed + epoch.", seen=_another_shuffle),
)  # fmt: skip

EXERCISE = declared(
    id="sharded_sampler",
    functions=("ShardedSampler",),
    driver=drive,
    oracle=expected,
    visible=(
        sampler_case(
            "10 samples on 4 ranks, in order", [{"size": 10, "world_size": 4, "shuffle": False, "epochs": [None, 0]}]
        ),
        sampler_case("11 samples on 3 ranks, three epochs", [{"size": 11, "world_size": 3, "epochs": [0, 1, 2]}]),
        sampler_case(
            "a seed; drop_last",
            [
                {"size": 11, "world_size": 3, "seed": 7, "epochs": [0, 4]},
                {"size": 11, "world_size": 3, "drop_last": True, "epochs": [0, 1]},
            ],
        ),
        sampler_case(
            "12 samples on 3 ranks, set_epoch never called", [{"size": 12, "world_size": 3, "epochs": [None, None]}]
        ),
        sampler_case("2 samples on 5 ranks", [{"size": 2, "world_size": 5, "shuffle": False, "epochs": [None]}]),
    ),
    distributed=False,
    hints=(
        "All ranks must cut the same shuffled list, without talking to each other. What must they share for that?",
        "Make the order of all samples (torch.randperm with a generator seeded with seed + epoch), make its length a "
        "multiple of the world size (repeat from the beginning, or drop the end), and take every world_size-th from "
        "rank.",
        "indices += indices[: total - len(indices)] as often as it takes; return iter(indices[self.rank : total : "
        "self.world_size])",
    ),
    structure=_structure,
    looks=(wrong_indices,),
    mistakes=MISTAKES,
)
