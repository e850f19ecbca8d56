"""A process group in virtual time: the backend "virtual" of torch.distributed.

Each method is a collective of ProcessGroup in torch 2.11 to 2.15, under its names in all of them. A method describes
what this rank brings and how results follow from all parts; :mod:`labkit.simulator.rounds` does the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from labkit.simulator.algorithms import choose, exchange
from labkit.simulator.clock import Waiting
from labkit.simulator.messages import ANY_SOURCE, Posted
from labkit.simulator.network import Traffic
from labkit.simulator.record import Row, at
from labkit.simulator.reduction import op_name, reduce_tensors
from labkit.simulator.rounds import Compute, Members, Part, Round
from labkit.simulator.state import VirtualRank, communication_row, the_rank
from labkit.simulator.torch_private import BACKEND, uncounted
from labkit.simulator.work import VirtualWork, VirtualWorks

Tensors = Sequence[torch.Tensor]


_ProcessGroup: Any = dist.ProcessGroup  # its typed signatures differ from version to version


class VirtualGroup(_ProcessGroup):  # type: ignore[misc]
    """The process group of one virtual rank."""

    def __init__(self, rank: VirtualRank, members: Members, group_rank: int) -> None:
        """Make the group of a rank.

        Args:
            rank: Whose it is.
            members: Its ranks.
            group_rank: The rank's number among them.
        """
        super().__init__(group_rank, len(members.ranks))
        self._virtual_rank, self._members, self._group_rank = rank, members, group_rank
        self._number = 0
        self._coalescing: list[VirtualWork] | None = None

    def getBackendName(self) -> str:  # noqa: N802
        """Return "virtual"."""
        return BACKEND

    @property
    def group_name(self) -> str:
        """The name torch registered this group under."""
        return self._members.name

    @property
    def pg_name(self) -> str:
        """The same, as older code asks for it."""
        return self._members.name

    # ---- point to point

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> VirtualWork:
        """Post a send to a rank of the group."""
        return self._message("isend", tensors, self._members.ranks[dst], tag, sends=True)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> VirtualWork:
        """Post a receive from a rank of the group."""
        return self._message("irecv", tensors, self._members.ranks[src], tag, sends=False)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> VirtualWork:
        """Post a receive from whichever rank sends."""
        return self._message("irecv", tensors, ANY_SOURCE, tag, sends=False)

    def _message(self, kind: str, tensors: Tensors, peer: int, tag: int, *, sends: bool) -> VirtualWork:
        rank = self._virtual_rank
        with uncounted():
            tensor = _on_cpu(_listed(tensors))[0].detach()
        source, entry = rank.simulation.sources.find(sys._getframe(1))
        row = self._row(entry or kind, _num_bytes([tensor]), source, blocking=bool(entry))
        row.peer, row.tag = peer, tag
        flight = rank.guard(tensor, row, receiving=not sends)
        posted: Posted = rank.simulation.exchange.post(
            rank, peer, tensor, row, self._members.key, tag, sends=sends
        )  # fmt: skip

        def text() -> str:
            end = f"to rank {posted.peer}" if sends else f"from rank {posted.peer}"
            return f"{row.kind} {'from any rank' if posted.peer == ANY_SOURCE else end}"

        def peers() -> list[int]:
            if posted.peer == ANY_SOURCE:
                return [member for member in self._members.ranks if member != rank.rank]
            return [posted.peer]

        def finish() -> None:
            rank.release(flight)
            if not sends and posted.payload is not None:
                tensor.copy_(posted.payload.view(tensor.shape))
                posted.payload = None

        def from_rank() -> int:
            return self._members.ranks.index(posted.peer)

        waiting = Waiting(row.kind, peers, text, source)
        return self._posted(VirtualWork(rank, posted.event, waiting, row, [tensor], finish, from_rank))

    # ---- collectives

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce each tensor over all ranks, in place."""
        return self._all_reduce("all_reduce", _listed(tensors), op_name(opts), opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> VirtualWork:
        """Reduce several tensors over all ranks, in place."""
        return self._all_reduce("all_reduce_coalesced", list(tensors), op_name(opts), opts)

    def _all_reduce(self, kind: str, tensors: list[torch.Tensor], op: str, opts: Any) -> VirtualWork:
        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            total = _reduced(parts, op)
            return [total] * len(parts)

        return self._collective(
            kind, f"{op} of {_shapes(tensors)}", tensors, tensors, compute, "all_reduce", _num_bytes(tensors), opts
        )

    def reduce(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce to one rank."""
        tensors, op, root = _listed(tensors), op_name(opts), int(opts.rootRank)

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            total = _reduced(parts, op)
            return [total if place == root else [] for place in range(len(parts))]

        outputs = tensors if self._group_rank == root else []
        signature = f"{op} of {_shapes(tensors)} to group rank {root}"
        size = _num_bytes(tensors)
        return self._collective("reduce", signature, tensors, outputs, compute, "reduce", size, opts, root, tensors)

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give everybody the root's tensor."""
        tensors, root = _listed(tensors), int(opts.rootRank)

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            given = [_copy(tensor) for tensor in parts[root].inputs]
            return [[] if place == root else given for place in range(len(parts))]

        outputs = [] if self._group_rank == root else tensors
        signature = f"{_shapes(tensors)} from group rank {root}"
        size = _num_bytes(tensors)
        return self._collective(
            "broadcast", signature, tensors, outputs, compute, "broadcast", size, opts, root, tensors
        )

    def allgather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give everybody everybody's tensor."""
        mine = _listed(inputs)
        outs = [tensor for row in outputs for tensor in row]
        self._check_pieces("all_gather", "output list", outs, mine[0])
        return self._gathered("all_gather", mine, outs, _num_bytes(outs), opts)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> VirtualWork:
        """Give everybody everybody's tensors; outputs[r][i] takes tensor i of rank r."""
        outs = [tensor for row in outputs for tensor in row]
        return self._gathered("all_gather_coalesced", list(inputs), outs, _num_bytes(outs), opts)

    def _gathered(
        self, kind: str, mine: list[torch.Tensor], outs: list[torch.Tensor], size: int, opts: Any
    ) -> VirtualWork:
        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            every = [_copy(tensor) for part in parts for tensor in part.inputs]
            return [every] * len(parts)

        return self._collective(kind, _shapes(mine), mine, outs, compute, "all_gather", size, opts)

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

        return self._collective(
            kind, _shapes(inputs), inputs, outputs, compute, "all_gather", _num_bytes(outputs), opts
        )

    def gather(self, outputs: Sequence[Tensors], inputs: Any, opts: Any = None, *_: Any) -> VirtualWork:
        """Give the root everybody's tensor."""
        mine, root = _listed(inputs), int(opts.rootRank)
        outs = [tensor for row in outputs for tensor in row] if self._group_rank == root else []
        if self._group_rank == root:
            self._check_pieces("gather", "gather_list", outs, mine[0])

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            every = [_copy(part.inputs[0]) for part in parts]
            return [every if place == root else [] for place in range(len(parts))]

        size = _num_bytes(mine) * self.size()
        signature = f"{_shapes(mine)} to group rank {root}"
        return self._collective("gather", signature, mine, outs, compute, "gather", size, opts, root)

    def scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any = None, *_: Any) -> VirtualWork:
        """Give each rank its part of the root's list."""
        outs, root = _listed(outputs), int(opts.rootRank)
        parts_given = [tensor for row in inputs for tensor in row] if self._group_rank == root else []
        if self._group_rank == root:
            self._check_pieces("scatter", "scatter_list", parts_given, outs[0])

        def compute(parts: list[Part]) -> list[list[torch.Tensor]]:
            return [[_copy(piece)] for piece in parts[root].inputs]

        size = _num_bytes(outs) * self.size()
        signature = f"{_shapes(outs)} from group rank {root}"
        return self._collective("scatter", signature, parts_given, outs, compute, "scatter", size, opts, root)

    def reduce_scatter(self, outputs: Any, inputs: Sequence[Tensors], opts: Any = None, *_: Any) -> VirtualWork:
        """Reduce lists of tensors and leave each rank its own."""
        outs, op = _listed(outputs), op_name(opts)
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

        signature = f"{op} of {_shapes(given)}"
        return self._collective(
            "reduce_scatter", signature, given, outs, compute, "reduce_scatter", _num_bytes(given), opts
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

        signature = f"{op} of {_shapes(inputs)}"
        return self._collective(kind, signature, inputs, outputs, compute, "reduce_scatter", _num_bytes(inputs), opts)

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
        outs = _rows(output, output_split_sizes, self.size(), "output")
        given = _rows(input, input_split_sizes, self.size(), "input")
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
            return [[_copy(part.inputs[place]) for part in parts] for place in range(len(parts))]

        def traffic(parts: list[Part]) -> Traffic:
            return exchange(self._members.ranks, [part.sizes for part in parts])

        sizes = [_num_bytes([tensor]) for tensor in given]
        row_bytes = max(_num_bytes(outs), sum(sizes))
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

    # ---- coalescing, which changes nothing here but the handle

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> VirtualWorks:
        works, self._coalescing = self._coalescing or [], None
        return VirtualWorks(works)

    # ---- what all collectives share

    def _collective(
        self,
        kind: str,
        signature: str,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        compute: Compute,
        cost: str,
        num_bytes: int,
        opts: Any,
        root: int = 0,
        result: list[torch.Tensor] | None = None,
        *,
        sizes: list[int] | None = None,
        traffic: Any = None,
        blocking: bool | None = None,
    ) -> VirtualWork:
        rank, members = self._virtual_rank, self._members
        _on_cpu(inputs)
        _on_cpu(outputs)
        source, _ = rank.simulation.sources.find(sys._getframe(1))
        is_blocking = not getattr(opts, "asyncOp", True) if blocking is None else blocking
        row = self._row(kind, num_bytes, source, blocking=is_blocking)
        row.number = number = self._number
        self._number += 1
        part = Part(rank, row, f"{kind} {signature}".strip(), inputs, outputs, sizes or [])
        network = rank.simulation.network
        algorithm = network.cluster.algorithm
        round_: Round = rank.simulation.rounds.join(
            members, number, self._group_rank, part, compute,
            traffic or (lambda parts: choose(cost, members.ranks, num_bytes, network, root, algorithm)),
        )  # fmt: skip

        def text() -> str:
            return f"{kind} (collective {number + 1} of {members.label})"

        def finish() -> None:
            for output, value in zip(outputs, round_.result_of(self._group_rank), strict=True):
                output.detach().copy_(value.view(output.shape))

        waiting = Waiting(kind, round_.missing, text, source)
        tensors = outputs if result is None else result
        return self._posted(VirtualWork(rank, round_.event, waiting, row, tensors, finish))

    def _row(self, kind: str, num_bytes: int, source: str, *, blocking: bool) -> Row:
        size = len(self._members.ranks)
        return communication_row(
            self._virtual_rank, kind, num_bytes, self._members.name, size, source, blocking=blocking
        )  # fmt: skip

    def _posted(self, work: VirtualWork) -> VirtualWork:
        if self._coalescing is not None:
            self._coalescing.append(work)
        return work

    def _check_pieces(self, kind: str, name: str, pieces: list[torch.Tensor], mine: torch.Tensor) -> None:
        if len(pieces) != self.size():
            raise RuntimeError(f"{kind} got a {name} of {len(pieces)} tensors on {self.size()} ranks; give one each.")
        for place, piece in enumerate(pieces):
            if piece.numel() != mine.numel() or piece.dtype != mine.dtype:
                raise RuntimeError(
                    f"{kind}: tensor {place} of the {name} has {_shapes([piece])}, this rank's own {_shapes([mine])}; "
                    "all ranks must bring the same number of elements and the same dtype."
                )


def create_group(options: Any, backend_options: Any) -> VirtualGroup:
    """Return the group torch asks for, in the thread of a rank (extended API of register_backend)."""
    rank = the_rank()
    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    world_size = rank.simulation.cluster.world_size
    label = "the default group" if len(ranks) == world_size else f"the group of ranks {_listing(ranks)}"
    return VirtualGroup(rank, Members(str(options.group_id), ranks, label), options.group_rank)


def _listing(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown}, ... ({len(ranks)} ranks)"


def _listed(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _on_cpu(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    for tensor in tensors:
        if tensor.device.type not in ("cpu", "meta"):
            raise RuntimeError(
                f"A tensor on {tensor.device} came to the virtual cluster, whose ranks compute on the CPU or on meta; "
                "make tensors on labkit.device()."
            )
    return tensors


def _num_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _shapes(tensors: Sequence[torch.Tensor]) -> str:
    shown = [f"{tensor.numel()} x {str(tensor.dtype).removeprefix('torch.')}" for tensor in tensors]
    if len(set(shown)) == 1 and len(shown) > 1:
        return f"{len(shown)} tensors of {shown[0]}"
    return ", ".join(shown)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _reduced(parts: list[Part], op: str) -> list[torch.Tensor]:
    places = range(len(parts[0].inputs))
    return [reduce_tensors([part.inputs[place] for part in parts], op) for place in places]


def _rows(tensor: torch.Tensor, sizes: Sequence[int] | None, world_size: int, name: str) -> list[torch.Tensor]:
    if not sizes:
        if tensor.size(0) % world_size:
            raise RuntimeError(
                f"all_to_all_single: {tensor.size(0)} rows of the {name} do not divide among {world_size} ranks; "
                "give split sizes."
            )
        sizes = [tensor.size(0) // world_size] * world_size
    if sum(sizes) != tensor.size(0):
        raise RuntimeError(
            f"all_to_all_single: {name} split sizes add up to {sum(sizes)}, and the {name} has {tensor.size(0)} rows."
        )
    return list(torch.split(tensor.detach(), list(sizes)))
