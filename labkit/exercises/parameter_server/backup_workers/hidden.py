"""Hidden cases of backup_workers."""

from __future__ import annotations

import random

from labkit.checks.case import Case
from labkit.checks.hidden import of_another_kind, seed
from labkit.exercises.parameter_server.backup_workers.exercise import backup_case
from labkit.exercises.parameter_server.crowds import crowd_case


def cases(draw: random.Random) -> list[Case]:
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
    found[-1] = of_another_kind(found[-1], draw)
    return [*found, crowd_case("4 of 6 at the same time", "BackupServer", seed(draw), 6, 6, [4], until=5)]
