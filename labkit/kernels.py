"""Costs that are stated by name: kernels that no dispatcher sees, and operators of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.errors import ConfigError

Work = Callable[..., float] | float


@dataclass(frozen=True)
class StatedKernel:
    """What a kernel costs on virtual ranks.

    Attributes:
        name: "module.function", "library::operator" or "triton:kernel".
        flops: Floating-point operations of a call, or what returns them for its arguments.
        bytes: Bytes that a call reads and writes, or what returns them; None for those of its tensors.
        instead: What computes a function's result.
        backward: How many times the work of the forward pass the backward pass is.
    """

    name: str
    flops: Work
    bytes: Work | None
    instead: Callable[..., Any] | None
    backward: float

    @property
    def is_function(self) -> bool:
        """Whether it stands in the place of a function of Python's."""
        return "::" not in self.name and not self.name.startswith("triton:")

    def work(self, args: Any, kwargs: Any, num_bytes: int) -> tuple[int, int]:
        """Return the floating-point operations of a call and the bytes it moves.

        Args:
            args: The call's arguments.
            kwargs: Its keyword arguments.
            num_bytes: Bytes of the tensors it was given and made.

        Raises:
            ConfigError: If what was stated cannot be computed for this call, or is no amount.
        """
        moved = num_bytes if self.bytes is None else self._amount("bytes", self.bytes, args, kwargs)
        return self._amount("flops", self.flops, args, kwargs), moved

    def _amount(self, word: str, work: Work, args: Any, kwargs: Any) -> int:
        if callable(work):
            try:
                work = work(*args, **kwargs)
            except Exception as error:
                raise ConfigError(
                    f"The cost of {self.name} could not be computed: {word}= was called with the arguments of the "
                    f"call, and raised {type(error).__name__}: {error}."
                ) from error
        if isinstance(work, bool) or not isinstance(work, int | float) or not 0 <= work < float("inf"):
            raise ConfigError(f"{word}= of {self.name} gave {work!r}; it must be an amount of at least 0.")
        return int(work)


def unpriced(name: str) -> str:
    """Return the sentence about an operator whose cost nobody stated."""
    return (
        f"{name}: nobody stated its arithmetic, so it takes the time of the bytes it reads and writes. "
        f'labkit.hardware.kernel("{name}", flops=...) states it.'
    )


STATED: dict[str, StatedKernel] = {}
"""Name -> what was stated of it."""


def kernel(
    name: str,
    *,
    flops: Work,
    bytes: Work | None = None,
    instead: Callable[..., Any] | None = None,
    backward: float = 2.0,
) -> None:
    """State what a kernel costs on virtual ranks; what is stated later of the same name counts.

    Ranks price what PyTorch dispatches. They cannot see into a function that launches kernels of its own, and they do
    not know the arithmetic of another library's operators.

    Args:
        name: ``"flash_attn.flash_attn_func"`` for a function: ranks that import it get one that computes ``instead``,
            for nothing, and takes the stated time. The library need not be installed. ``"library::operator"`` for an
            operator made with ``torch.library``, which computes what it computes. ``"triton:add_kernel"`` for a kernel
            of Triton's: in runs with shapes only a launch computes nothing and takes the stated time.
        flops: Floating-point operations of a call: a number, or a function of the call's arguments.
        bytes: Bytes that a call reads and writes, in the same way; left out, those of its tensors.
        instead: For a function, what computes the same with PyTorch's operators. Gradients come from it, too.
        backward: For a function, the work of the backward pass as a multiple of the forward pass.

    Raises:
        ConfigError: If the name is of none of these forms, or ``instead`` is missing or has no use.
    """
    stated = StatedKernel(name, flops, bytes, instead, backward)
    parts = name.removeprefix("triton:").replace("::", ".").split(".")
    if not all(part.isidentifier() for part in parts) or (stated.is_function and len(parts) < 2):
        raise ConfigError(
            f'"{name}" names no kernel; write "module.function", "library::operator" or "triton:kernel", as in '
            '"flash_attn.flash_attn_func".'
        )
    if stated.is_function and instead is None:
        raise ConfigError(f"{name} is a function: instead= must say what computes its result on virtual ranks.")
    if instead is not None and not stated.is_function:
        raise ConfigError(f"{name} computes its result itself; leave out instead=.")
    STATED[name] = stated
