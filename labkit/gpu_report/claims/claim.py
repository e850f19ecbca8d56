"""A claim about labkit on GPUs: a sentence, and a function that raises where it does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from labkit.launch.rank import device
from labkit.worlds import LocalWorld, local


class DoesNotHold(AssertionError):
    """A claim does not hold; the message gives the numbers."""


@dataclass(frozen=True)
class Place:
    """Where claims are tried.

    Attributes:
        device: "cuda"; or "cpu" for a rehearsal, in which every rank stands for one with a GPU of its own.
        num_gpus: How many GPUs there are, or how many ranks stand for some.
    """

    device: Literal["cuda", "cpu"]
    num_gpus: int

    def ranks(self, count: int) -> LocalWorld:
        """Return a world of this many ranks."""
        return local(count, device=self.device)

    @property
    def backend(self) -> str:
        """What ranks that have a GPU each run on."""
        return "nccl/cuda" if self.device == "cuda" else "gloo/cpu"


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        words: The claim.
        check: Raises where it does not hold.
        num_gpus: How many GPUs it takes.
        cuda_only: Whether a rehearsal on the CPU cannot try it.
    """

    words: str
    check: Callable[[Place], None]
    num_gpus: int
    cuda_only: bool

    def problem(self, place: Place) -> str:
        """Return why this place cannot try it, "" where it can."""
        if self.cuda_only and place.device != "cuda":
            return "it is about CUDA"
        if place.num_gpus < self.num_gpus:
            return f"it needs {self.num_gpus} GPUs"
        return ""


CLAIMS: dict[str, Claim] = {}
"""Every claim by its function's name, in the order of their modules."""


def claim(
    num_gpus: int, words: str, *, cuda_only: bool = False
) -> Callable[[Callable[[Place], None]], Callable[[Place], None]]:
    """Return a decorator that lists a function as a claim."""

    def listed(check: Callable[[Place], None]) -> Callable[[Place], None]:
        CLAIMS[check.__name__] = Claim(words, check, num_gpus, cuda_only)
        return check

    return listed


def hold(condition: object, words: str) -> None:
    """Raise DoesNotHold with these words, which give the numbers, unless the condition is true."""
    if not condition:
        raise DoesNotHold(words)


def equal(found: object, wanted: object) -> None:
    """Raise DoesNotHold with both, unless they are equal."""
    hold(found == wanted, f"expected {wanted}, got {found}")


def finish() -> None:
    """Wait until this rank's device has done what it was given."""
    if device().type == "cuda":
        torch.cuda.synchronize()
