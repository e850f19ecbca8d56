"""Runs that go wrong, for the site's gallery: each a function that every rank runs, on a virtual cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.distributed as dist

import labkit
from labkit.errors import LabkitError
from labkit.timeline import Timeline


@dataclass(frozen=True)
class Shown:
    """A run of the gallery.

    Attributes:
        title: What goes wrong.
        lesson: Where one meets it, a lesson's slug.
        program: What every rank runs.
        ranks: How many.
        sign: What to look for in the picture.
    """

    title: str
    lesson: str
    program: Callable[[], None]
    ranks: int
    sign: str


def rank_0_forgets_to_send() -> None:
    """Compute on rank 0; every other rank waits for the rank before it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    weight, batch = torch.ones(512, 512), torch.ones(512, 512)
    if rank > 0:
        dist.recv(batch, src=rank - 1)
    for _ in range(4):
        batch @ weight
    if 0 < rank < size - 1:
        dist.send(batch, dst=rank + 1)


def rank_0_adds_up() -> None:
    """Send everything to rank 0, which adds and sends the sum back."""
    rank, size = dist.get_rank(), dist.get_world_size()
    value, other = torch.ones(1_000_000), torch.empty(1_000_000)
    for peer in range(1, size):
        if rank == 0:
            dist.recv(other, src=peer)
            value += other
        elif rank == peer:
            dist.send(value, dst=0)
    dist.broadcast(value, src=0)


def one_rank_is_late() -> None:
    """Compute, then average; rank 2 has three parts where the others have two."""
    weight, gradient = torch.ones(512, 512), torch.ones(1_000_000)
    for _ in range(3):
        for _ in range(3 if dist.get_rank() == 2 else 2):
            weight @ weight
        dist.all_reduce(gradient)


def few_microbatches() -> None:
    """Run a pipeline of four stages with two microbatches, forward only."""
    rank, size = dist.get_rank(), dist.get_world_size()
    weight, batch = torch.ones(512, 512), torch.ones(512, 512)
    for _ in range(2):
        if rank > 0:
            dist.recv(batch, src=rank - 1)
        for _ in range(4):
            batch @ weight
        if rank < size - 1:
            dist.send(batch, dst=rank + 1)


def one_rank_fails() -> None:
    """Compute and average, twice; rank 3 has more to compute, and raises at its end."""
    weight, gradient = torch.ones(512, 512), torch.ones(1_000_000)
    for step in range(2):
        for _ in range(4 if dist.get_rank() == 3 else 2):
            weight @ weight
        if step == 1 and dist.get_rank() == 3:
            raise ValueError("nan in the loss of batch 1")
        dist.all_reduce(gradient)


RUNS = (
    Shown("Rank 0 does all the work", "02_ring_all_reduce", rank_0_adds_up, 8, "one full row above seven hatched ones"),
    Shown(
        "One rank is late",
        "04_ddp",
        one_rank_is_late,
        4,
        "the row of three ranks alike: it waits before each all_reduce",
    ),
    Shown("Too few microbatches", "08_pipeline", few_microbatches, 4, "a staircase with empty corners"),
    Shown("Rank 0 forgets to send", "00_start_here", rank_0_forgets_to_send, 4, "hatched bars that never end"),
    Shown(
        "One rank fails",
        "00_start_here",
        one_rank_fails,
        4,
        "a row that ends, and the row of the other three, which waits for it",
    ),
)


@cache
def run(shown: Shown) -> tuple[Timeline, str]:
    """Return the timeline of a run, and what labkit says where it fails; page and picture show one run."""
    try:
        done = labkit.run(shown.program, on=labkit.virtual(shown.ranks), echo=False)
    except LabkitError as error:
        return error.timeline, str(error)
    return done.timeline, ""
