"""The hosts of a cluster as the notebook holds them: an agent on each, and a link whose lease a thread renews."""

from __future__ import annotations

import atexit
import contextlib
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.launch.cluster import dask_hosts
from labkit.launch.cluster.agent import NOTEBOOK
from labkit.launch.cluster.clocks import FIRST, Clock
from labkit.launch.cluster.dask_hosts import Options
from labkit.launch.cluster.link import LOST, Link, connect
from labkit.launch.gpus import Gpus

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_TURN_SECONDS = 86_400.0


@dataclass(eq=False)
class Host:
    """A host with an agent.

    Attributes:
        name: What people call it.
        about: What its agent said of itself.
        link: To the agent.
        clock: How its clock compares with that of the first host, as of the last run.
    """

    name: str
    about: dict[str, Any]
    link: Link
    clock: Clock = FIRST

    @property
    def data_address(self) -> tuple[str, int]:
        """Return where the agent answers on the network that ranks use."""
        address, port = self.about["data"]
        return address, port


class Hosts:
    """All hosts of a cluster, from the first run until the notebook ends or one of them is lost."""

    def __init__(self, client: Any, options: Options) -> None:
        """Start an agent on every host that Dask knows, and connect to it.

        Raises:
            ConfigError: If hosts may not be used like this, or their software differs.
            EnvironmentProblem: If Dask has no workers, an agent does not start, or it cannot be reached.
        """
        self.options = options
        self.tls = client.scheduler.address.startswith("tls://")
        self.warned = False
        workers = dask_hosts.workers_of(client, options)
        agents, secret, self._staying = dask_hosts.start_agents(client, workers, options)
        context = dask_hosts.client_context(client)
        self.hosts: list[Host] = []
        self._gpus: list[Gpus] | None = None
        atexit.register(self.close)
        try:
            for agent in agents:
                self.hosts.append(Host(agent.host, agent.about, _called(agent, secret, context)))
        except BaseException:
            self.close()
            raise

    @property
    def whole(self) -> bool:
        """Whether every host can still be reached."""
        return bool(self.hosts) and not any(host.link.lost for host in self.hosts)

    def gpus(self) -> list[Gpus]:
        """Return the GPUs of each host that work; each was asked once."""
        if self._gpus is None:
            self._gpus = self.ask("gpus", lambda host: None, "gpus")
        return self._gpus

    def ask(self, kind: str, value: Callable[[Host], Any], answer: str, hosts: list[Host] | None = None) -> list[Any]:
        """Return what each host answers.

        Args:
            kind: Of the message.
            value: What each host is sent with it.
            answer: Kind of the message that is waited for.
            hosts: Which; None for all.

        Raises:
            EnvironmentProblem: If a host is lost, or says that it cannot.
        """
        asked = self.hosts if hosts is None else hosts
        for host in asked:
            host.link.send(kind, value(host))
        return [self._answer(host, answer, _TURN_SECONDS if kind == "turn" else _ANSWER_SECONDS) for host in asked]

    def _answer(self, host: Host, kind: str, seconds: float) -> Any:
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(host.link.arrived, selectors.EVENT_READ)
            while time.monotonic() < until:
                for got, value in host.link.take():
                    if got == kind:
                        return value
                    if got in ("problem", "leaving", LOST):
                        raise EnvironmentProblem(f"Host {host.name} cannot take part in this run: {value}.")
                selector.select(0.5)
        raise EnvironmentProblem(
            f"Host {host.name} did not answer within {seconds:g} s; check that it is up and its Dask worker runs."
        )

    def close(self) -> None:
        """Let every agent end, with whatever it runs."""
        atexit.unregister(self.close)
        hosts, self.hosts = self.hosts, []
        for host in hosts:
            host.link.send("bye")
        for host in hosts:
            host.link.close()
        with contextlib.suppress(Exception):  # the scheduler may be gone, and the tasks with it
            for future in self._staying:
                future.release()


def _called(agent: dask_hosts.Agent, secret: bytes, context: Any) -> Link:
    port = agent.about["port"]
    try:
        sock = connect(agent.address, port, secret, context, _CONNECT_SECONDS)
        sock.sendall(NOTEBOOK)
    except OSError as error:
        raise EnvironmentProblem(
            f"The agent on host {agent.host} listens at {agent.address}, port {port}, but cannot be reached from here "
            f"({error}). This notebook must reach every host directly: run it inside the cluster's network."
        ) from None
    return Link(sock)


_kept: dict[tuple[str, Options], Hosts] = {}


def hosts_of(client: Any, options: Options) -> Hosts:
    """Return the hosts of this client's cluster: those of the last run while all are there and none has joined."""
    key = (str(client.scheduler.address), options)
    kept = _kept.get(key)
    if kept is not None and kept.whole and len(kept.hosts) == len(dask_hosts.workers_of(client, options)):
        return kept
    close_hosts(client, options)
    _kept[key] = Hosts(client, options)
    return _kept[key]


def close_hosts(client: Any, options: Options) -> None:
    """End the agents on this client's hosts, where there are any."""
    kept = _kept.pop((str(client.scheduler.address), options), None)
    if kept is not None:
        kept.close()


def refuse_no_ranks(ranks_per_host: int | None) -> None:
    """Raise where a number of ranks is none."""
    if ranks_per_host is not None and not (type(ranks_per_host) is int and 1 <= ranks_per_host <= 512):
        raise ConfigError(f"ranks_per_host={ranks_per_host!r} is not possible; use a whole number from 1 to 512.")
