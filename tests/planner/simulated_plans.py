"""Plans by the virtual cluster's prices beside their steps there: drawn ones on 64 ranks, and all of a small job."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

from labkit.hardware import DEVICES, LINKS
from labkit.planned_steps.verify import Verified, verify
from labkit.planner.layout import layouts
from labkit.planner.model import Model
from labkit.planner.plan import Job, Plan, planned
from labkit.planner.step import Machines

H100S = Machines(DEVICES["h100"], LINKS["nvlink4"], LINKS["ib_ndr"])
MODELS = (
    Model("narrow", 8, 2048, 16, 16, 8192, 50_304, 2048, gated=False),
    Model("middle", 8, 4096, 32, 8, 14_336, 32_000, 4096),
    Model("wide", 16, 8192, 64, 8, 28_672, 128_256, 4096),
)
SEED = 45
SMALL = Job(Model("small", 4, 2048, 16, 8, 8192, 32_000, 2048), 8, 8, H100S)


def drawn(count: int = 20) -> list[Plan]:
    """Return so many plans for 64 ranks, drawn from all layouts of three models with 64 sequences a step."""
    draw, found = random.Random(SEED), []
    for _ in range(count):
        model = draw.choice(MODELS)
        layout = draw.choice(layouts(model, 64, 64))
        found.append(planned(Job(model, 64, 64, H100S), layout))
    return found


@cache
def verified(count: int = 20) -> tuple[Verified, ...]:
    """Return the first of the drawn plans beside their steps."""
    return tuple(verify(plan) for plan in drawn()[:count])


def every_small_plan() -> Iterator[Verified]:
    """Yield each plan of the small job without recomputation beside its step."""
    for layout in layouts(SMALL.model, SMALL.num_gpus, SMALL.batch, recomputes=("none",)):
        yield verify(planned(SMALL, layout))
