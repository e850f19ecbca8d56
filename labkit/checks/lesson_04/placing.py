"""place_keys and hot_keys: where keys live, and what copies of hot keys do to the loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case
from labkit.checks.drivers.lesson_04 import call_with_tensors
from labkit.checks.exercise import Exercise
from labkit.checks.lesson_04.tensor_calls import Call, Right, as_if, calls_case, judge_of, oracle_of, wrong_form
from labkit.checks.verdict import Mistake


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
    draw = torch.Generator().manual_seed(seed)
    return calls_case(
        name, [("place_by_range", (torch.randperm(keys, generator=draw), keys, servers)) for keys, servers in worlds]
    )


def hash_case(name: str, keys: Sequence[Tensor], num_servers: int) -> Case:
    """Return a case of place_keys for place_by_hash."""
    return calls_case(name, [("place_by_hash", (each, num_servers)) for each in keys])


def keys_near_a_bound(num_servers: int) -> Tensor:
    """Return keys whose scramble is the largest of a server's, or nearly: float32 puts them on the next one."""
    back = pow(2654435761, -1, 2**32)
    largest = [-(-(server + 1) * 2**32 // num_servers) - 1 for server in range(num_servers)]
    keys = [(scramble - below) * back % 2**32 for scramble in largest for below in range(20)]
    return torch.tensor([key for key in keys if key < 2**31])


def _ceiling(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return keys // -(-num_keys // num_servers)


def _longer_last(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return num_servers - 1 - _by_range(num_keys - 1 - keys, num_keys, num_servers)


def _one_before(keys: Tensor, num_keys: int, num_servers: int) -> Tensor:
    return _by_range((keys - 1).clamp(min=0), num_keys, num_servers) - (keys == 0).long()


def _in_float32(keys: Tensor, num_servers: int) -> Tensor:
    return (keys * 2654435761 % 2**32 / 2**32 * num_servers).long()


PLACING = Exercise(
    id="place_keys",
    functions=("place_by_range", "place_by_hash"),
    driver=call_with_tensors,
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


# ---- hot_keys


def _loads(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    """Return the loads, key by key."""
    loads = [0.0] * num_servers
    hottest = set(sorted(range(len(reads)), key=lambda key: -reads[key].item())[:num_hot])
    for key in range(len(reads)):
        if key in hottest:
            loads = [load + reads[key].item() / num_servers + writes[key].item() for load in loads]
        else:
            loads[int(home[key])] += reads[key].item() + writes[key].item()
    return torch.tensor(loads, dtype=torch.float64)


LOADS: Right = {"server_loads": _loads}


def loads_case(name: str, seed: int, num_keys: int, num_servers: int, hots: Sequence[int]) -> Case:
    """Return a case of hot_keys for some numbers of hot keys."""
    draw = torch.Generator().manual_seed(seed)
    calls: list[Call] = []
    for hot in hots:
        reads = torch.randperm(10 * num_keys, generator=draw)[:num_keys].double()
        writes = torch.randint(0, 50, (num_keys,), generator=draw).double()
        home = torch.randint(0, num_servers, (num_keys,), generator=draw)
        calls.append(("server_loads", (reads, writes, home, num_servers, hot)))
    return calls_case(name, calls)


def _variant(
    *, split_writes: bool = False, first: bool = False, by_writes: bool = False, reads_all: bool = False
) -> Callable[..., Tensor]:
    def loads(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
        found = torch.zeros(num_servers, dtype=torch.float64)
        hot = torch.zeros(len(reads), dtype=torch.bool)
        order = writes if by_writes else reads
        hot[torch.arange(num_hot) if first else order.topk(num_hot).indices] = True
        found.index_add_(0, home[~hot], (reads + writes)[~hot])
        hot_writes = writes[hot].sum() / (num_servers if split_writes else 1)
        return found + reads[hot].sum() / (1 if reads_all else num_servers) + hot_writes

    return loads


def _at_home_too(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    at_home = _loads(reads, writes, home, num_servers, 0)
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    return at_home + reads[hot].sum() / num_servers + writes[hot].sum()


def _home_writes(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    at_home = torch.where(hot, writes, reads + writes)
    return torch.zeros(num_servers, dtype=torch.float64).index_add_(0, home, at_home) + reads[hot].sum() / num_servers


def _the_last_at_home(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    loads = torch.zeros(num_servers, dtype=torch.float64)
    loads[home] += torch.where(hot, 0.0, reads + writes)
    return loads + reads[hot].sum() / num_servers + writes[hot].sum()


COPIES = Exercise(
    id="hot_keys",
    functions=("server_loads",),
    driver=call_with_tensors,
    oracle=oracle_of(LOADS),
    judge=judge_of(LOADS),
    visible=(
        loads_case("6 keys on 2 servers, no copies and 1 copied key", 91, 6, 2, [0, 1]),
        loads_case("9 keys on 4 servers, 3 copied keys and all", 92, 9, 4, [3, 9]),
    ),
    distributed=False,
    hints=(
        "Take one hot key with 100 reads and 10 writes, and four servers. What does each of them have to do?",
        "Each of the four gets a quarter of its reads and all of its writes. A cold key loads its home only. "
        "topk finds the hot ones, index_add_ adds the loads of the cold ones to their homes.",
        "hot[reads.topk(num_hot).indices] = True; loads.index_add_(0, home, torch.where(hot, 0.0, reads + writes)); "
        "then + reads[hot].sum() / num_servers + writes[hot].sum()",
    ),
    mistakes=(
        Mistake(
            "writes shared like reads",
            "A write of a hot key must go to every copy, so it loads every server in full.",
            as_if(LOADS, "server_loads", _variant(split_writes=True)),
        ),
        Mistake(
            "writes at home only",
            "The copies of a hot key would stay as they were: each of its writes goes to every server.",
            as_if(LOADS, "server_loads", _home_writes),
        ),
        Mistake(
            "every copy serves every read",
            "A read is served by one of the copies: the reads of a hot key are shared by the servers.",
            as_if(LOADS, "server_loads", _variant(reads_all=True)),
        ),
        Mistake(
            "the first keys taken for hot",
            "The hot keys are those with the most reads, wherever they stand: reads.topk(num_hot).indices.",
            as_if(LOADS, "server_loads", _variant(first=True)),
        ),
        Mistake(
            "hot by writes",
            "Hot are the keys with the most reads, not those with the most writes.",
            as_if(LOADS, "server_loads", _variant(by_writes=True)),
        ),
        Mistake(
            "one key for each server",
            "Of the keys of a server only one is in its load: loads[home] += ... keeps the last of them, index_add_ "
            "adds all.",
            as_if(LOADS, "server_loads", _the_last_at_home),
        ),
        Mistake(
            "hot keys loaded at home too",
            "A hot key that is read anywhere does not load its home as before on top of that: leave it out there.",
            as_if(LOADS, "server_loads", lambda *args: _at_home_too(*args)),
        ),
        wrong_form(LOADS),
    ),
)
