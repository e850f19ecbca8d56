"""RRef: a reference to an object that lives at one worker, in virtual time.

Objects live until their owner leaves RPC; torch's counting of references over all workers is not done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch.distributed.rpc.functions import async_execution
from torch.futures import Future

from labkit.simulator.rpc_agent import Agent
from labkit.simulator.rpc_call import Call
from labkit.simulator.rpc_methods import Method
from labkit.simulator.rpc_values import Reference
from labkit.simulator.state import current_rank, the_rank

T = TypeVar("T")


class RRef(Generic[T]):
    """What rpc.remote returns, and what ``rpc.RRef(object)`` makes."""

    def __init__(self, value: T, type_hint: object = None) -> None:
        """Refer to an object that lives here.

        Args:
            value: The object.
            type_hint: Taken and not needed.
        """
        agent = own_agent()
        key = agent.new_key()
        agent.value_of(key).set_result((True, value))
        self._agent, self._owner, self._key = agent, agent, key
        self._creation: Call | None = None

    @classmethod
    def to(cls, agent: Agent, owner: Agent, key: tuple[int, int], creation: Call | None = None) -> RRef[Any]:
        """Return a reference held by one worker to an object of another.

        Args:
            agent: Who holds it.
            owner: Whose the object is.
            key: Which it is.
            creation: The call that makes it, for who makes it.
        """
        made: RRef[Any] = object.__new__(cls)
        made._agent, made._owner, made._key, made._creation = agent, owner, key, creation
        return made

    @property
    def reference(self) -> Reference:
        """Return what travels for it."""
        return Reference(self._owner.info.id, self._key)

    def owner(self) -> Any:
        """Return who has the object."""
        return self._owner.info

    def owner_name(self) -> str:
        """Return the name of who has the object."""
        return str(self._owner.info.name)

    def is_owner(self) -> bool:
        """Return whether the object is here."""
        return self._owner is self._agent

    def confirmed_by_owner(self) -> bool:
        """Return whether the owner is known to have it."""
        return self._creation is None or self._creation.future.done()

    def local_value(self) -> T:
        """Return the object itself, to its owner, once it has been made.

        Raises:
            RuntimeError: If it lives elsewhere.
        """
        if not self.is_owner():
            raise RuntimeError(
                f"For {self!r}, can't call localValue() on user {self._agent.info}. Call it on owner {self._owner.info}"
            )
        return self._value(self._owner.value_of(self._key))

    def to_here(self, timeout: float = -1.0) -> T:
        """Return a copy of the object, or the object itself to its owner.

        Args:
            timeout: Seconds of virtual time it may take, 0 for ever, negative for what init_rpc was given.
        """
        if self.is_owner():
            return self.local_value()
        source, _ = the_rank().simulation.sources.find(sys._getframe(1))
        call = self._agent.call(
            "to_here", "to_here", self._owner, (fetch, (self,), {}), timeout_s=timeout, source=source
        )  # fmt: skip
        return self._value(call.future)

    def _value(self, future: Future[Any]) -> T:
        fine, value = future.wait()
        if not fine:
            raise value.error(exact=True)
        result: T = value
        return result

    def rpc_sync(self, timeout: float = -1.0) -> Any:
        """Return a stand-in whose methods are called on the object, waiting for the result."""
        return Proxy(self, "rpc_sync", timeout)

    def rpc_async(self, timeout: float = -1.0) -> Any:
        """Return a stand-in whose methods are called on the object, returning a future."""
        return Proxy(self, "rpc_async", timeout)

    def remote(self, timeout: float = -1.0) -> Any:
        """Return a stand-in whose methods are called on the object, returning an RRef."""
        return Proxy(self, "remote", timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Refuse: there is no distributed autograd here."""
        raise RuntimeError(
            "RRef.backward needs torch.distributed.autograd, which the virtual cluster does not have: send gradients "
            "as tensors, or run on labkit.local()."
        )

    def __reduce__(self) -> Any:
        raise RuntimeError("An RRef travels in remote calls only; it cannot be pickled otherwise.")

    def __repr__(self) -> str:
        number = f"GloballyUniqueId(created_on={self._key[0]}, local_id={self._key[1]})"
        return f"OwnerRRef({number})" if self.is_owner() else f"UserRRef(RRefId = {number})"


@async_execution  # type: ignore[untyped-decorator]
def fetch(rref: RRef[Any]) -> Future[Any]:
    """Return, at the owner, the future of the object: no thread waits for it."""
    return rref._owner.value_of(rref._key)


class Proxy:
    """Calls methods of the object behind an RRef, at its owner."""

    def __init__(self, rref: RRef[Any], api: str, timeout: float) -> None:
        self._rref, self._api, self._timeout = rref, api, timeout

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            rref = self._rref
            return invoke(self._api, name, rref._owner, (Method(rref, name), args, kwargs), self._timeout)

        return call


def invoke(api: str, name: str, callee: Agent, request: tuple[Any, Any, Any], timeout: float) -> Any:
    """Return what rpc_sync, rpc_async or remote returns.

    Args:
        api: Which of them.
        name: What is called.
        callee: Who is called.
        request: Function, arguments, keyword arguments.
        timeout: Seconds of virtual time, 0 for ever, negative for what init_rpc was given.
    """
    agent = own_agent()
    source, _ = the_rank().simulation.sources.find(sys._getframe(1))
    key = agent.new_key() if api == "remote" else None
    call = agent.call(api, name, callee, request, timeout_s=timeout, source=source, key=key)
    if key is not None:
        return RRef.to(agent, callee, key, call)
    return call.future.wait() if api == "rpc_sync" else call.future


def connect(agent: Agent) -> None:
    """Teach an agent to send and receive references."""
    agent.as_reference = lambda value: value.reference if isinstance(value, RRef) else None
    agent.make_reference = lambda reference: RRef.to(agent, agent.group.agents[reference.owner], reference.key)


def own_agent() -> Agent:
    """Return the end of the rank that calls; raises RuntimeError while it has none."""
    rank = current_rank()
    agent: Agent | None = None if rank is None else rank.process.rpc
    if agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return agent
