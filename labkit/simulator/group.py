"""A process group in virtual time: the backend "virtual" of torch.distributed.

Each method is a collective of ProcessGroup in torch 2.11 to 2.15, under its names in all of them. A method describes
what this rank brings and how results follow from all parts; :mod:`labkit.simulator.rounds` does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from labkit.simulator.algorithms import exchange
from labkit.simulator.group_calls import GroupCalls, Tensors
from labkit.simulator.network import Traffic
from labkit.simulator.payload import bytes_of, copied, in_words, listed, listing, reduced, rows_of
from labkit.simulator.record import at
from labkit.simulator.reduction import op_name, reduce_tensors
from labkit.simulator.rounds import Members, Part
from labkit.simulator.state import the_rank
from labkit.simulator.work import VirtualWork


class VirtualGroup(GroupCalls):
    """The process group of one virtual rank."""

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce each tensor over all ranks, in place."""
        return self._all_reduce("all_reduce", listed(tensors), op_name(opts), opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> VirtualWork:
        """Reduce several tensors over all ranks, in place."""
        return self._all_reduce("all_reduce_coalesced", list(tensors), op_name(opts), opts)

    def _all_reduce(self, kind: str, tensors: list[torch.Tensor], op: str, opts: Any) -> VirtualWork:
        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            total = reduced(parts, op)
            return [total] * len(parts)

        return self._collective(
            kind, f"{op} of {in_words(tensors)}", tensors, tensors, compute, "all_reduce", bytes_of(tensors), opts
        )

    def reduce(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce to one rank."""
        tensors, op, root = listed(tensors), op_name(opts), self._root("reduce to", opts)

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            total = reduced(parts, op)
            return [total if place == root else [] for place in range(len(parts))]

        outputs = tensors if self._group_rank == root else []
        signature = f"{op} of {in_words(tensors)} to group rank {root}"
        size = bytes_of(tensors)
        return self._collective("reduce", signature, tensors, outputs, compute, "reduce", size, opts, root, tensors)

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give everybody the root's tensor."""
        tensors, root = listed(tensors), self._root("broadcast from", opts)

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            given = [copied(tensor) for tensor in parts[root].inputs]
            return [[] if place == root else given for place in range(len(parts))]

        outputs = [] if self._group_rank == root else tensors
        signature = f"{in_words(tensors)} from group rank {root}"
        size = bytes_of(tensors)
        return self._collective(
            "broadcast", signature, tensors, outputs, compute, "broadcast", size, opts, root, tensors
        )

    def allgather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give everybody everybody's tensor."""
        mine = listed(inputs)
        outs = [tensor for row in outputs for tensor in row]
        self._check_pieces("all_gather", "output list", outs, mine[0])
        return self._gathered("all_gather", mine, outs, bytes_of(outs), opts)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> VirtualWork:
        """Give everybody everybody's tensors; outputs[r][i] takes tensor i of rank r."""
        outs = [tensor for row in outputs for tensor in row]
        return self._gathered("all_gather_coalesced", list(inputs), outs, bytes_of(outs), opts)

    def _gathered(
        self, kind: str, mine: list[torch.Tensor], outs: list[torch.Tensor], size: int, opts: Any
    ) -> VirtualWork:
        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            every = [copied(tensor) for part in parts for tensor in part.inputs]
            return [every] * len(parts)

        return self._collective(kind, in_words(mine), mine, outs, compute, "all_gather", size, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> VirtualWork:
        """Give everybody everybody's tensor, joined in one."""
        return self._gathered_in_one("all_gather_into_tensor", [output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> VirtualWork:
        """Give everybody everybody's tensors, each joined in one."""
        return self._gathered_in_one("all_gather_into_tensor_coalesced", list(outputs), list(inputs), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathered_in_one(
        self, kind: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> VirtualWork:
        for output, mine in zip(outputs, inputs, strict=True):
            if output.numel() != mine.numel() * self.size():
                raise RuntimeError(
                    f"{kind} of {mine.numel()} elements on {self.size()} ranks gives {mine.numel() * self.size()}, "
                    f"and the output has {output.numel()}."
                )

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            joined = [
                torch.cat([part.inputs[place].detach().reshape(-1) for part in parts])
                for place in range(len(parts[0].inputs))
            ]
            return [joined] * len(parts)

        return self._collective(kind, in_words(inputs), inputs, outputs, compute, "all_gather", bytes_of(outputs), opts)

    def gather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give the root everybody's tensor."""
        mine, root = listed(inputs), self._root("gather to", opts)
        outs = [tensor for row in outputs for tensor in row] if self._group_rank == root else []
        if self._group_rank == root:
            self._check_pieces("gather", "gather_list", outs, mine[0])

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            every = [copied(part.inputs[0]) for part in parts]
            return [every if place == root else [] for place in range(len(parts))]

        size = bytes_of(mine) * self.size()
        signature = f"{in_words(mine)} to group rank {root}"
        return self._collective("gather", signature, mine, outs, compute, "gather", size, opts, root)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> VirtualWork:
        """Give the root everybody's tensor, joined in one."""
        return self.gather([output.detach().view(-1).chunk(self.size())], [input.detach().reshape(-1)], opts)

    gather_into_tensor = gather_single

    def scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any = None, *_: Any) -> VirtualWork:
        """Give each rank its part of the root's list."""
        outs, root = listed(outputs), self._root("scatter from", opts)
        parts_given = [tensor for row in inputs for tensor in row] if self._group_rank == root else []
        if self._group_rank == root:
            self._check_pieces("scatter", "scatter_list", parts_given, outs[0])

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            return [[copied(piece)] for piece in parts[root].inputs]

        size = bytes_of(outs) * self.size()
        signature = f"{in_words(outs)} from group rank {root}"
        return self._collective("scatter", signature, parts_given, outs, compute, "scatter", size, opts, root)

    def reduce_scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce lists of tensors and leave each rank its own."""
        outs, op = listed(outputs), op_name(opts)
        given = [tensor for row in inputs for tensor in row]
        if len(given) != self.size():
            raise RuntimeError(f"reduce_scatter got {len(given)} tensors on {self.size()} ranks; give one for each.")
        if given[self._group_rank].numel() != outs[0].numel():
            raise RuntimeError(
                f"reduce_scatter: piece {self._group_rank} has {given[self._group_rank].numel()} elements, "
                f"and the output of that rank {outs[0].numel()}."
            )

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            return [
                [reduce_tensors([part.inputs[place] for part in parts], op)] for place in range(len(parts))
            ]  # fmt: skip

        signature = f"{op} of {in_words(given)}"
        return self._collective(
            "reduce_scatter", signature, given, outs, compute, "reduce_scatter", bytes_of(given), opts
        )

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> VirtualWork:
        """Reduce a tensor and leave each rank its piece."""
        return self._scattered("reduce_scatter_tensor", [output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> VirtualWork:
        """Reduce several tensors and leave each rank its pieces."""
        return self._scattered("reduce_scatter_tensor_coalesced", list(outputs), list(inputs), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _scattered(self, kind: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> VirtualWork:
        op, size = op_name(opts), self.size()
        for output, given in zip(outputs, inputs, strict=True):
            if output.numel() * size != given.numel():
                raise RuntimeError(
                    f"{kind} of {given.numel()} elements on {size} ranks leaves each {given.numel() / size:g}, "
                    f"and the output has {output.numel()}."
                )

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            results: list[list[torch.Tensor]] = [[] for _ in parts]
            for place in range(len(parts[0].inputs)):
                total = reduce_tensors([part.inputs[place].detach().reshape(-1) for part in parts], op)
                for row, piece in zip(results, total.view(size, -1), strict=True):
                    row.append(piece)
            return results

        signature = f"{op} of {in_words(inputs)}"
        return self._collective(kind, signature, inputs, outputs, compute, "reduce_scatter", bytes_of(inputs), opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> VirtualWork:
        """Give each rank its own tensor."""
        return self._all_to_all("all_to_all", list(outputs), list(inputs), opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
    ) -> VirtualWork:
        """Give each rank its rows of one tensor."""
        outs = rows_of(output, output_split_sizes, self.size(), "output")
        given = rows_of(input, input_split_sizes, self.size(), "input")
        return self._all_to_all("all_to_all_single", outs, given, opts)

    alltoall_base = all_to_all_single

    def _all_to_all(self, kind: str, outs: list[torch.Tensor], given: list[torch.Tensor], opts: Any) -> VirtualWork:
        for name, tensors in (("output", outs), ("input", given)):
            if len(tensors) != self.size():
                raise RuntimeError(f"{kind} got {len(tensors)} {name} tensors on {self.size()} ranks; give one each.")

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            for source, giver in enumerate(parts):
                for destination, taker in enumerate(parts):
                    sent, taken = giver.inputs[destination].numel(), taker.outputs[source].numel()
                    if sent != taken:
                        raise RuntimeError(
                            f"{kind}: group rank {source} gives {destination} {sent} elements{at(giver.row.source)}, "
                            f"which takes {taken}{at(taker.row.source)}."
                        )
            return [[copied(part.inputs[place]) for part in parts] for place in range(len(parts))]

        def traffic(parts: list[Part]) -> Traffic:
            return exchange(self._members.ranks, [part.sizes for part in parts])

        sizes = [bytes_of([tensor]) for tensor in given]
        row_bytes = max(bytes_of(outs), sum(sizes))
        dtype = str(given[0].dtype).removeprefix("torch.") if given else "nothing"
        return self._collective(
            kind, dtype, given, outs, compute, "all_to_all", row_bytes, opts, sizes=sizes, traffic=traffic
        )

    def barrier(self, opts: Any = None) -> VirtualWork:
        """Wait until every rank has come here."""
        return self._collective("barrier", "", [], [], lambda parts: [[] for _ in parts], "all_reduce", 0, opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait until every rank has come here; those that never do are named by the deadlock report."""
        work = self._collective(
            "monitored_barrier", "", [], [], lambda parts: [[] for _ in parts], "all_reduce", 0, None, blocking=True
        )
        work.wait()


def create_group(options: Any, backend_options: Any) -> VirtualGroup:
    """Return the group torch asks for, in the thread of a rank (extended API of register_backend)."""
    rank = the_rank()
    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    world_size = rank.simulation.cluster.world_size
    label = "the default group" if len(ranks) == world_size else f"the group of ranks {listing(ranks)}"
    return VirtualGroup(Members(str(options.group_id), ranks, label), options.group_rank)
