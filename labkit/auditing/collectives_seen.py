"""Collectives as ranks call them: what the watch notes of each."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

import torch

from labkit.auditing.bits import unseen
from labkit.auditing.facts import Call
from labkit.auditing.gradient_numbers import address_of
from labkit.auditing.rank_watch import RankWatch, call_site
from labkit.auditing.seen import Seen
from labkit.simulator.rounds import Group, Part
from labkit.torch_port.backward import in_backward


def called(seen: Seen, mine: RankWatch, group: Group, part: Part, op: str, frame: FrameType) -> Call:
    """Return a collective that a rank calls, which is now noted."""
    tensors, ranks = part.inputs or part.outputs, tuple(group.ranks)
    first = tensors[0] if tensors else None
    holds, names, hooked = _holding(mine, tensors)
    source, api, outer, caller = call_site(frame)
    ratio = None
    if first is not None and first.numel() == 1 and op:
        with unseen():
            ratio = mine.ratios.get(address_of(first))
    call = Call(
        mine.rank, mine.step, ranks, part.row.kind, op,
        "" if first is None else str(first.dtype).removeprefix("torch."), sum(one.numel() for one in tensors),
        part.row.bytes, source, part.row.blocking, holds, mine.depth > 0, in_backward(), not mine.backwards,
        torch.is_grad_enabled() and any(one.requires_grad for one in part.inputs), mine.num_calls,
        len(mine.backwards), mine.num_operators, part.row, mine.turns[ranks], api, outer, names, mine.num_forwards,
        _share_memory(part.outputs), ratio, hooked if in_backward() else "",
        mine.num_ready, caller,
    )  # fmt: skip
    mine.num_calls += 1
    mine.turns[ranks] += 1
    seen.calls.append(call)
    if call.in_graph and call.kind.startswith("all_gather") and not call.in_backward:
        with unseen():
            mine.cut |= {address_of(one): (source, len(seen.calls) - 1) for one in part.outputs}
    return call


def _share_memory(tensors: Sequence[torch.Tensor]) -> bool:
    if len(tensors) < 2:
        return False
    with unseen():
        places = [one.data_ptr() for one in tensors if one.numel() and not one.is_meta]
    return len(set(places)) < len(places)


def _holding(mine: RankWatch, tensors: Sequence[torch.Tensor]) -> tuple[str, tuple[str, ...], str]:
    """Return whether a collective is given a "parameter" or a "gradient", and whose, and where hooked."""
    given = {one.untyped_storage().data_ptr() for one in tensors if one.layout is torch.strided and not one.is_meta}
    if not given or not mine.hooked:
        return "", (), ""
    of_gradients = []
    for key, parameter in mine.hooked.items():
        with unseen():
            if address_of(parameter) in given:
                return "parameter", (), ""
            if parameter.grad is not None and address_of(parameter.grad) in given:
                of_gradients.append(key)
                if len(given) == 1:
                    break
    if not of_gradients:
        return "", (), ""
    named = mine.named()
    names = tuple(named.get(key, f"parameter {key}") for key in of_gradients)
    return "gradient", names, mine.hooked_at.get(of_gradients[0], "")
