"""The virtual cluster's end of a process group: the backend "virtual" of torch.distributed, in virtual time.

Each method describes what this rank brings to a collective and how results follow from all parts;
:mod:`labkit.simulator.rounds` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from labkit.simulator.algorithms import choose, exchange
from labkit.simulator.network import Traffic
from labkit.simulator.payload import bytes_of, copied, is_sparse_sum, listing, reduced
from labkit.simulator.port_calls import PortCalls
from labkit.simulator.record import at
from labkit.simulator.rounds import Group, Part
from labkit.simulator.state import the_rank
from labkit.simulator.virtual_work import VirtualWork
from labkit.torch_port.pieces import flat, in_words
from labkit.torch_port.port import Call, Members
from labkit.torch_port.reduction import reduce_tensors

Tensors = list[torch.Tensor]


class VirtualPort(PortCalls):
    """One virtual rank's end of a group."""

    def all_reduce(self, call: Call, tensors: Tensors, op: str) -> VirtualWork:
        """Reduce each tensor over all ranks, in place."""

        def compute(parts: list[Part]) -> list[Tensors]:
            total = reduced(parts, op)
            return [total] * len(parts)

        signature = f"{op} of {in_words(tensors)}"
        if is_sparse_sum(tensors, op):
            return self._sparse_all_reduce(call, tensors)
        return self._collective(call, signature, tensors, tensors, compute, "all_reduce", bytes_of(tensors), op=op)

    def _sparse_all_reduce(self, call: Call, tensors: Tensors) -> VirtualWork:
        """Add sparse tensors as gloo does: everybody gathers everybody's indices and values."""

        def compute(parts: list[Part]) -> list[Tensors]:
            total = [tensor.coalesce() for tensor in reduced(parts, "SUM")]
            return [total] * len(parts)

        def traffic(parts: list[Part]) -> Traffic:
            network, gathered = the_rank().simulation.network, sum(bytes_of(part.inputs) for part in parts)
            return choose("all_gather", self._group.ranks, gathered, network, 0, network.cluster.algorithm)

        signature = f"SUM of sparse {in_words(tensors)}"
        return self._collective(
            call, signature, tensors, tensors, compute, "all_gather", bytes_of(tensors), traffic=traffic, sparse=True
        )

    def reduce(self, call: Call, tensors: Tensors, op: str, root: int) -> VirtualWork:
        """Reduce to one rank."""

        def compute(parts: list[Part]) -> list[Tensors]:
            total = reduced(parts, op)
            return [total if place == root else [] for place in range(len(parts))]

        outputs = tensors if self._group_rank == root else []
        signature = f"{op} of {in_words(tensors)} to group rank {root}"
        size = bytes_of(tensors)
        return self._collective(call, signature, tensors, outputs, compute, "reduce", size, root, tensors, op=op)

    def broadcast(self, call: Call, tensors: Tensors, root: int) -> VirtualWork:
        """Give everybody the root's tensor."""

        def compute(parts: list[Part]) -> list[Tensors]:
            given = [copied(tensor) for tensor in parts[root].inputs]
            return [[] if place == root else given for place in range(len(parts))]

        outputs = [] if self._group_rank == root else tensors
        signature = f"{in_words(tensors)} from group rank {root}"
        size = bytes_of(tensors)
        return self._collective(call, signature, tensors, outputs, compute, "broadcast", size, root, tensors)

    def all_gather(self, call: Call, outputs: Sequence[Tensors], inputs: Tensors) -> VirtualWork:
        """Give everybody everybody's tensors; outputs[r][i] takes tensor i of rank r."""
        outs = flat(outputs)

        def compute(parts: list[Part]) -> list[Tensors]:
            every = [copied(tensor) for part in parts for tensor in part.inputs]
            return [every] * len(parts)

        return self._collective(call, in_words(inputs), inputs, outs, compute, "all_gather", bytes_of(outs))

    def all_gather_joined(self, call: Call, outputs: Tensors, inputs: Tensors) -> VirtualWork:
        """Give everybody everybody's tensors, each joined in one."""

        def compute(parts: list[Part]) -> list[Tensors]:
            joined = [
                torch.cat([part.inputs[place].detach().reshape(-1) for part in parts])
                for place in range(len(parts[0].inputs))
            ]
            return [joined] * len(parts)

        return self._collective(call, in_words(inputs), inputs, outputs, compute, "all_gather", bytes_of(outputs))

    def gather(self, call: Call, outputs: Tensors, given: torch.Tensor, root: int) -> VirtualWork:
        """Give the root everybody's tensor."""

        def compute(parts: list[Part]) -> list[Tensors]:
            every = [copied(part.inputs[0]) for part in parts]
            return [every if place == root else [] for place in range(len(parts))]

        signature = f"{in_words([given])} to group rank {root}"
        size = given.nbytes * self._num_ranks
        return self._collective(call, signature, [given], outputs, compute, "gather", size, root)

    def scatter(self, call: Call, output: torch.Tensor, given: Tensors, root: int) -> VirtualWork:
        """Give each rank its part of the root's list."""

        def compute(parts: list[Part]) -> list[Tensors]:
            return [[copied(piece)] for piece in parts[root].inputs]

        signature = f"{in_words([output])} from group rank {root}"
        size = output.nbytes * self._num_ranks
        return self._collective(call, signature, given, [output], compute, "scatter", size, root)

    def reduce_scatter(self, call: Call, output: torch.Tensor, given: Tensors, op: str) -> VirtualWork:
        """Reduce lists of tensors and leave each rank its own."""

        def compute(parts: list[Part]) -> list[Tensors]:
            return [[reduce_tensors([part.inputs[place] for part in parts], op)] for place in range(len(parts))]

        signature = f"{op} of {in_words(given)}"
        return self._collective(call, signature, given, [output], compute, "reduce_scatter", bytes_of(given), op=op)

    def reduce_scatter_joined(self, call: Call, outputs: Tensors, inputs: Tensors, op: str) -> VirtualWork:
        """Reduce tensors and leave each rank its pieces."""

        def compute(parts: list[Part]) -> list[Tensors]:
            results: list[Tensors] = [[] for _ in parts]
            for place in range(len(parts[0].inputs)):
                total = reduce_tensors([part.inputs[place].detach().reshape(-1) for part in parts], op)
                for row, piece in zip(results, total.view(len(parts), -1), strict=True):
                    row.append(piece)
            return results

        signature = f"{op} of {in_words(inputs)}"
        return self._collective(call, signature, inputs, outputs, compute, "reduce_scatter", bytes_of(inputs), op=op)

    def all_to_all(self, call: Call, outputs: Tensors, inputs: Tensors) -> VirtualWork:
        """Give each rank its own tensor."""

        def compute(parts: list[Part]) -> list[Tensors]:
            for source, giver in enumerate(parts):
                for destination, taker in enumerate(parts):
                    sent, taken = giver.inputs[destination].numel(), taker.outputs[source].numel()
                    if sent != taken:
                        raise RuntimeError(
                            f"{call.kind}: group rank {source} gives {destination} {sent} elements"
                            f"{at(giver.row.source)}, which takes {taken}{at(taker.row.source)}."
                        )
            return [[copied(part.inputs[place]) for part in parts] for place in range(len(parts))]

        def traffic(parts: list[Part]) -> Traffic:
            return exchange(self._group.ranks, [part.sizes for part in parts])

        sizes = [tensor.nbytes for tensor in inputs]
        row_bytes = max(bytes_of(outputs), sum(sizes))
        dtype = str(inputs[0].dtype).removeprefix("torch.") if inputs else "nothing"
        return self._collective(
            call, dtype, inputs, outputs, compute, "all_to_all", row_bytes, sizes=sizes, traffic=traffic
        )

    def barrier(self, call: Call) -> VirtualWork:
        """Wait until every rank has come here."""
        return self._collective(call, "", [], [], lambda parts: [[] for _ in parts], "all_reduce", 0)


def make_port(members: Members) -> VirtualPort:
    """Return the port of a group that torch makes, in the thread of a rank."""
    rank = the_rank()
    everybody = len(members.ranks) == rank.simulation.cluster.world_size
    label = "the default group" if everybody else f"the group of ranks {listing(members.ranks)}"
    group = Group(members.name, members.ranks, label)
    rank.simulation.makers.setdefault(group, set()).add(rank.rank)
    return VirtualPort(group, members.group_rank)
