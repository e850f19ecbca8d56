"""Records the runs of `wrong_order`: a step on eight GPUs whose axes lie in an order that does not suit the machines.

Run it from the repository to write both recordings anew; they come out the same on every machine.
"""

from __future__ import annotations

from pathlib import Path

import labkit
from labkit.exercises.hybrid_parallelism.meshes import places
from labkit.exercises.hybrid_parallelism.on_ranks import Mesh
from labkit.hybrid_gpt import played_step

HERE = Path(__file__).parent
LABKITS = Path(__file__).parents[4] / "labkit" / "exercises" / "hybrid_parallelism" / "wrong_order"
ORDER, OF_CLASS = ("tensor", "data", "pipeline"), ("data", "tensor", "pipeline")
_KEPT = ("call", "wait", "clock")


def record(order: tuple[str, ...] = ORDER) -> labkit.Timeline:
    """Return a step with two ranks on each axis, two GPUs in a node, without what a learner does not look at."""
    slow = {rank: 1.4 for rank, place in enumerate(places(dict.fromkeys(order, 2))) if place["data"]}
    world = labkit.virtual(8, gpu="h100", gpus_per_node=2, slow=slow)  # replicas out of step: who sums with whom shows
    timeline = labkit.run(lambda: played_step(Mesh(dict.fromkeys(order, 2))), on=world, echo=False).timeline
    timeline.tables = {name: table for name, table in timeline.tables.items() if name in _KEPT}
    return timeline


if __name__ == "__main__":
    record().save(LABKITS / "recording.json")
    record(OF_CLASS).save(HERE / "recording.json")
