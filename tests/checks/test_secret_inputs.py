"""What a rank of a hidden case is given tells nothing of what other ranks are given.

Whatever differs between ranks is drawn by a generator, or from a seed, that bears the rank's number. So where one
rank's draws are exchanged for others, that rank's numbers change and nobody else's do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from labkit.checks.case import Case
from labkit.checks.hidden import Draw, hidden_cases
from labkit.checks.rooms import LABKIT
from labkit.torch_port import generators
from tests.checks.malformed import same
from tests.sampling import one_in

ROOMS = [path.parent for path in sorted((Path(__file__).parents[2] / "labkit" / "exercises").glob("*/*/hidden.py"))]


def _cases(path: Path) -> list[Case]:
    return hidden_cases(LABKIT, path.parent.name, path.name, 2**255 + 12345)


def _private(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the tensors of drawn numbers in a rank's inputs, and its seeds, by where they lie."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _private(part, (*where, key))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _private(part, (*where, place))
    elif (isinstance(value, Tensor) and value.numel() and value.is_floating_point() and bool(value.any())) or (
        where and where[-1] == "seed"
    ):
        yield where, value


@pytest.mark.in_turn
@pytest.mark.parametrize("path", one_in(4, ROOMS, lambda path: path.name))
def test_what_only_one_rank_has_follows_from_nothing_another_has(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, real = _cases(path), generators._bytes
    for rank in {0, max(case.world_size for case in plain) - 1, 1}:

        def salted(seed: int, part: tuple[object, ...], count: int, rank: int = rank) -> bytes:
            return real(seed, (*part, "salt") if part[:2] == ("rank", rank) else part, count)

        monkeypatch.setattr(generators, "_bytes", salted)
        for before, after in zip(plain, _cases(path), strict=True):
            if before.world_size == 1:
                continue
            for other in range(before.world_size):
                if other != rank:
                    assert same(dict(before.inputs[other]), dict(after.inputs[other])), (before.name, rank, other)
            if rank < before.world_size:
                now = dict(_private(dict(after.inputs[rank])))
                for where, value in _private(dict(before.inputs[rank])):
                    shared = sum(_at(inputs, where, value) for inputs in before.inputs) > 1
                    assert shared or not same(value, now[where]), (before.name, rank, where)


@pytest.mark.in_turn
@pytest.mark.parametrize("path", ROOMS, ids=lambda path: path.name)
def test_no_two_ranks_of_a_hidden_case_are_given_the_same(path: Path) -> None:
    for case in _cases(path):
        for first, second in combinations(range(case.world_size), 2):
            assert not same(dict(case.inputs[first]), dict(case.inputs[second])), (case.name, first, second)


def _at(inputs: Any, where: tuple[Any, ...], value: Any) -> bool:
    """Return whether a rank has the same there."""
    for step in where:
        try:
            inputs = inputs[step]
        except (KeyError, IndexError):
            return False
    return same(inputs, value)


def test_a_generators_numbers_hang_on_all_of_its_seed_and_part() -> None:
    def numbers(seed: int, *part: object) -> tuple[int, ...]:
        return tuple(torch.randint(0, 1 << 40, (700,), generator=generators.generator(seed, *part)).tolist())

    assert numbers(2**200, "rank", 1) == numbers(2**200, "rank", 1)
    assert len({numbers(2**200), numbers(2**200 + 1), numbers(2**200 + 2**64), numbers(2**200, "rank", 0)}) == 4
    drawn = torch.rand(200_000, generator=generators.generator(3))
    assert abs(drawn.mean() - 0.5) < 0.003 and abs(drawn.var() - 1 / 12) < 0.002


def test_a_draw_gives_numbers_of_its_secret_alone() -> None:
    def numbers(secret: str) -> tuple[int, ...]:
        draw = Draw(secret)
        return (draw.getrandbits(256), draw.randint(1, 10**9), *draw.sample(range(100), 5), int(draw.random() * 2**53))

    assert numbers("a") == numbers("a") != numbers("b")
    assert sorted({Draw(f"{number}").randrange(3) for number in range(50)}) == [0, 1, 2]
