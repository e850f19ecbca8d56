"""c10d's entry points: every communication method of ProcessGroup in torch 2.11 to 2.15, under all its names.

One :class:`Operation` for each thing a group can do. The process-group adapter answers all of an operation's names with
one method; the recording of local ranks reads from the same table what a call is called and how many bytes it moves.

The size of a collective is the one nccl-tests prints: the whole tensor for all_reduce, broadcast and reduce, the
gathered tensor for all_gather and gather, the tensor before scattering for reduce_scatter and scatter, and for
all_to_all the larger of what goes in and what comes out.

Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.torch_port.gaps import check_all_dense, check_all_in_order
from labkit.torch_port.peers import check_peer


def nested_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a tensor or nested sequences of tensors."""
    if isinstance(value, Sequence):
        return sum(nested_bytes(item) for item in value)
    return int(value.numel() * value.element_size()) if hasattr(value, "numel") else 0


def _dtype_in(value: Any) -> str:
    """Return the dtype of the first tensor in nested sequences, "" where there is none."""
    if isinstance(value, Sequence):
        return next(filter(None, map(_dtype_in, value)), "")
    return str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") else ""


def _first(args: Sequence[Any], world_size: int) -> int:
    return nested_bytes(args[0])


def _second(args: Sequence[Any], world_size: int) -> int:
    return nested_bytes(args[1])


def _second_times_size(args: Sequence[Any], world_size: int) -> int:
    return nested_bytes(args[1]) * world_size


def _first_times_size(args: Sequence[Any], world_size: int) -> int:
    return nested_bytes(args[0]) * world_size


def _larger(args: Sequence[Any], world_size: int) -> int:
    return max(nested_bytes(args[0]), nested_bytes(args[1]))


def _nothing(args: Sequence[Any], world_size: int) -> int:
    return 0


@dataclass(frozen=True)
class Operation:
    """One thing that a process group does.

    Attributes:
        methods: Its names as a method of ProcessGroup: the one of every torch first, those of single versions after it.
        kind: c10d's word for it.
        size: Bytes of the payload from the positional arguments and the size of the group.
        parameters: Names of the leading arguments, for calls that pass them by keyword.
        point_to_point: Whether it is a send or a receive.
        names: What a call says of the rank it names, such as "send to"; "" where it names none.
        as_memory: How many of the leading arguments gloo takes for memory without gaps, and does not look.
        in_order: How many of them it takes for memory in the order of the elements, and does not look.
    """

    methods: tuple[str, ...]
    kind: str
    size: Callable[[Sequence[Any], int], int]
    parameters: tuple[str, ...]
    point_to_point: bool = False
    names: str = ""
    as_memory: int = 0
    in_order: int = 0

    @property
    def method(self) -> str:
        """The name it has in every torch."""
        return self.methods[0]

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leading arguments in order, wherever they were passed."""
        if not kwargs:
            return list(args)
        found = list(args)
        for name in self.parameters[len(args) :]:
            if name in kwargs:
                found.append(kwargs[name])
        return found

    def check(self, arguments: Sequence[Any], kwargs: Mapping[str, Any], size: int) -> None:
        """Raise an error where gloo would read or write beyond what it was given, and not say so.

        Raises:
            NoSuchRank: If the call names a rank that a group of this size does not have.
            RuntimeError: If gloo would take the memory between the elements of a tensor for elements.
        """
        if self.as_memory:
            check_all_dense(self.kind, arguments[: self.as_memory])
        if self.in_order:
            check_all_in_order(self.kind, arguments[: self.in_order])
        if not self.names:
            return
        if self.point_to_point:
            check_peer(self.names, int(arguments[1]), size)
            return
        root = self.root(arguments, kwargs)
        if root is not None:
            check_peer(self.names, root, size)

    def root(self, arguments: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
        """Return the group rank that a collective's options name, None where they name none."""
        if self.names and not self.point_to_point:
            for value in (*reversed(arguments), *kwargs.values()):
                root = getattr(value, "rootRank", None)
                if root is not None:
                    return int(root)
        return None

    def meaning(self, arguments: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return what ranks must agree on besides the operation and the size: "SUM of float32", "int64", or ""."""
        dtype = _dtype_in(arguments)
        for value in (*reversed(arguments), *kwargs.values()):
            if hasattr(value, "reduceOp"):
                from labkit.torch_port.reduction import op_name

                return f"{op_name(value, 'gloo')} of {dtype}"
        return dtype

    def is_blocking(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether the caller asked to stay in the collective until it is complete."""
        if self.method == "monitored_barrier":
            return True
        for value in (*reversed(args), *kwargs.values()):
            asynchronous = getattr(value, "asyncOp", None)
            if asynchronous is not None:
                return not asynchronous
        return False


_TENSORS = ("tensors",)
_INTO = ("output_tensors", "input_tensors")
_LISTS = ("output_lists", "input_list")
_SINGLE = ("output", "input")
_NAMED = ("outputTensor", "inputTensor")
_MANY = ("outputs", "inputs")

COLLECTIVES = (
    Operation(("allreduce",), "all_reduce", _first, _TENSORS, as_memory=1),
    Operation(("allreduce_coalesced",), "all_reduce_coalesced", _first, _TENSORS),
    Operation(("broadcast",), "broadcast", _first, _TENSORS, names="broadcast from", as_memory=1),
    Operation(("reduce",), "reduce", _first, _TENSORS, names="reduce to", as_memory=1),
    Operation(("allgather",), "all_gather", _first, _INTO),
    Operation(("allgather_coalesced",), "all_gather_coalesced", _first, _LISTS),
    Operation(("_allgather_base", "all_gather_single"), "all_gather_into_tensor", _first, _SINGLE),
    Operation(
        ("allgather_into_tensor_coalesced", "all_gather_single_coalesced"),
        *("all_gather_into_tensor_coalesced", _first, _MANY),
    ),
    Operation(("reduce_scatter",), "reduce_scatter", _second, _INTO, as_memory=1, in_order=2),
    Operation(("_reduce_scatter_base", "reduce_scatter_single"), "reduce_scatter_tensor", _second, _NAMED),
    Operation(
        ("reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
        *("reduce_scatter_tensor_coalesced", _second, _MANY),
    ),
    Operation(("gather",), "gather", _second_times_size, _INTO, names="gather to"),
    Operation(("gather_into_tensor", "gather_single"), "gather", _second_times_size, _SINGLE, names="gather to"),
    Operation(("scatter",), "scatter", _first_times_size, _INTO, names="scatter from", as_memory=2, in_order=2),
    Operation(("alltoall",), "all_to_all", _larger, _INTO),
    Operation(("alltoall_base", "all_to_all_single"), "all_to_all_single", _larger, _SINGLE, as_memory=1),
    Operation(("barrier",), "barrier", _nothing, ()),
    Operation(("monitored_barrier",), "monitored_barrier", _nothing, ()),
)
"""The ``..._single`` names are there from torch 2.13 on, those of ``gather`` in one tensor from 2.15 on."""

POINT_TO_POINT = (
    Operation(("send",), "isend", _first, ("tensors", "dstRank", "tag"), True, "send to"),
    Operation(("recv",), "irecv", _first, ("tensors", "srcRank", "tag"), True, "recv from"),
    Operation(("recv_anysource",), "irecv", _first, ("tensors", "tag"), True),
)
"""The kind is that of the asynchronous call; ``dist.send`` and ``dist.recv`` are told apart by who called."""

BY_KIND = {operation.kind: operation for operation in COLLECTIVES}
"""c10d's word for a collective -> what it is."""

OPERATIONS = (*COLLECTIVES, *POINT_TO_POINT)
