"""Tensors with gaps and in another order of memory: both worlds move what gloo moves right, and refuse the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import labkit
from labkit.errors import RankFailed

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def _outcomes() -> dict[str, str]:
    """Return of each call whether its values are right, wrong, or it was refused: of columns and of transposes."""
    rank, found = dist.get_rank(), {}

    def column(add: float = 0.0) -> torch.Tensor:
        return (torch.arange(6.0) + add + 10 * rank).view(3, 2)[:, 0]

    def transposed(add: float = 0.0) -> torch.Tensor:
        return (torch.arange(6.0) + add + 10 * rank).view(2, 3).t()

    for word, given in (("column", column), ("transposed", transposed)):
        zeros = lambda given=given: torch.zeros_like(given(), memory_format=torch.contiguous_format)  # noqa: E731
        own = given() - 10 * rank
        of_all = [(own + 10 * one).tolist() for one in range(2)]

        def all_gather(given: Any = given, zeros: Any = zeros, of_all: Any = of_all) -> bool:
            into = [zeros(), zeros()]
            dist.all_gather(into, given())
            return [one.tolist() for one in into] == of_all

        def gather(given: Any = given, zeros: Any = zeros, of_all: Any = of_all) -> bool:
            into = [zeros(), zeros()]
            dist.gather(given(), into if rank == 0 else None)
            return rank == 1 or [one.tolist() for one in into] == of_all

        def scatter(given: Any = given, zeros: Any = zeros, own: Any = own) -> bool:
            into = zeros()
            dist.scatter(into, [given(), given(100)] if rank == 0 else None)
            return bool(into.tolist() == (own + 100 * rank).tolist())

        def reduce_scatter(given: Any = given, zeros: Any = zeros, own: Any = own) -> bool:
            into = zeros()
            dist.reduce_scatter(into, [given(), given(100)])
            return bool(into.tolist() == (2 * own + 10 + 200 * rank).tolist())

        def all_reduce(given: Any = given, own: Any = own) -> bool:
            value = given()
            dist.all_reduce(value)
            return bool(value.tolist() == (2 * own + 10).tolist())

        def all_to_all_single(given: Any = given) -> bool:
            dist.all_to_all_single(torch.zeros(4, 2), torch.arange(16.0).view(4, 4)[:, ::2])
            return True

        def send(given: Any = given, zeros: Any = zeros, own: Any = own) -> bool:
            value = zeros()
            works = [dist.isend(given(), 1 - rank), dist.irecv(value, 1 - rank)]
            for work in works:
                work.wait()
            return bool(value.tolist() == (own + 10 * (1 - rank)).tolist())

        calls: tuple[Callable[[], bool], ...] = (all_gather, gather, scatter, reduce_scatter, all_reduce)
        for call in (*calls, all_to_all_single, send):
            try:
                said = "right" if call() else "wrong"
            except (RuntimeError, ValueError):
                said = "refused"
            found[f"{word} {call.__name__}"] = said
            dist.barrier()
    return found


@pytest.mark.in_turn
def test_both_worlds_move_the_same_tensors_right_and_refuse_the_same() -> None:
    def scattered() -> dict[str, str]:  # the root alone sees what it scatters: not with the rest, which would wait
        return {name: said for name, said in _outcomes().items() if "scatter" not in name or "reduce" in name}

    def without_scatter() -> dict[str, str]:
        real, dist.scatter = dist.scatter, lambda *_, **__: (_ for _ in ()).throw(ValueError("not tried"))
        try:
            return scattered()
        finally:
            dist.scatter = real

    virtual, local = (
        labkit.run(without_scatter, on=world, echo=False).results
        for world in (labkit.virtual(2), labkit.local(2, device="cpu"))
    )
    assert virtual == local
    for name, said in virtual[0].items():
        right = name in ("column all_gather", "column gather", "column reduce_scatter", "transposed all_gather")
        assert said == ("right" if right or name in ("transposed gather", "transposed all_reduce") else "refused"), name


@pytest.mark.parametrize("world", [labkit.virtual(2), labkit.local(2, device="cpu")], ids=["virtual", "local"])
def test_a_scattered_tensor_in_another_order_is_refused_at_the_root(world: Any) -> None:
    def program() -> None:
        pieces = [torch.arange(6.0).view(2, 3).t() for _ in range(2)]
        dist.scatter(torch.zeros(3, 2), pieces if dist.get_rank() == 0 else None)

    with pytest.raises(RankFailed, match=r"scatter got a tensor of shape .* in another order in memory"):
        labkit.run(program, on=world, echo=False)


def test_ranks_whose_tensors_lie_otherwise_do_not_match_on_virtual_ranks() -> None:
    def program() -> None:
        value = torch.arange(6.0).view(2, 3).t()
        dist.broadcast(value if dist.get_rank() == 0 else value.contiguous(), 0)

    with pytest.raises(RankFailed, match="with strides"):
        labkit.run(program, on=labkit.virtual(2), echo=False)
