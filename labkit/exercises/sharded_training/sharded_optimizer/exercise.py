"""ZeRO-1: an optimizer whose state is sharded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.blame import HANGS
from labkit.checks.case import Case, Failure, Got, Values
from labkit.checks.declared import Mistake, declared, either, flag_result
from labkit.checks.finding import Finding
from labkit.checks.least_traffic import Bytes, both_ways
from labkit.checks.structure import and_more
from labkit.checks.values import listed
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.on_ranks import model_for
from labkit.exercises.sharded_training.sharded_optimizer.driver import drive
from labkit.exercises.sharded_training.training import (
    EVERYTHING,
    STEPS,
    UNEQUAL,
    alone,
    begun,
    first_steps,
    keeps_its_share,
    trained,
    training_case,
    wrong_names,
)


def optimizer_case(name: str, seed: int, world_size: int, **options: Any) -> Case:
    """Return a case of sharded_optimizer; see training_case for the options."""
    return training_case(name, seed, world_size, same_batch=True, **options)


def expected(case: Case) -> list[Values]:
    """Return the parameters after each step (the oracle)."""
    return [{"steps": cast(Any, alone(case)), "forgotten": True} for _ in case.inputs]


def least(case: Case) -> dict[int, Bytes]:
    """Return what must travel: gradients are equal, but what moves an element in a step is on one rank."""
    return both_ways(range(case.world_size), len(listed(case.inputs[0], "steps")))


def _stands_still(case: Case, got: Got, *, tail: bool) -> bool:
    """Return whether after step 0 some rank's elements are right or old, the old ones those of the tail, or others."""
    before, after = begun(case), alone(case)[0]
    for came in first_steps(got):
        old = {name: (cast(Tensor, each) == before[name]).flatten() for name, each in came.items()}
        right = {name: ((cast(Tensor, each) - after[name]).abs() < 1e-9).flatten() for name, each in came.items()}
        whole = {name: len(each) // case.world_size * case.world_size for name, each in old.items()}
        explained = all(bool((old[name] | right[name]).all()) for name in came)
        if tail and not any(right[name].any() and not right[name].all() for name in came):
            return False  # whole parameters stand still
        if explained and not all(each.all() for each in right.values()):
            return tail == all(bool(right[name][: whole[name]].all()) for name in came)
    return False


def _own_only(case: Case, got: Got, wire: Wire) -> bool:
    return _stands_still(case, got, tail=False)


def _tail(case: Case, got: Got, wire: Wire) -> bool:
    return _stands_still(case, got, tail=True)


def _frozen_moved(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether frozen parameters have moved in step 0, and nothing else is wrong there."""
    frozen = {name for name, each in model_for(case.inputs[0]).named_parameters() if not each.requires_grad}
    wrong = [set(wrong_names(came, alone(case)[0])) for came in first_steps(got)]
    return any(wrong) and all(each <= frozen for each in wrong)


def _first_is_lost(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in step 0 the first parameter alone stands still."""
    before = begun(case)
    first = next(name for name, each in model_for(case.inputs[0]).named_parameters() if each.requires_grad)
    steps = first_steps(got)
    still = all(torch.equal(cast(Tensor, came[first]), before[first]) for came in steps)
    return bool(steps) and still and all(wrong_names(came, alone(case)[0]) == [first] for came in steps)


def _without_a_rate(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and got.error == "KeyError" and "'lr'" in got.message


def _no_gradient_travels(case: Case, got: object, wire: Wire) -> Iterator[Finding]:
    """Yield who reduces gradients, which are equal; an all_reduce in the place of a gather is none of these."""
    for rank in range(case.world_size):
        kinds = {each.kind for each in wire.collectives if each.rank == rank}
        gathered = any(each.startswith(("all_gather", "broadcast")) for each in kinds)
        if any(each.startswith("reduce_scatter") for each in kinds) or ("all_reduce" in kinds and gathered):
            yield Finding("equal gradients sent", f"The values are right, but rank {rank} sends gradients.", rank=rank)


def _unsharded(case: Case, rank: int) -> list[dict[str, Tensor]] | None:
    return alone(case, unsharded=rank) if "beside" in case.inputs[rank] else None


def _none_left(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether step gathers no tensor at all, and asks the empty list for its first."""
    if not isinstance(got, Failure) or got.error != "IndexError" or "in start_gather" not in got.detail:
        return False
    return "in step" in got.detail and "[0]" in got.detail.rpartition("\n")[2]


def _as_a_list(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether what may be an iterator was taken for a list; a name between quotes is no place in it."""
    if not isinstance(got, Failure) or re.search(r"\w\[['\"]", got.detail.rpartition("\n")[2]):
        return False
    return "subscriptable" in got.message or "has no len()" in got.message


EXERCISE = declared(
    id="sharded_optimizer",
    functions=("ShardedOptimizer",),
    driver=drive,
    oracle=expected,
    structure=and_more(expected, kept=0),
    least=least,
    looks=(
        flag_result("forgotten", "After zero_grad() rank {rank} still has gradients.", "gradients remembered"),
        STEPS,
        keeps_its_share(UNEQUAL),
        _no_gradient_travels,
    ),
    mistakes=(
        Mistake("one group for all",
                "All parameters are treated alike: the options of the groups are lost. Give optimizer_cls one group "
                "for each group, with the same options and the shards as parameters.",
                {"steps": trained(groups=False)}),
        Mistake("learning rate fixed",
                "A new learning rate in param_groups changes nothing. param_groups must be the very dicts that the "
                "inner optimizer reads.", {"steps": trained(slower=False)}, seen=_without_a_rate, certain=True),
        Mistake("one rate for all groups",
                "Every group has a learning rate of its own: a step uses the one that stands in that group's dict.",
                {"steps": (trained(one_rate=True), trained(one_rate=True, slower=False))}),
        Mistake("moved without a gradient",
                "A parameter without a gradient has moved: with zeros for a gradient, Adam still applies weight decay "
                "and old momentum. Let the shard's grad be None, too.", {"steps": trained(zeros=True)}),
        Mistake("an old gradient again",
                "A parameter without a gradient has moved by one of an earlier step: its shard still has that. Set the "
                "shard's grad to None where the parameter's is None.", {"steps": trained(again="stale")}),
        Mistake("gradients pile up",
                "Gradients of earlier steps are added in: a step takes this step's alone.",
                {"steps": trained(again="sum")}),
        Mistake("frozen ones updated",
                "Frozen parameters have moved. They are never updated, not even by weight decay: leave out what does "
                "not require a gradient.", seen=_frozen_moved),
        Mistake("options lost",
                "The options in kwargs have not reached optimizer_cls: optimizer_cls(groups, **kwargs).",
                {"steps": trained(plain=True)}),
        Mistake("no state kept",
                "Every step loses the state of the previous steps: make the inner optimizer and the shards once, in "
                "__init__. State belongs to the very tensor that the optimizer was given.",
                {"steps": trained(forgets=True)}),
        Mistake("divided twice", "The gradients are a mean already. Do not divide them again.",
                {"steps": trained(ranks=-1)}),
        Mistake("parameters for gradients",
                "The optimizer took the parameters for gradients: a shard's grad is its part of parameter.grad.",
                {"steps": trained(parameters=True)}),
        Mistake("nothing moves",
                "No parameter has moved. Either no shard had a gradient when the inner optimizer stepped, or what it "
                "moved was never gathered into the parameters. Both need the very shards that the inner optimizer "
                "was given, not new ones.",
                {"steps": lambda case, rank: [begun(case)] * len(listed(case.inputs[0], "steps"))}),
        Mistake("the tail stays",
                "The last elements of some parameters never move: their number does not divide by the ranks. Pad.",
                says=("shape", "size"), seen=_tail),
        Mistake("only the own shard",
                "Each rank has updated its own part, and the others' parts are as old as before: gather all shards "
                "after the update.", says=HANGS, seen=_own_only),
        Mistake("groups not taken",
                'params may be groups: then its elements are dicts, and each has its parameters under "params".',
                says=("'dict' object has no attribute",), certain=True),
        Mistake("params read as a list",
                "params may be an iterator, as model.parameters() is, which can be read once, and has no first "
                "element to look at: who takes one out has lost it. Begin with params = list(params).",
                seen=either(_as_a_list, _first_is_lost, _none_left), certain=True),
        Mistake(EVERYTHING,
                "This rank keeps the state of all elements. Give optimizer_cls the shards, not the parameters.",
                {"steps": _unsharded}),
        Mistake(UNEQUAL,
                "Parameters were dealt out whole, so that ranks keep unequal amounts. Cut each one: every rank keeps "
                "the state of its shard of it."),
        Mistake("equal gradients sent",
                "Gradients are equal on all ranks already: each takes its shard of its own, and none of them travels."),
        Mistake("gradients remembered",
                "zero_grad must forget the gradients of the parameters, not only those of the shards."),
    ),
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
)  # fmt: skip
