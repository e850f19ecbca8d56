"""Single numbers as they are made: means and their counts, and what says whether something is infinite."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from labkit.auditing.bits import kept, tensors_of, unseen
from labkit.auditing.facts import Decision
from labkit.auditing.gradient_numbers import address_of
from labkit.auditing.rank_watch import RankWatch, is_own, line
from labkit.auditing.seen import Seen

_FINITE = ("isnan", "isinf", "isfinite")
_MEANS = ("mean", "mse_loss", "l1_loss")


def made(mine: RankWatch, name: str, args: Any, out: Any) -> None:
    """Keep of how many a number is the mean, and whether it says if something is infinite."""
    given = [one for one in args if isinstance(one, torch.Tensor)] if args else []
    _infinities(mine, name, given, args, out)
    first = tensors_of(out)[:1]
    if not first or first[0].dim() or first[0].is_meta or type(first[0]) is not torch.Tensor:
        return
    with unseen():
        key = address_of(first[0])
        before = mine.ratios.pop(key, None)
        if not first[0].is_floating_point() or any(one.requires_grad for one in given):
            return
        count = _count(mine, name, given, args, before)
    if count:
        mine.ratios[key] = count


def _count(
    mine: RankWatch, name: str, given: list[torch.Tensor], args: Any, before: float | None
) -> float | None:  # fmt: skip
    if name in _MEANS:
        return float(given[0].numel())
    if name in ("div", "div_") and len(args) > 1:
        divisor = args[1]
        if isinstance(divisor, torch.Tensor):
            divisor = None if divisor.numel() != 1 or divisor.is_meta else float(divisor)
        own = before if name == "div_" else mine.ratios.get(address_of(given[0]))
        return None if not divisor else abs(float(divisor)) * (own or 1.0)
    if name.strip("_") in ("detach", "clone", "to_copy", "mul") and given:
        return before if name == "mul_" else mine.ratios.get(address_of(given[0]))
    return None


def _infinities(mine: RankWatch, name: str, given: list[torch.Tensor], args: Any, out: Any) -> None:
    other = args[1] if name in ("eq", "ne") and len(args) > 1 else None
    new = name in _FINITE or (other is not None and (other is args[0] or _is_infinite(other)))
    if not new and not mine.infinities:
        return
    with unseen():
        marked = new or any(address_of(one) in mine.infinities for one in given)
        for one in tensors_of(out):
            (mine.infinities.add if marked else mine.infinities.discard)(address_of(one))


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and value in (float("inf"), float("-inf"))


def shares(mine: RankWatch, args: Any, out: Any) -> None:
    """Follow what came from other ranks."""
    with unseen():
        if any(address_of(one) in mine.shared for one in tensors_of(args)):
            mine.shared |= {address_of(one) for one in tensors_of(out)} - {0}


def cut_off(seen: Seen, mine: RankWatch, name: str, args: Any, out: Any, frame: FrameType) -> None:
    """Follow what was gathered out of the graph, to where it is computed with beside what is in the graph."""
    given = tensors_of(args)
    with unseen():
        found = [mine.cut[key] for one in given if (key := address_of(one)) in mine.cut]
        if not found:
            return
        beside = any(one.requires_grad and address_of(one) not in mine.cut for one in given)
        if not beside:
            mine.cut |= {address_of(one): found[0] for one in tensors_of(out)}
    if beside and name in ("cat", "stack"):
        mine.cut.clear()  # the rank's own part is put back, with its gradient
    elif beside:
        seen.cut.append((found[0][1], line(frame)))
        mine.cut.clear()


def read(seen: Seen, mine: RankWatch, args: Any, frame: FrameType) -> None:
    """Note a number that the program's own code reads."""
    if not is_own(frame) or not isinstance(args[0], torch.Tensor):
        return
    with unseen():
        value, at = kept(args[0]), address_of(args[0])
    if value is None or value.numel() != 1 or value.is_complex():
        return
    source = line(frame)
    number = mine.num_read[source]
    mine.num_read[source] += 1
    says, shared = at in mine.infinities, at in mine.shared
    seen.decisions.append(Decision(mine.rank, mine.step, number, float(value), says, source, shared))
