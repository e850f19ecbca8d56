"""Where torch tells the watch what a program does: hooks it has, and functions that are wrapped while a run goes on."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from inspect import getattr_static
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from labkit.auditing.checkpoints_seen import saving
from labkit.auditing.passes_seen import following
from labkit.auditing.rank_watch import is_own, line
from labkit.auditing.setups_seen import setting_up
from labkit.auditing.watch import Watch
from labkit.torch_port.backward import in_backward
from labkit.torch_port.data_loading import loaders_watched
from labkit.torch_port.sharded_together import param_groups_watched


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Tell a watch what ranks do, and leave torch as it was."""
    with ExitStack() as stack:
        for handle in _module_hooks(watch):
            stack.callback(handle.remove)
        stack.callback(register_optimizer_step_pre_hook(partial(_before_step, watch)).remove)
        stack.callback(register_optimizer_step_post_hook(lambda one, *_: watch.after_step(one)).remove)
        for owner, name, wrapper in _wrapped(watch):
            kept, real = getattr_static(owner, name), getattr(owner, name)
            wrapped = wraps(real)(wrapper(real))
            kind = type(kept) if isinstance(kept, staticmethod | classmethod) else None
            setattr(owner, name, wrapped if kind is None else kind(wrapped))
            stack.callback(setattr, owner, name, kept)
        stack.enter_context(
            loaders_watched(
                lambda loader, fetcher: watch.loads(loader, fetcher, sys._getframe(2)),
                lambda fetcher, indices, batch: watch.fetched(fetcher, indices, batch, sys._getframe(2)),
                watch.fetches,
            )
        )
        stack.enter_context(
            param_groups_watched(lambda params, modules: watch.gathers(params, modules, sys._getframe(2)))
        )
        yield


def _before_step(watch: Watch, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """Tell the watch of a step once its gradients are there: after its closure, where it has one (Lightning's has)."""
    place = next((number for number, one in enumerate(args) if number and callable(one)), 0)
    closure = args[place] if place else kwargs.get("closure")
    if closure is None:
        watch.before_step(optimizer)
        return None
    told: list[bool] = []

    def computes() -> Any:
        made = closure()
        if not told:  # LBFGS calls it more than once
            told.append(True)
            watch.before_step(optimizer)
        return made

    if place:
        return (*args[:place], computes, *args[place + 1 :]), kwargs
    return args, kwargs | {"closure": computes}


def _outside(file: str, frame: FrameType) -> FrameType | None:
    """Return the frame that called into a file, which may call itself by others."""
    outside: FrameType | None = frame
    each: FrameType | None = frame
    while each is not None:
        if each.f_code.co_filename == file:
            outside = each.f_back
        each = each.f_back
    return outside


def _module_hooks(watch: Watch) -> list[Any]:
    def registered(module: torch.nn.Module, _: str, value: Any) -> None:
        mine = watch.here()
        if mine is not None:
            mine.names.add(module)
            if isinstance(value, torch.nn.Parameter):
                mine.names.made[id(value)] = line(sys._getframe(1))

    return [
        register_module_parameter_registration_hook(registered),
        register_module_buffer_registration_hook(registered),
        register_module_module_registration_hook(registered),
        register_module_forward_pre_hook(watch.forward_begins),
        register_module_forward_hook(lambda module, _, out: watch.forward_ends(module, out), always_call=True),
    ]


def _wrapped(watch: Watch) -> list[tuple[Any, str, Callable[[Any], Callable[..., Any]]]]:
    """Return owner and name of each function that is wrapped, and what wraps it."""

    def setstate(real: Any) -> Any:
        def call(self: Any, state: Any) -> None:
            real(self, state)
            mine = watch.here()
            if mine is not None:
                mine.names.add(self)
                mine.made[id(self)] = line(_outside(copy.__file__, sys._getframe(1)))

        return call

    def noted(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            watch.made(self, sys._getframe(1))

        return call

    def wraps_model(real: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            if (mine := watch.here()) is not None:
                watch.seen.wrapped.setdefault(mine.rank, line(sys._getframe(1)))
                if self.broadcast_buffers:
                    mine.even_buffers |= {id(one) for one in self.buffers()}

        return call

    def unfreezes(real: Any) -> Any:
        def call(self: torch.nn.Module, requires_grad: bool = True) -> Any:
            if (mine := watch.here()) is not None and requires_grad:
                source = line(sys._getframe(1))
                mine.names.made |= {id(one): source for one in self.parameters() if not one.requires_grad}
            return real(self, requires_grad)

        return call

    def attribute(real: Any) -> Any:
        def call(self: Any, name: str) -> Any:
            if name == "module":
                watch.unwraps(sys._getframe(1))
            return real(self, name)

        return call

    def add_group(real: Any) -> Any:
        def call(self: Any, group: Any) -> None:
            real(self, group)
            watch.added(self.param_groups[-1]["params"])

        return call

    def hashes(real: Any) -> Any:
        def call(self: torch.Tensor) -> int:
            if in_backward() and (mine := watch.here()) is not None and is_own(frame := sys._getframe(1)):
                mine.exchanged.hashed(self, mine.step, lambda: line(frame))
            return int(real(self))

        return call

    return [
        (torch.Tensor, "__hash__", hashes),
        *_computing(watch),
        *following(watch.here, line),
        *saving(watch.seen, watch.here),
        *setting_up(watch.seen, watch.here),
        (torch.nn.Module, "__setstate__", setstate),
        (torch.optim.Optimizer, "add_param_group", add_group),
        (torch.optim.Optimizer, "__init__", noted),
        (torch.nn.parallel.DistributedDataParallel, "__getattr__", attribute),
        (torch.nn.parallel.DistributedDataParallel, "__init__", wraps_model),
        (torch.nn.Module, "requires_grad_", unfreezes),
        (torch.utils.data.DataLoader, "__init__", noted),
        (torch.utils.data.DistributedSampler, "__init__", noted),
    ]


def _computing(watch: Watch) -> list[tuple[Any, str, Callable[[Any], Callable[..., Any]]]]:
    """Return the same for what a step computes with."""

    def backward(real: Any) -> Any:
        def call(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            watch.backward(tensors, grad_tensors, sys._getframe(1))
            return real(tensors, grad_tensors, *args, **kwargs)

        return call

    def clip(real: Any) -> Any:
        def call(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            parameters = parameters if isinstance(parameters, torch.Tensor) else list(parameters)
            watch.clips(parameters)
            norm = real(parameters, max_norm, *args, **kwargs)
            watch.clipped(parameters, norm, max_norm, sys._getframe(1))
            return norm

        return call

    def applies(real: Any) -> Any:
        def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
            out = real.__func__(cls, *args, **kwargs)
            watch.applied(cls.__name__, out, sys._getframe(1))
            return out

        return call

    def dropout(real: Any) -> Any:
        def call(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not training or not 0 < p < 1 or inplace or type(input) is not torch.Tensor:
                return real(input, p, training, inplace)
            out = real(input, p, training, inplace)
            watch.dropped(input, out, sys._getframe(1))
            return out

        return call

    def scale(real: Any) -> Any:
        def call(self: Any, outputs: Any) -> Any:
            made = real(self, outputs)
            if self.is_enabled():
                watch.scaled(float(self.get_scale()))
            return made

        return call

    return [
        (torch.autograd, "backward", backward),
        (torch.nn.utils, "clip_grad_norm_", clip),
        (torch.nn.functional, "dropout", dropout),
        (torch.autograd.Function, "apply", applies),
        (torch.amp.GradScaler, "scale", scale),
    ]
