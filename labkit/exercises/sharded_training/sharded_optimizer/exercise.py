"""ZeRO-1: an optimizer whose state is sharded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from torch import Tensor

from labkit.checks.as_if import as_if
from labkit.checks.blame import HANGS, by_signs
from labkit.checks.case import Case, Values
from labkit.checks.exercise import Exercise
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import and_more
from labkit.checks.values import integer, listed
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.sharded_optimizer.driver import drive
from labkit.exercises.sharded_training.training import (
    Parameters,
    Ways,
    alone,
    begun,
    equal,
    num_trained,
    steps_that_came,
    training_case,
    wrong_names,
)
from labkit.words import join


def optimizer_case(name: str, seed: int, world_size: int, **options: Any) -> Case:
    """Return a case of sharded_optimizer; see training_case for the options."""
    return training_case(name, seed, world_size, same_batch=True, **options)


def expected(case: Case) -> list[Values]:
    """Return the parameters after each step (the oracle)."""
    return [{"steps": cast(Any, alone(case)), "forgotten": True} for _ in case.inputs]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: gradients are equal, but what moves an element in a step is on one rank."""
    return both_ways(range(case.world_size), len(listed(case.inputs[0], "steps")))


def find(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    """Yield what is wrong with parameters, and with how much state a rank keeps."""
    right = alone(case)
    for rank, values in enumerate(got):
        if not values["forgotten"]:
            yield Finding(_REMEMBERED, f"After zero_grad() rank {rank} still has gradients.", rank=rank)
        came = steps_that_came(values)
        for number, (mine, wanted) in enumerate(zip(came, right, strict=True)):
            wrong = wrong_names(mine, wanted)
            if wrong:
                text = f"After step {number} rank {rank} has wrong values in {join(wrong)}."
                yield Finding(_of_values(case, rank, came, number, wrong), text, rank=rank)
    sizes = num_trained(case)
    share = 2 * (sum(-(-each // case.world_size) for each in sizes) + max(sizes) // 2)
    for rank, values in enumerate(got):
        kept = integer(values, "kept")
        if kept > share:
            text = f"The values are right, but rank {rank}'s optimizer keeps {kept} elements; all ranks' together need "
            yield Finding(
                _EVERYTHING, text + f"{2 * sum(sizes)}.", f"about {2 * sum(sizes) // case.world_size}", str(kept), rank
            )


def _of_values(case: Case, rank: int, came: Sequence[Parameters], number: int, wrong: list[str]) -> str:
    ways: Ways = [
        (_GROUPS, lambda: alone(case, groups=False)),
        (_FIXED, lambda: alone(case, slower=False)),
        (_ZEROS, lambda: alone(case, zeros=True)),
        (_PLAIN, lambda: alone(case, plain=True)),
        (_FORGETS, lambda: alone(case, forgets=True)),
        (_DIVIDED, lambda: alone(case, factor=1 / case.world_size)),
        *([(_EVERYTHING, lambda: alone(case, unsharded=rank))] if "beside" in case.inputs[rank] else []),
    ]
    found = as_if(came, ways, equal)
    if found:
        return found
    start, right = begun(case), alone(case)[number]
    mine = came[number]
    if not wrong_names(mine, start):
        return _STILL
    parts = [(cast(Tensor, mine[name]).reshape(-1), start[name].reshape(-1), right[name].reshape(-1)) for name in wrong]
    if all(bool(((a == old) | (abs(a - new) < 1e-9)).all()) for a, old, new in parts):
        size = case.world_size
        tails = [len(old) // size * size for _, old, _ in parts]
        whole = all(bool((abs(a[:t] - new[:t]) < 1e-9).all()) for t, (a, _, new) in zip(tails, parts, strict=True))
        return _TAIL if whole else _OWN_ONLY
    return ""


_STILL, _OWN_ONLY, _TAIL, _GROUPS, _FIXED, _ZEROS, _EVERYTHING, _REMEMBERED = (
    "nothing moves", "only the own shard", "the tail stays", "one group for all", "learning rate fixed",
    "moved without a gradient", "everything on every rank", "gradients remembered",
)  # fmt: skip
_PLAIN, _FORGETS, _DIVIDED, _ONCE = ("options lost", "no state kept", "divided twice", "params read as a list")
MISTAKES = {
    _STILL: "No parameter has moved. The shards have moved, perhaps; gather them into the parameters.",
    _OWN_ONLY: "Each rank has updated its own part, and the others' parts are as old as before: gather all "
    "shards after "
    "the update.",
    _TAIL: "The last elements of some parameters never move: their number does not divide by the ranks. Pad.",
    _GROUPS: (
        "All parameters are treated alike: the options of the groups are lost. Give optimizer_cls one group for each "
        "group, with the same options and the shards as parameters."
    ),
    _FIXED: "A new learning rate in param_groups changes nothing. param_groups must be the very dicts that the inner "
    "optimizer reads.",
    _ZEROS: "A parameter without a gradient has moved: with zeros for a gradient, Adam still applies weight "
    "decay and old "
    "momentum. Let the shard's grad be None, too.",
    _EVERYTHING: "This rank keeps the state of all elements. Give optimizer_cls the shards, not the parameters.",
    _PLAIN: "The options in kwargs have not reached optimizer_cls: optimizer_cls(groups, **kwargs).",
    _FORGETS: "Every step loses the state of the previous steps: make the inner optimizer once, in __init__.",
    _DIVIDED: "The gradients are a mean already. Do not divide them again.",
    _ONCE: "params may be an iterator, as model.parameters() is, which has no first element and can be read once: "
    "begin with params = list(params).",
    _REMEMBERED: "zero_grad must forget the gradients of the parameters, not only those of the shards.",
}

EXERCISE = Exercise(
    id="sharded_optimizer",
    functions=("ShardedOptimizer",),
    driver=drive,
    oracle=expected,
    structure=and_more(expected, kept=0),
    find=find,
    least=least,
    visible=(
        optimizer_case("2 ranks, plain layers", 1311, 2, tied=False, frozen=False),
        optimizer_case("3 ranks, a shared weight and frozen layers", 1312, 3),
        optimizer_case("2 ranks, two groups, learning rates change", 1313, 2, groups=True, slower=True),
        optimizer_case("4 ranks, a layer that only step 0 uses", 1314, 4, spare=[0]),
    ),
    hints=(
        "What does optimizer_cls have to see so that it keeps state for one shard only? Make a small "
        "nn.Parameter for each "
        "parameter.",
        "Keep a dict from each trained parameter to its shard, and build new groups with shards in them: "
        "{**group, "
        '"params": shards}. In step: give every shard its part of the gradient (or None), let the inner '
        "optimizer step, "
        "gather.",
        "self.shards = {p: nn.Parameter(shard_of(p)) ...}; self.optimizer = optimizer_cls(groups, **kwargs); "
        "self.param_groups = self.optimizer.param_groups; after its step: start_gather(shards, parameters)().",
    ),
    mistakes=MISTAKES,
    blame=by_signs({_ONCE: ("subscriptable", "has no len()"), _TAIL: ("shape", "size"), _OWN_ONLY: HANGS}),
    certain=frozenset({_ONCE}),
)
