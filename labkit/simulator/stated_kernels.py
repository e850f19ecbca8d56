"""Functions and Triton kernels with a stated cost, in the place of those that would launch kernels of their own."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import ModuleType
from typing import Any

import torch

from labkit.kernels import STATED, StatedKernel
from labkit.simulator.roofline import bytes_of
from labkit.simulator.state import VirtualRank, current_rank
from labkit.simulator.storages import tensors_in
from labkit.torch_port.operators import uncounted

_Tensor: Any = torch.Tensor


def _unpriced_triton(name: str) -> str:
    return (
        f"The Triton kernel {name} took no time and computed nothing. "
        f'labkit.hardware.kernel("triton:{name}", flops=..., bytes=...) states what it costs.'
    )


class _Priced(torch.autograd.Function):
    """A call whose result comes from what computes it instead, and whose passes take the stated time."""

    @staticmethod
    def forward(ctx: Any, kernel: StatedKernel, call: _Call, *tensors: torch.Tensor) -> Any:
        ctx.kernel, ctx.inner = kernel, [one.detach().requires_grad_(one.requires_grad) for one in tensors]
        with torch.enable_grad():
            ctx.made = call.carry_out(ctx.inner)
        ctx.work = call.charge()
        return tuple(one.detach() for one in ctx.made)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        rank = current_rank()
        pairs = [(one, grad) for one, grad in zip(ctx.made, grads, strict=True) if one.requires_grad]
        wanted = [one for one in ctx.inner if one.requires_grad]
        with uncounted():
            made, given = [one for one, _ in pairs], [grad for _, grad in pairs]
            found = iter(torch.autograd.grad(made, wanted, given, allow_unused=True))
        out = [next(found) if one.requires_grad else None for one in ctx.inner]
        yielded = [one for one in out if one is not None]
        if rank is not None and _settle(rank, yielded, given):
            flops, num_bytes = (int(amount * ctx.kernel.backward) for amount in ctx.work)
            rank.roofline.stated(f"{_short(ctx.kernel)}_backward", flops, num_bytes, given, yielded)
        return None, None, *out


class _Call:
    """One call of a function with a stated cost."""

    def __init__(self, kernel: StatedKernel, rank: VirtualRank, args: Any, kwargs: Any) -> None:
        self.kernel, self.rank, self.args, self.kwargs = kernel, rank, args, kwargs
        self.given = list(tensors_in((args, kwargs)))
        self.result: Any = None

    def carry_out(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Compute the result from these tensors in the place of those given, and return the tensors in it."""
        assert self.kernel.instead is not None
        of = iter(tensors)
        args, kwargs = _filled((self.args, self.kwargs), lambda _: next(of))
        with uncounted():
            self.result = self.kernel.instead(*args, **kwargs)
        return list(tensors_in((self.result,)))

    def charge(self) -> tuple[int, int]:
        """Let the stated time pass, and return the operations and bytes it is for."""
        made = list(tensors_in((self.result,)))
        flops, num_bytes = self.kernel.work(self.args, self.kwargs, bytes_of([*self.given, *made]))
        if _settle(self.rank, made, self.given):
            self.rank.roofline.stated(_short(self.kernel), flops, num_bytes, self.given, made)
        return flops, num_bytes


def _short(kernel: StatedKernel) -> str:
    return kernel.name.rpartition(".")[2].removeprefix("triton:")


def _settle(rank: VirtualRank, made: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
    """Put what was made where what was given is, and return whether that is a device."""
    accelerator = rank.process.accelerator
    if accelerator is None:
        return True
    on_device = any(map(accelerator.is_on, given))
    for one in made if on_device else ():
        accelerator.put(one)
    return on_device


def _filled(value: Any, fill: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a copy of lists, tuples and dicts with every tensor in them replaced."""
    if isinstance(value, torch.Tensor):
        return fill(value)
    if isinstance(value, list | tuple):
        filled = [_filled(one, fill) for one in value]
        return type(value)(*filled) if hasattr(value, "_fields") else type(value)(filled)
    if isinstance(value, dict):
        return {name: _filled(one, fill) for name, one in value.items()}
    return value


def _standing_for(kernel: StatedKernel, real: Any) -> Callable[..., Any]:
    def stated(*args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        if rank is None:
            if real is None:
                raise RuntimeError(f"{kernel.name} is not installed here; it has a stated cost on virtual ranks only.")
            return real(*args, **kwargs)
        call = _Call(kernel, rank, args, kwargs)
        if not torch.is_grad_enabled() or not any(one.requires_grad for one in call.given):
            call.carry_out(call.given)
            call.charge()
            return call.result
        apply: Any = _Priced.apply
        outs = iter(apply(kernel, call, *call.given))
        return _filled(call.result, lambda _: next(outs))

    stated.__name__ = stated.__qualname__ = _short(kernel)
    return stated


@contextmanager
def installed() -> Iterator[None]:
    """Let ranks find functions with a stated cost under their names; leave modules as they were."""
    with ExitStack() as stack:
        for kernel in STATED.values():
            if kernel.is_function:
                _put(kernel, stack)
        if importlib.util.find_spec("triton") is not None:
            _put_triton(stack)
        yield


def _put(kernel: StatedKernel, stack: ExitStack) -> None:
    module_name, _, name = kernel.name.rpartition(".")
    module: Any = _module(module_name, stack)
    real = getattr(module, name, None)
    setattr(module, name, _standing_for(kernel, real))
    stack.callback(delattr if real is None else setattr, module, name, *(() if real is None else (real,)))


def _module(name: str, stack: ExitStack) -> ModuleType:
    """Return a module, one without anything in it where it is not installed or cannot be imported here."""
    try:
        return importlib.import_module(name)
    except Exception:  # libraries of kernels look for a GPU, and raise what they like
        made = ModuleType(name, "A library that is not here: what has a stated cost stands in it.")
        made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        made.__path__ = []
        parent_name, _, last = name.rpartition(".")
        if parent_name:
            parent: Any = _module(parent_name, stack)
            setattr(parent, last, made)
            stack.callback(delattr, parent, last)
        sys.modules[name] = made
        stack.callback(sys.modules.pop, name, None)
        return made


def _put_triton(stack: ExitStack) -> None:
    """Let a launch of a rank without values take the stated time; what it would compute is computed nowhere."""
    with suppress(Exception):  # Triton looks at the machine when it is imported, and raises what it likes
        importlib.import_module("triton.runtime.jit")
    function: Any = getattr(sys.modules.get("triton.runtime.jit"), "JITFunction", None)
    if function is None:
        return
    real = function.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        accelerator = None if rank is None else rank.process.accelerator
        if rank is None or accelerator is None or not accelerator.shapes:
            return real(self, *args, **kwargs)
        name = self.fn.__name__
        kernel = STATED.get(f"triton:{name}")
        if kernel is None:
            accelerator.note(_unpriced_triton(name))
            return None
        kwargs = {word: value for word, value in kwargs.items() if word not in ("grid", "warmup")}
        given = list(tensors_in((args, kwargs)))
        flops, num_bytes = kernel.work(args, kwargs, bytes_of(given))
        rank.roofline.stated(name, flops, num_bytes, given, [])
        return None

    function.run = run
    stack.callback(setattr, function, "run", real)
