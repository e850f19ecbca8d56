"""A run that was stopped and went on from its checkpoint, held bit for bit against one that was never stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from labkit.auditing.bits import same_bits
from labkit.auditing.probes import Place, Probes
from labkit.auditing.seen import Seen

_ORDER = ("parameter", "state", "rate", "random", "input", "loss", "gradient")
"""What is looked at first in a step: what comes later follows from it."""


@dataclass(frozen=True)
class Resumed:
    """The first value in which a resumed run parts from one that was never stopped.

    Attributes:
        place: Where it arose, in the resumed run; its step counts from the resumption.
        after: After how many steps the run was stopped.
        rank: The first rank on which it differs.
        missing: Whether the resumed run has none of it.
        is_older: Whether it is what the whole run had a step earlier.
        source: The line at which it should have been brought back, as near as the record knows it.
    """

    place: Place
    after: int
    rank: int
    missing: bool
    source: str
    is_older: bool = False


def resumed_apart(whole: Probes, rest: Probes, seen: Seen, after: int) -> Resumed | str:
    """Return where a resumed run parts first, "" where it does not, else why nobody can say.

    Args:
        whole: The values of the run that was never stopped.
        rest: Those of the resumed one.
        seen: What was seen of the resumed one.
        after: After how many steps the run was stopped.
    """
    if not any(place.kind == "gradient" for place in rest.values):
        return "the resumed run took no step"
    places = [place for place in whole.values if place.step >= after and place.kind in _ORDER]
    for place in sorted(places, key=lambda one: (one.step, _ORDER.index(one.kind))):
        here = Place(place.step - after, place.kind, place.name, place.number)
        if place.kind == "random" and not whole.draws:
            continue
        if here.step > max(one.step for one in rest.values):
            break
        for rank, value in sorted(whole.values[place].items()):
            other = rest.values.get(here, {}).get(rank)
            if other is None and place.kind != "state":
                continue
            if other is None or not same_bits(value, other):
                source, is_older = _line(seen, rest, here, rank), _is_older(whole, place, rank, other)
                saved = [save.source for save in seen.saves if save.step == after]
                return Resumed(here, after, rank, other is None, saved[0] if is_older and saved else source, is_older)
    return ""


def _is_older(whole: Probes, place: Place, rank: int, value: torch.Tensor | None) -> bool:
    """Return whether a parameter is what the run that was never stopped had a step earlier."""
    if place.kind != "parameter":
        return False
    earlier = whole.values.get(replace(place, step=place.step - 1), {}).get(rank)
    return value is not None and earlier is not None and same_bits(earlier, value)


def _line(seen: Seen, rest: Probes, place: Place, rank: int) -> str:
    """Return the line that brings back a part of the state, else the last that brings back anything."""
    mine = [load for load in seen.loaded if load.rank == rank]
    moved = [one.source for one in seen.scheduler_steps if one.rank == rank and not one.step and not one.begun]
    if place.kind == "rate" and not place.step and moved:
        return moved[-1]
    if place.kind == "input":
        epochs = [one for one in seen.epochs if one.rank == rank]
        return epochs[0].source if epochs else rest.sources.get(place, "")
    of_kind = [load for load in mine if load.what == place.kind]
    together = [load for load in mine if load.what == "checkpoint"]
    any_part = [load for load in mine if load.what in ("parameter", "state", "rate", "random")]
    found = of_kind or together or any_part or mine
    return found[-1].source if found else rest.sources.get(place, "")
