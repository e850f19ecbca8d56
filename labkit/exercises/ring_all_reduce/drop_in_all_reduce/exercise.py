"""A drop-in for dist.all_reduce."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from labkit.checks.case import Case, Failure, Got, Value
from labkit.checks.judged import Mistake, judged
from labkit.checks.verdict import Verdict
from labkit.checks.wire import Wire
from labkit.exercises.ring_all_reduce import sum_marks
from labkit.exercises.ring_all_reduce import sum_mistakes as mistakes
from labkit.exercises.ring_all_reduce.drop_in_all_reduce.driver import drive
from labkit.exercises.ring_all_reduce.on_ranks import view_of
from labkit.exercises.ring_all_reduce.sums import (
    base_of,
    exact_reduction,
    expected_bases,
    fractions,
    input_of,
    layout_of,
    members_of,
    op_of,
    reduce_case,
    whole_numbers,
    wrong_values,
)
from labkit.exercises.ring_all_reduce.traffic import library_calls, lost_messages, outsiders, ring_traffic
from labkit.exercises.ring_all_reduce.world_sizes import ring_steps, sweep


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


def judge_drop_in(case: Case, got: Got, wire: Wire) -> Verdict:
    """Return whether ring_all_reduce did what dist.all_reduce does, over a ring, and returned what it returns."""
    assert isinstance(got, tuple)
    return (
        library_calls(wire)
        or wrong_values(case, got)
        or outsiders(case, wire)
        or _outside(case, got)
        or _returned(case, got)
        or ring_traffic(case, wire)
        or lost_messages(wire)
        or Verdict(True)
    )


def _outside(case: Case, got: Got) -> Verdict | None:
    """Return a verdict if a rank outside the group did anything but return None at once."""
    assert isinstance(got, tuple)
    members = members_of(case)
    for rank in sorted(set(range(case.world_size)) - set(members)):
        returned = got[rank].get("returned")
        if returned != "NoneType" or got[rank].get("written"):
            did = f"got back a {returned}" if returned != "NoneType" else "wrote to its tensor"
            return Verdict(
                False,
                message=f"Rank {rank} is not in the group {members}, but {did}; such a rank returns None at once.",
                expected=f"rank {rank}: None, and a tensor that was not touched",
                got=f"rank {rank}: {did}",
                rank=rank,
            )
    return None


def _returned(case: Case, got: Got) -> Verdict | None:
    assert isinstance(got, tuple)
    for rank in members_of(case):
        returned, can_wait = got[rank].get("returned"), got[rank].get("can_wait")
        if case.inputs[0].get("async") and not can_wait:
            return Verdict(
                False,
                message=f"With async_op=True rank {rank} got back a {returned}; it must be an object with wait().",
                expected="an object with wait()",
                got=f"{returned}",
                rank=rank,
            )
        if not case.inputs[0].get("async") and returned != "NoneType":
            return Verdict(
                False,
                message=f"Without async_op rank {rank} got back a {returned}; dist.all_reduce returns None then.",
                expected="None",
                got=f"{returned}",
                rank=rank,
            )
    return None


def _op_ignored(case: Case, got: Got, wire: Wire) -> bool:
    came = sum_marks.views(case, got)
    if op_of(case) == "SUM" or came is None or not came[0].numel():
        return False
    total = torch.stack([input_of(case, rank).double() for rank in members_of(case)]).sum(0)
    return all(bool(torch.allclose(view.double(), total, rtol=1e-2)) for view in came)


def _coarse(case: Case, got: Got, wire: Wire) -> bool:
    came = sum_marks.views(case, got)
    if came is None or came[0].element_size() > 2 or not came[0].is_floating_point():
        return False
    if not isinstance(got, tuple) or wrong_values(case, got) is None:
        return False
    exact = exact_reduction(case)[0].reshape(-1)
    return all(bool(torch.allclose(view.double(), exact, rtol=0.1)) for view in came)


def _float64_rounded(case: Case, got: Got) -> bool:
    """Return whether float64 results are those of float32: nearly right, and not in float64's own precision."""
    came = sum_marks.views(case, got)
    if came is None or not isinstance(got, tuple) or came[0].dtype != torch.float64 or wrong_values(case, got) is None:
        return False
    exact = exact_reduction(case)[0].reshape(-1)
    return all(bool(torch.allclose(view, exact, rtol=1e-5)) for view in came)


def _no_work(case: Case, got: Got, wire: Wire) -> bool:
    return bool(case.inputs[0].get("async")) and isinstance(got, tuple) and not got[members_of(case)[0]].get("can_wait")


def _work_always(case: Case, got: Got, wire: Wire) -> bool:
    return (
        not case.inputs[0].get("async") and isinstance(got, tuple) and got[members_of(case)[0]].get("can_wait") is True
    )


def _outsider_stuck(case: Case, got: Got, wire: Wire) -> bool:
    if case.inputs[0].get("group") is None:
        return False
    if isinstance(got, tuple):
        return _outside(case, got) is not None
    outside = set(range(case.world_size)) - set(members_of(case))
    return isinstance(got, Failure) and (got.rank in outside or any(wait.rank in outside for wait in got.waits))


def _wrong_average(case: Case, got: Got, wire: Wire) -> bool:
    if op_of(case) != "AVG":
        return False
    size = len(members_of(case))
    factors = [1 / size, 1 / size**2, size / case.world_size, size / 2, size / 4]
    return any(sum_marks.is_scaled(case, got, factor) for factor in factors if abs(factor - 1) > 1e-9)


def _not_divided(case: Case, got: Got, wire: Wire) -> bool:
    return op_of(case) == "AVG" and _op_ignored(case, got, wire)


def _beside_the_view(case: Case, got: Got, wire: Wire) -> bool:
    if layout_of(case) in ("plain", "transposed") or not isinstance(got, tuple):
        return False
    for rank in members_of(case):
        came = got[rank].get("base")
        if isinstance(came, Tensor) and came.shape == base_of(case, rank).shape:
            rest, before = came.clone(), base_of(case, rank).clone()
            view_of(rest, layout_of(case)).zero_()
            view_of(before, layout_of(case)).zero_()
            if not torch.equal(rest, before):
                return True
    return False


def _bits16(seed: int, world_size: int, numel: int, dtype: torch.dtype) -> list[Tensor]:
    return fractions(seed, world_size, (numel,), dtype)


def _small(seed: int, world_size: int, numel: int) -> list[Tensor]:
    return [tensor - 4 for tensor in whole_numbers(seed, world_size, (numel,), largest=9)]


_PLACED = (mistakes.LIBRARY, mistakes.BLOCKING_SENDS, mistakes.NOT_CONTIGUOUS, mistakes.DIVIDED)


def _drop_in_on(size: int) -> Case:
    """Return a case in which neighbouring sizes ask for another operation and type."""
    op, dtype = (("SUM", torch.float32), ("AVG", torch.float64), ("MAX", torch.float32), ("SUM", torch.int64))[size % 4]
    name = f"{size} ranks, {op} of {2 * size + 1} elements, {str(dtype).removeprefix('torch.')}"
    return drop_in_case(name, whole_numbers(100 + size, size, (2 * size + 1,), dtype), op=op)


EXERCISE = judged(
    id="drop_in_all_reduce",
    functions=("ring_all_reduce",),
    driver=drive,
    oracle=expected_bases,
    judge=judge_drop_in,
    visible=(
        drop_in_case("3 ranks, sum of 7 elements", whole_numbers(31, 3, (7,))),
        drop_in_case("3 ranks, average of 7 elements", whole_numbers(32, 3, (7,), torch.float64), op="AVG"),
        drop_in_case("3 ranks, largest of each", _small(33, 3, 5), op="MAX"),
        drop_in_case("3 ranks, smallest of each", _small(34, 3, 5), op="MIN"),
        drop_in_case("3 ranks, product", _small(35, 3, 4), op="PRODUCT"),
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
        drop_in_case("8 ranks, bfloat16", _bits16(41, 8, 64, torch.bfloat16)),
        drop_in_case("8 ranks, float16", _bits16(43, 8, 64, torch.float16)),
    ),
    hints=(
        "Start from ring_sum and change one thing at a time: the operation, then the memory layout, then the type, "
        "then what is returned. For each of them: what does dist.all_reduce promise?",
        "AVG is SUM and one division by the size of the group, once for each element. A non-contiguous tensor is "
        "reduced as a contiguous copy and copied back. bfloat16 is added up in float32 and rounded once, at the end. "
        "A rank outside the group (dist.get_rank(group) < 0) returns at once. async_op=True returns an object with "
        "wait().",
        "flat = tensor.contiguous().view(-1); work = flat.float() if flat.dtype in (torch.bfloat16, torch.float16) "
        "else flat; run the reduce-scatter on work with torch.add, torch.maximum, torch.minimum or torch.mul; for AVG "
        "divide the chunk this rank owns, (rank + 1) % N; copy that chunk into flat and run the all-gather on flat; "
        "at the end tensor.copy_(flat.view(tensor.shape)).",
    ),
    sweep=sweep(_drop_in_on, ring_steps, slack=3),
    mistakes=(
        mistakes.LIBRARY,
        Mistake(
            "a rank outside the group takes part",
            "A rank outside the group must return at once, sending and receiving nothing: dist.get_rank(group) is "
            "-1 there.",
            _outsider_stuck,
        ),
        mistakes.BLOCKING_SENDS,
        Mistake(
            "writes beside the view",
            "Elements of the storage that are not in the tensor were changed: work on a copy and copy back into "
            "the tensor.",
            _beside_the_view,
        ),
        mistakes.NOT_CONTIGUOUS,
        Mistake(
            "not divided",
            "The sum came back undivided. Either nothing divides, or what is divided is not the chunk this rank owns "
            "after the reduce-scatter, (rank + 1) % N: all other chunks are overwritten in the all-gather.",
            _not_divided,
        ),
        Mistake(
            "op ignored",
            "The sum came back although another operation was asked for: what combines two chunks depends on op.",
            _op_ignored,
        ),
        Mistake(
            "divided wrongly",
            "The average is off by a whole factor: divide once, by the size of the group (not in every step, not on "
            "both the partial and the final sum, not by the world's size).",
            _wrong_average,
        ),
        mistakes.DIVIDED,
        Mistake(
            "adds up in 16 bits",
            "The error grows with the number of ranks: every hop rounded to 16 bits. Add up in float32 and round "
            "once, at the end.",
            _coarse,
        ),
        Mistake(
            "a detour through float32",
            "The last digits are lost: only bfloat16 and float16 are added up in float32; integers must stay "
            "integers, and float64 must stay float64.",
            lambda case, got, wire: sum_marks.float_detour(case, got, wire) or _float64_rounded(case, got),
        ),
        Mistake(
            "no work object",
            "async_op=True must return an object with wait(); None is for async_op=False.",
            _no_work,
        ),
        Mistake(
            "always a work object",
            "Without async_op the reduction must be finished when the call returns, and it returns None.",
            _work_always,
        ),
        *(mistake for mistake in mistakes.RING if mistake not in _PLACED),
    ),
)
