"""hot_keys: what is asked, its cases, its mistakes and hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from labkit.checks import draws
from labkit.checks.case import Case
from labkit.checks.declared import Mistake
from labkit.checks.structure import WRONG_SHAPE
from labkit.exercises.keys_rows_failures.hot_keys.driver import drive
from labkit.exercises.keys_rows_failures.tensor_calls import Call, Right, calls_case, tensor_formulas


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


def loads_case(name: str, seed: int, num_keys: int, num_servers: int, hots: Sequence[int], empty: int = 0) -> Case:
    """Return a case of hot_keys for some numbers of hot keys; on the last `empty` servers no key lives."""
    draw = draws.generator(seed)
    calls: list[Call] = []
    for hot in hots:
        reads = torch.randperm(10 * num_keys, generator=draw)[:num_keys].double()
        writes = torch.randint(0, 50, (num_keys,), generator=draw).double()
        home = torch.randint(0, num_servers - empty, (num_keys,), generator=draw)
        calls.append(("server_loads", (reads, writes, home, num_servers, hot)))
    return calls_case(name, calls)


def _variant(
    *,
    split_writes: bool = False,
    order: Callable[[Tensor, Tensor], Tensor] = lambda reads, writes: reads,
    reads_all: bool = False,
) -> Callable[..., Tensor]:
    def loads(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
        found = torch.zeros(num_servers, dtype=torch.float64)
        hot = torch.zeros(len(reads), dtype=torch.bool)
        hot[order(reads, writes).topk(num_hot).indices] = True
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


def _on_the_others(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    at_home = torch.zeros(num_servers, dtype=torch.float64).index_add_(0, home, torch.where(hot, 0.0, reads + writes))
    return at_home + reads[hot].sum() / (num_servers - 1) + writes[hot].sum()


def _all_spread(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    at_home = torch.zeros(num_servers, dtype=torch.float64).index_add_(0, home, torch.where(hot, 0.0, writes))
    return at_home + reads.sum() / num_servers + writes[hot].sum()


def _reads_at_home(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    loads = torch.zeros(num_servers, dtype=torch.float64)
    return loads.index_add_(0, home, torch.where(hot, reads, reads + writes)) + writes[hot].sum()


def _the_last_at_home(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    loads = torch.zeros(num_servers, dtype=torch.float64)
    loads[home] += torch.where(hot, 0.0, reads + writes)
    return loads + reads[hot].sum() / num_servers + writes[hot].sum()


def _written_twice_at_home(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    hot = torch.zeros(len(reads), dtype=torch.bool)
    hot[reads.topk(num_hot).indices] = True
    twice = torch.zeros(num_servers, dtype=torch.float64).index_add_(0, home, torch.where(hot, writes, 0.0))
    return _loads(reads, writes, home, num_servers, num_hot) + twice


def _one_more(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    return _loads(reads, writes, home, num_servers, num_hot + 1)


def _all_for_none(reads: Tensor, writes: Tensor, home: Tensor, num_servers: int, num_hot: int) -> Tensor:
    return _loads(reads, writes, home, num_servers, num_hot or len(reads))


EXERCISE = tensor_formulas(
    id="hot_keys",
    functions=("server_loads",),
    driver=drive,
    right=LOADS,
    visible=(
        loads_case("6 keys on 3 servers, no copies and 2 copied keys", 94, 6, 3, [0, 2]),
        loads_case("9 keys on 4 servers, 3 copied keys and all", 92, 9, 4, [3, 9], empty=1),
    ),
    hints=(
        "Take one hot key with 100 reads and 10 writes, and four servers. What does each of them have to do?",
        "Each of the four gets a quarter of its reads and all of its writes. A cold key loads its home only. "
        "topk finds the hot ones, index_add_ adds the loads of the cold ones to their homes.",
        "hot[reads.topk(num_hot).indices] = True; loads.index_add_(0, home, torch.where(hot, 0.0, reads + writes)); "
        "then + reads[hot].sum() / num_servers + writes[hot].sum()",
    ),
    mistakes=(
        Mistake(WRONG_SHAPE,
                "One load for each server, also where no key lives: index_add_ into torch.zeros(num_servers), or "
                "torch.bincount with minlength=num_servers."),
        Mistake("one hot key too many",
                "As many keys as num_hot have copies, none where it is 0. Sorted, they are the places 0 to num_hot - "
                "1; the key at place num_hot has none.", {"server_loads": _one_more}),
        Mistake("all where there are none",
                "With num_hot = 0 no key has copies, and all got some: [-num_hot:] is [0:] then, the whole list, and "
                "place num_hot - 1 is the last one.", {"server_loads": _all_for_none}),
        Mistake("writes shared like reads",
                "A write to a hot key must go to every copy, so it loads every server in full.",
                {"server_loads": _variant(split_writes=True)}),
        Mistake("writes at home only",
                "The copies of a hot key would become stale: each write goes to "
                "every server.", {"server_loads": _home_writes}),
        Mistake("the first keys taken for hot",
                "The hot keys are those with the most reads, not the first ones: reads.topk(num_hot).indices.",
                {"server_loads": _variant(order=lambda reads, writes: -torch.arange(len(reads)))}),
        Mistake("hot by writes",
                "Hot are the keys with the most reads: writes do not count, neither alone nor with the reads.",
                {"server_loads": (_variant(order=lambda reads, writes: writes),
                                  _variant(order=lambda reads, writes: reads + writes))}),
        Mistake("the least read taken for hot",
                "The keys with the fewest reads got copies: the hot ones are those with the most.",
                {"server_loads": _variant(order=lambda reads, writes: -reads)}),
        Mistake("writes left out", "A server reads rows and writes them: its load counts both.",
                {"server_loads": lambda reads, writes, *rest: _loads(reads, torch.zeros_like(writes), *rest)}),
        Mistake("copies on the other servers alone",
                "A hot key's home has one of the copies, too: its reads are spread over all servers.",
                {"server_loads": _on_the_others}),
        Mistake("every read is spread",
                "Reads of keys that have no copies were spread as well: such a key is only at home.",
                {"server_loads": _all_spread}),
        Mistake("reads at home only",
                "All reads of a hot key went to its home: spread them evenly over the servers, each has a copy.",
                {"server_loads": _reads_at_home}),
        Mistake("every copy serves every read",
                "A read is served by one of the copies: the reads of a hot key are shared by the servers.",
                {"server_loads": _variant(reads_all=True)}),
        Mistake("one key for each server",
                "Only one key of each server counts in its load: loads[home] += "
                "... keeps the last one, index_add_ adds all.", {"server_loads": _the_last_at_home}),
        Mistake("written twice at home",
                "A write to a hot key counts twice at its home: home is one of the servers with a copy, and has one.",
                {"server_loads": _written_twice_at_home}),
        Mistake("hot keys loaded at home too",
                "A hot key's reads are spread over all servers, so do not also count "
                "them at its home.", {"server_loads": _at_home_too}),
    ),
)  # fmt: skip
