"""Which addresses hosts may use for a run, and the network interface an address belongs to."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from labkit.errors import ConfigError


def host_of(address: str) -> str:
    """Return the host's part of a Dask address, such as ``10.0.0.5`` of ``tls://10.0.0.5:8786``.

    Raises:
        ConfigError: If it is not of the kind that hosts connect to.
    """
    scheme, _, rest = address.partition("://")
    if scheme not in ("tcp", "tls"):
        raise ConfigError(
            f"Ranks on several hosts cannot use the address {address}; use a cluster whose workers are processes, "
            "at tcp:// or tls:// addresses."
        )
    return rest.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Return whether an address never leaves its machine."""
    return ipaddress.ip_address(host).is_loopback


def refuse_open_doors(scheduler: str, hosts: list[str], *, insecure: bool, public: bool) -> None:
    """Raise where a run on these hosts would let strangers in that nobody asked for.

    Args:
        scheduler: The scheduler's address.
        hosts: Addresses of all hosts.
        insecure: Whether to go on without TLS.
        public: Whether to go on with addresses that the whole internet can reach.

    Raises:
        ConfigError: If the cluster has no TLS, or a host listens at a public address.
    """
    away = [host for host in hosts if not is_loopback(host)]
    if away and not scheduler.startswith("tls://") and not insecure:
        raise ConfigError(
            f"{scheduler} has no TLS, and its hosts are not this machine ({', '.join(away)}): anyone who can reach "
            "it can run programs there and read your data. Start scheduler and workers with certificates (--tls-cert, "
            "--tls-key, --tls-ca-file; the address then begins with tls://), or say insecure=True on a network that "
            "is yours alone."
        )
    seen = [host for host in hosts if ipaddress.ip_address(host).is_global]
    if seen and not public:
        raise ConfigError(
            f"{', '.join(seen)} can be reached from the whole internet, and what ranks send each other (gloo, NCCL, "
            "the store they meet at) has neither password nor encryption, with TLS or without. Use a private network "
            "(interface=), or say public=True where a firewall keeps others out."
        )


def what_stays_open(hosts: list[str], interface: str, *, tls: bool) -> str:
    """Return what a run leaves open on these hosts, in words; "" where nothing leaves the machine."""
    if all(map(is_loopback, hosts)):
        return ""
    door = "Dask and labkit's own connections are encrypted" if tls else "Nothing is encrypted (insecure=True)"
    where = f"interface {interface}" if interface else "the interface of each Dask worker's address"
    return (
        f"{door}; what ranks send each other (gloo, NCCL, the store) is open to whoever is on that network, and bound "
        f"to {where}."
    )


def interface_of(host: str) -> str:
    """Return the name of the network interface that has an address, "" where none does."""
    wanted = ipaddress.ip_address(host)
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family in (socket.AF_INET, socket.AF_INET6):
                text = each.address.partition("%")[0]
                if ipaddress.ip_address(text) == wanted:
                    return str(name)
    return "lo" if wanted.is_loopback else ""


def address_on(interface: str) -> str:
    """Return the IPv4 address of a network interface of this host.

    Raises:
        ConfigError: If there is no such interface, or it has none.
    """
    found = psutil.net_if_addrs()
    for each in found.get(interface, ()):
        if each.family == socket.AF_INET:
            return str(each.address)
    named = [name for name, each in found.items() if any(one.family == socket.AF_INET for one in each)]
    raise ConfigError(
        f"interface={interface!r} has no IPv4 address on {socket.gethostname()}; the interfaces that have one: "
        f"{', '.join(named) or 'none'}."
    )
