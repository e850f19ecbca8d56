"""cluster(): real processes on several hosts, found and reached through Dask; or the ranks that torchrun started."""

from __future__ import annotations

import io
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from labkit.errors import ConfigError
from labkit.known_classes import loads_in_notebook
from labkit.launch import by_value
from labkit.launch.cluster.dask_hosts import Options, connected
from labkit.launch.cluster.hosts import close_hosts, hosts_of, refuse_no_ranks
from labkit.launch.cluster.in_ranks import Meeting, placed, recorded_ranks
from labkit.launch.cluster.run import launch_on_hosts, place_on_hosts
from labkit.launch.devices import DEVICES
from labkit.launch.local import Order
from labkit.launch.rank import device as device_of_rank
from labkit.launch.worker import seed_all
from labkit.worlds import Run


@dataclass(frozen=True)
class ClusterWorld:
    """Real processes on every host of a Dask cluster; made by cluster().

    Attributes:
        client: The Dask client.
        ranks_per_host: Ranks on each host, or None for one on each GPU.
        device: "auto", "cpu" or "cuda".
        threads_per_rank: CPU threads of each rank, or None for an equal share of its host's cores.
        options: How the hosts are used.
    """

    client: Any = field(repr=False)
    ranks_per_host: int | None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads_per_rank: int | None = None
    options: Options = field(default=Options(), repr=False)
    can_be_watched: ClassVar[bool] = True

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names of the hosts, in the order of their ranks."""
        return tuple(host.name for host in hosts_of(self.client, self.options).hosts)

    @property
    def world_size(self) -> int:
        """Number of ranks on all hosts that are there now."""
        hosts = hosts_of(self.client, self.options)
        per_host = self.ranks_per_host or len(place_on_hosts(hosts, None, self.device).devices)
        return per_host * len(hosts.hosts)

    def launch(self, order: Order) -> Run[Any]:
        """Return what came of the order on fresh processes of every host (see labkit.run)."""
        hosts = hosts_of(self.client, self.options)
        outcome, placement = launch_on_hosts(order, hosts, self.ranks_per_host, self.device, self.threads_per_rank)
        return Run(
            outcome.results, outcome.timeline, list(outcome.output), self, placement.label, round(outcome.seconds * 1e9)
        )

    def close(self) -> None:
        """End the agents on all hosts; a later run starts them again."""
        close_hosts(self.client, self.options)


@dataclass(frozen=True)
class RanksWorld:
    """The ranks that torchrun or srun started, this process among them; made by cluster() without an address."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return placed().world_size

    def launch(self, order: Order) -> Run[Any]:
        """Return on rank 0 what came of the order on all ranks, on another rank that one's own result alone.

        Whoever started the ranks ends them where one fails: timeout, stall, echo and watch are not for this world.
        """
        import torch
        import torch.distributed as dist

        began = time.monotonic_ns()
        meeting = Meeting()
        here, on = meeting.here, device_of_rank()
        alone = here.ranks_here <= torch.cuda.device_count() and on.type == "cuda" and dist.is_nccl_available()
        meeting.tell(f"alone/{here.rank}", alone)
        nccl = all(meeting.hear(f"alone/{rank}") for rank in range(here.world_size))
        said = _Heard()
        seed_all(order.seed + here.rank, cuda=on.type == "cuda")
        with recorded_ranks(meeting) as record:
            joins = order.init and not dist.is_initialized()
            if joins:
                dist.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo")
            with redirect_stdout(said):
                result = order.function(*order.args)
            if joins:
                dist.destroy_process_group()
        found = meeting.gather("result", (by_value.dumps(result), "".join(said.pieces)))
        label = f"{'nccl' if nccl else 'gloo'}/{on.type}"
        elapsed_ns = time.monotonic_ns() - began
        if found is None:
            return Run([result], None, ["".join(said.pieces)], self, label, elapsed_ns)
        results = [loads_in_notebook(value) for value, _ in found]
        return Run(results, record.timeline, [text for _, text in found], self, label, elapsed_ns)


class _Heard(io.TextIOBase):
    """Standard output, and a copy of what Python prints there."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._real = sys.stdout

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return self._real.write(text)

    def flush(self) -> None:
        self._real.flush()


def cluster(
    scheduler: Any = None,
    *,
    ranks_per_host: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads_per_rank: int | None = None,
    interface: str = "",
    insecure: bool = False,
    public: bool = False,
    security: Any = None,
) -> ClusterWorld | RanksWorld:
    """Return a world of real processes on the hosts of a Dask cluster; without an address, of ranks that run already.

    In a program that torchrun or srun started, ``labkit.run(fn, on=labkit.cluster())`` runs fn in the ranks there are:
    rank 0 gets the Run of all ranks, every other rank a Run with only its own result.

    Dask finds the hosts and starts an agent on each; the agents own the ranks, for as long as this notebook renews
    their lease. A host is an IP address; Dask workers on 127.0.0.1 each stand for one. All ranks have one backend: NCCL
    where every rank of every host has a GPU of its own, else gloo.

    Args:
        scheduler: Address of a Dask scheduler, ``"tls://head:8786"``, or a ``distributed.Client``; None inside torchrun
            or srun.
        ranks_per_host: Ranks on each host; None is one on each GPU, and one where no GPU is used.
        device: "auto" takes GPUs where every host has some, "cpu" never, "cuda" insists.
        threads_per_rank: CPU threads of each rank; None shares its host's cores equally.
        interface: Network interface that ranks talk over, such as ``"ib0"``, the same name on every host; "" is the
            one that has the address of the host's Dask worker.
        insecure: Go on without TLS beyond this machine: anybody on that network can run programs on the hosts.
        public: Go on where hosts have addresses that the whole internet can reach.
        security: A ``distributed.Security`` with the certificates for an address; None is Dask's own configuration.

    Raises:
        ConfigError: If an option is none of these, or the cluster is open to strangers.
        EnvironmentProblem: If no scheduler answers, it has no workers, or Dask is not installed.
    """
    refuse_no_ranks(ranks_per_host)
    if device not in DEVICES:
        raise ConfigError(f"device={device!r} is not known; use one of {', '.join(map(repr, DEVICES))}.")
    if threads_per_rank is not None and threads_per_rank < 1:
        raise ConfigError(f"threads_per_rank={threads_per_rank} leaves no thread to compute; use 1 or more, or None.")
    if scheduler is None:
        placed()
        return RanksWorld()
    options = Options(interface, insecure, public)
    client, _ = connected(scheduler, security)
    hosts_of(client, options)
    return ClusterWorld(client, ranks_per_host, device, threads_per_rank, options)
