"""What must not leave a machine in a report: names of host, user and folders, addresses, serial numbers."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

_PATH = re.compile(r"(?<![\w.:/])(?:~|[A-Za-z]:)?(?:[/\\][^\s/\\:'\"<>|,;()\[\]]+)+[/\\]([^\s/\\:'\"<>|,;()\[\]]+)")
_ALONE = re.compile(r"(?<![\w./])/(?:home|root|Users|tmp|mnt|data|work|srv|opt|var)\b(?:/[^\s:'\"<>|,;()\[\]]*)?")
_SERIAL = re.compile(
    r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?:GPU|MIG)-[0-9a-f][0-9a-f-]{6,}",
    re.IGNORECASE,
)
_IPV4 = re.compile(r"\b(?!127\.0\.0\.1\b)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?=\b(?!\.\d))")
_IPV6_OR_MAC = re.compile(r"(?<![\w:.])(?:[0-9a-f]{1,4}:){3,7}(?::?[0-9a-f]{1,4})+(?![\w:])", re.IGNORECASE)
_SETTING = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*=\S+")
_COMMON = {
    "",
    "root",
    "user",
    "users",
    "localhost",
    "local",
    "linux",
    "ubuntu",
    "debian",
    "gpu",
    "cuda",
    "node",
    "host",
}
"""Names that say nothing of anybody, and stand in ordinary sentences."""


@cache
def _names() -> tuple[str, ...]:
    """Return the names of this host and its user, longest first."""
    found = {socket.gethostname(), socket.getfqdn(), Path.home().name, os.environ.get("HOSTNAME", "")}
    found |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "JUPYTERHUB_USER", "SLURM_JOB_USER")}
    try:
        found.add(getpass.getuser())
    except (OSError, KeyError, ImportError):
        pass  # no entry for this user: then there is no name to leave out
    found |= {name.split(".")[0] for name in found}
    return tuple(
        sorted((name for name in found if name.lower() not in _COMMON and len(name) > 1), key=len, reverse=True)
    )


def without_names(text: str, names: Iterable[str] | None = None) -> str:
    """Return the text without names of host and user, folders, addresses, serial numbers and settings.

    Args:
        text: Anything, such as an error's message.
        names: Names of the host and its user; None asks this machine.
    """
    text = _SETTING.sub(lambda found: found[0].split("=")[0] + "=...", text)
    text = _SERIAL.sub("SERIAL", text)
    text = _PATH.sub(lambda found: f".../{found[1]}", text)
    text = _ALONE.sub("...", text)
    text = _IPV6_OR_MAC.sub("ADDRESS", _IPV4.sub("ADDRESS", text))
    for name in _names() if names is None else names:
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "NAME", text, flags=re.IGNORECASE)
    return text


def cleaned(data: Any) -> Any:
    """Return plain data with every text in it cleaned; keys are ours."""
    if isinstance(data, str):
        return without_names(data)
    if isinstance(data, dict):
        return {key: cleaned(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [cleaned(value) for value in data]
    return data
