"""torch.distributed.rpc in virtual time: what takes the place of torch's functions in a virtual rank.

torch's RPC agent is one C++ object per process, and all virtual ranks live in one. So while a run goes on, ranks find
here a subset of ``torch.distributed.rpc`` written in Python, under torch's own names; other threads find torch's.

What is there: ``init_rpc`` (static groups; ranks may be fewer than the world), ``shutdown``, ``rpc_sync``,
``rpc_async``, ``remote``, ``RRef`` (``to_here``, ``local_value``, ``owner``, ``owner_name``, ``is_owner``,
``confirmed_by_owner``, ``rpc_sync()``, ``rpc_async()``, ``remote()``), ``functions.async_execution``,
``get_worker_info``, ``WorkerInfo``, ``get_rpc_timeout``, and of ``TensorPipeRpcBackendOptions`` the number of threads
and the timeout; ``torch.futures`` waits in virtual time.

How it behaves: arguments and results go by value, tensors over the network between the ranks, functions and classes by
name. A call is handled by a thread of the callee. Errors come back as torch brings them: ValueError and TypeError as
such, others as RuntimeError, with the remote traceback. A worker that has left, or whose function has returned, lets
calls to it fail. Timeouts are in virtual time.

What is not: distributed autograd and DistributedOptimizer (refused in words), RemoteModule, TorchScript functions,
workers that join later, device maps, profiling, and the counting of references (objects live until shutdown).
Differences: init_rpc and shutdown cost no time beyond waiting; the first call on an RRef's method asks for no type.
Names taken from torch by ``from torch.distributed.rpc import rpc_sync`` work in a notebook and in the function's own
module; in other modules of yours write ``rpc.rpc_sync``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed.autograd as dist_autograd
from torch.distributed import rpc

from labkit.simulator import futures
from labkit.simulator.clock import Event, Waiting
from labkit.simulator.rpc_agent import Agent, Group, Shared
from labkit.simulator.rpc_rref import RRef, connect, invoke, own_agent
from labkit.simulator.state import VirtualRank, current_rank, the_rank
from labkit.torch_port.rpc import IS_SET, SET_TIMEOUT, WorkerInfo, futures_to_wait_for, homes

_UNSET_S = -1.0
_DEFAULT_TIMEOUT_S = 60.0
_DEFAULT_THREADS = 16


def init_rpc(
    name: str, backend: Any = None, rank: int = -1, world_size: int | None = None, rpc_backend_options: Any = None
) -> None:
    """Return once all workers of the group have come.

    Args:
        name: This worker's, unique in the group.
        backend: Taken and not needed.
        rank: Its id; by default RANK.
        world_size: How many workers there are; by default WORLD_SIZE.
        rpc_backend_options: num_worker_threads and rpc_timeout are honoured.

    Raises:
        RuntimeError: If RPC is initialised already, or a name or id is taken.
    """
    mine = the_rank()
    simulation, process = mine.simulation, mine.process
    if process.rpc is not None:
        raise RuntimeError("RPC is already initialized")
    process.threaded = True
    mine.turn()
    if simulation.rpc is None:
        simulation.rpc = Shared(simulation)
    number = int(os.environ["RANK"]) if rank is None or rank < 0 else int(rank)
    size = int(world_size or os.environ["WORLD_SIZE"])
    group = simulation.rpc.groups.setdefault(process.rpc_rounds, Group(size))
    _check_place(group, name, number, size)
    process.rpc_rounds += 1
    timeout_s = float(getattr(rpc_backend_options, "rpc_timeout", _DEFAULT_TIMEOUT_S))
    agent = Agent(
        simulation.ranks[mine.rank], WorkerInfo(name, number), group,
        int(getattr(rpc_backend_options, "num_worker_threads", _DEFAULT_THREADS)), timeout_s,
        timeout_s == _DEFAULT_TIMEOUT_S, simulation.rpc,
    )  # fmt: skip
    connect(agent)
    process.rpc = group.agents[number] = agent
    if len(group.agents) == size:
        simulation.scheduler.fire(group.joined, mine.now_ns)

    def absent() -> list[int]:
        here = {one.rank.rank for one in group.agents.values()}
        return [one.rank for one in simulation.ranks if one.rank not in here]

    def text() -> str:
        return f"init_rpc, where {len(group.agents)} of {size} workers have come"

    mine.wait(group.joined, Waiting("init_rpc", absent, text, _line(mine)))


def _check_place(group: Group, name: str, number: int, size: int) -> None:
    if size != group.size:
        raise RuntimeError(f"init_rpc: {name} says world_size={size}, and others {group.size}.")
    if not 0 <= number < size:
        raise RuntimeError(f"init_rpc: {name} says rank={number}; the ids are 0 to {size - 1}.")
    for other in group.agents.values():
        if other.info.name == name:
            raise RuntimeError(f"RPC worker name {name} is not unique: workers {other.info.id} and {number} have it.")
        if other.info.id == number:
            raise RuntimeError(f"init_rpc: {other.info.name} and {name} both say rank={number}.")


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Leave RPC; gracefully, once all workers are there and no call is under way.

    Args:
        graceful: Whether to wait for the others.
        timeout: Taken and not needed: a wait that cannot end is reported as a deadlock.

    Raises:
        RuntimeError: If another worker left without waiting.
    """
    mine, agent = the_rank(), own_agent()
    mine.turn()
    try:
        if graceful:
            event = Event()
            agent.leave_together(event)
            mine.wait(event, Waiting("shutdown", lambda: _missing(agent), lambda: _shutdown_text(agent), _line(mine)))
            if len(agent.group.leaving) < agent.group.size:
                raise RuntimeError(
                    f"{agent.info.name} cannot shut down gracefully: {_gone(agent)}. After that, "
                    "shutdown(graceful=False) is the way out."
                )
    finally:
        why = f"{agent.info.name} (rank {mine.rank}) has shut RPC down"
        agent.leave(why)
        mine.process.rpc = None


def _missing(agent: Agent) -> list[int]:
    group = agent.group
    absent = [one.rank.rank for number, one in sorted(group.agents.items()) if number not in group.leaving]
    return absent or [call.handler for one in group.agents.values() for call in one.at_work]


def _shutdown_text(agent: Agent) -> str:
    group = agent.group
    if len(group.leaving) < group.size:
        return f"rpc.shutdown, which {len(group.leaving)} of {group.size} workers have called"
    return f"rpc.shutdown, with {group.under_way} calls unanswered"


def _gone(agent: Agent) -> str:
    return "; ".join(one.gone for one in agent.group.agents.values() if one.gone)


def ended(rank: VirtualRank) -> None:
    """Let calls to a rank fail whose function has returned without shutting RPC down."""
    agent: Agent | None = rank.process.rpc
    if agent is not None:
        agent.leave(f"the function of {agent.info.name} (rank {rank.rank}) has returned without rpc.shutdown()")
        rank.process.rpc = None


def rpc_sync(to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = _UNSET_S) -> Any:
    """Return what func returns at another worker.

    Args:
        to: Name, id or WorkerInfo.
        func: The function, known there by its name.
        args: Its arguments.
        kwargs: Its keyword arguments.
        timeout: Seconds of virtual time it may take, 0 for ever.

    Raises:
        RuntimeError: If there is no such worker, it has left, the time is up, or func raised.
    """
    return _invoke("rpc_sync", to, func, args, kwargs, timeout)


def rpc_async(
    to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = _UNSET_S
) -> Any:
    """Return a future of what func returns at another worker; see rpc_sync."""
    future = _invoke("rpc_async", to, func, args, kwargs, timeout)
    waited_for = futures_to_wait_for()
    if waited_for is not None:
        waited_for.append(future)
    return future


def remote(to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = _UNSET_S) -> Any:
    """Return an RRef to what func returns at another worker, where it stays; see rpc_sync."""
    return _invoke("remote", to, func, args, kwargs, timeout)


def _invoke(api: str, to: Any, func: Any, args: Any, kwargs: Any, timeout: float) -> Any:
    agent = own_agent()
    if not callable(func):
        raise TypeError("function should be callable.")
    if isinstance(func, torch.jit.ScriptFunction):
        raise RuntimeError(
            f"{api} of a TorchScript function does not exist on the virtual cluster; call a Python function."
        )
    name = str(getattr(func, "__qualname__", type(func).__name__))
    request = (func, tuple(args or ()), dict(kwargs or {}))
    return invoke(api, name, _find(agent, to), request, timeout)


def _find(agent: Agent, to: Any) -> Agent:
    workers = agent.group.agents
    if isinstance(to, WorkerInfo):
        to = to.id
    if not isinstance(to, str | int):
        raise ValueError(f"Cannot get WorkerInfo from name {to}")
    for number, worker in workers.items():
        if to in (number, worker.info.name):
            return worker
    raise RuntimeError(f"name:{agent.info.name},rank:{agent.info.id} could not find destination name {to}")


def get_worker_info(worker_name: str | int | None = None) -> Any:
    """Return the name and id of a worker, by default the caller's own."""
    agent = own_agent()
    return agent.info if worker_name is None else _find(agent, worker_name).info


def get_rpc_timeout() -> float:
    """Return the seconds a call may take where it does not say."""
    return own_agent().timeout_s


def _set_timeout(timeout: float) -> None:
    agent = own_agent()
    agent.timeout_s, agent.patient = float(timeout), False


def _is_set() -> bool:
    return the_rank().process.rpc is not None


def _line(rank: VirtualRank) -> str:
    return rank.simulation.sources.find(sys._getframe(1))[0]


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{name} does not exist on the virtual cluster, whose torch.distributed.rpc has no distributed autograd: "
            "let workers send gradients as tensors, or run on labkit.local()."
        )

    return refused


class _References(type):
    """Lets isinstance() know both kinds of references by one name."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return (_real_rref if current_rank() is None else RRef)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _real_rref | RRef)

    def __getitem__(cls, kind: Any) -> Any:
        return _real_rref[kind]  # an annotation, which torch.jit compiles where torch.distributed.optim is imported


_real_rref: Any = rpc.RRef


class _EitherRRef(metaclass=_References):
    """What torch.distributed.rpc.RRef is while a run goes on."""


def _either(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return (real if current_rank() is None else ours)(*args, **kwargs)

    call.__name__, call.__doc__ = getattr(real, "__name__", ""), real.__doc__
    return call


_OURS: dict[str, Callable[..., Any]] = {
    **{ours.__name__: ours for ours in (init_rpc, shutdown, rpc_sync, rpc_async, remote)},
    **{ours.__name__: ours for ours in (get_worker_info, get_rpc_timeout)},
    SET_TIMEOUT: _set_timeout,
    IS_SET: _is_set,
}
"""torch's name -> what ranks find under it."""


@contextmanager
def installed() -> Iterator[None]:
    """Let ranks find what is here under torch's names; leave torch as it was."""
    with ExitStack() as stack:
        stack.enter_context(futures.installed())

        def put(owner: Any, name: str, value: Any) -> None:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)

        for name, ours in _OURS.items():
            for owner in homes(name):
                put(owner, name, _either(getattr(owner, name), ours))
        for owner in homes("RRef"):
            put(owner, "RRef", _EitherRRef)
        for name in ("context", "backward", "get_gradients"):
            put(dist_autograd, name, _either(getattr(dist_autograd, name), _refuse(f"dist_autograd.{name}")))
        optimizers: Any = sys.modules.get("torch.distributed.optim.optimizer")
        if optimizers is not None:
            made = optimizers.DistributedOptimizer
            put(made, "__init__", _either(made.__init__, _refuse("DistributedOptimizer")))
        yield
