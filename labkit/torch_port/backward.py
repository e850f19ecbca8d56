"""Backward passes: whether one runs, which, and what is called at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

backward_number: Callable[[], int] = torch._C._current_graph_task_id
"""Returns which backward pass this thread runs, -1 for none."""


next_node_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
"""Returns the number that the next operator of this thread will have in the graph that backward passes follow."""


def node_number() -> int:
    """Return the number of the operator whose gradient this thread computes, -1 for none."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def in_backward() -> bool:
    """Return whether this thread runs a backward pass."""
    return int(torch._C._current_graph_task_id()) != -1


def before_backward_returns(callback: Callable[[], None]) -> None:
    """Call back at the end of the backward pass under way, before what is queued later, such as DDP's own end."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


class EndOfBackward:
    """Knows of one rank whether its backward pass has come to what is called at its end.

    What torch calls there may wait in C++ for what we promise, so a promise made there must be kept at once.

    Attributes:
        seen: The pass that was seen last, -1 for none.
    """

    __slots__ = ("_ending", "seen")

    def __init__(self) -> None:
        self.seen = self._ending = -1

    def begins(self, number: int) -> None:
        """Take note of a backward pass that was not seen before; one operator of it comes before others' callbacks."""
        self.seen = number

        def ends() -> None:
            self._ending = number

        before_backward_returns(ends)

    def has_come(self) -> bool:
        """Return whether the pass under way has done its work and calls back."""
        return self._ending == backward_number()


def is_wanted(ctx: Any, place: int) -> bool:
    """Return whether the backward pass under way wants the gradient of an input, as operators of torch's own know.

    Args:
        ctx: Of a torch.autograd.Function whose backward is at work.
        place: The number of the input among its tensors.
    """
    node = ctx.next_functions[place][0]
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # it is a leaf, and what torch.autograd.grad was asked for
        return True


def single_threaded_backward() -> Any:
    """Return a context manager in which this thread's backward passes stay on this thread."""
    return torch.autograd.set_multithreading_enabled(False)


NEEDED: dict[str, Callable[[], object]] = {
    "torch._C._current_graph_task_id": lambda: torch._C._current_graph_task_id,
    "torch._C._autograd._get_sequence_nr": lambda: next_node_number(),
    "torch._C._current_autograd_node": node_number,
    "a node's _sequence_nr": lambda: torch.autograd.graph.Node._sequence_nr,
    "torch.autograd.Variable._execution_engine.queue_callback": lambda: (
        torch.autograd.Variable._execution_engine.queue_callback
    ),
    "torch._C._will_engine_execute_node": lambda: torch._C._will_engine_execute_node,
    "torch.autograd.set_multithreading_enabled": lambda: torch.autograd.set_multithreading_enabled,
}
"""Name -> how it is reached; a test calls each."""
