"""Tokens apart: a gather and a scatter that are conjugate, and random numbers of a rank's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.as_if import Way
from labkit.checks.case import Case, Value, Values
from labkit.checks.draws import normal, part_of
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, members, summed, wrong_tensors
from labkit.exercises.tensor_parallel.sequence_parallel.driver import DRAWN, drive

GATHER, SCATTER, RANDOM = "gather_tokens", "scatter_tokens", "OwnRandom"
_UNREDUCED, _UNSUMMED, _ONLY_OWN, _BATCH, _REVERSED, _CHANGED = (
    "gradient not reduced", "not summed", "gradient of its own tokens only", "joined along the batch",
    "in another order", "x was changed",
)  # fmt: skip
_DISTURBED, _ALIKE, _REPEATS, _UNSEEDED = (
    "outside disturbed", "alike on all ranks", "the same numbers again", "seed ignored",
)  # fmt: skip
MISTAKES = {
    _UNREDUCED: "Backward of the gather returns this rank's own gradient of its tokens. Every rank read them: add all "
    "ranks' gradients up, a reduce-scatter.",
    _UNSUMMED: "You cut this rank's own x. The scatter returns tokens of the *sum* over ranks: dist.reduce_scatter.",
    _ONLY_OWN: "Backward of the scatter returns zeros, or this rank's piece, for the others' tokens. Each rank put "
    "something into every token of the sum, so each needs all gradients: an all-gather.",
    _BATCH: "Tokens are joined or cut along dim 0, the batch. They are dim 1 of (B, T, D).",
    _REVERSED: "The pieces are not in the order of the ranks.",
    _CHANGED: "After the call x holds other numbers: communicate a copy.",
    _DISTURBED: "Random numbers outside went another way than without OwnRandom. Keep the state outside "
    "(torch.get_rng_state()) when you seed and when you enter, and put it back after.",
    _ALIKE: "Ranks drew the same numbers inside: put the rank into the seed.",
    _REPEATS: "The second `with` drew what the first drew: keep the state inside when you leave, not when you make it.",
    _UNSEEDED: "Another OwnRandom of the same seed drew other numbers: its start must depend on seed and rank alone.",
    NOTHING: NO_GRADIENT,
}


def tokens_case(
    name: str,
    seed: int,
    world_size: int,
    which: str,
    shape: tuple[int, int, int],
    groups: list[list[int]] | None = None,
) -> Case:
    """Return a case of gather_tokens or scatter_tokens; shape is that of all tokens of a group."""
    size = world_size if groups is None else len(groups[0])
    few = (shape[0], shape[1] // size, shape[2])
    before, after = (few, shape) if which == GATHER else (shape, few)
    inputs: list[Values] = []
    for rank in range(world_size):
        found: dict[str, Value] = {
            "function": which,
            "x": normal(part_of(seed, "rank", rank, "x"), *before, dtype=torch.float64),
            "gradient": normal(part_of(seed, "rank", rank, "gradient"), *after, dtype=torch.float64),
        }
        inputs.append({**found, "groups": [list(each) for each in groups]} if groups else found)
    return Case(name, world_size, tuple(inputs))


def random_case(name: str, seed: int, own_seed: int, world_size: int) -> Case:
    """Return a case of OwnRandom."""
    inputs: Values = {"function": RANDOM, "seed": seed, "own_seed": own_seed}
    return Case(name, world_size, (inputs,) * world_size)


def _joined(case: Case, rank: int, key: str, dim: int = 1, turn: int = 1) -> Tensor:
    return torch.cat([values.tensor(case.inputs[each], key) for each in members(case, rank)[::turn]], dim)


def _cut(whole: Tensor, case: Case, rank: int, turn: int = 1) -> Tensor:
    ranks = members(case, rank)
    return whole.chunk(len(ranks), dim=1)[ranks[::turn].index(rank)]


def _is_random(case: Case) -> bool:
    return case.inputs[0]["function"] == RANDOM


def expected(case: Case) -> list[Values]:
    """Return what each rank gets; of random numbers, those outside."""
    if _is_random(case):
        torch_state = torch.Generator().manual_seed(values.integer(case.inputs[0], "seed"))
        outside: list[Value] = [torch.rand(DRAWN, generator=torch_state) for _ in range(4)]
        return [{"outside": outside}] * case.world_size
    found: list[Values] = []
    for rank, inputs in enumerate(case.inputs):
        x = values.tensor(inputs, "x")
        if inputs["function"] == GATHER:
            gradient = _cut(summed(case, rank, "gradient"), case, rank)
            found.append({"out": _joined(case, rank, "x"), "kept": x, "gradient": gradient})
        else:
            out = _cut(summed(case, rank, "x"), case, rank)
            found.append({"out": out, "kept": x, "gradient": _joined(case, rank, "gradient")})
    return found


def structure(case: Case) -> list[object]:
    """Return what results look like."""
    more = {"inside": [Tensor] * 3} if _is_random(case) else {}
    return [{**right, **more} for right in expected(case)]


def _ways(case: Case, key: str, rank: int) -> list[Way[Tensor]]:
    """Return the mistakes that are tried for what was gathered or scattered."""
    gathers = (case.inputs[rank]["function"] == GATHER) is (key == "out")
    of = "x" if key == "out" else "gradient"
    if gathers:
        others = torch.zeros_like(_joined(case, rank, of))
        _cut(others, case, rank).copy_(values.tensor(case.inputs[rank], of))
        own = values.tensor(case.inputs[rank], of)
        return [
            (_REVERSED, lambda: _joined(case, rank, of, turn=-1)),
            (_ONLY_OWN, lambda: others),
            (_ONLY_OWN, lambda: own.repeat(1, len(members(case, rank)), 1)),
            (_BATCH, lambda: _joined(case, rank, of, 0).reshape_as(others)),
        ]
    lone = _UNSUMMED if key == "out" else _UNREDUCED
    flat = summed(case, rank, of).flatten(0, 1)
    return [
        (lone, lambda: _cut(values.tensor(case.inputs[rank], of), case, rank)),
        (_REVERSED, lambda: _cut(summed(case, rank, of), case, rank, turn=-1)),
        (_BATCH, lambda: flat.chunk(len(members(case, rank)))[members(case, rank).index(rank)].reshape_as(
            _cut(summed(case, rank, of), case, rank))),
    ]  # fmt: skip


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong: random numbers, or tokens forward and backward."""
    if _is_random(case):
        yield from _wrong_random(case, got)
        return
    name, right = values.text(case.inputs[0], "function"), expected(case)
    dims = _joined(case, 0, "x", 0) if name == GATHER else summed(case, 0, "x").chunk(len(members(case, 0)))[0]
    came = values.tensor(got[0], "out")
    if came.shape != values.tensor(right[0], "out").shape and came.shape == dims.shape:
        yield Finding(_BATCH, f"{name} returns shape {tuple(came.shape)}.", rank=0)
    yield from wrong_tensors(
        got, right, "kept", f"x after {name}(x)", lambda rank: [(_CHANGED, lambda: values.tensor(got[rank], "kept"))]
    )
    for key, what in (("out", f"{name}(x)"), ("gradient", f"the gradient of x behind {name}")):
        yield from wrong_tensors(got, right, key, what, lambda rank, key=key: _ways(case, key, rank))  # type: ignore[misc]


def _wrong_random(case: Case, got: tuple[Values, ...]) -> Iterator[Finding]:
    right = values.tensors(expected(case)[0], "outside")
    where = ("before it was made", "after it was made", "after the first with", "after the second with")
    for rank, came in enumerate(got):
        for place, (mine, wanted) in enumerate(zip(values.tensors(came, "outside"), right, strict=True)):
            if not torch.equal(mine, wanted):
                text = f"On rank {rank} random numbers {where[place]} are not those of a run without OwnRandom."
                yield Finding(_DISTURBED, text, str(wanted.tolist()), str(mine.tolist()), rank)
        first, second, again = values.tensors(came, "inside")
        if torch.equal(first, second):
            yield Finding(_REPEATS, f"Rank {rank} drew {first.tolist()} in both.", rank=rank)
        if not torch.equal(first, again):
            yield Finding(
                _UNSEEDED, f"Rank {rank} drew {first.tolist()}, then with the same seed {again.tolist()}.", rank=rank
            )
        for other in range(rank):
            if any(
                torch.equal(*pair) for pair in zip(values.tensors(got[other], "inside"), (first, second), strict=False)
            ):
                yield Finding(_ALIKE, f"Ranks {other} and {rank} both drew {first.tolist()}.", rank=rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a rank's tokens once; random numbers need nothing."""
    if _is_random(case):
        return {}
    x = values.tensor(case.inputs[0], "x").numel()
    pieces = 1 if case.inputs[0]["function"] == GATHER else len(members(case, 0))
    return both_ways(range(case.world_size), x // pieces)


EXERCISE = Exercise(
    id="sequence_parallel",
    functions=(GATHER, SCATTER, RANDOM),
    driver=drive,
    oracle=expected,
    structure=structure,
    find=find,
    least=least,
    visible=(
        tokens_case("gather, 2 ranks", 1231, 2, GATHER, (2, 6, 3)),
        tokens_case("scatter, 2 ranks", 1232, 2, SCATTER, (2, 6, 3)),
        random_case("random numbers, 2 ranks", 1233, 7, 2),
        tokens_case("scatter, 3 ranks", 1234, 3, SCATTER, (3, 6, 2)),
        random_case("random numbers, 3 ranks", 1235, 8, 3),
        tokens_case("gather, 4 ranks in two groups", 1236, 4, GATHER, (2, 4, 3), [[0, 1], [2, 3]]),
    ),
    hints=(
        "Two functions do all the work, an all-gather and a reduce-scatter of plain tensors. Which of them is whose "
        "backward?",
        "dist.all_gather fills a list of tensors: join it with torch.cat(parts, dim=1). dist.reduce_scatter takes a "
        "list of contiguous pieces, x.chunk(size, dim=1). OwnRandom keeps two states: outside while it is entered, "
        "inside while it is not.",
        "dist.reduce_scatter(mine, [each.contiguous() for each in x.chunk(size, dim=1)], group=group). __init__: keep "
        "get_rng_state(), manual_seed(of seed and rank), keep that state as inside, put the first back. __enter__ and "
        "__exit__ keep one state and set the other.",
    ),
    mistakes=MISTAKES,
)
