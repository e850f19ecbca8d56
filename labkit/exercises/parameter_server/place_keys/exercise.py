"""place_keys: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case
from labkit.checks.judged import Mistake, judged
from labkit.exercises.parameter_server.place_keys.driver import drive
from labkit.exercises.parameter_server.tensor_calls import (
    Right,
    as_if,
    calls_case,
    judge_of,
    oracle_of,
    wrong_form,
)


def _by_range(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    """Return each key's server, found by dealing out all keys stretch by stretch."""
    home = torch.cat(
        [torch.full((len(part),), n) for n, part in enumerate(torch.arange(num_keys).tensor_split(num_servers))]
    )
    return home[keys]


def _by_hash(keys: Tensor, num_servers: int) -> Tensor:
    """Return each key's server, in Python's own whole numbers."""
    found = [((key * 2654435761) & 0xFFFFFFFF) * num_servers >> 32 for key in keys.flatten().tolist()]
    return torch.tensor(found, dtype=torch.int64).view(keys.shape)


PLACES: Right = {"place_by_range": _by_range, "place_by_hash": _by_hash}


def range_case(name: str, seed: int, worlds: Sequence[tuple[int, int]]) -> Case:
    """Return a case of place_keys: (keys, servers) for place_by_range, asked for keys in a drawn order."""
    draw = draws.generator(seed)
    return calls_case(
        name, [("place_by_range", (torch.randperm(keys, generator=draw), keys, servers)) for keys, servers in worlds]
    )


def hash_case(name: str, keys: Sequence[Tensor], num_servers: int) -> Case:
    """Return a case of place_keys for place_by_hash."""
    return calls_case(name, [("place_by_hash", (each, num_servers)) for each in keys])


def _ceiling(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return keys // -(-num_keys // num_servers)


def _longer_last(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return num_servers - 1 - _by_range(num_keys - 1 - keys, num_keys, num_servers)


def _one_before(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return _by_range((keys - 1).clamp(min=0), num_keys, num_servers) - (keys == 0).long()


def _in_float32(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 % 2**32 / 2**32 * num_servers).long()


EXERCISE = judged(
    id="place_keys",
    functions=("place_by_range", "place_by_hash"),
    driver=drive,
    oracle=oracle_of(PLACES),
    judge=judge_of(PLACES),
    visible=(
        range_case("12 keys on 3 servers, 10 on 4", 71, [(12, 3), (10, 4)]),
        range_case("11 keys on 3 servers, 2 on 3, 5 on 1", 72, [(11, 3), (2, 3), (5, 1)]),
        hash_case("keys 0 to 15 on 6 servers, in two rows", [torch.arange(16).view(2, 8)], 6),
        hash_case("large keys on 7 servers", [torch.tensor([2**31 - 1, 10**9, 474136676, 123456789, 0])], 7),
    ),
    distributed=False,
    hints=(
        "10 keys on 4 servers: how long are the four stretches? Where does each begin?",
        "divmod(num_keys, num_servers) gives the length, and how many stretches have one more. torch.bucketize says "
        "between which bounds a number lies. For the hash, write what the text says, on the whole tensor at once.",
        "firsts = torch.tensor([s * length + min(s, longer) for s in range(1, num_servers)], dtype=torch.int64); "
        "torch.bucketize(keys, firsts, right=True). And (keys * 2654435761 % 2**32) * num_servers // 2**32.",
    ),
    mistakes=(
        Mistake(
            "equal stretches, the last one short",
            "Each stretch is as long as the longest, so the last server gets what is left, or nothing. Lengths differ "
            "by at most one.",
            as_if(PLACES, "place_by_range", _ceiling),
        ),
        Mistake(
            "the first of a stretch in the one before",
            "The first key of a stretch is counted to the stretch before it, and key 0 to none. bucketize and "
            "searchsorted take the bound itself to the right with right=True.",
            as_if(PLACES, "place_by_range", _one_before),
        ),
        Mistake(
            "longer stretches last",
            "The stretches with one key more come first, not last.",
            as_if(PLACES, "place_by_range", _longer_last),
        ),
        Mistake(
            "proportional",
            "key * S // N rounds in another place: lengths differ by at most one, but longer ones must come first.",
            as_if(PLACES, "place_by_range", lambda keys, n, s: keys * s // n),
        ),
        Mistake(
            "dealt round robin",
            "key % S is no range: neighbours must stay together.",
            as_if(PLACES, "place_by_range", lambda keys, n, s: keys % s),
        ),
        Mistake(
            "no scramble",
            "key % S is no scramble: all even keys meet on the even servers. Multiply first, keep 32 bits, then scale.",
            as_if(PLACES, "place_by_hash", lambda keys, s: keys % s),
        ),
        Mistake(
            "modulo after the scramble",
            "The scrambled number is scaled, (x * S) // 2**32, not taken modulo S: its lowest bits are the least "
            "scrambled.",
            as_if(PLACES, "place_by_hash", lambda keys, s: (keys * 2654435761 % 2**32) % s),
        ),
        Mistake(
            "rounded",
            "Most keys are where they should be, and a few beside it: / makes float32 of whole numbers, which holds 24 "
            "bits of 32. Multiply by S first, then divide by 2**32 with //.",
            as_if(PLACES, "place_by_hash", _in_float32),
        ),
        Mistake(
            "not cut to 32 bits",
            "Keep the lowest 32 bits of the product, % 2**32, before you scale.",
            as_if(PLACES, "place_by_hash", lambda keys, s: keys * 2654435761 * s // 2**32),
        ),
        wrong_form(PLACES),
    ),
)
