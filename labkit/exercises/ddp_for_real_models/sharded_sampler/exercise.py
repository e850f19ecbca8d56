"""Who sees which samples: compared with torch's own DistributedSampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch.utils.data import DistributedSampler

from labkit.checks.case import Case, Got, Values
from labkit.checks.declared import Mistake, declared
from labkit.checks.finding import Finding
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.averaging import marks
from labkit.exercises.ddp_for_real_models.sharded_sampler.driver import drive, most_indices

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
            epochs.append({"length": len(sampler), "indices": list(sampler)})
        drawn.append(epochs)
    return drawn


def expected(case: Case) -> list[Values]:
    """Return what torch's sampler yields (the oracle)."""
    return [{"drawn": [_torchs(about) for about in _abouts(case)]}]


def _abouts(case: Case) -> list[About]:
    return listed(case.inputs[0], "samplers")


def _pairs(case: Case, got: Got) -> list[tuple[About, Drawn, Drawn]]:
    """Return about, what should have come and what came, of each sampler."""
    came = got[0].get("drawn") if isinstance(got, tuple) else None
    if not isinstance(came, list) or len(came) != len(_abouts(case)):
        return []
    return [(about, _torchs(about), cast(Drawn, mine)) for about, mine in zip(_abouts(case), came, strict=True)]


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


def _order(about: About, number: int, *, epochs: bool = True, seed: int | None = None) -> list[int]:
    if not about.get("shuffle", True):
        return list(range(about["size"]))
    epoch = (about["epochs"][number] or 0) if epochs else 0
    generator = torch.Generator().manual_seed((about.get("seed", 0) if seed is None else seed) + epoch)
    return cast(list[int], torch.randperm(about["size"], generator=generator).tolist())


def _share(order: list[int], about: About, rank: int, *, pad: bool = True, blocks: bool = False) -> list[int]:
    size, ranks = len(order), about["world_size"]
    if about.get("drop_last"):
        order = order[: size // ranks * ranks]
    elif pad:
        total = math.ceil(size / ranks) * ranks
        order = (order * math.ceil(total / max(size, 1)))[:total]
    each = len(order) // ranks
    return order[rank * each : (rank + 1) * each] if blocks else order[rank::ranks]


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
            "The ranks shuffle differently, so some samples come twice and some never: the seed must not depend on "
            "rank.",
            seen=_some_never_come),
    Mistake("blocks instead of strides",
            "Each rank takes a block of neighbours; torch's sampler deals them out like cards: rank, rank + N, ...",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number), about, rank, blocks=True))),
    Mistake("ranks get unequal numbers",
            "Some ranks get one sample more than others. They would take one more step and wait forever in its "
            "all_reduce: repeat samples from the beginning until all ranks have the same number.",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number), about, rank, pad=False))),
    Mistake("seed ignored", "The seed has no effect: the generator's seed is seed + epoch.",
            seen=_as_if(lambda about, rank, number: _share(_order(about, number, seed=0), about, rank))),
    Mistake("too few samples to repeat once",
            "With fewer samples than ranks the list must be repeated more than once to reach everybody.",
            seen=_fewer_than_half),
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
    looks=(wrong_indices,),
    mistakes=MISTAKES,
)
