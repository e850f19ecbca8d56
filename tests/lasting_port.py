"""A port for a server that is started later, or again."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path


def lasting_port() -> int:
    """Return a port of 127.0.0.1 that is free and stays so: one the system gives nobody who asks for any."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(given.read_text().split()[0]) if given.exists() else 49152
    for port in random.sample(range(max(1024, lowest - 10_000), lowest), 100):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of 100 ports below {lowest} is free")
