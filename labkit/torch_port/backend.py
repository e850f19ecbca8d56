"""Backends of torch.distributed that stand on a port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist

from labkit.torch_port.adapter import PortGroup
from labkit.torch_port.port import Members, Port


def register(name: str, make_port: Callable[[Members], Port], devices: Sequence[str] = ("cpu",)) -> None:
    """Make a backend known to torch.distributed in this process; again is nothing.

    Args:
        name: What ``dist.init_process_group`` takes.
        make_port: Returns the port of each new group, in the thread that asked for the group.
        devices: Kinds of devices whose tensors it takes.
    """
    if name in dist.Backend.backend_list:
        return

    def create(options: Any, backend_options: object) -> PortGroup:
        ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        members = Members(str(options.group_id), ranks, options.group_rank)
        return PortGroup(name, members, make_port(members))

    dist.Backend.register_backend(name, create, extended_api=True, devices=list(devices))
