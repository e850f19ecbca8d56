"""One run on the hosts of a cluster, from a function to its results or its error."""

from __future__ import annotations

import os
import sys
import time

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.launch.cluster.addresses import what_stays_open
from labkit.launch.cluster.agent_run import HostOrder
from labkit.launch.cluster.hosts import Host, Hosts
from labkit.launch.cluster.remote_ranks import RemoteRanks
from labkit.launch.devices import Placement, place
from labkit.launch.gpus import Gpus
from labkit.launch.job import notebook_sources, pack_call
from labkit.launch.local import Order, Outcome, supervised


def launch_on_hosts(
    order: Order, hosts: Hosts, ranks_per_host: int | None, device: str, threads_per_rank: int | None
) -> tuple[Outcome, Placement]:
    """Return what came of the order on these hosts, and where its ranks were.

    Args:
        order: What to run.
        hosts: Where.
        ranks_per_host: How many ranks each host runs; None for one on each GPU, or one where no GPU is used.
        device: "auto", "cpu" or "cuda".
        threads_per_rank: CPU threads of each rank, None for an equal share of its host's cores.

    Raises:
        ConfigError: If the function, an argument or a result cannot travel.
        EnvironmentProblem: If a host cannot take part.
        HostLost: If a host no longer answers.
        RankFailed: If a rank failed.
        RunTimeout: If the time limit passed, or no rank could go on.
    """
    began = time.monotonic()
    call = pack_call(order.function, order.args)
    placement = place_on_hosts(hosts, ranks_per_host, device)
    per_host = len(placement.devices)
    show = print if order.echo else None
    if show is not None and placement.note:
        show(f"[labkit] {placement.note}")
    if show is not None and not hosts.warned:
        addresses = [host.data_address[0] for host in hosts.hosts]
        words = what_stays_open(addresses, hosts.options.interface, tls=hosts.tls)
        if words:
            show(f"[labkit] {words}")
    hosts.warned = True
    uses_gpus = placement.devices[0].startswith("cuda")
    try:
        gpus = _turns(hosts, per_host) if uses_gpus else [()] * len(hosts.hosts)
        master = _prepared(hosts)
    except (EnvironmentProblem, KeyboardInterrupt):
        hosts.close()
        raise
    shared = notebook_sources()
    orders = [
        HostOrder(
            call=call,
            sources=shared,
            world_size=per_host * len(hosts.hosts),
            first_rank=per_host * number,
            group_rank=number,
            num_hosts=len(hosts.hosts),
            backend=placement.backend,
            devices=placement.devices,
            gpus=gpus[number],
            threads_per_rank=threads_per_rank,
            seed=order.seed,
            init=order.init,
            master=master,
            cwd=os.getcwd(),  # noqa: PTH109  # it travels as text
            sys_path=tuple(sys.path),
        )
        for number in range(len(hosts.hosts))
    ]
    ranks = RemoteRanks(hosts.hosts, orders)
    results, output, timeline = supervised(order, ranks, b"", per_host * len(hosts.hosts), show)
    return Outcome(results, output, timeline, time.monotonic() - began), placement


def place_on_hosts(hosts: Hosts, ranks_per_host: int | None, device: str) -> Placement:
    """Return where each host's ranks live: alike on all, so that they have one backend.

    Raises:
        ConfigError: If CUDA is asked for and a host has no GPU that works.
    """
    if device == "cpu":
        return place(ranks_per_host or 1, "cpu", Gpus())
    found = hosts.gpus()
    names = [host.name for host in hosts.hosts]
    num_each = [len(each.usable) for each in found]
    seen = [name for each in found for name in each.names]
    shared = len(set(seen)) < len(seen)
    if device == "auto" and (min(num_each) == 0 or shared):
        counts = ", ".join(f"{name} {count}" for name, count in zip(names, num_each, strict=True))
        here = place(ranks_per_host or 1, "cpu", found[0])
        if max(num_each) == 0:
            return here
        why = "some hosts are one machine and have the same GPUs" if shared else "not every host has a GPU that works"
        return Placement(here.backend, here.devices, f"{why} ({counts}): all ranks run on the CPU.")
    if device == "cuda" and shared:
        raise ConfigError(
            'device="cuda" was asked for, but several hosts of this cluster are the same machine and share its GPUs; '
            "start one Dask worker on each machine."
        )
    wanted = ranks_per_host or max(1, min(num_each))
    placements = [place(wanted, device, each) for each in found]
    if len({(each.backend, each.devices) for each in placements}) == 1:
        return placements[0]
    least = min(range(len(found)), key=lambda number: num_each[number])
    here = placements[least]
    note = f"host {names[least]} has the fewest GPUs ({num_each[least]}), so every host uses as many. {here.note}"
    return Placement("gloo" if any(each.backend == "gloo" for each in placements) else here.backend, here.devices, note)


def _turns(hosts: Hosts, per_host: int) -> list[tuple[str, ...]]:
    """Wait for a turn on each host's GPUs, host by host in their order: two notebooks cannot wait for each other."""
    taken: list[tuple[str, ...]] = []
    for host, gpus in zip(hosts.hosts, hosts.gpus(), strict=True):
        wanted = (gpus.names, min(per_host, len(gpus.usable)))
        taken += hosts.ask("turn", lambda _, wanted=wanted: wanted, "turned", [host])  # type: ignore[misc]
    return taken


def _prepared(hosts: Hosts) -> tuple[str, int]:
    """Let every host compare clocks with the first, and that one host the store; return where."""
    first = hosts.hosts[0]

    def asked(host: Host) -> tuple[str, int] | None:
        return None if host is first else first.data_address

    answers = hosts.ask("prepare", asked, "prepared")
    for host, (clock, _) in zip(hosts.hosts, answers, strict=True):
        host.clock = clock
    return first.data_address[0], answers[0][1]
