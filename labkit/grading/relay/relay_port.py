"""The `relay` backend of torch.distributed: a port whose every byte passes the trusted side.

The numbers it brings are those of gloo up to the order of floating-point additions (here always by rank).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from labkit.grading.frames import Frame
from labkit.grading.relay.client import Payload, RelayClient
from labkit.grading.relay.records import ANY_SOURCE
from labkit.grading.relay.relay_work import RelayWork
from labkit.grading.relay.tensors import bytes_of, is_carried, joined, like, nothing, num_bytes, write, write_all
from labkit.torch_port import backend
from labkit.torch_port.port import Call, Members, Port
from labkit.torch_port.reduction import reduce_tensors

Tensors = list[torch.Tensor]


class RelayPort(Port):
    """One rank's end of a group over the relay.

    Args:
        client: This rank's end of the relay.
        members: The group.
    """

    def __init__(self, client: RelayClient, members: Members) -> None:
        self._client = client
        self._ranks = members.ranks
        self._name = f"{members.name}:{','.join(str(rank) for rank in members.ranks)}"
        self._group_rank = members.group_rank

    # ---- point to point

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> RelayWork:
        """Post a send; the buffer is read when the work is waited for, or when no rank can go on without it."""
        is_carried(tensor)
        before = bytes(bytes_of(tensor))
        header = {"op": "send", "peer": self._ranks[peer], "tag": tag, **self._about(tensor)}
        number = self._client.post(header, lambda: bytes_of(tensor))
        return RelayWork(
            self._client, number, lambda answer: None, [tensor], changed=lambda: before != bytes_of(tensor)
        )

    def receive(self, tensor: torch.Tensor, peer: int | None, tag: int) -> RelayWork:
        """Post a receive; the tensor is written when the work is waited for."""
        is_carried(tensor)
        source = ANY_SOURCE if peer is None else self._ranks[peer]
        number = self._client.post({"op": "recv", "peer": source, "tag": tag, **self._about(tensor)})

        def finish(answer: Frame) -> None:
            write(tensor, answer.payload)

        return RelayWork(self._client, number, finish, [tensor], self._ranks.index)

    def _about(self, tensor: torch.Tensor) -> dict[str, object]:
        return {"group": self._name, "bytes": num_bytes(tensor), "dtype": str(tensor.dtype).removeprefix("torch.")}

    # ---- collectives, all made of one exchange: each rank gives every rank some bytes

    def _exchange(
        self,
        name: str,
        give: Callable[[], Tensors],
        take: Callable[[list[memoryview]], None],
        num_bytes: int,
        result: Tensors,
    ) -> RelayWork:
        given = [bytes(bytes_of(part)) for part in give()]  # what is written into it later was not sent

        def read() -> tuple[list[int], Payload, bool]:
            changed = given != [bytes(bytes_of(part)) for part in give()]
            return [len(part) for part in given], b"".join(given), changed

        def finish(answer: Frame) -> None:
            view, pieces, start = memoryview(answer.payload), [], 0
            for size in answer.header["sizes"]:
                pieces.append(view[start : start + size])
                start += size
            with torch.no_grad():
                take(pieces)

        number = self._client.post_collective({"group": self._name, "name": name, "bytes": num_bytes}, read)
        return RelayWork(self._client, number, finish, result)

    def all_reduce(self, call: Call, tensors: Tensors, op: str) -> RelayWork:
        """Reduce each tensor over all ranks, in place."""
        return self._reduced("all_reduce", tensors, op, self._group_rank)

    def reduce(self, call: Call, tensors: Tensors, op: str, root: int) -> RelayWork:
        """Reduce to one rank."""
        return self._reduced("reduce", tensors, op, root)

    def _reduced(self, name: str, tensors: Tensors, op: str, root: int) -> RelayWork:
        tensors = [tensor.detach() for tensor in tensors]
        sizes = [num_bytes(tensor) for tensor in tensors]

        def take(pieces: list[memoryview]) -> None:
            start = 0
            for tensor, size in zip(tensors, sizes, strict=True):
                if self._group_rank == root:
                    parts = [like(tensor, piece[start : start + size]) for piece in pieces]
                    tensor.copy_(reduce_tensors(parts, op))
                start += size

        return self._exchange(name, lambda: [joined(tensors)], take, sum(sizes), tensors)

    def broadcast(self, call: Call, tensors: Tensors, root: int) -> RelayWork:
        """Give everybody the root's tensor."""
        tensor, mine = tensors[0].detach(), self._group_rank == root

        def take(pieces: list[memoryview]) -> None:
            if not mine:
                write(tensor, pieces[root])

        return self._exchange("broadcast", lambda: [tensor if mine else nothing()], take, num_bytes(tensor), [tensor])

    def all_gather(self, call: Call, outputs: Sequence[Tensors], inputs: Tensors) -> RelayWork:
        """Give everybody everybody's tensors."""
        return _last([self._gathered_by_all([row[i] for row in outputs], mine) for i, mine in enumerate(inputs)])

    def _gathered_by_all(self, outputs: Tensors, mine: torch.Tensor) -> RelayWork:
        outs, given = [out.detach() for out in outputs], mine.detach()
        return self._exchange("all_gather", lambda: [given], lambda p: write_all(outs, p), num_bytes(given), outs)

    def all_gather_joined(self, call: Call, outputs: Tensors, inputs: Tensors) -> RelayWork:
        """Give everybody everybody's tensors, each joined in one."""
        return _last([self._joined_by_all(out, mine) for out, mine in zip(outputs, inputs, strict=True)])

    def _joined_by_all(self, output: torch.Tensor, mine: torch.Tensor) -> RelayWork:
        out, given = output.detach(), mine.detach()
        return self._exchange(
            "all_gather", lambda: [given], lambda pieces: write(out, b"".join(pieces)), num_bytes(given), [out]
        )

    def gather(self, call: Call, outputs: Tensors, given: torch.Tensor, root: int) -> RelayWork:
        """Give the root everybody's tensor."""
        mine, outs = given.detach(), [out.detach() for out in outputs]

        def give() -> Tensors:
            return [mine if member == root else nothing() for member in range(len(self._ranks))]

        def take(pieces: list[memoryview]) -> None:
            if self._group_rank == root:
                write_all(outs, pieces)

        return self._exchange("gather", give, take, num_bytes(mine), outs)

    def scatter(self, call: Call, output: torch.Tensor, given: Tensors, root: int) -> RelayWork:
        """Give each rank its part of the root's list."""
        out, parts = output.detach(), [part.detach() for part in given]
        return self._exchange(
            "scatter",
            lambda: parts if self._group_rank == root else [nothing()],
            lambda pieces: write(out, pieces[root]),
            num_bytes(out),
            [out],
        )

    def reduce_scatter(self, call: Call, output: torch.Tensor, given: Tensors, op: str) -> RelayWork:
        """Reduce lists of tensors and leave each rank its own."""
        out, parts = output.detach(), [part.detach() for part in given]

        def take(pieces: list[memoryview]) -> None:
            out.copy_(reduce_tensors([like(out, piece) for piece in pieces], op))

        return self._exchange("reduce_scatter", lambda: parts, take, sum(map(num_bytes, parts)), [out])

    def reduce_scatter_joined(self, call: Call, outputs: Tensors, inputs: Tensors, op: str) -> RelayWork:
        """Reduce tensors and leave each rank its pieces."""
        size = len(self._ranks)
        return _last(
            [
                self.reduce_scatter(call, out, list(given.detach().reshape(-1).chunk(size)), op)
                for out, given in zip(outputs, inputs, strict=True)
            ]
        )

    def all_to_all(self, call: Call, outputs: Tensors, inputs: Tensors) -> RelayWork:
        """Give each rank its own tensor."""
        outs, parts = [out.detach() for out in outputs], [part.detach() for part in inputs]
        return self._exchange(
            "all_to_all", lambda: parts, lambda pieces: write_all(outs, pieces), sum(map(num_bytes, parts)), outs
        )

    def barrier(self, call: Call) -> RelayWork:
        """Wait until every rank has come here."""
        return self._exchange("barrier", lambda: [nothing()], lambda pieces: None, 0, [])


def _last(works: list[RelayWork]) -> RelayWork:
    for work in works[:-1]:
        work.wait()
    return works[-1]


def register(client: RelayClient, devices: Sequence[str] = ("cpu",)) -> None:
    """Make `relay` a backend of this process; `dist.init_process_group("relay", ...)` then uses `client`.

    Args:
        client: This rank's end of the relay.
        devices: Kinds of devices whose tensors it carries; what a GPU holds goes through host memory.
    """
    client.futures.install()
    backend.register("relay", lambda members: RelayPort(client, members), devices)
