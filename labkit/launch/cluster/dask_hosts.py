"""Hosts as Dask knows them: which there are, and an agent started on each."""

from __future__ import annotations

import secrets
import socket
import ssl
import uuid
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError, EnvironmentProblem
from labkit.launch.cluster.addresses import host_of, is_loopback, refuse_open_doors
from labkit.launch.cluster.start import start_agent, stay
from labkit.launch.cluster.versions import HERE, refuse_differences, versions
from labkit.launch.local import default_start_method

_ANSWER_SECONDS = 15
_START_SECONDS = 90


@dataclass(frozen=True)
class Options:
    """How a cluster is used.

    Attributes:
        interface: The network interface that ranks talk over, "" for that of each Dask worker's address.
        insecure: Whether to go on without TLS.
        public: Whether to go on with addresses that the whole internet can reach.
    """

    interface: str = ""
    insecure: bool = False
    public: bool = False


@dataclass(frozen=True)
class Agent:
    """An agent that has started.

    Attributes:
        host: The host's name in words for people; its address where names are not unique.
        address: Where it listens.
        about: What it said of itself.
    """

    host: str
    address: str
    about: dict[str, Any]


def connected(address_or_client: Any, security: Any) -> tuple[Any, bool]:
    """Return a Dask client, and whether it was made here.

    Raises:
        ConfigError: If it is neither an address nor a client.
        EnvironmentProblem: If Dask is not installed, or no scheduler answers.
    """
    distributed = _distributed()
    if isinstance(address_or_client, distributed.Client):
        if address_or_client.asynchronous:
            raise ConfigError("labkit.cluster() needs a blocking Dask client; make it without asynchronous=True.")
        return address_or_client, False
    if not isinstance(address_or_client, str) or "://" not in address_or_client:
        raise ConfigError(
            f"{address_or_client!r} is neither a Dask scheduler's address nor a Dask client; write "
            'labkit.cluster("tls://HOST:8786"), or give a distributed.Client.'
        )
    host, port = host_of(address_or_client), address_or_client.rpartition(":")[2]
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()  # Client waits long for what is not there
        return distributed.Client(address_or_client, security=security, timeout=_ANSWER_SECONDS, name="labkit"), True
    except (OSError, ValueError, TypeError, MemoryError) as error:  # MemoryError: other words, read as a length
        raise EnvironmentProblem(
            f"No Dask scheduler answers at {address_or_client} ({type(error).__name__}: {error}). Start one with "
            "`dask scheduler`, and `dask worker ADDRESS` on every host."
        ) from None


def workers_of(client: Any, options: Options) -> list[str]:
    """Return the address of one Dask worker for each host, in a fixed order.

    A host is an IP address; on loopback every worker stands for a host, so that one machine can play several.

    Raises:
        ConfigError: If the hosts may not be used like this (see refuse_open_doors).
        EnvironmentProblem: If there is no worker.
    """
    try:
        client.wait_for_workers(1, timeout=_ANSWER_SECONDS)
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    except (TimeoutError, OSError):
        workers = []
    scheduler = client.scheduler.address
    if not workers:
        raise EnvironmentProblem(
            f"No worker has joined the Dask cluster at {scheduler}; start one on every host: `dask worker {scheduler}`."
        )
    by_host: dict[str, str] = {}
    for worker in workers:
        host = host_of(worker)
        by_host.setdefault(worker if is_loopback(host) else host, worker)
    chosen = [by_host[key] for key in sorted(by_host)]
    refuse_open_doors(scheduler, [host_of(each) for each in chosen], insecure=options.insecure, public=options.public)
    return chosen


def start_agents(client: Any, workers: list[str], options: Options) -> tuple[list[Agent], bytes, list[Any]]:
    """Return an agent on each worker's host, their secret, and the Dask tasks that stay with them.

    Raises:
        ConfigError: If the hosts' software differs.
        EnvironmentProblem: If an agent does not start.
    """
    distributed = _distributed()
    secret, names = secrets.token_bytes(32), [f"labkit-agent-{uuid.uuid4().hex[:12]}" for _ in workers]
    settings = {"secret": secret.hex(), "interface": options.interface, "tls": _tls(client)}
    alone = {"allow_other_workers": False, "retries": 0, "pure": False}
    starting = []
    for number, (name, worker) in enumerate(zip(names, workers, strict=True)):
        told = settings | {"address": host_of(worker), "name": _given_name(client, worker), "first": number == 0}
        starting.append(client.submit(start_agent, name, told, workers=[worker], key=f"{name}-start", **alone))
    found: dict[str, dict[str, Any]] = {}
    for worker, future in zip(workers, starting, strict=True):
        try:
            found[worker] = future.result(timeout=_START_SECONDS)
        except (ImportError, AttributeError) as error:
            raise EnvironmentProblem(
                f"The Dask worker {worker} cannot load labkit ({error}); install the same version of labkit there as "
                "here."
            ) from None
        except (TimeoutError, OSError, distributed.CancelledError, distributed.KilledWorker) as error:
            raise EnvironmentProblem(
                f"No agent started on the Dask worker {worker} ({type(error).__name__}: {error}). Does it "
                "still run, and is one of its threads free?"
            ) from None
    staying = [
        client.submit(stay, name, workers=[worker], key=f"{name}-stay", **alone)
        for name, worker in zip(names, workers, strict=True)
        if "problem" not in found[worker]
    ]
    for worker, about in found.items():
        if "problem" in about:
            raise EnvironmentProblem(f"On the host of the Dask worker {worker}: {about['problem']}")
    labels = _labels([(about["name"], worker) for worker, about in found.items()])
    refuse_differences({label: each["versions"] for label, each in zip(labels, found.values(), strict=True)} | _here())
    agents = [Agent(label, host_of(w), about) for label, (w, about) in zip(labels, found.items(), strict=True)]
    return agents, secret, staying


def client_context(client: Any) -> ssl.SSLContext | None:
    """Return the TLS context this notebook calls agents with, None where the cluster has no TLS."""
    if not _tls(client):
        return None
    context = client.security.get_connection_args("client")["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return context


def _here() -> dict[str, dict[str, str]]:
    return {HERE: versions()}


def _tls(client: Any) -> bool:
    return bool(client.scheduler.address.startswith("tls://"))


def _given_name(client: Any, worker: str) -> str:
    """Return the name somebody gave the worker, "" where it has Dask's own: its address or a number."""
    name = client.scheduler_info(n_workers=-1)["workers"].get(worker, {}).get("name", "")
    return name if isinstance(name, str) and name != worker and not name.isdigit() else ""


def _labels(named: list[tuple[str, str]]) -> list[str]:
    """Return what to call each host: its name, and its address beside it where others have the same name."""
    names = [name for name, _ in named]
    return [name if names.count(name) == 1 else f"{name} ({worker.partition('://')[2]})" for name, worker in named]


def _distributed() -> Any:
    if default_start_method() != "zygote":
        raise EnvironmentProblem("labkit.cluster() needs Linux, here and on the hosts.")
    try:
        import distributed
    except ModuleNotFoundError:
        raise EnvironmentProblem(
            "labkit.cluster() finds hosts through Dask, which is not installed here: pip install 'labkit-torch[dask]'"
        ) from None
    return distributed
