"""Failures to inject into a run: what breaks, and when: at a time, or at an event of a rank."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import ClassVar, Literal

from labkit.errors import ConfigError

FILE_OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "truncate", "link")
"""What changes a disk, or what a power cut leaves of it: "open" is one that makes or empties a file."""
KEEPS: tuple[Literal["nothing", "names", "torn"], ...] = ("nothing", "names", "torn")
"""What a power cut may leave of what was not synced."""


@dataclass(frozen=True, repr=False)
class Failure:
    """Something that breaks, when the first of these comes: exactly one of at_s, step, call and file is given.

    Attributes:
        at_s: Seconds of virtual time since the run began.
        step: As the rank begins its step-th ``optimizer.step()``, counted from 1.
        call: As the rank makes its call-th collective, message or remote call, from 1: the others wait for it.
        file: As the rank makes its file-th file operation, from 1: what came before has happened, it has not.
        op: Counts only this operation: c10d's word for a call ("all_reduce"), or one of "open", "write", "fsync",
            "replace", "unlink", "mkdir", "rmdir", "truncate", "link" for a file operation.
        path: Counts only file operations on names that match, such as "*.pt".
        attempt: In which attempt it happens, 0 for the first; steps and calls are counted anew in each.
    """

    name: ClassVar[str] = "failure"

    at_s: float | None = field(default=None, kw_only=True)
    step: int | None = field(default=None, kw_only=True)
    call: int | None = field(default=None, kw_only=True)
    file: int | None = field(default=None, kw_only=True)
    op: str = field(default="", kw_only=True)
    path: str = field(default="", kw_only=True)
    attempt: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If it has no moment, or more than one, or a number that counts nothing.
        """
        given = {word: value for word in ("at_s", "step", "call", "file") if (value := getattr(self, word)) is not None}
        if len(given) != 1:
            raise ConfigError(
                f"{self!r} has {len(given)} moments; give it one of at_s=, step=, call= and file=: step=100."
            )
        word, value = next(iter(given.items()))
        if word == "at_s":
            if not (value >= 0 and math.isfinite(value)):
                raise ConfigError(f"at_s={value} is no time of a run; use seconds from 0 on.")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{word}={value!r} counts nothing; the first is 1.")
        if self.op and word not in ("call", "file"):
            raise ConfigError(f"op={self.op!r} says what is counted by call= or file=; leave it out beside {word}=.")
        if word == "file" and self.op and self.op not in FILE_OPERATIONS:
            raise ConfigError(f"op={self.op!r} is no file operation; use one of {', '.join(FILE_OPERATIONS)}.")
        if self.path and word != "file":
            raise ConfigError(f"path={self.path!r} says which file operations are counted; it goes with file=.")

    def __repr__(self) -> str:
        shown = (
            f"{one.name}={value!r}" if one.kw_only or one.default is not MISSING else repr(value)
            for one in sorted(fields(self), key=lambda one: bool(one.kw_only))
            if (value := getattr(self, one.name)) != one.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def when(self) -> str:
        """When, in words: "as step 100 begins"."""
        if self.at_s is not None:
            return f"at {self.at_s:g} s"
        if self.step is not None:
            return f"as step {self.step} begins"
        of = f" {self.op}" if self.op else (" call" if self.call is not None else " file operation")
        on = f" of {self.path}" if self.path else ""
        return f"at{of} {self.call or self.file}{on}"

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks it names."""
        return ()

    @property
    def of(self) -> int | None:
        """The rank whose event it comes at, None where that follows from the cluster."""
        return self.ranks[0] if self.ranks else None

    def at_rank(self, rank: int) -> Failure:
        """Return the same at an event of this rank."""
        return replace(self, rank=rank)  # type: ignore[call-arg]


@dataclass(frozen=True, repr=False)
class _OfRank(Failure):
    """What befalls a rank.

    Attributes:
        rank: Which.
    """

    rank: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank."""
        return (self.rank,)


@dataclass(frozen=True, repr=False)
class Kill(_OfRank):
    """The process of a rank ends there, as by SIGKILL: no ``finally`` and no ``except`` of it runs any more."""

    name = "killed"


@dataclass(frozen=True, repr=False)
class Hang(_OfRank):
    """The process of a rank stands still for ever, as by SIGSTOP: it is there, and does nothing."""

    name = "hangs"


@dataclass(frozen=True, repr=False)
class Slow(_OfRank):
    """A rank computes so many times slower from then on.

    Attributes:
        factor: How many times.
    """

    name = "slow"
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If it has no moment, or makes nothing slower.
        """
        super().__post_init__()
        if not (self.factor >= 1 and math.isfinite(self.factor)):
            raise ConfigError(f"factor={self.factor} makes nothing slower; use 1 or more.")


@dataclass(frozen=True, repr=False)
class Pause(_OfRank):
    """A rank stands still for a while and goes on, as in a collection of garbage, or where a disk is slow to answer.

    Attributes:
        seconds: For how long.
        times: At so many events: the one that is named, and those that follow it.
    """

    name = "paused"
    seconds: float = 1.0
    times: int = 1

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If it has no moment, or takes no time.
        """
        super().__post_init__()
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise ConfigError(f"seconds={self.seconds} is no pause; use a number above 0.")
        if isinstance(self.times, bool) or not isinstance(self.times, int) or self.times < 1:
            raise ConfigError(f"times={self.times!r} counts nothing; use 1 or more.")
        if self.at_s is not None and self.times > 1:
            raise ConfigError("times= counts events; give call=, step= or file= with it, not at_s=.")


@dataclass(frozen=True, repr=False)
class Cut(_OfRank):
    """Nothing gets from a rank to another any more, nor back; what needs that link waits until somebody's time is up.

    Attributes:
        other: The rank at the other end.
    """

    name = "link cut"
    other: int

    @property
    def ranks(self) -> tuple[int, ...]:
        """Both ends."""
        return (self.rank, self.other)


@dataclass(frozen=True, repr=False)
class Flip(_OfRank):
    """One bit of a tensor of a rank turns over, and nothing says so.

    Attributes:
        bit: Which of the element's bits, from 0, the least.
        element: Which element.
        where: "memory": of what the rank gives to the call, or of its first parameter at a step; "wire": of what the
            rank alone gets from the call.
    """

    name = "bit flipped"
    bit: int = 0
    element: int = 0
    where: Literal["memory", "wire"] = "memory"

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If it has no moment, or one at which there is no tensor.
        """
        super().__post_init__()
        if self.where not in ("memory", "wire"):
            raise ConfigError(f'where={self.where!r} is no place of a bit; use "memory" or "wire".')
        if self.call is None and (self.step is None or self.where == "wire"):
            raise ConfigError(
                f"A bit flips in a tensor: give call=, or step= for a parameter in memory; got {self.when}, "
                f"where={self.where!r}."
            )
        if self.bit < 0 or self.element < 0:
            raise ConfigError(f"bit={self.bit}, element={self.element}: both are counted from 0.")


@dataclass(frozen=True, repr=False)
class _OfNode(Failure):
    """What befalls a node.

    Attributes:
        node: Which.
        rank: The rank whose event it comes at; None for the node's first.
    """

    node: int = 0
    rank: int | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank whose event it comes at."""
        return () if self.rank is None else (self.rank,)


@dataclass(frozen=True, repr=False)
class Full(_OfNode):
    """The disk of a node is full: from then on a write raises OSError, "No space left on device"."""

    name = "disk full"


@dataclass(frozen=True, repr=False)
class PowerCut(_OfNode):
    """A node loses its power: its ranks end, and of their files only what was synced is left.

    Attributes:
        keeps: What is left of what was not synced: "nothing", or "names": entries of folders reached the disk, and the
            contents of files did not, so that a file may be there and be empty; or "torn": names, and files
            of which the middle third did not reach the disk. All three happen.
    """

    name = "power cut"
    keeps: Literal["nothing", "names", "torn"] = "nothing"

    def __post_init__(self) -> None:
        """Check that it can be.

        Raises:
            ConfigError: If it has no moment, or keeps something else.
        """
        super().__post_init__()
        if self.keeps not in KEEPS:
            raise ConfigError(f"keeps={self.keeps!r} is nothing a power cut leaves; use one of {', '.join(KEEPS)}.")


def check(failures: tuple[Failure, ...], world_size: int, num_nodes: int) -> None:
    """Check that these can be injected into a world.

    Raises:
        ConfigError: If one names a rank or a node that is not there, or is no failure.
    """
    for one in failures:
        if not isinstance(one, Failure):
            raise ConfigError(
                f"failures= got {one!r}; use records of labkit.failures, such as Kill(3, step=100), in a list."
            )
        for rank in one.ranks:
            if isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < world_size:
                raise ConfigError(f"{one!r} names rank {rank!r}; the ranks are 0 to {world_size - 1}.")
        if isinstance(one, _OfNode) and not 0 <= one.node < num_nodes:
            raise ConfigError(f"{one!r} names node {one.node}; the nodes are 0 to {num_nodes - 1}.")
        if isinstance(one, Cut) and one.rank == one.other:
            raise ConfigError(f"{one!r} cuts rank {one.rank} off from itself; name two ranks.")
