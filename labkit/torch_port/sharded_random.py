"""Random numbers of sharded tensors where a CUDA device is pretended: each shard has its own, replicas have the same.

torch's own tracker moves the offset of a GPU's generator, which a generator of the host does not have. Here every shard
draws from a generator that begins from the common state and the shard's place in the mesh.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from labkit.torch_port.operators import unanswered, uncounted

_MODULE = "torch.distributed.tensor._random"
_TRACKER = "OffsetBasedRNGTracker"

NEEDED: dict[str, Callable[[], object]] = {
    "torch._decomp.decomposition_table": lambda: _decompositions()[torch.ops.aten.uniform_.default],
    f"{_MODULE}.{_TRACKER}": lambda: getattr(importlib.import_module(_MODULE), _TRACKER),
}
"""Name -> how it is reached; a test calls each."""


@contextmanager
def drawn_by_shard(put: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Let ranks with pretended devices draw so; leave torch as it was.

    Args:
        put: Returns a tensor of a rank, now on its device; raises LookupError in threads that have none.
    """
    module: Any = importlib.import_module(_MODULE)
    real, table = getattr(module, _TRACKER), _decompositions()
    uniform, decomposed = torch.ops.aten.uniform_.default, table[torch.ops.aten.uniform_.default]

    def in_place(given: Any, *args: Any, **kwargs: Any) -> Any:
        """Where shapes are worked out for a device that is not there, what the operator returns is what it is given."""
        return given if given.device.type == "cuda" else decomposed(given, *args, **kwargs)

    setattr(module, _TRACKER, _tracker(real, put))
    table[uniform] = in_place
    try:
        yield
    finally:
        setattr(module, _TRACKER, real)
        table[uniform] = decomposed


def _decompositions() -> Any:
    return importlib.import_module("torch._decomp").decomposition_table


def _tracker(real: Any, put: Any) -> Any:
    class Tracker(real):  # type: ignore[misc]
        """torch's own to other threads."""

        def __init__(self, device_mesh: Any, run_state_sync: bool = True) -> None:
            self._pretends = True
            try:
                state = put(torch.get_rng_state())
            except LookupError:
                self._pretends = False
                super().__init__(device_mesh, run_state_sync)
                return
            self._device = torch.device("cpu")
            self._use_distribute_region = True
            if run_state_sync:  # all begin where rank 0 is
                dist.broadcast(state, 0)
                torch.set_rng_state(state)

        @contextmanager
        def _distribute_region(self, spec: Any, generator: Any = None) -> Iterator[None]:
            if not self._pretends:
                with super()._distribute_region(spec, generator):
                    yield
                return
            source: Any = torch.default_generator if generator is None else generator
            with uncounted(), unanswered():
                state = source.get_state()
                source.manual_seed(_seed(state, spec))
            try:
                yield
            finally:
                with uncounted(), unanswered():
                    source.set_state(state)
                    torch.rand((), generator=generator)  # what comes next is other numbers, the same on all ranks

    return Tracker


def _seed(state: torch.Tensor, spec: Any) -> int:
    """Return where a shard begins: another place for each shard, the same for its replicas."""
    coordinate = spec.mesh.get_coordinate() or ()
    place = [where for where, placement in zip(coordinate, spec.placements, strict=False) if _is_shard(placement)]
    digest = hashlib.sha256(bytes(state.tolist()) + repr(place).encode()).digest()
    return int.from_bytes(digest[:7], "little")


def _is_shard(placement: Any) -> bool:
    return type(placement).__name__ in ("Shard", "_StridedShard")
