"""ZeRO-3: a module whose parameters are shards, except while they compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from labkit.checks.blame import HANGS, bearing
from labkit.checks.case import Case, Failure, Got, Value, Values
from labkit.checks.declared import Mistake, declared, flag_result
from labkit.checks.finding import Finding
from labkit.checks.values import listed, texts
from labkit.checks.wire import Wire
from labkit.exercises.sharded_training.on_ranks import OPTIONS, model_for
from labkit.exercises.sharded_training.sharded_module.driver import drive
from labkit.exercises.sharded_training.sharded_module.moments import (
    AHEAD,
    ALL_AT_ONCE,
    ALL_REDUCED,
    BLOCKS,
    EACH,
    FULL_STAYS,
    GRAPH_HOLDS,
    LATE,
    LEAVES,
    NEVER_FREED,
    NO_PREFETCH,
    NO_PREFETCH_BACK,
    NOT_AFTER_BACKWARD,
    on_ranks,
)
from labkit.exercises.sharded_training.training import (
    Parameters,
    alone,
    begun,
    first_steps,
    least_traffic,
    steps_that_came,
    training_case,
    wrong_names,
)
from labkit.words import join

_ROUNDING, _MOST_FAR = 0.03, 0.1
LAYERS = ("stem", "mix", "fixed", "remix", "head")


def module_case(
    name: str,
    seed: int,
    world_size: int,
    *,
    blocks: Sequence[str] = LAYERS,
    dtype: str = "",
    children: bool = False,
    **options: Any,
) -> Case:
    """Return a case of sharded_module.

    Args:
        name: In words.
        seed: Draws it.
        world_size: Number of ranks.
        blocks: Names of the layers that are gathered one at a time.
        dtype: In which they compute; "" for that of the parameters, float64.
        children: Whether the layers are all children that the model has, and None is handed over for them.
        options: See training_case.
    """
    more: dict[str, Any] = {"blocks": list(blocks), "dtype": dtype, "children": children}
    return training_case(name, seed, world_size, same_batch=False, more=more, **options)


def _names(case: Case) -> list[str]:
    return texts(case.inputs[0], "blocks")


def _in_half(case: Case) -> bool:
    return bool(case.inputs[0]["dtype"])


def expected(case: Case) -> list[Values]:
    """Return the parameters after each step (the oracle)."""
    return [{"steps": cast(Any, alone(case)), "precise": True, "copies": True, "typed": True} for _ in case.inputs]


def structure(case: Case) -> list[Values]:
    """Return what a rank's result looks like: what was seen at each look of each step besides."""
    num_steps, num_blocks = len(listed(case.inputs[0], "steps")), len(_names(case))
    look: list[Value] = ["", 0, [True] * num_blocks]
    seen: list[Value] = [look] * (num_steps * (2 * num_blocks + 3))
    counts: dict[str, Value] = {"kept": 0, "shards": [0] * num_steps, "saved": [0] * num_steps}
    counts["root"] = [True] * num_steps
    return [{**right, **counts, "seen": seen} for right in expected(case)]


def _wrong(case: Case, mine: Parameters, wanted: Parameters) -> list[str]:
    """Return the names of wrong parameters; with blocks of low precision, those that are far off, if many elements are.

    Adam moves an element by its learning rate in whichever direction its gradient points: where that is nearly zero,
    rounding turns it round. One element in fifty is so, at most one in twenty, in a hundred draws.
    """
    if not _in_half(case):
        return wrong_names(mine, wanted)
    apart = {name: _apart(mine.get(name), right) for name, right in wanted.items()}
    steps = len(listed(case.inputs[0], "steps"))
    most = 2 * cast(float, OPTIONS["lr"]) * steps + _ROUNDING
    far = sum(int((each > _ROUNDING).sum()) for each in apart.values())
    if far <= _MOST_FAR * sum(each.numel() for each in apart.values()):
        return [name for name, each in apart.items() if bool((each > most).any())]
    return [name for name, each in apart.items() if bool((each > _ROUNDING).any())]


def _in_root(case: Case) -> set[str]:
    """Return the names of the parameters that are in no block, or in several."""
    model = model_for(case.inputs[0])
    blocks = [set(getattr(model, name).parameters()) for name in _names(case)]
    return {name for name, each in model.named_parameters() if sum(each in block for block in blocks) != 1}


def _apart(came: Value, right: Value) -> Tensor:
    right = cast(Tensor, right)
    if not isinstance(came, Tensor) or came.shape != right.shape:
        return torch.full_like(right, float("inf"))
    return (came - right).abs().nan_to_num(float("inf"))


def _wrong_steps(case: Case, got: tuple[Values, ...]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield rank, step and names of wrong parameters."""
    right = alone(case)
    for rank, values in enumerate(got):
        for step, (mine, wanted) in enumerate(zip(steps_that_came(values), right, strict=True)):
            if wrong := _wrong(case, mine, wanted):
                yield rank, step, wrong


def _values(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, step, wrong in _wrong_steps(case, got):
        yield Finding("", f"After step {step} rank {rank} has wrong values in {join(wrong)}.", rank=rank)


def _root_left_out(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether what is wrong is in no block, or in several."""
    wrong = [] if isinstance(got, Failure) else [set(names) for _, _, names in _wrong_steps(case, got)]
    return bool(wrong) and wrong[0] <= _in_root(case)


def _root_freed(case: Case, got: Got, wire: Wire) -> bool:
    return not isinstance(got, Failure) and not all(all(listed(values, "root")) for values in got)


def _misnamed(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether the check looked for a parameter under a name that is not there."""
    if not isinstance(got, Failure) or got.error != "KeyError":
        return False
    return not got.detail or got.detail.startswith("None of your lines was running")


def _returns_nothing(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and "returned nothing" in got.message


def _grads_missing(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether in step 0 what is wrong has not moved at all, or a late shard met a whole gradient in step 1."""
    if isinstance(got, Failure):
        return "must match the size of tensor" in got.message and "run_backward(" in got.detail
    before, right = begun(case), alone(case)[0]
    came = first_steps(got)
    wrong = [wrong_names(each, right) for each in came]
    still = [set(right) - set(wrong_names(each, before)) for each in came]
    return not _in_half(case) and any(wrong) and all(set(a) <= b for a, b in zip(wrong, still, strict=True))


def _whole_gradient_stepped(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a whole gradient met a shard in the optimizer's step."""
    return isinstance(got, Failure) and "must match the size of tensor" in got.message and "in _move" in got.detail


def _in_no_unit(case: Case, got: Got, wire: Wire) -> bool:
    return isinstance(got, Failure) and got.error == "KeyError" and "Parameter containing" in got.message


def _next_in_backward(case: Case, got: Got, wire: Wire) -> bool:
    """Return whether a block that backward reaches was not under way before."""
    if isinstance(got, Failure):
        return False
    return any(found.mistake == NO_PREFETCH_BACK for found in on_ranks(case, got, wire))


def _no_storage(case: Case, got: Got, wire: Wire) -> bool:
    emptied = bearing("setStorage", "storage of size 0", "out of bounds")
    return isinstance(got, Failure) and emptied(case, got, wire)


def _frozen_freed(case: Case, got: Got, wire: Wire) -> bool:
    return len(_names(case)) < len(LAYERS) and _no_storage(case, got, wire)


def _shared_as_shard(case: Case, got: Got, wire: Wire) -> bool:
    model = model_for(case.inputs[0])
    return model.remix.weight is model.mix.weight and isinstance(got, Failure) and "must be a matrix" in got.message


def _precise(case: Case, got: tuple[Values, ...], wire: Wire) -> Iterator[Finding]:
    for rank, values in enumerate(got):
        if not values["precise"]:
            kind = case.inputs[0]["dtype"] or "float64"
            text = f"gather_full_params of rank {rank} returns {kind} where the parameter has another dtype."
            yield Finding("full parameters in low precision", text, "the parameters' dtype", str(kind), rank)


EXERCISE = declared(
    id="sharded_module",
    functions=("ShardedModule",),
    driver=drive,
    oracle=expected,
    structure=structure,
    least=least_traffic,
    looks=(
        flag_result("copies", "What gather_full_params returns on rank {rank} is not a copy.", "no copies"),
        _values, _precise,
        flag_result("typed", "On rank {rank} parameters in no block compute in another dtype than compute_dtype.",
                    "compute_dtype ignored"),
        on_ranks,
    ),
    mistakes=(
        Mistake("blocks is None", "blocks may be None: then they are module.children().",
                says=("'NoneType' object is not iterable",), certain=True),
        Mistake(LEAVES,
                "With blocks None, the blocks are module.children(), whatever they are made of. Yours are smaller: "
                "the layers inside a child come and go one by one."),
        Mistake("nothing returned", "forward returns what the module returns: return self.module(*args, **kwargs).",
                seen=_returns_nothing, certain=True),
        Mistake("compute_dtype ignored",
                "Inputs have compute_dtype, and parameters have another dtype: each Unit takes compute_dtype, that of "
                "the root, too.", says=("same dtype", "expected m1 and m2"), certain=True),
        Mistake("no copies",
                "These are the tensors that compute: freeing a unit empties them. Gather the shards into tensors of "
                "their own."),
        Mistake("other names",
                "gather_full_params uses the names of the module that was wrapped: self.module.named_parameters().",
                seen=_misnamed, certain=True),
        Mistake("freed with its last gradient",
                "A frozen layer of this unit is still needed: backward goes through its weight, and no gradient tells "
                "you when it has. Free a block when backward reaches the one before it, the root when it is over.",
                seen=_frozen_freed),
        Mistake("a shared weight in one block",
                "A parameter in several blocks belongs to the root, which is whole for the whole step. In one block's "
                "unit it is a shard again when the other block computes.", seen=_shared_as_shard),
        Mistake("not gathered for backward",
                "Backward needs the weights again, and the block has been freed: gather it when backward reaches its "
                "output.", seen=_no_storage),
        Mistake("the root freed too soon",
                "Parameters in no block, or in several, stay whole for the whole step: backward needs them, too. "
                "Gather the root unit in every forward, and free it in finish_gradient_synchronization, not before.",
                seen=_root_freed),
        Mistake("the root left out",
                "These are in no block, or in several: finish_gradient_synchronization has to free the root unit, too, "
                "and then to finish its scatter.", seen=_root_left_out),
        Mistake("gradients not finished",
                "Some gradients are still under way when the step is over: finish_gradient_synchronization finishes "
                "every unit's scatter, that of the first block and of the root, too.",
                seen=_grads_missing, certain=True),
        Mistake(NEVER_FREED, "Free a block in its forward hook, as soon as it has computed; only the last one may "
                "stay."),
        Mistake(ALL_AT_ONCE, "Only the block that computes and the next one may be whole: gather one ahead, not all."),
        Mistake(AHEAD,
                "While a block computes, only the next one may be on its way: what arrives takes memory, too."),
        Mistake("gradients stay whole",
                "When the optimizer steps, a parameter is its shard, and its grad is whole still: nothing has "
                "scattered it. A unit is complete when all of its *trained* parameters have a gradient, anew in each "
                "step.",
                seen=_whole_gradient_stepped, certain=True),
        Mistake("in no unit",
                "A parameter belongs to no unit. What is in no block, or in several, is the root's: give it a Unit.",
                seen=_in_no_unit, certain=True),
        Mistake("keywords not passed on",
                "forward was called with keywords, and the module got none: self.module(*args, **kwargs).",
                says=("missing 1 required positional argument",), certain=True),
        Mistake(NOT_AFTER_BACKWARD,
                "Free a block in backward, too: at the latest when the block before it computes. A frozen block has "
                "no gradient that would tell you."),
        Mistake(FULL_STAYS,
                "gather_full_params returns copies; the parameters themselves must be shards again afterwards."),
        Mistake(GRAPH_HOLDS,
                "Replacing parameter.data does not free what autograd has kept. Empty the storage: "
                "tensor.untyped_storage().resize_(0)."),
        Mistake(NO_PREFETCH,
                "When a block is about to compute, begin to gather the next one: it then travels in the meantime."),
        Mistake(NO_PREFETCH_BACK,
                "In backward the next block is the one before: begin to gather it when this one is about to compute.",
                seen=_next_in_backward),
        Mistake(ALL_REDUCED, "Each rank needs its shard of the mean gradient, and nothing else: reduce-scatter."),
        Mistake(EACH,
                "One gather and one scatter for each block are enough: a Unit does all its parameters together."),
        Mistake(LATE, "Scatter the gradients of a block from the hook of its last one, not after backward.",
                says=HANGS),
        Mistake(BLOCKS, "Begin the scatter in the hook and finish it later: when the next block's begins, say."),
        Mistake("full parameters in low precision",
                "These are the copies that compute. Gather the shards, which are the masters, into tensors of their "
                "own dtype."),
    ),
    visible=(
        module_case("2 ranks, plain layers", 1331, 2, tied=False, frozen=False, children=True),
        module_case("3 ranks, a frozen block", 1332, 3, tied=False),
        module_case("2 ranks, two blocks share a weight", 1333, 2),
        module_case("4 ranks, some layers are in no block", 1334, 4, blocks=("stem", "mix", "head"), tied=False),
        module_case(
            "2 ranks, a block of a frozen layer and a trained one", 1336, 2, blocks=("stem", "mix", "body", "head"),
            tied=False, joined=True, num_steps=2, children=True,
        ),
        module_case("2 ranks, blocks in bfloat16", 1335, 2, dtype="bfloat16", tied=False, num_steps=2),
    ),
    hints=(
        "Make a Unit for each block and one for the rest. Then ask of each moment in a step: who must be whole "
        "now, who "
        "should be on the way, who can go? A block with frozen parameters is done when the block before it is "
        "about to go.",
        "Before a block's forward: gather it, start_gather the next. After it: free it, unless it is the last. "
        "Before its "
        "backward: free the one behind, gather it, start_gather the one before. In the hook of its last gradient: "
        "start_scatter, and finish the scatter that was started before that.",
        "block.register_forward_pre_hook(partial(self.before, number, number + 1)) with def before(self, number, then, "
        "*_); register_full_backward_pre_hook takes the same with number - 1. A unit is complete when "
        "all(p.grad is not "
        "None for p in unit.trained).",
    ),
)  # fmt: skip
