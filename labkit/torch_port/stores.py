"""Stores that ranks meet at."""

from __future__ import annotations

import socket

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore

__all__ = ["HashStore", "TCPStore", "environment_store", "host_store", "read_debug_level"]


def host_store(listener: socket.socket) -> TCPStore:
    """Return a store served on this listening socket, which stays the caller's; it ends with the returned object.

    ``master_listen_fd`` is not documented. Without it the port would be drawn by one process and taken by another.
    """
    address, port = listener.getsockname()[:2]
    return TCPStore(address, port, None, True, wait_for_workers=False, master_listen_fd=listener.dup().detach())


def environment_store(prefix: str) -> PrefixStore:
    """Return a part of the store that the environment names (RANK, MASTER_ADDR, ...), whoever hosts it."""
    store, _, _ = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]  # re-exported without saying so
    return PrefixStore(prefix, store)


def read_debug_level() -> None:
    """Take TORCH_DISTRIBUTED_DEBUG from the environment as it is now; torch read it at import."""
    dist.set_debug_level_from_env()  # type: ignore[attr-defined]  # re-exported without saying so
