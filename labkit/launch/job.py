"""What a run asks of its ranks, as plain data, and how it is packed for the way."""

from __future__ import annotations

import linecache
import mmap
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from labkit.errors import ConfigError
from labkit.launch import by_value


@dataclass(frozen=True)
class Job:
    """What every rank of one run is told.

    Attributes:
        call: The function and its arguments, pickled by value.
        sources: Text of each notebook cell, under the name its code objects carry.
        world_size: Number of ranks.
        backend: Name for ``init_process_group``.
        devices: One torch device name per rank of this host.
        threads_per_rank: What ``torch.set_num_threads`` is given.
        seed: Rank r draws from seed + r.
        init: Whether the default process group is made before the function and destroyed after it.
        environ: Environment of every rank, without the variables that differ per rank.
        cwd: Working directory.
        sys_path: Where modules are found.
        first_rank: The lowest rank of this host; those of a host are consecutive.
        group_rank: Which host of the run this is.
        num_hosts: How many there are.
    """

    call: bytes
    sources: Mapping[str, str]
    world_size: int
    backend: str
    devices: tuple[str, ...]
    threads_per_rank: int
    seed: int
    init: bool
    environ: Mapping[str, str]
    cwd: str
    sys_path: tuple[str, ...]
    first_rank: int = 0
    group_rank: int = 0
    num_hosts: int = 1

    def rank_environ(self, rank: int) -> dict[str, str]:
        """Return the environment of one rank: torchrun's variables, so that plain code finds what it expects."""
        return {
            **self.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank - self.first_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(len(self.devices)),
            "GROUP_RANK": str(self.group_rank),
            "GROUP_WORLD_SIZE": str(self.num_hosts),
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "LABKIT_DEVICE": self.device(rank),
        }

    def device(self, rank: int) -> str:
        """Return the torch device name of one rank of this host."""
        return self.devices[rank - self.first_rank]


def pack(job: Job) -> bytes:
    """Return the job as bytes; unpack() is its inverse."""
    return pickle.dumps(job, protocol=5)


def unpack(data: bytes | mmap.mmap) -> Job:
    """Return the job that pack() was given."""
    job = pickle.loads(data)
    assert isinstance(job, Job)
    return job


def pack_call(function: Callable[..., object], args: tuple[object, ...]) -> bytes:
    """Return the call pickled by value.

    Raises:
        ConfigError: If the function or an argument cannot be pickled; the message says which.
    """
    try:
        return by_value.dumps((function, args))
    except Exception as error:
        named = {f"argument {i} of {len(args)}": value for i, value in enumerate(args, 1)}
        culprit = by_value.find_unpicklable(
            {f"the function {getattr(function, '__name__', function)!r}": function, **named}
        )
        raise ConfigError(
            f"Ranks are separate processes and get a copy of everything, but {culprit or error}. "
            "Create it inside the function, or pass plain data."
        ) from error


def notebook_sources() -> dict[str, str]:
    """Return the text of every cell and other code without a file that this process knows, under its code's name."""
    sources = {}
    for name, entry in list(linecache.cache.items()):
        if len(entry) == 4 and entry[1] is None and name.endswith((".py", ">")):
            sources[name] = "".join(entry[2])
    return sources


def base_environ(address: str, port: int, interface: str = "") -> dict[str, str]:
    """Return this process's environment with the rendezvous of a run that hosts its store at this address.

    Args:
        address: Where the store is.
        port: Its port.
        interface: The network interface that ranks talk over, "" for loopback.
    """
    environ = dict(os.environ)
    for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"):
        environ.pop(name, None)
    environ.update(
        MASTER_ADDR=address,
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
        PYTHONHASHSEED="0",
    )
    if interface:
        environ.update(GLOO_SOCKET_IFNAME=interface, NCCL_SOCKET_IFNAME=interface, TP_SOCKET_IFNAME=interface)
    environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    if sys.platform == "win32":
        environ.pop("GLOO_SOCKET_IFNAME", None)
    return environ
