"""What a backend must do to carry torch.distributed: thirteen operations in place of c10d's many entry points.

The virtual cluster and the grader's relay are ports; :mod:`labkit.torch_port.adapter` makes a process group of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Members:
    """A group as one of its ranks sees it.

    Attributes:
        name: What torch calls it, the same on all its ranks.
        ranks: Global rank of each group rank.
        group_rank: This rank's number among them.
    """

    name: str
    ranks: tuple[int, ...]
    group_rank: int


@dataclass(frozen=True)
class Call:
    """How a collective was called.

    Attributes:
        kind: c10d's word for it, such as "all_gather_into_tensor".
        blocking: Whether the caller stays in it until it is complete.
    """

    kind: str
    blocking: bool


class Port(ABC):
    """One rank's end of a group. Every operation returns a handle (torch.distributed.Work); ranks are group ranks.

    Tensors fit each other by count, elements and dtype as far as one rank can know; reductions are named "SUM", "AVG",
    ... as in ReduceOp. Results are written when the handle is waited for.
    """

    @abstractmethod
    def send(self, tensor: Tensor, peer: int, tag: int) -> Any:
        """Send a tensor to a rank."""

    @abstractmethod
    def receive(self, tensor: Tensor, peer: int | None, tag: int) -> Any:
        """Receive into a tensor from a rank, None for whichever sends."""

    @abstractmethod
    def all_reduce(self, call: Call, tensors: list[Tensor], op: str) -> Any:
        """Reduce each tensor over all ranks, in place."""

    @abstractmethod
    def reduce(self, call: Call, tensors: list[Tensor], op: str, root: int) -> Any:
        """Reduce each tensor over all ranks into that of the root."""

    @abstractmethod
    def broadcast(self, call: Call, tensors: list[Tensor], root: int) -> Any:
        """Give everybody the root's tensors."""

    @abstractmethod
    def all_gather(self, call: Call, outputs: Sequence[list[Tensor]], inputs: list[Tensor]) -> Any:
        """Give everybody everybody's tensors: outputs[r][i] takes tensor i of rank r."""

    @abstractmethod
    def all_gather_joined(self, call: Call, outputs: list[Tensor], inputs: list[Tensor]) -> Any:
        """Give everybody everybody's tensors: outputs[i] takes tensor i of all ranks, one after the other."""

    @abstractmethod
    def gather(self, call: Call, outputs: list[Tensor], given: Tensor, root: int) -> Any:
        """Give the root everybody's tensor; outputs are empty elsewhere."""

    @abstractmethod
    def scatter(self, call: Call, output: Tensor, given: list[Tensor], root: int) -> Any:
        """Give each rank its tensor of the root's list, which is empty elsewhere."""

    @abstractmethod
    def reduce_scatter(self, call: Call, output: Tensor, given: list[Tensor], op: str) -> Any:
        """Reduce a list of one tensor for each rank, and leave each rank its own."""

    @abstractmethod
    def reduce_scatter_joined(self, call: Call, outputs: list[Tensor], inputs: list[Tensor], op: str) -> Any:
        """Reduce each input, and leave each rank its equal share of it in the output."""

    @abstractmethod
    def all_to_all(self, call: Call, outputs: list[Tensor], inputs: list[Tensor]) -> Any:
        """Give rank r inputs[r], and take from it outputs[r]; how much, the two must agree on."""

    @abstractmethod
    def barrier(self, call: Call) -> Any:
        """Wait until every rank has come here."""
