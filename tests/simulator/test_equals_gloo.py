"""The virtual cluster gives what gloo gives."""

from __future__ import annotations

import pytest
from equality import same
from random_programs import run_each_step, run_programs

import labkit
from labkit.simulator.cluster import describe
from labkit.simulator.run import simulate

# Two names in use for years are about to be renamed; both worlds must take them.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


def _compare(fn: object, args: tuple[object, ...], world_size: int) -> None:
    real = labkit.run(fn, *args, on=labkit.local(world_size, device="cpu"), echo=False).results
    virtual = simulate(fn, args, describe(world_size), echo=False).results
    for rank, (theirs, ours) in enumerate(zip(real, virtual, strict=True)):
        for number, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            assert same(a, b), f"rank {rank}, program {number}: gloo {a}, virtual {b}"


@pytest.mark.in_turn
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_each_kind_of_call_gives_what_gloo_gives(world_size: int) -> None:
    _compare(run_each_step, (world_size,), world_size)


@pytest.mark.in_turn
def test_random_programs_give_what_gloo_gives() -> None:
    _compare(run_programs, (list(range(20)), 8), 4)


@pytest.mark.long
@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
def test_thousands_of_random_programs_give_what_gloo_gives(world_size: int) -> None:
    for first in range(0, 1000, 100):
        seeds = list(range(first + 10_000 * world_size, first + 10_000 * world_size + 100))
        _compare(run_programs, (seeds, 6), world_size)
