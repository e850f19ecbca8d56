"""Numbers that a program reads of what its ranks made together, held against those of one process."""

from __future__ import annotations

from labkit.auditing.against import Parting
from labkit.auditing.probes import Place
from labkit.auditing.seen import Seen

_ROUNDING = 1e-3


def number_apart(run: Seen, reference: Seen) -> Parting | None:
    """Return the first number that all ranks read alike, of what came from others, and one process reads otherwise.

    A number that is as many times another as there are ranks is a rank's share, or a sum over ranks. Runs are compared
    where samplers hand out the same samples to evaluate.
    """
    if not _evaluated(run) or _evaluated(run) != _evaluated(reference):
        return None
    whole = {(one.source, one.number): one.value for one in reference.decisions if one.rank == 0}
    alike: dict[tuple[str, int], list[float]] = {}
    for one in run.decisions:
        if one.shared:
            alike.setdefault((one.source, one.number), []).append(one.value)
    for one in run.decisions:
        key = one.source, one.number
        values, other = alike.get(key, []), whole.get(key)
        if one.rank or other is None or len(values) != run.world_size or len(set(values)) != 1:
            continue
        if any(_close(one.value * factor, other) for factor in (1, run.world_size, 1 / run.world_size)):
            continue
        if abs(one.value) < float("inf") and abs(other) < float("inf"):
            return Parting(Place(one.step, "number", "", one.number), 0, abs(one.value - other), 0.0, one.source)
    return None


def _evaluated(seen: Seen) -> set[int]:
    """Return the samples that samplers hand out while no gradient is kept."""
    return {sample for epoch in seen.epochs if not epoch.trains for sample in epoch.order}


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _ROUNDING * max(abs(one), abs(other))
