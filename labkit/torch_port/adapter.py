"""The process group that stands on a :class:`Port`: c10d's entry points, under all their names.

torch calls a group from Python and, for DDP's reducer and functional collectives, from C++; both find the methods by
name. Each method here puts a call's arguments in order, refuses what one rank can see to be wrong, and hands on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.torch_port.handles import JointHandle
from labkit.torch_port.operations import COLLECTIVES, Operation
from labkit.torch_port.peers import check_peer
from labkit.torch_port.pieces import check_dtypes, check_pieces, flat, listed, rows_of
from labkit.torch_port.port import Call, Members, Port
from labkit.torch_port.reduction import op_name

Tensors = Sequence[torch.Tensor]

_ProcessGroup: Any = dist.ProcessGroup  # its typed signatures differ from version to version


class PortGroup(_ProcessGroup):  # type: ignore[misc]
    """A process group over a port.

    Attributes:
        devices: The kinds of devices whose tensors it says it moves.
    """

    def __init__(self, backend: str, members: Members, port: Port) -> None:
        """Make the group of one rank.

        Args:
            backend: The name it is registered under.
            members: Its ranks.
            port: Carries its operations out.
        """
        super().__init__(members.group_rank, len(members.ranks))
        self._backend, self._members, self._port = backend, members, port
        self._num_ranks, self._group_rank = len(members.ranks), members.group_rank
        self._coalescing: list[Any] | None = None
        self.devices = [torch.device("cpu"), torch.device("meta")]

    def getBackendName(self) -> str:  # noqa: N802
        """Return the name of the backend."""
        return self._backend

    @property
    def group_name(self) -> str:
        """The name torch registered this group under."""
        return self._members.name

    @property
    def pg_name(self) -> str:
        """The same, as older code asks for it."""
        return self._members.name

    @property
    def _device_types(self) -> list[torch.device]:
        """The devices whose tensors it moves: object collectives and asynchronous checkpoints ask for the CPU's."""
        return self.devices

    def _get_backend(self, device: torch.device) -> SimpleNamespace:
        """Return what torch 2.15 asks a group's backend for: whether it joins messages, or can be split."""
        return SimpleNamespace(supports_coalescing=False, supports_splitting=False, name=self.getBackendName)

    # ---- point to point

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Any:
        """Post a send to a rank of the group."""
        if not 0 <= dst < self._num_ranks:
            check_peer("send to", dst, self._num_ranks)
        work = self._port.send(tensors[0], dst, tag)
        return work if self._coalescing is None else self._posted(work)

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Any:
        """Post a receive from a rank of the group."""
        if not 0 <= src < self._num_ranks:
            check_peer("recv from", src, self._num_ranks)
        work = self._port.receive(tensors[0], src, tag)
        return work if self._coalescing is None else self._posted(work)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        """Post a receive from whichever rank sends."""
        return self._posted(self._port.receive(tensors[0], None, tag))

    # ---- coalescing, which changes nothing here but the handle

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> JointHandle:
        works, self._coalescing = self._coalescing or [], None
        return JointHandle(works)

    def _posted(self, work: Any) -> Any:
        if self._coalescing is not None and work is not None:
            self._coalescing.append(work)
        return work

    # ---- collectives: what each gets from torch, made what the port takes

    def _root(self, operation: Operation, opts: Any) -> int:
        return check_peer(operation.names, int(opts.rootRank), self._num_ranks)

    def _op(self, opts: Any) -> str:
        return op_name(opts, self._backend)

    def _all_reduce(self, call: Call, _: Operation, tensors: Any, opts: Any = None, *__: Any) -> Any:
        return self._port.all_reduce(call, listed(tensors), self._op(opts))

    def _reduce(self, call: Call, operation: Operation, tensors: Any, opts: Any = None, *_: Any) -> Any:
        return self._port.reduce(call, listed(tensors), self._op(opts), self._root(operation, opts))

    def _broadcast(self, call: Call, operation: Operation, tensors: Any, opts: Any = None, *_: Any) -> Any:
        return self._port.broadcast(call, listed(tensors), self._root(operation, opts))

    def _all_gather(self, call: Call, _: Operation, outputs: Any, inputs: Any, opts: Any = None, *__: Any) -> Any:
        mine, outs = listed(inputs), flat(outputs)
        check_pieces(call.kind, "output list", outs, mine[0], self._num_ranks)
        return self._port.all_gather(call, [[out] for out in outs], mine)

    def _all_gather_lists(self, call: Call, _: Operation, outputs: Any, inputs: Tensors, opts: Any = None) -> Any:
        return self._port.all_gather(call, [list(row) for row in outputs], list(inputs))

    def _all_gather_single(
        self, call: Call, operation: Operation, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Any:
        return self._all_gather_singles(call, operation, [output], [input], opts)

    def _all_gather_singles(self, call: Call, _: Operation, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        for output, mine in zip(outputs, inputs, strict=True):
            check_dtypes(call.kind, output, mine)
            if output.numel() != mine.numel() * self._num_ranks:
                raise RuntimeError(
                    f"{call.kind} of {mine.numel()} elements on {self._num_ranks} ranks gives "
                    f"{mine.numel() * self._num_ranks}, and the output has {output.numel()}."
                )
        return self._port.all_gather_joined(call, list(outputs), list(inputs))

    def _gather(self, call: Call, operation: Operation, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> Any:
        mine, root = listed(inputs)[0], self._root(operation, opts)
        outs = flat(outputs) if self._group_rank == root else []
        if self._group_rank == root:
            check_pieces(call.kind, "gather_list", outs, mine, self._num_ranks)
        return self._port.gather(call, outs, mine, root)

    def _gather_single(
        self, call: Call, operation: Operation, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Any:
        pieces = output.detach().view(-1).chunk(self._num_ranks)
        return self._gather(call, operation, [pieces], [input.detach().reshape(-1)], opts)

    def _scatter(self, call: Call, operation: Operation, outputs: Any, inputs: Any, opts: Any = None, *_: Any) -> Any:
        out, root = listed(outputs)[0], self._root(operation, opts)
        given = flat(inputs) if self._group_rank == root else []
        if self._group_rank == root:
            check_pieces(call.kind, "scatter_list", given, out, self._num_ranks)
        return self._port.scatter(call, out, given, root)

    def _reduce_scatter(self, call: Call, _: Operation, outputs: Any, inputs: Any, opts: Any = None, *__: Any) -> Any:
        out, given, rank = listed(outputs)[0], flat(inputs), self._group_rank
        if len(given) != self._num_ranks:
            raise RuntimeError(f"{call.kind} got {len(given)} tensors on {self._num_ranks} ranks; give one for each.")
        if given[rank].numel() != out.numel():
            raise RuntimeError(
                f"{call.kind}: piece {rank} has {given[rank].numel()} elements, "
                f"and the output of that rank {out.numel()}."
            )
        return self._port.reduce_scatter(call, out, given, self._op(opts))

    def _reduce_scatter_single(
        self, call: Call, operation: Operation, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Any:
        return self._reduce_scatter_singles(call, operation, [output], [input], opts)

    def _reduce_scatter_singles(
        self, call: Call, _: Operation, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Any:
        size = self._num_ranks
        for output, given in zip(outputs, inputs, strict=True):
            check_dtypes(call.kind, output, given)
            if output.numel() * size != given.numel():
                raise RuntimeError(
                    f"{call.kind} of {given.numel()} elements on {size} ranks leaves each {given.numel() / size:g}, "
                    f"and the output has {output.numel()}."
                )
        return self._port.reduce_scatter_joined(call, list(outputs), list(inputs), self._op(opts))

    def _all_to_all(self, call: Call, _: Operation, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        for name, tensors in (("output", outputs), ("input", inputs)):
            if len(tensors) != self._num_ranks:
                raise RuntimeError(
                    f"{call.kind} got {len(tensors)} {name} tensors on {self._num_ranks} ranks; give one each."
                )
        return self._port.all_to_all(call, list(outputs), list(inputs))

    def _all_to_all_single(
        self,
        call: Call,
        operation: Operation,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: Any = None,
    ) -> Any:
        if not (output.is_contiguous() and input.is_contiguous()):
            raise ValueError(
                f"{call.kind}: Tensors must be contiguous; pass tensor.contiguous()."
            )  # as gloo and NCCL do
        outs = rows_of(output, output_split_sizes, self._num_ranks, "output")
        given = rows_of(input, input_split_sizes, self._num_ranks, "input")
        return self._all_to_all(call, operation, outs, given, opts)

    def _barrier(self, call: Call, _: Operation, opts: Any = None) -> Any:
        return self._port.barrier(call)

    def _monitored_barrier(self, call: Call, _: Operation, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait until every rank has come here; those that never do are named by the report of a deadlock."""
        work = self._port.barrier(call)
        if timeout:
            work.wait(timeout)
        else:
            work.wait()


def port_of(group: PortGroup) -> Port:
    """Return the port that a group stands on."""
    return group._port


_METHODS: dict[str, Callable[..., Any]] = {
    "allreduce": PortGroup._all_reduce,
    "allreduce_coalesced": PortGroup._all_reduce,
    "reduce": PortGroup._reduce,
    "broadcast": PortGroup._broadcast,
    "allgather": PortGroup._all_gather,
    "allgather_coalesced": PortGroup._all_gather_lists,
    "_allgather_base": PortGroup._all_gather_single,
    "allgather_into_tensor_coalesced": PortGroup._all_gather_singles,
    "gather": PortGroup._gather,
    "gather_into_tensor": PortGroup._gather_single,
    "scatter": PortGroup._scatter,
    "reduce_scatter": PortGroup._reduce_scatter,
    "_reduce_scatter_base": PortGroup._reduce_scatter_single,
    "reduce_scatter_tensor_coalesced": PortGroup._reduce_scatter_singles,
    "alltoall": PortGroup._all_to_all,
    "alltoall_base": PortGroup._all_to_all_single,
    "barrier": PortGroup._barrier,
    "monitored_barrier": PortGroup._monitored_barrier,
}
"""Name of each collective in every torch -> what it becomes."""


def _entry(name: str, operation: Operation, become: Callable[..., Any]) -> Callable[..., Any]:
    waits, stays = Call(operation.kind, True), Call(operation.kind, False)

    def entry(self: PortGroup, *args: Any, **kwargs: Any) -> Any:
        call = waits if operation.is_blocking(args, kwargs) else stays
        return self._posted(become(self, call, operation, *args, **kwargs))

    entry.__name__ = name
    return entry


for _operation in COLLECTIVES:
    for _name in _operation.methods:
        setattr(PortGroup, _name, _entry(_name, _operation, _METHODS[_operation.method]))
