"""What torch's libraries do otherwise on a host with CUDA: autocast, data loaders, files, compilation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from labkit.simulator.accelerator import Accelerator
from labkit.simulator.compiled import compiled
from labkit.simulator.device_mode import devices_of
from labkit.simulator.state import current_rank
from labkit.simulator.storages import holds
from labkit.torch_port.compiling import replace_call
from labkit.torch_port.devices import backward_within, grouped_by_place, located
from labkit.torch_port.sharded_random import drawn_by_shard

NO_WORKERS = (
    "DataLoader(num_workers=...): a virtual rank loads its data itself; worker_init_fn was not called, and what a "
    "worker would draw at random is drawn by the rank."
)


def _mine() -> Accelerator | None:
    rank = current_rank()
    found: Accelerator | None = None if rank is None else rank.process.accelerator
    return found


def _devices() -> AbstractContextManager[Any]:
    rank = current_rank()
    return nullcontext() if rank is None else devices_of(rank)


@contextmanager
def installed() -> Iterator[None]:
    """Change torch's libraries for ranks with virtual devices, and leave them as they were."""
    module: Any = torch
    loader: Any = DataLoader
    nn_module: Any = torch.nn.Module
    changes: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (module, "set_autocast_enabled", _for_the_cpu_too),
        (module, "set_autocast_dtype", _for_the_cpu_too),
        (module, "compile", _compiled),
        (nn_module, "compile", _method_compiled),
        (loader, "__init__", _without_workers),
        (dist, "is_nccl_available", _true),
        (torch.nn.DataParallel, "forward", _on_its_one_device),
        (torch.nn.SyncBatchNorm, "forward", _without_its_kernels),
        (torch.autograd.graph.saved_tensors_hooks, "__init__", _hooked),
    ]
    precision = torch.get_float32_matmul_precision()
    with ExitStack() as stack:
        stack.callback(torch.set_float32_matmul_precision, precision)
        for owner, name, change in changes:
            real = getattr(owner, name)
            stack.callback(setattr, owner, name, real)
            changed = change(real)
            # Libraries read the signatures of what they wrap themselves, as Lightning does of DataLoader's.
            setattr(owner, name, functools.wraps(real)(changed))
        stack.enter_context(located(_tag, _place))
        stack.enter_context(backward_within(_devices))
        stack.enter_context(grouped_by_place(_place_of))
        stack.enter_context(drawn_by_shard(_on_the_device))
        yield


def _on_the_device(tensor: torch.Tensor) -> torch.Tensor:
    accelerator = _mine()
    if accelerator is None:
        raise LookupError
    return accelerator.put(tensor)


def _place_of(tensor: torch.Tensor) -> torch.device | None:
    accelerator = _mine()
    return accelerator.device if accelerator is not None and accelerator.is_on(tensor) else None


def _true(real: Any) -> Any:
    return lambda: real() if _mine() is None else True


def _for_the_cpu_too(real: Any) -> Any:
    """The tensors are on the CPU, so its autocast does the casting."""

    def change(*args: Any) -> None:
        real(*args)
        if _mine() is not None and args[0] == "cuda":
            real("cpu", *args[1:])

    return change


def _compiled(real: Any) -> Any:
    def compile_(model: Any = None, **options: Any) -> Any:
        accelerator = _mine()
        if accelerator is None:
            return real(model, **options)
        if model is None:
            return lambda function: compile_(function, **options)
        if isinstance(model, torch.nn.Module):
            replace_call(model, lambda call: compiled(call, accelerator.note, options))
            return model
        return compiled(model, accelerator.note, options)

    return compile_


def _method_compiled(real: Any) -> Any:
    def compile_(self: Any, *args: Any, **kwargs: Any) -> None:
        accelerator = _mine()
        if accelerator is None:
            real(self, *args, **kwargs)
        else:
            replace_call(self, lambda call: compiled(call, accelerator.note, kwargs))

    return compile_


def _without_workers(real: Any) -> Any:
    names = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        accelerator = _mine()
        given = dict(zip(names, args, strict=False)) | kwargs
        if accelerator is None or not given.get("num_workers") or len(args) > len(names):
            real(self, *args, **kwargs)
            return
        accelerator.note(NO_WORKERS)
        for name in ("num_workers", "prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
            given.pop(name, None)
        real(self, **given)

    return init


def _without_its_kernels(real: Any) -> Any:
    def forward(self: Any, input: Any) -> Any:
        if _mine() is not None and self.training:
            raise RuntimeError(
                "torch.nn.SyncBatchNorm is not modelled by the virtual cluster: its kernels exist only for CUDA. "
                "Use BatchNorm or LayerNorm there, or run on labkit.local() with GPUs."
            )
        return real(self, input)

    return forward


def _on_its_one_device(real: Any) -> Any:
    """DataParallel scatters and gathers with CUDA's own copies; over one device it only moves what it is given."""

    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        accelerator = _mine()
        if accelerator is None or not self.device_ids:
            return real(self, *inputs, **kwargs)
        if len(self.device_ids) > 1:
            raise RuntimeError(
                f"nn.DataParallel over devices {self.device_ids}: a virtual rank has one device. Pass "
                f"device_ids=[{accelerator.number}], or use DistributedDataParallel with a rank for each device."
            )
        inputs, kwargs = _moved((inputs, kwargs), torch.device("cuda", self.device_ids[0]))
        return self.module(*inputs, **kwargs)

    return forward


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if type(value) in (list, tuple):
        return type(value)(_moved(one, device) for one in value)
    return {name: _moved(one, device) for name, one in value.items()} if type(value) is dict else value


def _hooked(real: Any) -> Any:
    """What a program does with saved tensors, as checkpointing does, is called from C++, where modes are off."""

    def within(hook: Any) -> Any:
        def called(*args: Any) -> Any:
            with _devices():
                return hook(*args)

        return called

    def init(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        if _mine() is not None:
            pack_hook, unpack_hook = within(pack_hook), within(unpack_hook)
        real(self, pack_hook, unpack_hook)

    return init


def _tag(storage: Any) -> str | None:
    accelerator = _mine()
    return str(accelerator.device) if accelerator is not None and holds(storage) else None


def _place(storage: Any, location: str) -> Any | None:
    accelerator = _mine()
    if accelerator is None or not location.startswith("cuda"):
        return None
    accelerator.reads_from(location)
    accelerator.put_storage(storage)
    return storage
