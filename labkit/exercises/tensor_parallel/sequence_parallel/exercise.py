"""Tokens apart: a gather and a scatter that are conjugate, and random numbers of a rank's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from labkit.checks import values
from labkit.checks.case import Case, Value, Values
from labkit.checks.declared import Mistake, Way, declared, tensor_result
from labkit.checks.draws import normal, part_of
from labkit.checks.finding import Finding
from labkit.checks.groups import group_of
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import NOTHING
from labkit.checks.wire import Wire
from labkit.exercises.tensor_parallel.members import NO_GRADIENT, given, summed
from labkit.exercises.tensor_parallel.sequence_parallel.driver import DRAWN, drive

GATHER, SCATTER, RANDOM = "gather_tokens", "scatter_tokens", "OwnRandom"


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


def random_case(name: str, seed: int, own_seed: int, world_size: int, *, apart: bool = False) -> Case:
    """Return a case of OwnRandom; `apart`: each rank's generator has another seed outside."""
    seeds = [part_of(seed, "rank", rank) % 2**31 if apart else seed for rank in range(world_size)]
    return Case(name, world_size, tuple({"function": RANDOM, "seed": each, "own_seed": own_seed} for each in seeds))


def _is_random(case: Case) -> bool:
    return case.inputs[0]["function"] == RANDOM


def _joined(case: Case, rank: int, key: str, dim: int = 1, turn: int = 1) -> Tensor:
    return torch.cat([given(case, each, key) for each in group_of(case, rank)[::turn]], dim)


def _cut(whole: Tensor, case: Case, rank: int, turn: int = 1) -> Tensor:
    ranks = group_of(case, rank)
    return whole.chunk(len(ranks), dim=1)[ranks[::turn].index(rank)]


def _scattered(case: Case, rank: int, key: str, turn: int = 1) -> Tensor:
    return _cut(summed(case, rank, key), case, rank, turn)


def expected(case: Case) -> list[Values]:
    """Return what each rank gets; of random numbers, those outside."""
    if _is_random(case):
        return [{"outside": _without_own(values.integer(each, "seed"))} for each in case.inputs]
    name = values.text(case.inputs[0], "function")
    out, gradient = (_joined, _scattered) if name == GATHER else (_scattered, _joined)
    return [
        {name: {"out": out(case, r, "x"), "kept": given(case, r, "x"), "gradient": gradient(case, r, "gradient")}}
        for r in range(case.world_size)
    ]


def _without_own(seed: int) -> list[Value]:
    """Return what is drawn outside where nothing else is drawn: five times, and once of the next seed."""
    state = torch.Generator().manual_seed(seed)
    drawn: list[Value] = [torch.rand(DRAWN, generator=state) for _ in range(5)]
    return [*drawn, torch.rand(DRAWN, generator=state.manual_seed(seed + 1))]


def structure(case: Case) -> list[object]:
    """Return what results look like."""
    more = {"inside": [Tensor] * 10, "came_out": bool} if _is_random(case) else {}
    return [{**right, **more} for right in expected(case)]


def _zeros_for_others(case: Case, rank: int, key: str) -> Tensor:
    found = torch.zeros_like(_joined(case, rank, key))
    _cut(found, case, rank).copy_(given(case, rank, key))
    return found


def _own_for_others(case: Case, rank: int, key: str) -> Tensor:
    return given(case, rank, key).repeat(1, len(group_of(case, rank)), 1)


def _joined_along_the_batch(case: Case, rank: int, key: str) -> Tensor:
    return _joined(case, rank, key, 0).reshape_as(_joined(case, rank, key))


def _cut_along_the_batch(case: Case, rank: int, key: str) -> Tensor:
    ranks, flat = group_of(case, rank), summed(case, rank, key).flatten(0, 1)
    return flat.chunk(len(ranks))[ranks.index(rank)].reshape_as(_scattered(case, rank, key))


def _in_turn(case: Case, rank: int, key: str) -> Tensor:
    return torch.stack([given(case, each, key) for each in group_of(case, rank)], 2).flatten(1, 2)


def _every_nth(case: Case, rank: int, key: str) -> Tensor:
    ranks = group_of(case, rank)
    return summed(case, rank, key)[:, ranks.index(rank) :: len(ranks)]


def _averaged(case: Case, rank: int, key: str) -> Tensor:
    return _scattered(case, rank, key) / len(group_of(case, rank))


def _of_first(case: Case, rank: int, key: str) -> Tensor:
    return _cut(given(case, group_of(case, rank)[0], key), case, rank)


def _of_largest(case: Case, rank: int, key: str) -> Tensor:
    return _cut(torch.stack([given(case, each, key) for each in group_of(case, rank)]).amax(0), case, rank)


def _of(key: str, way: Callable[[Case, int, str], Tensor]) -> Way:
    return lambda case, rank: way(case, rank, key)


def _where_gathered(*ways: Callable[[Case, int, str], Tensor]) -> dict[str, tuple[Way, ...]]:
    """Return what a mistake in gathering leaves: in what comes of the gather, and of the scatter's backward."""
    return {
        f"{GATHER}.out": tuple(_of("x", way) for way in ways),
        f"{SCATTER}.gradient": tuple(_of("gradient", way) for way in ways),
    }


def _where_scattered(*ways: Callable[[Case, int, str], Tensor]) -> dict[str, tuple[Way, ...]]:
    """Return what a mistake in scattering leaves: in what comes of the scatter, and of the gather's backward."""
    return {
        f"{SCATTER}.out": tuple(_of("x", way) for way in ways),
        f"{GATHER}.gradient": tuple(_of("gradient", way) for way in ways),
    }


def _other_shape(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield that a result has the shape of one along the batch, or of one over all ranks."""
    right = expected(case)[0]
    for name in (GATHER, SCATTER):
        if name in right:
            came, wanted = (values.tensor(values.record(each, name), "out") for each in (got[0], right))
            along = _joined(case, 0, "x", 0) if name == GATHER else given(case, 0, "x").chunk(len(group_of(case)))[0]
            more, size = (wanted, came) if name == SCATTER else (came, wanted)
            of_all = more.shape[1] * len(group_of(case)) == size.shape[1] * case.world_size
            if came.shape != wanted.shape and (came.shape == along.shape or of_all):
                mistake = _BATCH if came.shape == along.shape else _GROUP
                yield Finding(mistake, f"{name} returns shape {tuple(came.shape)}.", str(tuple(wanted.shape)), rank=0)


def _wrong_random(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with random numbers, inside and outside."""
    if not _is_random(case):
        return
    right = [values.tensors(each, "outside") for each in expected(case)]
    for rank, came in enumerate(got):
        first, second, resumed, again, went_on, third, fourth, fifth, later, of_next_seed = values.tensors(
            came, "inside"
        )
        drew = f"Rank {rank} drew {first.tolist()}"
        if torch.equal(first, right[rank][2]):
            text = f"{drew} in its first `with`, which is what comes next of the numbers outside."
            yield Finding(_OUTSIDES, text, rank=rank)
        for place, (mine, wanted) in enumerate(zip(values.tensors(came, "outside"), right[rank], strict=True)):
            if not torch.equal(mine, wanted):
                text = f"On rank {rank} random numbers {_WHERE[place]} are not those of a run without OwnRandom."
                yield Finding(_DISTURBED, text, str(wanted.tolist()), str(mine.tolist()), rank)
        if not values.flag(came, "came_out"):
            yield Finding(
                _SWALLOWED, f"On rank {rank} an error was raised inside, and nobody outside saw it.", rank=rank
            )
        if torch.equal(first, second):
            yield Finding(_REPEATS, f"{drew} in both.", rank=rank)
        if not torch.equal(first, again):
            yield Finding(_UNSEEDED, f"{drew}, then with the same seed {again.tolist()}.", rank=rank)
        if not torch.equal(second, went_on):
            text = f"Rank {rank} drew {second.tolist()} in the second `with`, and {went_on.tolist()} within one."
            yield Finding(_ANEW, text, rank=rank)
        if not torch.equal(resumed, fourth):
            text = f"After an error inside, rank {rank} drew {resumed.tolist()}; next came {fourth.tolist()}."
            yield Finding(_LOST if torch.equal(resumed, third) else "", text, rank=rank)
        if not torch.equal(fifth, later):
            text = f"After another OwnRandom was entered, rank {rank} drew {later.tolist()}, not {fifth.tolist()}."
            yield Finding(_ONE_STATE, text, rank=rank)
        if torch.equal(first, of_next_seed):
            yield Finding(_ONE_START, f"{drew} with seed {case.inputs[0]['own_seed']}, and with the next.", rank=rank)
        for other in range(rank):
            theirs = values.tensors(got[other], "inside")
            if any(map(torch.equal, theirs, (first, second))):
                yield Finding(_ALIKE, f"Ranks {other} and {rank} both drew {first.tolist()}.", rank=rank)
            if bool(torch.isin(torch.cat([first, second]), torch.cat(theirs[:2])).any()):
                text = (
                    f"Rank {other} drew {theirs[0].tolist()}, and {drew[0].lower()}{drew[1:]}: the same numbers, moved."
                )
                yield Finding(_ALIKE, text, rank=rank)


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: a rank's tokens once; random numbers need nothing."""
    if _is_random(case):
        return {}
    x = values.tensor(case.inputs[0], "x").numel()
    pieces = 1 if case.inputs[0]["function"] == GATHER else len(group_of(case))
    return both_ways(range(case.world_size), x // pieces)


def _whole_sums(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for call in wire.collectives:
        if call.kind == "all_reduce":
            text = f"Rank {call.rank} calls all_reduce, which brings the whole sum to everybody."
            yield Finding(_WHOLE, text, rank=call.rank, call=call.sequence)


_WHOLE = "whole sums travel"
_BATCH, _CHANGED = "joined along the batch", "x was changed"
_DISTURBED, _SWALLOWED, _ALIKE, _REPEATS, _ANEW, _LOST, _UNSEEDED, _ONE_START = (
    "outside disturbed", "an error swallowed", "alike on all ranks", "the same numbers again", "begins anew",
    "back to before an error",
    "other numbers from one seed", "one start for all seeds",
)  # fmt: skip
_ONE_STATE, _OUTSIDES = "one state for all", "numbers of outside"
_WHERE = (
    "before it was made", "after it was made", "after the first `with`", "after the second `with`",
    "after an error inside", "after a new seed outside",
)  # fmt: skip
_GROUP = "group ignored"

EXERCISE = declared(
    id="sequence_parallel",
    functions=(GATHER, SCATTER, RANDOM),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least,
    looks=(
        _wrong_random,
        _other_shape,
        *(
            result
            for name in (GATHER, SCATTER)
            for result in (
                tensor_result(f"{name}.kept", f"x after {name}(x)", _CHANGED),
                tensor_result(f"{name}.out", f"{name}(x)"),
                tensor_result(f"{name}.gradient", f"the gradient of x behind {name}"),
            )
        ),
        _whole_sums,
    ),
    mistakes=(
        Mistake("not summed",
                "You cut this rank's own x. The scatter returns tokens of the *sum* over ranks: dist.reduce_scatter.",
                {f"{SCATTER}.out": lambda case, rank: _cut(given(case, rank, "x"), case, rank)}),
        Mistake("one rank's x", "These are one rank's numbers, cut. The scatter returns tokens of the sum over ranks.",
                _where_scattered(_of_first)),
        Mistake("maximum instead of sum", "You take the largest of all ranks' numbers. These are parts of one sum.",
                _where_scattered(_of_largest)),
        Mistake("mean instead of sum", "You divide by the number of ranks. These are parts of one sum.",
                _where_scattered(_averaged)),
        Mistake(_GROUP, "There is a piece for each rank of the *group*: hand it on, to get_world_size, too."),
        Mistake("gradient not reduced",
                "Backward of the gather returns this rank's own gradient of its tokens. Every rank read them: add all "
                "ranks' gradients up, a reduce-scatter.",
                {f"{GATHER}.gradient": lambda case, rank: _cut(given(case, rank, "gradient"), case, rank)}),
        Mistake("in another order", "Rank r has the r-th of N pieces, each of tokens that follow one another.",
                _where_gathered(partial(_joined, turn=-1), _in_turn)
                | _where_scattered(partial(_scattered, turn=-1), _every_nth)),
        Mistake("gradient of its own tokens only",
                "Backward of the scatter returns zeros, or this rank's piece, for the others' tokens. Each rank put "
                "something into every token of the sum, so each needs all gradients: an all-gather.",
                _where_gathered(_zeros_for_others, _own_for_others)),
        Mistake(_BATCH, "Tokens are joined or cut along dim 0, the batch. They are dim 1 of (B, T, D).",
                _where_gathered(_joined_along_the_batch) | _where_scattered(_cut_along_the_batch)),
        Mistake(_CHANGED, "After the call x holds other numbers: communicate a copy."),
        Mistake(_WHOLE,
                "A rank needs its tokens of the sum, and no others: a reduce-scatter sends half of what an all_reduce "
                "does. The same in backward of the gather."),
        Mistake(_DISTURBED,
                "Random numbers outside went another way than without OwnRandom. Keep the state outside "
                "(torch.get_rng_state()) when you seed and when you enter, and put it back after, an error or not."),
        Mistake(_OUTSIDES,
                "Inside the `with`, numbers come from the generator of outside: entering must set a state of its own. "
                "Dropout and torch.rand ask torch's one generator, not a torch.Generator that you keep."),
        Mistake(_SWALLOWED, "__exit__ must not return True: that stops an error which was raised inside."),
        Mistake(_ALIKE,
                "Ranks drew the same numbers inside, or the same ones a few draws later: put the rank into the seed."),
        Mistake(_REPEATS,
                "The second `with` drew what the first drew: keep the state inside when you leave, not when you make "
                "it."),
        Mistake(_ANEW,
                "Two draws in one `with` must be what two `with`s draw: set the state in which the last one ended, and "
                "do not seed again."),
        Mistake(_LOST,
                "After an error inside, the next `with` drew again what was drawn before the error: keep the state "
                "inside when you leave, an error or not."),
        Mistake(_ONE_START, "Two seeds drew the same: the start must depend on the seed, too."),
        Mistake(_ONE_STATE,
                "Another OwnRandom moved this one's numbers: each object keeps a state of its own, in self."),
        Mistake(_UNSEEDED,
                "Another OwnRandom of the same seed drew other numbers: its start must depend on seed and rank alone."),
        Mistake(NOTHING, NO_GRADIENT),
    ),
    visible=(
        tokens_case("gather, 2 ranks", 1231, 2, GATHER, (2, 6, 3)),
        tokens_case("scatter, 2 ranks", 1232, 2, SCATTER, (2, 6, 3)),
        random_case("random numbers, 2 ranks", 1233, 7, 2),
        tokens_case("scatter, 3 ranks", 1234, 3, SCATTER, (3, 6, 2)),
        random_case("random numbers, 3 ranks, seed 0", 1235, 0, 3),
        tokens_case("gather, 4 ranks in two groups", 1236, 4, GATHER, (2, 4, 3), [[0, 1], [2, 3]]),
        tokens_case("scatter, 4 ranks in two groups", 1237, 4, SCATTER, (2, 4, 3), [[0, 1], [2, 3]]),
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
)  # fmt: skip
