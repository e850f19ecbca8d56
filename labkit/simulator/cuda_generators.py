"""torch.Generator on a virtual CUDA device: draws are made on the host, whose generator it is."""

from __future__ import annotations

from typing import Any

import torch

from labkit.simulator.state import current_rank

_Real: Any = torch.Generator


class _OfBoth(type(_Real)):  # type: ignore[misc]
    """Whose instances are those of the real class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Real)


class VirtualGenerator(_Real, metaclass=_OfBoth):  # type: ignore[misc]
    """A generator on the rank's device; elsewhere, the real class makes what is asked for."""

    where: torch.device

    def __new__(cls, device: Any = "cpu") -> Any:
        """Return a generator of this device."""
        rank = current_rank()
        accelerator = None if rank is None else rank.process.accelerator
        named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if accelerator is None or named.type != "cuda":
            return _Real(device)
        accelerator.wants(named)
        made = _Real.__new__(cls, "cpu")
        made.where = accelerator.device
        return made

    @property
    def device(self) -> torch.device:
        """The virtual device."""
        return self.where
