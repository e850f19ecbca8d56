"""Makes the README's picture: python docs/ring_picture.py writes ring.png beside this file.

A real run of lesson 02's solution, four ranks on this machine; of several, the shortest, which other work disturbed
least.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import labkit
from labkit.lessons import source
from labkit.timeline import Timeline

HERE = Path(__file__).parent
SOLUTION = HERE.parent / "solutions" / "03_collectives.py"


def ring_all_reduce() -> Callable[..., object]:
    """Return the solution's function; only the lesson's given and exercise cells are run."""
    names: dict[str, Any] = {"__name__": "lesson_03"}
    for cell in source.load(SOLUTION).cells:
        if cell.role == "given" or cell.is_code_exercise:
            exec(compile(cell.source, cell.id, "exec", dont_inherit=True), names)
    found: Callable[..., object] = names["ring_all_reduce"]
    return found


def all_reduce_once(ring: Callable[..., object], num_bytes: int) -> None:
    """Sum a tensor over all ranks, once to warm up and once in the region that is shown."""
    tensor = torch.ones(num_bytes // 4)
    ring(tensor)
    dist.barrier()
    with labkit.span("ring_all_reduce"):
        ring(tensor)


def shown(run: labkit.Run) -> Timeline:
    """Return what lies in the named region."""
    timeline = run.timeline
    regions = timeline.name == "ring_all_reduce"
    begin, end = timeline.start_ns[regions].min(), timeline.end_ns[regions].max()
    return timeline.select((timeline.start_ns >= begin) & (timeline.end_ns <= end) & ~regions)


if __name__ == "__main__":
    ring = ring_all_reduce()
    runs = [labkit.run(all_reduce_once, ring, 32_000_000, on=labkit.local(4, device="cpu")) for _ in range(10)]
    (HERE / "ring.png").write_bytes(
        import_module("labkit.widgets.static_timeline").to_png(min(map(shown, runs), key=lambda each: each.makespan_ns))
    )
