"""Hidden cases of lesson 04: the drivers, oracles and judges of labkit.checks, on orders of arrival drawn from a seed.

Points are all or nothing for an exercise over all of its cases here. Servers are called step by step in drawn orders
and by drawn crowds over RPC in virtual time, tables are spread over drawn servers, a primary dies at drawn moments.
"""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.drawn_cases import drawing, seed
from labkit.checks.lesson_04.asynchronous import async_case
from labkit.checks.lesson_04.backup_workers import backup_case
from labkit.checks.lesson_04.bounded import bounded_case
from labkit.checks.lesson_04.checkpoints import checkpoint_case
from labkit.checks.lesson_04.crowds import crowd_case
from labkit.checks.lesson_04.hybrid import hybrid_case
from labkit.checks.lesson_04.placing import hash_case, keys_near_a_bound, loads_case, range_case
from labkit.checks.lesson_04.posted import post_case
from labkit.checks.lesson_04.replicas import dying_case, replica_case, safely_case
from labkit.checks.lesson_04.rows import rows_case
from labkit.checks.lesson_04.server_or_ring import server_case
from labkit.checks.lesson_04.synchronous import sync_case


def _posted(draw: random.Random) -> list[Case]:
    return [
        post_case(f"{size} ranks", seed(draw), size, draw.randint(2, 6), draw.randint(2, 5), draw.uniform(0.1, 1.0))
        for size in (2, 3, 5)
    ]


def _synchronous(draw: random.Random) -> list[Case]:
    found = []
    for count in (2, 3, 5):
        orders = [draw.sample(range(count), count) for _ in range(draw.randint(3, 5))]
        found.append(sync_case(f"{count} workers", seed(draw), orders, draw.uniform(0.1, 1.0), size=count + 1))
    return [*found, crowd_case("at the same time", "SyncServer", seed(draw), draw.randint(4, 7), 4)]


def _asynchronous(draw: random.Random) -> list[Case]:
    held, order = dict.fromkeys(range(4), 0), []
    for number in range(14):
        worker = draw.choice([0, 0, 0, 1, 1, 2, 3])
        order.append((worker, held[worker]))
        held[worker] = number + 1
    return [
        async_case("4 workers, drawn order", seed(draw), order, 4, draw.uniform(0.1, 1.0)),
        crowd_case("at the same time", "AsyncServer", seed(draw), draw.randint(5, 9), 5),
    ]


def _words(draw: random.Random, count: int, length: int, leave: bool) -> list[str]:
    words = [str(draw.choice([*range(count), 0, 0, 1])) for _ in range(length)]
    if leave:
        for worker in draw.sample(range(count), 2):
            words.insert(draw.randint(length // 2, len(words)), f"-{worker}")
    return words


def _bounded(draw: random.Random) -> list[Case]:
    found = []
    for count, bound, leave in ((2, 0, False), (3, 1, False), (3, 2, True), (4, 1, True), (5, 3, True)):
        name = f"{count} workers, bound {bound}{', some leave' if leave else ''}"
        found.append(bounded_case(name, seed(draw), _words(draw, count, 30, leave), count, bound))
    slowest = ["1", "0", "0", "1", "0", "1", "0", "-2", "1", "0", "0"]
    found.append(bounded_case("the slowest leaves", seed(draw), slowest, 3, 1))
    return [*found, crowd_case("at the same time", "BoundedServer", seed(draw), 6, 4, [draw.randint(0, 2)])]


def _backup_workers(draw: random.Random) -> list[Case]:
    found = []
    for count, needed in ((3, 2), (5, 4), (6, 3)):
        held, waiting, version, order = dict.fromkeys(range(count), 0), set[int](), 0, list[tuple[int, int]]()
        while len(order) < 24:
            worker = draw.choice([each for each in range(count) if each not in waiting])
            order.append((worker, held[worker]))
            if held[worker] < version:
                held[worker] = version
                continue
            waiting.add(worker)
            if len(waiting) == needed:
                version += 1
                held.update(dict.fromkeys(waiting, version))
                waiting.clear()
        found.append(backup_case(f"the first {needed} of {count}", seed(draw), order, count, needed))
    return [*found, crowd_case("4 of 6 at the same time", "BackupServer", seed(draw), 6, 6, [4], until=5)]


def _server_or_ring(draw: random.Random) -> list[Case]:
    worlds = [(draw.randint(1, 100), draw.randint(1, 20)) for _ in range(6)] + [(3, 7), (7, 3), (64, 8)]
    return [
        server_case("drawn worlds", worlds, draw.uniform(1e5, 1e9), draw.uniform(1e-6, 1e-3), draw.uniform(1e8, 5e10))
    ]


def _placing(draw: random.Random) -> list[Case]:
    worlds = [(draw.randint(1, 200), draw.randint(1, 12)) for _ in range(6)] + [(3, 8), (16, 4)]
    keys = [torch.tensor([draw.randrange(2**31) for _ in range(40)]).view(4, 10), torch.arange(64)]
    found = [range_case("drawn tables", seed(draw), worlds), hash_case("drawn keys", keys, draw.randint(3, 16))]
    servers = draw.randint(3, 16)
    return [*found, hash_case("keys near a bound", [keys_near_a_bound(servers)], servers)]


def _rows(draw: random.Random) -> list[Case]:
    return [
        rows_case("2 servers", seed(draw), 2, 15, 25),
        rows_case("5 servers", seed(draw), 5, 30, 12),
        rows_case("6 servers, most of them idle", seed(draw), 6, 10, 8, homes=sorted(draw.sample(range(6), 2))),
        rows_case("one key again and again", seed(draw), 3, 1, 9),
    ]


def _copies(draw: random.Random) -> list[Case]:
    count = draw.randint(10, 20)
    hots = [0, 1, draw.randint(2, 8), count]
    return [loads_case("drawn loads", seed(draw), count, servers, hots) for servers in (1, 3, 7)]


def _hybrid(draw: random.Random) -> list[Case]:
    return [
        hybrid_case("2 workers, 2 steps", seed(draw), 2, draw.randint(2, 5), 2),
        hybrid_case("4 workers, 3 steps", seed(draw), 4, draw.randint(2, 4), 3),
        hybrid_case("6 ranks, of which 3 train", seed(draw), 3, 3, 2, group=sorted(draw.sample(range(5), 3))),
    ]


def _replicas(draw: random.Random) -> list[Case]:
    alone = " ".join(f"w{draw.randrange(3)}.{draw.randrange(4)}" for _ in range(12))
    pushed = [f"w{draw.randrange(3)}.{draw.randrange(3)}" for _ in range(8)]
    said, unanswered = list[str](), list[int]()
    for number, word in enumerate(pushed):
        said.append(word)
        unanswered.append(number)
        while len(unanswered) > 1 and draw.random() < 0.6:
            said.append(f"{draw.choice('aaaf')}{unanswered.pop(draw.randrange(len(unanswered)))}")
    said += [f"a{number}" for number in unanswered]
    behaviours = [[draw.choice(["fail", "raise"]) for _ in range(draw.randint(0, 3))] + ["answer"] for _ in range(4)]
    return [
        replica_case("no backup, some again", seed(draw), alone, with_backup=False),
        replica_case("with a backup", seed(draw), " ".join(said), with_backup=True),
        safely_case("the first that answers", seed(draw), behaviours),
        safely_case("nobody answers", seed(draw), [["raise", "fail", "fail"]]),
        *(dying_case("the primary dies", seed(draw), 3, 10, draw.uniform(0.003, 0.025)) for _ in range(3)),
    ]


def _checkpoints(draw: random.Random) -> list[Case]:
    first = draw.randint(5, 9)
    return [
        checkpoint_case("in order", seed(draw), f"s{first} s{first + 4} s{first + 90} s{first + 991}"),
        checkpoint_case("broken off", seed(draw), f"w{first} s{first + 1} w{first + 5} r{first + 6} s{first + 7}"),
        checkpoint_case("again", seed(draw), f"s{first} w{first} s{first + 1} r{first + 1} w{first + 1}"),
        checkpoint_case(
            "damaged", seed(draw), f"s1 s{first} d{draw.randint(1, 90)} s{first + 1} s{first + 2} d0 w{first + 3}"
        ),
        checkpoint_case(
            "the plug is pulled", seed(draw), f"s{first} p{first + 3} s{first + 4} p{first + 4} p{first + 60}"
        ),
    ]


_CASES = {
    "posted_training": _posted,
    "sync_server": _synchronous,
    "async_server": _asynchronous,
    "bounded_server": _bounded,
    "backup_workers": _backup_workers,
    "server_or_ring": _server_or_ring,
    "place_keys": _placing,
    "sparse_rows": _rows,
    "hot_keys": _copies,
    "server_hybrid": _hybrid,
    "replicated_server": _replicas,
    "checkpoints": _checkpoints,
}

cases = drawing(_CASES)
