"""How drivers call what learners write for remote calls: in a thread as RPC does, or on virtual ranks in virtual time.

Hidden cases run where ranks have no network, so torch's own RPC cannot: a server's methods are called as RPC would call
them, or the whole program runs on virtual ranks inside the one rank of the case, over labkit's RPC in virtual time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from labkit.checks.on_ranks.raised import line_in
from labkit.errors import RunError

_PATIENCE_S = 3.0
_STUB = re.compile(r"NotImplementedError: (Exercise .*)")


class Blocked(Exception):
    """A call did not come back."""


def call(function: Callable[[], Any]) -> Any:
    """Return what function returns, from a thread as RPC has them; raises Blocked if it does not come back."""
    found: list[Any] = []
    error: list[BaseException] = []

    def body() -> None:
        try:
            found.append(function())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    if thread.is_alive():
        raise Blocked
    if error:
        raise error[0]
    return found[0]


def on_virtual_ranks(
    program: Callable[..., Any], *args: Any, num_ranks: int, operator_ns: int = 200_000, message_ns: int = 1_000
) -> list[Any]:
    """Return every virtual rank's result.

    Args:
        program: Runs on every rank, without a process group.
        args: Its arguments.
        num_ranks: Virtual ranks.
        operator_ns: What an operator takes at least; long ones let threads of a server meet.
        message_ns: How long a message is under way; a long way tells calls that went out together from others.

    Raises:
        NotImplementedError: If a stub was called.
        RuntimeError: If it failed in another way, in words.
    """
    from labkit.hardware import Device, Link
    from labkit.virtual_world import virtual
    from labkit.worlds import run

    counts = "no hardware: it counts"
    device = Device("slow_steps", 10**12, 1e15, {"float32": 1e15}, "nvlink4", counts, launch_ns=operator_ns)
    link = Link("long_way", 1e12, message_ns, counts, counts)
    world = virtual(num_ranks, gpu=device, link=link, gpus_per_node=num_ranks)
    try:
        return list(run(program, *args, on=world, init=False, echo=False, timeout=20.0).results)
    except RunError as error:
        raise raised_on_virtual_ranks(error, "over RPC, ") from None


def raised_on_virtual_ranks(error: RunError, how: str = "") -> Exception:
    """Return what a driver raises for a run on virtual ranks that failed: that of a stub, or what failed and where."""
    stub = _STUB.search(str(error))
    if stub:
        return NotImplementedError(stub[1])
    where = line_in(error.reports.get(error.rank, "")) if error.rank is not None else ""
    return RuntimeError(f"{how}on virtual ranks: {str(error).strip().splitlines()[0].removesuffix('.')}{where}")
