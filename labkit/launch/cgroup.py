"""How often the kernel's out-of-memory killer struck: in this process's memory control group, else on this host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OomCount:
    """A count that only grows, and who keeps it."""

    kills: int
    keeper: str


def oom_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> OomCount | None:
    """Return how many processes were killed for memory so far, or None where nothing says.

    Args:
        proc: Where the process file system is mounted.
        cgroups: Where control groups are mounted: version 2 itself, or version 1 with one folder per controller.
    """
    for file, keeper in _candidates(proc, cgroups):
        kills = _field(file, "oom_kill")
        if kills is not None:
            return OomCount(kills, keeper)
    return None


def _candidates(proc: Path, cgroups: Path) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            base = cgroups / "memory"
            found += [(d / "memory.oom_control", "the memory control group") for d in (base / path.lstrip("/"), base)]
        elif not controllers:
            for base in (cgroups, cgroups / "unified"):
                found += [(d / "memory.events", "the memory control group") for d in (base / path.lstrip("/"), base)]
    return [*found, (proc / "vmstat", "this host")]


def _field(file: Path, name: str) -> int | None:
    for line in _lines(file):
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
