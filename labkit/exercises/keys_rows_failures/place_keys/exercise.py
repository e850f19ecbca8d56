"""place_keys: where keys live by range, by hash and on a circle; its cases, mistakes and hints."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case, Failure, Got
from labkit.checks.declared import Mistake
from labkit.checks.structure import WRONG_SHAPE
from labkit.checks.wire import Wire
from labkit.exercises.keys_rows_failures.place_keys.driver import drive
from labkit.exercises.keys_rows_failures.tensor_calls import WRONG_KIND, Right, calls_case, tensor_formulas
from labkit.words import join


def _by_range(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    """Return each key's server, found by dealing out all keys stretch by stretch."""
    home = torch.cat(
        [torch.full((len(part),), n) for n, part in enumerate(torch.arange(num_keys).tensor_split(num_servers))]
    )
    return home[keys]


def _hashed(keys: Tensor) -> list[int]:
    return [(key * 2654435761) & 0xFFFFFFFF for key in keys.flatten().tolist()]


def _by_hash(keys: Tensor, num_servers: int) -> Tensor:
    """Return each key's server, in Python's own whole numbers."""
    return torch.tensor([each * num_servers >> 32 for each in _hashed(keys)], dtype=torch.int64).view(keys.shape)


def _on_circle(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    """Return each key's server, key by key: that of the first point at or behind its hash."""
    there = points.tolist()
    at = [bisect_left(there, each) % len(there) for each in _hashed(keys)]
    return owners[torch.tensor(at, dtype=torch.int64)].view(keys.shape)


PLACES: Right = {"place_by_range": _by_range, "place_by_hash": _by_hash, "place_on_circle": _on_circle}


def range_case(name: str, seed: int, worlds: Sequence[tuple[int, int]]) -> Case:
    """Return a case of place_keys: (keys, servers) for place_by_range, asked for keys in a drawn order.

    An even number of keys, eight or more, stands in two rows.
    """
    draw = draws.generator(seed)
    drawn = [(torch.randperm(keys, generator=draw), keys, servers) for keys, servers in worlds]
    in_rows = [each.view(2, -1) if keys % 2 == 0 and keys >= 8 else each for each, keys, _ in drawn]
    return calls_case(
        name, [("place_by_range", (each, *numbers)) for each, (_, *numbers) in zip(in_rows, drawn, strict=True)]
    )


def hash_case(name: str, keys: Sequence[Tensor], num_servers: int) -> Case:
    """Return a case of place_keys for place_by_hash."""
    return calls_case(name, [("place_by_hash", (each, num_servers)) for each in keys])


def circle_case(name: str, seed: int, num_servers: int, num_points: int) -> Case:
    """Return a case for place_on_circle, in which some keys hit a point and some lie behind the last."""
    draw = draws.generator(seed)
    keys = torch.randint(0, 2**31, (4, 6), generator=draw)
    hit = torch.tensor(_hashed(keys)).sort().values[:3]
    rest = torch.randint(0, 2**31, (num_points - 3,), generator=draw)  # the upper half is empty: keys go round
    points = torch.tensor(sorted({*hit.tolist(), *rest.tolist()}))
    owners = torch.randint(0, num_servers, (len(points),), generator=draw)
    owners[-1] = (owners[0] + 1) % num_servers
    return calls_case(name, [("place_on_circle", (keys, points, owners))])


def _ceiling(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return keys // -(-num_keys // num_servers)


def _longer_last(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return num_servers - 1 - _by_range(num_keys - 1 - keys, num_keys, num_servers)


def _rest_last(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return (keys // max(1, num_keys // num_servers)).clamp(max=num_servers - 1)


def _shortest(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return keys // max(1, num_keys // num_servers)


def _bounds(of: Callable[[float], int]) -> Callable[[Tensor, int, int], Tensor]:
    """Return the rule that cuts at the multiples of num_keys / num_servers, made whole numbers."""

    def place(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
        firsts = [of(server * num_keys / num_servers) for server in range(1, num_servers)]
        return torch.bucketize(keys, torch.tensor(firsts, dtype=torch.int64), right=True)

    return place


def _by_position(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return _by_range(torch.arange(keys.numel()), keys.numel(), num_servers).view(keys.shape)


def _last_server_first(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return num_servers - 1 - _by_range(keys, num_keys, num_servers)


def _in_equal_arcs(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[(keys * 2654435761 % 2**32) * len(points) // 2**32]


def _by_hash_alone(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return _by_hash(keys, int(owners.max()) + 1)


def _one_before(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return _by_range((keys - 1).clamp(min=0), num_keys, num_servers) - (keys == 0).long()


def _highest_bits(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 % 2**32 >> 32 - (num_servers - 1).bit_length()) % num_servers


def _highest_bits_at_most(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 % 2**32 >> 32 - (num_servers - 1).bit_length()).clamp(max=num_servers - 1)


def _in_float32(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 % 2**32 / 2**32 * num_servers).long()


def _by_hash_in_float64(keys: Tensor, num_servers: int) -> Tensor:
    return (keys.double() * 2654435761 % 2**32).long() * num_servers // 2**32


def _on_circle_in_float64(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, (keys.double() * 2654435761 % 2**32).long()) % len(points)]


def _in_short_parts(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 % 2**32) // (2**32 // num_servers)


def _in_short_parts_at_most(keys: Tensor, num_servers: int) -> Tensor:
    return _in_short_parts(keys, num_servers).clamp(max=num_servers - 1)


def _highest_bits_of_the_product(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 >> 32) * num_servers // 2**32


def _strictly_before(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32) - 1]


def _nearest_without_wrap(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[(points - (keys * 2654435761 % 2**32).unsqueeze(-1)).abs().argmin(-1)]


def _modulo_servers(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32) % (int(owners.max()) + 1)]


def _the_points_server_modulo(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return torch.searchsorted(points, keys * 2654435761 % 2**32) % (int(owners.max()) + 1)


def _point_before(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32, right=True) - 1]


def _strictly_behind(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32, right=True) % len(points)]


def _stops_at_the_last(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, keys * 2654435761 % 2**32).clamp(max=len(points) - 1)]


def _not_hashed(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[torch.searchsorted(points, keys) % len(points)]


def _nearest(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    apart = (points - (keys * 2654435761 % 2**32).unsqueeze(-1)).abs()
    return owners[torch.minimum(apart, 2**32 - apart).argmin(-1)]


def _the_points_number(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return torch.searchsorted(points, keys * 2654435761 % 2**32) % len(points)


def _at_the_first_point(keys: Tensor, points: Tensor, owners: Tensor) -> Tensor:
    return owners[:1].expand(keys.shape)


def _places_off(function: str, args: Sequence[Any], came: Tensor, wanted: Tensor) -> str:
    """Return which servers do not exist, or how many keys each gets, in a sentence."""
    if came.dtype != torch.int64:
        return ""
    if function == "place_on_circle":
        return _way_round(args[0], args[1], args[2], came)
    num_servers = int(args[-1])
    outside = sorted({*came.flatten().tolist()} - {*range(num_servers)})
    if outside:
        return f"There is no server {outside[0]}: they count from 0 to {num_servers - 1}."
    if function == "place_by_hash":
        key = int(args[0].flatten()[int((came != wanted).flatten().nonzero()[0])])
        return f"The hash of key {key} is {_hashed(torch.tensor([key]))[0]}, of 2**32: is it that in yours?"
    each = (torch.bincount(places.flatten(), minlength=num_servers).tolist() for places in (came, wanted))
    mine, right = (join(counts) for counts in each)
    return "" if mine == right else f"The servers get {mine} of these keys instead of {right}."


def _way_round(keys: Tensor, points: Tensor, owners: Tensor, came: Tensor) -> str:
    """Return the way of the first misplaced key: its hash, the point it comes to, that point's owner."""
    place = int((came != _on_circle(keys, points, owners)).flatten().nonzero()[0])
    key, where = int(keys.flatten()[place]), _hashed(keys)[place]
    at = bisect_left(points.tolist(), where) % len(points)
    return (
        f"Key {key} has the hash {where}; the next point is {int(points[at])}, of server {int(owners[at])}. "
        "Which of the three is another in yours?"
    )


def _bound_left_behind(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    firsts = [int((_by_range(torch.arange(num_keys), num_keys, num_servers) < s).sum()) for s in range(1, num_servers)]
    return torch.bucketize(keys, torch.tensor(firsts, dtype=torch.int64))


def _meets_lists(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a line failed that takes keys from a list: rows of keys, repeated or compared as lists."""
    said = ("MemoryError", "'list'", "OverflowError")
    return isinstance(got, Failure) and "tolist" in got.detail and any(each in got.message for each in said)


EXERCISE = tensor_formulas(
    id="place_keys",
    functions=("place_by_range", "place_by_hash", "place_on_circle"),
    driver=drive,
    right=PLACES,
    off=_places_off,
    visible=(
        range_case("12 keys on 3 servers, 10 on 4", 71, [(12, 3), (10, 4)]),
        range_case("11 keys on 3 servers, 2 on 3, 5 on 1", 72, [(11, 3), (2, 3), (5, 1)]),
        hash_case("keys 0 to 15 on 6 servers, in two rows", [torch.arange(16).view(2, 8)], 6),
        hash_case(
            "large keys on 7 servers", [torch.tensor([2**31 - 1, 10**9, 474136676, 1597069639, 123456789, 0])], 7
        ),
        circle_case("a circle of 3 servers", 73, 3, 12),
    ),
    hints=(
        "10 keys on 4 servers: how long are the four stretches? And what comes after the circle's last point?",
        "divmod(num_keys, num_servers) gives the length, and how many stretches have one more. torch.bucketize says "
        "between which bounds a number lies, and torch.searchsorted says the same of points. The hash is what the text "
        "says, on the whole tensor at once. On the circle, modulo the number of points takes you round.",
        "firsts = torch.tensor([s * length + min(s, longer) for s in range(1, num_servers)], dtype=torch.int64); "
        "torch.bucketize(keys, firsts, right=True). (keys * 2654435761 % 2**32) * num_servers // 2**32. "
        "owners[torch.searchsorted(points, hashed) % len(points)].",
    ),
    mistakes=(
        WRONG_KIND,
        Mistake(WRONG_SHAPE, "One server for each key, in the key's place: the result has the shape of keys."),
        Mistake("lists for keys",
                "Keys may have any shape: tolist() of several rows gives a list for each row, not a number. Work on "
                "the whole tensor, or on keys.flatten(), and give what comes the keys' shape.",
                seen=_meets_lists, certain=True),
        Mistake("equal stretches, the last one short",
                "Each stretch is as long as the longest, so the last server gets what "
                "is left, or nothing. Lengths differ by at most one.", {"place_by_range": _ceiling}),
        Mistake("stretches too short",
                "Each stretch is as long as the shortest, N // S, so the keys that are left over come to a server that "
                "does not exist. The first N % S stretches have one key more.", {"place_by_range": _shortest}),
        Mistake("proportional",
                "key * S // N rounds elsewhere: lengths differ by at most one, but the longer stretches must come "
                "first.",
                {"place_by_range": lambda keys, n, s: keys * s // n}),
        Mistake("rounded bounds",
                "The stretches end at the multiples of N / S, rounded: so the longer ones stand anywhere. They must "
                "come first, so the first N % S servers have N // S + 1 keys each.",
                {"place_by_range": (_bounds(round), _bounds(math.floor), _bounds(lambda each: int(each + 0.5)))}),
        Mistake("by position",
                "The positions in keys were cut into ranges. A key's value decides where it lives, wherever it stands "
                "in the tensor: place_by_range may be asked for a few keys, in any order.",
                {"place_by_range": _by_position}),
        Mistake("the rest to the last server",
                "The last server gets all keys that are left over. Lengths differ by at most one: the first servers "
                "get one key more each.", {"place_by_range": _rest_last}),
        Mistake("the last server first",
                "The ranges go to the servers in order: server 0 has the first keys.",
                {"place_by_range": _last_server_first}),
        Mistake("the first of a stretch in the one before",
                "The first key of a stretch is counted with the stretch before it. bucketize and searchsorted take the "
                "bound itself to the right with right=True.", {"place_by_range": (_one_before, _bound_left_behind)}),
        Mistake("longer stretches last",
                "The stretches with one more key come first, not last.", {"place_by_range": _longer_last}),
        Mistake("dealt round robin",
                "key % S is not a range: neighbours must stay together.",
                {"place_by_range": lambda keys, n, s: keys % s}),
        Mistake("not hashed",
                "key % S is no hash: all even keys end up on even servers. Multiply first, keep 32 bits, then scale.",
                {"place_by_hash": lambda keys, s: keys % s}),
        Mistake("modulo after the hash",
                "The hash is scaled, (x * S) // 2**32, not taken modulo S: its lowest bits change the least.",
                {"place_by_hash": lambda keys, s: (keys * 2654435761 % 2**32) % s}),
        Mistake("a power of two of parts",
                "You take the highest bits of the hash, which cuts the scale into a power of two of parts, and "
                "then fold them. The scale has as many equal parts as there are servers: x * S // 2**32.",
                {"place_by_hash": (_highest_bits, _highest_bits_at_most)}),
        Mistake("rounded",
                "Most keys are right and a few are on the neighbouring server: something was rounded too early. "
                "2**32 // S drops the fraction of a part's length, and / turns whole numbers into float32, which holds "
                "24 of 32 bits. Multiply by S first, then divide by 2**32 with //.",
                {"place_by_hash": (_in_float32, _in_short_parts, _in_short_parts_at_most)}),
        Mistake("a product in float64",
                "The product of key and 2654435761 has up to 63 bits, and float64 holds 53: the lowest bits of the "
                "hash are lost. A key near a border, or exactly on a point, then goes elsewhere. In int64 the product "
                "is exact.",
                {"place_by_hash": _by_hash_in_float64, "place_on_circle": _on_circle_in_float64}),
        Mistake("not cut to 32 bits",
                "Keep the lowest 32 bits of the product, % 2**32, before you scale.",
                {"place_by_hash": lambda keys, s: keys * 2654435761 * s // 2**32}),
        Mistake("scaled and not hashed",
                "Neighbours stay together, as where the key itself is scaled, or the highest bits of the product. Hash "
                "first: multiply by 2654435761 and keep the lowest 32 bits.",
                {"place_by_hash": (lambda keys, s: keys * s // 2**31, _highest_bits_of_the_product)}),
        Mistake("a scale of 31 bits",
                "Keys have 31 bits, and a hash has 32: keep % 2**32 of the product, and scale by // 2**32.",
                {"place_by_hash": lambda keys, s: keys * 2654435761 % 2**31 * s // 2**31}),
        Mistake("arcs of equal length",
                "The circle was cut into equal parts, one for each point. Where a key goes is said by the points: it "
                "belongs to the first one at or after its hash.", {"place_on_circle": _in_equal_arcs}),
        Mistake("the circle left out",
                "That is place_by_hash with as many servers. Here the points decide: the owner of the first one at or "
                "after the key's hash.", {"place_on_circle": _by_hash_alone}),
        Mistake("none among the points",
                "Every key gets the owner of the first point: what you look for lies before the first point or behind "
                "the last. Look for the lowest 32 bits of the product, key * 2654435761 % 2**32.",
                {"place_on_circle": _at_the_first_point}),
        Mistake("the point before",
                "A key belongs to the next point on the circle, not to the one "
                "before its hash.", {"place_on_circle": (_point_before, _strictly_before)}),
        Mistake("a point that is hit is passed",
                "A key whose hash is exactly a point belongs to that point: "
                "searchsorted without right=True.", {"place_on_circle": _strictly_behind}),
        Mistake("no way round",
                "After the last point comes the first: take the index modulo the number of points.",
                {"place_on_circle": _stops_at_the_last}, says=("out of bounds for dimension 0",), certain=True),
        Mistake("modulo the servers",
                "The index was taken modulo the number of servers. searchsorted counts points: the way round is modulo "
                "len(points), and owners says whose point that is.",
                {"place_on_circle": (_modulo_servers, _the_points_server_modulo)}),
        Mistake("keys not hashed",
                "Look for the key's hash on the circle, not for the key itself.", {"place_on_circle": _not_hashed}),
        Mistake("the nearest point",
                "A key belongs to the next point ahead, however near the one behind "
                "it is.", {"place_on_circle": (_nearest, _nearest_without_wrap)}),
        Mistake("the point's number",
                "That is the number of the point. Its server is in owners.",
                {"place_on_circle": _the_points_number}),
    ),
)  # fmt: skip
