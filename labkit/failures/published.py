"""What clusters reported of their failures: counts and times with their sources, and failures drawn from them."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from importlib.resources import files

from labkit.errors import ConfigError
from labkit.failures.records import Cut, Failure, Hang, Kill, PowerCut

_DAY_S = 86_400


@dataclass(frozen=True)
class Published:
    """Interruptions of a cluster over a time.

    Attributes:
        name: What :func:`replay` calls it.
        interruptions: How many there were that nobody planned.
        num_gpus: On how many GPUs.
        days: In how many days.
        causes: Cause -> how many of them; empty where they are not told.
        source: Where it was read.
    """

    name: str
    interruptions: int
    num_gpus: int
    days: float
    causes: dict[str, int]
    source: str

    @property
    def mean_s(self) -> float:
        """Seconds from one interruption to the next, on all GPUs together."""
        return self.days * _DAY_S / self.interruptions

    @property
    def mean_gpu_s(self) -> float:
        """Seconds from one interruption of a GPU to its next."""
        return self.mean_s * self.num_gpus


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of published figures: "llama3_54_days", "failure_rates" or "byterobust_incidents".

    Raises:
        ConfigError: If there is no such table.
    """
    folder = files("labkit.failures") / "data"
    found = folder / f"{name}.csv"
    if not found.is_file():
        names = sorted(each.name.removesuffix(".csv") for each in folder.iterdir() if each.name.endswith(".csv"))
        raise ConfigError(f"There is no table {name!r} of published failures; there are {', '.join(names)}.")
    return list(csv.DictReader(found.read_text(encoding="utf-8").splitlines()))


def published(name: str) -> Published:
    """Return the interruptions that a cluster reported: "llama3_54_days", "byterobust_10_days" or "opt_175b".

    Raises:
        ConfigError: If nothing is known under this name.
    """
    if name == "llama3_54_days":
        causes = {row["component"]: int(row["interruptions"]) for row in rows(name)}
        return Published(name, sum(causes.values()), 16_384, 54, causes, "Llama 3 (arXiv 2407.21783), table 5")
    if name == "byterobust_10_days":
        return Published(name, 28, 1_000, 10, {}, "ByteRobust (arXiv 2509.16293), section 2.1")
    if name == "opt_175b":
        return Published(name, 40, 992, 16, {}, "OPT-175B chronicles: 40+ restarts from 17 November to 3 December 2021")
    raise ConfigError(
        f"No cluster reported under the name {name!r}; there are llama3_54_days, byterobust_10_days and opt_175b."
    )


def replay(
    name: str, *, num_ranks: int, seconds: float, times: float = 1.0, gpus_per_node: int = 8, seed: int = 0
) -> list[Failure]:
    """Return failures at times drawn from what a cluster reported, for ``labkit.virtual(num_ranks, failures=...)``.

    A GPU that fails kills its rank, a switch or a cable cuts the link to the next rank, a timeout of NCCL's is a rank
    that hangs, and what takes a host takes a node's power. Times between failures are exponential.

    Args:
        name: As :func:`published` takes it.
        num_ranks: Ranks of the world, a GPU each.
        seconds: Length of the run.
        times: How many times more often than reported: eight GPUs for an hour meet nothing.
        gpus_per_node: GPUs of a node.
        seed: Seed of what is drawn.

    Raises:
        ConfigError: If nothing is known under this name, or a number cannot be.
    """
    if not (num_ranks >= 1 and seconds > 0 and times > 0):
        raise ConfigError(f"num_ranks={num_ranks}, seconds={seconds}, times={times}: all three must be above 0.")
    of, draw = published(name), random.Random(f"{name} {seed}")
    kinds, found, at_s = _kinds(name), list[Failure](), 0.0
    while True:
        at_s += draw.expovariate(num_ranks * times / of.mean_gpu_s)
        if at_s >= seconds:
            return found
        rank = draw.randrange(num_ranks)
        cause = draw.choices(list(kinds), weights=list(kinds.values()))[0]
        if cause == "Network" and num_ranks > 1:
            found.append(Cut(rank, (rank + 1) % num_ranks, at_s=at_s))
        elif cause == "Unknown":
            found.append(Hang(rank, at_s=at_s))
        elif cause in ("Host", "Unplanned Maintenance"):
            found.append(PowerCut(node=rank // gpus_per_node, at_s=at_s))
        else:
            found.append(Kill(rank, at_s=at_s))


def _kinds(name: str) -> dict[str, int]:
    """Return category of a cause -> how many; where a cluster told none, those of Llama 3."""
    counts: dict[str, int] = {}
    for row in rows("llama3_54_days"):
        counts[row["category"]] = counts.get(row["category"], 0) + int(row["interruptions"])
    return counts
