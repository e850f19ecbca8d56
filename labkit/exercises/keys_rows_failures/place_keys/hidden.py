"""Hidden cases of place_keys."""

from __future__ import annotations

import random

import torch

from labkit.checks.case import Case
from labkit.checks.hidden import seed
from labkit.exercises.keys_rows_failures.place_keys.exercise import circle_case, hash_case, range_case
from labkit.exercises.keys_rows_failures.placing import keys_near_a_bound


def cases(draw: random.Random) -> list[Case]:
    worlds = [(draw.randint(1, 200), draw.randint(1, 12)) for _ in range(6)] + [(3, 8), (16, 4)]
    keys = [torch.tensor([draw.randrange(2**31) for _ in range(40)]).view(4, 10), torch.arange(64)]
    found = [range_case("drawn tables", seed(draw), worlds), hash_case("drawn keys", keys, draw.randint(3, 16))]
    servers = draw.randint(3, 16)
    found.append(hash_case("keys near a bound", [keys_near_a_bound(servers)], servers))
    return [*found, *(circle_case("a circle", seed(draw), count, draw.randint(5, 60)) for count in (2, servers))]
