"""Models that are called to evaluate: what the watch notes of each."""

from __future__ import annotations

import torch

from labkit.auditing.bits import digest, unseen
from labkit.auditing.modes import Used
from labkit.auditing.rank_watch import RankWatch
from labkit.auditing.seen import Seen


def evaluates(seen: Seen, mine: RankWatch, module: torch.nn.Module, source: str) -> None:
    """Note the buffers of a model that is called to evaluate, and the parameters of a copy of the trained one."""
    with unseen():
        buffers = {
            name: digest(one)
            for name, one in (module.named_buffers() if not module.training else ())
            if one.is_floating_point() and id(one) not in mine.even_buffers
        }
        copied = {name: digest(one) for name, one in module.named_parameters()} if _is_copy(mine, module) else {}
    if buffers or copied:
        made = next((mine.made[id(one)] for one in module.modules() if id(one) in mine.made), "")
        seen.used.append(Used(mine.rank, mine.step, buffers, source, copied, made))


def _is_copy(mine: RankWatch, module: torch.nn.Module) -> bool:
    """Return whether a model has the trained parameters' shapes and none of them."""
    own = list(module.parameters())
    if not own or any(id(one) in mine.hooked or hasattr(one, "placements") for one in own):
        return False
    return sorted(one.shape for one in own) == sorted(one.shape for one in mine.hooked.values())
