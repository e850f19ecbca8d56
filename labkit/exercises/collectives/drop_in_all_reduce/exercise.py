"""A drop-in for dist.all_reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.case import Case, Failure, Value, Values
from labkit.checks.declared import declared
from labkit.checks.finding import Finding
from labkit.checks.structure import and_more
from labkit.checks.traffic import library_calls, lost_messages
from labkit.checks.wire import Wire
from labkit.exercises.collectives.drop_in_all_reduce.driver import drive
from labkit.exercises.sums_over_ranks.on_ranks import view_of
from labkit.exercises.sums_over_ranks.sum_mistakes import common, is_scaled, sum_mistake
from labkit.exercises.sums_over_ranks.sum_outcome import SumOutcome, sum_outcome, wrong_sums
from labkit.exercises.sums_over_ranks.sums import (
    base_of,
    expected_bases,
    fractions,
    layout_of,
    least_traffic,
    members_of,
    op_of,
    reduce_case,
    whole_numbers,
)
from labkit.exercises.sums_over_ranks.traffic import chunk_bytes, outsiders, ring_traffic
from labkit.exercises.sums_over_ranks.world_sizes import ring_steps, sweep

_OUTSIDER, _BESIDE, _UNDIVIDED, _OP_IGNORED, _DIVIDED_WRONGLY, _ROUNDED, _COARSE, _DETOUR, _NO_WORK, _WORK_ALWAYS = (
    "a rank outside the group takes part", "writes beside the view", "not divided", "op ignored", "divided wrongly",
    "an average of integers rounded otherwise", "adds up in 16 bits", "a detour through float32", "no work object",
    "always a work object",
)  # fmt: skip
_EARLY = "an average rounded before it is divided"
_PAIRWISE, _WIDER, _PLACES, _WAITED, _RETURNED = (
    "averaged pair by pair", "wider than the tensor", "written back in another order", "wait returns something else",
    "returned without async_op",
)  # fmt: skip


def drop_in_case(
    name: str,
    tensors: Sequence[Tensor],
    *,
    op: str | None = None,
    layout: str = "plain",
    group: Sequence[int] | None = None,
    asynchronous: bool = False,
) -> Case:
    """Return a case of drop_in_all_reduce.

    Args:
        name: What is special about it.
        tensors: What each rank holds.
        op: Name of a dist.ReduceOp; None calls with the default.
        layout: Which view of the tensor is reduced.
        group: Global ranks that take part; all ranks call.
        asynchronous: Whether async_op=True is asked for.
    """
    extra: dict[str, Value] = {} if op is None else {"op": op}
    if asynchronous:
        extra["async"] = True
    return reduce_case(name, tensors, layout=layout, group=group, extra=extra)


def _changed_beside(came: SumOutcome) -> bool:
    """Return whether elements of a member's storage that are not in the view were changed."""
    for rank in came.members:
        now, before = values.tensor(came.got[rank], "base").clone(), base_of(came.case, rank).clone()
        for each in (now, before):
            view_of(each, layout_of(came.case)).zero_()
        if not torch.equal(now, before):
            return True
    return False


def _is_undivided(came: SumOutcome) -> bool:
    """Return whether the sum came where another operation was asked for."""
    return op_of(came.case) != "SUM" and came.is_near(torch.stack([x.double() for x in came.inputs]).sum(0), 1e-2)


def _is_divided_wrongly(came: SumOutcome) -> bool:
    size = len(came.members)
    factors = (1 / size, 1 / size**2, size / came.case.world_size, size / 2, size / 4)
    return op_of(came.case) == "AVG" and any(is_scaled(came, factor) for factor in factors)


def _averages_pairs(came: SumOutcome) -> bool:
    """Return whether each element is what the ranks' numbers become that are averaged two by two, round the ring."""
    size = len(came.members)
    if op_of(came.case) != "AVG" or size < 3:
        return False
    ways = []
    for first in range(size):
        total, *others = (came.inputs[(first + turn) % size].double() for turn in range(size))
        for each in others:
            total = (total + each) / 2
        ways.append(total)
    return all(
        torch.stack([(view.double() - way).abs() <= 1e-6 * way.abs() for way in ways]).any(0).all()
        for view in came.views
    )


def _is_in_other_places(came: SumOutcome) -> bool:
    """Return whether a transposed or strided tensor has the right numbers in the wrong places."""
    exact, views = came.exact.double().reshape(-1), [view.double().reshape(-1) for view in came.views]
    sorted_alike = all(torch.equal(view.sort().values, exact.sort().values) for view in views)
    return layout_of(came.case) != "plain" and sorted_alike and not all(torch.equal(view, exact) for view in views)


def _sends_wide_numbers(came: SumOutcome) -> bool:
    """Return whether the results are right, and a chunk travels with twice the bytes that its elements have."""
    view, chunk = came.views[0], chunk_bytes(came.case, len(came.members))
    wide = 2 * view.element_size() if view.element_size() > 2 else 8
    sizes = {message.bytes for message in came.wire.messages}
    return max(sizes, default=0) == chunk // view.element_size() * wide > chunk


def _is_rounded_otherwise(came: SumOutcome) -> bool:
    """Return whether every member holds an average of integers to within what one division for each part can lose."""
    is_whole = op_of(came.case) == "AVG" and not came.exact.is_floating_point()
    return is_whole and all(((view - came.exact).abs() <= len(came.members)).all() for view in came.views)


def _is_coarse(came: SumOutcome) -> bool:
    return came.exact.is_floating_point() and came.views[0].element_size() <= 2 and came.is_near(came.exact, 0.1)


def _went_through_float32(came: SumOutcome) -> bool:
    """Return whether integers are wrong, or float64 is right in float32's precision only."""
    dtype = came.views[0].dtype
    return not dtype.is_floating_point or (dtype == torch.float64 and came.is_near(came.exact, 1e-5))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield where ring_all_reduce does not do what dist.all_reduce does, over a ring, or returns something else."""
    yield from library_calls(wire)
    yield from wrong_sums(sum_outcome(case, got, wire))
    yield from outsiders(case, wire)
    yield from _outside(case, got)
    yield from _returned(case, got)
    yield from ring_traffic(case, wire)
    yield from lost_messages(wire)


def _outside(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    """Yield a finding for each rank outside the group that did anything but return None at once."""
    members = members_of(case)
    for rank, came in enumerate(got):
        returned = values.text(came, "returned")
        if rank in members or (returned == "NoneType" and not values.flag(came, "written")):
            continue
        did = f"got back a {returned}" if returned != "NoneType" else "wrote to its tensor"
        yield Finding(
            _OUTSIDER,
            f"Rank {rank} is not in the group {members}, but {did}; such a rank returns None at once.",
            f"rank {rank}: None, and a tensor that was not touched",
            f"rank {rank}: {did}",
            rank,
        )


def _returned(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    for rank in members_of(case):
        returned, can_wait = values.text(got[rank], "returned"), values.flag(got[rank], "can_wait")
        if "async" in case.inputs[0] and not can_wait:
            text = f"With async_op=True rank {rank} got back a {returned}; it must be an object with wait()."
            yield Finding(_NO_WORK, text, "an object with wait()", returned, rank)
        if (waited := values.text(got[rank], "waited")) != "True":
            yield Finding(_WAITED, f"wait() returned {waited} on rank {rank}; it returns True.", "True", waited, rank)
        if "async" not in case.inputs[0] and returned != "NoneType":
            text = f"Without async_op rank {rank} got back a {returned}; dist.all_reduce returns None then."
            yield Finding(_WORK_ALWAYS if can_wait else _RETURNED, text, "None", returned, rank)


def _overflowed(came: SumOutcome) -> bool:
    return op_of(came.case) == "AVG" and any(bool(view.isinf().any()) for view in came.views)


def _keeps_an_outsider(case: Case, failure: Failure, wire: Wire) -> bool:
    ranks = {failure.rank, *(wait.rank for wait in failure.waits)} - {None}
    return not ranks <= set(members_of(case))


def _divides_integers(case: Case, failure: Failure, wire: Wire) -> bool:
    return op_of(case) == "AVG" and "can't be cast" in failure.message


def _bits16(seed: int, world_size: int, numel: int, dtype: torch.dtype) -> list[Tensor]:
    return fractions(seed, world_size, (numel,), dtype)


def near_the_end(seed: int, world_size: int, numel: int) -> list[Tensor]:
    """Return float16 tensors of which one is within the range of float16, and the sum of four is not."""
    return [20000 + 16 * each for each in whole_numbers(seed, world_size, (numel,), torch.float16, largest=60)]


def _small(seed: int, world_size: int, numel: int) -> list[Tensor]:
    return [tensor - 4 for tensor in whole_numbers(seed, world_size, (numel,), largest=9)]


def both_signs(seed: int, world_size: int, numel: int) -> list[Tensor]:
    """Return int64 tensors of positive and negative numbers."""
    return [tensor - 500 for tensor in whole_numbers(seed, world_size, (numel,), torch.int64, largest=999)]


def _drop_in_on(size: int) -> Case:
    """Return a case in which neighbouring sizes ask for another operation and type."""
    op, dtype = (("SUM", torch.float32), ("AVG", torch.float64), ("MAX", torch.float32), ("SUM", torch.int64))[size % 4]
    name = f"{size} ranks, {op} of {2 * size + 1} elements, {str(dtype).removeprefix('torch.')}"
    return drop_in_case(name, whole_numbers(100 + size, size, (2 * size + 1,), dtype), op=op)


EXERCISE = declared(
    id="drop_in_all_reduce",
    functions=("ring_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    structure=and_more(expected_bases, returned=str, can_wait=bool, waited=str, written=bool),
    looks=(find,),
    least=least_traffic,
    visible=(
        drop_in_case("3 ranks, sum of 7 elements", whole_numbers(31, 3, (7,))),
        drop_in_case("3 ranks, average of 7 elements", whole_numbers(32, 3, (7,), torch.float64), op="AVG"),
        drop_in_case("3 ranks, average of 7 integers", both_signs(44, 3, 7), op="AVG"),
        drop_in_case("3 ranks, largest of each", _small(33, 3, 5), op="MAX"),
        drop_in_case("3 ranks, smallest of each", _small(34, 3, 5), op="MIN"),
        drop_in_case("3 ranks, product", _bits16(35, 3, 32, torch.bfloat16), op="PRODUCT"),
        drop_in_case("3 ranks, transposed 4 x 3", whole_numbers(36, 3, (3, 4)), layout="transposed"),
        drop_in_case("3 ranks, every other element", whole_numbers(37, 3, (9,)), layout="every other"),
        drop_in_case("3 ranks, int64", whole_numbers(38, 3, (5,), torch.int64, 1 << 55)),
        drop_in_case("3 ranks, async_op=True", whole_numbers(39, 3, (8,)), asynchronous=True),
        drop_in_case("5 ranks, of which 1, 3 and 4 take part", whole_numbers(40, 5, (7,)), group=(1, 3, 4)),
        drop_in_case(
            "5 ranks, of which 1, 3 and 4 take part, async_op=True",
            whole_numbers(42, 5, (9,)),
            group=(1, 3, 4),
            asynchronous=True,
            layout="every other",
        ),
        drop_in_case(
            "5 ranks, average over 1, 3 and 4", whole_numbers(45, 5, (7,), torch.float64), op="AVG", group=(1, 3, 4)
        ),
        drop_in_case("8 ranks, bfloat16", _bits16(41, 8, 64, torch.bfloat16)),
        drop_in_case("8 ranks, float16", _bits16(43, 8, 64, torch.float16)),
        drop_in_case("4 ranks, average of large numbers, float16", near_the_end(46, 4, 12), op="AVG"),
    ),
    hints=(
        "Start from ring_sum and change one thing at a time: the operation, the memory layout, the dtype, the return "
        "value. What does dist.all_reduce promise for each?",
        "AVG is SUM and one division by the size of the group, once for each element. A non-contiguous tensor is "
        "reduced as a contiguous copy and copied back. bfloat16 is added up in float32 and rounded once, at the end. "
        "A rank outside the group (dist.get_rank(group) < 0) returns at once. async_op=True returns an object with "
        "wait().",
        "flat = tensor.contiguous().view(-1); work = flat.float() if flat.dtype in (torch.bfloat16, torch.float16) "
        "else flat; cut both with tensor_split; reduce_scatter the pieces of work over the group's global ranks with "
        "torch.add, torch.maximum, torch.minimum or torch.mul; for AVG divide the one piece that is complete here, "
        "number dist.get_rank(group); copy it into flat's piece and all_gather the pieces of flat; at the end "
        "tensor.copy_(flat.view(tensor.shape)).",
    ),
    sweep=sweep(_drop_in_on, ring_steps, slack=3),
    mistakes=(
        *common("calls the library", "fewer chunks than ranks"),
        sum_mistake(_OUTSIDER,
                    "A rank outside the group must return at once, sending and receiving nothing: "
                    "dist.get_rank(group) is -1 there.", failed=_keeps_an_outsider),
        sum_mistake(_BESIDE,
                    "Elements of the storage that are not in the tensor were changed: work on a copy and copy back "
                    "into the tensor.", came=_changed_beside),
        *common("works on a copy of a non-contiguous tensor"),
        sum_mistake(_UNDIVIDED,
                    "The sum came back undivided. Either nothing divides, or the wrong chunk is divided: after the "
                    "reduce-scatter, only the chunk this rank owns counts, because the all-gather overwrites the "
                    "others.", came=lambda came: op_of(came.case) == "AVG" and _is_undivided(came)),
        sum_mistake(_OP_IGNORED,
                    "The sum came back although another operation was asked for: what combines two chunks depends on "
                    "op.", came=_is_undivided),
        sum_mistake(_PAIRWISE,
                    "Each step of the ring took the mean of two numbers, so the ranks do not count alike. Add in every "
                    "step, and divide once, by the size of the group.", came=_averages_pairs),
        sum_mistake(_PLACES,
                    "The numbers are right and stand in other places: copy the flat result back in the order in which "
                    "contiguous() laid it out, tensor.copy_(flat.view(tensor.shape)).", came=_is_in_other_places),
        sum_mistake(_DIVIDED_WRONGLY,
                    "The average is off by a whole factor: divide once, by the size of the group (not in every step, "
                    "not on both the partial and the final sum, not by the world's size).", came=_is_divided_wrongly),
        sum_mistake(_ROUNDED,
                    'AVG of integers is rounded towards zero: torch.div(total, n, rounding_mode="trunc"). Floor '
                    "division, //, rounds down; /= refuses integers; and parts that are divided before they are added "
                    "lose a remainder each.", came=_is_rounded_otherwise, failed=_divides_integers),
        *common("mean instead of sum", "another operation", "cut to whole numbers"),
        sum_mistake(_EARLY,
                    "The sum of these numbers is beyond float16's range, their average is not: divide while it is "
                    "float32, and round once, after that.", came=_overflowed),
        sum_mistake(_COARSE,
                    "The error grows with the number of ranks: every hop rounded to 16 bits. Whatever op is, combine "
                    "in float32 and round once, at the end.", came=_is_coarse),
        sum_mistake(_DETOUR,
                    "The last digits are lost: only bfloat16 and float16 are added up in float32; integers must stay "
                    "integers, and float64 must stay float64.", came=_went_through_float32),
        sum_mistake(_WIDER,
                    "The results are right, and what travels is wider than the tensor's type. Partial sums of 16-bit "
                    "tensors are float32; all others travel in the type that they have.", came=_sends_wide_numbers),
        sum_mistake(_WAITED, "wait() finishes the work, writes the result into the tensor and returns True."),
        sum_mistake(_RETURNED,
                    "Without async_op the call returns None, as dist.all_reduce does: the result is in the tensor."),
        sum_mistake(_NO_WORK, "async_op=True must return an object with wait(); None is for async_op=False."),
        sum_mistake(_WORK_ALWAYS,
                    "Without async_op the reduction must be finished when the call returns, and it returns None."),
        *common(
            "cut by rows",
            "whole tensor at each step",
            "nobody sent anything",
            "not in place",
            "no all-gather",
            "nothing added up",
            "remainder dropped",
            "group ranks taken for global ranks",
            "needs sizes that divide",
            "contributions missing",
        ),
    ),
)  # fmt: skip
