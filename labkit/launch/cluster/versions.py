"""What must be the same on all hosts of a run, and what is said where it is not."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

import labkit
from labkit.errors import ConfigError

_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
HERE = "this notebook"


def versions() -> dict[str, str]:
    """Return the versions that matter, read without loading torch."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "labkit": labkit.__version__,
        "torch": _version("torch"),
        "NCCL": next((found for name in _NCCL if (found := _version(name))), ""),
    }


def refuse_differences(by_host: Mapping[str, Mapping[str, str]]) -> None:
    """Raise where hosts, or hosts and notebook, could not run one program together.

    The notebook itself may have another build of the same torch, such as the one without CUDA, and no NCCL.

    Args:
        by_host: versions() of each host, and of the notebook under HERE.

    Raises:
        ConfigError: If anything differs; the message has every version.
    """
    told = []
    for name in ("Python", "labkit", "torch", "NCCL"):
        found = {host: about[name] for host, about in by_host.items() if host != HERE}
        if HERE in by_host and name != "NCCL":
            found[HERE] = by_host[HERE][name]
        alike = {host: version.partition("+")[0] if name == "torch" else version for host, version in found.items()}
        builds = {version for host, version in found.items() if host != HERE}
        if len(set(alike.values())) > 1 or len(builds) > 1:
            told.append(f"{name}: " + ", ".join(f"{version or 'none'} ({host})" for host, version in found.items()))
    if told:
        raise ConfigError(
            "The hosts of this cluster do not have the same software, so a run could fail in confusing ways. "
            + "; ".join(told)
            + ". Install the same versions everywhere."
        )


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
