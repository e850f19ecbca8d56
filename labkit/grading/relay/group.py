# mypy: disable-error-code="override,assignment,no-untyped-call"
"""The `relay` backend of torch.distributed: a process group whose every byte passes the trusted side.

Registered with ``dist.Backend.register_backend("relay", ...)``; the numbers it brings are those of gloo up to the order
of floating-point additions (here always by rank).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from labkit.grading.frames import Frame
from labkit.grading.relay.client import Payload, RelayClient
from labkit.grading.relay.records import ANY_SOURCE
from labkit.grading.relay.tensors import (
    Tensors,
    bytes_of,
    combine,
    joined,
    like,
    nothing,
    num_bytes,
    op_of,
    single,
    write,
    write_all,
)
from labkit.grading.relay.work import RelayWork
from labkit.torch_port.peers import check_peer


class RelayGroup(dist.ProcessGroup):
    """A process group over the relay.

    Args:
        client: This rank's end of the relay.
        name: The group's name, equal on all its ranks.
        members: Global rank of each group rank.
        rank: This process's rank in the group.
    """

    def __init__(self, client: RelayClient, name: str, members: Sequence[int], rank: int) -> None:
        super().__init__(rank, len(members))  # type: ignore[call-arg]
        self._client = client
        self._members = list(members)
        self._name = f"{name}:{','.join(str(member) for member in members)}"
        self._my_rank = rank

    def getBackendName(self) -> str:  # noqa: N802
        """Return "relay"."""
        return "relay"

    def _get_backend(self, device: torch.device) -> SimpleNamespace:
        """Return what torch 2.15 asks a group's backend for: whether it joins messages, or can be split."""
        return SimpleNamespace(supports_coalescing=False, supports_splitting=False)

    @property
    def group_name(self) -> str:
        """The name torch registered this group under."""
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def pg_name(self) -> str:
        """The name torch registered this group under."""
        return self.group_name

    # ---- point to point

    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> RelayWork:
        """Post a send; the buffer is read when the work is waited for, or when no rank can go on without it."""
        tensor = single(tensors)
        before = bytes(bytes_of(tensor))
        peer = self._members[check_peer("send to", dst, self.size())]
        header = {"op": "send", "peer": peer, "tag": tag, **self._about(tensor)}
        number = self._client.post(header, lambda: bytes_of(tensor))
        return RelayWork(
            self._client, number, lambda answer: None, [tensor], changed=lambda: before != bytes_of(tensor)
        )

    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> RelayWork:
        """Post a receive; the tensor is written when the work is waited for."""
        return self._receive(tensors, self._members[check_peer("recv from", src, self.size())], tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> RelayWork:
        """Post a receive from whichever rank sends."""
        return self._receive(tensors, ANY_SOURCE, tag)

    def _receive(self, tensors: Tensors, peer: int, tag: int) -> RelayWork:
        tensor = single(tensors)
        number = self._client.post({"op": "recv", "peer": peer, "tag": tag, **self._about(tensor)})

        def finish(answer: Frame) -> None:
            write(tensor, answer.payload)

        return RelayWork(self._client, number, finish, [tensor], self._members.index)

    def _root(self, call: str, opts: Any) -> int:
        return check_peer(call, int(opts.rootRank), self.size())

    def _about(self, tensor: torch.Tensor) -> dict[str, object]:
        size = tensor.numel() * tensor.element_size()
        return {"group": self._name, "bytes": size, "dtype": str(tensor.dtype).removeprefix("torch.")}

    # ---- collectives, all made of one exchange: each rank gives every rank some bytes

    def _exchange(
        self,
        name: str,
        give: Callable[[], list[torch.Tensor]],
        take: Callable[[list[memoryview]], None],
        num_bytes: int,
        result: Tensors = (),
    ) -> RelayWork:
        def read() -> tuple[list[int], Payload]:
            parts = [bytes(bytes_of(part)) for part in give()]
            return [len(part) for part in parts], b"".join(parts)

        def finish(answer: Frame) -> None:
            view, pieces, start = memoryview(answer.payload), [], 0
            for size in answer.header["sizes"]:
                pieces.append(view[start : start + size])
                start += size
            with torch.no_grad():
                take(pieces)

        number = self._client.post_collective({"group": self._name, "name": name, "bytes": num_bytes}, read)
        return RelayWork(self._client, number, finish, result)

    def allreduce(self, tensors: Tensors, opts: Any = None, *_: object) -> RelayWork:
        """Reduce each tensor over all ranks, in place."""
        return self._all_reduce("all_reduce", tensors, op_of(opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> RelayWork:
        """Reduce several tensors over all ranks, in place."""
        return self._all_reduce("all_reduce", tensors, op_of(opts))

    def _all_reduce(self, name: str, tensors: Tensors, op: Any, root: int | None = None) -> RelayWork:
        tensors = [tensor.detach() for tensor in tensors]
        sizes = [num_bytes(tensor) for tensor in tensors]

        def take(pieces: list[memoryview]) -> None:
            if root not in (None, self._my_rank):
                return
            start = 0
            for tensor, size in zip(tensors, sizes, strict=True):
                parts = [like(tensor, piece[start : start + size]) for piece in pieces]
                tensor.copy_(combine(parts, op))
                start += size

        return self._exchange(name, lambda: [joined(tensors)], take, sum(sizes), tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> RelayWork:
        """Reduce to one rank."""
        return self._all_reduce("reduce", tensors, op_of(opts), self._root("reduce to", opts))

    def broadcast(self, tensors: Tensors, opts: Any) -> RelayWork:
        """Give everybody the root's tensor."""
        root, tensor = self._root("broadcast from", opts), tensors[0].detach()
        mine = self._my_rank == root

        def take(pieces: list[memoryview]) -> None:
            if not mine:
                write(tensor, pieces[root])

        return self._exchange("broadcast", lambda: [tensor if mine else nothing()], take, num_bytes(tensor), [tensor])

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> RelayWork:
        """Give everybody everybody's tensor."""
        outs = [out.detach() for out in outputs[0]]
        mine = inputs[0].detach()
        return self._exchange("all_gather", lambda: [mine], lambda p: write_all(outs, p), num_bytes(mine), outs)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> RelayWork:
        """Give everybody everybody's tensor, joined in one."""
        out, mine = output.detach(), input.detach()
        return self._exchange(
            "all_gather", lambda: [mine], lambda pieces: write(out, b"".join(pieces)), num_bytes(mine), [out]
        )

    _allgather_base = all_gather_single

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> RelayWork:
        """Give everybody everybody's tensors."""
        works = [self.allgather([[row[i] for row in outputs]], [mine], opts) for i, mine in enumerate(inputs)]
        return _last(works)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RelayWork:
        """Give everybody everybody's tensors, each joined in one."""
        return _last([self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> RelayWork:
        """Give the root everybody's tensor."""
        root, mine = self._root("gather to", opts), inputs[0].detach()
        outs = [out.detach() for out in outputs[0]] if self._my_rank == root else []

        def give() -> list[torch.Tensor]:
            return [mine if member == root else nothing() for member in range(self.size())]

        def take(pieces: list[memoryview]) -> None:
            if self._my_rank == root:
                write_all(outs, pieces)

        return self._exchange("gather", give, take, num_bytes(mine), outs)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> RelayWork:
        """Give each rank its part of the root's list."""
        root, out = self._root("scatter from", opts), outputs[0].detach()
        mine = self._my_rank == root
        parts = [part.detach() for part in inputs[0]] if mine else []
        return self._exchange(
            "scatter",
            lambda: parts if mine else [nothing()],
            lambda pieces: write(out, pieces[root]),
            num_bytes(out),
            [out],
        )

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> RelayWork:
        """Reduce lists of tensors and leave each rank its own."""
        out, parts, op = outputs[0].detach(), [part.detach() for part in inputs[0]], op_of(opts)

        def take(pieces: list[memoryview]) -> None:
            out.copy_(combine([like(out, piece) for piece in pieces], op))

        return self._exchange("reduce_scatter", lambda: parts, take, sum(map(num_bytes, parts)), [out])

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> RelayWork:
        """Reduce a tensor and leave each rank its piece."""
        return self.reduce_scatter([output], [list(input.detach().reshape(-1).chunk(self.size()))], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RelayWork:
        """Reduce several tensors and leave each rank its pieces."""
        return _last([self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> RelayWork:
        """Give each rank its own tensor."""
        outs, parts = [out.detach() for out in outputs], [part.detach() for part in inputs]
        return self._exchange(
            "all_to_all", lambda: parts, lambda pieces: write_all(outs, pieces), sum(map(num_bytes, parts)), outs
        )

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> RelayWork:
        """Give each rank its rows of one tensor."""
        size = self.size()
        outs = list(output.detach().split(output_split_sizes or [output.size(0) // size] * size))
        parts = list(input.detach().split(input_split_sizes or [input.size(0) // size] * size))
        return self.alltoall(outs, parts, opts)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None) -> RelayWork:
        """Wait until every rank has come here."""
        return self._exchange("barrier", lambda: [nothing()], lambda pieces: None, 0)


def _last(works: list[RelayWork]) -> RelayWork:
    for work in works[:-1]:
        work.wait()
    return works[-1]


def register(client: RelayClient) -> None:
    """Make `relay` a backend of this process; `dist.init_process_group("relay", ...)` then uses `client`."""

    def create(options: Any, backend_options: object) -> RelayGroup:
        members = list(options.global_ranks_in_group) or list(range(options.group_size))
        return RelayGroup(client, str(options.group_id), members, options.group_rank)

    client.futures.install()
    dist.Backend.register_backend("relay", create, extended_api=True, devices=["cpu"])
