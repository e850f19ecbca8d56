"""Ways for three ranks to wait for ever, and the report of each, the same in all three worlds."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

_HEAD = "def total(x):\n    rank, n = dist.get_rank(), dist.get_world_size()\n"
_PLACE = re.compile(r",? at [^\n:]+, line \d+: (?P<code>[^\n]+)")

CIRCLE = "They wait for each other in a circle: "
SENDS = "All of them are in a send, and none has got as far as a receive."
RECEIVES = "All of them are in a receive, and nothing has been sent that would answer one."


@dataclass(frozen=True)
class Kind:
    """A way to wait for ever.

    Attributes:
        body: What each rank does with `x`, 40 B; the lines of a function that knows its `rank` and `n`.
        headline: How the report begins.
        lines: Its lines, without the places in the code that they name.
    """

    body: str
    headline: str
    lines: tuple[str, ...]

    @property
    def source(self) -> str:
        """The function `total`, which takes `x`."""
        return _HEAD + "".join(f"    {line}\n" for line in self.body.splitlines())

    def function(self) -> Callable[[], None]:
        """Return what a rank calls; its lines are known, as those of a cell."""
        name = f"<{abs(hash(self.body))}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        scope: dict[str, Any] = {"dist": dist, "torch": torch}
        exec(compile(self.source, name, "exec"), scope)
        total = scope["total"]
        return lambda: total(torch.ones(10))

    def codes(self) -> set[str]:
        """Return its lines of code, as a report may name them."""
        return {line.strip() for line in self.source.splitlines()}


def without_places(line: str) -> tuple[str, str]:
    """Return a line of a report without the place that it names, and the code there, "" where it names none."""
    found = _PLACE.search(line)
    return (line, "") if found is None else (line.replace(found[0], ""), found["code"])


def _all(count: int) -> str:
    return f"Deadlock: {count} of 3 ranks wait and none can go on."


_ONE = "Deadlock: rank 0 of 3 waits for something that can never happen."

KINDS = {
    "a receive of what nobody sends": Kind(
        "if rank == 0: dist.recv(x, 1)",
        _ONE,
        ("rank 0 waits in recv from rank 1 (40 B), which has finished", "Finished: ranks 1 and 2."),
    ),
    "a receive from any rank of what nobody sends": Kind(
        "if rank == 0: dist.recv(x)",
        _ONE,
        ("rank 0 waits in recv from any rank (40 B), and ranks 1 and 2 have finished", "Finished: ranks 1 and 2."),
    ),
    "a send that nobody receives": Kind(
        "if rank == 0: dist.send(x, 1)",
        _ONE,
        ("rank 0 waits in send to rank 1 (40 B), which has finished", "Finished: ranks 1 and 2."),
    ),
    "a posted send that nobody receives": Kind(
        "if rank == 0:\n    work = dist.isend(x, 1)\n    work.wait()",
        _ONE,
        ("rank 0 waits in isend to rank 1 (40 B), which has finished", "Finished: ranks 1 and 2."),
    ),
    "crossed receives": Kind(
        "if rank < 2:\n    dist.recv(x, 1 - rank)\n    dist.send(x, 1 - rank)",
        f"{_all(2)} {CIRCLE}rank 0 -> rank 1 -> rank 0. {RECEIVES}",
        (
            "rank 0 waits in recv from rank 1 (40 B)",
            "rank 1 waits in recv from rank 0 (40 B)",
            "Finished: rank 2.",
        ),
    ),
    "a ring that receives first": Kind(
        "dist.recv(x, (rank - 1) % n)\ndist.send(x, (rank + 1) % n)",
        f"{_all(3)} {CIRCLE}rank 0 -> rank 2 -> rank 1 -> rank 0. {RECEIVES}",
        tuple(f"rank {rank} waits in recv from rank {(rank - 1) % 3} (40 B)" for rank in (0, 2, 1)),
    ),
    "another tag": Kind(
        "if rank == 0: dist.send(x, 1, tag=1)\nif rank == 1: dist.recv(x, 0, tag=2)",
        f"{_all(2)} {CIRCLE}rank 0 -> rank 1 -> rank 0.",
        (
            "rank 0 waits in send to rank 1 with tag 1 (40 B), which asks for tag 2",
            "rank 1 waits in recv from rank 0 with tag 2 (40 B), which sends tag 1",
            "Finished: rank 2.",
        ),
    ),
    "a posted receive": Kind(
        "if rank == 0:\n    work = dist.irecv(x, 1)\n    work.wait()\ndist.barrier()",
        f"{_all(3)} {CIRCLE}rank 0 -> rank 1 -> rank 0.",
        (
            "rank 0 waits in irecv from rank 1 (40 B)",
            "rank 1 waits in barrier #1, which rank 0 has not reached",
            "rank 2 waits in barrier #1, which rank 0 has not reached",
        ),
    ),
    "an all_reduce that one rank skips": Kind(
        "if rank != 1: dist.all_reduce(x)",
        _all(2),
        (
            "rank 0 waits in all_reduce #1 (40 B), which rank 1 finished without",
            "rank 2 waits in all_reduce #1 (40 B), which rank 1 finished without",
            "Finished: rank 1.",
        ),
    ),
    "a barrier that one rank skips": Kind(
        "if rank != 2: dist.barrier()",
        _all(2),
        (
            "rank 0 waits in barrier #1, which rank 2 finished without",
            "rank 1 waits in barrier #1, which rank 2 finished without",
            "Finished: rank 2.",
        ),
    ),
    "a rank that returns early": Kind(
        "for _ in range(3):\n    dist.all_reduce(x)\n    if rank == 1: return",
        _all(2),
        (
            "rank 0 waits in all_reduce #2 (40 B), which rank 1 finished without",
            "rank 2 waits in all_reduce #2 (40 B), which rank 1 finished without",
            "Finished: rank 1.",
        ),
    ),
    "a group that waits for a member": Kind(
        "pair = dist.new_group([0, 2])\nif rank == 0: dist.all_reduce(x, group=pair)\ndist.barrier()",
        f"{_all(3)} {CIRCLE}rank 0 -> rank 2 -> rank 0.",
        (
            "rank 0 waits in all_reduce #1 of ranks 0 and 2 (40 B), which rank 2 has not reached",
            "rank 2 waits in barrier #1, which rank 0 has not reached",
            "rank 1 waits in barrier #1, which rank 0 has not reached",
        ),
    ),
    "a gather that its root skips": Kind(
        "if rank != 0: dist.broadcast(x, 0)",
        _all(2),
        (
            "rank 1 waits in broadcast #1 (40 B), which rank 0 finished without",
            "rank 2 waits in broadcast #1 (40 B), which rank 0 finished without",
            "Finished: rank 0.",
        ),
    ),
}
"""By what happens."""
OFTEN = ("another tag", "a posted receive")
"""Tried every time where a try takes seconds."""
