"""torch.cuda and torch.accelerator as ranks with virtual devices find them.

Every public function of torch.cuda is answered here, left as it is because it touches no device, or refused by name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from labkit.simulator import cuda_events as events
from labkit.simulator import cuda_nvtx
from labkit.simulator.cuda_events import the_accelerated
from labkit.simulator.cuda_generators import VirtualGenerator
from labkit.simulator.state import current_rank
from labkit.torch_port.accelerators import PLACES

NCCL_VERSION = (2, 27, 3)
"""What torch.cuda.nccl.version() says: one that has all that programs ask the version for, such as bfloat16."""
_NCCL_CALLS = ("all_gather", "all_reduce", "broadcast", "init_rank", "reduce", "reduce_scatter", "unique_id")
"""What torch.cuda.nccl calls NCCL for directly, past torch.distributed."""
_CAPABILITY = {"v100": (7, 0), "a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "b200": (10, 0)}
_real_rng: tuple[Any, Any] = (torch.get_rng_state, torch.set_rng_state)


def _accelerator() -> Any:
    return the_accelerated().process.accelerator


def _memory() -> Any:
    return the_accelerated().record.memory


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _set_device(device: Any) -> None:
    accelerator = _accelerator()
    accelerator.current = accelerator.index(device)
    accelerator.asked = True


def _starting(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return an answer to what starts CUDA in a process."""

    def answered(*args: Any, **kwargs: Any) -> Any:
        _accelerator().asked = True
        return answer(*args, **kwargs)

    return answered


def _properties(device: Any = None) -> SimpleNamespace:
    model = the_accelerated().simulation.cluster.device
    major, minor = _capability()
    return SimpleNamespace(
        name=_name(), total_memory=model.memory_bytes, major=major, minor=minor, multi_processor_count=1,
        is_integrated=False, is_multi_gpu_board=False, warp_size=32,
    )  # fmt: skip


def _capability(device: Any = None) -> tuple[int, int]:
    return _CAPABILITY.get(the_accelerated().simulation.cluster.device.name, (8, 9))


def _name(device: Any = None) -> str:
    return f"virtual {the_accelerated().simulation.cluster.device.name}"


def _allocated(device: Any = None) -> int:
    memory = _memory()
    return int(memory.total if memory.allocator is None else memory.allocator.allocated.now)


def _most_allocated(device: Any = None) -> int:
    memory = _memory()
    return int(memory.recent_peak if memory.allocator is None else memory.allocator.allocated.most)


def _reserved(device: Any = None) -> int:
    memory = _memory()
    return int(memory.total if memory.allocator is None else memory.allocator.reserved.now)


def _most_reserved(device: Any = None) -> int:
    memory = _memory()
    return int(memory.recent_peak if memory.allocator is None else memory.allocator.reserved.most)


def _forget_peak(device: Any = None) -> None:
    memory = _memory()
    memory.recent_peak = memory.total
    if memory.allocator is not None:
        memory.allocator.begin_anew()


def _empty_cache() -> None:
    allocator = _memory().allocator
    if allocator is not None:
        rank = the_accelerated()
        rank.turn()
        allocator.look(rank.now_ns)
        allocator.empty_cache()


def _stats(device: Any = None) -> dict[str, int]:
    allocator = _memory().allocator
    active = (_allocated(), _most_allocated()) if allocator is None else (allocator.active.now, allocator.active.most)
    found = dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams"), 0)
    figures = {
        "allocated_bytes": (_allocated(), _most_allocated()),
        "active_bytes": active,
        "reserved_bytes": (_reserved(), _most_reserved()),
    }
    for name, (now, most) in figures.items():
        found |= {f"{name}.all.current": now, f"{name}.all.peak": most}
    return found


def _free_and_total(device: Any = None) -> tuple[int, int]:
    memory = _memory()
    return memory.capacity - _reserved(), memory.capacity


def _get_rng_state(device: Any = "cuda") -> torch.Tensor:
    state: torch.Tensor = _real_rng[0]()
    return state


def _set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    _real_rng[1](new_state)


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


ANSWERED: dict[str, Callable[..., Any]] = {
    "is_available": lambda: _accelerator().count > 0,
    "is_initialized": lambda: _accelerator().used or _accelerator().asked,
    "init": _starting(_nothing),
    "device_count": lambda: _accelerator().count,
    "current_device": _starting(lambda: _accelerator().current),
    "set_device": _set_device,
    "device": events.DeviceContext,
    "device_of": events.DeviceOf,
    "synchronize": _starting(events.synchronize),
    "empty_cache": _empty_cache,
    "ipc_collect": _nothing,
    "Event": events.VirtualEvent,
    "Stream": events.VirtualStream,
    "StreamContext": events.StreamContext,
    "stream": events.StreamContext,
    "current_stream": _starting(events.current_stream),
    "default_stream": _starting(events.default_stream),
    "set_stream": events.set_stream,
    "is_current_stream_capturing": lambda: False,
    "get_device_name": _name,
    "get_device_capability": _capability,
    "get_device_properties": _starting(_properties),
    "is_bf16_supported": lambda including_emulation=True: _capability() >= (8, 0),
    "is_tf32_supported": lambda: _capability() >= (8, 0),
    "can_device_access_peer": lambda device, peer_device: True,
    "memory_allocated": _allocated,
    "max_memory_allocated": _most_allocated,
    "memory_reserved": _reserved,
    "max_memory_reserved": _most_reserved,
    "memory_cached": _reserved,
    "max_memory_cached": _most_reserved,
    "reset_peak_memory_stats": _forget_peak,
    "reset_max_memory_allocated": _forget_peak,
    "reset_max_memory_cached": _forget_peak,
    "reset_accumulated_memory_stats": _nothing,
    "memory_stats": _stats,
    "mem_get_info": _free_and_total,
    "manual_seed": _seed,
    "manual_seed_all": _seed,
    "initial_seed": lambda: torch.default_generator.initial_seed(),
    "get_rng_state": _get_rng_state,
    "set_rng_state": _set_rng_state,
    "get_rng_state_all": lambda: [_get_rng_state()] * _accelerator().count,
    "set_rng_state_all": lambda new_states: _set_rng_state(list(new_states)[_accelerator().number]),
}
"""Name in torch.cuda -> what a rank with a virtual device calls in its place."""

_LEFT = """
CudaError DeferredCudaCallError OutOfMemoryError amp check_error cudaStatus default_generators get_arch_list
get_gencode_flags graphs has_half has_magma jiterator memory nccl nvtx profiler random sparse streams tunable
get_allocator_backend get_sync_debug_mode set_sync_debug_mode
"""
LEFT = frozenset(_LEFT.split())
"""Names in torch.cuda that touch no device: classes, submodules, settings."""

ACCELERATOR: dict[str, Callable[..., Any]] = {
    "is_available": lambda: _accelerator().count > 0,
    "device_count": lambda: _accelerator().count,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": lambda: _accelerator().current,
    "current_device_idx": lambda: _accelerator().current,
    "set_device_index": _set_device,
    "set_device_idx": _set_device,
    "device_index": events.DeviceContext,
    "get_device_capability": lambda device=None: {"supported_dtypes": set()},
    "current_stream": events.current_stream,
    "set_stream": events.set_stream,
    "synchronize": events.synchronize,
    "empty_cache": _empty_cache,
    "empty_host_cache": _nothing,
    "memory_allocated": _allocated,
    "max_memory_allocated": _most_allocated,
    "memory_reserved": _reserved,
    "max_memory_reserved": _most_reserved,
    "memory_stats": _stats,
    "get_memory_info": _free_and_total,
    "reset_peak_memory_stats": _forget_peak,
    "reset_accumulated_memory_stats": _nothing,
}
"""Name in torch.accelerator -> what a rank with a virtual device calls in its place."""


_ALSO_IN = {
    "memory": ("memory_allocated", "max_memory_allocated", "mem_get_info", "empty_cache", "reset_peak_memory_stats"),
    "random": ("get_rng_state", "set_rng_state", "manual_seed", "manual_seed_all"),
}
"""Submodule of torch.cuda -> names that are called there, too."""


def refused() -> list[str]:
    """Return the public names of torch.cuda that ranks with virtual devices are refused."""
    return sorted(name for name in torch.cuda.__all__ if name not in ANSWERED and not _is_left(name))


def _is_left(name: str) -> bool:
    return name in LEFT or name.endswith(("Tensor", "Storage"))  # a build without CUDA refuses those by name itself


def _refusal(name: str) -> Any:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            f"torch.cuda.{name} is not modelled by the virtual cluster. Leave it out there "
            '(torch.cuda.get_device_name() begins with "virtual"), or run on labkit.local().'
        )

    return refuse


def _switched(real: Any, mine: Callable[..., Any], name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        virtual = rank is not None and rank.process.accelerator is not None
        return (mine if virtual else real)(*args, **kwargs)

    if callable(real) and not isinstance(real, type):
        functools.update_wrapper(call, real)
    if isinstance(real, type):  # others may ask whether something is one
        return type(name, (), {"__new__": lambda cls, *args, **kwargs: call(*args, **kwargs)})
    return call


_record_stream: Any = torch.Tensor.record_stream


def _recorded(tensor: torch.Tensor, stream: Any) -> None:
    """A tensor's room is kept until the stream has done with it; real tensors are told which streams use them."""
    if not isinstance(stream, events.VirtualStream):
        _record_stream(tensor, stream)
    elif stream.queue is not None and the_accelerated().record.memory is not None:
        _memory().used_by(tensor, stream.queue)


@contextmanager
def installed() -> Iterator[None]:
    """Let ranks with virtual devices find them in torch.cuda and torch.accelerator; leave torch as it was."""
    cuda: Any = torch.cuda
    answers: list[tuple[Any, str, Callable[..., Any]]] = [(cuda, name, mine) for name, mine in ANSWERED.items()]
    answers += [(cuda, name, _refusal(name)) for name in refused()]
    answers += [(torch.accelerator, name, mine) for name, mine in ACCELERATOR.items()]
    answers += [(owner, name, lambda *_: torch.device("cuda")) for owner, name in PLACES]
    answers += [(torch, "Event", events.AnyEvent), (torch, "Stream", events.VirtualStream)]
    answers += [(cuda.nvtx, name, mine) for name, mine in cuda_nvtx.ANSWERED.items()]
    answers += [(cuda.nccl, "version", lambda: NCCL_VERSION), (torch.backends.cuda, "is_built", lambda: True)]
    answers += [(cuda.nccl, name, _refusal(f"nccl.{name}")) for name in _NCCL_CALLS]
    for module, names in _ALSO_IN.items():
        answers += [(getattr(cuda, module), name, ANSWERED[name]) for name in names]
    with ExitStack() as stack:
        for owner, name, mine in ((torch, "Generator", VirtualGenerator), (torch.Tensor, "record_stream", _recorded)):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, mine)
        for module, name, mine in answers:
            if hasattr(module, name):
                real = getattr(module, name)
                stack.callback(setattr, module, name, real)
                setattr(module, name, _in_place_of(real, mine, name))
        yield


def _in_place_of(real: Any, mine: Any, name: str) -> Any:
    if not isinstance(mine, type):
        return _switched(real, mine, name)
    switch: Any = type(name, (mine,), {"real": real})  # each name has its own to give to other threads
    return switch
